"""A claim about real numbers as terms: variables with ranges, hypotheses, conclusions, and when each is defined.

Statements about terms: comparisons with zero, joined by `and` and `or`; negation is carried inwards.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cache
from itertools import product

from ntk_deq.claims.claim import Claim
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import DomainKind
from ntk_deq.language.functions import FUNCTIONS, entrywise_of
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.language.types import BOOLEAN, SCALAR
from ntk_deq.language.written import ENTRY, definition_of, formula_of, put
from ntk_deq.prove import Op, Side, Term, Terms


class Relation(StrEnum):
    """How a term stands to zero."""

    POSITIVE = "> 0"
    NONNEGATIVE = ">= 0"
    ZERO = "== 0"
    NONZERO = "!= 0"


@dataclass(frozen=True, slots=True)
class Atom:
    """A comparison of a term with zero."""

    term: Term
    relation: Relation


@dataclass(frozen=True, slots=True)
class Both:
    """Every part holds; without parts it is true."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Some part holds; without parts it is false."""

    parts: tuple[Formula, ...]


Formula = Atom | Both | Either

TRUE = Both(())


def both(parts: list[Formula]) -> Formula:
    """Return a conjunction; of one part, that part."""
    return _joined(Both, parts)


def either(parts: list[Formula]) -> Formula:
    """Return a disjunction; of one part, that part."""
    return _joined(Either, parts)


def _joined(kind: type[Both | Either], parts: list[Formula]) -> Formula:
    flat = [p for part in parts for p in (part.parts if isinstance(part, kind) else (part,))]
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


def opposite(formula: Formula, terms: Terms) -> Formula:
    """Return the negation."""
    if isinstance(formula, Atom):
        signed = formula.relation in (Relation.POSITIVE, Relation.NONNEGATIVE)
        return Atom(terms.negate(formula.term) if signed else formula.term, _OPPOSITES[formula.relation])
    return _joined(Either if isinstance(formula, Both) else Both, [opposite(part, terms) for part in formula.parts])


_OPPOSITES = {
    Relation.POSITIVE: Relation.NONNEGATIVE,
    Relation.NONNEGATIVE: Relation.POSITIVE,
    Relation.ZERO: Relation.NONZERO,
    Relation.NONZERO: Relation.ZERO,
}


def atoms(formula: Formula) -> Iterator[Atom]:
    """Yield the comparisons of a statement, left to right."""
    if isinstance(formula, Atom):
        yield formula
    else:
        for part in formula.parts:
            yield from atoms(part)


def mapped(formula: Formula, change: Callable[[Atom], Formula]) -> Formula:
    """Return a statement with every comparison replaced."""
    if isinstance(formula, Atom):
        return change(formula)
    return type(formula)(tuple(mapped(part, change) for part in formula.parts))


def substituted(formula: Formula, terms: Terms, replaced: dict[Term, Term]) -> Formula:
    """Return a statement with some terms replaced, wherever they occur."""
    return mapped(formula, lambda atom: Atom(terms.substitute(atom.term, replaced), atom.relation))


def holds(relation: Relation, sign: int) -> bool:
    """Say whether a number of a given sign (-1, 0, 1) stands so to zero."""
    return _STANDS[relation](sign, 0)


_STANDS: dict[Relation, Callable[[int, int], bool]] = {
    Relation.POSITIVE: operator.gt,
    Relation.NONNEGATIVE: operator.ge,
    Relation.ZERO: operator.eq,
    Relation.NONZERO: operator.ne,
}


def truth(formula: Formula, sign: Callable[[Term], int | None]) -> bool | None:
    """Evaluate a statement from the signs of its terms; None where an unknown sign leaves it open."""
    if isinstance(formula, Atom):
        known = sign(formula.term)
        return None if known is None else holds(formula.relation, known)
    values = [truth(part, sign) for part in formula.parts]
    decisive = isinstance(formula, Either)
    if decisive in values:
        return decisive
    return None if None in values else not decisive


_KINDS = frozenset(
    {
        *(Kind.NUMBER, Kind.NAME, Kind.CALL, Kind.COMPARE, Kind.AND, Kind.OR, Kind.NOT),
        *(Kind.NEGATE, Kind.ADD, Kind.SUBTRACT, Kind.MULTIPLY, Kind.DIVIDE, Kind.POWER),
    }
)
"""What can be read; a claim with any other kind of node is left to the judge of instances."""

_RANGES = frozenset(
    {DomainKind.REAL, DomainKind.NONNEGATIVE, DomainKind.POSITIVE, DomainKind.INTERVAL, DomainKind.INTEGER}
)
_LISTED = 16  # combinations of whole numbers that are always taken one by one
_LISTED_EXPONENTS = 64  # ... and of those that stand in an exponent


@dataclass(frozen=True, slots=True)
class Statement:
    """A hypothesis or a conclusion.

    Attributes:
        name: As in the file.
        formula: What it says.
        defined: When it has a meaning: no divisor is zero, no root or logarithm of a wrong number.
    """

    name: str
    formula: Formula
    defined: Formula

    def substituted(self, terms: Terms, replaced: dict[Term, Term]) -> Statement:
        """Return it with some terms replaced, wherever they occur."""
        formula, defined = (substituted(f, terms, replaced) for f in (self.formula, self.defined))
        return Statement(self.name, formula, defined)


@dataclass(frozen=True)
class Problem:
    """For all values of the variables: the hypotheses imply the conclusions, and everything is defined.

    Attributes:
        setting: Name of the setting.
        terms: Makes the terms.
        variables: What ranges, in order, and where.
        fixed: Whole numbers that are taken one by one, and their values here.
        hypotheses: What is assumed.
        conclusions: What is to be shown.
    """

    setting: str
    terms: Terms
    variables: Mapping[str, Side]
    fixed: Mapping[str, int]
    hypotheses: tuple[Statement, ...]
    conclusions: tuple[Statement, ...]


def applicable(claim: Claim) -> bool:
    """Say whether a claim is about real numbers only, so that `prove_claim` can take it up.

    Every setting must be universal and without a model, every variable a scalar over a range, and the formulas built
    from + - * / ^, exp, log, abs, norm, max, min and functions that are written in these, comparisons, and, or, not.

    Example:
        >>> from ntk_deq.claims.load import load_suite
        >>> any(applicable(claim) for claim in load_suite("checks/matrix_facts.yaml").claims)
        False
    """
    if claim.run is not None:
        return False
    for setting in claim.settings:
        if setting.model is not None or not setting.universal or setting.measured:
            return False
        free = {**setting.free, **claim.given}.values()
        if any(v.type != SCALAR or v.domain.kind not in _RANGES for v in free):
            return False
    return all(node.kind in _KINDS and node.type in (SCALAR, BOOLEAN) and _known(node) for node in claim.nodes())


@cache
def _formula(name: str, count: int) -> tuple[tuple[str, ...], Expr] | None:
    """Return what the record of a function says that it is in simpler ones, and the names of its arguments, or None."""
    definition = definition_of(name, count)
    if definition is not None:
        return definition
    facts = entrywise_of(name)
    return None if facts is None or facts.formula is None or count != 1 else ((ENTRY,), formula_of(facts.formula))


def _known(part: Expr) -> bool:
    """Whether a part of a formula of a record can be read."""
    if part.kind is not Kind.CALL or FUNCTIONS[FUNCTIONS[part.name].of_number or part.name].term:
        return True
    formula = _formula(part.name, len(part.args))
    return formula is not None and all(_known(inner) for inner in formula[1].walk())


def problems(claim: Claim, setting: Setting) -> Iterator[Problem]:
    """Yield the problems that a claim poses in a setting: one for each combination of whole numbers taken one by one.

    Args:
        claim: An applicable claim.
        setting: One of its settings.
    """
    variables = {n: Side(Fraction(size.low), Fraction(size.high), whole=True) for n, size in setting.sizes.items()}
    for name, free in {**setting.free, **claim.given}.items():
        own = free.domain
        variables[name] = Side(own.low, own.high, own.low_open, own.high_open, own.kind is DomainKind.INTEGER)
    listed = _listed(claim, variables)
    for values in product(*map(_whole_numbers, listed.values())):
        fixed = dict(zip(listed, values, strict=True))
        reader = _Reader(claim, fixed)
        yield Problem(
            setting.name,
            reader.terms,
            {name: side for name, side in variables.items() if name not in fixed},
            fixed,
            tuple(reader.statement(name, f.expr) for name, f in claim.assume.items()),
            tuple(reader.statement(name, f.expr) for name, f in claim.conclude.items()),
        )


def _whole_numbers(side: Side) -> range:
    assert side.low is not None
    assert side.high is not None
    return range(int(side.low), int(side.high) + 1)


def _listed(claim: Claim, variables: dict[str, Side]) -> dict[str, Side]:
    """Choose the whole numbers to take one by one: the ones in exponents, and all where there are few."""
    nodes = list(claim.nodes())
    used = {node.name for node in nodes if node.kind is Kind.NAME}
    whole = {n: s for n, s in variables.items() if s.whole and n in used and None not in (s.low, s.high)}
    if _combinations(whole) <= _LISTED:
        return whole
    powers = [node.args[1] for node in nodes if node.kind is Kind.POWER]
    names = {node.name for power in powers for node in power.walk() if node.kind is Kind.NAME}
    inside = {node.name for name in names & set(claim.let) for node in claim.let[name].expr.walk()}
    exponents = {n: s for n, s in whole.items() if n in names | inside}
    return exponents if _combinations(exponents) <= _LISTED_EXPONENTS else {}


def _combinations(variables: dict[str, Side]) -> int:
    return math.prod(len(_whole_numbers(side)) for side in variables.values())


class _Reader:
    """Turns expressions into terms, noting what must hold for them to be defined."""

    def __init__(self, claim: Claim, fixed: Mapping[str, int]) -> None:
        self.terms = Terms()
        self._fixed = fixed
        self._lets = claim.let
        self._known: dict[str, tuple[Term | Formula, list[Formula]]] = {}
        self._conditions: list[Formula] = []

    def statement(self, name: str, expr: Expr) -> Statement:
        """Return a hypothesis or a conclusion."""
        self._conditions = []
        formula = self._formula(expr)
        conditions = list(dict.fromkeys(self._conditions))
        return Statement(name, formula, both(conditions) if conditions else TRUE)

    def _formula(self, expr: Expr) -> Formula:
        match expr.kind:
            case Kind.AND:
                return both([self._formula(arg) for arg in expr.args])
            case Kind.OR:
                return either([self._formula(arg) for arg in expr.args])
            case Kind.NOT:
                return opposite(self._formula(expr.args[0]), self.terms)
            case Kind.NAME:
                return self._named(expr.name)  # type: ignore[return-value]
        sides = [self._term(arg) for arg in expr.args]
        links = zip(sides, expr.operators, sides[1:], strict=False)
        return both([self._comparison(left, operator, right) for left, operator, right in links])

    def _comparison(self, left: Term, operator: str, right: Term) -> Formula:
        if operator in (">", ">="):
            left, right = right, left
        relation = {"==": Relation.ZERO, "!=": Relation.NONZERO, "<": Relation.POSITIVE, ">": Relation.POSITIVE}
        return Atom(self.terms.subtract(right, left), relation.get(operator, Relation.NONNEGATIVE))

    def _named(self, name: str) -> Term | Formula:
        if name in self._lets:
            if name not in self._known:
                outer, self._conditions = self._conditions, []
                expr = self._lets[name].expr
                value: Term | Formula = self._formula(expr) if expr.type == BOOLEAN else self._term(expr)
                self._known[name] = (value, self._conditions)
                self._conditions = outer
            self._conditions += self._known[name][1]
            return self._known[name][0]
        return self.terms.constant(self._fixed[name]) if name in self._fixed else self.terms.variable(name)

    def _term(self, expr: Expr) -> Term:
        if expr.kind is Kind.NUMBER and expr.value is not None:
            return self.terms.constant(expr.value)
        if expr.kind is Kind.NAME:
            return self._named(expr.name)  # type: ignore[return-value]
        return self._combined(expr, [self._term(arg) for arg in expr.args])

    def _combined(self, expr: Expr, parts: Sequence[Term]) -> Term:
        """Return the term of an operator or a call, from those of its parts."""
        match expr.kind:
            case Kind.NEGATE:
                return self.terms.negate(parts[0])
            case Kind.ADD:
                return self.terms.add(*parts)
            case Kind.SUBTRACT:
                return self.terms.subtract(*parts)
            case Kind.MULTIPLY:
                return self.terms.multiply(*parts)
            case Kind.DIVIDE:
                self._require(parts[1], Relation.NONZERO)
                return self.terms.divide(*parts)
            case Kind.POWER:
                return self._power(*parts)
            case _:
                return self._call(expr.name, parts)

    def _power(self, base: Term, exponent: Term) -> Term:
        if exponent.op is not Op.CONSTANT or exponent.value is None:
            self._require(base, Relation.POSITIVE)
            return self.terms.exp(self.terms.multiply(exponent, self.terms.log(base)))
        if exponent.value.denominator > 1:
            self._require(base, Relation.NONNEGATIVE if exponent.value > 0 else Relation.POSITIVE)
        elif exponent.value < 0:
            self._require(base, Relation.NONZERO)
        return self.terms.power(base, exponent.value)

    def _call(self, name: str, parts: Sequence[Term]) -> Term:
        formula = _formula(name, len(parts))
        if formula is not None:
            return put(formula[1], dict(zip(formula[0], parts, strict=True)), self.terms.constant, self._combined)
        match FUNCTIONS[name].of_number or name:
            case Op.LOG:
                self._require(parts[0], Relation.POSITIVE)
                return self.terms.log(parts[0])
            case Op.EXP:
                return self.terms.exp(parts[0])
            case Op.ABS:
                return self.terms.absolute(parts[0])
        joined = parts[0]
        for part in parts[1:]:
            joined = self.terms.maximum(joined, part) if name == Op.MAX else self.terms.minimum(joined, part)
        return joined

    def _require(self, term: Term, relation: Relation) -> None:
        value = term.value if term.op is Op.CONSTANT else None
        if value is None or not holds(relation, (value > 0) - (value < 0)):
            self._conditions.append(Atom(term, relation))
