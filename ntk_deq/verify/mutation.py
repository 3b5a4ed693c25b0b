"""Judge the mutants of a claim: which are refuted, which cannot be, which survive."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from ntk_deq.claims.claim import Claim, Verdict
from ntk_deq.claims.mutation import Mutation, follows, mutants
from ntk_deq.verify.judge import FAILING
from ntk_deq.verify.results import ClaimResult
from ntk_deq.verify.runner import Options, judge

Judge = Callable[[Claim, Options], ClaimResult]


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
    *,
    rules: Collection[str] | None = None,
    most: int | None = None,
    judge: Judge = judge,
) -> Iterator[MutantResult]:
    """Yield the mutants of a claim with their fates, as they are judged.

    Args:
        claim: A claim that is taken to be true.
        options: How to judge; a claim's own number of instances is not used.
        rules: Names of rules, or None: all.
        most: How many mutants are judged at most, or None; those that are weaker by nature do not count.
        judge: What judges a mutant.

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
