"""How cotangents pass the operators + - * / ^ and transposition.

Each rule takes a node, the cotangent C of its value and the place of an argument, and returns that argument's share:
for Y = f(A, ...) the matrix with inner product <C, dY> = <share, dA> for every dA.
"""

from __future__ import annotations

from collections.abc import Callable

from flint import arb

from ntk_deq import certified as ct
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.derivatives.cotangent import (
    Cotangent,
    inner,
    minus,
    outer,
    scaled,
    times_left,
    times_right,
    transposed,
)
from ntk_deq.evaluation.derivatives.nodes import MINIMUM, ONE, SQUARED_LENGTH, Node
from ntk_deq.evaluation.environment import Notes
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.tree import Kind

Rule = Callable[[Node, Cotangent, int, Notes], Cotangent]


def _negate(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    return minus(cot)


def _add(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    return cot


def _subtract(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    return minus(cot) if place == 1 else cot


def _transpose(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    rows, cols = node.args[0].shape
    return transposed(cot, (cols, rows))


def transposed_value(node: Node) -> Matrix:
    """Return the transpose of a matrix node's value."""
    return ar.to_matrix(ar.transpose(node.value))


def _multiply(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass Y = A B: C B' and A' C; Y = s B: <C, B> and s C."""
    left, right = node.args
    if left.is_scalar and right.is_scalar:
        return scaled(ar.to_scalar(node.args[1 - place].value), cot)
    number = number_place(left, right)
    if number is None:
        shape = (left.shape[0], right.shape[1])
        if place == 0:
            return times_right(cot, shape, transposed_value(right))
        return times_left(transposed_value(left), cot, shape)
    if place == number:
        return inner(cot, node.args[1 - place].matrix())
    return scaled(ar.to_scalar(node.args[number].value), cot)


def number_place(left: Node, right: Node) -> int | None:
    """Return which factor scales the other, or None for a matrix product; as `arithmetic.multiply` reads it."""
    if left.is_scalar:
        return 0
    if right.is_scalar:
        return 1
    if left.shape[1] == right.shape[0]:
        return None
    return 0 if left.shape == (1, 1) else 1


def _divide(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass Y = A/s: C/s and -<C, Y>/s."""
    reciprocal = ar.to_scalar(ar.divide(ONE, node.args[1].value, notes))
    if place == 0:
        return scaled(reciprocal, cot)
    value = node.value
    along = scaled(value, cot) if isinstance(value, Scalar) else inner(cot, value)
    return minus(scaled(reciprocal, along))


def _power(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass y = b^e: e b^(e-1) c and log(b) y c."""
    base, exponent = (ar.to_scalar(arg.value) for arg in node.args)
    if place == 0:
        if exponent.ball == 0:
            return scaled(Scalar(arb(0), 0.0), cot)
        lowered = ar.power(base, Scalar(exponent.ball - 1, exponent.scale + 1.0), notes)
        return scaled(ar.to_scalar(ar.multiply(exponent, lowered, notes)), cot)
    logarithm = ct.logarithm(base.ball)
    if not logarithm.is_finite():
        notes.undefined("the derivative by an exponent of a power whose base may be zero or less", certain=False)
    slope = Scalar(logarithm, max(1.0, ar.magnitude(logarithm)))
    return scaled(ar.to_scalar(ar.multiply(slope, node.value, notes)), cot)


def _squared_length(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass y = fro(A)^2: 2 c A."""
    return outer(scaled(Scalar(arb(2), 2.0), cot), node.args[0].matrix())


OPERATOR_RULES: dict[str, Rule] = {
    str(Kind.NEGATE): _negate,
    str(Kind.ADD): _add,
    str(Kind.SUBTRACT): _subtract,
    str(Kind.MULTIPLY): _multiply,
    str(Kind.DIVIDE): _divide,
    str(Kind.POWER): _power,
    str(Kind.TRANSPOSE): _transpose,
    SQUARED_LENGTH: _squared_length,
    MINIMUM: _add,
}
