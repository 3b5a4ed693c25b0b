"""The twins of eigenvalues and determinants, and of what has a value at symmetric matrices only.

Extreme eigenvalues in plain floating point, differentiable where they are simple, are computed on the host by NumPy:
the dgeev of torch's MKL gives up on sparse skew matrices as small as 3 x 3 and then writes past its buffers, and it
does so on NaN too.

Whether an extreme eigenvalue is simple, so that it has a derivative, or repeated, so that it has none: for a small
exact matrix the characteristic polynomial, in whole numbers, says how often each root occurs. Else enclosures of all
eigenvalues can show that one is simple.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from flint import acb, arb, fmpq
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified import algebraic as al
from ntk_deq.certified import algebraic_matrix as am
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.algebraic import Number, UndecidedError, UndefinedError, sign
from ntk_deq.certified.algebraic_matrix import ExactMatrix
from ntk_deq.certified.eigenvalues import eigenvalue_discs
from ntk_deq.certified.norms import nonnegative
from ntk_deq.certified.precise import adopt
from ntk_deq.certified.precise.matrix import whole_matrix
from ntk_deq.certified.structured import densified
from ntk_deq.errors import LimitError
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.derivatives import Cotangent, Node, NoRuleError, outer, scaled
from ntk_deq.evaluation.environment import Environment, Notes
from ntk_deq.evaluation.functions import (
    ExactValue,
    MatrixTwin,
    Sized,
    Value,
    as_exact_matrix,
    of_argument,
    of_exact_matrix,
    unit_like,
    where_finite,
)
from ntk_deq.evaluation.functions.functionals import measure
from ntk_deq.evaluation.quantity import Matrix, Scalar

REAL_PART_MAX, REAL_PART_MIN, MODULUS_MAX = "lambda_max", "lambda_min", "rho"

_SYLVESTER = 24
"""Up to this order the linear equation for the derivative of a root is written out, of 576 numbers."""

_ASYMMETRY = 1e-6  # relative; what floats tell from a symmetric matrix, for the search alone
_NEGATIVE = 1e-9  # likewise for eigenvalues that should not be negative

_APART = 1e-9
# Relative; eigenvalues closer than this are one as far as rounding can tell, and then it may have no derivative.

_ALONG = 1e-10
# Of unit vectors: the condition of the eigenvalue is the inverse of their product, and its square times the round-off
# is about the error of the derivative.

_RANK: dict[str, Callable[[Any], Any]] = {
    REAL_PART_MAX: lambda values: values.real,
    REAL_PART_MIN: lambda values: -values.real,
    MODULUS_MAX: abs,
}
"""What is largest of the eigenvalue that a function gives, of floats as of balls."""

EXTREMES = frozenset(_RANK)
"""The functions of one extreme eigenvalue."""


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


def _eigenvalue(which: str) -> Callable[[Tensor], Tensor]:
    """An extreme eigenvalue: by NumPy, since torch's LAPACK may end the process on a NaN."""

    def function(a: Tensor) -> Tensor:
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


_ORDER = 12
"""Up to this order the characteristic polynomial is written out: about a millisecond."""


def is_repeated(matrix: ct.Ball, which: str) -> bool | None:
    """Return whether an extreme eigenvalue is repeated: True or False for certain, None where it is not known.

    An eigenvalue of which only the conjugate is as extreme counts as simple, and the modulus 0 as repeated.

    Args:
        matrix: n x n.
        which: `lambda_max`, `lambda_min` or `rho`.

    Example:
        >>> import torch
        >>> is_repeated(ct.ball(torch.eye(2)), "lambda_max"), is_repeated(ct.ball(torch.diag(torch.arange(2.0))), "rho")
        (True, False)
    """
    if not matrix.is_finite:
        return None
    roots = _exact_roots(matrix) or _discs(matrix)
    if not roots:
        return None
    rank = _RANK[which]
    top, count = max(roots, key=lambda root: float(rank(root[0]).mid()))
    others = [value for value, _ in roots if value is not top and not _conjugate(value, top)]
    if not all(rank(value) < rank(top) for value in others):
        return None
    if which == MODULUS_MAX and not abs(top) > 0:
        return True if abs(top) == 0 else None
    return count > 1


def _conjugate(value: acb, top: acb) -> bool:
    return not value.imag.contains(0) and bool(value.conjugate().overlaps(top))


def _exact_roots(matrix: ct.Ball) -> list[tuple[acb, int]]:
    """Return the eigenvalues of a small exact matrix and how often each occurs, or nothing."""
    if matrix.shape[0] > _ORDER or not matrix.is_exact:
        return []
    whole = whole_matrix(adopt(matrix))
    if whole is None:
        return []
    found: list[tuple[acb, int]] = whole[0].charpoly().complex_roots()  # type: ignore[assignment]
    return [(acb(root), int(count)) for root, count in found]


def _discs(matrix: ct.Ball) -> list[tuple[acb, int]]:
    """Return balls that hold one eigenvalue each, or nothing where those of some meet."""
    if not isinstance(matrix, ct.Ball):
        return []
    discs = eigenvalue_discs(matrix)
    spread = arb(0, discs.radius)
    balls = [acb(arb(c.real) + spread, arb(c.imag) + spread) for c in discs.centres.tolist()]
    apart = all(not x.overlaps(y) for i, x in enumerate(balls) for y in balls[:i])
    return [(ball, 1) for ball in balls] if apart and all(ball.is_finite() for ball in balls) else []


def _determinant(args: Sequence[Value], env: Environment) -> Value:
    matrix = ar.to_matrix(args[0])
    ball = arb(0) if matrix.is_deficient else ct.determinant(matrix.ball)
    # Hadamard's bound: |det A| <= (fro(A)/sqrt(n))^n.
    n = matrix.ball.shape[0]
    return Scalar(ball, max(ar.raised(matrix.scale / float(n) ** 0.5, n), ar.magnitude(ball)))


def _determinant_pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass y = det(A): c y inv(A)'."""
    inverse = ct.transpose(ct.inverse(node.args[0].dense()))
    if not inverse.is_finite:
        raise NoRuleError(node.operation, "the derivative of a determinant is certified for invertible matrices only")
    return outer(scaled(ar.to_scalar(node.value), cot), Matrix(inverse, sc.upper(ct.frobenius(inverse))))


def _determinant_magnitude(call: Sized) -> Tensor:
    n = call.value(0).shape[-1]
    return (call.of(0) / float(n) ** 0.5) ** n  # Hadamard's bound


# --- symmetric matrices ---------------------------------------------------------------------------------------------


def _is_symmetric(matrix: Matrix, notes: Notes, what: str) -> bool:
    """Return whether a matrix is symmetric for certain; note it where it is not.

    Raises:
        OutsideClaimError: It is not symmetric, for certain.
    """
    if matrix.symmetric or matrix.gram or matrix.ball.shape == (1, 1):
        return True
    found = ct.compare_entries("==", matrix.ball, ct.transpose(matrix.ball))
    if found.all_true:
        return True
    doubt = "is not symmetric" if found.some_false else "is not seen to be symmetric"
    notes.undefined(f"{what} of a matrix that {doubt}", certain=found.some_false)
    return False


def _lambda_sym(args: Sequence[Value], env: Environment) -> Value:
    matrix = ar.to_matrix(args[0])
    if not _is_symmetric(matrix, env.notes, "the order"):
        return Scalar(sc.nan(), float("inf"))
    if matrix.gram and matrix.is_deficient:
        return Scalar(arb(0), matrix.scale)
    least = ct.eigenvalues_symmetric(matrix.ball)[0]
    return Scalar(nonnegative(least, 0.0) if matrix.gram and least.upper() >= 0 else least, matrix.scale)


def _unsymmetric(a: Tensor) -> Tensor:
    apart = torch.linalg.vector_norm((a - a.mT).detach(), dim=(-2, -1))
    return apart > _ASYMMETRY * torch.linalg.vector_norm(a.detach(), dim=(-2, -1))


def _lambda_sym_tensor(like: Tensor, a: Tensor) -> Tensor:
    least = where_finite((a + a.mT) * 0.5, torch.linalg.eigvalsh)[..., 0]
    return torch.where(_unsymmetric(a), torch.nan, least)


def _exactly_symmetric(matrix: ExactMatrix, what: str) -> None:
    turned = matrix.transposed
    if any(sign(a - b) for a, b in zip(matrix.entries, turned.entries, strict=True)):
        raise UndefinedError(f"{what} of a matrix that is not symmetric")


def _lambda_sym_exact(args: Sequence[ExactValue]) -> ExactValue:
    matrix = as_exact_matrix(args[0])
    _exactly_symmetric(matrix, "the order")
    return am.real_parts(matrix)[0]


def _lambda_sym_pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass y = lambda_sym(S): c v v', v the eigenvector; of t I - S with a large t it is the first singular vector."""
    ball = node.args[0].dense()
    order, reach = ball.shape[0], sc.exact(2 * sc.upper(ct.frobenius(ball)) + 1.0)
    above = ct.scale(reach, ct.identity(order, dtype=ball.dtype, device=ball.device))
    direction = ct.singular_direction(ct.subtract(densified(above), ball), 0)
    if direction is None:
        notes.kink(f"a {node.operation} whose eigenvalue may not be simple", certain=False)
    return outer(cot, Matrix(direction, 1.0))


def _sqrtm(args: Sequence[Value], env: Environment) -> Value:
    matrix = ar.to_matrix(args[0])
    ball: ct.Ball = densified(matrix.ball)
    known = _is_symmetric(matrix, env.notes, "a square root")
    if known and not matrix.gram and not ct.lambda_min_at_least(ball, 0.0):
        negative = ct.lambda_min_below(ball, 0.0) is True
        doubt = "has a negative eigenvalue" if negative else "may have a negative eigenvalue"
        env.notes.undefined(f"a square root of a matrix that {doubt}", certain=negative)
        known = False
    root = ct.sqrtm(ball)
    if not known:
        root = ct.scale(sc.nan(), root)
    size = sc.upper(ct.frobenius(root)) if root.is_finite else float("inf")
    return Matrix(root, size, gram=True)


class _Root(torch.autograd.Function):
    """The root of a symmetric matrix; the derivative D of X = root(A) solves X D + D X = dA, in the eigenbasis."""

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values, vectors = torch.linalg.eigh((a + a.mT) * 0.5)
        roots = values.clamp(min=0.0).sqrt()
        root = (vectors * roots[..., None, :]) @ vectors.mT
        negative = values[..., 0] < -_NEGATIVE * values[..., -1].abs()
        return torch.where(negative[..., None, None], torch.nan, root), roots, vectors

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1], output[2])
        ctx.save_for_backward(output[1], output[2])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        roots, vectors = ctx.saved_tensors
        turned = vectors.mT @ gradients[0] @ vectors
        return vectors @ (turned / (roots[..., :, None] + roots[..., None, :])) @ vectors.mT


def _sqrtm_tensor(like: Tensor, a: Tensor) -> Tensor:
    root = where_finite(a, lambda finite: _Root.apply(finite)[0])
    return torch.where(_unsymmetric(a)[..., None, None], torch.nan, root)


def _sqrtm_exact(args: Sequence[ExactValue]) -> ExactValue:
    """Of order two by Cayley and Hamilton: (A + s I)/t with s = sqrt(det A) and t = sqrt(trace A + 2 s)."""
    matrix = as_exact_matrix(args[0])
    _exactly_symmetric(matrix, "a square root")
    order = matrix.shape[0]
    if order > 2:
        raise UndecidedError("a square root of a matrix of an order beyond two")
    if sign(am.real_parts(matrix)[0]) < 0:
        raise UndefinedError("a square root of a matrix that has a negative eigenvalue")
    if order == 1:
        return matrix.mapped(lambda entry: al.root(entry, 2))
    middle: Number = al.root(am.determinant(matrix), 2)
    trace = al.root(am.trace(matrix) + fmpq(2) * middle, 2)
    if sign(trace) == 0:
        return matrix
    over = al.inverse(trace)
    moved = matrix.combined(ExactMatrix.identity(2), lambda a, one: a + middle * one)
    return moved.mapped(lambda entry: entry * over)


def _sqrtm_pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass X = root(A): the solution G of X G + G X = C."""
    root = ar.to_matrix(node.value)
    order = root.ball.shape[0]
    if order > _SYLVESTER:
        raise LimitError(f"the derivative of a square root is certified up to order {_SYLVESTER}")
    unit = unit_like(root, order)
    system = ct.add(ct.kron(root.ball, unit.ball), ct.kron(unit.ball, root.ball))
    back = ct.inverse(densified(system))
    if not back.is_finite:
        notes.kink("a square root of a matrix that may be singular", certain=False)
    return Cotangent(ct.matmul(cot.ball, back), cot.scale * sc.upper(ct.frobenius(back)))


SPECTRAL_TWINS: dict[str, MatrixTwin] = {
    "lambda_max": measure(ct.lambda_max, _eigenvalue(REAL_PART_MAX), lambda a: am.real_parts(a)[1]),
    "lambda_min": measure(
        ct.lambda_min,
        _eigenvalue(REAL_PART_MIN),
        lambda a: am.real_parts(a)[0],
        is_zero=lambda matrix: matrix.is_deficient and matrix.gram,
    ),
    "rho": measure(ct.rho, _eigenvalue(MODULUS_MAX), am.spectral_radius),
    "det": MatrixTwin(
        ball=_determinant,
        tensor=lambda like, a: torch.linalg.det(a),
        exact=of_exact_matrix(am.determinant),
        pull=_determinant_pull,
        magnitude=_determinant_magnitude,
    ),
    "lambda_sym": MatrixTwin(
        ball=_lambda_sym,
        tensor=_lambda_sym_tensor,
        exact=_lambda_sym_exact,
        pull=_lambda_sym_pull,
        in_floats=True,
        magnitude=of_argument,
    ),
    "sqrtm": MatrixTwin(ball=_sqrtm, tensor=_sqrtm_tensor, exact=_sqrtm_exact, pull=_sqrtm_pull),
}
"""The twins by name."""
