"""Values read back from the file of a run, which may be torn or tampered with, checked before it goes on."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def owned(value: Tensor) -> Tensor:
    """Return a copy in row-major order.

    Files keep arrays in this order, and products of arrays in another one are rounded in another way, so that a run
    that is read from a file would not go on bit by bit.

    Example:
        >>> owned(torch.ones(3, 2).T).stride()
        (3, 1)
    """
    return value.detach().clone(memory_format=torch.contiguous_format)


def is_number(value: object) -> bool:
    """Say whether a value is a plain number: no truth value, no tensor, no integer that float64 cannot hold.

    Example:
        >>> is_number(0.5), is_number(True), is_number(10**400)
        (True, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) <= sys.float_info.max


MOST_STEPS = 2**53
"""Beyond it floats skip whole numbers."""


def stored_number(value: object, what: str, low: float = 0.0, high: float = math.inf, *, nan: bool = False) -> Any:
    """Return a number from a file.

    Args:
        value: What the file holds.
        what: Its name, for the error.
        low: The least that it may be.
        high: The most that it may be.
        nan: Whether it may be NaN.

    Raises:
        ValueError: It is no number, or out of range.

    Example:
        >>> stored_number(float("nan"), "rate", 0, 1)
        Traceback (most recent call last):
            ...
        ValueError: `rate` must be a number from 0 to 1. Got nan.
    """
    if is_number(value) and (low <= value <= high or (nan and value != value)):  # type: ignore[operator]
        return value
    raise ValueError(f"`{what}` must be a number from {low:g} to {high:g}. Got {value!r:.40}.")


def stored_count(value: object, what: str, low: int = 0, high: int = MOST_STEPS) -> int:
    """Return a whole number from a file; arguments and errors as for `stored_number`.

    Example:
        >>> stored_count(3, "steps")
        3
    """
    if not isinstance(value, int):
        raise ValueError(f"`{what}` must be a whole number from {low} to {high}. Got {value!r:.40}.")
    return int(stored_number(value, what, low, high))


def stored_tensor(value: object, like: Tensor, what: str) -> Tensor:
    """Return a copy of a tensor from a file that must be of the shape, type and device of another one.

    Args:
        value: What the file holds.
        like: The other one.
        what: Its name, for the error.

    Raises:
        ValueError: It is no tensor, or of another kind.

    Example:
        >>> import torch
        >>> stored_tensor(torch.ones(2), torch.zeros(3), "norms")
        Traceback (most recent call last):
            ...
        ValueError: `norms` must be a tensor of shape (3,) and type torch.float32 on cpu.
    """
    if (
        isinstance(value, Tensor)
        and value.shape == like.shape
        and value.dtype == like.dtype
        and value.device == like.device
    ):
        return owned(value)
    raise ValueError(f"`{what}` must be a tensor of shape {tuple(like.shape)} and type {like.dtype} on {like.device}.")


def stored_tensors(value: object, like: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    """Return copies of tensors from a file, by the names of others and each like the other one of its name.

    Args:
        value: What the file holds.
        like: The others.
        what: Their name, for the error.

    Raises:
        ValueError: The names differ, or one is of another kind.

    Example:
        >>> stored_tensors({}, {}, "gradients")
        {}
    """
    if not isinstance(value, Mapping) or list(value) != list(like):
        raise ValueError(f"`{what}` must hold {', '.join(like)}, in this order.")
    return {name: stored_tensor(value[name], like[name], f"{what}.{name}") for name in like}
