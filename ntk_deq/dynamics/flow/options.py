"""What a run of gradient flow is told."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace

import torch

from ntk_deq.dynamics.flow.integrator import check_method
from ntk_deq.dynamics.series import MOST_SNAPSHOTS
from ntk_deq.equilibrium.stored_values import is_number
from ntk_deq.errors import ArgumentError

METHOD = "gradient-flow"

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
        check_method(self.method, METHOD)
        where = f"of {METHOD}"
        known = sys.float_info  # steps on the way to a denormal horizon would be zero
        if self.horizon is not None and not (is_number(self.horizon) and known.min <= self.horizon <= known.max):
            wanted = f"a number >= {known.min:.3g}, or None"
            raise ArgumentError(f"`horizon` {where} must be {wanted}. Got {self.horizon!r}.")
        if not is_number(self.until) or not 0 <= self.until < 1:
            raise ArgumentError(f"`until` {where} must be a number with 0 <= until < 1. Got {self.until!r}.")
        if not is_number(self.tolerance) or not 0 < self.tolerance <= _MOST:
            raise ArgumentError(
                f"`tolerance` {where} must be a number with 0 < tolerance <= {_MOST}. Got {self.tolerance!r}."
            )
        for name, value, least in (("steps", self.steps, 0), ("snapshots", self.snapshots, 2)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ArgumentError(f"`{name}` {where} must be an integer >= {least}. Got {value!r:.60}.")
        if self.snapshots > MOST_SNAPSHOTS:
            raise ArgumentError(f"`snapshots` {where} must be at most {MOST_SNAPSHOTS}. Got {self.snapshots!r:.60}.")
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
                f"`tolerance` of {METHOD} must be at least {least:.3g} in {name}. Got {self.tolerance!r}."
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
