"""What a run is given, checked and copied: what becomes of the caller's tensors later changes no run and no record."""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from ntk_deq.errors import ArgumentError
from ntk_deq.models.base import EquilibriumModel
from ntk_deq.models.checks import check_loss, check_model, check_variables
from ntk_deq.models.signature import Role


def owned(value: Tensor) -> Tensor:
    """Return a copy in row-major order.

    Files keep arrays in this order, and products of arrays in another one are rounded in another way, so that a run
    that is read from a file would not go on bit by bit.

    Example:
        >>> owned(torch.ones(3, 2).T).stride()
        (3, 1)
    """
    return value.detach().clone(memory_format=torch.contiguous_format)


def check_problem(model: EquilibriumModel, X: Tensor, y: Tensor, where: str) -> None:
    """Refuse a model, inputs or targets that are of the wrong kind or do not fit each other.

    Args:
        model: The model.
        X: Inputs, one sample a row.
        y: Targets.
        where: Whose arguments they are.

    Raises:
        ArgumentError: The message names the first thing that is wrong.

    Example:
        >>> from ntk_deq.models import ImplicitReLU
        >>> model = ImplicitReLU.random(2, 3, generator=torch.Generator().manual_seed(0))
        >>> X = torch.eye(2, dtype=torch.float64)
        >>> check_problem(model, X.to_sparse(), X[0], "gradient-descent")
        Traceback (most recent call last):
            ...
        ntk_deq.errors.ArgumentError: `X` of gradient-descent must be a dense tensor. Got torch.sparse_coo.
    """
    check_model(model, where)
    check_loss(model.signature, where)
    (inputs,), (targets,) = model.signature.names(Role.INPUT), model.signature.names(Role.TARGET)
    for name, value in ((inputs, X), (targets, y)):
        if isinstance(value, Tensor) and value.layout is not torch.strided:
            raise ArgumentError(f"`{name}` of {where} must be a dense tensor. Got {value.layout}.")
    check_variables(model.signature, {**model.parameters(), inputs: X, targets: y})


def check_on_step(on_step: object, where: str) -> None:
    """Refuse a callback that cannot be called.

    Args:
        on_step: What was given; None: there is none.
        where: Whose argument it is.

    Raises:
        ArgumentError: It is neither callable nor None.

    Example:
        >>> check_on_step(5, "gradient-descent")
        Traceback (most recent call last):
            ...
        ntk_deq.errors.ArgumentError: `on_step` of gradient-descent must be callable, or None. Got 5.
    """
    if on_step is not None and not callable(on_step):
        raise ArgumentError(f"`on_step` of {where} must be callable, or None. Got {on_step!r}.")


def is_number(value: object) -> bool:
    """Say whether a value is a plain number: no truth value, no tensor, no integer that float64 cannot hold.

    Example:
        >>> is_number(0.5), is_number(True), is_number(10**400)
        (True, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) <= sys.float_info.max
