"""Parameter Jacobians by the implicit function theorem with dense solves: the plain reference for small sizes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.errors import LimitError
from ntk_deq.models.base import EquilibriumModel
from ntk_deq.quantities.kernel_solves import KernelSolver

# 2^27 numbers are one gibibyte in float64: more for one sample means that the structured route should be taken.
_LARGEST_JACOBIAN = 2**27
# 2^22 numbers are 32 mebibytes in float64: as many samples at a time as fit.
_CHUNK = 2**22


def implicit_jacobians(
    model: EquilibriumModel, X: Tensor, names: Sequence[str], solver: KernelSolver, what: str
) -> dict[str, Float[Tensor, "N p"]]:
    """Return the Jacobian of the predictions in each parameter, one row a sample.

        d yhat/d theta = d readout/d z (I - d step/d z)^-1 d step/d theta + d readout/d theta

    The m x m and m x p derivatives of one step are written out by `torch.func.jacrev` and the system is solved by LU:
    neither the model's closed forms nor an adjoint iteration take part. Only the equilibrium is iterated.

    Raises:
        LimitError: One sample's Jacobian of a step has more than 2^27 entries.
    """
    values = model.parameters()
    width = model.initial_state(X[:1]).numel()
    entries = width * (width + sum(values[name].numel() for name in names))
    if entries > _LARGEST_JACOBIAN:
        raise LimitError(
            f"Method 'jacobian' of ntk_gram would write out {entries} numbers for each sample, more than "
            f"{_LARGEST_JACOBIAN}; use method='structured'."
        )

    def row(x: Tensor, z: Tensor) -> dict[str, Tensor]:
        def step(state: Tensor, theta: dict[str, Tensor]) -> Tensor:
            return model.step(state[None], x[None], {**values, **theta})[0]

        def readout(state: Tensor, theta: dict[str, Tensor]) -> Tensor:
            return model.readout(state[None], {**values, **theta})[0]

        theta = {name: values[name] for name in names}
        step_z, step_theta = torch.func.jacrev(step, argnums=(0, 1))(z, theta)
        readout_z, readout_theta = torch.func.grad(readout, argnums=(0, 1))(z, theta)
        g = torch.linalg.solve(torch.eye(width, dtype=z.dtype, device=z.device) - step_z.T, readout_z)
        return {name: g @ step_theta[name].reshape(width, -1) + readout_theta[name].reshape(-1) for name in names}

    rows: dict[str, Tensor] = torch.func.vmap(row, chunk_size=max(1, _CHUNK // entries))(X, solver.equilibrium(X, what))
    return rows
