"""The fixed points behind a tangent kernel, solved with one set of options and written down."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from ntk_deq.equilibrium import Equilibrium, Solver, solve_adjoint, solve_equilibrium
from ntk_deq.models.base import EquilibriumModel
from ntk_deq.quantities.tangent_kernel import SolveRecord


@dataclass(frozen=True)
class KernelSolver:
    """Solves equilibria and adjoints of one model and keeps a record of each.

    Attributes:
        model: The model.
        solver, rtol, atol, max_steps: As in `solve_equilibrium`.
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
        found = solve_equilibrium(
            self.model, X, solver=self.solver, rtol=self.rtol, atol=self.atol, max_steps=self.max_steps
        )
        self.note(f"equilibrium of {what}", found)
        return found.value

    def adjoint(self, X: Tensor, Z: Tensor, what: str) -> Tensor:
        """Return the adjoint at the features Z; an EquilibriumError where a sample has none."""
        found = solve_adjoint(
            self.model, X, Z, solver=self.solver, rtol=self.rtol, atol=self.atol, max_steps=self.max_steps
        )
        self.note(f"adjoint of {what}", found)
        return found.value

    def note(self, what: str, found: Equilibrium) -> None:
        """Write down how a fixed point was found."""
        self.records.append(
            SolveRecord(
                what=what,
                converged=found.all_converged,
                steps=int(found.steps.max()),
                residual=float(found.residual.max()),
            )
        )
