"""Bounds that are proven for runs: descent in balls, curvature, kinks; errors along recursions.

Here: the record of a certified run of descent, bounds at every step, iterates at some; and one iterate in
balls (operations.py). descent.py makes the record, with curvature.py (how far a step can take two iterates apart, and
what signs that are not certain can change); recursion.py is for recursions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ntk_deq.certified.arithmetic import negate
from ntk_deq.certified.dense import Ball, no_information, transpose
from ntk_deq.certified.rounding import add_up, multiply_up
from ntk_deq.dynamics.proven.operations import multiple, product, row_multiples, total
from ntk_deq.systems.model import SingleLayer


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


_MOST_ITERATIONS = 100_000
# A contraction of factor 0.9999 gains sixteen digits in 4e5 iterations from nothing; warm starts need far fewer.
_UNCHECKED = 3
# Iterations between two looks at the residual, since each look waits for the device.


@dataclass(frozen=True, eq=False)
class Problem:
    """What stays the same along a run.

    Attributes:
        form: Which parameter is which.
        inputs: X, N x d; a ball of inputs means any fixed ones in it, as of targets.
        inputs_norm: Upper bound of the spectral norm of all of them.
        targets: y, N x 1.
        rtol: Relative residual at which float solves stop; a larger one costs accuracy, never validity.
    """

    form: SingleLayer
    inputs: Ball
    inputs_norm: float
    targets: Ball
    rtol: float

    def oriented(self, parameter: Ball) -> Ball:
        """Return a weight as it multiplies from the right, or a gradient in such terms as the parameter has it."""
        return transpose(parameter) if self.form.transposed else parameter


@dataclass(frozen=True, eq=False)
class CertifiedPoint:
    """The model at one float iterate, its activation pattern fixed.

    Attributes:
        weight: P, m x m, exact.
        weight_norm: Upper bound of its spectral norm.
        readout: r, m x 1, exact.
        stretch: Upper bound of 1/(1 - s norm(P)).
        inner: X S, N x m.
        alive: E, its slopes at the centre.
        recurrent: s Z P.
        pre: s Z P + inner(X S).
        slopes: D, its slopes at the centre.
        state: Z.
        residual: Z r - y, N x 1.
        adjoint: V, of the predictions.
        passed: G = V .* D.
        weighted: T, of the loss.
        gradients: Of the loss, by parameter's name and in its shape, vectors as columns.
    """

    weight: Ball
    weight_norm: float
    readout: Ball
    stretch: float
    inner: Ball
    alive: Float[Tensor, "N m"]
    recurrent: Ball
    pre: Ball
    slopes: Float[Tensor, "N m"]
    state: Ball
    residual: Ball
    adjoint: Ball
    passed: Ball
    weighted: Ball
    gradients: dict[str, Ball]


def settle(
    step: Callable[[Tensor], Tensor], start: Float[Tensor, "N m"], rtol: float
) -> tuple[Float[Tensor, "N m"], bool]:
    """Iterate a contraction in floating point until its residual is small or no longer falls.

    Args:
        step: The map.
        start: Where to start.
        rtol: Relative residual to stop at.

    Returns:
        The point, and whether it is finite.

    Example:
        >>> point, finite = settle(lambda z: 0.5 * z + 1, torch.zeros(1, 1, dtype=torch.float64), 1e-15)
        >>> abs(point.item() - 2) < 1e-14, finite
        (True, True)
    """
    point, best = start, float("inf")
    for _ in range(_MOST_ITERATIONS // (_UNCHECKED + 1)):
        for _ in range(_UNCHECKED):
            point = step(point)
        image = step(point)
        gap, size = torch.stack([torch.linalg.vector_norm(image - point), torch.linalg.vector_norm(image)]).tolist()
        point = image
        if not gap < best or gap <= rtol * size:
            return point, gap < float("inf")
        best = gap
    return point, True


def _widened(ball: Ball, by: float) -> Ball:
    return Ball(ball.centre, add_up(ball.radius, by), ball.reason)


def certified_point(
    problem: Problem,
    parameters: dict[str, Ball],
    weight_norm: float,
    stretch: float,
    *,
    state: Float[Tensor, "N m"],
    adjoint: Float[Tensor, "N m"],
) -> CertifiedPoint:
    """Solve the model at exact parameters in floating point and prove how far everything is from the truth.

    Args:
        problem: Model form and data; the bounds hold for any data in their balls.
        parameters: Exact balls by name, a vector as a column.
        weight_norm: Upper bound of norm(P).
        stretch: Upper bound of 1/(1 - s norm(P)), finite.
        state: Where to start from.
        adjoint: Likewise.

    Returns:
        The point; balls of infinite radius where something is not finite.
    """
    form = problem.form
    weight, readout = problem.oriented(parameters[form.weight]), parameters[form.readout]
    inner = product(problem.inputs, problem.oriented(parameters[form.source]), norm_a=problem.inputs_norm)
    source = Ball(form.inner.function(inner.centre), inner.radius, inner.reason)
    scaled = form.factor * weight.centre
    Z, finite = settle(lambda z: form.activation.function(z @ scaled + source.centre), state, problem.rtol)
    Z = Z * (source.centre != 0).any(dim=1, keepdim=True)  # the state of a sample without a source is zero exactly
    recurrent = multiple(form.factor, product(Ball(Z), weight, norm_b=weight_norm))
    pre = total(recurrent, source)
    off = _distance(form.activation.function(pre.centre), pre.radius, Z, stretch)
    solved = Ball(Z, off) if finite else no_information(pre, *pre.shape, "the float solve of the state diverged")
    reach = multiply_up(form.factor, weight_norm, off)
    recurrent, pre = _widened(recurrent, reach), _widened(pre, reach)
    slopes = form.activation.slopes(Ball(pre.centre)).low
    residual = total(product(solved, readout), negate(problem.targets))
    V = _certified_adjoint(problem, weight, weight_norm, stretch, readout, slopes, adjoint)
    passed = Ball(V.centre * slopes, V.radius, V.reason)
    weighted = row_multiples(residual, passed)
    alive = form.inner.slopes(Ball(inner.centre)).low
    turned = transpose(solved)
    by_weight = multiple(form.factor, product(turned, weighted))
    entering = Ball(weighted.centre * alive, weighted.radius)
    by_source = product(transpose(problem.inputs), entering, norm_a=problem.inputs_norm)
    gradients = {
        form.weight: problem.oriented(by_weight),
        form.source: problem.oriented(by_source),
        form.readout: product(turned, residual),
    }
    return CertifiedPoint(
        weight=weight,
        weight_norm=weight_norm,
        readout=readout,
        stretch=stretch,
        inner=inner,
        alive=alive,
        recurrent=recurrent,
        pre=pre,
        slopes=slopes,
        state=solved,
        residual=residual,
        adjoint=V,
        passed=passed,
        weighted=weighted,
        gradients=gradients,
    )


def _distance(image: Tensor, rounded: float, point: Tensor, stretch: float) -> float:
    """Bound the distance of a float point from the fixed point: (norm(f(z) - z) + rounding)/(1 - q)."""
    gap = total(Ball(image, rounded), Ball(-point))
    return multiply_up(stretch, add_up(gap.fro, gap.radius))


def _certified_adjoint(
    problem: Problem,
    weight: Ball,
    weight_norm: float,
    stretch: float,
    readout: Ball,
    slopes: Float[Tensor, "N m"],
    start: Float[Tensor, "N m"],
) -> Ball:
    """Return V = 1 b' + s (V .* D) P' with its radius."""
    back = transpose(weight)
    every = readout.centre.mT.expand_as(slopes).contiguous()
    scaled = problem.form.factor * back.centre
    V, finite = settle(lambda v: (v * slopes) @ scaled + every, start, problem.rtol)
    if not finite:
        return no_information(readout, slopes.shape[0], slopes.shape[1], "the float solve of the adjoint diverged")
    image = total(multiple(problem.form.factor, product(Ball(V * slopes), back, norm_b=weight_norm)), Ball(every))
    return Ball(V, _distance(image.centre, image.radius, V, stretch), image.reason)
