"""Draw from a distribution written in the claim language, such as `beta * normal(0, 1/m)`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ntk_deq.claims.distributions import SCALAR_FUNCTIONS
from ntk_deq.claims.format import format_expr
from ntk_deq.claims.tree import Expr, Kind
from ntk_deq.data.distribution_names import DISTRIBUTIONS
from ntk_deq.data.distributions import Sampler, Shape, sampler
from ntk_deq.errors import ArgumentError, nearest_name

_ALLOWED = (
    "a distribution expression is made of numbers, size letters, scalars, + - * / ^, "
    f"{', '.join(SCALAR_FUNCTIONS)}, and distributions ({', '.join(DISTRIBUTIONS)})"
)

_ARITHMETIC: dict[Kind, Callable[[float, float], float]] = {
    Kind.ADD: operator.add,
    Kind.SUBTRACT: operator.sub,
    Kind.MULTIPLY: operator.mul,
    Kind.DIVIDE: operator.truediv,
    Kind.POWER: math.pow,
}

_FUNCTIONS: dict[str, Callable[..., float]] = {
    "sqrt": math.sqrt,
    "exp": math.exp,
    "log": math.log,
    "abs": abs,
    "min": lambda *values: min(values),
    "max": lambda *values: max(values),
}


def draw_expression(expr: Expr, shape: Shape, scalars: Mapping[str, float | int], generator: torch.Generator) -> Tensor:
    """Draw one tensor from a distribution expression.

    Args:
        expr: The expression's tree, typed or not.
        shape: `()`, `(m,)` or `(d, m)`.
        scalars: Values of the size letters and scalar variables that the expression may use.
        generator: CPU generator.

    Returns:
        A float64 CPU tensor; an expression without a distribution is a constant, which only a scalar can be.

    Raises:
        ArgumentError: The expression is no distribution, uses an unknown name, or has no value (a division by zero).

    Example:
        >>> from ntk_deq.claims.parser import parse
        >>> draw_expression(parse("beta*ones - identity/m"), (2, 2), {"m": 2, "beta": 3.0}, torch.Generator()).tolist()
        [[2.5, 3.0], [3.0, 2.5]]
    """
    found = _Reader(expr, scalars).read(expr)
    if callable(found):
        return found(shape, generator)
    if shape:
        raise ArgumentError(
            f"`{format_expr(expr)}` is a number, but a draw of shape {shape} is asked for. Write c*ones for a constant."
        )
    return torch.tensor(found, dtype=torch.float64)


@dataclass(frozen=True)
class _Reader:
    """Reads a tree into a number or a sampler; `whole` is what messages quote."""

    whole: Expr
    scalars: Mapping[str, float | int]

    def read(self, expr: Expr) -> float | Sampler:
        """Return the value of a node."""
        match expr.kind:
            case Kind.NUMBER:
                return float(expr.value if expr.value is not None else 0)
            case Kind.NAME:
                return self._name(expr)
            case Kind.CALL:
                return self._call(expr)
            case Kind.NEGATE:
                value = self.read(expr.args[0])
                return _product(value, -1.0) if callable(value) else -value
            case Kind.ADD | Kind.SUBTRACT | Kind.MULTIPLY | Kind.DIVIDE | Kind.POWER:
                return self._binary(expr)
        raise self._error(expr, f"a {expr.kind.value!r} cannot stand in it: {_ALLOWED}")

    def _name(self, expr: Expr) -> float | Sampler:
        if expr.name in self.scalars:
            return float(self.scalars[expr.name])
        if expr.name in DISTRIBUTIONS:
            return self._distribution(expr)
        known = [*self.scalars, *DISTRIBUTIONS]
        near = nearest_name(expr.name, known)
        hint = f" Did you mean {near!r}?" if near else ""
        raise self._error(expr, f"unknown name {expr.name!r}. Known: {', '.join(known)}.{hint}")

    def _call(self, expr: Expr) -> float | Sampler:
        if expr.name in DISTRIBUTIONS:
            return self._distribution(expr)
        if expr.name not in _FUNCTIONS:
            near = nearest_name(expr.name, [*DISTRIBUTIONS, *_FUNCTIONS])
            hint = f" Did you mean {near!r}?" if near else ""
            raise self._error(expr, f"unknown function {expr.name!r}: {_ALLOWED}.{hint}")
        values = [self._number(argument) for argument in expr.args]
        return self._finite(expr, _FUNCTIONS[expr.name], *values)

    def _distribution(self, expr: Expr) -> Sampler:
        entry = DISTRIBUTIONS[expr.name]
        parameters: list[float | Sampler] = []
        for position, argument in enumerate(expr.args):
            wanted = entry.parameters[position] if position < len(entry.parameters) else ""
            parameters.append(self.read(argument) if wanted == "distribution" else self._number(argument))
        try:
            return sampler(expr.name, *parameters)
        except ArgumentError as error:
            raise self._error(expr, str(error)) from None

    def _binary(self, expr: Expr) -> float | Sampler:
        left, right = (self.read(argument) for argument in expr.args)
        if not callable(left) and not callable(right):
            return self._finite(expr, _ARITHMETIC[expr.kind], left, right)
        if callable(left) and callable(right):
            if expr.kind in (Kind.ADD, Kind.SUBTRACT):
                return _sum(left, right, 1.0 if expr.kind is Kind.ADD else -1.0)
        elif callable(left) and not callable(right):
            if expr.kind is Kind.MULTIPLY:
                return _product(left, right)
            if expr.kind is Kind.DIVIDE:
                return _product(left, self._finite(expr, operator.truediv, 1.0, right))
        elif callable(right) and not callable(left) and expr.kind is Kind.MULTIPLY:
            return _product(right, left)
        raise self._error(
            expr, "a distribution may be added to a distribution, and multiplied or divided by a number, nothing else"
        )

    def _number(self, expr: Expr) -> float:
        value = self.read(expr)
        if callable(value):
            raise self._error(expr, "a number is needed here, not a distribution")
        return value

    def _finite(self, expr: Expr, function: Callable[..., float], *values: float) -> float:
        """Apply a function of numbers; a result that is no finite real number is an error."""
        try:
            value = function(*values)
        except (ArithmeticError, ValueError, TypeError) as error:
            raise self._error(expr, f"it has no value ({error})") from None
        if not math.isfinite(value):
            raise self._error(expr, "it has no finite value")
        return value

    def _error(self, expr: Expr, message: str) -> ArgumentError:
        part = "" if expr is self.whole else f", at `{format_expr(expr)}`"
        return ArgumentError(f"Distribution `{format_expr(self.whole)}`{part}: {message.rstrip('.')}.")


def _sum(left: Sampler, right: Sampler, sign: float) -> Sampler:
    return lambda shape, generator: left(shape, generator) + sign * right(shape, generator)


def _product(inner: Sampler, factor: float) -> Sampler:
    return lambda shape, generator: inner(shape, generator) * factor
