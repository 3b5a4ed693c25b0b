"""What a claim says of a training run apart from its judged steps: steps it names, and statements about the index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from ntk_deq.claims.claim import Claim, Formula
from ntk_deq.claims.tree import Expr, Kind
from ntk_deq.verify.evaluate import evaluate_truth, step_of
from ntk_deq.verify.quantity import Outcome, Truth
from ntk_deq.verify.training.moments import Interval, Moments

MOST_STEPS = 20_000
"""Steps at which a statement about the index alone is looked at one by one."""

HALVINGS = 12
"""Times that an interval of times is halved before such a statement is left open there..."""

HALVINGS_AT_ENDS = 40
"""... and at the two ends of the run, where it may be an equality."""


def named_steps(claim: Claim) -> tuple[int, ...]:
    """Return the steps after the start that a claim names, as in `Z[5]`, increasing."""
    formulas = [*claim.let.values(), *claim.assume.values(), *claim.conclude.values()]
    return tuple(sorted({step for formula in formulas for step in _named(formula.expr)}))


def _named(expr: Expr) -> Iterator[int]:
    for node in expr.walk():
        if node.kind is Kind.INDEX and not any(part.kind is Kind.NAME for part in node.args[0].walk()):
            step = step_of(node.args[0], {})
            if step > 0:
                yield int(step)


def needs_the_run(formula: Formula, let: Mapping[str, Formula]) -> bool:
    """Whether a hypothesis can be judged only once its run is known: it speaks of every step, or of a later one."""
    pending, seen = [formula.expr], set[str]()
    while pending:
        expr = pending.pop()
        if any(node.kind is Kind.FOR_ALL for node in expr.walk()) or any(_named(expr)):
            return True
        used = {node.name for node in expr.walk() if node.name in let} - seen
        seen |= used
        pending += [let[name].expr for name in used]
    return False


def at_every_index(formula: Formula, moments: Moments) -> Outcome | None:
    """Look at the parts of a statement that speak of the index alone, as `k <= 100 for all k`, at every step.

    Returns:
        The first outcome that is not certain to be true, or None where every one is.
    """
    for node in formula.expr.walk():
        if node.kind is Kind.FOR_ALL and len(node.names) == len(node.args) == 1:
            for part in _conjuncts(node.args[0]):
                if part.kind is Kind.COMPARE and not _of_the_run(part, moments):
                    outcome = _throughout(part, node.names[0], moments)
                    if outcome is not None:
                        return outcome
    return None


def _conjuncts(expr: Expr) -> Sequence[Expr]:
    return [part for arg in expr.args for part in _conjuncts(arg)] if expr.kind is Kind.AND else [expr]


def _of_the_run(expr: Expr, moments: Moments) -> bool:
    """Whether something of the run stands in a formula: at the start alone it is a number like any other."""
    return any(node.kind is Kind.INDEX and node.args[0].kind is not Kind.NUMBER for node in expr.walk())


def _throughout(part: Expr, index: str, moments: Moments) -> Outcome | None:
    if moments.step is None:
        return _at_all_times(part, index, moments)
    last = int(moments.points[-1].at)
    if last > MOST_STEPS:
        return None  # the report says between which steps nothing was looked at
    outcomes = (evaluate_truth(part, moments.start, {index: k}) for k in range(last + 1))
    return next((outcome for outcome in outcomes if outcome.truth is Truth.FALSE), None)


def _at_all_times(part: Expr, index: str, moments: Moments) -> Outcome | None:
    pending = [(Interval(a.at, b.at), 0) for a, b in pairwise(moments.points)]
    last = moments.points[-1].at
    while pending:
        interval, halvings = pending.pop()
        outcome = evaluate_truth(part, moments.start, {index: interval})
        if outcome.truth is Truth.FALSE:
            return outcome
        start, at_end = float(interval), interval.stop == last
        if outcome.truth is Truth.TRUE:
            continue
        if halvings == (HALVINGS_AT_ENDS if start == 0 or at_end else HALVINGS):
            end = interval.stop if at_end else start
            # An equality at an end, such as t <= 1/10 at the horizon 1/10, is left as it was judged there.
            if (start == 0 or at_end) and evaluate_truth(part, moments.start, {index: end}).truth >= Truth.TIGHT:
                continue
            reason = f"whether it holds at every time from {start:g} to {interval.stop:g} is not certain"
            return Outcome(Truth.UNSURE, None, reason)
        middle = (start + interval.stop) / 2
        pending += [(Interval(start, middle), halvings + 1), (Interval(middle, interval.stop), halvings + 1)]
    return None
