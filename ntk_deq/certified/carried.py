"""Carry certified bounds of singular values along a run: a spectrum now and then, Weyl's inequality in between."""

from __future__ import annotations

from dataclasses import dataclass

from flint import arb

from ntk_deq.certified.ball import Ball
from ntk_deq.certified.operations import frobenius, sigma_max, sigma_min, subtract
from ntk_deq.certified.scalar import from_bounds, lower, upper
from ntk_deq.errors import ArgumentError


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
