"""Equilibria and iterates of a model's map, and the steps of recursions, as balls.

A step of a recursion is evaluated once, after those that it rests on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from flint import arb_mat

from ntk_deq import certified as ct
from ntk_deq.certified import frobenius
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.inversion import approximate_inverse
from ntk_deq.certified.precise import PreciseMatrix, adopt, as_ball
from ntk_deq.certified.precise.matrix import from_rows
from ntk_deq.certified.rounding import divide_up
from ntk_deq.equilibrium import solve_fixed_point
from ntk_deq.equilibrium.precise import refined_equilibrium, refined_state
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.arithmetic import magnitude
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.batches import MAX_ENTRIES, newton
from ntk_deq.evaluation.environment import Environment, OutsideClaimError, Value
from ntk_deq.evaluation.existence import Existence, contraction_factor, existence, nearby_fixed_point
from ntk_deq.evaluation.floats import SOLVER, TensorNames, tensor_map
from ntk_deq.evaluation.functions.twin import vec
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar
from ntk_deq.language.format import format_expr
from ntk_deq.language.recursion import At

_LARGEST_BELOW_ONE = 1.0 - 2.0**-53
_SHRINKING = 2.0**-20


def state_shape(env: Environment) -> tuple[int, int]:
    """Return the shape of the model's state on this instance; 0 x 0 where there is none."""
    return (0, 0) if env.model is None else env.model.state_at(env.sizes)


def tensor_names(
    env: Environment, *, state: torch.Tensor | None = None, guess: torch.Tensor | None = None
) -> TensorNames:
    """Return the environment's centres for the floating-point backend."""
    like = env.like
    variables = {
        name: float_centre(v.ball) if isinstance(v, Matrix) else like.new_tensor(float(v.ball.mid()))
        for name, v in env.variables.items()
    }
    return TensorNames(
        variables,
        env.sizes,
        env.lets,
        env.formulas,
        like,
        state=state,
        state_shape=state_shape(env),
        guess=guess,
        max_steps=env.max_steps,
        recursions=env.recursions,
    )


def float_centre(ball: ct.Ball) -> torch.Tensor:
    """Return the centre of a ball, rounded to floats where it has more digits."""
    return ball.approximate if isinstance(ball, PreciseMatrix) else ball.centre


def map_once(env: Environment, state: Matrix) -> Matrix:
    """Apply the model's map to a state, in balls."""
    assert env.formulas is not None
    inside = env.with_state(state)
    result = evaluate(env.formulas.map, inside)
    for name, value in inside.cache.items():
        if name in env.formulas.definitions and name in env.state_free():
            env.cache.setdefault(name, value)
    if isinstance(result, Scalar):  # a state that is a number counts as 1 x 1
        one = ct.from_scalar(result.ball) if env.precision is None else as_ball(PreciseMatrix(arb_mat([[result.ball]])))
        return Matrix(one, result.scale)
    assert isinstance(result, Matrix)
    return result


def equilibrium_ball(env: Environment, start: Matrix | None = None) -> Matrix:
    """Return a ball that contains the equilibrium, solved from `start` (zeros where None).

    Where it is not certain to exist the ball carries no information and the notes say why. A solve that stopped early
    gives a wide ball, which still contains the equilibrium.
    """
    formulas = env.formulas
    assert formulas is not None
    shape = state_shape(env)
    known = existence(env)
    like = env.like
    if known.gap is None and (reason := _only_global(env, start)):
        env.notes.doubt(reason)
        return Matrix(ct.Ball(like.new_zeros(shape), float("inf")), float("inf"))
    names = tensor_names(env)
    found, reason = _solved(env, names, like.new_zeros(shape) if start is None else float_centre(start.ball), known)
    if env.precision is not None:
        return _precise_equilibrium(env, names, found, known, start)
    candidate = Matrix(ct.ball(found), float(torch.linalg.vector_norm(found)))
    image = map_once(env, candidate)
    if known.gap is None:
        return _near(env, candidate, image)
    residual = sc.upper(ct.frobenius(ct.subtract(image.ball, candidate.ball)))
    radius = divide_up(residual, sc.lower(known.gap)) if residual > 0 else 0.0
    # Where the solve started counts among what the result was computed from: its rounding is relative to that.
    scale = max(candidate.scale, image.scale, 0.0 if start is None else start.scale)
    if not radius < float("inf"):
        env.notes.doubt(f"the equilibrium solve stopped: {reason}")
    return Matrix(ct.Ball(found, radius), scale)


def _only_global(env: Environment, start: Matrix | None) -> str:
    """Return why an equilibrium that is known to be the only one near by will not do here; empty where it will.

    Raises:
        OutsideClaimError: A declared modulus is not certified.
    """
    assert env.formulas is not None
    if env.formulas.monotone is not None:
        raise OutsideClaimError("monotone", _no_certificate(env), certain=False)
    if not env.formulas.local:
        return _no_certificate(env)
    if env.alone and start is None:
        return ""
    where = "at other values of the variables" if start is None else "from another start"
    return f"{_no_certificate(env)}; there may be several, and which one is meant {where} is open"


def _near(env: Environment, candidate: Matrix, image: Matrix) -> Matrix:
    """Return the ball of the fixed point that is the only one near a candidate.

    Raises:
        OutsideClaimError: None is shown to be; as the claim speaks of fixed points, it may say nothing here.
    """
    found = nearby_fixed_point(env, candidate, image)
    scale = max(candidate.scale, image.scale)
    if isinstance(found, str):
        detail = f"{_no_certificate(env)}; nor is one near the point found: {found}"
        raise OutsideClaimError("equilibrium", detail, certain=False)
    env.notes.nearby = min(env.notes.nearby, found.alone)
    ball = candidate.ball
    if isinstance(ball, PreciseMatrix):
        spread = sc.with_radius(0.0, found.radius)
        return Matrix(as_ball(from_rows(*ball.shape, (entry + spread for entry in ball.flat))), scale)
    return Matrix(ct.Ball(ball.centre, found.radius), scale)


def _no_certificate(env: Environment) -> str:
    """Say that nothing shows that the equilibrium exists, and what is known of the first reason that it could have."""
    assert env.formulas is not None
    if env.formulas.contraction is None:
        return "no certificate that the equilibrium is the only one: the map has no Lipschitz constant that is known"
    name, factor = format_expr(env.formulas.contraction), contraction_factor(env).ball
    if not factor.is_finite():
        known = f"{name} is not known"
    elif factor >= 1:
        known = f"{name} = {sc.upper(factor):.6g} is not below 1"
    else:
        known = f"{name} <= {sc.upper(factor):.6g} may not be below 1"
    return f"no certificate that the equilibrium exists: the contraction factor {known}, and no other reason is found"


def _solved(env: Environment, names: TensorNames, initial: torch.Tensor, known: Existence) -> tuple[torch.Tensor, str]:
    """Return a float equilibrium, and in words how the solve ended."""
    formulas = env.formulas
    assert formulas is not None
    if not known.contracts and initial.numel() <= MAX_ENTRIES:
        nowhere = torch.zeros((), dtype=torch.bool, device=initial.device)
        state, _, missed = newton(names, initial, nowhere, with_jacobian=False)
        return state, "Newton's method did not settle" if bool(missed) else "Newton's method settled"

    def step(z: torch.Tensor) -> torch.Tensor:
        env.notes.check_time()
        return tensor_map(names, z)

    factor = contraction_factor(env).ball
    solved = solve_fixed_point(
        step,
        initial,
        solver=SOLVER,
        batch_dims=0,
        contraction=min(sc.upper(factor), _LARGEST_BELOW_ONE) if known.contracts else None,
        max_steps=env.max_steps,
        raise_on_failure=False,
    )
    return solved.value, solved.describe()


def _precise_equilibrium(
    env: Environment, names: TensorNames, found: torch.Tensor, known: Existence, start: Matrix | None
) -> Matrix:
    """Return the equilibrium in arb entries, from a float one."""
    formulas = env.formulas
    assert formulas is not None
    rows, cols = found.shape

    def flat_map(column: torch.Tensor) -> torch.Tensor:
        state = column.reshape(cols, rows).mT
        return vec(tensor_map(names, state)).reshape(-1)

    def inverses() -> Iterator[torch.Tensor | None]:
        # In a unit that pulls strongly towards zero floats lose the sign of what adds up to its small value.
        for point in (found, (1 - _SHRINKING) * found):
            jacobian = torch.autograd.functional.jacobian(flat_map, point.mT.reshape(-1))
            yield approximate_inverse(torch.eye(rows * cols, dtype=found.dtype, device=found.device) - jacobian)

    size = float(torch.linalg.vector_norm(found))

    def apply(state: PreciseMatrix) -> PreciseMatrix:
        return adopt(map_once(env, Matrix(as_ball(state), size)).ball)

    if known.gap is None:
        state = Matrix(as_ball(refined_state(apply, found, inverses())), size)
        return _near(env, state, map_once(env, state))
    refined = refined_equilibrium(apply, found, inverses(), known.gap, contracts=known.contracts)
    image = map_once(env, Matrix(as_ball(refined), size))
    return Matrix(as_ball(refined), max(size, image.scale, 0.0 if start is None else start.scale))


def iterate_ball(env: Environment, step: int) -> Matrix:
    """Return the state at a step of the fixed-point run: Z[0] = 0, Z[l] = map(Z[l-1])."""
    if not env.iterates:
        rows, cols = state_shape(env)
        env.iterates.append(Matrix(env.constant(ct.ball(env.like.new_zeros((rows, cols)))), 0.0))
    while len(env.iterates) <= step:
        env.iterates.append(map_once(env, env.iterates[-1]))
    return env.iterates[step]


def value_at_step(env: Environment, name: str, step: int) -> Scalar | Matrix:
    """Return the value that a recursion has at a step; those that it rests on are kept.

    The scale of such a value is its own size: that of its formula would grow from step to step without any bound. What
    the formula says, of parts that have their own size, is kept in `scales`.

    Raises:
        LimitError: The step is beyond the budget.
        OutsideClaimError: The recursion breaks off before.
    """
    known = env.at_steps
    if (name, step) not in known:
        first = env.recursions.first(name)
        if not first <= step <= env.last_step:
            raise LimitError(f"{name}[{step}] does not exist: the recursion has steps {first} to {env.last_step}.")
        for at in env.recursions.unfolded(name, step, known):
            env.notes.check_time()
            expr, letters = env.recursions.formula(*at)
            try:
                found = evaluate(expr, env, letters)
                known[at] = _step_value(found, at)
                env.scales[at] = getattr(found, "scale", 0.0)
            except OutsideClaimError as error:
                known[at] = error
    value = known[name, step]
    if isinstance(value, OutsideClaimError):
        raise value
    return value


def _step_value(value: Value, at: At) -> Scalar | Matrix:
    """Return the value of a recursion's formula as that of a step."""
    assert not isinstance(value, Outcome)
    if isinstance(value, Scalar):
        finite, size, why = value.ball.is_finite(), magnitude(value.ball), ""
    else:
        finite, why = value.ball.is_finite, value.ball.reason
        size = sc.upper(frobenius(value.ball)) if finite else math.inf
    if not finite or not size < math.inf:
        detail = f"the recursion breaks off: {at[0]}[{at[1]}] {why or 'is not finite, or not known'}"
        raise OutsideClaimError("defined", detail, certain=False)
    return replace(value, scale=size)
