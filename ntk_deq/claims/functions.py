"""Functions of arguments among the definitions of a claim: read, checked, and written out in its formulas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from ntk_deq.claims.check import Key, parsed
from ntk_deq.claims.schema import SystemModel
from ntk_deq.claims.validate import place
from ntk_deq.errors import ExpressionError, Problem
from ntk_deq.files.problems import expression_problem, expression_text
from ntk_deq.files.yaml import Mapping as MappingNode
from ntk_deq.files.yaml import Node, Scalar
from ntk_deq.language.application import Functions
from ntk_deq.language.arguments import BrokenFunctionError, Definition, definition, is_head
from ntk_deq.language.expansion import substituted
from ntk_deq.language.families import defined
from ntk_deq.language.format import format_expr, unmarked
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.setting import Setting
from ntk_deq.language.tree import Expr, Formula, Kind, Mark, Span


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


def function_of(
    key: str, text: str, extremes: Mapping[str, tuple[str | None, str | None]] = MappingProxyType({})
) -> Definition:
    """Return the function that an entry defines.

    Args:
        key: Its head, as in `phi(u)`.
        text: Its body.
        extremes: By the name of a function, its least value and where it is, where these are known.

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
    least, where = (None if part is None else parsed(part) for part in extremes.get(found.name, (None, None)))
    return replace(found, least=least, where=where)


def model_formulas(settings: Iterable[Setting]) -> dict[str, list[Expr]]:
    """Return what the names of the models of settings are defined as: definitions, and states by their maps."""
    found: dict[str, list[Expr]] = {}
    for model in (setting.model for setting in settings if setting.model is not None):
        for name, text in model.definitions.items():
            found.setdefault(defined(name).name, []).append(parsed(text))
        if model.has_equilibrium:
            found.setdefault(model.state, []).append(parsed(model.map))
    return found


def model_functions(settings: Iterable[Setting]) -> tuple[dict[str, Definition], list[str]]:
    """Return the functions that the models of settings define, by key, and what is wrong with them together."""
    found: dict[str, Definition] = {}
    wrong: list[str] = []
    for setting in settings:
        for key, text in setting.model.functions.items() if setting.model is not None else ():
            function = function_of(key, text)
            others = [key for key, other in found.items() if other.name == function.name]
            if (others and key not in others) or (key in found and found[key].text != text):
                wrong.append(f"`{key}` is one function in setting {setting.name} and another one elsewhere.")
            found[key] = function
    return found, wrong


def write_out(
    functions: dict[str, Definition],
    sections: Mapping[str, dict[Any, Formula]],
    values: Set[str],
    broken: Set[str],
    known: Mapping[str, Definition],
    models: Mapping[str, Sequence[Expr]],
) -> Written:
    """Write the functions of arguments out in the formulas of a claim.

    Args:
        functions: The functions by their keys; definitions that stand for one, as `psi: compose(f, g)`, are added.
        sections: The formulas of each section, which are changed; those of "" by section and name. What is wrong, or
            uses what is broken, is taken out.
        values: Names of variables.
        broken: Names whose definition could not be read.
        known: Functions of the models, by their keys.
        models: What the names of the models are defined as.
    """
    written = Written()
    let = sections["let"]
    for name, formula in list(let.items()):
        if "[" not in name and Functions().is_function(formula.expr):
            functions[name] = Definition(name, name, (), formula.expr, formula.text)
    opened = Functions.of({**known, **functions})
    for name in [name for name in let if name in functions or opened.is_function(let[name].expr)]:
        functions.setdefault(name, Definition(name, name, (), let[name].expr, let[name].text))
        del let[name]
    behind = {name: [*parts] for name, parts in models.items()}
    for name, formula in let.items():
        behind.setdefault(defined(name).name, []).append(formula.expr)
    opened = Functions.of({**known, **functions}, {*values, *let}, behind)
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


@dataclass
class SystemFunctions:
    """A system with its functions of arguments written out.

    Attributes:
        node: Its entry, without functions.
        model: The same.
        functions: The functions by their keys, as written.
        trees: The formulas that use one, by their texts written out: what stands in them is still marked.
        problems: What is wrong.
    """

    node: MappingNode
    model: SystemModel
    functions: dict[str, str] = field(default_factory=dict)
    trees: dict[str, Expr] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def system_functions(name: str, node: MappingNode, model: SystemModel) -> SystemFunctions:
    """Write the functions that a system defines out in its other formulas.

    Args:
        name: Its name.
        node: Its entry.
        model: The same, validated.
    """
    found = SystemFunctions(node, model)
    where = f"systems.{name}"
    functions: dict[str, Definition] = {}
    define = node.entries.get("define")
    entries = define.entries if isinstance(define, MappingNode) else {}
    for key in filter(is_head, entries):
        try:
            functions[key] = function_of(key, expression_text(entries[key]))
        except HeadError as error:
            at = place(node, ("define", key), key=True)
            found.problems.append(Problem(at, f"`{where}.define.{key}`: {error.message}", hint=error.hint))
        except ExpressionError as error:
            found.problems.append(expression_problem(entries[key], error, f"{where}.define.{key}"))
    formulas: dict[str, list[Expr]] = {}
    for key, text in {**model.define, **(model.equilibrium or {})}.items():
        with suppress(ExpressionError):  # said where it is typed
            formulas.setdefault(name_of(key), []).append(parsed(text))
    opened = Functions.of(functions, {*model.variables, *entries, *(model.equilibrium or {})}, formulas)
    for key, function in functions.items():
        try:
            opened.check(function)
        except BrokenFunctionError as error:
            if error.function is function:
                found.problems.append(expression_problem(entries[key], error, f"{where}.define.{key}"))
    if found.problems:
        return found
    found.functions = {key: function.text for key, function in functions.items()}

    def written(at: str, scalar: Node) -> Node:
        text = expression_text(scalar)
        try:
            tree = parsed(text)
        except ExpressionError:  # said where it is typed
            return scalar
        try:
            out = opened.written_out(tree)
        except ExpressionError as error:
            found.problems.append(expression_problem(scalar, error, at))
            return scalar
        if out is tree:
            return scalar
        out = _shaped(out, model)
        text = format_expr(unmarked(out))
        found.trees[text] = substituted(out, {}, Span(0, len(text)))
        return Scalar(scalar.position, text, text, ">")

    def rewritten(at: str, part: Node) -> Node:
        if isinstance(part, Scalar):
            return written(at, part)
        if not isinstance(part, MappingNode):
            return part
        kept = {key: rewritten(f"{at}.{key}", entry) for key, entry in part.entries.items() if key not in functions}
        return MappingNode(part.position, kept, {key: part.keys[key] for key in kept}, part.problems)

    changed = ("define", "equilibrium", "contraction", "monotone")
    parts = {key: rewritten(f"{where}.{key}", part) if key in changed else part for key, part in node.entries.items()}
    found.node = MappingNode(node.position, parts, node.keys, node.problems)
    texts = {key: expression_text(entry) for key, entry in getattr(parts.get("define"), "entries", {}).items()}
    found.model = model.model_copy(update={"define": texts})
    return found


def _shaped(expr: Expr, model: SystemModel) -> Expr:
    """Return a formula in which arguments that have the shape of a variable have it by its sizes."""
    args = tuple(_shaped(part, model) for part in expr.args)
    expr = replace(expr, args=args)
    if expr.kind is Kind.CALL and expr.name == Mark.SHAPE and expr.names and expr.names[0] in model.variables:
        shape = model.variables[expr.names[0]].shape
        if " for " not in shape:
            return replace(expr, args=tuple(parsed(part) for part in shape.split(", ") if part), names=())
    return expr
