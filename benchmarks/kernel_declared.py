"""The kernel of declared systems, derived, against `vmap(jacrev)` of their unrolled maps and against its own products.

The monotone network, z = relu(W z + U x) with W = (1 - a) I - A'A + B - B', is unrolled as the averaged map that the
solve iterates, (1 - s) z + s (W z + U x) inside the relu; the layer of OptEq, z = W' relu(W z + U x + b), as it stands.
Both unroll as many steps as bring the kernel of 8 samples to the accuracy that the structured one has.

Products are those of the structured kernel: N x m by m x m for each step of equilibrium and adjoint, those that slopes
pass through, and one N x m by m x N for each different pair of factors.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter

import torch
from torch import Tensor

from benchmarks.machine import medians, print_machine, print_table, verdict
from ntk_deq.language.declaration import ModelSignature, Role, Variable
from ntk_deq.quantities import TangentKernel, ntk_gram
from ntk_deq.systems import EquilibriumModel, model_class

N, D, M, HIDDEN = 256, 50, 200, 200
ALL_AT_ONCE, BEST_CHUNK, PRODUCTS = 40, 15, 1.5
CHUNKS = (64, 32, 16)
ROUNDS = 3

Cell = Callable[[dict[str, Tensor], Tensor], Callable[[Tensor], Tensor]]
"""Gives the map of one sample's state, from the parameters and the input."""


def _variable(name: str, role: Role, *shape: str) -> Variable:
    return Variable(name, shape, role, "")


_P, _X, _Y = Role.PARAMETER, _variable("X", Role.INPUT, "d", "N"), _variable("y", Role.TARGET, "N")

MONOTONE = ModelSignature(
    name="monotone",
    title="monotone network",
    sizes=("m", "d", "N"),
    variables=(
        *(_variable(name, _P, "m", "m") for name in "AB"),
        _variable("U", _P, "m", "d"),
        _variable("u", _P, "m"),
        _X,
        _Y,
    ),
    state="Z",
    state_shape=("m", "N"),
    map="relu(W*Z + U*X)",
    monotone="1/2",
    definitions={"W": "I(m)/2 - A'*A + B - B'", "yhat": "Z'*u", "L": "norm(yhat - y)^2/2"},
)
OPT_EQ = ModelSignature(
    name="opt-eq",
    title="OptEq layer",
    sizes=("n", "m", "d", "N"),
    variables=(
        _variable("W", _P, "n", "m"),
        _variable("U", _P, "n", "d"),
        _variable("b", _P, "n"),
        _variable("v", _P, "m"),
        _X,
        _Y,
    ),
    state="Z",
    state_shape=("m", "N"),
    map="W'*relu(W*Z + U*X + b*ones(1, N))",
    contraction="norm(W)^2",
    definitions={"yhat": "Z'*v", "L": "norm(yhat - y)^2/2"},
)


def drawn(signature: ModelSignature, sizes: dict[str, int], scale: float) -> tuple[EquilibriumModel, Tensor]:
    """Draw a model whose square weights have the norm `scale`, and inputs of norm one."""
    generator = torch.Generator().manual_seed(0)
    values = {}
    for own in signature.variables:
        value = torch.randn([sizes[letter] for letter in own.shape], generator=generator, dtype=torch.float64)
        values[own.name] = value / value.shape[-1] ** 0.5
        if own.name in ("A", "B", "W"):
            values[own.name] = value * (scale / torch.linalg.matrix_norm(value, ord=2))
    X = values["X"] / torch.linalg.vector_norm(values["X"], dim=0)
    return model_class(signature).from_variables(values), X


def monotone_cell(share: float) -> Cell:
    """Return the averaged map of the monotone network for one sample."""

    def cell(p: dict[str, Tensor], x: Tensor) -> Callable[[Tensor], Tensor]:
        unit, fed = torch.eye(M, dtype=x.dtype), share * (p["U"] @ x)
        mixed = (1 - share) * unit + share * (unit / 2 - p["A"].T @ p["A"] + p["B"] - p["B"].T)
        return lambda z: torch.relu(mixed @ z + fed)

    return cell


def opt_eq_cell(p: dict[str, Tensor], x: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the layer of OptEq for one sample."""
    fed = p["U"] @ x + p["b"]
    return lambda z: p["W"].T @ torch.relu(p["W"] @ z + fed)


def unrolled_kernel(
    model: EquilibriumModel, cell: Cell, readout: str, X: Tensor, iterations: int, chunk: int | None = None
) -> Tensor:
    """Return the kernel of the map cut off after `iterations` steps, by vmap(jacrev) and a contraction."""

    def prediction(p: dict[str, Tensor], x: Tensor) -> Tensor:
        z, step = torch.zeros(M, dtype=x.dtype), cell(p, x)
        for _ in range(iterations):
            z = step(z)
        return z @ p[readout]

    jacobian = torch.func.vmap(torch.func.jacrev(prediction), in_dims=(None, 0), chunk_size=chunk)
    rows = [block.reshape(X.shape[1], -1) for block in jacobian(model.parameters(), X.mT).values()]
    return sum((row @ row.T for row in rows[1:]), rows[0] @ rows[0].T)


def apart(a: Tensor, b: Tensor) -> float:
    """Return a relative difference."""
    return float((a - b).norm() / b.norm())


def product_time(kernel: TangentKernel, model: EquilibriumModel, X: Tensor, passed: int, pairs: int) -> float:
    """Return the time of the kernel's products, done one after the other on states that are not in the cache.

    A solve starts in single precision; its steps are counted as half a product.
    """
    Z, weight = X.new_ones(N, M), X.new_ones(M, M)
    states = [Z.clone() for _ in range(8)]
    steps = sum(solve.steps for solve in kernel.solves) * (2 if model.signature.name == "opt-eq" else 1)
    start = perf_counter()
    for i in range(steps + passed):
        torch.mm(states[i % 8], weight)
    for i in range(pairs):
        torch.mm(states[i % 8], states[(i + 1) % 8].T)
    return perf_counter() - start


def compare(name: str, *, quick: bool) -> tuple[list[list[str]], tuple[float, float, float]]:
    """Return the rows of the table, and the ratios to all at once, to the best chunk, and to the products."""
    sizes = {"N": N, "d": D, "m": M, "n": HIDDEN}
    model, X = drawn(MONOTONE if name == "monotone" else OPT_EQ, sizes, 0.5 if name == "monotone" else 0.8)
    share = float(getattr(model, "share", 1.0))
    cell, readout = (monotone_cell(share), "u") if name == "monotone" else (opt_eq_cell, "v")
    few = X[:, :8].contiguous()
    exact = unrolled_kernel(model, cell, readout, few, 400)
    accuracy = max(apart(ntk_gram(model, few).matrix, exact), 1e-14)
    iterations = next(
        k for k in range(5, 400, 5) if apart(unrolled_kernel(model, cell, readout, few, k), exact) <= accuracy
    )
    kernel = ntk_gram(model, X)
    gap = apart(kernel.matrix, unrolled_kernel(model, cell, readout, X, iterations, CHUNKS[-1]))
    passed, pairs = (6, 7) if name == "monotone" else (4, 6)
    structured, products = medians(
        [partial(ntk_gram, model, X), partial(product_time, kernel, model, X, passed, pairs)], ROUNDS
    )
    chunks = (None, *CHUNKS) if not quick else CHUNKS
    times = []
    for chunk in chunks:
        start = perf_counter()
        unrolled_kernel(model, cell, readout, X, iterations, chunk)
        times.append(perf_counter() - start)
    steps = "+".join(str(solve.steps) for solve in kernel.solves)
    rows = [
        [
            name,
            f"{accuracy:.0e}",
            f"{steps} / {iterations}",
            f"{gap:.0e}",
            f"{structured * 1e3:.0f} ms",
            f"{structured / products:.2f}",
            "all at once" if chunk is None else f"chunks of {chunk}",
            f"{seconds:.2f} s",
            f"{seconds / structured:.0f}",
        ]
        for chunk, seconds in zip(chunks, times, strict=True)
    ]
    return rows, (times[0] / structured, min(times[not quick :]) / structured, structured / products)


def main() -> int:
    """Print the table and return the number of missed targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out all samples at once, which takes gigabytes")
    given = parser.parse_args()
    print_machine()
    print(f"N = {N}, d = {D}, m = n = {M}, float64; median of {ROUNDS} alternating rounds; unrolled ones once each")
    rows, missed = [], 0
    ratios = {}
    for name in ("monotone", "opt-eq"):
        more, ratios[name] = compare(name, quick=given.quick)
        rows += more
    head = [
        "system",
        "accuracy",
        "steps",
        "difference",
        "structured",
        "over products",
        "vmap(jacrev)",
        "unrolled",
        "ratio",
    ]
    print_table(head, rows)
    for name, (whole, chunked, products) in ratios.items():
        if not given.quick:
            missed += verdict(
                f"{name}: {ALL_AT_ONCE} times faster than all at once ({whole:.0f})", whole >= ALL_AT_ONCE
            )
        missed += verdict(
            f"{name}: {BEST_CHUNK} times faster than the best chunk ({chunked:.0f})", chunked >= BEST_CHUNK
        )
        missed += verdict(f"{name}: within {PRODUCTS} times its products ({products:.2f})", products <= PRODUCTS)
    return missed


if __name__ == "__main__":
    sys.exit(main())
