"""Steps of recursions in plain floating point: by their formulas, then by a program that is made once for all steps.

So that a step costs little more than its products: a program knows what a step computes and in which order, keeps what
no step changes, gives operators a tensor to write into, and takes `P + W*z` and `z - a*d` as one operation each. What
it computes is what the formulas say, up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ntk_deq.errors import NtkDeqError
from ntk_deq.evaluation.functions.entrywise import TWINS
from ntk_deq.evaluation.functions.twins import FUNCTIONS, OPERATORS, spread
from ntk_deq.language.families import index_size
from ntk_deq.language.functions import kink_of
from ntk_deq.language.record import Kink
from ntk_deq.language.recursion import At
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.language.written import definition_of

_CHUNK = 1 << 16  # numbers, at most, that are allocated at once for steps to come: half a megabyte

_FAR = 1 << 40  # a step from which on none is the first one of anything

_LINEAR: dict[Kind, Callable[..., Tensor]] = {Kind.ADD: torch.add, Kind.SUBTRACT: torch.sub}
_ENTRYWISE: dict[Kind, Callable[..., Tensor]] = {**_LINEAR, Kind.MULTIPLY: torch.mul, Kind.DIVIDE: torch.div}

_IN_PLACE: dict[Any, Callable[[Tensor], Tensor]] = {
    torch.relu: torch.relu_,
    torch.abs: torch.abs_,
    torch.tanh: torch.tanh_,
    torch.sigmoid: torch.sigmoid_,
    torch.exp: torch.exp_,
    torch.sqrt: torch.sqrt_,
    torch.sin: torch.sin_,
    torch.cos: torch.cos_,
}

Run = Callable[[int, Tensor], Tensor]
"""Returns a value at a step: what writes, in the tensor that it is given."""


def at_step(name: str, step: int, names: Any) -> Tensor:
    """Return the value that a recursion has at a step.

    Args:
        name: What the recursion gives.
        step: The step.
        names: What names mean, a `TensorNames`.
    """
    known: dict[At, Tensor] = names.at_steps
    if (name, step) not in known:
        if not (torch.is_grad_enabled() or names.kinks is not None or names.upper or names.rounded):
            if name not in names.programs:
                names.programs[name] = Program(name, names)
            names.programs[name].run(step)
        for at in names.recursions.unfolded(name, step, known):
            expr, letters = names.recursions.formula(*at)
            known[at] = names.value(expr, letters)
    return known[name, step]


@dataclass(frozen=True, eq=False)
class _Node:
    """A formula as it is computed at step after step.

    Attributes:
        run: What gives its value.
        value: Its value at the step at which it was made, whose shape all others have.
        writes: Whether it writes into the tensor that it is given.
        fixed: Whether no step changes it.
        factors: The matrices that it is the product of, or None.
        scaled: The fixed number and the part that it is the product of, or None.
        lent: Whether its value may lie in a tensor that the next step writes into, as a transpose does.
    """

    run: Run
    value: Tensor
    writes: bool = False
    fixed: bool = False
    factors: tuple[_Node, _Node] | None = None
    scaled: tuple[float, _Node] | None = None
    lent: bool = False

    def placed(self) -> tuple[Run, Tensor]:
        """Return what gives its value, and a tensor of its own for it; what does not write needs none."""
        return self.run, torch.empty_like(self.value) if self.writes else self.value


class Program:
    """The steps of a name and of all that it rests on, in plain floats without derivatives."""

    def __init__(self, name: str, names: Any) -> None:
        """Find what a name rests on.

        Args:
            name: What the recursion gives.
            names: What names mean, a `TensorNames`.
        """
        self._name, self._names = name, names
        recursions = names.recursions
        found, waiting, latest, back = {name}, [name], 0, 1
        while waiting:
            taken = waiting.pop()
            starts = [step for start, step in recursions.starts if start == taken]
            latest = max([latest, recursions.first(taken), *starts])
            for step in (_FAR, *starts):
                for other, at in recursions.uses(taken, step):
                    moves = at > _FAR // 2
                    back, latest = max(back, step - at if moves else 1), max(latest, 0 if moves else at)
                    if other not in found:
                        found.add(other)
                        waiting.append(other)
        self._all, self._back = sorted(found), back
        self._first = latest + 2 * back  # steps from here on are like those before
        self._whole: list[tuple[str, Callable[[int], Tensor]]] | None = None
        self._last: list[tuple[str, Callable[[int], Tensor]]] = []
        self._done, self._failed = -1, False

    def run(self, step: int) -> None:
        """Compute what a step rests on, and the step, as far as nothing fails; nothing where formulas do as well."""
        if self._failed or step <= self._first + 1:
            return
        known = self._names.at_steps
        try:
            for k in range(self._done + 1, step):
                if self._whole is None:
                    self._by_formulas(k)
                else:
                    for name, value in self._whole:
                        if (name, k) not in known:
                            known[name, k] = value(k)
                self._done = k
            for name, value in self._last:
                if (name, step) not in known:
                    known[name, step] = value(step)
        except NtkDeqError:  # formulas say it again, if what has no value is needed at all
            self._failed = True

    def _by_formulas(self, k: int) -> None:
        """Compute a step by its formulas, and make the program once steps are like those before."""
        recursions, known = self._names.recursions, self._names.at_steps
        for name in self._all:
            for at in recursions.unfolded(name, k, known) if k >= recursions.first(name) else ():
                expr, letters = recursions.formula(*at)
                known[at] = self._names.value(expr, letters)
        if k < self._first or not all(self._settled(name, k) for name in self._all):
            return
        order: list[str] = []
        before = {used for name in self._all for used in recursions.uses(name, k) if used[1] != k}
        for name in self._all:
            for at in recursions.unfolded(name, k, before):
                before.add(at)
                order.append(at[0])
        behind = {self._name}
        for name in reversed(order):
            if name in behind:
                behind |= {other for other, at in recursions.uses(name, k) if at == k}
        self._whole = [(name, self._recorded(name, k)) for name in order]
        self._last = [(name, value) for name, value in self._whole if name in behind]

    def _settled(self, name: str, k: int) -> bool:
        """Whether a value has had the same shape for long enough: that of many instances comes in step by step."""
        values = [self._names.at_steps[name, at] for at in range(k - self._back - 1, k + 1)]
        return len({value.shape for value in values}) == 1 and all(v.dtype == self._names.like.dtype for v in values)

    def _recorded(self, name: str, k: int) -> Callable[[int], Tensor]:
        """Return what gives a name at a step, in a tensor that is kept."""
        rule = self._names.recursions.rules[name]
        node = self._node(rule.expr, rule.entry.letter, rule.entry.shift, k)
        run, value, free = node.run, node.value, list[Tensor]()
        if not node.writes:
            return (lambda k: run(k, value).clone()) if node.lent else lambda k: run(k, value)

        def recorded(k: int) -> Tensor:
            if not free:  # as many as there have been, so that a short run takes little
                count = max(1, min(k, _CHUNK // max(1, value.numel())))
                free.extend(value.new_empty((count, *value.shape)).unbind())
            return run(k, free.pop())

        return recorded

    def _node(self, expr: Expr, letter: str, ahead: int, k: int) -> _Node:
        """Return a formula as it is computed.

        Args:
            expr: The formula.
            letter: The letter of its step.
            ahead: By how much the step that it gives is ahead of the letter.
            k: The last step that is known.
        """
        names, known = self._names, self._names.at_steps
        if not any(node.kind is Kind.NAME and node.name == letter for node in expr.walk()):
            fixed = names.value(expr)
            return _Node(lambda k, out: fixed, fixed, fixed=True)
        if expr.kind is Kind.INDEX and expr.name in names.recursions.rules:
            name, back = expr.name, index_size(expr.args[0]).evaluate({letter: 0}) - ahead
            return _Node(lambda k, out: known[name, k + back], known[name, k + back])
        if expr.kind not in OPERATORS and not _is_plain(expr):
            value = names.value(expr, {letter: k - ahead})
            return _Node(lambda k, out: names.value(expr, {letter: k - ahead}), value)
        parts = [self._node(arg, letter, ahead, k) for arg in expr.args]
        if all(part.value.dtype == names.like.dtype for part in parts):
            node = _written(expr, parts)
            if node is not None:
                return node
        function = OPERATORS.get(expr.kind) or partial(FUNCTIONS[expr.name], names.like)
        placed = [part.placed() for part in parts]
        value, lent = function(*(part.value for part in parts)), any(part.writes or part.lent for part in parts)
        return _Node(lambda k, out: function(*[run(k, place) for run, place in placed]), value, lent=lent)


def _is_plain(expr: Expr) -> bool:
    """Whether an expression is a function of numbers and matrices of which nothing is noted at a kink."""
    plain = expr.kind is Kind.CALL and expr.name in FUNCTIONS and definition_of(expr.name, len(expr.args)) is None
    return plain and all(arg.kind is not Kind.FUNCTION for arg in expr.args) and kink_of(expr.name) is not Kink.JUMP


def _written(expr: Expr, parts: Sequence[_Node]) -> _Node | None:
    """Return an operator or a function that writes into the tensor it is given; None where it has no such form."""
    if expr.kind is Kind.CALL:
        change = _IN_PLACE.get(TWINS[expr.name].tensor) if expr.name in TWINS and parts[0].writes else None
        if change is None:
            return None
        run = parts[0].run
        return _Node(lambda k, out: change(run(k, out)), change(parts[0].value.clone()), writes=True)
    if expr.kind not in _ENTRYWISE:
        return None
    left, right = parts
    if expr.kind is Kind.MULTIPLY and left.value.ndim > 1 and right.value.ndim > 1:
        return _product(left, right) if left.value.shape[-1] == right.value.shape[-2] else None
    return _fused(expr.kind, left, right) or _entrywise(expr.kind, left, right)


def _product(left: _Node, right: _Node) -> _Node:
    """Return the product of two matrices, one instance or many."""
    plain = left.value.ndim == right.value.ndim == 2
    product, (a, a_place), (b, b_place) = torch.mm if plain else torch.matmul, left.placed(), right.placed()
    return _Node(
        lambda k, out: product(a(k, a_place), b(k, b_place), out=out),
        product(left.value, right.value),
        writes=True,
        factors=(left, right) if plain else None,
    )


def _fused(kind: Kind, left: _Node, right: _Node) -> _Node | None:
    """Return a sum with a product of matrices, or with a fixed number times a matrix, as one operation."""
    sign = 1 if kind is Kind.ADD else -1
    if kind not in _LINEAR or left.value.shape != right.value.shape:
        return None
    for term, other, times, others in ((right, left, sign, 1), (left, right, 1, sign)):
        if term.factors is not None:
            return _sum_with_product(other, others, term.factors, times)
        if term.scaled is not None and others == 1:
            return _sum_with_scaled(other, term.scaled[1], times * term.scaled[0])
    return None


def _sum_with_product(other: _Node, others: int, factors: tuple[_Node, _Node], times: int) -> _Node:
    add, run = torch.addmm, other.run
    (a, a_place), (b, b_place) = (factor.placed() for factor in factors)
    value = add(other.value, factors[0].value, factors[1].value, beta=others, alpha=times)
    return _Node(
        lambda k, out: add(run(k, out), a(k, a_place), b(k, b_place), beta=others, alpha=times, out=out),
        value,
        writes=True,
    )


def _sum_with_scaled(other: _Node, part: _Node, times: float) -> _Node:
    add, value = torch.add, torch.add(other.value, part.value, alpha=times)
    if part.writes:
        run, (a, place) = part.run, other.placed()
        return _Node(lambda k, out: add(a(k, place), run(k, out), alpha=times, out=out), value, writes=True)
    run, (a, place) = other.run, part.placed()
    return _Node(lambda k, out: add(run(k, out), a(k, place), alpha=times, out=out), value, writes=True)


def _entrywise(kind: Kind, left: _Node, right: _Node) -> _Node | None:
    """Return an operator entry by entry; a number may stand beside a matrix where it is a factor or divides."""
    function, number = _ENTRYWISE[kind], (left.value.ndim < 2, right.value.ndim < 2)
    if (number[0] != number[1] and kind in _LINEAR) or (kind is Kind.DIVIDE and not number[1]):
        return None
    wide = [spread if alone and not all(number) else None for alone in number]
    seen = [node.value if by is None else by(node.value) for node, by in zip((left, right), wide, strict=True)]
    value = function(*seen)
    scaled = None
    if kind is Kind.MULTIPLY and value.ndim > 1:
        for node, part in ((left, right), (right, left)):
            if node.fixed and node.value.ndim == 0:
                scaled = float(node.value), part
    shared = [
        n.writes and by is None and n.value.shape == value.shape for n, by in zip((left, right), wide, strict=True)
    ]
    first, second = shared[0] and not shared[1], shared[1]  # which of the two is written where the result will be
    (a, a_place), (b, b_place) = left.placed(), right.placed()

    def run(k: int, out: Tensor) -> Tensor:
        x, y = a(k, out if first else a_place), b(k, out if second else b_place)
        return function(x if wide[0] is None else wide[0](x), y if wide[1] is None else wide[1](y), out=out)

    return _Node(run, value, writes=True, scaled=scaled)
