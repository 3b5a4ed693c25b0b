"""Quantities of equilibrium models: tangent kernels, spectra, Lipschitz bounds, loss landscapes, trajectories.

kernel.py, tangent_kernel.py    the tangent kernel; its result, its structure, the fixed points behind it
spectra.py, lipschitz.py        singular and eigenvalues; Lipschitz constants
objective.py, landscapes.py     the loss as a function of parameters; around a model
trajectories.py                 the way of a solver to the equilibrium
"""

from ntk_deq.quantities.kernel import ntk_gram
from ntk_deq.quantities.landscapes import Landscape, NeighbourhoodWidth, landscape, neighbourhood_width
from ntk_deq.quantities.lipschitz import LipschitzBounds, lipschitz_bounds
from ntk_deq.quantities.objective import Normalisation
from ntk_deq.quantities.spectra import (
    Measured,
    Spectrum,
    condition_number,
    lambda_max,
    lambda_min,
    sigma_max,
    sigma_min,
    spectrum,
)
from ntk_deq.quantities.tangent_kernel import KernelMethod, SolveRecord, TangentKernel
from ntk_deq.quantities.trajectories import Components, Trajectory, trajectory

__all__ = [
    "Components",
    "KernelMethod",
    "Landscape",
    "LipschitzBounds",
    "Measured",
    "NeighbourhoodWidth",
    "Normalisation",
    "SolveRecord",
    "Spectrum",
    "TangentKernel",
    "Trajectory",
    "condition_number",
    "lambda_max",
    "lambda_min",
    "landscape",
    "lipschitz_bounds",
    "neighbourhood_width",
    "ntk_gram",
    "sigma_max",
    "sigma_min",
    "spectrum",
    "trajectory",
]
