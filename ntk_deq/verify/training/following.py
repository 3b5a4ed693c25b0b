"""Whether gradient descent follows the gradient flow that is to stand for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from ntk_deq.dynamics.field import GradientField
from ntk_deq.errors import NtkDeqError
from ntk_deq.verify.training.moments import Point

STABLE = 1.8
"""Step size times curvature up to which descent is taken to follow the flow; beyond 2 it leaves a minimum."""

AGREE = 2.0
"""Factor on the estimated distance between descent and flow by which they may differ where both are known."""

_PLACES = 6  # along the flow, at which the curvature is estimated
_ITERATIONS = 20
_NUDGE = 1e-6  # of a difference quotient, relative to the parameters


def strays(window: Point, flow: Sequence[Point], field: GradientField, eta: float, check: Callable[[], None]) -> str:
    """Return why the flow does not stand for descent, or an empty text.

    Euler's method follows a flow where step size times curvature stays below two; the curvature is estimated at places
    along the flow, the ends among them, by power iteration on differences of gradients. And where the steps taken end,
    the two have to agree within what is estimated of their distance.

    Args:
        window: The last judged step of descent.
        flow: The flow at the steps of descent; also at that one, unless it ended before.
        field: Gradients of the loss.
        eta: The step size.
        check: Called now and then; what it raises ends the look.
    """
    there = next((point for point in flow if point.at == window.at), None)
    if there is None:
        return f"it ends at step {flow[-1].at:,}, before the {window.at:,} steps that descent took"
    apart = max(_excess(window, there))
    if apart > AGREE:
        return f"at step {window.at:,} descent is {apart:.2g} times as far from it as estimated"
    places = sorted({round(i * (len(flow) - 1) / (_PLACES - 1)) for i in range(_PLACES)})
    for point in (window, *(flow[place] for place in places)):
        check()
        curvature = largest_curvature(field, point.parameters)
        if not eta * curvature <= STABLE:
            return (
                f"descent need not follow it: at step {point.at:,} the step size times the largest curvature is about "
                f"{eta * curvature:.3g}, and beyond 2 it is unstable"
            )
    return ""


def _excess(window: Point, flow: Point) -> list[float]:
    """Return the distance of each parameter over its estimate; inf where it is no number."""
    found = []
    for name, value in window.parameters.items():
        distance = float(torch.linalg.vector_norm(value - flow.parameters[name]))
        allowed = window.radius.get(name, 0.0) + flow.radius.get(name, 0.0)
        known = math.isfinite(distance) and (allowed > 0 or distance == 0)
        found.append((distance / allowed if distance else 0.0) if known else math.inf)
    return found


def largest_curvature(field: GradientField, parameters: Mapping[str, Tensor]) -> float:
    """Estimate the largest absolute eigenvalue of the Hessian of the loss, from below; inf where that fails.

    Args:
        field: Gradients of the loss.
        parameters: Where.
    """
    generator = torch.Generator().manual_seed(0)
    direction = {
        name: torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value)
        for name, value in parameters.items()
    }
    nudge = _NUDGE * max(size(parameters), 1e-300)
    found = 0.0
    try:
        here = _gradients(field, parameters)
        for _ in range(_ITERATIONS):
            length = size(direction)
            if length == 0:
                return found
            if not math.isfinite(length):
                return math.inf
            moved = {name: value + nudge / length * direction[name] for name, value in parameters.items()}
            there = _gradients(field, moved)
            direction = {name: (there[name] - here[name]) / nudge for name in here}
            curvature = size(direction)
            found = math.inf if math.isnan(curvature) else max(found, curvature)
    except NtkDeqError:
        return math.inf
    return found


def _gradients(field: GradientField, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in field.at(parameters, 0.0).gradients.items()}


def size(values: Mapping[str, Tensor]) -> float:
    """Return the Frobenius norm of all tensors together."""
    return math.hypot(*(float(torch.linalg.vector_norm(value)) for value in values.values()))
