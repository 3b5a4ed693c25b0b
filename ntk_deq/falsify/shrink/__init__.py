"""Shrink a counterexample over the problem's own knobs: sizes, scale, rank, then numbers, each step verified again.

Plainer numbers: scalars, equal numbers together, all numbers rounded, then entries one at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ntk_deq.errors import ArgumentError
from ntk_deq.evaluation.instance import Instance, format_number
from ntk_deq.falsify.domains import within
from ntk_deq.falsify.scalars import ROUNDINGS, plain_numbers, plainer, rounded, small_numbers, weight
from ntk_deq.falsify.shrink.tensors import Shrinking, SpentError, plainer_tensors, smaller_sizes, unit_scales
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Domain, DomainKind, Free

_LISTED = 12  # numbers that entries may share, the heaviest first


@dataclass(frozen=True)
class Slot:
    """A number of an instance that can be changed: an entry with those that the domain ties to it.

    Attributes:
        variable: Its variable.
        places: Flat indices in the variable's value, each with the sign that it takes.
        domain: What the first of them ranges over.
        scalar: Whether it is the whole variable.
    """

    variable: str
    places: tuple[tuple[int, float], ...]
    domain: Domain
    scalar: bool

    def number(self, instance: Instance) -> float:
        """Return the number in an instance."""
        return instance.values[self.variable].flatten()[self.places[0][0]].item()

    def put(self, value: Tensor, number: float) -> Tensor:
        """Return the variable's value with another number here."""
        flat = value.flatten().clone()
        for index, sign in self.places:
            flat[index] = sign * number
        return flat.reshape(value.shape)


def slots(search: Shrinking) -> list[Slot]:
    """Return the numbers that can be changed one at a time, scalars first."""
    found: list[Slot] = []
    for name, variable in search.free.items():
        shape = tuple(search.best.values[name].shape)
        found += [
            Slot(name, places, variable.domain, not shape) for places in entry_places(variable.domain.kind, shape)
        ]
    return sorted(found, key=lambda slot: not slot.scalar)


def entry_places(kind: DomainKind, shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, float], ...]]:
    """Yield the numbers that a domain leaves free: flat indices of the entries that are one, each with its sign.

    Args:
        kind: The domain; orthogonal matrices and unit rows have none that changes alone.
        shape: Shape of the value.
    """
    if kind in (DomainKind.ORTHOGONAL, DomainKind.UNIT_ROWS):
        return
    order = shape[0] if len(shape) == 2 else 0
    if kind is DomainKind.DIAGONAL:
        yield from (((i * order + i, 1.0),) for i in range(order))
    elif kind in (DomainKind.SYMMETRIC, DomainKind.PSD):
        yield from (((i * order + i, 1.0),) for i in range(order))
        yield from (((i * order + j, 1.0), (j * order + i, 1.0)) for i in range(order) for j in range(i))
    elif kind is DomainKind.SKEW:
        yield from (((i * order + j, 1.0), (j * order + i, -1.0)) for i in range(order) for j in range(i))
    else:
        yield from (((i, 1.0),) for i in range(int(torch.Size(shape).numel())))


def plainer_scalars(search: Shrinking) -> None:
    """Propose for each scalar a small number, an end or a quarter of its range, or a rounding."""
    for slot in slots(search):
        if slot.scalar:
            _change(search, [slot], [*plain_numbers(slot.domain), *_all_roundings(slot.number(search.best))])


def equal_numbers(search: Shrinking) -> None:
    """Propose to replace numbers of equal magnitude in several places together, signs kept."""
    groups: dict[float, list[Slot]] = {}
    for slot in slots(search):
        groups.setdefault(abs(slot.number(search.best)), []).append(slot)
    shared = sorted((x for x, group in groups.items() if x != 0 and len(group) > 1), key=lambda x: (-weight(x), x))
    for magnitude in shared[:_LISTED]:
        numbers = [*(x for x in small_numbers() if x >= 0), *_all_roundings(magnitude)]
        _change(search, groups[magnitude], numbers)


def all_rounded(search: Shrinking) -> None:
    """Propose to round every number that can be changed to few bits, the fewest first."""
    found, instance = slots(search), search.best
    for bits in ROUNDINGS:
        values: dict[str, Tensor] = {}
        for slot in found:
            number = slot.number(instance)
            best = next((x for x in rounded(number, bits) if within(slot.domain, x)), number)
            if best != number:
                before = values.get(slot.variable, instance.values[slot.variable])
                values[slot.variable] = slot.put(before, best)
        if values and search.changes(values, f"numbers rounded to {bits} bits"):
            return


def positive_signs(search: Shrinking) -> None:
    """Propose to drop the signs of negative numbers: in all variables, in each pair of them, in one.

    Two signs may hold each other up, as those of X and W do in X W. It ends with the first that is accepted.
    """
    instance = search.best
    signed = [name for name in search.free if bool((instance.values[name] < 0).any())]
    groups = [tuple(signed), *itertools.combinations(signed, 2), *((name,) for name in signed)]
    for group in dict.fromkeys(group for group in groups if group):
        if search.changes({name: instance.values[name].abs() for name in group}, f"{', '.join(group)} without signs"):
            return


def signs_and_zeros(search: Shrinking) -> None:
    """Propose for each entry 0, 1 and -1."""
    _change_entries(search, lambda slot: small_numbers()[:3])


def small_entries(search: Shrinking) -> None:
    """Propose for each entry small integers, simple fractions, and what is plain in its domain."""
    _change_entries(search, lambda slot: plain_numbers(slot.domain))


def rounded_entries(search: Shrinking) -> None:
    """Propose for each entry its roundings, to the fewest bits first."""
    _change_entries(search, lambda slot: _all_roundings(slot.number(search.best)))


def _change_entries(search: Shrinking, numbers: Callable[[Slot], Iterable[float]]) -> None:
    for slot in slots(search):
        if not slot.scalar:
            _change(search, [slot], numbers(slot))


def _all_roundings(number: float) -> list[float]:
    return [x for bits in ROUNDINGS for x in rounded(number, bits)]


def _change(search: Shrinking, group: list[Slot], numbers: Iterable[float]) -> None:
    """Propose numbers for all slots of a group, each with its own sign where there are several; the first is kept."""
    instance = search.best
    before = group[0].number(instance)
    target = before if len(group) == 1 else abs(before)
    for number in dict.fromkeys(plainer(numbers, than=target)):
        values = {slot.variable: instance.values[slot.variable] for slot in group}
        for slot in group:
            sign = -1.0 if len(group) > 1 and slot.number(instance) < 0 else 1.0
            values[slot.variable] = slot.put(values[slot.variable], sign * number)
        where = group[0].variable + ("" if group[0].scalar else f"[{group[0].places[0][0]}]")
        words = where if len(group) == 1 else f"every {format_number(target)}"
        if search.changes(values, f"{words} = {format_number(number)}"):
            return


PASSES: tuple[Callable[[Shrinking], None], ...] = (
    smaller_sizes,
    unit_scales,
    plainer_tensors,
    all_rounded,
    plainer_scalars,
    equal_numbers,
    positive_signs,
    signs_and_zeros,
    small_entries,
    rounded_entries,
)
"""In the order of preference; each is repeated while it helps."""


@dataclass(frozen=True)
class ShrinkResult:
    """What shrinking came to.

    Attributes:
        instance: The plainest instance found that still refutes; the given one where nothing helped.
        evaluations: How many instances were judged.
        steps: The accepted changes in order, in words.
        complete: Whether no pass could go on; otherwise the budget ran out.
    """

    instance: Instance
    evaluations: int
    steps: tuple[str, ...]
    complete: bool


def shrink(
    instance: Instance,
    setting: Setting,
    given: Mapping[str, Free],
    still_refutes: Callable[[Instance], bool],
    *,
    budget: int = 400,
) -> ShrinkResult:
    """Return a smaller and plainer instance that still refutes.

    Each accepted step makes `measure` smaller: the sum of the sizes, then the bits of all numbers, the negative ones,
    the magnitudes. Every number stays exact in binary and every variable in its domain. Variables drawn from
    distributions, and scalars and sizes that these use, stay as they are.

    Args:
        instance: An instance that refutes; it is not judged again.
        setting: Its setting.
        given: Further variables that the claim quantifies over.
        still_refutes: Whether an instance is a counterexample for certain. It is asked at most `budget` times.
        budget: How many instances may be judged.

    Raises:
        ArgumentError: The budget is negative.

    Example:
        >>> import torch
        >>> from ntk_deq.errors import Position
        >>> from ntk_deq.language.domain import Domain, DomainKind
        >>> from ntk_deq.language.types import SCALAR
        >>> setting = Setting("s", None, {}, {}, {}, None, Position("f", 1, 1))
        >>> c = Free("c", SCALAR, Domain(DomainKind.REAL))
        >>> found = Instance("s", "random", {}, {"c": torch.tensor(17.31, dtype=torch.float64)}, 0)
        >>> shrink(found, setting, {"c": c}, lambda i: i.values["c"].item() > 2.5).instance.values["c"].item()
        3.0
    """
    if budget < 0:
        raise ArgumentError(f"`budget` of shrink must be an integer >= 0. Got {budget}.")
    search = Shrinking(instance, setting, given, still_refutes, budget)
    try:
        _run(search)
        complete = True
    except SpentError:
        complete = False
    best = replace(search.best, family=f"shrunk from: {instance.family}") if search.steps else search.best
    return ShrinkResult(best, search.evaluations, tuple(search.steps), complete)


def _run(search: Shrinking) -> None:
    """Repeat the passes until none helps."""
    position = 0
    while position < len(PASSES):
        before = steps = len(search.steps)
        PASSES[position](search)
        while len(search.steps) > steps:
            steps = len(search.steps)
            PASSES[position](search)
        # Whatever a later pass achieved may let an earlier, more important one go on.
        position = 0 if steps > before else position + 1
