"""A training run as it is judged: computed in floating point, with the distance from the exact one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from flint import arb

from ntk_deq.certified import scalar as sc
from ntk_deq.dynamics.record import TrainingRun
from ntk_deq.evaluation.balls import evaluate_scalar
from ntk_deq.evaluation.environment import Environment, OutsideClaimError
from ntk_deq.evaluation.quantity import Scalar
from ntk_deq.language.tree import Formula
from ntk_deq.verify.training.ends import KNOWN, End
from ntk_deq.verify.training.estimates import SAFETY, StartError, estimated_errors
from ntk_deq.verify.training.moments import Point

LOSS_ROUNDING = 1e-9
"""Relative error of a loss; the solves are to 1e-12, the integration to 1e-9."""


@dataclass(frozen=True)
class Trajectory:
    """A training run as it is judged.

    Attributes:
        run: The run in floating point.
        points: The judged steps or times.
        step: The step size as a ball; None for gradient flow.
        losses: From each point to the next: a ball of all losses on the way; empty where that is not known.
        certified: Whether the radii are proven.
        seconds: Time it took.
        end: How certain it is where the run ends.
        end_error: Relative error of the time at which a flow ends.
        resting: Whether the gradient is zero at the start for certain, so that there is nothing but the start.
    """

    run: TrainingRun
    points: tuple[Point, ...]
    step: Scalar | None
    losses: tuple[arb, ...]
    certified: bool
    seconds: float
    end: End = KNOWN
    end_error: float = 0.0
    resting: bool = False


def positive(formula: Formula, env: Environment) -> Scalar:
    """Return a step size or a horizon.

    Raises:
        OutsideClaimError: It is not positive, or may not be, or is not finite: no run exists then.
    """
    value = evaluate_scalar(formula.expr, env)
    if not (value.ball > 0 and value.ball.is_finite()):
        raise OutsideClaimError(
            "defined", f"`{formula.text}` must be a number > 0 for the run, and is not", certain=bool(value.ball <= 0)
        )
    return value


def known_to(formula: Formula, value: Scalar, most: float) -> float:
    """Return the relative radius of a step size or a horizon.

    Raises:
        OutsideClaimError: It is larger than `most`: the run that is meant is not known well enough. Or the step size or
            horizon is beyond the numbers of float64.
    """
    low, high = sc.lower(value.ball), sc.upper(value.ball)
    if low == 0 or high == math.inf:
        why = f"`{formula.text}` is too {'large' if low else 'small'} for float64, in which a run is computed"
        raise OutsideClaimError("defined", why, certain=False)
    if value.ball.is_exact():
        return 0.0
    off = max(float(value.ball.rad()) / low, 2.0**-52)  # the run's is a float
    if off > most:
        why = f"`{formula.text}` is known to {off:.1g} of its value, and a run needs it to {most:g}"
        raise OutsideClaimError("defined", why, certain=False)
    return off


def estimated_point(
    run: TrainingRun, index: int, begun: StartError, *, stepwise: bool, rounding: float = 0.0, growth: float = 1.0
) -> Point:
    """Return a snapshot with an estimate of its distance from the exact trajectory.

    Args:
        run: The run.
        index: The number of the snapshot.
        begun: What an inexact start changes there.
        stepwise: Whether it goes by steps, in which errors add up; else by an integrator.
        rounding: Relative error of each step's length.
        growth: By how much errors have grown until then.
    """
    snapshot = run.snapshots[index]
    at = int(snapshot.at) if stepwise else float(snapshot.at)
    if index == 0:
        return Point(at, snapshot.parameters, begun.parameters, arb(0))
    factor, estimated = SAFETY * growth, estimated_errors(run, index, stepwise=stepwise, rounding=rounding)
    radius = {name: factor * error + begun.parameters.get(name, 0.0) for name, error in estimated.items()}
    total = math.hypot(*radius.values())
    path = max(total, SAFETY * (run.settings.get("error_path") or 0.0) + begun.path)
    length = sc.with_radius(snapshot.path_length, path)
    return Point(at, snapshot.parameters, radius, length)


def hulls(losses: Sequence[float]) -> tuple[arb, ...]:
    """Return the range of the loss between neighbouring points of a flow, along which it never grows."""
    return tuple(arb(a).union(arb(b)) * sc.with_radius(1.0, LOSS_ROUNDING) for a, b in pairwise(losses))
