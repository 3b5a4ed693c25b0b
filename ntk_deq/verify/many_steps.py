"""Evaluate the body of a quantifier at many steps of a run at once: the steps become part of the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ntk_deq.claims.tree import Expr, Kind
from ntk_deq.claims.types import Sort
from ntk_deq.verify.evaluate import step_of
from ntk_deq.verify.magnitudes import Magnitudes
from ntk_deq.verify.tensors import TensorNames, tensor_value

Scope = Mapping[str, float]

_NEED_VARIABLES = frozenset({"grad", "jac", "next", "fixed_point"})


def batches_steps(body: Expr) -> bool:
    """Whether a body can be evaluated at many steps at once.

    What asks for the variables themselves cannot: their values would have to be repeated for every step.
    """
    return not any(
        node.kind in (Kind.AT, Kind.FOR_ALL) or (node.kind is Kind.CALL and node.name in _NEED_VARIABLES)
        for node in body.walk()
    )


def at_many_steps(
    bodies: Sequence[Expr], names: TensorNames, magnitudes: Magnitudes, scopes: Sequence[Scope]
) -> tuple[TensorNames, Magnitudes]:
    """Return what names mean at many steps: a batch of all steps of all instances, instances running fastest.

    Args:
        bodies: The formulas that will be evaluated; what no step occurs in is evaluated here, once.
        names: What names mean on the instances.
        magnitudes: Their magnitudes.
        scopes: The values of the step indices, one mapping for each step.
    """
    count, instances = len(scopes), names.batch[0] if names.batch else 1
    batch = (count * instances,)
    inside = replace(names, batch=batch, trouble=None if names.trouble is None else [])
    known = Magnitudes(inside)
    for body in bodies:
        for part in _fixed_parts(body, frozenset(scopes[0])):
            inside.cache[id(part)] = _repeated(tensor_value(part, names), count, instances)
            with torch.no_grad():
                known.keep(part, _repeated(magnitudes.of(part, {}), count, instances))
        for node in body.walk():
            if node.kind is Kind.INDEX:
                states = [tensor_value(node, names, scope) for scope in scopes]
                if names.batch:
                    states = [state.expand(instances, *state.shape[-2:]) for state in states]
                inside.cache[id(node)] = torch.stack(states).reshape(-1, *states[0].shape[-2:])
    for name in scopes[0]:
        steps = names.like.new_tensor([float(scope[name]) for scope in scopes])
        inside.cache[name] = steps.repeat_interleave(instances)
    return inside, known


def per_step(values: Tensor, count: int, batch: tuple[int, ...]) -> Tensor:
    """Return values of the batch of all steps as steps x instances, or as steps where there is no batch."""
    if values.ndim == 0:
        return values.expand(count, *batch)
    return values.reshape(count, *batch)


def shown_steps(scope: Scope, body: Expr, last_step: int) -> bool:
    """Whether every state that a body refers to exists at a step; those of a quantifier further in do not count."""
    for node in body.walk():
        if node.kind is Kind.INDEX:
            index = node.args[0]
            free = {part.name for part in index.walk() if part.kind is Kind.NAME}
            if free <= scope.keys() and not 0 <= step_of(index, scope) <= last_step:
                return False
    return True


def _repeated(value: Tensor, count: int, instances: int) -> Tensor:
    """Repeat the value of each instance for every step; one value for all instances stays one."""
    if value.ndim in (0, 2):
        return value
    return value.expand(count, *value.shape).reshape(count * instances, *value.shape[1:])


def _fixed_parts(expr: Expr, indices: frozenset[str]) -> list[Expr]:
    """Return the largest parts that are numbers or matrices and in which no step occurs."""
    numeric = expr.type is not None and expr.type.sort in (Sort.SCALAR, Sort.MATRIX)
    if numeric and not any(node.kind is Kind.INDEX or node.name in indices for node in expr.walk()):
        return [expr]
    if expr.kind is Kind.INDEX:
        return []
    return [part for arg in expr.args for part in _fixed_parts(arg, indices)]
