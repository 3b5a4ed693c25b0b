"""The adversarial search: where no instance of the ladder breaks a claim, look for one.

Here: the search's view of an instance, a vector of free real numbers, and back, without leaving a domain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ntk_deq.evaluation.instance import Instance
from ntk_deq.falsify.domains import MOST_ROUNDING, contains, rounding, within
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Domain, DomainKind, Free, scalar_names

_FAR = 60.0  # of an exponent: e^60 is 1e26, beyond any size at which margins still mean something
_NEAR = 2.0**-30  # how close, relative to its width or to one, a projection comes to an end that is excluded

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class EntryMap:
    """A map from real coordinates to values of a domain, and back.

    Attributes:
        decode: From coordinates to entries; every result lies in the domain, exactly.
        encode: From entries of the domain to coordinates.
    """

    decode: Map
    encode: Map


def entry_map(domain: Domain, *, smooth: bool) -> EntryMap:
    """Return the map for a domain that restricts each entry by itself.

    Smooth: `e^x` for positive entries, `|x|` for nonnegative ones, a logistic curve for open intervals, a sine for
    closed ones (it reaches both ends), a bell curve for half-open ones (it reaches the closed end), rounding for
    integers. Otherwise the projection: numbers inside the set are left alone.

    Args:
        domain: The domain; kinds that restrict no single entry count as `real`.
        smooth: Which of the two.

    Example:
        >>> from fractions import Fraction
        >>> unit = entry_map(Domain(DomainKind.INTERVAL, Fraction(0), Fraction(1)), smooth=False)
        >>> unit.decode(torch.tensor([-1.0, 0.25, 3.0], dtype=torch.float64)).tolist()
        [0.0, 0.25, 1.0]
    """
    if domain.kind is DomainKind.INTEGER:
        return _integers(domain)
    low, high = domain.low, domain.high
    if low is None and high is None:
        return EntryMap(_same, _same)
    least, most = float_bounds(domain)
    if not smooth:
        return EntryMap(_projection(domain, least, most), _same)
    if low is not None:
        shape = _above(float(low), domain.low_open) if high is None else _between(domain, float(low), float(high - low))
    else:
        inner = _above(-float(high or 0), domain.high_open)
        shape = EntryMap(lambda x: -inner.decode(x), lambda v: inner.encode(-v))
    return EntryMap(lambda x: shape.decode(x).clamp(least, most), shape.encode)


def _same(x: Tensor) -> Tensor:
    return x


def float_bounds(domain: Domain) -> tuple[float, float]:
    """Return the smallest and the largest float of a domain, an infinity where it has no end.

    Example:
        >>> from fractions import Fraction
        >>> float_bounds(Domain(DomainKind.INTERVAL, Fraction(0), Fraction(1, 5), low_open=True))
        (5e-324, 0.19999999999999998)
    """
    bounds = []
    for end, outward in ((domain.low, -math.inf), (domain.high, math.inf)):
        bound = outward if end is None else float(end)
        while end is not None and not within(domain, bound):
            bound = math.nextafter(bound, -outward)
        bounds.append(bound)
    return bounds[0], bounds[1]


def _projection(domain: Domain, smallest: float, largest: float) -> Map:
    low, high = domain.low, domain.high
    width = 1.0 if low is None or high is None else float(high - low)
    least = smallest if low is None or not domain.low_open else max(smallest, float(low) + _NEAR * width)
    most = largest if high is None or not domain.high_open else min(largest, float(high) - _NEAR * width)

    def project(x: Tensor) -> Tensor:
        # A point inside stays where it is, however close it is to an end.
        outside = (x < smallest) | (x > largest)
        return torch.where(outside, x.clamp(least, most), x)

    return project


def _integers(domain: Domain) -> EntryMap:
    low = -(2.0**53) if domain.low is None else float(math.ceil(domain.low))
    high = 2.0**53 if domain.high is None else float(math.floor(domain.high))
    return EntryMap(lambda x: x.round().clamp(low, high), _same)


def _above(low: float, is_open: bool) -> EntryMap:
    """Entries from `low` up."""
    if is_open:
        return EntryMap(
            lambda x: low + x.clamp(-_FAR, _FAR).exp(), lambda v: (v - low).clamp_min(math.exp(-_FAR)).log()
        )
    return EntryMap(lambda x: low + x.abs(), lambda v: v - low)


def _between(domain: Domain, low: float, width: float) -> EntryMap:
    """Entries between two ends."""
    if domain.low_open and domain.high_open:
        return EntryMap(
            lambda x: low + width * torch.sigmoid(x.clamp(-_FAR, _FAR)),
            lambda v: torch.logit(((v - low) / width).clamp(math.exp(-_FAR), 1 - 2.0**-53)),
        )
    if width == 0:
        return EntryMap(lambda x: torch.full_like(x, low), torch.zeros_like)
    if domain.low_open:
        return EntryMap(lambda x: low + width * _bell(x), lambda v: _bell_inverse((v - low) / width))
    if domain.high_open:
        return EntryMap(lambda x: low + width * (1 - _bell(x)), lambda v: _bell_inverse(1 - (v - low) / width))
    return EntryMap(
        lambda x: low + width * (1 + x.sin()) / 2, lambda v: (2 * ((v - low) / width).clamp(0, 1) - 1).asin()
    )


def _bell(x: Tensor) -> Tensor:
    return torch.exp(-0.5 * x.clamp(-math.sqrt(2 * _FAR), math.sqrt(2 * _FAR)) ** 2)


def _bell_inverse(share: Tensor) -> Tensor:
    return (-2 * share.clamp(math.exp(-_FAR), 1.0).log()).sqrt()


_FACTOR_BITS = 22  # of a semidefinite matrix's factor: its products have 46 bits at most, so that sums have no rounding

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Chart:
    """Coordinates of one variable.

    Attributes:
        size: How many there are.
        decode: From coordinates, count x size, to values, count x the variable's shape; differentiable.
        encode: From one value to its coordinates.
    """

    size: int
    decode: Callable[[Tensor], Tensor]
    encode: Callable[[Tensor], Tensor]


def chart(domain: Domain, shape: Shape, *, smooth: bool) -> Chart:
    """Return coordinates for a domain.

    Symmetric, skew and diagonal matrices have their independent entries, a semidefinite P the factor R of P = R'R, an
    orthogonal matrix the matrix whose QR decomposition has it as Q, unit rows the rows before they are scaled.

    Args:
        domain: The domain.
        shape: Shape of the variable.
        smooth: Whether entries that are restricted get a smooth map or a projection: see `entry_map`.

    Example:
        >>> skew = chart(Domain(DomainKind.SKEW), (2, 2), smooth=True)
        >>> skew.size, skew.decode(torch.tensor([[3.0]])).tolist()
        (1, [[[0.0, 3.0], [-3.0, 0.0]]])
    """
    match domain.kind:
        case DomainKind.SYMMETRIC:
            return _triangle(shape[0], offset=0, sign=1.0)
        case DomainKind.SKEW:
            return _triangle(shape[0], offset=1, sign=-1.0)
        case DomainKind.DIAGONAL:
            return Chart(shape[0], torch.diag_embed, torch.diagonal)
    entries = _WHOLE.get(domain.kind) or entry_map(domain, smooth=smooth)
    return Chart(
        math.prod(shape), lambda x: entries.decode(x.reshape(-1, *shape)), lambda v: entries.encode(v).reshape(-1)
    )


def _triangle(n: int, *, offset: int, sign: float) -> Chart:
    """Matrices given by their upper triangle, of which the lower one is a copy or the negative."""
    rows, cols = torch.triu_indices(n, n, offset)

    def decode(x: Tensor) -> Tensor:
        points = torch.arange(len(x)).unsqueeze(1)
        upper = x.new_zeros(len(x), n, n).index_put((points, rows, cols), x)
        return upper + sign * upper.triu(1).mT

    return Chart(len(rows), decode, lambda value: value[rows, cols])


def _gram(factor: Tensor) -> Tensor:
    """Return R'R without rounding, R cut to `_FACTOR_BITS` bits below its largest entry."""
    largest = factor.detach().abs().amax((-2, -1), keepdim=True)
    unit = torch.exp2(torch.floor(torch.log2(largest.clamp_min(2.0**-400))) - _FACTOR_BITS)
    cut = torch.round(factor.detach() / unit) * unit
    kept = cut + (factor - factor.detach())  # the value is cut, the derivative is that of the factor
    return kept.mT @ kept


def _factor(value: Tensor) -> Tensor:
    """Return an R with R'R close to the value: triangular where it is definite."""
    lower, info = torch.linalg.cholesky_ex(value)
    if int(info) == 0:
        return lower.mT
    eigenvalues, vectors = torch.linalg.eigh(value)
    return eigenvalues.clamp_min(0.0).sqrt().unsqueeze(1) * vectors.mT


def _orthogonal(matrix: Tensor) -> Tensor:
    """Return the Q of the QR decomposition whose R has a positive diagonal."""
    q, r = torch.linalg.qr(matrix)
    signs = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).detach()
    return q * signs.unsqueeze(-2) + 0.0  # no negative zeros


def _unit(rows: Tensor) -> Tensor:
    """Scale rows to length one; a row of zeros becomes the first unit vector."""
    first = torch.zeros_like(rows)
    first[..., 0] = 1.0
    length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    lost = ~(length > 0)
    return torch.where(lost, first, rows / torch.where(lost, 1.0, length))


_WHOLE = {
    DomainKind.PSD: EntryMap(_gram, _factor),
    DomainKind.ORTHOGONAL: EntryMap(_orthogonal, _same),
    DomainKind.UNIT_ROWS: EntryMap(_unit, _same),
}
"""Sets of matrices that a matrix of free numbers is led into as a whole."""


def movable(setting: Setting, given: Mapping[str, Free], uses: Collection[str]) -> dict[str, Free]:
    """Return the variables that a search may move: quantified, used by the claim, and not below a distribution.

    Drawn data stay as they were drawn, and so does a scalar that a distribution uses.

    Args:
        setting: The setting.
        given: Further variables that the claim quantifies over.
        uses: What the claim depends on.
    """
    fixed = {node.name for draw in setting.draws.values() for node in scalar_names(draw.distribution)}
    taken = fixed | set(setting.draws)
    return {name: v for name, v in {**setting.free, **given}.items() if name in uses and name not in taken}


class Space:
    """Coordinates of some variables of an instance.

    Args:
        free: The variables that move.
        base: Gives the sizes, and the values of everything else.
        smooth: Whether restricted entries have smooth coordinates (for descents) or plain ones (their own values).

    Attributes:
        size: How many coordinates there are.
        blocks: Where each variable's stand.
    """

    def __init__(self, free: Mapping[str, Free], base: Instance, *, smooth: bool) -> None:
        self.base = base
        self.free = {name: variable for name, variable in free.items() if name in base.values}
        self._charts = {
            name: chart(variable.domain, tuple(base.values[name].shape), smooth=smooth)
            for name, variable in self.free.items()
        }
        self.blocks: dict[str, slice] = {}
        start = 0
        for name, coordinates in self._charts.items():
            self.blocks[name] = slice(start, start + coordinates.size)
            start += coordinates.size
        self.size = start

    def encode(self, instance: Instance) -> Tensor:
        """Return the coordinates of an instance with the base's sizes."""
        parts = [coordinates.encode(instance.values[name]) for name, coordinates in self._charts.items()]
        return torch.cat([part.reshape(-1) for part in parts]) if parts else torch.zeros(0, dtype=torch.float64)

    def decode(self, vectors: Tensor) -> dict[str, Tensor]:
        """Return the values at many points: count x size to count x shape for each variable."""
        return {name: self._charts[name].decode(vectors[:, block]) for name, block in self.blocks.items()}

    def instance(self, vector: Tensor, *, family: str) -> Instance | None:
        """Return the instance at a point, or None where rounding has put a value outside its domain.

        Args:
            vector: The point.
            family: What to call it.
        """
        # Adding zero turns negative zeros, which people would wonder at, into plain ones.
        values = {name: value[0].detach() + 0.0 for name, value in self.decode(vector.detach().unsqueeze(0)).items()}
        rounded = {name: radius for name, radius in self.base.rounded.items() if name not in values}
        for name, value in values.items():
            domain = self.free[name].domain
            if not contains(domain, value):
                rounded[name] = rounding(domain, value)
                if rounded[name] > MOST_ROUNDING:
                    return None
        return replace(self.base, family=family, values={**self.base.values, **values}, rounded=rounded)
