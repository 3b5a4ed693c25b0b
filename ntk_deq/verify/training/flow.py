"""The twin of gradient flow: its run as it is judged, how it is scored in short, and what shows it in brief."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import repeat
from typing import ClassVar

import torch
from torch import Tensor

from ntk_deq.claims.claim import Claim
from ntk_deq.dynamics.field import GradientField
from ntk_deq.dynamics.flow.run import gradient_flow
from ntk_deq.dynamics.record import RunStatus, TrainingRun
from ntk_deq.evaluation.environment import Environment
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Outcome
from ntk_deq.language.run import GRADIENT_FLOW, Run, RunKind
from ntk_deq.language.tree import Formula
from ntk_deq.systems.model import EquilibriumModel, output_loss
from ntk_deq.verify.runs import NoRunError
from ntk_deq.verify.training import FLOW_TOLERANCE, SOLVER_TOLERANCE, TimeMoments, Trainee
from ntk_deq.verify.training.ends import end_at_the_start, end_of_flow, moved_along
from ntk_deq.verify.training.flow_course import early_breaks, ended_at_floor, telling_times
from ntk_deq.verify.training.judged import TrainingTwin
from ntk_deq.verify.training.proven import at_rest, is_still, rests, times_at_rest
from ntk_deq.verify.training.scoring import SNAPSHOTS, STEPS
from ntk_deq.verify.training.trajectory import (
    SAFETY,
    StartError,
    Trajectory,
    again_if_interrupted,
    estimated_point,
    hulls,
    known_to,
    positive,
)

LARGEST_HORIZON_ERROR = 1e-8
"""Relative radius of a horizon beyond which it is not known which times there are."""

NEARBY = 1e-12
"""How far off, relatively, the second integration of a flow starts, or has its data, where these are known up to
rounding: so far above rounding that the flow's estimated error bounds what they change, so far below the integrator's
tolerance that it adds nothing to it, as long as the flow brings trajectories apart by less than a thousand times."""

EARLY = (4, 10, 17)
"""Times of a run that is scored, as powers 2^-k of the inverse rate at the start, at which it is compared besides."""

TOLERANCE = 1e-5
"""Relative error of the integrator there: a verdict comes from another run."""

GRADIENTS = 250
"""Gradients that it takes there, about."""

BRIEF_FALL = Fraction(1, 2)
"""The loss over the first one at which a brief run ends."""

BRIEF_JUDGED = 12
"""Times of it that are judged, besides telling ones."""

_NO_ERROR = StartError({}, 0.0)


class FlowTwin(TrainingTwin):
    """The twin of `gradient-flow`."""

    kind: ClassVar[RunKind] = GRADIENT_FLOW
    together: ClassVar[bool] = False
    soon: ClassVar[Fraction] = Fraction(1, 2**20)

    def trajectory(self, run: Run, trainee: Trainee, env: Environment, keep: Sequence[int]) -> Trajectory:
        """Integrate the flow, and judge it at telling times."""
        return flow(run, trainee, env)

    def moments(self, course: Trajectory, env: Environment, changing: frozenset[str], run: Run) -> TimeMoments:
        """Return the judged times as environments."""
        return TimeMoments(
            env,
            course.points,
            changing,
            course.losses or None,
            end_error=course.end_error,
            resting=course.resting,
            endless=course.resting and run.horizon is None,
        )

    def given_up(self, done: TrainingRun, run: Run) -> bool:
        """Whether the budget of steps or of time ended it, and neither the loss floor nor the claim's horizon."""
        return done.status is RunStatus.STEPS or (done.status is RunStatus.HORIZON and run.horizon is None)

    def early(
        self, claim: Claim, env: Environment, instance: Instance, outcomes: Mapping[str, Outcome]
    ) -> tuple[dict[str, Outcome], dict[str, str]]:
        """Return what the first instants break for certain."""
        return early_breaks(claim, env, instance, outcomes)

    def number(self, run: Run) -> Formula | None:
        """Return the horizon, if there is one."""
        return run.horizon

    def gradients(self, run: Run) -> int:
        """Return how many gradients a run that is scored takes."""
        return GRADIENTS

    def brief(self, run: Run) -> Run:
        """Return a run that ends when its loss has fallen by half."""
        return replace(run, until=max(run.until, BRIEF_FALL), judged=BRIEF_JUDGED)

    def short(
        self, run: Run, model: EquilibriumModel, X: Tensor, y: Tensor, number: float | None, keep: Sequence[int]
    ) -> TrainingRun:
        """Integrate coarsely, for a few steps."""
        start = GradientField(model, X, y).at(model.parameters(), 0.0)
        speed = math.hypot(*(float(torch.linalg.vector_norm(g)) for g in start.gradients.values()))
        scale = abs(float(start.loss)) / speed / speed if speed > 0 else 0.0
        times = [time for time in (math.ldexp(scale, -k) for k in EARLY) if 0 < time < math.inf]
        return gradient_flow(
            model,
            X,
            y,
            horizon=number,
            until=float(run.until),
            tolerance=TOLERANCE,
            steps=min(run.steps, STEPS),
            snapshots=SNAPSHOTS,
            times=torch.tensor(times, dtype=torch.float64) if times else None,
            estimate_error=False,
        )


def flow(run: Run, trainee: Trainee, env: Environment, *, times: Sequence[float] = ()) -> Trajectory:
    """Integrate gradient flow; the loss never grows along it, since dL/dt = -norm(grad L)^2.

    Args:
        run: What the claim says of it.
        trainee: The model with its data.
        env: The environment of the instance.
        times: Times to judge besides those that are judged anyway.

    Raises:
        NoRunError: The loss has kinks of its own, or whether its gradient is zero at the start is not certain.
    """
    started = time.perf_counter()
    if not output_loss(trainee.model, trainee.X, trainee.y).smooth:
        raise NoRunError("the loss has kinks of its own, past which no flow is followed with a known error")
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
        done, points = at_rest(done, trainee, times_at_rest(horizon), done.steps)
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
    points = tuple(estimated_point(done, i, begun[i], stepwise=False) for i in range(len(done.snapshots)))
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
