"""A contraction factor as a formula of spectral norms, so that it can be bounded near by without a decomposition.

Where each norm(E) in the formula stands so that the factor nowhere falls with it, Weyl's inequality,
norm(E) <= norm(E0) + fro(E - E0), bounds the factor by its own formula.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ntk_deq.language.tree import Expr, Kind
from ntk_deq.systems.fixed_values import FixedValues

_NORM = "norm"  # the function of the language that takes a decomposition
_RISING: dict[Kind, Callable[[float, float], float]] = {
    Kind.ADD: lambda a, b: a + b,
    Kind.MULTIPLY: lambda a, b: a * b,
    Kind.POWER: lambda a, b: a**b,
}


class _NotRisingError(Exception):
    """A norm stands where the factor may fall with it."""


@dataclass(frozen=True, eq=False)
class ContractionFactor:
    """A contraction factor.

    Attributes:
        expr: Its formula, free of samples.
        norms: The norms in it, of matrices with more than one row and column where they are such.
    """

    expr: Expr
    norms: tuple[Expr, ...]

    @classmethod
    def of(cls, expr: Expr, definitions: Mapping[str, Expr]) -> ContractionFactor:
        """Return the factor that a formula gives; norms within definitions are not looked for.

        Args:
            expr: The formula.
            definitions: What names may stand for.
        """
        found = tuple(node for node in expr.walk() if node.kind is Kind.CALL and node.name == _NORM)
        inside = {id(node) for norm in found for arg in norm.args for node in arg.walk()}
        return cls(expr, tuple(norm for norm in found if id(norm) not in inside))

    def matrices(self, fixed: FixedValues) -> list[Tensor]:
        """Return what the norms are taken of.

        Args:
            fixed: The parameters.
        """
        return [fixed.value(norm.args[0]) for norm in self.norms]

    def value(self, fixed: FixedValues) -> float:
        """Return the factor itself.

        Args:
            fixed: The parameters.
        """
        return float(fixed.number(self.expr))

    def with_norms(self, fixed: FixedValues, sizes: Sequence[float]) -> float | None:
        """Return the factor with these numbers for its norms; None where it might fall with one of them.

        Args:
            fixed: The parameters.
            sizes: Upper bounds of the norms.
        """
        known = {id(norm): size for norm, size in zip(self.norms, sizes, strict=True)}
        try:
            return self._with(self.expr, fixed, known)
        except (_NotRisingError, OverflowError):
            return None

    def _with(self, expr: Expr, fixed: FixedValues, known: Mapping[int, float]) -> float:
        if id(expr) in known:
            return known[id(expr)]
        if not any(id(node) in known for node in expr.walk()):
            return float(fixed.number(expr))
        if expr.kind is Kind.CALL and expr.name == "max":
            return max(self._with(arg, fixed, known) for arg in expr.args)
        if expr.kind not in _RISING:
            raise _NotRisingError
        left, right = (self._with(arg, fixed, known) for arg in expr.args)
        exponent = any(id(node) in known for node in expr.args[1].walk()) if expr.kind is Kind.POWER else False
        if (expr.kind is not Kind.ADD and not (left >= 0 and right >= 0)) or exponent:
            raise _NotRisingError
        return _RISING[expr.kind](left, right)


def spectral_norms(matrices: Sequence[Tensor]) -> list[float]:
    """Return the spectral norms of matrices."""
    return [float(torch.linalg.matrix_norm(matrix, ord=2)) for matrix in map(torch.atleast_2d, matrices)]
