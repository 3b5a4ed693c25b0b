"""Where descents begin: instances of chosen sizes; and variants, milder, of an instance that fails a hypothesis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product

import torch
from torch import Tensor

from ntk_deq.evaluation.instance import Instance, format_number, shape_of, with_values
from ntk_deq.falsify import sizes_at
from ntk_deq.falsify.domains import choose, is_cone, stream, within
from ntk_deq.falsify.families import exact_family
from ntk_deq.falsify.scalars import scalar_ladder
from ntk_deq.falsify.search import Space, movable
from ntk_deq.falsify.search.archive import Scorer
from ntk_deq.falsify.search.feasible import Inside
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Domain, Free, scalar_names
from ntk_deq.language.types import SizeRange

_FAMILIES = 13  # at least as many as a domain has: see `exact_family`
_RUNGS = 6  # of the scalar ladder, from its simplest value on
_HIGHEST = 7  # above its low end, at most, is the high end of a letter
_EVERY = 6  # of one letter alone every size is tried up to here
_UNPERTURBED = 4  # random points for each in which two variables differ by little
_CROSSED, _CORNERED = 3, 4  # size letters of which every combination of three, of two values is tried


def size_choices(ranges: Mapping[str, SizeRange], starts: Sequence[Instance], most: int) -> list[dict[str, int]]:
    """Return the sizes to search at, small ones first.

    In this order, as far as there is room: all letters at the low or at the high end; the sizes of the starts; each
    letter alone at the high or at the low end (more samples than parameters, say), where a variable stays small; every
    letter at its low end or up to two above, in every combination, for up to three letters, up to one above for four;
    the first of the size ladder.

    Args:
        ranges: Range of each size letter.
        starts: Instances to start from.
        most: How many choices at most.

    Example:
        >>> ranges = {"n": SizeRange(1, 3), "m": SizeRange(1, 3)}
        >>> size_choices(ranges, [], 5)
        [{'n': 1, 'm': 1}, {'n': 1, 'm': 2}, {'n': 3, 'm': 1}, {'n': 1, 'm': 3}, {'n': 3, 'm': 3}]
    """
    own = [{name: start.sizes[name] for name in ranges} for start in starts]
    highest = {name: min(size.high, size.low + _HIGHEST) for name, size in ranges.items()}
    lowest = {name: size.low for name, size in ranges.items()}
    ends = [highest]
    if len(ranges) > 1:
        ends += [{**lowest, name: highest[name]} for name in ranges]
        ends += [{**highest, name: lowest[name]} for name in ranges]
    else:
        ends += [{name: size} for name in ranges for size in range(lowest[name] + 3, min(highest[name], _EVERY) + 1)]
    generator = torch.Generator().manual_seed(0)  # ranks this low draw nothing
    steps = (0, 1, 2) if len(ranges) <= _CROSSED else (0, 1) if len(ranges) <= _CORNERED else (0,)
    corners = product(steps, repeat=len(ranges))
    cornered = [
        {name: min(size.low + up, size.high) for (name, size), up in zip(ranges.items(), ups, strict=True)}
        for ups in sorted(corners, key=sum)
    ]
    ladder = [sizes_at(ranges, rank, generator) for rank in (0, 1, len(ranges) + 4, *range(2, len(ranges) + 4))]
    chosen: list[dict[str, int]] = []
    for sizes in (lowest, highest, *own, *ends, *cornered, *ladder):
        if sizes not in chosen:
            chosen.append(sizes)
    return sorted(chosen[:most], key=lambda s: sum(s.values()))


def plain_instance(setting: Setting, given: Mapping[str, Free], sizes: Mapping[str, int]) -> Instance:
    """Return the simplest instance of some sizes: identities and ones."""
    generator = torch.Generator().manual_seed(0)
    return _structured(setting, given, sizes, generator, order=0)


def structured_instances(
    setting: Setting, given: Mapping[str, Free], sizes: Mapping[str, int], count: int, generator: torch.Generator
) -> Iterator[Instance]:
    """Yield instances whose variables are of random structured families."""
    return (_structured(setting, given, sizes, generator, order=None) for _ in range(count))


def _structured(
    setting: Setting,
    given: Mapping[str, Free],
    sizes: Mapping[str, int],
    generator: torch.Generator,
    *,
    order: int | None,
) -> Instance:
    values: dict[str, Tensor] = {}
    words = []
    for name, variable in {**setting.free, **given}.items():
        shape = shape_of(variable.type, sizes, name=name)
        if shape:
            pick = choose(generator, _FAMILIES) if order is None else order
            family, values[name] = exact_family(variable.domain, shape, pick, generator)
        else:
            ladder = scalar_ladder(variable.domain)
            number = ladder[choose(generator, min(_RUNGS, len(ladder))) if order is None else order]
            family, values[name] = format_number(number), torch.tensor(number, dtype=torch.float64)
        words.append(f"{name} = {family}")
    return Instance(setting.name, ", ".join(words), dict(sizes), values, 0)


def random_vectors(space: Space, count: int, generator: torch.Generator) -> Tensor:
    """Draw points of a space: Gaussian, of sizes from 1/8 to 4; some of whole numbers, some without negative ones.

    A third are Gaussian of size one, as anybody would draw them; in a third each variable has a size of its own. In a
    few, two variables of one kind differ by little, as a matrix and its perturbation do.

    Args:
        space: The space.
        count: How many.
        generator: Source of randomness.
    """
    drawn = torch.randn(count, space.size, generator=generator, dtype=torch.float64)
    blocks = list(space.blocks.values())
    exponents = 5 * torch.rand(count, 1 + len(blocks), generator=generator, dtype=torch.float64) - 3
    kind = torch.rand(3, count, 1, generator=generator)
    scale = torch.exp2(exponents[:, :1]).repeat(1, space.size)
    for place, block in enumerate(blocks):
        own = torch.exp2(2 * exponents[:, 1 + place : 2 + place])
        scale[:, block] = torch.where(kind[2] < 1 / 3, own, scale[:, block])
    scale = torch.where(kind[2] > 2 / 3, 1.0, scale)
    scaled = torch.where(kind[0] < 1 / 4, (drawn * 1.5).round(), drawn * scale)
    drawn = torch.where(kind[1] < 1 / 5, scaled.abs(), scaled)
    pairs = _pairs(space)
    if pairs:
        which = torch.randint(_UNPERTURBED * len(pairs), (count,), generator=generator)
        small = torch.exp2(-12 * torch.rand(count, 1, generator=generator, dtype=torch.float64))
        for place, (first, second) in enumerate(pairs):
            rows = (which == place).nonzero().flatten()
            drawn[rows, second] = drawn[rows, first] + small[rows] * drawn[rows, second]
    return drawn


def _pairs(space: Space) -> list[tuple[slice, slice]]:
    """Return the blocks of each two tensors of one shape and domain."""
    tensors = [name for name in space.free if space.base.values[name].ndim > 0]
    return [
        (space.blocks[first], space.blocks[second])
        for first in tensors
        for second in tensors
        if first != second
        and space.free[first].domain == space.free[second].domain
        and space.base.values[first].shape == space.base.values[second].shape
    ]


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
    fixed = {node.name for draw in setting.draws.values() for node in scalar_names(draw.distribution)}
    free = {name: v for name, v in {**setting.free, **given}.items() if name not in fixed and name in instance.values}
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
