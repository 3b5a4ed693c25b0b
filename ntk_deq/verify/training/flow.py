"""The twin of gradient flow: its run as it is judged, when it ends, how it is scored in short, and what shows it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, repeat
from typing import ClassVar

import torch
from flint import arb, arb_mat
from torch import Tensor

from ntk_deq.certified import scalar as sc
from ntk_deq.claims.claim import Claim
from ntk_deq.dynamics.field import GradientField
from ntk_deq.dynamics.flow.run import gradient_flow
from ntk_deq.dynamics.record import RunStatus, Snapshot, TrainingRun
from ntk_deq.evaluation.balls import evaluate, evaluate_scalar
from ntk_deq.evaluation.convex.curvature import joint_shape, loss_hessian
from ntk_deq.evaluation.convex.points import numbers_of
from ntk_deq.evaluation.environment import Environment
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Matrix, Outcome
from ntk_deq.language.parser import parse
from ntk_deq.language.run import GRADIENT_FLOW, LOSS, Run, RunKind
from ntk_deq.language.tree import Formula
from ntk_deq.systems.model import EquilibriumModel, output_loss
from ntk_deq.verify.runs import NoRunError
from ntk_deq.verify.training import FLOW_TOLERANCE, SOLVER_TOLERANCE, Point, TimeMoments, Trainee, loss_gradient
from ntk_deq.verify.training.flow_course import early_breaks, ended_at_floor, telling_times
from ntk_deq.verify.training.judged import TrainingTwin
from ntk_deq.verify.training.proven import at_rest, is_still, rests, times_at_rest
from ntk_deq.verify.training.scoring import SNAPSHOTS, STEPS
from ntk_deq.verify.training.trajectory import (
    KNOWN,
    SAFETY,
    UNTIL_ROUNDING,
    End,
    LossNoise,
    StartError,
    Trajectory,
    again_if_interrupted,
    end_at_the_start,
    estimated_point,
    hulls,
    known_to,
    moved_along,
    output_noise,
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

LARGEST_END_ERROR = 0.01
"""Relative error of a flow's last time beyond which it counts as unknown."""

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
            decays=course.decays,
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
        return Trajectory(done, points, end=end, end_error=off, resting=True)
    done = ended_at_floor(done, trainee, until=float(run.until), check=env.notes.check_time)
    end = end_at_the_start(done, env)
    if done.status is RunStatus.LOSS_FLOOR and done.end == 0 and not end.unsure:  # there is nothing but the start
        start = estimated_point(done, 0, StartError(trainee.start_radius, 0.0), stepwise=False)
        return Trajectory(done, (start,), end=end)
    proven = proven_flow(done, trainee, env, until=float(run.until), off=off if run.horizon is not None else None)
    if proven is not None:
        return replace(proven, seconds=time.perf_counter() - started, end=end)
    env.notes.estimated.setdefault("gradient flow", "the integration error is estimated from two runs")
    begun = (StartError(trainee.start_radius, 0.0), *repeat(_NO_ERROR, len(done.snapshots) - 1))
    points = tuple(estimated_point(done, i, begun[i], stepwise=False) for i in range(len(done.snapshots)))
    end_error = 0.0
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


def end_of_flow(run: TrainingRun, trainee: Trainee, last: Point, until: float) -> tuple[Point, float, End]:
    """Return the last point of a flow, the relative error of its time, and how certain the end is.

    The loss meets its floor where the trajectory says so, not the computed one. By its error there, the sum of each
    parameter's error times the gradient in it, and by what it is off the floor, the end comes earlier or later. Of the
    trajectory's distance there are two then, for which the factor on estimated errors has room.

    Args:
        run: A flow that ended at its loss floor.
        trainee: What was trained.
        last: Its end, with the distance from the exact trajectory.
        until: The floor.
    """
    here = trainee.model.with_parameters(last.parameters)
    point = GradientField(here, trainee.X, trainee.y, rtol=SOLVER_TOLERANCE).at(last.parameters, 0.0)
    slopes = {name: float(torch.linalg.vector_norm(gradient)) for name, gradient in point.gradients.items()}
    speed = math.hypot(*slopes.values())
    if speed > 0 and run.loss > 0:
        ratio, multiple = run.loss / run.snapshots[0].loss, trainee.multiple
        if multiple is None:
            noise = 2 * LossNoise(trainee).at(point) / run.loss
        else:
            noise = 4 * output_noise(trainee) / math.sqrt(2 * run.loss / float(multiple))
        share = abs(math.log(ratio / until)) + noise
        off = share * run.loss / speed
        late = (sum(slope * last.radius.get(name, 0.0) for name, slope in slopes.items()) / speed + off) / speed
    else:
        off = late = math.inf
    error = late / last.at if last.at > 0 else math.inf
    if error <= LARGEST_END_ERROR:
        return moved_along(last, off), max(error, 2.0**-52), KNOWN
    known = f"it was found to {error:.1g} of it" if math.isfinite(error) else "it was not found"
    before = run.snapshots[-2].at if len(run.snapshots) > 1 else 0.0
    return last, 0.0, End(f"when the flow is at `until` = {until:g} times L[0] is not certain: {known}", before)


MOST_ENTRIES = 48
"""Entries of all parameters together, at most, for a flow to be proven."""

_PARTS = 8  # of the time between two judged ones, for the length of the path
_LOOSEST = 1e-3  # relative; a last time that is not known as well as this is left to the estimate
_DOUBLE = torch.float64


class AffineFlow:
    """The flow theta' = -(g + H (theta - theta(0))) of a loss whose gradient is affine, in balls.

    d = theta - theta(0) and the velocity -v have the closed forms d(t) = -(integral of exp(-s H) over 0..t) g and
    v(t) = exp(-t H) g. H is symmetric, so that norm(v)^2 is a sum of exponentials in t with weights >= 0: its logarithm
    is convex, and between two times the norm is at most what lies between those there on a logarithmic scale.

    Args:
        gradient: g, a column.
        hessian: H.
        loss: At the start.
    """

    def __init__(self, gradient: arb_mat, hessian: arb_mat, loss: arb) -> None:
        self.size, self._gradient, self._hessian, self._loss = gradient.nrows(), gradient, hessian, loss

    def after(self, time: arb, velocity: arb_mat | None = None) -> tuple[arb_mat, arb_mat]:
        """Return how far the flow moves in a time, and v there, from the start or from where v is as given."""
        n, start = self.size, self._gradient if velocity is None else velocity
        rows = [[*(-self._hessian[i, j] for j in range(n)), -start[i, 0]] for i in range(n)]
        grown = (arb_mat([*rows, [0] * (n + 1)]) * time).exp()
        powers = arb_mat(n, n, [grown[i, j] for i in range(n) for j in range(n)])
        return arb_mat(n, 1, [grown[i, n] for i in range(n)]), powers * start

    def loss(self, moved: arb_mat) -> arb:
        """Return the loss at a distance from the start."""
        linear = (self._gradient.transpose() * moved)[0, 0]
        return self._loss + linear + (moved.transpose() * self._hessian * moved)[0, 0] / 2

    def length(self, velocity: arb_mat, time: arb) -> arb:
        """Return a ball of the length of the path from where v is as given, in a time."""
        total, part = arb(0), time / _PARTS
        for _ in range(_PARTS):
            moved, after = self.after(part, velocity)
            least, most = _norm(moved), _mean_speed(_norm(velocity), _norm(after)) * part
            total, velocity = total + least.union(most), after
        return total


def _norm(column: arb_mat) -> arb:
    square = sum((entry * entry for entry in column.entries()), arb(0))
    return arb(max(sc.lower(square), 0.0)).sqrt().union(arb(sc.upper(square)).sqrt())


def _mean_speed(first: arb, last: arb) -> arb:
    """Return a bound of the mean of a log-convex function between two values."""
    high, low = arb(max(sc.upper(first), sc.upper(last))), arb(min(sc.upper(first), sc.upper(last)))
    if not (low > 0 and high / low > 1 + 2.0**-20):
        return high
    return (high - low) / (high / low).log()


def proven_flow(
    done: TrainingRun, trainee: Trainee, env: Environment, *, until: float, off: float | None
) -> Trajectory | None:
    """Return a flow at its judged times with proven radii, where the loss is quadratic in all parameters together.

    Args:
        done: The flow as integrated; what is taken from it are its times.
        trainee: What is trained.
        env: The environment of the instance.
        until: The loss over the first one at which it ends.
        off: Relative error of a horizon that the claim gives; None: it gives none.

    Returns:
        The trajectory; None where the loss is not seen to be quadratic, or the end is not known well enough.
    """
    names, times = list(trainee.model.parameters()), [float(snapshot.at) for snapshot in done.snapshots]
    if env.like.dtype != _DOUBLE or env.like.is_cuda or env.model is None or len(times) < 2:
        return None
    start = [number for name in names for number in numbers_of(env.variables[name])]
    if len(start) > MOST_ENTRIES:
        return None
    shape = joint_shape(env, LOSS, names)
    if shape is None or shape.degree not in (0, 1, 2):
        return None
    hessian = loss_hessian(env, LOSS, names)
    if isinstance(hessian, str):
        return None
    gradient = list[arb]()
    for name in names:
        slope = evaluate(loss_gradient(name), env)
        assert not isinstance(slope, Outcome)
        gradient += numbers_of(slope)
    flow = AffineFlow(
        arb_mat(len(start), 1, gradient),
        arb_mat(len(start), len(start), numbers_of(Matrix(hessian, 0.0))),
        evaluate_scalar(parse(LOSS), env).ball,
    )
    last = _end(flow, done, until) if done.status is RunStatus.LOSS_FLOOR else off or 0.0
    if last is None:
        return None
    points = [Point(0.0, done.snapshots[0].parameters, trainee.start_radius, arb(0))]
    losses = [flow.loss(arb_mat(len(start), 1))]
    velocity, path = arb_mat(len(start), 1, gradient), arb(0)
    for (before, now), snapshot in zip(pairwise(times), done.snapshots[1:], strict=True):
        env.notes.check_time()
        path += flow.length(velocity, arb(now) - arb(before))
        moved, velocity = flow.after(arb(now))
        points.append(_point(snapshot, names, [a + b for a, b in zip(start, moved.entries(), strict=True)], path))
        losses.append(flow.loss(moved))
    if last:
        early, late = (flow.after(arb(times[-1]) * (1 + arb(sign * last))) for sign in (-1, 1))
        if not times[-2] < arb(times[-1]) * (1 - arb(last)):
            return None
        stray = max(sc.upper(_norm(early[1])), sc.upper(_norm(late[1]))) * arb(times[-1]) * arb(last)
        points[-1] = moved_along(points[-1], sc.upper(stray))
        losses[-1] = flow.loss(late[0])
    if not all(point.path.is_finite() and math.isfinite(sum(point.radius.values())) for point in points):
        return None
    ranges = tuple(a.union(b) for a, b in pairwise(losses))
    decays = shape.convex and shape.rises
    return Trajectory(done, tuple(points), losses=ranges, end_error=last, decays=decays)


def _end(flow: AffineFlow, done: TrainingRun, until: float) -> float | None:
    """Return how far off, relatively, the time may be at which the loss is at its floor, which it meets once."""
    time, start = arb(float(done.snapshots[-1].at)), flow.loss(arb_mat(flow.size, 1))
    error = 2.0**-52
    while error <= _LOOSEST:
        early, late = (flow.loss(flow.after(time * (1 + arb(sign * error)))[0]) for sign in (-1, 1))
        if early > until * (1 + UNTIL_ROUNDING) * start and late < until * (1 - UNTIL_ROUNDING) * start:
            return error
        error *= 8
    return None


def _point(snapshot: Snapshot, names: Sequence[str], numbers: Sequence[arb], path: arb) -> Point:
    """Return a judged time; the parameters are the floats next to the balls' centres."""
    values, radii, place = dict[str, Tensor](), dict[str, float](), 0
    for name in names:
        like = snapshot.parameters[name]
        own = numbers[place : place + like.numel()]
        place += like.numel()
        floats = [float(number.mid()) for number in own]
        values[name] = torch.tensor(floats, dtype=like.dtype).reshape(like.shape)
        radii[name] = sc.upper(_norm(arb_mat(len(own), 1, [n - arb(f) for n, f in zip(own, floats, strict=True)])))
    return Point(float(snapshot.at), values, radii, path)
