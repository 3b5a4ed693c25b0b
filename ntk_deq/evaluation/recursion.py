"""The steps of a recursion in balls: each evaluated once, after those that it rests on."""

from __future__ import annotations

import math
from dataclasses import replace

from ntk_deq.certified import frobenius
from ntk_deq.certified import scalar as sc
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.arithmetic import magnitude
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.environment import Environment, OutsideClaimError, Value
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar
from ntk_deq.language.recursion import At


def value_at_step(env: Environment, name: str, step: int) -> Scalar | Matrix:
    """Return the value that a recursion has at a step; those that it rests on are kept.

    The scale of such a value is its own size: that of its formula would grow from step to step without any bound.

    Raises:
        LimitError: The step is beyond the budget.
        OutsideClaimError: The recursion breaks off before.
    """
    known = env.at_steps
    if (name, step) not in known:
        first = env.recursions.first(name)
        if not first <= step <= env.last_step:
            raise LimitError(f"{name}[{step}] does not exist: the recursion has steps {first} to {env.last_step}.")
        for at in env.recursions.unfolded(name, step, known):
            env.notes.check_time()
            expr, letters = env.recursions.formula(*at)
            try:
                known[at] = _step_value(evaluate(expr, env, letters), at)
            except OutsideClaimError as error:
                known[at] = error
    value = known[name, step]
    if isinstance(value, OutsideClaimError):
        raise value
    return value


def _step_value(value: Value, at: At) -> Scalar | Matrix:
    """Return the value of a recursion's formula as that of a step."""
    assert not isinstance(value, Outcome)
    if isinstance(value, Scalar):
        finite, size, why = value.ball.is_finite(), magnitude(value.ball), ""
    else:
        finite, why = value.ball.is_finite, value.ball.reason
        size = sc.upper(frobenius(value.ball)) if finite else math.inf
    if not finite or not size < math.inf:
        detail = f"the recursion breaks off: {at[0]}[{at[1]}] {why or 'is not finite, or not known'}"
        raise OutsideClaimError("defined", detail, certain=False)
    return replace(value, scale=size)
