"""How far predictions and loss gradients may be from the exact ones, from the residuals that the solves leave.

With q < 1 a Lipschitz constant of the map, a state whose residual is r lies within r/(1 - q) of the equilibrium. What
rounding does to the residual itself is not in these bounds, nor what a unit at its kink would add to a gradient.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium.result import Equilibrium
from ntk_deq.systems.gradient_sizes import estimated_error, gradient_sizes
from ntk_deq.systems.losses import OutputLoss
from ntk_deq.systems.model import EquilibriumModel


class AccuracyWarning(UserWarning):
    """A result may be off by more than half the digits of its precision, or than what its tolerance asks for."""


@dataclass(frozen=True, eq=False)
class PredictionError:
    """What is known of the predictions at an equilibrium as it was solved.

    Attributes:
        bound: Bound on the error of each prediction; inf where none is known. Up to first order where the readout is
            not linear.
        size: Euclidean norm of the terms that each prediction is the sum of: its size, had nothing cancelled.
    """

    bound: Float[Tensor, " N"]
    size: Float[Tensor, " N"]


def prediction_error(
    model: EquilibriumModel, X: Tensor, found: Equilibrium, values: Mapping[str, Tensor]
) -> PredictionError:
    """Return bounds on the errors of the predictions at an equilibrium.

    Symbols: g the readout's gradient in z, e the bound on z's error; the bound is norm(g) e.

    Args:
        model: The model.
        X: Inputs.
        found: Their equilibrium.
        values: The parameters.

    Example:
        >>> from ntk_deq.systems import solve_equilibrium
        >>> from ntk_deq.systems.shipped_models import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> model = LinearImplicit(W=one / 2, U=one, b=3 * one[0])
        >>> found = solve_equilibrium(model, one)
        >>> known = prediction_error(model, one, found, model.parameters())
        >>> abs(model.readout(found.value) - 6).item() <= known.bound.item() < 1e-12
        True
    """
    slopes = torch.stack([model.output_slope(found.value, X, values, k) for k in range(model.outputs or 1)])
    weight, errors = torch.linalg.vector_norm(slopes, dim=(0, 2)), found.error_bound
    reach = torch.full_like(weight, math.inf) if errors is None else errors
    # Nothing of the state is read: then its error, known or not, does not matter.
    bound = torch.where(weight == 0, 0.0, weight * reach)
    return PredictionError(bound, torch.linalg.vector_norm(slopes * found.value, dim=(0, 2)))


def gradient_error(
    model: EquilibriumModel,
    X: Tensor,
    slope: Tensor,
    state: Equilibrium,
    adjoint: Equilibrium,
    values: Mapping[str, Tensor],
    *,
    stiffness: float = 1.0,
    loss: OutputLoss | None = None,
) -> float:
    """Return a bound on the Frobenius error of the gradient of the loss in all parameters; NaN: not known.

    Of a model that does not say its form (`layer_form`), an estimate (`gradient_sizes`), where the loss is given and
    has no kinks.

    With dZ and dV the errors of state and loss adjoint, g = dL/dyhat, h the norm of the second derivative in yhat and c
    the factor of Z = act(c Z P + inner(X S)):

        dg = h norm(b) dZ,  dG = dV + norm(b) dg/(1 - q),
        c (norm(Z) dG + norm(V) dZ) in P,  norm(X) dG in S,  norm(Z) dg + norm(g) dZ in b

    Args:
        model: The model; known is what a `layer_form` tells.
        X: Inputs.
        slope: g; yhat - y where the loss is half its square.
        state: The equilibrium.
        adjoint: The loss adjoint V = g b' + (d step/dZ)'V.
        values: The parameters.
        stiffness: h.
        loss: The loss.
    """
    form, q = model.layer_form(), state.contraction
    if q is None or state.error_bound is None or adjoint.error_bound is None:
        return math.nan if form is None or q is None else math.inf
    if not q < 1:
        return math.inf
    if form is None or (loss is not None and loss.beside):
        if loss is None or not loss.smooth:
            return math.nan
        sizes = gradient_sizes(model, X, loss, values, state.value, adjoint.value)
        dZ, dV = (float(torch.linalg.vector_norm(part)) for part in (state.error_bound, adjoint.error_bound))
        return estimated_error(sizes, dZ, dV, q)
    dZ, dV, Z, V, g, b, size_X = (
        float(torch.linalg.vector_norm(part))
        for part in (
            state.error_bound,
            adjoint.error_bound,
            state.value,
            adjoint.value,
            slope,
            values[form.readout],
            X,
        )
    )
    dg = stiffness * b * dZ
    dG = dV + b * dg / (1 - q)
    return math.hypot(form.factor * (Z * dG + V * dZ), size_X * dG, Z * dg + g * dZ)


def warn_if_large(what: str, error: float, size: float, rtol: float | None, dtype: torch.dtype) -> None:
    """Warn where a known bound on an error is above what was asked for, or above half the digits of the precision.

    Args:
        what: What may be wrong.
        error: The bound; where it is not known, nothing is said.
        size: What it is measured against.
        rtol: The relative tolerance asked for, or None.
        dtype: The precision.

    Example:
        >>> warn_if_large("The prediction", 1e-12, 1.0, None, torch.float64)
    """
    limit = max(math.sqrt(torch.finfo(dtype).eps), 0.0 if rtol is None else rtol) * size
    if math.isfinite(error) and error > limit:
        warnings.warn(
            f"{what} may be off by {error:.3g}, against a size of {size:.3g}. Use float64, a smaller `rtol`, or inputs "
            "whose features are of like size.",
            AccuracyWarning,
            stacklevel=3,
        )
