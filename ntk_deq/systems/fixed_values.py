"""Formulas of parameters and numbers, free of samples: their values, each part evaluated once."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from ntk_deq.evaluation.floats import TensorNames, tensor_value
from ntk_deq.evaluation.functions.twin import scalar
from ntk_deq.language.tree import Expr, Kind, names_in


class FixedValues:
    """Values of formulas that know no samples, for one set of parameters.

    Args:
        variables: Parameters and hyperparameters; a vector may come with one axis or as a column.
        sizes: Values of the size letters.
        definitions: Formulas that a name may stand for.
        like: A tensor with the dtype and device of the results.

    Attributes:
        sizes: As given.
        like: As given.

    Example:
        >>> import torch
        >>> from ntk_deq.language.parser import parse
        >>> one = torch.ones(1, 1)
        >>> FixedValues({"A": one}, {}, {"B": parse("2*A")}, one[0, 0]).value(parse("B + A"))
        tensor([[3.]])
    """

    def __init__(
        self,
        variables: Mapping[str, Tensor],
        sizes: Mapping[str, float],
        definitions: Mapping[str, Expr],
        like: Tensor,
    ) -> None:
        self.sizes, self.like, self._definitions = sizes, like, definitions
        columns = {name: value.unsqueeze(-1) if value.ndim == 1 else value for name, value in variables.items()}
        self._names = TensorNames(columns, sizes, {}, None, like)

    def value(self, expr: Expr) -> Tensor:
        """Return the value of a formula, a matrix or a number; parts are kept for the next that needs them.

        Args:
            expr: The formula.
        """
        kept = self._names.cache
        if id(expr) in kept:
            return kept[id(expr)]
        if expr.kind is Kind.NAME and expr.name in self._definitions:
            if expr.name not in kept:
                for name in self._behind(expr.name):  # in order, so that they do not call each other
                    kept[name] = self.value(self._definitions[name])
            return kept[expr.name]
        for arg in expr.args:
            self.value(arg)
        found = kept[id(expr)] = tensor_value(expr, self._names)
        return found

    def _behind(self, name: str) -> list[str]:
        """Return a definition with those that it is made of, each after what it builds on, but for known ones."""
        kept, wanted = self._names.cache, {name}
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
