"""Gram matrices of feature matrices, exactly symmetric where they should be."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def gram(F1: Float[Tensor, "N1 p"], F2: Float[Tensor, "N2 p"] | None = None) -> Float[Tensor, "N1 N2"]:
    """Return F1 F2', or F1 F1' with rounding that is the same on both sides of the diagonal.

    A library product F1 F1' may differ from its transpose in the last bits; eigenvalue routines read one triangle only,
    so that the mean of both is taken here once, rather than wherever the matrix is used.

    Example:
        >>> import torch
        >>> gram(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
        tensor([[5., 2.],
                [2., 1.]])
    """
    if F2 is not None:
        return F1 @ F2.T
    product = F1 @ F1.T
    return (product + product.T).mul_(0.5)
