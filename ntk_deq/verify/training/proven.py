"""A window of gradient descent with proven error bounds, where the instance is small enough to afford them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from flint import arb
from torch import Tensor

from ntk_deq.certified import scalar as sc
from ntk_deq.certified.bounds import fro_up
from ntk_deq.certified.rounding import add_up
from ntk_deq.dynamics.certified_descent import certified_descent
from ntk_deq.dynamics.certified_record import CertifiedDescent, CertifiedStep
from ntk_deq.verify.training.moments import Point
from ntk_deq.verify.training.trainee import Trainee

MOST_STEPS = 2000
"""Steps of a window that are proven: some 200 a second at N = 4, m = 16."""

MOST_ENTRIES = 4096
"""Entries of all parameters together, at most, for a window to be proven."""

LARGEST_ERROR = 1e-6
"""Where the bound on the distance from the exact trajectory exceeds this, the proof is given up."""


@dataclass(frozen=True)
class Proven:
    """A proven window.

    Attributes:
        points: The judged steps as far as they are proven, with proven radii.
        losses: From each point to the next: a ball of the loss at every step on the way.
        reason: Why that is not all of them, or an empty text.
        bounds: Lower and upper bounds of the loss at every step, from the start on.
    """

    points: tuple[Point, ...] = ()
    losses: tuple[arb, ...] = ()
    reason: str = ""
    bounds: Tensor = field(default_factory=lambda: torch.empty(0, 2, dtype=torch.float64))


def proven_window(trainee: Trainee, *, step: arb, ats: Sequence[int], deadline: float | None) -> Proven:
    """Prove a window of descent.

    Args:
        trainee: The model at the start with its data, in float64 on the CPU.
        step: The step size, as a ball.
        ats: Steps to judge, increasing from 0.
        deadline: When to stop, on the clock of `time.thread_time`.
    """
    model, X, y = trainee.model, trainee.X, trainee.y
    if X.dtype != torch.float64 or X.is_cuda:
        return Proven(reason="it is proven in float64 on the CPU only")
    form, scalars = model.layer_form(), trainee.scalar_radius
    if form is not None and any(float(getattr(model, name)) != form.factor for name in scalars):
        return Proven(reason=f"{', '.join(scalars)} is known up to rounding only")
    entries = sum(value.numel() for value in model.parameters().values())
    if entries > MOST_ENTRIES:
        return Proven(reason=f"a proof for {entries} parameters would take too long")
    ats = [at for at in ats if at <= MOST_STEPS]
    path = _Path()
    done = certified_descent(
        model,
        X,
        y,
        step=step,
        steps=ats[-1],
        keep=ats,
        start_error=trainee.start_radius,
        data_error=trainee.data_radius,
        factor_error=add_up(*scalars.values()),
        largest_error=LARGEST_ERROR,
        on_step=path.add,
        deadline=deadline,
    )
    known = [at for at in ats if at in done.iterates]
    reason = "" if done.complete else f"the proof stops at step {done.steps}: {done.reason}"
    return Proven(_points(done, path, known), _losses(done, known), reason, done.losses[: len(path.lengths)])


@dataclass
class _Path:
    """Adds up the length of the exact trajectory: float moves, each give or take the errors at its two ends."""

    lengths: list[arb] = field(default_factory=list)
    last: CertifiedStep | None = None

    def add(self, known: CertifiedStep) -> None:
        """Take the next step."""
        if self.last is None:
            self.lengths.append(arb(0))
        else:
            moves = [fro_up(b.centre - self.last.parameters[name].centre) for name, b in known.parameters.items()]
            rounding = sum(2.0**-52 * fro_up(b.centre) for b in known.parameters.values())
            length = math.hypot(*moves)
            # The last factor is for the rounding of this sum itself.
            slack = (known.error + self.last.error + rounding + 1e-12 * length) * (1 + 1e-12)
            self.lengths.append(self.lengths[-1] + sc.with_radius(length, slack))
        self.last = known


def _points(done: CertifiedDescent, path: _Path, ats: Sequence[int]) -> tuple[Point, ...]:
    return tuple(
        Point(
            at,
            done.iterates[at],
            {name: float(errors[at]) for name, errors in done.errors.items()},
            path.lengths[at],
        )
        for at in ats
    )


def _losses(done: CertifiedDescent, ats: Sequence[int]) -> tuple[arb, ...]:
    parts = [done.losses[start : stop + 1] for start, stop in pairwise(ats)]
    return tuple(sc.from_bounds(float(part[:, 0].min()), float(part[:, 1].max())) for part in parts)
