"""One name for an operation, whatever its balls are made of: dense tensors, structure that is never formed, or arb.

A *family* is a further representation of matrix balls. Its table holds an implementation for each operation; one that
is missing is run by the dense function on the dense forms, where the family gives them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from torch import Tensor

from ntk_deq.certified.dense import ball

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Family:
    """A representation of matrix balls other than the dense one.

    Attributes:
        kind: Its class; an operation with an argument of this class is run by the family.
        adopt: Turns a ball of another representation into one that the table's functions accept.
        dense: Turns a ball of this family into a dense one, or raises `LimitError`; None: no way back.
        table: Implementations by operation name; they take adopted arguments.
    """

    kind: type
    adopt: Callable[[Any], Any]
    dense: Callable[[Any], Any] | None = None
    table: dict[str, Callable[..., Any]] = field(default_factory=dict)


_FAMILIES: list[Family] = []


def register_family(family: Family, *, first: bool = False) -> None:
    """Make a family known; `first` gives it precedence where families meet in one operation."""
    _FAMILIES.insert(0 if first else len(_FAMILIES), family)


def dense_form(a: Any) -> Any:
    """Return the dense form of a ball of a family that gives one, and anything else as it is.

    Raises:
        LimitError: The dense form would be too large.
    """
    for family in _FAMILIES:
        if isinstance(a, family.kind) and family.dense is not None:
            return family.dense(a)
    return a


def generic(dense: Callable[P, R]) -> Callable[P, R]:
    """Return the operation `dense` extended to every family of balls, and to tensors, which count as exact."""
    name = dense.__name__

    @functools.wraps(dense)
    def operation(*args: P.args, **kwargs: P.kwargs) -> R:
        balls = tuple(ball(arg) if isinstance(arg, Tensor) else arg for arg in args)
        for family in _FAMILIES:
            if any(isinstance(arg, family.kind) for arg in balls):
                return _run(family, name, dense, balls, kwargs)
        return dense(*balls, **kwargs)  # type: ignore[arg-type]

    return operation


def _run(family: Family, name: str, dense: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
    implementation = family.table.get(name)
    if implementation is not None:
        result: R = implementation(*(family.adopt(arg) for arg in args), **kwargs)
        return result
    if family.dense is None:
        raise TypeError(f"{name} has no implementation for {family.kind.__name__}")
    densified = [family.dense(arg) if isinstance(arg, family.kind) else arg for arg in args]
    return dense(*densified, **kwargs)
