"""What a campaign has found: counterexample candidates, near misses, the instance nearest to the hypotheses.

How an instance stands to a claim in plain floating point: what the search follows, and no verdict rests on. One choice
of sizes at which a search looks: the best points known there for each goal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from ntk_deq.evaluation.instance import Instance
from ntk_deq.falsify.search import Space
from ntk_deq.language.domain import Free


@dataclass(frozen=True, slots=True)
class Score:
    """The relative margins of one instance; positive is good for the claim.

    Attributes:
        feasible: The smallest margin of the hypotheses: inf where there are none, -inf where the claim is undefined.
        margin: The smallest margin of the conclusions; inf where the claim is undefined.
    """

    feasible: float
    margin: float


@dataclass(frozen=True)
class Scores:
    """The relative margins of many instances of the same sizes, comparison by comparison.

    Attributes:
        hypotheses: instances x comparisons of the hypotheses.
        goals: instances x comparisons of the conclusions; to make one of them negative is a goal of the search.
        defined: For each instance, whether every formula has a value there.
        equations: Which columns of the hypotheses are equations: almost no instance meets one.
    """

    hypotheses: Tensor
    goals: Tensor
    defined: Tensor
    equations: tuple[bool, ...] = ()

    @property
    def feasible(self) -> Tensor:
        """The smallest margin of the hypotheses of each instance: see `Score`."""
        if self.hypotheses.shape[1] == 0:
            smallest = self.hypotheses.new_full((len(self.hypotheses),), math.inf)
        else:
            smallest = self.hypotheses.amin(1)
        return torch.where(self.defined, smallest, -math.inf)

    @property
    def margin(self) -> Tensor:
        """The smallest margin of the conclusions of each instance: see `Score`."""
        return torch.where(self.defined, self.goals.amin(1), math.inf)

    def of(self, place: int) -> Score:
        """Return the score of one instance."""
        return Score(float(self.feasible[place].detach()), float(self.margin[place].detach()))


class Scorer(Protocol):
    """Measures instances of one setting against one claim.

    Attributes:
        hypotheses: How many columns `Scores.hypotheses` has.
        needs: For each of them, the variables that it depends on.
        goals: What each column of `Scores.goals` compares, for people.
        strict: For each goal, whether equality breaks it.
        uses: The variables that the claim depends on.
        differentiable: Whether gradients flow through the scores.
        joint: Whether equations are solved jointly: such a system may have other solutions than the one found.
    """

    hypotheses: int
    needs: tuple[frozenset[str], ...]
    goals: tuple[str, ...]
    strict: tuple[bool, ...]
    uses: frozenset[str]
    differentiable: bool
    joint: bool

    @property
    def budget(self) -> float:
        """What a search may cost by default, in instances that are scored alone."""

    def __call__(self, base: Instance, moving: Mapping[str, Tensor]) -> Scores:
        """Score an instance with some variables replaced, each by many values along a new first dimension."""

    def margins(self, base: Instance, moving: Mapping[str, Tensor], columns: Sequence[int] | None = None) -> Tensor:
        """Return the margins of some columns of the hypotheses, or of all; -inf where one has no value."""

    def cost(self, base: Instance, columns: Sequence[int] | None = None) -> tuple[float, float]:
        """Return what a call costs on its own, and for each instance in it; 1 is an instance scored alone.

        With `columns`: the same of `margins`.
        """


CLEAR = 1e-9
"""A margin beyond this is no rounding: see `ntk_deq.evaluation.quantity.TIGHT`."""

_KEPT = 3  # candidates of each goal and each choice of sizes
_TRIALS = 4  # clear candidates of the same that are offered to the judge during the search, besides plainer ones
_DEEPER = 1.5  # by which one must break the claim harder than those tried before, to be tried as well

Key = tuple[int | None, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Found:
    """One instance worth keeping.

    Attributes:
        instance: The instance.
        score: Its score; the margin is that of the goal.
        depth: What is to be small: the goal's margin, or what the hypotheses lack.
        clear: Whether no margin is as small as rounding.
        rough: How many of its numbers are no small fractions.
    """

    instance: Instance
    score: Score
    depth: float
    clear: bool
    rough: int

    @property
    def order(self) -> tuple[bool, int, int, float]:
        """Sort key of candidates, best first: clear ones, small ones, plain ones, deep ones."""
        entries = sum(value.numel() for value in self.instance.values.values())
        return not self.clear, entries, self.rough, self.depth


@dataclass(frozen=True)
class _Batch:
    """Points that were scored together; see `Found` for the columns."""

    space: Space
    vectors: Tensor
    family: str
    feasible: Tensor
    rough: Tensor

    def found(self, place: int, margin: Tensor, depth: Tensor, clear: Tensor) -> Found | None:
        """Return one of the points, or None where rounding has put it outside its domain."""
        instance = self.space.instance(self.vectors[place], family=self.family)
        if instance is None:
            return None
        score = Score(float(self.feasible[place]), float(margin[place]))
        return Found(instance, score, float(depth[place]), bool(clear[place]), int(self.rough[place]))


class Archive:
    """Keeps the best of every batch that is evaluated.

    Args:
        scorer: What scored them.
        confirm: Decides a candidate for certain, or None; once it says yes the campaign is over.
        satisfying: Whether instances that meet the hypotheses are what is looked for.

    Attributes:
        nearest: The instance that comes closest to meeting the hypotheses.
        confirmed: The candidate that was confirmed.
        edges_fail: Whether some candidate whose hypotheses hold but for rounding was refused: others may be like it.
    """

    def __init__(
        self, scorer: Scorer, confirm: Callable[[Instance], bool] | None = None, *, satisfying: bool = False
    ) -> None:
        self._scorer = scorer
        self._confirm = confirm
        self._satisfying = satisfying
        self._candidates: dict[Key, list[Found]] = {}
        self._trials: dict[Key, list[Found]] = {}
        self._near: dict[tuple[int, ...], Found] = {}
        self.nearest: Found | None = None
        self.confirmed: Instance | None = None
        self.edges_fail = False

    @property
    def edge(self) -> float:
        """The margin of a hypothesis from which on an instance counts as inside."""
        return CLEAR if self.edges_fail else 0.0

    def add(self, space: Space, vectors: Tensor, scores: Scores, family: str) -> None:
        """Look through a batch.

        Args:
            space: The coordinates of the batch.
            vectors: The points.
            scores: Their scores.
            family: What to call instances from it.
        """
        batch = _Batch(space, vectors, family, scores.feasible, _roughness(space, vectors))
        meets = batch.feasible >= 0
        if not bool(meets.any()):
            self._add_nearest(batch, scores.margin)
        elif self._satisfying:
            self._add_candidates(batch, None, meets, scores.margin, -batch.feasible, batch.feasible > CLEAR)
        else:
            for goal in range(len(self._scorer.goals)):
                self._add_goal(batch, goal, meets, scores.goals[:, goal])

    def _add_goal(self, batch: _Batch, goal: int, meets: Tensor, margins: Tensor) -> None:
        """Keep those points of a batch that break a goal, or else come close to it."""
        clear = (batch.feasible > CLEAR) & (margins < -CLEAR)
        broken = meets & (margins < (0.0 if self._scorer.strict[goal] else -CLEAR))
        if bool(broken.any()):
            # One at the edge of the hypotheses is harder to decide than one that breaks the goal by less.
            depth = torch.where(batch.feasible > CLEAR, margins, margins.clamp_min(-CLEAR))
            self._add_candidates(batch, goal, broken, margins, depth, clear)
        rest = meets & ~broken
        if bool(rest.any()):
            place = int(torch.where(rest, margins, math.inf).argmin())
            sizes = tuple(batch.space.base.sizes.values())
            if sizes not in self._near or float(margins[place]) < self._near[sizes].depth:
                found = batch.found(place, margins, margins, clear)
                if found is not None:
                    self._near[sizes] = found

    def _add_candidates(
        self, batch: _Batch, goal: int | None, broken: Tensor, margins: Tensor, depth: Tensor, clear: Tensor
    ) -> None:
        """Keep the deepest candidate of a batch, and the plainest."""
        key = (goal, tuple(batch.space.base.sizes.values()))
        places = [int(torch.where(broken, by, math.inf).argmin()) for by in (depth, batch.rough + 1e-3 * depth)]
        kept = self._candidates.setdefault(key, [])
        for place in dict.fromkeys(places):
            found = batch.found(place, margins, depth, clear)
            if found is None or any(found.score == k.score and found.rough >= k.rough for k in kept):
                continue
            kept.append(found)
            kept.sort(key=lambda f: f.order)
            del kept[_KEPT:]
            if found in kept:
                self._try(key, found)

    def _try(self, key: Key, found: Found) -> None:
        """Offer a candidate to the judge, if it stands out from those tried before."""
        if self._confirm is None or self.confirmed is not None:
            return
        tried = self._trials.setdefault(key, [])
        plainer = all(found.rough < other.rough for other in tried)
        depths = [other.depth for other in tried if other.clear]
        deeper = found.clear and len(depths) < _TRIALS and all(found.depth < _DEEPER * depth for depth in depths)
        if not plainer and not deeper:
            return
        tried.append(found)
        if self._confirm(found.instance):
            self.confirmed = found.instance
        elif found.score.feasible <= CLEAR:
            self.edges_fail = True

    def _add_nearest(self, batch: _Batch, margins: Tensor) -> None:
        place = int(batch.feasible.argmax())
        feasible = float(batch.feasible[place])
        if math.isfinite(feasible) and (self.nearest is None or feasible > self.nearest.score.feasible):
            clear = torch.zeros_like(batch.feasible, dtype=torch.bool)
            self.nearest = batch.found(place, margins, -batch.feasible, clear) or self.nearest

    def candidates(self) -> tuple[Found, ...]:
        """Return the candidates, best first: one of each goal and sizes before the second of any."""
        ranked = sorted((kept for kept in self._candidates.values() if kept), key=lambda kept: kept[0].order)
        rounds = [[kept[place] for kept in ranked if len(kept) > place] for place in range(_KEPT)]
        found = [entry for entries in rounds for entry in entries]
        if self.confirmed is not None:
            found.sort(key=lambda f: f.instance is not self.confirmed)
        return tuple(found)

    def near_misses(self) -> tuple[Found, ...]:
        """Return the tightest feasible instances, one for each choice of sizes, tightest first."""
        return tuple(sorted(self._near.values(), key=lambda f: f.depth))


def _roughness(space: Space, vectors: Tensor) -> Tensor:
    """Count, for each point, the values that are not multiples of 1/8 below 1000."""
    total = torch.zeros(len(vectors), dtype=torch.float64)
    for value in space.decode(vectors).values():
        flat = value.detach().reshape(len(vectors), -1)
        total += ((flat * 8 != (flat * 8).round()) | (flat.abs() >= 1000)).sum(1)
    return total


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
