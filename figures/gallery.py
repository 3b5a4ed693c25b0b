"""The gallery: figures over the results stored below checks/results, and of runs that are worked out in a moment.

    python -m figures.gallery [NAME ...] [--out docs/gallery]

NAME is one of the functions here: residuals, trajectories, landscapes, widths, solvers, rates. Each takes what it draws
from the files alone, but for `rates`, whose runs are those of two small problems with the rates that theorems state.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import seaborn
from matplotlib.figure import Figure
from PIL import Image

from ntk_deq.files.results import read_results
from ntk_deq.plots.landscapes import draw_class, draw_plane
from ntk_deq.plots.panels import EndLabel, label_ends
from ntk_deq.plots.style import COLUMN, INK, SOFT, paper_style

RESULTS = Path("checks/results")
NETS = {"6": "6 repeats", "11": "11 repeats", "18": "18 repeats", "deq": "equilibrium"}


def _digits() -> dict[str, Any]:
    return read_results(RESULTS / "deq_digits.json").values


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def residuals() -> Figure:
    """M.E1: relative residual per solver step, for small and for N(0, 1) initial weights; bands over the seeds."""
    values, palette = _digits(), seaborn.color_palette("deep")
    figure = _figure(1.9 * COLUMN, 2.4)
    panels = figure.subplots(1, 2, sharey=True)
    every = []
    for ax, solver in zip(panels, ("picard", "anderson"), strict=True):
        labels: list[EndLabel] = []
        for number, (name, text) in enumerate((("small", "sd 0.01"), ("large", "sd 1"))):
            curves = np.array(values[f"{solver}_curve_{name}"])
            steps = np.tile(np.arange(curves.shape[1]), len(curves))
            seaborn.lineplot(
                x=steps, y=curves.ravel(), ax=ax, color=palette[number], errorbar=("pi", 100), linewidth=1.1
            )
            labels.append(EndLabel.of(text, np.exp(np.log(curves).mean(axis=0)).tolist(), palette[number]))
        ax.set(yscale="log", xlabel="solver step", ylabel=r"relative residual $\Vert f(z) - z\Vert/\Vert f(z)\Vert$")
        ax.set_xlim(0, curves.shape[1] - 1)
        ax.set_title(solver.capitalize(), loc="left", color=SOFT)
        every.append(labels)
    figure.draw_without_rendering()  # labels stand where the ends lie once both panels have their common axis
    for ax, labels in zip(panels, every, strict=True):
        label_ends(ax, labels)
    return figure


def trajectories() -> Figure:
    """M.E2: trajectories of Picard's iteration along the components of their class, before and after training."""
    values = _digits()
    classes = values["path_labels"]
    figure = _figure(1.9 * COLUMN, 3.6)
    grid = figure.subplots(2, len(classes), squeeze=False)
    for row, name in zip(grid, ("before", "after"), strict=True):
        for number, (ax, label) in enumerate(zip(row, classes, strict=True)):
            rows = np.array(values[f"path_{name}_{label}"])
            draw_class(ax, rows, values[f"explained_{name}_{label}"], name=f"{label}, {name} training", number=number)
    return figure


def landscapes() -> Figure:
    """M.E3: the loss on a filter-wise plane, of weight-tied networks and of the equilibrium; one scale of colours."""
    values = _digits()
    figure = _figure(1.9 * COLUMN, 4.6)
    at = np.array(values["plane_at"])
    planes = {key: np.array(values[f"plane_{key}"], dtype=float) for key in NETS}
    limits = (min(map(np.nanmin, planes.values())), max(map(np.nanmax, planes.values())))
    for ax, (key, name) in zip(figure.subplots(2, 2).ravel(), NETS.items(), strict=True):
        draw_plane(ax, at, at, planes[key], limits=limits)
        ax.set_title(name, loc="left", color=SOFT)
        ax.set(xlabel="first direction", ylabel="second direction")
    return figure


def surface() -> Figure:
    """M.E3: the loss of the equilibrium network as a surface."""
    values = _digits()
    figure = Figure(figsize=(1.2 * COLUMN, 3.2))
    ax = figure.add_axes((0.0, 0.02, 0.92, 0.96), projection="3d")
    at = np.array(values["plane_at"])
    draw_plane(ax, at, at, np.array(values["plane_deq"], dtype=float), kind="surface")
    ax.set(xlabel="first direction", ylabel="second direction")
    return figure


def widths() -> Figure:
    """M.E3: the width of the low neighbourhood, a dot a direction, and its mean for each seed."""
    values = _digits()
    figure = _figure(COLUMN, 2.4)
    ax = figure.subplots()
    groups = {name: np.array(values[f"widths_{key}"]) for key, name in NETS.items()}
    jitter = np.random.default_rng(0)
    for place, rows in enumerate(groups.values()):
        at = place + jitter.uniform(-0.16, 0.16, rows.size)
        ax.plot(at, rows.ravel(), "o", markersize=2.6, color="#9db4c0", markeredgewidth=0, zorder=1)
    means = np.concatenate([rows.mean(axis=1) for rows in groups.values()])
    seeds = [name for name, rows in groups.items() for _ in range(len(rows))]
    seaborn.pointplot(x=seeds, y=means, ax=ax, color=INK, errorbar=("pi", 100), markersize=4, linewidth=1.0, zorder=3)
    ax.set(xlabel="", ylabel="width of the neighbourhood")
    ax.set_ylim(0)
    return figure


def solvers() -> Figure:
    """M.FBPR: steps and processor time to a relative tolerance of 1e-6 over L/m, for monotone layers."""
    values = read_results(RESULTS / "solver_comparison.json").values
    names = ("picard", "damped", "anderson", "forward-backward", "peaceman-rachford")
    palette, marks = seaborn.color_palette("deep"), "osD^v"
    figure = _figure(1.9 * COLUMN, 2.7)
    panels = figure.subplots(1, 2)
    ratio = (np.array(values["lengths"]) / np.array(values["moduli"])[:, None, None]).ravel()
    for ax, kind, label in zip(panels, ("steps", "seconds"), ("steps", "processor time in s"), strict=True):
        for number, name in enumerate(names):
            found = np.array(values[f"{kind}_{name.replace('-', '_')}"], dtype=float).ravel()
            ax.plot(ratio, found, marks[number], color=palette[number], markersize=4, alpha=0.85, label=name)
        ax.set(xscale="log", yscale="log", xlabel=r"$L/m$", ylabel=label)
        ax.set_xticks([1, 3, 10, 30], ["1", "3", "10", "30"])
        ax.xaxis.minorticks_off()
        seaborn.despine(ax=ax)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=5, fontsize=7.0)
    return figure


def rates() -> Figure:
    """Convergence of parts R and M: the loss along a run on a logarithmic axis, a straight line, beside its bound."""
    import torch

    import ntk_deq as nd
    from ntk_deq import plots

    generator = torch.Generator().manual_seed(3)
    figure = _figure(1.9 * COLUMN, 2.6)
    panels = figure.subplots(1, 2)
    model = nd.ImplicitReLU.random(d=4, m=64, generator=generator)
    X = torch.nn.functional.normalize(torch.randn(5, 4, generator=generator, dtype=torch.float64), dim=1)
    y = torch.randn(5, generator=generator, dtype=torch.float64)
    step = 0.5 / float(nd.lambda_max(nd.ntk_gram(model, X)))
    run = nd.train(model, X, y, step=step, steps=400, progress=False)
    plots.convergence(run, panels[0])
    Q, _ = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=torch.float64))
    A = Q @ torch.diag(torch.linspace(1.0, 10.0, 6, dtype=torch.float64).sqrt()) @ Q.T
    x, losses = torch.ones(6, dtype=torch.float64), []
    for _ in range(61):
        losses.append(float((A @ x).square().sum() / 2))
        x = x - A.T @ (A @ x) / 10.0
    ax, palette = panels[1], seaborn.color_palette("deep")
    bound = [losses[0] * (1 - 1.0 / 10.0) ** k for k in range(61)]
    ax.plot(losses, color=palette[0])
    ax.plot(bound, color=palette[3], linestyle=(0, (4, 2)), linewidth=1.0)
    ax.set(yscale="log", xlabel="step $k$", ylabel=r"$f - f^\star$", xlim=(0, 60))
    ax.set_title(r"strongly convex quadratic, bound $(1 - \mu/L)^k$", loc="left", color=SOFT, fontsize=6.8)
    figure.draw_without_rendering()
    label_ends(ax, [EndLabel.of("measured", losses, palette[0]), EndLabel.of("bound", bound, palette[3], (0, (4, 2)))])
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    each.__name__: each for each in (residuals, trajectories, landscapes, surface, widths, solvers, rates)
}


def main() -> int:
    """Draw the figures that are named, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*FIGURES, []], metavar="NAME", help=", ".join(FIGURES))
    parser.add_argument("--out", default="docs/gallery")
    given = parser.parse_args()
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    mpl.use("Agg")
    for name in given.names or FIGURES:
        with paper_style():
            file = out / f"{name}.png"
            content = io.BytesIO()
            FIGURES[name]().savefig(content, dpi=120, metadata={"Software": "ntk_deq figures.gallery"})
            # A palette of its own: a third of the size, and nothing that an eye would see.
            Image.open(content).convert("RGB").quantize(96).save(file, optimize=True)
        print(f"{file}: {file.stat().st_size // 1024} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
