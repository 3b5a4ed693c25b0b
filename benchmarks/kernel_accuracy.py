"""Structured kernel against automatic differentiation and the dense implicit Jacobian, block by block, in float64."""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from benchmarks.instances import digits, relu_model, sphere
from benchmarks.machine import print_machine, print_table, verdict
from ntk_deq.quantities import ntk_gram
from ntk_deq.systems import EquilibriumModel, LinearImplicit

TARGET = 1e-12


def difference(first: Tensor, second: Tensor) -> float:
    """Return the relative Frobenius difference."""
    return float((first - second).norm() / second.norm())


def linear_model(d: int, m: int) -> LinearImplicit:
    """Return a linear implicit network with ||W|| = 0.5."""
    return LinearImplicit.random(d, m, generator=torch.Generator().manual_seed(0))


def main() -> int:
    """Print the differences and return the number of missed targets."""
    print_machine()
    instances: list[tuple[str, EquilibriumModel, Tensor]] = [
        ("random N=20 d=8 m=12", relu_model(8, 12), sphere(20, 8)),
        ("random N=8 d=16 m=40", relu_model(16, 40), sphere(8, 16)),
        ("random N=8 d=5 m=20, gamma=0.95", relu_model(5, 20, gamma=0.95), sphere(8, 5)),
        ("MNIST 0/1 N=12 m=16", relu_model(784, 16), digits(12)),
        ("linear, random N=20 d=8 m=12", linear_model(8, 12), sphere(20, 8)),
        ("linear, MNIST 0/1 N=12 m=16", linear_model(784, 16), digits(12)),
    ]
    rows, worst = [], 0.0
    for title, model, X in instances:
        kernel = ntk_gram(model, X)
        for method in ("autodiff", "jacobian"):
            other = ntk_gram(model, X, method=method)
            values = {name: difference(kernel.blocks[name], block) for name, block in other.blocks.items()}
            values["whole"] = difference(kernel.matrix, other.matrix)
            rows.append([title, method, *(f"{name} {value:.1e}" for name, value in values.items())])
            worst = max(worst, *values.values())
    print_table(["instance", "against", "", "", "", ""], rows)
    return verdict(f"largest relative Frobenius difference {worst:.1e} <= {TARGET:.0e}", worst <= TARGET)


if __name__ == "__main__":
    sys.exit(main())
