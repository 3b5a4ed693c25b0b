"""Training runs read back from `results.jsonl`, each value checked: a file may be old, cut off or edited by hand."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from ntk_deq.errors import DataError, nearest_name
from ntk_deq.report.jsonl import result_lines
from ntk_deq.verify.training.summary import TrainingRecord

_WORDS = {float: "a number", int: "a whole number", str: "a text", bool: "true or false"}


@dataclasses.dataclass(frozen=True)
class StoredRuns:
    """The training runs of one stored claim.

    Attributes:
        id: The claim's id.
        title: Its title.
        tags: Its tags.
        records: Its runs, at least one.
    """

    id: str
    title: str
    tags: tuple[str, ...]
    records: tuple[TrainingRecord, ...]


def training_records(entry: Mapping[str, Any]) -> tuple[TrainingRecord, ...]:
    """Return the training runs of one object of `results.jsonl`; a claim without training has none.

    Args:
        entry: The object, as `ntk_deq.report.jsonl.read_results` gives it.

    Raises:
        DataError: Something is missing, unknown or of another type than is written; says which run and key.

    Example:
        >>> training_records({"id": "R.L5.1", "runs": []})
        ()
    """
    if "runs" not in entry:
        raise DataError("`runs` is missing: the file is from before training runs were stored. Judge the claims again.")
    runs = entry["runs"]
    if not isinstance(runs, list):
        raise _wrong("runs", "a list", runs)
    return tuple(_record(run, f"runs[{number}]") for number, run in enumerate(runs))


def stored_runs(path: str | Path) -> tuple[list[StoredRuns], list[DataError]]:
    """Return the claims with training runs in a file of results, in order, and what of the file cannot be used.

    Args:
        path: A `results.jsonl`, or the folder that holds it.

    Returns:
        The claims, and an error for each damaged line that says file and line; lines from before runs were stored
        share one error.

    Raises:
        DataError: There is no such file, or it cannot be read.
    """
    file = Path(path) / "results.jsonl" if Path(path).is_dir() else Path(path)
    found: list[StoredRuns] = []
    errors: list[DataError] = []
    older: list[int] = []
    try:
        for number, entry in result_lines(file):
            if isinstance(entry, DataError):
                errors.append(entry)
            elif "runs" not in entry and "id" in entry:
                older.append(number)
            else:
                _read(entry, f"{file}:{number}", found, errors)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}.") from error
    if older:
        where = f"line {older[0]}" if len(older) == 1 else f"{len(older)} lines, the first one line {older[0]}"
        message = f"{file}: no `runs` in {where}: from before training runs were stored. Judge these claims again."
        errors.append(DataError(message))
    return found, errors


def _read(entry: dict[str, Any], place: str, found: list[StoredRuns], errors: list[DataError]) -> None:
    """Add a claim to `found` where it has runs, or what is wrong with it to `errors`."""
    try:
        claim = _value(entry.get("id"), str, "id")
        records = training_records(entry)
        title, tags = (
            _value(entry.get("title", ""), str, "title"),
            _value(entry.get("tags", []), tuple[str, ...], "tags"),
        )
    except DataError as error:
        errors.append(DataError(f"{place}: {error}"))
        return
    if records:
        found.append(StoredRuns(claim, title, tags, records))


def _record(run: object, place: str) -> TrainingRecord:
    record: TrainingRecord = _object(run, TrainingRecord, place)
    steps = len(record.at)
    lengths = {"loss": record.loss, "path_length": record.path_length}
    lengths |= {f"displacement.{name}": values for name, values in record.displacement.items()}
    if record.instantaneous:
        lengths["instantaneous"] = record.instantaneous
    for number, curve in enumerate(record.curves):
        lengths |= {f"curves[{number}].{name}": getattr(curve, name) for name in ("low", "high", "bound")}
    for name, values in lengths.items():
        if len(values) != steps:
            raise DataError(
                f"`{place}.{name}` must have a value for each of the {steps} judged steps. Got {len(values)}."
            )
    if not steps:
        raise DataError(f"`{place}.at` must have at least one judged step. Got none.")
    _check_steps(record, place)
    return record


def _check_steps(record: TrainingRecord, place: str) -> None:
    """Refuse steps that no run has."""
    for number, (before, at) in enumerate(zip((-math.inf, *record.at), record.at, strict=False)):
        if not (0 <= at < math.inf and at > before):
            raise _wrong(f"{place}.at[{number}]", "a finite step or time >= 0, later than the one before", at)
    if record.step is not None and not 0 < record.step < math.inf:
        raise _wrong(f"{place}.step", "a number > 0", record.step)
    for number, curve in enumerate(record.curves):
        if curve.sense not in ("<=", ">="):
            raise _wrong(f"{place}.curves[{number}].sense", "`<=` or `>=`", curve.sense)


def _object(value: object, kind: type, place: str) -> Any:
    """Return a dataclass from its object; a key that the class has a default for may be missing."""
    if not isinstance(value, dict):
        raise _wrong(place, "an object", value)
    hints = get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name in value:
        if name not in fields:
            near = nearest_name(str(name), fields)
            hint = f" Did you mean `{near}`?" if near else ""
            raise DataError(f"`{place}` has an unknown key `{name}`: damaged, or from a newer version.{hint}")
    given = {}
    for name, field in fields.items():
        if name in value:
            given[name] = _value(value[name], hints[name], f"{place}.{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise DataError(f"`{place}.{name}` is missing.")
    return kind(**given)


def _value(value: object, kind: Any, place: str) -> Any:
    """Return a JSON value as a field of type `kind`; numbers may be written as "inf", "-inf" or "nan"."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if value is None else _value(value, inner[0], place)
    if origin is tuple:
        if not isinstance(value, list):
            raise _wrong(place, "a list", value)
        return tuple(_value(item, inner[0], f"{place}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise _wrong(place, "an object", value)
        return {str(key): _value(item, inner[1], f"{place}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(kind):
        return _object(value, kind, place)  # type: ignore[arg-type]
    if kind is float and (type(value) in (int, float) or value in ("inf", "-inf", "nan")):
        try:
            return float(value)  # type: ignore[arg-type]
        except OverflowError:
            raise _wrong(place, "a number of float64", value) from None
    if type(value) is kind and kind is not float:
        return value
    raise _wrong(place, _WORDS[kind], value)


def _wrong(place: str, wanted: str, got: object) -> DataError:
    shown = repr(got)
    return DataError(f"`{place}` must be {wanted}. Got {shown if len(shown) <= 40 else shown[:37] + '...'}.")
