"""Parameter Jacobians by automatic differentiation through the differentiable equilibrium."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium import predict
from ntk_deq.models.base import EquilibriumModel
from ntk_deq.quantities.kernel_solves import KernelSolver


def autodiff_jacobians(
    model: EquilibriumModel, X: Tensor, names: Sequence[str], solver: KernelSolver, what: str
) -> dict[str, Float[Tensor, "N p"]]:
    """Return the Jacobian of the predictions in each parameter, one row a sample, by `torch.func.jacrev`.

    Needs N x p numbers for each parameter, and carries the adjoint of every prediction through all N samples, although
    only its own is not zero: the plain way, for small sizes.
    """
    values, features = model.parameters(), solver.equilibrium(X, what)

    def predictions(theta: dict[str, Tensor]) -> Tensor:
        return predict(
            model,
            X,
            {**values, **theta},
            initial=features,
            solver=solver.solver,
            rtol=solver.rtol,
            atol=solver.atol,
            max_steps=solver.max_steps,
            on_adjoint=lambda found: solver.note(f"adjoint of {what}", found),
        )

    jacobians = torch.func.jacrev(predictions)({name: values[name] for name in names})
    return {name: jacobian.reshape(X.shape[0], -1) for name, jacobian in jacobians.items()}
