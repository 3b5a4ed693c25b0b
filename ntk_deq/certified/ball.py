"""The matrix ball: a tensor and a bound on the Frobenius distance from the true matrix to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

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


class Stored(Shaped, Protocol):
    """A matrix of floats."""

    @property
    def dtype(self) -> torch.dtype:
        """The type of its entries."""

    @property
    def device(self) -> torch.device:
        """Where they lie."""


def require_alike(function: str, *balls: Stored) -> None:
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


def require_one_form(function: str, a: Stored, b: Stored) -> None:
    """Raise unless two matrices have one shape, element type and device.

    Raises:
        ArgumentError: They differ.

    Example:
        >>> require_one_form("add", ball(torch.eye(2)), ball(torch.eye(2)))
    """
    require_alike(function, a, b)
    require_one_shape(function, a, b)


def first_reason(*balls: Ball) -> str:
    """Return why the first ball without information has none, or "".

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
