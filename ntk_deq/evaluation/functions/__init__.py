"""What computes the functions of the language, each for a kind of number.

Those of one number are twins of their records (`entrywise`). Of those of matrices some are, too (a twin's fields are
here; `pieces`, `matrices`); the others are in `balls`, `floats` and `exact`, which take the twins in. How cotangents
pass them all is in `slopes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified.algebraic import Number
from ntk_deq.certified.algebraic_matrix import ExactMatrix
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.derivatives.cotangents import Cotangent
from ntk_deq.evaluation.environment import Environment, Notes
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar


def vec(value: Tensor) -> Tensor:
    """Stack the columns of a matrix."""
    return value.mT.reshape(*value.shape[:-2], -1, 1)


def scalar(value: Tensor) -> Tensor:
    """Read a scalar, or a 1 x 1 matrix as one."""
    return value if value.ndim < 2 else value[..., 0, 0]


def frobenius(value: Tensor) -> Tensor:
    """Return the Frobenius norm of a matrix, or the absolute value of a scalar."""
    return value.abs() if value.ndim < 2 else torch.linalg.vector_norm(value, dim=(-2, -1))


def where_finite(value: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function of matrices that must see no NaN or infinity; the result is NaN where an entry is one."""
    if bool(torch.isfinite(value.sum())):  # then every entry is, and it costs one pass
        return function(value)
    bad = ~torch.isfinite(value).all(-1).all(-1)
    if not bool(bad.any()):
        return function(value)
    result = function(torch.where(bad[..., None, None], 0.0, value))
    return torch.where(bad.reshape(*bad.shape, *(1,) * (result.ndim - bad.ndim)), torch.nan, result)


def singular_values(value: Tensor) -> Tensor:
    """Return the singular values, largest first."""
    return where_finite(value, torch.linalg.svdvals)


def kron(a: Tensor, b: Tensor) -> Tensor:
    """Return the Kronecker product."""
    product = a[..., :, None, :, None] * b[..., None, :, None, :]
    rows, cols = a.shape[-2] * b.shape[-2], a.shape[-1] * b.shape[-1]
    return product.reshape(*product.shape[:-4], rows, cols)


Value = Scalar | Matrix | Outcome
Handler = Callable[[Sequence[Value], Environment], Value]
ExactValue = Number | ExactMatrix


class Passed(Protocol):
    """A node of a tape, as a rule for cotangents sees it: `ntk_deq.evaluation.derivatives.cotangents.Node`."""

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


class Sized(Protocol):
    """A call in floats whose magnitude is asked for, one number for each instance."""

    @property
    def count(self) -> int:
        """How many arguments there are."""

    def of(self, place: int) -> Tensor:
        """Return the magnitude of an argument."""

    def value(self, place: int) -> Tensor:
        """Return the value of an argument."""

    def own(self) -> Tensor:
        """Return the size of the value itself."""


Magnitude = Callable[[Sized], Tensor]


def of_argument(call: Sized) -> Tensor:
    """Return the magnitude of the argument, which no value is larger than."""
    return call.of(0)


def of_product(call: Sized) -> Tensor:
    """Return the product of the magnitudes of two factors."""
    return call.of(0) * call.of(1)


def of_inverse(call: Sized) -> Tensor:
    """Return the magnitude of an inverse, which errs by the condition number times its own size."""
    size = call.own()
    return size * (size * call.of(0)).clamp_min(1.0)


def of_all(call: Sized) -> Tensor:
    """Return the root of the sum of the squares of the magnitudes of all arguments."""
    sizes = [call.of(place) for place in range(call.count)]
    return torch.stack(torch.broadcast_tensors(*sizes)).square().sum(0).sqrt()


@dataclass(frozen=True, kw_only=True)
class MatrixTwin:
    """What computes a function of matrices.

    Attributes:
        ball: Its value from those of its arguments, all of them balls.
        tensor: Its value in floats, differentiable, of one instance or a batch: a tensor of the wanted kind, then the
            arguments.
        exact: Its exact value; None: it is not computed.
        pull: How a cotangent of its value passes to one argument; None: derivatives are estimates.
        in_floats: Whether that rule takes float balls only.
        magnitude: Of its value; None: its size.
    """

    ball: Handler
    tensor: Callable[..., Tensor]
    exact: Callable[[Sequence[ExactValue]], ExactValue] | None = None
    pull: Pull | None = None
    in_floats: bool = False
    magnitude: Magnitude | None = None


def whole(value: Value) -> int:
    """Read a size or an index."""
    return int(float(ar.to_scalar(value).ball.mid()))
