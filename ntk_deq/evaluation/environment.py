"""The names of one instance: variables, sizes, model quantities, definitions; each evaluated once, when asked for."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, NoReturn, Protocol

import torch
from flint import arb

from ntk_deq.certified import Ball
from ntk_deq.certified.precise import adopt, as_ball
from ntk_deq.errors import NtkDeqError
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar
from ntk_deq.language.declaration import ModelSignature, model_signature
from ntk_deq.language.fixed_point_map import activation_parameter, layer_weight, reaches_modulus
from ntk_deq.language.recursion import NONE, At, Recursions
from ntk_deq.language.rows import typed_model
from ntk_deq.language.tree import Expr, Formula, Kind

Value = Scalar | Matrix | Outcome


@dataclass(frozen=True)
class ModelFormulas:
    """The formulas of a model's signature, typed.

    Attributes:
        state: Name of the state; empty where there is no equilibrium.
        image: The map, or None: there is no equilibrium.
        contraction: A Lipschitz constant of it, or None: none is known.
        definitions: The definitions.
        weight: W of a map that is one layer, act(W z + c) for each sample z, act proximal or the identity.
        parameter: The parameter of act where that is proximal for some values only, with the least and the largest one.
        monotone: The declared m with I - W >= m I, or None.
        local: Whether a fixed point counts that is only known to be the only one near by.
        reached: Whether I - W >= m I by the form of W, whatever the values are.
    """

    state: str
    image: Expr | None
    contraction: Expr | None
    definitions: dict[str, Expr]
    weight: Expr | None = None
    parameter: tuple[Expr, float, float] | None = None
    monotone: Expr | None = None
    local: bool = False
    reached: bool = False

    @property
    def map(self) -> Expr:
        """The map of a model with an equilibrium; the type checker admits states for these alone."""
        assert self.image is not None
        return self.image

    @cached_property
    def read(self) -> frozenset[str]:
        """All names in the formulas."""
        one = (self.image, self.contraction, self.weight, self.monotone, self.parameter and self.parameter[0])
        formulas = [expr for expr in (*one, *self.definitions.values()) if expr is not None]
        return frozenset(node.name for expr in formulas for node in expr.walk() if node.kind is Kind.NAME)

    @property
    def tainted(self) -> set[str]:
        """The state and the names of definitions that depend on it."""
        found = {self.state} - {""}
        for name, expr in self.definitions.items():
            if any(node.name in found for node in expr.walk()):
                found.add(name)
        return found


@cache
def model_formulas(model: str | ModelSignature) -> ModelFormulas:
    """Return the parsed formulas of a model: a declaration, or the name under which one is registered."""
    signature = model_signature(model) if isinstance(model, str) else model
    typed = typed_model(signature)
    weight = parameter = None
    if typed.map is not None:
        parameter = activation_parameter(typed.map, typed.definitions)
        weight = layer_weight(typed.map, signature.state, typed.definitions, shape=signature.state_shape)
    return ModelFormulas(
        signature.state,
        typed.map,
        typed.contraction,
        dict(typed.definitions),
        weight=weight,
        parameter=parameter,
        monotone=typed.monotone,
        local=signature.local,
        reached=weight is not None
        and typed.monotone is not None
        and reaches_modulus(weight, typed.monotone, typed.definitions),
    )


class OutsideClaimError(NtkDeqError):
    """An instance turns out not to be one that the claim speaks of: a derivative at a kink, a division by zero.

    Attributes:
        hypothesis: The implicit hypothesis that fails: `differentiable`, `defined`, `equilibrium` or `monotone`.
        certain: Whether it fails for certain, or only may.
    """

    def __init__(self, hypothesis: str, detail: str, *, certain: bool) -> None:
        super().__init__(detail)
        self.hypothesis = hypothesis
        self.certain = certain


class DeadlineError(NtkDeqError):
    """The time given to a claim has run out in the middle of an instance."""


@dataclass(frozen=True)
class Sides:
    """A comparison of two numbers, evaluated.

    Attributes:
        expr: The comparison.
        indices: The steps or times in scope.
        left: Its left side.
        right: Its right side.
    """

    expr: Expr
    indices: Mapping[str, float]
    left: Scalar
    right: Scalar


LOCAL = "argmin"
"""The estimated operation whose value is a local minimiser: at the one that is meant, all may be otherwise."""


@dataclass
class Notes:
    """What an evaluation came across.

    Attributes:
        unsure: Troubles that leave a result unsure: an unconverged solve, a divisor that may be zero.
        estimated: Operations whose radius is an estimate, each with the reason; they make the evidence `numeric`.
        deadline: When to give up, on the clock of `time.thread_time`, or None.
        nearby: Within which distance an equilibrium is the only one, where that is all that is known; else inf.
        elsewhere: Why the declared modulus is not certain at other values of the variables, if it is not.
        sides: Where the two sides of each comparison are kept for the record of a training run, or None: nobody asks.
    """

    unsure: list[str] = field(default_factory=list)
    estimated: dict[str, str] = field(default_factory=dict)
    deadline: float | None = None
    nearby: float = math.inf
    elsewhere: str = ""
    sides: list[Sides] | None = None

    def check_time(self) -> None:
        """Give up where the deadline has passed.

        Raises:
            DeadlineError: It has.
        """
        if self.deadline is not None and time.thread_time() > self.deadline:
            raise DeadlineError("the time limit ran out")

    def kink(self, detail: str, *, certain: bool) -> NoReturn:
        """Stop: a derivative is asked for where there is, or may be, none."""
        raise OutsideClaimError("differentiable", detail, certain=certain)

    def undefined(self, detail: str, *, certain: bool) -> None:
        """Stop where a formula has certainly no value; go on, with no information, where it only may have none."""
        if certain:
            raise OutsideClaimError("defined", detail, certain=True)
        self.doubt(detail)

    def doubt(self, detail: str) -> None:
        """Keep a reason for being unsure."""
        if detail not in self.unsure:
            self.unsure.append(detail)


class Along(Protocol):
    """The steps or times of a training run, as formulas see them: `ntk_deq.verify.training.Moments`."""

    @property
    def changing(self) -> frozenset[str]:
        """Names that change along the run."""

    @property
    def only(self) -> float | None:
        """An interval to which every quantifier is confined, or None."""

    @property
    def resting(self) -> bool:
        """Whether nothing ever moves."""

    def judged(self, indices: int) -> Sequence[float]:
        """Return the steps over which each of so many indices of a quantifier ranges."""

    def index(self, step: float) -> arb:
        """Return a step index as a number."""

    def has(self, step: float) -> bool:
        """Whether the run is known at a step."""

    def exists(self, step: float) -> bool:
        """Whether a step or time is one of the run, as far as that is known."""

    def environment(self, step: float) -> Environment:
        """Return the environment at a step."""


Least = tuple[Scalar, Scalar | Matrix]
"""The least value of a function, and where it is reached; without information where they are not proven."""


@dataclass(frozen=True)
class Providers:
    """What a formula needs from further up; handed over in one place (`ntk_deq.evaluation.derivatives.derivative`).

    Attributes:
        equilibrium: The model's state on an instance, solved from a start or from zeros.
        iterate: The state at a step of the fixed-point run.
        image: What the model's map makes of a state.
        quotients: A ball of every difference quotient of the map between two states of a ball, or None: there is none.
        derivative: The value of a `grad` or `jac`, with the values of the step indices in scope.
        at_step: The value that a recursion has at a step.
        extreme: The value of what takes a function to be minimised, as `prox` and `argmin`, likewise.
        least: The least value of what it minimises, and where, what it takes beside the function being known by name.
        moved: How a cotangent of a minimiser, a node of a tape, passes to a variable.
    """

    equilibrium: Callable[[Environment, Matrix | None], Matrix]
    iterate: Callable[[Environment, int], Matrix]
    image: Callable[[Environment, Matrix], Matrix]
    quotients: Callable[[Environment, Matrix], Ball | None]
    derivative: Callable[[Expr, Environment, Mapping[str, float]], Scalar | Matrix]
    at_step: Callable[[Environment, str, int], Scalar | Matrix]
    extreme: Callable[[Expr, Environment, Mapping[str, float]], Scalar | Matrix]
    least: Callable[[Expr, Environment, Mapping[str, float]], Least]
    moved: Callable[[Any, Any, Any, Any], Any]


@dataclass
class Environment:
    """Everything that a formula's names can mean on one instance.

    Attributes:
        model: The setting's model, or None.
        sizes: Values of the size letters.
        variables: Free and drawn variables, as exact balls (or balls with a radius inside `at`).
        lets: The claim's definitions.
        notes: Where troubles are recorded; shared by derived environments.
        providers: How states and derivatives come about.
        max_steps: Budget of a fixed-point solve.
        last_step: The last step of the claim's run.
        precision: Bits of every matrix, where its entries are arb; None: floats.
        alone: Whether formulas speak of one equilibrium: not of those at other values of the variables too.
        cache: Values of names that are not variables.
        iterates: The states at steps 0, 1, ... computed so far.
        recursions: What the claim's definitions give step by step.
        at_steps: Their values by name and step, as far as they are known; where one breaks off, why.
        scales: The scales of their formulas, likewise.
        moments: The steps or times of a training run, or None: there is none, or it has not begun.
        origin: At a moment of a training run: the environment of its start, for what does not change along the run.
        met: Comparisons of hypotheses that are true by how variables were computed, with the names of these: the key
            is the hypothesis' name and the place of the comparison in it.
        failing: A hypothesis that is known to fail, or None.
        derivatives: What derivatives computed so far can be used again; a derived environment starts anew.
        per_step: Values of parts of a quantified formula that do not depend on every index in scope, by the part and
            the values of those that it depends on; likewise.
        likely: Where a `for some` was true last, by its identity.
        indexed: Each such part, by its identity, and the indices in it.
    """

    model: ModelSignature | None
    sizes: Mapping[str, int]
    variables: dict[str, Scalar | Matrix]
    lets: Mapping[str, Formula]
    notes: Notes
    providers: Providers
    max_steps: int = 20_000
    last_step: int = 0
    precision: int | None = None
    alone: bool = True
    cache: dict[str, Value] = field(default_factory=dict)
    iterates: list[Matrix] = field(default_factory=list)
    recursions: Recursions = NONE
    at_steps: dict[At, Scalar | Matrix | OutsideClaimError] = field(default_factory=dict)
    scales: dict[At, float] = field(default_factory=dict)
    moments: Along | None = None
    origin: Environment | None = None
    met: Mapping[tuple[str, int], str] = field(default_factory=dict)
    failing: str | None = None
    derivatives: Any = field(default=None, init=False)
    per_step: dict[tuple[int, tuple[float, ...]], Value] = field(default_factory=dict, init=False)
    likely: dict[int, tuple[float, ...]] = field(default_factory=dict, init=False)
    indexed: dict[int, tuple[Expr, tuple[str, ...]]] = field(default_factory=dict, init=False)

    @property
    def like(self) -> torch.Tensor:
        """A tensor with the dtype and device of this instance's matrices."""
        for value in self.variables.values():
            if isinstance(value, Matrix):
                return torch.zeros((), dtype=value.ball.dtype, device=value.ball.device)
        return torch.zeros((), dtype=torch.float64)

    def constant(self, value: Ball) -> Ball:
        """Return a constant matrix as a ball of this environment's kind."""
        return value if self.precision is None else as_ball(adopt(value))

    @property
    def formulas(self) -> ModelFormulas | None:
        """The model's parsed formulas."""
        return None if self.model is None else model_formulas(self.model)

    def replaced(self, values: Mapping[str, Scalar | Matrix]) -> Environment:
        """Return the environment in which some variables have other values; model quantities follow."""
        variables = {**self.variables, **values}
        steps: dict[str, Any] = {"iterates": [], "at_steps": {}, "scales": {}}
        return replace(self, variables=variables, cache={}, origin=None, alone=False, **steps)

    def with_state(self, state: Matrix) -> Environment:
        """Return the environment in which the model's state has the given value (an iterate, not the equilibrium)."""
        assert self.model is not None  # the type checker of the language admits states only where there is one
        keep = {k: v for k, v in self.cache.items() if k in self.state_free()}
        return replace(self, cache={**keep, self.model.state: state}, iterates=[], at_steps={}, scales={})

    def state_free(self) -> set[str]:
        """Names of model definitions that do not depend on the state."""
        assert self.model is not None
        formulas = model_formulas(self.model)
        return set(formulas.definitions) - formulas.tainted
