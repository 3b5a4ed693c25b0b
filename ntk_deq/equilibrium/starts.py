"""Cheap starts for a fixed-point solve: plain steps with few looks at the residual, in single precision first.

A start decides nothing. The driver judges every sample from there, so that a poor start costs steps and no more.

A fixed point along a run, with how near it is.

Which entries of a solved state near a kink at zero are fed, and which are zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Map = Callable[[Tensor], Tensor]

# Where the driver's default tolerance of 32 eps is as good as met on every sample.
_TARGET_EPS = 8.0
# At most so many steps between two looks at the residual, and in all; a slow map is then left to the driver.
_LONGEST_STRIDE = 32
_LONGEST_START = 256
# Each pass in single precision gains 7 digits, so that two reach what double precision can hold.
_PASSES = 2


def near_fixed_point(step: Map, initial: Tensor, *, max_steps: int) -> tuple[Tensor, int]:
    """Return a point close to the fixed point, by plain steps whose residual is looked at only now and then.

    Between two looks lie as many steps as the decrease seen so far says are needed. The result is the last point before
    the residual, taken over all samples together, ceased to fall.

    Args:
        step: The fixed-point map.
        initial: Where to start, and the result where no progress is made.
        max_steps: Steps allowed.

    Returns:
        The point and the number of steps made.

    Example:
        >>> near_fixed_point(lambda z: z / 2 + 1, torch.zeros(1, dtype=torch.float64), max_steps=100)
        (tensor([2.0000], dtype=torch.float64), 50)
    """
    target = _TARGET_EPS * torch.finfo(initial.dtype).eps
    start, point, smallest, made, stride = initial, initial, math.inf, 0, 1
    while made + stride <= min(max_steps, _LONGEST_START):
        for _ in range(stride - 1):
            point = step(point)
        image = step(point)
        made += stride
        residual = float(torch.linalg.vector_norm(image - point))
        if not residual < smallest:  # NaN ends the search too
            break
        goal = target * float(torch.linalg.vector_norm(image))
        start = point = image
        if residual <= goal:
            break
        decrease = math.log(residual / smallest) / stride if smallest < math.inf else -math.inf
        needed = math.ceil(math.log(goal / residual) / decrease) if goal > 0 else 1
        smallest, stride = residual, max(1, min(needed, 2 * stride, _LONGEST_STRIDE))
    return start, made


def near_affine_fixed_point(step: Map, single: Map, initial: Tensor, *, max_steps: int) -> tuple[Tensor, int]:
    """Return a point close to the fixed point of an affine map, by iterative refinement.

    The residual r of the present point is formed in double precision. The correction solves the linear fixed point
    delta = r + (single(delta) - single(0)) in single precision, which costs half as much or less; r is brought to the
    size of single(0) for that, or the difference would lose it.

    Args:
        step: The map v -> c + M v, in double precision.
        single: The same map in single precision, up to its rounding.
        initial: Where to start.
        max_steps: Steps allowed, of both kinds together.

    Returns:
        The point and the number of steps made.

    References:
        Higham (2002), Accuracy and Stability of Numerical Algorithms, chapter 12.

    Example:
        >>> half = lambda z: z / 2 + 1
        >>> near_affine_fixed_point(half, half, torch.zeros(1, dtype=torch.float64), max_steps=100)
        (tensor([2.0000], dtype=torch.float64), 42)
    """
    point, made = initial, 0
    constant = single(torch.zeros_like(initial, dtype=torch.float32))
    for _ in range(_PASSES):
        if made >= max_steps:
            break
        scale, forcing = _scaled_residual(step, point, constant)
        corrected = partial(_corrected, single, forcing)
        correction, steps = near_fixed_point(corrected, forcing + constant, max_steps=max_steps - made)
        made += 1 + steps
        refined = point + scale * correction
        if not torch.isfinite(refined).all():
            break
        point = refined
    return point, made


def _scaled_residual(step: Map, point: Tensor, constant: Tensor) -> tuple[Tensor, Tensor]:
    """Return the residual's size against the constant's, and the residual over that size less the constant."""
    residual = step(point) - point
    scale = torch.linalg.vector_norm(residual) / torch.linalg.vector_norm(constant).to(point.dtype)
    return scale, (residual / scale).float() - constant


def _corrected(single: Map, forcing: Tensor, delta: Tensor) -> Tensor:
    return single(delta) + forcing


RowMap: TypeAlias = Callable[[Tensor, Tensor], None]
"""Writes the value at its first argument into its second."""


@dataclass(frozen=True, eq=False)
class Solved:
    """A fixed point as the solver left it.

    Attributes:
        value: The point; it belongs to the solver's history; only what stays within `error` may be written to it.
        steps: Evaluations of the map; one of n rows out of N counts n/N.
        norm: Its Frobenius norm.
        error: Bound q/(1 - q) norm(F(z) - z) on its distance from the fixed point, with z the point one step before.
        contraction: The bound q that was used.
        beside: What was read off the device together with the residual.
    """

    value: Tensor
    steps: float
    norm: float
    error: float
    contraction: float
    beside: float


# Rounds without a change after which what is fed counts as known, although values still move.
_STEADY = 8


def settle_rows(
    Z: Float[Tensor, "N m"],
    rows: Int[Tensor, " n"],
    doubtful: Bool[Tensor, "n m"],
    step: RowMap,
    margin: Callable[[Tensor], Tensor],
    contraction: float,
) -> int:
    """Find out which doubtful entries of some rows are fed, set the others to zero, and return the evaluations made.

    With the entries in no doubt held as they are, the doubtful ones u solve a fixed-point problem of their own,
    u = G(u), with the same contraction q. It is iterated from zero. So an entry that only feeds itself stays at exactly
    zero, as in the least fixed point; one that is fed over k hops comes up in round k, however small; and the values
    are of the size of what feeds them, where in Z they drown in the error of all other entries.

    It ends once the same entries are fed in two rounds, and no more can change: the pre-activation of each is further
    from zero than q/(1 - q) norm(G(u) - u), that of its row, or exactly zero, as where nothing reaches it. With weights
    >= 0 what is fed only grows, and two equal rounds are proof. With others an entry may be told by the eighth equal
    round, and after m + 8 rounds in any case.

    Entries that are fed keep their value in Z, or get that of the last round where it was zero.

    Args:
        Z: The state; written to.
        rows: Rows with doubtful entries.
        doubtful: Which entries of these rows are in doubt.
        step: The map of these rows.
        margin: Gives the pre-activations of these rows at the last evaluation, which returned its argument.
        contraction: The bound q < 1.
    """
    known, m = Z[rows], Z.shape[1]
    state, image = known.masked_fill(doubtful, 0.0), torch.empty_like(known)
    fed, steady, made = torch.zeros_like(doubtful), 0, 0
    while steady <= _STEADY and made < m + _STEADY:
        step(state, image)
        made += 1
        following = torch.where(doubtful, image, known)
        error = torch.linalg.vector_norm(following - state, dim=1, keepdim=True).mul_(contraction / (1 - contraction))
        now, distance = doubtful & (image != 0), margin(image).abs()
        if not torch.equal(now, fed):
            steady = 0
        elif not bool((doubtful & (distance != 0) & (distance <= error)).any()):
            break
        fed, state, steady = now, following, steady + 1
    Z[rows] = torch.where(doubtful & (~fed | (known == 0)), state, known)
    return made
