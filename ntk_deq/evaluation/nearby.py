"""A fixed point that is shown to be the only one near a state, where nothing is known of states farther away.

Let S be the difference quotients of the map F between states within rho of z, F(a) - F(b) = S (a - b), and R a matrix
about inv(I - J). T(a) = a + R (F(a) - a) moves two such states apart by I - R (I - S) at most, so by q at most, and z
by r = norm(R (F(z) - z)). Where q < 1 and r <= (1 - q) rho it is a contraction of that ball into itself: it has one
fixed point there, within r/(1 - q) of z. As q < 1, R has an inverse, and the fixed points of T are those of F.

S is no derivative: at corners it lies between the slopes on the two sides, and nothing need be smooth.

References:
    Rump, Acta Numerica 19, 2010, section 13 (the test of Krawczyk, here in the norm of Frobenius).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.dispatch import dense_form
from ntk_deq.certified.inversion import approximate_inverse
from ntk_deq.certified.precise import PreciseMatrix, as_ball
from ntk_deq.certified.precise.matrix import from_rows
from ntk_deq.certified.rounding import add_up, divide_up, multiply_up, subtract_down
from ntk_deq.evaluation.environment import Environment
from ntk_deq.evaluation.quantity import Matrix

LARGEST, LARGEST_PRECISE = 256, 64
"""Entries of a state up to which I - J is written out: in floats, and in arb."""

_TRIES = 8
_GROWTH = 8.0
_LEAST = 2.0**-48  # relative to the state: rounding moves a solved one by less
_LEAST_PRECISE = 2.0**-70
_WIDE = 2.0**-6  # relative to the state: so far it is looked for others
_TINY = 2.0**-500


@dataclass(frozen=True)
class Nearby:
    """A fixed point that is the only one within some distance of a state.

    Attributes:
        radius: How far from the state it is at most.
        alone: Within which distance of the state it is the only one.
    """

    radius: float
    alone: float


def nearby_fixed_point(env: Environment, state: Matrix, image: Matrix) -> Nearby | str:
    """Return what is known of the fixed point of the model's map near a state, or why nothing is.

    Args:
        env: What the names of the map mean.
        state: The state, without a radius.
        image: What the map makes of it.
    """
    rows, cols = state.ball.shape
    most = LARGEST if env.precision is None else LARGEST_PRECISE
    if rows * cols > most:
        return f"the state has {rows * cols} entries, and I - J is written out for {most} at most"
    residual = dense_form(ct.subtract(image.ball, state.ball))
    size = max(sc.upper(ct.frobenius(state.ball)), _TINY)
    rho = multiply_up(_LEAST if env.precision is None else _LEAST_PRECISE, size)
    rho = max(rho, multiply_up(2.0, sc.upper(ct.frobenius(residual))))
    if not rho < math.inf:
        return "the map has no value at the point found"
    slopes = env.providers.quotients(env, _around(state, rho))
    if slopes is None:
        return "the slopes of the map are not known"
    unit = env.constant(ct.Ball(torch.eye(rows * cols, dtype=env.like.dtype, device=env.like.device)))
    system = ct.subtract(unit, slopes)
    found = approximate_inverse(system.approximate if isinstance(system, PreciseMatrix) else system.work)
    if found is None:
        return "I - J is singular to working precision"
    inverse = env.constant(ct.Ball(found.to(env.like.dtype)))
    moved = ct.matmul(inverse, ct.vec(ct.transpose(residual)))
    r = sc.upper(ct.frobenius(moved))
    rho = max(rho, multiply_up(2.0, r))
    for _ in range(_TRIES):
        q = _contraction(env, _around(state, rho), inverse, unit)
        left = subtract_down(1.0, q)
        if not left > 0:
            return f"the slopes of the map within {rho:.3g} of the point found are not known well enough (q = {q:.3g})"
        radius = divide_up(r, left)
        if radius <= rho:
            wide = max(rho, _WIDE * size)  # nothing but the distance of others follows from it
            left = subtract_down(1.0, _contraction(env, _around(state, wide), inverse, unit))
            return Nearby(radius, wide if left > 0 and divide_up(r, left) <= wide else rho)
        rho = max(_GROWTH * rho, radius)
    return "no ball around the point found is mapped into itself"


def _contraction(env: Environment, states: Matrix, inverse: ct.Ball, unit: ct.Ball) -> float:
    """Return a Lipschitz constant of T on a ball of states; inf where none is known."""
    slopes = env.providers.quotients(env, states)
    if slopes is None:
        return math.inf
    defect = ct.subtract(unit, ct.matmul(inverse, ct.subtract(unit, slopes)))
    return sc.upper(ct.frobenius(defect) if env.precision is not None else ct.spectral_norm(defect))


def _around(state: Matrix, rho: float) -> Matrix:
    """Return the ball of the states within rho of a state."""
    ball = state.ball
    if isinstance(ball, PreciseMatrix):
        spread = sc.with_radius(0.0, rho)
        ball = as_ball(from_rows(*ball.shape, (entry + spread for entry in ball.flat)))
    else:
        ball = ct.Ball(ball.centre, add_up(ball.radius, rho))
    return Matrix(ball, state.scale + rho)
