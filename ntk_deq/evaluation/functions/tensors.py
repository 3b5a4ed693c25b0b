"""What functions of matrices in plain floating point share; matrices have two dimensions or more, scalars fewer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def vec(value: Tensor) -> Tensor:
    """Stack the columns of a matrix."""
    return value.mT.reshape(*value.shape[:-2], -1, 1)


def scalar(value: Tensor) -> Tensor:
    """Read a scalar, or a 1 x 1 matrix as one."""
    return value if value.ndim < 2 else value[..., 0, 0]


def frobenius(value: Tensor) -> Tensor:
    """Return the Frobenius norm of a matrix, or the absolute value of a scalar."""
    return value.abs() if value.ndim < 2 else torch.linalg.vector_norm(value, dim=(-2, -1))


def where_finite(value: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function of matrices that must see no NaN or infinity; the result is NaN where an entry is one."""
    bad = ~torch.isfinite(value).all(-1).all(-1)
    if not bool(bad.any()):
        return function(value)
    result = function(torch.where(bad[..., None, None], 0.0, value))
    return torch.where(bad.reshape(*bad.shape, *(1,) * (result.ndim - bad.ndim)), torch.nan, result)


def singular_values(value: Tensor) -> Tensor:
    """Return the singular values, largest first."""
    return where_finite(value, torch.linalg.svdvals)


def kron(a: Tensor, b: Tensor) -> Tensor:
    """Return the Kronecker product."""
    product = a[..., :, None, :, None] * b[..., None, :, None, :]
    rows, cols = a.shape[-2] * b.shape[-2], a.shape[-1] * b.shape[-1]
    return product.reshape(*product.shape[:-4], rows, cols)
