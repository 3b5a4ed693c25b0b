"""Loss landscapes, and solver trajectories along the principal components of each class.

A plane is drawn as contours or as a surface, with a path of parameters on it; a line as a curve.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ntk_deq.errors import ArgumentError
from ntk_deq.plots.panels import remarks_above
from ntk_deq.plots.style import COLUMN, INK, MEASURED, SOFT, paper_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ntk_deq.quantities.landscapes import Landscape
    from ntk_deq.quantities.trajectories import Trajectory


_HEIGHT = 2.7
_LEVELS = 14
_KINDS = ("contour", "surface")
_OF_LOSSES = 20.0  # the ratio of largest to smallest loss from which levels are even in the logarithm


def landscape(found: Landscape, ax: Axes | None = None, *, kind: str = "contour") -> Axes:
    """Draw a landscape.

    The cross marks the model; points without an equilibrium are left white. Levels are even in the logarithm of the
    loss where it spans more than a decade. A path of parameters is drawn with how far at most it lies off the plane,
    and how much of it each direction explains.

    Args:
        found: A `Landscape`.
        ax: Where to draw, an axis in three dimensions for a surface; None: a new figure of one column.
        kind: `contour` or `surface`.

    Returns:
        The axes.

    Raises:
        MissingPlotsError: matplotlib is not installed.
        ArgumentError: `found` is no landscape, has no loss, or `kind` is unknown.

    Example:
        >>> from ntk_deq import plots
        >>> ax = plots.landscape(found, kind="surface")  # doctest: +SKIP
    """
    from ntk_deq.quantities.landscapes import Landscape

    if not isinstance(found, Landscape):
        raise ArgumentError(f"`found` must be a Landscape. Got {type(found).__name__}.")
    if kind not in _KINDS:
        raise ArgumentError(f"`kind` of a landscape must be among {', '.join(_KINDS)}. Got {kind!r}.")
    with paper_style():
        planar = len(found.at) == 2
        if ax is None:
            from matplotlib import pyplot

            look: Any = {"projection": "3d"} if planar and kind == "surface" else {}
            _, ax = pyplot.subplots(figsize=(COLUMN, _HEIGHT), layout="constrained", subplot_kw=look)
        if planar:
            draw_plane(ax, found.at[0].numpy(), found.at[1].numpy(), found.loss.numpy(), kind=kind)
            if found.path is not None and kind == "contour":
                rows = found.path.numpy()
                ax.plot(rows[:, 0], rows[:, 1], color="#ffb454", linewidth=1.1, marker="o", markersize=2.2)
        else:
            ax.plot(found.at[0], found.loss, color=MEASURED)
            ax.plot(0.0, found.centre, "+", color=INK, markersize=7.0)
            ax.set_ylabel("loss")
        _name_axes(ax, found, planar)
        return ax


def draw_plane(
    ax: Any,
    first: Any,
    second: Any,
    loss: Any,
    *,
    kind: str = "contour",
    limits: tuple[float, float] | None = None,
) -> Any:
    """Draw losses over a plane into `ax`; the look is the caller's.

    Args:
        ax: The axes.
        first: Coordinates along the first direction.
        second: Along the second.
        loss: At each point, first direction first.
        kind: `contour` or `surface`.
        limits: The losses at the ends of the colours, so that several planes have the same; None: the plane's own.

    Returns:
        What carries the colours.
    """
    import numpy as np
    import seaborn
    from matplotlib.colors import LogNorm, Normalize

    finite = loss[np.isfinite(loss)]
    if not len(finite):
        raise ArgumentError("`found` must have a loss at one point at least. Got none.")
    low, high = limits if limits is not None else (float(finite.min()), float(finite.max()))
    logarithmic = low > 0 and high > _OF_LOSSES * low
    high = high if high > low else low + 1.0
    norm = LogNorm(low, high) if logarithmic else Normalize(low, high)
    levels = np.geomspace(low, high, _LEVELS) if logarithmic else np.linspace(low, high, _LEVELS)
    colors = seaborn.color_palette("mako", as_cmap=True)
    across, up = np.meshgrid(first, second, indexing="ij")
    if kind == "surface":
        height = np.log10(loss) if logarithmic else loss
        facecolors = colors(norm(np.ma.masked_invalid(loss)))
        # Without shading, which would make one colour of two losses, and with edges in its place.
        look: dict[str, Any] = {"rstride": 1, "cstride": 1, "linewidth": 0.2, "edgecolor": "white", "shade": False}
        ax.plot_surface(across, up, height, facecolors=facecolors, antialiased=True, **look)
        ax.set_zlabel(r"$\log_{10}$ loss" if logarithmic else "loss", labelpad=-4.0)
        ax.xaxis.labelpad = ax.yaxis.labelpad = -4.0
        ax.tick_params(pad=-2.0)
        ax.locator_params(axis="both", nbins=4)
        ax.view_init(elev=32, azim=-55)
        ax.set_box_aspect(None, zoom=0.85)  # room for the labels, which no layout of matplotlib's sees
        return ax
    values = np.ma.masked_invalid(loss)
    drawn = ax.contourf(across, up, values, levels=levels, norm=norm, cmap=colors)
    ax.contour(across, up, values, levels=levels, colors="white", linewidths=0.3, alpha=0.6)
    ax.plot(0.0, 0.0, "+", color="white", markersize=7.0, markeredgewidth=1.2)
    ax.set_box_aspect(1)
    bar = ax.get_figure().colorbar(drawn, ax=ax, label="loss", fraction=0.046, pad=0.03)
    bar.outline.set_visible(False)
    if logarithmic:
        ticks = levels[:: math.ceil(_LEVELS / 5)]
        bar.set_ticks(ticks, labels=[f"{float(f'{tick:.2g}'):g}" for tick in ticks])
        bar.minorticks_off()
    return drawn


def _name_axes(ax: Any, found: Landscape, planar: bool) -> None:
    shares = [f", {100 * share:.3g} % of the path" for share in found.explained] or ["", ""]
    word = "direction" if found.kind == "random" else "component"
    ax.set_xlabel(f"first {word}{shares[0]}")
    if planar:
        ax.set_ylabel(f"second {word}{shares[1]}")
    lines = []
    if found.normalisation is not None:
        lines.append(f"random directions, {found.normalisation.value}-wise")
    if found.off_plane is not None:
        lines.append(f"path at most {float(found.off_plane.max()):.2g} of its reach off what is drawn")
    if found.unsolved:
        lines.append(f"no equilibrium at {found.unsolved} of {found.loss.numel()} points")
    remarks_above(ax, lines, color=SOFT)


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
