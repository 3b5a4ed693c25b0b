"""A draw with its distance from an exact one: floats hold no orthogonal matrix, few unit rows or products of low rank.

A claim speaks of the exact draw, of which it may use any property. Every float is a draw from `normal`, and every
symmetric matrix of floats one from `symmetric(normal)`: these are exact whatever they were rounded from. What is
normalised, multiplied, scaled or summed otherwise is a ball around its floats in which an exact draw lies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import torch
from flint import arb
from torch import Tensor

from ntk_deq.certified.ball import Ball
from ntk_deq.certified.exactness import inexact_products, shifts_exactly, sum_error
from ntk_deq.certified.products import kron, matmul
from ntk_deq.certified.rounding import TINY, add_up, fro_up, multiply_up, root_up, unit_roundoff
from ntk_deq.certified.scalar import upper


class Freedom(IntEnum):
    """Which floats near a draw are draws too."""

    FIXED = 0
    """None need be."""
    TIED = 1
    """Those with the same zeros, and equal (or opposite) entries where its own are: each entry may be rounded."""
    WHOLE = 2
    """All of them."""


class Known(float):
    """A float that stands for a number near it.

    Attributes:
        true: A ball that contains the number.
    """

    true: arb

    def __new__(cls, value: float, true: arb | None = None) -> Known:
        """Return the float with its ball; None: it is the number itself."""
        known = super().__new__(cls, value)
        known.true = arb(value) if true is None else true
        return known

    @property
    def error(self) -> float:
        """Upper bound of the distance from the float to the number."""
        return upper(abs(self.true - float(self)))


def error_of(number: float) -> float:
    """Return how far a float may be from the number that it stands for: 0 unless it is `Known`.

    Example:
        >>> error_of(0.1), 0 < error_of(Known(0.1, arb(1) / 10)) < 1e-17
        (0.0, True)
    """
    return number.error if isinstance(number, Known) else 0.0


@dataclass(frozen=True, eq=False)
class Sample:
    """A drawn tensor.

    Attributes:
        value: Its floats.
        radius: Frobenius distance from them within which an exact draw lies.
        freedom: Which floats near them are exact draws too.
    """

    value: Tensor
    radius: float = 0.0
    freedom: Freedom = Freedom.FIXED

    def at_most(self, freedom: Freedom) -> Sample:
        """Return the sample with no more freedom than that."""
        return replace(self, freedom=min(self.freedom, freedom))


def scaled(sample: Sample, factor: float) -> Sample:
    """Return a sample times a number.

    Args:
        sample: The sample.
        factor: The number; one that is `Known` stands for what its ball holds.

    Example:
        >>> third = Known(1 / 3, arb(1) / 3)
        >>> ones = Sample(torch.ones(2, dtype=torch.float64))
        >>> 0 < scaled(ones, third).radius < 1e-16, scaled(ones, 0.25).radius
        (True, 0.0)
    """
    value, off = sample.value * factor, error_of(factor)
    if sample.freedom and abs(factor) > off:
        return replace(sample, value=value)
    error = add_up(multiply_up(add_up(abs(factor), off), sample.radius), multiply_up(off, _size(sample.value)))
    if value.numel() and not shifts_exactly(sample.value, factor):
        lost = inexact_products(sample.value, torch.full_like(sample.value, factor))
        rounded = multiply_up(unit_roundoff(), _size(torch.where(lost, value, 0.0)))
        error = add_up(error, rounded, multiply_up(float(lost.sum()), TINY))
    return Sample(value, error)


def summed(left: Sample, right: Sample, sign: float) -> Sample:
    """Return left + right, or left - right.

    Args:
        left: A sample.
        right: Another of the same shape.
        sign: 1 or -1.

    Example:
        >>> one = Sample(torch.ones(1, dtype=torch.float64))
        >>> tiny = Sample(torch.full((1,), 1e-20, dtype=torch.float64))
        >>> summed(one, tiny, 1.0).radius >= 1e-20, summed(one, one, -1.0).radius
        (True, 0.0)
    """
    second = sign * right.value
    value = left.value + second
    if Freedom.WHOLE in (left.freedom, right.freedom):
        return Sample(value, freedom=Freedom.WHOLE)
    return Sample(value, add_up(left.radius, right.radius, _size(sum_error(left.value, second, value))))


def halved_sum(sample: Sample, sign: float) -> Sample:
    """Return (R + R')/2, or (R - R')/2, of a square sample: any matrix so symmetric where R is any matrix.

    Args:
        sample: R.
        sign: 1 or -1.

    Example:
        >>> signs = torch.tensor([[1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
        >>> halved_sum(Sample(signs), -1.0).value.tolist()
        [[0.0, -1.0], [1.0, 0.0]]
    """
    turned = sign * sample.value.T
    total = sample.value + turned
    value = total / 2
    if sample.freedom is Freedom.WHOLE:
        return Sample(value, freedom=Freedom.TIED)
    lost = add_up(_size(sum_error(sample.value, turned, total)), _size(total - 2 * value))
    return Sample(value, add_up(sample.radius, multiply_up(0.5, lost)))


def gram(sample: Sample) -> Sample:
    """Return R'R of a square sample; exact where nothing was rounded.

    Args:
        sample: R.
    """
    # A library product need not be symmetric to the last bit; the truth is, and so no farther from the symmetric part.
    return halved_sum(multiplied(replace(sample, value=sample.value.T), sample), 1.0)


def multiplied(left: Sample, right: Sample) -> Sample:
    """Return the matrix product of two samples; exact where both are and nothing was rounded.

    Args:
        left: rows x n.
        right: n x cols.
    """
    value = left.value @ right.value
    if not value.numel() or not left.value.numel():
        return Sample(value)
    return Sample(value, matmul(Ball(left.value, left.radius), Ball(right.value, right.radius)).radius)


def outer(left: Sample, right: Sample) -> Sample:
    """Return u v' of two vectors; exact where both are and nothing was rounded.

    Args:
        left: u.
        right: v.
    """
    value = torch.outer(left.value, right.value)
    if not value.numel():
        return Sample(value)
    factors = Ball(left.value[:, None], left.radius), Ball(right.value[None], right.radius)
    return Sample(value, kron(*factors).radius)


def constant(value: Tensor, number: float) -> Sample:
    """Return a tensor all of whose entries stand for one number.

    Args:
        value: The tensor.
        number: The number, `Known` or not.
    """
    return Sample(value, multiply_up(error_of(number), root_up(float(value.numel()))))


def _size(tensor: Tensor) -> float:
    return fro_up(tensor) if tensor.numel() else 0.0
