"""Where descents begin: instances of chosen sizes, structured and random ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import torch
from torch import Tensor

from ntk_deq.evaluation.instance import Instance, format_number, shape_of
from ntk_deq.falsify.domains import choose
from ntk_deq.falsify.families import exact_family
from ntk_deq.falsify.ladder import sizes_at
from ntk_deq.falsify.scalars import scalar_ladder
from ntk_deq.falsify.search.space import Space
from ntk_deq.language.domain import Free
from ntk_deq.language.setting import Setting
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
