"""Plainer tensors as wholes: structured members of the domain, lower rank, unit scale."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ntk_deq.claims.claim import Domain, DomainKind
from ntk_deq.falsify.domains import SQUARE, is_cone
from ntk_deq.falsify.exact_families import exact_family, family_names
from ntk_deq.falsify.instance import Instance
from ntk_deq.falsify.shrinking.state import Knobs, Proposals, one

_FAMILIES = 6  # of each domain's structured families, those that come first


def unit_scales(instance: Instance, knobs: Knobs) -> Proposals:
    """Propose to scale variables by powers of two so that their largest entry is between 1 and 2.

    All variables whose domains are cones together, each tensor with each scalar, each alone: a hypothesis such as
    norm(A) <= M lets A and M go down only side by side. It ends with the first that is accepted.
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
            candidate = knobs.changed(instance, scaled, f"{', '.join(group)} scaled by 2^{exponent}")
            if candidate is not None and (yield candidate):
                return candidate.instance
    return instance


def _scaled(value: Tensor, exponent: int) -> Tensor:
    """Multiply by 2^exponent in two steps, since 2^1074 itself is no double."""
    half = exponent // 2
    return value * 2.0**half * 2.0 ** (exponent - half)


def plainer_tensors(instance: Instance, knobs: Knobs) -> Proposals:
    """Propose for each tensor to be zero, the identity, all ones, a member of a structured family, of lower rank."""
    for name in knobs.free:
        if instance.values[name].ndim and instance.values[name].numel():
            for words, value in _replacements(instance.values[name], knobs.free[name].domain):
                before = instance
                instance = yield from one(instance, knobs.changed(instance, {name: value}, f"{name}: {words}"))
                if instance is not before:
                    break  # the pass is repeated, and the next time starts from the new value
    return instance


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
