"""Diagonal matrices, the identity among them, kept as one column."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from flint import arb
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified import arithmetic, structure
from ntk_deq.certified.ball import Ball
from ntk_deq.certified.rounding import largest_entry
from ntk_deq.certified.structured.base import Structured


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
    def dtype(self) -> torch.dtype:
        """Element type."""
        return self.column.dtype

    @property
    def device(self) -> torch.device:
        """Device."""
        return self.column.device

    @property
    def radius(self) -> float:
        """Frobenius distance from the truth to the centre, at most."""
        return self.column.radius

    @property
    def reason(self) -> str:
        """Why there is no information, where there is none."""
        return self.column.reason

    @property
    def fro(self) -> float:
        """Upper bound of the centre's Frobenius norm."""
        return self.column.fro

    @cached_property
    def norm2(self) -> float:
        """The spectral norm of the centre, its largest entry."""
        return largest_entry(self.column.work)

    @property
    def stored(self) -> int:
        """How many numbers describe the centre."""
        return self.column.shape[0]

    @cached_property
    def is_identity(self) -> bool:
        """Whether the truth is the identity for certain."""
        return self.is_exact and bool((self.column.centre == 1).all())

    def form(self) -> Ball:
        """Return the dense ball."""
        return structure.diag(self.column)

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
