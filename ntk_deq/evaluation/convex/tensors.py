"""Minima in plain floating point, for one instance or many at once, differentiable in what they depend on.

Minimisers are found by Newton's method, with corners rounded off less and less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ntk_deq.evaluation.convex import (
    LARGEST,
    NEGATED,
    POINTS,
    argument_shape,
    cache_key,
    given_name,
    given_names,
    is_nested,
    objective,
)
from ntk_deq.evaluation.functions import scalar
from ntk_deq.language.functions import FUNCTIONS, entrywise_of
from ntk_deq.language.record import Kink
from ntk_deq.language.tree import Expr, Formula, Kind
from ntk_deq.language.written import definition_of

Objective = Callable[[Tensor, float], Tensor]
"""The values of one function for each row of a matrix, its corners rounded off over a distance."""

COARSE = (0.5, 0.02, 1e-3)
"""Distances over which corners are rounded off, one after the other, where a certificate looks at what is close to."""

FINE = (*COARSE, 3e-5, 1e-6, 3e-8)
"""The same where no more is done."""

_STEPS = 40  # of Newton's method at the first distance; later ones start close by
_HALVINGS = 30
_ARMIJO = 1e-4
_AWAY = 1e9
_FLAT = 1e-13  # relative; a curvature below is taken for none
_SETTLED = 1e-12  # relative to the function's size: what a step may still gain; the last one squares the error


@dataclass(frozen=True)
class Descent:
    """Where a descent came to, for each row.

    Attributes:
        points: The last points.
        settled: Whether nothing was left to gain.
    """

    points: Tensor
    settled: Tensor


def descend(objective: Objective, start: Tensor, distances: Sequence[float] = (0.0,)) -> Descent:
    """Return where each of several functions is least, as far as floats tell.

    Args:
        objective: The functions.
        start: Points to start from, one a row.
        distances: Over which corners are rounded off, one after the other; 0 where there are none.

    Example:
        >>> found = descend(lambda u, s: ((u - 2) ** 2).sum(-1), torch.zeros(1, 2, dtype=torch.float64))
        >>> found.points.tolist(), found.settled.tolist()
        ([[2.0, 2.0]], [True])
    """
    points = start.detach().clone()
    settled = torch.zeros(len(start), dtype=torch.bool, device=start.device)
    for place, distance in enumerate(distances):
        points, settled = _newton(objective, points, distance, _STEPS if place == 0 else _STEPS // 4)
        if place == 0 and not bool((points.abs() < _AWAY * (1 + start.abs())).all(-1).any()):
            break  # all of them fall for ever, as far as one sees
    return Descent(points, settled)


def _newton(objective: Objective, points: Tensor, distance: float, steps: int) -> tuple[Tensor, Tensor]:
    settled = torch.zeros(len(points), dtype=torch.bool, device=points.device)
    for _ in range(steps):
        value, slope, hessian = second_order(objective, points, distance)
        step = _direction(slope, hessian)
        gain = -(step * slope).sum(-1)
        now = (gain <= _SETTLED * (1 + value.abs())) & gain.isfinite() & ~settled
        points, settled = torch.where(now[:, None], points + step, points), settled | now
        if bool(settled.all()) or not bool((points.abs() < _AWAY * _AWAY).all(-1).any()):
            break
        points = torch.where(
            settled[:, None], points, _advanced(objective, points, step, value, gain, settled, distance)
        )
    return points, settled


def second_order(objective: Objective, points: Tensor, distance: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the values, gradients and Hessians of functions at points."""
    with torch.enable_grad():
        x = points.detach().requires_grad_()
        value = objective(x, distance)
        if not value.requires_grad:
            count, width = points.shape
            return value, torch.zeros_like(points), points.new_zeros(count, width, width)
        (slope,) = torch.autograd.grad(value, x, torch.ones_like(value), create_graph=True)
        rows = []
        for unit in torch.eye(points.shape[1], dtype=x.dtype, device=x.device):
            if not slope.requires_grad:
                rows.append(torch.zeros_like(points))
                continue
            (row,) = torch.autograd.grad(slope, x, unit.expand_as(x), retain_graph=True, allow_unused=True)
            rows.append(torch.zeros_like(points) if row is None else row)
    return value.detach(), slope.detach(), torch.stack(rows, dim=1).detach()


def _direction(slope: Tensor, hessian: Tensor) -> Tensor:
    """Newton's step with the absolute values of the curvatures, so that it leads down everywhere."""
    known = hessian.isfinite().flatten(1).all(1) & slope.isfinite().all(1)
    plain = torch.eye(slope.shape[1], dtype=slope.dtype, device=slope.device)
    hessian = torch.where(known[:, None, None], hessian, plain)
    slope = torch.where(known[:, None], slope, 0.0)
    values, vectors = torch.linalg.eigh((hessian + hessian.mT) / 2)
    size = values.abs()
    floor = (_FLAT * size.amax(-1, keepdim=True)).clamp_min(1e-300)
    along = vectors.mT @ slope[..., None]
    return -(vectors @ (along / torch.maximum(size, floor)[..., None]))[..., 0]


def _advanced(
    objective: Objective, points: Tensor, step: Tensor, value: Tensor, gain: Tensor, settled: Tensor, distance: float
) -> Tensor:
    """Return points further along, each as far as its function falls."""
    reach = 1e3 * (1 + torch.linalg.vector_norm(points, dim=-1))
    length = torch.linalg.vector_norm(step, dim=-1)
    factor = torch.minimum(torch.ones_like(gain), reach / length.clamp_min(1e-300))
    found, done = points, settled | ~gain.isfinite()
    for _ in range(_HALVINGS):
        tried = points + factor[:, None] * step
        with torch.no_grad():
            now = objective(tried, distance)
        good = (now <= value - _ARMIJO * factor * gain) & now.isfinite() & ~done
        found = torch.where(good[:, None], tried, found)
        done = done | good
        if bool(done.all()):
            break
        factor = torch.where(done, factor, factor / 2)
    return found


def rounded_off(name: str, args: Sequence[Tensor], distance: float) -> Tensor | None:
    """Return the value of a function with its corners rounded off over a distance; None: it has none that are.

    Example:
        >>> rounded_off("abs", [torch.tensor(0.0)], 0.5).item(), rounded_off("exp", [torch.tensor(0.0)], 0.5)
        (0.5, None)
    """
    facts = entrywise_of("abs" if name == "norm" and args[0].ndim < 2 else name)
    if facts is not None and facts.kink is Kink.CORNER and facts.sides is not None:
        below, above = facts.sides
        middle, half = (above + below) / 2, (above - below) / 2
        return middle * args[0] + half * (args[0] * args[0] + distance * distance).sqrt()
    if name == "fro" or (name == "norm" and 1 in args[0].shape[-2:]):
        return (args[0].square().sum((-2, -1)) + distance * distance).sqrt()
    if name in ("max", "min"):
        sign = 1.0 if name == "max" else -1.0
        if len(args) == 1 and args[0].ndim > 1:
            values = args[0].flatten(-2)
        else:
            values = torch.stack(torch.broadcast_tensors(*(scalar(arg) for arg in args)), -1)
        return sign * distance * torch.logsumexp(sign * values / distance, dim=-1)
    return None


_STARTS = (0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 0.1, 8.0, -8.0)
"""Where a descent begins: at the first at which the function has a value; of one number, also at the best one."""

_WITH_CORNERS = frozenset({"norm", "fro", "max", "min", "norm1", "norminf", "huber"})


def tensor_extreme(expr: Expr, names: Any, indices: Mapping[str, float]) -> Tensor:
    """Return the value of an operator; NaN where no minimum is found.

    Args:
        expr: The call; its first argument is a function.
        names: What names mean, a `TensorNames`.
        indices: Values of the step indices in scope.
    """
    key = None if indices else cache_key(expr)
    if key is not None and key in names.cache:
        found: Tensor = names.cache[key]
        return found
    value = _extreme(expr, names, indices)
    if key is not None:
        names.cache[key] = value
    return value


def _extreme(expr: Expr, names: Any, indices: Mapping[str, float]) -> Tensor:
    shape = argument_shape(expr, names.sizes)
    values = [names.value(arg, indices) for arg in expr.args[1:]]
    given = dict(zip(given_names(expr), values, strict=True))
    mu = given.get(given_name("mu", expr))
    if mu is not None:
        given[given_name("mu", expr)] = mu = scalar(mu)
    names = _beside(names, variables={**names.variables, **given})
    function = Function(objective(expr), expr.args[0].names[0], shape, names, indices)
    start = given.get(given_name("x", expr))
    found = function.lowest(start, FINE)
    result = function.moved(found) if expr.name in POINTS else function.least(found)
    result = -result if expr.name in NEGATED else result
    bad = ~found.settled
    if mu is not None:
        bad = bad | ~(mu > 0)
    bad = bad.reshape(names.batch)
    return torch.where(bad[..., None, None] if result.ndim > 1 else bad, torch.nan, result)


def _beside(names: Any, **changes: Any) -> Any:
    """Return names with more of them, which no rule of a recursion knows: its steps stay what they are."""
    found = replace(names, **changes)
    found.at_steps.update(names.at_steps)
    return found


_ROUNDED = 1e-12  # relative; by how much a point may miss a set and count as one of it


def tensor_indicator(statement: Expr, names: Any, indices: Mapping[str, float]) -> Tensor:
    """Return 0 where a conjunction of comparisons holds up to rounding, inf elsewhere."""
    if statement.kind is Kind.AND:
        parts = [tensor_indicator(part, names, indices) for part in statement.args]
        return parts[0] + parts[1]
    if statement.kind is not Kind.COMPARE:
        return names.like.new_full(names.batch, torch.nan)
    sides = [names.value(arg, indices) for arg in statement.args]
    outside = torch.zeros(names.batch, dtype=torch.bool, device=names.like.device)
    for place, sign in enumerate(statement.operators):
        left, right = (
            side[..., None, None] if side.ndim < 2 and any(s.ndim > 1 for s in sides) else side
            for side in sides[place : place + 2]
        )
        miss = {"==": (left - right).abs(), "<": left - right, "<=": left - right}.get(sign[:2], right - left)
        far = miss > _ROUNDED * torch.maximum(left.abs(), right.abs())
        outside = outside | (far.flatten(-2).any(-1) if far.ndim > 1 else far)
    return torch.where(outside, torch.inf, 0.0).to(names.like)


class Function:
    """A number as a function of one of its names, for each instance.

    Args:
        body: The number.
        name: The name.
        shape: Rows and columns; None for a number.
        names: What other names mean, a `TensorNames`.
        indices: Values of the step indices in scope.
    """

    def __init__(
        self, body: Expr, name: str, shape: tuple[int, int] | None, names: Any, indices: Mapping[str, float]
    ) -> None:
        self._body, self._name, self._shape, self._indices = body, name, shape, indices
        self._names = names
        self._count = names.batch[0] if names.batch else 1
        self._fixed = replace(names, variables={key: value.detach() for key, value in names.variables.items()})
        self._fixed.at_steps.update({at: value.detach() for at, value in names.at_steps.items()})
        self._size = 1 if shape is None else shape[0] * shape[1]
        self._inside: dict[float, Any] = {}

    def at(self, points: Tensor, distance: float, *, moving: bool = False) -> Tensor:
        """Return the values at points, one a row; differentiable in other names only where these are `moving`."""
        inside = self._around(self._names, distance) if moving else self._inside.get(distance)
        if inside is None:
            inside = self._inside[distance] = self._around(self._fixed, distance)
        # Nothing that it keeps depends on the argument.
        inside.variables[self._name] = points[:, 0] if self._shape is None else points.reshape(-1, *self._shape)
        return scalar(inside.value(self._body, self._indices)).expand(self._count)

    def _around(self, names: Any, distance: float) -> Any:
        """Return what names mean beside the argument."""
        changes = {"batch": (self._count,), "rounded": distance, "trouble": None, "kinks": None}
        return _beside(names, variables=dict(names.variables), **changes)

    def lowest(self, start: Tensor | None, distances: Sequence[float]) -> Descent:
        """Return where each function is least, as far as floats tell.

        Args:
            start: Where to begin, if that is known.
            distances: Over which corners are rounded off, if there are any.
        """
        like = self._names.like.new_ones(self._count, self._size)
        if self._size > LARGEST or is_nested(self._body):
            return Descent(like, torch.zeros(self._count, dtype=torch.bool, device=like.device))
        distances = distances if has_corners(self._body, self._names.lets) else (0.0,)
        starts = [like * number for number in _STARTS]
        if start is not None:
            starts.insert(0, start.detach().reshape(-1, self._size).expand(self._count, self._size).contiguous())
        values = [torch.nan_to_num(self.at(point, 0.0).detach(), nan=torch.inf, posinf=torch.inf) for point in starts]
        found = descend(self.at, self._first(starts, values), distances)
        if self._size > 1 or start is not None:
            return found
        # A function of one number may have several valleys.
        best = torch.stack(values).argmin(0)
        other = descend(self.at, torch.stack(starts)[best, torch.arange(self._count)], distances)
        ends = [
            torch.nan_to_num(self.at(end.points, 0.0).detach(), nan=torch.inf, posinf=torch.inf)
            for end in (found, other)
        ]
        better = (ends[1] < ends[0]) | (other.settled & ~found.settled)
        points = torch.where(better[:, None], other.points, found.points)
        return Descent(points, torch.where(better, other.settled, found.settled))

    @staticmethod
    def _first(starts: list[Tensor], values: list[Tensor]) -> Tensor:
        """Return for each function the first point at which it has a value."""
        points, done = starts[0], values[0].isfinite()
        for start, value in zip(starts[1:], values[1:], strict=True):
            good = value.isfinite() & ~done
            points, done = torch.where(good[:, None], start, points), done | good
        return points

    def least(self, found: Descent) -> Tensor:
        """Return the values where they are least, with their derivatives by other names."""
        return self.at(self._moving(found), 0.0, moving=True).reshape(self._names.batch)

    def moved(self, found: Descent) -> Tensor:
        """Return where the functions are least, with the derivatives by other names."""
        points = self._moving(found)
        if self._shape is None:
            return points[:, 0].reshape(self._names.batch)
        return points.reshape(*self._names.batch, *self._shape)

    def _moving(self, found: Descent) -> Tensor:
        points = found.points
        if not torch.is_grad_enabled() or not any(v.requires_grad for v in self._names.variables.values()):
            return points
        distance = 1e-9 if has_corners(self._body, self._names.lets) else 0.0
        hessian = second_order(self.at, points, distance)[2]
        x = points.detach().requires_grad_()
        (slope,) = torch.autograd.grad(self.at(x, distance, moving=True).sum(), x, create_graph=True)
        values, vectors = torch.linalg.eigh(hessian)
        size = values.abs().clamp_min(1e-300)
        step = (vectors @ ((vectors.mT @ (slope - slope.detach())[..., None]) / size[..., None]))[..., 0]
        return points - step


def has_corners(body: Expr, lets: Mapping[str, Formula]) -> bool:
    """Whether a formula, or a definition that it uses, has a function with a corner."""
    waiting, seen = [body], set[str]()
    while waiting:
        for node in waiting.pop().walk():
            if node.kind is Kind.NAME and node.name in lets and node.name not in seen:
                seen.add(node.name)
                waiting.append(lets[node.name].expr)
            if node.kind is not Kind.CALL or node.name not in FUNCTIONS:
                continue
            facts = FUNCTIONS[node.name].entrywise
            if node.name in _WITH_CORNERS or (facts is not None and facts.kink is Kink.CORNER):
                return True
            definition = definition_of(node.name, len(node.args))
            if definition is not None and has_corners(definition[1], {}):
                return True
    return False


def lowest_point(
    body: Expr,
    name: str,
    shape: tuple[int, int] | None,
    names: Any,
    indices: Mapping[str, float],
    start: Tensor | None,
    distances: Sequence[float] = FINE,
) -> tuple[Tensor, bool]:
    """Return where one function is least in floats, a row, and whether nothing was left to gain there."""
    found = Function(body, name, shape, names, indices).lowest(start, distances)
    return found.points[0].double().cpu(), bool(found.settled[0])
