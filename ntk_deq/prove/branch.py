"""Branch and bound: cut the domain into boxes until the claim is shown on each, or a counterexample turns up."""

from __future__ import annotations

import heapq
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from ntk_deq.prove import Side, Term
from ntk_deq.prove.box import DEPTH, Box, Demonstrator, spread
from ntk_deq.prove.enclosure import Point, admitted, exact_value, truth_at
from ntk_deq.prove.problem import TRUE, Atom, Both, Formula, Problem, atoms, both, opposite


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
    heap: list[tuple[float, int, Box]] = [(0.0, 0, Box(problem.variables))]
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


_TOUCHING_DEPTHS = (1, 3, 6)  # cuts after which a box is searched for a point where the margin touches zero
_TOUCHING_STEPS = 60  # of golden section: enough for the digits of a float
_SHORTEST = 32  # denominators of a touching point that is tried
MAX_UNCONFIRMED = 20
"""Points that seem to break a conclusion and are handed to the judge in vain."""

_FAR = 1e9  # where the hypotheses fail, behind every margin
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class Goal:
    """Something to be shown wherever the hypotheses hold.

    Attributes:
        name: The conclusion's name, or that of the formula that must be defined.
        formula: What it says.
        conclusion: Whether a point where it fails is a counterexample, or only lies outside of the claim.
    """

    name: str
    formula: Formula
    conclusion: bool


@dataclass
class Outcome:
    """How a search ended.

    Attributes:
        covered: Whether every box was closed.
        boxes: How many were looked at.
        reason: Why it stopped, if not covered.
        counterexample: A point that breaks a conclusion for certain.
        met: A point that meets the hypotheses for certain.
        unconfirmed: How many points break a conclusion, and are no instance that the judge confirms.
        broken: The first of them.
        undefined: A formula that has no meaning at a point which the hypotheses admit, and the point.
    """

    covered: bool = False
    boxes: int = 0
    reason: str = ""
    counterexample: Point | None = None
    met: Point | None = None
    undefined: str = ""
    unconfirmed: int = 0
    broken: Point | None = None


@dataclass(order=True)
class _Entry:
    key: tuple[float, int, int]
    box: Box = field(compare=False)
    goals: tuple[Goal, ...] = field(compare=False)
    open: bool = field(compare=False, default=True)


class _Queue:
    """Boxes to look at: in turn the one with the smallest margin at its middle, and the oldest."""

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._line: deque[_Entry] = deque()
        self._count = 0

    def put(self, box: Box, goals: tuple[Goal, ...], margin: float) -> None:
        entry = _Entry((margin, box.depth, self._count), box, goals)
        self._count += 1
        heapq.heappush(self._heap, entry)
        self._line.append(entry)

    def take(self, oldest: bool) -> _Entry | None:
        while self._heap and self._line:
            entry = self._line.popleft() if oldest else heapq.heappop(self._heap)
            if entry.open:
                entry.open = False
                return entry
        return None


class BranchAndBound:
    """One search.

    Args:
        problem: Gives the variables and the hypotheses.
        goals: What is to be shown.
        demonstrator: Shows statements over boxes.
        confirm: Says whether a point that breaks a conclusion here does so for the judge of instances too.
        deadline: When to stop, on the clock of `time.thread_time`.
    """

    def __init__(
        self,
        problem: Problem,
        goals: Sequence[Goal],
        demonstrator: Demonstrator,
        *,
        confirm: Callable[[Point], bool],
        deadline: float | None = None,
    ) -> None:
        self._problem = problem
        self._confirm = confirm
        self._goals = tuple(goals)
        self._shows = demonstrator
        self._deadline = deadline
        self._outcome = Outcome()
        self._thorough = True
        self._abandoned: set[Goal] = set()
        self._denied = denials(problem)
        relevant = [h.formula for h in problem.hypotheses] + [goal.formula for goal in goals]
        self._used = sorted({name for f in relevant for atom in atoms(f) for name in atom.term.variables})

    def probe(self, budget: int) -> Outcome:
        """Look for a counterexample at the middles of `budget` boxes; little is done to close one."""
        self._thorough = False
        return self.run(budget)

    def run(self, budget: int) -> Outcome:
        """Search until everything is decided, or `budget` boxes have been looked at."""
        outcome = self._outcome
        queue = _Queue()
        queue.put(Box(self._problem.variables), self._goals, 0.0)
        while (entry := queue.take(outcome.boxes % 2 == 1)) is not None:
            if outcome.boxes >= budget:
                outcome.reason = f"{budget:,} boxes did not suffice"
                return outcome
            if self._deadline is not None and time.thread_time() > self._deadline:
                outcome.reason = f"the time limit ran out after {outcome.boxes} boxes"
                return outcome
            outcome.boxes += 1
            self._visit(entry.box, entry.goals, queue)
            if outcome.counterexample is not None or outcome.reason:
                return outcome
        outcome.reason = outcome.undefined
        outcome.covered = not outcome.undefined
        return outcome

    def _visit(self, box: Box, goals: tuple[Goal, ...], queue: _Queue) -> None:
        outcome = self._outcome
        depth = DEPTH if self._thorough else 0
        if any(self._shows.shows(denied, box, min(depth, 1)) for denied in self._denied):
            return
        kept = [goal for goal in goals if goal not in self._abandoned]
        open_goals = tuple(goal for goal in kept if not self._shows.shows(goal.formula, box, depth))
        if not open_goals:
            return
        self._try_point(box.middle, open_goals)
        if outcome.counterexample is None and self._thorough:
            self._try_point(self._shows.smallest_face(_margin_term(open_goals[0]), box).middle, open_goals)
        if outcome.counterexample is None and outcome.broken is None and self._thorough:
            self._try_point(box.plainest, open_goals)
        if outcome.counterexample is not None or outcome.reason:
            return
        place = self._place(box, open_goals[0])
        if place is None:
            where = ", ".join(f"{n} = {s.low}" for n, s in box.sides.items() if s.single) or "all ranges are short"
            outcome.reason = f"{open_goals[0].name!r} cannot be decided where {where}"
            return
        name, at = place
        if at != box.middle[name] and outcome.broken is None:  # where the margin touches zero
            self._try_point({**box.middle, name: at}, open_goals)
        for part in box.cut(name, at):
            queue.put(part, open_goals, self._estimate(part, open_goals))

    def _try_point(self, point: Point, goals: tuple[Goal, ...]) -> None:
        """Look at one point: it may meet the hypotheses, break a conclusion, or leave a formula without a meaning."""
        outcome = self._outcome
        if not admitted(self._problem, point):
            return
        outcome.met = outcome.met or point
        for goal in goals:
            if truth_at(goal.formula, point) is not False:
                continue
            if goal.conclusion and outcome.unconfirmed < MAX_UNCONFIRMED and self._all_defined(point):
                if self._confirm(point):
                    outcome.counterexample = point
                    return
                outcome.unconfirmed += 1
                outcome.broken = outcome.broken or point
            if not goal.conclusion:
                where = ", ".join(f"{name} = {value}" for name, value in point.items())
                outcome.undefined = outcome.undefined or f"{goal.name!r} has no meaning at {where}"
                self._abandoned.add(goal)

    def _all_defined(self, point: Point) -> bool:
        return all(truth_at(c.defined, point) is True for c in self._problem.conclusions)

    def _estimate(self, box: Box, goals: tuple[Goal, ...]) -> float:
        """Return the smallest margin of the open goals at the middle; more where the hypotheses fail there."""
        missing = lack(self._problem, box)
        if missing > 0:
            return _FAR + missing
        point = Box({name: Side(value, value) for name, value in box.middle.items()})
        margins = (point.enclosures.of(_margin_term(goal)) for goal in goals)
        return min(_FAR, *(-math.inf if margin is None else margin.lo for margin in margins))

    def _place(self, box: Box, goal: Goal) -> tuple[str, Fraction] | None:
        """Return the variable to cut and where: at a touching point, otherwise in the middle of the widest range."""
        if self._thorough and box.depth in _TOUCHING_DEPTHS:
            touching = self._touching(box, _margin_term(goal))
            if touching is not None:
                return touching
        inside = _margin_term(goal).variables  # a variable that only hypotheses have counts for less
        widths = {name: spread(box.sides[name]) * (1.0 if name in inside else 0.5) for name in self._used}
        name = max(widths, key=lambda key: widths[key], default=None)
        if name is None or widths[name] == 0.0:
            return None
        at = box.middle[name]
        side = box.sides[name]
        return None if at in (side.low, side.high) and not side.whole else (name, at)

    def _touching(self, box: Box, term: Term) -> tuple[str, Fraction] | None:
        """Return a short number at which a term of one variable vanishes inside the box, where it seems smallest."""
        free = [name for name in sorted(term.variables) if not box.sides[name].single]
        if len(free) != 1:
            return None
        name = free[0]
        side = box.sides[name]
        if side.low is None or side.high is None:
            return None
        near = _smallest(term, box, name, float(side.low), float(side.high))
        for limit in (1, 4, _SHORTEST):
            at = Fraction(near).limit_denominator(limit)
            if side.low < at < side.high and exact_value(term, {**box.middle, name: at}) == 0:
                return name, at
        return None


def _smallest(term: Term, box: Box, name: str, low: float, high: float) -> float:
    """Return where a term of one variable is smallest on a range, if it has one minimum there (golden section)."""

    def value(x: float) -> float:
        found = box.face(name, Fraction(x)).enclosures.of(term)
        return math.inf if found is None else found.hi

    a, b = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_a, at_b = value(a), value(b)
    for _ in range(_TOUCHING_STEPS):
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - _GOLDEN * (high - low)
            at_a = value(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + _GOLDEN * (high - low)
            at_b = value(b)
    return (low + high) / 2


def _margin_term(goal: Goal) -> Term:
    return next(atoms(goal.formula)).term


def goals_of(problem: Problem) -> list[Goal]:
    """Return everything to be shown: that every formula is defined, and every conclusion, part by part."""
    found = [Goal(s.name, s.defined, False) for s in (*problem.hypotheses, *problem.conclusions) if s.defined != TRUE]
    for conclusion in problem.conclusions:
        formula = conclusion.formula
        parts = formula.parts if isinstance(formula, Both) else (formula,)
        found += [Goal(conclusion.name, part, True) for part in parts]
    return found
