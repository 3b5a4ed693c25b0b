"""Cases of a statement: maxima, absolute values and disjunctions of hypotheses taken apart, closed ends split off.

Show goals by exact arguments: each in all of its cases.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from ntk_deq.prove import Op, Term, Terms, below
from ntk_deq.prove.branch import Goal
from ntk_deq.prove.exact import TOTAL_WORK, Exact
from ntk_deq.prove.problem import Atom, Both, Either, Formula, Problem, Relation, Statement, Variable, atoms, mapped
from ntk_deq.prove.signomial import TooLargeError

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

    variables: tuple[Variable, ...]
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
        >>> problem = Problem("s", terms, (Variable("x", None, None),), {}, (), ())
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
    for variable in case.variables:
        if variable.name in used and _closed(variable):
            return _split_end(terms, case, variable)
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
    def change(formula: Formula) -> Formula:
        return mapped(formula, lambda term: terms.substitute(term, {node: value}))

    hypotheses = tuple(Statement(h.name, change(h.formula), change(h.defined)) for h in case.hypotheses)
    return Case(case.variables, (*map(change, case.facts), *facts), hypotheses, change(case.goal))


def _closed(variable: Variable) -> bool:
    ends = variable.low, variable.high
    return None not in ends and ends[0] != ends[1] and not (variable.low_open or variable.high_open)


def _split_end(terms: Terms, case: Case, variable: Variable) -> list[Case]:
    """Split off the upper end of a closed range."""
    assert variable.high is not None
    rest = replace(variable, high_open=True)
    others = tuple(rest if v is variable else v for v in case.variables)
    end = _substituted(terms, case, terms.variable(variable.name), terms.constant(variable.high), ())
    kept = tuple(v for v in case.variables if v is not variable)
    return [replace(case, variables=others), replace(end, variables=kept)]


_Premises = tuple[tuple[Variable, ...], tuple[Formula, ...], tuple[Statement, ...]]


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

    def shows(self, goal: Goal) -> set[str] | None:
        """Return the names of the arguments that show a goal wherever the hypotheses hold, or None where none does."""
        split = cases(self._problem, goal.formula)
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
        key = (case.variables, case.facts, case.hypotheses)
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
