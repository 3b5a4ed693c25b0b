"""The functions of the language in exact arithmetic: of fractions and algebraic numbers, and of matrices of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flint import fmpq

from ntk_deq.certified import algebraic as al
from ntk_deq.certified import algebraic_matrix as am
from ntk_deq.certified.algebraic import Number, UndecidedError, UndefinedError, sign
from ntk_deq.certified.algebraic_matrix import ExactMatrix
from ntk_deq.evaluation.functions.entrywise import TWINS
from ntk_deq.evaluation.functions.matrices import MATRIX_TWINS

Value = Number | ExactMatrix


def is_plain(value: Value) -> bool:
    """Whether a value is a number, or a 1 x 1 matrix, which is read as one."""
    return not isinstance(value, ExactMatrix) or value.shape == (1, 1)


def scalar(value: Value) -> Number:
    """Read a number, or a 1 x 1 matrix as one."""
    if isinstance(value, ExactMatrix):
        if value.shape != (1, 1):
            raise TypeError(f"a scalar was expected, not a matrix of shape {value.shape}")
        return value.entries[0]
    return value


def as_matrix(value: Value) -> ExactMatrix:
    """Read a number as a 1 x 1 matrix."""
    return value if isinstance(value, ExactMatrix) else ExactMatrix(1, 1, [value])


Arguments = Sequence[Value]


def _entrywise(function: Callable[[Number], Number]) -> Callable[[Arguments], Value]:
    def handler(args: Arguments) -> Value:
        value = args[0]
        return value.mapped(function) if isinstance(value, ExactMatrix) else function(value)

    return handler


def _of_matrix(function: Callable[[ExactMatrix], Value]) -> Callable[[Arguments], Value]:
    return lambda args: function(as_matrix(args[0]))


def largest(numbers: Sequence[Number]) -> Number:
    """Return the largest of some numbers."""
    best = numbers[0]
    for number in numbers[1:]:
        best = number if sign(number - best) > 0 else best
    return best


def _extreme(which: int) -> Callable[[Arguments], Value]:
    def handler(args: Arguments) -> Value:
        numbers = list(as_matrix(args[0]).entries) if len(args) == 1 else [scalar(arg) for arg in args]
        return _signed(largest([_signed(number, which) for number in numbers]), which)

    return handler


def _signed(number: Number, which: int) -> Number:
    return number if which > 0 else -number


def _norm(matrix: ExactMatrix) -> Number:
    if matrix.shape == (1, 1):
        return al.absolute(matrix.entries[0])
    if 1 in matrix.shape:
        return _frobenius(matrix)
    return al.root(am.singular_squares(matrix)[1], 2)


def _sigma_min(matrix: ExactMatrix) -> Number:
    return _norm(matrix) if 1 in matrix.shape else al.root(am.singular_squares(matrix)[0], 2)


def _condition(matrix: ExactMatrix) -> Number:
    smallest = _sigma_min(matrix)
    if sign(smallest) == 0:
        raise UndefinedError("a condition number of a singular matrix")
    return _norm(matrix) * al.inverse(smallest)


def _frobenius(matrix: ExactMatrix) -> Number:
    return al.root(am.total([entry * entry for entry in matrix.entries]), 2)


def _largest_row(matrix: ExactMatrix) -> Number:
    rows, columns = matrix.shape
    return largest([am.total([al.absolute(matrix[i, j]) for j in range(columns)]) for i in range(rows)])


def _diagonal(matrix: ExactMatrix) -> ExactMatrix:
    rows, columns = matrix.shape
    if columns == 1:
        return ExactMatrix.built(rows, rows, lambda i, j: matrix[i, 0] if i == j else fmpq(0))
    return ExactMatrix(rows, 1, [matrix[i, i] for i in range(rows)])


def _stacked(matrix: ExactMatrix) -> ExactMatrix:
    return ExactMatrix(len(matrix.entries), 1, matrix.transposed.entries)


def _size(value: Value) -> int:
    number = scalar(value)
    if not isinstance(number, fmpq):
        raise UndecidedError("an irrational size")
    return int(number.p)


def _filled(number: int) -> Callable[[Arguments], Value]:
    def handler(args: Arguments) -> Value:
        rows, columns = _size(args[0]), _size(args[1]) if len(args) > 1 else 1
        return ExactMatrix.built(*_room(rows, columns), lambda i, j: fmpq(number))

    return handler


def _identity(args: Arguments) -> Value:
    return ExactMatrix.identity(_room(_size(args[0]), _size(args[0]))[0])


def _commutation(args: Arguments) -> Value:
    n, m = _size(args[0]), _size(args[-1])
    # K vec(A) = vec(A') for A of shape n x m: entry i + n j of vec(A) goes to place j + m i.
    _room(n * m, n * m)
    return ExactMatrix.built(n * m, n * m, lambda row, col: fmpq(int(row == col // n + m * (col % n))))


def _room(rows: int, columns: int) -> tuple[int, int]:
    if rows * columns > am.MOST_ENTRIES:
        raise UndecidedError(f"a matrix of more than {am.MOST_ENTRIES} entries")
    return rows, columns


FUNCTIONS: dict[str, Callable[[Arguments], Value]] = {
    **{name: _entrywise(twin.exact) for name, twin in TWINS.items() if twin.exact is not None},
    **{name: twin.exact for name, twin in MATRIX_TWINS.items() if twin.exact is not None},
    "I": _identity,
    "commutation": _commutation,
    "cond": _of_matrix(_condition),
    "det": _of_matrix(am.determinant),
    "diag": _of_matrix(_diagonal),
    "dot": lambda args: scalar(_stacked(as_matrix(args[0])).transposed @ _stacked(as_matrix(args[1]))),
    "fro": _of_matrix(_frobenius),
    "hadamard": lambda args: as_matrix(args[0]).combined(as_matrix(args[1]), lambda a, b: a * b),
    "inv": _of_matrix(am.inverse_matrix),
    "kron": lambda args: am.kronecker(as_matrix(args[0]), as_matrix(args[1])),
    "lambda_max": _of_matrix(lambda matrix: am.real_parts(matrix)[1]),
    "lambda_min": _of_matrix(lambda matrix: am.real_parts(matrix)[0]),
    "max": _extreme(1),
    "min": _extreme(-1),
    "norm": _of_matrix(_norm),
    "norm1": _of_matrix(lambda matrix: _largest_row(matrix.transposed)),
    "norminf": _of_matrix(_largest_row),
    "ones": _filled(1),
    "rho": _of_matrix(am.spectral_radius),
    "sigma_max": _of_matrix(_norm),
    "sigma_min": _of_matrix(_sigma_min),
    "sum": _of_matrix(lambda matrix: am.total(matrix.entries)),
    "trace": _of_matrix(am.trace),
    "vec": _of_matrix(_stacked),
    "zeros": _filled(0),
}
"""Every function that has an exact value somewhere."""
