"""The interface of an equilibrium model: a fixed-point map, a readout, and the factors of its tangent kernel.

How a model's map depends on its parameters, said in data: what bounds on derivatives along a run rest on. The loss that
a model declares, on the predictions for one data set: its value and what it passes back.
"""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium.slopes import Activation, BallLayer
from ntk_deq.equilibrium.splitting import MonotoneLayer
from ntk_deq.errors import ArgumentError
from ntk_deq.evaluation.floats import TensorNames, tensor_value
from ntk_deq.evaluation.functions import scalar
from ntk_deq.language.declaration import ModelSignature, Role, model_signature
from ntk_deq.language.loss import PREDICTIONS, DeclaredLoss, declared_loss
from ntk_deq.systems.parameter_slopes import ParameterSlope

_COMPILER = "ntk_deq.systems.formula_model"
# Makes the classes of models that are formulas alone; it builds on this module.


def model_class(model: str | ModelSignature) -> type[EquilibriumModel]:
    """Return the torch implementation of a model: the class that it names, or one compiled from its formulas.

    Args:
        model: A declaration, or the name under which one is registered.

    Raises:
        ArgumentError: No such model, or its formulas cannot be compiled.
    """
    signature = model_signature(model) if isinstance(model, str) else model
    module, _, attribute = signature.implementation.partition(":")
    if not module:
        compiled: type[EquilibriumModel] = importlib.import_module(_COMPILER).compiled_class(signature)
        return compiled
    cls: type[EquilibriumModel] = getattr(importlib.import_module(module), attribute)
    return cls


@dataclass(frozen=True)
class SingleLayer:
    """A model of the form Z = act(factor Z P + inner(X S)), yhat = Z r, and which parameter is P, S and r.

    Both activations are piecewise linear, with slopes in [0, 1] that change at zero only.

    Attributes:
        weight: Name of P, m x m.
        source: Name of S, d x m.
        readout: Name of r, length m.
        factor: A fixed positive number, exactly this float.
        activation: act.
        inner: inner.
        transposed: Whether the parameters hold P' and S' instead.

    Example:
        >>> from ntk_deq.equilibrium.slopes import IDENTITY
        >>> SingleLayer("W", "U", "b", 1.0, IDENTITY, IDENTITY, transposed=True).names
        ('W', 'U', 'b')
    """

    weight: str
    source: str
    readout: str
    factor: float
    activation: Activation
    inner: Activation
    transposed: bool = False

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of P, S and r."""
        return self.weight, self.source, self.readout


class EquilibriumModel(ABC):
    """A network whose features Z solve Z = step(Z, X) and whose prediction is readout(Z).

    Every method that depends on parameters takes them as a mapping, so that derivatives can be taken with
    `torch.func`; left out, the model's own are used. Samples do not interact. A state has one sample a row; inputs and
    targets lie as they are declared, and `input_rows` and `target_rows` turn them.
    """

    signature: ClassVar[ModelSignature]

    @property
    def outputs(self) -> int | None:
        """How many outputs a sample has, where the predictions are a matrix; None: they are a vector."""
        return None

    @property
    def single_precision(self) -> bool:
        """Whether its maps may be evaluated in single precision, to look for a start."""
        signature = self.signature
        return not any(signature.variable(name).shape for name in signature.names(Role.HYPERPARAMETER))

    @classmethod
    @abstractmethod
    def from_variables(cls, values: Mapping[str, Tensor]) -> Self:
        """Build the model from values by variable name; names that the model does not own (X, y) are ignored."""

    @abstractmethod
    def parameters(self) -> dict[str, Tensor]:
        """Return the trainable tensors by name, in the signature's order."""

    def with_parameters(self, parameters: Mapping[str, Tensor]) -> Self:
        """Return the model with other values of these parameters, and its own ones of the rest."""
        fixed = {name: getattr(self, name) for name in self.signature.names(Role.HYPERPARAMETER)}
        return self.from_variables({**fixed, **self.parameters(), **parameters})

    @abstractmethod
    def step(
        self, Z: Float[Tensor, "N m"], X: Float[Tensor, "N d"], parameters: Mapping[str, Tensor] | None = None
    ) -> Float[Tensor, "N m"]:
        """Apply the fixed-point map once."""

    def step_at(
        self, X: Float[Tensor, "N d"], parameters: Mapping[str, Tensor] | None = None
    ) -> Callable[[Tensor], Tensor]:
        """Return the map Z -> step(Z, X); a model may work out here once what does not depend on Z."""
        return lambda Z: self.step(Z, X, parameters)

    def adjoint_step_at(
        self,
        Z: Float[Tensor, "N m"],
        X: Float[Tensor, "N d"],
        parameters: Mapping[str, Tensor] | None = None,
        output: int = 0,
    ) -> Callable[[Tensor], Tensor]:
        """Return the map V -> d yhat/dZ + (d step/dZ)' V at Z, whose fixed point is the adjoint of one output.

        This one asks automatic differentiation; a model may give its closed form.
        """
        pull = torch.func.vjp(self.step_at(X, parameters), Z)[1]
        source = self.output_slope(Z, X, parameters, output)
        return lambda V: source + pull(V)[0]

    def output_slope(
        self, Z: Float[Tensor, "N m"], X: Float[Tensor, "N d"], parameters: Mapping[str, Tensor] | None, output: int
    ) -> Float[Tensor, "N m"]:
        """Return d yhat_n/d z_n of one output, by automatic differentiation."""
        read = torch.func.vjp(lambda features: self.predictions(features, X, parameters), Z)
        unit = torch.zeros_like(read[0])
        (unit if unit.ndim == 1 else unit[:, output]).fill_(1.0)
        slope: Tensor = read[1](unit)[0]
        return slope

    def predictions(
        self, Z: Float[Tensor, "N m"], X: Float[Tensor, "N d"], parameters: Mapping[str, Tensor] | None = None
    ) -> Float[Tensor, N * k]:
        """Return the predictions that belong to the features Z of the inputs X."""
        return self.readout(Z, parameters)

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """The shape of a sample's input where it is declared so; None: it is read off the parameters."""
        return None

    def input_rows(self, X: Float[Tensor, "_ _"]) -> Float[Tensor, "N d"]:
        """Return inputs, as they are declared, with one sample a row."""
        return X

    def inputs_of(self, rows: Float[Tensor, "N d"]) -> Float[Tensor, "_ _"]:
        """Return inputs as they are declared, from one sample a row."""
        return rows

    def data(self, X: Tensor | None, y: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return inputs and targets; of a system that has none, tensors without entries.

        Raises:
            ArgumentError: The model has what is missing.
        """
        for name, value in (("X", X), ("y", y)):
            if value is None:
                raise ArgumentError(f"The system {self.signature.name} needs `{name}`. Got None.")
        assert X is not None  # as has just been seen
        assert y is not None
        return X, y

    def rows_of_state(self, state: Float[Tensor, "_ _"]) -> Float[Tensor, "N m"]:
        """Return a state, as it is declared, with one sample a row."""
        return state

    def target_rows(self, y: Float[Tensor, _ * k]) -> Float[Tensor, N * k]:
        """Return targets, as they are declared, with one sample a row."""
        return y

    def declared(self, name: str, rows: Tensor) -> Tensor:
        """Return the state or the predictions as they are declared, from one sample a row."""
        return rows

    @abstractmethod
    def readout(self, Z: Float[Tensor, "N m"], parameters: Mapping[str, Tensor] | None = None) -> Float[Tensor, " N"]:
        """Return the predictions that belong to the features Z."""

    @abstractmethod
    def initial_state(self, X: Float[Tensor, "N d"]) -> Float[Tensor, "N m"]:
        """Return the state that the iteration starts from (zeros, with the dtype and device of X)."""

    @abstractmethod
    def contraction_bound(self, parameters: Mapping[str, Tensor] | None = None) -> Float[Tensor, ""]:
        """Return a Lipschitz constant of `step` in Z in the Frobenius norm; below one, the equilibrium is unique."""

    def in_balls(self, X: Float[Tensor, "N d"]) -> BallLayer | None:
        """Return the map at the inputs X in ball arithmetic, for certified equilibria; None: the model has none.

        The parameters and X count as exact; the balls are in float64 whatever their dtype.
        """
        return None

    def single_layer(self) -> SingleLayer | None:
        """Return how the map depends on the parameters, for certified training runs; None: not of that form."""
        return None

    def monotone_layer(
        self, X: Float[Tensor, "N d"], parameters: Mapping[str, Tensor] | None = None
    ) -> MonotoneLayer | None:
        """Return the map at the inputs X as one layer act(W z + c); None: it is not seen to be one.

        Whether the layer is monotone is for its solver to find out.

        Args:
            X: Inputs.
            parameters: Values to use in place of the model's own, by name.
        """
        form = self.single_layer()
        if form is None:
            return None
        values = {**self.parameters(), **(parameters or {})}
        weight, source = (values[name] if form.transposed else values[name].mT for name in form.names[:2])
        fed = form.inner.function(self.input_rows(X) @ source.mT)
        return MonotoneLayer(form.factor * weight, fed, None if form.activation.linear else form.activation.function)

    def tangent_factors(
        self, X: Float[Tensor, "N d"], Z: Float[Tensor, "N m"], adjoint: Float[Tensor, "N m"], output: int = 0
    ) -> dict[str, tuple[ParameterSlope, ...]] | None:
        """Return the slopes of one output in each parameter, whose sum is the derivative; None: they are not known.

        Then the kernel is worked out from the adjoint (`KernelMethod.ADJOINT`).

        Args:
            X: Inputs.
            Z: Their equilibrium.
            adjoint: Row n solves v = d yhat_n/d z_n + (d step_n/d z_n)' v at the equilibrium.
            output: Which output, counted from 0.

        Raises:
            UnstructuredError: A slope is no sum of few outer products.
        """
        return None


_PROBES = 3  # products with the second derivative from which its size is estimated


class OutputLoss:
    """A loss of the predictions yhat for given targets y, and of what else its formula reads.

    A multiple f norm(yhat - y)^2/2 is computed as such; of any other, the value is that of its formula and the
    derivatives those of automatic differentiation. Predictions, and targets here, have one sample a row.

    Args:
        declared: The formula.
        sizes: Values of the size letters.
        y: Targets, one sample a row.
        turned: Turns predictions or targets the way that the formula has them.
        values: Values of the other variables that it reads; `more` in a call takes their place.
        moving: Names of the parameters and the state.

    Attributes:
        multiple: f, exactly; None: the loss is no such multiple, or is not seen to be.
        smooth: Whether it is seen to have no kinks of its own.
        beside: Names of the parameters and the state that the formula reads itself.

    Example:
        >>> from ntk_deq.language.declaration import LINEAR_IMPLICIT
        >>> y = torch.tensor([1.0, 0.0], dtype=torch.float64)
        >>> loss = OutputLoss(declared_loss(LINEAR_IMPLICIT), {"N": 2}, y)
        >>> loss.value(y + 2).item()
        4.0
    """

    def __init__(
        self,
        declared: DeclaredLoss,
        sizes: Mapping[str, int],
        y: Float[Tensor, N * k],
        turned: Callable[[Tensor], Tensor] = lambda rows: rows,
        values: Mapping[str, Tensor] | None = None,
        moving: Iterable[str] = (),
    ) -> None:
        self._declared, self._sizes, self._y, self._turned = declared, dict(sizes), y, turned
        self._values = {name: value for name, value in (values or {}).items() if name in declared.beside}
        self.beside = tuple(name for name in moving if name in declared.beside)
        self.multiple = declared.multiple(sizes)
        self.smooth = self.multiple is not None or declared.smooth
        self._factor = 1.0 if self.multiple is None else float(self.multiple)

    def value(self, predictions: Float[Tensor, N * k], more: Mapping[str, Tensor] | None = None) -> Float[Tensor, ""]:
        """Return the loss, differentiable in the predictions and in `more`.

        Args:
            predictions: One sample a row.
            more: Parameters and state, as they are declared, where the formula reads them.
        """
        if self.multiple is not None:
            half = (predictions - self._y).square().sum() / 2
            return half if self.multiple == 1 else self._factor * half
        values = {**self._values, PREDICTIONS: self._turned(predictions), self._declared.targets: self._turned(self._y)}
        values |= {name: value for name, value in (more or {}).items() if name in self._declared.beside}
        columns = {name: value.unsqueeze(-1) if value.ndim == 1 else value for name, value in values.items()}
        names = TensorNames(variables=columns, sizes=self._sizes, lets={}, formulas=None, like=self._y.new_zeros(()))
        found = tensor_value(self._declared.expr, names)
        if found.numel() != 1:
            raise ArgumentError(f"The loss {self._declared.text} must be a number. Got shape {tuple(found.shape)}.")
        return scalar(found)

    def pull(
        self,
        residual: Float[Tensor, N * k],
        out: Float[Tensor, ""],
        more: Mapping[str, Tensor] | None = None,
    ) -> Float[Tensor, N * k]:
        """Write the loss into `out`, and return dL/dyhat.

        Args:
            residual: yhat - y; what is returned may be this very tensor.
            out: Where the loss goes.
            more: As in `value`.
        """
        return self.pull_all(residual, out, more)[0]

    def pull_all(
        self,
        residual: Float[Tensor, N * k],
        out: Float[Tensor, ""],
        more: Mapping[str, Tensor] | None = None,
    ) -> tuple[Float[Tensor, N * k], dict[str, Tensor]]:
        """Do so, and return the derivatives in what the formula reads besides, by name.

        Args:
            residual: As in `pull`.
            out: As in `pull`.
            more: As in `value`.
        """
        if self.multiple is not None:
            flat = residual.reshape(-1)
            torch.dot(flat, flat, out=out).mul_(0.5 * self._factor)
            return (residual if self.multiple == 1 else self._factor * residual), {}
        with torch.enable_grad():
            predictions = (residual + self._y).requires_grad_()
            own = {name: value.detach().requires_grad_() for name, value in self._read(more).items()}
            loss = self.value(predictions, own)
            slope, *others = _derivatives(loss, [predictions, *own.values()])
        out.copy_(loss.detach())
        return slope, dict(zip(own, others, strict=True))

    def _read(self, more: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
        known = {**self._values, **(more or {})}
        return {name: known[name] for name in self.beside}

    def stiffness(self, residual: Float[Tensor, N * k], more: Mapping[str, Tensor] | None = None) -> float:
        """Return the norm of the second derivative in the predictions; NaN where the loss is not smooth.

        It is estimated but for multiples of the squares. Of a sum over samples it is the Frobenius norm, that of
        products with vectors of signs.

        Args:
            residual: yhat - y.
            more: As in `value`.
        """
        if self.multiple is not None:
            return self._factor
        if not self.smooth:
            return math.nan
        generator = torch.Generator().manual_seed(0)
        with torch.enable_grad():
            predictions = (residual.detach() + self._y).requires_grad_()
            (slope,) = _derivatives(self.value(predictions, more), [predictions], twice=True)
            found = []
            for _ in range(_PROBES):
                signs = torch.randint(0, 2, slope.shape, generator=generator, dtype=torch.float64).to(slope) * 2 - 1
                found += _derivatives((slope * signs).sum(), [predictions], twice=True)
        return max(float(torch.linalg.vector_norm(product.detach())) for product in found)


def _derivatives(value: Tensor, by: Sequence[Tensor], *, twice: bool = False) -> list[Tensor]:
    if not value.requires_grad:
        return [torch.zeros_like(one) for one in by]
    found = torch.autograd.grad(value, by, create_graph=twice, retain_graph=twice, allow_unused=True)
    return [torch.zeros_like(one) if own is None else own for one, own in zip(by, found, strict=True)]


def output_loss(model: EquilibriumModel, X: Float[Tensor, "_ _"], y: Float[Tensor, _ * k]) -> OutputLoss:
    """Return the loss that a model declares, for given targets.

    Args:
        model: The model.
        X: Inputs.
        y: Targets.

    Raises:
        ForeignLossError: The loss is no formula that training can minimise.

    Example:
        >>> from ntk_deq.systems.shipped_models import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> output_loss(LinearImplicit(W=one / 2, U=one, b=one[0]), one, one[0]).multiple
        Fraction(1, 1)
    """
    signature = model.signature
    values = dict(model.parameters())
    values |= {name: torch.as_tensor(getattr(model, name)) for name in signature.names(Role.HYPERPARAMETER)}
    for role, value in ((Role.INPUT, X), (Role.TARGET, y)):
        values |= dict.fromkeys(signature.names(role), value)
    moving = [*signature.names(Role.PARAMETER), *([signature.state] if signature.state else [])]
    return OutputLoss(
        declared_loss(signature),
        _sizes(signature, values),
        model.target_rows(y),
        lambda rows: model.declared(PREDICTIONS, rows),
        values,
        moving,
    )


def _sizes(signature: ModelSignature, values: Mapping[str, Tensor]) -> dict[str, int]:
    shapes = {variable.name: variable.shape for variable in signature.variables}
    return dict(signature.depth) | {
        letter: int(size)
        for name, value in values.items()
        for letter, size in zip(shapes.get(name, ()), value.shape, strict=False)
    }
