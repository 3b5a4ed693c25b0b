"""A training run as it is judged: computed in floating point, with the distance from the exact one.

The distance is estimated where nothing is proven; so is how far a run may be off since its start or its data are known
up to rounding only, by further runs. Where a run ends is known as well as its losses are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from flint import arb
from torch import Tensor

from ntk_deq.certified import scalar as sc
from ntk_deq.dynamics.field import FieldPoint, NotFiniteError, WellPosednessError
from ntk_deq.dynamics.record import RunStatus, TrainingRun
from ntk_deq.dynamics.training import gradient_descent
from ntk_deq.errors import ArgumentError, EquilibriumError
from ntk_deq.evaluation.balls import evaluate_scalar
from ntk_deq.evaluation.environment import Environment, OutsideClaimError
from ntk_deq.evaluation.quantity import Scalar
from ntk_deq.language.parser import parse
from ntk_deq.language.run import LOSS
from ntk_deq.language.tree import Formula
from ntk_deq.systems.declared_model import WholeModel
from ntk_deq.systems.model import EquilibriumModel, output_loss
from ntk_deq.verify.training import SOLVER_TOLERANCE, Point, Trainee

SAFETY = 10.0
"""Factor on estimated errors, since a verdict rests on them."""

APART = 1e-8
"""How far apart, relatively, runs start that measure the growth of errors: far above rounding."""

LARGEST_GROWTH = 1e5
"""Errors that have grown by more are taken as unknown: two runs that far apart no longer tell how they grow."""

_TWINS = 2
_FLOOR = 1e-4  # of the distance at the start; one that has shrunk below may have met its rounding

_LEAST = 1e-11  # relative to the path: the solves are to 1e-12


def again_if_interrupted(run: TrainingRun) -> None:
    """Raise the Ctrl-C that a run took for its end, since it is the judgement that is to end.

    Raises:
        KeyboardInterrupt: The run was interrupted.
    """
    if run.status is RunStatus.INTERRUPTED:
        raise KeyboardInterrupt


def descended_again(
    done: TrainingRun, model: EquilibriumModel, X: Tensor, y: Tensor, check: Callable[[], None]
) -> TrainingRun | None:
    """Take a run of descent once more, from another start or with other data, and keep the same steps.

    Args:
        done: The run.
        model: The other model at its start.
        X: Its inputs.
        y: Its targets.
        check: Called at every step; what it raises ends the run.

    Returns:
        The run, or None where it cannot begin.
    """
    assert done.step is not None
    try:
        again = gradient_descent(
            model,
            X,
            y,
            step=done.step,
            steps=max(done.steps, 1),
            until=0.0,
            snapshots=max(2, len(done.snapshots)),
            rtol=SOLVER_TOLERANCE,
            keep=[int(snapshot.at) for snapshot in done.snapshots],
            blow_up=math.inf,
            on_step=lambda k, point: check(),
        )
    except (ArgumentError, EquilibriumError, NotFiniteError, WellPosednessError):
        return None
    again_if_interrupted(again)
    return again


def growth_of_errors(done: TrainingRun, trainee: Trainee, check: Callable[[], None]) -> list[float]:
    """Return by how much errors grow up to each snapshot of descent, wherever before it they come in: measured.

    Further runs start apart, each parameter off by `APART` of its size or of its path, whichever is larger, in a random
    direction that is always the same: along a fixed pattern, what is symmetric may stay symmetric and the growth be
    missed. The growth is the largest factor by which a distance has grown from any snapshot to this one. Beyond
    `LARGEST_GROWTH` a distance would no longer be small, and where such a run does not get to, nothing is known: there
    it is infinite.

    Args:
        done: A run of gradient descent.
        trainee: What was trained.
        check: Called at every step; what it raises ends the run.
    """
    start, last = done.snapshots[0].parameters, done.snapshots[-1]
    generator = torch.Generator().manual_seed(0)
    growth = [1.0] * len(done.snapshots)
    for _ in range(_TWINS):
        shifts = {}
        for name, value in start.items():
            size = max(float(torch.linalg.vector_norm(value)), last.path[name]) * APART
            direction = torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value)
            shifts[name] = direction * (size / torch.linalg.vector_norm(direction))
        other = trainee.model.with_parameters({name: start[name] + shifts[name] for name in start})
        second = descended_again(done, other, trainee.X, trainee.y, check)
        if second is None:
            return [math.inf] * len(growth)
        growth = [max(pair) for pair in zip(growth, _growth(done, second, shifts), strict=True)]
    return [value if value <= LARGEST_GROWTH else math.inf for value in growth]


def _growth(done: TrainingRun, second: TrainingRun, shifts: Mapping[str, Tensor]) -> list[float]:
    """Return the largest growth of a distance between two runs up to each snapshot of the first one."""
    there = {snapshot.at: snapshot.parameters for snapshot in second.snapshots}
    growth = [math.inf] * len(done.snapshots)
    largest, least = 1.0, [math.inf] * (len(shifts) + 1)
    for place, snapshot in enumerate(done.snapshots):
        if snapshot.at in there:
            apart = _apart(snapshot.parameters, there[snapshot.at], shifts)
            distances = [*apart, max(apart)]
            least = [max(min(pair), _FLOOR) for pair in zip(least, distances, strict=True)]
            largest = math.inf if math.inf in distances else largest
            largest = max(largest, *(now / before for now, before in zip(distances, least, strict=True)))
            growth[place] = largest
    for place in reversed(range(len(growth) - 1)):  # a step that only one run kept: what the next one has
        growth[place] = min(growth[place], growth[place + 1]) if math.isinf(growth[place]) else growth[place]
    return growth


def _apart(a: Mapping[str, Tensor], b: Mapping[str, Tensor], shifts: Mapping[str, Tensor]) -> list[float]:
    """Return the distance of each parameter over that at the start."""
    norm = torch.linalg.vector_norm
    found = [float(norm(a[name] - b[name]) / norm(shift)) if shift.any() else 0.0 for name, shift in shifts.items()]
    return [math.inf if math.isnan(distance) else distance for distance in found]


def estimated_errors(run: TrainingRun, index: int, *, stepwise: bool, rounding: float = 0.0) -> dict[str, float]:
    """Return the estimated error of each parameter at a snapshot.

    The run estimates one for all parameters together. What rounding can account for is shared out by their sizes, the
    rest by the lengths of their paths: parameters of very different scales, such as large input weights and output
    weights that start at zero, are not mixed up. Where the run goes `stepwise`, errors add up step by step.
    """
    snapshot = run.snapshots[index]
    if run.error is None:
        return dict.fromkeys(snapshot.parameters, math.inf)
    apart = run.settings.get("error_by_parameter")  # flow estimates each parameter's by itself
    if apart is not None:
        return {name: max(apart[name], _LEAST * snapshot.path[name]) for name in snapshot.parameters}
    sizes = {name: float(torch.linalg.vector_norm(value)) for name, value in snapshot.parameters.items()}
    units = 2.0**-53 * (snapshot.at if stepwise else 1.0)
    whole = run.error * (snapshot.at / run.end if stepwise else 1.0)
    rest = max(whole - units * math.hypot(*sizes.values()), _LEAST * snapshot.path_length)
    share = rest / snapshot.path_length if snapshot.path_length > 0 else 0.0
    return {name: units * sizes[name] + (share + rounding) * snapshot.path[name] for name in snapshot.parameters}


_RUNS = 2


@dataclass(frozen=True)
class StartError:
    """What an inexact start, or inexact data, may change at one judged step or time.

    Attributes:
        parameters: By name: Frobenius distance.
        path: Length of the path.
    """

    parameters: Mapping[str, float]
    path: float


def errors_from_start(done: TrainingRun, trainee: Trainee, check: Callable[[], None]) -> list[StartError]:
    """Return these errors at each snapshot of a run of descent; at the start they are what is known of it.

    A member of `orthogonal`, say, or a draw of `sphere`, is known up to rounding. Further runs start with everything
    that is so known moved in a random direction, by its radius times one factor, so that the one moved most,
    relatively, is off by `APART` of its size, far above rounding. Their distances over that factor are the errors, with
    `SAFETY`; infinite where such a run does not get to, or has grown too far away for errors to be in proportion.

    Args:
        done: The run.
        trainee: What was trained.
        check: Called at every step; what it raises ends the runs.
    """
    start, none = StartError(trainee.start_radius, 0.0), StartError(dict.fromkeys(trainee.start_radius, 0.0), 0.0)
    if trainee.exact or len(done.snapshots) == 1:
        return [start, *([none] * (len(done.snapshots) - 1))]
    generator = torch.Generator().manual_seed(0)
    errors = [none] * len(done.snapshots)
    for _ in range(_RUNS):
        model, X, y, factor = trainee.moved(APART, generator)
        there = descended_again(done, model, X, y, check)
        errors = [
            _larger(error, found) for error, found in zip(errors, _apart_at_first(done, there, factor), strict=True)
        ]
    return [start, *errors[1:]]


def _apart_at_first(done: TrainingRun, other: TrainingRun | None, factor: float) -> list[StartError]:
    """Return the distances between two runs over the factor, with `SAFETY`, at each snapshot of the first."""
    there = {} if other is None else {snapshot.at: snapshot for snapshot in other.snapshots}
    errors = []
    for here in done.snapshots:
        names = here.parameters
        if here.at not in there:
            errors.append(StartError(dict.fromkeys(names, math.inf), math.inf))
            continue
        second = there[here.at]
        apart = {name: float(torch.linalg.vector_norm(names[name] - second.parameters[name])) for name in names}
        sizes = math.hypot(*(float(torch.linalg.vector_norm(value)) for value in names.values()), here.path_length)
        known = math.hypot(*apart.values()) <= LARGEST_GROWTH * APART * sizes
        share = SAFETY / factor if known else math.inf
        lengths = abs(here.path_length - second.path_length)
        errors.append(StartError({name: _times(share, value) for name, value in apart.items()}, _times(share, lengths)))
    return errors


def _times(share: float, value: float) -> float:
    return share if math.isinf(share) else share * value


def _larger(a: StartError, b: StartError) -> StartError:
    return StartError({n: max(a.parameters[n], b.parameters[n]) for n in a.parameters}, max(a.path, b.path))


UNTIL_ROUNDING = 1e-15
"""Relative error of a floor such as 1/10^6, which is given as a float."""

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


def output_noise(trainee: Trainee) -> float:
    """Return how far the norm of a computed residual may be off."""
    state = trainee.gradients.at(trainee.model.parameters(), 0.0)
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


LOSS_ROUNDING = 1e-9
"""Relative error of a loss; the solves are to 1e-12, the integration to 1e-9."""


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
        decays: Whether the loss is a sum of exponentials in time with weights >= 0, for certain.
    """

    run: TrainingRun
    points: tuple[Point, ...]
    step: Scalar | None = None
    losses: tuple[arb, ...] = ()
    certified: bool = True
    seconds: float = 0.0
    end: End = KNOWN
    end_error: float = 0.0
    resting: bool = False
    decays: bool = False


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


def estimated_point(
    run: TrainingRun, index: int, begun: StartError, *, stepwise: bool, rounding: float = 0.0, growth: float = 1.0
) -> Point:
    """Return a snapshot with an estimate of its distance from the exact trajectory.

    Args:
        run: The run.
        index: The number of the snapshot.
        begun: What an inexact start changes there.
        stepwise: Whether it goes by steps, in which errors add up; else by an integrator.
        rounding: Relative error of each step's length.
        growth: By how much errors have grown until then.
    """
    snapshot = run.snapshots[index]
    at = int(snapshot.at) if stepwise else float(snapshot.at)
    if index == 0:
        return Point(at, snapshot.parameters, begun.parameters, arb(0))
    factor, estimated = SAFETY * growth, estimated_errors(run, index, stepwise=stepwise, rounding=rounding)
    radius = {name: factor * error + begun.parameters.get(name, 0.0) for name, error in estimated.items()}
    total = math.hypot(*radius.values())
    path = max(total, SAFETY * (run.settings.get("error_path") or 0.0) + begun.path)
    length = sc.with_radius(snapshot.path_length, path)
    return Point(at, snapshot.parameters, radius, length)


def hulls(losses: Sequence[float]) -> tuple[arb, ...]:
    """Return the range of the loss between neighbouring points of a flow, along which it never grows."""
    return tuple(arb(a).union(arb(b)) * sc.with_radius(1.0, LOSS_ROUNDING) for a, b in pairwise(losses))


def moved_along(point: Point, stray: float) -> Point:
    """Return a point whose time may be off, so that the trajectory is further along, or less far, by `stray`.

    Example:
        >>> from flint import arb
        >>> moved_along(Point(1.0, {"b": torch.ones(1)}, {"b": 0.25}, arb(1)), 0.25).radius
        {'b': 0.5}
    """
    radius = {name: point.radius.get(name, 0.0) + stray for name in point.parameters}
    return replace(point, radius=radius, path=point.path + sc.with_radius(0.0, stray))
