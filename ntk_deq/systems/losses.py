"""The loss that a model declares, on the predictions for one data set: its value and what it passes back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.errors import ArgumentError
from ntk_deq.evaluation.floats import TensorNames, tensor_value
from ntk_deq.evaluation.functions import scalar
from ntk_deq.language.declaration import ModelSignature, Role
from ntk_deq.language.loss import PREDICTIONS, DeclaredLoss, declared_loss
from ntk_deq.systems.model import EquilibriumModel

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
