"""Kinds of run, each said once: its keys, its index, its words; what changes along it, what it needs of a start.

A kind of run is a record here and a twin (`ntk_deq.verify.twins`), which computes it, judges along it and searches it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Protocol

from ntk_deq.language.calls import Parameter
from ntk_deq.language.declaration import ModelSignature, Role
from ntk_deq.language.families import defined
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.indices import STEPS, TIMES, Index
from ntk_deq.language.parser import parse
from ntk_deq.language.recursion import PATH_LENGTH
from ntk_deq.language.shapes import fail
from ntk_deq.language.tree import Expr, Formula, Kind, sort_definitions


class KeyValue(StrEnum):
    """What a key of a run takes."""

    COUNT = "a whole number from 1 on"
    PART = "a number between 0 and 1"
    FORMULA = "a number > 0, as a formula of what is known at the start"
    FLAG = "true or false"


@dataclass(frozen=True)
class RunKey:
    """A key of `run` in a claim file; a field of `Run` of the same name holds what it says.

    Attributes:
        name: The key.
        value: What it takes.
        meaning: What it is for, for people.
        default: What it is where it is left out.
        required: Whether it may not be left out.
        most: The largest number of a `COUNT`.
    """

    name: str
    value: KeyValue
    meaning: str
    default: float | bool | None = None
    required: bool = False
    most: int = 0


@dataclass(frozen=True)
class RunKind:
    """What is true of one kind of run.

    Attributes:
        name: The kind as claim files write it, under `method`.
        title: The kind in running text.
        summary: The kind in one line.
        rule: What `method: NAME` means for a name with its index.
        index: What its index counts.
        letter: The letter of the index in reports.
        trains: Whether the parameters of the model change along it, by the gradient of its loss; else only its state.
        costly: Whether each look at an instance is a run of its own, so that few and distinct ones are judged.
        budget: What its `steps` are, in words, with `{steps}` for the number.
        keys: What a claim says of it.
        written: Whether the claim itself says, under `let`, what is done at each step.

    Example:
        >>> [key.name for key in RUN_KINDS["gradient-flow"].keys], str(RUN_KINDS["gradient-flow"])
        (['steps', 'until', 'horizon'], 'gradient-flow')
    """

    name: str
    title: str
    summary: str
    rule: str
    index: Index
    letter: str
    trains: bool
    costly: bool
    budget: str
    keys: tuple[RunKey, ...]
    written: bool = False

    def __str__(self) -> str:
        """Return the name."""
        return self.name

    def takes(self, name: str) -> bool:
        """Whether a claim can give a key."""
        return any(key.name == name for key in self.keys)

    @property
    def formulas(self) -> tuple[str, ...]:
        """The keys that are formulas of what is known at the start."""
        return tuple(key.name for key in self.keys if key.value is KeyValue.FORMULA)


MAX_STEPS = 10_000
MAX_TRAINING_STEPS = 1_000_000
_STEPS = RunKey("steps", KeyValue.COUNT, "Number of steps; the index runs from 0 to it.", required=True, most=MAX_STEPS)
_UNTIL = "The run ends when L is this part of L[0]."

FIXED_POINT = RunKind(
    name="fixed-point",
    title="fixed-point",
    summary="The iteration of the model's map.",
    rule="Z[l] is iterate l of the model's map, Z[0] = 0.",
    index=STEPS,
    letter="l",
    trains=False,
    costly=False,
    budget="{steps} steps",
    keys=(_STEPS,),
)
GRADIENT_DESCENT = RunKind(
    name="gradient-descent",
    title="gradient descent",
    summary="Training in steps.",
    rule="W[k+1] = W[k] - step*grad(L, W)[k] for all parameters W at once.",
    index=STEPS,
    letter="k",
    trains=True,
    costly=True,
    budget="at most {steps} steps",
    keys=(
        RunKey(
            "step",
            KeyValue.FORMULA,
            "The step size, a number > 0 or a formula of what is known at the start.",
            required=True,
        ),
        RunKey("steps", KeyValue.COUNT, "Its most steps.", default=2000, most=MAX_TRAINING_STEPS),
        RunKey("until", KeyValue.PART, _UNTIL, default=1e-6),
        RunKey(
            "beyond",
            KeyValue.FLAG,
            "Whether the claim speaks of later steps too, for which gradient flow then stands; else it ends.",
            default=True,
        ),
    ),
)
GRADIENT_FLOW = RunKind(
    name="gradient-flow",
    title="gradient flow",
    summary="Training in continuous time.",
    rule="dW/dt = -grad(L, W) for all parameters W at once; the index is a time.",
    index=TIMES,
    letter="t",
    trains=True,
    costly=True,
    budget="at most {steps} steps of the integrator",
    keys=(
        RunKey("steps", KeyValue.COUNT, "Most steps of the integrator.", default=10_000, most=MAX_TRAINING_STEPS),
        RunKey("until", KeyValue.PART, _UNTIL, default=1e-10),
        RunKey(
            "horizon",
            KeyValue.FORMULA,
            "The run ends at this time, a number > 0 or a formula of what is known at the start.",
        ),
    ),
)
RECURSION = RunKind(
    name="recursion",
    title="recursion",
    summary="Steps that the claim itself gives.",
    rule="z[k+1] is what `let` says, a formula of steps that are known by then.",
    index=STEPS,
    letter="k",
    trains=False,
    costly=False,
    budget="{steps} steps",
    keys=(_STEPS,),
    written=True,
)

RUN_KINDS = {kind.name: kind for kind in (FIXED_POINT, GRADIENT_DESCENT, GRADIENT_FLOW, RECURSION)}
"""Kinds of run by name."""


class Told(Protocol):
    """A run or its record."""

    @property
    def method(self) -> str:
        """The name of its kind."""

    @property
    def step(self) -> float | None:
        """The step size, or None."""


def told_in(record: Told) -> RunKind:
    """Return the kind of run in whose index a record is told: flow that stands for descent is told in its steps.

    Args:
        record: A run or its record.

    Example:
        >>> from types import SimpleNamespace
        >>> [told_in(SimpleNamespace(method="gradient-flow", step=step)).letter for step in (None, 0.1)]
        ['t', 'k']
    """
    kind = RUN_KINDS.get(record.method, GRADIENT_DESCENT)
    return kind if kind.index.whole or record.step is None else GRADIENT_DESCENT


@dataclass(frozen=True)
class Run:
    """What gives a claim its step index.

    Attributes:
        kind: What the run does.
        steps: Its most steps: of the map, of descent, or of the integrator.
        step: The step size of gradient-descent, a scalar formula of the claim; None for the others.
        until: The loss, as a part of L[0], at which a training run ends.
        horizon: The time at which gradient-flow ends, a scalar formula; None: only `until` and `steps` end it.
        beyond: Whether the claim speaks of steps of gradient-descent after `steps` too.
        judged: Steps, or times, spread over a training run that are judged at most, besides telling ones.
    """

    kind: RunKind
    steps: int
    step: Formula | None = None
    until: Fraction = Fraction(1, 10**6)
    horizon: Formula | None = None
    beyond: bool = True
    judged: int = 48

    @property
    def formulas(self) -> dict[str, Formula]:
        """What is fixed before the run starts, by key."""
        known = ((name, getattr(self, name)) for name in self.kind.formulas)
        return {name: formula for name, formula in known if formula is not None}

    @property
    def iterates(self) -> int:
        """The last step at which the state is an iterate of the model's map."""
        return 0 if self.kind.trains else self.steps


LOSS = "L"
"""The definition of a model on whose gradient a training run steps."""


def changing_names(
    kind: RunKind | None, model: ModelSignature | None, let: Mapping[str, Formula] | None = None
) -> frozenset[str]:
    """Return the names that may carry an index in a claim.

    In a training run these are the parameters of the model, its state, what is defined by them (in the model or under
    `let`, without an index), and `path_length`. In a fixed-point run it is the state.

    Args:
        kind: What the claim's run does, or None where it has no run.
        model: The model of the setting, or None.
        let: The claim's definitions.

    Example:
        >>> from ntk_deq.language.declaration import model_signature
        >>> sorted(changing_names(GRADIENT_FLOW, model_signature("linear-implicit")))
        ['L', 'U', 'W', 'Z', 'b', 'path_length', 'yhat']
        >>> changing_names(FIXED_POINT, model_signature("linear-implicit"))
        frozenset({'Z'})
    """
    course = Course(kind, model)
    let = let or {}
    for name in sort_definitions(let)[0]:
        course.define(name, let[name].expr)
    return frozenset(course.changing)


@dataclass
class Course:
    """What the names of a claim do along its run; definitions are added one by one, each after those it uses.

    Args:
        kind: What the run does, or None.
        model: The model of the setting, or None.
        families: Names whose first brackets take a member, as long as the depth is open.

    Attributes:
        changing: Names that may carry an index.
        stepped: Definitions that use a step by its index, directly or through others.
        late: Definitions that use more of the run than its start.
    """

    kind: RunKind | None
    model: ModelSignature | None
    families: frozenset[str] = frozenset()
    changing: set[str] = field(default_factory=set, init=False)
    stepped: set[str] = field(default_factory=set, init=False)
    late: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        """Enter what the model brings along."""
        if self.kind is None or self.model is None:
            return
        if self.model.has_equilibrium:
            self.changing.add(self.model.state)
        if self.trains:
            self.changing |= {*self.model.names(Role.PARAMETER), PATH_LENGTH}
            for name, text in self.model.definitions.items():
                self.define(name, parse(text))

    @property
    def trains(self) -> bool:
        """Whether the parameters change along the run."""
        return self.kind is not None and self.kind.trains

    def define(self, name: str, expr: Expr) -> None:
        """Add a definition, of a member of a family under the family's name."""
        name = defined(name).name if self.families else name
        if self.trains and any(self._changes(node) for node in expr.walk()):
            self.changing.add(name)
        if any(self._is_stepped(node) for node in expr.walk()):
            self.stepped.add(name)
        if self._late(expr) is not None:
            self.late.add(name)

    def check_start(self, expr: Expr) -> None:
        """Refuse a formula that cannot be evaluated before the run.

        Raises:
            ExpressionError: It uses a step other than [0], or a quantifier over steps.
        """
        node = self._late(expr)
        if node is None:
            return
        if node.kind is Kind.NAME:
            fail(node.span, f"this is fixed before the run, and `{node.name}` needs more of the run than its start.")
        what = "`for all`" if node.kind is Kind.FOR_ALL else f"`{node.name}` at another step than 0"
        fail(node.span, f"this is fixed before the run, when {what} is not known.", "only [0] may be used here")

    def check_derivatives(self, expr: Expr) -> None:
        """Refuse a derivative or an `at` that would have to reach through steps of training to the start.

        The model's map is refused there too: `next(Z[k])` would take the parameters of the start to a state of step k.

        Raises:
            ExpressionError: There is one.
        """
        if not self.trains:
            return
        for node in expr.walk():
            if node.args and node.args[0].kind is Kind.FUNCTION:
                continue  # whatever it does not take as its argument is held fixed
            record = FUNCTIONS.get(node.name) if node.kind is Kind.CALL else None  # none of `prod` over a range
            derives = record is not None and Parameter.VARIABLE in record.parameters
            if record is not None and record.needs_model:
                later = self._late(node.args[0])
                if later is not None:
                    hint = f"name it under `let` without a step, as in `D: {node.name}(...)`, and write D[...]"
                    fail(later.span, f"`{node.name}` would take the parameters of the start to a later step.", hint)
            if not derives and node.kind is not Kind.AT:
                continue
            for part in node.args[0].walk():
                if self._is_stepped(part):
                    called = node.name if derives else "at"
                    hint = f"name it under `let` without a step, as in `g: {called}(...)`, and write g[...]"
                    fail(part.span, f"`{called}` cannot go through a step of training.", hint)

    def _changes(self, node: Expr) -> bool:
        """Whether a node by itself makes what it stands in change: `next` and `fixed_point` use the parameters."""
        if node.kind is Kind.CALL:
            return FUNCTIONS[node.name].needs_model if node.name in FUNCTIONS else False
        return self._is_plain(node) and node.name in self.changing

    def _is_plain(self, node: Expr) -> bool:
        """Whether a node is a name without a step; a member of a family has one in its second brackets."""
        return node.kind is Kind.NAME or (node.kind is Kind.INDEX and self._step(node) is None)

    def _step(self, node: Expr) -> Expr | None:
        """Return the step of a name with brackets, or None for a member without one."""
        if node.name in self.families:
            return node.args[1] if len(node.args) > 1 else None
        return node.args[0]

    def _is_stepped(self, node: Expr) -> bool:
        if node.kind is Kind.INDEX and self._step(node) is not None:
            return True
        return self._is_plain(node) and node.name in self.stepped

    def _late(self, expr: Expr) -> Expr | None:
        """Return the first node for which the start of the run is not enough."""
        for node in expr.walk():
            if node.kind is Kind.FOR_ALL or (self._is_plain(node) and node.name in self.late):
                return node
            step = self._step(node) if node.kind is Kind.INDEX else None
            if step is not None and (step.kind is not Kind.NUMBER or step.value != 0):
                return node
            if node.kind is Kind.INDEX and node.name in self.late:
                return node
        return None
