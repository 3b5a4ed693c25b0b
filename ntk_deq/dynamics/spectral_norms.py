"""Spectral norms of all parameters along a run in floating point, with a decomposition now and then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.dynamics.stored_values import stored_number

if TYPE_CHECKING:
    from ntk_deq.dynamics.recorders import Observation

# Half width of the bounds, relative to the norm, from which on a new decomposition is made: below the width of a line
# in a figure. `CarriedNorm` gives proven bounds.
_WIDEST = 1e-3


class SpectralNorms:
    """Bounds on the spectral norm of each parameter, carried by Weyl's inequality |norm(A) - norm(B)| <= fro(A - B).

    A vector's norm is its length and costs no decomposition. Computed in floating point: rounding is not in the bounds.

    References:
        Weyl (1912), Math. Ann. 71, 441-479.
    """

    def __init__(self) -> None:
        self._references: dict[str, Tensor] = {}
        self._norms: dict[str, float] = {}
        self.decompositions = 0

    def __call__(self, seen: Observation) -> Float[Tensor, "p 2"]:
        """Return the lower and the upper bound for each parameter."""
        rows = [self._bounds(name, value) for name, value in seen.parameters.items()]
        return torch.tensor(rows, dtype=torch.float64)

    def _bounds(self, name: str, value: Tensor) -> tuple[float, float]:
        if value.ndim < 2:
            length = float(torch.linalg.vector_norm(value))
            return length, length
        reference = self._references.get(name)
        if reference is not None and (reference.shape, reference.dtype, reference.device) == (
            value.shape,
            value.dtype,
            value.device,
        ):
            distance, norm = float(torch.dist(value, reference)), self._norms[name]
            if distance <= _WIDEST * norm:
                return norm - distance, norm + distance
        norm = float(torch.linalg.matrix_norm(value, ord=2))
        self.decompositions += 1
        self._references[name], self._norms[name] = value.clone(), norm
        return norm, norm

    def state(self) -> dict[str, Any]:
        """Return what a resumed run must know."""
        return {"references": dict(self._references), "norms": dict(self._norms)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned.

        Raises:
            ValueError: It is not what these norms return.
        """
        references, norms = dict(state["references"]), dict(state["norms"])
        if references.keys() != norms.keys() or not all(isinstance(value, Tensor) for value in references.values()):
            raise ValueError("`norm` must remember a tensor and its norm for each parameter")
        self._references = references
        self._norms = {name: stored_number(value, f"norms.{name}") for name, value in norms.items()}
