"""Equilibria and iterates of a model's map, and the steps of recursions, as balls.

A step of a recursion is evaluated once, after those that it rests on. With many bits an equilibrium comes from Newton
steps with a float inverse, and a bound entry by entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import flint
import torch
from flint import arb, arb_mat
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified import frobenius
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.inversion import approximate_inverse
from ntk_deq.certified.precise import PreciseMatrix, adopt, as_ball, precise
from ntk_deq.certified.precise.arithmetic import add, scale, subtract
from ntk_deq.certified.precise.arithmetic import frobenius as precise_frobenius
from ntk_deq.certified.precise.matrix import from_rows
from ntk_deq.certified.precise.spectra import middle
from ntk_deq.certified.rounding import divide_up
from ntk_deq.equilibrium import solve_fixed_point
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.arithmetic import magnitude
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.batches import MAX_ENTRIES, newton
from ntk_deq.evaluation.environment import Environment, OutsideClaimError, Value
from ntk_deq.evaluation.existence import Existence, contraction_factor, existence, nearby_fixed_point
from ntk_deq.evaluation.floats import SOLVER, TensorNames, tensor_map
from ntk_deq.evaluation.functions import vec
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar
from ntk_deq.language.format import format_expr
from ntk_deq.language.recursion import At

_STEPS = 400
"""Steps at most; a Newton step gains some 30 bits, a plain one of a map that contracts by one half a single bit."""

_PATIENCE = 3
"""Steps in a row without a gain after which the precision is taken to be reached, where the map is no contraction."""

_NEAR = 2.0**-40
"""Relative distance of a state from its image below which it counts as found."""

Apply = Callable[[PreciseMatrix], PreciseMatrix]


def refined_equilibrium(
    apply: Apply, start: Tensor, inverses: Iterable[Tensor | None], gap: arb, *, contracts: bool = True
) -> PreciseMatrix:
    """Return a precise ball that contains the only equilibrium of a map.

    Args:
        apply: The map, in precise balls.
        start: An approximate equilibrium in floats, rows x cols.
        inverses: As in `refined_state`.
        gap: A ball of a number g for which the equilibrium lies within norm(map(Z) - Z)/g of every Z; 1 - q for a
            contraction.
        contracts: Whether the map contracts by 1 - gap in the Frobenius norm.

    Returns:
        The ball; entries that a contraction certainly leaves where they are come out exact.
    """
    state = refined_state(apply, start, inverses, contracts=contracts)
    image = apply(state)
    residual = subtract(image, state)
    radius = (precise_frobenius(residual) / gap).upper()
    if not radius.is_finite():
        return image
    # Without a contraction the iterates may leave the box before they come back.
    fixed = {i for i, entry in enumerate(residual.flat) if entry == 0} if contracts else set[int]()
    while True:
        box = _around(state, radius, fixed)
        image = apply(box)
        kept = {i for i in fixed if image.flat[i] == state.flat[i]}
        if kept == fixed:
            # All iterates from `state` lie in the box, by induction: no entry in `fixed` moves, and none moves further
            # than `radius`. So does their limit, which the map sends to itself. The box and its image contain it; a map
            # that is no contraction may widen the box.
            return from_rows(*state.shape, map(_narrower, image.flat, box.flat))
        fixed = kept


def refined_state(
    apply: Apply, start: Tensor, inverses: Iterable[Tensor | None], *, contracts: bool = False
) -> PreciseMatrix:
    """Return exact numbers near a fixed point of a map, as near as the working precision allows.

    Args:
        apply: The map, in precise balls.
        start: An approximate fixed point in floats, rows x cols.
        inverses: Each about (I - J)^-1 for the map's Jacobian J by columns there, to be tried in turn until one of them
            leads near: on which side of a kink a unit lies, floats may not know. None: plain steps only.
        contracts: Whether the map contracts in the Frobenius norm.
    """
    best, least = precise(start), arb("inf")
    for inverse in inverses:
        near = _iterated(apply, precise(start), inverse, 0 if contracts else _PATIENCE)
        state, size = _settled(apply, near)
        if size < least:
            best, least = state, size
        if contracts or not least > _NEAR * precise_frobenius(best).upper():
            break
    return best


def _settled(apply: Apply, near: PreciseMatrix) -> tuple[PreciseMatrix, arb]:
    """Return a state, with zero for what relu cuts off unless that leads away, and its distance from its image."""
    image = middle(apply(near))
    least = _size(image, near)
    # A plain step cuts off; where the map expands it is a step away, and what it cuts off is put into the state.
    cut = from_rows(*near.shape, (arb(0) if i == 0 else n for i, n in zip(image.flat, near.flat, strict=True)))
    for state in (image, cut):
        size = _size(apply(state), state)
        if not size > least:
            return state, size
    return near, least


def _iterated(apply: Apply, state: PreciseMatrix, inverse: Tensor | None, patience: int) -> PreciseMatrix:
    """Return the midpoints to which Newton steps, or plain ones where those do not help, bring a state.

    With patience, so many steps in a row may lead farther away: a unit at a kink crosses it and comes back.
    """
    best, least, waited = state, arb("inf"), 0
    target = arb(2) ** -flint.ctx.prec
    image = apply(state)
    size = _size(image, state)
    for _ in range(_STEPS):
        if size < least:
            best, least, waited = state, size, 0
        if not size > target * precise_frobenius(image).upper():
            break
        moved = middle(image) if inverse is None else _newton(state, image, inverse)
        next_image = apply(moved)
        next_size = _size(next_image, moved)
        if inverse is not None and not 2 * next_size < size and not patience:
            moved = middle(image)
            next_image = apply(moved)
            next_size = _size(next_image, moved)
        waited += not next_size < least
        if waited > patience:
            break
        state, image, size = moved, next_image, next_size
    return best


def _newton(state: PreciseMatrix, image: PreciseMatrix, inverse: Tensor) -> PreciseMatrix:
    residual = middle(subtract(image, state))
    exponent = max((int(e) + int(m).bit_length() for m, e in (x.man_exp() for x in residual.flat) if m), default=0)
    scaled = scale(arb(2) ** -exponent, residual).approximate
    rows, cols = residual.shape
    correction = (inverse @ scaled.mT.reshape(-1)).reshape(cols, rows).mT
    if not bool(torch.isfinite(correction).all()):
        return middle(image)
    return middle(add(state, scale(arb(2) ** exponent, precise(correction))))


def _size(image: PreciseMatrix, state: PreciseMatrix) -> arb:
    return precise_frobenius(middle(subtract(image, state))).mid()


def _narrower(first: arb, second: arb) -> arb:
    return first if first.rad() <= second.rad() else second


def _around(state: PreciseMatrix, radius: arb, fixed: set[int]) -> PreciseMatrix:
    spread = arb(0, radius)
    values = [entry if i in fixed else entry + spread for i, entry in enumerate(state.flat)]
    return from_rows(*state.shape, values)


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
