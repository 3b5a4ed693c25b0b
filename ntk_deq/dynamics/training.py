"""One call for every way of training, gradient descent itself, and one to go on with a run.

Gradient descent is at full batch, with exact implicit gradients.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.dynamics.descent import Descent, OnStep
from ntk_deq.dynamics.record import TrainingRun
from ntk_deq.dynamics.recorders import BUILT_IN, Recorder, listed
from ntk_deq.dynamics.settings import BLOW_UP, DESCENT, FLOW, DescentOptions, check_on_step
from ntk_deq.dynamics.storage import DAMAGED, RecordError, check_interval, checkpoint_to, fresh_checkpoint
from ntk_deq.errors import ArgumentError, NtkDeqError, name_hint
from ntk_deq.systems.checks import check_model
from ntk_deq.systems.model import EquilibriumModel, model_class

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
    check_on_step(on_step, DESCENT)
    check_interval(checkpoint_every)
    options = DescentOptions(step, steps, until, snapshots, rtol, atol, max_steps, extrapolation, keep, blow_up)
    descent = Descent(model, X, y, options, record)
    return descent.run(
        on_step=on_step,
        checkpoint=None if checkpoint is None else fresh_checkpoint(checkpoint),
        checkpoint_every=checkpoint_every,
        progress=progress,
    )


METHODS = (DESCENT, FLOW)
"""Names that `train` knows."""


def train(
    model: EquilibriumModel,
    X: Float[Tensor, "_ _"] | None = None,
    y: Float[Tensor, _ * k] | None = None,
    *,
    method: str = DESCENT,
    step: float | None = None,
    steps: int | None = None,
    until: float | None = None,
    horizon: float | None = None,
    tolerance: float | None = None,
    rtol: float | None = None,
    record: Iterable[str | Recorder] = (),
    snapshots: int | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: float | None = None,
    progress: bool = True,
) -> TrainingRun:
    """Train a model and return the record of the run, which can be saved, resumed, sliced and plotted.

    Args:
        model: The model; its parameters are the start and are left as they are.
        X: Inputs, as the model declares them; None: a system without inputs.
        y: Targets, likewise.
        method: `gradient-descent` or `gradient-flow`.
        step: The step size, for gradient descent.
        steps: Steps allowed.
        until: The loss at which to end, over the first one.
        horizon: The time at which to end, for gradient flow.
        tolerance: Of the integrator, for gradient flow.
        rtol: Relative tolerance of the solves, for gradient descent.
        record: What to record besides the loss and the gradient's norm; see `recorders`.
        snapshots: Copies of the parameters that are kept.
        checkpoint: A file to go on from after a kill, for gradient descent.
        checkpoint_every: Seconds between two writings, for gradient descent.
        progress: Whether to show a bar.

    Raises:
        ArgumentError: An unknown method, an option of another method, or a value out of range.

    Example:
        >>> import torch
        >>> from ntk_deq.systems import ImplicitReLU
        >>> generator = torch.Generator().manual_seed(0)
        >>> model = ImplicitReLU.random(d=3, m=16, generator=generator)
        >>> X, y = torch.eye(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
        >>> run = train(model, X, y, step=0.02, until=1e-6, record=["norm"], progress=False)
        >>> run.status.value, run["norm"].values.shape[1:]
        ('loss-floor', torch.Size([3, 2]))
    """
    descent_only = {"step": step, "rtol": rtol, "checkpoint": checkpoint, "checkpoint_every": checkpoint_every}
    flow_only = {"horizon": horizon, "tolerance": tolerance}
    shared = {"steps": steps, "until": until, "snapshots": snapshots}
    if method == DESCENT:
        if step is None:
            raise ArgumentError(f"`step` of {DESCENT} must be given. Got None.")
        options = _options(DESCENT, {**descent_only, **shared}, flow_only)
        return gradient_descent(model, X, y, record=record, progress=progress, **options)
    if method == FLOW:
        from ntk_deq.dynamics.flow.run import gradient_flow

        options = _options(FLOW, {**flow_only, **shared}, descent_only)
        return gradient_flow(model, X, y, record=record, progress=progress, **options)
    hint = name_hint(method, METHODS) if isinstance(method, str) else ""
    raise ArgumentError(f"`method` of train must be one of {', '.join(METHODS)}. Got {method!r}.{hint}")


def _options(method: str, own: Mapping[str, Any], foreign: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in foreign.items():
        if value is not None:
            raise ArgumentError(f"`{name}` is no option of {method}. Got {value!r}.")
    return {name: value for name, value in own.items() if value is not None}


def resume(
    run: TrainingRun | str | Path,
    *,
    steps: int | None = None,
    until: float | None = None,
    horizon: float | None = None,
    record: Iterable[str | Recorder] = (),
    model: EquilibriumModel | None = None,
    on_step: OnStep | None = None,
    checkpoint_every: float = 60.0,
    progress: bool = False,
) -> TrainingRun:
    """Go on with a run where it stopped, and return the record of the whole.

    On the CPU, with the same versions and number of threads, gradient descent continues bit by bit as if it had never
    stopped. Gradient flow is integrated on from the last parameters, with the step size found anew.

    Args:
        run: A record, or the file of a checkpoint or of a saved record; a file is then kept up to date.
        steps: A new budget, counted from the start; None: the old one.
        until: A new loss floor, over the loss at the start; None: the old one.
        horizon: For gradient flow, a new last time; None: the old one.
        record: The recorders that are no built-in ones; functions are not part of a file. Further ones start here.
        model: The model with the parameters of the start; needed where it is not one of the registered models.
        on_step: As in `gradient_descent`.
        checkpoint_every: Seconds between two writings to the file.
        progress: Whether to show a bar.

    Returns:
        The record; `run` itself where there is nothing left to do.

    Raises:
        RecordError: The file is missing, damaged or of another format; it is left as it is.
        ArgumentError: The record cannot be resumed, a recorder or the model is missing, or a value is out of range.

    Example:
        >>> import torch
        >>> from ntk_deq.systems import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> short = train(LinearImplicit(W=one / 2, U=one, b=one[0]), one, one[0], step=0.05, steps=3, progress=False)
        >>> short.status.value, resume(short, steps=1000).status.value
        ('steps', 'loss-floor')
    """
    if isinstance(run, TrainingRun):
        known, write = run, None
    elif isinstance(run, str | os.PathLike):
        known, write = TrainingRun.load(run), checkpoint_to(run)
    else:
        raise ArgumentError(f"`run` of resume must be a TrainingRun or the name of a file. Got {run!r}.")
    state = known.continuation
    if state is None:
        raise ArgumentError(
            f"The run of {known.method} cannot be resumed: it ended with {known.status.value!r}, or it is a slice."
        )
    if known.method == DESCENT and horizon is not None:
        raise ArgumentError(f"`horizon` of resume is for gradient flow, and the run is of {DESCENT}. Got {horizon!r}.")
    # Before what the record holds, which would be taken for damaged.
    own = listed(record)
    check_on_step(on_step, "resume")
    check_interval(checkpoint_every)
    if model is not None:
        check_model(model, "resume")
    try:
        name, values = state["model"]["name"], state["model"]["values"]
        started = None if name is None else model_class(name).from_variables(values)
        chosen = _recorders(state["record"], own)
        _check_same(model, known)
        if known.method == FLOW and on_step is not None:
            raise ArgumentError(f"`on_step` of resume is for {DESCENT}, and the run is of {FLOW}.")
        start = model or started
        if start is None:
            raise ArgumentError("`model` of resume must be given, since the run's is not one of the registered models.")
        if known.method == FLOW:
            from ntk_deq.dynamics.flow.run import resume_flow

            last = start.with_parameters(known.parameters)
            whole = resume_flow(
                last, known, record=chosen, steps=steps, until=until, horizon=horizon, progress=progress
            )
            if write is not None and whole is not known:
                write(whole)
            return whole
        options = DescentOptions(**state["options"])
        options = options if steps is None else replace(options, steps=steps)
        options = options if until is None else replace(options, until=until)
        descent = Descent.resumed(start, options, chosen, known)
    except DAMAGED as error:
        if isinstance(error, NtkDeqError):
            raise
        raise RecordError(
            f"What the record holds to go on from is damaged ({type(error).__name__}: {str(error)[:200]}). The rest "
            "can be read."
        ) from error
    if descent.ended():
        return known
    return descent.run(
        on_step=on_step,
        checkpoint=write,
        checkpoint_every=checkpoint_every,
        progress=progress,
    )


def _check_same(model: EquilibriumModel | None, run: TrainingRun) -> None:
    """Refuse a model that is not the one of the run's start.

    Raises:
        ArgumentError: A parameter differs.
    """
    if model is None:
        return
    own, start = dict(model.parameters()), run.snapshots[0].parameters
    for name, value in start.items():
        if name not in own or own[name].shape != value.shape or not torch.equal(own[name].to(value), value):
            raise ArgumentError(f"`model` of resume must be the model at the run's start. Its `{name}` is another one.")


def _recorders(names: Iterable[str], own: Iterable[str | Recorder]) -> list[str | Recorder]:
    given = {recorder if isinstance(recorder, str) else recorder.name: recorder for recorder in own}
    missing = [name for name in names if name not in given and name not in BUILT_IN]
    if missing:
        raise ArgumentError(
            f"`record` of resume must hold the run's own recorders, {', '.join(missing)}: functions are not part of a "
            "record."
        )
    kept = [given.pop(name, name) for name in names]
    return [*kept, *given.values()]
