"""Move many instances into a claim's hypotheses at once, to anywhere in the range that these leave.

One variable after another, a scalar by its value and a tensor by its size, is looked at along a line through its whole
domain: where the hypotheses that are decided by then hold, a place is chosen at random, at the edge of that range as
often as inside it. Shrinking alone would bring every instance to where a claim is easy.

And what takes the place of one instance that fails a hypothesis: milder variants, moved ones, random draws.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import torch
from torch import Tensor

from ntk_deq.evaluation.instance import Instance, format_number, with_values
from ntk_deq.falsify.domains import is_cone, stream, within
from ntk_deq.falsify.scalars import scalar_ladder
from ntk_deq.falsify.search import Space, entry_map, movable
from ntk_deq.falsify.search.archive import Scorer
from ntk_deq.falsify.search.starts import random_vectors
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Domain, Free
from ntk_deq.language.types import Sort

_FACTORS = (-27, -20, -14, -10, -7, -5, -4, -3, -2, -1, -0.5, 0, 0.5, 1, 2, 3, 4, 5, 7, 10, 14)
"""Exponents of two by which a tensor is scaled."""

_LISTED = 24  # values of a scalar's ladder that are looked at
_SECTIONS, _ROUNDS = 7, 5  # cuts of the range with the edge, so many times over: to a part in 8^5 of it
STAY, SETTLED = 0.4, 0.85
"""Share of the values that stay where they are if they may; the same where one variable of an instance was changed."""

_EDGE = 0.6  # share of what moves that goes to an edge

Values = dict[str, Tensor]


@dataclass(frozen=True)
class _Line:
    """A variable's line: the points that are looked at, in their order, and what makes a value of one."""

    points: Tensor
    domain: Domain
    scales: bool

    def values(self, own: Tensor, at: Tensor) -> Tensor:
        """Return the values at points of the line, one for each row of `own`."""
        if self.scales:
            return own * at.reshape(-1, *(1,) * (own.ndim - 1))
        return entry_map(self.domain, smooth=False).decode(at)


class Inside:
    """Places instances of a setting inside hypotheses.

    Args:
        setting: The setting.
        given: Further variables that the claim quantifies over.
        scorer: Measures the hypotheses.
    """

    def __init__(self, setting: Setting, given: Mapping[str, Free], scorer: Scorer) -> None:
        self._scorer = scorer
        self._free = movable(setting, given, scorer.uses)

    @property
    def movable(self) -> bool:
        """Whether there is a hypothesis that a variable could be moved for."""
        return any(needs & self._free.keys() for needs in self._scorer.needs)

    def cost(self, base: Instance, *, stay: float = STAY) -> tuple[float, float]:
        """Return what moving instances costs, as `Scorer.cost` does: on its own, and for each of them.

        Each hypothesis is looked at along one line, that of the last of its variables; what finds no place there and
        is moved once more costs up to as much again.
        """
        lines = self._lines(base)
        decided = [k for k, needs in enumerate(self._scorer.needs) if needs & lines.keys()]
        costs = [self._scorer.cost(base, [k]) for k in decided]
        calls, points = 3 + _ROUNDS, 2 + (1 - stay) * (len(_FACTORS) + _SECTIONS * _ROUNDS)
        return calls * sum(call for call, _ in costs), points * sum(each for _, each in costs)

    def place(
        self, base: Instance, values: Mapping[str, Tensor], generator: torch.Generator, *, stay: float = STAY
    ) -> tuple[Values, Tensor]:
        """Return the values moved, and which rows meet the hypotheses in floating point.

        Args:
            base: Gives the sizes, and the values of what does not move.
            values: The variables' values, each with the rows along its first dimension.
            generator: Chooses the places, and the order of the variables.
            stay: Share of the values that stay where they are if they may.
        """
        lines = self._lines(base)
        placed = dict(values)
        order = self._ordered(list(lines), generator)
        done: set[str] = set()
        for name in order:
            done.add(name)
            open_ = lines.keys() - done
            active = [k for k, needs in enumerate(self._scorer.needs) if name in needs and not needs & open_]
            if active:
                placed[name] = self._along(base, placed, name, lines[name], active, generator, stay)
        met = self._met(base, placed)
        fixed, each = self.cost(base, stay=stay)
        left = fixed + each * len(met)
        for name in order:
            lost = (~met).nonzero().flatten()
            if len(lost) == 0 or left <= 0:
                break
            # Where the last variable of a hypothesis found no place, an earlier one has to move.
            active = [k for k, needs in enumerate(self._scorer.needs) if name in needs]
            some = {key: value[lost] for key, value in placed.items()}
            some[name] = self._along(base, some, name, lines[name], active, generator, stay)
            placed[name] = placed[name].index_copy(0, lost, some[name])
            met = met.index_copy(0, lost, self._met(base, some))
            calls = [self._scorer.cost(base, [k]) for k in active]
            left -= sum((2 + _ROUNDS) * call + _SECTIONS * _ROUNDS * one * len(lost) for call, one in calls)
        return placed, met

    def _met(self, base: Instance, values: Values) -> Tensor:
        margins = self._scorer.margins(base, values)
        return (margins >= 0).all(1)

    def instances(self, base: Instance, rows: Sequence[Instance], generator: torch.Generator) -> list[Instance]:
        """Return those of some instances, moved, that meet the hypotheses in floating point.

        Args:
            base: Gives what does not move.
            rows: Instances of the same sizes.
            generator: Chooses the places.
        """
        return self._instances(base, rows, *self.place(base, self._values(base, rows), generator))

    def changed(
        self, base: Instance, rows: Sequence[Instance], others: Mapping[str, Tensor], generator: torch.Generator
    ) -> list[Instance]:
        """Return instances with one variable changed in each, the rest moved only as far as the hypotheses ask for it.

        A bound on one variable by another is kept like that: neither can move alone.

        Args:
            base: Gives what does not move.
            rows: Instances of the same sizes.
            others: Values that variables may change to, one for each instance.
            generator: Chooses.
        """
        values, names, lines = self._values(base, rows), list(self._free), self._lines(base)
        pick = torch.randint(len(names), (len(rows),), generator=generator)
        listed = torch.rand(2, len(rows), generator=generator, dtype=torch.float64)
        for place, name in enumerate(names):
            new = others[name]
            if name in lines:
                points = lines[name].points[(listed[0] * len(lines[name].points)).long()]
                other = lines[name].values(values[name], points)
                new = torch.where((listed[1] < 0.5).reshape(-1, *(1,) * (new.ndim - 1)), other, new)
            chosen = (pick == place).reshape(-1, *(1,) * (new.ndim - 1))
            values[name] = torch.where(chosen, new, values[name])
        return self._instances(base, rows, *self.place(base, values, generator, stay=SETTLED))

    def _values(self, base: Instance, rows: Sequence[Instance]) -> Values:
        return {name: torch.stack([row.values[name] for row in rows]) for name in self._free if name in base.values}

    def _instances(self, base: Instance, rows: Sequence[Instance], placed: Values, met: Tensor) -> list[Instance]:
        plain = Space(self._free, base, smooth=False)
        found = []
        for k in met.nonzero().flatten().tolist():
            moved = {name: value[k] for name, value in placed.items()}
            point = plain.encode(Instance(base.setting, "", base.sizes, {**base.values, **moved}, base.index))
            instance = plain.instance(point, family=f"{rows[k].family}; moved into the hypotheses")
            found += [] if instance is None else [instance]
        return found

    def _lines(self, base: Instance) -> dict[str, _Line]:
        lines = {}
        needed = frozenset().union(*self._scorer.needs)
        for name, variable in self._free.items():
            if name not in needed or name not in base.values:
                continue
            if base.values[name].ndim == 0:
                points = sorted(scalar_ladder(variable.domain)[:_LISTED])
                lines[name] = _Line(torch.tensor(points, dtype=torch.float64), variable.domain, scales=False)
            elif is_cone(variable.domain):
                factors = torch.exp2(torch.tensor(_FACTORS, dtype=torch.float64))
                lines[name] = _Line(factors, variable.domain, scales=True)
        return lines

    def _ordered(self, names: list[str], generator: torch.Generator) -> list[str]:
        """Order the variables: at random, or tensors first and then the scalar that decides a hypothesis soonest."""
        shuffled = [names[k] for k in torch.randperm(len(names), generator=generator).tolist()]
        if float(torch.rand((), generator=generator)) < 1 / 3:
            return shuffled
        left = [name for name in shuffled if self._free[name].type.sort is Sort.SCALAR]
        order = [name for name in shuffled if name not in left]
        while left:

            def others(name: str) -> int:
                waiting = set(left) - {name}
                return min((len(needs & waiting) for needs in self._scorer.needs if name in needs), default=len(left))

            first = min(left, key=others)
            left.remove(first)
            order.append(first)
        return order

    def _along(
        self,
        base: Instance,
        values: Values,
        name: str,
        line: _Line,
        active: list[int],
        generator: torch.Generator,
        stay: float,
    ) -> Tensor:
        """Return a variable's values moved along its line."""
        own = values[name]
        used = frozenset().union(*(self._scorer.needs[k] for k in active)) & values.keys()
        known = {key: values[key] for key in used}
        stays = self._scorer.margins(base, known, active).amin(1) >= 0
        stays &= torch.rand(len(own), generator=generator, dtype=torch.float64) < stay
        rest = (~stays).nonzero().flatten()
        if len(rest) == 0:
            return own
        some = {key: value[rest] for key, value in known.items()}
        moved = self._on_line(base, some, name, line, active, generator)
        return own.index_copy(0, rest, moved)

    def _on_line(
        self, base: Instance, values: Values, name: str, line: _Line, active: list[int], generator: torch.Generator
    ) -> Tensor:
        """Return a variable's values at places of its line where hypotheses hold, if there are any."""
        rows, own = len(values[name]), values[name]

        def met(at: Tensor) -> tuple[Tensor, Tensor]:
            """Whether hypotheses hold at points of the line, rows x points, and the smallest margins."""
            many = at.shape[1]
            moving = {key: value.repeat_interleave(many, 0) for key, value in values.items()}
            moving[name] = line.values(own.repeat_interleave(many, 0), at.reshape(-1))
            margins = self._scorer.margins(base, moving, active).amin(1).reshape(rows, many)
            return margins >= 0, margins

        on_line, margins = met(line.points.expand(rows, -1))
        draw = torch.rand(3, rows, generator=generator, dtype=torch.float64)
        # A random one of the points that hold; where none does, the one that lacks least.
        weight = torch.rand(on_line.shape, generator=generator, dtype=torch.float64)
        pick = torch.where(on_line.any(1), (weight * on_line).argmax(1), margins.argmax(1))
        inside = line.points[pick]
        outside, bounded = _next_outside(line.points, on_line, pick, up=draw[0] < 0.5)
        edge = inside.clone()
        if bool((bounded & on_line.any(1)).any()):
            edge, outside = self._edge(met, inside, outside)
        share = torch.where(draw[1] < _EDGE, 1.0, draw[2])
        chosen = torch.where(bounded, _between(inside, edge, share), inside)
        return line.values(own, torch.where(on_line.any(1), chosen, inside))

    @staticmethod
    def _edge(met: object, inside: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last points that hold and the first that do not, each between the two given."""
        assert callable(met)
        shares = torch.arange(1, _SECTIONS + 1, dtype=torch.float64) / (_SECTIONS + 1)
        for _ in range(_ROUNDS):
            at = _between(inside.unsqueeze(1), outside.unsqueeze(1), shares)
            holds = met(at)[0]
            count = holds.to(torch.int8).cumprod(1).sum(1)  # how many in a row hold, from the inside on
            path = torch.cat([inside.unsqueeze(1), at, outside.unsqueeze(1)], dim=1)
            inside = path.gather(1, count.unsqueeze(1)).squeeze(1)
            outside = path.gather(1, count.unsqueeze(1) + 1).squeeze(1)
        return inside, outside


def _between(start: Tensor, end: Tensor, share: Tensor) -> Tensor:
    """Return points between others: in the logarithm where both have one sign."""
    start, end = torch.broadcast_tensors(start, end)
    same = start * end > 0
    ratio = torch.where(same, end / torch.where(start == 0, 1.0, start), 1.0)
    return torch.where(same, start * ratio**share, start + share * (end - start))


def _next_outside(points: Tensor, holds: Tensor, pick: Tensor, *, up: Tensor) -> tuple[Tensor, Tensor]:
    """Return the next point, up or down the line, at which the hypotheses fail; and whether there is one."""
    count = len(points)
    place = torch.arange(count)
    above = torch.where(~holds & (place > pick.unsqueeze(1)), place, count).amin(1)
    below = torch.where(~holds & (place < pick.unsqueeze(1)), place, -1).amax(1)
    upwards = torch.where(up, above < count, below < 0)
    found = torch.where(upwards, above, below)
    bounded = (found >= 0) & (found < count)
    return points[found.clamp(0, count - 1)], bounded


MAX_VARIANTS = 24

DRAWS = 256
"""Random draws of which those that meet the hypotheses take the place of an instance."""

_EFFORT = 8.0  # what looking through them may cost: see `Scorer.cost`

_MOVED = 4  # copies of an instance that are moved into the hypotheses, each to another place

_SCALAR_TARGETS = (Fraction(1, 2), Fraction(1, 4), Fraction(1, 16), Fraction(1, 2**10))
_ONE_TENSOR = (-1, -3, -8)
_ALL_TENSORS = (-1, -4, -10, -20)

_Change = dict[str, tuple[Tensor | float, str]]


def shrink_variants(instance: Instance, setting: Setting, given: Mapping[str, Free]) -> Iterator[Instance]:
    """Yield variants of an instance with smaller scalars and smaller tensors, mild changes before strong ones.

    Scalars move to 1/2, 1/4, 1/16 and 2^-10 of their domain (of its width, where it is a bounded interval); tensors
    whose domain is a cone are multiplied by 2^-1 to 2^-20; one variable at a time, and all together. Every variant
    lies in the setting: variables drawn from distributions, and scalars that these use, stay as they are.

    Args:
        instance: The instance.
        setting: Its setting.
        given: Further variables that the claim quantifies over.

    Yields:
        At most `MAX_VARIANTS` instances with the same sizes and the same index.
    """
    free = movable(setting, given, instance.values)
    scalars = {name: v.domain for name, v in free.items() if instance.values[name].ndim == 0}
    tensors = [
        name
        for name, v in free.items()
        if instance.values[name].ndim > 0 and is_cone(v.domain) and bool(instance.values[name].any())
    ]
    one_scalar = [_move(instance, {name: scalars[name]}, c) for c in _SCALAR_TARGETS for name in scalars]
    all_scalars = [_move(instance, scalars, c) for c in _SCALAR_TARGETS]
    one_tensor = [_scale(instance, [name], k) for k in _ONE_TENSOR for name in tensors]
    all_tensors = [_scale(instance, tensors, k) for k in _ALL_TENSORS]
    together = [{**a, **b} for a, b in zip(all_scalars, all_tensors, strict=True)]
    nothing: _Change = {}
    rounds = itertools.zip_longest(one_scalar, one_tensor, all_scalars, all_tensors, together, fillvalue=nothing)
    seen: set[str] = set()
    for change in itertools.chain.from_iterable(rounds):
        words = "; ".join([instance.family, *dict.fromkeys(text for _, text in change.values())])
        if change and words not in seen and len(seen) < MAX_VARIANTS:
            seen.add(words)
            varied = with_values(instance, **{name: value for name, (value, _) in change.items()})
            yield replace(varied, family=words)


def _move(instance: Instance, domains: Mapping[str, Domain], target: Fraction) -> _Change:
    """Return the scalars that come closer to zero by moving to `target`."""
    change: _Change = {}
    for name, domain in domains.items():
        old = instance.values[name].item()
        new = _smaller(domain, old, target)
        if abs(new) < abs(old) and within(domain, new):
            change[name] = (new, f"{name} moved to {format_number(new)}")
    return change


def _smaller(domain: Domain, old: float, target: Fraction) -> float:
    """Return the value that stands for `target` in a domain, on the side of zero where the old value is."""
    low, high = domain.low, domain.high
    if is_cone(domain) or low is None or high is None:
        return math.copysign(float(target), old)
    if low < 0 < high:
        return float(target * (high if old > 0 else low))
    return float(low + (high - low) * target if low >= 0 else high - (high - low) * target)


def _scale(instance: Instance, names: list[str], exponent: int) -> _Change:
    """Return the tensors multiplied by a power of two."""
    words = f"{names[0] if len(names) == 1 else 'tensors'} scaled by 2^{exponent}" if names else ""
    return {name: (instance.values[name] * 2.0**exponent, words) for name in names}


class Repair:
    """Finds, for instances of a setting that fail a hypothesis, instances that meet it in floating point.

    Shrinking alone brings every instance to where a claim is easy. So half of them are shrunk, if that helps; a quarter
    are moved to anywhere in the range that the hypotheses leave, its edge included; and for a quarter plain random
    draws of the same sizes are looked through, as rejection sampling does.

    Args:
        setting: The setting.
        given: Further variables that the claim quantifies over.
        scorer: Measures the hypotheses.
        seed: The run's seed.
        effort: What moving all these instances may cost: see `Scorer.cost`.
    """

    def __init__(self, setting: Setting, given: Mapping[str, Free], scorer: Scorer, seed: int, effort: float) -> None:
        self._setting, self._given, self._scorer, self._seed = setting, given, scorer, seed
        self._left = effort
        self._inside = Inside(setting, given, scorer)

    def candidates(self, instance: Instance) -> Iterator[Instance]:
        """Yield instances of the same sizes and index, those to be tried first in front."""
        if not self._scorer.uses:  # every variable is computed from the hypotheses
            return
        ways = [self._shrunk, self._drawn]
        match instance.index // 2 % 4:
            case 1:
                ways = [self._moved, self._drawn, self._shrunk]
            case 3:
                ways = [self._drawn, self._shrunk, self._moved]
        for way in ways:
            yield from way(instance)

    def _shrunk(self, instance: Instance) -> Iterator[Instance]:
        variants = list(shrink_variants(instance, self._setting, self._given))
        if variants:
            moving = {name: torch.stack([v.values[name] for v in variants]) for name in self._scorer.uses}
            met = (self._scorer.margins(instance, moving) >= 0).all(1)
            yield from (variant for variant, meets in zip(variants, met.tolist(), strict=True) if meets)

    def _moved(self, instance: Instance) -> Iterator[Instance]:
        fixed, each = self._inside.cost(instance)
        if fixed + _MOVED * each > self._left:
            return
        self._left -= fixed + _MOVED * each
        generator = stream(self._seed, self._setting.name, "places in the hypotheses", instance.index)
        yield from self._inside.instances(instance, [instance] * _MOVED, generator)

    def _drawn(self, instance: Instance) -> Iterator[Instance]:
        space = Space(movable(self._setting, self._given, self._scorer.uses), instance, smooth=True)
        if space.size == 0:
            return
        generator = stream(self._seed, self._setting.name, "draws in its place", instance.index)
        call, each = self._scorer.cost(instance)
        drawn = random_vectors(space, min(DRAWS, max(1, int((_EFFORT - call) / each))), generator)
        met = (self._scorer.margins(instance, space.decode(drawn)) >= 0).all(1)
        for place in met.nonzero().flatten().tolist():
            found = space.instance(drawn[place], family="random draw that meets the hypotheses")
            if found is not None:
                yield found
