"""Singular values and symmetric eigenvalues of precise matrices."""

from __future__ import annotations

from flint import arb, arb_mat, fmpz_mat

from ntk_deq.certified.ball import require_square
from ntk_deq.certified.functions import absolute_value, square_root
from ntk_deq.certified.norms import dyadic
from ntk_deq.certified.precise.matrix import PreciseMatrix, guarded, whole_matrix
from ntk_deq.certified.precise.sums import frobenius, size_up
from ntk_deq.certified.precise.symmetric import symmetric_values
from ntk_deq.certified.scalar import from_bounds, nan

_RANK_ORDER = 40
"""Up to this order the rank of an exact matrix is computed in whole numbers: about 50 ms for random doubles."""


def middle(a: PreciseMatrix) -> PreciseMatrix:
    """Return the matrix of the midpoints.

    Example:
        >>> middle(PreciseMatrix(arb_mat([[arb(1, 0.5)]]))).is_exact
        True
    """
    return PreciseMatrix(a.entries.mid())


def spread(a: PreciseMatrix) -> arb:
    """Return an exact upper bound of the spectral distance of every matrix in a ball from the midpoints."""
    if a.is_exact:
        return arb(0)
    return size_up(PreciseMatrix(arb_mat(*a.shape, [entry.rad() for entry in a.flat])))


def widened(value: arb, radius: arb) -> arb:
    """Return value +/- radius, where the radius is an exact number >= 0 or unknown.

    Example:
        >>> widened(arb(1), arb(0)).is_exact()
        True
    """
    if not radius.is_finite():
        return nan()
    return value if radius == 0 else value + arb(0, radius)


def nonnegative(value: arb) -> arb:
    """Return a ball of a quantity that cannot be negative, cut at zero."""
    return value if not value.is_finite() or value >= 0 else from_bounds(0.0, value.upper())


def mirrored(a: PreciseMatrix) -> arb_mat:
    """Return a matrix whose truth is symmetric with the entries below the diagonal also above it."""
    rows = a.rows()
    order = len(rows)
    return arb_mat(order, order, [rows[max(i, j)][min(i, j)] for i in range(order) for j in range(order)])


def is_triangular(a: PreciseMatrix) -> bool:
    """Return whether a square matrix is certainly upper or lower triangular."""
    rows = a.rows()
    pairs = [(i, j) for i in range(len(rows)) for j in range(i)]
    return all(rows[i][j] == 0 for i, j in pairs) or all(rows[j][i] == 0 for i, j in pairs)


def _is_monomial(rows: list[list[arb]]) -> bool:
    return all(sum(x != 0 for x in line) <= 1 for lines in (rows, zip(*rows, strict=True)) for line in lines)


def _rank(a: PreciseMatrix) -> int | None:
    """Return the rank of an exact matrix, or None where it would take long."""
    whole = whole_matrix(a) if a.is_exact and max(a.shape) <= _RANK_ORDER else None
    return None if whole is None else int(whole[0].rank())


def _recognised(a: PreciseMatrix, values: list[arb]) -> list[arb]:
    """Replace eigenvalues of an exact symmetric matrix by exact numbers where they are rational.

    With a = 2^e M in whole numbers a rational eigenvalue is k 2^e for a whole k (Gauss), and n - rank(M - k I) of them
    equal that. Every one of these lies in a ball that contains it: where there are just so many such balls, each is it.
    """
    order = a.shape[0]
    whole = whole_matrix(a) if a.is_exact and order <= _RANK_ORDER else None
    if whole is None:
        return values
    numbers, exponent = whole
    near: dict[int, list[int]] = {}
    for i, value in enumerate(values):
        found = (value * dyadic(1, -exponent)).unique_fmpz() if value.is_finite() else None
        if found is not None:
            near.setdefault(int(found), []).append(i)
    result = list(values)
    for number, places in near.items():
        shift = fmpz_mat(order, order, [number * (i == j) for i in range(order) for j in range(order)])
        if order - (numbers - shift).rank() == len(places):
            for i in places:
                result[i] = dyadic(number, exponent)
    return result


def _centre_values(a: PreciseMatrix) -> list[arb]:
    """Return the singular values of an exact matrix, sorted downwards, from the eigenvalues of its Gram matrix.

    Squaring halves the digits of the small ones, so it is done with twice the bits.
    """
    rows = a.rows()
    count = min(a.shape)
    if _is_monomial(rows):
        return sorted(map(absolute_value, a.flat), reverse=True)[:count]
    with guarded(2, 64):
        entries = a.entries if a.shape[0] >= a.shape[1] else a.entries.transpose()
        gram = PreciseMatrix(mirrored(PreciseMatrix(entries.transpose() * entries)))
        if gram.is_exact and _is_monomial(gram.rows()):
            values, error = sorted(gram.flat[:: count + 1]), arb(0)
        else:
            values, error = symmetric_values(gram.entries.mid())
            error = error + spread(gram)
        if not error.is_finite():
            return [from_bounds(0.0, frobenius(a))] * count
        squares = _recognised(gram, [widened(value, error.upper()) for value in values])
        return [nonnegative(square_root(value)) for value in reversed(squares)]


def singular_values(a: PreciseMatrix) -> tuple[arb, ...]:
    """Return the singular values, largest first; a ball's radii are added by Weyl's inequality.

    Args:
        a: rows x cols.

    Returns:
        min(rows, cols) balls with lower ends >= 0; exact for monomial matrices, zero where a small exact matrix is
        singular, and of a rational square where a small exact matrix has such: 3 exactly, sqrt(2) rounded once.

    Example:
        >>> [bool(value == 2) for value in singular_values(PreciseMatrix(arb_mat([[0, 2], [2, 0]])))]
        [True, True]
    """
    count = min(a.shape)
    if not a.is_finite:
        return (nan(),) * count
    if count == 1:
        return (frobenius(a),)
    values = _centre_values(middle(a))
    rank = _rank(a) if not values[-1] > 0 else None
    if rank is not None:
        values = values[:rank] + [arb(0)] * (count - rank)
    radius = spread(a)
    return tuple(nonnegative(widened(value, radius)) for value in values)


def sigma_max(a: PreciseMatrix) -> arb:
    """Return the largest singular value."""
    return singular_values(a)[0]


def sigma_min(a: PreciseMatrix) -> arb:
    """Return the smallest of the min(rows, cols) singular values."""
    return singular_values(a)[-1]


def spectral_norm(a: PreciseMatrix) -> arb:
    """Return the spectral norm; for a vector the Euclidean norm."""
    return sigma_max(a)


def symmetric_part(a: PreciseMatrix) -> PreciseMatrix:
    """Return (a + a')/2."""
    return PreciseMatrix((a.entries + a.entries.transpose()) * arb(0.5))


def eigenvalues_symmetric(a: PreciseMatrix) -> tuple[arb, ...]:
    """Return the eigenvalues of a matrix whose truth is symmetric, smallest first.

    Args:
        a: n x n; the caller vouches that the true matrix is symmetric.

    Returns:
        n balls; exact for exact triangular matrices, and where an eigenvalue of a small exact matrix is rational.

    Raises:
        ArgumentError: The matrix is not square.

    Example:
        >>> bool(eigenvalues_symmetric(PreciseMatrix(arb_mat([[1, 1], [1, 1]])))[0] == 0)
        True
    """
    order = require_square("eigenvalues_symmetric", a)
    if not a.is_finite:
        return (nan(),) * order
    if a.is_exact and is_triangular(a):
        return tuple(sorted(a.flat[:: order + 1]))
    half = symmetric_part(a)  # the truth lies in a and in a', hence in their mean
    values, error = symmetric_values(mirrored(middle(half)))
    error = error + spread(PreciseMatrix(mirrored(half)))
    if not error.is_finite():
        size = size_up(a)
        return (from_bounds(-size, size),) * order
    return tuple(_recognised(half, [widened(value, error.upper()) for value in values]))
