"""Picard iteration: the plain method, and the reference for the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium.solvers.base import Solver


@dataclass(frozen=True)
class Picard(Solver):
    """Iterate z <- f(z); converges linearly with factor q for a q-contraction.

    References:
        Banach (1922), Fundamenta Mathematicae 3, 133-181.

    Example:
        >>> Picard().name
        'picard'
    """

    name: ClassVar[str] = "picard"

    def init_state(self, point: Float[Tensor, "B n"]) -> None:
        """Return no state."""

    def advance(
        self, point: Float[Tensor, "B n"], image: Float[Tensor, "B n"], residual: Float[Tensor, " B"], state: None
    ) -> tuple[Float[Tensor, "B n"], None]:
        """Return the image."""
        return image, None
