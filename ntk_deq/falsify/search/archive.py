"""What a campaign has found: counterexample candidates, near misses, the instance nearest to the hypotheses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ntk_deq.falsify.instance import Instance
from ntk_deq.falsify.score import Score, Scorer, Scores
from ntk_deq.falsify.search.space import Space

CLEAR = 1e-9
"""A margin beyond this is no rounding: see `ntk_deq.verify.quantity.TIGHT`."""

_KEPT = 3  # candidates of each goal and each choice of sizes
_TRIALS = 4  # of the same, that are offered to the judge during the search; each costs a few evaluations' time
_DEEPER = 1.5  # by which a candidate must break the claim harder than the last one tried, to be tried as well


@dataclass(frozen=True)
class Found:
    """One instance worth keeping.

    Attributes:
        instance: The instance.
        score: Its score; the margin is that of the goal.
        goal: Which goal it is about.
        rough: How many of its numbers are not small fractions.
    """

    instance: Instance
    score: Score
    goal: int
    rough: int

    @property
    def certain(self) -> bool:
        """Whether no margin is as small as rounding."""
        return self.score.feasible > CLEAR and self.score.margin < -CLEAR

    @property
    def order(self) -> tuple[bool, int, int, float]:
        """Sort key of candidates, best first: certain ones, small ones, plain ones, deep ones."""
        entries = sum(value.numel() for value in self.instance.values.values())
        return not self.certain, entries, self.rough, self.score.margin


class Archive:
    """Keeps the best of every batch that is evaluated.

    Args:
        scorer: What scored them.
        confirm: Decides a candidate for certain, or None; once it says yes the campaign is over.
        satisfying: Whether instances that meet the hypotheses are what is looked for.
    """

    def __init__(
        self, scorer: Scorer, confirm: Callable[[Instance], bool] | None = None, *, satisfying: bool = False
    ) -> None:
        self._scorer = scorer
        self._confirm = confirm
        self._satisfying = satisfying
        self._candidates: dict[tuple[int, tuple[int, ...]], list[Found]] = {}
        self._trials: dict[tuple[int, tuple[int, ...]], list[Found]] = {}
        self._near: dict[tuple[int, ...], Found] = {}
        self.nearest: Found | None = None
        self.confirmed: Instance | None = None

    def add(self, space: Space, vectors: Tensor, scores: Scores, family: str) -> None:
        """Look through a batch.

        Args:
            space: The coordinates of the batch.
            vectors: The points.
            scores: Their scores.
            family: What to call instances from it.
        """
        feasible = scores.feasible
        meets = feasible >= 0
        rough = _roughness(space, vectors)
        if self._satisfying or not bool(meets.any()):
            self._add_nearest(space, vectors, scores, family, rough)
            if not (self._satisfying and bool(meets.any())):
                return
        sizes = tuple(space.base.sizes.values())
        for goal in range(len(self._scorer.goals)):
            margins = scores.goals[:, goal]
            broken = meets if self._satisfying else meets & (margins < (0.0 if self._scorer.strict[goal] else -CLEAR))
            if bool(broken.any()):
                self._add_candidates(space, vectors, broken, margins, feasible, rough, goal, family)
            open_ = meets & ~broken
            if bool(open_.any()):
                place = int(torch.where(open_, margins, math.inf).argmin())
                known = self._near.get(sizes)
                if known is None or float(margins[place]) < known.score.margin:
                    found = self._found(space, vectors, place, feasible, margins, rough, goal, family)
                    if found is not None:
                        self._near[sizes] = found

    def _add_candidates(
        self,
        space: Space,
        vectors: Tensor,
        broken: Tensor,
        margins: Tensor,
        feasible: Tensor,
        rough: Tensor,
        goal: int,
        family: str,
    ) -> None:
        """Keep the deepest candidate of a batch, and the plainest."""
        key = (goal, tuple(space.base.sizes.values()))
        deep = -feasible if self._satisfying else torch.where(feasible > CLEAR, margins, margins.clamp_min(-CLEAR))
        places = [int(torch.where(broken, by, math.inf).argmin()) for by in (deep, rough + 1e-3 * margins)]
        for place in dict.fromkeys(places):
            kept = self._candidates.setdefault(key, [])
            found = self._found(space, vectors, place, feasible, margins, rough, goal, family)
            if found is None or any(found.score == other.score for other in kept):
                continue
            kept.append(found)
            kept.sort(key=lambda f: f.order)
            del kept[_KEPT:]
            if found in kept:
                self._try(key, found)

    def _try(self, key: tuple[int, tuple[int, ...]], found: Found) -> None:
        """Offer a candidate to the judge, if it stands out from those tried before."""
        tried = self._trials.setdefault(key, [])
        new = all(
            found.score.margin < _DEEPER * other.score.margin
            or found.rough < other.rough
            or (found.certain and not other.certain)
            for other in tried
        )
        if self._confirm is None or self.confirmed is not None or not new or len(tried) >= _TRIALS:
            return
        tried.append(found)
        if self._confirm(found.instance):
            self.confirmed = found.instance

    def _add_nearest(self, space: Space, vectors: Tensor, scores: Scores, family: str, rough: Tensor) -> None:
        feasible = scores.feasible
        place = int(feasible.argmax())
        if not math.isfinite(float(feasible[place])) or (
            self.nearest is not None and float(feasible[place]) <= self.nearest.score.feasible
        ):
            return
        margins = scores.margin
        self.nearest = self._found(space, vectors, place, feasible, margins, rough, 0, family) or self.nearest

    def _found(
        self,
        space: Space,
        vectors: Tensor,
        place: int,
        feasible: Tensor,
        margins: Tensor,
        rough: Tensor,
        goal: int,
        family: str,
    ) -> Found | None:
        instance = space.instance(vectors[place], family=family)
        if instance is None:
            return None
        return Found(instance, Score(float(feasible[place]), float(margins[place])), goal, int(rough[place]))

    def candidates(self) -> tuple[Found, ...]:
        """Return the candidates, best first: one of each goal and sizes before the second of any."""
        ranked = sorted(self._candidates.values(), key=lambda kept: kept[0].order)
        rounds = [[kept[place] for kept in ranked if len(kept) > place] for place in range(_KEPT)]
        found = [entry for entries in rounds for entry in entries]
        if self.confirmed is not None:
            found.sort(key=lambda f: f.instance is not self.confirmed)
        return tuple(found)

    def near_misses(self) -> tuple[Found, ...]:
        """Return the tightest feasible instances, one for each choice of sizes, tightest first."""
        return tuple(sorted(self._near.values(), key=lambda f: f.score.margin))


def renamed(found: Found, family: str) -> Found:
    """Return the same under another family's text."""
    return replace(found, instance=replace(found.instance, family=family))


def _roughness(space: Space, vectors: Tensor) -> Tensor:
    """Count, for each point, the values that are not multiples of 1/8 below 1000."""
    total = torch.zeros(len(vectors), dtype=torch.float64)
    for value in space.decode(vectors).values():
        flat = value.detach().reshape(len(vectors), -1)
        total += ((flat * 8 != (flat * 8).round()) | (flat.abs() >= 1000)).sum(1)
    return total
