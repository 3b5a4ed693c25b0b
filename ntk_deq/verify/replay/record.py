"""An instance file: a claim, one instance of it, and how that was judged, written and read.

Its shape is a pydantic model: which keys there are and of what kind. What is read is data from a stranger, of which
nothing runs and everything is checked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from torch import Tensor

from ntk_deq.claims.claim import Claim, IllFormed
from ntk_deq.claims.families import claim_for
from ntk_deq.claims.load import load_embedded
from ntk_deq.claims.schema import MAX_ENTRIES, MAX_SIZE, FormulaName, Identifier, Label, VariableName
from ntk_deq.claims.statement import claim_file
from ntk_deq.claims.validate import place, validate
from ntk_deq.errors import ArgumentError, ClaimFileError, Problem
from ntk_deq.evaluation.instance import Instance
from ntk_deq.files import write_whole
from ntk_deq.files.yaml import Mapping, Node, NumberText, Scalar, Sequence, problems_below, read_file, to_yaml
from ntk_deq.language.declaration import Setting
from ntk_deq.language.hints import did_you_mean
from ntk_deq.language.types import Margin
from ntk_deq.verify.replay.values import (
    ValueReader,
    archive_bytes,
    bound_text,
    number_text,
    read_bound,
    read_number,
    value_data,
)

FORMAT = 1
"""Number of the present format."""

MAX_INLINE = 256
"""Entries of one variable up to which it is written into the file; a larger one goes into an archive beside it."""


class RecordKind(StrEnum):
    """What an instance is kept for."""

    COUNTEREXAMPLE = "counterexample"
    NEAR_MISS = "near-miss"


@dataclass(frozen=True)
class Record:
    """An instance file, read.

    Attributes:
        kind: What the instance is kept for.
        claim: The claim as it was when the instance was found.
        instance: The instance.
        conclusion: Name of the conclusion that broke, or came closest to equality.
        lhs, rhs, relation, step: Its two sides as text, the sign between them, the step indices.
        margin: The ball of rhs - lhs.
        seed: Seed of the run.
        dtype: Type to which values were rounded when the instance was judged.
        precision: Bits of that judgement; None: floats of type `dtype`.
        device: Device of that judgement, in words.
        versions: Versions of what judged it.
        fingerprint: Hash of what the claim stated.
        found_in: Where the claim stood.
    """

    kind: RecordKind
    claim: Claim
    instance: Instance
    conclusion: str
    lhs: str
    rhs: str
    relation: str
    margin: Margin
    seed: int
    dtype: str
    precision: int | None
    fingerprint: str
    device: str = "cpu"
    versions: dict[str, str] = field(default_factory=dict)
    step: dict[str, float] = field(default_factory=dict)
    found_in: str = ""


Text = Annotated[str, StringConstraints(max_length=4000)]
_MAX_INDEX = 2**62


class RecordModel(BaseModel):
    """An instance file; `margin`, `step`, `rounded`, `values` and `statement` are looked at on their own."""

    model_config = ConfigDict(title="Instance file", extra="forbid", strict=True, frozen=True)

    format: Literal[1] = Field(description="Number of the format.")
    kind: Literal["counterexample", "near-miss"] = Field(description="What the instance is kept for.")
    claim: Label = Field(description="Id of the claim.")
    found_in: Text = Field(default="", description="Where the claim stood.")
    fingerprint: Annotated[str, StringConstraints(max_length=64)] = Field(description="Hash of what the claim states.")
    setting: Label = Field(description="The instance's setting.")
    family: Text = Field(default="", description="What kind of instance it is.")
    index: int = Field(ge=0, le=_MAX_INDEX, description="Number of the instance.")
    seed: int = Field(ge=0, description="Seed of the run.")
    dtype: Literal["float64", "float32"] = Field(description="Type to which values were rounded.")
    precision: Annotated[int, Field(ge=53, le=4096)] | None = Field(description="Bits of the judgement; null: floats.")
    device: Text = Field(description="Where it was judged.")
    versions: dict[Text, Text] = Field(default={}, max_length=50, description="Versions of what judged it.")
    conclusion: FormulaName = Field(description="The conclusion that broke or was tightest.")
    lhs: Text = Field(description="Its left side.")
    relation: Text = Field(description="The sign between the sides.")
    rhs: Text = Field(description="Its right side.")
    margin: list[Any] = Field(min_length=2, max_length=2, description="Bounds of rhs - lhs, hexadecimal.")
    step: dict[Identifier, Any] = Field(default={}, max_length=MAX_ENTRIES, description="Steps or times, as numbers.")
    sizes: dict[VariableName, Annotated[int, Field(ge=1, le=MAX_SIZE)]] = Field(
        default={}, max_length=MAX_ENTRIES, description="Size letters."
    )
    rounded: Any = Field(
        default={}, description="Variables that stand for a value near them, each with a bound of the distance."
    )
    solved: list[VariableName] = Field(
        default=[],
        max_length=MAX_ENTRIES,
        description="Variables that stand for a solution of the hypotheses near them.",
    )
    values: dict[VariableName, Any] = Field(max_length=MAX_ENTRIES, description="Every variable's value.")
    statement: Any = Field(description="A claim file with the claim alone.")


_CLAIM = ("found_in", "fingerprint")
_JUDGEMENT = ("seed", "dtype", "precision", "device", "versions", "conclusion", "lhs", "relation", "rhs")
"""What stands in a file as it does in a record: of the claim, and of the judgement."""

_FAMILY = 400  # characters of the description of an instance that are kept


def write_record(path: Path, record: Record) -> None:
    """Write an instance file, and an archive beside it for variables of more than `MAX_INLINE` entries.

    Args:
        path: The file; its name ends with .yaml. The archive has the same name with .npz.
        record: What to write.

    Raises:
        ArgumentError: The name ends with something else, or a value is not finite.
        OSError: It cannot be written.
    """
    if path.suffix != ".yaml":
        raise ArgumentError(f"`path` of an instance file must end with .yaml. Got {path.name}.")
    archive = path.with_suffix(".npz")
    large = {name: value for name, value in record.instance.values.items() if value.numel() > MAX_INLINE}
    content = to_yaml(_data(record, large, archive.name))
    if large:
        write_whole(archive, archive_bytes(large))
    head = f"# A {record.kind.value} of {record.claim.id}. To judge it again: verify-claims replay {path.name}\n"
    write_whole(path, (head + content).encode())


def _data(record: Record, large: dict[str, Tensor], archive: str) -> dict[str, Any]:
    instance = record.instance
    data: dict[str, Any] = {
        "format": FORMAT,
        "kind": record.kind.value,
        "claim": record.claim.id,
        **{name: getattr(record, name) for name in _CLAIM},
        "setting": instance.setting,
        "family": instance.family[:_FAMILY],
        "index": instance.index,
        **{name: getattr(record, name) for name in _JUDGEMENT},
        "margin": [NumberText(bound_text(bound)) for bound in (record.margin.lo, record.margin.hi)],
    }
    if record.step:
        data["step"] = {name: NumberText(number_text(at)) for name, at in record.step.items()}
    data["sizes"] = instance.sizes
    if instance.rounded:
        data["rounded"] = {name: NumberText(number_text(off)) for name, off in sorted(instance.rounded.items())}
    if instance.solved:
        data["solved"] = sorted(instance.solved)
    data["values"] = {
        name: {"npz": archive} if name in large else value_data(value) for name, value in instance.values.items()
    }
    data["statement"] = claim_file(record.claim)
    return data


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
        step = {name: int(at) if at.is_integer() else at for name, at in self._numbers("step").items()}
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
            margin=margin,
            step=step,
            **{name: getattr(model, name) for name in (*_CLAIM, *_JUDGEMENT)},
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

    def _numbers(self, key: str) -> dict[str, float]:
        """Return the numbers of a mapping; one that cannot be read is reported, and left out."""
        found, node = dict[str, float](), self.root.entries.get(key)
        for name, item in node.entries.items() if isinstance(node, Mapping) else ():
            try:
                found[name] = read_number(item.text if isinstance(item, Scalar) else "a list or mapping")
            except ArgumentError as error:
                self._add((key, name), f"`{key}.{name}`: {error}")
        return found

    def _rounded(self) -> dict[str, float | None]:
        """Return how far variables may be from what they stand for; None where an older file lists them only."""
        node = self.root.entries.get("rounded")
        if isinstance(node, Sequence):
            return {item.text: None for item in node.items if isinstance(item, Scalar)}
        return {**self._numbers("rounded")}

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
