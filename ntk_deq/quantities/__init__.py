"""Quantities of equilibrium models: tangent kernels, spectra, Lipschitz bounds. Imports torch."""

from ntk_deq.quantities.kernel import ntk_gram
from ntk_deq.quantities.lipschitz import LipschitzBounds, lipschitz_bounds
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

__all__ = [
    "KernelMethod",
    "LipschitzBounds",
    "Measured",
    "SolveRecord",
    "Spectrum",
    "TangentKernel",
    "condition_number",
    "lambda_max",
    "lambda_min",
    "lipschitz_bounds",
    "ntk_gram",
    "sigma_max",
    "sigma_min",
    "spectrum",
]
