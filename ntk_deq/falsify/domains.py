"""What variables range over: sets with exact membership, and draws from distributions such as `normal(0, 1/m)`."""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import torch
from flint import arb, fmpz_mat
from torch import Tensor

from ntk_deq.certified import Ball, eigenvalues_symmetric
from ntk_deq.certified.rounding import multiply_up
from ntk_deq.certified.scalar import exact
from ntk_deq.data.distributions import Distribution, Sampler, Shape, sampler
from ntk_deq.data.samples import (
    Known,
    Sample,
    constant,
    distance_to_orthonormal_rows,
    distance_to_unit_rows,
    scaled,
    summed,
)
from ntk_deq.errors import ArgumentError, nearest_name
from ntk_deq.language.domain import DISTRIBUTIONS, SCALAR_FUNCTIONS, Domain, DomainKind
from ntk_deq.language.format import format_expr
from ntk_deq.language.tree import Expr, Kind

_CONES = frozenset(
    {
        DomainKind.REAL,
        DomainKind.NONNEGATIVE,
        DomainKind.POSITIVE,
        DomainKind.SYMMETRIC,
        DomainKind.SKEW,
        DomainKind.PSD,
        DomainKind.DIAGONAL,
    }
)

_SMALL = 40  # order up to which semidefiniteness is decided by the characteristic polynomial: 5 ms, 2 s if badly scaled
_BITS = 512  # of whole numbers in a matrix whose rank is computed: 5 s at the order 300

ROUNDING = frozenset({DomainKind.ORTHOGONAL, DomainKind.UNIT_ROWS})
"""Kinds of domain of which floats hold few members: the others are balls around floats."""

MOST_ROUNDING = 2.0**-40
"""A value that is farther from a member is none: random orthogonal matrices are 2^-45 away up to the order 512."""

ROOM = 1.0 + 2.0**-20
"""Factor on a distance for what another machine's rounding makes of the bound."""

# Sets of square matrices.
SQUARE = frozenset({DomainKind.SYMMETRIC, DomainKind.SKEW, DomainKind.PSD, DomainKind.DIAGONAL, DomainKind.ORTHOGONAL})


def is_cone(domain: Domain) -> bool:
    """Say whether a domain contains c x with each of its x, for every c > 0.

    Example:
        >>> is_cone(Domain(DomainKind.PSD)), is_cone(Domain(DomainKind.INTERVAL, low=Fraction(0), low_open=True))
        (True, True)
        >>> is_cone(Domain(DomainKind.INTERVAL, Fraction(0), Fraction(1)))
        False
    """
    if domain.kind is DomainKind.INTERVAL:
        return domain.low in (None, 0) and domain.high in (None, 0)
    return domain.kind in _CONES


def within(domain: Domain, number: float | Fraction) -> bool:
    """Say whether a number is an allowed entry: decided in exact rational arithmetic.

    Args:
        domain: The domain; kinds that restrict no single entry allow every finite number.
        number: The number.

    Example:
        >>> half_open = Domain(DomainKind.INTERVAL, Fraction(0), Fraction(1), low_open=True)
        >>> within(half_open, 1.0), within(half_open, 0.0)
        (True, False)
    """
    if isinstance(number, float) and not math.isfinite(number):
        return False
    exact, low, high = Fraction(number), domain.low, domain.high
    if domain.kind is DomainKind.INTEGER and exact.denominator != 1:
        return False
    if low is not None and (exact < low or (domain.low_open and exact == low)):
        return False
    return high is None or exact < high or (exact == high and not domain.high_open)


def contains(domain: Domain, value: Tensor) -> bool:
    """Say whether a value lies in a domain, exactly; what is only near it, `rounding` knows.

    Entries and symmetry are compared, orthogonality and unit rows decided in rational arithmetic. So is that a matrix
    is positive semidefinite, that a singular one is no matter of rounding; a large one that cannot be decided in
    reasonable time counts as outside.

    Args:
        domain: The domain.
        value: Scalar, vector (one row, where rows matter) or matrix.

    Example:
        >>> contains(Domain(DomainKind.PSD), torch.tensor([[1.0, 1.0], [1.0, 1.0]]))
        True
        >>> contains(Domain(DomainKind.PSD), torch.tensor([[1.0, 1.0], [1.0, 0.5]]))
        False
    """
    kind = domain.kind
    if not bool(torch.isfinite(value).all()):
        return False
    if kind in SQUARE and (value.ndim != 2 or value.shape[0] != value.shape[1]):
        return False
    if kind is DomainKind.SYMMETRIC:
        return torch.equal(value, value.T)
    if kind is DomainKind.SKEW:
        return torch.equal(value, -value.T)
    if kind is DomainKind.PSD:
        return torch.equal(value, value.T) and _psd(value)
    if kind is DomainKind.DIAGONAL:
        return torch.equal(value, torch.diag(torch.diagonal(value)))
    if kind in ROUNDING:
        return _unit_rows(value if value.ndim == 2 else value[None], orthogonal=kind is DomainKind.ORTHOGONAL)
    return all(within(domain, float(entry)) for entry in value.flatten().tolist())


def rounding(domain: Domain, value: Tensor) -> float:
    """Return an upper bound of the Frobenius distance from a value to the nearest member of a domain.

    Args:
        domain: The domain; for kinds that are not in `ROUNDING` the bound is infinite.
        value: Vector (one row) or matrix in float64 on the CPU.

    Example:
        >>> tilted = torch.tensor([0.6, 0.8], dtype=torch.float64)
        >>> 0 < rounding(Domain(DomainKind.UNIT_ROWS), tilted) < 1e-16
        True
    """
    if domain.kind is DomainKind.ORTHOGONAL and value.ndim == 2 and value.shape[0] == value.shape[1]:
        return multiply_up(ROOM, distance_to_orthonormal_rows(value))
    if domain.kind is DomainKind.UNIT_ROWS and value.ndim > 0:
        return multiply_up(ROOM, distance_to_unit_rows(value if value.ndim == 2 else value[None]))
    return math.inf


def _unit_rows(value: Tensor, *, orthogonal: bool) -> bool:
    """Decide over the rationals whether rows have norm 1 and, if asked, are orthogonal; 0.6, 0.8 as floats are not."""
    rows = [[Fraction(entry) for entry in row] for row in value.tolist()]
    pairs = ((i, j) for i in range(len(rows)) for j in range(0 if orthogonal else i, i + 1))
    return all(sum(a * b for a, b in zip(rows[i], rows[j], strict=True)) == (i == j) for i, j in pairs)


def _psd(value: Tensor) -> bool:
    """Decide semidefiniteness exactly.

    A large matrix by certified eigenvalues: it is semidefinite if as many are positive as its rank, computed in whole
    numbers, says are not zero.
    """
    order = len(value)
    if order <= _SMALL:
        return _has_no_negative_eigenvalue(_whole_matrix(value)[0])
    values = eigenvalues_symmetric(Ball(value))
    positive = sum(bool(number > 0) for number in values)
    if positive == order or any(bool(number < 0) for number in values):
        return positive == order
    whole, bits = _whole_matrix(value)
    return bits <= _BITS and int(whole.rank()) == positive


def _whole_matrix(value: Tensor) -> tuple[fmpz_mat, int]:
    """Return a matrix times the power of two that makes it whole, and the bits of its largest entry."""
    ratios = [entry.as_integer_ratio() for entry in value.flatten().tolist()]
    common = max(bottom for _, bottom in ratios)
    entries = [top * (common // bottom) for top, bottom in ratios]
    rows, columns = value.shape
    return fmpz_mat(rows, columns, entries), max(map(abs, entries)).bit_length()


def _has_no_negative_eigenvalue(matrix: fmpz_mat) -> bool:
    """Decide it for a symmetric matrix, all of whose eigenvalues are real: the characteristic polynomial alternates."""
    return all(c * (-1) ** place >= 0 for place, c in enumerate(reversed(matrix.charpoly().coeffs())))


_ALLOWED = (
    "a distribution expression is made of numbers, size letters, scalars, + - * / ^, "
    f"{', '.join(SCALAR_FUNCTIONS)}, and distributions ({', '.join(DISTRIBUTIONS)})"
)

_ARITHMETIC: dict[Kind, tuple[Callable[[float, float], float], Callable[[arb, arb], arb]]] = {
    Kind.ADD: (operator.add, operator.add),
    Kind.SUBTRACT: (operator.sub, operator.sub),
    Kind.MULTIPLY: (operator.mul, operator.mul),
    Kind.DIVIDE: (operator.truediv, operator.truediv),
    Kind.POWER: (math.pow, operator.pow),
}

_FUNCTIONS: dict[str, tuple[Callable[..., float], Callable[..., arb]]] = {
    "sqrt": (math.sqrt, arb.sqrt),
    "exp": (math.exp, arb.exp),
    "log": (math.log, arb.log),
    "abs": (abs, abs),
    "min": (lambda *values: min(values), lambda *values: reduce(arb.min, values)),
    "max": (lambda *values: max(values), lambda *values: reduce(arb.max, values)),
}
"""Each in floats, which decide what is drawn, and in balls, which say how far the floats are off."""

_CONSTANTS: dict[str, Callable[[], Known]] = {"pi": lambda: Known(math.pi, arb.pi())}


def draw_expression(expr: Expr, shape: Shape, scalars: Mapping[str, float | int], generator: torch.Generator) -> Sample:
    """Draw one tensor from a distribution expression.

    Args:
        expr: The expression's tree, typed or not.
        shape: `()`, `(m,)` or `(d, m)`.
        scalars: Values of the size letters and scalar variables that the expression may use; `Known` ones stand for
            what their balls hold.
        generator: CPU generator.

    Returns:
        A float64 CPU tensor, and how far from it an exact draw lies; an expression without a distribution is a
        constant, which only a scalar can be.

    Raises:
        ArgumentError: The expression is no distribution, uses an unknown name, or has no value (a division by zero).

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> drawn = draw_expression(parse("beta*ones - identity/m"), (2, 2), {"m": 2, "beta": 3.0}, torch.Generator())
        >>> drawn.value.tolist(), drawn.radius
        ([[2.5, 3.0], [3.0, 2.5]], 0.0)
        >>> 0 < draw_expression(parse("1/3"), (), {}, torch.Generator()).radius < 1e-16
        True
    """
    found = _Reader(expr, scalars).read(expr)
    if isinstance(found, Distribution):
        return found.sample(shape, generator)
    if shape:
        raise ArgumentError(
            f"`{format_expr(expr)}` is a number, but a draw of shape {shape} is asked for. Write c*ones for a constant."
        )
    return constant(torch.tensor(float(found), dtype=torch.float64), found)


@dataclass(frozen=True)
class _Reader:
    """Reads a tree into a number or a distribution; `whole` is what messages quote."""

    whole: Expr
    scalars: Mapping[str, float | int]

    def read(self, expr: Expr) -> Known | Distribution:
        """Return the value of a node."""
        match expr.kind:
            case Kind.NUMBER:
                return self._literal(expr)
            case Kind.NAME:
                return self._name(expr)
            case Kind.CALL:
                return self._call(expr)
            case Kind.NEGATE:
                value = self.read(expr.args[0])
                return _scaled(value, -1.0) if isinstance(value, Distribution) else Known(-value, -value.true)
            case Kind.ADD | Kind.SUBTRACT | Kind.MULTIPLY | Kind.DIVIDE | Kind.POWER:
                return self._binary(expr)
        raise self._error(expr, f"a {expr.kind.value!r} cannot stand in it: {_ALLOWED}")

    def _literal(self, expr: Expr) -> Known:
        number = expr.value if expr.value is not None else 0
        try:
            return Known(float(number), exact(number))
        except OverflowError:
            raise self._error(expr, "it is too large for float64") from None

    def _name(self, expr: Expr) -> Known | Distribution:
        if expr.name in self.scalars:
            value = self.scalars[expr.name]
            return value if isinstance(value, Known) else Known(float(value))
        if expr.name in DISTRIBUTIONS:
            return self._distribution(expr)
        if expr.name in _CONSTANTS:
            return _CONSTANTS[expr.name]()
        known = [*self.scalars, *DISTRIBUTIONS]
        near = nearest_name(expr.name, known)
        hint = f" Did you mean {near!r}?" if near else ""
        raise self._error(expr, f"unknown name {expr.name!r}. Known: {', '.join(known)}.{hint}")

    def _call(self, expr: Expr) -> Known | Distribution:
        if expr.name in DISTRIBUTIONS:
            return self._distribution(expr)
        if expr.name not in _FUNCTIONS:
            near = nearest_name(expr.name, [*DISTRIBUTIONS, *_FUNCTIONS])
            hint = f" Did you mean {near!r}?" if near else ""
            raise self._error(expr, f"unknown function {expr.name!r}: {_ALLOWED}.{hint}")
        values = [self._number(argument) for argument in expr.args]
        return self._finite(expr, *_FUNCTIONS[expr.name], *values)

    def _distribution(self, expr: Expr) -> Distribution:
        entry = DISTRIBUTIONS[expr.name]
        parameters: list[float | Sampler] = []
        for position, argument in enumerate(expr.args):
            wanted = entry.parameters[position] if position < len(entry.parameters) else ""
            parameters.append(self.read(argument) if wanted == "distribution" else self._number(argument))
        try:
            return sampler(expr.name, *parameters)
        except ArgumentError as error:
            raise self._error(expr, str(error)) from None

    def _binary(self, expr: Expr) -> Known | Distribution:
        left, right = (self.read(argument) for argument in expr.args)
        match left, right:
            case Known(), Known():
                return self._finite(expr, *_ARITHMETIC[expr.kind], left, right)
            case Distribution(), Distribution() if expr.kind in (Kind.ADD, Kind.SUBTRACT):
                sign = 1.0 if expr.kind is Kind.ADD else -1.0
                return Distribution(
                    lambda shape, source: summed(left.sample(shape, source), right.sample(shape, source), sign)
                )
            case Distribution(), Known() if expr.kind is Kind.MULTIPLY:
                return _scaled(left, right)
            case Distribution(), Known() if expr.kind is Kind.DIVIDE:
                return _scaled(left, self._finite(expr, *_ARITHMETIC[Kind.DIVIDE], Known(1.0), right))
            case Known(), Distribution() if expr.kind is Kind.MULTIPLY:
                return _scaled(right, left)
        raise self._error(
            expr, "a distribution may be added to a distribution, and multiplied or divided by a number, nothing else"
        )

    def _number(self, expr: Expr) -> Known:
        value = self.read(expr)
        if isinstance(value, Distribution):
            raise self._error(expr, "a number is needed here, not a distribution")
        return value

    def _finite(
        self, expr: Expr, function: Callable[..., float], in_balls: Callable[..., arb], *values: Known
    ) -> Known:
        """Apply a function of numbers; a result that is no finite real number is an error."""
        try:
            value = function(*map(float, values))
        except (ArithmeticError, ValueError, TypeError) as error:
            raise self._error(expr, f"it has no value ({error})") from None
        if not math.isfinite(value):
            raise self._error(expr, "it has no finite value")
        return Known(value, in_balls(*(number.true for number in values)))

    def _error(self, expr: Expr, message: str) -> ArgumentError:
        part = "" if expr is self.whole else f", at `{format_expr(expr)}`"
        return ArgumentError(f"Distribution `{format_expr(self.whole)}`{part}: {message.rstrip('.')}.")


def _scaled(inner: Distribution, factor: float) -> Distribution:
    return Distribution(lambda shape, generator: scaled(inner.sample(shape, generator), factor))


def stream(seed: int, *labels: str | int) -> torch.Generator:
    """Return a CPU generator that depends on the seed and the labels only.

    Args:
        seed: The run's seed.
        *labels: What the draw is for, for example setting, index of the instance, and variable.

    Example:
        >>> a, b = stream(7, "s", 3, "W"), stream(7, "s", 3, "W")
        >>> bool(torch.rand(1, generator=a) == torch.rand(1, generator=b))
        True
    """
    digest = hashlib.sha256(repr((seed, *labels)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def choose(generator: torch.Generator, count: int) -> int:
    """Return a uniform random integer in 0..count - 1.

    Example:
        >>> choose(stream(0), 1)
        0
    """
    return int(torch.randint(count, (), generator=generator))
