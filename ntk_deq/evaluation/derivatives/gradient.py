"""The gradient of a formula as a formula: reverse mode on a tape whose results are nodes of that tape.

So it can be evaluated in balls of any width, and differentiated again: Hessians, and how a minimiser moves with what
it depends on. Where a function has a corner, or several slopes, the caller says which slope is meant, a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from ntk_deq.evaluation.derivatives import MINIMUM, SQUARED_LENGTH, Node, NoRuleError, number_place, reachable
from ntk_deq.evaluation.derivatives.tape import Frame, Tape
from ntk_deq.evaluation.functions import whole
from ntk_deq.evaluation.quantity import Matrix
from ntk_deq.language.functions import FUNCTIONS, entrywise_of
from ntk_deq.language.record import Kink
from ntk_deq.language.tree import Expr, Kind, Sign, Span
from ntk_deq.language.written import ENTRY, Lift, slope_formula

LENGTHS = ("norm", "fro")
EXTREMES = ("max", "min")
_HERE = Span(0, 0)


def has_kink(node: Node) -> bool:
    """Whether the function of a node has several slopes somewhere, one of which must be named: corners, extremes."""
    facts = entrywise_of(node.operation)
    corner = facts is not None and facts.kink is Kink.CORNER
    return corner or node.operation in EXTREMES or is_absolute(node)


def is_absolute(node: Node) -> bool:
    """Whether a node is an absolute value, also one that is written as a norm."""
    return node.operation == "abs" or (node.operation in LENGTHS and node.args[0].is_scalar)


def is_length(node: Node) -> bool:
    """Whether a node is the root of a sum of squares of a matrix."""
    argument = node.args[0] if node.args else None
    if argument is None or argument.is_scalar:
        return False
    return node.operation == "fro" or (node.operation == "norm" and 1 in argument.shape)


def gradient(tape: Tape, root: Node, leaf: Node, slopes: Mapping[int, Node], *, minimisers: bool = True) -> Node:
    """Return the gradient of a number by a leaf, in the shape of the leaf.

    Args:
        tape: Where the nodes are.
        root: The number.
        leaf: A variable, or a state.
        slopes: By the number of a node, the slope that its function has, by entries of its argument: of every node with
            a kink, and of lengths of what is zero.
        minimisers: Whether what is computed from the leaf through a minimiser counts.

    Raises:
        NoRuleError: A function on the way has no gradient here.
    """
    ops = Operations(tape)
    moving = _moving(root, leaf, minimisers=minimisers)
    if root.number not in moving:
        return ops.times(ops.number(0), ops.ones(leaf)) if not leaf.is_scalar else ops.number(0)
    found: dict[int, Node] = {root.number: ops.fitted(ops.number(1), root)}
    for node in reachable([root]):
        if node.number not in moving or node is leaf or node.number not in found:
            continue
        if not node.args:
            raise NoRuleError(node.operation, "its gradient is not known as a formula")
        arriving = found.pop(node.number)
        if node.operation == MINIMUM:  # moves as what is least does where it is reached
            assert node.reached is not None
            share = ops.times(arriving, gradient(tape, node.reached, leaf, slopes, minimisers=False))
            found[leaf.number] = ops.plus(found[leaf.number], share) if leaf.number in found else share
            continue
        for place, arg in enumerate(node.args):
            if arg.number not in moving:
                continue
            share = ops.fitted(_share(ops, node, arriving, place, slopes), arg)
            found[arg.number] = ops.plus(found[arg.number], share) if arg.number in found else share
    return found[leaf.number]


def _moving(root: Node, leaf: Node, *, minimisers: bool) -> set[int]:
    """Return the numbers of the nodes that move with a leaf."""
    nodes = reachable([root])[::-1]
    if minimisers:
        return {node.number for node in nodes if leaf.number in node.depends}
    found = {leaf.number}
    for node in nodes:
        if leaf.number in node.depends and any(arg.number in found for arg in node.args):
            found.add(node.number)
    return found


def _share(ops: Operations, node: Node, cot: Node, place: int, slopes: Mapping[int, Node]) -> Node:
    if node.number in slopes:
        slope = slopes[node.number]
        if node.operation in EXTREMES and len(node.args) > 1:
            return ops.times(ops.entry(slope, place), cot)
        return ops.hadamard(cot, slope) if node.shape == slope.shape and not node.is_scalar else ops.times(cot, slope)
    if has_kink(node):
        raise NoRuleError(node.operation, "which of its slopes is meant is not known")
    if node.operation in _RULES:
        return _RULES[node.operation](ops, node, cot, place)
    if entrywise_of(node.operation) is not None:
        return _entrywise(ops, node, cot)
    if is_length(node):
        return ops.times(ops.over(cot, node), node.args[0])
    raise NoRuleError(node.operation, "its gradient is not known as a formula")


@dataclass(frozen=True)
class Operations:
    """Nodes made from nodes.

    Attributes:
        tape: Where they are kept.
    """

    tape: Tape

    def made(self, what: Kind | str, *args: Node) -> Node:
        """Return the node of an operator or a function."""
        return self.tape.made(what, args)

    def number(self, value: int) -> Node:
        """Return a number."""
        return self.tape.number(value)

    def plus(self, left: Node, right: Node) -> Node:
        """Return a sum."""
        return self.made(Kind.ADD, left, right)

    def minus(self, node: Node) -> Node:
        """Return -node."""
        return self.made(Kind.NEGATE, node)

    def times(self, left: Node, right: Node) -> Node:
        """Return a product as the language reads it."""
        return self.made(Kind.MULTIPLY, left, right)

    def over(self, node: Node, divisor: Node) -> Node:
        """Return a quotient by a number."""
        return self.made(Kind.DIVIDE, node, divisor)

    def turned(self, node: Node) -> Node:
        """Return a transpose."""
        return node if node.is_scalar else self.made(Kind.TRANSPOSE, node)

    def hadamard(self, left: Node, right: Node) -> Node:
        """Return the product of entries."""
        return self.times(left, right) if left.is_scalar else self.made("hadamard", left, right)

    def dot(self, left: Node, right: Node) -> Node:
        """Return the sum of products of entries."""
        return self.times(left, right) if left.is_scalar else self.made("dot", left, right)

    def total(self, node: Node) -> Node:
        """Return the only entry of a 1 x 1 matrix, or a number."""
        return node if node.is_scalar else self.made("sum", node)

    def entry(self, node: Node, place: int) -> Node:
        """Return an entry of a column, counted from 0."""
        return self.made(str(Sign.ENTRY), node, self.number(place + 1))

    def constant(self, tensor: torch.Tensor) -> Node:
        """Return a constant matrix of floats."""
        return self.tape.constant(tensor)

    def ones(self, like: Node) -> Node:
        """Return a matrix of ones in the shape of another."""
        return self.constant(torch.ones(like.shape, dtype=torch.float64))

    def fitted(self, cot: Node, node: Node) -> Node:
        """Return the gradient by a node as a number or a matrix, as the node is."""
        if cot.is_scalar == node.is_scalar:
            return cot
        return self.total(cot) if node.is_scalar else self.times(cot, self.ones(node))


def _multiply(ops: Operations, node: Node, cot: Node, place: int) -> Node:
    left, right = node.args
    other = node.args[1 - place]
    if left.is_scalar and right.is_scalar:
        return ops.times(cot, other)
    number = number_place(left, right)
    if number is None:
        return ops.times(cot, ops.turned(right)) if place == 0 else ops.times(ops.turned(left), cot)
    return ops.dot(cot, other) if place == number else ops.times(ops.total(other), cot)


def _divide(ops: Operations, node: Node, cot: Node, place: int) -> Node:
    divisor = ops.total(node.args[1])
    if place == 0:
        return ops.over(cot, divisor)
    return ops.minus(ops.over(ops.dot(cot, node), divisor))


def _power(ops: Operations, node: Node, cot: Node, place: int) -> Node:
    base, exponent = (ops.total(arg) for arg in node.args)
    if place == 1:
        return ops.times(cot, ops.times(ops.total(node), ops.made("log", base)))
    lower = ops.made(Kind.SUBTRACT, exponent, ops.number(1))
    degree = exponent.value
    plain = isinstance(degree, Matrix) or not degree.ball == 2
    factor = base if not plain else ops.made(Kind.POWER, base, lower)
    return ops.times(ops.total(cot), ops.times(exponent, factor))


def _trace(ops: Operations, node: Node, cot: Node, place: int) -> Node:
    return ops.times(cot, ops.constant(torch.eye(node.args[0].shape[0], dtype=torch.float64)))


def _determinant(ops: Operations, node: Node, cot: Node, place: int) -> Node:
    return ops.times(ops.times(cot, node), ops.turned(ops.made("inv", node.args[0])))


def _inverse(ops: Operations, node: Node, cot: Node, place: int) -> Node:
    back = ops.turned(node)
    return ops.minus(ops.times(ops.times(back, cot), back))


def _vec(ops: Operations, node: Node, cot: Node, place: int) -> Node:
    if node.args[0].shape[1] != 1:
        raise NoRuleError("vec", "its gradient is known of columns alone")
    return cot


def _entrywise(ops: Operations, node: Node, cot: Node) -> Node:
    """The slope by its formula, the entry being the node of the argument."""
    found = slope_formula(FUNCTIONS[node.operation], 1)
    if found is None:
        return ops.times(ops.number(0), cot)
    names, formula = found
    argument = node.args[0]
    lift = Lift(_HERE, matrix=not argument.is_scalar)
    written = lift.formula(formula, names, (Expr(Kind.NAME, _HERE, name=ENTRY),))
    slope = ops.tape.built(written, Frame(ops.tape.base.env, {ENTRY: argument}))
    return ops.hadamard(cot, slope)


def _segment(ops: Operations, node: Node, cot: Node, place: int) -> Node:
    """A piece by the rows and columns that it picks: P'C Q'."""
    at = [whole(arg.value) for arg in node.args[1:]]
    rows, cols = node.args[0].shape
    picked = {
        Sign.ENTRY: lambda: (at[0] - 1, at[0], *((at[1] - 1, at[1]) if len(at) > 1 else (0, 1))),
        Sign.SEGMENT: lambda: (at[0] - 1, at[1], 0, cols),
        Sign.ROWS: lambda: (at[0] - 1, at[1], 0, cols),
        Sign.COLUMNS: lambda: (0, rows, at[0] - 1, at[1]),
        Sign.BLOCK: lambda: (at[0] - 1, at[1], at[2] - 1, at[3]),
    }[Sign(node.operation)]()
    top, bottom, left, right = picked
    unit = torch.eye(rows, dtype=torch.float64)[:, top:bottom], torch.eye(cols, dtype=torch.float64)[left:right]
    if node.operation == Sign.ENTRY:
        return ops.times(cot, ops.constant(unit[0] @ unit[1]))
    moved = cot if bottom - top == rows else ops.times(ops.constant(unit[0]), cot)
    return moved if right - left == cols else ops.times(moved, ops.constant(unit[1]))


def _block(ops: Operations, node: Node, cot: Node, place: int) -> Node:
    """A matrix put together: the part of its gradient where the block stands."""
    across = node.operation == Sign.ROW
    sizes = [arg.shape[1 if across else 0] for arg in node.args]
    start, stop = sum(sizes[:place]), sum(sizes[: place + 1])
    unit = torch.eye(sum(sizes), dtype=torch.float64)[start:stop]
    return ops.times(cot, ops.constant(unit.mT.contiguous())) if across else ops.times(ops.constant(unit), cot)


_RULES: dict[str, Callable[[Operations, Node, Node, int], Node]] = {
    str(Kind.NEGATE): lambda ops, node, cot, place: ops.minus(cot),
    str(Kind.ADD): lambda ops, node, cot, place: cot,
    str(Kind.SUBTRACT): lambda ops, node, cot, place: ops.minus(cot) if place else cot,
    str(Kind.TRANSPOSE): lambda ops, node, cot, place: ops.turned(cot),
    str(Kind.MULTIPLY): _multiply,
    str(Kind.DIVIDE): _divide,
    str(Kind.POWER): _power,
    SQUARED_LENGTH: lambda ops, node, cot, place: ops.times(ops.times(ops.number(2), cot), node.args[0]),
    "hadamard": lambda ops, node, cot, place: ops.hadamard(cot, node.args[1 - place]),
    "dot": lambda ops, node, cot, place: ops.times(cot, node.args[1 - place]),
    "sum": lambda ops, node, cot, place: cot if node.args[0].is_scalar else ops.times(cot, ops.ones(node.args[0])),
    "trace": _trace,
    "det": _determinant,
    "inv": _inverse,
    "vec": _vec,
    "diag": lambda ops, node, cot, place: ops.made("diag", cot),
    **dict.fromkeys(map(str, (Sign.ENTRY, Sign.SEGMENT, Sign.ROWS, Sign.COLUMNS, Sign.BLOCK)), _segment),
    **dict.fromkeys(map(str, (Sign.ROW, Sign.STACK)), _block),
}
"""How the gradient by a value becomes that by an argument."""
