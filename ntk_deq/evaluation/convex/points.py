"""A number that is to be least in one of its names, at a ball of points: its value, its slopes, its corners."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from flint import arb
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.precise import PreciseMatrix, as_ball
from ntk_deq.certified.precise.matrix import from_rows
from ntk_deq.certified.rounding import add_up
from ntk_deq.certified.structured import densified
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.convex.curvature import jacobian
from ntk_deq.evaluation.convex.shapes import Shapes
from ntk_deq.evaluation.derivatives import Node
from ntk_deq.evaluation.derivatives.gradient import EXTREMES, gradient, has_kink, is_absolute, is_length
from ntk_deq.evaluation.derivatives.tape import Tape
from ntk_deq.evaluation.environment import Environment, Notes
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.functions import entrywise_of
from ntk_deq.language.tree import Expr

Value = Scalar | Matrix

UNKNOWN = Scalar(sc.nan(), math.inf)
"""A number of which nothing is known."""


@dataclass(frozen=True)
class Problem:
    """A number that is to be least in one of its names.

    Attributes:
        env: What its other names mean.
        body: The number.
        name: What it is to be least in.
        shape: Rows and columns of that; None for a number.
        indices: Values of the step indices in scope.
        plain: Without the penalty that stands for a set.
        links: The comparisons that the set is made of; none for the whole space.
    """

    env: Environment
    body: Expr
    name: str
    shape: tuple[int, int] | None
    indices: Mapping[str, float] = field(default_factory=dict)
    plain: Expr | None = None
    links: tuple[Expr, ...] = ()

    @property
    def size(self) -> int:
        """How many numbers are looked for."""
        return 1 if self.shape is None else self.shape[0] * self.shape[1]

    @property
    def anywhere(self) -> Value:
        """The ball of all points."""
        return self.valued([arb(0)] * self.size, math.inf)

    def valued(self, numbers: Sequence[arb], radius: float = 0.0) -> Value:
        """Return the ball of a radius around some numbers as a value of the name."""
        return as_value(self.env, numbers, self.shape, radius)


def as_value(
    env: Environment, numbers: Sequence[arb], shape: tuple[int, int] | None, radius: float = 0.0
) -> Scalar | Matrix:
    """Return numbers as a value of an environment: a number, or a matrix row after row."""
    if shape is None:
        return Scalar(numbers[0] + sc.with_radius(0.0, radius), abs(float(numbers[0].mid())))
    if env.precision is not None:
        spread = sc.with_radius(0.0, radius)
        precise = as_ball(from_rows(*shape, [number + spread for number in numbers]))
        return Matrix(precise, sc.upper(ct.frobenius(precise)))
    centre = torch.tensor([float(number.mid()) for number in numbers], dtype=torch.float64).reshape(shape)
    off = [sc.upper(abs(number - arb(kept))) for number, kept in zip(numbers, centre.flatten().tolist(), strict=True)]
    wide = add_up(radius, *off) if any(off) else radius
    ball = ct.Ball(centre.to(env.like), wide)
    return Matrix(ball, ball.fro)


def numbers_of(value: Value) -> list[arb]:
    """Return the entries of a value, row after row, each as a ball."""
    return [value.ball] if isinstance(value, Scalar) else entries_of(value.ball)


def entries_of(ball: ct.Ball) -> list[arb]:
    """Return the entries of a matrix, row after row, each as a ball."""
    if isinstance(ball, PreciseMatrix):
        return list(ball.flat)
    dense = densified(ball)
    return [sc.with_radius(entry, dense.radius) for entry in dense.work.flatten().tolist()]


@dataclass
class Contact:
    """A corner at which the minimiser is taken to be.

    Attributes:
        node: Number of the node of the function.
        places: Which entries of its argument.
        slopes: The slopes there.
    """

    node: int
    places: list[int]
    slopes: list[arb]


class Local:
    """A number as a function of a leaf of a tape, at the ball of values of the leaf.

    Args:
        tape: The tape.
        root: The number.
        leaf: The leaf.
    """

    def __init__(self, tape: Tape, root: Node, leaf: Node) -> None:
        self.tape, self.root, self.leaf = tape, root, leaf
        self.shapes = Shapes(frozenset({leaf.number}))
        moving, self._inner = {leaf.number}, set[int]()
        parts = _parts(root)
        for node, inside in parts[::-1]:
            if leaf.number in node.depends and any(child.number in moving for child in _children(node)):
                moving.add(node.number)
            if inside:
                self._inner.add(node.number)
        self.kinks = [n for n, _ in parts if n.number in moving and n is not leaf and (has_kink(n) or is_length(n))]

    @property
    def value(self) -> Scalar:
        """The number."""
        return ar.to_scalar(self.root.value)

    def node(self, number: int) -> Node:
        """Return the node of a function with a kink."""
        return next(node for node in self.kinks if node.number == number)

    def holds(self, node: Node) -> bool:
        """Whether a minimiser can be held at the kink of a function: it is one of affine maps."""
        return node.number not in self._inner and all(self.shapes.of(arg).affine for arg in node.args)

    def arguments(self, node: Node) -> list[arb]:
        """Return the entries of what a function with a kink is taken of."""
        if node.operation in EXTREMES and len(node.args) > 1:
            return [ar.to_scalar(arg.value).ball for arg in node.args]
        return numbers_of(node.args[0].value)

    def contacts(self, near: float) -> list[Contact]:
        """Return the corners that are so close, relative to the point, that the minimiser may be at them."""
        found = []
        size = max(1.0, max((abs(float(x.mid())) for x in numbers_of(self.leaf.value)), default=1.0))
        for node in self.kinks:
            if not self.holds(node):
                continue
            entries = [float(x.mid()) for x in self.arguments(node)]
            close = near * max(size, *map(abs, entries))
            if node.operation in EXTREMES:
                best = max(entries) if node.operation == "max" else min(entries)
                places = [k for k, x in enumerate(entries) if abs(x - best) <= close]
                if len(places) > 1:
                    found.append(Contact(node.number, places, [arb(1) / len(places)] * len(places)))
            elif is_length(node):
                if math.hypot(*entries) <= near * size:
                    found.append(Contact(node.number, list(range(len(entries))), [arb(0)] * len(entries)))
            else:
                below, above = sides(node)
                places = [k for k, x in enumerate(entries) if abs(x) <= near * size]
                if places:
                    found.append(Contact(node.number, places, [arb(below + above) / 2] * len(places)))
        return found

    def slopes(self, contacts: Sequence[Contact]) -> dict[int, Node]:
        """Return the slopes of all functions with kinks: chosen at contacts, else as the signs are, or an interval."""
        chosen: dict[int, dict[int, arb]] = {}
        for contact in contacts:
            chosen.setdefault(contact.node, {}).update(zip(contact.places, contact.slopes, strict=True))
        found = {}
        for node in self.kinks:
            values = self.slopes_of(node, chosen.get(node.number, {}))
            if values is None:
                continue
            extremes = node.operation in EXTREMES
            shape: tuple[int, int] | None = (len(values), 1) if extremes and len(node.args) > 1 else node.args[0].shape
            if node.args[0].is_scalar and not (extremes and len(node.args) > 1):
                shape = None
            value = as_value(self.tape.base.env, values, shape)
            found[node.number] = self.tape.state(value)
        return found

    def slopes_of(self, node: Node, picked: Mapping[int, arb]) -> list[arb] | None:
        """Return the slopes of one function with a kink; None for a length that is not zero, which has a gradient."""
        entries = self.arguments(node)
        if node.operation in EXTREMES:
            sign = 1 if node.operation == "max" else -1
            entries = [sign * x for x in entries]
            if picked:
                known = all(any(bool(x < entries[k]) for k in picked) for p, x in enumerate(entries) if p not in picked)
                if known:
                    return [picked.get(p, arb(0)) for p in range(len(entries))]
            rivals = [p for p, x in enumerate(entries) if not any(bool(y > x) for y in entries)]
            if len(rivals) == 1:
                return [arb(int(p == rivals[0])) for p in range(len(entries))]
            return [arb(0.5, 0.5) if p in rivals else arb(0) for p in range(len(entries))]
        if is_length(node):
            if picked:
                return [picked[p] for p in range(len(entries))]
            size = sum((x * x for x in entries), arb(0))
            return None if size > 0 else [arb(0, 1)] * len(entries)
        below, above = sides(node)
        slopes = []
        for place, x in enumerate(entries):
            if place in picked:
                slopes.append(picked[place])
            elif x > 0 or x < 0:
                slopes.append(arb(above if x > 0 else below))
            else:
                slopes.append(arb((below + above) / 2, abs(above - below) / 2))
        return slopes

    def slope(self, contacts: Sequence[Contact]) -> tuple[Node, dict[int, Node]]:
        """Return the node of a subgradient, and those of the slopes in it."""
        slopes = self.slopes(contacts)
        return gradient(self.tape, self.root, self.leaf, slopes), slopes

    def met(self, contact: Contact) -> tuple[ct.Ball, list[arb]] | None:
        """Return the rows of the affine maps that are zero at a contact, and what they are here."""
        node = self.node(contact.node)
        entries = self.arguments(node)
        if node.operation in EXTREMES and len(node.args) > 1:
            parts = [jacobian(self.tape, arg, self.leaf) for arg in node.args]
            if any(part is None for part in parts):
                return None
            rows = ct.above(*[part for part in parts if part is not None])
        else:
            known = jacobian(self.tape, node.args[0], self.leaf)
            if known is None:
                return None
            rows = known
        picked = self._picked(rows, contact.places)
        values = [entries[place] for place in contact.places]
        if node.operation in EXTREMES:  # differences from the first one
            count = len(contact.places)
            minus = torch.cat([-torch.ones(count - 1, 1), torch.eye(count - 1)], dim=1).double()
            constant = self.tape.base.env.constant(ct.Ball(minus))
            return ct.matmul(constant, picked), [value - values[0] for value in values[1:]]
        return picked, values

    def columns(self, by: ct.Ball, contact: Contact) -> ct.Ball:
        """Return those of a derivative by the slopes of a function that belong to a contact; as in `met`."""
        unit = torch.eye(by.shape[1], dtype=torch.float64)[:, contact.places]
        if self.node(contact.node).operation in EXTREMES:
            unit = unit[:, 1:] - unit[:, :1]
        return ct.matmul(by, self.tape.base.env.constant(ct.Ball(unit)))

    def _picked(self, rows: ct.Ball, places: Sequence[int]) -> ct.Ball:
        unit = torch.eye(rows.shape[0], dtype=torch.float64)[list(places)]
        return ct.matmul(self.tape.base.env.constant(ct.Ball(unit)), rows)


def _children(node: Node) -> tuple[Node, ...]:
    """Return what a node moves with; a minimum moves as what is least does where it is reached."""
    return node.args if node.reached is None else (node.reached,)


def _parts(root: Node) -> list[tuple[Node, bool]]:
    """Return the nodes that a formula moves with, the latest first, and whether they are inside of a minimum."""
    found: dict[int, tuple[Node, bool]] = {}
    waiting = [(root, False)]
    while waiting:
        node, inside = waiting.pop()
        if node.number in found and (found[node.number][1] or not inside):
            continue
        found[node.number] = node, inside
        waiting += [(child, inside or node.reached is not None) for child in _children(node)]
    return [found[number] for number in sorted(found, reverse=True)]


class At(Local):
    """A problem at a ball of points.

    Args:
        problem: The problem.
        value: The ball.
    """

    def __init__(self, problem: Problem, value: Value) -> None:
        env = problem.env
        self.notes = Notes(deadline=env.notes.deadline, estimated=env.notes.estimated)
        inside = replace(env, variables={**env.variables, problem.name: value}, notes=self.notes, cache=dict(env.cache))
        tape = Tape(inside, env)
        root = tape.build(problem.body, problem.indices)
        super().__init__(tape, root, tape.base.variables[problem.name])


def sides(node: Node) -> tuple[float, float]:
    """Return the slopes below and above zero of a function with a corner there."""
    if is_absolute(node):
        return -1.0, 1.0
    facts = entrywise_of(node.operation)
    assert facts is not None
    assert facts.sides is not None
    return float(facts.sides[0]), float(facts.sides[1])


def floats_of(ball: ct.Ball) -> Tensor:
    """Return the centre of a matrix in floats."""
    return ball.approximate if isinstance(ball, PreciseMatrix) else ball.work


def slack(node: Node, contact: Contact) -> arb:
    """Return how far the slopes of a contact are from the end of what is allowed."""
    slopes = contact.slopes
    if node.operation in EXTREMES:
        slopes[0] = 1 - sum(slopes[1:], arb(0))
        return ct.minimum(*slopes) / max(1, len(slopes) - 1)
    if is_length(node):
        return 1 - sum((s * s for s in slopes), arb(0)).sqrt()  # of exact numbers
    low, high = sorted(sides(node))
    return ct.minimum(*(end for s in slopes for end in (s - arb(low), arb(high) - s)))
