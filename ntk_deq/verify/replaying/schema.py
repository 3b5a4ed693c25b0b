"""The shape of an instance file as a pydantic model: which keys there are and of what kind."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from ntk_deq.claims.schema import MAX_ENTRIES, MAX_SIZE, FormulaName, Identifier, Label

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
    sizes: dict[Identifier, Annotated[int, Field(ge=1, le=MAX_SIZE)]] = Field(
        default={}, max_length=MAX_ENTRIES, description="Size letters."
    )
    rounded: Any = Field(
        default={}, description="Variables that stand for a value near them, each with a bound of the distance."
    )
    solved: list[Identifier] = Field(
        default=[],
        max_length=MAX_ENTRIES,
        description="Variables that stand for a solution of the hypotheses near them.",
    )
    values: dict[Identifier, Any] = Field(max_length=MAX_ENTRIES, description="Every variable's value.")
    statement: Any = Field(description="A claim file with the claim alone.")
