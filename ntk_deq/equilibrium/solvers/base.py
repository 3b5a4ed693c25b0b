"""The interface of a fixed-point solver: given the present point and its image, propose the next point."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from jaxtyping import Bool, Float
from torch import Tensor


class Solver(ABC):
    """An iteration for z = f(z); concrete solvers are frozen dataclasses whose fields are their options.

    A solver never decides that a sample is solved or lost: the driver does, by the true residual. It works on all
    samples at once, one sample a row, and must treat rows independently. Its state is an immutable value of its own.
    """

    name: ClassVar[str]

    @abstractmethod
    def init_state(self, point: Float[Tensor, "B n"]) -> Any:
        """Return the state that belongs to a fresh start at `point`."""

    @abstractmethod
    def advance(
        self, point: Float[Tensor, "B n"], image: Float[Tensor, "B n"], residual: Float[Tensor, " B"], state: Any
    ) -> tuple[Float[Tensor, "B n"], Any]:
        """Propose the next point.

        Args:
            point: The present point z.
            image: f(z).
            residual: norm(f(z) - z) by sample; inf where f(z) is not finite.
            state: What the last call (or `init_state`) returned.

        Returns:
            The next point and the next state. Rows of samples that the driver has stopped are ignored.
        """

    def rejects(self, residual: Float[Tensor, " B"], state: Any) -> Bool[Tensor, " B"] | None:
        """Say which samples stand at a trial point that `advance` will discard; None where there are no trial points.

        The driver does not hold the image of such a point against the sample.
        """
        return None
