"""Search a setting for counterexamples, every one of them verified in balls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ntk_deq.claims.claim import Claim
from ntk_deq.evaluation.instance import Instance
from ntk_deq.falsify.score import Score
from ntk_deq.falsify.search.campaign import SearchResult, satisfy, search
from ntk_deq.language.setting import Setting
from ntk_deq.verify.judge import Judgement, Standing, hypotheses_standing, judge_instance
from ntk_deq.verify.minimise import refutes
from ntk_deq.verify.scoring import ClaimScorer
from ntk_deq.verify.training.scoring import TrainingScorer

LONGEST, SHORTEST = 5000.0, 150.0
"""Bounds of the default budget of a universal setting, in instances that are scored alone."""

OPERATIONS = 180_000
"""Operations that the default budget comes to, two to four seconds: of short formulas more instances are tried."""

AROUND = 25
"""Operations that everything around a look at an instance is worth."""

DIFFERENTIATING = 2
"""Times that a formula with a derivative is evaluated, about."""

TRAINED_BUDGET = 300.0
"""The default budget in training runs."""

DRAWN_SHARE = 10
"""What part of a budget is spent where data are drawn: instances are larger there, and little may move."""

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
            `Scorer.cost`. None: `default_budget`.
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

    kind = TrainingScorer if claim.trains else ClaimScorer
    scorers = [kind(claim, setting, device=device, dtype=dtype, deadline=deadline)]
    if isinstance(scorers[0], ClaimScorer) and scorers[0].joint:
        # Newton's method finds one solution of several, and none where they are not isolated.
        scorers.append(ClaimScorer(claim, setting, device=device, dtype=dtype, deadline=deadline, solving=False))
    counterexamples, others = list[Judgement](), list[Judgement]()
    evaluations, best = 0, Score(-math.inf, math.inf)
    for scorer in scorers:
        result = search(
            setting,
            claim.given,
            score=scorer,
            starts=starts,
            budget=default_budget(scorer) if budget is None else budget / len(scorers),
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
            `Scorer.cost`. None: `default_budget`.
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
        budget=default_budget(scorer) if budget is None else budget,
        seed=seed,
        confirm=confirm,
    )


def default_budget(scorer: ClaimScorer | TrainingScorer) -> float:
    """Return what the search of one setting may cost by default: two to four seconds, whatever the claim.

    It is counted, not timed, so that a run depends on its seed alone. The depths of a claim with families share it.
    """
    claim = scorer.claim
    depths = () if claim.origin is None or claim.depth is None else claim.origin.depths
    share = max(1, sum(claim.depth is not None and depth.setting == claim.depth.setting for depth in depths))
    if isinstance(scorer, TrainingScorer):
        return TRAINED_BUDGET / share
    each = AROUND + scorer.operations * (1 if scorer.differentiable else DIFFERENTIATING)
    budget = min(LONGEST, max(SHORTEST, OPERATIONS / each)) / share
    return budget if scorer.setting.universal else budget / DRAWN_SHARE
