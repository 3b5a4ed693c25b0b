"""The twins of functions from a matrix to a number: sums, extremes, norms, singular values, ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from flint import arb, fmpq
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified import algebraic as al
from ntk_deq.certified import algebraic_matrix as am
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.algebraic import Number, UndecidedError, UndefinedError, sign
from ntk_deq.certified.algebraic_matrix import ExactMatrix
from ntk_deq.certified.norms import nonnegative
from ntk_deq.certified.precise import PreciseMatrix
from ntk_deq.errors import LimitError
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.derivatives import Cotangent, Node, Rule, outer, scaled, signs_of, times_signs
from ntk_deq.evaluation.environment import Environment, Notes
from ntk_deq.evaluation.functions import (
    ExactValue,
    MatrixTwin,
    Sized,
    Value,
    as_exact_matrix,
    exact_number,
    frobenius,
    of_argument,
    of_exact_matrix,
    of_product,
    scalar,
    singular_values,
    where_finite,
)
from ntk_deq.evaluation.functions.entrywise import evaluated, note_kinks
from ntk_deq.evaluation.quantity import Matrix, Scalar

_ZERO = Scalar(arb(0), 0.0)


def _exact(tensor: Tensor) -> Matrix:
    return Matrix(ct.Ball(tensor), 1.0)


# --- sums -----------------------------------------------------------------------------------------------------------


def _sum_twin(
    ball: Callable[[ct.Ball], arb],
    tensor: Callable[[Tensor], Tensor],
    exact: Callable[[ExactMatrix], Number],
    places: Callable[[int, int], Tensor],
) -> MatrixTwin:
    """A sum over some entries: its scale grows with the square root of their number (Cauchy and Schwarz)."""

    def handler(args: Sequence[Value], env: Environment) -> Value:
        if isinstance(args[0], Scalar):
            return args[0]
        matrix = ar.to_matrix(args[0])
        return Scalar(ball(matrix.ball), matrix.scale * float(matrix.ball.shape[0] * matrix.ball.shape[1]) ** 0.5)

    def pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
        argument = node.args[0]
        if argument.is_scalar:
            return cot
        return outer(cot, _exact(places(*argument.shape).to(dtype=cot.ball.dtype, device=cot.ball.device)))

    def magnitude(call: Sized) -> Tensor:
        value = call.value(0)
        return call.of(0) * float(value.shape[-1] * value.shape[-2] if value.ndim > 1 else 1) ** 0.5

    return MatrixTwin(
        ball=handler,
        tensor=lambda like, a: tensor(a) if a.ndim > 1 else a,
        exact=of_exact_matrix(exact),
        pull=pull,
        magnitude=magnitude,
    )


def _dot(args: Sequence[Value], env: Environment) -> Value:
    left, right = (ar.to_matrix(arg) for arg in args)
    if left.ball.shape[1] > 1:
        left, right = (Matrix(ct.vec(part.ball), part.scale) for part in (left, right))
    return ar.to_scalar(ar.multiply(ar.transpose(left), right, env.notes))


def _exact_dot(args: Sequence[ExactValue]) -> ExactValue:
    return am.total([a * b for a, b in zip(*(as_exact_matrix(arg).entries for arg in args), strict=True)])


def _dot_pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    return outer(cot, node.args[1 - place].matrix())


# --- extremes -------------------------------------------------------------------------------------------------------


def largest(numbers: Sequence[Number]) -> Number:
    """Return the largest of some numbers."""
    best = numbers[0]
    for number in numbers[1:]:
        best = number if sign(number - best) > 0 else best
    return best


def _signed(number: Number, which: int) -> Number:
    return number if which > 0 else -number


def _certain_largest(values: list[arb], what: str, notes: Notes) -> int:
    """Return the place of the value that is certainly above all others; stop where there is none."""
    best = max(range(len(values)), key=lambda k: float(values[k].mid()))
    if not all(values[best] > value for k, value in enumerate(values) if k != best):
        notes.kink(f"{what} that is, or may be, reached twice", certain=False)
    return best


def _of_extreme(call: Sized) -> Tensor:
    if call.count == 1:
        return call.of(0)
    return torch.stack(torch.broadcast_tensors(*map(call.of, range(call.count)))).amax(0)


def _extreme_twin(
    which: int,
    of_scalars: Callable[..., arb],
    of_entries: Callable[[ct.Ball], arb],
    of_tensors: Callable[[Tensor, Tensor], Tensor],
    of_tensor: Callable[[Tensor, tuple[int, int]], Tensor],
) -> MatrixTwin:
    """A maximum (1) or a minimum (-1); its cotangent goes to the only place that reaches it."""

    def ball(args: Sequence[Value], env: Environment) -> Value:
        if len(args) == 1 and isinstance(args[0], Matrix):
            return Scalar(of_entries(args[0].ball), args[0].scale)
        scalars = [ar.to_scalar(arg) for arg in args]
        found = scalars[0].ball
        for other in scalars[1:]:
            found = of_scalars(found, other.ball)
        return Scalar(found, max(s.scale for s in scalars))

    def tensor(like: Tensor, *args: Tensor) -> Tensor:
        if len(args) == 1:
            return of_tensor(args[0], (-2, -1)) if args[0].ndim > 1 else args[0]
        result = scalar(args[0])
        for other in args[1:]:
            result = of_tensors(result, scalar(other))
        return result

    def exact(args: Sequence[ExactValue]) -> ExactValue:
        numbers = list(as_exact_matrix(args[0]).entries) if len(args) == 1 else [exact_number(arg) for arg in args]
        return _signed(largest([_signed(number, which) for number in numbers]), which)

    def pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
        what = "a maximum" if which > 0 else "a minimum"
        if len(node.args) > 1 or node.args[0].is_scalar:
            numbers = [which * ar.to_scalar(arg.value).ball for arg in node.args]
            return cot if _certain_largest(numbers, what, notes) == place else scaled(_ZERO, cot)
        dense = node.args[0].dense()
        flat = (which * dense.centre).flatten()
        top = flat.topk(min(2, flat.numel()))
        values = [ct.with_radius(value, dense.radius) for value in top.values.tolist()]
        _certain_largest(values, what, notes)
        pick = torch.zeros_like(flat)
        pick[top.indices[0]] = 1.0
        return outer(cot, _exact(pick.reshape(dense.shape)))

    return MatrixTwin(ball=ball, tensor=tensor, exact=exact, pull=pull, in_floats=True, magnitude=_of_extreme)


# --- norms and singular values --------------------------------------------------------------------------------------


def measure(
    functional: Callable[[ct.Ball], arb],
    tensor: Callable[[Tensor], Tensor],
    exact: Callable[[ExactMatrix], Number],
    pull: Rule | None = None,
    *,
    in_floats: bool = False,
    is_zero: Callable[[Matrix], bool] = lambda matrix: False,
) -> MatrixTwin:
    """Return the twin of a functional of one matrix whose natural scale is the matrix's; of a number, its size.

    Args:
        functional: On a ball.
        tensor: In floats.
        exact: On an exact matrix.
        pull: How a cotangent passes.
        in_floats: Whether that takes float balls only.
        is_zero: Whether the form of a matrix shows that it is zero.
    """

    def handler(args: Sequence[Value], env: Environment) -> Value:
        if isinstance(args[0], Scalar):
            return evaluated("abs", args[0], env)
        matrix = ar.to_matrix(args[0])
        return Scalar(arb(0) if is_zero(matrix) else functional(matrix.ball), matrix.scale)

    return MatrixTwin(
        ball=handler,
        tensor=lambda like, a: tensor(a),
        exact=of_exact_matrix(exact),
        pull=pull,
        in_floats=in_floats,
        magnitude=of_argument,
    )


def _exact_frobenius(matrix: ExactMatrix) -> Number:
    return al.root(am.total([entry * entry for entry in matrix.entries]), 2)


def _frobenius_pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass y = fro(A): c A/fro(A)."""
    matrix = node.args[0].matrix()
    size = ct.frobenius(matrix.ball)
    if not size > 0:
        zero = bool(size == 0)
        notes.kink(f"the argument of a norm {'is' if zero else 'may be'} zero", certain=zero)
    direction = ar.divide(matrix, Scalar(size, matrix.scale), notes)
    return outer(cot, ar.to_matrix(direction))


def _norm_tensor(a: Tensor) -> Tensor:
    return frobenius(a) if a.ndim < 2 or 1 in a.shape[-2:] else singular_values(a)[..., 0]


def _exact_norm(matrix: ExactMatrix) -> Number:
    if matrix.shape == (1, 1):
        return al.absolute(matrix.entries[0])
    if 1 in matrix.shape:
        return _exact_frobenius(matrix)
    return al.root(am.singular_squares(matrix)[1], 2)


def _norm_pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    argument = node.args[0]
    if argument.is_scalar:
        note_kinks(argument.dense(), notes)
        signs = signs_of(argument)
        return times_signs(cot, signs.above.to(torch.int8) - signs.below.to(torch.int8))
    if 1 in argument.shape:
        return _frobenius_pull(node, cot, place, notes)
    if isinstance(cot.ball, PreciseMatrix):
        raise LimitError("the derivative of a spectral norm is not evaluated at more than float64's precision")
    return _singular(0)(node, cot, place, notes)


def _singular(index: int) -> Rule:
    def rule(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
        return outer(cot, _direction(node, index, notes))

    return rule


def _direction(node: Node, index: int, notes: Notes) -> Matrix:
    direction = ct.singular_direction(node.args[0].dense(), index)
    if direction is None:
        # Also where the bound fails only for want of digits: nothing certain may rest on a guess there.
        notes.kink(f"a {node.operation} whose singular value may be zero or not simple", certain=False)
    return Matrix(direction, 1.0)


def _largest_column(node: Node, cot: Cotangent, place: int, notes: Notes, *, rows: bool = False) -> Cotangent:
    """Pass y = the largest absolute column (row) sum: c times the signs of that column (row)."""
    ball = node.args[0].dense()
    columns = ct.transpose(ball) if rows else ball
    count = columns.shape[1]
    sums = [ct.norm1(ct.Ball(columns.centre[:, k : k + 1], columns.radius, columns.reason)) for k in range(count)]
    best = _certain_largest(sums, "a largest sum", notes)
    note_kinks(ct.Ball(columns.centre[:, best : best + 1], columns.radius), notes)
    signs = torch.zeros_like(columns.centre)
    signs[:, best] = columns.centre[:, best].sign()
    return outer(cot, _exact((signs.mT if rows else signs).contiguous()))


def _largest_row(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    return _largest_column(node, cot, place, notes, rows=True)


def _exact_row_sum(matrix: ExactMatrix) -> Number:
    rows, columns = matrix.shape
    return largest([am.total([al.absolute(matrix[i, j]) for j in range(columns)]) for i in range(rows)])


def _exact_sigma_min(matrix: ExactMatrix) -> Number:
    return _exact_norm(matrix) if 1 in matrix.shape else al.root(am.singular_squares(matrix)[0], 2)


def _condition(args: Sequence[Value], env: Environment) -> Value:
    matrix = ar.to_matrix(args[0])
    smallest = arb(0) if matrix.is_deficient else ct.sigma_min(matrix.ball)
    if not smallest.is_finite() or smallest.contains(0):
        singular = smallest.is_finite() and bool(smallest == 0)
        what = "a condition number of a singular matrix" if singular else "a condition number that cannot be bounded"
        env.notes.undefined(what, certain=singular)
        return Scalar(arb("nan"), float("inf"))
    ball = ct.divide(ct.sigma_max(matrix.ball), smallest)
    return Scalar(ball, ar.magnitude(ball))


def _condition_tensor(like: Tensor, a: Tensor) -> Tensor:
    values = singular_values(a)
    return values[..., 0] / values[..., -1]


def _exact_condition(matrix: ExactMatrix) -> Number:
    smallest = _exact_sigma_min(matrix)
    if sign(smallest) == 0:
        raise UndefinedError("a condition number of a singular matrix")
    return _exact_norm(matrix) * al.inverse(smallest)


def _condition_pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass y = sigma_max/sigma_min: c (u1 v1' - y un vn')/sigma_min."""
    matrix = node.args[0].matrix()
    smallest = Scalar(ct.sigma_min(matrix.ball), matrix.scale)
    top, low = _direction(node, 0, notes), _direction(node, -1, notes)
    slope = ar.divide(ar.subtract(top, ar.multiply(ar.to_scalar(node.value), low, notes), notes), smallest, notes)
    return outer(cot, ar.to_matrix(slope))


def _condition_magnitude(call: Sized) -> Tensor:
    size = call.own()
    return size * size.clamp_min(1.0)


def _nuclear(args: Sequence[Value], env: Environment) -> Value:
    matrix = ar.to_matrix(args[0])
    scale = matrix.scale * float(min(matrix.ball.shape)) ** 0.5
    if matrix.gram:  # the eigenvalues are the singular values
        return Scalar(nonnegative(ct.trace(matrix.ball), 0.0), scale)
    return Scalar(sum(ct.singular_values(matrix.ball), arb(0)), scale)


def _nuclear_exact(args: Sequence[ExactValue]) -> ExactValue:
    matrix = as_exact_matrix(args[0])
    rows, cols = matrix.shape
    gram = matrix @ matrix.transposed if rows <= cols else matrix.transposed @ matrix
    if min(rows, cols) <= 2:  # (s1 + s2)^2 = s1^2 + s2^2 + 2 s1 s2
        both = al.root(am.determinant(gram), 2) * fmpq(2) if min(rows, cols) == 2 else fmpq(0)
        return al.root(am.trace(gram) + both, 2)
    squares = am.real_eigenvalues(gram)
    if len(squares) < min(rows, cols):
        raise UndecidedError("a sum of singular values some of which are equal")
    return am.total([al.root(square, 2) for square in squares])


def _nuclear_pull(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
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
    rational = as_exact_matrix(args[0]).rational
    if rational is None:
        raise UndecidedError("a rank of a matrix of irrational numbers")
    return fmpq(rational.rank())


NUMBER_TWINS: dict[str, MatrixTwin] = {
    "sum": _sum_twin(ct.entry_sum, lambda a: a.sum((-2, -1)), lambda a: am.total(a.entries), torch.ones),
    "trace": _sum_twin(ct.trace, lambda a: a.diagonal(dim1=-2, dim2=-1).sum(-1), am.trace, torch.eye),
    "dot": MatrixTwin(
        ball=_dot,
        tensor=lambda like, a, b: (a * b).sum((-2, -1)),
        exact=_exact_dot,
        pull=_dot_pull,
        magnitude=of_product,
    ),
    "max": _extreme_twin(1, ct.maximum, ct.entry_max, torch.maximum, torch.amax),
    "min": _extreme_twin(-1, ct.minimum, ct.entry_min, torch.minimum, torch.amin),
    "fro": measure(ct.frobenius, frobenius, _exact_frobenius, _frobenius_pull),
    "norm": measure(ct.spectral_norm, _norm_tensor, _exact_norm, _norm_pull),
    "norm1": measure(
        ct.norm1,
        lambda a: a.abs().sum(-2).amax(-1),
        lambda a: _exact_row_sum(a.transposed),
        _largest_column,
        in_floats=True,
    ),
    "norminf": measure(ct.norminf, lambda a: a.abs().sum(-1).amax(-1), _exact_row_sum, _largest_row, in_floats=True),
    "sigma_max": measure(ct.sigma_max, lambda a: singular_values(a)[..., 0], _exact_norm, _singular(0), in_floats=True),
    "sigma_min": measure(
        ct.sigma_min,
        lambda a: singular_values(a)[..., -1],
        _exact_sigma_min,
        _singular(-1),
        in_floats=True,
        is_zero=lambda matrix: matrix.is_deficient,
    ),
    "cond": MatrixTwin(
        ball=_condition,
        tensor=_condition_tensor,
        exact=of_exact_matrix(_exact_condition),
        pull=_condition_pull,
        in_floats=True,
        magnitude=_condition_magnitude,
    ),
    "nuclear": MatrixTwin(
        ball=_nuclear,
        tensor=lambda like, a: singular_values(a).sum(-1),
        exact=_nuclear_exact,
        pull=_nuclear_pull,
        magnitude=lambda call: call.of(0) * float(min(call.value(0).shape[-2:])) ** 0.5,
    ),
    "rank": MatrixTwin(ball=_rank, tensor=_rank_tensor, exact=_rank_exact),
}
"""The twins by name."""
