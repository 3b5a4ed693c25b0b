"""Whether a matrix formula is symmetric, or skew, whatever its variables are: by expanding it into words of letters.

A formula is a sum of words, products of matrices that do not commute, each with a number and scalars in front; a
transpose turns words round. Two formulas with the same words are equal. What is not expanded is a letter of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from ntk_deq.language.domain import DomainKind, Free
from ntk_deq.language.functions import FUNCTIONS, record_of
from ntk_deq.language.shapes import integer_literal
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.language.types import ONE, Sort

Key = object
Letter = tuple[Key, Key, int]
"""A letter, its transpose, and the sign that the transpose takes (-1 of a skew matrix)."""
Words = dict[tuple[tuple[Key, ...], tuple[Letter, ...]], Fraction]

_MOST = 200  # words of a formula
_POWER = 4
_SIGNS = {DomainKind.SYMMETRIC: 1, DomainKind.PSD: 1, DomainKind.DIAGONAL: 1, DomainKind.SKEW: -1}


class _TooLongError(Exception):
    """A formula has too many words."""


def sign_by_domain(free: Mapping[str, Free]) -> Callable[[str], int]:
    """Return which variables are symmetric (1) or skew (-1) by their domains, as `parity` asks for it."""
    return lambda name: _SIGNS.get(free[name].domain.kind, 0) if name in free else 0


def parity(expr: Expr, sign: Callable[[str], int], lets: Mapping[str, Expr]) -> int:
    """Return 1 for a formula that is symmetric for certain, -1 for one that is skew, else 0; zero is symmetric.

    Args:
        expr: A square matrix formula.
        sign: Whether a variable is symmetric (1), skew (-1), or neither for certain (0).
        lets: Definitions.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> parity(parse("kron(A*A', S)"), lambda name: int(name == "S"), {})
        1
        >>> parity(parse("A - A'"), lambda name: 0, {})
        -1
    """
    try:
        words = _Expansion(sign, lets).words(expr)
    except (_TooLongError, RecursionError):
        return 0
    turned = _turned(words)
    if words == turned:
        return 1
    return -1 if words == {word: -number for word, number in turned.items()} else 0


def is_gram(expr: Expr, lets: Mapping[str, Expr]) -> bool:
    """Whether the symmetric part of a formula is positive semidefinite by its form: it is a sum of products X'X.

    Args:
        expr: A square matrix formula.
        lets: Definitions.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> [is_gram(parse(text), {}) for text in ("A'*A + B - B'", "I(n)/2 + (A*B)'*A*B", "-A'*A", "A*A")]
        [True, True, False, False]
    """
    try:
        words = _Expansion(lambda name: 0, lets).words(expr)
        whole = _plus(words, _turned(words))
    except (_TooLongError, RecursionError):
        return False
    return all(number > 0 and _is_square(word) for word, number in whole.items())


def _is_square(word: tuple[tuple[Key, ...], tuple[Letter, ...]]) -> bool:
    """Whether a word is w'w times a square of scalars."""
    scalars, letters = word
    if len(letters) % 2 or any(number % 2 for number in Counter(scalars).values()):
        return False
    left, right = letters[: len(letters) // 2], letters[len(letters) // 2 :]
    ((_, turned),) = _turned({((), right): Fraction(1)}).keys()
    return turned == left and all(skew == 1 for _, _, skew in letters)


def order_of(statement: Expr) -> tuple[Expr, Expr | None, bool] | None:
    """Return the larger and the smaller of two symmetric matrices that a comparison orders, and whether strictly.

    The smaller one is None where it is zero. None: the comparison is another one.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> larger, smaller, strict = order_of(parse("lambda_sym(A - B) >= 0"))
        >>> larger.name, smaller.name, strict
        ('A', 'B', False)
    """
    if statement.kind is not Kind.COMPARE or statement.operators not in ((">=",), (">",)):
        return None
    value, bound = statement.args
    if value.kind is not Kind.CALL or bound.kind is not Kind.NUMBER or bound.value or value.name not in ORDERS:
        return None
    matrix, strict = value.args[0], statement.operators == (">",)
    if matrix.kind is Kind.SUBTRACT:
        return matrix.args[0], matrix.args[1], strict
    return matrix, None, strict


ORDERS = frozenset(function.stands_for[0] for function in FUNCTIONS.values() if function.stands_for)
"""Functions of a symmetric matrix whose sign is that of the matrix."""


@dataclass
class _Expansion:
    sign: Callable[[str], int]
    lets: Mapping[str, Expr]
    known: dict[str, Words] = field(default_factory=dict)

    def words(self, expr: Expr) -> Words:
        """Return the words of a formula."""
        match expr.kind:
            case Kind.NUMBER:
                assert expr.value is not None
                return {((), ()): expr.value} if expr.value else {}
            case Kind.NAME:
                return self._name(expr)
            case Kind.NEGATE:
                return _times({((), ()): Fraction(-1)}, self.words(expr.args[0]))
            case Kind.ADD:
                return _plus(self.words(expr.args[0]), self.words(expr.args[1]))
            case Kind.SUBTRACT:
                return _plus(self.words(expr.args[0]), _times({((), ()): Fraction(-1)}, self.words(expr.args[1])))
            case Kind.TRANSPOSE:
                return _turned(self.words(expr.args[0]))
            case Kind.MULTIPLY:
                return _times(*(self._factor(arg) for arg in expr.args))
            case Kind.DIVIDE:
                divisor = expr.args[1].value
                part: Words = (
                    {((), ()): 1 / divisor} if divisor else {((("1/", structure(expr.args[1])),), ()): Fraction(1)}
                )
                return _times(self._factor(expr.args[0]), part)
            case Kind.POWER:
                degree = integer_literal(expr.args[1])
                if degree is not None and 1 <= degree <= _POWER:
                    base = self._factor(expr.args[0])
                    power = base
                    for _ in range(degree - 1):
                        power = _times(power, base)
                    return power
                if _is_matrix(expr):  # the transpose of a power is the power of the transpose
                    words = self.words(expr.args[0])
                    of = ("^", structure(expr.args[1]))
                    return _single(((of, _frozen(words)), (of, _frozen(_turned(words))), 1))
        return self._call(expr)

    def _factor(self, expr: Expr) -> Words:
        """Return the words of a factor; a product that is 1 x 1 may scale what it stands beside and is one scalar."""
        single = expr.type is not None and expr.type.sort is Sort.MATRIX and expr.type.rows == ONE == expr.type.cols
        return {((structure(expr),), ()): Fraction(1)} if single else self.words(expr)

    def _name(self, expr: Expr) -> Words:
        name = expr.name
        if name in self.lets:
            if name not in self.known:
                self.known[name] = self.words(self.lets[name])
            return self.known[name]
        if not _is_matrix(expr):
            return {((name,), ()): Fraction(1)}
        sign = self.sign(name)
        return _single((name, name, sign) if sign else (name, ("'", name), 1))

    def _call(self, expr: Expr) -> Words:
        key = structure(expr)
        if not _is_matrix(expr):
            return {((key,), ()): Fraction(1)}
        function = record_of(expr)
        if function is None:
            return _single((key, ("'", key), 1))
        if function.unit:
            return {((), ()): Fraction(1)}
        if function.filled == 0:
            return {}
        if function.transposes:
            parts = [self.words(arg) for arg in expr.args]
            turned = [_turned(part) for part in parts]
            # The order of the factors of an entrywise product does not matter.
            group = frozenset if function.commutes else tuple
            here, there = ((expr.name, group(map(_frozen, some))) for some in (parts, turned))
            return _single((here, there, 1))
        square = expr.type is not None and expr.type.rows == expr.type.cols
        return _single((key, key if function.symmetric and square else ("'", key), 1))


def structure(expr: Expr) -> Key:
    """Return what two formulas have in common if they say the same in the same words, wherever they stand."""
    return (expr.kind, expr.name, expr.value, expr.names, expr.operators, tuple(map(structure, expr.args)))


def _is_matrix(expr: Expr) -> bool:
    return expr.type is None or expr.type.sort is Sort.MATRIX


def _single(letter: Letter) -> Words:
    return {((), (letter,)): Fraction(1)}


def _frozen(words: Words) -> Key:
    return frozenset(words.items())


def _plus(left: Words, right: Words) -> Words:
    total = dict(left)
    for word, number in right.items():
        total[word] = total.get(word, Fraction(0)) + number
    return _checked({word: number for word, number in total.items() if number})


def _times(left: Words, right: Words) -> Words:
    product: Words = {}
    for (scalars, letters), number in left.items():
        for (others, more), factor in right.items():
            word = (tuple(sorted((*scalars, *others), key=repr)), (*letters, *more))
            product[word] = product.get(word, Fraction(0)) + number * factor
    return _checked({word: number for word, number in product.items() if number})


def _turned(words: Words) -> Words:
    turned: Words = {}
    for (scalars, letters), number in words.items():
        back, sign = [], 1
        for key, other, skew in reversed(letters):
            back.append((other, key, skew))
            sign *= skew
        turned[scalars, tuple(back)] = sign * number
    return turned


def _checked(words: Words) -> Words:
    if len(words) > _MOST:
        raise _TooLongError
    return words
