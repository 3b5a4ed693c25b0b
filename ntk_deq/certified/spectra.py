"""Singular values and symmetric eigenvalues of a matrix ball, from a float factorisation and bounds on its defects.

And the derivative of a simple singular value: the product u v' of its singular vectors, with an error bound.

Square roots. For positive semidefinite A and B with square roots X and Y,

    fro(X - Y) <= fro(A - B)/(lambda_min(X) + lambda_min(Y)),    fro(X - Y)^2 <= sqrt(n) fro(A - B),

the first since X (X - Y) + (X - Y) Y = A - B, the second by Powers and Stormer. So a symmetric Y without a negative
eigenvalue, however it was found, is as near to the root of A as Y^2 is to A allows.

References:
    Higham, Functions of Matrices, 2008, theorem 6.2; Powers and Stormer, Commun. Math. Phys. 16, 1970.
"""

from __future__ import annotations

import math

import torch
from flint import arb
from torch import Tensor

from ntk_deq.certified.arithmetic import (
    column_multiples,
    enclose,
    matmul,
    orthogonality_up,
    residual_up,
    scale,
    subtract,
)
from ntk_deq.certified.dense import Ball, no_information, require_square, transpose
from ntk_deq.certified.exactness import is_monomial, is_triangular, may_be_exact, sum_error
from ntk_deq.certified.functions import power, square_root
from ntk_deq.certified.norms import EXACT_ORDER, frobenius, nonnegative, whole_matrix
from ntk_deq.certified.rounding import (
    TINY,
    add_up,
    divide_up,
    fro_up,
    largest_entry,
    multiply_up,
    power_of_two,
    root_up,
    subtract_down,
    times_power_of_two,
    unit_roundoff,
)
from ntk_deq.certified.scalar import dyadic, exact, from_bounds, lower, nan, upper, with_radius

_CHEAP = 4096  # entries that an exact account of rounding errors is worth

_MODEST_LOW, _MODEST_HIGH = math.ldexp(1.0, -200), math.ldexp(1.0, 200)
# Squares of entries between these are in range with 600 binary digits to spare.


def scaled(a: Ball) -> tuple[Tensor, float, int]:
    """Return the centre brought near 1 by a power of two, so that no product in a factorisation overflows.

    Args:
        a: A ball with information.

    Returns:
        centre 2^-e in float64, a Frobenius bound on what the scaling lost (entries below 2^-1074), and e.

    Example:
        >>> scaled(Ball(torch.full((1, 1), 8.0)))
        (tensor([[0.5000]], dtype=torch.float64), 0.0, 4)
    """
    work = a.centre.double()
    exponent = power_of_two(largest_entry(work))
    moved = times_power_of_two(work, -exponent)
    back = times_power_of_two(moved, exponent)
    lost = 0.0 if bool((back == work).all()) else multiply_up(float(work.numel()), TINY)
    return moved, lost, exponent


def within_range(a: Ball) -> tuple[Tensor, float, int]:
    """Return what `scaled` does, or the centre itself with exponent 0 where no square of an entry leaves the range.

    Example:
        >>> within_range(Ball(torch.full((1, 1), 8.0)))[2], within_range(Ball(torch.full((1, 1), 2.0**100)))[2] > 0
        (0, False)
    """
    if _MODEST_LOW < largest_entry(a.work) < _MODEST_HIGH:
        return a.work, 0.0, 0
    return scaled(a)


def exact_singular_values(centre: Tensor) -> list[arb] | None:
    """Return the singular values of monomial matrices, vectors, and small-integer matrices with orthogonal columns.

    Example:
        >>> exact_singular_values(torch.tensor([[0.0, 3.0], [2.0, 0.0]])) == [3, 2]
        True
    """
    rows, cols = centre.shape
    count = min(rows, cols)
    if count == 1:
        return [frobenius(Ball(centre))]
    if int(torch.count_nonzero(centre)) <= count and is_monomial(centre):
        found = centre.double().abs().flatten()
        return [exact(value) for value in found.sort(descending=True).values[:count].tolist()]
    tall = Ball(centre.double() if rows >= cols else centre.double().mT)
    if not may_be_exact(tall.centre, tall.centre):
        return None
    rounded = tall.centre.mT @ tall.centre
    if bool((rounded - torch.diag(rounded.diagonal())).any()):
        return None
    gram = matmul(Ball(tall.centre.mT), tall)
    if gram.is_exact:
        squares = gram.centre.diagonal().sort(descending=True).values
        return [square_root(exact(value)) for value in squares.tolist()]
    return None


def factored_singular_values(a: Ball) -> list[arb]:
    """Return singular values of the centre from an SVD and its defects, sorted downwards.

    Example:
        >>> values = factored_singular_values(Ball(torch.tensor([[1.0, 2.0], [3.0, 4.0]])))
        >>> (values[0] * values[1] - 2).contains(0)
        True
    """
    work, lost, exponent = scaled(a)
    count = min(a.shape)
    try:
        left, values, right = torch.linalg.svd(work, full_matrices=False)
    except torch.linalg.LinAlgError:
        return [from_bounds(0.0, frobenius(Ball(a.centre)))] * count
    scaled_left, rounded = column_multiples(left, values)
    error = add_up(residual_up(work, scaled_left, right), multiply_up(rounded, fro_up(right)), lost)
    defect_right, defect_left = orthogonality_up(right.mT), orthogonality_up(left)
    if not all(map(math.isfinite, (error, defect_left, defect_right))):
        return [from_bounds(0.0, frobenius(Ball(a.centre)))] * count
    f, g, e = exact(defect_right), exact(defect_left), exact(error)
    shrink = square_root((1 - f) * (1 - g)) if defect_left < 1 and defect_right < 1 else arb(0)
    grow, unit = square_root((1 + f) * (1 + g)), dyadic(1, exponent)
    result = []
    for value in values.abs().sort(descending=True).values.tolist():
        low, high = value * shrink - e, value * grow + e
        result.append(from_bounds(low * unit if low > 0 else 0.0, high * unit))
    return result


def with_exact_rank(values: list[arb], centre: Tensor) -> list[arb]:
    """Replace trailing values that touch zero by exact zeros where elimination in whole numbers finds a lower rank.

    Example:
        >>> with_exact_rank([exact(2), from_bounds(0.0, 1e-15)], torch.ones(2, 2))[1] == 0
        True
    """
    if values[-1] > 0 or min(centre.shape) > EXACT_ORDER or centre.numel() > EXACT_ORDER**2:
        return values
    rank = whole_matrix(centre)[0].rank()
    return values[:rank] + [arb(0)] * (len(values) - rank)


def singular_values(a: Ball) -> tuple[arb, ...]:
    """Return the singular values, largest first.

    From float U, s, V with E >= norm(A - U diag(s) V'), F >= norm(V'V - I), G >= norm(U'U - I):
    s_i sqrt((1 - F)(1 - G)) - E <= sigma_i <= s_i sqrt((1 + F)(1 + G)) + E; a ball's radius is added by Weyl's
    inequality.

    Args:
        a: rows x cols.

    Returns:
        min(rows, cols) balls with lower ends >= 0; exact for monomial matrices, and exact zeros where a small exact
        matrix is singular.

    References:
        Rump, BIT 51, 2011; Miyajima, 2014.

    Example:
        >>> [value == 1 for value in singular_values(Ball(torch.eye(2)))]
        [True, True]
    """
    if not a.is_finite:
        return (nan(),) * min(a.shape)
    values = exact_singular_values(a.centre)
    if values is None:
        values = with_exact_rank(factored_singular_values(a), a.centre)
    return tuple(nonnegative(value, a.radius) for value in values)


def symmetric_discs(matrix: Tensor) -> tuple[list[float], float]:
    """Return approximate eigenvalues of an exactly symmetric float64 matrix, and one error bound for all.

    With L = diag(l): |lambda_i - l_i| <= norm(A X - X L)/sqrt(1 - norm(X'X - I)) for both in ascending order.

    Args:
        matrix: n x n, equal to its transpose.

    Returns:
        The approximations in ascending order, and the bound, infinite where the factorisation fails.

    References:
        Kahan; Cao, Xie and Li, Linear Algebra and its Applications 244, 1996.

    Example:
        >>> values, error = symmetric_discs(torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64))
        >>> abs(values[0] - 1) <= error < 1e-12
        True
    """
    order = matrix.shape[0]
    try:
        values, vectors = torch.linalg.eigh(matrix)
    except torch.linalg.LinAlgError:
        return [0.0] * order, math.inf
    defect = orthogonality_up(vectors)
    lengths, rounded = column_multiples(vectors, values)
    residual = add_up(residual_up(lengths, matrix, vectors), rounded)
    ascending = values.sort().values.tolist()
    if not (math.isfinite(residual) and defect < 1):
        return ascending, math.inf
    return ascending, upper(exact(residual) / square_root(1 - exact(defect)))


def symmetric_part(a: Ball) -> tuple[Tensor, float, int]:
    """Return a symmetric S near 2^-e a, a Frobenius bound on the distance of 2^-e (truth) to S, and e.

    Example:
        >>> symmetric_part(Ball(torch.eye(2)))[1:]
        (0.0, 1)
    """
    work, lost, exponent = scaled(a)
    middle = (work + work.mT) * 0.5
    apart = subtract(Ball(work), Ball(middle))
    radius = upper_scaled(a.radius, exponent)
    return middle, add_up(apart.fro, apart.radius, lost, radius), exponent


def projection(a: Ball) -> tuple[Tensor, float, int]:
    """Return a symmetric S near 2^-e a, a Frobenius bound on the distance of 2^-e (truth) to S, and e.

    e is 0 where no product of a factorisation can leave the range without it. For a truth that is symmetric: the
    symmetric part (C + C')/2 of the centre is then at most as far from it as C.

    Example:
        >>> projection(Ball(torch.tensor([[1.0, 0.5], [0.25, 1.0]]), 0.25))[1:]
        (0.25, 0)
    """
    work, lost, exponent = within_range(a)
    other = work.mT
    if torch.equal(work, other):
        return work, add_up(lost, upper_scaled(a.radius, exponent)), exponent
    twice = work + other
    middle = twice * 0.5
    halved = multiply_up(float(work.numel()), TINY)
    if work.numel() <= _CHEAP:
        rounded = fro_up(sum_error(work, other, twice))
        halved = 0.0 if torch.equal(middle + middle, twice) else halved
    else:  # each sum rounds by u of itself at most, and an exact account takes seven more passes
        rounded = multiply_up(unit_roundoff(), fro_up(twice))
    return middle, add_up(rounded, halved, lost, upper_scaled(a.radius, exponent)), exponent


def upper_scaled(radius: float, exponent: int) -> float:
    """Return an upper bound of radius 2^-exponent.

    Example:
        >>> upper_scaled(0.0, 3)
        0.0
    """
    return upper(exact(radius) * dyadic(1, -exponent)) if radius else 0.0


def eigenvalues_symmetric(a: Ball) -> tuple[arb, ...]:
    """Return the eigenvalues of a matrix whose truth is symmetric, smallest first.

    The radius is added by Weyl's inequality.

    Args:
        a: n x n; the caller vouches that the true matrix is symmetric, the centre need not be.

    Returns:
        n balls; exact for exact triangular, hence diagonal, matrices.

    Raises:
        ArgumentError: The matrix is not square.

    Example:
        >>> eigenvalues_symmetric(Ball(torch.eye(2) / 2))[0] == 0.5
        True
    """
    order = require_square("eigenvalues_symmetric", a)
    if not a.is_finite:
        return (nan(),) * order
    if a.is_exact and is_triangular(a.centre):
        return tuple(exact(value) for value in a.centre.double().diagonal().sort().values.tolist())
    middle, apart, exponent = projection(a)
    values, error = symmetric_discs(middle)
    unit, spread = dyadic(1, exponent), add_up(error, apart)
    return tuple(with_radius(value, spread) * unit for value in values)


_ROOT_TWO = math.nextafter(math.sqrt(2.0), 2.0)


def singular_direction(a: Ball, index: int) -> Ball | None:
    """Return the ball of u v' for a singular value of a matrix that is certainly simple, or None.

    The symmetric matrix H = [[0, A], [A', 0]] has the eigenvalues +-sigma_i, and zeros where A is not square. For float
    u~, v~, s let x~ = (u~; v~)/sqrt 2 and d the distance from s to every other eigenvalue. The part p of x~ orthogonal
    to the eigenvector x has norm(p) <= norm(H x~ - s x~)/d = eta (Davis and Kahan). With delta = |norm(x~)^2 - 1|,
    fro(x x' - x~ x~') <= delta + 2 eta^2 + sqrt 2 (1 + delta) eta, and u v'/2 is one of two equal blocks of x x', so

    fro(u v' - u~ v~') <= sqrt 2 (delta + 2 eta^2) + 2 (1 + delta) eta.

    Args:
        a: rows x cols.
        index: 0 for the largest of the min(rows, cols) singular values, -1 for the smallest.

    Returns:
        The rows x cols ball, or None where the value is not certainly apart from the others and from zero.

    References:
        Davis and Kahan, SIAM J. Numer. Anal. 7, 1970.

    Example:
        >>> ball = singular_direction(Ball(torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64))), 0)
        >>> ball.radius < 1e-14, ball.centre.tolist()
        (True, [[1.0, 0.0], [0.0, 0.0]])
    """
    values = singular_values(a)
    if not all(value.is_finite() for value in values):
        return None
    place = index % len(values)
    try:
        left, found, right = torch.linalg.svd(a.work, full_matrices=False)
    except torch.linalg.LinAlgError:
        return None
    near = float(found[place])
    gaps = [max(lower(v - near), lower(near - v)) for k, v in enumerate(values) if k != place]
    distance = min([*gaps, near])  # zero and the negative values are at least `near` away
    if not (distance > 0 and values[place] > 0):
        return None
    u, v = Ball(left[:, place : place + 1].contiguous()), Ball(right[place : place + 1].mT.contiguous())
    work = Ball(a.work, a.radius, a.reason)
    defects = (_defect(work, v, u, near), _defect(transpose(work), u, v, near))
    eta = divide_up(max(defects), distance)
    delta = max(upper(abs(power(frobenius(side), 2) - 1)) for side in (u, v))
    error = add_up(
        multiply_up(_ROOT_TWO, add_up(delta, multiply_up(2.0, eta, eta))), multiply_up(2.0, add_up(1.0, delta), eta)
    )
    product = matmul(u, transpose(v))
    return Ball(product.centre.to(a.centre.dtype), add_up(error, product.radius, _lost(product.centre, a)))


def _defect(a: Ball, v: Ball, u: Ball, near: float) -> float:
    """Return an upper bound of norm(A v - s u)."""
    return upper(frobenius(subtract(matmul(a, v), scale(exact(near), u))))


def _lost(centre: torch.Tensor, a: Ball) -> float:
    """Return an upper bound of what rounding to a's element type loses."""
    return upper(frobenius(Ball(centre - centre.to(a.centre.dtype).double())))


_GRID = 2.0**24  # a root whose entries are multiples of 2^-24 is tried as one without any error


def root_error(residual: float, order: int, low: float, below: float) -> float:
    """Bound the distance of a symmetric Y >= 0 from the root of a positive semidefinite A.

    Args:
        residual: Upper bound of fro(A - Y^2).
        order: n.
        low: Lower bound, >= 0, of the smallest eigenvalue of Y.
        below: Lower bound, >= 0, of the smallest eigenvalue of A.

    Example:
        >>> root_error(0.0, 3, 0.0, 0.0), root_error(0.5, 1, 1.0, 1.0) < 0.2501
        (0.0, True)
    """
    if residual == 0:
        return 0.0
    rough = root_up(multiply_up(root_up(float(order)), residual))
    gap = lower(exact(low) + square_root(exact(below)))
    return min(rough, divide_up(residual, gap)) if gap > 0 else rough


def sqrtm(a: Ball) -> Ball:
    """Return the symmetric square root without negative eigenvalues.

    Args:
        a: n x n; the caller vouches that the true matrix is symmetric and positive semidefinite.

    Returns:
        The ball; exact where Y^2 is the matrix without rounding.

    Raises:
        ArgumentError: The matrix is not square.

    Example:
        >>> sqrtm(Ball(torch.tensor([[5.0, 4.0], [4.0, 5.0]]))).centre.tolist()
        [[2.0, 1.0], [1.0, 2.0]]
    """
    order = require_square("sqrtm", a)
    if not a.is_finite:
        return no_information(a, order, order, a.reason)
    middle, apart, exponent = projection(a)
    if exponent % 2:
        middle, exponent = middle * 0.5, exponent + 1  # the entries are near 1, and none underflows that matters
        apart = add_up(apart, multiply_up(float(middle.numel()), 2.0**-1074))
    try:
        values, vectors = torch.linalg.eigh(middle)
    except torch.linalg.LinAlgError:
        return no_information(a, order, order, "the eigenvalues were not found")
    found = (vectors * values.clamp(min=0.0).sqrt()) @ vectors.mT
    found = (found + found.mT) * 0.5
    below = max(0.0, subtract_down(subtract_down(*_least(middle)), apart))
    best, error = found, math.inf
    for candidate in ((found * _GRID).round() / _GRID, found):
        root, low = _without_negative(candidate)
        off = subtract(Ball(middle, apart), matmul(Ball(root), Ball(root)))
        bound = root_error(add_up(off.fro, off.radius), order, low, below)
        if bound < error:
            best, error = root, bound
    unit = dyadic(1, exponent // 2)
    moved = scale(unit, Ball(best, error))
    return enclose(moved.centre, moved.radius, a)


def _least(symmetric: Tensor) -> tuple[float, float]:
    """Return an approximation of the smallest eigenvalue, and its error."""
    values, error = symmetric_discs(symmetric)
    return values[0], error


def _without_negative(symmetric: Tensor) -> tuple[Tensor, float]:
    """Return a symmetric matrix near one, and a lower bound >= 0 of its smallest eigenvalue."""
    unit = torch.eye(len(symmetric), dtype=symmetric.dtype, device=symmetric.device)
    for factor in (-2.0, -8.0, -32.0, 0.0):
        low = subtract_down(*_least(symmetric))
        if low >= 0:
            return symmetric, low
        if not math.isfinite(low):
            break
        symmetric = symmetric + unit * (factor * low)
    return torch.zeros_like(symmetric), 0.0
