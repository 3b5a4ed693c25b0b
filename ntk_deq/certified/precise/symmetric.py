"""Eigenvalues of symmetric matrices at any precision: a float basis, refined, and a bound from its defects.

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
from flint import arb, arb_mat

from ntk_deq.certified.functions import square_root
from ntk_deq.certified.norms import dyadic
from ntk_deq.certified.precise.matrix import PreciseMatrix, guarded
from ntk_deq.certified.precise.sums import size_up
from ntk_deq.certified.scalar import nan


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
