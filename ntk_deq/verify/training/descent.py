"""The twin of gradient descent: its run as it is judged, what stands in for it beyond, how it is scored in short.

At which step a run ends, and how certain that is, stands at the end.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import ClassVar

from flint import arb
from torch import Tensor

from ntk_deq.certified import scalar as sc
from ntk_deq.claims.claim import Claim
from ntk_deq.dynamics.field import FieldPoint
from ntk_deq.dynamics.record import RunStatus, TrainingRun
from ntk_deq.dynamics.training import gradient_descent
from ntk_deq.evaluation.environment import Environment
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Outcome, Truth
from ntk_deq.language.run import GRADIENT_DESCENT, Run, RunKind
from ntk_deq.language.tree import Formula
from ntk_deq.systems.model import EquilibriumModel
from ntk_deq.verify.results import TrainingRecord
from ntk_deq.verify.training import SOLVER_TOLERANCE, Moments, Point, StepMoments, Trainee
from ntk_deq.verify.training.between import has_several_indices, open_intervals
from ntk_deq.verify.training.continuation import continued
from ntk_deq.verify.training.judged import TrainingTwin
from ntk_deq.verify.training.proven import at_rest, proven_window, rests, steps_at_rest
from ntk_deq.verify.training.scoring import SNAPSHOTS, STEPS
from ntk_deq.verify.training.trajectory import (
    KNOWN,
    LOSS_ROUNDING,
    SAFETY,
    UNTIL_ROUNDING,
    End,
    LossNoise,
    Trajectory,
    again_if_interrupted,
    end_at_the_start,
    errors_from_start,
    estimated_point,
    growth_of_errors,
    known_to,
    output_noise,
    positive,
)

FIRST_STEPS = (1, 2, 3, 5)
"""Steps of descent from either end of the run that are always judged: the first stretch, where most sides are equal at
the start, is open for long, and what a bound does last may be seen at no step before."""

LARGEST_STEP_ERROR = 1e-3
"""Relative radius of a step size beyond which its effect is no longer in proportion to it."""

MOST_FURTHER = 400
"""Steps that are judged besides the first 48, at most: all between them that are not certain, or none."""

MOST_KEPT = 2 * 10**7
"""Entries of the parameters at all of these together, at most."""

BRIEF_STEPS = 40
"""Steps of a brief run."""

BRIEF_JUDGED = 12
"""Steps of it that are judged, besides telling ones."""


class DescentTwin(TrainingTwin):
    """The twin of `gradient-descent`."""

    kind: ClassVar[RunKind] = GRADIENT_DESCENT
    together: ClassVar[bool] = True
    soon: ClassVar[Fraction] = Fraction(1)

    def trajectory(self, run: Run, trainee: Trainee, env: Environment, keep: Sequence[int]) -> Trajectory:
        """Descend, and keep the range of the loss between judged steps."""
        started = time.perf_counter()
        assert run.step is not None
        step = positive(run.step, env)
        off = known_to(run.step, step, LARGEST_STEP_ERROR)
        losses, noises = array("d"), array("d")  # eight bytes a step, a million steps at most
        multiple = trainee.multiple
        noise_of = LossNoise(trainee) if multiple is None else None

        slopes: dict[str, Tensor] = {}

        def watch(k: int, point: FieldPoint) -> None:
            env.notes.check_time()
            losses.append(point.loss_value)
            slopes.update(point.gradients)
            if noise_of is not None:
                noises.append(noise_of.at(point))

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
            ats = steps_at_rest(run)
            done, points = at_rest(done, trainee, ats, ats[-1])
            end = end_at_the_start(done, env)
            return Trajectory(done, points, step, end=end, resting=True)
        ats = [int(snapshot.at) for snapshot in done.snapshots]
        proven = proven_window(trainee, env, step=step, ats=ats)
        known = len(proven.points)
        points, slack = proven.points, LOSS_ROUNDING
        if known < len(ats):
            points = (*points, *_estimated_points(done, trainee, known, off, env.notes.check_time))
            # A large weight is known to less than a small one, along which the loss may be the steeper.
            off_by = sum(float(slopes[name].norm()) * radius for name, radius in points[-1].radius.items())
            slack = math.inf if math.isnan(off_by) else slack  # no slope, along which nothing is known
            slack = max(slack, SAFETY * off_by / losses[-1]) if losses[-1] > 0 else slack
            why = proven.reason or f"steps beyond {ats[known - 1]} would take too long to prove"
            env.notes.estimated.setdefault("gradient descent", f"its errors are added up, not proven: {why}")
            ranges = () if multiple is None else _ranges(losses, points)
        else:
            ranges = proven.losses
        end = end_at_the_start(done, env)
        if not end.unsure:
            errors = _loss_errors(losses, noises, done, points) if multiple is None else None
            noise, factor = output_noise(trainee), 1.0 if multiple is None else float(multiple)
            bounds = LossBounds(losses, proven.bounds, slack, noise, factor, errors)
            end = end_of_descent(done, bounds, float(run.until))
        seconds = time.perf_counter() - started
        return Trajectory(done, points, step, ranges, certified=known == len(ats), seconds=seconds, end=end)

    def moments(self, course: Trajectory, env: Environment, changing: frozenset[str], run: Run) -> StepMoments:
        """Return the judged steps as environments."""
        assert course.step is not None
        status = course.run.status
        last = (status is RunStatus.STEPS or course.resting) and not run.beyond
        return StepMoments(
            env,
            course.points,
            changing,
            course.losses or None,
            end_error=course.end_error,
            resting=course.resting,
            endless=course.resting and run.beyond,
            step=course.step,
            beyond=status is RunStatus.WELL_POSEDNESS_LOST,
            final=status is RunStatus.LOSS_FLOOR or last,
        )

    def further(
        self, claim: Claim, course: Trajectory, moments: Moments, outcomes: Mapping[str, Outcome]
    ) -> Sequence[int]:
        """Return all steps between two judged ones that are not certain; none where they are too many."""
        settled = course.end.unsure or any(outcome.truth is Truth.FALSE for outcome in outcomes.values())
        if course.resting or settled or has_several_indices(claim):
            return ()
        spans = open_intervals(claim, moments, outcomes)
        found = [k for span in spans for k in range(int(span) + 1, int(span.stop))]
        entries = sum(value.numel() for value in course.points[0].parameters.values())
        return found if len(found) <= MOST_FURTHER and entries * len(found) <= MOST_KEPT else ()

    def goes_on(self, done: TrainingRun, run: Run) -> bool:
        """Whether its steps were spent and the claim speaks of later ones: then the steps taken are a window."""
        return run.beyond and done.status is RunStatus.STEPS

    def continued(
        self, claim: Claim, instance: Instance, window: Moments
    ) -> tuple[dict[str, Outcome], TrainingRecord | None]:
        """Judge the conclusions along the gradient flow that stands for later steps."""
        assert isinstance(window, StepMoments)
        return continued(claim, instance, window)

    def number(self, run: Run) -> Formula | None:
        """Return the step size."""
        return run.step

    def gradients(self, run: Run) -> int:
        """Return how many gradients a run that is scored takes."""
        return min(run.steps, STEPS)

    def brief(self, run: Run) -> Run:
        """Return a run of a few steps, after which it ends."""
        return replace(run, steps=min(run.steps, BRIEF_STEPS), beyond=False, judged=BRIEF_JUDGED)

    def short(
        self, run: Run, model: EquilibriumModel, X: Tensor, y: Tensor, number: float | None, keep: Sequence[int]
    ) -> TrainingRun:
        """Descend for a few steps."""
        assert number is not None
        return gradient_descent(
            model,
            X,
            y,
            step=number,
            steps=min(run.steps, STEPS),
            until=float(run.until),
            snapshots=SNAPSHOTS,
            keep=keep,
            blow_up=math.inf,
        )


def _loss_errors(
    losses: Sequence[float], noises: Sequence[float], done: TrainingRun, points: Sequence[Point]
) -> list[float]:
    """Return the estimated error of each loss: that of the outputs, and what the trajectory is off along its slope."""
    stray = max(math.hypot(*point.radius.values()) for point in points)
    off = SAFETY * stray * float(done["gradient_norm"].values.max())
    return [noise + off + LOSS_ROUNDING * abs(loss) for noise, loss in zip(noises, losses, strict=True)]


def _estimated_points(
    done: TrainingRun, trainee: Trainee, known: int, off: float, check: Callable[[], None]
) -> list[Point]:
    """Return the judged steps beyond the `known` proven ones; `off` is the relative error of the step size."""
    growth = growth_of_errors(done, trainee, check)
    begun = errors_from_start(done, trainee, check)
    # A step size that is off by a share moves the trajectory by that share of its length.
    return [
        estimated_point(done, i, begun[i], stepwise=True, rounding=off, growth=growth[i])
        for i in range(known, len(done.snapshots))
    ]


def _ranges(losses: Sequence[float], points: Sequence[Point]) -> tuple[arb, ...]:
    """Return the range of the loss over every step from each judged one to the next."""
    if len(losses) <= points[-1].at:
        return ()
    parts = [losses[int(a.at) : int(b.at) + 1] for a, b in pairwise(points)]
    return tuple(arb(min(part)).union(arb(max(part))) * sc.with_radius(1.0, LOSS_ROUNDING) for part in parts)


@dataclass(frozen=True)
class LossBounds:
    """What is known of the loss at each step of a computed run of descent.

    Attributes:
        losses: As computed.
        proven: Lower and upper bounds of the exact ones, from the start on as far as they are proven.
        slack: Relative error of the others.
        noise: Error of their residuals' norm.
        factor: f where the loss is f norm(yhat - y)^2/2.
        errors: Where it is not: the error of each loss, absolute, in place of those two.
    """

    losses: Sequence[float]
    proven: Tensor
    slack: float
    noise: float
    factor: float = 1.0
    errors: Sequence[float] | None = None

    def at(self, k: int) -> tuple[float, float]:
        """Return bounds of the loss at a step."""
        if k < len(self.proven):
            low, high = self.proven[k].tolist()
            return low, high
        if self.errors is not None:
            return self.losses[k] - self.errors[k], self.losses[k] + self.errors[k]
        residual = math.sqrt(2 * self.losses[k] / self.factor)
        low, high = max(0.0, residual - self.noise), residual + self.noise
        below, above = self.factor * low * low / 2, self.factor * high * high / 2
        return below * max(0.0, 1 - self.slack), above * (1 + self.slack)


def end_of_descent(run: TrainingRun, bounds: LossBounds, until: float) -> End:
    """Return how certain it is at which step the loss is `until` times the first one, for the first time.

    Args:
        run: The run.
        bounds: What is known of its losses.
        until: The floor.
    """
    least, most = bounds.at(0)
    if most < 0:
        return KNOWN
    ended = run.steps if run.status is RunStatus.LOSS_FLOOR else None
    for k in range(1, len(bounds.losses)):
        if until == 0 and bounds.losses[k] > 0:
            continue
        low, high = bounds.at(k)
        above = low > until * most * (1 + UNTIL_ROUNDING)
        below = high <= until * least * (1 - UNTIL_ROUNDING)
        if not (below if k == ended else above):
            why = "is `until` times L[0] to within what is known of it"
            return End(f"whether the run ends at k = {k:,} is not certain: L[{k}] {why}", k)
    return KNOWN
