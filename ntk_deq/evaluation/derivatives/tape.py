"""The graph of a formula: every name followed to its definition, and equal subformulas one node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial

import torch
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.balls import evaluate, is_symmetric
from ntk_deq.evaluation.convex import NEGATED, POINTS, given_name, given_names, has_indicator, objective
from ntk_deq.evaluation.derivatives import (
    CONSTANT,
    EQUILIBRIUM,
    MINIMISER,
    MINIMUM,
    SQUARED_LENGTH,
    STATE,
    VARIABLE,
    Node,
    Value,
)
from ntk_deq.evaluation.environment import Environment, Least, ModelFormulas
from ntk_deq.evaluation.equilibria import iterate_ball
from ntk_deq.evaluation.floats import UndifferentiableError
from ntk_deq.evaluation.functions import whole
from ntk_deq.evaluation.functions.twins import call
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.functions import FUNCTIONS, kink_of
from ntk_deq.language.indices import step_of
from ntk_deq.language.record import Kink, Length
from ntk_deq.language.recursion import At
from ntk_deq.language.shapes import integer_literal
from ntk_deq.language.tree import Expr, Kind, Span, free_names
from ntk_deq.language.written import definition_of, put

_HERE = Span(0, 0)

_UNARY = {Kind.NEGATE: ar.negate, Kind.TRANSPOSE: ar.transpose}


@dataclass(eq=False)
class Frame:
    """What names mean in one part of a formula.

    Attributes:
        env: The environment that values come from.
        variables: The nodes of the variables; inside `at` some are computed from others.
        state: The model's state where it is given (in the map, in `next`), or None: the equilibrium.
        outer: Where a state is given, the frame without it.
        nodes: Nodes of definitions built so far.
        at_steps: Those of recursions, by name and step.
        around: In a function of an argument, the frame outside, in which recursions stand, or None.
    """

    env: Environment
    variables: dict[str, Node]
    state: Node | None = None
    outer: Frame | None = None
    nodes: dict[str, Node] = field(default_factory=dict)
    at_steps: dict[At, Node] = field(default_factory=dict)
    around: Frame | None = None

    @property
    def free(self) -> Frame:
        """The frame in which the model's state is the equilibrium."""
        return self if self.outer is None else self.outer

    def with_state(self, state: Node) -> Frame:
        """Return the frame in which the model's state is a given node."""
        return Frame(self.env, self.variables, state, self.free)


class Tape:
    """The nodes of one environment.

    Args:
        env: The environment.
        outside: For a derivative of a function at a point, the environment outside of the function, in which whatever
            does not name its argument is evaluated and held fixed where it has no node of its own; else None.

    Attributes:
        base: The frame of the environment itself.
        equilibria: For each equilibrium node the state in its map, and the environment.
    """

    def __init__(self, env: Environment, outside: Environment | None = None) -> None:
        self._nodes: dict[tuple[object, ...], Node] = {}
        self._outside = outside
        self._own = env.variables.keys() - (env.variables if outside is None else outside.variables).keys()
        self._indices: Mapping[str, float] = {}
        self.base = Frame(env, {})
        for name, value in env.variables.items():
            self.base.variables[name] = self._leaf(VARIABLE, (name,), partial(_value, value))
        self.equilibria: dict[int, tuple[Node, Environment]] = {}

    def build(self, expr: Expr, indices: Mapping[str, float]) -> Node:
        """Return the node of an expression.

        Args:
            expr: What is differentiated.
            indices: Values of the step indices in scope.

        Raises:
            UndifferentiableError: It holds a derivative or something else that has none.
        """
        self._indices = indices
        return self.built(expr, self.base)

    def image(self, state: Matrix) -> tuple[Node, Node]:
        """Return the nodes of a state and of what the model's map makes of it.

        Args:
            state: The state.
        """
        given = self._leaf(STATE, ("given",), partial(_value, state))
        return given, self.built(self._formulas(self.base).map, self.base.with_state(given))

    def made(self, what: Kind | str, args: tuple[Node, ...], env: Environment | None = None) -> Node:
        """Return the node of an operator or a function of nodes."""
        expr = Expr(what, _HERE) if isinstance(what, Kind) else Expr(Kind.CALL, _HERE, name=what)
        return self._apply(expr, args, env or self.base.env)

    def number(self, value: Fraction | int) -> Node:
        """Return the node of a number."""
        number = Fraction(value)
        return self._leaf(CONSTANT, (number,), lambda: Scalar(sc.exact(number), abs(sc.nearest_float(number))))

    def constant(self, tensor: Tensor) -> Node:
        """Return the node of a constant matrix of floats."""
        key = ("given", *tensor.shape, *tensor.flatten().tolist())
        ball = self.base.env.constant(ct.ball(tensor.to(self.base.env.like)))
        return self._leaf(CONSTANT, key, lambda: Matrix(ball, float(torch.linalg.vector_norm(tensor))))

    def given(self, value: Value) -> Node:
        """Return the node of a value that changes with nothing."""
        return self._leaf(CONSTANT, ("value", len(self._nodes)), lambda: value)

    def state(self, value: Value) -> Node:
        """Return a new leaf that formulas may be differentiated by."""
        return self._leaf(STATE, ("value", len(self._nodes)), lambda: value)

    def _extreme(self, expr: Expr, frame: Frame) -> Node:
        """Return the node of what takes a function to be minimised: a least value, or where it is reached.

        A least value moves as the function does where it is reached, which is held fixed.
        """
        if has_indicator(expr.args[0].args[0]):
            raise UndifferentiableError(f"`{expr.name}` on a set has no derivative here")
        given = {name: self.built(arg, frame) for name, arg in zip(given_names(expr), expr.args[1:], strict=True)}
        given = {
            name: self._as_number(node, frame.env) if name == given_name("mu", expr) else node
            for name, node in given.items()
        }
        variables = {**frame.variables, **given}
        at, indices = sorted((name, node.number) for name, node in variables.items()), dict(self._indices)
        # The rule of a recursion has a minimum of its own at each step.
        key = (expr.name, id(expr.args[0]), *at, *sorted(indices.items()))
        found: list[Least] = []

        def least() -> Least:
            if not found:
                values = {name: node.value for name, node in variables.items()}
                env = replace(frame.env, variables={**frame.env.variables, **values}, cache=dict(frame.env.cache))
                found.append(frame.env.providers.least(expr, env, indices))
            return found[0]

        name = expr.args[0].names[0]
        state = self._leaf(STATE, key, lambda: least()[1])
        image = self.built(objective(expr), Frame(frame.env, {**variables, name: state}, around=frame))
        node = minimiser = self._leaf(CONSTANT, (MINIMISER, *key), lambda: least()[1])
        minimiser.operation, minimiser.depends = MINIMISER, image.depends - state.depends
        if expr.name not in POINTS:
            inner = Frame(frame.env, {**variables, name: minimiser}, around=frame)
            reached = self.built(objective(expr), inner)
            node = self._add((MINIMUM, *key), MINIMUM, (image,), lambda: least()[0])
            node.depends, node.reached = minimiser.depends, reached
        for part in (node, minimiser):
            part.state, part.image = state, image
        if expr.name in NEGATED:
            return self.made(Kind.NEGATE, (node,))
        return node

    def _add(
        self, key: tuple[object, ...], operation: str, args: tuple[Node, ...], compute: Callable[[], Value]
    ) -> Node:
        if key not in self._nodes:
            # What jumps, as step does, is constant wherever it has a derivative at all.
            jumps = kink_of(operation) is Kink.JUMP
            depends = frozenset[int]().union(*(a.depends for a in args if not jumps))
            self._nodes[key] = Node(len(self._nodes), operation, args, depends, compute)
        return self._nodes[key]

    def _leaf(self, operation: str, key: tuple[object, ...], compute: Callable[[], Value]) -> Node:
        node = self._add((operation, *key), operation, (), compute)
        node.depends = frozenset({node.number}) if operation != CONSTANT else node.depends
        return node

    def _operator(self, operation: str, args: tuple[Node, ...], compute: Callable[[], Value]) -> Node:
        return self._add((operation, *(a.number for a in args)), operation, args, compute)

    def built(self, expr: Expr, frame: Frame) -> Node:
        """Return the node of an expression whose names mean what a frame says."""
        if expr.kind is Kind.NUMBER:
            assert expr.value is not None
            return self.number(expr.value)
        if frame is self.base and self._is_fixed(expr):
            return self._fixed(expr)
        if expr.kind is Kind.NAME:
            return self._name(expr.name, frame)
        if expr.kind is Kind.INDEX and expr.name in frame.env.recursions:
            return self._at_step(expr.name, int(step_of(expr.args[0], self._indices)), frame)
        if expr.kind is Kind.INDEX:
            return self._iterate(int(step_of(expr.args[0], self._indices)), frame)
        if expr.kind is Kind.AT:
            return self._at(expr, frame)
        if expr.kind is Kind.CALL and expr.name in ("grad", "jac"):
            raise UndifferentiableError(f"`{expr.name}` inside a derivative: second derivatives are not supported")
        if expr.args and expr.args[0].kind is Kind.FUNCTION:
            return self._extreme(expr, frame)
        if expr.kind is Kind.CALL and expr.name == "fixed_point":
            return self._name(self._formulas(frame).state, frame.free)
        args = tuple(self.built(arg, frame) for arg in expr.args)
        return self._combined(expr, args, frame)

    def _is_fixed(self, expr: Expr) -> bool:
        """Whether a part of a function has no node of its own, as what derives or takes a step, and is held fixed."""
        if self._outside is None or not self._own:
            return False
        takes = bool(expr.args) and expr.args[0].kind is Kind.FUNCTION
        derives = expr.kind is Kind.CALL and (takes or expr.name in ("grad", "jac"))
        steps = self._outside.moments is not None or expr.name in self._outside.recursions
        stepped = expr.kind is Kind.INDEX and steps
        return (derives or stepped) and self._own.isdisjoint(free_names(expr))

    def _fixed(self, expr: Expr) -> Node:
        outside = self._outside
        assert outside is not None
        indices = dict(self._indices)
        return self._leaf(CONSTANT, (id(expr), *indices.items()), lambda: _value(evaluate(expr, outside, indices)))

    def _combined(self, expr: Expr, args: tuple[Node, ...], frame: Frame) -> Node:
        """Return the node of an operator or a call of nodes."""
        definition = definition_of(expr.name, len(args)) if expr.kind is Kind.CALL else None
        if definition is not None:

            def part(node: Expr, parts: Sequence[Node]) -> Node:
                return self._combined(node, self._spread(node.kind, tuple(parts), frame.env), frame)

            numbers = [self._as_number(arg, frame.env) for arg in args[1:]]
            values = dict(zip(definition[0], (args[0], *numbers), strict=True))
            return put(definition[1], values, self.number, part)
        if expr.kind is Kind.CALL and expr.name == "next":
            return self.built(self._formulas(frame).map, frame.with_state(args[0]))
        if expr.kind is Kind.POWER:
            return self._power(args[0], args[1], integer_literal(expr.args[1]), frame.env)
        return self._apply(expr, args, frame.env)

    def _as_number(self, node: Node, env: Environment) -> Node:
        """Return the node of a number, or of a 1 x 1 matrix as one."""
        return node if node.is_scalar else self.made("sum", (node,), env)

    def _spread(self, kind: Kind, args: tuple[Node, ...], env: Environment) -> tuple[Node, ...]:
        """Return two terms as matrices where one of them is: a number is added to every entry."""
        if kind not in (Kind.ADD, Kind.SUBTRACT) or args[0].is_scalar == args[1].is_scalar:
            return args
        rows, cols = args[0 if args[1].is_scalar else 1].shape
        sizes = [self.number(rows).value, self.number(cols).value]
        ones = self._leaf(CONSTANT, ("ones", rows, cols), lambda: _value(call("ones", sizes, env)))
        return tuple(self.made(Kind.MULTIPLY, (arg, ones), env) if arg.is_scalar else arg for arg in args)

    def _apply(self, expr: Expr, args: tuple[Node, ...], env: Environment) -> Node:
        """Return the node of an operator or a function whose value is that of its arguments' values."""
        notes, kind = env.notes, expr.kind
        if kind is Kind.CALL and FUNCTIONS[expr.name].of_symmetric:
            known = is_symmetric(expr.args[0], env)
            return self._operator(
                expr.name,
                args,
                lambda: _value(call(expr.name, [replace(args[0].matrix(), symmetric=known)], env)),
            )
        if kind is Kind.CALL:
            return self._operator(expr.name, args, lambda: _value(call(expr.name, [a.value for a in args], env)))
        if kind in _UNARY:
            return self._operator(str(kind), args, lambda: _value(_UNARY[kind](args[0].value)))
        if kind in ar.BINARY:
            return self._operator(str(kind), args, lambda: _value(ar.BINARY[kind](args[0].value, args[1].value, notes)))
        raise UndifferentiableError(f"`{expr.name or kind}` cannot stand inside a derivative")

    def _power(self, base: Node, exponent: Node, degree: int | None, env: Environment) -> Node:
        """Return a power; a matrix's becomes products, and an even one of a length that of its square.

        The square of a length is differentiable at zero, where the length is not.
        """
        if base.shape != (1, 1):
            return self._matrix_power(base, whole(exponent.value) if degree is None else degree, env)
        length = FUNCTIONS[base.operation].length if base.operation in FUNCTIONS else None
        is_length = length is Length.MATRIX or (length is Length.VECTOR and 1 in base.args[0].shape)
        if is_length and degree is not None and degree > 0 and degree % 2 == 0 and not base.args[0].is_scalar:
            square = self._operator(SQUARED_LENGTH, base.args, lambda: _squared(base))
            return square if degree == 2 else self.made(Kind.POWER, (square, self.number(degree // 2)), env)
        return self.made(Kind.POWER, (base, exponent), env)

    def _matrix_power(self, base: Node, degree: int, env: Environment) -> Node:
        if degree < 0:
            return self._matrix_power(self.made("inv", (base,), env), -degree, env)
        if degree == 0:
            order = base.shape[0]
            return self._leaf(CONSTANT, ("I", order), lambda: _value(call("I", [self.number(order).value], env)))
        if degree == 1:
            return base
        half = self._matrix_power(base, degree // 2, env)
        square = self.made(Kind.MULTIPLY, (half, half), env)
        return self.made(Kind.MULTIPLY, (square, base), env) if degree % 2 else square

    def _name(self, name: str, frame: Frame) -> Node:
        env = frame.env
        if name in self._indices:
            return self.number(Fraction(self._indices[name]))
        if name in frame.variables:
            return frame.variables[name]
        if name in frame.nodes:
            return frame.nodes[name]
        if name in env.sizes:
            return self.number(env.sizes[name])
        if frame.state is not None and name in env.state_free():
            return self._name(name, frame.free)
        if name in env.lets:
            node = self.built(env.lets[name].expr, frame)
        elif name == self._formulas(frame).state:
            node = frame.state if frame.state is not None else self._equilibrium(frame)
        else:
            node = self.built(self._formulas(frame).definitions[name], frame)
        frame.nodes[name] = node
        if frame.state is None:
            self._share(node, name, env)
        return node

    @staticmethod
    def _share(node: Node, name: str, env: Environment) -> None:
        """Let a definition's node take its value from the environment's cache, or put it there."""
        compute = node.compute

        def shared() -> Value:
            if name not in env.cache:
                env.cache[name] = compute()
            return _value(env.cache[name])

        if node.operation not in (VARIABLE, EQUILIBRIUM):  # an equilibrium asks for its name itself
            node.compute = shared

    @staticmethod
    def _formulas(frame: Frame) -> ModelFormulas:
        assert frame.env.formulas is not None  # the type checker of the language knows every name
        return frame.env.formulas

    def _equilibrium(self, frame: Frame) -> Node:
        env, name = frame.env, self._formulas(frame).state
        key = tuple(sorted((variable, node.number) for variable, node in frame.variables.items()))

        def value() -> Value:
            return _value(evaluate(Expr(Kind.NAME, _HERE, name=name), env))

        state = self._leaf(STATE, key, value)
        image = self.built(self._formulas(frame).map, frame.with_state(state))
        node = self._add((EQUILIBRIUM, *key), EQUILIBRIUM, (image,), value)
        node.depends = image.depends - state.depends
        self.equilibria[node.number] = (state, env)
        return node

    def _iterate(self, step: int, frame: Frame) -> Node:
        """Return the state at a step of the fixed-point run."""
        env = frame.env
        node = self._leaf(CONSTANT, ("zero state",), lambda: iterate_ball(env, 0))
        for _ in range(step):
            node = self.built(self._formulas(frame).map, frame.with_state(node))
        return node

    def _at_step(self, name: str, step: int, frame: Frame) -> Node:
        """Return the value of a recursion at a step, through all steps that it rests on."""
        while frame.around is not None:
            frame = frame.around
        around = self._indices
        for at in frame.env.recursions.unfolded(name, step, frame.at_steps):
            expr, self._indices = frame.env.recursions.formula(*at)
            frame.at_steps[at] = self.built(expr, frame)
        self._indices = around
        return frame.at_steps[name, step]

    def _at(self, expr: Expr, frame: Frame) -> Node:
        replaced = {name: self.built(arg, frame) for name, arg in zip(expr.names, expr.args[1:], strict=True)}
        values: dict[str, Value] = {}
        for name, node in replaced.items():
            is_matrix = isinstance(frame.env.variables[name], Matrix)
            values[name] = node.matrix() if is_matrix else ar.to_scalar(node.value)
        inside = Frame(frame.env.replaced(values), {**frame.variables, **replaced})
        return self.built(expr.args[0], inside)


def _value(value: object) -> Value:
    if isinstance(value, Scalar | Matrix):
        return value
    raise UndifferentiableError("a statement has no derivative")


def _squared(length: Node) -> Scalar:
    value = ar.to_scalar(length.value)
    return Scalar(ct.power(value.ball, 2), value.scale * value.scale)
