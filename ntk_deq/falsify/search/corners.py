"""Climb from corner to corner: one coordinate at a time goes to the best of a few values, from many starts at once.

Meant for plain coordinates. The optimum of a convex function over a box lies at a corner, and so do those of the
determinant and of many norms of `abs`: a matrix of signs, which no small step leads to.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ntk_deq.falsify.search.objective import Objective

CLIMBERS = 8
"""Starts that climb together."""

_KINDS = (0, 1, 0, 1, 2, 0, 1, 3, 0, 1, 4)
"""Kinds of moves in their order: corners come before everything else, or a climb would creep."""

_PATIENCE = len(_KINDS)  # looks without gain after which a climber starts anew
_MOST = 1024  # points of one look; of more coordinates a random part is looked at


def minimise(
    objective: Objective, start: Tensor, budget: int, generator: torch.Generator
) -> list[tuple[float, Tensor]]:
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
