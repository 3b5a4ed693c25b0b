"""Counterexamples that anyone can judge again: written as a self-contained file, read as data, compared bit for bit.

Instance files: a claim with one instance of it, written down so that anyone can judge it again.

Judge one instance so that the margin comes out the same, bit for bit, on every machine.

The matrix products and spectra of float64 libraries depend on the processor's vector units and on the number of
threads in the last bits. Balls of many bits do not: whatever the floats that their spectra start from, the bounds agree
far beyond the 53 bits to which a margin is rounded, outward. So a small instance is judged with many bits; a large one
in floats on one thread, which gives the same bits on processors of the same kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Required, TypedDict, Unpack

import torch

from ntk_deq.claims.claim import Claim
from ntk_deq.claims.families import claim_for
from ntk_deq.claims.statement import differences, fingerprint
from ntk_deq.errors import ArgumentError, LimitError
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Truth
from ntk_deq.falsify.domains import contains
from ntk_deq.language.declaration import Setting
from ntk_deq.language.types import Margin
from ntk_deq.package import versions
from ntk_deq.verify.existence.decision import ExistenceStage
from ntk_deq.verify.judge import CPU, Judgement, Standing, decided_exactly, judge_instance, refutes
from ntk_deq.verify.refine import DEFAULT_BITS, SMALL, require_agreement
from ntk_deq.verify.replay.record import Record, RecordKind, read_record, write_record
from ntk_deq.verify.witness import counterexample_witness, tightest_witness


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, then as many as before: the sums of a product depend on how it is split."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def judge_again(
    claim: Claim, instance: Instance, *, dtype: torch.dtype, precision: int | None, deadline: float | None = None
) -> Judgement:
    """Judge an instance on the CPU with one thread, and decide in exact arithmetic what balls of many bits leave open.

    Args:
        claim: The claim.
        instance: The instance.
        dtype: Type to which its values are rounded.
        precision: Bits; None: floats of type `dtype`.
        deadline: When to stop, on the clock of `time.thread_time`.

    Raises:
        LimitError: With a `precision`: a matrix is too large for it, or a function has no form for it.
        DeadlineError: The deadline passed.
    """
    with one_thread():
        judgement = judge_instance(claim, instance, dtype=dtype, precision=precision, deadline=deadline, anew=False)
        judgement = judgement if precision is None else decided_exactly(claim, judgement, dtype=dtype)
        return ExistenceStage(claim).decide(judgement) if claim.exists else judgement


def reproducible(
    claim: Claim, first: Judgement, *, dtype: torch.dtype, deadline: float | None = None
) -> tuple[Judgement, int | None]:
    """Return a judgement that others can repeat, and its bits (None: floats): as certain as the given one, or that one.

    Args:
        claim: The claim.
        first: The judgement of the run.
        dtype: Type to which the instance's values were rounded for it.
        deadline: When to stop, on the clock of `time.thread_time`.

    Raises:
        DeadlineError: The deadline passed.
        RuntimeError: The two judgements contradict each other: one of them rests on a wrong bound.
    """
    small = sum(value.numel() for value in first.instance.values.values()) <= SMALL
    for precision in (DEFAULT_BITS, None) if small else (None,):
        try:
            again = judge_again(claim, first.instance, dtype=dtype, precision=precision, deadline=deadline)
        except LimitError:
            continue
        require_agreement(first, again)
        if _certain(again) >= _certain(first):
            return again, precision
    return first, None


def _certain(judgement: Judgement) -> tuple[bool, int]:
    """Order judgements by what they are certain of: the hypotheses first, then the conclusions."""
    decided = sum(outcome.truth in (Truth.TRUE, Truth.FALSE) for outcome in judgement.conclusions.values())
    return judgement.standing is Standing.MET, decided


FOLDER = "counterexamples"
"""Folder of a run's results that holds one file for each refuted claim."""

read_counterexample = read_record


@dataclass(frozen=True)
class Replay:
    """An instance file, judged again.

    Attributes:
        record: What the file says.
        judgement: The judgement now.
        margin: The margin now of the conclusion that the file names; None where it was not reached.
        edited: Whether the statement is not the one whose fingerprint the file carries: somebody, or a new version of
            a model, changed it.
    """

    record: Record
    judgement: Judgement
    margin: Margin | None
    edited: bool

    @property
    def refuted(self) -> bool:
        """Whether the instance refutes the claim, for certain."""
        return refutes(self.judgement)

    @property
    def identical(self) -> bool:
        """Whether the margin is the recorded one, bit for bit."""
        return self.margin is not None and _bits(self.margin) == _bits(self.record.margin)

    @property
    def consistent(self) -> bool:
        """Whether the recorded ball and the present one have a number in common, as two balls of one number must."""
        recorded = self.record.margin
        if self.margin is None:
            return not self.record.relation  # what nothing exists by has no two sides
        return self.margin.lo <= recorded.hi and recorded.lo <= self.margin.hi

    @property
    def reproduced(self) -> bool:
        """Whether the instance does what it was kept for, with that margin: refute, or for a near miss be feasible."""
        met = self.judgement.standing is Standing.MET
        kept = self.refuted if self.record.kind is RecordKind.COUNTEREXAMPLE else met
        return kept and self.consistent


@dataclass(frozen=True)
class Comparison:
    """A recorded claim against the claim of a file.

    Attributes:
        changes: What differs, in words; nothing where both state the same.
        judgement: The instance judged on the present claim, where that speaks of the same variables; else None.
    """

    changes: tuple[str, ...]
    judgement: Judgement | None


class Recording(TypedDict, total=False):
    """What `make_record` takes besides, with its defaults."""

    seed: Required[int]
    dtype: torch.dtype
    device: torch.device
    deadline: float | None


def make_record(
    claim: Claim,
    judgement: Judgement,
    *,
    seed: int,
    dtype: torch.dtype = torch.float64,
    device: torch.device = CPU,
    deadline: float | None = None,
    repeatable: bool = True,
) -> Record:
    """Return what is to be written of an instance.

    Args:
        claim: The claim.
        judgement: A judgement that refutes the claim, or at least reaches its conclusions.
        seed: Seed of the run.
        dtype: Type to which the instance's values were rounded.
        device: Where it was judged.
        deadline: When to stop, on the clock of `time.thread_time`.
        repeatable: Judge the instance once more, so that the recorded margin comes out again on other machines too.

    Raises:
        ArgumentError: The judgement has no conclusions.
        DeadlineError: The deadline passed.
        RuntimeError: The second judgement contradicts the given one.
    """
    if not judgement.conclusions:
        raise ArgumentError(
            f"An instance of {claim.id} to write down must reach the conclusions. Got one that does not."
        )
    again, precision = judgement, None
    if repeatable:
        again, precision = reproducible(claim, judgement, dtype=dtype, deadline=deadline)
    broken = refutes(again)
    witness = counterexample_witness(again) if broken else tightest_witness(again)
    return Record(
        kind=RecordKind.COUNTEREXAMPLE if broken else RecordKind.NEAR_MISS,
        claim=claim,
        instance=again.instance,
        conclusion=witness.conclusion,
        lhs=witness.lhs,
        rhs=witness.rhs,
        relation=witness.relation,
        margin=witness.margin,
        seed=seed,
        dtype=str(dtype).removeprefix("torch."),
        precision=precision,
        fingerprint=fingerprint(claim),
        device="cpu" if again is not judgement else str(device),
        versions=versions(),
        step=dict(witness.step),
        found_in=str(claim.position),
    )


def write_counterexample(path: Path, claim: Claim, judgement: Judgement, **how: Unpack[Recording]) -> Record:
    """Write a counterexample to a file of its own, ending with .yaml; large values go into an .npz beside it.

    Arguments and errors as for `make_record`; an OSError where the file cannot be written.
    """
    record = make_record(claim, judgement, **how)
    write_record(path, record)
    return record


def replay(record: Record, *, deadline: float | None = None) -> Replay:
    """Judge a recorded instance on its recorded claim, in the arithmetic in which its margin was recorded.

    Args:
        record: The file's content.
        deadline: When to stop, on the clock of `time.thread_time`.

    Raises:
        DeadlineError: The deadline passed.
        LimitError: The instance is too large for the recorded precision.
    """
    dtype = getattr(torch, record.dtype)
    judgement = judge_again(record.claim, record.instance, dtype=dtype, precision=record.precision, deadline=deadline)
    outcome = judgement.conclusions.get(record.conclusion)
    comparison = outcome.comparison if outcome is not None else None
    return Replay(
        record=record,
        judgement=judgement,
        margin=comparison.margin if comparison is not None else None,
        edited=fingerprint(record.claim) != record.fingerprint,
    )


def compare(record: Record, now: Claim, *, deadline: float | None = None) -> Comparison:
    """Say whether a claim still states what it stated when an instance was recorded; if not, judge the instance on it.

    Args:
        record: The file's content.
        now: The claim as it is.
        deadline: When to stop, on the clock of `time.thread_time`.

    Raises:
        DeadlineError: The deadline passed.
    """
    try:
        now = claim_for(now, record.instance.setting, record.instance.sizes)
    except LookupError:
        return Comparison(("the claim is not judged for the depth of this instance now",), None)
    changes = tuple(differences(record.claim, now))
    setting = next((s for s in now.settings if s.name == record.instance.setting), None)
    if not changes or setting is None or not _fits(record, now, setting):
        return Comparison(changes, None)
    dtype = getattr(torch, record.dtype)
    for precision in (record.precision, None):
        try:
            judged = judge_again(now, record.instance, dtype=dtype, precision=precision, deadline=deadline)
        except LimitError:
            continue
        return Comparison(changes, judged)
    return Comparison(changes, None)


def _fits(record: Record, now: Claim, setting: Setting) -> bool:
    """Whether an instance is one of a claim: the same variables, of the shapes and in the domains that it asks for."""
    before = record.claim.setting_named(record.instance.setting)
    types = {**setting.variable_types(), **{name: v.type for name, v in now.given.items()}}
    old_types = {**before.variable_types(), **{name: v.type for name, v in record.claim.given.items()}}
    sizes = record.instance.sizes
    in_range = set(sizes) == set(setting.sizes) and all(
        span.low <= sizes[letter] <= span.high for letter, span in setting.sizes.items()
    )
    if types != old_types or not in_range:
        return False
    free, known = {**setting.free, **now.given}, record.instance.rounded.keys() | record.instance.solved
    values = record.instance.values
    return all(name not in free or name in known or contains(free[name].domain, values[name]) for name in types)


def _bits(margin: Margin) -> tuple[str, str]:
    return margin.lo.hex(), margin.hi.hex()
