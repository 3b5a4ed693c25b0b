"""A run of gradient flow and the one that took it up, as the record of one run.

How far two integrations of the same flow are apart.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ntk_deq.dynamics.record import Snapshot, TrainingRun
from ntk_deq.dynamics.settings import FlowOptions

# Settings of the record that tell what happened along a run: those that add up, and those whose largest counts.
_ADDED = ("rejected", "first_evaluations", "rough_steps", "implicit_steps", "sum_of_errors", "error_field")
_LARGEST = ("relaxed", "largest_error_per_time")


def joined(first: TrainingRun, second: TrainingRun, options: FlowOptions) -> TrainingRun:
    """Return the record of both; the errors are added, as if the flow brought no two trajectories further apart.

    Args:
        first: The run that was taken up.
        second: The run from its end on, whose times and lengths count from there. Its series are those of both.
        options: What is asked of the whole.

    Example:
        >>> joined(first, second, options).end == first.end + second.end  # doctest: +SKIP
        True
    """
    evaluations = first.evaluations + second.evaluations

    def mean(old: float, new: float) -> float:
        return (old * first.evaluations + new * second.evaluations) / evaluations

    return replace(
        second,
        steps=first.steps + second.steps,
        end=_time(second.end, first, options),
        snapshots=_thinned(
            (*first.snapshots, *(_moved(snapshot, first, options) for snapshot in second.snapshots[1:])), options
        ),
        forward_iterations=mean(first.forward_iterations, second.forward_iterations),
        adjoint_iterations=mean(first.adjoint_iterations, second.adjoint_iterations),
        evaluations=evaluations,
        seconds=first.seconds + second.seconds,
        error=_sum(first.error, second.error),
        settings={**second.settings, **_along(first.settings, second.settings), **_asked(options)},
        detail=f"Taken up at t = {first.end:.9g}, from where this counts: {second.detail}",
    )


def _time(since: float, first: TrainingRun, options: FlowOptions) -> float:
    """Return the time of the whole; where one was asked for it is that one, whatever the sum is rounded to."""
    asked = [time for time in (*options.times, options.horizon) if time is not None and time > first.end]
    return next((time for time in asked if time - first.end == since), since + first.end)


def _moved(snapshot: Snapshot, first: TrainingRun, options: FlowOptions) -> Snapshot:
    end = first.snapshots[-1]
    path = {name: length + end.path[name] for name, length in snapshot.path.items()}
    at = _time(snapshot.at, first, options)
    return replace(snapshot, at=at, path=path, path_length=snapshot.path_length + end.path_length)


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


def _thinned(snapshots: Sequence[Snapshot], options: FlowOptions) -> tuple[Snapshot, ...]:
    """Return the snapshots nearest to places spaced in the logarithm of the time, and those at the times asked for."""
    spare = len(snapshots) - options.snapshots - len(options.times)
    if spare <= 1:  # a run that ends at the loss floor keeps the step before it, too
        return tuple(snapshots)
    logs = [math.log(snapshot.at) for snapshot in snapshots[1:]]
    kept, count = {0, len(snapshots) - 2, len(snapshots) - 1}, options.snapshots - 2
    for i in range(count):
        goal = logs[0] + (logs[-1] - logs[0]) * i / max(count, 1)
        place = bisect_left(logs, goal)
        kept.add(1 + min((place - 1, place), key=lambda at: abs(logs[at] - goal) if 0 <= at < len(logs) else math.inf))
    asked = set(options.times)
    return tuple(snapshot for i, snapshot in enumerate(snapshots) if i in kept or snapshot.at in asked)


def _along(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    old, new = first.get("error_by_parameter"), second.get("error_by_parameter")
    return {
        "time_scale": first["time_scale"],
        **{name: first.get(name, 0) + second[name] for name in _ADDED},
        **{name: max(first[name], second[name]) for name in _LARGEST},
        "error_by_parameter": None if old is None or new is None else {name: old[name] + new[name] for name in old},
        "error_path": _sum(first.get("error_path"), second.get("error_path")),
    }


def _asked(options: FlowOptions) -> dict[str, Any]:
    times = list(options.times)
    return {"horizon": options.horizon, "until": options.until, "steps": options.steps, "times": times}


@dataclass(frozen=True)
class Apart:
    """How far two integrations are apart at most: in all parameters together, in each, and in the length of a path.

    The rounding of the recorded parameters is added.
    """

    together: float
    by_parameter: dict[str, float]
    path: float

    def or_more(self, first: Snapshot, second: Snapshot) -> Apart:
        """Take in another time."""
        norm = torch.linalg.vector_norm
        # Both are rounded from displacements, by half a unit in the last place each.
        moved = [
            norm(value - second.parameters[name]) + torch.finfo(value.dtype).eps / 2 * norm(value)
            for name, value in first.parameters.items()
        ]
        distances = dict(zip(first.parameters, torch.stack(moved).tolist(), strict=True))
        lengths = [first.path[name] - second.path[name] for name in first.path]
        return Apart(
            max(self.together, math.hypot(*distances.values())),
            {name: max(distance, distances[name]) for name, distance in self.by_parameter.items()},
            max(self.path, *map(abs, (first.path_length - second.path_length, *lengths))),
        )
