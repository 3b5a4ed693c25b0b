"""What may be changed about an instance, and how plain it is: the order in which the shrinker descends."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from torch import Tensor

from ntk_deq.claims.claim import Free, Setting
from ntk_deq.claims.distributions import scalar_names
from ntk_deq.falsify.domains import contains
from ntk_deq.falsify.instance import Instance
from ntk_deq.falsify.nice import weight

Measure = tuple[int, int, int, float]
"""What the shrinker makes smaller; see `measure`."""


@dataclass(frozen=True)
class Candidate:
    """An instance to try, and what was changed, in words."""

    instance: Instance
    words: str


Proposals: TypeAlias = Generator[Candidate, bool, Instance]
"""Proposes candidates and is told of each whether it was accepted; in the end it says which instance it left off at.

A pass that goes on after an acceptance goes on from the accepted instance; one that cannot, ends.
"""


@dataclass(frozen=True)
class Knobs:
    """What may be changed: quantified variables that no distribution draws on, and sizes that no drawn variable has.

    Attributes:
        setting: The setting.
        free: The variables that may be changed.
        letters: The size letters that may go down, with their least values.
    """

    setting: Setting
    free: Mapping[str, Free]
    letters: Mapping[str, int]

    @classmethod
    def of(cls, setting: Setting, given: Mapping[str, Free]) -> Knobs:
        """Return the knobs of a setting and of what a claim quantifies over besides."""
        used = {node.name for draw in setting.draws.values() for node in scalar_names(draw.distribution)}
        free = {name: variable for name, variable in {**setting.free, **given}.items() if name not in used}
        types = setting.variable_types()
        fixed = [types[name] for name in types if name not in free]
        stuck = used.union(*(kind.rows.letters | kind.cols.letters for kind in fixed))
        letters = {letter: span.low for letter, span in setting.sizes.items() if letter not in stuck}
        return cls(setting, free, letters)

    def changed(self, instance: Instance, values: Mapping[str, Tensor], words: str) -> Candidate | None:
        """Return the instance with some values replaced by exact ones; None where one leaves its domain.

        Negative zeros become zeros.
        """
        exact = {name: value + 0.0 for name, value in values.items()}
        if not all(contains(self.free[name].domain, value) for name, value in exact.items()):
            return None
        rounded = {name: radius for name, radius in instance.rounded.items() if name not in exact}
        return Candidate(replace(instance, values={**instance.values, **exact}, rounded=rounded), words)


def one(instance: Instance, candidate: Candidate | None) -> Proposals:
    """Propose one candidate, if there is one."""
    if candidate is not None and (yield candidate):
        return candidate.instance
    return instance


def measure(instance: Instance) -> Measure:
    """Return how far an instance is from the plainest: sizes first, then bits of all numbers, signs, magnitudes.

    Each step of the shrinker makes it smaller, and below it there are finitely many, so that it ends.
    """
    numbers = [x for value in instance.values.values() for x in value.flatten().tolist()]
    return (
        sum(instance.sizes.values()),
        sum(map(weight, numbers)),
        sum(x < 0 for x in numbers),
        math.fsum(min(abs(x), 1e300) for x in numbers),  # the bound keeps the sum of any number of doubles finite
    )
