"""The stage of a judgement that decides whether what a claim says exists does, on one instance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ntk_deq.certified.algebraic_matrix import ExactMatrix
from ntk_deq.claims.claim import Claim
from ntk_deq.evaluation.exact import ExactNames
from ntk_deq.evaluation.functions.exact import Value
from ntk_deq.evaluation.instance import shape_of
from ntk_deq.evaluation.quantity import Outcome, Truth
from ntk_deq.verify.existence.candidates import Trial, descended_values, exactly_met, plain_values, trial_of
from ntk_deq.verify.existence.constraints import constraints_of
from ntk_deq.verify.existence.contradiction import Contradiction, contradicting_combination, linear_point
from ntk_deq.verify.instance_environment import exact_names
from ntk_deq.verify.judge import Judgement, Standing

_OPEN = (Truth.UNSURE, Truth.STRICT_TIGHT)

IN_VAIN = 6
"""So many instances in a row on which nothing was found, and nothing is descended to any more."""


class ExistenceStage:
    """Decides what judgements of one claim leave open about what it says exists.

    Args:
        claim: The claim.
        seed: Of the searches.
        refuting: Look for proofs that nothing exists alone.
    """

    def __init__(self, claim: Claim, seed: int = 0, *, refuting: bool = False) -> None:
        self._claim, self._seed, self._sought = claim, seed, bool(claim.sought) and not refuting
        self._stated = claim.stated
        self._in_vain = 0

    def decide(self, judgement: Judgement) -> Judgement:
        """Return a judgement with what exists, or certainly does not, where it left that open; else the given one.

        Args:
            judgement: A judgement of the claim.

        Raises:
            DeadlineError: The deadline passed.
        """
        if not self._claim.exists or judgement.standing is Standing.UNMET:
            return judgement
        left = {
            n for n in self._claim.resting if n in judgement.conclusions and judgement.conclusions[n].truth in _OPEN
        }
        if not left:
            return judgement
        names = exact_names(self._stated, judgement.instance)
        found = None if names is None else constraints_of(self._stated, names, judgement.instance.sizes)
        point = None if found is None else linear_point(found)
        if isinstance(point, Contradiction):
            return self._none(judgement, point, left)
        values = None if found is None or point is None else found.at(point)
        if self._sought:
            if values is not None and names is not None and self._serves(judgement, names, values):
                return self._held(judgement, {name: _tensor(value) for name, value in values.items()})
            trial = trial_of(self._claim, judgement.instance)
            proven = next(self._proven(trial, self._plain(trial, values)), None)
            if proven is not None:
                return self._held(judgement, proven)
        contradiction = None if found is None else contradicting_combination(found)
        if contradiction is not None:
            return self._none(judgement, contradiction, left)
        if not self._sought:
            return judgement
        if self._in_vain < IN_VAIN:
            proven = next(self._proven(trial, descended_values(trial, self._seed)), None)
            if proven is not None:
                self._in_vain = 0
                return self._held(judgement, proven)
            self._in_vain += 1
        return self._open(judgement)

    def _serves(self, judgement: Judgement, names: ExactNames, values: Mapping[str, Value]) -> bool:
        setting = next(s for s in self._claim.settings if s.name == judgement.instance.setting)
        return exactly_met(self._stated, names, values, setting)

    @staticmethod
    def _plain(trial: Trial, values: Mapping[str, Value] | None) -> Iterator[dict[str, Tensor]]:
        if values is not None:
            shapes = {name: shape_of(free.type, trial.instance.sizes) for name, free in trial.exists.items()}
            yield {name: _tensor(value).reshape(shapes[name]) for name, value in values.items()}
        yield from plain_values(trial)

    @staticmethod
    def _proven(trial: Trial, values: Iterator[dict[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
        return (proven for near in values if (proven := trial.proven(near)) is not None)

    def _open(self, judgement: Judgement) -> Judgement:
        """Say how something was looked for in vain."""
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
        return replace(judgement, conclusions=conclusions, reason="; ".join(dict.fromkeys(reasons)), found=dict(values))

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
    assert isinstance(value, ExactMatrix)
    rows, columns = value.shape
    entries = [float(int(e.p)) / float(int(e.q)) if abs(int(e.q)) < 2**1000 else 0.0 for e in value.entries]  # type: ignore[union-attr]
    return torch.tensor(entries, dtype=torch.float64).reshape(rows, columns)
