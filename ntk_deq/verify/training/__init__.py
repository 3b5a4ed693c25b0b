"""Claims about training runs: the run on an instance, its judged steps, and what the report needs of it.

Here: what is trained on an instance, and the steps or times at which a claim is judged. The twins are descent.py and
flow.py (flow_course.py: its times), judged.py what they share, trajectory.py a run with its distance from the exact and
its end, proven.py a window with proven bounds, continuation.py what follows it, between.py what is said apart from
judged steps, scoring.py the run in short, choose.py and sweep.py the claim's free constants, records.py the report's
data.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import torch
from flint import arb
from torch import Tensor

from ntk_deq.certified import Ball, frobenius
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.rounding import fro_up
from ntk_deq.certified.structured import densified
from ntk_deq.dynamics.field import GradientField
from ntk_deq.errors import ArgumentError
from ntk_deq.evaluation.arithmetic import add, multiply, negate, to_matrix, to_scalar
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.environment import Environment, Notes, OutsideClaimError
from ntk_deq.evaluation.equilibria import float_centre
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.declaration import ModelSignature, Role
from ntk_deq.language.parser import parse
from ntk_deq.language.run import LOSS, PATH_LENGTH
from ntk_deq.language.tree import Expr
from ntk_deq.systems.checks import check_loss
from ntk_deq.systems.declared_model import DeclaredModel
from ntk_deq.systems.model import EquilibriumModel, model_class, output_loss
from ntk_deq.systems.solve import solve_equilibrium

FEW = 12
"""Judged steps over which each of several indices ranges: `for all p, q` takes so many squared."""


@dataclass(frozen=True)
class Point:
    """The parameters at one judged step or time.

    Attributes:
        at: The step, an int, or the time, a float.
        parameters: Their values by name, as computed.
        radius: By name: Frobenius distance within which the exact trajectory is.
        path: Length of the trajectory from the start, with its error.
    """

    at: float
    parameters: Mapping[str, Tensor]
    radius: Mapping[str, float]
    path: arb


class Interval(float):
    """All steps or times from one judged one to the next; as a number it is the one where it begins.

    Attributes:
        stop: Where it ends.
    """

    stop: float

    def __new__(cls, start: float, stop: float) -> Interval:
        """Return the interval from `start` to `stop`, both included."""
        interval = super().__new__(cls, start)
        interval.stop = stop
        return interval


@dataclass
class Moments:
    """What the names of a claim mean along a training run, of which the judged steps or times are known and no others.

    Attributes:
        start: The environment of the instance itself, at step 0.
        points: The judged steps, increasing; the first one is 0.
        changing: Names that change along the run.
        losses: From each judged step to the next: a ball of all losses on the way, or None.
        end_error: Relative error of the time at which a flow ends, or of the last step where a flow stands for descent.
        resting: Whether nothing ever moves: every step or time is the start.
        endless: Whether there is a step or time after every other.
        only: An interval between two judged steps, to which every quantifier is confined, or None.
        decays: Whether the loss is a sum of exponentials in time with weights >= 0, so that its logarithm is convex.
        whole: Whether the index is a whole number, so that there is nothing between a step and the next one.
    """

    start: Environment
    points: Sequence[Point]
    changing: frozenset[str]
    losses: Sequence[arb] | None = None
    end_error: float = 0.0
    resting: bool = False
    endless: bool = False
    only: Interval | None = None
    decays: bool = False
    whole: ClassVar[bool] = False
    _known: dict[tuple[float, float], Environment] = field(default_factory=dict, init=False)

    def judged(self, indices: int) -> Sequence[float]:
        """Return the steps over which each of so many indices of a quantifier ranges."""
        if self.only is not None:
            return [self.only]
        steps = self._steps()
        if indices == 1 or len(steps) <= FEW:
            return steps
        return [steps[round(i * (len(steps) - 1) / (FEW - 1))] for i in range(FEW)]

    def index(self, step: float) -> arb:
        """Return a step index as a number; that of an interval is all of it."""
        if isinstance(step, Interval):
            return self.index(float(step)).union(self.index(step.stop))
        return self._number(step, self.end_error if step == self.points[-1].at else 0.0)

    def has(self, step: float) -> bool:
        """Whether the run is known at a step: a judged one, or one that follows from it."""
        if isinstance(step, Interval) or self._find(step) is not None:
            return True
        return self.exists(step) if self.resting else self._follows(step)

    def exists(self, step: float) -> bool:
        """Whether a step or time is one of the run, as far as that is known."""
        return 0 <= step <= (math.inf if self.endless else self._last)

    @property
    def _last(self) -> float:
        """The last step or time that there may be."""
        return self.points[-1].at

    def _steps(self) -> list[float]:
        """The steps that are judged."""
        return [point.at for point in self.points]

    def _number(self, step: float, error: float) -> arb:
        """Return a step as a number that is known to a relative error."""
        return sc.with_radius(float(step), error * step) if error else arb(step)

    def _follows(self, step: float) -> bool:
        """Whether a step that is not judged follows from one that is."""
        return False

    def environment(self, step: float) -> Environment:
        """Return the environment at a step.

        Raises:
            OutsideClaimError: The run is not known there.
        """
        if self.resting or (step == 0 and not isinstance(step, Interval)):
            self.start.cache.setdefault(PATH_LENGTH, Scalar(arb(0), 0.0))
            return self.start
        key = (float(step), step.stop if isinstance(step, Interval) else float(step))
        if key not in self._known:
            self._known[key] = self._throughout(step) if isinstance(step, Interval) else self._at(step)
        return self._known[key]

    def _find(self, step: float) -> int | None:
        place = bisect_left(self.points, step, key=lambda point: point.at)
        return place if place < len(self.points) and self.points[place].at == step else None

    def _at(self, step: float) -> Environment:
        place = self._find(step)
        return self._advanced(step) if place is None else self._environment(self.points[place], {})

    def _advanced(self, step: float) -> Environment:
        """Return the environment at a step that is not judged."""
        last = self.points[-1].at
        why = f"the run ended at {last:,}" if step > last else "the run was not looked at there"
        raise OutsideClaimError("defined", f"there is no step {step:,} to compare: {why}", certain=False)

    def _environment(self, point: Point, wider: Mapping[str, float]) -> Environment:
        radius = {
            name: sc.upper(arb(point.radius.get(name, 0.0)) + arb(wider.get(name, 0.0))) for name in point.parameters
        }
        return self._moved(placed(self.start, point.parameters, radius), Scalar(point.path, sc.upper(abs(point.path))))

    def _moved(self, env: Environment, path: Scalar) -> Environment:
        inside = replace(env, origin=self.start, moments=self)
        inside.cache[PATH_LENGTH] = path
        return inside

    def _throughout(self, interval: Interval) -> Environment:
        """The environment of all steps of an interval: the parameters stray from its start by the path at most."""
        place = self._find(float(interval))
        assert place is not None
        here, there = self.points[place], self.points[place + 1]
        stray = max(sc.upper(there.path - here.path), 0.0)
        at = replace(here, path=here.path.union(there.path))
        inside = self._environment(at, dict.fromkeys(here.parameters, stray))
        if self.losses is not None:
            loss = self.losses[place]
            inside.cache[LOSS] = Scalar(loss, sc.upper(abs(loss)))
        return inside


@dataclass
class TimeMoments(Moments):
    """Moments of a flow: each time is a float near the one that is meant, such as a horizon of 1/10."""

    def _number(self, step: float, error: float) -> arb:
        return super()._number(step, max(2.0**-52, error) if step != 0 else 0.0)


@dataclass
class StepMoments(Moments):
    """Moments of descent, where a step in balls leads from each judged step to the next one.

    Attributes:
        step: The step size.
        beyond: Whether the step after the last judged one is judged too: a run that stopped there for want of an
            equilibrium still has its parameters.
        final: Whether the run ends at the last judged step, so that there is none after it.
    """

    step: Scalar = field(kw_only=True)
    beyond: bool = False
    final: bool = False
    whole: ClassVar[bool] = True

    @property
    def _last(self) -> float:
        return self.points[-1].at + (0 if self.final else 1)

    def _steps(self) -> list[float]:
        steps = super()._steps()
        return [*steps, steps[-1] + 1] if self.beyond else steps

    def _follows(self, step: float) -> bool:
        return self._find(step - 1) is not None and self.exists(step)

    def _advanced(self, step: float) -> Environment:
        """Take one step of descent from a judged step, in balls."""
        if not self._follows(step):
            return super()._advanced(step)
        before = self.environment(step - 1)
        values, length = descended(before, list(self.points[0].parameters), self.step)
        known = before.cache[PATH_LENGTH]
        assert isinstance(known, Scalar)
        path = known.ball + length
        return self._moved(self.start.replaced(values), Scalar(path, sc.upper(abs(path))))


def loss_gradient(name: str) -> Expr:
    """Return the gradient of the loss by a parameter, which may be a member of a family.

    Args:
        name: The parameter.

    Example:
        >>> from ntk_deq.language.format import format_expr
        >>> format_expr(loss_gradient("W")), loss_gradient("W[1]").args[1].name
        ('grad(L, W)', 'W[1]')
    """
    return parse(f"grad({LOSS}, `{name}`)" if "[" in name else f"grad({LOSS}, {name})")


def descended(before: Environment, names: Sequence[str], step: Scalar) -> tuple[dict[str, Scalar | Matrix], arb]:
    """Take one step of descent in balls; return the parameters after it and how long it is.

    Args:
        before: What names mean before it.
        names: The parameters.
        step: The step size.
    """
    values: dict[str, Scalar | Matrix] = {}
    square = arb(0)
    for name in names:
        own = before.variables[name]
        move = multiply(step, evaluate(loss_gradient(name), before), before.notes)
        moved = add(own, negate(move), before.notes)
        if isinstance(own, Scalar):
            values[name], length = to_scalar(moved), to_scalar(move).ball
        else:
            values[name], length = to_matrix(moved), frobenius(to_matrix(move).ball)
        square += length * length
    return values, square.sqrt()


def placed(env: Environment, parameters: Mapping[str, Tensor], radius: Mapping[str, float]) -> Environment:
    """Return an environment with other parameters.

    Args:
        env: The environment.
        parameters: Their floats by name.
        radius: How far from them what is meant may be.
    """
    values: dict[str, Scalar | Matrix] = {}
    for name, tensor in parameters.items():
        own = env.variables[name]
        if isinstance(own, Scalar):
            number = float(tensor)
            values[name] = Scalar(sc.with_radius(number, radius[name]), abs(number))
        else:
            centre = tensor.reshape(own.ball.shape)
            values[name] = Matrix(Ball(centre, radius[name]), fro_up(centre))
    return env.replaced(values)


FLOW_TOLERANCE = 1e-9
"""Relative error of the integrator per step; a rate or a norm is not compared more finely than this."""

SOLVER_TOLERANCE = 1e-12
"""Relative residual of equilibria and adjoints: below the integrator's tolerance, above float64's rounding."""

_PREDICTIONS = "yhat"


def model_of(signature: ModelSignature, values: Mapping[str, Tensor]) -> tuple[EquilibriumModel, Tensor, Tensor]:
    """Return the model that values of its variables make, its inputs and its targets."""
    model = model_class(signature).from_variables(values)
    data = (next((values[name] for name in signature.names(role)), None) for role in (Role.INPUT, Role.TARGET))
    return model, *model.data(*data)


@dataclass(frozen=True)
class Trainee:
    """A model with its data on one instance.

    Attributes:
        model: The model at the start.
        X: Inputs.
        y: Targets.
        start_radius: By parameter: Frobenius distance from the floats within which the exact start is.
        data_radius: The same of X and of y.
        scalar_radius: By hyperparameter: how far the exact one may be from its floats, where that is not zero.
    """

    model: EquilibriumModel
    X: Tensor
    y: Tensor
    start_radius: Mapping[str, float]
    data_radius: tuple[float, float]
    scalar_radius: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, env: Environment, instance: Instance) -> Trainee:
        """Build the model of an instance on the device and with the dtype of its environment."""
        signature = env.model
        assert signature is not None
        values = {name: value.to(env.like) for name, value in instance.values.items()}
        model, X, y = model_of(signature, values)
        radius = {name: _radius(env.variables[name], values[name]) for name in signature.names()}
        start = {name: radius[name] for name in model.parameters()}
        scalars = {name: radius[name] for name in signature.names(Role.HYPERPARAMETER) if radius[name]}
        off = [next((radius[name] for name in signature.names(role)), 0.0) for role in (Role.INPUT, Role.TARGET)]
        return cls(model, X, y, start, (off[0], off[1]), scalars)

    def moved(self, apart: float, generator: torch.Generator) -> tuple[EquilibriumModel, Tensor, Tensor, float]:
        """Move all that is not known exactly in a random direction, by its radius times one factor.

        Args:
            apart: How far, over its size, what is least known relatively is moved; at least its radius.
            generator: Source of randomness.

        Returns:
            The model at the start, the inputs, the targets, and the factor, at least 1.
        """
        own = self.model.parameters()
        scalars = {name: torch.as_tensor(getattr(self.model, name)) for name in self.scalar_radius}
        values = [*own.values(), *scalars.values(), self.X, self.y]
        radii = [*(self.start_radius[name] for name in own), *self.scalar_radius.values(), *self.data_radius]
        least = torch.finfo(self.X.dtype).tiny
        sizes = [max(float(torch.linalg.vector_norm(value)), least) for value in values]
        factor = max(1.0, apart / max(radius / size for radius, size in zip(radii, sizes, strict=True)))
        *there, X, y = (v + factor * r * _direction(v, generator) for v, r in zip(values, radii, strict=True))
        return self.model.with_parameters(dict(zip([*own, *scalars], there, strict=True))), X, y, factor

    def check_declared(self, env: Environment) -> None:
        """Refuse a class that predicts something else than its declaration, by whose formulas the run is judged.

        One that is compiled from its declaration predicts what that says.

        Args:
            env: The environment of the start.

        Raises:
            ArgumentError: The predictions at the start are apart by more than both can err.
            EquilibriumError: The class has no equilibrium at the start.
        """
        signature = self.model.signature
        check_loss(signature, "Training")
        declared = signature.definitions.get(_PREDICTIONS)
        if declared is None or (isinstance(self.model, DeclaredModel) and not self.model.overridden):
            return
        asked = replace(env, notes=Notes(deadline=env.notes.deadline), cache=dict(env.cache))
        value = evaluate(parse(_PREDICTIONS), asked)
        known = densified(value.ball) if isinstance(value, Matrix) else None
        if known is None or not known.is_finite:
            return
        found = self.model.predictions(solve_equilibrium(self.model, self.X).value, self.X)
        gap = float(torch.linalg.vector_norm(found.reshape(-1) - float_centre(known).reshape(-1)))
        size = float(torch.linalg.vector_norm(found))
        if gap > known.radius + math.sqrt(torch.finfo(found.dtype).eps) * size:
            raise ArgumentError(
                f"The class {type(self.model).__name__} does not predict what the model {signature.name} declares, "
                f"{_PREDICTIONS} = {declared}: at the start they are {gap:.3g} apart."
            )

    @cached_property
    def multiple(self) -> Fraction | None:
        """The f > 0 for which the loss is f norm(yhat - y)^2/2; None: it is none, and what rests on squares is open."""
        return output_loss(self.model, self.X, self.y).multiple

    @property
    def gradients(self) -> GradientField:
        """Gradients of the loss, to the tolerance of judgements."""
        return GradientField(self.model, self.X, self.y, rtol=SOLVER_TOLERANCE)

    @property
    def exact(self) -> bool:
        """Whether start, data and hyperparameters are what their floats say."""
        return not any((*self.start_radius.values(), *self.data_radius, *self.scalar_radius.values()))


def _radius(own: Scalar | Matrix, value: Tensor) -> float:
    """Return how far the exact value of a variable may be from its floats."""
    return own.ball.radius if isinstance(own, Matrix) else sc.upper(abs(own.ball - float(value)))


def _direction(value: Tensor, generator: torch.Generator) -> Tensor:
    direction = torch.randn(value.shape, generator=generator, dtype=torch.float64)
    length = torch.linalg.vector_norm(direction)
    return (direction / length if length else direction).to(value)
