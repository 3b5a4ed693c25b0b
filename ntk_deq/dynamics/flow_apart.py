"""How far two integrations of the same flow are apart."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ntk_deq.dynamics.record import Snapshot


@dataclass(frozen=True)
class Apart:
    """How far two integrations are apart at most: in all parameters together, in each, and in the length of a path.

    The rounding of the recorded parameters is added.
    """

    together: float
    by_parameter: dict[str, float]
    path: float

    def or_more(self, first: Snapshot, second: Snapshot) -> Apart:
        """Take in another time."""
        norm = torch.linalg.vector_norm
        # Both are rounded from displacements, by half a unit in the last place each.
        moved = [
            norm(value - second.parameters[name]) + torch.finfo(value.dtype).eps / 2 * norm(value)
            for name, value in first.parameters.items()
        ]
        distances = dict(zip(first.parameters, torch.stack(moved).tolist(), strict=True))
        lengths = [first.path[name] - second.path[name] for name in first.path]
        return Apart(
            max(self.together, math.hypot(*distances.values())),
            {name: max(distance, distances[name]) for name, distance in self.by_parameter.items()},
            max(self.path, *map(abs, (first.path_length - second.path_length, *lengths))),
        )
