"""Counterexamples and near misses of earlier runs, which the next run tries first; a folder of instance files.

Each is kept under its claim's id and a hash of what the claim states, so that a changed claim starts afresh. Nothing
in the folder is trusted: an instance is read as data, checked, and judged like any other. The folder itself may be a
link; links in it are neither read nor written through, and of its files only those of the store are ever removed.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Unpack

from ntk_deq.claims.claim import Claim
from ntk_deq.claims.statement import fingerprint
from ntk_deq.errors import ClaimFileError, NtkDeqError
from ntk_deq.evaluation.instance import Instance
from ntk_deq.files import own_folder, write_whole
from ntk_deq.verify.judge import Judgement, refutes
from ntk_deq.verify.replay import Recording, make_record
from ntk_deq.verify.replay.record import RecordKind, read_record, write_record
from ntk_deq.verify.tally import closeness
from ntk_deq.verify.witness import plainness

DEFAULT_FOLDER = Path(".ntk_deq")
EACH = 4
"""Counterexamples, and as many near misses, that are kept of a claim."""

_VERSIONS = 4  # of one claim that are kept: its present statement and those that were last in use before
_LARGEST = 4096  # entries of an instance that is kept
_HASH = 16  # hexadecimal digits of hashes in names
_PREFIX = "from the store: "


@dataclass
class InstanceStore:
    """Instances of earlier runs, by claim.

    Attributes:
        folder: Where they are; made when something is kept.
        notes: What went wrong, in words: damaged files, a folder that cannot be written. A run goes on without them.
    """

    folder: Path = DEFAULT_FOLDER
    notes: list[str] = field(default_factory=list)

    def stored_instances(self, claim: Claim) -> list[Instance]:
        """Return the instances kept of a claim as it is now: counterexamples first, plainest and tightest first.

        Args:
            claim: The claim.
        """
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
        setting = next(s for s in claim.settings if s.name == instance.setting)
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
    return f"{_LETTER[kind]}-{rank}-{_digest(_content(instance))}.yaml"


def _sortable(number: float) -> str:
    """Return text that sorts as nonnegative doubles do: their bits, read as a whole number, are in the same order."""
    return struct.pack(">d", number).hex()


def _content(instance: Instance) -> Iterable[bytes]:
    yield repr((instance.setting, sorted(instance.sizes.items()))).encode()
    for name, value in sorted(instance.values.items()):
        yield name.encode()
        yield value.numpy().tobytes()


def _digest(content: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in content:
        digest.update(part)
    return digest.hexdigest()[:_HASH]
