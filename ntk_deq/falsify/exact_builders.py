"""Builders of structured matrices and vectors, by the name that reports show; every entry is exact in binary."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ntk_deq.falsify.domains import choose

Shape = tuple[int, ...]
Builder = Callable[[Shape, torch.Generator], Tensor]

BUILDERS: dict[str, Builder] = {}
"""Each builder takes a shape and a generator, from which it takes integers only."""

_INTEGER_BOUND = 3  # of random integer entries: products of three matrices stay far below 2^53


def _family(name: str) -> Callable[[Builder], Builder]:
    """Enter a builder in the table under its name."""

    def enter(builder: Builder) -> Builder:
        BUILDERS[name] = builder
        return builder

    return enter


@_family("zero")
def _zeros(shape: Shape, generator: torch.Generator) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


@_family("ones")
def _ones(shape: Shape, generator: torch.Generator) -> Tensor:
    return torch.ones(shape, dtype=torch.float64)


@_family("minus ones")
def _minus_ones(shape: Shape, generator: torch.Generator) -> Tensor:
    return -_ones(shape, generator)


@_family("identity")
def _identity(shape: Shape, generator: torch.Generator) -> Tensor:
    return torch.eye(*shape, dtype=torch.float64)


@_family("-identity")
def _minus_identity(shape: Shape, generator: torch.Generator) -> Tensor:
    return -_identity(shape, generator)


@_family("integers")
def _integers(shape: Shape, generator: torch.Generator) -> Tensor:
    return torch.randint(-_INTEGER_BOUND, _INTEGER_BOUND + 1, shape, generator=generator).to(torch.float64)


@_family("nonnegative integers")
def _nonnegative_integers(shape: Shape, generator: torch.Generator) -> Tensor:
    return _integers(shape, generator).abs()


@_family("positive integers")
def _positive_integers(shape: Shape, generator: torch.Generator) -> Tensor:
    return 1 + _nonnegative_integers(shape, generator)


@_family("signs -1, 0, 1")
def _signs(shape: Shape, generator: torch.Generator) -> Tensor:
    return torch.randint(-1, 2, shape, generator=generator).to(torch.float64)


@_family("powers of two")
def _powers_of_two(shape: Shape, generator: torch.Generator) -> Tensor:
    return torch.exp2(torch.randint(-10, 11, shape, generator=generator).to(torch.float64))


@_family("first unit vector")
def _single(shape: Shape, generator: torch.Generator) -> Tensor:
    value = _zeros(shape, generator)
    value[(0,) * len(shape)] = 1
    return value


@_family("last unit vector")
def _last_single(shape: Shape, generator: torch.Generator) -> Tensor:
    return _single(shape, generator).flip(0)


@_family("alternating signs")
def _alternating(shape: Shape, generator: torch.Generator) -> Tensor:
    value = _ones(shape, generator)
    value[1::2] = -1
    return value


@_family("shift")
def _shift(shape: Shape, generator: torch.Generator) -> Tensor:
    """Ones on the first superdiagonal: nilpotent, every eigenvalue zero, norm one."""
    return _ones(shape, generator).triu(1).tril(1)


@_family("nilpotent")
def _strictly_upper(shape: Shape, generator: torch.Generator) -> Tensor:
    return _integers(shape, generator).triu(1)


@_family("rank one")
def _outer(shape: Shape, generator: torch.Generator) -> Tensor:
    return torch.outer(_nonzero((shape[0],), generator), _nonzero((shape[1],), generator))


def _nonzero(shape: Shape, generator: torch.Generator) -> Tensor:
    """Integers from 1 to 2 with random signs."""
    size = 1 + torch.randint(0, 2, shape, generator=generator)
    return (size * (2 * torch.randint(0, 2, shape, generator=generator) - 1)).to(torch.float64)


@_family("skew")
def _skew(shape: Shape, generator: torch.Generator) -> Tensor:
    upper = _strictly_upper(shape, generator)
    return upper - upper.T


@_family("rotation")
def _rotation(shape: Shape, generator: torch.Generator) -> Tensor:
    """Blocks [[0, 1], [-1, 0]] along the diagonal; the last row and column zero where the size is odd."""
    value = _zeros(shape, generator)
    for i in range(0, shape[0] - 1, 2):
        value[i, i + 1], value[i + 1, i] = 1, -1
    return value


@_family("diagonal of mixed signs")
def _diagonal_mixed(shape: Shape, generator: torch.Generator) -> Tensor:
    """Diagonal 1, -2, 3, -1, 2, -3, ...: both signs, repeated sizes."""
    count = torch.arange(min(shape))
    return _on_diagonal(shape, ((count % 3) + 1) * (1 - 2 * (count % 2)))


@_family("nonnegative diagonal")
def _diagonal_nonnegative(shape: Shape, generator: torch.Generator) -> Tensor:
    """Diagonal 0, 1, 2, ...: semidefinite and singular."""
    return _on_diagonal(shape, torch.arange(min(shape)))


@_family("graded diagonal")
def _diagonal_graded(shape: Shape, generator: torch.Generator) -> Tensor:
    """Diagonal 1, 2^-10, 2^-20, ..., down to 2^-40: badly conditioned."""
    return _on_diagonal(shape, torch.exp2(-10.0 * torch.arange(min(shape)).clamp_max(4)))


def _on_diagonal(shape: Shape, entries: Tensor) -> Tensor:
    value = torch.zeros(shape, dtype=torch.float64)
    torch.diagonal(value).copy_(entries)
    return value


@_family("permutation")
def _permutation(shape: Shape, generator: torch.Generator) -> Tensor:
    """A permutation matrix, cut to the shape."""
    size = max(shape)
    return torch.eye(size, dtype=torch.float64)[torch.randperm(size, generator=generator)][: shape[0], : shape[1]]


@_family("signed permutation")
def _signed_permutation(shape: Shape, generator: torch.Generator) -> Tensor:
    flips = 2 * torch.randint(0, 2, (shape[0], 1), generator=generator) - 1
    return _permutation(shape, generator) * flips


@_family("reversal")
def _reversal(shape: Shape, generator: torch.Generator) -> Tensor:
    return _identity(shape, generator).flip(0)


@_family("blocks of halves")
def _half_blocks(shape: Shape, generator: torch.Generator) -> Tensor:
    """Blocks of order four with entries +-1/2 and orthonormal rows; the identity on what is left."""
    value = _identity(shape, generator)
    block = 0.5 * torch.tensor([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], dtype=torch.float64)
    for i in range(0, shape[0] - 3, 4):
        value[i : i + 4, i : i + 4] = block
    return value


@_family("duplicate rows")
def _duplicate_rows(shape: Shape, generator: torch.Generator) -> Tensor:
    half = _integers(((shape[0] + 1) // 2, *shape[1:]), generator)
    return half.repeat_interleave(2, dim=0)[: shape[0]]


@_family("parallel rows")
def _parallel_rows(shape: Shape, generator: torch.Generator) -> Tensor:
    """Rows in pairs, the second one the first times 2, -1 or -1/2."""
    value = _duplicate_rows(shape, generator)
    factors = torch.tensor([2.0, -1.0, -0.5], dtype=torch.float64)
    pairs = shape[0] // 2
    value[1::2] *= factors[torch.randint(3, (pairs, 1), generator=generator)]
    return value


@_family("symmetric integers")
def _symmetric_integers(shape: Shape, generator: torch.Generator) -> Tensor:
    drawn = _integers(shape, generator)
    return drawn + drawn.T


@_family("symmetric signs")
def _symmetric_signs(shape: Shape, generator: torch.Generator) -> Tensor:
    drawn = _signs(shape, generator).triu()
    return drawn + drawn.triu(1).T


@_family("signed v v'")
def _symmetric_outer(shape: Shape, generator: torch.Generator) -> Tensor:
    """Give v v' or -v v'."""
    return _square_outer(shape, generator) * (1 - 2 * choose(generator, 2))


@_family("v v'")
def _square_outer(shape: Shape, generator: torch.Generator) -> Tensor:
    vector = _nonzero(shape[:1], generator)
    return torch.outer(vector, vector)


@_family("ones minus identity")
def _hollow(shape: Shape, generator: torch.Generator) -> Tensor:
    """Ones off the diagonal: one eigenvalue n - 1, all others -1."""
    return _ones(shape, generator) - _identity(shape, generator)


@_family("skew signs")
def _skew_signs(shape: Shape, generator: torch.Generator) -> Tensor:
    upper = _signs(shape, generator).triu(1)
    return upper - upper.T


@_family("shift minus its transpose")
def _skew_single(shape: Shape, generator: torch.Generator) -> Tensor:
    """The shift minus its transpose."""
    upper = _shift(shape, generator)
    return upper - upper.T


@_family("R'R")
def _gram(shape: Shape, generator: torch.Generator) -> Tensor:
    drawn = _integers(shape, generator)
    return drawn.T @ drawn


@_family("singular R'R")
def _singular_gram(shape: Shape, generator: torch.Generator) -> Tensor:
    """R'R for an R with half as many rows as columns."""
    drawn = _integers(((shape[0] + 1) // 2, shape[1]), generator)
    return drawn.T @ drawn


@_family("nearly singular")
def _nearly_singular(shape: Shape, generator: torch.Generator) -> Tensor:
    """Ones plus 2^-20 times the identity: semidefinite with a cluster of tiny eigenvalues."""
    return _ones(shape, generator) + 2.0**-20 * _identity(shape, generator)


@_family("unit vectors in turn")
def _unit_rows_in_turn(shape: Shape, generator: torch.Generator) -> Tensor:
    """Row i is the unit vector number i modulo the length."""
    return _unit_rows(shape, torch.arange(_row_count(shape)))


@_family("equal unit vectors")
def _unit_rows_equal(shape: Shape, generator: torch.Generator) -> Tensor:
    return _unit_rows(shape, torch.zeros(_row_count(shape), dtype=torch.int64))


@_family("opposite unit vectors")
def _unit_rows_opposite(shape: Shape, generator: torch.Generator) -> Tensor:
    value = _unit_rows_equal(shape, generator)
    if len(shape) == 1:
        return -value
    value[1::2] *= -1
    return value


@_family("signed unit vectors")
def _unit_rows_signed(shape: Shape, generator: torch.Generator) -> Tensor:
    """Each row a random unit vector with a random sign."""
    count = _row_count(shape)
    flips = 2 * torch.randint(0, 2, (count,), generator=generator) - 1
    rows = _unit_rows(shape, torch.randint(shape[-1], (count,), generator=generator))
    return rows * (flips if len(shape) == 1 else flips.unsqueeze(1))


@_family("rows of halves")
def _unit_rows_halves(shape: Shape, generator: torch.Generator) -> Tensor:
    """Rows with four entries +-1/2; unit vectors where a row is shorter than four."""
    if shape[-1] < 4:
        return _unit_rows_signed(shape, generator)
    value = _zeros(shape, generator)
    head = (*shape[:-1], 4)
    value[..., :4] = torch.randint(0, 2, head, generator=generator).to(torch.float64) - 0.5
    return value


def _row_count(shape: Shape) -> int:
    return shape[0] if len(shape) == 2 else 1


def _unit_rows(shape: Shape, places: Tensor) -> Tensor:
    rows = torch.eye(shape[-1], dtype=torch.float64)[places % shape[-1]]
    return rows if len(shape) == 2 else rows[0]
