"""The tangent-kernel Gram matrix of an equilibrium model.

The tangent kernel as a sum of Hadamard products of Gram matrices: no Jacobian is ever formed.

Parameter Jacobians by automatic differentiation through the differentiable equilibrium.

Parameter Jacobians by the implicit function theorem with dense solves: the plain reference for small sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium.driver import DEFAULT_MAX_STEPS, Criteria
from ntk_deq.equilibrium.solvers import Solver
from ntk_deq.errors import ArgumentError, LimitError, nearest_name
from ntk_deq.quantities.kernel_solves import KernelSolver
from ntk_deq.quantities.tangent_kernel import KernelMethod, TangentKernel, gram
from ntk_deq.systems.checks import check_inputs
from ntk_deq.systems.model import EquilibriumModel, HadamardTerm
from ntk_deq.systems.solve import predict

Terms = dict[str, tuple[HadamardTerm, ...]]
Pair = tuple[Tensor, Tensor | None]
Product = tuple[float, list[Pair]]


def structured_blocks(
    model: EquilibriumModel, X1: Tensor, X2: Tensor | None, names: Sequence[str], solver: KernelSolver
) -> dict[str, Tensor] | None:
    """Return the kernel's block of each parameter from the model's own Hadamard terms; None: it has none.

        H_theta = sum over terms of  coefficient * (F1 F1') .* (F2 F2') .* ...

    Cost: the fixed points (a few N m^2 products each, per iteration) and one N^2 m product for each different factor.
    Memory: a factor that several terms share is multiplied once; a Gram matrix is multiplied into in place on its last
    use, and factors are let go block by block.

    Args:
        model: The model.
        X1: Inputs, N1 x d.
        X2: Other inputs, N2 x d, or None for X1 again.
        names: Parameters wanted, in order.
        solver: Solves the equilibria and adjoints and keeps a record.
    """
    terms1 = _terms(model, X1, names, solver, "X1")
    terms2 = {} if X2 is None else _terms(model, X2, names, solver, "X2")
    if terms1 is None or terms2 is None:
        return None
    products = {name: _products(terms1.pop(name), terms2.pop(name, None)) for name in names}
    return _multiply_out(products)


def _terms(model: EquilibriumModel, X: Tensor, names: Sequence[str], solver: KernelSolver, what: str) -> Terms | None:
    Z = solver.equilibrium(X, what)
    terms = model.tangent_factors(X, Z, solver.adjoint(X, Z, what))
    return None if terms is None else {name: terms[name] for name in names}


def _products(left: Sequence[HadamardTerm], right: Sequence[HadamardTerm] | None) -> list[Product]:
    if right is None:
        return [(term.coefficient, [(factor, None) for factor in term.factors]) for term in left]
    return [
        (term.coefficient, list(zip(term.factors, other.factors, strict=True)))
        for term, other in zip(left, right, strict=True)
    ]


def _multiply_out(products: dict[str, list[Product]]) -> dict[str, Tensor]:
    """Work out every block; empties the mapping as it goes, so that factors are freed as early as possible."""
    uses = Counter(_key(pair) for terms in products.values() for _, pairs in terms for pair in pairs)
    shared: dict[tuple[int, int], Tensor] = {}
    blocks: dict[str, Tensor] = {}
    for name in list(products):
        first, *others = (_hadamard(coefficient, pairs, uses, shared) for coefficient, pairs in products.pop(name))
        for product in others:
            first.add_(product)
        blocks[name] = first
    return blocks


def _key(pair: Pair) -> tuple[int, int]:
    return id(pair[0]), id(pair[1])


def _hadamard(
    coefficient: float, pairs: Sequence[Pair], uses: Counter[tuple[int, int]], shared: dict[tuple[int, int], Tensor]
) -> Tensor:
    """Return the coefficient times the entrywise product of the pairs' Gram matrices, as a tensor of its own."""
    first, *others = pairs
    product = _gram(first, uses, shared)
    if _key(first) in shared:
        product = product.clone()
    for pair in others:
        product.mul_(_gram(pair, uses, shared))
    return product if coefficient == 1 else product.mul_(coefficient)


def _gram(pair: Pair, uses: Counter[tuple[int, int]], shared: dict[tuple[int, int], Tensor]) -> Tensor:
    """Return the pair's Gram matrix, worked out on its first use and kept in `shared` until its last."""
    key = _key(pair)
    matrix = shared.pop(key) if key in shared else gram(*pair)
    uses[key] -= 1
    if uses[key]:
        shared[key] = matrix
    return matrix


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


def adjoint_jacobians(
    model: EquilibriumModel, X: Tensor, names: Sequence[str], solver: KernelSolver, what: str
) -> dict[str, Float[Tensor, "N p"]]:
    """Return the Jacobian of the predictions in each parameter, one row a sample, from the adjoints of all samples.

    Row n is the derivative of v_n' step_n + readout_n in the parameters, at the equilibrium and with the adjoint v_n
    held: a pullback for each sample, and N x p numbers.
    """
    values = model.parameters()
    width = sum(values[name].numel() for name in names)
    Z = solver.equilibrium(X, what)
    V = solver.adjoint(X, Z, what)

    def row(x: Tensor, z: Tensor, v: Tensor) -> dict[str, Tensor]:
        def held(theta: dict[str, Tensor]) -> Tensor:
            own = {**values, **theta}
            return torch.dot(model.step(z[None], x[None], own)[0], v) + model.readout(z[None], own)[0]

        found: dict[str, Tensor] = torch.func.grad(held)({name: values[name] for name in names})
        return {name: slope.reshape(-1) for name, slope in found.items()}

    rows: dict[str, Tensor] = torch.func.vmap(row, chunk_size=max(1, _CHUNK // width))(X, Z, V)
    return rows


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
    method: KernelMethod | str = KernelMethod.STRUCTURED,
    solver: str | Solver = "picard",
    rtol: float | None = None,
    atol: float | None = None,
    max_steps: int = DEFAULT_MAX_STEPS,
) -> TangentKernel:
    """Return the Gram matrix of the predictions' parameter gradients.

        H[i, j] = sum over parameters theta of  d yhat(x_i)/d theta . d yhat(x'_j)/d theta

    Normalisation: a plain sum; nothing is divided by the width or by a number of outputs.

    Methods: `structured` sums Hadamard products of Gram matrices (the default: no Jacobian, N x m memory); `adjoint`
    pulls each sample's adjoint back through one step, which takes N x p memory, and stands in for `structured` where
    the model has no such products; `jacobian` solves the implicit-function system of each sample densely; `autodiff`
    differentiates through the equilibrium with `torch.func.jacrev`. The last two are references for small sizes.

    The result carries no derivatives. With the solver `picard` a start is sought first by cheaper steps
    (`equilibrium.starts`), so that the fixed points are often better than `rtol` asks; every sample is judged all the
    same.

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
        >>> from ntk_deq.systems import LinearImplicit
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
        blocks = structured_blocks(model, X1, X2, names, fixed_points) if route is KernelMethod.STRUCTURED else None
        if blocks is None:
            route = KernelMethod.ADJOINT if route is KernelMethod.STRUCTURED else route
            fixed_points.records.clear()
            rows = _ROWS[route]
            blocks = _blocks(lambda X, what: rows(model, X, names, fixed_points, what), X1, X2)
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
