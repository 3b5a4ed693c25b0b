"""One implicit layer in balls, Z -> act(Z L + C), and what the slopes of its activation can be on a ball of states.

A difference of two states passes through the layer as (Z - Z') L, each entry then multiplied by a slope of the
activation between the two. So bounds on the slopes bound the layer's Lipschitz constant on a ball of states, and a
slope that is certain is the activation's derivative there.

Approximate inverses of I - L D, one for each pattern of activation slopes, with proofs of how good they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ntk_deq.certified.arithmetic import add, column_multiples, matmul, subtract
from ntk_deq.certified.dense import Ball, identity, relu, transpose
from ntk_deq.certified.inversion import approximate_inverse, identity_defect, size_up
from ntk_deq.certified.rounding import add_up, multiply_up


@dataclass(frozen=True, eq=False)
class Slopes:
    """Bounds 0 <= low <= slope <= high <= 1 on every difference quotient of an activation, entry by entry.

    Attributes:
        low: N x m.
        high: N x m.
    """

    low: Float[Tensor, "N m"]
    high: Float[Tensor, "N m"]

    @property
    def certain(self) -> Bool[Tensor, "N m"]:
        """Where the slope is known."""
        return self.low == self.high

    @property
    def middle(self) -> Float[Tensor, "N m"]:
        """A slope between the bounds."""
        return (self.low + self.high) / 2

    @property
    def spread(self) -> Float[Tensor, "N m"]:
        """How far from `middle` the slope can be; zero where it is certain."""
        middle = self.middle
        far = torch.maximum(self.high - middle, middle - self.low)
        return torch.where(far > 0, torch.nextafter(far, torch.ones_like(far)), far)


def relu_slopes(pre: Ball) -> Slopes:
    """Return the slopes of relu on every matrix of a ball: 1 above zero, 0 below and at a zero that is exact.

    Example:
        >>> slopes = relu_slopes(Ball(torch.tensor([[-1.0, 0.1, 2.0]]), 0.5))
        >>> slopes.low.tolist(), slopes.high.tolist()
        ([[0.0, 0.0, 1.0]], [[0.0, 1.0, 1.0]])
    """
    if not pre.is_finite:
        return Slopes(torch.zeros_like(pre.centre), torch.ones_like(pre.centre))
    low = pre.work > pre.radius
    high = low if pre.is_exact else pre.work >= -pre.radius
    return Slopes(low.to(pre.centre.dtype), high.to(pre.centre.dtype))


def unit_slopes(pre: Ball) -> Slopes:
    """Return the slopes of the identity, 1 everywhere.

    Example:
        >>> unit_slopes(Ball(torch.zeros(1, 2))).low.tolist()
        [[1.0, 1.0]]
    """
    ones = torch.ones_like(pre.centre)
    return Slopes(ones, ones)


@dataclass(frozen=True)
class Activation:
    """An entrywise map with slopes in [0, 1].

    Attributes:
        value: The map in balls.
        function: The map in plain floating point.
        slopes: Bounds on its difference quotients over a ball.
        linear: Whether the slopes are the same everywhere, so that a local proof of uniqueness is a global one.
    """

    value: Callable[[Ball], Ball]
    function: Callable[[Tensor], Tensor]
    slopes: Callable[[Ball], Slopes]
    linear: bool = False


RELU = Activation(relu, torch.relu, relu_slopes)
IDENTITY = Activation(lambda a: a, lambda values: values, unit_slopes, linear=True)


@dataclass(frozen=True, eq=False)
class BallLayer:
    """The fixed-point map Z -> act(Z L + C) of a model at given inputs, in balls, and the gradient of its readout.

    Attributes:
        weight: L, m x m.
        source: C, N x m.
        readout: What each prediction changes by with its row of Z, 1 x m.
        activation: act.
        at_zero: Entries whose pre-activation is exactly zero for certain, which a ball of common radius cannot say;
            None: not known of any.

    Example:
        >>> one = Ball(torch.ones(1, 1))
        >>> BallLayer(Ball(torch.full((1, 1), 0.5)), one, one, RELU).step(Ball(torch.full((1, 1), 2.0)))
        Ball(1 x 1, float32, radius=0)
    """

    weight: Ball
    source: Ball
    readout: Ball
    activation: Activation
    at_zero: Bool[Tensor, "N m"] | None = None

    def pre_activation(self, Z: Ball) -> Ball:
        """Return Z L + C."""
        return add(matmul(Z, self.weight), self.source)

    def step(self, Z: Ball) -> Ball:
        """Return act(Z L + C)."""
        return self.activation.value(self.pre_activation(Z))

    def float_step(self, Z: Float[Tensor, "N m"]) -> Float[Tensor, "N m"]:
        """Return the map in plain floating point, to solve with."""
        return self.activation.function(Z @ self.weight.centre + self.source.centre)

    def slopes(self, pre: Ball) -> Slopes:
        """Return bounds on the activation's slopes over a ball of pre-activations; 0 at an exact zero.

        Valid for difference quotients as long as the zeros in `at_zero` do not depend on the state.
        """
        found = self.activation.slopes(pre)
        if self.at_zero is None:
            return found
        return Slopes(found.low.masked_fill(self.at_zero, 0.0), found.high.masked_fill(self.at_zero, 0.0))


MOST_WORK = 1 << 31
"""Patterns times m^3 up to which inverses are formed: a few seconds on one core."""

_NEWTON_STEPS = 30
# A piecewise linear system ends after as many steps as patterns are passed through; more than this is a cycle.


@dataclass(frozen=True, eq=False)
class PatternInverse:
    """R about the inverse of I - L D on the rows that share bounds on their slopes D.

    Attributes:
        rows: Which.
        inverse: R, an exact ball m x m.
        right_defect: Bound on norm(I - (I - L D) R) for every D between the bounds.
        left_defect: Likewise on norm(I - R (I - L D)).
    """

    rows: Int[Tensor, " k"]
    inverse: Ball
    right_defect: float
    left_defect: float


def transposed(found: PatternInverse) -> PatternInverse:
    """Return the inverse of the transposed system."""
    return PatternInverse(found.rows, transpose(found.inverse), found.left_defect, found.right_defect)


def pattern_inverses(weight: Ball, slopes: Slopes) -> list[PatternInverse] | None:
    """Return an approximate inverse for each pattern of slopes; None where one breaks down or the work is too much.

    Args:
        weight: L, m x m.
        slopes: Bounds on D, N x m.

    Example:
        >>> ones = torch.ones(1, 1, dtype=torch.float64)
        >>> found = pattern_inverses(Ball(3 * ones), Slopes(ones, ones))
        >>> found[0].inverse.centre.item(), found[0].right_defect < 1e-15
        (-0.5, True)
    """
    order = weight.shape[0]
    both = torch.cat([slopes.low, slopes.high], dim=1)
    patterns, belongs = torch.unique(both, dim=0, return_inverse=True)
    if patterns.shape[0] * order**3 > MOST_WORK:
        return None
    result = []
    for index, pattern in enumerate(patterns):
        row = Slopes(pattern[None, :order], pattern[None, order:])
        found = _one_inverse(weight, row, (belongs == index).nonzero().flatten())
        if found is None:
            return None
        result.append(found)
    return result


def _weighted(weight: Ball, factors: Tensor) -> Ball:
    product, rounded = column_multiples(weight.work, factors)
    return Ball(product, add_up(weight.radius, rounded))


def _one_inverse(weight: Ball, row: Slopes, rows: Tensor) -> PatternInverse | None:
    unit = identity(weight.shape[0], device=weight.centre.device)
    system = subtract(unit, _weighted(weight, row.middle))
    inverted = approximate_inverse(system.centre)
    if inverted is None:
        return None
    inverse = Ball(inverted)
    right, left = size_up(identity_defect(system, inverse)), size_up(identity_defect(inverse, system))
    uncertain = (row.spread > 0).to(inverted.dtype)
    if bool(uncertain.any()):
        # D - middle = T spread with diagonal T of norm at most 1, which commutes with the choice of rows of R.
        unsure, picked = _weighted(weight, row.spread), Ball(inverted * uncertain.mT)
        right = add_up(right, multiply_up(size_up(unsure), size_up(picked)))
        left = add_up(left, size_up(matmul(inverse, unsure)))
    return PatternInverse(rows, inverse, right, left)


def newton_steps(layer: BallLayer, start: Float[Tensor, "N m"]) -> Float[Tensor, "N m"]:
    """Return where Newton's method ends in floating point; nothing is promised of it.

    Each step solves the linear system of the present slopes, row by row: exact for a linear layer, finite for most
    piecewise linear ones.

    Args:
        layer: The map.
        start: Where to start.

    Example:
        >>> from ntk_deq.equilibrium.slopes import IDENTITY
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> newton_steps(BallLayer(Ball(3 * one), Ball(one), Ball(one), IDENTITY), 0 * one).item()
        -0.5
    """
    order = layer.weight.shape[0]
    if start.shape[0] * order**3 > MOST_WORK:
        return start
    unit = torch.eye(order, dtype=start.dtype, device=start.device)
    point, best, least = start, start, float("inf")
    for _ in range(_NEWTON_STEPS):
        pre = Ball(point @ layer.weight.centre + layer.source.centre)
        if not pre.is_finite:
            break
        gap = point - layer.activation.function(pre.centre)
        size = float(torch.linalg.vector_norm(gap))
        if size < least:
            best, least = point, size
        systems = unit - layer.weight.centre * layer.slopes(pre).middle[:, None, :]
        change, info = torch.linalg.solve_ex(systems.mT, gap[:, :, None])
        if bool(info.any()) or size == 0:
            break
        point = point - change[:, :, 0]
    return best


def linear_adjoint(layer: BallLayer, slopes: Float[Tensor, "N m"]) -> Float[Tensor, "N m"]:
    """Return V with V = b' + (V .* D) L' in floating point by linear systems, or b' where they are too many.

    Args:
        layer: Gives L and b.
        slopes: D.

    Example:
        >>> from ntk_deq.equilibrium.slopes import IDENTITY
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> linear_adjoint(BallLayer(Ball(3 * one), Ball(one), Ball(one), IDENTITY), one).item()
        -0.5
    """
    readout = layer.readout.centre.expand_as(slopes)
    order = slopes.shape[1]
    if slopes.shape[0] * order**3 > MOST_WORK:
        return readout.contiguous()
    unit = torch.eye(order, dtype=slopes.dtype, device=slopes.device)
    systems = unit - layer.weight.centre * slopes[:, None, :]
    return torch.linalg.solve_ex(systems, readout[:, :, None])[0][:, :, 0]
