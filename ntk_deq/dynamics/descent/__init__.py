"""Gradient descent at full batch with exact implicit gradients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from ntk_deq.dynamics.descent.checkpoints import check_interval, fresh_checkpoint
from ntk_deq.dynamics.descent.loop import Descent, OnStep
from ntk_deq.dynamics.descent.options import BLOW_UP, METHOD, DescentOptions
from ntk_deq.dynamics.record import TrainingRun
from ntk_deq.dynamics.recorders import Recorder
from ntk_deq.dynamics.settings import check_on_step
from ntk_deq.systems.model import EquilibriumModel

if TYPE_CHECKING:
    from pathlib import Path


def gradient_descent(
    model: EquilibriumModel,
    X: Float[Tensor, "_ _"] | None = None,
    y: Float[Tensor, _ * k] | None = None,
    *,
    step: float,
    steps: int = 10_000,
    until: float = 1e-10,
    record: Iterable[str | Recorder] = (),
    snapshots: int = 64,
    rtol: float = 1e-10,
    atol: float = 0.0,
    max_steps: int = 10_000,
    extrapolation: int = 2,
    keep: Sequence[int] = (),
    blow_up: float = BLOW_UP,
    on_step: OnStep | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: float = 60.0,
    progress: bool = False,
) -> TrainingRun:
    """Run theta <- theta - eta grad L(theta), L the declared loss, and return the record of the run.

    Every gradient is the exact implicit one, up to the tolerance of the two solves, which start from an extrapolation
    of the last states. Memory does not grow with the number of steps.

    The run ends with a reason, its `status`: the loss is at most `until` times the first one; `steps` are spent; the
    contraction factor has reached one; the loss is `blow_up` times the first one; NaN or Inf; a solve failed; the
    gradient is zero in every entry, at a minimum above the floor or where all units are off; the step is so small that
    it changes no parameter any more; Ctrl-C. What was reached is in the record in every case. Only where the very first
    gradient cannot be computed is there nothing to return, and the error is raised.

    `error` of the record estimates the distance of the last parameters from the exact iterates by

        sum_k eta e_k  +  u k (norm(theta_0) + path length),

    with e_k the gradient's error as `GradientField` estimates it from the residuals, and u half a unit in the last
    place: as if a step brought no two trajectories further apart, and as if all errors added up.

    Args:
        model: The model; its parameters are the start and are left as they are.
        X: Inputs, one sample a row.
        y: Targets.
        step: The step size eta, > 0, and at most half the largest number of the dtype.
        steps: Steps allowed, >= 0.
        until: The loss at which to end, over the first one; in [0, 1).
        record: What to record besides `loss` and `gradient_norm`; see `recorders`.
        snapshots: Copies of the parameters that are kept, the start and the end among them, >= 2.
        rtol: Relative tolerance of equilibria and adjoints.
        atol: Absolute tolerance.
        max_steps: Iterations allowed in a solve.
        extrapolation: Highest degree of the extrapolation; 0 is the plain warm start.
        keep: Further steps whose parameters are kept, besides the `snapshots`.
        blow_up: The loss over the first one at which the run is taken to have diverged, > 1. At a large step a loss may
            rise by more and come back; infinity goes on to the end.
        on_step: Called with k and the field's point at every step. The point's tensors hold until the next step.
        checkpoint: A file from which `resume` goes on after a kill, with the very same bits on the CPU; it must not
            exist yet. None: no file.
        checkpoint_every: Seconds between two writings; 0: after every step; infinity: at the end only.
        progress: Whether to show a bar.

    Raises:
        ArgumentError: An argument is out of range.
        WellPosednessError: The contraction factor is not below one at the start.
        EquilibriumError: The equilibrium or the adjoint at the start was not found.

    Example:
        >>> import torch
        >>> from ntk_deq.systems import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> run = gradient_descent(LinearImplicit(W=one / 2, U=one, b=one[0]), one, one[0], step=0.05)
        >>> run.status.value, run.loss <= 1e-10 * 0.5  # yhat = 2 at first
        ('loss-floor', True)
    """
    check_on_step(on_step, METHOD)
    check_interval(checkpoint_every)
    options = DescentOptions(step, steps, until, snapshots, rtol, atol, max_steps, extrapolation, keep, blow_up)
    descent = Descent(model, X, y, options, record)
    return descent.run(
        on_step=on_step,
        checkpoint=None if checkpoint is None else fresh_checkpoint(checkpoint),
        checkpoint_every=checkpoint_every,
        progress=progress,
    )
