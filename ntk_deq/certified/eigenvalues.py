"""Extreme eigenvalues and spectral radius of a square matrix ball that need not be symmetric.

Every eigenvalue lies in the union of discs around approximate ones, and a connected component made of k discs holds
exactly k eigenvalues (Bauer-Fike, continuity), so both ends of an extreme are bounded. Where eigenvectors are too
ill-conditioned for that, the symmetric part bounds real parts and norms of powers bound the spectral radius.

With D = diag(0 or 1) many rows of I - gamma D A' are rows of I. A permutation brings such a matrix to the form
B = [[B1, C], [0, c I]], with eigenvalue c and those of B1: eigenvectors are needed of B1 only, half the size and with a
better condition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from flint import arb
from torch import Tensor

from ntk_deq.certified import rounding
from ntk_deq.certified.arithmetic import add, matmul, scale, subtract
from ntk_deq.certified.dense import Ball, require_square, transpose
from ntk_deq.certified.exactness import is_triangular
from ntk_deq.certified.functions import maximum, minimum, square_root
from ntk_deq.certified.inversion import size_up
from ntk_deq.certified.rounding import (
    TINY,
    add_up,
    divide_up,
    fro_up,
    largest_entry,
    multiply_up,
    outward,
    power_of_two,
    subtract_down,
)
from ntk_deq.certified.scalar import dyadic, exact, from_bounds, nan, with_radius
from ntk_deq.certified.spectra import eigenvalues_symmetric, scaled, symmetric_discs, symmetric_part, upper_scaled

NEARLY_SYMMETRIC = 2.0**-30
"""A matrix this close to its symmetric part, relative to its largest entry, loses less by symmetrising than
eigenvectors would cost."""

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


@dataclass(frozen=True)
class _Basis:
    """Approximate eigenvectors V = [[V1, X S], [0, S]] and W about V^-1, as bounds.

    Attributes:
        values: Approximate eigenvalues, complex.
        vectors: Bound on norm(V).
        inverse: Bound on norm(W).
        defect: Bound on norm(I - W V).
        residual: Bound on norm(B V - V L), in Frobenius norm.
    """

    values: Tensor
    vectors: float
    inverse: float
    defect: float
    residual: float


def eigenvalue_discs(a: Ball) -> Discs:
    """Return discs that enclose the eigenvalues of every matrix of a ball; from the symmetric part where that is close.

    For W about V^-1 and B moved by at most r: radius norm(W) (norm(B V - V L) + r norm(V))/(1 - norm(I - W V)).

    Let M = B + E with fro(E) <= r, R = M V - V L and F = I - W V with norm(F) <= d < 1, for any V, W and diagonal L,
    however they were found. Then W V = I - F is invertible, so V is, and V^-1 = (I - F)^-1 W. Hence M has the
    eigenvalues of V^-1 M V = L + P with P = V^-1 R, and norm(P) <= norm(W) norm(R)/(1 - d). Each of L + t P, for t from
    0 to 1, is within t norm(P) of an entry of L: the discs hold them all, also defective and multiple ones, and by
    continuity in t a component of k discs holds k, counted with multiplicity. Unless d < 1, the radius is infinite.

    Example:
        >>> discs = eigenvalue_discs(Ball(torch.tensor([[0.0, 1.0], [-1.0, 0.0]])))
        >>> discs.radius < 1e-12, len(discs.centres), discs.exponent
        (True, 2, 1)
    """
    # A quick look first: the symmetric part costs more to bound than to compare with.
    if largest_entry(a.work - a.work.mT) <= 4.0 * NEARLY_SYMMETRIC * largest_entry(a.work):
        middle, apart, exponent = symmetric_part(a)
        if apart <= NEARLY_SYMMETRIC:
            values, error = symmetric_discs(middle)
            return Discs(torch.tensor(values, dtype=torch.complex128), add_up(error, apart), exponent)
    work, lost, exponent = scaled(a)
    moved = add_up(lost, upper_scaled(a.radius, exponent))
    idle, value = _idle_rows(work)
    for chosen in (idle, torch.zeros_like(idle)) if bool(idle.any()) else (idle,):
        discs = _discs(work, moved, exponent, chosen, value)
        if discs.radius <= TRUSTED:
            break
    return discs


def _idle_rows(matrix: Tensor) -> tuple[Tensor, float]:
    """Return a mask of the rows that are c times a row of the identity, for one c, and c."""
    diagonal = matrix.diagonal()
    idle = (matrix != 0).sum(dim=1) == (diagonal != 0).to(torch.int64)
    places = idle.nonzero()
    if not len(places):
        return idle, 0.0
    value = float(diagonal[places[0, 0]])
    return idle & (diagonal == value), value


def _discs(work: Tensor, moved: float, exponent: int, idle: Tensor, value: float) -> Discs:
    order = work.shape[0]
    basis = _basis(work, idle, value)
    if basis is None:
        return Discs(torch.zeros(order, dtype=torch.complex128), math.inf, exponent)
    gap = subtract_down(1.0, basis.defect)
    off = add_up(basis.residual, multiply_up(moved, basis.vectors))
    return Discs(basis.values.cpu(), divide_up(multiply_up(basis.inverse, off), gap), exponent)


def _basis(work: Tensor, idle: Tensor, value: float) -> _Basis | None:
    count = int(idle.sum())
    constant = torch.full((count,), value, dtype=torch.complex128, device=work.device)
    if count == work.shape[0]:
        return _Basis(constant, 1.0, 1.0, 0.0, 0.0)
    block = work[~idle][:, ~idle].contiguous()
    found = eigenvectors(block)
    if found is None:
        return None
    values, vectors = found
    inverse, info = torch.linalg.inv_ex(vectors)
    if int(info) != 0 or not bool(torch.isfinite(inverse).all()):
        return None
    # Stacked, W V is [Re W, -Im W; Im W, Re W] times V: the columns of W and of i W, times V.
    halves, turned = _stacked(vectors), torch.cat([_stacked(inverse), _stacked(1j * inverse)], dim=1)
    one = torch.zeros_like(halves)
    one[: len(values)].diagonal().fill_(1.0)
    own = subtract(matmul(Ball(turned), Ball(halves)), Ball(one))
    residual = _residual(block, vectors, values)
    bounds = _Basis(values, _size(vectors), _size(inverse), _length(own), residual)
    if not count:
        return bounds
    return _widened(bounds, torch.cat([values, constant]), work, idle, value, vectors, inverse)


def _stacked(matrix: Tensor) -> Tensor:
    """Return [Re; Im], which has the Frobenius norm of the complex matrix."""
    return torch.cat([matrix.real, matrix.imag])


def _size(matrix: Tensor) -> float:
    """Bound the spectral norm of a complex matrix by that of |Re| + |Im|, each entry of which is rounded once."""
    moduli = Ball(matrix.real.abs() + matrix.imag.abs())
    rounded = outward(1.0 + 2.0 * rounding.unit_roundoff())
    return min(multiply_up(moduli.norm2, rounded), fro_up(_stacked(matrix)))


def _length(a: Ball) -> float:
    """Bound the Frobenius norm of the truth."""
    return add_up(a.fro, a.radius)


def _residual(block: Tensor, vectors: Tensor, values: Tensor) -> float:
    """Bound fro(B V - V L)."""
    apart = torch.cat([vectors.real, vectors.imag], dim=1)
    image = matmul(Ball(block), Ball(apart))
    real, imaginary = values.real, values.imag
    parts = [vectors.real * real, vectors.imag * imaginary, vectors.real * imaginary, vectors.imag * real]
    shifted = torch.cat([parts[0] - parts[1], parts[2] + parts[3]], dim=1)
    # Two products and a sum: |error| <= 2 u (|p| + |q|) + 2 TINY for each entry, u of each product and u of their sum.
    sizes = add_up(*(fro_up(part) for part in parts))
    rounded = multiply_up(outward(2.0 * rounding.unit_roundoff() * (1.0 + 2.0**-20)), sizes)
    underflow = multiply_up(2.0 * shifted.numel(), TINY)
    return add_up(_length(subtract(image, Ball(shifted))), rounded, underflow)


def _widened(
    own: _Basis, values: Tensor, work: Tensor, idle: Tensor, value: float, vectors: Tensor, inverse: Tensor
) -> _Basis | None:
    """Add the eigenvectors [X S; S] for c, with (c I - B1) X about C and S powers of two that bring columns near 1."""
    block, beside = work[~idle][:, ~idle].contiguous(), work[~idle][:, idle].contiguous()
    shift = torch.zeros_like(block)
    shift.diagonal().fill_(value)
    against = subtract(Ball(shift), Ball(block))
    solution, info = torch.linalg.solve_ex(against.centre, beside)
    if int(info) != 0 or not bool(torch.isfinite(solution).all()):
        return None
    lengths = (1.0 + (solution * solution).sum(dim=0)).sqrt()
    scale = solution.new_tensor([math.ldexp(1.0, 1 - power_of_two(x)) for x in lengths.tolist()])
    ball = Ball(solution * scale)  # X S itself, whatever the product rounds to
    residual = subtract(matmul(against, ball), Ball(beside * scale))
    # W1 X S: W's corner is minus its centre over S, the defect its rest.
    coupled = matmul(Ball(_stacked(inverse)), ball)
    corner = torch.complex(*(coupled.centre / scale).chunk(2))
    # Where a scaling by powers of two leaves the normal numbers.
    lost = multiply_up(2.0 * float(len(values) ** 2), TINY)
    return _Basis(
        values,
        _size(_joined(vectors, ball.centre, scale)),
        _size(_joined(inverse, corner, 1.0 / scale)),
        add_up(own.defect, coupled.radius, lost),
        add_up(own.residual, _length(residual), lost),
    )


def _joined(block: Tensor, beside: Tensor, diagonal: Tensor) -> Tensor:
    """Return [[block, beside], [0, diag(diagonal)]]."""
    below = torch.cat([torch.zeros_like(beside.mT), torch.diag(diagonal)], dim=1)
    return torch.cat([torch.cat([block, beside], dim=1), below])


def _bounded(low: arb | None, high: arb) -> arb:
    """Return the ball of [low, high], or no information where an end is missing."""
    if low is None or not (low.is_finite() and high.is_finite()):
        return nan()
    return from_bounds(low, high) if low.lower() <= high.upper() else nan()


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
    discs = eigenvalue_discs(a)
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
    discs = eigenvalue_discs(a)
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
