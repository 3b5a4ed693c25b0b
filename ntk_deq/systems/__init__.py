"""Equilibrium models: declarations that need no torch, implementations and their solves imported on first use.

In the order in which a reader meets them:

    model, methods, module_model          what a model is, what it can be asked, one made of a user's modules
    declared_model                        what all models of a declaration have; one without samples of its own
    formula_model, formula_layer          a model whose samples do not interact; one that is a single layer
    formula_values, row_slopes            its programs (those of `language`): values, derivatives
    parameter_slopes                      how slopes pass back through formulas to parameters
    losses, loss_maps, compiled_maps, whole_maps   the declared loss, and the maps that one gradient is made of
    solve, accuracy                       equilibria, predictions, gradients; how far they may be off
    certificate                           equilibria and adjoints as balls
    shipped_models                        two of the declared models under names of their own
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ntk_deq.language.declaration import ModelSignature, Role, Variable, model_names, model_signature, register_model

if TYPE_CHECKING:
    from ntk_deq.systems.accuracy import AccuracyWarning
    from ntk_deq.systems.certificate import (
        CertifiedAdjoint,
        CertifiedEquilibrium,
        Proof,
        certified_adjoint,
        certified_equilibrium,
    )
    from ntk_deq.systems.formula_model import FormulaModel
    from ntk_deq.systems.model import EquilibriumModel, model_class
    from ntk_deq.systems.module_model import ModuleModel, equilibrium_module
    from ntk_deq.systems.parameter_slopes import RankOne
    from ntk_deq.systems.shipped_models import ImplicitReLU, LinearImplicit
    from ntk_deq.systems.solve import equilibrium_features, loss_gradients, predict, solve_adjoint, solve_equilibrium

_HOMES = {
    "ntk_deq.systems.accuracy": ("AccuracyWarning",),
    "ntk_deq.systems.certificate": (
        "CertifiedAdjoint",
        "CertifiedEquilibrium",
        "Proof",
        "certified_adjoint",
        "certified_equilibrium",
    ),
    "ntk_deq.systems.formula_model": ("FormulaModel",),
    "ntk_deq.systems.model": ("EquilibriumModel", "model_class"),
    "ntk_deq.systems.module_model": ("ModuleModel", "equilibrium_module"),
    "ntk_deq.systems.parameter_slopes": ("RankOne",),
    "ntk_deq.systems.shipped_models": ("ImplicitReLU", "LinearImplicit"),
    "ntk_deq.systems.solve": (
        "equilibrium_features",
        "loss_gradients",
        "predict",
        "solve_adjoint",
        "solve_equilibrium",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AccuracyWarning",
    "CertifiedAdjoint",
    "CertifiedEquilibrium",
    "EquilibriumModel",
    "FormulaModel",
    "ImplicitReLU",
    "LinearImplicit",
    "ModelSignature",
    "ModuleModel",
    "Proof",
    "RankOne",
    "Role",
    "Variable",
    "certified_adjoint",
    "certified_equilibrium",
    "equilibrium_features",
    "equilibrium_module",
    "loss_gradients",
    "model_class",
    "model_names",
    "model_signature",
    "predict",
    "register_model",
    "solve_adjoint",
    "solve_equilibrium",
]


def __getattr__(name: str) -> object:
    """Import a name that needs torch when it is first asked for (PEP 562)."""
    if name in _HOME_OF:
        return getattr(importlib.import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the lazy names too."""
    return __all__
