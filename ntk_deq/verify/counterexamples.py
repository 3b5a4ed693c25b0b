"""Counterexamples: a setting searched for them, those found made small, and kept for later runs.

Every find and every step of the shrinking is judged with certified balls, so that what is shown is certain.
"""

from __future__ import annotations

import hashlib
import re
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Unpack

import torch

from ntk_deq.certified.rounding import add_up, fro_up
from ntk_deq.claims.claim import Claim
from ntk_deq.claims.statement import fingerprint
from ntk_deq.errors import ArgumentError, ClaimFileError, LimitError, NtkDeqError
from ntk_deq.evaluation.instance import Instance
from ntk_deq.falsify import rescaled
from ntk_deq.falsify.domains import contains
from ntk_deq.falsify.search.campaign import SearchResult, search
from ntk_deq.falsify.search.starts import marked_instances
from ntk_deq.falsify.shrink import shrink
from ntk_deq.files import own_folder, write_whole
from ntk_deq.language.declaration import Setting
from ntk_deq.verify.existence.decision import ExistenceStage
from ntk_deq.verify.formulas import Judging, marks
from ntk_deq.verify.judge import (
    CPU,
    Judgement,
    Standing,
    decided_exactly,
    judge_instance,
    refutes,
    standing_instance,
    undecided,
)
from ntk_deq.verify.refine import FLOAT_BITS
from ntk_deq.verify.replay import Recording, make_record
from ntk_deq.verify.replay.record import RecordKind, read_record, write_record
from ntk_deq.verify.scoring import ClaimScorer
from ntk_deq.verify.tally import closeness
from ntk_deq.verify.twins import twin_of
from ntk_deq.verify.witness import plainness

BUDGET = 400
"""Instances judged for one counterexample; the claims of the papers need 10 to 140."""


def minimise_counterexample(
    claim: Claim,
    setting: Setting,
    judgement: Judgement,
    *,
    budget: int = BUDGET,
    device: torch.device = CPU,
    dtype: torch.dtype = torch.float64,
    precision: int = FLOAT_BITS,
    deadline: float | None = None,
) -> Judgement:
    """Return the judgement of a smaller and plainer counterexample; the given one where there is none.

    Args:
        claim: The claim.
        setting: The setting of the counterexample.
        judgement: A judgement that refutes the claim.
        budget: How many instances may be judged.
        device: Where.
        dtype: Type to which an instance's values are rounded for that.
        precision: Bits with which an instance that floats leave undecided is judged again; 53: it is not.
        deadline: When to stop, on the clock of `time.thread_time`; what was reached by then is returned.

    Raises:
        ArgumentError: The judgement refutes nothing.
    """
    if not refutes(judgement):
        index = judgement.instance.index
        raise ArgumentError(
            f"`judgement` of minimise_counterexample must refute {claim.id}. Instance {index} does not."
        )
    best = judgement  # the last that refuted: the shrinker accepts each such
    existence = ExistenceStage(claim, refuting=True, deadline=deadline)

    def judged(instance: Instance) -> Judgement:
        found = judge_instance(claim, instance, device=device, dtype=dtype, deadline=deadline)
        if precision <= FLOAT_BITS or not undecided(found):
            return found
        with suppress(LimitError):  # a matrix too large for that, or a function that only floats have
            found = judge_instance(claim, found.instance, dtype=dtype, deadline=deadline, precision=precision)
        return decided_exactly(claim, found, dtype=dtype)

    def still_refutes(instance: Instance) -> bool:
        """Judge a candidate; one that cannot be judged, or not in time, is no counterexample."""
        nonlocal best
        if deadline is not None and time.thread_time() > deadline:
            return False
        try:
            found = judged(instance)
        except NtkDeqError:
            return False
        found = existence.decide(found, dtype)
        best = found if refutes(found) else best
        return refutes(found)

    start = _representable(setting, claim, judgement.instance, dtype)
    if start is not judgement.instance and not still_refutes(start):
        start = judgement.instance
    result = shrink(start, setting, claim.given, still_refutes, budget=budget)
    if not result.steps:
        return best
    # The values are those that were judged: variables that equations give were computed for it.
    return replace(best, instance=replace(best.instance, family=result.instance.family))


def plainest_counterexample(
    claim: Claim,
    judgements: Sequence[Judgement],
    *,
    budget: int = BUDGET,
    precision: int = FLOAT_BITS,
    **how: Unpack[Judging],
) -> Judgement:
    """Return the plainest of a claim's counterexamples after two were shrunk: the plainest, and one of smallest sizes.

    Args:
        claim: The claim.
        judgements: Judgements that refute it, at least one.
        budget: How many instances may be judged in all.
        precision: As for `minimise_counterexample`, like the rest.
        how: Where.
    """
    ordered = sorted(judgements, key=plainness)
    smallest = min(ordered[1:], key=_size, default=None)
    # Large sizes may not shrink: two permutations that do not commute have none smaller of that kind within them.
    starts = ordered[:1] if smallest is None else [ordered[0], smallest]
    found = []
    for start in starts:
        setting = claim.setting_named(start.instance.setting)
        share = budget // len(starts)
        found.append(minimise_counterexample(claim, setting, start, budget=share, precision=precision, **how))
    found += ordered[:1]  # the last, so that of equally plain ones the shrunk one wins
    return min(found, key=lambda judgement: (_size(judgement), plainness(judgement)))


def _size(judgement: Judgement) -> int:
    return sum(judgement.instance.sizes.values())


def _representable(setting: Setting, claim: Claim, instance: Instance, dtype: torch.dtype) -> Instance:
    """Return the instance with its values rounded to the type in which it is judged, where that leaves no domain."""
    if dtype == torch.float64:
        return instance
    values = {name: value.to(dtype).to(torch.float64) for name, value in instance.values.items()}
    free = {**setting.free, **claim.given}
    inside = all(
        name in instance.rounded.keys() | instance.solved or name not in free or contains(free[name].domain, value)
        for name, value in values.items()
    )
    if not inside:
        return instance
    lost = {name: fro_up(instance.values[name] - values[name]) for name in instance.rounded}
    return replace(instance, values=values, rounded={n: add_up(r, lost[n]) for n, r in instance.rounded.items()})


_CANDIDATES, _NEAR = 8, 3  # candidates and near misses that are judged when the search is over
_MARKED = 96  # starts that the numbers of a claim give, at most
_LED = 2  # starts of a setting with draws whose scalars are led through their domains


@dataclass(frozen=True)
class Attack:
    """What the search of one setting came to.

    Attributes:
        counterexamples: Judgements of instances that break the claim for certain.
        others: Judgements of candidates that could not be decided, and of near misses.
        evaluations: Instances scored in floating point.
    """

    counterexamples: tuple[Judgement, ...]
    others: tuple[Judgement, ...]
    evaluations: int


def find_counterexamples(
    claim: Claim,
    setting: Setting,
    starts: Sequence[Instance],
    *,
    seed: int,
    budget: float | None = None,
    **how: Unpack[Judging],
) -> Attack:
    """Search one setting of a claim for instances that break it.

    Args:
        claim: The claim.
        setting: One of its settings.
        starts: Instances to start from: the ladder's tightest feasible ones.
        seed: The run's seed.
        budget: What the search may cost, in instances scored alone, many small ones together being cheap: see
            `Scorer.cost`. None: its own `budget`.
        how: Where to compute, in which precision, and until when.

    Raises:
        DeadlineError: The deadline passed.
    """
    known: dict[int, Judgement] = {}

    def confirm(instance: Instance) -> bool:
        known[id(instance)] = judge_instance(claim, instance, **how)
        return refutes(known[id(instance)])

    # What is drawn does not move, but follows the scalars that scale it.
    evaluations = 0
    for start in () if setting.universal else starts[:_LED]:
        for instance in rescaled(setting, claim.given, start, seed):
            evaluations += 1
            if confirm(instance):
                return Attack((known[id(instance)],), (), evaluations)
    if setting.universal and not claim.costly:  # where each is a run, its scalars are swept
        starts = [*starts, *islice(marked_instances(setting, claim.given, marks(claim)), _MARKED)]
    scorer_of = partial(twin_of(claim).scorer, claim, setting, **how)
    scorers = [scorer_of()]
    if scorers[0].joint:
        # Newton's method finds one solution of several, and none where they are not isolated.
        scorers.append(scorer_of(solving=False))
    counterexamples, others = list[Judgement](), list[Judgement]()
    for scorer in scorers:
        result = search(
            setting,
            claim.given,
            score=scorer,
            starts=starts,
            budget=scorer.budget if budget is None else budget / len(scorers),
            seed=seed,
            confirm=confirm,
        )
        shown = result.candidates[:1] if result.confirmed else result.candidates[:_CANDIDATES]
        shown += () if result.confirmed else result.near_misses[:_NEAR]
        judgements = [known.get(id(instance)) or judge_instance(claim, instance, **how) for instance in shown]
        counterexamples += [j for j in judgements if refutes(j)]
        others += [j for j in judgements if not refutes(j)]
        evaluations += result.evaluations
        if counterexamples:
            break
    return Attack(tuple(counterexamples), tuple(others), evaluations)


def find_satisfying(
    claim: Claim,
    setting: Setting,
    starts: Sequence[Instance],
    *,
    seed: int,
    budget: float | None = None,
    **how: Unpack[Judging],
) -> SearchResult:
    """Search one setting of a claim for instances that meet its hypotheses for certain.

    Arguments and errors as for `find_counterexamples`; `starts` are the ladder's nearest instances.
    """

    def confirm(instance: Instance) -> bool:
        return standing_instance(claim, instance, **how)[0] is Standing.MET

    scorer = ClaimScorer(claim, setting, **how)
    return search(
        setting,
        claim.given,
        score=scorer,
        starts=starts,
        budget=scorer.budget if budget is None else budget,
        seed=seed,
        confirm=confirm,
        satisfying=True,
    )


DEFAULT_FOLDER = Path(".ntk_deq")
EACH = 4
"""Counterexamples, and as many near misses, that are kept of a claim."""

_VERSIONS = 4  # of one claim that are kept: its present statement and those that were last in use before
_LARGEST = 4096  # entries of an instance that is kept
_HASH = 16  # hexadecimal digits of hashes in names
_PREFIX = "from the store: "


@dataclass
class InstanceStore:
    """Counterexamples and near misses of earlier runs, which the next run tries first; a folder of instance files.

    Each is kept under its claim's id and a hash of what the claim states, so that a changed claim starts afresh.
    Nothing in the folder is trusted: an instance is read as data, checked, and judged like any other. The folder itself
    may be a link; links in it are neither read nor written through, and of its files only those of the store are ever
    removed.

    Attributes:
        folder: Where they are; made when something is kept.
        notes: What went wrong, in words: damaged files, a folder that cannot be written. A run goes on without them.
    """

    folder: Path = DEFAULT_FOLDER
    notes: list[str] = field(default_factory=list)

    def stored_instances(self, claim: Claim) -> list[Instance]:
        """Return the instances kept of a claim as it is now: counterexamples first, plainest and tightest first."""
        mark = fingerprint(claim)
        names = {setting.name for setting in claim.settings if setting.universal}
        found = []
        for path in self._kept(self._place(claim, mark)):
            try:
                record = read_record(path, known=claim)
            except ClaimFileError as error:
                if path.exists():  # not taken away by another run in the meantime
                    self._note(f"{path} is skipped: {error.problems[0].message}")
                continue
            instance = record.instance
            if record.fingerprint == mark and instance.setting in names:
                family = instance.family.removeprefix(_PREFIX)
                found.append(replace(instance, family=_PREFIX + family))
        return found

    def keep(self, claim: Claim, judgement: Judgement, **how: Unpack[Recording]) -> None:
        """Keep a counterexample, or an instance that came close to one; the best `EACH` of either kind stay.

        Instances of distributions and of data are not kept: the file could not show that they are such draws.

        Args:
            claim: The claim.
            judgement: A judgement that reaches the claim's conclusions.
            how: As for `make_record`.
        """
        instance = judgement.instance
        setting = claim.setting_named(instance.setting)
        entries = sum(value.numel() for value in instance.values.values())
        if not setting.universal or not judgement.conclusions or entries > _LARGEST:
            return
        place = self._place(claim, fingerprint(claim))
        try:
            self._make(place)
            record = make_record(claim, judgement, repeatable=False, **how)
            write_record(place / _name(judgement), record)
            self._prune(place)
            self._forget(claim, place)
        except (OSError, NtkDeqError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            self._note(f"{self.folder} keeps nothing for later runs: {reason}")

    def _place(self, claim: Claim, mark: str) -> Path:
        return self.folder / "instances" / f"{_called(claim)}-{mark[:_HASH]}"

    def _make(self, place: Path) -> None:
        new = not self.folder.exists()
        self.folder.mkdir(parents=True, exist_ok=True)
        own_folder(place.parent)
        own_folder(place)
        if new:  # a folder that was there before, such as the working folder, may hold what git is to see
            write_whole(self.folder / ".gitignore", b"*\n")

    def _kept(self, place: Path) -> list[Path]:
        """Return the files of a folder that count, in order; there may be more for a moment while two runs write."""
        found = []
        for kind in RecordKind:
            found += _sorted(place, f"{_LETTER[kind]}-*.yaml")[:EACH]
        return found

    def _prune(self, place: Path) -> None:
        kept = set(self._kept(place))
        for path in _sorted(place, "*.yaml"):
            if path not in kept:
                _remove(path)

    def _forget(self, claim: Claim, present: Path) -> None:
        """Remove what was kept for statements of the claim that were not in use for longest."""
        others = [
            p for p in present.parent.glob(f"{_called(claim)}-{'?' * _HASH}") if p != present and _sorted(p, "*.yaml")
        ]
        dated = sorted(((p.stat().st_mtime, p) for p in others), reverse=True)
        for _, old in dated[_VERSIONS - 1 :]:
            for path in _sorted(old, "*.yaml"):
                _remove(path)
            if not any(old.iterdir()):
                old.rmdir()

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


_LETTER = {RecordKind.COUNTEREXAMPLE: "c", RecordKind.NEAR_MISS: "n"}


_OURS = re.compile(r"[cn]-[0-9a-f]+-[0-9a-f]{16}\.yaml")


def _called(claim: Claim) -> str:
    """Return what instances of a claim are kept under; each depth of a claim with families has its own."""
    letters = () if claim.depth is None else claim.depth.letters
    return "@".join([claim.id, *(f"{letter}{value}" for letter, value in letters)])


def _sorted(folder: Path, pattern: str) -> list[Path]:
    """Return the files of the store in a folder below it that match a pattern, in order; no links."""
    if folder.is_symlink() or folder.parent.is_symlink():
        return []
    try:
        found = sorted(folder.glob(pattern))
        return [p for p in found if _OURS.fullmatch(p.name) and p.is_file() and not p.is_symlink()]
    except OSError:
        return []


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_suffix(".npz").unlink(missing_ok=True)


def _name(judgement: Judgement) -> str:
    """Return the name of an instance's file: kind, a rank that sorts as text, a hash of the instance."""
    instance = judgement.instance
    if refutes(judgement):
        digits, largest, _ = plainness(judgement)
        kind, rank = RecordKind.COUNTEREXAMPLE, f"{sum(instance.sizes.values()):06d}{digits:08d}{_sortable(largest)}"
    else:
        kind, rank = RecordKind.NEAR_MISS, _sortable(max(closeness(judgement), 0.0))
    return f"{_LETTER[kind]}-{rank}-{_digest(instance)}.yaml"


def _sortable(number: float) -> str:
    """Return text that sorts as nonnegative doubles do: their bits, read as a whole number, are in the same order."""
    return struct.pack(">d", number).hex()


def _digest(instance: Instance) -> str:
    digest = hashlib.sha256(repr((instance.setting, sorted(instance.sizes.items()))).encode())
    for name, value in sorted(instance.values.items()):
        digest.update(name.encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()[:_HASH]
