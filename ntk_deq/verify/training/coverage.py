"""How much of a training run is covered between its judged steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

from ntk_deq.claims.claim import Claim
from ntk_deq.claims.tree import Expr, Kind
from ntk_deq.errors import LimitError
from ntk_deq.verify.environment import OutsideClaimError
from ntk_deq.verify.evaluate import evaluate_truth
from ntk_deq.verify.quantity import Outcome, Truth
from ntk_deq.verify.training.between import conjuncts
from ntk_deq.verify.training.moments import Interval, Moments


def covered_intervals(claim: Claim, moments: Moments, outcomes: Mapping[str, Outcome]) -> int:
    """Count the intervals between judged steps throughout which every conclusion is certain.

    Between two steps of descent that follow each other there is nothing to cover. Where a conclusion refers to steps by
    more than the bare index, or by several, or quantifies under `or` or `not`, no interval counts.

    Args:
        claim: The claim.
        moments: The judged steps.
        outcomes: What the conclusions came to at the judged steps; those without a value are left out.
    """
    names = [name for name, formula in claim.conclude.items() if name in outcomes and _quantified(formula.expr)]
    if not names or not all(_bare(claim.conclude[name].expr) for name in names):
        return 0
    if any(outcomes[name].truth < Truth.TIGHT for name in names):
        return 0
    count = 0
    for here, there in pairwise(moments.points):
        next_to = moments.step is not None and there.at == here.at + 1
        interval = Interval(here.at, there.at)
        count += next_to or all(_certain(claim, moments, name, interval) for name in names)
    return count


def _certain(claim: Claim, moments: Moments, name: str, interval: Interval) -> bool:
    inside = replace(moments, only=interval)
    notes = replace(moments.start.notes, unsure=[], estimated={}, sides=None)
    inside.start = replace(moments.start, moments=inside, notes=notes, cache=dict(moments.start.cache))
    try:
        return evaluate_truth(claim.conclude[name].expr, inside.start).truth is Truth.TRUE
    except (OutsideClaimError, LimitError):
        return False


def _quantified(expr: Expr) -> bool:
    return any(node.kind is Kind.FOR_ALL for node in expr.walk())


def _bare(expr: Expr) -> bool:
    nodes = list(expr.walk())
    outermost = sum(part.kind is Kind.FOR_ALL for part in conjuncts(expr))
    if outermost != sum(node.kind is Kind.FOR_ALL for node in nodes):
        return False
    single = all(len(node.names) == 1 for node in nodes if node.kind is Kind.FOR_ALL)
    simple = all(node.args[0].kind in (Kind.NAME, Kind.NUMBER) for node in nodes if node.kind is Kind.INDEX)
    return single and simple
