"""Ball operations for the steps of a run: rounding is bounded in advance, and norms are carried from step to step.

The operations of `ntk_deq.certified` also find out whether a result is exact, which decides cases of equality and
costs more than a small product. Thousands of steps need the products and no equality but 0 = 0: a result counts as
exact beside a zero matrix only. The spectral norm of a matrix is carried along a run without a decomposition at every
step, as are extreme eigenvalues, and how much the equilibrium of each sample amplifies a change of its equation is
bounded once for many steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified import rounding
from ntk_deq.certified.arithmetic import column_multiples, product_radius, summing_error
from ntk_deq.certified.dense import Ball, first_reason
from ntk_deq.certified.exactness import sum_error
from ntk_deq.certified.extremes import sigma_max, spectral_norm
from ntk_deq.certified.rounding import (
    TINY,
    add_up,
    divide_up,
    fro_up,
    largest_entry,
    multiply_up,
    root_up,
    subtract_down,
)
from ntk_deq.certified.scalar import lower, upper
from ntk_deq.certified.spectra import eigenvalues_symmetric
from ntk_deq.equilibrium.slopes import MOST_WORK, Slopes, banach_bound, pattern_inverses
from ntk_deq.errors import ArgumentError


def product(a: Ball, b: Ball, *, norm_a: float | None = None, norm_b: float | None = None) -> Ball:
    """Return a b.

    Truth and product differ by at most norm(A) rB + rA norm(B) + rA rB, and by rounding, g_n fro(|A||B|) + n 2^-1074 an
    entry with g_n = n u/(1 - n u).

    Args:
        a: rows x n.
        b: n x cols.
        norm_a: Upper bound of the spectral norm of a's centre; None: its Frobenius norm serves.
        norm_b: Likewise of b's.

    Example:
        >>> tenth = Ball(torch.full((2, 2), 0.1, dtype=torch.float64))
        >>> product(tenth, tenth).radius < 1e-16, product(tenth, Ball(0 * tenth.centre)).radius
        (True, 0.0)
    """
    centre = a.centre @ b.centre
    size_a, size_b = a.fro if norm_a is None else norm_a, b.fro if norm_b is None else norm_b
    error = product_radius(size_a, a.radius, size_b, b.radius)
    if a.fro and b.fro:
        inner = a.shape[1]
        size = min(multiply_up(a.fro, size_b), multiply_up(size_a, b.fro))
        underflow = multiply_up(2.0 * inner, TINY, root_up(float(centre.numel())))
        error = add_up(error, multiply_up(summing_error(inner), size), underflow)
    return Ball(centre, error, first_reason(a, b))


def multiple(factor: float, a: Ball) -> Ball:
    """Return factor a for a float that counts as exact.

    Example:
        >>> multiple(0.5, Ball(torch.ones(1, 1, dtype=torch.float64), 1.0)).radius >= 0.5
        True
    """
    if factor == 1.0:
        return a
    size = abs(factor)
    rounded = multiply_up(rounding.unit_roundoff(), size, a.fro)
    underflow = multiply_up(float(a.centre.numel()), TINY) if a.fro else 0.0
    return Ball(factor * a.centre, add_up(multiply_up(size, a.radius), rounded, underflow), a.reason)


def longest_row(a: Ball) -> float:
    """Return an upper bound of the length of every row of a centre; zero where all are.

    Example:
        >>> 1.0 <= longest_row(Ball(torch.eye(3, dtype=torch.float64))) < 1.0 + 1e-12
        True
    """
    if not a.fro:
        return 0.0
    cols = a.shape[1]
    length = float(torch.linalg.vector_norm(a.centre, dim=1).amax())
    # The squares of entries below 2^-511 may be lost.
    return add_up(multiply_up(length, 1.0 + (cols + 8) * 2.0**-52), multiply_up(float(cols), 2.0**-511))


def short_norm(tensor: Float[Tensor, "rows cols"]) -> float:
    """Return an upper bound of the spectral norm, too large by the fourth root of the rank at most.

    norm(A)^2 = norm(AA') <= fro(AA').

    Example:
        >>> 1.0 <= short_norm(torch.eye(16, dtype=torch.float64)) < 2.0 + 1e-12
        True
    """
    short = tensor if tensor.shape[0] <= tensor.shape[1] else tensor.mT
    (rows, cols), size = short.shape, fro_up(tensor)
    rounded = multiply_up(summing_error(cols), size, size)
    underflow = multiply_up(float(rows * cols), TINY)
    return min(size, root_up(add_up(fro_up(short @ short.mT), rounded, underflow)))


def row_multiples(factors: Ball, a: Ball) -> Ball:
    """Return diag(f) A for a column f.

    Truth and product differ by at most max|f| rA + rf max row(A) + rf rA, and by rounding.

    Example:
        >>> eye = torch.eye(2, dtype=torch.float64)
        >>> row_multiples(Ball(eye[:, :1]), Ball(eye)).centre.tolist()
        [[1.0, 0.0], [0.0, 0.0]]
    """
    centre = factors.centre * a.centre
    error = product_radius(largest_entry(factors.centre), factors.radius, longest_row(a), a.radius)
    if factors.fro and a.fro:
        rounded = multiply_up(rounding.unit_roundoff(), fro_up(centre))
        error = add_up(error, rounded, multiply_up(float(centre.numel()), TINY))
    return Ball(centre, error, first_reason(factors, a))


def total(a: Ball, b: Ball) -> Ball:
    """Return a + b, with the rounding error bounded by u norm(a + b).

    Example:
        >>> one = Ball(torch.ones(1, 1, dtype=torch.float64))
        >>> total(one, one).centre.item()
        2.0
    """
    centre = a.centre + b.centre
    rounded = multiply_up(rounding.unit_roundoff(), fro_up(centre))
    return Ball(centre, add_up(a.radius, b.radius, rounded), first_reason(a, b))


def distance(a: Ball, b: Ball) -> float:
    """Return an upper bound of the Frobenius distance of any matrix of one ball from any of the other.

    Example:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> 3.0 <= distance(Ball(one), Ball(3 * one, 1.0)) < 3.0 + 1e-12
        True
    """
    gap = fro_up(a.centre - b.centre)
    return add_up(gap, multiply_up(rounding.unit_roundoff(), gap), a.radius, b.radius)


def moved(a: Ball, change: Ball) -> Ball:
    """Return a - change, where the rounding error is worked out exactly (Knuth's two-sum).

    A small change of a large matrix is mostly lost to rounding, and by how much matters.

    Example:
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> result = moved(Ball(one), Ball(1e-20 * one))
        >>> result.centre.item(), 1e-20 <= result.radius < 1.01e-20
        (1.0, True)
    """
    step = -change.centre
    centre = a.centre + step
    lost = fro_up(sum_error(a.centre, step, centre))
    return Ball(centre, add_up(a.radius, change.radius, lost), first_reason(a, change))


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


@dataclass
class CarriedEigenvalues:
    """Bounds of the extreme eigenvalues of a symmetric matrix that moves little from step to step (Weyl).

    Attributes:
        share: New eigenvalues are computed when the displacement exceeds this share of how far the smallest one is
            below zero, or `floor` times the largest one.
        floor: See `share`.
        decompositions: How many were made.
    """

    share: float = 0.25
    floor: float = 1e-4
    decompositions: int = 0
    _reference: Ball | None = None
    _low: float = 0.0
    _high: float = 0.0

    def bound(self, matrix: Ball) -> tuple[float, float]:
        """Return a lower bound of the smallest and an upper bound of the largest eigenvalue of a ball's matrices."""
        if self._reference is not None:
            displacement = distance(matrix, self._reference)
            if displacement <= max(-self.share * self._low, self.floor * self._high) < math.inf:
                return subtract_down(self._low, displacement), add_up(self._high, displacement)
        self.decompositions += 1
        self._reference = Ball(matrix.centre)
        found = eigenvalues_symmetric(self._reference)
        self._low, self._high = lower(found[0]), upper(found[-1])
        return subtract_down(self._low, matrix.radius), add_up(self._high, matrix.radius)


@dataclass(frozen=True, eq=False)
class Inverses:
    """M_n = D (I - L D)^-1 of every sample.

    Attributes:
        centres: N x m x m.
        radius: Bound on the Frobenius distance from each to the truth; infinite where nothing is known.
    """

    centres: Float[Tensor, "N m m"]
    radius: float


def sample_inverses(weight: Ball, slopes: Float[Tensor, "N m"]) -> Inverses:
    """Return M_n for every L in a ball.

    With E = I - (I - L D) R of norm d < 1 the inverse is R (I - E)^-1, at most norm(R) d/(1 - d) away from R.

    Args:
        weight: L, m x m.
        slopes: D, a sample a row.

    Example:
        >>> half = torch.full((1, 1), 0.5, dtype=torch.float64)
        >>> found = sample_inverses(Ball(half), torch.ones_like(half))
        >>> found.centres.item(), found.radius < 1e-14
        (2.0, True)
    """
    m = weight.shape[0]
    unit = torch.eye(m, dtype=slopes.dtype, device=slopes.device)
    systems = unit - weight.centre * slopes[:, None, :]
    inverted, info = torch.linalg.inv_ex(systems)
    defects = unit - systems @ inverted
    sizes = [torch.linalg.matrix_norm(stack).amax() for stack in (systems, inverted, defects)]
    system, inverse, defect, failed = torch.stack([*sizes, (info != 0).any().to(slopes.dtype)]).tolist()
    if failed:
        return Inverses(inverted, math.inf)
    # Each float norm is off by its own rounding, (m^2 + 4) u at most; the products and differences round once each.
    outward = 1.0 + 2.0 * (m * m + 8) * 2.0**-52
    system, inverse, defect = (multiply_up(size, outward) for size in (system, inverse, defect))
    u = rounding.unit_roundoff()
    off = add_up(weight.radius, multiply_up(2.0 * u, add_up(system, weight.fro)))
    rounded = multiply_up(summing_error(m + 1), add_up(root_up(float(m)), multiply_up(system, inverse)))
    d = add_up(defect, rounded, multiply_up(off, inverse), multiply_up(float(m * m * m), TINY))
    radius = add_up(divide_up(multiply_up(inverse, d), subtract_down(1.0, d)), multiply_up(u, inverse))
    return Inverses(slopes[:, :, None] * inverted, radius)


_ROOM = 1 / 8
# How far the weight may move before the inverses are renewed, over 1/(1 - q). The bounds are too large by about this.

_CALL, _INVERSE = 4e6, 2e6
# Floating-point operations that take as long as the Python around one step, and around one inverse.

_WORTHWHILE = 1.2
# Where 1/(1 - norm(L)) is below this, inverses would not help much.

_SHARE = 0.25
# Part of the work on steps that may go into inverses.


class CarriedStretch:
    """Upper bounds M_n of norm(D (I - L D)^-1), D the slopes of sample n, never above 1/(1 - norm(L)).

    An approximate inverse R of I - L0 D with norm(I - (I - L D) R) <= d < 1 for all L within some distance of L0 gives
    norm(D R)/(1 - d) for all of them; it is remembered by pattern until L leaves that ball. Patterns of samples near a
    kink change often: inverses are formed at the pace that a share of the work of the steps so far allows, and
    1/(1 - norm(L)) stands in for those that are not.

    Attributes:
        inversions: How many inverses were formed.

    Example:
        >>> import torch
        >>> half = torch.tensor([[0.5, 0.0], [0.0, -0.5]], dtype=torch.float64)
        >>> bounds = CarriedStretch().bounds(Ball(half), half.new_tensor([[1.0, 0.0], [0.0, 1.0]]), 2.0)
        >>> [round(bound, 1) for bound in bounds.tolist()]  # 1/(1 - 0.5) and 1/(1 + 0.5), with room
        [2.0, 0.7]
    """

    def __init__(self) -> None:
        self.inversions = 0
        self._credit = math.inf
        self._reference: Ball | None = None
        self._known: dict[bytes, float] = {}

    def bounds(self, weight: Ball, slopes: Float[Tensor, "N m"], stretch: float) -> Float[Tensor, " N"]:
        """Return M_n for every L in a ball.

        Args:
            weight: L, m x m.
            slopes: D, a sample a row.
            stretch: Upper bound of 1/(1 - norm(L)) for every L in the ball, finite.
        """
        if stretch <= _WORTHWHILE:
            return slopes.new_full(slopes.shape[:1], stretch)
        if self._reference is None or distance(weight, Ball(self._reference.centre)) > self._reference.radius:
            self._reference = Ball(weight.centre, add_up(weight.radius, _ROOM / stretch))
            self._known = {}
        self._learn(slopes, self._reference)
        found = [self._known.get(row, math.inf) for row in _keys(slopes)]
        return slopes.new_tensor(found).clamp(max=stretch)

    def _learn(self, slopes: Tensor, reference: Ball) -> None:
        """Bound what the credit allows of the patterns that are not known."""
        samples, m = slopes.shape
        price = _INVERSE + 40.0 * float(m) ** 3
        credit = self._credit + _SHARE * (_CALL + 60.0 * samples * float(m) ** 2)
        self._credit = min(credit, price * samples)  # enough for every sample at the start and after a long time
        new = {row: place for place, row in enumerate(_keys(slopes)) if row not in self._known}
        places = list(new.values())[: int(min(self._credit / price, MOST_WORK / m**3))]
        if not places:
            return
        self._credit -= price * len(places)
        patterns = slopes[places]
        for found in pattern_inverses(reference, Slopes(patterns, patterns)) or []:
            pattern = patterns[int(found.rows[0])]
            cut, rounded = column_multiples(found.inverse.centre.mT, pattern)  # (D R)'
            norm = upper(spectral_norm(Ball(cut, rounded)))
            self._known[_keys(pattern[None])[0]] = banach_bound(norm, found.right_defect)
            self.inversions += 1


def _keys(slopes: Float[Tensor, "N m"]) -> list[bytes]:
    return [row.tobytes() for row in slopes.cpu().numpy()]
