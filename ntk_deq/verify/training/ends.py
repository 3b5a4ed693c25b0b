"""At which step or time a training run ends, and how certain that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ntk_deq.certified import scalar as sc
from ntk_deq.dynamics.field import FieldPoint, GradientField
from ntk_deq.dynamics.record import RunStatus, TrainingRun
from ntk_deq.evaluation.balls import evaluate_scalar
from ntk_deq.evaluation.environment import Environment
from ntk_deq.language.parser import parse
from ntk_deq.language.run import LOSS
from ntk_deq.systems.declared_model import WholeModel
from ntk_deq.systems.model import output_loss
from ntk_deq.verify.training import SOLVER_TOLERANCE, Point, Trainee

LARGEST_END_ERROR = 0.01
"""Relative error of a flow's last time beyond which it counts as unknown."""

_UNTIL_ROUNDING = 1e-15  # a floor such as 1/10^6 is given as a float
_UNITS = 256.0  # roundings of a loss, of what its terms are of the size of
_OUTPUTS = 10.0  # errors of outputs, in units of the solver's tolerance times their size


@dataclass(frozen=True)
class End:
    """How certain the end of a run is.

    Attributes:
        unsure: Why it is not certain at which step or time the run ends, or an empty text.
        sure_to: The last step or time that is certain to exist.
    """

    unsure: str = ""
    sure_to: float = math.inf


KNOWN = End()
"""The end of a run that is certain."""


def end_at_the_start(run: TrainingRun, env: Environment) -> End:
    """Return how certain it is that there is a step after the start: there is none where the loss is zero.

    Where it is negative, as a loss that is no square may be, the run has no floor at all.

    Args:
        run: The run.
        env: The environment of the instance.
    """
    loss = evaluate_scalar(parse(LOSS), env).ball
    ended = run.status is RunStatus.LOSS_FLOOR and run.end == 0
    if loss == 0 if ended else loss > 0 or loss < 0:
        return KNOWN
    return End("whether the loss is zero at the start, where the run would end, is not certain", 0)


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


def output_noise(trainee: Trainee) -> float:
    """Return how far the norm of a computed residual may be off."""
    with torch.no_grad():
        state = GradientField(trainee.model, trainee.X, trainee.y, rtol=SOLVER_TOLERANCE).at(
            trainee.model.parameters(), 0.0
        )
    finfo = torch.finfo(trainee.X.dtype)
    size = 2 * float(trainee.y.norm()) + float(state.residual.norm())
    return _OUTPUTS * max(SOLVER_TOLERANCE, 32 * finfo.eps) * size + finfo.tiny**0.5


class LossNoise:
    """How far a computed loss that is no multiple of squares may be off, absolute.

    What the outputs are off counts by the loss' slope in them. What it reads of the parameters themselves is rounded
    as they are: each counts with its gradient.

    Args:
        trainee: What is trained.
    """

    def __init__(self, trainee: Trainee) -> None:
        self._outputs, self._trainee = output_noise(trainee), trainee
        declared = output_loss(trainee.model, trainee.X, trainee.y)
        self._reads = bool(declared.beside) or isinstance(trainee.model, WholeModel)

    def at(self, point: FieldPoint) -> float:
        """Return it at a point.

        Args:
            point: Where.
        """
        known = 0.0 if point.slope is None else self._outputs * float(torch.linalg.vector_norm(point.slope))
        if not self._reads:
            return known
        own = self._trainee.model.parameters()
        moved = sum(float(point.gradients[name].norm()) * float(value.norm()) for name, value in own.items())
        units = _UNITS * torch.finfo(self._trainee.X.dtype).eps
        return known + units * (abs(point.loss_value) + moved)


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
        above = low > until * most * (1 + _UNTIL_ROUNDING)
        below = high <= until * least * (1 - _UNTIL_ROUNDING)
        if not (below if k == ended else above):
            why = "is `until` times L[0] to within what is known of it"
            return End(f"whether the run ends at k = {k:,} is not certain: L[{k}] {why}", k)
    return KNOWN


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
    return last, 0.0, End(f"when the flow is at `until` = {until:g} times L[0] is not certain: {known}", _before(run))


def _before(run: TrainingRun) -> float:
    return run.snapshots[-2].at if len(run.snapshots) > 1 else 0.0


def moved_along(point: Point, stray: float) -> Point:
    """Return a point whose time may be off, so that the trajectory is further along, or less far, by `stray`.

    Example:
        >>> from flint import arb
        >>> moved_along(Point(1.0, {"b": torch.ones(1)}, {"b": 0.25}, arb(1)), 0.25).radius
        {'b': 0.5}
    """
    radius = {name: point.radius.get(name, 0.0) + stray for name in point.parameters}
    return replace(point, radius=radius, path=point.path + sc.with_radius(0.0, stray))
