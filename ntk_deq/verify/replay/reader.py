"""Read an instance file: data from a stranger, of which nothing runs and everything is checked."""

from __future__ import annotations

from pathlib import Path

from ntk_deq.claims.claim import Claim, IllFormed
from ntk_deq.claims.families import claim_for
from ntk_deq.claims.load import load_embedded
from ntk_deq.claims.validate import place, validate
from ntk_deq.errors import ArgumentError, ClaimFileError, Problem
from ntk_deq.evaluation.instance import Instance
from ntk_deq.files.problems import did_you_mean
from ntk_deq.files.yaml import Mapping, Node, Scalar, Sequence, problems_below, read_file
from ntk_deq.language.interval import Margin
from ntk_deq.language.setting import Setting
from ntk_deq.verify.replay.record import Record, RecordKind, RecordModel
from ntk_deq.verify.replay.values import ValueReader, read_bound, read_number


def read_record(path: Path, *, known: Claim | None = None) -> Record:
    """Read an instance file.

    Args:
        path: The file.
        known: A claim that states what the file's claim states; the file's own statement is then not read. The caller
            has compared fingerprints.

    Raises:
        ClaimFileError: The file is unusable; its problems say where and why.
    """
    shown = str(path)
    root = read_file(path, shown)
    problems = list(problems_below(root))
    model, found = validate(RecordModel, root, "an instance file")
    problems += found
    if model is None or problems or not isinstance(root, Mapping):
        raise ClaimFileError(problems)
    claim = known if known is not None else _claim(root.entries["statement"], shown, path.parent)
    try:
        claim = claim_for(claim, model.setting, model.sizes)
    except LookupError:
        message = f"`setting` and `sizes` give no depth of the claim; it has {_depths(claim)}."
        raise ClaimFileError([Problem(place(root, ("sizes",)), message)]) from None
    reading = _Reading(root, model, claim, problems)
    return reading.record(path.resolve().parent)


def _claim(node: Node, shown: str, folder: Path) -> Claim:
    """Return the one claim of a statement."""
    suite = load_embedded(node, shown, folder)
    if len(suite.claims) != 1:
        message = f"`statement` must hold one claim. Got {len(suite.claims)}."
        raise ClaimFileError([Problem(node.position, message)])
    claim = suite.claims[0]
    if isinstance(claim, IllFormed):
        raise ClaimFileError(list(claim.problems))
    return claim


def _depths(claim: Claim) -> str:
    return "; ".join(f"{depth} in {depth.setting}" if depth.letters else depth.setting for depth in claim.depths)


class _Reading:
    def __init__(self, root: Mapping, model: RecordModel, claim: Claim, problems: list[Problem]) -> None:
        self.root, self.model, self.claim, self.problems = root, model, claim, problems

    def record(self, folder: Path) -> Record:
        setting = self._setting()
        self._check_names()
        margin = self._margin()
        step = self._step()
        if setting is not None:
            self._check_sizes(setting)
        self._stop_if_wrong()
        assert setting is not None
        solved = frozenset(self.model.solved)
        reader = ValueReader(self.claim, setting, self.model.sizes, self._rounded(), folder, solved=solved)
        values_node = self.root.entries["values"]
        assert isinstance(values_node, Mapping)  # the schema asks for a mapping
        values = reader.read(values_node)
        self.problems += reader.problems
        self._stop_if_wrong()
        model = self.model
        instance = Instance(setting.name, model.family, dict(model.sizes), values, model.index, reader.known, solved)
        return Record(
            kind=RecordKind(model.kind),
            claim=self.claim,
            instance=instance,
            conclusion=model.conclusion,
            lhs=model.lhs,
            rhs=model.rhs,
            relation=model.relation,
            margin=margin,
            seed=model.seed,
            dtype=model.dtype,
            precision=model.precision,
            fingerprint=model.fingerprint,
            device=model.device,
            versions=dict(model.versions),
            step=step,
            found_in=model.found_in,
        )

    def _setting(self) -> Setting | None:
        names = [setting.name for setting in self.claim.settings]
        if self.model.setting not in names:
            message = f"`setting` must be one of the claim's: {', '.join(names)}. Got {self.model.setting}."
            self._add(("setting",), message, did_you_mean(self.model.setting, names))
            return None
        return self.claim.settings[names.index(self.model.setting)]

    def _check_names(self) -> None:
        if self.model.claim != self.claim.id:
            self._add(("claim",), f"`claim` must be the id in `statement`, {self.claim.id}. Got {self.model.claim}.")
        if self.model.conclusion not in self.claim.conclude:
            names = list(self.claim.conclude)
            message = f"`conclusion` must be one of the claim's: {', '.join(names)}. Got {self.model.conclusion!r}."
            self._add(("conclusion",), message, did_you_mean(self.model.conclusion, names))

    def _margin(self) -> Margin:
        """Return the recorded margin; bounds that cannot be read are reported, and then mean nothing."""
        bounds = []
        node = self.root.entries["margin"]
        for index, item in enumerate(node.items if isinstance(node, Sequence) else ()):
            try:
                bounds.append(read_bound(item.text if isinstance(item, Scalar) else "a list or mapping"))
            except ArgumentError as error:
                self._add(("margin", index), f"`margin`: {error}")
        if len(bounds) == 2 and bounds[0] <= bounds[1]:
            return Margin(*bounds)
        if len(bounds) == 2:
            self._add(("margin",), "`margin` must be [lo, hi] with lo <= hi.")
        return Margin(float("-inf"), float("inf"))

    def _step(self) -> dict[str, float]:
        """Return the steps, which are whole, or times."""
        steps: dict[str, float] = {}
        node = self.root.entries.get("step")
        for name, item in node.entries.items() if isinstance(node, Mapping) else ():
            try:
                at = read_number(item.text if isinstance(item, Scalar) else "a list or mapping")
            except ArgumentError as error:
                self._add(("step", name), f"`step.{name}`: {error}")
            else:
                steps[name] = int(at) if at.is_integer() else at
        return steps

    def _rounded(self) -> dict[str, float | None]:
        """Return how far variables may be from what they stand for; None where an older file lists them only."""
        node = self.root.entries.get("rounded")
        if isinstance(node, Sequence):
            return {item.text: None for item in node.items if isinstance(item, Scalar)}
        found: dict[str, float | None] = {}
        for name, item in node.entries.items() if isinstance(node, Mapping) else ():
            try:
                found[name] = read_number(item.text if isinstance(item, Scalar) else "a list or mapping")
            except ArgumentError as error:
                self._add(("rounded", name), f"`rounded.{name}`: {error}")
        return found

    def _check_sizes(self, setting: Setting) -> None:
        for letter, span in setting.sizes.items():
            size = self.model.sizes.get(letter)
            if size is None or not span.low <= size <= span.high:
                got = "nothing" if size is None else size
                message = f"`sizes.{letter}` must be in {span.low}..{span.high}, the range of the setting. Got {got}."
                self._add(("sizes", letter), message)
        for letter in self.model.sizes:
            if letter not in setting.sizes:
                message = f"`sizes`: setting {setting.name} has no size `{letter}`."
                self._add(("sizes", letter), message, did_you_mean(letter, setting.sizes))

    def _stop_if_wrong(self) -> None:
        if self.problems:
            raise ClaimFileError(self.problems)

    def _add(self, location: tuple[str | int, ...], message: str, hint: str | None = None) -> None:
        self.problems.append(Problem(place(self.root, location), message, self.claim.id, hint=hint))
