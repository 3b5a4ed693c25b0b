"""The Hessian of the loss at a small model, as one ball: sharper than `curvature` where samples cancel each other.

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
from ntk_deq.certified.arithmetic import product_radius
from ntk_deq.certified.ball import Ball
from ntk_deq.certified.products import summing_error
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
from ntk_deq.certified.structure import transpose
from ntk_deq.dynamics.proven.curvature import Reach
from ntk_deq.dynamics.proven.point import CertifiedPoint, Problem
from ntk_deq.dynamics.proven.rounded import distance, longest_row, product

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
