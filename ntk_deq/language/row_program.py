"""A formula that treats samples apart, as steps on matrices with one sample a row, whichever way it turns them.

`W*Z + U*X` with a sample in each column and `Z*W' + X*U'` with one in each row are the same program: a product of the
rows with `W'`, another with `U'`, a sum. What reads a program (values, slopes, tangent kernels) knows rows only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from ntk_deq.language.calls import Parameter
from ntk_deq.language.format import format_expr
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.record import Product
from ntk_deq.language.tree import Expr, Kind, Span
from ntk_deq.language.types import ONE, SCALAR, Size, Sort
from ntk_deq.language.written import definition_of, put


class Op(StrEnum):
    """What a step does."""

    STATE = "state"
    INPUT = "input"
    CONSTANT = "constant"  # `value` in every entry
    PRODUCT = "product"  # args[0] times the matrix fixed[0], or its transpose where `flipped`
    SCALE = "scale"  # args[0] times the number fixed[0]
    SUM = "sum"  # of all args, with `signs`
    ENTRYWISE = "entrywise"  # the function `name` of args[0]
    HADAMARD = "hadamard"  # the entrywise product of two
    SOFTMAX = "softmax"  # exp(x)/sum(exp(x)) of each row of args[0]


@dataclass(frozen=True, eq=False)
class Row:
    """One step, and what it needs; equal steps of a program are one object.

    Attributes:
        op: What it does.
        width: Columns of its value.
        args: Steps before it.
        fixed: Formulas that know no samples.
        flipped: Whether the matrix of a product stands transposed.
        signs: Of the terms of a sum, 1 or -1.
        name: The function.
        value: Of a constant.
        moving: Whether it depends on the state.
    """

    op: Op
    width: Size
    args: tuple[Row, ...] = ()
    fixed: tuple[Expr, ...] = ()
    flipped: bool = False
    signs: tuple[int, ...] = ()
    name: str = ""
    value: float = 0.0
    moving: bool = False

    def steps(self) -> list[Row]:
        """Return every step below this one and itself, each once, in an order of evaluation."""
        found: dict[int, Row] = {}
        waiting = [self]  # no recursion: definitions may build on each other hundreds deep
        while waiting:
            row = waiting[-1]
            before = [arg for arg in row.args if id(arg) not in found]
            if before:
                waiting += before[::-1]
            else:
                found.setdefault(id(row), row)
                waiting.pop()
        return list(found.values())


class MixesError(Exception):
    """Samples are not seen to be apart."""


def _number(value: Fraction | int) -> Expr:
    return Expr(Kind.NUMBER, Span(0, 0), value=Fraction(value), type=SCALAR)


def _inverse(number: Expr) -> Expr:
    return Expr(Kind.DIVIDE, number.span, args=(_number(1), number), type=SCALAR)


_OF_THE_MODEL = {Parameter.VARIABLE, Parameter.STATE}


def is_number(expr: Expr) -> bool:
    """Whether a typed formula is a number and no matrix."""
    return expr.type is not None and expr.type.sort is not Sort.MATRIX


def sizes_of(expr: Expr) -> tuple[Size, Size]:
    """Return the rows and columns of a typed formula, 1 and 1 of a number."""
    return (ONE, ONE) if expr.type is None else (expr.type.rows, expr.type.cols)


@dataclass
class Rows:
    """Translates formulas; keeps one object for equal steps.

    Attributes:
        letter: The number of samples.
        sources: The names of state and inputs, with what they are.
        definitions: Formulas that a name may stand for.
        texts: Their source texts, for messages.
        targets: Names that no prediction may read.
    """

    letter: str
    sources: Mapping[str, Op]
    definitions: Mapping[str, Expr]
    texts: Mapping[str, str]
    targets: tuple[str, ...]
    _text: str = ""
    _meanings: dict[str, Row | MixesError | None] = field(default_factory=dict)
    _known: dict[tuple[object, ...], Row] = field(default_factory=dict)

    def of(self, expr: Expr, text: str) -> Row | None:
        """Return the step that gives a formula's value; None where it knows no samples.

        Args:
            expr: The formula, typed.
            text: Its source.

        Raises:
            MixesError: Samples are not seen to be apart.
        """
        before, self._text = self._text, text
        try:
            return self.translated(expr)
        finally:
            self._text = before

    def shown(self, expr: Expr) -> str:
        """Return the source text of a part."""
        return f"`{self._text[expr.span.start : expr.span.stop]}`"

    def translated(self, expr: Expr) -> Row | None:
        """Return the step that gives a formula's value; None where it knows no samples.

        Raises:
            MixesError: Samples are not seen to be apart.
        """
        match expr.kind:
            case Kind.NUMBER:
                return None
            case Kind.NAME:
                return self._name(expr)
            case Kind.CALL:
                return self._call(expr)
            case Kind.TRANSPOSE:
                return self.translated(expr.args[0])
            case Kind.NEGATE:
                row = self.translated(expr.args[0])
                return None if row is None else self._sum([(row, -1)])
            case Kind.ADD | Kind.SUBTRACT:
                return self._added(expr)
            case Kind.MULTIPLY:
                return self._product(expr)
            case Kind.DIVIDE:
                return self._quotient(expr)
            case Kind.POWER:
                if any(self.translated(arg) is not None for arg in expr.args):
                    raise MixesError(f"{self.shown(expr)} takes a power of samples.")
                return None
        raise MixesError(f"{self.shown(expr)} may not stand in a formula of a model's class.")

    def _name(self, expr: Expr) -> Row | None:
        if expr.name in self.sources:
            op = self.sources[expr.name]
            return self._made(op, self._width(expr), moving=op is Op.STATE)
        if expr.name == self.letter:
            raise MixesError(f"`{expr.name}` is the number of all samples, on which no single sample may depend.")
        if expr.name in self.targets:
            raise MixesError(f"`{expr.name}` is the target, which a map must not read.")
        if expr.name not in self.definitions:
            return None
        found = self._meanings.get(expr.name)
        if expr.name not in self._meanings:
            found = self._meaning(expr.name)
        if isinstance(found, MixesError):
            raise found
        return found

    def _meaning(self, name: str) -> Row | MixesError | None:
        """Return what a definition is translated to, kept for the next that needs it, or why it is not."""
        try:
            found: Row | MixesError | None = self.of(self.definitions[name], self.texts[name])
        except MixesError as error:
            found = error
        self._meanings[name] = found
        return found

    def define(self) -> None:
        """Translate every definition, each of which builds on earlier ones."""
        for name in self.definitions:
            if name not in self._meanings:
                self._meaning(name)

    def _width(self, expr: Expr) -> Size:
        """Return the size across the samples; one of them must be the number of samples, and the other free of it."""
        rows, cols = sizes_of(expr)
        samples = [size == Size.letter(self.letter) for size in (rows, cols)]
        if sum(samples) != 1 or self.letter in (cols if samples[0] else rows).letters:
            raise MixesError(f"{self.shown(expr)} has the size {rows} x {cols}, no row or column of which is a sample.")
        return cols if samples[0] else rows

    def _added(self, expr: Expr) -> Row | None:
        left, right = map(self.translated, expr.args)
        if left is None and right is None:
            return None
        if left is None or right is None:
            raise MixesError(f"{self.shown(expr)} adds what is no sample to samples.")
        return self._sum([(left, 1), (right, 1 if expr.kind is Kind.ADD else -1)])

    def _sum(self, terms: list[tuple[Row, int]]) -> Row:
        """Return the sum; sums among the terms are written out."""
        flat: list[tuple[Row, int]] = []
        for row, sign in terms:
            if row.op is Op.SUM:
                flat += [(part, sign * own) for part, own in zip(row.args, row.signs, strict=True)]
            else:
                flat.append((row, sign))
        still = [term for term in flat if not term[0].moving]
        if 1 < len(still) < len(flat):  # so that what does not move is added up once
            flat = [*(term for term in flat if term[0].moving), (self._total(still), 1)]
        return self._total(flat)

    def _total(self, terms: list[tuple[Row, int]]) -> Row:
        if len(terms) == 1 and terms[0][1] == 1:
            return terms[0][0]
        rows = tuple(row for row, _ in terms)
        return self._made(Op.SUM, rows[0].width, rows, signs=tuple(sign for _, sign in terms))

    def _product(self, expr: Expr) -> Row | None:
        left, right = expr.args
        before, after = self._factor(left, expr), self._factor(right, expr)
        if before is None and after is None:
            return None
        if before is not None and after is not None:
            raise MixesError(f"{self.shown(expr)} multiplies samples by samples.")
        row, fixed, on_right = (before, right, True) if before is not None else (after, left, False)
        assert row is not None
        sample, number = (left, right) if on_right else (right, left)
        if is_number(number) or not self._meets(expr):
            return self._scaled(row, fixed)
        rows, _ = sizes_of(sample)
        if (rows == Size.letter(self.letter)) != on_right:
            side = "right" if on_right else "left"
            raise MixesError(f"{self.shown(expr)} multiplies samples from the {side}, which mixes them.")
        return self._multiplied(row, fixed, flipped=not on_right)

    def _factor(self, factor: Expr, product: Expr) -> Row | None:
        """Return a factor's step; what has as many rows and columns as samples mixes them, whatever it is."""
        rows, cols = sizes_of(factor)
        if self.letter in rows.letters and self.letter in cols.letters:
            raise MixesError(f"{self.shown(product)} multiplies samples from the left, which mixes them.")
        return self.translated(factor)

    def _meets(self, expr: Expr) -> bool:
        """Whether a product is one of matrices, and not that with a 1 x 1 matrix as a number."""
        (_, inner), (other, _) = map(sizes_of, expr.args)
        return inner == other

    def _multiplied(self, row: Row, fixed: Expr, *, flipped: bool) -> Row:
        if row.op is Op.SCALE:  # so that the number is no part of what is done again and again
            row, (number,) = row.args[0], row.fixed
            fixed = Expr(Kind.MULTIPLY, fixed.span, args=(number, fixed), type=fixed.type)
        rows, cols = sizes_of(fixed)
        return self._made(Op.PRODUCT, rows if flipped else cols, (row,), (fixed,), flipped=flipped)

    def _scaled(self, row: Row, number: Expr) -> Row:
        if row.op is Op.PRODUCT:
            (fixed,) = row.fixed
            scaled = Expr(Kind.MULTIPLY, fixed.span, args=(number, fixed), type=fixed.type)
            return self._made(Op.PRODUCT, row.width, row.args, (scaled,), flipped=row.flipped)
        if row.op is Op.SCALE:
            number = Expr(Kind.MULTIPLY, number.span, args=(number, row.fixed[0]), type=number.type)
            row = row.args[0]
        return self._made(Op.SCALE, row.width, (row,), (number,))

    def _quotient(self, expr: Expr) -> Row | None:
        above, below = expr.args
        if self.translated(below) is not None:
            raise MixesError(f"{self.shown(expr)} divides by samples.")
        row = self.translated(above)
        if row is None:
            return None
        return self._scaled(row, _inverse(below))

    def _call(self, expr: Expr) -> Row | None:
        record = FUNCTIONS[expr.name]
        if _OF_THE_MODEL & set(record.parameters):
            raise MixesError(f"`{expr.name}` may not stand in a formula of a model's class.")
        if record.filled is not None and self.letter in {name for size in sizes_of(expr) for name in size.letters}:
            rows, cols = sizes_of(expr)
            if self.letter in rows.letters and self.letter in cols.letters:
                raise MixesError(f"{self.shown(expr)} has a row and a column for each sample, which mixes them.")
            return self._made(Op.CONSTANT, self._width(expr), value=float(record.filled))
        parts = [self.translated(arg) for arg in expr.args]
        found = [row for row in parts if row is not None]
        if not found:
            return None
        if record.by_entries:
            return self._by_entries(expr, parts)
        if record.product is Product.ENTRIES and len(found) == 2:
            return self._made(Op.HADAMARD, found[0].width, tuple(found))
        if expr.name == "softmax" and sizes_of(expr.args[0])[1] == Size.letter(self.letter):
            return self._made(Op.SOFTMAX, found[0].width, tuple(found))
        if expr.name == "softmax":
            raise MixesError(f"{self.shown(expr)} sums over samples, which mixes them; softmax(A')' is that of rows.")
        raise MixesError(f"`{expr.name}` is not seen to treat samples apart.")

    def _by_entries(self, expr: Expr, parts: list[Row | None]) -> Row:
        """Return a function of each entry; one with a parameter is written out in those of the entry alone."""
        row, *others = parts
        if row is None or any(other is not None for other in others):
            raise MixesError(f"`{expr.name}` has a parameter that depends on samples.")
        written = definition_of(expr.name, len(parts))
        if written is None:
            return self._made(Op.ENTRYWISE, row.width, (row,), name=expr.name)
        names, formula = written
        values: dict[str, Row | Expr] = {names[0]: row}
        values |= dict(zip(names[1:], expr.args[1:], strict=True))
        found = put(formula, values, _number, lambda node, args: self._applied(node, args, row.width))
        assert isinstance(found, Row)  # as the formula has the entry in it
        return found

    def _applied(self, node: Expr, args: Sequence[Row | Expr], width: Size) -> Row | Expr:
        """Return an operator, or a function of one number, of rows and numbers."""
        if all(isinstance(arg, Expr) for arg in args):
            numbers = tuple(arg for arg in args if isinstance(arg, Expr))
            return Expr(node.kind, node.span, args=numbers, name=node.name, type=SCALAR)
        first, *rest = args
        match node.kind:
            case Kind.CALL if isinstance(first, Row) and not rest:
                return self._made(Op.ENTRYWISE, width, (first,), name=node.name)
            case Kind.NEGATE if isinstance(first, Row):
                return self._sum([(first, -1)])
            case Kind.ADD | Kind.SUBTRACT:
                sign = 1 if node.kind is Kind.ADD else -1
                return self._sum([(self._wide(first, width), 1), (self._wide(rest[0], width), sign)])
            case Kind.MULTIPLY if isinstance(first, Row) and isinstance(rest[0], Row):
                return self._made(Op.HADAMARD, width, (first, rest[0]))
            case Kind.MULTIPLY:
                row, number = (first, rest[0]) if isinstance(first, Row) else (rest[0], first)
                assert isinstance(row, Row)  # one of the two is
                assert isinstance(number, Expr)  # and the other is not
                return self._scaled(row, number)
            case Kind.DIVIDE if isinstance(first, Row) and isinstance(rest[0], Expr):
                return self._scaled(first, _inverse(rest[0]))
            case Kind.POWER if isinstance(first, Row) and isinstance(rest[0], Expr):
                power = first
                for _ in range(int(rest[0].value or 1) - 1):
                    power = self._made(Op.HADAMARD, width, (power, first))
                return power
        raise MixesError(f"`{node.name or node.kind}` is not seen to treat samples apart.")

    def _wide(self, value: Row | Expr, width: Size) -> Row:
        """Return a row; a number stands in each of its entries."""
        if isinstance(value, Row):
            return value
        return self._scaled(self._made(Op.CONSTANT, width, value=1.0), value)

    def _made(
        self,
        op: Op,
        width: Size,
        args: tuple[Row, ...] = (),
        fixed: tuple[Expr, ...] = (),
        *,
        flipped: bool = False,
        signs: tuple[int, ...] = (),
        name: str = "",
        value: float = 0.0,
        moving: bool = False,
    ) -> Row:
        key = (op, width, tuple(map(id, args)), tuple(map(format_expr, fixed)), flipped, signs, name, value)
        if key not in self._known:
            moving = moving or any(arg.moving for arg in args)
            self._known[key] = Row(op, width, args, fixed, flipped, signs, name, value, moving)
        return self._known[key]
