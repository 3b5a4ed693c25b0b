"""Where a search looks first: instances of chosen sizes, structured, random, and of matrices at which bounds fail.

The last come in themes, which several variables share: one simple family for all, a matrix and the tiny corner that
closes its cycle, equal rows with alternating targets, a unit that is off. Others come from the numbers that a formula
names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import torch
from torch import Tensor

from ntk_deq.evaluation.instance import Instance, format_number, shape_of
from ntk_deq.falsify import sizes_at
from ntk_deq.falsify.domains import choose, contains, is_cone, within
from ntk_deq.falsify.exact_builders import TINY, WILD, Shape, corner, shift
from ntk_deq.falsify.families import exact_family
from ntk_deq.falsify.scalars import scalar_ladder
from ntk_deq.falsify.search import Space
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Domain, DomainKind, Free
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


def marked_instances(setting: Setting, given: Mapping[str, Free], marks: Sequence[float]) -> Iterator[Instance]:
    """Yield the simplest instance with a scalar, all entries of a tensor, or all scalars at each of some numbers.

    The marks of a formula are numbers at which, or between which, it may change: a window between two steps is narrower
    than any draw finds.

    Args:
        setting: The setting.
        given: Further variables.
        marks: The numbers.
    """
    base = plain_instance(setting, given, {letter: size.low for letter, size in setting.sizes.items()})
    free = {**setting.free, **given}
    names = [name for name in free if name in base.values]
    scalars = [name for name in names if base.values[name].ndim == 0]
    groups = [[name] for name in names] + ([scalars] if len(scalars) > 1 else [])
    for mark in marks:
        for group in groups:
            moved = {name: torch.full_like(base.values[name], mark) for name in group}
            if all(contains(free[name].domain, value) for name, value in moved.items()):
                yield _with(base, moved, f"{', '.join(group)} = {format_number(mark)}")


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


_PAIRS = 4  # of variables that differ by little

_BUILT = frozenset(
    {DomainKind.REAL, DomainKind.NONNEGATIVE, DomainKind.SYMMETRIC, DomainKind.SKEW, DomainKind.DIAGONAL}
)
"""Domains that `wild_member` leads into by construction."""

_AMONG_ONES = (
    "Hadamard",
    "Jordan block",
    "sheared triangle",
    "shift",
    "shift within one",
    "cycle",
    "skew and identity",
)


def wild_member(domain: Domain, shape: Shape, name: str, generator: torch.Generator) -> Tensor | None:
    """Build a member of a domain after a wild matrix; None where the domain has none like it.

    Args:
        domain: The domain.
        shape: `(m,)` or `(N, d)`.
        name: One of `WILD`.
        generator: Source of randomness.
    """
    value = WILD[name](shape if len(shape) == 2 else (shape[0], 1), generator)
    value = value if len(shape) == 2 else value[:, 0]
    match domain.kind:
        case DomainKind.NONNEGATIVE:
            value = value.abs()
        case DomainKind.POSITIVE:
            value = value.abs() + (value == 0) * 2.0**-20
        case DomainKind.SYMMETRIC:
            value = (value + value.mT) / 2
        case DomainKind.SKEW:
            value = value - value.mT
        case DomainKind.DIAGONAL:
            value = torch.diag(value.diagonal())
        case DomainKind.PSD:
            value = value.mT @ value
        case DomainKind.INTERVAL | DomainKind.INTEGER:
            value = _at_ends(domain, value)
    return value + 0.0 if domain.kind in _BUILT or contains(domain, value) else None


def _at_ends(domain: Domain, value: Tensor) -> Tensor:
    """Return entries of a bounded domain by the sign of others: its largest, its smallest, or zero or a middle."""
    ladder = scalar_ladder(domain)
    middle = 0.0 if 0.0 in ladder else ladder[0]
    return torch.where(value > 0, max(ladder), torch.where(value < 0, min(ladder), middle))


def wild_instances(
    base: Instance, free: Mapping[str, Free], count: int, generator: torch.Generator
) -> Iterator[Instance]:
    """Yield instances of the base's sizes: themes, a random choice of them where there are many, and then mixtures.

    Themes are the shift with its closing corner, one family for all variables, the base with one wild variable, and two
    variables that differ by little.

    Args:
        base: A simple instance; what is not free keeps its values.
        free: The variables.
        count: How many at most.
        generator: Source of randomness.
    """
    tensors = {n: v for n, v in free.items() if n in base.values and base.values[n].ndim > 0}
    if not tensors:
        return
    themes = [*_closed(base, tensors), *_same(base, tensors, generator), *_one_wild(base, free, tensors, generator)]
    themes += _perturbed(base, tensors, generator)
    chosen = torch.randperm(len(themes), generator=generator)[: max(1, 3 * count // 4)].sort().values.tolist()
    yield from (themes[place] for place in chosen)
    for _ in range(count - len(chosen)):
        yield _mixed(base, free, generator)


def _with(base: Instance, values: Mapping[str, Tensor], words: str) -> Instance:
    return Instance(base.setting, words, base.sizes, {**base.values, **values}, base.index)


def _same(base: Instance, tensors: Mapping[str, Free], generator: torch.Generator) -> Iterator[Instance]:
    """Every variable of the same family: wild ones, then simple ones."""
    shapes = {name: tuple(base.values[name].shape) for name in tensors}
    for name in WILD:
        made = {n: wild_member(v.domain, shapes[n], name, generator) for n, v in tensors.items()}
        values = {n: value for n, value in made.items() if value is not None}
        if values:
            yield _with(base, values, f"{', '.join(values)} = {name}")
    for order in range(_FAMILIES):
        members = {n: exact_family(v.domain, shapes[n], order, generator) for n, v in tensors.items()}
        words = ", ".join(f"{name} = {family}" for name, (family, _) in members.items())
        yield _with(base, {name: value for name, (_, value) in members.items()}, words)


def _closed(base: Instance, tensors: Mapping[str, Free]) -> Iterator[Instance]:
    """The shift for one variable, and for another one its closing corner times a tiny number; and their sums."""
    square = [
        name
        for name, variable in tensors.items()
        if variable.domain.kind is DomainKind.REAL and base.values[name].ndim == 2 and len(base.values[name]) > 1
    ]
    for first in square:
        for second in square:
            if first != second and base.values[first].shape == base.values[second].shape:
                shape = tuple(base.values[first].shape)
                for exponent in (-10, -24, -34):
                    values = {first: shift(shape), second: 2.0**exponent * corner(shape)}
                    yield _with(base, values, f"{first} = shift, {second} = its closing corner times 2^{exponent}")


def _perturbed(base: Instance, tensors: Mapping[str, Free], generator: torch.Generator) -> Iterator[Instance]:
    """One variable of a simple family, and another one the same but for a small multiple of a wild or random matrix."""
    alike: dict[tuple[Shape, Domain], list[str]] = {}
    for name, variable in tensors.items():
        alike.setdefault((tuple(base.values[name].shape), variable.domain), []).append(name)
    for (shape, domain), names in alike.items():
        pairs = [(first, second) for first in names for second in names if first != second]
        for first, second in pairs[:_PAIRS]:
            for order in range(_FAMILIES):
                family, value = exact_family(domain, shape, order, generator)
                way = list(WILD)[choose(generator, len(WILD))]
                change = wild_member(domain, shape, way, generator) if choose(generator, 2) else None
                if change is None:
                    way, change = "a random one", torch.randn(shape, generator=generator, dtype=torch.float64)
                exponent = -choose(generator, 12)
                other = value + 2.0**exponent * change
                if contains(domain, other):
                    words = f"{first} = {family}, {second} = the same plus 2^{exponent} times {way}"
                    yield _with(base, {first: value, second: other}, words)


def _one_wild(
    base: Instance, free: Mapping[str, Free], tensors: Mapping[str, Free], generator: torch.Generator
) -> Iterator[Instance]:
    """One variable wild and the others as in the base, or of ones, and scalars zero: no constant leaves room then."""
    scalars = [name for name in free if name in base.values and base.values[name].ndim == 0]
    zero = torch.zeros((), dtype=torch.float64)
    none = {name: zero for name in scalars if within(free[name].domain, 0.0)}
    ones = {n: torch.ones_like(base.values[n]) for n in tensors}
    ones = {n: value for n, value in ones.items() if contains(tensors[n].domain, value)}
    for name, variable in tensors.items():
        for family in WILD:
            member = wild_member(variable.domain, tuple(base.values[name].shape), family, generator)
            if member is not None:
                yield _with(base, {**none, name: member}, f"the plainest, but {name} = {family}")
                if family in _AMONG_ONES and len(tensors) > 1:
                    yield _with(base, {**ones, **none, name: member}, f"all ones, but {name} = {family}")


def _mixed(base: Instance, free: Mapping[str, Free], generator: torch.Generator) -> Instance:
    """Every variable of its own family, some scaled far up or down; now and then with equal rows or a dead unit."""
    values: dict[str, Tensor] = {}
    words = []
    names = list(WILD)
    for name, variable in free.items():
        if name not in base.values:
            continue
        shape = tuple(base.values[name].shape)
        if not shape:
            ladder = scalar_ladder(variable.domain)
            values[name] = torch.tensor(ladder[choose(generator, min(12, len(ladder)))], dtype=torch.float64)
            words.append(f"{name} = {values[name].item():g}")
            continue
        family = names[choose(generator, len(names))]
        member = wild_member(variable.domain, shape, family, generator) if choose(generator, 2) else None
        if member is None:
            family, member = exact_family(variable.domain, shape, choose(generator, _FAMILIES), generator)
        if is_cone(variable.domain) and choose(generator, 3) == 0:
            exponent = TINY[choose(generator, len(TINY))] * (1 if choose(generator, 3) else -1) // 2
            member, family = member * 2.0**exponent, f"{family} times 2^{exponent}"
        values[name] = member
        words.append(f"{name} = {family}")
    theme = choose(generator, 4)
    if theme < 2:
        letters = sorted({str(s) for v in free.values() for s in (v.type.rows, v.type.cols) if str(s) != "1"})
        if letters:
            letter = letters[choose(generator, len(letters))]
            changed = _equal(values, free, letter) if theme == 0 else _off(values, free, letter, generator)
            fits = {n: v for n, v in changed.items() if contains(free[n].domain, v)}
            words += [f"{'equal' if theme == 0 else 'one zero'} along {letter}: {', '.join(fits)}"] if fits else []
            values |= fits
    return _with(base, values, ", ".join(words))


def _equal(values: Mapping[str, Tensor], free: Mapping[str, Free], letter: str) -> dict[str, Tensor]:
    """Rows along a size letter equal the first one; vectors along it alternate in sign, as residuals that cancel do."""
    changed = {}
    for name, value in values.items():
        kind = free[name].type
        if value.ndim == 2 and str(kind.rows) == letter:
            changed[name] = value[:1].expand_as(value).clone()
        elif value.ndim == 1 and str(kind.rows) == letter:
            signs = torch.ones_like(value)
            signs[1::2] = -1
            changed[name] = signs * float(value.abs().max())
    return changed


def _off(
    values: Mapping[str, Tensor], free: Mapping[str, Free], letter: str, generator: torch.Generator
) -> dict[str, Tensor]:
    """One row or column along a size letter becomes zero, or negative, in some of the variables."""
    changed = {}
    place = choose(generator, 64)
    for name, value in values.items():
        kind = free[name].type
        fresh = value.clone()
        if value.ndim >= 1 and str(kind.rows) == letter and choose(generator, 2):
            fresh[place % len(value)] *= -1.0 if choose(generator, 3) == 0 else 0.0
            changed[name] = fresh + 0.0
        elif value.ndim == 2 and str(kind.cols) == letter and choose(generator, 2):
            fresh[:, place % value.shape[1]] = 0.0 if choose(generator, 2) else -fresh[:, place % value.shape[1]].abs()
            changed[name] = fresh + 0.0
    return changed
