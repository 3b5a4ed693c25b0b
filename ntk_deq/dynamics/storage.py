"""Records of training runs as files: arrays in an npz archive beside a JSON header, no pickle, written whole or not."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import secrets
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ntk_deq.dynamics.record import Series, Snapshot, TrainingRun
from ntk_deq.dynamics.recorders import TENSOR_KEY
from ntk_deq.dynamics.run_inputs import is_number
from ntk_deq.dynamics.status import RunStatus
from ntk_deq.errors import DataError
from ntk_deq.version import __version__

FORMAT = 1
"""Number of the format; a file of another one is refused, since its fields may mean something else."""

_KIND = "ntk_deq training run"
_HEADER = "header"
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    KeyError,
    TypeError,
    ValueError,
    NotImplementedError,
    AttributeError,
    RecursionError,
    MemoryError,
)


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
        _write_whole(path, lambda stream: np.savez(stream, **arrays))  # type: ignore[arg-type]
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
    if not path.is_file():
        raise RecordError(f"There is no record at {path}.")
    try:
        # Opened here, since NumPy forgets to close a file that is no archive.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.zip.infolist()):
                raise RecordError(f"The file {path} is no record of a training run: it is compressed.")
            header = json.loads(archive[_HEADER].tobytes().decode())
            _check_header(header, path)
            fields = _unpacked(header["run"], archive)
        return _run(fields)
    except RecordError:
        raise
    except OSError as error:
        raise RecordError(f"The record {path} cannot be read: {error.strerror or error}.") from error
    except _DAMAGED as error:
        raise RecordError(
            f"The record {path} is damaged, cut off, or no record of a training run ({error})."
        ) from error


def _check_header(header: Any, path: Path) -> None:
    if not isinstance(header, dict) or header.get("kind") != _KIND:
        raise RecordError(f"The file {path} is no record of a training run.")
    if header.get("format") != FORMAT or isinstance(header["format"], bool):
        raise RecordError(
            f"The record {path} has the format {header.get('format')!r} (written by ntk_deq {header.get('version')}), "
            f"and ntk_deq {__version__} reads format {FORMAT}. The file is left as it is: read it with the version "
            "that wrote it."
        )


def _checked(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix != ".npz":
        raise RecordError(f"The name of a record must end in .npz. Got {path}.")
    return path


def _run(fields: dict[str, Any]) -> TrainingRun:
    fields["status"] = RunStatus(fields["status"])
    fields["snapshots"] = tuple(Snapshot(**snapshot) for snapshot in fields["snapshots"])
    fields["series"] = {name: Series(**series) for name, series in fields["series"].items()}
    _check_fields(fields)
    return TrainingRun(**fields)


def _check_fields(fields: Mapping[str, Any]) -> None:
    """Refuse what no run writes.

    Raises:
        ValueError: A field has a value of another kind.
    """
    for name in ("steps", "end", "evaluations", "seconds", "forward_iterations", "adjoint_iterations"):
        if not is_number(fields[name]) or math.isnan(fields[name]):
            raise ValueError(f"`{name}` must be a number")
    for name in ("step", "error"):
        if fields[name] is not None and not is_number(fields[name]):
            raise ValueError(f"`{name}` must be a number or nothing")
    if not fields["snapshots"]:
        raise ValueError("there is no snapshot")
    for snapshot in fields["snapshots"]:
        numbers = (snapshot.at, snapshot.loss, snapshot.path_length, *snapshot.path.values())
        if not all(map(is_number, numbers)) or not all(isinstance(v, Tensor) for v in snapshot.parameters.values()):
            raise ValueError("a snapshot holds something else than numbers and tensors")
    for name, series in fields["series"].items():
        tensors = isinstance(series.at, Tensor) and isinstance(series.values, Tensor)
        if not tensors or series.at.ndim != 1 or len(series.at) != len(series.values):
            raise ValueError(f"the series {name!r} must be as many values as steps")


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


def _unpacked(value: Any, archive: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, dict):
        if TENSOR_KEY in value:
            return _on_device(torch.from_numpy(np.array(archive[value[TENSOR_KEY]])), value["device"])
        return {key: _unpacked(item, archive) for key, item in value.items()}
    if isinstance(value, list):
        return [_unpacked(item, archive) for item in value]
    return value


def _on_device(value: Tensor, device: str) -> Tensor:
    """Put a tensor where it was; on the CPU where this machine has no such device."""
    kind, _, index = device.partition(":")
    known = kind == "cuda" and index.isdecimal() and torch.cuda.is_available()
    return value.to(device) if known and int(index) < torch.cuda.device_count() else value


def _write_whole(path: Path, write: Callable[[io.BufferedWriter], None]) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        with partial.open("wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if os.name != "posix":  # a folder cannot be opened elsewhere
        return
    # The new name must be on the disk, too, before a power failure.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
