"""The derivative of a simple singular value: the product u v' of its singular vectors, with an error bound."""

from __future__ import annotations

import math

import torch

from ntk_deq.certified.arithmetic import scale, subtract
from ntk_deq.certified.ball import Ball
from ntk_deq.certified.functions import power
from ntk_deq.certified.norms import frobenius
from ntk_deq.certified.products import matmul
from ntk_deq.certified.rounding import add_up, divide_up, multiply_up
from ntk_deq.certified.scalar import exact, lower, upper
from ntk_deq.certified.spectra import singular_values
from ntk_deq.certified.structure import transpose

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
