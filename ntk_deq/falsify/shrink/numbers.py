"""Plainer numbers: scalars, equal numbers together, all numbers rounded, then entries one at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ntk_deq.evaluation.instance import Instance, format_number
from ntk_deq.falsify.domains import within
from ntk_deq.falsify.scalars import ROUNDINGS, plain_numbers, plainer, rounded, small_numbers, weight
from ntk_deq.falsify.shrink.tensors import Knobs, Proposals
from ntk_deq.language.domain import Domain, DomainKind

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


def slots(instance: Instance, knobs: Knobs) -> list[Slot]:
    """Return the numbers that can be changed one at a time, scalars first."""
    found: list[Slot] = []
    for name, variable in knobs.free.items():
        shape = tuple(instance.values[name].shape)
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


def plainer_scalars(instance: Instance, knobs: Knobs) -> Proposals:
    """Propose for each scalar a small number, an end or a quarter of its range, or a rounding."""
    for slot in slots(instance, knobs):
        if slot.scalar:
            number = slot.number(instance)
            numbers = [*plain_numbers(slot.domain), *_all_roundings(number)]
            instance = yield from _changes(instance, knobs, [slot], numbers)
    return instance


def equal_numbers(instance: Instance, knobs: Knobs) -> Proposals:
    """Propose to replace numbers of equal magnitude in several places together, signs kept."""
    groups: dict[float, list[Slot]] = {}
    for slot in slots(instance, knobs):
        groups.setdefault(abs(slot.number(instance)), []).append(slot)
    shared = sorted((x for x, group in groups.items() if x != 0 and len(group) > 1), key=lambda x: (-weight(x), x))
    for magnitude in shared[:_LISTED]:
        numbers = [*(x for x in small_numbers() if x >= 0), *_all_roundings(magnitude)]
        instance = yield from _changes(instance, knobs, groups[magnitude], numbers)
    return instance


def all_rounded(instance: Instance, knobs: Knobs) -> Proposals:
    """Propose to round every number that can be changed to few bits, the fewest first."""
    found = slots(instance, knobs)
    for bits in ROUNDINGS:
        values = {name: instance.values[name] for name in knobs.free}
        moved = set()
        for slot in found:
            number = slot.number(instance)
            best = next((x for x in rounded(number, bits) if within(slot.domain, x)), number)
            if best != number:
                values[slot.variable] = slot.put(values[slot.variable], best)
                moved.add(slot.variable)
        candidate = knobs.changed(instance, {name: values[name] for name in moved}, f"numbers rounded to {bits} bits")
        if candidate is not None and moved and (yield candidate):
            return candidate.instance
    return instance


def positive_signs(instance: Instance, knobs: Knobs) -> Proposals:
    """Propose to drop the signs of negative numbers: in all variables, in each pair of them, in one.

    Two signs may hold each other up, as those of X and W do in X W. It ends with the first that is accepted.
    """
    signed = [name for name in knobs.free if bool((instance.values[name] < 0).any())]
    groups = [tuple(signed), *itertools.combinations(signed, 2), *((name,) for name in signed)]
    for group in dict.fromkeys(group for group in groups if group):
        values = {name: instance.values[name].abs() for name in group}
        candidate = knobs.changed(instance, values, f"{', '.join(group)} without signs")
        if candidate is not None and (yield candidate):
            return candidate.instance
    return instance


def signs_and_zeros(instance: Instance, knobs: Knobs) -> Proposals:
    """Propose for each entry 0, 1 and -1."""
    return (yield from _entries(instance, knobs, lambda slot, number: small_numbers()[:3]))


def small_entries(instance: Instance, knobs: Knobs) -> Proposals:
    """Propose for each entry small integers, simple fractions, and what is plain in its domain."""
    return (yield from _entries(instance, knobs, lambda slot, number: plain_numbers(slot.domain)))


def rounded_entries(instance: Instance, knobs: Knobs) -> Proposals:
    """Propose for each entry its roundings, to the fewest bits first."""
    return (yield from _entries(instance, knobs, lambda slot, number: _all_roundings(number)))


def _entries(instance: Instance, knobs: Knobs, numbers: Callable[[Slot, float], Iterable[float]]) -> Proposals:
    for slot in slots(instance, knobs):
        if not slot.scalar:
            instance = yield from _changes(instance, knobs, [slot], numbers(slot, slot.number(instance)))
    return instance


def _all_roundings(number: float) -> list[float]:
    return [x for bits in ROUNDINGS for x in rounded(number, bits)]


def _changes(instance: Instance, knobs: Knobs, group: list[Slot], numbers: Iterable[float]) -> Proposals:
    """Propose numbers for all slots of a group, each with its own sign where there are several; the first is kept."""
    before = group[0].number(instance)
    target = before if len(group) == 1 else abs(before)
    for number in dict.fromkeys(plainer(numbers, than=target)):
        values = {slot.variable: instance.values[slot.variable] for slot in group}
        for slot in group:
            sign = -1.0 if len(group) > 1 and slot.number(instance) < 0 else 1.0
            values[slot.variable] = slot.put(values[slot.variable], sign * number)
        where = group[0].variable + ("" if group[0].scalar else f"[{group[0].places[0][0]}]")
        words = where if len(group) == 1 else f"every {format_number(target)}"
        candidate = knobs.changed(instance, values, f"{words} = {format_number(number)}")
        if candidate is not None and (yield candidate):
            return candidate.instance
    return instance
