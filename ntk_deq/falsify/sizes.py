"""The sizes of an instance: the smallest first, then small combinations, then all of the range."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from ntk_deq.claims.claim import SizeRange
from ntk_deq.falsify.seeds import choose

_STEPS_A_LEVEL = 4  # instances after which the random sizes may grow by one


def sizes_at(ranges: Mapping[str, SizeRange], rank: int, generator: torch.Generator) -> dict[str, int]:
    """Return the sizes of the instance of a given rank in its half of the ladder.

    In order: all at the low end; all one above; one letter above, each in turn; ascending; descending; all two above;
    then random ones up to a level that grows. Every eighth roams over the whole range, log-uniformly, and every
    sixteenth has every letter at its high end.

    Args:
        ranges: Range of each size letter.
        rank: Number of the instance in its half, from 0.
        generator: Source of the random ones.

    Example:
        >>> ranges = {"N": SizeRange(1, 6), "d": SizeRange(1, 6), "m": SizeRange(2, 2)}
        >>> [tuple(sizes_at(ranges, r, torch.Generator()).values()) for r in range(6)]
        [(1, 1, 2), (2, 2, 2), (1, 1, 2), (1, 2, 2), (2, 1, 2), (1, 2, 2)]
    """
    letters = list(ranges)
    count = len(letters)
    if rank % 16 == 15:
        return {name: ranges[name].high for name in letters}
    offsets = _listed(rank, count)
    if offsets is None and rank % 8 == 7:
        return {name: _log_uniform(ranges[name], generator) for name in letters}
    if offsets is None:
        level = 2 + rank // _STEPS_A_LEVEL
        offsets = [choose(generator, min(level, ranges[n].high - ranges[n].low) + 1) for n in letters]
    return {
        name: min(ranges[name].low + offset, ranges[name].high) for name, offset in zip(letters, offsets, strict=True)
    }


def random_sizes(ranges: Mapping[str, SizeRange], rank: int, generator: torch.Generator) -> dict[str, int]:
    """Return sizes for a draw from a distribution: the low ends first, then uniform in each range.

    Example:
        >>> random_sizes({"N": SizeRange(3, 3)}, 5, torch.Generator())
        {'N': 3}
    """
    if rank == 0:
        return {name: size.low for name, size in ranges.items()}
    return {name: size.low + choose(generator, size.high - size.low + 1) for name, size in ranges.items()}


def _listed(rank: int, count: int) -> list[int] | None:
    """Return the offsets from the low ends that come first, or None after them."""
    if rank < 2:
        return [rank] * count
    if rank < 2 + count:
        return [int(i == count + 1 - rank) for i in range(count)]
    return {
        2 + count: list(range(count)),
        3 + count: list(range(count))[::-1],
        4 + count: [2] * count,
    }.get(rank)


def _log_uniform(size: SizeRange, generator: torch.Generator) -> int:
    if size.fixed:
        return size.low
    low, high = math.log(max(size.low, 1)), math.log(size.high + 1)
    share = float(torch.rand((), generator=generator, dtype=torch.float64))
    return min(size.high, max(size.low, int(math.exp(low + (high - low) * share))))
