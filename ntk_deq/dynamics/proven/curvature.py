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

The Hessian of the loss at a small model, as one ball: sharper than these bounds where samples cancel.

On a fixed activation pattern, the derivatives along a direction (dP, dS, db) are

    z. = (s z dP + x dS E) M_n,   w = s dP g' + db,   yhat. = z (s dP g' + db) + x dS E g',

and the Hessian is J'J + K with J the matrix of yhat. and K = sum_n r_n (z.'w + w'z.), z. and w as matrices that act on
the direction. All of it is one product of stacked matrices with 2 N m + N rows.

How far the true gradient can be from that of a fixed activation pattern, where signs are not certain.

At an exact point of a ball of parameters the true slopes D', E' may differ from those at the centre, D and E, which the
bounds above keep. At that very point let Z', r', V', T' belong to the true model and Z, r, V, T to the fixed
pattern. A mismatched pre-activation has changed its sign since the centre, so that it is at most as large as its
movement; tau bounds all of them together, tau_E those of the inner activation. The true state solves the equation of
the fixed pattern up to pre .* (D' - D) + (x S) .* (E' - E) .* D, so with M as above and U the mismatched
entries

    fro(Z' - Z) <= M (tau + tau_E),                      norm(r' - r) <= M (tau + tau_E) norm(b),
    fro(T' - T) <= M (norm(r' - r) norm(b) + norm(diag(r) V_U)),

the last from T' = D' (r' b' + s T' P') and T = D (r b' + s T P'). The gradients differ by a jump that is proportional
to the residual. Added to the defect of a step, it lets a run pass a kink once the residual is small.

Zeros that stay. Where the inner activation is zero and every z_i P_ij has a factor that is zero for certain, the
pre-activation is exactly zero, where the derivative of relu is zero by convention. That may be supposed of a whole set
of entries at once: states that are zero there are mapped to such states, and the equilibrium is unique. An entry of P
that is zero stays so while no sample has both its units active.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ntk_deq.certified import rounding
from ntk_deq.certified.arithmetic import product_radius
from ntk_deq.certified.dense import Ball, transpose
from ntk_deq.certified.rounding import (
    TINY,
    add_up,
    fro_up,
    largest_entry,
    multiply_up,
    root_up,
)
from ntk_deq.dynamics.proven import CertifiedPoint, Problem
from ntk_deq.dynamics.proven.operations import Inverses, longest_row, product, short_norm
from ntk_deq.equilibrium.slopes import Activation

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


_WIDER = 1.0 + 2.0**-30
# Row lengths of up to a million entries, and a few sums and products of them, lose less.


@dataclass(frozen=True, eq=False)
class Jump:
    """What uncertain signs can change of the gradient.

    Attributes:
        uncertain: Pre-activations whose sign is not certain.
        gradients: Bounds for P, S and b; zero where every sign is certain.
        active: Where the state is not zero for certain.
    """

    uncertain: int
    gradients: tuple[float, float, float]
    active: Bool[Tensor, "N m"]


@dataclass(frozen=True, eq=False)
class _Movement:
    """How far each pre-activation can be from its float value, and where it may have another sign."""

    outer: Float[Tensor, "N m"]
    inner: Float[Tensor, "N m"]
    outer_unsure: Bool[Tensor, "N m"]
    inner_unsure: Bool[Tensor, "N m"]


def _unsure(activation: Activation, centre: Tensor, movement: Tensor) -> Tensor:
    """Return where a slope may have changed; one that sits on zero for certain has not."""
    if activation.linear:
        return torch.zeros_like(centre, dtype=torch.bool)
    # A movement that is NaN counts as unsure.
    return ~(centre.abs() > movement) & ~(movement == 0)


def lengths(matrix: Float[Tensor, "rows cols"], dim: int) -> Tensor:
    """Return the lengths of rows (dim 1) or columns (dim 0), zero for a zero one only; rounding comes on top.

    Example:
        >>> lengths(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), 1).tolist()
        [[5.0], [0.0]]
    """
    length = torch.linalg.vector_norm(matrix, dim=dim, keepdim=True)
    # The squares of entries below 2^-511 may be lost.
    return length + 2.0**-490 * (matrix != 0).any(dim=dim, keepdim=True)


def _movement(problem: Problem, point: CertifiedPoint, sizes: Sizes, zeros: Bool[Tensor, "m m"] | None) -> _Movement:
    """Bound each entry's movement: rows of Z, and so of pre-activations, do not interact.

    norm(dz_n) <= M (s norm(z_n) e_P + norm(x_n) e_S), and entry (n, j) of s Z P moves by at most
    s (norm(dz_n) norm(P_j) + norm(z_n + dz_n) e_P).
    """
    form, (e_weight, e_source, _) = problem.form, sizes.errors
    inputs = lengths(problem.inputs.centre, 1) + problem.inputs.radius
    source = inputs * e_source
    states = lengths(point.state.centre, 1) + point.state.radius
    rows = point.stretch * (form.factor * states * e_weight + source)
    columns = lengths(point.weight.centre, 0)
    recurrent = form.factor * (rows * columns + (states + rows) * e_weight) * _WIDER + point.recurrent.radius
    inner = torch.where(inputs > 0, (source + point.inner.radius) * _WIDER, 0.0).expand_as(recurrent)
    inner_unsure = _unsure(form.inner, point.inner.centre, inner)
    cut = (point.alive == 0) & ~inner_unsure
    # Where the inner activation is zero for certain, only s Z P moves: far less while P is small.
    outer = torch.where(cut, recurrent, recurrent + (inner + point.pre.radius)) * _WIDER
    outer_unsure = _unsure(form.activation, point.pre.centre, outer)
    still = outer_unsure & cut & (point.pre.centre == 0)
    if bool(still.any()):
        still = _exact_zeros(still, (point.slopes != 0) | (outer_unsure & ~still), zeros)
        outer_unsure = outer_unsure & ~still
    return _Movement(outer, inner, outer_unsure, inner_unsure)


def _exact_zeros(
    supposed: Bool[Tensor, "N m"], active: Bool[Tensor, "N m"], zeros: Bool[Tensor, "m m"] | None
) -> Bool[Tensor, "N m"]:
    """Return the largest part of a set of entries whose pre-activations are exactly zero if the states there are.

    Args:
        supposed: The set; the inner activation is zero on it.
        active: The other entries whose state is not zero for certain.
        zeros: Entries of P that are zero in the exact run; None: not one.
    """
    filled = torch.ones(active.shape[1], active.shape[1], device=active.device) if zeros is None else (~zeros).float()
    while True:
        # Counts below 2^24 are exact in float32.
        kept = supposed & ((active.float() @ filled) == 0)
        if torch.equal(kept, supposed):
            return kept
        active, supposed = active | (supposed & ~kept), kept


def kink_jump(
    problem: Problem, point: CertifiedPoint, sizes: Sizes, far: Reach, zeros: Bool[Tensor, "m m"] | None
) -> Jump:
    """Bound what uncertain signs of pre-activations change of the gradients (see the module).

    Args:
        problem: Model form and data.
        point: The model at the centre.
        sizes: Norms there.
        far: How far quantities move in the ball.
        zeros: Entries of P that are zero in the exact run; None: not one.
    """
    moves = _movement(problem, point, sizes, zeros)
    outer, inner = moves.outer_unsure, moves.inner_unsure
    active = (point.slopes != 0) | outer
    counts = torch.stack([outer.sum(), inner.sum()]).tolist()
    if not any(counts):
        return Jump(0, (0.0, 0.0, 0.0), active)
    s, M = problem.form.factor, point.stretch
    state = multiply_up(M, add_up(fro_up(moves.outer * outer), fro_up(moves.inner * inner)))
    residual = multiply_up(state, sizes.readout)
    unsure = add_up(point.residual.radius, far.residual)
    residuals = point.residual.centre.abs() + unsure
    adjoints = point.adjoint.centre.abs() * outer + outer * add_up(point.adjoint.radius, far.row)
    crossing = add_up(multiply_up(fro_up(residuals * adjoints), _WIDER), multiply_up(float(adjoints.numel()), TINY))
    weighted = multiply_up(M, add_up(multiply_up(residual, sizes.readout), crossing))
    entering = 0.0
    if counts[1]:
        entering = add_up(fro_up(point.weighted.centre * inner), point.weighted.radius, far.weighted)
    size = add_up(sizes.state, far.state)
    by_weight = add_up(multiply_up(state, add_up(sizes.weighted, far.weighted, weighted)), multiply_up(size, weighted))
    by_source = multiply_up(problem.inputs_norm, add_up(weighted, entering))
    by_readout = add_up(multiply_up(state, add_up(sizes.residual, far.residual)), multiply_up(size, residual))
    return Jump(sum(counts), (multiply_up(s, by_weight), by_source, by_readout), active)
