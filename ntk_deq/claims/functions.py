"""Functions of arguments among the definitions of a claim: read, checked, and written out in its formulas.

A claim that quantifies over functions, `given: {f: "convex(smooth = L)[n]"}`, becomes a claim for each choice of
members.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from types import MappingProxyType
from typing import Any

from ntk_deq.claims.check import Key
from ntk_deq.claims.claim import Claim, Depth
from ntk_deq.claims.inheritance import Extremes, FindSetting, named_entries
from ntk_deq.claims.schema import SystemModel
from ntk_deq.claims.validate import place
from ntk_deq.errors import ExpressionError, Problem
from ntk_deq.files.yaml import Mapping as MappingNode
from ntk_deq.files.yaml import Node, Scalar
from ntk_deq.files.yaml import Sequence as SequenceNode
from ntk_deq.language.application import Functions
from ntk_deq.language.arguments import BrokenFunctionError, Definition, definition, is_head
from ntk_deq.language.declaration import Setting
from ntk_deq.language.expansion import substituted
from ntk_deq.language.families import defined
from ntk_deq.language.format import format_expr, unmarked
from ntk_deq.language.function_domains import FunctionDomain, Member, is_function_domain, parse_function_domain
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.hints import expression_problem, expression_text
from ntk_deq.language.parser import parse
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
    body = parse(text)
    try:
        found = definition(key, text, body)
        if found.name in FUNCTIONS:
            raise ExpressionError(f"`{found.name}` is a function of the language.", (0, len(key)))
    except ExpressionError as error:
        raise HeadError(error.message, error.span, error.hint) from None
    least, where = (None if part is None else parse(part) for part in extremes.get(found.name, (None, None)))
    return replace(found, least=least, where=where)


def model_formulas(settings: Iterable[Setting]) -> dict[str, list[Expr]]:
    """Return what the names of the models of settings are defined as: definitions, and states by their maps."""
    found: dict[str, list[Expr]] = {}
    for model in (setting.model for setting in settings if setting.model is not None):
        for name, text in model.definitions.items():
            found.setdefault(defined(name).name, []).append(parse(text))
        if model.has_equilibrium:
            found.setdefault(model.state, []).append(parse(model.map))
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
                if broken and any(node.name in broken for node in formula.expr.walk() if node.args):
                    raise BrokenFunctionError(Definition("", "", (), formula.expr, ""), ExpressionError("", (0, 0)))
                expr = opened.written_out(formula.expr)
                if expr is not formula.expr:
                    formulas[name] = replace(formula, expr=expr)
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
            formulas.setdefault(name_of(key), []).append(parse(text))
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
            tree = parse(text)
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
            return replace(expr, args=tuple(parse(part) for part in shape.split(", ") if part), names=())
    return expr


MAX_CHOICES = 24
"""Choices of members of a claim that are tried; each is a claim of its own to judge."""


class ClaimFaultError(Exception):
    """A claim cannot be taken apart; `problems` say why."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__()
        self.problems = tuple(problems)


@dataclass(frozen=True)
class FunctionChoices:
    """A claim that quantifies over functions.

    Attributes:
        node: Its node.
        given: Its own sets of functions, by the name of the function.
        settings: Those of its settings that it uses.
        choices: The members of each choice, in the order of the functions.
    """

    node: MappingNode
    given: dict[str, FunctionDomain]
    settings: dict[str, FunctionDomain]
    choices: list[tuple[Member, ...]]

    @property
    def sets(self) -> dict[str, FunctionDomain]:
        """All sets, by the name of the function."""
        return self.settings | self.given

    def variants(self) -> Iterator[tuple[MappingNode, Extremes]]:
        """Yield the node of the claim about each choice of members, and what is known of their least values."""
        for members in self.choices:
            chosen = dict(zip(self.sets, members, strict=True))
            extremes = {name: (member.least, member.where) for name, member in chosen.items()}
            yield self._variant(chosen), extremes

    def _variant(self, chosen: Mapping[str, Member]) -> MappingNode:
        at = self.node.position
        given, let, assume = (_entries(self.node, key) for key in ("given", "let", "assume"))
        for name, member in chosen.items():
            where = given.pop(name).position if name in given else at
            domain = self.sets[name]
            given |= {own: Scalar(where, text, text, ">") for own, text in member.constants.items()}
            let[f"{name}({domain.parameter})"] = Scalar(where, member.formula, member.formula, ">")
            conditions = [text for text in (domain.condition, member.condition) if text is not None]
            if conditions:
                text = " and ".join(conditions)
                assume[f"{name} is {domain.text}"] = Scalar(where, text, text, ">")
        entries = dict(self.node.entries)
        for key, part in (("given", given), ("let", let), ("assume", assume)):
            if part:
                entries[key] = MappingNode(at, part, {name: entry.position for name, entry in part.items()})
            else:
                entries.pop(key, None)
        keys = {key: self.node.keys.get(key, at) for key in entries}
        return MappingNode(self.node.position, entries, keys, self.node.problems)

    def claim(self, variants: Sequence[Claim]) -> Claim:
        """Return the claim of its variants.

        Args:
            variants: The claim about each choice of members.
        """
        first, names = variants[0], [*self.sets]
        own = {key for name, member in zip(names, self.choices[0], strict=True) for key in member.constants}
        heads = {f"{name}({domain.parameter})" for name, domain in self.sets.items()}
        added = {f"{name} is {domain.text}" for name, domain in self.sets.items()}
        depths: list[Depth] = []
        for setting in first.settings:
            for number, (members, variant) in enumerate(zip(self.choices, variants, strict=True)):
                words = tuple((name, member.name) for name, member in zip(names, members, strict=True))
                counts = tuple(
                    (name, 1 + self.sets[name].members(name).index(member))
                    for name, member in zip(names, members, strict=True)
                )
                inner = [depth.letters for depth in variant.depths if depth.setting == setting.name] or [()]
                depths += [Depth(setting.name, (*letters, *counts), words, number) for letters in inner]
        return replace(
            first,
            given={name: free for name, free in first.given.items() if name not in own},
            functions={key: found for key, found in first.functions.items() if key not in heads},
            assume={name: formula for name, formula in first.assume.items() if name not in added},
            members=self.sets,
            variants=tuple(variants),
            depths=tuple(depths),
        )


def function_choices(node: MappingNode, find_setting: FindSetting) -> FunctionChoices | None:
    """Return the functions over which a claim quantifies, or None where there are none.

    Args:
        node: The complete node of a claim.
        find_setting: Looks its settings up.

    Raises:
        ClaimFaultError: A set of functions is none, or there are too many choices.
    """
    given: dict[str, FunctionDomain] = {}
    problems = []
    places = _entries(node, "given")
    used = " ".join(_texts(node))
    for name, entry in places.items():
        text = expression_text(entry)
        if not is_function_domain(text):
            continue
        try:
            given[name] = parse_function_domain(text)
        except ExpressionError as error:
            problems.append(expression_problem(entry, error, f"given.{name}"))
            continue
        if not _uses(used, name):
            problems.append(Problem(entry.position, f"`given.{name}` is used nowhere."))
    own: dict[str, FunctionDomain] = {}
    records = [find_setting(expression_text(name), name.position.file)[0] for name in setting_names(node)]
    for setting in (record.setting for record in records if record is not None and record.setting is not None):
        for name, domain in setting.functions.items():
            other = own.get(name, domain).text
            if other != domain.text:
                message = f"`{name}` is {domain.text} in setting {setting.name} and {other} elsewhere."
                problems.append(Problem(node.position, message))
            elif _uses(used, name):
                own[name] = domain
    sets = own | given
    if sets and "exists" in node.entries:
        problems.append(Problem(node.keys["exists"], "`exists` is not judged in a claim about sets of functions."))
    choices = _spread(list(product(*(domain.members(name) for name, domain in sets.items()))))
    if problems:
        raise ClaimFaultError(problems)
    return FunctionChoices(node, given, own, choices) if sets else None


def _spread(choices: list[tuple[Member, ...]]) -> list[tuple[Member, ...]]:
    """Return all choices, or as many as are tried, spread so that the members of each set take turns."""
    count = len(choices)
    if count <= MAX_CHOICES:
        return choices
    stride = next(step for step in range(count * 3 // 8, count) if math.gcd(step, count) == 1)
    return [choices[place] for place in sorted(k * stride % count for k in range(MAX_CHOICES))]


def setting_names(node: MappingNode) -> Sequence[Node]:
    """Return the names of a claim's settings as they stand in its node."""
    names = node.entries["setting"]
    return names.items if isinstance(names, SequenceNode) else (names,)


def _entries(node: MappingNode, key: str) -> dict[str, Node]:
    found = named_entries(node.entries[key], "assumption") if key in node.entries else None
    return {} if found is None else dict(found.entries)


def _texts(node: MappingNode) -> Iterator[str]:
    """Yield the formulas of a claim as written."""
    for key in ("let", "assume", "conclude", "witness", "run", "choose"):
        part = node.entries.get(key)
        if isinstance(part, MappingNode):
            yield from (expression_text(entry) for entry in part.entries.values() if isinstance(entry, Scalar))
        elif isinstance(part, Scalar):
            yield part.text


def _uses(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
