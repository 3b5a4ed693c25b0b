"""The number that a descent makes small: one comparison's margin, with a penalty for hypotheses that fail."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ntk_deq.falsify.search import Space
from ntk_deq.falsify.search.archive import Archive, Scorer, Scores

SLACK = 1e-7
"""By how much the search wants hypotheses to hold, so that rounding does not hide that they do."""

_PENALTY = 10.0  # margins are at most about one: no gain in a conclusion outweighs a hypothesis that fails by a fifth
_EDGE = 1.0  # of the root of what a hypothesis lacks: where two edges touch, a gain goes with the root of a violation
_TIED = 0.5
_OUTSIDE = 0.25  # the margin outside of the hypotheses is no better than this
_NEAR = 0.3  # margin of a hypothesis from which on it is far
_UNDEFINED = 100.0  # worse than any penalty


@dataclass
class Meter:
    """Counts evaluations, and what they cost, against a budget.

    Attributes:
        budget: What may be spent: see `Scorer.cost`.
        used: How many instances were evaluated.
        spent: What that cost.
    """

    budget: float
    used: int = 0
    spent: float = 0.0

    @property
    def left(self) -> float:
        """What may still be spent."""
        return max(0.0, self.budget - self.spent)

    def take(self, cost: tuple[float, float], count: int) -> int:
        """Spend what a call with some instances costs; return how many of them the budget has room for.

        Args:
            cost: Of a call, and of an instance in it.
            count: How many instances are asked for.
        """
        fixed, each = cost
        if self.left <= 0 or count == 0:
            return 0
        room = count if each == 0 else min(count, max(1, int((self.left - fixed) / each)))
        self.used += room
        self.spent += fixed + each * room
        return room


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


def combined(scores: Scores, goal: int | None, *, edge: float = 0.0) -> Tensor:
    """Return the value of each instance: small where the goal breaks and the hypotheses hold.

    Args:
        scores: Scores of instances.
        goal: Which comparison of the conclusions shall break; None: none, the hypotheses shall hold.
        edge: The margin of a hypothesis from which on an instance counts as inside.
    """
    lack = (SLACK - scores.hypotheses).clamp_min(0.0).sum(1)
    touched = (-scores.hypotheses).clamp_min(0.0).sqrt().sum(1)
    aim = _aim(scores, goal)
    if goal is not None:
        # Just outside of a hypothesis such as `a > 0` lies a place where 1/a is negative and any bound breaks.
        inequalities = [k for k in range(scores.hypotheses.shape[1]) if not (scores.equations or (False,) * (k + 1))[k]]
        outside = (scores.hypotheses[:, inequalities] < edge).any(1)
        aim = torch.where(outside, aim.clamp_min(_OUTSIDE), aim)
    return aim + _PENALTY * lack + _EDGE * touched + torch.where(scores.defined, 0.0, _UNDEFINED)


def _aim(scores: Scores, goal: int | None) -> Tensor:
    """The part of the value that no hypothesis speaks of."""
    if goal is None:
        return scores.goals.new_zeros(len(scores.goals))
    margin = scores.goals[:, goal]
    # A tie is as bad as a poor margin: no direction leads on from a zero matrix or the like.
    return torch.where(scores.defined, torch.where(margin == 0, _TIED, margin), 0.0)


class Objective:
    """Measures points of a space; everything measured goes into the archive.

    Args:
        space: The coordinates.
        scorer: Scores instances.
        goal: Which comparison of the conclusions shall break; None: none, the hypotheses shall hold.
        archive: Where finds are kept.
        meter: Counts.
        family: What to call instances found.
        effort: What may be spent by way of this objective, of the meter's budget.

    Attributes:
        flat: Whether every point so far has had the margin zero, as those of an identity do.
        met: Whether some point met the hypotheses.
    """

    def __init__(
        self,
        space: Space,
        scorer: Scorer,
        goal: int | None,
        archive: Archive,
        meter: Meter,
        family: str,
        effort: float = torch.inf,
    ) -> None:
        self.space = space
        self.goal = goal
        self._scorer = scorer
        self._archive = archive
        self._meter = meter
        self._family = family
        self._end = meter.spent + effort
        self.flat = goal is not None
        self.met = False

    @property
    def over(self) -> bool:
        """Whether there is no going on: a candidate is confirmed, or the budget or the effort is spent."""
        return self._archive.confirmed is not None or self._meter.left == 0 or self._meter.spent >= self._end

    @property
    def differentiable(self) -> bool:
        """Whether `linearise` has something to say."""
        return self._scorer.differentiable

    def __call__(self, vectors: Tensor) -> Tensor:
        """Return the values at points, points x coordinates; points beyond the budget get infinity."""
        return self.measure(vectors)[0]

    def measure(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values at points, and the margins of their hypotheses (minus infinity beyond the budget)."""
        with torch.no_grad():
            scores = self.score(vectors)
            values, feasible = self.value(scores), scores.feasible
        beyond = values.new_full((len(vectors) - len(values),), torch.inf)
        return torch.cat([values, beyond]), torch.cat([feasible, -beyond])

    def linearise(self, vectors: Tensor) -> Linearisation:
        """Return the values at points, and the derivatives of the goal and of every hypothesis.

        A derivative that is not finite counts as zero, and points beyond the budget have infinite values.
        """
        inside = vectors.detach().clone().requires_grad_()
        with torch.enable_grad():
            scores = self.score(inside)
            columns = [_aim(scores, self.goal), *scores.hypotheses.unbind(1)]
            call, each = self._scorer.cost(self.space.base)
            slopes = []
            for place, column in enumerate(columns):
                # A hypothesis that holds by far does not bend a step; its slope would cost another pass.
                near = place == 0 or bool((column.detach() < _NEAR).any())
                slopes.append(_slope(column, inside) if near else torch.zeros_like(inside, requires_grad=False))
                self._meter.spent += (call + each * len(inside)) * near if call else 0.0
        values = self.value(scores).detach()
        beyond = len(vectors) - len(values)
        hypotheses = scores.hypotheses.detach()
        return Linearisation(
            torch.cat([values, values.new_full((beyond,), torch.inf)]),
            slopes[0],
            torch.cat([hypotheses, hypotheses.new_zeros(beyond, hypotheses.shape[1])]),
            torch.stack([torch.zeros_like(slopes[0]), *slopes[1:]], dim=1)[:, 1:],
        )

    def value(self, scores: Scores) -> Tensor:
        """Return what is to be small; once an instance on an edge was refused, edges count as outside."""
        return combined(scores, self.goal, edge=self._archive.edge)

    def affordable(self, effort: float, together: int) -> int:
        """Return how many points an effort pays for, so many being scored together."""
        call, each = self._scorer.cost(self.space.base)
        return int(effort / (call / together + each))

    def score(self, vectors: Tensor) -> Scores:
        """Return the scores of as many of the points as the budget has room for."""
        inside = vectors[: self._meter.take(self._scorer.cost(self.space.base), len(vectors))]
        if len(inside) == 0:
            nothing = vectors.new_zeros(0, len(self._scorer.goals))
            return Scores(vectors.new_zeros(0, self._scorer.hypotheses), nothing, torch.zeros(0, dtype=torch.bool))
        scores = self._scorer(self.space.base, self.space.decode(inside))
        table, goals = scores.hypotheses.cpu().double(), scores.goals.cpu().double()
        scores = replace(scores, hypotheses=table, goals=goals, defined=scores.defined.cpu())
        plain = replace(scores, hypotheses=table.detach(), goals=goals.detach())
        self._archive.add(self.space, inside.detach(), plain, self._family)
        self.met = self.met or bool((plain.feasible >= 0).any())
        if self.goal is not None:
            self.flat = self.flat and not bool((plain.goals[:, self.goal] != 0).any())
        return scores


def _slope(values: Tensor, vectors: Tensor) -> Tensor:
    """Return the derivative of each point's number, zero where there is none."""
    if not values.requires_grad:
        return torch.zeros_like(vectors, requires_grad=False)
    (slope,) = torch.autograd.grad(values.sum(), vectors, retain_graph=True, allow_unused=True)
    return torch.zeros_like(vectors, requires_grad=False) if slope is None else slope.nan_to_num(0.0, 0.0, 0.0)
