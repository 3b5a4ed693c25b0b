"""How cotangents pass the functions of the language; rules as in `derivatives.cotangents`."""

from __future__ import annotations

import torch
from flint import arb
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified.precise import PreciseMatrix
from ntk_deq.certified.scalar import upper
from ntk_deq.errors import LimitError, NtkDeqError
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.derivatives import (
    OPERATOR_RULES,
    Cotangent,
    Node,
    Rule,
    inner,
    minus,
    outer,
    rearranged,
    scaled,
    times_entries,
    times_left,
    times_right,
    times_signs,
    transposed_value,
)
from ntk_deq.evaluation.derivatives.kinks import signs_of
from ntk_deq.evaluation.environment import Notes
from ntk_deq.evaluation.functions.balls import pulled
from ntk_deq.evaluation.functions.entrywise import TWINS, factor, note_kinks, slopes
from ntk_deq.evaluation.functions.matrices import MATRIX_TWINS
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.functions import entrywise_of, kink_of
from ntk_deq.language.record import Kink

_ZERO = Scalar(arb(0), 0.0)


class NoRuleError(NtkDeqError):
    """A derivative that no rule certifies.

    Attributes:
        operation: The function.
        reason: Why.
    """

    def __init__(self, operation: str, reason: str) -> None:
        super().__init__(f"{operation}: {reason}")
        self.operation = operation
        self.reason = reason


def _entrywise(name: str) -> Rule:
    """Pass C .* f'(A); at a corner any slope will do, as `kinks` has seen, and 0 is taken."""
    facts, twin = entrywise_of(name), TWINS[name]
    assert facts is not None
    sides = facts.sides

    def of_sides(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
        assert sides is not None
        signs = signs_of(node.args[0])
        return times_signs(cot, sides[1] * signs.above.to(torch.int8) + sides[0] * signs.below.to(torch.int8))

    def of_slopes(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
        argument = node.args[0]
        if node.shape == (1, 1):
            return scaled(factor(name, ar.to_scalar(argument.value), ar.to_scalar(node.value), notes), cot)
        ball = slopes(twin, argument.dense())
        if facts.kink is Kink.EDGE and not ball.is_finite:
            notes.kink(f"{name} of an entry that may be at an end of its domain", certain=False)
        return times_entries(cot, Matrix(ball, ar.magnitude(ct.frobenius(ball))))

    return of_slopes if sides is None else of_sides


_absolute = _entrywise("abs")


def _vec(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    rows, cols = node.args[0].shape
    return rearranged(cot, lambda c: c.reshape(-1, cols, rows).mT.reshape(cot.count, -1))


def _diag(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    rows, cols = node.args[0].shape
    if cols == 1:
        return rearranged(cot, lambda c: c.reshape(-1, rows, rows).diagonal(dim1=1, dim2=2).contiguous())
    return rearranged(cot, lambda c: torch.diag_embed(c).reshape(cot.count, -1))


def _kron(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass Y = A (x) B: block (i, j) of C gives <block, B> to A[i, j] and A[i, j] block to B."""
    (p, q), (r, s) = (arg.shape for arg in node.args)
    order = (0, 1, 3, 2, 4) if place == 0 else (0, 2, 4, 1, 3)
    factor = node.args[1 - place]
    size = factor.shape[0] * factor.shape[1]
    rows = rearranged(cot, lambda c: c.reshape(cot.count, p, r, q, s).permute(order).reshape(-1, size))
    share = inner(rows, factor.matrix())
    return rearranged(share, lambda c: c.reshape(cot.count, -1))


def _hadamard(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    return times_entries(cot, node.args[1 - place].matrix())


def _dot(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    return outer(cot, node.args[1 - place].matrix())


def _inverse(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass Y = inv(A): -Y' C Y'."""
    transposed = transposed_value(node)
    return minus(times_right(times_left(transposed, cot, node.shape), node.shape, transposed))


def _softmax(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    return pulled(node.matrix(), cot, cot.ball.dtype, cot.ball.device)


def _trace(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    unit = torch.eye(node.args[0].shape[0], dtype=cot.ball.dtype, device=cot.ball.device)
    return outer(cot, _exact(unit))


def _exact(tensor: Tensor) -> Matrix:
    return Matrix(ct.Ball(tensor), 1.0)


def _sum(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    argument = node.args[0]
    if argument.is_scalar:
        return cot
    return outer(cot, _exact(torch.ones(argument.shape, dtype=cot.ball.dtype, device=cot.ball.device)))


def _determinant(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass y = det(A): c y inv(A)'."""
    inverse = ct.transpose(ct.inverse(node.args[0].dense()))
    if not inverse.is_finite:
        raise NoRuleError("det", "the derivative of a determinant is certified for invertible matrices only")
    return outer(scaled(ar.to_scalar(node.value), cot), Matrix(inverse, upper(ct.frobenius(inverse))))


def _frobenius(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass y = fro(A): c A/fro(A)."""
    matrix = node.args[0].matrix()
    size = ct.frobenius(matrix.ball)
    if not size > 0:
        zero = bool(size == 0)
        notes.kink(f"the argument of a norm {'is' if zero else 'may be'} zero", certain=zero)
    direction = ar.divide(matrix, Scalar(size, matrix.scale), notes)
    return outer(cot, ar.to_matrix(direction))


def _norm(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    argument = node.args[0]
    if argument.is_scalar:
        note_kinks(argument.dense(), notes)
        return _absolute(node, cot, place, notes)
    if 1 in argument.shape:
        return _frobenius(node, cot, place, notes)
    if isinstance(cot.ball, PreciseMatrix):
        raise LimitError("the derivative of a spectral norm is not evaluated at more than float64's precision")
    return _singular(0)(node, cot, place, notes)


def _singular(index: int) -> Rule:
    def rule(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
        return outer(cot, _direction(node, index, notes))

    return rule


def _direction(node: Node, index: int, notes: Notes) -> Matrix:
    direction = ct.singular_direction(node.args[0].dense(), index)
    if direction is None:
        # Also where the bound fails only for want of digits: nothing certain may rest on a guess there.
        notes.kink(f"a {node.operation} whose singular value may be zero or not simple", certain=False)
    return Matrix(direction, 1.0)


def _condition(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    """Pass y = sigma_max/sigma_min: c (u1 v1' - y un vn')/sigma_min."""
    matrix = node.args[0].matrix()
    smallest = Scalar(ct.sigma_min(matrix.ball), matrix.scale)
    top, low = _direction(node, 0, notes), _direction(node, -1, notes)
    slope = ar.divide(ar.subtract(top, ar.multiply(ar.to_scalar(node.value), low, notes), notes), smallest, notes)
    return outer(cot, ar.to_matrix(slope))


def _largest_column(node: Node, cot: Cotangent, place: int, notes: Notes, *, rows: bool = False) -> Cotangent:
    """Pass y = the largest absolute column (row) sum: c times the signs of that column (row)."""
    ball = node.args[0].dense()
    columns = ct.transpose(ball) if rows else ball
    count = columns.shape[1]
    sums = [ct.norm1(ct.Ball(columns.centre[:, k : k + 1], columns.radius, columns.reason)) for k in range(count)]
    best = _certain_largest(sums, "a largest sum", notes)
    note_kinks(ct.Ball(columns.centre[:, best : best + 1], columns.radius), notes)
    signs = torch.zeros_like(columns.centre)
    signs[:, best] = columns.centre[:, best].sign()
    return outer(cot, _exact((signs.mT if rows else signs).contiguous()))


def _row_sum(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
    return _largest_column(node, cot, place, notes, rows=True)


def _certain_largest(values: list[arb], what: str, notes: Notes) -> int:
    """Return the place of the value that is certainly above all others; stop where there is none."""
    best = max(range(len(values)), key=lambda k: float(values[k].mid()))
    if not all(values[best] > value for k, value in enumerate(values) if k != best):
        notes.kink(f"{what} that is, or may be, reached twice", certain=False)
    return best


def _extreme(sign: int) -> Rule:
    """Pass a maximum (sign 1) or minimum (sign -1): the cotangent goes to the only place that reaches it."""

    def rule(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
        what = "a maximum" if sign > 0 else "a minimum"
        if len(node.args) > 1 or node.args[0].is_scalar:
            values = [sign * ar.to_scalar(arg.value).ball for arg in node.args]
            return cot if _certain_largest(values, what, notes) == place else scaled(_ZERO, cot)
        ball = node.args[0].dense()
        flat = (sign * ball.centre).flatten()
        top = flat.topk(min(2, flat.numel()))
        values = [ct.with_radius(value, ball.radius) for value in top.values.tolist()]
        _certain_largest(values, what, notes)
        pick = torch.zeros_like(flat)
        pick[top.indices[0]] = 1.0
        return outer(cot, _exact(pick.reshape(ball.shape)))

    return rule


RULES: dict[str, Rule] = {
    **OPERATOR_RULES,
    **{name: twin.pull for name, twin in MATRIX_TWINS.items() if twin.pull is not None},
    **{name: _entrywise(name) for name in TWINS if kink_of(name) is not Kink.JUMP},
    "cond": _condition,
    "det": _determinant,
    "diag": _diag,
    "dot": _dot,
    "fro": _frobenius,
    "hadamard": _hadamard,
    "inv": _inverse,
    "kron": _kron,
    "max": _extreme(1),
    "min": _extreme(-1),
    "norm": _norm,
    "norm1": _largest_column,
    "norminf": _row_sum,
    "sigma_max": _singular(0),
    "sigma_min": _singular(-1),
    "softmax": _softmax,
    "sum": _sum,
    "trace": _trace,
    "vec": _vec,
}
"""Every operator and function with a certified rule; constants (I, zeros, ones, commutation) and jumps need none."""


IN_FLOATS = frozenset({"cond", "max", "min", "norm1", "norminf", "sigma_max", "sigma_min"})
IN_FLOATS |= {name for name, twin in MATRIX_TWINS.items() if twin.in_floats}
"""Functions whose rules take float balls only."""


def rule_of(operation: str) -> Rule:
    """Return the rule of an operation.

    Raises:
        NoRuleError: It has none.
    """
    if operation not in RULES:
        raise NoRuleError(operation, "its derivative has no certified rule")
    return RULES[operation]
