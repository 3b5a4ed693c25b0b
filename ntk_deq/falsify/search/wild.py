"""Matrices at which bounds fail: far from normal, just inside a limit, of signs, reflections, graded by scales.

Also themes, which several variables share: one simple family for all, a matrix and the tiny corner that closes its
cycle, equal rows with alternating targets, a unit that is off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from ntk_deq.evaluation.instance import Instance
from ntk_deq.falsify.domains import choose, contains, is_cone, within
from ntk_deq.falsify.families import exact_family
from ntk_deq.falsify.scalars import scalar_ladder
from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.types import Size

_TINY = (-4, -7, -10, -14, -20, -24, -27, -34, -40)
"""Exponents of two of perturbations, and of what scales lie apart: 1e-1 to 1e-12."""

_INSIDE = (0.5, 0.75, 0.875, 0.9375, 0.96875, 0.9921875)  # diagonals of blocks that are stable
_SHEAR = (1.0, 2.0, 4.0, 10.0, 32.0, 100.0, 1024.0)  # above them
_PAIRS = 4  # of variables that differ by little
_FAMILIES = 13  # at least as many as `exact_family` has

_BUILT = frozenset(
    {DomainKind.REAL, DomainKind.NONNEGATIVE, DomainKind.SYMMETRIC, DomainKind.SKEW, DomainKind.DIAGONAL}
)
"""Domains that `wild_member` leads into by construction."""

Shape = tuple[int, ...]
Builder = Callable[[Shape, torch.Generator], Tensor]


def _pick(values: tuple[float, ...], generator: torch.Generator) -> float:
    return values[choose(generator, len(values))]


def _eye(shape: Shape) -> Tensor:
    return torch.eye(*shape, dtype=torch.float64)


def _ones(shape: Shape) -> Tensor:
    return torch.ones(shape, dtype=torch.float64)


def _shift(shape: Shape) -> Tensor:
    return _ones(shape).triu(1).tril(1)


def _corner(shape: Shape) -> Tensor:
    """One at the end of the first column: what closes the cycle of the shift."""
    value = torch.zeros(shape, dtype=torch.float64)
    value[-1, 0] = 1.0
    return value


def _hadamard(shape: Shape, generator: torch.Generator) -> Tensor:
    """A corner of a Hadamard matrix (Sylvester 1867): H[i, j] = (-1)^(ones that i and j share in binary)."""
    signs = [[(-1.0) ** (i & j).bit_count() for j in range(shape[1])] for i in range(shape[0])]
    return torch.tensor(signs, dtype=torch.float64)


def _signs(shape: Shape, generator: torch.Generator) -> Tensor:
    return 2.0 * torch.randint(0, 2, shape, generator=generator).to(torch.float64) - 1


def _reflection(shape: Shape, generator: torch.Generator) -> Tensor:
    """Give n I - 2 J, n times the reflection at the vector of ones."""
    return min(shape) * _eye(shape) - 2.0 * _ones(shape)


def _jordan(shape: Shape, generator: torch.Generator) -> Tensor:
    return _pick(_INSIDE, generator) * _eye(shape) + _pick(_SHEAR, generator) * _shift(shape)


def _triangle(shape: Shape, generator: torch.Generator) -> Tensor:
    """Stable, and full above the diagonal: (1, -s, -s, ...) as in Kahan's matrix."""
    sign = (-1.0, 1.0)[choose(generator, 2)]
    return _pick(_INSIDE, generator) * _eye(shape) + sign * _pick(_SHEAR, generator) * _ones(shape).triu(1)


def _nearly_nilpotent(shape: Shape, generator: torch.Generator) -> Tensor:
    return _shift(shape) + 2.0 ** _TINY[choose(generator, len(_TINY))] * _corner(shape)


def _cycle(shape: Shape, generator: torch.Generator) -> Tensor:
    return _shift(shape) + _corner(shape)


def _plain_shift(shape: Shape, generator: torch.Generator) -> Tensor:
    return _shift(shape)


def _inner_shift(shape: Shape, generator: torch.Generator) -> Tensor:
    """A shift of norm just below one: within the contraction limit of a network without a scale of its own."""
    return _INSIDE[-2] * _shift(shape)


def _closing(shape: Shape, generator: torch.Generator) -> Tensor:
    return _corner(shape)


def _graded(shape: Shape, generator: torch.Generator) -> Tensor:
    """Rows and columns of whole numbers, scaled by powers of two apart."""
    inner = torch.randint(-3, 4, shape, generator=generator).to(torch.float64)
    step = -float((1, 2, 4, 7, 10)[choose(generator, 5)])
    rows = torch.exp2(step * torch.arange(shape[0], dtype=torch.float64).clamp_max(4)).unsqueeze(1)
    columns = torch.exp2(step * torch.arange(shape[1], dtype=torch.float64).clamp_max(4))
    return inner * (rows, columns, rows * columns)[choose(generator, 3)]


def _one_row(shape: Shape, generator: torch.Generator) -> Tensor:
    value = torch.zeros(shape, dtype=torch.float64)
    value[choose(generator, shape[0])] = _signs((shape[1],), generator)
    return value.mT.contiguous() if shape[0] == shape[1] and choose(generator, 2) else value


def _first_column(shape: Shape, generator: torch.Generator) -> Tensor:
    value = torch.zeros(shape, dtype=torch.float64)
    value[:, 0] = 1.0
    return value


def _dominated(shape: Shape, generator: torch.Generator) -> Tensor:
    """The identity with a first column (1 - c, -c, ..., -c): every row dominant by 1 - c."""
    share = _pick(_INSIDE, generator)
    value = _eye(shape)
    value[:, 0] = -share
    value[0, 0] = 1 - share
    return value


def _single_entry(shape: Shape, generator: torch.Generator) -> Tensor:
    value = torch.zeros(shape, dtype=torch.float64)
    value[choose(generator, shape[0]), choose(generator, shape[1])] = 1.0
    return value


def _idempotent(shape: Shape, generator: torch.Generator) -> Tensor:
    """An oblique projection of rank one, e1 (e1 + s e2)'."""
    value = torch.zeros(shape, dtype=torch.float64)
    value[0, 0] = 1.0
    value[0, -1] = 1.0 if shape[1] == 1 else _pick(_SHEAR, generator)
    return value


def _turn(shape: Shape, generator: torch.Generator) -> Tensor:
    """A multiple of the identity plus a skew matrix that outweighs it, or the other way round."""
    value = _signs(shape, generator).triu(1)
    skew = value - value.mT if shape[0] == shape[1] else value
    return _pick((0.0, 0.0625, 0.5, 1.0), generator) * _eye(shape) + _pick((0.5, 1.0, 4.0, 10.0), generator) * skew


BUILDERS: dict[str, Builder] = {
    "Hadamard": _hadamard,
    "signs": _signs,
    "reflection": _reflection,
    "Jordan block": _jordan,
    "sheared triangle": _triangle,
    "shift with a tiny corner": _nearly_nilpotent,
    "shift": _plain_shift,
    "shift within one": _inner_shift,
    "cycle": _cycle,
    "closing corner": _closing,
    "graded": _graded,
    "one row": _one_row,
    "first column of ones": _first_column,
    "dominated column": _dominated,
    "one entry": _single_entry,
    "oblique projection": _idempotent,
    "skew and identity": _turn,
}


_AMONG_ONES = (
    "Hadamard",
    "Jordan block",
    "sheared triangle",
    "shift",
    "shift within one",
    "cycle",
    "skew and identity",
)


def wild_member(domain: Domain, shape: Shape, name: str, generator: torch.Generator) -> Tensor | None:
    """Build a member of a domain after a wild matrix; None where the domain has none like it.

    Args:
        domain: The domain.
        shape: `(m,)` or `(N, d)`.
        name: One of `BUILDERS`.
        generator: Source of randomness.
    """
    value = BUILDERS[name](shape if len(shape) == 2 else (shape[0], 1), generator)
    value = value if len(shape) == 2 else value[:, 0]
    match domain.kind:
        case DomainKind.NONNEGATIVE:
            value = value.abs()
        case DomainKind.POSITIVE:
            value = value.abs() + (value == 0) * 2.0**-20
        case DomainKind.SYMMETRIC:
            value = (value + value.mT) / 2
        case DomainKind.SKEW:
            value = value - value.mT
        case DomainKind.DIAGONAL:
            value = torch.diag(value.diagonal())
        case DomainKind.PSD:
            value = value.mT @ value
        case DomainKind.INTERVAL | DomainKind.INTEGER:
            value = _at_ends(domain, value)
    return value + 0.0 if domain.kind in _BUILT or contains(domain, value) else None


def _at_ends(domain: Domain, value: Tensor) -> Tensor:
    """Return entries of a bounded domain by the sign of others: its largest, its smallest, or zero or a middle."""
    ladder = scalar_ladder(domain)
    middle = 0.0 if 0.0 in ladder else ladder[0]
    return torch.where(value > 0, max(ladder), torch.where(value < 0, min(ladder), middle))


def wild_instances(
    base: Instance, free: Mapping[str, Free], count: int, generator: torch.Generator
) -> Iterator[Instance]:
    """Yield instances of the base's sizes: themes, a random choice of them where there are many, and then mixtures.

    Themes are the shift with its closing corner, one family for all variables, the base with one wild variable, and two
    variables that differ by little.

    Args:
        base: A simple instance; what is not free keeps its values.
        free: The variables.
        count: How many at most.
        generator: Source of randomness.
    """
    tensors = {n: v for n, v in free.items() if n in base.values and base.values[n].ndim > 0}
    if not tensors:
        return
    themes = [*_closed(base, tensors), *_same(base, tensors, generator), *_one_wild(base, free, tensors, generator)]
    themes += _perturbed(base, tensors, generator)
    chosen = torch.randperm(len(themes), generator=generator)[: max(1, 3 * count // 4)].sort().values.tolist()
    yield from (themes[place] for place in chosen)
    for _ in range(count - len(chosen)):
        yield _mixed(base, free, generator)


def _with(base: Instance, values: Mapping[str, Tensor], words: str) -> Instance:
    return Instance(base.setting, words, base.sizes, {**base.values, **values}, base.index)


def _same(base: Instance, tensors: Mapping[str, Free], generator: torch.Generator) -> Iterator[Instance]:
    """Every variable of the same family: wild ones, then simple ones."""
    shapes = {name: tuple(base.values[name].shape) for name in tensors}
    for name in BUILDERS:
        made = {n: wild_member(v.domain, shapes[n], name, generator) for n, v in tensors.items()}
        values = {n: value for n, value in made.items() if value is not None}
        if values:
            yield _with(base, values, f"{', '.join(values)} = {name}")
    for order in range(_FAMILIES):
        members = {n: exact_family(v.domain, shapes[n], order, generator) for n, v in tensors.items()}
        words = ", ".join(f"{name} = {family}" for name, (family, _) in members.items())
        yield _with(base, {name: value for name, (_, value) in members.items()}, words)


def _closed(base: Instance, tensors: Mapping[str, Free]) -> Iterator[Instance]:
    """The shift for one variable, and for another one its closing corner times a tiny number; and their sums."""
    square = [
        name
        for name, variable in tensors.items()
        if variable.domain.kind is DomainKind.REAL and base.values[name].ndim == 2 and len(base.values[name]) > 1
    ]
    for first in square:
        for second in square:
            if first != second and base.values[first].shape == base.values[second].shape:
                shape = tuple(base.values[first].shape)
                for exponent in (-10, -24, -34):
                    values = {first: _shift(shape), second: 2.0**exponent * _corner(shape)}
                    yield _with(base, values, f"{first} = shift, {second} = its closing corner times 2^{exponent}")


def _perturbed(base: Instance, tensors: Mapping[str, Free], generator: torch.Generator) -> Iterator[Instance]:
    """One variable of a simple family, and another one the same but for a small multiple of a wild or random matrix."""
    alike: dict[tuple[Shape, Domain], list[str]] = {}
    for name, variable in tensors.items():
        alike.setdefault((tuple(base.values[name].shape), variable.domain), []).append(name)
    for (shape, domain), names in alike.items():
        pairs = [(first, second) for first in names for second in names if first != second]
        for first, second in pairs[:_PAIRS]:
            for order in range(_FAMILIES):
                family, value = exact_family(domain, shape, order, generator)
                way = list(BUILDERS)[choose(generator, len(BUILDERS))]
                change = wild_member(domain, shape, way, generator) if choose(generator, 2) else None
                if change is None:
                    way, change = "a random one", torch.randn(shape, generator=generator, dtype=torch.float64)
                exponent = -choose(generator, 12)
                other = value + 2.0**exponent * change
                if contains(domain, other):
                    words = f"{first} = {family}, {second} = the same plus 2^{exponent} times {way}"
                    yield _with(base, {first: value, second: other}, words)


def _one_wild(
    base: Instance, free: Mapping[str, Free], tensors: Mapping[str, Free], generator: torch.Generator
) -> Iterator[Instance]:
    """One variable wild and the others as in the base, or of ones, and scalars zero: no constant leaves room then."""
    scalars = [name for name in free if name in base.values and base.values[name].ndim == 0]
    zero = torch.zeros((), dtype=torch.float64)
    none = {name: zero for name in scalars if within(free[name].domain, 0.0)}
    ones = {n: torch.ones_like(base.values[n]) for n in tensors}
    ones = {n: value for n, value in ones.items() if contains(tensors[n].domain, value)}
    for name, variable in tensors.items():
        for family in BUILDERS:
            member = wild_member(variable.domain, tuple(base.values[name].shape), family, generator)
            if member is not None:
                yield _with(base, {**none, name: member}, f"the plainest, but {name} = {family}")
                if family in _AMONG_ONES and len(tensors) > 1:
                    yield _with(base, {**ones, **none, name: member}, f"all ones, but {name} = {family}")


def _mixed(base: Instance, free: Mapping[str, Free], generator: torch.Generator) -> Instance:
    """Every variable of its own family, some scaled far up or down; now and then with equal rows or a dead unit."""
    values: dict[str, Tensor] = {}
    words = []
    names = list(BUILDERS)
    for name, variable in free.items():
        if name not in base.values:
            continue
        shape = tuple(base.values[name].shape)
        if not shape:
            ladder = scalar_ladder(variable.domain)
            values[name] = torch.tensor(ladder[choose(generator, min(12, len(ladder)))], dtype=torch.float64)
            words.append(f"{name} = {values[name].item():g}")
            continue
        family = names[choose(generator, len(names))]
        member = wild_member(variable.domain, shape, family, generator) if choose(generator, 2) else None
        if member is None:
            family, member = exact_family(variable.domain, shape, choose(generator, _FAMILIES), generator)
        if is_cone(variable.domain) and choose(generator, 3) == 0:
            exponent = _TINY[choose(generator, len(_TINY))] * (1 if choose(generator, 3) else -1) // 2
            member, family = member * 2.0**exponent, f"{family} times 2^{exponent}"
        values[name] = member
        words.append(f"{name} = {family}")
    theme = choose(generator, 4)
    if theme < 2:
        letters = sorted({str(s) for v in free.values() for s in (v.type.rows, v.type.cols) if not _single(s)})
        if letters:
            letter = letters[choose(generator, len(letters))]
            changed = _equal(values, free, letter) if theme == 0 else _off(values, free, letter, generator)
            fits = {n: v for n, v in changed.items() if contains(free[n].domain, v)}
            words += [f"{'equal' if theme == 0 else 'one zero'} along {letter}: {', '.join(fits)}"] if fits else []
            values |= fits
    return _with(base, values, ", ".join(words))


def _single(size: Size) -> bool:
    return str(size) == "1"


def _equal(values: Mapping[str, Tensor], free: Mapping[str, Free], letter: str) -> dict[str, Tensor]:
    """Rows along a size letter equal the first one; vectors along it alternate in sign, as residuals that cancel do."""
    changed = {}
    for name, value in values.items():
        kind = free[name].type
        if value.ndim == 2 and str(kind.rows) == letter:
            changed[name] = value[:1].expand_as(value).clone()
        elif value.ndim == 1 and str(kind.rows) == letter:
            signs = torch.ones_like(value)
            signs[1::2] = -1
            changed[name] = signs * float(value.abs().max())
    return changed


def _off(
    values: Mapping[str, Tensor], free: Mapping[str, Free], letter: str, generator: torch.Generator
) -> dict[str, Tensor]:
    """One row or column along a size letter becomes zero, or negative, in some of the variables."""
    changed = {}
    place = choose(generator, 64)
    for name, value in values.items():
        kind = free[name].type
        fresh = value.clone()
        if value.ndim >= 1 and str(kind.rows) == letter and choose(generator, 2):
            fresh[place % len(value)] *= -1.0 if choose(generator, 3) == 0 else 0.0
            changed[name] = fresh + 0.0
        elif value.ndim == 2 and str(kind.cols) == letter and choose(generator, 2):
            fresh[:, place % value.shape[1]] = 0.0 if choose(generator, 2) else -fresh[:, place % value.shape[1]].abs()
            changed[name] = fresh + 0.0
    return changed
