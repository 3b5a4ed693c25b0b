"""Derivatives of formulas: reverse mode in balls, with automatic differentiation beside it.

And difference quotients of a map: a ball of matrices S with F(a) - F(b) = S (a - b) for all states of a ball. The map
is a model's, or the rule of a recursion as a function of the steps that it rests on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import torch
from flint import arb
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.dense import no_information
from ntk_deq.certified.inversion import approximate_inverse, identity_defect, size_up
from ntk_deq.certified.precise import PreciseMatrix, as_ball, precise
from ntk_deq.certified.precise.matrix import from_rows
from ntk_deq.certified.rounding import add_up, fro_up, multiply_up
from ntk_deq.equilibrium import solve_fixed_point
from ntk_deq.equilibrium.slopes import banach_bound
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.derivatives import (
    EQUILIBRIUM,
    MINIMISER,
    MINIMUM,
    Cotangent,
    Node,
    NoRuleError,
    Rule,
    plus,
    reachable,
    signs_of,
    times_entries,
)
from ntk_deq.evaluation.derivatives.tape import Tape
from ntk_deq.evaluation.environment import Environment, Notes, OutsideClaimError
from ntk_deq.evaluation.equilibria import tensor_names
from ntk_deq.evaluation.existence import contraction_factor
from ntk_deq.evaluation.floats import SOLVER, UndifferentiableError, tensor_map
from ntk_deq.evaluation.functions.spectra import EXTREMES
from ntk_deq.evaluation.functions.twins import IN_FLOATS, rule_of
from ntk_deq.evaluation.quantity import Matrix
from ntk_deq.language.functions import entrywise_of, kink_of
from ntk_deq.language.record import Kink
from ntk_deq.language.recursion import At
from ntk_deq.language.tree import Expr, Kind

DENSE = 256
"""Up to this many entries of the state J is written out: a product of such matrices takes a few milliseconds."""

PRECISE = 64
"""Up to this many entries it is written out in arb: the inverse takes some 30 ms."""

_AMPLE = 16.0
# A bound 1/(1 - q) below this is good enough; above it, an inverse of I - J can give a far better one.

_ROWWISE = (str(Kind.NEGATE), str(Kind.ADD), str(Kind.SUBTRACT), "hadamard")

Pull = Callable[[Node, Cotangent, Node], Cotangent]


class Adjoint:
    """The adjoint problems of one equilibrium.

    Args:
        image: The map's value at the state.
        state: The state in the map.
        env: The environment of both.
        pull: Reverse mode in balls: from a node and its cotangents to those of a leaf.
    """

    def __init__(self, image: Node, state: Node, env: Environment, pull: Pull) -> None:
        self._image, self._state, self._env, self._pull = image, state, env, pull
        value = state.dense()
        self._shape, self._like = value.shape, value.centre
        self._entries = self._like.numel()
        self._depends = state.number in image.depends
        q = contraction_factor(env).ball
        self._q = sc.upper(q) if q.is_finite() else math.inf
        self._known = value.is_finite
        self._jacobian: ct.Ball | None = None
        self._inverse: Tensor | None = None
        self._gain = banach_bound(1.0, self._q) if self._known else math.inf
        if self._known and self._depends and self._entries <= DENSE:
            self._write_out()

    def solve(self, cot: Cotangent) -> Cotangent:
        """Return V = W + J'V for each cotangent W of the equilibrium."""
        if not self._depends:
            return cot
        if not (self._gain < math.inf and cot.ball.is_finite):
            reason = cot.ball.reason or (
                "no inverse of I - J is proved" if self._known else "the equilibrium is not known"
            )
            return Cotangent(no_information(cot.ball, *cot.ball.shape, reason), math.inf)
        found = self._solve_float(cot.ball.work).to(cot.ball.centre.dtype)
        candidate = ct.Ball(found)
        step = ct.add(cot.ball, self._apply(candidate))
        residual = ct.subtract(step, candidate)
        radius = multiply_up(add_up(residual.fro, residual.radius), self._gain)
        return Cotangent(ct.Ball(found, radius, residual.reason), max(cot.scale, candidate.fro))

    def _apply(self, candidate: ct.Ball) -> ct.Ball:
        """Return J'V in balls."""
        if self._jacobian is not None:
            return ct.matmul(candidate, self._jacobian)
        return self._pull(self._image, Cotangent(candidate, candidate.fro), self._state).ball

    def _write_out(self) -> None:
        """Write J down, row k the cotangent of the k-th entry of the map, and invert I - J in floats."""
        unit = torch.eye(self._entries, dtype=self._like.dtype, device=self._like.device)
        jacobian = self._pull(self._image, Cotangent(ct.Ball(unit), 1.0), self._state).ball
        self._jacobian = jacobian
        system = ct.subtract(ct.Ball(unit), jacobian)
        self._inverse = approximate_inverse(system.work)
        if self._inverse is None or self._gain <= _AMPLE:
            return
        inverse = ct.Ball(self._inverse)
        system = ct.Ball(system.work, system.radius, system.reason)
        self._gain = min(self._gain, banach_bound(inverse.norm2, size_up(identity_defect(inverse, system))))

    def _solve_float(self, forcing: Tensor) -> Tensor:
        """Return an approximate solution, R x entries, in float64."""
        if self._inverse is not None and self._jacobian is not None:
            jacobian = self._jacobian.work
            found = forcing @ self._inverse
            return found + (forcing + found @ jacobian - found) @ self._inverse
        rows = forcing.reshape(-1, *self._shape)
        filled = (rows != 0).any(dim=2)
        if rows.shape[0] > 1 and rowwise(self._image, self._state) and bool((filled.sum(dim=0) <= 1).all()):
            # Rows of the state do not mix, and no two cotangents meet in one: all are solved for together.
            joint = self._iterate(rows.sum(dim=0, keepdim=True))
            return (joint * filled.unsqueeze(2)).reshape(forcing.shape)
        return self._iterate(rows).reshape(forcing.shape)

    def _iterate(self, forcing: Tensor) -> Tensor:
        names = tensor_names(self._env)
        like = names.like.to(forcing.dtype)
        variables = {key: value.to(forcing.dtype) for key, value in names.variables.items()}
        names = dataclasses.replace(names, variables=variables, like=like)

        def image(state: Tensor) -> Tensor:
            return tensor_map(names, state)

        transposed = _transposed_derivative(image, self._like.to(forcing.dtype), count=forcing.shape[0])
        return solve_fixed_point(
            lambda v: forcing + transposed(v),
            torch.zeros_like(forcing),
            solver=SOLVER,
            contraction=self._q if self._q < 1 else None,
            max_steps=self._env.max_steps,
            raise_on_failure=False,
        ).value


class PreciseAdjoint:
    """The adjoint problems of one equilibrium in arb entries, by a proven inverse of I - J.

    Args:
        image: The map's value at the state.
        state: The state in the map.
        pull: Reverse mode in balls: from a node and its cotangents to those of a leaf.

    Raises:
        LimitError: The state is too large.
    """

    def __init__(self, image: Node, state: Node, pull: Pull) -> None:
        entries = state.shape[0] * state.shape[1]
        if entries > PRECISE:
            raise LimitError(f"an adjoint of {entries} entries is not solved at more than float64's precision")
        self._inverse: ct.Ball | None = None
        if state.number in image.depends:
            unit = as_ball(precise(torch.eye(entries, dtype=torch.float64)))
            jacobian = pull(image, Cotangent(unit, 1.0), state).ball
            self._inverse = ct.inverse(ct.subtract(unit, jacobian))

    def solve(self, cot: Cotangent) -> Cotangent:
        """Return V = W + J'V for each cotangent W of the equilibrium."""
        if self._inverse is None:
            return cot
        found = ct.matmul(cot.ball, self._inverse)
        return Cotangent(found, max(cot.scale, sc.upper(ct.frobenius(found))) if found.is_finite else math.inf)


def _transposed_derivative(
    function: Callable[[Tensor], Tensor], origin: Tensor, *, count: int
) -> Callable[[Tensor], Tensor]:
    """Return V -> J'V for `count` cotangents, with J the derivative of a function at a point, in floats."""
    if count > 1:
        pull = torch.func.vjp(function, origin)[1]
        return torch.func.vmap(lambda v: pull(v)[0])
    # The same by autograd: the first use of torch.func imports a compiler, which takes a second.
    point = origin.detach().requires_grad_()
    with torch.enable_grad():
        value = function(point)

    def transposed(v: Tensor) -> Tensor:
        with torch.enable_grad():
            total = (value * v[0]).sum()
        return torch.autograd.grad(total, point, retain_graph=True)[0][None]

    return transposed


def rowwise(node: Node, state: Node) -> bool:
    """Return whether row i of a quantity certainly depends on row i of the state only."""
    if node is state:
        return True
    moving = [arg for arg in node.args if state.number in arg.depends]
    if node.operation == str(Kind.MULTIPLY):
        # A scalar or a matrix on the other side: from the right any, from the left a scalar.
        left, right = node.args
        kept = moving == [left] or (moving == [right] and left.is_scalar)
    elif node.operation == str(Kind.DIVIDE):
        kept = moving == [node.args[0]]
    else:
        kept = node.operation in _ROWWISE or entrywise_of(node.operation) is not None
    return kept and all(rowwise(arg, state) for arg in moving)


Seed = tuple[int, int, int]
"""Names a set of cotangents: the differentiated node, and the first and the number of its entries."""


class Reverse:
    """Reverse mode over one tape; adjoints of equilibria are solved once for each set of cotangents.

    Args:
        tape: The nodes.
        notes: Where troubles are recorded.
        rules: Gives the rule of each operation.
    """

    def __init__(self, tape: Tape, notes: Notes, rules: Callable[[str], Rule] = rule_of) -> None:
        self._tape, self._notes, self._rules = tape, notes, rules
        self._adjoints: dict[int, Adjoint | PreciseAdjoint] = {}
        self._solved: dict[tuple[int, Seed], Cotangent] = {}

    def pull(self, root: Node, cot: Cotangent, target: Node, seed: Seed | None = None) -> Cotangent:
        """Return the cotangents of a leaf.

        Args:
            root: The formula; it depends on the leaf.
            cot: The cotangents of its value.
            target: A variable, or the state in a map.
            seed: Names the cotangents, so that adjoints can be kept; None: they are not.

        Raises:
            NoRuleError: A function on the way has no certified rule.
            LimitError: One has none at more than float64's precision, where that is asked for.
        """
        found: dict[int, Cotangent] = {root.number: cot}
        for node in reachable([root]):
            if target.number not in node.depends or node is target or node.number not in found:
                continue
            self._notes.check_time()
            arriving = found.pop(node.number)
            if node.operation == MINIMISER:
                share = self._tape.base.env.providers.moved(self._tape, node, arriving, target)
                found[target.number] = plus(found[target.number], share) if target.number in found else share
                continue
            for place, arg in enumerate(node.args):
                if target.number not in arg.depends:
                    continue
                share = self._share(node, arriving, place, seed)
                found[arg.number] = plus(found[arg.number], share) if arg.number in found else share
        return found[target.number]

    def _share(self, node: Node, cot: Cotangent, place: int, seed: Seed | None) -> Cotangent:
        if node.operation in IN_FLOATS and isinstance(cot.ball, PreciseMatrix):
            raise LimitError(f"the derivative of {node.operation} is not evaluated at more than float64's precision")
        if node.operation != EQUILIBRIUM:
            return self._rules(node.operation)(node, cot, place, self._notes)
        if seed is None:
            return self._adjoint(node).solve(cot)
        key = (node.number, seed)
        if key not in self._solved:
            self._solved[key] = self._adjoint(node).solve(cot)
        return self._solved[key]

    def _adjoint(self, node: Node) -> Adjoint | PreciseAdjoint:
        if node.number not in self._adjoints:
            state, env = self._tape.equilibria[node.number]
            if env.precision is None:
                self._adjoints[node.number] = Adjoint(node.args[0], state, env, self.pull)
            else:
                self._adjoints[node.number] = PreciseAdjoint(node.args[0], state, self.pull)
        return self._adjoints[node.number]


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
        return _sure_quotients(tape, image, state)
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
        if any(node.operation in SOLVED and not moving.isdisjoint(node.depends) for node in reachable([image])):
            return None
        found = {}
        for at in leaves:
            if nodes[at].number in image.depends or jumps(image, nodes[at]):
                slopes = _sure_quotients(tape, image, nodes[at])
                if slopes is None:
                    return None
                found[at] = slopes
    except (NoRuleError, OutsideClaimError, UndifferentiableError, LimitError):
        return None
    return None if env.notes.unsure or env.notes.estimated else found


SOLVED = frozenset({EQUILIBRIUM, MINIMUM, MINIMISER}) | EXTREMES
"""Nodes through which nothing is said of quotients: corners and repeated eigenvalues do not show in their rules."""


def _sure_quotients(tape: Tape, image: Node, state: Node) -> ct.Ball | None:
    """Return the ball of S of a node by a leaf, where nothing jumps and all is known."""
    if jumps(image, state):
        return None
    found = quotients(tape, image, state)
    return found if found.is_finite else None


def quotients(tape: Tape, root: Node, leaf: Node) -> ct.Ball:
    """Return the ball of S of a node by a leaf, entries row after row on both sides.

    Raises:
        NoRuleError: A function has none.
    """
    count, width = (node.shape[0] * node.shape[1] for node in (root, leaf))
    env = tape.base.env
    if leaf.number not in root.depends:
        return env.constant(ct.Ball(env.like.new_zeros(count, width)))
    unit = env.constant(ct.Ball(torch.eye(count, dtype=env.like.dtype, device=env.like.device)))
    return Reverse(tape, env.notes, rules=quotient_rule).pull(root, Cotangent(unit, 1.0), leaf).ball


def jumps(image: Node, state: Node) -> bool:
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
