"""Results as JSON lines: exactly one object a claim, appended as each is judged, so that an interruption loses nothing.

JSON has no infinities, so a float that is not finite is written as the string "inf", "-inf" or "nan"; Python's
`float` reads these back. A margin is the pair `[lo, hi]`, or null where there is none. A training run is an object with
the attributes of `TrainingRecord` as keys, its curves, conditions and rates objects in turn;
`ntk_deq.report.jsonl` reads it back.

Training runs read back from `results.jsonl`, each value checked: a file may be old, cut off or edited by hand.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from ntk_deq.errors import DataError, nearest_name
from ntk_deq.files import append_line, open_regular, replace_file
from ntk_deq.language.types import Margin
from ntk_deq.report import count_verdicts
from ntk_deq.verify.results import ClaimResult, ConclusionRecord, RunInfo, TrainingRecord

# The full list of margins can run to thousands; a plot or a spot check needs no more than this.
MARGIN_LIMIT = 200


def json_safe(value: Any) -> Any:
    """Return `value` as JSON takes it: non-finite floats as strings, tuples as lists, dataclasses as objects.

    Example:
        >>> json_safe((1.0, math.inf, {"a": None}))
        [1.0, 'inf', {'a': None}]
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Margin):
        return [json_safe(value.lo), json_safe(value.hi)]
    if isinstance(value, Mapping):
        return {str(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_safe(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: json_safe(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return str(value)


def _kept_margins(margins: tuple[tuple[float, float, float], ...]) -> list[tuple[float, float, float]]:
    """Return at most MARGIN_LIMIT margins, evenly spaced in order, the smallest always among them."""
    if len(margins) <= MARGIN_LIMIT:
        return list(margins)
    worst = min(range(len(margins)), key=lambda i: margins[i][0])
    step = len(margins) / (MARGIN_LIMIT - 1)
    kept = {int(i * step) for i in range(MARGIN_LIMIT - 1)} | {worst}
    return [margins[i] for i in sorted(kept)]


def _conclusion(record: ConclusionRecord) -> dict[str, Any]:
    entry = json_safe(dataclasses.replace(record, margins=()))
    entry["margins"] = json_safe(_kept_margins(record.margins))
    entry["margins_total"] = len(record.margins)
    return entry


def result_to_dict(result: ClaimResult) -> dict[str, Any]:
    """Return a result as a JSON-safe object, verdict first, details after.

    Keys: `id, verdict, evidence, expected, as_expected, instances, met, tight, unsure, worst_margin, seed, seconds,
    reason`, then `title, where, tags, mutates, note, source, position, dtype, device, settings, estimated, refined,
    settled, exact, precision, searched, untested, support, replay, warnings, statement, hypotheses, conclusions,
    counterexample, tightest, nearest, undecided, findings, starts, runs, depths, problems, trace`. A conclusion holds
    at most MARGIN_LIMIT of its margins `[lo, hi, scale]`, the worst among them, and their number in `margins_total`.
    `runs` is a list, empty for a claim without training.

    Args:
        result: The verdict on one claim.

    Returns:
        A dict that `json.dumps(..., allow_nan=False)` accepts.
    """
    entry = {name: json_safe(getattr(result, name)) for name in _FACTS}
    entry["statement"] = [
        {"section": line.section, "name": line.name, "text": line.text, "latex": line.latex}
        for line in result.statement
    ]
    entry["hypotheses"] = json_safe(result.hypotheses)
    entry["conclusions"] = [_conclusion(record) for record in result.conclusions]
    return entry | {name: json_safe(getattr(result, name)) for name in _DETAILS}


_FACTS = tuple(
    "id verdict evidence expected as_expected instances met tight unsure worst_margin seed seconds reason title where "
    "tags mutates note source position dtype device settings estimated refined settled exact precision searched "
    "untested support replay warnings".split()
)
_DETAILS = tuple("counterexample tightest nearest undecided findings starts runs depths problems trace".split())


def append_result(path: str | Path, result: ClaimResult) -> None:
    """Append one result to a JSON-lines file and push it to the disk, whole or not at all.

    Args:
        path: The file; see `append_line`.
        result: The verdict on one claim.

    Raises:
        OSError: It cannot be written.
    """
    append_line(path, json.dumps(result_to_dict(result), ensure_ascii=True, allow_nan=False) + "\n")


class CutOffError(DataError):
    """The last line of a file of results is not whole, as a run leaves it that was killed while writing."""


def result_lines(path: str | Path) -> Iterator[tuple[int, dict[str, Any] | DataError]]:
    """Yield (line number, its object) of a JSON-lines file; in place of an object, the error of a line without one.

    The error says file and line; that of a last line that is cut off is a `CutOffError`.

    Raises:
        OSError: There is no such file, it cannot be read, or it is no regular file.
    """
    with open_regular(Path(path)) as stream:
        for number, line in enumerate(stream, start=1):
            entry = _object(line, f"{path}:{number}")
            if line.endswith(b"\n"):
                yield number, entry
            elif line.strip():
                if isinstance(entry, DataError):
                    entry = CutOffError(f"{path}:{number}: the line is cut off, as a run that was killed leaves it.")
                yield number, entry


def _object(line: bytes, place: str) -> dict[str, Any] | DataError:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        return DataError(f"{place}: not a JSON object: {error}.")
    if not isinstance(entry, dict):
        return DataError(f"{place}: a result must be a JSON object. Got {type(entry).__name__}.")
    return entry


def read_results(path: str | Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON-lines file; an unfinished last line, from a killed run, is left out.

    Raises:
        DataError: Where any other line is not a JSON object; the message gives file and line.
    """
    entries = []
    for _, entry in result_lines(path):
        if isinstance(entry, dict):
            entries.append(entry)
        elif not isinstance(entry, CutOffError):
            raise entry
    return entries


def write_run_info(
    path: str | Path, info: RunInfo, results: Sequence[ClaimResult] = (), *, exit_code: int | None = None
) -> None:
    """Write what a whole run was, with counts of verdicts, to a JSON file of its own (`run.json`).

    Args:
        path: The file; an earlier one is replaced at once, never half-written.
        info: The run.
        results: Every result of the run.
        exit_code: The exit code of the run, where it is known.
    """
    entry = json_safe(info)
    entry["claims"] = len(results)
    entry["verdicts"] = {verdict.value: count for verdict, count in count_verdicts(results).items()}
    entry["unexpected"] = [result.id for result in results if not result.as_expected]
    entry["exit_code"] = exit_code
    replace_file(path, json.dumps(entry, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


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
    record: TrainingRecord = _read_object(run, TrainingRecord, place)
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


def _read_object(value: object, kind: type, place: str) -> Any:
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
        return _read_object(value, kind, place)  # type: ignore[arg-type]
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
