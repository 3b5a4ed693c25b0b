"""Gradient flow: run.py from start to end, passes.py one integration, integrator.py its steps.

Here: the differential equation in one vector, and which of its steps are accurate enough.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.dynamics.field import FieldPoint, GradientField, NotFiniteError


class FlowEquation:
    """The equation that gradient flow obeys, and the points at which its right-hand side was evaluated.

        y = (theta - theta(0), s_1, ..., s_k, s),   y' = (-grad, norm(grad_1), ..., norm(grad_k), norm(grad)),
        grad = dL/dtheta

    Displacements in place of the parameters themselves: where training is lazy, a rounding of theta is large against
    the way that theta goes.

    Symbols:
        theta: all parameters; s_i: length of the path of parameter i, Frobenius; s: that of all together, Euclidean.

    Attributes:
        start: The parameters at t = 0.
        evaluations: How often the right-hand side was evaluated.
        forward_steps: Iterations of all equilibria.
        adjoint_steps: Iterations of all adjoints.

    Args:
        field: The loss and its gradient.
        start: The parameters at t = 0.

    Example:
        >>> from ntk_deq.systems import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> model = LinearImplicit(W=one / 2, U=one, b=one[0])
        >>> equation = FlowEquation(GradientField(model, one, 0 * one[0]), model.parameters())
        >>> [round(rate, 6) for rate in equation(0.0, equation.origin()).tolist()]
        [-8.0, -4.0, -4.0, 8.0, 4.0, 4.0, 9.797959]
    """

    def __init__(self, field: GradientField, start: Mapping[str, Tensor]) -> None:
        self._field = field
        self.start = {name: value.detach().clone() for name, value in start.items()}
        self._sizes = [value.numel() for value in self.start.values()]
        self.size = sum(self._sizes)
        self.evaluations = 0
        self.forward_steps = self.adjoint_steps = 0.0

    @property
    def caveat(self) -> str:
        """What is not known of the equilibria along the flow, in words; empty where a certificate is asked for."""
        return self._field.caveat

    @property
    def parts(self) -> list[int]:
        """Sizes of the parts of y whose errors are judged apart: each parameter, and all lengths together."""
        return [*self._sizes, len(self._sizes) + 1]

    def origin(self) -> Float[Tensor, " n"]:
        """Return y at t = 0."""
        first = next(iter(self.start.values()))
        return first.new_zeros(self.size + len(self._sizes) + 1)

    def __call__(self, time: float, y: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return y'; until the next call, `point` is the field's value there and `here` are the parameters.

        Raises:
            WellPosednessError: The contraction factor is not below one.
            EquilibriumError: A solve failed, or a value is NaN or Inf.
        """
        self.here = self.parameters(y)
        self.point: FieldPoint = self._field.at(self.here, time, reuse=True)
        self.evaluations += 1
        self.forward_steps += self.point.forward_steps
        self.adjoint_steps += self.point.adjoint_steps
        gradients = [self.point.gradients[name].reshape(-1) for name in self.start]
        lengths = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])
        speed = torch.linalg.vector_norm(lengths)
        if not math.isfinite(float(speed)):  # the next stage would be at parameters that are no numbers
            raise NotFiniteError(f"The gradient must be finite. Its norm is {float(speed)}.")
        return torch.cat([*gradients, -lengths, -speed[None]]).neg_()

    def jacobian(self, time: float, y: Float[Tensor, " n"]) -> Float[Tensor, "n n"] | None:
        """Return the derivative of y' in y, on the pattern of units that is on there; None: not known."""
        here = self.parameters(y)
        point = self._field.at(here, time)
        hessian = self._field.hessian()
        if hessian is None:
            return None
        n, full = self.size, y.new_zeros(y.numel(), y.numel())
        full[:n, :n] = -hessian
        gradients = [point.gradients[name].reshape(-1) for name in self.start]
        for place, (rows, gradient) in enumerate(zip(hessian.split(self._sizes), gradients, strict=True)):
            length = torch.linalg.vector_norm(gradient)
            full[n + place, :n] = gradient @ rows / length if length else 0.0
        whole = torch.cat(gradients)
        speed = torch.linalg.vector_norm(whole)
        full[-1, :n] = whole @ hessian / speed if speed else 0.0
        return full

    def parameters(self, y: Float[Tensor, " n"]) -> dict[str, Tensor]:
        """Return the parameters at y, as tensors of their own."""
        parts = y[: self.size].split(self._sizes)
        return {
            name: value + part.view_as(value) for (name, value), part in zip(self.start.items(), parts, strict=True)
        }

    def lengths(self, y: Float[Tensor, " n"]) -> dict[str, float]:
        """Return the length of the path of each parameter at y."""
        return dict(zip(self.start, y[self.size : -1].tolist(), strict=True))


# Two attempts whose lengths are closer than this say nothing about the order.
_SHORTER = 0.95
# A crossing takes one accepted step with the kink in it, or a few. So many in short order mean sliding, or as good as.
_CROWD = 20
# A rough error within this part of what it may be is what limits the step.
_LIMITING = 0.25
# The controller multiplies a step by at most this over ratio^(1/order).
SAFETY = 0.9
# With a kink in the step the embedded error says little about the next, which may be longer by this factor.
_GROWTH = 2.0
# From this ratio on, whatever the method's order, the controller makes its largest cut.
_LARGEST = 1e3


class StepJudge:
    """Judge the embedded errors of a step, one for each part of the state.

    Smooth: the error of each part may be `tolerance` times the length of path that the step covers. This is error per
    unit of time, in units of the speed: the sum over a run stays below tolerance times the length of the path.

    Rough: a part whose error falls by less than half the method's order when a rejected step is tried again shorter has
    a kink in the step, unless it is known that no unit switches there: a stiff flow looks the same. Its error per unit
    of time does not fall with the step, so that none would do. Until the part is smooth again, its error may be
    `tolerance` times the path so far, less the factor by which the embedded error may fall short of the true one there.
    Where twenty such steps take less time than twenty times `pace` times the time reached, the allowance is doubled
    with each further one until the steps have this very length, beyond which they are not let grow: along a sliding
    mode the error is what this pace makes it. Every part counts as rough then, since what jumps in one part makes the
    others bend.

    The ratio is scaled so that the integrator's controller, made for errors like step^order, hits the next step: an
    error per unit of time falls by one order less, a rough one by the first order alone.

    Attributes:
        rough_steps: Steps accepted with a part in rough mode.
        relaxed: Largest factor by which a rough allowance was multiplied, 1 if none was.
        largest: Largest error of an accepted step per unit of time, all parts together.
        total: Sum of the errors of the accepted steps.

    Args:
        parts: Number of parts.
        order: Order of the method; it may be changed between two steps.
        understated: Factor by which the embedded error may fall short of the true one with a kink; likewise.
        tolerance: Error over path, > 0.
        pace: Step over time reached that sliding may not force below, > 0.
        scale: A time over which the solution changes, > 0.
        unit: A length that counts as path from the start on, > 0.

    References:
        Hairer, Norsett, Wanner (1993), Solving Ordinary Differential Equations I, II.4 and II.6; Filippov (1988),
        Differential Equations with Discontinuous Righthand Sides.

    Example:
        >>> judge = StepJudge(1, order=5, understated=1.0, tolerance=1e-6, pace=1e-3, scale=1.0, unit=1.0)
        >>> judge.ratio([1e-7], time=0.0, step=0.1, path=0.0, speed=1.0)  # just what is allowed
        1.0
        >>> judge.ratio([1e-5], time=0.0, step=0.1, path=0.0, speed=1.0) <= 1
        False
        >>> judge.ratio([1e-6], time=0.0, step=0.01, path=0.0, speed=1.0) <= 1  # fell by the first order: a kink
        True
    """

    def __init__(
        self,
        parts: int,
        *,
        order: int,
        understated: float,
        tolerance: float,
        pace: float,
        scale: float,
        unit: float,
    ) -> None:
        self.order, self.understated = order, understated
        self._tolerance, self._pace, self._scale, self._unit = tolerance, pace, scale, unit
        self._rough, self._relaxation = [False] * parts, [1.0] * parts
        self._rough_times: list[deque[float]] = [deque(maxlen=_CROWD) for _ in range(parts)]
        self._start, self._step, self._errors = -1.0, 0.0, [0.0] * parts
        self._smooth, self._limiting = [True] * parts, [False] * parts
        self.rough_steps, self.relaxed, self.largest, self.total = 0, 1.0, 0.0, 0.0

    def ratio(
        self,
        errors: Sequence[float],
        *,
        time: float,
        step: float,
        path: float,
        speed: float,
        noise: float = 0.0,
        kinked: bool = True,
    ) -> float:
        """Return the error over what is allowed, scaled for the controller; at most one: accept.

        Args:
            errors: Norm of the embedded error of each part.
            time: Where the step starts.
            step: Its length.
            path: Length of the path from the start to there.
            speed: Norm of the gradient there.
            noise: Error of the gradient itself, below which no step can be held.
            kinked: Whether a unit switches in the step; True where that is not known.
        """
        smooth = (self._tolerance * speed + noise) * step
        if not kinked and not self.slides:
            self._rough = [False] * len(errors)
        elif time == self._start and step < _SHORTER * self._step:
            self._find_kinks(errors, step, smooth)
        self._start, self._step, self._errors = time, step, list(errors)
        largest = max(self._part_ratio(part, error, smooth, path) for part, error in enumerate(errors))
        if largest > 1 or not (any(self._rough) or self.slides):
            return largest
        # The next step is kept from growing by saying that the error was larger than it is.
        growth = min(_GROWTH, max(1.0, self._pace_at(time + step) / step)) if self.slides else _GROWTH
        return max(largest, (SAFETY / growth) ** self.order)

    @property
    def slides(self) -> bool:
        """Whether a sliding mode is being followed."""
        return max(self._relaxation) > 1

    def _pace_at(self, time: float) -> float:
        return self._pace * (time + self._scale)

    def _part_ratio(self, part: int, error: float, smooth: float, path: float) -> float:
        self._smooth[part], self._limiting[part] = error <= smooth, False
        if not math.isfinite(error):
            return math.inf
        if not self.slides and (self._smooth[part] or not self._rough[part]):
            ratio = min(error / smooth, _LARGEST) if smooth else _LARGEST * (error > 0)
            return ratio ** (self.order / (self.order - 1))
        allowed = max(smooth, self._tolerance / self.understated * (path + self._unit) * self._relaxation[part])
        self._limiting[part] = error > _LIMITING * allowed
        ratio = min(error / allowed, _LARGEST) if allowed else _LARGEST * (error > 0)
        return ratio**self.order

    def accept(self) -> None:
        """Take note that the step judged last was made."""
        error = math.hypot(*self._errors)
        self.total += error
        self.largest = max(self.largest, error / self._step)
        pace = self._pace_at(self._start)
        for part, smooth in enumerate(self._smooth):
            if smooth and not self.slides:
                self._rough[part] = False
            else:
                times = self._rough_times[part]
                times.append(self._start)
                crowded = len(times) == _CROWD and self._start - times[0] < _CROWD * pace
                if crowded and self._limiting[part]:
                    self._relaxation[part] *= 2
                    self.relaxed = max(self.relaxed, self._relaxation[part])
            # Shorter steps, smooth or rough, do not end a sliding mode.
            if self._step > pace / 2:
                self._relaxation[part] = max(1.0, self._relaxation[part] / 2)
        self.rough_steps += self.slides or any(self._rough)

    def note(self, error: float, step: float) -> None:
        """Take note of a step that was judged elsewhere, with a bound on its error."""
        self.total += error
        self.largest = max(self.largest, error / step)

    def _find_kinks(self, errors: Sequence[float], step: float, smooth: float) -> None:
        """Compare with the rejected step from the same start."""
        shrunk = (self._step / step) ** (self.order / 2)
        for part, (before, now) in enumerate(zip(self._errors, errors, strict=True)):
            if now > smooth and before < now * shrunk:
                self._rough[part] = True
