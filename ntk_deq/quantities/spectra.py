"""Singular values and symmetric eigenvalues of a matrix or of a tangent kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.errors import ArgumentError
from ntk_deq.models.display import html_table, one_line

# Rounding in a sum of n terms grows like sqrt(n) u in practice, so that 1e4 u covers products over 1e8 terms.
_ASYMMETRY_UNITS = 1e4


@runtime_checkable
class HasMatrix(Protocol):
    """A result that is a matrix with facts around it, such as a tangent kernel."""

    @property
    def matrix(self) -> Tensor:
        """The matrix."""


@dataclass(frozen=True, eq=False, repr=False)
class Spectrum:
    """The eigenvalues of a symmetric matrix.

    Attributes:
        eigenvalues: In ascending order.

    Example:
        >>> spectrum(torch.tensor([[2.0, 0.0], [0.0, 8.0]]))
        Spectrum(size=2, lambda_min=2, lambda_max=8, rank=2, condition=4)
    """

    eigenvalues: Float[Tensor, " N"]

    @property
    def lambda_min(self) -> float:
        """The smallest eigenvalue."""
        return float(self.eigenvalues[0])

    @property
    def lambda_max(self) -> float:
        """The largest eigenvalue."""
        return float(self.eigenvalues[-1])

    @property
    def resolution(self) -> float:
        """The size N u max|lambda| below which an eigenvalue cannot be told from zero."""
        return float(_resolution(self.eigenvalues.abs().max(), self.eigenvalues.numel()))

    @property
    def rank(self) -> int:
        """How many eigenvalues can be told from zero in the matrix's precision."""
        return int((self.eigenvalues.abs() > self.resolution).sum())

    @property
    def condition_number(self) -> float:
        """Largest over smallest magnitude; infinite where the matrix cannot be told from a singular one."""
        magnitudes = self.eigenvalues.abs()
        return float(_ratio(magnitudes.max(), magnitudes.min(), magnitudes.numel()))

    def _facts(self) -> dict[str, object]:
        return {
            "size": self.eigenvalues.numel(),
            "lambda_min": f"{self.lambda_min:.6g}",
            "lambda_max": f"{self.lambda_max:.6g}",
            "rank": self.rank,
            "condition": f"{self.condition_number:.6g}",
        }

    def __repr__(self) -> str:
        return one_line("Spectrum", self._facts())

    def _repr_html_(self) -> str:
        return html_table("Spectrum", self._facts())


def spectrum(H: Float[Tensor, "N N"] | HasMatrix) -> Spectrum:
    """Return the eigenvalues of a symmetric matrix with the facts that follow from them.

    Args:
        H: A symmetric matrix or a tangent kernel on one set of samples.

    Raises:
        ArgumentError: Not a finite square matrix, or not symmetric; the message gives the measured asymmetry.
    """
    return Spectrum(torch.linalg.eigvalsh(_symmetric(H)))


def lambda_min(H: Float[Tensor, "N N"] | HasMatrix) -> Float[Tensor, ""]:
    """Return the smallest eigenvalue of a symmetric matrix.

    Raises:
        ArgumentError: Not a finite square matrix, or not symmetric; the message gives the measured asymmetry.

    Example:
        >>> lambda_min(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        tensor(-1.)
    """
    return torch.linalg.eigvalsh(_symmetric(H))[0]


def lambda_max(H: Float[Tensor, "N N"] | HasMatrix) -> Float[Tensor, ""]:
    """Return the largest eigenvalue of a symmetric matrix.

    Raises:
        ArgumentError: Not a finite square matrix, or not symmetric; the message gives the measured asymmetry.

    Example:
        >>> lambda_max(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        tensor(1.)
    """
    return torch.linalg.eigvalsh(_symmetric(H))[-1]


def sigma_min(A: Float[Tensor, "N m"] | HasMatrix) -> Float[Tensor, ""]:
    """Return the min(N, m)-th singular value, the smallest one.

    It is positive exactly when the matrix has full rank; the rows of a matrix with N > m are dependent all the same.

    Raises:
        ArgumentError: Not a finite matrix with at least one entry.

    Example:
        >>> sigma_min(torch.tensor([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]]))
        tensor(3.)
    """
    return torch.linalg.svdvals(_matrix(A))[-1]


def sigma_max(A: Float[Tensor, "N m"] | HasMatrix) -> Float[Tensor, ""]:
    """Return the largest singular value, the spectral norm.

    Raises:
        ArgumentError: Not a finite matrix with at least one entry.

    Example:
        >>> sigma_max(torch.tensor([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]]))
        tensor(4.)
    """
    return torch.linalg.svdvals(_matrix(A))[0]


def condition_number(A: Float[Tensor, "N m"] | HasMatrix) -> Float[Tensor, ""]:
    """Return the largest singular value over the smallest.

    It is infinite where the smallest is at most max(N, m) u times the largest: the matrix cannot then be told from a
    singular one in its precision, and a quotient of rounding errors would only look like a number.

    Raises:
        ArgumentError: Not a finite matrix with at least one entry.

    Example:
        >>> condition_number(torch.tensor([[2.0, 0.0], [0.0, 4.0]])), condition_number(torch.ones(2, 2))
        (tensor(2.), tensor(inf))
    """
    matrix = _matrix(A)
    values = torch.linalg.svdvals(matrix)
    return _ratio(values[0], values[-1], max(matrix.shape))


def _matrix(A: Tensor | HasMatrix) -> Tensor:
    matrix = A if isinstance(A, Tensor) else A.matrix
    if matrix.ndim != 2 or matrix.numel() == 0:
        raise ArgumentError(f"A spectrum needs a matrix with at least one entry. Got shape {tuple(matrix.shape)}.")
    if not torch.isfinite(matrix).all():
        raise ArgumentError("A spectrum needs a finite matrix. Got NaN or Inf in it.")
    return matrix


def _symmetric(H: Tensor | HasMatrix) -> Tensor:
    """Return the symmetric part of a matrix that is symmetric up to rounding."""
    matrix = _matrix(H)
    if matrix.shape[0] != matrix.shape[1]:
        raise ArgumentError(
            f"Eigenvalues of a symmetric matrix need a square one. Got shape {tuple(matrix.shape)}; "
            "for singular values use sigma_min or sigma_max."
        )
    asymmetry = float((matrix - matrix.T).abs().max())
    scale = float(matrix.abs().max())
    if asymmetry > _ASYMMETRY_UNITS * torch.finfo(matrix.dtype).eps * scale:
        raise ArgumentError(
            f"Eigenvalues of a symmetric matrix need H = H'. Got max|H - H'| = {asymmetry:.3g} "
            f"against max|H| = {scale:.3g}."
        )
    return matrix if asymmetry == 0 else (matrix + matrix.T) / 2


def _resolution(largest: Tensor, size: int) -> Tensor:
    return size * torch.finfo(largest.dtype).eps * largest


def _ratio(largest: Tensor, smallest: Tensor, size: int) -> Tensor:
    return torch.where(smallest <= _resolution(largest, size), torch.inf, largest / smallest)
