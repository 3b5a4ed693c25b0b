"""Shrink a counterexample over the problem's own knobs: sizes, scale, rank, then numbers, each step verified again.

The passes of the shrinker: sizes, scales, whole tensors, single numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ntk_deq.errors import ArgumentError
from ntk_deq.evaluation.instance import Instance
from ntk_deq.falsify.shrink.numbers import (
    all_rounded,
    equal_numbers,
    plainer_scalars,
    positive_signs,
    rounded_entries,
    signs_and_zeros,
    small_entries,
)
from ntk_deq.falsify.shrink.tensors import (
    Candidate,
    Knobs,
    Proposals,
    measure,
    plainer_tensors,
    smaller_sizes,
    unit_scales,
)
from ntk_deq.language.domain import Free
from ntk_deq.language.setting import Setting

Pass = Callable[[Instance, Knobs], Proposals]

PASSES: tuple[Pass, ...] = (
    smaller_sizes,
    unit_scales,
    plainer_tensors,
    all_rounded,
    plainer_scalars,
    equal_numbers,
    positive_signs,
    signs_and_zeros,
    small_entries,
    rounded_entries,
)
"""In the order of preference; each is repeated while it helps."""


@dataclass(frozen=True)
class ShrinkResult:
    """What shrinking came to.

    Attributes:
        instance: The plainest instance found that still refutes; the given one where nothing helped.
        evaluations: How many instances were judged.
        steps: The accepted changes in order, in words.
        complete: Whether no pass could go on; otherwise the budget ran out.
    """

    instance: Instance
    evaluations: int
    steps: tuple[str, ...]
    complete: bool


def shrink(
    instance: Instance,
    setting: Setting,
    given: Mapping[str, Free],
    still_refutes: Callable[[Instance], bool],
    *,
    budget: int = 400,
) -> ShrinkResult:
    """Return a smaller and plainer instance that still refutes.

    Each accepted step makes `measure` smaller: the sum of the sizes, then the bits of all numbers, the negative ones,
    the magnitudes. Every number stays exact in binary and every variable in its domain. Variables drawn from
    distributions, and scalars and sizes that these use, stay as they are.

    Args:
        instance: An instance that refutes; it is not judged again.
        setting: Its setting.
        given: Further variables that the claim quantifies over.
        still_refutes: Whether an instance is a counterexample for certain. It is asked at most `budget` times.
        budget: How many instances may be judged.

    Raises:
        ArgumentError: The budget is negative.

    Example:
        >>> import torch
        >>> from ntk_deq.errors import Position
        >>> from ntk_deq.language.domain import Domain, DomainKind
        >>> from ntk_deq.language.types import SCALAR
        >>> setting = Setting("s", None, {}, {}, {}, None, Position("f", 1, 1))
        >>> c = Free("c", SCALAR, Domain(DomainKind.REAL))
        >>> found = Instance("s", "random", {}, {"c": torch.tensor(17.31, dtype=torch.float64)}, 0)
        >>> shrink(found, setting, {"c": c}, lambda i: i.values["c"].item() > 2.5).instance.values["c"].item()
        3.0
    """
    if budget < 0:
        raise ArgumentError(f"`budget` of shrink must be an integer >= 0. Got {budget}.")
    knobs = Knobs.of(setting, given)
    search = _Search(instance, knobs, still_refutes, budget)
    complete = search.run()
    best = search.best
    if search.steps:
        best = replace(best, family=f"shrunk from: {instance.family}")
    return ShrinkResult(best, search.evaluations, tuple(search.steps), complete)


class _Search:
    """Descends from one instance; remembers what was tried, so that a repeated pass costs nothing."""

    def __init__(self, start: Instance, knobs: Knobs, still_refutes: Callable[[Instance], bool], budget: int) -> None:
        self.best = start
        self.steps: list[str] = []
        self.evaluations = 0
        self._knobs = knobs
        self._still_refutes = still_refutes
        self._budget = budget
        self._measure = measure(start)
        self._seen: set[tuple[object, ...]] = {_key(start)}

    def run(self) -> bool:
        """Repeat the passes until none helps (True) or the budget is used up (False)."""
        position = 0
        while position < len(PASSES):
            moved = self._pass(PASSES[position])
            if moved is None:
                return False
            # Whatever a later pass achieved may let an earlier, more important one go on.
            position = 0 if moved and position else position + (not moved)
        return True

    def _pass(self, propose: Pass) -> bool | None:
        """Go through a pass until it has nothing more to offer; say whether it helped, None where the budget ended."""
        before = len(self.steps)
        while True:
            start = len(self.steps)
            if not self._sweep(propose):
                return None
            if len(self.steps) == start:
                return start > before

    def _sweep(self, propose: Pass) -> bool:
        """Go through the proposals of a pass once; False where the budget ended."""
        proposals = propose(self.best, self._knobs)
        candidate = next(proposals, None)
        while candidate is not None:
            answer = self._accept(candidate)
            if answer is None:
                return False
            try:
                candidate = proposals.send(answer)
            except StopIteration:
                candidate = None
        return True

    def _accept(self, candidate: Candidate) -> bool | None:
        """Accept a candidate that is plainer and still refutes; None where the budget does not allow to find out."""
        size = measure(candidate.instance)
        key = _key(candidate.instance)
        if size >= self._measure or key in self._seen:
            return False
        if self.evaluations >= self._budget:
            return None
        self._seen.add(key)
        self.evaluations += 1
        if not self._still_refutes(candidate.instance):
            return False
        self.best, self._measure = candidate.instance, size
        self.steps.append(candidate.words)
        return True


def _key(instance: Instance) -> tuple[object, ...]:
    """Return what tells two instances apart."""
    values = tuple((name, value.numpy().tobytes()) for name, value in instance.values.items())
    return tuple(instance.sizes.items()), values, tuple(sorted(instance.rounded))
