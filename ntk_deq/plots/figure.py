"""Whole figures and their files: the same record gives the same bytes."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ntk_deq.files.atomic import write_whole
from ntk_deq.plots.convergence import draw_loss, draw_shares, norms
from ntk_deq.plots.panels import Bound, Drawable, draw_paths, loss_record, paths, set_steps
from ntk_deq.plots.rates import by_unit, draw_rates, rates_panels
from ntk_deq.plots.style import COLUMN, escaped, fitted, paper_style, title_lines
from ntk_deq.report.console import one_line
from ntk_deq.report.runs.curves import loss_picture, share_curves, told_in
from ntk_deq.report.runs.words import method_words, run_name
from ntk_deq.verify.results import TrainingRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
        _head(figure, claim, title)
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
        both = sorted({*record.at, *_snapshot_places(run)})
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


def _snapshot_places(run: Drawable) -> list[float]:
    return [] if isinstance(run, TrainingRecord) else [snapshot.at for snapshot in run.snapshots]


def _head(figure: Figure, claim: str, title: str) -> None:
    """Write the claim's id and title above the panels."""
    lines = title_lines(one_line(f"{claim}: {title}" if title else claim), 69 * COLUMN / _TITLE_SIZE, most=_TITLE_LINES)
    figure.suptitle("\n".join(map(escaped, lines)), x=0.01, ha="left", fontsize=_TITLE_SIZE, linespacing=1.15)
