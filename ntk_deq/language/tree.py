"""The tree of an expression of the claim language: one uniform, immutable node that every backend walks.

Definitions of a claim: the order in which they build on each other, and those that nothing uses. How nodes are built
from what is written: calls, pieces of matrices, matrices put together, sums.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from operator import is_
from typing import Final

from ntk_deq.errors import ExpressionError, Position
from ntk_deq.language.types import Type

PI = "pi"
CONSTANT_NAMES = frozenset({PI})
"""Names of numbers, unless something else is called so; a constant is a call without arguments."""


@dataclass(frozen=True)
class Formula:
    """A named expression of a claim: typed tree, source text, place."""

    name: str
    text: str
    expr: Expr
    position: Position

    @cached_property
    def names(self) -> frozenset[str]:
        """The names that it reads, as `names_in` gives them."""
        return frozenset(names_in(self.expr))


class Kind(StrEnum):
    """What a node is."""

    __hash__ = str.__hash__  # that of an enumeration is slow, and every walk asks what a node is

    NUMBER = "number"  # value
    NAME = "name"  # name
    INDEX = "index"  # name[args[0]]: a quantity at a step, or a member of a family; name[args[0]][args[1]]: both
    CALL = "call"  # name(args...)
    AT = "at"  # at(args[0], names[0] = args[1], ...): a model quantity with some variables replaced
    NEGATE = "negate"  # -args[0]
    ADD = "add"
    SUBTRACT = "subtract"
    MULTIPLY = "multiply"  # scalar or matrix product
    DIVIDE = "divide"  # by a scalar
    POWER = "power"  # scalar^scalar, or square matrix^integer
    TRANSPOSE = "transpose"  # args[0]'
    COMPARE = "compare"  # args[0] operators[0] args[1] operators[1] ...; operators among <= < >= > == !=
    AND = "and"
    OR = "or"
    NOT = "not"
    FOR_ALL = "for all"  # args[0] for all names [with args[1]]: names are step indices
    FOR_SOME = "for some"  # args[0] for some names [with args[1]]
    EACH = "for all in"  # args[0] for all names[0] in args[1]..args[2]: a letter that runs over a range
    SOME = "for some in"  # args[0] for some names[0] in args[1]..args[2]
    OVER = "over"  # args[0] for names[0] in args[1]..args[2], the only argument of sum, prod, max, min, blockdiag
    FUNCTION = (
        "function"  # names[0] -> args[0], the first argument of what takes a function; typed, args[1] is its name
    )


QUANTIFIERS = frozenset({Kind.FOR_ALL, Kind.FOR_SOME})
"""Kinds in which an index ranges over the steps of a run."""

RANGED = frozenset({Kind.EACH, Kind.SOME, Kind.OVER})
"""Kinds in which a letter runs over a range; they are gone once a claim is written out for a depth."""


class Sign(StrEnum):
    """Functions that are written with brackets of their own; no identifiers, so that nobody can call them by name."""

    ENTRY = "{i, j}"  # A{i, j}, and v{i}
    SEGMENT = "{i..p}"  # v{i..p}
    ROWS = "{i..p, :}"  # A{i..p, :}, and A{i, :}
    COLUMNS = "{:, j..q}"
    BLOCK = "{i..p, j..q}"
    ROW = "[,]"  # [A, B]: side by side
    STACK = "[;]"  # [A; B]: one above the other


class Mark(StrEnum):
    """Calls that no text holds: what `ntk_deq.language.application` leaves for the types, and these take away."""

    APPLIED = "applied"  # the body args[0] of a function, names[0] its head and names[1] its text, at the step args[1]
    ARGUMENT = "argument"  # in a body, what was given to it: args[0] stands outside of the body
    SHAPED = "shaped"  # args[0], which must have the shape args[1]; names are the head and the parameter
    SHAPE = "shape"  # the sizes of a number, a vector or a matrix: args


BOUND = "·"
"""What stands in the name of the argument of a function, once it has types, and in no name that can be written."""


@dataclass(slots=True, unsafe_hash=True)
class Span:
    """Where a node stands in its source text: offsets from 0, `stop` excluded."""

    start: Final[int]
    stop: Final[int]


@dataclass(slots=True, unsafe_hash=True)
class Expr:
    """A node, never changed (mypy sees to it; frozen, it would cost four times as much); `type` is None as parsed."""

    kind: Final[Kind]
    span: Final[Span]
    args: Final[tuple[Expr, ...]] = ()
    name: Final[str] = ""
    names: Final[tuple[str, ...]] = ()
    operators: Final[tuple[str, ...]] = ()
    value: Final[Fraction | None] = None
    type: Final[Type | None] = None

    def mapped(self, change: Callable[[Expr], Expr], span: Span | None = None) -> Expr:
        """Return this node with every part changed, perhaps at another place, or itself where all is as it was."""
        args = tuple(map(change, self.args))
        if (span is None or span == self.span) and all(map(is_, args, self.args)):
            return self
        return Expr(self.kind, span or self.span, args, self.name, self.names, self.operators, self.value, self.type)

    @property
    def links(self) -> Iterator[tuple[Expr, str, Expr]]:
        """The comparisons of a chain, each by its left side, its relation and its right side; none of other nodes."""
        return zip(self.args, self.operators, self.args[1:], strict=False)

    def walk(self) -> Iterator[Expr]:
        """Yield this node and every node below it, parents first."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            if node.args:
                stack.extend(node.args[::-1])


def with_constants(expr: Expr, declared: Container[str] = ()) -> Expr:
    """Return a tree without types in which names of constants that are not declared stand for the constants.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> tree = parse("2*pi*r")
        >>> sorted(names_in(with_constants(tree))), sorted(names_in(with_constants(tree, {"pi", "r"})))
        (['r'], ['pi', 'r'])
    """
    if expr.kind is Kind.NAME and expr.name in CONSTANT_NAMES and expr.name not in declared:
        return replace(expr, kind=Kind.CALL)
    return expr.mapped(lambda part: with_constants(part, declared))


def names_in(expr: Expr) -> set[str]:
    """Return every name that an expression reads, with a step or without; not the arguments of functions in it.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> sorted(names_in(parse("norm(Z[l]) <= c*m")))
        ['Z', 'c', 'l', 'm']
    """
    found: set[str] = set()
    binds, stack = False, [expr]
    while stack:
        node = stack.pop()
        kind = node.kind
        if kind is Kind.NAME or kind is Kind.INDEX:
            if BOUND not in node.name:
                found.add(node.name)
        elif kind is Kind.FUNCTION:
            binds = binds or BOUND not in node.names[0]
        stack.extend(node.args)
    return found & free_names(expr) if binds else found


def free_names(expr: Expr) -> set[str]:
    """Return the names that an expression reads and no function in it binds, arguments of functions around it too."""
    own = {expr.name} if expr.kind in (Kind.NAME, Kind.INDEX) else set()
    found = own.union(*map(free_names, expr.args))
    return found - {expr.names[0]} if expr.kind is Kind.FUNCTION else found


def sort_definitions(let: Mapping[str, Formula]) -> tuple[list[str], list[str]]:
    """Return the names in an order in which each uses only earlier ones, and a cycle if there is one.

    The order of the file is kept where it is such an order already. Where there is a cycle, it starts and ends with the
    same name, and the order is that of the file.
    """
    uses = {name: [used for used in formula.names if used in let] for name, formula in let.items()}
    place = {name: index for index, name in enumerate(let)}
    if all(place[used] < place[name] for name, all_used in uses.items() for used in all_used):
        return list(let), []
    try:
        return list(TopologicalSorter({name: sorted(used) for name, used in uses.items()}).static_order()), []
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return list(let), cycle[::-1]


def reached(names: Iterable[str], behind: Callable[[str], Iterable[str]]) -> set[str]:
    """Return the names, what is behind them, what is behind that, and so on."""
    found, waiting = set(names), [*names]
    while waiting:
        new = set(behind(waiting.pop())) - found
        found |= new
        waiting += new
    return found


def dependents(names: set[str], let: Mapping[str, Formula]) -> set[str]:
    """Return the names together with every definition that uses one of them, directly or through others."""
    users: dict[str, list[str]] = {}
    for name, formula in let.items():
        for used in formula.names:
            users.setdefault(used, []).append(name)
    return reached(names, lambda name: users.get(name, ()))


def unused(candidates: Iterable[str], let: Mapping[str, Formula], used: set[str]) -> set[str]:
    """Return the candidates that no statement needs, directly or through definitions.

    Args:
        candidates: Names of `given` and `let`.
        let: The definitions.
        used: Names that the hypotheses, the conclusions and the settings use.
    """
    return set(candidates) - reached(used, lambda name: let[name].names if name in let else ())


def piece_of(matrix: Expr, selectors: list[tuple[Expr, ...]], span: Span) -> Expr:
    """Return the call that takes a piece out of a matrix: by an index, the ends of a range, or nothing for all."""
    if len(selectors) > 2:
        raise ExpressionError(
            f"a piece of a matrix has at most two indices, as in A{{i, j}}. Got {len(selectors)}.",
            (span.start, span.stop),
        )
    if not any(selectors):
        return replace(matrix, span=span)
    if all(len(selector) == 1 for selector in selectors):
        return Expr(Kind.CALL, span, (matrix, *(index for (index,) in selectors)), name=Sign.ENTRY)
    ends = [end for selector in selectors for end in (selector * 2 if len(selector) == 1 else selector)]
    sign = Sign.BLOCK if all(selectors) else Sign.ROWS if selectors[0] else Sign.COLUMNS
    return Expr(Kind.CALL, span, (matrix, *ends), name=Sign.SEGMENT if len(selectors) == 1 else sign)


def call_of(head: str, member: Expr | None, arguments: list[Expr], span: Span) -> Expr:
    """Return a call, nameless where a member of a family is called, or an expression at other values of names.

    Args:
        head: What stands before the bracket.
        member: The member of a family, if that is one.
        arguments: What stands in the brackets; of `NAME = value` and `on: condition` nodes of kind AT with one part
            stand in, without a name for a condition.
        span: Where the call stands.

    Raises:
        ExpressionError: It takes no such arguments.
    """
    pairs = [argument for argument in arguments if argument.kind is Kind.AT and len(argument.args) == 1]
    where = (pairs[0].span.start, pairs[0].span.stop) if pairs else (0, 0)
    if member is not None:
        if pairs:
            raise ExpressionError(f"`{head}[...]` takes no named arguments.", where)
        return Expr(Kind.CALL, span, (member, *arguments))
    if any(not pair.names for pair in pairs):
        return _restricted(head, arguments, span)
    ranged = [argument for argument in arguments if argument.kind is Kind.OVER]
    if ranged and len(arguments) > 1 and not (head == "compose" and ranged == arguments[:1]):
        where = (ranged[0].span.start, ranged[0].span.stop)
        raise ExpressionError(f"what `{head}` takes over a range must be its only argument.", where)
    if head == "at":
        return _replaced_at(arguments, pairs, span)
    if pairs:
        hint = "write == for `equals`; only at(expression, NAME = expression) names its arguments"
        raise ExpressionError(f"`{head}` takes no named arguments.", where, hint)
    return Expr(Kind.CALL, span, tuple(arguments), name=head)


_ON_SETS = ("argmin", "minimum", "infimum")


def _restricted(head: str, given: Sequence[Expr], span: Span) -> Expr:
    """Build `argmin(R, z, on: ...)`, a call whose third argument is the indicator of the set."""
    sets = [arg for arg in given if arg.kind is Kind.AT and not arg.names]
    arguments = [arg for arg in given if arg not in sets]
    where = sets[0].span.start, sets[0].span.stop
    if head not in _ON_SETS:
        raise ExpressionError(f"`{head}` takes no set.", where, f"on: belongs to {', '.join(_ON_SETS)}")
    if len(sets) > 1 or len(arguments) != 2 or arguments[1].kind is not Kind.NAME:
        hint = f"write {head}(R, z, on: T(z) == z)"
        raise ExpressionError("a set needs a function, the name of a variable, and one condition on it.", where, hint)
    indicator = Expr(Kind.CALL, sets[0].span, sets[0].args, name=INDICATOR)
    return Expr(Kind.CALL, span, (*arguments, indicator), name=head)


def _replaced_at(arguments: list[Expr], pairs: list[Expr], span: Span) -> Expr:
    """Return an expression at other values of names: what stands in the brackets of `at`, and the pairs among it."""
    names = [pair.names[0] for pair in pairs]
    if not pairs or len(arguments) != len(pairs) + 1 or arguments[0] is pairs[0]:
        raise ExpressionError(
            "`at` takes one expression and then at least one replacement: at(expression, NAME = expression).",
            (span.start, span.stop),
        )
    for name, pair in zip(names, pairs, strict=True):
        if names.count(name) > 1:
            raise ExpressionError(f"`at` replaces `{name}` twice.", (pair.span.start, pair.span.stop))
    return Expr(Kind.AT, span, (arguments[0], *(pair.args[0] for pair in pairs)), names=tuple(names))


def literal_of(parts: Sequence[Sequence[Expr]], span: Span) -> Expr:
    """Return the call that puts blocks together, given row by row; `[A]` alone is A as a matrix."""
    rows = [Expr(Kind.CALL, Span(row[0].span.start, row[-1].span.stop), tuple(row), name=Sign.ROW) for row in parts]
    for row in rows:
        if len(row.args) > 1 and all(_is_bare_row(part) for part in row.args):
            raise ExpressionError(
                "rows of a matrix are separated by semicolons.", (span.start, span.stop), "write [1, 2; 3, 4]"
            )
    if len(rows) == 1:
        return replace(rows[0], span=span)
    stacked = [row.args[0] if len(row.args) == 1 else row for row in rows]
    stacked = [part.args[0] if _is_bare_row(part) and len(part.args) == 1 else part for part in stacked]
    return Expr(Kind.CALL, span, tuple(stacked), name=Sign.STACK)


MAX_LITERAL = 60
MAX_EXPONENT = 400


def number_of(text: str, span: Span) -> Fraction:
    """Return the exact value of a literal whose size is bounded before any power of ten is formed.

    Raises:
        ExpressionError: It has more than `MAX_LITERAL` characters, or its last digit that is not zero stands too far.
    """
    where = (span.start, span.stop)
    if len(text) > MAX_LITERAL:
        raise ExpressionError(f"a number may have at most {MAX_LITERAL} characters. Got {len(text)}.", where)
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, decimals = mantissa.partition(".")
    digits = (whole + decimals).rstrip("0")
    power = int(exponent or 0) + len(whole) - len(digits)  # of the last digit that is not zero
    if abs(int(exponent or 0)) > MAX_EXPONENT or (digits.strip("0") and abs(power) > MAX_EXPONENT):
        limits = f"between -{MAX_EXPONENT} and {MAX_EXPONENT}"
        raise ExpressionError(f"a number's power of ten must be {limits}. Got {text}.", where)
    return Fraction(text)


def _is_bare_row(expr: Expr) -> bool:
    return expr.kind is Kind.CALL and expr.name == Sign.ROW


def sum_terms(expr: Expr, sign: int) -> Iterator[tuple[int, Expr]]:
    """Yield what a sum consists of, each with its sign."""
    if expr.kind in (Kind.ADD, Kind.SUBTRACT):
        yield from sum_terms(expr.args[0], sign)
        yield from sum_terms(expr.args[1], sign if expr.kind is Kind.ADD else -sign)
    elif expr.kind is Kind.NEGATE:
        yield from sum_terms(expr.args[0], -sign)
    else:
        yield sign, expr


def total(terms: Sequence[tuple[int, Expr]]) -> Expr:
    """Return a sum of terms with signs."""
    sign, first = terms[0]
    found = first if sign > 0 else negated(first)
    for sign, term in terms[1:]:
        found = _binary(Kind.ADD if sign > 0 else Kind.SUBTRACT, found, term)
    return found


_BINARY = {
    "or": Kind.OR, "and": Kind.AND, "+": Kind.ADD, "-": Kind.SUBTRACT, "*": Kind.MULTIPLY, "/": Kind.DIVIDE,
}  # fmt: skip
# A longer flat sum or conjunction becomes a balanced tree, so that its depth grows with the logarithm of its length.
MAX_CHAIN = 50


def chained(operands: Sequence[Expr], signs: Sequence[str]) -> Expr:
    """Return the tree of operands with signs of one level between them, from left to right.

    That of a long sum or conjunction has logarithmic depth: `a - b + c - d` becomes `(a - b) + (c - d)`. Behind a
    minus the signs of the right half are turned round: `a - b - c + d` becomes `(a - b) - (c - d)`.
    """
    if len(operands) > MAX_CHAIN and signs[0] not in ("*", "/"):
        return _balanced(operands, signs)
    tree = operands[0]
    for sign, operand in zip(signs, operands[1:], strict=True):
        tree = Expr(_BINARY[sign], Span(tree.span.start, operand.span.stop), (tree, operand))
    return tree


def _balanced(operands: Sequence[Expr], signs: Sequence[str]) -> Expr:
    if len(operands) <= 2:
        return chained(operands, signs)
    middle = (len(operands) + 1) // 2
    joint, inner = signs[middle - 1], signs[middle:]
    if joint == "-":
        inner = ["+" if sign == "-" else "-" for sign in inner]
    return chained([_balanced(operands[:middle], signs[: middle - 1]), _balanced(operands[middle:], inner)], [joint])


def subtracted(left: Expr, right: Expr) -> Expr:
    """Return left minus right."""
    return _binary(Kind.SUBTRACT, left, right)


def negated(expr: Expr) -> Expr:
    """Return a formula with the other sign."""
    return Expr(Kind.NEGATE, expr.span, (expr,), type=expr.type)


def _binary(kind: Kind, left: Expr, right: Expr) -> Expr:
    return Expr(kind, Span(left.span.start, right.span.stop), (left, right), type=left.type)


RESOLVENT, SUBDIFFERENTIAL = "resolvent", "subdiff"
"""What `g in subdiff(phi, z)` is short for, and the word in it."""

INDICATOR = "indicator"
"""The function that is 0 on a set, and +inf beyond."""


def inclusion(subgradient: Expr, name: str, arguments: Sequence[Expr], span: Span, where: Span) -> Expr:
    """Build `g in subdiff(phi, z)`, which is short for `z == resolvent(phi, z + g)`.

    Args:
        subgradient: g.
        name: The word behind `in`.
        arguments: What stands in brackets behind it.
        span: Where the inclusion stands.
        where: Where the word and its arguments do.

    Raises:
        ExpressionError: It is no subdifferential, or has too few or too many arguments.
    """
    if name != SUBDIFFERENTIAL or len(arguments) != 2:
        message = f"behind `in` stands a subdifferential with two arguments. Got `{name}` with {len(arguments)}."
        raise ExpressionError(message, (where.start, where.stop), f"write g in {SUBDIFFERENTIAL}(phi, z)")
    function, point = arguments
    call = Expr(Kind.CALL, span, (function, Expr(Kind.ADD, span, (point, subgradient))), name=RESOLVENT)
    return Expr(Kind.COMPARE, span, (point, call), operators=("==",))
