"""Norms, sums, determinants and linear systems of precise matrices."""

from __future__ import annotations

from collections.abc import Iterable

from flint import arb, arb_mat, fmpq, fmpq_mat

from ntk_deq.certified.ball import require_square
from ntk_deq.certified.functions import absolute_value, maximum, minimum, square_root
from ntk_deq.certified.norms import dyadic
from ntk_deq.certified.precise.matrix import PreciseMatrix, first_reason, guarded, no_information, whole_matrix
from ntk_deq.certified.scalar import nan
from ntk_deq.errors import ArgumentError

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
    unit = fmpq(1 << exponent) if exponent >= 0 else fmpq(1, 1 << -exponent)
    return fmpq_mat(numbers) * unit


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


def solve(a: PreciseMatrix, b: PreciseMatrix) -> PreciseMatrix:
    """Return the solution X of a X = b; in rationals where both are small and exact.

    Raises:
        ArgumentError: `a` is not square, or the rows differ.
    """
    order = require_square("solve", a)
    if b.shape[0] != order:
        raise ArgumentError(f"`b` of solve must have {order} rows. Got {b.shape[0]} x {b.shape[1]}.")
    if not (a.is_finite and b.is_finite):
        return no_information(order, b.shape[1], first_reason(a, b) or "an entry is not known")
    left, right = _rational(a), _rational(b)
    try:
        if left is not None and right is not None:
            found = arb_mat(left.solve(right))
        else:
            found = a.entries.solve(b.entries)
    except ZeroDivisionError:
        return no_information(order, b.shape[1], _UNPROVED if left is None else _SINGULAR)
    return PreciseMatrix(found)
