"""A model's map read as one layer, z -> act(W z + c) for each sample z: the formula of its weight W.

Samples are the columns of the state, act(W*Z + C), its rows, act(Z*L + C) with W = L', or the state is one of them. The
activation must be the identity or proximal: a function of one number that nowhere falls and has slopes of 1 at most.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce

from ntk_deq.errors import NtkDeqError
from ntk_deq.language.families import size_expr, size_of
from ntk_deq.language.functions import FUNCTIONS, entrywise_of
from ntk_deq.language.symmetry import is_gram
from ntk_deq.language.tree import Expr, Kind, Span
from ntk_deq.language.types import ONE, Sort

_NOWHERE = Span(0, 0)


class _NoLayerError(NtkDeqError):
    """A part of a map that is not affine in the state, or in no form that is read here."""


@dataclass(frozen=True)
class _Term:
    """A product with the state, or its transpose, in the middle."""

    numbers: tuple[Expr, ...] = ()
    left: tuple[Expr, ...] = ()
    right: tuple[Expr, ...] = ()
    flipped: bool = False

    def transposed(self) -> _Term:
        left, right = (tuple(_transposed(factor) for factor in side[::-1]) for side in (self.right, self.left))
        return _Term(self.numbers, left, right, not self.flipped)


def layer_weight(image: Expr, state: str, definitions: Mapping[str, Expr], *, shape: Sequence[str]) -> Expr | None:
    """Return the formula of W, or None where the map is not seen to be of this form.

    Args:
        image: The map, typed.
        state: Name of the state.
        definitions: The model's definitions, typed; the map may use them.
        shape: Sizes of the state.

    Example:
        >>> from ntk_deq.language.format import format_expr
        >>> from ntk_deq.language.parser import parse
        >>> from ntk_deq.language.types import SCALAR, matrix
        >>> from ntk_deq.language.typing import infer
        >>> names = {"Z": matrix("N", "m"), "P": matrix("N", "m"), "A": matrix("m", "m"), "c": SCALAR}
        >>> def weight(text):
        ...     found = layer_weight(infer(parse(text), names), "Z", {}, shape=("N", "m"))
        ...     return None if found is None else format_expr(found)
        >>> weight("relu(c*Z*A + P)"), weight("softplus(P - Z/2)")
        ("(c*A)'", "((-1)*(1/2)*I(m))'")
        >>> weight("softthreshold(Z*A + P, c)"), weight("relu(Z*A + hadamard(Z, P))"), weight("step(Z*A)")
        ("A'", None, None)
    """
    try:
        found = _terms(_inside(image, state, definitions), state, definitions)
        return _combined(found, shape) if found else None
    except _NoLayerError:
        return None


def modulus_statement(weight: Expr, monotone: Expr) -> Expr:
    """Return the statement that I - W >= m I in its symmetric part: lambda_max((W + W')/2) + m <= 1.

    Args:
        weight: W.
        monotone: m.
    """
    half = Expr(Kind.DIVIDE, _NOWHERE, args=(_pair(Kind.ADD, weight, _transposed(weight)), _number(2)))
    largest = Expr(Kind.CALL, _NOWHERE, args=(half,), name="lambda_max")
    return Expr(Kind.COMPARE, _NOWHERE, args=(_pair(Kind.ADD, largest, monotone), _number(1)), operators=("<=",))


def reaches_modulus(weight: Expr, monotone: Expr, definitions: Mapping[str, Expr]) -> bool:
    """Whether I - W >= m I by the form of W, as for (1 - m)I - A'A + B - B', whatever the values are.

    Args:
        weight: W.
        monotone: m.
        definitions: The model's definitions, typed.
    """
    identity = Expr(Kind.CALL, _NOWHERE, args=(Expr(Kind.NAME, _NOWHERE, name="n"),), name="I")
    rest = _pair(Kind.SUBTRACT, _pair(Kind.SUBTRACT, identity, weight), _pair(Kind.MULTIPLY, monotone, identity))
    return is_gram(rest, definitions)


def activation_parameter(image: Expr, definitions: Mapping[str, Expr]) -> tuple[Expr, float, float] | None:
    """Return the parameter of a map's activation that is proximal for some values only, and these values.

    Args:
        image: The map, typed.
        definitions: The model's definitions, typed.

    Example:
        >>> from ntk_deq.language.format import format_expr
        >>> from ntk_deq.language.parser import parse
        >>> parameter, low, high = activation_parameter(parse("leaky_relu(W*z, a/2)"), {})
        >>> format_expr(parameter), low, high, activation_parameter(parse("relu(W*z)"), {})
        ('a/2', 0.0, 1.0, None)
    """
    image = _written(image, definitions)
    definition = FUNCTIONS[image.name].defined(len(image.args)) if image.kind is Kind.CALL else None
    if definition is None or definition.proximal in (None, (-math.inf, math.inf)):
        return None
    return image.args[1], *definition.proximal


def _written(image: Expr, definitions: Mapping[str, Expr]) -> Expr:
    while image.kind is Kind.NAME and image.name in definitions:
        image = definitions[image.name]
    return image


def _inside(image: Expr, state: str, definitions: Mapping[str, Expr]) -> Expr:
    """Return what the activation of a map is applied to."""
    image = _written(image, definitions)
    if image.kind is not Kind.CALL:
        return image
    facts, definition = entrywise_of(image.name), FUNCTIONS[image.name].defined(len(image.args))
    if definition is not None:
        moving = any(_terms(arg, state, definitions) for arg in image.args[1:])
        return image if moving or definition.proximal is None or _never(image, definition.proximal) else image.args[0]
    return image.args[0] if facts is not None and facts.proximal else image


def _never(call: Expr, allowed: tuple[float, float]) -> bool:
    """Whether the parameter of a call is a number outside of a range."""
    value = call.args[1].value
    return value is not None and not allowed[0] <= value <= allowed[1]


def _terms(expr: Expr, state: str, definitions: Mapping[str, Expr]) -> list[_Term]:
    """Return the terms of a formula in which the state stands; none where it does not occur."""
    if expr.kind is Kind.NAME:
        if expr.name == state:
            return [_Term()]
        return _terms(definitions[expr.name], state, definitions) if expr.name in definitions else []
    parts = [_terms(arg, state, definitions) for arg in expr.args]
    if not any(parts):
        return []
    match expr.kind:
        case Kind.NEGATE:
            return [_scaled(term, _number(-1)) for term in parts[0]]
        case Kind.TRANSPOSE:
            return [term.transposed() for term in parts[0]]
        case Kind.ADD:
            return [*parts[0], *parts[1]]
        case Kind.SUBTRACT:
            return [*parts[0], *(_scaled(term, _number(-1)) for term in parts[1])]
        case Kind.DIVIDE if not parts[1]:
            factor = Expr(Kind.DIVIDE, _NOWHERE, args=(_number(1), expr.args[1]))
            return [_scaled(term, factor) for term in parts[0]]
        case Kind.MULTIPLY if not parts[1]:
            return [_times(term, expr.args[1], left=False) for term in parts[0]]
        case Kind.MULTIPLY if not parts[0]:
            return [_times(term, expr.args[0], left=True) for term in parts[1]]
        case Kind.CALL if not any(parts[1:]) and _adds(expr):
            return parts[0]
    raise _NoLayerError("the map is not seen to be affine in its state")


def _adds(call: Expr) -> bool:
    """Whether a function only adds a number to every entry."""
    definition = FUNCTIONS[call.name].defined(len(call.args))
    return definition is not None and definition.slope == "1.0"


def _scaled(term: _Term, number: Expr) -> _Term:
    return replace(term, numbers=(number, *term.numbers))


def _times(term: _Term, factor: Expr, *, left: bool) -> _Term:
    if factor.type is None:
        raise _NoLayerError("a factor without a type")
    if factor.type.sort is not Sort.MATRIX or (factor.type.rows == ONE and factor.type.cols == ONE):
        return _scaled(term, factor)
    return replace(term, left=(factor, *term.left)) if left else replace(term, right=(*term.right, factor))


def _combined(terms: Sequence[_Term], shape: Sequence[str]) -> Expr:
    """Return the weight of a sum of terms, all of which act on columns of the state, or all on rows."""
    if any(term.flipped or (term.left and term.right) for term in terms):
        raise _NoLayerError("the state stands transposed, or between two matrices")
    if len(shape) < 2 and any(term.right for term in terms):
        raise _NoLayerError("a vector stands in front of a matrix")
    rows = any(term.right for term in terms) or (len(shape) == 2 and not any(term.left for term in terms))
    if rows and any(term.left for term in terms):
        raise _NoLayerError("some terms act on rows, others on columns")
    order = size_expr(size_of(shape[-1 if rows else 0]), _NOWHERE) if shape else _number(1)
    unit = Expr(Kind.CALL, _NOWHERE, args=(order,), name="I")
    summands = [
        reduce(lambda a, b: _pair(Kind.MULTIPLY, a, b), [*term.numbers, *(term.left or term.right or (unit,))])
        for term in terms
    ]
    total = reduce(lambda a, b: _pair(Kind.ADD, a, b), summands)
    return _transposed(total) if rows else total


def _pair(kind: Kind, left: Expr, right: Expr) -> Expr:
    return Expr(kind, _NOWHERE, args=(left, right))


def _transposed(expr: Expr) -> Expr:
    return expr.args[0] if expr.kind is Kind.TRANSPOSE else Expr(Kind.TRANSPOSE, _NOWHERE, args=(expr,))


def _number(value: int) -> Expr:
    return Expr(Kind.NUMBER, _NOWHERE, value=Fraction(value))
