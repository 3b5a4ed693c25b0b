"""Figures of training runs, landscapes and trajectories, for a notebook and for the command `convergence-figures`.

Every function takes what is drawn (a `TrainingRun` or a `TrainingRecord`, a `Landscape`, a `Trajectory`), draws into
`ax` or into a new figure, and returns the axes. None shows a window or changes a setting of matplotlib.
"""

from ntk_deq.plots.convergence import convergence, norms
from ntk_deq.plots.figure import plot_run, rates, rates_figure, run_figure, save_figure
from ntk_deq.plots.landscapes import landscape, trajectories
from ntk_deq.plots.panels import paths
from ntk_deq.plots.style import MissingPlotsError

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
