"""Equilibria of small models by a semismooth Newton method, for many instances of the same sizes at once.

Newton's step for z = f(z) is z + (I - J)^-1 (f(z) - z), J the derivative of f; for a contraction I - J has an inverse,
and on a map that is linear piece by piece the step from the right piece is exact. Taken once more with J held fixed,
the same step is the implicit function theorem: its derivative by the variables is that of the equilibrium.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ntk_deq.verify.tensor_functions import frobenius, scalar
from ntk_deq.verify.tensors import TensorNames, tensor_map, tensor_value

MAX_ENTRIES = 256  # of the state; its square is a Jacobian, half a megabyte for each instance
_WARM_UP = 4  # plain steps first: they bring most units to their final side of zero
_MAX_STEPS = 16
_ROUNDINGS = 64.0  # units of round-off, relative to the state, that a residual may keep


def well_posed(names: TensorNames, contraction: Tensor) -> Tensor:
    """Return a number that is positive where the equilibrium is seen to exist: 1 less a Lipschitz constant of the map.

    Where the map of one layer, Z -> act(Z L + C), is no contraction in the Frobenius norm, the smallest eigenvalue of
    the symmetric part of I - L takes its place if it is larger (`existence` knows further reasons).

    Args:
        names: What names mean.
        contraction: The model's Lipschitz constant.
    """
    margin = 1 - contraction
    if names.formulas is None or names.formulas.weight is None or bool((margin > 0).all()):
        return margin
    weight = tensor_value(names.formulas.weight, names)
    finite = torch.nan_to_num(weight, posinf=0.0, neginf=0.0)
    monotone = 1 - torch.linalg.eigvalsh((finite + finite.mT) / 2)[..., -1]
    monotone = torch.where(torch.isfinite(weight).all(-1).all(-1), monotone, -torch.inf)
    return torch.where(margin > 0, margin, torch.maximum(margin, monotone))


def solve_directly(names: TensorNames, start: Tensor | None) -> Tensor:
    """Return the equilibrium, differentiable once; marks as trouble where none is seen to exist, or none is found.

    Args:
        names: What names mean.
        start: Where to start, or None: zeros.
    """
    formulas = names.formulas
    assert formulas is not None
    contraction = scalar(tensor_value(formulas.contraction, names)).detach()
    free = formulas.definitions.keys() - formulas.tainted
    known = {name: tensor_value(expr, names) for name, expr in formulas.definitions.items() if name in free}
    known_fixed = {key: value.detach() for key, value in {**names.variables, **known}.items()}
    fixed = replace(names, variables=known_fixed, trouble=None, kinks=None)
    moving = any(value.requires_grad for value in names.variables.values())
    state, jacobian, missed = newton(fixed, start, ~(well_posed(fixed, contraction) > 0), with_jacobian=moving)
    if names.trouble is not None:
        names.trouble.append(missed)
    if not moving:
        return state
    image = tensor_map(replace(names, variables={**names.variables, **known}), state)
    return state + _solve(jacobian, image - state)


def newton(
    names: TensorNames, start: Tensor | None, lost: Tensor, *, with_jacobian: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the equilibrium, I - J there where it is wanted, and where the search failed.

    Args:
        names: What names mean.
        start: Where to start, or None: zeros.
        lost: Instances that are not worth a search.
        with_jacobian: Whether I - J is wanted.
    """
    eps = torch.finfo(names.like.dtype).eps
    with torch.no_grad():
        state = names.like.new_zeros(names.state_shape) if start is None else start.detach()
        for _ in range(_WARM_UP):
            state = tensor_map(names, state)
        state = torch.where(lost[..., None, None], 0.0, state)
        for count in range(_MAX_STEPS + 1):
            image = tensor_map(names, state)
            size = torch.maximum(frobenius(state), frobenius(image))
            solved = frobenius(image - state) <= _ROUNDINGS * eps * size
            if count == _MAX_STEPS or bool((solved | lost).all()):
                break
            step = _solve(_identity_minus_slope(names, state), image - state)
            state = torch.where((solved | lost)[..., None, None], state, state + step)
        missed = ~solved | lost
        # The image of a solved state is as good as the state, and has no negative zeros or residues of inactive units.
        state = torch.where(missed[..., None, None], 0.0, image)
        jacobian = _identity_minus_slope(names, state) if with_jacobian else state
    return state, jacobian, missed


def _identity_minus_slope(names: TensorNames, state: Tensor) -> Tensor:
    """Return I - J of the map at a state, entries of the state row after row."""
    with torch.enable_grad():
        point = state.detach().requires_grad_()
        image = tensor_map(names, point).flatten(-2)
        rows = []
        for k in range(image.shape[-1]):
            entry = image[..., k]
            (row,) = torch.autograd.grad(entry.sum(), point, retain_graph=True, allow_unused=True)
            rows.append(torch.zeros_like(point, requires_grad=False) if row is None else row)
    slope = torch.stack([row.flatten(-2) for row in rows], dim=-2)
    return torch.eye(slope.shape[-1], dtype=slope.dtype, device=slope.device) - slope


def _solve(matrix: Tensor, residual: Tensor) -> Tensor:
    """Solve for every instance; singular ones, which are no contractions, give what they give."""
    flat = residual.flatten(-2).unsqueeze(-1)
    return torch.linalg.solve_ex(matrix, flat)[0].reshape(residual.shape)
