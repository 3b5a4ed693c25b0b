"""Solver trajectories along the principal components of each class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ntk_deq.errors import ArgumentError
from ntk_deq.plots.panels import remarks_above
from ntk_deq.plots.style import COLUMN, SOFT, paper_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ntk_deq.quantities.trajectories import Trajectory

_PANEL = 1.7
_ACROSS = 3


def trajectories(found: Trajectory, ax: Axes | Sequence[Axes] | None = None) -> tuple[Axes, ...]:
    """Draw the trajectories of each class along its first two components, with the variance that they explain.

    A ring is where a sample starts, a dot where it ends.

    Args:
        found: A `Trajectory`.
        ax: As many axes as there are classes; None: a new figure.

    Returns:
        The axes, one a class.

    Raises:
        MissingPlotsError: matplotlib is not installed.
        ArgumentError: `found` is no trajectory, or there are not as many axes as classes.

    Example:
        >>> from ntk_deq import plots
        >>> panels = plots.trajectories(found)  # doctest: +SKIP
    """
    import numpy as np

    from ntk_deq.quantities.trajectories import Trajectory

    if not isinstance(found, Trajectory):
        raise ArgumentError(f"`found` must be a Trajectory. Got {type(found).__name__}.")
    count = len(found.classes)
    with paper_style():
        if ax is None:
            from matplotlib import pyplot

            across = min(count, _ACROSS)
            down = -(-count // across)
            _, grid = pyplot.subplots(
                down, across, squeeze=False, layout="constrained", figsize=(max(COLUMN, _PANEL * across), _PANEL * down)
            )
            every = grid.ravel()
            for unused in every[count:]:
                unused.set_axis_off()
            panels = tuple(every[:count])
        else:
            panels = tuple(ax) if isinstance(ax, Sequence | np.ndarray) else (ax,)
        if len(panels) != count:
            raise ArgumentError(f"`ax` of trajectories must be {count} axes, one a class. Got {len(panels)}.")
        for number, (panel, label) in enumerate(zip(panels, found.classes, strict=True)):
            rows = found.coordinates(label).numpy()
            rows = rows if rows.shape[2] > 1 else np.concatenate([rows, np.zeros_like(rows)], axis=2)
            draw_class(panel, rows[..., :2], found.classes[label].explained, name=str(label), number=number)
        return panels


def draw_class(ax: Any, rows: Any, explained: Sequence[float], *, name: str, number: int = 0) -> None:
    """Draw the trajectories of one class into `ax`; the look is the caller's.

    Args:
        ax: The axes.
        rows: Steps x samples x 2.
        explained: Shares of the variance.
        name: Of the class.
        number: Which colour.
    """
    import seaborn

    color = seaborn.color_palette("deep")[number % 10]
    ax.plot(rows[..., 0], rows[..., 1], color=color, linewidth=0.6, alpha=0.6)
    ax.plot(rows[0, :, 0], rows[0, :, 1], "o", markerfacecolor="white", markeredgecolor=color, markersize=3.0)
    ax.plot(rows[-1, :, 0], rows[-1, :, 1], "o", color=color, markersize=2.6)
    shares = [*explained, 0.0, 0.0]
    ax.set_xlabel(f"first ({100 * shares[0]:.0f} %)")
    ax.set_ylabel(f"second ({100 * shares[1]:.0f} %)")
    ax.margins(0.08)
    remarks_above(ax, [f"class {name}"], color=SOFT)
