"""What takes a function to be minimised, in balls: `prox`, `moreau`, `conjugate`, `argmin` and the like.

Each is a minimum of one formula (`objective`): looked for in floats, proven by convexity (`certificate`), by cutting
the line into intervals (`scalars`), or shown not to exist (`recession`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch
from flint import arb
from torch import Tensor

from ntk_deq.certified import scalar as sc
from ntk_deq.errors import NtkDeqError
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.balls import bound, evaluate
from ntk_deq.evaluation.convex.certificate import CLOSE, CLOSER, Minimum, certified_minimum, followed_minimum
from ntk_deq.evaluation.convex.curvature import curvatures
from ntk_deq.evaluation.convex.descent import COARSE, FINE
from ntk_deq.evaluation.convex.objective import (
    LARGEST,
    NEGATED,
    POINTS,
    argument_shape,
    cache_key,
    given_name,
    given_names,
    is_nested,
    objective,
)
from ntk_deq.evaluation.convex.points import At, Problem, numbers_of
from ntk_deq.evaluation.convex.recession import Growth
from ntk_deq.evaluation.convex.scalars import global_minimum
from ntk_deq.evaluation.convex.tensors import lowest_point
from ntk_deq.evaluation.environment import Environment, Least, OutsideClaimError
from ntk_deq.evaluation.equilibria import tensor_names
from ntk_deq.evaluation.floats import tensor_value
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar
from ntk_deq.language.format import RESOLVENT
from ntk_deq.language.tree import Expr, names_in

_NARROW = 1e-9  # relative to the point: what a claim's margins are measured in


def extreme(expr: Expr, env: Environment, indices: Mapping[str, float] | None = None) -> Scalar | Matrix:
    """Return the value of an operator.

    Args:
        expr: The call; its first argument is a function.
        env: What the names mean.
        indices: Values of the step indices in scope.

    Raises:
        OutsideClaimError: It has no value, for certain: `mu` is not positive, or the function has no minimum.
    """
    key = None if indices else cache_key(expr)
    if key is None:
        return _extreme(expr, env, indices or {})
    if key not in env.cache:
        env.cache[key] = _extreme(expr, env, {})
    return _value(env.cache[key])


def _extreme(expr: Expr, env: Environment, scope: Mapping[str, float]) -> Scalar | Matrix:
    given = {
        name: _value(evaluate(arg, env, scope)) for name, arg in zip(given_names(expr), expr.args[1:], strict=True)
    }
    function, unknown = expr.args[0], _unknown(expr, env)
    mu = given.get(given_name("mu", expr))
    if mu is not None:
        number = ar.to_scalar(mu)
        if number.ball == 0 and expr.name == "moreau":
            point = given[given_name("x", expr)]
            return ar.to_scalar(evaluate(function.args[0], bound(function, point, env), scope))
        if not number.ball > 0:
            certain = bool(number.ball <= 0)
            env.notes.undefined(f"{expr.name} with mu = {number.ball.str(6)}, which must be > 0", certain=certain)
            return unknown
    inside = replace(env, variables={**env.variables, **given}, cache=dict(env.cache))
    found = minimum_of(expr, inside, scope)
    return unknown if found is None else found


def _value(value: Scalar | Matrix | Outcome) -> Scalar | Matrix:
    assert not isinstance(value, Outcome)
    return value


def minimum_of(expr: Expr, env: Environment, indices: Mapping[str, float]) -> Scalar | Matrix | None:
    """Return the value of an operator in an environment that has what it is given by `given_names`; None: unknown."""
    problem = Problem(env, objective(expr), expr.args[0].names[0], argument_shape(expr, env.sizes), indices)
    if problem.size > LARGEST:
        env.notes.doubt(f"{expr.name} of a function of {problem.size} numbers; at most {LARGEST} are looked for")
        return None
    try:
        found, guess = _searched(problem, given_name("x", expr))
        found = _of_convex(expr, problem, found)
        if found.reason or (expr.name in POINTS and not found.alone):
            return _without(expr, problem, found, guess)
    except OutsideClaimError as outside:
        if outside.hypothesis != "differentiable":
            raise
        env.notes.doubt(f"{expr.name} is not proven: {outside}")  # a jump, of the function and not of the claim
        return None
    return _beside(found.point, env, expr) if expr.name in POINTS else _signed(expr, found.value)


def _beside(point: Scalar | Matrix, env: Environment, expr: Expr) -> Scalar | Matrix:
    """Return a minimiser with the magnitude of what it was computed from: it may be zero where that is not."""
    given = env.variables.get(given_name("x", expr))
    read = [given] if given is not None else [env.variables.get(name) for name in names_in(expr)]
    return replace(point, scale=max([point.scale, *(value.scale for value in read if value is not None)]))


def least(expr: Expr, env: Environment, indices: Mapping[str, float]) -> Least:
    """Return the least value of what an operator minimises and where it is reached, with no information if unproven.

    Args:
        expr: The call.
        env: What names mean, those of `given_names` among them.
        indices: Values of the step indices in scope.
    """
    problem = Problem(env, objective(expr), expr.args[0].names[0], argument_shape(expr, env.sizes), indices)
    mu = env.variables.get(given_name("mu", expr))
    reason = f"at most {LARGEST} numbers are looked for" if problem.size > LARGEST else ""
    if mu is not None and not ar.to_scalar(mu).ball > 0:
        reason = "mu must be > 0"
    if not reason:
        found, _ = _searched(problem, given_name("x", expr))
        found = _of_convex(expr, problem, found)
        reason = found.reason or ("" if found.alone else "the function may be least elsewhere too")
        if not reason:
            return found.value, found.point
    env.notes.doubt(f"{expr.name} is not proven: {reason}")
    return Scalar(sc.nan(), math.inf), problem.valued([arb(0)] * problem.size, math.inf)


def _searched(problem: Problem, start: str) -> tuple[Minimum, Tensor]:
    """Return what is proven near where floats lead to, roughly at first, else as well as they can."""
    names = tensor_names(problem.env)
    at = names.variables.get(start)
    first = torch.zeros(problem.size, dtype=torch.float64) if at is None else at.detach().double().cpu().flatten()
    followed = followed_minimum(problem, first)
    if followed is not None and _error(followed) <= _NARROW * max(1.0, float(first.abs().max())):
        return followed, first
    if is_nested(problem.body):
        if followed is not None:
            return followed, first
        reason = "no minimum is found by Newton's method on a function of minima"
        return Minimum(Scalar(sc.nan(), math.inf), problem.valued([arb(0)] * problem.size, math.inf), reason), first
    best: tuple[Minimum, Tensor] | None = None
    for distances, close in ((COARSE, CLOSE), (FINE, CLOSER)):
        guess, _ = lowest_point(
            problem.body, problem.name, problem.shape, names, problem.indices, tensor_value, at, distances
        )
        guess = guess if bool(guess.isfinite().all()) else torch.zeros_like(guess)
        found = certified_minimum(problem, guess, close)
        if best is None or _error(found) < _error(best[0]):
            best = found, guess
        if _error(found) <= _NARROW * max(1.0, float(guess.abs().max())):
            break
        at = guess.to(names.like) if problem.shape is None else guess.to(names.like).reshape(problem.shape)
    assert best is not None
    return best


def _of_convex(expr: Expr, problem: Problem, found: Minimum) -> Minimum:
    """Return a minimum, which a resolvent has of functions that are seen to be convex alone.

    For convex phi, g is a subgradient at z if and only if z = argmin phi(u) + |u - z - g|^2/2: what is least there is
    strongly convex, and its subgradients at z are those of phi minus g. So `z == resolvent(phi, z + g)` says no more
    and no less, and its two sides differ by at least |h - g|/(1 + L) where h is the gradient of an L-smooth phi.
    """
    if expr.name != RESOLVENT or found.reason:
        return found
    at = At(replace(problem, body=expr.args[0].args[0]), found.point)
    if at.shapes.of(at.root).convex or curvatures(at.tape, at.root, at.leaf, at.shapes).low >= 0:
        return found
    return replace(found, reason="the function is not seen to be convex, and only of such there is a subdifferential")


def _error(found: Minimum) -> float:
    """Return how well a minimum is known; infinite where it is not."""
    if found.reason:
        return math.inf
    point = found.point
    wide = point.ball.radius if isinstance(point, Matrix) else sc.radius(point.ball)
    return wide if found.alone else sc.radius(found.value.ball)


def _without(expr: Expr, problem: Problem, found: Minimum, guess: Tensor) -> Scalar | Matrix | None:
    """Return what is known where no minimum was proven near the point that floats led to."""
    env, is_point = problem.env, expr.name in POINTS
    if unbounded_below(problem, guess):
        if expr.name in ("conjugate", "infimum", "supremum"):
            return Scalar(arb("-inf" if expr.name == "infimum" else "+inf"), math.inf)
        env.notes.undefined(f"{expr.name} of a function without a minimum: it falls for ever", certain=True)
    if problem.shape is None:
        wide = global_minimum(problem, float(guess[0]))
        known = wide is not None and (wide.reached or expr.name in ("conjugate", "infimum", "supremum"))
        if wide is not None and known and not (is_point and not wide.alone):
            return wide.point if is_point else _signed(expr, wide.value)
    reason = found.reason or "the function may be least elsewhere too"
    env.notes.doubt(f"{expr.name} is not proven: {reason}")
    return None


def _signed(expr: Expr, value: Scalar) -> Scalar:
    return Scalar(-value.ball, value.scale) if expr.name in NEGATED else value


def unbounded_below(problem: Problem, guess: Tensor) -> bool:
    """Whether a function falls for ever along a ray: towards where floats went, or along its slope or a coordinate."""
    at = At(problem, problem.valued([arb(x) for x in guess.tolist()]))
    if at.leaf.number not in at.root.depends:
        return False
    rays = [guess, *torch.eye(len(guess), dtype=torch.float64), *(-torch.eye(len(guess), dtype=torch.float64))]
    size = float(guess.abs().max())
    if size > 0:
        rays.insert(1, (guess / size).round())
        rays.insert(1, torch.where(guess.abs() < 1e-3 * size, 0.0, guess))
    rays += [torch.tensor([float(x.mid()) for x in numbers], dtype=torch.float64) for numbers in _downhill(at)]
    return any(bool(Growth(at.leaf, ray.tolist(), at.shapes).of(at.root) < 0) for ray in rays if bool(ray.any()))


def _downhill(at: At) -> list[list[arb]]:
    """Return minus the slope at a point; nothing where there is none."""
    try:
        slope, _ = at.slope([])
        found = [-x for x in numbers_of(slope.value)]
    except NtkDeqError:
        return []
    return [found] if all(x.is_finite() for x in found) else []


def _unknown(expr: Expr, env: Environment) -> Scalar | Matrix:
    """Return a value of the right shape that says nothing."""
    shape = argument_shape(expr, env.sizes) if expr.name in POINTS else None
    problem = Problem(env, expr, "", shape)
    if shape is None:
        return Scalar(sc.nan(), math.inf)
    return problem.valued([arb(0)] * problem.size, math.inf)
