"""Write an instance down: sizes, values, both sides of the comparison that matters."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ntk_deq.certified import Ball
from ntk_deq.claims.claim import Claim
from ntk_deq.errors import NtkDeqError
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.environment import DeadlineError, Notes
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar, Truth, show_ball
from ntk_deq.language.tree import Expr, Kind, Span
from ntk_deq.language.types import Margin
from ntk_deq.verify.equations.proven import solve
from ntk_deq.verify.formulas import instance_environment
from ntk_deq.verify.judge import Judgement, Standing
from ntk_deq.verify.printer import UnwritableError
from ntk_deq.verify.results import Computed, Witness
from ntk_deq.verify.script import counterexample_script
from ntk_deq.verify.tally import closeness_of
from ntk_deq.verify.twins import twin_of

MAX_PRINTED = 256  # entries of one variable; a larger one is described by its shape only


_SECONDS = 5.0  # that the definitions of one counterexample may take


def witness(judgement: Judgement, name: str, outcome: Outcome) -> Witness:
    """Return a printable record of an instance and of the formula called `name` on it."""
    comparison = outcome.comparison
    instance = judgement.instance
    return Witness(
        setting=instance.setting,
        family=instance.family,
        sizes=dict(instance.sizes),
        values={key: _listed(value) for key, value in instance.values.items()},
        conclusion=name,
        lhs=comparison.lhs if comparison else "",
        rhs=comparison.rhs if comparison else "",
        relation=comparison.relation if comparison else "",
        margin=comparison.margin if comparison else Margin(float("-inf"), float("inf")),
        step=dict(comparison.steps) if comparison else {},
        index=instance.index,
        solved=tuple(name for name in instance.values if name in instance.solved),
        scale=comparison.scale if comparison else 0.0,
        argument="" if comparison or outcome.truth is not Truth.FALSE else outcome.reason,
        computed_values=tuple(_found(name, value) for name, value in judgement.found.items()),
    )


def counterexample_witness(judgement: Judgement) -> Witness:
    """Return the record of a counterexample and of the first conclusion that it breaks."""
    name, outcome = next((n, o) for n, o in judgement.conclusions.items() if o.truth is Truth.FALSE)
    return witness(judgement, name, outcome)


def written_out(claim: Claim, judgement: Judgement) -> Witness:
    """Return the record of a counterexample with what follows from it: hypotheses, definitions, equilibrium, a script.

    Args:
        claim: The claim.
        judgement: A judgement that refutes it.
    """
    found = counterexample_witness(judgement)
    if found.argument:  # there are no two sides
        return found
    try:
        script, unwritten = counterexample_script(claim, found), ""
    except UnwritableError as error:
        script, unwritten = "", str(error)
    return replace(
        found,
        hypotheses=tuple((name, _sides(outcome)) for name, outcome in judgement.hypotheses.items()),
        computed_values=() if twin_of(claim).unwritten else tuple(_computed(claim, judgement)),
        script=script,
        unwritten=unwritten,
    )


def _sides(outcome: Outcome) -> str:
    comparison = outcome.comparison
    if comparison is None:
        return outcome.truth.name.lower()
    return f"{comparison.lhs} {comparison.relation} {comparison.rhs}"


def _computed(claim: Claim, judgement: Judgement) -> Iterator[Computed]:
    """Yield the quantities of the model and the definitions that the claim's formulas name, as balls."""
    notes = Notes(deadline=time.thread_time() + _SECONDS)
    instance = judgement.instance
    env = instance_environment(claim, instance, device=torch.device("cpu"), dtype=torch.float64, notes=notes)
    try:
        _, env = solve(claim, instance, env, dtype=torch.float64, anew=False)
    except NtkDeqError:
        return
    named = {node.name for node in claim.nodes()}
    model: list[str] = []
    if env.formulas is not None:
        model = [name for name in (env.formulas.state, *env.formulas.definitions) if name]
        for name, expr in reversed(env.formulas.definitions.items()):  # each uses earlier ones only
            named |= {node.name for node in expr.walk()} if name in named else set()
    definitions = claim.recursions.lets if claim.recursions.rules else claim.let
    for name in [*(name for name in model if name in named), *definitions]:
        try:
            value = evaluate(Expr(Kind.NAME, Span(0, 0), name=name), env)
        except DeadlineError:
            return
        except NtkDeqError:  # it has no value here, or one too large; what broke the claim does not rest on it
            continue
        if isinstance(value, Scalar):
            yield Computed(name, show_ball(value.ball))
        elif isinstance(value, Matrix) and value.ball.radius < float("inf"):
            yield _matrix(name, value)


def _found(name: str, value: Tensor) -> Computed:
    """Return the record of what was found to exist."""
    if value.ndim == 0:
        return Computed(name, f"{float(value):.12g}")
    return Computed(name, value.reshape(len(value), -1).tolist() if value.numel() <= MAX_PRINTED else None)


def _matrix(name: str, value: Matrix) -> Computed:
    rows, columns = value.ball.shape
    if rows * columns > MAX_PRINTED or not isinstance(value.ball, Ball):
        return Computed(name, None)
    return Computed(name, value.ball.work.tolist(), value.ball.radius)


def tightest_witness(judgement: Judgement) -> Witness:
    """Return the record of an instance and of its conclusion that is closest to equality."""
    name, outcome = min(judgement.conclusions.items(), key=lambda item: closeness_of(item[1]))
    return witness(judgement, name, outcome)


def nearest_witness(judgement: Judgement) -> Witness:
    """Return the record of an instance that fails a hypothesis, and of that hypothesis."""
    name, outcome = next((n, o) for n, o in judgement.hypotheses.items() if o.truth is Truth.FALSE)
    return witness(judgement, name, outcome)


def undecided_witness(claim: Claim, judgement: Judgement) -> Witness:
    """Return the record of an instance that is undecided, and of the formula of it that is open.

    That is a hypothesis where one is open, else the conclusion that is least known.

    Args:
        claim: The claim.
        judgement: A judgement that decides neither for nor against the claim.
    """
    unsure = judgement.standing is Standing.UNSURE
    outcomes = judgement.hypotheses if unsure else judgement.conclusions
    open_ones = [(name, o) for name, o in outcomes.items() if o.truth not in (Truth.TRUE, Truth.FALSE)]
    name, outcome = min(open_ones or list(outcomes.items()), key=lambda item: item[1].truth)
    found = witness(judgement, name, outcome)
    return replace(
        found,
        argument=judgement.reason or outcome.reason or ("" if found.relation else "it could not be decided"),
        hypotheses=tuple((name, _sides(outcome)) for name, outcome in judgement.hypotheses.items()),
        computed_values=() if twin_of(claim).unwritten else (*found.computed_values, *_computed(claim, judgement)),
    )


def plainness(judgement: Judgement) -> tuple[int, float, int]:
    """Order counterexamples for people: fewer and shorter numbers first, then moderate ones, then the order drawn."""
    numbers = [x for value in judgement.instance.values.values() for x in value.reshape(-1)[: MAX_PRINTED + 1].tolist()]
    digits = sum(len(f"{x:.17g}") for x in numbers)
    return digits, max((abs(x) for x in numbers), default=0.0), judgement.instance.index


def _listed(value: Tensor) -> Any:
    return value.tolist() if value.numel() <= MAX_PRINTED else None
