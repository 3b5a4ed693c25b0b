"""The operations on matrix balls that everything above uses, each for every kind of ball; spectra carried along a run.

A tensor may stand in for a ball; it counts as exact, and a vector as one column. There is one name for an operation,
whatever its balls are made of: where one is of many bits, all are turned into such; what has no rule for structure is
done with the dense forms. The rule of an operation is the function of its name in the modules of the kind of ball.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ParamSpec, TypeVar, cast

import torch
from flint import arb
from torch import Tensor

from ntk_deq.certified import (
    arithmetic,
    dense,
    eigenvalues,
    extremes,
    inversion,
    norms,
    precise,
    spectra,
    structured,
)
from ntk_deq.certified.dense import Ball, ball
from ntk_deq.certified.precise import PreciseMatrix, adopt
from ntk_deq.certified.scalar import from_bounds, lower, upper
from ntk_deq.certified.structured import Structured, densified
from ntk_deq.errors import ArgumentError

P = ParamSpec("P")
R = TypeVar("R")


def _functions(*modules: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return the functions that modules define, by name."""
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__
    }


PRECISE = _functions(precise.arithmetic, precise.spectra, precise)
"""The rules of matrices of many bits, among other functions: one for each operation."""

_STRUCTURED = _functions(structured.products, structured.arithmetic, structured.spectra)


def generic(rule: Callable[P, R]) -> Callable[P, R]:
    """Return the operation of dense balls extended to every kind of ball, and to tensors, which count as exact."""
    name = rule.__name__

    @functools.wraps(rule)
    def operation(*args: P.args, **kwargs: P.kwargs) -> R:
        balls: tuple[Any, ...] = tuple(ball(arg) if isinstance(arg, Tensor) else arg for arg in args)
        own: Callable[..., R] = rule
        if any(isinstance(arg, PreciseMatrix) for arg in balls):
            own, balls = PRECISE[name], tuple(map(adopt, balls))
        elif any(isinstance(arg, Structured) for arg in balls):
            own, balls = (_STRUCTURED[name], balls) if name in _STRUCTURED else (rule, tuple(map(densified, balls)))
        return own(*balls, **kwargs)

    return operation


add = generic(arithmetic.add)
hadamard = generic(arithmetic.hadamard)
negate = generic(arithmetic.negate)
scale = generic(arithmetic.scale)
subtract = generic(arithmetic.subtract)
matmul = generic(arithmetic.matmul)
compare_entries = generic(arithmetic.compare_entries)
above = generic(dense.above)
absolute = generic(dense.absolute)
as_scalar = generic(dense.as_scalar)
beside = generic(dense.beside)
block = generic(dense.block)
relu = generic(dense.relu)
step = generic(dense.step)
transpose = generic(dense.transpose)
vec = generic(dense.vec)
diag = generic(cast(Callable[[Ball], Ball], structured.diag))
kron = generic(cast(Callable[[Ball, Ball], Ball], structured.kron))
lambda_max = generic(eigenvalues.lambda_max)
lambda_min = generic(eigenvalues.lambda_min)
rho = generic(eigenvalues.rho)
lambda_min_at_least = generic(extremes.lambda_min_at_least)
lambda_min_below = generic(extremes.lambda_min_below)
sigma_max = generic(extremes.sigma_max)
sigma_min = generic(extremes.sigma_min)
eigenvalues_symmetric = generic(spectra.eigenvalues_symmetric)
singular_values = generic(spectra.singular_values)
inverse = generic(inversion.inverse)
pinv = generic(inversion.pinv)
sqrtm = generic(spectra.sqrtm)
determinant = generic(norms.determinant)
entry_max = generic(norms.entry_max)
entry_min = generic(norms.entry_min)
entry_sum = generic(norms.entry_sum)
frobenius = generic(norms.frobenius)
norm1 = generic(norms.norm1)
norminf = generic(norms.norminf)
trace = generic(norms.trace)
spectral_norm = sigma_max
"""Of a vector it is the Euclidean norm."""


def identity(n: int, *, dtype: torch.dtype = torch.float64, device: torch.device | str | None = None) -> Ball:
    """Return the identity of order n; a large one is never formed.

    Raises:
        ArgumentError: n < 1.
        LimitError: Its diagonal does not fit.

    Example:
        >>> identity(2)
        Ball(2 x 2, float64, radius=0)
    """
    return cast(Ball, structured.identity(n, dtype=dtype, device=device))


@dataclass
class CarriedSpectrum:
    """Bounds of the extreme singular values of a matrix that moves little from step to step.

    For matrices A and B of one shape, Weyl's inequality gives |sigma_i(A) - sigma_i(B)| <= norm(A - B) <= fro(A - B).
    So one decomposition serves every later step whose displacement from it is small against its smallest singular
    value.

    Attributes:
        share: A new decomposition is made when the displacement exceeds this share of sigma_min; in (0, 1).
        decompositions: How many were made.
        steps: How many matrices were bounded.

    Example:
        >>> import torch
        >>> from ntk_deq.certified import ball
        >>> carried = CarriedSpectrum(share=0.1)
        >>> Z = torch.eye(2, dtype=torch.float64)
        >>> for step in range(4):
        ...     smallest, _ = carried.bound(ball(Z * (1 - 0.01 * step)))
        >>> carried.decompositions, carried.steps, bool(smallest.contains(0.97))
        (1, 4, True)

    References:
        Weyl (1912), Math. Ann. 71, 441-479; Horn and Johnson, Matrix Analysis, Corollary 7.3.5.
    """

    share: float = 0.1
    decompositions: int = 0
    steps: int = 0
    _reference: Ball | None = None
    _smallest: arb | None = None
    _largest: arb | None = None

    def __post_init__(self) -> None:
        """Refuse a share outside (0, 1)."""
        if not 0 < self.share < 1:
            raise ArgumentError(f"`share` of CarriedSpectrum must lie between 0 and 1. Got {self.share}.")

    def bound(self, matrix: Ball) -> tuple[arb, arb]:
        """Return balls that contain the smallest and the largest singular value.

        Args:
            matrix: The present matrix; of the same shape as the earlier ones, else a new spectrum is computed.
        """
        self.steps += 1
        if self._reference is not None and self._reference.shape == matrix.shape:
            displacement = upper(frobenius(subtract(matrix, self._reference)))
            assert self._smallest is not None
            assert self._largest is not None
            if displacement <= self.share * lower(self._smallest):
                return _widened(self._smallest, displacement), _widened(self._largest, displacement)
        self.decompositions += 1
        self._reference = matrix
        self._smallest, self._largest = sigma_min(matrix), sigma_max(matrix)
        return self._smallest, self._largest


def _widened(value: arb, displacement: float) -> arb:
    """The ball of a singular value after a displacement; singular values are never negative."""
    moved = arb(displacement)
    low = lower(value - moved)
    return from_bounds(max(low, 0.0), upper(value + moved))
