"""Boxes: a range for every variable, where to cut it, and its middle.

Use hypotheses to make the domain smaller: equations solved for a variable, bounds that become its range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from ntk_deq.prove import Op, Term, Terms
from ntk_deq.prove.enclosure import Derivatives, Enclosures, Point, exact_value
from ntk_deq.prove.intervals import enclose
from ntk_deq.prove.problem import TRUE, Atom, Both, Formula, Problem, Relation, Statement, Variable, both, mapped
from ntk_deq.prove.signs import Bounds


class Side(NamedTuple):
    """The range of one variable; None is infinity."""

    low: Fraction | None
    high: Fraction | None
    low_open: bool = False
    high_open: bool = False
    whole: bool = False

    @property
    def single(self) -> bool:
        """Whether it is one number."""
        return self.low is not None and self.low == self.high


def side_of(variable: Variable) -> Side:
    """Return the whole range of a variable."""
    return Side(variable.low, variable.high, variable.low_open, variable.high_open, variable.whole)


class Box:
    """A range for every variable.

    Args:
        sides: The ranges by name.
        depth: Cuts since the whole domain.
    """

    def __init__(self, sides: Mapping[str, Side], depth: int = 0) -> None:
        self.sides = sides
        self.depth = depth

    @cached_property
    def enclosures(self) -> Enclosures:
        """What terms can be over this box."""
        ranges = {n: enclose(s.low, s.high, s.low_open, s.high_open) for n, s in self.sides.items()}
        return Enclosures(ranges)

    @cached_property
    def middle(self) -> dict[str, Fraction]:
        """A point of the box, each coordinate one at which it would be cut."""
        return {name: middle(side) for name, side in self.sides.items()}

    @cached_property
    def plainest(self) -> dict[str, Fraction]:
        """The point of the box whose coordinates have the smallest denominators: 1/3 is no middle of any box."""
        return {n: middle(s) if s.whole or s.single else simplest(s.low, s.high) for n, s in self.sides.items()}

    def with_side(self, name: str, side: Side) -> Box:
        """Return the box with another range for a variable."""
        return Box({**self.sides, name: side}, self.depth)

    def face(self, name: str, value: Fraction) -> Box:
        """Return the face on which a variable has a value, which is then attained."""
        return self.with_side(name, Side(value, value))

    def cut(self, name: str, at: Fraction) -> tuple[Box, Box]:
        """Return the two parts of the box on either side of a value, which both contain unless it is a whole number."""
        side = self.sides[name]
        start = at + 1 if side.whole else at
        left = side._replace(high=at, high_open=False)
        right = side._replace(low=start, low_open=False)
        return (
            Box({**self.sides, name: left}, self.depth + 1),
            Box({**self.sides, name: right}, self.depth + 1),
        )


def middle(side: Side) -> Fraction:
    """Return where to cut a range: a short number inside, on a logarithmic scale where the range is long.

    Example:
        >>> middle(Side(None, None)), middle(Side(Fraction(0), None, True)), middle(Side(Fraction(0), Fraction(1)))
        (Fraction(0, 1), Fraction(1, 1), Fraction(1, 2))
    """
    low, high = side.low, side.high
    if low is not None and high is not None and low == high:
        return low
    found = _inside(low, high)
    if side.whole and low is not None and high is not None:
        return min(max(Fraction(math.floor(found)), low), high - 1)
    return found


def simplest(low: Fraction | None, high: Fraction | None) -> Fraction:
    """Return the fraction with the smallest denominator between two numbers, neither of them; None is infinity.

    Args:
        low: The lower end.
        high: The upper end, above the lower one.

    Example:
        >>> simplest(Fraction(1, 4), Fraction(1, 2)), simplest(None, Fraction(-1, 2)), simplest(Fraction(3), None)
        (Fraction(1, 3), Fraction(-1, 1), Fraction(4, 1))
    """
    if (low is None or low < 0) and (high is None or high > 0):
        return Fraction(0)
    if low is None or low < 0:
        return -simplest(Fraction(0) if high is None else -high, None if low is None else -low)
    partial: list[int] = []  # of the continued fraction that both ends share
    while high is not None and math.floor(low) + 1 >= high:
        whole = math.floor(low)
        partial.append(whole)
        low, high = 1 / (high - whole), None if low == whole else 1 / (low - whole)
    found = Fraction(math.floor(low) + 1)
    for whole in reversed(partial):
        found = whole + 1 / found
    return found


def _inside(low: Fraction | None, high: Fraction | None) -> Fraction:
    if (low is None or low < 0) and (high is None or high > 0):
        return Fraction(0)
    if low is None or low < 0:  # then the range is at most 0: mirrored
        return -_inside(Fraction(0) if high is None else -high, None if low is None else -low)
    if high is None:
        return Fraction(1) if low < Fraction(1, 2) else _short(2 * low)
    start = max(low, Fraction(1))
    if high > 4 * start:
        return Fraction(2) ** max(_exponent(start) + 1, (_exponent(start) + _exponent(high)) // 2)
    return mean(low, high)


def mean(low: Fraction, high: Fraction) -> Fraction:
    """Return the float nearest to the mean of two numbers where it lies between them, otherwise the mean."""
    found = (low + high) / 2
    short = _short(found)
    return short if low < short < high else found


def _short(value: Fraction) -> Fraction:
    """Return the nearest float."""
    return Fraction(float(value))


def _exponent(value: Fraction) -> int:
    """Return the exponent of the largest power of two that is at most a number >= 1."""
    return math.floor(value).bit_length() - 1


def spread(side: Side) -> float:
    """Return how much there is to gain from cutting a range: 0 for a single number, at most 4.

    Example:
        >>> spread(Side(Fraction(1), Fraction(1))), spread(Side(None, None)), spread(Side(Fraction(0), Fraction(1)))
        (0.0, 4.0, 1.0)
    """
    if side.single:
        return 0.0
    ends = [abs(float(end)) for end in (side.low, side.high) if end is not None]
    nearest = min(ends, default=0.0)
    if side.low is None or side.high is None:
        return 4.0 / (1.0 + math.log2(1.0 + nearest))
    if side.low < 0 < side.high:
        nearest = 0.0
    return min(4.0, float(side.high - side.low) / (1.0 + nearest))


_BOUNDING = (Relation.POSITIVE, Relation.NONNEGATIVE)


@dataclass(frozen=True)
class Reduced:
    """A problem with fewer variables.

    Attributes:
        problem: The problem.
        solved: The variables that are gone, in order, and their values in the others.
    """

    problem: Problem
    solved: tuple[tuple[str, Term], ...]

    def change(self, formula: Formula) -> Formula:
        """Return a statement of the first problem in the variables that are left."""
        terms = self.problem.terms
        for name, value in self.solved:
            formula = _substituted(terms, formula, name, value)
        return formula

    def restored(self, point: Point) -> dict[str, Fraction] | None:
        """Return a point with the values of the variables that are gone, or None where one is not rational."""
        found = dict(point)
        for name, value in reversed(self.solved):
            number = exact_value(value, found)
            if number is None:
                return None
            found[name] = number
        return found


def eliminate(problem: Problem) -> Reduced:
    """Solve every equation among the hypotheses that contains a variable linearly, with a number as its factor.

    The range of a variable that goes becomes a hypothesis. Whole numbers stay. A hypothesis that bounds one variable
    by a number narrows its range.

    Example:
        >>> terms = Terms()
        >>> x, y = terms.variable("x"), terms.variable("y")
        >>> equation = Atom(terms.subtract(x, terms.multiply(y, y)), Relation.ZERO)
        >>> ranges = (Variable("x", Fraction(0), None), Variable("y", None, None))
        >>> reduced = eliminate(Problem("s", terms, ranges, {}, (Statement("h", equation, TRUE),), ()))
        >>> [v.name for v in reduced.problem.variables], reduced.restored({"y": Fraction(3)})["x"]
        (['y'], Fraction(9, 1))
    """
    derivatives = Derivatives(problem.terms)
    solved: list[tuple[str, Term]] = []
    while (found := _solvable(problem, derivatives)) is not None:
        variable, value = found
        solved.append((variable.name, value))
        problem = _without(problem, variable, value)
    narrowed = tuple(_narrowed(problem, variable, derivatives) for variable in problem.variables)
    return Reduced(replace(problem, variables=narrowed), tuple(solved))


def _narrowed(problem: Problem, variable: Variable, derivatives: Derivatives) -> Variable:
    """Return a variable with the part of its range that the hypotheses about it alone leave, unless that is nothing."""
    bounds = Bounds(variable.low, variable.high, variable.low_open, variable.high_open)
    for hypothesis in [h for h in problem.hypotheses if h.defined == TRUE]:
        for atom in _conjuncts(hypothesis.formula):
            if atom.term.variables != {variable.name} or atom.relation not in _BOUNDING or variable.whole:
                continue
            slope = derivatives.of(atom.term, variable.name)
            offset = exact_value(atom.term, {variable.name: Fraction(0)})
            if slope is not None and slope.op is Op.CONSTANT and slope.value and offset is not None:
                end, is_open = -offset / slope.value, atom.relation is Relation.POSITIVE
                tighter = bounds.above(end, is_open) if slope.value > 0 else bounds.beneath(end, is_open)
                bounds = bounds if tighter.empty else tighter
    return replace(variable, low=bounds.low, high=bounds.high, low_open=bounds.low_open, high_open=bounds.high_open)


def _solvable(problem: Problem, derivatives: Derivatives) -> tuple[Variable, Term] | None:
    terms = problem.terms
    for hypothesis in problem.hypotheses:
        for atom in _conjuncts(hypothesis.formula):
            if atom.relation is not Relation.ZERO:
                continue
            for variable in problem.variables:
                if variable.whole or variable.name not in atom.term.variables:
                    continue
                slope = derivatives.of(atom.term, variable.name)
                if slope is None or slope.op is not Op.CONSTANT or not slope.value:
                    continue
                rest = terms.substitute(atom.term, {terms.variable(variable.name): terms.zero})
                value = terms.multiply(terms.constant(-1 / slope.value), rest)
                if variable.name not in value.variables:
                    return variable, value
    return None


def _conjuncts(formula: Formula) -> Sequence[Atom]:
    parts = formula.parts if isinstance(formula, Both) else (formula,)
    return [part for part in parts if isinstance(part, Atom)]


def _without(problem: Problem, variable: Variable, value: Term) -> Problem:
    terms = problem.terms

    def changed(statement: Statement) -> Statement:
        formula, defined = (
            _substituted(terms, f, variable.name, value) for f in (statement.formula, statement.defined)
        )
        return Statement(statement.name, formula, defined)

    bounds: list[Formula] = []
    if variable.low is not None:
        above = terms.subtract(value, terms.constant(variable.low))
        bounds.append(Atom(above, Relation.POSITIVE if variable.low_open else Relation.NONNEGATIVE))
    if variable.high is not None:
        below = terms.subtract(terms.constant(variable.high), value)
        bounds.append(Atom(below, Relation.POSITIVE if variable.high_open else Relation.NONNEGATIVE))
    ranges = [Statement(f"range of {variable.name}", both(bounds), TRUE)] if bounds else []
    return replace(
        problem,
        variables=tuple(v for v in problem.variables if v is not variable),
        hypotheses=(*map(changed, problem.hypotheses), *ranges),
        conclusions=tuple(map(changed, problem.conclusions)),
    )


def _substituted(terms: Terms, formula: Formula, name: str, value: Term) -> Formula:
    replaced = {terms.variable(name): value}
    return mapped(formula, lambda term: terms.substitute(term, replaced))
