"""The stage of a judgement that decides whether what a claim says exists does, on one instance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from ntk_deq.claims.claim import Claim
from ntk_deq.evaluation.exact import ExactNames
from ntk_deq.evaluation.functions.exact import Value, as_matrix
from ntk_deq.evaluation.instance import Instance, shape_of
from ntk_deq.evaluation.quantity import Outcome, Truth
from ntk_deq.verify.existence.candidates import Trial, descended_values, exactly_met, plain_values, trial_of
from ntk_deq.verify.existence.constraints import Constraints, constraints_of
from ntk_deq.verify.existence.contradiction import Contradiction, Point, contradicting_combination, linear_point
from ntk_deq.verify.existence.numbers import (
    broken_alone,
    contradicting_numbers,
    contradicting_whole_numbers,
    whole_numbers,
)
from ntk_deq.verify.existence.uniform import needed_constant
from ntk_deq.verify.instance_environment import exact_names
from ntk_deq.verify.judge import Judgement, Standing

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
        open_ = {name: Outcome(Truth.UNSURE, None, reason) for name in self._claim.resting}
        return replace(held, conclusions={**held.conclusions, **open_}, reason=reason)

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
        left = {
            n for n in self._claim.resting if n in judgement.conclusions and judgement.conclusions[n].truth in _OPEN
        }
        if not left:
            return judgement
        setting = next(s for s in self._claim.settings if s.name == judgement.instance.setting)
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
        conclusions = dict(judgement.conclusions)
        conclusions |= {name: Outcome(Truth.UNSURE, None, reason) for name in self._claim.resting}
        return replace(judgement, conclusions=conclusions, reason=reason)

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
        conclusions = dict(judgement.conclusions)
        for name in names:
            conclusions[name] = Outcome(Truth.FALSE, None, reason)
        return replace(judgement, conclusions=conclusions, reason=reason)


def decided_existence(claim: Claim, judgement: Judgement) -> Judgement:
    """Return a judgement with what exists on its instance, or certainly does not, where it left that open."""
    return ExistenceStage(claim).decide(judgement) if claim.exists else judgement


def _tensor(value: Value) -> Tensor:
    """Return exact numbers rounded to floats."""
    value = as_matrix(value)
    rows, columns = value.shape
    entries = [float(int(e.p)) / float(int(e.q)) if abs(int(e.q)) < 2**1000 else 0.0 for e in value.entries]  # type: ignore[union-attr]
    return torch.tensor(entries, dtype=torch.float64).reshape(rows, columns)
