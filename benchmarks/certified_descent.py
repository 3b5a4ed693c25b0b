"""Certified gradient descent: how the error bound grows, where runs end, and what a step costs beside a plain one."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from benchmarks.machine import print_machine, print_table, verdict
from ntk_deq.dynamics.field import GradientField
from ntk_deq.dynamics.proven.descent import certified_descent
from ntk_deq.systems import EquilibriumModel, ImplicitReLU, LinearImplicit

LONG = 2000
ROUNDS = 3


@dataclass(frozen=True)
class Instance:
    """A model with data and a step size."""

    name: str
    model: EquilibriumModel
    X: Tensor
    y: Tensor
    eta: float


def random_instance(N: int, d: int, m: int, eta: float, seed: int, *, linear: bool = False) -> Instance:
    """Draw a model as `random` draws it, Gaussian inputs and signs as targets."""
    g = torch.Generator().manual_seed(seed)
    kind = LinearImplicit if linear else ImplicitReLU
    model = kind.random(d, m, generator=g)
    X = torch.randn(N, d, generator=g, dtype=torch.float64) / d**0.5
    y = torch.randint(0, 2, (N,), generator=g).double() * 2 - 1
    return Instance(f"{'linear' if linear else 'relu'} N={N} d={d} m={m} seed {seed}", model, X, y, eta)


def theorem_instance(N: int, d: int, m: int, scale: float, eta: float, seed: int) -> Instance:
    """Draw the start of Gao and Gao's theorem: large W, A = 0, b = 0, orthonormal inputs."""
    g = torch.Generator().manual_seed(seed)
    W = torch.randn(d, m, generator=g, dtype=torch.float64) * (scale / m**0.5)
    X = torch.linalg.qr(torch.randn(d, N, generator=g, dtype=torch.float64))[0].T.contiguous()
    y = torch.randint(0, 2, (N,), generator=g).double() * 2 - 1
    model = ImplicitReLU(W=W, A=W.new_zeros(m, m), b=W.new_zeros(m), gamma=0.5)
    return Instance(f"theorem N={N} d={d} m={m} scale {scale:g} eta {eta:g} seed {seed}", model, X, y, eta)


def growth(instances: list[Instance]) -> None:
    """Print what the error bound does over a long run."""
    rows = []
    for case in instances:
        run = certified_descent(case.model, case.X, case.y, step=case.eta, steps=LONG, largest_error=1e-8)
        rows.append(
            [
                case.name,
                str(run.steps),
                f"{float(run.error.max()):.1e}",
                f"{float(run.growth.log().sum()):.2f}",
                f"{float(run.defect.median()):.1e}",
                f"{float(run.losses[0, 1]):.2g}",
                f"{float(run.losses[-1, 1]):.1g}",
                run.reason.partition(",")[0] or "all steps done",
            ]
        )
    print_table(["instance", "steps", "e_k at most", "log growth", "defect", "L[0]", "L at the end", "end"], rows)


def plain(case: Instance, steps: int) -> None:
    """Take float steps with equilibria to about the same residual."""
    field = GradientField(case.model, case.X, case.y, rtol=1e-14)
    parameters = case.model.parameters()
    for k in range(steps):
        point = field.at(parameters, k * case.eta)
        parameters = {name: value - case.eta * point.gradients[name] for name, value in parameters.items()}


def cost(case: Instance, steps: int) -> tuple[list[str], float]:
    """Time certified and plain steps in turns, and return a row and the ratio of the fastest rounds."""
    certified, floats = [], []
    for _ in range(ROUNDS):
        start = perf_counter()
        reached = certified_descent(case.model, case.X, case.y, step=case.eta, steps=steps, largest_error=1.0).steps
        certified.append((perf_counter() - start) / (reached + 1))
        start = perf_counter()
        plain(case, steps)
        floats.append((perf_counter() - start) / steps)
    ratio = min(certified) / min(floats)
    speeds = [f"{1 / min(floats):.0f}", f"{1 / min(certified):.0f}"]
    return [case.name, *speeds, f"{ratio:.1f}"], ratio


def main() -> int:
    """Run everything and return the exit code."""
    print_machine()
    relu = [random_instance(4, 4, 16, 0.02, seed) for seed in range(4)]
    theorem = [theorem_instance(4, 8, 16, 8.0, 0.005, seed) for seed in range(4)]
    slow = [theorem_instance(4, 8, 16, 8.0, eta, 0) for eta in (1e-5, 1e-7)]
    wide = [theorem_instance(8, 16, 64, 20.0, 0.0005, 0), random_instance(8, 8, 64, 0.01, 0)]
    linear = [random_instance(4, 4, 16, 0.01, seed, linear=True) for seed in range(2)]
    growth(relu + theorem + slow + wide + linear)
    cases = [(relu[0], 100), (theorem[0], 100), (wide[1], 100), (random_instance(32, 16, 256, 0.001, 0), 30)]
    cases += [(linear[0], 100), (random_instance(2, 2, 3, 0.05, 1), 200)]
    rows, ratios = zip(*(cost(case, steps) for case, steps in cases), strict=True)
    print_table(["instance", "float steps/s", "certified steps/s", "ratio"], list(rows))
    return verdict("a certified step costs at most twenty plain ones", max(ratios) <= 20)


if __name__ == "__main__":
    raise SystemExit(main())
