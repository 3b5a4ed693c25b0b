"""The truth in 3000-bit ball arithmetic, and matrices that are hard on error bounds."""

import math
from collections.abc import Iterator
from fractions import Fraction

import flint
import torch
from flint import arb, arb_mat

from ntk_deq.certified import Ball

BITS = 3000
"""Squares of entries from 2^-1074 to 2^1023 and their eliminations keep more than 200 correct bits."""


def truth(tensor: torch.Tensor) -> arb_mat:
    """Return a tensor as an exact matrix."""
    rows, cols = tensor.shape
    return arb_mat(rows, cols, [arb(value) for value in tensor.double().reshape(-1).tolist()])


def squared_distance(exact: arb_mat, centre: torch.Tensor) -> arb:
    """Return the squared Frobenius distance of a matrix to a centre."""
    gap = exact - truth(centre)
    return sum((x * x for x in gap.entries()), arb(0))


def violates(exact: arb_mat, ball: Ball) -> bool:
    """Return whether the truth is for certain outside a ball."""
    if not ball.is_finite:
        return False
    return bool(squared_distance(exact, ball.centre) > arb(ball.radius) * arb(ball.radius))


def inertia(matrix: arb_mat, shift: arb) -> tuple[int, int]:
    """Return how many eigenvalues of a symmetric matrix are below and above a shift (Sylvester), by elimination."""
    n = matrix.nrows()
    work = [[matrix[i, j] - (shift if i == j else 0) for j in range(n)] for i in range(n)]
    below = above = 0
    for k in range(n):
        pivot = work[k][k]
        below += bool(pivot < 0)
        above += bool(pivot > 0)
        if not (pivot > 0 or pivot < 0):
            raise AssertionError("the elimination lost its sign")
        for i in range(k + 1, n):
            factor = work[i][k] / pivot
            for j in range(k + 1, n):
                work[i][j] -= factor * work[k][j]
    return below, above


def nudged(value: arb, sign: int) -> arb:
    """Return an end of a ball moved outward by a relative 2^-100, so that an exact eigenvalue has no zero pivot."""
    size = abs(value)
    return value + sign * (size * arb(2) ** -100 + arb(2) ** -2400)


def eigenvalue_violations(matrix: arb_mat, ascending: list[arb], squares: bool = False) -> int:
    """Count balls (of roots, where `squares`) that for certain do not contain the eigenvalue of their place."""
    n, bad = matrix.nrows(), 0
    for place, value in enumerate(ascending):
        if not value.is_finite():
            continue
        low, high = value.lower(), value.upper()
        if squares:
            low, high = low * low if low > 0 else arb(-1), high * high
        below, _ = inertia(matrix, nudged(low, -1))
        _, above = inertia(matrix, nudged(high, 1))
        bad += below > place or above > n - 1 - place
    return bad


def singular_violations(tensor: torch.Tensor, descending: tuple[arb, ...]) -> int:
    """Count balls of singular values that for certain miss the true ones."""
    with flint.ctx.workprec(BITS):
        exact = truth(tensor if tensor.shape[0] >= tensor.shape[1] else tensor.mT)
        return eigenvalue_violations(exact.transpose() * exact, list(reversed(descending)), squares=True)


def holds(value: arb, exact: Fraction | int | float | arb) -> bool:
    """Return whether a ball contains a number."""
    if isinstance(exact, Fraction):
        exact = arb(flint.fmpq(exact.numerator, exact.denominator))
    return value.is_finite() and bool(value.overlaps(arb(exact)))


def orthogonal(n: int, generator: torch.Generator) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator))[0]


def matrix(family: str, rows: int, cols: int, generator: torch.Generator) -> torch.Tensor:
    """Draw one matrix of a family."""
    draw = torch.randn(rows, cols, dtype=torch.float64, generator=generator)
    span = torch.rand(rows, cols, dtype=torch.float64, generator=generator)
    match family:
        case "gaussian":
            return draw
        case "whole numbers":
            return (3 * draw).round()
        case "graded rows":
            return draw * 10.0 ** torch.linspace(0, -14, rows, dtype=torch.float64)[:, None]
        case "graded entries":
            return draw * 10.0 ** (30 * (span - 0.5))
        case "wild entries":
            return draw * 10.0 ** (300 * (span - 0.5))
        case "ill-conditioned":
            count = min(rows, cols)
            values = torch.zeros(rows, cols, dtype=torch.float64)
            values.diagonal()[:] = 10.0 ** torch.linspace(0, -14, count, dtype=torch.float64)
            return orthogonal(rows, generator) @ values @ orthogonal(cols, generator)
        case "repeated":
            return (orthogonal(max(rows, cols), generator) * 3)[:rows, :cols]
        case "rank one":
            return (2 * draw[:, :1]).round() @ (2 * draw[:1]).round()
        case "twin columns":
            return draw[:, torch.arange(cols) // 2]
        case "huge":
            return draw * 1e150
        case "tiny":
            return draw * 1e-150
        case "subnormal":
            return draw * 1e-310
        case "nearly subnormal":
            return draw * 10.0 ** (-300 - 20 * span)
        case "powers of two":
            return 2.0 ** (10 * draw).round()
        case "monomial":
            return (
                torch.eye(max(rows, cols), dtype=torch.float64)[:rows, torch.randperm(cols, generator=generator)] * draw
            )
        case "nonnegative":
            return torch.relu(draw)
        case "zero":
            return torch.zeros(rows, cols, dtype=torch.float64)
    raise AssertionError(family)


FAMILIES = (
    "gaussian",
    "whole numbers",
    "graded rows",
    "graded entries",
    "wild entries",
    "ill-conditioned",
    "repeated",
    "rank one",
    "twin columns",
    "huge",
    "tiny",
    "subnormal",
    "nearly subnormal",
    "powers of two",
    "monomial",
    "nonnegative",
    "zero",
)


def cases(count: int, seed: int, square: bool = False) -> Iterator[tuple[str, torch.Tensor, torch.Generator]]:
    """Yield `count` matrices of every family, sizes 1 to 8, some long and thin."""
    generator = torch.Generator().manual_seed(seed)
    for family in FAMILIES:
        for index in range(count):
            rows, cols = (int(n) for n in torch.randint(1, 9, (2,), generator=generator))
            if square:
                cols = rows
            elif index % 5 == 4:
                rows, cols = (60, 1 + cols % 3) if index % 2 else (1 + rows % 3, 60)
            yield family, matrix(family, rows, cols, generator), generator


def partner(family: str, rows: int, cols: int, generator: torch.Generator) -> torch.Tensor:
    """Draw a matrix to go with one of a family, of a family of its own."""
    other = FAMILIES[int(torch.randint(0, len(FAMILIES), (1,), generator=generator))]
    both_wide = {family, other} <= {"huge", "wild entries"}
    return matrix("gaussian" if both_wide else other, rows, cols, generator)


def blurred(tensor: torch.Tensor, generator: torch.Generator) -> Ball:
    """Return a ball whose centre is off and which just contains the tensor."""
    size = float(tensor.abs().amax()) or 1.0
    noise = torch.randn(tensor.shape, dtype=torch.float64, generator=generator) * (size * 1e-3)
    centre = tensor + noise
    with flint.ctx.workprec(BITS):
        reach = squared_distance(truth(tensor), centre).sqrt()
        return Ball(centre, math.nextafter(float(reach), math.inf))
