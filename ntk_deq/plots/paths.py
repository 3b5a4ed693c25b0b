"""How far a run moves: the length of its path and the distance of each parameter from its start."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ntk_deq.plots.labels import parameter_symbol
from ntk_deq.plots.panels import EndLabel, draw_curve, label_ends, set_steps
from ntk_deq.plots.source import Drawable, column, training_run
from ntk_deq.plots.style import INK, axes_or_new, paper_style, series
from ntk_deq.report.run_curves import are_spread, index_letter
from ntk_deq.verify.training_records import TrainingRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ntk_deq.dynamics.record import TrainingRun

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
        set_steps(ax, "t" if trained.step is None else "k", at, spread=are_spread(at))
        first = trained.snapshots[0].path_length  # of a slice, whose parameters start where it starts
        length = tuple(snapshot.path_length - first for snapshot in trained.snapshots)
        _draw(ax, at, length, _displacements(trained))
        return ax


def draw_paths(ax: Axes, record: TrainingRecord) -> None:
    """Draw the panel of distances of a record into `ax`; the look is the caller's."""
    set_steps(ax, index_letter(record), record.at, spread=are_spread(record.at))
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
