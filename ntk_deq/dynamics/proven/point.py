"""One float iterate in balls: equilibrium, residual, adjoint and gradients, on a fixed pattern of activations.

Let D and E be the slopes of the two activations at the float pre-activations. With the pattern fixed the model is
smooth,

    z = (s z P + x S E) D,   r = Z b - y,   V = 1 b' + s G P',   G = V .* D,   T = diag(r) G,
    dL/dP = s Z'T,           dL/dS = X'(E .* T),                 dL/db = Z'r,

and all of this is certified here: Z, r, V within their radii by Banach's theorem (the float state is one application of
the map away from itself, and on it the true map and the map of the fixed pattern agree up to the rounding counted), the
gradients from those. The true equilibrium lies in the same ball as that of the fixed pattern; by how much the true
gradient differs where a pre-activation may be zero is `curvature.kink_jump`'s business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified.arithmetic import negate
from ntk_deq.certified.dense import Ball, no_information, transpose
from ntk_deq.certified.rounding import add_up, multiply_up
from ntk_deq.dynamics.proven.operations import multiple, product, row_multiples, total
from ntk_deq.systems.model import SingleLayer

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


def _pre_activation(problem: Problem, weight: Ball, norm: float, state: Ball, source: Ball) -> tuple[Ball, Ball]:
    recurrent = multiple(problem.form.factor, product(state, weight, norm_b=norm))
    return recurrent, total(recurrent, source)


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
    recurrent, pre = _pre_activation(problem, weight, weight_norm, Ball(Z), source)
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
