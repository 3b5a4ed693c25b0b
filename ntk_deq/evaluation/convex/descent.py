"""Minimisers in plain floating point, many at once: Newton's method, with corners rounded off less and less.

What comes out is a guess; `certificate` proves how far off it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ntk_deq.evaluation.functions.tensors import scalar
from ntk_deq.language.functions import entrywise_of
from ntk_deq.language.record import Kink

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
        (slope,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        rows = []
        for k in range(points.shape[1]):
            if not slope.requires_grad:
                rows.append(torch.zeros_like(points))
                continue
            (row,) = torch.autograd.grad(slope[:, k].sum(), x, retain_graph=True, allow_unused=True)
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
