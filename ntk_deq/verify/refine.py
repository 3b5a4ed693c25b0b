"""Judge an instance again where float64 balls leave it undecided: with more bits, and at last in exact arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from ntk_deq.claims.claim import Claim
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.quantity import Truth
from ntk_deq.verify.existence.decision import ExistenceStage
from ntk_deq.verify.judge import OPEN, Judgement, Standing, decided_exactly, judge_instance, undecided

FLOAT_BITS = 53
"""Precision of float64; asking for it means that nothing is judged again."""

DEFAULT_BITS = 128

MOST = 400
"""Instances of one claim that are judged again at most: 4 to 25 ms each for the claims of the papers."""

HOPELESS = 10
"""So many in a row that more bits did not settle, and no more are tried."""

SMALL = 2048
"""Entries of all matrices of an instance together, at most, for it to count as small."""

MUCH_FINER = 4
"""Two sides that stay near zero are judged once more with so many times the bits: then zero is what they are."""

MOST_EXACT = 400
"""Instances of one claim that exact arithmetic is asked about at most: 1 to 5 ms each."""


class Refiner:
    """Judges the undecided small instances of one claim again, with more bits.

    Args:
        claim: The claim.
        bits: Precision of the second judgement.
        dtype: Type to which the instances' values were rounded for the first one, in float64 or float32 balls.
        seed: Of the search for what the claim says exists.
        deadline: When to stop, on the clock of `time.thread_time`.

    Attributes:
        tried: Instances judged again.
        settled: Those of them that were decided by it.
        exact: Instances that exact arithmetic decided more of.
        existence: What decides whether something exists, and remembers how much it took.
    """

    def __init__(
        self,
        claim: Claim,
        bits: int,
        *,
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
        deadline: float | None = None,
    ) -> None:
        self._claim, self._bits, self._dtype, self._deadline = claim, bits, dtype, deadline
        self.existence = ExistenceStage(claim, seed, deadline=deadline)
        self._in_vain = self._exact_in_vain = self._exact_tried = 0
        self.exact = 0
        self.tried = 0
        self.settled = 0

    def refine(self, first: Judgement) -> Judgement:
        """Return the judgement, or that with more bits where it decides more.

        Two sides near zero pass for zero only where they are so with many more bits too; else the margin is unsure.

        Args:
            first: A judgement in float64 or float32 balls.

        Raises:
            DeadlineError: The deadline passed.
            RuntimeError: The two judgements contradict each other; one of them rests on a wrong bound.
        """
        waits = self._claim.exists and self._claim.sought and first.standing is Standing.MET
        return self.existence.decide(first if waits else self._refined(first), self._dtype)

    def _refined(self, first: Judgement) -> Judgement:
        if not self._worthwhile(first):
            return self._settled(_doubted(first))
        self.tried += 1
        again = self._again(first, self._bits) or first
        if _near_zero(again):
            finer = self._again(again, MUCH_FINER * self._bits)
            zero = finer is not None and _near_zero(finer)
            again = finer or again
        else:
            zero = False
        better = zero or openness(again) < openness(first)
        self.settled += zero or (better and not undecided(again))
        self._in_vain = 0 if better else self._in_vain + 1
        chosen = again if better else first
        if not zero:
            return self._settled(_doubted(chosen))
        # With zero for both sides of a conclusion, a hypothesis may still be open that exact arithmetic decides.
        return chosen if chosen.standing is Standing.MET else self._settled(chosen)

    def _settled(self, judgement: Judgement) -> Judgement:
        """Return the judgement, or that in exact arithmetic where it decides more, as long as that is worth trying."""
        spent = self._exact_tried >= MOST_EXACT or self._exact_in_vain >= HOPELESS
        if self._bits <= FLOAT_BITS or spent or not undecided(judgement):
            return judgement
        self._exact_tried += 1
        before = self.exact
        decided = self.decide(judgement)
        self._exact_in_vain = 0 if self.exact > before else self._exact_in_vain + 1
        return decided

    def decide(self, judgement: Judgement) -> Judgement:
        """Return the judgement, or that in exact arithmetic where it decides more.

        Args:
            judgement: A judgement in balls.
        """
        decided = decided_exactly(self._claim, judgement, dtype=self._dtype)
        if openness(decided) >= openness(judgement):
            return judgement
        self.exact += 1
        return decided

    def _again(self, first: Judgement, bits: int) -> Judgement | None:
        try:
            again = judge_instance(
                self._claim, first.instance, dtype=self._dtype, deadline=self._deadline, precision=bits
            )
        except LimitError:  # a matrix too large after all, or a function that only floats have
            return None
        if min(first.nearby, again.nearby) < math.inf:
            return _by_itself(first, again)
        require_agreement(first, again)
        if not again.conclusions:
            return again
        # A conclusion with a function that only floats have keeps its first outcome; near zero is not enough then. What
        # was certain in floats stays so.
        certain = {name: o for name, o in first.conclusions.items() if o.truth in (Truth.TRUE, Truth.FALSE)}
        # One that had no value in floats, at a kink say, was passed over; an open one with more bits says no more.
        values = {n: o for n, o in again.conclusions.items() if n in first.conclusions or o.truth not in OPEN}
        return replace(again, conclusions={**_doubted(first).conclusions, **values, **certain})

    def _worthwhile(self, judgement: Judgement) -> bool:
        if self._bits <= FLOAT_BITS or self.tried >= MOST or self._in_vain >= HOPELESS:
            return False
        return undecided(judgement) and sum(v.numel() for v in judgement.instance.values.values()) <= SMALL


def _by_itself(first: Judgement, again: Judgement) -> Judgement:
    """Return a second judgement, to which the first adds nothing: the two may be of different equilibria."""
    reason = "it is not evaluated with more bits"
    missing = {
        name: replace(outcome, truth=Truth.UNSURE, reason=reason)
        for name, outcome in first.conclusions.items()
        if name not in again.conclusions
    }
    return replace(again, conclusions={**missing, **again.conclusions}) if again.conclusions else again


def _near_zero(judgement: Judgement) -> bool:
    truths = [o.truth for o in judgement.conclusions.values()]
    return judgement.standing is not Standing.UNMET and min(truths, default=Truth.TRUE) is Truth.NEAR_ZERO


def _doubted(judgement: Judgement) -> Judgement:
    """Return the judgement with conclusions that are merely near zero counted as unsure."""
    near = {name: o for name, o in judgement.conclusions.items() if o.truth is Truth.NEAR_ZERO}
    if not near:
        return judgement
    reason = "both sides may be zero, and were not looked at with enough bits to say so"
    unsure = {name: replace(o, truth=Truth.UNSURE, reason=reason) for name, o in near.items()}
    return replace(judgement, conclusions={**judgement.conclusions, **unsure}, reason=judgement.reason or reason)


def openness(judgement: Judgement) -> tuple[int, ...]:
    """Order judgements by how much they leave open: hypotheses first, then wide margins, then narrow ones."""
    truths = [o.truth for o in judgement.conclusions.values()]
    counts = [truths.count(truth) for truth in list(Truth)[1:-1]]
    return (int(judgement.standing is Standing.UNSURE), *counts)


def require_agreement(first: Judgement, again: Judgement) -> None:
    """Raise where one judgement is certain of what the other is certain is not so."""
    certain = {Truth.TRUE, Truth.FALSE}
    for kind in ("hypotheses", "conclusions"):
        before, after = getattr(first, kind), getattr(again, kind)
        for name in before.keys() & after.keys():
            if {before[name].truth, after[name].truth} == certain:
                raise RuntimeError(
                    f"{name!r} is {before[name].truth.name} in floats and {after[name].truth.name} with more bits on "
                    f"instance {first.instance.index} of {first.instance.setting}: a bound is wrong"
                )
