"""A claim's problem made smaller, and its goals shown by exact arguments, each in all of its cases.

Smaller: equations solved for a variable, bounds that become its range. Cases: maxima, absolute values and disjunctions
of hypotheses taken apart, closed ends split off.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ntk_deq.prove import Derivatives, Op, Side, Term, Terms, below
from ntk_deq.prove.enclosure import Point, exact_value
from ntk_deq.prove.exact import TOTAL_WORK, Exact
from ntk_deq.prove.problem import (
    TRUE,
    Atom,
    Both,
    Either,
    Formula,
    Problem,
    Relation,
    Statement,
    atoms,
    both,
    substituted,
)
from ntk_deq.prove.signomial import TooLargeError

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
            formula = substituted(formula, terms, {terms.variable(name): value})
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
        >>> ranges = {"x": Side(Fraction(0), None), "y": Side(None, None)}
        >>> reduced = eliminate(Problem("s", terms, ranges, {}, (Statement("h", equation, TRUE),), ()))
        >>> list(reduced.problem.variables), reduced.restored({"y": Fraction(3)})["x"]
        (['y'], Fraction(9, 1))
    """
    derivatives = Derivatives(problem.terms)
    solved: list[tuple[str, Term]] = []
    while (found := _solvable(problem, derivatives)) is not None:
        solved.append(found)
        problem = _without(problem, *found)
    narrowed = {name: _narrowed(problem, name, side, derivatives) for name, side in problem.variables.items()}
    return Reduced(replace(problem, variables=narrowed), tuple(solved))


def _narrowed(problem: Problem, name: str, side: Side, derivatives: Derivatives) -> Side:
    """Return the part of a variable's range that the hypotheses about it alone leave, unless that is nothing."""
    for hypothesis in [h for h in problem.hypotheses if h.defined == TRUE]:
        for atom in _conjuncts(hypothesis.formula):
            if atom.term.variables != {name} or atom.relation not in _BOUNDING or side.whole:
                continue
            slope = derivatives.of(atom.term, name)
            offset = exact_value(atom.term, {name: Fraction(0)})
            if slope is not None and slope.op is Op.CONSTANT and slope.value and offset is not None:
                end, is_open = -offset / slope.value, atom.relation is Relation.POSITIVE
                tighter = side.above(end, is_open) if slope.value > 0 else side.beneath(end, is_open)
                side = side if tighter.empty else tighter
    return side


def _solvable(problem: Problem, derivatives: Derivatives) -> tuple[str, Term] | None:
    for hypothesis in problem.hypotheses:
        for atom in _conjuncts(hypothesis.formula):
            if atom.relation is not Relation.ZERO:
                continue
            for name, side in problem.variables.items():
                if not side.whole and name in atom.term.variables:
                    value = derivatives.root(atom.term, name)
                    if value is not None and name not in value.variables:
                        return name, value
    return None


def _conjuncts(formula: Formula) -> Sequence[Atom]:
    parts = formula.parts if isinstance(formula, Both) else (formula,)
    return [part for part in parts if isinstance(part, Atom)]


def _without(problem: Problem, name: str, value: Term) -> Problem:
    terms, side = problem.terms, problem.variables[name]
    bounds: list[Formula] = []
    if side.low is not None:
        above = terms.subtract(value, terms.constant(side.low))
        bounds.append(Atom(above, _BOUNDING[not side.low_open]))
    if side.high is not None:
        beneath = terms.subtract(terms.constant(side.high), value)
        bounds.append(Atom(beneath, _BOUNDING[not side.high_open]))
    ranges = [Statement(f"range of {name}", both(bounds), TRUE)] if bounds else []
    replaced = {terms.variable(name): value}
    return replace(
        problem,
        variables={other: side for other, side in problem.variables.items() if other != name},
        hypotheses=(*(h.substituted(terms, replaced) for h in problem.hypotheses), *ranges),
        conclusions=tuple(c.substituted(terms, replaced) for c in problem.conclusions),
    )


MAX_CASES = 96
"""Cases of one goal; with more it is left to branch and bound."""


@dataclass(frozen=True)
class Case:
    """One case of a goal.

    Attributes:
        variables: The variables with their ranges.
        facts: What singles the case out.
        hypotheses: The claim's hypotheses in it.
        goal: What is to be shown.
    """

    variables: Mapping[str, Side]
    facts: tuple[Formula, ...]
    hypotheses: tuple[Statement, ...]
    goal: Formula

    def statements(self) -> list[Formula]:
        """Return every statement of the case."""
        return [self.goal, *self.facts, *(f for h in self.hypotheses for f in (h.defined, h.formula))]


def cases(problem: Problem, goal: Formula) -> list[Case] | None:
    """Return the cases of a goal, or None where they are too many.

    Example:
        >>> from ntk_deq.prove import Terms
        >>> terms = Terms()
        >>> x = terms.variable("x")
        >>> problem = Problem("s", terms, {"x": Side(None, None)}, {}, (), ())
        >>> len(cases(problem, Atom(terms.absolute(x), Relation.NONNEGATIVE)))
        2
    """
    found: list[Case] = []
    waiting = [Case(problem.variables, (), problem.hypotheses, goal)]
    while waiting:
        case = waiting.pop()
        parts = _split(problem.terms, case)
        if parts is None:
            found.append(case)
        else:
            waiting += reversed(parts)
        if len(found) + len(waiting) > MAX_CASES:
            return None
    return found


def _split(terms: Terms, case: Case) -> list[Case] | None:
    """Return the cases into which a case falls, or None where there is nothing to split."""
    for index, hypothesis in enumerate(case.hypotheses):
        split = _split_disjunction(hypothesis.formula)
        if split is not None:
            return [_with_hypothesis(case, index, part) for part in split]
    nodes = below(*(atom.term for formula in case.statements() for atom in atoms(formula)))
    for node in nodes:
        if node.op is Op.ABS or node.op is Op.MAX:
            return _split_node(terms, case, node)
    used = frozenset().union(*(node.variables for node in nodes))
    for name, side in case.variables.items():
        if name in used and _closed(side):
            return _split_end(terms, case, name, side)
    return None


def _split_disjunction(formula: Formula) -> list[Formula] | None:
    if isinstance(formula, Either):
        return list(formula.parts)
    if isinstance(formula, Both):
        for index, part in enumerate(formula.parts):
            inner = _split_disjunction(part)
            if inner is not None:
                return [Both((*formula.parts[:index], p, *formula.parts[index + 1 :])) for p in inner]
    return None


def _with_hypothesis(case: Case, index: int, formula: Formula) -> Case:
    changed = replace(case.hypotheses[index], formula=formula)
    return replace(case, hypotheses=(*case.hypotheses[:index], changed, *case.hypotheses[index + 1 :]))


def _split_node(terms: Terms, case: Case, node: Term) -> list[Case]:
    """Split by which argument of a maximum is the larger one, or by the sign of an absolute value."""
    first, second = node.args if node.op is Op.MAX else (node.args[0], terms.negate(node.args[0]))
    found = []
    for larger, smaller in ((first, second), (second, first)):
        fact = Atom(terms.subtract(larger, smaller), Relation.NONNEGATIVE)
        if node.op is Op.ABS:
            fact = Atom(larger, Relation.NONNEGATIVE)
        found.append(_substituted(terms, case, node, larger, (fact,)))
    return found


def _substituted(terms: Terms, case: Case, node: Term, value: Term, facts: tuple[Formula, ...]) -> Case:
    replaced = {node: value}
    known = (substituted(fact, terms, replaced) for fact in case.facts)
    hypotheses = tuple(h.substituted(terms, replaced) for h in case.hypotheses)
    return Case(case.variables, (*known, *facts), hypotheses, substituted(case.goal, terms, replaced))


def _closed(side: Side) -> bool:
    return None not in (side.low, side.high) and not (side.single or side.low_open or side.high_open)


def _split_end(terms: Terms, case: Case, name: str, side: Side) -> list[Case]:
    """Split off the upper end of a closed range."""
    assert side.high is not None
    others = {**case.variables, name: replace(side, high_open=True)}
    end = _substituted(terms, case, terms.variable(name), terms.constant(side.high), ())
    kept = {other: own for other, own in case.variables.items() if other != name}
    return [replace(case, variables=others), replace(end, variables=kept)]


_Premises = tuple[tuple[tuple[str, Side], ...], tuple[Formula, ...], tuple[Statement, ...]]


class SymbolicProver:
    """Shows the goals of one problem; what holds in a case is worked out once for all of them.

    Args:
        problem: The claim.
        deadline: When to stop, on the clock of `time.thread_time`.
    """

    def __init__(self, problem: Problem, *, deadline: float | None = None) -> None:
        self._problem = problem
        self._deadline = deadline
        self._known: dict[_Premises, Exact] = {}

    def shows(self, goal: Formula) -> set[str] | None:
        """Return the names of the arguments that show a goal wherever the hypotheses hold, or None where none does."""
        split = cases(self._problem, goal)
        used: set[str] = set()
        for case in split or ():
            if self._deadline is not None and time.thread_time() > self._deadline:
                return None
            found = self._in_case(case)
            if found is None:
                return None
            used |= found
        return None if split is None else used

    def _in_case(self, case: Case) -> set[str] | None:
        try:
            known = self._premises(case)
            known.start(TOTAL_WORK)
            return set(known.used) if known.shows(case.goal) else None
        except TooLargeError:
            return None

    def _premises(self, case: Case) -> Exact:
        """Return what is known in a case."""
        key = (tuple(case.variables.items()), case.facts, case.hypotheses)
        if key not in self._known:
            known = Exact(self._problem.terms, case.variables)
            for fact in case.facts:
                known.learn(fact)
            _establish(known, case)
            self._known[key] = known
        return self._known[key]


def _establish(known: Exact, case: Case) -> None:
    """Learn every hypothesis whose parts are known to be defined, and so on while there are new ones."""
    waiting = list(case.hypotheses)
    while waiting:
        ready = [h for h in waiting if known.shows(h.defined)]
        if not ready:
            return
        for hypothesis in ready:
            known.learn(hypothesis.formula)
        waiting = [h for h in waiting if h not in ready]
