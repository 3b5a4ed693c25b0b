"""The errors of the package: one root, and one class for each way of going wrong."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from types import UnionType
from typing import Final


class NtkDeqError(Exception):
    """Root of every error that this package raises on purpose."""


class ArgumentError(NtkDeqError, ValueError):
    """An argument has a value outside what is allowed.

    The message says what, where, what is allowed and what came, as in
    "`step` of gradient-descent must be a number > 0. Got -0.1."
    """


class DataError(NtkDeqError, ValueError):
    """A data file or data set cannot be used: missing, of another format, or with NaN or Inf in it."""


class LimitError(NtkDeqError):
    """An object would exceed a limit on memory, depth or time."""


class EquilibriumError(NtkDeqError):
    """A fixed point (forward or adjoint) was asked for and not found; `result` holds what was reached."""

    def __init__(self, message: str, result: object = None) -> None:
        super().__init__(message)
        self.result = result


def nearest_name(name: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed name closest in spelling to `name`, or None where none is close.

    Example:
        >>> nearest_name("sigma_mim", ["sigma_min", "sigma_max", "norm"])
        'sigma_min'
    """
    found = difflib.get_close_matches(name, list(allowed), n=1, cutoff=0.6)
    return found[0] if found else None


def name_hint(name: object, allowed: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: a question where an allowed one is close, or nothing.

    Example:
        >>> name_hint("nrom", ["norm", "fro"]), name_hint("q", ["norm", "fro"])
        (" Did you mean 'norm'?", '')
    """
    near = nearest_name(str(name), allowed)
    return f" Did you mean {near!r}?" if near else ""


def check_whole(value: object, name: str, where: str, least: int = 1) -> None:
    """Refuse what is no whole number from `least` on.

    Args:
        value: What was given.
        name: The argument.
        where: Whose argument it is.
        least: The least that is allowed.

    Raises:
        ArgumentError: It is none.

    Example:
        >>> check_whole(0, "steps", "trajectory")
        Traceback (most recent call last):
            ...
        ntk_deq.errors.ArgumentError: `steps` of trajectory must be an integer >= 1. Got 0.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ArgumentError(f"`{name}` of {where} must be an integer >= {least}. Got {value!r:.60}.")


def is_number(value: object) -> bool:
    """Say whether a value is a plain number: no truth value, no tensor, no integer that float64 cannot hold.

    Example:
        >>> is_number(0.5), is_number(True), is_number(10**400)
        (True, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) <= sys.float_info.max


def check_instance(value: object, kind: type | UnionType, name: str, where: str, what: str) -> None:
    """Refuse what is of another kind.

    Args:
        value: What was given.
        kind: Its class, or several.
        name: The argument.
        where: Whose argument it is.
        what: Such a value, in words.

    Raises:
        ArgumentError: It is of another one.

    Example:
        >>> check_instance(1, dict, "depth", "system", "a mapping")
        Traceback (most recent call last):
            ...
        ntk_deq.errors.ArgumentError: `depth` of system must be a mapping. Got 1.
    """
    if not isinstance(value, kind):
        raise ArgumentError(f"`{name}` of {where} must be {what}. Got {value!r:.60}.")


def shortened(text: str) -> str:
    """Return a message fit for a terminal: what a stranger can make thousands of characters long is cut, and said so.

    Example:
        >>> shortened("unknown name `" + "q" * 500 + "`.")[-45:]
        'qqqqqqqqqqqqqqqqqq… (383 characters left out)'
    """
    text = _LONG_WORD.sub(lambda word: _cut(word[0], _WORD_SHOWN), text)
    return _cut(text, _SHOWN) if len(text) > _SHOWN else text


def _cut(text: str, most: int) -> str:
    return f"{text[:most]}… ({len(text) - most} characters left out)"


@dataclass(slots=True, unsafe_hash=True)  # not frozen, which would cost three times as much
class Position:
    """A place in a file; line and column count from 1."""

    file: Final[str]
    line: Final[int]
    column: Final[int]

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong in a claim file.

    Attributes:
        position: Where.
        message: What is wrong, what is allowed and what came.
        claim: The id of the claim it belongs to, or None for the file as a whole.
        source: The source text of the expression, where it is one, for a caret display.
        span: Offsets (start, stop) in `source` to underline.
        hint: The nearest valid spelling or another remedy.
    """

    position: Position
    message: str
    claim: str | None = None
    source: str | None = None
    span: tuple[int, int] | None = None
    hint: str | None = None


class ClaimFileError(NtkDeqError, ValueError):
    """A claim file as a whole is unusable; `problems` say where and why."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(f"{p.position}: {p.message}" for p in problems))
        self.problems = problems


class ExpressionError(NtkDeqError, ValueError):
    """An expression does not parse or does not type-check.

    Attributes:
        message: What is wrong.
        span: Offsets (start, stop) in the expression's text.
        hint: The nearest valid spelling or another remedy, or None.
    """

    def __init__(self, message: str, span: tuple[int, int], hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.hint = hint


_LONG_WORD = re.compile(r"\S{401,}")  # longer than the path of any file that a person would look for
_WORD_SHOWN, _SHOWN = 120, 2000
