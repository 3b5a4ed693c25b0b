"""Series of bounded length, whatever the length of the run.

Snapshots with growing distances, whose number is bounded whatever the length of the run.

A progress bar for long runs.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from ntk_deq.dynamics.record import Series, Snapshot
from ntk_deq.dynamics.recorders import Logarithmic, Observation, Recorder, Stateful, recorders
from ntk_deq.errors import ArgumentError, check_whole
from ntk_deq.files.archives import stored_count, stored_number, stored_tensor
from ntk_deq.language.run import GRADIENT_DESCENT

CAPACITY = 4096
"""Values of a series that are kept."""


class SeriesBuffer:
    """One series: when it is full, every other value is dropped, and from then on every other one is not taken.

    Args:
        name: The recorder's name, for errors.
        capacity: Values kept, >= 2.

    Example:
        >>> buffer = SeriesBuffer("loss", capacity=4)
        >>> for k in range(10):
        ...     if buffer.wants():
        ...         buffer.append(k, float(k))
        >>> buffer.series().at.tolist()
        [0.0, 4.0, 8.0]
    """

    def __init__(self, name: str, capacity: int = CAPACITY) -> None:
        self._name, self._capacity = name, capacity
        self._at: list[float] = []
        self._values: list[Any] = []
        self._stride, self._offered = 1, 0

    def wants(self) -> bool:
        """Say whether the value on offer is to be taken; every offer must be asked about once."""
        self._offered += 1
        return (self._offered - 1) % self._stride == 0

    def append(self, at: float, value: Tensor | float) -> None:
        """Take a value."""
        value = self._checked(value)
        if len(self._at) == self._capacity:
            self._at, self._values = self._at[::2], self._values[::2]
            self._stride *= 2
            if (self._offered - 1) % self._stride:
                return
        self._at.append(float(at))
        self._values.append(value)

    def _checked(self, value: Tensor | float) -> Tensor | float:
        """Return a copy in float64 on the CPU: whatever a series or a file cannot hold is refused before it is kept."""
        if isinstance(value, Tensor):
            if value.is_complex() or value.layout is not torch.strided:
                kind = value.layout if value.layout is not torch.strided else value.dtype
                raise ArgumentError(
                    f"The recorder {self._name!r} must return real numbers, in dense tensors. Got {kind}."
                )
            value = value.detach().item() if value.ndim == 0 else value.detach().double().to("cpu", copy=True)
        elif not isinstance(value, int | float):
            raise ArgumentError(
                f"The recorder {self._name!r} must return a number or a tensor. Got {type(value).__name__}."
            )
        elif isinstance(value, int) and abs(value) > sys.float_info.max:
            raise ArgumentError(
                f"The recorder {self._name!r} must return numbers that float64 holds. Got a larger one."
            )
        shape = value.shape if isinstance(value, Tensor) else ()
        known = self._values[0].shape if self._values and isinstance(self._values[0], Tensor) else ()
        if self._values and shape != known:
            raise ArgumentError(
                f"The recorder {self._name!r} must return values of one shape, {tuple(known)} as at first. "
                f"Got {tuple(shape)}."
            )
        return value

    def ends_at(self, at: float) -> bool:
        """Say whether the last value taken is that of step or time `at`."""
        return bool(self._at) and self._at[-1] == at

    def series(self, *last: tuple[float, Tensor | float]) -> Series:
        """Return what was taken, and the step and the value that are given after it."""
        steps = [*self._at, *(float(at) for at, _ in last)]
        values = [*self._values, *(self._checked(value) for _, value in last)]
        tensors = [value for value in values if isinstance(value, Tensor)]
        stacked = torch.stack(tensors) if tensors else torch.tensor(values, dtype=torch.float64)
        return Series(torch.tensor(steps, dtype=torch.float64), stacked)

    def state(self) -> dict[str, Any]:
        """Return what a resumed run must know."""
        series = self.series()
        return {"at": series.at, "values": series.values, "stride": self._stride, "offered": self._offered}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned.

        Raises:
            ValueError: It is not what a series of this name returns.
        """
        at, values = state["at"], state["values"]
        double = isinstance(values, Tensor) and values.dtype == torch.float64 and values.device.type == "cpu"
        if not double or values.ndim < 1 or len(values) > self._capacity:
            raise ValueError(f"the values of the series {self._name!r} must be at most {self._capacity} of float64")
        self._at = stored_tensor(at, values.new_zeros(len(values)), f"{self._name}.at").tolist()
        self._values = values.tolist() if values.ndim == 1 else list(values.clone())
        self._stride = stored_count(state["stride"], "stride", 1)
        self._offered = stored_count(state["offered"], "offered")


class Recording:
    """The recorders of a run with their series.

    Args:
        record: Names of built-in recorders, and recorders; those that are always there are added.
        capacity: Values kept of each.
    """

    def __init__(self, record: Iterable[str | Recorder] = (), capacity: int = CAPACITY) -> None:
        self.recorders = recorders(record)
        self._buffers = [SeriesBuffer(recorder.name, capacity) for recorder in self.recorders]

    def offer(self, index: int, observation: Observation) -> None:
        """Record what is due.

        Args:
            index: Number of the step; schedules go by it.
            observation: What recorders see.
        """
        for recorder, buffer in zip(self.recorders, self._buffers, strict=True):
            if recorder.when(index, observation) and buffer.wants():
                buffer.append(observation.at, recorder.function(observation))

    def series(self, index: int = 0, last: Observation | None = None) -> dict[str, Series]:
        """Return every series.

        Args:
            index: Number of the last step.
            last: The end of the run. A value that is due there is included even where the series is thinned; what the
                buffers and the recorders remember stays as it was. None: nothing is added.
        """
        return {
            recorder.name: buffer.series(*_at_end(recorder, buffer, index, last))
            for recorder, buffer in zip(self.recorders, self._buffers, strict=True)
        }

    def state(self) -> dict[str, Any]:
        """Return what a resumed run must know."""
        memories = {r.name: memory.state() for r in self.recorders if (memory := _memory(r)) is not None}
        buffers = {r.name: b.state() for r, b in zip(self.recorders, self._buffers, strict=True)}
        return {"buffers": buffers, "memories": memories}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned; a recorder that the state does not know starts here."""
        for recorder, buffer in zip(self.recorders, self._buffers, strict=True):
            if recorder.name in state["buffers"]:
                buffer.restore(state["buffers"][recorder.name])
            memory = _memory(recorder)
            if memory is not None and recorder.name in state["memories"]:
                memory.restore(state["memories"][recorder.name])


def _at_end(
    recorder: Recorder, buffer: SeriesBuffer, index: int, last: Observation | None
) -> list[tuple[float, Tensor | float]]:
    """Return the end's value where it is due and was not taken."""
    if last is None or buffer.ends_at(last.at):
        return []
    if not isinstance(recorder.when, Logarithmic) and not recorder.when(index, last):
        return []
    memory = _memory(recorder)
    remembered = None if memory is None else memory.state()
    value = recorder.function(last)
    if memory is not None and remembered is not None:
        memory.restore(remembered)
    return [(last.at, value)]


def _memory(recorder: Recorder) -> Stateful | None:
    function: object = recorder.function
    return function if isinstance(function, Stateful) else None


MOST_SNAPSHOTS = 1_000_000
"""Snapshots that a run may be told to keep."""

# Ratio of the steps of two neighbours at first: about 24 snapshots a decade, until there are too many.
_RATIO = 1.1
# Its square is a float still, and no run gets so far.
_LARGEST_RATIO = 1e150


def check_snapshots(limit: int, where: str) -> None:
    """Refuse a number of snapshots that no run can keep.

    Raises:
        ArgumentError: It is no whole number from 2 to a million.
    """
    check_whole(limit, "snapshots", where, 2)
    if limit > MOST_SNAPSHOTS:
        raise ArgumentError(f"`snapshots` of {where} must be at most {MOST_SNAPSHOTS}. Got {limit!r:.60}.")


class SnapshotKeeper:
    """The snapshots of a run: at step 0, then at steps that grow by a ratio; when full, every other one is dropped.

    The ratio is squared then, so that the distances stay even in the logarithm of the step, and no length of the run
    need be known beforehand.

    Args:
        limit: Snapshots allowed, the last one of the run among them; >= 2.
        always: Steps that are kept besides.

    Example:
        >>> keeper = SnapshotKeeper(8)
        >>> for k in range(1000):
        ...     if keeper.wants(k):
        ...         keeper.add(Snapshot(k, {}, 0.0, {}, 0.0))
        >>> [int(snapshot.at) for snapshot in keeper.snapshots]
        [0, 9, 25, 55, 174, 373, 800]
    """

    def __init__(self, limit: int, *, always: Sequence[int] = ()) -> None:
        check_snapshots(limit, GRADIENT_DESCENT.name)
        self._limit, self._always = limit, frozenset(always)
        self.snapshots: list[Snapshot] = []
        self._ratio, self._next = _RATIO, 0

    def wants(self, k: int) -> bool:
        """Say whether a snapshot is due at step k."""
        return k >= self._next or k in self._always

    def add(self, snapshot: Snapshot) -> None:
        """Take a snapshot."""
        self.snapshots.append(snapshot)
        extra = sum(kept.at in self._always for kept in self.snapshots)
        while len(self.snapshots) - extra >= self._limit:
            thinned = [kept for kept in self.snapshots if kept.at not in self._always]
            thinned = thinned[:1] if self._limit == 2 else thinned[::2]
            chosen = {kept.at for kept in thinned} | self._always
            self.snapshots = [kept for kept in self.snapshots if kept.at in chosen]
            self._ratio **= 2
        k = int(snapshot.at)
        self._next = max(k + 1, math.ceil(k * self._ratio))

    def with_end(self, last: Snapshot) -> tuple[Snapshot, ...]:
        """Return the snapshots and the run's last one."""
        kept = tuple(snapshot for snapshot in self.snapshots if snapshot.at < last.at)
        return (*kept, last)

    def state(self) -> dict[str, Any]:
        """Return what a resumed run must know besides the snapshots: how many of a record's are not just its end."""
        return {"kept": len(self.snapshots), "ratio": self._ratio, "next": self._next}

    def restore(self, state: Mapping[str, Any], snapshots: Sequence[Snapshot]) -> None:
        """Go on from what `state` returned and the snapshots of the record.

        Raises:
            ValueError: It is not what a keeper returns.
        """
        self.snapshots = list(snapshots[: stored_count(state["kept"], "kept", high=len(snapshots))])
        self._ratio = stored_number(state["ratio"], "ratio", 1.0, _LARGEST_RATIO)
        self._next = stored_count(state["next"], "next", high=10**300)


# A look at the clock costs less than a look at the terminal.
_SECONDS = 0.1

Show = Callable[[float, float], None]


@contextmanager
def progress_bar(shown: bool, title: str, total: float | None) -> Iterator[Show | None]:
    """Show a bar while the context lasts; yields what to call with the step (or time) and the loss, or None.

    Args:
        shown: Whether to show one.
        title: What it says before the bar.
        total: The last step or time, where it is known.

    Example:
        >>> with progress_bar(False, "gradient-descent", 10) as show:
        ...     print(show)
        None
    """
    if not shown:
        yield None
        return
    # Here, so that a run without a bar does not wait for the terminal's library.
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    place = TextColumn("{task.fields[place]}")
    columns = (TextColumn("{task.description}"), BarColumn(), place, TimeRemainingColumn())
    with Progress(*columns, TextColumn("loss {task.fields[loss]:.3e}"), transient=True) as bar:
        task = bar.add_task(title, total=total, loss=float("nan"), place=_place(0, total))
        last = -_SECONDS

        def show(at: float, loss: float) -> None:
            nonlocal last
            now = perf_counter()
            if now - last >= _SECONDS:
                last = now
                bar.update(task, completed=at, loss=loss, place=_place(at, total))

        yield show


def _place(at: float, total: float | None) -> str:
    """Return how far a run is: `3/100` steps, `0.25/0.5` of the time."""
    return "/".join(
        f"{number:,}" if isinstance(number, int) else f"{number:.3g}" for number in (at, total) if number is not None
    )
