"""Minimise by CMA-ES (package `cma`): for few coordinates and for margins with corners, steps and plateaus."""

from __future__ import annotations

import math
import warnings
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

_SIGMA = 0.4  # first step, relative to the size of the start's coordinates
_MOST_FULL = 80  # coordinates; beyond it the covariance is kept diagonal, which learns in linear time
_WORST = 1e9  # stands for infinity, which the ranks do not need and the package does not like


class Measured(Protocol):
    """What is made small: a function of many points at once."""

    @property
    def over(self) -> bool:
        """Whether to stop."""

    def __call__(self, vectors: Tensor, /) -> Tensor:
        """Return a value for each row of coordinates."""


def minimise(objective: Measured, start: Tensor, budget: int, generator: torch.Generator) -> list[tuple[float, Tensor]]:
    """Return points with small values of the objective, best first; nothing where there is no coordinate.

    Args:
        objective: What to make small.
        start: Where to start.
        budget: Evaluations.
        generator: Its next number seeds the evolution.

    References:
        Hansen and Ostermeier, Evolutionary Computation 9, 2001.
    """
    size = len(start)
    if size == 0:
        return []
    seed = int(torch.randint(2**31 - 1, (), generator=generator))
    # One coordinate alone is not supported by the package: a second one, which does nothing, goes along.
    padded = np.zeros(max(size, 2))
    padded[:size] = start.numpy()
    strategy = _strategy(padded, seed)
    best, best_point = math.inf, start
    used = 0
    while used < budget and not objective.over and not strategy.stop():
        points = strategy.ask()
        vectors = torch.from_numpy(np.stack(points)[:, :size].copy())
        values = objective(vectors)
        used += len(points)
        place = int(values.argmin())
        if float(values[place]) < best:
            best, best_point = float(values[place]), vectors[place]
        with warnings.catch_warnings():
            # It warns of values that are all equal, which a plateau is.
            warnings.filterwarnings("ignore", module=r"cma(\..*)?")
            strategy.tell(points, values.clamp_max(_WORST).tolist())
    return [(best, best_point)] if best < math.inf else []


def _strategy(start: np.ndarray, seed: int) -> Any:
    """Return a strategy that draws from a generator of its own, writes no files and reads none."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Could not import matplotlib", category=UserWarning)
        # Takes a second, matplotlib included where it is installed; most searches end before they need it.
        from cma import CMAEvolutionStrategy

    draws = np.random.Generator(np.random.PCG64(seed))
    size = len(start)
    options = {
        "randn": lambda *shape: draws.standard_normal(shape),
        "seed": np.nan,  # leave numpy's global state alone
        "popsize": 8 + 2 * int(3 * math.log(size)),
        "CMA_diagonal": size > _MOST_FULL,
        "verbose": -9,
        "verb_log": 0,
        "verb_disp": 0,
        "signals_filename": "",  # None would mean a file of the current folder
    }
    sigma = _SIGMA * max(1.0, float(np.abs(start).mean()))
    return CMAEvolutionStrategy(start, sigma, options)
