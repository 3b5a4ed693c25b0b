"""The formulas of a claim: what they refer to, and the environment of an instance that they are evaluated in.

What they refer to through definitions and the model, and how many operations they are; in balls and exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TypedDict

import torch
from flint import fmpq

from ntk_deq.certified import ball
from ntk_deq.certified.algebraic import UndecidedError
from ntk_deq.certified.algebraic_matrix import ExactMatrix
from ntk_deq.certified.precise import as_ball, precise
from ntk_deq.certified.rounding import add_up, fro_up
from ntk_deq.certified.scalar import with_radius
from ntk_deq.certified.structured import densified
from ntk_deq.claims.claim import Claim
from ntk_deq.evaluation.arithmetic import to_matrix
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.derivatives.derivative import PROVIDERS
from ntk_deq.evaluation.environment import Environment, ModelFormulas, Notes, OutsideClaimError, model_formulas
from ntk_deq.evaluation.equilibria import float_centre
from ntk_deq.evaluation.exact import ExactNames
from ntk_deq.evaluation.functions import ExactValue as Value
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.falsify.domains import contains
from ntk_deq.language.application import OPERATORS
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import Expr, Kind

LONGEST, SHORTEST = 5000.0, 20.0
"""Bounds of the default budget of a universal setting, in instances that are scored alone."""

OPERATIONS = 180_000
"""Operations that the default budget comes to, two to four seconds: of short formulas more instances are tried."""

AROUND = 25
"""Operations that everything around a look at an instance is worth."""

DIFFERENTIATING = 2
"""Times that a formula with a derivative is evaluated, about."""

DRAWN_SHARE = 10
"""What part of a budget is spent where data are drawn: instances are larger there, and little may move."""

_AT_POINTS = ("grad", "jac")

_ITERATING = 10  # operations that a step of a run of the map counts as

_MINIMISING = 100  # times that a descent evaluates what it minimises, its derivatives included


_SOLVING = 60  # operations that an equilibrium counts as


class Uses:
    """What formulas refer to, through definitions and the model.

    Attributes:
        names: Names of every kind.
        derivatives: Whether a derivative is taken.
        equilibrium: Whether the equilibrium must exist.
        operations: How many operations they are made of; an equilibrium counts as some.
    """

    def __init__(self, formulas: Sequence[Expr], claim: Claim, model: ModelFormulas | None) -> None:
        self.names: set[str] = set()
        self.derivatives = False
        self.equilibrium = False
        self.operations = 0
        self._lets, self._trains, self._formulas = claim.let, claim.trains, model
        self._recursions = claim.recursions
        self._steps, self._iterated = 0 if claim.run is None else claim.run.steps, False
        for formula in formulas:
            self._visit(formula)

    def _visit(self, expr: Expr) -> None:
        for node in expr.walk():
            self.operations += 1
            self.derivatives |= node.kind is Kind.FUNCTION
            if node.kind is Kind.CALL:
                self.derivatives |= node.name in _AT_POINTS
                if node.name in OPERATORS and node.name not in _AT_POINTS:
                    self.operations += _MINIMISING * sum(1 for _ in node.args[0].walk())
                if node.name == "fixed_point":
                    self._visit_equilibrium()
                elif node.name == "next":
                    self._visit_map()
            elif node.kind is Kind.INDEX:
                if self._trains:
                    self._visit_name(node.name)
                elif node.name in self._recursions:
                    self._visit_recursion(node.name)
                else:
                    self._visit_map()
                    self.operations += 0 if self._iterated else self._steps * _ITERATING
                    self._iterated = True
            elif node.kind is Kind.NAME:
                self._visit_name(node.name)

    def _visit_name(self, name: str) -> None:
        if self._formulas is not None and name == self._formulas.state:
            self._visit_equilibrium()
        if name in self.names:
            return
        self.names.add(name)
        if name in self._lets:
            self._visit(self._lets[name].expr)
        elif self._formulas is not None and name in self._formulas.definitions:
            self._visit(self._formulas.definitions[name])

    def _visit_recursion(self, name: str) -> None:
        """Visit what gives a name at its steps, the rule as often as there are steps."""
        if name in self.names:
            return
        self.names.add(name)
        for (started, _), expr in self._recursions.starts.items():
            if started == name:
                self._visit(expr)
        before = self.operations
        self._visit(self._recursions.rules[name].expr)
        self.operations += (self.operations - before) * max(0, self._steps - 1)

    def _visit_equilibrium(self) -> None:
        if not self.equilibrium:
            self.equilibrium = True
            self.operations += _SOLVING
            self._visit_map()
            assert self._formulas is not None
            for formula in (self._formulas.contraction, self._formulas.monotone):
                if formula is not None:
                    self._visit(formula)

    def _visit_map(self) -> None:
        """Visit the map; the state that stands in it is given, not the equilibrium."""
        assert self._formulas is not None
        for node in self._formulas.map.walk():
            if node.kind is Kind.NAME and node.name != self._formulas.state:
                self._visit_name(node.name)


def default_budget(operations: int, *, differentiable: bool, universal: bool) -> float:
    """Return what the search of one setting may cost by default: two to four seconds, whatever the claim.

    It is counted, not timed, so that a run depends on its seed alone.

    Args:
        operations: How many operations the claim's formulas have.
        differentiable: Whether none of them is a derivative.
        universal: Whether the setting is one, in which everything moves.

    Example:
        >>> [default_budget(35, differentiable=True, universal=universal) for universal in (True, False)]
        [3000.0, 300.0]
    """
    each = AROUND + operations * (1 if differentiable else DIFFERENTIATING)
    budget = min(LONGEST, max(SHORTEST, OPERATIONS / each))
    return budget if universal else budget / DRAWN_SHARE


MOST_NUMBERS = 64
"""Numbers of the largest instance that is decided exactly."""


class Judging(TypedDict, total=False):
    """Where instances are judged, in which precision, and until when on the clock of `time.thread_time`."""

    device: torch.device
    dtype: torch.dtype
    deadline: float | None


def instance_environment(
    claim: Claim,
    instance: Instance,
    *,
    device: torch.device,
    dtype: torch.dtype,
    notes: Notes,
    precision: int | None = None,
) -> Environment:
    """Return the environment of an instance: every float is taken as exact, unless the instance says otherwise.

    With a `precision` the matrices have arb entries; the caller evaluates inside `working_precision`.

    Raises:
        LimitError: A matrix is too large for that precision.
    """
    setting = claim.setting_named(instance.setting)
    if setting.measured:
        notes.estimated["results"] = setting.measured  # numbers that no ball was measured with
    variables: dict[str, Scalar | Matrix] = {}
    for name, tensor in instance.values.items():
        radius = instance.rounded.get(name, 0.0)
        if tensor.ndim == 0:
            number = float(tensor)
            variables[name] = Scalar(with_radius(number, radius), abs(number))
        else:
            moved = tensor.to(device=device, dtype=dtype)
            size = float(torch.linalg.vector_norm(moved))
            free = claim.given.get(name) or setting.free.get(name)
            left = free is not None and dtype != tensor.dtype and not contains(free.domain, moved.double())
            if left or name in instance.rounded:
                # What single precision does not hold stays what it was, known to that precision.
                radius = add_up(radius, fro_up(tensor - moved.to(tensor)))
            known = ball(moved, radius) if precision is None else as_ball(precise(moved, radius))
            variables[name] = Matrix(known, size)
    last_step = 0 if claim.run is None else claim.run.iterates
    return Environment(
        setting.model,
        instance.sizes,
        variables,
        claim.let,
        notes,
        PROVIDERS,
        last_step=last_step,
        precision=precision,
        recursions=claim.recursions,
    )


def exact_names(claim: Claim, instance: Instance, dtype: torch.dtype = torch.float64) -> ExactNames | None:
    """Return the exact meaning of an instance's names; None where it has none: a large one, or values that are balls.

    Args:
        claim: The claim; one with a run is about more than formulas.
        instance: The instance.
        dtype: Type to which values are rounded.
    """
    numbers = sum(value.numel() for value in instance.values.values())
    if claim.run is not None or instance.solved or numbers > MOST_NUMBERS:
        return None
    setting = claim.setting_named(instance.setting)
    values: dict[str, Value] = {letter: fmpq(size) for letter, size in instance.sizes.items()}
    for name, tensor in instance.values.items():
        moved = tensor.to(dtype).to(torch.float64)
        if instance.rounded.get(name, 0.0) > 0 or (name in instance.rounded and not torch.equal(moved, tensor)):
            continue  # its floats stand for what lies near them: what depends on it has no exact value here
        free = claim.given.get(name) or setting.free.get(name)
        if tensor.ndim > 0 and dtype != tensor.dtype and free is not None and not contains(free.domain, moved):
            return None  # rounded out of its domain: a ball, for what it was
        values[name] = exact_value(tensor if tensor.ndim == 0 else moved)
    lets = {name: formula.expr for name, formula in claim.let.items()}
    if setting.model is None:
        return ExactNames(values, lets)
    model = model_formulas(setting.model)

    def near() -> list[list[float]]:
        env = instance_environment(claim, instance, device=torch.device("cpu"), dtype=dtype, notes=Notes())
        try:
            state = densified(to_matrix(evaluate(parse(model.state), env)).ball)
        except OutsideClaimError as outside:  # in balls, and so perhaps only for want of digits
            raise UndecidedError(str(outside)) from outside
        floats = float_centre(state).double()
        if not bool(floats.isfinite().all()):
            raise UndecidedError("an equilibrium that is not known")
        rows: list[list[float]] = floats.tolist()
        return rows

    return ExactNames(values, lets, model, near)


def exact_value(tensor: torch.Tensor) -> Value:
    """Return what a float64 tensor holds, exactly; a vector is one column."""
    entries = [fmpq(*entry.as_integer_ratio()) for entry in tensor.flatten().tolist()]
    if tensor.ndim == 0:
        return entries[0]
    return ExactMatrix(tensor.shape[0], tensor.shape[1] if tensor.ndim == 2 else 1, entries)


def marks(claim: Claim) -> list[float]:
    """Return the numbers at which a claim's formulas may turn, those half-way between two, and one beyond either end.

    These are the numbers that they name, then their sums, products and quotients, and where a side is linear in one
    term (3*a <= 1 + 1e-8), the value of that term.
    """
    written, turns = set[Fraction](), set[Fraction]()
    for formula in (*claim.assume.values(), *claim.let.values(), *claim.conclude.values()):
        written |= {node.value for node in formula.expr.walk() if node.value is not None and abs(node.value) < _FAR}
        _turns(formula.expr, turns)
    found: dict[float, None] = {}
    for named in (written, written | turns):
        ends = sorted({Fraction(0), *named, *(-number for number in named)})
        between = [(a + b) / 2 for a, b in pairwise(ends)]
        numbers = sorted((*between, *ends, 2 * ends[0] - 1, 2 * ends[-1] + 1), key=abs)
        found |= dict.fromkeys(map(float, numbers))
    return list(found)


_FAR = 2**1000  # close to the largest float
_MOST_BITS = 1000  # of a power
_ONE_TERM = (Fraction(0), frozenset({Fraction(1)}))


def _turns(expr: Expr, found: set[Fraction]) -> tuple[Fraction, frozenset[Fraction]]:
    """Return the constant of a sum and the factors of its other terms; add to `found` where each term makes it zero."""
    parts = [_turns(arg, found) for arg in expr.args]
    constant, factors = _ONE_TERM
    match expr.kind, parts:
        case Kind.NUMBER, _ if expr.value is not None and abs(expr.value) < _FAR:
            constant, factors = expr.value, frozenset()
        case Kind.NEGATE, [(a, left)]:
            constant, factors = -a, frozenset(-factor for factor in left)
        case (Kind.ADD, [(a, left), (b, right)]):
            constant, factors = a + b, left | right
        case (Kind.SUBTRACT | Kind.COMPARE, [(a, left), (b, right), *_]):  # of a chain, the first two sides
            constant, factors = a - b, left | frozenset(-factor for factor in right)
        case (Kind.MULTIPLY, [(a, left), (b, right)]) if not (left and right):
            constant, factors = a * b, frozenset([*(b * factor for factor in left), *(a * factor for factor in right)])
        case (Kind.DIVIDE, [(a, left), (b, none)]) if b and not none:
            constant, factors = a / b, frozenset(factor / b for factor in left)
        case (Kind.POWER, [(a, none), (b, others)]) if a and not none | others and b.denominator == 1:
            if abs(b) * max(map(int.bit_length, a.as_integer_ratio())) <= _MOST_BITS:
                constant, factors = a ** int(b), frozenset()
    places = {-constant / factor for factor in factors if factor} if factors else {constant}
    found |= {place for place in places if abs(place) < _FAR}
    return (constant, factors) if abs(constant) < _FAR else _ONE_TERM
