"""Where gradient flow reaches the loss at which a claim lets it end."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from ntk_deq.dynamics.field import GradientField
from ntk_deq.dynamics.flow import gradient_flow
from ntk_deq.dynamics.record import Snapshot, TrainingRun
from ntk_deq.dynamics.status import RunStatus
from ntk_deq.models.base import EquilibriumModel
from ntk_deq.verify.training.estimates import again_if_interrupted

NEAR = 1e-9
"""How near to the floor, relatively, the end is sought: the tolerance of the integration."""

_MOST = 12


def ended_at_floor(
    run: TrainingRun,
    model: EquilibriumModel,
    X: Tensor,
    y: Tensor,
    *,
    until: float,
    tolerance: float,
    rtol: float,
    check: Callable[[], None],
) -> TrainingRun:
    """Return a flow that ends where its loss is `until` times the first one, not at the first step beyond.

    From the last snapshot above the floor, the flow is integrated on by Newton's method for the logarithm of its loss,
    whose slope is -norm(grad)^2/L. That falls ever more slowly, mostly, so that each stretch ends just above the floor
    and is the next one's start; where it does not, the chord to what is known below bounds the stretch.

    Args:
        run: The flow; one that ended otherwise is returned as it is.
        model: The model at its start.
        X: Inputs.
        y: Targets.
        until: The floor over the first loss.
        tolerance: As in that run.
        rtol: Relative tolerance of equilibria.
        check: Called at every step; what it raises ends the search.

    Raises:
        KeyboardInterrupt: A stretch was interrupted.
    """
    floor = until * run.snapshots[0].loss
    if run.status is not RunStatus.LOSS_FLOOR or len(run.snapshots) < 2:
        return run
    above, below = run.snapshots[-2:]
    for _ in range(_MOST):
        if not 0 < below.loss < floor * (1 - NEAR):
            break
        here = model.with_parameters(above.parameters)
        gradients = GradientField(here, X, y, rtol=rtol).at(above.parameters, 0.0).gradients.values()
        high, low = math.log(above.loss / floor), math.log(below.loss / floor)
        newton = high * above.loss / max(sum(float(g.square().sum()) for g in gradients), math.ulp(0.0))
        ahead = min(newton, high / (high - low) * (below.at - above.at))
        if not above.at < above.at + ahead < below.at:  # nearer than times can be told apart
            break
        part = gradient_flow(
            here,
            X,
            y,
            horizon=ahead,
            until=0.0,
            tolerance=tolerance,
            snapshots=2,
            estimate_error=False,
            on_step=lambda _: check(),
        )
        again_if_interrupted(part)
        if part.status is not RunStatus.HORIZON:
            break
        reached = _after(above, part.snapshots[-1])
        if abs(reached.loss - floor) <= NEAR * floor:
            below = reached
            break
        above, below = (reached, below) if reached.loss > floor else (above, reached)
    series = {name: values.slice(0.0, below.at) for name, values in run.series.items()}
    return replace(run, snapshots=(*run.snapshots[:-1], below), end=below.at, series=series)


def _after(before: Snapshot, part: Snapshot) -> Snapshot:
    """Return the end of a part as a place of the whole flow."""
    path = {name: before.path[name] + length for name, length in part.path.items()}
    return replace(part, at=before.at + part.at, path=path, path_length=before.path_length + part.path_length)
