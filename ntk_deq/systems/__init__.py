"""Equilibrium models: declarations that need no torch, implementations and their solves imported on first use.

In the order in which a reader meets them:

    model, module_model                   a model and its loss, a user's modules
    declared_model                        what all models of a declaration have; one without samples of its own
    formula_model, formula_layer          a model whose samples do not interact; one that is a single layer
    formula_values, row_slopes            its programs (those of `language`): values, derivatives
    parameter_slopes                      how slopes pass back through formulas to parameters
    loss_maps, compiled_maps              the maps that one gradient of the declared loss is made of
    solve, accuracy                       equilibria, predictions, gradients; how far they may be off
    certificate                           equilibria and adjoints as balls
    shipped_models                        two of the declared models under names of their own
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ntk_deq.package import lazy_names

if TYPE_CHECKING:
    from ntk_deq.language.declaration import (
        ModelSignature,
        Role,
        Variable,
        model_names,
        model_signature,
        register_model,
    )
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

__getattr__, __dir__ = lazy_names(__name__)
