"""The adversary: searches one setting of a claim for instances that break it, within a budget of evaluations.

Small sizes come first. At each choice of sizes structured points are looked at, plain random draws, and draws that
are moved into the hypotheses; then descents go on from the best of them, by gradients, moves, evolution and climbs from
corner to corner in turn, for each comparison of the conclusions. A budget is what it costs, not a number of points:
small instances that are scored together cost little, so that a cheap claim gets thousands of random draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ntk_deq.evaluation.instance import Instance
from ntk_deq.falsify import instance_at
from ntk_deq.falsify.domains import choose, stream
from ntk_deq.falsify.search import Space, descents, movable
from ntk_deq.falsify.search.archive import Archive, Found, Known, Place, Score, Scorer
from ntk_deq.falsify.search.feasible import SETTLED, Inside
from ntk_deq.falsify.search.objective import Meter, Objective, combined
from ntk_deq.falsify.search.starts import (
    plain_instance,
    random_vectors,
    size_choices,
    structured_instances,
    wild_instances,
)
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Free

_CHOICES = 8, 27  # of sizes in a universal setting: three of each of three letters, fewer where a look costs much
_PLACE = 20  # what a place may cost, at least, where there are more of them than the least number
_DRAWS = 3  # of data in a setting with distributions
_STRUCTURED = 144  # structured points for each choice of sizes, at most: making one takes longer than scoring it
_MAKING = 0.04  # what making a point by hand costs
_DRAWN = 1024  # random points, at most
_INSIDE = 128  # of them moved into the hypotheses, at most
_LOOKING = 0.55  # of the budget goes into all these at most
_LONGER = 2  # times that this doubles
_CHANGE = "change"  # the name of the turn in which one variable of the best points is changed
_PART = "part"  # the name of the turn in which some variables stay where they are
_COPIES = 12  # starts of it, each near and far
_CHANGING = 40.0  # what changing the best points costs, at first
_AIMLESS = 3  # of so many descents all but one look for a point that meets the hypotheses, as long as none is known
_MOVING = 0.5  # share of the variables that move in a descent in some of them
_GOOD_PART, _LED_ON = 0.9, 0.25  # a descent that brings the value below this part of it weighs less than one
_BETTER = 2  # ranks that weigh as much as one descent, when it is decided where to go on
_BATCH_ENTRIES = 2**21  # of all variables of a batch, 16 MiB; larger batches are cut


class Method(Protocol):
    """Makes an objective small."""

    def __call__(
        self, objective: Objective, start: Tensor, budget: int, generator: torch.Generator
    ) -> list[tuple[float, Tensor]]:
        """Return points with small values, best first."""


@dataclass(frozen=True)
class _Turn:
    """A method in its turn.

    Attributes:
        method: What it does.
        slopes: Whether it needs derivatives.
        smooth: Whether it works in smooth coordinates.
        together: How many points it has scored together, about.
        many: Whether it takes several starts.
        effort: What one descent costs, at first.
    """

    method: Method
    slopes: bool
    smooth: bool
    together: int
    many: bool
    effort: float


METHODS: dict[str, _Turn] = {
    "gradient": _Turn(descents.descend, slopes=True, smooth=True, together=32, many=True, effort=100.0),
    "moves": _Turn(descents.try_moves, slopes=False, smooth=False, together=48, many=False, effort=16.0),
    "evolution": _Turn(descents.evolve, slopes=False, smooth=True, together=16, many=False, effort=80.0),
    "corners": _Turn(descents.climb, slopes=False, smooth=False, together=256, many=True, effort=24.0),
}
"""The methods in the order in which they take turns."""


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes:
        candidates: Instances that break the claim in floating point (or meet the hypotheses, where that is looked for),
            best first; the first one is confirmed, where the search could ask and one was.
        near_misses: Instances that meet the hypotheses and come closest to breaking the claim.
        nearest: The instance that comes closest to meeting the hypotheses, where none meets them.
        confirmed: Whether the first candidate is confirmed.
        evaluations: How many instances were scored.
        best: The score of the first candidate, else near miss, else nearest instance.
    """

    candidates: tuple[Instance, ...]
    near_misses: tuple[Instance, ...]
    nearest: Instance | None
    confirmed: bool
    evaluations: int
    best: Score


def search(
    setting: Setting,
    given: Mapping[str, Free],
    *,
    score: Scorer,
    starts: Sequence[Instance],
    budget: float,
    seed: int,
    confirm: Callable[[Instance], bool] | None = None,
    satisfying: bool = False,
) -> SearchResult:
    """Look for instances of a setting on which a claim's hypotheses hold and a conclusion does not.

    Args:
        setting: The setting.
        given: Further variables that the claim quantifies over.
        score: Scores instances against the claim.
        starts: Instances to start from, such as the ladder's tightest.
        budget: What scoring may cost: see `Scorer.cost`.
        seed: The run's seed; the result depends on the arguments alone.
        confirm: Decides whether an instance is one for certain; the search ends at the first that is.
        satisfying: Whether to look for instances on which the hypotheses hold, whatever the conclusions do.
    """
    archive = Archive(score, confirm, satisfying=satisfying)
    goals: Sequence[int | None] = [None] if satisfying else range(len(score.goals))
    return _Campaign(setting, given, score, archive, starts, budget, seed, goals=goals).run()


@dataclass
class _Spot:
    """A goal at a place: how many descents it has had, and how many of the last ones had nothing to do.

    `waits` is what these weigh when it is decided where to go on: one that led on by a good part weighs little.
    """

    place: Place
    goal: int | None
    visits: int = 0
    idle: int = 0
    waits: float = 0.0

    @property
    def value(self) -> float:
        """The best value there."""
        return self.place.best(self.goal)


class _Campaign:
    """One search."""

    def __init__(
        self,
        setting: Setting,
        given: Mapping[str, Free],
        scorer: Scorer,
        archive: Archive,
        starts: Sequence[Instance],
        budget: float,
        seed: int,
        *,
        goals: Sequence[int | None],
    ) -> None:
        self._setting, self._given, self._scorer = setting, given, scorer
        self._archive, self._meter = archive, Meter(budget)
        self._starts, self._seed, self._goals = starts, seed, goals
        self._free = movable(setting, given, scorer.uses)
        self._inside = Inside(setting, given, scorer)
        self._ways = [name for name, way in METHODS.items() if scorer.differentiable or not way.slopes]
        after = 1 if scorer.differentiable else 0
        if len(self._free) > 1:
            self._ways.insert(after, _PART)
        if self._inside.movable:
            self._ways.insert(after, _CHANGE)

    def run(self) -> SearchResult:
        """Look at every place, then descend from the best points until the budget is spent."""
        places = self._places()
        share = _LOOKING * self._meter.budget / max(1, len(places))
        for place in places:
            if self._over():
                break
            self._look(place, share)
        spots = [_Spot(place, goal) for place in places for goal in self._goals if place.pools.get(goal)]
        reconsidered = False
        while spots and self._free and not self._over():
            if self._archive.edges_fail and not reconsidered:
                reconsidered = True
                for place in places:
                    self._reconsider(place)
            spot = self._promising(spots)
            before, value = self._meter.used, spot.value
            self._descend(spot)
            spot.visits += 1
            spot.waits += _LED_ON if spot.value < _GOOD_PART * value else 1.0
            spot.idle = spot.idle + 1 if self._meter.used == before else 0
            flat = spot.goal in spot.place.flat and spot.visits >= len(self._ways)
            if flat or spot.idle >= len(self._ways):
                spots.remove(spot)
        return self._result()

    @staticmethod
    def _promising(spots: list[_Spot]) -> _Spot:
        """Return where to descend next: low values and few visits come first."""
        ranked = sorted(spots, key=lambda spot: spot.value)
        keys = [spot.waits + rank / _BETTER for rank, spot in enumerate(ranked)]
        return ranked[min(range(len(ranked)), key=keys.__getitem__)]

    def _over(self) -> bool:
        return self._archive.confirmed is not None or self._meter.left <= 0

    def _places(self) -> list[Place]:
        if self._setting.universal:
            least, most = _CHOICES
            count = max(least, min(most, int(self._meter.budget / _PLACE)))
            choices = size_choices(self._setting.sizes, self._starts, count)
            bases = [plain_instance(self._setting, self._given, sizes) for sizes in choices]
        else:
            bases = list(self._starts[:_DRAWS]) or [
                instance_at(self._setting, self._given, index, self._seed) for index in range(_DRAWS)
            ]
        return [Place(base, self._free, set(self._goals)) for base in bases]

    def _look(self, place: Place, share: float) -> None:
        """Score structured, random and moved points of a place, and the starts that belong there, for a share."""
        generator = stream(self._seed, self._setting.name, "points of", repr(place.base.sizes), place.base.index)
        smooth, plain = (Space(place.free, place.base, smooth=kind) for kind in (True, False))
        own = [start for start in self._starts if start.sizes == place.base.sizes and self._fits(start, place)]
        instances = [place.base, *own]
        call, each = self._scorer.cost(place.base)
        moving = self._inside.movable and smooth.size > 0
        if self._setting.universal:
            count = min(_STRUCTURED, max(6, int((share / (3 if moving else 2) - call) / (each + _MAKING))))
            instances += wild_instances(place.base, place.free, 3 * count // 4, generator)
            simple = structured_instances(self._setting, self._given, place.base.sizes, count // 4, generator)
            instances += simple
        vectors = torch.stack([plain.encode(instance) for instance in instances])
        margins = self._gather(place, plain, vectors, "a structured point")
        self._meter.spent += len(vectors) * _MAKING if call else 0.0
        if smooth.size == 0:
            return
        count = min(_DRAWN, max(2, int((share / (6 if moving else 2) - call) / each)))
        drawn = random_vectors(smooth, count, generator)
        self._gather(place, smooth, drawn, "a random point")
        if moving and not self._over():
            # Those first that lie outside of the hypotheses, and break a conclusion there or have no value.
            order = margins.argsort(stable=True).tolist() if len(margins) == len(instances) else []
            worst = [instances[k] for k in order if float(margins[k]) < torch.inf]
            self._move_inside(place, worst, instances, drawn, share / 2, generator)

    def _move_inside(
        self,
        place: Place,
        worst: Sequence[Instance],
        instances: Sequence[Instance],
        drawn: Tensor,
        share: float,
        generator: torch.Generator,
    ) -> None:
        """Move points into the hypotheses, and score them there: the worst ones, some others, and random ones."""
        fixed, each = self._inside.cost(place.base)
        rows = min(_INSIDE, len(drawn) + len(instances), int((share - fixed) / max(each, _MAKING)))
        if rows <= 0:
            return
        smooth, plain = (Space(place.free, place.base, smooth=kind) for kind in (True, False))
        some = torch.randperm(len(instances), generator=generator)[: max(1, rows // 8)].tolist()
        known = [*worst[: 2 * rows // 3], *(instances[k] for k in some)]
        random = [smooth.instance(vector, family="random") for vector in drawn[: max(1, rows - len(known))]]
        chosen = [found for found in (*known, *random) if found is not None]
        self._meter.spent += fixed + max(each, _MAKING) * len(chosen)
        moved = self._inside.instances(place.base, chosen, generator)
        if moved:
            vectors = torch.stack([plain.encode(instance) for instance in moved])
            self._gather(place, plain, vectors, "a point moved into the hypotheses")

    def _fits(self, start: Instance, place: Place) -> bool:
        """Whether a start differs from the place's base in what moves only."""
        return all(
            name in place.free or name not in self._scorer.uses or torch.equal(value, place.base.values[name])
            for name, value in start.values.items()
        )

    def _gather(self, place: Place, space: Space, vectors: Tensor, family: str) -> Tensor:
        """Score points, and remember the best of them for each goal.

        Returns:
            The smallest margin of the conclusions of each point that fails a hypothesis, -1 where one has no value; inf
            for the others.
        """
        outside = []
        entries = sum(value.numel() for value in place.base.values.values())
        objective = Objective(space, self._scorer, None, self._archive, self._meter, f"search: {family}")
        for part in vectors.split(max(1, _BATCH_ENTRIES // max(1, entries))):
            if self._over():
                break
            with torch.no_grad():
                scores = objective.score(part)
            margins = torch.where(scores.defined, scores.goals.amin(1), -1.0)
            outside.append(torch.where(scores.feasible < 0, margins, torch.inf))
            for goal in dict.fromkeys((*self._goals, None)):
                place.remember(goal, space, combined(scores, goal, edge=self._archive.edge), part)
                if goal is not None and bool((scores.goals[:, goal] != 0).any()):
                    place.flat.discard(goal)
        place.met = place.met or objective.met
        return torch.cat(outside) if outside else torch.zeros(0, dtype=torch.float64)

    def _reconsider(self, place: Place) -> None:
        """Value the remembered points anew, now that those on an edge of the hypotheses count as outside."""
        space = Space(place.free, place.base, smooth=False)
        for goal, pool in place.pools.items():
            if goal is None or not pool or self._over():
                continue
            objective = Objective(space, self._scorer, goal, self._archive, self._meter, "search: a point known")
            values = objective(torch.stack([space.encode(instance) for _, instance in pool]))
            valued = zip(values.tolist(), (instance for _, instance in pool), strict=True)
            place.pools[goal] = sorted(valued, key=lambda entry: entry[0])

    def _descend(self, spot: _Spot) -> None:
        """Run the method whose turn it is from one of the best points."""
        place, goal = spot.place, spot.goal
        if not place.met and spot.visits % _AIMLESS != _AIMLESS - 1:
            goal = None  # first of all the hypotheses have to be met
        pool = place.pools[goal]
        turn, index = divmod(spot.visits, len(self._ways))
        labels = ("descent", repr(place.base.sizes), place.base.index, str(goal), spot.visits)
        generator = stream(self._seed, self._setting.name, *labels)
        name = self._ways[index]
        if name == _CHANGE:
            self._change(place, pool, self._effort(_CHANGING, turn), generator)
            return
        if name == _PART:
            self._descend_in_part(place, goal, self._effort(METHODS[self._best].effort, turn), generator)
            return
        way = METHODS[name]
        space = Space(place.free, place.base, smooth=way.smooth)
        # With every turn of the methods the next of the remembered points comes first, and descents go on for longer.
        starts = [instance for _, instance in (*pool[turn % len(pool) :], *pool[: turn % len(pool)])]
        points = torch.stack([space.encode(instance) for instance in (starts if way.many else starts[:1])])
        effort = self._effort(way.effort, turn)
        objective = Objective(space, self._scorer, goal, self._archive, self._meter, f"search: {name}", effort)
        budget = max(1, objective.affordable(effort, way.together))
        found = way.method(objective, points if way.many else points[0], budget, generator)
        place.met = place.met or objective.met
        if not objective.flat:
            place.flat.discard(goal)
        place.add(goal, space, found[:2])

    def _effort(self, first: float, turn: int) -> float:
        """What a descent may cost in its turn, given what it may at first: never much of what is left."""
        return min(self._meter.left, first * 2.0 ** min(turn, _LONGER), max(first / 3, self._meter.left / 5))

    @property
    def _best(self) -> str:
        """The method that makes most of an evaluation."""
        return "gradient" if self._scorer.differentiable else "evolution"

    def _change(self, place: Place, pool: Sequence[Known], effort: float, generator: torch.Generator) -> None:
        """Change one variable of the best points, and move others where the hypotheses ask for it; twice over."""
        fixed, each = self._inside.cost(place.base, stay=SETTLED)
        call, one = self._scorer.cost(place.base)
        each = max(each, _MAKING) + one
        count = min(_INSIDE, int((effort / 2 - fixed - call) / each))
        plain, smooth = (Space(place.free, place.base, smooth=kind) for kind in (False, True))
        for _ in range(2 if count > 0 else 0):
            # The better a point, the more of its kind.
            weights = torch.tensor([1.0 / (1 + rank) for rank in range(len(pool))])
            picks = torch.multinomial(weights, count, replacement=True, generator=generator).tolist()
            others = smooth.decode(random_vectors(smooth, count, generator))
            self._meter.spent += fixed + each * count
            moved = self._inside.changed(place.base, [pool[k][1] for k in picks], others, generator)
            if moved:
                vectors = torch.stack([plain.encode(instance) for instance in moved])
                self._gather(place, plain, vectors, "a point with one variable changed")

    def _descend_in_part(self, place: Place, goal: int | None, effort: float, generator: torch.Generator) -> None:
        """Descend from one of the best points in some of the variables only.

        Where a bound becomes an equality in a limit, as with a step size that goes to zero, descents in all variables
        lead there whether it is true or not.
        """
        leading = place.leading(goal)
        base = leading[choose(generator, len(leading))][1]
        tensors = [name for name in place.free if base.values[name].ndim > 0]
        moving = tensors if 0 < len(tensors) < len(place.free) and choose(generator, 2) else list(place.free)
        if len(moving) == len(place.free):
            kept = (torch.rand(len(moving), generator=generator) < _MOVING).tolist()
            moving = [name for name, keep in zip(moving, kept, strict=True) if keep]
        moving = moving or [list(place.free)[choose(generator, len(place.free))]]
        space = Space({name: place.free[name] for name in moving}, base, smooth=True)
        centre = space.encode(base)
        size = centre.abs().mean().clamp_min(2.0**-10)
        noise = torch.randn(_COPIES, space.size, generator=generator, dtype=torch.float64)
        near = centre + size * torch.exp2(1 - 4 * torch.rand(_COPIES, 1, generator=generator)) * noise
        starts = torch.cat([centre.unsqueeze(0), near, random_vectors(space, _COPIES, generator)])
        way = METHODS[self._best]
        family = "search: some of the variables"
        objective = Objective(space, self._scorer, goal, self._archive, self._meter, family, effort)
        budget = max(1, objective.affordable(effort, way.together))
        found = way.method(objective, starts if way.many else centre, budget, generator)
        place.add(goal, space, found[:2])

    def _result(self) -> SearchResult:
        candidates, near = self._archive.candidates(), self._archive.near_misses()
        nearest = self._archive.nearest
        first: Found | None = next(iter((*candidates, *near)), nearest)
        return SearchResult(
            candidates=tuple(found.instance for found in candidates),
            near_misses=tuple(found.instance for found in near),
            nearest=nearest.instance if nearest is not None and not near and not candidates else None,
            confirmed=self._archive.confirmed is not None,
            evaluations=self._meter.used,
            best=Score(-math.inf, math.inf) if first is None else first.score,
        )
