"""What a run was computed with: options, model, precision, versions; and what builds its model again."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ntk_deq.dynamics.run_inputs import owned
from ntk_deq.models.base import EquilibriumModel
from ntk_deq.models.registry import model_class, model_names
from ntk_deq.models.signature import Role
from ntk_deq.version import __version__


def describe_run(model: EquilibriumModel, X: Tensor, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for the record of a run: plain values only.

    Args:
        model: The model.
        X: The inputs.
        options: Options of the method.

    Example:
        >>> from ntk_deq.models import ImplicitReLU
        >>> model = ImplicitReLU.random(2, 3, generator=torch.Generator().manual_seed(0))
        >>> found = describe_run(model, torch.zeros(4, 2, dtype=torch.float64), {"until": 0.5})
        >>> found["model"], found["sizes"], found["dtype"], found["until"]
        ('implicit-relu', {'N': 4, 'd': 2, 'm': 3}, 'float64', 0.5)
    """
    N, d = X.shape
    return {
        **options,
        "model": model.signature.name,
        "sizes": {"N": N, "d": d, "m": model.initial_state(X).shape[1]},
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
        >>> from ntk_deq.models import ImplicitReLU
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
