"""Every function of the language by name: in balls, in floats, in exact numbers, and as a rule for cotangents."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from flint import arb
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.algebraic import Number
from ntk_deq.certified.algebraic_matrix import ExactMatrix
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.derivatives import (
    OPERATOR_RULES,
    Cotangent,
    Node,
    NoRuleError,
    Rule,
    scaled,
    signs_of,
    times_entries,
    times_signs,
)
from ntk_deq.evaluation.environment import Environment, Notes
from ntk_deq.evaluation.functions import PIECE_TWINS, Exactly, ExactValue, Handler, Magnitude, MatrixTwin, Value, scalar
from ntk_deq.evaluation.functions.entrywise import TWINS, evaluated, factor, slopes
from ntk_deq.evaluation.functions.functionals import NUMBER_TWINS
from ntk_deq.evaluation.functions.matrices import MATRIX_TWINS
from ntk_deq.evaluation.functions.spectra import SPECTRAL_TWINS
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar, Truth
from ntk_deq.language.functions import FUNCTIONS as RECORDS
from ntk_deq.language.functions import entrywise_of, kink_of
from ntk_deq.language.record import Kink
from ntk_deq.language.tree import INDICATOR, PI, Expr, Kind
from ntk_deq.language.written import definition_of, put

OF_MATRICES: dict[str, MatrixTwin] = {**PIECE_TWINS, **MATRIX_TWINS, **NUMBER_TWINS, **SPECTRAL_TWINS}
"""The twins of functions of matrices."""

# --- in balls -------------------------------------------------------------------------------------------------------


def call(name: str, args: Sequence[Value], env: Environment) -> Value:
    """Apply the function called `name`; the type checker has seen to the arity and the shapes."""
    return BALLS[name](args, env)


def _entrywise(name: str) -> Handler:
    def handler(args: Sequence[Value], env: Environment) -> Value:
        return _written(name)(args, env) if len(args) > 1 else evaluated(name, args[0], env)

    return handler


def _written(name: str) -> Handler:
    """A function of each entry and a number, as it is written out; numbers are added to every entry."""

    def handler(args: Sequence[Value], env: Environment) -> Value:
        definition = definition_of(name, len(args))
        assert definition is not None
        names, formula = definition
        values: dict[str, Value] = dict(zip(names, (args[0], *map(ar.to_scalar, args[1:])), strict=True))

        def apply(node: Expr, parts: Sequence[Value]) -> Value:
            return call(node.name, parts, env) if node.kind is Kind.CALL else _operator(node.kind, parts, env)

        return put(formula, values, lambda value: Scalar(ct.exact(value), abs(float(value))), apply)

    return handler


def _spread(number: Scalar, like: Matrix, env: Environment) -> Matrix:
    """Return the matrix of the shape of another, every entry of which is a number."""
    rows, cols = like.ball.shape
    ones = BALLS["ones"]([Scalar(arb(rows), float(rows)), Scalar(arb(cols), float(cols))], env)
    return ar.to_matrix(ar.multiply(number, ones, env.notes))


def _operator(kind: Kind, args: Sequence[Value], env: Environment) -> Value:
    """Return the value of an operator in a formula of a record."""
    if kind is Kind.NEGATE:
        return ar.negate(args[0])
    left, right = args
    if kind in (Kind.ADD, Kind.SUBTRACT):
        if isinstance(left, Matrix) and isinstance(right, Scalar):
            right = _spread(right, left, env)
        elif isinstance(left, Scalar) and isinstance(right, Matrix):
            left = _spread(left, right, env)
    return ar.BINARY[kind](left, right, env.notes)


def _indicator(args: Sequence[Value], env: Environment) -> Value:
    """0 where a statement is true for certain, +inf where it is false."""
    (outcome,) = args
    assert isinstance(outcome, Outcome)
    if outcome.truth in (Truth.TRUE, Truth.FALSE):
        return Scalar(arb(0) if outcome.truth is Truth.TRUE else arb("+inf"), 1.0)
    env.notes.doubt("whether a point lies in a set is not certain")
    return Scalar(sc.nan(), 1.0)


BALLS: dict[str, Handler] = {
    **{name: _written(name) for name, record in RECORDS.items() if record.definition is not None},
    **{name: _entrywise(name) for name in TWINS},
    **{name: twin.ball for name, twin in OF_MATRICES.items()},
    PI: lambda args, env: Scalar(arb.pi(), math.pi),
    INDICATOR: _indicator,
}

# --- in floats ------------------------------------------------------------------------------------------------------


def _entrywise_tensor(name: str) -> Callable[..., Tensor]:
    function = TWINS[name].tensor
    return lambda like, a: function(a)


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    **{name: _entrywise_tensor(name) for name in TWINS},
    **{name: twin.tensor for name, twin in OF_MATRICES.items()},
    PI: lambda like: like.new_full((), math.pi),
}
"""Each takes a tensor with the wanted dtype and device, then the arguments."""

MAGNITUDES: dict[str, Magnitude] = {
    name: twin.magnitude for name, twin in OF_MATRICES.items() if twin.magnitude is not None
}
"""The magnitude of what a value was computed from; of a function that is not here it is the value's size."""


def spread(value: Tensor) -> Tensor:
    """Give a scalar the two dimensions of a matrix."""
    return value if value.ndim == 0 else value[..., None, None]


def _multiply(left: Tensor, right: Tensor) -> Tensor:
    if left.ndim < 2:
        return left * right if right.ndim < 2 else spread(left) * right
    if right.ndim < 2:
        return left * spread(right)
    if left.shape[-1] != right.shape[-2]:
        single = left.shape[-1] == left.shape[-2] == 1
        return spread(scalar(left)) * right if single else left * spread(scalar(right))
    return left @ right


def _add(left: Tensor, right: Tensor) -> Tensor:
    if (left.ndim < 2) != (right.ndim < 2):
        return scalar(left) + scalar(right)
    return left + right


def _subtract(left: Tensor, right: Tensor) -> Tensor:
    if (left.ndim < 2) != (right.ndim < 2):
        return scalar(left) - scalar(right)
    return left - right


def _divide(left: Tensor, right: Tensor) -> Tensor:
    divisor = scalar(right)
    return left / (spread(divisor) if left.ndim > 1 else divisor)


def _power(base: Tensor, exponent: Tensor) -> Tensor:
    if base.ndim > 1 and base.shape[-1] > 1:
        return _matrix_power(base, exponent)
    # A 1 x 1 matrix stays one: what takes a matrix may stand around it.
    return base ** (spread(scalar(exponent)) if base.ndim > 1 else scalar(exponent))


def _matrix_power(base: Tensor, exponent: Tensor) -> Tensor:
    """Return a whole power; many steps at once may each have an exponent of their own."""
    if exponent.numel() == 1:
        return torch.linalg.matrix_power(base, int(exponent))
    base = base.expand(len(exponent), *base.shape[-2:])
    parts = [(exponent == degree).nonzero().flatten() for degree in exponent.unique()]
    powers = [torch.linalg.matrix_power(base[places], int(exponent[places[0]])) for places in parts]
    return torch.cat(powers)[torch.cat(parts).argsort()]


OPERATORS: dict[Kind, Callable[..., Tensor]] = {
    Kind.NEGATE: torch.neg,
    Kind.ADD: _add,
    Kind.SUBTRACT: _subtract,
    Kind.MULTIPLY: _multiply,
    Kind.DIVIDE: _divide,
    Kind.POWER: _power,
    Kind.TRANSPOSE: lambda a: a.mT,
}


def entry_by_entry(kind: Kind, parts: Sequence[Tensor]) -> Tensor:
    """Return the value of an operator in a formula of a record: a number is added to every entry."""
    if kind in (Kind.ADD, Kind.SUBTRACT) and len({part.ndim < 2 for part in parts}) == 2:
        parts = [spread(part) if part.ndim < 2 else part for part in parts]
        return parts[0] + parts[1] if kind is Kind.ADD else parts[0] - parts[1]
    return OPERATORS[kind](*parts)


# --- in exact numbers -----------------------------------------------------------------------------------------------


def _entrywise_exactly(function: Callable[[Number], Number]) -> Exactly:
    def handler(args: Sequence[ExactValue]) -> ExactValue:
        value = args[0]
        return value.mapped(function) if isinstance(value, ExactMatrix) else function(value)

    return handler


EXACT: dict[str, Exactly] = {
    **{name: _entrywise_exactly(twin.exact) for name, twin in TWINS.items() if twin.exact is not None},
    **{name: twin.exact for name, twin in OF_MATRICES.items() if twin.exact is not None},
}
"""Every function that has an exact value somewhere."""

# --- cotangents -----------------------------------------------------------------------------------------------------


def _entrywise_rule(name: str) -> Rule:
    """Pass C .* f'(A); at a corner any slope will do, as `kinks` has seen, and 0 is taken."""
    facts, twin = entrywise_of(name), TWINS[name]
    assert facts is not None
    sides = facts.sides

    def of_sides(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
        assert sides is not None
        signs = signs_of(node.args[0])
        return times_signs(cot, sides[1] * signs.above.to(torch.int8) + sides[0] * signs.below.to(torch.int8))

    def of_slopes(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
        argument = node.args[0]
        if node.shape == (1, 1):
            return scaled(factor(name, ar.to_scalar(argument.value), ar.to_scalar(node.value), notes), cot)
        ball = slopes(twin, argument.dense())
        if facts.kink is Kink.EDGE and not ball.is_finite:
            notes.kink(f"{name} of an entry that may be at an end of its domain", certain=False)
        return times_entries(cot, Matrix(ball, ar.magnitude(ct.frobenius(ball))))

    return of_slopes if sides is None else of_sides


RULES: dict[str, Rule] = {
    **OPERATOR_RULES,
    **{name: twin.pull for name, twin in OF_MATRICES.items() if twin.pull is not None},
    **{name: _entrywise_rule(name) for name in TWINS if kink_of(name) is not Kink.JUMP},
}
"""Every operator and function with a certified rule; constants (I, zeros, ones, commutation) and jumps need none."""

IN_FLOATS = frozenset(name for name, twin in OF_MATRICES.items() if twin.in_floats)
"""Functions whose rules take float balls only."""


def rule_of(operation: str) -> Rule:
    """Return the rule of an operation.

    Raises:
        NoRuleError: It has none.
    """
    if operation not in RULES:
        raise NoRuleError(operation, "its derivative has no certified rule")
    return RULES[operation]
