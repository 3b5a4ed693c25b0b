"""How an instance stands to a claim in plain floating point: what the search follows, and no verdict rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ntk_deq.evaluation.instance import Instance


@dataclass(frozen=True, slots=True)
class Score:
    """The relative margins of one instance; positive is good for the claim.

    Attributes:
        feasible: The smallest margin of the hypotheses: inf where there are none, -inf where the claim is undefined.
        margin: The smallest margin of the conclusions; inf where the claim is undefined.
    """

    feasible: float
    margin: float


@dataclass(frozen=True)
class Scores:
    """The relative margins of many instances of the same sizes, comparison by comparison.

    Attributes:
        hypotheses: instances x comparisons of the hypotheses.
        goals: instances x comparisons of the conclusions; to make one of them negative is a goal of the search.
        defined: For each instance, whether every formula has a value there.
        equations: Which columns of the hypotheses are equations: almost no instance meets one.
    """

    hypotheses: Tensor
    goals: Tensor
    defined: Tensor
    equations: tuple[bool, ...] = ()

    @property
    def feasible(self) -> Tensor:
        """The smallest margin of the hypotheses of each instance: see `Score`."""
        if self.hypotheses.shape[1] == 0:
            smallest = self.hypotheses.new_full((len(self.hypotheses),), math.inf)
        else:
            smallest = self.hypotheses.amin(1)
        return torch.where(self.defined, smallest, -math.inf)

    @property
    def margin(self) -> Tensor:
        """The smallest margin of the conclusions of each instance: see `Score`."""
        return torch.where(self.defined, self.goals.amin(1), math.inf)

    def of(self, place: int) -> Score:
        """Return the score of one instance."""
        return Score(float(self.feasible[place].detach()), float(self.margin[place].detach()))


class Scorer(Protocol):
    """Measures instances of one setting against one claim.

    Attributes:
        hypotheses: How many columns `Scores.hypotheses` has.
        needs: For each of them, the variables that it depends on.
        goals: What each column of `Scores.goals` compares, for people.
        strict: For each goal, whether equality breaks it.
        uses: The variables that the claim depends on.
        differentiable: Whether gradients flow through the scores.
    """

    hypotheses: int
    needs: tuple[frozenset[str], ...]
    goals: tuple[str, ...]
    strict: tuple[bool, ...]
    uses: frozenset[str]
    differentiable: bool

    def __call__(self, base: Instance, moving: Mapping[str, Tensor]) -> Scores:
        """Score an instance with some variables replaced, each by many values along a new first dimension."""

    def margins(self, base: Instance, moving: Mapping[str, Tensor], columns: Sequence[int] | None = None) -> Tensor:
        """Return the margins of some columns of the hypotheses, or of all; -inf where one has no value."""

    def cost(self, base: Instance, columns: Sequence[int] | None = None) -> tuple[float, float]:
        """Return what a call costs on its own, and for each instance in it; 1 is an instance scored alone.

        With `columns`: the same of `margins`.
        """
