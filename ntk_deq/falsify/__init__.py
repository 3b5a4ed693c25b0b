"""Instances to test a claim on, and the search for one that breaks it; knows no claim.

Here: the instance ladder, from the simplest structured instances to random ones, each reproducible by its number alone.
In a universal setting even numbers are structured and exact in binary, odd ones random. In a setting with distributions
every instance is a draw, and what the claim quantifies over (`given`, variables with a domain) climbs the same ladder.
The sizes of an instance: the smallest first, then small combinations, then all of the range.

families.py, exact_builders.py    structured instances
domains.py, scalars.py    members of domains, draws from distributions, telling scalars
search/          campaign.py: places, points, descents; descents.py: the methods; archive.py: what is found, by margins
                 of hypotheses and conclusions; starts.py: where it begins; feasible.py: moved into the hypotheses
shrink/          a counterexample with smaller sizes and plainer numbers
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from ntk_deq.certified.scalar import with_radius
from ntk_deq.data.images import load_images, select_images
from ntk_deq.data.samples import Freedom, Known
from ntk_deq.errors import ArgumentError, DataError
from ntk_deq.evaluation.instance import Instance, format_number, shape_of
from ntk_deq.falsify.domains import ROUNDING, choose, draw_expression, is_cone, rounding, stream
from ntk_deq.falsify.families import exact_family, random_family
from ntk_deq.falsify.scalars import random_entries, scalar_ladder
from ntk_deq.language.declaration import Draw, ImageData, Setting
from ntk_deq.language.domain import Free, scalar_names
from ntk_deq.language.types import Size, SizeRange

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


# A prime, at least the largest number of structured families: c + v r modulo it makes every pair of families of two
# variables v meet within its square of instances (an orthogonal array of strength two; Bush 1952).
_PRIME = 13

_LOOKS = 4

_SIMPLEST = 4  # values of a scalar that draws follow: so many of its ladder's first, least and largest
_EXPONENTS = (-1, 1, -2, 2, -4, 4, -7, 7, -10, 10, -15, 15, -20, 20, -30, 30)


def distinct_instances(setting: Setting, given: Mapping[str, Free], *, count: int, seed: int) -> Iterator[Instance]:
    """Yield the first `count` instances that differ from one another; fewer where `_LOOKS` times as many hold no more.

    Args:
        setting: The setting.
        given: Further variables that the claim quantifies over.
        count: How many.
        seed: The run's seed.

    Raises:
        ArgumentError: A distribution or domain cannot give a value of the shape asked for.
        DataError: The setting's images cannot be used.
        LimitError: A variable would be too large.
    """
    known: set[tuple[object, ...]] = set()
    for index in range(_LOOKS * count + _LOOKS):
        if len(known) == count:
            return
        instance = instance_at(setting, given, index, seed)
        own = tuple((name, tuple(v.shape), v.numpy().tobytes()) for name, v in sorted(instance.values.items()))
        if own not in known:
            known.add(own)
            yield instance


def instance_at(setting: Setting, given: Mapping[str, Free], index: int, seed: int) -> Instance:
    """Build instance number `index` of a setting: it depends on the arguments only, not on any other instance.

    Args:
        setting: The setting.
        given: Further variables that the claim quantifies over.
        index: Number of the instance, from 0.
        seed: The run's seed.

    Raises:
        ArgumentError: `index` is negative, or a distribution or domain cannot give a value of the shape asked for.
        DataError: The setting's images cannot be used.
        LimitError: A variable would be too large.
    """
    if index < 0:
        raise ArgumentError(f"`index` of an instance must be an integer >= 0. Got {index}.")
    place = stream(seed, setting.name, index, "sizes of the instance")
    if setting.universal:
        sizes = sizes_at(setting.sizes, index // 2, place)
    else:
        sizes = random_sizes(setting.sizes, index, place)
    draft = _Draft(setting, index, seed, sizes)
    if setting.images is not None:
        draft.add_images(setting.images)
    draft.add_free({**setting.free, **given})
    draft.add_draws()
    return Instance(setting.name, ", ".join(draft.words), draft.sizes, draft.values, index, draft.rounded)


def redrawn(setting: Setting, instance: Instance, seed: int) -> Instance:
    """Return an instance whose draws follow the values that its scalars have now; the random numbers stay the same.

    Args:
        setting: The instance's setting.
        instance: An instance that `instance_at` built with this seed, some of its scalars replaced.
        seed: The run's seed.
    """
    draft = _Draft(setting, instance.index, seed, instance.sizes)
    draft.values |= {name: value for name, value in instance.values.items() if name not in setting.draws}
    draft.rounded |= {name: radius for name, radius in instance.rounded.items() if name not in setting.draws}
    draft.add_draws()
    return replace(instance, values=draft.values, rounded=draft.rounded)


def rescaled(setting: Setting, given: Mapping[str, Free], instance: Instance, seed: int) -> Iterator[Instance]:
    """Yield an instance with each scalar that a distribution uses led through its domain, far out too; draws follow.

    Args:
        setting: The instance's setting, which has draws.
        given: Further variables that the claim quantifies over.
        instance: An instance that `instance_at` built with this seed.
        seed: The run's seed.
    """
    used = set().union(*map(_uses, setting.draws.values()))
    for name, variable in {**setting.free, **given}.items():
        if name not in used or instance.values[name].ndim:
            continue
        ladder = scalar_ladder(variable.domain)
        ends = sorted(ladder)
        for value in dict.fromkeys((*ladder[:_SIMPLEST], *ends[:_SIMPLEST], *ends[-_SIMPLEST:])):
            values = {**instance.values, name: torch.tensor(value, dtype=torch.float64)}
            words = f"{instance.family}; {name} moved to {format_number(value)}"
            yield redrawn(setting, replace(instance, values=values, family=words), seed)


@dataclass
class _Draft:
    """An instance in the making.

    Attributes:
        setting: The setting.
        index: Its number.
        seed: The run's seed.
        sizes: Values of the size letters.
        values: The values so far.
        words: What they are, in words.
        rounded: How far from a member of its domain, or from an exact draw, some of them are.
    """

    setting: Setting
    index: int
    seed: int
    sizes: dict[str, int]
    values: dict[str, Tensor] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    rounded: dict[str, float] = field(default_factory=dict)

    def _stream(self, label: str) -> torch.Generator:
        return stream(self.seed, self.setting.name, self.index, label)

    def add_free(self, free: Mapping[str, Free]) -> None:
        """Give each quantified variable a value."""
        rank, structured = self.index // 2, self.index % 2 == 0
        for position, (name, variable) in enumerate(free.items()):
            shape = shape_of(variable.type, self.sizes, name=name)
            generator = self._stream(name)
            if not shape:
                value = _scalar(variable, rank, generator, structured=structured)
                family = format_number(value.item()) if structured else f"{value.item():.6g}"
            elif structured:
                order = _order(rank, position, generator)
                family, value = exact_family(variable.domain, shape, order, generator)
            else:
                family, value = random_family(variable.domain, shape, generator)
                radius = rounding(variable.domain, value) if variable.domain.kind in ROUNDING else 0.0
                self.rounded |= {name: radius} if radius else {}
            self.values[name] = value
            self.words.append(f"{name} = {family}")
        scaling = _scaling(free, rank, self._stream("scale of the instance"), structured=structured)
        for name, exponent in scaling.items():
            self.values[name] = self.values[name] * 2.0**exponent
        if scaling:
            which = "all" if len(scaling) > 1 else next(iter(scaling))
            self.words.append(f"{which} scaled by 2^{next(iter(scaling.values()))}")

    def add_draws(self) -> None:
        """Draw from the setting's distributions, each after the scalars that it uses."""
        pending = dict(self.setting.draws)
        while pending:
            ready = [name for name, entry in pending.items() if not _uses(entry) & set(pending)]
            if not ready:
                names, setting = ", ".join(pending), self.setting.name
                raise ArgumentError(f"The distributions of {names} in setting {setting} use each other in a circle.")
            for name in ready:
                entry = pending.pop(name)
                scalars = {
                    key: Known(value.item(), with_radius(value.item(), self.rounded.get(key, 0.0)))
                    for key, value in self.values.items()
                    if not value.ndim
                }
                shape = shape_of(entry.type, self.sizes, name=name)
                drawn = draw_expression(entry.distribution, shape, {**self.sizes, **scalars}, self._stream(name))
                self.values[name] = drawn.value
                if drawn.radius or (drawn.freedom is Freedom.FIXED and not _is_short(drawn.value)):
                    self.rounded[name] = drawn.radius
                self.words.append(f"{name} ~ {entry.text}")

    def add_images(self, images: ImageData) -> None:
        """Draw the inputs and targets from images, which decide some of the sizes."""
        kind = self.setting.variable_types()[images.inputs]
        sizes = dict(self.sizes)
        count = images.count if images.count is not None else shape_of(kind, sizes | _one(kind.cols, sizes))[0]
        folder = Path(self.setting.directory)
        loaded = load_images(
            images.source,
            folder / images.images if images.images is not None else None,
            folder / images.labels if images.labels is not None else None,
        )
        sample = select_images(
            loaded.images,
            loaded.labels,
            classes=images.classes,
            count=count,
            unit_norm=images.unit_norm,
            side=images.side,
            split=images.split,
            generator=self._stream("choice of the images"),
            name=loaded.name,
        )
        for size, found in ((kind.rows, count), (kind.cols, sample.X.shape[1])):
            sizes |= _one(size, sizes, found)
        wanted = shape_of(kind, sizes, name=images.inputs)
        if wanted != tuple(sample.X.shape):
            raise DataError(
                f"{loaded.name}: `{images.inputs}` of setting {self.setting.name} is {wanted[0]} x {wanted[-1]}, but "
                f"the images give {count} x {sample.X.shape[1]}. Change `sizes`, `count` or `side`."
            )
        self.sizes = sizes
        self.values[images.inputs] = sample.X
        if sample.radius:
            self.rounded[images.inputs] = sample.radius
        if images.targets is not None:
            self.values[images.targets] = sample.y
        classes = ", ".join(map(str, images.classes))
        self.words.append(f"{images.inputs} = {count} images of {images.source}, classes {classes}")


def _order(rank: int, position: int, generator: torch.Generator) -> int:
    """Return which structured family a variable has: all the same twice (units, zeros), then so that every two meet."""
    if rank < 2:
        return rank
    row, column = divmod(rank - 2, _PRIME)
    return (column + position * (row + 1)) % _PRIME if row < _PRIME else choose(generator, _PRIME)


def _scalar(variable: Free, rank: int, generator: torch.Generator, *, structured: bool) -> Tensor:
    """Return a value of the scalar ladder, the further up the later; a random value for three of four odd instances."""
    if not structured and choose(generator, 4) > 0:
        return random_entries(variable.domain, (), generator)
    ladder = scalar_ladder(variable.domain)
    pick = choose(generator, min(len(ladder), 2 + rank)) if rank else 0
    return torch.tensor(ladder[pick], dtype=torch.float64)


def _scaling(free: Mapping[str, Free], rank: int, generator: torch.Generator, *, structured: bool) -> dict[str, int]:
    """Return the powers of two by which variables are scaled: of one variable or of all; none in most instances."""
    cones = [name for name, variable in free.items() if is_cone(variable.domain)]
    if structured:
        happens, level = rank % 4 == 3, 2 + rank // 2
    else:
        draw = choose(generator, 8)
        happens, level = draw < 4, len(_EXPONENTS) if draw == 0 else 6
    if not happens or not cones:
        return {}
    exponent = _EXPONENTS[choose(generator, min(level, len(_EXPONENTS)))]
    which = choose(generator, len(cones) + 1)
    return dict.fromkeys(cones if which == len(cones) else [cones[which]], exponent)


def _is_short(value: Tensor) -> bool:
    """Say whether single precision holds a value, so that it stays what it is there."""
    return torch.equal(value.float().double(), value)


def _uses(entry: Draw) -> set[str]:
    return {node.name for node in scalar_names(entry.distribution)}


def _one(size: Size, sizes: Mapping[str, int], value: int = 1) -> dict[str, int]:
    """Return a value for the letter that a size is, unless the letter has one already."""
    letters = size.letters - set(sizes)
    return dict.fromkeys(letters, value) if size == Size.of(next(iter(letters), 0)) else {}
