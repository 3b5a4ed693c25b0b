"""Checks a node of a claim file against a pydantic model and says what is wrong where, in words of the file.

For editors, the models give a JSON Schema of claim files. What no model can say of the `images` of a setting is checked
here too: which sizes they fix, which variables they give, which files they may name.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from collections.abc import Sequence as Items
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ntk_deq.claims.schema import (
    DEFINED,
    IDENTIFIER,
    LABEL,
    RUN_MODELS,
    ClaimFile,
    ClaimModel,
    ImagesModel,
    SettingModel,
    SystemModel,
)
from ntk_deq.errors import Position, Problem
from ntk_deq.files.yaml import Mapping, Node, Scalar, Sequence, plain
from ntk_deq.language.declaration import ImageData, ModelSignature, Role, model_names
from ntk_deq.language.hints import did_you_mean, shown
from ntk_deq.language.types import SizeRange

Model = TypeVar("Model", bound=BaseModel)

_PATTERNS = {
    IDENTIFIER: "a letter or _ followed by letters, digits or _",
    DEFINED: "a letter or _ followed by letters, digits or _, or a member such as z[0] or z[l] for l in 1..L, or a "
    "function such as phi(u)",
    LABEL: "letters, digits and . _ + -, starting with a letter or digit",
}
_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping (`name: value` lines)",
    "model_type": "a mapping (`name: value` lines)",
    "model_attributes_type": "a mapping (`name: value` lines)",
}


def validate(
    model: type[Model], node: Node, what: str, *, claim: str | None = None
) -> tuple[Model | None, list[Problem]]:
    """Check a node against a model.

    Args:
        model: What the node must be.
        node: The node.
        what: What the node is, for messages: `a claim`.
        claim: Id of the claim that the problems belong to.

    Returns:
        The model's instance or None, and everything that is wrong. Where only unknown keys are wrong, the instance is
        that of the node without them, so that the rest can be looked at too.
    """
    data = plain(node)
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        errors: list[dict[str, Any]] = [_plain_error(dict(item)) for item in error.errors(include_url=False)]
    problems = [_problem(model, node, what, claim, item) for item in errors]
    if any(item["type"] != "extra_forbidden" for item in errors):
        return None, problems
    for item in errors:
        inner = data
        for step in item["loc"][:-1]:
            inner = inner[step]
        del inner[item["loc"][-1]]
    try:
        return model.model_validate(data), problems
    except ValidationError:  # what was left out was needed
        return None, problems


def place(node: Node, location: Items[str | int], *, key: bool = False) -> Position:
    """Return where the value (with `key`: the key) at a location stands; the enclosing place if it is absent."""
    position = node.position
    for step in location:
        if isinstance(node, Mapping) and isinstance(step, str) and step in node.entries:
            position = node.keys[step] if key else node.entries[step].position
            node = node.entries[step]
        elif isinstance(node, Sequence) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
            position = node.position
        elif not isinstance(node, Scalar):
            break
    return position


def _plain_error(error: dict[str, Any]) -> dict[str, Any]:
    """Return an error of pydantic as if a run were one model: its place without the method, a method like any key."""
    location = error["loc"]
    if location[:1] == ("run",) and location[1:2] and location[1] in RUN_MODELS:
        return {**error, "loc": (location[0], *location[2:])}
    if error["type"] == "union_tag_not_found":
        return {**error, "type": "missing", "loc": (*location, "method")}
    if error["type"] == "union_tag_invalid":
        context = {"expected": error["ctx"]["expected_tags"]}
        place, got = (*location, "method"), error["input"]["method"]
        return {**error, "type": "literal_error", "loc": place, "ctx": context, "input": got}
    return error


_PART = "all parameters are trained: in a system of your own under `systems`, give the others the role hyperparameter"
_LOSS = "the loss is the model's `L`: declare a system under `systems` that defines it"
_REMEDIES = dict.fromkeys(
    ("parameters", "params", "train", "trained", "variables", "over", "wrt"), _PART
) | dict.fromkeys(("loss", "objective", "cost", "risk"), _LOSS)
"""Keys of `run` that people look for."""


def _foreign_key(method: str, key: str | int, claim: str | None, position: Position) -> Problem | None:
    """Return the problem of a key of `run` that belongs to another method, or None."""
    owners = [name for name, model in RUN_MODELS.items() if key in model.model_fields]
    if not owners:
        return None
    keys = ", ".join(RUN_MODELS[method].model_fields)
    message = f"`run.{key}` belongs to {' and '.join(owners)}. The method {method} takes {keys}."
    return Problem(position, message, claim)


def _elsewhere(location: list[str | int]) -> str | None:
    """Return where a key stands that is unknown in a setting, a system or a claim; None: nowhere, or not in one."""
    sections: dict[str, type[BaseModel]] = {"systems": SystemModel, "settings": SettingModel, "claims": ClaimModel}
    found = [section for section, model in sections.items() if location[0] in model.model_fields]
    return f"it stands in an entry of `{found[0]}`" if len(location) == len(found) == 1 else None


def _method(node: Node) -> str | None:
    """Return the method of the run of a claim's node, where it is one."""
    run = node.entries.get("run") if isinstance(node, Mapping) else None
    method = run.entries.get("method") if isinstance(run, Mapping) else None
    return method.text if isinstance(method, Scalar) and method.text in RUN_MODELS else None


def _problem(model: type[BaseModel], node: Node, what: str, claim: str | None, error: dict[str, Any]) -> Problem:
    location = [step for step in error["loc"] if step != "[key]"]
    kind, context = error["type"], error.get("ctx", {})
    about_key = kind == "extra_forbidden" or error["loc"][-1:] == ("[key]",)
    position = place(node, location, key=about_key)
    path = ".".join(str(step) for step in location)
    if kind == "extra_forbidden":
        method = _method(node) if location[0] == "run" and len(location) > 1 else None
        foreign = _foreign_key(method, location[-1], claim, position) if method is not None else None
        if foreign is not None:
            return foreign
        owner = RUN_MODELS[method] if method is not None else _owner(model, location[:-1])
        allowed = list(owner.model_fields)
        inside = f"`{'.'.join(str(step) for step in location[:-1])}` of {what}" if location[:-1] else what
        message = f"Unknown key `{location[-1]}` in {inside}. Allowed: {', '.join(allowed)}."
        hint = _REMEDIES.get(str(location[-1])) if location[0] == "run" else None
        hint = hint or did_you_mean(str(location[-1]), allowed) or _elsewhere(location)
        return Problem(position, message, claim, hint=hint)
    if kind == "missing":
        return Problem(place(node, location[:-1]), f"{_start(what)} needs the key `{path}`.", claim)
    subject = f"`{path}` of {what}" if path else _start(what)
    got, hint = error["input"], None
    if about_key:
        subject, got = (
            f"The name `{location[-1]}` in `{'.'.join(str(s) for s in location[:-1])}` of {what}",
            location[-1],
        )
    if kind in ("enum", "literal_error") and isinstance(got, str):
        hint = did_you_mean(got, context["expected"].replace("'", "").replace(" or ", ", ").split(", "))
    if kind == "string_type" and isinstance(got, int | float):
        hint = "put it in quotes"
    return Problem(position, f"{subject} must be {_wanted(kind, context)}. Got {shown(got)}.", claim, hint=hint)


def _wanted(kind: str, context: dict[str, Any]) -> str:
    rules: dict[str, Callable[[], str]] = {
        "wanted": lambda: context["what"],
        "enum": lambda: f"one of {context['expected'].replace(' or ', ', ')}",
        "literal_error": lambda: f"one of {context['expected'].replace(' or ', ', ')}",
        "greater_than_equal": lambda: f"a number >= {context['ge']}",
        "less_than_equal": lambda: f"a number <= {context['le']}",
        "string_too_short": lambda: "text that is not empty",
        "string_too_long": lambda: f"text of at most {context['max_length']} characters",
        "too_short": lambda: f"a list or mapping with at least {context['min_length']} entry",
        "too_long": lambda: f"a list or mapping with at most {context['max_length']} entries",
        "string_pattern_mismatch": lambda: _PATTERNS.get(context["pattern"], f"text like {context['pattern']}"),
    }
    if kind in rules:
        return rules[kind]()
    return _WANTED.get(kind, "of another kind")


def _owner(model: type[BaseModel], location: Items[str | int]) -> type[BaseModel]:
    """Return the model that the mapping at a location has to satisfy."""
    for step in location:
        if isinstance(step, str) and step in model.model_fields:
            inner = _model_in(model.model_fields[step].annotation)
            if inner is not None:
                model = inner
    return model


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found is not None:
            return found
    return None


def _start(what: str) -> str:
    return what[0].upper() + what[1:]


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


_MNIST_SIDE = 28  # pixels of a stored digit
_FILES = {"mnist": (), "idx": ("images", "labels"), "npz": ("images",)}
Wrong = tuple[str, str]
"""A key of `images` (or nothing, for all of it) and what is wrong there."""


def image_data(
    model: ImagesModel,
    *,
    signature: ModelSignature | None,
    sizes: dict[str, SizeRange],
    elsewhere: Set[str],
    directory: Path,
    allow: Items[Path],
) -> tuple[ImageData, list[Wrong]]:
    """Return the images of a setting and what is wrong with them; sizes that they fix are entered into `sizes`.

    Args:
        model: The checked entry.
        signature: The setting's model.
        sizes: The setting's sizes; changed.
        elsewhere: Variables that the setting takes from somewhere else.
        directory: Folder of the claim file.
        allow: Further folders or files that data may come from.
    """
    wrong: list[Wrong] = []
    inputs, targets = "X", "y"
    samples, features = "N", "d"
    if signature is not None:
        inputs = (*signature.names(Role.INPUT), inputs)[0]
        targets = (*signature.names(Role.TARGET), targets)[0]
        samples, features = signature.variable(inputs).shape if inputs in signature.names() else (samples, features)
    side = model.side or (_MNIST_SIDE if model.source == "mnist" else None)
    if side is not None:
        wrong += _fix(features, side**2, "side", f"images of {side} x {side} pixels", sizes)
    elif features not in sizes or not sizes[features].fixed:
        wrong.append(("", f"the size {features} must be one number, or `side` must be given."))
    if model.count is not None:
        wrong += _fix(samples, model.count, "count", f"{model.count} samples", sizes)
    elif samples not in sizes:
        wrong.append(("", f"the size {samples} must be given, or `count`."))
    if len(set(model.classes)) < len(model.classes):
        wrong.append(("classes", "`images.classes` must name each class once."))
    paths = {}
    for key, text in (("images", model.images), ("labels", model.labels)):
        if (text is not None) != (key in _FILES[model.source]):
            needs = "needs" if text is None else "takes no"
            wrong.append((key if text is not None else "", f"`images.source: {model.source}` {needs} `{key}`."))
        elif text is not None:
            found = inside(text, directory, allow)
            paths[key] = str(found)
            if found is None:
                allowed = "must lie in the folder of the claim file, or be allowed on the command line"
                wrong.append((key, f"a data file {allowed}. Got {text!r}."))
    data = ImageData(
        source=model.source,
        images=paths.get("images"),
        labels=paths.get("labels"),
        classes=tuple(model.classes),
        count=model.count,
        unit_norm=model.unit_norm,
        side=model.side,
        split=model.split,
        inputs=inputs,
        targets=None if targets in elsewhere else targets,
    )
    return data, wrong


def _fix(letter: str, value: int, key: str, what: str, sizes: dict[str, SizeRange]) -> list[Wrong]:
    """Set a size to the value that the images have; say so where the setting asks for another."""
    declared = sizes.get(letter, SizeRange(value, value))
    sizes[letter] = SizeRange(value, value)
    if declared.low <= value <= declared.high:
        return []
    asked = str(declared.low) if declared.fixed else f"{declared.low}..{declared.high}"
    return [(key, f"{what} make {letter} = {value}; `sizes` asks for {asked}.")]


def inside(text: str, directory: Path, allow: Items[Path]) -> Path | None:
    """Return the resolved path where it lies below the folder or an allowed path, links followed.

    Args:
        text: The path as it is written.
        directory: Folder of the claim file.
        allow: Further folders or files.
    """
    try:
        path = (directory / text).resolve()
        roots = [root.resolve() for root in (directory, *allow)]
    except (OSError, RuntimeError, ValueError):  # a loop of links, a NUL in the name
        return None
    return path if any(path.is_relative_to(root) for root in roots) else None
