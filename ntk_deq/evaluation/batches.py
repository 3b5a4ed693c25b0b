"""Equilibria of small models by a semismooth Newton method, for many instances of the same sizes at once.

Newton's step for z = f(z) is z + (I - J)^-1 (f(z) - z), J the derivative of f; for a contraction I - J has an inverse,
and on a map that is linear piece by piece the step from the right piece is exact. Taken once more with J held fixed,
the same step is the implicit function theorem: its derivative by the variables is that of the equilibrium.

Evaluate the body of a quantifier at many steps of a run at once: the steps become part of the batch.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ntk_deq.evaluation.floats import TensorNames, tensor_map, tensor_value
from ntk_deq.evaluation.functions.twin import frobenius, scalar
from ntk_deq.evaluation.magnitudes import Magnitudes
from ntk_deq.language.indices import step_of
from ntk_deq.language.recursion import NONE, Recursions
from ntk_deq.language.tree import QUANTIFIERS, Expr, Kind
from ntk_deq.language.types import Sort

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


Scope = Mapping[str, float]

_NEED_VARIABLES = frozenset({"grad", "jac", "next", "fixed_point"})


def batches_steps(body: Expr) -> bool:
    """Whether a body can be evaluated at many steps at once.

    What asks for the variables themselves cannot: their values would have to be repeated for every step.
    """
    return not any(
        node.kind in (Kind.AT, Kind.FUNCTION, *QUANTIFIERS) or (node.kind is Kind.CALL and node.name in _NEED_VARIABLES)
        for node in body.walk()
    )


def at_many_steps(
    bodies: Sequence[Expr], names: TensorNames, magnitudes: Magnitudes, scopes: Sequence[Scope]
) -> tuple[TensorNames, Magnitudes]:
    """Return what names mean at many steps: a batch of all steps of all instances, instances running fastest.

    Args:
        bodies: The formulas that will be evaluated; what no step occurs in is evaluated here, once.
        names: What names mean on the instances.
        magnitudes: Their magnitudes.
        scopes: The values of the step indices, one mapping for each step.
    """
    count, instances = len(scopes), names.batch[0] if names.batch else 1
    batch = (count * instances,)
    inside = replace(names, batch=batch, trouble=None if names.trouble is None else [])
    known = Magnitudes(inside)
    for body in bodies:
        for part in _fixed_parts(body, frozenset(scopes[0])):
            inside.cache[id(part)] = _repeated(tensor_value(part, names), count, instances)
            with torch.no_grad():
                known.keep(part, _repeated(magnitudes.of(part, {}), count, instances))
        for node in body.walk():
            if node.kind is Kind.INDEX:
                states = [tensor_value(node, names, scope) for scope in scopes]
                entries = states[0].shape[-2:] if states[0].ndim > 1 else ()
                if names.batch:
                    states = [state.expand(instances, *entries) for state in states]
                inside.cache[id(node)] = torch.stack(states).reshape(-1, *entries)
    for name in scopes[0]:
        steps = names.like.new_tensor([float(scope[name]) for scope in scopes])
        inside.cache[name] = steps.repeat_interleave(instances)
    return inside, known


def per_step(values: Tensor, count: int, batch: tuple[int, ...]) -> Tensor:
    """Return values of the batch of all steps as steps x instances, or as steps where there is no batch."""
    if values.ndim == 0:
        return values.expand(count, *batch)
    return values.reshape(count, *batch)


def shown_steps(scope: Scope, body: Expr, last_step: int, recursions: Recursions = NONE) -> bool:
    """Whether every state that a body refers to exists at a step; those of a quantifier further in do not count."""
    for node in body.walk():
        if node.kind is Kind.INDEX:
            index = node.args[0]
            free = {part.name for part in index.walk() if part.kind is Kind.NAME}
            first = recursions.first(node.name) if node.name in recursions else 0
            if free <= scope.keys() and not first <= step_of(index, scope) <= last_step:
                return False
    return True


def _repeated(value: Tensor, count: int, instances: int) -> Tensor:
    """Repeat the value of each instance for every step; one value for all instances stays one."""
    if value.ndim in (0, 2):
        return value
    return value.expand(count, *value.shape).reshape(count * instances, *value.shape[1:])


def _fixed_parts(expr: Expr, indices: frozenset[str]) -> list[Expr]:
    """Return the largest parts that are numbers or matrices and in which no step occurs."""
    numeric = expr.type is not None and expr.type.sort in (Sort.SCALAR, Sort.MATRIX)
    if numeric and not any(node.kind is Kind.INDEX or node.name in indices for node in expr.walk()):
        return [expr]
    if expr.kind is Kind.INDEX:
        return []
    return [part for arg in expr.args for part in _fixed_parts(arg, indices)]
