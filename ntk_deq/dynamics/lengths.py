"""Norms of large tensors, written where they are wanted."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

# From so many entries on a product of the vector with itself is faster than `vector_norm`, three times at 2^18.
_LARGE = 2**15


def write_norm(value: Float[Tensor, "*shape"], out: Float[Tensor, ""]) -> None:
    """Write the Frobenius norm of a tensor into a 0-d one.

    Args:
        value: The tensor.
        out: Where the norm goes, of the same dtype and device.

    Example:
        >>> out = torch.zeros((), dtype=torch.float64)
        >>> write_norm(torch.full((256, 256), 0.5, dtype=torch.float64), out)
        >>> out.item()
        128.0
    """
    # In float32 `vector_norm` sums up in float64, and a product does not.
    if value.numel() < _LARGE or value.dtype != torch.float64 or not value.is_contiguous():
        torch.linalg.vector_norm(value, out=out)
        return
    flat = value.view(-1)
    torch.dot(flat, flat, out=out).sqrt_()


def scaled_norm(value: Float[Tensor, "*shape"]) -> float:
    """Return the Frobenius norm of a tensor whose squares may over- or underflow.

    Example:
        >>> f"{scaled_norm(torch.tensor([3e200, 4e200], dtype=torch.float64)):.6g}"
        '5e+200'
    """
    largest = float(value.abs().max())
    if not 0 < largest < math.inf:
        return largest
    return largest * float(torch.linalg.vector_norm(value / largest))
