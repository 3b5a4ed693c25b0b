"""Ways to descend: from corner to corner, along gradients, by evolution, by the moves that people try.

From corner to corner, one coordinate at a time goes to the best of a few values, from many starts at once. Meant for
plain coordinates: the optimum of a convex function over a box lies at a corner, and so do those of the determinant and
of many norms of `abs`, at a matrix of signs, which no small step leads to.

Along torch gradients, linear programs in a trust region, from a start and some points around it at once. Each step
goes along the goal's gradient and is then projected onto the half-spaces that the hypotheses' gradients give, so that
it follows an edge of the hypotheses instead of bouncing off it: that is where many counterexamples lie.

By CMA-ES (package `cma`), for few coordinates and for margins with corners, steps and plateaus.

Moves that people try: halve, double, negate, zero, round, copy a neighbour, scale a block, tighten a hypothesis. Meant
for plain coordinates, which are the entries themselves. Boundaries are where inequalities break, and a random or a
smooth step meets an exact one never: M = norm(A), an entry that is zero, two entries that are equal.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import fields, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ntk_deq.falsify.domains import choose
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
    pairs = ((getattr(there, part.name), getattr(here, part.name)) for part in fields(here))
    return Linearisation(*(torch.where(better.reshape(-1, *(1,) * (new.ndim - 1)), new, old) for new, old in pairs))


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


_BATCH = 48  # moves tried at once; the best one is made
_SECTIONS = 16  # points at once when the edge of a hypothesis is closed in on
_GIVE_UP = 4  # batches without progress, each of which halves the step
_FIRST_STEP = 0.25  # relative to the size of the coordinates


def try_moves(
    objective: Objective, start: Tensor, budget: int, generator: torch.Generator
) -> list[tuple[float, Tensor]]:
    """Return the point that the moves lead to, and the points at the edge of the hypotheses next to it; best first.

    Args:
        objective: What to make small.
        start: Where to start, in plain coordinates.
        budget: Evaluations.
        generator: Chooses the moves that are tried.
    """
    if len(start) == 0:
        return []
    point, used = start, 1
    values, feasible = objective.measure(point.unsqueeze(0))
    value, inside = float(values[0]), float(feasible[0]) >= 0
    step, idle = _FIRST_STEP, 0
    edges: dict[int, Tensor] = {}
    while used < budget and idle < _GIVE_UP and not objective.over:
        moves = _candidates(objective, point, step, min(_BATCH, budget - used), generator)
        values, feasible = objective.measure(moves)
        used += len(moves)
        place = int(values.argmin())
        if inside:
            edges = _outside(point, moves, feasible)
        if float(values[place]) < value:
            point, value, inside = moves[place], float(values[place]), float(feasible[place]) >= 0
            idle = 0
        else:
            step, idle = step / 4, idle + 1
    found = [(value, point)]
    for beyond in edges.values():
        if inside and used < budget and not objective.over:
            tight, count = _tighten(objective, point, beyond, budget - used)
            used += count
            found.append((float(objective(tight.unsqueeze(0))[0]), tight))
    return sorted(found, key=lambda pair: pair[0])


def _candidates(objective: Objective, point: Tensor, step: float, count: int, generator: torch.Generator) -> Tensor:
    """Return neighbours of a point: some of all that there are."""
    size = len(point)
    scale = max(1.0, float(point.abs().mean()))
    moves = []
    for _ in range(count):
        moved = point.clone()
        kind = choose(generator, 4)
        if kind == 0 and objective.space.blocks:
            _move_block(objective, moved, generator)
        elif kind == 1:  # two entries at once, each by a step
            pair = torch.randint(size, (2,), generator=generator)
            moved[pair] += step * scale * torch.randn(2, generator=generator, dtype=torch.float64)
        else:
            _move_entry(moved, choose(generator, size), step * scale, generator)
        moves.append(moved)
    return torch.stack(moves)


def _move_entry(moved: Tensor, place: int, step: float, generator: torch.Generator) -> None:
    old = float(moved[place])
    options = (2 * old, old / 2, -old, 0.0, 1.0, -1.0, float(round(old)), round(4 * old) / 4, old + step, old - step)
    pick = choose(generator, len(options) + 1)
    moved[place] = options[pick] if pick < len(options) else moved[choose(generator, len(moved))]


def _move_block(objective: Objective, moved: Tensor, generator: torch.Generator) -> None:
    """Change a whole variable, or all of them."""
    blocks = list(objective.space.blocks.values())
    which = choose(generator, len(blocks) + 1)
    block = slice(None) if which == len(blocks) else blocks[which]
    old = moved[block]
    options = (2 * old, old / 2, -old, torch.zeros_like(old), old.round(), (4 * old).round() / 4)
    pick = choose(generator, len(options) + 1)
    if pick < len(options):
        moved[block] = options[pick]
        return
    same = [other for other in blocks if moved[other].shape == old.shape]
    if same:
        moved[block] = moved[same[choose(generator, len(same))]].clone()


def _outside(point: Tensor, moves: Tensor, feasible: Tensor) -> dict[int, Tensor]:
    """Return, for coordinates that moved alone and broke a hypothesis, the nearest such move."""
    edges: dict[int, Tensor] = {}
    for move, margin in zip(moves, feasible.tolist(), strict=True):
        changed = (move != point).nonzero().flatten().tolist()
        if margin < 0 and margin > -torch.inf and len(changed) == 1:
            known = edges.get(changed[0])
            nearer = known is None or abs(float((move - point)[changed[0]])) < abs(float((known - point)[changed[0]]))
            if nearer:
                edges[changed[0]] = move
    return edges


def _tighten(objective: Objective, inside: Tensor, outside: Tensor, budget: int) -> tuple[Tensor, int]:
    """Return the last point of a line, up to the spacing of floats, at which the hypotheses hold."""
    used = 0
    shares = torch.linspace(0, 1, _SECTIONS + 2, dtype=torch.float64).unsqueeze(1)[1:-1]
    while used + _SECTIONS <= budget and not objective.over:
        between = inside + shares * (outside - inside)
        fresh = ((between != inside) & (between != outside)).any(1)
        if not bool(fresh.any()):
            break
        met = objective.measure(between)[1] >= 0
        used += _SECTIONS
        first = int((~met).to(torch.int8).argmax()) if bool((~met).any()) else _SECTIONS
        outside = between[first] if first < _SECTIONS else outside
        inside = between[first - 1] if first > 0 else inside
    return inside, used
