"""Functions and operators of the claim language in plain floating point, each for one matrix or a batch of them.

Extreme eigenvalues in plain floating point, differentiable where they are simple.

Computed on the host by NumPy: the dgeev of torch's MKL gives up on sparse skew matrices as small as 3 x 3 and then
writes past its buffers, and it does so on NaN too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ntk_deq.evaluation.functions import (
    Magnitude,
    Sized,
    frobenius,
    kron,
    of_argument,
    of_inverse,
    of_product,
    scalar,
    singular_values,
    vec,
    where_finite,
)
from ntk_deq.evaluation.functions.balls import tensor_softmax
from ntk_deq.evaluation.functions.entrywise import TWINS
from ntk_deq.evaluation.functions.matrices import MATRIX_TWINS
from ntk_deq.language.tree import Kind

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


def _norm2(like: Tensor, a: Tensor) -> Tensor:
    if a.ndim < 2 or 1 in a.shape[-2:]:
        return frobenius(a)
    return singular_values(a)[..., 0]


def _condition(like: Tensor, a: Tensor) -> Tensor:
    values = singular_values(a)
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
    """An extreme eigenvalue: by NumPy, since torch's LAPACK may end the process on a NaN."""

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


def _filled(value: float) -> Callable[..., Tensor]:
    return lambda like, n, m=None: like.new_full((int(n), 1 if m is None else int(m)), value)


def _entrywise(name: str) -> Callable[..., Tensor]:
    """The twin's function."""
    function = TWINS[name].tensor
    return lambda like, a: function(a)


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    **{name: _entrywise(name) for name in TWINS},
    **{name: twin.tensor for name, twin in MATRIX_TWINS.items()},
    "I": lambda like, n: torch.eye(int(n), dtype=like.dtype, device=like.device),
    "commutation": _commutation,
    "cond": _condition,
    "det": lambda like, a: torch.linalg.det(a),
    "diag": _diag,
    "dot": lambda like, a, b: (a * b).sum((-2, -1)),
    "fro": lambda like, a: frobenius(a),
    "hadamard": lambda like, a, b: a * b,
    "inv": _inverse,
    "kron": lambda like, a, b: kron(a, b),
    "lambda_max": _eigenvalue(REAL_PART_MAX),
    "lambda_min": _eigenvalue(REAL_PART_MIN),
    "max": _extreme(torch.maximum, torch.amax),
    "min": _extreme(torch.minimum, torch.amin),
    "norm": _norm2,
    "norm1": lambda like, a: a.abs().sum(-2).amax(-1),
    "norminf": lambda like, a: a.abs().sum(-1).amax(-1),
    "ones": _filled(1.0),
    "pi": lambda like: like.new_full((), math.pi),
    "rho": _eigenvalue(MODULUS_MAX),
    "sigma_max": lambda like, a: singular_values(a)[..., 0],
    "sigma_min": lambda like, a: singular_values(a)[..., -1],
    "softmax": lambda like, a: tensor_softmax(a),
    "sum": lambda like, a: a.sum((-2, -1)) if a.ndim > 1 else a,
    "trace": lambda like, a: a.diagonal(dim1=-2, dim2=-1).sum(-1),
    "vec": lambda like, a: vec(a),
    "zeros": _filled(0.0),
}
"""Each takes a tensor with the wanted dtype and device, then the arguments."""


def spread(value: Tensor) -> Tensor:
    """Give a scalar the two dimensions of a matrix."""
    return value if value.ndim == 0 else value[..., None, None]


def _multiply(left: Tensor, right: Tensor) -> Tensor:
    if left.ndim < 2:
        return left * right if right.ndim < 2 else spread(left) * right
    if right.ndim < 2:
        return left * spread(right)
    if left.shape[-1] != right.shape[-2]:
        single = left.shape[-1] == left.shape[-2] == 1
        return spread(scalar(left)) * right if single else left * spread(scalar(right))
    return left @ right


def _add(left: Tensor, right: Tensor) -> Tensor:
    if (left.ndim < 2) != (right.ndim < 2):
        return scalar(left) + scalar(right)
    return left + right


def _subtract(left: Tensor, right: Tensor) -> Tensor:
    if (left.ndim < 2) != (right.ndim < 2):
        return scalar(left) - scalar(right)
    return left - right


def _divide(left: Tensor, right: Tensor) -> Tensor:
    divisor = scalar(right)
    return left / (spread(divisor) if left.ndim > 1 else divisor)


def _power(base: Tensor, exponent: Tensor) -> Tensor:
    if base.ndim > 1 and base.shape[-1] > 1:
        return _matrix_power(base, exponent)
    # A 1 x 1 matrix stays one: what takes a matrix may stand around it.
    return base ** (spread(scalar(exponent)) if base.ndim > 1 else scalar(exponent))


def _matrix_power(base: Tensor, exponent: Tensor) -> Tensor:
    """Return a whole power; many steps at once may each have an exponent of their own."""
    if exponent.numel() == 1:
        return torch.linalg.matrix_power(base, int(exponent))
    base = base.expand(len(exponent), *base.shape[-2:])
    parts = [(exponent == degree).nonzero().flatten() for degree in exponent.unique()]
    powers = [torch.linalg.matrix_power(base[places], int(exponent[places[0]])) for places in parts]
    return torch.cat(powers)[torch.cat(parts).argsort()]


OPERATORS: dict[Kind, Callable[..., Tensor]] = {
    Kind.NEGATE: torch.neg,
    Kind.ADD: _add,
    Kind.SUBTRACT: _subtract,
    Kind.MULTIPLY: _multiply,
    Kind.DIVIDE: _divide,
    Kind.POWER: _power,
    Kind.TRANSPOSE: lambda a: a.mT,
}


def entry_by_entry(kind: Kind, parts: Sequence[Tensor]) -> Tensor:
    """Return the value of an operator in a formula of a record: a number is added to every entry."""
    if kind in (Kind.ADD, Kind.SUBTRACT) and len({part.ndim < 2 for part in parts}) == 2:
        parts = [spread(part) if part.ndim < 2 else part for part in parts]
        return parts[0] + parts[1] if kind is Kind.ADD else parts[0] - parts[1]
    return OPERATORS[kind](*parts)


def _of_entries(call: Sized) -> Tensor:
    """The magnitude of a sum: it grows with the square root of the number of entries."""
    value = call.value(0)
    count = value.shape[-1] * value.shape[-2] if value.ndim > 1 else 1
    return call.of(0) * float(count) ** 0.5


def _of_extreme(call: Sized) -> Tensor:
    if call.count == 1:
        return call.of(0)
    return torch.stack(torch.broadcast_tensors(*map(call.of, range(call.count)))).amax(0)


def _of_determinant(call: Sized) -> Tensor:
    n = call.value(0).shape[-1]
    return (call.of(0) / float(n) ** 0.5) ** n  # Hadamard's bound


def _of_condition(call: Sized) -> Tensor:
    size = call.own()
    return size * size.clamp_min(1.0)


MAGNITUDES: dict[str, Magnitude] = {
    **{name: twin.magnitude for name, twin in MATRIX_TWINS.items() if twin.magnitude is not None},
    **dict.fromkeys(("diag", "fro", "lambda_max", "lambda_min", "norm", "norm1", "norminf", "rho"), of_argument),
    **dict.fromkeys(("sigma_max", "sigma_min", "vec"), of_argument),
    **dict.fromkeys(("dot", "hadamard", "kron"), of_product),
    **dict.fromkeys(("max", "min"), _of_extreme),
    **dict.fromkeys(("sum", "trace"), _of_entries),
    "cond": _of_condition,
    "det": _of_determinant,
    "inv": of_inverse,
}
"""The magnitude of what a value was computed from; of a function that is not here it is the value's size."""
