"""Milder variants of an instance that fails a hypothesis, for hypotheses that ask for something to be small."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction

from torch import Tensor

from ntk_deq.claims.claim import Domain, Free, Setting
from ntk_deq.claims.distributions import scalar_names
from ntk_deq.falsify.domains import is_cone, within
from ntk_deq.falsify.instance import Instance, format_number, with_values

MAX_VARIANTS = 24

_SCALAR_TARGETS = (Fraction(1, 2), Fraction(1, 4), Fraction(1, 16), Fraction(1, 2**10))
_ONE_TENSOR = (-1, -3, -8)
_ALL_TENSORS = (-1, -4, -10, -20)

_Change = dict[str, tuple[Tensor | float, str]]


def shrink_variants(instance: Instance, setting: Setting, given: Mapping[str, Free]) -> Iterator[Instance]:
    """Yield variants of an instance with smaller scalars and smaller tensors, mild changes before strong ones.

    Scalars move to 1/2, 1/4, 1/16 and 2^-10 of their domain (of its width, where it is a bounded interval); tensors
    whose domain is a cone are multiplied by 2^-1 to 2^-20; one variable at a time, and all together. Every variant
    lies in the setting: variables drawn from distributions, and scalars that these use, stay as they are.

    Args:
        instance: The instance.
        setting: Its setting.
        given: Further variables that the claim quantifies over.

    Yields:
        At most `MAX_VARIANTS` instances with the same sizes and the same index.
    """
    fixed = {node.name for draw in setting.draws.values() for node in scalar_names(draw.distribution)}
    free = {name: v for name, v in {**setting.free, **given}.items() if name not in fixed and name in instance.values}
    scalars = {name: v.domain for name, v in free.items() if instance.values[name].ndim == 0}
    tensors = [
        name
        for name, v in free.items()
        if instance.values[name].ndim > 0 and is_cone(v.domain) and bool(instance.values[name].any())
    ]
    one_scalar = [_move(instance, {name: scalars[name]}, c) for c in _SCALAR_TARGETS for name in scalars]
    all_scalars = [_move(instance, scalars, c) for c in _SCALAR_TARGETS]
    one_tensor = [_scale(instance, [name], k) for k in _ONE_TENSOR for name in tensors]
    all_tensors = [_scale(instance, tensors, k) for k in _ALL_TENSORS]
    together = [{**a, **b} for a, b in zip(all_scalars, all_tensors, strict=True)]
    nothing: _Change = {}
    rounds = itertools.zip_longest(one_scalar, one_tensor, all_scalars, all_tensors, together, fillvalue=nothing)
    seen: set[str] = set()
    for change in itertools.chain.from_iterable(rounds):
        words = "; ".join([instance.family, *dict.fromkeys(text for _, text in change.values())])
        if change and words not in seen and len(seen) < MAX_VARIANTS:
            seen.add(words)
            varied = with_values(instance, **{name: value for name, (value, _) in change.items()})
            yield replace(varied, family=words)


def _move(instance: Instance, domains: Mapping[str, Domain], target: Fraction) -> _Change:
    """Return the scalars that come closer to zero by moving to `target`."""
    change: _Change = {}
    for name, domain in domains.items():
        old = instance.values[name].item()
        new = _smaller(domain, old, target)
        if abs(new) < abs(old) and within(domain, new):
            change[name] = (new, f"{name} moved to {format_number(new)}")
    return change


def _smaller(domain: Domain, old: float, target: Fraction) -> float:
    """Return the value that stands for `target` in a domain, on the side of zero where the old value is."""
    low, high = domain.low, domain.high
    if is_cone(domain) or low is None or high is None:
        return math.copysign(float(target), old)
    if low < 0 < high:
        return float(target * (high if old > 0 else low))
    return float(low + (high - low) * target if low >= 0 else high - (high - low) * target)


def _scale(instance: Instance, names: list[str], exponent: int) -> _Change:
    """Return the tensors multiplied by a power of two."""
    words = f"{names[0] if len(names) == 1 else 'tensors'} scaled by 2^{exponent}" if names else ""
    return {name: (instance.values[name] * 2.0**exponent, words) for name in names}
