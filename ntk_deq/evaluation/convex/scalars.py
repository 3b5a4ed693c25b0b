"""How small functions are that need not be convex: of one number by branch and bound, of several between bounds.

Beyond some R the function is above a value that it takes, since it is at least a polynomial there (`recession.Beyond`).
Inside, intervals are cut in two until the function is above that value on them, or rises or falls throughout. Of a
function that repeats itself one period is looked at. A function of several numbers is nowhere below what its growth
(`recession.Around`) or its form says, and its least value not above a value that it takes.

References:
    Moore, Kearfott, Cloud, Introduction to interval analysis, 2009, chapter 11.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest

from flint import arb

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.errors import NtkDeqError
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.convex.certificate import Minimum, in_set
from ntk_deq.evaluation.convex.curvature import jacobian, terms
from ntk_deq.evaluation.convex.points import At, Problem
from ntk_deq.evaluation.convex.recession import Beyond, UnknownRateError, least_around
from ntk_deq.evaluation.derivatives import SQUARED_LENGTH, Node, folded, reachable
from ntk_deq.evaluation.derivatives.gradient import Operations, gradient, is_absolute, is_length
from ntk_deq.evaluation.quantity import Scalar
from ntk_deq.language.functions import FUNCTIONS, entrywise_of, kink_of
from ntk_deq.language.record import Change, Kink
from ntk_deq.language.tree import Kind
from ntk_deq.language.types import Range

_BOXES = 2000
_SHORT = 2.0**-46  # relative; what is left of an interval that holds a minimiser
_FARTHEST = 40  # powers of two that R is tried at


def global_minimum(problem: Problem, guess: float) -> Minimum | None:
    """Return the least value of a function of one number, and where it is reached; None where that is not known.

    The point is `alone` where all of them lie in one narrow interval.

    Args:
        problem: The function.
        guess: Where floats found it to be least.
    """
    try:
        return _global_minimum(problem, guess)
    except NtkDeqError:
        return None


def _global_minimum(problem: Problem, guess: float) -> Minimum | None:
    at = At(problem, Scalar(arb(guess), abs(guess)))
    best = at.value
    if not best.ball.is_finite() or any(
        kink_of(node.operation) is Kink.JUMP and at.shapes.moves(node) for node in reachable([at.root], images=True)
    ):
        return None
    period = _period(at)
    reach = None if period is not None else _reach(problem, at, guess, sc.upper(best.ball))
    if reach is None and period is None:
        return _by_range(problem, at, best)
    ends = (-reach, reach) if reach is not None else _around(guess, period or 0.0)
    boxes, least = _boxes(problem, ends, sc.upper(best.ball))
    if not boxes or any(box[2] == -math.inf for box in boxes):
        return None
    value = Scalar(sc.from_bounds(min(least, *(box[2] for box in boxes)), least), best.scale)
    left, right = min(box[0] for box in boxes), max(box[1] for box in boxes)
    narrow = right - left <= 64 * _SHORT * max(1.0, abs(left), abs(right))
    twice = not narrow and _parity(at) == 1 and all(box[0] > 0 or box[1] < 0 for box in boxes)
    if period is not None:
        return Minimum(value, problem.anywhere, _TWICE, alone=False)
    point = Scalar(sc.from_bounds(left, right), max(abs(left), abs(right)))
    return Minimum(value, point, _TWICE if twice else "", alone=narrow)


_TWICE = "the function is least at two points at least"


def _period(at: At) -> float | None:
    """Return a float above the length after which a function repeats itself; None where it is not seen to.

    Its variable is read by sines and cosines of affine maps alone, whose slopes are whole multiples of one of them.
    """
    if any(node.image is not None for node in reachable([at.root], images=True)):
        return None
    slopes: list[arb] = []
    waiting, seen = [at.root], set[int]()
    while waiting:
        node = waiting.pop()
        if node.number in seen or not at.shapes.moves(node):
            continue
        seen.add(node.number)
        if node.operation in ("sin", "cos") and at.shapes.of(node.args[0]).affine and node.args[0].is_scalar:
            by = jacobian(at.tape, node.args[0], at.leaf)
            slopes.append(arb("nan") if by is None else abs(ct.as_scalar(by)))
        elif node.args:
            waiting += node.args
        else:
            return None
    if not slopes or not all(bool(slope > 0) and slope.is_finite() for slope in slopes):
        return None
    least = min(slopes, key=lambda slope: float(slope.mid()))
    exact = all(slope.is_exact() for slope in slopes)
    if len(slopes) > 1 and not (exact and all((s.fmpq() / least.fmpq()).q == 1 for s in slopes)):
        return None
    return sc.upper(2 * arb.pi() / least)


def _around(guess: float, period: float) -> tuple[float, float]:
    """Return the ends of an interval of at least one period."""
    half = 0.5625 * period
    return math.nextafter(guess - half, -math.inf), math.nextafter(guess + half, math.inf)


def known_ends(problem: Problem, points: Sequence[Sequence[float]]) -> tuple[Scalar, bool] | None:
    """Return between what the least value of a function lies, and whether it is reached; None: at none of the points.

    Where nothing shows from below how small it is, it may be -inf.

    Args:
        problem: The function, and its set.
        points: Where its values may be small.
    """
    plain = replace(problem, body=problem.plain or problem.body)
    values = []
    for point in points:
        with suppress(NtkDeqError):
            at = At(plain, problem.valued([arb(x) for x in point]))
            if at.value.ball.is_finite() and in_set(plain, at, []):
                values.append(at.value)
    if not values:
        return None
    best = min(values, key=lambda value: sc.upper(value.ball))
    with suppress(NtkDeqError):
        at = At(plain, problem.valued([arb(0)] * problem.size))
        low = least_around(at.tape, at.root, at.leaf, at.shapes, at.slopes([]))
        grows = low is not None
        by_form = at.shapes.of(at.root).range.low
        if math.isfinite(by_form) and (low is None or low < sc.exact(by_form)):
            low = sc.exact(by_form)
        if low is not None:
            bottom = min(sc.lower(low), sc.upper(best.ball))
            ball = -sc.from_bounds(-sc.upper(best.ball), -bottom)  # the upper end is the one that is a value
            return Scalar(ball, max(best.scale, abs(bottom))), grows and _is_continuous(at)
    return Scalar(sc.nan(), math.inf, at_most=arb(best.ball.upper())), False


def _is_continuous(at: At) -> bool:
    """Whether a function has values everywhere, and jumps nowhere, for certain."""
    smooth = (*map(str, (Kind.ADD, Kind.SUBTRACT, Kind.NEGATE, Kind.MULTIPLY, Kind.TRANSPOSE)), SQUARED_LENGTH, "sum")
    for node in reachable([at.root], images=True):
        facts = entrywise_of(node.operation)
        whole = node.operation == Kind.POWER and not at.shapes.moves(node.args[1]) and _is_whole(node.args[1].value)
        known = facts is not None and facts.kink is not Kink.JUMP and facts.domain == Range()
        listed = node.operation in (*smooth, "dot", "hadamard", "max", "min") or is_length(node) or is_absolute(node)
        constant = node.operation == Kind.DIVIDE and not at.shapes.moves(node.args[1])
        affine = at.shapes.of(node).affine
        if at.shapes.moves(node) and node is not at.leaf and not (affine or known or listed or whole or constant):
            return False
    return True


def _is_whole(exponent: object) -> bool:
    return isinstance(exponent, Scalar) and exponent.ball.is_integer() and bool(exponent.ball >= 0)


def _parity(at: At) -> int:
    """Return 1 for a function that is even by its form, so that it is least at -w where it is least at w; -1: odd."""
    known: dict[int, int] = {at.leaf.number: -1}

    def parity(node: Node) -> int:
        signs = [known[arg.number] for arg in node.args]
        if not at.shapes.moves(node) or (node.args and all(sign == 1 for sign in signs)):
            return 1
        if node.operation in (Kind.ADD, Kind.SUBTRACT) and signs[0] == signs[1]:
            return signs[0]
        if node.operation in (Kind.MULTIPLY, Kind.DIVIDE):
            return signs[0] * signs[1]
        if node.operation == Kind.NEGATE:
            return signs[0]
        if node.operation == Kind.POWER and isinstance(node.args[1].value, Scalar):
            exponent = node.args[1].value.ball
            whole = exponent.is_integer() and not at.shapes.moves(node.args[1])
            return 0 if not whole else signs[0] ** (int(str(exponent.unique_fmpz())) % 2)
        facts = FUNCTIONS.get(node.operation)
        blind = facts is not None and Change.SIGN in facts.blind and len(signs) == 1
        return abs(signs[0]) if blind else 0

    return folded(at.root, known, parity)


def _by_range(problem: Problem, at: At, best: Scalar) -> Minimum | None:
    """Between what the values of the function can be by its form and one of them."""
    low = at.shapes.of(at.root).range.low
    if not math.isfinite(low):
        return None
    value = Scalar(
        sc.from_bounds(min(math.nextafter(float(low), -math.inf), sc.upper(best.ball)), sc.upper(best.ball)), best.scale
    )
    return Minimum(value, problem.anywhere, alone=False, reached=False)


def _reach(problem: Problem, at: At, guess: float, best: float) -> float | None:
    """Return R beyond which the function is larger than a value; None where none is found."""
    size = 2.0 * max(1.0, abs(guess))
    for _ in range(_FARTHEST):
        problem.env.notes.check_time()
        ends = [_beyond(problem, end, best) for end in (size, -size)]
        if all(end is True for end in ends):
            return size
        if None in ends:
            return None
        size *= 2.0
    return None


def _beyond(problem: Problem, end: float, best: float) -> bool | None:
    """Whether a function is larger than a value from a point outward; None where its form does not tell.

    There it is at least a polynomial in the distance t to the point, whose coefficients are those of polynomials and
    bounded functions (`Beyond`), and of tangents of its convex terms. It is larger than its value at t = 0 where the
    other coefficients are not negative.
    """
    at = At(problem, Scalar(arb(end), abs(end)))
    ops, outward, total = Operations(at.tape), Beyond(at.leaf, end, at.shapes), [arb(0)]
    for factor, node in terms(at.root, at.shapes):
        number = ops.total(node if node.shape == (1, 1) else ops.made("sum", node))
        try:
            part = [factor.ball * coefficient for coefficient in outward.of(number)]
        except UnknownRateError:
            shape = at.shapes.of(node)
            if not (shape.convex and factor.ball >= 0) and not (shape.concave and factor.ball <= 0):
                return None
            slope = ar.to_scalar(gradient(at.tape, number, at.leaf, at.slopes([])).value).ball
            part = [factor.ball * ar.to_scalar(number.value).ball, factor.ball * slope * (1 if end > 0 else -1)]
        total = [a + b for a, b in zip_longest(total, part, fillvalue=arb(0))]
    if not all(coefficient.is_finite() for coefficient in total):
        return None
    return all(bool(coefficient >= 0) for coefficient in total[1:]) and bool(total[0] > best)


Box = tuple[float, float, float]
"""An interval, and a lower bound of the function on it."""


def _boxes(problem: Problem, ends: tuple[float, float], least: float) -> tuple[list[Box], float]:
    """Return narrow intervals that hold every minimiser, none where the budget ran out; and a bound of the minimum."""
    waiting: list[Box] = [(*ends, -math.inf)]
    found: list[Box] = []
    for _ in range(_BOXES):
        if not waiting:
            return [box for box in found if box[2] <= least], least
        problem.env.notes.check_time()
        left, right, _low = waiting.pop()
        low, value, steep = _on(problem, left, right)
        least = min(least, value)
        if low > least or steep:
            continue
        if right - left <= _SHORT * max(1.0, abs(left), abs(right)):
            found.append((left, right, low))
            continue
        middle = left + (right - left) / 2
        waiting += [(left, middle, low), (middle, right, low)]
    return [], least


def _on(problem: Problem, left: float, right: float) -> tuple[float, float, bool]:
    """Return a lower bound of the function on an interval, a value in its middle, and whether it is monotone."""
    box = sc.from_bounds(left, right)
    at = At(problem, Scalar(box, max(abs(left), abs(right))))
    low = at.value.ball
    middle = left + (right - left) / 2
    value = At(problem, Scalar(arb(middle), abs(middle))).value.ball
    slope = ar.to_scalar(at.slope([])[0].value).ball
    if slope.is_finite() and value.is_finite():
        mean = value + slope * (box - arb(middle))
        bottom = max(sc.lower(low) if low.is_finite() else -math.inf, sc.lower(mean))
    else:
        bottom = sc.lower(low) if low.is_finite() else -math.inf
    steep = slope.is_finite() and (bool(slope > 0) or bool(slope < 0))
    return bottom, sc.upper(value) if value.is_finite() else math.inf, steep
