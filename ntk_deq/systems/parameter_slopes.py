"""How slopes pass back through formulas of parameters: for all samples together, for each of them, or their size alone.

With S the slope of a product A B, that of A is S B' and that of B is A' S. Where S is an outer product b f' for each
sample, so is what it becomes: (b, f B') for A and (b A, f) for B. A parameter behind another matrix, as A in
W = (1 - m) I - A'A + B - B', gets its slope so, and no slope of one sample is ever written out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.errors import NtkDeqError
from ntk_deq.evaluation.functions import scalar
from ntk_deq.evaluation.functions.twins import FUNCTIONS
from ntk_deq.language.functions import record_of
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.systems.formula_values import FixedValues

_LARGEST_POWER = 8  # of a matrix, whose slope has as many terms


class UnstructuredError(NtkDeqError):
    """The slope of one sample is no sum of few outer products; the message names what stands in the way."""


class Slope(ABC):
    """The slope of some number in a formula, in the shape of the formula's value; a number is a 1 x 1 matrix."""

    @abstractmethod
    def scaled(self, factor: Tensor | float) -> Slope:
        """Return a multiple."""

    @abstractmethod
    def transposed(self) -> Slope:
        """Return the transpose."""

    @abstractmethod
    def times(self, matrix: Tensor) -> Slope:
        """Return S M."""

    def before(self, matrix: Tensor) -> Slope:
        """Return M S."""
        return self.transposed().times(matrix.mT).transposed()

    @abstractmethod
    def inner(self, matrix: Tensor) -> Slope:
        """Return the inner product with a matrix: the slope in the number that multiplies it."""

    @abstractmethod
    def spread(self, direction: Tensor) -> Slope:
        """Return, of the slope in a number, that in a matrix on which the number depends by `direction`."""

    @abstractmethod
    def passed(self, expr: Expr, function: Callable[[Tensor], Tensor], at: Tensor) -> Slope:
        """Return the slope in the argument of any function of a matrix."""


@dataclass(frozen=True, eq=False)
class RankOne(Slope):
    """A slope for each sample: `coefficient` times the outer product of its rows of two factors.

    Attributes:
        left: N x rows; None: a one for each sample, where there is one row.
        right: N x columns; None: likewise.
        coefficient: A number.
    """

    left: Float[Tensor, "N _"] | None
    right: Float[Tensor, "N _"] | None
    coefficient: Tensor | float = 1.0

    def scaled(self, factor: Tensor | float) -> RankOne:
        """As in `Slope`."""
        return RankOne(self.left, self.right, self.coefficient * factor)

    def transposed(self) -> RankOne:
        """As in `Slope`."""
        return RankOne(self.right, self.left, self.coefficient)

    def times(self, matrix: Tensor) -> RankOne:
        """As in `Slope`."""
        if self.right is not None:
            return RankOne(self.left, self.right @ matrix, self.coefficient)
        assert self.left is not None  # one of them is there
        return RankOne(self.left, matrix.expand(self.left.shape[0], -1), self.coefficient)

    def inner(self, matrix: Tensor) -> RankOne:
        """As in `Slope`."""
        moved = self.times(matrix.mT)  # rows x rows, of which the diagonal is asked for
        assert moved.right is not None  # as `times` leaves it
        product = moved.right if moved.left is None else moved.right * moved.left
        return RankOne(product.sum(1, keepdim=True), None, self.coefficient)

    def numbers(self) -> Float[Tensor, " N"]:
        """Return the slopes in a number, one a sample."""
        factors = [factor[:, 0] for factor in (self.left, self.right) if factor is not None]
        product = factors[0] if len(factors) == 1 else factors[0] * factors[1]
        return product * self.coefficient

    def spread(self, direction: Tensor) -> Slope:
        """As in `Slope`."""
        if direction.numel() == 1:
            return self.scaled(direction.reshape(()))
        return Shared(self.numbers(), direction)

    def passed(self, expr: Expr, function: Callable[[Tensor], Tensor], at: Tensor) -> Slope:
        """As in `Slope`."""
        if expr.name == "diag" and at.shape[-1] == 1 and self.left is not None and self.right is not None:
            return RankOne(self.left * self.right, None, self.coefficient)
        raise UnstructuredError(f"`{expr.name}` of a parameter")


@dataclass(frozen=True, eq=False)
class Shared(Slope):
    """A slope for each sample, a multiple of one matrix.

    Attributes:
        weights: The multiples.
        direction: The matrix.
    """

    weights: Float[Tensor, " N"]
    direction: Float[Tensor, "_ _"]

    def scaled(self, factor: Tensor | float) -> Shared:
        """As in `Slope`."""
        return Shared(self.weights, self.direction * factor)

    def transposed(self) -> Shared:
        """As in `Slope`."""
        return Shared(self.weights, self.direction.mT)

    def times(self, matrix: Tensor) -> Shared:
        """As in `Slope`."""
        return Shared(self.weights, self.direction @ matrix)

    def inner(self, matrix: Tensor) -> RankOne:
        """As in `Slope`."""
        return RankOne((self.weights * (self.direction * matrix).sum())[:, None], None)

    def spread(self, direction: Tensor) -> Shared:
        """As in `Slope`."""
        return Shared(self.weights * self.direction.reshape(()), direction)

    def passed(self, expr: Expr, function: Callable[[Tensor], Tensor], at: Tensor) -> Shared:
        """As in `Slope`."""
        return Shared(self.weights, _pulled(function, at, self.direction))


ParameterSlope = RankOne | Shared
"""The slope of each sample in a parameter."""


@dataclass(frozen=True, eq=False)
class Total(Slope):
    """The slope of one number, for all samples together.

    Attributes:
        matrix: As it is.
    """

    matrix: Float[Tensor, "_ _"]

    def scaled(self, factor: Tensor | float) -> Total:
        """As in `Slope`."""
        return Total(self.matrix * factor)

    def transposed(self) -> Total:
        """As in `Slope`."""
        return Total(self.matrix.mT)

    def times(self, matrix: Tensor) -> Total:
        """As in `Slope`."""
        return Total(self.matrix @ matrix)

    def inner(self, matrix: Tensor) -> Total:
        """As in `Slope`."""
        return Total((self.matrix * matrix).sum().reshape(1, 1))

    def spread(self, direction: Tensor) -> Total:
        """As in `Slope`."""
        return Total(self.matrix.reshape(()) * direction)

    def passed(self, expr: Expr, function: Callable[[Tensor], Tensor], at: Tensor) -> Total:
        """As in `Slope`."""
        return Total(_pulled(function, at, self.matrix))

    def __add__(self, other: Total) -> Total:
        return Total(self.matrix + other.matrix)


@dataclass(frozen=True, eq=False)
class Error(Slope):
    """A bound, or an estimate, of the Frobenius norm of what a slope is off by.

    Attributes:
        size: The norm, 0-d.
    """

    size: Float[Tensor, ""]

    def scaled(self, factor: Tensor | float) -> Error:
        """As in `Slope`."""
        return Error(self.size * (factor.abs() if isinstance(factor, Tensor) else abs(factor)))

    def transposed(self) -> Self:
        """As in `Slope`."""
        return self

    def times(self, matrix: Tensor) -> Error:
        """As in `Slope`."""
        return Error(self.size * norm_bound(matrix))

    def before(self, matrix: Tensor) -> Error:
        """As in `Slope`."""
        return self.times(matrix)

    def inner(self, matrix: Tensor) -> Error:
        """As in `Slope`."""
        return self.spread(matrix)

    def spread(self, direction: Tensor) -> Error:
        """As in `Slope`."""
        return Error(self.size * torch.linalg.vector_norm(direction))

    def passed(self, expr: Expr, function: Callable[[Tensor], Tensor], at: Tensor) -> Error:
        """Estimate: a product of the derivative with signs is about as long as its Frobenius norm."""
        value = function(at)
        signs = torch.randint(0, 2, value.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        return self.spread(_pulled(function, at, signs.to(value) * 2 - 1))

    def __add__(self, other: Error) -> Error:
        return Error(self.size + other.size)


def norm_bound(matrix: Float[Tensor, "_ _"]) -> Float[Tensor, ""]:
    """Return an upper bound of the spectral norm that costs no decomposition: sqrt(norm1 norminf), or the Frobenius.

    Args:
        matrix: The matrix.

    Example:
        >>> norm_bound(torch.eye(3))
        tensor(1.)
    """
    if min(matrix.shape) == 1:
        return torch.linalg.vector_norm(matrix)
    sizes = matrix.abs()
    return torch.sqrt(sizes.sum(0).max() * sizes.sum(1).max())


def _pulled(function: Callable[[Tensor], Tensor], at: Tensor, slope: Tensor) -> Tensor:
    linear = torch.func.vjp(function, at)
    found: Tensor = linear[1](slope.reshape(linear[0].shape))[0]
    return found if found.ndim == 2 else found.reshape(1, 1)


class Slopes:
    """Passes slopes back to parameters.

    Args:
        fixed: The values of the formulas.
        parameters: Names of the parameters that are asked about.
        parametric: Tells whether a formula depends on one of them.
    """

    def __init__(self, fixed: FixedValues, parameters: Iterable[str], parametric: Callable[[Expr], bool]) -> None:
        self._fixed, self._parametric = fixed, parametric
        self._names = frozenset(parameters)

    def of(self, places: Iterable[tuple[Expr, Slope]]) -> dict[str, list[Slope]]:
        """Return the slopes in each parameter, whose sum is the slope; a name that nothing reaches is left out.

        Args:
            places: Formulas with the slopes in them.

        Raises:
            UnstructuredError: A slope for each sample meets a function that makes more than an outer product of it.
        """
        found: dict[str, list[Slope]] = defaultdict(list)
        behind: dict[str, list[Slope]] = defaultdict(list)
        for expr, slopes in _gathered(places):
            for slope in slopes:
                self._visit(expr, slope, found, behind)
        while behind:
            # The one that no other waiting definition is made of comes first, so that each is gone through once.
            name = self._last(behind)
            meant = self._fixed.definition(name)
            assert meant is not None  # a name that stands for a formula
            for slope in added(behind.pop(name)):
                self._visit(meant, slope, found, behind)
        return {name: added(slopes) for name, slopes in found.items()}

    def _last(self, waiting: Mapping[str, object]) -> str:
        return next(name for name in self._fixed.later_first() if name in waiting)

    def _visit(self, expr: Expr, slope: Slope, found: dict[str, list[Slope]], behind: dict[str, list[Slope]]) -> None:
        if not self._parametric(expr):
            return
        if expr.kind is Kind.NAME:
            into = found if expr.name in self._names else behind
            into[expr.name].append(slope)
            return
        for arg, passed in self._passed(expr, slope):
            self._visit(arg, passed, found, behind)

    def _passed(self, expr: Expr, slope: Slope) -> list[tuple[Expr, Slope]]:
        args = expr.args
        match expr.kind:
            case Kind.NEGATE:
                return [(args[0], slope.scaled(-1.0))]
            case Kind.ADD:
                return [(args[0], slope), (args[1], slope)]
            case Kind.SUBTRACT:
                return [(args[0], slope), (args[1], slope.scaled(-1.0))]
            case Kind.TRANSPOSE:
                return [(args[0], slope.transposed())]
            case Kind.MULTIPLY:
                return self._factors(expr, slope)
            case Kind.DIVIDE:
                above, below = self._value(args[0]), scalar(self._value(args[1]))
                by = slope.inner(_matrix(above)).scaled(-1 / (below * below)) if self._parametric(args[1]) else slope
                return [(args[0], slope.scaled(1 / below)), (args[1], by)]
            case Kind.POWER if _is_matrix(self._value(args[0])):
                return [(args[0], each) for each in self._power(expr, slope)]
        return self._call(expr, slope)

    def _factors(self, expr: Expr, slope: Slope) -> list[tuple[Expr, Slope]]:
        left, right = expr.args
        a, b = self._value(left), self._value(right)
        found: list[tuple[Expr, Slope]] = []
        if a.ndim > 1 and b.ndim > 1 and a.shape[1] == b.shape[0]:
            if self._parametric(left):
                found.append((left, slope.times(b.mT)))
            if self._parametric(right):
                found.append((right, slope.before(a.mT)))
            return found
        number, matrix = (left, right) if a.numel() == 1 else (right, left)
        found.append((matrix, slope.scaled(scalar(self._value(number)))))
        if self._parametric(number):
            found.append((number, slope.inner(_matrix(self._value(matrix)))))
        return found

    def _power(self, expr: Expr, slope: Slope) -> list[Slope]:
        """Return sum over i of (A^i)' S (A^(k-1-i))' term by term; of a negative power, that of the inverse."""
        base, exponent = self._value(expr.args[0]), int(scalar(self._value(expr.args[1])))
        if abs(exponent) > _LARGEST_POWER:
            raise UnstructuredError("a high power of a parameter")
        if exponent == 0:
            return []
        root = base if exponent > 0 else torch.linalg.inv(base)
        powers = [torch.eye(base.shape[0], dtype=base.dtype, device=base.device)]
        while len(powers) < abs(exponent):
            powers.append(powers[-1] @ root)
        terms = [slope.before(powers[i].mT).times(powers[-1 - i].mT) for i in range(abs(exponent))]
        return terms if exponent > 0 else [_of_inverse(term, root) for term in terms]

    def _call(self, expr: Expr, slope: Slope) -> list[tuple[Expr, Slope]]:
        """Pass a function; one whose value is a number has one direction for all samples."""
        record = record_of(expr)
        if record is not None and record.exponent == "-1":
            return [(expr.args[0], _of_inverse(slope, self._value(expr)))]
        values = [self._value(arg) for arg in expr.args]
        found = []
        for place, arg in enumerate(expr.args):
            if not self._parametric(arg):
                continue

            def function(value: Tensor, place: int = place) -> Tensor:
                own = [*values[:place], value, *values[place + 1 :]]
                if expr.kind is Kind.POWER:
                    return scalar(own[0]) ** scalar(own[1])
                return FUNCTIONS[expr.name](self._fixed.like, *own)

            whole = self._value(expr)
            if whole.numel() == 1:
                one = torch.ones_like(whole)
                found.append((arg, slope.spread(_pulled(function, values[place], one))))
            else:
                found.append((arg, slope.passed(expr, function, values[place])))
        return found

    def _value(self, expr: Expr) -> Tensor:
        return self._fixed.value(expr)


def _of_inverse(slope: Slope, inverse: Tensor) -> Slope:
    """Return the slope in A where that in its inverse is given."""
    return slope.before(inverse.mT).times(inverse.mT).scaled(-1.0)


def _matrix(value: Tensor) -> Tensor:
    return value if value.ndim == 2 else value.reshape(1, 1)


def _is_matrix(value: Tensor) -> bool:
    return value.ndim > 1 and value.numel() > 1


def added(slopes: list[Slope]) -> list[Slope]:
    """Return slopes with those that are totals, or errors, added up to one."""
    total: Slope | None = None
    rest = []
    for slope in slopes:
        if isinstance(slope, Total | Error):
            total = slope if total is None else total + slope  # type: ignore[operator]
        else:
            rest.append(slope)
    return rest if total is None else [*rest, total]


def _gathered(places: Iterable[tuple[Expr, Slope]]) -> list[tuple[Expr, list[Slope]]]:
    """Return the slopes of each formula together."""
    found: dict[int, tuple[Expr, list[Slope]]] = {}
    for expr, slope in places:
        found.setdefault(id(expr), (expr, []))[1].append(slope)
    return [(expr, added(slopes)) for expr, slopes in found.values()]
