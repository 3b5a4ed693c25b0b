"""What a text that is no expression may have meant: remedies for what the parser trips over."""

from __future__ import annotations

import re

from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from ntk_deq.errors import ExpressionError

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
    "⪰": "write psd(A - B) for the order of symmetric matrices",
    "≽": "write psd(A - B) for the order of symmetric matrices",
    "≻": "write lambda_sym(A - B) > 0 for the strict order of symmetric matrices",
    "⪯": "write psd(B - A) for the order of symmetric matrices",
    "≼": "write psd(B - A) for the order of symmetric matrices",
    "≺": "write lambda_sym(B - A) > 0 for the strict order of symmetric matrices",
    "⊕": "write kronsum(A, B) for a Kronecker sum, blockdiag(A, B) for a direct sum",
    "∇": "write grad(f, x)",
    "∧": "write `and`",
    "∨": "write `or`",
    "∀": "write the quantifier at the end: ... for all k",
    "%": "the language has no remainder and no comments",
    "#": "the language has no comments",
    "@": "write * for a matrix product",
}

_TOKEN_REMEDIES = {
    "TIMES": "write ^ for a power",
    "EQUALS": "write == for `equals`",
    "LSQB": "only a name can carry a step, as in Z[k]: name this under `let`; brackets are ( )",
    "NAME": "write * for a product",
    "NUMBER": "write * for a product",
    "LPAR": "write * for a product",
    "SEMICOLON": "an entry is missing, or this `;` stands outside of [ ]",
    "COLON": "`:` stands for all rows or all columns, as in A{i, :}",
    "LBRACE": "braces stand behind a matrix, as in A{i, j}; brackets are ( )",
    "FOR": "a quantifier stands once, at the end of a statement or of a bracket",
}


def unexpected_character(text: str, error: UnexpectedCharacters) -> ExpressionError:
    """Return the error of a character that no word of the language has."""
    start = error.pos_in_stream or 0
    character = text[start]
    shown = repr(character) if character.isprintable() else f"U+{ord(character):04X}"
    return ExpressionError(f"unexpected character {shown}.", (start, start + 1), _REMEDIES.get(character))


def unexpected_token(text: str, error: UnexpectedToken) -> ExpressionError:
    """Return the error of a word in a place where it cannot stand."""
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
    if token.type == "LPAR" and text[:start].rstrip().endswith("'"):
        hint = "a prime is a transpose; the derivative of a function of each entry is slope(NAME, x)"
    if str(token) in (">", "<") and text[:start].rstrip().endswith(str(token)):
        hint = "write psd(A - B) for the order of symmetric matrices"
    inside = token.type == "COMMA" and re.search(r"\w\[[^\[\]]*$", text[:start])
    if inside or re.search(r"\w\[[^\[\]]*,[^\[\]]*\]\s*$", text[:start]):
        hint = "write A{i, j} for an entry; Z[k] is a value at a step, W[l][k] that of a member of a family"
    if token.type == "NAME" and text[:start].rstrip().endswith("]"):
        hint = "write * for a product"
    return ExpressionError(f"unexpected {str(token)!r}.", (start, start + len(token)), hint)


def _unclosed(text: str) -> str | None:
    """Say which bracket lacks its partner, if one does."""
    stack: list[str] = []
    for bracket in re.findall(r"[()\[\]{}]", text):
        if bracket in "([{":
            stack.append(bracket)
        elif stack:
            stack.pop()
    if not stack:
        return None
    return f"close the bracket with {_CLOSING[stack[-1]]}"


_CLOSING = {"(": ")", "[": "]", "{": "}"}
