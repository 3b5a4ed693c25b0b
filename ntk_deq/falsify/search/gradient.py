"""Descend along torch gradients: linear programs in a trust region, from a start and some points around it at once.

Each step goes along the goal's gradient and is then projected onto the half-spaces that the hypotheses' gradients
give, so that it follows an edge of the hypotheses instead of bouncing off it: that is where many counterexamples lie.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ntk_deq.falsify.search.objective import SLACK, Linearisation, Objective

_COPIES = 32  # points that descend together: one alone would cost nearly as much
_SPREAD = 0.3  # of the points around the starts, relative to the size of their coordinates
_RADIUS = 0.25  # of the first trust region, likewise
_GROW, _SHRINK = 1.6, 0.35
_SMALLEST = 1e-9  # radius at which a descent ends: steps below it are lost in rounding
_SWEEPS = 8  # of projections onto the half-spaces, one after another


def minimise(
    objective: Objective, start: Tensor, budget: int, generator: torch.Generator
) -> list[tuple[float, Tensor]]:
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
