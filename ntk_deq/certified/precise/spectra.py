"""Singular values and symmetric eigenvalues of precise matrices.

Eigenvalues of symmetric matrices at any precision: a float basis, refined, and a bound from its defects.

With a nearly orthogonal X the matrix T = X'SX is nearly diagonal. Between eigenvalues that are apart, the skew matrix K
with K_ij = T_ij/(T_jj - T_ii) gives X (I + K), for which the entries off the diagonal are squared (Ogita and Aishima,
Japan J. Indust. Appl. Math. 35, 2018). Eigenvalues closer than the entries between them make a cluster, whose block of
T is brought near 1 and diagonalised in floats once more. Nothing of this is trusted; the bound is.

Connected components of a few things that touch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import flint
import torch
from flint import arb, arb_mat, fmpz_mat

from ntk_deq.certified.dense import require_square
from ntk_deq.certified.functions import absolute_value, square_root
from ntk_deq.certified.norms import nonnegative
from ntk_deq.certified.precise.arithmetic import frobenius, size_up
from ntk_deq.certified.precise.matrix import PreciseMatrix, guarded, whole_matrix
from ntk_deq.certified.scalar import dyadic, from_bounds, nan


def connected(count: int, touch: Callable[[int, int], bool]) -> list[list[int]]:
    """Return the numbers 0 to count - 1 in groups that hang together.

    Args:
        count: How many there are.
        touch: Whether two of them touch, asked once for each pair.

    Example:
        >>> connected(4, lambda i, j: abs(i - j) == 2)
        [[0, 2], [1, 3]]
    """
    parent = list(range(count))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i in range(count):
        for j in range(i):
            if touch(i, j):
                parent[root(i)] = root(j)
    groups: dict[int, list[int]] = {}
    for i in range(count):
        groups.setdefault(root(i), []).append(i)
    return list(groups.values())


_CLOSE = 2.0**-10  # a first-order rotation by less than this is squared away; a wider one may not be
_GAIN = 40  # bits that a float diagonalisation of a cluster gains at least: 53 less what an order of 64 costs
_SLACK = 8  # bits that the roundings of a few products cost
_PATIENCE = 2  # steps without a gain after which the precision is taken to be exhausted
_GUARD = 32  # bits beyond the working precision, so that the bound's own roundings do not show

Rows = list[list[arb]]


def unit_matrix(order: int) -> arb_mat:
    """Return the identity.

    Example:
        >>> unit_matrix(2).trace() == 2
        True
    """
    return arb_mat(order, order, [int(i == j) for i in range(order) for j in range(order)])


def _float_basis(block: Rows) -> list[list[float]] | None:
    """Return float eigenvectors of a symmetric block brought near 1; None where it is zero or the routine fails."""
    exponent = _exponent(x for row in block for x in row)
    if exponent is None:
        return None
    unit = dyadic(1, -exponent)
    floats = torch.tensor([[float((x * unit).mid()) for x in row] for row in block], dtype=torch.float64)
    try:
        vectors = torch.linalg.eigh((floats + floats.mT) * 0.5)[1]
    except torch.linalg.LinAlgError:
        return None
    found: list[list[float]] = vectors.tolist()
    return found


def _orthonormal(basis: arb_mat) -> arb_mat:
    """Return a nearly orthogonal matrix made orthogonal to the present precision (Newton and Schulz).

    X (3 I - X'X)/2 squares the distance of X'X from I.
    """
    unit = unit_matrix(basis.nrows())
    while True:
        defect = (basis.transpose() * basis - unit).mid()
        exponent = _exponent(defect.entries())
        if exponent is None or not -flint.ctx.prec + _SLACK < exponent < -1:
            return basis
        basis = (basis - basis * defect * arb(0.5)).mid()


def _exponent(values: Iterable[arb]) -> int | None:
    """Return the least e with all |values| < 2^e; None where all are zero."""
    parts = [(int(m), int(e)) for m, e in (value.man_exp() for value in values)]
    return max((e + m.bit_length() for m, e in parts if m), default=None)


def _rotation(turned: Rows) -> arb_mat:
    """Return a nearly orthogonal matrix that brings T = X'SX closer to a diagonal one."""
    order, zero, one = len(turned), arb(0), arb(1)

    def close(i: int, j: int) -> bool:
        entry = abs(turned[i][j])
        return bool(entry > 0) and not bool(entry < abs(turned[i][i] - turned[j][j]) * _CLOSE)

    clusters = connected(order, close)
    member = {i: number for number, cluster in enumerate(clusters) for i in cluster}
    apart = [[one if i == j else zero for j in range(order)] for i in range(order)]
    for i in range(order):
        for j in range(order):
            if member[i] != member[j] and turned[i][j] != 0:
                apart[i][j] = turned[i][j] / (turned[j][j] - turned[i][i])
    rotation = arb_mat(apart).mid()
    within = [[one if i == j else zero for j in range(order)] for i in range(order)]
    for cluster in (c for c in clusters if len(c) > 1):
        middle = sum((turned[i][i] for i in cluster), zero).mid() / len(cluster)
        block = [[(turned[i][j] - (middle if i == j else zero)).mid() for j in cluster] for i in cluster]
        for i, row in zip(cluster, _float_basis(block) or [], strict=False):
            for j, value in zip(cluster, row, strict=True):
                within[i][j] = arb(value)
    return rotation * arb_mat(within) if len(clusters) < order else rotation


def eigenbasis(matrix: arb_mat) -> arb_mat:
    """Return approximate eigenvectors of an exactly symmetric matrix, as good as the present precision allows."""
    order = matrix.nrows()
    basis = chosen = unit_matrix(order)
    size = _exponent(matrix.entries()) or 0
    best, waited = arb("inf"), 0
    for _ in range(flint.ctx.prec // _GAIN + 16):
        image = basis.transpose() * matrix * basis
        # Near zero eigenvalues the entries are roundings, unequal on both sides of the diagonal.
        turned = ((image + image.transpose()) * arb(0.5)).mid().tolist()
        off = sum((turned[i][j] * turned[i][j] for i in range(order) for j in range(i)), arb(0)).mid()
        waited = 0 if off * 4 < best else waited + 1
        if off < best:
            best, chosen = off, basis
        if off < dyadic(1, 2 * (size + _SLACK - flint.ctx.prec)) or waited > _PATIENCE:
            break
        basis = _orthonormal((basis * _rotation(turned)).mid())
    return chosen


def symmetric_values(matrix: arb_mat) -> tuple[list[arb], arb]:
    """Return approximate eigenvalues of an exactly symmetric matrix, ascending, and one error bound for all.

    With L = diag(l): |lambda_i - l_i| <= norm(S X - X L)/sqrt(1 - norm(X'X - I)) for both in ascending order.

    Args:
        matrix: n x n, without radii, equal to its transpose.

    Returns:
        The approximations, exact numbers, and the bound; no information where the basis is not nearly orthogonal.

    References:
        Kahan; Cao, Xie and Li, Linear Algebra and its Applications 244, 1996.

    Example:
        >>> values, error = symmetric_values(arb_mat([[2, 1], [1, 2]]))
        >>> bool(abs(values[0] - 1) <= error), bool(error < 1e-30)
        (True, True)
    """
    order = matrix.nrows()
    with guarded(1, _GUARD):
        basis = eigenbasis(matrix)
        image = matrix * basis
        turned = (basis.transpose() * image).mid()
        values = [turned[i, i] for i in range(order)]
        lengths = arb_mat(order, order, [values[i] if i == j else 0 for i in range(order) for j in range(order)])
        residual = size_up(PreciseMatrix(image - basis * lengths))
        defect = size_up(PreciseMatrix(basis.transpose() * basis - unit_matrix(order)))
        error = (residual / square_root(1 - defect)).upper() if defect < 1 else nan()
    return sorted(values), error


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
        return [nonnegative(square_root(value), 0.0) for value in reversed(squares)]


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
    return tuple(nonnegative(widened(value, radius), 0.0) for value in values)


def sigma_max(a: PreciseMatrix) -> arb:
    """Return the largest singular value."""
    return singular_values(a)[0]


def sigma_min(a: PreciseMatrix) -> arb:
    """Return the smallest of the min(rows, cols) singular values."""
    return singular_values(a)[-1]


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
