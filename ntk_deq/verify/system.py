"""A declared system in Python: the class of a model, by the name of a registered one or out of a claim file."""

from __future__ import annotations

from pathlib import Path

from ntk_deq.claims.documents import read_documents
from ntk_deq.errors import ArgumentError, nearest_name
from ntk_deq.language.library import model_names, model_signature
from ntk_deq.systems.model import EquilibriumModel, model_class


def system(name: str, *, path: str | Path | None = None) -> type[EquilibriumModel]:
    """Return the class of a system: its values are given by name, or drawn by `random`.

    A model of it has `solve(X)`, `predict(X)`, `loss(X, y)` and `parameters()`, and goes into `ntk_gram`, `train`,
    `loss_gradients` and `lipschitz_bounds`. Tensors lie as the system declares them, with samples in rows or columns.

    Args:
        name: Under which it is registered, or declared in the file.
        path: A claim file that declares it under `systems`, itself or in a part that it includes.

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
    if path is None:
        return model_class(model_signature(name))
    documents = read_documents(Path(path))
    declared = {key: signature for document in reversed(documents) for key, signature in document.systems.items()}
    if name in declared:
        return model_class(declared[name])
    known = ", ".join(declared) or "none"
    near = nearest_name(name, declared)
    hint = f" Did you mean {near!r}?" if near else ""
    if name in model_names():
        hint = " One of that name is registered: leave `path` out."
    raise ArgumentError(f"The file {documents[0].shown} declares no system {name!r}. Its systems: {known}.{hint}")
