"""How every figure looks: fonts, colours, line widths; set for one figure at a time, never for the whole process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ntk_deq.errors import NtkDeqError
from ntk_deq.extras import install_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMN = 85 / 25.4
"""Width of a figure in inches: 85 mm, one column of a two-column paper."""

INK = "#1a1a1a"
SOFT = "#5c5c5c"
FAINT = "#b5b5b5"
MEASURED = "#0b4a8f"
BOUND = "#c2410c"
BOUND_DASHES: Any = (0, (4, 2))

# Any two differ by a Delta E of 15 at least, in simulated deuteranopia and protanopia too, and from `BOUND`, `INK` and
# white; the dashes tell the lines apart on a black-and-white print.
SERIES: tuple[tuple[str, Any], ...] = (
    (MEASURED, "-"),
    ("#b8963c", (0, (5, 1.4))),
    ("#00806c", (0, (1.2, 1.2))),
    ("#7b5cf0", (0, (6, 1.2, 1.2, 1.2))),
    ("#74bdf0", "-"),
    ("#8cc98c", (0, (3, 1, 1, 1, 1, 1))),
)


def series(number: int) -> tuple[str, Any]:
    """Return the colour and the dashes of a curve; beyond the last colour they come again with other dashes."""
    again, place = divmod(number, len(SERIES))
    return SERIES[place][0], SERIES[(place + again) % len(SERIES)][1]


_SETTINGS: Any = {
    # STIX comes with matplotlib, so that a figure looks the same everywhere, and sits well in a paper's text.
    "font.family": ["STIXGeneral", "DejaVu Sans"],
    "mathtext.fontset": "stix",
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "xtick.minor.width": 0.35,
    "ytick.minor.width": 0.35,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.4,
    "ytick.minor.size": 1.4,
    "axes.labelpad": 2.5,
    "lines.linewidth": 1.1,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "axes.grid": False,
    "legend.frameon": False,
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.02,
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    # Two runs must write the same bytes: no random ids in SVG.
    "svg.hashsalt": "ntk_deq",
    "savefig.dpi": 200,
}


class MissingPlotsError(NtkDeqError, ImportError):
    """matplotlib is not installed."""


@contextmanager
def paper_style() -> Iterator[None]:
    """Set the look for the figures drawn inside, and put everything back afterwards.

    Raises:
        MissingPlotsError: matplotlib is not installed; says how to install it.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise MissingPlotsError(
            f"Figures need matplotlib, which is not installed. Install it with `{install_line('plots')}`."
        ) from error
    with matplotlib.rc_context(_SETTINGS):
        yield


def axes_or_new(ax: Axes | None, *, height: float) -> Axes:
    """Return `ax`, or the axes of a new figure of one column, which a notebook shows at the end of its cell."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    _, new = pyplot.subplots(figsize=(COLUMN, height), layout="constrained")
    return new
