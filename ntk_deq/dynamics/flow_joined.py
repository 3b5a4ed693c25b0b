"""A run of gradient flow and the one that took it up, as the record of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ntk_deq.dynamics.flow_options import FlowOptions
from ntk_deq.dynamics.record import Snapshot, TrainingRun


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
        end=first.end + second.end,
        snapshots=(*first.snapshots, *(_moved(snapshot, first) for snapshot in second.snapshots[1:])),
        forward_iterations=mean(first.forward_iterations, second.forward_iterations),
        adjoint_iterations=mean(first.adjoint_iterations, second.adjoint_iterations),
        evaluations=evaluations,
        seconds=first.seconds + second.seconds,
        error=_sum(first.error, second.error),
        settings={**second.settings, **_errors(first.settings, second.settings), **_asked(options)},
        detail=f"Taken up at t = {first.end:.9g}, from where this counts: {second.detail}",
    )


def _moved(snapshot: Snapshot, first: TrainingRun) -> Snapshot:
    end = first.snapshots[-1]
    path = {name: length + end.path[name] for name, length in snapshot.path.items()}
    return replace(snapshot, at=snapshot.at + first.end, path=path, path_length=snapshot.path_length + end.path_length)


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


def _errors(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    old, new = first.get("error_by_parameter"), second.get("error_by_parameter")
    return {
        "error_by_parameter": None if old is None or new is None else {name: old[name] + new[name] for name in old},
        "error_path": _sum(first.get("error_path"), second.get("error_path")),
    }


def _asked(options: FlowOptions) -> dict[str, Any]:
    times = list(options.times)
    return {"horizon": options.horizon, "until": options.until, "steps": options.steps, "times": times}
