"""Damped (Krasnoselskii-Mann) iteration: breaks cycles of maps that do not contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium.solvers.base import Solver
from ntk_deq.errors import ArgumentError


@dataclass(frozen=True)
class Damped(Solver):
    """Iterate z <- z + damping (f(z) - z).

    Converges for non-expansive f with a fixed point when 0 < damping < 1; damping = 1 is Picard iteration.

    Attributes:
        damping: Share of the plain step that is taken, in (0, 1].

    References:
        Krasnoselskii (1955), Uspekhi Mat. Nauk 10, 123-127; Mann (1953), Proc. AMS 4, 506-510.

    Example:
        >>> Damped(damping=0.25)
        Damped(damping=0.25)
    """

    damping: float = 0.5
    name: ClassVar[str] = "damped"

    def __post_init__(self) -> None:
        if not (isinstance(self.damping, int | float) and 0 < self.damping <= 1):
            raise ArgumentError(f"`damping` of the solver damped must be a number in (0, 1]. Got {self.damping!r}.")

    def init_state(self, point: Float[Tensor, "B n"]) -> None:
        """Return no state."""

    def advance(
        self, point: Float[Tensor, "B n"], image: Float[Tensor, "B n"], residual: Float[Tensor, " B"], state: None
    ) -> tuple[Float[Tensor, "B n"], None]:
        """Return the point between the present one and its image."""
        return point + self.damping * (image - point), None
