"""A window of gradient descent with proven error bounds, where the instance is small enough to afford them.

Training from where the gradient is zero for certain: nothing ever moves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeAlias

import torch
from flint import arb, fmpq, fmpq_mat
from torch import Tensor

from ntk_deq.certified import Ball, frobenius, from_scalar, identity, scale, spectral_norm, subtract
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.precise import PreciseMatrix
from ntk_deq.certified.rounding import add_up, fro_up, multiply_up, unit_roundoff
from ntk_deq.certified.structured import densified
from ntk_deq.dynamics.proven.descent import certified_descent, together
from ntk_deq.dynamics.record import RunStatus, TrainingRun
from ntk_deq.equilibrium.slopes import RELU
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.arithmetic import to_matrix, to_scalar
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.convex.curvature import loss_hessian
from ntk_deq.evaluation.environment import DeadlineError, Environment, Notes, OutsideClaimError, model_formulas
from ntk_deq.evaluation.equilibria import float_centre
from ntk_deq.evaluation.existence import existence
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.parser import parse
from ntk_deq.language.run import LOSS, Run
from ntk_deq.language.tree import Expr
from ntk_deq.systems.model import EquilibriumModel, SingleLayer, output_loss
from ntk_deq.verify.training import Point, Trainee, descended, loss_gradient, placed

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


def proven_window(trainee: Trainee, env: Environment, *, step: Scalar, ats: Sequence[int]) -> Proven:
    """Prove a window of descent: of a single layer by its bounds, of any other declared system by its Hessian in balls.

    Args:
        trainee: The model at the start with its data, in float64 on the CPU.
        env: The environment of the start.
        step: The step size.
        ats: Steps to judge, increasing from 0.
    """
    model, X, y = trainee.model, trainee.X, trainee.y
    if X.dtype != torch.float64 or X.is_cuda:
        return Proven(reason="it is proven in float64 on the CPU only")
    form, scalars = model.single_layer(), trainee.scalar_radius
    if form is None or trainee.multiple is None or any(_number(model, name) != form.factor for name in scalars):
        return _window_by_hessians(trainee, env, step, ats)
    entries = sum(value.numel() for value in model.parameters().values())
    if entries > MOST_ENTRIES:
        return Proven(reason=f"a proof for {entries} parameters would take too long")
    ats = [at for at in ats if at <= MOST_STEPS]
    path = _Path()
    done = certified_descent(
        model,
        X,
        y,
        step=step.ball,
        steps=ats[-1],
        keep=ats,
        start_error=trainee.start_radius,
        data_error=trainee.data_radius,
        factor_error=add_up(*scalars.values()),
        largest_error=LARGEST_ERROR,
        on_step=lambda known: path.add({name: b.centre for name, b in known.parameters.items()}, known.error),
        deadline=env.notes.deadline,
    )
    known = [at for at in ats if at in done.iterates]
    reason = "" if done.complete else f"the proof stops at step {done.steps}: {done.reason}"
    bounds = done.losses[: len(path.lengths)]
    radii = [{name: float(errors[at]) for name, errors in done.errors.items()} for at in known]
    points = tuple(
        Point(at, done.iterates[at], radius, path.lengths[at]) for at, radius in zip(known, radii, strict=True)
    )
    return Proven(points, _losses(bounds, known), reason, bounds)


MOST_BY_HESSIANS, MOST_NUMBERS_BY_HESSIANS = 64, 48
"""Steps, and numbers of parameters and state together, for which Hessians are bounded: some 50 ms each."""


def _window_by_hessians(trainee: Trainee, env: Environment, step: Scalar, ats: Sequence[int]) -> Proven:
    """Prove a window of descent on any declared loss.

    With H the Hessians over the ball around the floats in which the exact parameters are, and d the distance of the
    next floats from an exact step from these floats, e' = norm(I - step H) e + d: the gradient is smooth on that ball,
    and its difference is a mean of H times that of the parameters.
    """
    start = _in_floats(env)
    values = trainee.model.parameters()
    numbers = sum(value.numel() for value in values.values())
    if numbers > MOST_NUMBERS_BY_HESSIANS or ats[-1] > MOST_BY_HESSIANS:
        return Proven(reason=f"a proof of {ats[-1]} steps for {numbers} parameters would take too long")
    shapes, radius, error = {name: v.shape for name, v in values.items()}, dict(trainee.start_radius), 0.0
    path, points, bounds, reason = _Path(), list[Point](), list[list[float]](), ""
    for k in range(ats[-1] + 1):
        error = together(radius.values()) if k == 0 else error
        try:
            around = placed(start, values, radius)
            loss = to_scalar(evaluate(parse(LOSS), around)).ball
            if _trouble(around):
                break
            path.add(values, error)
            bounds.append([sc.lower(loss), sc.upper(loss)])
            if k in ats:
                points.append(Point(k, values, radius, path.lengths[-1]))
            if k == ats[-1]:
                break
            here = placed(start, values, dict.fromkeys(radius, 0.0)) if error else around
            moved, _ = descended(here, list(values), step)
            growth = _growth(loss_hessian(around, LOSS, list(values)), step) if error else 0.0
        except (OutsideClaimError, LimitError, DeadlineError) as outside:
            reason = str(outside)
            break
        balls = {name: _dense(value) for name, value in moved.items()}
        if isinstance(growth, str) or _trouble(start):
            reason = growth if isinstance(growth, str) else ""
            break
        error = add_up(multiply_up(growth, error), together([ball.radius for ball in balls.values()]))
        if not error <= LARGEST_ERROR:
            reason = f"the error bound would grow to {error:.3g} in step {k + 1}"
            break
        values = {name: ball.centre.reshape(shapes[name]) for name, ball in balls.items()}
        radius = dict.fromkeys(values, error)
    table = torch.tensor(bounds, dtype=torch.float64).reshape(-1, 2)
    if len(points) < len(ats):
        reason = f"the proof stops at step {max(len(bounds) - 1, 0)}: {reason or _trouble(start)}"
    return Proven(tuple(points), _losses(table, [int(point.at) for point in points]), reason, table)


def _dense(value: Scalar | Matrix) -> Ball:
    ball: Ball = from_scalar(value.ball) if isinstance(value, Scalar) else densified(value.ball)
    return ball


def _trouble(env: Environment) -> str:
    """Return why values are not known for certain, or an empty text."""
    if env.formulas is not None and env.formulas.state and existence(env).gap is None:
        return "the equilibrium may not be the only one"
    return next(iter([*env.notes.unsure, *env.notes.estimated.values()]), "")


def _in_floats(env: Environment) -> Environment:
    """Return an environment with notes of its own whose matrices are in floats, each with what it is off."""
    values: dict[str, Scalar | Matrix] = dict(env.variables)
    for name, value in values.items():
        if isinstance(value, Matrix) and isinstance(value.ball, PreciseMatrix):
            centre = value.ball.approximate
            off = value.ball.radius
            if any(
                entry.mid() != number for entry, number in zip(value.ball.flat, centre.flatten().tolist(), strict=True)
            ):
                off = add_up(off, multiply_up(unit_roundoff(), fro_up(centre)))
            values[name] = replace(value, ball=Ball(centre, off))
    return replace(env.replaced(values), notes=Notes(deadline=env.notes.deadline), precision=None)


def _growth(found: Ball | str, step: Scalar) -> float | str:
    """Return an upper bound of norm(I - step H)."""
    if isinstance(found, str):
        return found
    one = identity(found.shape[0], dtype=found.dtype, device=found.device)
    return sc.upper(spectral_norm(subtract(one, scale(step.ball, found))))


def _number(model: EquilibriumModel, name: str) -> float:
    """Return a hyperparameter that is a number; NaN for a matrix."""
    value = torch.as_tensor(getattr(model, name))
    return float(value) if value.ndim == 0 else math.nan


@dataclass
class _Path:
    """Adds up the length of the exact trajectory: float moves, each give or take the errors at its two ends."""

    lengths: list[arb] = field(default_factory=list)
    last: tuple[Mapping[str, torch.Tensor], float] | None = None

    def add(self, values: Mapping[str, torch.Tensor], error: float) -> None:
        """Take the floats of the next step, and how far all of them may be off together."""
        if self.last is None:
            self.lengths.append(arb(0))
        else:
            before, off = self.last
            length = math.hypot(*(fro_up(value - before[name]) for name, value in values.items()))
            rounding = sum(2.0**-52 * fro_up(value) for value in values.values())
            # The last factor is for the rounding of this sum itself.
            slack = (error + off + rounding + 1e-12 * length) * (1 + 1e-12)
            self.lengths.append(self.lengths[-1] + sc.with_radius(length, slack))
        self.last = values, error


def _losses(bounds: Tensor, ats: Sequence[int]) -> tuple[arb, ...]:
    parts = [bounds[start : stop + 1] for start, stop in pairwise(ats)]
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
    point = trainee.gradients.at(trainee.model.parameters(), 0.0)
    return point.loss_value != 0 and not any(bool(gradient.any()) for gradient in point.gradients.values())


def rests(trainee: Trainee, env: Environment) -> bool:
    """Whether the gradient is zero in every entry, for certain; relu's derivative at zero is zero, as in any run.

    It is where every unit is off, where it is zero over the rationals, and where a step of descent is proven to move
    nothing.

    Args:
        trainee: What is trained.
        env: The environment of the instance.
    """
    form = trainee.model.single_layer()
    if env.model is None:
        return False
    if form is None:
        return trainee.exact and all(_is_zero(loss_gradient(name), env) for name in trainee.model.parameters())
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
    if rests_exactly(trainee, form, float_centre(densified(state))):
        return True
    if not trainee.exact or trainee.X.is_cuda:
        return False
    done = certified_descent(trainee.model, trainee.X, trainee.y, step=1.0, steps=1, keep=[0, 1])
    if not done.complete or float(done.error[1]) != 0:
        return False
    return all(torch.equal(value, done.iterates[1][name]) for name, value in done.iterates[0].items())


def _is_zero(expr: Expr, env: Environment) -> bool:
    """Whether a formula is zero in every entry for certain: it is computed free of rounding."""
    notes = Notes(deadline=env.notes.deadline)
    try:
        value = evaluate(expr, replace(env, notes=notes))
    except OutsideClaimError:
        return False
    if notes.estimated or notes.unsure:
        return False
    if isinstance(value, Scalar):
        return bool(value.ball == 0)
    return isinstance(value, Matrix) and bool(frobenius(value.ball) == 0)


def rests_exactly(trainee: Trainee, form: SingleLayer, state: torch.Tensor) -> bool:
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
