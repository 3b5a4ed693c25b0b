"""The functions of the claim language in plain floating point, each for one matrix or for a batch of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ntk_deq.verify.eigenvalue_slopes import MODULUS_MAX, REAL_PART_MAX, REAL_PART_MIN, extreme_eigenvalue


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


def _singular_values(value: Tensor) -> Tensor:
    return where_finite(value, torch.linalg.svdvals)


def _norm2(like: Tensor, a: Tensor) -> Tensor:
    if a.ndim < 2 or 1 in a.shape[-2:]:
        return frobenius(a)
    return _singular_values(a)[..., 0]


def _condition(like: Tensor, a: Tensor) -> Tensor:
    values = _singular_values(a)
    return values[..., 0] / values[..., -1]


def _diag(like: Tensor, a: Tensor) -> Tensor:
    return torch.diag_embed(a[..., 0]) if a.shape[-1] == 1 else a.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)


def _extreme(
    pair: Callable[[Tensor, Tensor], Tensor], entries: Callable[[Tensor, tuple[int, int]], Tensor]
) -> Callable[..., Tensor]:
    def function(like: Tensor, *args: Tensor) -> Tensor:
        if len(args) == 1:
            return entries(args[0], (-2, -1)) if args[0].ndim > 1 else args[0]
        result = scalar(args[0])
        for other in args[1:]:
            result = pair(result, scalar(other))
        return result

    return function


def _eigenvalue(which: str) -> Callable[..., Tensor]:
    """An extreme eigenvalue: by NumPy, since torch's LAPACK may end the process on a NaN (see `eigenvalue_slopes`)."""

    def function(like: Tensor, a: Tensor) -> Tensor:
        if a.ndim == 2:
            return extreme_eigenvalue(a, which)
        if a.requires_grad:
            return torch.stack([extreme_eigenvalue(matrix, which) for matrix in a])
        return where_finite(a, lambda finite: _eigenvalues(finite, which))

    return function


def _eigenvalues(a: Tensor, which: str) -> Tensor:
    """The values alone, of a batch of finite matrices."""
    try:
        values = np.linalg.eigvals(a.detach().double().cpu().numpy())
    except np.linalg.LinAlgError:  # of one of them; alone, the others have theirs
        return torch.stack([extreme_eigenvalue(matrix, which) for matrix in a])
    picked = {REAL_PART_MAX: values.real.max, REAL_PART_MIN: values.real.min, MODULUS_MAX: abs(values).max}[which](-1)
    return torch.from_numpy(np.asarray(picked)).to(a)


def _inverse(like: Tensor, a: Tensor) -> Tensor:
    inverse, info = torch.linalg.inv_ex(a)
    singular = info != 0
    if not bool(singular.any()):
        return inverse
    return torch.where(singular[..., None, None], torch.nan, inverse)


def _commutation(like: Tensor, n: Tensor, m: Tensor | None = None) -> Tensor:
    rows, cols = int(n), int(n if m is None else m)
    index = torch.arange(rows * cols, device=like.device).reshape(cols, rows).mT.reshape(-1)
    return torch.eye(rows * cols, dtype=like.dtype, device=like.device)[index]


def _kron(like: Tensor, a: Tensor, b: Tensor) -> Tensor:
    product = a[..., :, None, :, None] * b[..., None, :, None, :]
    rows, cols = a.shape[-2] * b.shape[-2], a.shape[-1] * b.shape[-1]
    return product.reshape(*product.shape[:-4], rows, cols)


def _filled(value: float) -> Callable[..., Tensor]:
    return lambda like, n, m=None: like.new_full((int(n), 1 if m is None else int(m)), value)


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "I": lambda like, n: torch.eye(int(n), dtype=like.dtype, device=like.device),
    "abs": lambda like, a: a.abs(),
    "commutation": _commutation,
    "cond": _condition,
    "det": lambda like, a: torch.linalg.det(a),
    "diag": _diag,
    "dot": lambda like, a, b: (a * b).sum((-2, -1)),
    "exp": lambda like, a: scalar(a).exp(),
    "fro": lambda like, a: frobenius(a),
    "hadamard": lambda like, a, b: a * b,
    "inv": _inverse,
    "kron": _kron,
    "lambda_max": _eigenvalue(REAL_PART_MAX),
    "lambda_min": _eigenvalue(REAL_PART_MIN),
    "log": lambda like, a: scalar(a).log(),
    "max": _extreme(torch.maximum, torch.amax),
    "min": _extreme(torch.minimum, torch.amin),
    "norm": _norm2,
    "norm1": lambda like, a: a.abs().sum(-2).amax(-1),
    "norminf": lambda like, a: a.abs().sum(-1).amax(-1),
    "ones": _filled(1.0),
    "relu": lambda like, a: a.relu(),
    "rho": _eigenvalue(MODULUS_MAX),
    "sigma_max": lambda like, a: _singular_values(a)[..., 0],
    "sigma_min": lambda like, a: _singular_values(a)[..., -1],
    "sqrt": lambda like, a: scalar(a).sqrt(),
    "step": lambda like, a: (a > 0).to(a.dtype),
    "sum": lambda like, a: a.sum((-2, -1)) if a.ndim > 1 else a,
    "trace": lambda like, a: a.diagonal(dim1=-2, dim2=-1).sum(-1),
    "vec": lambda like, a: vec(a),
    "zeros": _filled(0.0),
}
"""Each takes a tensor with the wanted dtype and device, then the arguments."""
