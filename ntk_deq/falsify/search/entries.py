"""Maps from the real line onto the sets that a single entry ranges over: smooth ones, and projections."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from ntk_deq.falsify.domains import within
from ntk_deq.language.domain import Domain, DomainKind

_FAR = 60.0  # of an exponent: e^60 is 1e26, beyond any size at which margins still mean something
_NEAR = 2.0**-30  # how close, relative to its width or to one, a projection comes to an end that is excluded

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class EntryMap:
    """A map from real coordinates to entries of a domain, and back.

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
        >>> unit = entry_map(Domain(DomainKind.INTERVAL, Fraction(0), Fraction(1)), smooth=False)
        >>> unit.decode(torch.tensor([-1.0, 0.25, 3.0], dtype=torch.float64)).tolist()
        [0.0, 0.25, 1.0]
    """
    if domain.kind is DomainKind.INTEGER:
        return _integers(domain)
    low, high = _ends(domain)
    if low is None and high is None:
        return EntryMap(_same, _same)
    bounds = _float_bounds(domain, low, high)
    if not smooth:
        return EntryMap(_projection(domain, low, high, bounds), _same)
    if low is not None and high is not None:
        shape = _between(domain, float(low), float(high - low))
    elif low is not None:
        shape = _above(domain, float(low))
    else:
        shape = _mirrored(_above(_reflected(domain), -float(high or 0)))
    return EntryMap(lambda x: shape.decode(x).clamp(*bounds), shape.encode)


def _same(x: Tensor) -> Tensor:
    return x


def _ends(domain: Domain) -> tuple[Fraction | None, Fraction | None]:
    if domain.kind in (DomainKind.NONNEGATIVE, DomainKind.POSITIVE):
        return Fraction(0), None
    return (domain.low, domain.high) if domain.kind is DomainKind.INTERVAL else (None, None)


def _open(domain: Domain) -> tuple[bool, bool]:
    return domain.low_open or domain.kind is DomainKind.POSITIVE, domain.high_open


def _float_bounds(domain: Domain, low: Fraction | None, high: Fraction | None) -> tuple[float, float]:
    """Return the smallest and the largest float of the domain."""
    bounds = []
    for end, outward in ((low, -math.inf), (high, math.inf)):
        bound = outward if end is None else float(end)
        while end is not None and not within(domain, bound):
            bound = math.nextafter(bound, -outward)
        bounds.append(bound)
    return bounds[0], bounds[1]


def _projection(domain: Domain, low: Fraction | None, high: Fraction | None, bounds: tuple[float, float]) -> Map:
    width = 1.0 if low is None or high is None else float(high - low)
    low_open, high_open = _open(domain)
    least = bounds[0] if low is None or not low_open else max(bounds[0], float(low) + _NEAR * width)
    most = bounds[1] if high is None or not high_open else min(bounds[1], float(high) - _NEAR * width)

    def project(x: Tensor) -> Tensor:
        # A point inside stays where it is, however close it is to an end.
        outside = (x < bounds[0]) | (x > bounds[1])
        return torch.where(outside, x.clamp(least, most), x)

    return project


def _integers(domain: Domain) -> EntryMap:
    low = -(2.0**53) if domain.low is None else float(math.ceil(domain.low))
    high = 2.0**53 if domain.high is None else float(math.floor(domain.high))
    return EntryMap(lambda x: x.round().clamp(low, high), _same)


def _above(domain: Domain, low: float) -> EntryMap:
    """Entries from `low` up."""
    if _open(domain)[0]:
        return EntryMap(
            lambda x: low + x.clamp(-_FAR, _FAR).exp(), lambda v: (v - low).clamp_min(math.exp(-_FAR)).log()
        )
    return EntryMap(lambda x: low + x.abs(), lambda v: v - low)


def _reflected(domain: Domain) -> Domain:
    high = None if domain.high is None else -domain.high
    return Domain(DomainKind.INTERVAL, high, None, domain.high_open, True)


def _mirrored(inner: EntryMap) -> EntryMap:
    return EntryMap(lambda x: -inner.decode(x), lambda v: inner.encode(-v))


def _between(domain: Domain, low: float, width: float) -> EntryMap:
    """Entries between two ends."""
    low_open, high_open = _open(domain)
    if low_open and high_open:
        return EntryMap(
            lambda x: low + width * torch.sigmoid(x.clamp(-_FAR, _FAR)),
            lambda v: torch.logit(((v - low) / width).clamp(math.exp(-_FAR), 1 - 2.0**-53)),
        )
    if width == 0:
        return EntryMap(lambda x: torch.full_like(x, low), torch.zeros_like)
    if not low_open and not high_open:
        return EntryMap(
            lambda x: low + width * (1 + x.sin()) / 2, lambda v: (2 * ((v - low) / width).clamp(0, 1) - 1).asin()
        )
    if low_open:
        return EntryMap(lambda x: low + width * _bell(x), lambda v: _bell_inverse((v - low) / width))
    return EntryMap(lambda x: low + width * (1 - _bell(x)), lambda v: _bell_inverse(1 - (v - low) / width))


def _bell(x: Tensor) -> Tensor:
    return torch.exp(-0.5 * x.clamp(-math.sqrt(2 * _FAR), math.sqrt(2 * _FAR)) ** 2)


def _bell_inverse(share: Tensor) -> Tensor:
    return (-2 * share.clamp(math.exp(-_FAR), 1.0).log()).sqrt()
