"""Equilibria and iterates of a model's map, as balls.

The float solve gives a candidate Z~; the map evaluated at Z~ in balls bounds the residual r, and the equilibrium lies
within r/g of it, where g is 1 - q for a contraction by a factor q < 1 (Banach's theorem), or what another reason for
its existence gives (`existence`).
"""

from __future__ import annotations

import torch

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.inversion import approximate_inverse
from ntk_deq.certified.precise import PreciseMatrix, adopt, as_ball
from ntk_deq.certified.rounding import divide_up
from ntk_deq.equilibrium import solve_fixed_point
from ntk_deq.equilibrium.precise import refined_equilibrium
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.batches import MAX_ENTRIES, newton
from ntk_deq.evaluation.environment import Environment
from ntk_deq.evaluation.existence import Existence, contraction_factor, existence
from ntk_deq.evaluation.floats import SOLVER, TensorNames, tensor_value
from ntk_deq.evaluation.functions.tensors import vec
from ntk_deq.evaluation.quantity import Matrix
from ntk_deq.language.format import format_expr

_LARGEST_BELOW_ONE = 1.0 - 2.0**-53


def state_shape(env: Environment) -> tuple[int, int]:
    """Return the shape of the model's state on this instance."""
    assert env.model is not None
    rows, cols = (*env.model.state_shape, None)[:2]
    return env.sizes[str(rows)], 1 if cols is None else env.sizes[cols]


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
        state_shape=state_shape(env) if env.model is not None else (0, 0),
        guess=guess,
        max_steps=env.max_steps,
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
    if known.gap is None:
        env.notes.doubt(_no_certificate(env))
        return Matrix(ct.Ball(like.new_zeros(shape), float("inf")), float("inf"))
    names = tensor_names(env)
    found, reason = _solved(env, names, like.new_zeros(shape) if start is None else float_centre(start.ball), known)
    if env.precision is not None:
        return _precise_equilibrium(env, names, found, known, start)
    candidate = Matrix(ct.ball(found), float(torch.linalg.vector_norm(found)))
    image = map_once(env, candidate)
    residual = sc.upper(ct.frobenius(ct.subtract(image.ball, candidate.ball)))
    radius = divide_up(residual, sc.lower(known.gap)) if residual > 0 else 0.0
    # Where the solve started counts among what the result was computed from: its rounding is relative to that.
    scale = max(candidate.scale, image.scale, 0.0 if start is None else start.scale)
    if not radius < float("inf"):
        env.notes.doubt(f"the equilibrium solve stopped: {reason}")
    return Matrix(ct.Ball(found, radius), scale)


def _no_certificate(env: Environment) -> str:
    """Say that nothing shows that the equilibrium exists, and what is known of the first reason that it could have."""
    assert env.formulas is not None
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
        return tensor_value(formulas.map, _with_state(names, z))

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
    assert known.gap is not None
    rows, cols = found.shape

    def flat_map(column: torch.Tensor) -> torch.Tensor:
        state = column.reshape(cols, rows).mT
        return vec(tensor_value(formulas.map, _with_state(names, state))).reshape(-1)

    jacobian = torch.func.jacrev(flat_map)(found.mT.reshape(-1))
    inverse = approximate_inverse(torch.eye(rows * cols, dtype=found.dtype, device=found.device) - jacobian)
    size = float(torch.linalg.vector_norm(found))

    def apply(state: PreciseMatrix) -> PreciseMatrix:
        return adopt(map_once(env, Matrix(as_ball(state), size)).ball)

    refined = refined_equilibrium(apply, found, inverse, known.gap, contracts=known.contracts)
    image = map_once(env, Matrix(as_ball(refined), size))
    return Matrix(as_ball(refined), max(size, image.scale, 0.0 if start is None else start.scale))


def _with_state(names: TensorNames, state: torch.Tensor) -> TensorNames:
    return TensorNames(
        names.variables, names.sizes, names.lets, names.formulas, names.like, state=state, state_shape=names.state_shape
    )


def iterate_ball(env: Environment, step: int) -> Matrix:
    """Return the state at a step of the fixed-point run: Z[0] = 0, Z[l] = map(Z[l-1])."""
    if not env.iterates:
        rows, cols = state_shape(env)
        env.iterates.append(Matrix(env.constant(ct.ball(env.like.new_zeros((rows, cols)))), 0.0))
    while len(env.iterates) <= step:
        env.iterates.append(map_once(env, env.iterates[-1]))
    return env.iterates[step]
