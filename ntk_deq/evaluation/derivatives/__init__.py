"""Derivatives of formulas: reverse mode in balls along a tape, kinks, and an estimate where there is no rule.

tape.py          the graph of a formula: names followed, equal subformulas one node
reverse.py       reverse mode in balls, automatic differentiation beside it; gradient.py: as a formula again
kinks.py         which zeros of relu, abs and step a derivative meets
derivative.py    `grad` and `jac`; what hands states and derivatives to environments

Here: cotangents, what reverse mode carries back for all differentiated outputs at once, and how they pass operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import torch
from flint import arb, arb_mat
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified.precise import PreciseMatrix, as_ball
from ntk_deq.certified.precise.matrix import from_rows
from ntk_deq.certified.rounding import multiply_up, root_up
from ntk_deq.certified.structured import densified
from ntk_deq.errors import NtkDeqError
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.environment import Notes
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.tree import Kind

Shape = tuple[int, int]

T = TypeVar("T")


@dataclass(frozen=True)
class Cotangent:
    """R cotangents of one quantity.

    Attributes:
        ball: R x (rows cols), entries row after row; in arb where the environment's matrices are.
        scale: Magnitude of what it was computed from, as in `Matrix`.
    """

    ball: ct.Ball
    scale: float

    @property
    def count(self) -> int:
        """How many outputs are differentiated."""
        return self.ball.shape[0]


def rearranged_ball(ball: ct.Ball, move: Callable[[Tensor], Tensor]) -> ct.Ball:
    """Return a matrix with its entries moved, some left out or zeros put between: no error grows by that."""
    if isinstance(ball, PreciseMatrix):
        rows, cols = ball.shape
        places = move(torch.arange(1, rows * cols + 1).reshape(rows, cols))
        entries = [arb(0), *ball.flat]
        moved = [entries[k] for k in places.flatten().tolist()]
        return as_ball(from_rows(places.shape[0], places.shape[1], moved, ball.reason))
    return ct.Ball(move(ball.centre), ball.radius, ball.reason)


def rearranged(cot: Cotangent, move: Callable[[Tensor], Tensor]) -> Cotangent:
    """Return the cotangents with their entries moved; `move` takes and returns a matrix, a row for each cotangent."""
    return Cotangent(rearranged_ball(cot.ball, move), cot.scale)


def plus(left: Cotangent, right: Cotangent) -> Cotangent:
    """Return left + right."""
    return Cotangent(ct.add(left.ball, right.ball), left.scale + right.scale)


def minus(cot: Cotangent) -> Cotangent:
    """Return -cot."""
    return Cotangent(ct.negate(cot.ball), cot.scale)


def scaled(factor: Scalar, cot: Cotangent) -> Cotangent:
    """Return factor C for each cotangent C."""
    return Cotangent(ct.scale(factor.ball, cot.ball), factor.scale * cot.scale)


def times_right(cot: Cotangent, shape: Shape, factor: Matrix) -> Cotangent:
    """Return C B for each cotangent C of a given shape."""
    rows, cols = shape
    stacked = rearranged_ball(cot.ball, lambda c: c.reshape(-1, cols))
    product: ct.Ball = densified(ct.matmul(stacked, factor.ball))
    wide = product.shape[1]
    return Cotangent(rearranged_ball(product, lambda c: c.reshape(-1, rows * wide)), cot.scale * factor.scale)


def times_left(factor: Matrix, cot: Cotangent, shape: Shape) -> Cotangent:
    """Return A C for each cotangent C of a given shape."""
    (rows, cols), count = shape, cot.count
    beside = rearranged_ball(cot.ball, lambda c: c.reshape(count, rows, cols).transpose(0, 1).reshape(rows, -1))
    product: ct.Ball = densified(ct.matmul(factor.ball, beside))
    flat = rearranged_ball(product, lambda c: c.reshape(-1, count, cols).transpose(0, 1).reshape(count, -1))
    return Cotangent(flat, cot.scale * factor.scale)


def _flat(matrix: Matrix, rows: int) -> ct.Ball:
    return rearranged_ball(densified(matrix.ball), lambda c: c.reshape(rows, -1))


def inner(cot: Cotangent, matrix: Matrix) -> Cotangent:
    """Return the sum of the entries of C .* P for each cotangent C: one number each."""
    column = _flat(matrix, matrix.ball.shape[0] * matrix.ball.shape[1])
    return Cotangent(ct.matmul(cot.ball, column), cot.scale * matrix.scale)


def outer(cot: Cotangent, matrix: Matrix) -> Cotangent:
    """Return c P for each cotangent c of a number."""
    return Cotangent(ct.matmul(cot.ball, _flat(matrix, 1)), cot.scale * matrix.scale)


def times_entries(cot: Cotangent, matrix: Matrix) -> Cotangent:
    """Return C .* P for each cotangent C."""
    repeated = rearranged_ball(_flat(matrix, 1), lambda c: c.expand(cot.count, -1).contiguous())
    if isinstance(repeated, ct.Ball) and cot.count > 1:
        spread = multiply_up(root_up(float(cot.count)), repeated.radius)
        repeated = ct.Ball(repeated.centre, spread, repeated.reason)
    return Cotangent(ct.hadamard(cot.ball, repeated), cot.scale * matrix.scale)


def times_signs(cot: Cotangent, signs: Tensor) -> Cotangent:
    """Return C .* S for each cotangent C and a matrix S of -1, 0 and 1, which needs no rounding."""
    row = signs.reshape(1, -1)
    if isinstance(cot.ball, PreciseMatrix):
        return Cotangent(ct.hadamard(cot.ball, ct.ball(row.double().expand(cot.count, -1))), cot.scale)
    return rearranged(cot, lambda c: c * row.to(c))


def transposed(cot: Cotangent, shape: Shape) -> Cotangent:
    """Return C' for each cotangent C of a given shape."""
    rows, cols = shape
    if 1 in shape:
        return cot
    return rearranged(cot, lambda c: c.reshape(-1, rows, cols).mT.reshape(-1, rows * cols))


Value = Scalar | Matrix
EQUILIBRIUM, VARIABLE, STATE, CONSTANT, SQUARED_LENGTH, MINIMUM, MINIMISER = (
    "equilibrium",
    "variable",
    "state",
    "constant",
    "squared length",
    "least value",
    "where it is least",
)
"""What nodes do besides the operators and functions of the language."""

ONE, _TWO = Scalar(arb(1), 1.0), Scalar(arb(2), 2.0)


@dataclass(eq=False)
class Node:
    """A quantity and how it was computed.

    Attributes:
        number: Its place in the tape; arguments have smaller ones.
        operation: An operator or function of the language, or one of the words above.
        args: What it was computed from.
        depends: Numbers of the variables and states that it changes with.
        compute: Returns its value.
        state: Of a minimum and a minimiser: what `image` is least over.
        image: Of both: what is least; of a minimum also its argument, of a minimiser none.
        reached: Of a minimum: the same at the minimiser, which moves.
    """

    number: int
    operation: str
    args: tuple[Node, ...]
    depends: frozenset[int]
    compute: Callable[[], Value]
    state: Node | None = None
    image: Node | None = None
    reached: Node | None = None

    @cached_property
    def value(self) -> Value:
        """The value as a ball."""
        return self.compute()

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns; 1 x 1 for a number."""
        return self.value.ball.shape if isinstance(self.value, Matrix) else (1, 1)

    @property
    def is_scalar(self) -> bool:
        """Whether it is a number, not a matrix."""
        return isinstance(self.value, Scalar)

    def matrix(self) -> Matrix:
        """Return its value, which must be a matrix."""
        return ar.to_matrix(self.value)

    def dense(self) -> ct.Ball:
        """Return its value as a dense ball, a number as 1 x 1."""
        value = self.value
        if isinstance(value, Scalar):
            return ct.from_scalar(value.ball)
        ball: ct.Ball = densified(value.ball)
        return ball


def reachable(roots: Iterable[Node], *, images: bool = False) -> list[Node]:
    """Return every node that a formula rests on, the latest first; with `images` those inside of minima, too."""
    seen: dict[int, Node] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node.number not in seen:
            seen[node.number] = node
            stack.extend(node.args)
            if images and node.image is not None:
                stack.append(node.image)
    return [seen[number] for number in sorted(seen, reverse=True)]


def folded(root: Node, known: dict[int, T], rule: Callable[[Node], T]) -> T:
    """Return what a rule gives a node from what it gave those that it rests on, all of which is kept in `known`."""
    for node in reversed(reachable([root])):
        if node.number not in known:
            known[node.number] = rule(node)
    return known[root.number]


@dataclass(frozen=True)
class Signs:
    """Where the entries of a quantity are above, below or at zero for certain."""

    above: Tensor
    below: Tensor
    zero: Tensor


def signs_of(node: Node) -> Signs:
    """Return what is certain of the signs of a node's entries."""
    ball = PreciseMatrix(arb_mat([[node.value.ball]])) if isinstance(node.value, Scalar) else node.dense()
    if isinstance(ball, PreciseMatrix):
        found = [torch.tensor([bool(test(x)) for x in ball.flat]).reshape(ball.shape) for test in _TESTS]
        return Signs(*found)
    if not isinstance(ball, ct.Ball) or not ball.is_finite:
        nowhere = torch.zeros(node.shape, dtype=torch.bool)
        return Signs(nowhere, nowhere, nowhere)
    centre = ball.work.cpu()
    return Signs(centre > ball.radius, centre < -ball.radius, (centre == 0) & (ball.radius == 0))


_TESTS = (lambda x: x > 0, lambda x: x < 0, lambda x: x == 0)


class NoRuleError(NtkDeqError):
    """A derivative that no rule certifies.

    Attributes:
        operation: The function.
        reason: Why.
    """

    def __init__(self, operation: str, reason: str) -> None:
        super().__init__(f"{operation}: {reason}")
        self.operation = operation
        self.reason = reason


Rule = Callable[[Node, Cotangent, int, Notes], Cotangent]


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


OPERATOR_RULES: dict[str, Rule] = {
    str(Kind.NEGATE): lambda node, cot, place, notes: minus(cot),
    str(Kind.ADD): lambda node, cot, place, notes: cot,
    str(Kind.SUBTRACT): lambda node, cot, place, notes: minus(cot) if place == 1 else cot,
    str(Kind.MULTIPLY): _multiply,
    str(Kind.DIVIDE): _divide,
    str(Kind.POWER): _power,
    str(Kind.TRANSPOSE): lambda node, cot, place, notes: transposed(cot, node.args[0].shape[::-1]),
    SQUARED_LENGTH: lambda node, cot, place, notes: outer(scaled(_TWO, cot), node.args[0].matrix()),
    MINIMUM: lambda node, cot, place, notes: cot,
}
