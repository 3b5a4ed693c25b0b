"""Counterexamples that anyone can judge again: written as a self-contained file, read as data, compared bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from ntk_deq.claims.claim import Claim, Domain, Setting
from ntk_deq.errors import ArgumentError, LimitError
from ntk_deq.falsify.domains import contains
from ntk_deq.verify.judge import Judgement, Standing
from ntk_deq.verify.minimise import refutes
from ntk_deq.verify.replaying.atomic import own_folder
from ntk_deq.verify.replaying.reader import read_record
from ntk_deq.verify.replaying.record import Record, RecordKind
from ntk_deq.verify.replaying.rejudge import judge_again, reproducible
from ntk_deq.verify.replaying.statement import differences, fingerprint
from ntk_deq.verify.replaying.writer import write_record
from ntk_deq.verify.results import Margin
from ntk_deq.verify.versions import versions
from ntk_deq.verify.witness import counterexample_witness, tightest_witness

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
        return self.margin is not None and self.margin.lo <= recorded.hi and recorded.lo <= self.margin.hi

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


def make_record(
    claim: Claim,
    judgement: Judgement,
    *,
    seed: int,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
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
        device="cpu" if again is not judgement else device,
        versions=versions(),
        step=dict(witness.step),
        found_in=str(claim.position),
    )


def write_counterexample(
    path: Path,
    claim: Claim,
    judgement: Judgement,
    *,
    seed: int,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
    deadline: float | None = None,
) -> Record:
    """Write a counterexample to a file of its own; arguments and errors as for `make_record`.

    Args:
        path: The file, ending with .yaml; large values go into an .npz beside it.
        claim: The claim.
        judgement: A judgement that refutes it.
        seed: Seed of the run.
        dtype: Type to which the instance's values were rounded.
        device: Where it was judged.
        deadline: When to stop, on the clock of `time.thread_time`.

    Raises:
        OSError: The file cannot be written.
    """
    record = make_record(claim, judgement, seed=seed, dtype=dtype, device=device, deadline=deadline)
    write_record(path, record)
    return record


def save_counterexample(
    out: Path,
    claim: Claim,
    judgement: Judgement,
    *,
    seed: int,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
    deadline: float | None = None,
) -> Path:
    """Write a run's counterexample to `counterexamples/ID.yaml` below its results folder; return the path.

    Args:
        out: The results folder.
        claim: The claim; its id is the name of the file.
        judgement: A judgement that refutes it.
        seed: Seed of the run.
        dtype: Type to which the instance's values were rounded.
        device: Where it was judged.
        deadline: When to stop, on the clock of `time.thread_time`.

    Raises:
        OSError: The file cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    path = own_folder(out / FOLDER) / f"{claim.id}.yaml"
    write_counterexample(path, claim, judgement, seed=seed, dtype=dtype, device=device, deadline=deadline)
    return path


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
    before = next(s for s in record.claim.settings if s.name == record.instance.setting)
    types = {**setting.variable_types(), **{name: v.type for name, v in now.given.items()}}
    old_types = {**before.variable_types(), **{name: v.type for name, v in record.claim.given.items()}}
    sizes = record.instance.sizes
    in_range = set(sizes) == set(setting.sizes) and all(
        span.low <= sizes[letter] <= span.high for letter, span in setting.sizes.items()
    )
    if types != old_types or not in_range:
        return False
    free = {**setting.free, **now.given}
    return all(name not in free or _member(record, name, free[name].domain) for name in types)


def _member(record: Record, name: str, domain: Domain) -> bool:
    known = record.instance.rounded.keys() | record.instance.solved
    return name in known or contains(domain, record.instance.values[name])


def _bits(margin: Margin) -> tuple[str, str]:
    return margin.lo.hex(), margin.hi.hex()
