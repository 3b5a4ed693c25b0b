"""The fixed points behind a tangent kernel, solved with one set of options and written down."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from ntk_deq.equilibrium import Equilibrium, Solver, solve_fixed_point
from ntk_deq.equilibrium.starts import near_affine_fixed_point, near_fixed_point
from ntk_deq.errors import EquilibriumError
from ntk_deq.quantities.tangent_kernel import SolveRecord
from ntk_deq.systems.model import EquilibriumModel

_MOST_FURTHER = 32  # steps, where a map contracts slowly
# Multiplications in a step below which single precision saves less than its extra calls cost.
_WORTH_CASTING = 2**20


@dataclass(frozen=True)
class KernelSolver:
    """Solves equilibria and adjoints of one model and keeps a record of each.

    Attributes:
        model: The model.
        solver, rtol, atol, max_steps: As in `solve_fixed_point`.
        records: What was solved so far.
    """

    model: EquilibriumModel
    solver: str | Solver
    rtol: float | None
    atol: float | None
    max_steps: int
    records: list[SolveRecord] = field(default_factory=list)

    def equilibrium(self, X: Tensor, what: str) -> Tensor:
        """Return the features of X; an EquilibriumError where a sample has none."""
        start, made, step = self.model.initial_state(X), 0, self.model.step_at(X)
        if self._casts(start):
            start, made = self._single_equilibrium(X, start)
        if self._starts:
            start, more = near_fixed_point(step, start, max_steps=self.max_steps - made)
            made += more
        return self._solve(f"equilibrium of {what}", step, start, made)

    def adjoint(self, X: Tensor, Z: Tensor, what: str, output: int = 0) -> Tensor:
        """Return the adjoint of one output at the features Z; an EquilibriumError where a sample has none."""
        start, made, step = Z.new_zeros(()).expand_as(Z), 0, self.model.adjoint_step_at(Z, X, None, output)
        if self._casts(start):
            single = self.model.adjoint_step_at(Z.float(), X.float(), self._single(), output)
            start, made = near_affine_fixed_point(step, single, start, max_steps=self.max_steps)
            del single  # a map may hold as much memory as the solve itself
        elif self._starts:
            start, made = near_fixed_point(step, start, max_steps=self.max_steps)
        return self._solve(f"adjoint of {what}", step, start, made)

    def note(self, what: str, found: Equilibrium, before: int = 0) -> None:
        """Write down how a fixed point was found, `before` steps having been made for its start."""
        self.records.append(
            SolveRecord(
                what=what,
                converged=found.all_converged,
                steps=before + int(found.steps.max()),
                residual=float(found.residual.max()),
            )
        )

    @property
    def _starts(self) -> bool:
        """Whether plain steps may look for a start: not where another solver was asked for, since they may diverge."""
        return self.solver == "picard"

    def _casts(self, start: Tensor) -> bool:
        """Whether single precision may look for a start: it must pay, and only numbers may stay in double precision."""
        worth = start.numel() * start.shape[-1] >= _WORTH_CASTING
        return self._starts and worth and self.model.single_precision and start.dtype == torch.float64

    def _single_equilibrium(self, X: Tensor, initial: Tensor) -> tuple[Tensor, int]:
        step = self.model.step_at(X.float(), self._single())
        start, made = near_fixed_point(step, initial.float(), max_steps=self.max_steps)
        return start.to(X.dtype), made

    def _single(self) -> dict[str, Tensor]:
        return {name: value.float() for name, value in self.model.parameters().items()}

    @cached_property
    def _further(self) -> int:
        """Plain steps after a start was found: they make an error a twentieth."""
        if not self._starts or not self._contraction < 1:
            return 0
        return min(_MOST_FURTHER, math.ceil(3 / (1 - self._contraction)))

    @cached_property
    def _contraction(self) -> float:
        return float(self.model.contraction_bound())

    def _solve(self, what: str, step: Callable[[Tensor], Tensor], start: Tensor, made: int) -> Tensor:
        """Solve from `start`, for which `made` steps were made already."""
        # The start is good for all entries together. Small ones take some more steps, of which each with a look at its
        # residual takes the time of several without.
        for _ in range(min(self._further, self.max_steps - made)):
            start, made = step(start), made + 1
        found = solve_fixed_point(
            step,
            start,
            solver=self.solver,
            rtol=self.rtol,
            atol=self.atol,
            max_steps=self.max_steps - made,
            contraction=self._contraction,
            raise_on_failure=False,
        )
        if not found.all_converged:
            raise EquilibriumError(
                f"No {what} found with the solver {found.solver}.\n{found.describe_failures()}", found
            )
        self.note(what, found, made)
        return found.value
