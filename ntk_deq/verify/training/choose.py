"""Choose a claim's free constants by an optimiser, so that a theorem is tried where it is strongest.

The constants move in coordinates in which their domains are the real line (logarithms for positive ones). A candidate
that meets every hypothesis counts by the logarithm of the objective; one that does not counts as worse than all that
do, by how much its hypotheses lack. Constants on which draws depend (a scale of the initialisation) or the model's map
(its hyperparameters) move by pattern search, since each of their values asks for another equilibrium; for each of these
the others are optimised by CMA-ES (package `cma`), many candidates at once.

A theorem is not borne out by one corner of its hypotheses. So further choices have other aims (`aims_of`), such as a
hypothesis that just holds, and start from the first one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from ntk_deq.claims.claim import Claim
from ntk_deq.errors import ArgumentError, NtkDeqError
from ntk_deq.evaluation.instance import Instance, format_number, with_values
from ntk_deq.evaluation.margins import parts
from ntk_deq.falsify import redrawn
from ntk_deq.falsify.domains import stream, within
from ntk_deq.falsify.search import Chart, chart
from ntk_deq.falsify.search.descents import evolve
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Domain, Free
from ntk_deq.language.expansion import substituted
from ntk_deq.language.tree import Expr, Kind, Span
from ntk_deq.language.types import SCALAR
from ntk_deq.verify.formulas import Judging
from ntk_deq.verify.scoring import ORDERS, ClaimScorer, is_number
from ntk_deq.verify.training.between import at_the_start, bounds_of_loss
from ntk_deq.verify.twins import twin_of

DRAWS = 2
"""Draws on which constants are chosen for each further aim."""

DEARER = 2.0
"""Settings that cost more times as much as the cheapest one are left to the claim's own objective."""

_LEVELS = (0.1, 0.5, 0.9)
_FIRST = 100.0  # weight of an aim against the claim's own objective, both in logarithms
_AT = 0.01  # an aim is reached to one per cent
_FARTHEST = 200.0  # in logarithms
_LEAST = 1e-300  # about the least float


def log_of(value: Tensor) -> Tensor:
    """Return a logarithm that grows with a number of either sign, zero at zero, and is finite for every float.

    Example:
        >>> log_of(torch.tensor([-1.0, 0.0, 1e300], dtype=torch.float64)).round().tolist()
        [-691.0, 0.0, 1382.0]
    """
    return value.sign() * ((value.abs() + _LEAST).log() - math.log(_LEAST))


@dataclass(frozen=True)
class Aim:
    """What constants are chosen for; where several choices do equally well, the claim's own objective decides.

    Attributes:
        words: In words.
        ratio: Two scalar formulas whose quotient is to be `target`; a ratio of 1 makes a hypothesis tight.
        target: That number.
        extreme: A scalar formula to make large, or small.
        maximize: Which of the two.
    """

    words: str
    ratio: tuple[Expr, Expr] | None = None
    target: float = 1.0
    extreme: Expr | None = None
    maximize: bool = True

    def height(self, scorer: ClaimScorer, base: Instance, moving: dict[str, Tensor], objective: Tensor) -> Tensor:
        """Return how bad candidates that meet the hypotheses are, from how bad they are for the claim's objective.

        Raises:
            NtkDeqError: A formula has no value.
        """
        if self.ratio is not None:
            left, right = (scorer.values(base, moving, side) for side in self.ratio)
            off = (left / right / self.target).abs().log().abs()
            return _FIRST * (torch.nan_to_num(off, nan=_FARTHEST, posinf=_FARTHEST) - _AT).clamp_min(0.0) + objective
        if self.extreme is not None:
            sign = -1.0 if self.maximize else 1.0
            return sign * _FIRST * log_of(scorer.values(base, moving, self.extreme)) + objective
        return objective

    def reached(self, scorer: ClaimScorer, instance: Instance) -> bool:
        """Whether a quotient is where it is to be; what is to be large or small never is.

        Args:
            scorer: Of the claim at its start.
            instance: An instance that meets the hypotheses.
        """
        if self.ratio is None:
            return False
        left, right = (scorer.values(instance, {}, side) for side in self.ratio)
        return bool((left / right / self.target).abs().log().abs() <= 2 * _AT)


OWN = Aim("the objective of the claim")
"""The aim of a claim that says nothing else."""


def aims_of(claim: Claim, setting: Setting) -> list[Aim]:
    """Return further aims for which constants of a claim are chosen.

    A hypothesis that bounds a quantity by a number, as gamma0 < 1, is met by a factor of 10, 2 and 10/9; each other one
    that compares two quantities just holds; the rate at which the loss is bounded is largest, where the objective is
    not one of the same quantities; each constant that scales a draw is smallest, and each of the model's map largest.

    Args:
        claim: A claim with `choose`.
        setting: One of its settings.
    """
    found = []
    for name, formula in at_the_start(claim).assume.items():
        for part in parts(name, formula.expr):
            ordered = part.expr.kind is Kind.COMPARE and len(part.expr.args) == 2 and part.expr.operators[0] in ORDERS
            if ordered and all(map(is_number, part.expr.args)):
                small, large = part.expr.args if part.expr.operators[0] in ("<", "<=") else part.expr.args[::-1]
                if large.kind is Kind.NUMBER:
                    found += [Aim(f"{name} at {at:g} of its limit", (small, large), at) for at in _LEVELS]
                else:
                    found.append(Aim(f"{name} tight", (small, large)))
    twin = twin_of(claim)
    rates = [] if twin.soon is None else _rates(claim, twin.soon)
    own = set() if claim.choose is None or not claim.choose.maximize else _names(claim.choose.objective.expr)
    found += [Aim("largest rate", extreme=rate) for rate in rates[:1] if not _names(rate) <= own]
    scorer = ClaimScorer(at_the_start(claim), setting)
    for name in scalars(claim, setting):
        itself = Expr(Kind.NAME, Span(0, 0), name=name)
        if name in setting.drawing:
            found.append(Aim(f"smallest {name}", extreme=itself, maximize=False))
        elif scorer.moves_state({name}):
            found.append(Aim(f"largest {name}", extreme=itself))
    return found


def _names(expr: Expr) -> set[str]:
    """Return the names that an expression reads without a step: those of a bound's L[0] cancel in its rate."""
    return {node.name for node in expr.walk() if node.kind is Kind.NAME}


def _rates(claim: Claim, soon: Fraction) -> list[Expr]:
    """Return formulas of the share by which bounds L[k] <= B(k) of the conclusions fall at first: 1 - B(h)/B(0)."""
    found = []
    for index, bound in (each for formula in claim.conclude.values() for each in bounds_of_loss(formula.expr)):
        early, start, one = (Expr(Kind.NUMBER, bound.span, value=Fraction(at)) for at in (soon, 0, 1))
        kept = Expr(Kind.DIVIDE, bound.span, tuple(substituted(bound, {index: at}) for at in (early, start)))
        found.append(Expr(Kind.SUBTRACT, bound.span, (one, kept)))
    return found


def scalars(claim: Claim, setting: Setting) -> dict[str, Free]:
    """Return the scalars over which a claim quantifies: its own and those of a setting."""
    free = {**setting.free, **claim.given}
    return {name: variable for name, variable in free.items() if variable.type == SCALAR}


def shared_out(claim: Claim, chosen: dict[str, Instance]) -> Iterator[tuple[Setting, Aim, int]]:
    """Yield the further aims of a claim, each with a setting to try it in and a number: settings take turns.

    Args:
        claim: A claim with `choose`.
        chosen: By setting: an instance whose constants were chosen for the claim's own objective.
    """
    costs = {s.name: twin_of(claim).cost(claim, s, chosen[s.name].sizes) for s in claim.settings if s.name in chosen}
    cheap = [s for s in claim.settings if s.name in costs and costs[s.name] <= DEARER * min(costs.values())]
    for place, setting in enumerate(cheap):
        for number, aim in enumerate(aims_of(claim, setting)):
            if number % len(cheap) == place:
                yield setting, aim, number


BUDGET = 600
"""Candidates of CMA-ES at the start."""

COARSE = (-6.0, -3.0, 0.0, 3.0, 6.0, 9.0, 12.0)
"""Coordinates from which the pattern search starts: e^-6 to e^12 for a positive constant."""

FINE = (3.0, 1.5, 0.75, 0.35, 0.15)
"""Its steps after that."""

SHORT = (5.0, 5.0, 2.0)
"""Steps of the pattern search from a choice for another aim."""

MOST_DIAGONAL = 2
"""Constants that may move together in it."""

STEPS = (3.0, 1.0, 0.4)
"""Steps of the polish at first, in the coordinates of the constants."""

ROUNDS = 40
"""Rounds of it at most."""

SHORTER, SHORTER_STEPS = 12, (1.5,)
"""Rounds and steps of the polish after it."""

SMALLEST = 0.01
"""Scale of its steps at which it ends: one per cent of a positive constant."""

GAIN = 1e-3
"""Gain in the logarithm of the objective below which the steps shrink."""

SLACK = 1e-6
"""Relative margin that every hypothesis keeps, so that balls find it met."""

DIGITS = 4
"""Significant digits to which a chosen constant is rounded where the hypotheses allow it."""

_WRONG_SIGN = 200.0  # in logarithms, as all gaps: more than scales that floats bear lie apart
_LACKING = 1e6  # more than any difference of two logarithms of floats


@dataclass
class _Problem:
    """One claim's choice on one instance: the best candidate so far, and how candidates are measured.

    As a function it is what CMA-ES and the polish make small: of the constants on which no draw depends.
    """

    over: ClassVar[bool] = False

    claim: Claim
    setting: Setting
    base: Instance
    seed: int
    scorer: ClaimScorer
    charts: dict[str, Chart]
    domains: dict[str, Domain]
    inner: Sequence[str]
    start: Tensor
    aim: Aim = OWN
    lowest: float = math.inf
    least: float = math.inf
    best: float = math.inf
    found: Instance | None = None

    def measured(self, base: Instance, moving: dict[str, Tensor]) -> Tensor:
        """Return how bad each candidate is, and remember the best one that meets the hypotheses."""
        assert self.claim.choose is not None
        scores = self.scorer(base, moving)
        lack = (SLACK - scores.hypotheses).clamp_min(0.0)
        feasible = scores.defined & ~(lack > 0).any(1)
        try:
            gaps = self.scorer.gaps(base, moving)
        except NtkDeqError:
            return torch.full_like(lack[:, 0], 2 * _LACKING)
        # Where gamma0 > 1 fails, say, other bounds may hold by a wrong sign: that is no step towards a feasible choice.
        failing = ~feasible.unsqueeze(1) & (gaps == -math.inf)
        gaps = torch.where(failing, _WRONG_SIGN, gaps.clamp(0.0, _WRONG_SIGN))
        far = torch.nan_to_num(lack.sum(1) + gaps.sum(1), nan=_LACKING, posinf=_LACKING).clamp_max(_LACKING)
        values = torch.where(scores.defined, _LACKING + far, 2 * _LACKING)
        if bool(feasible.any()):
            try:
                objective = self.scorer.values(base, moving, self.claim.choose.objective.expr)
                height = log_of(objective) * (-1.0 if self.claim.choose.maximize else 1.0)
                height = self.aim.height(self.scorer, base, moving, height)
            except NtkDeqError:
                return values
            values = torch.where(feasible & objective.isfinite() & height.isfinite(), height, values)
        while float(values.min()) < min(self.best, _LACKING):
            place = int(values.argmin())
            candidate = with_values(base, **{name: float(column[place]) for name, column in moving.items()})
            if all(within(domain, float(candidate.values[name])) for name, domain in self.domains.items()):
                self.best, self.found = float(values[place]), candidate
                break
            values[place] = 2 * _LACKING  # a coordinate so large that it rounds to an end that the domain leaves out
        return values

    def drawn(self, at: dict[str, float]) -> Instance:
        """Return the instance with constants at some coordinates, and what is drawn with them drawn again."""
        numbers = {name: float(self.charts[name].decode(torch.tensor([[x]]).double())) for name, x in at.items()}
        return redrawn(self.setting, with_values(self.base, **numbers), self.seed)

    def __call__(self, vectors: Tensor, /) -> Tensor:
        """Return one value for each row of coordinates."""
        columns = zip(self.inner, vectors.double().split(1, dim=1), strict=True)
        values = self.measured(self._here, {name: self.charts[name].decode(x).reshape(-1) for name, x in columns})
        self.least = min(self.least, float(values.min()))
        return values

    def optimised(self, budget: int, rounds: int, sizes: Sequence[float], at: dict[str, float]) -> float:
        """Return the least value with the others at some coordinates; the next search starts where this ended."""
        self._here, self.least, start = self.drawn(at), math.inf, self.start
        if not self.inner:
            return float(self.measured(self._here, {}).min())
        if budget and self.lowest == math.inf:  # later ones start where the best one ended, which is close
            generator = stream(self.seed, self.setting.name, self._here.index, "choice of the constants")
            ended = evolve(self, start, budget, generator)
            start = ended[0][1].double() if ended else start
        point = _polished(self, start, rounds, sizes)
        if self.least < self.lowest:
            self.lowest, self.start = self.least, point
        return self.least


def choose_constants(
    claim: Claim,
    setting: Setting,
    instance: Instance,
    *,
    seed: int,
    aim: Aim = OWN,
    near: Instance | None = None,
    same: bool = False,
    **how: Unpack[Judging],
) -> Instance:
    """Return the instance with its given scalars chosen; as it was where no choice meets the hypotheses.

    Args:
        claim: A claim with `choose`.
        setting: One of its settings.
        instance: An instance of the setting; its sizes and what is not drawn with a given scalar stay.
        seed: The run's seed.
        aim: What they are chosen for.
        near: An instance with a choice for another aim, from which a shorter search starts; None: it starts anew.
        same: Whether `near` was chosen for the same aim, on other draws: the search is shorter still.
        how: What `ClaimScorer` takes.

    Raises:
        ArgumentError: The claim chooses nothing.
        DeadlineError: The deadline passed.
    """
    if claim.choose is None:
        raise ArgumentError(f"`claim` of choose_constants must have `choose`. {claim.id} has none.")
    domains = {name: variable.domain for name, variable in scalars(claim, setting).items()}
    charts = {name: chart(domain, (), smooth=True) for name, domain in domains.items()}
    scorer = ClaimScorer(at_the_start(claim), setting, **how)
    outer = [name for name in charts if name in setting.drawing or scorer.moves_state({name})]
    inner = [name for name in charts if name not in outer]
    start = torch.zeros(len(inner), dtype=torch.float64)
    problem = _Problem(claim, setting, instance, seed, scorer, charts, domains, inner, start, aim)
    if near is None:
        _pattern_search(problem, outer)
    else:
        places = {name: float(charts[name].encode(near.values[name].double()).reshape(-1)[0]) for name in charts}
        problem.start = torch.tensor([places[name] for name in inner], dtype=torch.float64)
        _shorter_search(problem, {name: places[name] for name in outer}, alone=same)
    if problem.found is None:
        return instance
    chosen = _plain(problem)
    words = ", ".join(f"{name} = {format_number(float(chosen.values[name]))}" for name in charts)
    purpose = "" if aim is OWN else f" for {aim.words}"
    return replace(chosen, family=f"{instance.family}; chosen{purpose}: {words}")


def _pattern_search(problem: _Problem, drawing: Sequence[str]) -> None:
    """Move the drawing constants one after another, first over a coarse grid and then by shrinking steps."""
    value, place = partial(problem.optimised, BUDGET, ROUNDS, STEPS), dict.fromkeys(drawing, 0.0)
    lowest = value(place)
    for step in (None, None, *FINE):
        for name in drawing:
            here = place[name]
            for x in COARSE if step is None else (here - step, here + step):
                trial = {**place, name: x}
                got = lowest if trial == place else value(trial)
                if got < lowest:
                    lowest, place = got, trial


def _shorter_search(problem: _Problem, place: dict[str, float], *, alone: bool) -> None:
    """Move the constants that ask for other equilibria by few steps, from where another search ended, or not at all."""
    value = partial(problem.optimised, 0, SHORTER, SHORTER_STEPS)
    lowest = value(place)
    if problem.found is not None and (alone or problem.aim.reached(problem.scorer, problem.found)):
        return
    # Along the diagonals as well: a larger gamma, say, asks for a larger scale of the start.
    directions = [signs for signs in product((1.0, -1.0, 0.0), repeat=len(place)) if any(signs)]
    if len(place) > MOST_DIAGONAL:
        directions = [signs for signs in directions if sum(map(abs, signs)) == 1]
    for step in SHORT:
        for signs in directions:
            trial = {name: x + sign * step for (name, x), sign in zip(place.items(), signs, strict=True)}
            got = value(trial)
            if got < lowest:
                lowest, place = got, trial
                if problem.found is not None and problem.aim.reached(problem.scorer, problem.found):
                    return
        if problem.aim.ratio is not None:
            return  # as near as the other constants can bring it


def _polished(objective: _Problem, point: Tensor, rounds: int, sizes: Sequence[float]) -> Tensor:
    """Move one or two coordinates at a time by steps that shrink: the best choice lies where hypotheses just hold.

    There the value is an edge, along which two constants have to move together; CMA-ES takes long to learn that.
    """
    size = len(point)
    steps = torch.tensor([sign * step for step in sizes for sign in (1.0, -1.0)] + [0.0], dtype=torch.float64)
    pairs = torch.cartesian_prod(steps, steps)
    moves = [torch.zeros(1, size, dtype=torch.float64)]
    for i in range(size):
        for j in range(i):
            move = torch.zeros(len(pairs), size, dtype=torch.float64)
            move[:, i], move[:, j] = pairs[:, 0], pairs[:, 1]
            moves.append(move)
    if size == 1:
        moves.append(steps[:, None])
    table, scale, lowest = torch.cat(moves), 1.0, math.inf
    for _ in range(rounds):
        values = objective(point + scale * table)
        place = int(values.argmin())
        better = float(values[place]) < lowest - GAIN
        lowest, point = min(lowest, float(values[place])), point + scale * table[place]
        scale = scale if better else scale / 3
        if scale < SMALLEST:
            break
    return point


def _plain(problem: _Problem) -> Instance:
    """Round the constants to few digits, one after another, where the hypotheses still hold and little is lost."""
    assert problem.found is not None
    best, value = problem.found, problem.best
    for name, domain in problem.domains.items():
        number = float(best.values[name])
        for digits in range(1, DIGITS + 1):
            rounded = float(f"{number:.{digits - 1}e}")
            if not within(domain, rounded):
                continue
            trial = redrawn(problem.setting, with_values(best, **{name: rounded}), problem.seed)
            got = float(problem.measured(trial, {})[0])
            if got <= value + 0.02:  # two per cent of the objective for a number that people can read
                best, value = trial, got
                break
    return best
