"""Where gradient flow reaches the loss at which a claim lets it end."""

from __future__ import annotations

import math
from dataclasses import replace

from torch import Tensor

from ntk_deq.dynamics.flow import gradient_flow
from ntk_deq.dynamics.record import Snapshot, TrainingRun
from ntk_deq.dynamics.status import RunStatus
from ntk_deq.models.base import EquilibriumModel
from ntk_deq.models.signature import Role

NEAR = 1e-9
"""How near to the floor, relatively, the end is sought: the tolerance of the integration."""

_MOST = 12


def ended_at_floor(
    run: TrainingRun, model: EquilibriumModel, X: Tensor, y: Tensor, *, until: float, tolerance: float
) -> TrainingRun:
    """Return a flow that ends where its loss is `until` times the first one, not at the first step beyond.

    From the last snapshot above the floor, the flow is integrated anew to where the logarithm of its loss, linear
    between what is known on both sides, meets the floor, and so on.

    Args:
        run: The flow; one that ended otherwise is returned as it is.
        model: The model at its start.
        X: Inputs.
        y: Targets.
        until: The floor over the first loss.
        tolerance: As in that run.
    """
    floor = until * run.snapshots[0].loss
    if run.status is not RunStatus.LOSS_FLOOR or len(run.snapshots) < 2 or not 0 < floor:
        return run
    above, below = run.snapshots[-2:]
    fixed = {name: getattr(model, name) for name in model.signature.names(Role.HYPERPARAMETER)}
    for _ in range(_MOST):
        if not 0 < below.loss < floor * (1 - NEAR):
            break
        high, low = math.log(above.loss / floor), math.log(below.loss / floor)
        gap = below.at - above.at
        part = gradient_flow(
            type(model).from_variables({**fixed, **above.parameters}),
            X,
            y,
            horizon=min(max(high / (high - low), 1e-3), 1 - 1e-3) * gap,
            until=0.0,
            tolerance=tolerance,
            snapshots=2,
            estimate_error=False,
        )
        if part.status is not RunStatus.HORIZON:
            break
        reached = _after(above, part.snapshots[-1])
        above, below = (reached, below) if reached.loss > floor * (1 + NEAR) else (above, reached)
    series = {name: values.slice(0.0, below.at) for name, values in run.series.items()}
    return replace(run, snapshots=(*run.snapshots[:-1], below), end=below.at, series=series)


def _after(before: Snapshot, part: Snapshot) -> Snapshot:
    """Return the end of a part as a place of the whole flow."""
    path = {name: before.path[name] + length for name, length in part.path.items()}
    return replace(part, at=before.at + part.at, path=path, path_length=before.path_length + part.path_length)
