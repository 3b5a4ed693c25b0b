"""Forward-backward and Peaceman-Rachford on one batch of 512 at m = 200, beside a plain PyTorch loop of the same steps.

The plain loop multiplies, adds, applies relu and looks at the relative change of the whole batch, as tutorials do; it
stops at the tolerance that the solver is given, and has no status, residual or bound.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmarks.machine import medians, print_machine, print_table, verdict
from ntk_deq.equilibrium import ForwardBackward, MonotoneLayer, PeacemanRachford, solve_fixed_point

SAMPLES, WIDTH, ROUNDS = 512, 200, 3
TOLERANCE = 1e-8
AGREEMENT = 10  # in tolerances


def drawn(width: int, samples: int, modulus: float, skew: float, seed: int = 0) -> MonotoneLayer:
    """Return a layer with W = (1 - m) I - A'A + B - B'; A is half of, and B - B' `skew` times, a unit-norm matrix."""
    generator = torch.Generator().manual_seed(seed)
    A, B, c = (torch.randn(rows, width, generator=generator, dtype=torch.float64) for rows in (width, width, samples))
    A = A / (2 * torch.linalg.matrix_norm(A, ord=2))
    B = (B - B.mT) * (skew / torch.linalg.matrix_norm(B - B.mT, ord=2))
    return MonotoneLayer((1 - modulus) * torch.eye(width, dtype=torch.float64) - A.mT @ A + B, c)


def plain_forward_backward(layer: MonotoneLayer, tolerance: float) -> tuple[Tensor, int]:
    """Return what a plain loop finds, and its steps."""
    m, L = layer.modulus, layer.length
    a = m / L**2
    mixed = ((1 - a) * torch.eye(layer.weight.shape[0], dtype=torch.float64) + a * layer.weight).T.contiguous()
    fed, z = a * layer.source, torch.zeros_like(layer.source)
    for count in range(100_000):
        new = torch.relu(torch.addmm(fed, z, mixed))
        if (new - z).norm() <= tolerance * (1 - math.sqrt(1 - (m / L) ** 2)) * new.norm():
            return new, count + 1
        z = new
    return z, count


def plain_peaceman_rachford(layer: MonotoneLayer, tolerance: float) -> tuple[Tensor, int]:
    """Return what a plain loop finds, and its steps; it inverts once."""
    m, L = layer.modulus, layer.length
    a, unit = 1 / L, torch.eye(layer.weight.shape[0], dtype=torch.float64)
    inverse = torch.linalg.inv((1 + a) * unit - a * layer.weight).T.contiguous()
    fed, u = a * layer.source, torch.zeros_like(layer.source)
    for count in range(100_000):
        x = 2 * torch.relu(u) - u
        new = 2 * ((x + fed) @ inverse) - x
        if (new - u).norm() <= tolerance * (1 - math.sqrt((L - m) / (L + m))) * new.norm():
            return torch.relu(new), count + 1
        u = new
    return torch.relu(u), count


def main() -> int:
    """Print the table and return the number of missed targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modulus", type=float, default=0.5)
    parser.add_argument("--skew", type=float, default=1.0)
    given = parser.parse_args()
    print_machine()
    layer = drawn(WIDTH, SAMPLES, given.modulus, given.skew)
    print(f"{SAMPLES} samples, width {WIDTH}, rtol {TOLERANCE:g}; m = {layer.modulus:.4g}, L = {layer.length:.4g}")
    rows, missed = [], 0
    plain: Callable[[MonotoneLayer, float], tuple[Tensor, int]]
    for solver, plain in ((ForwardBackward(), plain_forward_backward), (PeacemanRachford(), plain_peaceman_rachford)):
        solve = partial(
            solve_fixed_point, layer, torch.zeros_like(layer.source), solver=solver, rtol=TOLERANCE, max_steps=100_000
        )
        found, (other, steps) = solve(), plain(layer, TOLERANCE)
        gap = float((found.value - other).norm() / other.norm())
        ours, theirs = medians([solve, partial(plain, layer, TOLERANCE)], ROUNDS)
        bound = found.error_bound
        assert bound is not None
        rows.append(
            [
                solver.name,
                str(int(found.steps.max())),
                f"{ours * 1e3:.0f} ms",
                f"{float(bound.max()):.0e}",
                str(steps),
                f"{theirs * 1e3:.0f} ms",
                f"{ours / theirs:.2f}",
                f"{gap:.0e}",
            ]
        )
        missed += verdict(f"{solver.name}: both agree to {AGREEMENT} tolerances", gap <= AGREEMENT * TOLERANCE)
    print_table(["solver", "steps", "time", "bound", "plain steps", "plain time", "ratio", "difference"], rows)
    return missed


if __name__ == "__main__":
    sys.exit(main())
