"""Small matrices of real algebraic numbers, and their spectra as algebraic numbers.

The eigenvalues of a rational matrix are roots of the characteristic polynomial of a whole one over a whole number.
What is no eigenvalue itself is one of a larger matrix: the modulus squared of an eigenvalue is one of A (x) A, and
twice its real part one of A (x) I + I (x) A. Matrices with irrational entries have spectra here up to order two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from flint import fmpq, fmpq_mat

from ntk_deq.certified.algebraic import Number, UndecidedError, UndefinedError, inverse, real_roots, root, sign

MOST_ORDER = 16
"""Largest order of a matrix whose characteristic polynomial is computed."""

MOST_ENTRIES = 256
"""Entries of the largest matrix."""


class ExactMatrix:
    """A matrix of exact numbers.

    Attributes:
        shape: Rows and columns.
        entries: All entries, row after row.
    """

    def __init__(self, rows: int, columns: int, entries: Sequence[Number]) -> None:
        if rows * columns > MOST_ENTRIES:
            raise UndecidedError(f"a matrix of more than {MOST_ENTRIES} entries")
        self.shape = (rows, columns)
        self.entries = tuple(entries)

    @classmethod
    def built(cls, rows: int, columns: int, entry: Callable[[int, int], Number]) -> ExactMatrix:
        """Return the matrix with the entries that a function gives."""
        return cls(rows, columns, [entry(i, j) for i in range(rows) for j in range(columns)])

    @classmethod
    def identity(cls, order: int) -> ExactMatrix:
        """Return an identity matrix."""
        return cls.built(order, order, lambda i, j: fmpq(int(i == j)))

    def __getitem__(self, place: tuple[int, int]) -> Number:
        return self.entries[place[0] * self.shape[1] + place[1]]

    @cached_property
    def rational(self) -> fmpq_mat | None:
        """The matrix over the rationals, where all entries are."""
        entries = [entry for entry in self.entries if isinstance(entry, fmpq)]
        return fmpq_mat(*self.shape, entries) if len(entries) == len(self.entries) else None

    @property
    def transposed(self) -> ExactMatrix:
        """The transpose."""
        return ExactMatrix.built(self.shape[1], self.shape[0], lambda i, j: self[j, i])

    def mapped(self, function: Callable[[Number], Number]) -> ExactMatrix:
        """Return the matrix with a function applied to every entry."""
        return ExactMatrix(*self.shape, [function(entry) for entry in self.entries])

    def combined(self, other: ExactMatrix, function: Callable[[Number, Number], Number]) -> ExactMatrix:
        """Return the matrix of a function of the entries of this one and of another of its shape."""
        return ExactMatrix(*self.shape, [function(a, b) for a, b in zip(self.entries, other.entries, strict=True)])

    def __matmul__(self, other: ExactMatrix) -> ExactMatrix:
        left, right = self.rational, other.rational
        if left is not None and right is not None:
            return _from_rational(left * right)
        inner = range(self.shape[1])
        return ExactMatrix.built(
            self.shape[0], other.shape[1], lambda i, j: total([self[i, k] * other[k, j] for k in inner])
        )


def total(numbers: Sequence[Number]) -> Number:
    """Return the sum, added up by halves so that the formula stays shallow."""
    if len(numbers) < 2:
        return numbers[0] if numbers else fmpq(0)
    middle = len(numbers) // 2
    return total(numbers[:middle]) + total(numbers[middle:])


def _from_rational(matrix: fmpq_mat) -> ExactMatrix:
    return ExactMatrix(matrix.nrows(), matrix.ncols(), matrix.entries())


def kronecker(a: ExactMatrix, b: ExactMatrix) -> ExactMatrix:
    """Return the Kronecker product."""
    (m, n), (p, q) = a.shape, b.shape
    if m * n * p * q > MOST_ENTRIES:
        raise UndecidedError(f"a matrix of more than {MOST_ENTRIES} entries")
    return ExactMatrix.built(m * p, n * q, lambda i, j: a[i // p, j // q] * b[i % p, j % q])


def trace(matrix: ExactMatrix) -> Number:
    """Return the sum of the diagonal."""
    return total([matrix[i, i] for i in range(matrix.shape[0])])


def determinant(matrix: ExactMatrix) -> Number:
    """Return the determinant.

    Raises:
        UndecidedError: An irrational matrix of an order beyond three.
    """
    rational = matrix.rational
    if rational is not None:
        return rational.det()
    order = matrix.shape[0]
    if order > 3:
        raise UndecidedError("a determinant of irrational numbers of an order beyond three")
    if order == 1:
        return matrix[0, 0]
    return total([matrix[0, j] * _cofactor(matrix, 0, j) for j in range(order)])


def _cofactor(matrix: ExactMatrix, row: int, column: int) -> Number:
    order = matrix.shape[0]
    rows, columns = ([k for k in range(order) if k != place] for place in (row, column))
    minor = ExactMatrix.built(order - 1, order - 1, lambda i, j: matrix[rows[i], columns[j]])
    value: Number = determinant(minor) if order > 1 else fmpq(1)
    return -value if (row + column) % 2 else value


def inverse_matrix(matrix: ExactMatrix) -> ExactMatrix:
    """Return the inverse.

    Raises:
        UndefinedError: The matrix is singular.
        UndecidedError: An irrational matrix of an order beyond three.
    """
    value = determinant(matrix)
    if sign(value) == 0:
        raise UndefinedError("an inverse of a singular matrix")
    rational = matrix.rational
    if rational is not None:
        return _from_rational(rational.inv())
    over, order = inverse(value), matrix.shape[0]
    return ExactMatrix.built(order, order, lambda i, j: _cofactor(matrix, j, i) * over)


def real_eigenvalues(matrix: ExactMatrix) -> list[Number]:
    """Return the real eigenvalues of a rational matrix, each once, ascending.

    Raises:
        UndecidedError: It is too large, or not rational.
    """
    rational = matrix.rational
    if rational is None or matrix.shape[0] > MOST_ORDER:
        raise UndecidedError(f"eigenvalues of an irrational matrix, or of one of an order beyond {MOST_ORDER}")
    whole, below = rational.numer_denom()
    return [number * fmpq(1, below) for number in real_roots(whole.charpoly())]


def singular_squares(matrix: ExactMatrix) -> tuple[Number, Number]:
    """Return the squares of the smallest and the largest of the min(rows, columns) singular values."""
    rows, columns = matrix.shape
    gram = matrix @ matrix.transposed if rows <= columns else matrix.transposed @ matrix
    if gram.rational is None:
        return _ends_of_pair(gram)
    values = real_eigenvalues(gram)
    return values[0], values[-1]


def real_parts(matrix: ExactMatrix) -> tuple[Number, Number]:
    """Return the smallest and the largest real part of an eigenvalue."""
    if matrix.rational is None:
        half = fmpq(1, 2)
        if sign(_discriminant(matrix)) < 0:
            return trace(matrix) * half, trace(matrix) * half
        return _ends_of_pair(matrix)
    if matrix.rational == matrix.rational.transpose() or matrix.shape[0] == 1:
        values = real_eigenvalues(matrix)
        return values[0], values[-1]
    one = ExactMatrix.identity(matrix.shape[0])
    twice = kronecker(matrix, one).combined(kronecker(one, matrix), lambda a, b: a + b)
    values = real_eigenvalues(twice)  # twice a real part is real, and no other real one goes beyond those
    return values[0] * fmpq(1, 2), values[-1] * fmpq(1, 2)


def spectral_radius(matrix: ExactMatrix) -> Number:
    """Return the largest modulus of an eigenvalue."""
    if matrix.rational is None:
        if sign(_discriminant(matrix)) < 0:
            return root(determinant(matrix), 2)
        low, high = _ends_of_pair(matrix)
        return high if sign(low + high) >= 0 else -low
    if matrix.rational == matrix.rational.transpose() or matrix.shape[0] == 1:
        values = real_eigenvalues(matrix)
        return values[-1] if sign(values[0] + values[-1]) >= 0 else -values[0]
    return root(real_eigenvalues(kronecker(matrix, matrix))[-1], 2)


def _discriminant(matrix: ExactMatrix) -> Number:
    order = matrix.shape[0]
    if order > 2:
        raise UndecidedError("eigenvalues of irrational matrices of an order beyond two")
    if order == 1:
        return fmpq(0)
    along = trace(matrix)
    return along * along - fmpq(4) * determinant(matrix)


def _ends_of_pair(matrix: ExactMatrix) -> tuple[Number, Number]:
    """Return the smaller and the larger eigenvalue of a matrix of order two at most whose eigenvalues are real."""
    spread, along = root(_discriminant(matrix), 2), trace(matrix)
    half = fmpq(1, 2)
    if matrix.shape[0] == 1:
        return along, along
    return (along - spread) * half, (along + spread) * half
