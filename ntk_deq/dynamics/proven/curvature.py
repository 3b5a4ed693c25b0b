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

The Hessian of the loss at a small model, as one ball: sharper than `curvature` where samples cancel each other.

On a fixed activation pattern, with the notation of `curvature`, the derivatives along a direction (dP, dS, db) are

    z. = (s z dP + x dS E) M_n,   w = s dP g' + db,   yhat. = z (s dP g' + db) + x dS E g',

and the Hessian is J'J + K with J the matrix of yhat. and K = sum_n r_n (z.'w + w'z.), z. and w as matrices that act on
the direction. All of it is one product of stacked matrices with 2 N m + N rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ntk_deq.certified import rounding
from ntk_deq.certified.arithmetic import product_radius, summing_error
from ntk_deq.certified.dense import Ball, transpose
from ntk_deq.certified.rounding import (
    TINY,
    add_up,
    divide_up,
    fro_up,
    largest_entry,
    multiply_up,
    root_up,
    subtract_down,
)
from ntk_deq.certified.scalar import lower, upper
from ntk_deq.certified.spectra import eigenvalues_symmetric
from ntk_deq.dynamics.proven import CertifiedPoint, Problem
from ntk_deq.dynamics.proven.operations import distance, longest_row, product

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


MOST_PARAMETERS = 150
"""Up to this order a Hessian's eigenvalues cost at most as much as a step or two."""

MOST_ENTRIES = 1 << 16
"""Up to this many entries of the matrix of z. the Hessian costs about as much as a step."""


def is_small(point: CertifiedPoint) -> bool:
    """Whether the model is small enough for its Hessian."""
    order = sum(value.centre.numel() for value in point.gradients.values())
    return order <= MOST_PARAMETERS and order * point.state.centre.numel() <= MOST_ENTRIES


@dataclass(frozen=True, eq=False)
class Inverses:
    """M_n = D (I - L D)^-1 of every sample.

    Attributes:
        centres: N x m x m.
        radius: Bound on the Frobenius distance from each to the truth; infinite where nothing is known.
    """

    centres: Float[Tensor, "N m m"]
    radius: float


def sample_inverses(weight: Ball, slopes: Float[Tensor, "N m"]) -> Inverses:
    """Return M_n for every L in a ball.

    With E = I - (I - L D) R of norm d < 1 the inverse is R (I - E)^-1, at most norm(R) d/(1 - d) away from R.

    Args:
        weight: L, m x m.
        slopes: D, a sample a row.

    Example:
        >>> half = torch.full((1, 1), 0.5, dtype=torch.float64)
        >>> found = sample_inverses(Ball(half), torch.ones_like(half))
        >>> found.centres.item(), found.radius < 1e-14
        (2.0, True)
    """
    m = weight.shape[0]
    unit = torch.eye(m, dtype=slopes.dtype, device=slopes.device)
    systems = unit - weight.centre * slopes[:, None, :]
    inverted, info = torch.linalg.inv_ex(systems)
    defects = unit - systems @ inverted
    sizes = [torch.linalg.matrix_norm(stack).amax() for stack in (systems, inverted, defects)]
    system, inverse, defect, failed = torch.stack([*sizes, (info != 0).any().to(slopes.dtype)]).tolist()
    if failed:
        return Inverses(inverted, math.inf)
    # Each float norm is off by its own rounding, (m^2 + 4) u at most; the products and differences round once each.
    outward = 1.0 + 2.0 * (m * m + 8) * 2.0**-52
    system, inverse, defect = (multiply_up(size, outward) for size in (system, inverse, defect))
    u = rounding.unit_roundoff()
    off = add_up(weight.radius, multiply_up(2.0 * u, add_up(system, weight.fro)))
    rounded = multiply_up(summing_error(m + 1), add_up(root_up(float(m)), multiply_up(system, inverse)))
    d = add_up(defect, rounded, multiply_up(off, inverse), multiply_up(float(m * m * m), TINY))
    radius = add_up(divide_up(multiply_up(inverse, d), subtract_down(1.0, d)), multiply_up(u, inverse))
    return Inverses(slopes[:, :, None] * inverted, radius)


def hessian(problem: Problem, point: CertifiedPoint, far: Reach, inverses: Inverses) -> Ball:
    """Return the Hessian on a fixed pattern, for every parameter vector in a ball, parameters in the order P, S, b.

    Args:
        problem: Model form and data.
        point: The model at the centre.
        far: How far quantities move in the ball.
        inverses: M_n over the ball.
    """
    Z = Ball(point.state.centre, add_up(point.state.radius, far.state))
    r = Ball(point.residual.centre, add_up(point.residual.radius, far.residual))
    rows = root_up(float(Z.shape[0]))
    G = Ball(point.passed.centre, add_up(point.passed.radius, multiply_up(rows, far.row)))
    jacobian, states = _jacobian(problem, point, Z, G), _states(problem, point, Z, inverses)
    weighted = _weighted(problem, r, G)
    left = torch.cat([jacobian.centre, states.centre, weighted.centre])
    right = torch.cat([jacobian.centre, weighted.centre, states.centre])
    radius = add_up(jacobian.radius, states.radius, weighted.radius)
    whole = product(transpose(Ball(left, radius)), Ball(right, radius))
    # The truth is symmetric, so that it is no farther from the symmetric part.
    middle = (whole.centre + whole.centre.mT) * 0.5
    return Ball(middle, add_up(whole.radius, multiply_up(rounding.unit_roundoff(), fro_up(middle))))


def _rounded(centre: Tensor, error: float) -> Ball:
    """Return a ball around entries that are products of at most four factors."""
    rounded = multiply_up(4.0 * rounding.unit_roundoff(), fro_up(centre))
    return Ball(centre, add_up(error, rounded, multiply_up(4.0 * centre.numel(), TINY)))


def _jacobian(problem: Problem, point: CertifiedPoint, Z: Ball, G: Ball) -> Ball:
    """Return J, a sample a row."""
    s, X = problem.form.factor, problem.inputs
    by_weight = s * Z.centre[:, :, None] * G.centre[:, None, :]
    by_source = X.centre[:, :, None] * (point.alive * G.centre)[:, None, :]
    centre = torch.cat([by_weight.flatten(1), by_source.flatten(1), Z.centre], dim=1)
    error = add_up(
        multiply_up(s, product_radius(longest_row(Z), Z.radius, longest_row(G), G.radius)),
        product_radius(longest_row(X), X.radius, longest_row(G), G.radius),
        Z.radius,
    )
    return _rounded(centre, error)


def _states(problem: Problem, point: CertifiedPoint, Z: Ball, inverses: Inverses) -> Ball:
    """Return the matrix of z., with a row for each sample and unit."""
    s, X, M = problem.form.factor, problem.inputs, inverses.centres
    by_weight = s * torch.einsum("ni,njk->nkij", Z.centre, M)
    by_source = torch.einsum("ni,njk->nkij", X.centre, point.alive[:, :, None] * M)
    by_readout = M.new_zeros(*Z.shape, Z.shape[1])
    centre = torch.cat([by_weight.flatten(2), by_source.flatten(2), by_readout], dim=2).flatten(0, 1)
    size = fro_up(M)  # of the largest of them, at most
    error = add_up(
        multiply_up(s, product_radius(Z.fro, Z.radius, size, inverses.radius)),
        product_radius(X.fro, X.radius, size, inverses.radius),
    )
    return _rounded(centre, error)


def _weighted(problem: Problem, r: Ball, G: Ball) -> Ball:
    """Return the matrix of r w, with a row for each sample and unit."""
    s, (samples, m) = problem.form.factor, G.shape
    unit = torch.eye(m, dtype=G.dtype, device=G.device)
    by_weight = s * torch.einsum("ki,nj->nkij", unit, G.centre)
    by_source = unit.new_zeros(samples, m, problem.inputs.shape[1] * m)
    parts = torch.cat([by_weight.flatten(2), by_source, unit.expand(samples, m, m)], dim=2)
    centre = (r.centre[:, :, None] * parts).flatten(0, 1)
    by_adjoint = product_radius(largest_entry(r.centre), r.radius, longest_row(G), G.radius)
    return _rounded(centre, multiply_up(root_up(float(m)), add_up(multiply_up(s, by_adjoint), r.radius)))


@dataclass
class CarriedEigenvalues:
    """Bounds of the extreme eigenvalues of a symmetric matrix that moves little from step to step (Weyl).

    Attributes:
        share: New eigenvalues are computed when the displacement exceeds this share of how far the smallest one is
            below zero, or `floor` times the largest one.
        floor: See `share`.
        decompositions: How many were made.
    """

    share: float = 0.25
    floor: float = 1e-4
    decompositions: int = 0
    _reference: Ball | None = None
    _low: float = 0.0
    _high: float = 0.0

    def bound(self, matrix: Ball) -> tuple[float, float]:
        """Return a lower bound of the smallest and an upper bound of the largest eigenvalue of a ball's matrices."""
        if self._reference is not None:
            displacement = distance(matrix, self._reference)
            if displacement <= max(-self.share * self._low, self.floor * self._high) < math.inf:
                return subtract_down(self._low, displacement), add_up(self._high, displacement)
        self.decompositions += 1
        self._reference = Ball(matrix.centre)
        found = eigenvalues_symmetric(self._reference)
        self._low, self._high = lower(found[0]), upper(found[-1])
        return subtract_down(self._low, matrix.radius), add_up(self._high, matrix.radius)
