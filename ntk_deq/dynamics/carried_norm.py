"""The spectral norm of a matrix along a run, without a decomposition at every step."""

from __future__ import annotations

from dataclasses import dataclass

from ntk_deq.certified.ball import Ball
from ntk_deq.certified.extremes import sigma_max
from ntk_deq.certified.rounding import add_up, subtract_down
from ntk_deq.certified.scalar import lower, upper
from ntk_deq.dynamics.rounded import distance
from ntk_deq.errors import ArgumentError

_FAINT = 2.0**-400
# Below this length underflow may have spoilt the relative accuracy of a float sum of squares.


@dataclass
class CarriedNorm:
    """Bounds of the spectral norm of a matrix that moves little from step to step, as floats.

    By Weyl's inequality |norm(A) - norm(B)| <= fro(A - B), so that one decomposition serves until the displacement from
    it exceeds a share of the norm. `ntk_deq.certified.CarriedSpectrum` measures by the smallest singular value instead,
    which for a trained weight is often zero.

    Attributes:
        share: A new decomposition is made when the displacement exceeds this share of the norm; in (0, 1).
        decompositions: How many were made.

    Example:
        >>> import torch
        >>> carried = CarriedNorm(share=0.1)
        >>> for step in range(4):
        ...     low, high = carried.bound(Ball((1 + 0.01 * step) * torch.eye(2, dtype=torch.float64)))
        >>> carried.decompositions, low <= 1.03 <= high
        (1, True)

    References:
        Weyl (1912), Math. Ann. 71, 441-479; Horn and Johnson, Matrix Analysis, Corollary 7.3.5.
    """

    share: float = 0.1
    decompositions: int = 0
    _reference: Ball | None = None
    _low: float = 0.0
    _high: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a share outside (0, 1)."""
        if not 0 < self.share < 1:
            raise ArgumentError(f"`share` of CarriedNorm must lie between 0 and 1. Got {self.share}.")

    def bound(self, matrix: Ball) -> tuple[float, float]:
        """Return bounds of the norm of every matrix in a ball.

        Args:
            matrix: The present matrix; a vector's norm is its length, and costs no decomposition.
        """
        if min(matrix.shape) == 1:
            low, high = _lengths(matrix)
            return max(0.0, subtract_down(low, matrix.radius)), add_up(high, matrix.radius)
        if self._reference is not None:
            displacement = distance(matrix, self._reference)
            if displacement <= self.share * self._low:
                return max(0.0, subtract_down(self._low, displacement)), add_up(self._high, displacement)
        self.decompositions += 1
        self._reference = Ball(matrix.centre)
        norm = sigma_max(self._reference)
        self._low, self._high = lower(norm), upper(norm)
        return max(0.0, subtract_down(self._low, matrix.radius)), add_up(self._high, matrix.radius)


def _lengths(vector: Ball) -> tuple[float, float]:
    """Return bounds of the length of a ball's centre."""
    if vector.fro < _FAINT:
        return 0.0, vector.fro
    # The rounded sum of n squares and what `fro_up` adds for it, each within (n + 8) u of the truth.
    return subtract_down(vector.fro, 4.0 * (vector.centre.numel() + 8) * 2.0**-53 * vector.fro), vector.fro
