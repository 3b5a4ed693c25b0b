"""The `images` part of a setting: which sizes it fixes, which variables it gives, which files it may name."""

from __future__ import annotations

from collections.abc import Sequence, Set
from pathlib import Path

from ntk_deq.claims.schema import ImagesModel
from ntk_deq.language.declaration import ImageData, ModelSignature, Role
from ntk_deq.language.types import SizeRange

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
    allow: Sequence[Path],
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


def inside(text: str, directory: Path, allow: Sequence[Path]) -> Path | None:
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
