"""The search's view of an instance: a vector of free real numbers, and back, without leaving a domain."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ntk_deq.claims.claim import Free, Setting
from ntk_deq.claims.distributions import scalar_names
from ntk_deq.falsify.domains import MOST_ROUNDING, contains, rounding
from ntk_deq.falsify.instance import Instance
from ntk_deq.falsify.search.charts import chart


def movable(setting: Setting, given: Mapping[str, Free], uses: Collection[str]) -> dict[str, Free]:
    """Return the variables that a search may move: quantified, used by the claim, and not below a distribution.

    Drawn data stay as they were drawn, and so does a scalar that a distribution uses.

    Args:
        setting: The setting.
        given: Further variables that the claim quantifies over.
        uses: What the claim depends on.
    """
    fixed = {node.name for draw in setting.draws.values() for node in scalar_names(draw.distribution)}
    taken = fixed | set(setting.draws)
    return {name: v for name, v in {**setting.free, **given}.items() if name in uses and name not in taken}


class Space:
    """Coordinates of some variables of an instance.

    Args:
        free: The variables that move.
        base: Gives the sizes, and the values of everything else.
        smooth: Whether restricted entries have smooth coordinates (for descents) or plain ones (their own values).

    Attributes:
        size: How many coordinates there are.
        blocks: Where each variable's stand.
    """

    def __init__(self, free: Mapping[str, Free], base: Instance, *, smooth: bool) -> None:
        self.base = base
        self.free = {name: variable for name, variable in free.items() if name in base.values}
        self._charts = {
            name: chart(variable.domain, tuple(base.values[name].shape), smooth=smooth)
            for name, variable in self.free.items()
        }
        self.blocks: dict[str, slice] = {}
        start = 0
        for name, coordinates in self._charts.items():
            self.blocks[name] = slice(start, start + coordinates.size)
            start += coordinates.size
        self.size = start

    def encode(self, instance: Instance) -> Tensor:
        """Return the coordinates of an instance with the base's sizes."""
        parts = [coordinates.encode(instance.values[name]) for name, coordinates in self._charts.items()]
        return torch.cat([part.reshape(-1) for part in parts]) if parts else torch.zeros(0, dtype=torch.float64)

    def decode(self, vectors: Tensor) -> dict[str, Tensor]:
        """Return the values at many points: count x size to count x shape for each variable."""
        return {name: self._charts[name].decode(vectors[:, block]) for name, block in self.blocks.items()}

    def instance(self, vector: Tensor, *, family: str) -> Instance | None:
        """Return the instance at a point, or None where rounding has put a value outside its domain.

        Args:
            vector: The point.
            family: What to call it.
        """
        # Adding zero turns negative zeros, which people would wonder at, into plain ones.
        values = {name: value[0].detach() + 0.0 for name, value in self.decode(vector.detach().unsqueeze(0)).items()}
        rounded = {name: radius for name, radius in self.base.rounded.items() if name not in values}
        for name, value in values.items():
            domain = self.free[name].domain
            if not contains(domain, value):
                rounded[name] = rounding(domain, value)
                if rounded[name] > MOST_ROUNDING:
                    return None
        return replace(self.base, family=family, values={**self.base.values, **values}, rounded=rounded)
