"""What the plots take: the record of a judged run as it is, and a run of a notebook turned into one."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, Union

from ntk_deq.errors import ArgumentError
from ntk_deq.report.runs.curves import loss_curve
from ntk_deq.verify.training.summary import Curve, Rate, TrainingRecord

if TYPE_CHECKING:
    from torch import Tensor

    from ntk_deq.dynamics.record import Series, TrainingRun

Drawable: TypeAlias = Union["TrainingRun", TrainingRecord]
"""A `TrainingRun` of `ntk_deq.dynamics`, or a `TrainingRecord` as a judged claim stores it."""

Bound: TypeAlias = float | Callable[[float], float]
"""A bound on the loss: a rate r, for L[0] exp(-r t), or a function of the step or time."""


def as_record(run: Drawable) -> TrainingRecord:
    """Return a run as a record with its loss and the fitted rate.

    Args:
        run: The run or its record.

    Raises:
        ArgumentError: `run` is neither, or it recorded no `loss`, or one that is not a number a step.
    """
    return run if isinstance(run, TrainingRecord) else _from_run(training_run(run))


def loss_record(run: Drawable, *, bound: Bound | None = None) -> TrainingRecord:
    """Return a run as a record whose loss can be drawn.

    Args:
        run: The run or its record.
        bound: A bound on the loss; it takes the place of the one in a record.

    Raises:
        ArgumentError: As for `as_record`, or the loss was recorded at no step, or `bound` is no positive rate and no
            function.
    """
    record = as_record(run)
    if not record.at:
        raise ArgumentError(
            "`run` must hold the loss at one step at least. Its series 'loss' is empty: the schedule of its recorder "
            "chose no step, or no step of a slice."
        )
    return record if bound is None else _with_bound(record, bound)


def training_run(run: object) -> TrainingRun:
    """Return `run` where it is a `TrainingRun`.

    Raises:
        ArgumentError: It is not.
    """
    from ntk_deq.dynamics.record import TrainingRun

    if not isinstance(run, TrainingRun):
        raise ArgumentError(f"`run` must be a TrainingRun or a TrainingRecord. Got {type(run).__name__}.")
    return run


def column(values: Tensor) -> tuple[float, ...]:
    """Return a vector as plain numbers, whatever its device."""
    return tuple(values.detach().double().cpu().tolist())


def _from_run(run: TrainingRun) -> TrainingRecord:
    series = run["loss"]
    if series.values.ndim != 1:
        shape = list(series.values.shape[1:])
        raise ArgumentError(
            f"The series 'loss' of `run` must hold one number a step. Got tensors of the shape {shape}."
        )
    at = column(series.at)
    return TrainingRecord(
        setting=str(run.settings.get("model", "run")),
        index=0,
        method=run.method,
        role="run",
        step=run.step,
        constants={},
        status=run.status.value if run.whole else "",  # a slice does not end where its run stopped
        reason=run.detail or run.status.text,
        steps=run.steps,
        evaluations=run.evaluations,
        end=run.end,
        at=at,
        loss=column(series.values),
        curves=(),
        conditions=(),
        path_length=(math.nan,) * len(at),
        measured=_fitted(series),
        forward_iterations=run.forward_iterations,
        adjoint_iterations=run.adjoint_iterations,
        error=run.error,
        seconds=run.seconds,
    )


def _fitted(series: Series) -> Rate | None:
    """Return the fitted rate of a series of losses, or None where it is too short for one."""
    from ntk_deq.dynamics.rates import measured_rate

    try:
        fit = measured_rate(series.at, series.values)
    except ArgumentError:
        return None
    return Rate(fit.rate, fit.low, fit.high)


def _with_bound(record: TrainingRecord, bound: Bound) -> TrainingRecord:
    """Return the record with a bound on the loss in place of the one that it had."""
    predicted = None
    if callable(bound):
        values = tuple(_number(bound(at)) for at in record.at)
    elif isinstance(bound, int | float) and 0 < bound <= sys.float_info.max:
        values = tuple(record.loss[0] * math.exp(-bound * (at - record.at[0])) for at in record.at)
        predicted = Rate(float(bound), float(bound), float(bound))
    else:
        raise ArgumentError(f"`bound` must be a rate > 0 or a function of the step or time. Got {bound!r}.")
    old = loss_curve(record)
    low, high = (old.low, old.high) if old is not None else (record.loss, record.loss)
    curve = Curve("bound", "L[k] <= bound", low, high, values, "<=")
    rest = tuple(other for other in record.curves if other is not old)
    return dataclasses.replace(record, curves=(*rest, curve), predicted=predicted)


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # what is no number is told of below
    except (TypeError, ValueError):
        raise ArgumentError(f"`bound` must return numbers. Got {value!r}.") from None
