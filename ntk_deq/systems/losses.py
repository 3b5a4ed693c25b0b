"""The loss that a model declares, on the predictions for one data set: its value and what it passes back."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.errors import ArgumentError
from ntk_deq.evaluation.floats import TensorNames, tensor_value
from ntk_deq.evaluation.functions.tensors import scalar
from ntk_deq.language.declaration import ModelSignature, Role
from ntk_deq.language.loss import PREDICTIONS, DeclaredLoss, declared_loss
from ntk_deq.systems.model import EquilibriumModel

_PROBES = 3  # products with the second derivative from which its size is estimated


class OutputLoss:
    """A loss of the predictions yhat for given targets y.

    A multiple f norm(yhat - y)^2/2 is computed as such; of any other, the value is that of its formula and the
    derivatives those of automatic differentiation.

    Args:
        declared: The formula.
        sizes: Values of the size letters.
        y: Targets.

    Attributes:
        multiple: f, exactly; None: the loss is no such multiple, or is not seen to be.
        smooth: Whether it is seen to have no kinks of its own.

    Example:
        >>> from ntk_deq.language.library import LINEAR_IMPLICIT
        >>> y = torch.tensor([1.0, 0.0], dtype=torch.float64)
        >>> loss = OutputLoss(declared_loss(LINEAR_IMPLICIT), {"N": 2}, y)
        >>> loss.value(y + 2).item()
        4.0
    """

    def __init__(self, declared: DeclaredLoss, sizes: Mapping[str, int], y: Float[Tensor, " N"]) -> None:
        self._declared, self._sizes, self._y = declared, dict(sizes), y
        self.multiple = declared.multiple(sizes)
        self.smooth = self.multiple is not None or declared.smooth
        self._factor = 1.0 if self.multiple is None else float(self.multiple)

    def value(self, predictions: Float[Tensor, " N"]) -> Float[Tensor, ""]:
        """Return the loss, differentiable in the predictions."""
        if self.multiple is not None:
            half = (predictions - self._y).square().sum() / 2
            return half if self.multiple == 1 else self._factor * half
        names = TensorNames(
            variables={PREDICTIONS: predictions.unsqueeze(-1), self._declared.targets: self._y.unsqueeze(-1)},
            sizes=self._sizes,
            lets={},
            formulas=None,
            like=self._y,
        )
        found = tensor_value(self._declared.expr, names)
        if found.numel() != 1:
            raise ArgumentError(f"The loss {self._declared.text} must be a number. Got shape {tuple(found.shape)}.")
        return scalar(found)

    def pull(self, residual: Float[Tensor, " N"], out: Float[Tensor, ""]) -> Float[Tensor, " N"]:
        """Write the loss into `out`, and return dL/dyhat.

        Args:
            residual: yhat - y; what is returned may be this very tensor.
            out: Where the loss goes.
        """
        if self.multiple is not None:
            torch.dot(residual, residual, out=out).mul_(0.5 * self._factor)
            return residual if self.multiple == 1 else self._factor * residual
        with torch.enable_grad():
            predictions = (residual + self._y).requires_grad_()
            loss = self.value(predictions)
            slope = _derivative(loss, predictions)
        out.copy_(loss.detach())
        return slope

    def stiffness(self, residual: Float[Tensor, " N"]) -> float:
        """Return the norm of the second derivative in the predictions; NaN where the loss is not smooth.

        It is estimated but for multiples of the squares. Of a sum over samples it is the Frobenius norm, that of
        products with vectors of signs.
        """
        if self.multiple is not None:
            return self._factor
        if not self.smooth:
            return math.nan
        generator = torch.Generator().manual_seed(0)
        with torch.enable_grad():
            predictions = (residual.detach() + self._y).requires_grad_()
            slope = _derivative(self.value(predictions), predictions, twice=True)
            found = []
            for _ in range(_PROBES):
                signs = torch.randint(0, 2, slope.shape, generator=generator, dtype=torch.float64).to(slope) * 2 - 1
                found.append(_derivative((slope * signs).sum(), predictions, twice=True))
        return max(float(torch.linalg.vector_norm(product.detach())) for product in found)


def _derivative(value: Tensor, by: Tensor, *, twice: bool = False) -> Tensor:
    if not value.requires_grad:
        return torch.zeros_like(by)
    (found,) = torch.autograd.grad(value, by, create_graph=twice, retain_graph=twice, allow_unused=True)
    return torch.zeros_like(by) if found is None else found


def output_loss(model: EquilibriumModel, X: Float[Tensor, "N d"], y: Float[Tensor, " N"]) -> OutputLoss:
    """Return the loss that a model declares, for given targets.

    Args:
        model: The model.
        X: Inputs, one sample a row.
        y: Targets.

    Raises:
        ForeignLossError: The loss depends on more than predictions, targets and sizes.

    Example:
        >>> from ntk_deq.systems.linear_implicit import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> output_loss(LinearImplicit(W=one / 2, U=one, b=one[0]), one, one[0]).multiple
        Fraction(1, 1)
    """
    signature = model.signature
    values = dict(model.parameters())
    for role, value in ((Role.INPUT, X), (Role.TARGET, y)):
        values |= dict.fromkeys(signature.names(role), value)
    return OutputLoss(declared_loss(signature), _sizes(signature, values), y)


def _sizes(signature: ModelSignature, values: Mapping[str, Tensor]) -> dict[str, int]:
    shapes = {variable.name: variable.shape for variable in signature.variables}
    return {
        letter: int(size)
        for name, value in values.items()
        for letter, size in zip(shapes.get(name, ()), value.shape, strict=False)
    }
