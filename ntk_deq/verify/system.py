"""A declared system in Python: the class of a model, by the name of a registered one or out of a claim file."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from ntk_deq.claims.depths import depth_letters, written_out
from ntk_deq.claims.documents import read_documents
from ntk_deq.errors import ArgumentError, ExpressionError, Position, check_instance, nearest_name
from ntk_deq.language.declaration import ModelSignature, Setting, model_names, model_signature
from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.families import split_member, values_of
from ntk_deq.language.tree import Span
from ntk_deq.language.types import Reach, Size, SizeRange, shape_type
from ntk_deq.systems.model import EquilibriumModel, model_class

_NOWHERE = Span(0, 0)


def system(
    name: str, *, path: str | Path | None = None, depth: Mapping[str, int] | None = None
) -> type[EquilibriumModel]:
    """Return the class of a system: its values are given by name, or drawn by `random`.

    A model of it has `solve(X)`, `predict(X)`, `loss(X, y)` and `parameters()`, and goes into `ntk_gram`, `train`,
    `loss_gradients` and `lipschitz_bounds`. Tensors lie as the system declares them, with samples in rows or columns.

    Args:
        name: Under which it is registered, or declared in the file.
        path: A claim file that declares it under `systems`, itself or in a part that it includes.
        depth: Of a system with families, the value of each letter of its ranges, `{"L": 3}`. Its variables are then
            called `W[1]`, `W[2]`, ..., and the class takes lists for families: `cls(W=[W1, W2, W3])`.

    Raises:
        ArgumentError: There is no such system, or its formulas cannot be compiled; the message lists the names.
        ClaimFileError: The file cannot be used.

    Example:
        >>> import torch
        >>> cls = system("implicit-relu")
        >>> model = cls.random(d=3, m=4, generator=torch.Generator().manual_seed(0))
        >>> model.predict(torch.eye(3, dtype=torch.float64)).shape
        torch.Size([3])
    """
    if not isinstance(name, str):
        raise ArgumentError(f"`name` of system must be a text. Got {name!r}.")
    if depth is not None:
        check_instance(depth, Mapping, "depth", "system", "a mapping of letters to integers")
    if path is None:
        return model_class(model_signature(name))
    check_instance(path, str | PathLike, "path", "system", "the path of a claim file")
    documents = read_documents(Path(path))
    declared = {key: signature for document in reversed(documents) for key, signature in document.systems.items()}
    if name in declared:
        found = declared[name]
        if found.has_families:
            return model_class(model_at(found, depth or {}))
        if depth:
            raise ArgumentError(f"`depth` is for systems with families, and {name} has none. Got {dict(depth)}.")
        return model_class(found)
    known = ", ".join(declared) or "none"
    near = nearest_name(name, declared)
    hint = f" Did you mean {near!r}?" if near else ""
    if name in model_names():
        hint = " One of that name is registered: leave `path` out."
    raise ArgumentError(f"The file {documents[0].shown} declares no system {name!r}. Its systems: {known}.{hint}")


def model_at(model: ModelSignature, depth: Mapping[str, int]) -> ModelSignature:
    """Return a system with families for one depth, an ordinary model whose variables are called like `W[1]`.

    Args:
        model: The system.
        depth: The value of each letter that its ranges and indices use.

    Raises:
        ArgumentError: A letter is missing or unknown, or the system has no meaning at this depth.
    """
    for letter, value in depth.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ArgumentError(f"The values of `depth` must be integers >= 1. Got {letter} = {value!r}.")
    members: dict[str, set[int]] = {name: set() for name in model.families}
    try:
        for variable in model.variables:
            for at in values_of(variable.over, depth, {}, _NOWHERE) if variable.over is not None else (0,):
                own = {} if variable.over is None else {variable.over.letter: at}
                for name, index in filter(None, map(split_member, variable.shape)):
                    members[name].add(index.evaluate({**depth, **own}))
    except KeyError as error:
        message = f"The system {model.name} has families; `depth` must give {error.args[0]}."
        raise ArgumentError(message) from None
    sizes = {letter: SizeRange(1, 2**31) for letter in model.sizes if letter not in members}
    for letter, found in members.items():
        first, last = min(found, default=1), max(found, default=0)
        sizes[letter] = SizeRange(1, 2**31, Reach("l", Size.of(first), Size.of(last), f"l in {first}..{last}"))
    free = {v.name: Free(v.name, shape_type(v.shape), Domain(DomainKind.REAL), v.over) for v in model.variables}
    setting = Setting(model.name, model, sizes, free, {}, None, Position("", 1, 1))
    unknown = sorted(depth.keys() - sizes.keys() | (depth.keys() & members.keys()))
    if unknown:
        allowed = ", ".join(name for name in sizes if name not in members)
        raise ArgumentError(f"The letters of `depth` must be among {allowed}. Got {unknown[0]!r}.")
    try:
        missing = set(depth_letters(setting)) - depth.keys()
        if missing:
            raise ArgumentError(
                f"The system {model.name} has families; `depth` must give {', '.join(sorted(missing))}."
            )
        found_model = written_out(setting, {}, {}, depth).setting.model
    except ExpressionError as error:
        raise ArgumentError(f"The system {model.name} has no meaning at this depth: {error}") from error
    assert found_model is not None
    return found_model
