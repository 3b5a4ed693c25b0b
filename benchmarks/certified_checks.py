"""Every bound of the certified layer on one matrix, held against exact arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import flint
import torch
from flint import arb, fmpz_mat
from torch import Tensor

from benchmarks.certified_families import Case, around, partner
from benchmarks.certified_truth import (
    Spectrum,
    complex_roots,
    distance_exceeds,
    dyadic,
    gram_spectrum,
    inverse_outside,
    symmetric_spectrum,
    whole,
)
from ntk_deq import certified as ct
from ntk_deq.certified import Ball
from ntk_deq.certified.structured import densified

GENERAL = 8
"""Largest order at which eigenvalues of matrices that are not symmetric are isolated."""


STEPS = tuple(sign * size for size in (2.0**-53, 2.0**-51, 1e-15, 1e-14, 1e-12, 1e-9, 1e-3) for sign in (1.0, -1.0))
"""Distances of a claimed lower bound from the smallest eigenvalue, relative to the matrix."""


@dataclass(frozen=True)
class Check:
    """One bound held against the truth.

    Attributes:
        what: Name of the function.
        violated: The truth is outside for certain.
        informative: The bound said anything.
        undecided: Exact arithmetic did not settle it.
    """

    what: str
    violated: bool
    informative: bool = True
    undecided: bool = False


def check_case(case: Case) -> Iterator[Check]:
    """Yield every check of one matrix."""
    yield from _sums_and_products(case)
    yield from _norms(case)
    yield from _singular_values(case)
    if case.matrix.shape[0] == case.matrix.shape[1]:
        yield from _inverses(case)
        yield from _symmetric(case)
        if case.matrix.shape[0] <= GENERAL:
            yield from _general_eigenvalues(case)


def _ball(tensor: Tensor, case: Case) -> Ball:
    return Ball(tensor) if case.ball.is_exact else around(tensor, case.generator)


def _matrix(what: str, truth: tuple[fmpz_mat, int], found: object) -> Check:
    ball = densified(found)
    informative = ball.is_finite
    return Check(what, informative and distance_exceeds(truth, ball.centre, ball.radius), informative)


def _entrywise(truth: list[int], rows: int, cols: int) -> fmpz_mat:
    return fmpz_mat(rows, cols, truth)


def _sums_and_products(case: Case) -> Iterator[Check]:
    rows, cols = case.matrix.shape
    other, right, small = partner(case, rows, cols), partner(case, cols, 4), partner(case, 2, 3)
    a, b, c, d = case.ball, _ball(other, case), _ball(right, case), _ball(small, case)
    (x, ex), (y, ey), (z, ez), (w, ew) = (whole(tensor) for tensor in (case.matrix, other, right, small))
    low = min(ex, ey)
    lifted, carried = x * (1 << (ex - low)), y * (1 << (ey - low))
    yield _matrix("add", (lifted + carried, low), ct.add(a, b))
    yield _matrix("subtract", (lifted - carried, low), ct.subtract(a, b))
    pairs = [int(p) * int(q) for p, q in zip(x.entries(), y.entries(), strict=True)]
    yield _matrix("hadamard", (_entrywise(pairs, rows, cols), ex + ey), ct.hadamard(a, b))
    yield _matrix("matmul", (x * z, ex + ez), ct.matmul(a, c))
    yield _matrix("gram", (x * x.transpose(), 2 * ex), ct.matmul(a, ct.transpose(a)))
    cells = [int(x[i, j]) * int(w[p, q]) for i in range(rows) for p in range(2) for j in range(cols) for q in range(3)]
    yield _matrix("kron", (_entrywise(cells, 2 * rows, 3 * cols), ex + ew), ct.kron(a, d))
    factor = (2.0 ** (-8.0 + 16.0 * float(torch.rand((), generator=case.generator)))) / 3.0
    top, exponent = dyadic(factor)
    yield _matrix("scale", (x * top, ex + exponent), ct.scale(arb(factor), a))
    cut = [max(0, int(p)) for p in x.entries()]
    yield _matrix("relu", (_entrywise(cut, rows, cols), ex), ct.relu(a))


def _number(what: str, truth: arb, found: arb) -> Check:
    informative = found.is_finite()
    return Check(what, informative and not found.overlaps(truth), informative)


def _norms(case: Case) -> Iterator[Check]:
    numbers, exponent = whole(case.matrix)
    rows, cols = case.matrix.shape
    table = [[int(numbers[i, j]) for j in range(cols)] for i in range(rows)]
    with flint.ctx.workprec(4096):
        unit = arb(flint.arf((1, exponent)))
        fro = arb(sum(v * v for row in table for v in row)).sqrt() * unit
        one = arb(max(sum(abs(row[j]) for row in table) for j in range(cols))) * unit
        infinity = arb(max(sum(abs(v) for v in row) for row in table)) * unit
        total = arb(sum(v for row in table for v in row)) * unit
        largest = arb(max(v for row in table for v in row)) * unit
        trace = arb(sum(table[i][i] for i in range(min(rows, cols)))) * unit
    a = case.ball
    yield _number("frobenius", fro, ct.frobenius(a))
    yield _number("norm1", one, ct.norm1(a))
    yield _number("norminf", infinity, ct.norminf(a))
    yield _number("entry_sum", total, ct.entry_sum(a))
    yield _number("entry_max", largest, ct.entry_max(a))
    if rows == cols:
        yield _number("trace", trace, ct.trace(a))


def _singular_values(case: Case) -> Iterator[Check]:
    spectrum = gram_spectrum(case.matrix)
    last = spectrum.order - 1
    values = ct.singular_values(case.ball)
    bad = sum(spectrum.misses_root(last - place, value) for place, value in enumerate(values))
    yield Check("singular_values", bool(bad), all(value.is_finite() for value in values))
    for name, place in (("sigma_max", last), ("sigma_min", 0)):
        found = getattr(ct, name)(case.ball)
        yield Check(name, spectrum.misses_root(place, found), found.is_finite() and bool(found > 0))
    yield Check("spectral_norm", spectrum.misses_root(last, ct.spectral_norm(case.ball)))


def _inverses(case: Case) -> Iterator[Check]:
    found = ct.inverse(case.ball)
    if not found.is_finite:
        yield Check("inverse", False, informative=False)
        return
    verdict = inverse_outside(case.matrix, found.centre, found.radius)
    yield Check("inverse", verdict is True, undecided=verdict is None)


def _symmetric(case: Case) -> Iterator[Check]:
    even = torch.tril(case.matrix) + torch.tril(case.matrix, -1).mT
    if not bool(torch.isfinite(even).all()):
        return
    spectrum = symmetric_spectrum(even)
    ball = _ball(even, case)
    values = ct.eigenvalues_symmetric(ball)
    yield Check("eigenvalues_symmetric", bool(spectrum.misses(values)), all(value.is_finite() for value in values))
    low, high = ct.lambda_min(ball, symmetric=True), ct.lambda_max(ball, symmetric=True)
    below = low.is_finite() and (spectrum.below(low.lower()) > 0 or spectrum.above(low.upper()) == spectrum.order)
    above = high.is_finite() and (spectrum.above(high.upper()) > 0 or spectrum.below(high.lower()) == spectrum.order)
    yield Check("lambda_min", below, low.is_finite())
    yield Check("lambda_max", above, high.is_finite())
    near = float(low.mid()) if low.is_finite() else 0.0
    size = max(abs(near), float(even.abs().amax()))
    tight = [_first_above(spectrum, near, size)] if ball.is_exact else []
    for bound in (*(near + step * size for step in STEPS), *tight, *(bound + 2.0**-53 * size for bound in tight)):
        least, under = ct.lambda_min_at_least(ball, bound), ct.lambda_min_below(ball, bound)
        fails = spectrum.below(bound) > 0
        yield Check("lambda_min_at_least", least is True and fails, least is True or fails)
        yield Check("lambda_min_below", under is True and not fails, under is True or not fails)


def _first_above(spectrum: Spectrum, near: float, size: float) -> float:
    """Return the first float above the smallest eigenvalue, the tightest false claim of a lower bound."""
    low, high = near - 1e-9 * size, near + 1e-9 * size
    if spectrum.below(low) or not spectrum.below(high):
        return near
    while low < (middle := low + (high - low) / 2) < high:
        low, high = (low, middle) if spectrum.below(middle) else (middle, high)
    return high


def _general_eigenvalues(case: Case) -> Iterator[Check]:
    roots = complex_roots(case.matrix)
    with flint.ctx.workprec(512):
        real, moduli = [root.real for root in roots], [abs(root) for root in roots]
        largest, smallest, modulus = (_extreme(values) for values in (real, [-v for v in real], moduli))
    for what, truth, found in (
        ("lambda_max general", largest, ct.lambda_max(case.ball)),
        ("lambda_min general", -smallest, ct.lambda_min(case.ball)),
        ("rho", modulus, ct.rho(case.ball)),
    ):
        yield _number(what, truth, found)
    determinant, exponent = whole(case.matrix)
    exact = Fraction(int(determinant.det())) * Fraction(2) ** (exponent * case.matrix.shape[0])
    yield _number("determinant", arb(flint.fmpq(exact.numerator, exact.denominator)), ct.determinant(case.ball))


def _extreme(values: list[arb]) -> arb:
    """Return a ball of the largest of some balls."""
    best = values[0]
    for value in values[1:]:
        best = value.max(best)
    return best
