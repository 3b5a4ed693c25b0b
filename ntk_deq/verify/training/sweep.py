"""Search the scalars that a training claim quantifies over: along lines, to the ends of their domain and hypotheses.

"For every step size up to c" is broken, if at all, near c, or near a place that few draws meet. Each scalar in turn is
led through its whole domain, the others fixed; where hypotheses cut the line, to just inside the cut. Drawn values stay
as they are, but for those whose distribution uses the scalar. What a short run in floats finds is judged in balls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Unpack

import torch

from ntk_deq.claims.claim import Claim
from ntk_deq.evaluation.instance import Instance, format_number, with_values
from ntk_deq.falsify import instance_at, redrawn
from ntk_deq.falsify.domains import within
from ntk_deq.falsify.scalars import scalar_ladder
from ntk_deq.falsify.search import float_bounds
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Domain, DomainKind
from ntk_deq.verify.counterexamples import Attack
from ntk_deq.verify.formulas import Judging
from ntk_deq.verify.judge import Judgement, judge_instance, refutes
from ntk_deq.verify.scoring import ClaimScorer
from ntk_deq.verify.training.between import at_the_start
from ntk_deq.verify.training.choose import scalars
from ntk_deq.verify.training.records import constants_of
from ntk_deq.verify.training.scoring import TRAINED_BUDGET
from ntk_deq.verify.twins import twin_of

WORK = 10_000.0
"""Gradients of a small network (`TrainingTwin.cost`) that a sweep of one setting may take by default: 1.5 s."""

LEAST, MOST = 8, 150
"""Runs of a sweep at least, whatever they cost, and at most at the default budget."""

BASES = 3
"""Draws that are swept."""

_SHARES = (1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.2, 0.3, 0.4)  # of an interval, from either end
_POWERS = range(-40, 41, 4)  # of two: distances from the end of a half-line
_CUT = 1e-9  # how far inside a hypothesis' edge, in units of the gap in which the edge was looked for
_NEAR_CUT = (_CUT, 1e-3, 0.03, 0.2)
_LEAST = 2.0**-1000  # the least float above zero is of no use
_ROUNDS = 8  # in which an edge is narrowed down, by 16 each
_ZOOMS = 3
_ZOOMED = 6
_CLEAR = 1e-9
_TRIALS = 6  # candidates judged in balls
_NEAR_MISSES = 2


def telling_values(domain: Domain) -> list[float]:
    """Return values all over a scalar's domain, in order: its ends, near them on a scale of logarithms, and between.

    Args:
        domain: The domain of a scalar.

    Example:
        >>> len(telling_values(Domain(DomainKind.POSITIVE)))
        21
    """
    if domain.kind is DomainKind.INTEGER:
        return sorted(scalar_ladder(domain))
    low, high = float_bounds(domain)
    found: set[float] = set()
    if low > -math.inf and high < math.inf:
        width = high - low
        found |= {low, high, low + width / 2}
        found |= {value for share in _SHARES for value in (low + share * width, high - share * width)}
    elif low > -math.inf or high < math.inf:
        end, sign = (low, 1) if low > -math.inf else (high, -1)
        found |= {end + sign * math.ldexp(1.0, power) for power in _POWERS}
        found |= {end} if end == 0 or domain.kind is DomainKind.INTERVAL else set()
    else:
        found |= {sign * math.ldexp(1.0, power) for power in _POWERS for sign in (1, -1)} | {0.0}
    return sorted(value + 0.0 for value in found if within(domain, value) and (value == 0 or abs(value) >= _LEAST))


def budget_of(claim: Claim, setting: Setting, sizes: dict[str, int], search: int | None) -> int:
    """Return how many runs a sweep of one setting may take: many where they are cheap.

    Args:
        claim: A claim with a training run.
        setting: One of its settings.
        sizes: The sizes of the instances.
        search: The budget `--search`, or None: the default one, `TRAINED_BUDGET`.
    """
    share = 1.0 if search is None else search / TRAINED_BUDGET
    return max(LEAST, int(min(MOST, WORK / twin_of(claim).cost(claim, setting, sizes)) * share))


def sweep(
    claim: Claim,
    setting: Setting,
    bases: Sequence[Instance],
    *,
    seed: int,
    search: int | None,
    **how: Unpack[Judging],
) -> Attack:
    """Move the scalars of a training claim on a few instances, and judge what breaks it or comes closest.

    Args:
        claim: A claim with a training run.
        setting: One of its settings.
        bases: Instances to start from, the most telling first.
        seed: The run's seed.
        search: The budget `--search`, or None: the default one, `TRAINED_BUDGET`.
        how: What `ClaimScorer` takes.

    Raises:
        DeadlineError: The deadline passed.
    """
    course = _Sweep(claim, setting, seed, how, [constants_of(base) for base in bases])
    chosen = list(bases[:BASES]) or [instance_at(setting, claim.given, 0, seed)]
    if scalars(claim, setting):
        left = sum(budget_of(claim, setting, dict(base.sizes), search) for base in chosen) // len(chosen)
        for place, base in enumerate(chosen):
            share = max(1, left // (len(chosen) - place))
            left -= course.around(base, share)
            if course.refuted is not None:
                break
    return course.attack()


@dataclass(frozen=True)
class _Seen:
    """An instance that a short run has scored."""

    margins: tuple[float, ...]
    instance: Instance

    @property
    def margin(self) -> float:
        return min(self.margins)


@dataclass
class _Sweep:
    """The sweep of one setting: what was scored, and what was judged of it."""

    claim: Claim
    setting: Setting
    seed: int
    how: Judging
    counted: list[dict[str, float]]
    seen: list[_Seen] = field(default_factory=list)
    judged: list[Judgement] = field(default_factory=list)
    refuted: Judgement | None = None
    evaluations: int = 0

    def __post_init__(self) -> None:
        """Build the two scorers: of a run, and of the hypotheses alone."""
        claim, setting = self.claim, self.setting
        self._free, self._drawing = scalars(claim, setting), setting.drawing
        self._run = twin_of(claim).scorer(claim, setting, **self.how)
        self._start = ClaimScorer(at_the_start(claim), setting, **self.how)

    def around(self, base: Instance, budget: int) -> int:
        """Sweep each scalar in turn, from the worst instance found so far; return how many runs that took."""
        first, best = self.evaluations, base
        names = list(self._free)
        turns = len(names) * (1 if len(names) == 1 else 2)
        share = max(LEAST // 2, budget // turns)
        for turn in range(turns):
            left = budget - (self.evaluations - first)
            if left <= 0 or self.refuted is not None:
                break
            best = self._line(best, names[turn % len(names)], min(share, left))
        return self.evaluations - first

    def _line(self, base: Instance, name: str, budget: int) -> Instance:
        """Score values of one scalar, then more about the worst of them; return the worst instance."""
        values = self._feasible_values(base, name)
        coarse = max(2, budget - _ZOOMS * _ZOOMED) if budget > 2 * _ZOOMED else budget
        line = dict(self._scored(base, name, _thinned(values, coarse)))
        for _ in range(_ZOOMS):
            if not line or self.refuted is not None or budget - len(line) < _ZOOMED:
                break
            known = sorted(line)
            place = min(range(len(known)), key=lambda i: (line[known[i]].margin, i))
            around = known[max(0, place - 1) : place + 2]
            finer = [a + (b - a) * k / 4 for a, b in pairwise(around) for k in (1, 2, 3)]
            fresh = [v for v in finer if v not in line and within(self._free[name].domain, v)]
            line |= dict(self._scored(base, name, fresh))
        return min(line.values(), key=lambda seen: seen.margin).instance if line else base

    def _scored(self, base: Instance, name: str, values: Sequence[float]) -> Iterator[tuple[float, _Seen]]:
        """Score the instance with other values of a scalar; what breaks the claim for sure ends it."""
        fresh = []
        for value in values:
            moved = self._moved(base, name, value)
            self.evaluations += 1
            scores = self._run(moved, {})
            if not bool(scores.feasible[0] > 0):
                continue
            found = _Seen(tuple(scores.goals[0].tolist()), moved)
            self.seen.append(found)
            fresh.append(found)
            yield value, found
        for goal, strict in enumerate(self._run.strict):
            broken = [f for f in fresh if f.margins[goal] < (0.0 if strict else -_CLEAR)]
            worst = sorted(broken, key=lambda f: f.margins[goal])
            for found in [*worst[:1], *worst[len(worst) // 2 : len(worst) // 2 + 1]]:
                self._judge(found)

    def _judge(self, found: _Seen) -> None:
        if self.refuted is not None or len(self.judged) >= _TRIALS:
            return
        judgement = judge_instance(self.claim, found.instance, **self.how)
        self.judged.append(judgement)
        if refutes(judgement):
            self.refuted = judgement

    def _moved(self, base: Instance, name: str, value: float) -> Instance:
        """Return the instance with another value of a scalar, and with it what is drawn with that scalar."""
        moved = with_values(base, **{name: value})
        if name in self._drawing:
            moved = redrawn(self.setting, moved, self.seed)
        searched = f"{base.family.split('; searched')[0]}; searched: {name} = {format_number(value)}"
        return replace(moved, family=searched, solved=frozenset())

    def _feasible_values(self, base: Instance, name: str) -> list[float]:
        """Return values of a scalar at which no hypothesis known at the start fails, those next to an edge included."""
        values = sorted({*telling_values(self._free[name].domain), float(base.values[name])})
        if not self._start.hypotheses:
            return values
        margins = self._slack(base, name, values)
        for _ in range(_ROUNDS if max(margins) <= 0 else 0):  # a range of values between two of these, if any
            place = margins.index(max(margins))
            around = values[max(0, place - 1) : place + 2]
            values = sorted({a + (b - a) * k / 8 for a, b in pairwise(around) for k in range(9)})
            margins = self._slack(base, name, values)
        meets = [margin > 0 for margin in margins]
        found = {value for value, good in zip(values, meets, strict=True) if good}
        for i in range(len(values) - 1):
            if meets[i] != meets[i + 1]:
                inside, outside = (values[i], values[i + 1]) if meets[i] else (values[i + 1], values[i])
                gap = outside - inside
                edge = self._edge(base, name, inside, outside)
                near = [edge - share * gap for share in _NEAR_CUT]
                good = self._meets(base, name, near)
                found |= {value for value, fine in zip(near, good, strict=True) if fine}
        return sorted(value for value in found if within(self._free[name].domain, value))

    def _edge(self, base: Instance, name: str, inside: float, outside: float) -> float:
        """Return the last value from inside towards outside that meets the hypotheses, nearly."""
        for _ in range(_ROUNDS):
            cuts = [inside + (outside - inside) * k / 16 for k in range(1, 16)]
            meets = self._meets(base, name, cuts)
            count = next((i for i, good in enumerate(meets) if not good), len(cuts))
            outside = cuts[count] if count < len(cuts) else outside
            inside = cuts[count - 1] if count else inside
        return inside

    def _meets(self, base: Instance, name: str, values: Sequence[float]) -> list[bool]:
        return [margin > 0 for margin in self._slack(base, name, values)]

    def _slack(self, base: Instance, name: str, values: Sequence[float]) -> list[float]:
        """Return the smallest margin of the hypotheses known at the start, for each value of a scalar."""
        with torch.no_grad():
            if name in self._drawing:
                return [float(self._start(self._moved(base, name, value), {}).feasible[0]) for value in values]
            column = torch.tensor(values, dtype=torch.float64)
            return [float(margin) for margin in self._start(base, {name: column}).feasible]

    def attack(self) -> Attack:
        """Judge the nearest misses too, and return everything."""
        known = {id(judgement.instance) for judgement in self.judged}
        near = sorted((f for f in self.seen if id(f.instance) not in known), key=lambda f: f.margin)
        near = [f for f in near if constants_of(f.instance) not in self.counted]  # judged on the ladder
        for found in near[:_NEAR_MISSES] if self.refuted is None else ():
            self._judge(found)
        return Attack(
            tuple(j for j in self.judged if refutes(j)),
            tuple(j for j in self.judged if not refutes(j)),
            self.evaluations,
        )


def _thinned(values: Sequence[float], count: int) -> list[float]:
    """Return so many of the values at most, the ends among them."""
    if len(values) <= count:
        return list(values)
    return [values[round(i * (len(values) - 1) / max(1, count - 1))] for i in range(count)]
