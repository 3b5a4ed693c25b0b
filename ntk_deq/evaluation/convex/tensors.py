"""Minima in plain floating point, for one instance or many at once, differentiable in what they depend on.

The least value has the derivative of the function where it is reached; the minimiser moves as one step of Newton's
method with a fixed Hessian does, which is the implicit function theorem.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ntk_deq.evaluation.convex.descent import FINE, Descent, descend, second_order
from ntk_deq.evaluation.convex.objective import (
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
from ntk_deq.evaluation.functions.tensors import scalar
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.record import Kink
from ntk_deq.language.tree import Expr, Formula, Kind
from ntk_deq.language.written import definition_of

Evaluate = Callable[[Expr, Any, Mapping[str, float]], Tensor]
"""What gives the value of a formula: `ntk_deq.evaluation.floats.tensor_value`; names are its `TensorNames`."""

_STARTS = (0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 0.1, 8.0, -8.0)
"""Where a descent begins: at the first at which the function has a value; of one number, also at the best one."""

_WITH_CORNERS = frozenset({"norm", "fro", "max", "min", "norm1", "norminf", "huber"})


def tensor_extreme(expr: Expr, names: Any, indices: Mapping[str, float], evaluate: Evaluate) -> Tensor:
    """Return the value of an operator; NaN where no minimum is found.

    Args:
        expr: The call; its first argument is a function.
        names: What names mean.
        indices: Values of the step indices in scope.
        evaluate: Gives values of formulas.
    """
    key = None if indices else cache_key(expr)
    if key is not None and key in names.cache:
        found: Tensor = names.cache[key]
        return found
    value = _extreme(expr, names, indices, evaluate)
    if key is not None:
        names.cache[key] = value
    return value


def _extreme(expr: Expr, names: Any, indices: Mapping[str, float], evaluate: Evaluate) -> Tensor:
    shape = argument_shape(expr, names.sizes)
    values = [evaluate(arg, names, indices) for arg in expr.args[1:]]
    given = dict(zip(given_names(expr), values, strict=True))
    mu = given.get(given_name("mu", expr))
    if mu is not None:
        given[given_name("mu", expr)] = mu = scalar(mu)
    names = _beside(names, variables={**names.variables, **given})
    function = Function(objective(expr), expr.args[0].names[0], shape, names, indices, evaluate)
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


class Function:
    """A number as a function of one of its names, for each instance.

    Args:
        body: The number.
        name: The name.
        shape: Rows and columns; None for a number.
        names: What other names mean.
        indices: Values of the step indices in scope.
        evaluate: Gives values of formulas.
    """

    def __init__(
        self,
        body: Expr,
        name: str,
        shape: tuple[int, int] | None,
        names: Any,
        indices: Mapping[str, float],
        evaluate: Evaluate,
    ) -> None:
        self._body, self._name, self._shape, self._indices, self._evaluate = body, name, shape, indices, evaluate
        self._names = names
        self._count = names.batch[0] if names.batch else 1
        self._fixed = replace(names, variables={key: value.detach() for key, value in names.variables.items()})
        self._fixed.at_steps.update({at: value.detach() for at, value in names.at_steps.items()})
        self._size = 1 if shape is None else shape[0] * shape[1]

    def at(self, points: Tensor, distance: float, *, moving: bool = False) -> Tensor:
        """Return the values at points, one a row; differentiable in other names only where these are `moving`."""
        names = self._names if moving else self._fixed
        value = points[:, 0] if self._shape is None else points.reshape(-1, *self._shape)
        inside = _beside(
            names,
            variables={**names.variables, self._name: value},
            batch=(self._count,),
            rounded=distance,
            trouble=None,
            kinks=None,
        )
        return scalar(self._evaluate(self._body, inside, self._indices)).expand(self._count)

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
    evaluate: Evaluate,
    start: Tensor | None,
    distances: Sequence[float] = FINE,
) -> tuple[Tensor, bool]:
    """Return where one function is least in floats, a row, and whether nothing was left to gain there."""
    found = Function(body, name, shape, names, indices, evaluate).lowest(start, distances)
    return found.points[0].double().cpu(), bool(found.settled[0])
