"""Write an instance down: sizes, values, both sides of the comparison that matters."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ntk_deq.verify.judge import Judgement
from ntk_deq.verify.quantity import Outcome, Truth
from ntk_deq.verify.results import Margin, Witness

MAX_PRINTED = 256  # entries of one variable; a larger one is described by its shape only


def witness(judgement: Judgement, name: str, outcome: Outcome) -> Witness:
    """Return a printable record of an instance and of the formula called `name` on it."""
    comparison = outcome.comparison
    instance = judgement.instance
    return Witness(
        setting=instance.setting,
        family=instance.family,
        sizes=dict(instance.sizes),
        values={key: _listed(value) for key, value in instance.values.items()},
        conclusion=name,
        lhs=comparison.lhs if comparison else "",
        rhs=comparison.rhs if comparison else "",
        relation=comparison.relation if comparison else "",
        margin=comparison.margin if comparison else Margin(float("-inf"), float("inf")),
        step=dict(comparison.steps) if comparison else {},
        index=instance.index,
        solved=tuple(name for name in instance.values if name in instance.solved),
        scale=comparison.scale if comparison else 0.0,
    )


def counterexample_witness(judgement: Judgement) -> Witness:
    """Return the record of a counterexample and of the first conclusion that it breaks."""
    name, outcome = next((n, o) for n, o in judgement.conclusions.items() if o.truth is Truth.FALSE)
    return witness(judgement, name, outcome)


def tightest_witness(judgement: Judgement) -> Witness:
    """Return the record of an instance and of its conclusion that is closest to equality."""

    def ratio(item: tuple[str, Outcome]) -> float:
        comparison = item[1].comparison
        if comparison is None or comparison.scale == 0:
            return float("inf")
        return comparison.margin.lo / comparison.scale

    name, outcome = min(judgement.conclusions.items(), key=ratio)
    return witness(judgement, name, outcome)


def nearest_witness(judgement: Judgement) -> Witness:
    """Return the record of an instance that fails a hypothesis, and of that hypothesis."""
    name, outcome = next((n, o) for n, o in judgement.hypotheses.items() if o.truth is Truth.FALSE)
    return witness(judgement, name, outcome)


def plainness(judgement: Judgement) -> tuple[int, float, int]:
    """Order counterexamples for people: fewer and shorter numbers first, then moderate ones, then the order drawn."""
    numbers = [x for value in judgement.instance.values.values() for x in value.reshape(-1)[: MAX_PRINTED + 1].tolist()]
    digits = sum(len(f"{x:.17g}") for x in numbers)
    return digits, max((abs(x) for x in numbers), default=0.0), judgement.instance.index


def _listed(value: Tensor) -> Any:
    return value.tolist() if value.numel() <= MAX_PRINTED else None
