"""The first instants of a gradient flow, proven: there a bound with a wrong slope at t = 0 breaks, and nowhere else.

A bound B with L(0) = B(0) holds near t = 0 only if B falls no faster than the loss, dL/dt = -norm(grad L)^2. A little
off, it is broken for so short a time that an integrator's error hides it. Over a time h so short that the gradient
hardly changes, the flow is known much better than that: every theta with

    norm(theta_p - theta_p(0)) <= r_p   where   h norm(grad_p L) <= r_p throughout that region

for each parameter p bounds the flow up to h (it cannot leave the region), so that theta_p(h) lies in
theta_p(0) - h grad_p L(region). The gradient is evaluated in balls; the error falls with h^2, the slope's share with h.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from flint import arb

from ntk_deq.certified import frobenius
from ntk_deq.certified import scalar as sc
from ntk_deq.claims.changing import LOSS
from ntk_deq.claims.claim import Claim, Run
from ntk_deq.claims.parser import parse
from ntk_deq.claims.tree import Kind
from ntk_deq.errors import LimitError, NtkDeqError
from ntk_deq.falsify.instance import Instance
from ntk_deq.verify.arithmetic import add, multiply, negate, to_matrix
from ntk_deq.verify.environment import DeadlineError, Environment, Notes, OutsideClaimError, instance_environment
from ntk_deq.verify.evaluate import evaluate, evaluate_scalar, evaluate_truth
from ntk_deq.verify.quantity import Matrix, Outcome, Scalar, Truth
from ntk_deq.verify.training.moments import Moments, Point

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
    names = [
        name
        for name, outcome in outcomes.items()
        if any(node.kind is Kind.FOR_ALL for node in claim.conclude[name].expr.walk())
    ]
    notes = Notes(deadline=env.notes.deadline)
    # Derivatives have no form in more bits, and need none here.
    start = instance_environment(claim, instance, device=env.like.device, dtype=env.like.dtype, notes=notes)
    start.moments = Moments(start, [_START], env.moments.changing)
    points = first_instants(claim.run, start) if names else []
    if not points:
        return {}, {}
    start.moments = Moments(start, [_START, *points], env.moments.changing)
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
    return Moments(env, [_START, point], env.moments.changing)


def _gradient(env: Environment, name: str) -> Matrix:
    return to_matrix(evaluate(parse(f"grad({LOSS}, {name})"), env))
