"""Mutants of a claim: each differs from it in one place, and most of them ought to be false.

A checker that refutes them looks where it matters; one that lets a false mutant live has a blind spot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from ntk_deq.claims.check import Key, check_formulas
from ntk_deq.claims.claim import Claim, Verdict, is_membership
from ntk_deq.claims.families import typed_families
from ntk_deq.claims.mutation_rules import edits
from ntk_deq.claims.runs import start_formulas, with_start_formulas
from ntk_deq.errors import ArgumentError, ExpressionError, nearest_name
from ntk_deq.language.format import format_expr
from ntk_deq.language.functions import RIVALS
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import Expr, Formula, Span

HYPOTHESIS = "hypothesis"
"""The rule that removes a hypothesis."""

RULE_MEANINGS = {
    HYPOTHESIS: "a hypothesis removed",
    "flip": "an inequality turned round",
    "strict": "a strict sign for a weak one",
    "weak": "a weak sign for a strict one",
    "halve": "a constant halved",
    "double": "a constant doubled",
    "factor": "a factor or divisor dropped",
    "term": "a term of a sum dropped",
    "sign": "a sign changed",
    "transpose": "a transpose dropped",
    "swap": "the factors of a matrix or Kronecker product swapped",
    "exponent": "an exponent raised or lowered by one",
    "extreme": "min for max or max for min",
    "norm": "the spectral norm for the Frobenius norm or the other way round, the Frobenius norm for the nuclear norm",
    "spectral": "the smallest for the largest singular value or eigenvalue, or the other way round",
    "kronecker": "the Kronecker sum for the Kronecker product or the other way round",
    "inverse": "a transpose for a pseudoinverse",
    RIVALS: "a function of a number for one like it",
    "step": "a step raised or lowered by one",
    "point": "a derivative or an envelope of a function taken at minus the point",
    "argument": "a function taken of minus its argument",
}
"""Every rule by name, with what it does in words."""

# Conclusions first: where a cap cuts the list, what the claim says matters more than how it says it.
_SECTIONS = ("conclude", "let", "assume")


@dataclass(frozen=True)
class Place:
    """Where a claim was changed.

    Attributes:
        section: `let`, `assume` or `conclude`.
        name: Name of the formula.
        span: The changed piece in the formula's source text.
        text: That piece as it was written.
    """

    section: str
    name: str
    span: Span
    text: str

    def __str__(self) -> str:
        return f"{self.section} {self.name}"


@dataclass(frozen=True)
class Mutation:
    """A claim changed in one place.

    Attributes:
        claim: The mutant, typed; it expects to be refuted.
        rule: Name of the rule that made it.
        where: The place.
        before: What stood there, with enough around it to be read, in canonical spelling.
        after: What stands there now; empty for a removed hypothesis.
    """

    claim: Claim
    rule: str
    where: Place
    before: str
    after: str


def mutants(
    claim: Claim, *, rules: Collection[str] | None = None, most: int | None = None, most_per_rule: int | None = None
) -> Iterator[Mutation]:
    """Yield the mutants of a claim that are well-formed in each of its settings, each once.

    The rules take turns, so that a cap keeps some of each; within a rule conclusions come before definitions and these
    before hypotheses. The order is the same on every call, and so are the mutants' ids, whatever the caps.

    Args:
        claim: A checked claim.
        rules: Names of rules to use, from `RULE_MEANINGS`; None: all.
        most: How many mutants at most, or None.
        most_per_rule: How many of each rule at most, or None.

    Raises:
        ArgumentError: A rule's name is unknown.
    """
    chosen = _chosen(rules)
    if claim.variants:  # a formula is another one for each choice of functions
        return
    streams = deque(_of_rule(claim, rule, most_per_rule) for rule in chosen)
    seen = {_key(claim)}
    count = 0
    while streams and (most is None or count < most):
        stream = streams.popleft()
        for mutation in stream:
            key = _key(mutation.claim)
            if key not in seen:
                seen.add(key)
                count += 1
                streams.append(stream)
                yield mutation
                break


def _chosen(rules: Collection[str] | None) -> list[str]:
    for name in rules or ():
        if name not in RULE_MEANINGS:
            near = nearest_name(name, list(RULE_MEANINGS))
            hint = f" Did you mean {near!r}?" if near else ""
            raise ArgumentError(f"`rules` must be among {', '.join(RULE_MEANINGS)}. Got {name!r}.{hint}")
    return [name for name in RULE_MEANINGS if rules is None or name in rules]


def _of_rule(claim: Claim, rule: str, most: int | None) -> Iterator[Mutation]:
    """Yield the well-formed mutants of one rule, numbered."""
    number = 0
    for key, expr, span, before, after in _changes(claim, rule):
        changed = changed_claim(claim, key, expr)
        if changed is None:
            continue
        number += 1
        section, name = key
        title = f"{RULE_MEANINGS[rule]}: {before} -> {after}" if after else f"{RULE_MEANINGS[rule]}: {before}"
        mutant = replace(
            changed, id=f"{claim.id}~{rule}-{number}", title=title, expect=Verdict.REFUTED, mutates=claim.id, note=""
        )
        text = getattr(claim, section)[name].text[span.start : span.stop]
        yield Mutation(mutant, rule, Place(section, name, span, text), before, after)
        if number == most:
            return


def _changes(claim: Claim, rule: str) -> Iterator[tuple[Key, Expr | None, Span, str, str]]:
    if rule == HYPOTHESIS:
        for name, formula in claim.assume.items():
            yield ("assume", name), None, formula.expr.span, format_expr(formula.expr), ""
        return
    for section in _SECTIONS:
        for name, formula in getattr(claim, section).items():
            if is_membership(name):
                continue
            for edit in edits(formula.expr, statement=section != "let"):
                if edit.rule == rule:
                    yield (section, name), edit.expr, edit.span, edit.before, edit.after


def changed_claim(claim: Claim, key: Key, expr: Expr | None) -> Claim | None:
    """Return a claim with one formula replaced and everything typed again, or None where it is no longer well-formed.

    Args:
        claim: The claim.
        key: Section and name of the formula.
        expr: The new formula, typed or not; None removes it.
    """
    formulas: dict[Key, Formula] = {}
    for section in ("let", "assume", "conclude"):
        formulas |= {(section, name): formula for name, formula in getattr(claim, section).items()}
    formulas |= start_formulas(claim)
    if expr is None:
        del formulas[key]
    else:
        text = format_expr(expr)
        try:
            formulas[key] = replace(formulas[key], text=text, expr=parse(text))
        except ExpressionError:  # one level too deep, or a literal that has grown too long
            return None
    typed, depths = (None if claim.depths else _typed(claim, formulas)), claim.depths
    if claim.depths:
        kind = None if claim.run is None else claim.run.kind
        found = typed_families(formulas, claim.settings, claim.given, kind=kind)
        typed, depths = None if found.errors else found.typed, tuple(found.depths)
    if typed is None:
        return None

    def part(section: str) -> dict[str, Formula]:
        return {name: formula for (where, name), formula in typed.items() if where == section}

    witness = {name: formula for name, formula in part("let").items() if name in claim.witness}
    if any(formula.expr.type != claim.exists[name].type for name, formula in witness.items()):
        return None
    changed = replace(claim, let=part("let"), assume=part("assume"), conclude=part("conclude"), depths=depths)
    changed = replace(changed, witness=witness)
    return with_start_formulas(changed, typed)


def _typed(claim: Claim, formulas: dict[Key, Formula]) -> dict[Key, Formula] | None:
    """Type every formula in every setting; the types of the first setting are kept, as the loader does."""
    kind = None if claim.run is None else claim.run.kind
    kept: dict[Key, Formula] = {}
    for setting in claim.settings:
        sought = {name: free for name, free in claim.exists.items() if name not in claim.witness}
        checked = check_formulas(formulas, setting, claim.given, exists=sought, kind=kind)
        if len(checked.typed) < len(formulas):
            return None
        for key, expr in checked.typed.items():
            first = kept.setdefault(key, replace(formulas[key], expr=expr))
            if first.expr.type is not None and expr.type is not None and first.expr.type.sort is not expr.type.sort:
                return None
    return kept


def _key(claim: Claim) -> tuple[tuple[str, ...], ...]:
    """Return what makes two mutants the same: every formula in canonical spelling."""
    return tuple(
        (section, name, format_expr(formula.expr))
        for section in ("let", "assume", "conclude")
        for name, formula in getattr(claim, section).items()
    )
