"""The twin of recursions: steps that a claim itself gives, computed below (`ntk_deq.dynamics.recursion`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from ntk_deq.claims.claim import Claim
from ntk_deq.dynamics.recursion import FLOATS, SMALL, estimate_steps, step_taken, steps_with_bits
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.balls import ends
from ntk_deq.evaluation.environment import Environment, Notes
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Outcome, Truth
from ntk_deq.language.run import RECURSION, RunKind
from ntk_deq.language.tree import Expr, Formula, Kind
from ntk_deq.verify.equations.proven import solve
from ntk_deq.verify.instance_environment import instance_environment
from ntk_deq.verify.runs import Course, RunTwin
from ntk_deq.verify.training.between import needs_the_run


class RecursionTwin(RunTwin):
    """The twin of `recursion`."""

    kind: ClassVar[RunKind] = RECURSION
    unwritten: ClassVar[str] = "the conclusion is about a recursion"

    def waits(self, formula: Formula, claim: Claim) -> bool:
        """Whether a hypothesis speaks of steps."""
        return needs_the_run(formula, claim.let)

    def start(self, claim: Claim, env: Environment, instance: Instance) -> Course:
        """Compute every step on an instance."""
        wanted = FLOATS if env.precision is None else env.precision
        if sum(value.numel() for value in instance.values.values()) <= SMALL:
            try:
                steps = steps_with_bits(env, wanted, lambda bits: self._precise(claim, env, instance, bits))
                env.at_steps.update({at: step_taken(value, at, env) for at, value in steps.items()})
            except LimitError:
                if env.precision is not None:
                    raise
        if env.precision is None:
            estimate_steps(env)
        return RecursionCourse(claim, env)

    @staticmethod
    def _precise(claim: Claim, env: Environment, instance: Instance, bits: int) -> Environment:
        """Return the environment of an instance with arb entries of some bits."""
        notes, dtype, device = Notes(deadline=env.notes.deadline), env.like.dtype, torch.device("cpu")
        inside = instance_environment(claim, instance, device=device, dtype=dtype, notes=notes, precision=bits)
        return solve(claim, instance, inside, dtype=dtype, anew=False)[1]


@dataclass
class RecursionCourse(Course):
    """The steps of a recursion, as a claim is judged along it.

    Attributes:
        claim: The claim.
        env: The environment of the instance, which holds the steps.
    """

    leaves_open: ClassVar[bool] = True

    claim: Claim
    env: Environment

    def along(self, outcome: Outcome, name: str) -> Outcome:
        """Return the outcome of a conclusion, unsure where it breaks and a hypothesis speaks of every step.

        Such a hypothesis is known up to the budget only; what is true makes the implication true all the same.
        """
        if outcome.truth is not Truth.FALSE:
            return outcome
        for hypothesis in self.claim.assume.values():
            for node in self._parts(hypothesis.expr):
                if node.kind is Kind.FOR_ALL and not ends(node, self.env, {}):
                    reason = (
                        f"{hypothesis.name!r} speaks of every step, and is known up to step {self.env.last_step} only"
                    )
                    return replace(outcome, truth=Truth.UNSURE, reason=reason)
        return outcome

    def _parts(self, expr: Expr) -> Iterator[Expr]:
        """Yield the parts of a statement, those of definitions among them."""
        for node in expr.walk():
            yield node
            if node.kind is Kind.NAME and node.name in self.claim.let:
                yield from self._parts(self.claim.let[node.name].expr)
