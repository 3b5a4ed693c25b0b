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
from ntk_deq.certified.rounding import add_up, divide_up, multiply_up, subtract_down


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
IDENTITY = Activation(
    lambda a: a, lambda values: values, lambda pre: Slopes(*[torch.ones_like(pre.centre)] * 2), linear=True
)


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

    def float_slopes(self, Z: Float[Tensor, "N m"]) -> Float[Tensor, "N m"]:
        """Return slopes of the activation at a state, in plain floating point."""
        return self.slopes(Ball(Z @ self.weight.centre + self.source.centre)).middle

    def systems(self, slopes: Float[Tensor, "N m"]) -> Float[Tensor, "N m m"]:
        """Return I - L D for each sample's slopes D, in plain floating point."""
        unit = torch.eye(slopes.shape[1], dtype=slopes.dtype, device=slopes.device)
        return unit - self.weight.centre * slopes[:, None, :]

    def slopes(self, pre: Ball) -> Slopes:
        """Return bounds on the activation's slopes over a ball of pre-activations; 0 at an exact zero.

        Valid for difference quotients as long as the zeros in `at_zero` do not depend on the state.
        """
        found = self.activation.slopes(pre)
        if self.at_zero is None:
            return found
        return Slopes(found.low.masked_fill(self.at_zero, 0.0), found.high.masked_fill(self.at_zero, 0.0))


def banach_bound(residual: float, contraction: float) -> float:
    """Return residual/(1 - q), which bounds the distance of a point from the fixed point of a q-contraction.

    Args:
        residual: Upper bound of norm(f(z) - z); 1 gives the gain 1/(1 - q) itself.
        contraction: Upper bound of q; infinite where it is not below one.

    Example:
        >>> banach_bound(0.0, 0.5), banach_bound(1.0, 1.0), banach_bound(1.0, 0.5) >= 2
        (0.0, inf, True)
    """
    return divide_up(residual, subtract_down(1.0, contraction))


MOST_WORK = 1 << 31
"""Patterns times m^3 up to which inverses are formed: a few seconds on one core."""


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
