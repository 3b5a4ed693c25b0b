"""The twins of functions from matrices to a matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from flint import arb, fmpq
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified import algebraic_matrix as am
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.algebraic import UndecidedError
from ntk_deq.certified.algebraic_matrix import ExactMatrix
from ntk_deq.certified.inversion import rational_pinv
from ntk_deq.certified.precise import PreciseMatrix, as_ball
from ntk_deq.certified.precise.matrix import from_rows
from ntk_deq.certified.rounding import add_up
from ntk_deq.certified.structured import densified, require_room
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.derivatives import (
    Cotangent,
    Node,
    inner,
    minus,
    plus,
    rearranged,
    times_entries,
    times_left,
    times_right,
    transposed,
    transposed_value,
)
from ntk_deq.evaluation.environment import Environment, Notes
from ntk_deq.evaluation.functions import (
    ExactValue,
    MatrixTwin,
    Sized,
    Value,
    as_exact_matrix,
    exact_room,
    exact_whole,
    kron,
    of_argument,
    of_exact_matrix,
    of_inverse,
    of_product,
    unit_like,
    vec,
    where_finite,
    whole,
)
from ntk_deq.evaluation.functions.entrywise import entries_of, near_balls
from ntk_deq.evaluation.quantity import Matrix

# --- of given sizes -------------------------------------------------------------------------------------------------


def _eye(args: Sequence[Value], env: Environment) -> Value:
    n = whole(args[0])
    one = ct.identity(n, dtype=env.like.dtype, device=env.like.device)
    return Matrix(env.constant(one), float(n) ** 0.5)


def _exact_eye(args: Sequence[ExactValue]) -> ExactValue:
    return ExactMatrix.identity(exact_room(*[exact_whole(args[0])] * 2)[0])


def _filled(number: int) -> MatrixTwin:
    def ball(args: Sequence[Value], env: Environment) -> Value:
        rows, cols = whole(args[0]), whole(args[1]) if len(args) > 1 else 1
        require_room(rows, cols, "A constant matrix")
        filled = ct.ball(env.like.new_full((rows, cols), float(number)))
        return Matrix(env.constant(filled), abs(number) * float(rows * cols) ** 0.5)

    def tensor(like: Tensor, n: Tensor, m: Tensor | None = None) -> Tensor:
        return like.new_full((int(n), 1 if m is None else int(m)), float(number))

    def exact(args: Sequence[ExactValue]) -> ExactValue:
        rows, columns = exact_whole(args[0]), exact_whole(args[1]) if len(args) > 1 else 1
        return ExactMatrix.built(*exact_room(rows, columns), lambda i, j: fmpq(number))

    return MatrixTwin(ball=ball, tensor=tensor, exact=exact)


def _commutation(args: Sequence[Value], env: Environment) -> Value:
    n, m = whole(args[0]), whole(args[-1])
    require_room(n * m, n * m, "A commutation matrix")
    permutation = ct.commutation(n, m, dtype=env.like.dtype, device=env.like.device)
    return Matrix(env.constant(permutation), float(n * m) ** 0.5)


def _commutation_tensor(like: Tensor, n: Tensor, m: Tensor | None = None) -> Tensor:
    rows, cols = int(n), int(n if m is None else m)
    index = torch.arange(rows * cols, device=like.device).reshape(cols, rows).mT.reshape(-1)
    return torch.eye(rows * cols, dtype=like.dtype, device=like.device)[index]


def _exact_commutation(args: Sequence[ExactValue]) -> ExactValue:
    n, m = exact_whole(args[0]), exact_whole(args[-1])
    # K vec(A) = vec(A') for A of shape n x m: entry i + n j of vec(A) goes to place j + m i.
    shape = exact_room(n * m, n * m)
    return ExactMatrix.built(*shape, lambda row, col: fmpq(int(row == col // n + m * (col % n))))


# --- rearranged -----------------------------------------------------------------------------------------------------


def _moved(operation: Callable[[ct.Ball], ct.Ball]) -> Callable[[Sequence[Value], Environment], Value]:
    """A matrix with its entries in other places, among zeros perhaps: its magnitude stays."""

    def handler(args: Sequence[Value], env: Environment) -> Value:
        matrix = ar.to_matrix(args[0])
        return Matrix(operation(matrix.ball), matrix.scale)

    return handler


def _exact_vec(matrix: ExactMatrix) -> ExactMatrix:
    return ExactMatrix(len(matrix.entries), 1, matrix.transposed.entries)


def _vec_pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    rows, cols = node.args[0].shape
    return rearranged(cot, lambda c: c.reshape(-1, cols, rows).mT.reshape(cot.count, -1))


def _diag_tensor(like: Tensor, a: Tensor) -> Tensor:
    return torch.diag_embed(a[..., 0]) if a.shape[-1] == 1 else a.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)


def _exact_diag(matrix: ExactMatrix) -> ExactMatrix:
    rows, columns = matrix.shape
    if columns == 1:
        return ExactMatrix.built(rows, rows, lambda i, j: matrix[i, 0] if i == j else fmpq(0))
    return ExactMatrix(rows, 1, [matrix[i, i] for i in range(rows)])


def _diag_pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    rows, cols = node.args[0].shape
    if cols == 1:
        return rearranged(cot, lambda c: c.reshape(-1, rows, rows).diagonal(dim1=1, dim2=2).contiguous())
    return rearranged(cot, lambda c: torch.diag_embed(c).reshape(cot.count, -1))


# --- products -------------------------------------------------------------------------------------------------------


def _hadamard(args: Sequence[Value], env: Environment) -> Value:
    a, b = (ar.to_matrix(arg) for arg in args)
    # The product of entries is a submatrix of the Kronecker product, in the same rows and columns for a square one.
    return Matrix(ct.hadamard(a.ball, b.ball), a.scale * b.scale, a.most * b.most, a.gram and b.gram)


def _exact_hadamard(args: Sequence[ExactValue]) -> ExactValue:
    return as_exact_matrix(args[0]).combined(as_exact_matrix(args[1]), lambda a, b: a * b)


def _hadamard_pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    return times_entries(cot, node.args[1 - place].matrix())


def _kron_pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass Y = A (x) B: block (i, j) of C gives <block, B> to A[i, j] and A[i, j] block to B."""
    (p, q), (r, s) = (arg.shape for arg in node.args)
    order = (0, 1, 3, 2, 4) if place == 0 else (0, 2, 4, 1, 3)
    factor = node.args[1 - place]
    size = factor.shape[0] * factor.shape[1]
    rows = rearranged(cot, lambda c: c.reshape(cot.count, p, r, q, s).permute(order).reshape(-1, size))
    share = inner(rows, factor.matrix())
    return rearranged(share, lambda c: c.reshape(cot.count, -1))


def _kron(a: Matrix, b: Matrix) -> Matrix:
    return Matrix(ct.kron(a.ball, b.ball), a.scale * b.scale, a.most * b.most, a.gram and b.gram)


def _kronsum(args: Sequence[Value], env: Environment) -> Value:
    a, b = (ar.to_matrix(arg) for arg in args)
    return ar.add(_kron(a, unit_like(b, b.ball.shape[0])), _kron(unit_like(a, a.ball.shape[0]), b), env.notes)


def _kronsum_tensor(like: Tensor, a: Tensor, b: Tensor) -> Tensor:
    n, m = a.shape[-1], b.shape[-1]
    require_room(n * m, n * m, "A Kronecker sum")
    beside = torch.eye(m, dtype=b.dtype, device=b.device), torch.eye(n, dtype=a.dtype, device=a.device)
    return kron(a, beside[0]) + kron(beside[1], b)


def _kronsum_exact(args: Sequence[ExactValue]) -> ExactValue:
    a, b = map(as_exact_matrix, args)
    left = am.kronecker(a, ExactMatrix.identity(b.shape[0]))
    return left.combined(am.kronecker(ExactMatrix.identity(a.shape[0]), b), lambda x, y: x + y)


def _kronsum_pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
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


def _like(a: Matrix, tensor: Tensor) -> Matrix:
    """Return an exact matrix with the element type and device of another."""
    return Matrix(ct.ball(tensor.to(dtype=a.ball.dtype, device=a.ball.device)), float(tensor.norm()))


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
    a, b = map(as_exact_matrix, args)
    (p, n), q = a.shape, b.shape[0]
    return ExactMatrix.built(*exact_room(p * q, n), lambda i, j: a[i // q, j] * b[i % q, j])


def _khatri_rao_pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass Y[(i, k), j] = A[i, j] B[k, j]: the sums over k of C .* B, and those over i of C .* A."""
    (p, n), q = node.args[0].shape, node.args[1].shape[0]
    met = times_entries(cot, _spread_out(node.args[0].matrix(), node.args[1].matrix())[1 - place])
    order, count = ((0, 1, 3, 2), q) if place == 0 else ((0, 2, 3, 1), p)
    rows = rearranged(met, lambda c: c.reshape(-1, p, q, n).permute(order).reshape(-1, count))
    ones = Matrix(ct.ball(torch.ones(count, 1, dtype=cot.ball.dtype, device=cot.ball.device)), float(count) ** 0.5)
    return rearranged(inner(rows, ones), lambda c: c.reshape(cot.count, -1))


# --- inverses ---------------------------------------------------------------------------------------------------------


def _inverse_tensor(like: Tensor, a: Tensor) -> Tensor:
    inverse, info = torch.linalg.inv_ex(a)
    singular = info != 0
    if not bool(singular.any()):
        return inverse
    return torch.where(singular[..., None, None], torch.nan, inverse)


def _inverse_pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass Y = inv(A): -Y' C Y'."""
    turned = transposed_value(node)
    return minus(times_right(times_left(turned, cot, node.shape), node.shape, turned))


def _pinv(args: Sequence[Value], env: Environment) -> Value:
    matrix = ar.to_matrix(args[0])
    found = ct.pinv(matrix.ball)
    if not found.is_finite:
        env.notes.undefined("a pseudoinverse of a matrix whose rank is not certain", certain=False)
        return Matrix(found, float("inf"))
    return Matrix(found, sc.upper(ct.frobenius(found)))


def _pinv_exact(args: Sequence[ExactValue]) -> ExactValue:
    rational = as_exact_matrix(args[0]).rational
    if rational is None:
        raise UndecidedError("a pseudoinverse of a matrix of irrational numbers")
    found = rational_pinv(rational)
    return ExactMatrix(found.nrows(), found.ncols(), found.entries())


def _pinv_pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
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
        beyond = ar.subtract(unit_like(a, rows), ar.multiply(a, p, notes), notes)
        inside = ar.to_matrix(ar.multiply(p, back, notes))
        part = times_right(times_left(ar.to_matrix(beyond), turned, (rows, cols)), (rows, cols), inside)
        share = plus(share, part)
    if rows < cols:
        beyond = ar.subtract(unit_like(a, cols), ar.multiply(p, a, notes), notes)
        inside = ar.to_matrix(ar.multiply(back, p, notes))
        part = times_right(times_left(inside, turned, (rows, cols)), (rows, cols), ar.to_matrix(beyond))
        share = plus(share, part)
    return share


# --- softmax --------------------------------------------------------------------------------------------------------


def softmax_ball(a: ct.Ball) -> ct.Ball:
    """Return the ball of the softmax of every column.

    Raises:
        LimitError: It has too many entries.

    Example:
        >>> found = softmax_ball(ct.Ball(torch.zeros(2, 1, dtype=torch.float64), 1e-3))
        >>> found.centre.tolist(), 4.9e-4 < found.radius < 5.1e-4
        ([[0.5], [0.5]], True)
    """
    rows, cols = a.shape
    if isinstance(a, PreciseMatrix):
        return as_ball(from_rows(rows, cols, _columns(list(a.flat), cols), a.reason))
    dense: ct.Ball = densified(a)
    if not dense.is_finite:
        return dense
    found = near_balls(_columns([arb(entry) for entry in entries_of(dense)], cols), dense)
    return ct.Ball(found.centre, add_up(found.radius, dense.radius / 2), found.reason)


def _columns(entries: list[arb], cols: int) -> list[arb]:
    """Return the softmax of every column of a matrix that is given row after row."""
    found: list[arb] = [arb(0)] * len(entries)
    for col in range(cols):
        column = entries[col::cols]
        top = max((entry.mid() for entry in column), key=float)
        powers = [(entry - top).exp() for entry in column]
        total = sum(powers, arb(0))
        found[col::cols] = [power / total for power in powers]
    return found


def softmax_matrix(matrix: Matrix) -> Matrix:
    """Return the softmax of every column, with its magnitude."""
    found = softmax_ball(matrix.ball)
    return Matrix(found, ar.magnitude(ct.frobenius(found)))


def _softmax_pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass P = softmax(A): P .* C - P .* (1 1' (P .* C))."""
    value = node.matrix()
    rows, cols = value.ball.shape
    ones = Matrix(ct.Ball(torch.ones(rows, rows, dtype=cot.ball.dtype, device=cot.ball.device)), float(rows))
    weighed = times_entries(cot, value)
    return plus(weighed, minus(times_entries(times_left(ones, weighed, (rows, cols)), value)))


MATRIX_TWINS: dict[str, MatrixTwin] = {
    "I": MatrixTwin(
        ball=_eye,
        tensor=lambda like, n: torch.eye(int(n), dtype=like.dtype, device=like.device),
        exact=_exact_eye,
    ),
    "zeros": _filled(0),
    "ones": _filled(1),
    "commutation": MatrixTwin(ball=_commutation, tensor=_commutation_tensor, exact=_exact_commutation),
    "vec": MatrixTwin(
        ball=_moved(ct.vec),
        tensor=lambda like, a: vec(a),
        exact=of_exact_matrix(_exact_vec),
        pull=_vec_pull,
        magnitude=of_argument,
    ),
    "diag": MatrixTwin(
        ball=_moved(ct.diag),
        tensor=_diag_tensor,
        exact=of_exact_matrix(_exact_diag),
        pull=_diag_pull,
        magnitude=of_argument,
    ),
    "hadamard": MatrixTwin(
        ball=_hadamard,
        tensor=lambda like, a, b: a * b,
        exact=_exact_hadamard,
        pull=_hadamard_pull,
        magnitude=of_product,
    ),
    "kron": MatrixTwin(
        ball=lambda args, env: _kron(*map(ar.to_matrix, args)),
        tensor=lambda like, a, b: kron(a, b),
        exact=lambda args: am.kronecker(*map(as_exact_matrix, args)),
        pull=_kron_pull,
        magnitude=of_product,
    ),
    "kronsum": MatrixTwin(
        ball=_kronsum,
        tensor=_kronsum_tensor,
        exact=_kronsum_exact,
        pull=_kronsum_pull,
        magnitude=_kronsum_magnitude,
    ),
    "khatri_rao": MatrixTwin(
        ball=_khatri_rao,
        tensor=_khatri_rao_tensor,
        exact=_khatri_rao_exact,
        pull=_khatri_rao_pull,
        magnitude=of_product,
    ),
    "inv": MatrixTwin(
        ball=lambda args, env: ar.inverse(ar.to_matrix(args[0]), env.notes),
        tensor=_inverse_tensor,
        exact=of_exact_matrix(am.inverse_matrix),
        pull=_inverse_pull,
        magnitude=of_inverse,
    ),
    "pinv": MatrixTwin(
        ball=_pinv,
        tensor=lambda like, a: where_finite(a, torch.linalg.pinv),
        exact=_pinv_exact,
        pull=_pinv_pull,
        magnitude=of_inverse,
    ),
    "softmax": MatrixTwin(
        ball=lambda args, env: softmax_matrix(ar.to_matrix(args[0])),
        tensor=lambda like, a: torch.softmax(a, dim=-2),
        pull=_softmax_pull,
    ),
}
"""The twins by name."""
