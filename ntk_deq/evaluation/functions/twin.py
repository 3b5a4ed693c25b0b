"""What computes a function of matrices: its values in balls, floats and exact numbers, its cotangents, its magnitude."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified.algebraic import Number
from ntk_deq.certified.algebraic_matrix import ExactMatrix
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.derivatives.cotangent import Cotangent
from ntk_deq.evaluation.environment import Environment, Notes
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar

Value = Scalar | Matrix | Outcome
Handler = Callable[[Sequence[Value], Environment], Value]
ExactValue = Number | ExactMatrix


class Passed(Protocol):
    """A node of a tape, as a rule for cotangents sees it: `ntk_deq.evaluation.derivatives.tape.Node`."""

    @property
    def operation(self) -> str:
        """The function."""

    @property
    def args(self) -> Sequence[Passed]:
        """The nodes of the arguments."""

    @property
    def value(self) -> Value:
        """The value as a ball."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns; 1 x 1 for a number."""

    @property
    def is_scalar(self) -> bool:
        """Whether it is a number, not a matrix."""

    def matrix(self) -> Matrix:
        """Return its value, which must be a matrix."""

    def dense(self) -> ct.Ball:
        """Return its value as a dense ball, a number as 1 x 1."""


Pull = Callable[[Passed, Cotangent, int, Notes], Cotangent]
Magnitude = Callable[[Sequence[Tensor], Sequence[Tensor], Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class MatrixTwin:
    """What computes a function of matrices.

    Attributes:
        ball: Its value from those of its arguments, all of them balls.
        tensor: Its value in floats, differentiable, of one instance or a batch: a tensor of the wanted kind, then the
            arguments.
        exact: Its exact value; None: it is not computed.
        pull: How a cotangent of its value passes to one argument; None: no rule is certified, derivatives are estimates.
        magnitude: Of its value, from the magnitudes of the arguments, their values and its own; None: its size.
    """

    ball: Handler
    tensor: Callable[..., Tensor]
    exact: Callable[[Sequence[ExactValue]], ExactValue] | None = None
    pull: Pull | None = None
    magnitude: Magnitude | None = None


def whole(value: Value) -> int:
    """Read a size or an index."""
    return int(float(ar.to_scalar(value).ball.mid()))
