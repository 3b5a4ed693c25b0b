"""Structured matrices and vectors whose entries are exact in binary: the boundary cases that random draws never hit."""

from __future__ import annotations

import torch
from torch import Tensor

from ntk_deq.claims.claim import Domain, DomainKind
from ntk_deq.errors import ArgumentError
from ntk_deq.falsify.domains import SQUARE, within
from ntk_deq.falsify.exact_builders import BUILDERS, Shape
from ntk_deq.falsify.scalars import scalar_ladder

_ENTRYWISE = ("constant", "two values", "mixed values", "zeros and ones")

_REAL = {
    "square": (
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
    ),
    "rectangle": (
        "identity",
        "zero",
        "minus ones",
        "ones",
        "nonnegative integers",
        "first unit vector",
        "rank one",
        "parallel rows",
        "diagonal of mixed signs",
        "permutation",
        "signs -1, 0, 1",
        "duplicate rows",
        "integers",
    ),
    "vector": (
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
    ),
}

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
    if domain.kind in SQUARE and (len(shape) != 2 or shape[0] != shape[1]):
        raise ArgumentError(f"The domain `{domain.kind.value}` is a set of square matrices. Got shape {shape}.")
    if domain.kind in (DomainKind.INTERVAL, DomainKind.INTEGER):
        return _entrywise(domain, shape, order, generator)
    names = family_names(domain, shape)
    name = names[order % len(names)]
    value = BUILDERS[name](shape, generator)
    return name, value.abs() if domain.kind is DomainKind.NONNEGATIVE else value


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
