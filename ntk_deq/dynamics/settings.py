"""What a run was computed with: options, model, precision, versions; and what builds its model again.

What a run is given, checked and copied: what becomes of the caller's tensors later changes no run and no record.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ntk_deq.equilibrium.stored_values import owned
from ntk_deq.errors import ArgumentError
from ntk_deq.language.declaration import Role, model_names
from ntk_deq.systems.checks import check_loss, check_model, check_variables
from ntk_deq.systems.model import EquilibriumModel, model_class
from ntk_deq.version import __version__


def checked_problem(model: EquilibriumModel, X: Tensor | None, y: Tensor | None, where: str) -> tuple[Tensor, Tensor]:
    """Return inputs and targets, without entries where a system has none; refuse what `check_problem` does.

    Args:
        model: The model.
        X: Inputs, or None.
        y: Targets, or None.
        where: Whose arguments they are.

    Raises:
        ArgumentError: As in `check_problem`, or one is missing.
    """
    check_model(model, where)
    X, y = model.data(X, y)
    check_problem(model, X, y, where)
    return X, y


def check_problem(model: EquilibriumModel, X: Tensor, y: Tensor, where: str) -> None:
    """Refuse a model, inputs or targets that are of the wrong kind or do not fit each other.

    Args:
        model: The model.
        X: Inputs, one sample a row.
        y: Targets.
        where: Whose arguments they are.

    Raises:
        ArgumentError: The message names the first thing that is wrong.

    Example:
        >>> from ntk_deq.systems import ImplicitReLU
        >>> model = ImplicitReLU.random(2, 3, generator=torch.Generator().manual_seed(0))
        >>> X = torch.eye(2, dtype=torch.float64)
        >>> check_problem(model, X.to_sparse(), X[0], "gradient-descent")
        Traceback (most recent call last):
            ...
        ntk_deq.errors.ArgumentError: `X` of gradient-descent must be a dense tensor. Got torch.sparse_coo.
    """
    check_model(model, where)
    check_loss(model.signature, where)
    signature = model.signature
    data = {**dict.fromkeys(signature.names(Role.INPUT), X), **dict.fromkeys(signature.names(Role.TARGET), y)}
    for name, value in data.items():
        if isinstance(value, Tensor) and value.layout is not torch.strided:
            raise ArgumentError(f"`{name}` of {where} must be a dense tensor. Got {value.layout}.")
    check_variables(signature, {**model.parameters(), **data})


def check_on_step(on_step: object, where: str) -> None:
    """Refuse a callback that cannot be called.

    Args:
        on_step: What was given; None: there is none.
        where: Whose argument it is.

    Raises:
        ArgumentError: It is neither callable nor None.

    Example:
        >>> check_on_step(5, "gradient-descent")
        Traceback (most recent call last):
            ...
        ntk_deq.errors.ArgumentError: `on_step` of gradient-descent must be callable, or None. Got 5.
    """
    if on_step is not None and not callable(on_step):
        raise ArgumentError(f"`on_step` of {where} must be callable, or None. Got {on_step!r}.")


def describe_run(model: EquilibriumModel, X: Tensor, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for the record of a run: plain values only.

    Args:
        model: The model.
        X: The inputs.
        options: Options of the method.

    Example:
        >>> from ntk_deq.systems import ImplicitReLU
        >>> model = ImplicitReLU.random(2, 3, generator=torch.Generator().manual_seed(0))
        >>> found = describe_run(model, torch.zeros(4, 2, dtype=torch.float64), {"until": 0.5})
        >>> found["model"], found["sizes"], found["dtype"], found["until"]
        ('implicit-relu', {'d': 2, 'm': 3, 'N': 4}, 'float64', 0.5)
    """
    signature = model.signature
    values = {**model.parameters(), **dict.fromkeys(signature.names(Role.INPUT), X)}
    known = dict.fromkeys(signature.sizes, 0)
    for name, value in values.items():
        known |= dict(zip(signature.variable(name).shape, value.shape, strict=True))
    return {
        **options,
        "model": signature.name,
        "sizes": {letter: size for letter, size in known.items() if size},
        "dtype": str(X.dtype).removeprefix("torch."),
        "device": str(X.device),
        "threads": torch.get_num_threads(),
        "versions": {"ntk_deq": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }


def model_values(model: EquilibriumModel) -> dict[str, Any]:
    """Return copies of what builds the model again; no name where it is not the one registered under its name.

    Args:
        model: The model.

    Example:
        >>> from ntk_deq.systems import ImplicitReLU
        >>> found = model_values(ImplicitReLU.random(2, 3, generator=torch.Generator().manual_seed(0)))
        >>> found["name"], list(found["values"])
        ('implicit-relu', ['W', 'A', 'b', 'gamma'])
    """
    signature = model.signature
    known = signature.name in model_names() and model_class(signature.name) is type(model)
    values = dict(model.parameters())
    values |= {name: torch.as_tensor(getattr(model, name)) for name in signature.names(Role.HYPERPARAMETER)}
    return {
        "name": signature.name if known else None,
        "values": {name: owned(value) for name, value in values.items()},
    }
