"""A fixed point along a run, with how near it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

Map: TypeAlias = Callable[[Tensor, Tensor], None]
"""Writes the value at its first argument into its second."""


@dataclass(frozen=True, eq=False)
class Solved:
    """A fixed point as the solver left it.

    Attributes:
        value: The point; it belongs to the solver's history; only what stays within `error` may be written to it.
        steps: Evaluations of the map; one of n rows out of N counts n/N.
        norm: Its Frobenius norm.
        error: Bound q/(1 - q) norm(F(z) - z) on its distance from the fixed point, with z the point one step before.
        contraction: The bound q that was used.
        beside: What was read off the device together with the residual.
    """

    value: Tensor
    steps: float
    norm: float
    error: float
    contraction: float
    beside: float
