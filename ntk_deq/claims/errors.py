"""The error that a whole claim file raises when it cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ntk_deq.errors import NtkDeqError

if TYPE_CHECKING:
    from ntk_deq.claims.claim import Problem


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
