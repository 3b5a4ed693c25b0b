"""What a run of gradient descent is told."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from ntk_deq.equilibrium.stored_values import is_number
from ntk_deq.errors import ArgumentError

METHOD = "gradient-descent"

BLOW_UP = 1e6
"""The loss over the first one at which a run is taken to have diverged, unless told otherwise: it seldom comes back."""


@dataclass(frozen=True)
class DescentOptions:
    """What a run of gradient descent is told; see `gradient_descent`.

    Example:
        >>> DescentOptions(step=-0.1)
        Traceback (most recent call last):
            ...
        ntk_deq.errors.ArgumentError: `step` of gradient-descent must be a number > 0. Got -0.1.
    """

    step: float
    steps: int = 10_000
    until: float = 1e-10
    snapshots: int = 64
    rtol: float = 1e-10
    atol: float = 0.0
    max_steps: int = 10_000
    extrapolation: int = 2
    keep: Sequence[int] = ()
    blow_up: float = BLOW_UP

    def __post_init__(self) -> None:
        """Check what the gradient field and the keeper of snapshots do not check themselves."""
        where = f"of {METHOD}"
        if not isinstance(self.keep, Iterable):
            raise ArgumentError(f"`keep` {where} must be a list of integers >= 0. Got {self.keep!r}.")
        object.__setattr__(self, "keep", tuple(self.keep))  # a list, where the options come from a file
        if not all(isinstance(k, int) and not isinstance(k, bool) and k >= 0 for k in self.keep):
            raise ArgumentError(f"`keep` {where} must hold integers >= 0. Got {list(self.keep)!r}.")
        if not is_number(self.step) or not 0 < self.step <= sys.float_info.max:
            raise ArgumentError(f"`step` {where} must be a number > 0. Got {self.step!r}.")
        object.__setattr__(self, "step", float(self.step))  # a tensor cannot be scaled by every integer
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 0:
            raise ArgumentError(f"`steps` {where} must be an integer >= 0. Got {self.steps!r}.")
        if not is_number(self.until) or not 0 <= self.until < 1:
            raise ArgumentError(f"`until` {where} must be a number with 0 <= until < 1. Got {self.until!r}.")

        if not is_number(self.blow_up) or not self.blow_up > 1:
            raise ArgumentError(f"`blow_up` {where} must be a number > 1, or infinity. Got {self.blow_up!r}.")

    def check_dtype(self, dtype: torch.dtype) -> None:
        """Refuse a step size that the precision cannot hold.

        Args:
            dtype: Of the parameters.

        Raises:
            ArgumentError: The step is more than half the largest number, which leaves room for rounding up.
        """
        most = torch.finfo(dtype).max / 2
        if self.step > most:
            name = str(dtype).removeprefix("torch.")
            raise ArgumentError(f"`step` of {METHOD} must be at most {most:.3g} in {name}. Got {self.step!r}.")
