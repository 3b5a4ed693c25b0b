"""Between which curvatures a function lies, read off its formula.

A function F has the *curvatures* [l, h] where F - l |u|^2/2 and h |u|^2/2 - F are convex: strongly convex for l > 0,
weakly for l < 0, with an h-Lipschitz gradient where both are finite. They add up over sums. For f of each entry with
second differences in [a, b] and an affine map, f(A u) has those between a and b times the squares of the singular
values of A; the conjugate of a function with [l, h] has [1/h, 1/l].

References:
    Hiriart-Urruty and Lemarechal, Fundamentals of convex analysis, 2001, theorem E.4.2.1 (conjugates).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from flint import arb

from ntk_deq import certified as ct
from ntk_deq.errors import LimitError
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.convex.shapes import Shape, Shapes
from ntk_deq.evaluation.derivatives import MINIMUM, Cotangent, Node, NoRuleError, reachable, rearranged_ball, signs_of
from ntk_deq.evaluation.derivatives.gradient import Operations, gradient, is_absolute
from ntk_deq.evaluation.derivatives.reverse import SOLVED, Adjoint, Reverse, jumps, quotients
from ntk_deq.evaluation.derivatives.tape import Tape
from ntk_deq.evaluation.environment import Environment, Notes, OutsideClaimError
from ntk_deq.evaluation.existence import existence
from ntk_deq.evaluation.floats import UndifferentiableError
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.functions import FUNCTIONS, entrywise_of
from ntk_deq.language.record import Kink
from ntk_deq.language.tree import Expr, Kind, Span
from ntk_deq.language.types import Range
from ntk_deq.language.written import ENTRY, slope_formula


@dataclass(frozen=True)
class Curvatures:
    """Bounds of the curvature of a number: F - low |u|^2/2 and high |u|^2/2 - F are convex."""

    low: arb
    high: arb

    def __add__(self, other: Curvatures) -> Curvatures:
        return Curvatures(self.low + other.low, self.high + other.high)

    def times(self, factor: arb) -> Curvatures:
        """Return those of a multiple by a number of known sign; nothing is known for others."""
        if factor >= 0:
            return Curvatures(_product_of(factor, self.low), _product_of(factor, self.high))
        if factor <= 0:
            return Curvatures(_product_of(factor, self.high), _product_of(factor, self.low))
        return NOTHING


def _product_of(factor: arb, bound: arb) -> arb:
    return arb(0) if factor == 0 else factor * bound


_HERE = Span(0, 0)
_NOT_KNOWN = "a second derivative is not known"
_PLUS, _MINUS = arb("+inf"), arb("-inf")
NOTHING = Curvatures(_MINUS, _PLUS)


def terms(root: Node, shapes: Shapes) -> list[tuple[Scalar, Node]]:
    """Return the terms of a number with their factors, as far as sums and constant factors show them.

    A matrix among them stands for the sum of its entries.
    """
    found: list[tuple[Scalar, Node]] = []
    waiting = [(Scalar(arb(1), 1.0), root)]
    while waiting:
        factor, node = waiting.pop()
        parts = _apart(factor, node, shapes)
        waiting += parts
        found += [] if parts else [(factor, node)]
    return found


def _apart(factor: Scalar, node: Node, shapes: Shapes) -> list[tuple[Scalar, Node]]:
    """Return what a multiple of a node is the sum of; nothing where that is not seen."""
    operation, args = node.operation, node.args
    if operation in (Kind.ADD, Kind.SUBTRACT):
        sign = 1 if operation == Kind.ADD else -1
        return [(factor, args[0]), (Scalar(factor.ball * sign, factor.scale), args[1])]
    if operation == Kind.NEGATE:
        return [(Scalar(-factor.ball, factor.scale), args[0])]
    if operation == "sum":
        return [(factor, args[0])]
    if operation == Kind.MULTIPLY:
        of_numbers = args[0].shape == args[1].shape == (1, 1)
        numbers = args if of_numbers else args[:1] if args[0].is_scalar else ()
        constant = next((arg for arg in numbers if shapes.is_known(arg)), None)
        if constant is not None:
            number = ar.to_scalar(constant.value)
            other = args[1] if constant is args[0] else args[0]
            return [(Scalar(factor.ball * number.ball, factor.scale * number.scale), other)]
    if operation == Kind.DIVIDE and shapes.is_known(args[1]):
        number = ar.to_scalar(args[1].value)
        if number.ball.is_finite() and not number.ball.contains(0):
            return [(Scalar(factor.ball / number.ball, factor.scale), args[0])]
    return []


def second_differences(name: str) -> tuple[float, float]:
    """Return bounds of the second derivative of a function of one number, in the sense of differences.

    Example:
        >>> second_differences("softplus"), second_differences("huber"), second_differences("abs")
        ((0.0, 0.25), (0.0, 1.0), (0.0, inf))
    """
    facts = entrywise_of(name)
    if facts is None or facts.kink is Kink.JUMP:
        return -math.inf, math.inf
    low = 0.0 if facts.curvature == 1 else -math.inf
    high = 0.0 if facts.curvature == -1 else math.inf
    if facts.kink is Kink.CORNER or facts.domain != Range():
        return low, high
    found = slope_formula(FUNCTIONS[name], 1)
    slopes = (0.0, 0.0) if found is None else _slopes(found[1])
    return max(low, slopes[0]), min(high, slopes[1])


def _slopes(formula: Expr) -> tuple[float, float]:
    """Return bounds of the difference quotients of a formula of a record, where its form shows them."""
    unknown = (-math.inf, math.inf)
    if formula.kind is Kind.NAME:
        return (1.0, 1.0) if formula.name == ENTRY else unknown
    if formula.kind is Kind.NUMBER or (formula.kind is Kind.CALL and not formula.args):
        return 0.0, 0.0
    parts = [_slopes(arg) for arg in formula.args]
    if formula.kind is Kind.NEGATE:
        return -parts[0][1], -parts[0][0]
    if formula.kind is Kind.ADD:
        return parts[0][0] + parts[1][0], parts[0][1] + parts[1][1]
    if formula.kind is Kind.SUBTRACT:
        return parts[0][0] - parts[1][1], parts[0][1] - parts[1][0]
    if formula.kind is Kind.CALL and parts[0] == (1.0, 1.0):
        record = FUNCTIONS[formula.name]
        if record.entrywise is not None and len(formula.args) == 1:
            return record.entrywise.slopes
        if record.name == "softthreshold":
            return 0.0, 1.0
    return unknown


def curvatures(tape: Tape, root: Node, leaf: Node, shapes: Shapes) -> Curvatures:
    """Return bounds of the curvature of a number in a leaf, wherever the leaf is.

    Args:
        tape: Where the nodes are.
        root: The number.
        leaf: The variable.
        shapes: Those of the nodes as functions of this leaf alone.
    """
    found, quadratic = Curvatures(arb(0), arb(0)), None
    ops = Operations(tape)
    for factor, node in terms(root, shapes):
        shape = shapes.of(node)
        if shape.degree is not None and shape.degree <= 2:
            if shape.degree == 2:
                number = node if node.shape == (1, 1) else ops.made("sum", node)
                part = ops.times(tape.given(factor), ops.total(number))
                quadratic = part if quadratic is None else ops.plus(quadratic, part)
            continue
        found = found + _of_term(tape, node, leaf, shapes).times(factor.ball)
    if quadratic is not None:
        found = found + _of_quadratic(tape, quadratic, leaf)
    shape = shapes.of(root)
    low = arb(0) if shape.convex and not found.low > 0 else found.low
    return Curvatures(low, arb(0) if shape.concave and not found.high < 0 else found.high)


def _of_quadratic(tape: Tape, root: Node, leaf: Node) -> Curvatures:
    try:
        hessian = jacobian(tape, gradient(tape, root, leaf, {}), leaf)
    except NoRuleError:
        return NOTHING
    return NOTHING if hessian is None else extreme_curvatures(hessian)


def joint_shape(env: Environment, name: str, variables: Sequence[str]) -> Shape | None:
    """Return what the formula of a number tells of it as a function of some variables together; None: nothing.

    Args:
        env: What names mean.
        name: Of the number.
        variables: Which.
    """
    tape = Tape(replace(env, notes=Notes(deadline=env.notes.deadline)))
    try:
        root = tape.build(Expr(Kind.NAME, _HERE, name=name), {})
    except (OutsideClaimError, UndifferentiableError, LimitError):
        return None
    return Shapes(frozenset(tape.base.variables[variable].number for variable in variables)).of(root)


def extreme_curvatures(hessian: ct.Ball) -> Curvatures:
    """Return the smallest and the largest eigenvalue of the symmetric part of a matrix."""
    middle = ct.scale(arb(0.5), ct.add(hessian, ct.transpose(hessian)))
    if not middle.is_finite:
        return NOTHING
    values = ct.eigenvalues_symmetric(middle)
    return Curvatures(values[0], values[-1])


def _of_term(tape: Tape, node: Node, leaf: Node, shapes: Shapes) -> Curvatures:
    shape = shapes.of(node)
    known = Curvatures(arb(0) if shape.convex else _MINUS, arb(0) if shape.concave else _PLUS)
    finer = _of_state(tape, node, leaf) if node.operation == MINIMUM else _of_entries(tape, node, leaf, shapes)
    low = known.low if not finer.low > known.low else finer.low
    return Curvatures(low, known.high if not finer.high < known.high else finer.high)


def _of_entries(tape: Tape, node: Node, leaf: Node, shapes: Shapes) -> Curvatures:
    """Curvatures of the sum of f of the entries of an affine map, or of squares of such."""
    core, name = node, node.operation
    bends = second_differences("abs" if is_absolute(node) else name)
    if _squares(node) and node.args[0].args:
        core, facts = node.args[0], entrywise_of(node.args[0].operation)
        if facts is not None and facts.sides is not None:
            bends = 0.0, 2.0 * max(map(abs, facts.sides)) ** 2
    if len(core.args) != 1 or entrywise_of(core.operation) is None or not shapes.of(core.args[0]).affine:
        return NOTHING
    slopes = jacobian(tape, core.args[0], leaf)
    if slopes is None or not slopes.is_finite:
        return NOTHING
    rows, cols = slopes.shape
    most = ct.spectral_norm(slopes) ** 2
    least = ct.sigma_min(slopes) ** 2 if rows >= cols else arb(0)
    low, high = (arb(bend) if math.isfinite(bend) else arb("inf") * bend for bend in bends)
    return Curvatures(
        _product_of(most, low) if low < 0 else _product_of(least, low),
        _product_of(most, high) if high > 0 else _product_of(least, high),
    )


def _squares(node: Node) -> bool:
    """Whether a node is the square of another, number or entry by entry."""
    if node.operation == "hadamard" or (node.operation == Kind.MULTIPLY and node.is_scalar):
        return node.args[0] is node.args[1]
    exponent = node.args[1].value if node.operation == Kind.POWER and node.is_scalar else None
    return isinstance(exponent, Scalar) and bool(exponent.ball == 2)


def _of_state(tape: Tape, node: Node, leaf: Node) -> Curvatures:
    """Curvatures of V(p) = min over u of f(u) + u'B p + p'C p/2 + ..., f with curvatures between l and h.

    Those of V are C - B'B/l at least and C - B'B/h at most: by the conjugate of f where it is convex.
    """
    image, state = node.image, node.state
    if state is None or image is None:
        return NOTHING
    both, of_leaf = Shapes(frozenset({leaf.number, state.number})), Shapes(frozenset({leaf.number}))
    ops, coupled, alone = Operations(tape), None, Curvatures(arb(0), arb(0))
    of_state = Shapes(frozenset({state.number}))
    for factor, part in terms(image, both):
        number = ops.times(tape.given(factor), ops.total(part if part.shape == (1, 1) else ops.made("sum", part)))
        if of_leaf.moves(part):
            degree = both.of(part).degree
            if degree is None or degree > 2:
                return NOTHING
            coupled = number if coupled is None else ops.plus(coupled, number)
        else:
            alone = alone + curvatures(tape, number, state, of_state)
    if coupled is None:
        return NOTHING
    inner = alone + curvatures(tape, coupled, state, of_state)
    try:
        slope = gradient(tape, coupled, leaf, {})
    except NoRuleError:
        return NOTHING
    own, cross = jacobian(tape, slope, leaf), jacobian(tape, slope, state)
    if own is None or cross is None or not (own.is_finite and cross.is_finite) or not inner.low >= 0:
        return NOTHING
    ends = extreme_curvatures(own)
    most = ct.spectral_norm(cross) ** 2
    least = ct.sigma_min(cross) ** 2 if cross.shape[0] <= cross.shape[1] else arb(0)
    low = ends.low - most / inner.low if inner.low > 0 else _MINUS
    high = ends.high - least / inner.high if inner.high.is_finite() and inner.high > 0 else ends.high
    return Curvatures(low, high)


def jacobian(tape: Tape, root: Node, leaf: Node) -> ct.Ball | None:
    """Return the ball of difference quotients of a node by a leaf, entries row after row; None: not known."""
    try:
        return quotients(tape, root, leaf)
    except (NoRuleError, OutsideClaimError):
        return None


def loss_hessian(env: Environment, loss: str, names: Sequence[str]) -> ct.Ball | str:
    """Return the Hessian of a system's loss through its equilibrium, for all values in the balls of an environment.

    With a state Z = F(Z, p), an adjoint V and l = L(Z, p) + <V, F(Z, p)>, of which V is held fixed,

        V = dl/dZ,      dL/dp = dl/dp,      S = dZ/dp = (I - F_Z)^-1 F_p,      H = (I, S)' (l'' in (p, Z)) (I, S)

    Args:
        env: What names mean; the balls of variables are those that the Hessian is bounded on.
        loss: Name of the loss.
        names: Variables; rows and columns go through them in this order, entries row after row.

    Returns:
        The Hessian, or why it is not known: its formulas have no derivatives, the equilibrium may not be the only one,
        or the argument of a corner may be zero.
    """
    env = replace(env, notes=Notes(deadline=env.notes.deadline))
    try:
        found = _loss_hessian(Tape(env), env, loss, names)
    except (NoRuleError, OutsideClaimError, UndifferentiableError, LimitError) as missing:
        return str(missing)
    if isinstance(found, ct.Ball) and (env.notes.unsure or env.notes.estimated):
        return next(iter([*env.notes.unsure, *env.notes.estimated.values()]))
    return found


def _loss_hessian(tape: Tape, env: Environment, loss: str, names: Sequence[str]) -> ct.Ball | str:
    ops, frame, formulas = Operations(tape), tape.base, env.formulas
    assert formulas is not None
    every, state, image = [tape.base.variables[name] for name in names], None, None
    if formulas.state:
        if existence(env).gap is None:
            return "the equilibrium may not be the only one"
        state = tape.state(ar.to_matrix(evaluate(Expr(Kind.NAME, _HERE, name=formulas.state), env)))
        frame = frame.with_state(state)
        image = tape.built(formulas.map, frame)
    root = ops.total(tape.built(Expr(Kind.NAME, _HERE, name=loss), frame))
    if state is None or image is None or state.number not in root.depends:
        return _hessian(tape, root, every, [root])
    every.append(state)
    reverse = Reverse(tape, env.notes)
    unit = Cotangent(env.constant(ct.Ball(env.like.new_ones(1, 1))), 1.0)
    adjoint = Adjoint(image, state, env, reverse.pull).solve(reverse.pull(root, unit, state)).ball
    turned = rearranged_ball(adjoint, lambda entries: entries.reshape(state.shape))
    whole = _hessian(tape, ops.plus(root, ops.dot(tape.given(Matrix(turned, turned.fro)), image)), every, [root, image])
    parts = [jacobian(tape, image, leaf) for leaf in every]
    if isinstance(whole, str) or any(part is None for part in parts):
        return whole if isinstance(whole, str) else _NOT_KNOWN
    *sources, by_state = (part for part in parts if part is not None)
    by_leaves = ct.beside(*sources)
    state_one, leaves_one = (env.constant(ct.identity(order)) for order in (by_state.shape[0], by_leaves.shape[1]))
    moved = ct.matmul(ct.inverse(ct.subtract(state_one, by_state)), by_leaves)
    basis = ct.above(leaves_one, moved)
    return ct.matmul(ct.matmul(ct.transpose(basis), whole), basis)


def _hessian(tape: Tape, root: Node, leaves: Sequence[Node], formulas: Sequence[Node]) -> ct.Ball | str:
    """Return the second derivative of a number by some leaves, or why it is not known.

    Args:
        tape: Where the nodes are.
        root: The number.
        leaves: The leaves.
        formulas: Formulas that must be smooth on the balls: corners have one slope, and nothing jumps.
    """
    moving = {leaf.number for leaf in leaves}
    slopes = _sure_slopes(tape, formulas, moving)
    if isinstance(slopes, str):
        return slopes
    gradients = [gradient(tape, root, leaf, slopes) for leaf in leaves]
    if any(jumps(slope, leaf) for slope in gradients for leaf in leaves):
        return "a derivative may jump"
    if any(node.operation in SOLVED and not moving.isdisjoint(node.depends) for node in reachable([root, *gradients])):
        return _NOT_KNOWN
    blocks = [[jacobian(tape, slope, leaf) for leaf in leaves] for slope in gradients]
    if any(block is None for row in blocks for block in row):
        return _NOT_KNOWN
    return ct.above(*(ct.beside(*(block for block in row if block is not None)) for row in blocks))


def _sure_slopes(tape: Tape, roots: Sequence[Node], moving: set[int]) -> dict[int, Node] | str:
    """Return the slopes of corners, or what is not sure of them; what is zero throughout has the slope zero."""
    found = {}
    for node in reachable(roots):
        if moving.isdisjoint(frozenset[int]().union(*(arg.depends for arg in node.args))):
            continue
        facts = entrywise_of(node.operation)
        if facts is None or facts.kink is Kink.NOWHERE:
            continue
        signs = signs_of(node.args[0])
        if not bool((signs.above | signs.below | signs.zero).all()):
            return f"an argument of {node.operation} may be zero"
        if facts.kink is Kink.CORNER and facts.sides is not None:
            below, above = facts.sides
            found[node.number] = tape.constant(above * signs.above.double() + below * signs.below.double())
    return found
