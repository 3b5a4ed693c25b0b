"""`grad` and `jac` of the language in plain floating point, one instance or many of the same sizes at once.

Many instances cost one backward pass: the gradient of the sum over the batch holds the gradient of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ntk_deq.claims.tree import Expr
from ntk_deq.verify.tensor_functions import scalar, vec
from ntk_deq.verify.tensors import TensorNames, tensor_value

_SAME = 1e-9
"""Relative; two derivatives closer than this are one as far as rounding can tell."""


def tensor_derivative(expr: Expr, names: TensorNames, indices: Mapping[str, float]) -> Tensor:
    """Return `grad(f, x)` (shape of x) or `jac(f, x)` (rows of vec f, columns of vec x); no gradient flows through it.

    An instance with a zero at a kink is marked as trouble where the slopes from below and from above give different
    derivatives; where a kink is not met, or does not matter, they give the same.

    Args:
        expr: The call.
        names: What the names mean.
        indices: Values of the step indices in scope.
    """
    if names.trouble is None:
        return _derivative(expr, names, indices)
    kinks: list[Tensor] = []
    found = _derivative(expr, replace(names, kinks=kinks), indices)
    met = torch.zeros(names.batch, dtype=torch.bool, device=names.like.device)
    for mark in kinks:
        met = met | mark
    if bool(met.any()):
        other = _derivative(expr, replace(names, trouble=None, upper=True), indices)
        size = torch.maximum(found.abs(), other.abs()).reshape(*names.batch, -1).amax(-1)
        apart = (other - found).abs().reshape(*names.batch, -1).amax(-1)
        names.trouble.append(met & (apart > _SAME * size))
    return found


def _derivative(expr: Expr, names: TensorNames, indices: Mapping[str, float]) -> Tensor:
    """Return the derivative, with zero slopes or those from above at kinks."""
    inner, name = expr.args[0], expr.args[1].name
    origin = names.variables[name].detach()
    core = () if origin.ndim < 2 else tuple(origin.shape[-2:])
    with torch.enable_grad():
        x = origin.expand((*names.batch, *core)).clone().requires_grad_()
        fixed = {key: value.detach() for key, value in names.variables.items()}
        inside = replace(names, variables={**fixed, name: x})
        value = tensor_value(inner, inside, indices)
        if expr.name == "grad":
            return _pulled(scalar(value), x)
        entries = vec(value)[..., 0] if value.ndim > 1 else value.unsqueeze(-1)
        rows = [_pulled(entries[..., k], x) for k in range(entries.shape[-1])]
    columns = [vec(row)[..., 0] if row.ndim > 1 else row.unsqueeze(-1) for row in rows]
    return torch.stack(columns, dim=-2)


def _pulled(value: Tensor, x: Tensor) -> Tensor:
    """Return the derivative of each instance's number by its x; zero where it does not depend on it."""
    if not value.requires_grad:
        return torch.zeros_like(x, requires_grad=False)
    (gradient,) = torch.autograd.grad(value.sum(), x, retain_graph=True, allow_unused=True)
    return torch.zeros_like(x, requires_grad=False) if gradient is None else gradient
