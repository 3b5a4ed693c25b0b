"""A declared model read as one layer, and its contraction factor as a formula: what fast and certified runs rest on.

The layer is Z = act(c Z P + inner(X S)), yhat = Z r.

The contraction factor is a formula of spectral norms, so that it can be bounded near by without a decomposition: where
each norm(E) stands so that the factor nowhere falls with it, Weyl's inequality, norm(E) <= norm(E0) + fro(E - E0),
bounds the factor by its own formula.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium.slopes import IDENTITY, RELU, Activation
from ntk_deq.equilibrium.splitting import MonotoneLayer
from ntk_deq.language.declaration import ModelSignature, Role
from ntk_deq.language.functions import entrywise_of
from ntk_deq.language.loss import PREDICTIONS
from ntk_deq.language.row_program import Op, Row, is_number
from ntk_deq.language.rows import RowModel
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.systems.formula_values import FixedValues, PreparedRows, RowProgram
from ntk_deq.systems.model import SingleLayer


@dataclass(frozen=True)
class DeclaredLayer:
    """A layer as it is declared: its factor is a number times at most one hyperparameter.

    Attributes:
        names: The names of P, S and r.
        number: The number.
        scalar: The hyperparameter, or None.
        activation: act.
        inner: inner.
        transposed: Whether the map has P' and S'.
    """

    names: tuple[str, str, str]
    number: Fraction
    scalar: str | None
    activation: Activation
    inner: Activation
    transposed: bool

    def map(self, values: Mapping[str, Tensor], rows: Float[Tensor, "N d"]) -> Callable[[Tensor], Tensor]:
        """Return the layer as a function of the state, with what is free of it worked out: no program is looked at.

        Args:
            values: Parameters and hyperparameters by name.
            rows: Inputs, one sample a row.
        """
        weight, source = values[self.names[0]], values[self.names[1]]
        if self.transposed:
            weight, source = weight.mT, source.mT
        if self.scalar is not None:
            weight = values[self.scalar] * weight
        if self.number != 1:
            weight = float(self.number) * weight
        fed = rows @ source if self.inner.linear else torch.relu(rows @ source)
        if self.activation.linear:
            return lambda Z: torch.addmm(fed, Z, weight)
        return lambda Z: torch.relu(torch.addmm(fed, Z, weight))

    def form(self, values: Mapping[str, Tensor]) -> SingleLayer | None:
        """Return the layer for the values of a model; None where its factor is no float, or not positive.

        Args:
            values: The hyperparameters by name.
        """
        exact = self.number * (1 if self.scalar is None else Fraction(float(values[self.scalar])))
        if exact <= 0 or Fraction(float(exact)) != exact:
            return None
        return SingleLayer(*self.names, float(exact), self.activation, self.inner, transposed=self.transposed)


def declared_layer(signature: ModelSignature, model: RowModel) -> DeclaredLayer | None:
    """Return a model's layer, or None where its programs are not seen to be one.

    Args:
        signature: The model.
        model: Its programs.

    Example:
        >>> from ntk_deq.language.declaration import IMPLICIT_RELU, LINEAR_IMPLICIT
        >>> from ntk_deq.language.rows import rowwise_model
        >>> layers = [declared_layer(model, rowwise_model(model)) for model in (IMPLICIT_RELU, LINEAR_IMPLICIT)]
        >>> [(layer.names, layer.scalar, layer.transposed) for layer in layers]
        [(('A', 'W', 'b'), 'gamma', False), (('W', 'U', 'b'), None, True)]
    """
    if model.map is None:
        return None
    activation, inside = _activation(model.map)
    if inside.op is not Op.SUM or inside.signs != (1, 1):
        return None
    moving, still = sorted(inside.args, key=lambda row: not row.moving)
    inner, source = _activation(still)
    products = [(moving, Op.STATE), (source, Op.INPUT), (model.predictions, Op.STATE)]
    if any(row.op is not Op.PRODUCT or row.args[0].op is not before for row, before in products):
        return None
    *scales, last = _factors(moving.fixed[0])
    found = [
        _parameter(expr, row, model)
        for expr, row in ((last, moving), (source.fixed[0], source), (model.predictions.fixed[0], model.predictions))
    ]
    if None in found:
        return None
    P, S, r = (each for each in found if each is not None)
    names = (P[0], S[0], r[0])
    if sorted(names) != sorted(signature.names(Role.PARAMETER)) or P[1] != S[1]:
        return None
    if len(signature.variable(r[0]).shape) != 1 or model.axes[PREDICTIONS]:
        return None
    number, scalars = Fraction(1), list[str]()
    for scale in scales:
        if (value := _number(scale)) is not None:
            number *= value
        elif scale.kind is Kind.NAME and scale.name in signature.names(Role.HYPERPARAMETER):
            scalars.append(scale.name)
        else:
            return None
    if len(scalars) > 1 or any(signature.variable(name).shape for name in scalars):
        return None
    return DeclaredLayer(names, number, scalars[0] if scalars else None, activation, inner, P[1])


def _number(expr: Expr) -> Fraction | None:
    """Return a number, or a quotient of two."""
    if expr.kind is Kind.DIVIDE:
        left, right = map(_number, expr.args)
        return None if left is None or not right else left / right
    return expr.value if expr.kind is Kind.NUMBER else None


def _activation(row: Row) -> tuple[Activation, Row]:
    facts = entrywise_of(row.name) if row.op is Op.ENTRYWISE else None
    return (RELU, row.args[0]) if facts is not None and facts.is_positive_part else (IDENTITY, row)


def _factors(expr: Expr) -> Iterator[Expr]:
    """Return numbers that scale a matrix, and the matrix."""
    if expr.kind is Kind.MULTIPLY and is_number(expr.args[0]):
        yield from _numbers(expr.args[0])
        yield from _factors(expr.args[1])
    else:
        yield expr


def _numbers(expr: Expr) -> Iterator[Expr]:
    if expr.kind is Kind.MULTIPLY:
        for arg in expr.args:
            yield from _numbers(arg)
    else:
        yield expr


def _parameter(expr: Expr, row: Row, model: RowModel) -> tuple[str, bool] | None:
    """Return the name of the variable that multiplies rows, and whether it stands transposed there."""
    flipped = row.flipped
    while expr.kind is Kind.TRANSPOSE or expr.name in model.typed.definitions:
        flipped ^= expr.kind is Kind.TRANSPOSE
        expr = expr.args[0] if expr.kind is Kind.TRANSPOSE else model.typed.definitions[expr.name]
    return (expr.name, flipped) if expr.kind is Kind.NAME else None


def monotone_layer(
    root: Row, X: Float[Tensor, "N d"], fixed: FixedValues, parametric: Callable[[Expr], bool]
) -> MonotoneLayer | None:
    """Return a program as a layer act(W z + c), act proximal or the identity; None: it is not seen to be one.

    Args:
        root: The map.
        X: Inputs, one sample a row.
        fixed: Parameters.
        parametric: Tells whether a formula depends on a parameter.
    """
    facts = entrywise_of(root.name) if root.op is Op.ENTRYWISE else None
    inside = root.args[0] if facts is not None and facts.proximal else root
    prepared = RowProgram(root, parametric).at(X, fixed)
    terms = zip(inside.args, inside.signs, strict=True) if inside.op is Op.SUM else [(inside, 1)]
    moving = [(_state_matrix(row, prepared), sign) for row, sign in terms if row.moving]
    known = [sign * matrix for matrix, sign in moving if matrix is not None]
    if not known or len(known) < len(moving):
        return None
    weight: Tensor = torch.stack(known).sum(dim=0).mT if len(known) > 1 else known[0].mT
    nothing = X.new_zeros(X.shape[0], weight.shape[0])
    source = RowProgram(inside, parametric).at(X, fixed).value(nothing)
    if inside is root:
        return MonotoneLayer(weight, source, None)
    closed = facts is not None and facts.is_positive_part  # a form that splittings know
    return MonotoneLayer(weight, source, torch.relu if closed else prepared.function(root))


def _state_matrix(row: Row, prepared: PreparedRows) -> Tensor | None:
    """Return the matrix that a term multiplies rows of the state with; None: it does something else."""
    if row.op is Op.PRODUCT and row.args[0].op is Op.STATE:
        return prepared.matrix(row)
    if row.op is Op.STATE:
        order = row.width.evaluate({letter: int(size) for letter, size in prepared.fixed.sizes.items()})
        return torch.eye(order, dtype=prepared.fixed.like.dtype, device=prepared.fixed.like.device)
    if row.op is Op.SCALE:
        inner = _state_matrix(row.args[0], prepared)
        return None if inner is None else inner * prepared.fixed.number(row.fixed[0])
    return None


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

    def plain_names(self, parameters: Collection[str], constants: Collection[str]) -> tuple[str, ...]:
        """Return the parameters that the norms are taken of, if nothing else in the factor moves; else none.

        Args:
            parameters: The names of parameters.
            constants: Names of what stays as it is.
        """
        inside = {id(node) for norm in self.norms for node in norm.walk()}
        outside = {node.name for node in self.expr.walk() if node.kind is Kind.NAME and id(node) not in inside}
        names = tuple(norm.args[0].name for norm in self.norms if norm.args[0].kind is Kind.NAME)
        plain = len(names) == len(self.norms) and all(name in parameters for name in names)
        return names if plain and all(name in constants for name in outside) else ()

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

    def of_norms(self, fixed: FixedValues) -> Callable[[Sequence[float]], float | None]:
        """Return the factor as a function of numbers for its norms; its value is None where it might fall with one.

        Args:
            fixed: The parameters; what stands outside of the norms is worked out here once.
        """
        try:
            rising = self._rising(self.expr, fixed, {id(norm): place for place, norm in enumerate(self.norms)})
        except _NotRisingError:
            return lambda sizes: None

        def value(sizes: Sequence[float]) -> float | None:
            try:
                return rising(sizes)
            except (_NotRisingError, OverflowError):
                return None

        return value

    def _rising(self, expr: Expr, fixed: FixedValues, places: Mapping[int, int]) -> Callable[[Sequence[float]], float]:
        if (place := places.get(id(expr))) is not None:
            return lambda sizes: sizes[place]
        if not any(id(node) in places for node in expr.walk()):
            number = float(fixed.number(expr))
            return lambda sizes: number
        if expr.kind is Kind.POWER and any(id(node) in places for node in expr.args[1].walk()):
            raise _NotRisingError
        parts = [self._rising(arg, fixed, places) for arg in expr.args]
        if expr.kind is Kind.CALL and expr.name == "max":
            return lambda sizes: max(part(sizes) for part in parts)
        if expr.kind not in _RISING:
            raise _NotRisingError
        (left, right), combine, signed = parts, _RISING[expr.kind], expr.kind is Kind.ADD

        def combined(sizes: Sequence[float]) -> float:
            first, second = left(sizes), right(sizes)
            if not signed and not (first >= 0 and second >= 0):
                raise _NotRisingError
            return combine(first, second)

        return combined


def spectral_norms(matrices: Sequence[Tensor]) -> list[float]:
    """Return the spectral norms of matrices."""
    return [float(torch.linalg.matrix_norm(matrix, ord=2)) for matrix in map(torch.atleast_2d, matrices)]
