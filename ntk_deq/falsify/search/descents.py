"""Three ways to descend: from corner to corner, along gradients, by evolution.

From corner to corner, one coordinate at a time goes to the best of a few values, from many starts at once. Meant for
plain coordinates: the optimum of a convex function over a box lies at a corner, and so do those of the determinant and
of many norms of `abs`, at a matrix of signs, which no small step leads to.

Along torch gradients, linear programs in a trust region, from a start and some points around it at once. Each step
goes along the goal's gradient and is then projected onto the half-spaces that the hypotheses' gradients give, so that
it follows an edge of the hypotheses instead of bouncing off it: that is where many counterexamples lie.

By CMA-ES (package `cma`), for few coordinates and for margins with corners, steps and plateaus.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ntk_deq.falsify.search.objective import SLACK, Linearisation, Objective

CLIMBERS = 8
"""Starts that climb together."""

_KINDS = (0, 1, 0, 1, 2, 0, 1, 3, 0, 1, 4)
"""Kinds of moves in their order: corners come before everything else, or a climb would creep."""

_PATIENCE = len(_KINDS)  # looks without gain after which a climber starts anew
_MOST = 1024  # points of one look; of more coordinates a random part is looked at


def climb(objective: Objective, start: Tensor, budget: int, generator: torch.Generator) -> list[tuple[float, Tensor]]:
    """Return the points that the climbs lead to, best first.

    Args:
        objective: What to make small.
        start: Where to start, in plain coordinates: a point, or several of them, points x coordinates. The other
            climbers start at corners of the box of the first one's size.
        budget: Evaluations.
        generator: Chooses the corners, and the coordinates where there are many.
    """
    starts = torch.atleast_2d(start)[: CLIMBERS // 2]
    start = starts[0]
    if len(start) == 0 or budget < 2:
        return []
    points = torch.cat([starts, _corners(start, CLIMBERS - len(starts), generator)])
    values = objective(points)
    used, look = len(points), 0
    idle = torch.zeros(CLIMBERS, dtype=torch.int64)
    found: list[tuple[float, Tensor]] = []
    while used < budget and not objective.over:
        moves = _moves(points, look, generator)
        results = objective(moves.reshape(-1, len(start))).reshape(CLIMBERS, -1)
        used += results.numel()
        best, place = results.min(1)
        better = best < values
        points = torch.where(better.unsqueeze(1), moves[torch.arange(CLIMBERS), place], points)
        values = torch.where(better, best, values)
        idle = torch.where(better, 0, idle + 1)
        look += 1
        done = idle >= _PATIENCE
        if bool(done.any()):
            found += [(float(values[k]), points[k]) for k in done.nonzero().flatten().tolist()]
            points = torch.where(done.unsqueeze(1), _corners(start, CLIMBERS, generator), points)
            values = torch.where(done, torch.inf, values)
            idle = torch.where(done, 0, idle)
    found += [(float(value), point) for value, point in zip(values, points, strict=True)]
    return sorted((pair for pair in found if pair[0] < torch.inf), key=lambda pair: pair[0])


def _corners(start: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw corners of the box around zero that reaches as far as the start; every third has zeros among its entries."""
    size = float(start.abs().max()) or 1.0
    signs = 2.0 * torch.randint(0, 2, (count, len(start)), generator=generator) - 1
    kept = torch.randint(0, 2, (count, len(start)), generator=generator) * 1.0
    kept[torch.arange(count) % 3 != 2] = 1.0
    return size * signs.to(torch.float64) * kept


def _moves(points: Tensor, look: int, generator: torch.Generator) -> Tensor:
    """Return, for each climber, its neighbours by one kind of move: climbers x moves x coordinates."""
    count, size = points.shape
    most = max(1, _MOST // (2 * count))
    chosen = torch.randperm(size, generator=generator)[:most] if size > most else torch.arange(size)
    old = points[:, chosen]
    largest = points.abs().amax(1, keepdim=True).expand_as(old)
    step = largest * 2.0 ** -(1 + look // _PATIENCE % 8)
    options = {
        0: (-old, torch.zeros_like(old)),
        1: (largest, -largest),
        2: (2 * old, old / 2),
        3: (old + step, old - step),
        4: (old.round(), old.roll(1, 1)),
    }[_KINDS[look % _PATIENCE]]
    moved = []
    for option in options:
        neighbours = points.unsqueeze(1).repeat(1, len(chosen), 1)
        neighbours[:, torch.arange(len(chosen)), chosen] = option
        moved.append(neighbours)
    return torch.cat(moved, dim=1)


_COPIES = 32  # points that descend together: one alone would cost nearly as much
_SPREAD = 0.3  # of the points around the starts, relative to the size of their coordinates
_RADIUS = 0.25  # of the first trust region, likewise
_GROW, _SHRINK = 1.6, 0.35
_SMALLEST = 1e-9  # radius at which a descent ends: steps below it are lost in rounding
_SWEEPS = 8  # of projections onto the half-spaces, one after another


def descend(objective: Objective, start: Tensor, budget: int, generator: torch.Generator) -> list[tuple[float, Tensor]]:
    """Return points with small values of the objective, best first.

    Args:
        objective: What to make small; without derivatives nothing is done.
        start: Where to start: a point, or several of them, points x coordinates.
        budget: Evaluations, a gradient counting as one.
        generator: Source of the points around the starts.

    References:
        Fletcher and Sainz de la Maza, Mathematical Programming 43, 1989 (sequential linear programming); Kaczmarz,
        Bulletin de l'Académie polonaise des sciences, 1937 (projections in turn).
    """
    copies = min(_COPIES, budget)
    starts = torch.atleast_2d(start)[:copies]
    if starts.shape[1] == 0 or copies == 0 or not objective.differentiable:
        return []
    around = starts[torch.arange(copies) % len(starts)]
    size = around.abs().mean(1).clamp_min(1.0)
    noise = torch.randn(copies, starts.shape[1], generator=generator, dtype=torch.float64)
    noise[: len(starts)] = 0.0
    points = around + _SPREAD * size.unsqueeze(1) * noise
    radius = _RADIUS * size
    here = objective.linearise(points)
    used = copies
    while used + copies <= budget and not objective.over and bool((radius > _SMALLEST * size).any()):
        trial = points + _step(here, radius)
        there = objective.linearise(trial)
        used += copies
        astray = (there.hypotheses < 0).any(1) & (there.values >= here.values)
        if bool(astray.any()) and used + copies <= budget:
            # A curved edge is left by a step along it, by the square of the step; a second step leads back.
            back = trial + _step(replace(there, slope=torch.zeros_like(there.slope)), radius)
            corrected = objective.linearise(torch.where(astray.unsqueeze(1), back, trial))
            used += copies
            closer = corrected.values < there.values
            trial, there = torch.where(closer.unsqueeze(1), back, trial), _chosen(closer, corrected, there)
        better = there.values < here.values
        radius = torch.where(better, radius * _GROW, radius * _SHRINK)
        points = torch.where(better.unsqueeze(1), trial, points)
        here = _chosen(better, there, here)
    order = here.values.argsort(stable=True).tolist()
    return [(float(here.values[k]), points[k]) for k in order if math.isfinite(float(here.values[k]))]


def _step(here: Linearisation, radius: Tensor) -> Tensor:
    """Return a step for each point: down the goal, inside the trust region and the linearised hypotheses."""
    length = torch.linalg.vector_norm(here.slope, dim=1, keepdim=True)
    step = -radius.unsqueeze(1) * here.slope / length.clamp_min(1e-300)  # no slope, no step
    squares = (here.hypothesis_slopes**2).sum(2)
    for _ in range(_SWEEPS):
        for k in range(here.hypotheses.shape[1]):
            normal = here.hypothesis_slopes[:, k]
            lack = (SLACK - here.hypotheses[:, k] - (normal * step).sum(1)).clamp_min(0.0)
            # A hypothesis with next to no slope cannot be met by a step; it must not throw the point far away.
            step = step + (lack / squares[:, k].clamp_min(1e-12)).unsqueeze(1) * normal
    most = 2 * radius.unsqueeze(1)
    return step * (most / torch.linalg.vector_norm(step, dim=1, keepdim=True).clamp_min(1e-300)).clamp_max(1.0)


def _chosen(better: Tensor, there: Linearisation, here: Linearisation) -> Linearisation:
    """Return the one where it is better, the other elsewhere."""

    def pick(new: Tensor, old: Tensor) -> Tensor:
        return torch.where(better.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

    return Linearisation(
        pick(there.values, here.values),
        pick(there.slope, here.slope),
        pick(there.hypotheses, here.hypotheses),
        pick(there.hypothesis_slopes, here.hypothesis_slopes),
    )


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


def evolve(objective: Measured, start: Tensor, budget: int, generator: torch.Generator) -> list[tuple[float, Tensor]]:
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
