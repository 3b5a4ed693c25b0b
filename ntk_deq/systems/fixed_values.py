"""Formulas of parameters and numbers, free of samples: their values, each part evaluated once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from torch import Tensor

from ntk_deq.evaluation.floats import OPERATORS, TensorNames, tensor_value
from ntk_deq.evaluation.functions.floats import FUNCTIONS
from ntk_deq.evaluation.functions.tensors import scalar
from ntk_deq.language.functions import entrywise_of
from ntk_deq.language.tree import Expr, Kind, names_in


class FixedValues:
    """Values of formulas that know no samples, for one set of parameters.

    Args:
        variables: Parameters and hyperparameters; a vector may come with one axis or as a column.
        sizes: Returns the values of the size letters, where a formula asks for one.
        definitions: Formulas that a name may stand for.
        like: A tensor with the dtype and device of the results.

    Attributes:
        like: As given.

    Example:
        >>> import torch
        >>> from ntk_deq.language.parser import parse
        >>> one = torch.ones(1, 1)
        >>> FixedValues({"A": one}, dict, {"B": parse("2*A")}, one[0, 0]).value(parse("B + A"))
        tensor([[3.]])
    """

    def __init__(
        self,
        variables: Mapping[str, Tensor],
        sizes: Callable[[], Mapping[str, float]],
        definitions: Mapping[str, Expr],
        like: Tensor,
    ) -> None:
        self.like, self._variables, self._definitions, self._find_sizes = like, variables, definitions, sizes
        self._kept: dict[str | int, Tensor] = {}

    @cached_property
    def sizes(self) -> Mapping[str, float]:
        """Values of the size letters."""
        return self._find_sizes()

    @cached_property
    def _names(self) -> TensorNames:
        columns = {name: self._variable(name) for name in self._variables}
        names = TensorNames(columns, self.sizes, {}, None, self.like)
        names.cache.update(self._kept)
        self._kept = names.cache
        return names

    def _variable(self, name: str) -> Tensor:
        value = self._variables[name]
        return value.unsqueeze(-1) if value.ndim == 1 else value

    def value(self, expr: Expr) -> Tensor:
        """Return the value of a formula, a matrix or a number; parts are kept for the next that needs them.

        Args:
            expr: The formula.
        """
        found = self._kept.get(id(expr))
        if found is None:
            found = self._kept[id(expr)] = self._worked_out(expr)
        return found

    def _worked_out(self, expr: Expr) -> Tensor:
        name = expr.name
        if expr.kind is Kind.NAME:
            if name in self._variables:
                return self._variable(name)
            if name in self._definitions:
                if name not in self._kept:
                    for other in self._behind(name):  # in order, so that they do not call each other
                        self._kept[other] = self.value(self._definitions[other])
                return self._kept[name]
        parts = [self.value(arg) for arg in expr.args]
        if expr.kind in OPERATORS:
            return OPERATORS[expr.kind](*parts)
        if expr.kind is Kind.CALL and name in FUNCTIONS and entrywise_of(name) is None:
            return FUNCTIONS[name](self.like, *parts)
        return tensor_value(expr, self._names)

    def _behind(self, name: str) -> list[str]:
        """Return a definition with those that it is made of, each after what it builds on, but for known ones."""
        kept, wanted = self._kept, {name}
        for other in self.later_first():
            if other in wanted and other not in kept:
                wanted |= names_in(self._definitions[other])
        return [other for other in self._definitions if other in wanted and other not in kept]

    def number(self, expr: Expr) -> Tensor:
        """Return the value of a formula of a number, 0-d.

        Args:
            expr: The formula.
        """
        return scalar(self.value(expr))

    def definition(self, name: str) -> Expr | None:
        """Return the formula that a name stands for, None where it stands for a variable or a size."""
        return self._definitions.get(name)

    def later_first(self) -> list[str]:
        """Return the names of definitions, each before those that it is made of."""
        return list(reversed(list(self._definitions)))
