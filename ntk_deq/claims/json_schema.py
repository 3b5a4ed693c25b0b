"""The JSON Schema of claim files, for editors: generated from the models that check them."""

from __future__ import annotations

from typing import Any

from ntk_deq.claims.schema import ClaimFile
from ntk_deq.language.declaration import model_names

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def claim_file_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a claim file.

    A mutant may leave out what it inherits, so that `setting` and `conclude` are required only where there is no
    `mutates`. What the schema cannot say (shapes, names, the expression language) `verify-claims check` says.

    Example:
        >>> schema = claim_file_schema()
        >>> schema["title"], sorted(schema["required"])
        ('verify-claims claim file', ['suite'])
    """
    schema = ClaimFile.model_json_schema()
    definitions = schema["$defs"]
    definitions["SettingModel"]["properties"]["model"] = {
        "type": "string",
        "examples": list(model_names()),
        "description": definitions["SettingModel"]["properties"]["model"]["description"],
    }
    claim = definitions["ClaimModel"]
    claim["required"] = [key for key in claim["required"] if key == "id"]
    claim["anyOf"] = [{"required": ["mutates"]}, {"required": ["setting", "conclude"]}]
    run = claim["properties"]["run"]["anyOf"][0]
    del run["discriminator"]  # of OpenAPI; JSON Schema tells the methods apart by their `const`
    for section in (
        "run",
        "choose",
        "title",
        "where",
        "note",
        "tags",
        "instances",
        "setting",
        "given",
        "let",
        "assume",
        "witness",
    ):
        claim["properties"][section] = _or_null(claim["properties"][section])
    for section in ("given", "let"):
        for choice in claim["properties"][section]["anyOf"]:
            _allow_null_entries(choice)
    _close(schema)
    registered = {"properties": {"model": {"enum": list(model_names())}}}
    schema["anyOf"] = [{"required": ["systems"]}, {"properties": {"settings": {"additionalProperties": registered}}}]
    return {"$schema": DIALECT, **schema, "title": "verify-claims claim file"}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Let an empty value stand, with which a mutant drops what it inherits."""
    about: dict[str, Any] = {key: schema[key] for key in ("title", "description", "default") if key in schema}
    rest = {key: value for key, value in schema.items() if key not in about}
    choices = rest["anyOf"] if set(rest) == {"anyOf"} else [rest]
    if {"type": "null"} not in choices:
        choices = [*choices, {"type": "null"}]
    return {**about, "anyOf": choices}


def _allow_null_entries(schema: dict[str, Any]) -> None:
    if "patternProperties" in schema:
        schema["patternProperties"] = {name: _or_null(value) for name, value in schema["patternProperties"].items()}


def _close(schema: Any) -> None:
    """Forbid names that match no pattern, everywhere below; pydantic leaves such mappings open."""
    if isinstance(schema, dict):
        if "patternProperties" in schema:
            schema["additionalProperties"] = False
        for value in schema.values():
            _close(value)
    elif isinstance(schema, list):
        for value in schema:
            _close(value)
