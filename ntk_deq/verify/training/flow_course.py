"""Times at which a flow shows what it does, wherever it does it.

Where gradient flow reaches the loss at which a claim lets it end.

The first instants of a gradient flow, proven: there a bound with a wrong slope at t = 0 breaks, and nowhere else.

A bound B with L(0) = B(0) holds near t = 0 only if B falls no faster than the loss, dL/dt = -norm(grad L)^2. A little
off, it is broken for so short a time that an integrator's error hides it. Over a time h so short that the gradient
hardly changes, the flow is known much better than that: every theta with

    norm(theta_p - theta_p(0)) <= r_p   where   h norm(grad_p L) <= r_p throughout that region

for each parameter p bounds the flow up to h (it cannot leave the region), so that theta_p(h) lies in
theta_p(0) - h grad_p L(region). The gradient is evaluated in balls; the error falls with h^2, the slope's share with h.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from flint import arb

from ntk_deq.certified import frobenius
from ntk_deq.certified import scalar as sc
from ntk_deq.claims.claim import Claim
from ntk_deq.dynamics.field import GradientField
from ntk_deq.dynamics.flow.run import gradient_flow
from ntk_deq.dynamics.record import RunStatus, Snapshot, TrainingRun
from ntk_deq.errors import LimitError, NtkDeqError
from ntk_deq.evaluation.arithmetic import add, multiply, negate, to_matrix
from ntk_deq.evaluation.balls import evaluate, evaluate_scalar, evaluate_truth
from ntk_deq.evaluation.environment import DeadlineError, Environment, Notes, OutsideClaimError
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar, Truth
from ntk_deq.language.parser import parse
from ntk_deq.language.run import LOSS, Run
from ntk_deq.verify.formulas import instance_environment
from ntk_deq.verify.training import (
    FLOW_TOLERANCE,
    SOLVER_TOLERANCE,
    Moments,
    Point,
    TimeMoments,
    Trainee,
    loss_gradient,
)
from ntk_deq.verify.training.between import quantified
from ntk_deq.verify.training.trajectory import again_if_interrupted

SHARE = 3
"""Times of each kind: one for so many that are judged anyway."""

NEAR_THE_ENDS = (6, 8, 10)
"""Times are also told at 2^-k of the inverse rate at the start, and as near to the end, relatively."""

_TOLERANCE = 1e-5
_LEAST_EPS = 200.0


def telling_times(trainee: Trainee, run: Run, *, horizon: float | None, check: Callable[[], None]) -> list[float]:
    """Return times spread evenly over a flow, near its ends, and where its loss has fallen by even factors.

    Snapshots are spaced in the logarithm of the time, from the rate at the start on. Near a saddle, that says nothing
    of when the loss will fall. A coarse integration tells.

    Args:
        trainee: What is trained.
        run: What the claim says of the run.
        horizon: The last time, or None.
        check: Called at every step; what it raises ends the integration.
    """
    scout = gradient_flow(
        trainee.model,
        trainee.X,
        trainee.y,
        horizon=horizon,
        until=float(run.until),
        tolerance=max(_TOLERANCE, _LEAST_EPS * torch.finfo(trainee.X.dtype).eps),
        steps=run.steps,
        snapshots=2,
        estimate_error=False,
        on_step=lambda _: check(),
    )
    again_if_interrupted(scout)
    series = scout["loss"]
    at, loss = series.at.tolist(), series.values.tolist()
    if not scout.end > 0 or not loss[0] > 0:
        return []
    count = run.judged // SHARE
    times = [scout.end * i / (count + 1) for i in range(1, count + 1)]
    speed = scout["gradient_norm"].values[0].item()
    scale = loss[0] / speed / speed if speed > 0 else math.inf  # whose square may be no float
    times += [math.ldexp(scale, -k) for k in NEAR_THE_ENDS if scale < math.inf]
    times += [scout.end * (1 - math.ldexp(1.0, -k)) for k in NEAR_THE_ENDS]
    lowest = min((value for value in loss if value > 0), default=loss[0])
    place = 0
    for i in range(1, count + 1):
        level = loss[0] * (lowest / loss[0]) ** (i / (count + 1))
        while place + 1 < len(loss) and loss[place + 1] > level:
            place += 1
        if place + 1 < len(loss):
            times.append(_crossing(at[place : place + 2], loss[place : place + 2], level))
    return sorted({time for time in times if 0 < time < scout.end})


def _crossing(at: list[float], loss: list[float], level: float) -> float:
    """Return where the loss passes a level between two steps, if its logarithm is straight there."""
    if not loss[0] > loss[1] > 0:
        return at[1]
    return at[0] + (at[1] - at[0]) * min(max(math.log(loss[0] / level) / math.log(loss[0] / loss[1]), 0.0), 1.0)


NEAR = 1e-9
"""How near to the floor, relatively, the end is sought: the tolerance of the integration."""

_MOST = 12


def ended_at_floor(run: TrainingRun, trainee: Trainee, *, until: float, check: Callable[[], None]) -> TrainingRun:
    """Return a flow that ends where its loss is `until` times the first one, not at the first step beyond.

    From the last snapshot above the floor, the flow is integrated on by Newton's method for the logarithm of its loss,
    whose slope is -norm(grad)^2/L. That falls ever more slowly, mostly, so that each stretch ends just above the floor
    and is the next one's start; where it does not, the chord to what is known below bounds the stretch.

    Args:
        run: The flow; one that ended otherwise is returned as it is.
        trainee: What was trained.
        until: The floor over the first loss.
        check: Called at every step; what it raises ends the search.

    Raises:
        KeyboardInterrupt: A stretch was interrupted.
    """
    floor = until * run.snapshots[0].loss
    if run.status is not RunStatus.LOSS_FLOOR or len(run.snapshots) < 2:
        return run
    above, below = run.snapshots[-2:]
    for _ in range(_MOST):
        if not 0 < below.loss < floor * (1 - NEAR):
            break
        here = trainee.model.with_parameters(above.parameters)
        field = GradientField(here, trainee.X, trainee.y, rtol=SOLVER_TOLERANCE)
        gradients = field.at(above.parameters, 0.0).gradients.values()
        high, low = math.log(above.loss / floor), math.log(below.loss / floor)
        newton = high * above.loss / max(sum(float(g.square().sum()) for g in gradients), math.ulp(0.0))
        ahead = min(newton, high / (high - low) * (below.at - above.at))
        if not above.at < above.at + ahead < below.at:  # nearer than times can be told apart
            break
        part = gradient_flow(
            here,
            trainee.X,
            trainee.y,
            horizon=ahead,
            until=0.0,
            tolerance=FLOW_TOLERANCE,
            snapshots=2,
            estimate_error=False,
            on_step=lambda _: check(),
        )
        again_if_interrupted(part)
        if part.status is not RunStatus.HORIZON:
            break
        reached = _after(above, part.snapshots[-1])
        if abs(reached.loss - floor) <= NEAR * floor:
            below = reached
            break
        above, below = (reached, below) if reached.loss > floor else (above, reached)
    series = {name: values.slice(0.0, below.at) for name, values in run.series.items()}
    return replace(run, snapshots=(*run.snapshots[:-1], below), end=below.at, series=series)


def _after(before: Snapshot, part: Snapshot) -> Snapshot:
    """Return the end of a part as a place of the whole flow."""
    path = {name: before.path[name] + length for name, length in part.path.items()}
    return replace(part, at=before.at + part.at, path=path, path_length=before.path_length + part.path_length)


HALVINGS = (4, 7, 10, 13, 17, 20)
"""Times, as powers 2^-k of the inverse rate at the start: down to a millionth of it."""

_START = Point(0, {}, {}, arb(0))
_ROOM = (2.0, 8.0)  # of a region over the first step's length
_SHARE = 2.0**-10  # of the whole length: a parameter whose gradient is zero at the start may move as well


def early_breaks(
    claim: Claim, env: Environment, instance: Instance, outcomes: Mapping[str, Outcome]
) -> tuple[dict[str, Outcome], dict[str, str]]:
    """Return the outcomes of the conclusions that the first instants of a flow break for certain, by name.

    Nothing else is concluded from these instants: a bound that has the right slope is as close to the loss as the proof
    can tell.

    Args:
        claim: A claim on gradient flow.
        env: The environment of the instance at the start, the run attached, in floats or with more bits.
        instance: The instance.
        outcomes: What the conclusions came to along the run.

    Returns:
        The broken ones, and the operations in them whose error is an estimate.
    """
    assert claim.run is not None
    assert env.moments is not None
    names = [name for name in outcomes if quantified(claim.conclude[name].expr)]
    notes = Notes(deadline=env.notes.deadline)
    # Derivatives have no form in more bits, and need none here.
    start = instance_environment(claim, instance, device=env.like.device, dtype=env.like.dtype, notes=notes)
    start.moments = TimeMoments(start, [_START], env.moments.changing)
    points = first_instants(claim.run, start) if names else []
    if not points:
        return {}, {}
    start.moments = TimeMoments(start, [_START, *points], env.moments.changing)
    broken = {}
    for name in names:
        try:
            outcome = evaluate_truth(claim.conclude[name].expr, start)
        except DeadlineError:
            raise
        except (OutsideClaimError, LimitError):
            continue
        if outcome.truth is Truth.FALSE:
            broken[name] = outcome
    return broken, notes.estimated


def first_instants(run: Run, env: Environment) -> list[Point]:
    """Return points of a flow at times that are small against its inverse rate, each within a proven radius.

    Args:
        run: The run: no time beyond its end is returned.
        env: The environment of the instance at the start, with names that change but no run.
    """
    assert env.moments is not None
    names, notes = [name for name in env.variables if name in env.moments.changing], env.notes
    if any(isinstance(env.variables[name], Scalar) for name in names):
        return []  # regions are of matrices
    loss = evaluate_scalar(parse(LOSS), env).ball
    try:
        lengths = {name: frobenius(_gradient(env, name).ball) for name in names}
    except DeadlineError:
        raise
    except NtkDeqError:
        return []
    speed = math.hypot(*(sc.upper(length) for length in lengths.values()))
    if not (loss > 0 and speed > 0 and math.isfinite(speed)) or notes.unsure or notes.estimated:
        return []
    scale = math.frexp(sc.lower(loss) / speed / speed)[1] - 1
    latest = math.inf if run.horizon is None else sc.lower(evaluate_scalar(run.horizon.expr, env).ball)
    points = []
    for power in reversed(HALVINGS):
        time = math.ldexp(1.0, scale - power)
        point = _proven(env, names, lengths, time) if 0 < time <= latest else None
        if point is None:
            break
        floor = loss * sc.exact(run.until)
        there = evaluate_scalar(parse(LOSS), _moments(env, point).environment(point.at)).ball
        if not there > floor:
            break
        points.append(point)
    return points


def _proven(env: Environment, names: list[str], lengths: Mapping[str, arb], time: float) -> Point | None:
    """Return the flow at a time in balls, or None where no region is shown to hold it until then."""
    whole = math.hypot(*(sc.upper(length) for length in lengths.values()))
    for room in _ROOM:
        reach = {name: room * time * (sc.upper(length) + _SHARE * whole) for name, length in lengths.items()}
        start = {name: env.variables[name] for name in names}
        centres = {name: own.ball.centre for name, own in start.items() if isinstance(own, Matrix)}
        radius = {
            name: sc.upper(arb(own.ball.radius) + arb(reach[name]))
            for name, own in start.items()
            if isinstance(own, Matrix)
        }
        region = _moments(env, Point(time, centres, radius, arb(0))).environment(time)
        try:
            gradients = {name: _gradient(region, name) for name in names}
        except DeadlineError:
            raise
        except NtkDeqError:
            return None
        moved = {name: frobenius(gradient.ball) for name, gradient in gradients.items()}
        if env.notes.unsure or env.notes.estimated or not all(length.is_finite() for length in moved.values()):
            return None
        if all(arb(time) * moved[name] <= arb(reach[name]) for name in names):
            break
    else:
        return None
    step, parameters, errors, square = Scalar(arb(time), time), {}, {}, arb(0)
    for name in names:
        move = to_matrix(multiply(step, gradients[name], env.notes))
        there = to_matrix(add(env.variables[name], negate(move), env.notes))
        parameters[name], errors[name] = there.ball.centre, there.ball.radius
        square += moved[name] * moved[name]
    return Point(time, parameters, errors, arb(time) * square.sqrt())


def _moments(env: Environment, point: Point) -> Moments:
    assert env.moments is not None
    return TimeMoments(env, [_START, point], env.moments.changing)


def _gradient(env: Environment, name: str) -> Matrix:
    return to_matrix(evaluate(loss_gradient(name), env))
