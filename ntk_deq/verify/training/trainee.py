"""What is trained on one instance, and how finely its runs are computed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import torch
from torch import Tensor

from ntk_deq.certified import scalar as sc
from ntk_deq.certified.dispatch import dense_form
from ntk_deq.errors import ArgumentError
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.environment import Environment, Notes
from ntk_deq.evaluation.equilibria import float_centre
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.declaration import Role
from ntk_deq.language.parser import parse
from ntk_deq.systems.checks import check_loss
from ntk_deq.systems.declared_model import DeclaredModel
from ntk_deq.systems.losses import output_loss
from ntk_deq.systems.model import EquilibriumModel, model_class
from ntk_deq.systems.solve import solve_equilibrium

FLOW_TOLERANCE = 1e-9
"""Relative error of the integrator per step; a rate or a norm is not compared more finely than this."""

SOLVER_TOLERANCE = 1e-12
"""Relative residual of equilibria and adjoints: below the integrator's tolerance, above float64's rounding."""

_PREDICTIONS = "yhat"


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
        model = model_class(signature).from_variables(values)
        radius = {name: _radius(env.variables[name], values[name]) for name in signature.names()}
        start = {name: radius[name] for name in model.parameters()}
        scalars = {name: radius[name] for name in signature.names(Role.HYPERPARAMETER) if radius[name]}
        data = [next(iter(signature.names(role)), None) for role in (Role.INPUT, Role.TARGET)]
        X, y = model.data(*(None if name is None else values[name] for name in data))
        known = [0.0 if name is None else radius[name] for name in data]
        return cls(model, X, y, start, (known[0], known[1]), scalars)

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
        known = dense_form(value.ball) if isinstance(value, Matrix) else None
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
