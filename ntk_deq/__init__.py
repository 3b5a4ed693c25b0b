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

from ntk_deq.package import lazy_names

if TYPE_CHECKING:
    from ntk_deq.claims.load import load_suite as load_suite
    from ntk_deq.data import (
        load_images as load_images,
        select_images as select_images,
    )
    from ntk_deq.dynamics import (
        GradientField as GradientField,
        Recorder as Recorder,
        RunStatus as RunStatus,
        TrainingRun as TrainingRun,
        every as every,
        gradient_descent as gradient_descent,
        gradient_flow as gradient_flow,
        instantaneous_rate as instantaneous_rate,
        iterate as iterate,
        logarithmic as logarithmic,
        measured_rate as measured_rate,
        on_condition as on_condition,
        resume as resume,
        train as train,
    )
    from ntk_deq.equilibrium import (
        Equilibrium as Equilibrium,
        Status as Status,
        fixed_point as fixed_point,
        monotone_parameters as monotone_parameters,
        solve_fixed_point as solve_fixed_point,
    )
    from ntk_deq.errors import NtkDeqError as NtkDeqError
    from ntk_deq.evaluation.convex.proximal import (
        conjugate as conjugate,
        moreau_envelope as moreau_envelope,
        prox as prox,
    )
    from ntk_deq.package import __version__ as __version__
    from ntk_deq.quantities import (
        TangentKernel as TangentKernel,
        condition_number as condition_number,
        lambda_max as lambda_max,
        lambda_min as lambda_min,
        landscape as landscape,
        lipschitz_bounds as lipschitz_bounds,
        neighbourhood_width as neighbourhood_width,
        ntk_gram as ntk_gram,
        sigma_max as sigma_max,
        sigma_min as sigma_min,
        spectrum as spectrum,
        trajectory as trajectory,
    )
    from ntk_deq.systems import (
        ImplicitReLU as ImplicitReLU,
        LinearImplicit as LinearImplicit,
        equilibrium_features as equilibrium_features,
        equilibrium_module as equilibrium_module,
        loss_gradients as loss_gradients,
        predict as predict,
        solve_adjoint as solve_adjoint,
        solve_equilibrium as solve_equilibrium,
    )
    from ntk_deq.verify.pool import judge_in_workers as judge_in_workers
    from ntk_deq.verify.runner import (
        Options as Options,
        judge as judge,
        judge_claims as judge_claims,
    )
    from ntk_deq.verify.system import system as system

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
