"""Fixed points of any PyTorch map: solved sample by sample with a status, and differentiated implicitly."""

from ntk_deq.equilibrium.driver import solve_fixed_point
from ntk_deq.equilibrium.implicit import fixed_point
from ntk_deq.equilibrium.result import Equilibrium, Status
from ntk_deq.equilibrium.solvers import SOLVERS, Anderson, Damped, Picard, Solver, make_solver
from ntk_deq.equilibrium.splitting import (
    ForwardBackward,
    MonotoneLayer,
    PeacemanRachford,
    Splitting,
    monotone_parameters,
)

__all__ = [
    "SOLVERS",
    "Anderson",
    "Damped",
    "Equilibrium",
    "ForwardBackward",
    "MonotoneLayer",
    "PeacemanRachford",
    "Picard",
    "Solver",
    "Splitting",
    "Status",
    "fixed_point",
    "make_solver",
    "monotone_parameters",
    "solve_fixed_point",
]
