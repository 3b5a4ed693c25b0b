"""Families: things indexed by a layer. Members and their names, what a letter runs over, sizes with members in them.

`W: real[n[l], n[l-1]] for l in 1..L` declares one matrix for each l. As long as L is open, the type of `W` holds sizes
such as `n[l-1]`, and that of the member `W[i]` is the same with i for l. For a given L a member is a variable like any
other, whose name no formula can spell otherwise: `W[1]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import product

from ntk_deq.errors import ExpressionError
from ntk_deq.language.format import format_expr
from ntk_deq.language.functionals import FOLDS
from ntk_deq.language.parser import parse, parse_reach
from ntk_deq.language.shapes import fail
from ntk_deq.language.tree import Expr, Kind, Span
from ntk_deq.language.types import Reach, Size, Sort, Type

MAX_MEMBERS = 64
"""Values of a letter that runs over a range; printed theorems are tried with a handful of layers."""

_PARTS = (Kind.NUMBER, Kind.NAME, Kind.ADD, Kind.SUBTRACT, Kind.NEGATE)
_MEMBER = re.compile(r"(\w+)\[(.*)\]")
_FOR = re.compile(r"\s+for\s+(?=[^\W\d]\w*\s+in\s)")


@dataclass(frozen=True)
class Family:
    """What the brackets behind the name of a family may hold.

    Attributes:
        letter: The letter in which the type of its members is written.
        reaches: What its members are indexed by: for a definition, one for each of its parts.
    """

    letter: str
    reaches: tuple[Reach, ...]

    def members(self, name: str) -> str:
        """Return its members in words."""
        return ", ".join(
            member_name(name, reach.start) if reach.start == reach.stop else f"{name}[{reach.letter}] for {reach.text}"
            for reach in self.reaches
        )


def index_size(expr: Expr) -> Size:
    """Return an index such as `l-1` as a polynomial in its letters.

    Raises:
        ExpressionError: It is made of something else than whole numbers and letters with + and -.

    Example:
        >>> str(index_size(parse("L - l + 1")))
        'L - l + 1'
    """
    if expr.kind not in _PARTS:
        fail(expr.span, "an index may be made of whole numbers and letters with + and - only.")
    if expr.kind is Kind.NUMBER:
        if expr.value is None or expr.value.denominator != 1 or expr.value > 10**6:
            fail(expr.span, f"an index must be a whole number up to 1000000. Got {format_expr(expr)}.")
        return Size.of(expr.value.numerator)
    if expr.kind is Kind.NAME:
        return Size.letter(expr.name)
    parts = [index_size(part) for part in expr.args]
    if expr.kind is Kind.NEGATE:
        return parts[0] * -1
    return parts[0] + (parts[1] if expr.kind is Kind.ADD else parts[1] * -1)


def index_text(index: Size) -> str:
    """Return an index as it is written.

    Example:
        >>> index_text(index_size(parse("1 + L - l"))), index_text(Size.of(0))
        ('L-l+1', '0')
    """
    text = ""
    for monomial, coefficient in sorted(index.terms, key=lambda term: (not term[0], term[1] < 0, term[0])):
        sign = "-" if coefficient < 0 else "+" if text else ""
        size = abs(coefficient)
        text += sign + ("*".join(([str(size)] if size != 1 else []) + list(monomial)) or "1")
    return text or "0"


def member_name(name: str, index: Size | int) -> str:
    """Return the name of a member: that of a variable or a size letter once the index is a number.

    Example:
        >>> member_name("W", 2), member_name("n", index_size(parse("l - 1")))
        ('W[2]', 'n[l-1]')
    """
    return f"{name}[{index_text(Size.of(index))}]"


@lru_cache(maxsize=4096)
def split_member(letter: str) -> tuple[str, Size] | None:
    """Return the family and the index of a member's name, or None for a plain name."""
    match = _MEMBER.fullmatch(letter)
    return None if match is None else (match[1], index_size(parse(match[2])))


def substituted(size: Size, values: Mapping[str, Size]) -> Size:
    """Return a size with indices put in the place of letters, inside the brackets of members too.

    Example:
        >>> n = Size.letter(member_name("n", index_size(parse("l - 1"))))
        >>> str(substituted(n * 2, {"l": index_size(parse("l + 1"))}))
        '2*n[l]'
    """
    found = dict(values)
    for letter in size.letters:
        member = split_member(letter)
        if member is not None:
            found[letter] = Size.letter(member_name(member[0], substituted(member[1], values)))
    return size.at(found)


def type_at(type_: Type, values: Mapping[str, Size]) -> Type:
    """Return a type with indices put in the place of letters."""
    if type_.sort is not Sort.MATRIX:
        return type_
    return Type(Sort.MATRIX, substituted(type_.rows, values), substituted(type_.cols, values))


def named_members(size: Expr) -> Expr:
    """Return a size argument in which `n[l-1]` is the name of that size."""
    if size.kind is Kind.INDEX:
        return Expr(Kind.NAME, size.span, name=member_name(size.name, index_size(size.args[0])), type=size.type)
    return size.mapped(named_members)


def letters_in(type_: Type) -> frozenset[str]:
    """Return the letters inside the brackets of the members of which a type is made."""
    members = map(split_member, type_.rows.letters | type_.cols.letters)
    return frozenset(letter for member in members if member is not None for letter in member[1].letters)


def generalised(type_: Type, index: Size, letter: str) -> Iterator[Type]:
    """Yield the types that a family may have whose member at an index has a type: `n[0] x N` at 0 suggests `n[l] x N`.

    Each size of a member stands where it is or moves with the index; those that move come first.
    """
    if type_.sort is not Sort.MATRIX:
        yield type_
        return
    members = [name for name in sorted(type_.rows.letters | type_.cols.letters) if split_member(name) is not None]
    for moves in product((True, False), repeat=min(len(members), 4)):
        moved = {}
        for name, move in zip(members, moves, strict=False):
            family, at = split_member(name) or (name, index)
            moved[name] = member_name(family, at + index * -1 + Size.letter(letter)) if move else name
        names = {name: Size.letter(moved.get(name, name)) for name in type_.rows.letters | type_.cols.letters}
        yield replace(type_, rows=type_.rows.at(names), cols=type_.cols.at(names))


def concrete_type(type_: Type, depth: Mapping[str, int], own: Mapping[str, int]) -> Type:
    """Return a type for one depth: members by their numbers, a letter of `own` as its value, plain sizes as they are.

    Args:
        type_: The type with its depth open.
        depth: Values of the depths.
        own: Value of the letter of the family whose member has the type.

    Example:
        >>> from ntk_deq.language.types import matrix
        >>> str(concrete_type(matrix(Size.letter("n[l-1]"), Size.letter("L")), {"L": 3}, {"l": 2}))
        'matrix n[1] x L'
    """
    if type_.sort is not Sort.MATRIX:
        return type_
    values = {**depth, **own}
    found = {letter: Size.of(value) for letter, value in own.items()}
    for letter in type_.rows.letters | type_.cols.letters:
        member = split_member(letter)
        if member is not None:
            found[letter] = Size.letter(member_name(member[0], member[1].evaluate(values)))
    return Type(Sort.MATRIX, type_.rows.at(found), type_.cols.at(found))


def summed(size: Size, reach: Reach, outer: Mapping[str, Reach], span: Span) -> Size:
    """Return the sum of a size over a range: a multiple where it does not change, else a size of its own.

    Args:
        size: The size.
        reach: The range.
        outer: The ranges of the letters around it.
        span: Where it stands.

    Example:
        >>> reach = reach_of(parse("sum(l for l in 1..L)").args[0])
        >>> nowhere = Span(0, 0)
        >>> str(summed(Size.letter("m") * 2, reach, {}, nowhere)), str(summed(Size.letter("n[l]"), reach, {}, nowhere))
        ('2*L*m', 'sum(n[l] for l in 1..L)')
    """
    down = downward(reach, outer, span)
    first, last = (reach.stop, reach.start) if down else (reach.start, reach.stop)
    if substituted(size, {reach.letter: Size.letter(reach.letter) + 1}) == size:
        return size * (last - first + 1)
    members = [(name, split_member(name)) for name in size.letters]
    letters = {part for name, found in members for part in ((name,) if found is None else found[1].letters)}
    letter = "l" if "l" not in (letters | first.letters | last.letters) - {reach.letter} else reach.letter
    size = substituted(size, {reach.letter: Size.letter(letter)})
    return Size.letter(f"sum({size} for {letter} in {index_text(first)}..{index_text(last)})")


@lru_cache(maxsize=4096)
def size_of(text: str) -> Size:
    """Return the size that a text denotes: whole numbers, letters and members with + and *, sums over a range.

    Raises:
        ExpressionError: It is none.

    Example:
        >>> str(size_of("m*2 + n[1]")), str(size_of("sum(n[l] for l in 1..L)"))
        ('2*m + n[1]', 'sum(n[l] for l in 1..L)')
    """
    return _size(parse(text))


def _size(expr: Expr) -> Size:
    if expr.kind is Kind.NUMBER and expr.value is not None and expr.value.denominator == 1:
        return Size.of(expr.value.numerator)
    if expr.kind is Kind.NAME:
        return Size.letter(expr.name)
    if expr.kind is Kind.INDEX and len(expr.args) == 1:
        return Size.letter(member_name(expr.name, index_size(expr.args[0])))
    if expr.kind in (Kind.ADD, Kind.MULTIPLY):
        left, right = map(_size, expr.args)
        return left + right if expr.kind is Kind.ADD else left * right
    if expr.kind is Kind.CALL and expr.args and expr.args[0].kind is Kind.OVER and _is_sum(expr.name):
        over = expr.args[0]
        return summed(_size(over.args[0]), reach_of(over), {}, expr.span)
    what = "a size is made of whole numbers and size letters with + and *, and of sums such as sum(n[l] for l in 1..L)."
    fail(expr.span, what)


def _is_sum(name: str) -> bool:
    return name in FOLDS and FOLDS[name].joins is Kind.ADD


def size_expr(size: Size, span: Span) -> Expr:
    """Return a size as an expression.

    Raises:
        ExpressionError: It has a negative coefficient.
    """
    total: Expr | None = None
    for monomial, coefficient in size.terms:
        if coefficient < 0:
            fail(span, f"a size must be a sum of products. Got {size}.")
        factors = [Expr(Kind.NAME, span, name=letter) for letter in monomial]
        if coefficient != 1 or not factors:
            factors.insert(0, number(coefficient, span))
        term = factors[0]
        for factor in factors[1:]:
            term = Expr(Kind.MULTIPLY, span, (term, factor))
        total = term if total is None else Expr(Kind.ADD, span, (total, term))
    return number(0, span) if total is None else total


def number(value: int, span: Span) -> Expr:
    """Return a whole number as an expression, negative ones included."""
    literal = Expr(Kind.NUMBER, span, value=Fraction(abs(value)))
    return literal if value >= 0 else Expr(Kind.NEGATE, span, (literal,))


def split_for(text: str) -> tuple[str, Reach | None]:
    """Split `real[n[l]] for l in 1..L` into the declaration and what its letter runs over; None where it is no family.

    Raises:
        ExpressionError: What stands behind `for` is no range.

    Example:
        >>> body, reach = split_for("real[n[l]] for l in 1..L")
        >>> body, reach.text
        ('real[n[l]]', 'l in 1..L')
    """
    found = _FOR.search(text)
    if found is None:
        return text, None
    try:
        return text[: found.start()], reach_of(parse_reach(text[found.end() :]))
    except ExpressionError as error:
        start, stop = error.span
        raise ExpressionError(error.message, (start + found.end(), stop + found.end()), error.hint) from None


def reach_of(node: Expr) -> Reach:
    """Return what the letter of a node runs over.

    Raises:
        ExpressionError: A bound is neither a number nor one letter plus or minus a number.
    """
    bounds = []
    for bound in node.args[-2:]:
        size = index_size(bound)
        if len(size.letters) > 1 or any(c != 1 for monomial, c in size.terms if monomial):
            fail(bound.span, "a bound of a range is a number, a letter, or a letter plus or minus a number.")
        bounds.append(size)
    letter = node.names[0]
    for bound, size in zip(node.args[-2:], bounds, strict=True):
        if letter in size.letters:
            fail(bound.span, f"the range of `{letter}` cannot depend on `{letter}`.")
    start, stop = bounds
    return Reach(letter, start, stop, f"{letter} in {index_text(start)}..{index_text(stop)}")


def downward(reach: Reach, outer: Mapping[str, Reach], span: Span) -> bool:
    """Return whether a range runs downward; its letters say so, and never their values.

    So `1..L-1` is empty at L = 1 and `L..1` has one value there. Two numbers, and a letter twice, run the way they are
    written; a letter that is a size lies above a number and above a letter that runs over a range.

    Args:
        reach: The range.
        outer: The ranges of the letters around it.
        span: Where it stands.

    Raises:
        ExpressionError: The letters do not say which way it runs.
    """
    first, last = (next(iter(bound.letters), None) for bound in (reach.start, reach.stop))
    if first == last:
        return ((reach.start + reach.stop * -1).constant or 0) > 0
    if first is None or last is None:
        return last is None
    if (first in outer) != (last in outer):
        return last in outer
    below = _below(first, last, outer)
    if below is None:
        fail(
            span,
            f"which way `{reach.text}` runs is not clear: neither of `{first}` and `{last}` is a bound of the other.",
            "let one of them run up or down to the other, or start the range at a number",
        )
    return not below


def _below(first: str, last: str, outer: Mapping[str, Reach]) -> bool | None:
    """Return whether `first` lies below `last`, both of which run over a range; None where nothing says so."""
    for low, high, answer in ((first, last, True), (last, first, False)):
        if low in outer:
            reach = outer[low]
            down = downward(reach, {name: r for name, r in outer.items() if name != low}, Span(0, 0))
            least, most = (reach.stop, reach.start) if down else (reach.start, reach.stop)
            if high in most.letters:
                return answer
            if high in least.letters:
                return not answer
    return None


def values_of(reach: Reach, values: Mapping[str, int], outer: Mapping[str, Reach], span: Span) -> range:
    """Return the values of a letter in their order, for given values of the letters of its bounds.

    Raises:
        ExpressionError: There are more than `MAX_MEMBERS`.
    """
    start, stop = reach.start.evaluate(values), reach.stop.evaluate(values)
    found = range(start, stop - 1, -1) if downward(reach, outer, span) else range(start, stop + 1)
    if len(found) > MAX_MEMBERS:
        fail(span, f"a range may have at most {MAX_MEMBERS} members. Got {reach.text} with {len(found)}.")
    return found


@dataclass(frozen=True)
class Defined:
    """What an entry of `let` defines.

    Attributes:
        name: The name, or that of a family.
        index: The member, or None for a plain name.
        reach: What the letter of the index runs over, or None where one member is defined.
        step: What stands in its second brackets: the step of a recursion whose members are a family, or None.
    """

    name: str
    index: Size | None = None
    reach: Reach | None = None
    step: Size | None = None

    def member(self, value: int) -> str:
        """Return the name of a member."""
        return member_name(self.name, value)


@lru_cache(maxsize=4096)
def defined(key: str) -> Defined:
    """Return what an entry of `let` defines, from its name: `q`, `z[0]`, `z[l] for l in 1..L`, `W[l][k+1] for ...`.

    Raises:
        ExpressionError: It is none of these.

    Example:
        >>> entry = defined("z[l] for l in 1..L")
        >>> entry.name, str(entry.index), entry.reach.text
        ('z', 'l', 'l in 1..L')
    """
    if "[" not in key:
        return Defined(key)
    body, reach = split_for(key)
    expr = parse(body)
    if expr.kind is not Kind.INDEX:
        raise ExpressionError("a definition is called by a name, or a member such as z[0].", (0, len(key)))
    index = index_size(expr.args[0])
    if reach is not None and index != Size.letter(reach.letter):
        allowed = f"`{expr.name}[{reach.letter}] for {reach.text}`"
        raise ExpressionError(f"the members of a range are written {allowed}. Got {key}.", (0, len(key)))
    return Defined(expr.name, index, reach, index_size(expr.args[1]) if len(expr.args) > 1 else None)


def bound_letters(keys: Iterable[str]) -> list[str]:
    """Return the letters that bound the ranges of definitions, such as the K of `z[l] for l in 1..K`.

    Example:
        >>> bound_letters(["z[0]", "z[l] for l in 1..K-1", "yhat"])
        ['K']
    """
    reaches = [defined(key).reach for key in keys if _FOR.search(key)]
    return [letter for reach in reaches if reach for letter in sorted(reach.start.letters | reach.stop.letters)]


def quoted(expr: Expr) -> Expr:
    """Return a tree whose text parses back to it where it names members by their numbers.

    Example:
        >>> tree = Expr(Kind.NAME, Span(0, 0), name="W[1]")
        >>> format_expr(quoted(tree)), parse(format_expr(quoted(tree))).name
        ('`W[1]`', 'W[1]')
    """
    expr = expr.mapped(quoted)
    member = expr.kind in (Kind.NAME, Kind.INDEX) and expr.name.endswith("]")
    return replace(expr, name=f"`{expr.name}`") if member else expr
