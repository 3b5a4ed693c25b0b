"""The functions of the language on balls with scales; the twin of `softmax`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from flint import arb
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.precise import PreciseMatrix, as_ball
from ntk_deq.certified.precise.matrix import from_rows
from ntk_deq.certified.rounding import add_up
from ntk_deq.certified.structured import densified
from ntk_deq.certified.structured import require_room as guard_entries
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.derivatives import Cotangent, minus, plus, times_entries, times_left
from ntk_deq.evaluation.environment import Environment
from ntk_deq.evaluation.functions import Handler, Value, whole
from ntk_deq.evaluation.functions.entrywise import TWINS, entries_of, evaluated, near_balls
from ntk_deq.evaluation.functions.matrices import MATRIX_TWINS
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar, Truth
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.language.written import definition_of, put


def tensor_softmax(a: Tensor) -> Tensor:
    """Return the softmax of every column, of one matrix or of each of a batch."""
    return torch.softmax(a, dim=-2)


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


def pulled(value: Matrix, cot: Cotangent, dtype: torch.dtype, device: torch.device) -> Cotangent:
    """Return P .* C - P .* (1 1' (P .* C)) for each cotangent C of the softmax P of a matrix."""
    rows, cols = value.ball.shape
    ones = Matrix(ct.Ball(torch.ones(rows, rows, dtype=dtype, device=device)), float(rows))
    weighed = times_entries(cot, value)
    return plus(weighed, minus(times_entries(times_left(ones, weighed, (rows, cols)), value)))


def call(name: str, args: Sequence[Value], env: Environment) -> Value:
    """Apply the function called `name`; the type checker has seen to the arity and the shapes."""
    return OPERATIONS[name](args, env)


def _norm(functional: Callable[[ct.Ball], arb]) -> Handler:
    """A functional of one matrix whose natural scale is the matrix's; of a scalar, its absolute value."""

    def handler(args: Sequence[Value], env: Environment) -> Value:
        if isinstance(args[0], Scalar):
            return evaluated("abs", args[0], env)
        matrix = ar.to_matrix(args[0])
        return Scalar(functional(matrix.ball), matrix.scale)

    return handler


def _lowest(functional: Callable[[ct.Ball], arb], *, of_gram: bool) -> Handler:
    """A functional that is zero where the form of a matrix shows that it is not of full rank.

    Args:
        functional: The functional.
        of_gram: Whether that takes a matrix that is positive semidefinite by its form.
    """
    plain = _norm(functional)

    def handler(args: Sequence[Value], env: Environment) -> Value:
        matrix = args[0]
        if isinstance(matrix, Matrix) and matrix.is_deficient and (matrix.gram or not of_gram):
            return Scalar(arb(0), matrix.scale)
        return plain(args, env)

    return handler


def _same_shape(operation: Callable[[ct.Ball], ct.Ball]) -> Handler:
    def handler(args: Sequence[Value], env: Environment) -> Value:
        matrix = ar.to_matrix(args[0])
        return Matrix(operation(matrix.ball), matrix.scale)

    return handler


def _kron(args: Sequence[Value], env: Environment) -> Value:
    a, b = (ar.to_matrix(arg) for arg in args)
    return Matrix(ct.kron(a.ball, b.ball), a.scale * b.scale, a.most * b.most, a.gram and b.gram)


def _hadamard(args: Sequence[Value], env: Environment) -> Value:
    a, b = (ar.to_matrix(arg) for arg in args)
    # The product of entries is a submatrix of the Kronecker product, in the same rows and columns for a square one.
    return Matrix(ct.hadamard(a.ball, b.ball), a.scale * b.scale, a.most * b.most, a.gram and b.gram)


def _diag(args: Sequence[Value], env: Environment) -> Value:
    matrix = ar.to_matrix(args[0])
    return Matrix(ct.diag(matrix.ball), matrix.scale)


def _eye(args: Sequence[Value], env: Environment) -> Value:
    n = whole(args[0])
    one = ct.identity(n, dtype=env.like.dtype, device=env.like.device)
    return Matrix(env.constant(one), float(n) ** 0.5)


def _constant(value: float) -> Handler:
    def handler(args: Sequence[Value], env: Environment) -> Value:
        rows, cols = whole(args[0]), whole(args[1]) if len(args) > 1 else 1
        guard_entries(rows, cols, "A constant matrix")
        filled = ct.ball(env.like.new_full((rows, cols), value))
        return Matrix(env.constant(filled), abs(value) * float(rows * cols) ** 0.5)

    return handler


def _commutation(args: Sequence[Value], env: Environment) -> Value:
    n, m = whole(args[0]), whole(args[-1])
    guard_entries(n * m, n * m, "A commutation matrix")
    permutation = ct.commutation(n, m, dtype=env.like.dtype, device=env.like.device)
    return Matrix(env.constant(permutation), float(n * m) ** 0.5)


def _extreme(of_scalars: Callable[..., arb], of_entries: Callable[[ct.Ball], arb] | None = None) -> Handler:
    def handler(args: Sequence[Value], env: Environment) -> Value:
        if len(args) == 1 and isinstance(args[0], Matrix) and of_entries is not None:
            return Scalar(of_entries(args[0].ball), args[0].scale)
        scalars = [ar.to_scalar(arg) for arg in args]
        ball = scalars[0].ball
        for other in scalars[1:]:
            ball = of_scalars(ball, other.ball)
        return Scalar(ball, max(s.scale for s in scalars))

    return handler


def _entrywise(name: str) -> Handler:
    def handler(args: Sequence[Value], env: Environment) -> Value:
        return _written(name)(args, env) if len(args) > 1 else evaluated(name, args[0], env)

    return handler


def _written(name: str) -> Handler:
    """A function of each entry and a number, as it is written out; numbers are added to every entry."""

    def handler(args: Sequence[Value], env: Environment) -> Value:
        definition = definition_of(name, len(args))
        assert definition is not None
        names, formula = definition
        values: dict[str, Value] = dict(zip(names, (args[0], *map(ar.to_scalar, args[1:])), strict=True))

        def apply(node: Expr, parts: Sequence[Value]) -> Value:
            return call(node.name, parts, env) if node.kind is Kind.CALL else operator(node.kind, parts, env)

        return put(formula, values, lambda value: Scalar(ct.exact(value), abs(float(value))), apply)

    return handler


def spread(number: Scalar, like: Matrix, env: Environment) -> Matrix:
    """Return the matrix of the shape of another, every entry of which is a number."""
    rows, cols = like.ball.shape
    ones = _constant(1.0)([Scalar(arb(rows), float(rows)), Scalar(arb(cols), float(cols))], env)
    return ar.to_matrix(ar.multiply(number, ones, env.notes))


def operator(kind: Kind, args: Sequence[Value], env: Environment) -> Value:
    """Return the value of an operator in a formula of a record."""
    if kind is Kind.NEGATE:
        return ar.negate(args[0])
    left, right = args
    if kind in (Kind.ADD, Kind.SUBTRACT):
        if isinstance(left, Matrix) and isinstance(right, Scalar):
            right = spread(right, left, env)
        elif isinstance(left, Scalar) and isinstance(right, Matrix):
            left = spread(left, right, env)
    return BINARY[kind](left, right, env.notes)


BINARY = {
    Kind.ADD: ar.add,
    Kind.SUBTRACT: ar.subtract,
    Kind.MULTIPLY: ar.multiply,
    Kind.DIVIDE: ar.divide,
    Kind.POWER: ar.power,
}
"""The operators of two values."""


def _sized(functional: Callable[[ct.Ball], arb]) -> Handler:
    """A sum over entries: its scale grows with the square root of their number (Cauchy and Schwarz)."""

    def handler(args: Sequence[Value], env: Environment) -> Value:
        if isinstance(args[0], Scalar):
            return args[0]
        matrix = ar.to_matrix(args[0])
        return Scalar(functional(matrix.ball), matrix.scale * float(matrix.ball.shape[0] * matrix.ball.shape[1]) ** 0.5)

    return handler


def _determinant(args: Sequence[Value], env: Environment) -> Value:
    matrix = ar.to_matrix(args[0])
    ball = arb(0) if matrix.is_deficient else ct.determinant(matrix.ball)
    # Hadamard's bound: |det A| <= (fro(A)/sqrt(n))^n.
    n = matrix.ball.shape[0]
    return Scalar(ball, max(ar.raised(matrix.scale / float(n) ** 0.5, n), ar.magnitude(ball)))


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


def _dot(args: Sequence[Value], env: Environment) -> Value:
    left, right = (ar.to_matrix(arg) for arg in args)
    if left.ball.shape[1] > 1:
        left, right = (Matrix(ct.vec(part.ball), part.scale) for part in (left, right))
    return ar.to_scalar(ar.multiply(ar.transpose(left), right, env.notes))


def _indicator(args: Sequence[Value], env: Environment) -> Value:
    """0 where a statement is true for certain, +inf where it is false."""
    (outcome,) = args
    assert isinstance(outcome, Outcome)
    if outcome.truth in (Truth.TRUE, Truth.FALSE):
        return Scalar(arb(0) if outcome.truth is Truth.TRUE else arb("+inf"), 1.0)
    env.notes.doubt("whether a point lies in a set is not certain")
    return Scalar(sc.nan(), 1.0)


def _inverse(args: Sequence[Value], env: Environment) -> Value:
    return ar.inverse(ar.to_matrix(args[0]), env.notes)


OPERATIONS: dict[str, Handler] = {
    **{name: _written(name) for name, record in FUNCTIONS.items() if record.definition is not None},
    **{name: _entrywise(name) for name in TWINS},
    **{name: twin.ball for name, twin in MATRIX_TWINS.items()},
    "I": _eye,
    "commutation": _commutation,
    "cond": _condition,
    "det": _determinant,
    "diag": _diag,
    "dot": _dot,
    "fro": _norm(ct.frobenius),
    "hadamard": _hadamard,
    "inv": _inverse,
    "kron": _kron,
    "lambda_max": _norm(ct.lambda_max),
    "lambda_min": _lowest(ct.lambda_min, of_gram=True),
    "max": _extreme(ct.maximum, ct.entry_max),
    "min": _extreme(ct.minimum, ct.entry_min),
    "norm": _norm(ct.spectral_norm),
    "indicator": _indicator,
    "norm1": _norm(ct.norm1),
    "norminf": _norm(ct.norminf),
    "ones": _constant(1.0),
    "pi": lambda args, env: Scalar(arb.pi(), math.pi),
    "rho": _norm(ct.rho),
    "sigma_max": _norm(ct.sigma_max),
    "sigma_min": _lowest(ct.sigma_min, of_gram=False),
    "softmax": lambda args, env: softmax_matrix(ar.to_matrix(args[0])),
    "sum": _sized(ct.entry_sum),
    "trace": _sized(ct.trace),
    "vec": _same_shape(ct.vec),
    "zeros": _constant(0.0),
}
