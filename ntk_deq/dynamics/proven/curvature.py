"""How far one step of gradient descent can take two nearby parameter vectors apart: bounds for equilibrium models.

The model is z = (s z P + x S E) D with yhat = Z b (`point`), G = D V the adjoints of the predictions past the
activation, r = yhat - y, T = diag(r) G. A ball of parameters holds all with fro(dP) <= e_P, fro(dS) <= e_S and
norm(db) <= e_b around a centre; M = 1/(1 - s norm(P)) with the largest norm(P) in the ball. Every bound is the largest
over the ball.

Differences (`reach`). Subtracting the equations at two points and solving for the difference, each solve a factor M:

    fro(dZ) <= M (s norm(Z) e_P + norm(X) e_S),          norm(dr) <= fro(dZ) norm(b) + norm(Z) e_b,
    fro(dT) <= M (norm(dr) norm(b) + norm(r) e_b + s norm(T) e_P),    norm(dv_n) <= M (e_b + s norm(g_n) e_P).

The first two hold for relu itself, the others while the pattern D stays.

Curvature (`expansion`). On a fixed pattern, with dot for the derivative along a direction (dP, dS, db) of length one,

    z. = u M_n,   u = s z dP + x dS E,   M_n = D (I - s P D)^-1,      f.. = 2 z. w,   w = s dP g' + db,

    K = sum_n r_n f_n..,   |K| <= 2 sum_n |r_n| norm(M_n) norm(u_n) norm(w_n) <= 2 (p.v)(q.v),   v = (|dP|, |dS|, |db|),

for p = (s norm(om G), 0, norm(om)) and q = (s norm(om Z), norm(om X), 0), om the diagonal matrix of the roots of
|r_n| norm(M_n). The largest value of 2 (p.v)(q.v) over unit vectors is

    c = norm(p) norm(q) + p.q.

All of |r_n| norm(M_n) may also go to one side, where norm(T) is less than it would be without the signs of r. And
where all samples share one pattern, as in a linear model, M_n and g_n are the same M and g for all, and residuals
cancel in the sums: p = (s norm(g), 0, 1), q = norm(M) (s norm(Z'r), norm(X'r), 0). The smallest c counts.

The Hessian of the loss is J'J + K, and the eigenvalues of I - eta (J'J + K) lie in [1 - eta (lambda + c), 1 + eta c]
with lambda = lambda_max(J'J) = lambda_max(H). As c goes to zero with the residual, the product of all 1 + eta c_k stays
bounded where the loss decays.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified.products import summing_error
from ntk_deq.certified.rounding import TINY, add_up, fro_up, multiply_up, root_up
from ntk_deq.certified.structure import transpose
from ntk_deq.dynamics.proven.point import CertifiedPoint, Problem
from ntk_deq.dynamics.proven.rounded import product

_OUTWARD = 1.0 + 2.0**-40
# More than what a few roundings in a row take off an entry.


@dataclass(frozen=True)
class Sizes:
    """Upper bounds of norms at the centre of a ball of parameters, and the ball's radii.

    Attributes:
        state: norm(Z), spectral.
        residual: norm(r).
        weighted: norm(T), spectral.
        row: The longest row of G.
        readout: norm(b) over the whole ball.
        errors: e_P, e_S and e_b.
    """

    state: float
    residual: float
    weighted: float
    row: float
    readout: float
    errors: tuple[float, float, float]


@dataclass(frozen=True)
class Reach:
    """How far the model's quantities are from those at the centre, anywhere in a ball of parameters.

    Attributes:
        state: fro(dZ).
        residual: norm(dr).
        weighted: fro(dT).
        row: The longest row of dG, and of dV.
        gradients: Of the gradients of P, S and b.
    """

    state: float
    residual: float
    weighted: float
    row: float
    gradients: tuple[float, float, float]


def short_norm(tensor: Float[Tensor, "rows cols"]) -> float:
    """Return an upper bound of the spectral norm, too large by the fourth root of the rank at most.

    norm(A)^2 = norm(AA') <= fro(AA').

    Example:
        >>> 1.0 <= short_norm(torch.eye(16, dtype=torch.float64)) < 2.0 + 1e-12
        True
    """
    short = tensor if tensor.shape[0] <= tensor.shape[1] else tensor.mT
    (rows, cols), size = short.shape, fro_up(tensor)
    rounded = multiply_up(summing_error(cols), size, size)
    underflow = multiply_up(float(rows * cols), TINY)
    return min(size, root_up(add_up(fro_up(short @ short.mT), rounded, underflow)))


def reach(problem: Problem, point: CertifiedPoint, sizes: Sizes) -> Reach:
    """Bound the differences of a ball of parameters from its centre (see the module)."""
    s, M, (e_weight, e_source, e_readout) = problem.form.factor, point.stretch, sizes.errors
    state = multiply_up(M, add_up(multiply_up(s, sizes.state, e_weight), multiply_up(problem.inputs_norm, e_source)))
    residual = add_up(multiply_up(state, sizes.readout), multiply_up(sizes.state, e_readout))
    weighted = multiply_up(
        M,
        add_up(
            multiply_up(residual, sizes.readout),
            multiply_up(sizes.residual, e_readout),
            multiply_up(s, sizes.weighted, e_weight),
        ),
    )
    row = multiply_up(M, add_up(e_readout, multiply_up(s, sizes.row, e_weight)))
    by_weight = add_up(multiply_up(state, add_up(sizes.weighted, weighted)), multiply_up(sizes.state, weighted))
    by_readout = add_up(multiply_up(state, add_up(sizes.residual, residual)), multiply_up(sizes.state, residual))
    by_source = multiply_up(problem.inputs_norm, weighted)
    return Reach(state, residual, weighted, row, (multiply_up(s, by_weight), by_source, by_readout))


def expansion(
    problem: Problem, point: CertifiedPoint, sizes: Sizes, far: Reach, stretches: Float[Tensor, " N"]
) -> float:
    """Return c, a bound on the residual's part of the Hessian over a ball of parameters (see the module).

    Args:
        problem: Model form and data.
        point: The model at the centre.
        sizes: Norms there.
        far: How far quantities move in the ball.
        stretches: Upper bounds of norm(M_n) over the ball.
    """
    form, M = problem.form, float(stretches.amax())
    s = form.factor
    state = add_up(sizes.state, far.state)
    one_sided = _largest(
        multiply_up(s, add_up(sizes.weighted, far.weighted)),
        add_up(sizes.residual, far.residual),
        multiply_up(M, s, state),
        multiply_up(M, problem.inputs_norm),
    )
    unsure = add_up(point.residual.radius, far.residual)
    shares = (((point.residual.centre.abs() + unsure) * stretches[:, None]).sqrt() * _OUTWARD).nan_to_num(nan=torch.inf)
    most = float(shares.amax())
    rows = root_up(float(len(shares)))
    around = multiply_up(most, add_up(point.state.radius, far.state))
    adjoint = multiply_up(most, add_up(point.passed.radius, multiply_up(rows, far.row)))
    shared = _largest(
        multiply_up(s, add_up(_scaled_norm(shares, point.passed.centre), adjoint)),
        fro_up(shares),
        multiply_up(s, add_up(_scaled_norm(shares, point.state.centre), around)),
        add_up(_scaled_norm(shares, problem.inputs.centre), multiply_up(most, problem.inputs.radius)),
    )
    summed = _summed(problem, point, sizes, far, M) if form.activation.linear and form.inner.linear else shared
    return min(one_sided, shared, summed)


def _summed(problem: Problem, point: CertifiedPoint, sizes: Sizes, far: Reach, M: float) -> float:
    """Return c where all samples share one pattern."""
    s, by_readout = problem.form.factor, point.gradients[problem.form.readout]
    inputs = product(transpose(problem.inputs), point.residual, norm_a=problem.inputs_norm)
    return _largest(
        multiply_up(s, add_up(sizes.row, far.row)),
        1.0,
        multiply_up(M, s, add_up(by_readout.fro, by_readout.radius, far.gradients[2])),
        multiply_up(M, add_up(inputs.fro, inputs.radius, multiply_up(problem.inputs_norm, far.residual))),
    )


def _scaled_norm(shares: Float[Tensor, "N 1"], matrix: Tensor) -> float:
    """Return an upper bound of the spectral norm of diag(shares) A."""
    scaled = shares * matrix
    underflow = multiply_up(float(scaled.numel()), TINY)
    return add_up(multiply_up(short_norm(scaled), _OUTWARD), underflow)


def _largest(p_weight: float, p_readout: float, q_weight: float, q_source: float) -> float:
    """Return norm(p) norm(q) + p.q."""
    return add_up(multiply_up(_hypot(p_weight, p_readout), _hypot(q_weight, q_source)), multiply_up(p_weight, q_weight))


def _hypot(left: float, right: float) -> float:
    return root_up(add_up(multiply_up(left, left), multiply_up(right, right)))


def gain(problem: Problem, sizes: Sizes, far: Reach) -> float:
    """Return a quick bound on lambda_max(J'J) over a ball of parameters.

    H = ZZ' + s^2 (GG') .* (ZZ') + ((G.*E)(G.*E)') .* (XX'), and a Hadamard product with a positive semidefinite matrix
    of diagonal g^2 multiplies the largest eigenvalue by the largest g^2 at most.
    """
    row = add_up(sizes.row, far.row)
    state, slope, inputs = add_up(sizes.state, far.state), multiply_up(problem.form.factor, row), problem.inputs_norm
    return add_up(
        multiply_up(state, state, add_up(1.0, multiply_up(slope, slope))), multiply_up(row, row, inputs, inputs)
    )
