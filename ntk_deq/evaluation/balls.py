"""Evaluate a formula of the claim language on an instance, in balls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise, product

from flint import arb

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.errors import LimitError
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.arithmetic import NO_STEP, compare_chain, conjunction, disjunction, negation
from ntk_deq.evaluation.environment import Environment, OutsideClaimError, Sides, Value
from ntk_deq.evaluation.functions.twins import call
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar, Truth, of_inclusion
from ntk_deq.language.arguments import type_of
from ntk_deq.language.format import function_text, inclusion_of
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.indices import (
    index_names,
    is_bounded,
    ranges_inside,
    same_at,
    shown_by_steps,
    step_of,
    steps_in,
    upper_bounds,
)
from ntk_deq.language.ranges import never_equal
from ntk_deq.language.symmetry import parity
from ntk_deq.language.tree import QUANTIFIERS, Expr, Kind
from ntk_deq.language.types import Sort

Indices = Mapping[str, float]
_STRICT = ("<", ">", "!=")
MAX_STEP_TUPLES = 200_000  # `for all p, q` over 300 steps has 90,000 pairs; beyond this a claim would run for hours


def evaluate(expr: Expr, env: Environment, indices: Indices | None = None) -> Value:
    """Return the value of `expr`: a scalar, a matrix, or a truth value, each as a ball.

    Args:
        expr: A typed tree.
        env: What the names mean.
        indices: Values of the step indices in scope.

    Raises:
        LimitError: A matrix or a quantifier would exceed the limits.
    """
    env.notes.check_time()
    if indices and env.moments is None and expr.kind in _OPERATIONS:
        return _once_a_step(expr, env, indices)
    return _HANDLERS[expr.kind](expr, env, indices or {})


def _once_a_step(expr: Expr, env: Environment, indices: Indices) -> Value:
    """Evaluate a part of a quantified formula once for all steps that it does not depend on."""
    if id(expr) not in env.indexed:
        inside = {node.name for node in expr.walk() if node.kind is Kind.NAME}
        quantified = {name for node in expr.walk() for name in node.names}  # an index of a quantifier further in
        # The part itself is kept: no other one can get its identity then.
        env.indexed[id(expr)] = expr, tuple(sorted((inside - quantified) & indices.keys()))
    names = env.indexed[id(expr)][1]
    if len(names) == len(indices):
        return _HANDLERS[expr.kind](expr, env, indices)
    key = (id(expr), tuple(indices[name] for name in names))
    if key not in env.per_step:
        env.per_step[key] = _HANDLERS[expr.kind](expr, env, indices)
    return env.per_step[key]


def bound(function: Expr, value: Value, env: Environment) -> Environment:
    """Return the environment inside a function at a point; no definition knows its argument, so that all are kept.

    Args:
        function: The function, with types.
        value: The point.
        env: The environment outside.
    """
    matrix = type_of(function.args[1]).sort is Sort.MATRIX
    point = ar.to_matrix(value) if matrix else ar.to_scalar(value)
    return replace(env, variables={**env.variables, function.names[0]: point})


def evaluate_scalar(expr: Expr, env: Environment, indices: Indices | None = None) -> Scalar:
    """Evaluate an expression that the type checker knows to be a scalar (or 1 x 1)."""
    return ar.to_scalar(evaluate(expr, env, indices))


def evaluate_truth(expr: Expr, env: Environment, indices: Indices | None = None) -> Outcome:
    """Evaluate a boolean expression."""
    value = evaluate(expr, env, indices)
    if not isinstance(value, Outcome):
        raise TypeError(f"a boolean was expected, not {type(value).__name__}")
    return value


def _number(expr: Expr, env: Environment, indices: Indices) -> Scalar:
    assert expr.value is not None
    ball = sc.exact(expr.value)
    return Scalar(ball, ar.magnitude(ball))


def _name(expr: Expr, env: Environment, indices: Indices) -> Value:
    name = expr.name
    if name in indices:
        step = indices[name]
        return Scalar(arb(step) if env.moments is None else env.moments.index(step), abs(step))
    if env.origin is not None and env.moments is not None and name in env.lets and name not in env.moments.changing:
        return _name(expr, env.origin, indices)
    if name in env.variables:
        return env.variables[name]
    if name in env.cache:
        return env.cache[name]
    if name in env.sizes:
        return Scalar(arb(env.sizes[name]), float(env.sizes[name]))
    if name in env.lets:
        value = evaluate(env.lets[name].expr, env)
    else:
        value = _model_quantity(name, env)
    env.cache[name] = value
    return value


def _model_quantity(name: str, env: Environment) -> Value:
    formulas = env.formulas
    if formulas is not None and name == formulas.state:
        return env.providers.equilibrium(env, None)
    if formulas is not None and name in formulas.definitions:
        return evaluate(formulas.definitions[name], env)
    raise KeyError(f"{name} has no value on this instance")


def _index(expr: Expr, env: Environment, indices: Indices) -> Value:
    step = step_of(expr.args[0], indices)
    if expr.name in env.recursions:
        return env.providers.at_step(env, expr.name, int(step))
    if env.moments is not None:
        return _name(expr, env.moments.environment(step), {})
    if step != int(step) or not 0 <= step <= env.last_step:
        raise LimitError(f"{expr.name}[{step}] does not exist: the run has steps 0 to {env.last_step}.")
    return env.providers.iterate(env, int(step))


def _call(expr: Expr, env: Environment, indices: Indices) -> Value:
    if expr.name in ("grad", "jac"):
        return env.providers.derivative(expr, env, indices)
    if expr.args and expr.args[0].kind is Kind.FUNCTION:
        return env.providers.extreme(expr, env, indices)
    if expr.name in ("next", "fixed_point"):
        start = ar.to_matrix(evaluate(expr.args[0], env, indices))
        return env.providers.image(env, start) if expr.name == "next" else env.providers.equilibrium(env, start)
    values = [evaluate(arg, env, indices) for arg in expr.args]
    if FUNCTIONS[expr.name].of_symmetric and isinstance(values[0], Matrix):
        values[0] = replace(values[0], symmetric=is_symmetric(expr.args[0], env))
    return call(expr.name, values, env)


def is_symmetric(expr: Expr, env: Environment) -> bool:
    """Whether a formula is symmetric by its form, those variables being so that are for certain."""
    lets = {name: let.expr for name, let in env.lets.items()}
    if env.formulas is not None:
        lets = {**env.formulas.definitions, **lets}
    return parity(expr, lambda name: _sign(env.variables.get(name)), lets) == 1


def _sign(value: Value | None) -> int:
    """Return 1 for a matrix that is symmetric for certain, -1 for one that is skew, else 0."""
    if not isinstance(value, Matrix) or value.ball.shape[0] != value.ball.shape[1]:
        return 0
    turned = ct.transpose(value.ball)
    if ct.compare_entries("==", value.ball, turned).all_true:
        return 1
    return -1 if ct.compare_entries("==", value.ball, ct.negate(turned)).all_true else 0


def _at(expr: Expr, env: Environment, indices: Indices) -> Value:
    values: dict[str, Scalar | Matrix] = {}
    for name, arg in zip(expr.names, expr.args[1:], strict=True):
        value = evaluate(arg, env, indices)
        values[name] = ar.to_matrix(value) if isinstance(env.variables[name], Matrix) else ar.to_scalar(value)
    return evaluate(expr.args[0], env.replaced(values), indices)


def _unary(operation: Callable[[Value], Value]) -> Callable[[Expr, Environment, Indices], Value]:
    return lambda expr, env, indices: operation(evaluate(expr.args[0], env, indices))


def _binary(operation: Callable[..., Value]) -> Callable[[Expr, Environment, Indices], Value]:
    def handler(expr: Expr, env: Environment, indices: Indices) -> Value:
        left, right = (evaluate(arg, env, indices) for arg in expr.args)
        return operation(left, right, env.notes)

    return handler


def _multiply(expr: Expr, env: Environment, indices: Indices) -> Value:
    left, right = expr.args
    value = ar.multiply(evaluate(left, env, indices), evaluate(right, env, indices), env.notes)
    return replace(value, gram=True) if isinstance(value, Matrix) and _is_gram(left, right, env, indices) else value


def _is_gram(left: Expr, right: Expr, env: Environment, indices: Indices) -> bool:
    """Whether a product is A A', perhaps times a number >= 0 in front, or A'A."""
    if left.kind is Kind.TRANSPOSE and same_at(left.args[0], right, indices, still=False):
        return True
    if right.kind is not Kind.TRANSPOSE:
        return False
    if same_at(left, right.args[0], indices, still=False):
        return True
    if left.kind is not Kind.MULTIPLY or not same_at(left.args[1], right.args[0], indices, still=False):
        return False
    factor = evaluate(left.args[0], env, indices)
    return isinstance(factor, Scalar) and bool(factor.ball >= 0)


def _compare(expr: Expr, env: Environment, indices: Indices) -> Outcome:
    values = [evaluate(arg, env, indices) for arg in expr.args]
    if env.notes.sides is not None and len(values) == 2 and all(map(ar.is_number, values)):
        env.notes.sides.append(Sides(expr, dict(indices), *map(ar.to_scalar, values)))
    same = [False] * len(expr.operators)
    if (
        env.recursions.rules if env.moments is None else env.moments.only is None
    ):  # as at s = t in `L[t] <= L[s] for all s, t`
        # What rests is the same number at every step, so that a strict comparison of two steps is false for certain.
        still = [env.moments is not None and env.moments.resting and operator in _STRICT for operator in expr.operators]
        same = [same_at(*sides, indices, at) for sides, at in zip(pairwise(expr.args), still, strict=True)]
    steps, links = tuple(indices.items()), []
    for place, operator in enumerate(expr.operators):
        outcome = compare_chain(values[place : place + 2], [operator], steps, same[place : place + 1])
        sides = expr.args[place], expr.args[place + 1]
        if outcome.truth is Truth.STRICT_TIGHT and never_equal(*sides, operator, env.lets):
            outcome = replace(outcome, truth=Truth.TRUE)
        links.append(outcome)
    if (inclusion := inclusion_of(expr)) is not None:
        return of_inclusion(links[0], evaluate(inclusion[0], env, indices), function_text(inclusion[1]), values[0])
    return conjunction(links)


def _and(expr: Expr, env: Environment, indices: Indices) -> Outcome:
    return _connected(expr, env, indices, Truth.FALSE, conjunction)


def _or(expr: Expr, env: Environment, indices: Indices) -> Outcome:
    return _connected(expr, env, indices, Truth.TRUE, disjunction)


def _connected(
    expr: Expr,
    env: Environment,
    indices: Indices,
    decisive: Truth,
    combine: Callable[[Sequence[Outcome]], Outcome],
) -> Outcome:
    """Combine the parts of a connective; a part without a value does not matter where another one decides."""
    outcomes, outside = [], None
    for arg in expr.args:
        try:
            outcomes.append(evaluate_truth(arg, env, indices))
        except OutsideClaimError as error:
            outside = error
    if outside is not None and not any(outcome.truth is decisive for outcome in outcomes):
        raise outside
    return combine(outcomes)


def _not(expr: Expr, env: Environment, indices: Indices) -> Outcome:
    outcome = negation(evaluate_truth(expr.args[0], env, indices))
    quantified = any(node.kind in QUANTIFIERS for node in expr.args[0].walk())
    partly = env.moments is not None or bool(env.recursions.rules)
    if partly and quantified and outcome.truth is Truth.FALSE:
        # What holds at the judged steps of a training run, or up to the budget of a recursion, may fail at another one.
        return Outcome(
            Truth.UNSURE, outcome.comparison, "a statement about every step is denied, and holds at those judged"
        )
    return outcome


def _for_all(expr: Expr, env: Environment, indices: Indices) -> Outcome:
    """The conjunction over all steps of the run at which every indexed quantity exists.

    Along a training run a bound is often an equality at the start by construction, L[0] <= c^0 L[0]; such a tie says
    nothing about the steps after it and is left out where there are some. Like a part of `and`, a step at which the
    statement has no value does not matter where another one breaks it. Of a range without a bound the budget is
    judged; one that is bounded is seen whole, or the statement is open.
    """
    outcomes: list[Outcome] = []
    tie, broken, outside = None, False, None
    nested = any(node.kind in QUANTIFIERS for node in expr.args[0].walk())
    whole = env.moments is None and ends(expr, env, indices)
    for scope, sure in shown_scopes(expr, env, indices):
        try:
            outcome = evaluate_truth(expr.args[0], env, scope)
        except OutsideClaimError as error:
            outside = outside or error
            continue
        if not sure and outcome.truth is not Truth.TRUE:
            outcome = replace(outcome, truth=Truth.UNSURE, reason=_UNSURE_STEP)
        if whole:
            outcome = _seen_inside(outcome, expr, env, scope)
        if env.moments is not None and _is_tie(outcome, at_the_start=not any(scope.values())):
            tie = outcome
            continue
        if not broken:
            outcomes.append(outcome)
        broken = broken or outcome.truth is Truth.FALSE
        if broken and (nested or env.notes.sides is None):  # a run is shown whole, beyond where it breaks
            break
    if outside is not None and not broken:
        raise outside
    if not broken and not whole and env.moments is None and is_bounded(expr):
        return Outcome(Truth.UNSURE, conjunction(outcomes).comparison, _BEYOND.format(env.last_step))
    if not outcomes and tie is None and env.recursions.rules:
        return Outcome(Truth.TRUE, None, NO_STEP)
    return conjunction(outcomes or ([] if tie is None else [tie]))


def _for_some(expr: Expr, env: Environment, indices: Indices) -> Outcome:
    """The disjunction over the steps of the run; false only where no later step could come into question either."""
    outcomes: list[Outcome] = []
    outside = None
    likely = env.likely.get(id(expr), ()) if indices else None  # where it was true at an outer step before
    for scope, sure in shown_scopes(expr, env, indices, likely):
        try:
            outcome = evaluate_truth(expr.args[0], env, scope)
        except OutsideClaimError as error:
            outside = outside or error
            continue
        if not sure and outcome.truth is not Truth.FALSE:
            outcome = replace(outcome, truth=Truth.UNSURE, reason=_UNSURE_STEP)
        outcome = _seen_inside(outcome, expr, env, scope)
        if outcome.truth is Truth.TRUE:
            env.likely[id(expr)] = tuple(scope[name] for name in expr.names)
            return outcome
        outcomes.append(outcome)
    if outside is not None:
        raise outside
    best = disjunction(outcomes) if outcomes else Outcome(Truth.FALSE, None, f"for some: {NO_STEP}")
    if best.truth is Truth.FALSE and not ends(expr, env, indices):
        reason = f"none of the steps up to {env.last_step} does, and later ones were not looked at"
        return replace(best, truth=Truth.UNSURE, reason=reason)
    return best


_UNSURE_STEP = "it is not certain which steps are meant"
_BEYOND = "a range goes on beyond step {}, and later steps were not looked at"


def _seen_inside(outcome: Outcome, expr: Expr, env: Environment, scope: Indices) -> Outcome:
    """Return the outcome at a step; open where it is not false and a `for all` in it goes on beyond the budget."""
    known = env.moments is not None or outcome.truth is Truth.FALSE
    if known or all(ends(node, env, scope) for node in ranges_inside(expr.args[0])):
        return outcome
    return replace(outcome, truth=Truth.UNSURE, reason=_BEYOND.format(env.last_step))


def ends(expr: Expr, env: Environment, indices: Indices) -> bool:
    """Whether a condition rules out, for certain, every step that the budget leaves unseen: by an upper bound of it."""
    if len(expr.args) < 2 or len(expr.names) > 1:
        return False
    name, later = expr.names[0], env.last_step + 1
    for node in expr.args[0].walk():
        if node.kind is Kind.INDEX and name in index_names(node.args[0]) <= {*indices, name}:
            later = min(later, int(env.last_step + 1 - step_of(node.args[0], {**indices, name: 0})))
    at = {**indices, name: later}
    known = [bound for bound in upper_bounds(expr) if steps_in(bound) <= at.keys()]
    return any(evaluate_truth(bound, env, at).truth is Truth.FALSE for bound in known)


def _is_tie(outcome: Outcome, *, at_the_start: bool) -> bool:
    """Whether the two sides are equal because they are the same number, or at the start by construction."""
    margin = None if outcome.comparison is None else outcome.comparison.margin
    exact = outcome.truth is Truth.TRUE and margin is not None and margin.lo == margin.hi == 0
    return exact or (at_the_start and outcome.truth is Truth.TIGHT)


def shown_scopes(
    expr: Expr, env: Environment, indices: Indices, likely: tuple[float, ...] | None = None
) -> Iterator[tuple[dict[str, float], bool]]:
    """Yield the values of the indices that a quantifier ranges over, and whether it is certain that they are meant.

    Args:
        expr: The quantifier.
        env: What names mean.
        indices: Values of the step indices outside.
        likely: Values that come first, then the others from the last ones on; None: in order.

    Raises:
        LimitError: There are too many.
    """
    body = expr.args[0]
    steps: Sequence[float] = range(env.last_step + 1) if env.moments is None else env.moments.judged(len(expr.names))
    if len(steps) ** len(expr.names) > MAX_STEP_TUPLES:
        raise LimitError(
            f"`{expr.kind} {', '.join(expr.names)}` ranges over {len(steps) ** len(expr.names):,} tuples of steps; "
            f"at most {MAX_STEP_TUPLES:,} are allowed. Lower the run's `steps`."
        )
    used = [(node, index_names(node.args[0])) for node in body.walk() if node.kind is Kind.INDEX]
    order = product(steps if likely is None else steps[::-1], repeat=len(expr.names))
    for values in chain([likely] if likely else [], order):
        scope = {**indices, **dict(zip(expr.names, values, strict=True))}
        if any(names <= scope.keys() and not _exists(node, scope, env) for node, names in used):
            continue
        if len(expr.args) > 1:
            met = None if env.moments is not None else shown_by_steps(expr.args[1], scope)
            if met is False:
                continue
            shown = Truth.TRUE if met else evaluate_truth(expr.args[1], env, scope).truth
            throughout = env.moments is not None and env.moments.only is not None
            if shown is Truth.FALSE or (shown is not Truth.TRUE and env.moments is not None and not throughout):
                continue
            yield scope, shown is Truth.TRUE or throughout
            continue
        yield scope, True


def _exists(node: Expr, indices: Indices, env: Environment) -> bool:
    """Whether a name has a value at the step in its brackets."""
    step = step_of(node.args[0], indices)
    if env.moments is not None:
        return env.moments.has(step)
    return (env.recursions.first(node.name) if node.name in env.recursions else 0) <= step <= env.last_step


_OPERATIONS = frozenset({Kind.CALL, Kind.MULTIPLY, Kind.DIVIDE, Kind.POWER, Kind.ADD, Kind.SUBTRACT})
"""Kinds of parts whose values are kept between the steps of a quantifier."""

_HANDLERS: dict[Kind, Callable[[Expr, Environment, Indices], Value]] = {
    Kind.NUMBER: _number,
    Kind.NAME: _name,
    Kind.INDEX: _index,
    Kind.CALL: _call,
    Kind.AT: _at,
    Kind.NEGATE: _unary(ar.negate),
    Kind.ADD: _binary(ar.add),
    Kind.SUBTRACT: _binary(ar.subtract),
    Kind.MULTIPLY: _multiply,
    Kind.DIVIDE: _binary(ar.divide),
    Kind.POWER: _binary(ar.power),
    Kind.TRANSPOSE: _unary(ar.transpose),
    Kind.COMPARE: _compare,
    Kind.AND: _and,
    Kind.OR: _or,
    Kind.NOT: _not,
    Kind.FOR_ALL: _for_all,
    Kind.FOR_SOME: _for_some,
}
