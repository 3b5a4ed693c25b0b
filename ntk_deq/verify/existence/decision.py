"""The stage of a judgement that decides whether what a claim says exists does, on one instance.

Values for it are tried: each is judged in its place, and proven or dropped. On an instance, the claim about the values
alone has the conclusions for hypotheses: what meets them for certain shows that something exists. Equations among them
are solved for the values, and a solution near floats is proven, as for any claim (`ntk_deq.verify.equations`); floats
are decided in balls and in exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice

import torch
from flint import fmpq
from torch import Tensor

from ntk_deq.certified.algebraic import UndecidedError
from ntk_deq.certified.algebraic_matrix import ExactMatrix
from ntk_deq.claims.claim import Claim
from ntk_deq.claims.existence import membership
from ntk_deq.errors import ExpressionError, LimitError, NtkDeqError
from ntk_deq.evaluation.environment import OutsideClaimError
from ntk_deq.evaluation.exact import ExactNames, decided
from ntk_deq.evaluation.functions import ExactValue as Value
from ntk_deq.evaluation.functions import as_exact_matrix as as_matrix
from ntk_deq.evaluation.instance import Instance, shape_of
from ntk_deq.evaluation.quantity import Outcome, Truth
from ntk_deq.falsify.domains import contains
from ntk_deq.falsify.search import Space
from ntk_deq.language.declaration import Draw, Setting
from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import Expr, Formula
from ntk_deq.language.typing import infer
from ntk_deq.verify.existence import Constraints, constraints_of
from ntk_deq.verify.existence.contradiction import Contradiction, Point, contradicting_combination, linear_point
from ntk_deq.verify.existence.numbers import (
    broken_alone,
    contradicting_numbers,
    contradicting_whole_numbers,
    needed_constant,
    whole_numbers,
)
from ntk_deq.verify.formulas import exact_names
from ntk_deq.verify.judge import Judgement, Standing, decided_exactly, judge_instance
from ntk_deq.verify.scoring import ClaimScorer

_BY_EQUATIONS = frozenset({DomainKind.ORTHOGONAL, DomainKind.UNIT_ROWS})
"""Domains of which floats hold few members: that a value lies in one is an equation among the others."""

_STARTS, _ROUNDS = 6, 60  # of a descent: points that it starts from, steps of L-BFGS
_INSIDE = 1e-3  # relative margin that a descent wants of an inequality
_BITS = 128
_TRIVIAL = "0 < 1"


@dataclass(frozen=True)
class Trial:
    """The claim about values on one instance: its conclusions are hypotheses, and only the values may vary.

    Attributes:
        claim: That claim.
        instance: The instance, without values.
        exists: What is looked for.
        deadline: When to stop, on the clock of `time.thread_time`.
    """

    claim: Claim
    instance: Instance
    exists: Mapping[str, Free]
    deadline: float | None = None

    def proven(self, values: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """Return values near the given ones of which some that meet the conclusions are proven to lie near, or None.

        Raises:
            DeadlineError: The deadline passed.
        """
        if self.instance.solved:
            return None  # its floats stand for a solution near them, which nothing here knows
        start = replace(self.instance, values={**self.instance.values, **values}, index=0)
        try:
            judgement = judge_instance(self.claim, start, deadline=self.deadline)
            if judgement.standing is Standing.UNSURE:
                judgement = self._again(judgement)
        except (LimitError, OutsideClaimError):
            return None
        if judgement.standing is not Standing.MET:
            return None
        found = {name: judgement.instance.values[name] for name in self.exists}
        solved = judgement.instance.solved
        domains = self.claim.given
        inside = all(name in solved or contains(domains[name].domain, value) for name, value in found.items())
        return found if inside else None

    def _again(self, judgement: Judgement) -> Judgement:
        try:
            again = judge_instance(self.claim, judgement.instance, deadline=self.deadline, precision=_BITS)
        except LimitError:
            again = judgement
        best = again if again.standing is not Standing.UNSURE else judgement
        return decided_exactly(self.claim, best, dtype=torch.float64)


def trial_of(claim: Claim, instance: Instance, deadline: float | None = None) -> Trial:
    """Return the claim about what exists on an instance; judging it stops at the deadline."""
    stated, resting = claim.stated, claim.resting
    setting = claim.setting_named(instance.setting)
    assume = {name: formula for name, formula in stated.conclude.items() if name in resting}
    given = dict(stated.exists)
    for name, free in stated.exists.items():
        if free.domain.kind in _BY_EQUATIONS:
            given[name] = replace(free, domain=Domain(DomainKind.REAL))
            text = membership(free)
            assert text is not None
            assume[f"{name} in {free.domain.text}"] = _typed_membership(free, text, setting)
    position = claim.position
    trivial = Formula("any", _TRIVIAL, infer(parse(_TRIVIAL), {}), position)
    known = {**setting.free, **stated.given}  # which do not vary any more
    still = {name: Draw(name, free.type, parse("zeros"), "zeros") for name, free in known.items()}
    alone = replace(setting, free={}, draws={**setting.draws, **still})
    about = replace(
        stated, settings=(alone,), given=given, exists={}, assume=assume, conclude={"any": trivial}, mutates=None
    )
    return Trial(about, instance, claim.exists, deadline)


def _typed_membership(free: Free, text: str, setting: Setting) -> Formula:
    typed = infer(parse(text), {free.name: free.type}, sizes=setting.sizes)
    return Formula(f"{free.name} in {free.domain.text}", text, typed, setting.position)


def exactly_met(claim: Claim, names: ExactNames, values: Mapping[str, Value], setting: Setting) -> bool:
    """Whether exact values lie in their domains and meet every conclusion that rests on them, decided exactly.

    Args:
        claim: The claim as stated.
        names: What its other names mean on the instance.
        values: The values.
        setting: The setting of the instance.
    """
    there = names.replaced(values)
    statements: list[Expr] = [claim.conclude[name].expr for name in claim.resting]
    for free in claim.exists.values():
        if free.domain.kind is DomainKind.INTEGER and not _is_whole(values[free.name]):
            return False
        text = membership(free)
        if text is not None:
            statements.append(_typed_membership(free, text, setting).expr)
    try:
        return all(decided(expr, there).truth in (Truth.TRUE, Truth.TIGHT) for expr in statements)
    except (UndecidedError, OutsideClaimError, ExpressionError):
        return False


def _is_whole(value: Value) -> bool:
    entries = value.entries if isinstance(value, ExactMatrix) else (value,)
    return all(isinstance(entry, fmpq) and entry.q == 1 for entry in entries)


def plain_values(trial: Trial) -> Iterator[dict[str, Tensor]]:
    """Yield plain values to try: zeros, multiples of the identity, variables of the instance of the same shape."""
    sizes = trial.instance.sizes
    shapes = {name: shape_of(free.type, sizes) for name, free in trial.exists.items()}
    for number in (0.0, 1.0, -1.0, 0.5, 2.0, 4.0, 64.0, 2.0**-6):
        yield {name: _pattern(free, shapes[name], number) for name, free in trial.exists.items()}
    known = [value for value in trial.instance.values.values()]
    known += [value.mT.contiguous() for value in known if value.ndim == 2]
    for value in known:
        found = {name: value for name in shapes if tuple(value.shape) == shapes[name]}
        if len(found) == len(shapes):
            yield found


def _pattern(free: Free, shape: tuple[int, ...], number: float) -> Tensor:
    """Return a value of a shape: a number, a constant vector, or a multiple of the identity, inside an interval."""
    domain = free.domain
    if domain.kind in (DomainKind.INTERVAL, DomainKind.INTEGER):
        low = float("-inf") if domain.low is None else float(domain.low)
        high = float("inf") if domain.high is None else float(domain.high)
        if not low <= number <= high or contains(domain, torch.tensor(number, dtype=torch.float64)) is False:
            number = _inside(low, high)
        return torch.full(shape, number, dtype=torch.float64)
    if domain.kind in (DomainKind.POSITIVE, DomainKind.NONNEGATIVE):
        return torch.full(shape, abs(number), dtype=torch.float64)
    if domain.kind is DomainKind.SKEW:
        return torch.zeros(shape, dtype=torch.float64)
    if domain.kind is DomainKind.UNIT_ROWS:
        rows = torch.zeros(shape, dtype=torch.float64)
        rows[..., 0] = 1.0 if number >= 0 else -1.0
        return rows
    if len(shape) < 2:
        return torch.full(shape, number, dtype=torch.float64)
    return number * torch.eye(*shape, dtype=torch.float64)


def _inside(low: float, high: float) -> float:
    if low > float("-inf") and high < float("inf"):
        return low + (high - low) / 2
    return low + 1.0 if low > float("-inf") else high - 1.0


def descended_values(trial: Trial, seed: int) -> Iterator[dict[str, Tensor]]:
    """Yield values at which a descent on the violations of the conclusions in floats ends, the best first.

    Args:
        trial: The claim about the values.
        seed: Of the points that it starts from.
    """
    generator = torch.Generator().manual_seed(seed)
    shapes = {name: shape_of(free.type, trial.instance.sizes) for name, free in trial.exists.items()}
    first = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    base = replace(trial.instance, values={**trial.instance.values, **first})
    try:
        scorer = ClaimScorer(trial.claim, trial.claim.settings[0], solving=False)
        space = Space(dict(trial.claim.given), base, smooth=True)
        start = torch.randn((_STARTS, space.size), generator=generator, dtype=torch.float64)
        points, losses = _descent(scorer, space, base, start)
    except (NtkDeqError, RuntimeError):  # a formula without a value or a slope there
        return
    for place in losses.argsort().tolist()[:3]:
        if bool(losses[place].isfinite()):
            yield {name: values[place].detach().clone() for name, values in space.decode(points).items()}


def _descent(scorer: ClaimScorer, space: Space, base: Instance, start: Tensor) -> tuple[Tensor, Tensor]:
    points = start.clone().requires_grad_(True)

    def losses() -> Tensor:
        scores = scorer(base, space.decode(points))
        wanted = torch.tensor([0.0 if equation else _INSIDE for equation in scores.equations], dtype=torch.float64)
        return torch.relu(wanted - scores.hypotheses).square().sum(1)

    optimizer = torch.optim.LBFGS([points], max_iter=_ROUNDS, line_search_fn="strong_wolfe", tolerance_change=1e-14)

    def closure() -> Tensor:
        optimizer.zero_grad()
        total = losses().nan_to_num(nan=0.0).sum()
        total.backward()
        return total

    optimizer.step(closure)
    with torch.no_grad():
        return points.detach(), losses()


FIRST = 3
"""Values that are tried before it is asked whether there are none."""

_OPEN = (Truth.UNSURE, Truth.STRICT_TIGHT)

IN_VAIN = 6
"""So many instances in a row on which nothing was found, and nothing is descended to any more."""


class ExistenceStage:
    """Decides what judgements of one claim leave open about what it says exists.

    Args:
        claim: The claim.
        seed: Of the searches.
        refuting: Look for proofs that nothing exists alone.
        deadline: When to stop, on the clock of `time.thread_time`.
    """

    def __init__(self, claim: Claim, seed: int = 0, *, refuting: bool = False, deadline: float | None = None) -> None:
        self._deadline = deadline
        self._claim, self._seed, self._sought = claim, seed, bool(claim.sought) and not refuting
        self._stated = claim.stated
        self._in_vain = 0
        self._least: list[tuple[float, Instance]] = []
        self._alone = self._others = 0

    def trend(self) -> str:
        """Say of constants that exist on each instance, where one for all is asked for, how large they must be."""
        if not self._alone or self._others:
            return ""
        names = ", ".join(self._claim.exists)
        words = f"on each of {self._alone} instances {names} exists, and none is shown to serve all of them at once"
        if self._least:
            sizes = sorted({tuple(i.sizes.items()) for _, i in self._least}, key=lambda s: sum(v for _, v in s))
            ends = dict.fromkeys((sizes[0], sizes[-1]))
            shown = [max(n for n, i in self._least if tuple(i.sizes.items()) == size) for size in ends]
            where = [", ".join(f"{letter} = {value}" for letter, value in size) for size in ends]
            parts = [f"{n:.4g}" + (f" at {place}" if place else "") for n, place in zip(shown, where, strict=True)]
            words += f"; the largest that instances need is {' and '.join(parts)}, in floats, which is no witness"
        return f"{words}; a `witness` would say what serves"

    def _counted(self, judgement: Judgement, held: Judgement) -> Judgement:
        """Count an instance on which constants exist, where one for all is asked for: it shows nothing more."""
        self._alone += 1
        least = needed_constant(self._stated, judgement.instance)
        self._least += [] if least is None else [(least, judgement.instance)]
        reason = f"{', '.join(self._claim.exists)} exists for this instance, which does not show one for all"
        return _said(held, self._claim.resting, Truth.UNSURE, reason)

    def decide(self, judgement: Judgement, dtype: torch.dtype = torch.float64) -> Judgement:
        """Return a judgement with what exists, or certainly does not, where it left that open; else the given one.

        Args:
            judgement: A judgement of the claim.
            dtype: Type to which the instance's values were rounded for it; what is decided here is about float64.

        Raises:
            DeadlineError: The deadline passed.
        """
        if not self._claim.exists or judgement.standing is Standing.UNMET or dtype is not torch.float64:
            return judgement
        if self._claim.run is not None:  # what steps are is not seen here
            return judgement
        left = {
            n for n in self._claim.resting if n in judgement.conclusions and judgement.conclusions[n].truth in _OPEN
        }
        if not left:
            return judgement
        setting = self._claim.setting_named(judgement.instance.setting)
        names = exact_names(self._stated, judgement.instance)
        ways = [] if names is None else constraints_of(self._stated, names, judgement.instance.sizes)
        points = [linear_point(way) for way in ways]
        exact = [way.at(p.entries) for way, p in zip(ways, points, strict=True) if isinstance(p, Point)]
        if names is not None and self._sought:
            exact = [*exact, *whole_numbers(self._stated)]
            for values in exact:
                if exactly_met(self._stated, names, values, setting):
                    return self._held(judgement, {name: _tensor(value) for name, value in values.items()})
        if self._sought:
            trial = trial_of(self._claim, judgement.instance, self._deadline)
            candidates = self._candidates(trial, exact)
            proven = next(self._proven(trial, islice(candidates, FIRST)), None)
            if proven is not None:
                return self._held(judgement, proven)
        contradiction = self._contradiction(ways, points, names)
        if contradiction is None and names is not None:
            contradiction = contradicting_whole_numbers(self._stated, names)
        if contradiction is None and names is not None:
            contradiction = contradicting_numbers(self._stated, names, setting, deadline=self._deadline)
        if contradiction is not None:
            return self._none(judgement, contradiction, left)
        if not self._sought:
            return judgement
        if self._in_vain < IN_VAIN:
            proven = next(self._proven(trial, candidates), None)
            if proven is not None:
                self._in_vain = 0
                return self._held(judgement, proven)
            self._in_vain += 1
        return self._open(judgement)

    def _contradiction(
        self, ways: Sequence[Constraints], points: Sequence[Point | Contradiction | None], names: ExactNames | None
    ) -> Contradiction | None:
        """Return what contradicts itself, whichever of the alternatives is chosen."""
        found = []
        for way, point in zip(ways, points, strict=True):
            known = point if isinstance(point, Contradiction) else None
            if isinstance(point, Point) and point.alone is not None and names is not None:
                known = broken_alone(self._stated, names, way.at(point.entries), point.alone)
            known = known or contradicting_combination(way)
            if known is None:
                return None
            found.append(known)
        if not found:
            return None
        together = frozenset[str]().union(*(known.names for known in found))
        return Contradiction(together, "; ".join(dict.fromkeys(known.why for known in found)))

    def _candidates(self, trial: Trial, exact: Sequence[Mapping[str, Value]]) -> Iterator[dict[str, Tensor]]:
        """Yield values to try: those of linear algebra, two plain ones, those that descents end at, the others."""
        shapes = {name: shape_of(free.type, trial.instance.sizes) for name, free in trial.exists.items()}
        for values in exact[:1]:
            yield {name: _tensor(value).reshape(shapes[name]) for name, value in values.items()}
        plain = plain_values(trial)
        yield from islice(plain, FIRST - 1)
        yield from descended_values(trial, self._seed)
        yield from plain

    @staticmethod
    def _proven(trial: Trial, values: Iterator[dict[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
        return (proven for near in values if (proven := trial.proven(near)) is not None)

    def _open(self, judgement: Judgement) -> Judgement:
        """Say how something was looked for in vain."""
        self._others += 1
        names = ", ".join(self._claim.exists)
        reason = f"no {names} was found, by linear algebra, among plain values or by descent; nor a proof that none is"
        return _said(judgement, self._claim.resting, Truth.UNSURE, reason)

    def _held(self, judgement: Judgement, values: Mapping[str, Tensor]) -> Judgement:
        """Return the judgement with values that are proven to serve."""
        conclusions = dict(judgement.conclusions)
        conclusions |= {name: Outcome(Truth.TRUE) for name in self._claim.resting}
        reasons = [o.reason for o in conclusions.values() if o.reason and o.truth is not Truth.TRUE]
        reason = "; ".join(dict.fromkeys(reasons))
        held = replace(judgement, conclusions=conclusions, reason=reason, found=dict(values))
        return self._counted(judgement, held) if self._claim.uniform else held

    def _none(self, judgement: Judgement, contradiction: Contradiction, left: set[str]) -> Judgement:
        """Return the judgement where nothing exists: the conclusions of the argument are false together."""
        together = ""
        names = contradiction.names & left or left
        if len(contradiction.names) > 1:
            together = f" with {' and '.join(map(repr, sorted(contradiction.names)))} together"
        reason = f"no {', '.join(self._claim.exists)} exists here{together}: {contradiction.why}"
        return _said(judgement, names, Truth.FALSE, reason)


def _said(judgement: Judgement, names: Set[str], truth: Truth, reason: str) -> Judgement:
    """Return a judgement with the same outcome for some conclusions, for a reason."""
    outcomes = dict.fromkeys(names, Outcome(truth, None, reason))
    return replace(judgement, conclusions={**judgement.conclusions, **outcomes}, reason=reason)


def _tensor(value: Value) -> Tensor:
    """Return exact numbers rounded to floats."""
    value = as_matrix(value)
    rows, columns = value.shape
    entries = [int(e.p) / int(e.q) for e in value.entries]  # type: ignore[union-attr]
    return torch.tensor(entries, dtype=torch.float64).reshape(rows, columns)
