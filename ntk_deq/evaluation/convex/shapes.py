"""What is convex in what: the rules of composition, on the nodes of a formula.

References:
    Grant, Boyd, Ye, Disciplined convex programming, 2006.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction

from ntk_deq import certified as ct
from ntk_deq.evaluation.derivatives import MINIMUM, SQUARED_LENGTH, STATE, Node, folded, reachable
from ntk_deq.evaluation.derivatives.gradient import LENGTHS, is_absolute
from ntk_deq.evaluation.quantity import Scalar
from ntk_deq.language.functions import FUNCTIONS, entrywise_of
from ntk_deq.language.record import Change, Kink
from ntk_deq.language.tree import Kind, Sign
from ntk_deq.language.types import Range

_PIECES = frozenset(map(str, (Sign.ENTRY, Sign.SEGMENT, Sign.ROWS, Sign.COLUMNS, Sign.BLOCK)))
_JOINED = frozenset({str(Sign.ROW), str(Sign.STACK), "blockdiag"})
_SUMS = frozenset({"sum", "trace"})
_NORMS = frozenset({*LENGTHS, "norm1", "norminf", "nuclear"})


@dataclass(frozen=True)
class Shape:
    """What is known of the entries of a node as functions of the leaves.

    Attributes:
        convex: Whether each is convex.
        concave: Whether each is concave; both for what is affine.
        degree: Of a polynomial: 0, 1 or 2; None: unknown, or none.
        exponential: Whether each is positive with a convex logarithm.
        range: In which interval all values lie.
    """

    convex: bool = False
    concave: bool = False
    degree: int | None = None
    exponential: bool = False
    range: Range = field(default_factory=Range)

    @property
    def affine(self) -> bool:
        """Whether each entry is affine."""
        return self.convex and self.concave

    @property
    def rises(self) -> bool:
        """Whether all values are nonnegative."""
        return self.range.above(0, or_at=True)


_UNKNOWN = Shape()


class Shapes:
    """The shapes of the nodes of a tape.

    Args:
        leaves: Numbers of the leaves that count as variables; other states are fixed, with unknown values.
    """

    def __init__(self, leaves: frozenset[int]) -> None:
        self._leaves = leaves
        self._known: dict[int, Shape] = {}
        self._moving: dict[int, bool] = {}

    def moves(self, node: Node) -> bool:
        """Whether a node is computed from a variable, also through what jumps."""
        return self._reaches(node)[0]

    def is_known(self, node: Node) -> bool:
        """Whether a node has one value, wherever the leaves and other states are."""
        return self._reaches(node) == (False, False)

    def _reaches(self, node: Node) -> tuple[bool, bool]:
        """Whether a node is computed from a variable, and whether from any other state."""
        if node.number not in self._moving:
            for part in reversed(reachable([node])):
                # A minimiser has no arguments: it moves as what is least there does, also by what jumps.
                behind = part.args if part.image is None else (*part.args, part.image)
                self._moving[part.number] = bool(part.depends & self._leaves) or any(map(self.moves, behind))
        return self._moving[node.number], any(
            part.operation == STATE and part.number not in self._leaves for part in reachable([node])
        )

    def of(self, node: Node) -> Shape:
        """Return the shape of a node."""
        return folded(node, self._known, self._within)

    def _within(self, node: Node) -> Shape:
        """Return the shape of a node, with what is said of its function's values."""
        found = self._shape(node)
        values = FUNCTIONS[node.operation].values if node.operation in FUNCTIONS else None
        if values is None or not node.args:
            return found
        return replace(found, range=found.range.meet(values([self._known[a.number].range for a in node.args])))

    def _shape(self, node: Node) -> Shape:
        if node.number in self._leaves:
            return Shape(True, True, 1)
        moves, hidden = self._reaches(node)
        if not moves:
            known = Range() if hidden else _range_of(node)
            return Shape(True, True, 0, exponential=known.above(0), range=known)
        shapes = [self._known[arg.number] for arg in node.args]
        operation = node.operation
        if operation == Kind.NEGATE:
            return _negated(shapes[0])
        if operation == Kind.ADD:
            return _sum(shapes)
        if operation == Kind.SUBTRACT:
            return _sum([shapes[0], _negated(shapes[1])])
        if operation == Kind.TRANSPOSE or operation in _PIECES or operation in ("vec", "diag"):
            return shapes[0] if operation != "diag" else replace(shapes[0], exponential=False, range=Range())
        if operation in _JOINED:
            return _joined(shapes)
        if operation in _SUMS:
            range_ = Range(Fraction(0)) if shapes[0].rises else Range()
            return replace(shapes[0], range=range_, exponential=shapes[0].exponential and operation == "sum")
        if operation in (Kind.MULTIPLY, "hadamard", "dot"):
            return _product(node, shapes)
        if operation == Kind.DIVIDE:
            return _quotient(node, shapes)
        if operation == Kind.POWER:
            return _power(node, shapes)
        if operation == SQUARED_LENGTH or (operation in _NORMS and not is_absolute(node)):
            good = shapes[0].affine or (
                shapes[0].convex and shapes[0].rises and operation in (*LENGTHS, SQUARED_LENGTH)
            )
            degree = 2 if operation == SQUARED_LENGTH and (shapes[0].degree or 9) <= 1 else None
            spectral = operation == "norm" and 1 not in node.args[0].shape and not shapes[0].affine
            return Shape(good and not spectral, False, degree, range=Range(Fraction(0)))
        if operation == "max":
            return Shape(all(s.convex for s in shapes), False)
        if operation == "min":
            return Shape(False, all(s.concave for s in shapes))
        if operation == MINIMUM:
            return self._least(node)
        if operation == "log" and shapes[0].exponential:
            return Shape(True, shapes[0].concave)
        return _entrywise(node, shapes)

    def _least(self, node: Node) -> Shape:
        """A minimum over a state: concave where each value is, convex where all is jointly."""
        image, state = node.image, node.state
        if state is None or image is None:
            return _UNKNOWN
        outside = Shapes(self._leaves).of(image)
        inside = Shapes(self._leaves | {state.number}).of(image)
        return Shape(inside.convex, outside.concave)


def _range_of(node: Node) -> Range:
    """Return the range of the entries of a constant."""
    value = node.value
    if isinstance(value, Scalar):
        ends = value.ball, value.ball
    else:
        ends = ct.entry_min(value.ball), ct.entry_max(value.ball)
    if not all(end.is_finite() for end in ends):
        return Range()
    low, high = ct.lower(ends[0]), ct.upper(ends[1])
    if not (math.isfinite(low) and math.isfinite(high)):
        return Range()
    return Range(Fraction(low), Fraction(high))


def _negated(shape: Shape) -> Shape:
    return Shape(shape.concave, shape.convex, shape.degree, range=-shape.range)


def _sum(shapes: list[Shape]) -> Shape:
    exponential = all(s.exponential for s in shapes)
    return replace(_joined(shapes), exponential=exponential, range=shapes[0].range + shapes[1].range)


def _joined(shapes: list[Shape]) -> Shape:
    return Shape(all(s.convex for s in shapes), all(s.concave for s in shapes), _most(shapes))


def _most(shapes: list[Shape]) -> int | None:
    degrees = [s.degree for s in shapes]
    return None if None in degrees else max(d for d in degrees if d is not None)


def _times_constant(constant: Shape, other: Shape) -> Shape:
    """Entries that are sums of entries of one times constants of a known sign."""
    degree = other.degree
    if constant.rises:
        range_ = Range(Fraction(0)) if other.rises else Range()
        return Shape(other.convex, other.concave, degree, range=range_)
    if (-constant.range).above(0, or_at=True):
        return Shape(other.concave, other.convex, degree)
    return Shape(other.affine, other.affine, degree)


def _product(node: Node, shapes: list[Shape]) -> Shape:
    left, right = shapes
    if left.degree == 0 or right.degree == 0:
        constant, other = (left, right) if left.degree == 0 else (right, left)
        found = _times_constant(constant, other)
        return replace(found, exponential=constant.exponential and other.exponential)
    degree = None if left.degree is None or right.degree is None else left.degree + right.degree
    degree = degree if degree is None or degree <= 2 else None
    square = (node.args[0] is node.args[1] and node.operation != Kind.MULTIPLY) or _is_square(node)
    convex = square and (left.affine or (left.convex and left.rises))
    return Shape(
        convex, False, degree, left.exponential and right.exponential, Range(Fraction(0)) if square else Range()
    )


def _is_square(node: Node) -> bool:
    """Whether a product is s s of a number, or v'v of a column."""
    left, right = node.args
    if left is right:
        return left.is_scalar or left.shape == (1, 1)
    turned = left.operation == Kind.TRANSPOSE and left.args[0] is right
    return turned and right.shape[1] == 1


def _quotient(node: Node, shapes: list[Shape]) -> Shape:
    if shapes[1].degree != 0:
        return _UNKNOWN
    found = _times_constant(shapes[1], shapes[0])
    return replace(found, exponential=shapes[0].exponential and shapes[1].exponential)


def _power(node: Node, shapes: list[Shape]) -> Shape:
    base, exponent = shapes
    degree = exponent.range.low if exponent.degree == 0 and exponent.range.low == exponent.range.high else None
    if degree is None or degree < 1 or not (node.args[0].is_scalar or node.args[0].shape == (1, 1)):
        return _UNKNOWN
    even = degree.denominator == 1 and degree % 2 == 0 if isinstance(degree, Fraction) else False
    if degree == 1:
        return replace(base, exponential=False)
    convex = (even and base.affine) or (base.convex and base.rises)
    quadratic = degree == 2 and base.degree is not None and base.degree <= 1
    return Shape(convex, False, 2 if quadratic else None, range=Range(Fraction(0)) if even or base.rises else Range())


def _entrywise(node: Node, shapes: list[Shape]) -> Shape:
    name = "abs" if is_absolute(node) else node.operation
    facts = entrywise_of(name)
    if facts is None or len(shapes) != 1 or facts.kink is Kink.JUMP:
        return _UNKNOWN
    argument = shapes[0]
    even = Change.SIGN in FUNCTIONS[name].blind
    rising, falling = facts.growth == 1 or (even and facts.curvature == 1 and argument.rises), facts.growth == -1
    inside = argument.range.within(facts.domain)
    # An argument that leaves the domain of a function that is not monotone up to there makes the set of values odd.
    monotone = (rising and argument.convex) or (falling and argument.concave)
    convex = facts.curvature == 1 and (argument.affine or (monotone and inside))
    against = (rising and argument.concave) or (falling and argument.convex)
    concave = facts.curvature == -1 and (argument.affine or against)
    return Shape(convex, concave, exponential=name == "exp" and argument.convex)
