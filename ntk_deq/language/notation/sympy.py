"""Typed trees as SymPy objects, nothing evaluated or reordered, and the classes that SymPy lacks. Imports SymPy."""

from __future__ import annotations

from typing import Any

import sympy
from sympy.core.symbol import Str
from sympy.logic.boolalg import Boolean

from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.shapes import integer_literal
from ntk_deq.language.tree import QUANTIFIERS, Expr, Kind, is_member
from ntk_deq.language.types import Size, Sort, Type

_RELATIONS = {"<=": sympy.Le, "<": sympy.Lt, ">=": sympy.Ge, ">": sympy.Gt, "==": sympy.Eq, "!=": sympy.Ne}


OVER = " over"
"""What ends the name of what is taken over a range: `sum over`, its arguments the body, the letter and the bounds."""


class Quantity(sympy.Expr):
    """A number that SymPy has no class for: the name of a function of the language, then its arguments."""

    is_commutative = True

    @property
    def label(self) -> str:
        """The function's name; `[]` for a step, `()` for a time, `at`, and `1x1` for the entry of a 1 x 1 matrix."""
        return str(self.args[0])

    @property
    def arguments(self) -> tuple[sympy.Basic, ...]:
        """What the function is applied to."""
        return tuple(self.args[1:])


class MatrixQuantity(sympy.MatrixExpr):
    """A matrix that SymPy has no class for: name, rows, columns, then the arguments."""

    @property
    def label(self) -> str:
        """The function's name; `[]` for a step, `()` for a time, `at`."""
        return str(self.args[0])

    @property
    def arguments(self) -> tuple[sympy.Basic, ...]:
        """What the function is applied to."""
        return tuple(self.args[3:])

    @property
    def shape(self) -> tuple[Any, Any]:
        """Rows and columns."""
        return self.args[1], self.args[2]


class Statement(Boolean):
    """A statement that SymPy has no class for: an entrywise comparison or a quantifier, its name first."""


def convert(expr: Expr) -> Any:
    """Return a typed tree as a SymPy object; see `ntk_deq.language.notation.formulas.to_sympy`."""
    match expr.kind:
        case Kind.NUMBER:
            return _rational(expr)
        case Kind.NAME:
            return _variable(expr.name, _type(expr))
        case Kind.INDEX if is_member(expr) or len(expr.args) == 2:
            label = "_" if is_member(expr) else "_()" if _type(expr.args[1]).sort is Sort.TIME else "_[]"
            return _quantity(label, expr, Str(expr.name), *map(convert, expr.args))
        case Kind.INDEX:
            label = "()" if _type(expr.args[0]).sort is Sort.TIME else "[]"
            return _quantity(label, expr, Str(expr.name), convert(expr.args[0]))
        case Kind.AT:
            flat: list[Any] = [convert(expr.args[0])]
            for name, value in zip(expr.names, expr.args[1:], strict=True):
                flat += [Str(name), convert(value)]
            return _quantity("at", expr, *flat)
        case Kind.FUNCTION:
            return _quantity("->", expr, Str(expr.names[0]), convert(expr.args[0]))
        case Kind.CALL if expr.args and expr.args[0].kind is Kind.OVER:
            over = expr.args[0]
            rest = map(convert, expr.args[1:])
            return _quantity(f"{expr.name}{OVER}", expr, convert(over.args[0]), *_reach(over), *rest)
        case Kind.CALL:
            return _call(expr)
        case Kind.TRANSPOSE:
            return sympy.Transpose(convert(expr.args[0]))
        case Kind.POWER:
            return _power(expr)
        case Kind.COMPARE | Kind.AND | Kind.OR | Kind.NOT | Kind.FOR_ALL | Kind.FOR_SOME:
            return _statement(expr)
        case Kind.EACH | Kind.SOME:
            return Statement(Str(str(expr.kind)), convert(expr.args[0]), *_reach(expr))
        case Kind.NEGATE if expr.args[0].kind is Kind.NUMBER:
            return -_rational(expr.args[0])
        case _:
            return _matrix_arithmetic(expr) if _is_matrix(expr) else _scalar_arithmetic(expr)


def _reach(expr: Expr) -> tuple[Any, ...]:
    return (Str(expr.names[0]), *map(convert, expr.args[1:]))


def _type(expr: Expr) -> Type:
    if expr.type is None:
        raise TypeError("The tree has no types yet; call ntk_deq.language.typing.infer first.")
    return expr.type


def _is_matrix(expr: Expr) -> bool:
    return _type(expr).sort is Sort.MATRIX


def _rational(expr: Expr) -> Any:
    value = expr.value
    return sympy.S.Zero if value is None else sympy.Rational(value.numerator, value.denominator)


def _size(size: Size) -> Any:
    terms = []
    for monomial, coefficient in size.terms:
        letters = [sympy.Symbol(name, integer=True, positive=True) for name in monomial]
        terms.append(sympy.Mul(coefficient, *letters))
    return sympy.Add(*terms)


def _variable(name: str, type_: Type) -> Any:
    if type_.sort is Sort.MATRIX:
        return sympy.MatrixSymbol(name, _size(type_.rows), _size(type_.cols))
    return sympy.Symbol(name, integer=True) if type_.sort is Sort.INDEX else sympy.Symbol(name, real=True)


def _quantity(name: str, expr: Expr, *arguments: Any) -> Any:
    type_ = _type(expr)
    if type_.sort is not Sort.MATRIX:
        return Quantity(Str(name), *arguments)
    return MatrixQuantity(Str(name), _size(type_.rows), _size(type_.cols), *arguments)


def _entry(matrix: Any) -> Quantity:
    """Return the number that a 1 x 1 matrix is."""
    return Quantity(Str("1x1"), matrix)


def _number(expr: Expr) -> Any:
    converted = convert(expr)
    return _entry(converted) if _is_matrix(expr) else converted


def _scalar_arithmetic(expr: Expr) -> Any:
    parts = [_number(argument) for argument in expr.args]
    match expr.kind:
        case Kind.ADD:
            return sympy.Add(*parts, evaluate=False)
        case Kind.SUBTRACT:
            return sympy.Add(parts[0], sympy.Mul(-1, parts[1], evaluate=False), evaluate=False)
        case Kind.NEGATE:
            return sympy.Mul(-1, parts[0], evaluate=False)
        case Kind.MULTIPLY:
            return sympy.Mul(*parts, evaluate=False)
        case _:
            return sympy.Mul(parts[0], sympy.Pow(parts[1], -1, evaluate=False), evaluate=False)


def _matrix_arithmetic(expr: Expr) -> Any:
    parts = [convert(argument) for argument in expr.args]
    match expr.kind:
        case Kind.ADD:
            return sympy.MatAdd(*parts)
        case Kind.SUBTRACT:
            return sympy.MatAdd(parts[0], sympy.MatMul(-1, parts[1]))
        case Kind.NEGATE:
            return sympy.MatMul(-1, parts[0])
        case Kind.MULTIPLY:
            return _matrix_product(expr, parts)
        case _:
            return sympy.MatMul(sympy.Pow(_number(expr.args[1]), -1, evaluate=False), parts[0])


def _matrix_product(expr: Expr, factors: list[Any]) -> Any:
    """Convert a product whose value is a matrix; a 1 x 1 factor that only scales becomes a number."""
    left, right, whole = _type(expr.args[0]), _type(expr.args[1]), _type(expr)
    if left.sort is Sort.MATRIX and right.sort is Sort.MATRIX and (whole.rows, whole.cols) != (left.rows, right.cols):
        scaling = 0 if (whole.rows, whole.cols) == (right.rows, right.cols) else 1
        factors[scaling] = _entry(factors[scaling])
    return sympy.MatMul(*factors)


def _power(expr: Expr) -> Any:
    base, exponent = expr.args
    if not _is_matrix(expr):
        return sympy.Pow(_number(base), _number(exponent), evaluate=False)
    power = integer_literal(exponent)
    matrix = convert(base)
    if power is None:
        return sympy.MatPow(matrix, _number(exponent))
    return sympy.Inverse(matrix) if power == -1 else sympy.MatPow(matrix, sympy.Integer(power))


def _call(expr: Expr) -> Any:
    """Convert a call: to SymPy's own class where there is one that keeps the arguments as they are."""
    name = expr.name
    record = FUNCTIONS.get(name)
    own = None if record is None else record.sympy_matrix
    if record is not None and record.sized and own is not None:
        sizes = _size(_type(expr).rows), _size(_type(expr).cols)
        return getattr(sympy, own)(*sizes[: len(record.parameters)])
    known = record.sympy if record is not None and not _is_matrix(expr) else None
    if known is not None and not expr.args:
        return getattr(sympy, known)
    if known is not None:
        return getattr(sympy, known)(_number(expr.args[0]), evaluate=False)
    arguments = [convert(argument) for argument in expr.args]
    return _quantity(name, expr, *arguments) if own is None else getattr(sympy, own)(*arguments)


def _statement(expr: Expr) -> Any:
    if expr.kind in QUANTIFIERS:
        return Statement(Str(str(expr.kind)), *map(convert, expr.args), *map(Str, expr.names))
    if expr.kind is not Kind.COMPARE:
        connective = {Kind.AND: sympy.And, Kind.OR: sympy.Or, Kind.NOT: sympy.Not}[expr.kind]
        return connective(*map(convert, expr.args), evaluate=False)
    links = []
    for k, operator in enumerate(expr.operators):
        left, right = expr.args[k], expr.args[k + 1]
        if _is_matrix(left) or _is_matrix(right):
            links.append(Statement(Str(operator), convert(left), convert(right)))
        else:
            links.append(_RELATIONS[operator](convert(left), convert(right), evaluate=False))
    return links[0] if len(links) == 1 else sympy.And(*links, evaluate=False)
