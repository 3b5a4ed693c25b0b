"""Figures of training runs, for a notebook and for the command `convergence-figures`; they need the extra `plots`.

Every function takes a `TrainingRun` or a `TrainingRecord`, draws into `ax` or into a new figure, and returns the axes.
None shows a window or changes a setting of matplotlib.
"""

from ntk_deq.plots.convergence import convergence
from ntk_deq.plots.figure import plot_run, rates_figure, run_figure, save_figure
from ntk_deq.plots.norms import norms
from ntk_deq.plots.panels import paths
from ntk_deq.plots.rates import rates
from ntk_deq.plots.style import MissingPlotsError

__all__ = [
    "MissingPlotsError",
    "convergence",
    "norms",
    "paths",
    "plot_run",
    "rates",
    "rates_figure",
    "run_figure",
    "save_figure",
]
