"""Predicted against measured rates of several runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from ntk_deq.errors import ArgumentError
from ntk_deq.plots.labels import escaped
from ntk_deq.plots.source import Drawable, as_record
from ntk_deq.plots.style import BOUND, FAINT, INK, MEASURED, SOFT, axes_or_new, paper_style
from ntk_deq.report.run_words import instantaneous_range, rate_ratio, run_name, short_rate
from ntk_deq.report.text import one_line
from ntk_deq.verify.training_records import TrainingRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROW = 0.2
_REST = 0.75
_LONGEST_NAME = 36
_LARGEST = 1e100  # a rate that is shown, and its inverse the smallest: far beyond, matplotlib's ticks overflow


def rates(
    records: Drawable | Iterable[Drawable], ax: Axes | None = None, *, names: Sequence[str] | None = None
) -> Axes:
    """Draw the predicted and the measured rate of each run on one logarithmic axis, a row a run.

    A hollow ring is the rate that the theorem states, a dot the measured one with its interval; the thin line behind
    spans the rates from the kernel along the run. The factor between the two stands on the right.

    Args:
        records: Runs, or records of judged ones, or a single one; those without any rate are left out. A run of a
            notebook has a measured rate only.
        ax: Where to draw; None: a new figure of one column, as high as it needs to be.
        names: What to call the runs, one a record; None: setting, instance and role.

    Returns:
        The axes.

    Raises:
        MissingPlotsError: matplotlib is not installed.
        ArgumentError: No record has a rate, or there are not as many names as records.

    Example:
        >>> from ntk_deq import plots
        >>> ax = plots.rates(records)  # doctest: +SKIP
    """
    single = isinstance(records, TrainingRecord) or not isinstance(records, Iterable)
    runs = [cast("Drawable", records)] if single else list(cast("Iterable[Drawable]", records))
    taken = [as_record(run) for run in runs]
    if names is not None and len(names) != len(taken):
        raise ArgumentError(f"`names` must have one entry for each of the {len(taken)} records. Got {len(names)}.")
    named = list(zip(names or [run_name(record) for record in taken], taken, strict=True))
    rows = [(name, record) for name, record in named if has_rate(record)]
    if not rows:
        raise ArgumentError("`records` must hold a run with a rate > 0, predicted or measured. Got none.")
    with paper_style():
        ax = axes_or_new(ax, height=rates_height(len(rows)))
        draw_rates(ax, rows)
        return ax


def has_rate(record: TrainingRecord) -> bool:
    """Return whether a run has a rate that the chart can show."""
    return bool(_positive(record))


def rates_height(rows: int) -> float:
    """Return the height in inches of a figure with so many rows."""
    return _REST + _ROW * rows


def draw_rates(ax: Axes, rows: Sequence[tuple[str, TrainingRecord]]) -> None:
    """Draw the chart of rates into `ax`, the first run on top; the look is the caller's."""
    ax.set_xscale("log")
    values = [value for _, record in rows for value in _positive(record)]
    low, high = math.log10(min(values)), math.log10(max(values))
    room = max(0.06 * (high - low), 0.15)
    ax.set_xlim(10 ** (low - room), 10 ** (high + room))
    for number, (_, record) in enumerate(rows):
        _draw_row(ax, -number, record)
    ax.set_yticks([-number for number in range(len(rows))], [_row_label(name) for name, _ in rows])
    ax.set_ylim(-len(rows) + 0.4, 0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.set_xlabel("rate per step or unit of time")
    for number, (_, record) in enumerate(rows):
        ratio = rate_ratio(record)
        text = "" if ratio is None else f"×{short_rate(ratio, digits=1)}"
        ax.text(1.02, -number, text, transform=ax.get_yaxis_transform(), fontsize=7.0, va="center", color=INK)
    _key(ax)


def _row_label(name: str) -> str:
    """Return the name of a run; one too long for a column loses its middle, since both its ends tell runs apart."""
    name = one_line(name)
    if len(name) > _LONGEST_NAME:
        half = (_LONGEST_NAME - 1) // 2
        name = f"{name[:half]}…{name[-half:]}"
    return escaped(name)


def _draw_row(ax: Axes, y: float, record: TrainingRecord) -> None:
    ax.axhline(y, color=FAINT, linewidth=0.3, zorder=0)
    predicted, measured, span = record.predicted, record.measured, instantaneous_range(record)
    if span is not None and all(map(_is_shown, span)):
        ax.plot(span, (y, y), color=SOFT, linewidth=3.2, alpha=0.3, solid_capstyle="butt", zorder=1)
    predicted = predicted if predicted is not None and _is_shown(predicted.value) else None
    measured = measured if measured is not None and _is_shown(measured.value) else None
    if predicted is not None and measured is not None:
        ax.plot((predicted.value, measured.value), (y, y), color=FAINT, linewidth=0.9, zorder=2)
    if measured is not None:
        left, right = ax.get_xlim()
        ends = (max(measured.low, left), min(measured.high, right))
        ax.plot(ends, (y, y), color=MEASURED, linewidth=1.1, marker="|", markersize=4, markeredgewidth=0.7, zorder=3)
        ax.plot(measured.value, y, "o", color=MEASURED, markersize=3.6, zorder=5)
    if predicted is not None:
        ax.plot(predicted.value, y, "o", markerfacecolor="white", markeredgecolor=BOUND, markersize=4.4, zorder=4)


def _key(ax: Axes) -> None:
    """Say above the rows what the marks mean, each with its mark."""
    from matplotlib.lines import Line2D

    marks = [
        Line2D([], [], marker="o", linestyle="none", markerfacecolor="white", markeredgecolor=BOUND, markersize=4.4),
        Line2D([], [], marker="o", color=MEASURED, markersize=3.6, linewidth=1.1),
        Line2D([], [], color=SOFT, linewidth=3.2, alpha=0.3),
    ]
    ax.legend(
        marks,
        ["predicted", "measured", "kernel"],
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=3,
        fontsize=7.0,
        handlelength=1.4,
        columnspacing=1.4,
        handletextpad=0.5,
        borderaxespad=0.2,
    )


def _positive(record: TrainingRecord) -> list[float]:
    """Return the rates of a run that a logarithmic axis can show."""
    found = [rate.value for rate in (record.predicted, record.measured) if rate is not None]
    if record.measured is not None:
        found += [record.measured.low, record.measured.high]
    if found:
        found += instantaneous_range(record) or ()
    return [value for value in found if _is_shown(value)]


def _is_shown(rate: float) -> bool:
    return 1 / _LARGEST <= rate <= _LARGEST
