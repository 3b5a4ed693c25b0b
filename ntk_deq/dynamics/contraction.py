"""The contraction factor of a model along a run, without a decomposition at every step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium.warm import NotFiniteError
from ntk_deq.errors import NtkDeqError
from ntk_deq.files.archives import stored_count, stored_number, stored_tensor
from ntk_deq.systems.formula_layer import ContractionFactor, spectral_norms
from ntk_deq.systems.formula_model import FormulaModel
from ntk_deq.systems.model import EquilibriumModel
from ntk_deq.systems.module_model import ModuleModel

# A decomposition is made anew when the bound has drifted over this share of the gap that was left below one: the bound
# then errs by a quarter of the gap at most, and an SVD comes at most a few times while the gap halves.
_SHARE = 0.25


class WellPosednessError(NtkDeqError):
    """The contraction factor reached one, so that the equilibrium need not exist or be unique."""


class CarriedContraction:
    """An upper bound of the contraction factor at parameters that move little from call to call.

    With q = factor norm(P) at the reference P0, Weyl's inequality gives q(P) <= q(P0) + factor fro(P - P0). A model
    that does not say which parameter its factor rests on (`layer_form`) is asked for it every time, but for one with a
    formula of norms (`CarriedFormula`).

    Args:
        model: The model.

    Attributes:
        known: Whether `bound` is a bound.
        refreshed: How often the factor was computed anew.
    """

    known = True

    def __init__(self, model: EquilibriumModel) -> None:
        self._model, self._form = model, model.layer_form()
        self._reference: Tensor | None = None
        self._path: Tensor | None = None  # an upper bound of the distance from the reference, on the device
        self._at_reference = math.inf
        self.refreshed = 0

    def measure(
        self, parameters: Mapping[str, Tensor], out: Float[Tensor, ""], moved: Mapping[str, Tensor] | None = None
    ) -> None:
        """Write a bound of the distance from the reference into `out`, a 0-d tensor; nothing is copied to the host.

        Args:
            parameters: The present parameters.
            out: Where the bound goes.
            moved: Bounds of how far each parameter has moved since the last call, 0-d; None: the distance is computed.
        """
        if self._form is None or self._reference is None or self._path is None:
            out.fill_(math.inf)
            return
        weight = self._form.weight
        if moved is None:
            self._path.copy_(torch.dist(parameters[weight], self._reference))
        else:
            self._path.add_(moved[weight])
        out.copy_(self._path)

    def bound(self, parameters: Mapping[str, Tensor], distance: float) -> float:
        """Return the bound, after a new decomposition where the carried one has drifted.

        Args:
            parameters: The present parameters.
            distance: As `measure` wrote it for them.

        Raises:
            NotFiniteError: A parameter is NaN or Inf.
            WellPosednessError: The factor is not below one.
        """
        factor = 1.0 if self._form is None else self._form.factor
        allowed = _SHARE * (1 - self._at_reference)
        if factor * distance <= allowed:
            return self._at_reference + factor * distance
        if self._form is not None and self._reference is not None and self._path is not None:
            # The way was longer than the distance, perhaps.
            self._path.copy_(torch.dist(parameters[self._form.weight], self._reference))
            distance = float(self._path)
            if factor * distance <= allowed:
                return self._at_reference + factor * distance
        check_finite(parameters)
        value = float(self._model.contraction_bound(parameters))
        self.refreshed += 1
        check_contraction(self._model, value)
        if self._form is not None:
            weight = parameters[self._form.weight]
            self._reference = weight.clone() if self._reference is None else self._reference.copy_(weight)
            self._path = weight.new_zeros((), dtype=torch.float64)
            self._at_reference = value
        return value

    def state(self) -> dict[str, Any]:
        """Return what a later run needs to go on in the very same way."""
        return {
            "reference": self._reference,
            "path": self._path,
            "value": self._at_reference,
            "refreshed": self.refreshed,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned.

        Raises:
            ValueError: It is not what the factor of this model returns.
        """
        self.refreshed = stored_count(state["refreshed"], "refreshed")
        if state["reference"] is None or self._form is None:
            return
        weight = self._model.parameters()[self._form.weight]
        self._reference = stored_tensor(state["reference"], weight, "reference")
        self._path = stored_tensor(state["path"], weight.new_zeros((), dtype=torch.float64), "path")
        self._at_reference = stored_number(state["value"], "value", 0.0, 1.0)


def check_finite(parameters: Mapping[str, Tensor]) -> None:
    """Refuse parameters that are NaN or Inf.

    Args:
        parameters: By name.

    Raises:
        NotFiniteError: One is.
    """
    for name, parameter in parameters.items():
        if not bool(torch.isfinite(parameter).all()):
            raise NotFiniteError(f"The parameter {name} must be finite. It has become NaN or Inf.")


def check_contraction(model: EquilibriumModel, factor: float) -> None:
    """Refuse a contraction factor that is not below one.

    Args:
        model: The model.
        factor: A bound of its factor.

    Raises:
        WellPosednessError: It is not.
    """
    if not factor < 1:
        raise WellPosednessError(
            f"No certificate that the equilibrium of {model.signature.name} exists: the bound of its "
            f"contraction factor is {factor:.9g}, not below one."
        )


class CarriedFormula(CarriedContraction):
    """The same for a factor that is a formula of norms: each is carried, and the formula says what follows.

    Args:
        model: The model.
        factor: Its factor.
    """

    def __init__(self, model: FormulaModel, factor: ContractionFactor) -> None:
        super().__init__(model)
        self._formula_model, self._factor = model, factor
        self._matrices: list[Tensor] = []
        self._norms: list[float] = []

    def bound(self, parameters: Mapping[str, Tensor], distance: float) -> float:
        """Return the bound, after new decompositions where the carried one has drifted."""
        fixed = self._formula_model.fixed_of(parameters)
        matrices = self._factor.matrices(fixed)
        if self._matrices:
            moved = [float(torch.dist(now, then)) for now, then in zip(matrices, self._matrices, strict=True)]
            near = [norm + path for norm, path in zip(self._norms, moved, strict=True)]
            carried, same = (self._factor.with_norms(fixed, sizes) for sizes in (near, self._norms))
            if carried is not None and same is not None and carried - same <= _SHARE * (1 - same):
                return carried
        check_finite(parameters)
        self.refreshed += 1
        norms = spectral_norms(matrices)
        value = self._factor.with_norms(fixed, norms)
        value = self._factor.value(fixed) if value is None else value
        check_contraction(self._model, value)
        self._matrices, self._norms = [matrix.clone() for matrix in matrices], norms
        return value

    def state(self) -> dict[str, Any]:
        """Return what a later run needs to go on in the very same way."""
        return {**super().state(), "matrices": list(self._matrices), "norms": list(self._norms)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned.

        Raises:
            ValueError: It is not what the factor of this model returns.
        """
        super().restore(state)
        matrices = self._factor.matrices(self._formula_model.fixed_of(self._model.parameters()))
        if len(state["norms"]) not in (0, len(matrices)) or len(state["matrices"]) != len(state["norms"]):
            raise ValueError("`norms` must be those of the factor's formula, each with its matrix")
        self._matrices = [
            stored_tensor(stored, like, "matrices") for stored, like in zip(state["matrices"], matrices, strict=False)
        ]
        self._norms = [stored_number(norm, "norms", 0.0) for norm in state["norms"]]


class UnknownContraction(CarriedContraction):
    """Stands in for the factor of a map of which nothing is known: a user's module.

    Solves stop where the residual is small, as if the map contracted by a half; no error bound follows, and points say
    that their factor is not known.
    """

    known = False

    def bound(self, parameters: Mapping[str, Tensor], distance: float) -> float:
        """Return a half, whatever the parameters are.

        Raises:
            NotFiniteError: A parameter is NaN or Inf.
        """
        check_finite(parameters)
        return 0.5


class UncertifiedContraction(CarriedFormula):
    """The same of a system that names no certificate, whose equilibria need only be alone near by.

    Where its factor is not below one, nothing is known of it from there on, as in `UnknownContraction`.
    """

    def bound(self, parameters: Mapping[str, Tensor], distance: float) -> float:
        """Return the bound, or a half where it is not known any more."""
        if self.known:
            try:
                return super().bound(parameters, distance)
            except WellPosednessError:
                self.known = False
        check_finite(parameters)
        return 0.5

    def state(self) -> dict[str, Any]:
        """Return what a later run needs to go on in the very same way."""
        return {**super().state(), "known": self.known}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned.

        Raises:
            ValueError: It is not what the factor of this model returns.
        """
        super().restore(state)
        if not isinstance(state["known"], bool):
            raise ValueError("`known` must be true or false")
        self.known = state["known"]


def carried_contraction(model: EquilibriumModel) -> CarriedContraction:
    """Return what carries the contraction factor of a model.

    Args:
        model: The model.
    """
    if isinstance(model, ModuleModel):
        return UnknownContraction(model)
    if isinstance(model, FormulaModel) and model.layer_form() is None:
        factor = model.programs.factor
        if factor is not None:
            return (UncertifiedContraction if model.signature.local else CarriedFormula)(model, factor)
    return CarriedContraction(model)
