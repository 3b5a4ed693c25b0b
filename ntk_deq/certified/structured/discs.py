"""Discs around the eigenvalues of one block, and upward bounds for many matrices at once.

With D = diag(0 or 1) many rows of I - gamma D A' are rows of I. A permutation brings such a block to the form
B = [[B1, C], [0, c I]], with eigenvalue c and those of B1: eigenvectors are needed of B1 only, half the size and with a
better condition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified import rounding
from ntk_deq.certified.arithmetic import matmul, subtract
from ntk_deq.certified.dense import Ball
from ntk_deq.certified.eigenvalues import NEARLY_SYMMETRIC, TRUSTED, Discs, eigenvalue_discs, eigenvectors, real_form
from ntk_deq.certified.rounding import (
    SAFE_HIGH,
    SAFE_LOW,
    TINY,
    add_up,
    divide_up,
    fro_up,
    largest_entry,
    multiply_up,
    outward,
    power_of_two,
    subtract_down,
    times_power_of_two,
    unit_roundoff,
)
from ntk_deq.certified.spectra import scaled, symmetric_part, upper_scaled


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


def block_discs(a: Ball) -> Discs:
    """Return discs that enclose the eigenvalues of every matrix of a ball, as `eigenvalue_discs`.

    For W about V^-1 and B moved by at most r: radius norm(W) (norm(B V - V L) + r norm(V))/(1 - norm(I - W V)).

    Example:
        >>> discs = block_discs(Ball(torch.tensor([[0.5, 1.0], [0.0, 1.0]], dtype=torch.float64)))
        >>> discs.radius < 1e-14, sorted(discs.centres.real.tolist()), discs.exponent
        (True, [0.25, 0.5], 1)
    """
    # A quick look first: the symmetric part costs more to bound than to compare with.
    turned = largest_entry(a.work - a.work.mT) <= 4.0 * NEARLY_SYMMETRIC * largest_entry(a.work)
    if turned and symmetric_part(a)[1] <= NEARLY_SYMMETRIC:
        return eigenvalue_discs(a)
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
    halves, turned = _stacked(vectors), real_form(inverse)
    one = torch.zeros_like(halves)
    one[: len(values)].diagonal().fill_(1.0)
    own = subtract(matmul(Ball(turned), Ball(halves)), Ball(one))
    residual = _residual(block, vectors, values)
    bounds = _Basis(values, fro_up(halves), _size(inverse), _length(own), residual)
    if not count:
        return bounds
    return _widened(bounds, torch.cat([values, constant]), work, idle, value, inverse)


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


def _widened(own: _Basis, values: Tensor, work: Tensor, idle: Tensor, value: float, inverse: Tensor) -> _Basis | None:
    """Add the eigenvectors [X S; S] for c, with (c I - B1) X about C and S powers of two that bring columns near 1."""
    block, beside = work[~idle][:, ~idle].contiguous(), work[~idle][:, idle].contiguous()
    shift = torch.zeros_like(block)
    shift.diagonal().fill_(value)
    against = subtract(Ball(shift), Ball(block))
    solution, info = torch.linalg.solve_ex(against.centre, beside)
    if int(info) != 0 or not bool(torch.isfinite(solution).all()):
        return None
    lengths = (1.0 + (solution * solution).sum(dim=0)).sqrt()
    scale = torch.tensor([math.ldexp(1.0, 1 - power_of_two(x)) for x in lengths.tolist()]).to(solution)
    ball = Ball(solution * scale)  # powers of two: exact unless the solution is useless
    residual = subtract(matmul(against, ball), Ball(beside * scale))
    coupled = matmul(
        Ball(_stacked(inverse)), ball
    )  # W1 X S: W's corner is minus its centre over S, the defect its rest
    corner = torch.complex(*coupled.centre.chunk(2)) / scale
    whole = torch.zeros(len(values), len(values), dtype=torch.complex128, device=work.device)
    split = len(inverse)
    whole[:split, :split], whole[:split, split:] = inverse, corner
    whole[split:, split:].diagonal().copy_(1.0 / scale)
    lost = multiply_up(2.0 * float(whole.numel()), TINY)  # where a scaling by powers of two leaves the normal numbers
    return _Basis(
        values,
        add_up(own.vectors, ball.fro, fro_up(scale[None])),
        _size(whole),
        add_up(own.defect, coupled.radius, lost),
        add_up(own.residual, _length(residual), lost),
    )


Bounds = Float[Tensor, " k"]


def _up(rounded: Tensor, zero: Tensor) -> Tensor:
    """Move results of one rounded operation outward; exact zeros stay, what is not a number is infinite."""
    moved = torch.nextafter(rounded, torch.full_like(rounded, math.inf))
    return torch.where(zero, torch.zeros_like(moved), moved).nan_to_num(nan=math.inf, posinf=math.inf)


def add_each(*values: Tensor) -> Tensor:
    """Return upper bounds of sums of nonnegative floats.

    Example:
        >>> add_each(torch.zeros(2), torch.tensor([0.0, 0.25])).tolist()
        [0.0, 0.25]
    """
    total = values[0]
    for value in values[1:]:
        rounded = torch.nextafter(total + value, torch.full_like(total + value, math.inf))
        total = torch.where(total == 0, value, torch.where(value == 0, total, rounded))
    return total.nan_to_num(nan=math.inf, posinf=math.inf)


def multiply_each(*values: Tensor) -> Tensor:
    """Return upper bounds of products of nonnegative floats; infinite where a factor is, zero or not.

    Example:
        >>> multiply_each(torch.zeros(2), torch.tensor([3.0, math.inf])).tolist()
        [0.0, inf]
    """
    total = values[0]
    for value in values[1:]:
        known = torch.isfinite(total) & torch.isfinite(value)
        product = _up(total * value, (total == 0) | (value == 0))
        total = torch.where(known, product, torch.full_like(product, math.inf))
    return total


def root_each(values: Tensor) -> Tensor:
    """Return upper bounds of square roots.

    Example:
        >>> root_each(torch.tensor([0.0, 4.0])).tolist()[0]
        0.0
    """
    return _up(values.sqrt(), values == 0)


def divide_each(numerators: Tensor, denominators: Tensor) -> Tensor:
    """Return upper bounds of quotients of nonnegative floats; infinite where the denominator is not positive.

    Example:
        >>> divide_each(torch.tensor([0.0, 1.0]), torch.tensor([2.0, 0.0])).tolist()
        [0.0, inf]
    """
    known = torch.isfinite(numerators) & (denominators > 0)
    quotients = _up(numerators / denominators, numerators == 0)
    return torch.where(known, quotients, torch.full_like(quotients, math.inf))


def product_radii(size_a: Tensor, radius_a: Tensor, size_b: Tensor, radius_b: Tensor) -> Tensor:
    """Return |A| rB + rA |B| + rA rB for each pair: what a bilinear product inherits from its factors' radii.

    Example:
        >>> one = torch.ones(1)
        >>> product_radii(one, 0 * one, one, 0 * one).item()
        0.0
    """
    return add_each(multiply_each(size_a, radius_b), multiply_each(radius_a, size_b), multiply_each(radius_a, radius_b))


def sum_each(computed: Tensor, terms: int) -> Tensor:
    """Return upper bounds of sums of nonnegative doubles that were computed in any order, as `summation_up`.

    Args:
        computed: The rounded sums.
        terms: Number of terms, or of roundings that one term passes through.

    Example:
        >>> sum_each(torch.ones(1, dtype=torch.float64), 3).item() > 1
        True
    """
    slack = terms * unit_roundoff()
    if not slack < 0.5:  # the bound 1/(1 - t) <= 1 + 2 t
        return torch.full_like(computed, math.inf)
    return multiply_each(computed, torch.full_like(computed, outward(1.0 + 2.0 * slack)))


def largest_each(stack: Float[Tensor, "k p q"]) -> Bounds:
    """Return the largest absolute value of an entry of each matrix, exactly.

    Example:
        >>> largest_each(torch.tensor([[[1.0, -2.0]]])).tolist()
        [2.0]
    """
    low, high = stack.flatten(1).aminmax(dim=1)
    return torch.maximum(-low, high) + 0.0  # never minus zero


def fro_each(stack: Float[Tensor, "k p q"]) -> Bounds:
    """Return an upper bound of each matrix's Frobenius norm.

    Where a square may leave the range, one power of two scales them all, so that a matrix far smaller than the largest
    (by 2^-530) gets a bound that is negligible beside the largest, not beside itself.

    Example:
        >>> fro_each(torch.zeros(2, 1, 1)).tolist()
        [0.0, 0.0]
    """
    work = stack.double()
    rounded = torch.linalg.vector_norm(work, dim=(1, 2))
    low, high = (float(end) for end in rounded.aminmax())
    if SAFE_LOW < low and high < SAFE_HIGH:
        return _norms(rounded, work)
    sizes = largest_each(work)
    largest = largest_entry(sizes)
    if largest == 0:
        return sizes
    if not math.isfinite(largest):
        return torch.full_like(sizes, math.inf)
    exponent = power_of_two(largest)
    moved = times_power_of_two(work, -exponent)
    norms = _norms(torch.linalg.vector_norm(moved, dim=(1, 2)), moved)
    lost = multiply_up(float(moved[0].numel()), TINY)  # entries that the scaling pushed below 2^-1074
    norms, half = add_each(norms, torch.full_like(norms, lost)), exponent // 2
    for part in (half, exponent - half):
        norms = multiply_each(norms, torch.full_like(norms, math.ldexp(1.0, part)))
    return torch.where(sizes == 0, torch.zeros_like(norms), norms)


def _norms(rounded: Tensor, work: Tensor) -> Bounds:
    """Bound norms from their rounded values, entries being at most about 2^480."""
    count = work.shape[1] * work.shape[2]
    # A rounded sum of rounded squares, and a rounded root: one rounding more for the square, two for the root.
    squares = sum_each(multiply_each(rounded, rounded), count + 3)
    return root_each(add_each(squares, torch.full_like(squares, multiply_up(float(count), TINY))))


def norm2_each(stack: Float[Tensor, "k p q"], fro: Bounds) -> Bounds:
    """Return an upper bound of the spectral norm of each matrix, and of its entries' absolute values.

    The root of the product of one-norm and infinity-norm, or the Frobenius norm.

    Args:
        stack: The matrices.
        fro: Bounds of their Frobenius norms.

    Example:
        >>> norm2_each(torch.zeros(1, 2, 2), torch.zeros(1, dtype=torch.float64)).item()
        0.0
    """
    work = stack.double()
    # Sums of absolute values without a copy of these, which would cost as much as a product.
    sums = [torch.linalg.vector_norm(work, 1, dim=dim) for dim in (1, 2)]
    columns, rows = (sum_each(sums[dim].amax(dim=1), stack.shape[1 + dim]) for dim in (0, 1))
    return torch.minimum(root_each(multiply_each(columns, rows)), fro)
