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
from collections.abc import Callable, Collection

from flint import arb
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified.arithmetic import near_and_spread
from ntk_deq.certified.ball import ball
from ntk_deq.certified.extremes import sigma_max
from ntk_deq.certified.scalar import exact, upper
from ntk_deq.dynamics.certified_point import Problem
from ntk_deq.dynamics.certified_record import BoundsTable, CertifiedDescent, CertifiedStep
from ntk_deq.dynamics.certified_run import CertifiedRun
from ntk_deq.dynamics.run_inputs import check_problem, is_number
from ntk_deq.errors import ArgumentError
from ntk_deq.models.base import EquilibriumModel


def certified_descent(
    model: EquilibriumModel,
    X: Float[Tensor, "N d"],
    y: Float[Tensor, " N"],
    *,
    step: float | arb,
    steps: int,
    rtol: float = 1e-15,
    keep: Collection[int] = (),
    start_error: float = 0.0,
    data_error: tuple[float, float] = (0.0, 0.0),
    largest_error: float = 1e-6,
    share: float = 0.1,
    on_step: Callable[[CertifiedStep], None] | None = None,
    deadline: float | None = None,
) -> CertifiedDescent:
    """Run gradient descent on L = norm(yhat - y)^2/2 in float64 and bound its distance from the exact run.

    The floats of the model, X, y and `step` are the exact numbers, or near them as `start_error`, `data_error` and a
    ball for the step say: the bounds hold for whatever lies that near. The derivative of relu at zero is zero. The
    run may pass a pre-activation of uncertain sign where the jump of the gradient there is small enough.

    Symbols:
        eta = `step`; theta = all parameters; Z the equilibrium.

    Args:
        model: A model with a `layer_form`.
        X: Inputs, one sample a row.
        y: Targets.
        step: Step size > 0; a scalar ball means any fixed number in it.
        steps: Steps wanted, >= 0.
        rtol: Relative residual at which float solves stop; a larger one costs accuracy, never validity.
        keep: Steps whose float parameters are kept.
        start_error: How far, in the Frobenius norm over all parameters, the exact start may be from the model's floats.
        data_error: How far, in the Frobenius norm, the exact X and the exact y may be from the floats.
        largest_error: Stop where the error bound would exceed this.
        share: A new decomposition is made when a matrix has moved by this share of its norm (of its smallest singular
            value for the state); in between Weyl's inequality carries the bounds.
        on_step: Called at every step with all that is certain there.
        deadline: When to stop, on the clock of `time.perf_counter`.

    Returns:
        The bounds of every step reached, and why it was the last.

    Raises:
        ArgumentError: An argument is out of range or shapes do not fit.

    References:
        Coomes, Kocak and Palmer (1995), Numerische Mathematik 69, 401-421 (rigorous shadowing of float orbits).

    Example:
        >>> import torch
        >>> from ntk_deq.models import LinearImplicit
        >>> model = LinearImplicit.random(2, 3, generator=torch.Generator().manual_seed(0))
        >>> X = torch.eye(2, dtype=torch.float64)
        >>> run = certified_descent(model, X, torch.ones(2, dtype=torch.float64), step=0.1, steps=20)
        >>> run.steps, bool(run.error[-1] < 1e-13), bool(run.loss(20) < 0.1 * run.loss(0))
        (20, True, True)
    """
    check_problem(model, X, y, "certified_descent")
    if not isinstance(step, arb) and not is_number(step):
        raise ArgumentError(f"`step` of certified_descent must be a number > 0. Got {step!r}.")
    eta, spread = near_and_spread(step if isinstance(step, arb) else exact(float(step)))
    _check(eta, spread, steps, rtol, start_error, data_error, largest_error, keep)
    form = model.layer_form()
    parameters = {name: value.detach().double() for name, value in model.parameters().items()}
    table = BoundsTable(eta, parameters, keep)
    if form is None:
        return table.result(f"the model {model.signature.name} has no curvature bound (`layer_form`)")
    inputs = ball(X.double(), data_error[0])
    problem = Problem(form, inputs, upper(sigma_max(inputs)), ball(y.double(), data_error[1]), rtol)
    run = CertifiedRun(problem, eta, spread, share, {k: ball(v) for k, v in parameters.items()}, float(start_error))
    for index in range(steps + 1):
        if deadline is not None and time.perf_counter() > deadline:
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
    start_error: float,
    data_error: tuple[float, float],
    largest_error: float,
    keep: Collection[int],
) -> None:
    where = "of certified_descent must be"
    if not (eta > 0 and math.isfinite(eta) and spread < eta):
        raise ArgumentError(f"`step` {where} a number > 0. Got {eta!r}.")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise ArgumentError(f"`steps` {where} an integer >= 0. Got {steps!r}.")
    numbers = [("rtol", rtol), ("start_error", start_error), ("largest_error", largest_error)]
    for name, value in [*numbers, *(("data_error", error) for error in data_error)]:
        if not is_number(value) or not value >= 0:
            raise ArgumentError(f"`{name}` {where} a number >= 0. Got {value!r}.")
    if not isinstance(keep, Collection):
        raise ArgumentError(f"`keep` {where} a collection of integers >= 0. Got {keep!r}.")
