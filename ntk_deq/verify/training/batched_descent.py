"""Gradient descent on many small instances of the same sizes at once, in floats: runs that are scored, never judged.

The loss, its equilibrium and its gradient come from the model's formulas, as in every score: a step for a hundred
instances takes hardly longer than for one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ntk_deq.claims.changing import LOSS, PATH_LENGTH
from ntk_deq.verify.tensor_functions import frobenius, scalar
from ntk_deq.verify.tensors import TensorNames, tensor_value


def descend(
    names: TensorNames,
    parameters: Collection[str],
    step: Tensor,
    *,
    steps: int,
    until: float,
    keep: Collection[int],
    check_time: Callable[[], None],
) -> dict[float, TensorNames]:
    """Return what names mean at some steps of descent from every instance of a batch.

    A run ends where its loss is down to the floor, or is not finite, or the equilibrium is not seen to exist; `known`
    says at each step which runs have got there.

    Args:
        names: What names mean on the instances at the start, with a batch dimension.
        parameters: The variables that are trained.
        step: The step size of each instance.
        steps: How many steps are taken.
        until: The share of the first loss at which a run ends.
        keep: The steps that are wanted.
        check_time: Called at every step.
    """
    assert names.formulas is not None
    loss_of = names.formulas.definitions[LOSS]
    count = names.batch[0]
    values = {name: _for_each(names.variables[name], count).detach() for name in parameters}
    step, path, floor = step.reshape(count, 1, 1), names.like.new_zeros(count), names.like.new_zeros(count)
    alive = torch.ones(count, dtype=torch.bool, device=names.like.device)
    guess: Tensor | None = None
    moments: dict[float, TensorNames] = {}
    for k in range(steps + 1):
        check_time()
        leaves = {name: value.requires_grad_() for name, value in values.items()}
        here = replace(names, variables={**names.variables, **leaves}, guess=guess, trouble=[])
        with torch.enable_grad():
            loss = scalar(tensor_value(loss_of, here)).expand(count)
            found = torch.autograd.grad(loss.sum(), list(leaves.values()), allow_unused=True)
        for mark in here.trouble or ():
            alive = alive & ~mark
        alive = alive & loss.isfinite()
        values = {name: value.detach() for name, value in leaves.items()}
        guess = here.cache[names.formulas.state].detach() if names.formulas.state in here.cache else None
        if k in keep:
            moment = replace(names, variables={**names.variables, **values}, guess=guess, trouble=[], known=alive)
            moment.cache[PATH_LENGTH] = path
            moments[float(k)] = moment
        if k == 0:
            floor = until * loss.detach()
        alive = alive & (loss.detach() > floor)
        if not bool(alive.any()):
            break
        size = names.like.new_zeros(count)
        for (name, value), gradient in zip(values.items(), found, strict=True):
            if gradient is not None:
                move = torch.where(alive[:, None, None], step * gradient, 0.0)
                values[name] = value - move
                size = size + frobenius(move) ** 2
        path = path + size.sqrt()
    return moments


def moments_along(names: TensorNames, moments: Mapping[float, TensorNames]) -> TensorNames:
    """Return what names mean on instances and, with an index, at known steps of the runs from them.

    Args:
        names: What names mean at the start.
        moments: What they mean at the steps.
    """
    known: dict[float, TensorNames] = {}
    start = replace(names, moments=known)
    for at, moment in moments.items():
        known[at] = replace(moment, moments=known, trouble=names.trouble)
        known[at].cache.update(moment.cache)
    return start


def _for_each(value: Tensor, count: int) -> Tensor:
    """Return a matrix for each instance."""
    return value if value.ndim > 2 else value.expand(count, *value.shape)
