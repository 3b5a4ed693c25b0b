"""What a claim says of a training run apart from its judged steps: steps it names, and statements about the index.

How much of a training run is covered between its judged steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from ntk_deq.claims.claim import Claim
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.balls import evaluate_truth
from ntk_deq.evaluation.environment import OutsideClaimError
from ntk_deq.evaluation.quantity import Outcome, Truth
from ntk_deq.language.functions import record_of
from ntk_deq.language.indices import conjuncts, step_of
from ntk_deq.language.run import LOSS
from ntk_deq.language.tree import QUANTIFIERS, Expr, Formula, Kind
from ntk_deq.language.types import BOOLEAN
from ntk_deq.verify.training import Interval, Moments

MOST_LOOKS = 20_000
"""Evaluations of one statement about the index alone, at most."""

HALVINGS = 12
"""Times that an interval of times is halved before such a statement is left open there..."""

HALVINGS_AT_ENDS = 40
"""... and at the two ends of the run, where it may be an equality."""


def named_steps(claim: Claim) -> tuple[int, ...]:
    """Return the steps after the start that a claim names, as in `Z[5]`, increasing."""
    return tuple(sorted(set(_named(claim.nodes()))))


def _named(nodes: Iterable[Expr]) -> Iterator[int]:
    for node in nodes:
        if node.kind is Kind.INDEX and not any(part.kind is Kind.NAME for part in node.args[0].walk()):
            step = step_of(node.args[0], {})
            if step > 0:
                yield int(step)


def needs_the_run(formula: Formula, claim: Claim) -> bool:
    """Whether a hypothesis can be judged only once its run is known: it speaks of every step, or of a later one."""
    nodes = list(claim.nodes_behind(formula.expr))
    return any(node.kind in QUANTIFIERS for node in nodes) or any(_named(nodes))


def inlined(claim: Claim) -> Claim:
    """Return the claim with definitions that are statements written out in its hypotheses and conclusions."""
    statements = {name: formula.expr for name, formula in claim.let.items() if formula.expr.type == BOOLEAN}
    if not statements:
        return claim
    return replace(
        claim,
        assume={name: replace(f, expr=_written_out(f.expr, statements)) for name, f in claim.assume.items()},
        conclude={name: replace(f, expr=_written_out(f.expr, statements)) for name, f in claim.conclude.items()},
    )


def at_the_start(claim: Claim) -> Claim:
    """Return the claim with the hypotheses that are known before its run, and no conclusion."""
    known = {
        name: formula for name, formula in claim.assume.items() if not (claim.trains and needs_the_run(formula, claim))
    }
    return replace(claim, assume=known, conclude={})


def _written_out(expr: Expr, statements: Mapping[str, Expr]) -> Expr:
    if expr.kind is Kind.NAME and expr.name in statements:
        return _written_out(statements[expr.name], statements)
    return expr.mapped(lambda part: _written_out(part, statements))


def worse(first: Outcome, second: Outcome) -> Outcome:
    """Return the worse of two outcomes of one statement."""
    return first if first.truth <= second.truth else second


def at_every_index(formula: Formula, moments: Moments) -> Outcome | None:
    """Look at the parts of a statement that speak of one index alone, as `k <= 100 for all k`, at every step.

    Parts under `or` and `not`, and those with several indices, are left as they were judged.

    Returns:
        The first outcome that is not certain to be true, or None where every one is.
    """
    for node in conjuncts(formula.expr):
        if node.kind is Kind.FOR_ALL and len(node.names) == 1:
            body, *condition = node.args
            for part in conjuncts(body):
                if not any(map(_of_the_run, (part, *condition))):
                    used = [inner.args[0] for inner in body.walk() if inner.kind is Kind.INDEX]
                    outcome = _Index(part, condition, used, node.names[0], moments).throughout()
                    if outcome is not None:
                        return outcome
    return None


def _of_the_run(expr: Expr) -> bool:
    """Whether something of the run stands in a formula, or another quantifier: what is left is the index alone."""
    return any(node.kind in (Kind.INDEX, Kind.FOR_ALL) for node in expr.walk())


class _Index:
    """A statement about one index, with a condition or none.

    Args:
        part: The statement.
        condition: None or one.
        used: The steps that the whole statement refers to: it ranges over the indices for which they exist.
        index: Name of the index.
        moments: The run.
    """

    def __init__(
        self, part: Expr, condition: Sequence[Expr], used: Sequence[Expr], index: str, moments: Moments
    ) -> None:
        self._part, self._condition, self._name, self._moments = part, condition, index, moments
        self._used = [step for step in used if all(n.name == index for n in step.walk() if n.kind is Kind.NAME)]
        # What is looked at here is no curve of the report.
        notes = replace(moments.start.notes, sides=None, unsure=[])
        self._env = replace(moments.start, notes=notes, cache=dict(moments.start.cache))

    def throughout(self) -> Outcome | None:
        """Halve the run until the statement is certain on every piece; None: it is."""
        last = self._moments.points[-1].at
        pending: list[tuple[float, float, int]] = [(0, last, 0)]  # steps of descent stay whole numbers
        looks = 0
        while pending:
            start, stop, halvings = pending.pop()
            if self._is_nowhere(start, stop):
                continue
            looks += 1
            outcome = self._at(Interval(start, stop) if start < stop else start)
            if outcome.truth is Truth.TRUE:
                continue
            if looks > MOST_LOOKS:
                return Outcome(Truth.UNSURE, None, f"it was not looked at at every step from {start:g} on")
            if self._moments.whole:
                if start == stop:
                    if outcome.truth < Truth.NEAR_ZERO:
                        return outcome
                    continue
                middle = (start + stop) // 2
                pending += [(middle + 1, stop, 0), (start, middle, 0)]
                continue
            if outcome.truth is Truth.FALSE and self._exists(start) and self._exists(stop):
                return outcome
            at_end = stop == last
            if halvings == (HALVINGS_AT_ENDS if start == 0 or at_end else HALVINGS):
                # An equality at an end, such as t <= 1/10 at the horizon 1/10, is left as it was judged there.
                if (start == 0 or at_end) and self._at(stop if at_end else start).truth >= Truth.TIGHT:
                    continue
                reason = f"whether it holds at every time from {start:g} to {stop:g} is not certain"
                return Outcome(Truth.UNSURE, None, reason)
            middle = (start + stop) / 2
            pending += [(start, middle, halvings + 1), (middle, stop, halvings + 1)]
        return None

    def _exists(self, index: float) -> bool:
        return all(self._moments.exists(step_of(step, {self._name: index})) for step in self._used)

    def _is_nowhere(self, start: float, stop: float) -> bool:
        """Whether a step that is referred to exists for no index of a piece; it is linear in the index."""
        for step in self._used:
            low, high = sorted(step_of(step, {self._name: index}) for index in (start, stop))
            if high < 0 or (low > 0 and not self._moments.exists(low)):
                return True
        return False

    def _at(self, step: float) -> Outcome:
        """Return the outcome at a step, or throughout an interval: that of `not condition or part`."""
        try:
            shown = [evaluate_truth(expr, self._env, {self._name: step}).truth for expr in self._condition]
            if Truth.FALSE in shown:
                return Outcome(Truth.TRUE, None)
            outcome = evaluate_truth(self._part, self._env, {self._name: step})
        except OutsideClaimError as outside:
            return Outcome(Truth.UNSURE, None, f"at step or time {float(step):g}: {outside}")
        if outcome.truth is Truth.FALSE and any(truth is not Truth.TRUE for truth in shown):
            return replace(outcome, truth=Truth.UNSURE)
        return outcome


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
    names = [name for name, formula in claim.conclude.items() if name in outcomes and quantified(formula.expr)]
    hopeless = not names or not all(_bare(claim.conclude[name].expr) for name in names)
    hopeless = hopeless or any(outcomes[name].truth < Truth.TIGHT for name in names)
    several, found = has_several_indices(claim) or not names, []
    for here, there in pairwise(moments.points):
        if moments.whole and there.at == here.at + 1 and not several:
            continue
        interval = Interval(here.at, there.at)
        if hopeless or not all(_certain(claim, moments, name, interval) for name in names):
            found.append(interval)
    return found


def _certain(claim: Claim, moments: Moments, name: str, interval: Interval) -> bool:
    inside = replace(moments, only=interval)
    notes = replace(moments.start.notes, unsure=[], estimated={}, sides=None)
    inside.start = replace(moments.start, moments=inside, notes=notes, cache=dict(moments.start.cache))
    # What holds at both ends, as it does where this is asked, and is a rate of decay, holds between them.
    parts = [part for part in conjuncts(claim.conclude[name].expr) if not (moments.decays and is_rate(part))]
    try:
        return all(evaluate_truth(part, inside.start).truth is Truth.TRUE for part in parts)
    except (OutsideClaimError, LimitError):
        return False


def is_rate(expr: Expr) -> bool:
    """Whether a statement is `L[t] <= c*exp(a*t + b) for all t`: the logarithm of the right side is affine in t.

    Where that of L is convex, and it holds at two times, it holds at every time between them.
    """
    if expr.kind is not Kind.FOR_ALL or len(expr.names) != 1 or len(expr.args) != 1:
        return False
    name = expr.names[0]
    for part in conjuncts(expr.args[0]):
        if part.kind is not Kind.COMPARE or part.operators not in (("<=",), (">=",)):
            return False
        low, high = part.args if part.operators == ("<=",) else part.args[::-1]
        loss = low.kind is Kind.INDEX and low.name == LOSS and low.args[0].kind is Kind.NAME
        if not (loss and low.args[0].name == name and _is_exponential(high, name)):
            return False
    return True


def _is_exponential(expr: Expr, name: str) -> bool:
    """Whether a number is a constant times the exponential of something affine in an index."""
    if not _has(expr, name):
        return True
    if expr.kind in (Kind.MULTIPLY, Kind.DIVIDE):
        return all(_is_exponential(part, name) for part in expr.args)
    record = record_of(expr)
    return record is not None and record.exponential and _is_affine(expr.args[0], name)


def _is_affine(expr: Expr, name: str) -> bool:
    if not _has(expr, name):
        return True
    if expr.kind in (Kind.NEGATE, Kind.ADD, Kind.SUBTRACT):
        return all(_is_affine(part, name) for part in expr.args)
    if expr.kind is Kind.MULTIPLY:
        return sum(_has(part, name) for part in expr.args) == 1 and all(_is_affine(part, name) for part in expr.args)
    if expr.kind is Kind.DIVIDE:
        return not _has(expr.args[1], name) and _is_affine(expr.args[0], name)
    return expr.kind is Kind.NAME


def bounds_of_loss(expr: Expr) -> Iterator[tuple[str, Expr]]:
    """Yield the index and the bound of each comparison `L[k] <= B(k)` whose bound uses no step that moves."""
    for node in expr.walk():
        if node.kind is Kind.COMPARE and node.operators == ("<=",):
            left, right = node.args
            fixed = all(part.args[0].kind is Kind.NUMBER for part in right.walk() if part.kind is Kind.INDEX)
            if fixed and left.kind is Kind.INDEX and left.name == LOSS and left.args[0].kind is Kind.NAME:
                yield left.args[0].name, right


def _has(expr: Expr, name: str) -> bool:
    return any(node.kind is Kind.NAME and node.name == name for node in expr.walk())


def has_several_indices(claim: Claim) -> bool:
    """Whether a quantifier of a conclusion has several indices: it ranges over a few of the judged steps only.

    Args:
        claim: The claim.
    """
    nodes = (node for formula in claim.conclude.values() for node in formula.expr.walk())
    return any(len(node.names) > 1 for node in nodes if node.kind is Kind.FOR_ALL)


def quantified(expr: Expr) -> bool:
    """Whether a statement speaks of every step."""
    return any(node.kind is Kind.FOR_ALL for node in expr.walk())


def _bare(expr: Expr) -> bool:
    nodes = list(expr.walk())
    outermost = sum(part.kind is Kind.FOR_ALL for part in conjuncts(expr))
    if outermost != sum(node.kind is Kind.FOR_ALL for node in nodes):
        return False
    single = all(len(node.names) == 1 for node in nodes if node.kind is Kind.FOR_ALL)
    simple = all(node.args[0].kind in (Kind.NAME, Kind.NUMBER) for node in nodes if node.kind is Kind.INDEX)
    return single and simple
