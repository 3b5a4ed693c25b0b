"""What an instance file says: a claim, one instance of it, and how that was judged.

The shape of an instance file as a pydantic model: which keys there are and of what kind.

Write an instance file: a claim with one instance of it, self-contained.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from torch import Tensor

from ntk_deq.claims.claim import Claim
from ntk_deq.claims.schema import MAX_ENTRIES, MAX_SIZE, FormulaName, Identifier, Label, VariableName
from ntk_deq.claims.statement import claim_file
from ntk_deq.errors import ArgumentError
from ntk_deq.evaluation.instance import Instance
from ntk_deq.files.atomic import write_whole
from ntk_deq.files.yaml_text import NumberText, to_yaml
from ntk_deq.language.interval import Margin
from ntk_deq.verify.replay.arrays import archive_bytes
from ntk_deq.verify.replay.values import bound_text, number_text, value_data

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
        "found_in": record.found_in,
        "fingerprint": record.fingerprint,
        "setting": instance.setting,
        "family": instance.family[:_FAMILY],
        "index": instance.index,
        "seed": record.seed,
        "dtype": record.dtype,
        "precision": record.precision,
        "device": record.device,
        "versions": record.versions,
        "conclusion": record.conclusion,
        "lhs": record.lhs,
        "relation": record.relation,
        "rhs": record.rhs,
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
