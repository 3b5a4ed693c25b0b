"""The number that a descent makes small: one comparison's margin, with a penalty for hypotheses that fail."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ntk_deq.falsify.score import Scorer, Scores
from ntk_deq.falsify.search.archive import Archive
from ntk_deq.falsify.search.space import Space

_PENALTY = 10.0  # margins are at most about one: no gain in a conclusion outweighs a hypothesis that fails by a fifth
SLACK = 1e-7
"""By how much the search wants hypotheses to hold, so that rounding does not hide that they do."""
# # by which hypotheses shall hold, so that rounding does not hide that they do
_UNDEFINED = 100.0  # worse than any penalty


@dataclass
class Meter:
    """Counts evaluations against a budget.

    Attributes:
        budget: How many instances may be evaluated.
        used: How many were.
    """

    budget: int
    used: int = 0

    @property
    def left(self) -> int:
        """How many may still be evaluated."""
        return self.budget - self.used


@dataclass(frozen=True)
class Linearisation:
    """An objective at some points, to first order.

    Attributes:
        values: The values, penalties included.
        slope: points x coordinates: the derivative of the value without penalties.
        hypotheses: points x hypotheses: their margins.
        hypothesis_slopes: points x hypotheses x coordinates.
    """

    values: Tensor
    slope: Tensor
    hypotheses: Tensor
    hypothesis_slopes: Tensor


class Objective:
    """Measures points of a space; everything measured goes into the archive.

    Args:
        space: The coordinates.
        scorer: Scores instances.
        goal: Which comparison of the conclusions shall break; None: none, the hypotheses shall hold.
        archive: Where finds are kept.
        meter: Counts.
        family: What to call instances found.
    """

    def __init__(
        self, space: Space, scorer: Scorer, goal: int | None, archive: Archive, meter: Meter, family: str
    ) -> None:
        self.space = space
        self.goal = goal
        self._scorer = scorer
        self._archive = archive
        self._meter = meter
        self._family = family

    @property
    def over(self) -> bool:
        """Whether the campaign is over: a candidate is confirmed, or the budget is spent."""
        return self._archive.confirmed is not None or self._meter.left <= 0

    @property
    def left(self) -> int:
        """How many evaluations the campaign has left."""
        return max(0, self._meter.left)

    @property
    def differentiable(self) -> bool:
        """Whether `linearise` has something to say."""
        return self._scorer.differentiable

    def __call__(self, vectors: Tensor) -> Tensor:
        """Return the values at points, count x size; points beyond the budget get infinity."""
        return self.measure(vectors)[0]

    def measure(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values at points, and the margins of their hypotheses."""
        inside = vectors[: self.left]
        with torch.no_grad():
            scores = self._scores(inside, inside)
            values, feasible = self._combined(scores), scores.feasible
        beyond = torch.full((len(vectors) - len(inside),), torch.inf, dtype=torch.float64)
        return torch.cat([values, beyond]), torch.cat([feasible, -beyond])

    def linearise(self, vectors: Tensor) -> Linearisation:
        """Return the values at points, and the derivatives of the goal and of every hypothesis.

        A derivative that is not finite counts as zero, and points beyond the budget have infinite values.
        """
        inside = vectors[: self.left].detach().requires_grad_()
        with torch.enable_grad():
            scores = self._scores(inside, inside.detach())
            aim = self._aim(scores)
            columns = [aim, *scores.hypotheses.unbind(1)]
            slopes = torch.stack([_slope(column, inside) for column in columns], dim=1)
        values = self._combined(scores).detach()
        beyond = len(vectors) - len(inside)
        return Linearisation(
            torch.cat([values, values.new_full((beyond,), torch.inf)]),
            _longer(slopes[:, 0], beyond),
            _longer(scores.hypotheses.detach(), beyond),
            _longer(slopes[:, 1:], beyond),
        )

    def _scores(self, vectors: Tensor, plain: Tensor) -> Scores:
        self._meter.used += len(vectors)
        scores = self._scorer(self.space.base, self.space.decode(vectors))
        scores = Scores(scores.hypotheses.cpu().double(), scores.goals.cpu().double(), scores.defined.cpu())
        self._archive.add(self.space, plain, Scores(*(t.detach() for t in _fields(scores))), self._family)
        return scores

    def _combined(self, scores: Scores) -> Tensor:
        lack = (SLACK - scores.hypotheses).clamp_min(0.0).sum(1)
        undefined = torch.where(scores.defined, 0.0, _UNDEFINED)
        return self._aim(scores) + (1.0 if self.goal is None else _PENALTY) * lack + undefined

    def _aim(self, scores: Scores) -> Tensor:
        """The part of the value that no hypothesis speaks of."""
        if self.goal is None:
            return scores.goals.new_zeros(len(scores.goals))
        return torch.where(scores.defined, scores.goals[:, self.goal], 0.0)


def _slope(values: Tensor, vectors: Tensor) -> Tensor:
    """Return the derivative of each point's number, zero where there is none."""
    if not values.requires_grad:
        return torch.zeros_like(vectors, requires_grad=False)
    (slope,) = torch.autograd.grad(values.sum(), vectors, retain_graph=True, allow_unused=True)
    return torch.zeros_like(vectors, requires_grad=False) if slope is None else slope.nan_to_num(0.0, 0.0, 0.0)


def _longer(rows: Tensor, count: int) -> Tensor:
    return torch.cat([rows, rows.new_zeros(count, *rows.shape[1:])])


def _fields(scores: Scores) -> tuple[Tensor, Tensor, Tensor]:
    return scores.hypotheses, scores.goals, scores.defined
