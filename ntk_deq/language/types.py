"""Types of the claim language: scalars, booleans, step indices, and matrices of symbolic size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Size:
    """A polynomial with integer coefficients in size letters, in a normal form that makes equal sizes equal objects.

    Attributes:
        terms: Pairs (sorted letters of a monomial with repetition, non-zero coefficient), sorted by monomial.

    Example:
        >>> n, m = Size.letter("N"), Size.letter("m")
        >>> str(n * m + 1), n * m == m * n, (n * m).evaluate({"N": 2, "m": 3})
        ('N*m + 1', True, 6)
    """

    terms: tuple[tuple[tuple[str, ...], int], ...]

    @classmethod
    def of(cls, value: int | str | Size) -> Size:
        """Return a Size from a number, a letter or a Size."""
        if isinstance(value, Size):
            return value
        if isinstance(value, str):
            return cls.letter(value)
        return cls((((), value),) if value else ())

    @classmethod
    def letter(cls, name: str) -> Size:
        """Return the size that a letter stands for."""
        return cls((((name,), 1),))

    @classmethod
    def _normal(cls, terms: Mapping[tuple[str, ...], int]) -> Size:
        return cls(tuple(sorted(((k, v) for k, v in terms.items() if v), key=lambda t: (-len(t[0]), t[0]))))

    def __add__(self, other: Size | int) -> Size:
        total = dict(self.terms)
        for monomial, coefficient in Size.of(other).terms:
            total[monomial] = total.get(monomial, 0) + coefficient
        return Size._normal(total)

    def __sub__(self, other: Size | int) -> Size:
        return self + Size.of(other) * -1

    def __mul__(self, other: Size | int) -> Size:
        total: dict[tuple[str, ...], int] = {}
        for left, a in self.terms:
            for right, b in Size.of(other).terms:
                key = tuple(sorted(left + right))
                total[key] = total.get(key, 0) + a * b
        return Size._normal(total)

    @property
    def constant(self) -> int | None:
        """The number this size is, or None where it has letters."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and self.terms[0][0] == ():
            return self.terms[0][1]
        return None

    @property
    def letters(self) -> frozenset[str]:
        """Every letter that occurs."""
        return frozenset(name for monomial, _ in self.terms for name in monomial)

    def at(self, values: Mapping[str, Size]) -> Size:
        """Return the size with other sizes in the place of letters; members count as letters by their names."""
        total = Size.of(0)
        for monomial, coefficient in self.terms:
            product = Size.of(coefficient)
            for letter in monomial:
                product = product * values.get(letter, Size.letter(letter))
            total = total + product
        return total

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """Return the number for given letter values; KeyError where one is missing."""
        total = 0
        for monomial, coefficient in self.terms:
            product = coefficient
            for name in monomial:
                product *= sizes[name]
            total += product
        return total

    def __str__(self) -> str:
        parts, signs = [], []
        for monomial, coefficient in self.terms:
            letters = "*".join(
                name if monomial.count(name) == 1 else f"{name}^{monomial.count(name)}"
                for name in dict.fromkeys(monomial)
            )
            size = abs(coefficient)
            parts.append(str(size) if not letters else letters if size == 1 else f"{size}*{letters}")
            signs.append("-" if coefficient < 0 else "+")
        if not parts:
            return "0"
        first = parts[0] if signs[0] == "+" else f"-{parts[0]}"
        return first + "".join(f" {sign} {part}" for sign, part in zip(signs[1:], parts[1:], strict=True))


ONE = Size.of(1)


@dataclass(frozen=True, slots=True)
class Reach:
    """What a letter runs over, `l in 1..L`; which way is settled by `ntk_deq.language.families.downward`.

    Attributes:
        letter: The letter.
        start, stop: Its first and its last value.
        text: As it is written, in one spelling.
    """

    letter: str
    start: Size
    stop: Size
    text: str


@dataclass(frozen=True, slots=True)
class SizeRange:
    """The values a size letter may take, both ends included.

    Attributes:
        low, high: The ends.
        over: For a family of sizes `n[l]`: its members, each of which has a value of its own.
        depth: Whether it is a depth for which a claim is written out, and so a number wherever it stands in a shape.
    """

    low: int
    high: int
    over: Reach | None = None
    depth: bool = False

    @property
    def fixed(self) -> bool:
        """Whether there is one value only."""
        return self.low == self.high


class Sort(StrEnum):
    """The kinds of value."""

    SCALAR = "scalar"
    MATRIX = "matrix"
    BOOLEAN = "boolean"
    INDEX = "step index"
    TIME = "time"  # the index of a flow

    @property
    def is_index(self) -> bool:
        """Whether a value of this kind may stand in Z[...]; it counts as a number elsewhere."""
        return self in (Sort.INDEX, Sort.TIME)


@dataclass(frozen=True, slots=True)
class Type:
    """The type of an expression. A vector is a matrix with one column; a scalar is not a 1 x 1 matrix."""

    sort: Sort
    rows: Size = ONE
    cols: Size = ONE

    def __str__(self) -> str:
        if self.sort is not Sort.MATRIX:
            return str(self.sort)
        if self.cols == ONE:
            return f"vector {self.rows}"
        return f"matrix {self.rows} x {self.cols}"


SCALAR = Type(Sort.SCALAR)
BOOLEAN = Type(Sort.BOOLEAN)
STEP = Type(Sort.INDEX)
TIME = Type(Sort.TIME)


def matrix(rows: int | str | Size, cols: int | str | Size = 1) -> Type:
    """Return the type of a rows x cols matrix."""
    return Type(Sort.MATRIX, Size.of(rows), Size.of(cols))


def shape_type(shape: tuple[str | int, ...]) -> Type:
    """Return the type of a variable of a given shape: () scalar, (m,) column vector, (d, m) matrix."""
    if not shape:
        return SCALAR
    return matrix(shape[0], shape[1] if len(shape) == 2 else 1)
