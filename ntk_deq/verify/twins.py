"""The twins of all kinds of run, by their records; the one place that knows them all."""

from __future__ import annotations

from functools import cache

from ntk_deq.claims.claim import Claim
from ntk_deq.verify.runs import FixedPointTwin, RunTwin

_NONE = RunTwin()


@cache
def twins() -> dict[str, RunTwin]:
    """Return the twins by the names of their kinds; imported here, so that a claim without a run loads no training."""
    from ntk_deq.verify.recursion import RecursionTwin
    from ntk_deq.verify.training.descent import DescentTwin
    from ntk_deq.verify.training.flow import FlowTwin

    return {twin.kind.name: twin for twin in (FixedPointTwin(), DescentTwin(), FlowTwin(), RecursionTwin())}


def twin_of(claim: Claim) -> RunTwin:
    """Return what is done with the run of a claim."""
    return _NONE if claim.run is None else twins()[claim.run.kind.name]
