"""Inverses of many matrices at once; an approximate inverse proves each matrix invertible."""

from __future__ import annotations

import math

import torch

from ntk_deq.certified.bounds import all_finite
from ntk_deq.certified.structured.each import add_each, divide_each, multiply_each
from ntk_deq.certified.structured.stack import (
    Stack,
    add_on_diagonals,
    enclose_each,
    exact_stack,
    in_double,
    matmul_each,
)

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
    defect = add_on_diagonals(matmul_each(approximate, in_double(a)), -torch.ones_like(found[:, :, 0]), 0.0)
    whole = add_each(defect.fro, defect.radii)
    size = whole if bool((whole < _SMALL).all()) else add_each(defect.norm2, defect.radii)
    gap = torch.nextafter(1.0 - size.clamp(max=2.0), torch.full_like(size, -math.inf))
    errors = divide_each(
        torch.minimum(multiply_each(whole, approximate.norm2), multiply_each(size, approximate.fro)),
        torch.where(size == 0, torch.ones_like(gap), gap),
    )
    proved = all_finite(errors)
    result = enclose_each(found, errors, a.centre.dtype, "" if proved else a.reason or UNPROVED)
    return result.known_as(approximate) if a.centre.dtype is torch.float64 else result
