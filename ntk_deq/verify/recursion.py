"""The twin of recursions: steps that a claim itself gives, computed below (`ntk_deq.dynamics.recursion`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from ntk_deq.claims.claim import Claim
from ntk_deq.dynamics.proven.recursion import radius
from ntk_deq.dynamics.recursion import FLOATS, SMALL, estimate_steps, step_taken, steps_with_bits
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.balls import ends
from ntk_deq.evaluation.environment import Environment, Notes, OutsideClaimError
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar, Truth
from ntk_deq.language.recursion import At
from ntk_deq.language.run import RECURSION, RunKind
from ntk_deq.language.tree import Formula, Kind
from ntk_deq.verify.equations.proven import solve
from ntk_deq.verify.formulas import instance_environment
from ntk_deq.verify.results import Start, TrainingRecord
from ntk_deq.verify.runs import Course, RunTwin
from ntk_deq.verify.training.between import needs_the_run
from ntk_deq.verify.training.records import compared, constants_of

SHOWN = 64
"""Steps at which a record holds values, at most."""


class RecursionTwin(RunTwin):
    """The twin of `recursion`."""

    kind: ClassVar[RunKind] = RECURSION

    def begin(self, claim: Claim, env: Environment) -> None:
        """Keep both sides of every comparison, for the record."""
        if env.precision is None:
            env.notes.sides = []

    def waits(self, formula: Formula, claim: Claim) -> bool:
        """Whether a hypothesis speaks of steps."""
        return needs_the_run(formula, claim)

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
        return RecursionCourse(claim, env, instance)

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
        instance: The instance.
    """

    leaves_open: ClassVar[bool] = True

    claim: Claim
    env: Environment
    instance: Instance

    def finished(
        self, conclusions: Mapping[str, Outcome]
    ) -> tuple[dict[str, Outcome], tuple[TrainingRecord, ...], Start | None]:
        """Return the outcomes, and the record of the run where a conclusion compares two numbers along it."""
        record = recursion_record(self.claim, self.instance, self.env) if self.env.precision is None else None
        return dict(conclusions), () if record is None else (record,), None

    def along(self, outcome: Outcome, name: str) -> Outcome:
        """Return the outcome of a conclusion, unsure where it breaks and a hypothesis speaks of every step.

        Such a hypothesis is known up to the budget only; what is true makes the implication true all the same.
        """
        if outcome.truth is not Truth.FALSE:
            return outcome
        for hypothesis in self.claim.assume.values():
            for node in self.claim.nodes_behind(hypothesis.expr):
                if node.kind is Kind.FOR_ALL and not ends(node, self.env, {}):
                    reason = (
                        f"{hypothesis.name!r} speaks of every step, and is known up to step {self.env.last_step} only"
                    )
                    return replace(outcome, truth=Truth.UNSURE, reason=reason)
        return outcome


def recursion_record(claim: Claim, instance: Instance, env: Environment) -> TrainingRecord | None:
    """Return what the report shows of a recursion; None where no conclusion compares two numbers along it.

    The left side of the first such comparison stands where a training run has its loss.

    Args:
        claim: The claim.
        instance: The instance.
        env: Its environment, with the steps and both sides of every comparison.
    """
    sides = env.notes.sides or []
    steps = sorted({next(iter(side.indices.values())) for side in sides if len(side.indices) == 1})
    if not steps:
        return None
    at = [steps[round(k * (len(steps) - 1) / (SHOWN - 1))] for k in range(SHOWN)]
    at = sorted(set(at))
    curves = tuple(curve for curve, _ in compared(claim, sides, at))
    if not curves or not env.at_steps:
        return None
    broken = [value for value in env.at_steps.values() if isinstance(value, OutsideClaimError)]
    found = {key: value for key, value in env.at_steps.items() if not isinstance(value, OutsideClaimError)}
    end = max((k for _, k in found), default=0)
    floats = {key: _floats(value) for key, value in found.items()}
    moved = {name: _way(name, floats, at) for name in env.recursions.rules if (name, 0) in floats}
    return TrainingRecord(
        setting=instance.setting,
        index=instance.index,
        method=RECURSION.name,
        role="run",
        step=None,
        constants=constants_of(instance),
        status="not-finite" if broken else "steps",
        reason=str(broken[0]) if broken else f"steps 0..{env.last_step} of the recursion",
        steps=end,
        evaluations=end,
        end=float(end),
        at=tuple(at),
        loss=tuple((low + high) / 2 for low, high in zip(curves[0].low, curves[0].high, strict=True)),
        curves=curves,
        conditions=(),
        path_length=tuple(math.hypot(*(lengths[k][0] for lengths in moved.values())) for k in range(len(at))),
        displacement={name: tuple(far for _, far in lengths) for name, lengths in moved.items()},
        error=max(map(radius, found.values()), default=0.0),
        certified=not env.notes.estimated,
        covered=len(at) - 1,
        intervals=len(at) - 1,
    )


def _floats(value: Scalar | Matrix) -> torch.Tensor:
    if isinstance(value, Scalar):
        return torch.tensor(float(value.ball.mid()), dtype=torch.float64)
    return value.ball.centre


def _way(name: str, floats: Mapping[At, torch.Tensor], at: Sequence[float]) -> list[tuple[float, float]]:
    """Return how long the way of a name is at some steps, and how far it is from the start."""
    length, here, found = 0.0, floats[name, 0], {0.0: (0.0, 0.0)}
    for k in range(1, int(at[-1]) + 1):
        if (name, k) in floats:
            length += float(torch.linalg.vector_norm(floats[name, k] - here))
            here = floats[name, k]
        found[float(k)] = (length, float(torch.linalg.vector_norm(here - floats[name, 0])))
    return [found[float(step)] for step in at]
