"""Sums, multiples, entrywise maps and rearrangements of precise matrices; norms, determinants and inverses."""

from __future__ import annotations

from collections.abc import Iterable

from flint import arb, arb_mat, fmpq, fmpq_mat

from ntk_deq.certified.arithmetic import OPERATORS, EntryComparison
from ntk_deq.certified.dense import first_reason, require_one_shape, require_square
from ntk_deq.certified.functions import absolute_value, maximum, minimum, multiply, square_root
from ntk_deq.certified.precise.matrix import (
    PreciseMatrix,
    from_rows,
    guarded,
    no_information,
    require_size,
    whole_matrix,
)
from ntk_deq.certified.scalar import dyadic, from_bounds, is_true, nan
from ntk_deq.errors import ArgumentError


def as_scalar(a: PreciseMatrix) -> arb:
    """Return the scalar ball of a 1 x 1 matrix.

    Raises:
        ArgumentError: The matrix has another shape.
    """
    if a.shape != (1, 1):
        raise ArgumentError(f"`a` of as_scalar must be 1 x 1. Got {a.shape[0]} x {a.shape[1]}.")
    return a.flat[0] if a.is_finite else nan()


def add(a: PreciseMatrix, b: PreciseMatrix) -> PreciseMatrix:
    """Return a + b.

    Raises:
        ArgumentError: The shapes differ.
    """
    require_one_shape("add", a, b)
    return PreciseMatrix(a.entries + b.entries, first_reason(a, b))


def subtract(a: PreciseMatrix, b: PreciseMatrix) -> PreciseMatrix:
    """Return a - b.

    Raises:
        ArgumentError: The shapes differ.
    """
    require_one_shape("subtract", a, b)
    return PreciseMatrix(a.entries - b.entries, first_reason(a, b))


def negate(a: PreciseMatrix) -> PreciseMatrix:
    """Return -a."""
    return PreciseMatrix(-a.entries, a.reason)


def scale(factor: arb, a: PreciseMatrix) -> PreciseMatrix:
    """Return factor * a."""
    reason = a.reason if factor.is_finite() else a.reason or "a scalar factor has no information"
    return PreciseMatrix(a.entries * factor, reason)


def hadamard(a: PreciseMatrix, b: PreciseMatrix) -> PreciseMatrix:
    """Return the elementwise product; nonnegative where both factors are.

    Raises:
        ArgumentError: The shapes differ.
    """
    require_one_shape("hadamard", a, b)
    products = [multiply(x, y) for x, y in zip(a.flat, b.flat, strict=True)]
    return from_rows(*a.shape, products, first_reason(a, b))


def matmul(a: PreciseMatrix, b: PreciseMatrix) -> PreciseMatrix:
    """Return the matrix product.

    Raises:
        ArgumentError: The inner sizes differ.
    """
    if a.shape[1] != b.shape[0]:
        raise ArgumentError(
            f"`b` of matmul must have as many rows as `a` has columns, {a.shape[1]}. Got {b.shape[0]} x {b.shape[1]}."
        )
    require_size(a.shape[0], b.shape[1])
    return PreciseMatrix(a.entries * b.entries, first_reason(a, b))


def kron(a: PreciseMatrix, b: PreciseMatrix) -> PreciseMatrix:
    """Return the Kronecker product: block (i, j) is a[i, j] b.

    Raises:
        LimitError: It would have too many entries.
    """
    rows, cols = a.shape[0] * b.shape[0], a.shape[1] * b.shape[1]
    require_size(rows, cols)
    products = [x * y for above in a.rows() for below in b.rows() for x in above for y in below]
    return from_rows(rows, cols, products, first_reason(a, b))


def transpose(a: PreciseMatrix) -> PreciseMatrix:
    """Return the transpose."""
    return PreciseMatrix(a.entries.transpose(), a.reason)


def vec(a: PreciseMatrix) -> PreciseMatrix:
    """Return the columns stacked into one column."""
    return from_rows(len(a.flat), 1, a.entries.transpose().entries(), a.reason)


def block(a: PreciseMatrix, top: int, bottom: int, left: int, right: int) -> PreciseMatrix:
    """Return the rows `top` to `bottom` and columns `left` to `right`, counted from 0, the ends excluded."""
    found = [entry for row in a.rows()[top:bottom] for entry in row[left:right]]
    return from_rows(bottom - top, right - left, found, a.reason)


def beside(*blocks: PreciseMatrix) -> PreciseMatrix:
    """Return matrices of as many rows side by side."""
    rows = zip(*(b.rows() for b in blocks), strict=True)
    found = [entry for parts in rows for part in parts for entry in part]
    return from_rows(blocks[0].shape[0], sum(b.shape[1] for b in blocks), found, first_reason(*blocks))


def above(*blocks: PreciseMatrix) -> PreciseMatrix:
    """Return matrices of as many columns one above the other."""
    found = [entry for b in blocks for entry in b.flat]
    return from_rows(sum(b.shape[0] for b in blocks), blocks[0].shape[1], found, first_reason(*blocks))


def diag(a: PreciseMatrix) -> PreciseMatrix:
    """Return the diagonal matrix of a column, or the diagonal of a square matrix as a column.

    Raises:
        ArgumentError: Neither one column nor square.
    """
    rows, cols = a.shape
    if cols == 1:
        require_size(rows, rows)
        filled = [a.flat[i] if i == j else arb(0) for i in range(rows) for j in range(rows)]
        return from_rows(rows, rows, filled, a.reason)
    if rows == cols:
        return from_rows(rows, 1, a.flat[:: rows + 1], a.reason)
    raise ArgumentError(f"`a` of diag must be one column or a square matrix. Got {rows} x {cols}.")


def relu(a: PreciseMatrix) -> PreciseMatrix:
    """Return max(a, 0) entrywise."""
    zero = arb(0)
    return from_rows(*a.shape, [maximum(entry, zero) for entry in a.flat], a.reason)


def absolute(a: PreciseMatrix) -> PreciseMatrix:
    """Return |a| entrywise."""
    return from_rows(*a.shape, [absolute_value(entry) for entry in a.flat], a.reason)


def _step(entry: arb) -> arb:
    if not entry.is_finite():
        return nan()
    if entry > 0:
        return arb(1)
    return arb(0) if entry <= 0 else from_bounds(0.0, 1.0)


def step(a: PreciseMatrix) -> PreciseMatrix:
    """Return 1 where an entry is positive, 0 where it is not, and [0, 1] where its ball does not decide."""
    return from_rows(*a.shape, [_step(entry) for entry in a.flat], a.reason)


def entry_max(a: PreciseMatrix) -> arb:
    """Return the largest entry."""
    return maximum(*a.flat)


def entry_min(a: PreciseMatrix) -> arb:
    """Return the smallest entry."""
    return minimum(*a.flat)


def compare_entries(op: str, a: PreciseMatrix, b: PreciseMatrix) -> EntryComparison:
    """Compare two matrices entry by entry, as the dense function of that name does.

    Raises:
        ArgumentError: `op` is no comparison sign, or the shapes differ.
    """
    if op not in OPERATORS:
        raise ArgumentError(f"`op` of compare_entries must be one of {' '.join(OPERATORS)}. Got {op!r}.")
    require_one_shape("compare_entries", a, b)
    if not (a.is_finite and b.is_finite):
        return EntryComparison(False, False, nan())
    pairs = list(zip(a.flat, b.flat, strict=True))
    if op in ("==", "!="):
        size = maximum(*(absolute_value(x - y) for x, y in pairs))
        equal = all(is_true("==", x, y) is True for x, y in pairs)
        differ = any(is_true("!=", x, y) is True for x, y in pairs)
        return EntryComparison(equal, differ, -size) if op == "==" else EntryComparison(differ, equal, size)
    answers = [is_true(op, x, y) for x, y in pairs]
    margin = minimum(*(y - x if op in ("<=", "<") else x - y for x, y in pairs))
    return EntryComparison(all(answer is True for answer in answers), False in answers, margin)


EXACT_ORDER = 16
"""Up to this order inverses and determinants of exact matrices are rational: about 5 ms for random doubles."""

_SINGULAR = "the matrix is singular"
_UNPROVED = "invertibility is not certain"


def total(values: Iterable[arb]) -> arb:
    """Return a sum that is exact where the terms are and their magnitudes are not worlds apart."""
    with guarded(4, 64):
        return sum(values, arb(0))


def frobenius(a: PreciseMatrix) -> arb:
    """Return the Frobenius norm, for a vector the Euclidean norm; with lower end >= 0."""
    if not a.is_finite:
        return nan()
    with guarded(4, 64):
        squares = sum((entry * entry for entry in map(absolute_value, a.flat)), arb(0))
    return square_root(squares)


def size_up(a: PreciseMatrix) -> arb:
    """Return an exact upper bound of the spectral norm of every matrix in a ball; no information without one."""
    if not a.is_finite:
        return nan()
    product = norm1(a).upper() * norminf(a).upper()
    return minimum(square_root(product).upper(), frobenius(a).upper()).upper()


def norm1(a: PreciseMatrix) -> arb:
    """Return the one-norm, the largest absolute column sum."""
    if not a.is_finite:
        return nan()
    columns = a.entries.transpose().tolist()
    return maximum(*(total(map(absolute_value, column)) for column in columns))


def norminf(a: PreciseMatrix) -> arb:
    """Return the infinity-norm, the largest absolute row sum."""
    if not a.is_finite:
        return nan()
    return maximum(*(total(map(absolute_value, row)) for row in a.rows()))


def entry_sum(a: PreciseMatrix) -> arb:
    """Return the sum of the entries."""
    return total(a.flat)


def trace(a: PreciseMatrix) -> arb:
    """Return the sum of the diagonal.

    Raises:
        ArgumentError: The matrix is not square.
    """
    order = require_square("trace", a)
    return total(a.flat[:: order + 1])


def _rational(a: PreciseMatrix) -> fmpq_mat | None:
    """Return a small exact matrix as rationals, or None."""
    whole = whole_matrix(a) if a.is_exact and max(a.shape) <= EXACT_ORDER else None
    if whole is None:
        return None
    numbers, exponent = whole
    return fmpq_mat(numbers) * fmpq(2) ** exponent


def determinant(a: PreciseMatrix) -> arb:
    """Return the determinant; without any error for small exact matrices.

    Raises:
        ArgumentError: The matrix is not square.
    """
    order = require_square("determinant", a)
    if not a.is_finite:
        return nan()
    whole = whole_matrix(a) if a.is_exact and order <= EXACT_ORDER else None
    return dyadic(int(whole[0].det()), order * whole[1]) if whole is not None else a.entries.det()


def inverse(a: PreciseMatrix) -> PreciseMatrix:
    """Return the inverse; small exact matrices are inverted in rationals, each entry rounded once.

    Raises:
        ArgumentError: The matrix is not square.
    """
    order = require_square("inverse", a)
    if not a.is_finite:
        return no_information(order, order, a.reason or "an entry is not known")
    rational = _rational(a)
    try:
        found = arb_mat(rational.inv()) if rational is not None else a.entries.inv()
    except ZeroDivisionError:
        return no_information(order, order, _SINGULAR if rational is not None else _UNPROVED)
    return PreciseMatrix(found)
