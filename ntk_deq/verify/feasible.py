"""Which instances of the ladder a claim is judged on, and what stands in for those that fail its hypotheses."""

from __future__ import annotations

from itertools import islice

import torch

from ntk_deq.claims.claim import Claim
from ntk_deq.evaluation.instance import Instance
from ntk_deq.falsify.search.starts import Repair
from ntk_deq.language.declaration import Setting
from ntk_deq.verify.formulas import DRAWN_SHARE
from ntk_deq.verify.judge import hypotheses_fail
from ntk_deq.verify.options import Options
from ntk_deq.verify.twins import twin_of

TRAINED = 24
"""Instances of a claim in a universal setting, where each is a run; a quarter of it where data are drawn."""

DRAWN_LEAST = 8
"""And at least so many."""

MOVING = 0.25
"""What moving instances into the hypotheses may cost, of the default budget of a search."""

REPLACED = 8
"""Instances at most that are tried in the place of one that fails a hypothesis."""

IN_VAIN = 24
"""So many in a row that failed one as well, and a single one is tried from there on."""


def planned(claim: Claim, options: Options) -> list[tuple[Setting, int]]:
    """Return how many instances of the ladder each setting of a claim gets."""
    asked = claim.instances or options.instances
    count = asked or options.usual
    if claim.costly:
        return [(s, asked or min(count, TRAINED if s.universal else TRAINED // 4)) for s in claim.settings]
    return [(s, count if s.universal else min(count, max(DRAWN_LEAST, count // DRAWN_SHARE))) for s in claim.settings]


class Feasible:
    """Puts instances that meet a claim's hypotheses in the place of those that do not.

    Args:
        claim: The claim.
        options: How it is judged.
        deadline: When to give up, on the clock of `time.thread_time`, or None.
    """

    def __init__(self, claim: Claim, options: Options, deadline: float | None) -> None:
        self._claim, self._options, self._deadline = claim, options, deadline
        self._repairs: dict[str, Repair] = {}
        self._vain: dict[str, int] = {}

    def __call__(self, setting: Setting, instance: Instance) -> Instance:
        """Return the instance, or the first one in its place on which no hypothesis certainly fails."""
        if not setting.universal or not self._claim.assume or not self._fails(instance):
            return instance
        if setting.name not in self._repairs:
            options = self._options
            scorer = twin_of(self._claim).scorer(
                self._claim, setting, device=options.device, dtype=options.dtype, deadline=self._deadline
            )
            effort = MOVING * scorer.budget
            self._repairs[setting.name] = Repair(setting, self._claim.given, scorer, options.seed, effort)
        vain = self._vain.get(setting.name, 0)
        for variant in islice(self._repairs[setting.name].candidates(instance), REPLACED if vain < IN_VAIN else 1):
            if not self._fails(variant):
                self._vain[setting.name] = 0
                return variant
            vain += 1
        self._vain[setting.name] = vain
        return instance

    def _fails(self, instance: Instance) -> bool:
        device, dtype = torch.device(self._options.device), self._options.dtype
        return hypotheses_fail(self._claim, instance, device=device, dtype=dtype, deadline=self._deadline)
