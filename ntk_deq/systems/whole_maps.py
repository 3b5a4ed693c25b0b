"""The gradient of a loss that is minimised as it stands: no state, no adjoint, derivatives of a formula."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ntk_deq.equilibrium.starts import RowMap as Map
from ntk_deq.equilibrium.starts import Solved
from ntk_deq.systems.declared_model import WholeModel
from ntk_deq.systems.loss_maps import LossMaps
from ntk_deq.systems.losses import OutputLoss

_APART = 2.0**-36  # relative; far above rounding, and small enough for a difference to be a derivative
_UNITS = 64.0  # roundings, of which each moves an entry by one


class WholeMaps(LossMaps):
    """The loss of a system without samples of its own, and its gradient.

    Args:
        model: The system.
        X: Inputs, without entries where it has none.
        y: Targets, likewise.
        loss: The declared loss.
    """

    def __init__(self, model: WholeModel, X: Float[Tensor, "_ _"], y: Float[Tensor, _ * k], loss: OutputLoss) -> None:
        self._model, self._X, self._y, self.loss = model, X, y, loss

    def prepare(self, parameters: Mapping[str, Tensor]) -> None:
        """Keep the parameters."""
        self._parameters = dict(parameters)

    def step(self, Z: Float[Tensor, "N m"], out: Float[Tensor, "N m"]) -> None:
        """Do nothing: the state has no entries."""

    def step_of_rows(self, rows: Int[Tensor, " n"]) -> Map:
        """Return what does nothing."""
        return lambda Z, out: None

    def linearise(self, Z: Float[Tensor, "N m"], loss: Float[Tensor, ""]) -> Tensor:
        """Return yhat - y where both are there, and write the loss into `loss`."""
        value, self._gradients, predictions, self.slope = self._derived(self._parameters)
        loss.copy_(value)
        return predictions - self._y if predictions.shape == self._y.shape else self._y.new_zeros(0)

    def _derived(self, parameters: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor], Tensor, Tensor]:
        """Return loss, gradients, predictions and the loss' slope in them."""
        with torch.enable_grad():
            own = {name: value.detach().requires_grad_() for name, value in parameters.items()}
            predictions = self._model.predictions(self._model.initial_state(self._X), self._X, own)
            loss = self.loss.value(predictions, own)
            names = list(own)
            asked = [own[name] for name in names]
            if not loss.requires_grad:
                none = {name: torch.zeros_like(value) for name, value in parameters.items()}
                return loss.detach(), none, predictions.detach(), torch.zeros_like(predictions)
            through = [predictions] if predictions.requires_grad else []
            found = torch.autograd.grad(loss, [*asked, *through], allow_unused=True)
        slopes = [torch.zeros_like(v) if g is None else g for v, g in zip([*asked, *through], found, strict=True)]
        slope = slopes[-1] if through else torch.zeros_like(predictions)
        gradients = dict(zip(names, slopes, strict=False))
        return loss.detach(), gradients, predictions.detach(), slope.detach()

    def adjoint_step(self, V: Float[Tensor, "N m"], out: Float[Tensor, "N m"]) -> None:
        """Do nothing likewise."""

    def adjoint_step_of_rows(self, rows: Int[Tensor, " n"]) -> Map:
        """Return what does nothing."""
        return lambda V, out: None

    def gradients(self, V: Float[Tensor, "N m"]) -> dict[str, Tensor]:
        """Return the gradient of the loss in each parameter."""
        return self._gradients

    def pattern(self) -> Tensor | None:
        """Return nothing to compare where the loss is smooth; None: it may have kinks."""
        return self._y.new_zeros(0, dtype=torch.bool) if self._smooth else None

    @property
    def _smooth(self) -> bool:
        return self.loss.smooth and self._model.smooth

    def hessian(self) -> Float[Tensor, "n n"] | None:
        """Differentiate the loss twice."""
        if not self._smooth:
            return None
        shapes = {name: value.shape for name, value in self._parameters.items()}

        def loss(flat: Tensor) -> Tensor:
            parts = flat.split([shape.numel() for shape in shapes.values()])
            own = {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
            return self.loss.value(self._model.predictions(self._model.initial_state(self._X), self._X, own), own)

        here = torch.cat([value.reshape(-1) for value in self._parameters.values()])
        found: Tensor = torch.func.jacrev(torch.func.grad(loss))(here)
        return (found + found.T) / 2

    def gradient_error(self, Z: Solved, V: Solved) -> float:
        """Estimate what rounding makes of the gradient: how far it moves with parameters moved by 2^-36, in units of u.

        A derivative that happens not to move is off by 1e-13 of its size.
        """
        generator = torch.Generator().manual_seed(0)
        moved = {}
        for name, value in self._parameters.items():
            signs = torch.randint(0, 2, value.shape, generator=generator, dtype=torch.float64).to(value) * 2 - 1
            moved[name] = value * (1 + _APART * signs)
        there = self._derived(moved)[1]
        change = math.hypot(*(float((there[name] - own).norm()) for name, own in self._gradients.items()))
        size = math.hypot(*(float(own.norm()) for own in self._gradients.values()))
        eps = torch.finfo(self._y.dtype).eps
        return _UNITS * eps * change / _APART + 1e-13 * size
