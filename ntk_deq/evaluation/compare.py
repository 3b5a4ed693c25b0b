"""Comparisons and connectives on balls: what is certain, what is tight, what is unsure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from flint import arb

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.precise import PreciseMatrix
from ntk_deq.evaluation.arithmetic import to_matrix, to_scalar
from ntk_deq.evaluation.quantity import (
    TIGHT,
    Comparison,
    Matrix,
    Outcome,
    Scalar,
    Truth,
    infinite,
    margin_of,
    show_ball,
)
from ntk_deq.language.interval import Margin

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


def _compare(left: Scalar | Matrix | Outcome, relation: str, right: Scalar | Matrix | Outcome, steps: Steps) -> Outcome:
    plain = all(isinstance(v, Scalar) or (isinstance(v, Matrix) and v.ball.shape == (1, 1)) for v in (left, right))
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
    comparison = Comparison(show_ball(left.ball), show_ball(right.ball), relation, margin_of(margin), scale, steps)
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
        return Outcome(Truth.TIGHT, comparison)
    return Outcome(Truth.FALSE, replace(comparison, margin=Margin(-math.inf, -math.inf)))


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
