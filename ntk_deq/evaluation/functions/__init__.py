"""What computes the functions of the language: the twins of their records.

entrywise.py    those of one number
matrices.py     those from matrices to a matrix
functionals.py  those from a matrix to a number: sums, extremes, norms; spectra.py: eigenvalues, and what needs symmetry
twins.py        all of them by name, in balls, in floats, in exact numbers, and as rules for cotangents

Here: what a twin of a function of matrices has, and the twins of entries, blocks and matrices of blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import torch
from flint import fmpq
from torch import Tensor
from torch.nn import functional

from ntk_deq import certified as ct
from ntk_deq.certified.algebraic import Number, UndecidedError, UndefinedError
from ntk_deq.certified.algebraic_matrix import MOST_ENTRIES, ExactMatrix
from ntk_deq.certified.precise import as_ball
from ntk_deq.certified.precise.matrix import from_rows
from ntk_deq.certified.structured import require_room
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.derivatives import Cotangent, Node, Rule, rearranged
from ntk_deq.evaluation.environment import Environment, Notes
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar
from ntk_deq.language.tree import Sign


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
Exactly = Callable[[Sequence[ExactValue]], ExactValue]


def exact_number(value: ExactValue) -> Number:
    """Read an exact number, or a 1 x 1 matrix as one."""
    if isinstance(value, ExactMatrix):
        if value.shape != (1, 1):
            raise TypeError(f"a scalar was expected, not a matrix of shape {value.shape}")
        return value.entries[0]
    return value


def as_exact_matrix(value: ExactValue) -> ExactMatrix:
    """Read an exact number as a 1 x 1 matrix."""
    return value if isinstance(value, ExactMatrix) else ExactMatrix(1, 1, [value])


def of_exact_matrix(function: Callable[[ExactMatrix], ExactValue]) -> Exactly:
    """Return the rule of a function of one exact matrix."""
    return lambda args: function(as_exact_matrix(args[0]))


def exact_room(rows: int, columns: int) -> tuple[int, int]:
    """Return a shape of exact entries that are not too many.

    Raises:
        UndecidedError: They are.
    """
    if rows * columns > MOST_ENTRIES:
        raise UndecidedError(f"a matrix of more than {MOST_ENTRIES} entries")
    return rows, columns


def unit_like(a: Matrix, order: int) -> Matrix:
    """Return the identity matrix with the element type and device of a matrix."""
    return Matrix(ct.identity(order, dtype=a.ball.dtype, device=a.ball.device), float(order) ** 0.5, gram=True)


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
    exact: Exactly | None = None
    pull: Rule | None = None
    in_floats: bool = False
    magnitude: Magnitude | None = None


def exact_whole(value: ExactValue) -> int:
    """Read an exact size or index.

    Raises:
        UndecidedError: It is irrational.
    """
    number = exact_number(value)
    if not isinstance(number, fmpq):
        raise UndecidedError("an irrational size")
    return int(number.p)


def whole(value: Value) -> int:
    """Read a size or an index."""
    return int(float(ar.to_scalar(value).ball.mid()))


Place = tuple[int, int, int, int]
"""First row and the one behind the last, first column and the one behind the last, counted from 0."""

Ends = Callable[[Sequence[int], int, int], Place]
"""The place of a piece, from its indices and the rows and columns of the matrix."""

_ENDS: dict[str, Ends] = {
    Sign.ENTRY: lambda at, rows, cols: (
        (at[0] - 1, at[0], at[1] - 1, at[1]) if len(at) > 1 else (at[0] - 1, at[0], 0, 1)
    ),
    Sign.SEGMENT: lambda at, rows, cols: (at[0] - 1, at[1], 0, cols),
    Sign.ROWS: lambda at, rows, cols: (at[0] - 1, at[1], 0, cols),
    Sign.COLUMNS: lambda at, rows, cols: (0, rows, at[0] - 1, at[1]),
    Sign.BLOCK: lambda at, rows, cols: (at[0] - 1, at[1], at[2] - 1, at[3]),
}


def _exists(place: Place, rows: int, cols: int) -> bool:
    top, bottom, left, right = place
    return 0 <= top < bottom <= rows and 0 <= left < right <= cols


def _missing(place: Place, rows: int, cols: int) -> str:
    top, bottom, left, right = place
    return f"rows {top + 1} to {bottom} and columns {left + 1} to {right} of a matrix of {rows} x {cols}"


def _piece(name: str) -> MatrixTwin:
    ends, is_entry = _ENDS[name], name == Sign.ENTRY

    def ball(args: Sequence[Value], env: Environment) -> Value:
        matrix = ar.to_matrix(args[0])
        place = ends([whole(arg) for arg in args[1:]], *matrix.ball.shape)
        if not _exists(place, *matrix.ball.shape):
            env.notes.undefined(_missing(place, *matrix.ball.shape), certain=True)
        piece = ct.block(matrix.ball, *place)
        return Scalar(ct.as_scalar(piece), matrix.scale) if is_entry else Matrix(piece, matrix.scale)

    def tensor(like: Tensor, a: Tensor, *at: Tensor) -> Tensor:
        top, bottom, left, right = place = ends([int(index) for index in at], *a.shape[-2:])
        if not _exists(place, *a.shape[-2:]):
            shape = (max(bottom - top, 1), max(right - left, 1))
            piece = a.new_full((*a.shape[:-2], *shape), math.nan)
        else:
            piece = a[..., top:bottom, left:right]
        return piece[..., 0, 0] if is_entry else piece

    def exact(args: Sequence[ExactValue]) -> ExactValue:
        matrix = args[0]
        assert isinstance(matrix, ExactMatrix)
        at = [exact_whole(arg) for arg in args[1:]]
        top, bottom, left, right = place = ends(at, *matrix.shape)
        if not _exists(place, *matrix.shape):
            raise UndefinedError(_missing(place, *matrix.shape))
        piece = ExactMatrix.built(bottom - top, right - left, lambda i, j: matrix[top + i, left + j])
        return piece.entries[0] if is_entry else piece

    def pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
        shape = node.args[0].shape
        inside = ends([whole(arg.value) for arg in node.args[1:]], *shape)
        return rearranged(cot, lambda c: _put_back(c, inside, shape))

    return MatrixTwin(ball=ball, tensor=tensor, exact=exact, pull=pull, magnitude=of_argument)


def _put_back(rows: Tensor, place: Place, shape: tuple[int, int]) -> Tensor:
    """Return the cotangents of a matrix from those of a piece of it."""
    top, bottom, left, right = place
    wide = rows.new_zeros(rows.shape[0], *shape)
    wide[:, top:bottom, left:right] = rows.reshape(-1, bottom - top, right - left)
    return wide.reshape(rows.shape[0], -1)


def _taken(rows: Tensor, place: Place, shape: tuple[int, int]) -> Tensor:
    """Return the cotangents of a piece from those of a matrix."""
    top, bottom, left, right = place
    return rows.reshape(-1, *shape)[:, top:bottom, left:right].reshape(rows.shape[0], -1)


def _as_block(value: Value, env: Environment) -> Matrix:
    """Return a block as a matrix; a number is one entry."""
    if isinstance(value, Matrix):
        return value
    number = ar.to_scalar(value)
    if env.precision is not None:
        return Matrix(as_ball(from_rows(1, 1, [number.ball])), number.scale)
    return Matrix(ct.from_scalar(number.ball, dtype=env.like.dtype, device=env.like.device), number.scale)


Shapes = Sequence[tuple[int, int]]


def _side_by_side(shapes: Shapes) -> list[Place]:
    ends = [0, *accumulate(cols for _, cols in shapes)]
    return [(0, rows, ends[k], ends[k + 1]) for k, (rows, _) in enumerate(shapes)]


def _stacked(shapes: Shapes) -> list[Place]:
    ends = [0, *accumulate(rows for rows, _ in shapes)]
    return [(ends[k], ends[k + 1], 0, cols) for k, (_, cols) in enumerate(shapes)]


def _along_the_diagonal(shapes: Shapes) -> list[Place]:
    across, along = _stacked(shapes), _side_by_side(shapes)
    return [(*rows[:2], *cols[2:]) for rows, cols in zip(across, along, strict=True)]


def _size(places: Sequence[Place]) -> tuple[int, int]:
    return max(place[1] for place in places), max(place[3] for place in places)


def _beside(blocks: list[ct.Ball], env: Environment) -> ct.Ball:
    return ct.beside(*blocks)


def _above(blocks: list[ct.Ball], env: Environment) -> ct.Ball:
    return ct.above(*blocks)


def _diagonal(blocks: list[ct.Ball], env: Environment) -> ct.Ball:
    places = _along_the_diagonal([block.shape for block in blocks])
    width = _size(places)[1]
    rows = []
    for block, (top, bottom, left, right) in zip(blocks, places, strict=True):
        count = bottom - top
        parts = [_zeros(count, left, env)] if left else []
        parts += [block, *([_zeros(count, width - right, env)] if right < width else [])]
        rows.append(ct.beside(*parts))
    return ct.above(*rows)


def _zeros(rows: int, cols: int, env: Environment) -> ct.Ball:
    return env.constant(ct.ball(env.like.new_zeros(rows, cols)))


def _wide(blocks: list[Tensor]) -> Tensor:
    return torch.cat(blocks, -1)


def _tall(blocks: list[Tensor]) -> Tensor:
    return torch.cat(blocks, -2)


def _filled_up(blocks: list[Tensor]) -> Tensor:
    places = _along_the_diagonal([(block.shape[-2], block.shape[-1]) for block in blocks])
    width = _size(places)[1]
    pairs = zip(blocks, places, strict=True)
    return _tall([functional.pad(block, (left, width - right)) for block, (_, _, left, right) in pairs])


def _together(
    places_of: Callable[[Shapes], list[Place]],
    balls: Callable[[list[ct.Ball], Environment], ct.Ball],
    tensors: Callable[[list[Tensor]], Tensor],
) -> MatrixTwin:
    def ball(args: Sequence[Value], env: Environment) -> Value:
        blocks = [_as_block(arg, env) for arg in args]
        require_room(*_size(places_of([block.ball.shape for block in blocks])), "A matrix of blocks")
        joined = balls([block.ball for block in blocks], env)
        return Matrix(joined, math.hypot(*(block.scale for block in blocks)), sum(block.most for block in blocks))

    def tensor(like: Tensor, *args: Tensor) -> Tensor:
        blocks = [arg if arg.ndim > 1 else arg[..., None, None] for arg in args]
        batch = torch.broadcast_shapes(*(block.shape[:-2] for block in blocks))
        return tensors([block.expand(*batch, *block.shape[-2:]) for block in blocks])

    def exact(args: Sequence[ExactValue]) -> ExactValue:
        blocks = [as_exact_matrix(arg) for arg in args]
        places = places_of([block.shape for block in blocks])
        rows, cols = exact_room(*_size(places))
        entries: list[Number] = [fmpq(0)] * (rows * cols)
        for block, (top, bottom, left, right) in zip(blocks, places, strict=True):
            for i in range(top, bottom):
                entries[i * cols + left : i * cols + right] = [block[i - top, j] for j in range(right - left)]
        return ExactMatrix(rows, cols, entries)

    def pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
        inside, shape = places_of([arg.shape for arg in node.args])[place], node.shape
        return rearranged(cot, lambda c: _taken(c, inside, shape))

    return MatrixTwin(ball=ball, tensor=tensor, exact=exact, pull=pull, magnitude=of_all)


PIECE_TWINS: dict[str, MatrixTwin] = {
    **{name: _piece(name) for name in _ENDS},
    Sign.ROW: _together(_side_by_side, _beside, _wide),
    Sign.STACK: _together(_stacked, _above, _tall),
    "blockdiag": _together(_along_the_diagonal, _diagonal, _filled_up),
}
"""The twins by name."""
