"""Draw from a distribution written in the claim language, such as `beta * normal(0, 1/m)`.

Independent random streams by name: the seed of a draw depends on what is drawn, never on what was drawn before.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

import torch
from flint import arb

from ntk_deq.certified.scalar import exact
from ntk_deq.data.distributions import Distribution, Sampler, Shape, sampler
from ntk_deq.data.samples import Known, Sample, constant, scaled, summed
from ntk_deq.errors import ArgumentError, nearest_name
from ntk_deq.language.distributions import DISTRIBUTIONS, SCALAR_FUNCTIONS
from ntk_deq.language.format import format_expr
from ntk_deq.language.tree import Expr, Kind

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
                return _product(value, -1.0) if isinstance(value, Distribution) else Known(-value, -value.true)
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
                return _sum(left, right, 1.0 if expr.kind is Kind.ADD else -1.0)
            case Distribution(), Known() if expr.kind is Kind.MULTIPLY:
                return _product(left, right)
            case Distribution(), Known() if expr.kind is Kind.DIVIDE:
                return _product(left, self._finite(expr, *_ARITHMETIC[Kind.DIVIDE], Known(1.0), right))
            case Known(), Distribution() if expr.kind is Kind.MULTIPLY:
                return _product(right, left)
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


def _sum(left: Distribution, right: Distribution, sign: float) -> Distribution:
    return Distribution(
        lambda shape, generator: summed(left.sample(shape, generator), right.sample(shape, generator), sign)
    )


def _product(inner: Distribution, factor: float) -> Distribution:
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
