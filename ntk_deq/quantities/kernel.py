"""The tangent-kernel Gram matrix of an equilibrium model.

Parameter Jacobians by automatic differentiation through the differentiable equilibrium.

Parameter Jacobians by the implicit function theorem with dense solves: the plain reference for small sizes.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium.driver import DEFAULT_MAX_STEPS, Criteria
from ntk_deq.equilibrium.solvers import Solver
from ntk_deq.errors import ArgumentError, LimitError, name_hint
from ntk_deq.quantities.tangent_kernel import KernelMethod, KernelSolver, TangentKernel, gram, structured_blocks
from ntk_deq.systems.checks import check_inputs, check_model
from ntk_deq.systems.declared_model import WholeModel
from ntk_deq.systems.model import EquilibriumModel
from ntk_deq.systems.parameter_slopes import UnstructuredError
from ntk_deq.systems.solve import predict


def autodiff_jacobians(
    model: EquilibriumModel, X: Tensor, names: Sequence[str], solver: KernelSolver, what: str
) -> dict[str, Float[Tensor, "N p"]]:
    """Return the Jacobian of the predictions in each parameter, one row a sample, by `torch.func.jacrev`.

    Needs N x p numbers for each parameter, and carries the adjoint of every prediction through all N samples, although
    only its own is not zero: the plain way, for small sizes.
    """
    values, features = model.parameters(), solver.equilibrium(X, what)

    def predictions(theta: dict[str, Tensor]) -> Tensor:
        found = predict(
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
        rows = model.target_rows(found)
        return rows if rows.ndim == 1 else rows.mT.reshape(-1)

    jacobians = torch.func.jacrev(predictions)({name: values[name] for name in names})
    return {name: jacobian.reshape(jacobian.shape[0], -1) for name, jacobian in jacobians.items()}


def adjoint_jacobians(
    model: EquilibriumModel, X: Tensor, names: Sequence[str], solver: KernelSolver, what: str
) -> dict[str, Float[Tensor, "N p"]]:
    """Return the Jacobian of the predictions in each parameter, one row a sample, from the adjoints of all samples.

    Row n is the derivative of v_n' step_n + readout_n in the parameters, at the equilibrium and with the adjoint v_n
    held: a pullback for each sample, and N x p numbers.
    """
    values = model.parameters()
    width = sum(values[name].numel() for name in names)
    Z, found = solver.equilibrium(X, what), []
    for output in range(model.outputs or 1):

        def row(x: Tensor, z: Tensor, v: Tensor, output: int = output) -> dict[str, Tensor]:
            def held(theta: dict[str, Tensor]) -> Tensor:
                own, given = {**values, **theta}, model.inputs_of(x[None])
                read = model.predictions(z[None], given, own).reshape(-1)[output]
                return torch.dot(model.step(z[None], given, own)[0], v) + read

            slopes: dict[str, Tensor] = torch.func.grad(held)({name: values[name] for name in names})
            return {name: slope.reshape(-1) for name, slope in slopes.items()}

        V = solver.adjoint(X, Z, what, output)
        rows = torch.func.vmap(row, chunk_size=max(1, _CHUNK // width))(model.input_rows(X), Z, V)
        found.append(rows)
    return {name: torch.cat([rows[name] for rows in found]) for name in names}


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
    width = model.initial_state(X).shape[1]
    entries = width * (width + sum(values[name].numel() for name in names))
    if entries > _LARGEST_JACOBIAN:
        raise LimitError(
            f"Method 'jacobian' of ntk_gram would write out {entries} numbers for each sample, more than "
            f"{_LARGEST_JACOBIAN}; use method='structured'."
        )

    def row(x: Tensor, z: Tensor) -> dict[str, Tensor]:
        given = model.inputs_of(x[None])

        def step(state: Tensor, theta: dict[str, Tensor]) -> Tensor:
            return model.step(state[None], given, {**values, **theta})[0]

        def readout(state: Tensor, theta: dict[str, Tensor]) -> Tensor:
            return model.predictions(state[None], given, {**values, **theta}).reshape(-1)

        theta = {name: values[name] for name in names}
        step_z, step_theta = torch.func.jacrev(step, argnums=(0, 1))(z, theta)
        readout_z, readout_theta = torch.func.jacrev(readout, argnums=(0, 1))(z, theta)
        unit = torch.eye(width, dtype=z.dtype, device=z.device)
        g = torch.linalg.solve(unit - step_z, readout_z, left=False)
        found = {}
        for name in names:
            entries = values[name].numel()
            found[name] = g @ step_theta[name].reshape(width, entries) + readout_theta[name].reshape(-1, entries)
        return found

    chunk, Z = max(1, _CHUNK // max(1, entries)), solver.equilibrium(X, what)
    rows: dict[str, Tensor] = torch.func.vmap(row, chunk_size=chunk)(model.input_rows(X), Z)
    return {name: own.transpose(0, 1).flatten(0, 1) for name, own in rows.items()}


_ROWS = {
    KernelMethod.ADJOINT: adjoint_jacobians,
    KernelMethod.JACOBIAN: implicit_jacobians,
    KernelMethod.AUTODIFF: autodiff_jacobians,
}

# A block's terms are products of at most four solved features, each within the tolerance of its own size.
_FACTORS = 4.0


def ntk_gram(
    model: EquilibriumModel,
    X1: Float[Tensor, "N1 d"],
    X2: Float[Tensor, "N2 d"] | None = None,
    *,
    parameters: Sequence[str] | None = None,
    traced: bool = False,
    method: KernelMethod | str = KernelMethod.STRUCTURED,
    solver: str | Solver = "picard",
    rtol: float | None = None,
    atol: float | None = None,
    max_steps: int = DEFAULT_MAX_STEPS,
) -> TangentKernel:
    """Return the Gram matrix of the predictions' parameter gradients.

        H[i, j] = sum over parameters theta of  d yhat(x_i)/d theta . d yhat(x'_j)/d theta

    Normalisation: a plain sum; nothing is divided by the width or by a number of outputs. With k outputs the matrix is
    N k x N k, in the order of `vec(yhat)` where yhat is N x k: the first output of every sample, then the second. With
    `traced` it is N x N, the sum over the outputs.

    Methods: `structured` sums Hadamard products of Gram matrices (the default: no Jacobian, N x m memory); `adjoint`
    pulls each sample's adjoint back through one step, which takes N x p memory, and stands in for `structured` where
    there are no such products, which `reason` then says; `jacobian` solves the implicit-function system of each sample
    densely; `autodiff` differentiates through the equilibrium with `torch.func.jacrev`. The last two are references for
    small sizes.

    The result carries no derivatives. With the solver `picard` a start is sought first by cheaper steps
    (`equilibrium.starts`), so that the fixed points are often better than `rtol` asks; every sample is judged all the
    same.

    Args:
        model: An equilibrium model.
        X1: Inputs, one sample a row.
        X2: Other inputs; left out, X1 is taken again and the result is exactly symmetric.
        parameters: Names of the parameters to sum over, each at most once; left out, all of them.
        traced: Whether to sum over the outputs.
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
        >>> from ntk_deq.systems import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> kernel = ntk_gram(LinearImplicit(W=one / 2, U=one, b=one[0]), one)
        >>> {name: round(block.item(), 10) for name, block in kernel.blocks.items()}
        {'W': 16.0, 'U': 4.0, 'b': 4.0}
    """
    if isinstance(model, WholeModel):
        raise ArgumentError(f"There is no tangent kernel of {model.signature.name}: {model.reason.removesuffix('.')}.")
    check_model(model, "ntk_gram")
    check_inputs(model, X1)
    if X2 is not None:
        check_inputs(model, X2)
    names, route = _names(model, parameters), _method(method)
    criteria = Criteria.resolve(X1.dtype, rtol, atol, max_steps)  # refuses bad values before anything is worked out
    fixed_points = KernelSolver(model=model, solver=solver, rtol=rtol, atol=atol, max_steps=max_steps)
    with torch.no_grad():
        blocks, reason = None, ""
        if route is KernelMethod.STRUCTURED:
            try:
                blocks = structured_blocks(model, X1, X2, names, fixed_points, traced=traced)
                reason = f"{model.signature.name} says no factors" if blocks is None else ""
            except UnstructuredError as error:
                reason = str(error)
        if blocks is None:
            route = KernelMethod.ADJOINT if route is KernelMethod.STRUCTURED else route
            fixed_points.records.clear()
            J1 = _ROWS[route](model, X1, names, fixed_points, "X1")
            J2 = None if X2 is None else _ROWS[route](model, X2, names, fixed_points, "X2")
            blocks = {name: gram(J, None if J2 is None else J2[name]) for name, J in J1.items()}
            if traced:
                blocks = {name: _traced(block, model.outputs or 1) for name, block in blocks.items()}
        matrix = torch.zeros_like(blocks[names[0]])
        for block in blocks.values():
            matrix += block
        # A Frobenius norm without cancellation: the entries are at most sqrt(H_ii H_jj).
        size = float(matrix.trace() if X2 is None else torch.linalg.vector_norm(matrix))
    return TangentKernel(
        matrix=matrix,
        blocks=blocks,
        symmetric=X2 is None,
        method=route,
        model=model.signature.name,
        solves=tuple(fixed_points.records),
        outputs=None if traced else model.outputs,
        reason=reason,
        error=_FACTORS * criteria.rtol * size,
    )


def _traced(block: Tensor, outputs: int) -> Tensor:
    """Return the sum of the blocks of one output each."""
    rows, columns = (size // outputs for size in block.shape)
    return block.reshape(outputs, rows, outputs, columns).diagonal(dim1=0, dim2=2).sum(-1)


def _names(model: EquilibriumModel, parameters: Sequence[str] | None) -> tuple[str, ...]:
    known = tuple(model.parameters())
    if parameters is None:
        return known
    allowed = f"names out of {', '.join(known)}"
    if isinstance(parameters, str) or not isinstance(parameters, Sequence | Set):
        raise ArgumentError(f"`parameters` of ntk_gram must be a sequence of {allowed}. Got {parameters!r:.60}.")
    chosen = tuple(parameters)
    for name in chosen:
        if name not in known:
            hint = name_hint(name, known)
            raise ArgumentError(f"`parameters` of ntk_gram must be {allowed}. Got {name!r}.{hint}")
    if not chosen or len(set(chosen)) < len(chosen):
        raise ArgumentError(
            f"`parameters` of ntk_gram must be {allowed}, at least one, each at most once. Got {chosen}."
        )
    return chosen


def _method(method: str) -> KernelMethod:
    known = [entry.value for entry in KernelMethod]
    if not isinstance(method, str) or method not in known:
        hint = name_hint(method, known)
        raise ArgumentError(f"`method` of ntk_gram must be one of {', '.join(known)}. Got {method!r}.{hint}")
    return KernelMethod(method)
