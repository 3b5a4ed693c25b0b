"""Results as JSON lines: exactly one object a claim, appended as each is judged, so that an interruption loses nothing.

JSON has no infinities, so a float that is not finite is written as the string "inf", "-inf" or "nan"; Python's
`float` reads these back. A margin is the pair `[lo, hi]`, or null where there is none. A training run is an object with
the attributes of `TrainingRecord` as keys, its curves, conditions and rates objects in turn;
`ntk_deq.report.runs.store` reads it back.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ntk_deq.errors import DataError
from ntk_deq.files.atomic import append_line, replace_file
from ntk_deq.files.inputs import open_regular
from ntk_deq.language.interval import Margin
from ntk_deq.report.words import count_verdicts
from ntk_deq.verify.results import ClaimResult, ConclusionRecord, HypothesisRecord, RunInfo, Witness

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


def _hypothesis(record: HypothesisRecord) -> dict[str, Any]:
    return json_safe(record)


def _witness(witness: Witness | None) -> dict[str, Any] | None:
    return None if witness is None else json_safe(witness)


def result_to_dict(result: ClaimResult) -> dict[str, Any]:
    """Return a result as a JSON-safe object, verdict first, details after.

    Keys: `id, verdict, evidence, expected, as_expected, instances, met, tight, unsure, worst_margin, seed, seconds,
    reason`, then `title, where, tags, mutates, note, source, position, dtype, device, settings, estimated, refined,
    settled, exact, precision, searched, untested, support, replay, warnings, statement, hypotheses, conclusions,
    counterexample, tightest, nearest, findings, starts, runs, depths, problems, trace`. A conclusion holds at most
    MARGIN_LIMIT of its margins `[lo, hi, scale]`, the worst among them, and their number in `margins_total`. `runs` is
    a list, empty for a claim without training.

    Args:
        result: The verdict on one claim.

    Returns:
        A dict that `json.dumps(..., allow_nan=False)` accepts.
    """
    entry: dict[str, Any] = {
        "id": result.id,
        "verdict": result.verdict.value,
        "evidence": result.evidence.value,
        "expected": result.expected.value,
        "as_expected": result.as_expected,
    }
    for name in ("instances", "met", "tight", "unsure", "worst_margin", "seed", "seconds", "reason", "title", "where"):
        entry[name] = json_safe(getattr(result, name))
    for name in ("tags", "mutates", "note", "source", "position", "dtype", "device", "settings", "estimated"):
        entry[name] = json_safe(getattr(result, name))
    for name in ("refined", "settled", "exact", "precision", "searched", "untested", "support", "replay", "warnings"):
        entry[name] = json_safe(getattr(result, name))
    entry["statement"] = [
        {"section": line.section, "name": line.name, "text": line.text, "latex": line.latex}
        for line in result.statement
    ]
    entry["hypotheses"] = [_hypothesis(record) for record in result.hypotheses]
    entry["conclusions"] = [_conclusion(record) for record in result.conclusions]
    for name in ("counterexample", "tightest", "nearest"):
        entry[name] = _witness(getattr(result, name))
    entry["findings"] = json_safe(result.findings)
    entry["starts"] = json_safe(result.starts)
    entry["runs"] = json_safe(result.runs)
    entry["depths"] = json_safe(result.depths)
    entry["problems"] = json_safe(result.problems)
    entry["trace"] = result.trace
    return entry


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
