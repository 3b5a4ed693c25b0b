"""The smallest size or scalar at which the hypotheses of a claim are met: the width or the scale that a theorem needs.

A size letter is raised from the low end of its range until an instance meets the hypotheses for certain, and then
bisected, which may miss one in a gap between those tried; the other sizes and the constants are drawn, chosen
(`choose`) or searched for. A scalar is made small by the optimiser that serves `choose`. Both end at what they found:
an instance that meets the hypotheses is a fact, that none smaller does is what so many attempts say.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from ntk_deq.claims.claim import Choose, Claim, IllFormed
from ntk_deq.claims.depths import at_depth
from ntk_deq.errors import ArgumentError
from ntk_deq.evaluation.environment import DeadlineError
from ntk_deq.evaluation.instance import Instance, format_number, with_values
from ntk_deq.falsify import instance_at, redrawn
from ntk_deq.falsify.domains import within
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import DomainKind
from ntk_deq.language.tree import Expr, Formula, Kind, Span
from ntk_deq.language.types import BOOLEAN, SCALAR, SizeRange
from ntk_deq.verify.counterexamples import find_satisfying
from ntk_deq.verify.equations.plan import Equations
from ntk_deq.verify.feasible import planned
from ntk_deq.verify.judge import Standing, standing_instance
from ntk_deq.verify.options import Options
from ntk_deq.verify.results import ClaimResult, Finding, FindingKind
from ntk_deq.verify.training.choose import choose_constants, scalars
from ntk_deq.verify.twins import twin_of

ATTEMPTS = 3
"""Instances tried at each value of a size, at most, where constants are chosen or data drawn."""

ONE_BY_ONE = 8
"""Sizes above the low end that are tried one by one before the steps double."""

BOUNDS = 60
"""Searches for one smaller scalar after another, at most."""

NEAR = 0.98
"""A scalar is the smallest where no search finds one at most this part of it."""


def names_to_move(claims: Sequence[Claim | IllFormed]) -> frozenset[str]:
    """Return what `smallest_findings` can be asked for: size letters with a range, and quantified scalars."""
    whole = [claim for claim in claims if isinstance(claim, Claim)]
    parts = [at_depth(claim, depth) for claim in whole for depth in claim.depths]
    settings = [
        (claim, setting)
        for claim in (*(claim for claim in whole if not claim.depths), *parts)
        for setting in claim.settings
    ]
    depths = {
        letter
        for claim in whole
        for depth in claim.depths
        for letter, _ in depth.letters
        if letter not in claim.members
    }
    letters = depths | {letter for _, setting in settings for letter, size in setting.sizes.items() if not size.fixed}
    found = letters | {name for claim, setting in settings for name in scalars(claim, setting)}
    return frozenset(found | {_family(name) for name in found})


def _family(name: str) -> str:
    """The family that a member is of, or the name itself."""
    return name.partition("[")[0]


def _members(names: Sequence[str], claim: Claim, setting: Setting) -> Iterator[str]:
    """Yield the names that there are: a family stands for its members at this depth."""
    there = [*setting.sizes, *scalars(claim, setting)]
    for name in names:
        yield from dict.fromkeys(own for own in there if name in (own, _family(own)))


def smallest_findings(
    claim: Claim, names: Sequence[str], options: Options, *, deadline: float | None = None
) -> Iterator[Finding]:
    """Yield the smallest value found of each name in each setting that has it.

    Hypotheses about every step of a training run cannot be met for certain and are left out.

    Args:
        claim: The claim.
        names: Size letters or quantified scalars; a family of them stands for each of its members.
        options: How to search: seed, budget, device, dtype.
        deadline: When to stop, on the clock of `time.thread_time`.
    """
    tasks = [
        (setting, count, name) for setting, count in planned(claim, options) for name in _members(names, claim, setting)
    ]
    for place, (setting, count, name) in enumerate(tasks):
        size = setting.sizes.get(name)
        scalar = name in scalars(claim, setting)
        if (size is None or size.fixed) and not scalar:
            continue
        quick = setting.universal and claim.choose is None
        now = time.thread_time()
        share = None if deadline is None else now + (deadline - now) / (len(tasks) - place)
        search = _Search(claim, setting, count if quick else min(count, ATTEMPTS), options, share)
        try:
            yield search.smallest_scalar(name) if scalar or size is None else search.smallest_size(name, size)
        except DeadlineError:
            text = f"the smallest {name} in setting {setting.name}: the time limit ran out; {search.known(name)}"
            yield Finding(FindingKind.SMALLEST, text, search.detail(name))


def smallest_over_depths(
    claim: Claim, parts: Sequence[tuple[Claim, ClaimResult]], options: Options, *, deadline: float | None = None
) -> Iterator[Finding]:
    """Yield the smallest depth at which the hypotheses were met, and what `smallest_findings` finds at each depth.

    Args:
        claim: A claim with families.
        parts: The claim at each depth that was judged, with its result.
        options: How to search, and for which names.
        deadline: When to stop, on the clock of `time.thread_time`.
    """
    found = []
    for place, (part, _) in enumerate(parts):
        now = time.thread_time()
        share = None if deadline is None else now + (deadline - now) / (len(parts) - place)
        found.append(list(smallest_findings(part, options.smallest, options, deadline=share)))
    reached = [
        result.met > 0 or any(finding.detail["value"] is not None for finding in own)
        for (_, result), own in zip(parts, found, strict=True)
    ]
    for name in options.smallest:
        for setting in claim.settings:
            tried_depths = [
                (dict(part.depth.letters)[name], met, result)
                for (part, result), met in zip(parts, reached, strict=True)
                if part.depth is not None and part.depth.setting == setting.name and name in dict(part.depth.letters)
            ]
            if not tried_depths:
                continue
            least = min((value for value, met, _ in tried_depths if met), default=None)
            what = (
                f"no {name} met the hypotheses"
                if least is None
                else f"the smallest {name} that met the hypotheses is {least}"
            )
            tried = ", ".join(f"{r.met} of {r.instances} judged at {value}" for value, _, r in tried_depths)
            text = f"in setting {setting.name} {what}: {tried}"
            yield Finding(FindingKind.SMALLEST, text, {"name": name, "setting": setting.name, "value": least})
    for (part, _), own_findings in zip(parts, found, strict=True):
        yield from (replace(finding, text=f"at {part.depth}: {finding.text}") for finding in own_findings)


@dataclass
class _Search:
    """The search for one value in one setting."""

    claim: Claim
    setting: Setting
    count: int
    options: Options
    deadline: float | None
    best: Instance | None = None

    def smallest_size(self, name: str, size: SizeRange) -> Finding:
        """Raise the size until the hypotheses are met: one by one, then in steps that double, the last one bisected."""
        failed, value, step = size.low - 1, size.low, 1
        tried = [value]
        while not self._reached(name, value):
            if value == size.high:
                text = f"no {name} among {_listed(tried)} met {self._hypotheses}, with {self._attempts()} for each"
                return Finding(FindingKind.SMALLEST, self._placed(text), self.detail(name))
            step = step if value < size.low + ONE_BY_ONE else 2 * step
            failed, value = value, min(value + step, size.high)
            tried.append(value)
        while value - failed > 1:
            middle = (failed + value) // 2
            tried.append(middle)
            if self._reached(name, middle):
                value = middle
            else:
                failed = middle
        below = f"at {failed} none of {self._attempts()} met them" if failed >= size.low else "its range begins there"
        skipped = f"; tried: {_listed(sorted(tried))}" if len(tried) <= max(tried) - size.low else ""
        text = f"the smallest {name} that met {self._hypotheses} is {value}: {self._words()}; {below}{skipped}"
        return Finding(FindingKind.SMALLEST, self._placed(text), self.detail(name))

    def smallest_scalar(self, name: str) -> Finding:
        """Make the scalar small, the hypotheses kept.

        Where data are drawn the optimiser of `choose` does it on each of a few draws; else a search for an instance
        with a smaller value is repeated, the bound on the value coming closer and closer to the last one found.
        """
        if self.setting.universal:
            self._search_smaller(name)
            attempts = f"{self._attempts()} and searches"
        else:
            self._choose_smaller(name)
            attempts = self._attempts()
        if self.best is None:
            text = f"no {name} that met {self._hypotheses} was found, with {attempts}"
        else:
            value = self._value(name)
            found = f"the smallest {name} that met {self._hypotheses} is {format_number(value)}"
            text = f"{found}: {self._words()}; found with {attempts}"
        return Finding(FindingKind.SMALLEST, self._placed(text), self.detail(name))

    def _choosing(self, claim: Claim) -> Claim:
        """Return the claim with some aim for its scalars where data are drawn: they are chosen then, not drawn."""
        numbers = scalars(claim, self.setting)
        if claim.choose is not None or self.setting.universal or not numbers:
            return claim
        return _aimed(claim, next(iter(numbers)))

    def _choose_smaller(self, name: str) -> None:
        aiming = _aimed(self.claim, name)
        for index in range(self.count):
            start = instance_at(self.setting, self.claim.given, index, self.options.seed)
            found = self._met(self._chosen(aiming, start))
            if found is not None:
                found = self._bisected(found, name)
                smaller = self.best is None or bool(found.values[name] < self.best.values[name])
                self.best = found if smaller else self.best

    def _bisected(self, instance: Instance, name: str) -> Instance:
        """Make one scalar smaller as far as the hypotheses bear it, all others kept."""
        domain = scalars(self.claim, self.setting)[name].domain
        whole = domain.kind is DomainKind.INTEGER
        nearer = 0.5
        for _ in range(BOUNDS):
            value = _below(float(instance.values[name]), nearer)
            value = min(math.floor(value), float(instance.values[name]) - 1) if whole else value
            smaller = self._with(instance, name, value) if within(domain, value) else None
            if smaller is not None:
                instance = smaller
            elif nearer > NEAR:
                break
            else:
                nearer = nearer**0.5
        return instance

    def _with(self, instance: Instance, name: str, value: float) -> Instance | None:
        """Return the instance with another value of a scalar, and its draws anew, where it meets the hypotheses."""
        met = self._met(redrawn(self.setting, with_values(instance, **{name: value}), self.options.seed))
        return met if met is not None and float(met.values[name]) == value else None

    def _search_smaller(self, name: str) -> None:
        equations = Equations(self.claim, self.setting).found  # which may give the scalar
        for index in range(self.count):
            tried = instance_at(self.setting, self.claim.given, index, self.options.seed)
            if self.best is not None and not equations and not tried.values[name] < self.best.values[name]:
                continue
            met = self._met(tried)
            if met is not None and (self.best is None or bool(met.values[name] < self.best.values[name])):
                self.best = met
        if self.options.search == 0:
            return
        across = not within(scalars(self.claim, self.setting)[name].domain, -1.0)
        nearer = 0.25  # the next value is at most this part of the last one
        for _ in range(BOUNDS):
            bound = None if self.best is None else _below(float(self.best.values[name]), nearer)
            found = self._searched(self.claim if bound is None else _bounded(self.claim, name, bound), self.setting)
            if found is None and bound is not None and nearer > NEAR and not across:
                across = True  # what is met near zero from above may be met below zero, too
                bound = -abs(bound)
                found = self._searched(_bounded(self.claim, name, bound), self.setting)
            if found is not None:
                self.best = found
            elif bound is None or nearer > NEAR:
                return
            else:
                nearer = nearer**0.5

    def known(self, name: str) -> str:
        """What was found so far, in words."""
        if self.best is None:
            return "nothing had met the hypotheses by then"
        return f"{name} = {self._value(name):g} had met the hypotheses by then"

    def detail(self, name: str) -> dict[str, Any]:
        """The numbers behind the finding."""
        best = self.best
        numbers = {} if best is None else {key: v.item() for key, v in best.values.items() if v.ndim == 0}
        return {
            "name": name,
            "setting": self.setting.name,
            "value": None if best is None else self._value(name),
            "sizes": {} if best is None else dict(best.sizes),
            "scalars": numbers,
            "instance": None if best is None else best.index,
            "attempts": self.count,
        }

    def _value(self, name: str) -> float:
        assert self.best is not None
        return self.best.sizes[name] if name in self.best.sizes else float(self.best.values[name])

    @property
    def _hypotheses(self) -> str:
        late = any(twin_of(self.claim).waits(formula, self.claim) for formula in self.claim.assume.values())
        return "the hypotheses that are known at the start" if late else "the hypotheses"

    def _placed(self, text: str) -> str:
        return f"{self.setting.name}: {text}" if len(self.claim.settings) > 1 else text

    def _attempts(self) -> str:
        return f"{self.count} instance{'s' * (self.count != 1)}"

    def _words(self) -> str:
        """The instance with its other scalars."""
        assert self.best is not None
        numbers = [f"{key} = {format_number(float(v))}" for key, v in self.best.values.items() if v.ndim == 0]
        sizes = [f"{letter} = {size}" for letter, size in self.best.sizes.items()]
        number = "by search" if self.best.family.startswith("search") else f"instance {self.best.index}"
        return f"{number}, {', '.join([*sizes, *numbers])}"

    def _reached(self, name: str, value: int) -> bool:
        """Whether an instance with this value of a size meets the hypotheses; the first one that does is kept."""
        narrow = replace(self.setting, sizes={**self.setting.sizes, name: SizeRange(value, value)})
        claim = self._choosing(replace(self.claim, settings=(narrow,)))
        for index in range(self.count):
            start = instance_at(narrow, claim.given, index, self.options.seed)
            found = self._met(start if claim.choose is None else self._chosen(claim, start, narrow))
            if found is not None:
                self.best = found
                return True
        if claim.choose is not None or self.options.search == 0:
            return False
        searched = self._searched(claim, narrow)
        self.best = self.best if searched is None else searched
        return searched is not None

    def _searched(self, claim: Claim, setting: Setting) -> Instance | None:
        """Search for an instance that meets the hypotheses, from the best one so far."""
        searched = find_satisfying(
            claim,
            setting,
            [] if self.best is None or not _allowed(self.best, setting) else [self.best],
            seed=self.options.seed,
            budget=self.options.search,
            **self.options.judging(self.deadline),
        )
        return self._met(searched.candidates[0]) if searched.confirmed else None

    def _chosen(self, claim: Claim, instance: Instance, setting: Setting | None = None) -> Instance:
        setting, how = setting or self.setting, self.options.judging(self.deadline)
        return choose_constants(claim, setting, instance, seed=self.options.seed, **how)

    def _met(self, instance: Instance) -> Instance | None:
        """Return the instance with what the hypotheses give by equations, where it meets them."""
        standing, posed = standing_instance(self.claim, instance, **self.options.judging(self.deadline))
        return posed if standing is Standing.MET else None


def _listed(sizes: Sequence[int]) -> str:
    """Return sizes in words, a run of neighbours by its ends."""
    runs: list[list[int]] = []
    for size in sizes:
        if runs and runs[-1][-1] + 1 == size:
            runs[-1] = [runs[-1][0], size]
        else:
            runs.append([size])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _allowed(instance: Instance, setting: Setting) -> bool:
    return all(size.low <= instance.sizes[letter] <= size.high for letter, size in setting.sizes.items())


def _scalar(name: str) -> Expr:
    return Expr(Kind.NAME, Span(0, len(name)), name=name, type=SCALAR)


def _aimed(claim: Claim, name: str) -> Claim:
    """Return the claim with its scalars chosen so that one of them is small."""
    objective = Formula(name, name, _scalar(name), claim.position)
    return replace(claim, choose=Choose(objective, maximize=False))


def _below(value: float, nearer: float) -> float:
    """Return the bound that the next value shall keep: the nearer to 1, the closer to this one."""
    return nearer * value if value > 0 else value - (1 - nearer) * max(1.0, -value)


def _bounded(claim: Claim, name: str, bound: float) -> Claim:
    """Return the claim with the hypothesis that a scalar is at most a bound."""
    sides = (_scalar(name), Expr(Kind.NUMBER, Span(0, 0), value=Fraction(bound), type=SCALAR))
    expr = Expr(Kind.COMPARE, Span(0, 0), sides, operators=("<=",), type=BOOLEAN)
    label = f"{name} is small"
    return replace(claim, assume={**claim.assume, label: Formula(label, label, expr, claim.position)})


def check_names(claims: Sequence[Claim | IllFormed], names: Sequence[str]) -> None:
    """Check what `--smallest` names.

    Raises:
        ArgumentError: No selected claim has such a size or scalar.
    """
    known = names_to_move(claims)
    for name in names:
        if name not in known:
            allowed = ", ".join(sorted(known)) or "none of the selected claims has one"
            raise ArgumentError(
                f"`--smallest` takes sizes with a range, and scalars of `given` or `domain`: {allowed}. Got {name!r}."
            )
