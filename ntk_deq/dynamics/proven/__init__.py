"""Bounds that are proven for runs: descent in balls, curvature, kinks; errors along recursions.

Here: the record of a certified run of descent, bounds at every step, iterates at some. descent.py makes it, from
point.py (one iterate in balls, by operations.py), curvature.py (how far a step can take two iterates apart) and
kink_jump.py (where signs are not certain); recursion.py is for recursions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from flint import arb
from jaxtyping import Float, Int
from torch import Tensor

from ntk_deq.certified.dense import Ball
from ntk_deq.certified.scalar import from_bounds
from ntk_deq.errors import ArgumentError


@dataclass(frozen=True, eq=False)
class CertifiedStep:
    """What is certain of the exact gradient descent at step k.

    Attributes:
        index: k.
        error: Bound e_k on the distance of all exact parameters together from the float ones, Frobenius.
        parameters: Balls that contain the exact parameters; a vector is a column.
        state: A ball that contains the exact equilibrium Z[k].
        residual: A ball that contains the exact yhat[k] - y, N x 1.
        loss: Lower and upper bound of L[k].
        norms: Lower and upper bound of the spectral norm of each exact parameter.
        sigma_min: Lower and upper bound of the smallest singular value of Z[k].
        uncertain: Pre-activations whose sign is not certain.
    """

    index: int
    error: float
    parameters: dict[str, Ball]
    state: Ball
    residual: Ball
    loss: tuple[float, float]
    norms: dict[str, tuple[float, float]]
    sigma_min: tuple[float, float]
    uncertain: int


@dataclass(frozen=True, eq=False, repr=False)
class CertifiedDescent:
    """Bounds on the exact gradient descent from given floats, for steps 0 to `steps`.

    Attributes:
        step: The step size, at its float value.
        steps: The last step with bounds.
        reason: Why it is not the last one asked for, or "".
        error: e_k, T.
        errors: The same for each parameter, T.
        losses: Lower and upper bounds of the loss, T x 2.
        norms: Lower and upper bounds of the spectral norm of each parameter, T x 2.
        sigma_min: Lower and upper bounds of the smallest singular value of the state, T x 2.
        growth: Factor by which each step may increase an error that is there, T - 1.
        defect: Distance of each float step from an exact step from the same floats, T - 1.
        uncertain: Pre-activations whose sign is not certain, T.
        iterates: Float parameters at the steps that were to be kept.
    """

    step: float
    steps: int
    reason: str
    error: Float[Tensor, " T"]
    errors: dict[str, Float[Tensor, " T"]]
    losses: Float[Tensor, "T 2"]
    norms: dict[str, Float[Tensor, "T 2"]]
    sigma_min: Float[Tensor, "T 2"]
    growth: Float[Tensor, " _"]
    defect: Float[Tensor, " _"]
    uncertain: Int[Tensor, " T"]
    iterates: dict[int, dict[str, Tensor]]

    @property
    def complete(self) -> bool:
        """Whether every step that was asked for has bounds."""
        return not self.reason

    def loss(self, index: int) -> arb:
        """Return L[k] as a ball."""
        return _ball(self.losses, index)

    def norm(self, name: str, index: int) -> arb:
        """Return the spectral norm of an exact parameter as a ball."""
        if name not in self.norms:
            raise ArgumentError(f"`name` of CertifiedDescent.norm must be one of {', '.join(self.norms)}. Got {name}.")
        return _ball(self.norms[name], index)

    def smallest(self, index: int) -> arb:
        """Return the smallest singular value of Z[k] as a ball."""
        return _ball(self.sigma_min, index)

    def parameter(self, name: str, index: int) -> Ball:
        """Return a ball that contains an exact parameter at a step that was kept; a vector is a column."""
        if index not in self.iterates or name not in self.iterates[index]:
            kept = ", ".join(map(str, self.iterates)) or "none"
            raise ArgumentError(f"`index` of CertifiedDescent.parameter must be a kept step ({kept}). Got {index}.")
        value = self.iterates[index][name]
        return Ball(value.reshape(len(value), -1), float(self.errors[name][index]))

    def __repr__(self) -> str:
        stopped = f", stopped: {self.reason}" if self.reason else ""
        return (
            f"CertifiedDescent(step={self.step:.6g}, steps={self.steps}, error at most {float(self.error.max()):.3g}, "
            f"loss {self.losses[-1, 0]:.6g} to {self.losses[-1, 1]:.6g}{stopped})"
        )


class BoundsTable:
    """Collects what is certain, step by step.

    Args:
        step: The step size.
        start: The parameters before the first step, by name.
        keep: Steps whose float parameters are kept.
    """

    def __init__(self, step: float, start: Mapping[str, Tensor], keep: Collection[int]) -> None:
        self._step, self._keep = step, frozenset(keep)
        self._shapes = {name: value.shape for name, value in start.items()}
        self._rows: list[list[float]] = []
        self._iterates: dict[int, dict[str, Tensor]] = {}

    def add(self, known: CertifiedStep, growth: float, defect: float) -> None:
        """Take the bounds of one step, and the growth and defect of the step that led there."""
        row = [known.error, *known.loss, *known.sigma_min, float(known.uncertain), growth, defect]
        for name in self._shapes:
            row += [known.parameters[name].radius, *known.norms[name]]
        self._rows.append(row)
        if known.index in self._keep:
            self._iterates[known.index] = {
                name: known.parameters[name].centre.reshape(shape) for name, shape in self._shapes.items()
            }

    def result(self, reason: str) -> CertifiedDescent:
        """Return everything; with no step at all, what is known without looking: nothing but signs."""
        nothing = [math.inf, 0.0, math.inf, 0.0, math.inf, 0.0, 1.0, 0.0] + [math.inf, 0.0, math.inf] * len(
            self._shapes
        )
        table = torch.tensor(self._rows or [nothing], dtype=torch.float64)
        at = {name: 8 + 3 * place for place, name in enumerate(self._shapes)}
        return CertifiedDescent(
            step=self._step,
            steps=len(table) - 1,
            reason=reason,
            error=table[:, 0],
            errors={name: table[:, column] for name, column in at.items()},
            losses=table[:, 1:3],
            norms={name: table[:, column + 1 : column + 3] for name, column in at.items()},
            sigma_min=table[:, 3:5],
            growth=table[1:, 6],
            defect=table[1:, 7],
            uncertain=table[:, 5].long(),
            iterates=self._iterates,
        )


def _ball(bounds: Tensor, index: int) -> arb:
    if not 0 <= index < len(bounds):
        raise ArgumentError(f"`index` of CertifiedDescent must be a step from 0 to {len(bounds) - 1}. Got {index}.")
    low, high = bounds[index].tolist()
    return from_bounds(low, high)
