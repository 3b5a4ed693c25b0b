"""How a family is written in a claim file: one line, or a mapping that stands for it; ranges and sizes that fit."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from ntk_deq.errors import ExpressionError, Problem
from ntk_deq.files.yaml import Mapping as MappingNode
from ntk_deq.files.yaml import Node, Scalar, plain
from ntk_deq.language.declaration import Setting, reserved
from ntk_deq.language.domain import Free, is_literal, misfit, parse_domain
from ntk_deq.language.families import defined, downward, split_for, split_member
from ntk_deq.language.hints import expression_problem, expression_text
from ntk_deq.language.parser import parse
from ntk_deq.language.run import PATH_LENGTH, RunKind
from ntk_deq.language.tree import Expr, Formula, Kind, Span
from ntk_deq.language.types import SCALAR, Reach, SizeRange, Type


def one_line(entry: Mapping[str, object], head: str) -> str | None:
    """Return the line that a mapping stands for, or None where it stands for none.

    Args:
        entry: Such as `{domain: real, shape: "[n[l]]", for: "l in 1..L"}`.
        head: The key of what stands first: `domain`, `draw` or `range`.

    Example:
        >>> one_line({"shape": "[n[l], n[l-1]]", "for": "l in 1..L"}, "domain")
        'real[n[l], n[l-1]] for l in 1..L'
    """
    if not entry.keys() <= {head, "for", *(("shape",) if head != "range" else ())} or "for" not in entry:
        return None
    first = entry.get(head, "real" if head == "domain" else None)
    if isinstance(first, list) and len(first) == 2 and not any(isinstance(v, dict | list) for v in first):
        first = f"{first[0]}..{first[1]}" if head == "range" else f"[{first[0]}, {first[1]}]"
    shape = entry.get("shape", "")
    if isinstance(shape, list):
        shape = f"[{', '.join(map(str, shape))}]"
    if isinstance(first, bool | None | list | dict) or not isinstance(shape, str):
        return None
    if shape and not shape.lstrip().startswith("["):
        shape = f"[{shape}]"
    return f"{first}{shape} for {entry['for']}"


def flattened(node: Node, head: str) -> Node:
    """Return an entry as one value: a mapping that declares a family becomes the line that it stands for."""
    if not isinstance(node, MappingNode):
        return node
    text = one_line(plain(node), head)
    return node if text is None else Scalar(node.position, text, text, ">")


def by_names(let: Mapping[str, Formula]) -> dict[str, Formula]:
    """Return the entries of `let` by what they define: of a family one formula that stands for all of its parts.

    The formula keeps the name of the first part; it says which names are used and nothing else.
    """
    found: dict[str, Formula] = {}
    for key, formula in let.items():
        name = defined(key).name
        first = found.get(name)
        parts = formula.expr if first is None else Expr(Kind.AND, formula.expr.span, (first.expr, formula.expr))
        found[name] = replace(first or formula, expr=parts)
    return found


def read_variables(
    section: str, entries: Mapping[str, Node], settings: Iterable[Setting]
) -> tuple[dict[str, Free], list[Problem], set[str]]:
    """Return the variables of a section of a claim, what is wrong, and the names that cannot be used.

    Args:
        section: `given`, where a matrix that is written out is a definition and left out, or `exists`.
        entries: Its entries.
        settings: The claim's settings, which have the sizes.
    """
    found, problems, broken = dict[str, Free](), list[Problem](), set[str]()
    for name, entry in entries.items():
        where, node = f"{section}.{name}", flattened(entry, "domain")
        if is_literal(expression_text(node)) and section == "given":
            continue
        try:
            text, over = split_for(expression_text(node))
            domain, shape = parse_domain(text)
        except ExpressionError as error:
            problems.append(expression_problem(node, error, where))
            broken.add(name)
            continue
        type_ = shape or SCALAR
        reason = misfit(domain, type_)
        for setting in settings:
            unknown = unknown_sizes(type_, setting.sizes, over)
            if unknown:
                reason = f"setting {setting.name} has no size {', '.join(unknown)}"
            elif over is not None:
                reason = (reach_fault(over, setting.sizes) or "").removesuffix(".") or reason
        if reason:
            problems.append(Problem(node.position, f"`{where}`: {reason}."))
            broken.add(name)
        else:
            found[name] = Free(name, type_, domain, over)
    return found, problems, broken


def read_constants(
    given: Mapping[str, Node], settings: Iterable[Setting], used: Container[str]
) -> tuple[dict[str, Formula], list[Problem], set[str]]:
    """Return the matrices that settings and `given` write out, what is wrong, and the names that cannot be used.

    Args:
        given: The entries of `given`.
        settings: The claim's settings, of whose constants those count that are used.
        used: Names that the formulas use.
    """
    found, problems, broken = dict[str, Formula](), list[Problem](), set[str]()
    for name, node in given.items():
        text = expression_text(node)
        if not is_literal(text):
            continue
        try:
            found[name] = Formula(name, text, parse(text), node.position)
        except ExpressionError as error:
            problems.append(expression_problem(node, error, f"given.{name}"))
            broken.add(name)
    varying = {name for setting in settings for name in setting.variable_types()}
    for setting in settings:
        for name, formula in setting.constants.items():
            if name in varying or found.get(name, formula).text != formula.text:
                message = f"`{name}` is one matrix in setting {setting.name} and another one elsewhere."
                problems.append(Problem(formula.position, message))
            elif name in used:
                found[name] = formula
    return found, problems, broken


def taken_by(name: str, settings: Iterable[Setting], kind: RunKind | None) -> str | None:
    """Return what a name means already in a claim, or None.

    Args:
        name: The name.
        settings: The claim's settings.
        kind: What the claim's run does, or None.
    """
    if name == PATH_LENGTH and kind is not None and (kind.trains or kind.written):
        return f"the length of the trajectory of {'a training run' if kind.trains else 'a recursion'}"
    for setting in settings:
        if name in setting.variable_types():
            return f"a variable of setting {setting.name}"
        if name in setting.sizes:
            return f"a size letter of setting {setting.name}"
        if name in setting.constants:
            return f"a constant of setting {setting.name}"
        taken = reserved(name, setting.model)
        if taken:
            return taken
    return reserved(name, None)


def reach_fault(over: Reach, sizes: Mapping[str, SizeRange]) -> str | None:
    """Return what is wrong with the range of a family, or None.

    Args:
        over: The range.
        sizes: Ranges of the size letters.
    """
    if over.letter in sizes:
        return f"`{over.letter}` is a size letter and cannot run over a range."
    for letter in sorted(over.start.letters | over.stop.letters):
        if letter not in sizes or sizes[letter].over is not None:
            return (
                f"`{letter}` in `{over.text}` is no size letter, so that the range is not known; `sizes` must give it."
            )
    try:
        downward(over, {}, Span(0, 0))
    except ExpressionError as error:
        return error.message
    return None


def unknown_sizes(type_: Type, sizes: Mapping[str, SizeRange], over: Reach | None) -> list[str]:
    """Return what a shape is made of beside the sizes of a setting and their members.

    Args:
        type_: The type with that shape.
        sizes: Ranges of the size letters.
        over: What the letter of a family runs over, which its shape may use.
    """
    plain = {letter for letter, size in sizes.items() if size.over is None}
    own = set() if over is None else {over.letter}
    unknown = set()
    for letter in type_.rows.letters | type_.cols.letters:
        member = split_member(letter)
        if member is None:
            unknown |= {letter} - plain - own
        elif member[0] not in sizes or sizes[member[0]].over is None:
            unknown.add(letter)
        elif not member[1].letters <= plain | own:
            unknown.add(letter)
    return sorted(unknown)
