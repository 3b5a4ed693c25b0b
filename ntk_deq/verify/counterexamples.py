"""Counterexamples: a setting searched for them, and those found made small.

Every find and every step of the shrinking is judged with certified balls, so that what is shown is certain.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypedDict, Unpack

import torch

from ntk_deq.certified.rounding import add_up, fro_up
from ntk_deq.claims.claim import Claim
from ntk_deq.errors import ArgumentError, LimitError, NtkDeqError
from ntk_deq.evaluation.instance import Instance
from ntk_deq.falsify import rescaled
from ntk_deq.falsify.domains import contains
from ntk_deq.falsify.search.archive import Score
from ntk_deq.falsify.search.campaign import SearchResult, satisfy, search
from ntk_deq.falsify.shrink import shrink
from ntk_deq.language.declaration import Setting
from ntk_deq.verify.existence.decision import ExistenceStage
from ntk_deq.verify.judge import (
    CPU,
    Judgement,
    Standing,
    decided_exactly,
    judge_instance,
    refutes,
    standing_instance,
    undecided,
)
from ntk_deq.verify.refine import FLOAT_BITS
from ntk_deq.verify.scoring import ClaimScorer
from ntk_deq.verify.twins import twin_of
from ntk_deq.verify.witness import plainness

BUDGET = 400
"""Instances judged for one counterexample; the claims of the papers need 10 to 140."""


class Shrinking(TypedDict, total=False):
    """What `minimise_counterexample` takes besides, but for the budget."""

    device: torch.device
    dtype: torch.dtype
    precision: int
    deadline: float | None


def minimise_counterexample(
    claim: Claim,
    setting: Setting,
    judgement: Judgement,
    *,
    budget: int = BUDGET,
    device: torch.device = CPU,
    dtype: torch.dtype = torch.float64,
    precision: int = FLOAT_BITS,
    deadline: float | None = None,
) -> Judgement:
    """Return the judgement of a smaller and plainer counterexample; the given one where there is none.

    Args:
        claim: The claim.
        setting: The setting of the counterexample.
        judgement: A judgement that refutes the claim.
        budget: How many instances may be judged.
        device: Where.
        dtype: Type to which an instance's values are rounded for that.
        precision: Bits with which an instance that floats leave undecided is judged again; 53: it is not.
        deadline: When to stop, on the clock of `time.thread_time`; what was reached by then is returned.

    Raises:
        ArgumentError: The judgement refutes nothing.
    """
    if not refutes(judgement):
        index = judgement.instance.index
        raise ArgumentError(
            f"`judgement` of minimise_counterexample must refute {claim.id}. Instance {index} does not."
        )
    search = _Search(claim, judgement, device=device, dtype=dtype, precision=precision, deadline=deadline)
    start = _representable(setting, claim, judgement.instance, dtype)
    if start is not judgement.instance and not search.still_refutes(start):
        start = judgement.instance
    result = shrink(start, setting, claim.given, search.still_refutes, budget=budget)
    if not result.steps:
        return search.best
    # The values are those that were judged: variables that equations give were computed for it.
    return replace(search.best, instance=replace(search.best.instance, family=result.instance.family))


def plainest_counterexample(
    claim: Claim, judgements: Sequence[Judgement], *, budget: int = BUDGET, **how: Unpack[Shrinking]
) -> Judgement:
    """Return the plainest of a claim's counterexamples after two were shrunk: the plainest, and one of smallest sizes.

    Args:
        claim: The claim.
        judgements: Judgements that refute it, at least one.
        budget: How many instances may be judged in all.
        how: As for `minimise_counterexample`.
    """
    ordered = sorted(judgements, key=plainness)
    smallest = min(ordered[1:], key=_size, default=None)
    # Large sizes may not shrink: two permutations that do not commute have none smaller of that kind within them.
    starts = ordered[:1] if smallest is None else [ordered[0], smallest]
    found = []
    for start in starts:
        setting = next(s for s in claim.settings if s.name == start.instance.setting)
        found.append(minimise_counterexample(claim, setting, start, budget=budget // len(starts), **how))
    found += ordered[:1]  # the last, so that of equally plain ones the shrunk one wins
    return min(found, key=lambda judgement: (_size(judgement), plainness(judgement)))


def _size(judgement: Judgement) -> int:
    return sum(judgement.instance.sizes.values())


class _Search:
    """Judges candidates and keeps the last that refuted: the shrinker accepts each such."""

    def __init__(
        self,
        claim: Claim,
        best: Judgement,
        *,
        device: torch.device,
        dtype: torch.dtype,
        precision: int,
        deadline: float | None,
    ) -> None:
        self.best = best
        self._claim, self._device, self._dtype = claim, device, dtype
        self._precision, self._deadline = precision, deadline
        self._existence = ExistenceStage(claim, refuting=True, deadline=deadline)

    def still_refutes(self, instance: Instance) -> bool:
        """Judge a candidate; one that cannot be judged, or not in time, is no counterexample."""
        if self._deadline is not None and time.thread_time() > self._deadline:
            return False
        try:
            judgement = self._judge(instance)
        except NtkDeqError:
            return False
        judgement = self._existence.decide(judgement, self._dtype)
        if refutes(judgement):
            self.best = judgement
            return True
        return False

    def _judge(self, instance: Instance) -> Judgement:
        judgement = judge_instance(
            self._claim, instance, device=self._device, dtype=self._dtype, deadline=self._deadline
        )
        if self._precision <= FLOAT_BITS or not undecided(judgement):
            return judgement
        with suppress(LimitError):  # a matrix too large for that, or a function that only floats have
            instance, bits = judgement.instance, self._precision
            judgement = judge_instance(
                self._claim, instance, dtype=self._dtype, deadline=self._deadline, precision=bits
            )
        return decided_exactly(self._claim, judgement, dtype=self._dtype)


def _representable(setting: Setting, claim: Claim, instance: Instance, dtype: torch.dtype) -> Instance:
    """Return the instance with its values rounded to the type in which it is judged, where that leaves no domain."""
    if dtype == torch.float64:
        return instance
    values = {name: value.to(dtype).to(torch.float64) for name, value in instance.values.items()}
    free = {**setting.free, **claim.given}
    inside = all(
        name in instance.rounded.keys() | instance.solved or name not in free or contains(free[name].domain, value)
        for name, value in values.items()
    )
    if not inside:
        return instance
    lost = {name: fro_up(instance.values[name] - values[name]) for name in instance.rounded}
    return replace(instance, values=values, rounded={n: add_up(r, lost[n]) for n, r in instance.rounded.items()})


_CANDIDATES, _NEAR = 8, 3  # candidates and near misses that are judged when the search is over
_LED = 2  # starts of a setting with draws whose scalars are led through their domains


@dataclass(frozen=True)
class Attack:
    """What the search of one setting came to.

    Attributes:
        counterexamples: Judgements of instances that break the claim for certain.
        others: Judgements of candidates that could not be decided, and of near misses.
        evaluations: Instances scored in floating point.
        best: The best score among them.
    """

    counterexamples: tuple[Judgement, ...]
    others: tuple[Judgement, ...]
    evaluations: int
    best: Score


def find_counterexamples(
    claim: Claim,
    setting: Setting,
    starts: Sequence[Instance],
    *,
    seed: int,
    budget: float | None = None,
    device: torch.device = CPU,
    dtype: torch.dtype = torch.float64,
    deadline: float | None = None,
) -> Attack:
    """Search one setting of a claim for instances that break it.

    Args:
        claim: The claim.
        setting: One of its settings.
        starts: Instances to start from: the ladder's tightest feasible ones.
        seed: The run's seed.
        budget: What the search may cost, in instances scored alone, many small ones together being cheap: see
            `Scorer.cost`. None: its own `budget`.
        device: Where to compute.
        dtype: In which precision.
        deadline: When to give up, on the clock of `time.thread_time`, or None.

    Raises:
        DeadlineError: The deadline passed.
    """

    def judged(instance: Instance) -> Judgement:
        return judge_instance(claim, instance, device=device, dtype=dtype, deadline=deadline)

    known: dict[int, Judgement] = {}

    def confirm(instance: Instance) -> bool:
        known[id(instance)] = judged(instance)
        return refutes(known[id(instance)])

    # What is drawn does not move, but follows the scalars that scale it.
    tried = 0
    for start in () if setting.universal else starts[:_LED]:
        for instance in rescaled(setting, claim.given, start, seed):
            tried += 1
            if confirm(instance):
                return Attack((known[id(instance)],), (), tried, Score(-math.inf, math.inf))
    scorer_of = partial(twin_of(claim).scorer, claim, setting, device=device, dtype=dtype, deadline=deadline)
    scorers = [scorer_of()]
    if scorers[0].joint:
        # Newton's method finds one solution of several, and none where they are not isolated.
        scorers.append(scorer_of(solving=False))
    counterexamples, others = list[Judgement](), list[Judgement]()
    evaluations, best = tried, Score(-math.inf, math.inf)
    for scorer in scorers:
        result = search(
            setting,
            claim.given,
            score=scorer,
            starts=starts,
            budget=scorer.budget if budget is None else budget / len(scorers),
            seed=seed,
            confirm=confirm,
        )
        shown = result.candidates[:1] if result.confirmed else result.candidates[:_CANDIDATES]
        shown += () if result.confirmed else result.near_misses[:_NEAR]
        judgements = [known.get(id(instance)) or judged(instance) for instance in shown]
        counterexamples += [j for j in judgements if refutes(j)]
        others += [j for j in judgements if not refutes(j)]
        evaluations += result.evaluations
        best = min(best, result.best, key=lambda score: (score.feasible < 0, score.margin))
        if counterexamples:
            break
    return Attack(tuple(counterexamples), tuple(others), evaluations, best)


def find_satisfying(
    claim: Claim,
    setting: Setting,
    starts: Sequence[Instance],
    *,
    seed: int,
    budget: float | None = None,
    device: torch.device = CPU,
    dtype: torch.dtype = torch.float64,
    deadline: float | None = None,
) -> SearchResult:
    """Search one setting of a claim for instances that meet its hypotheses for certain.

    Arguments and errors as for `find_counterexamples`; `starts` are the ladder's nearest instances.
    """

    def confirm(instance: Instance) -> bool:
        return standing_instance(claim, instance, device=device, dtype=dtype, deadline=deadline)[0] is Standing.MET

    scorer = ClaimScorer(claim, setting, device=device, dtype=dtype, deadline=deadline)
    return satisfy(
        setting,
        claim.given,
        score=scorer,
        starts=starts,
        budget=scorer.budget if budget is None else budget,
        seed=seed,
        confirm=confirm,
    )
