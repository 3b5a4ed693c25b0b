"""Fixed points of any PyTorch map: solved sample by sample with a status, and differentiated implicitly."""

from ntk_deq.equilibrium.accuracy import AccuracyWarning
from ntk_deq.equilibrium.certified import certified_adjoint, certified_equilibrium
from ntk_deq.equilibrium.driver import solve_fixed_point
from ntk_deq.equilibrium.implicit import fixed_point
from ntk_deq.equilibrium.proofs import CertifiedAdjoint, CertifiedEquilibrium, Proof
from ntk_deq.equilibrium.result import Equilibrium, Status
from ntk_deq.equilibrium.solve import (
    equilibrium_features,
    loss_gradients,
    predict,
    solve_adjoint,
    solve_equilibrium,
)
from ntk_deq.equilibrium.solvers import SOLVERS, Anderson, Damped, Picard, Solver, make_solver

__all__ = [
    "SOLVERS",
    "AccuracyWarning",
    "Anderson",
    "CertifiedAdjoint",
    "CertifiedEquilibrium",
    "Damped",
    "Equilibrium",
    "Picard",
    "Proof",
    "Solver",
    "Status",
    "certified_adjoint",
    "certified_equilibrium",
    "equilibrium_features",
    "fixed_point",
    "loss_gradients",
    "make_solver",
    "predict",
    "solve_adjoint",
    "solve_equilibrium",
    "solve_fixed_point",
]
