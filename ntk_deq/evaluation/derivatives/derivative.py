"""`grad` and `jac` of the language: reverse mode in balls, or an estimate where a function has no certified rule.

The estimate is a derivative by automatic differentiation through the equilibrium, with an estimated radius. How states
and derivatives come about in balls, as an environment is handed them, is said here and nowhere else.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified.arithmetic import enclose
from ntk_deq.certified.rounding import add_up, divide_up, multiply_up, root_up
from ntk_deq.certified.structured import require_room
from ntk_deq.errors import EquilibriumError, LimitError
from ntk_deq.evaluation.balls import bound, evaluate
from ntk_deq.evaluation.convex.newton import moved
from ntk_deq.evaluation.convex.operators import extreme, least
from ntk_deq.evaluation.derivatives import Cotangent, Node, NoRuleError, reachable, rearranged_ball
from ntk_deq.evaluation.derivatives.kinks import Kinks, moves_freely
from ntk_deq.evaluation.derivatives.reverse import Reverse, state_quotients
from ntk_deq.evaluation.derivatives.tape import Tape
from ntk_deq.evaluation.environment import Environment, Providers
from ntk_deq.evaluation.equilibria import equilibrium_ball, iterate_ball, map_once, tensor_names, value_at_step
from ntk_deq.evaluation.existence import existence
from ntk_deq.evaluation.floats import TensorNames, tensor_value
from ntk_deq.evaluation.functions import vec
from ntk_deq.evaluation.functions.spectra import EXTREMES, is_repeated
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.tree import Expr, Kind, Span

_PERTURBATION = 2.0**-36  # between the float64 round-off 2^-53 and the size at which curvature shows
_BACKWARD = 64.0 * 2.0**-52  # the backward error of a chain of products is a modest multiple of the round-off
_NO_SPAN = Span(0, 0)
_FLOOR = 1e-13  # relative; about 450 round-offs, for derivatives that the perturbations happen not to move


def estimated_derivative(
    kind: str, inner: Expr, name: str, env: Environment, indices: Mapping[str, float]
) -> Scalar | Matrix:
    """Evaluate `grad(f, x)` (shape of x) or `jac(f, x)` (rows of vec f, columns of vec x) in floating point.

    Args:
        kind: `grad` or `jac`.
        inner: f.
        name: x.
        env: What the names mean.
        indices: Values of the step indices in scope.

    Raises:
        UndifferentiableError: f has a part that this route does not know.
        OutsideClaimError: Floats cannot tell whether there is a derivative.
    """
    names = _around_equilibrium(env)
    numbers: dict[str, float] = {**names.sizes, **indices}
    names = dataclasses.replace(
        names,
        variables={key: value.double() for key, value in names.variables.items()},
        like=names.like.double(),
        guess=None if names.guess is None else names.guess.double(),
        sizes=numbers,
    )
    radii = {key: ct.radius(v.ball) if isinstance(v, Scalar) else v.ball.radius for key, v in env.variables.items()}
    try:
        value = differentiate(kind, inner, name, names)
        spread = _spread(kind, inner, name, names, value, radii)
    except EquilibriumError as error:
        env.notes.doubt(str(error))
        shape = _shape(kind, inner, name, env, indices)
        return Matrix(ct.Ball(env.like.new_zeros(shape), math.inf), math.inf)
    size = float(torch.linalg.vector_norm(value))
    if math.isnan(size):
        env.notes.kink(f"a derivative by {name} that may not exist, as rounding can tell", certain=False)
    radius = _BACKWARD * (spread / _PERTURBATION) + _FLOOR * size
    scale = max(size, spread / _PERTURBATION)
    if value.ndim == 0:
        return Scalar(ct.with_radius(float(value), radius), scale)
    return Matrix(enclose(value, radius, ct.ball(env.like)), scale)


def _around_equilibrium(env: Environment) -> TensorNames:
    """The centres, with the equilibrium already found as the starting point of the differentiable solve."""
    guess = None
    if env.formulas is not None and env.formulas.state:
        state = evaluate(Expr(Kind.NAME, _NO_SPAN, name=env.formulas.state), env)
        if isinstance(state, Matrix) and state.ball.radius < math.inf:
            guess = state.ball.centre
    return tensor_names(env, guess=guess)


def differentiate(kind: str, inner: Expr, name: str, names: TensorNames) -> Tensor:
    """Return the derivative by automatic differentiation, with no error bound."""
    origin = names.variables[name]

    def function(x: Tensor) -> Tensor:
        return tensor_value(inner, dataclasses.replace(names, variables={**names.variables, name: x}))

    if kind == "grad":
        return torch.func.grad(lambda x: function(x).reshape(()))(origin)
    rows = _vec_or_scalar(function(origin)).numel()
    require_room(rows, origin.numel(), "A Jacobian")
    columns = torch.func.jacrev(lambda v: _vec_or_scalar(function(_unvec(v, origin))).reshape(-1))(
        _vec_or_scalar(origin).reshape(-1)
    )
    return columns


def _vec_or_scalar(value: Tensor) -> Tensor:
    """Return vec of a matrix, and a scalar as one entry."""
    return value.reshape(1, 1) if value.ndim == 0 else vec(value)


def _unvec(flat: Tensor, like: Tensor) -> Tensor:
    if like.ndim == 0:
        return flat.reshape(())
    return flat.reshape(like.shape[1], like.shape[0]).mT


def _spread(kind: str, inner: Expr, name: str, names: TensorNames, value: Tensor, radii: Mapping[str, float]) -> float:
    """The change of the derivative under a random perturbation of every variable: relative, and by its radius."""
    generator = torch.Generator().manual_seed(20221127)  # any fixed number: the estimate must be reproducible
    moved = {}
    for key, v in names.variables.items():
        noise = (2 * torch.rand(v.shape, generator=generator, dtype=torch.float64) - 1).to(v)
        moved[key] = v + _PERTURBATION * (v + radii[key] / _BACKWARD) * noise
    changed = differentiate(kind, inner, name, dataclasses.replace(names, variables=moved))
    return float(torch.linalg.vector_norm(changed - value))


def _shape(kind: str, inner: Expr, name: str, env: Environment, indices: Mapping[str, float]) -> tuple[int, int]:
    variable = env.variables[name]
    shape = tuple(variable.ball.shape) if isinstance(variable, Matrix) else (1, 1)
    if kind == "grad":
        return shape[0], shape[1]
    value = evaluate(inner, env, indices)
    rows = math.prod(value.ball.shape) if isinstance(value, Matrix) else 1
    return rows, shape[0] * shape[1]


CHUNK_ENTRIES = 2**22
"""Entries of the largest cotangent carried at once, 32 MiB; a Jacobian with more rows is computed in parts."""


def derivative(expr: Expr, env: Environment, indices: Mapping[str, float] | None = None) -> Scalar | Matrix:
    """Evaluate `grad(f, x)` (shape of x) or `jac(f, x)` (rows of vec f, columns of vec x).

    Of a function of an argument, x is a point, and whatever the function does not name as its argument is held fixed.

    Args:
        expr: The call.
        env: What the names mean; keeps what later derivatives can use again.
        indices: Values of the step indices in scope.

    Raises:
        OutsideClaimError: An argument of relu, step or abs on the way from x to f is or may be zero; or another
            function has no derivative there.
        UndifferentiableError: f holds a derivative itself.
        LimitError: The Jacobian would be too large.
    """
    inner, name, outside = expr.args[0], expr.args[1].name, None
    if inner.kind is Kind.FUNCTION:
        outside, env = env, bound(inner, evaluate(expr.args[1], env, indices), env)
        inner, name = inner.args[0], inner.names[0]
    if outside is not None or not isinstance(env.derivatives, Derivatives):
        env.derivatives = Derivatives(env, outside)
    try:
        return env.derivatives.of(expr.name, inner, name, indices or {})
    except NoRuleError as missing:
        if env.precision is not None:
            raise LimitError(f"`{expr.name}` of {missing.operation} is an estimate in floats") from missing
        env.notes.estimated.setdefault(missing.operation, missing.reason)
        return estimated_derivative(expr.name, inner, name, env, indices or {})


class Derivatives:
    """The certified derivatives on one instance: the graph, adjoints solved so far, results.

    Args:
        env: What the names mean.
        outside: For a derivative at a point, what they mean outside of the function; else None.
    """

    def __init__(self, env: Environment, outside: Environment | None = None) -> None:
        self._env = env
        self._tape = Tape(env, outside)
        self._reverse = Reverse(self._tape, env.notes)
        self._smooth: set[tuple[int, int]] = set()
        self._results: dict[tuple[str, int, str], Scalar | Matrix] = {}

    def of(self, kind: str, inner: Expr, name: str, indices: Mapping[str, float]) -> Scalar | Matrix:
        """Return `grad` or `jac` of a formula by a variable.

        Raises:
            NoRuleError: A function on the way has no certified rule.
            LimitError: A function on the way is known in floats only, where more digits are asked for.
        """
        root, target = self._tape.build(inner, indices), self._tape.base.variables[name]
        self._note_kinks(root, target)
        key = (kind, root.number, name)
        if key not in self._results:
            value = self._gradient(root, target) if kind == "grad" else self._jacobian(root, target)
            if value.ball.radius == math.inf if isinstance(value, Matrix) else not value.ball.is_finite():
                reason = value.ball.reason if isinstance(value, Matrix) else "an error bound is not finite"
                self._env.notes.doubt(f"a derivative by {name} is not known: {reason}")
            self._results[key] = value
        return self._results[key]

    def _note_kinks(self, root: Node, target: Node) -> None:
        """Stop where an argument of relu, step or abs that the derivative passes is zero for certain, or may be."""
        if (root.number, target.number) in self._smooth:
            return
        states = {number: state for number, (state, _) in self._tape.equilibria.items()}
        several = {state.number for state, env in self._tape.equilibria.values() if existence(env).gap is None}
        met = Kinks(root, target, states, several).worst()
        if met is not None:
            self._env.notes.kink(f"an argument of relu {'is exactly' if met else 'that may be'} zero", certain=met)
        self._note_repeated(root, target)
        self._smooth.add((root.number, target.number))

    def _note_repeated(self, root: Node, target: Node) -> None:
        """Stop where an eigenvalue that the derivative passes is repeated for certain, or may be."""
        unsure = ""
        for node in reachable([root]):
            if node.operation not in EXTREMES or target.number not in node.args[0].depends:
                continue
            repeated = is_repeated(node.args[0].dense(), node.operation)
            if repeated and moves_freely(node.args[0], target):
                self._env.notes.kink(f"the eigenvalue of {node.operation} is repeated", certain=True)
            if repeated is not False:
                unsure = f"the eigenvalue of {node.operation} may be repeated"
        if unsure:
            self._env.notes.kink(unsure, certain=False)

    def _gradient(self, root: Node, target: Node) -> Scalar | Matrix:
        like = self._env.like
        if target.number not in root.depends:
            return self._zeros(target.shape) if not target.is_scalar else Scalar(ct.exact(0), 0.0)
        seed = Cotangent(self._env.constant(ct.Ball(like.new_ones(1, 1))), 1.0)
        cot = self._reverse.pull(root, seed, target, (root.number, 0, 1))
        if target.is_scalar:
            return Scalar(ct.as_scalar(cot.ball), cot.scale)
        return Matrix(rearranged_ball(cot.ball, lambda c: c.reshape(target.shape)), cot.scale)

    def _jacobian(self, root: Node, target: Node) -> Matrix:
        (rows, cols), (high, wide) = root.shape, target.shape
        count, entries = rows * cols, high * wide
        require_room(count, entries, "A Jacobian")
        like = self._env.like
        if target.number not in root.depends:
            return self._zeros((count, entries))
        # Row k of the Jacobian is the k-th entry of vec f: column after column, where a cotangent goes row after row.
        order = torch.arange(count, device=like.device).reshape(rows, cols).mT.flatten()
        # The same parts for every variable, so that adjoints are shared.
        largest = max(node.shape[0] * node.shape[1] for node in reachable([root]))
        size = max(1, CHUNK_ENTRIES // largest) if self._env.precision is None else count
        parts = [self._rows(root, target, order, start, size) for start in range(0, count, size)]
        if len(parts) == 1:
            moved = rearranged_ball(parts[0].ball, lambda c: c.reshape(count, high, wide).mT.reshape(count, entries))
            return Matrix(moved, parts[0].scale)
        centre = torch.cat([part.ball.centre for part in parts])
        centre = centre.reshape(count, high, wide).mT.reshape(count, entries)
        radius = _length_up([part.ball.radius for part in parts])
        reason = next((part.ball.reason for part in parts if part.ball.reason), "")
        return Matrix(ct.Ball(centre, radius, reason), _length_up([part.scale for part in parts]))

    def _rows(self, root: Node, target: Node, order: torch.Tensor, start: int, size: int) -> Cotangent:
        """Return the cotangents of the target for some rows of vec f."""
        like = self._env.like
        picked = order[start : start + size]
        unit = like.new_zeros(len(picked), len(order))
        unit[torch.arange(len(picked), device=like.device), picked] = 1.0
        seed = Cotangent(self._env.constant(ct.Ball(unit)), float(len(picked)) ** 0.5)
        return self._reverse.pull(root, seed, target, (root.number, start, len(picked)))

    def _zeros(self, shape: tuple[int, int]) -> Matrix:
        return Matrix(self._env.constant(ct.Ball(self._env.like.new_zeros(shape))), 0.0)


def _length_up(values: list[float]) -> float:
    """Return an upper bound of the root of a sum of squares of nonnegative floats."""
    largest = max(values)
    if len(values) == 1 or largest == 0 or not largest < math.inf:
        return largest
    ratios = [divide_up(value, largest) for value in values]
    return multiply_up(largest, root_up(add_up(*(multiply_up(ratio, ratio) for ratio in ratios))))


PROVIDERS = Providers(
    equilibrium=equilibrium_ball,
    iterate=iterate_ball,
    image=map_once,
    quotients=state_quotients,
    derivative=derivative,
    at_step=value_at_step,
    extreme=extreme,
    least=least,
    moved=moved,
)
"""Equilibria by a float solve and a certificate, derivatives by reverse mode, minima where they are known."""
