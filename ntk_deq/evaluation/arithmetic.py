"""The operators of the language on balls with scales: + - * / ^ and transpose, comparisons and connectives.

1 x 1 matrices count as scalars. A comparison says what is certain, what is tight, what is unsure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flint import arb

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.precise import PreciseMatrix
from ntk_deq.certified.structured import require_room
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.quantity import (
    TIGHT,
    Comparison,
    Matrix,
    Outcome,
    Scalar,
    Truth,
    infinite,
    margin_of,
    product_of_ends,
    scaled_ends,
    show_ball,
    sum_of_ends,
)
from ntk_deq.language.shapes import MAX_MATRIX_POWER
from ntk_deq.language.tree import Kind
from ntk_deq.language.types import Margin

if TYPE_CHECKING:
    from ntk_deq.evaluation.environment import Notes

    Value = Scalar | Matrix | Outcome


def to_scalar(value: Value) -> Scalar:
    """Read a scalar, or a 1 x 1 matrix as one."""
    if isinstance(value, Scalar):
        return value
    if isinstance(value, Matrix) and tuple(value.ball.shape) == (1, 1):
        return Scalar(ct.as_scalar(value.ball), value.scale)
    raise TypeError(f"a scalar was expected, not {value}")


def to_matrix(value: Value) -> Matrix:
    """Read a matrix; the type checker keeps scalars out."""
    if isinstance(value, Matrix):
        return value
    raise TypeError(f"a matrix was expected, not {value}")


def magnitude(ball: arb) -> float:
    """Return an upper bound of |ball|, infinite where nothing is known."""
    return sc.upper(abs(ball)) if ball.is_finite() else float("inf")


def raised(scale: float, degree: float) -> float:
    """Return scale^degree, infinite where that is too large for a float.

    Example:
        >>> raised(2.0, 3), raised(1e200, 2)
        (8.0, inf)
    """
    try:
        return float(scale**degree)
    except OverflowError:
        return float("inf")


def _both_scalars(left: Value, right: Value) -> bool:
    return isinstance(left, Scalar) or isinstance(right, Scalar)


def negate(value: Value) -> Value:
    """Return -value."""
    if isinstance(value, Scalar):
        return Scalar(-value.ball, value.scale, *scaled_ends(arb(-1), value))
    matrix = to_matrix(value)
    return Matrix(ct.negate(matrix.ball), matrix.scale, matrix.rank)


def transpose(value: Value) -> Value:
    """Return value'."""
    matrix = to_matrix(value)
    return Matrix(ct.transpose(matrix.ball), matrix.scale, matrix.rank, matrix.gram)


def add(left: Value, right: Value, notes: Notes) -> Value:
    """Return left + right."""
    if _both_scalars(left, right):
        a, b = to_scalar(left), to_scalar(right)
        ball = a.ball + b.ball
        return Scalar(ball, a.scale + b.scale, *sum_of_ends(a, b, ball))
    x, y = to_matrix(left), to_matrix(right)
    return Matrix(ct.add(x.ball, y.ball), x.scale + y.scale, x.most + y.most, x.gram and y.gram)


def subtract(left: Value, right: Value, notes: Notes) -> Value:
    """Return left - right."""
    if _both_scalars(left, right):
        a, b = to_scalar(left), to_scalar(right)
        ball = a.ball - b.ball
        return Scalar(ball, a.scale + b.scale, *sum_of_ends(a, b, ball, -1))
    x, y = to_matrix(left), to_matrix(right)
    return Matrix(ct.subtract(x.ball, y.ball), x.scale + y.scale, x.most + y.most)


def multiply(left: Value, right: Value, notes: Notes) -> Value:
    """Return left * right: a product of scalars, a scaled matrix, or a matrix product."""
    if isinstance(left, Scalar) and isinstance(right, Scalar):
        ball = ct.multiply(left.ball, right.ball)
        return Scalar(ball, left.scale * right.scale, *product_of_ends(left, right, ball))
    if isinstance(left, Scalar):
        matrix = to_matrix(right)
        gram = matrix.gram and bool(left.ball >= 0)
        return Matrix(ct.scale(left.ball, matrix.ball), left.scale * matrix.scale, matrix.rank, gram)
    if isinstance(right, Scalar):
        return multiply(right, left, notes)
    x, y = to_matrix(left), to_matrix(right)
    if x.ball.shape[1] != y.ball.shape[0]:
        # A 1 x 1 factor stands for a scalar, as the type checker allows.
        if tuple(x.ball.shape) == (1, 1):
            return multiply(to_scalar(x), y, notes)
        return multiply(x, to_scalar(y), notes)
    if isinstance(x.ball, ct.Ball) and isinstance(y.ball, ct.Ball):
        require_room(x.ball.shape[0], y.ball.shape[1], "A product")
    return Matrix(ct.matmul(x.ball, y.ball), x.scale * y.scale, min(x.most, y.most))


def divide(left: Value, right: Value, notes: Notes) -> Value:
    """Return left / right for a scalar divisor; a divisor that may be zero is noted."""
    divisor = to_scalar(right)
    if not divisor.ball.is_finite() or divisor.ball.contains(0):
        certain = divisor.ball.is_finite() and divisor.ball == 0
        notes.undefined("a division by zero" if certain else "a divisor whose ball contains zero", certain=certain)
        unknown = Scalar(arb("nan"), float("inf"))
        if isinstance(left, Scalar):
            return unknown
        return multiply(unknown, left, notes)
    size = magnitude(divisor.ball)
    scale = max(1.0, divisor.scale / size) / size
    if isinstance(left, Scalar):  # at once, so that 35/7 is 5 without an error
        ball = ct.divide(left.ball, divisor.ball)
        return Scalar(ball, left.scale * scale, *scaled_ends(1 / divisor.ball, left))
    return multiply(Scalar(ct.divide(arb(1), divisor.ball), scale), left, notes)


def power(left: Value, right: Value, notes: Notes) -> Value:
    """Return left ^ right: scalars, or a square matrix to an integer power."""
    exponent = to_scalar(right)
    whole = exponent.ball.unique_fmpz() if exponent.ball.is_exact() else None
    if isinstance(left, Matrix) and (whole is not None or tuple(left.ball.shape) != (1, 1)):
        return _matrix_power(left, int(float(exponent.ball.mid())), notes)
    base = to_scalar(left)
    value = ct.power(base.ball, exponent.ball)
    if not value.is_finite():
        fractional = exponent.ball.is_finite() and not exponent.ball.contains_integer()
        certain = base.ball.is_finite() and bool(base.ball == 0 or (base.ball < 0 and fractional))
        shown = f"{base.ball.str(6)}^({exponent.ball.str(6, radius=False)})"
        notes.undefined(f"a power that is not defined, {shown}", certain=certain)
        return Scalar(value, float("inf"))
    top = magnitude(base.ball)
    ratio = base.scale / top if top > 0 else 1.0
    degree = float(exponent.ball.mid())
    scale = raised(base.scale, degree) if degree >= 0 and base.scale > 0 else magnitude(value) * max(1.0, ratio)
    return Scalar(value, max(scale, magnitude(value)))


def _matrix_power(base: Matrix, degree: int, notes: Notes) -> Matrix:
    if abs(degree) > MAX_MATRIX_POWER:  # of a step; the type checker has seen to the others
        raise LimitError(f"A matrix power goes from -{MAX_MATRIX_POWER} to {MAX_MATRIX_POWER}. Got {degree}.")
    if degree < 0:
        return _matrix_power(inverse(base, notes), -degree, notes)
    order = base.ball.shape[0]
    result = Matrix(ct.identity(order, dtype=base.ball.dtype, device=base.ball.device), float(order) ** 0.5)
    for _ in range(degree):
        result = Matrix(ct.matmul(result.ball, base.ball), result.scale * base.scale)
    return result


def inverse(value: Matrix, notes: Notes) -> Matrix:
    """Return the inverse; a matrix that is not provably invertible is noted."""
    result = ct.inverse(value.ball)
    if not result.radius < float("inf"):
        singular = value.is_deficient or (value.ball.radius == 0 and bool(ct.sigma_min(value.ball) == 0))
        what = "an inverse of a singular matrix" if singular else "an inverse that cannot be bounded"
        notes.undefined(what, certain=singular)
        return Matrix(result, float("inf"))
    return Matrix(result, sc.upper(ct.frobenius(result)))


Steps = tuple[tuple[str, float], ...]
NO_STEP = "a quantifier ranges over no step"
"""The reason of an outcome that nothing was compared for."""

_REFLEXIVE = ("<=", ">=", "==")
_FLIP = {">=": "<=", ">": "<"}


def compare_chain(
    values: Sequence[Scalar | Matrix | Outcome], operators: Sequence[str], steps: Steps, same: Sequence[bool] = ()
) -> Outcome:
    """Evaluate `v0 op0 v1 op1 v2 ...` as the conjunction of its links.

    Args:
        values: The sides.
        operators: The signs between them.
        steps: Values of the step indices.
        same: For each sign, whether the sides next to it are one and the same number; left out: none are known to be.
    """
    links = []
    for place, relation in enumerate(operators):
        left, right = values[place], values[place + 1]
        if same and same[place] and isinstance(left, Scalar) and left.ball.is_finite():
            number, truth = show_ball(left.ball), Truth.TRUE if relation in _REFLEXIVE else Truth.FALSE
            links.append(Outcome(truth, Comparison(number, number, relation, Margin(0.0, 0.0), left.scale, steps)))
        else:
            links.append(_compare(left, relation, right, steps))
    return conjunction(links)


def is_number(value: Value) -> bool:
    """Whether a value is a number, or a matrix of one."""
    return isinstance(value, Scalar) or (isinstance(value, Matrix) and value.ball.shape == (1, 1))


def _compare(left: Scalar | Matrix | Outcome, relation: str, right: Scalar | Matrix | Outcome, steps: Steps) -> Outcome:
    plain = is_number(left) and is_number(right)
    if plain:
        return _compare_scalars(to_scalar(left), relation, to_scalar(right), steps)
    if relation == "==":
        assert isinstance(left, Matrix)
        assert isinstance(right, Matrix)
        return _compare_identity(left, right, steps)
    return _compare_entries(left, relation, right, steps)


def _compare_scalars(left: Scalar, relation: str, right: Scalar, steps: Steps) -> Outcome:
    a, b = (right, left) if relation in _FLIP else (left, right)
    sign = _FLIP.get(relation, relation)
    margin = b.ball - a.ball
    if sign in ("==", "!="):
        distance = abs(margin)
        margin = -distance if sign == "==" else distance
    if infinite(a.ball) or infinite(b.ball):
        shown = show_ball(left.ball), show_ball(right.ball)
        return _of_infinite(a.ball, sign, b.ball, Comparison(*shown, relation, margin_of(margin), 1.0, steps))
    scale = max(left.scale, right.scale)
    comparison = Comparison(left.shown, right.shown, relation, margin_of(margin), scale, steps)
    if not margin.is_finite():
        low, high = sum_of_ends(b, a, margin, -1)
        if low is not None or high is not None:
            return _of_one_side(sign, low, high, replace(comparison, scale=1.0))
    return _judge(sign, margin, max(_size(left.ball), _size(right.ball)), comparison)


def _of_infinite(a: arb, sign: str, b: arb, comparison: Comparison) -> Outcome:
    """Compare numbers one of which is infinite for certain, as a convex function's value may be.

    What is true then is passed, as a tight inequality is: it bears nothing out.
    """
    if not all(ball.is_finite() or infinite(ball) for ball in (a, b)):
        return Outcome(Truth.UNSURE, comparison, "a side is undefined or unbounded", sign == "==")
    left, right = infinite(a), infinite(b)
    true = {"<": left < right, "<=": left <= right, "==": left == right, "!=": left != right}[sign]
    if true:
        far = 0.0 if left == right and sign != "!=" else math.inf
        return Outcome(Truth.TIGHT, replace(comparison, margin=Margin(far, far)))
    return Outcome(Truth.FALSE, replace(comparison, margin=Margin(-math.inf, -math.inf)))


def _of_one_side(sign: str, low: arb | None, high: arb | None, comparison: Comparison) -> Outcome:
    """Decide a comparison by what its margin, right minus left, is not below or not above; it may be infinite beyond.

    What is true then is passed as it is with an infinity.
    """
    least, most = -math.inf if low is None else sc.lower(low), math.inf if high is None else sc.upper(high)
    if sign in ("==", "!="):
        apart = max(least, -most)  # at least so far, if that is above zero
        margin = Margin(-math.inf, -apart) if sign == "==" else Margin(apart, math.inf)
        decided = None if not apart > 0 else sign == "!="
    else:
        margin, strict = Margin(least, most), sign == "<"
        below = most <= 0 if strict else most < 0
        decided = False if below else True if (least > 0 if strict else least >= 0) else None
    if decided is None:
        return Outcome(Truth.UNSURE, replace(comparison, margin=Margin(least, most)), _ONE_SIDE, sign == "==")
    return Outcome(Truth.TIGHT if decided else Truth.FALSE, replace(comparison, margin=margin))


_ONE_SIDE = "a side is known from one side only, by a value at one point"


def _size(ball: arb) -> float:
    """Return how large a side is: the midpoint of its ball, without sign."""
    return abs(float(ball.mid())) if ball.is_finite() else 0.0


def _judge(sign: str, margin: arb, size: float, comparison: Comparison) -> Outcome:
    """Turn the ball of a margin into a truth value.

    Args:
        sign: One of <= < == !=; a positive margin is good.
        margin: Its ball.
        size: Of the larger side.
        comparison: What was compared, with the scale of its sides.
    """
    identity = sign == "=="
    if not margin.is_finite():
        return Outcome(Truth.UNSURE, comparison, "a side is undefined or unbounded", identity)
    decided = sc.is_true({"<=": ">=", "<": ">", "==": ">=", "!=": ">"}[sign], margin, arb(0))
    if decided is not None:
        return Outcome(Truth.TRUE if decided else Truth.FALSE, comparison, "", identity)
    radius = sc.upper(margin.rad())
    if comparison.scale < float("inf") and radius <= TIGHT * comparison.scale:
        if sign in ("<", "!="):
            return Outcome(Truth.STRICT_TIGHT, comparison, "", identity)
        return Outcome(Truth.TIGHT if radius <= TIGHT * size else Truth.NEAR_ZERO, comparison, "", identity)
    return Outcome(Truth.UNSURE, comparison, "the margin's ball is wide and contains zero", identity)


def _compare_identity(left: Matrix, right: Matrix, steps: Steps) -> Outcome:
    difference = ct.subtract(left.ball, right.ball)
    distance = ct.frobenius(difference)
    scale = max(left.scale, right.scale)
    norms = [ct.frobenius(side.ball) for side in (left, right)]
    shown = [f"a matrix of Frobenius norm {show_ball(norms[0])}", f"one of {show_ball(norms[1])}"]
    place = _worst_place(left, right, same=True)
    if place is not None:
        there = [show_ball(_entry(side, place)) for side in (left, right)]
        shown = [f"{shown[0]} with {there[0]} at {_at(place)}", f"{shown[1]} with {there[1]} there"]
    comparison = Comparison(shown[0], shown[1], "==", margin_of(-distance), scale, steps)
    return _judge("==", -distance, max(map(_size, norms)), comparison)


def _compare_entries(
    left: Scalar | Matrix | Outcome, relation: str, right: Scalar | Matrix | Outcome, steps: Steps
) -> Outcome:
    a, b = (right, left) if relation in _FLIP else (left, right)
    sign = _FLIP.get(relation, relation)
    if isinstance(a, Matrix) and isinstance(b, Matrix):
        margin = ct.entry_min(ct.subtract(b.ball, a.ball))
    elif isinstance(b, Matrix):
        margin = ct.entry_min(b.ball) - to_scalar(a).ball
    else:
        margin = to_scalar(b).ball - ct.entry_max(to_matrix(a).ball)
    scale = max(v.scale for v in (left, right) if not isinstance(v, Outcome))
    place = _worst_place(a, b)
    names = [
        ("the entries" if place is None else f"the entry {show_ball(_entry(v, place))} at {_at(place)}")
        if isinstance(v, Matrix)
        else show_ball(v.ball)
        for v in (left, right)
        if not isinstance(v, Outcome)
    ]
    size = max(_size(ct.frobenius(v.ball) if isinstance(v, Matrix) else to_scalar(v).ball) for v in (left, right))
    return _judge(sign, margin, size, Comparison(names[0], names[1], relation, margin_of(margin), scale, steps))


def _worst_place(
    left: Scalar | Matrix | Outcome, right: Scalar | Matrix | Outcome, *, same: bool = False
) -> tuple[int, int] | None:
    """Return where two matrices differ most, or the left side of `left <= right` is larger by most; None: unknown."""
    sides = [side.ball for side in (left, right) if isinstance(side, Matrix)]
    if (
        not all(isinstance(ball, ct.Ball | PreciseMatrix) for ball in sides)
        or not sides[0].shape[0] * sides[0].shape[1]
    ):
        return None
    centres = [ball.approximate if isinstance(ball, PreciseMatrix) else ball.centre for ball in sides]
    if len(centres) == 2:
        difference = centres[0] - centres[1]
        difference = difference.abs() if same else difference
    else:
        difference = centres[0] if isinstance(left, Matrix) else -centres[0]
    if not bool(difference.isfinite().all()):
        return None
    return divmod(int(difference.argmax()), difference.shape[1])


def _entry(matrix: Matrix, place: tuple[int, int]) -> arb:
    ball = matrix.ball
    if isinstance(ball, PreciseMatrix):
        return ball.entries[place]
    return sc.with_radius(float(ball.centre[place]), ball.radius)


def _at(place: tuple[int, int]) -> str:
    """Return a place as people count, from 1."""
    return f"({place[0] + 1}, {place[1] + 1})"


def conjunction(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the worst outcome; of equally bad ones, the one with the smallest margin relative to its scale."""
    if not outcomes:
        return Outcome(Truth.UNSURE, None, NO_STEP)
    worst = min(outcomes, key=lambda o: (o.truth, _relative(o)))
    # A conjunction is an identity only if each part that is merely tight is one.
    identity = all(o.identity for o in outcomes if o.truth in (Truth.TIGHT, Truth.NEAR_ZERO))
    return Outcome(worst.truth, worst.comparison, worst.reason, identity)


def disjunction(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the best outcome."""
    return max(outcomes, key=lambda o: (o.truth, _relative(o)))


def negation(outcome: Outcome) -> Outcome:
    """Return the negation; only what is certain can be negated."""
    flipped = {Truth.TRUE: Truth.FALSE, Truth.FALSE: Truth.TRUE}.get(outcome.truth, Truth.UNSURE)
    comparison = outcome.comparison
    if comparison is not None:
        low, high = comparison.margin.lo, comparison.margin.hi
        margin = type(comparison.margin)(-high, -low)
        comparison = Comparison(
            comparison.lhs, comparison.rhs, f"not {comparison.relation}", margin, comparison.scale, comparison.steps
        )
    return Outcome(flipped, comparison, outcome.reason)


def _relative(outcome: Outcome) -> float:
    if outcome.comparison is None:
        return 0.0
    return outcome.comparison.margin.lo / outcome.comparison.scale if outcome.comparison.scale > 0 else 0.0


BINARY = {
    Kind.ADD: add,
    Kind.SUBTRACT: subtract,
    Kind.MULTIPLY: multiply,
    Kind.DIVIDE: divide,
    Kind.POWER: power,
}
"""The operators of two values."""
