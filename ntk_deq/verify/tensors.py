"""Evaluate a formula in plain floating point: differentiable, batched by nothing, with no error bound.

This backend drives the fixed-point solves and the derivatives `grad` and `jac`; margins come from the balls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ntk_deq.claims.claim import Formula
from ntk_deq.claims.tree import Expr, Kind
from ntk_deq.equilibrium import Anderson, fixed_point
from ntk_deq.verify.environment import ModelFormulas

SOLVER = Anderson(memory=8)
"""Near the edge of contraction plain iteration needs millions of steps; whatever the solver, the ball proves it."""


@dataclass(frozen=True)
class TensorNames:
    """What names mean in floating point.

    Attributes:
        variables: Values of the free variables: 0-d scalars and 2-D matrices.
        sizes: Values of the size letters.
        lets: The claim's definitions.
        formulas: The model's formulas, or None.
        state: The model's state where it is given (inside the map), or None: the equilibrium.
        state_shape: Its shape.
        guess: A known equilibrium to start the solve from, or None: zeros.
        max_steps: Budget of the solve.
    """

    variables: Mapping[str, Tensor]
    sizes: Mapping[str, int]
    lets: Mapping[str, Formula]
    formulas: ModelFormulas | None
    like: Tensor
    state: Tensor | None = None
    state_shape: tuple[int, int] = (0, 0)
    guess: Tensor | None = None
    max_steps: int = 20_000


def tensor_value(expr: Expr, names: TensorNames) -> Tensor:
    """Return the value of a scalar or matrix expression as a tensor (0-d or 2-D)."""
    handler = _OPERATORS.get(expr.kind)
    if handler is not None:
        return handler(*(tensor_value(arg, names) for arg in expr.args))
    if expr.kind is Kind.NUMBER:
        assert expr.value is not None
        return names.like.new_tensor(float(expr.value))
    if expr.kind is Kind.NAME:
        return _named(expr.name, names)
    if expr.kind is Kind.CALL and expr.name in FUNCTIONS:
        return FUNCTIONS[expr.name](names.like, *(tensor_value(arg, names) for arg in expr.args))
    raise TypeError(f"`{expr.name or expr.kind}` cannot stand inside grad, jac or a model's map")


def _named(name: str, names: TensorNames) -> Tensor:
    if name in names.variables:
        return names.variables[name]
    if name in names.sizes:
        return names.like.new_tensor(float(names.sizes[name]))
    if name in names.lets:
        return tensor_value(names.lets[name].expr, names)
    assert names.formulas is not None
    if name == names.formulas.state:
        return names.state if names.state is not None else _equilibrium(names)
    return tensor_value(names.formulas.definitions[name], names)


def _equilibrium(names: TensorNames) -> Tensor:
    """The equilibrium as a differentiable function of the variables."""
    assert names.formulas is not None
    formulas, keys = names.formulas, tuple(names.variables)

    def step(state: Tensor, *values: Tensor) -> Tensor:
        inside = TensorNames(
            dict(zip(keys, values, strict=True)), names.sizes, names.lets, formulas, names.like, state=state
        )
        return tensor_value(formulas.map, inside)

    start = names.guess if names.guess is not None else names.like.new_zeros(names.state_shape)
    # The whole state is one sample: the claim language knows nothing of rows.
    return fixed_point(step, start, *names.variables.values(), solver=SOLVER, batch_dims=0, max_steps=names.max_steps)


def _scalar(value: Tensor) -> Tensor:
    return value.reshape(()) if value.ndim else value


def _multiply(left: Tensor, right: Tensor) -> Tensor:
    if left.ndim == 0 or right.ndim == 0:
        return left * right
    if left.shape[1] != right.shape[0]:
        return _scalar(left) * right if left.numel() == 1 else left * _scalar(right)
    return left @ right


def _add(left: Tensor, right: Tensor) -> Tensor:
    if left.ndim != right.ndim:
        return _scalar(left) + _scalar(right)
    return left + right


def _power(base: Tensor, exponent: Tensor) -> Tensor:
    if base.ndim and base.numel() > 1:
        return torch.linalg.matrix_power(base, int(exponent))
    return _scalar(base) ** _scalar(exponent)


_OPERATORS: dict[Kind, Callable[..., Tensor]] = {
    Kind.NEGATE: torch.neg,
    Kind.ADD: _add,
    Kind.SUBTRACT: lambda a, b: _add(a, -b),
    Kind.MULTIPLY: _multiply,
    Kind.DIVIDE: lambda a, b: a / _scalar(b),
    Kind.POWER: _power,
    Kind.TRANSPOSE: lambda a: a.mT,
}


def vec(value: Tensor) -> Tensor:
    """Stack the columns of a matrix."""
    return value.mT.reshape(-1, 1)


def _norm2(like: Tensor, a: Tensor) -> Tensor:
    if a.ndim == 0:
        return a.abs()
    return torch.linalg.vector_norm(a) if 1 in a.shape else torch.linalg.matrix_norm(a, 2)


def _diag(like: Tensor, a: Tensor) -> Tensor:
    return torch.diag_embed(a.squeeze(1)) if a.shape[1] == 1 else a.diagonal().unsqueeze(1)


def _extreme(pair: Callable[[Tensor, Tensor], Tensor], entries: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def function(like: Tensor, *args: Tensor) -> Tensor:
        if len(args) == 1:
            return entries(args[0])
        result = _scalar(args[0])
        for other in args[1:]:
            result = pair(result, _scalar(other))
        return result

    return function


def _eigenvalue(reduce: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda like, a: reduce(torch.linalg.eigvals(a))


def _commutation(like: Tensor, n: Tensor, m: Tensor | None = None) -> Tensor:
    rows, cols = int(n), int(n if m is None else m)
    index = torch.arange(rows * cols, device=like.device).reshape(cols, rows).mT.reshape(-1)
    return torch.eye(rows * cols, dtype=like.dtype, device=like.device)[index]


def _filled(value: float) -> Callable[..., Tensor]:
    return lambda like, n, m=None: like.new_full((int(n), 1 if m is None else int(m)), value)


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "I": lambda like, n: torch.eye(int(n), dtype=like.dtype, device=like.device),
    "abs": lambda like, a: a.abs(),
    "commutation": _commutation,
    "cond": lambda like, a: torch.linalg.cond(a),
    "det": lambda like, a: torch.linalg.det(a),
    "diag": _diag,
    "dot": lambda like, a, b: (a * b).sum(),
    "exp": lambda like, a: _scalar(a).exp(),
    "fro": lambda like, a: torch.linalg.vector_norm(a),
    "hadamard": lambda like, a, b: a * b,
    "inv": lambda like, a: torch.linalg.inv(a),
    "kron": lambda like, a, b: torch.kron(a.contiguous(), b.contiguous()),
    "lambda_max": _eigenvalue(lambda e: e.real.max()),
    "lambda_min": _eigenvalue(lambda e: e.real.min()),
    "log": lambda like, a: _scalar(a).log(),
    "max": _extreme(torch.maximum, torch.amax),
    "min": _extreme(torch.minimum, torch.amin),
    "norm": _norm2,
    "norm1": lambda like, a: torch.linalg.matrix_norm(a, 1),
    "norminf": lambda like, a: torch.linalg.matrix_norm(a, float("inf")),
    "ones": _filled(1.0),
    "relu": lambda like, a: a.relu(),
    "rho": _eigenvalue(lambda e: e.abs().max()),
    "sigma_max": lambda like, a: torch.linalg.svdvals(a)[0],
    "sigma_min": lambda like, a: torch.linalg.svdvals(a)[-1],
    "sqrt": lambda like, a: _scalar(a).sqrt(),
    "step": lambda like, a: (a > 0).to(a.dtype),
    "sum": lambda like, a: a.sum(),
    "trace": lambda like, a: a.diagonal().sum(),
    "vec": lambda like, a: vec(a),
    "zeros": _filled(0.0),
}
