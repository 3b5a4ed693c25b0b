"""What a run of gradient descent or of gradient flow is told, and what it was computed with.

Options, model, precision, versions; and what builds its model again. What a run is given is checked and copied: what
becomes of the caller's tensors later changes no run and no record.
"""

from __future__ import annotations

import math
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ntk_deq.dynamics.flow.integrator import check_method
from ntk_deq.dynamics.series import check_snapshots
from ntk_deq.errors import ArgumentError, check_whole, is_number
from ntk_deq.files.archives import owned
from ntk_deq.language.declaration import Role, model_names
from ntk_deq.language.run import GRADIENT_DESCENT, GRADIENT_FLOW
from ntk_deq.package import __version__
from ntk_deq.systems.checks import check_model, check_problem
from ntk_deq.systems.model import EquilibriumModel, model_class


def checked_problem(model: EquilibriumModel, X: Tensor | None, y: Tensor | None, where: str) -> tuple[Tensor, Tensor]:
    """Return inputs and targets, without entries where a system has none; refuse what `check_problem` does.

    Args:
        model: The model.
        X: Inputs, or None.
        y: Targets, or None.
        where: Whose arguments they are.

    Raises:
        ArgumentError: As in `check_problem`, or one is missing.
    """
    check_model(model, where)
    X, y = model.data(X, y)
    check_problem(model, X, y, where)
    return X, y


def _check_until(until: float, where: str) -> None:
    if not is_number(until) or not 0 <= until < 1:
        raise ArgumentError(f"`until` of {where} must be a number with 0 <= until < 1. Got {until!r}.")


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


def describe_run(model: EquilibriumModel, X: Tensor, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for the record of a run: plain values only.

    Args:
        model: The model.
        X: The inputs.
        options: Options of the method.

    Example:
        >>> from ntk_deq.systems import ImplicitReLU
        >>> model = ImplicitReLU.random(2, 3, generator=torch.Generator().manual_seed(0))
        >>> found = describe_run(model, torch.zeros(4, 2, dtype=torch.float64), {"until": 0.5})
        >>> found["model"], found["sizes"], found["dtype"], found["until"]
        ('implicit-relu', {'d': 2, 'm': 3, 'N': 4}, 'float64', 0.5)
    """
    signature = model.signature
    values = {**model.parameters(), **dict.fromkeys(signature.names(Role.INPUT), X)}
    known = dict.fromkeys(signature.sizes, 0)
    for name, value in values.items():
        known |= dict(zip(signature.variable(name).shape, value.shape, strict=True))
    return {
        **options,
        "model": signature.name,
        "sizes": {letter: size for letter, size in known.items() if size},
        "dtype": str(X.dtype).removeprefix("torch."),
        "device": str(X.device),
        "threads": torch.get_num_threads(),
        "versions": {"ntk_deq": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }


def model_values(model: EquilibriumModel) -> dict[str, Any]:
    """Return copies of what builds the model again; no name where it is not the one registered under its name.

    Args:
        model: The model.

    Example:
        >>> from ntk_deq.systems import ImplicitReLU
        >>> found = model_values(ImplicitReLU.random(2, 3, generator=torch.Generator().manual_seed(0)))
        >>> found["name"], list(found["values"])
        ('implicit-relu', ['W', 'A', 'b', 'gamma'])
    """
    signature = model.signature
    known = signature.name in model_names() and model_class(signature.name) is type(model)
    values = dict(model.parameters())
    values |= {name: torch.as_tensor(getattr(model, name)) for name in signature.names(Role.HYPERPARAMETER)}
    return {
        "name": signature.name if known else None,
        "values": {name: owned(value) for name, value in values.items()},
    }


FLOW, DESCENT = GRADIENT_FLOW.name, GRADIENT_DESCENT.name

# A sliding mode is followed with steps of this part of the time reached: about 280 for each doubling.
_PACE = 1 / 400
# The second integration's tolerance over the first one's. Where the gradient is smooth, its error is 70 times larger.
_COARSER = 32.0
# The same for the steps along a sliding mode, whose error is of the order of the step.
_COARSER_PACE = 4.0
# Equilibria to this part of the tolerance, so that the embedded error is not their noise.
_FIELD = 1e-4
# Below so many eps, the embedded error is rounding.
_LEAST = 100.0
# Above, the embedded error is no estimate any more.
_MOST = 0.03
# The first snapshot, in units of the time scale at the start.
_FIRST = 0.01


def default_tolerance(dtype: torch.dtype) -> float:
    """Return the tolerance where none is given: 1e-9, or the least that the precision holds.

    Args:
        dtype: Of the parameters.

    Example:
        >>> default_tolerance(torch.float64), default_tolerance(torch.float32) < 2e-5
        (1e-09, True)
    """
    return max(FlowOptions.tolerance, _LEAST * torch.finfo(dtype).eps)


@dataclass(frozen=True)
class FlowOptions:
    """What a run of gradient flow is told; see `gradient_flow`.

    Attributes:
        horizon: Last time, > 0; None: a million time scales of the start.
        until: Loss at which to end, over the first one; in [0, 1).
        tolerance: Local error over path, in (0, 0.03].
        steps: Accepted steps allowed, >= 0.
        snapshots: Snapshots spaced in the logarithm of the time, the start and the end among them, >= 2.
        times: Further times with a snapshot, > 0.
        method: A method of the integrator.
        rtol: Tolerance of the equilibria; None: a ten-thousandth of `tolerance`.
        max_steps: Iterations allowed in a solve.
        pace: Step over time reached that a sliding mode may not force below.

    Example:
        >>> FlowOptions(snapshots=1)
        Traceback (most recent call last):
            ...
        ntk_deq.errors.ArgumentError: `snapshots` of gradient-flow must be an integer >= 2. Got 1.
    """

    horizon: float | None = None
    until: float = 1e-10
    tolerance: float = 1e-9
    steps: int = 100_000
    snapshots: int = 64
    times: tuple[float, ...] = ()
    method: str = "dopri5"
    rtol: float | None = None
    max_steps: int = 10_000
    pace: float = _PACE

    def __post_init__(self) -> None:
        """Check what the gradient field does not check itself."""
        check_method(self.method, FLOW)
        where = f"of {FLOW}"
        known = sys.float_info  # steps on the way to a denormal horizon would be zero
        if self.horizon is not None and not (is_number(self.horizon) and known.min <= self.horizon <= known.max):
            wanted = f"a number >= {known.min:.3g}, or None"
            raise ArgumentError(f"`horizon` {where} must be {wanted}. Got {self.horizon!r}.")
        _check_until(self.until, FLOW)
        if not is_number(self.tolerance) or not 0 < self.tolerance <= _MOST:
            raise ArgumentError(
                f"`tolerance` {where} must be a number with 0 < tolerance <= {_MOST}. Got {self.tolerance!r}."
            )
        check_whole(self.steps, "steps", FLOW, 0)
        check_snapshots(self.snapshots, FLOW)
        for time in self.times:
            if not 0 < time < math.inf:
                raise ArgumentError(f"`times` {where} must be finite and > 0. Got {time!r}.")

    def check_dtype(self, dtype: torch.dtype) -> None:
        """Refuse a tolerance that the precision cannot hold.

        Args:
            dtype: Of the parameters.
        """
        least = _LEAST * torch.finfo(dtype).eps
        if self.tolerance < least:
            name = str(dtype).removeprefix("torch.")
            raise ArgumentError(
                f"`tolerance` of {FLOW} must be at least {least:.3g} in {name}. Got {self.tolerance!r}."
            )

    def field_tolerance(self) -> float:
        """Return the relative tolerance of the equilibria."""
        return _FIELD * self.tolerance if self.rtol is None else self.rtol

    def coarser(self) -> FlowOptions:
        """Return the options of the integration that the first one is compared with; it runs to the same times."""
        tolerance, pace = min(_COARSER * self.tolerance, _MOST), _COARSER_PACE * self.pace
        # Each snapshot may cost it a step more.
        steps = 2 * self.steps + self.snapshots + len(self.times)
        return replace(self, tolerance=tolerance, pace=pace, until=0.0, steps=steps)

    def targets(self, scale: float, horizon: float) -> list[float]:
        """Return the times of the snapshots after the start, up to the horizon.

        Args:
            scale: A time over which the solution changes; the first snapshot is at a hundredth of it, or before.
            horizon: The last time.

        Example:
            >>> [round(time, 6) for time in FlowOptions(snapshots=5, times=(5.0, 11.0)).targets(1.0, 10.0)]
            [0.01, 0.1, 1.0, 5.0, 10.0]
        """
        first, spaces = max(min(_FIRST * scale, horizon / 1000), math.ulp(0.0)), self.snapshots - 2
        spaced = {first * (horizon / first) ** (place / spaces) for place in range(spaces)}
        return sorted(time for time in {*spaced, *self.times, horizon} if time <= horizon)


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
        where = f"of {DESCENT}"
        if not isinstance(self.keep, Iterable):
            raise ArgumentError(f"`keep` {where} must be a list of integers >= 0. Got {self.keep!r}.")
        object.__setattr__(self, "keep", tuple(self.keep))  # a list, where the options come from a file
        if not all(isinstance(k, int) and not isinstance(k, bool) and k >= 0 for k in self.keep):
            raise ArgumentError(f"`keep` {where} must hold integers >= 0. Got {list(self.keep)!r}.")
        if not is_number(self.step) or not 0 < self.step <= sys.float_info.max:
            raise ArgumentError(f"`step` {where} must be a number > 0. Got {self.step!r}.")
        object.__setattr__(self, "step", float(self.step))  # a tensor cannot be scaled by every integer
        check_whole(self.steps, "steps", DESCENT, 0)
        _check_until(self.until, DESCENT)
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
            raise ArgumentError(f"`step` of {DESCENT} must be at most {most:.3g} in {name}. Got {self.step!r}.")
