"""The implicit integrator of stiff stretches of gradient flow: SciPy's Radau, held to the error per path of the others.

Where the loss is much steeper one way than another, an explicit method must keep to steps of about 3/steepness although
the path has long been smooth. Radau IIA of order 5 is stable at any step; it needs the Hessian, and so a small model.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.dynamics.integrator import CUT, EDGE, FEWEST_UNITS, Advance
from ntk_deq.errors import NtkDeqError


class ImplicitRungeKutta:
    """Integrate y' = f(t, y) on from where another integrator has come to, while f stays smooth.

    Attributes:
        time: The time reached.
        state: The state there.
        slope: f there.
        step: Length of the next step.
        accepted: Steps accepted so far, those of the other integrator among them.
        rejected: Steps rejected so far, likewise.
        failure: The error that a stretch ended with, for `Advance.REFUSED`.

    Args:
        function: f(t, y).
        jacobian: df/dy.
        time: Where to start.
        state: y there, in float64.
        slope: f there.
        step: Length of the first step.
        scale: A time over which the solution changes.
        allowed: From the length of a step to the error it may make, Euclidean.
        on_accept: Called with the time, the state and the length after each accepted step; True ends the stretch.
        smooth: Whether f has been smooth since the last accepted step; if not, the step is not made, and the stretch
            ends with `Advance.ROUGH`.

    References:
        Hairer and Wanner (1996), Solving Ordinary Differential Equations II, IV.8.

    Example:
        >>> one = torch.ones(1, dtype=torch.float64)
        >>> flow = ImplicitRungeKutta(
        ...     lambda t, y: -1e6 * (y - 1), lambda t, y: -1e6 * torch.ones(1, 1).double(), time=0.0, state=2 * one,
        ...     slope=-1e6 * one, step=1e-8, scale=1.0, allowed=lambda step: 1e-9, on_accept=lambda t, y, h: False,
        ...     smooth=lambda: True,
        ... )
        >>> flow.advance(1.0), abs(flow.state.item() - 1) < 1e-8, flow.accepted < 500
        (<Advance.REACHED: 'reached'>, True, True)
    """

    def __init__(
        self,
        function: Callable[[float, Tensor], Tensor],
        jacobian: Callable[[float, Tensor], Float[Tensor, "n n"]],
        *,
        time: float,
        state: Float[Tensor, " n"],
        slope: Float[Tensor, " n"],
        step: float,
        scale: float,
        allowed: Callable[[float], float],
        on_accept: Callable[[float, Tensor, float], bool],
        smooth: Callable[[], bool],
    ) -> None:
        self._function, self._jacobian, self._allowed = function, jacobian, allowed
        self._on_accept, self._smooth, self._scale = on_accept, smooth, scale
        self.time, self.state, self.slope, self.step = time, state, slope, step
        self.accepted = self.rejected = 0
        self.failure: NtkDeqError | None = None

    def advance(self, target: float) -> Advance:
        """Go on to the time `target`, > `time`, or to where it cannot go on."""
        # Imported late, as the explicit integrator is.
        from scipy.integrate import Radau

        while self.time < target:
            first = min(self.step, target - self.time)
            least = FEWEST_UNITS * torch.finfo(torch.float64).eps * (self.time + self._scale)
            if first < target - self.time and not first >= least:
                return Advance.UNDERFLOW
            try:
                # The first call asks for f at the start, which is known.
                solver = Radau(
                    self._call, self.time, _array(self.state), target, first_step=first, rtol=1e-3, jac=self._matrix
                )
                how = self._steps(solver, target)
            except NtkDeqError as failure:
                self.rejected += 1
                self.step = CUT * first
                if self.step < EDGE * (self.time + self._scale):
                    self.failure = failure
                    return Advance.REFUSED
            else:
                if how is not Advance.REACHED:
                    return how
        return Advance.REACHED

    def _steps(self, solver: object, target: float) -> Advance:
        radau: _Radau = solver  # type: ignore[assignment]
        while radau.status == "running":
            self.step = radau.h_abs
            # The error's norm is the root of a mean square.
            radau.atol, radau.rtol = self._allowed(radau.h_abs) / math.sqrt(self.state.numel()), 0.0
            radau.step()
            if not self._smooth():
                return Advance.ROUGH
            if radau.status == "failed":
                return Advance.UNDERFLOW
            made = radau.t - self.time
            finished = radau.status == "finished"
            self.time = target if finished else radau.t
            self.state, self.slope = self._tensor(radau.y), self._tensor(radau.f)
            # The last step is cut short for the target, and the next need not be.
            self.step = max(self.step, radau.h_abs) if finished else radau.h_abs
            self.accepted += 1
            if self._on_accept(self.time, self.state, made):
                return Advance.STOPPED
        return Advance.REACHED

    def _call(self, time: float, state: object) -> object:
        return _array(self._function(time, self._tensor(state)))

    def _matrix(self, time: float, state: object) -> object:
        return _array(self._jacobian(time, self._tensor(state)))

    def _tensor(self, value: object) -> Tensor:
        return torch.as_tensor(value, dtype=self.state.dtype, device=self.state.device).clone()


class _Radau:
    """What is used of SciPy's solver, which has no types."""

    status: str
    t: float
    y: object
    f: object
    h_abs: float
    atol: float
    rtol: float

    def step(self) -> str | None:
        """Make one step."""


def _array(value: Tensor) -> object:
    return value.detach().cpu().numpy()
