"""Moves that people try: halve, double, negate, zero, round, copy a neighbour, scale a block, tighten a hypothesis.

Meant for plain coordinates, which are the entries themselves. Boundaries are where inequalities break, and a random or
a smooth step meets an exact one never: M = norm(A), an entry that is zero, two entries that are equal.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ntk_deq.falsify.draws import choose
from ntk_deq.falsify.search.objective import Objective

_BATCH = 48  # moves tried at once; the best one is made
_SECTIONS = 16  # points at once when the edge of a hypothesis is closed in on
_GIVE_UP = 4  # batches without progress, each of which halves the step
_FIRST_STEP = 0.25  # relative to the size of the coordinates


def minimise(
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
        moves = _moves(objective, point, step, min(_BATCH, budget - used), generator)
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


def _moves(objective: Objective, point: Tensor, step: float, count: int, generator: torch.Generator) -> Tensor:
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
    match choose(generator, 7):
        case 0:
            moved[block] = 2 * old
        case 1:
            moved[block] = old / 2
        case 2:
            moved[block] = -old
        case 3:
            moved[block] = 0.0
        case 4:
            moved[block] = old.round()
        case 5:
            moved[block] = (4 * old).round() / 4
        case 6:
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
