"""What takes a function to be minimised, in balls: `prox`, `moreau`, `conjugate`, `argmin` and the like.

Where a function of one number is least on the whole line is found by branch and bound: no convexity is asked for.
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
from ntk_deq.evaluation.convex.curvature import curvatures, terms
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
from ntk_deq.evaluation.convex.tensors import COARSE, FINE, lowest_point
from ntk_deq.evaluation.derivatives.cotangents import Node
from ntk_deq.evaluation.derivatives.gradient import Operations, gradient
from ntk_deq.evaluation.environment import Environment, Least, OutsideClaimError
from ntk_deq.evaluation.equilibria import tensor_names
from ntk_deq.evaluation.floats import tensor_value
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar
from ntk_deq.language.format import RESOLVENT
from ntk_deq.language.functions import kink_of
from ntk_deq.language.record import Kink
from ntk_deq.language.tree import Expr, names_in

_BOXES = 2000
_SHORT = 2.0**-46  # relative; what is left of an interval that holds a minimiser
_FARTHEST = 40  # powers of two that R is tried at


def global_minimum(problem: Problem, guess: float) -> Minimum | None:
    """Return the least value of a function of one number, and where it is reached; None where that is not known.

    The point is `alone` where all of them lie in one narrow interval.

    Args:
        problem: The function.
        guess: Where floats found it to be least.
    """
    try:
        return _global_minimum(problem, guess)
    except NtkDeqError:
        return None


def _global_minimum(problem: Problem, guess: float) -> Minimum | None:
    at = At(problem, Scalar(arb(guess), abs(guess)))
    best = at.value
    if not best.ball.is_finite() or any(
        kink_of(node.operation) is Kink.JUMP and at.shapes.moves(node) for node in _with_images(at.root)
    ):
        return None
    reach = _reach(problem, at, guess, sc.upper(best.ball))
    if reach is None:
        return _by_range(problem, at, best)
    boxes, least = _boxes(problem, reach, sc.upper(best.ball))
    if not boxes:
        return None
    value = Scalar(sc.from_bounds(min(least, *(box[2] for box in boxes)), least), best.scale)
    left, right = min(box[0] for box in boxes), max(box[1] for box in boxes)
    narrow = right - left <= 64 * _SHORT * max(1.0, abs(left), abs(right))
    return Minimum(value, Scalar(sc.from_bounds(left, right), max(abs(left), abs(right))), alone=narrow)


def _with_images(root: Node) -> list[Node]:
    """Return every node that a formula rests on, those inside of minima too."""
    seen: dict[int, Node] = {}
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.number not in seen:
            seen[node.number] = node
            waiting += [*node.args, *([] if node.image is None else [node.image])]
    return list(seen.values())


def _by_range(problem: Problem, at: At, best: Scalar) -> Minimum | None:
    """Between what the values of the function can be by its form and one of them."""
    low = at.shapes.of(at.root).range.low
    if not math.isfinite(low):
        return None
    value = Scalar(
        sc.from_bounds(min(math.nextafter(float(low), -math.inf), sc.upper(best.ball)), sc.upper(best.ball)), best.scale
    )
    return Minimum(value, problem.valued([arb(0)], math.inf), alone=False, reached=False)


def _reach(problem: Problem, at: At, guess: float, best: float) -> float | None:
    """Return R beyond which the function is larger than a value; None where none is found."""
    size = 2.0 * max(1.0, abs(guess))
    for _ in range(_FARTHEST):
        problem.env.notes.check_time()
        ends = [_beyond(problem, end, best) for end in (size, -size)]
        if all(end is True for end in ends):
            return size
        if None in ends:
            return None
        size *= 2.0
    return None


def _beyond(problem: Problem, end: float, best: float) -> bool | None:
    """Whether a function is larger than a value from a point outward; None where its form does not tell."""
    at = At(problem, Scalar(arb(end), abs(end)))
    ops, convex, low = Operations(at.tape), None, arb(0)
    for factor, node in terms(at.root, at.shapes):
        shape = at.shapes.of(node)
        number = ops.times(at.tape.given(factor), ops.total(node if node.shape == (1, 1) else ops.made("sum", node)))
        good = (shape.convex and factor.ball >= 0) or (shape.concave and factor.ball <= 0)
        if good or (shape.degree is not None and shape.degree <= 2):
            convex = number if convex is None else ops.plus(convex, number)
            continue
        bound = shape.range.low if factor.ball >= 0 else shape.range.high if factor.ball <= 0 else math.inf
        if not math.isfinite(bound) or node.shape != (1, 1):
            return None
        low = low + factor.ball * sc.exact(bound)
    if convex is None or not at.shapes.of(convex).convex:
        return None
    slope = ar.to_scalar(gradient(at.tape, convex, at.leaf, at.slopes([])).value).ball
    value = ar.to_scalar(convex.value).ball + low
    rises = slope >= 0 if end > 0 else slope <= 0
    return bool(rises) and bool(value > best)


Box = tuple[float, float, float]
"""An interval, and a lower bound of the function on it."""


def _boxes(problem: Problem, reach: float, least: float) -> tuple[list[Box], float]:
    """Return narrow intervals that hold every minimiser, none where the budget ran out; and a bound of the minimum."""
    waiting: list[Box] = [(-reach, reach, -math.inf)]
    found: list[Box] = []
    for _ in range(_BOXES):
        if not waiting:
            return [box for box in found if box[2] <= least], least
        problem.env.notes.check_time()
        left, right, _low = waiting.pop()
        low, value, steep = _on(problem, left, right)
        least = min(least, value)
        if low > least or steep:
            continue
        if right - left <= _SHORT * max(1.0, abs(left), abs(right)):
            found.append((left, right, low))
            continue
        middle = left + (right - left) / 2
        waiting += [(left, middle, low), (middle, right, low)]
    return [], least


def _on(problem: Problem, left: float, right: float) -> tuple[float, float, bool]:
    """Return a lower bound of the function on an interval, a value in its middle, and whether it is monotone."""
    box = sc.from_bounds(left, right)
    at = At(problem, Scalar(box, max(abs(left), abs(right))))
    low = at.value.ball
    middle = left + (right - left) / 2
    value = At(problem, Scalar(arb(middle), abs(middle))).value.ball
    slope = ar.to_scalar(at.slope([])[0].value).ball
    if slope.is_finite() and value.is_finite():
        mean = value + slope * (box - arb(middle))
        bottom = max(sc.lower(low) if low.is_finite() else -math.inf, sc.lower(mean))
    else:
        bottom = sc.lower(low) if low.is_finite() else -math.inf
    steep = slope.is_finite() and (bool(slope > 0) or bool(slope < 0))
    return bottom, sc.upper(value) if value.is_finite() else math.inf, steep


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
