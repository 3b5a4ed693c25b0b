"""Smaller sizes: drop rows and columns of every variable that carries a size letter."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ntk_deq.claims.claim import Domain, Free
from ntk_deq.claims.types import Size
from ntk_deq.falsify.domains import MOST_ROUNDING, contains, rounding
from ntk_deq.falsify.exact_families import exact_family
from ntk_deq.falsify.instance import Instance, shape_of
from ntk_deq.falsify.shrinking.state import Candidate, Knobs, Proposals

Kept = Mapping[str, list[int]]
"""The indices that stay, for each letter that loses some."""


def smaller_sizes(instance: Instance, knobs: Knobs) -> Proposals:
    """Propose smaller sizes, the smallest first.

    All letters at their low ends at once; one letter at its low end, with its first or its last indices; then runs of
    half, a quarter, ... of a letter's indices dropped, down to single ones. It ends with the first that is accepted.

    Args:
        instance: The instance.
        knobs: What may be changed.
    """
    for kept in _kept_indices(instance, knobs):
        for candidate in _restrictions(instance, knobs, kept):
            if (yield candidate):
                return candidate.instance
    return instance


def _kept_indices(instance: Instance, knobs: Knobs) -> Iterator[Kept]:
    spans = {letter: instance.sizes[letter] for letter, low in knobs.letters.items() if instance.sizes[letter] > low}
    lows = {letter: knobs.letters[letter] for letter in spans}
    if len(spans) > 1:
        yield {letter: list(range(lows[letter])) for letter in spans}
    for letter, size in spans.items():
        yield {letter: list(range(lows[letter]))}
        yield {letter: list(range(size - lows[letter], size))}
    for letter, size in spans.items():
        run = (size - lows[letter]) // 2
        while run:
            for start in range(0, size - run + 1, run):
                yield {letter: [i for i in range(size) if not start <= i < start + run]}
            run //= 2


def _restrictions(instance: Instance, knobs: Knobs, kept: Kept) -> Iterator[Candidate]:
    """Yield the instance with the kept indices only; twice where the axis of a product can be read two ways."""
    sizes = {**instance.sizes, **{letter: len(indices) for letter, indices in kept.items()}}
    words = ", ".join(f"{letter} = {len(indices)}" for letter, indices in kept.items())
    compound = any(len(_factors(axis)) > 1 for v in knobs.free.values() for axis in (v.type.rows, v.type.cols))
    for first_is_fastest in (True, False) if compound else (True,):
        values = {name: value + 0.0 for name, value in instance.values.items()}  # no negative zeros
        rounded = dict(instance.rounded)
        for name, variable in knobs.free.items():
            if name in values and (variable.type.rows.letters | variable.type.cols.letters) & set(kept):
                value, radius = _restricted(instance, name, variable, sizes, kept, first_is_fastest=first_is_fastest)
                values[name] = value
                rounded.pop(name, None)
                rounded |= {name: radius} if radius else {}
        yield Candidate(replace(instance, sizes=sizes, values=values, rounded=rounded), words)


def _restricted(
    instance: Instance,
    name: str,
    variable: Free,
    sizes: Mapping[str, int],
    kept: Kept,
    *,
    first_is_fastest: bool,
) -> tuple[Tensor, float]:
    """Return a variable's value with the kept indices, and how far from a member of its domain it is.

    Where that leaves the domain, as a part of an orthogonal matrix does, the simplest member takes its place.
    """
    value = instance.values[name]
    axes = (variable.type.rows, variable.type.cols)[: value.ndim]
    for dimension, axis in enumerate(axes):
        indices = _indices(axis, instance.sizes, kept, first_is_fastest=first_is_fastest)
        value = value.index_select(dimension, torch.tensor(indices, dtype=torch.long))
    if contains(variable.domain, value):
        return value, 0.0
    radius = rounding(variable.domain, value) if name in instance.rounded else math.inf
    if radius <= MOST_ROUNDING:
        return value, radius
    return _simplest(variable.domain, shape_of(variable.type, sizes, name=name)), 0.0


def _simplest(domain: Domain, shape: tuple[int, ...]) -> Tensor:
    return exact_family(domain, shape, 0, torch.Generator().manual_seed(0))[1]


def _indices(axis: Size, sizes: Mapping[str, int], kept: Kept, *, first_is_fastest: bool) -> list[int]:
    """Return the indices of an axis that stay.

    An axis of size N m numbers the pairs (i, j), as vec does with i fastest or as rows do with j fastest; each letter
    drops its own. An axis of a size that is no product keeps its first indices.
    """
    factors = _factors(axis)
    if not factors:
        wanted = axis.evaluate({**sizes, **{letter: len(indices) for letter, indices in kept.items()}})
        return list(range(wanted))
    grid = torch.arange(axis.evaluate(sizes))
    lengths = [sizes[f] if isinstance(f, str) else f for f in factors]
    grid = grid.reshape(lengths[::-1] if first_is_fastest else lengths)
    for position, factor in enumerate(factors[::-1] if first_is_fastest else factors):
        if isinstance(factor, str) and factor in kept:
            grid = grid.index_select(position, torch.tensor(kept[factor], dtype=torch.long))
    return [int(index) for index in grid.flatten().tolist()]


def _factors(axis: Size) -> list[str | int]:
    """Return the letters of a size that is one product, with its number where that is not 1; nothing for a sum."""
    if len(axis.terms) != 1:
        return []
    letters, number = axis.terms[0]
    return [*letters, *([number] if number != 1 or not letters else [])]
