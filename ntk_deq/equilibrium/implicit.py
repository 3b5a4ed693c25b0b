"""Differentiable fixed points: derivatives of every order by the implicit function theorem, never by unrolling.

At z = f(z, a) the derivatives solve linear fixed-point problems of their own,

    adjoint   g = v + (df/dz)' g,        gradient = (df/da)' g,
    tangent   t = (df/da) s + (df/dz) t,

and those are solved by the same differentiable fixed point, so that derivatives of derivatives come out right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils import _pytree as pytree

from ntk_deq.equilibrium.driver import DEFAULT_MAX_STEPS, solve_fixed_point
from ntk_deq.equilibrium.result import (
    Equilibrium,
    check_closure,
    check_map,
    outer_tangents_kept,
    tangents_off,
    unwrap_finished,
    without_tangents,
)
from ntk_deq.equilibrium.solvers import Solver, general_solver
from ntk_deq.errors import ArgumentError, EquilibriumError


def fixed_point(
    step: Callable[..., Tensor],
    initial: Float[Tensor, "*shape"],
    *args: Any,
    solver: str | Solver = "picard",
    adjoint_solver: str | Solver | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    max_steps: int = DEFAULT_MAX_STEPS,
    batch_dims: int = 1,
    contraction: float | Callable[..., Tensor] | None = None,
    prepared: Callable[..., Callable[[Tensor], Tensor]] | None = None,
    on_forward: Callable[..., None] | None = None,
    on_adjoint: Callable[[Equilibrium], None] | None = None,
) -> Float[Tensor, "*shape"]:
    """Return z = step(z, *args), differentiable in `args` to every order.

    Works under autograd (`create_graph=True` included), forward-mode AD, and `torch.func` grad, vjp, jvp, jacrev,
    jacfwd, vmap and their compositions. Gradients with respect to `initial` are zero. At a kink of the map the
    derivative is the one that PyTorch gives the map (for relu at 0: zero).

    The map must get every tensor that is differentiated or vmapped through `args`; closing over one is an error.

    Args:
        step: The map, from z and `args` to a tensor like z. Samples must not interact.
        initial: Where to start, floating point.
        args: Tensors, or dicts, lists and tuples of tensors; numbers, strings, booleans and None are passed through.
        solver: As in `solve_fixed_point`.
        adjoint_solver: Solver of the linear problems of the derivatives; None: the same as `solver`.
        rtol: As in `solve_fixed_point`, for the forward and the linear problems.
        atol: Likewise.
        max_steps: Likewise.
        batch_dims: How many leading dimensions of `initial` count samples.
        contraction: A Lipschitz constant of the map in z, if known, or a function of `args` that returns one;
            tolerances are taken times 1 - q, and it goes into the results that `on_forward` and `on_adjoint` get.
        prepared: A function of `args` that returns the map of z alone, equal to `step`, where what does not depend on
            z can be worked out once a solve.
        on_forward: Called with the `Equilibrium` and with `args` as they were solved for, once it is found.
        on_adjoint: Called with the `Equilibrium` of each linear (adjoint or tangent) solve, before a failed one raises.

    Returns:
        The fixed point, shaped like `initial`.

    Raises:
        ArgumentError: A bad argument, or a map that closes over a differentiated tensor.
        EquilibriumError: The fixed point, or later in a derivative the adjoint or tangent, was not found.

    References:
        Bai, Kolter and Koltun (2019), arXiv:1909.01377; Krantz and Parks (2002), The Implicit Function Theorem.

    Example:
        >>> a = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
        >>> z = fixed_point(lambda z, a: (z + a / z) / 2, torch.ones(1, dtype=torch.float64), a)  # the square root
        >>> torch.allclose(torch.autograd.grad(z, a)[0], 0.5 * a**-0.5)
        True
    """
    leaves, spec = pytree.tree_flatten(args)
    for leaf in leaves:
        if not (leaf is None or isinstance(leaf, Tensor | bool | int | float | str)):
            raise ArgumentError(
                "Arguments of a fixed-point map must be tensors, numbers, strings, None, or dicts, lists and tuples of "
                f"them. Got {type(leaf).__name__}."
            )
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    tensors = [leaves[place] for place in places]

    def restored(values: Sequence[Tensor]) -> Any:
        return pytree.tree_unflatten(_merged(leaves, places, values), spec)

    def flat_step(z: Tensor, *values: Tensor) -> Tensor:
        return step(z, *restored(values))

    def flat_bound(*values: Tensor) -> Tensor | float | None:
        return contraction(*restored(values)) if callable(contraction) else contraction

    def found(result: Equilibrium, values: Sequence[Tensor]) -> None:
        if on_forward is not None:
            on_forward(result, *restored(values))

    problem = _Problem(
        step=flat_step,
        role="forward",
        batch_dims=batch_dims,
        solver=general_solver(solver),
        adjoint_solver=general_solver(solver if adjoint_solver is None else adjoint_solver),
        rtol=rtol,
        atol=atol,
        max_steps=max_steps,
        contraction=flat_bound,
        on_forward=found,
        on_adjoint=on_adjoint,
        bound=None if prepared is None else lambda *values: prepared(*restored(values)),
    )
    check_map(initial, batch_dims, step)
    check_closure(flat_step, [initial, *tensors])
    value: Tensor = _FixedPoint.apply(problem, initial, *tensors)
    return value


@dataclass(frozen=True, eq=False)
class _Problem:
    """A fixed-point problem z = step(z, *leaves), how to solve it, and the linear problems that belong to it.

    `contraction` bounds the map's Lipschitz constant for fixed leaves. `bound`, where given, returns the map of z for
    fixed leaves more cheaply than `step` does; equal in value.
    """

    step: Callable[..., Tensor]
    role: str
    batch_dims: int
    solver: Solver
    adjoint_solver: Solver
    rtol: float | None
    atol: float | None
    max_steps: int
    contraction: Callable[..., Tensor | float | None]
    on_forward: Callable[[Equilibrium, Sequence[Tensor]], None]
    on_adjoint: Callable[[Equilibrium], None] | None
    bound: Callable[..., Callable[[Tensor], Tensor]] | None = None

    def solve(self, initial: Tensor, leaves: Sequence[Tensor]) -> Tensor:
        """Solve with plain tensors; a failure is an error that names the role."""
        forward = self.role == "forward"
        result = solve_fixed_point(
            self.bound(*leaves) if self.bound else lambda z: self.step(z, *leaves),
            initial,
            solver=self.solver if forward else self.adjoint_solver,
            rtol=self.rtol,
            atol=self.atol,
            max_steps=self.max_steps,
            batch_dims=self.batch_dims,
            contraction=self.lipschitz(leaves),
            raise_on_failure=False,
        )
        if not forward and self.on_adjoint is not None:
            self.on_adjoint(result)
        if not result.all_converged:
            raise EquilibriumError(
                f"The {self.role} fixed point was not found with the solver {result.solver}.\n"
                f"{result.describe_failures()}",
                result,
            )
        if forward:
            self.on_forward(result, leaves)
        return result.value

    def lipschitz(self, leaves: Sequence[Tensor]) -> float | None:
        """Return the largest Lipschitz constant of the batch; None: not known."""
        with torch.no_grad(), tangents_off():
            try:
                bound = self.contraction(*leaves)
            except torch.linalg.LinAlgError:  # of parameters that are not finite: the solve says so
                return None
        return bound if bound is None else float(torch.as_tensor(bound).max())

    def adjoint(self) -> _Problem:
        """Return the problem g = v + (df/dz)' g with leaves (v, z, *leaves)."""
        step = self.step

        def bound(v: Tensor, z: Tensor, *leaves: Tensor) -> Callable[[Tensor], Tensor]:
            pull = torch.func.vjp(lambda s: step(s, *leaves), z)[1]
            return lambda g: v + pull(g)[0]

        def adjoint_step(g: Tensor, *leaves: Tensor) -> Tensor:
            return bound(*leaves)(g)

        return replace(self, step=adjoint_step, role="adjoint", bound=bound, contraction=self._of_original_leaves)

    def tangent(self) -> _Problem:
        """Return the problem t = c + (df/dz) t with leaves (c, z, *leaves)."""
        step = self.step

        def bound(c: Tensor, z: Tensor, *leaves: Tensor) -> Callable[[Tensor], Tensor]:
            push = _pushforward(lambda s: step(s, *leaves), [z])
            return lambda t: c + push([t])

        def tangent_step(t: Tensor, *leaves: Tensor) -> Tensor:
            return bound(*leaves)(t)

        return replace(self, step=tangent_step, role="tangent", bound=bound, contraction=self._of_original_leaves)

    def batched(self, in_dims: tuple[int | None, ...], randomness: str) -> _Problem:
        """Return the problem with one more leading batch dimension."""
        step = torch.func.vmap(self.step, in_dims=in_dims, randomness=randomness)
        one = self.contraction

        def contraction(*leaves: Tensor) -> Tensor | float | None:
            # A loop: the number is wanted as a float, which no transform has.
            sizes = [leaf.shape[dim] for leaf, dim in zip(leaves, in_dims[1:], strict=True) if dim is not None]
            chosen = [
                one(
                    *(
                        leaf if dim is None else leaf.select(dim, n)
                        for leaf, dim in zip(leaves, in_dims[1:], strict=True)
                    )
                )
                for n in range(sizes[0] if sizes else 1)
            ]
            bounds = [torch.as_tensor(bound).max() for bound in chosen if bound is not None]
            return torch.stack(bounds).max() if bounds else None

        return replace(self, step=step, batch_dims=self.batch_dims + 1, bound=None, contraction=contraction)

    def _of_original_leaves(self, _: Tensor, __: Tensor, *leaves: Tensor) -> Tensor | float | None:
        return self.contraction(*leaves)


class _FixedPoint(torch.autograd.Function):
    """The implicit function theorem as PyTorch's autograd and torch.func want it written."""

    @staticmethod
    def forward(problem: _Problem, initial: Tensor, *leaves: Tensor) -> Tensor:
        return problem.solve(initial, leaves)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        problem, _, *leaves = inputs
        ctx.problem = problem
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output, *leaves)
        ctx.save_for_forward(output, *leaves)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor | None) -> Any:
        cotangent, value, *leaves = unwrap_finished([cotangent, *ctx.saved_tensors])
        needed: tuple[bool, ...] = ctx.needs_input_grad
        gradients: list[Tensor | None] = [None] * len(leaves)
        active = [place for place, need in enumerate(needed[2:]) if need]
        if active and cotangent is not None:
            problem: _Problem = ctx.problem
            g = _FixedPoint.apply(problem.adjoint(), cotangent.detach(), cotangent, value, *leaves)
            pull = torch.func.vjp(
                lambda *chosen: problem.step(value, *_merged(leaves, active, chosen)), *(leaves[i] for i in active)
            )[1]
            gradients = _merged(gradients, active, pull(g))
        return None, torch.zeros_like(value) if needed[1] else None, *gradients

    @staticmethod
    def jvp(ctx: Any, _: None, __: Tensor | None, *tangents: Tensor | None) -> Tensor:
        problem: _Problem = ctx.problem
        active = [place for place, tangent in enumerate(tangents) if tangent is not None]
        with outer_tangents_kept():
            value, *leaves = without_tangents(ctx.saved_tensors)
            if not active:
                return torch.zeros_like(value)
            push = _pushforward(
                lambda *chosen: problem.step(value, *_merged(leaves, active, chosen)), [leaves[i] for i in active]
            )
            forcing = push([tangents[i] for i in active])
            result: Tensor = _FixedPoint.apply(problem.tangent(), forcing.detach(), forcing, value, *leaves)
            return result

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], problem: _Problem, initial: Tensor, *leaves: Tensor
    ) -> tuple[Tensor, int]:
        _, initial_dim, *leaf_dims = in_dims
        start = (
            initial.expand(info.batch_size, *initial.shape) if initial_dim is None else initial.movedim(initial_dim, 0)
        )
        moved = [leaf if dim is None else leaf.movedim(dim, 0) for leaf, dim in zip(leaves, leaf_dims, strict=True)]
        dims = (0, *(None if dim is None else 0 for dim in leaf_dims))
        return _FixedPoint.apply(problem.batched(dims, info.randomness), start, *moved), 0


def _merged(values: Sequence[Any], places: Sequence[int], chosen: Sequence[Any]) -> list[Any]:
    """Return a copy of `values` with the entries at `places` replaced by `chosen`."""
    merged = list(values)
    for place, value in zip(places, chosen, strict=True):
        merged[place] = value
    return merged


def _pushforward(function: Callable[..., Tensor], primals: Sequence[Tensor]) -> Callable[[Sequence[Any]], Tensor]:
    """Return tangents -> J tangents, as the transpose of the transpose.

    Forward-mode AD would need no second pass, but it cannot be nested in `torch.autograd.forward_ad`.
    """
    linearised = torch.func.vjp(function, *primals)
    transpose = torch.func.vjp(linearised[1], torch.zeros_like(linearised[0]))[1]

    def push(tangents: Sequence[Any]) -> Tensor:
        result: Tensor = transpose(tuple(tangents))[0]
        return result

    return push
