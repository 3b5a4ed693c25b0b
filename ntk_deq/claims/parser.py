"""Text to tree: the parser of the claim language, with limits that keep a hostile text from costing time or memory."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ntk_deq.claims.builder import KEYWORDS, TreeBuilder
from ntk_deq.claims.errors import ExpressionError
from ntk_deq.claims.tree import Expr

__all__ = ["KEYWORDS", "MAX_DEPTH", "MAX_TEXT", "parse"]

MAX_TEXT = 20_000
# Comparing or pickling a tree costs the interpreter about four frames a level; its default limit is 1000 frames.
MAX_DEPTH = 100

_REMEDIES = {
    "≤": "write <=",
    "≥": "write >=",
    "≠": "write !=",
    "·": "write * for a product",
    "×": "write * for a product",
    "⊗": "write kron(A, B)",
    "⊙": "write hadamard(A, B)",
    "⊤": "write ' for a transpose",
    ".": "write A' for a transpose, hadamard(A, B) for a product of entries",
    "’": "write ' for a transpose",
    "−": "write - (a hyphen) for minus",
    "√": "write sqrt(x)",
    "|": "write norm(x) for a norm, abs(x) for an absolute value, `or` between conditions",
    "‖": "write norm(x) for the spectral norm, fro(x) for the Frobenius norm",
    "&": "write `and`",
    "!": "write `not`, or != for `differs from`",
    "∧": "write `and`",
    "∨": "write `or`",
    "∀": "write the quantifier at the end: ... for all k",
    "%": "the language has no remainder and no comments",
    "#": "the language has no comments",
    "@": "write * for a matrix product",
    "{": "brackets are ( ) only",
    "}": "brackets are ( ) only",
}

_TOKEN_REMEDIES = {
    "TIMES": "write ^ for a power",
    "EQUALS": "write == for `equals`",
    "LSQB": "only a name can carry a step, as in Z[k]: name this under `let`; brackets are ( )",
    "NAME": "write * for a product",
    "NUMBER": "write * for a product",
    "LPAR": "write * for a product",
    "FOR": "a quantifier stands once, at the end of a statement or of a bracket",
}


def parse(text: str) -> Expr:
    """Return the tree of an expression; no node has a type yet.

    Spans are offsets in `text`; a bracketed expression's span includes its brackets. A sum or a conjunction of more
    than 50 terms comes out as a balanced tree instead of a left-deep one.

    Args:
        text: At most 20 000 characters, nested at most 100 levels deep.

    Raises:
        ExpressionError: The text is no expression, or passes a limit.

    Example:
        >>> tree = parse("norm(A') <= 2*c for all k")
        >>> tree.kind, tree.args[0].kind, tree.args[0].operators
        (<Kind.FOR_ALL: 'for all'>, <Kind.COMPARE: 'compare'>, ('<=',))
    """
    _check_limits(text)
    try:
        tree: Expr = _parser().parse(text)  # type: ignore[assignment]
    except UnexpectedCharacters as error:
        raise _unexpected_character(text, error) from None
    except UnexpectedToken as error:
        raise _unexpected_token(text, error) from None
    except UnexpectedInput as error:  # pragma: no cover - the two above are all that the LALR parser raises
        raise ExpressionError("not an expression", (0, len(text))) from error
    _check_depth(tree)
    return tree


@cache
def _parser() -> Lark:
    grammar = resources.files("ntk_deq.claims").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", transformer=TreeBuilder(), keep_all_tokens=True)


def _check_limits(text: str) -> None:
    if len(text) > MAX_TEXT:
        raise ExpressionError(
            f"an expression may have at most {MAX_TEXT} characters. Got {len(text)}.", (MAX_TEXT, len(text))
        )
    if not text.strip():
        raise ExpressionError("an expression is missing: the text is empty.", (0, len(text)))
    open_brackets = 0
    for bracket in re.finditer(r"[()\[\]]", text):
        open_brackets += 1 if bracket.group() in "([" else -1
        if open_brackets > MAX_DEPTH:
            raise _too_deep(bracket.span())


def _check_depth(tree: Expr) -> None:
    stack = [(tree, 1)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise _too_deep((node.span.start, node.span.stop))
        stack.extend((child, depth + 1) for child in node.args)


def _too_deep(span: tuple[int, int]) -> ExpressionError:
    return ExpressionError(
        f"the expression is nested more than {MAX_DEPTH} levels deep.",
        span,
        "define its parts under `let` and use their names",
    )


def _unexpected_character(text: str, error: UnexpectedCharacters) -> ExpressionError:
    start = error.pos_in_stream or 0
    character = text[start]
    shown = repr(character) if character.isprintable() else f"U+{ord(character):04X}"
    return ExpressionError(f"unexpected character {shown}.", (start, start + 1), _REMEDIES.get(character))


def _unexpected_token(text: str, error: UnexpectedToken) -> ExpressionError:
    token = error.token
    if token.type == "$END":
        stop = len(text.rstrip())
        missing = _unclosed(text)
        return ExpressionError("the expression ends too early.", (max(stop - 1, 0), stop), missing)
    start = token.start_pos if token.start_pos is not None else 0
    hint = _TOKEN_REMEDIES.get(token.type)
    if token.type == "TIMES" and not text[:start].endswith("*"):
        hint = None
    if token.type in ("NAME", "NUMBER", "LPAR") and not {"TIMES", "SLASH"} & set(error.accepts or error.expected):
        hint = None
    if token.type == "NAME" and text[:start].rstrip().endswith("]"):
        hint = "write * for a product"
    return ExpressionError(f"unexpected {str(token)!r}.", (start, start + len(token)), hint)


def _unclosed(text: str) -> str | None:
    """Say which bracket lacks its partner, if one does."""
    stack: list[str] = []
    for bracket in re.findall(r"[()\[\]]", text):
        if bracket in "([":
            stack.append(bracket)
        elif stack:
            stack.pop()
    if not stack:
        return None
    return f"close the bracket with {')' if stack[-1] == '(' else ']'}"
