"""The way of a solver to the equilibrium: residuals, lengths of paths, and how many directions they take.

What "longer" and "more complex" mean of trajectories is said in numbers here: the length of the path, and the number of
principal components that carry it, (sum s)^2/sum s^2 with s the variances along them.

References:
    Bai, Kolter and Koltun (2019), arXiv:1909.01377, section 5 (relative residuals); Recanatesi et al. (2022), Patterns
    3, 100555 (participation ratio).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.equilibrium.driver import row_norms
from ntk_deq.equilibrium.solvers import Solver, as_solver
from ntk_deq.equilibrium.splitting import Splitting
from ntk_deq.errors import ArgumentError, check_whole
from ntk_deq.systems.checks import check_samples
from ntk_deq.systems.model import EquilibriumModel


@dataclass(frozen=True, eq=False)
class Components:
    """Principal components of points.

    Attributes:
        mean: The mean of the points.
        axes: The components, of norm one, the first first.
        variances: The variance along every component that there is, largest first, more than there are `axes`.
    """

    mean: Float[Tensor, " m"]
    axes: Float[Tensor, "c m"]
    variances: Float[Tensor, " r"]

    @classmethod
    def of(cls, points: Float[Tensor, "n m"], count: int) -> Components:
        """Return those of points, one a row.

        Args:
            points: The points.
            count: How many axes.

        Example:
            >>> line = torch.tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]]).double()
            >>> found = Components.of(line, 1)
            >>> [round(abs(x), 12) for x in found.axes[0].tolist()], [round(x, 9) for x in found.explained]
            ([0.6, 0.8], [1.0])
        """
        mean = points.double().mean(dim=0)
        _, sizes, axes = torch.linalg.svd(points.double() - mean, full_matrices=False)
        return cls(mean, axes[:count], sizes.square() / max(len(points), 1))

    @property
    def explained(self) -> list[float]:
        """The share of the variance that each axis explains; 0 where there is none."""
        total = self.variances.sum()
        shares = self.variances / total if total > 0 else torch.zeros_like(self.variances)
        return [float(share) for share in shares[: len(self.axes)]]

    @property
    def dimension(self) -> float:
        """How many components carry the variance: (sum s)^2/sum s^2, from 1 up; 0 where all points are one."""
        squares = self.variances.square().sum()
        return float(self.variances.sum().square() / squares) if squares > 0 else 0.0

    def coordinates(self, points: Float[Tensor, "*n m"]) -> Float[Tensor, "*n c"]:
        """Return the coordinates of points along the axes."""
        return (points.double() - self.mean) @ self.axes.mT


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory:
    """The states that a solver goes through, for every sample.

    Attributes:
        states: From the start on, one sample a row.
        relative_residual: norm(f(z) - z)/norm(f(z)) at each of them, sample by sample; NaN where a state is not finite.
        labels: A class of each sample, or None.
        classes: The components of the states of each class, by its label; all samples are class "all" without labels.
        features: The components of the last states of all samples.
        solver: Its name.
    """

    states: Float[Tensor, "T N m"]
    relative_residual: Float[Tensor, "T N"]
    labels: tuple[Any, ...] | None
    classes: dict[Any, Components]
    features: Components
    solver: str

    @property
    def path_length(self) -> Float[Tensor, " N"]:
        """The length of each sample's path, the sum of its steps."""
        moves = self.states[1:] - self.states[:-1]
        return torch.linalg.vector_norm(moves.double(), dim=2).sum(dim=0)

    @property
    def detour(self) -> Float[Tensor, " N"]:
        """The length of each path over the distance between its ends; 1 is a straight line, NaN no move."""
        return self.path_length / torch.linalg.vector_norm((self.states[-1] - self.states[0]).double(), dim=1)

    @property
    def dimension(self) -> float:
        """The mean over the classes of how many components carry their trajectories."""
        return sum(each.dimension for each in self.classes.values()) / len(self.classes)

    def members(self, label: Any) -> list[int]:
        """Return the samples of a class."""
        if self.labels is None:
            return list(range(self.states.shape[1]))
        return [place for place, own in enumerate(self.labels) if own == label]

    def coordinates(self, label: Any) -> Float[Tensor, "T n c"]:
        """Return the states of a class's samples along the class's components."""
        return self.classes[label].coordinates(self.states[:, self.members(label)])

    def plot(self, ax: Any = None) -> Any:
        """Draw the trajectories of each class along its first two components.

        Args:
            ax: As many axes as there are classes; None: a new figure.
        """
        # Plots lie above this layer, so that they are imported by name, and only when asked for.
        return importlib.import_module("ntk_deq.plots").trajectories(self, ax)

    def __repr__(self) -> str:
        steps, count, _ = self.states.shape
        rows = [
            f"Trajectory of {count} samples over {steps - 1} steps, solver {self.solver}",
            f"  path length: {float(self.path_length.mean()):.4g} on average; detour {float(self.detour.mean()):.4g}",
            f"  relative residual: at most {float(self.relative_residual[-1].max()):.3g} at the end",
        ]
        for label, each in self.classes.items():
            shares = ", ".join(f"{100 * share:.3g} %" for share in each.explained)
            rows.append(f"  class {label}: {each.dimension:.3g} components carry it; the first explain {shares}")
        return "\n".join(rows)


def trajectory(
    model: EquilibriumModel,
    X: Float[Tensor, "N d"],
    labels: Any = None,
    *,
    parameters: Mapping[str, Tensor] | None = None,
    steps: int = 50,
    components: int = 2,
    initial: Float[Tensor, "N m"] | None = None,
    solver: str | Solver | Splitting = "picard",
) -> Trajectory:
    """Follow a solver for a number of steps, whether it arrives or not.

    Args:
        model: An equilibrium model.
        X: Inputs, as it declares them.
        labels: The class of each sample, a sequence or tensor of whole numbers or words; None: one class.
        parameters: Values to use in place of the model's own, by name.
        steps: How many steps, >= 1.
        components: Principal components kept of each class, >= 1.
        initial: Where to start; None: the model's initial state.
        solver: As in `solve_equilibrium`.

    Raises:
        ArgumentError: An argument is out of range.

    Example:
        >>> from ntk_deq.systems import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> found = trajectory(LinearImplicit(W=one / 2, U=one, b=one[0]), one, steps=3)
        >>> found.states[:, 0, 0].tolist(), found.path_length.tolist(), found.relative_residual[:, 0].tolist()[:2]
        ([0.0, 1.0, 1.5, 1.75], [1.75], [1.0, 0.3333333333333333])
    """
    where = "trajectory"
    check_samples(model, X, where, parameters=parameters, initial=initial)
    check_whole(steps, "steps", where)
    check_whole(components, "components", where)
    samples = model.input_rows(X).shape[0]
    if not samples:
        raise ArgumentError(f"`X` of {where} must have a sample. Got none.")
    named = None if labels is None else tuple(labels.tolist() if isinstance(labels, Tensor) else labels)
    if named is not None and len(named) != samples:
        raise ArgumentError(f"`labels` of {where} must be one a sample: {samples}. Got {len(named)}.")
    method, values = as_solver(solver), {**model.parameters(), **(parameters or {})}
    with torch.no_grad():
        start = model.initial_state(X) if initial is None else initial
        states, residuals = _followed(model, X, values, method, start, steps)
    found = torch.stack(states)
    groups = {"all": list(range(samples))} if named is None else {}
    for place, label in enumerate(named or ()):
        groups.setdefault(label, []).append(place)
    # A sample whose states are not finite has no components.
    finite = torch.isfinite(found).all(dim=2).all(dim=0)
    classes = {}
    for label in sorted(groups, key=str):
        members = [place for place in groups[label] if finite[place]]
        if members:
            classes[label] = Components.of(found[:, members].flatten(0, 1), components)
    if not classes:
        raise ArgumentError(f"No sample of {where} stays finite: the states overflow within {steps} steps.")
    return Trajectory(
        found, torch.stack(residuals), named, classes, Components.of(found[-1][finite], components), method.name
    )


def _followed(
    model: EquilibriumModel,
    X: Tensor,
    values: Mapping[str, Tensor],
    method: Solver | Splitting,
    start: Tensor,
    steps: int,
) -> tuple[list[Tensor], list[Tensor]]:
    """Return states and relative residuals of the model's map, from the start on."""
    layer = model.monotone_layer(X, values) if isinstance(method, Splitting) else None
    step = model.step_at(X, values) if layer is None else layer
    states, residuals = [], []
    if isinstance(method, Splitting):
        plan = method.plan(method.layer_of(layer, start, 1))
        point = plan.start(start)
        for _ in range(steps + 1):
            states.append(plan.state(point))
            residuals.append(_relative(step(states[-1]), states[-1]))
            point = plan.step(point)
        return states, residuals
    point, state = start, method.init_state(start)
    for _ in range(steps + 1):
        image = step(point)
        states.append(point)
        residuals.append(_relative(image, point))
        point, state = method.advance(point, image, row_norms(image - point), state)
    return states, residuals


def _relative(image: Tensor, point: Tensor) -> Tensor:
    """Return norm(f(z) - z)/norm(f(z)), 0 where both are zero."""
    gap, size = row_norms(image - point), row_norms(image)
    return torch.where(gap == 0, 0.0, gap / size)
