"""Instances that the tests of gradient flow share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ntk_deq.dynamics.flow.run import gradient_flow
from ntk_deq.dynamics.record import TrainingRun
from ntk_deq.systems import ImplicitReLU, LinearImplicit
from ntk_deq.systems.solve import predict

Problem = tuple[ImplicitReLU | LinearImplicit, Tensor, Tensor]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def linear_problem() -> Problem:
    return LinearImplicit.random(3, 3, generator=generator(), norm_W=0.3), normal(2, 3), normal(2, seed=2)


def smooth_relu_problem() -> Problem:
    """A ReLU network all of whose units are on, far from every kink."""
    X = normal(2, 3).abs() + 0.5
    model = ImplicitReLU(
        W=normal(3, 4, seed=3).abs() + 0.5, A=normal(4, 4, seed=4).abs() / 20, b=normal(4, seed=5) / 2, gamma=0.5
    )
    return model, X, predict(model, X) + 0.3 * normal(2, seed=6)


def quick(problem: Problem, **options: Any) -> TrainingRun:
    return gradient_flow(*problem, **{"until": 1e-4, "tolerance": 1e-6, **options})


def theorem_problem(beta: float, gamma: float, N: int = 3, m: int = 12, d: int = 6) -> Problem:
    """The instance of Theorem 4.2: rows of X orthonormal, y = +-1, W(0) = beta N(0, 1/m), A(0) = 0, b(0) = 0."""
    draw = generator()
    X = torch.linalg.qr(torch.randn(d, N, generator=draw, dtype=torch.float64))[0].T.contiguous()
    y = torch.sign(torch.randn(N, generator=draw, dtype=torch.float64))
    W = beta * torch.randn(d, m, generator=draw, dtype=torch.float64) / m**0.5
    zero = torch.zeros(m, m, dtype=torch.float64)
    return ImplicitReLU(W=W, A=zero, b=zero[0], gamma=gamma), X, y


def flat(parameters: dict[str, Tensor]) -> np.ndarray:
    return torch.cat([value.reshape(-1) for value in parameters.values()]).numpy()


def distance(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    return float(np.linalg.norm(flat(first) - flat(second)))
