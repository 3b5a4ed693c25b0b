"""What the evaluator computes with: balls, each with the magnitude of what it was computed from, and truth values.

The `scale` of a quantity is the value of its formula with every term taken by absolute value, so that cancellation
shows: for `a - b` it is |a| + |b|, for sigma_min(A) it is a bound on norm(A). A comparison whose margin straddles zero
is *tight* when its radius is at most `TIGHT` of the larger side, *near zero* when it is at most that of the larger
side's scale, and *unsure* otherwise (docs/design.md, 1). Two sides that are zero in truth stay near zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from flint import arb

from ntk_deq.certified import Ball
from ntk_deq.certified.scalar import lower, upper
from ntk_deq.verify.results import Margin

TIGHT = (
    1e-9  # docs/design.md, section 1: far above float64 rounding of the sizes used, far below any constant in a theorem
)


class Truth(IntEnum):
    """Outcome of a boolean formula on one instance, ordered from worst to best."""

    FALSE = 0  # for certain
    UNSURE = 1  # the ball is wide around zero, or something is undefined
    STRICT_TIGHT = 2  # a strict inequality whose narrow ball contains zero
    NEAR_ZERO = 3  # a weak one or an identity whose ball contains zero and is narrow for its scale, not for its sides
    TIGHT = 4  # a weak inequality or an identity whose ball contains zero and is narrow for the larger side
    TRUE = 5  # for certain


@dataclass(frozen=True)
class Scalar:
    """A real number known up to a ball."""

    ball: arb
    scale: float


@dataclass(frozen=True)
class Matrix:
    """A matrix (vectors are columns) known up to a ball.

    Attributes:
        ball: The ball.
        scale: Magnitude of what it was computed from.
        rank: What its rank is at most by its form, as that of a product whose inner size is small; None: its sizes.
        gram: Whether it is positive semidefinite by its form: A A', and sums and products of such.
    """

    ball: Ball
    scale: float
    rank: int | None = None
    gram: bool = False

    @property
    def most(self) -> int:
        """The largest rank it can have."""
        smaller: int = min(self.ball.shape)
        return smaller if self.rank is None else min(self.rank, smaller)

    @property
    def is_deficient(self) -> bool:
        """Whether its form shows that its rank is not full; not where it may not exist."""
        return self.ball.is_finite and self.most < min(self.ball.shape)


@dataclass(frozen=True)
class Comparison:
    """One comparison, evaluated: `lhs relation rhs` with the ball of its margin; a positive margin is good."""

    lhs: str
    rhs: str
    relation: str
    margin: Margin
    scale: float
    steps: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Outcome:
    """A boolean formula, evaluated: its truth, and the comparison that the truth rests on."""

    truth: Truth
    comparison: Comparison | None = None
    reason: str = ""
    identity: bool = False


def margin_of(ball: arb) -> Margin:
    """Return the bounds of a ball as floats rounded outward; no information gives [-inf, inf]."""
    if not ball.is_finite():
        return Margin(float("-inf"), float("inf"))
    return Margin(lower(ball) + 0.0, upper(ball) + 0.0)  # + 0.0 turns the bound -0.0 into 0.0


def show_ball(ball: arb) -> str:
    """Return a ball as short text: digits that are certain, and the radius where it matters."""
    if not ball.is_finite():
        return "undefined"
    mid = float(ball.mid())
    rad = upper(ball.rad())
    if rad == 0.0:
        return f"{mid:.17g}" if len(f"{mid:.17g}") <= len(f"{mid:.12g}") + 2 else f"{mid:.12g}"
    return f"{mid:.12g} ± {rad:.1e}"
