"""Analysis and verification of equilibrium (implicit, infinite-depth) networks.

In a notebook:

    >>> import torch
    >>> import ntk_deq as nd
    >>> generator = torch.Generator().manual_seed(0)
    >>> model = nd.ImplicitReLU.random(d=3, m=8, generator=generator)
    >>> X = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    >>> Z = nd.solve_equilibrium(model, X)
    >>> bool(Z.all_converged)
    True
    >>> H = nd.ntk_gram(model, X)
    >>> bool(nd.lambda_min(H) > 0)
    True

Names, and subpackages such as `nd.systems` and `nd.plots`, are imported when they are first used, so that
`import ntk_deq` costs nothing and the command line starts at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ntk_deq.package import __version__, lazy_names

if TYPE_CHECKING:
    from ntk_deq.claims.load import load_suite
    from ntk_deq.data import load_images, select_images
    from ntk_deq.dynamics import (
        GradientField,
        Recorder,
        RunStatus,
        TrainingRun,
        every,
        gradient_descent,
        gradient_flow,
        instantaneous_rate,
        iterate,
        logarithmic,
        measured_rate,
        on_condition,
        resume,
        train,
    )
    from ntk_deq.equilibrium import Equilibrium, Status, fixed_point, monotone_parameters, solve_fixed_point
    from ntk_deq.errors import NtkDeqError
    from ntk_deq.evaluation.convex.proximal import conjugate, moreau_envelope, prox
    from ntk_deq.quantities import (
        TangentKernel,
        condition_number,
        lambda_max,
        lambda_min,
        landscape,
        lipschitz_bounds,
        neighbourhood_width,
        ntk_gram,
        sigma_max,
        sigma_min,
        spectrum,
        trajectory,
    )
    from ntk_deq.systems import (
        ImplicitReLU,
        LinearImplicit,
        equilibrium_features,
        equilibrium_module,
        loss_gradients,
        predict,
        solve_adjoint,
        solve_equilibrium,
    )
    from ntk_deq.verify.pool import judge_in_workers
    from ntk_deq.verify.runner import Options, judge, judge_claims
    from ntk_deq.verify.system import system

_SUBPACKAGES = (
    "certified",
    "claims",
    "data",
    "dynamics",
    "equilibrium",
    "errors",
    "evaluation",
    "falsify",
    "files",
    "language",
    "plots",
    "prove",
    "quantities",
    "report",
    "systems",
    "verify",
)

_find, _names = lazy_names(__name__)


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"ntk_deq.{name}")
    return _find(name)


def __dir__() -> list[str]:
    return sorted([*_names(), *_SUBPACKAGES])
