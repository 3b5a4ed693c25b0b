"""Solvers of monotone layers over the modulus, the skew part (and so L) and the size: steps and processor time.

    python -m figures.solver_comparison [--out checks/results/solver_comparison.json]

A layer is relu(W z + c) with W = (1 - m) I - A'A + B - B', norm(A) = 1/2, and norm(B - B') given; 32 samples, float64,
relative tolerance 1e-6. A solver that does not arrive within 5,000 steps has no value; Picard does not where norm(W)
is far above one. Times are of processor time, the shorter of two runs, and so depend on the machine; steps do not.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch

from benchmarks.splitting import drawn
from ntk_deq.equilibrium import MonotoneLayer, solve_fixed_point
from ntk_deq.files.results import Producer, write_results

SOLVERS = ("picard", "damped", "anderson", "forward-backward", "peaceman-rachford")
MODULI, SKEWS, WIDTHS = (1.0, 0.3, 0.1), (0.0, 1.0, 3.0), (20, 60)
SAMPLES, TOLERANCE, MOST, ROUNDS = 32, 1e-6, 5_000, 2


def main() -> int:
    """Run the comparison and write its results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="checks/results/solver_comparison.json")
    given = parser.parse_args()
    values: dict[str, object] = {"moduli": list(MODULI), "skews": list(SKEWS), "widths": list(WIDTHS)}
    layers = [[[drawn(n, SAMPLES, m, skew) for n in WIDTHS] for skew in SKEWS] for m in MODULI]
    values["lengths"] = [[[layer.length for layer in row] for row in rows] for rows in layers]
    for solver in SOLVERS:
        steps: list[list[list[float | None]]] = []
        times: list[list[list[float | None]]] = []
        for rows in layers:
            steps.append([])
            times.append([])
            for row in rows:
                found = [measured(layer, solver) for layer in row]
                steps[-1].append([count for count, _ in found])
                times[-1].append([seconds for _, seconds in found])
        name = solver.replace("-", "_")
        values |= {f"steps_{name}": steps, f"seconds_{name}": times}
        print(solver, steps, flush=True)
    write_results(given.out, Producer.of("figures.solver_comparison", __file__, {}), values)
    return 0


def measured(layer: MonotoneLayer, solver: str) -> tuple[float | None, float | None]:
    """Return the most steps of a sample and the seconds of a solve; nothing where it does not arrive."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        found = solve_fixed_point(
            layer, torch.zeros_like(layer.source), solver=solver, rtol=TOLERANCE, max_steps=MOST, raise_on_failure=False
        )
        best = min(best, time.process_time() - start)
        if not found.all_converged:
            return None, None
        if best > 1:  # a second run would say little more
            break
    return float(found.steps.max()), float(f"{best:.3g}")


if __name__ == "__main__":
    sys.exit(main())
