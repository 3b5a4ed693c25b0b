"""How strongly the gradient of the loss depends on the state and the adjoint that it is worked out from: estimates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.systems.losses import OutputLoss
from ntk_deq.systems.model import EquilibriumModel

_PROBES = 3  # products with vectors of signs from which the size of a derivative is estimated


@dataclass(frozen=True)
class GradientSizes:
    """Frobenius norms of derivatives, estimated as the norms of products with vectors of signs.

    Attributes:
        adjoint_by_state: Of the adjoint map in the state, the adjoint held.
        gradient_by_state: Of the gradient in the state, likewise.
        gradient_by_adjoint: Of the gradient in the adjoint.
    """

    adjoint_by_state: float
    gradient_by_state: float
    gradient_by_adjoint: float


def gradient_sizes(
    model: EquilibriumModel,
    X: Float[Tensor, "N d"],
    loss: OutputLoss,
    parameters: Mapping[str, Tensor],
    Z: Float[Tensor, "N m"],
    V: Float[Tensor, "N m"],
) -> GradientSizes:
    """Return how strongly the gradient depends on what it is worked out from.

    Args:
        model: The model.
        X: Inputs, one sample a row.
        loss: Its loss.
        parameters: Every parameter.
        Z: The equilibrium.
        V: The loss adjoint.

    Example:
        >>> from ntk_deq.systems.shipped_models import LinearImplicit
        >>> from ntk_deq.systems.losses import output_loss
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> model = LinearImplicit(W=one / 2, U=one, b=one[0])
        >>> loss = output_loss(model, one, 0 * one[0])
        >>> gradient_sizes(model, one, loss, model.parameters(), 2 * one, 4 * one)  # (V Z, V X, r Z) with r = Z b
        GradientSizes(adjoint_by_state=1.0, gradient_by_state=5.656854249492381, gradient_by_adjoint=2.23606797749979)
    """
    parameters, name = dict(parameters), model.signature.state

    def pulled(state: Tensor) -> tuple[Tensor, ...]:
        def value(state: Tensor, parameters: dict[str, Tensor]) -> Tensor:
            more = {**parameters, name: model.declared(name, state)} if name else parameters
            return loss.value(model.predictions(state, X, parameters), more)

        source, by_readout = torch.func.grad(value, argnums=(0, 1))(state, parameters)
        onward, by_step = torch.func.vjp(lambda z, p: model.step(z, X, p), state, parameters)[1](V)
        return source + onward, *(by_step[name] + by_readout[name] for name in parameters)

    def probed(signs: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        moved: tuple[Tensor, ...] = torch.func.jvp(pulled, (Z,), (signs,))[1]
        return moved, tuple(through(signs)[0].values())

    through = torch.func.vjp(lambda p: model.step(Z, X, p), parameters)[1]
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(0, 2, (_PROBES, *Z.shape), generator=generator, dtype=torch.float64).to(Z) * 2 - 1
    (adjoint, *by_state), by_adjoint = torch.func.vmap(probed)(signs)
    return GradientSizes(_largest(adjoint), _largest(*by_state), _largest(*by_adjoint))


def estimated_error(sizes: GradientSizes, dZ: float, dV: float, contraction: float) -> float:
    """Return the error of the gradient, dG = dV + norm(a) dZ/(1 - q) and norm(b) dZ + norm(c) dG.

    Symbols: a and b the derivatives in Z of the adjoint map and of the gradient, c that of the gradient in V.

    Args:
        sizes: The norms.
        dZ: Bound on the state's error.
        dV: Bound on the adjoint's, but for what the state's error does to it.
        contraction: q.

    Example:
        >>> estimated_error(GradientSizes(1.0, 2.0, 3.0), 1e-6, 0.0, 0.5)
        8e-06
    """
    dG = dV + sizes.adjoint_by_state * dZ / (1 - contraction)
    return sizes.gradient_by_state * dZ + sizes.gradient_by_adjoint * dG


def _largest(*parts: Tensor) -> float:
    """Return the largest norm of a product; each part holds one a row."""
    squares = torch.stack([part.detach().reshape(_PROBES, -1).square().sum(1) for part in parts])
    return float(squares.sum(0).max().sqrt())
