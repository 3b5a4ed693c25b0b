"""Matrix balls of arbitrary precision: arb entries, for instances that float64 balls leave undecided.

matrix.py has the ball, arithmetic.py sums, products, norms and inverses, spectra.py singular values and symmetric
eigenvalues. Here: extreme eigenvalues of matrices that need not be symmetric, square roots and pseudoinverses.

With approximate eigenvectors X and a proved inverse, X^-1 A X is similar to A and nearly diagonal: its eigenvalues lie
in Gershgorin's discs, and a component of k discs holds k of them. Where that says little (A is defective or nearly so),
the symmetric part bounds real parts, and norms and traces of high powers bound the spectral radius.
"""

from __future__ import annotations

import flint
from flint import acb_mat, arb, arb_mat, fmpq, fmpq_mat

from ntk_deq.certified.dense import require_square
from ntk_deq.certified.functions import absolute_value, maximum, meet, minimum, square_root
from ntk_deq.certified.inversion import UNCERTAIN_RANK, balance, rational_pinv
from ntk_deq.certified.precise import arithmetic, spectra
from ntk_deq.certified.precise.arithmetic import (
    EXACT_ORDER,
    above,
    beside,
    block,
    frobenius,
    inverse,
    matmul,
    negate,
    size_up,
    subtract,
    trace,
    transpose,
)
from ntk_deq.certified.precise.matrix import (
    MAX_BITS,
    MAX_BITS_TOTAL,
    MAX_ENTRIES,
    MIN_BITS,
    PreciseMatrix,
    adopt,
    as_ball,
    check_bits,
    guarded,
    no_information,
    precise,
    whole_matrix,
    working_precision,
)
from ntk_deq.certified.precise.spectra import (
    connected,
    eigenbasis,
    eigenvalues_symmetric,
    is_triangular,
    middle,
    mirrored,
    symmetric_part,
    symmetric_values,
    unit_matrix,
)
from ntk_deq.certified.scalar import dyadic, exact, from_bounds, nan
from ntk_deq.errors import ArgumentError

__all__ = [
    "MAX_BITS",
    "MAX_BITS_TOTAL",
    "MAX_ENTRIES",
    "MIN_BITS",
    "PreciseMatrix",
    "adopt",
    "arithmetic",
    "as_ball",
    "check_bits",
    "precise",
    "spectra",
    "working_precision",
]


_TRUSTED = 2.0**-20  # wider bounds than this, relative to the matrix's size, are worth a second look
_SQUARINGS = 40  # norm(A^k)^(1/k) for k = 2^40 is within 1e-11 of the spectral radius, and costs 40 products


def _largest(a: PreciseMatrix, *, modulus: bool) -> arb:
    """Return the largest real part or modulus of an eigenvalue; no information where eigenvectors cannot be inverted.

    It is at most the highest end of a disc, and each component holds an eigenvalue that is no lower than its lowest.
    """
    half = PreciseMatrix(mirrored(middle(symmetric_part(a))))
    apart = size_up(subtract(a, half))
    if apart <= size_up(a) * dyadic(1, -flint.ctx.prec // 2):
        values, error = symmetric_values(half.entries)
        if not error.is_finite():
            return nan()
        discs = [(value, value, error + apart) for value in values]
        distances = [[absolute_value(x - y) for y in values] for x in values]
    else:
        found = _similar(a)
        if found is None:
            return nan()
        order = a.shape[0]
        rows = found.tolist()
        discs = [
            (rows[i][i].real, abs(rows[i][i]), sum((abs(rows[i][j]) for j in range(order) if j != i), arb(0)))
            for i in range(order)
        ]
        distances = [[abs(rows[i][i] - rows[j][j]) for j in range(order)] for i in range(order)]
    reach = [radius.upper() for _, _, radius in discs]
    middles = [absolute_value(size) if modulus else real for real, size, _ in discs]
    highs = [(value + radius).upper() for value, radius in zip(middles, reach, strict=True)]
    lows = [(value - radius).lower() for value, radius in zip(middles, reach, strict=True)]
    lows = [maximum(low, arb(0)) for low in lows] if modulus else lows
    groups = connected(len(discs), lambda i, j: not distances[i][j] > reach[i] + reach[j])
    return from_bounds(maximum(*(minimum(*(lows[i] for i in group)) for group in groups)), maximum(*highs))


def _similar(a: PreciseMatrix) -> acb_mat | None:
    """Return X^-1 A X for approximate eigenvectors X, or None."""
    matrix = acb_mat(a.entries)
    vectors = acb_mat(middle(a).entries).eig(right=True, algorithm="approx")[1].mid()
    try:
        found = vectors.inv() * matrix * vectors
    except ZeroDivisionError:
        return None
    return found if all(entry.is_finite() for entry in found.entries()) else None


def _wide(value: arb, a: PreciseMatrix) -> bool:
    return not value.is_finite() or bool(value.rad() > size_up(a) * _TRUSTED)


def lambda_max(a: PreciseMatrix, *, symmetric: bool = False) -> arb:
    """Return the largest real part of an eigenvalue; `symmetric` says that the true matrix is.

    Raises:
        ArgumentError: The matrix is not square.
    """
    order = require_square("lambda_max", a)
    if not a.is_finite:
        return nan()
    if a.is_exact and is_triangular(a):
        return maximum(*a.flat[:: order + 1])
    if symmetric or (a.is_exact and a.rows() == a.entries.transpose().tolist()):
        return eigenvalues_symmetric(a)[-1]
    with guarded(2, 64):
        value = _largest(a, modulus=False)
        if _wide(value, a):  # real parts lie between the extreme eigenvalues of the symmetric part
            values = eigenvalues_symmetric(symmetric_part(a))
            value = meet(value, from_bounds(values[0].lower(), values[-1].upper()))
    return value


def lambda_min(a: PreciseMatrix, *, symmetric: bool = False) -> arb:
    """Return the smallest real part of an eigenvalue; `symmetric` says that the true matrix is.

    Raises:
        ArgumentError: The matrix is not square.
    """
    require_square("lambda_min", a)
    return -lambda_max(negate(a), symmetric=symmetric)


def _above(function: str, a: PreciseMatrix, c: float | arb, *, upper: bool) -> arb:
    """Return the smallest eigenvalue of the symmetric part less an end of c, exactly zero where a rank shows it."""
    order = require_square(function, a)
    bound = c if isinstance(c, arb) else exact(c)
    if not bound.is_finite():
        raise ArgumentError(f"`c` of {function} must be a finite number. Got {c}.")
    end = bound.upper() if upper else bound.lower()
    shift = PreciseMatrix(unit_matrix(order) * end)
    return eigenvalues_symmetric(subtract(symmetric_part(a), shift))[0] if a.is_finite else nan()


def lambda_min_at_least(a: PreciseMatrix, c: float | arb) -> bool | None:
    """Return True where the smallest eigenvalue of the symmetric part is proved to be at least c, else None.

    Raises:
        ArgumentError: The matrix is not square, or `c` is not finite.
    """
    return True if _above("lambda_min_at_least", a, c, upper=True) >= 0 else None


def lambda_min_below(a: PreciseMatrix, c: float | arb) -> bool | None:
    """Return True where the smallest eigenvalue of the symmetric part is proved to be below c, else None.

    Raises:
        ArgumentError: The matrix is not square, or `c` is not finite.
    """
    return True if _above("lambda_min_below", a, c, upper=False) < 0 else None


def _from_powers(a: PreciseMatrix) -> arb:
    """Return a ball of the spectral radius: (|trace A^k|/n)^(1/k) <= rho <= fro(A^k)^(1/k) for k = 1, 2, 4, ..."""
    low, high = arb(0), frobenius(a).upper()
    power = a
    for doubling in range(1, _SQUARINGS + 1):
        power = matmul(power, power)
        if not power.is_finite:
            break
        ends = [(absolute_value(trace(power)) / a.shape[0]).lower(), frobenius(power).upper()]
        for _ in range(doubling):
            ends = [square_root(end) for end in ends]
        low, high = maximum(low, ends[0].lower()).lower(), minimum(high, ends[1].upper()).upper()
    return from_bounds(low, high)


def rho(a: PreciseMatrix) -> arb:
    """Return the spectral radius, the largest modulus of an eigenvalue, with lower end >= 0.

    Raises:
        ArgumentError: The matrix is not square.

    Example:
        >>> from flint import arb_mat
        >>> bool(rho(PreciseMatrix(arb_mat([[1, 1], [-1, -1]]))) == 0)  # nilpotent
        True
    """
    order = require_square("rho", a)
    if not a.is_finite:
        return nan()
    if a.is_exact and is_triangular(a):
        return maximum(*map(absolute_value, a.flat[:: order + 1]))
    with guarded(2, 64):
        value = _largest(a, modulus=True)
        return meet(value, _from_powers(a)) if _wide(value, a) else value


_SHIFTS = (-2, -8, -32)  # by how much of its lowest eigenvalue a root is moved where that may be negative


def sqrtm(a: PreciseMatrix) -> PreciseMatrix:
    """Return the symmetric square root without negative eigenvalues.

    Args:
        a: n x n; the caller vouches that the true matrix is symmetric and positive semidefinite.

    Raises:
        ArgumentError: The matrix is not square.

    Example:
        >>> bool(abs(sqrtm(PreciseMatrix(arb_mat([[4]]))).flat[0] - 2) < 1e-30)
        True
    """
    order = require_square("sqrtm", a)
    if not a.is_finite:
        return no_information(order, order, a.reason or "an entry is not known")
    half = symmetric_part(a)
    centre = mirrored(middle(half))
    basis = eigenbasis(centre)
    turned = (basis.transpose() * centre * basis).mid()
    roots = [square_root(maximum(turned[i, i], arb(0))).mid() for i in range(order)]
    stretched = arb_mat(order, order, [roots[i] if i == j else 0 for i in range(order) for j in range(order)])
    found = (basis * stretched * basis.transpose()).mid()
    found = mirrored(PreciseMatrix(found))
    low = eigenvalues_symmetric(PreciseMatrix(found))[0].lower()
    for factor in _SHIFTS:
        if low >= 0:
            break
        found = (found + unit_matrix(order) * (low * factor).upper()).mid()
        low = eigenvalues_symmetric(PreciseMatrix(found))[0].lower()
    if not low >= 0:
        return no_information(order, order, "a root is not known")
    residual = frobenius(PreciseMatrix(half.entries - found * found)).upper()
    below = maximum(eigenvalues_symmetric(half)[0].lower(), arb(0))
    error = _error(residual, order, low, below)
    return PreciseMatrix(arb_mat(order, order, [entry + arb(0, error) for entry in found.entries()]))


def _error(residual: arb, order: int, low: arb, below: arb) -> arb:
    """Return what `root_error` of `ntk_deq.certified.spectra` does, in more bits."""
    if residual == 0:
        return arb(0)
    rough = square_root(square_root(arb(order)) * residual).upper()
    gap = (low + square_root(below)).lower()
    return minimum(rough, (residual / gap).upper()) if gap > 0 else rough


def pinv(a: PreciseMatrix) -> PreciseMatrix:
    """Return the pseudoinverse of Moore and Penrose; no information where the rank is not certain."""
    rows, cols = a.shape
    if not a.is_finite:
        return no_information(cols, rows, a.reason or "an entry is not known")
    whole = whole_matrix(a) if a.is_exact and max(a.shape) <= EXACT_ORDER else None
    if whole is not None:
        numbers, exponent = whole
        return PreciseMatrix(arb_mat(rational_pinv(fmpq_mat(numbers)) * fmpq(2) ** -exponent))
    if rows == cols:
        found = inverse(a)
    elif rows < cols:
        found = transpose(pinv(transpose(a)))
    else:
        corner = PreciseMatrix(unit_matrix(rows) * arb(balance(a.approximate)))
        system = above(beside(corner, a), beside(transpose(a), PreciseMatrix(arb_mat(cols, cols))))
        found = block(inverse(system), rows, rows + cols, 0, rows)
    return found if found.is_finite else no_information(cols, rows, UNCERTAIN_RANK)
