"""Evaluate a formula in plain floating point: differentiable, with no error bound.

This backend drives the fixed-point solves, the estimated derivatives and the search's margins; verdicts come from the
balls. Scalars may carry one batch dimension and matrices one in front of their two: many instances of the same sizes
are then evaluated at once. The number of dimensions tells a matrix (two or more) from a scalar.

`grad` and `jac` of the language in plain floating point, one instance or many of the same sizes at once.

Many instances cost one backward pass: the gradient of the sum over the batch holds the gradient of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import torch
from torch import Tensor

from ntk_deq.certified.scalar import nearest_float
from ntk_deq.equilibrium import Anderson, fixed_point
from ntk_deq.errors import NtkDeqError
from ntk_deq.evaluation.convex.tensors import rounded_off, tensor_extreme, tensor_indicator
from ntk_deq.evaluation.environment import ModelFormulas
from ntk_deq.evaluation.functions import scalar, vec
from ntk_deq.evaluation.functions.entrywise import from_above
from ntk_deq.evaluation.functions.twins import FUNCTIONS, OPERATORS, entry_by_entry
from ntk_deq.evaluation.steps import Program, at_step
from ntk_deq.language.arguments import type_of
from ntk_deq.language.functions import entrywise_of, kink_of
from ntk_deq.language.indices import step_of
from ntk_deq.language.record import Kink
from ntk_deq.language.recursion import NONE, At, Recursions
from ntk_deq.language.tree import INDICATOR, Expr, Formula, Kind
from ntk_deq.language.types import Sort
from ntk_deq.language.written import definition_of, put

SOLVER = Anderson(memory=8)
"""Near the edge of contraction plain iteration needs millions of steps; whatever the solver, the ball proves it."""


class UndifferentiableError(NtkDeqError):
    """A formula inside `grad` or `jac` that no route differentiates."""


NO_INDICES: Mapping[str, float] = {}


@dataclass(frozen=True)
class TensorNames:
    """What names mean in floating point.

    Attributes:
        variables: Values of the free variables: scalars and matrices, with or without a batch dimension.
        sizes: Values of the size letters.
        lets: The claim's definitions.
        formulas: The model's formulas, or None.
        like: A tensor with the dtype and device of the results.
        state: The model's state where it is given (inside the map), or None: the equilibrium.
        state_shape: Its shape.
        guess: A known equilibrium to start the solve from, or None: zeros.
        max_steps: Budget of the solve.
        solve: How to find the equilibrium from a start, or None: by a differentiable iteration.
        batch: The shape that the batch dimension has: `()` or `(count,)`.
        trouble: Where marks of undefined instances are gathered (true where one is), or None: nobody asks.
        kinks: Where marks of zeros at the corners of functions are gathered, or None: nobody asks.
        upper: Whether functions have their slope from above at a corner, which only derivatives see.
        trains: Whether an index is a step of a training run; the values are those of its start.
        moments: What names mean at the steps of that run that are known, or None: only at its start.
        known: At a step of runs from a batch of instances: which of the runs get there; None: all.
        rounded: Over what distance corners are rounded off, as in a descent; 0: not at all.
        cache: Values of names and of subformulas; a replaced environment starts anew.
        iterates: The states at steps 0, 1, ... computed so far; likewise.
        recursions: What the definitions give step by step.
        at_steps: Their values by name and step; likewise.
        programs: What computes further steps of a name; likewise.
    """

    variables: Mapping[str, Tensor]
    sizes: Mapping[str, float]
    lets: Mapping[str, Formula]
    formulas: ModelFormulas | None
    like: Tensor
    state: Tensor | None = None
    state_shape: tuple[int, int] = (0, 0)
    guess: Tensor | None = None
    max_steps: int = 20_000
    solve: Callable[[TensorNames, Tensor | None], Tensor] | None = None
    batch: tuple[int, ...] = ()
    trouble: list[Tensor] | None = None
    kinks: list[Tensor] | None = None
    upper: bool = False
    trains: bool = False
    moments: Mapping[float, TensorNames] | None = None
    known: Tensor | None = None
    recursions: Recursions = NONE
    rounded: float = 0.0
    cache: dict[str | int, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)
    iterates: list[Tensor] = field(default_factory=list, init=False, repr=False, compare=False)
    at_steps: dict[At, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)
    programs: dict[str, Program] = field(default_factory=dict, init=False, repr=False, compare=False)

    def value(self, expr: Expr, indices: Mapping[str, float] = NO_INDICES) -> Tensor:
        """Return the value of a formula: for modules below that cannot import `tensor_value`."""
        return tensor_value(expr, self, indices)


def tensor_value(expr: Expr, names: TensorNames, indices: Mapping[str, float] = NO_INDICES) -> Tensor:
    """Return the value of a scalar or matrix expression as a tensor.

    Args:
        expr: The expression.
        names: What its names mean.
        indices: Values of the step indices in scope.
    """
    if id(expr) in names.cache:
        return names.cache[id(expr)]
    handler = OPERATORS.get(expr.kind)
    if handler is not None:
        return handler(*(tensor_value(arg, names, indices) for arg in expr.args))
    special = _SPECIAL.get(expr.kind)
    if special is None:
        raise UndifferentiableError(f"`{expr.name or expr.kind}` cannot stand inside grad, jac or a model's map")
    return special(expr, names, indices)


def _number(expr: Expr, names: TensorNames, indices: Mapping[str, float]) -> Tensor:
    assert expr.value is not None
    return _kept(expr, names, nearest_float(Fraction(expr.value)))


def _kept(expr: Expr, names: TensorNames, number: float) -> Tensor:
    """Return a constant; `expr` will not be evaluated again."""
    value = names.cache[id(expr)] = names.like.new_tensor(number)
    return value


def _name(expr: Expr, names: TensorNames, indices: Mapping[str, float]) -> Tensor:
    name = expr.name
    if name in indices:
        return names.like.new_tensor(float(indices[name]))
    if name in names.variables:
        return names.variables[name]
    if name in names.cache:
        return names.cache[name]
    if name in names.sizes:
        return _kept(expr, names, float(names.sizes[name]))
    value = names.cache[name] = _named(name, names)
    return value


def _named(name: str, names: TensorNames) -> Tensor:
    if name in names.lets:
        return tensor_value(names.lets[name].expr, names)
    assert names.formulas is not None
    if name == names.formulas.state:
        return names.state if names.state is not None else equilibrium(names, names.guess)
    return tensor_value(names.formulas.definitions[name], names)


def equilibrium(names: TensorNames, guess: Tensor | None) -> Tensor:
    """The equilibrium as a differentiable function of the variables."""
    assert names.formulas is not None
    if names.solve is not None:
        return names.solve(names, guess)
    formulas, keys = names.formulas, tuple(names.variables)

    def step(state: Tensor, *values: Tensor) -> Tensor:
        inside = TensorNames(
            dict(zip(keys, values, strict=True)),
            names.sizes,
            names.lets,
            formulas,
            names.like,
            recursions=names.recursions,
        )
        return tensor_map(inside, state)

    start = guess if guess is not None else names.like.new_zeros(names.state_shape)
    # The whole state is one sample: the claim language knows nothing of rows.
    return fixed_point(step, start, *names.variables.values(), solver=SOLVER, batch_dims=0, max_steps=names.max_steps)


def tensor_map(names: TensorNames, state: Tensor) -> Tensor:
    """Apply the model's map to a state; a number counts as 1 x 1, as its state does."""
    assert names.formulas is not None
    value = tensor_value(names.formulas.map, replace(names, state=state))
    return value if value.ndim > 1 else value[..., None, None]


def _index(expr: Expr, names: TensorNames, indices: Mapping[str, float]) -> Tensor:
    """The state at a step of the fixed-point run, or a name at a known step of a training run."""
    at = step_of(expr.args[0], indices)
    if expr.name in names.recursions:
        return at_step(expr.name, int(at), names)
    if names.trains:
        known = {0.0: names} if names.moments is None else names.moments
        if at not in known:
            raise UndifferentiableError(f"`{expr.name}` at step {at:g} of a training run is not known here")
        return _name(expr, known[at], {})
    step = int(at)
    if not names.iterates:
        names.iterates.append(names.like.new_zeros(names.state_shape))
    while len(names.iterates) <= step:
        names.iterates.append(tensor_map(names, names.iterates[-1]))
    return names.iterates[step]


def _at(expr: Expr, names: TensorNames, indices: Mapping[str, float]) -> Tensor:
    values = {name: tensor_value(arg, names, indices) for name, arg in zip(expr.names, expr.args[1:], strict=True)}
    values = {name: value if names.variables[name].ndim > 1 else scalar(value) for name, value in values.items()}
    inside = replace(names, variables={**names.variables, **values}, state=None, guess=None)
    return tensor_value(expr.args[0], inside, indices)


def _call(expr: Expr, names: TensorNames, indices: Mapping[str, float]) -> Tensor:
    if expr.name in ("grad", "jac"):
        pass  # the two modules evaluate through each other

        return tensor_derivative(expr, names, indices)
    if expr.args and expr.args[0].kind is Kind.FUNCTION:
        return tensor_extreme(expr, names, indices)
    if expr.name == INDICATOR:
        return tensor_indicator(expr.args[0], names, indices)
    args = [tensor_value(arg, names, indices) for arg in expr.args]
    if expr.name in ("next", "fixed_point"):
        return tensor_map(names, args[0]) if expr.name == "next" else equilibrium(names, args[0])
    return _applied(expr.name, args, names)


def _applied(name: str, args: Sequence[Tensor], names: TensorNames) -> Tensor:
    """Return the value of a function, and gather where an argument is at a kink."""
    definition = definition_of(name, len(args))
    if definition is not None:
        values = dict(zip(definition[0], (args[0], *map(scalar, args[1:])), strict=True))

        def part(node: Expr, parts: Sequence[Tensor]) -> Tensor:
            if node.kind is Kind.CALL:
                return _applied(node.name, parts, names)
            return entry_by_entry(node.kind, parts)

        return put(definition[1], values, lambda value: names.like.new_full((), float(value)), part)
    facts = entrywise_of(name)
    kink = kink_of(name)
    gathered = {Kink.JUMP: names.trouble, Kink.CORNER: names.kinks}.get(kink)
    if facts is not None and facts.valued and kink is Kink.JUMP and names.kinks is None:
        gathered = None  # only a derivative minds the jump
    if gathered is not None:
        zero = args[0] == 0
        gathered.append(zero.any(-1).any(-1) if zero.ndim > 1 else zero)
    if names.upper and kink is Kink.CORNER:
        return from_above(name, args[0])
    if names.rounded:
        rounded = rounded_off(name, args, names.rounded)
        if rounded is not None:
            return rounded
    return FUNCTIONS[name](names.like, *args)


_SPECIAL: dict[Kind, Callable[[Expr, TensorNames, Mapping[str, float]], Tensor]] = {
    Kind.NUMBER: _number,
    Kind.NAME: _name,
    Kind.INDEX: _index,
    Kind.AT: _at,
    Kind.CALL: _call,
}


_SAME = 1e-9
"""Relative; two derivatives closer than this are one as far as rounding can tell."""


def tensor_derivative(expr: Expr, names: TensorNames, indices: Mapping[str, float]) -> Tensor:
    """Return `grad(f, x)` (shape of x) or `jac(f, x)` (rows of vec f, columns of vec x); no gradient flows through it.

    An instance with a zero at a kink is marked as trouble where the slopes from below and from above give different
    derivatives; where a kink is not met, or does not matter, they give the same.

    Args:
        expr: The call.
        names: What the names mean.
        indices: Values of the step indices in scope.
    """
    if names.trouble is None:
        return _derivative(expr, names, indices)
    kinks: list[Tensor] = []
    found = _derivative(expr, replace(names, kinks=kinks), indices)
    met = torch.zeros(names.batch, dtype=torch.bool, device=names.like.device)
    for mark in kinks:
        met = met | mark
    if bool(met.any()):
        other = _derivative(expr, replace(names, trouble=None, upper=True), indices)
        size = torch.maximum(found.abs(), other.abs()).reshape(*names.batch, -1).amax(-1)
        apart = (other - found).abs().reshape(*names.batch, -1).amax(-1)
        names.trouble.append(met & (apart > _SAME * size))
    return found


def bound(names: TensorNames, function: Expr, value: Tensor) -> TensorNames:
    """Return what names mean inside a function at a point; no definition knows its argument, so that all are kept.

    Args:
        names: What they mean outside.
        function: The function, with types.
        value: The point.
    """
    matrix = type_of(function.args[1]).sort is Sort.MATRIX
    point = value if matrix else scalar(value)
    inside = replace(names, variables={**names.variables, function.names[0]: point})
    inside.cache.update((name, known) for name, known in names.cache.items() if isinstance(name, str))
    return inside


def _derivative(expr: Expr, names: TensorNames, indices: Mapping[str, float]) -> Tensor:
    """Return the derivative, with zero slopes or those from above at kinks."""
    inner, name, known = expr.args[0], expr.args[1].name, dict[str | int, Tensor]()
    if inner.kind is Kind.FUNCTION:
        names = bound(names, inner, tensor_value(expr.args[1], names, indices))
        inner, name, known = inner.args[0], inner.names[0], names.cache
    origin = names.variables[name].detach()
    core = () if origin.ndim < 2 else tuple(origin.shape[-2:])
    with torch.enable_grad():
        x = origin.expand((*names.batch, *core)).clone().requires_grad_()
        fixed = {key: value.detach() for key, value in names.variables.items()}
        inside = replace(names, variables={**fixed, name: x})
        inside.cache.update(known)
        value = tensor_value(inner, inside, indices)
        if expr.name == "grad":
            return _pulled(scalar(value), x)
        entries = vec(value)[..., 0] if value.ndim > 1 else value.unsqueeze(-1)
        rows = [_pulled(entries[..., k], x) for k in range(entries.shape[-1])]
    columns = [vec(row)[..., 0] if row.ndim > 1 else row.unsqueeze(-1) for row in rows]
    return torch.stack(columns, dim=-2)


def _pulled(value: Tensor, x: Tensor) -> Tensor:
    """Return the derivative of each instance's number by its x; zero where it does not depend on it."""
    if not value.requires_grad:
        return torch.zeros_like(x, requires_grad=False)
    (gradient,) = torch.autograd.grad(value.sum(), x, retain_graph=True, allow_unused=True)
    return torch.zeros_like(x, requires_grad=False) if gradient is None else gradient
