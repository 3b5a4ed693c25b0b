"""How a function grows along a ray, the limit of F(t d)/t, and away from the origin in all directions, by its formula.

Where it is negative, F has no least value. It is put together as F is: of an affine map it is its linear part, of
what grows like a number times its argument that number, of squares and exponentials infinite.

References:
    Rockafellar, Convex analysis, 1970, section 8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from flint import arb

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.errors import NtkDeqError
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.convex.curvature import NOTHING, extreme_curvatures, jacobian, terms
from ntk_deq.evaluation.convex.points import numbers_of
from ntk_deq.evaluation.convex.shapes import Shapes
from ntk_deq.evaluation.derivatives import SQUARED_LENGTH, Node, folded, number_place
from ntk_deq.evaluation.derivatives.gradient import Operations, gradient, is_absolute, is_length
from ntk_deq.evaluation.derivatives.tape import Tape
from ntk_deq.evaluation.quantity import Scalar
from ntk_deq.language.functions import entrywise_of
from ntk_deq.language.record import Kink
from ntk_deq.language.tree import Kind, Sign
from ntk_deq.language.types import Range

Rates = list[arb]
"""The limits of the entries of a matrix, row after row; an infinite one is +inf."""

_INFINITE = arb("+inf")


class UnknownRateError(Exception):
    """A rate that is not known."""


class Growth:
    """The rates of the nodes of a formula along one ray.

    Args:
        leaf: The variable.
        direction: The ray, row after row.
        shapes: The shapes of the nodes.
    """

    def __init__(self, leaf: Node, direction: Sequence[float], shapes: Shapes) -> None:
        self._leaf, self._shapes = leaf, shapes
        self._known: dict[int, Rates] = {leaf.number: [arb(x) for x in direction]}

    def of(self, root: Node) -> arb:
        """Return the rate of a number; NaN where it is not known."""
        try:
            return folded(root, self._known, self._rates)[0]
        except UnknownRateError:
            return arb("nan")

    def _rates(self, node: Node) -> Rates:
        size = node.shape[0] * node.shape[1]
        if not self._shapes.moves(node):
            return [arb(0)] * size
        operation = node.operation
        if operation in (Kind.ADD, Kind.SUBTRACT):
            left, right = self._of(node.args[0]), self._of(node.args[1])
            return [_finite(a + b if operation == Kind.ADD else a - b) for a, b in zip(left, right, strict=True)]
        if operation == Kind.NEGATE:
            return [-_bounded(a) for a in self._of(node.args[0])]
        if operation == Kind.TRANSPOSE:
            rows, cols = node.args[0].shape
            inside = self._of(node.args[0])
            return [inside[i * cols + j] for j in range(cols) for i in range(rows)]
        if operation == "sum":
            return [_finite(sum(self._of(node.args[0]), arb(0)))]
        if operation == Sign.STACK and all(arg.shape[1] == 1 for arg in node.args):
            return [rate for arg in node.args for rate in self._of(arg)]
        if operation in (Kind.MULTIPLY, "dot", "hadamard"):
            return self._product(node)
        if operation == Kind.DIVIDE and not self._shapes.moves(node.args[1]):
            divisor = ar.to_scalar(node.args[1].value).ball
            return [_times(1 / divisor, a) for a in self._of(node.args[0])]
        if operation == "max":
            parts = [a for arg in node.args for a in self._of(arg)]
            largest = parts[0]
            for part in parts[1:]:
                largest = ct.maximum(largest, part) if part.is_finite() and largest.is_finite() else _INFINITE
            return [largest]
        if operation == "log":
            return self._log_of_sum(node)
        if operation in (Kind.POWER, SQUARED_LENGTH):
            return [self._square(node)]
        if is_length(node):
            return [sum((_bounded(a) ** 2 for a in self._of(node.args[0])), arb(0)).sqrt()]
        return self._entrywise(node)

    def _of(self, node: Node) -> Rates:
        return self._known[node.number]

    def _product(self, node: Node) -> Rates:
        left, right = node.args
        if self._shapes.moves(left) and self._shapes.moves(right):
            if left is right and node.operation == "hadamard" and self._shapes.of(left).affine:
                return [_of_square(a) for a in self._of(left)]
            raise UnknownRateError
        constant, moving = (right, left) if self._shapes.moves(left) else (left, right)
        factors, rates = numbers_of(constant.value), self._of(moving)
        if node.operation == "hadamard":
            return [_times(a, b) for a, b in zip(factors, rates, strict=True)]
        if node.operation == "dot":
            return [_finite(sum((_times(a, b) for a, b in zip(factors, rates, strict=True)), arb(0)))]
        number = None if left.is_scalar and right.is_scalar else number_place(left, right)
        if (left.is_scalar and right.is_scalar) or (number is not None and constant is node.args[number]):
            return [_times(factors[0], b) for b in rates]
        if number is not None:
            return [_times(a, rates[0]) for a in factors]
        first, second = (factors, rates) if constant is left else (rates, factors)
        (rows, inner), cols = left.shape, right.shape[1]
        return [
            _finite(sum((_times(first[i * inner + k], second[k * cols + j]) for k in range(inner)), arb(0)))
            for i in range(rows)
            for j in range(cols)
        ]

    def _square(self, node: Node) -> arb:
        base = node.args[0]
        if node.operation == Kind.POWER:
            exponent = node.args[1].value
            if not isinstance(exponent, Scalar) or not exponent.ball > 1:
                raise UnknownRateError
        if not self._shapes.of(base).affine:
            raise UnknownRateError
        found = [_of_square(a) for a in self._of(base)]
        return _INFINITE if any(not a.is_finite() for a in found) else arb(0)

    def _log_of_sum(self, node: Node) -> Rates:
        inside = node.args[0]
        if inside.operation == "sum" and inside.args[0].operation == "exp":
            rates = [_bounded(a) for a in self._of(inside.args[0].args[0])]
            largest = rates[0]
            for rate in rates[1:]:
                largest = ct.maximum(largest, rate)
            return [largest]
        raise UnknownRateError

    def _entrywise(self, node: Node) -> Rates:
        name = "abs" if is_absolute(node) else node.operation
        facts = entrywise_of(name)
        if facts is None or len(node.args) != 1 or facts.domain != Range():
            raise UnknownRateError
        affine = self._shapes.of(node.args[0]).affine
        sides = {"softplus": (0.0, 1.0), "huber": (-1.0, 1.0)}.get(name, facts.sides)
        if name == "exp":
            sides = (0.0, math.inf)
        if sides is None or facts.kink is Kink.JUMP:
            raise UnknownRateError
        return [_along(a, sides, affine) for a in self._of(node.args[0])]


def _along(rate: arb, sides: tuple[float, float], affine: bool) -> arb:
    """Return the rate of a function that grows like a number times its argument on both sides."""
    if not rate.is_finite():
        return _times(arb(sides[1]) if math.isfinite(sides[1]) else _INFINITE, rate)
    if rate > 0:
        return _INFINITE if not math.isfinite(sides[1]) else arb(sides[1]) * rate
    if rate < 0 or rate == 0:
        if rate == 0 and not math.isfinite(sides[1]) and not affine:
            raise UnknownRateError
        return arb(sides[0]) * rate
    if not math.isfinite(sides[1]):
        raise UnknownRateError
    return ct.maximum(arb(sides[1]) * rate, arb(sides[0]) * rate)


def _of_square(rate: arb) -> arb:
    if rate == 0:
        return arb(0)
    if rate > 0 or rate < 0:
        return _INFINITE
    raise UnknownRateError


def _times(factor: arb, rate: arb) -> arb:
    if rate.is_finite():
        return factor * rate
    if factor > 0:
        return _INFINITE
    raise UnknownRateError  # of a factor that is zero, too: of what may grow faster than the ray


def _finite(rate: arb) -> arb:
    """Return a sum, which is infinite where a part of it is, and unknown where parts cancel."""
    if rate.is_finite() or rate > 0:
        return rate
    raise UnknownRateError


def _bounded(rate: arb) -> arb:
    if not rate.is_finite():
        raise UnknownRateError
    return rate


Bounds = list[arb]
"""Coefficients that are balls: at each t >= 0 the value is a sum of c_k t^k, c_k in the k-th ball."""

_MOST_DEGREE = 32


class Beyond:
    """The numbers of a formula of one number w at w = end + t and end >= 0, or w = end - t and end < 0, for all t >= 0.

    Each is bounded by a polynomial in t whose coefficients are balls: polynomials by themselves, bounded functions by
    their range, corners by the sign of their argument where that is certain for all t.

    Args:
        leaf: The variable w.
        end: Where t is 0.
        shapes: The shapes of the nodes.
    """

    def __init__(self, leaf: Node, end: float, shapes: Shapes) -> None:
        self._shapes = shapes
        self._known: dict[int, Bounds] = {leaf.number: [arb(end), arb(1 if end >= 0 else -1)]}

    def of(self, root: Node) -> Bounds:
        """Return the bounds of a number.

        Raises:
            UnknownRateError: They are not known.
        """
        return folded(root, self._known, self._bounds)

    def _bounds(self, node: Node) -> Bounds:
        if node.shape != (1, 1):
            raise UnknownRateError
        if not self._shapes.moves(node):
            number = ar.to_scalar(node.value).ball
            if not number.is_finite():
                raise UnknownRateError
            return [number]
        operation, parts = node.operation, [self._known[arg.number] for arg in node.args if arg.number in self._known]
        if len(parts) < len(node.args) or not parts:
            raise UnknownRateError
        if operation in (Kind.ADD, Kind.SUBTRACT):
            left, right = (part + [arb(0)] * (max(map(len, parts)) - len(part)) for part in parts)
            return [a + b if operation == Kind.ADD else a - b for a, b in zip(left, right, strict=True)]
        if operation == Kind.NEGATE:
            return [-a for a in parts[0]]
        if operation in (Kind.TRANSPOSE, "sum"):
            return parts[0]
        if operation in (Kind.MULTIPLY, "dot", "hadamard"):
            return _multiplied(parts[0], parts[1])
        if operation == Kind.DIVIDE and len(parts[1]) == 1 and not parts[1][0].contains(0):
            return [a / parts[1][0] for a in parts[0]]
        if operation == SQUARED_LENGTH:
            return _multiplied(parts[0], parts[0])
        if operation == Kind.POWER:
            return _raised(parts[0], node.args[1].value)
        return self._of_function(node, parts)

    def _of_function(self, node: Node, parts: list[Bounds]) -> Bounds:
        values = self._shapes.of(node).range
        if math.isfinite(values.low) and math.isfinite(values.high):
            return [sc.exact(values.low).union(sc.exact(values.high))]
        if is_absolute(node) or node.operation == "relu":
            low = -1 if is_absolute(node) else 0
            if all(bool(a >= 0) for a in parts[0]):
                return parts[0]
            if all(bool(a <= 0) for a in parts[0]):
                return [low * a for a in parts[0]]
            return [arb(0).union(arb(a.abs_upper())) for a in parts[0]]
        raise UnknownRateError


class Around(Beyond):
    """The numbers of a formula at all points at the distance t from the origin, for all t >= 0: bounds as in `Beyond`.

    Args:
        tape: Where the nodes are.
        leaf: The variable, zero.
        shapes: The shapes of the nodes.
        slopes: Those of functions with kinks, at zero.
    """

    def __init__(self, tape: Tape, leaf: Node, shapes: Shapes, slopes: Mapping[int, Node]) -> None:
        self._tape, self._leaf, self._shapes, self._slopes = tape, leaf, shapes, slopes
        self._known: dict[int, Bounds] = {}

    def of(self, root: Node) -> Bounds:
        """Return the bounds of a number; those of a convex one that is nothing else from below alone.

        Raises:
            UnknownRateError: They are not known.
        """
        try:
            return self.exactly(root)
        except UnknownRateError:
            shape = self._shapes.of(root)
            if not shape.convex:
                raise
            return self._affine(root, gradient(self._tape, root, self._leaf, self._slopes))

    def exactly(self, root: Node) -> Bounds:
        """Return the bounds of a number, from both sides.

        Raises:
            UnknownRateError: They are not known.
        """
        if root.number not in self._known:
            self._known[root.number] = self._found(root)
        return self._known[root.number]

    def _found(self, node: Node) -> Bounds:
        if node.shape != (1, 1):
            raise UnknownRateError
        shape, moves = self._shapes.of(node), self._shapes.moves(node)
        if moves and shape.affine:
            return self._affine(node, gradient(self._tape, node, self._leaf, {}))
        if moves and shape.degree == 2:
            slope = gradient(self._tape, node, self._leaf, {})
            hessian = jacobian(self._tape, slope, self._leaf)
            bend = NOTHING if hessian is None else extreme_curvatures(hessian)
            if not (bend.low.is_finite() and bend.high.is_finite()):
                raise UnknownRateError
            return [*self._affine(node, slope), bend.low.union(bend.high) / 2]
        if moves and (node.operation == SQUARED_LENGTH or is_length(node)):
            length = self._length(node.args[0])
            return _multiplied(length, length) if node.operation == SQUARED_LENGTH else length
        if moves and node.operation == "sum" and node.args[0].shape != (1, 1):
            return self._total(node.args[0])
        for arg in node.args:
            if moves and node.operation != "sum":
                self.exactly(arg)
        return self._bounds(node)

    def _affine(self, node: Node, slope: Node) -> Bounds:
        """Return the bounds of what has this value and slope at the origin, and is affine or above that."""
        number = ar.to_scalar(node.value).ball
        steep = _size_of(slope)
        if not (number.is_finite() and steep.is_finite()):
            raise UnknownRateError
        return [number, arb(0).union(steep).union(-steep)]

    def _length(self, node: Node) -> Bounds:
        """Return the bounds of the length of an affine map."""
        by = jacobian(self._tape, node, self._leaf)
        if by is None or not by.is_finite or not self._shapes.of(node).affine:
            raise UnknownRateError
        constant, most = _size_of(node), ct.spectral_norm(by)
        least = ct.sigma_min(by) if by.shape[0] >= by.shape[1] else arb(0)
        return [constant.union(-constant), arb(least.lower()).union(most)]

    def _total(self, node: Node) -> Bounds:
        """Return the bounds of the sum of the entries of a matrix: a bounded function, abs or relu of each."""
        count = node.shape[0] * node.shape[1]
        values = self._shapes.of(node).range
        smooth = entrywise_of(node.operation)
        if smooth is None or smooth.kink is Kink.JUMP:
            raise UnknownRateError
        if math.isfinite(values.low) and math.isfinite(values.high):
            return [count * sc.exact(values.low).union(sc.exact(values.high))]
        if node.operation not in ("abs", "relu"):
            raise UnknownRateError
        constant, size = self._length(node.args[0])
        wide = arb(count).sqrt()
        if node.operation == "relu":  # between 0 and the sum of absolute values
            return [arb(0).union(wide * constant), arb(0).union(wide * size)]
        return [constant.union(wide * constant), size.union(wide * size)]


def _size_of(node: Node) -> arb:
    """Return the length of the value of a node."""
    value = node.value
    return abs(value.ball) if isinstance(value, Scalar) else ct.frobenius(value.ball)


def least_around(tape: Tape, root: Node, leaf: Node, shapes: Shapes, slopes: Mapping[int, Node]) -> arb | None:
    """Return a number that a function is nowhere below if it grows beyond all bounds; None where that is not seen.

    Args:
        tape: Where the nodes are.
        root: The function.
        leaf: Its variable, zero.
        shapes: The shapes of the nodes.
        slopes: Those of functions with kinks, at zero.
    """
    ops, around, total = Operations(tape), Around(tape, leaf, shapes, slopes), [arb(0)]
    try:
        for factor, node in terms(root, shapes):
            number = ops.total(node if node.shape == (1, 1) else ops.made("sum", node))
            part = around.of(number) if factor.ball >= 0 else around.exactly(number)
            total = [a + b for a, b in zip_longest(total, (factor.ball * c for c in part), fillvalue=arb(0))]
    except (UnknownRateError, NtkDeqError):
        return None
    lower = [coefficient.lower() for coefficient in total]
    while len(lower) > 1 and lower[-1] == 0:
        lower.pop()
    if len(lower) < 2 or not all(coefficient.is_finite() for coefficient in lower) or not lower[-1] > 0:
        return None
    # Beyond R = max(1, the sum of the negative coefficients over the last one) it is above its constant term.
    falls = [ct.maximum(-coefficient, arb(0)) for coefficient in lower[1:-1]]
    end = ct.maximum(arb(1), sum(falls, arb(0)) / lower[-1])
    return lower[0] - sum((fall * end**power for power, fall in enumerate(falls, start=1)), arb(0))


def _multiplied(left: Bounds, right: Bounds) -> Bounds:
    if len(left) + len(right) > _MOST_DEGREE:
        raise UnknownRateError
    found = [arb(0)] * (len(left) + len(right) - 1)
    for j, a in enumerate(left):
        for k, b in enumerate(right):
            found[j + k] = found[j + k] + a * b
    return found


def _raised(base: Bounds, exponent: object) -> Bounds:
    """Return a power with a whole exponent >= 0."""
    if not isinstance(exponent, Scalar) or not exponent.ball.is_integer() or not 0 <= exponent.ball <= _MOST_DEGREE:
        raise UnknownRateError
    found = [arb(1)]
    for _ in range(int(str(exponent.ball.unique_fmpz()))):
        found = _multiplied(found, base)
    return found
