"""How far a run may be off since its start or its data are known up to rounding only: estimated by further runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from ntk_deq.dynamics.record import TrainingRun
from ntk_deq.verify.training.estimates import APART, LARGEST_GROWTH, SAFETY, descended_again
from ntk_deq.verify.training.trainee import Trainee

_RUNS = 2


@dataclass(frozen=True)
class StartError:
    """What an inexact start, or inexact data, may change at one judged step or time.

    Attributes:
        parameters: By name: Frobenius distance.
        path: Length of the path.
    """

    parameters: Mapping[str, float]
    path: float


def errors_from_start(done: TrainingRun, trainee: Trainee, check: Callable[[], None]) -> list[StartError]:
    """Return these errors at each snapshot of a run of descent; at the start they are what is known of it.

    A member of `orthogonal`, say, or a draw of `sphere`, is known up to rounding. Further runs start with everything
    that is so known moved in a random direction, by its radius times one factor, so that the one moved most,
    relatively, is off by `APART` of its size, far above rounding. Their distances over that factor are the errors, with
    `SAFETY`; infinite where such a run does not get to, or has grown too far away for errors to be in proportion.

    Args:
        done: The run.
        trainee: What was trained.
        check: Called at every step; what it raises ends the runs.
    """
    start, none = StartError(trainee.start_radius, 0.0), StartError(dict.fromkeys(trainee.start_radius, 0.0), 0.0)
    if trainee.exact or len(done.snapshots) == 1:
        return [start, *([none] * (len(done.snapshots) - 1))]
    generator = torch.Generator().manual_seed(0)
    errors = [none] * len(done.snapshots)
    for _ in range(_RUNS):
        model, X, y, factor = trainee.moved(APART, generator)
        there = descended_again(done, model, X, y, check)
        errors = [_larger(error, found) for error, found in zip(errors, _apart(done, there, factor), strict=True)]
    return [start, *errors[1:]]


def _apart(done: TrainingRun, other: TrainingRun | None, factor: float) -> list[StartError]:
    """Return the distances between two runs over the factor, with `SAFETY`, at each snapshot of the first."""
    there = {} if other is None else {snapshot.at: snapshot for snapshot in other.snapshots}
    errors = []
    for here in done.snapshots:
        names = here.parameters
        if here.at not in there:
            errors.append(StartError(dict.fromkeys(names, math.inf), math.inf))
            continue
        second = there[here.at]
        apart = {name: float(torch.linalg.vector_norm(names[name] - second.parameters[name])) for name in names}
        sizes = math.hypot(*(float(torch.linalg.vector_norm(value)) for value in names.values()), here.path_length)
        known = math.hypot(*apart.values()) <= LARGEST_GROWTH * APART * sizes
        share = SAFETY / factor if known else math.inf
        lengths = abs(here.path_length - second.path_length)
        errors.append(StartError({name: _times(share, value) for name, value in apart.items()}, _times(share, lengths)))
    return errors


def _times(share: float, value: float) -> float:
    return share if math.isinf(share) else share * value


def _larger(a: StartError, b: StartError) -> StartError:
    return StartError({n: max(a.parameters[n], b.parameters[n]) for n in a.parameters}, max(a.path, b.path))
