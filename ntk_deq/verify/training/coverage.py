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
    """Count the intervals between judged steps throughout which every conclusion is certain; see `open_intervals`."""
    return len(moments.points) - 1 - len(open_intervals(claim, moments, outcomes))


def open_intervals(claim: Claim, moments: Moments, outcomes: Mapping[str, Outcome]) -> list[Interval]:
    """Return the intervals between judged steps throughout which not every conclusion is certain.

    Between two steps of descent that follow each other there is nothing to cover. Where a conclusion refers to steps by
    more than the bare index, or by several, or quantifies under `or` or `not`, every other interval is open.

    Args:
        claim: The claim.
        moments: The judged steps.
        outcomes: What the conclusions came to at the judged steps; those without a value are left out.
    """
    names = [name for name, formula in claim.conclude.items() if name in outcomes and _quantified(formula.expr)]
    hopeless = not names or not all(_bare(claim.conclude[name].expr) for name in names)
    hopeless = hopeless or any(outcomes[name].truth < Truth.TIGHT for name in names)
    several, found = has_several_indices(claim) or not names, []
    for here, there in pairwise(moments.points):
        if moments.step is not None and there.at == here.at + 1 and not several:
            continue
        interval = Interval(here.at, there.at)
        if hopeless or not all(_certain(claim, moments, name, interval) for name in names):
            found.append(interval)
    return found


def _certain(claim: Claim, moments: Moments, name: str, interval: Interval) -> bool:
    inside = replace(moments, only=interval)
    notes = replace(moments.start.notes, unsure=[], estimated={}, sides=None)
    inside.start = replace(moments.start, moments=inside, notes=notes, cache=dict(moments.start.cache))
    try:
        return evaluate_truth(claim.conclude[name].expr, inside.start).truth is Truth.TRUE
    except (OutsideClaimError, LimitError):
        return False


def has_several_indices(claim: Claim) -> bool:
    """Whether a quantifier of a conclusion has several indices: it ranges over a few of the judged steps only.

    Args:
        claim: The claim.
    """
    nodes = (node for formula in claim.conclude.values() for node in formula.expr.walk())
    return any(len(node.names) > 1 for node in nodes if node.kind is Kind.FOR_ALL)


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
