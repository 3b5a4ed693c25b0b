"""One choice of sizes at which a search looks: the best points known there for each goal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ntk_deq.claims.claim import Free
from ntk_deq.falsify.instance import Instance
from ntk_deq.falsify.search.space import Space

_SAME = 1e-6  # values that differ by less lead to the same place, such as the points where a true bound is attained
_TIES = 2  # of them are remembered
_TIGHT = 0.25
_POOL = 12  # points remembered for each goal

Known = tuple[float, Instance]


@dataclass
class Place:
    """One choice of sizes, and of drawn data.

    Attributes:
        base: A plain instance of these sizes; gives the values of what does not move.
        free: The variables that move.
        flat: Goals that every point so far has given zero, as those of an identity do.
        pools: The best points for each goal with their values, best first; goal None is to meet the hypotheses.
        met: Whether some point meets the hypotheses.
    """

    base: Instance
    free: Mapping[str, Free]
    flat: set[int | None]
    pools: dict[int | None, list[Known]] = field(default_factory=dict)
    met: bool = False

    def remember(self, goal: int | None, space: Space, values: Tensor, vectors: Tensor) -> None:
        """Remember the best of some points.

        Args:
            goal: What they are valued for.
            space: Their coordinates.
            values: Their values: small is good.
            vectors: The points, points x coordinates.
        """
        pool = self.pools.setdefault(goal, [])
        for index in values.argsort(stable=True)[:_POOL].tolist():
            instance = space.instance(vectors[index], family="")
            value = float(values[index])
            if instance is not None and math.isfinite(value) and all(abs(value - known) > _SAME for known, _ in pool):
                pool.append((value, instance))
        pool.sort(key=lambda entry: entry[0])
        # Many ties are one: they leave room for points from which a descent leads on.
        ties = [entry for entry in pool if _is_tie(entry)]
        pool[:] = [*(e for e in pool if e[0] < 0), *ties[:_TIES], *(e for e in pool if e[0] >= _SAME)][:_POOL]

    def add(self, goal: int | None, space: Space, found: list[tuple[float, Tensor]]) -> None:
        """Remember what a descent came to: values and points."""
        for value, vector in found:
            self.remember(goal, space, torch.tensor([value], dtype=torch.float64), vector.unsqueeze(0))

    def best(self, goal: int | None) -> float:
        """Return the best value; one at equality, from which no descent leads on, counts as a poor one."""
        first = self.pools[goal][0]
        return _TIGHT if _is_tie(first) else first[0]

    def leading(self, goal: int | None) -> list[Known]:
        """Return the points that are no ties, or else all."""
        return [entry for entry in self.pools[goal] if not _is_tie(entry)] or self.pools[goal]


def _is_tie(entry: Known) -> bool:
    return 0 <= entry[0] < _SAME
