"""Matrices that are hard on error bounds, each reproducible from a seed and its number."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.certified_truth import whole
from ntk_deq.certified import Ball

LARGEST = 60
_WILD = 12  # largest size of families whose exponents differ so much that exact arithmetic gets slow


def _normal(rows: int, cols: int, generator: torch.Generator) -> Tensor:
    return torch.randn(rows, cols, dtype=torch.float64, generator=generator)


def _uniform(generator: torch.Generator) -> float:
    return float(torch.rand((), dtype=torch.float64, generator=generator))


def _orthogonal(n: int, generator: torch.Generator) -> Tensor:
    return torch.linalg.qr(_normal(n, n, generator))[0]


def _with_values(rows: int, cols: int, values: Tensor, generator: torch.Generator) -> Tensor:
    count = min(rows, cols)
    return (_orthogonal(rows, generator)[:, :count] * values[:count]) @ _orthogonal(cols, generator)[:count]


def _ill_conditioned(rows: int, cols: int, generator: torch.Generator) -> Tensor:
    digits = 16.0 * _uniform(generator)
    return _with_values(rows, cols, 10.0 ** torch.linspace(0, -digits, min(rows, cols), dtype=torch.float64), generator)


def _one_small_value(rows: int, cols: int, generator: torch.Generator) -> Tensor:
    values = torch.ones(min(rows, cols), dtype=torch.float64)
    values[-1] = 10.0 ** (-16.0 * _uniform(generator))
    return _with_values(rows, cols, values, generator)


def _rank_deficient(rows: int, cols: int, generator: torch.Generator) -> Tensor:
    rank = max(1, min(rows, cols) // 2)
    return (3 * _normal(rows, rank, generator)).round() @ (3 * _normal(rank, cols, generator)).round()


def _clustered(rows: int, cols: int, generator: torch.Generator) -> Tensor:
    values = 1.0 + 1e-13 * torch.arange(min(rows, cols), dtype=torch.float64)
    return _with_values(rows, cols, values, generator)


def _monomial(rows: int, cols: int, generator: torch.Generator) -> Tensor:
    order = torch.randperm(max(rows, cols), generator=generator)
    return torch.eye(max(rows, cols), dtype=torch.float64)[order][:rows, :cols] * _normal(rows, cols, generator)


def _triangular(rows: int, cols: int, generator: torch.Generator) -> Tensor:
    return torch.triu(_normal(rows, cols, generator))


def _span(rows: int, cols: int, generator: torch.Generator, decades: float) -> Tensor:
    spread = torch.rand(rows, cols, dtype=torch.float64, generator=generator) - 0.5
    return _normal(rows, cols, generator) * 10.0 ** (decades * spread)


Draw = Callable[[int, int, torch.Generator], Tensor]

FAMILIES: dict[str, Draw] = {
    "gaussian": _normal,
    "whole numbers": lambda r, c, g: (3 * _normal(r, c, g)).round(),
    "nonnegative": lambda r, c, g: torch.relu(_normal(r, c, g)),
    "graded rows": lambda r, c, g: _normal(r, c, g) * 10.0 ** torch.linspace(0, -14, r, dtype=torch.float64)[:, None],
    "graded columns": lambda r, c, g: _normal(r, c, g) * 10.0 ** torch.linspace(0, -14, c, dtype=torch.float64),
    "graded entries": lambda r, c, g: _span(r, c, g, 30),
    "ill-conditioned": _ill_conditioned,
    "one small value": _one_small_value,
    "repeated values": lambda r, c, g: 3 * _orthogonal(max(r, c), g)[:r, :c],
    "clustered values": _clustered,
    "rank one": lambda r, c, g: (2 * _normal(r, 1, g)).round() @ (2 * _normal(1, c, g)).round(),
    "rank deficient": _rank_deficient,
    "twin columns": lambda r, c, g: _normal(r, c, g)[:, torch.arange(c) // 2],
    "scale 1e150": lambda r, c, g: _normal(r, c, g) * 1e150,
    "scale 1e-150": lambda r, c, g: _normal(r, c, g) * 1e-150,
    "subnormal": lambda r, c, g: _normal(r, c, g) * 1e-310,
    "nearly subnormal": lambda r, c, g: _normal(r, c, g) * 10.0 ** (-300 - 20 * _uniform(g)),
    "powers of two": lambda r, c, g: 2.0 ** (5 * _normal(r, c, g)).round(),
    "triangular": _triangular,
    "monomial": _monomial,
    "zero": lambda r, c, g: torch.zeros(r, c, dtype=torch.float64),
    "wild entries": lambda r, c, g: _span(r, c, g, 300),
    "some subnormal entries": lambda r, c, g: torch.where(_normal(r, c, g) > 0, _normal(r, c, g), 1e-310),
}

_EXPONENTS_APART = ("wild entries", "some subnormal entries")


@dataclass(frozen=True)
class Case:
    """One matrix of the run.

    Attributes:
        name: Seed, number, family and size, for people and to draw it again.
        matrix: The truth, float64.
        ball: A ball that contains it: exact, or off-centre and just wide enough.
        generator: For everything that goes with it.
    """

    name: str
    matrix: Tensor
    ball: Ball
    generator: torch.Generator


def case(seed: int, index: int, *, largest: int = LARGEST) -> Case:
    """Draw matrix number `index`: every family in turn, every 20th larger than half, every 11th long and thin."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + index)
    family = list(FAMILIES)[index % len(FAMILIES)]
    rows, cols = _sizes(family, index, largest, generator)
    matrix = FAMILIES[family](rows, cols, generator)
    blurred = _uniform(generator) < 0.4
    ball = around(matrix, generator) if blurred else Ball(matrix)
    return Case(f"seed {seed}, matrix {index}: {family}, {rows} x {cols}", matrix, ball, generator)


def _sizes(family: str, index: int, largest: int, generator: torch.Generator) -> tuple[int, int]:
    draw = [_uniform(generator) for _ in range(3)]
    half = min(_WILD, largest) if family in _EXPONENTS_APART else largest // 2
    if index % 11 == 10:
        thin = 1 + int(3 * draw[0])
        return (LARGEST, thin) if draw[1] < 0.5 else (thin, LARGEST)
    if index % 20 == 19 and family not in _EXPONENTS_APART:
        rows, cols = half + 1 + int(half * draw[0]), half + 1 + int(half * draw[1])
    else:
        rows, cols = 1 + int(half * draw[0] ** 2), 1 + int(half * draw[1] ** 2)
    return (rows, rows) if draw[2] < 0.6 else (rows, cols)


def around(matrix: Tensor, generator: torch.Generator) -> Ball:
    """Return a ball whose centre is off and whose radius is the distance of the matrix, rounded up once."""
    size = float(matrix.abs().amax()) or 1.0
    relative = 10.0 ** (-1.0 - 14.0 * _uniform(generator))
    noise = torch.randn(matrix.shape, dtype=torch.float64, generator=generator) * (size * relative)
    centre = matrix + noise
    (exact, low), (near, other) = whole(matrix), whole(centre)
    unit = min(low, other)
    total = sum(
        ((int(a) << (low - unit)) - (int(b) << (other - unit))) ** 2
        for a, b in zip(exact.entries(), near.entries(), strict=True)
    )
    bits = max(0, total.bit_length() - 120) & ~1  # keep 60 bits of the root
    root = math.isqrt(total >> bits) + 1
    return Ball(centre, math.nextafter(math.ldexp(float(root), unit + bits // 2), math.inf))


def partner(case: Case, rows: int, cols: int) -> Tensor:
    """Draw a matrix to go with a case, of a family of its own; two huge ones would only overflow."""
    names = list(FAMILIES)
    name = names[int(_uniform(case.generator) * len(names))]
    largest = float(case.matrix.abs().amax())
    if largest > 1e140 and name in ("scale 1e150", "wild entries"):
        name = "gaussian"
    if max(rows, cols) > _WILD and name in _EXPONENTS_APART:
        name = "graded entries"
    return FAMILIES[name](rows, cols, case.generator)
