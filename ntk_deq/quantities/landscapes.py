"""The loss around a model, along a line or on a plane of parameters, and how wide its low neighbourhood is.

Random directions are scaled to the model's own weights, filter by filter or parameter by parameter, so that the same
coordinate means the same relative change for every network (Li et al., 2018). Principal directions are those of a path
of parameters. What is drawn at the centre is the loss of the model itself.

References:
    Li, Xu, Taylor, Studer and Goldstein (2018), arXiv:1712.09913, sections 4 and 7; Goodfellow, Vinyals and Saxe
    (2015), arXiv:1412.6544.
"""

from __future__ import annotations

import importlib
import math
import multiprocessing
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

import torch
from jaxtyping import Float
from scipy.optimize import brentq
from torch import Tensor

from ntk_deq.errors import ArgumentError, NtkDeqError, check_whole, is_number
from ntk_deq.quantities.objective import (
    Loss,
    Normalisation,
    Objective,
    Values,
    cosine,
    moved,
    principal,
    projected,
    random_direction,
    walked_values,
)

Progress = Callable[[int, int], None]
"""Told how many points are done, and of how many."""


@dataclass(frozen=True, eq=False, repr=False)
class Landscape:
    """The loss at points of a line or plane through a model's parameters.

    Attributes:
        at: The coordinates along each direction, one or two rows of them; 0 is among them and is the model.
        loss: The loss at each point, first direction first; NaN where an equilibrium was not found, or where it is not
            finite.
        directions: The one or two directions, by name of the parameter.
        kind: `random` or `pca`.
        normalisation: How random directions were scaled; None: principal ones, of norm one.
        centre: The loss at the model, evaluated once more on its own; the grid's centre is equal to it.
        cosine: Of the angle between the two directions; 0 for a line.
        unsolved: Points at which an equilibrium was not found.
        path: Coordinates of a path of parameters, where one was given, one point a row.
        off_plane: Distance of each of its points from the line or plane, relative to the furthest point's distance from
            the model; what a drawing of the path does not show.
        explained: Share of the path's squared distances from the model that each direction explains.
    """

    at: tuple[Float[Tensor, " n"], ...]
    loss: Float[Tensor, "n ..."]
    directions: tuple[dict[str, Tensor], ...]
    kind: str
    normalisation: Normalisation | None
    centre: float
    cosine: float
    unsolved: int
    path: Float[Tensor, "T k"] | None = None
    off_plane: Float[Tensor, " T"] | None = None
    explained: tuple[float, ...] = ()

    def plot(self, kind: str = "contour", ax: Any = None) -> Any:
        """Draw the loss.

        Args:
            kind: `contour` or `surface`, of a plane; a line is a curve either way.
            ax: Where to draw; None: a new figure.
        """
        # Plots lie above this layer, so that they are imported by name, and only when asked for.
        return importlib.import_module("ntk_deq.plots").landscape(self, ax, kind=kind)

    def __repr__(self) -> str:
        shape = " x ".join(str(len(row)) for row in self.at)
        scaled = "" if self.normalisation is None else f", {self.normalisation.value}-wise"
        seen = self.loss[torch.isfinite(self.loss)]
        rows = [
            f"Landscape of {shape} points, {self.kind} directions{scaled}",
            f"  loss: {self.centre:.6g} at the centre"
            + (f", {float(seen.min()):.6g} to {float(seen.max()):.6g}" if len(seen) else ""),
        ]
        if self.unsolved:
            rows.append(f"  equilibrium not found at {self.unsolved} points")
        if self.off_plane is not None:
            share = ", ".join(f"{100 * part:.3g} %" for part in self.explained)
            rows.append(f"  path: at most {float(self.off_plane.max()):.3g} of its reach off; explained {share}")
        return "\n".join(rows)


def landscape(
    model: Any,
    X: Tensor | None = None,
    y: Tensor | None = None,
    *,
    loss: Loss | None = None,
    dimensions: int = 2,
    points: int = 51,
    reach: float | None = None,
    normalisation: str | Normalisation = Normalisation.FILTER,
    path: Iterable[Mapping[str, Tensor]] | None = None,
    generator: torch.Generator | None = None,
    chunk: int | None = None,
    workers: int = 1,
    progress: Progress | None = None,
    solver: Any = "anderson",
    rtol: float = 1e-6,
    max_steps: int = 500,
    unsolved: str = "gap",
) -> Landscape:
    """Evaluate the loss on a line or plane through a model's parameters.

    Without `path` the directions are Gaussian, scaled by `normalisation`. With it they are the principal directions of
    the path's differences from the model, of norm one.

    Args:
        model: An equilibrium model, or a `torch.nn.Module`, whose training mode is left as it is.
        X: Inputs, as the model declares them; of a module, what it is called with.
        y: Targets.
        loss: A function of predictions and targets; None: the loss that the model declares. A module needs one.
        dimensions: 1 or 2.
        points: Along each direction, odd, so that the model is one of them.
        reach: The largest coordinate; None: 1 for random directions, a tenth beyond the path for principal ones.
        normalisation: `filter`, `parameter` or `none`.
        path: Parameters along a path, as `[s.parameters for s in run.snapshots]`; parameters left out stay.
        generator: Of the random directions.
        chunk: Samples evaluated at a time; None: all.
        workers: Processes that share the points, each of one thread; more than one on Linux and the CPU only.
        progress: Called after each point with the number done and the number of all.
        solver: As in `solve_equilibrium`.
        rtol: Likewise.
        max_steps: Likewise.
        unsolved: What a point is where a sample is not solved by then: `gap`, it has no loss; `last`, the loss is that
            of the states at which the solver ends, as where the number of steps is a part of the network.

    Raises:
        ArgumentError: An argument is out of range, or the loss at the model depends on more than its parameters
            (dropout or batch norm in training mode).
        EquilibriumError: The equilibrium at the model itself is not found.

    Example:
        >>> from ntk_deq.systems import ImplicitReLU
        >>> generator = torch.Generator().manual_seed(0)
        >>> model = ImplicitReLU.random(d=3, m=4, generator=generator)
        >>> X, y = torch.eye(3).double(), torch.ones(3).double()
        >>> found = landscape(model, X, y, points=5, generator=generator)
        >>> tuple(found.loss.shape), bool(found.loss[2, 2] == found.centre)
        ((5, 5), True)
    """
    where = "landscape"
    _check_counts(dimensions, points, reach, workers)
    scaled = _normalisation(normalisation)
    options = {"solver": solver, "rtol": rtol, "max_steps": max_steps, "unsolved": unsolved}
    objective = Objective.of(model, X, y, loss=loss, chunk=chunk, where=where, **options)
    values = objective.parameters
    if workers > 1 and any(value.device.type != "cpu" for value in values.values()):
        raise ArgumentError(f"`workers` of landscape must be 1 on a GPU. Got {workers}.")
    threads = 1 if workers > 1 else torch.get_num_threads()
    with _threads(threads):
        centre = objective.centre()
    walked = None if path is None else walked_values(values, path)
    explained: tuple[float, ...] = ()
    if walked is None:
        directions = tuple(random_direction(values, scaled, generator) for _ in range(dimensions))
    else:
        directions, explained = principal(values, walked, dimensions)
    coordinates, off = (None, None) if walked is None else projected(walked, directions)
    if reach is None:
        reach = 1.0 if coordinates is None else 1.1 * float(coordinates.abs().max())
    half = (points - 1) // 2
    line = torch.arange(-half, half + 1, dtype=torch.float64) * (reach / half)
    places = torch.cartesian_prod(*[line] * dimensions).reshape(points**dimensions, dimensions).tolist()

    def at(number: int) -> tuple[float, bool]:
        before = len(objective.failed)
        return objective.at(moved(values, directions, places[number])), len(objective.failed) > before

    with _threads(threads):
        found = _evaluated(at, len(places), workers, progress)
    surface = torch.tensor([value for value, _ in found], dtype=torch.float64).reshape([points] * dimensions)
    return Landscape(
        at=(line,) * dimensions,
        loss=surface,
        directions=directions,
        kind="random" if walked is None else "pca",
        normalisation=scaled if walked is None else None,
        centre=centre,
        cosine=cosine(*directions) if dimensions == 2 else 0.0,
        unsolved=sum(lost for _, lost in found),
        path=coordinates,
        off_plane=off,
        explained=explained,
    )


def _evaluated(
    at: Callable[[int], tuple[float, bool]], count: int, workers: int, progress: Progress | None
) -> list[tuple[float, bool]]:
    """Return what `at` says of each number below `count`, in order; with more workers, by copies of this process."""
    found: dict[int, tuple[float, bool]] = {}

    def keep(number: int, value: tuple[float, bool]) -> None:
        found[number] = value
        if progress is not None:
            progress(len(found), count)

    if workers == 1:
        for number in range(count):
            keep(number, at(number))
        return [found[number] for number in range(count)]
    copies, ends, works = multiprocessing.get_context("fork"), list[Any](), list[Any]()
    try:
        for first in range(workers):
            ours, theirs = copies.Pipe(duplex=False)
            works.append(copies.Process(target=_share, args=(at, range(first, count, workers), theirs), daemon=True))
            with warnings.catch_warnings():
                # Python 3.12 and later warn of other threads, which the copies do without.
                warnings.simplefilter("ignore", DeprecationWarning)
                works[-1].start()
            theirs.close()
            ends.append(ours)
        while ends:
            for ours in list[Any](connection.wait(ends)):
                try:
                    answer = ours.recv()
                except EOFError:
                    ends.remove(ours)
                    continue
                if isinstance(answer, str):
                    raise NtkDeqError(f"A worker of landscape failed: {answer}")
                keep(*answer)
    finally:
        for work in works:
            work.kill()
            work.join()
    if len(found) < count:
        raise NtkDeqError(f"A worker of landscape was ended from outside, with {len(found)} of {count} points done.")
    return [found[number] for number in range(count)]


def _share(at: Callable[[int], tuple[float, bool]], numbers: Iterable[int], end: Any) -> None:
    """Answer for some of the numbers, in a process of its own."""
    try:
        for number in numbers:
            end.send((number, at(number)))
    except Exception as error:  # the boundary: an error of the caller's own need not survive the way as such
        end.send(f"{type(error).__name__}: {error}")


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Have products take so many threads: a copy of a process has none of the others, and the centre is to agree."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True, eq=False, repr=False)
class NeighbourhoodWidth:
    """How far from a model the loss stays low, along random lines through it.

    Attributes:
        widths: Of each direction, the length of the interval around the model on which the loss stays at most `rise`
            above its value there; in units in which the direction is as long as the model's own weights.
        rise: As given.
        reach: As given.
        capped: Directions whose interval reaches beyond `reach` on a side, where it is cut.
        unsolved: Directions that end where an equilibrium was not found; none where the last states count.
    """

    widths: Float[Tensor, " n"]
    rise: float
    reach: float
    capped: int
    unsolved: int

    @property
    def mean(self) -> float:
        """The mean over the directions."""
        return float(self.widths.mean())

    @property
    def spread(self) -> float:
        """The standard deviation over the directions; NaN for a single one."""
        return float(self.widths.std()) if len(self.widths) > 1 else math.nan

    def __repr__(self) -> str:
        ends = f"; {self.capped} cut at {self.reach:g}" if self.capped else ""
        ends += f"; {self.unsolved} end without an equilibrium" if self.unsolved else ""
        over = f"over {len(self.widths)} directions, rise {self.rise:g}"
        return f"NeighbourhoodWidth({self.mean:.4g} +- {self.spread:.2g} {over}{ends})"


def neighbourhood_width(
    model: Any,
    X: Tensor | None = None,
    y: Tensor | None = None,
    *,
    rise: float,
    loss: Loss | None = None,
    directions: int = 16,
    reach: float = 2.0,
    resolution: int = 20,
    normalisation: str | Normalisation = Normalisation.FILTER,
    generator: torch.Generator | None = None,
    chunk: int | None = None,
    progress: Progress | None = None,
    solver: Any = "anderson",
    rtol: float = 1e-6,
    max_steps: int = 500,
    unsolved: str = "gap",
) -> NeighbourhoodWidth:
    """Measure the width of the low-loss neighbourhood of a model along random directions.

    On each side of the model the first of `resolution` places where the loss is more than `rise` above the model's is
    found, and the crossing before it by Brent's method, to a hundredth of the distance between places.

    Args:
        model: As in `landscape`.
        X: Likewise.
        y: Likewise.
        rise: How far the loss may rise, > 0.
        loss: As in `landscape`.
        directions: How many, >= 1.
        reach: How far to look, > 0.
        resolution: Places on each side, >= 1.
        normalisation: As in `landscape`.
        generator: Likewise.
        chunk: Likewise.
        progress: Called after each direction.
        solver: As in `landscape`.
        rtol: Likewise.
        max_steps: Likewise.
        unsolved: Likewise.

    Raises:
        ArgumentError: As in `landscape`.
        EquilibriumError: Likewise.

    Example:
        >>> from ntk_deq.systems import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> model = LinearImplicit(W=0 * one, U=one, b=one[0])  # the loss is (u b x - y)^2/2
        >>> generator = torch.Generator().manual_seed(0)
        >>> found = neighbourhood_width(model, one, one[0], rise=0.4, directions=3, generator=generator)
        >>> [round(width, 2) for width in found.widths.tolist()]  # u b = (1 + t)^2 or 1 - t^2, at most sqrt(0.8) off
        [1.05, 1.05, 1.89]
    """
    where = "neighbourhood_width"
    for name, number in (("rise", rise), ("reach", reach)):
        if not (is_number(number) and 0 < number < math.inf):
            raise ArgumentError(f"`{name}` of {where} must be a finite number > 0. Got {number!r}.")
    check_whole(directions, "directions", where)
    check_whole(resolution, "resolution", where)
    scaled = _normalisation(normalisation)
    options = {"solver": solver, "rtol": rtol, "max_steps": max_steps, "unsolved": unsolved}
    objective = Objective.of(model, X, y, loss=loss, chunk=chunk, where=where, **options)
    values, limit = objective.parameters, objective.centre() + rise
    widths, capped, lost = list[float](), 0, 0
    for number in range(directions):
        direction = random_direction(values, scaled, generator)
        ends = [_edge(objective, values, direction, sign * reach / resolution, resolution, limit) for sign in (1, -1)]
        widths.append(sum(distance for distance, _ in ends))
        capped += any(reason == "capped" for _, reason in ends)
        lost += any(reason == "unsolved" for _, reason in ends)
        if progress is not None:
            progress(number + 1, directions)
    return NeighbourhoodWidth(torch.tensor(widths, dtype=torch.float64), float(rise), float(reach), capped, lost)


def _edge(
    objective: Objective, values: Values, direction: Values, stride: float, count: int, limit: float
) -> tuple[float, str]:
    """Return the distance at which the loss first crosses the limit on one side, and what ends it there."""

    def above(place: float) -> float:
        return objective.at(moved(values, (direction,), (place,))) - limit

    for step in range(1, count + 1):
        gap = above(step * stride)
        if math.isnan(gap):
            return abs((step - 1) * stride), "unsolved"
        if gap > 0:
            ends = sorted(((step - 1) * stride, step * stride))
            seen = {step * stride: gap} | ({0.0: -1.0} if step == 1 else {})

            def crossing(place: float, seen: dict[float, float] = seen) -> float:
                gap = seen.get(place)
                gap = above(place) if gap is None else gap
                return math.inf if math.isnan(gap) else gap

            return abs(float(brentq(crossing, *ends, xtol=abs(stride) / 100))), "crossed"
    return abs(count * stride), "capped"


def _normalisation(given: str | Normalisation) -> Normalisation:
    names = [each.value for each in Normalisation]
    if given not in names:
        raise ArgumentError(f"`normalisation` of a landscape must be among {', '.join(names)}. Got {given!r}.")
    return Normalisation(given)


def _check_counts(dimensions: int, points: int, reach: float | None, workers: int) -> None:
    check_whole(workers, "workers", "landscape")
    if workers > 1 and sys.platform != "linux":
        raise ArgumentError(f"`workers` of landscape must be 1 on systems other than Linux. Got {workers}.")
    if isinstance(dimensions, bool) or not isinstance(dimensions, int) or dimensions not in (1, 2):
        raise ArgumentError(f"`dimensions` of landscape must be 1 or 2. Got {dimensions!r}.")
    if isinstance(points, bool) or not isinstance(points, int) or points < 3 or points % 2 == 0:
        raise ArgumentError(f"`points` of landscape must be an odd integer >= 3. Got {points!r}.")
    if reach is not None and not (is_number(reach) and 0 < reach < math.inf):
        raise ArgumentError(f"`reach` of landscape must be a finite number > 0 or None. Got {reach!r}.")
