"""Decide what balls leave open on a small instance, in exact arithmetic: above all where two sides are equal.

A hypothesis that is an equality is met then, or fails if it is strict; a strict conclusion that is an equality breaks.
What is certain in balls stays as it is, and so does what has no exact form (`ntk_deq.evaluation.exact`).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from flint import fmpq

from ntk_deq.certified.algebraic import UndecidedError
from ntk_deq.certified.algebraic_matrix import ExactMatrix
from ntk_deq.certified.dispatch import dense_form
from ntk_deq.claims.claim import Claim
from ntk_deq.evaluation.arithmetic import to_matrix
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.environment import Notes, OutsideClaimError, model_formulas
from ntk_deq.evaluation.equilibria import float_centre
from ntk_deq.evaluation.exact import ExactNames, decided
from ntk_deq.evaluation.functions.exact import Value
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Outcome, Truth
from ntk_deq.falsify.domains import contains
from ntk_deq.language.layer import modulus_statement
from ntk_deq.language.parser import parse
from ntk_deq.verify.instance_environment import instance_environment
from ntk_deq.verify.judge import ELSEWHERE, Judgement, Standing, modulus_name

MOST_NUMBERS = 64
"""Numbers of the largest instance that is decided exactly."""

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


def exact_names(claim: Claim, instance: Instance, dtype: torch.dtype = torch.float64) -> ExactNames | None:
    """Return the exact meaning of an instance's names; None where it has none: a large one, or values that are balls.

    Args:
        claim: The claim; one with a run is about more than formulas.
        instance: The instance.
        dtype: Type to which values are rounded.
    """
    numbers = sum(value.numel() for value in instance.values.values())
    if claim.run is not None or instance.solved or numbers > MOST_NUMBERS:
        return None
    setting = next(s for s in claim.settings if s.name == instance.setting)
    values: dict[str, Value] = {letter: fmpq(size) for letter, size in instance.sizes.items()}
    for name, tensor in instance.values.items():
        moved = tensor.to(dtype).to(torch.float64)
        if instance.rounded.get(name, 0.0) > 0 or (name in instance.rounded and not torch.equal(moved, tensor)):
            continue  # its floats stand for what lies near them: what depends on it has no exact value here
        free = claim.given.get(name) or setting.free.get(name)
        if tensor.ndim > 0 and dtype != tensor.dtype and free is not None and not contains(free.domain, moved):
            return None  # rounded out of its domain: a ball, for what it was
        values[name] = exact_value(tensor if tensor.ndim == 0 else moved)
    lets = {name: formula.expr for name, formula in claim.let.items()}
    if setting.model is None:
        return ExactNames(values, lets)
    model = model_formulas(setting.model)

    def near() -> list[list[float]]:
        env = instance_environment(claim, instance, device=torch.device("cpu"), dtype=dtype, notes=Notes())
        try:
            state = dense_form(to_matrix(evaluate(parse(model.state), env)).ball)
        except OutsideClaimError as outside:  # in balls, and so perhaps only for want of digits
            raise UndecidedError(str(outside)) from outside
        floats = float_centre(state).double()
        if not bool(floats.isfinite().all()):
            raise UndecidedError("an equilibrium that is not known")
        rows: list[list[float]] = floats.tolist()
        return rows

    return ExactNames(values, lets, model, near)


def exact_value(tensor: torch.Tensor) -> Value:
    """Return what a float64 tensor holds, exactly; a vector is one column."""
    entries = [fmpq(*entry.as_integer_ratio()) for entry in tensor.flatten().tolist()]
    if tensor.ndim == 0:
        return entries[0]
    return ExactMatrix(tensor.shape[0], tensor.shape[1] if tensor.ndim == 2 else 1, entries)


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
