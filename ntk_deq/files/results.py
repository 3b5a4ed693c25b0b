"""Stored results: numbers that an experiment wrote, with who wrote them. Figures draw them; claims read them.

A file is JSON with two keys. `producer` names the experiment, its arguments, the version of this package and the
SHA-256 of the script. `values` holds numbers, and lists of numbers nested up to three deep; `null` is a number that is
missing, as a loss where no equilibrium was found. No code runs.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ntk_deq.errors import ArgumentError
from ntk_deq.files import open_regular, write_whole
from ntk_deq.package import __version__

LARGEST_FILE = 2_000_000
"""Bytes that a file of results may have."""

DEEPEST = 3
"""How deep lists may be nested."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Producer:
    """Who wrote results.

    Attributes:
        name: The experiment, as `python -m NAME` runs it.
        arguments: Its arguments.
        version: The version of this package.
        sha256: Of the script.
    """

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    version: str = __version__
    sha256: str = ""

    @classmethod
    def of(cls, name: str, script: str | Path, arguments: Mapping[str, Any]) -> Producer:
        """Return the producer that a script is.

        Args:
            name: As it is run.
            script: Its file.
            arguments: What it was called with.
        """
        return cls(name, dict(arguments), __version__, hashlib.sha256(Path(script).read_bytes()).hexdigest())


@dataclass(frozen=True)
class StoredResults:
    """What a file of results holds.

    Attributes:
        producer: Who wrote it.
        values: Numbers, or nested lists of numbers of one shape, by name.
        sha256: Of the file.
    """

    producer: Producer
    values: dict[str, Any]
    sha256: str


def write_results(path: str | Path, producer: Producer, values: Mapping[str, Any]) -> None:
    """Write results, whole or not at all; missing folders are made.

    Args:
        path: The file.
        producer: Who writes.
        values: Numbers and nested lists of numbers by name.

    Raises:
        ArgumentError: A name or value is not allowed, or all together are too long.
    """
    for name, value in values.items():
        problem = _problem(name, value)
        if problem:
            raise ArgumentError(f"{problem} (`{name}` of {path})")
    text = json.dumps({"producer": asdict(producer), "values": dict(values)}, indent=None, separators=(",", ":"))
    # One name a line, so that a change can be read.
    text = re.sub(r'(?<=[\]\d}]),(?="[A-Za-z])', ",\n", text) + "\n"
    if len(text) > LARGEST_FILE:
        raise ArgumentError(f"Results must have at most {LARGEST_FILE} bytes. Got {len(text)} for {path}.")
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, text.encode())


def read_results(path: str | Path) -> StoredResults:
    """Read results strictly.

    Args:
        path: The file.

    Raises:
        ArgumentError: It is too long, no JSON of this form, or holds something else than finite numbers; the message
            says what.
        OSError: It cannot be read.
    """
    target = Path(path)
    with open_regular(target) as file:
        raw = file.read(LARGEST_FILE + 1)
    if len(raw) > LARGEST_FILE:
        raise ArgumentError(f"Results must have at most {LARGEST_FILE} bytes. {target} has more.")
    try:
        found = json.loads(raw, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{target} is no file of results: {error}") from error
    if not isinstance(found, dict) or set(found) != {"producer", "values"}:
        raise ArgumentError(f"{target} must hold `producer` and `values`, and nothing else.")
    values = found["values"]
    if not isinstance(values, dict) or not values:
        raise ArgumentError(f"`values` of {target} must be numbers by name, at least one.")
    for name, value in values.items():
        problem = _problem(name, value)
        if problem:
            raise ArgumentError(f"{problem} (`{name}` of {target})")
    return StoredResults(_producer(found["producer"], target), values, hashlib.sha256(raw).hexdigest())


def _producer(given: object, target: Path) -> Producer:
    wanted = {"name": str, "arguments": dict, "version": str, "sha256": str}
    if not isinstance(given, dict) or set(given) != set(wanted):
        raise ArgumentError(f"`producer` of {target} must hold {', '.join(wanted)}, and nothing else.")
    for name, kind in wanted.items():
        if not isinstance(given[name], kind):
            raise ArgumentError(f"`{name}` of the producer in {target} must be a {kind.__name__}. Got {given[name]!r}.")
    if not _HASH.fullmatch(given["sha256"]):
        raise ArgumentError(f"`sha256` of the producer in {target} must be 64 hexadecimal digits.")
    return Producer(**given)


def shape_of(value: Any) -> tuple[int, ...] | None:
    """Return the shape of a number or nested lists of numbers, None among them; None: ragged, or something else.

    Example:
        >>> shape_of(3), shape_of([[1, 2.5], [3, 4]]), shape_of([[1], [2, 3]]), shape_of(["a"])
        ((), (2, 2), None, None)
    """
    if isinstance(value, bool):
        return None
    if value is None:
        return ()
    if isinstance(value, int | float):
        return () if abs(value) < 1e300 else None  # nor is nan
    if not isinstance(value, list) or not value:
        return None
    if {*map(type, value)} <= _NUMBERS:
        return (len(value),) if all(each is None or abs(each) < 1e300 for each in value) else None
    shapes = {shape_of(each) for each in value}
    (first,) = shapes if len(shapes) == 1 else (None,)
    return None if first is None else (len(value), *first)


_NUMBERS = {int, float, type(None)}

LARGEST_CONSTANT = 256
"""Entries of a result that a claim can name."""


def matrix_text(value: Any) -> str | None:
    r"""Return a result as a constant of the claim language, a list as a column; None: it is none that a claim can name.

    It has at most two axes and 256 entries, and no entry is missing.

    Example:
        >>> matrix_text(0.5), matrix_text([1.0, -2.5]), matrix_text([[1, 2], [3, 4]]), matrix_text([None])
        ('0.5', '[1.0; -2.5]', '[1, 2; 3, 4]', None)
    """
    shape = shape_of(value)
    if shape is None or len(shape) > 2 or math.prod(shape) > LARGEST_CONSTANT:
        return None
    rows = [[value]] if not shape else [row if isinstance(row, list) else [row] for row in value]
    if any(entry is None for row in rows for entry in row):
        return None
    text = "; ".join(", ".join(map(repr, row)) for row in rows)
    return f"[{text}]" if shape else text


def _problem(name: object, value: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "A name of a result must be letters, digits and underscores, a letter first."
    shape = shape_of(value)
    if shape is None:
        return "A result must be a finite number or null, or lists of them, nested evenly and not empty."
    return f"Lists of results may be nested {DEEPEST} deep." if len(shape) > DEEPEST else ""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")
