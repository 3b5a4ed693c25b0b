"""The nodes of a formula's graph: quantities, what they were computed from, and what they change with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from flint import arb

from ntk_deq import certified as ct
from ntk_deq.certified.dispatch import dense_form
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.quantity import Matrix, Scalar

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

ONE = Scalar(arb(1), 1.0)


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
        ball: ct.Ball = dense_form(value.ball)
        return ball


def reachable(roots: Iterable[Node]) -> list[Node]:
    """Return every node that a formula rests on, the latest first."""
    seen: dict[int, Node] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node.number not in seen:
            seen[node.number] = node
            stack.extend(node.args)
    return [seen[number] for number in sorted(seen, reverse=True)]
