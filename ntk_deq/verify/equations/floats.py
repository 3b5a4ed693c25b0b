"""Solve the equations of a claim in plain floating point, for many instances of the same sizes at once.

Joint systems by Newton's method with a line search; where there are more variables than equations the smallest step
that solves the linearised ones. On a map that is linear piece by piece the step from the right piece is exact. Taken
once more with the Jacobian held fixed, the same step makes the solution differentiable, by the implicit function
theorem. Nothing is proven here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ntk_deq.errors import NtkDeqError
from ntk_deq.evaluation.floats import TensorNames, tensor_value
from ntk_deq.evaluation.functions.twin import scalar
from ntk_deq.language.domain import Domain, DomainKind
from ntk_deq.language.types import Sort
from ntk_deq.verify.equations.records import Joint, Plan

_STEPS = 24
_SHORTER = (1.0, 0.25, 0.05)  # parts of a step that are tried
_ROUNDINGS = 256.0  # units of round-off, of what the Jacobian makes of the variables, that may be left
_PROGRESS = 0.9  # part of what is left of the equations that a step must leave at most
_RANK = 1e-12

Residual = Callable[[Tensor, Mapping[str, Tensor]], Tensor]


def solved_names(names: TensorNames, plan: Plan) -> TensorNames:
    """Return names in which the variables that the equations give are computed from the others.

    What cannot be solved for stays near what it was; the hypotheses' margins say so.

    Args:
        names: What names mean; the values of the variables to compute are where an iteration starts.
        plan: How the equations are solved.
    """
    given = names
    for inclusion in plan.inclusions:
        inside = replace(given, trouble=None if names.trouble is None else [])
        found = {}
        for variable, formula in zip(inclusion.variables, inclusion.formulas, strict=True):
            value = tensor_value(formula, inside)
            found[variable.name] = scalar(value) if variable.type.sort is Sort.SCALAR else value
        names = replace(names, variables={**names.variables, **found})
    for joint in plan.joint:
        names = replace(names, variables={**names.variables, **solved_jointly(joint, names, plan)[0]})
    for step in plan.explicit:
        inside = replace(names, trouble=None if names.trouble is None else [])
        value = tensor_value(step.formula.expr, inside)
        value = scalar(value) if step.variable.type.sort is Sort.SCALAR else value
        names = replace(names, variables={**names.variables, step.variable.name: value})
    return names


def domain_margin(domain: Domain, value: Tensor) -> Tensor:
    """Return by how much a computed value lies inside its domain: 1 at most, negative outside.

    Args:
        domain: The domain; kinds that a computed value has by its form allow everything.
        value: A scalar or a matrix, or a batch of them.
    """
    like = value if value.ndim < 2 else value[..., 0, 0]
    margin = torch.ones_like(like)
    smallest = value if value.ndim < 2 else value.amin((-2, -1))
    largest = value if value.ndim < 2 else value.amax((-2, -1))
    if domain.kind is DomainKind.PSD:
        symmetric = (value + value.mT) / 2
        safe = torch.where(torch.isfinite(symmetric), symmetric, 0.0)
        smallest = torch.linalg.eigvalsh(safe)[..., 0]
    if domain.kind in (DomainKind.NONNEGATIVE, DomainKind.POSITIVE, DomainKind.PSD):
        margin = torch.minimum(margin, smallest)
    if domain.low is not None:
        margin = torch.minimum(margin, smallest - float(domain.low))
    if domain.high is not None:
        margin = torch.minimum(margin, float(domain.high) - largest)
    return margin


def solved_jointly(joint: Joint, names: TensorNames, plan: Plan) -> tuple[dict[str, Tensor], Tensor]:
    """Return the values of a joint system's variables, and whether they solve it up to rounding.

    Args:
        joint: The system.
        names: What names mean; the values of the system's variables are where the iteration starts.
        plan: Whose explicit variables stand in the system as definitions.
    """
    chart = _Chart(joint, names)
    explicit = {step.variable.name for step in plan.explicit}
    lets = plan.definitions(names.lets)

    def residual(coordinates: Tensor, variables: Mapping[str, Tensor]) -> Tensor:
        values = {**variables, **chart.values(coordinates)}
        values = {name: value for name, value in values.items() if name not in explicit}
        trouble: list[Tensor] | None = None if names.trouble is None else []
        inside = replace(names, variables=values, lets=lets, trouble=trouble)
        sides = [(tensor_value(e.left, inside), tensor_value(e.right, inside)) for e in joint.equations]
        rows = [_rows(left, right, rows) for (left, right), rows in zip(sides, joint.rows, strict=True)]
        return torch.cat([row.expand(*chart.batch, row.shape[-1]) for row in rows], dim=-1)

    still = {name: value.detach() for name, value in names.variables.items()}
    start = chart.coordinates(still)
    # Zero is where a fixed point is looked for; at zero a length has no slope, and a start of no special kind has one.
    waves = torch.arange(1, start.shape[-1] + 1).to(start).cos().expand_as(start)
    found, solved = start, torch.zeros(chart.batch, dtype=torch.bool, device=start.device)
    for first in (start, torch.zeros_like(start), waves):
        other, too = _newton(residual, still, first)
        found = torch.where((too & ~solved).unsqueeze(-1), other, found)
        solved = solved | too
        if bool(solved.all()):
            break
    if any(value.requires_grad for value in names.variables.values()) and torch.is_grad_enabled():
        _, jacobian = _linearised(residual, still, found)
        gap = residual(found, names.variables)
        found = found - (_pseudoinverse(jacobian) @ gap.unsqueeze(-1)).squeeze(-1)
    return chart.values(found), solved


class _Chart:
    """The coordinates of the variables of a joint system: entries, with signs."""

    def __init__(self, joint: Joint, names: TensorNames) -> None:
        self.batch = names.batch
        self._joint, self._like = joint, names.like
        self._shapes = {
            v.name: names.variables[v.name].shape[len(self._lead(names, v.name)) :] for v in joint.variables
        }
        self._patterns = []
        for variable, places in zip(joint.variables, joint.places, strict=True):
            entries = max(1, self._shapes[variable.name].numel())
            pattern = names.like.new_zeros(len(places), entries)
            for row, place in enumerate(places):
                for index, sign in place:
                    pattern[row, index] = sign
            self._patterns.append(pattern)

    def _lead(self, names: TensorNames, name: str) -> tuple[int, ...]:
        """Return the batch dimension that a variable has: scalars have it alone, matrices in front of two others."""
        value = names.variables[name]
        return tuple(value.shape[:1]) if value.ndim in (1, 3) else ()

    def coordinates(self, variables: Mapping[str, Tensor]) -> Tensor:
        """Return the coordinates, batch x coordinates."""
        found = []
        for variable, places in zip(self._joint.variables, self._joint.places, strict=True):
            value, shape = variables[variable.name], self._shapes[variable.name]
            flat = value.reshape((*value.shape[: value.ndim - len(shape)], -1))
            picked = flat[..., [place[0][0] for place in places]]
            signs = self._like.new_tensor([place[0][1] for place in places])
            found.append((picked * signs).expand(*self.batch, len(places)))
        return torch.cat(found, dim=-1)

    def values(self, coordinates: Tensor) -> dict[str, Tensor]:
        """Return the values at coordinates."""
        values, start = {}, 0
        for variable, pattern in zip(self._joint.variables, self._patterns, strict=True):
            part = coordinates[..., start : start + len(pattern)]
            start += len(pattern)
            values[variable.name] = (part @ pattern).reshape((*coordinates.shape[:-1], *self._shapes[variable.name]))
        return values


def _rows(left: Tensor, right: Tensor, rows: tuple[int, ...]) -> Tensor:
    if left.ndim < 2 or right.ndim < 2:
        return (scalar(left) - scalar(right)).unsqueeze(-1)
    return (left - right).flatten(-2)[..., list(rows)]


def _newton(residual: Residual, variables: Mapping[str, Tensor], start: Tensor) -> tuple[Tensor, Tensor]:
    """Return coordinates at which the equations hold, or nearly, and whether they do up to rounding."""
    best = start
    with torch.no_grad():
        norm = _length(residual(best, variables))
    solved = norm == 0
    for _ in range(_STEPS):
        if bool(solved.all()):
            break
        gap, jacobian = _linearised(residual, variables, best)
        step = (_pseudoinverse(jacobian) @ gap.unsqueeze(-1)).squeeze(-1)
        rounding = _ROUNDINGS * torch.finfo(best.dtype).eps * _length(jacobian.flatten(-2)) * _length(best)
        before, moved = norm, solved
        for part in _SHORTER:
            trial = best - part * step
            with torch.no_grad():
                lower = _length(residual(trial, variables))
            better = (lower < norm) & ~moved
            best = torch.where(better.unsqueeze(-1), trial, best)
            norm = torch.where(better, lower, norm)
            moved = moved | better
            if bool((moved | (norm <= rounding)).all()):
                break
        solved = norm <= rounding
        if not bool(((norm < _PROGRESS * before) & ~solved).any()):
            break
    return best, solved


def _linearised(residual: Residual, variables: Mapping[str, Tensor], at: Tensor) -> tuple[Tensor, Tensor]:
    """Return the residual and its Jacobian, batch x equations x coordinates; what is not finite counts as zero."""
    with torch.enable_grad():
        inside = at.detach().requires_grad_()
        gap = residual(inside, variables)
        rows = []
        for number in gap.unbind(-1):
            slope = None
            if number.requires_grad:
                (slope,) = torch.autograd.grad(number.sum(), inside, retain_graph=True, allow_unused=True)
            rows.append(torch.zeros_like(at) if slope is None else slope.nan_to_num(0.0, 0.0, 0.0))
    return gap.detach().nan_to_num(0.0, 0.0, 0.0), torch.stack(rows, dim=-2)


def _pseudoinverse(jacobian: Tensor) -> Tensor:
    try:
        return torch.linalg.pinv(jacobian, rtol=_RANK)
    except torch.linalg.LinAlgError as error:
        raise NtkDeqError("a Jacobian has no singular values") from error


def _length(gap: Tensor) -> Tensor:
    length = torch.linalg.vector_norm(gap, dim=-1)
    return torch.where(torch.isfinite(length), length, torch.inf)
