"""Steps a second of a small run, with loss and norms recorded, beside a plain eager loop that does the same.

With `--written`: step, kernel, descent and flow of `implicit-relu`, compiled from its declaration, beside the same in a
class that is written by hand: processor time of alternating calls, and the median of their ratios.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from time import perf_counter, process_time

import torch
from torch import Tensor

from benchmarks.machine import print_machine, print_table, verdict
from ntk_deq.dynamics import TrainingRun, gradient_descent, gradient_flow
from ntk_deq.quantities import ntk_gram
from ntk_deq.systems import ImplicitReLU, RankOne
from ntk_deq.systems.parameter_slopes import ParameterSlope

TARGET = 3000
N, D, M = 8, 16, 64
STEPS = 1000
ROUNDS = 7
PAIRS, SLOWER = 9, 1.1
FLOWS = 64  # the largest width at which flows are timed
RTOL = 1e-10


def problem() -> tuple[ImplicitReLU, Tensor, Tensor]:
    """Return a model with gamma ||A|| = 1/2, inputs on the sphere and signs."""
    generator = torch.Generator().manual_seed(0)
    model = ImplicitReLU.random(D, M, generator=generator)
    X = torch.randn(N, D, generator=generator, dtype=torch.float64)
    y = torch.randn(N, generator=generator, dtype=torch.float64).sign()
    return model, X / X.norm(dim=1, keepdim=True), y


def plain_loop(model: ImplicitReLU, X: Tensor, y: Tensor, step: float) -> list[float]:
    """Descend with plain warm starts, and record loss and norms at every step."""
    W, A, b = (value.clone() for value in model.parameters().values())
    gamma = float(model.gamma)
    Z = X.new_zeros(N, M)
    V, losses, norms = torch.zeros_like(Z), [], []
    for _ in range(STEPS):
        Phi = torch.relu(X @ W)
        while True:
            new = torch.relu(gamma * Z @ A + Phi)
            solved, Z = bool((new - Z).norm() <= RTOL * new.norm()), new
            if solved:
                break
        r, D = Z @ b - y, (Z > 0).to(Z.dtype)
        source = torch.outer(r, b)
        while True:
            new = source + gamma * (V * D) @ A.T
            solved, V = bool((new - V).norm() <= RTOL * new.norm()), new
            if solved:
                break
        losses.append(float(r @ r / 2))
        norms.append([float(torch.linalg.matrix_norm(W, ord=2)), float(torch.linalg.matrix_norm(A, ord=2))])
        G = V * D
        W, A, b = W - step * X.T @ (G * (Phi > 0)), A - step * gamma * Z.T @ G, b - step * Z.T @ r
    return losses


def ours(model: ImplicitReLU, X: Tensor, y: Tensor, step: float) -> TrainingRun:
    """Descend with loss, gradient norm and spectral norms recorded."""
    return gradient_descent(model, X, y, step=step, steps=STEPS, until=0.0, rtol=RTOL, record=["norm"])


class Written(ImplicitReLU):
    """The network with its maps and factors by hand, in plain torch."""

    def step_at(self, X: Tensor, parameters: Mapping[str, Tensor] | None = None) -> Callable[[Tensor], Tensor]:
        """Return Z -> relu(gamma Z A + relu(X W)) with what is free of Z worked out once."""
        p = self.parameters() if parameters is None else parameters
        Phi, scaled = torch.relu(X @ p["W"]), self.gamma * p["A"]
        return lambda Z: torch.relu(Z @ scaled + Phi)

    def adjoint_step_at(
        self, Z: Tensor, X: Tensor, parameters: Mapping[str, Tensor] | None = None, output: int = 0
    ) -> Callable[[Tensor], Tensor]:
        """Return V -> 1 b' + gamma (V .* D) A' with D worked out once."""
        p = self.parameters() if parameters is None else parameters
        b, scaled = p["b"], self.gamma * p["A"]
        D = (Z @ scaled + torch.relu(X @ p["W"]) > 0).to(Z.dtype)
        return lambda V: (V * D) @ scaled.T + b

    def readout(self, Z: Tensor, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        """Return Z b."""
        return Z @ (self.b if parameters is None else parameters["b"])

    def initial_state(self, X: Tensor) -> Tensor:
        """Return zeros."""
        return X.new_zeros(*X.shape[:-1], self.A.shape[0])

    def contraction_bound(self, parameters: Mapping[str, Tensor] | None = None) -> Tensor:
        """Return gamma norm(A)."""
        return self.gamma * torch.linalg.matrix_norm(self.A if parameters is None else parameters["A"], ord=2)

    def tangent_factors(
        self, X: Tensor, Z: Tensor, adjoint: Tensor, output: int = 0
    ) -> dict[str, tuple[ParameterSlope, ...]]:
        """Return the factors of (12) of Gao and Gao (2022)."""
        pre = X @ self.W
        G = adjoint * (Z @ (self.gamma * self.A) + torch.relu(pre) > 0)
        return {"W": (RankOne(X, G * (pre > 0)),), "A": (RankOne(Z, G, float(self.gamma)),), "b": (RankOne(Z, None),)}


def _seconds(call: Callable[[], object], count: int) -> float:
    start = process_time()
    for _ in range(count):
        call()
    return (process_time() - start) / count


def beside_written() -> int:
    """Print how long the compiled network takes beside the written one, and return the number of missed targets."""
    calls: dict[str, Callable[[ImplicitReLU, Tensor, Tensor], object]] = {
        "step": lambda model, X, y: model.step_at(X)(X.new_ones(len(X), model.A.shape[0])),
        "kernel": lambda model, X, y: ntk_gram(model, X),
        "descent": lambda model, X, y: gradient_descent(model, X, y, step=1e-5, steps=20, until=0.0),
        "flow": lambda model, X, y: gradient_flow(model, X, y, horizon=1e-3),
    }
    rows, missed = [], 0
    for N, d, m in ((1, 2, 2), (8, 16, 64), (64, 50, 200)):
        generator = torch.Generator().manual_seed(0)
        compiled = ImplicitReLU.random(d, m, generator=generator)
        written = Written(**compiled.parameters(), gamma=compiled.gamma)
        X = torch.randn(N, d, generator=generator, dtype=torch.float64)
        y = torch.randn(N, generator=generator, dtype=torch.float64)
        for what, call in calls.items():
            if what == "flow" and m > FLOWS:
                continue
            pair = [partial(call, model, X, y) for model in (compiled, written)]
            count = max(1, int(0.02 / max(_seconds(pair[0], 2), 1e-7)))
            times = [[_seconds(one, count) for one in pair] for _ in range(PAIRS)]
            ratio = median(ours / plain for ours, plain in times)
            ours, plain = (median(column) for column in zip(*times, strict=True))
            rows.append([what, f"{N}, {d}, {m}", f"{1e3 * ours:.4f}", f"{1e3 * plain:.4f}", f"{ratio:.2f}"])
            missed += ratio > SLOWER
    print_table(["what", "N, d, m", "compiled, ms", "by hand, ms", "ratio"], rows)
    return verdict(f"all within {SLOWER} times", not missed)


def main() -> int:
    """Print the table and return the number of missed targets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--written", action="store_true", help="beside a class that is written by hand")
    print_machine()
    if parser.parse_args().written:
        return beside_written()
    print(f"N = {N}, m = {M}, d = {D}, gamma ||A|| = 0.5; {STEPS} steps, best of {ROUNDS} alternating rounds")
    model, X, y = problem()
    rows, rates = [], []
    for step in (1e-6, 1e-5, 1e-3):
        best = [0.0, 0.0]
        for _ in range(ROUNDS):
            for place, call in enumerate((partial(ours, model, X, y, step), partial(plain_loop, model, X, y, step))):
                start = perf_counter()
                call()
                best[place] = max(best[place], STEPS / (perf_counter() - start))
        run = ours(model, X, y, step)
        rates.append(best[0])
        iterations = f"{run.forward_iterations:.1f} + {run.adjoint_iterations:.1f}"
        rows.append([f"{step:g}", iterations, f"{best[0]:.0f}", f"{best[1]:.0f}", f"{best[0] / best[1]:.1f}"])
    print_table(["step", "iterations", "ours, steps/s", "plain loop", "ratio"], rows)
    return verdict(f"at least {TARGET} steps a second at theorem-sized steps ({rates[0]:.0f})", rates[0] >= TARGET)


if __name__ == "__main__":
    sys.exit(main())
