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
        ModelSignature as ModelSignature,
        Role as Role,
        Variable as Variable,
        model_names as model_names,
        model_signature as model_signature,
        register_model as register_model,
    )
    from ntk_deq.systems.accuracy import AccuracyWarning as AccuracyWarning
    from ntk_deq.systems.certificate import (
        CertifiedAdjoint as CertifiedAdjoint,
        CertifiedEquilibrium as CertifiedEquilibrium,
        Proof as Proof,
        certified_adjoint as certified_adjoint,
        certified_equilibrium as certified_equilibrium,
    )
    from ntk_deq.systems.formula_model import FormulaModel as FormulaModel
    from ntk_deq.systems.model import (
        EquilibriumModel as EquilibriumModel,
        model_class as model_class,
    )
    from ntk_deq.systems.module_model import (
        ModuleModel as ModuleModel,
        equilibrium_module as equilibrium_module,
    )
    from ntk_deq.systems.parameter_slopes import RankOne as RankOne
    from ntk_deq.systems.shipped_models import (
        ImplicitReLU as ImplicitReLU,
        LinearImplicit as LinearImplicit,
    )
    from ntk_deq.systems.solve import (
        equilibrium_features as equilibrium_features,
        loss_gradients as loss_gradients,
        predict as predict,
        solve_adjoint as solve_adjoint,
        solve_equilibrium as solve_equilibrium,
    )

__getattr__, __dir__ = lazy_names(__name__)
