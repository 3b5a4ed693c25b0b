"""Gradient flow through the equilibrium, integrated adaptively, with an estimate of the error.

The error is how far two integrations of the same flow are apart. A run and the one that took it up make one record.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.dynamics.field import GradientField, loss_floor
from ntk_deq.dynamics.flow.passes import FlowPass
from ntk_deq.dynamics.record import RunStatus, Series, Snapshot, TrainingRun
from ntk_deq.dynamics.recorders import Observation, Recorder
from ntk_deq.dynamics.series import Recording, progress_bar
from ntk_deq.dynamics.settings import (
    FLOW,
    FlowOptions,
    check_on_step,
    checked_problem,
    default_tolerance,
    describe_run,
    model_values,
)
from ntk_deq.dynamics.storage import Interruption, deferred_interrupt
from ntk_deq.errors import ArgumentError
from ntk_deq.files.archives import owned
from ntk_deq.systems.checks import check_problem
from ntk_deq.systems.model import EquilibriumModel

# Settings of the record that tell what happened along a run: those that add up, and those whose largest counts.
_ADDED = ("rejected", "first_evaluations", "rough_steps", "implicit_steps", "sum_of_errors", "error_field")
_LARGEST = ("relaxed", "largest_error_per_time")


def joined(first: TrainingRun, second: TrainingRun, options: FlowOptions) -> TrainingRun:
    """Return the record of both; the errors are added, as if the flow brought no two trajectories further apart.

    Times and lengths of the second count from the end of the first; its series are those of both.
    """
    evaluations = first.evaluations + second.evaluations

    def mean(old: float, new: float) -> float:
        return (old * first.evaluations + new * second.evaluations) / evaluations

    return replace(
        second,
        steps=first.steps + second.steps,
        end=_time(second.end, first, options),
        snapshots=_thinned(
            (*first.snapshots, *(_moved(snapshot, first, options) for snapshot in second.snapshots[1:])), options
        ),
        forward_iterations=mean(first.forward_iterations, second.forward_iterations),
        adjoint_iterations=mean(first.adjoint_iterations, second.adjoint_iterations),
        evaluations=evaluations,
        seconds=first.seconds + second.seconds,
        error=_sum(first.error, second.error),
        settings={**second.settings, **_along(first.settings, second.settings)},
        detail=f"Taken up at t = {first.end:.9g}, from where this counts: {second.detail}",
    )


def _time(since: float, first: TrainingRun, options: FlowOptions) -> float:
    """Return the time of the whole; where one was asked for it is that one, whatever the sum is rounded to."""
    asked = [time for time in (*options.times, options.horizon) if time is not None and time > first.end]
    return next((time for time in asked if time - first.end == since), since + first.end)


def _moved(snapshot: Snapshot, first: TrainingRun, options: FlowOptions) -> Snapshot:
    end = first.snapshots[-1]
    path = {name: length + end.path[name] for name, length in snapshot.path.items()}
    at = _time(snapshot.at, first, options)
    return replace(snapshot, at=at, path=path, path_length=snapshot.path_length + end.path_length)


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


def _thinned(snapshots: Sequence[Snapshot], options: FlowOptions) -> tuple[Snapshot, ...]:
    """Return the snapshots nearest to places spaced in the logarithm of the time, and those at the times asked for."""
    spare = len(snapshots) - options.snapshots - len(options.times)
    if spare <= 1:  # a run that ends at the loss floor keeps the step before it, too
        return tuple(snapshots)
    logs = [math.log(snapshot.at) for snapshot in snapshots[1:]]
    kept, count = {0, len(snapshots) - 2, len(snapshots) - 1}, options.snapshots - 2
    for i in range(count):
        goal = logs[0] + (logs[-1] - logs[0]) * i / max(count, 1)
        place = bisect_left(logs, goal)
        kept.add(1 + min((place - 1, place), key=lambda at: abs(logs[at] - goal) if 0 <= at < len(logs) else math.inf))
    asked = set(options.times)
    return tuple(snapshot for i, snapshot in enumerate(snapshots) if i in kept or snapshot.at in asked)


def _along(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    old, new = first.get("error_by_parameter"), second.get("error_by_parameter")
    return {
        "time_scale": first["time_scale"],
        **{name: first.get(name, 0) + second[name] for name in _ADDED},
        **{name: max(first[name], second[name]) for name in _LARGEST},
        "error_by_parameter": None if old is None or new is None else {name: old[name] + new[name] for name in old},
        "error_path": _sum(first.get("error_path"), second.get("error_path")),
    }


@dataclass(frozen=True)
class Apart:
    """How far two integrations are apart at most: in all parameters together, in each, and in the length of a path.

    The rounding of the recorded parameters is added.
    """

    together: float
    by_parameter: dict[str, float]
    path: float

    def or_more(self, first: Snapshot, second: Snapshot) -> Apart:
        """Take in another time."""
        norm = torch.linalg.vector_norm
        # Both are rounded from displacements, by half a unit in the last place each.
        moved = [
            norm(value - second.parameters[name]) + torch.finfo(value.dtype).eps / 2 * norm(value)
            for name, value in first.parameters.items()
        ]
        distances = dict(zip(first.parameters, torch.stack(moved).tolist(), strict=True))
        lengths = [first.path[name] - second.path[name] for name in first.path]
        return Apart(
            max(self.together, math.hypot(*distances.values())),
            {name: max(distance, distances[name]) for name, distance in self.by_parameter.items()},
            max(self.path, *map(abs, (first.path_length - second.path_length, *lengths))),
        )


def gradient_flow(
    model: EquilibriumModel,
    X: Float[Tensor, "_ _"] | None = None,
    y: Float[Tensor, _ * k] | None = None,
    *,
    horizon: float | None = None,
    until: float = 1e-10,
    tolerance: float | None = None,
    steps: int = 100_000,
    record: Iterable[str | Recorder] = (),
    snapshots: int = 64,
    times: Float[Tensor, " T"] | None = None,
    method: str = "dopri5",
    estimate_error: bool = True,
    nearby: tuple[EquilibriumModel, Tensor, Tensor] | None = None,
    rtol: float | None = None,
    max_steps: int = 10_000,
    on_step: Callable[[float], None] | None = None,
    progress: bool = False,
) -> TrainingRun:
    """Integrate d theta/dt = -grad L(theta), L the declared loss, and return the record of the run.

    Error control. The embedded error of a step over its length in time is kept below `tolerance` times the speed
    norm(grad L), so that the local errors add up to less than `tolerance` times the length of the path. A kink of the
    loss in a step, and a sliding mode along one, are told by the order at which the error falls, where a unit switches
    or the model does not say whether one does, and held to the path so far; see `StepJudge`. A sliding mode is followed
    with `bosh3`, whose stages do not reach out of the step. A small model whose flow is stiff, which is where stability
    and not accuracy has limited a hundred steps between kinks, is followed with Radau, an implicit method of order 5,
    up to the next kink, to the same error per path. The lengths of the paths are part of the differential equation.
    Every snapshot is stepped onto, so that none is an interpolation.

    Error estimate. The flow is integrated a second time to the same times, with 32 times the tolerance and, along a
    sliding mode, steps four times as long. `error` is the largest distance between the two over the snapshots, plus the
    rounding of the parameters, plus the integral of the gradient's own error, which the solvers' tolerance leaves (for
    models that say their form; see `GradientField`). The distance is the error of the second run, and bounds that of
    the first wherever the tighter options at least halve the error; where the gradient is smooth, the first run is
    about 70 times better. It is an estimate and no proof: what both runs miss in the same way is not found out. The
    lengths of the paths have an estimate of their own, `error_path` in the settings: along a sliding mode they are
    those of the chatter, and longer than the solution's.

    The run ends with a reason, its `status`: the loss is at most `until` times the first one; the time is `horizon`;
    `steps` are spent; beyond the present time the contraction factor reaches one, a solve fails, or NaN or Inf comes up
    (all to a millionth of the time); no step is short enough for the tolerance; the loss has doubled, which the exact
    flow cannot do; Ctrl-C. What was reached is in the record. Only where the very first gradient cannot be computed is
    there nothing to return, and the error is raised.

    The settings of the record hold, besides the options: `time_scale`, the 1/rate at the start; `rejected` steps;
    `first_evaluations`, the gradients of the first integration alone; `implicit_steps`, made by Radau; `rough_steps`,
    accepted with a kink in them, and `relaxed`, the largest factor on what those were allowed; `largest_error_per_time`
    and `sum_of_errors` of the embedded errors of all accepted steps; `error_field`, the
    integral in `error`; `error_by_parameter`, the same estimate for each parameter alone; `error_path`.

    Args:
        model: The model; its parameters are the start and are left as they are.
        X: Inputs, one sample a row.
        y: Targets.
        horizon: The time at which to end, > 0; None: a million times 1/rate, with the rate -d log L/dt at the start, or
            before where the loss would fall by less than a thousandth until then at its present rate.
        until: The loss at which to end, over the first one; in [0, 1). The run ends with the first step that is there.
        tolerance: Local error over path, in (0, 0.03], and at least 100 eps of the dtype; None: 1e-9, or that least.
        steps: Accepted steps allowed, >= 0.
        record: What to record at the steps besides `loss` and `gradient_norm`; see `recorders`.
        snapshots: Copies of the parameters at times spaced in their logarithm, the start and the end among them, >= 2.
            They are spaced up to the horizon, so that a run that ends before has fewer. Where the loss floor ends it,
            the step before is kept too.
        times: Further times with a snapshot, > 0, in any order; those after the end are left out.
        method: `dopri5`, `dopri8` or `bosh3` of torchdiffeq, of the orders 5, 8 and 3.
        estimate_error: Whether to integrate a second time; it takes about a third of the whole.
        nearby: A model, inputs and targets of the same shapes for the second integration, so that the estimate takes
            in what is not known of the start and the data; None: those of the first.
        rtol: Relative tolerance of equilibria and adjoints; None: a ten-thousandth of `tolerance`.
        max_steps: Iterations allowed in a solve.
        on_step: Called with the time after each accepted step, of both integrations.
        progress: Whether to show a bar.

    Raises:
        ArgumentError: An argument is out of range, or the gradient is zero at the start and no horizon is given.
        WellPosednessError: The contraction factor is not below one at the start.
        EquilibriumError: The equilibrium or the adjoint at the start was not found.

    References:
        Dormand and Prince (1980); Hairer, Norsett, Wanner (1993), Solving Ordinary Differential Equations I, II.4.

    Example:
        >>> from ntk_deq.systems import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> run = gradient_flow(LinearImplicit(W=one / 2, U=one, b=one[0]), one, one[0], until=1e-6)
        >>> run.status.value, run.error < 1e-6
        ('loss-floor', True)
        >>> U, b = run.parameters["U"], run.parameters["b"]
        >>> abs((U**2 - b**2).item()) < 1e-8  # yhat = b U/(1 - W): what the flow keeps
        True
    """
    X, y = checked_problem(model, X, y, FLOW)
    tolerance = default_tolerance(X.dtype) if tolerance is None else tolerance
    options = FlowOptions(
        horizon, until, tolerance, steps, snapshots, _as_tuple(times), method, rtol=rtol, max_steps=max_steps
    )
    check_on_step(on_step, FLOW)
    options.check_dtype(X.dtype)
    if nearby is not None:
        check_problem(*nearby, FLOW)
    flow = _Flow(model, X, y, options, record, on_step, nearby=nearby)
    return flow.run(estimate_error=estimate_error, progress=progress)


class _Flow:
    """One run: the integration that is recorded, and the one that it is compared with."""

    def __init__(
        self,
        model: EquilibriumModel,
        X: Tensor,
        y: Tensor,
        options: FlowOptions,
        record: Iterable[str | Recorder],
        on_step: Callable[[float], None] | None,
        before: TrainingRun | None = None,
        asked: FlowOptions | None = None,
        nearby: tuple[EquilibriumModel, Tensor, Tensor] | None = None,
    ) -> None:
        self._model, self._X, self._y, self._options, self._on_step = model, owned(X), owned(y), options, on_step
        self._nearby = (model, self._X, self._y) if nearby is None else nearby
        self._values = model_values(model)  # as they are now: the caller may change the model's later
        self._recording = Recording(record)
        self._last: Observation | None = None
        # A run that is taken up, and what is asked of the whole: `options` count from where it is taken up.
        self._before, self._asked = before, options if asked is None else asked
        if before is not None and before.continuation is not None:
            self._recording.restore(before.continuation["recording"])

    def run(self, *, estimate_error: bool, progress: bool) -> TrainingRun:
        """Integrate, compare, and return the record."""
        started = perf_counter()
        before = self._before
        time_before, steps_before = (0.0, 0) if before is None else (before.end, before.steps)
        path_before = 0.0 if before is None else before.snapshots[-1].path_length
        with torch.no_grad(), ExitStack() as stack:
            interruption = stack.enter_context(deferred_interrupt())
            show = stack.enter_context(progress_bar(progress, FLOW, self._options.horizon))

            def observe(flow: FlowPass, time: float, state: Tensor) -> None:
                equation = flow.equation
                start = equation.start if before is None else before.snapshots[0].parameters
                length = state[-1] + path_before
                seen = Observation(time_before + time, equation.here, start, equation.point, self._model, length)
                self._last = seen
                if time > 0 or before is None:  # where a run is taken up its end was seen before
                    self._recording.offer(steps_before + flow.integrator.accepted, seen)
                if show is not None:
                    show(time, flow.loss)
                self._tell(flow, time, state)

            field = self._field(self._options, self._model, self._X, self._y)
            first = FlowPass(field, self._model.parameters(), self._options, interruption, observe)
            snapshots = first.integrate(self._options.targets(first.scale, first.horizon))
            last = self._last if first.ended_at_a_step else None
            series = self._recording.series(steps_before + first.integrator.accepted, last)
            second, apart = None, None
            if estimate_error and first.status is not RunStatus.INTERRUPTED:
                second, apart = self._compare(snapshots, interruption)
        return self._record(first, second, snapshots, series, apart, perf_counter() - started)

    def _tell(self, flow: FlowPass, time: float, state: Tensor) -> None:
        if self._on_step is not None and time > 0:
            self._on_step(time)

    def _field(self, options: FlowOptions, model: EquilibriumModel, X: Tensor, y: Tensor) -> GradientField:
        rtol, most = options.field_tolerance(), options.max_steps
        return GradientField(model, X, y, rtol=rtol, max_steps=most, patterns=True)

    def _compare(self, snapshots: tuple[Snapshot, ...], interruption: Interruption) -> tuple[FlowPass, Apart | None]:
        """Integrate more coarsely to the same times, perhaps from near by; None where that ended before."""
        options, (model, X, y) = self._options.coarser(), self._nearby
        field = self._field(options, model, X, y)
        second = FlowPass(field, model.parameters(), options, interruption, self._tell, follow=True)
        apart = Apart(0.0, dict.fromkeys(snapshots[0].parameters, 0.0), 0.0)
        for snapshot in snapshots[1:]:
            if not second.advance(snapshot.at):
                return second, None
            apart = apart.or_more(snapshot, second.snapshot())
        return second, apart

    def _record(
        self,
        first: FlowPass,
        second: FlowPass | None,
        snapshots: tuple[Snapshot, ...],
        series: dict[str, Series],
        apart: Apart | None,
        seconds: float,
    ) -> TrainingRun:
        equations = [first.equation] if second is None else [first.equation, second.equation]
        evaluations = sum(equation.evaluations for equation in equations)
        detail = f"{first.detail} {first.equation.caveat}".rstrip()
        if second is not None and apart is None:
            detail += f" The error is not estimated: the second integration ended before. {second.detail}"
        assert first.status is not None
        run = TrainingRun(
            method=FLOW,
            step=None,
            status=first.status,
            steps=first.integrator.accepted,
            end=first.integrator.time,
            snapshots=snapshots,
            series=series,
            forward_iterations=sum(equation.forward_steps for equation in equations) / evaluations,
            adjoint_iterations=sum(equation.adjoint_steps for equation in equations) / evaluations,
            evaluations=evaluations,
            seconds=seconds,
            error=None if apart is None or first.equation.caveat else apart.together + first.field_error,
            settings=describe_run(self._model, self._X, self._settings(first, apart)),
            detail=detail,
            continuation=self._state() if first.ended_at_a_step or first.status is RunStatus.INTERRUPTED else None,
        )
        return run if self._before is None else joined(self._before, run, self._asked)

    def _state(self) -> dict[str, Any]:
        """Return what `resume_flow` needs besides the record: plain values and tensors."""
        return {
            "model": self._values,
            "X": self._X,
            "y": self._y,
            "options": {**asdict(self._asked), "times": list(self._asked.times)},
            "record": [recorder.name for recorder in self._recording.recorders],
            "recording": self._recording.state(),
        }

    def _settings(self, flow: FlowPass, apart: Apart | None) -> dict[str, Any]:
        field = flow.field_error
        return {
            **asdict(self._asked),
            "times": list(self._asked.times),
            "rtol": self._asked.field_tolerance(),
            "time_scale": flow.scale,
            "rejected": flow.integrator.rejected,
            "first_evaluations": flow.equation.evaluations,
            "rough_steps": flow.judge.rough_steps,
            "implicit_steps": flow.implicit_steps,
            "relaxed": flow.judge.relaxed,
            "largest_error_per_time": flow.judge.largest,
            "sum_of_errors": flow.judge.total,
            "error_field": field,
            "error_by_parameter": None if apart is None else {n: v + field for n, v in apart.by_parameter.items()},
            "error_path": None if apart is None else apart.path + field,
        }


def resume_flow(
    model: EquilibriumModel,
    run: TrainingRun,
    *,
    record: Iterable[str | Recorder],
    steps: int | None,
    until: float | None,
    horizon: float | None,
    progress: bool,
) -> TrainingRun:
    """Go on with a run of gradient flow; see `resume`.

    Args:
        model: The model with the parameters of the run's end.
        run: A record with a continuation.
        record: Recorders.
        steps: A new budget, counted from the start; None: the old one.
        until: A new loss floor; None: the old one.
        horizon: A new last time; None: the old one.
        progress: Whether to show a bar.
    """
    state = run.continuation
    assert state is not None
    options = FlowOptions(**{**state["options"], "times": tuple(state["options"]["times"])})
    asked = replace(
        options,
        horizon=options.horizon if horizon is None else horizon,
        until=options.until if until is None else until,
        steps=options.steps if steps is None else steps,
    )
    floor = loss_floor(run.snapshots[0].loss, asked.until)
    over = run.loss <= floor or run.steps >= asked.steps or (asked.horizon is not None and asked.horizon <= run.end)
    if over:
        return run
    part = replace(
        asked,
        horizon=None if asked.horizon is None else asked.horizon - run.end,
        until=max(0.0, floor / run.loss) if run.loss > 0 else 0.0,
        steps=asked.steps - run.steps,
        times=tuple(time - run.end for time in asked.times if time > run.end),
    )
    flow = _Flow(model, state["X"], state["y"], part, record, None, run, asked)
    return flow.run(estimate_error=run.error is not None, progress=progress)


def _as_tuple(times: Tensor | None) -> tuple[float, ...]:
    if times is None:
        return ()
    if not isinstance(times, Tensor) or times.ndim != 1:
        raise ArgumentError(f"`times` of {FLOW} must be a vector. Got {times!r}.")
    return tuple(times.double().tolist())
