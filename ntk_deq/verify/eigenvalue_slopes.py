"""Extreme eigenvalues in plain floating point, differentiable where they are simple.

Computed on the host by NumPy: the dgeev of torch's MKL gives up on sparse skew matrices as small as 3 x 3 and then
writes past its buffers, and it does so on NaN too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

_APART = 1e-9
# Relative; eigenvalues closer than this are one as far as rounding can tell, and then it may have no derivative.

_ALONG = 1e-10
# Of unit vectors: the condition of the eigenvalue is the inverse of their product, and its square times the round-off
# is about the error of the derivative.

REAL_PART_MAX, REAL_PART_MIN, MODULUS_MAX = "lambda_max", "lambda_min", "rho"

_RANK: dict[str, Callable[[Any], Any]] = {
    REAL_PART_MAX: lambda values: values.real,
    REAL_PART_MIN: lambda values: -values.real,
    MODULUS_MAX: abs,
}


def extreme_eigenvalue(matrix: Tensor, which: str) -> Tensor:
    """Return the largest or smallest real part of an eigenvalue, or the largest modulus.

    With A v = lambda v and w' A = lambda w', w'v = 1: d lambda = w' dA v.

    Args:
        matrix: n x n.
        which: `lambda_max`, `lambda_min` or `rho`, as in the claim language.

    Returns:
        A 0-d tensor; NaN where the iteration fails. Its derivative is NaN where it has none, or may have none: where
        another eigenvalue, but for the conjugate, is as extreme, or the matrix has no eigenbasis.

    References:
        Magnus, Econometric Theory 1, 1985.

    Example:
        >>> A = torch.tensor([[2.0, 1.0], [0.0, -3.0]], dtype=torch.float64)
        >>> extreme_eigenvalue(A, "rho").item(), torch.func.grad(lambda A: extreme_eigenvalue(A, "lambda_max"))(A)
        (3.0, tensor([[1.0000, 0.0000],
                [0.2000, 0.0000]], dtype=torch.float64))
    """
    value: Tensor = _Extreme.apply(matrix, which)[0]
    return value


class _Extreme(torch.autograd.Function):
    """The eigenvalue and, beside it, its derivative."""

    @staticmethod
    def forward(matrix: Tensor, which: str) -> tuple[Tensor, Tensor]:
        value, slope = _host_eigenvalue(matrix.detach().double().cpu().numpy(), which)
        return matrix.new_tensor(value), torch.from_numpy(slope).to(matrix)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, str], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return gradients[0] * slope, None


def _host_eigenvalue(matrix: Any, which: str) -> tuple[float, Any]:
    unknown = np.full(matrix.shape, np.nan)
    symmetric = bool((matrix == matrix.T).all())
    try:
        values, vectors = np.linalg.eigh(matrix) if symmetric else np.linalg.eig(matrix)
    except np.linalg.LinAlgError:
        return float("nan"), unknown
    ranks = _RANK[which](values)
    place = int(np.argmax(ranks))
    found = values[place]
    value = float(abs(found) if which == MODULUS_MAX else found.real)
    size = _APART * float(abs(values).max())
    rivals = (ranks >= ranks[place] - size) & (abs(values - found) > size) & (abs(values - np.conj(found)) > size)
    repeated = int((abs(values - found) <= size).sum()) > 1
    if rivals.any() or repeated or (which == MODULUS_MAX and value == 0):
        return value, unknown
    right = vectors[:, place]
    left = right if symmetric else _left_vector(matrix, found, right)
    if left is None:
        return value, unknown
    direction = np.conj(found) / value if which == MODULUS_MAX else 1.0
    return value, np.ascontiguousarray((direction * np.outer(left, right)).real)


def _left_vector(matrix: Any, found: Any, right: Any) -> Any:
    """Return w with w' A = lambda w' and w'v = 1, or None where rounding leaves none: A is close to a Jordan block.

    The inverse of the matrix of all eigenvectors would have it as a row, but is lost where another eigenvalue is
    repeated.
    """
    try:
        values, vectors = np.linalg.eig(matrix.T)
    except np.linalg.LinAlgError:
        return None
    left = vectors[:, int(np.argmin(abs(values - found)))]
    product = left @ right
    return left / product if abs(product) > _ALONG else None
