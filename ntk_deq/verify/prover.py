"""Prove or refute a claim about real numbers: exact arguments first, then branch and bound over the whole domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from fractions import Fraction

import torch

from ntk_deq.certified.rounding import arithmetic_fault
from ntk_deq.claims.claim import Claim, Verdict
from ntk_deq.claims.existence import names_behind
from ntk_deq.evaluation.environment import DeadlineError
from ntk_deq.evaluation.instance import Instance, format_number
from ntk_deq.language.domain import Free
from ntk_deq.language.tree import Formula as Named
from ntk_deq.language.types import SCALAR
from ntk_deq.prove.box import Demonstrator
from ntk_deq.prove.branch import BranchAndBound, Goal, find_meeting, goals_of
from ntk_deq.prove.cases import Reduced, SymbolicProver, eliminate
from ntk_deq.prove.enclosure import Point
from ntk_deq.prove.exact import Exact
from ntk_deq.prove.problem import Atom, Either, Formula, Problem, applicable, mapped, problems
from ntk_deq.verify.judge import Judgement, judge_instance, refutes
from ntk_deq.verify.results import Evidence

__all__ = ["Proof", "applicable", "prove_claim"]

_PROBED = 48  # boxes at whose middles a counterexample is looked for before anything is proved
_MEETING_BOXES = 500  # in which a point that meets the hypotheses is looked for


@dataclass(frozen=True)
class Proof:
    """What a proof attempt came to.

    Attributes:
        verdict: `proved`, `refuted`, `vacuous` (no point meets the hypotheses) or `undecided`.
        evidence: `symbolic` for exact arguments alone, `certified` where boxes were needed, else `none`.
        reason: What was done, or why it is undecided, for people.
        boxes: How many boxes were looked at.
        counterexample: The judgement on an instance that breaks the claim for certain.
        broken: Whether the claim breaks for certain at a point that is no instance: the reason names it.
        example: An instance that shows what was refuted by an argument about infinitely many.
        proven: Where the claim as a whole is not proven: conclusions that are, and how.
    """

    verdict: Verdict
    evidence: Evidence
    reason: str
    boxes: int = 0
    counterexample: Judgement | None = None
    broken: bool = False
    example: Judgement | None = None
    proven: Mapping[str, str] = field(default_factory=dict)


def prove_claim(claim: Claim, *, budget: int, deadline: float | None = None) -> Proof | None:
    """Prove or refute a claim, or say why neither was possible.

    `proved` means: at every point of every setting's domain, closed and infinite ends and all whole numbers included,
    some hypothesis fails, or every formula is defined and every conclusion true; and some point meets the hypotheses.

    Args:
        claim: The claim.
        budget: Boxes that may be looked at, in all.
        deadline: When to stop, on the clock of `time.thread_time`.

    Returns:
        The outcome; None for a claim no conclusion of which is `applicable`, or that says that something exists without
        saying what. Where a conclusion cannot be proven the others may be, each by itself: see `Proof.proven`.

    Example:
        >>> from ntk_deq.claims.load import load_suite
        >>> claims = {claim.id: claim for claim in load_suite("checks/scalar_facts.yaml").claims}
        >>> prove_claim(claims["N.log"], budget=100).verdict
        <Verdict.PROVED: 'proved'>
    """
    if claim.sought:
        return None
    if not applicable(claim):
        proven = _one_by_one(claim, budget, deadline)
        return replace(_undecided(""), proven=proven) if proven else None
    found = _whole(claim, budget, deadline)
    if found.verdict is Verdict.UNDECIDED and not found.broken and len(claim.conclude) > 1:
        return replace(found, proven=_one_by_one(claim, budget, deadline))
    return found


def _whole(claim: Claim, budget: int, deadline: float | None) -> Proof:
    attempts: list[_Attempt] = []
    try:
        return _attempted(claim, budget, deadline, attempts)
    except DeadlineError as error:
        return replace(_undecided(str(error)), boxes=sum(attempt.boxes for attempt in attempts))


def _one_by_one(claim: Claim, budget: int, deadline: float | None) -> dict[str, str]:
    """Return the conclusions that are proven, each by itself, and how; all of them share the budget."""
    parts = [part for name in claim.conclude if (part := _about_numbers(claim, name)) is not None]
    found: dict[str, str] = {}
    for part in parts:
        ((name, _),) = part.conclude.items()
        proof = _whole(part, budget // len(parts), deadline)
        if proof.verdict is Verdict.PROVED:
            found[name] = proof.reason
    return found


def _about_numbers(claim: Claim, name: str) -> Claim | None:
    """Return the claim with one conclusion alone, if it is about real numbers; None if it is not.

    Hypotheses and variables that are not about numbers are left out: what follows from fewer hypotheses follows.
    """

    def numbers(free: Mapping[str, Free]) -> dict[str, Free]:
        return {variable: own for variable, own in free.items() if own.type == SCALAR}

    settings = tuple(replace(setting, free=numbers(setting.free)) for setting in claim.settings)
    alone = replace(claim, settings=settings, given=numbers(claim.given))
    known = [{*setting.free, *alone.given, *setting.sizes} for setting in settings]

    def readable(formula: Named) -> bool:
        names, lets = _reached(formula, claim.let)
        if any(names - set(lets) - own for own in known):
            return False
        return applicable(replace(alone, let=lets, assume={}, conclude={formula.name: formula}))

    if not readable(claim.conclude[name]):
        return None
    assume = {n: formula for n, formula in claim.assume.items() if readable(formula)}
    used = set[str]().union(*(_reached(f, claim.let)[1] for f in (claim.conclude[name], *assume.values())))
    lets = {n: formula for n, formula in claim.let.items() if n in used}
    return replace(alone, let=lets, assume=assume, conclude={name: claim.conclude[name]})


def _reached(formula: Named, let: Mapping[str, Named]) -> tuple[set[str], dict[str, Named]]:
    """Return the names that a formula uses, directly or through definitions, and these definitions."""
    names = names_behind(formula.expr, {name: own.expr for name, own in let.items()})
    return names, {name: formula for name, formula in let.items() if name in names}


def _attempted(claim: Claim, budget: int, deadline: float | None, attempts: list[_Attempt]) -> Proof:
    boxes = 0
    for setting in claim.settings:
        for problem in problems(claim, setting):
            attempts.append(_Attempt(claim, problem, deadline))
            found = attempts[-1].run(budget - boxes)
            boxes += attempts[-1].boxes
            if found is not None:
                return replace(found, boxes=boxes)
    if any(attempt.meeting is _Meeting.FOUND for attempt in attempts):
        used = set[str]().union(*(attempt.used for attempt in attempts))
        return _proved(boxes, used)
    if any(attempt.meeting is _Meeting.UNKNOWN for attempt in attempts):
        return replace(_undecided("it follows from its hypotheses, but no point is known that meets them"), boxes=boxes)
    tried = sum(attempt.meeting_boxes for attempt in attempts)
    reason = f"no point meets the hypotheses: shown by branch and bound over {_count(tried)}"
    return Proof(Verdict.VACUOUS, Evidence.CERTIFIED, reason, boxes + tried)


def _proved(boxes: int, used: set[str]) -> Proof:
    arguments = ", ".join(sorted(used))
    if not boxes:
        return Proof(Verdict.PROVED, Evidence.SYMBOLIC, f"proved in exact arithmetic: {arguments or 'equal numbers'}")
    exact = f"; the rest in exact arithmetic: {arguments}" if used else ""
    return Proof(Verdict.PROVED, Evidence.CERTIFIED, f"proved by branch and bound over {_count(boxes)}{exact}", boxes)


def _count(boxes: int) -> str:
    return f"{boxes:,} box{'es' if boxes != 1 else ''}"


class _Meeting(Enum):
    """Whether some point meets the hypotheses."""

    FOUND = auto()
    NONE = auto()
    UNKNOWN = auto()


class _Attempt:
    """The attempt on one problem of a claim."""

    def __init__(self, claim: Claim, problem: Problem, deadline: float | None) -> None:
        self._claim, self._problem, self._deadline = claim, problem, deadline
        self.used: set[str] = set()
        self.boxes = 0
        self.meeting = _Meeting.UNKNOWN
        self.meeting_boxes = 0

    def run(self, budget: int) -> Proof | None:
        """Return what ends the whole proof, or None where this problem's goals are shown."""
        reduced = eliminate(self._problem)
        goals = goals_of(self._problem)
        probed = self._search(reduced, goals, min(budget, _PROBED), thorough=False)
        if probed is not None:
            return probed
        prover = SymbolicProver(self._problem, deadline=self._deadline)
        left = [goal for goal in goals if not self._shown_exactly(prover, goal)]
        self.boxes = 0
        if left:
            found = self._search(reduced, left, budget, thorough=True)
            if found is not None:
                return found
        if self.meeting is _Meeting.UNKNOWN:
            self._look_for_meeting(reduced)
        return None

    def _shown_exactly(self, prover: SymbolicProver, goal: Goal) -> bool:
        found = prover.shows(goal.formula)
        self.used |= found or set()
        return found is not None

    def _search(self, reduced: Reduced, left: Sequence[Goal], budget: int, *, thorough: bool) -> Proof | None:
        fault = arithmetic_fault()
        if fault:
            return _undecided(f"boxes cannot be used: {fault}") if thorough else None
        exact = Exact(reduced.problem.terms, reduced.problem.variables)
        goals = [Goal(g.name, reduced.change(g.formula), g.conclusion) for g in left]
        if thorough:
            goals = [replace(goal, formula=_eased(exact, goal.formula)) for goal in goals]
        search = BranchAndBound(
            reduced.problem,
            goals,
            Demonstrator(exact),
            confirm=lambda point: self._judged(reduced.restored(point)) is not None,
            deadline=self._deadline,
        )
        outcome = search.run(budget) if thorough else search.probe(budget)
        self.boxes += outcome.boxes
        if outcome.met is not None:
            self.meeting = _Meeting.FOUND
        if outcome.counterexample is not None:
            judgement = self._judged(reduced.restored(outcome.counterexample))
            assert judgement is not None  # it was confirmed
            reason = f"branch and bound found a point that breaks it: {judgement.instance.family}"
            return Proof(Verdict.REFUTED, Evidence.CERTIFIED, reason, counterexample=judgement)
        if not thorough:
            return None
        if outcome.broken is not None:
            point = reduced.restored(outcome.broken)
            if point is not None:
                point |= {name: Fraction(value) for name, value in self._problem.fixed.items()}
            return replace(_undecided(_broken_at(point)), broken=True)
        return None if outcome.covered else _undecided(outcome.reason)

    def _look_for_meeting(self, reduced: Reduced) -> None:
        """Look for a point that meets the hypotheses: without one the claim may say nothing."""
        if not self._problem.hypotheses:
            self.meeting = _Meeting.FOUND
            return
        exact = Exact(reduced.problem.terms, reduced.problem.variables)
        found = find_meeting(reduced.problem, Demonstrator(exact), _MEETING_BOXES)
        self.meeting_boxes = found.boxes
        if found.point is not None:
            self.meeting = _Meeting.FOUND
        elif found.none:
            self.meeting = _Meeting.NONE

    def _judged(self, point: Point | None) -> Judgement | None:
        """Return the judgement on a point that breaks the claim for certain, else None."""
        instance = None if point is None else self._instance(point)
        if instance is None:
            return None
        judgement = judge_instance(self._claim, instance, deadline=self._deadline)
        return judgement if refutes(judgement) else None

    def _instance(self, point: Point) -> Instance | None:
        """Return a point as an instance, or None where a coordinate is no float."""
        if any(float(value) != value for value in point.values()):
            return None
        setting = self._claim.setting_named(self._problem.setting)
        numbers = {**{name: float(v) for name, v in point.items()}, **dict(self._problem.fixed)}
        sizes = {name: int(numbers[name]) for name in setting.sizes}
        values = {n: torch.tensor(float(v), dtype=torch.float64) for n, v in numbers.items() if n not in sizes}
        family = ", ".join(f"{name} = {format_number(float(numbers[name]))}" for name in (*sizes, *values))
        return Instance(setting.name, family, sizes, values, 0)


def _broken_at(point: Point | None) -> str:
    """Return where a claim breaks, and why no instance shows it."""
    if point is None:
        return "it breaks at a point with a coordinate that is no rational number"
    where = ", ".join(f"{name} = {value}" for name, value in point.items())
    if any(float(value) != value for value in point.values()):
        return f"it breaks at {where}, and no float64 number is that: no instance can show it"
    return f"it breaks at {where}, where balls around floats cannot tell the two sides apart"


def _eased(exact: Exact, formula: Formula) -> Formula:
    """Return a statement with each comparison also in a form without divisors: either will do."""

    def eased(atom: Atom) -> Formula:
        term = exact.cleared(atom.term)
        return atom if term in (None, atom.term) else Either((atom, Atom(term, atom.relation)))

    return mapped(formula, eased)


def _undecided(reason: str) -> Proof:
    return Proof(Verdict.UNDECIDED, Evidence.NONE, reason)
