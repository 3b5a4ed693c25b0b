"""The contraction factor of a model along a run, without a decomposition at every step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium.warm import NotFiniteError
from ntk_deq.errors import NtkDeqError
from ntk_deq.files.archives import stored_count, stored_number, stored_tensor
from ntk_deq.language.declaration import Role
from ntk_deq.systems.formula_layer import spectral_norms
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

    The factor is a formula of norms, as gamma norm(A) or norm(W)^2: each is carried by Weyl's inequality, norm(E) <=
    norm(E0) + fro(E - E0) with E0 at the reference, and the formula says what follows. Where each is the norm of a
    parameter as it stands, and no other parameter is in the formula, distances are measured on the device. A model
    whose factor is no formula is asked for it every time.

    Of a user's module nothing is known; of a system that names no certificate, whose equilibria need only be alone near
    by, nothing from where its factor is not below one. Then solves stop where the residual is small, as if the map
    contracted by a half; no error bound follows, and points say that their factor is not known.

    Args:
        model: The model.

    Attributes:
        known: Whether `bound` is a bound.
        refreshed: How often the factor was computed anew.
    """

    def __init__(self, model: EquilibriumModel) -> None:
        factor = model.programs.factor if isinstance(model, FormulaModel) else None
        self.known, self._local = not isinstance(model, ModuleModel), factor is not None and model.signature.local
        self._model, self._factor = model, factor
        self._formulas = model if isinstance(model, FormulaModel) else None
        constants = (*model.signature.names(Role.HYPERPARAMETER), *model.signature.sizes)
        self._names = () if factor is None else factor.plain_names(model.parameters(), constants)
        self._matrices: list[Tensor] = []
        self._norms: list[float] = []
        self._path: Tensor | None = None  # an upper bound of the distance from the reference, on the device
        self._of_norms: Callable[[Sequence[float]], float | None] | None = None
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
        if self._path is None:
            out.fill_(math.inf)
            return
        if moved is None:
            self._path.copy_(self._distance(parameters))
        else:
            for name in self._names:
                self._path.add_(moved[name])
        out.copy_(self._path)

    def _distance(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return how far the parameters in the norms are from the reference, added up."""
        apart = [torch.dist(parameters[name], then) for name, then in zip(self._names, self._matrices, strict=True)]
        return apart[0] if len(apart) == 1 else torch.stack(apart).sum()

    def bound(self, parameters: Mapping[str, Tensor], distance: float) -> float:
        """Return the bound, after new decompositions where the carried one has drifted; a half where nothing is known.

        Args:
            parameters: The present parameters.
            distance: As `measure` wrote it for them.

        Raises:
            NotFiniteError: A parameter is NaN or Inf.
            WellPosednessError: The factor is not below one.
        """
        try:
            if self.known:
                return self._bound(parameters, distance)
        except WellPosednessError:
            if not self._local:
                raise
            self.known = False
        check_finite(parameters)
        return 0.5

    def _bound(self, parameters: Mapping[str, Tensor], distance: float) -> float:
        if self._path is not None:
            carried = self._near([distance] * len(self._norms))
            if carried is None:  # the way was longer than the distance, perhaps
                self._path.copy_(self._distance(parameters))
                carried = self._near([float(self._path)] * len(self._norms))
            if carried is not None:
                return carried
        if self._factor is None or self._formulas is None:
            check_finite(parameters)
            self.refreshed += 1
            return self._checked(float(self._model.contraction_bound(parameters)))
        fixed = self._formulas.fixed_of(parameters)
        matrices = self._factor.matrices(fixed)
        if self._path is None:
            self._of_norms = self._factor.of_norms(fixed)
            if self._matrices:
                moved = [float(torch.dist(now, then)) for now, then in zip(matrices, self._matrices, strict=True)]
                if (carried := self._near(moved)) is not None:
                    return carried
        check_finite(parameters)
        self.refreshed += 1
        norms = spectral_norms(matrices)
        self._of_norms = self._factor.of_norms(fixed)
        factor = self._of_norms(norms)
        value = self._checked(self._factor.value(fixed) if factor is None else factor)
        self._matrices, self._norms = [matrix.clone() for matrix in matrices], norms
        self._path = matrices[0].new_zeros((), dtype=torch.float64) if self._names else None
        return value

    def _checked(self, factor: float) -> float:
        if not factor < 1:
            raise WellPosednessError(
                f"No certificate that the equilibrium of {self._model.signature.name} exists: the bound of its "
                f"contraction factor is {factor:.9g}, not below one."
            )
        return factor

    def _near(self, moved: Sequence[float]) -> float | None:
        """Return the factor at so much larger norms; None where it has drifted, or might fall with one."""
        assert self._of_norms is not None
        same = self._of_norms(self._norms)
        carried = self._of_norms([norm + way for norm, way in zip(self._norms, moved, strict=True)])
        if carried is None or same is None or not carried - same <= _SHARE * (1 - same):
            return None
        return carried

    def state(self) -> dict[str, Any]:
        """Return what a later run needs to go on in the very same way."""
        return {
            "matrices": list(self._matrices),
            "norms": list(self._norms),
            "path": self._path,
            "refreshed": self.refreshed,
            **({"known": self.known} if self._local else {}),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned.

        Raises:
            ValueError: It is not what the factor of this model returns.
        """
        self.refreshed = stored_count(state["refreshed"], "refreshed")
        if self._local:
            if not isinstance(state["known"], bool):
                raise ValueError("`known` must be true or false")
            self.known = state["known"]
        if not state["norms"] or self._factor is None or self._formulas is None:
            return
        fixed = self._formulas.fixed_of(self._model.parameters())
        like = self._factor.matrices(fixed)
        if len(state["norms"]) != len(like) or len(state["matrices"]) != len(like):
            raise ValueError("`norms` must be those of the factor's formula, each with its matrix")
        found = zip(state["matrices"], like, strict=True)
        self._matrices = [stored_tensor(stored, matrix, "matrices") for stored, matrix in found]
        self._norms = [stored_number(norm, "norms", 0.0) for norm in state["norms"]]
        self._of_norms = self._factor.of_norms(fixed)
        if self._names:
            self._path = stored_tensor(state["path"], like[0].new_zeros((), dtype=torch.float64), "path")


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
