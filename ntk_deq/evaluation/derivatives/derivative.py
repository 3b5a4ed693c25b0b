"""`grad` and `jac` of the language: reverse mode in balls, or an estimate where a function has no certified rule.

The value is the exact derivative of the formula, which at a point without kinks is what automatic differentiation
computes up to rounding; `estimate` has that route, as a fallback and as an independent check.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from ntk_deq import certified as ct
from ntk_deq.certified.rounding import add_up, divide_up, multiply_up, root_up
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.balls import bound, evaluate
from ntk_deq.evaluation.derivatives.cotangent import Cotangent, rearranged_ball
from ntk_deq.evaluation.derivatives.estimate import estimated_derivative
from ntk_deq.evaluation.derivatives.kinks import EXTREMES, Kinks, is_repeated, moves_freely
from ntk_deq.evaluation.derivatives.nodes import Node, reachable
from ntk_deq.evaluation.derivatives.reverse import Reverse
from ntk_deq.evaluation.derivatives.tape import Tape
from ntk_deq.evaluation.environment import Environment
from ntk_deq.evaluation.existence import existence
from ntk_deq.evaluation.functions.balls import guard_entries
from ntk_deq.evaluation.functions.slopes import NoRuleError
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.tree import Expr, Kind

CHUNK_ENTRIES = 2**22
"""Entries of the largest cotangent carried at once, 32 MiB; a Jacobian with more rows is computed in parts."""


def derivative(expr: Expr, env: Environment, indices: Mapping[str, float] | None = None) -> Scalar | Matrix:
    """Evaluate `grad(f, x)` (shape of x) or `jac(f, x)` (rows of vec f, columns of vec x).

    Of a function of an argument, x is a point, and whatever the function does not name as its argument is held fixed.

    Args:
        expr: The call.
        env: What the names mean; keeps what later derivatives can use again.
        indices: Values of the step indices in scope.

    Raises:
        OutsideClaimError: An argument of relu, step or abs on the way from x to f is or may be zero; or another
            function has no derivative there.
        UndifferentiableError: f holds a derivative itself.
        LimitError: The Jacobian would be too large.
    """
    inner, name, outside = expr.args[0], expr.args[1].name, None
    if inner.kind is Kind.FUNCTION:
        outside, env = env, bound(inner, evaluate(expr.args[1], env, indices), env)
        inner, name = inner.args[0], inner.names[0]
    if outside is not None or not isinstance(env.derivatives, Derivatives):
        env.derivatives = Derivatives(env, outside)
    try:
        return env.derivatives.of(expr.name, inner, name, indices or {})
    except NoRuleError as missing:
        if env.precision is not None:
            raise LimitError(f"`{expr.name}` of {missing.operation} is an estimate in floats") from missing
        env.notes.estimated.setdefault(missing.operation, missing.reason)
        return estimated_derivative(expr.name, inner, name, env, indices or {})


class Derivatives:
    """The certified derivatives on one instance: the graph, adjoints solved so far, results.

    Args:
        env: What the names mean.
        outside: For a derivative at a point, what they mean outside of the function; else None.
    """

    def __init__(self, env: Environment, outside: Environment | None = None) -> None:
        self._env = env
        self._tape = Tape(env, outside)
        self._reverse = Reverse(self._tape, env.notes)
        self._smooth: set[tuple[int, int]] = set()
        self._results: dict[tuple[str, int, str], Scalar | Matrix] = {}

    def of(self, kind: str, inner: Expr, name: str, indices: Mapping[str, float]) -> Scalar | Matrix:
        """Return `grad` or `jac` of a formula by a variable.

        Raises:
            NoRuleError: A function on the way has no certified rule.
            LimitError: A function on the way is known in floats only, where more digits are asked for.
        """
        root, target = self._tape.build(inner, indices), self._tape.base.variables[name]
        self._note_kinks(root, target)
        key = (kind, root.number, name)
        if key not in self._results:
            value = self._gradient(root, target) if kind == "grad" else self._jacobian(root, target)
            if value.ball.radius == math.inf if isinstance(value, Matrix) else not value.ball.is_finite():
                reason = value.ball.reason if isinstance(value, Matrix) else "an error bound is not finite"
                self._env.notes.doubt(f"a derivative by {name} is not known: {reason}")
            self._results[key] = value
        return self._results[key]

    def _note_kinks(self, root: Node, target: Node) -> None:
        """Stop where an argument of relu, step or abs that the derivative passes is zero for certain, or may be."""
        if (root.number, target.number) in self._smooth:
            return
        states = {number: state for number, (state, _) in self._tape.equilibria.items()}
        several = {state.number for state, env in self._tape.equilibria.values() if existence(env).gap is None}
        met = Kinks(root, target, states, several).worst()
        if met is not None:
            self._env.notes.kink(f"an argument of relu {'is exactly' if met else 'that may be'} zero", certain=met)
        self._note_repeated(root, target)
        self._smooth.add((root.number, target.number))

    def _note_repeated(self, root: Node, target: Node) -> None:
        """Stop where an eigenvalue that the derivative passes is repeated for certain, or may be."""
        unsure = ""
        for node in reachable([root]):
            if node.operation not in EXTREMES or target.number not in node.args[0].depends:
                continue
            repeated = is_repeated(node.args[0].dense(), node.operation)
            if repeated and moves_freely(node.args[0], target):
                self._env.notes.kink(f"the eigenvalue of {node.operation} is repeated", certain=True)
            if repeated is not False:
                unsure = f"the eigenvalue of {node.operation} may be repeated"
        if unsure:
            self._env.notes.kink(unsure, certain=False)

    def _gradient(self, root: Node, target: Node) -> Scalar | Matrix:
        like = self._env.like
        if target.number not in root.depends:
            return self._zeros(target.shape) if not target.is_scalar else Scalar(ct.exact(0), 0.0)
        seed = Cotangent(self._env.constant(ct.Ball(like.new_ones(1, 1))), 1.0)
        cot = self._reverse.pull(root, seed, target, (root.number, 0, 1))
        if target.is_scalar:
            return Scalar(ct.as_scalar(cot.ball), cot.scale)
        return Matrix(rearranged_ball(cot.ball, lambda c: c.reshape(target.shape)), cot.scale)

    def _jacobian(self, root: Node, target: Node) -> Matrix:
        (rows, cols), (high, wide) = root.shape, target.shape
        count, entries = rows * cols, high * wide
        guard_entries(count, entries, "A Jacobian")
        like = self._env.like
        if target.number not in root.depends:
            return self._zeros((count, entries))
        # Row k of the Jacobian is the k-th entry of vec f: column after column, where a cotangent goes row after row.
        order = torch.arange(count, device=like.device).reshape(rows, cols).mT.flatten()
        # The same parts for every variable, so that adjoints are shared.
        largest = max(node.shape[0] * node.shape[1] for node in reachable([root]))
        size = max(1, CHUNK_ENTRIES // largest) if self._env.precision is None else count
        parts = [self._rows(root, target, order, start, size) for start in range(0, count, size)]
        if len(parts) == 1:
            moved = rearranged_ball(parts[0].ball, lambda c: c.reshape(count, high, wide).mT.reshape(count, entries))
            return Matrix(moved, parts[0].scale)
        centre = torch.cat([part.ball.centre for part in parts])
        centre = centre.reshape(count, high, wide).mT.reshape(count, entries)
        radius = _length_up([part.ball.radius for part in parts])
        reason = next((part.ball.reason for part in parts if part.ball.reason), "")
        return Matrix(ct.Ball(centre, radius, reason), _length_up([part.scale for part in parts]))

    def _rows(self, root: Node, target: Node, order: torch.Tensor, start: int, size: int) -> Cotangent:
        """Return the cotangents of the target for some rows of vec f."""
        like = self._env.like
        picked = order[start : start + size]
        unit = like.new_zeros(len(picked), len(order))
        unit[torch.arange(len(picked), device=like.device), picked] = 1.0
        seed = Cotangent(self._env.constant(ct.Ball(unit)), float(len(picked)) ** 0.5)
        return self._reverse.pull(root, seed, target, (root.number, start, len(picked)))

    def _zeros(self, shape: tuple[int, int]) -> Matrix:
        return Matrix(self._env.constant(ct.Ball(self._env.like.new_zeros(shape))), 0.0)


def _length_up(values: list[float]) -> float:
    """Return an upper bound of the root of a sum of squares of nonnegative floats."""
    largest = max(values)
    if len(values) == 1 or largest == 0 or not largest < math.inf:
        return largest
    ratios = [divide_up(value, largest) for value in values]
    return multiply_up(largest, root_up(add_up(*(multiply_up(ratio, ratio) for ratio in ratios))))
