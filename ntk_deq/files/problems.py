"""How problems in a claim file are worded and placed."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from ntk_deq.errors import ExpressionError, Position, Problem, nearest_name
from ntk_deq.files.yaml import Node, Scalar

_CANDIDATES = 1000  # a spelling is compared with at most so many names, since each comparison takes microseconds
SHOWN = 60  # characters of a value that a message quotes
_YAML_BOOLEANS = frozenset({"yes", "no", "on", "off"})


def did_you_mean(name: str, allowed: Iterable[str]) -> str | None:
    """Return the hint that names the nearest allowed spelling, or None.

    Example:
        >>> did_you_mean("asume", ["assume", "conclude"])
        'did you mean `assume`?'
    """
    near = nearest_name(name[:SHOWN], islice(allowed, _CANDIDATES))
    return f"did you mean `{near}`?" if near else None


def shown(value: object) -> str:
    """Return a value as a message quotes it; words that YAML 1.1 calls booleans are named as what they are here.

    Example:
        >>> shown("yes"), shown(3), shown(None)
        ("the word 'yes' (only true and false are booleans)", '3', 'nothing')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        quoted = repr(value if len(value) <= SHOWN else value[:SHOWN] + "...")
        return f"the word {quoted} (only true and false are booleans)" if is_yaml_boolean(value) else quoted
    if isinstance(value, list | tuple | dict):
        return f"{'a' if value else 'an empty'} {'mapping' if isinstance(value, dict) else 'list'}"
    return str(value)


def is_yaml_boolean(text: str) -> bool:
    """Return whether YAML 1.1 would read a word as a boolean that is neither `true` nor `false`."""
    return text.strip().lower() in _YAML_BOOLEANS


def expression_text(node: Node) -> str:
    """Return the text of an expression or a domain as written; a list [0, 1] gives `[0, 1]`."""
    if isinstance(node, Scalar):
        return node.text
    return "[" + ", ".join(expression_text(item) for item in getattr(node, "items", ())) + "]"


def expression_problem(node: Node, error: ExpressionError, where: str, claim: str | None = None) -> Problem:
    """Return the problem that an expression's error makes at its place in the file.

    Args:
        node: The expression.
        error: What is wrong with it.
        where: What the expression is, for the message: `assume.well-posed`.
        claim: Id of the claim.
    """
    message = f"`{where}`: {error.message}"
    text = expression_text(node)
    if not isinstance(node, Scalar):
        return Problem(node.position, message, claim, text, error.span, error.hint)
    if is_yaml_boolean(text):
        message = f"`{where}`: a number or an expression is needed. Got {shown(text.strip())}."
        error = ExpressionError(message, error.span)
    return Problem(node.position_of(error.span[0]), message, claim, text, error.span, error.hint)


def scalar_position(node: Node, offset: int) -> Position:
    """Return the place of a character of an expression."""
    return node.position_of(offset) if isinstance(node, Scalar) else node.position
