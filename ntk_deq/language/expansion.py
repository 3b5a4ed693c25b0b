"""Expressions with names replaced by others, and formulas written out for a depth.

Substitution captures nothing and limits what comes out. For a depth, members get their names, sums and products are
written term by term, statements are joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ntk_deq.errors import ExpressionError
from ntk_deq.language.arguments import COMPOSE
from ntk_deq.language.families import (
    concrete_type,
    index_size,
    index_text,
    member_name,
    number,
    quoted,
    reach_of,
    size_expr,
    size_of,
    split_member,
    type_at,
)
from ntk_deq.language.families import values_of as range_values
from ntk_deq.language.format import format_expr
from ntk_deq.language.functionals import FOLDS
from ntk_deq.language.parser import parse
from ntk_deq.language.shapes import fail
from ntk_deq.language.tree import QUANTIFIERS, RANGED, Expr, Kind, Mark, Span, names_in
from ntk_deq.language.types import Reach, Size, Sort, Type

MAX_NODES = 20_000
"""Parts of one formula once its functions are written out; each use of a parameter repeats the argument."""

MAX_LEVELS = 160
"""Levels of one; the interpreter has room for 250, and derivatives by name may add 60."""


def substituted(expr: Expr, values: Mapping[str, Expr], span: Span | None = None) -> Expr:
    """Return an expression without types in which names stand for other expressions; nothing is captured.

    A letter, a step or an argument that the expression binds itself is called otherwise where a value uses its name.

    Args:
        expr: The expression.
        values: What the names stand for.
        span: The place that all its parts get, or None: they keep theirs. Values keep theirs.

    Example:
        >>> from ntk_deq.language.format import format_expr
        >>> from ntk_deq.language.parser import parse
        >>> format_expr(substituted(parse("sum(u{l} for l in 1..n)"), {"u": parse("v*l")}))
        'sum((v*l){l_} for l_ in 1..n)'
    """
    if expr.kind is Kind.NAME:
        return values[expr.name] if expr.name in values else expr.mapped(lambda part: part, span)
    outer = values
    names, body = expr.names, expr.args[:1]
    if expr.kind is Kind.FUNCTION or expr.kind in QUANTIFIERS or expr.kind in RANGED:
        free = names_in(expr)
        values = {name: value for name, value in values.items() if name not in names and name in free}
        taken = set().union(*map(names_in, values.values()))
        if taken & {*names}:
            used = taken | {node.name for node in expr.walk()} | {name for node in expr.walk() for name in node.names}
            renamed = {name: unused_name(name, used) if name in taken else name for name in names}
            names = tuple(renamed.values())
            bound = {old: Expr(Kind.NAME, expr.span, name=new) for old, new in renamed.items()}
            values = {**values, **bound}
        if expr.kind in QUANTIFIERS:
            body = expr.args
        args = (
            *(substituted(part, values, span) for part in body),
            *(substituted(part, outer, span) for part in expr.args[len(body) :]),
        )
        return replace(expr, args=args, names=names, span=span or expr.span)
    return expr.mapped(lambda part: substituted(part, values, span), span)


def unused_name(name: str, used: set[str]) -> str:
    """Return a name that is not used, by adding `_` to one."""
    while name in used:
        name += "_"
    return name


def check_size(expr: Expr) -> None:
    """Refuse what is too large once its functions are written out."""
    count, stack = 0, [(expr, 1)]
    while stack:
        node, level = stack.pop()
        count += 1
        if count > MAX_NODES:
            fail(expr.span, f"with its functions written out, this has more than {MAX_NODES} parts.")
        if level > MAX_LEVELS:
            fail(expr.span, f"with its functions written out, this is nested more than {MAX_LEVELS} levels deep.")
        stack.extend((part, level + (node.name not in _MARKS)) for part in node.args)


_MARKS = frozenset(Mark)


MAX_ALL = 5 * MAX_NODES
"""Nodes of all formulas of a claim that is written out for one depth."""


@dataclass
class Expansion:
    """Writes the formulas of a claim out for one choice of its depths.

    Attributes:
        depth: The value of each letter that ranges and indices use.
        members: The indices that each family has; families of sizes among them.
        where: Values of the letters that run over ranges where the last error arose, in words: `l = 2`.
    """

    depth: Mapping[str, int]
    members: Mapping[str, frozenset[int]]
    where: str = ""
    _count: int = field(default=0, init=False)
    _all: int = field(default=0, init=False)

    def formula(self, expr: Expr, values: Mapping[str, int] | None = None, over: Reach | None = None) -> Expr:
        """Return a typed tree written out; the result has no types.

        Args:
            expr: The tree, typed as long as the depth is open: what is empty takes its shape from there.
            values: Values of the letters around it, as in the definition of a member.
            over: What the letter in the definition of a member runs over, by which ranges that start at it are read.

        Raises:
            ExpressionError: A member is outside its range, something empty has no value, or too much is written out.
        """
        self._count, self.where = 0, ""
        return self._visit(expr, {**self.depth, **(values or {})}, {} if over is None else {over.letter: over})

    def size(self, text: str) -> Size:
        """Return a size of the state of a model written out."""
        return size_of(format_expr(quoted(self.formula(parse(text)))))

    def _visit(self, node: Expr, values: dict[str, int], outer: dict[str, Reach]) -> Expr:
        self._count += 1
        self._all += 1
        if self._count > MAX_NODES:
            fail(node.span, f"written out for its depth, this has more than {MAX_NODES} parts.")
        if self._all > MAX_ALL:
            fail(node.span, f"written out for its depth, the claim has more than {MAX_ALL} parts.")
        if node.kind is Kind.CALL and node.args and node.args[0].kind is Kind.OVER:
            return self._folded(node, values, outer)
        if node.kind in RANGED:
            return self._said(node, values, outer)
        if node.kind is Kind.INDEX and node.name in self.members:
            return self._member(node, values, outer)
        if node.kind is Kind.NAME and node.name in values and node.name not in self.depth:
            return number(values[node.name], node.span)
        if node.kind is Kind.FUNCTION:
            return self._function(node, values, outer)
        names = tuple(self._replaced(node, name, values) for name in node.names) if node.kind is Kind.AT else node.names
        args = tuple(self._visit(child, values, outer) for child in node.args)
        return replace(node, args=args, names=names, type=None)

    def _function(self, node: Expr, values: dict[str, int], outer: dict[str, Reach]) -> Expr:
        """Return a function whose argument has the shape that it has here."""
        type_ = concrete_type(_type_of(node.args[1]), values, {})
        sizes = [] if type_.sort is not Sort.MATRIX else [type_.rows, type_.cols]
        letters = {letter: Size.of(value) for letter, value in values.items() if letter not in self.depth}
        parts = tuple(size_expr(size.at(letters), node.span) for size in sizes)
        shape = Expr(Kind.CALL, node.span, parts, name=Mark.SHAPE)
        return replace(node, args=(self._visit(node.args[0], values, outer), shape), type=None)

    def _replaced(self, node: Expr, name: str, values: dict[str, int]) -> str:
        """Return the variable that `at` replaces, of a family the member."""
        member = split_member(name)
        if member is None:
            return name
        index = member[1].evaluate(values)
        if index not in self.members.get(member[0], ()):
            self.where = _words({name: values[name] for name in values if name not in self.depth})
            fail(node.span, f"`{name}` is no member of `{member[0]}`, which has {self._has(member[0])}.")
        return member_name(member[0], index)

    def _member(self, node: Expr, values: dict[str, int], outer: dict[str, Reach]) -> Expr:
        index = index_size(node.args[0]).evaluate(values)
        if index not in self.members[node.name]:
            self.where = _words({name: values[name] for name in values if name not in self.depth})
            at = f"{member_name(node.name, index)}, which is " if node.args[0].kind is not Kind.NUMBER else ""
            shown = f"{node.name}[{index_text(index_size(node.args[0]))}]"
            fail(node.span, f"`{shown}` is {at}no member of `{node.name}`, which has {self._has(node.name)}.")
        name = member_name(node.name, index)
        if len(node.args) == 1:
            return Expr(Kind.NAME, node.span, name=name)
        step = self._visit(node.args[1], values, outer)
        return Expr(Kind.INDEX, node.span, (step,), name=name)

    def _has(self, name: str) -> str:
        indices = sorted(self.members[name])
        if not indices:
            return "none"
        if len(indices) > 2 and indices[-1] - indices[0] == len(indices) - 1:
            return f"{member_name(name, indices[0])} to {member_name(name, indices[-1])}"
        return ", ".join(member_name(name, index) for index in indices)

    def _parts(self, node: Expr, values: dict[str, int], outer: dict[str, Reach]) -> list[Expr]:
        """Return the body of a node once for each value of its letter, in order."""
        reach = reach_of(node)
        inner = {**outer, reach.letter: reach}
        found = range_values(reach, values, outer, node.args[-2].span)
        return [self._visit(node.args[0], {**values, reach.letter: value}, inner) for value in found]

    def _said(self, node: Expr, values: dict[str, int], outer: dict[str, Reach]) -> Expr:
        parts = self._parts(node, values, outer)
        if parts:
            return _joined(parts, Kind.AND if node.kind is Kind.EACH else Kind.OR, node.span)
        sign = "<" if node.kind is Kind.EACH else ">"  # true of nothing for all, of nothing for some
        ends = number(0, node.span), number(1, node.span)
        return Expr(Kind.COMPARE, node.span, ends, operators=(sign,))

    def _composed(self, node: Expr, values: dict[str, int], outer: dict[str, Reach]) -> Expr:
        """Return functions of a range applied one after the other."""
        over, found = node.args[0], self._visit(node.args[1], values, outer)
        function, reach = over.args[0], reach_of(over)
        inner = {**outer, reach.letter: reach}
        for value in range_values(reach, values, outer, over.args[-2].span):
            body = self._visit(function.args[0], {**values, reach.letter: value}, inner)
            found = substituted(body, {function.names[0]: found})
            check_size(found)
        return found

    def _folded(self, node: Expr, values: dict[str, int], outer: dict[str, Reach]) -> Expr:
        if node.name == COMPOSE:
            return self._composed(node, values, outer)
        parts = self._parts(node.args[0], values, outer)
        fold = FOLDS[node.name]
        if parts and fold.joins is not None:
            return _joined(parts, fold.joins, node.span)
        if len(parts) == 1 and fold.of_numbers:
            return parts[0]
        if parts:
            return replace(node, args=tuple(parts), type=None)
        if fold.joins is None:
            self.where = _words({name: values[name] for name in values if name not in self.depth})
            fail(node.span, f"`{node.name}` over an empty range has no value.")
        return self._empty(node, values, is_sum=fold.joins is Kind.ADD)

    def _empty(self, node: Expr, values: dict[str, int], *, is_sum: bool) -> Expr:
        """Return the sum or the product of nothing."""
        type_ = _type_of(node)
        if type_.sort is not Sort.MATRIX:
            return number(0 if is_sum else 1, node.span)
        type_ = type_at(type_, {letter: Size.of(value) for letter, value in values.items()})
        if is_sum:
            sizes = size_expr(type_.rows, node.span), size_expr(type_.cols, node.span)
            return Expr(Kind.CALL, node.span, sizes, name="zeros")
        if type_.rows != type_.cols:
            fail(node.span, f"a product over an empty range is the identity, which no {type_} is.")
        return Expr(Kind.CALL, node.span, (size_expr(type_.rows, node.span),), name="I")


def _type_of(node: Expr) -> Type:
    if node.type is None:
        raise ExpressionError("this part has no type yet.", (node.span.start, node.span.stop))
    return node.type


def _words(values: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _joined(parts: Sequence[Expr], kind: Kind, span: Span) -> Expr:
    """Return a tree of logarithmic depth that joins parts in their order."""
    if len(parts) == 1:
        return parts[0]
    middle = (len(parts) + 1) // 2
    return Expr(kind, span, (_joined(parts[:middle], kind, span), _joined(parts[middle:], kind, span)))


def apart(function: Expr, used: set[str]) -> Expr:
    """Return a function whose argument is called otherwise where its name is used."""
    (name,) = function.names
    if name not in used:
        return function
    new = unused_name(name, used | names_in(function.args[0]))
    body = substituted(function.args[0], {name: Expr(Kind.NAME, function.span, name=new)})
    return replace(function, args=(body, *function.args[1:]), names=(new,))
