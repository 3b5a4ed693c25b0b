"""Continue a window of gradient descent by gradient flow to the end, where the steps are too small to take them all.

Descent with step eta follows the flow at the time eta k within eta/2 times the variation of the gradient along it (the
first-order error of Euler's method), as long as errors do not grow; that is an estimate, and so is what rests on it.
From states along the flow, single steps of descent are tested in balls against the rate that the claim states.

Whether gradient descent follows the gradient flow that is to stand for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from flint import arb
from torch import Tensor

from ntk_deq.certified import scalar as sc
from ntk_deq.claims.claim import Claim
from ntk_deq.dynamics.field import GradientField, NotFiniteError, WellPosednessError
from ntk_deq.dynamics.record import RunStatus
from ntk_deq.errors import ArgumentError, EquilibriumError, NtkDeqError
from ntk_deq.evaluation.balls import evaluate_scalar, evaluate_truth
from ntk_deq.evaluation.environment import OutsideClaimError
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Outcome, Scalar, Truth
from ntk_deq.language.parser import parse
from ntk_deq.language.run import GRADIENT_FLOW, LOSS
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.verify.results import TrainingRecord
from ntk_deq.verify.runs import NoRunError
from ntk_deq.verify.training import Moments, Point, StepMoments, Trainee
from ntk_deq.verify.training.between import (
    at_every_index,
    bounds_of_loss,
    covered_intervals,
    named_steps,
    quantified,
    worse,
)
from ntk_deq.verify.training.flow import FlowTwin, flow
from ntk_deq.verify.training.records import training_record
from ntk_deq.verify.training.trajectory import SAFETY, Trajectory, hulls

STABLE = 1.8
"""Step size times curvature up to which descent is taken to follow the flow; beyond 2 it leaves a minimum."""

AGREE = 2.0
"""Factor on the estimated distance between descent and flow by which they may differ where both are known."""

_PLACES = 6  # along the flow, at which the curvature is estimated
_ITERATIONS = 20
_NUDGE = 1e-6  # of a difference quotient, relative to the parameters


def strays(window: Point, flow: Sequence[Point], field: GradientField, eta: float, check: Callable[[], None]) -> str:
    """Return why the flow does not stand for descent, or an empty text.

    Euler's method follows a flow where step size times curvature stays below two; the curvature is estimated at places
    along the flow, the ends among them, by power iteration on differences of gradients. And where the steps taken end,
    the two have to agree within what is estimated of their distance.

    Args:
        window: The last judged step of descent.
        flow: The flow at the steps of descent; also at that one, unless it ended before.
        field: Gradients of the loss.
        eta: The step size.
        check: Called now and then; what it raises ends the look.
    """
    there = next((point for point in flow if point.at == window.at), None)
    if there is None:
        return f"it ends at step {flow[-1].at:,}, before the {window.at:,} steps that descent took"
    apart = max(_excess(window, there))
    if apart > AGREE:
        return f"at step {window.at:,} descent is {apart:.2g} times as far from it as estimated"
    places = sorted({round(i * (len(flow) - 1) / (_PLACES - 1)) for i in range(_PLACES)})
    for point in (window, *(flow[place] for place in places)):
        check()
        curvature = largest_curvature(field, point.parameters)
        if not eta * curvature <= STABLE:
            return (
                f"descent need not follow it: at step {point.at:,} the step size times the largest curvature is about "
                f"{eta * curvature:.3g}, and beyond 2 it is unstable"
            )
    return ""


def _excess(window: Point, flow: Point) -> list[float]:
    """Return the distance of each parameter over its estimate; inf where it is no number."""
    found = []
    for name, value in window.parameters.items():
        distance = float(torch.linalg.vector_norm(value - flow.parameters[name]))
        allowed = window.radius.get(name, 0.0) + flow.radius.get(name, 0.0)
        known = math.isfinite(distance) and (allowed > 0 or distance == 0)
        found.append((distance / allowed if distance else 0.0) if known else math.inf)
    return found


def largest_curvature(field: GradientField, parameters: Mapping[str, Tensor]) -> float:
    """Estimate the largest absolute eigenvalue of the Hessian of the loss, from below; inf where that fails.

    Args:
        field: Gradients of the loss.
        parameters: Where.
    """
    generator = torch.Generator().manual_seed(0)
    direction = {
        name: torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value)
        for name, value in parameters.items()
    }
    nudge = _NUDGE * max(size(parameters), 1e-300)
    found = 0.0
    try:
        here = _gradients_along(field, parameters)
        for _ in range(_ITERATIONS):
            length = size(direction)
            if length == 0:
                return found
            if not math.isfinite(length):
                return math.inf
            moved = {name: value + nudge / length * direction[name] for name, value in parameters.items()}
            there = _gradients_along(field, moved)
            direction = {name: (there[name] - here[name]) / nudge for name in here}
            curvature = size(direction)
            found = math.inf if math.isnan(curvature) else max(found, curvature)
    except NtkDeqError:
        return math.inf
    return found


def _gradients_along(field: GradientField, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in field.at(parameters, 0.0).gradients.items()}


def size(values: Mapping[str, Tensor]) -> float:
    """Return the Frobenius norm of all tensors together."""
    return math.hypot(*(float(torch.linalg.vector_norm(value)) for value in values.values()))


FLOW_STEPS = 10_000
"""Steps of the integrator at most."""

STEP_TESTS = 16
"""States along the flow from which one step is tested."""


def continued(
    claim: Claim, instance: Instance, window: StepMoments
) -> tuple[dict[str, Outcome], TrainingRecord | None]:
    """Judge the conclusions along gradient flow from the same start, at the steps k = t/eta.

    Args:
        claim: The claim, on gradient descent.
        instance: The instance.
        window: The window of descent.

    Returns:
        Outcomes by name; what the flow breaks is unsure, since it is not the descent. And the record of the flow, or
        None where it cannot begin.
    """
    assert claim.run is not None
    env = window.start
    trainee = Trainee.of(env, instance)
    eta = float(window.step.ball.mid())
    run = replace(claim.run, kind=GRADIENT_FLOW, steps=FLOW_STEPS)
    names = [name for name, f in claim.conclude.items() if quantified(f.expr)]
    try:
        times = sorted({eta * at for at in (*named_steps(claim), window.points[-1].at)})
        course = _as_steps(flow(run, trainee, env, times=times), trainee, window.step, env.notes.check_time)
    except (ArgumentError, EquilibriumError, NotFiniteError, WellPosednessError, NoRunError) as error:
        reason = _so_far(window, f"it cannot begin: {error}")
        return {name: Outcome(Truth.UNSURE, None, reason) for name in names}, None
    notes = replace(env.notes, sides=[])
    moments = StepMoments(
        env,
        course.points,
        window.changing,
        course.losses or None,
        end_error=course.end_error,
        step=window.step,
        final=True,
    )
    start = replace(env, moments=moments, notes=notes, cache=dict(env.cache))
    moments.start = start
    outcomes: dict[str, Outcome] = {}
    for name in names:
        try:
            outcome = evaluate_truth(claim.conclude[name].expr, start)
            further = at_every_index(claim.conclude[name], moments)
            outcomes[name] = _cautious(outcome if further is None else worse(outcome, further), window)
        except OutsideClaimError as outside:
            outcomes[name] = Outcome(Truth.UNSURE, None, _so_far(window, str(outside)))
    env.notes.unsure += [reason for reason in notes.unsure if reason not in env.notes.unsure]
    why = FlowTwin().unfinished(course, run) or course.end.unsure
    why = why or strays(window.points[-1], course.points, trainee.gradients, eta, env.notes.check_time)
    if why:
        outcomes = {name: replace(o, truth=Truth.UNSURE, reason=_so_far(window, why)) for name, o in outcomes.items()}
    assert notes.sides is not None
    covered = covered_intervals(claim, moments, outcomes)
    record = training_record(
        claim, instance, start, course, notes.sides, role="continuation", covered=covered, unit=eta
    )
    tests, true = step_tests(claim, moments, trainee)
    return outcomes, replace(record, step_tests=tests, step_tests_true=true)


def _cautious(outcome: Outcome, window: Moments) -> Outcome:
    if outcome.truth is Truth.FALSE:
        return replace(outcome, truth=Truth.UNSURE, reason=_so_far(window, "the conclusion breaks"))
    if outcome.truth is Truth.UNSURE:
        return replace(outcome, reason=_so_far(window, outcome.reason))
    return outcome


def _so_far(window: Moments, trouble: str) -> str:
    """Say of what happens on the flow that the steps taken have not decided it."""
    return (
        f"the {window.points[-1].at:,} steps taken do not break it; beyond them, on the gradient flow that stands for "
        f"descent, {trouble}"
    )


def _as_steps(course: Trajectory, trainee: Trainee, step: Scalar, check: Callable[[], None]) -> Trajectory:
    """Return a flow with its points at the steps of descent nearest to their times, with Euler's error added.

    Of points that fall on the same step the first one is kept. A step size that is off by a share moves descent by that
    share of its length.
    """
    field, gradients = trainee.gradients, list[Mapping[str, Tensor]]()
    for point in course.points:
        check()
        gradients.append(field.at(point.parameters, point.at).gradients)
    eta, off = float(step.ball.mid()), SAFETY * float(step.ball.rad()) / sc.lower(step.ball)
    points, snapshots = [course.points[0]], [course.run.snapshots[0]]
    variation = stray = 0.0
    for place in range(1, len(course.points)):
        point = course.points[place]
        variation += size({name: now - gradients[place - 1][name] for name, now in gradients[place].items()})
        stray = eta / 2 * variation + eta * max(size(gradients[place]), size(gradients[place - 1]))
        stray += off * sc.upper(point.path)
        at = round(point.at / eta)
        if at > points[-1].at:
            radius = {name: bound + stray for name, bound in point.radius.items()}
            points.append(replace(point, at=at, radius=radius, path=point.path + sc.with_radius(0.0, stray)))
            snapshots.append(course.run.snapshots[place])
    run = replace(course.run, snapshots=tuple(snapshots))
    losses = hulls([snapshot.loss for snapshot in snapshots]) if trainee.multiple else ()
    # Descent is at its floor where the flow is, give or take its distance over the length of a step.
    length, last = eta * size(gradients[-1]), max(points[-1].at, 1)
    late = 2 + stray / length if length > 0 else math.inf  # one for each of the two roundings to whole steps
    end_error = course.end_error + (late / last if course.run.status is RunStatus.LOSS_FLOOR else 0.0)
    return replace(course, run=run, points=tuple(points), losses=losses, end_error=end_error)


def step_tests(claim: Claim, moments: StepMoments, trainee: Trainee) -> tuple[int, int]:
    """Test one step of descent from states along the flow against the geometric bound that the claim states.

    Where the claim says L[k] <= B(k) for all k with B(k+1)/B(k) constant, its proof goes by single steps:
    L[k+1] B(0) <= L[k] B(1). The states are taken as they are, since any state of the invariant region will do, and so
    is the state after the step, whose rounding is far below the step.

    Returns:
        How many states were tested, and at how many of them the step is certain to satisfy it.
    """
    bound = next((b for f in claim.conclude.values() if (b := _geometric(f.expr, moments)) is not None), None)
    if bound is None:
        return 0, 0
    chosen = sorted({round(i * (len(moments.points) - 1) / (STEP_TESTS - 1)) for i in range(STEP_TESTS)})
    field, true = trainee.gradients, 0
    for place in chosen:
        moments.start.notes.check_time()
        true += _falls(moments, moments.points[place], field, *bound)
    return len(chosen), true


def _falls(moments: StepMoments, point: Point, field: GradientField, first: Scalar, second: Scalar) -> bool:
    eta = float(moments.step.ball.mid())
    try:
        gradients = field.at(point.parameters, point.at * eta).gradients
        moved = {name: value - eta * gradients[name] for name, value in point.parameters.items()}
        pair = [replace(point, at=1, radius={}), replace(point, at=2, parameters=moved, radius={})]
        single = Moments(moments.start, pair, moments.changing)
        before, after = (evaluate_scalar(parse(LOSS), single.environment(step)) for step in (1, 2))
    except NtkDeqError:
        return False
    return bool(after.ball * first.ball <= before.ball * second.ball)


def _geometric(expr: Expr, moments: Moments) -> tuple[Scalar, Scalar] | None:
    """Return B(0) and B(1) where a statement is L[k] <= B(k) for all k and B falls geometrically."""
    if any(part.kind is Kind.FOR_ALL and len(part.names) > 1 for part in expr.walk()):
        return None  # the other indices may stand in the bound
    for index, bound in bounds_of_loss(expr):
        if any(part.kind is Kind.INDEX and part.args[0].value != 0 for part in bound.walk()):
            continue
        try:
            first, second, third = (evaluate_scalar(bound, moments.start, {index: k}) for k in range(3))
        except OutsideClaimError:  # it has no value at the first steps, which need not be meant
            continue
        if (first.ball * third.ball - second.ball * second.ball).contains(0) and first.ball > arb(0):
            return first, second
    return None
