"""How far the true gradient can be from that of a fixed activation pattern, where signs are not certain.

At an exact point of a ball of parameters the true slopes D', E' may differ from those at the centre, D and E, which the
bounds of `curvature` keep. At that very point let Z', r', V', T' belong to the true model and Z, r, V, T to the fixed
pattern. A mismatched pre-activation has changed its sign since the centre, so that it is at most as large as its
movement; tau bounds all of them together, tau_E those of the inner activation. The true state solves the equation of
the fixed pattern up to pre .* (D' - D) + (x S) .* (E' - E) .* D, so with M as in `curvature` and U the mismatched
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

from ntk_deq.certified.rounding import TINY, add_up, fro_up, multiply_up
from ntk_deq.dynamics.proven import CertifiedPoint, Problem
from ntk_deq.dynamics.proven.curvature import Reach, Sizes
from ntk_deq.equilibrium.slopes import Activation

_OUTWARD = 1.0 + 2.0**-30
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
    recurrent = form.factor * (rows * columns + (states + rows) * e_weight) * _OUTWARD + point.recurrent.radius
    inner = torch.where(inputs > 0, (source + point.inner.radius) * _OUTWARD, 0.0).expand_as(recurrent)
    inner_unsure = _unsure(form.inner, point.inner.centre, inner)
    cut = (point.alive == 0) & ~inner_unsure
    # Where the inner activation is zero for certain, only s Z P moves: far less while P is small.
    outer = torch.where(cut, recurrent, recurrent + (inner + point.pre.radius)) * _OUTWARD
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
    crossing = add_up(multiply_up(fro_up(residuals * adjoints), _OUTWARD), multiply_up(float(adjoints.numel()), TINY))
    weighted = multiply_up(M, add_up(multiply_up(residual, sizes.readout), crossing))
    entering = 0.0
    if counts[1]:
        entering = add_up(fro_up(point.weighted.centre * inner), point.weighted.radius, far.weighted)
    size = add_up(sizes.state, far.state)
    by_weight = add_up(multiply_up(state, add_up(sizes.weighted, far.weighted, weighted)), multiply_up(size, weighted))
    by_source = multiply_up(problem.inputs_norm, add_up(weighted, entering))
    by_readout = add_up(multiply_up(state, add_up(sizes.residual, far.residual)), multiply_up(size, residual))
    return Jump(sum(counts), (multiply_up(s, by_weight), by_source, by_readout), active)
