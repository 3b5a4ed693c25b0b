"""Decide what balls leave open on a small instance, in exact arithmetic: above all where two sides are equal.

A hypothesis that is an equality is met then, or fails if it is strict; a strict conclusion that is an equality breaks.
What is certain in balls stays as it is, and so does what has no exact form (`ntk_deq.evaluation.exact`).
"""

from __future__ import annotations

from dataclasses import replace

import torch

from ntk_deq.certified.algebraic import UndecidedError
from ntk_deq.claims.claim import Claim
from ntk_deq.evaluation.environment import OutsideClaimError
from ntk_deq.evaluation.exact import ExactNames, decided
from ntk_deq.evaluation.quantity import Outcome, Truth
from ntk_deq.language.fixed_point_map import modulus_statement
from ntk_deq.verify.formulas import exact_names
from ntk_deq.verify.judge import ELSEWHERE, Judgement, Standing, modulus_name, of_witnesses

_CERTAIN = (Truth.TRUE, Truth.FALSE)
_OPEN = (Truth.UNSURE, Truth.STRICT_TIGHT, Truth.NEAR_ZERO)


def decided_exactly(claim: Claim, judgement: Judgement, *, dtype: torch.dtype) -> Judgement:
    """Return a judgement with what it leaves open decided exactly; the given one where nothing more is.

    Args:
        claim: The claim.
        judgement: A judgement in balls.
        dtype: Type to which the instance's values were rounded for it.
    """
    if not _open(judgement):
        return judgement
    names = exact_names(claim, judgement.instance, dtype)
    if names is None:
        return judgement
    hypotheses = _hypotheses(claim, judgement, names)
    if hypotheses is None:
        return judgement
    if any(outcome.truth is Truth.FALSE for outcome in hypotheses.values()):
        return Judgement(judgement.instance, Standing.UNMET, hypotheses, estimated=judgement.estimated)
    conclusions, outside = _conclusions(claim, judgement, names)
    if claim.exists:
        conclusions, outside = of_witnesses(claim, conclusions, outside)
    if not conclusions:
        if set(claim.conclude) - outside.keys():
            return judgement
        gaps = {error.hypothesis: Outcome(Truth.FALSE, None, str(error)) for error in outside.values()}
        return Judgement(judgement.instance, Standing.UNMET, {**hypotheses, **gaps})
    met = all(outcome.truth is Truth.TRUE for outcome in hypotheses.values())
    standing = Standing.MET if met else Standing.UNSURE
    reasons = [o.reason for o in (*hypotheses.values(), *conclusions.values()) if o.reason and o.truth in _OPEN]
    settled = not _open(replace(judgement, standing=standing, conclusions=conclusions))
    reason = "" if settled else "; ".join(dict.fromkeys(reasons)) or judgement.reason
    return replace(judgement, standing=standing, hypotheses=hypotheses, conclusions=conclusions, reason=reason)


def _open(judgement: Judgement) -> bool:
    if judgement.standing is Standing.UNSURE:
        return True
    return judgement.standing is Standing.MET and any(o.truth in _OPEN for o in judgement.conclusions.values())


def _hypotheses(claim: Claim, judgement: Judgement, names: ExactNames) -> dict[str, Outcome] | None:
    """Return the outcomes of all hypotheses, up to one that fails; None where one that was not reached stays open."""
    outcomes = {name: o for name, o in judgement.hypotheses.items() if name == ELSEWHERE}  # nothing decides that
    declared = modulus_name(claim)
    statements = {name: formula.expr for name, formula in claim.assume.items()}
    if declared in judgement.hypotheses and names.model is not None and names.model.weight is not None:
        assert names.model.monotone is not None  # as it was asked for
        statements = {declared: modulus_statement(names.model.weight, names.model.monotone), **statements}
    for name, expr in statements.items():
        before = judgement.hypotheses.get(name)
        if before is not None and before.truth in _CERTAIN:
            outcomes[name] = before
            continue
        try:
            found = decided(expr, names)
        except UndecidedError:
            if before is None:
                return None
            outcomes[name] = before
            continue
        except OutsideClaimError as outside:
            return {**outcomes, outside.hypothesis: Outcome(Truth.FALSE, None, str(outside))}
        # That a hypothesis is an equality does not matter once it is certain.
        outcomes[name] = replace(found, truth=Truth.TRUE) if found.truth is Truth.TIGHT else found
        if found.truth is Truth.FALSE:
            return outcomes
    return outcomes


def _conclusions(
    claim: Claim, judgement: Judgement, names: ExactNames
) -> tuple[dict[str, Outcome], dict[str, OutsideClaimError]]:
    """Return the outcomes of the conclusions, and those that have no value; neither where one was never judged."""
    outcomes: dict[str, Outcome] = {}
    outside: dict[str, OutsideClaimError] = {}
    for name in judgement.conclusions or claim.conclude:
        before = judgement.conclusions.get(name)
        if before is not None and before.truth not in _OPEN:
            outcomes[name] = before
            continue
        try:
            outcomes[name] = decided(claim.conclude[name].expr, names)
        except UndecidedError:
            if before is None:
                return {}, {}
            outcomes[name] = before
        except OutsideClaimError as error:
            outside[name] = error
    return outcomes, outside
