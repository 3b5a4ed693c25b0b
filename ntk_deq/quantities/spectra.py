"""Singular values and symmetric eigenvalues of a matrix or of a tangent kernel, each with an error bar."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from flint import arb
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified.dense import Ball
from ntk_deq.certified.eigenvalues import lambda_max as certified_lambda_max
from ntk_deq.certified.eigenvalues import lambda_min as certified_lambda_min
from ntk_deq.certified.extremes import sigma_max as certified_sigma_max
from ntk_deq.certified.extremes import sigma_min as certified_sigma_min
from ntk_deq.certified.scalar import lower, upper
from ntk_deq.equilibrium.result import html_table, one_line
from ntk_deq.errors import ArgumentError

# Rounding in a sum of n terms grows like sqrt(n) u in practice, so that 1e4 u covers products over 1e8 terms.
_ASYMMETRY_UNITS = 1e4


@runtime_checkable
class HasMatrix(Protocol):
    """A result that is a matrix with facts around it, such as a tangent kernel."""

    @property
    def matrix(self) -> Tensor:
        """The matrix."""


class Measured(float):
    """A number with an error bar; it is used like any float, and arithmetic with it gives plain floats.

    Attributes:
        radius: How far the truth may be from the value. An estimate, in units of the rounding that a backward stable
            routine does, unless `is_certified`.
        is_certified: Whether the radius is proven.

    Example:
        >>> found = sigma_min(torch.ones(2, 3, dtype=torch.float64))  # equal rows
        >>> found.may_be_zero, found.certified(), sigma_min(torch.eye(2)) > 0.5
        (True, 0 ± 0, True)
    """

    radius: float
    is_certified: bool

    def __new__(
        cls, value: float, radius: float, prove: Callable[[], arb] | None = None, is_certified: bool = False
    ) -> Measured:
        """Keep the value with its radius, and how to prove one."""
        new = super().__new__(cls, value)
        new.radius, new.is_certified, new._prove = radius, is_certified, prove
        return new

    _prove: Callable[[], arb] | None

    @property
    def may_be_zero(self) -> bool:
        """Whether zero lies within the error bar."""
        return not abs(float(self)) > self.radius

    def certified(self) -> Measured:
        """Return the number with a proven radius, that of the matrix as its floats say it.

        Of a tangent kernel this is the kernel as computed: what its fixed points and sums are off by is not in it.

        Raises:
            ArgumentError: Nothing is known that could be proven, as for a quotient.
        """
        if self.is_certified:
            return self
        if self._prove is None:
            raise ArgumentError(
                "This number has no proof: it is a quotient or a copy. Certify those that it was worked out from."
            )
        ball = self._prove()
        low, high = lower(ball), upper(ball)
        if not (math.isfinite(low) and math.isfinite(high)):
            return Measured(float(self), math.inf, is_certified=True)
        middle = low + (high - low) / 2
        radius = 0.0 if low == high else math.nextafter(max(high - middle, middle - low), math.inf)
        return Measured(middle, radius, is_certified=True)

    def item(self) -> float:
        """Return the plain float."""
        return float(self)

    def __reduce__(self) -> tuple[object, ...]:
        # A copy has the number and its radius; the matrix, which a proof would need, stays behind.
        return Measured, (float(self), self.radius, None, self.is_certified)

    def __repr__(self) -> str:
        return f"{float(self):.6g} ± {self.radius:.2g}"

    __str__ = __repr__


def shown(value: Measured) -> str:
    """Return a number to six digits, with its error bar where it cannot be told from zero.

    Example:
        >>> shown(Measured(2.0, 1e-15)), shown(Measured(1e-17, 1e-15))
        ('2', '1e-17 ± 1e-15')
    """
    return repr(value) if value.may_be_zero and value.radius > 0 else f"{float(value):.6g}"


@dataclass(frozen=True, eq=False, repr=False)
class Spectrum:
    """The eigenvalues of a symmetric matrix.

    Attributes:
        eigenvalues: In ascending order.
        matrix: The matrix.
        error: What the entries of the matrix are off by, in the Frobenius norm.

    Example:
        >>> spectrum(torch.tensor([[2.0, 0.0], [0.0, 8.0]]))
        Spectrum(size=2, lambda_min=2, lambda_max=8, rank=2, condition=4)
    """

    eigenvalues: Float[Tensor, " N"]
    matrix: Float[Tensor, "N N"]
    error: float = 0.0

    @property
    def lambda_min(self) -> Measured:
        """The smallest eigenvalue."""
        return self._measured(0, certified_lambda_min)

    @property
    def lambda_max(self) -> Measured:
        """The largest eigenvalue."""
        return self._measured(-1, certified_lambda_max)

    @property
    def resolution(self) -> float:
        """The size N u max|lambda|, and the matrix's own error, below which an eigenvalue cannot be told from zero."""
        return _resolution(float(self.eigenvalues.abs().max()), self.matrix) + self.error

    @property
    def rank(self) -> int:
        """How many eigenvalues can be told from zero in the matrix's precision."""
        return int((self.eigenvalues.abs() > self.resolution).sum())

    @property
    def condition_number(self) -> Measured:
        """Largest over smallest magnitude; infinite where the matrix cannot be told from a singular one."""
        magnitudes = self.eigenvalues.abs()
        return _ratio(float(magnitudes.max()), float(magnitudes.min()), self.resolution)

    def _measured(self, place: int, prove: Callable[..., arb]) -> Measured:
        return Measured(
            float(self.eigenvalues[place]), self.resolution, lambda: prove(Ball(self.matrix.detach()), symmetric=True)
        )

    def _facts(self) -> dict[str, object]:
        return {
            "size": self.eigenvalues.numel(),
            "lambda_min": shown(self.lambda_min),
            "lambda_max": shown(self.lambda_max),
            "rank": self.rank,
            "condition": f"{float(self.condition_number):.6g}",
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
    matrix = _symmetric(H)
    return Spectrum(torch.linalg.eigvalsh(matrix.detach()), matrix, _error(H))


def lambda_min(H: Float[Tensor, "N N"] | HasMatrix) -> Measured:
    """Return the smallest eigenvalue of a symmetric matrix, with its error bar.

    Raises:
        ArgumentError: Not a finite square matrix, or not symmetric; the message gives the measured asymmetry.

    Example:
        >>> lambda_min(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        -1 ± 2.4e-07
    """
    return spectrum(H).lambda_min


def lambda_max(H: Float[Tensor, "N N"] | HasMatrix) -> Measured:
    """Return the largest eigenvalue of a symmetric matrix, with its error bar.

    Raises:
        ArgumentError: Not a finite square matrix, or not symmetric; the message gives the measured asymmetry.

    Example:
        >>> lambda_max(torch.tensor([[0.0, 1.0], [1.0, 0.0]])).certified()
        1 ± 1.3e-15
    """
    return spectrum(H).lambda_max


def sigma_min(A: Float[Tensor, "N m"] | HasMatrix) -> Measured:
    """Return the min(N, m)-th singular value, the smallest one.

    It is positive exactly when the matrix has full rank; the rows of a matrix with N > m are dependent all the same.

    Raises:
        ArgumentError: Not a finite matrix with at least one entry.

    Example:
        >>> sigma_min(torch.tensor([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]]))
        3 ± 1.4e-06
    """
    return _singular(A, -1, certified_sigma_min)


def sigma_max(A: Float[Tensor, "N m"] | HasMatrix) -> Measured:
    """Return the largest singular value, the spectral norm.

    Raises:
        ArgumentError: Not a finite matrix with at least one entry.

    Example:
        >>> sigma_max(torch.tensor([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]]))
        4 ± 1.4e-06
    """
    return _singular(A, 0, certified_sigma_max)


def condition_number(A: Float[Tensor, "N m"] | HasMatrix) -> Measured:
    """Return the largest singular value over the smallest.

    It is infinite where the smallest is at most max(N, m) u times the largest: the matrix cannot then be told from a
    singular one in its precision, and a quotient of rounding errors would only look like a number.

    Raises:
        ArgumentError: Not a finite matrix with at least one entry.

    Example:
        >>> condition_number(torch.tensor([[2.0, 0.0], [0.0, 4.0]])), condition_number(torch.ones(2, 2))
        (2 ± 1.4e-06, inf ± inf)
    """
    matrix = _matrix(A)
    values = torch.linalg.svdvals(matrix.detach())
    return _ratio(float(values[0]), float(values[-1]), _resolution(float(values[0]), matrix) + _error(A))


def _singular(A: Tensor | HasMatrix, place: int, prove: Callable[[Ball], arb]) -> Measured:
    matrix = _matrix(A).detach()
    values = torch.linalg.svdvals(matrix)
    radius = _resolution(float(values[0]), matrix) + _error(A)
    return Measured(float(values[place]), radius, lambda: prove(Ball(matrix)))


def _error(A: Tensor | HasMatrix) -> float:
    """Return what a result says that its matrix is off by."""
    return 0.0 if isinstance(A, Tensor) else float(getattr(A, "error", 0.0))


def _matrix(A: Tensor | HasMatrix) -> Tensor:
    matrix = A if isinstance(A, Tensor) else getattr(A, "matrix", None)
    if not isinstance(matrix, Tensor):
        raise ArgumentError(f"A spectrum needs a torch tensor or a tangent kernel. Got {type(A).__name__}.")
    if matrix.dtype not in (torch.float64, torch.float32):
        raise ArgumentError(f"A spectrum needs dtype float64 or float32. Got {matrix.dtype}.")
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


def _resolution(largest: float, matrix: Tensor) -> float:
    return max(matrix.shape) * torch.finfo(matrix.dtype).eps * largest


def _ratio(largest: float, smallest: float, resolution: float) -> Measured:
    if smallest <= resolution:
        return Measured(math.inf, math.inf)
    ratio = largest / smallest
    return Measured(ratio, (resolution + ratio * resolution) / (smallest - resolution))
