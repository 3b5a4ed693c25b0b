"""The result of a tangent-kernel computation: matrix, blocks, and how its equilibria were found.

Gram matrices of feature matrices, exactly symmetric where they should be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from ntk_deq.quantities.spectra import Measured, Spectrum, condition_number, lambda_max, lambda_min, sigma_min, spectrum
from ntk_deq.systems.display import html_table, one_line


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
