"""The magnitude of what a floating-point value was computed from: the formula with every term taken by absolute value.

It is the `scale` of the balls (see `quantity`) without its guarantee: rounding moves a value by a few units of
round-off of its magnitude, so that it tells a small margin from noise. No gradient flows through it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ntk_deq.evaluation.floats import TensorNames, tensor_value
from ntk_deq.evaluation.functions.entrywise import TWINS
from ntk_deq.evaluation.functions.floats import MAGNITUDES
from ntk_deq.evaluation.functions.twin import frobenius, scalar
from ntk_deq.language.functions import entrywise_of
from ntk_deq.language.record import Entrywise
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.language.written import definition_of

Indices = Mapping[str, float]


class Magnitudes:
    """The magnitudes on one set of instances, each computed once.

    Args:
        names: What names mean.
    """

    def __init__(self, names: TensorNames) -> None:
        self.names = names
        self._known: dict[str | int, Tensor] = {}

    def of(self, expr: Expr, indices: Indices) -> Tensor:
        """Return the magnitude of a scalar or matrix expression, one number for each instance."""
        key = id(expr)
        if key in self._known:
            return self._known[key]
        handler = _RULES.get(expr.kind)
        return self.size(expr, indices) if handler is None else handler(self, expr, indices)

    def keep(self, expr: Expr, magnitude: Tensor) -> None:
        """Take a magnitude that is known already."""
        self._known[id(expr)] = magnitude

    def size(self, expr: Expr, indices: Indices) -> Tensor:
        """Return the Frobenius norm of the value itself."""
        return frobenius(tensor_value(expr, self.names, indices).detach())

    def _name(self, expr: Expr, indices: Indices) -> Tensor:
        name = expr.name
        if name in indices:
            return self.size(expr, indices)
        if name not in self._known:
            let = None if name in self.names.variables else self.names.lets.get(name)
            self._known[name] = self.size(expr, indices) if let is None else self.of(let.expr, {})
        return self._known[name]

    def _first(self, expr: Expr, indices: Indices) -> Tensor:
        return self.of(expr.args[0], indices)

    def _sum(self, expr: Expr, indices: Indices) -> Tensor:
        return self.of(expr.args[0], indices) + self.of(expr.args[1], indices)

    def _product(self, expr: Expr, indices: Indices) -> Tensor:
        return self.of(expr.args[0], indices) * self.of(expr.args[1], indices)

    def _quotient(self, expr: Expr, indices: Indices) -> Tensor:
        divisor = scalar(tensor_value(expr.args[1], self.names, indices)).detach().abs()
        # A divisor that lost digits by cancellation loses them for the quotient too.
        loss = (self.of(expr.args[1], indices) / divisor).clamp_min(1.0)
        return self.of(expr.args[0], indices) * loss / divisor

    def _power(self, expr: Expr, indices: Indices) -> Tensor:
        exponent = scalar(tensor_value(expr.args[1], self.names, indices)).detach()
        base = tensor_value(expr.args[0], self.names, indices)
        if base.ndim > 1 and bool((exponent < 0).all()):
            return self.size(expr, indices)
        size = frobenius(base.detach())
        grown = torch.maximum(self.of(expr.args[0], indices), size)
        loss = torch.where(size > 0, grown / size, 1.0)
        return torch.where(exponent >= 0, grown**exponent, size**exponent * loss)

    def _of_entries(self, expr: Expr, facts: Entrywise, indices: Indices) -> Tensor:
        if facts.sides:  # then no value is larger than the argument
            return self.of(expr.args[0], indices)
        grown = TWINS[expr.name].scale
        if grown is None:
            return self.size(expr, indices)
        value = tensor_value(expr, self.names, indices)
        magnitude: Tensor = grown(self.of(expr.args[0], indices), math.prod(value.shape[-2:]) if value.ndim > 1 else 1)
        return magnitude

    def _call(self, expr: Expr, indices: Indices) -> Tensor:
        name = expr.name
        if definition_of(name, len(expr.args)) is not None:  # whose terms may cancel
            return sum((self.of(arg, indices) for arg in expr.args), self.size(expr, indices))
        facts = entrywise_of(name)
        if facts is not None:
            return self._of_entries(expr, facts, indices)
        rule = MAGNITUDES.get(name)
        if rule is None:
            return self.size(expr, indices)
        return rule(_Met(self, expr, indices))


@dataclass(frozen=True)
class _Met:
    """One call, as the rule of its function sees it."""

    magnitudes: Magnitudes
    expr: Expr
    indices: Indices

    @property
    def count(self) -> int:
        """How many arguments there are."""
        return len(self.expr.args)

    def of(self, place: int) -> Tensor:
        """Return the magnitude of an argument."""
        return self.magnitudes.of(self.expr.args[place], self.indices)

    def value(self, place: int) -> Tensor:
        """Return the value of an argument."""
        return tensor_value(self.expr.args[place], self.magnitudes.names, self.indices)

    def own(self) -> Tensor:
        """Return the size of the value itself."""
        return self.magnitudes.size(self.expr, self.indices)


_RULES: dict[Kind, Callable[[Magnitudes, Expr, Indices], Tensor]] = {
    Kind.NAME: Magnitudes._name,
    Kind.NEGATE: Magnitudes._first,
    Kind.TRANSPOSE: Magnitudes._first,
    Kind.ADD: Magnitudes._sum,
    Kind.SUBTRACT: Magnitudes._sum,
    Kind.MULTIPLY: Magnitudes._product,
    Kind.DIVIDE: Magnitudes._quotient,
    Kind.POWER: Magnitudes._power,
    Kind.CALL: Magnitudes._call,
}
