"""Equilibria, adjoints, predictions and loss gradients of a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypedDict, Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium.driver import solve_fixed_point
from ntk_deq.equilibrium.implicit import fixed_point
from ntk_deq.equilibrium.result import Equilibrium, is_traced
from ntk_deq.equilibrium.solvers import Solver, as_solver
from ntk_deq.equilibrium.splitting import MonotoneLayer, Splitting
from ntk_deq.errors import ArgumentError, EquilibriumError
from ntk_deq.language.loss import PREDICTIONS
from ntk_deq.systems.accuracy import gradient_error, prediction_error, warn_if_large
from ntk_deq.systems.checks import check_like, check_loss, check_samples
from ntk_deq.systems.model import EquilibriumModel, output_loss


class SolveOptions(TypedDict, total=False):
    """How a fixed point is solved for: what `solve_fixed_point` takes, with the defaults that it has.

    Attributes:
        solver: A name, or a solver with options (`make_solver`).
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        max_steps: Updates allowed.
        raise_on_failure: Whether an unsolved sample is an error.
    """

    solver: str | Solver | Splitting
    rtol: float | None
    atol: float | None
    max_steps: int
    raise_on_failure: bool


class FeatureOptions(TypedDict, total=False):
    """How an equilibrium and what its derivatives need are solved for: what `fixed_point` takes, with its defaults.

    Attributes:
        solver: A name, or a solver with options (`make_solver`), for any map.
        adjoint_solver: That of the derivatives; None: the same.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        max_steps: Updates allowed.
        on_adjoint: Called with the `Equilibrium` of each linear solve.
    """

    solver: str | Solver
    adjoint_solver: str | Solver | None
    rtol: float | None
    atol: float | None
    max_steps: int
    on_adjoint: Callable[[Equilibrium], None] | None


def solve_equilibrium(
    model: EquilibriumModel,
    X: Float[Tensor, "N d"],
    *,
    parameters: Mapping[str, Tensor] | None = None,
    initial: Float[Tensor, "N m"] | None = None,
    **options: Unpack[SolveOptions],
) -> Equilibrium:
    """Find the features Z = step(Z, X), with status, residual and error bound of every sample.

    The result carries no gradients (`equilibrium_features` does). Its error bound uses the model's contraction bound.

    Args:
        model: The model.
        X: Inputs, one sample a row.
        parameters: Values to use in place of the model's own, by name.
        initial: Where to start; None: the model's initial state.
        options: See `SolveOptions`; a splitting gets the layer that the model's map is.

    Raises:
        ArgumentError: An argument is out of range, or `parameters` has a name that the model does not have.
        EquilibriumError: A sample is not solved and `raise_on_failure` is set.

    Example:
        >>> from ntk_deq.systems.shipped_models import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> found = solve_equilibrium(LinearImplicit(W=one / 2, U=one, b=one[0]), torch.tensor([[1.0], [3.0]]).double())
        >>> [round(z, 12) for z in found.value[:, 0].tolist()]
        [2.0, 6.0]
    """
    check_samples(model, X, "solve_equilibrium", parameters=parameters, initial=initial)
    values = _all_parameters(model, parameters)
    with torch.no_grad():
        start = model.initial_state(X) if initial is None else initial
        contraction = model.contraction_bound(values)
        method = options["solver"] = as_solver(options.get("solver", "picard"))
        step = _layer(model, X, values, method) if isinstance(method, Splitting) else model.step_at(X, values)
        return solve_fixed_point(step, start, contraction=contraction, **options)


def solve_adjoint(
    model: EquilibriumModel,
    X: Float[Tensor, "N d"],
    Z: Float[Tensor, "N m"],
    *,
    parameters: Mapping[str, Tensor] | None = None,
    output: int = 0,
    initial: Float[Tensor, "N m"] | None = None,
    **options: Unpack[SolveOptions],
) -> Equilibrium:
    """Find the adjoint: row n solves v = d yhat_n/d z_n + (d step_n/d z_n)' v at the equilibrium Z.

    With it, the derivative of prediction n along any change of parameters is the inner product of v_n with the change
    of step_n, plus the readout's own. The result carries no gradients.

    Args:
        model: The model. Where it offers `adjoint_step_at(Z, X)`, that map is used; the automatic one otherwise.
        X: Inputs, one sample a row.
        Z: Their equilibrium.
        parameters: Values to use in place of the model's own, by name.
        output: Which output of several, counted from 0.
        initial: Where to start; None: the readout's gradient.
        options: See `SolveOptions`; no splitting.

    Raises:
        ArgumentError: An argument is out of range, or `parameters` has a name that the model does not have.
        EquilibriumError: A sample is not solved and `raise_on_failure` is set.

    Example:
        >>> from ntk_deq.systems.shipped_models import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> found = solve_adjoint(LinearImplicit(W=one / 2, U=one, b=3 * one[0]), one, 2 * one)
        >>> round(found.value.item(), 12)  # b/(1 - W)
        6.0
    """
    check_samples(model, X, "solve_adjoint", parameters=parameters, initial=initial)
    raising, options["raise_on_failure"] = options.get("raise_on_failure", True), False
    check_like("`Z` of solve_adjoint", Z, model.initial_state(X))
    values = _all_parameters(model, parameters)
    with torch.no_grad():
        source = model.output_slope(Z.detach(), X, values, output)
        step = model.adjoint_step_at(Z, X, None if parameters is None else values, output)
        start, contraction = source if initial is None else initial, model.contraction_bound(values)
        result = solve_fixed_point(step, start, contraction=contraction, **options)
    if raising and not result.all_converged:
        raise EquilibriumError(
            f"The adjoint was not found with the solver {result.solver}.\n{result.describe_failures()}", result
        )
    return result


def equilibrium_features(
    model: EquilibriumModel,
    X: Float[Tensor, "N d"],
    parameters: Mapping[str, Tensor] | None = None,
    *,
    initial: Float[Tensor, "N m"] | None = None,
    on_forward: Callable[..., None] | None = None,
    **options: Unpack[FeatureOptions],
) -> Float[Tensor, "N m"]:
    """Return the equilibrium Z, differentiable in the parameters and in X by the implicit function theorem.

    Args:
        model: The model.
        X: Inputs, one sample a row.
        parameters: Values to use in place of the model's own, by name; derivatives are taken through these.
        initial: Where to start; None: the model's initial state. Its gradient is zero.
        on_forward: As in `fixed_point`; the arguments are X and all parameters.
        options: See `FeatureOptions`.

    Raises:
        ArgumentError: An argument is out of range, or `parameters` has a name that the model does not have.
        EquilibriumError: The equilibrium, or later in a derivative the adjoint or tangent, was not found.

    Example:
        >>> from ntk_deq.systems.shipped_models import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> model = LinearImplicit(W=one / 2, U=one, b=one[0])
        >>> round(torch.func.grad(lambda W: equilibrium_features(model, one, {"W": W}).sum())(one / 2).item(), 12)
        4.0
    """
    check_samples(model, X, "equilibrium_features", parameters=parameters, initial=initial)
    return fixed_point(
        model.step,
        model.initial_state(X) if initial is None else initial,
        X,
        _all_parameters(model, parameters),
        contraction=lambda _, values: model.contraction_bound(values),
        prepared=model.step_at,
        on_forward=on_forward,
        **options,
    )


def predict(
    model: EquilibriumModel,
    X: Float[Tensor, "N d"],
    parameters: Mapping[str, Tensor] | None = None,
    *,
    initial: Float[Tensor, "N m"] | None = None,
    on_error: Callable[[Tensor], None] | None = None,
    **options: Unpack[FeatureOptions],
) -> Float[Tensor, " N"]:
    """Return the predictions readout(Z) at the equilibrium Z, differentiable like `equilibrium_features`.

    Where a bound on their error is known and not small, an `AccuracyWarning` says so: above `rtol` and above the root
    of the precision, against the size of the terms that a prediction is the sum of. Predictions of a batched call (of
    `torch.func.vmap`) are not looked at.

    Args:
        model: The model.
        X: Inputs, one sample a row.
        parameters: Values to use in place of the model's own, by name.
        initial: As in `equilibrium_features`.
        on_error: Called with a bound on the error of each prediction; inf where none is known.
        options: See `FeatureOptions`.

    Raises:
        ArgumentError: As in `equilibrium_features`.
        EquilibriumError: As in `equilibrium_features`.

    Example:
        >>> from ntk_deq.systems.shipped_models import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> round(predict(LinearImplicit(W=one / 2, U=one, b=3 * one[0]), one).item(), 12)
        6.0
    """
    check_samples(model, X, "predict", parameters=parameters, initial=initial)
    values = _all_parameters(model, parameters)

    def judge(found: Equilibrium, inputs: Tensor, solved_for: dict[str, Tensor]) -> None:
        if found.value.ndim != 2:
            return
        known = prediction_error(model, inputs, found, solved_for)
        worst = int((known.bound / known.size).nan_to_num(nan=0.0).argmax()) if known.bound.numel() else None
        if worst is not None:
            what = f"The prediction of sample {worst}"
            size, rtol = float(known.size[worst]), options.get("rtol")
            warn_if_large(what, float(known.bound[worst]), size, rtol, known.bound.dtype)
        if on_error is not None:
            on_error(known.bound)

    features = equilibrium_features(model, X, values, initial=initial, on_forward=judge, **options)
    return model.declared(PREDICTIONS, model.predictions(features, X, values))


def loss_gradients(
    model: EquilibriumModel,
    X: Float[Tensor, "N d"],
    y: Float[Tensor, " N"],
    *,
    parameters: Mapping[str, Tensor] | None = None,
    initial: Float[Tensor, "N m"] | None = None,
    on_error: Callable[[float], None] | None = None,
    **options: Unpack[FeatureOptions],
) -> dict[str, Tensor]:
    """Return the gradient of the loss that the model declares in every parameter, by name.

    Where a bound on its error is known and not small, an `AccuracyWarning` says so: above `rtol` and above the root of
    the precision, against the gradient as it would be for a residual of the size of predictions and targets.

    Args:
        model: The model.
        X: Inputs, one sample a row.
        y: Targets.
        parameters: Values to use in place of the model's own, by name.
        initial: As in `equilibrium_features`.
        on_error: Called with a bound on the Frobenius error of the gradient in all parameters together; inf where there
            is none, NaN where nothing is known of it.
        options: See `FeatureOptions`.

    Raises:
        ArgumentError: As in `equilibrium_features`, y does not fit the predictions, or the loss depends on more than
            predictions, targets and sizes.
        EquilibriumError: As in `equilibrium_features`.

    Example:
        >>> from ntk_deq.systems.shipped_models import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> gradients = loss_gradients(LinearImplicit(W=one / 2, U=one, b=one[0]), one, 0 * one[0])
        >>> {name: round(value.item(), 10) for name, value in gradients.items()}  # yhat = 2
        {'W': 8.0, 'U': 4.0, 'b': 4.0}
    """
    where = "loss_gradients"
    check_samples(model, X, where, parameters=parameters, initial=initial)
    check_loss(model.signature, where)
    state, states = model.signature.state, list[Equilibrium]()
    adjoints, on_adjoint = list[Equilibrium](), options.get("on_adjoint")

    def keep(found: Equilibrium) -> None:
        adjoints.append(found)
        if on_adjoint is not None:
            on_adjoint(found)

    options["on_adjoint"] = keep

    def loss(values: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        features = equilibrium_features(
            model, X, values, initial=initial, on_forward=lambda found, *_: states.append(found), **options
        )
        predictions = model.predictions(features, X, values)
        check_like(f"`y` of {where}", y, model.declared(PREDICTIONS, predictions))
        more = {**values, state: model.declared(state, features)} if state else values
        return output_loss(model, X, y).value(predictions, more), predictions

    values = _all_parameters(model, parameters)
    gradients, predictions = torch.func.grad(loss, has_aux=True)(values)
    plain = [*values.values(), X, y]
    if len(states) == len(adjoints) == 1 and states[0].value.ndim == 2 and not any(map(is_traced, plain)):
        rtol = options.get("rtol")
        _judge_gradient(model, X, y, predictions, states[0], adjoints[0], values, gradients, rtol, on_error)
    found: dict[str, Tensor] = gradients
    return found


def _judge_gradient(
    model: EquilibriumModel,
    X: Tensor,
    y: Tensor,
    predictions: Tensor,
    state: Equilibrium,
    adjoint: Equilibrium,
    values: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor],
    rtol: float | None,
    on_error: Callable[[float], None] | None,
) -> None:
    """Warn where the gradient may be off by much, and tell the caller by how much."""
    with torch.no_grad():
        norm = torch.linalg.vector_norm
        declared, residual, name = output_loss(model, X, y), predictions - model.target_rows(y), model.signature.state
        more = {**values, name: model.declared(name, state.value)} if name else values
        slope, stiffness = declared.pull(residual, residual.new_zeros(()), more), declared.stiffness(residual, more)
        error = gradient_error(model, X, slope, state, adjoint, values, stiffness=stiffness, loss=declared)
        length = math.hypot(*(float(norm(gradient)) for gradient in gradients.values()))
        left, size = float(norm(slope)), stiffness * (float(norm(predictions)) + float(norm(y)))
    if left > 0:
        warn_if_large("The gradient of the loss", error, length * max(1.0, size / left), rtol, X.dtype)
    if on_error is not None:
        on_error(error)


def _all_parameters(model: EquilibriumModel, parameters: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
    """Return the model's parameters with those given put in their place."""
    return {**model.parameters(), **(parameters or {})}


def _layer(model: EquilibriumModel, X: Tensor, values: Mapping[str, Tensor], method: Splitting) -> MonotoneLayer:
    layer = model.monotone_layer(X, values)
    if layer is None:
        raise ArgumentError(
            f"The solver {method.name} needs a map act(W z + c), act proximal, which that of {model.signature.name} is "
            "not seen to be. Use 'anderson'."
        )
    return layer


class AnsweringModel(EquilibriumModel):
    """A model with methods for what is asked most.

    Tensors come and go the way that the declaration has them, with samples in rows or in columns.
    """

    def solve(self, X: Float[Tensor, "_ _"], **options: Unpack[SolveOptions]) -> Equilibrium:
        """Find the equilibrium; `value` of the result has the shape that the state is declared with.

        Args:
            X: Inputs.
            options: See `SolveOptions`.

        Raises:
            ArgumentError: There is no equilibrium in the system's declaration, or an argument is out of range.
            EquilibriumError: A sample is not solved and `raise_on_failure` is set.
        """
        if not self.signature.state:
            raise ArgumentError(f"The system {self.signature.name} has no equilibrium to solve for; `predict` it.")
        found = solve_equilibrium(self, X, **options)
        return replace(found, value=self.declared(self.signature.state, found.value))

    def predict(self, X: Float[Tensor, "_ _"]) -> Float[Tensor, _ * k]:
        """Return the predictions, differentiable in X and in tensors that parameters were made of.

        Args:
            X: Inputs.

        Raises:
            ArgumentError: X does not fit.
            EquilibriumError: An equilibrium was not found.
        """
        return predict(self, X)

    def loss(self, X: Float[Tensor, "_ _"], y: Float[Tensor, _ * k]) -> Float[Tensor, ""]:
        """Return the declared loss, differentiable likewise.

        Args:
            X: Inputs.
            y: Targets.

        Raises:
            ArgumentError: X or y does not fit, or the loss cannot be computed from them.
            EquilibriumError: An equilibrium was not found.
        """
        own, state = self.parameters(), self.signature.state
        features = equilibrium_features(self, X)
        predictions = self.predictions(features, X)
        check_like("`y` of loss", y, self.declared(PREDICTIONS, predictions))
        more = {**own, state: self.declared(state, features)} if state else own
        return output_loss(self, X, y).value(predictions, more)
