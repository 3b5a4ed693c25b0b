"""Kronecker products of two matrices neither of which is an identity."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from flint import arb

from ntk_deq.certified import arithmetic, products, structure
from ntk_deq.certified.arithmetic import product_radius
from ntk_deq.certified.ball import Ball
from ntk_deq.certified.rounding import multiply_up
from ntk_deq.certified.structured.base import MatrixBall, Structured, densified


def stored(a: MatrixBall) -> int:
    """Return how many numbers describe a centre.

    Example:
        >>> stored(Ball(torch.ones(2, 3)))
        6
    """
    return a.stored if isinstance(a, Structured) else a.centre.numel()


def _transpose(a: MatrixBall) -> MatrixBall:
    return a.transposed() if isinstance(a, Structured) else structure.transpose(a)


def _centred(a: MatrixBall) -> MatrixBall:
    return a.centred() if isinstance(a, Structured) else Ball(a.centre)


def _multiple(factor: arb, a: MatrixBall) -> MatrixBall:
    return a.multiplied(factor) if isinstance(a, Structured) else arithmetic.scale(factor, a)


@dataclass(frozen=True, eq=False, repr=False)
class Kronecker(Structured):
    """The Kronecker product: block (i, j) is left[i, j] right.

    Attributes:
        left: The slow factor.
        right: The fast factor.

    Example:
        >>> Kronecker(Ball(torch.ones(2, 3)), Ball(torch.ones(4, 5)))
        Kronecker(8 x 15, float32, radius=0)
    """

    left: MatrixBall
    right: MatrixBall

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.left.shape[0] * self.right.shape[0], self.left.shape[1] * self.right.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Element type."""
        return self.left.dtype

    @property
    def device(self) -> torch.device:
        """Device."""
        return self.left.device

    @cached_property
    def radius(self) -> float:
        """Frobenius distance from the truth to the centre, at most."""
        return product_radius(self.left.fro, self.left.radius, self.right.fro, self.right.radius)

    @property
    def reason(self) -> str:
        """Why there is no information, where there is none."""
        return self.left.reason or self.right.reason

    @cached_property
    def fro(self) -> float:
        """Upper bound of the centre's Frobenius norm."""
        return multiply_up(self.left.fro, self.right.fro)

    @cached_property
    def norm2(self) -> float:
        """Upper bound of the spectral norm of the centre."""
        return multiply_up(self.left.norm2, self.right.norm2)

    @property
    def stored(self) -> int:
        """How many numbers describe the centre."""
        return stored(self.left) + stored(self.right)

    @property
    def factors_are_square(self) -> bool:
        """Whether both factors are square."""
        return self.left.shape[0] == self.left.shape[1] and self.right.shape[0] == self.right.shape[1]

    def transposed(self) -> Kronecker:
        """Return the transpose."""
        return Kronecker(_transpose(self.left), _transpose(self.right))

    def centred(self) -> Kronecker:
        """Return the ball of radius 0 around the same centre."""
        return Kronecker(_centred(self.left), _centred(self.right))

    def multiplied(self, factor: arb) -> Kronecker:
        """Return a multiple by a scalar ball: that of the smaller factor."""
        if stored(self.left) <= stored(self.right):
            return Kronecker(_multiple(factor, self.left), self.right)
        return Kronecker(self.left, _multiple(factor, self.right))

    def form(self) -> Ball:
        """Return the dense ball."""
        return products.kron(densified(self.left), densified(self.right))
