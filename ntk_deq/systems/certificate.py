"""Equilibria and adjoints as balls: how far the truth is from a float solution, and whether it exists at all.

Three proofs, tried in this order (before the second, r = 0 is a proof by itself). With r the residual norm(F(Z) - Z) at
the float solution, rounding included:

1. Contraction. A Lipschitz constant q < 1 of the map everywhere: one equilibrium, within r/(1 - q).
2. Local contraction. A constant q < 1 on the ball of radius rho, and r <= (1 - q) rho: one equilibrium in that ball.
3. Approximate inverse R of I - L D, row pattern by row pattern: Z -> Z - (Z - F(Z)) R is a contraction where
   norm(I - (I - L D) R) <= d < 1 for every slope D possible in the ball, so that an equilibrium lies within
   norm((Z - F(Z)) R)/(1 - d). It needs no contraction of the map itself.

What a certified solve gives: a ball, how it was proved, and what stays open.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ntk_deq.certified import scalar as sc
from ntk_deq.certified.arithmetic import add, column_multiples, elementwise_error, hadamard, matmul, subtract
from ntk_deq.certified.dense import Ball, no_information, transpose
from ntk_deq.certified.extremes import spectral_norm
from ntk_deq.certified.rounding import add_up, fro_up, multiply_up, root_up
from ntk_deq.equilibrium.driver import DEFAULT_MAX_STEPS, solve_fixed_point
from ntk_deq.equilibrium.slopes import (
    MOST_WORK,
    BallLayer,
    PatternInverse,
    Slopes,
    banach_bound,
    pattern_inverses,
    transposed,
)
from ntk_deq.equilibrium.solvers import Newton, Solver
from ntk_deq.systems.model import EquilibriumModel


class Proof(StrEnum):
    """How an equilibrium or adjoint was proved to exist."""

    CONTRACTION = "contraction"
    EXACT = "an exact fixed point"
    LOCAL = "local contraction"
    INVERSE = "approximate inverse"
    NONE = "none"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CertifiedSolution:
    """A ball around a float solution that contains an exact one, if `proof` is not `NONE`.

    Attributes:
        ball: Centre and Frobenius radius, float64; an infinite radius where nothing is proved.
        proof: How.
        contraction: The Lipschitz bound of the proof: of the map, or of the Newton-like map.
        reason: Why nothing is proved, or "".
    """

    ball: Ball
    proof: Proof
    contraction: float
    reason: str = ""

    @property
    def value(self) -> Float[Tensor, "N m"]:
        """The float solution."""
        return self.ball.centre

    @property
    def radius(self) -> float:
        """Bound on the Frobenius distance of the exact solution to `value`."""
        return self.ball.radius

    def _words(self) -> str:
        return f"by {self.proof}, Lipschitz constant {self.contraction:.6g}"

    def __repr__(self) -> str:
        rows, cols = self.ball.shape
        known = f"nothing proved: {self.reason}"
        if self.proof is not Proof.NONE:
            known = f"radius={self.radius:.3g}, {self._words()}"
        return f"{type(self).__name__}({rows} x {cols}, {known})"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CertifiedAdjoint(CertifiedSolution):
    """The ball of an adjoint at the equilibrium, for every choice of the derivatives that are not certain."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CertifiedEquilibrium(CertifiedSolution):
    """The ball of an equilibrium.

    Attributes:
        unique: Whether it is the only equilibrium anywhere; otherwise it is the only one in a ball around the centre.
        slopes: Bounds on the activation's derivative on the whole ball, N x m; 0 at an exact zero, as in PyTorch.
    """

    unique: bool
    slopes: Slopes

    @property
    def pattern_certain(self) -> Bool[Tensor, "N m"]:
        """Where the activation's derivative at the equilibrium is certain."""
        return self.slopes.certain

    def _words(self) -> str:
        scope = "unique, by" if self.unique else "as" if self.proof is Proof.EXACT else "unique nearby, by"
        unsure = int((~self.pattern_certain).sum())
        return f"{scope} {super()._words().removeprefix('by ')}, {unsure} derivatives uncertain"


_NEWTON_STEPS = 30
# A piecewise linear system ends after as many steps as patterns are passed through; more than this is a cycle.

_REFINEMENTS = 2  # steps after the solver is content

_ROUNDS = 6
# Radii tried in a local proof: the first guess is usually wide enough, and each next one is aimed at what was missing.


def certified_equilibrium(
    model: EquilibriumModel,
    X: Float[Tensor, "N d"],
    *,
    candidate: Float[Tensor, "N m"] | None = None,
    solver: str | Solver = "picard",
    max_steps: int = DEFAULT_MAX_STEPS,
) -> CertifiedEquilibrium:
    """Solve for the equilibrium and prove how far it is from the solution.

    The floats of the model and of X are taken as the exact numbers. A contraction constant that the model claims is not
    used: the constant is bounded from the weights.

    Args:
        model: A model with `in_balls`.
        X: Inputs, one sample a row.
        candidate: A float solution to prove something about; None: solve for one.
        solver: As in `solve_fixed_point`.
        max_steps: Likewise.

    Returns:
        The ball, or no information with the reason.

    References:
        Banach's theorem; Rump, Acta Numerica 19, 2010, section 13 (approximate inverses).

    Example:
        >>> from ntk_deq.systems.shipped_models import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> found = certified_equilibrium(LinearImplicit(W=one / 2, U=one, b=one[0]), one)
        >>> abs(found.value.item() - 2) <= found.radius < 1e-12, found.unique
        (True, True)
    """
    layer = model.in_balls(X)
    if layer is None:
        state = Ball(model.initial_state(X).double())
        return _unproved(state, float("inf"), f"the model {model.signature.name} has no form in balls (`in_balls`)")
    norm = sc.upper(spectral_norm(layer.weight))
    if candidate is None:
        start = torch.zeros_like(layer.source.centre)
        state = _solved(layer.float_step, start, lambda Z: layer.systems(layer.float_slopes(Z)).mT, solver, max_steps)
    else:
        state = Ball(candidate.detach().double())
    if not (state.is_finite and layer.source.is_finite):
        return _unproved(state, norm, state.reason or layer.source.reason)
    gap = subtract(layer.step(state), state)
    residual = add_up(gap.fro, gap.radius)
    if norm < 1:
        return _proved(layer, state, banach_bound(residual, norm), Proof.CONTRACTION, norm, unique=True)
    if residual == 0 and not layer.activation.linear:
        return _proved(layer, state, 0.0, Proof.EXACT, norm, unique=False)
    found = _local(layer, state, residual, norm) or _by_inverses(layer, state, gap, norm)
    if found is None and residual == 0:
        return _proved(layer, state, 0.0, Proof.EXACT, norm, unique=False)
    if found is None:
        known = f"the bound of the map's contraction factor is {norm:.6g}, not below 1, and no local proof succeeds"
        return _unproved(state, norm, f"no certificate that the equilibrium exists: {known}")
    return found


def _solved(
    step: Callable[[Tensor], Tensor],
    start: Float[Tensor, "N m"],
    systems: Callable[[Tensor], Tensor],
    solver: str | Solver,
    max_steps: int,
) -> Ball:
    """Return a float solution by the solver, or by Newton's method where that fails; nothing is promised of it."""
    found = solve_fixed_point(step, start, solver=solver, max_steps=max_steps, raise_on_failure=False)
    if not found.all_converged and start.shape[0] * start.shape[1] ** 3 <= MOST_WORK:
        newton = Newton(systems)
        found = solve_fixed_point(step, start, solver=newton, max_steps=_NEWTON_STEPS, raise_on_failure=False)
        return Ball(_refined(step, found.value, newton))
    return Ball(found.value)


def _refined(step: Callable[[Tensor], Tensor], point: Tensor, newton: Newton) -> Tensor:
    """Return the best of a point and a few more steps of Newton's, which end at whole numbers where there are such."""
    points = [point]
    for _ in range(_REFINEMENTS):
        image = step(points[-1])
        points.append(newton.advance(points[-1], image, torch.linalg.vector_norm(image - points[-1], dim=1), None)[0])
    return min(points, key=lambda z: float(torch.linalg.vector_norm(step(z) - z).nan_to_num(nan=torch.inf)))


def _unproved(state: Ball, norm: float, reason: str) -> CertifiedEquilibrium:
    unknown = Slopes(torch.zeros_like(state.centre), torch.ones_like(state.centre))
    nothing = no_information(state, *state.shape, reason)
    return CertifiedEquilibrium(
        ball=nothing, proof=Proof.NONE, contraction=norm, unique=False, slopes=unknown, reason=reason
    )


def _proved(
    layer: BallLayer, state: Ball, radius: float, proof: Proof, contraction: float, *, unique: bool
) -> CertifiedEquilibrium:
    if not radius < float("inf"):
        return _unproved(state, contraction, "the bound on the error is not finite")
    ball = Ball(state.centre, radius)
    slopes = layer.slopes(layer.pre_activation(ball))
    return CertifiedEquilibrium(ball=ball, proof=proof, contraction=contraction, unique=unique, slopes=slopes)


def pattern_norm(weight: Ball, slopes: Slopes) -> float:
    """Return an upper bound of norm(L D) over every row's possible slopes D.

    Example:
        >>> half = torch.full((1, 2), 0.5, dtype=torch.float64)
        >>> round(pattern_norm(Ball(torch.eye(2, dtype=torch.float64)), Slopes(0 * half, half)), 12)
        0.5
    """
    bound = 0.0
    for high in torch.unique(slopes.high, dim=0):
        product, rounded = column_multiples(weight.work, high)
        bound = max(bound, sc.upper(spectral_norm(Ball(product, add_up(weight.radius, rounded)))))
    return bound


def _slopes_within(layer: BallLayer, state: Ball, reach: float) -> Slopes:
    """Return the slopes on every state whose rows are within some distance, given as that of the pre-activations."""
    pre = layer.pre_activation(state)
    return layer.slopes(Ball(pre.centre, add_up(pre.radius, reach), pre.reason))


def _local(layer: BallLayer, state: Ball, residual: float, norm: float) -> CertifiedEquilibrium | None:
    rho = residual
    for _ in range(_ROUNDS):
        slopes = _slopes_within(layer, state, multiply_up(norm, rho))
        q = pattern_norm(layer.weight, slopes)
        radius = banach_bound(residual, q)
        if not radius < float("inf"):
            return None
        if radius <= rho:
            return _proved(layer, state, radius, Proof.LOCAL, q, unique=layer.activation.linear)
        rho = 1.25 * radius
    return None


def _by_inverses(layer: BallLayer, state: Ball, gap: Ball, norm: float) -> CertifiedEquilibrium | None:
    rho = 0.0
    for _ in range(_ROUNDS):
        slopes = _slopes_within(layer, state, multiply_up(norm, rho))
        inverses = pattern_inverses(layer.weight, slopes)
        if inverses is None:
            return None
        radii, defect = _block_radii(gap, inverses)
        worst = float(radii.max())
        if not worst < float("inf"):
            return None
        if worst <= rho or layer.activation.linear:
            return _proved(layer, state, fro_up(radii), Proof.INVERSE, defect, unique=layer.activation.linear)
        rho = 1.25 * worst
    return None


def _block_radii(gap: Ball, inverses: list[PatternInverse]) -> tuple[Float[Tensor, " p"], float]:
    """Return norm((Z - F(Z)) R)/(1 - d) on the rows of each pattern, and the largest d."""
    radii = []
    for found in inverses:
        moved = matmul(Ball(gap.centre[found.rows], gap.radius, gap.reason), found.inverse)
        radii.append(banach_bound(add_up(moved.fro, moved.radius), found.right_defect))
    return torch.tensor(radii, dtype=torch.float64), max(found.right_defect for found in inverses)


def certified_adjoint(
    model: EquilibriumModel,
    X: Float[Tensor, "N d"],
    equilibrium: CertifiedEquilibrium | None = None,
    *,
    solver: str | Solver = "picard",
    max_steps: int = DEFAULT_MAX_STEPS,
) -> CertifiedAdjoint:
    """Solve for the adjoint at the equilibrium and prove how far it is from the solution.

    Row n solves v = b' + (v .* d_n) L' with the activation's derivatives d_n. One that is not certain counts as any
    number between its bounds, so that the ball holds for either side of a kink.

    Args:
        model: A model with `in_balls`.
        X: Inputs, one sample a row.
        equilibrium: Of `certified_equilibrium`; None: computed here.
        solver: As in `solve_fixed_point`.
        max_steps: Likewise.

    Returns:
        The ball, or no information with the reason.

    Example:
        >>> from ntk_deq.systems.shipped_models import LinearImplicit
        >>> one = torch.ones(1, 1, dtype=torch.float64)
        >>> found = certified_adjoint(LinearImplicit(W=one / 2, U=one, b=3 * one[0]), one)
        >>> abs(found.value.item() - 6) <= found.radius < 1e-12  # b/(1 - W)
        True
    """
    at = certified_equilibrium(model, X) if equilibrium is None else equilibrium
    layer = model.in_balls(X)
    if at.proof is Proof.NONE or layer is None:
        return _adjoint(at.ball, math.inf, Proof.NONE, at.contraction, at.reason)
    middle, spread = at.slopes.middle, at.slopes.spread
    rows = at.ball.shape[0]
    readout = Ball(
        layer.readout.centre.expand_as(at.value).contiguous(), multiply_up(root_up(float(rows)), layer.readout.radius)
    )
    back = transpose(layer.weight)
    value = _solved(
        lambda V: (V * middle) @ back.centre + readout.centre,
        torch.zeros_like(at.value),
        lambda V: layer.systems(middle),
        solver,
        max_steps,
    )
    passed = hadamard(value, Ball(middle))
    moved = value.centre * spread
    unsure = add_up(fro_up(moved), elementwise_error(value.centre, spread, moved))
    image = add(matmul(Ball(passed.centre, add_up(passed.radius, unsure), passed.reason), back), readout)
    gap = subtract(image, value)
    q = sc.upper(spectral_norm(layer.weight))
    q = q if q < 1 else pattern_norm(layer.weight, at.slopes)
    if q < 1:
        return _adjoint(value, banach_bound(add_up(gap.fro, gap.radius), q), Proof.CONTRACTION, q)
    inverses = pattern_inverses(layer.weight, at.slopes)
    if inverses is None:
        known = f"the bound of its contraction factor is {q:.6g}, not below 1, and no inverse is proved"
        return _adjoint(value, math.inf, Proof.NONE, q, f"no certificate of the adjoint: {known}")
    # V (I - D L') = b' is the transposed system, and so are its inverses.
    radii, defect = _block_radii(gap, [transposed(inverse) for inverse in inverses])
    return _adjoint(value, fro_up(radii), Proof.INVERSE, defect)


def _adjoint(value: Ball, radius: float, proof: Proof, contraction: float, reason: str = "") -> CertifiedAdjoint:
    if radius < math.inf:
        return CertifiedAdjoint(ball=Ball(value.centre, radius), proof=proof, contraction=contraction)
    reason = reason or value.reason or "the bound on the adjoint's error is not finite"
    nothing = no_information(value, *value.shape, reason)
    return CertifiedAdjoint(ball=nothing, proof=Proof.NONE, contraction=contraction, reason=reason)
