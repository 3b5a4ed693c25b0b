"""Turn a judged training run into the plain data of the report and the figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set

import torch
from torch import Tensor

from ntk_deq.certified import scalar as sc
from ntk_deq.claims.claim import Claim
from ntk_deq.dynamics.field import GradientField
from ntk_deq.dynamics.rates import measured_rate
from ntk_deq.errors import NtkDeqError
from ntk_deq.evaluation.balls import evaluate_scalar
from ntk_deq.evaluation.environment import Environment, Sides
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Scalar
from ntk_deq.language.format import format_expr
from ntk_deq.language.run import LOSS
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.verify.results import Condition, Curve, Rate, Start, TrainingRecord
from ntk_deq.verify.training import Point, Trainee
from ntk_deq.verify.training.trajectory import Trajectory

RATES = 12
"""Judged steps at which the rate of that instant is shown."""

_UPWARD = ("<=", "<")
_LOSS_NOISE = 1e-13  # over the first loss, where that is no square: some hundred roundings


def training_record(
    claim: Claim,
    instance: Instance,
    env: Environment,
    course: Trajectory,
    sides: Sequence[Sides],
    *,
    role: str,
    covered: int,
    unit: float | None = None,
) -> TrainingRecord:
    """Return what the report shows of a run.

    Args:
        claim: The claim.
        instance: The instance that the run starts from.
        env: Its environment.
        course: The run.
        sides: Both sides of every comparison evaluated before the run and along it.
        role: What the run carries of the verdict.
        covered: Intervals between judged steps on which every conclusion is certain.
        unit: Time of one step, where the run is a flow whose points are told in steps of descent; else None.
    """
    run, at = course.run, tuple(float(point.at) for point in course.points)
    both = compared(claim, sides, at)
    curves = tuple(curve for curve, _ in both)
    trainee = Trainee.of(env, instance)
    stated = next((curve for curve, node in both if _bounds_the_loss(node)), None)
    predicted = None if stated is None else _stated_rate(at, stated.bound)
    floor = math.log(1 / float(claim.run.until)) if claim.run is not None else math.nan
    start = course.points[0].parameters
    moved = {name: [p.parameters[name] - value for p in course.points] for name, value in start.items()}
    return TrainingRecord(
        setting=instance.setting,
        index=instance.index,
        method=run.method,
        role=role,
        step=run.step or unit,
        constants=constants_of(instance),
        status=run.status.value,
        reason=run.detail or run.status.text,
        steps=run.steps,
        evaluations=run.evaluations,
        end=float(run.end) / (unit or 1.0),
        at=at,
        loss=tuple(snapshot.loss for snapshot in run.snapshots),
        curves=curves,
        conditions=_conditions(claim, sides),
        path_length=tuple(snapshot.path_length for snapshot in run.snapshots),
        displacement={name: tuple(float(torch.linalg.vector_norm(v)) for v in own) for name, own in moved.items()},
        predicted=predicted,
        measured=_measured(
            run.series["loss"].at / (unit or 1.0), run.series["loss"].values, None if trainee.multiple else _LOSS_NOISE
        ),
        instantaneous=_instantaneous(trainee.gradients, course.points, run.step or unit),
        predicted_steps=floor / predicted.value if predicted is not None and predicted.value > 0 else None,
        forward_iterations=run.forward_iterations,
        adjoint_iterations=run.adjoint_iterations,
        error=max(math.hypot(*p.radius.values()) for p in course.points),
        certified=course.certified,
        covered=covered,
        intervals=len(at) - 1,
        seconds=course.seconds,
    )


def start_record(claim: Claim, instance: Instance, env: Environment, sides: Sequence[Sides]) -> Start:
    """Return what the report shows of the start of a run.

    Args:
        claim: The claim.
        instance: The instance.
        env: Its environment.
        sides: Both sides of every comparison evaluated before the run.
    """
    known = {name: env.cache.get(name) for name in claim.let}
    formula = None if env.formulas is None else env.formulas.contraction
    contraction = None if formula is None else evaluate_scalar(formula, env).ball
    return Start(
        setting=instance.setting,
        index=instance.index,
        aim="",
        constants=constants_of(instance),
        defined={name: _mid(value) for name, value in known.items() if isinstance(value, Scalar)},
        contraction=None if contraction is None or not contraction.is_finite() else sc.upper(contraction),
        conditions=_conditions(claim, sides),
    )


def constants_of(instance: Instance) -> dict[str, float]:
    """Return the values of scalars."""
    return {name: float(value) for name, value in instance.values.items() if value.ndim == 0}


def _conditions(claim: Claim, sides: Sequence[Sides]) -> tuple[Condition, ...]:
    """The comparisons of the hypotheses at the start, each with the factor by which it is met."""
    found = []
    for name, formula in claim.assume.items():
        parts = {id(node) for node in formula.expr.walk() if node.kind is Kind.COMPARE}
        for side in sides:
            if id(side.expr) in parts and not side.indices:
                small, large = _mid(side.left), _mid(side.right)
                if side.expr.operators[0] not in _UPWARD:
                    small, large = large, small
                found.append(Condition(name, small, large, large / small if small > 0 else math.inf))
                parts.discard(id(side.expr))
    return tuple(found)


def compared(claim: Claim, sides: Sequence[Sides], at: Sequence[float]) -> list[tuple[Curve, Expr]]:
    """Both sides of each comparison of the conclusions that ranges over one index, at the judged steps."""
    found = []
    for name, formula in claim.conclude.items():
        conditions = {id(part) for node in formula.expr.walk() if node.kind is Kind.FOR_ALL for part in node.args[1:]}
        for node in _outside(formula.expr, conditions):
            if node.kind is Kind.COMPARE and len(node.operators) == 1 and node.operators[0] != "==":
                known = {next(iter(s.indices.values())): s for s in sides if s.expr is node and len(s.indices) == 1}
                if known:
                    found.append((_curve(name, node, known, at), node))
    return found


def _outside(expr: Expr, conditions: Set[int]) -> Iterator[Expr]:
    """Yield the parts of a statement, those of the conditions `with ...` left out."""
    if id(expr) not in conditions:
        yield expr
        for part in expr.args:
            yield from _outside(part, conditions)


def _curve(name: str, node: Expr, known: Mapping[float, Sides], at: Sequence[float]) -> Curve:
    sense = "<=" if node.operators[0] in _UPWARD else ">="
    low, high, bound = [], [], []
    for step in at:
        side = known.get(step)
        finite = side is not None and side.left.ball.is_finite()
        low.append(sc.lower(side.left.ball) if side is not None and finite else math.nan)
        high.append(sc.upper(side.left.ball) if side is not None and finite else math.nan)
        bound.append(math.nan if side is None else _mid(side.right))
    return Curve(name, format_expr(node), tuple(low), tuple(high), tuple(bound), sense)


def _mid(value: Scalar) -> float:
    return float(value.ball.mid()) if value.ball.is_finite() else math.nan


def _bounds_the_loss(node: Expr) -> bool:
    """Whether a comparison bounds the loss at one step by what is known at the start, the step's number apart."""
    left, right = node.args
    known = all(part.args[0].kind is Kind.NUMBER for part in right.walk() if part.kind is Kind.INDEX)
    return left.kind is Kind.INDEX and left.name == LOSS and node.operators[0] in _UPWARD and known


def _stated_rate(at: Sequence[float], bound: Sequence[float]) -> Rate | None:
    """Return the rate at which a bound falls, from its last value that is not lost to underflow; None: it does not."""
    if not bound or not 0 < bound[0] < math.inf:
        return None
    for step, value in zip(reversed(at), reversed(bound), strict=True):
        if step > 0 and value > 0:
            rate = (math.log(bound[0]) - math.log(value)) / step  # their ratio may be too large or small for a number
            return Rate(rate, rate, rate) if 0 < rate < math.inf else None
    return None


def _measured(at: Tensor, loss: Tensor, noise: float | None) -> Rate | None:
    """Return the fitted rate, from losses above `noise` times the first one; None: where that of squares begins."""
    try:
        fit = measured_rate(at, loss, floor=None if noise is None else noise * float(loss[0]))
    except NtkDeqError:
        return None
    return Rate(fit.rate, fit.low, fit.high)


def _instantaneous(field: GradientField, points: Sequence[Point], step: float | None) -> tuple[float, ...]:
    """Return norm(grad L)^2/L, how fast the loss falls, at a few judged steps: per step of descent or unit of time."""
    count = len(points)
    chosen = {round(i * (count - 1) / (RATES - 1)) for i in range(RATES)}
    return tuple(_rate(field, point, step) if place in chosen else math.nan for place, point in enumerate(points))


def _rate(field: GradientField, point: Point, step: float | None) -> float:
    try:
        here = field.at(point.parameters, point.at)
    except NtkDeqError:
        return math.nan
    if not here.loss_value > 0:
        return math.nan
    speed = math.hypot(*(float(torch.linalg.vector_norm(gradient)) for gradient in here.gradients.values()))
    rate = speed * speed / here.loss_value
    if step is None:
        return rate
    return -math.log1p(-step * rate) if step * rate < 1 else math.nan
