"""Select claims by an expression over their ids and tags: words with and, or, not and parentheses."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from ntk_deq.claims.claim import Claim, IllFormed
from ntk_deq.errors import ArgumentError

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

    A word selects a claim when it occurs in the claim's id or in one of its tags, upper and lower case alike.

    Raises:
        ArgumentError: The expression cannot be read.
    """
    if expression is None:
        return list(claims)
    predicate = compile_selection(expression)
    return [claim for claim in claims if predicate(claim)]


def compile_selection(expression: str) -> Predicate:
    """Turn a selection expression into a predicate.

    Example:
        >>> selected = compile_selection("L3 and not (slow or L3.2)")
    """
    tokens = _TOKEN.findall(expression)
    if not tokens or len(tokens) > MAX_TOKENS:
        raise ArgumentError(f"`-k` takes 1 to {MAX_TOKENS} words, `and`, `or`, `not`, parentheses. Got {expression!r}.")
    predicate, rest = _either(tokens, expression)
    if rest:
        raise _unreadable(expression, rest[0])
    return predicate


def _unreadable(expression: str, token: str | None) -> ArgumentError:
    where = "it ends too early" if token is None else f"{token!r} is not expected there"
    return ArgumentError(f"`-k` cannot be read: {where}. Allowed: words, `and`, `or`, `not`, ( ). Got {expression!r}.")


def _either(tokens: list[str], whole: str) -> tuple[Predicate, list[str]]:
    left, rest = _both(tokens, whole)
    while rest and rest[0] == "or":
        right, rest = _both(rest[1:], whole)
        left = _joined(left, right, any)
    return left, rest


def _both(tokens: list[str], whole: str) -> tuple[Predicate, list[str]]:
    left, rest = _single(tokens, whole)
    while rest and rest[0] == "and":
        right, rest = _single(rest[1:], whole)
        left = _joined(left, right, all)
    return left, rest


def _joined(left: Predicate, right: Predicate, how: Callable[[list[bool]], bool]) -> Predicate:
    return lambda claim: how([left(claim), right(claim)])


def _single(tokens: list[str], whole: str) -> tuple[Predicate, list[str]]:
    if not tokens:
        raise _unreadable(whole, None)
    head, rest = tokens[0], tokens[1:]
    if head == "not":
        inner, rest = _single(rest, whole)
        return (lambda claim: not inner(claim)), rest
    if head == "(":
        inner, rest = _either(rest, whole)
        if not rest or rest[0] != ")":
            raise _unreadable(whole, rest[0] if rest else None)
        return inner, rest[1:]
    if head in (")", "and", "or"):
        raise _unreadable(whole, head)
    word = head.casefold()
    return (lambda claim: any(word in text.casefold() for text in (claim.id, *claim.tags))), rest
