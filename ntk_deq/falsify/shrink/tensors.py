"""Plainer tensors as wholes: structured members of the domain, lower rank, unit scale.

How plain an instance is, the order in which the shrinker descends, and what may be changed about it.

Smaller sizes: drop rows and columns of every variable that carries a size letter.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ntk_deq.evaluation.instance import Instance, shape_of
from ntk_deq.falsify.domains import MOST_ROUNDING, SQUARE, contains, is_cone, rounding
from ntk_deq.falsify.families import exact_family, family_names
from ntk_deq.falsify.scalars import weight
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Domain, DomainKind, Free, scalar_names
from ntk_deq.language.types import Size

Measure = tuple[int, int, int, float]
"""What the shrinker makes smaller; see `measure`."""


def measure(instance: Instance) -> Measure:
    """Return how far an instance is from the plainest: sizes first, then bits of all numbers, signs, magnitudes.

    Each step of the shrinker makes it smaller, and below it there are finitely many, so that it ends.
    """
    numbers = [x for value in instance.values.values() for x in value.flatten().tolist()]
    return (
        sum(instance.sizes.values()),
        sum(map(weight, numbers)),
        sum(x < 0 for x in numbers),
        math.fsum(min(abs(x), 1e300) for x in numbers),  # the bound keeps the sum of any number of doubles finite
    )


class SpentError(Exception):
    """The budget does not allow to find out whether a candidate still refutes."""


class Shrinking:
    """An instance on its way to a plainer one; remembers what was tried, so that a repeated pass costs nothing.

    Variables drawn from distributions, and scalars and sizes that these use, stay as they are.

    Args:
        instance: An instance that refutes.
        setting: Its setting.
        given: Further variables that the claim quantifies over.
        still_refutes: Whether an instance is a counterexample for certain.
        budget: How often it may be asked.

    Attributes:
        best: The plainest instance so far that refutes.
        steps: What led to it, in words.
        evaluations: How many instances were judged.
        free: The variables that may be changed.
        letters: The size letters that may go down, with their least values.
    """

    def __init__(
        self,
        instance: Instance,
        setting: Setting,
        given: Mapping[str, Free],
        still_refutes: Callable[[Instance], bool],
        budget: int,
    ) -> None:
        self.best = instance
        self.steps: list[str] = []
        self.evaluations = 0
        used = {node.name for draw in setting.draws.values() for node in scalar_names(draw.distribution)}
        self.free = {name: variable for name, variable in {**setting.free, **given}.items() if name not in used}
        types = setting.variable_types()
        fixed = [types[name] for name in types if name not in self.free]
        stuck = used.union(*(kind.rows.letters | kind.cols.letters for kind in fixed))
        self.letters = {letter: span.low for letter, span in setting.sizes.items() if letter not in stuck}
        self._still_refutes = still_refutes
        self._budget = budget
        self._measure = measure(instance)
        self._seen: set[tuple[object, ...]] = {_key(instance)}

    def accepts(self, candidate: Instance, words: str) -> bool:
        """Take an instance for the best one, if it is plainer and still refutes; say whether.

        Args:
            candidate: The instance.
            words: What was changed.

        Raises:
            SpentError: The budget is used up.
        """
        size, key = measure(candidate), _key(candidate)
        if size >= self._measure or key in self._seen:
            return False
        if self.evaluations >= self._budget:
            raise SpentError
        self._seen.add(key)
        self.evaluations += 1
        if not self._still_refutes(candidate):
            return False
        self.best, self._measure = candidate, size
        self.steps.append(words)
        return True

    def changes(self, values: Mapping[str, Tensor], words: str) -> bool:
        """Do the same with the best instance, some of its values replaced by exact ones, unless one leaves its domain.

        Negative zeros become zeros.
        """
        exact = {name: value + 0.0 for name, value in values.items()}
        if not all(contains(self.free[name].domain, value) for name, value in exact.items()):
            return False
        rounded = {name: radius for name, radius in self.best.rounded.items() if name not in exact}
        return self.accepts(replace(self.best, values={**self.best.values, **exact}, rounded=rounded), words)


def _key(instance: Instance) -> tuple[object, ...]:
    """Return what tells two instances apart."""
    values = tuple((name, value.numpy().tobytes()) for name, value in instance.values.items())
    return tuple(instance.sizes.items()), values, tuple(sorted(instance.rounded))


_FAMILIES = 6  # of each domain's structured families, those that come first


def unit_scales(search: Shrinking) -> None:
    """Propose to scale variables by powers of two so that their largest entry is between 1 and 2.

    All variables whose domains are cones together, each tensor with each scalar, each alone: a hypothesis such as
    norm(A) <= M lets A and M go down only side by side. It ends with the first that is accepted.
    """
    instance, exponents = search.best, {}
    for name, variable in search.free.items():
        size = instance.values[name].abs().max().item() if instance.values[name].numel() else 0.0
        if is_cone(variable.domain) and size > 0 and math.frexp(size)[1] != 1:
            exponents[name] = 1 - math.frexp(size)[1]
    names = list(exponents)
    tensors = [name for name in names if instance.values[name].ndim]
    groups = [tuple(names), *((name,) for name in names)]
    groups += [(t, s) for t, s in itertools.product(tensors, names) if s not in tensors]
    for group in dict.fromkeys(groups):
        for exponent in dict.fromkeys(exponents[name] for name in group):
            scaled = {name: _scaled(instance.values[name], exponent) for name in group}
            if search.changes(scaled, f"{', '.join(group)} scaled by 2^{exponent}"):
                return


def _scaled(value: Tensor, exponent: int) -> Tensor:
    """Multiply by 2^exponent in two steps, since 2^1074 itself is no double."""
    half = exponent // 2
    return value * 2.0**half * 2.0 ** (exponent - half)


def plainer_tensors(search: Shrinking) -> None:
    """Propose for each tensor to be zero, the identity, all ones, a member of a structured family, of lower rank."""
    for name, variable in search.free.items():
        value = search.best.values[name]
        if value.ndim and value.numel():
            for words, plainer in _replacements(value, variable.domain):
                if search.changes({name: plainer}, f"{name}: {words}"):
                    break  # the pass is repeated, and the next time starts from the new value


def _replacements(value: Tensor, domain: Domain) -> Iterator[tuple[str, Tensor]]:
    """Yield plainer values of a tensor; some may lie outside the domain."""
    shape = tuple(value.shape)
    yield "zero", torch.zeros_like(value)
    yield "identity", torch.eye(*shape, dtype=value.dtype) if len(shape) == 2 else torch.ones_like(value)
    yield "ones", torch.ones_like(value)
    for rank in range(min(_FAMILIES, len(family_names(domain, shape)))):
        yield exact_family(domain, shape, rank, torch.Generator().manual_seed(0))
    if len(shape) < 2 or domain.kind is DomainKind.ORTHOGONAL:
        return
    if domain.kind is DomainKind.UNIT_ROWS:
        yield from _unit_rows(value)
    elif domain.kind in SQUARE:
        yield from _principal(value)
    else:
        yield from _rows_and_columns(value)


def _principal(value: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield a square matrix without what is off the diagonal, and without one row and column."""
    yield "diagonal", torch.diag(torch.diagonal(value))
    for i in range(len(value)):
        cleared = value.clone()
        cleared[i, :] = 0
        cleared[:, i] = 0
        yield f"row and column {i + 1} cleared", cleared


def _rows_and_columns(value: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield a matrix with its diagonal only, with one row or column only or cleared, with equal rows."""
    rows, cols = value.shape
    if rows == cols > 1:
        yield "diagonal", torch.diag(torch.diagonal(value))
    for i in range(rows if rows > 1 else 0):
        alone = torch.zeros_like(value)
        alone[i] = value[i]
        yield f"row {i + 1} alone", alone
        yield f"rows equal to row {i + 1}", value[i].expand(rows, cols)
        yield f"row {i + 1} cleared", value - alone
    for j in range(cols if cols > 1 else 0):
        alone = torch.zeros_like(value)
        alone[:, j] = value[:, j]
        yield f"column {j + 1} alone", alone
        yield f"column {j + 1} cleared", value - alone


def _unit_rows(value: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield a matrix in which one row is a unit vector."""
    for i, j in itertools.product(range(value.shape[0]), range(value.shape[1])):
        moved = value.clone()
        moved[i] = 0
        moved[i, j] = 1
        yield f"row {i + 1} is unit vector {j + 1}", moved


Kept = Mapping[str, list[int]]
"""The indices that stay, for each letter that loses some."""


def smaller_sizes(search: Shrinking) -> None:
    """Propose smaller sizes, the smallest first.

    All letters at their low ends at once; one letter at its low end, with its first or its last indices; then runs of
    half, a quarter, ... of a letter's indices dropped, down to single ones. It ends with the first that is accepted.
    """
    for kept in _kept_indices(search):
        words = ", ".join(f"{letter} = {len(indices)}" for letter, indices in kept.items())
        if any(search.accepts(candidate, words) for candidate in _restrictions(search, kept)):
            return


def _kept_indices(search: Shrinking) -> Iterator[Kept]:
    lows, sizes = search.letters, search.best.sizes
    spans = {letter: sizes[letter] for letter, low in lows.items() if sizes[letter] > low}
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


def _restrictions(search: Shrinking, kept: Kept) -> Iterator[Instance]:
    """Yield the instance with the kept indices only; twice where the axis of a product can be read two ways."""
    instance = search.best
    sizes = {**instance.sizes, **{letter: len(indices) for letter, indices in kept.items()}}
    compound = any(len(_factors(axis)) > 1 for v in search.free.values() for axis in (v.type.rows, v.type.cols))
    for first_is_fastest in (True, False) if compound else (True,):
        values = {name: value + 0.0 for name, value in instance.values.items()}  # no negative zeros
        rounded = dict(instance.rounded)
        for name, variable in search.free.items():
            if name in values and (variable.type.rows.letters | variable.type.cols.letters) & set(kept):
                value, radius = _restricted(instance, name, variable, sizes, kept, first_is_fastest=first_is_fastest)
                values[name] = value
                rounded.pop(name, None)
                rounded |= {name: radius} if radius else {}
        yield replace(instance, sizes=sizes, values=values, rounded=rounded)


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
    shape = shape_of(variable.type, sizes, name=name)
    return exact_family(variable.domain, shape, 0, torch.Generator().manual_seed(0))[1], 0.0


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
