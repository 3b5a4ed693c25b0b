"""Select claims by an expression over their ids and tags: ids, patterns and words with and, or, not, parentheses.

Load a claim file and select from it; every way of failing is said and becomes an exit code.
"""

from __future__ import annotations

import argparse
import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from rich.console import Console

from ntk_deq.claims.claim import Claim, IllFormed, Suite
from ntk_deq.claims.load import load_suite
from ntk_deq.cli import EXIT_EMPTY, EXIT_USAGE, refused
from ntk_deq.errors import ArgumentError, ClaimFileError
from ntk_deq.language.declaration import Setting
from ntk_deq.package import PACKAGES, install_line, is_installed
from ntk_deq.report.check import render_problems
from ntk_deq.report.console import say

_TOKEN = re.compile(r"\s*([()]|[^\s()]+)")
MAX_TOKENS = 200  # a person writes a handful; the bound keeps the recursion below far from the interpreter's limit


class Selectable(Protocol):
    """What can be selected: a claim, or what is stored of one."""

    @property
    def id(self) -> str:
        """The claim's id."""

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags."""


Predicate = Callable[[Selectable], bool]


def select_claims(claims: Sequence[Claim | IllFormed], expression: str | None) -> list[Claim | IllFormed]:
    """Return the claims that an expression selects, in order.

    Raises:
        ArgumentError: The expression cannot be read.
    """
    if expression is None:
        return list(claims)
    predicate = compile_selection(expression, [claim.id for claim in claims])
    return [claim for claim in claims if predicate(claim)]


def compile_selection(expression: str, ids: Iterable[str]) -> Predicate:
    """Turn a selection expression into a predicate.

    A word that is the id of a claim selects that claim alone; one with `*`, `?` or `[` selects by whole ids and tags,
    as a shell does with names of files; any other word selects where it occurs in an id or a tag. Upper and lower case
    are alike.

    Args:
        expression: Words with `and`, `or`, `not` and parentheses.
        ids: The ids of all claims that there are to select from.

    Raises:
        ArgumentError: The expression cannot be read.

    Example:
        >>> selected = compile_selection("L3 and not (slow or R.L3.2*)", ["R.L3.1", "R.L3.2", "R.L3.2b"])
    """
    tokens = _TOKEN.findall(expression)
    if not tokens or len(tokens) > MAX_TOKENS:
        raise ArgumentError(f"`-k` takes 1 to {MAX_TOKENS} words, `and`, `or`, `not`, parentheses. Got {expression!r}.")
    reader = _Reader(tokens, expression, frozenset(name.casefold() for name in ids))
    predicate = reader.either()
    if reader.next is not None:
        raise reader.unreadable()
    return predicate


class _Reader:
    """Reads tokens from left to right; `or` binds loosest, then `and`, then `not`."""

    def __init__(self, tokens: list[str], whole: str, ids: frozenset[str]) -> None:
        self._tokens, self._whole, self._ids = tokens, whole, ids
        self._place = 0

    @property
    def next(self) -> str | None:
        """The token that comes next, or None at the end."""
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    def unreadable(self) -> ArgumentError:
        """The error of what comes next."""
        where = "it ends too early" if self.next is None else f"{self.next!r} is not expected there"
        return ArgumentError(
            f"`-k` cannot be read: {where}. Allowed: words, `and`, `or`, `not`, ( ). Got {self._whole!r}."
        )

    def either(self) -> Predicate:
        """Read what is joined by `or`."""
        left = self._both()
        while self._takes("or"):
            left = _joined(left, self._both(), any)
        return left

    def _both(self) -> Predicate:
        left = self._single()
        while self._takes("and"):
            left = _joined(left, self._single(), all)
        return left

    def _single(self) -> Predicate:
        if self._takes("not"):
            inner = self._single()
            return lambda claim: not inner(claim)
        if self._takes("("):
            inner = self.either()
            if not self._takes(")"):
                raise self.unreadable()
            return inner
        word = self.next
        if word is None or word in (")", "and", "or"):
            raise self.unreadable()
        self._place += 1
        return _matching(word.casefold(), self._ids)

    def _takes(self, token: str) -> bool:
        found = self.next == token
        self._place += found
        return found


def _joined(left: Predicate, right: Predicate, how: Callable[[list[bool]], bool]) -> Predicate:
    return lambda claim: how([left(claim), right(claim)])


def _matching(word: str, ids: frozenset[str]) -> Predicate:
    """Return what one word selects, in lower case."""
    pattern = re.compile(fnmatch.translate(word)) if any(sign in word for sign in "*?[") else None

    def fits(text: str) -> bool:
        if word in ids:
            return text == word
        return pattern.fullmatch(text) is not None if pattern else word in text

    return lambda claim: any(fits(text.casefold()) for text in (claim.id, *claim.tags))


_NAMED = 10  # claims that a warning names


def warn_of_missing_extras(claims: Sequence[Claim | IllFormed], console: Console) -> None:
    """Say once, before claims are judged, which of them want a package that is not there, and what installs it.

    Args:
        claims: The claims to be judged.
        console: Where it is said.
    """
    if is_installed("mnist"):
        return
    wanting = [claim.id for claim in claims if isinstance(claim, Claim) and any(map(_has_digits, claim.settings))]
    if not wanting:
        return
    named = ", ".join(wanting[:_NAMED]) + (f" and {len(wanting) - _NAMED} more" if len(wanting) > _NAMED else "")
    count, verb = ("1 claim", "needs") if len(wanting) == 1 else (f"{len(wanting)} claims", "need")
    why = f"{count} {verb} the digits of {PACKAGES['mnist']}, which is not installed, and may stay undecided"
    say(console, (f"{why}: {named}", "yellow"))
    # Not broken at the width, so that it can be copied.
    console.print(f"install it with: {install_line('mnist')}", markup=False, highlight=False, soft_wrap=True)


def _has_digits(setting: Setting) -> bool:
    return setting.images is not None and setting.images.source == "mnist"


def selected_claims(
    arguments: argparse.Namespace, path: Path, console: Console
) -> tuple[Suite, list[Claim | IllFormed]] | int:
    """Return the suite in `path` and the claims that `-k` selects, or the exit code where that cannot be.

    Args:
        arguments: The command line; `data` and `select` are read.
        path: The claim file.
        console: Where problems are said.
    """
    try:
        suite = load_suite(path, allow_data=[Path(p) for p in arguments.data])
        claims = select_claims(suite.claims, arguments.select)
    except ClaimFileError as error:
        render_problems(console, error.problems)
        return EXIT_USAGE
    except ArgumentError as error:
        return refused(console, error)
    if not claims:
        console.print("verify-claims: no claim selected", markup=False)
        return EXIT_EMPTY
    return suite, claims
