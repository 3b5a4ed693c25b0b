"""The tangent-kernel Gram matrix of an equilibrium model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium.driver import DEFAULT_MAX_STEPS, Criteria
from ntk_deq.equilibrium.solvers import Solver
from ntk_deq.errors import ArgumentError, nearest_name
from ntk_deq.models.base import EquilibriumModel
from ntk_deq.models.checks import check_inputs
from ntk_deq.quantities.gram import gram
from ntk_deq.quantities.kernel_autodiff import autodiff_jacobians
from ntk_deq.quantities.kernel_jacobian import implicit_jacobians
from ntk_deq.quantities.kernel_solves import KernelSolver
from ntk_deq.quantities.kernel_structured import structured_blocks
from ntk_deq.quantities.tangent_kernel import KernelMethod, TangentKernel

# A block's terms are products of at most four solved features, each within the tolerance of its own size.
_FACTORS = 4.0


def ntk_gram(
    model: EquilibriumModel,
    X1: Float[Tensor, "N1 d"],
    X2: Float[Tensor, "N2 d"] | None = None,
    *,
    parameters: Sequence[str] | None = None,
    method: KernelMethod | str = KernelMethod.STRUCTURED,
    solver: str | Solver = "picard",
    rtol: float | None = None,
    atol: float | None = None,
    max_steps: int = DEFAULT_MAX_STEPS,
) -> TangentKernel:
    """Return the Gram matrix of the predictions' parameter gradients.

        H[i, j] = sum over parameters theta of  d yhat(x_i)/d theta . d yhat(x'_j)/d theta

    Normalisation: a plain sum; nothing is divided by the width or by a number of outputs.

    Methods: `structured` sums Hadamard products of Gram matrices (the default: no Jacobian, N x m memory);
    `jacobian` solves the implicit-function system of each sample densely; `autodiff` differentiates through the
    equilibrium with `torch.func.jacrev`. The last two are references for small sizes.

    The result carries no derivatives. With the solver `picard` a start is sought first by cheaper steps (see
    `warm_start`), so that the fixed points are often better than `rtol` asks; every sample is judged all the same.

    Args:
        model: An equilibrium model.
        X1: Inputs, one sample a row.
        X2: Other inputs; left out, X1 is taken again and the result is exactly symmetric.
        parameters: Names of the parameters to sum over, each at most once; left out, all of them.
        method: One of `KernelMethod`.
        solver: As in `solve_equilibrium`, for equilibria and adjoints.
        rtol: As in `solve_equilibrium`.
        atol: As in `solve_equilibrium`.
        max_steps: As in `solve_equilibrium`.

    Returns:
        Matrix, blocks by parameter, and how the fixed points were found.

    Raises:
        ArgumentError: Inputs that do not fit the model, an unknown parameter or method.
        EquilibriumError: A sample's equilibrium or adjoint was not found.
        LimitError: Method `jacobian` at a size where it would not fit into memory.

    References:
        Jacot, Gabriel, Hongler (2018), (2); for the ReLU implicit network Gao and Gao (2022), (10)-(13).

    Example:
        >>> from ntk_deq.models import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> kernel = ntk_gram(LinearImplicit(W=one / 2, U=one, b=one[0]), one)
        >>> {name: round(block.item(), 10) for name, block in kernel.blocks.items()}
        {'W': 16.0, 'U': 4.0, 'b': 4.0}
    """
    check_inputs(model, X1)
    if X2 is not None:
        check_inputs(model, X2)
    names, route = _names(model, parameters), _method(method)
    criteria = Criteria.resolve(X1.dtype, rtol, atol, max_steps)  # refuses bad values before anything is worked out
    fixed_points = KernelSolver(model=model, solver=solver, rtol=rtol, atol=atol, max_steps=max_steps)
    with torch.no_grad():
        if route is KernelMethod.STRUCTURED:
            blocks = structured_blocks(model, X1, X2, names, fixed_points)
        elif route is KernelMethod.JACOBIAN:
            blocks = _blocks(lambda X, what: implicit_jacobians(model, X, names, fixed_points, what), X1, X2)
        else:
            blocks = _blocks(lambda X, what: autodiff_jacobians(model, X, names, fixed_points, what), X1, X2)
        matrix = torch.zeros_like(blocks[names[0]])
        for block in blocks.values():
            matrix += block
    return TangentKernel(
        matrix=matrix,
        blocks=blocks,
        symmetric=X2 is None,
        method=route,
        model=model.signature.name,
        solves=tuple(fixed_points.records),
        error=_FACTORS * criteria.rtol * _size(matrix, symmetric=X2 is None),
    )


def _size(matrix: Tensor, *, symmetric: bool) -> float:
    """Return a Frobenius norm of the kernel without cancellation: its entries are at most sqrt(H_ii H_jj)."""
    return float(matrix.trace()) if symmetric else float(torch.linalg.vector_norm(matrix))


def _blocks(jacobians: Callable[[Tensor, str], dict[str, Tensor]], X1: Tensor, X2: Tensor | None) -> dict[str, Tensor]:
    J1 = jacobians(X1, "X1")
    J2 = None if X2 is None else jacobians(X2, "X2")
    return {name: gram(J, None if J2 is None else J2[name]) for name, J in J1.items()}


def _names(model: EquilibriumModel, parameters: Sequence[str] | None) -> tuple[str, ...]:
    known = tuple(model.parameters())
    if parameters is None:
        return known
    allowed = f"names out of {', '.join(known)}"
    if isinstance(parameters, str):
        raise ArgumentError(f"`parameters` of ntk_gram must be a sequence of {allowed}. Got the text {parameters!r}.")
    chosen = tuple(parameters)
    for name in chosen:
        if name not in known:
            near = nearest_name(str(name), known)
            hint = f" Did you mean {near!r}?" if near else ""
            raise ArgumentError(f"`parameters` of ntk_gram must be {allowed}. Got {name!r}.{hint}")
    if not chosen or len(set(chosen)) < len(chosen):
        raise ArgumentError(
            f"`parameters` of ntk_gram must be {allowed}, at least one, each at most once. Got {chosen}."
        )
    return chosen


def _method(method: str) -> KernelMethod:
    known = [entry.value for entry in KernelMethod]
    if method not in known:
        near = nearest_name(str(method), known)
        hint = f" Did you mean {near!r}?" if near else ""
        raise ArgumentError(f"`method` of ntk_gram must be one of {', '.join(known)}. Got {method!r}.{hint}")
    return KernelMethod(method)
