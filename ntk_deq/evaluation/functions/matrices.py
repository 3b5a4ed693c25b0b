"""The twins of Kronecker sums, Khatri-Rao products, roots, pseudoinverses, ranks, orders of symmetric matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from flint import arb, fmpq
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified import algebraic as al
from ntk_deq.certified import algebraic_matrix as am
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.algebraic import Number, UndecidedError, UndefinedError, sign
from ntk_deq.certified.algebraic_matrix import ExactMatrix
from ntk_deq.certified.inversion import rational_pinv
from ntk_deq.certified.norms import nonnegative
from ntk_deq.certified.structured import densified, require_room
from ntk_deq.errors import LimitError
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.derivatives import (
    Cotangent,
    inner,
    minus,
    outer,
    plus,
    rearranged,
    times_entries,
    times_left,
    times_right,
    transposed,
)
from ntk_deq.evaluation.environment import Environment, Notes
from ntk_deq.evaluation.functions import (
    PIECE_TWINS,
    ExactValue,
    MatrixTwin,
    Passed,
    Sized,
    Value,
    kron,
    of_argument,
    of_inverse,
    of_product,
    singular_values,
    where_finite,
)
from ntk_deq.evaluation.quantity import Matrix, Scalar

_SYLVESTER = 24
"""Up to this order the linear equation for the derivative of a root is written out, of 576 numbers."""

_ASYMMETRY = 1e-6  # relative; what floats tell from a symmetric matrix, for the search alone
_NEGATIVE = 1e-9  # likewise for eigenvalues that should not be negative


def _exact_matrix(value: ExactValue) -> ExactMatrix:
    return value if isinstance(value, ExactMatrix) else ExactMatrix(1, 1, [value])


def _like(a: Matrix, tensor: Tensor) -> Matrix:
    """Return an exact matrix with the element type and device of another."""
    return Matrix(ct.ball(tensor.to(dtype=a.ball.dtype, device=a.ball.device)), float(tensor.norm()))


# --- after Kronecker ------------------------------------------------------------------------------------------------


def _kron(a: Matrix, b: Matrix) -> Matrix:
    return Matrix(ct.kron(a.ball, b.ball), a.scale * b.scale, a.most * b.most, a.gram and b.gram)


def _unit(a: Matrix) -> Matrix:
    order = a.ball.shape[0]
    return Matrix(ct.identity(order, dtype=a.ball.dtype, device=a.ball.device), float(order) ** 0.5, gram=True)


def _kronsum(args: Sequence[Value], env: Environment) -> Value:
    a, b = (ar.to_matrix(arg) for arg in args)
    return ar.add(_kron(a, _unit(b)), _kron(_unit(a), b), env.notes)


def _kronsum_tensor(like: Tensor, a: Tensor, b: Tensor) -> Tensor:
    n, m = a.shape[-1], b.shape[-1]
    require_room(n * m, n * m, "A Kronecker sum")
    beside = torch.eye(m, dtype=b.dtype, device=b.device), torch.eye(n, dtype=a.dtype, device=a.device)
    return kron(a, beside[0]) + kron(beside[1], b)


def _kronsum_exact(args: Sequence[ExactValue]) -> ExactValue:
    a, b = map(_exact_matrix, args)
    left = am.kronecker(a, ExactMatrix.identity(b.shape[0]))
    return left.combined(am.kronecker(ExactMatrix.identity(a.shape[0]), b), lambda x, y: x + y)


def _kronsum_pull(node: Passed, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass Y = A (x) I + I (x) B: the traces of the blocks of C to A, the sum of the diagonal blocks to B."""
    n, m = (arg.shape[0] for arg in node.args)
    order, size = ((0, 1, 3, 2, 4), m) if place == 0 else ((0, 2, 4, 1, 3), n)
    rows = rearranged(cot, lambda c: c.reshape(-1, n, m, n, m).permute(order).reshape(-1, size * size))
    unit = torch.eye(size, dtype=cot.ball.dtype, device=cot.ball.device)
    share = inner(rows, Matrix(ct.ball(unit), float(size) ** 0.5))
    return rearranged(share, lambda c: c.reshape(cot.count, -1))


def _kronsum_magnitude(call: Sized) -> Tensor:
    n, m = (call.value(place).shape[-1] for place in (0, 1))
    return call.of(0) * float(m) ** 0.5 + call.of(1) * float(n) ** 0.5


def _spread_out(a: Matrix, b: Matrix) -> tuple[Matrix, Matrix]:
    """Return the factors of a Khatri-Rao product, each with its rows as often as they are met."""
    p, q = a.ball.shape[0], b.ball.shape[0]
    return _kron(a, _like(a, torch.ones(q, 1))), _kron(_like(b, torch.ones(p, 1)), b)


def _khatri_rao(args: Sequence[Value], env: Environment) -> Value:
    a, b = (ar.to_matrix(arg) for arg in args)
    require_room(a.ball.shape[0] * b.ball.shape[0], a.ball.shape[1], "A Khatri-Rao product")
    left, right = _spread_out(a, b)
    return Matrix(ct.hadamard(left.ball, right.ball), a.scale * b.scale, a.most * b.most)


def _khatri_rao_tensor(like: Tensor, a: Tensor, b: Tensor) -> Tensor:
    rows = a.shape[-2] * b.shape[-2]
    require_room(rows, a.shape[-1], "A Khatri-Rao product")
    product = a[..., :, None, :] * b[..., None, :, :]
    return product.reshape(*product.shape[:-3], rows, a.shape[-1])


def _khatri_rao_exact(args: Sequence[ExactValue]) -> ExactValue:
    a, b = map(_exact_matrix, args)
    (p, n), q = a.shape, b.shape[0]
    if p * q * n > am.MOST_ENTRIES:
        raise UndecidedError(f"a matrix of more than {am.MOST_ENTRIES} entries")
    return ExactMatrix.built(p * q, n, lambda i, j: a[i // q, j] * b[i % q, j])


def _khatri_rao_pull(node: Passed, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass Y[(i, k), j] = A[i, j] B[k, j]: the sums over k of C .* B, and those over i of C .* A."""
    (p, n), q = node.args[0].shape, node.args[1].shape[0]
    met = times_entries(cot, _spread_out(node.args[0].matrix(), node.args[1].matrix())[1 - place])
    order, count = ((0, 1, 3, 2), q) if place == 0 else ((0, 2, 3, 1), p)
    rows = rearranged(met, lambda c: c.reshape(-1, p, q, n).permute(order).reshape(-1, count))
    ones = Matrix(ct.ball(torch.ones(count, 1, dtype=cot.ball.dtype, device=cot.ball.device)), float(count) ** 0.5)
    return rearranged(inner(rows, ones), lambda c: c.reshape(cot.count, -1))


# --- ranks and singular values --------------------------------------------------------------------------------------


def _nuclear(args: Sequence[Value], env: Environment) -> Value:
    matrix = ar.to_matrix(args[0])
    scale = matrix.scale * float(min(matrix.ball.shape)) ** 0.5
    if matrix.gram:  # the eigenvalues are the singular values
        return Scalar(nonnegative(ct.trace(matrix.ball), 0.0), scale)
    return Scalar(sum(ct.singular_values(matrix.ball), arb(0)), scale)


def _nuclear_exact(args: Sequence[ExactValue]) -> ExactValue:
    matrix = _exact_matrix(args[0])
    rows, cols = matrix.shape
    gram = matrix @ matrix.transposed if rows <= cols else matrix.transposed @ matrix
    if min(rows, cols) <= 2:  # (s1 + s2)^2 = s1^2 + s2^2 + 2 s1 s2
        both = al.root(am.determinant(gram), 2) * fmpq(2) if min(rows, cols) == 2 else fmpq(0)
        return al.root(am.trace(gram) + both, 2)
    squares = am.real_eigenvalues(gram)
    if len(squares) < min(rows, cols):
        raise UndecidedError("a sum of singular values some of which are equal")
    return am.total([al.root(square, 2) for square in squares])


def _nuclear_pull(node: Passed, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass y = nuclear(A) of full column rank: c A (A'A)^(-1/2); of full row rank the same of A'."""
    matrix = node.args[0].matrix()
    wide = matrix.ball.shape[0] < matrix.ball.shape[1]
    tall = ar.to_matrix(ar.transpose(matrix)) if wide else matrix
    gram = ct.matmul(ct.transpose(tall.ball), tall.ball)
    back = ct.inverse(ct.sqrtm(gram))
    if not back.is_finite:
        notes.kink("a sum of singular values one of which may be zero", certain=False)
    factor = ct.matmul(tall.ball, back)
    direction = ct.transpose(factor) if wide else factor
    return outer(cot, Matrix(direction, float(min(matrix.ball.shape)) ** 0.5))


def _rank(args: Sequence[Value], env: Environment) -> Value:
    """The rank: at least as many as there are singular values above zero, at most as many as may be."""
    matrix = ar.to_matrix(args[0])
    values = ct.singular_values(matrix.ball)
    low = sum(bool(value > 0) for value in values)
    high = max(low, min(matrix.most, sum(not bool(value == 0) for value in values)))
    return Scalar(sc.from_bounds(float(low), float(high)), float(high))


def _rank_tensor(like: Tensor, a: Tensor) -> Tensor:
    return where_finite(a.detach(), lambda finite: torch.linalg.matrix_rank(finite).to(finite))


def _rank_exact(args: Sequence[ExactValue]) -> ExactValue:
    rational = _exact_matrix(args[0]).rational
    if rational is None:
        raise UndecidedError("a rank of a matrix of irrational numbers")
    return fmpq(rational.rank())


def _pinv(args: Sequence[Value], env: Environment) -> Value:
    matrix = ar.to_matrix(args[0])
    found = ct.pinv(matrix.ball)
    if not found.is_finite:
        env.notes.undefined("a pseudoinverse of a matrix whose rank is not certain", certain=False)
        return Matrix(found, float("inf"))
    return Matrix(found, sc.upper(ct.frobenius(found)))


def _pinv_exact(args: Sequence[ExactValue]) -> ExactValue:
    rational = _exact_matrix(args[0]).rational
    if rational is None:
        raise UndecidedError("a pseudoinverse of a matrix of irrational numbers")
    found = rational_pinv(rational)
    return ExactMatrix(found.nrows(), found.ncols(), found.entries())


def _pinv_pull(node: Passed, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass P = pinv(A): -P' C P' + (I - A P) C' P P' + P'P C' (I - P A), near which the rank must stay what it is.

    References:
        Golub and Pereyra, SIAM J. Numer. Anal. 10, 1973.
    """
    a, p = node.args[0].matrix(), ar.to_matrix(node.value)
    if not ct.sigma_min(a.ball) > 0:
        notes.kink("a pseudoinverse of a matrix whose rank is not full for certain", certain=False)
    (rows, cols), back = a.ball.shape, ar.to_matrix(ar.transpose(p))
    turned = transposed(cot, (cols, rows))
    share = minus(times_right(times_left(back, cot, (cols, rows)), (rows, rows), back))
    if rows > cols:
        beyond = ar.subtract(_unit_of(rows, a), ar.multiply(a, p, notes), notes)
        inside = ar.to_matrix(ar.multiply(p, back, notes))
        part = times_right(times_left(ar.to_matrix(beyond), turned, (rows, cols)), (rows, cols), inside)
        share = plus(share, part)
    if rows < cols:
        beyond = ar.subtract(_unit_of(cols, a), ar.multiply(p, a, notes), notes)
        inside = ar.to_matrix(ar.multiply(back, p, notes))
        part = times_right(times_left(inside, turned, (rows, cols)), (rows, cols), ar.to_matrix(beyond))
        share = plus(share, part)
    return share


def _unit_of(order: int, a: Matrix) -> Matrix:
    return Matrix(ct.identity(order, dtype=a.ball.dtype, device=a.ball.device), float(order) ** 0.5)


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
    matrix = _exact_matrix(args[0])
    _exactly_symmetric(matrix, "the order")
    return am.real_parts(matrix)[0]


def _lambda_sym_pull(node: Passed, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
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
    matrix = _exact_matrix(args[0])
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


def _sqrtm_pull(node: Passed, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass X = root(A): the solution G of X G + G X = C."""
    root = ar.to_matrix(node.value)
    order = root.ball.shape[0]
    if order > _SYLVESTER:
        raise LimitError(f"the derivative of a square root is certified up to order {_SYLVESTER}")
    system = ct.add(ct.kron(root.ball, _unit(root).ball), ct.kron(_unit(root).ball, root.ball))
    back = ct.inverse(densified(system))
    if not back.is_finite:
        notes.kink("a square root of a matrix that may be singular", certain=False)
    return Cotangent(ct.matmul(cot.ball, back), cot.scale * sc.upper(ct.frobenius(back)))


MATRIX_TWINS: dict[str, MatrixTwin] = {
    **PIECE_TWINS,
    "khatri_rao": MatrixTwin(
        ball=_khatri_rao,
        tensor=_khatri_rao_tensor,
        exact=_khatri_rao_exact,
        pull=_khatri_rao_pull,
        magnitude=of_product,
    ),
    "kronsum": MatrixTwin(
        ball=_kronsum,
        tensor=_kronsum_tensor,
        exact=_kronsum_exact,
        pull=_kronsum_pull,
        magnitude=_kronsum_magnitude,
    ),
    "lambda_sym": MatrixTwin(
        ball=_lambda_sym,
        tensor=_lambda_sym_tensor,
        exact=_lambda_sym_exact,
        pull=_lambda_sym_pull,
        in_floats=True,
        magnitude=of_argument,
    ),
    "nuclear": MatrixTwin(
        ball=_nuclear,
        tensor=lambda like, a: singular_values(a).sum(-1),
        exact=_nuclear_exact,
        pull=_nuclear_pull,
        magnitude=lambda call: call.of(0) * float(min(call.value(0).shape[-2:])) ** 0.5,
    ),
    "pinv": MatrixTwin(
        ball=_pinv,
        tensor=lambda like, a: where_finite(a, torch.linalg.pinv),
        exact=_pinv_exact,
        pull=_pinv_pull,
        magnitude=of_inverse,
    ),
    "rank": MatrixTwin(ball=_rank, tensor=_rank_tensor, exact=_rank_exact),
    "sqrtm": MatrixTwin(ball=_sqrtm, tensor=_sqrtm_tensor, exact=_sqrtm_exact, pull=_sqrtm_pull),
}
"""The twins of functions of matrices by name; those of older functions are in the tables of their kind of number."""
