"""The training run of a claim on one instance: computed in floating point, with the distance from the exact one."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from flint import arb
from torch import Tensor

from ntk_deq.certified import scalar as sc
from ntk_deq.claims.claim import Claim, Formula, Method, Run
from ntk_deq.dynamics.descent import gradient_descent
from ntk_deq.dynamics.field import FieldPoint
from ntk_deq.dynamics.flow import gradient_flow
from ntk_deq.dynamics.record import TrainingRun
from ntk_deq.falsify.instance import Instance
from ntk_deq.models.base import EquilibriumModel
from ntk_deq.models.registry import model_class
from ntk_deq.models.signature import Role
from ntk_deq.verify.environment import Environment, Notes
from ntk_deq.verify.evaluate import evaluate_scalar
from ntk_deq.verify.quantity import Scalar
from ntk_deq.verify.training.moments import Point
from ntk_deq.verify.training.proven import proven_window

SNAPSHOTS = 48
"""Judged steps of a run, between which the steps are covered as intervals."""

FLOW_TOLERANCE = 1e-9
"""Relative error of the integrator per step; a rate or a norm is not compared more finely than this."""

SOLVER_TOLERANCE = 1e-12
"""Relative residual of equilibria and adjoints: below the integrator's tolerance, above float64's rounding."""


@dataclass(frozen=True)
class Trajectory:
    """A training run as it is judged.

    Attributes:
        run: The run in floating point.
        points: The judged steps or times.
        step: The step size as a ball; None for gradient flow.
        losses: From each point to the next: a ball of all losses on the way; empty where that is not known.
        certified: Whether the radii are proven.
        seconds: Time it took.
    """

    run: TrainingRun
    points: tuple[Point, ...]
    step: Scalar | None
    losses: tuple[arb, ...]
    certified: bool
    seconds: float


@dataclass(frozen=True)
class Trainee:
    """A model with its data on one instance."""

    model: EquilibriumModel
    X: Tensor
    y: Tensor

    @classmethod
    def of(cls, env: Environment, instance: Instance) -> Trainee:
        """Build the model of an instance on the device and with the dtype of its environment."""
        signature = env.model
        assert signature is not None
        values = {name: value.to(env.like) for name, value in instance.values.items()}
        inputs, targets = (signature.names(role)[0] for role in (Role.INPUT, Role.TARGET))
        return cls(model_class(signature.name).from_variables(values), values[inputs], values[targets])


def trajectory(claim: Claim, env: Environment, instance: Instance) -> Trajectory:
    """Run a claim's training on an instance.

    Raises:
        OutsideClaimError: The step size or the horizon is not a positive number.
        DeadlineError: The time ran out.
    """
    assert claim.run is not None
    trainee = Trainee.of(env, instance)
    if claim.run.method is Method.GRADIENT_FLOW:
        return flow(claim.run, trainee, env)
    return descent(claim.run, trainee, env)


def descent(run: Run, trainee: Trainee, env: Environment) -> Trajectory:
    """Run gradient descent, and keep the range of the loss between judged steps."""
    started = time.perf_counter()
    assert run.step is not None
    step = positive(run.step, env)
    losses: list[Tensor] = []

    def watch(k: int, point: FieldPoint) -> None:
        env.notes.check_time()
        losses.append(point.loss.detach().clone())

    done = gradient_descent(
        trainee.model,
        trainee.X,
        trainee.y,
        step=float(step.ball.mid()),
        steps=run.steps,
        until=float(run.until),
        snapshots=SNAPSHOTS,
        rtol=SOLVER_TOLERANCE,
        on_step=watch,
    )
    ats = [int(snapshot.at) for snapshot in done.snapshots]
    proven = proven_window(trainee.model, trainee.X, trainee.y, step=step.ball, ats=ats, deadline=env.notes.deadline)
    known = len(proven.points)
    # Where the step size is a formula the run's is rounded: the trajectory moves by that share of its length.
    rounding = 0.0 if step.ball.is_exact() else 2.0**-52
    points = (*proven.points, *(_point(done, i, rounding=rounding) for i in range(known, len(ats))))
    if known < len(ats):
        why = proven.reason or f"steps beyond {ats[known - 1]} would take too long to prove"
        env.notes.estimated.setdefault("gradient descent", f"its errors are added up, not proven: {why}")
        ranges = _ranges(torch.stack(losses).double().tolist() if losses else [], points)
    else:
        ranges = proven.losses
    seconds = time.perf_counter() - started
    return Trajectory(done, points, step, ranges, certified=known == len(ats), seconds=seconds)


def flow(run: Run, trainee: Trainee, env: Environment, *, horizon: float | None = None) -> Trajectory:
    """Integrate gradient flow; the loss never grows along it, since dL/dt = -norm(grad L)^2."""
    started = time.perf_counter()
    if horizon is None and run.horizon is not None:
        horizon = float(positive(run.horizon, env).ball.mid())
    done = gradient_flow(
        trainee.model,
        trainee.X,
        trainee.y,
        horizon=horizon,
        until=float(run.until),
        tolerance=FLOW_TOLERANCE,
        steps=run.steps,
        snapshots=SNAPSHOTS,
        on_step=lambda _: env.notes.check_time(),
    )
    env.notes.estimated.setdefault("gradient flow", "the integration error is estimated from two runs")
    points = tuple(_point(done, i) for i in range(len(done.snapshots)))
    values = [snapshot.loss for snapshot in done.snapshots]
    return Trajectory(done, points, None, _hulls(values), certified=False, seconds=time.perf_counter() - started)


def positive(formula: Formula, env: Environment) -> Scalar:
    """Return a step size or a horizon.

    Raises:
        OutsideClaimError: It is not positive for certain, or not finite: no run exists then.
    """
    value = evaluate_scalar(formula.expr, env)
    if not (value.ball > 0 and value.ball.is_finite()):
        certain = bool(value.ball <= 0)
        env.notes.undefined(f"`{formula.text}` must be a number > 0 for the run, and is not", certain=certain)
        raise_unsure(env.notes, formula)
    return value


def raise_unsure(notes: Notes, formula: Formula) -> None:
    """Stop where the sign of a step size or horizon is not certain."""
    from ntk_deq.verify.environment import OutsideClaimError

    raise OutsideClaimError("defined", f"the sign of `{formula.text}` is not certain", certain=False)


def _point(run: TrainingRun, index: int, *, rounding: float = 0.0) -> Point:
    """Return a snapshot with an estimate of its distance from the exact trajectory."""
    snapshot = run.snapshots[index]
    if index == 0:
        return Point(_whole(run, snapshot.at), snapshot.parameters, {}, arb(0))
    radius = _errors(run, index, rounding)
    total = math.hypot(*radius.values())
    path = sc.with_radius(snapshot.path_length, max(total, run.settings.get("error_path") or 0.0))
    return Point(_whole(run, snapshot.at), snapshot.parameters, radius, path)


def _errors(run: TrainingRun, index: int, rounding: float) -> dict[str, float]:
    """Return the estimated error of each parameter at a snapshot.

    The run estimates one for all parameters together. What rounding can account for is shared out by their sizes, the
    rest by the lengths of their paths: parameters of very different scales, such as large input weights and output
    weights that start at zero, are not mixed up.
    """
    snapshot = run.snapshots[index]
    if run.error is None:
        return dict.fromkeys(snapshot.parameters, math.inf)
    apart = run.settings.get("error_by_parameter")  # flow estimates each parameter's by itself
    if apart is not None:
        return {name: max(apart[name], _LEAST * snapshot.path[name]) for name in snapshot.parameters}
    sizes = {name: float(torch.linalg.vector_norm(value)) for name, value in snapshot.parameters.items()}
    stepwise = run.method == "gradient-descent"  # there errors add up step by step
    units = 2.0**-53 * (snapshot.at if stepwise else 1.0)
    whole = run.error * (snapshot.at / run.end if stepwise else 1.0)
    rest = max(whole - units * math.hypot(*sizes.values()), _LEAST * snapshot.path_length)
    share = rest / snapshot.path_length if snapshot.path_length > 0 else 0.0
    return {name: units * sizes[name] + (share + rounding) * snapshot.path[name] for name in snapshot.parameters}


SAFETY = 10.0
"""Factor on estimated errors, since a verdict rests on them."""

_LEAST = 1e-11  # relative to the path: the solves are to 1e-12


def _whole(run: TrainingRun, at: float) -> float:
    return int(at) if run.method == "gradient-descent" else float(at)


def _ranges(losses: Sequence[float], points: Sequence[Point]) -> tuple[arb, ...]:
    """Return the range of the loss over every step from each judged one to the next."""
    if len(losses) <= points[-1].at:
        return ()
    parts = [losses[int(a.at) : int(b.at) + 1] for a, b in pairwise(points)]
    return tuple(arb(min(part)).union(arb(max(part))) * sc.with_radius(1.0, _LOSS_ROUNDING) for part in parts)


def _hulls(losses: Sequence[float]) -> tuple[arb, ...]:
    return tuple(arb(a).union(arb(b)) * sc.with_radius(1.0, _LOSS_ROUNDING) for a, b in pairwise(losses))


_LOSS_ROUNDING = 1e-9  # relative; the solves are to 1e-12, the integration to 1e-9
