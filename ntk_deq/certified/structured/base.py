"""What every ball of known structure offers; its dense form is made only where asked for, and only where it fits."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import TypeAlias

import torch
from flint import arb

from ntk_deq.certified.ball import Ball
from ntk_deq.errors import LimitError

MAX_ENTRIES = 2**27
"""Most entries of a matrix that is formed: one gibibyte of float64."""


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
    def dtype(self) -> torch.dtype:
        """Element type."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Device."""

    @property
    @abstractmethod
    def radius(self) -> float:
        """Frobenius distance from the truth to the centre, at most; infinite without information."""

    @property
    @abstractmethod
    def reason(self) -> str:
        """Why there is no information, where there is none."""

    @property
    @abstractmethod
    def fro(self) -> float:
        """Upper bound of the centre's Frobenius norm."""

    @property
    @abstractmethod
    def norm2(self) -> float:
        """Upper bound of the spectral norm of the centre."""

    @property
    @abstractmethod
    def stored(self) -> int:
        """How many numbers describe the centre."""

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
