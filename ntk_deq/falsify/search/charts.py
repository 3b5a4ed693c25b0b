"""Coordinates of the sets that matrices and vectors range over: free real numbers, as few as the set allows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ntk_deq.claims.claim import Domain, DomainKind
from ntk_deq.falsify.search.entries import entry_map

_FACTOR_BITS = 22  # of a semidefinite matrix's factor: its products have 46 bits at most, so that sums have no rounding

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Chart:
    """Coordinates of one variable.

    Attributes:
        size: How many there are.
        decode: From coordinates, count x size, to values, count x the variable's shape; differentiable.
        encode: From one value to its coordinates.
    """

    size: int
    decode: Callable[[Tensor], Tensor]
    encode: Callable[[Tensor], Tensor]


def chart(domain: Domain, shape: Shape, *, smooth: bool) -> Chart:
    """Return coordinates for a domain.

    Symmetric, skew and diagonal matrices have their independent entries, a semidefinite P the factor R of P = R'R, an
    orthogonal matrix the matrix whose QR decomposition has it as Q, unit rows the rows before they are scaled.

    Args:
        domain: The domain.
        shape: Shape of the variable.
        smooth: Whether entries that are restricted get a smooth map or a projection: see `entry_map`.

    Example:
        >>> skew = chart(Domain(DomainKind.SKEW), (2, 2), smooth=True)
        >>> skew.size, skew.decode(torch.tensor([[3.0]])).tolist()
        (1, [[[0.0, 3.0], [-3.0, 0.0]]])
    """
    match domain.kind:
        case DomainKind.SYMMETRIC:
            return _triangle(shape[0], offset=0, sign=1.0)
        case DomainKind.SKEW:
            return _triangle(shape[0], offset=1, sign=-1.0)
        case DomainKind.DIAGONAL:
            return Chart(shape[0], torch.diag_embed, torch.diagonal)
        case DomainKind.PSD:
            return Chart(math.prod(shape), lambda x: _gram(x.reshape(-1, *shape)), _factor)
        case DomainKind.ORTHOGONAL:
            return Chart(math.prod(shape), lambda x: _orthogonal(x.reshape(-1, *shape)), torch.flatten)
        case DomainKind.UNIT_ROWS:
            return Chart(math.prod(shape), lambda x: _unit(x.reshape(-1, *shape)), torch.flatten)
    entries = entry_map(domain, smooth=smooth)
    return Chart(
        math.prod(shape), lambda x: entries.decode(x).reshape(-1, *shape), lambda v: entries.encode(v.reshape(-1))
    )


def _triangle(n: int, *, offset: int, sign: float) -> Chart:
    """Matrices given by their upper triangle, of which the lower one is a copy or the negative."""
    rows, cols = torch.triu_indices(n, n, offset)

    def decode(x: Tensor) -> Tensor:
        points = torch.arange(len(x)).unsqueeze(1)
        upper = x.new_zeros(len(x), n, n).index_put((points, rows, cols), x)
        return upper + sign * upper.triu(1).mT

    return Chart(len(rows), decode, lambda value: value[rows, cols])


def _gram(factor: Tensor) -> Tensor:
    """Return R'R without rounding, R cut to `_FACTOR_BITS` bits below its largest entry."""
    largest = factor.detach().abs().amax((-2, -1), keepdim=True)
    unit = torch.exp2(torch.floor(torch.log2(largest.clamp_min(2.0**-400))) - _FACTOR_BITS)
    cut = torch.round(factor.detach() / unit) * unit
    kept = cut + (factor - factor.detach())  # the value is cut, the derivative is that of the factor
    return kept.mT @ kept


def _factor(value: Tensor) -> Tensor:
    """Return an R with R'R close to the value: triangular where it is definite."""
    lower, info = torch.linalg.cholesky_ex(value)
    if int(info) == 0:
        return lower.mT.flatten()
    eigenvalues, vectors = torch.linalg.eigh(value)
    return (eigenvalues.clamp_min(0.0).sqrt().unsqueeze(1) * vectors.mT).flatten()


def _orthogonal(matrix: Tensor) -> Tensor:
    """Return the Q of the QR decomposition whose R has a positive diagonal."""
    q, r = torch.linalg.qr(matrix)
    signs = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).detach()
    return q * signs.unsqueeze(-2) + 0.0  # no negative zeros


def _unit(rows: Tensor) -> Tensor:
    """Scale rows to length one; a row of zeros becomes the first unit vector."""
    first = torch.zeros_like(rows)
    first[..., 0] = 1.0
    length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    lost = ~(length > 0)
    return torch.where(lost, first, rows / torch.where(lost, 1.0, length))
