"""The twins of all kinds of run, by their records; the one place that knows them all."""

from __future__ import annotations

from ntk_deq.claims.claim import Claim
from ntk_deq.verify.runs import FixedPointTwin, RunTwin
from ntk_deq.verify.training.descent import DescentTwin
from ntk_deq.verify.training.flow import FlowTwin

TWINS: dict[str, RunTwin] = {twin.kind.name: twin for twin in (FixedPointTwin(), DescentTwin(), FlowTwin())}
"""Twins by the names of their kinds."""

_NONE = RunTwin()


def twin_of(claim: Claim) -> RunTwin:
    """Return what is done with the run of a claim."""
    return _NONE if claim.run is None else TWINS[claim.run.kind.name]
