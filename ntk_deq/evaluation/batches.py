"""Equilibria of small models by a semismooth Newton method, for many instances of the same sizes at once.

Newton's step for z = f(z) is z + (I - J)^-1 (f(z) - z), J the derivative of f; for a contraction I - J has an inverse,
and on a map that is linear piece by piece the step from the right piece is exact. Taken once more with J held fixed,
the same step is the implicit function theorem: its derivative by the variables is that of the equilibrium.

The magnitude of what a value was computed from: the formula with every term taken by absolute value.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ntk_deq.evaluation.floats import TensorNames, tensor_map, tensor_value
from ntk_deq.evaluation.functions import frobenius, scalar
from ntk_deq.evaluation.functions.entrywise import TWINS
from ntk_deq.evaluation.functions.twins import MAGNITUDES
from ntk_deq.language.functions import entrywise_of
from ntk_deq.language.record import Entrywise
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.language.written import definition_of

Indices = Mapping[str, float]


class Magnitudes:
    """The magnitudes on one set of instances, each computed once.

    Args:
        names: What names mean.
    """

    def __init__(self, names: TensorNames) -> None:
        self.names = names
        self._known: dict[str | int, Tensor] = {}

    def of(self, expr: Expr, indices: Indices) -> Tensor:
        """Return the magnitude of a scalar or matrix expression, one number for each instance."""
        key = id(expr)
        if key in self._known:
            return self._known[key]
        handler = _RULES.get(expr.kind)
        return self.size(expr, indices) if handler is None else handler(self, expr, indices)

    def keep(self, expr: Expr, magnitude: Tensor) -> None:
        """Take a magnitude that is known already."""
        self._known[id(expr)] = magnitude

    def size(self, expr: Expr, indices: Indices) -> Tensor:
        """Return the Frobenius norm of the value itself."""
        return frobenius(tensor_value(expr, self.names, indices).detach())

    def _name(self, expr: Expr, indices: Indices) -> Tensor:
        name = expr.name
        if name in indices:
            return self.size(expr, indices)
        if name not in self._known:
            let = None if name in self.names.variables else self.names.lets.get(name)
            self._known[name] = self.size(expr, indices) if let is None else self.of(let.expr, {})
        return self._known[name]

    def _first(self, expr: Expr, indices: Indices) -> Tensor:
        return self.of(expr.args[0], indices)

    def _sum(self, expr: Expr, indices: Indices) -> Tensor:
        return self.of(expr.args[0], indices) + self.of(expr.args[1], indices)

    def _product(self, expr: Expr, indices: Indices) -> Tensor:
        return self.of(expr.args[0], indices) * self.of(expr.args[1], indices)

    def _quotient(self, expr: Expr, indices: Indices) -> Tensor:
        divisor = scalar(tensor_value(expr.args[1], self.names, indices)).detach().abs()
        # A divisor that lost digits by cancellation loses them for the quotient too.
        loss = (self.of(expr.args[1], indices) / divisor).clamp_min(1.0)
        return self.of(expr.args[0], indices) * loss / divisor

    def _power(self, expr: Expr, indices: Indices) -> Tensor:
        exponent = scalar(tensor_value(expr.args[1], self.names, indices)).detach()
        base = tensor_value(expr.args[0], self.names, indices)
        if base.ndim > 1 and bool((exponent < 0).all()):
            return self.size(expr, indices)
        size = frobenius(base.detach())
        grown = torch.maximum(self.of(expr.args[0], indices), size)
        loss = torch.where(size > 0, grown / size, 1.0)
        return torch.where(exponent >= 0, grown**exponent, size**exponent * loss)

    def _of_entries(self, expr: Expr, facts: Entrywise, indices: Indices) -> Tensor:
        if facts.sides:  # then no value is larger than the argument
            return self.of(expr.args[0], indices)
        grown = TWINS[expr.name].scale
        if grown is None:
            return self.size(expr, indices)
        value = tensor_value(expr, self.names, indices)
        magnitude: Tensor = grown(self.of(expr.args[0], indices), math.prod(value.shape[-2:]) if value.ndim > 1 else 1)
        return magnitude

    def _call(self, expr: Expr, indices: Indices) -> Tensor:
        name = expr.name
        if definition_of(name, len(expr.args)) is not None:  # whose terms may cancel
            return sum((self.of(arg, indices) for arg in expr.args), self.size(expr, indices))
        facts = entrywise_of(name)
        if facts is not None:
            return self._of_entries(expr, facts, indices)
        rule = MAGNITUDES.get(name)
        if rule is None:
            return self.size(expr, indices)
        return rule(_Met(self, expr, indices))


@dataclass(frozen=True)
class _Met:
    """One call, as the rule of its function sees it."""

    magnitudes: Magnitudes
    expr: Expr
    indices: Indices

    @property
    def count(self) -> int:
        """How many arguments there are."""
        return len(self.expr.args)

    def of(self, place: int) -> Tensor:
        """Return the magnitude of an argument."""
        return self.magnitudes.of(self.expr.args[place], self.indices)

    def value(self, place: int) -> Tensor:
        """Return the value of an argument."""
        return tensor_value(self.expr.args[place], self.magnitudes.names, self.indices)

    def own(self) -> Tensor:
        """Return the size of the value itself."""
        return self.magnitudes.size(self.expr, self.indices)


_RULES: dict[Kind, Callable[[Magnitudes, Expr, Indices], Tensor]] = {
    Kind.NAME: Magnitudes._name,
    Kind.NEGATE: Magnitudes._first,
    Kind.TRANSPOSE: Magnitudes._first,
    Kind.ADD: Magnitudes._sum,
    Kind.SUBTRACT: Magnitudes._sum,
    Kind.MULTIPLY: Magnitudes._product,
    Kind.DIVIDE: Magnitudes._quotient,
    Kind.POWER: Magnitudes._power,
    Kind.CALL: Magnitudes._call,
}


MAX_ENTRIES = 256  # of the state; its square is a Jacobian, half a megabyte for each instance
_WARM_UP = 4  # plain steps first: they bring most units to their final side of zero
_MAX_STEPS = 16
_MAX_DAMPED, _HALVINGS = 40, 16
_TIE = 1e-9  # by so much a weight may miss the declared modulus: one that is built to reach it does so to rounding
_STIFF = 64.0  # norm of I - J beyond which the rounding of the map counts beside the state
_ROUNDINGS = 64.0  # units of round-off, relative to the state, that a residual may keep


def well_posed(names: TensorNames) -> Tensor:
    """Return a number that is positive where the equilibrium is seen to exist: 1 less a Lipschitz constant of the map.

    Where a map of one layer, act(W z + c), is no contraction in the Frobenius norm, the smallest eigenvalue of the
    symmetric part of I - W takes its place if it is larger (`existence` knows further reasons). It must reach the
    declared modulus, where there is one. Where a fixed point counts that is the only one near by, nothing is asked.

    Args:
        names: What names mean.
    """
    assert names.formulas is not None
    margin = _only_one(names)
    return torch.where(margin > 0, margin, torch.ones_like(margin)) if names.formulas.local else margin


def _only_one(names: TensorNames) -> Tensor:
    """Return a number that is positive where the equilibrium is seen to exist and to be the only one."""
    formulas = names.formulas
    assert formulas is not None
    margin = names.like.new_tensor(-torch.inf)
    if formulas.contraction is not None:
        factor = scalar(tensor_value(formulas.contraction, names))
        margin = (1 - factor) / factor.detach().clamp_min(1.0)
    if formulas.weight is not None and (formulas.monotone is not None or not bool((margin > 0).all())):
        weight = _matrix(tensor_value(formulas.weight, names))
        finite = torch.nan_to_num(weight, posinf=0.0, neginf=0.0)
        modulus = 1 - torch.linalg.eigvalsh((finite + finite.mT) / 2)[..., -1]
        modulus = torch.where(torch.isfinite(weight).all(-1).all(-1), modulus, -torch.inf)
        if formulas.parameter is not None:
            value, (low, high) = scalar(tensor_value(formulas.parameter[0], names)), formulas.parameter[1:]
            modulus = torch.minimum(modulus, torch.minimum(value - low, high - value) + _TIE)
        margin = torch.where(margin > 0, margin, torch.maximum(margin, modulus))
        if formulas.monotone is not None:
            declared = scalar(tensor_value(formulas.monotone, names))
            reached = modulus - declared + _TIE * (1 + declared.detach().abs())
            margin = torch.minimum(margin, declared if formulas.reached else torch.minimum(reached, declared))
    return margin


def _matrix(value: Tensor) -> Tensor:
    """Return a weight with its two dimensions: that of a number is 1 x 1."""
    return value if value.ndim > 1 else value[..., None, None]


def solve_directly(names: TensorNames, start: Tensor | None) -> Tensor:
    """Return the equilibrium, differentiable once; marks as trouble where none is seen to exist, or none is found.

    Args:
        names: What names mean.
        start: Where to start, or None: zeros.
    """
    formulas = names.formulas
    assert formulas is not None
    free = formulas.definitions.keys() - formulas.tainted
    known = {name: tensor_value(expr, names) for name, expr in formulas.definitions.items() if name in free}
    known_fixed = {key: value.detach() for key, value in {**names.variables, **known}.items()}
    fixed = replace(names, variables=known_fixed, trouble=None, kinks=None)
    moving = any(value.requires_grad for value in names.variables.values())
    sure = (_only_one(fixed) > 0).detach() if formulas.local else None
    state, jacobian, missed = newton(fixed, start, ~(well_posed(fixed) > 0).detach(), with_jacobian=moving, sure=sure)
    if names.trouble is not None:
        names.trouble.append(missed)
    if not moving:
        return state
    image = tensor_map(replace(names, variables={**names.variables, **known}), state)
    return state + _solve(jacobian, image - state)


@dataclass
class Remembered:
    """`solve_directly` that keeps the last equilibrium: it is asked for again and again while other variables move.

    Attributes:
        reads: The names of all variables that the model reads.
    """

    reads: frozenset[str]
    _last: tuple[tuple[object, ...], list[Tensor], list[int]] | None = field(default=None, init=False, repr=False)
    _found: tuple[Tensor, list[Tensor]] = field(default=(torch.empty(0), []), init=False, repr=False)

    def __call__(self, names: TensorNames, start: Tensor | None, /) -> Tensor:
        """Return the equilibrium of the same tensors as before, or solve for it.

        Args:
            names: What names mean.
            start: Where to start, or None: zeros.
        """
        if start is not None or any(value.requires_grad for value in names.variables.values()):
            return solve_directly(names, start)
        read = [names.variables[name] for name in sorted(self.reads & names.variables.keys())]
        versions, shape = [value._version for value in read], (dict(names.sizes), names.state_shape, names.batch)
        last = self._last
        if last is None or last[0] != shape or last[2] != versions or any(map(operator.is_not, last[1], read)):
            marks: list[Tensor] = []
            self._found = solve_directly(replace(names, trouble=marks), None), marks
            self._last = shape, read, versions
        state, marks = self._found
        if names.trouble is not None:
            names.trouble.extend(marks)
        return state


def newton(
    names: TensorNames, start: Tensor | None, lost: Tensor, *, with_jacobian: bool, sure: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the equilibrium, I - J there where it is wanted, and where the search failed.

    Args:
        names: What names mean.
        start: Where to start, or None: zeros.
        lost: Instances that are not worth a search.
        with_jacobian: Whether I - J is wanted.
        sure: Instances that have an equilibrium, for which whole steps are not all that is tried; None: all.
    """
    with torch.no_grad():
        origin = state = names.like.new_zeros(names.state_shape) if start is None else start.detach()
        state = _warmed_up(names, state, lost)
        state, solved, stiff = _stepped(names, state, lost, _MAX_STEPS, damped=False)
        given_up = lost if sure is None else lost | ~sure
        if not bool((solved | given_up).all()):
            # With slopes that vanish far out, as those of tanh, whole steps swing from side to side.
            origin = torch.where(lost[..., None, None], 0.0, origin)
            resting = given_up | solved | ~torch.isfinite(frobenius(tensor_map(names, origin)))
            again, more, stiff_again = _stepped(names, origin, resting, _MAX_DAMPED)
            state = torch.where(solved[..., None, None], state, again)
            stiff = torch.where(solved, stiff, stiff_again)
            solved = solved | more
        image = tensor_map(names, state)
        missed = ~solved | lost
        # The image of a solved state has no negative zeros or residues of inactive units, and is as good as the state,
        # unless a unit pulls so strongly towards zero that its image is rounding.
        state = torch.where(stiff[..., None, None], state, image)
        state = torch.where(missed[..., None, None], 0.0, state)
        jacobian = _identity_minus_slope(names, state) if with_jacobian else state
    return state, jacobian, missed


def _warmed_up(names: TensorNames, state: Tensor, lost: Tensor) -> Tensor:
    """Return what plain steps make of a state, as long as they bring it nearer to its image; zeros where it is lost."""
    best, least = state, torch.full_like(frobenius(state), torch.inf)
    for _ in range(_WARM_UP + 1):
        image = tensor_map(names, state)
        residual = frobenius(image - state)
        nearer = residual < least
        best, least = torch.where(nearer[..., None, None], state, best), torch.where(nearer, residual, least)
        state = image
    return torch.where(lost[..., None, None], 0.0, best)


def _stepped(
    names: TensorNames, state: Tensor, lost: Tensor, count: int, *, damped: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Take Newton steps, and return the states, whether each is solved, and whether the map's rounding is beyond it.

    Args:
        names: What names mean.
        state: Where to start.
        lost: Instances that rest.
        count: Steps at most.
        damped: Whether a step is halved until the residual is smaller; where the map is smooth and I - J has an inverse
            everywhere, some part of it always makes it so.
    """
    eps = torch.finfo(names.like.dtype).eps
    image = tensor_map(names, state)
    stiff = torch.zeros_like(lost)
    for step_number in range(count + 1):
        residual = frobenius(image - state)
        rounding = _ROUNDINGS * eps * torch.maximum(frobenius(state), frobenius(image))
        solved = residual <= rounding
        if step_number == count or bool((solved | lost).all()):
            break
        system = _identity_minus_slope(names, state)
        # The map's own rounding is as much larger as its slopes are.
        slope = torch.linalg.matrix_norm(system)
        stiff = slope > _STIFF
        solved = residual <= rounding * slope.clamp_min(1.0)
        if bool((solved | lost).all()):
            break
        resting = (solved | lost)[..., None, None]
        step = torch.where(resting, 0.0, _solve(system, image - state))
        moved = state + step
        image = tensor_map(names, moved)
        for _ in range(_HALVINGS if damped else 0):
            worse = ~(frobenius(image - moved) < residual) & ~(solved | lost)
            if not bool(worse.any()):
                break
            step = torch.where(worse[..., None, None], step / 2, step)
            moved = state + step
            image = tensor_map(names, moved)
        state = moved
    return state, solved, stiff.expand(solved.shape)


def _identity_minus_slope(names: TensorNames, state: Tensor) -> Tensor:
    """Return I - J of the map at a state, entries of the state row after row."""
    with torch.enable_grad():
        point = state.detach().requires_grad_()
        image = tensor_map(names, point).flatten(-2)
        rows = []
        for k in range(image.shape[-1]):
            entry = image[..., k]
            (row,) = torch.autograd.grad(entry.sum(), point, retain_graph=True, allow_unused=True)
            rows.append(torch.zeros_like(point, requires_grad=False) if row is None else row)
    slope = torch.stack([row.flatten(-2) for row in rows], dim=-2)
    return torch.eye(slope.shape[-1], dtype=slope.dtype, device=slope.device) - slope


def _solve(matrix: Tensor, residual: Tensor) -> Tensor:
    """Solve for every instance; singular ones, which are no contractions, give what they give."""
    flat = residual.flatten(-2).unsqueeze(-1)
    return torch.linalg.solve_ex(matrix, flat)[0].reshape(residual.shape)
