"""What the evaluator computes with: balls, each with the magnitude of what it was computed from, and truth values.

The `scale` of a quantity is the value of its formula with every term taken by absolute value, so that cancellation
shows: for `a - b` it is |a| + |b|, for sigma_min(A) it is a bound on norm(A). A comparison whose margin straddles zero
is *tight* when its radius is at most `TIGHT` of the larger side, *near zero* when it is at most that of the larger
side's scale, and *unsure* otherwise (docs/design.md, 1). Two sides that are zero in truth stay near zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal
from enum import IntEnum

from flint import arb

from ntk_deq.certified import Ball, as_scalar, block, frobenius
from ntk_deq.certified.scalar import lower, upper
from ntk_deq.language.format import short_decimal
from ntk_deq.language.types import Margin

TIGHT = (
    1e-9  # docs/design.md, section 1: far above float64 rounding of the sizes used, far below any constant in a theorem
)

_DIGITS = 12  # of a side, at most
_ALIGNED = 6  # digits of a midpoint down to its radius, up to which the two are written with the same power of ten
_EXACT = Context(prec=2000)  # a float has up to 767 significant digits; sums of two of any size are exact


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
    """A real number known up to a ball.

    Attributes:
        ball: The ball.
        scale: Magnitude of what it was computed from.
        at_least: A number that it is not below, where the ball says nothing; it may be +inf then.
        at_most: A number that it is not above, where the ball says nothing; it may be -inf then.
    """

    ball: arb
    scale: float
    at_least: arb | None = None
    at_most: arb | None = None

    @property
    def ends(self) -> tuple[arb | None, arb | None]:
        """What it is not below, and not above; None: not known."""
        return (self.ball, self.ball) if self.ball.is_finite() else (self.at_least, self.at_most)

    @property
    def shown(self) -> str:
        """It as short text."""
        if infinite(self.ball) or self.ball.is_finite() or self.at_least is self.at_most is None:
            return show_ball(self.ball)
        ends = (("at least", self.at_least), ("at most", self.at_most))
        return " and ".join(f"{word} {show_ball(end)}" for word, end in ends if end is not None)


Ends = tuple[arb | None, arb | None]
"""What a number is not below, and not above; None: not known."""


def scaled_ends(factor: arb, value: Scalar) -> Ends:
    """Return the ends of a multiple of what is known from one side, by a number whose sign is known."""
    ends = value.at_least, value.at_most
    if ends == (None, None) or not factor.is_finite() or factor.contains(0):
        return None, None
    low, high = (None if end is None else factor * end for end in ends)
    return (low, high) if factor > 0 else (high, low)


def sum_of_ends(left: Scalar, right: Scalar, ball: arb, sign: int = 1) -> Ends:
    """Return the ends of left + right, or left - right, where their ball says nothing."""
    if ball.is_finite():
        return None, None
    ends = right.ends if sign > 0 else tuple(None if end is None else -end for end in right.ends[::-1])
    low, high = (None if a is None or b is None else a + b for a, b in zip(left.ends, ends, strict=True))
    return low, high


def product_of_ends(left: Scalar, right: Scalar, ball: arb) -> Ends:
    """Return the ends of a product with a number, where the ball says nothing."""
    if ball.is_finite():
        return None, None
    number, other = (left, right) if left.ball.is_finite() else (right, left)
    return scaled_ends(number.ball, other)


@dataclass(frozen=True)
class Matrix:
    """A matrix (vectors are columns) known up to a ball.

    Attributes:
        ball: The ball.
        scale: Magnitude of what it was computed from.
        rank: What its rank is at most by its form, as that of a product whose inner size is small; None: its sizes.
        gram: Whether it is positive semidefinite by its form: A A', and sums and products of such.
        symmetric: Whether the formula that it is the value of is symmetric by its form; asked for where it matters.
    """

    ball: Ball
    scale: float
    rank: int | None = None
    gram: bool = False
    symmetric: bool = False

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


def infinite(ball: arb) -> int:
    """Return 1 or -1 for what is infinite for certain, with that sign, and 0 for any other ball.

    Example:
        >>> infinite(arb("inf")), infinite(arb("-inf")), infinite(arb("nan")), infinite(arb(0, "inf"))
        (1, -1, 0, 0)
    """
    return 0 if ball.is_finite() else int(ball > 0) - int(ball < 0)


def show_ball(ball: arb) -> str:
    """Return a ball as short text: no digit finer than its radius, and a radius that takes the rounding in.

    Of a number that is known better than that, twelve digits at most; an ellipsis says that there are more.

    Example:
        >>> show_ball(arb(0.25)), show_ball(arb(4e-10, 5.6e-11)), show_ball(arb(1 / 3, 2.0**-55))
        ('0.25', '4.0e-10 ± 0.6e-10', '0.333333333333… ± 2.8e-17')
    """
    if infinite(ball):
        return "inf" if ball > 0 else "-inf"
    if not ball.is_finite():
        return "undefined"
    mid = float(ball.mid())
    radius = upper(ball.rad())
    if math.isinf(mid) or math.isinf(radius) or (mid == 0 and not ball.contains(0)):  # beyond the floats
        return str(ball.str(3)).strip("[]").replace("+/-", "±")
    if radius == 0.0:
        return short_decimal(mid, digits=_DIGITS, cut=_DIGITS)
    reach = Decimal(radius)
    if mid and reach.adjusted() < Decimal(mid).adjusted() - _DIGITS:
        return f"{short_decimal(mid, digits=_DIGITS, cut=_DIGITS)} ± {_ceiling(reach, 2)}"
    return _rounded_ball(Decimal(mid), reach)


def _ceiling(number: Decimal, digits: int) -> str:
    """Return a positive number in scientific notation, rounded up to so many digits."""
    power = number.adjusted()
    rounded = number.scaleb(-power, _EXACT).quantize(Decimal(1).scaleb(1 - digits), ROUND_CEILING)
    return f"{rounded}e{power}"


def _rounded_ball(mid: Decimal, radius: Decimal) -> str:
    """Return a ball with one digit of its radius, two from a 1 on, and the midpoint rounded at that place."""
    place = radius.adjusted() - (radius.as_tuple().digits[0] == 1)
    scaled = mid.scaleb(-place, _EXACT)
    middle = _EXACT.quantize(scaled, Decimal(1))
    off = abs(_EXACT.subtract(scaled, middle))
    reach = _EXACT.add(radius.scaleb(-place, _EXACT), off).quantize(Decimal(1), ROUND_CEILING, _EXACT)
    if not middle:
        return f"0 ± {_scientific(reach, place)}"
    # Both at the power of ten of the larger one, so that their digits stand at the same places.
    power = max(middle.adjusted(), reach.adjusted()) + place
    if power - place > _ALIGNED:
        return f"{_scientific(middle, place)} ± {_scientific(reach, place)}"
    if -5 <= power < _DIGITS and place <= 0:
        return f"{middle.scaleb(place, _EXACT):f} ± {reach.scaleb(place, _EXACT):f}"
    shown = [f"{number.scaleb(place - power, _EXACT):f}e{power}" for number in (middle, reach)]
    return " ± ".join(shown)


def _scientific(digits: Decimal, place: int) -> str:
    """Return digits times 10^place as short as can be."""
    number = digits.scaleb(place, _EXACT).normalize(_EXACT)
    power = number.adjusted()
    return f"{number:f}" if -5 <= power < _ALIGNED else f"{number.scaleb(-power, _EXACT):f}e{power}"


_LISTED = 4  # entries of a vector that are shown one by one, at most


def of_inclusion(
    outcome: Outcome, subgradient: Scalar | Matrix | Outcome, function: str, point: Scalar | Matrix | Outcome
) -> Outcome:
    """Return the outcome of z == resolvent(phi, z + g) in the words of `g in subdiff(phi, z)`.

    Resolvents are nonexpansive, so that g is at least as far from every subgradient at z as the two sides are apart.

    Args:
        outcome: That of the comparison.
        subgradient: The value of g.
        function: The function phi as text.
        point: The value of z.
    """
    if outcome.comparison is None or isinstance(subgradient, Outcome) or isinstance(point, Outcome):
        return outcome
    most = outcome.comparison.margin.hi
    known = outcome.truth is Truth.FALSE and math.isfinite(most)
    away = f", {show_ball(arb(-most))} away or more," if known else ""
    rhs = f"subdiff({function}, {_listed(point)}){away}"
    return replace(outcome, comparison=replace(outcome.comparison, lhs=_listed(subgradient), relation="in", rhs=rhs))


def _listed(value: Scalar | Matrix) -> str:
    """Return a number or a short vector as text, of anything else its size."""
    if isinstance(value, Scalar):
        return value.shown
    rows, cols = value.ball.shape
    if cols > 1 or rows > _LISTED:
        return f"a matrix of Frobenius norm {show_ball(frobenius(value.ball))}"
    return f"({', '.join(show_ball(as_scalar(block(value.ball, k, k + 1, 0, 1))) for k in range(rows))})"
