"""The loss of a run against the bound that a theorem states, and what else a theorem bounds along a run.

Each of the latter is shown as the share of its bound that it uses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ntk_deq.errors import ArgumentError, name_hint
from ntk_deq.language.run import told_in
from ntk_deq.plots.panels import (
    Bound,
    Drawable,
    EndLabel,
    column,
    draw_curve,
    label_ends,
    loss_record,
    remarks_above,
    set_log_values,
    set_steps,
    training_run,
)
from ntk_deq.plots.style import (
    BOUND,
    BOUND_DASHES,
    MEASURED,
    SOFT,
    axes_or_new,
    escaped,
    inequality_label,
    math_interval,
    math_number,
    paper_style,
    parameter_symbol,
    series,
)
from ntk_deq.report import at_rest, rate_ratio, short_index, short_rate, short_share, status_word
from ntk_deq.report.curves import (
    LossPicture,
    ShareCurve,
    are_spread,
    loss_picture,
    measured_name,
    share_curves,
)
from ntk_deq.verify.results import TrainingRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ntk_deq.dynamics.record import TrainingRun


_HEIGHT = 2.4


def convergence(run: Drawable, ax: Axes | None = None, *, bound: Bound | None = None) -> Axes:
    """Draw the loss of a run on a logarithmic axis over even steps or times, with its bound dashed.

    Linear convergence is a straight line there. The band around the loss is what was judged, `low` to `high`. The loss
    of a run so short for its rate that it keeps half of its start would be flat: its decrease 1 - L/L[0] is drawn
    instead, over logarithmic steps where they are spread over decades. Rates and ending stand above, as the left title.

    Args:
        run: A `TrainingRun`, or the `TrainingRecord` of a judged claim.
        ax: Where to draw; None: a new figure of one column.
        bound: A bound in place of the stated one: a rate r, for L exp(-r t) from where the run, or the part of it,
            starts; or a function of the step or time.

    Returns:
        The axes.

    Raises:
        MissingPlotsError: matplotlib is not installed.
        ArgumentError: `run` has no recorded loss, or one at no step, or `bound` is no positive rate and no function.

    Example:
        >>> from ntk_deq import plots
        >>> ax = plots.convergence(run, bound=0.02)  # doctest: +SKIP
    """
    with paper_style():
        record = loss_record(run, bound=bound)
        ax = axes_or_new(ax, height=_HEIGHT)
        draw_loss(ax, record)
        return ax


def draw_loss(ax: Axes, record: TrainingRecord, *, head: Sequence[str] = (), label_steps: bool = True) -> None:
    """Draw the loss panel of a record into `ax`; the look is the caller's.

    Args:
        ax: The panel.
        record: The run.
        head: Lines above those of its rates and ending.
        label_steps: Whether to name the axis of steps.
    """
    picture = loss_picture(record)
    set_steps(ax, told_in(record), record.at, spread=picture.spread, label=label_steps)
    set_log_values(ax, [picture.shown])
    _band(ax, picture)
    if picture.has_bound:
        draw_curve(ax, picture.at, picture.bound, color=BOUND, linestyle=BOUND_DASHES, linewidth=1.0, zorder=2)
    draw_curve(ax, picture.at, picture.loss, color=MEASURED, solid_capstyle="round", zorder=3)
    _mark_end(ax, picture)
    name = measured_name(record)
    if name is not None:
        ax.set_ylabel(f"decrease of {name}" if picture.decrease else name)
    else:
        ax.set_ylabel(r"decrease $1 - L/L(0)$" if picture.decrease else "loss $L$")
    labels = [EndLabel.of("measured", picture.loss, MEASURED)]
    if picture.has_bound:
        labels.append(EndLabel.of(_bound_label(ax, picture), picture.bound, BOUND, BOUND_DASHES))
    label_ends(ax, labels)
    remarks_above(ax, [*head, *_remarks(record)])


def _bound_label(ax: Axes, picture: LossPicture) -> str:
    """Return the name of the bound; with its last value where that is beyond the axis."""
    end = next(value for value in reversed(picture.bound) if math.isfinite(value))
    low, high = ax.get_ylim()
    if low <= end <= high:
        return "bound"
    return f"bound {'↑' if end > high else '↓'} {math_number(short_rate(end, digits=1))}"


def _band(ax: Axes, picture: LossPicture) -> None:
    """Shade the judged balls; one that reaches zero is cut at the axis, one without an end is left out."""
    floor = ax.get_ylim()[0]
    both = [
        math.isfinite(high) and math.isfinite(value) for high, value in zip(picture.high, picture.loss, strict=True)
    ]
    if any(both):
        low = [value if math.isfinite(value) else floor for value in picture.low]
        ax.fill_between(picture.at, low, picture.high, where=both, color=MEASURED, alpha=0.22, linewidth=0, zorder=1)


def _mark_end(ax: Axes, picture: LossPicture) -> None:
    points = [(x, y) for x, y in zip(picture.at, picture.loss, strict=True) if math.isfinite(y)]
    low, high = ax.get_ylim()
    if points and low <= points[-1][1] <= high:  # one far outside would leave no room to the panel
        ax.plot(*points[-1], "o", color=MEASURED, markersize=3.2, clip_on=False, zorder=4)


def _remarks(record: TrainingRecord) -> list[str]:
    """Return the rates and the ending, a line each."""
    lines = []
    index = told_in(record).index
    unit = index.each
    size = "" if not index.whole or record.step is None else f" of size {math_number(short_rate(record.step))}"
    if record.predicted is not None:
        lines.append(f"predicted rate {math_number(short_rate(record.predicted.value))} {unit}{size}")
    if record.measured is not None:
        lines.append(f"measured rate {math_interval(record.measured)} {unit}")
    ratio = rate_ratio(record)
    if ratio is not None:
        lines.append(f"measured / predicted {math_number(short_rate(ratio, digits=1))}")
    if record.status:
        end = math_number(short_index(record.end, record))
        how = "at rest, judged to" if at_rest(record) else "stopped at"
        ending = f"{how} ${told_in(record).letter}$ = {end}: {escaped(status_word(record))}"
        if ratio is None:
            lines.append(ending)
        else:
            lines[-1] += f"; {ending}"
    return lines


_SHARES_HEIGHT = 1.8

# What lies further beyond its bound than this, or further below it, leaves the axis; its label prints the number.
_BEYOND = 100.0
_LEAST = 1e-4

# From the start of a run a displacement grows through every decade: those below this part of its largest say nothing.
_GROWN = 0.1


# Where an infinite share is drawn: far outside any panel.
_OUTSIDE = 10 * _BEYOND


@dataclass(frozen=True)
class _Line:
    """A curve of the panel: its label, places, values, and the ends of its band where it has one."""

    label: str
    at: tuple[float, ...]
    values: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


def norms(run: Drawable, ax: Axes | None = None, *, bounds: Mapping[str, float] | None = None) -> Axes:
    """Draw the norms, singular values and other bounded quantities of a run as shares of their bounds.

    A share is `measured/bound` for an upper bound and `bound/measured` for a lower one: 1 is the bound, more breaks it.
    The axis is logarithmic, and the share at the end of the run stands behind the name of each curve.
    The norms of a `TrainingRun` are those at its snapshots; without bounds they are drawn themselves.

    Args:
        run: A `TrainingRun`, or the `TrainingRecord` of a judged claim, which brings its bounds.
        ax: Where to draw; None: a new figure of one column.
        bounds: For a `TrainingRun`: upper bounds on the spectral norms of its parameters, by name, each > 0.

    Returns:
        The axes.

    Raises:
        MissingPlotsError: matplotlib is not installed.
        ArgumentError: `run` is neither, or `bounds` names no parameter, or is not positive, or comes with a record.

    Example:
        >>> from ntk_deq import plots
        >>> ax = plots.norms(run, bounds={"W": 3.0, "A": 0.5, "b": 2.0})  # doctest: +SKIP
    """
    with paper_style():
        if isinstance(run, TrainingRecord):
            if bounds is not None:
                raise ArgumentError("`bounds` of norms is for a TrainingRun: a TrainingRecord has those of its claim.")
            ax = axes_or_new(ax, height=_SHARES_HEIGHT)
            draw_shares(ax, run)
            return ax
        trained = training_run(run)
        lines = _norm_lines(trained, bounds)
        ax = axes_or_new(ax, height=_SHARES_HEIGHT)
        set_steps(ax, told_in(trained), lines[0].at, spread=are_spread(lines[0].at))
        _draw(ax, lines, shares=bounds is not None)
        return ax


def draw_shares(ax: Axes, record: TrainingRecord) -> None:
    """Draw the panel of shares of a record into `ax`; the look is the caller's."""
    curves = share_curves(record)
    lines = [_share_line(curve, record.at) for curve in curves if curve.drawable]
    set_steps(ax, told_in(record), record.at, spread=are_spread(record.at))
    _draw(ax, lines, shares=True)
    missing = [escaped(curve.curve.name) for curve in curves if not curve.drawable]
    if missing:
        remarks_above(ax, [f"no share of its bound: {', '.join(missing)}"], color=SOFT)


def _share_line(curve: ShareCurve, at: tuple[float, ...]) -> _Line:
    """Return a curve at the steps where it has a share; an infinite one leaves the panel through its top."""

    def shown(row: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(
            min(value, _OUTSIDE) for value, share in zip(row, curve.share, strict=True) if not math.isnan(share)
        )

    known = [i for i, share in enumerate(curve.share) if not math.isnan(share)]
    values = zip(known, shown(curve.share), strict=True)
    sure = tuple(math.nan if curve.is_open(i) else value for i, value in values)
    return _Line(inequality_label(curve), tuple(at[i] for i in known), sure, shown(curve.low), shown(curve.high))


def _draw(ax: Axes, lines: Sequence[_Line], *, shares: bool) -> None:
    labels = []
    _set_values(ax, lines, shares=shares)
    if shares:
        ax.axhspan(1.0, ax.get_ylim()[1], color=BOUND, alpha=0.06, linewidth=0, zorder=0)
        ax.axhline(1.0, color=BOUND, linestyle=BOUND_DASHES, linewidth=1.0, zorder=1)
        labels.append(EndLabel("bound", 1.0, BOUND, BOUND_DASHES))
    for number, line in enumerate(lines):
        color, dashes = series(number)
        if line.low:
            band = [math.isfinite(low + high) for low, high in zip(line.low, line.high, strict=True)]
            ax.fill_between(line.at, line.low, line.high, where=band, color=color, alpha=0.2, linewidth=0, zorder=2)
        draw_curve(ax, line.at, line.values, color=color, linestyle=dashes, zorder=3)
        label = f"{line.label}: {_end(line, ax.get_ylim())}" if shares else line.label
        ending = line.high if math.isnan(line.values[-1]) else line.values
        labels.append(EndLabel.of(label, ending, color, dashes))
    ax.set_ylabel("share of bound" if shares else "spectral norm")
    label_ends(ax, labels)


def _end(line: _Line, limits: tuple[float, float]) -> str:
    """Return the last share of a curve, with an arrow where it is beyond the axis; both ends of an open one."""
    last = line.values[-1]
    if math.isnan(last):
        return f"{math_number(short_share(line.low[-1]))} to {math_number(short_share(line.high[-1]))}"
    arrow = " ↓" if last < limits[0] else " ↑" if last > limits[1] else ""
    return (r"$\infty$" if last >= _OUTSIDE else math_number(short_share(last))) + arrow


def _set_values(ax: Axes, lines: Sequence[_Line], *, shares: bool) -> None:
    """Give `ax` its values: norms from 0, shares on a logarithmic axis that holds the bound."""
    rows = [[value for value in line.values if math.isfinite(value)] for line in lines]
    most = max((max(row) for row in rows if row), default=1.0)
    if not shares:
        ax.set_ylim(0.0, 1.08 * most if most > 0 else 1.0)
        return
    positive = [[value for value in row if value > 0] for row in rows if max(row, default=0.0) >= _LEAST]
    least = min((max(min(row), _GROWN * max(row)) for row in positive if row), default=1.0)
    ax.set_yscale("log")
    ax.set_ylim(0.8 * min(max(least, _LEAST), _GROWN), min(1.6 * max(most, 1.0), _BEYOND))


def _norm_lines(run: TrainingRun, bounds: Mapping[str, float] | None) -> list[_Line]:
    parameters = run.snapshots[0].parameters
    if bounds is not None and not (isinstance(bounds, Mapping) and bounds):
        raise ArgumentError(f"`bounds` of norms must be bounds by name of a parameter, at least one. Got {bounds!r}.")
    for name, bound in (bounds or {}).items():
        if name not in parameters:
            hint = name_hint(name, parameters)
            raise ArgumentError(f"`bounds` of norms must name parameters: {', '.join(parameters)}. Got {name!r}.{hint}")
        if not isinstance(bound, int | float) or not 0 < bound < math.inf:
            raise ArgumentError(f"`bounds` of norms must be numbers > 0. Got {bound!r} for {name!r}.")
    at = tuple(snapshot.at for snapshot in run.snapshots)
    lines = []
    for name in parameters if bounds is None else bounds:
        label = rf"\Vert {parameter_symbol(name)}\Vert"
        values = _spectral_norms(run, name)
        if bounds is None:
            lines.append(_Line(f"${label}$", at, values))
        else:
            label = rf"${label} \leq {short_rate(float(bounds[name]))}$"
            lines.append(_Line(label, at, tuple(value / bounds[name] for value in values)))
    return lines


def _spectral_norms(run: TrainingRun, name: str) -> tuple[float, ...]:
    """Return the spectral norm of a parameter at each snapshot; a vector's is its Euclidean norm."""
    import torch

    stack = torch.stack([snapshot.parameters[name] for snapshot in run.snapshots])
    if stack.ndim == 3:
        return column(torch.linalg.matrix_norm(stack, ord=2))
    return column(torch.linalg.vector_norm(stack.reshape(len(stack), -1), dim=1))
