"""What the panels share: the record that they take, the axis of steps, curves and the labels at their ends, remarks.

They take the record of a judged run as it is, or a run of a notebook turned into one.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from ntk_deq.errors import ArgumentError
from ntk_deq.language.run import RunKind, told_in
from ntk_deq.plots.style import INK, axes_or_new, paper_style, parameter_symbol, series
from ntk_deq.report.curves import are_spread, isolated, loss_curve
from ntk_deq.verify.results import Curve, Rate, TrainingRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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


_LABEL_SIZE = 7.0
# Points from the end of a curve to its label: room for the line between them where labels had to move apart.
_LABEL_GAP = 8.0
_SAMPLE = 11.0  # and of the piece of the curve before its label, which tells its dashes

_FURTHEST = 300  # powers of ten, up and down, that an axis of values is made to hold
_LIMIT = 305  # and up to which it goes: beyond lie denormal numbers and infinity, where matplotlib has no limits
_TALL = 100  # the power of ten from which matplotlib's choice of ticks may overflow
_DECADES = 7  # powers of ten marked on an axis of steps, at most
_FAR = 1.2  # labels away from a curve's end, up to which a line leads there
_TICK_ROOM = 0.08  # between the labels of two of them, of the axis


@dataclass(frozen=True)
class EndLabel:
    """A label for a curve, at its right end.

    Attributes:
        text: The label.
        end: The curve's last value.
        color: The curve's colour.
        dashes: The curve's dashes.
    """

    text: str
    end: float
    color: str
    dashes: Any = "-"

    @classmethod
    def of(cls, text: str, values: Sequence[float], color: str, dashes: Any = "-") -> EndLabel:
        """Return the label of a curve with these values; one that breaks off is named at the height of its last one."""
        return cls(text, next((value for value in reversed(values) if math.isfinite(value)), 1.0), color, dashes)


def holds_steps(at: Sequence[float]) -> bool:
    """Return whether an axis can hold steps or times: beyond 1e300, and that close to zero, it runs out of numbers."""
    first = next((value for value in at if value > 0), 1.0)
    return 10.0**-_FURTHEST <= first and at[-1] <= 10.0**_FURTHEST * min(first, 1.0)


def set_steps(ax: Axes, kind: RunKind, at: Sequence[float], *, spread: bool, label: bool = True) -> None:
    """Give `ax` the axis of steps k or times t.

    Panels that share their axis have the scale of the last call.

    Args:
        ax: The panel.
        kind: The kind of run in whose index it is told.
        at: The steps or times, increasing.
        spread: Whether the axis is logarithmic beyond the first step.
        label: Whether to name it.
    """
    if spread:
        first = next(value for value in at if value > 0)
        ax.set_xscale("symlog", linthresh=first, linscale=0.4)
        ax.set_xlim(at[0], at[-1])
        _set_decades(ax, first, at[0], at[-1])
    else:
        if ax.get_xscale() == "symlog":  # of another panel that shares the axis
            ax.set_xscale("linear")
        ax.set_xlim(at[0], at[-1] if at[-1] > at[0] else at[0] + 1.0)
        if ax.get_xscale() == "linear":
            ax.ticklabel_format(axis="x", style="sci", scilimits=(-3, 4), useMathText=True)
    if label:
        ax.set_xlabel(f"{kind.index.word} ${kind.letter}$")


def _set_decades(ax: Axes, first: float, start: float, last: float) -> None:
    """Mark a start at zero, and the powers of ten that leave room for each other's labels."""
    powers = range(math.ceil(math.log10(first)), math.floor(math.log10(last)) + 1)
    stride = max(1, math.ceil(len(powers) / _DECADES))
    ticks, labels = ([0.0], ["0"]) if start <= 0 else ([], [])
    taken = 0.0 if ticks else -_TICK_ROOM
    for power in list(powers)[::-1][::stride][::-1]:  # the largest power is always among them
        place = float(ax.transAxes.inverted().transform(ax.transData.transform((10.0**power, 1.0)))[0])
        if place - taken >= _TICK_ROOM:
            ticks.append(10.0**power)
            labels.append("1" if power == 0 else "10" if power == 1 else f"$10^{{{power}}}$")
            taken = place
    ax.set_xticks(ticks, labels)
    ax.minorticks_off()


def set_log_values(ax: Axes, rows: Sequence[Sequence[float]]) -> None:
    """Give `ax` a logarithmic axis of values that holds all rows, at least one decade of it.

    Values outside 1e-300 to 1e300 leave it through its ends.
    """
    exponents = [math.log10(value) for row in rows for value in row if math.isfinite(value) and value > 0]
    drawn = [exponent for exponent in exponents if abs(exponent) <= _FURTHEST]
    ax.set_yscale("log")
    low, high = min(drawn, default=0.0), max(drawn, default=0.0)
    decades = max(high - low, 1.0)
    middle, reach = (high + low) / 2, 0.56 * decades
    bottom, top = max(middle - reach, -_LIMIT), min(middle + reach, _LIMIT)
    ax.set_ylim(10.0**bottom, 10.0**top)
    if top > _TALL:
        stride = math.ceil((top - bottom) / _DECADES)
        first = stride * math.ceil(bottom / stride)  # so that 1 is marked
        ax.set_yticks([10.0**power for power in range(first, math.floor(top) + 1, stride)])
        ax.minorticks_off()


def label_ends(ax: Axes, labels: Sequence[EndLabel]) -> None:
    """Write each label right of `ax`, after a piece of its curve, near its end; `ax` must have its limits."""
    from matplotlib.transforms import ScaledTranslation

    points = ax.get_figure().get_figheight() * ax.get_position().height * 72  # type: ignore[union-attr]
    gap = 1.25 * _LABEL_SIZE / points
    wanted = [_fraction(ax, label.end) for label in labels]
    inches = ax.get_figure().dpi_scale_trans  # type: ignore[union-attr]
    near, far, beside = (
        ax.transAxes + ScaledTranslation(points / 72, 0.0, inches)
        for points in (_LABEL_GAP, _LABEL_GAP + _SAMPLE, _LABEL_GAP + _SAMPLE + 3.0)
    )
    for label, height, place in zip(labels, wanted, _apart(wanted, gap), strict=True):
        ax.text(1.0, place, label.text, transform=beside, fontsize=_LABEL_SIZE, va="center", ha="left")
        _stroke(ax, (near, place), (far, place), color=label.color, linestyle=label.dashes, linewidth=1.1)
        # A line to a label far off would cross those between; the piece of the curve says whose it is.
        if abs(place - height) < _FAR * gap:
            _stroke(ax, (ax.transAxes, height), (near, place), color=label.color, linewidth=0.4)


def _stroke(ax: Axes, start: tuple[Any, float], stop: tuple[Any, float], **look: Any) -> None:
    """Draw a straight line right of `ax` between two places, each a transform with a height."""
    (first, low), (second, high) = start, stop
    ends = {"xy": (1.0, low), "xycoords": first, "xytext": (1.0, high), "textcoords": second}
    ax.annotate(
        "", **ends, annotation_clip=False, arrowprops={"arrowstyle": "-", "shrinkA": 0.0, "shrinkB": 0.0, **look}
    )


def draw_curve(ax: Axes, at: Sequence[float], values: Sequence[float], **look: Any) -> None:
    """Draw a curve into `ax`, whose limits are set; a value without a neighbour, which no line shows, is a dot."""
    ax.plot(at, values, **look)
    low, high = ax.get_ylim()
    alone = [i for i in isolated(values) if low <= values[i] <= high]
    if alone:
        dots = {"linestyle": "none", "marker": "o", "markersize": 2.6}
        ax.plot([at[i] for i in alone], [values[i] for i in alone], clip_on=False, **look | dots)


def remarks_above(ax: Axes, lines: Sequence[str], *, color: str = INK) -> None:
    """Write lines above `ax`, as its left title: inside they would cover a curve."""
    ax.set_title("\n".join(lines), loc="left", fontsize=6.8, color=color, linespacing=1.3, pad=4.0)


def _fraction(ax: Axes, value: float) -> float:
    """Return the height of a value on `ax`, 0 at the bottom and 1 at the top."""
    low, high = ax.get_ylim()
    if ax.get_yscale() == "log":
        value, low, high = math.log10(max(value, low)), math.log10(low), math.log10(high)
    return min(max((value - low) / (high - low), 0.0), 1.0)


def _apart(wanted: list[float], gap: float) -> list[float]:
    """Return places in the order of `wanted` and as near to it as can be, each at least `gap` from the next."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    free = [wanted[i] - gap * number for number, i in enumerate(order)]
    places, lowest = [0.0] * len(wanted), min(-gap / 2, *wanted) if wanted else 0.0  # what is below belongs to the axis
    for number, i in enumerate(order):  # isotonic regression: of all means of neighbours, the largest of the least
        least = (min(fmean(free[a:b]) for b in range(number + 1, len(free) + 1)) for a in range(number + 1))
        places[i] = max(max(least) + gap * number, lowest)
        lowest = places[i] + gap
    return places


_HEIGHT = 1.8


def paths(run: Drawable, ax: Axes | None = None) -> Axes:
    """Draw the length of a run's path and the Frobenius distance of each parameter from its start.

    Those of a slice count from where the slice starts.

    Args:
        run: A `TrainingRun`, drawn at its snapshots, or the `TrainingRecord` of a judged claim.
        ax: Where to draw; None: a new figure of one column.

    Returns:
        The axes.

    Raises:
        MissingPlotsError: matplotlib is not installed.
        ArgumentError: `run` is neither.

    Example:
        >>> from ntk_deq import plots
        >>> ax = plots.paths(run)  # doctest: +SKIP
    """
    with paper_style():
        if isinstance(run, TrainingRecord):
            ax = axes_or_new(ax, height=_HEIGHT)
            draw_paths(ax, run)
            return ax
        trained = training_run(run)
        ax = axes_or_new(ax, height=_HEIGHT)
        at = tuple(snapshot.at for snapshot in trained.snapshots)
        set_steps(ax, told_in(trained), at, spread=are_spread(at))
        first = trained.snapshots[0].path_length  # of a slice, whose parameters start where it starts
        length = tuple(snapshot.path_length - first for snapshot in trained.snapshots)
        _draw(ax, at, length, _displacements(trained))
        return ax


def draw_paths(ax: Axes, record: TrainingRecord) -> None:
    """Draw the panel of distances of a record into `ax`; the look is the caller's."""
    set_steps(ax, told_in(record), record.at, spread=are_spread(record.at))
    _draw(ax, record.at, record.path_length, record.displacement)


def _draw(
    ax: Axes, at: tuple[float, ...], length: tuple[float, ...], displacement: Mapping[str, tuple[float, ...]]
) -> None:
    most = max(
        (value for row in (length, *displacement.values()) for value in row if math.isfinite(value)), default=0.0
    )
    ax.set_ylim(0.0, 1.05 * most if most > 0 else 1.0)
    draw_curve(ax, at, length, color=INK, linewidth=1.0)
    labels = [EndLabel.of("path length", length, INK)]
    for number, (name, values) in enumerate(displacement.items()):
        color, dashes = series(number)
        draw_curve(ax, at, values, color=color, linestyle=dashes)
        labels.append(EndLabel.of(f"${parameter_symbol(name)}$", values, color, dashes))
    ax.set_ylabel("distance from start")
    label_ends(ax, labels)


def _displacements(run: TrainingRun) -> dict[str, tuple[float, ...]]:
    """Return the Frobenius distance of each parameter from the start, at each snapshot."""
    import torch

    start = run.snapshots[0].parameters
    moved = {name: [(s.parameters[name] - value).norm() for s in run.snapshots] for name, value in start.items()}
    return {name: column(torch.stack(values)) for name, values in moved.items()}
