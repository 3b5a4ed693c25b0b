"""Structured matrices and vectors whose entries are exact in binary: the boundary cases that random draws never hit.

Random matrices and vectors of a domain: Gaussian ones, and the shapes of spectrum that break naive bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ntk_deq.data.distributions import draw
from ntk_deq.errors import ArgumentError
from ntk_deq.falsify.domains import SQUARE, choose, within
from ntk_deq.falsify.exact_builders import BUILDERS, Builder, Shape
from ntk_deq.falsify.scalars import random_entries, scalar_ladder
from ntk_deq.language.domain import Domain, DomainKind

_ENTRYWISE = ("constant", "two values", "mixed values", "zeros and ones")

_SQUARE = (
    "identity",
    "zero",
    "-identity",
    "ones",
    "nonnegative integers",
    "shift",
    "rank one",
    "skew",
    "diagonal of mixed signs",
    "permutation",
    "signs -1, 0, 1",
    "duplicate rows",
    "integers",
)
_RECTANGLE = {"-identity": "minus ones", "shift": "first unit vector", "skew": "parallel rows"}  # in place of others
_VECTOR = (
    "ones",
    "zero",
    "first unit vector",
    "minus ones",
    "nonnegative integers",
    "alternating signs",
    "integers",
    "last unit vector",
    "signs -1, 0, 1",
    "powers of two",
    "duplicate rows",
)
_REAL = {"square": _SQUARE, "rectangle": tuple(_RECTANGLE.get(name, name) for name in _SQUARE), "vector": _VECTOR}

_NONNEGATIVE = {
    "square": (
        "identity",
        "zero",
        "ones",
        "nonnegative integers",
        "shift",
        "rank one",
        "nonnegative diagonal",
        "permutation",
        "signs -1, 0, 1",
        "nilpotent",
        "duplicate rows",
    ),
    "rectangle": (
        "identity",
        "zero",
        "ones",
        "nonnegative integers",
        "first unit vector",
        "rank one",
        "duplicate rows",
        "permutation",
        "signs -1, 0, 1",
        "powers of two",
    ),
    "vector": (
        "ones",
        "zero",
        "first unit vector",
        "nonnegative integers",
        "last unit vector",
        "signs -1, 0, 1",
        "powers of two",
    ),
}

_BY_KIND = {
    DomainKind.POSITIVE: ("ones", "positive integers", "powers of two"),
    DomainKind.SYMMETRIC: (
        "identity",
        "zero",
        "-identity",
        "ones",
        "diagonal of mixed signs",
        "reversal",
        "signed v v'",
        "ones minus identity",
        "symmetric integers",
        "symmetric signs",
        "graded diagonal",
    ),
    DomainKind.SKEW: ("rotation", "zero", "skew", "shift minus its transpose", "skew signs"),
    DomainKind.PSD: (
        "identity",
        "zero",
        "ones",
        "nonnegative diagonal",
        "v v'",
        "R'R",
        "singular R'R",
        "nearly singular",
        "graded diagonal",
    ),
    DomainKind.DIAGONAL: (
        "identity",
        "zero",
        "-identity",
        "diagonal of mixed signs",
        "nonnegative diagonal",
        "first unit vector",
        "graded diagonal",
    ),
    DomainKind.ORTHOGONAL: (
        "identity",
        "-identity",
        "permutation",
        "reversal",
        "signed permutation",
        "blocks of halves",
    ),
    DomainKind.UNIT_ROWS: (
        "unit vectors in turn",
        "equal unit vectors",
        "opposite unit vectors",
        "signed unit vectors",
        "rows of halves",
    ),
}


def exact_family(domain: Domain, shape: Shape, order: int, generator: torch.Generator) -> tuple[str, Tensor]:
    """Build the structured member number `order` of a domain, simplest first.

    Args:
        domain: The domain.
        shape: `(m,)` or `(N, d)`.
        order: Which family; counted modulo their number.
        generator: Source of the integers of families that have some.

    Returns:
        The family's name, and a float64 tensor that lies in the domain exactly.

    Raises:
        ArgumentError: The domain has no member of this shape.

    Example:
        >>> name, A = exact_family(Domain(DomainKind.REAL), (2, 2), 5, torch.Generator())
        >>> name, A.tolist()
        ('shift', [[0.0, 1.0], [0.0, 0.0]])
    """
    _check_shape(domain, shape)
    if domain.kind in (DomainKind.INTERVAL, DomainKind.INTEGER):
        return _entrywise(domain, shape, order, generator)
    names = family_names(domain, shape)
    name = names[order % len(names)]
    value = BUILDERS[name](shape, generator)
    return name, value.abs() if domain.kind is DomainKind.NONNEGATIVE else value


def _check_shape(domain: Domain, shape: Shape) -> None:
    if domain.kind in SQUARE and (len(shape) != 2 or shape[0] != shape[1]):
        raise ArgumentError(f"The domain `{domain.kind.value}` is a set of square matrices. Got shape {shape}.")


def family_names(domain: Domain, shape: Shape) -> tuple[str, ...]:
    """Return the names of the structured families of a domain, simplest first.

    Example:
        >>> family_names(Domain(DomainKind.REAL), (3,))[:3]
        ('ones', 'zero', 'first unit vector')
    """
    kind = domain.kind
    if kind in (DomainKind.INTERVAL, DomainKind.INTEGER):
        return _ENTRYWISE
    if kind in _BY_KIND:
        return _BY_KIND[kind]
    layout = "vector" if len(shape) == 1 else "square" if shape[0] == shape[1] else "rectangle"
    return (_NONNEGATIVE if kind is DomainKind.NONNEGATIVE else _REAL)[layout]


def _entrywise(domain: Domain, shape: Shape, order: int, generator: torch.Generator) -> tuple[str, Tensor]:
    """Fill with values of the scalar ladder: one value, two of them by turns, or any of them."""
    ladder = torch.tensor(scalar_ladder(domain), dtype=torch.float64)
    kind, rank = _ENTRYWISE[order % len(_ENTRYWISE)], order // len(_ENTRYWISE)
    if kind == "zeros and ones":
        # The members that counterexamples are made of; a domain without 0 or 1 has none, and gets a constant instead.
        name = (
            ("identity", "zero", "ones")[rank % 3]
            if len(shape) == 2 and shape[0] == shape[1]
            else ("zero", "ones")[rank % 2]
        )
        value = BUILDERS[name](shape, generator)
        if all(within(domain, entry) for entry in value.unique().tolist()):
            return name, value
        kind = "constant"
    count = shape[0] * (shape[1] if len(shape) == 2 else 1)
    if kind == "constant":
        picks = torch.full((count,), rank % len(ladder))
    elif kind == "two values":
        picks = (rank + torch.arange(count) % 2) % len(ladder)
    else:
        picks = torch.randint(len(ladder), (count,), generator=generator)
    return f"{kind} {ladder[picks[0]].item():g}" if kind == "constant" and count else kind, ladder[picks].reshape(shape)


_GRID = (
    2.0**-12
)  # spacing of the factors of a semidefinite matrix: their products have 30 bits, so sums of them are exact


def random_family(domain: Domain, shape: Shape, generator: torch.Generator) -> tuple[str, Tensor]:
    """Draw a random member of a domain.

    Args:
        domain: The domain.
        shape: `(m,)` or `(N, d)`.
        generator: Source of randomness; it decides the family too.

    Returns:
        The family's name, and a float64 tensor; it lies in the domain, up to rounding where that is one of `ROUNDING`.

    Raises:
        ArgumentError: The domain has no member of this shape.

    Example:
        >>> name, A = random_family(Domain(DomainKind.SKEW), (3, 3), torch.Generator().manual_seed(0))
        >>> bool((A == -A.T).all())
        True
    """
    _check_shape(domain, shape)
    kind = domain.kind
    if kind in (DomainKind.INTERVAL, DomainKind.INTEGER, DomainKind.POSITIVE):
        return "random entries", random_entries(domain, shape, generator)
    if kind in _RANDOM:
        return _RANDOM[kind](shape, generator)
    names = list(REAL_FAMILIES)[: None if len(shape) == 2 else _VECTOR_FAMILIES]
    name = names[0] if choose(generator, 3) == 0 else names[choose(generator, len(names))]  # a third is plain Gaussian
    return name, _PROJECTIONS[kind](REAL_FAMILIES[name](shape, generator))


_PROJECTIONS: dict[DomainKind, Callable[[Tensor], Tensor]] = {
    DomainKind.REAL: torch.clone,
    DomainKind.NONNEGATIVE: torch.abs,
    DomainKind.SYMMETRIC: lambda value: (value + value.T) / 2,
    DomainKind.SKEW: lambda value: (value - value.T) / 2,
    DomainKind.DIAGONAL: lambda value: torch.diag(torch.diagonal(value)),
}


def _gaussian(shape: Shape, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _contraction(shape: Shape, generator: torch.Generator) -> Tensor:
    """A norm just below or above one, so that a hypothesis such as gamma norm(A) < 1 is tried."""
    value = _gaussian(shape, generator)
    norm = torch.linalg.matrix_norm(value, ord=2) if len(shape) == 2 else torch.linalg.vector_norm(value)
    return value * ((0.25 + torch.rand((), generator=generator, dtype=torch.float64)) / norm)


def _near_parallel(shape: Shape, generator: torch.Generator) -> Tensor:
    if shape[1] < 2:
        return draw("duplicates", _gaussian, shape=shape, generator=generator)
    return draw("near_parallel", 2.0 ** -(1 + choose(generator, 25)), shape=shape, generator=generator)


def _low_rank(shape: Shape, generator: torch.Generator) -> Tensor:
    rank = 1 + choose(generator, max(1, min(shape) - 1))
    return draw("low_rank", _gaussian, rank, shape=shape, generator=generator)


def _graded_spectrum(shape: Shape, generator: torch.Generator) -> Tensor:
    """Random singular vectors with singular values 1, c, c^2, ... for c = 2^-1 to 2^-8."""
    inner = min(shape)
    left = draw("orthonormal_rows", shape=(inner, shape[0]), generator=generator)
    right = draw("orthonormal_rows", shape=(inner, shape[1]), generator=generator)
    ratio = 1 + choose(generator, 8)
    return left.T @ (torch.exp2(-float(ratio) * torch.arange(inner, dtype=torch.float64)).unsqueeze(1) * right)


REAL_FAMILIES: dict[str, Builder] = {
    "gaussian": _gaussian,
    "contraction": _contraction,
    "gaussian over root of columns": lambda shape, generator: _gaussian(shape, generator) / math.sqrt(shape[-1]),
    "heavy tails": lambda shape, generator: _gaussian(shape, generator) ** 3,
    "sparse": lambda shape, generator: _gaussian(shape, generator) * (torch.rand(shape, generator=generator) < 0.3),
    "shifted": lambda shape, generator: _gaussian(shape, generator) + 2.0 * _gaussian((), generator),
    "graded spectrum": _graded_spectrum,
    "near-parallel rows": _near_parallel,
    "low rank": _low_rank,
}
_VECTOR_FAMILIES = 6  # the others need a matrix


def _orthogonal(shape: Shape, generator: torch.Generator) -> tuple[str, Tensor]:
    return "random orthogonal", draw("orthogonal", shape=shape, generator=generator)


def _unit_rows(shape: Shape, generator: torch.Generator) -> tuple[str, Tensor]:
    which = choose(generator, 4)
    if which == 0 and len(shape) == 2 and shape[1] >= 2:
        eps = 2.0 ** -(1 + choose(generator, 25))
        return "near-parallel unit rows", draw("near_parallel", eps, shape=shape, generator=generator)
    if which == 1 and len(shape) == 2:
        rows = draw("duplicates", lambda s, g: draw("sphere", shape=s, generator=g), shape=shape, generator=generator)
        return "duplicate unit rows", rows
    return "random unit rows", draw("sphere", shape=shape, generator=generator)


def _semidefinite(shape: Shape, generator: torch.Generator) -> tuple[str, Tensor]:
    """R'R for a Gaussian R rounded to a grid, so that the product has no rounding and is semidefinite exactly."""
    which = choose(generator, 3)
    rows = (2 * shape[0], shape[0], max(1, shape[0] // 2))[which]
    factor = torch.round(_gaussian((rows, shape[0]), generator) / math.sqrt(rows) / _GRID) * _GRID
    return ("well-conditioned R'R", "square R'R", "singular R'R")[which], factor.T @ factor


_RANDOM: dict[DomainKind, Callable[[Shape, torch.Generator], tuple[str, Tensor]]] = {
    DomainKind.ORTHOGONAL: _orthogonal,
    DomainKind.UNIT_ROWS: _unit_rows,
    DomainKind.PSD: _semidefinite,
}
