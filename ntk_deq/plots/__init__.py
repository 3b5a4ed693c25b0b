"""Figures of training runs, landscapes and trajectories, for a notebook and for the command `convergence-figures`.

Every function takes what is drawn (a `TrainingRun` or a `TrainingRecord`, a `Landscape`, a `Trajectory`), draws into
`ax` or into a new figure, and returns the axes. None shows a window or changes a setting of matplotlib.

convergence.py   losses against bounds; landscapes.py: loss landscapes, trajectories
panels.py, style.py    what panels share; how every figure looks, and its text

Here: whole figures and their files, the same bytes from the same record, and rates of several runs.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ntk_deq.errors import ArgumentError
from ntk_deq.files import write_whole
from ntk_deq.language.run import told_in
from ntk_deq.plots.convergence import convergence, draw_loss, draw_shares, norms
from ntk_deq.plots.landscapes import landscape, trajectories
from ntk_deq.plots.panels import Bound, Drawable, as_record, draw_paths, loss_record, paths, set_steps
from ntk_deq.plots.style import (
    BOUND,
    COLUMN,
    FAINT,
    INK,
    MEASURED,
    SOFT,
    MissingPlotsError,
    escaped,
    fitted,
    math_number,
    paper_style,
    row_names,
    title_lines,
)
from ntk_deq.report import instantaneous_range, method_words, rate_ratio, run_name, short_rate
from ntk_deq.report.console import one_line
from ntk_deq.report.curves import loss_picture, share_curves
from ntk_deq.verify.results import TrainingRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "MissingPlotsError",
    "convergence",
    "landscape",
    "norms",
    "paths",
    "plot_run",
    "rates",
    "rates_figure",
    "run_figure",
    "save_figure",
    "trajectories",
]


_ROW = 0.2
_TALL_ROW = 0.3  # where a name takes two lines
_REST = 0.8
_NAME_ROOM = 18.0  # width of a name in multiples of its size: about half of a column
_NUMBERS = 32.0  # points that a column of numbers takes
_LARGEST = 1e100  # a rate that is shown, and its inverse the smallest: far beyond, matplotlib's ticks overflow


def rates(
    records: Drawable | Iterable[Drawable],
    ax: Axes | Sequence[Axes] | None = None,
    *,
    names: Sequence[str] | None = None,
) -> tuple[Axes, ...]:
    """Draw the predicted and the measured rate of each run on a logarithmic axis, a row a run.

    Rates per step and rates per unit of time are different things: where there are runs of both kinds, each has an axis
    of its own. A hollow ring is the rate that the theorem states, a dot the measured one with its interval; the thin
    line behind spans the rates from the kernel along the run. On the right stand measured over predicted, as a number,
    and the step size.

    Args:
        records: Runs, or records of judged ones, or a single one; those without any rate are left out. A run of a
            notebook has a measured rate only.
        ax: Where to draw; two axes where there are runs of both kinds, steps first; None: a new figure of one column,
            as high as it needs to be.
        names: What to call the runs, one a record; None: setting, instance and role.

    Returns:
        The axes, one or two.

    Raises:
        MissingPlotsError: matplotlib is not installed.
        ArgumentError: No record has a rate, or there are not as many names as records, or as many axes as kinds.

    Example:
        >>> from ntk_deq import plots
        >>> (ax,) = plots.rates(records)  # doctest: +SKIP
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
    groups = by_unit(rows)
    with paper_style():
        if ax is None:
            from matplotlib import pyplot

            panels = rates_panels(pyplot.figure(layout="constrained"), groups)
        else:
            panels = tuple(ax) if isinstance(ax, Iterable) else (ax,)
        if len(panels) != len(groups):
            kinds = "one kind" if len(groups) == 1 else "both kinds, per step and per unit of time,"
            raise ArgumentError(f"`ax` of rates must be {len(groups)} axes for runs of {kinds}. Got {len(panels)}.")
        for panel, group in zip(panels, groups, strict=True):
            draw_rates(panel, group)
        return panels


Rows = Sequence[tuple[str, TrainingRecord]]
"""Runs with their names."""


def by_unit(rows: Rows) -> list[Rows]:
    """Return the rows whose rates are per step, and those per unit of time; one of the two where there is only one."""
    groups = [[row for row in rows if told_in(row[1]).index.whole is whole] for whole in (True, False)]
    return [group for group in groups if group]


def rates_panels(figure: Figure, groups: Sequence[Rows]) -> tuple[Axes, ...]:
    """Return an axis for each group in a figure, which is made as high as they need."""
    heights = [rates_height(group) for group in groups]
    figure.set_size_inches(COLUMN, sum(heights))
    found = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights)
    return tuple(found[:, 0])


def has_rate(record: TrainingRecord) -> bool:
    """Return whether a run has a rate that the chart can show."""
    return bool(_positive(record))


def rates_height(rows: Sequence[tuple[str, TrainingRecord]]) -> float:
    """Return the height in inches of a figure with these rows."""
    return _REST + len(rows) * (_TALL_ROW if any("\n" in label for label in _row_labels(rows)) else _ROW)


def draw_rates(ax: Axes, rows: Sequence[tuple[str, TrainingRecord]]) -> None:
    """Draw the chart of rates into `ax`, the first run on top; the look is the caller's."""
    ax.set_xscale("log")
    values = [value for _, record in rows for value in _positive(record)]
    low, high = math.log10(min(values)), math.log10(max(values))
    room = max(0.06 * (high - low), 0.15)
    ax.set_xlim(10 ** (low - room), 10 ** (high + room))
    drawn = {name for number, (_, record) in enumerate(rows) for name in _draw_row(ax, -number, record)}
    ax.set_yticks([-number for number in range(len(rows))], _row_labels(rows), linespacing=1.05)
    ax.set_ylim(-len(rows) + 0.4, 0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    index = told_in(rows[0][1]).index
    ax.set_xlabel(f"rate of the loss {index.each if index.whole else 'per unit of time'}")
    _numbers(ax, [record for _, record in rows])
    _key(ax, drawn)


def _numbers(ax: Axes, records: Sequence[TrainingRecord]) -> None:
    """Write measured over predicted and the step size right of each row, as far as there are any."""
    columns = [
        ("measured/\npredicted", ["" if r is None else short_rate(r, digits=1) for r in map(rate_ratio, records)]),
        ("step", ["" if record.step is None else short_rate(record.step, digits=1) for record in records]),
    ]
    shown = [column for column in columns if any(column[1])]
    for place, (head, numbers) in enumerate(shown):
        beside: dict[str, Any] = {
            "xytext": (6.0 + _NUMBERS * place, 0.0),
            "textcoords": "offset points",
            "annotation_clip": False,
        }
        ax.annotate(head, (1.0, 1.0), xycoords="axes fraction", fontsize=6.0, va="bottom", color=SOFT, **beside)
        for row, text in enumerate(numbers):
            at = (1.0, -row)
            number = math_number(text) if text else ""
            ax.annotate(number, at, xycoords=ax.get_yaxis_transform(), fontsize=7.0, va="center", color=INK, **beside)


def _row_labels(rows: Sequence[tuple[str, TrainingRecord]]) -> list[str]:
    names = row_names([one_line(name) for name, _ in rows], _NAME_ROOM)
    return ["\n".join(map(escaped, name.split("\n"))) for name in names]


def _draw_row(ax: Axes, y: float, record: TrainingRecord) -> set[str]:
    """Draw a run and return the names of the marks that it has."""
    ax.axhline(y, color=FAINT, linewidth=0.3, zorder=0)
    drawn = set()
    predicted, measured, span = record.predicted, record.measured, instantaneous_range(record)
    if span is not None and all(_is_shown(end) for end in span):
        ax.plot([end for end in span], (y, y), **_MARKS["kernel"] | {"solid_capstyle": "butt", "zorder": 1})
        drawn.add("kernel")
    predicted = predicted if predicted is not None and _is_shown(predicted.value) else None
    measured = measured if measured is not None and _is_shown(measured.value) else None
    if predicted is not None and measured is not None:
        ax.plot((predicted.value, measured.value), (y, y), color=FAINT, linewidth=0.9, zorder=2)
    if measured is not None:
        left, right = ax.get_xlim()
        ends = (max(measured.low, left), min(measured.high, right))
        ax.plot(ends, (y, y), color=MEASURED, linewidth=1.1, marker="|", markersize=4, markeredgewidth=0.7, zorder=3)
        ax.plot(measured.value, y, **_MARKS["measured"] | {"zorder": 5})
        drawn.add("measured")
    if predicted is not None:
        ax.plot(predicted.value, y, **_MARKS["predicted"] | {"zorder": 4})
        drawn.add("predicted")
    return drawn


_MARKS: dict[str, dict[str, Any]] = {
    "predicted": {
        "marker": "o", "linestyle": "none", "markerfacecolor": "white", "markeredgecolor": BOUND, "markersize": 4.4,
    },
    "measured": {"marker": "o", "color": MEASURED, "markersize": 3.6, "linewidth": 1.1},
    "kernel": {"color": SOFT, "linewidth": 3.2, "alpha": 0.3},
}  # fmt: skip
"""The marks of a row by their names."""


def _key(ax: Axes, drawn: set[str]) -> None:
    """Say above the rows what the marks that are drawn mean, each with its mark."""
    from matplotlib.lines import Line2D

    names = [name for name in _MARKS if name in drawn]
    ax.legend(
        [Line2D([], [], **_MARKS[name]) for name in names],
        names,
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


# A figure's file must not say when it was made, or two runs would differ. Keys as each format of matplotlib knows them.
_UNDATED: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}
_CREATOR = {"pdf": "Creator", "svg": "Creator", "png": "Software"}

_HEIGHT = 4.1

_TITLE_SIZE = 8.5
_TITLE_LINES = 3
_REMARK_SIZE = 7.0


def run_figure(record: TrainingRecord, *, claim: str, title: str = "") -> Figure:
    """Return the figure of a run: its loss against the bound, and below what else is bounded, as shares of the bounds.

    Without other bounds the lower panel shows the length of the path and how far each parameter moved.

    Args:
        record: The run.
        claim: The claim's id.
        title: The claim's title.

    Raises:
        MissingPlotsError: matplotlib is not installed.
    """
    with paper_style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(COLUMN, _HEIGHT), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        if _has_shares(record):
            draw_shares(lower, record)
        else:
            draw_paths(lower, record)
        remark = fitted(one_line(f"{method_words(record)}, {run_name(record)}"), 62 * COLUMN / _REMARK_SIZE)
        draw_loss(upper, record, head=[escaped(remark)], label_steps=False)  # the last: the axis of steps is its own
        upper.tick_params(labelbottom=False)
        head = one_line(f"{claim}: {title}" if title else claim)
        lines = title_lines(head, 69 * COLUMN / _TITLE_SIZE, most=_TITLE_LINES)
        figure.suptitle("\n".join(map(escaped, lines)), x=0.01, ha="left", fontsize=_TITLE_SIZE, linespacing=1.15)
        return figure


def plot_run(
    run: Drawable, *, bound: Bound | None = None, bounds: Mapping[str, float] | None = None
) -> tuple[Axes, Axes]:
    """Draw a run into a new figure: its loss, and below its norms where there are bounds for them, or else its path.

    Args:
        run: A `TrainingRun`, or the `TrainingRecord` of a judged claim.
        bound: A bound on the loss, as for `convergence`.
        bounds: Bounds on the norms of the parameters of a `TrainingRun`, as for `norms`.

    Returns:
        The upper and the lower axes.

    Raises:
        MissingPlotsError: matplotlib is not installed.
        ArgumentError: As for `convergence` and `norms`.
    """
    with paper_style():
        from matplotlib import pyplot

        record = loss_record(run, bound=bound)
        _, (upper, lower) = pyplot.subplots(
            2, 1, sharex=True, height_ratios=(3, 2), figsize=(COLUMN, _HEIGHT), layout="constrained"
        )
        if bounds is None and not _has_shares(run):
            paths(run, lower)
        else:
            norms(run, lower, bounds=bounds)
        draw_loss(upper, record, label_steps=False)
        # The two are recorded at steps of their own: one axis for all of them.
        kept = () if isinstance(run, TrainingRecord) else run.snapshots
        both = sorted({*record.at, *(snapshot.at for snapshot in kept)})
        set_steps(upper, told_in(record), both, spread=loss_picture(record).spread, label=False)
        upper.tick_params(labelbottom=False)
        return upper, lower


def rates_figure(rows: Sequence[tuple[str, TrainingRecord]]) -> Figure:
    """Return the overview of runs: predicted against measured rates, a row a run, per step and per time apart.

    Args:
        rows: Pairs (name, record), each with a rate.

    Raises:
        MissingPlotsError: matplotlib is not installed.
    """
    with paper_style():
        from matplotlib.figure import Figure

        figure, groups = Figure(layout="constrained"), by_unit(rows)
        for panel, group in zip(rates_panels(figure, groups), groups, strict=True):
            draw_rates(panel, group)
        return figure


def save_figure(figure: Figure, stem: Path, formats: Iterable[str], *, creator: str | None = None) -> list[Path]:
    """Write a figure as `stem.pdf` and so on; the files carry no date and no random ids.

    Each is replaced whole, and never written through a link.

    Args:
        figure: The figure.
        stem: Path without ending; the folder must exist.
        formats: Endings, among pdf, png, svg.
        creator: What the files say that they were made by; left out: matplotlib.

    Returns:
        The files.

    Raises:
        OSError: A file cannot be written.
    """
    files = []
    with paper_style(), warnings.catch_warnings():
        # A title may use any script; what the fonts lack is drawn as a box, which is no reason to print a warning.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font", category=UserWarning)
        for ending in formats:
            file = stem.with_name(f"{stem.name}.{ending}")
            content = io.BytesIO()
            made_by = {} if creator is None else {_CREATOR[ending]: creator}
            figure.savefig(content, format=ending, metadata=_UNDATED[ending] | made_by)
            write_whole(file, content.getvalue())
            files.append(file)
    return files


def file_stem(*parts: str) -> str:
    """Return a file name without ending, of letters, digits, dots, hyphens.

    Example:
        >>> file_stem("R.T4.4", "scaled lecun", "3", "run")
        'R.T4.4-scaled-lecun-3-run'
    """
    return "-".join(re.sub(r"[^A-Za-z0-9._-]+", "-", part).strip("-.") or "run" for part in parts)[:120]


def _has_shares(run: Drawable) -> bool:
    return isinstance(run, TrainingRecord) and any(curve.drawable for curve in share_curves(run))
