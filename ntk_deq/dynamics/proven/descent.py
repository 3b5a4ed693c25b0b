"""Gradient descent with a proof of how far the float run is from the exact one.

The float run is a pseudo-trajectory: with g = grad L and eta the step size,

    r_k >= norm(theta~[k+1] - (theta~[k] - eta g(theta~[k])))               (defect: solves, rounding, kinks)
    e_{k+1} = max(1 + eta c_k, eta (lambda_k + c_k) - 1) e_k + r_k           (propagation)

bounds norm(theta~[k] - theta[k]) for the exact run theta[k+1] = theta[k] - eta g(theta[k]) from the same floats. The
curvature bounds c_k and lambda_k hold on the whole ball of radius e_k; `curvature` derives them, and for a small model
the eigenvalues of the Hessian (`hessian`) take their place. Interval arithmetic
applied to the iteration itself loses two bits a step; here the growth is the product of 1 + eta c_k, which stays
bounded where the residual decays.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping

from flint import arb, fmpq
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified.arithmetic import near_and_spread
from ntk_deq.certified.ball import ball
from ntk_deq.certified.extremes import sigma_max
from ntk_deq.certified.rounding import add_up, divide_up, multiply_up
from ntk_deq.certified.scalar import exact, upper
from ntk_deq.dynamics.proven.point import Problem
from ntk_deq.dynamics.proven.record import BoundsTable, CertifiedDescent, CertifiedStep
from ntk_deq.dynamics.proven.run import CertifiedRun
from ntk_deq.dynamics.settings import check_problem
from ntk_deq.equilibrium.stored_values import is_number
from ntk_deq.errors import ArgumentError
from ntk_deq.systems.losses import output_loss
from ntk_deq.systems.model import EquilibriumModel

_LARGEST_SHARE = 0.25  # of the factor that it may be off by, for its powers to be bounded simply


def certified_descent(
    model: EquilibriumModel,
    X: Float[Tensor, "N d"],
    y: Float[Tensor, " N"],
    *,
    step: float | arb,
    steps: int,
    rtol: float = 1e-15,
    keep: Collection[int] = (),
    start_error: float | Mapping[str, float] = 0.0,
    data_error: tuple[float, float] = (0.0, 0.0),
    factor_error: float = 0.0,
    largest_error: float = 1e-6,
    share: float = 0.1,
    on_step: Callable[[CertifiedStep], None] | None = None,
    deadline: float | None = None,
) -> CertifiedDescent:
    """Run gradient descent on the loss in float64 and bound its distance from the exact run.

    The loss is f norm(yhat - y)^2/2, as the model declares it: its descent with step eta is that of half the squares
    with step f eta.

    The floats of the model, X, y and `step` are the exact numbers, or near them as `start_error`, `data_error`,
    `factor_error` and a ball for the step say: the bounds hold for whatever lies that near. The derivative of relu at
    zero is zero. The run may pass a pre-activation of uncertain sign where the jump of the gradient there is small
    enough.

    Symbols:
        eta = `step`; theta = all parameters; Z the equilibrium.

    Args:
        model: A model with a `layer_form`; no step is proven where its loss is no such multiple.
        X: Inputs, one sample a row.
        y: Targets.
        step: Step size > 0; a scalar ball means any fixed number in it.
        steps: Steps wanted, >= 0.
        rtol: Relative residual at which float solves stop; a larger one costs accuracy, never validity.
        keep: Steps whose float parameters are kept.
        start_error: How far, in the Frobenius norm, the exact start may be from the model's floats: each parameter, or
            one number for all together.
        data_error: How far, in the Frobenius norm, the exact X and the exact y may be from the floats.
        factor_error: How far the exact factor of the weight may be from that of the model's `layer_form`.
        largest_error: Stop where the error bound would exceed this.
        share: A new decomposition is made when a matrix has moved by this share of its norm (of its smallest singular
            value for the state); in between Weyl's inequality carries the bounds.
        on_step: Called at every step with all that is certain there.
        deadline: When to stop, on the clock of `time.thread_time`.

    Returns:
        The bounds of every step reached, and why it was the last.

    Raises:
        ArgumentError: An argument is out of range or shapes do not fit.

    References:
        Coomes, Kocak and Palmer (1995), Numerische Mathematik 69, 401-421 (rigorous shadowing of float orbits).

    Example:
        >>> import torch
        >>> from ntk_deq.systems import LinearImplicit
        >>> model = LinearImplicit.random(2, 3, generator=torch.Generator().manual_seed(0))
        >>> X = torch.eye(2, dtype=torch.float64)
        >>> run = certified_descent(model, X, torch.ones(2, dtype=torch.float64), step=0.1, steps=20)
        >>> run.steps, bool(run.error[-1] < 1e-13), bool(run.loss(20) < 0.1 * run.loss(0))
        (20, True, True)
    """
    check_problem(model, X, y, "certified_descent")
    if not isinstance(step, arb) and not is_number(step):
        raise ArgumentError(f"`step` of certified_descent must be a number > 0. Got {step!r}.")
    given = step if isinstance(step, arb) else exact(float(step))
    eta, spread = near_and_spread(given)
    parameters = {name: value.detach().double() for name, value in model.parameters().items()}
    starts = start_error if isinstance(start_error, Mapping) else dict.fromkeys(parameters, start_error)
    errors = {"start_error": starts.values(), "data_error": data_error, "factor_error": [factor_error]}
    _check(eta, spread, steps, rtol, errors, largest_error, keep)
    form = model.layer_form()
    table = BoundsTable(eta, parameters, keep)
    multiple = output_loss(model, X, y).multiple
    if multiple is None:
        return table.result(f"the loss of {model.signature.name} is no multiple of norm(yhat - y)^2")
    if form is None:
        return table.result(f"the model {model.signature.name} has no curvature bound (`layer_form`)")
    factor = arb(fmpq(multiple.numerator, multiple.denominator))
    if multiple != 1:
        eta, spread = near_and_spread(given * factor)
    inputs = ball(model.input_rows(X).double(), data_error[0])
    problem = Problem(form, inputs, upper(sigma_max(inputs)), ball(y.double(), data_error[1]), rtol)
    share_off = divide_up(factor_error, form.factor)
    if share_off > _LARGEST_SHARE:
        return table.result(f"the factor of the weight is known to {share_off:.3g} of it only")
    balls = {name: ball(value) for name, value in parameters.items()}
    start = {name: float(starts.get(name, 0.0)) for name in balls}
    # For |c - 1| <= t <= 1/4, the largest of |c - 1|, |1/c - 1| and |c^2 - 1| is at most 2 t + t^2.
    off = add_up(multiply_up(2.0, share_off), multiply_up(share_off, share_off))
    run = CertifiedRun(problem, eta, spread, share, balls, start, off, loss_factor=factor)
    if not isinstance(start_error, Mapping):
        run.error = min(run.error, add_up(float(start_error), multiply_up(off, balls[form.weight].fro)))
    for index in range(steps + 1):
        if deadline is not None and time.thread_time() > deadline:
            return table.result(f"the deadline passed at step {index}")
        known, reason = run.look(index)
        if known is None:
            return table.result(reason)
        table.add(known, run.growth, run.defect)
        if on_step is not None:
            on_step(known)
        reason = run.advance(index, largest_error) if index < steps else ""
        if reason:
            return table.result(reason)
    return table.result("")


def _check(
    eta: float,
    spread: float,
    steps: int,
    rtol: float,
    errors: Mapping[str, Collection[float]],
    largest_error: float,
    keep: Collection[int],
) -> None:
    where = "of certified_descent must be"
    if not (eta > 0 and math.isfinite(eta) and spread < eta):
        raise ArgumentError(f"`step` {where} a number > 0. Got {eta!r}.")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise ArgumentError(f"`steps` {where} an integer >= 0. Got {steps!r}.")
    numbers = [("rtol", rtol), ("largest_error", largest_error)]
    for name, value in [*numbers, *((name, error) for name, values in errors.items() for error in values)]:
        if not is_number(value) or not value >= 0:
            raise ArgumentError(f"`{name}` {where} a number >= 0. Got {value!r}.")
    if not isinstance(keep, Collection):
        raise ArgumentError(f"`keep` {where} a collection of integers >= 0. Got {keep!r}.")
