"""An adaptive embedded Runge-Kutta integrator that steps onto given times, judged by a measure of its caller's.

The steps are torchdiffeq's. What is added is what a long run needs: a restart at each target that costs no evaluation,
an end wherever the caller says, and a name for every way in which the step size can collapse.

The implicit integrator of stiff stretches of gradient flow: SciPy's Radau, held to the error per path of the others.

Where the loss is much steeper one way than another, an explicit method must keep to steps of about 3/steepness although
the path has long been smooth. Radau IIA of order 5 is stable at any step; it needs the Hessian, and so a small model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.dynamics.flow import SAFETY
from ntk_deq.errors import ArgumentError, NtkDeqError, name_hint


@dataclass(frozen=True)
class Method:
    """An embedded method whose last stage is the next step's first.

    torchdiffeq takes that for granted, and the value at the end of a step is known without a further evaluation.

    Attributes:
        order: Its order; the embedded error is of this order in the step.
        understated: With a jump of the right-hand side in the step, the factor by which the embedded error may fall
            short of the true one, where in the step the jump lies at its worst.
        stable: Length of its interval of stability: a decay at a rate r needs steps below stable/r.
    """

    order: int
    understated: float
    stable: float


METHODS = {"dopri5": Method(5, 253.0, 3.3), "dopri8": Method(8, 9.0, 5.5), "bosh3": Method(3, 14.0, 2.5)}
"""The methods by name."""

SLIDING_METHOD = "bosh3"
"""Its stages lie within the step even where f jumps, while those of dopri5 reach out up to 12 times as far."""

# A step at which the right-hand side cannot be evaluated is cut to this part.
CUT = 0.25
# The edge of the region where the right-hand side exists is sought to this part of the time reached.
EDGE = 1e-6
# A step of fewer units in the last place of the time is no longer a step: stages would fall together.
FEWEST_UNITS = 32


class Advance(StrEnum):
    """How a stretch of integration ended."""

    REACHED = "reached"
    STOPPED = "stopped"
    UNDERFLOW = "underflow"
    REFUSED = "refused"
    ROUGH = "rough"


class _Halt(Exception):
    """Carries the end of a stretch out of torchdiffeq, an `Advance`; None: only the method changes."""


class _Refused(Exception):
    """Carries an error of the right-hand side out of torchdiffeq, apart from errors of the caller's own functions."""


class EmbeddedRungeKutta:
    """Integrate y' = f(t, y) from t = 0 on, one stretch after another.

    A step is accepted where `measure` of its embedded error is at most one. The next one is chosen by the elementary
    controller, a factor of 0.9 ratio^(-1/order) kept between 0.2 and 10. Each target is stepped onto, so that the state
    there is the method's own value and no interpolation, and the step that was cut short for it is taken up again.

    A step in which `f` raises an `NtkDeqError` has left the region where f exists, and is tried again at a quarter of
    its length. Where that leads to less than a millionth of the time reached, the edge itself has been met.

    Attributes:
        time: The time reached.
        state: The state there.
        slope: f there.
        method: What the next step is made with; it may be changed at any time.
        accepted: Steps accepted so far.
        rejected: Steps tried and rejected so far, refused ones included.
        steepness: norm(f - f')/norm(y - y') over the last two stages of the last accepted step: about the rate of the
            fastest decay where that is what limits the step.
        failure: The error that a stretch ended with, for `Advance.REFUSED`.

    Args:
        function: f(t, y). A result must not be written to later on.
        state: y at t = 0, a vector.
        scale: A time over which the solution changes, > 0: the floor of every relative measure of time.
        method: One of `METHODS`.
        measure: Takes the embedded error of a step, its length, and y and f at its start; returns a 0-d tensor.
        on_accept: Called with the time and the state after each accepted step (f was last called with this very state);
            True ends the stretch there.
        slope: f at t = 0, where it is known.

    Raises:
        ArgumentError: An unknown method.

    References:
        Dormand and Prince (1980); Hairer, Norsett, Wanner (1993), Solving Ordinary Differential Equations I, II.4.

    Example:
        >>> one = torch.ones(1, dtype=torch.float64)
        >>> tight = lambda error, step, state, slope: error.norm() / 1e-12
        >>> flow = EmbeddedRungeKutta(lambda t, y: -y, one, scale=1.0, measure=tight, on_accept=lambda t, y: False)
        >>> flow.advance(1.0), round(flow.state.log().item(), 11)
        (<Advance.REACHED: 'reached'>, -1.0)
    """

    def __init__(
        self,
        function: Callable[[float, Tensor], Tensor],
        state: Float[Tensor, " n"],
        *,
        scale: float,
        measure: Callable[[Tensor, float, Tensor, Tensor], Tensor],
        on_accept: Callable[[float, Tensor], bool],
        method: str = "dopri5",
        slope: Float[Tensor, " n"] | None = None,
    ) -> None:
        check_method(method, "an integrator")
        self._function, self._measure, self._on_accept = function, measure, on_accept
        self.method, self._used, self._scale = method, method, scale
        self._eps = torch.finfo(state.dtype).eps
        self.time, self.state = 0.0, state
        self.slope = function(0.0, state) if slope is None else slope
        self.step = scale / 100
        self.accepted = self.rejected = 0
        self.steepness = 0.0
        self._last_state, self._last_slope = state, self.slope
        self.failure: NtkDeqError | None = None

    def advance(self, target: float) -> Advance:
        """Go on to the time `target`, > `time`, or to where it cannot go on."""
        # Imported late: the SciPy behind it would double the time that the command line takes to start.
        from torchdiffeq import odeint

        self._target = target
        while self.time < target:
            self._used = self.method
            times = torch.tensor([self.time, target], dtype=torch.float64, device=self.state.device)
            options = {"first_step": self.step, "max_step": 10 * target, "step_t": times[1:], "norm": self._ratio}
            options["safety"] = SAFETY
            try:
                with torch.no_grad():
                    odeint(self, self.state, times, rtol=0.0, atol=1.0, method=self._used, options=options)
            except _Halt as halt:
                how: Advance | None = halt.args[0]
                if how is not None:
                    return how
            except _Refused as refused:
                self.rejected += 1
                self.step = self._taken * CUT
                if self.step < EDGE * (self.time + self._scale):
                    self.failure = refused.args[0]
                    return Advance.REFUSED
            else:
                self.time = target
        return Advance.REACHED

    def __call__(self, t: Tensor, y: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return f(t, y) to torchdiffeq; at the start of a stretch, from memory."""
        if y is self.state:
            return self.slope
        self._earlier_state, self._earlier_slope = self._last_state, self._last_slope
        try:
            self._last_state, self._last_slope = y, self._function(float(t), y)
        except NtkDeqError as failure:
            raise _Refused(failure) from failure
        return self._last_slope

    def callback_step(self, t0: Tensor, y0: Tensor, dt: Tensor) -> None:
        """Take note of the step that torchdiffeq is about to try, and refuse one that is none."""
        self._proposed = float(dt)
        self._taken = min(self._proposed, self._target - self.time)
        # Written so that NaN is refused too.
        if not self._proposed >= FEWEST_UNITS * self._eps * (self.time + self._scale):
            raise _Halt(Advance.UNDERFLOW)

    def callback_accept_step(self, t0: Tensor, y0: Tensor, dt: Tensor) -> None:
        """Move on to the end of the step, where f was evaluated last."""
        cut_short = self._taken < self._proposed
        self.time = self._target if cut_short else self.time + self._taken
        self.state, self.slope, self.step = self._last_state, self._last_slope, self._proposed
        self.accepted += 1
        bent, apart = self._last_slope - self._earlier_slope, self._last_state - self._earlier_state
        distance = float(torch.linalg.vector_norm(apart))
        self.steepness = float(torch.linalg.vector_norm(bent)) / distance if distance else 0.0
        if self._on_accept(self.time, self.state):
            raise _Halt(Advance.STOPPED)
        if self.method != self._used:
            raise _Halt(None)

    def callback_reject_step(self, t0: Tensor, y0: Tensor, dt: Tensor) -> None:
        """Count a rejected step."""
        self.rejected += 1

    def _ratio(self, error: Tensor) -> Tensor:
        return self._measure(error, self._taken, self.state, self.slope)


def check_method(method: str, where: str) -> None:
    """Refuse a method that is not one of `METHODS`.

    Args:
        method: The name.
        where: What it was given to, for the message.

    Raises:
        ArgumentError: It is none.

    Example:
        >>> check_method("dopri5", "gradient-flow")
    """
    if not isinstance(method, str) or method not in METHODS:
        hint = name_hint(method, METHODS)
        raise ArgumentError(f"`method` of {where} must be one of {', '.join(METHODS)}. Got {method!r}.{hint}")


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

    def _steps(self, radau: Any, target: float) -> Advance:
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


def _array(value: Tensor) -> object:
    return value.detach().cpu().numpy()
