"""What takes a function to be minimised, in balls: `prox`, `moreau`, `conjugate`, `argmin` and the like.

Where a function of one number is least on the whole line is found by branch and bound: no convexity is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import torch
from flint import arb
from torch import Tensor

from ntk_deq.certified import scalar as sc
from ntk_deq.errors import NtkDeqError
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.balls import bound, evaluate
from ntk_deq.evaluation.convex import (
    LARGEST,
    NEGATED,
    POINTS,
    WEIGHTS,
    argument_shape,
    cache_key,
    contradicts,
    excess,
    given_name,
    given_names,
    has_indicator,
    is_nested,
    objective,
    penalised,
    taken_apart,
)
from ntk_deq.evaluation.convex.certificate import (
    CLOSE,
    CLOSER,
    Minimum,
    certified_minimum,
    followed_minimum,
    in_set,
    local_minimum,
)
from ntk_deq.evaluation.convex.curvature import curvatures, jacobian
from ntk_deq.evaluation.convex.points import UNKNOWN, At, Problem, entries_of, numbers_of
from ntk_deq.evaluation.convex.recession import Growth
from ntk_deq.evaluation.convex.scalars import global_minimum, known_ends
from ntk_deq.evaluation.convex.tensors import COARSE, FINE, lowest_point
from ntk_deq.evaluation.environment import LOCAL, Environment, Least, OutsideClaimError
from ntk_deq.evaluation.equilibria import tensor_names
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar, scaled_ends
from ntk_deq.language.tree import RESOLVENT, Expr, names_in

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
    problem = _problem(expr, env, indices)
    if problem.size > LARGEST:
        env.notes.doubt(f"{expr.name} of a function of {problem.size} numbers; at most {LARGEST} are looked for")
        return None
    if wrong := _misused(expr):
        env.notes.doubt(f"{expr.name} is not proven: {wrong}")
        return None
    if problem.links and _is_empty(problem):
        env.notes.undefined(f"{expr.name} on a set that is empty", certain=True)
    found = None
    try:
        found, guess = _looked_for(expr, problem)
        if found.reason or (expr.name in POINTS and not found.alone):
            return _without(expr, problem, found, guess)
    except OutsideClaimError as outside:
        if outside.hypothesis != "differentiable" and (found is not None or _is_nowhere(problem)):
            raise
        env.notes.doubt(f"{expr.name} is not proven: {outside}")  # of the function at a point, and not of the claim
        return None
    return _beside(found.point, env, expr) if expr.name in POINTS else _signed(expr, found.value)


def _problem(expr: Expr, env: Environment, indices: Mapping[str, float]) -> Problem:
    """Return what an operator minimises, on the set of the indicators in it."""
    name, shape = expr.args[0].names[0], argument_shape(expr, env.sizes)
    links = taken_apart(expr.args[0].args[0])[1]
    return Problem(env, objective(expr), name, shape, indices, objective(expr, 0), links)


def _looked_for(expr: Expr, problem: Problem) -> tuple[Minimum, Tensor]:
    """Return what is proven of a minimum; on a set, with the first weight of a penalty that proves anything."""
    start = given_name("x", expr)
    if not problem.links:
        found, guess = _searched(problem, start)
        return _of_convex(expr, problem, found), guess
    tried: list[tuple[Minimum, Tensor]] = []
    for weight in WEIGHTS:
        close = CLOSER * math.sqrt(weight)  # floats end as far off from a corner whose slopes are wide apart
        tried.append(_searched(replace(problem, body=objective(expr, weight)), start, ((FINE, close),)))
        if _error(tried[-1][0]) <= _NARROW:
            break
    found, guess = min(tried, key=lambda one: _error(one[0]))
    return _of_convex(expr, problem, found), guess


def _misused(expr: Expr) -> str:
    """Return why an indicator in a function cannot be read as a set; empty where it can."""
    body = expr.args[0].args[0]
    return "a supremum on a set" if expr.name == "supremum" and has_indicator(body) else taken_apart(body)[2]


def _is_empty(problem: Problem) -> bool:
    """Whether no point lies in the set of a problem, for certain."""
    at = At(problem, problem.valued([arb(0)] * problem.size))
    rows, signs = [], []
    for link in problem.links:
        node = at.tape.build(excess(link), problem.indices)
        by = jacobian(at.tape, node, at.leaf)
        if by is None or not at.shapes.of(node).affine:
            continue
        width, flat = problem.size, entries_of(by)
        values = numbers_of(node.value)
        rows += [[*flat[k * width : (k + 1) * width], value] for k, value in enumerate(values)]
        signs += ["==" if link.operators[0] == "==" else "<="] * len(values)
    return contradicts(rows, signs)


def _is_nowhere(problem: Problem) -> bool:
    """Whether a function has no value wherever its argument is, for certain."""
    try:
        At(problem, problem.anywhere)
    except OutsideClaimError as outside:
        return outside.certain
    return False


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
    problem = _problem(expr, env, indices)
    mu = env.variables.get(given_name("mu", expr))
    reason = f"at most {LARGEST} numbers are looked for" if problem.size > LARGEST else ""
    if mu is not None and not ar.to_scalar(mu).ball > 0:
        reason = "mu must be > 0"
    reason = reason or _misused(expr)
    if not reason:
        found, _ = _looked_for(expr, problem)
        reason = found.reason or ("" if found.alone else "the function may be least elsewhere too")
        if not reason:
            return found.value, found.point
    env.notes.doubt(f"{expr.name} is not proven: {reason}")
    return UNKNOWN, problem.anywhere


_WAYS = ((COARSE, CLOSE), (FINE, CLOSER))
"""Distances over which corners are rounded off, and how close to one a point is taken to be at it."""


def _searched(
    problem: Problem, start: str, ways: Sequence[tuple[tuple[float, ...], float]] = _WAYS
) -> tuple[Minimum, Tensor]:
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
        return Minimum(UNKNOWN, problem.anywhere, reason), first
    best: tuple[Minimum, Tensor] | None = None
    for distances, close in ways:
        guess, _ = lowest_point(problem.body, problem.name, problem.shape, names, problem.indices, at, distances)
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
    plain = taken_apart(expr.args[0].args[0])[0]
    if plain is None:
        return found
    at = At(replace(problem, body=plain, links=()), found.point)
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
    if unbounded_on_set(problem, guess) if problem.links else unbounded_below(problem, guess):
        if expr.name in ("conjugate", "infimum", "supremum"):
            return Scalar(arb("-inf" if expr.name == "infimum" else "+inf"), math.inf)
        env.notes.undefined(f"{expr.name} of a function without a minimum: it falls for ever", certain=True)
    if problem.shape is None and not problem.links and expr.name != RESOLVENT:  # which is one of convex functions
        wide = global_minimum(problem, float(guess[0]))
        known = wide is not None and (wide.reached or expr.name in ("conjugate", "infimum", "supremum"))
        if is_point and wide is not None and wide.reason:
            env.notes.undefined(f"{expr.name} has no value: {wide.reason}", certain=True)
        if wide is not None and known and not (is_point and not wide.alone):
            return wide.point if is_point else _signed(expr, wide.value)
    reason = found.reason or "the function may be least elsewhere too"
    if expr.name == LOCAL and not (problem.links or problem.shape is None or is_nested(problem.body)):
        local = _lowest_valley(problem, guess)
        if local is not None:
            env.notes.estimated.setdefault(LOCAL, _LOCAL.format(1 + _STARTS))
            return local
    bounds = None if is_point else _between(expr, problem, guess)
    if bounds is None or not bounds.ball.is_finite():
        env.notes.doubt(f"{expr.name} is not proven: {reason}")
    return bounds


def _between(expr: Expr, problem: Problem, guess: Tensor) -> Scalar | None:
    """Return what values at single points, and growth, say of a least value; None: nothing, or it may have none."""
    lowest = _valleys(problem, guess) if guess.numel() > 1 and not is_nested(problem.body) else [guess]
    found = known_ends(problem, [point.tolist() for point in lowest])
    if found is None or not (found[1] or expr.name in ("conjugate", "infimum", "supremum")):
        return None
    return _signed(expr, found[0])


_STARTS = 4  # of descents that look for the lowest valley of a function of several numbers


_LOCAL = "the lowest of the local minimisers that descents from {} starts lead to; another point may be lower"


def _lowest_valley(problem: Problem, guess: Tensor) -> Scalar | Matrix | None:
    """Return the ball of a local minimiser; None where the lowest point found is not seen to be one."""
    lowest, best = math.inf, guess
    for point in _valleys(problem, guess):
        with suppress(NtkDeqError):
            value = At(problem, problem.valued([arb(x) for x in point.tolist()])).value.ball
            if value.is_finite() and float(value.mid()) < lowest:
                lowest, best = float(value.mid()), point
    return local_minimum(problem, best) if lowest < math.inf else None


def _valleys(problem: Problem, guess: Tensor) -> list[Tensor]:
    """Return points where floats find a function to be small: one from each of several starts."""
    names = tensor_names(problem.env)
    generator = torch.Generator().manual_seed(0)
    found = [guess]
    for _ in range(_STARTS):
        start = 2.0 * torch.randn(problem.size, generator=generator, dtype=torch.float64).to(names.like)
        at = start if problem.shape is None else start.reshape(problem.shape)
        point, _ = lowest_point(problem.body, problem.name, problem.shape, names, problem.indices, at)
        if bool(point.isfinite().all()):
            found.append(point)
    return found


def _signed(expr: Expr, value: Scalar) -> Scalar:
    if expr.name not in NEGATED:
        return value
    return Scalar(-value.ball, value.scale, *scaled_ends(arb(-1), value))


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


def unbounded_on_set(problem: Problem, guess: Tensor) -> bool:
    """Whether a function falls for ever along a ray that begins at a point of its set and stays inside."""
    plain = replace(problem, body=problem.plain or problem.body)
    starts = [guess, torch.zeros_like(guess), torch.ones_like(guess)]
    places = [At(plain, problem.valued([arb(x) for x in start.tolist()])) for start in starts if start.isfinite().all()]
    inside = [at for at in places if in_set(plain, at, [])]
    if not inside:
        return False
    at = inside[0]
    bounds = [at.tape.build(penalised(None, [link], 1), problem.indices) for link in problem.links]
    unit = torch.eye(len(guess), dtype=torch.float64)
    rays = [*unit, *-unit, *(torch.tensor([float(x.mid()) for x in slope]).double() for slope in _downhill(at))]
    for ray in rays:
        growth = Growth(at.leaf, ray.tolist(), at.shapes)
        if growth.of(at.root) < 0 and all(bool(growth.of(bound) == 0) for bound in bounds):
            return True
    return False


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
        return UNKNOWN
    return problem.anywhere
