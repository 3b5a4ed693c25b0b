"""What every ball of known structure offers, and block-diagonal matrices.

The dense form is made only where asked for, and only where it fits. Blocks are diagonal up to the order in which rows
and columns are counted; a diagonal matrix is kept as one column.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import torch
from flint import arb
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified import arithmetic, dense
from ntk_deq.certified.dense import Ball, first_reason
from ntk_deq.certified.rounding import fro_up, largest_entry, multiply_up, root_up
from ntk_deq.certified.structured.stack import Stack, exact_stack, inverse_each, scale_each, stretch, transpose_each
from ntk_deq.errors import LimitError

MAX_ENTRIES = 2**27
"""Most entries of a matrix that is formed: one gibibyte of float64."""


LAZY_ENTRIES = 2**12
"""Matrices of at most so many entries are formed: that costs little, and dense functions have more exact cases."""

_lazy: ContextVar[int] = ContextVar("lazy", default=LAZY_ENTRIES)


@contextmanager
def lazy_above(entries: int) -> Iterator[None]:
    """Let structure be kept in matrices of more than so many entries, instead of `LAZY_ENTRIES`.

    Args:
        entries: Number >= 0.

    Example:
        >>> with lazy_above(0):
        ...     is_formed(3, 3)
        False
    """
    token = _lazy.set(entries)
    try:
        yield
    finally:
        _lazy.reset(token)


def is_formed(rows: int, cols: int) -> bool:
    """Return whether a matrix is formed: it is small, or a single row or column.

    Example:
        >>> is_formed(10, 10), is_formed(1000, 1000)
        (True, False)
    """
    return rows * cols <= _lazy.get() or 1 in (rows, cols)


def require_room(rows: int, cols: int, what: str) -> None:
    """Refuse a matrix of more than `MAX_ENTRIES` entries.

    Raises:
        LimitError: It would be larger.

    Example:
        >>> require_room(10, 10, "A product")
    """
    if rows * cols > MAX_ENTRIES:
        raise LimitError(
            f"{what} would have {rows} x {cols} = {rows * cols:,} entries; at most {MAX_ENTRIES:,} are allowed."
        )


class Structured(ABC):
    """A ball whose truth has the same structure as its centre: zeros of the structure are exact.

    `radius` bounds the Frobenius distance of the truth from the centre, which the fields of a class describe without
    rounding; `dense` forms it, with a radius that counts the rounding as well.
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    @abstractmethod
    def parts(self) -> Sequence[Ball | Stack | Structured]:
        """What describes it."""

    @property
    def dtype(self) -> torch.dtype:
        """Element type."""
        return self.parts[0].dtype

    @property
    def device(self) -> torch.device:
        """Device."""
        return self.parts[0].device

    @property
    def reason(self) -> str:
        """Why there is no information, where there is none."""
        return first_reason(*self.parts)

    @property
    def stored(self) -> int:
        """How many numbers describe the centre."""
        return sum(part.stored for part in self.parts)

    @property
    @abstractmethod
    def radius(self) -> float:
        """Frobenius distance from the truth to the centre, at most; infinite without information."""

    @property
    @abstractmethod
    def fro(self) -> float:
        """Upper bound of the centre's Frobenius norm."""

    @property
    @abstractmethod
    def norm2(self) -> float:
        """Upper bound of the spectral norm of the centre."""

    @abstractmethod
    def form(self) -> Ball:
        """Return the dense ball, whatever its size."""

    @abstractmethod
    def transposed(self) -> Structured:
        """Return the transpose."""

    @abstractmethod
    def centred(self) -> Structured:
        """Return the ball of radius 0 around the same centre."""

    @abstractmethod
    def multiplied(self, factor: arb) -> Structured:
        """Return a multiple by a scalar ball."""

    @property
    def is_exact(self) -> bool:
        """Whether the centre is the true matrix."""
        return self.radius == 0

    @property
    def is_finite(self) -> bool:
        """Whether the ball says anything."""
        return math.isfinite(self.radius)

    @cached_property
    def dense(self) -> Ball:
        """The same ball without its structure.

        Raises:
            LimitError: It would have more than `MAX_ENTRIES` entries.
        """
        require_room(*self.shape, f"The dense form of a {type(self).__name__.lower()} matrix")
        return self.form()

    def __repr__(self) -> str:
        rows, cols = self.shape
        because = f", {self.reason}" if self.reason else ""
        kind = str(self.dtype).removeprefix("torch.")
        return f"{type(self).__name__}({rows} x {cols}, {kind}, radius={self.radius:.3g}{because})"


MatrixBall: TypeAlias = Ball | Structured


def densified(a: MatrixBall) -> Ball:
    """Return the dense form of a ball of either kind.

    Raises:
        LimitError: It does not fit.

    Example:
        >>> densified(Ball(torch.eye(2))).shape
        (2, 2)
    """
    return a.dense if isinstance(a, Structured) else a


@dataclass(frozen=True, eq=False, repr=False)
class Diagonal(Structured):
    """A square diagonal matrix.

    Attributes:
        column: Its diagonal, n x 1.

    Example:
        >>> Diagonal(Ball(torch.ones(3, 1)))
        Diagonal(3 x 3, float32, radius=0)
    """

    column: Ball

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.column.shape[0], self.column.shape[0]

    @property
    def parts(self) -> tuple[Ball]:
        """The diagonal."""
        return (self.column,)

    @property
    def radius(self) -> float:
        """Frobenius distance from the truth to the centre, at most."""
        return self.column.radius

    @property
    def fro(self) -> float:
        """Upper bound of the centre's Frobenius norm."""
        return self.column.fro

    @cached_property
    def norm2(self) -> float:
        """The spectral norm of the centre, its largest entry."""
        return largest_entry(self.column.work)

    @cached_property
    def is_identity(self) -> bool:
        """Whether the truth is the identity for certain."""
        return self.is_exact and bool((self.column.centre == 1).all())

    def form(self) -> Ball:
        """Return the dense ball."""
        return dense.diag(self.column)

    def transposed(self) -> Diagonal:
        """Return the transpose."""
        return self

    def centred(self) -> Diagonal:
        """Return the ball of radius 0 around the same centre."""
        return Diagonal(Ball(self.column.centre))

    def multiplied(self, factor: arb) -> Diagonal:
        """Return a multiple by a scalar ball."""
        return Diagonal(arithmetic.scale(factor, self.column))

    def by_blocks(self, count: int, *, interleaved: bool) -> Float[Tensor, "count p"]:
        """Return the diagonals, in float64, of the blocks that the centre falls into."""
        flat = self.column.work.reshape(-1)
        return flat.reshape(-1, count).mT if interleaved else flat.reshape(count, -1)


def identity_matrix(n: int, dtype: torch.dtype, device: torch.device | str | None) -> Diagonal:
    """Return the identity of order n as a diagonal matrix.

    Example:
        >>> identity_matrix(3, torch.float64, None).is_identity
        True
    """
    return Diagonal(Ball(torch.ones(n, 1, dtype=dtype, device=device)))


def is_identity(a: MatrixBall) -> bool:
    """Return whether the truth is an identity for certain.

    Example:
        >>> is_identity(Ball(torch.eye(2))), is_identity(Ball(torch.ones(2, 2)))
        (True, False)
    """
    if isinstance(a, Diagonal):
        return a.is_identity
    if not isinstance(a, Ball) or not a.is_exact or a.shape[0] != a.shape[1]:
        return False
    one = torch.eye(a.shape[0], dtype=a.dtype, device=a.device)
    return bool((a.centre[0] == one[0]).all()) and torch.equal(a.centre, one)


@dataclass(frozen=True, eq=False, repr=False)
class Blocks(Structured):
    """The sum over n of B_n (x) e_n e_n' where `interleaved`, of e_n e_n' (x) B_n otherwise.

    Interleaved, row (i, n) is i count + n: what vec makes of one block for each sample, as kron(A', I(N)) is.
    Otherwise the blocks stand one after another, as in kron(I(m), Z).

    Attributes:
        stack: The blocks, p x q each; a single one serves all.
        count: Number of blocks, at least 2.
        interleaved: Which of the two orders.

    Example:
        >>> from ntk_deq.certified.structured.stack import exact_stack
        >>> Blocks(exact_stack(torch.ones(1, 2, 3)), count=5, interleaved=True)
        Blocks(10 x 15, float32, radius=0)
    """

    stack: Stack
    count: int
    interleaved: bool

    @property
    def block_shape(self) -> tuple[int, int]:
        """Rows and columns of one block."""
        return self.stack.centre.shape[1], self.stack.centre.shape[2]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, cols = self.block_shape
        return self.count * rows, self.count * cols

    @property
    def parts(self) -> tuple[Stack]:
        """The blocks."""
        return (self.stack,)

    @property
    def is_shared(self) -> bool:
        """Whether a single block serves all."""
        return self.stack.size == 1

    @property
    def layout(self) -> tuple[int, bool]:
        """What must agree where blocks meet blocks."""
        return self.count, self.interleaved

    def _together(self, bounds: Tensor) -> float:
        """Return the root of the sum of squares over the blocks."""
        if self.is_shared:
            return multiply_up(root_up(float(self.count)), float(bounds))
        return fro_up(bounds)

    @cached_property
    def radius(self) -> float:
        """Frobenius distance from the truth to the centre, at most."""
        return self._together(self.stack.radii)

    @cached_property
    def fro(self) -> float:
        """Upper bound of the centre's Frobenius norm."""
        return self._together(self.stack.fro)

    @cached_property
    def norm2(self) -> float:
        """Upper bound of the spectral norm of the centre: the largest of the blocks'."""
        return float(self.stack.norm2.amax())

    @cached_property
    def largest_radius(self) -> float:
        """The largest radius of a block, which bounds how far a singular value moves."""
        return float(self.stack.radii.amax())

    @property
    def each(self) -> Stack:
        """Every block; a single one is repeated without being copied."""
        return stretch(self.stack, self.count)

    def like(self, stack: Stack) -> Blocks:
        """Return other blocks in the same order."""
        return Blocks(stack, self.count, self.interleaved)

    def form(self) -> Ball:
        """Return the dense ball."""
        blocks = self.each.centre
        rows, cols = self.block_shape
        if self.interleaved:
            full = torch.diag_embed(blocks.permute(1, 2, 0)).permute(0, 2, 1, 3)
        else:
            full = torch.diag_embed(blocks.permute(1, 2, 0)).permute(2, 0, 3, 1)
        return Ball(full.reshape(self.count * rows, self.count * cols), self.radius, self.reason)

    def transposed(self) -> Blocks:
        """Return the transpose."""
        return self.like(transpose_each(self.stack))

    def centred(self) -> Blocks:
        """Return the ball of radius 0 around the same centre."""
        return self.like(exact_stack(self.stack.centre).known_as(self.stack))

    def multiplied(self, factor: arb) -> Blocks:
        """Return a multiple by a scalar ball."""
        return self.like(scale_each(factor, self.stack))

    @cached_property
    def inverted(self) -> Blocks:
        """The inverse, for square blocks; a formula may name it more than once."""
        return self.like(inverse_each(self.stack))

    def slices(self, matrix: Float[Tensor, "rows c"]) -> Float[Tensor, "count p c"]:
        """Return the rows of a matrix that each block meets."""
        width = matrix.shape[1]
        if self.interleaved:
            return matrix.reshape(-1, self.count, width).permute(1, 0, 2)
        return matrix.reshape(self.count, -1, width)

    def joined(self, parts: Float[Tensor, "count p c"]) -> Float[Tensor, "rows c"]:
        """Return the matrix whose rows at the blocks are given; undoes `slices`."""
        ordered = parts.permute(1, 0, 2) if self.interleaved else parts
        return ordered.reshape(-1, parts.shape[2])
