"""Search a setting for counterexamples, every one of them verified in balls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from ntk_deq.claims.claim import Claim
from ntk_deq.evaluation.instance import Instance
from ntk_deq.falsify.score import Score
from ntk_deq.falsify.search.campaign import SearchResult, satisfy, search
from ntk_deq.language.setting import Setting
from ntk_deq.verify.judge import Judgement, Standing, hypotheses_standing, judge_instance
from ntk_deq.verify.minimise import refutes
from ntk_deq.verify.scoring import ClaimScorer
from ntk_deq.verify.twins import twin_of

_CANDIDATES, _NEAR = 8, 3  # candidates and near misses that are judged when the search is over


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
    device: torch.device | str = "cpu",
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
        return judge_instance(claim, instance, device=torch.device(device), dtype=dtype, deadline=deadline)

    known: dict[int, Judgement] = {}

    def confirm(instance: Instance) -> bool:
        known[id(instance)] = judged(instance)
        return refutes(known[id(instance)])

    scorer_of = partial(twin_of(claim).scorer, claim, setting, device=device, dtype=dtype, deadline=deadline)
    scorers = [scorer_of()]
    if scorers[0].joint:
        # Newton's method finds one solution of several, and none where they are not isolated.
        scorers.append(scorer_of(solving=False))
    counterexamples, others = list[Judgement](), list[Judgement]()
    evaluations, best = 0, Score(-math.inf, math.inf)
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
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float64,
    deadline: float | None = None,
) -> SearchResult:
    """Search one setting of a claim for instances that meet its hypotheses for certain.

    Args:
        claim: The claim.
        setting: One of its settings.
        starts: Instances to start from: the ladder's nearest ones.
        seed: The run's seed.
        budget: What the search may cost, in instances scored alone, many small ones together being cheap: see
            `Scorer.cost`. None: its own `budget`.
        device: Where to compute.
        dtype: In which precision.
        deadline: When to give up, on the clock of `time.thread_time`, or None.

    Raises:
        DeadlineError: The deadline passed.
    """

    def confirm(instance: Instance) -> bool:
        standing = hypotheses_standing(claim, instance, device=torch.device(device), dtype=dtype, deadline=deadline)
        return standing is Standing.MET

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
