"""A declared model read as one layer, Z = act(c Z P + inner(X S)), yhat = Z r: what fast and certified runs rest on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from torch import Tensor

from ntk_deq.equilibrium.slopes import IDENTITY, RELU, Activation
from ntk_deq.language.declaration import ModelSignature, Role
from ntk_deq.language.rows import TypedModel
from ntk_deq.language.tree import Expr, Kind, names_in
from ntk_deq.systems.model import LayerForm


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

    def form(self, values: Mapping[str, Tensor]) -> LayerForm | None:
        """Return the layer for the values of a model; None where its factor is no float, or not positive.

        Args:
            values: The hyperparameters by name.
        """
        exact = self.number * (1 if self.scalar is None else Fraction(float(values[self.scalar])))
        if exact <= 0 or Fraction(float(exact)) != exact:
            return None
        return LayerForm(*self.names, float(exact), self.activation, self.inner, transposed=self.transposed)


def declared_layer(signature: ModelSignature, typed: TypedModel) -> DeclaredLayer | None:
    """Return a model's layer, or None where its formulas are not seen to be one.

    Args:
        signature: The model.
        typed: Its formulas.

    Example:
        >>> from ntk_deq.language.library import IMPLICIT_RELU, LINEAR_IMPLICIT
        >>> from ntk_deq.language.rows import rowwise_model
        >>> layers = [declared_layer(model, rowwise_model(model)) for model in (IMPLICIT_RELU, LINEAR_IMPLICIT)]
        >>> [(layer.names, layer.scalar, layer.transposed) for layer in layers]
        [(('A', 'W', 'b'), 'gamma', False), (('W', 'U', 'b'), None, True)]
    """
    state, (inputs,) = signature.state, signature.names(Role.INPUT)
    assert typed.map is not None  # as `rowwise_model` leaves it
    activation, inside = _activation(_resolved(typed.map, typed))
    if inside.kind is not Kind.ADD:
        return None
    moving = typed.depending({state})
    terms = sorted(inside.args, key=lambda term: not names_in(term) & moving)
    if [bool(names_in(term) & moving) for term in terms] != [True, False]:
        return None
    inner, source = _activation(_resolved(terms[1], typed))
    weight, fed, read = (list(_factors(_resolved(part, typed))) for part in (terms[0], source, typed.predictions))
    if len(weight) < 2 or len(fed) != 2 or len(read) != 2:
        return None
    *scales, before, last = weight
    P, S, r = _parameter(last), _parameter(fed[1]), _parameter(read[1])
    places = [(before, state), (fed[0], inputs), (read[0], state)]
    if not all(part.kind is Kind.NAME and part.name == name for part, name in places) or not (P and S and r):
        return None
    names = (P[0], S[0], r[0])
    if sorted(names) != sorted(signature.names(Role.PARAMETER)) or P[1] != S[1] or r[1]:
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


def _resolved(expr: Expr, typed: TypedModel) -> Expr:
    """Write out a name that is a definition."""
    while expr.kind is Kind.NAME and expr.name in typed.definitions:
        expr = typed.definitions[expr.name]
    return expr


def _activation(expr: Expr) -> tuple[Activation, Expr]:
    return (RELU, expr.args[0]) if expr.kind is Kind.CALL and expr.name == "relu" else (IDENTITY, expr)


def _factors(expr: Expr) -> Iterator[Expr]:
    if expr.kind is Kind.MULTIPLY:
        yield from _factors(expr.args[0])
        yield expr.args[1]
    else:
        yield expr


def _parameter(expr: Expr) -> tuple[str, bool] | None:
    """Return the name of a variable and whether it stands transposed."""
    inner = expr.args[0] if expr.kind is Kind.TRANSPOSE else expr
    return (inner.name, inner is not expr) if inner.kind is Kind.NAME else None
