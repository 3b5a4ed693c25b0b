"""Width and cost of certified spectra of large matrices, in units of one matrix product of the same size."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.machine import medians, print_machine, print_table, verdict
from ntk_deq import certified as ct
from ntk_deq.certified import Ball

N = 1000
ROUNDS = 5
NORM_WIDTH, SIGMA_WIDTH, CHOLESKY_PRODUCTS = 1e-8, 1e-5, 4.0
SEEDS = (0, 1, 2)


def gaussian(n: int, seed: int) -> Tensor:
    """Return an n x n Gaussian matrix."""
    return torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def relative_width(value: object) -> float:
    """Return the width of a scalar ball over its midpoint."""
    mid, radius = ct.value_and_radius(value)  # type: ignore[arg-type]
    return 2.0 * radius / mid


def widths() -> tuple[list[list[str]], list[float], list[float]]:
    """Return a row for each seed, and the widths of norm and sigma_min by their own routes."""
    rows, norms, sigmas = [], [], []
    for seed in SEEDS:
        a = Ball(gaussian(N, seed))
        norm, sigma, values = ct.spectral_norm(a), ct.sigma_min(a), ct.singular_values(a)
        norms.append(relative_width(norm))
        sigmas.append(relative_width(sigma))
        found = (norms[-1], sigmas[-1], relative_width(values[0]), relative_width(values[-1]))
        rows.append([str(seed), f"{float(sigma.mid()):.2e}", *(f"{width:.1e}" for width in found)])
    return rows, norms, sigmas


def costs(threads: int) -> tuple[list[list[str]], float]:
    """Return a row for each function with its time in products, and the Cholesky route's."""
    torch.set_num_threads(threads)
    a = gaussian(N, 0)
    gram = ct.matmul(a, a.mT)
    least = float(torch.linalg.eigvalsh(gram.centre)[0])
    held = ct.lambda_min_at_least(gram, 0.5 * least)
    functions: dict[str, Callable[[], object]] = {
        "a product, plain": lambda: a @ a,
        "lambda_min_at_least": lambda: ct.lambda_min_at_least(gram, 0.5 * least),
        "a product in balls": lambda: ct.matmul(Ball(a), Ball(a)),
        "inverse": lambda: ct.inverse(Ball(a)),
    }
    if threads == 1:  # on two busy cores a decomposition in two threads can take twenty times as long as in one
        functions |= {
            "svdvals, plain": lambda: torch.linalg.svdvals(a),
            "spectral_norm": lambda: ct.spectral_norm(Ball(a)),
            "sigma_min": lambda: ct.sigma_min(Ball(a)),
            "singular_values": lambda: ct.singular_values(Ball(a)),
        }
    times = dict(zip(functions, medians(list(functions.values()), ROUNDS), strict=True))
    unit = times["a product, plain"]
    rows = [[str(threads), name, f"{time * 1e3:.1f} ms", f"{time / unit:.1f}"] for name, time in times.items()]
    return rows, times["lambda_min_at_least"] / unit if held else float("inf")


def main() -> int:
    """Print both tables and return the number of missed targets."""
    print_machine()
    available = torch.get_num_threads()
    torch.set_num_threads(1)
    print(f"Gaussian {N} x {N}, float64; widths relative to the midpoint")
    rows, norms, sigmas = widths()
    print_table(["seed", "sigma_min", "norm", "sigma_min width", "norm by SVD", "sigma_min by SVD"], rows)
    print(
        f"\nmedian of {ROUNDS} alternating rounds; "
        "lambda_min >= c of the Gram matrix in balls, c half its smallest eigenvalue"
    )
    table, products = [], []
    for threads in sorted({1, available}):
        rows, ratio = costs(threads)
        table.extend(rows)
        products.append(ratio)
    print_table(["threads", "function", "time", "products"], table)
    missed = verdict(
        f"relative width of the norm <= {NORM_WIDTH:g} (widest {max(norms):.1e})", max(norms) <= NORM_WIDTH
    )
    missed += verdict(
        f"relative width of sigma_min <= {SIGMA_WIDTH:g} (widest {max(sigmas):.1e})", max(sigmas) <= SIGMA_WIDTH
    )
    return missed + verdict(
        f"lambda_min_at_least within {CHOLESKY_PRODUCTS:g} products (most {max(products):.1f})",
        max(products) <= CHOLESKY_PRODUCTS,
    )


if __name__ == "__main__":
    sys.exit(main())
