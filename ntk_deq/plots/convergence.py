"""The loss of a run against the bound that a theorem states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ntk_deq.plots.labels import escaped, math_interval, math_number
from ntk_deq.plots.panels import EndLabel, draw_curve, label_ends, remarks_above, set_log_values, set_steps
from ntk_deq.plots.source import Bound, Drawable, loss_record
from ntk_deq.plots.style import BOUND, BOUND_DASHES, MEASURED, axes_or_new, paper_style
from ntk_deq.report.runs.curves import LossPicture, loss_picture, measured_name, told_in
from ntk_deq.report.runs.words import at_rest, rate_ratio, short_index, short_rate, status_word
from ntk_deq.verify.training.summary import TrainingRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
