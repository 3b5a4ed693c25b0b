"""The sets that variables range over: exact membership, and which of them are closed under scaling."""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from flint import fmpz_mat
from torch import Tensor

from ntk_deq.certified import Ball, eigenvalues_symmetric
from ntk_deq.certified.rounding import multiply_up
from ntk_deq.data.samples import distance_to_orthonormal_rows, distance_to_unit_rows
from ntk_deq.language.domain import Domain, DomainKind

_CONES = frozenset(
    {
        DomainKind.REAL,
        DomainKind.NONNEGATIVE,
        DomainKind.POSITIVE,
        DomainKind.SYMMETRIC,
        DomainKind.SKEW,
        DomainKind.PSD,
        DomainKind.DIAGONAL,
    }
)

_ELIMINATED = 12  # order up to which semidefiniteness is decided by elimination: 10 ms
_ELIMINATED_AT_LAST = 40  # and where certified eigenvalues leave it open: 2 s
_BITS = 512  # of whole numbers in a matrix whose rank is computed: 5 s at the order 300

ROUNDING = frozenset({DomainKind.ORTHOGONAL, DomainKind.UNIT_ROWS})
"""Kinds of domain of which floats hold few members: the others are balls around floats."""

MOST_ROUNDING = 2.0**-40
"""A value that is farther from a member is none: random orthogonal matrices are 2^-45 away up to the order 512."""

ROOM = 1.0 + 2.0**-20
"""Factor on a distance for what another machine's rounding makes of the bound."""

# Sets of square matrices.
SQUARE = frozenset({DomainKind.SYMMETRIC, DomainKind.SKEW, DomainKind.PSD, DomainKind.DIAGONAL, DomainKind.ORTHOGONAL})


def is_cone(domain: Domain) -> bool:
    """Say whether a domain contains c x with each of its x, for every c > 0.

    Example:
        >>> is_cone(Domain(DomainKind.PSD)), is_cone(Domain(DomainKind.INTERVAL, low=Fraction(0), low_open=True))
        (True, True)
        >>> is_cone(Domain(DomainKind.INTERVAL, Fraction(0), Fraction(1)))
        False
    """
    if domain.kind is DomainKind.INTERVAL:
        return domain.low in (None, 0) and domain.high in (None, 0)
    return domain.kind in _CONES


def within(domain: Domain, number: float | Fraction) -> bool:
    """Say whether a number is an allowed entry: decided in exact rational arithmetic.

    Args:
        domain: The domain; kinds that restrict no single entry allow every finite number.
        number: The number.

    Example:
        >>> half_open = Domain(DomainKind.INTERVAL, Fraction(0), Fraction(1), low_open=True)
        >>> within(half_open, 1.0), within(half_open, 0.0)
        (True, False)
    """
    if isinstance(number, float) and not math.isfinite(number):
        return False
    exact = Fraction(number)
    if domain.kind is DomainKind.NONNEGATIVE:
        return exact >= 0
    if domain.kind is DomainKind.POSITIVE:
        return exact > 0
    if domain.kind is DomainKind.INTEGER and exact.denominator != 1:
        return False
    if domain.low is not None and (exact < domain.low or (domain.low_open and exact == domain.low)):
        return False
    return not (domain.high is not None and (exact > domain.high or (domain.high_open and exact == domain.high)))


def contains(domain: Domain, value: Tensor) -> bool:
    """Say whether a value lies in a domain, exactly; what is only near it, `rounding` knows.

    Entries and symmetry are compared, orthogonality and unit rows decided in rational arithmetic. So is that a matrix
    is positive semidefinite, that a singular one is no matter of rounding; a large one that cannot be decided in
    reasonable time counts as outside.

    Args:
        domain: The domain.
        value: Scalar, vector (one row, where rows matter) or matrix.

    Example:
        >>> contains(Domain(DomainKind.PSD), torch.tensor([[1.0, 1.0], [1.0, 1.0]]))
        True
        >>> contains(Domain(DomainKind.PSD), torch.tensor([[1.0, 1.0], [1.0, 0.5]]))
        False
    """
    kind = domain.kind
    if not bool(torch.isfinite(value).all()):
        return False
    if kind in SQUARE and (value.ndim != 2 or value.shape[0] != value.shape[1]):
        return False
    if kind is DomainKind.SYMMETRIC:
        return torch.equal(value, value.T)
    if kind is DomainKind.SKEW:
        return torch.equal(value, -value.T)
    if kind is DomainKind.PSD:
        return torch.equal(value, value.T) and _psd(value)
    if kind is DomainKind.DIAGONAL:
        return torch.equal(value, torch.diag(torch.diagonal(value)))
    if kind in ROUNDING:
        return _unit_rows(value if value.ndim == 2 else value[None], orthogonal=kind is DomainKind.ORTHOGONAL)
    return all(within(domain, float(entry)) for entry in value.flatten().tolist())


def rounding(domain: Domain, value: Tensor) -> float:
    """Return an upper bound of the Frobenius distance from a value to the nearest member of a domain.

    Args:
        domain: The domain; for kinds that are not in `ROUNDING` the bound is infinite.
        value: Vector (one row) or matrix in float64 on the CPU.

    Example:
        >>> tilted = torch.tensor([0.6, 0.8], dtype=torch.float64)
        >>> 0 < rounding(Domain(DomainKind.UNIT_ROWS), tilted) < 1e-16
        True
    """
    if domain.kind is DomainKind.ORTHOGONAL and value.ndim == 2 and value.shape[0] == value.shape[1]:
        return multiply_up(ROOM, distance_to_orthonormal_rows(value))
    if domain.kind is DomainKind.UNIT_ROWS and value.ndim > 0:
        return multiply_up(ROOM, distance_to_unit_rows(value if value.ndim == 2 else value[None]))
    return math.inf


def _unit_rows(value: Tensor, *, orthogonal: bool) -> bool:
    """Decide over the rationals whether rows have norm 1 and, if asked, are orthogonal; 0.6, 0.8 as floats are not."""
    rows = [[Fraction(entry) for entry in row] for row in value.tolist()]
    pairs = ((i, j) for i in range(len(rows)) for j in range(0 if orthogonal else i, i + 1))
    return all(sum(a * b for a, b in zip(rows[i], rows[j], strict=True)) == (i == j) for i, j in pairs)


def _psd(value: Tensor) -> bool:
    """Decide semidefiniteness exactly.

    A large matrix by certified eigenvalues: it is semidefinite if as many are positive as its rank, computed in whole
    numbers, says are not zero.
    """
    order = len(value)
    if order <= _ELIMINATED:
        return _psd_by_elimination(value)
    values = eigenvalues_symmetric(Ball(value))
    positive = sum(bool(number > 0) for number in values)
    if positive == order or any(bool(number < 0) for number in values):
        return positive == order
    whole = _whole_matrix(value)
    if whole is not None and int(whole.rank()) == positive:
        return True
    return order <= _ELIMINATED_AT_LAST and _psd_by_elimination(value)


def _whole_matrix(value: Tensor) -> fmpz_mat | None:
    """Return a matrix times the power of two that makes it whole; None where its numbers would be too long."""
    ratios = [entry.as_integer_ratio() for entry in value.flatten().tolist()]
    common = max(bottom for _, bottom in ratios)
    entries = [top * (common // bottom) for top, bottom in ratios]
    if max(abs(entry) for entry in entries).bit_length() > _BITS:
        return None
    rows, columns = value.shape
    return fmpz_mat(rows, columns, entries)


def _psd_by_elimination(value: Tensor) -> bool:
    """Decide semidefiniteness by symmetric elimination over the rationals."""
    rows = [[Fraction(entry) for entry in row] for row in value.tolist()]
    while rows:
        pivot = next((i for i, row in enumerate(rows) if row[i] != 0), None)
        if pivot is None:
            return all(entry == 0 for row in rows for entry in row)
        head = rows[pivot]
        if head[pivot] < 0:
            return False
        keep = [i for i in range(len(rows)) if i != pivot]
        rows = [[rows[i][j] - rows[i][pivot] * head[j] / head[pivot] for j in keep] for i in keep]
    return True
