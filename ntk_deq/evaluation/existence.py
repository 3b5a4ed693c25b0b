"""Why a model's equilibrium exists and is the only one, and how far from it a state can be.

Where nothing is known of states farther away: that a fixed point is the only one near a state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import torch
from flint import arb, arb_mat

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.functions import absolute_value, maximum
from ntk_deq.certified.inversion import approximate_inverse
from ntk_deq.certified.precise import PreciseMatrix, adopt, as_ball
from ntk_deq.certified.precise.arithmetic import frobenius
from ntk_deq.certified.precise.matrix import from_rows
from ntk_deq.certified.rounding import add_up, multiply_up
from ntk_deq.certified.structured import densified
from ntk_deq.equilibrium.slopes import banach_bound
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.arithmetic import to_matrix
from ntk_deq.evaluation.balls import evaluate, evaluate_scalar
from ntk_deq.evaluation.environment import Environment, OutsideClaimError
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar, Truth
from ntk_deq.language.format import format_expr
from ntk_deq.language.tree import Expr

_CONTRACTION, _GAP, _MODULUS = "contraction factor", "gap of the equilibrium", "declared modulus"
# No name of the language has a blank in it.

_WIDEST = 48
"""Units up to which the first reason is looked at: an inverse of that order takes some 10 ms."""

_CORNERS = 4
"""Units up to which all patterns of zeros and ones are: 16 inverses."""


@dataclass(frozen=True)
class Existence:
    """What is known of the equilibrium of a model's map.

    Attributes:
        gap: A ball of a number g with norm(Z - Z*) <= norm(F(Z) - Z)/g for every state Z, in the Frobenius norm, where
            the only equilibrium is Z*; None where nothing is known.
        contracts: Whether the map contracts in that norm.
    """

    gap: arb | None
    contracts: bool


def contraction_factor(env: Environment) -> Scalar:
    """Return the model's Lipschitz constant on this instance; no information where none is known."""
    assert env.formulas is not None
    known = env.cache.get(_CONTRACTION)
    if not isinstance(known, Scalar):
        formula = env.formulas.contraction
        known = Scalar(sc.nan(), math.inf) if formula is None else evaluate_scalar(formula, env)
        env.cache[_CONTRACTION] = known
    return known


def existence(env: Environment) -> Existence:
    """Return why the equilibrium of the model's map exists, if a reason is found.

    Raises:
        OutsideClaimError: The model declares that I - W >= m I, and that is certainly not so.
    """
    declared = declared_modulus(env)
    if declared is not None and declared.truth is Truth.FALSE:
        raise OutsideClaimError("monotone", declared.reason, certain=True)
    if declared is not None and declared.truth is not Truth.TRUE and not env.alone:
        env.notes.elsewhere = declared.reason
    gap = 1 - contraction_factor(env).ball  # a ball: close to the edge a float cannot tell the factor from 1
    if gap > 0:
        return Existence(gap, True)
    known = env.cache.get(_GAP)
    if not isinstance(known, Scalar):
        known = Scalar(_other_gap(env), 1.0)
        env.cache[_GAP] = known
    return Existence(known.ball if known.ball > 0 else None, False)


def _proximal(env: Environment) -> bool | None:
    """Whether the activation of a map that is one layer is proximal on this instance; None: that is not certain."""
    assert env.formulas is not None
    if env.formulas.parameter is None:
        return True
    formula, low, high = env.formulas.parameter
    value = evaluate_scalar(formula, env).ball
    if value < low or value > high:
        return False
    return True if low <= value <= high else None


def _weight(env: Environment) -> ct.Ball | None:
    """Return the ball of W, square and known, where the map is seen to be one layer, or None."""
    assert env.formulas is not None
    if env.formulas.weight is None or not _proximal(env):
        return None
    found = to_matrix(evaluate(env.formulas.weight, env)).ball
    return found if found.is_finite and found.shape[0] == found.shape[1] else None


def declared_modulus(env: Environment) -> Outcome | None:
    """Return whether I - W >= m I, as the model declares, for it is believed nowhere; None where nothing is declared.

    Args:
        env: The instance.
    """
    formulas = env.formulas
    if formulas is None or formulas.monotone is None:
        return None
    found = env.cache.get(_MODULUS)
    if not isinstance(found, Outcome):
        found = env.cache[_MODULUS] = _compared_modulus(env, formulas.monotone)
    return found


def _compared_modulus(env: Environment, monotone: Expr) -> Outcome:
    declared, weight, text = evaluate_scalar(monotone, env).ball, _weight(env), format_expr(monotone)
    if declared <= 0:
        return Outcome(Truth.FALSE, None, f"the declared {text} is not above zero")
    if _proximal(env) is False:
        assert env.formulas is not None
        assert env.formulas.parameter is not None
        name = format_expr(env.formulas.parameter[0])
        return Outcome(Truth.FALSE, None, f"the activation is no proximal map: its parameter {name} is outside [0, 1]")
    if declared > 0 and env.formulas is not None and env.formulas.reached and _proximal(env):
        return Outcome(Truth.TRUE, None, "")
    known = None if weight is None else modulus(weight)
    if known is not None and known < declared:
        detail = f"the declared {text} = {float(declared.mid()):.6g} is more than {sc.upper(known):.6g}"
        return Outcome(Truth.FALSE, None, f"{detail}, the smallest eigenvalue of I - (W + W')/2")
    if known is not None and known >= declared > 0:
        return Outcome(Truth.TRUE, None, "")
    return Outcome(Truth.UNSURE, None, f"whether I - W reaches the declared {text} is not certain")


def _other_gap(env: Environment) -> arb:
    """Return the gap that another reason than contraction gives, or zero."""
    weight = _weight(env)
    if weight is None:
        return arb(0)
    size = _by_dominance(weight) or _by_monotonicity(weight, _declared(env)) or _by_patterns(weight)
    return arb(0) if size is None else (1 / size).lower()


def _entries(weight: ct.Ball, most: int) -> list[list[arb]] | None:
    """Return the rows of W, or None where there are too many."""
    if weight.shape[0] > most:
        return None
    try:
        return adopt(weight).rows()
    except LimitError:
        return None


def _by_dominance(weight: ct.Ball) -> arb | None:
    """Return a bound of norm(e)/norm(r) by the first reason, or None."""
    rows = _entries(weight, _WIDEST)
    if rows is None or not all(rows[i][i] < 1 for i in range(len(rows))):
        return None
    order, zero = len(rows), arb(0)
    left = [1 - rows[i][i] for i in range(order)]
    shares = [[zero if i == j else absolute_value(rows[i][j]) / left[i] for j in range(order)] for i in range(order)]
    floats = torch.tensor([[float(x.mid()) for x in row] for row in shares], dtype=torch.float64)
    found, info = torch.linalg.solve_ex(
        torch.eye(order, dtype=torch.float64) - floats, torch.ones(order, 1, dtype=torch.float64)
    )
    if int(info) or not bool((found > 0).all()) or not bool(torch.isfinite(found).all()):
        return None
    v = [arb(x) for x in found.flatten().tolist()]
    if not all(sum((t * x for t, x in zip(row, v, strict=True)), zero) < v[i] for i, row in enumerate(shares)):
        return None
    system = arb_mat([[(1 if i == j else 0) - shares[i][j] for j in range(order)] for i in range(order)])
    scales = arb_mat([[maximum(arb(1), 1 / left[i]) if i == j else zero for j in range(order)] for i in range(order)])
    try:
        return _finite(frobenius(PreciseMatrix(system.inv() * scales)).upper())
    except ZeroDivisionError:  # a pivot's ball contains zero
        return None


def modulus(weight: ct.Ball) -> arb:
    """Return the ball of the largest m with I - W >= m I in its symmetric part.

    Args:
        weight: W, n x n.
    """
    one = ct.identity(weight.shape[0], dtype=weight.dtype, device=weight.device)
    half = ct.scale(arb(0.5), ct.add(weight, ct.transpose(weight)))
    return ct.lambda_min(ct.subtract(one, half), symmetric=True)


def _declared(env: Environment) -> arb:
    """Return the declared modulus where it is reached for certain, else zero."""
    found = declared_modulus(env)
    if found is None or found.truth is not Truth.TRUE:
        return arb(0)
    assert env.formulas is not None
    assert env.formulas.monotone is not None
    return evaluate_scalar(env.formulas.monotone, env).ball


def _by_monotonicity(weight: ct.Ball, declared: arb) -> arb | None:
    """Return a bound of norm(e)/norm(r) by the second reason, or None."""
    known = maximum(declared, modulus(weight))
    return (1 + ct.spectral_norm(weight) / known).upper() if known > 0 else None


def _by_patterns(weight: ct.Ball) -> arb | None:
    """Return a bound of norm(e)/norm(r) by the third reason, or None."""
    rows = _entries(weight, _CORNERS)
    if rows is None:
        return None
    order = len(rows)
    largest = [arb(0)] * order**2
    for pattern in product((0, 1), repeat=order):
        system = arb_mat([[int(i == j) - d * rows[i][j] for j in range(order)] for i, d in enumerate(pattern)])
        if not system.det() > 0:
            return None
        try:
            inverse = system.inv()
        except ZeroDivisionError:
            return None
        largest = [maximum(x, absolute_value(y)) for x, y in zip(largest, inverse.entries(), strict=True)]
    return _finite(frobenius(PreciseMatrix(arb_mat(order, order, largest))).upper())


def _finite(value: arb) -> arb | None:
    return value if value.is_finite() else None


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
    residual = densified(ct.subtract(image.ball, state.ball))
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
        if not q < 1:
            return f"the slopes of the map within {rho:.3g} of the point found are not known well enough (q = {q:.3g})"
        radius = banach_bound(r, q)
        if radius <= rho:
            wide = max(rho, _WIDE * size)  # nothing but the distance of others follows from it
            far = banach_bound(r, _contraction(env, _around(state, wide), inverse, unit))
            return Nearby(radius, wide if far <= wide else rho)
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
