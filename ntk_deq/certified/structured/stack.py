"""Many matrix balls of one shape, each with its own radius, and their arithmetic in a few batched operations.

Inverses of many matrices at once; an approximate inverse proves each matrix invertible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from flint import arb
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified import rounding
from ntk_deq.certified.dense import Ball, first_reason
from ntk_deq.certified.exactness import (
    LOWEST,
    Grain,
    entry_products_are_exact,
    grain,
    may_be_exact,
    product_is_exact,
    shifts_exactly,
    sum_error,
)
from ntk_deq.certified.rounding import TINY, all_finite, certification_fault, multiply_up, outward, root_up
from ntk_deq.certified.scalar import value_and_radius
from ntk_deq.certified.structured.bounds import (
    Bounds,
    add_each,
    divide_each,
    fro_each,
    largest_each,
    multiply_each,
    norm2_each,
    product_radii,
)


@dataclass(frozen=True, eq=False)
class Stack:
    """Balls around k matrices of one shape: truth number i is within `radii[i]` of `centre[i]`, in Frobenius norm.

    Attributes:
        centre: k x p x q, float64 or float32; never changed in place.
        radii: One number >= 0 for each matrix, in float64; infinite where nothing is known.
        reason: Why nothing is known about some matrix, where that is so.

    Example:
        >>> Stack(torch.zeros(2, 1, 1), torch.zeros(2, dtype=torch.float64)).fro.tolist()
        [0.0, 0.0]
    """

    centre: Float[Tensor, "k p q"]
    radii: Bounds
    reason: str = ""

    def __post_init__(self) -> None:
        """Turn every kind of missing information into an infinite radius."""
        fault = certification_fault(self.centre.device)
        if fault or not (all_finite(self.centre) and all_finite(self.radii)):
            known = torch.isfinite(self.centre).flatten(1).all(dim=1) & torch.isfinite(self.radii) & (not fault)
            object.__setattr__(self, "radii", torch.where(known, self.radii, torch.inf))
            object.__setattr__(self, "reason", self.reason or fault or "an entry or an error bound is not finite")

    @property
    def size(self) -> int:
        """How many matrices are stored."""
        return self.centre.shape[0]

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
        """How many numbers describe the centres."""
        return self.centre.numel()

    @cached_property
    def work(self) -> Float[Tensor, "k p q"]:
        """The centres in float64, in which every computation runs."""
        return self.centre.double()

    @cached_property
    def fro(self) -> Bounds:
        """Upper bounds of the centres' Frobenius norms."""
        return fro_each(self.work)

    @cached_property
    def norm2(self) -> Bounds:
        """Upper bounds of the spectral norms of the centres, and of their entries' absolute values."""
        return norm2_each(self.work, self.fro)

    @cached_property
    def largest(self) -> Bounds:
        """Largest absolute values of the entries."""
        return largest_each(self.work)

    @cached_property
    def grain(self) -> Grain:
        """What decides whether products with the centres are exact."""
        return grain(self.work)

    def known_as(self, other: Stack) -> Stack:
        """Return this stack with the norms that are known of another whose centres have the same."""
        for name in ("fro", "norm2"):
            if name in other.__dict__:
                self.__dict__[name] = other.__dict__[name]
        return self

    def ball(self, index: int) -> Ball:
        """Return one matrix with its radius."""
        return Ball(self.centre[index], float(self.radii[index]), self.reason)


def exact_stack(centre: Float[Tensor, "k p q"]) -> Stack:
    """Return the stack of matrices that are the truth themselves.

    Example:
        >>> exact_stack(torch.ones(3, 1, 2)).size
        3
    """
    return Stack(centre, torch.zeros(centre.shape[0], dtype=torch.float64, device=centre.device))


def enclose_each(work: Tensor, errors: Bounds, dtype: torch.dtype, reason: str = "") -> Stack:
    """Return the stack around float64 results, rounded to an element type.

    Args:
        work: The computed matrices in float64.
        errors: Bounds on their Frobenius distances from the truths.
        dtype: The element type.
        reason: Why an error is infinite, where one is.

    Example:
        >>> tenth = torch.full((1, 1, 1), 0.1, dtype=torch.float64)
        >>> enclose_each(tenth, torch.zeros(1, dtype=torch.float64), torch.float32).radii.item() > 0
        True
    """
    if dtype is torch.float64:
        return Stack(work, errors.expand(work.shape[0]), reason)
    kept = work.to(dtype)
    # Both are doubles and differ in the trailing bits only, so this difference is exact.
    return Stack(kept, add_each(errors, fro_each(work - kept.double())), reason)


def _known(*stacks: Stack) -> bool:
    return all(all_finite(stack.radii) for stack in stacks)


def transpose_each(a: Stack) -> Stack:
    """Return the transposes."""
    return Stack(a.centre.mT, a.radii, a.reason).known_as(a)


def stretch(a: Stack, count: int) -> Stack:
    """Return a stack of `count` matrices; one that holds a single matrix is repeated without being copied."""
    if a.size == count:
        return a
    return Stack(a.centre.expand(count, -1, -1), a.radii.expand(count), a.reason)


def add_stacks(a: Stack, b: Stack) -> Stack:
    """Return the sums; one stack of a single matrix serves every matrix of the other."""
    left, right = torch.broadcast_tensors(a.work, b.work)
    total = left + right
    lost = fro_each(sum_error(left, right, total))
    return enclose_each(total, add_each(a.radii, b.radii, lost), a.dtype, first_reason(a, b))


def add_on_diagonals(a: Stack, diagonals: Float[Tensor, "k p"], radius: float, *, minus: bool = False) -> Stack:
    """Return square matrices, or their negatives, plus diagonal ones.

    Args:
        a: The matrices, or one for all.
        diagonals: What to add, in float64.
        radius: Frobenius distance of all diagonals together from the truth.
        minus: Whether to take the matrices' negatives.
    """
    every = stretch(a, diagonals.shape[0]).work
    total = -every if minus else every.clone()
    place = total.diagonal(dim1=1, dim2=2)
    before = place.clone()
    place += diagonals
    lost = fro_each(sum_error(before, diagonals, place)[:, None, :])
    spread = torch.full_like(lost, radius)
    return enclose_each(total, add_each(a.radii.expand_as(lost), spread, lost), a.dtype, a.reason)


def scale_each(factor: arb, a: Stack) -> Stack:
    """Return the multiples by one scalar ball, as `arithmetic.scale`."""
    near, spread = value_and_radius(factor)
    if not math.isfinite(near):
        unknown = torch.full_like(a.radii, math.inf)
        return Stack(a.centre, unknown, a.reason or "a scalar factor has no information")
    product = near * a.work
    errors = multiply_each(torch.full_like(a.radii, abs(near)), a.radii)
    if spread:
        errors = add_each(errors, multiply_each(torch.full_like(a.radii, spread), add_each(a.fro, a.radii)))
    exact = _known(a) and shifts_exactly(a.work, near)
    if not (exact or _entries_are_exact(a, exact_stack(product.new_full((1, 1, 1), near)))):
        errors = add_each(errors, once_rounded(product))
    return enclose_each(product, errors, a.dtype, a.reason)


def once_rounded(product: Tensor) -> Bounds:
    """Bound fro(fl(x) - x) where each entry comes of one rounded multiplication: u |fl(x)| + TINY/2 an entry."""
    norms = fro_each(product)
    underflow = multiply_up(float(product.shape[1] * product.shape[2]), TINY)
    unit = torch.full_like(norms, rounding.unit_roundoff())
    return add_each(multiply_each(unit, norms), torch.full_like(norms, underflow))


def _entries_are_exact(a: Stack, b: Stack) -> bool:
    """Return whether no product of an entry of one stack and an entry of the other is rounded."""
    if not (_known(a, b) and may_be_exact(a.work, b.work)):
        return False
    few, many = (a, b) if a.centre.numel() <= b.centre.numel() else (b, a)
    if few.grain.longest > 1:
        return entry_products_are_exact(a.grain, b.grain)
    # Powers of two only shift; the lowest of them shifts furthest down.
    return few.grain.low >= LOWEST and shifts_exactly(many.work, math.ldexp(1.0, min(few.grain.low, 0)))


def _weight(a: Stack, b: Stack) -> Bounds:
    """Bound what an entrywise product with `a` makes of the radius of `b`.

    Where `b` has full shape its error is multiplied by entries of `a`; where it has one column that serves all, by
    norms of rows of `a`.
    """
    return a.norm2 if b.centre.shape[1:] != a.centre.shape[1:] and 1 in b.centre.shape[1:] else a.largest


def multiply_entries(a: Stack, b: Stack) -> Stack:
    """Return the entrywise products, as `hadamard`; a factor with a single column or row serves all of the other's."""
    product = a.work * b.work
    errors = product_radii(_weight(a, b), a.radii, _weight(b, a), b.radii)
    if not _entries_are_exact(a, b):
        errors = add_each(errors, once_rounded(product))
    return enclose_each(product, errors, a.dtype, first_reason(a, b))


def _is_exact(a: Stack, b: Stack) -> bool:
    """Return whether no product of a pair is rounded."""
    if not may_be_exact(a.work, b.work):
        return False
    left = a.work.reshape(-1, a.centre.shape[2])
    right = b.work.permute(1, 0, 2).reshape(b.centre.shape[1], -1)
    return product_is_exact(left, right, a.grain, b.grain)


def matmul_rounding(a: Stack, b: Stack) -> Bounds:
    """Bound fro(fl(AB) - AB) for each pair by n u fro(|A||B|) + n 2^-1074 sqrt(entries); zero where nothing rounds."""
    (_, rows, inner), cols = a.centre.shape, b.centre.shape[2]
    sizes = torch.minimum(multiply_each(a.fro, b.norm2), multiply_each(a.norm2, b.fro))
    if not _known(a, b) or _is_exact(a, b):
        return torch.zeros_like(sizes)
    unit = rounding.unit_roundoff()
    relative = outward(outward(inner * unit) * outward(1.0 + 2 * inner * unit))
    underflow = multiply_up(outward(2.0 * inner), TINY, root_up(float(rows * cols)))
    return add_each(multiply_each(torch.full_like(sizes, relative), sizes), torch.full_like(sizes, underflow))


def matmul_each(a: Stack, b: Stack) -> Stack:
    """Return the matrix products, as `matmul`; a stack of a single matrix serves every matrix of the other."""
    product = torch.matmul(a.work, b.work)
    inherited = product_radii(a.norm2, a.radii, b.norm2, b.radii)
    return enclose_each(product, add_each(matmul_rounding(a, b), inherited), a.dtype, first_reason(a, b))


UNPROVED = "invertibility is not certain"
"""Why an inverse has no information."""

_SMALL = 2.0**-10
# A defect below this in Frobenius norm costs the bound a part in a thousand.


def inverse_each(a: Stack) -> Stack:
    """Return the inverses of square matrices, as `inversion.inverse`.

    With R about the inverse and M = I - R A: norm(A^-1 - R) <= norm(M) norm(R)/(1 - norm(M)), Frobenius in one factor.

    Example:
        >>> inverse_each(exact_stack(2 * torch.eye(2, dtype=torch.float64)[None])).radii.item()
        0.0
    """
    found, info = torch.linalg.inv_ex(a.work)
    if bool(info.any()) or not all_finite(found):
        good = (info == 0) & torch.isfinite(found).flatten(1).all(dim=1)
        found = torch.where(good[:, None, None], found, torch.zeros_like(found))
    approximate = exact_stack(found)
    product = matmul_each(approximate, Stack(a.work, a.radii, a.reason))
    defect = add_on_diagonals(product, -torch.ones_like(found[:, :, 0]), 0.0)
    whole = add_each(defect.fro, defect.radii)
    size = whole if bool((whole < _SMALL).all()) else add_each(defect.norm2, defect.radii)
    gap = torch.nextafter(1.0 - size.clamp(max=2.0), torch.full_like(size, -math.inf))
    errors = divide_each(
        torch.minimum(multiply_each(whole, approximate.norm2), multiply_each(size, approximate.fro)),
        torch.where(size == 0, torch.ones_like(gap), gap),
    )
    proved = all_finite(errors)
    result = enclose_each(found, errors, a.dtype, "" if proved else a.reason or UNPROVED)
    return result.known_as(approximate) if a.dtype is torch.float64 else result
