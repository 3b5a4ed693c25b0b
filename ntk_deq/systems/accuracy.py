"""How far predictions and loss gradients may be from the exact ones, from the residuals that the solves leave.

With q < 1 a Lipschitz constant of the map, a state whose residual is r lies within r/(1 - q) of the equilibrium. What
rounding does to the residual itself is not in these bounds, nor what a unit at its kink would add to a gradient.

How strongly the gradient depends on the state and the adjoint is estimated. How far a row program and its cotangents
are off where the state is off is estimated, too, by norms that pass in place of values, in the Frobenius norm and to
first order: a product counts with a bound of its matrix' spectral norm, an entrywise function with its largest slope,
and backwards with its largest second derivative, where the values are.
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
from ntk_deq.language.row_program import Op, Row
from ntk_deq.language.tree import Expr
from ntk_deq.systems.model import EquilibriumModel, OutputLoss
from ntk_deq.systems.parameter_slopes import Error
from ntk_deq.systems.row_slopes import LinearRows, Occurrence, largest

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
        >>> from ntk_deq.systems.model import output_loss
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


Errors = Mapping[Row, Tensor]


@dataclass(frozen=True, eq=False)
class ErrorsBehind:
    """What cotangents are off by.

    Attributes:
        places: Formulas of parameters, with the errors of the slopes in them.
        state: The error of the state's cotangent, 0-d.
    """

    places: list[tuple[Expr, Error]]
    state: Float[Tensor, ""]


def errors_ahead(at: LinearRows, moved: Float[Tensor, ""]) -> dict[Row, Tensor]:
    """Return what every step that depends on the state is off by.

    Args:
        at: The program where it is.
        moved: What the state is off by.
    """
    found: dict[Row, Tensor] = {}
    for step in at.moving:
        found[step] = moved if step.op is Op.STATE else sum(_ahead(at, step, found), torch.zeros_like(moved))
    return found


def _ahead(at: LinearRows, step: Row, found: Errors) -> list[Tensor]:
    """Return what each argument that is off adds."""
    own = [arg for arg in step.args if arg in found]
    match step.op:
        case Op.PRODUCT:
            return [found[arg] * at.norm(step) for arg in own]
        case Op.SCALE:
            return [found[arg] * at.number(step).abs() for arg in own]
        case Op.HADAMARD:
            left, right = step.args
            sides = ((left, right), (right, left))
            return [found[arg] * largest(at.at(other)) for arg, other in sides if arg in found]
        case Op.ENTRYWISE:
            return [found[arg] * largest(at.slope(step)) for arg in own]
        case Op.SOFTMAX:
            return [found[arg] / 2 for arg in own]
    return [found[arg] for arg in own]


def errors_behind(
    at: LinearRows, cotangents: Mapping[Row, Tensor], error: Float[Tensor, ""], ahead: Errors
) -> ErrorsBehind:
    """Return what the cotangents are off by where that of the program's value is, and the state is.

    Args:
        at: The program where it is.
        cotangents: Those of all steps (`LinearRows.cotangents`).
        error: What that of the program's value is off by.
        ahead: As `errors_ahead` returned it.
    """
    none = torch.zeros_like(error)
    found, places = {at.root: error}, list[tuple[Expr, Error]]()
    for step in reversed(at.steps):
        if step not in cotangents:
            continue
        own = found.get(step, none)
        for place in at.places(step, cotangents[step]):
            places.append((place.expr, _place(place, own, ahead.get(step.args[0], none), at)))
        for arg, part in zip(step.args, _behind(at, step, own, cotangents[step], ahead, none), strict=True):
            if arg in cotangents or arg is at.state:
                found[arg] = found[arg] + part if arg in found else part
    return ErrorsBehind(places, none if at.state is None else found.get(at.state, none))


def _behind(at: LinearRows, step: Row, own: Tensor, cotangent: Tensor, ahead: Errors, none: Tensor) -> list[Tensor]:
    match step.op:
        case Op.PRODUCT:
            return [own * at.norm(step)]
        case Op.SCALE:
            return [own * at.number(step).abs()]
        case Op.HADAMARD:
            left, right = step.args
            size = largest(cotangent)
            return [own * largest(at.at(other)) + size * ahead.get(other, none) for other in (right, left)]
        case Op.ENTRYWISE:
            (arg,) = step.args
            bent = largest(cotangent) * at.curvature(step) * ahead[arg] if arg in ahead else none
            return [own * largest(at.slope(step)) + bent]
        case Op.SOFTMAX:
            (arg,) = step.args
            # With J = diag(p) - p p', its slope applied to c is p .* (c - p'c), which moves with the argument by
            # J diag(c - p'c) - p (J c)': at most by norm(c - p'c)/2 + norm(c)/2 <= 3/2 norm(c).
            bent = 1.5 * largest(torch.linalg.vector_norm(cotangent, dim=-1)) * ahead[arg] if arg in ahead else none
            return [own / 2 + bent]
    return [own for _ in step.args]


def _place(place: Occurrence, behind: Tensor, before: Tensor, at: LinearRows) -> Error:
    """Return the error of a sum of outer products, or of inner ones, of which both sides are off."""
    count = torch.tensor(float(at.count), dtype=behind.dtype, device=behind.device).sqrt()
    sizes = [count if side is None else torch.linalg.vector_norm(side) for side in (place.before, place.behind)]
    return Error(sizes[0] * behind + sizes[1] * before)


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

    Of a `single_layer` that of `layer_error`; of other models an estimate (`gradient_sizes`), where the loss is given
    and has no kinks.

    Args:
        model: The model; a `single_layer` has bounds.
        X: Inputs.
        slope: g; yhat - y where the loss is half its square.
        state: The equilibrium.
        adjoint: The loss adjoint V = g b' + (d step/dZ)'V.
        values: The parameters.
        stiffness: h.
        loss: The loss.
    """
    form, q = model.single_layer(), state.contraction
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
    parts = (state.error_bound, adjoint.error_bound, state.value, adjoint.value, slope, values[form.readout], X)
    dZ, dV, Z, V, g, b, size_X = (float(torch.linalg.vector_norm(part)) for part in parts)
    return layer_error(form.factor, size_X, q, stiffness, Z, V, g, b, dZ=dZ, dV=dV)


def layer_error(
    c: float, X: float, q: float, h: float, Z: float, V: float, g: float, b: float, *, dZ: float, dV: float
) -> float:
    """Return a bound on the Frobenius error of the gradient of a layer Z = act(c Z P + inner(X S)), yhat = Z b.

        dg = h norm(b) dZ,  dG = dV + norm(b) dg/(1 - q),
        c (norm(Z) dG + norm(V) dZ) in P,  norm(X) dG in S,  norm(Z) dg + norm(g) dZ in b

    Symbols: norms of X, Z, the loss adjoint V, g = dL/dyhat and b; h that of the second derivative of the loss in yhat;
    dZ and dV the errors of Z and V; q the contraction factor.

    Example:
        >>> layer_error(1.0, 1.0, 0.5, 1.0, 2.0, 4.0, 2.0, 1.0, dZ=0.0, dV=0.0)
        0.0
    """
    dg = h * b * dZ
    dG = dV + b * dg / (1 - q)
    return math.hypot(c * (Z * dG + V * dZ), X * dG, Z * dg + g * dZ)


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


def random_signs(like: Tensor, generator: torch.Generator, length: float | None = None) -> Tensor:
    """Return a direction all of whose entries are of one size: 1, or such that it has the given length."""
    signs = torch.randint(0, 2, like.shape, generator=generator, dtype=torch.float64) * 2 - 1
    return (signs if length is None else length * signs / math.sqrt(max(like.numel(), 1))).to(like)
