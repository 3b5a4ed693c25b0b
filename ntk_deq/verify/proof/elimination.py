"""Use hypotheses to make the domain smaller: equations solved for a variable, bounds that become its range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ntk_deq.verify.proof.enclosure import Derivatives
from ntk_deq.verify.proof.formulas import TRUE, Atom, Both, Formula, Relation, both, mapped
from ntk_deq.verify.proof.orthant import Bounds
from ntk_deq.verify.proof.points import Point, exact_value
from ntk_deq.verify.proof.problem import Problem, Statement, Variable
from ntk_deq.verify.proof.terms import Op, Term, Terms

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
