"""Statements about terms: comparisons with zero, joined by `and` and `or`; negation is carried inwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from ntk_deq.verify.proof.terms import Term, Terms


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
    flat = [p for part in parts for p in (part.parts if isinstance(part, Both) else (part,))]
    return flat[0] if len(flat) == 1 else Both(tuple(flat))


def either(parts: list[Formula]) -> Formula:
    """Return a disjunction; of one part, that part."""
    flat = [p for part in parts for p in (part.parts if isinstance(part, Either) else (part,))]
    return flat[0] if len(flat) == 1 else Either(tuple(flat))


def opposite(formula: Formula, terms: Terms) -> Formula:
    """Return the negation."""
    if isinstance(formula, Both):
        return either([opposite(part, terms) for part in formula.parts])
    if isinstance(formula, Either):
        return both([opposite(part, terms) for part in formula.parts])
    match formula.relation:
        case Relation.POSITIVE:
            return Atom(terms.negate(formula.term), Relation.NONNEGATIVE)
        case Relation.NONNEGATIVE:
            return Atom(terms.negate(formula.term), Relation.POSITIVE)
        case Relation.ZERO:
            return Atom(formula.term, Relation.NONZERO)
        case _:
            return Atom(formula.term, Relation.ZERO)


def atoms(formula: Formula) -> Iterator[Atom]:
    """Yield the comparisons of a statement, left to right."""
    if isinstance(formula, Atom):
        yield formula
    else:
        for part in formula.parts:
            yield from atoms(part)


def mapped(formula: Formula, change: Callable[[Term], Term]) -> Formula:
    """Return a statement with every term changed."""
    if isinstance(formula, Atom):
        return Atom(change(formula.term), formula.relation)
    if isinstance(formula, Both):
        return Both(tuple(mapped(part, change) for part in formula.parts))
    return Either(tuple(mapped(part, change) for part in formula.parts))


def holds(relation: Relation, sign: int) -> bool:
    """Say whether a number of a given sign (-1, 0, 1) stands so to zero."""
    match relation:
        case Relation.POSITIVE:
            return sign > 0
        case Relation.NONNEGATIVE:
            return sign >= 0
        case Relation.ZERO:
            return sign == 0
        case _:
            return sign != 0


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
