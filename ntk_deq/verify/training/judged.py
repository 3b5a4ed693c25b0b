"""Evaluate the conclusions of a claim along its training run, and write down what the run was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from flint import arb

from ntk_deq.claims.claim import Claim
from ntk_deq.dynamics.record import RunStatus
from ntk_deq.evaluation.balls import step_of
from ntk_deq.evaluation.environment import Environment
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Outcome, Truth
from ntk_deq.language.run import Run, changing_names
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.verify.training.between import (
    at_every_index,
    covered_intervals,
    has_several_indices,
    named_steps,
    needs_the_run,
    open_intervals,
    worse,
)
from ntk_deq.verify.training.continuation import continued
from ntk_deq.verify.training.flow_course import early_breaks
from ntk_deq.verify.training.moments import Moments, Point
from ntk_deq.verify.training.records import start_record, training_record
from ntk_deq.verify.training.summary import Start, TrainingRecord
from ntk_deq.verify.training.trainee import Trainee
from ntk_deq.verify.training.trajectory import Trajectory, descent, trajectory, unfinished

MOST_FURTHER = 400
"""Steps that are judged besides the first 48, at most: all between them that are not certain, or none."""

MOST_KEPT = 2 * 10**7
"""Entries of the parameters at all of these together, at most."""


@dataclass
class JudgedRun:
    """A training run with the moments at which formulas are evaluated.

    Attributes:
        claim: The claim.
        instance: The instance it starts from.
        course: The run.
        moments: Its judged steps as environments.
    """

    claim: Claim
    instance: Instance
    course: Trajectory
    moments: Moments

    @property
    def broken(self) -> str:
        """Why the run does not show what comes later, or an empty text."""
        assert self.claim.run is not None
        return unfinished(self.course, self.claim.run)

    @property
    def only_starts(self) -> bool:
        """Whether the loss is zero at the start for certain, so that the run has no later step or time."""
        done = self.course.run
        return done.status is RunStatus.LOSS_FLOOR and done.end == 0 and not self.course.end.unsure


def begin(claim: Claim, env: Environment) -> None:
    """Let names with the index 0 mean the instance itself, before there is a run."""
    assert claim.run is not None
    start = Point(0, {}, {}, arb(0))
    env.moments = Moments(env, (start,), changing_names(claim.run.method, env.model, claim.let))
    env.notes.sides = []


def start_run(claim: Claim, env: Environment, instance: Instance) -> JudgedRun:
    """Run the training of a claim on an instance and attach its moments to the environment.

    Raises:
        OutsideClaimError: The step size or the horizon is not a positive number.
        NoRunError: The run cannot begin.
    """
    assert claim.run is not None
    assert env.moments is not None
    return _on(claim, env, instance, trajectory(claim, env, instance))


def _on(claim: Claim, env: Environment, instance: Instance, course: Trajectory) -> JudgedRun:
    """Attach the moments of a run to the environment."""
    assert claim.run is not None
    assert env.moments is not None
    status = course.run.status
    moments = Moments(
        env,
        course.points,
        env.moments.changing,
        course.step,
        course.losses or None,
        beyond=course.step is not None and status is RunStatus.WELL_POSEDNESS_LOST,
        final=status is RunStatus.LOSS_FLOOR
        or ((status is RunStatus.STEPS or course.resting) and not claim.run.beyond),
        end_error=course.end_error,
        resting=course.resting,
        endless=is_endless(course, claim.run),
    )
    env.moments = moments
    return JudgedRun(claim, instance, course, moments)


def refined(run: JudgedRun, outcomes: Mapping[str, Outcome]) -> JudgedRun | None:
    """Return a run of descent with more judged steps: all those between two judged ones that are not certain.

    Args:
        run: The run.
        outcomes: What the conclusions came to at the steps judged so far.

    Returns:
        The run, taken once more; None where some conclusion breaks already, or there are no such steps, or too many.
    """
    claim, course, env = run.claim, run.course, run.moments.start
    assert claim.run is not None
    settled = course.end.unsure or any(outcome.truth is Truth.FALSE for outcome in outcomes.values())
    if course.step is None or course.resting or settled or has_several_indices(claim):
        return None
    spans = open_intervals(claim, run.moments, outcomes)
    further = [k for span in spans for k in range(int(span) + 1, int(span.stop))]
    entries = sum(value.numel() for value in course.points[0].parameters.values())
    if not 0 < len(further) <= MOST_FURTHER or entries * len(further) > MOST_KEPT:
        return None
    keep = sorted({*further, *(int(point.at) for point in course.points)})
    finer = descent(claim.run, Trainee.of(env, run.instance), env, keep=keep)
    env.notes.sides = [side for side in env.notes.sides or () if not side.indices]
    return _on(claim, env, run.instance, finer)


def along(run: JudgedRun, outcome: Outcome, name: str) -> Outcome:
    """Return the outcome of a conclusion, unsure where the run broke off and nothing before that breaks it.

    Where rounding decides at which step the run ends, nothing is concluded from its steps.
    """
    expr = run.claim.conclude[name].expr
    outcome = certain_end(run, outcome, expr)
    every = any(node.kind is Kind.FOR_ALL for node in expr.walk())
    if not every or outcome.truth is Truth.FALSE:
        return outcome
    reason = run.broken
    if run.moments.endless and any(map(_speaks_of_its_index, expr.walk())):
        reason = f"the run goes on for ever, and was looked at up to {run.course.run.end:g}"
    return replace(outcome, truth=Truth.UNSURE, reason=reason) if reason else outcome


def is_endless(course: Trajectory, run: Run) -> bool:
    """Whether a run at rest goes on beyond its last judged step or time."""
    return course.resting and (run.beyond if course.step is not None else run.horizon is None)


def _speaks_of_its_index(expr: Expr) -> bool:
    """Whether the body of a quantifier has its index elsewhere than in the number of a step."""

    def bare(part: Expr) -> bool:
        if part.kind is Kind.INDEX:
            return False
        return (part.kind is Kind.NAME and part.name in expr.names) or any(map(bare, part.args))

    return expr.kind is Kind.FOR_ALL and bare(expr.args[0])


def certain_end(run: JudgedRun | None, outcome: Outcome, expr: Expr) -> Outcome:
    """Return the outcome of a statement on steps, unsure where it is not certain which steps there are.

    One that breaks at a step which is certain to exist, and refers to no other step by it, is broken; and one that
    names steps, all of which are certain to exist, is what it is.
    """
    if run is None or not run.course.end.unsure:
        return outcome
    used = [node.args[0] for node in expr.walk() if node.kind is Kind.INDEX]
    if not any(node.kind is Kind.FOR_ALL for node in expr.walk()):
        last = max((*(step_of(step, {}) for step in used), *named_steps(run.claim)), default=0)  # also in definitions
        return outcome if last <= run.course.end.sure_to else _open(outcome, run)
    plain = all(step.kind is Kind.NAME or (step.kind is Kind.NUMBER and step.value == 0) for step in used)
    steps = () if outcome.comparison is None else outcome.comparison.steps
    if outcome.truth is Truth.FALSE and plain and steps and all(at <= run.course.end.sure_to for _, at in steps):
        return outcome
    return _open(outcome, run)


def _open(outcome: Outcome, run: JudgedRun) -> Outcome:
    return replace(outcome, truth=Truth.UNSURE, reason=run.course.end.unsure)


def finished(
    run: JudgedRun, conclusions: Mapping[str, Outcome]
) -> tuple[dict[str, Outcome], tuple[TrainingRecord, ...], Start]:
    """Return the outcomes, and the records of a run and of its start; a window is continued by gradient flow first.

    A verdict on steps too small to be taken to the end rests on three parts: the window, the flow to the end, and one
    step of descent tested from states along the flow (docs/design.md, section 6).
    """
    env, course = run.moments.start, run.course
    conclusions = _at_the_beginning(run, _at_every_index(run, conclusions))
    sides = list(env.notes.sides or ())
    every = any(node.kind is Kind.FOR_ALL for f in run.claim.conclude.values() for node in f.expr.walk())
    assert run.claim.run is not None
    window = every and run.claim.run.beyond and course.step is not None and course.run.status is RunStatus.STEPS
    covered = covered_intervals(run.claim, run.moments, conclusions)
    records = [
        training_record(
            run.claim, run.instance, env, course, sides, role="window" if window else "run", covered=covered
        )
    ]
    outcomes = dict(conclusions)
    if every and covered < len(course.points) - 1 and not any(o.truth is Truth.FALSE for o in outcomes.values()):
        reason = f"of {len(course.points) - 1} intervals between them, {covered} are certain throughout"
        env.notes.estimated.setdefault("steps between the judged ones", reason)
    if window and not any(outcome.truth is Truth.FALSE for outcome in outcomes.values()):
        further, record = continued(run.claim, run.instance, run.moments)
        records += [] if record is None else [record]
        outcomes = {name: worse(outcome, further.get(name, outcome)) for name, outcome in outcomes.items()}
    return outcomes, tuple(records), start_record(run.claim, run.instance, env, sides)


def _at_the_beginning(run: JudgedRun, conclusions: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """Return the outcomes, false where the first instants of a flow break a conclusion: that rests on no estimate."""
    env, course = run.moments.start, run.course
    if course.step is not None or course.resting:
        return dict(conclusions)
    broken, estimated = early_breaks(run.claim, env, run.instance, conclusions)
    if broken and not any(needs_the_run(formula, run.claim.let) for formula in run.claim.assume.values()):
        env.notes.estimated.clear()
        env.notes.estimated.update(estimated)
    return {**conclusions, **broken}


def _at_every_index(run: JudgedRun, conclusions: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """Return the outcomes, worse where a statement about the index alone fails between two judged steps."""
    found = dict(conclusions)
    for name, outcome in conclusions.items() if not run.course.end.unsure else ():
        further = None if outcome.truth is Truth.FALSE else at_every_index(run.claim.conclude[name], run.moments)
        found[name] = outcome if further is None else worse(outcome, further)
    return found
