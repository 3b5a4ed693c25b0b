"""The largest eigenvalue of the tangent kernel over a ball of parameters, for steps too long for the quick bound."""

from __future__ import annotations

from flint import arb

from ntk_deq.certified.arithmetic import add, hadamard, scale
from ntk_deq.certified.ball import Ball
from ntk_deq.certified.products import matmul
from ntk_deq.certified.rounding import add_up, multiply_up, root_up
from ntk_deq.certified.structure import transpose
from ntk_deq.dynamics.carried_norm import CarriedNorm
from ntk_deq.dynamics.certified_point import CertifiedPoint, Problem
from ntk_deq.dynamics.curvature import Reach


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
