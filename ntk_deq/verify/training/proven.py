"""A window of gradient descent with proven error bounds, where the instance is small enough to afford them.

Training from where the gradient is zero for certain: nothing ever moves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeAlias

import torch
from flint import arb, fmpq, fmpq_mat
from torch import Tensor

from ntk_deq.certified import Ball, frobenius, spectral_norm
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.dispatch import dense_form
from ntk_deq.certified.rounding import add_up, fro_up
from ntk_deq.dynamics.field import GradientField
from ntk_deq.dynamics.proven import CertifiedDescent, CertifiedStep
from ntk_deq.dynamics.proven.descent import certified_descent
from ntk_deq.dynamics.record import RunStatus, TrainingRun
from ntk_deq.equilibrium.slopes import RELU
from ntk_deq.evaluation.arithmetic import to_matrix
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.environment import Environment, Notes, OutsideClaimError, model_formulas
from ntk_deq.evaluation.equilibria import float_centre
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.parser import parse
from ntk_deq.language.run import LOSS, Run
from ntk_deq.systems.model import EquilibriumModel, LayerForm, output_loss
from ntk_deq.verify.training import SOLVER_TOLERANCE, Point, Trainee

MOST_STEPS = 2000
"""Steps of a window that are proven: some 200 a second at N = 4, m = 16."""

MOST_ENTRIES = 4096
"""Entries of all parameters together, at most, for a window to be proven."""

LARGEST_ERROR = 1e-6
"""Where the bound on the distance from the exact trajectory exceeds this, the proof is given up."""


Points: TypeAlias = tuple[Point, ...]


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
    if form is not None and any(_number(model, name) != form.factor for name in scalars):
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


def _number(model: EquilibriumModel, name: str) -> float:
    """Return a hyperparameter that is a number; NaN for a matrix."""
    value = torch.as_tensor(getattr(model, name))
    return float(value) if value.ndim == 0 else math.nan


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


FAR = 10**12
"""The last step, or time, that is judged where nothing ends a run that rests."""

MOST_NUMBERS = 256
"""Numbers of parameters and data, at most, for the gradient to be computed over the rationals."""

_EACH = 400  # steps that are all judged

_REASON = "The gradient is zero at the start, for certain: every parameter stays as it is."


def is_still(trainee: Trainee) -> bool:
    """Whether the computed gradient is zero in every entry, and the loss is not.

    Args:
        trainee: What is trained.
    """
    field = GradientField(trainee.model, trainee.X, trainee.y, rtol=SOLVER_TOLERANCE)
    point = field.at(trainee.model.parameters(), 0.0)
    return point.loss_value != 0 and not any(bool(gradient.any()) for gradient in point.gradients.values())


def rests(trainee: Trainee, env: Environment) -> bool:
    """Whether the gradient is zero in every entry, for certain; relu's derivative at zero is zero, as in any run.

    It is where every unit is off, where it is zero over the rationals, and where a step of descent is proven to move
    nothing.

    Args:
        trainee: What is trained.
        env: The environment of the instance.
    """
    form = trainee.model.layer_form()
    if env.model is not None and not env.model.has_equilibrium:
        return trainee.exact and all(_is_zero(f"grad({LOSS}, {name})", env) for name in trainee.model.parameters())
    if form is None or env.model is None:
        return False
    if output_loss(trainee.model, trainee.X, trainee.y).beside:
        return False  # what the loss reads of the parameters themselves moves them
    try:
        state = to_matrix(evaluate(parse(model_formulas(env.model).state), env)).ball
    except OutsideClaimError:
        return False
    if form.activation is RELU and frobenius(state) == 0:
        return True
    if trainee.multiple is None:
        return False
    if rests_exactly(trainee, form, float_centre(dense_form(state))):
        return True
    if not trainee.exact or trainee.X.is_cuda:
        return False
    done = certified_descent(trainee.model, trainee.X, trainee.y, step=1.0, steps=1, keep=[0, 1])
    if not done.complete or float(done.error[1]) != 0:
        return False
    return all(torch.equal(value, done.iterates[1][name]) for name, value in done.iterates[0].items())


def _is_zero(text: str, env: Environment) -> bool:
    """Whether a formula is zero in every entry for certain: it is computed free of rounding."""
    notes = Notes(deadline=env.notes.deadline)
    try:
        value = evaluate(parse(text), replace(env, notes=notes))
    except OutsideClaimError:
        return False
    if notes.estimated or notes.unsure:
        return False
    if isinstance(value, Scalar):
        return bool(value.ball == 0)
    return isinstance(value, Matrix) and bool(frobenius(value.ball) == 0)


def rests_exactly(trainee: Trainee, form: LayerForm, state: torch.Tensor) -> bool:
    """Whether the gradient is zero in every entry over the rationals, as where the residuals of equal inputs cancel.

    The loss is a multiple of norm(yhat - y)^2, whose gradient is zero where that of half the squares is.

    With the slopes D and E of the two activations, the rows of Z solve z = (s z P + c) D and those of the adjoint
    v = r' + s (v .* D) P'; the gradients are sums of their products (`dynamics/proven/`).

    Args:
        trainee: What is trained.
        form: Which of its parameters is which.
        state: A matrix near its equilibrium, which says where the slopes are looked for.
    """
    parameters = trainee.model.parameters()
    numbers = sum(value.numel() for value in (*parameters.values(), trainee.X, trainee.y))
    if not trainee.exact or numbers > MOST_NUMBERS or not bool(state.isfinite().all()):
        return False
    weight, source, readout = (_rational(parameters[name]) for name in form.names)
    if form.transposed:
        weight, source = weight.transpose(), source.transpose()
    weight = _exactly(form.factor) * weight
    relu, order = form.activation is RELU, weight.nrows()
    if relu and not spectral_norm(Ball(parameters[form.weight].double())) * form.factor < 1:
        return False  # there may be other equilibria
    X, y = _rational(trainee.model.input_rows(trainee.X)), _rational(trainee.y)
    before = X * source
    inner = [form.inner is RELU and entry <= 0 for entry in before.entries()]
    entering = _masked(before, inner)
    floats = state.double().flatten().tolist()
    by_weight, by_source, by_readout = 0 * weight, 0 * source, 0 * readout
    for n in range(X.nrows()):
        off = [relu and not floats[n * order + j] > 0 for j in range(order)]
        row = fmpq_mat(1, order, entering.entries()[n * order : (n + 1) * order])
        slopes = fmpq_mat(order, order, [int(i == j and not off[j]) for i in range(order) for j in range(order)])
        one = fmpq_mat(order, order, [int(i == j) for i in range(order) for j in range(order)])
        try:
            z = row * slopes * (one - weight * slopes).inv()
            v = readout.transpose() * (one - slopes * weight.transpose()).inv()
        except ZeroDivisionError:
            return False
        pre = z * weight + row
        if [relu and entry <= 0 for entry in pre.entries()] != off:
            return False
        residual = (z * readout).entries()[0] - y.entries()[n]
        weighted = residual * (v * slopes)
        by_weight += z.transpose() * weighted
        x = fmpq_mat(1, X.ncols(), X.entries()[n * X.ncols() : (n + 1) * X.ncols()])
        by_source += x.transpose() * _masked(weighted, inner[n * order : (n + 1) * order])
        by_readout += residual * z.transpose()
    return not any(entry != 0 for total in (by_weight, by_source, by_readout) for entry in total.entries())


def _rational(value: torch.Tensor) -> fmpq_mat:
    """Return the matrix of floats over the rationals; a vector is one column."""
    matrix = value.double().reshape(len(value), -1)
    rows, columns = matrix.shape
    return fmpq_mat(rows, columns, [_exactly(entry) for entry in matrix.flatten().tolist()])


def _exactly(number: float) -> fmpq:
    return fmpq(*number.as_integer_ratio())


def _masked(matrix: fmpq_mat, off: Sequence[bool]) -> fmpq_mat:
    kept = [fmpq(0) if zero else entry for entry, zero in zip(matrix.entries(), off, strict=True)]
    return fmpq_mat(matrix.nrows(), matrix.ncols(), kept)


def at_rest(done: TrainingRun, trainee: Trainee, ats: Sequence[float], steps: int) -> tuple[TrainingRun, Points]:
    """Return a run that goes on for ever where it started, and its judged steps or times.

    Args:
        done: The run as far as it went.
        trainee: What is trained.
        ats: The steps or times that are judged: `steps_at_rest` or `times_at_rest`.
        steps: The steps that it is said to have taken.
    """
    start = done.snapshots[0]
    points = tuple(Point(at, start.parameters, trainee.start_radius, arb(0)) for at in ats)
    rested = replace(
        done,
        status=RunStatus.STATIONARY,
        steps=steps,
        end=float(ats[-1]),
        snapshots=tuple(replace(start, at=float(at)) for at in ats),
        detail=_REASON,
    )
    return rested, points


def steps_at_rest(run: Run) -> list[int]:
    """Return the steps at which descent that never moves is judged."""
    end = FAR if run.beyond else run.steps
    return sorted({*range(min(end, _EACH) + 1), *_spread(end), end})


def times_at_rest(horizon: float | None) -> list[float]:
    """Return the times at which a flow that never moves is judged."""
    end = float(FAR) if horizon is None else horizon
    return [0.0, *(end / 10**place for place in range(12, -1, -1))]


def _spread(end: int) -> list[int]:
    """Return 1, 2, 5, 10, ... up to a last step."""
    return [digit * 10**place for place in range(len(str(end))) for digit in (1, 2, 5) if digit * 10**place <= end]
