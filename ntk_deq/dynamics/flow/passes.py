"""One integration of gradient flow: from target to target, until a loss floor, a budget or an obstacle."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor

from ntk_deq.dynamics.field import GradientField, NotFiniteError, WellPosednessError, loss_ceiling, loss_floor
from ntk_deq.dynamics.flow import FlowEquation, StepJudge
from ntk_deq.dynamics.flow.integrator import METHODS, SLIDING_METHOD, Advance, EmbeddedRungeKutta, ImplicitRungeKutta
from ntk_deq.dynamics.record import RunStatus, Snapshot
from ntk_deq.dynamics.settings import FLOW, FlowOptions
from ntk_deq.dynamics.storage import Interruption
from ntk_deq.errors import ArgumentError

# The exact flow never raises the loss. An integration that has doubled it is worth nothing.
_LOSS_RISE = 2.0
# Time scales of the start after which a flow without a horizon ends: a loss that falls at a millionth of its first rate
# has stopped falling for most purposes, and a stationary point above the loss floor must not be waited at for ever.
_LONGEST = 1e6
# Part of the loss by which it must still fall until then; near a minimum above the floor steps stay short for ever.
_STALLED = 1e-3
# A step that was tried this part of the time further on, and was ill-posed there, explains why solves fail before.
_BEYOND = 0.01

# By which the largest error of a gradient fades from memory at each evaluation, along an implicit stretch.
_FORGETTING = 0.99
# An implicit step's equations are solved to no less than so many roundings of the parameters.
_ROUNDINGS = 16.0
# A flow counts as stiff once so many steps, and half as many as there are unknowns, were as long as stability lets them
# be: the Hessians of an implicit method are then paid for.
_STIFF_STEPS = 100
# Part of the interval of stability from which on a step counts as limited by it.
_AT_THE_LIMIT = 0.7
# Up to so many unknowns, a Hessian and its factors cost no more than some tens of gradients.
_MOST_UNKNOWNS = 400

Observe: TypeAlias = Callable[["FlowPass", float, Tensor], None]


class FlowPass:
    """Integrate gradient flow once.

    Attributes:
        equation: The equation, with its counts of evaluations and iterations.
        judge: What judged the steps.
        integrator: What makes them: an explicit method, or an implicit one along a stiff stretch without a kink.
        implicit_steps: Steps accepted by the implicit method.
        loss: The loss at the time reached.
        scale: 1/rate at the start, rate = -d log L/dt = norm(grad)^2/L; at a stationary point, the horizon.
        horizon: The last time.
        status: Why the integration ended; None: it can go on.
        detail: The status with its numbers.
        field_error: Integral of the gradient's own error: what the tolerance of the equilibria adds to the distance
            from the exact flow, as if it all added up.

    Args:
        field: The loss and its gradient.
        start: Parameters at t = 0.
        options: Accuracy and ends.
        interruption: Whether the run has been asked to end.
        follow: Whether to go on to times that another integration has reached, also where the loss has stopped falling.
        observe: Called at the start and after each accepted step with this object, the time and the equation's state.

    Raises:
        ArgumentError: The start is a stationary point, and no horizon says when to end.
        WellPosednessError: The contraction factor is not below one at the start.
        EquilibriumError: The loss or its gradient cannot be evaluated at the start.
    """

    def __init__(
        self,
        field: GradientField,
        start: Mapping[str, Tensor],
        options: FlowOptions,
        interruption: Interruption,
        observe: Observe | None = None,
        *,
        follow: bool = False,
    ) -> None:
        self._options, self._interruption, self._observe = options, interruption, observe
        self._stalls = options.horizon is None and not follow
        self.equation = FlowEquation(field, start)
        self._here: tuple[float, Tensor, float] | None = None  # time, state and loss of the last accepted step
        self._before: tuple[float, Tensor, float] | None = None  # and of the one before
        self._step_start, self._smooth_step = 0.0, False
        self.status: RunStatus | None = None
        self.detail, self.field_error = "", 0.0
        self.implicit_steps, self._usual_noise = 0, 0.0
        self._stiff, self._kinked, self._turn = 0, False, False
        origin = self.equation.origin()
        slope = self.equation(0.0, origin)
        self._pattern = self.equation.point.pattern
        self._speed = float(slope[-1])
        self._lost: WellPosednessError | None = None
        self._lost_at = math.inf
        self._contraction = self.equation.point.contraction
        self._last_time, self._noise = 0.0, _known(self.equation.point.gradient_error)
        self._first_loss = self.loss = self.equation.point.loss_value
        self.scale = self._time_scale()
        self.horizon = _LONGEST * self.scale if options.horizon is None else options.horizon
        # Near a minimum above zero, or a saddle, the loss hardly falls in any time, while steps must be short all the
        # same: no longer than what would double the parameters.
        size = math.hypot(*(float(torch.linalg.vector_norm(value)) for value in start.values()))
        self._rounding = _ROUNDINGS * torch.finfo(origin.dtype).eps * (size or 1.0)
        doubling = size / self._speed if size > 0 and self._speed > 0 else math.inf
        self._span = min(self.scale, self.horizon, doubling)
        self.judge = StepJudge(
            len(self.equation.parts),
            order=METHODS[options.method].order,
            understated=METHODS[options.method].understated,
            tolerance=options.tolerance,
            pace=options.pace,
            scale=self._span,
            unit=self._speed * self._span,
        )
        self._explicit = EmbeddedRungeKutta(
            self._slope,
            origin,
            slope=slope,
            scale=self._span,
            measure=self._measure,
            on_accept=self._accept,
            method=options.method,
        )
        self.integrator: EmbeddedRungeKutta | ImplicitRungeKutta = self._explicit

    def integrate(self, targets: Iterable[float]) -> tuple[Snapshot, ...]:
        """Integrate to one time after the other, and return the snapshots at the start, at these, and at the end."""
        if self._observe is not None:
            self._observe(self, 0.0, self.integrator.state)
        snapshots = [self.snapshot()]
        reached = not self._is_over(0.0)
        try:
            for target in targets:
                reached = reached and self.advance(target)
                if not reached:
                    break
                snapshots.append(self.snapshot())
        except KeyboardInterrupt:  # a second one, in the middle of a step
            self._end(RunStatus.INTERRUPTED, f"Interrupted at t = {self.integrator.time:.9g}.")
        if self.status is None:
            self._end(RunStatus.HORIZON, f"At t = {self.integrator.time:.9g}.")
        if self.status is RunStatus.LOSS_FLOOR and self._before is not None and self._before[0] > snapshots[-1].at:
            snapshots.append(self._snapshot(*self._before))  # so that the floor lies within one step
        if self.integrator.time > snapshots[-1].at:
            snapshots.append(self.snapshot())
        return tuple(snapshots)

    def advance(self, target: float) -> bool:
        """Go on to the time `target`; False: an obstacle or the end came first, and `status` says which."""
        how = self._advance(target)
        time = self.integrator.time
        if how is Advance.UNDERFLOW:
            self._end(RunStatus.STEP_UNDERFLOW, f"At t = {time:.9g} no step was short enough for the tolerance.")
        elif how is Advance.REFUSED:
            status, why = self._obstacle()
            self._end(status, f"Beyond t = {time:.9g}: {why}")
        return how is Advance.REACHED

    def _advance(self, target: float) -> Advance:
        """Go on with whichever integrator suits; each takes over where the other has come to."""
        while True:
            how = self.integrator.advance(target)
            if self._turn and self.status is None:
                self._turn = False
                self._become_implicit()
                if self.integrator.time >= target:
                    return Advance.REACHED
            elif how is Advance.ROUGH:
                self._become_explicit()
            else:
                return how

    def _become_implicit(self) -> None:
        explicit = self._explicit
        implicit = ImplicitRungeKutta(
            self._slope,
            self._jacobian,
            time=explicit.time,
            state=explicit.state,
            slope=explicit.slope,
            step=explicit.step,
            scale=self._span,
            allowed=self._allowed,
            on_accept=self._accept_implicit,
            smooth=lambda: not self._kinked,
        )
        implicit.accepted, implicit.rejected = explicit.accepted, explicit.rejected
        self.integrator, self._kinked = implicit, False
        self._noise = max(self._noise, self._usual_noise)

    def _become_explicit(self) -> None:
        implicit, explicit = self.integrator, self._explicit
        explicit.time, explicit.state, explicit.slope = implicit.time, implicit.state, implicit.slope
        explicit.accepted, explicit.rejected = implicit.accepted, implicit.rejected
        steepness = explicit.steepness
        explicit.step = min(implicit.step, METHODS[explicit.method].stable / steepness if steepness else math.inf)
        self.integrator, self._stiff, self._kinked = explicit, 0, False

    def _jacobian(self, time: float, state: Tensor) -> Tensor:
        found = self.equation.jacobian(time, state)
        assert found is not None, "asked of models whose pattern is known"
        return found

    def _allowed(self, step: float) -> float:
        # Written so that it is positive where nothing moves any more.
        return (self._options.tolerance * self._speed + self._noise) * step + self._rounding

    def _accept_implicit(self, time: float, state: Tensor, step: float) -> bool:
        self.judge.note(self._allowed(step), step)
        self.implicit_steps += 1
        self._speed = float(self.integrator.slope[-1])
        over = self._take(time, state)
        # A solve that ends on its fixed point by luck says nothing of those in the stages to come.
        self._noise = max(self._noise, self._usual_noise)
        return over

    def snapshot(self) -> Snapshot:
        """Return the place reached."""
        return self._snapshot(self.integrator.time, self.integrator.state, self.loss)

    def _snapshot(self, time: float, state: Tensor, loss: float) -> Snapshot:
        return Snapshot(
            at=time,
            parameters=self.equation.parameters(state),
            loss=loss,
            path=self.equation.lengths(state),
            path_length=float(state[-1]),
        )

    @property
    def ended_at_a_step(self) -> bool:
        """Whether the field's last value is that of the place reached, and not of a step that was tried in vain."""
        return self.status in (RunStatus.LOSS_FLOOR, RunStatus.HORIZON, RunStatus.STEPS, RunStatus.DIVERGED)

    def _slope(self, time: float, state: Tensor) -> Tensor:
        try:
            slope = self.equation(time, state)
        except WellPosednessError as error:
            self._lost, self._lost_at = error, time
            raise
        point = self.equation.point
        self._usual_noise = max(_known(point.gradient_error), _FORGETTING * self._usual_noise)
        pattern = point.pattern
        before = self._pattern
        self._kinked = self._kinked or pattern is None or before is None or not torch.equal(pattern, before)
        return slope

    def _obstacle(self) -> tuple[RunStatus, str]:
        """Say what is beyond the time reached.

        On the way to the edge of the well-posed region, solves grow long and fail before it is met. What tells is that
        longer steps, tried before, have been beyond it.
        """
        failure, time = self.integrator.failure, self.integrator.time
        if isinstance(failure, NotFiniteError):
            return RunStatus.NOT_FINITE, str(failure)
        if self._lost is None or self._lost_at - time > _BEYOND * (time + self._span):
            return RunStatus.UNSOLVED, f"{failure} The contraction factor was {self._contraction:.6g} before."
        before = "" if isinstance(failure, WellPosednessError) else f" Before t = {self._lost_at:.9g}: {failure}"
        return RunStatus.WELL_POSEDNESS_LOST, f"{self._lost}{before}"

    def _time_scale(self) -> float:
        if self._speed > 0:
            scale = abs(self._first_loss) / self._speed / self._speed
            return min(scale, math.sqrt(sys.float_info.max))
        if self._options.horizon is None and self._first_loss != 0:
            raise ArgumentError(f"`horizon` of {FLOW} must be given where the gradient is zero at first. Got None.")
        return self._options.horizon or 1.0

    def _measure(self, error: Tensor, step: float, state: Tensor, slope: Tensor) -> Tensor:
        norms = [torch.linalg.vector_norm(part) for part in error.split(self.equation.parts)]
        *errors, path, self._speed = torch.stack([*norms, state[-1], slope[-1]]).tolist()
        time = self.integrator.time
        # An error that rounding makes does not fall with the step either, and is held to the path in the same way.
        rounded = max(errors) <= _ROUNDINGS * max(self._rounding, torch.finfo(error.dtype).eps * path)
        self._smooth_step, kinked, self._kinked = not self._kinked, self._kinked or rounded, False
        ratio = self.judge.ratio(
            errors, time=time, step=step, path=path, speed=self._speed, noise=self._noise, kinked=kinked
        )
        return error.new_tensor(ratio)

    def _accept(self, time: float, state: Tensor) -> bool:
        self.judge.accept()
        self._choose_method()
        over = self._take(time, state)
        self._turn = not over and self._is_stiff(state)
        return over or self._turn

    def _is_stiff(self, state: Tensor) -> bool:
        """Count the steps that stability has limited, and say whether an implicit method is worth its price."""
        explicit = self._explicit
        limit = _AT_THE_LIMIT * METHODS[explicit.method].stable
        if not self._smooth_step or self.judge.slides:
            self._stiff = 0
        else:
            limited = explicit.steepness * (self.integrator.time - self._step_start) > limit
            self._stiff = self._stiff + 1 if limited else max(0, self._stiff - 1)
        small = state.numel() <= _MOST_UNKNOWNS and state.dtype == torch.float64
        return small and self._stiff >= max(_STIFF_STEPS, state.numel() // 2)

    def _take(self, time: float, state: Tensor) -> bool:
        point = self.equation.point
        self._pattern = point.pattern
        self._contraction = point.contraction
        self._step_start = self._last_time
        self.field_error += (time - self._last_time) * self._noise
        self._last_time, self._noise, self.loss = time, _known(point.gradient_error), point.loss_value
        self._before, self._here = self._here, (time, state, self.loss)
        if self._observe is not None:
            self._observe(self, time, state)
        return self._is_over(time)

    def _choose_method(self) -> None:
        method = SLIDING_METHOD if self.judge.slides else self._options.method
        if method != self._explicit.method:
            self._explicit.method = method
            self.judge.order, self.judge.understated = METHODS[method].order, METHODS[method].understated

    def _is_over(self, time: float) -> bool:
        accepted = self.integrator.accepted
        reached = f"At t = {time:.9g} the loss was {self.loss:.6g}, from {self._first_loss:.6g} at first."
        if self.loss <= loss_floor(self._first_loss, self._options.until):
            self._end(RunStatus.LOSS_FLOOR, reached)
        elif self.loss > loss_ceiling(self._first_loss, _LOSS_RISE):
            self._end(RunStatus.DIVERGED, f"{reached} The exact flow cannot raise it; take a smaller tolerance.")
        elif self._stalls and self._speed**2 * (self.horizon - time) < _STALLED * abs(self.loss):
            self.status = RunStatus.HORIZON
            self.detail = (
                f"{reached} At its present rate it falls by less than {_STALLED:g} of itself until t = "
                f"{self.horizon:.3g}, the longest that a flow without `horizon` is followed."
            )
        elif accepted >= self._options.steps:
            self._end(RunStatus.STEPS, reached)
        elif self._interruption.asked:
            self._end(RunStatus.INTERRUPTED, reached)
        return self.status is not None

    def _end(self, status: RunStatus, detail: str) -> None:
        self.status = status
        self.detail = detail if status is RunStatus.DIVERGED else f"{detail} {_TEXTS.get(status, status.text)}"


def _known(error: float) -> float:
    return 0.0 if math.isnan(error) else error


# What `RunStatus` says of descent, said of flow: there is no step to be chosen, and no run to be resumed.
_TEXTS = {
    RunStatus.STEPS: "The budget of `steps` was spent. Allow more, or loosen `tolerance`.",
    RunStatus.WELL_POSEDNESS_LOST: "The equilibrium need not exist or be unique there. Start with smaller weights.",
    RunStatus.NOT_FINITE: "Look for overflow in the data and the weights.",
    RunStatus.STEP_UNDERFLOW: "Loosen `tolerance`, or use float64.",
    RunStatus.INTERRUPTED: "What was reached is kept.",
}
