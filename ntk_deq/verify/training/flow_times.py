"""Times at which a flow shows what it does, wherever it does it."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from ntk_deq.claims.claim import Run
from ntk_deq.dynamics.flow import gradient_flow
from ntk_deq.verify.training.estimates import again_if_interrupted
from ntk_deq.verify.training.trainee import Trainee

SHARE = 3
"""Times of each kind: one for so many that are judged anyway."""

NEAR_THE_ENDS = (6, 8, 10)
"""Times are also told at 2^-k of the inverse rate at the start, and as near to the end, relatively."""

_TOLERANCE = 1e-5
_LEAST_EPS = 200.0


def telling_times(trainee: Trainee, run: Run, *, horizon: float | None, check: Callable[[], None]) -> list[float]:
    """Return times spread evenly over a flow, near its ends, and where its loss has fallen by even factors.

    Snapshots are spaced in the logarithm of the time, from the rate at the start on. Near a saddle, that says nothing
    of when the loss will fall. A coarse integration tells.

    Args:
        trainee: What is trained.
        run: What the claim says of the run.
        horizon: The last time, or None.
        check: Called at every step; what it raises ends the integration.
    """
    scout = gradient_flow(
        trainee.model,
        trainee.X,
        trainee.y,
        horizon=horizon,
        until=float(run.until),
        tolerance=max(_TOLERANCE, _LEAST_EPS * torch.finfo(trainee.X.dtype).eps),
        steps=run.steps,
        snapshots=2,
        estimate_error=False,
        on_step=lambda _: check(),
    )
    again_if_interrupted(scout)
    series = scout["loss"]
    at, loss = series.at.tolist(), series.values.tolist()
    if not scout.end > 0 or not loss[0] > 0:
        return []
    count = run.judged // SHARE
    times = [scout.end * i / (count + 1) for i in range(1, count + 1)]
    speed = scout["gradient_norm"].values[0].item()
    times += [math.ldexp(loss[0] / speed**2, -k) for k in NEAR_THE_ENDS if speed > 0]
    times += [scout.end * (1 - math.ldexp(1.0, -k)) for k in NEAR_THE_ENDS]
    lowest = min((value for value in loss if value > 0), default=loss[0])
    place = 0
    for i in range(1, count + 1):
        level = loss[0] * (lowest / loss[0]) ** (i / (count + 1))
        while place + 1 < len(loss) and loss[place + 1] > level:
            place += 1
        if place + 1 < len(loss):
            times.append(_crossing(at[place : place + 2], loss[place : place + 2], level))
    return sorted({time for time in times if 0 < time < scout.end})


def _crossing(at: list[float], loss: list[float], level: float) -> float:
    """Return where the loss passes a level between two steps, if its logarithm is straight there."""
    if not loss[0] > loss[1] > 0:
        return at[1]
    return at[0] + (at[1] - at[0]) * min(max(math.log(loss[0] / level) / math.log(loss[0] / loss[1]), 0.0), 1.0)
