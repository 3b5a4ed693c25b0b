"""Difference quotients of a map: a ball of matrices S with F(a) - F(b) = S (a - b) for all states of a ball.

The map is a model's, or the rule of a recursion as a function of the steps that it rests on.

Reverse mode with balls around everything that the states of the ball lead to. A function's rule, at such a ball, gives
its derivatives on a convex set, and so their means along a segment; at a corner the quotients lie between the slopes on
its two sides. What jumps must stay on one side.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import torch
from flint import arb

from ntk_deq import certified as ct
from ntk_deq.certified.precise import PreciseMatrix, as_ball
from ntk_deq.certified.precise.matrix import from_rows
from ntk_deq.certified.rounding import add_up, fro_up, multiply_up
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.derivatives.cotangent import Cotangent, times_entries
from ntk_deq.evaluation.derivatives.kinks import EXTREMES, signs_of
from ntk_deq.evaluation.derivatives.nodes import EQUILIBRIUM, MINIMISER, MINIMUM, Node, reachable
from ntk_deq.evaluation.derivatives.reverse import Reverse
from ntk_deq.evaluation.derivatives.rules import Rule
from ntk_deq.evaluation.derivatives.tape import Tape
from ntk_deq.evaluation.environment import Environment, Notes, OutsideClaimError
from ntk_deq.evaluation.floats import UndifferentiableError
from ntk_deq.evaluation.functions.slopes import NoRuleError, rule_of
from ntk_deq.evaluation.quantity import Matrix
from ntk_deq.language.functions import entrywise_of, kink_of
from ntk_deq.language.record import Kink
from ntk_deq.language.recursion import At
from ntk_deq.language.tree import Expr


def state_quotients(env: Environment, states: Matrix) -> ct.Ball | None:
    """Return the ball of S, entries of the state row after row on both sides; None where none is known.

    Args:
        env: What the names of the map mean.
        states: A ball of states.
    """
    inside = replace(env, notes=Notes(deadline=env.notes.deadline))  # of the whole ball, not of the formula
    tape = Tape(inside)
    try:
        state, image = tape.image(states)
        return _quotients(tape, image, state, inside)
    except (NoRuleError, OutsideClaimError, UndifferentiableError):
        return None
    except LimitError:
        if env.precision is not None:
            raise
        return None


def step_quotients(
    expr: Expr, env: Environment, indices: Mapping[str, float], leaves: Collection[At]
) -> dict[At, ct.Ball] | None:
    """Return the balls of S of a recursion's rule by the steps that it rests on; None where they are not known.

    Args:
        expr: The rule.
        env: What names mean; its steps are all that the rule rests on, each a ball. It is used for this alone.
        indices: The value of the rule's letter.
        leaves: Steps that move, all at once; the others are what they are.

    Returns:
        For each of these that the rule changes with S, entries row after row on both sides.
    """
    tape = Tape(env)
    nodes: dict[At, Node] = {}
    for at, value in env.at_steps.items():
        assert not isinstance(value, OutsideClaimError)
        nodes[at] = tape.base.at_steps[at] = tape.state(value) if at in leaves else tape.given(value)
    try:
        image = tape.build(expr, indices)
        moving = {nodes[at].number for at in leaves}
        if any(node.operation in _SOLVED and not moving.isdisjoint(node.depends) for node in reachable([image])):
            return None
        found = {}
        for at in leaves:
            if nodes[at].number in image.depends or _jumps(image, nodes[at]):
                quotients = _quotients(tape, image, nodes[at], env)
                if quotients is None:
                    return None
                found[at] = quotients
    except (NoRuleError, OutsideClaimError, UndifferentiableError, LimitError):
        return None
    return None if env.notes.unsure or env.notes.estimated else found


_SOLVED = frozenset({EQUILIBRIUM, MINIMUM, MINIMISER}) | EXTREMES
"""Nodes through which nothing is said of quotients: corners and repeated eigenvalues do not show in their rules."""


def _quotients(tape: Tape, image: Node, state: Node, env: Environment) -> ct.Ball | None:
    """Return the ball of S of a node by a leaf.

    Raises:
        NoRuleError: A function has none.
    """
    if _jumps(image, state):
        return None
    (rows, cols), (high, wide) = image.shape, state.shape
    if state.number not in image.depends:
        return env.constant(ct.Ball(torch.zeros_like(env.like).expand(rows * cols, high * wide).clone()))
    unit = env.constant(ct.Ball(torch.eye(rows * cols, dtype=env.like.dtype, device=env.like.device)))
    found = Reverse(tape, env.notes, rules=quotient_rule).pull(image, Cotangent(unit, 1.0), state).ball
    return found if found.is_finite else None


def _jumps(image: Node, state: Node) -> bool:
    """Whether something that jumps may do so between two states of the ball."""
    for node in reachable([image]):
        if kink_of(node.operation) is Kink.JUMP and state.number in node.args[0].depends:
            signs = signs_of(node.args[0])
            if not bool((signs.above | signs.below).all()):
                return True
    return False


def quotient_rule(operation: str) -> Rule:
    """Return the rule of an operation by which quotients pass it."""
    facts = entrywise_of(operation)
    if facts is None or facts.sides is None:
        return rule_of(operation)
    below, above = facts.sides

    def between(node: Node, cot: Cotangent, place: int, notes: Notes) -> Cotangent:
        signs = signs_of(node.args[0])
        open_ = ~(signs.above | signs.below | signs.zero)  # what is zero on all of the ball has the quotient 0
        if not bool(open_.any()):
            return rule_of(operation)(node, cot, place, notes)
        middle, half = (above + below) / 2, abs(above - below) / 2
        centre = (above * signs.above + below * signs.below + middle * open_).to(torch.float64)
        if isinstance(cot.ball, PreciseMatrix):
            wider = arb(0, half)
            values = [
                arb(value) + wider if wide else arb(value)
                for value, wide in zip(centre.flatten().tolist(), open_.flatten().tolist(), strict=True)
            ]
            return times_entries(cot, Matrix(as_ball(from_rows(*node.shape, values)), 1.0))
        # A quotient is off by `half` at most, and so is each entry of a cotangent, times that; halving is exact but
        # where it leads below the normal numbers.
        row, spread = centre.reshape(1, -1).to(cot.ball.centre), half * open_.reshape(1, -1).to(cot.ball.centre)
        carried = multiply_up(cot.ball.radius, float(max(abs(below), abs(above))))
        tiny = torch.finfo(cot.ball.dtype).smallest_normal
        off = add_up(fro_up(cot.ball.centre.abs() * spread), carried, tiny)
        return Cotangent(ct.Ball(cot.ball.centre * row, off, cot.ball.reason), cot.scale)

    return between
