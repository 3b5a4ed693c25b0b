"""Carry certified bounds of singular values along a run: a spectrum now and then, Weyl's inequality in between.

The operations on matrix balls that everything above uses, each extended to every family of balls.

A tensor may stand in for a ball; it counts as exact, and a vector as one column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from flint import arb

from ntk_deq.certified.arithmetic import add as _add
from ntk_deq.certified.arithmetic import compare_entries as _compare_entries
from ntk_deq.certified.arithmetic import hadamard as _hadamard
from ntk_deq.certified.arithmetic import matmul as _matmul
from ntk_deq.certified.arithmetic import negate as _negate
from ntk_deq.certified.arithmetic import scale as _scale
from ntk_deq.certified.arithmetic import subtract as _subtract
from ntk_deq.certified.dense import Ball
from ntk_deq.certified.dense import above as _above
from ntk_deq.certified.dense import absolute as _absolute
from ntk_deq.certified.dense import as_scalar as _as_scalar
from ntk_deq.certified.dense import beside as _beside
from ntk_deq.certified.dense import block as _block
from ntk_deq.certified.dense import relu as _relu
from ntk_deq.certified.dense import step as _step
from ntk_deq.certified.dense import transpose as _transpose
from ntk_deq.certified.dense import vec as _vec
from ntk_deq.certified.dispatch import generic
from ntk_deq.certified.eigenvalues import lambda_max as _lambda_max
from ntk_deq.certified.eigenvalues import lambda_min as _lambda_min
from ntk_deq.certified.eigenvalues import rho as _rho
from ntk_deq.certified.extremes import lambda_min_at_least as _lambda_min_at_least
from ntk_deq.certified.extremes import lambda_min_below as _lambda_min_below
from ntk_deq.certified.extremes import sigma_max as _sigma_max
from ntk_deq.certified.extremes import sigma_min as _sigma_min
from ntk_deq.certified.extremes import spectral_norm as _spectral_norm
from ntk_deq.certified.inversion import inverse as _inverse
from ntk_deq.certified.inversion import solve as _solve
from ntk_deq.certified.norms import determinant as _determinant
from ntk_deq.certified.norms import entry_max as _entry_max
from ntk_deq.certified.norms import entry_min as _entry_min
from ntk_deq.certified.norms import entry_sum as _entry_sum
from ntk_deq.certified.norms import frobenius as _frobenius
from ntk_deq.certified.norms import norm1 as _norm1
from ntk_deq.certified.norms import norminf as _norminf
from ntk_deq.certified.norms import trace as _trace
from ntk_deq.certified.roots import pinv as _pinv
from ntk_deq.certified.roots import sqrtm as _sqrtm
from ntk_deq.certified.scalar import from_bounds, lower, upper
from ntk_deq.certified.spectra import eigenvalues_symmetric as _eigenvalues_symmetric
from ntk_deq.certified.spectra import singular_values as _singular_values
from ntk_deq.certified.structured import diag as _diag
from ntk_deq.certified.structured import identity as _identity
from ntk_deq.certified.structured import kron as _kron
from ntk_deq.errors import ArgumentError

add = generic(_add)
hadamard = generic(_hadamard)
negate = generic(_negate)
scale = generic(_scale)
subtract = generic(_subtract)
as_scalar = generic(_as_scalar)
compare_entries = generic(_compare_entries)
lambda_max = generic(_lambda_max)
lambda_min = generic(_lambda_min)
lambda_min_at_least = generic(_lambda_min_at_least)
lambda_min_below = generic(_lambda_min_below)
rho = generic(_rho)
pinv = generic(_pinv)
sqrtm = generic(_sqrtm)
inverse = generic(_inverse)
solve = generic(_solve)
determinant = generic(_determinant)
entry_max = generic(_entry_max)
entry_min = generic(_entry_min)
entry_sum = generic(_entry_sum)
frobenius = generic(_frobenius)
norm1 = generic(_norm1)
norminf = generic(_norminf)
trace = generic(_trace)
kron = generic(cast(Callable[[Ball, Ball], Ball], _kron))
matmul = generic(_matmul)
eigenvalues_symmetric = generic(_eigenvalues_symmetric)
sigma_max = generic(_sigma_max)
sigma_min = generic(_sigma_min)
singular_values = generic(_singular_values)
spectral_norm = generic(_spectral_norm)
above = generic(_above)
absolute = generic(_absolute)
beside = generic(_beside)
block = generic(_block)
diag = generic(cast(Callable[[Ball], Ball], _diag))
relu = generic(_relu)
step = generic(_step)
transpose = generic(_transpose)
vec = generic(_vec)


def identity(n: int, *, dtype: torch.dtype = torch.float64, device: torch.device | str | None = None) -> Ball:
    """Return the identity of order n; a large one is never formed.

    Raises:
        ArgumentError: n < 1.
        LimitError: Its diagonal does not fit.

    Example:
        >>> identity(2)
        Ball(2 x 2, float64, radius=0)
    """
    return cast(Ball, _identity(n, dtype=dtype, device=device))


@dataclass
class CarriedSpectrum:
    """Bounds of the extreme singular values of a matrix that moves little from step to step.

    For matrices A and B of one shape, Weyl's inequality gives |sigma_i(A) - sigma_i(B)| <= norm(A - B) <= fro(A - B).
    So one decomposition serves every later step whose displacement from it is small against its smallest singular
    value.

    Attributes:
        share: A new decomposition is made when the displacement exceeds this share of sigma_min; in (0, 1).
        decompositions: How many were made.
        steps: How many matrices were bounded.

    Example:
        >>> import torch
        >>> from ntk_deq.certified import ball
        >>> carried = CarriedSpectrum(share=0.1)
        >>> Z = torch.eye(2, dtype=torch.float64)
        >>> for step in range(4):
        ...     smallest, _ = carried.bound(ball(Z * (1 - 0.01 * step)))
        >>> carried.decompositions, carried.steps, bool(smallest.contains(0.97))
        (1, 4, True)

    References:
        Weyl (1912), Math. Ann. 71, 441-479; Horn and Johnson, Matrix Analysis, Corollary 7.3.5.
    """

    share: float = 0.1
    decompositions: int = 0
    steps: int = 0
    _reference: Ball | None = None
    _smallest: arb | None = None
    _largest: arb | None = None

    def __post_init__(self) -> None:
        """Refuse a share outside (0, 1)."""
        if not 0 < self.share < 1:
            raise ArgumentError(f"`share` of CarriedSpectrum must lie between 0 and 1. Got {self.share}.")

    def bound(self, matrix: Ball) -> tuple[arb, arb]:
        """Return balls that contain the smallest and the largest singular value.

        Args:
            matrix: The present matrix; of the same shape as the earlier ones, else a new spectrum is computed.
        """
        self.steps += 1
        if self._reference is not None and self._reference.shape == matrix.shape:
            displacement = upper(frobenius(subtract(matrix, self._reference)))
            assert self._smallest is not None
            assert self._largest is not None
            if displacement <= self.share * lower(self._smallest):
                return _widened(self._smallest, displacement), _widened(self._largest, displacement)
        self.decompositions += 1
        self._reference = matrix
        self._smallest, self._largest = sigma_min(matrix), sigma_max(matrix)
        return self._smallest, self._largest


def _widened(value: arb, displacement: float) -> arb:
    """The ball of a singular value after a displacement; singular values are never negative."""
    moved = arb(displacement)
    low = lower(value - moved)
    return from_bounds(max(low, 0.0), upper(value + moved))
