"""Discs around the eigenvalues of one block, cheap where many of its rows have a diagonal entry only.

With D = diag(0 or 1) many rows of I - gamma D A' are rows of I. A permutation brings such a block to the form
B = [[B1, C], [0, c I]], with eigenvalue c and those of B1: eigenvectors are needed of B1 only, half the size and with a
better condition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ntk_deq.certified import rounding
from ntk_deq.certified.arithmetic import matmul, subtract
from ntk_deq.certified.ball import Ball
from ntk_deq.certified.eigenvalues import NEARLY_SYMMETRIC, TRUSTED, Discs, eigenvalue_discs, eigenvectors
from ntk_deq.certified.rounding import (
    TINY,
    add_up,
    divide_up,
    fro_up,
    largest_entry,
    multiply_up,
    outward,
    power_of_two,
    subtract_down,
)
from ntk_deq.certified.spectra import scaled, symmetric_part, upper_scaled


@dataclass(frozen=True)
class _Basis:
    """Approximate eigenvectors V = [[V1, X S], [0, S]] and W about V^-1, as bounds.

    Attributes:
        values: Approximate eigenvalues, complex.
        vectors: Bound on norm(V).
        inverse: Bound on norm(W).
        defect: Bound on norm(I - W V).
        residual: Bound on norm(B V - V L), in Frobenius norm.
    """

    values: Tensor
    vectors: float
    inverse: float
    defect: float
    residual: float


def block_discs(a: Ball) -> Discs:
    """Return discs that enclose the eigenvalues of every matrix of a ball, as `eigenvalue_discs`.

    For W about V^-1 and B moved by at most r: radius norm(W) (norm(B V - V L) + r norm(V))/(1 - norm(I - W V)).

    Example:
        >>> discs = block_discs(Ball(torch.tensor([[0.5, 1.0], [0.0, 1.0]], dtype=torch.float64)))
        >>> discs.radius < 1e-14, sorted(discs.centres.real.tolist()), discs.exponent
        (True, [0.25, 0.5], 1)
    """
    # A quick look first: the symmetric part costs more to bound than to compare with.
    turned = largest_entry(a.work - a.work.mT) <= 4.0 * NEARLY_SYMMETRIC * largest_entry(a.work)
    if turned and symmetric_part(a)[1] <= NEARLY_SYMMETRIC:
        return eigenvalue_discs(a)
    work, lost, exponent = scaled(a)
    moved = add_up(lost, upper_scaled(a.radius, exponent))
    idle, value = _idle_rows(work)
    for chosen in (idle, torch.zeros_like(idle)) if bool(idle.any()) else (idle,):
        discs = _discs(work, moved, exponent, chosen, value)
        if discs.radius <= TRUSTED:
            break
    return discs


def _idle_rows(matrix: Tensor) -> tuple[Tensor, float]:
    """Return a mask of the rows that are c times a row of the identity, for one c, and c."""
    diagonal = matrix.diagonal()
    idle = (matrix != 0).sum(dim=1) == (diagonal != 0).to(torch.int64)
    places = idle.nonzero()
    if not len(places):
        return idle, 0.0
    value = float(diagonal[places[0, 0]])
    return idle & (diagonal == value), value


def _discs(work: Tensor, moved: float, exponent: int, idle: Tensor, value: float) -> Discs:
    order = work.shape[0]
    basis = _basis(work, idle, value)
    if basis is None:
        return Discs(torch.zeros(order, dtype=torch.complex128), math.inf, exponent)
    gap = subtract_down(1.0, basis.defect)
    off = add_up(basis.residual, multiply_up(moved, basis.vectors))
    return Discs(basis.values.cpu(), divide_up(multiply_up(basis.inverse, off), gap), exponent)


def _basis(work: Tensor, idle: Tensor, value: float) -> _Basis | None:
    count = int(idle.sum())
    constant = torch.full((count,), value, dtype=torch.complex128, device=work.device)
    if count == work.shape[0]:
        return _Basis(constant, 1.0, 1.0, 0.0, 0.0)
    block = work[~idle][:, ~idle].contiguous()
    found = eigenvectors(block)
    if found is None:
        return None
    values, vectors = found
    inverse, info = torch.linalg.inv_ex(vectors)
    if int(info) != 0 or not bool(torch.isfinite(inverse).all()):
        return None
    halves, turned = _stacked(vectors), _embedded(inverse)
    one = torch.zeros_like(halves)
    one[: len(values)].diagonal().fill_(1.0)
    own = subtract(matmul(Ball(turned), Ball(halves)), Ball(one))
    residual = _residual(block, vectors, values)
    bounds = _Basis(values, fro_up(halves), _size(inverse), _length(own), residual)
    if not count:
        return bounds
    return _widened(bounds, torch.cat([values, constant]), work, idle, value, inverse)


def _stacked(matrix: Tensor) -> Tensor:
    """Return [Re; Im], which has the Frobenius norm of the complex matrix."""
    return torch.cat([matrix.real, matrix.imag])


def _embedded(matrix: Tensor) -> Tensor:
    """Return [[Re, -Im], [Im, Re]], which times [Re; Im] of another is [Re; Im] of the product."""
    return torch.cat([torch.cat([matrix.real, -matrix.imag], dim=1), torch.cat([matrix.imag, matrix.real], dim=1)])


def _size(matrix: Tensor) -> float:
    """Bound the spectral norm of a complex matrix by that of |Re| + |Im|, each entry of which is rounded once."""
    moduli = Ball(matrix.real.abs() + matrix.imag.abs())
    rounded = outward(1.0 + 2.0 * rounding.unit_roundoff())
    return min(multiply_up(moduli.norm2, rounded), fro_up(_stacked(matrix)))


def _length(a: Ball) -> float:
    """Bound the Frobenius norm of the truth."""
    return add_up(a.fro, a.radius)


def _residual(block: Tensor, vectors: Tensor, values: Tensor) -> float:
    """Bound fro(B V - V L)."""
    apart = torch.cat([vectors.real, vectors.imag], dim=1)
    image = matmul(Ball(block), Ball(apart))
    real, imaginary = values.real, values.imag
    parts = [vectors.real * real, vectors.imag * imaginary, vectors.real * imaginary, vectors.imag * real]
    shifted = torch.cat([parts[0] - parts[1], parts[2] + parts[3]], dim=1)
    # Two products and a sum: |error| <= 2 u (|p| + |q|) + 2 TINY for each entry, u of each product and u of their sum.
    sizes = add_up(*(fro_up(part) for part in parts))
    rounded = multiply_up(outward(2.0 * rounding.unit_roundoff() * (1.0 + 2.0**-20)), sizes)
    underflow = multiply_up(2.0 * shifted.numel(), TINY)
    return add_up(_length(subtract(image, Ball(shifted))), rounded, underflow)


def _widened(own: _Basis, values: Tensor, work: Tensor, idle: Tensor, value: float, inverse: Tensor) -> _Basis | None:
    """Add the eigenvectors [X S; S] for c, with (c I - B1) X about C and S powers of two that bring columns near 1."""
    block, beside = work[~idle][:, ~idle].contiguous(), work[~idle][:, idle].contiguous()
    shift = torch.zeros_like(block)
    shift.diagonal().fill_(value)
    against = subtract(Ball(shift), Ball(block))
    solution, info = torch.linalg.solve_ex(against.centre, beside)
    if int(info) != 0 or not bool(torch.isfinite(solution).all()):
        return None
    lengths = (1.0 + (solution * solution).sum(dim=0)).sqrt()
    scale = torch.tensor([math.ldexp(1.0, 1 - power_of_two(x)) for x in lengths.tolist()]).to(solution)
    ball = Ball(solution * scale)  # powers of two: exact unless the solution is useless
    residual = subtract(matmul(against, ball), Ball(beside * scale))
    coupled = matmul(
        Ball(_stacked(inverse)), ball
    )  # W1 X S: W's corner is minus its centre over S, the defect its rest
    corner = torch.complex(*coupled.centre.chunk(2)) / scale
    whole = torch.zeros(len(values), len(values), dtype=torch.complex128, device=work.device)
    split = len(inverse)
    whole[:split, :split], whole[:split, split:] = inverse, corner
    whole[split:, split:].diagonal().copy_(1.0 / scale)
    lost = multiply_up(2.0 * float(whole.numel()), TINY)  # where a scaling by powers of two leaves the normal numbers
    return _Basis(
        values,
        add_up(own.vectors, ball.fro, fro_up(scale[None])),
        _size(whole),
        add_up(own.defect, coupled.radius, lost),
        add_up(own.residual, _length(residual), lost),
    )
