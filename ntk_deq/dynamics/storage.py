"""Records of training runs as files: arrays in an npz archive beside a JSON header, no pickle, written whole or not.

Checkpoints are such files, from which a run goes on after it was killed. With Ctrl-C a run ends between two steps,
with everything reached.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ntk_deq.dynamics.record import RunStatus, Series, Snapshot, TrainingRun
from ntk_deq.dynamics.recorders import TENSOR_KEY
from ntk_deq.errors import ArgumentError, DataError
from ntk_deq.files import write_whole
from ntk_deq.files.archives import ArrayArchive, open_archive, stored_count, stored_number, write_archive
from ntk_deq.package import __version__

FORMAT = 1
"""Number of the format; a file of another one is refused, since its fields may mean something else."""

_KIND = "ntk_deq training run"
_HEADER = "header"
_MOST = 2**40  # bytes of one array: records are not compressed, so that a file is as large as what it holds
DAMAGED = (TypeError, LookupError, ValueError, AttributeError, ArithmeticError, RuntimeError, MemoryError)
"""What a torn record runs into; an `ArchiveError` is a ValueError."""


class RecordError(DataError):
    """The file of a training run cannot be written or read."""


def save_run(run: TrainingRun, path: str | Path) -> None:
    """Write a record to a file, whole or not at all; see `TrainingRun.save`.

    The archive goes to a temporary name beside the file, is flushed to the disk, and then takes the file's place.

    Raises:
        RecordError: It cannot be written. A file that was there is as it was.

    Example:
        >>> save_run(run, "run.npz")  # doctest: +SKIP
    """
    path = _checked(path)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    fields = {item.name: getattr(run, item.name) for item in dataclasses.fields(run)}
    fields["snapshots"] = [dict(vars(snapshot)) for snapshot in run.snapshots]
    fields["series"] = {name: dict(vars(series)) for name, series in run.series.items()}
    fields["status"] = run.status.value
    header = {"kind": _KIND, "format": FORMAT, "version": __version__, "run": _packed(fields, arrays)}
    arrays[_HEADER] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    try:
        write_whole(path, partial(write_archive, arrays=arrays), durable=True)
    except OSError as error:
        raise RecordError(
            f"The record cannot be written to {path}: {error.strerror or error}. "
            "What was there is as it was, and the run is still in memory."
        ) from error


def load_run(path: str | Path) -> TrainingRun:
    """Read a record from a file; see `TrainingRun.load`.

    Raises:
        RecordError: There is no such file, it is damaged or no record, or it is of another format.

    Example:
        >>> load_run("missing.npz")
        Traceback (most recent call last):
            ...
        ntk_deq.dynamics.storage.RecordError: There is no record at missing.npz.
    """
    path = _checked(path)
    try:
        with open_archive(path) as archive:
            if archive.compressed:
                raise RecordError(f"The file {path} is no record of a training run: it is compressed.")
            text = archive.array(_HEADER, most=_MOST).tobytes().decode()
            header = json.loads(text)
            _check_header(header, path)
            fields = _unpacked(header["run"], archive)
        fields["status"] = RunStatus(fields["status"])
        fields["snapshots"] = tuple(Snapshot(**snapshot) for snapshot in fields["snapshots"])
        fields["series"] = {name: Series(**series) for name, series in fields["series"].items()}
        _check_fields(fields)
        return TrainingRun(**fields)
    except RecordError:
        raise
    except FileNotFoundError:
        raise RecordError(f"There is no record at {path}.") from None
    except OSError as error:
        raise RecordError(f"The record {path} cannot be read: {error.strerror or error}.") from error
    except DAMAGED as error:
        raise RecordError(
            f"The record {path} is damaged, cut off, or no record of a training run ({str(error)[:200]})."
        ) from error


def _check_header(header: Any, path: Path) -> None:
    if not isinstance(header, dict) or header.get("kind") != _KIND:
        raise RecordError(f"The file {path} is no record of a training run.")
    if header.get("format") != FORMAT or isinstance(header["format"], bool):
        found, version = f"{header.get('format')!r:.40}", f"{header.get('version')!s:.40}"
        raise RecordError(
            f"The record {path} has the format {found} (written by ntk_deq {version}), and ntk_deq {__version__} reads "
            f"format {FORMAT}. The file is left as it is: read it with the version that wrote it."
        )


def _checked(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix != ".npz":
        raise RecordError(f"The name of a record must end in .npz. Got {path}.")
    return path


def _check_fields(fields: Mapping[str, Any]) -> None:
    """Refuse what no run writes.

    Raises:
        ValueError: A field has a value of another kind.
    """
    for name in ("steps", "evaluations"):
        stored_count(fields[name], name)
    for name in ("end", "seconds", "forward_iterations", "adjoint_iterations"):
        stored_number(fields[name], name)
    if fields["step"] is not None:
        stored_number(fields["step"], "step")
    if fields["error"] is not None:
        stored_number(fields["error"], "error", nan=True)
    for name, kind in (("method", str), ("detail", str), ("settings", dict), ("whole", bool)):
        if not isinstance(fields.get(name, kind()), kind):
            raise ValueError(f"`{name}` must be of the type {kind.__name__}")
    if not isinstance(fields.get("continuation"), dict | None):
        raise ValueError("`continuation` must be names with values, or nothing")
    _check_snapshots(fields["snapshots"])
    for name, series in fields["series"].items():
        tensors = isinstance(series.at, Tensor) and isinstance(series.values, Tensor)
        if not tensors or series.at.ndim != 1 or series.values.ndim < 1 or len(series.at) != len(series.values):
            raise ValueError(f"the series {name!r} must be as many values as steps")
        if not series.at.dtype == series.values.dtype == torch.float64:
            raise ValueError(f"the series {name!r} must be of float64")
        ordered = bool((series.at[1:] > series.at[:-1]).all()) and bool(torch.isfinite(series.at).all())
        if not ordered or (len(series.at) and series.at[0] < 0):
            raise ValueError(f"the steps or times of the series {name!r} must be finite, >= 0 and increasing")


def _check_snapshots(snapshots: tuple[Snapshot, ...]) -> None:
    if not snapshots:
        raise ValueError("there is no snapshot")
    first, last = snapshots[0], -math.inf
    for snapshot in snapshots:
        if not isinstance(snapshot.parameters, dict) or not isinstance(snapshot.path, dict):
            raise ValueError("`parameters` and `path` of a snapshot must be names with values")
        kinds = {name: _kind(value) for name, value in snapshot.parameters.items()}
        if not kinds or kinds != {name: _kind(value) for name, value in first.parameters.items()}:
            raise ValueError("the parameters of every snapshot must be tensors of the same kinds")
        if snapshot.path.keys() != kinds.keys():
            raise ValueError("a snapshot must have the length of the path of every parameter, and of no other")
        stored_number(snapshot.loss, "loss", -math.inf, nan=True)
        for name, value in (("path_length", snapshot.path_length), *snapshot.path.items()):
            stored_number(value, name, nan=True)
        if stored_number(snapshot.at, "at") <= last:
            raise ValueError("the snapshots must be in the order of their steps or times")
        last = snapshot.at


def _kind(value: object) -> tuple[object, ...]:
    """Return shape, type and device of a parameter.

    Raises:
        ValueError: It is none.
    """
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise ValueError("a parameter must be a tensor of floats")
    return tuple(value.shape), value.dtype, value.device


def _packed(value: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    """Return plain values for JSON, with the tensors put into `arrays`."""
    if isinstance(value, Tensor):
        name = f"t{len(arrays)}"
        arrays[name] = value.detach().cpu().contiguous().numpy()
        return {TENSOR_KEY: name, "device": str(value.device)}
    if isinstance(value, Mapping):
        if TENSOR_KEY in value:
            raise RecordError(f"Nothing in a record can be called {TENSOR_KEY!r}, which stands for tensors in files.")
        for key in value:
            if not isinstance(key, str):
                raise RecordError(f"Names in a record must be texts. Got {key!r}.")
        return {key: _packed(item, arrays) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_packed(item, arrays) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise RecordError(f"A record can hold plain values and tensors only. Got {type(value).__name__}.")


def _unpacked(value: Any, archive: ArrayArchive) -> Any:
    if isinstance(value, dict):
        if TENSOR_KEY in value:
            return _on_device(torch.from_numpy(archive.array(value[TENSOR_KEY], most=_MOST)), value["device"])
        return {key: _unpacked(item, archive) for key, item in value.items()}
    if isinstance(value, list):
        return [_unpacked(item, archive) for item in value]
    return value


def _on_device(value: Tensor, device: str) -> Tensor:
    """Put a tensor where it was; on the CPU where this machine has no such device."""
    kind, _, index = device.partition(":")
    known = kind == "cuda" and index.isdecimal() and torch.cuda.is_available()
    return value.to(device) if known and int(index) < torch.cuda.device_count() else value


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; the run goes on."""


def check_interval(seconds: object) -> None:
    """Refuse a time between two checkpoints that is none.

    Args:
        seconds: What was given as `checkpoint_every`.

    Raises:
        ArgumentError: It is no number >= 0.

    Example:
        >>> check_interval(-1)
        Traceback (most recent call last):
            ...
        ntk_deq.errors.ArgumentError: `checkpoint_every` must be a number of seconds >= 0. Got -1.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise ArgumentError(f"`checkpoint_every` must be a number of seconds >= 0. Got {seconds!r}.")


def fresh_checkpoint(path: str | Path) -> Callable[[TrainingRun], None]:
    """Return what writes checkpoints to a file that does not exist yet, since it may hold another run's results.

    Raises:
        ArgumentError: The file exists, its folder does not, or its name does not end in `.npz`.

    Example:
        >>> write = fresh_checkpoint("new.npz")
    """
    if not str(path).endswith(".npz"):
        raise ArgumentError(f"`checkpoint` must be the name of an .npz file. Got {str(path)!r}.")
    if os.path.exists(path):
        raise ArgumentError(
            f"`checkpoint` must be a file that does not exist yet. Got {str(path)!r}, which is there: take its run up "
            "with `resume`, or choose another name."
        )
    if not os.path.isdir(os.path.dirname(path) or "."):
        raise ArgumentError(f"`checkpoint` must lie in a folder that exists. Got {str(path)!r}.")
    return checkpoint_to(path)


def checkpoint_to(path: str | Path) -> Callable[[TrainingRun], None]:
    """Return what writes checkpoints to a file; a full disk is no reason to give up the run.

    Example:
        >>> write = checkpoint_to("run.npz")
    """

    def write(run: TrainingRun) -> None:
        try:
            save_run(run, path)
        except DataError as error:
            warnings.warn(
                f"No checkpoint at step {run.end:g}. {error} The run goes on.", CheckpointWarning, stacklevel=2
            )

    return write


class Interruption:
    """Whether the run has been asked to end."""

    def __init__(self) -> None:
        self.asked = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Ask the run to end after this step; asked twice, stop where we are."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def deferred_interrupt() -> Iterator[Interruption]:
    """Turn the first Ctrl-C inside the context into a flag, so that no step is left half done.

    Only in the main thread, and only where nobody else handles the signal.

    Example:
        >>> with deferred_interrupt() as interruption:
        ...     interruption.asked
        False
    """
    interruption = Interruption()
    plain = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not (plain and threading.current_thread() is threading.main_thread()):
        yield interruption
        return
    signal.signal(signal.SIGINT, interruption.ask)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
