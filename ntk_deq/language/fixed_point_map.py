"""What is read off a model's fixed-point map: that it is one layer, and a Lipschitz constant.

One layer is z -> act(W z + c) for each sample z; what is found is the formula of its weight W. Samples are the columns
of the state, act(W*Z + C), its rows, act(Z*L + C) with W = L', or the state is one of them. The activation must be the
identity or proximal: a function of one number that nowhere falls and has slopes of 1 at most.

The Lipschitz constant is that in the state, in the Frobenius norm, as a formula.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce

from ntk_deq.errors import ExpressionError, NtkDeqError
from ntk_deq.language.families import quoted, size_expr, size_of
from ntk_deq.language.format import format_expr, format_number
from ntk_deq.language.functions import FUNCTIONS, entrywise_of, product_of
from ntk_deq.language.record import Product
from ntk_deq.language.symmetry import is_gram
from ntk_deq.language.tree import Expr, Kind, Span
from ntk_deq.language.types import ONE, Size, Sort
from ntk_deq.language.written import Lift, definition_of, formula_of, put

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


def proximal_argument(image: Expr, state: str, definitions: Mapping[str, Expr]) -> Expr | None:
    """Return what the activation of a map is applied to, where it is proximal whatever its parameter; None: it is not.

    Args:
        image: The map, typed.
        state: Its state.
        definitions: The model's definitions, typed.

    Example:
        >>> from ntk_deq.language.format import format_expr
        >>> from ntk_deq.language.parser import parse
        >>> format_expr(proximal_argument(parse("softthreshold(W*z, t)"), "z", {}))
        'W*z'
    """
    image = _written(image, definitions)
    found = _inside(image, state, definitions)
    return None if found is image or activation_parameter(image, definitions) is not None else found


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


Factors = tuple[str, ...] | None
"""The factors of a constant as texts; none of them for the constant 1, None where the state does not occur."""


def lipschitz_constant(
    image: Expr, state: str, definitions: Mapping[str, Expr], *, depth: Mapping[str, int] | None = None
) -> str:
    """Return a Lipschitz constant of a map, a formula in its variables.

    Sums add, numbers count with their absolute value, matrices with their norm, and functions of each entry with the
    largest of their slopes, which is 1 for relu and tanh, 1/4 for sigmoid, max(1, abs(a)) for leaky_relu(., a).

    Args:
        image: The map, typed.
        state: Name of the state.
        definitions: The definitions, typed.
        depth: Values of size letters that are known, for a system that is written out for a depth.

    Raises:
        ExpressionError: The state stands where no constant is known; the span is that of the part in `image`.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> from ntk_deq.language.types import SCALAR, matrix
        >>> from ntk_deq.language.typing import infer
        >>> names = {"Z": matrix("N", "m"), "A": matrix("m", "m"), "c": SCALAR}
        >>> lipschitz_constant(infer(parse("relu(c*Z*A - Z/2)"), names), "Z", {})
        'abs(c)*norm(A) + 1/2'
    """
    numbers = {letter: Size.of(value) for letter, value in (depth or {}).items()}
    found = _visit(image, state, definitions, numbers)
    return "0" if found is None else _product(found)


def _product(factors: tuple[str, ...]) -> str:
    plain = [f"({factor})" if " + " in factor and len(factors) > 1 else factor for factor in factors]
    return "*".join(plain) or "1"


def _sum(terms: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the sum of products, common last factors taken out: layers with a skip would double at each."""
    if len(terms) == 1:
        return terms[0]
    last: tuple[str, ...] = ()
    while all(terms) and len({term[-1] for term in terms}) == 1:
        last = (terms[0][-1], *last)
        terms = [term[:-1] for term in terms]
    return (" + ".join(map(_product, terms)), *last)


def _visit(expr: Expr, state: str, definitions: Mapping[str, Expr], numbers: Mapping[str, Size]) -> Factors:
    if expr.kind is Kind.NAME:
        if expr.name == state:
            return ()
        try:
            return _visit(definitions[expr.name], state, definitions, numbers) if expr.name in definitions else None
        except ExpressionError as error:  # at a place in the definition
            raise _unknown(expr, f"`{expr.name}`: {error.message}") from error
    found = [_visit(arg, state, definitions, numbers) for arg in expr.args]
    if all(factors is None for factors in found):
        return None
    match expr.kind:
        case Kind.NEGATE | Kind.TRANSPOSE:
            return found[0]
        case Kind.ADD | Kind.SUBTRACT:
            return _sum([factors for factors in found if factors is not None])
        case Kind.MULTIPLY if None in found:
            moving = 0 if found[1] is None else 1
            factors, other = found[moving], expr.args[1 - moving]
            assert factors is not None  # one of the two is, and the other is not
            inner = expr.args[0].type, expr.args[1].type
            meets = (
                inner[0] is not None and inner[1] is not None and inner[0].cols.at(numbers) == inner[1].rows.at(numbers)
            )
            sizes = _sizes(other, "norm" if meets else "fro")
            return (*factors, *sizes) if moving == 0 else (*sizes, *factors)
        case Kind.DIVIDE if found[1] is None and found[0] is not None:
            divisor = _size(expr.args[1], "norm")
            return (f"1/{divisor}", *found[0])
        case Kind.CALL if found[0] is not None and all(factors is None for factors in found[1:]):
            own = _factors(expr)
            if own is not None:
                return (*own, *found[0])
        case Kind.CALL if product_of(expr) is Product.ENTRIES and None in found:
            factors, other = (found[0], expr.args[1]) if found[1] is None else (found[1], expr.args[0])
            assert factors is not None
            return (f"max(abs({format_expr(quoted(other))}))", *factors)
    raise _unknown(expr, "no Lipschitz constant of this part in the state is known.")


def _factors(call: Expr) -> Factors:
    """Return what a function of its first argument multiplies distances by at most; None: that is not known."""
    definition = definition_of(call.name, len(call.args))
    if definition is not None:
        own = FUNCTIONS[call.name].definition
        assert own is not None
        values = dict(zip(definition[0], call.args, strict=True))
        lift = Lift(call.span, matrix=False)
        text = format_expr(quoted(put(formula_of(own.lipschitz), values, lift.number, lift.plain)))
        return () if text == "1" else (text,)
    facts = FUNCTIONS[call.name].entrywise
    bound = FUNCTIONS[call.name].lipschitz if facts is None else facts.lipschitz
    if bound is None or not math.isfinite(bound):
        return None
    return () if bound == 1 else (format_number(Fraction(str(bound))),)


def _sizes(expr: Expr, matrices: str) -> tuple[str, ...]:
    """Return the sizes of the factors of a product with numbers, or that of the whole."""
    if expr.kind is Kind.MULTIPLY and any(
        arg.type is not None and arg.type.sort is not Sort.MATRIX for arg in expr.args
    ):
        return tuple(size for arg in expr.args for size in _sizes(arg, matrices))
    return (_size(expr, matrices),)


def _size(expr: Expr, matrices: str) -> str:
    while expr.kind is Kind.TRANSPOSE:  # which no norm sees
        expr = expr.args[0]
    if expr.kind is Kind.NUMBER and expr.value is not None and expr.value >= 0:
        return format_expr(quoted(expr))
    scalar = expr.type is not None and expr.type.sort is not Sort.MATRIX
    return f"{'abs' if scalar else matrices}({format_expr(quoted(expr))})"


def _unknown(expr: Expr, message: str) -> ExpressionError:
    hint = (
        "sums, products with what is free of the state, and functions of bounded slope such as relu and tanh have one"
    )
    return ExpressionError(message, (expr.span.start, expr.span.stop), hint)
