"""Square roots of symmetric matrices and pseudoinverses at any precision; see `ntk_deq.certified.roots`."""

from __future__ import annotations

from flint import arb, arb_mat, fmpq, fmpq_mat

from ntk_deq.certified.ball import require_square
from ntk_deq.certified.functions import maximum, minimum, square_root
from ntk_deq.certified.precise.arithmetic import EXACT_ORDER, above, beside, block, frobenius, inverse, transpose
from ntk_deq.certified.precise.matrix import PreciseMatrix, no_information, whole_matrix
from ntk_deq.certified.precise.spectra import (
    eigenbasis,
    eigenvalues_symmetric,
    middle,
    mirrored,
    symmetric_part,
    unit_matrix,
)
from ntk_deq.certified.roots import UNCERTAIN_RANK, balance, rational_pinv

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
    """Return what `root_error` of `ntk_deq.certified.roots` does, in more bits."""
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
        unit = fmpq(1 << -exponent) if exponent <= 0 else fmpq(1, 1 << exponent)
        return PreciseMatrix(arb_mat(rational_pinv(fmpq_mat(numbers)) * unit))
    if rows == cols:
        found = inverse(a)
    elif rows < cols:
        found = transpose(pinv(transpose(a)))
    else:
        corner = PreciseMatrix(unit_matrix(rows) * arb(balance(a.approximate)))
        system = above(beside(corner, a), beside(transpose(a), PreciseMatrix(arb_mat(cols, cols))))
        found = block(inverse(system), rows, rows + cols, 0, rows)
    return found if found.is_finite else no_information(cols, rows, UNCERTAIN_RANK)
