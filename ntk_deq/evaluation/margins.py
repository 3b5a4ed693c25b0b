"""Relative margins of a boolean formula in plain floating point, differentiable, for many instances at once.

A comparison `l <= r` has the margin r - l, relative to the larger side and to the magnitude of what the sides were
computed from, one half each: a comparison of two small numbers shall not look tight, nor one between large numbers that
all but cancel look as good as any. Against zero, and for `==`, it is relative to the magnitude alone, or else it would
jump where the sides meet. `==` has minus its distance, a matrix its smallest entry; `and` is the minimum, `or` the
maximum, `not` the negative, `for all` the minimum over the steps, which become part of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import torch
from torch import Tensor

from ntk_deq.errors import LimitError
from ntk_deq.evaluation.balls import MAX_STEP_TUPLES
from ntk_deq.evaluation.batches import Magnitudes
from ntk_deq.evaluation.floats import NO_INDICES, TensorNames, tensor_value
from ntk_deq.evaluation.functions import frobenius, scalar
from ntk_deq.language.indices import index_names, step_of
from ntk_deq.language.recursion import NONE, Recursions
from ntk_deq.language.tree import QUANTIFIERS, Expr, Kind
from ntk_deq.language.types import Sort

Indices = Mapping[str, float]

BROKEN_BY_EQUALITY = -1e-12
"""The margin of a strict inequality between equal floats: negative, and smaller than any margin that is not noise."""

_NOISE = 256.0  # units of round-off of the magnitude; chains of a few products of small matrices stay below
_STRICT = frozenset({"<", ">", "!="})


@dataclass(frozen=True)
class Part:
    """One comparison of a formula that is a conjunction: its margin can be asked for alone.

    Attributes:
        name: Name of the formula.
        expr: A comparison, or another boolean expression.
        link: Which comparison of a chain; None: all of `expr`.
    """

    name: str
    expr: Expr
    link: int | None = None

    @property
    def alone(self) -> Expr:
        """The comparison as an expression of its own."""
        if self.link is None:
            return self.expr
        sides = self.expr.args[self.link : self.link + 2]
        return replace(self.expr, args=sides, operators=(self.expr.operators[self.link],))

    @property
    def strict(self) -> bool:
        """Whether equality breaks a comparison of it."""
        if self.link is not None:
            return self.expr.operators[self.link] in _STRICT
        return any(relation in _STRICT for node in self.expr.walk() for relation in node.operators)


def parts(name: str, expr: Expr) -> Iterator[Part]:
    """Yield the comparisons that a formula is the conjunction of."""
    if expr.kind is Kind.AND:
        for arg in expr.args:
            yield from parts(name, arg)
    elif expr.kind is Kind.COMPARE:
        yield from (Part(name, expr, link) for link in range(len(expr.operators)))
    else:
        yield Part(name, expr)


class Margins:
    """The margins on one set of instances; values and magnitudes are kept between formulas.

    Args:
        names: What names mean.
        last_step: The last step of the claim's run.
        magnitudes: Their magnitudes, where some are known.
    """

    def __init__(self, names: TensorNames, last_step: int, magnitudes: Magnitudes | None = None) -> None:
        self.names = names
        self.last_step = last_step
        self._magnitudes = Magnitudes(names) if magnitudes is None else magnitudes

    def part(self, part: Part) -> Tensor:
        """Return the margin of one comparison."""
        return self.of(part.expr) if part.link is None else self._link(part.expr, part.link, NO_INDICES)

    def of(self, expr: Expr, indices: Indices = NO_INDICES) -> Tensor:
        """Return the relative margin of a boolean formula: 0-d, or one for each instance of a batch.

        It is positive where the formula holds, negative where it does not, zero where rounding hides which; NaN where a
        part has no value.

        Raises:
            LimitError: A quantifier ranges over too many steps.
        """
        match expr.kind:
            case Kind.COMPARE:
                return _smallest([self._link(expr, link, indices) for link in range(len(expr.operators))])
            case Kind.AND:
                return _smallest([self.of(arg, indices) for arg in expr.args])
            case Kind.OR:
                return -_smallest([-self.of(arg, indices) for arg in expr.args])
            case Kind.NOT:
                return -self.of(expr.args[0], indices)
            case Kind.FOR_ALL:
                return self._for_all(expr, indices)
            case Kind.FOR_SOME:
                return self._for_some(expr, indices)
        raise TypeError(f"`{expr.kind}` is no statement")

    def _link(self, expr: Expr, link: int, indices: Indices) -> Tensor:
        return _relative(expr.operators[link], *self._sides(expr, link, indices))

    def _sides(self, expr: Expr, link: int, indices: Indices) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the side that shall be the smaller one, the other one, and the magnitude of each."""
        sides = [expr.args[link], expr.args[link + 1]]
        if expr.operators[link] in (">", ">="):
            sides.reverse()
        left, right = (tensor_value(side, self.names, indices) for side in sides)
        with torch.no_grad():
            magnitudes = [self._magnitudes.of(side, indices) for side in sides]
        return left, right, magnitudes[0], magnitudes[1]

    def _for_all(self, expr: Expr, indices: Indices) -> Tensor:
        body, *conditions = expr.args
        if self.names.moments is not None:
            known = [{**indices, **scope} for scope in _known_steps(expr, self.names.moments, indices)]
            if not known:
                return self.names.like.new_zeros(())
            return _smallest_known(torch.stack(torch.broadcast_tensors(*self._one_by_one(body, conditions, known))))
        recursions = self.names.recursions
        scopes, decided = _steps(expr, self.last_step, recursions)
        if indices:
            scopes = [{**indices, **scope} for scope in scopes]
            scopes = [scope for scope in scopes if shown_steps(scope, body, self.last_step, recursions)]
        if decided:
            conditions = []
        if not scopes:
            return self.names.like.new_zeros(())
        if not all(batches_steps(part) for part in expr.args):
            return _smallest_known(torch.stack(torch.broadcast_tensors(*self._one_by_one(body, conditions, scopes))))
        size = max(1, _STEP_ENTRIES // max(1, math.prod((*self.names.batch, *self.names.state_shape))))
        parts = [self._together(body, conditions, scopes[k : k + size]) for k in range(0, len(scopes), size)]
        return _smallest_known(torch.cat(parts))

    def _for_some(self, expr: Expr, indices: Indices) -> Tensor:
        """Return the largest margin over the steps; a step that the condition leaves out counts as far from true."""
        body, *conditions = expr.args
        scopes = [{**indices, **scope} for scope in _steps(expr, self.last_step, self.names.recursions)[0]]
        scopes = [scope for scope in scopes if shown_steps(scope, body, self.last_step, self.names.recursions)]
        margins = []
        for scope in scopes:
            margin = self.of(body, scope)
            for condition in conditions:
                margin = torch.where(self.of(condition, scope) >= 0, margin, -1.0)
            margins.append(margin)
        if not margins:
            return self.names.like.new_full((), -1.0)
        return torch.stack(torch.broadcast_tensors(*margins)).amax(0)

    def _together(self, body: Expr, conditions: Sequence[Expr], scopes: Sequence[Indices]) -> Tensor:
        """Return the margins at many steps, steps x instances, from one evaluation; 0 where a condition fails."""
        names, magnitudes = at_many_steps([body, *conditions], self.names, self._magnitudes, scopes)
        inside = Margins(names, self.last_step, magnitudes)
        margin = inside.of(body)
        for condition in conditions:
            margin = torch.where(inside.of(condition) >= 0, margin, 0.0)
        if self.names.trouble is not None:
            marks = [per_step(mark, len(scopes), self.names.batch).any(0) for mark in names.trouble or ()]
            self.names.trouble.extend(marks)
        return per_step(margin, len(scopes), self.names.batch)

    def _one_by_one(self, body: Expr, conditions: Sequence[Expr], scopes: Sequence[Indices]) -> list[Tensor]:
        margins = []
        for scope in scopes:
            margin = self.of(body, scope)
            for condition in conditions:
                margin = torch.where(self.of(condition, scope) >= 0, margin, 0.0)
            for there in self._reached(body, scope):
                margin = torch.where(there, margin, 0.0)
            margins.append(margin)
        return margins

    def _reached(self, body: Expr, scope: Indices) -> Iterator[Tensor]:
        """Yield which runs of a batch get to each of the steps that a body speaks of."""
        moments = self.names.moments or {}
        named = (node.args[0] for node in body.walk() if node.kind is Kind.INDEX)
        # Steps of a quantifier further in have no value yet, and are asked about there.
        steps = {*scope.values(), *(step_of(step, scope) for step in named if index_names(step) <= scope.keys())}
        for step in steps & moments.keys():
            known = moments[step].known
            if known is not None:
                yield known


_FEW = 6  # known steps of a training run for each of several indices
_STEP_ENTRIES = 2**20  # of the states of a batch of steps, 8 MiB
_TINY = 1e-300  # keeps 0/0 from being computed; the quotient is not used
_HOLDS: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def _relative(relation: str, left: Tensor, right: Tensor, *magnitudes: Tensor) -> Tensor:
    """Return the relative margin of `left <= right` or of an equality, from the sides and their magnitudes."""
    margin, size = _distance(relation, left, right)
    margin = torch.where(torch.isfinite(margin), margin, torch.nan)  # overflow leaves nothing to compare
    magnitude = torch.maximum(*magnitudes)
    noise = margin.detach().abs() <= _NOISE * torch.finfo(margin.dtype).eps * magnitude
    exact = margin.new_full((), BROKEN_BY_EQUALITY if relation in _STRICT else 0.0)
    flat = torch.where(margin.detach() == 0, exact, 0.0)
    # Where both sides are zero so is the margin, and it is noise: what it is divided by does not matter.
    magnitude, size = torch.maximum(magnitude, size).clamp_min(_TINY), size.clamp_min(_TINY)
    smaller = torch.zeros_like(size) if relation == "==" else torch.minimum(*magnitudes)
    weight = torch.where(smaller == 0, 1 / magnitude, 0.5 / size + 0.5 / magnitude)
    return torch.where(noise, flat, margin * weight)


def _plain(side: Tensor) -> bool:
    """Whether a side is a number for each instance."""
    return side.ndim < 2 or side.shape[-2:] == (1, 1)


def _distance(relation: str, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return the margin of `left <= right` (or of an equality), and the size of the larger side."""
    if _plain(left) and _plain(right):
        a, b = scalar(left), scalar(right)
        margin = b - a
        if relation in ("==", "!="):
            margin = -margin.abs() if relation == "==" else margin.abs()
        return margin, torch.maximum(a.detach().abs(), b.detach().abs())
    if relation == "==":
        size = torch.maximum(frobenius(left.detach()), frobenius(right.detach()))
        return -frobenius(right - left), size
    a, b = (side if side.ndim > 1 else side.unsqueeze(-1).unsqueeze(-1) for side in (left, right))
    size = torch.maximum(a.detach().abs().amax((-2, -1)), b.detach().abs().amax((-2, -1)))
    return (b - a).amin((-2, -1)), size


def _smallest(margins: list[Tensor]) -> Tensor:
    if len(margins) == 1:
        return margins[0]
    return torch.stack(torch.broadcast_tensors(*margins)).amin(0)


@lru_cache(maxsize=256)
def _steps(expr: Expr, last_step: int, recursions: Recursions) -> tuple[Sequence[Indices], bool]:
    """Return the steps that a quantifier ranges over, and whether its condition has been applied to them already."""
    count = (last_step + 1) ** len(expr.names)
    if count > MAX_STEP_TUPLES:
        raise LimitError(f"`for all` ranges over {count:,} tuples of steps; at most {MAX_STEP_TUPLES:,}.")
    body, *conditions = expr.args
    every = product(range(last_step + 1), repeat=len(expr.names))
    scopes = [dict(zip(expr.names, steps, strict=True)) for steps in every]
    scopes = [scope for scope in scopes if shown_steps(scope, body, last_step, recursions)]
    if not conditions or not all(_is_step(arg, frozenset(expr.names)) for arg in conditions[0].args):
        return scopes, False
    return [scope for scope in scopes if _steps_compare(conditions[0], scope)], True


def _known_steps(expr: Expr, moments: Mapping[float, TensorNames], indices: Indices) -> Iterator[Indices]:
    """Yield the steps of a training run that a quantifier ranges over: of several indices a few for each."""
    steps = sorted(moments)
    if len(expr.names) > 1:
        steps = steps[:: max(1, len(steps) // _FEW)]
    used = [node.args[0] for node in expr.args[0].walk() if node.kind is Kind.INDEX]
    for values in product(steps, repeat=len(expr.names)):
        scope = dict(zip(expr.names, values, strict=True))
        inside = {**indices, **scope}
        free = [part for part in used if {n.name for n in part.walk() if n.kind is Kind.NAME} <= inside.keys()]
        if all(step_of(part, inside) in moments for part in free):
            yield scope


def _smallest_known(margins: Tensor) -> Tensor:
    """Return the smallest margin over the steps of those that rounding does not hide; zero where it hides all."""
    known = margins != 0
    return torch.where(known.any(0), torch.where(known, margins, torch.inf).amin(0), 0.0)


def _is_step(expr: Expr, indices: frozenset[str]) -> bool:
    arithmetic = (Kind.NUMBER, Kind.NEGATE, Kind.ADD, Kind.SUBTRACT)
    return all(node.kind in arithmetic or (node.kind is Kind.NAME and node.name in indices) for node in expr.walk())


def _steps_compare(expr: Expr, scope: Indices) -> bool:
    """Decide a comparison of steps in integers."""
    steps = [step_of(arg, scope) for arg in expr.args]
    return all(_HOLDS[sign](a, b) for sign, a, b in zip(expr.operators, steps, steps[1:], strict=False))


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
