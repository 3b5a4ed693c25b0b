"""The result of a tangent-kernel computation: matrix, blocks, and how its equilibria were found.

The fixed points behind it are solved with one set of options and written down. Gram matrices of feature matrices are
exactly symmetric where they should be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium import Equilibrium, Solver, solve_fixed_point
from ntk_deq.equilibrium.result import html_table, one_line
from ntk_deq.equilibrium.starts import near_affine_fixed_point, near_fixed_point
from ntk_deq.errors import EquilibriumError
from ntk_deq.quantities.spectra import Measured, Spectrum, condition_number, lambda_max, lambda_min, sigma_min, spectrum
from ntk_deq.systems.model import EquilibriumModel


class KernelMethod(StrEnum):
    """How a tangent kernel is worked out."""

    STRUCTURED = "structured"
    ADJOINT = "adjoint"
    JACOBIAN = "jacobian"
    AUTODIFF = "autodiff"


@dataclass(frozen=True)
class SolveRecord:
    """How one of the fixed points behind a kernel was found.

    Attributes:
        what: `equilibrium of X1`, `adjoint of X1`, and likewise for X2.
        converged: Whether every sample met its tolerance.
        steps: Evaluations of the map for the start, and from there the iterations of the slowest sample.
        residual: The largest residual of a sample.
    """

    what: str
    converged: bool
    steps: int
    residual: float


@dataclass(frozen=True, eq=False, repr=False)
class TangentKernel:
    """The tangent-kernel Gram matrix of a model between two sets of samples.

        H[i, j] = sum over parameters theta of  d yhat(x_i)/d theta . d yhat(x'_j)/d theta

    Attributes:
        matrix: H, N1 x N2.
        blocks: The summand of each parameter.
        symmetric: Whether both sets are the same; matrix and blocks then equal their transposes exactly.
        method: How it was worked out.
        model: The model's name.
        solves: The fixed points that were solved on the way.
        error: What the tolerance of those leaves in the matrix, in the Frobenius norm: an estimate.
        outputs: Number of outputs of which the matrix holds all pairs; None: there is one, or they are summed over.
        reason: Why another method than `structured` was taken, if it was asked for.
    """

    normalisation: ClassVar[str] = "sum over parameters of J J', no division by width or outputs"

    matrix: Float[Tensor, "N1 N2"]
    blocks: Mapping[str, Float[Tensor, "N1 N2"]]
    symmetric: bool
    method: KernelMethod
    model: str
    solves: tuple[SolveRecord, ...]
    error: float = 0.0
    outputs: int | None = None
    reason: str = ""

    @property
    def spectrum(self) -> Spectrum:
        """Eigenvalues; an ArgumentError where the kernel is not symmetric."""
        return spectrum(self)

    @property
    def lambda_min(self) -> Measured:
        """Smallest eigenvalue; an ArgumentError where the kernel is not symmetric."""
        return lambda_min(self)

    @property
    def lambda_max(self) -> Measured:
        """Largest eigenvalue; an ArgumentError where the kernel is not symmetric."""
        return lambda_max(self)

    @property
    def sigma_min(self) -> Measured:
        """Smallest singular value, also of a kernel between two sets."""
        return sigma_min(self)

    @property
    def condition_number(self) -> Measured:
        """Largest over smallest singular value; infinite where the kernel cannot be told from a singular matrix."""
        return condition_number(self)

    def _facts(self) -> dict[str, object]:
        rows, columns = self.matrix.shape
        outputs = {} if self.outputs is None else {"outputs": self.outputs}
        return {
            "model": self.model,
            "shape": f"{rows}x{columns}",
            **outputs,
            "parameters": "+".join(self.blocks),
            "method": f"{self.method.value} ({self.reason})" if self.reason else self.method.value,
            "symmetric": self.symmetric,
            "trace" if self.symmetric else "max": f"{float(self._size()):.6g}",
            "dtype": str(self.matrix.dtype).removeprefix("torch."),
            "device": self.matrix.device,
            "residual": f"{max((solve.residual for solve in self.solves), default=0.0):.1e}",
        }

    def _size(self) -> Tensor:
        return self.matrix.trace() if self.symmetric else self.matrix.abs().max()

    def __repr__(self) -> str:
        return one_line("TangentKernel", self._facts())

    def _repr_html_(self) -> str:
        solves = {
            solve.what: f"{'converged' if solve.converged else 'not converged'} after {solve.steps} steps, "
            f"residual {solve.residual:.1e}"
            for solve in self.solves
        }
        return html_table("Tangent kernel", {**self._facts(), "normalisation": self.normalisation, **solves})


def gram(F1: Float[Tensor, "N1 p"], F2: Float[Tensor, "N2 p"] | None = None) -> Float[Tensor, "N1 N2"]:
    """Return F1 F2', or F1 F1' with rounding that is the same on both sides of the diagonal.

    A library product F1 F1' may differ from its transpose in the last bits; eigenvalue routines read one triangle only,
    so that the mean of both is taken here once, rather than wherever the matrix is used.

    Example:
        >>> import torch
        >>> gram(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
        tensor([[5., 2.],
                [2., 1.]])
    """
    if F2 is not None:
        return F1 @ F2.T
    product = F1 @ F1.T
    return (product + product.T).mul_(0.5)


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
