"""The result of a tangent-kernel computation: matrix, blocks, and how its equilibria were found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from ntk_deq.models.display import html_table, one_line
from ntk_deq.quantities.spectra import Measured, Spectrum, condition_number, lambda_max, lambda_min, sigma_min, spectrum


class KernelMethod(StrEnum):
    """How a tangent kernel is worked out."""

    STRUCTURED = "structured"
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
    """

    normalisation: ClassVar[str] = "sum over parameters of J J', no division by width or outputs"

    matrix: Float[Tensor, "N1 N2"]
    blocks: Mapping[str, Float[Tensor, "N1 N2"]]
    symmetric: bool
    method: KernelMethod
    model: str
    solves: tuple[SolveRecord, ...]
    error: float = 0.0

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
        return {
            "model": self.model,
            "shape": f"{rows}x{columns}",
            "parameters": "+".join(self.blocks),
            "method": self.method.value,
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
