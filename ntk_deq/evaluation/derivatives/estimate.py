"""Derivatives by automatic differentiation through the equilibrium, with an estimated radius.

The radius is an estimate, so evidence that uses it is `numeric`: the derivative is evaluated again with every variable
moved by a random relative perturbation of size 2^-36, and the change, scaled down to rounding level and up by a safety
factor, bounds what rounding and the solves can have done: a forward error is a condition number times a backward error.
A variable known up to a radius is moved by as much more. All of it runs in float64, whatever the instance's type.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified.arithmetic import enclose
from ntk_deq.errors import EquilibriumError
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.environment import Environment
from ntk_deq.evaluation.equilibria import tensor_names
from ntk_deq.evaluation.floats import TensorNames, tensor_value
from ntk_deq.evaluation.functions.balls import guard_entries
from ntk_deq.evaluation.functions.tensors import vec
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.tree import Expr, Kind, Span

_PERTURBATION = 2.0**-36  # between the float64 round-off 2^-53 and the size at which curvature shows
_BACKWARD = 64.0 * 2.0**-52  # the backward error of a chain of products is a modest multiple of the round-off
_NO_SPAN = Span(0, 0)
_FLOOR = 1e-13  # relative; about 450 round-offs, for derivatives that the perturbations happen not to move


def estimated_derivative(
    kind: str, inner: Expr, name: str, env: Environment, indices: Mapping[str, float]
) -> Scalar | Matrix:
    """Evaluate `grad(f, x)` (shape of x) or `jac(f, x)` (rows of vec f, columns of vec x) in floating point.

    Args:
        kind: `grad` or `jac`.
        inner: f.
        name: x.
        env: What the names mean.
        indices: Values of the step indices in scope.

    Raises:
        UndifferentiableError: f has a part that this route does not know.
        OutsideClaimError: Floats cannot tell whether there is a derivative.
    """
    names = _in_double(_around_equilibrium(env))
    numbers: dict[str, float] = {**names.sizes, **indices}
    names = dataclasses.replace(names, sizes=numbers)
    radii = {key: _radius(v) for key, v in env.variables.items()}
    try:
        value = differentiate(kind, inner, name, names)
        spread = _spread(kind, inner, name, names, value, radii)
    except EquilibriumError as error:
        env.notes.doubt(str(error))
        shape = _shape(kind, inner, name, env, indices)
        return Matrix(ct.Ball(env.like.new_zeros(shape), math.inf), math.inf)
    size = float(torch.linalg.vector_norm(value))
    if math.isnan(size):
        env.notes.kink(f"a derivative by {name} that may not exist, as rounding can tell", certain=False)
    radius = _BACKWARD * (spread / _PERTURBATION) + _FLOOR * size
    scale = max(size, spread / _PERTURBATION)
    if value.ndim == 0:
        return Scalar(ct.with_radius(float(value), radius), scale)
    return Matrix(enclose(value, radius, ct.ball(env.like)), scale)


def _in_double(names: TensorNames) -> TensorNames:
    guess = None if names.guess is None else names.guess.double()
    variables = {key: value.double() for key, value in names.variables.items()}
    return dataclasses.replace(names, variables=variables, like=names.like.double(), guess=guess)


def _radius(value: Scalar | Matrix) -> float:
    return ct.radius(value.ball) if isinstance(value, Scalar) else value.ball.radius


def _around_equilibrium(env: Environment) -> TensorNames:
    """The centres, with the equilibrium already found as the starting point of the differentiable solve."""
    guess = None
    if env.formulas is not None and env.formulas.state:
        state = evaluate(Expr(Kind.NAME, _NO_SPAN, name=env.formulas.state), env)
        if isinstance(state, Matrix) and state.ball.radius < math.inf:
            guess = state.ball.centre
    return tensor_names(env, guess=guess)


def differentiate(kind: str, inner: Expr, name: str, names: TensorNames) -> Tensor:
    """Return the derivative by automatic differentiation, with no error bound."""
    origin = names.variables[name]

    def function(x: Tensor) -> Tensor:
        return tensor_value(inner, dataclasses.replace(names, variables={**names.variables, name: x}))

    if kind == "grad":
        return torch.func.grad(lambda x: function(x).reshape(()))(origin)
    rows = _vec_or_scalar(function(origin)).numel()
    guard_entries(rows, origin.numel(), "A Jacobian")
    columns = torch.func.jacrev(lambda v: _vec_or_scalar(function(_unvec(v, origin))).reshape(-1))(
        _vec_or_scalar(origin).reshape(-1)
    )
    return columns


def _vec_or_scalar(value: Tensor) -> Tensor:
    """Return vec of a matrix, and a scalar as one entry."""
    return value.reshape(1, 1) if value.ndim == 0 else vec(value)


def _unvec(flat: Tensor, like: Tensor) -> Tensor:
    if like.ndim == 0:
        return flat.reshape(())
    return flat.reshape(like.shape[1], like.shape[0]).mT


def _spread(kind: str, inner: Expr, name: str, names: TensorNames, value: Tensor, radii: Mapping[str, float]) -> float:
    """The change of the derivative under a random perturbation of every variable: relative, and by its radius."""
    generator = torch.Generator().manual_seed(20221127)  # any fixed number: the estimate must be reproducible
    moved = {}
    for key, v in names.variables.items():
        noise = (2 * torch.rand(v.shape, generator=generator, dtype=torch.float64) - 1).to(v)
        moved[key] = v + _PERTURBATION * (v + radii[key] / _BACKWARD) * noise
    changed = differentiate(kind, inner, name, dataclasses.replace(names, variables=moved))
    return float(torch.linalg.vector_norm(changed - value))


def _shape(kind: str, inner: Expr, name: str, env: Environment, indices: Mapping[str, float]) -> tuple[int, int]:
    variable = env.variables[name]
    shape = tuple(variable.ball.shape) if isinstance(variable, Matrix) else (1, 1)
    if kind == "grad":
        return shape[0], shape[1]
    value = evaluate(inner, env, indices)
    rows = math.prod(value.ball.shape) if isinstance(value, Matrix) else 1
    return rows, shape[0] * shape[1]
