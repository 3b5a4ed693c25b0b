"""What is trained on one instance, and how finely its runs are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ntk_deq.falsify.instance import Instance
from ntk_deq.models.base import EquilibriumModel
from ntk_deq.models.registry import model_class
from ntk_deq.models.signature import Role
from ntk_deq.verify.environment import Environment
from ntk_deq.verify.quantity import Matrix

FLOW_TOLERANCE = 1e-9
"""Relative error of the integrator per step; a rate or a norm is not compared more finely than this."""

SOLVER_TOLERANCE = 1e-12
"""Relative residual of equilibria and adjoints: below the integrator's tolerance, above float64's rounding."""


@dataclass(frozen=True)
class Trainee:
    """A model with its data on one instance.

    Attributes:
        model: The model at the start.
        X: Inputs.
        y: Targets.
        start_radius: By parameter: Frobenius distance from the floats within which the exact start is.
        data_radius: The same of X and of y.
    """

    model: EquilibriumModel
    X: Tensor
    y: Tensor
    start_radius: Mapping[str, float]
    data_radius: tuple[float, float]

    @classmethod
    def of(cls, env: Environment, instance: Instance) -> Trainee:
        """Build the model of an instance on the device and with the dtype of its environment."""
        signature = env.model
        assert signature is not None
        values = {name: value.to(env.like) for name, value in instance.values.items()}
        inputs, targets = (signature.names(role)[0] for role in (Role.INPUT, Role.TARGET))
        model = model_class(signature.name).from_variables(values)
        radius = {name: own.ball.radius for name, own in env.variables.items() if isinstance(own, Matrix)}
        start = {name: radius[name] for name in model.parameters()}
        return cls(model, values[inputs], values[targets], start, (radius[inputs], radius[targets]))

    @property
    def exact(self) -> bool:
        """Whether start and data are what their floats say."""
        return not any((*self.start_radius.values(), *self.data_radius))
