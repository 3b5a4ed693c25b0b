"""What a training run leaves behind: snapshots, series, and why it ended.

Why a training run ended.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from numbers import Real
from typing import TYPE_CHECKING, Any, overload

from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium.result import html_table
from ntk_deq.errors import ArgumentError, name_hint
from ntk_deq.language.run import told_in

if TYPE_CHECKING:
    from pathlib import Path


class RunStatus(StrEnum):
    """Why a training run ended; the text names the cause and what to do about it.

    Example:
        >>> RunStatus.LOSS_FLOOR.value, RunStatus.LOSS_FLOOR.complete, RunStatus.DIVERGED.complete
        ('loss-floor', True, False)
        >>> RunStatus.STEPS.text
        'The budget of `steps` was spent. Resume with more steps to go on.'
    """

    LOSS_FLOOR = "loss-floor"
    STEPS = "steps"
    HORIZON = "horizon"
    WELL_POSEDNESS_LOST = "well-posedness-lost"
    DIVERGED = "diverged"
    NOT_FINITE = "not-finite"
    STEP_UNDERFLOW = "step-underflow"
    STATIONARY = "stationary"
    UNSOLVED = "unsolved"
    INTERRUPTED = "interrupted"

    @property
    def complete(self) -> bool:
        """Whether the run went where it was sent: to the loss floor, to its last step or to its horizon."""
        return self in (RunStatus.LOSS_FLOOR, RunStatus.STEPS, RunStatus.HORIZON)

    @property
    def text(self) -> str:
        """The cause, and what to do about it."""
        return _TEXTS[self]


_TEXTS = {
    RunStatus.LOSS_FLOOR: "The loss fell to `until` times its first value.",
    RunStatus.STEPS: "The budget of `steps` was spent. Resume with more steps to go on.",
    RunStatus.HORIZON: "The time reached `horizon`.",
    RunStatus.WELL_POSEDNESS_LOST: (
        "The contraction factor reached one, so that the equilibrium need not exist or be unique. "
        "Take a smaller step, or start with smaller weights."
    ),
    RunStatus.DIVERGED: "The loss rose to more than a million times its first value. Take a smaller step.",
    RunStatus.NOT_FINITE: (
        "The loss, the state or a parameter became NaN or Inf. Take a smaller step, and look for overflow in the data."
    ),
    RunStatus.STEP_UNDERFLOW: (
        "The step became too small for the precision: it leaves every parameter as it was. "
        "Take a larger step, a looser tolerance, or float64."
    ),
    RunStatus.STATIONARY: (
        "The gradient is zero in every entry: a minimum above the loss floor, or units that are all off. "
        "Descent stays there for ever."
    ),
    RunStatus.UNSOLVED: (
        "An equilibrium or an adjoint was not found to the tolerance. Raise `max_steps` or loosen `rtol`."
    ),
    RunStatus.INTERRUPTED: "The run was interrupted. What was reached is kept; resume it to go on.",
}


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The parameters at one step or time of a run.

    Attributes:
        at: Number k of the step, or time t of gradient flow.
        parameters: The parameters, by name.
        loss: The loss there.
        path: Length of the path of each parameter from the start to here, Frobenius.
        path_length: Length of the path of all parameters together, Euclidean.
    """

    at: float
    parameters: dict[str, Tensor]
    loss: float
    path: dict[str, float]
    path_length: float


@dataclass(frozen=True, eq=False)
class Series:
    """A quantity along a run.

    Attributes:
        at: Steps or times, increasing.
        values: One value (a number or a tensor) for each of them.
    """

    at: Float[Tensor, " T"]
    values: Float[Tensor, "T *shape"]  # noqa: UP037

    def slice(self, start: float, stop: float) -> Series:
        """Return the part with start <= at <= stop.

        Raises:
            ArgumentError: `start` or `stop` is no step or time.

        Example:
            >>> import torch
            >>> Series(torch.arange(4.0), torch.arange(4.0) ** 2).slice(1, 2).values
            tensor([1., 4.])
        """
        inside = (self.at >= _place(start, "start")) & (self.at <= _place(stop, "stop"))
        return Series(self.at[inside], self.values[inside])


@dataclass(frozen=True, eq=False, repr=False)
class TrainingRun:
    """A run of gradient descent or of gradient flow, from its start to its end, or a slice of one.

    A slice holds the snapshots and the series of its range; `status`, `steps`, `forward_iterations`,
    `adjoint_iterations`, `evaluations`, `seconds` and `error` stay those of the whole run, and the lengths of paths
    count from the start of the run.

    Attributes:
        method: `gradient-descent` or `gradient-flow`.
        step: The step size eta; None for flow.
        status: Why the run ended.
        steps: Descent steps, or accepted steps of the integrator.
        end: The last k or t: that of the last snapshot, to which `parameters` and `loss` belong.
        snapshots: The first one at 0, the last one at the end, a bounded number with growing distances between.
        series: What the recorders recorded, by name; always `loss` and `gradient_norm`. Of bounded length: when a
            series is full, every other point is dropped and the distance doubled.
        forward_iterations: Mean iterations of an equilibrium.
        adjoint_iterations: Mean iterations of an adjoint.
        evaluations: Gradients computed.
        seconds: Time spent.
        error: Estimated distance of the recorded parameters from the exact trajectory, Frobenius over all parameters;
            None: not estimated. The method says what it covers.
        settings: Options, the model's name, versions, dtype, device.
        detail: The status with its numbers, a sentence.
        continuation: What `resume` needs to go on: plain values and tensors; None: the run cannot be resumed.
        whole: Whether this is the whole run, and no slice of it.
    """

    method: str
    step: float | None
    status: RunStatus
    steps: int
    end: float
    snapshots: tuple[Snapshot, ...]
    series: dict[str, Series]
    forward_iterations: float
    adjoint_iterations: float
    evaluations: int
    seconds: float
    error: float | None
    settings: dict[str, Any]
    detail: str = ""
    continuation: Mapping[str, Any] | None = None
    whole: bool = True

    @overload
    def __getitem__(self, name: str) -> Series: ...

    @overload
    def __getitem__(self, name: slice) -> TrainingRun: ...

    def __getitem__(self, name: str | slice) -> Series | TrainingRun:
        """Return a series by name, or as `run[2:50]` the part from step or time 2 to 50, both included.

        Raises:
            ArgumentError: Nothing was recorded under this name, or a part is asked for with a stride, or from or to
                what is no step or time.
        """
        if isinstance(name, slice):
            if name.step is not None:
                asked = f"{name.start}:{name.stop}:{name.step}"
                raise ArgumentError(f"A part of a training run has no stride. Got [{asked}].")
            return self.slice(0.0 if name.start is None else name.start, math.inf if name.stop is None else name.stop)
        if not isinstance(name, str):
            raise ArgumentError(f"A training run is asked for a series by its name, or for a part. Got [{name!r}].")
        if name not in self.series:
            hint = name_hint(name, self.series)
            raise ArgumentError(f"The run recorded no {name!r}. It recorded: {', '.join(self.series)}.{hint}")
        return self.series[name]

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The parameters at the end."""
        return self.snapshots[-1].parameters

    @property
    def loss(self) -> float:
        """The loss at the end."""
        return self.snapshots[-1].loss

    def slice(self, start: float, stop: float) -> TrainingRun:
        """Return the part of the record with start <= at <= stop; a slice cannot be resumed.

        Its `end`, `parameters` and `loss` are those of its last snapshot; its series may go on to `stop`.

        Args:
            start: Its first step or time, >= 0.
            stop: Its last one; infinity: to the end.

        Raises:
            ArgumentError: `start` or `stop` is no step or time, or no snapshot lies in the range.
        """
        start, stop = _place(start, "start"), _place(stop, "stop")
        if start > stop:
            raise ArgumentError(f"`start` of a slice must be at most `stop`. Got {start:g} and {stop:g}.")
        snapshots = tuple(snapshot for snapshot in self.snapshots if start <= snapshot.at <= stop)
        if not snapshots:
            held = ", ".join(f"{snapshot.at:g}" for snapshot in self.snapshots)
            raise ArgumentError(
                f"A slice of a training run must hold a snapshot. None lies in [{start:g}, {stop:g}]; "
                f"they lie at {held}."
            )
        series = {name: values.slice(start, stop) for name, values in self.series.items()}
        until = f" to {stop:g}" if stop < math.inf else ""
        detail = f"The part from {told_in(self).letter} = {start:g}{until} of a run that ended so: {self._ending}"
        return replace(
            self,
            snapshots=snapshots,
            series=series,
            end=snapshots[-1].at,
            detail=detail,
            continuation=None,
            whole=False,
        )

    def save(self, path: str | Path) -> None:
        """Write the record to a file that `load` reads, whole or not at all.

        Args:
            path: The file, with the ending `.npz`.

        Raises:
            RecordError: It cannot be written; a file that was there stays as it was.
        """
        importlib.import_module("ntk_deq.dynamics.storage").save_run(self, path)

    @staticmethod
    def load(path: str | Path) -> TrainingRun:
        """Read a record from a file. It is data only, so that a file from a stranger can run no code.

        Raises:
            RecordError: There is no such file, or it is damaged, or of another version.
        """
        run: TrainingRun = importlib.import_module("ntk_deq.dynamics.storage").load_run(path)
        return run

    def plot(self) -> Any:
        """Draw loss and recorded series."""
        # Plots lie above this layer, so that they are imported by name, and only when asked for.
        return importlib.import_module("ntk_deq.plots").plot_run(self)

    @property
    def _ending(self) -> str:
        return self.detail or self.status.text

    def _rows(self) -> list[tuple[str, str]]:
        kind = told_in(self)  # one that does not train has no step size, no gradients and no solves
        size = f", step {self.step:g}" if self.step is not None and kind.trains else ""
        gradients = f", {self.evaluations} gradients" if kind.trains else ""
        first, last = self.snapshots[0], self.snapshots[-1]
        places = f"at {kind.letter} = {first.at:g} to {self.loss:.6g} at {kind.letter} = {last.at:g}"
        whole = "" if self.whole else " in the whole run"
        rows = [
            ("method", f"{self.method}{size}"),
            ("status", f"{self.status.value}: {self._ending}"),
            ("steps", f"{self.steps}{gradients} in {self.seconds:.3g} s{whole}"),
            ("loss" if kind.trains else "followed", f"{first.loss:.6g} {places}"),
            ("path length", f"{last.path_length:.6g}{'' if self.whole else ' from the start of the run'}"),
        ]
        if kind.trains:
            solves = f"{self.forward_iterations:.3g} forward, {self.adjoint_iterations:.3g} adjoint a gradient{whole}"
            rows.append(("iterations", solves))
        if self.error is not None:
            proven = "at most" if not kind.trains and self.settings.get("certified") else "about"
            rows.append(("error", f"{proven} {self.error:.3g}{whole}"))
        rows.append(("recorded", ", ".join(f"{name} ({len(s.at)})" for name, s in self.series.items())))
        return rows

    def __repr__(self) -> str:
        return "\n".join(["TrainingRun", *(f"  {name}: {text}" for name, text in self._rows())])

    def _repr_html_(self) -> str:
        """Return the same summary as a table, for notebooks."""
        return html_table("TrainingRun", dict(self._rows()))


def _place(value: object, name: str) -> float:
    """Return an end of a slice as a number.

    Raises:
        ArgumentError: It is no number >= 0.
    """
    if isinstance(value, Tensor) and value.ndim == 0:
        value = value.item()
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            place = float(value)
        except OverflowError:  # an integer beyond every step
            place = -math.inf if value < 0 else math.inf
        if place >= 0:
            return place
    shown = f"{value!r:.100}"
    raise ArgumentError(f"`{name}` of a slice must be a step or time >= 0, counted from 0. Got {shown}.")
