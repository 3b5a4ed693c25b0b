"""The precise matrix ball: every entry is an arb with a radius of its own.

The working precision of arb arithmetic, which flint keeps for the whole process, changed for a while.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import flint
import torch
from flint import arb, arb_mat, fmpz_mat
from torch import Tensor

from ntk_deq.certified.dense import Ball
from ntk_deq.certified.scalar import bits_inside, exact, nan, upper
from ntk_deq.certified.structured.blocks import densified
from ntk_deq.errors import ArgumentError, LimitError

MAX_ENTRIES = 64 * 64
"""Entries of one matrix: the spectrum of order 64 takes about a second at 128 bits."""

MAX_BITS_TOTAL = 2**23
"""Entries times bits, for a spectrum twice the bits: order 64 up to 990 bits, order 31 up to 4096."""

_EXACT_SPAN = 2**14  # bits that the whole numbers behind an exact matrix may have


@dataclass(frozen=True, eq=False)
class PreciseMatrix:
    """All real matrices whose entries lie in the balls of `entries`.

    Operations run at the precision of `flint.ctx` (`working_precision` sets it).

    Attributes:
        entries: rows x cols; never changed in place.
        reason: Why there is no information, where there is none.

    Example:
        >>> PreciseMatrix(arb_mat([[1, 2], [3, 4]]))
        PreciseMatrix(2 x 2, radius=0)
    """

    entries: arb_mat
    reason: str = ""

    def __post_init__(self) -> None:
        """Check the size."""
        require_size(self.entries.nrows(), self.entries.ncols())

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.entries.nrows(), self.entries.ncols()

    @property
    def dtype(self) -> torch.dtype:
        """Element type of the constants that are made beside it."""
        return torch.float64

    @property
    def device(self) -> torch.device:
        """Device of the constants that are made beside it."""
        return torch.device("cpu")

    @cached_property
    def flat(self) -> list[arb]:
        """The entries, row after row."""
        found: list[arb] = self.entries.entries()
        return found

    @cached_property
    def is_exact(self) -> bool:
        """Whether the midpoints are the true matrix."""
        return all(entry.is_exact() and entry.is_finite() for entry in self.flat)

    @cached_property
    def is_finite(self) -> bool:
        """Whether every entry is known to some extent."""
        return all(entry.is_finite() for entry in self.flat)

    @cached_property
    def radius(self) -> float:
        """Upper bound of the Frobenius norm of the entries' radii; infinite where an entry is not known."""
        if not self.is_finite:
            return math.inf
        squares = arb(0)
        for entry in self.flat:
            radius = entry.rad()
            squares += radius * radius
        return upper(squares.sqrt()) if squares != 0 else 0.0

    @property
    def approximate(self) -> Tensor:
        """The midpoints rounded to float64 on the CPU: where an iteration may start, never a bound."""
        rows, cols = self.shape
        values = [float(entry.mid()) for entry in self.flat]
        return torch.tensor(values, dtype=torch.float64).reshape(rows, cols)

    def rows(self) -> list[list[arb]]:
        """Return the entries as a list of rows."""
        found: list[list[arb]] = self.entries.tolist()
        return found

    def __repr__(self) -> str:
        rows, cols = self.shape
        because = f", {self.reason}" if self.reason else ""
        return f"PreciseMatrix({rows} x {cols}, radius={self.radius:.3g}{because})"


def require_size(rows: int, cols: int) -> None:
    """Refuse a matrix that is too large for the present precision.

    Raises:
        LimitError: It has too many entries.

    Example:
        >>> require_size(64, 64)
    """
    bits = flint.ctx.prec
    if rows * cols > MAX_ENTRIES or rows * cols * bits > MAX_BITS_TOTAL:
        most = min(MAX_ENTRIES, MAX_BITS_TOTAL // bits)
        raise LimitError(
            f"A matrix of {rows} x {cols} entries at {bits} bits is a precision beyond memory and time; at most "
            f"{most:,} entries are allowed."
        )


def precise(tensor: Tensor, radius: float = 0.0) -> PreciseMatrix:
    """Return the ball around a tensor, of which every entry is taken exactly; a vector becomes one column.

    Args:
        tensor: At most two axes, float64 or float32.
        radius: How far each entry of the true matrix may lie from the tensor's; 0 says that the tensor is the truth.

    Raises:
        ArgumentError: More than two axes.
        LimitError: Too many entries.

    Example:
        >>> precise(torch.zeros(3)).shape
        (3, 1)
    """
    if tensor.dim() > 2:
        raise ArgumentError(f"`tensor` of precise must have at most two axes. Got shape {tuple(tensor.shape)}.")
    matrix = tensor.detach().reshape(-1, 1) if tensor.dim() < 2 else tensor.detach()
    rows, cols = matrix.shape
    require_size(rows, cols)
    values = [exact(value) for value in matrix.double().cpu().reshape(-1).tolist()]
    if radius:
        spread = arb(0, radius) if math.isfinite(radius) else nan()
        values = [value + spread for value in values]
    return PreciseMatrix(arb_mat(rows, cols, values))


def adopt(argument: Any) -> Any:
    """Return a matrix ball of any representation as a precise one, and anything else as it is.

    Raises:
        LimitError: It has too many entries.

    Example:
        >>> adopt(Ball(torch.eye(2))), adopt("<=")
        (PreciseMatrix(2 x 2, radius=0), '<=')
    """
    argument = argument if isinstance(argument, PreciseMatrix) else densified(argument)
    if not isinstance(argument, Ball):
        return argument
    adopted = precise(argument.centre, argument.radius)
    return PreciseMatrix(adopted.entries, argument.reason) if argument.reason else adopted


def as_ball(matrix: PreciseMatrix) -> Ball:
    """Return the matrix itself, for code that is written for dense balls and uses nothing but operations on them."""
    return cast(Ball, matrix)


def from_rows(rows: int, cols: int, values: Iterable[arb], reason: str = "") -> PreciseMatrix:
    """Return a matrix from its entries, row after row.

    Example:
        >>> from_rows(1, 2, [arb(1), arb(2)])
        PreciseMatrix(1 x 2, radius=0)
    """
    require_size(rows, cols)
    return PreciseMatrix(arb_mat(rows, cols, list(values)), reason)


def no_information(rows: int, cols: int, reason: str) -> PreciseMatrix:
    """Return a matrix of which nothing is known.

    Example:
        >>> no_information(1, 1, "the matrix is singular").radius
        inf
    """
    return from_rows(rows, cols, [nan()] * (rows * cols), reason)


def whole_matrix(a: PreciseMatrix) -> tuple[fmpz_mat, int] | None:
    """Return an exact matrix as whole numbers times one power of two; None where those would be very long.

    Example:
        >>> whole_matrix(precise(torch.eye(2) / 2))[1]
        -1
    """
    parts = [(int(m), int(e)) for m, e in (entry.man_exp() for entry in a.flat)]
    filled = [(m, e) for m, e in parts if m]
    if not filled:
        return fmpz_mat(*a.shape, [0] * len(parts)), 0
    low = min(e for _, e in filled)
    if max(e + m.bit_length() for m, e in filled) - low > _EXACT_SPAN:
        return None
    return fmpz_mat(*a.shape, [m << (e - low) if m else 0 for m, e in parts]), low


MIN_BITS, MAX_BITS = 53, 4096


def check_bits(bits: int) -> int:
    """Return a precision that is allowed.

    Raises:
        ArgumentError: It is no whole number from 53 to 4096.

    Example:
        >>> check_bits(128)
        128
    """
    if not isinstance(bits, int) or not MIN_BITS <= bits <= MAX_BITS:
        raise ArgumentError(f"`bits` of a precision must be a whole number from {MIN_BITS} to {MAX_BITS}. Got {bits}.")
    return bits


@contextmanager
def working_precision(bits: int) -> Iterator[None]:
    """Compute with `bits` bits inside, and as before afterwards, whatever happens inside.

    Args:
        bits: From 53 to 4096.

    Raises:
        ArgumentError: `bits` is not allowed.

    Example:
        >>> import flint
        >>> with working_precision(256):
        ...     print(flint.ctx.prec)
        256
    """
    check_bits(bits)
    with bits_inside(bits):
        yield


@contextmanager
def guarded(factor: int, extra: int) -> Iterator[int]:
    """Compute inside with `factor` times the present bits and `extra` more; yields that number."""
    with bits_inside(factor * flint.ctx.prec + extra):
        yield flint.ctx.prec
