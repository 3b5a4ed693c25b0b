"""Equilibrium models: signatures that need no torch, and implementations imported on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ntk_deq.models.registry import model_class, model_names, model_signature, register_model
from ntk_deq.models.signature import ModelSignature, Role, Variable

if TYPE_CHECKING:
    from ntk_deq.models.base import EquilibriumModel, HadamardTerm
    from ntk_deq.models.implicit_relu import ImplicitReLU
    from ntk_deq.models.linear_implicit import LinearImplicit

__all__ = [
    "EquilibriumModel",
    "HadamardTerm",
    "ImplicitReLU",
    "LinearImplicit",
    "ModelSignature",
    "Role",
    "Variable",
    "model_class",
    "model_names",
    "model_signature",
    "register_model",
]

_LAZY = {
    "EquilibriumModel": "ntk_deq.models.base",
    "HadamardTerm": "ntk_deq.models.base",
    "ImplicitReLU": "ntk_deq.models.implicit_relu",
    "LinearImplicit": "ntk_deq.models.linear_implicit",
}


def __getattr__(name: str) -> object:
    """Import a name that needs torch when it is first asked for (PEP 562)."""
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the lazy names too."""
    return __all__
