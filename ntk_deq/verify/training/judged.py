"""A training run as a claim is judged along it, and what the twins of descent and flow share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from flint import arb

from ntk_deq.claims.claim import Claim
from ntk_deq.dynamics.field import NotFiniteError, WellPosednessError
from ntk_deq.dynamics.record import RunStatus, TrainingRun
from ntk_deq.errors import ArgumentError, EquilibriumError
from ntk_deq.evaluation.environment import Environment
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.margins import parts
from ntk_deq.evaluation.quantity import Outcome, Truth
from ntk_deq.language.declaration import Setting
from ntk_deq.language.indices import step_of
from ntk_deq.language.run import Run, RunKind, changing_names
from ntk_deq.language.tree import Expr, Formula, Kind
from ntk_deq.verify.results import Start, TrainingRecord
from ntk_deq.verify.runs import Course, NoRunError, RunTwin
from ntk_deq.verify.training import Moments, Point, Trainee
from ntk_deq.verify.training.between import (
    at_every_index,
    covered_intervals,
    inlined,
    named_steps,
    needs_the_run,
    quantified,
    worse,
)
from ntk_deq.verify.training.records import start_record, training_record
from ntk_deq.verify.training.scoring import SNAPSHOTS, Scored, TrainingScorer
from ntk_deq.verify.training.trajectory import Trajectory

_PRODUCT = 5000.0  # multiplications that take as long as the rest of a gradient
_FORMULA = 2.0  # gradients that a comparison at one snapshot takes


class TrainingTwin(RunTwin, Scored):
    """What is done with a training run of any kind; each says how it is made, judged, continued and scored."""

    kind: ClassVar[RunKind]
    aims: ClassVar[bool] = True
    unwritten: ClassVar[str] = "the conclusion is about a training run"

    def prepared(self, claim: Claim) -> Claim:
        """Write definitions that are statements out where they are used."""
        return inlined(claim)

    def waits(self, formula: Formula, claim: Claim) -> bool:
        """Whether a hypothesis speaks of every step, or of a later one than the start."""
        return needs_the_run(formula, claim)

    def begin(self, claim: Claim, env: Environment) -> None:
        """Let names with the index 0 mean the instance itself."""
        start = Point(0, {}, {}, arb(0))
        env.moments = Moments(env, (start,), changing_names(self.kind, env.model, claim.let))
        env.notes.sides = []

    def start(self, claim: Claim, env: Environment, instance: Instance) -> TrainingCourse:
        """Run the training of a claim on an instance and attach its moments to the environment.

        Raises:
            OutsideClaimError: The step size or the horizon is not a positive number.
            NoRunError: The run cannot begin.
            DeadlineError: The time ran out.
        """
        assert claim.run is not None
        trainee = Trainee.of(env, instance)
        try:
            trainee.check_declared(env)
            course = self.trajectory(claim.run, trainee, env, named_steps(claim))
        except (ArgumentError, EquilibriumError, NotFiniteError, WellPosednessError) as error:
            raise NoRunError(f"the run cannot begin: {error}") from error
        return TrainingCourse.on(self, claim, env, instance, course)

    @property
    def scorer(self) -> Callable[..., TrainingScorer]:
        """What scores instances by short runs; no equations are solved there."""
        return partial(TrainingScorer, self)

    def cost(self, claim: Claim, setting: Setting, sizes: Mapping[str, int]) -> float:
        """Return what a score costs, counted in gradients of a network of one unit (0.15 ms): no clock is asked.

        Args:
            claim: A claim with a run of this kind.
            setting: One of its settings, with a model.
            sizes: The sizes of the instance.
        """
        assert claim.run is not None
        assert setting.model is not None
        rows, cols = setting.model.state_at(sizes)
        formulas = _FORMULA * SNAPSHOTS * sum(len(list(parts(f.name, f.expr))) for f in claim.conclude.values())
        return self.gradients(claim.run) * (1 + rows * cols * cols / _PRODUCT) + formulas

    def unfinished(self, course: Trajectory, run: Run) -> str:
        """Return why a run does not show what comes after its end, or an empty text.

        Descent that spent its steps is a window, and is continued. Flow has to get to the loss floor or to the horizon
        that the claim gives: where its own budget of steps or of time ended it, what comes later is not known.

        Args:
            course: The run.
            run: What the claim says of it.
        """
        done = course.run
        if course.resting or (done.status.complete and not self.given_up(done, run)):
            return ""
        seen, first = done["loss"].values, done.snapshots[0].loss
        rise = float(seen[seen.isfinite()].max()) / first if first > 0 else 1.0
        risen = f" Its loss had risen to {rise:.2g} times the first one by then." if rise > 2 else ""
        why = done.detail or done.status.text
        return f"the run stopped at {self.kind.letter} = {done.end:g}: {why}{risen}"

    @abstractmethod
    def trajectory(self, run: Run, trainee: Trainee, env: Environment, keep: Sequence[int]) -> Trajectory:
        """Run, with the distance from the exact run at each judged step or time.

        Args:
            run: What the claim says of it.
            trainee: The model with its data.
            env: The environment of the instance.
            keep: Steps that are judged besides those that are judged anyway.
        """

    @abstractmethod
    def moments(self, course: Trajectory, env: Environment, changing: frozenset[str], run: Run) -> Moments:
        """Return the judged steps or times as environments: which there are, what is between them and at the end.

        Args:
            course: The run.
            env: The environment of its start.
            changing: Names that change along it.
            run: What the claim says of it.
        """

    @abstractmethod
    def gradients(self, run: Run) -> int:
        """Return how many gradients a run that is scored takes, about."""

    def given_up(self, done: TrainingRun, run: Run) -> bool:
        """Whether a run that went where it was sent was sent there by its own budget alone."""
        return False

    def further(
        self, claim: Claim, course: Trajectory, moments: Moments, outcomes: Mapping[str, Outcome]
    ) -> Sequence[int]:
        """Return steps at which a run is to be judged besides, once its conclusions are known at the others."""
        return ()

    def goes_on(self, done: TrainingRun, run: Run) -> bool:
        """Whether the claim speaks of what comes after the end of the run, for which something else then stands."""
        return False

    def continued(
        self, claim: Claim, instance: Instance, window: Moments
    ) -> tuple[dict[str, Outcome], TrainingRecord | None]:
        """Return the conclusions along what stands for a run beyond its end, and the record of that, if there is one.

        Args:
            claim: The claim.
            instance: The instance.
            window: The run.
        """
        return {}, None

    def early(
        self, claim: Claim, env: Environment, instance: Instance, outcomes: Mapping[str, Outcome]
    ) -> tuple[dict[str, Outcome], dict[str, str]]:
        """Return the outcomes of what the first instants break for certain, and the operations that are estimates."""
        return {}, {}


@dataclass
class TrainingCourse(Course):
    """A training run with the moments at which formulas are evaluated.

    Attributes:
        twin: What is done with runs of its kind.
        claim: The claim.
        instance: The instance it starts from.
        course: The run.
        moments: Its judged steps as environments.
    """

    leaves_open: ClassVar[bool] = True

    twin: TrainingTwin
    claim: Claim
    instance: Instance
    course: Trajectory
    moments: Moments

    def __post_init__(self) -> None:
        """Note whether the loss is zero at the start for certain, so that the run has no later step or time."""
        done = self.course.run
        self.only_starts = done.status is RunStatus.LOSS_FLOOR and done.end == 0 and not self.course.end.unsure

    @classmethod
    def on(
        cls, twin: TrainingTwin, claim: Claim, env: Environment, instance: Instance, course: Trajectory
    ) -> TrainingCourse:
        """Attach the moments of a run to an environment, which knows already what changes along it."""
        assert claim.run is not None
        assert env.moments is not None
        moments = twin.moments(course, env, env.moments.changing, claim.run)
        env.moments = moments
        return cls(twin, claim, instance, course, moments)

    def refined(self, outcomes: Mapping[str, Outcome]) -> TrainingCourse | None:
        """Return the run, taken once more with more judged steps where its kind says which."""
        claim, course, env = self.claim, self.course, self.moments.start
        assert claim.run is not None
        further = self.twin.further(claim, course, self.moments, outcomes)
        if not further:
            return None
        keep = sorted({*further, *(int(point.at) for point in course.points)})
        finer = self.twin.trajectory(claim.run, Trainee.of(env, self.instance), env, keep)
        env.notes.sides = [side for side in env.notes.sides or () if not side.indices]
        return self.on(self.twin, claim, env, self.instance, finer)

    def along(self, outcome: Outcome, name: str) -> Outcome:
        """Return the outcome of a conclusion, unsure where the run broke off and nothing before that breaks it.

        Where rounding decides at which step the run ends, nothing is concluded from its steps.
        """
        expr = self.claim.conclude[name].expr
        outcome = self.certain_end(outcome, expr)
        if not quantified(expr) or outcome.truth is Truth.FALSE:
            return outcome
        assert self.claim.run is not None
        reason = self.twin.unfinished(self.course, self.claim.run)
        if self.moments.endless and any(map(_speaks_of_its_index, expr.walk())):
            reason = f"the run goes on for ever, and was looked at up to {self.course.run.end:g}"
        return replace(outcome, truth=Truth.UNSURE, reason=reason) if reason else outcome

    def certain_end(self, outcome: Outcome, expr: Expr) -> Outcome:
        """Return the outcome of a statement on steps, unsure where it is not certain which steps there are.

        One that breaks at a step which is certain to exist, and refers to no other step by it, is broken; and one that
        names steps, all of which are certain to exist, is what it is.
        """
        end = self.course.end
        if not end.unsure:
            return outcome
        opened = replace(outcome, truth=Truth.UNSURE, reason=end.unsure)
        used = [node.args[0] for node in expr.walk() if node.kind is Kind.INDEX]
        if not quantified(expr):
            last = max((*(step_of(step, {}) for step in used), *named_steps(self.claim)), default=0)
            return outcome if last <= end.sure_to else opened  # also in definitions
        plain = all(step.kind is Kind.NAME or (step.kind is Kind.NUMBER and step.value == 0) for step in used)
        steps = () if outcome.comparison is None else outcome.comparison.steps
        if outcome.truth is Truth.FALSE and plain and steps and all(at <= end.sure_to for _, at in steps):
            return outcome
        return opened

    def finished(
        self, conclusions: Mapping[str, Outcome]
    ) -> tuple[dict[str, Outcome], tuple[TrainingRecord, ...], Start]:
        """Return the outcomes, and the records of a run and of its start; what it leaves open is continued first.

        A verdict on steps too small to be taken to the end rests on three parts: the window, the flow to the end, and
        one step of descent tested from states along the flow (docs/design.md, section 6).
        """
        claim, env, course = self.claim, self.moments.start, self.course
        assert claim.run is not None
        conclusions = self._at_the_beginning(self._at_every_index(conclusions))
        sides = list(env.notes.sides or ())
        every = any(quantified(formula.expr) for formula in claim.conclude.values())
        window = every and self.twin.goes_on(course.run, claim.run)
        covered = covered_intervals(claim, self.moments, conclusions)
        role = "window" if window else "run"
        records = [training_record(claim, self.instance, env, course, sides, role=role, covered=covered)]
        outcomes = dict(conclusions)
        broken = any(outcome.truth is Truth.FALSE for outcome in outcomes.values())
        if every and covered < len(course.points) - 1 and not broken:
            reason = f"of {len(course.points) - 1} intervals between them, {covered} are certain throughout"
            env.notes.estimated.setdefault("steps between the judged ones", reason)
        if window and not broken:
            further, record = self.twin.continued(claim, self.instance, self.moments)
            records += [] if record is None else [record]
            outcomes = {name: worse(outcome, further.get(name, outcome)) for name, outcome in outcomes.items()}
        return self._cautious(outcomes), tuple(records), start_record(claim, self.instance, env, sides)

    def _at_the_beginning(self, conclusions: Mapping[str, Outcome]) -> dict[str, Outcome]:
        """Return the outcomes, false where the first instants break a conclusion: that rests on no estimate."""
        if self.course.resting:
            return dict(conclusions)
        env, claim = self.moments.start, self.claim
        broken, estimated = self.twin.early(claim, env, self.instance, conclusions)
        if broken and not any(self.twin.waits(formula, claim) for formula in claim.assume.values()):
            env.notes.estimated.clear()
            env.notes.estimated.update(estimated)
        return {**conclusions, **broken}

    def _at_every_index(self, conclusions: Mapping[str, Outcome]) -> dict[str, Outcome]:
        """Return the outcomes, worse where a statement about the index alone fails between two judged steps."""
        found = dict(conclusions)
        for name, outcome in conclusions.items() if not self.course.end.unsure else ():
            further = None if outcome.truth is Truth.FALSE else at_every_index(self.claim.conclude[name], self.moments)
            found[name] = outcome if further is None else worse(outcome, further)
        return found

    def _cautious(self, conclusions: dict[str, Outcome]) -> dict[str, Outcome]:
        """Return the outcomes of conclusions where a hypothesis speaks of every step.

        It is known at the judged steps only. That does no harm to a conclusion that is true, since the implication then
        is; but one that breaks may do so on a run which, between two judged steps, does not meet the hypothesis.
        """
        speaking = [name for name, formula in self.claim.assume.items() if quantified(formula.expr)]
        if not speaking:
            return conclusions
        reason = f"{', '.join(map(repr, speaking))} must hold at every step, and is known at the judged ones only"
        self.moments.start.notes.estimated.setdefault("hypothesis about every step", reason)
        return {
            name: replace(outcome, truth=Truth.UNSURE, reason=reason) if outcome.truth is Truth.FALSE else outcome
            for name, outcome in conclusions.items()
        }


def _speaks_of_its_index(expr: Expr) -> bool:
    """Whether the body of a quantifier has its index elsewhere than in the number of a step."""

    def bare(part: Expr) -> bool:
        if part.kind is Kind.INDEX:
            return False
        return (part.kind is Kind.NAME and part.name in expr.names) or any(map(bare, part.args))

    return expr.kind is Kind.FOR_ALL and bare(expr.args[0])
