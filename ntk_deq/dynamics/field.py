"""The loss and its gradient along a run: exact implicit gradients from warm-started equilibria and adjoints."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ntk_deq.dynamics.contraction import CarriedContraction, WellPosednessError
from ntk_deq.equilibrium.starts import Solved, scaled_norm
from ntk_deq.equilibrium.warm import NotFiniteError, WarmSolver
from ntk_deq.errors import ArgumentError, check_whole
from ntk_deq.language.declaration import Role
from ntk_deq.systems.checks import check_inputs, check_loss, check_variables
from ntk_deq.systems.compiled_maps import loss_maps
from ntk_deq.systems.loss_maps import LossMaps
from ntk_deq.systems.model import EquilibriumModel


def loss_floor(first: float, until: float) -> float:
    """Return the loss at which a run ends, `until` times the first one; where that is negative, a run has no floor.

    Example:
        >>> loss_floor(2.0, 0.5), loss_floor(-2.0, 0.5)
        (1.0, -inf)
    """
    return until * first if first >= 0 else -math.inf


def loss_ceiling(first: float, rise: float) -> float:
    """Return the loss above which a run has diverged: `rise` times the first one, or as far above a negative one.

    Example:
        >>> loss_ceiling(2.0, 3.0), loss_ceiling(-2.0, 3.0)
        (6.0, 2.0)
    """
    return rise * first if first >= 0 else first - (rise - 1) * first


__all__ = [
    "FieldPoint",
    "GradientField",
    "NotFiniteError",
    "WellPosednessError",
    "loss_ceiling",
    "loss_floor",
]

# The least relative tolerance in units of eps: a map evaluated at its fixed point gives it back up to a few roundings.
_RTOL_EPS = 32.0
# Pre-activations above so many times the tolerance are told from zero. The bound on the error says less near the
# edge of contraction, where slow solves have ended with a Newton step, which leaves nothing over.
_DOUBTFUL = 1e4
# Beyond this degree the weights of an extrapolation lift the solver's tolerance by more than a hundredfold.
_HIGHEST_DEGREE = 6


@dataclass(frozen=True, eq=False)
class FieldPoint:
    """The loss and its gradient at one point of parameter space.

    Attributes:
        loss: L, 0-d.
        residual: yhat - y.
        state: The equilibrium Z.
        adjoint: The loss adjoint V, which solves V = g d yhat/dZ + (d step/dZ)'V with g = dL/dyhat.
        gradients: dL/dparameter by name.
        forward_steps: Evaluations of the fixed-point map; one of n samples out of N counts n/N.
        adjoint_steps: Evaluations of the adjoint map, likewise.
        loss_value: The loss on the host, read together with the adjoint's residual.
        gradient_error: Estimated error of the gradient, Frobenius over all parameters, that the solvers' tolerance
            leaves; NaN: not known. See `GradientField`.
        contraction: An upper bound of the contraction factor; NaN: not known.
        pattern: Which units are on; None: not known.
        slope: dL/dyhat; None: not known.
    """

    loss: Float[Tensor, ""]
    residual: Float[Tensor, " N"]
    state: Float[Tensor, "N m"]
    adjoint: Float[Tensor, "N m"]
    gradients: dict[str, Tensor]
    forward_steps: float
    adjoint_steps: float
    loss_value: float = math.nan
    gradient_error: float = math.nan
    contraction: float = math.nan
    pattern: Bool[Tensor, "_ m"] | None = None
    slope: Float[Tensor, " N"] | None = None

    @property
    def relative_error(self) -> float:
        """The gradient's estimated error over its norm; 0 where the gradient is zero, Inf where it is not finite."""
        norm = math.hypot(*map(scaled_norm, self.gradients.values()))
        if not math.isfinite(norm):
            return math.inf
        return self.gradient_error / norm if norm else 0.0

    def owned(self) -> FieldPoint:
        """Return a copy that later evaluations of the field do not write over.

        Example:
            >>> one = torch.ones(1, 1)
            >>> point = FieldPoint(one[0, 0], one[0], one, one, {"W": one}, 1, 1)
            >>> point.owned().state is one
            False
        """
        residual, slope = self.residual.clone(), self.slope
        if slope is not None:
            slope = residual if slope is self.residual else slope.clone()
        return replace(
            self,
            loss=self.loss.clone(),
            residual=residual,
            slope=slope,
            state=self.state.clone(),
            adjoint=self.adjoint.clone(),
            gradients={name: value.clone() for name, value in self.gradients.items()},
        )


class GradientField:
    """The gradient of the declared loss as a function of the parameters, made for many calls along a run.

    Equilibrium and adjoint are solved by plain iteration to a residual of `rtol` times their norm plus `atol`, all rows
    taken together. They start from a polynomial through the last states, in the moment. The contraction factor q
    is carried by Weyl's inequality, and an evaluation where it reaches one is refused.

    With the error bounds dZ and dV that the residuals and q give, the gradient's error is estimated from norms of its
    factors, for models that say their form (`LayerMaps.gradient_error`). The change of slopes with the state is left
    out: it is zero for piecewise linear activations as long as no unit switches.

    Args:
        model: The model; its own parameters are not used by `at`.
        X: Inputs, one sample a row.
        y: Targets.
        rtol: Relative tolerance of both solves, in (0, 1); never taken below 32 eps of the dtype.
        atol: Absolute tolerance, >= 0.
        max_steps: Iterations allowed in a solve, >= 1.
        extrapolation: Highest degree of the polynomial; 0 is the plain warm start.
        patterns: Whether points are to say which units are on.

    Raises:
        ArgumentError: An argument is out of range, X or y does not fit the model, or the loss depends on more
            than predictions, targets and sizes.

    Example:
        >>> from ntk_deq.systems.shipped_models import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> field = GradientField(LinearImplicit(W=one / 2, U=one, b=one[0]), one, 0 * one[0])
        >>> point = field.at({"W": one / 2, "U": one, "b": one[0]}, 0.0)
        >>> {name: round(value.item(), 8) for name, value in point.gradients.items()}  # yhat = 2
        {'W': 8.0, 'U': 4.0, 'b': 4.0}
    """

    def __init__(
        self,
        model: EquilibriumModel,
        X: Float[Tensor, "_ _"] | None = None,
        y: Float[Tensor, _ * k] | None = None,
        *,
        rtol: float = 1e-10,
        atol: float = 0.0,
        max_steps: int = 10_000,
        extrapolation: int = 2,
        patterns: bool = False,
    ) -> None:
        self._patterns = patterns
        X, y = model.data(X, y)
        check_loss(model.signature, "A gradient field")
        check_inputs(model, X)
        _check_targets(model, X, y)
        _check_options(rtol, atol, max_steps, extrapolation)
        self.rtol = max(rtol, _RTOL_EPS * torch.finfo(X.dtype).eps)
        self._maps: LossMaps = loss_maps(model, X, y)
        self._contraction = CarriedContraction(model)
        initial = model.initial_state(X)

        def solver(what: str, start: Tensor) -> WarmSolver:
            return WarmSolver(what, start, degree=extrapolation, rtol=self.rtol, atol=atol, max_steps=max_steps)

        self._forward = solver("equilibrium", initial)
        self._adjoint = solver("adjoint", torch.zeros_like(initial))
        self._explicit = None if initial.shape[1] else initial

    def at(
        self,
        parameters: Mapping[str, Tensor],
        moment: float,
        *,
        reuse: bool = False,
        moved: Mapping[str, Tensor] | None = None,
    ) -> FieldPoint:
        """Return the loss and its gradient.

        Args:
            parameters: Every parameter, by name.
            moment: Time t, or number k of the step: where on the run the parameters belong. Any spacing, any order.
            reuse: Whether the result may lie in the field's own buffers, which the next call writes over. It saves the
                copies.
            moved: Upper bounds of the Frobenius distance of each parameter from that of the last call, 0-d, where the
                caller knows them: it saves a pass over the weight. None: the distance is computed.

        Raises:
            WellPosednessError: The contraction factor is not below one.
            NotFiniteError: The state, the adjoint or the loss is NaN or Inf.
            EquilibriumError: A solve did not reach the tolerance.
        """
        with torch.no_grad():
            point = self._evaluate(parameters, float(moment), moved)
            return point if reuse else point.owned()

    def forget(self) -> None:
        """Drop the warm start, so that the next evaluation begins from the initial state."""
        self._forward.forget()
        self._adjoint.forget()

    def _evaluate(
        self, parameters: Mapping[str, Tensor], moment: float, moved: Mapping[str, Tensor] | None
    ) -> FieldPoint:
        maps, forward, adjoint = self._maps, self._forward, self._adjoint
        maps.prepare(parameters)
        self._contraction.measure(parameters, forward.beside, moved)
        if self._explicit is None:
            Z = forward.solve(
                moment,
                maps.step,
                maps.step_of_rows,
                lambda distance: self._contraction.bound(parameters, distance),
                maps.newton,
            )
            settled = maps.settle(Z.value, min(Z.error, _DOUBTFUL * self.rtol * Z.norm), Z.contraction)
            loss = adjoint.beside
            residual = maps.linearise(Z.value, loss)
            V = adjoint.solve(
                moment,
                maps.adjoint_step,
                maps.adjoint_step_of_rows,
                lambda loss: _finite(loss, Z.contraction),
                maps.adjoint_newton,
            )
            gradients = maps.gradients(V.value)
        else:  # nothing is solved for
            state, settled, loss = self._explicit, 0.0, self._explicit.new_zeros(())
            residual = maps.linearise(state, loss)
            gradients, value = maps.gradients(state), float(loss)
            Z = V = Solved(state, 0, 0.0, 0.0, 0.0, value)
            for name, gradient in gradients.items():
                if not bool(torch.isfinite(gradient).all()):
                    raise NotFiniteError(f"The gradient in {name} must be finite. It has become NaN or Inf.")
            _finite(value, value)
        return FieldPoint(
            loss=loss,
            residual=residual,
            state=Z.value,
            adjoint=V.value,
            gradients=gradients,
            forward_steps=Z.steps + settled,
            adjoint_steps=V.steps,
            loss_value=V.beside,
            gradient_error=maps.gradient_error(Z, V) if self._contraction.known else math.nan,
            contraction=Z.contraction if self._contraction.known else math.nan,
            pattern=maps.pattern() if self._patterns else None,
            slope=maps.slope,
        )

    @property
    def caveat(self) -> str:
        """What is not known of the equilibria along a run, in words; empty where a certificate is asked for."""
        if self._contraction.known:
            return ""
        return (
            "No certificate: nothing is known of the map's contraction factor, so that equilibria are points where the "
            "iteration settled, others may exist, and errors are not bounded."
        )

    def hessian(self) -> Float[Tensor, "n n"] | None:
        """Return the Hessian of the loss where the last call of `at` was, on the pattern there; None: not known."""
        return self._maps.hessian()

    def state(self) -> dict[str, Any]:
        """Return what a later field needs to go on in the very same way: plain values and tensors."""
        return {
            "forward": self._forward.state(),
            "adjoint": self._adjoint.state(),
            "contraction": self._contraction.state(),
            "maps": self._maps.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        self._forward.restore(state["forward"])
        self._adjoint.restore(state["adjoint"])
        self._contraction.restore(state["contraction"])
        self._maps.restore(state.get("maps") or self._maps.state())


def _finite(loss: float, contraction: float) -> float:
    if not math.isfinite(loss):
        raise NotFiniteError(f"The loss must be finite. Got {loss}.")
    return contraction


def _check_targets(model: EquilibriumModel, X: Tensor, y: Tensor) -> None:
    signature = model.signature
    inputs, targets = dict.fromkeys(signature.names(Role.INPUT), X), dict.fromkeys(signature.names(Role.TARGET), y)
    check_variables(signature, {**inputs, **targets})


def _check_options(rtol: float, atol: float, max_steps: int, extrapolation: int) -> None:
    if isinstance(rtol, bool) or not (isinstance(rtol, int | float) and 0 < rtol < 1):
        raise ArgumentError(f"`rtol` of a gradient field must be a number with 0 < rtol < 1. Got {rtol!r}.")
    if isinstance(atol, bool) or not (isinstance(atol, int | float) and 0 <= atol <= sys.float_info.max):
        raise ArgumentError(f"`atol` of a gradient field must be a finite number >= 0. Got {atol!r}.")
    check_whole(max_steps, "max_steps", "a gradient field")
    if isinstance(extrapolation, bool) or not (
        isinstance(extrapolation, int) and 0 <= extrapolation <= _HIGHEST_DEGREE
    ):
        allowed = f"an integer from 0 to {_HIGHEST_DEGREE}"
        raise ArgumentError(f"`extrapolation` of a gradient field must be {allowed}. Got {extrapolation!r}.")
