"""Builders of structured matrices and vectors, by the name that reports show: plain ones, and ones that break bounds.

Every entry of the plain ones is exact in binary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ntk_deq.falsify.domains import choose

Shape = tuple[int, ...]
Builder = Callable[[Shape, torch.Generator], Tensor]

TINY = (-4, -7, -10, -14, -20, -24, -27, -34, -40)
"""Exponents of two of perturbations, and of what scales lie apart: 1e-1 to 1e-12."""

_INSIDE = (0.5, 0.75, 0.875, 0.9375, 0.96875, 0.9921875)  # diagonals of blocks that are stable
_SHEAR = (1.0, 2.0, 4.0, 10.0, 32.0, 100.0, 1024.0)  # above them


def _whole(low: int, high: int) -> Builder:
    """Return the builder of random whole numbers from `low` to `high`."""
    return lambda shape, generator: torch.randint(low, high + 1, shape, generator=generator).to(torch.float64)


_integers = _whole(-3, 3)  # products of three matrices stay far below 2^53
_signs_and_zeros = _whole(-1, 1)


def _zeros(shape: Shape) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def _ones(shape: Shape) -> Tensor:
    return torch.ones(shape, dtype=torch.float64)


def _identity(shape: Shape) -> Tensor:
    return torch.eye(*shape, dtype=torch.float64)


def shift(shape: Shape) -> Tensor:
    """Return ones on the first superdiagonal: nilpotent, every eigenvalue zero, norm one."""
    return _ones(shape).triu(1).tril(1)


def corner(shape: Shape) -> Tensor:
    """Return a one at the end of the first column: what closes the cycle of the shift."""
    return _single(shape).flip(0)


def _single(shape: Shape) -> Tensor:
    value = _zeros(shape)
    value[(0,) * len(shape)] = 1
    return value


def _alternating(shape: Shape) -> Tensor:
    value = _ones(shape)
    value[1::2] = -1
    return value


def _plus_transpose(value: Tensor) -> Tensor:
    return value + value.T


def _less_transpose(value: Tensor) -> Tensor:
    return value - value.T


def _signs(shape: Shape, generator: torch.Generator) -> Tensor:
    return 2.0 * torch.randint(0, 2, shape, generator=generator).to(torch.float64) - 1


def _nonzero(shape: Shape, generator: torch.Generator) -> Tensor:
    """Integers from 1 to 2 with random signs."""
    return (1 + torch.randint(0, 2, shape, generator=generator)) * _signs(shape, generator)


def _rotation(shape: Shape) -> Tensor:
    """Blocks [[0, 1], [-1, 0]] along the diagonal; the last row and column zero where the size is odd."""
    value = _zeros(shape)
    for i in range(0, shape[0] - 1, 2):
        value[i, i + 1], value[i + 1, i] = 1, -1
    return value


def _diagonal(shape: Shape, entry: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the diagonal matrix whose entries are a function of their place."""
    value = _zeros(shape)
    torch.diagonal(value).copy_(entry(torch.arange(min(shape))))
    return value


def _permutation(shape: Shape, generator: torch.Generator) -> Tensor:
    """A permutation matrix, cut to the shape."""
    size = max(shape)
    return _identity((size, size))[torch.randperm(size, generator=generator)][: shape[0], : shape[1]]


def _half_blocks(shape: Shape) -> Tensor:
    """Blocks of order four with entries +-1/2 and orthonormal rows; the identity on what is left."""
    value = _identity(shape)
    block = 0.5 * torch.tensor([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], dtype=torch.float64)
    for i in range(0, shape[0] - 3, 4):
        value[i : i + 4, i : i + 4] = block
    return value


def _duplicate_rows(shape: Shape, generator: torch.Generator) -> Tensor:
    half = _integers(((shape[0] + 1) // 2, *shape[1:]), generator)
    return half.repeat_interleave(2, dim=0)[: shape[0]]


def _parallel_rows(shape: Shape, generator: torch.Generator) -> Tensor:
    """Rows in pairs, the second one the first times 2, -1 or -1/2."""
    value = _duplicate_rows(shape, generator)
    factors = torch.tensor([2.0, -1.0, -0.5], dtype=torch.float64)
    value[1::2] *= factors[torch.randint(3, (shape[0] // 2, 1), generator=generator)]
    return value


def _symmetric_signs(shape: Shape, generator: torch.Generator) -> Tensor:
    drawn = _signs_and_zeros(shape, generator).triu()
    return drawn + drawn.triu(1).T


def _square_outer(shape: Shape, generator: torch.Generator) -> Tensor:
    vector = _nonzero(shape[:1], generator)
    return torch.outer(vector, vector)


def _gram(drawn: Tensor) -> Tensor:
    return drawn.T @ drawn


def _unit_rows(shape: Shape, place: Callable[[int], Tensor]) -> Tensor:
    """Return rows, or one vector, that are unit vectors, numbered modulo their length."""
    rows = _identity((shape[-1], shape[-1]))[place(shape[0] if len(shape) == 2 else 1) % shape[-1]]
    return rows if len(shape) == 2 else rows[0]


def _equal_unit_rows(shape: Shape) -> Tensor:
    return _unit_rows(shape, lambda count: torch.zeros(count, dtype=torch.int64))


def _opposite_unit_rows(shape: Shape) -> Tensor:
    value = _equal_unit_rows(shape)
    return -value if len(shape) == 1 else value * _alternating((shape[0], 1))


def _signed_unit_rows(shape: Shape, generator: torch.Generator) -> Tensor:
    """Each row a random unit vector with a random sign."""
    flips = _signs((*shape[:-1], 1), generator)
    return _unit_rows(shape, lambda count: torch.randint(shape[-1], (count,), generator=generator)) * flips


def _unit_rows_halves(shape: Shape, generator: torch.Generator) -> Tensor:
    """Rows with four entries +-1/2; unit vectors where a row is shorter than four."""
    if shape[-1] < 4:
        return _signed_unit_rows(shape, generator)
    value = _zeros(shape)
    value[..., :4] = _signs((*shape[:-1], 4), generator) / 2
    return value


BUILDERS: dict[str, Builder] = {
    "zero": lambda shape, generator: _zeros(shape),
    "ones": lambda shape, generator: _ones(shape),
    "minus ones": lambda shape, generator: -_ones(shape),
    "identity": lambda shape, generator: _identity(shape),
    "-identity": lambda shape, generator: -_identity(shape),
    "integers": _integers,
    "nonnegative integers": lambda shape, generator: _integers(shape, generator).abs(),
    "positive integers": lambda shape, generator: 1 + _integers(shape, generator).abs(),
    "signs -1, 0, 1": _signs_and_zeros,
    "powers of two": lambda shape, generator: torch.exp2(_whole(-10, 10)(shape, generator)),
    "first unit vector": lambda shape, generator: _single(shape),
    "last unit vector": lambda shape, generator: _single(shape).flip(0),
    "alternating signs": lambda shape, generator: _alternating(shape),
    "shift": lambda shape, generator: shift(shape),
    "nilpotent": lambda shape, generator: _integers(shape, generator).triu(1),
    "rank one": lambda shape, generator: torch.outer(_nonzero(shape[:1], generator), _nonzero(shape[1:], generator)),
    "skew": lambda shape, generator: _less_transpose(_integers(shape, generator).triu(1)),
    "rotation": lambda shape, generator: _rotation(shape),
    # 1, -2, 3, -1, 2, -3, ...: both signs, repeated sizes
    "diagonal of mixed signs": lambda shape, generator: _diagonal(shape, lambda i: (i % 3 + 1) * (1 - 2 * (i % 2))),
    "nonnegative diagonal": lambda shape, generator: _diagonal(shape, lambda i: i),  # semidefinite and singular
    # 1, 2^-10, 2^-20, ..., down to 2^-40: badly conditioned
    "graded diagonal": lambda shape, generator: _diagonal(shape, lambda i: torch.exp2(-10.0 * i.clamp_max(4))),
    "permutation": _permutation,
    "signed permutation": lambda shape, generator: _signs((shape[0], 1), generator) * _permutation(shape, generator),
    "reversal": lambda shape, generator: _identity(shape).flip(0),
    "blocks of halves": lambda shape, generator: _half_blocks(shape),
    "duplicate rows": _duplicate_rows,
    "parallel rows": _parallel_rows,
    "symmetric integers": lambda shape, generator: _plus_transpose(_integers(shape, generator)),
    "symmetric signs": _symmetric_signs,
    "signed v v'": lambda shape, generator: _square_outer(shape, generator) * (1 - 2 * choose(generator, 2)),
    "v v'": _square_outer,
    # One eigenvalue n - 1, all others -1
    "ones minus identity": lambda shape, generator: _ones(shape) - _identity(shape),
    "skew signs": lambda shape, generator: _less_transpose(_signs_and_zeros(shape, generator).triu(1)),
    "shift minus its transpose": lambda shape, generator: _less_transpose(shift(shape)),
    "R'R": lambda shape, generator: _gram(_integers(shape, generator)),
    "singular R'R": lambda shape, generator: _gram(_integers(((shape[0] + 1) // 2, shape[1]), generator)),
    # Semidefinite with a cluster of tiny eigenvalues
    "nearly singular": lambda shape, generator: _ones(shape) + 2.0**-20 * _identity(shape),
    "unit vectors in turn": lambda shape, generator: _unit_rows(shape, torch.arange),
    "equal unit vectors": lambda shape, generator: _equal_unit_rows(shape),
    "opposite unit vectors": lambda shape, generator: _opposite_unit_rows(shape),
    "signed unit vectors": _signed_unit_rows,
    "rows of halves": _unit_rows_halves,
}
"""Each builder takes a shape and a generator, from which it takes integers only."""


def _pick(values: Sequence[float], generator: torch.Generator) -> float:
    return values[choose(generator, len(values))]


def _hadamard(shape: Shape) -> Tensor:
    """A corner of a Hadamard matrix (Sylvester 1867): H[i, j] = (-1)^(ones that i and j share in binary)."""
    signs = [[(-1.0) ** (i & j).bit_count() for j in range(shape[1])] for i in range(shape[0])]
    return torch.tensor(signs, dtype=torch.float64)


def _jordan(shape: Shape, generator: torch.Generator) -> Tensor:
    return _pick(_INSIDE, generator) * _identity(shape) + _pick(_SHEAR, generator) * shift(shape)


def _triangle(shape: Shape, generator: torch.Generator) -> Tensor:
    """Stable, and full above the diagonal: (1, -s, -s, ...) as in Kahan's matrix."""
    sign = _pick((-1.0, 1.0), generator)
    return _pick(_INSIDE, generator) * _identity(shape) + sign * _pick(_SHEAR, generator) * _ones(shape).triu(1)


def _graded(shape: Shape, generator: torch.Generator) -> Tensor:
    """Rows and columns of whole numbers, scaled by powers of two apart."""
    inner = _integers(shape, generator)
    step = -_pick((1, 2, 4, 7, 10), generator)
    rows = torch.exp2(step * torch.arange(shape[0], dtype=torch.float64).clamp_max(4)).unsqueeze(1)
    columns = torch.exp2(step * torch.arange(shape[1], dtype=torch.float64).clamp_max(4))
    return inner * (rows, columns, rows * columns)[choose(generator, 3)]


def _one_row(shape: Shape, generator: torch.Generator) -> Tensor:
    value = _zeros(shape)
    value[choose(generator, shape[0])] = _signs((shape[1],), generator)
    return value.mT.contiguous() if shape[0] == shape[1] and choose(generator, 2) else value


def _first_column(shape: Shape) -> Tensor:
    value = _zeros(shape)
    value[:, 0] = 1.0
    return value


def _dominated(shape: Shape, generator: torch.Generator) -> Tensor:
    """The identity with a first column (1 - c, -c, ..., -c): every row dominant by 1 - c."""
    share = _pick(_INSIDE, generator)
    value = _identity(shape)
    value[:, 0] = -share
    value[0, 0] = 1 - share
    return value


def _single_entry(shape: Shape, generator: torch.Generator) -> Tensor:
    value = _zeros(shape)
    value[choose(generator, shape[0]), choose(generator, shape[1])] = 1.0
    return value


def _idempotent(shape: Shape, generator: torch.Generator) -> Tensor:
    """An oblique projection of rank one, e1 (e1 + s e2)'."""
    value = _single(shape)
    value[0, -1] = 1.0 if shape[1] == 1 else _pick(_SHEAR, generator)
    return value


def _turn(shape: Shape, generator: torch.Generator) -> Tensor:
    """A multiple of the identity plus a skew matrix that outweighs it, or the other way round."""
    value = _signs(shape, generator).triu(1)
    skew = _less_transpose(value) if shape[0] == shape[1] else value
    return _pick((0.0, 0.0625, 0.5, 1.0), generator) * _identity(shape) + _pick((0.5, 1.0, 4.0, 10.0), generator) * skew


WILD: dict[str, Builder] = {
    "Hadamard": lambda shape, generator: _hadamard(shape),
    "signs": _signs,
    # n times the reflection at the vector of ones
    "reflection": lambda shape, generator: min(shape) * _identity(shape) - 2.0 * _ones(shape),
    "Jordan block": _jordan,
    "sheared triangle": _triangle,
    "shift with a tiny corner": lambda shape, generator: shift(shape) + 2.0 ** _pick(TINY, generator) * corner(shape),
    "shift": lambda shape, generator: shift(shape),
    # Within the contraction limit of a network without a scale of its own
    "shift within one": lambda shape, generator: _INSIDE[-2] * shift(shape),
    "cycle": lambda shape, generator: shift(shape) + corner(shape),
    "closing corner": lambda shape, generator: corner(shape),
    "graded": _graded,
    "one row": _one_row,
    "first column of ones": lambda shape, generator: _first_column(shape),
    "dominated column": _dominated,
    "one entry": _single_entry,
    "oblique projection": _idempotent,
    "skew and identity": _turn,
}
"""Matrices at which bounds fail: far from normal, just inside a limit, of signs, reflections, graded by scales."""
