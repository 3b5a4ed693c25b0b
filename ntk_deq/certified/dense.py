"""The matrix ball: a tensor and a bound on the Frobenius distance from the true matrix to it.

Its rearrangements and the entrywise maps that do not widen it are here, too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from flint import arb
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified.exactness import Grain, grain
from ntk_deq.certified.rounding import (
    add_up,
    all_finite,
    certification_fault,
    column_up,
    fro_up,
    multiply_up,
    root_up,
    row_up,
)
from ntk_deq.certified.scalar import nan, radius, upper, with_radius
from ntk_deq.errors import ArgumentError

DTYPES = (torch.float64, torch.float32)
"""Element types that a centre may have."""


@dataclass(frozen=True, eq=False)
class Ball:
    """All real matrices whose Frobenius distance from `centre` is at most `radius`.

    So each entry of the true matrix lies within `radius` of the centre's, and each norm, singular value and symmetric
    eigenvalue moves by no more than `radius` times that norm's constant. Radius 0 means that the centre is the truth;
    an infinite radius means no information, and never goes away.

    Attributes:
        centre: rows x cols, float64 or float32; never changed in place, since bounds of it are remembered.
        radius: Number >= 0; NaN is taken as infinite, and so is any radius around a centre that is not finite.
        reason: Why there is no information, where there is none.

    Example:
        >>> Ball(torch.eye(2, dtype=torch.float64))
        Ball(2 x 2, float64, radius=0)
    """

    centre: Float[Tensor, "rows cols"]
    radius: float = 0.0
    reason: str = ""

    def __post_init__(self) -> None:
        """Check the fields and turn every kind of missing information into an infinite radius."""
        if self.centre.dim() != 2 or self.centre.numel() == 0:
            shape = tuple(self.centre.shape)
            raise ArgumentError(f"`centre` of Ball must be a matrix with at least one entry. Got shape {shape}.")
        if self.centre.dtype not in DTYPES:
            raise ArgumentError(f"`centre` of Ball must be float64 or float32. Got {self.centre.dtype}.")
        if self.radius < 0:
            raise ArgumentError(f"`radius` of Ball must be a number >= 0. Got {self.radius}.")
        reason = self.reason or certification_fault(self.centre.device)
        if not reason and not all_finite(self.centre):
            reason = "an entry is not finite"
        if not reason and not math.isfinite(self.radius):
            reason = "an error bound is not finite"
        if reason:
            object.__setattr__(self, "radius", math.inf)
            object.__setattr__(self, "reason", reason)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.centre.shape[0], self.centre.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Element type."""
        return self.centre.dtype

    @property
    def device(self) -> torch.device:
        """Device."""
        return self.centre.device

    @property
    def stored(self) -> int:
        """How many numbers the centre has."""
        return self.centre.numel()

    @property
    def is_exact(self) -> bool:
        """Whether the centre is the true matrix."""
        return self.radius == 0

    @property
    def is_finite(self) -> bool:
        """Whether the ball says anything."""
        return math.isfinite(self.radius)

    @cached_property
    def work(self) -> Float[Tensor, "rows cols"]:
        """The centre in float64, in which every computation runs."""
        return self.centre.double()

    @cached_property
    def grain(self) -> Grain:
        """What decides whether products with the centre are exact."""
        return grain(self.work)

    @cached_property
    def fro(self) -> float:
        """Upper bound of the centre's Frobenius norm."""
        return fro_up(self.work)

    @cached_property
    def norm2(self) -> float:
        """Upper bound of the spectral norm of the centre, and of its entries' absolute values."""
        return min(root_up(multiply_up(column_up(self.work), row_up(self.work))), self.fro)

    def __repr__(self) -> str:
        rows, cols = self.shape
        because = f", {self.reason}" if self.reason else ""
        return (
            f"Ball({rows} x {cols}, {str(self.centre.dtype).removeprefix('torch.')}, radius={self.radius:.3g}{because})"
        )


def ball(tensor: Float[Tensor, ...], radius: float = 0.0) -> Ball:
    """Return the ball around a tensor; a number becomes 1 x 1, a vector one column.

    Args:
        tensor: At most two axes, float64 or float32.
        radius: Frobenius distance to the truth; 0 says that the tensor is the truth.

    Returns:
        The ball. It shares the tensor's memory.

    Raises:
        ArgumentError: More than two axes, no entries, another element type, or a negative radius.

    Example:
        >>> ball(torch.zeros(3)).shape, ball(torch.tensor(1.0)).shape
        ((3, 1), (1, 1))
    """
    if tensor.dim() > 2:
        raise ArgumentError(f"`tensor` of ball must have at most two axes. Got shape {tuple(tensor.shape)}.")
    return Ball(tensor.detach().reshape(-1, 1) if tensor.dim() < 2 else tensor.detach(), radius)


def no_information(like: Ball, rows: int, cols: int, reason: str) -> Ball:
    """Return a rows x cols ball of infinite radius with the device and element type of another.

    Example:
        >>> no_information(ball(torch.zeros(2)), 1, 1, "the matrix is singular").radius
        inf
    """
    return Ball(like.centre.new_zeros(rows, cols), math.inf, reason)


class Shaped(Protocol):
    """A matrix of any kind."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def dtype(self) -> torch.dtype:
        """The type of its entries."""

    @property
    def device(self) -> torch.device:
        """Where they lie."""


def require_alike(function: str, *balls: Shaped) -> None:
    """Raise unless every ball has the same element type and device.

    Raises:
        ArgumentError: They differ.

    Example:
        >>> require_alike("add", ball(torch.zeros(2)), ball(torch.zeros(2)))
    """
    kinds = {(str(b.dtype), str(b.device)) for b in balls}
    if len(kinds) > 1:
        got = " and ".join(" on ".join(kind) for kind in sorted(kinds))
        raise ArgumentError(f"Arguments of {function} must have one element type and one device. Got {got}.")


def require_square(function: str, a: Shaped) -> int:
    """Return the order of a square matrix.

    Raises:
        ArgumentError: It is not square.

    Example:
        >>> require_square("trace", ball(torch.eye(3)))
        3
    """
    rows, cols = a.shape
    if rows != cols:
        raise ArgumentError(f"`a` of {function} must be a square matrix. Got {rows} x {cols}.")
    return rows


def require_one_shape(function: str, a: Shaped, b: Shaped) -> None:
    """Raise unless two matrices have one shape.

    Raises:
        ArgumentError: They differ.

    Example:
        >>> require_one_shape("add", ball(torch.eye(2)), ball(torch.eye(2)))
    """
    if a.shape != b.shape:
        shapes = " and ".join(f"{rows} x {cols}" for rows, cols in (a.shape, b.shape))
        raise ArgumentError(f"Arguments of {function} must have one shape. Got {shapes}.")


def require_one_form(function: str, a: Shaped, b: Shaped) -> None:
    """Raise unless two matrices have one shape, element type and device.

    Raises:
        ArgumentError: They differ.

    Example:
        >>> require_one_form("add", ball(torch.eye(2)), ball(torch.eye(2)))
    """
    require_alike(function, a, b)
    require_one_shape(function, a, b)


def first_reason(*balls: Any) -> str:
    """Return why the first without information has none, or "".

    Example:
        >>> first_reason(ball(torch.zeros(2)))
        ''
    """
    return next((b.reason for b in balls if b.reason), "")


def as_scalar(a: Ball) -> arb:
    """Return the scalar ball of a 1 x 1 matrix.

    Raises:
        ArgumentError: The matrix has another shape.

    Example:
        >>> as_scalar(ball(torch.tensor(0.5))) == 0.5
        True
    """
    if a.shape != (1, 1):
        raise ArgumentError(f"`a` of as_scalar must be 1 x 1. Got {a.shape[0]} x {a.shape[1]}.")
    return with_radius(float(a.centre), a.radius) if a.is_finite else nan()


def from_scalar(value: arb, *, dtype: torch.dtype = torch.float64, device: torch.device | str | None = None) -> Ball:
    """Return a 1 x 1 ball that contains a scalar ball; exact where the scalar is exact and a float of that type.

    Example:
        >>> from_scalar(arb(0.5)).radius
        0.0
    """
    centre = torch.tensor([[float(value.mid()) if value.is_finite() else math.nan]], dtype=dtype, device=device)
    kept = float(centre)
    if not math.isfinite(kept):
        return Ball(centre, math.inf, "a scalar has no information")
    return Ball(centre, add_up(upper(abs(value.mid() - kept)), radius(value)))


def transpose(a: Ball) -> Ball:
    """Return the transpose.

    Example:
        >>> transpose(Ball(torch.ones(2, 3))).shape
        (3, 2)
    """
    return Ball(a.centre.mT, a.radius, a.reason)


def vec(a: Ball) -> Ball:
    """Return the columns stacked into one column, as in matrix calculus.

    Example:
        >>> vec(Ball(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))).centre.flatten().tolist()
        [1.0, 3.0, 2.0, 4.0]
    """
    return Ball(a.centre.mT.reshape(-1, 1), a.radius, a.reason)


def block(a: Ball, top: int, bottom: int, left: int, right: int) -> Ball:
    """Return the rows `top` to `bottom` and columns `left` to `right`, counted from 0, the ends excluded.

    Example:
        >>> block(Ball(torch.eye(3)), 0, 1, 0, 3).centre.tolist()
        [[1.0, 0.0, 0.0]]
    """
    return Ball(a.centre[top:bottom, left:right].contiguous(), a.radius, a.reason)


def _together(function: str, dim: int, blocks: tuple[Ball, ...]) -> Ball:
    require_alike(function, *blocks)
    across = {b.shape[1 - dim] for b in blocks}
    if len(across) > 1:
        raise ArgumentError(f"Arguments of {function} must fit together. Got {[b.shape for b in blocks]}.")
    radii = [b.radius for b in blocks if b.radius]
    squares = add_up(*(multiply_up(radius, radius) for radius in radii)) if radii else 0.0
    radius = radii[0] if len(radii) == 1 else root_up(squares)
    return Ball(torch.cat([b.centre for b in blocks], dim), radius, first_reason(*blocks))


def beside(*blocks: Ball) -> Ball:
    """Return matrices of as many rows side by side.

    Raises:
        ArgumentError: Rows, element types or devices differ.

    Example:
        >>> beside(Ball(torch.eye(2)), Ball(torch.ones(2, 1))).shape
        (2, 3)
    """
    return _together("beside", 1, blocks)


def above(*blocks: Ball) -> Ball:
    """Return matrices of as many columns one above the other.

    Raises:
        ArgumentError: Columns, element types or devices differ.

    Example:
        >>> above(Ball(torch.eye(2)), Ball(torch.ones(1, 2))).shape
        (3, 2)
    """
    return _together("above", 0, blocks)


def _require_size(function: str, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ArgumentError(f"`{name}` of {function} must be an integer >= 1. Got {size}.")


def identity(n: int, *, dtype: torch.dtype = torch.float64, device: torch.device | str | None = None) -> Ball:
    """Return the identity of order n.

    Raises:
        ArgumentError: n < 1.

    Example:
        >>> identity(2)
        Ball(2 x 2, float64, radius=0)
    """
    _require_size("identity", n=n)
    return Ball(torch.eye(n, dtype=dtype, device=device))


def commutation(
    rows: int, cols: int, *, dtype: torch.dtype = torch.float64, device: torch.device | str | None = None
) -> Ball:
    """Return the permutation K with K vec(A) = vec(A') for every rows x cols matrix A.

    Args:
        rows: Rows of A.
        cols: Columns of A.
        dtype: Element type.
        device: Device.

    Returns:
        The exact ball of order rows cols.

    Raises:
        ArgumentError: A size is below 1.

    References:
        Magnus and Neudecker, Annals of Statistics 7, 1979.

    Example:
        >>> commutation(1, 3).centre.equal(torch.eye(3, dtype=torch.float64))
        True
    """
    _require_size("commutation", rows=rows, cols=cols)
    # vec(A) has A[i, j] at j rows + i; vec(A') has it at i cols + j.
    order = torch.arange(rows * cols, device=device).reshape(cols, rows).mT.reshape(-1)
    return Ball(torch.eye(rows * cols, dtype=dtype, device=device)[order])


def diag(a: Ball) -> Ball:
    """Return the diagonal matrix of a column, or the diagonal of a square matrix as a column.

    Raises:
        ArgumentError: Neither one column nor square.

    Example:
        >>> diag(Ball(torch.ones(3, 1))).shape, diag(Ball(torch.eye(3))).shape
        ((3, 3), (3, 1))
    """
    rows, cols = a.shape
    if 1 != cols != rows:
        raise ArgumentError(f"`a` of diag must be one column or a square matrix. Got {rows} x {cols}.")
    entries = torch.diag(a.centre.flatten() if cols == 1 else a.centre)
    return Ball(entries.reshape(rows, -1), a.radius, a.reason)


def relu(a: Ball) -> Ball:
    """Return max(a, 0) entrywise; a map with Lipschitz constant 1, so the radius stays.

    Example:
        >>> relu(Ball(torch.tensor([[-1.0, 2.0]]))).centre.tolist()
        [[0.0, 2.0]]
    """
    return Ball(torch.relu(a.centre), a.radius, a.reason)


def absolute(a: Ball) -> Ball:
    """Return |a| entrywise; a map with Lipschitz constant 1, so the radius stays.

    Example:
        >>> absolute(Ball(torch.tensor([[-1.0]]))).centre.item()
        1.0
    """
    return Ball(a.centre.abs(), a.radius, a.reason)


def step(a: Ball) -> Ball:
    """Return 1 where an entry is positive and 0 elsewhere, the derivative of `relu` with value 0 at 0.

    An entry whose sign the ball does not decide may be off by 1, so the radius is the root of their number; 0 where
    there is none.

    Example:
        >>> step(Ball(torch.tensor([[-1.0, 0.0, 2.0]])))
        Ball(1 x 3, float32, radius=0)
        >>> step(Ball(torch.tensor([[-1.0, 0.0, 2.0]]), 0.5)).radius
        1.0
    """
    if not a.is_finite:
        return no_information(a, *a.shape, a.reason)
    centre = a.centre.double()
    unsure = int((centre.abs() <= a.radius).sum()) if a.radius else 0
    root = math.isqrt(unsure)
    return Ball((centre > 0).to(a.centre.dtype), float(root) if root * root == unsure else root_up(float(unsure)))
