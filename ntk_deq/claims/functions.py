"""Functions of arguments among the definitions of a claim: read, checked, and written out in its formulas."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

from ntk_deq.claims.check import Key, parsed
from ntk_deq.errors import ExpressionError
from ntk_deq.language.application import BrokenFunctionError, Definition, Functions, definition
from ntk_deq.language.families import defined
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.tree import Formula


class HeadError(ExpressionError):
    """The key of a function's definition is no head; the place is one in the key."""


@dataclass
class Written:
    """What came of writing functions out.

    Attributes:
        errors: What is wrong, with the section and name of the formula.
        broken: Names of definitions and functions that cannot be used.
        called: The functions that some formula uses.
    """

    errors: list[tuple[Key, ExpressionError]] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)


def name_of(key: str) -> str:
    """Return the name of the function that a key defines.

    Example:
        >>> name_of("f[l](z) for l in 1..L")
        'f'
    """
    return key.partition("(")[0].partition("[")[0].strip()


def function_of(key: str, text: str) -> Definition:
    """Return the function that an entry defines.

    Args:
        key: Its head, as in `phi(u)`.
        text: Its body.

    Raises:
        HeadError: The key is no head.
        ExpressionError: The body is no expression.
    """
    body = parsed(text)
    try:
        found = definition(key, text, body)
        if found.name in FUNCTIONS:
            raise ExpressionError(f"`{found.name}` is a function of the language.", (0, len(key)))
    except ExpressionError as error:
        raise HeadError(error.message, error.span, error.hint) from None
    return found


def write_out(
    functions: dict[str, Definition], sections: Mapping[str, dict[Any, Formula]], values: Set[str], broken: Set[str]
) -> Written:
    """Write the functions of arguments out in the formulas of a claim.

    Args:
        functions: The functions by their keys; definitions that stand for one, as `psi: compose(f, g)`, are added.
        sections: The formulas of each section, which are changed; those of "" by section and name. What is wrong, or
            uses what is broken, is taken out.
        values: Names of variables.
        broken: Names whose definition could not be read.
    """
    written = Written()
    let = sections["let"]
    for name, formula in list(let.items()):
        if "[" not in name and Functions().is_function(formula.expr):
            functions[name] = Definition(name, name, (), formula.expr, formula.text)
    opened = Functions.of(functions)
    for name in [name for name in let if name in functions or opened.is_function(let[name].expr)]:
        functions.setdefault(name, Definition(name, name, (), let[name].expr, let[name].text))
        del let[name]
    opened = Functions.of(functions, {*values, *let})
    for key, found in functions.items():
        try:
            opened.check(found)
        except BrokenFunctionError as error:
            if error.function is found:
                written.errors.append((("let", key), error))
            written.broken.add(found.name)
    for section, formulas in sections.items():
        for name, formula in list(formulas.items()):
            try:
                if any(node.name in broken for node in formula.expr.walk() if node.args):
                    raise BrokenFunctionError(Definition("", "", (), formula.expr, ""), ExpressionError("", (0, 0)))
                formulas[name] = replace(formula, expr=opened.written_out(formula.expr))
                written.called |= opened.used(formula.expr)
            except ExpressionError as error:
                if not isinstance(error, BrokenFunctionError):
                    written.errors.append(((section, name) if section else name, error))
                written.broken |= {defined(name).name} if section == "let" else set()
                del formulas[name]
    return written
