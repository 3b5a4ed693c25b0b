"""The fixed points behind a tangent kernel, solved with one set of options and written down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ntk_deq.equilibrium import Equilibrium, Solver, solve_fixed_point
from ntk_deq.errors import EquilibriumError
from ntk_deq.models.base import EquilibriumModel
from ntk_deq.quantities.tangent_kernel import SolveRecord

# Steps between two looks at the residual while a start is sought: looking costs about half a step.
_STRIDE = 4
# A map that contracts slowly gains little from a start: after so many steps the driver takes over.
_LONGEST_START = 256


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
        return self._solve(f"equilibrium of {what}", self.model.step_at(X), self.model.initial_state(X))

    def adjoint(self, X: Tensor, Z: Tensor, what: str) -> Tensor:
        """Return the adjoint at the features Z; an EquilibriumError where a sample has none."""
        return self._solve(f"adjoint of {what}", self.model.adjoint_step_at(Z, X), torch.zeros_like(Z))

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

    def _solve(self, what: str, step: Callable[[Tensor], Tensor], initial: Tensor) -> Tensor:
        start, made = initial, 0
        if self.solver == "picard":
            start, made = near_fixed_point(step, initial, max_steps=self.max_steps)
        found = solve_fixed_point(
            step,
            start,
            solver=self.solver,
            rtol=self.rtol,
            atol=self.atol,
            max_steps=self.max_steps - made,
            raise_on_failure=False,
        )
        if not found.all_converged:
            raise EquilibriumError(f"No {what} found with the solver {found.solver}.\n{found.describe_failures()}", found)
        self.note(what, found, made)
        return found.value


def near_fixed_point(step: Callable[[Tensor], Tensor], initial: Tensor, *, max_steps: int) -> tuple[Tensor, int]:
    """Return a start close to the fixed point by plain steps that look at the residual only now and then.

    A start decides nothing: the driver judges every sample from there, so that a poor one costs steps and no more. It
    is the iterate of smallest total residual, relative to its size, before progress ended.

    Args:
        step: The fixed-point map.
        initial: Where to start, and the result where no progress is made.
        max_steps: Steps allowed.

    Returns:
        The start and the number of steps made.

    Example:
        >>> near_fixed_point(lambda z: z / 2 + 1, torch.zeros(1, dtype=torch.float64), max_steps=100)
        (tensor([2.], dtype=torch.float64), 56)
    """
    start, point, smallest, made = initial, initial, float("inf"), 0
    while made + _STRIDE <= min(max_steps, _LONGEST_START):
        for _ in range(_STRIDE - 1):
            point = step(point)
        image = step(point)
        made += _STRIDE
        residual = float(torch.linalg.vector_norm(image - point) / torch.linalg.vector_norm(image))
        if not residual < smallest:  # NaN ends the search too
            break
        start, point, smallest = image, image, residual
        if residual <= torch.finfo(initial.dtype).eps:
            break
    return start, made
