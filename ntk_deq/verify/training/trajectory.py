"""The training run of a claim on one instance: computed in floating point, with the distance from the exact one."""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, repeat

import torch
from flint import arb

from ntk_deq.certified import scalar as sc
from ntk_deq.claims.claim import Claim
from ntk_deq.dynamics.descent import gradient_descent
from ntk_deq.dynamics.field import FieldPoint, NotFiniteError, WellPosednessError
from ntk_deq.dynamics.flow.run import gradient_flow
from ntk_deq.dynamics.record import RunStatus, TrainingRun
from ntk_deq.errors import ArgumentError, EquilibriumError, NtkDeqError
from ntk_deq.evaluation.balls import evaluate_scalar
from ntk_deq.evaluation.environment import Environment, OutsideClaimError
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Scalar
from ntk_deq.language.run import Method, Run
from ntk_deq.language.tree import Formula
from ntk_deq.systems.losses import output_loss
from ntk_deq.verify.training.between import named_steps
from ntk_deq.verify.training.ends import (
    KNOWN,
    End,
    LossBounds,
    end_at_the_start,
    end_of_descent,
    end_of_flow,
    moved_along,
    output_noise,
)
from ntk_deq.verify.training.estimates import (
    SAFETY,
    StartError,
    again_if_interrupted,
    errors_from_start,
    estimated_errors,
    growth_of_errors,
)
from ntk_deq.verify.training.flow_course import ended_at_floor, telling_times
from ntk_deq.verify.training.moments import Point
from ntk_deq.verify.training.proven import at_rest, is_still, proven_window, rests
from ntk_deq.verify.training.trainee import FLOW_TOLERANCE, SOLVER_TOLERANCE, Trainee

FIRST_STEPS = (1, 2, 3, 5)
"""Steps of descent from either end of the run that are always judged: the first stretch, where most sides are equal at
the start, is open for long, and what a bound does last may be seen at no step before."""

LARGEST_HORIZON_ERROR = 1e-8
"""Relative radius of a horizon beyond which it is not known which times there are."""

NEARBY = 1e-12
"""How far off, relatively, the second integration of a flow starts, or has its data, where these are known up to
rounding: so far above rounding that the flow's estimated error bounds what they change, so far below the integrator's
tolerance that it adds nothing to it, as long as the flow brings trajectories apart by less than a thousand times."""

LARGEST_STEP_ERROR = 1e-3
"""Relative radius of a step size beyond which its effect is no longer in proportion to it."""


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
        end: How certain it is where the run ends.
        end_error: Relative error of the time at which a flow ends.
        resting: Whether the gradient is zero at the start for certain, so that there is nothing but the start.
    """

    run: TrainingRun
    points: tuple[Point, ...]
    step: Scalar | None
    losses: tuple[arb, ...]
    certified: bool
    seconds: float
    end: End = KNOWN
    end_error: float = 0.0
    resting: bool = False


class NoRunError(NtkDeqError):
    """A training run cannot begin: no equilibrium is found at the start, or the gradient is zero there."""


def trajectory(claim: Claim, env: Environment, instance: Instance) -> Trajectory:
    """Run a claim's training on an instance.

    Raises:
        OutsideClaimError: The step size or the horizon is not a positive number.
        NoRunError: The run cannot begin.
        DeadlineError: The time ran out.
    """
    assert claim.run is not None
    trainee = Trainee.of(env, instance)
    try:
        trainee.check_declared(env)
        if claim.run.method is Method.GRADIENT_DESCENT:
            return descent(claim.run, trainee, env, keep=named_steps(claim))
        if not output_loss(trainee.model, trainee.X, trainee.y).smooth:
            raise NoRunError("the loss has kinks of its own, past which no flow is followed with a known error")
        return flow(claim.run, trainee, env)
    except (ArgumentError, EquilibriumError, NotFiniteError, WellPosednessError) as error:
        raise NoRunError(f"the run cannot begin: {error}") from error


def unfinished(course: Trajectory, run: Run) -> str:
    """Return why a run does not show what comes after its end, or an empty text.

    Descent that spent its steps is a window, and is continued. Flow has to get to the loss floor or to the horizon that
    the claim gives: where its own budget of steps or of time ended it, what comes later is not known.
    """
    if course.resting:
        return ""
    done = course.run
    flows = course.step is None
    given_up = flows and (done.status is RunStatus.STEPS or (done.status is RunStatus.HORIZON and run.horizon is None))
    if done.status.complete and not given_up:
        return ""
    seen, first = done["loss"].values, done.snapshots[0].loss
    rise = float(seen[seen.isfinite()].max()) / first if first > 0 else 1.0
    risen = f" Its loss had risen to {rise:.2g} times the first one by then." if rise > 2 else ""
    return f"the run stopped at {'t' if flows else 'k'} = {done.end:g}: {done.detail or done.status.text}{risen}"


def descent(run: Run, trainee: Trainee, env: Environment, *, keep: Sequence[int] = ()) -> Trajectory:
    """Run gradient descent, and keep the range of the loss between judged steps; those in `keep` are judged too."""
    started = time.perf_counter()
    assert run.step is not None
    step = positive(run.step, env)
    off = known_to(run.step, step, LARGEST_STEP_ERROR)
    losses, slopes = array("d"), array("d")  # eight bytes a step, a million steps at most
    multiple = trainee.multiple

    def watch(k: int, point: FieldPoint) -> None:
        env.notes.check_time()
        losses.append(point.loss_value)
        if multiple is None and point.slope is not None:
            slopes.append(float(torch.linalg.vector_norm(point.slope)))

    done = gradient_descent(
        trainee.model,
        trainee.X,
        trainee.y,
        step=float(step.ball.mid()),
        steps=run.steps,
        until=float(run.until),
        snapshots=run.judged,
        rtol=SOLVER_TOLERANCE,
        keep=[*FIRST_STEPS, *(run.steps - k for k in FIRST_STEPS if k < run.steps), *keep],
        blow_up=math.inf,  # a loss that rises by more may come back
        on_step=watch,
    )
    again_if_interrupted(done)
    if done.status is RunStatus.STATIONARY and done.steps == 0 and rests(trainee, env):
        done, points = at_rest(done, run, trainee, None)
        end = end_at_the_start(done, env)
        return Trajectory(done, points, step, (), certified=True, seconds=0.0, end=end, resting=True)
    ats = [int(snapshot.at) for snapshot in done.snapshots]
    proven = proven_window(trainee, step=step.ball, ats=ats, deadline=env.notes.deadline)
    known = len(proven.points)
    points, slack = proven.points, _LOSS_ROUNDING
    if known < len(ats):
        points = (*points, *_estimated_points(done, trainee, known, off, env.notes.check_time))
        steepness = SAFETY * done["gradient_norm"].values[-1].item() / losses[-1] if losses[-1] > 0 else 0.0
        slack = max(slack, steepness * math.hypot(*points[-1].radius.values()))
        why = proven.reason or f"steps beyond {ats[known - 1]} would take too long to prove"
        env.notes.estimated.setdefault("gradient descent", f"its errors are added up, not proven: {why}")
        ranges = () if multiple is None else _ranges(losses, points)
    else:
        ranges = proven.losses
    end = end_at_the_start(done, env)
    if not end.unsure:
        noise = output_noise(trainee)
        bounds = LossBounds(losses, proven.bounds, slack, noise, 1.0 if multiple is None else float(multiple))
        if multiple is None:
            bounds = replace(bounds, errors=_loss_errors(losses, [noise * slope for slope in slopes], done, points))
        end = end_of_descent(done, bounds, float(run.until))
    seconds = time.perf_counter() - started
    return Trajectory(done, points, step, ranges, certified=known == len(ats), seconds=seconds, end=end)


def _loss_errors(
    losses: Sequence[float], noises: Sequence[float], done: TrainingRun, points: Sequence[Point]
) -> list[float]:
    """Return the estimated error of each loss: that of the outputs, and what the trajectory is off along its slope."""
    stray = max(math.hypot(*point.radius.values()) for point in points)
    off = SAFETY * stray * float(done["gradient_norm"].values.max())
    return [noise + off + _LOSS_ROUNDING * abs(loss) for noise, loss in zip(noises, losses, strict=True)]


def _estimated_points(
    done: TrainingRun, trainee: Trainee, known: int, off: float, check: Callable[[], None]
) -> list[Point]:
    """Return the judged steps beyond the `known` proven ones; `off` is the relative error of the step size."""
    growth = growth_of_errors(done, trainee, check)
    begun = errors_from_start(done, trainee, check)
    # A step size that is off by a share moves the trajectory by that share of its length.
    return [_point(done, i, begun[i], rounding=off, growth=growth[i]) for i in range(known, len(done.snapshots))]


def flow(run: Run, trainee: Trainee, env: Environment, *, times: Sequence[float] = ()) -> Trajectory:
    """Integrate gradient flow; the loss never grows along it, since dL/dt = -norm(grad L)^2.

    Args:
        run: What the claim says of it.
        trainee: The model with its data.
        env: The environment of the instance.
        times: Times to judge besides those that are judged anyway.
    """
    started = time.perf_counter()
    horizon, off = None, 0.0
    if run.horizon is not None:
        length = positive(run.horizon, env)
        horizon, off = float(length.ball.mid()), known_to(run.horizon, length, LARGEST_HORIZON_ERROR)
    still = is_still(trainee)
    if still and not rests(trainee, env):
        raise NoRunError("the gradient at the start is zero in floating point, and it is not certain that it is zero")
    if not still:
        check = env.notes.check_time
        times = [*times, *telling_times(trainee, run, horizon=horizon, check=check)]
    done = gradient_flow(
        trainee.model,
        trainee.X,
        trainee.y,
        horizon=1.0 if still and horizon is None else horizon,
        until=float(run.until),
        tolerance=FLOW_TOLERANCE,
        steps=run.steps + len(times),  # which are stepped onto, and which the claim has not asked for
        snapshots=run.judged,
        times=torch.tensor(times, dtype=torch.float64) if times else None,
        nearby=None if trainee.exact else trainee.moved(NEARBY, torch.Generator().manual_seed(0))[:3],
        on_step=lambda _: env.notes.check_time(),
    )
    again_if_interrupted(done)
    if still and done.end > 0:
        done, points = at_rest(done, run, trainee, horizon)
        end = end_at_the_start(done, env)
        return Trajectory(done, points, None, (), certified=True, seconds=0.0, end=end, end_error=off, resting=True)
    done = ended_at_floor(
        done,
        trainee.model,
        trainee.X,
        trainee.y,
        until=float(run.until),
        tolerance=FLOW_TOLERANCE,
        rtol=SOLVER_TOLERANCE,
        check=env.notes.check_time,
    )
    env.notes.estimated.setdefault("gradient flow", "the integration error is estimated from two runs")
    begun = (StartError(trainee.start_radius, 0.0), *repeat(_NO_ERROR, len(done.snapshots) - 1))
    points = tuple(_point(done, i, begun[i]) for i in range(len(done.snapshots)))
    end_error, end = 0.0, end_at_the_start(done, env)
    if done.status is RunStatus.LOSS_FLOOR and done.end > 0 and not end.unsure:
        last, end_error, end = end_of_flow(done, trainee, points[-1], float(run.until))
        points = (*points[:-1], last)
    elif done.status is RunStatus.HORIZON and off:
        end_error, speed = off, done["gradient_norm"].values[-1].item()
        points = (*points[:-1], moved_along(points[-1], SAFETY * off * done.end * speed))
    values = [snapshot.loss for snapshot in done.snapshots]
    seconds = time.perf_counter() - started
    ranges = hulls(values) if trainee.multiple else ()
    return Trajectory(done, points, None, ranges, certified=False, seconds=seconds, end=end, end_error=end_error)


def positive(formula: Formula, env: Environment) -> Scalar:
    """Return a step size or a horizon.

    Raises:
        OutsideClaimError: It is not positive, or may not be, or is not finite: no run exists then.
    """
    value = evaluate_scalar(formula.expr, env)
    if not (value.ball > 0 and value.ball.is_finite()):
        raise OutsideClaimError(
            "defined", f"`{formula.text}` must be a number > 0 for the run, and is not", certain=bool(value.ball <= 0)
        )
    return value


def known_to(formula: Formula, value: Scalar, most: float) -> float:
    """Return the relative radius of a step size or a horizon.

    Raises:
        OutsideClaimError: It is larger than `most`: the run that is meant is not known well enough. Or the step size or
            horizon is beyond the numbers of float64.
    """
    low, high = sc.lower(value.ball), sc.upper(value.ball)
    if low == 0 or high == math.inf:
        why = f"`{formula.text}` is too {'large' if low else 'small'} for float64, in which a run is computed"
        raise OutsideClaimError("defined", why, certain=False)
    if value.ball.is_exact():
        return 0.0
    off = max(float(value.ball.rad()) / low, 2.0**-52)  # the run's is a float
    if off > most:
        why = f"`{formula.text}` is known to {off:.1g} of its value, and a run needs it to {most:g}"
        raise OutsideClaimError("defined", why, certain=False)
    return off


def _point(run: TrainingRun, index: int, begun: StartError, *, rounding: float = 0.0, growth: float = 1.0) -> Point:
    """Return a snapshot with an estimate of its distance from the exact trajectory."""
    snapshot = run.snapshots[index]
    if index == 0:
        return Point(_whole(run, snapshot.at), snapshot.parameters, begun.parameters, arb(0))
    factor, estimated = SAFETY * growth, estimated_errors(run, index, rounding=rounding)
    radius = {name: factor * error + begun.parameters.get(name, 0.0) for name, error in estimated.items()}
    total = math.hypot(*radius.values())
    path = max(total, SAFETY * (run.settings.get("error_path") or 0.0) + begun.path)
    length = sc.with_radius(snapshot.path_length, path)
    return Point(_whole(run, snapshot.at), snapshot.parameters, radius, length)


def _whole(run: TrainingRun, at: float) -> float:
    return int(at) if run.method == "gradient-descent" else float(at)


def _ranges(losses: Sequence[float], points: Sequence[Point]) -> tuple[arb, ...]:
    """Return the range of the loss over every step from each judged one to the next."""
    if len(losses) <= points[-1].at:
        return ()
    parts = [losses[int(a.at) : int(b.at) + 1] for a, b in pairwise(points)]
    return tuple(arb(min(part)).union(arb(max(part))) * sc.with_radius(1.0, _LOSS_ROUNDING) for part in parts)


def hulls(losses: Sequence[float]) -> tuple[arb, ...]:
    """Return the range of the loss between neighbouring points of a flow, along which it never grows."""
    return tuple(arb(a).union(arb(b)) * sc.with_radius(1.0, _LOSS_ROUNDING) for a, b in pairwise(losses))


_NO_ERROR = StartError({}, 0.0)
_LOSS_ROUNDING = 1e-9  # relative; the solves are to 1e-12, the integration to 1e-9
