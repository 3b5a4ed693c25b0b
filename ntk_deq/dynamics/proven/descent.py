"""Gradient descent with a proof of how far the float run is from the exact one.

The float run is a pseudo-trajectory: with g = grad L and eta the step size,

    r_k >= norm(theta~[k+1] - (theta~[k] - eta g(theta~[k])))               (defect: solves, rounding, kinks)
    e_{k+1} = max(1 + eta c_k, eta (lambda_k + c_k) - 1) e_k + r_k           (propagation)

bounds norm(theta~[k] - theta[k]) for the exact run theta[k+1] = theta[k] - eta g(theta[k]) from the same floats. The
curvature bounds c_k and lambda_k hold on the whole ball of radius e_k; `curvature` derives them, and for a small model
the eigenvalues of the Hessian take their place. Interval arithmetic applied to the iteration itself loses two bits a
step; here the growth is the product of 1 + eta c_k, which stays bounded where the residual decays.

Between two steps the run has a state, and a step has two halves: look, then advance. For steps too long for the quick
bound the largest eigenvalue of the tangent kernel is bounded over a ball of parameters.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from flint import arb, fmpq
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified.arithmetic import add, hadamard, matmul, scale
from ntk_deq.certified.carried import CarriedSpectrum
from ntk_deq.certified.dense import Ball, ball, first_reason, transpose
from ntk_deq.certified.extremes import sigma_max
from ntk_deq.certified.rounding import add_up, divide_up, multiply_up, root_up, subtract_down
from ntk_deq.certified.scalar import exact, lower, upper, value_and_radius, with_radius
from ntk_deq.dynamics.proven import (
    BoundsTable,
    CertifiedDescent,
    CertifiedPoint,
    CertifiedStep,
    Problem,
    certified_point,
)
from ntk_deq.dynamics.proven.curvature import (
    Jump,
    Reach,
    Sizes,
    expansion,
    gain,
    hessian,
    is_small,
    kink_jump,
    reach,
)
from ntk_deq.dynamics.proven.operations import (
    CarriedEigenvalues,
    CarriedNorm,
    CarriedStretch,
    longest_row,
    moved,
    multiple,
    sample_inverses,
    short_norm,
)
from ntk_deq.equilibrium.slopes import banach_bound
from ntk_deq.errors import ArgumentError, check_whole, is_number
from ntk_deq.systems.checks import check_problem
from ntk_deq.systems.model import EquilibriumModel, output_loss


def kernel_gain(problem: Problem, point: CertifiedPoint, far: Reach, carried: CarriedNorm) -> float:
    """Return an upper bound of lambda_max(H) on a fixed pattern, anywhere in a ball of parameters.

    H = ZZ' + s^2 (GG') .* (ZZ') + ((G.*E)(G.*E)') .* (XX').

    Args:
        problem: Model form and data.
        point: The model at the centre.
        far: How far quantities move in the ball.
        carried: Spares a decomposition where H has moved little since the last call.
    """
    state = Ball(point.state.centre, add_up(point.state.radius, far.state), point.state.reason)
    rows = root_up(float(state.shape[0]))
    G = Ball(point.passed.centre, add_up(point.passed.radius, multiply_up(rows, far.row)), point.passed.reason)
    alive = Ball(G.centre * point.alive, G.radius, G.reason)
    states, adjoints = matmul(state, transpose(state)), matmul(G, transpose(G))
    sources = hadamard(matmul(alive, transpose(alive)), matmul(problem.inputs, transpose(problem.inputs)))
    factor = arb(problem.form.factor)
    return carried.bound(add(states, add(scale(factor * factor, hadamard(adjoints, states)), sources)))[1]


HARMLESS = 1e-4
"""Growth by less than this share in a step is not worth a sharper bound: as the residual decays, the shares add up."""


@dataclass
class CertifiedRun:
    """The float iterate, the radii around it, and what is carried from step to step.

    A factor s that is off, as that of the exact model is c s, is taken into the weight: with c P in place of P the
    exact model is the one with s, and its run that with c^2 times the gradient of the weight. The radius of the weight
    is that of c P; what is known of P itself is wider by |1/c - 1| norm(P).

    Attributes:
        problem: Model form and data.
        eta: The step size, and how far it may be off.
        spread: See there.
        share: See `certified_descent`.
        parameters: The float iterate.
        start: How far the exact start may be from it, by parameter.
        off: Upper bound of |c - 1|, |1/c - 1| and |c^2 - 1|.
        loss_factor: f where the loss is f norm(yhat - y)^2/2, whose step size times f is `eta`.
    """

    problem: Problem
    eta: float
    spread: float
    share: float
    parameters: dict[str, Ball]
    start: Mapping[str, float]
    off: float = 0.0
    loss_factor: arb = field(default_factory=lambda: arb(1))
    error: float = field(init=False)
    errors: dict[str, float] = field(init=False)
    growth: float = 1.0
    defect: float = 0.0

    def __post_init__(self) -> None:
        """Set up the carried norms."""
        form = self.problem.form
        weight = self.parameters[form.weight]
        scaled = add_up(self.start[form.weight], multiply_up(self.off, add_up(weight.fro, self.start[form.weight])))
        self.errors = {**self.start, form.weight: scaled}
        self.error = together(self.errors.values())
        self._norms = {name: CarriedNorm(self.share) for name in self.parameters}
        self._spectrum = CarriedSpectrum(self.share)
        self._kernel = CarriedNorm(self.share)
        self._stretch = CarriedStretch()
        self._eigenvalues = CarriedEigenvalues()
        weight, readout = self.parameters[form.weight], self.parameters[form.readout]
        self._zeros: Tensor | None = None
        start = self.problem.inputs.centre.new_zeros(self.problem.inputs.shape[0], weight.shape[0])
        self._states: deque[Tensor] = deque([start], maxlen=3)
        self._adjoints: deque[Tensor] = deque([readout.centre.mT.expand_as(start).contiguous()], maxlen=3)

    def look(self, index: int) -> tuple[CertifiedStep | None, str]:
        """Certify the model at the present iterate and on the ball around it; None and why, where that fails."""
        form = self.problem.form
        balls = {name: Ball(value.centre, self.errors[name]) for name, value in self.parameters.items()}
        norms = {name: self._norms[name].bound(value) for name, value in balls.items()}
        contraction = multiply_up(form.factor, norms[form.weight][1])
        stretch = banach_bound(1.0, contraction)
        if not math.isfinite(stretch):
            why = first_reason(*balls.values()) or f"the contraction factor may be {contraction:.6g}, not below one"
            return None, f"at step {index}, {why}"
        point = certified_point(
            self.problem,
            self.parameters,
            norms[form.weight][1],
            stretch,
            state=_extrapolated(self._states),
            adjoint=_extrapolated(self._adjoints),
        )
        if not point.weighted.is_finite:
            return None, f"at step {index}, {first_reason(point.state, point.adjoint, point.weighted)}"
        self._states.appendleft(point.state.centre)
        self._adjoints.appendleft(point.adjoint.centre)
        smallest, largest = self._spectrum.bound(point.state)
        errors = (self.errors[form.weight], self.errors[form.source], self.errors[form.readout])
        sizes = Sizes(
            state=min(upper(largest), add_up(point.state.fro, point.state.radius)),
            residual=add_up(point.residual.fro, point.residual.radius),
            weighted=add_up(short_norm(point.weighted.centre), point.weighted.radius),
            row=add_up(longest_row(point.passed), point.passed.radius),
            readout=norms[form.readout][1],
            errors=errors,
        )
        far = reach(self.problem, point, sizes)
        if self.errors[form.weight] == 0 or (index == 0 and self.start[form.weight] == 0):
            self._zeros = _any_of(point.weight.centre == 0)
        jump = kink_jump(self.problem, point, sizes, far, self._zeros)
        self._found = (point, sizes, far, jump)
        residual = Ball(point.residual.centre, add_up(point.residual.radius, far.residual))
        low, high = norms[form.weight]
        apart = multiply_up(self.off, high)
        wider = multiply_up(self.off, add_up(self.parameters[form.weight].fro, self.errors[form.weight]))
        if self.off:
            norms[form.weight] = (max(0.0, subtract_down(low, apart)), add_up(high, apart))
            balls[form.weight] = Ball(balls[form.weight].centre, add_up(self.errors[form.weight], wider))
        return CertifiedStep(
            index=index,
            error=add_up(self.error, wider),
            parameters=balls,
            state=Ball(point.state.centre, add_up(point.state.radius, far.state)),
            residual=residual,
            loss=self._loss(*CarriedNorm().bound(residual)),
            norms=norms,
            sigma_min=(max(0.0, subtract_down(lower(smallest), far.state)), add_up(upper(smallest), far.state)),
            uncertain=jump.uncertain,
        ), ""

    def advance(self, index: int, largest_error: float) -> str:
        """Take a float step and bound its error; return why the run ends here, or ""."""
        point, sizes, far, jump = self._found
        eta = add_up(self.eta, self.spread)
        defects, updated = {}, {}
        for name, value in self.parameters.items():
            gradient = point.gradients[name]
            new = moved(value, multiple(self.eta, gradient))
            defects[name] = add_up(new.radius, multiply_up(self.spread, add_up(gradient.fro, gradient.radius)))
            updated[name] = Ball(new.centre)
        form = self.problem.form
        steepest = point.gradients[form.weight]
        turned = add_up(steepest.fro, steepest.radius, far.gradients[0], jump.gradients[0])
        defects[form.weight] = add_up(defects[form.weight], multiply_up(eta, self.off, turned))
        apart = {
            name: add_up(defects[name], multiply_up(eta, jump.gradients[at])) for at, name in enumerate(form.names)
        }
        self.growth, self.defect = self._expansion(eta, point, sizes, far), together(apart.values())
        error = add_up(multiply_up(self.growth, self.error), self.defect)
        errors = {
            name: add_up(self.errors[name], multiply_up(eta, far.gradients[at]), apart[name])
            for at, name in enumerate(form.names)
        }
        error = min(error, together(errors.values()))
        if not error <= largest_error:
            return self._stopped(index, error, jump, updated)
        self.error = error
        self.errors = {name: min(errors[name], error) for name in self.parameters}
        self.parameters = updated
        if self._zeros is not None:
            active = jump.active.float()
            self._zeros = _any_of(self._zeros & ((active.mT @ active) == 0))
        return ""

    def _expansion(self, eta: float, point: CertifiedPoint, sizes: Sizes, far: Reach) -> float:
        """Return a Lipschitz constant of one descent step on the ball."""
        coarse = point.slopes.new_full(point.slopes.shape[:1], point.stretch)
        bend = multiply_up(eta, expansion(self.problem, point, sizes, far, coarse))
        stiff = multiply_up(eta, gain(self.problem, sizes, far))
        if bend <= HARMLESS and stiff <= 2.0:
            return _lipschitz(bend, stiff)
        weight = multiple(self.problem.form.factor, Ball(point.weight.centre, sizes.errors[0]))
        if is_small(point):
            found = hessian(self.problem, point, far, sample_inverses(weight, point.slopes))
            return min(_lipschitz(bend, stiff), self._contraction(*self._eigenvalues.bound(found)))
        stretches = self._stretch.bounds(weight, point.slopes, point.stretch)
        bend = min(bend, multiply_up(eta, expansion(self.problem, point, sizes, far, stretches)))
        if not stiff <= 2.0:
            stiff = min(stiff, multiply_up(eta, kernel_gain(self.problem, point, far, self._kernel)))
        return _lipschitz(bend, stiff)

    def _loss(self, low: float, high: float) -> tuple[float, float]:
        """Return bounds of the loss where norm(r) is between two numbers >= 0."""
        down = math.nextafter(math.nextafter(low * low, -math.inf) / 2, -math.inf)
        least, most = max(0.0, down), multiply_up(0.5, high, high)
        if self.loss_factor == 1:
            return least, most
        return max(0.0, lower(self.loss_factor * least)), upper(self.loss_factor * most)

    def _contraction(self, low: float, high: float) -> float:
        """Return max|1 - eta h| over low <= h <= high."""
        eta = with_radius(self.eta, self.spread)
        return max(upper(abs(1 - eta * end)) if math.isfinite(end) else math.inf for end in (low, high))

    def _stopped(self, index: int, error: float, jump: Jump, updated: dict[str, Ball]) -> str:
        reason = first_reason(*updated.values())
        if reason:
            return f"at step {index + 1}, {reason}"
        grown = f"so that the error bound would grow from {self.error:.3g} to {error:.3g} in step {index + 1}"
        if jump.uncertain:
            return f"a pre-activation of step {index} may be zero ({jump.uncertain} of uncertain sign), {grown}"
        return f"the curvature at step {index} is large, {grown}"


def _extrapolated(last: deque[Tensor]) -> Tensor:
    """Return where a sequence will be next, from the parabola through its last three members."""
    if len(last) < 3:
        return last[0]
    return 3 * (last[0] - last[1]) + last[2]


def _any_of(zeros: Tensor) -> Tensor | None:
    return zeros if bool(zeros.any()) else None


def _lipschitz(bend: float, stiff: float) -> float:
    """Return max(1 + eta c, eta (lambda + c) - 1), upwards."""
    return max(add_up(1.0, bend), add_up(bend, -subtract_down(1.0, stiff)) if stiff > 1.0 else 0.0)


def together(radii: Collection[float]) -> float:
    """Return an upper bound of the length of a vector whose parts have these lengths at most."""
    return root_up(add_up(*(multiply_up(radius, radius) for radius in radii)))


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
        model: A model that is a `single_layer`; no step is proven where its loss is no such multiple.
        X: Inputs, one sample a row.
        y: Targets.
        step: Step size > 0; a scalar ball means any fixed number in it.
        steps: Steps wanted, >= 0.
        rtol: Relative residual at which float solves stop; a larger one costs accuracy, never validity.
        keep: Steps whose float parameters are kept.
        start_error: How far, in the Frobenius norm, the exact start may be from the model's floats: each parameter, or
            one number for all together.
        data_error: How far, in the Frobenius norm, the exact X and the exact y may be from the floats.
        factor_error: How far the exact factor of the weight may be from that of the layer.
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
        >>> run.steps, bool(run.error[-1] < 1e-13), bool(run.losses[20, 1] < 0.1 * run.losses[0, 0])
        (20, True, True)
    """
    check_problem(model, X, y, "certified_descent")
    if not isinstance(step, arb) and not is_number(step):
        raise ArgumentError(f"`step` of certified_descent must be a number > 0. Got {step!r}.")
    given = step if isinstance(step, arb) else exact(float(step))
    eta, spread = value_and_radius(given)
    parameters = {name: value.detach().double() for name, value in model.parameters().items()}
    starts = start_error if isinstance(start_error, Mapping) else dict.fromkeys(parameters, start_error)
    errors = {"start_error": starts.values(), "data_error": data_error, "factor_error": [factor_error]}
    _check(eta, spread, steps, rtol, errors, largest_error, keep)
    form = model.single_layer()
    table = BoundsTable(eta, parameters, keep)
    multiple = output_loss(model, X, y).multiple
    if multiple is None:
        return table.result(f"the loss of {model.signature.name} is no multiple of norm(yhat - y)^2")
    if form is None:
        return table.result(f"the model {model.signature.name} is no single layer, by whose bounds the run is proven")
    factor = arb(fmpq(multiple.numerator, multiple.denominator))
    if multiple != 1:
        eta, spread = value_and_radius(given * factor)
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
    check_whole(steps, "steps", "certified_descent", 0)
    numbers = [("rtol", rtol), ("largest_error", largest_error)]
    for name, value in [*numbers, *((name, error) for name, values in errors.items() for error in values)]:
        if not is_number(value) or not value >= 0:
            raise ArgumentError(f"`{name}` {where} a number >= 0. Got {value!r}.")
    if not isinstance(keep, Collection):
        raise ArgumentError(f"`keep` {where} a collection of integers >= 0. Got {keep!r}.")
