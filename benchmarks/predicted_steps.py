"""Steps of gradient descent that Theorem 4.4 predicts for a loss of 1e-6: constants of section 5.1 against chosen ones.

    python -m benchmarks.predicted_steps

N = 4, d = 8, m = 16, the draw of `R.T4.4` in `scaled-small` with seed 0. Section 5.1 takes C1 = C2 = C3 = 1,
A(0) = norm(W(0)) I, b(0) = 0, gamma0 = 1/2, and the smallest scale of W(0) for which (17)-(19) hold. The chosen
constants are those that `choose` of the claim finds.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from ntk_deq.claims.load import load_suite
from ntk_deq.evaluation.instance import Instance
from ntk_deq.falsify import instance_at
from ntk_deq.verify.scoring import ClaimScorer
from ntk_deq.verify.training.choose import choose_constants

FLOOR = math.log(1e6)


def section_5_1(instance: Instance) -> tuple[float, float]:
    """Return the smallest scale that meets (17)-(19), and the steps that (20) and (iii) predict there."""
    X, y, W = instance.values["X"], instance.values["y"], instance.values["W"] / instance.values["beta"]
    norm, smallest = float(torch.linalg.matrix_norm(W, 2)), float(torch.linalg.svdvals(torch.relu(X @ W))[-1])
    x, r = float(X.norm()), float(y.norm())

    def look(beta: float) -> tuple[bool, float]:
        w = beta * norm
        lam, gamma = w + 1, 0.5 / (w + 1)
        alpha = beta * smallest / (1 - gamma * w)  # Lemma 5.1 with A = w I
        met = alpha**2 >= 16 * lam * x * r and alpha**3 >= 128 * x**2 * r and alpha**2 >= 128 * x**2
        lbar = 2 * (2 / lam**2 + 1) ** -2
        return met, alpha**2 * min(4 / alpha**2, lbar / (2 * lam**4 * x**2))

    low, high = 1.0, 1e9
    for _ in range(200):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if look(middle)[0] else (middle, high)
    return high, 4 * FLOOR / look(high)[1]


def main() -> None:
    """Print both numbers of steps."""
    torch.set_num_threads(1)
    claim = next(c for c in load_suite("checks/implicit_relu_training.yaml").claims if c.id == "R.T4.4")
    setting = claim.settings[0]
    instance = instance_at(setting, claim.given, 0, 0)
    beta, steps = section_5_1(instance)
    print(f"section 5.1: scale {beta:.4g}, {steps:.3g} steps")
    chosen = choose_constants(claim, setting, instance, seed=0)
    scorer = ClaimScorer(replace(claim, conclude={}), setting)
    progress = float(scorer.values(chosen, {}, claim.choose.objective.expr))
    print(f"chosen: {chosen.family.rpartition('chosen: ')[2]}, {4 * FLOOR / progress:.3g} steps")


if __name__ == "__main__":
    main()
