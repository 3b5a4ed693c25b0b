"""What else can be said of a claim that holds: hypotheses that never mattered, bounds with room, mutants of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

import torch

from ntk_deq.certified.scalar import lower, upper
from ntk_deq.claims.claim import Claim, Depth, Verdict
from ntk_deq.claims.depths import at_depth
from ntk_deq.claims.mutation import Mutation, changed_claim, follows, mutants
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.balls import evaluate_scalar, shown_scopes
from ntk_deq.evaluation.environment import DeadlineError, Environment, Notes, OutsideClaimError
from ntk_deq.evaluation.instance import Instance
from ntk_deq.falsify import instance_at
from ntk_deq.language.format import format_expr, format_number
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.language.types import SCALAR
from ntk_deq.verify.depths import planned_depths, shared_options
from ntk_deq.verify.equations.proven import solve
from ntk_deq.verify.feasible import Feasible, planned
from ntk_deq.verify.formulas import instance_environment
from ntk_deq.verify.judge import FAILING, Standing, judge_instance
from ntk_deq.verify.options import Options
from ntk_deq.verify.results import ClaimResult, Finding, FindingKind

LEAST_ROOM = 1.05
"""A bound that could be moved by less than this factor is called tight: a drawn instance seldom meets it exactly."""

ROUNDS = 5
"""Stricter bounds that are tried one after another, in a bisection on the logarithm of the factor."""

_SLACK = 1e-3  # keeps the instance with the smallest ratio from being a counterexample by rounding

Judge = Callable[[Claim, Options], ClaimResult]

_UPWARD = ("<=", "<")  # the right side is the generous one where it is large


def findings(claim: Claim, options: Options, result: ClaimResult, judge: Judge) -> tuple[Finding, ...]:
    """Return what dropping each hypothesis, and comparing both sides of each bound, shows of a claim that holds.

    A finding rests on the instances tried and proves nothing: "never mattered" means that none of them shows why a
    hypothesis is needed.

    Args:
        claim: The claim.
        options: How it was judged.
        result: Its result; only a claim that holds has findings.
        judge: What judges variants of the claim.
    """
    if result.verdict not in (Verdict.HOLDS, Verdict.PROVED):
        return ()
    # Variants of the claim are judged by the way: they leave nothing behind.
    plain = replace(options, findings=False, smallest=(), store=None, out=None)
    return (*hypothesis_findings(claim, plain, judge), *constant_findings(claim, plain, judge))


def hypothesis_findings(claim: Claim, options: Options, judge: Judge) -> Iterator[Finding]:
    """Drop each hypothesis in turn and yield whether the claim then breaks."""
    for name in claim.assume:
        without = changed_claim(claim, ("assume", name), None)
        if without is not None:
            yield _dropped(name, judge(without, options))


def _dropped(name: str, result: ClaimResult) -> Finding:
    detail: dict[str, Any] = {
        "hypothesis": name,
        "matters": None,
        "instances": result.instances,
        "met": result.met,
        "verdict": result.verdict.value,
    }
    if result.verdict is Verdict.REFUTED and result.counterexample is not None:
        witness = result.counterexample
        sizes = ", ".join(f"{letter} = {size}" for letter, size in witness.sizes.items())
        detail |= {"matters": True, "counterexample": witness}
        where = f" at {sizes}" if sizes else ""
        text = f"hypothesis {name!r} matters: without it {witness.conclusion!r} breaks{where}"
    elif result.verdict in (Verdict.HOLDS, Verdict.PROVED):
        detail["matters"] = False
        text = (
            f"hypothesis {name!r} never mattered: without it the claim holds on all {result.met} instances that count"
        )
    else:
        text = f"whether hypothesis {name!r} matters is open: without it the claim is {result.verdict}: {result.reason}"
    return Finding(FindingKind.HYPOTHESIS, text, detail)


@dataclass(frozen=True)
class Bound:
    """An inequality between numbers in a conclusion.

    Attributes:
        conclusion: Name of the conclusion.
        left, relation, right: The inequality.
        quantifiers: The quantifiers around it, over steps and over ranges, outermost first.
    """

    conclusion: str
    left: Expr
    relation: str
    right: Expr
    quantifiers: tuple[Expr, ...] = ()

    @property
    def text(self) -> str:
        """The inequality as text."""
        return f"{format_expr(self.left)} {self.relation} {format_expr(self.right)}"

    def moved(self, factor: float) -> Expr:
        """Return the inequality, with its quantifiers, whose right side is stricter by a factor."""
        span = self.right.span
        number = Expr(Kind.NUMBER, span, value=Fraction(factor).limit_denominator(10**6))
        kind = Kind.DIVIDE if self.relation in _UPWARD else Kind.MULTIPLY
        statement = Expr(
            Kind.COMPARE, span, (self.left, Expr(kind, span, (self.right, number))), operators=(self.relation,)
        )
        for quantifier in reversed(self.quantifiers):
            statement = replace(quantifier, args=(statement, *quantifier.args[1:]))
        return statement


def bounds(claim: Claim) -> Iterator[Bound]:
    """Yield the inequalities between numbers that the conclusions of a claim are made of."""
    for name, formula in claim.conclude.items():
        if name not in claim.resting:  # where something smaller may serve as well, nothing is known to break
            yield from _bounds(name, formula.expr, ())


def _bounds(name: str, expr: Expr, around: tuple[Expr, ...]) -> Iterator[Bound]:
    if expr.kind is Kind.AND:
        for part in expr.args:
            yield from _bounds(name, part, around)
    elif expr.kind in (Kind.FOR_ALL, Kind.EACH):
        yield from _bounds(name, expr.args[0], (*around, expr))
    else:
        for left, relation, right in expr.links:
            if relation not in ("==", "!=") and left.type == SCALAR == right.type and right.kind is not Kind.NUMBER:
                yield Bound(name, left, relation, right, around)


@dataclass
class Room:
    """By what factor the right side of a bound could be moved, over the instances tried.

    Attributes:
        factor: The smallest ratio of the larger side to the smaller one, rounded down; infinite: nothing limits it.
        instances: Instances on which both sides are positive, so that the ratio says something.
        tightest: The instance with the smallest ratio.
    """

    factor: float = float("inf")
    instances: int = 0
    tightest: Instance | None = None

    def add(self, ratio: float | None, instance: Instance) -> None:
        """Take an instance into account."""
        if ratio is None:
            return
        self.instances += 1
        if ratio < self.factor:
            self.factor, self.tightest = ratio, instance


def constant_findings(claim: Claim, options: Options, judge: Judge) -> Iterator[Finding]:
    """Yield the bounds whose right side could be moved by a factor without breaking on any instance tried.

    The factor is at most the smallest ratio of the two sides over the claim's instances. The stricter claim is then
    judged as any other, search included: where that refutes it, smaller factors are tried. Bounds along a training run
    are left out: the report shows how much of each is used. With families a bound is one bound for each member at each
    depth; it could be moved by as much as all of them could.
    """
    if claim.costly or claim.members:  # what is said of some functions is a bound of its own for each of them
        return
    rooms = {bound: Room() for bound in bounds(claim)}
    if not rooms:
        return
    for part, judged_as, own in _parts(claim, rooms, options):
        for instance in met_instances(part, judged_as):
            notes = Notes()
            device = torch.device(options.device)
            env = instance_environment(part, instance, device=device, dtype=options.dtype, notes=notes)
            _, env = solve(part, instance, env, dtype=options.dtype, anew=False)
            for bound, room in rooms.items():
                ratios = [smallest_ratio(member, env) for member in own[bound]]
                room.add(min((ratio for ratio in ratios if ratio is not None), default=None), instance)
    for bound, room in rooms.items():
        if room.tightest is not None and room.factor < float("inf"):
            room.factor = _kept(claim, bound, room.factor, options, judge)
            if room.factor >= LEAST_ROOM:
                yield _roomy(bound, room)


def _parts(
    claim: Claim, found: Iterable[Bound], options: Options
) -> Iterator[tuple[Claim, Options, dict[Bound, list[Bound]]]]:
    """Yield the claim at each of its depths, how it is judged there, and what each bound is there."""
    if not claim.depths:
        yield claim, options, {bound: [bound] for bound in found}
        return
    alone = {bound: changed_claim(claim, ("conclude", bound.conclusion), bound.moved(1.0)) for bound in found}
    planned_parts = planned_depths(claim, options)
    for part, _ in planned_parts:
        assert part.depth is not None
        own = {bound: [] if changed is None else _there(bound, changed, part.depth) for bound, changed in alone.items()}
        yield part, shared_options(options, len(planned_parts)), own


def _there(bound: Bound, alone: Claim, depth: Depth) -> list[Bound]:
    """Return what a bound of a claim with families is at a depth, from the claim that has it as its conclusion."""
    return [member for member in bounds(at_depth(alone, depth)) if member.conclusion == bound.conclusion]


def _kept(claim: Claim, bound: Bound, factor: float, options: Options, judge: Judge) -> float:
    """Return a factor by which the bound can be made stricter without being refuted, or 1: by bisection."""
    kept, tried, refuted = 1.0, factor, factor
    for _ in range(ROUNDS):
        if tried < LEAST_ROOM:
            break
        stricter = changed_claim(claim, ("conclude", bound.conclusion), bound.moved(tried * (1 - _SLACK)))
        if stricter is not None and judge(stricter, options).verdict is Verdict.REFUTED:
            refuted = tried
        else:
            kept = tried
        if kept == refuted:
            break
        tried = math.sqrt(kept * refuted)
    return kept


def met_instances(claim: Claim, options: Options) -> Iterator[Instance]:
    """Yield the instances of a run that meet the hypotheses for certain, until the time limit."""
    deadline = None if options.time_limit is None else time.thread_time() + options.time_limit
    feasible = Feasible(claim, options, deadline)
    try:
        for setting, count in planned(claim, options):
            for index in range(count):
                instance = feasible(setting, instance_at(setting, claim.given, index, options.seed))
                judgement = judge_instance(claim, instance, **options.judging(deadline))
                if judgement.standing is Standing.MET:
                    yield judgement.instance
    except DeadlineError:
        return


def smallest_ratio(bound: Bound, env: Environment) -> float | None:
    """Return the ratio of the larger side to the smaller one, the smallest over the steps, bounded from below.

    None where it says nothing: a side may be zero or negative at every step, or has no value.
    """
    smallest: float | None = None
    try:
        for scope in _scopes(bound.quantifiers, env, {}):
            sides = [evaluate_scalar(side, env, scope).ball for side in (bound.left, bound.right)]
            small, large = sides if bound.relation in _UPWARD else sides[::-1]
            least, most = lower(small), upper(small)
            if not (least > 0 and lower(large) > 0 and most < float("inf")):
                continue
            ratio = lower(large / small)
            smallest = ratio if smallest is None else min(smallest, ratio)
    except (OutsideClaimError, LimitError):
        return None
    return smallest


def _scopes(
    quantifiers: tuple[Expr, ...], env: Environment, scope: Mapping[str, float]
) -> Iterator[Mapping[str, float]]:
    if not quantifiers:
        yield scope
        return
    for inner, _ in shown_scopes(quantifiers[0], env, scope):
        yield from _scopes(quantifiers[1:], env, inner)


def _roomy(bound: Bound, room: Room) -> Finding:
    assert room.tightest is not None
    smaller = bound.relation in _UPWARD
    factor = f"{room.factor:.3g}"
    text = f"{bound.conclusion!r}, {bound.text}: the right side could be {factor} times "
    text += "smaller" if smaller else "larger"
    text += f" on every instance tried ({room.instances} with both sides positive)"
    constant = leading_constant(bound.right)
    moved = None
    if constant is not None:
        moved = float(constant) / room.factor if smaller else float(constant) * room.factor
        text += f"; its constant {format_number(constant)} could be {moved:.3g}"
    detail = {
        "conclusion": bound.conclusion,
        "bound": bound.text,
        "factor": room.factor,
        "instances": room.instances,
        "constant": None if constant is None else float(constant),
        "constant_could_be": moved,
        "setting": room.tightest.setting,
        "index": room.tightest.index,
        "family": room.tightest.family,
        "sizes": dict(room.tightest.sizes),
    }
    return Finding(FindingKind.CONSTANT, text, detail)


def leading_constant(side: Expr) -> Fraction | None:
    """Return the constant of a side, where a literal number that is at least 2 or no integer is a factor of all of it.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> leading_constant(parse("16*lam3/(1 - c)^2")), leading_constant(parse("2*a + b"))
        (Fraction(16, 1), None)
    """
    if side.kind is Kind.NUMBER and side.value is not None:
        return side.value if side.value >= 2 or side.value.denominator != 1 else None
    if side.kind is Kind.MULTIPLY:
        return leading_constant(side.args[0]) or leading_constant(side.args[1])
    return leading_constant(side.args[0]) if side.kind is Kind.DIVIDE else None


class Fate(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"  # refuted; of a changed witness: it is noticed that it fails
    SURVIVED = "survived"  # it holds, as far as anything was tried
    VACUOUS = "vacuous"  # no instance met its hypotheses
    UNDECIDED = "undecided"
    ERROR = "error"
    WEAKER = "weaker"  # it follows from the claim, so nothing can refute it; not judged


_FATES = {
    Verdict.REFUTED: Fate.KILLED,
    Verdict.HOLDS: Fate.SURVIVED,
    Verdict.PROVED: Fate.SURVIVED,
    Verdict.VACUOUS: Fate.VACUOUS,
    Verdict.UNDECIDED: Fate.UNDECIDED,
}


@dataclass(frozen=True)
class MutantResult:
    """A mutant and what became of it.

    Attributes:
        parent: Id of the claim it was made of.
        mutation: The mutant.
        fate: What became of it.
        result: Its judgement, or None where it was not judged.
    """

    parent: str
    mutation: Mutation
    fate: Fate
    result: ClaimResult | None = None

    @property
    def closest(self) -> float | None:
        """The smallest margin relative to its scale, of all conclusions on all instances that met the hypotheses."""
        if self.result is None:
            return None
        ratios = [lo / scale for record in self.result.conclusions for lo, _, scale in record.margins if scale > 0]
        return min(ratios, default=None)


@dataclass(frozen=True)
class Score:
    """How many mutants there were of each fate.

    Example:
        >>> score = Score({Fate.KILLED: 9, Fate.SURVIVED: 1, Fate.WEAKER: 5})
        >>> score.judged, score.value
        (10, 0.9)
    """

    counts: dict[Fate, int]

    @property
    def judged(self) -> int:
        """All mutants but those that are weaker by nature."""
        return sum(count for fate, count in self.counts.items() if fate is not Fate.WEAKER)

    @property
    def value(self) -> float | None:
        """The share of the judged mutants that were refuted; None where none was judged."""
        return self.counts.get(Fate.KILLED, 0) / self.judged if self.judged else None


def score(results: Iterable[MutantResult]) -> Score:
    """Count mutants by fate."""
    counts = dict.fromkeys(Fate, 0)
    for result in results:
        counts[result.fate] += 1
    return Score(counts)


def judge_mutants(
    claim: Claim,
    options: Options,
    judge: Judge,
    *,
    rules: Collection[str] | None = None,
    most: int | None = None,
) -> Iterator[MutantResult]:
    """Yield the mutants of a claim with their fates, as they are judged.

    Args:
        claim: A claim that is taken to be true.
        options: How to judge; a claim's own number of instances is not used.
        judge: What judges a mutant.
        rules: Names of rules, or None: all.
        most: How many mutants are judged at most, or None; those that are weaker by nature do not count.

    Raises:
        ArgumentError: A rule's name is unknown.
    """
    judged = 0
    for mutation in mutants(claim, rules=rules):
        if follows(claim, mutation.claim):
            yield MutantResult(claim.id, mutation, Fate.WEAKER)
            continue
        if most is not None and judged >= most:
            return
        judged += 1
        result = judge(replace(mutation.claim, instances=None), options)
        fate = _FATES.get(result.verdict, Fate.ERROR)
        if mutation.where.name in claim.witness and result.verdict is Verdict.UNDECIDED and FAILING in result.reason:
            fate = Fate.KILLED  # that a witness fails refutes nothing, and is what there is to notice
        yield MutantResult(claim.id, mutation, fate, result)


def worth_mutating(claim: object) -> bool:
    """Whether a claim is one that should be true, so that its mutants should be false."""
    return isinstance(claim, Claim) and claim.expect in (Verdict.HOLDS, Verdict.PROVED)
