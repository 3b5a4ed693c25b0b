"""Products kept as their factors, until someone asks for more than a product with them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce

import torch
from flint import arb

from ntk_deq.certified import structure
from ntk_deq.certified.arithmetic import product_radius
from ntk_deq.certified.ball import Ball
from ntk_deq.certified.rounding import multiply_up
from ntk_deq.certified.structured.application import apply_right, crossed
from ntk_deq.certified.structured.base import Structured


@dataclass(frozen=True, eq=False, repr=False)
class Chain(Structured):
    """The product of factors none of which is dense, and no two neighbours of which have a product of simple structure.

    Attributes:
        factors: At least two, none of them a chain.
    """

    factors: tuple[Structured, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.factors[0].shape[0], self.factors[-1].shape[1]

    @property
    def dtype(self) -> torch.dtype:
        """Element type."""
        return self.factors[0].dtype

    @property
    def device(self) -> torch.device:
        """Device."""
        return self.factors[0].device

    @cached_property
    def radius(self) -> float:
        """Frobenius distance from the truth to the product of the centres, at most."""
        size, spread = self.factors[0].norm2, self.factors[0].radius
        for factor in self.factors[1:]:
            spread = product_radius(size, spread, factor.norm2, factor.radius)
            size = multiply_up(size, factor.norm2)
        return spread

    @property
    def reason(self) -> str:
        """Why there is no information, where there is none."""
        return next((factor.reason for factor in self.factors if factor.reason), "")

    @cached_property
    def fro(self) -> float:
        """Upper bound of the Frobenius norm of the product of the centres."""
        rest = reduce(multiply_up, (factor.norm2 for factor in self.factors[1:]))
        return multiply_up(self.factors[0].fro, rest)

    @cached_property
    def norm2(self) -> float:
        """Upper bound of the spectral norm of the product of the centres."""
        return reduce(multiply_up, (factor.norm2 for factor in self.factors))

    @property
    def stored(self) -> int:
        """How many numbers describe the factors."""
        return sum(factor.stored for factor in self.factors)

    def form(self) -> Ball:
        """Return the dense ball, multiplied from the end that keeps the intermediate results small."""
        factors = self.factors
        if self.shape[0] <= self.shape[1]:
            start = crossed(factors[0], factors[1])
            if start is None:
                return reduce(apply_right, factors[1:], factors[0].dense)
            return reduce(apply_right, factors[2:], start)
        return structure.transpose(self.transposed().form())

    def transposed(self) -> Chain:
        """Return the transpose."""
        return Chain(tuple(factor.transposed() for factor in reversed(self.factors)))

    def centred(self) -> Chain:
        """Return the ball of radius 0 around the same centre."""
        return Chain(tuple(factor.centred() for factor in self.factors))

    def multiplied(self, factor: arb) -> Chain:
        """Return a multiple by a scalar ball: that of the factor with the fewest numbers."""
        place = min(range(len(self.factors)), key=lambda i: self.factors[i].stored)
        parts = list(self.factors)
        parts[place] = parts[place].multiplied(factor)
        return Chain(tuple(parts))
