"""Find a point that meets every hypothesis for certain, or show that there is none."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

from ntk_deq.prove.box import Box, Side, side_of, spread
from ntk_deq.prove.enclosure import Point, admitted
from ntk_deq.prove.monotone import Demonstrator
from ntk_deq.prove.problem import Atom, Both, Formula, Problem, both, opposite


@dataclass(frozen=True)
class Meeting:
    """A point that meets the hypotheses, or None; `none` says that every point breaks one of them."""

    point: Point | None
    none: bool
    boxes: int


def find_meeting(problem: Problem, demonstrator: Demonstrator, budget: int) -> Meeting:
    """Look at up to `budget` boxes, those first whose middle is nearest to meeting the hypotheses.

    Args:
        problem: Gives the variables and the hypotheses.
        demonstrator: Shows statements over boxes.
        budget: How many boxes.
    """
    denied = denials(problem)
    start = Box({v.name: side_of(v) for v in problem.variables})
    heap: list[tuple[float, int, Box]] = [(0.0, 0, start)]
    boxes = count = 0
    while heap and boxes < budget:
        _, _, box = heapq.heappop(heap)
        boxes += 1
        if any(demonstrator.shows(formula, box, 1) for formula in denied):
            continue
        if admitted(problem, box.middle):
            return Meeting(box.middle, False, boxes)
        widths = {name: spread(side) for name, side in box.sides.items()}
        name = max(widths, key=lambda key: widths[key], default=None)
        if name is None or widths[name] == 0.0:
            return Meeting(None, False, boxes)
        for part in box.cut(name, box.middle[name]):
            count += 1
            heapq.heappush(heap, (lack(problem, part), count, part))
    return Meeting(None, not heap, boxes)


def denials(problem: Problem) -> list[Formula]:
    """Return what excludes a point: for each hypothesis that it has a meaning and is false."""
    return [both([h.defined, opposite(h.formula, problem.terms)]) for h in problem.hypotheses]


def lack(problem: Problem, box: Box) -> float:
    """Return by how much the middle of a box misses the hypotheses."""
    middle = Box({name: Side(value, value) for name, value in box.middle.items()})
    return sum(_missing(h.formula, middle) for h in problem.hypotheses)


def _missing(formula: Formula, point: Box) -> float:
    if isinstance(formula, Atom):
        found = point.enclosures.of(formula.term)
        return 1e3 if found is None else max(0.0, math.atan(-found.lo))
    lacks = [_missing(part, point) for part in formula.parts]
    return sum(lacks) if isinstance(formula, Both) else min(lacks, default=0.0)
