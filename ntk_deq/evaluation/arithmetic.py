"""The operators of the language on balls with scales: + - * / ^ and transpose, 1 x 1 matrices counting as scalars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flint import arb

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.structured import require_room
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar
from ntk_deq.language.operators import MAX_MATRIX_POWER

if TYPE_CHECKING:
    from ntk_deq.evaluation.environment import Notes

    Value = Scalar | Matrix | Outcome


def to_scalar(value: Value) -> Scalar:
    """Read a scalar, or a 1 x 1 matrix as one."""
    if isinstance(value, Scalar):
        return value
    if isinstance(value, Matrix) and tuple(value.ball.shape) == (1, 1):
        return Scalar(ct.as_scalar(value.ball), value.scale)
    raise TypeError(f"a scalar was expected, not {value}")


def to_matrix(value: Value) -> Matrix:
    """Read a matrix; the type checker keeps scalars out."""
    if isinstance(value, Matrix):
        return value
    raise TypeError(f"a matrix was expected, not {value}")


def magnitude(ball: arb) -> float:
    """Return an upper bound of |ball|, infinite where nothing is known."""
    return sc.upper(abs(ball)) if ball.is_finite() else float("inf")


def raised(scale: float, degree: float) -> float:
    """Return scale^degree, infinite where that is too large for a float.

    Example:
        >>> raised(2.0, 3), raised(1e200, 2)
        (8.0, inf)
    """
    try:
        return float(scale**degree)
    except OverflowError:
        return float("inf")


def _both_scalars(left: Value, right: Value) -> bool:
    return isinstance(left, Scalar) or isinstance(right, Scalar)


def negate(value: Value) -> Value:
    """Return -value."""
    if isinstance(value, Scalar):
        return Scalar(-value.ball, value.scale)
    matrix = to_matrix(value)
    return Matrix(ct.negate(matrix.ball), matrix.scale, matrix.rank)


def transpose(value: Value) -> Value:
    """Return value'."""
    matrix = to_matrix(value)
    return Matrix(ct.transpose(matrix.ball), matrix.scale, matrix.rank, matrix.gram)


def add(left: Value, right: Value, notes: Notes) -> Value:
    """Return left + right."""
    if _both_scalars(left, right):
        a, b = to_scalar(left), to_scalar(right)
        return Scalar(a.ball + b.ball, a.scale + b.scale)
    x, y = to_matrix(left), to_matrix(right)
    return Matrix(ct.add(x.ball, y.ball), x.scale + y.scale, x.most + y.most, x.gram and y.gram)


def subtract(left: Value, right: Value, notes: Notes) -> Value:
    """Return left - right."""
    if _both_scalars(left, right):
        a, b = to_scalar(left), to_scalar(right)
        return Scalar(a.ball - b.ball, a.scale + b.scale)
    x, y = to_matrix(left), to_matrix(right)
    return Matrix(ct.subtract(x.ball, y.ball), x.scale + y.scale, x.most + y.most)


def multiply(left: Value, right: Value, notes: Notes) -> Value:
    """Return left * right: a product of scalars, a scaled matrix, or a matrix product."""
    if isinstance(left, Scalar) and isinstance(right, Scalar):
        return Scalar(ct.multiply(left.ball, right.ball), left.scale * right.scale)
    if isinstance(left, Scalar):
        matrix = to_matrix(right)
        gram = matrix.gram and bool(left.ball >= 0)
        return Matrix(ct.scale(left.ball, matrix.ball), left.scale * matrix.scale, matrix.rank, gram)
    if isinstance(right, Scalar):
        return multiply(right, left, notes)
    x, y = to_matrix(left), to_matrix(right)
    if x.ball.shape[1] != y.ball.shape[0]:
        # A 1 x 1 factor stands for a scalar, as the type checker allows.
        if tuple(x.ball.shape) == (1, 1):
            return multiply(to_scalar(x), y, notes)
        return multiply(x, to_scalar(y), notes)
    if isinstance(x.ball, ct.Ball) and isinstance(y.ball, ct.Ball):
        require_room(x.ball.shape[0], y.ball.shape[1], "A product")
    return Matrix(ct.matmul(x.ball, y.ball), x.scale * y.scale, min(x.most, y.most))


def divide(left: Value, right: Value, notes: Notes) -> Value:
    """Return left / right for a scalar divisor; a divisor that may be zero is noted."""
    divisor = to_scalar(right)
    if not divisor.ball.is_finite() or divisor.ball.contains(0):
        certain = divisor.ball.is_finite() and divisor.ball == 0
        notes.undefined("a division by zero" if certain else "a divisor whose ball contains zero", certain=certain)
        unknown = Scalar(arb("nan"), float("inf"))
        if isinstance(left, Scalar):
            return unknown
        return multiply(unknown, left, notes)
    size = magnitude(divisor.ball)
    scale = max(1.0, divisor.scale / size) / size
    if isinstance(left, Scalar):  # at once, so that 35/7 is 5 without an error
        return Scalar(ct.divide(left.ball, divisor.ball), left.scale * scale)
    return multiply(Scalar(ct.divide(arb(1), divisor.ball), scale), left, notes)


def power(left: Value, right: Value, notes: Notes) -> Value:
    """Return left ^ right: scalars, or a square matrix to an integer power."""
    exponent = to_scalar(right)
    whole = exponent.ball.unique_fmpz() if exponent.ball.is_exact() else None
    if isinstance(left, Matrix) and (whole is not None or tuple(left.ball.shape) != (1, 1)):
        return _matrix_power(left, int(float(exponent.ball.mid())), notes)
    base = to_scalar(left)
    value = ct.power(base.ball, exponent.ball)
    if not value.is_finite():
        fractional = exponent.ball.is_finite() and not exponent.ball.contains_integer()
        certain = base.ball.is_finite() and bool(base.ball == 0 or (base.ball < 0 and fractional))
        shown = f"{base.ball.str(6)}^({exponent.ball.str(6, radius=False)})"
        notes.undefined(f"a power that is not defined, {shown}", certain=certain)
        return Scalar(value, float("inf"))
    top = magnitude(base.ball)
    ratio = base.scale / top if top > 0 else 1.0
    degree = float(exponent.ball.mid())
    scale = raised(base.scale, degree) if degree >= 0 and base.scale > 0 else magnitude(value) * max(1.0, ratio)
    return Scalar(value, max(scale, magnitude(value)))


def _matrix_power(base: Matrix, degree: int, notes: Notes) -> Matrix:
    if abs(degree) > MAX_MATRIX_POWER:  # of a step; the type checker has seen to the others
        raise LimitError(f"A matrix power goes from -{MAX_MATRIX_POWER} to {MAX_MATRIX_POWER}. Got {degree}.")
    if degree < 0:
        return _matrix_power(inverse(base, notes), -degree, notes)
    order = base.ball.shape[0]
    result = Matrix(ct.identity(order, dtype=base.ball.dtype, device=base.ball.device), float(order) ** 0.5)
    for _ in range(degree):
        result = Matrix(ct.matmul(result.ball, base.ball), result.scale * base.scale)
    return result


def inverse(value: Matrix, notes: Notes) -> Matrix:
    """Return the inverse; a matrix that is not provably invertible is noted."""
    result = ct.inverse(value.ball)
    if not result.radius < float("inf"):
        singular = value.is_deficient or (value.ball.radius == 0 and bool(ct.sigma_min(value.ball) == 0))
        what = "an inverse of a singular matrix" if singular else "an inverse that cannot be bounded"
        notes.undefined(what, certain=singular)
        return Matrix(result, float("inf"))
    return Matrix(result, sc.upper(ct.frobenius(result)))
