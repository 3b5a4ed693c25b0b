"""Extreme eigenvalues and spectral radius of a square matrix ball that need not be symmetric.

Every eigenvalue lies in the union of discs around approximate ones, and a connected component made of k discs holds
exactly k eigenvalues (Bauer-Fike, continuity), so both ends of an extreme are bounded. Where eigenvectors are too
ill-conditioned for that, the symmetric part bounds real parts and norms of powers bound the spectral radius.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from flint import arb
from torch import Tensor

from ntk_deq.certified.arithmetic import add, matmul, scale, subtract
from ntk_deq.certified.dense import Ball, require_square, transpose
from ntk_deq.certified.exactness import is_triangular
from ntk_deq.certified.functions import maximum, minimum, square_root
from ntk_deq.certified.inversion import approximate_inverse, identity_defect, size_up
from ntk_deq.certified.rounding import TINY, add_up, divide_up, multiply_up, subtract_down
from ntk_deq.certified.scalar import dyadic, exact, from_bounds, nan, with_radius
from ntk_deq.certified.spectra import eigenvalues_symmetric, scaled, symmetric_discs, symmetric_part, upper_scaled

NEARLY_SYMMETRIC = 2.0**-30
"""A matrix this close to its symmetric part, relative to its largest entry, loses less by symmetrising than
eigenvectors would cost."""

_ROOT_TWO = math.nextafter(math.sqrt(2.0), 2.0)

TRUSTED = 2.0**-20
"""Wider discs than this, relative to the largest entry, are worth a second bound."""


@dataclass(frozen=True)
class Discs:
    """Discs around approximate eigenvalues; every component of k discs holds exactly k eigenvalues.

    Attributes:
        centres: Complex, on the CPU, in units of 2^exponent.
        radius: Common radius in the same unit; infinite where nothing is known.
        exponent: The unit.
    """

    centres: Tensor
    radius: float
    exponent: int

    def component(self, start: int) -> Tensor:
        """Return the centres of every disc connected to one of them."""
        inside = torch.zeros(len(self.centres), dtype=torch.bool)
        frontier = [start]
        inside[start] = True
        # Differences and moduli round by a few units, well below 2^-40, or underflow.
        reach = 2.0 * self.radius * (1.0 + 2.0**-40) + TINY
        while frontier:
            fresh = ((self.centres - self.centres[frontier.pop()]).abs() <= reach) & ~inside
            inside |= fresh
            frontier.extend(fresh.nonzero().flatten().tolist())
        return self.centres[inside]


def real_form(matrix: Tensor) -> Tensor:
    """Return [[Re, -Im], [Im, Re]], whose norms, products and inverses mirror those of the complex matrix.

    Example:
        >>> real_form(torch.tensor([[1j]])).tolist()
        [[0.0, -1.0], [1.0, 0.0]]
    """
    if not matrix.is_complex():
        return matrix
    real, imaginary = matrix.real, matrix.imag
    return torch.cat([torch.cat([real, -imaginary], dim=1), torch.cat([imaginary, real], dim=1)])


def eigenvectors(matrix: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return complex eigenvalues and eigenvectors, or None where the iteration fails; computed on the host by NumPy.

    `torch.linalg.eig` is no choice: the dgeev of its MKL (2024.2) gives up on sparse skew matrices as small as 3 x 3,
    and then writes past its buffers.

    Example:
        >>> eigenvectors(2 * torch.eye(2, dtype=torch.float64))[0].real.tolist()
        [2.0, 2.0]
    """
    try:
        values, vectors = np.linalg.eig(matrix.cpu().numpy())
    except np.linalg.LinAlgError:
        return None
    as_tensor = [torch.from_numpy(part.astype(np.complex128)).to(matrix.device) for part in (values, vectors)]
    return as_tensor[0], as_tensor[1]


def _general_discs(a: Ball) -> Discs:
    """Return discs from float eigenvectors V, W about V^-1: radius norm(W (A V - V L))/(1 - norm(I - W V))."""
    work, lost, exponent = scaled(a)
    unknown = Discs(torch.zeros(a.shape[0], dtype=torch.complex128), math.inf, exponent)
    found = eigenvectors(work)
    if found is None:
        return unknown
    values, vectors = found
    matrix = Ball(work, add_up(lost, upper_scaled(a.radius, exponent)))
    if not bool(values.imag.any()):
        values, vectors = values.real.contiguous(), vectors.real.contiguous()
    else:
        matrix = Ball(torch.block_diag(work, work), multiply_up(_ROOT_TWO, matrix.radius))
    basis = Ball(real_form(vectors).contiguous())
    inverted = approximate_inverse(basis.centre) if basis.is_finite else None
    if inverted is None:
        return unknown
    gap = subtract_down(1.0, size_up(identity_defect(Ball(inverted), basis)))
    if not gap > 0:
        return unknown
    residual = subtract(matmul(matrix, basis), matmul(basis, Ball(real_form(torch.diag(values)).contiguous())))
    radius = divide_up(size_up(matmul(Ball(inverted), residual)), gap)
    return Discs(values.to(torch.complex128).cpu(), radius, exponent)


def eigenvalue_discs(a: Ball) -> Discs:
    """Return discs that enclose the eigenvalues of every matrix of a ball; from the symmetric part where that is close.

    Example:
        >>> discs = eigenvalue_discs(Ball(torch.tensor([[0.0, 1.0], [-1.0, 0.0]])))
        >>> discs.radius < 1e-12, len(discs.centres), discs.exponent
        (True, 2, 1)
    """
    middle, apart, exponent = symmetric_part(a)
    if apart <= NEARLY_SYMMETRIC:
        values, error = symmetric_discs(middle)
        return Discs(torch.tensor(values, dtype=torch.complex128), add_up(error, apart), exponent)
    return _general_discs(a)


def _bounded(low: arb | None, high: arb) -> arb:
    """Return the ball of [low, high], or no information where an end is missing."""
    if low is None or not (low.is_finite() and high.is_finite()):
        return nan()
    return from_bounds(low, high) if low.lower() <= high.upper() else nan()


def largest_real(a: Ball, discs: Discs) -> arb:
    """Return the largest real part of an eigenvalue, from discs around all of them.

    Example:
        >>> turn = Ball(torch.tensor([[1.0, 1.0], [-1.0, 1.0]]))
        >>> largest_real(turn, eigenvalue_discs(turn)).overlaps(arb(1))
        True
    """
    unit = dyadic(1, discs.exponent)
    low: arb | None = None
    high = nan()
    if math.isfinite(discs.radius):
        real = discs.centres.real
        spread = exact(discs.radius)
        high = (exact(float(real.amax())) + spread) * unit
        low = (exact(float(discs.component(int(real.argmax())).real.amin())) - spread) * unit
    if not discs.radius <= TRUSTED:  # real parts lie between the extreme eigenvalues of the symmetric part
        values = eigenvalues_symmetric(scale(exact(0.5), add(a, transpose(a))))
        high = minimum(high, values[-1]) if high.is_finite() else values[-1]
        low = maximum(low, values[0]) if low is not None else values[0]
    return _bounded(low, high)


def lambda_max(a: Ball, *, symmetric: bool = False) -> arb:
    """Return the largest real part of an eigenvalue.

    Args:
        a: n x n.
        symmetric: Whether the caller vouches that the true matrix is symmetric.

    Returns:
        The ball; exact for exact triangular matrices.

    Raises:
        ArgumentError: The matrix is not square.

    Example:
        >>> lambda_max(Ball(torch.tensor([[1.0, 5.0], [0.0, 2.0]]))) == 2
        True
    """
    require_square("lambda_max", a)
    if not a.is_finite:
        return nan()
    if a.is_exact and is_triangular(a.centre):
        return exact(float(a.centre.diagonal().amax()))
    if symmetric or (a.is_exact and torch.equal(a.centre, a.centre.mT)):
        return eigenvalues_symmetric(a)[-1]
    return largest_real(a, eigenvalue_discs(a))


def lambda_min(a: Ball, *, symmetric: bool = False) -> arb:
    """Return the smallest real part of an eigenvalue.

    Args:
        a: n x n.
        symmetric: Whether the caller vouches that the true matrix is symmetric.

    Returns:
        The ball; exact for exact triangular matrices.

    Raises:
        ArgumentError: The matrix is not square.

    Example:
        >>> lambda_min(Ball(torch.eye(2) / 2)) == 0.5
        True
    """
    require_square("lambda_min", a)
    return -lambda_max(Ball(-a.centre, a.radius, a.reason), symmetric=symmetric)


def _power_bound(a: Ball) -> arb:
    """Return an upper bound of the spectral radius: the least norm(A^k)^(1/k) for k = 1, 2, 4, ..., 32."""
    work, lost, exponent = scaled(a)
    matrix = Ball(work, add_up(lost, upper_scaled(a.radius, exponent)))
    best = exact(size_up(matrix))
    for doubling in range(1, 6):
        matrix = matmul(matrix, matrix)
        size = exact(size_up(matrix))
        if not size.is_finite():
            break
        for _ in range(doubling):
            size = square_root(size)
        best = minimum(best, size)
    return best * dyadic(1, exponent)


def rho(a: Ball) -> arb:
    """Return the spectral radius, the largest modulus of an eigenvalue.

    Args:
        a: n x n.

    Returns:
        A ball with lower end >= 0; exact for exact triangular matrices.

    Raises:
        ArgumentError: The matrix is not square.

    References:
        Bauer and Fike, Numerische Mathematik 2, 1960.

    Example:
        >>> rho(Ball(torch.tensor([[0.0, 5.0], [0.0, -2.0]]))) == 2
        True
    """
    require_square("rho", a)
    if not a.is_finite:
        return nan()
    if a.is_exact and is_triangular(a.centre):
        return exact(float(a.centre.diagonal().abs().amax()))
    return largest_modulus(a, eigenvalue_discs(a))


def largest_modulus(a: Ball, discs: Discs) -> arb:
    """Return the largest modulus of an eigenvalue, from discs around all of them.

    Example:
        >>> turn = Ball(torch.tensor([[0.0, 2.0], [-2.0, 0.0]]))
        >>> largest_modulus(turn, eigenvalue_discs(turn)).overlaps(arb(2))
        True
    """
    low, high = exact(0), nan()
    if math.isfinite(discs.radius):
        moduli = discs.centres.abs()
        # A modulus of two floats rounds by less than 2^-50 of itself, or underflows.
        unit, spread = dyadic(1, discs.exponent), exact(discs.radius) + exact(TINY)
        slack = with_radius(1.0, 2.0**-50)
        high = (exact(float(moduli.amax())) * slack + spread) * unit
        nearest = discs.component(int(moduli.argmax())).abs().amin()
        low = maximum(low, (exact(float(nearest)) * slack - spread) * unit)
    if not discs.radius <= TRUSTED:
        bound = _power_bound(a)
        high = minimum(high, bound) if high.is_finite() else bound
    return _bounded(low, high)
