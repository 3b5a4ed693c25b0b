"""Plainer tensors as wholes: structured members of the domain, lower rank, unit scale."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ntk_deq.claims.claim import DomainKind
from ntk_deq.falsify.domains import SQUARE, is_cone
from ntk_deq.falsify.exact_families import exact_family, family_names
from ntk_deq.falsify.instance import Instance
from ntk_deq.falsify.shrinking.state import Candidate, Knobs

_FAMILIES = 6  # of each domain's structured families, those that come first
_DIRECT = frozenset({DomainKind.ORTHOGONAL, DomainKind.UNIT_ROWS})  # sets whose members are changed as wholes only


def unit_scales(instance: Instance, knobs: Knobs) -> Iterator[Candidate]:
    """Yield variants in which variables are scaled by powers of two so that their largest entry is between 1 and 2.

    All variables whose domains are cones together, each tensor with each scalar, each alone: a hypothesis such as
    norm(A) <= M lets A and M go down only side by side.
    """
    exponents = {}
    for name, variable in knobs.free.items():
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
            yield from _one(knobs, instance, scaled, f"{', '.join(group)} scaled by 2^{exponent}")


def _scaled(value: Tensor, exponent: int) -> Tensor:
    """Multiply by 2^exponent in two steps, since 2^1074 itself is no double."""
    half = exponent // 2
    return value * 2.0**half * 2.0 ** (exponent - half)


def plainer_tensors(instance: Instance, knobs: Knobs) -> Iterator[Candidate]:
    """Yield variants in which one tensor is zero, a member of a structured family, all ones, or of lower rank."""
    for name, variable in knobs.free.items():
        value = instance.values[name]
        if value.ndim == 0 or value.numel() == 0:
            continue
        shape = tuple(value.shape)
        unit = torch.eye(*shape, dtype=value.dtype) if len(shape) == 2 else torch.ones_like(value)
        yield from _one(knobs, instance, {name: torch.zeros_like(value)}, f"{name} = 0")
        yield from _one(knobs, instance, {name: unit}, f"{name} = identity")
        yield from _one(knobs, instance, {name: torch.ones_like(value)}, f"{name} = ones")
        count = len(family_names(variable.domain, shape))
        for rank in range(min(_FAMILIES, count)):
            family, member = exact_family(variable.domain, shape, rank, torch.Generator().manual_seed(0))
            yield from _one(knobs, instance, {name: member}, f"{name} = {family}")
        if variable.domain.kind is DomainKind.UNIT_ROWS and len(shape) == 2:
            yield from _unit_rows(instance, knobs, name)
        elif len(shape) == 2 and variable.domain.kind not in _DIRECT:
            yield from _lower_rank(instance, knobs, name)


def _lower_rank(instance: Instance, knobs: Knobs, name: str) -> Iterator[Candidate]:
    """Yield variants with one row or column only, with a row or column cleared, with equal rows, with the diagonal."""
    value = instance.values[name]
    rows, cols = value.shape
    if rows == cols:
        yield from _one(knobs, instance, {name: torch.diag(torch.diagonal(value))}, f"diagonal of {name}")
    if knobs.free[name].domain.kind in SQUARE:
        for i in range(rows):
            cleared = value.clone()
            cleared[i, :] = 0
            cleared[:, i] = 0
            yield from _one(knobs, instance, {name: cleared}, f"row and column {i + 1} of {name} cleared")
        return
    for i in range(rows if rows > 1 else 0):
        alone = torch.zeros_like(value)
        alone[i] = value[i]
        yield from _one(knobs, instance, {name: alone}, f"row {i + 1} of {name} alone")
        yield from _one(knobs, instance, {name: value[i].expand(rows, cols)}, f"rows of {name} equal to row {i + 1}")
        yield from _one(knobs, instance, {name: value - alone}, f"row {i + 1} of {name} cleared")
    for j in range(cols if cols > 1 else 0):
        alone = torch.zeros_like(value)
        alone[:, j] = value[:, j]
        yield from _one(knobs, instance, {name: alone}, f"column {j + 1} of {name} alone")
        yield from _one(knobs, instance, {name: value - alone}, f"column {j + 1} of {name} cleared")


def _unit_rows(instance: Instance, knobs: Knobs, name: str) -> Iterator[Candidate]:
    """Yield variants in which one row is a unit vector."""
    value = instance.values[name]
    for i, j in itertools.product(range(value.shape[0]), range(value.shape[1])):
        moved = value.clone()
        moved[i] = 0
        moved[i, j] = 1
        replaced = knobs.changed(instance, {name: moved}, f"row {i + 1} of {name} = unit vector {j + 1}")
        if replaced is not None:
            yield replaced


def _one(knobs: Knobs, instance: Instance, values: dict[str, Tensor], words: str) -> Iterator[Candidate]:
    candidate = knobs.changed(instance, values, words)
    if candidate is not None:
        yield candidate
