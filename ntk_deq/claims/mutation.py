"""Mutants of a claim: each differs from it in one place, and most of them ought to be false.

A checker that refutes them looks where it matters; one that lets a false mutant live has a blind spot.

To a mutant that follows from its claim no counterexample can exist. It follows where its hypotheses imply the claim's
and the claim's conclusions imply its own. Both are decided by monotonicity: which of two expressions is larger, from
the signs and ranges of their parts. "Not known" is always a possible answer; "follows" never is a guess.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from ntk_deq.claims.check import Key, check_formulas
from ntk_deq.claims.claim import Claim, Verdict, is_membership, variable_ranges
from ntk_deq.claims.depths import at_depth
from ntk_deq.claims.families import typed_families
from ntk_deq.claims.mutation_rules import edits
from ntk_deq.claims.runs import start_formulas, with_start_formulas
from ntk_deq.errors import ArgumentError, ExpressionError, nearest_name
from ntk_deq.language.format import format_expr
from ntk_deq.language.functions import FUNCTIONS, RIVALS, entrywise_of
from ntk_deq.language.parser import parse
from ntk_deq.language.ranges import Order, Ordering, Ranges, comparisons, joint
from ntk_deq.language.tree import QUANTIFIERS, Expr, Formula, Kind, Span, dependents, names_in
from ntk_deq.language.types import Sort
from ntk_deq.language.written import written_out

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
        expr: The new formula, typed or not; None removes it. Of a claim about sets of functions a
            hypothesis can be removed, and nothing else.
    """
    if claim.variants:  # a formula is another one for each choice of functions
        variants = [changed_claim(variant, key, None) for variant in claim.variants] if expr is None else []
        if not variants or None in variants or key[0] != "assume":
            return None
        kept = {name: formula for name, formula in claim.assume.items() if name != key[1]}
        return replace(claim, assume=kept, variants=tuple(v for v in variants if v is not None))
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


def follows(claim: Claim, mutant: Claim) -> bool:
    """Return whether a mutant is certainly implied by the claim it was made of: weaker, or the same in other words.

    Args:
        claim: The claim.
        mutant: A mutant of it from `ntk_deq.claims.mutation.mutants`: one formula changed or one hypothesis gone.

    Example:
        >>> from ntk_deq.claims.load import load_suite
        >>> from ntk_deq.claims.mutation import mutants
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder) / "suite.yaml"
        ...     _ = path.write_text('''
        ... suite: example
        ... settings: {all: {sizes: {n: 1..3}, domain: {A: "real[n, n]"}}}
        ... claims: [{id: C, setting: all, conclude: norm(A) <= fro(A)}]''')
        ...     claim = load_suite(path).claims[0]
        >>> for mutation in mutants(claim, rules=["halve", "double"]):
        ...     print(mutation.after, follows(claim, mutation.claim))
        norm(A) <= fro(A)/2 False
        norm(A) <= 2*fro(A) True
    """
    if claim.depths:  # of claims with families, at each depth
        if claim.depths != mutant.depths:
            return False
        return all(follows(at_depth(claim, depth), at_depth(mutant, depth)) for depth in claim.depths)
    return _Comparison(claim, mutant).follows()


class _Comparison:
    """A claim against a mutant of it; `changed` are the names whose meaning differs."""

    def __init__(self, claim: Claim, mutant: Claim) -> None:
        self.claim, self.mutant = claim, mutant
        variables = variable_ranges(claim)
        self.old = Ranges(claim.let, variables)
        self.new = Ranges(mutant.let, variables)
        altered = {n for n, old in claim.let.items() if format_expr(old.expr) != format_expr(mutant.let[n].expr)}
        self.changed = dependents(altered, claim.let)
        self.ordering = Ordering(self.old, self.new, self.changed)
        self.nonzero: frozenset[str] = frozenset()

    def follows(self) -> bool:
        if any(formula.names & self.changed for formula in start_formulas(self.mutant).values()):
            return False  # with another step size it is another run
        for formula in self.mutant.assume.values():
            self.new.suppose(formula.expr)
            if not formula.names & self.changed:
                self.old.suppose(formula.expr)
        divisors = (divisor for formula in self.mutant.conclude.values() for divisor in self._divisors(formula.expr))
        self.nonzero = frozenset(divisors)
        for name, formula in self.claim.assume.items():
            there = self.mutant.assume.get(name)
            if there is None or self.statement(there.expr, formula.expr, reverse=True) not in (Order.SAME, Order.UP):
                return False
        # The claim's hypotheses hold wherever the mutant's do: from here on both sets are known.
        self.ordering.forget()
        for formula in self.claim.assume.values():
            self.old.suppose(formula.expr)
        conclusions = (
            self.statement(formula.expr, self.mutant.conclude[name].expr)
            for name, formula in self.claim.conclude.items()
        )
        return all(order in (Order.SAME, Order.UP) for order in conclusions) and self._as_defined()

    def _divisors(self, expr: Expr) -> Iterator[str]:
        """Yield what must not be zero for a conclusion of the mutant to have a value."""
        if not names_in(expr) & self.changed:
            yield from (format_expr(node.args[1]) for node in expr.walk() if node.kind is Kind.DIVIDE)

    def _as_defined(self) -> bool:
        """Whether the claim speaks of every instance that the mutant speaks of.

        An instance on which a quotient, a root or a derivative does not exist is outside a claim, so a mutant without
        that part speaks of more. It does not where the part certainly exists, or where the mutant has it too.
        """
        kept = {format_expr(node) for node in _evaluated(self.mutant) if not names_in(node) & self.changed}
        for node in _evaluated(self.claim):
            if self._partial(node) and format_expr(node) not in kept:
                return False
        return True

    def _partial(self, node: Expr) -> bool:
        """Whether an expression may lack a value, as far as the claim's hypotheses tell."""
        if node.kind is Kind.DIVIDE:
            divisor = self.old.of(node.args[1])
            return not (divisor.above(0) or divisor.below(0))
        if node.kind is Kind.POWER:
            base, exponent = (self.old.of(part) for part in node.args)
            matrix = node.args[0].type is not None and node.args[0].type.sort is Sort.MATRIX
            whole = exponent.low == exponent.high and exponent.low == int(exponent.low)
            harmless = exponent.above(0, or_at=True) and (whole or base.above(0, or_at=True))
            return not (harmless or (base.above(0) and not matrix))
        written = written_out(node)
        if written is not None:
            return any(self._partial(part) for part in written.walk() if part not in node.args)
        facts = entrywise_of(node.name) if node.kind is Kind.CALL else None
        if facts is not None:
            return not facts.valued or not self.old.of(node.args[0]).within(facts.domain)
        if node.kind is Kind.INDEX:
            # At a later step of a run nothing is known of the ranges of what changes.
            return node.name in self.claim.let
        return node.kind is Kind.CALL and node.name in FUNCTIONS and FUNCTIONS[node.name].partial

    def statement(self, old: Expr, new: Expr, *, reverse: bool = False) -> Order:
        """Return UP where `old` implies `new`, DOWN where `new` implies `old`, SAME where both do.

        Args:
            old: A statement of the claim, or of the mutant if `reverse`.
            new: A statement of the other one.
            reverse: Whether `old` is the mutant's.
        """
        if self.ordering.unchanged(old, new):
            return Order.SAME
        if not reverse and self._certain(new):
            return Order.UP
        if old.kind is not new.kind or len(old.args) != len(new.args):
            return Order.UNKNOWN
        if old.kind is Kind.NOT:
            return self.statement(old.args[0], new.args[0], reverse=reverse).flipped
        if old.kind in QUANTIFIERS and (old.names != new.names or old.args[1:] != new.args[1:]):
            return Order.UNKNOWN
        if old.kind in (Kind.AND, Kind.OR):
            return joint(self.statement(a, b, reverse=reverse) for a, b in zip(old.args, new.args, strict=True))
        if old.kind in QUANTIFIERS:
            return self.statement(old.args[0], new.args[0], reverse=reverse)
        return self._chain(old, new, reverse=reverse)

    def _chain(self, old: Expr, new: Expr, *, reverse: bool) -> Order:
        links = []
        for link, (before, after) in enumerate(zip(old.operators, new.operators, strict=True)):
            sides = []
            for index in (link, link + 1):
                a, b = old.args[index], new.args[index]
                sides.append(self.ordering.order(b, a).flipped if reverse else self.ordering.order(a, b))
            pair = new.args[link], new.args[link + 1]
            certain = not reverse and self._certain_link(pair[0], after, pair[1])
            links.append(Order.UP if certain else self._link(before, after, sides, pair))
        return joint(links)

    def _link(self, before: str, after: str, sides: list[Order], args: tuple[Expr, ...]) -> Order:
        left, right = sides
        if before in (">=", ">"):
            left, right = right, left
        moved = joint([left.flipped, right])
        if before == after:
            return moved if before not in ("==", "!=") else moved if moved is Order.SAME else Order.UNKNOWN
        signs = Order.UNKNOWN
        if (before, after) in (("<", "<="), (">", ">="), ("==", "<="), ("==", ">=")):
            signs = Order.UP
        elif (before, after) in (("<=", "<"), (">=", ">")):
            signs = Order.DOWN
        gaps = {format_expr(Expr(Kind.SUBTRACT, args[0].span, pair)) for pair in (args, args[::-1])}
        if moved is Order.SAME and signs is not Order.UNKNOWN and gaps & self.nonzero:
            signs = Order.SAME  # equality would leave some conclusion without a value
        return joint([moved, signs]) if Order.UNKNOWN not in (moved, signs) else Order.UNKNOWN

    def _certain(self, statement: Expr) -> bool:
        """Whether a conclusion of the mutant is true whatever the claim says."""
        body = statement.args[0] if statement.kind is Kind.FOR_ALL else statement
        links = list(comparisons(body))
        if not links or body.kind not in (Kind.COMPARE, Kind.AND):
            return False
        return all(self._certain_link(*link) for link in links)

    def _certain_link(self, left: Expr, operator: str, right: Expr) -> bool:
        gap = self.new.of(right) - self.new.of(left)
        if operator in (">=", ">"):
            gap = -gap
        return operator in ("<=", ">=", "<", ">") and gap.above(0, or_at=operator in ("<=", ">="))


def _evaluated(claim: Claim) -> Iterator[Expr]:
    """Yield every node that is evaluated for a claim: its statements, and the definitions that they use."""
    return claim.nodes_behind(*(formula.expr for formula in (*claim.assume.values(), *claim.conclude.values())))
