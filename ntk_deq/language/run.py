"""What changes along the run of a claim, and which definitions need more of the run than its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

from ntk_deq.language.calls import Parameter
from ntk_deq.language.declaration import ModelSignature, Role
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.parser import parse
from ntk_deq.language.shapes import fail
from ntk_deq.language.tree import Expr, Formula, Kind, sort_definitions


class Method(StrEnum):
    """What a run does."""

    FIXED_POINT = "fixed-point"
    GRADIENT_DESCENT = "gradient-descent"
    GRADIENT_FLOW = "gradient-flow"

    @property
    def trains(self) -> bool:
        """Whether the parameters change along the run."""
        return self is not Method.FIXED_POINT


@dataclass(frozen=True)
class Run:
    """What gives a claim its step index.

    `fixed-point`: the state at step l is the l-th iterate of the model's map from zero (Z[0] = 0), l = 0..steps.
    `gradient-descent`: theta[k+1] = theta[k] - step * dL/dtheta, k = 0, 1, ...; the instance is theta[0].
    `gradient-flow`: d theta/dt = -dL/dtheta, t >= 0; the index is a time.

    Attributes:
        method: What the run does.
        steps: Its most steps: of the map, of descent, or of the integrator.
        step: The step size of gradient-descent, a scalar formula of the claim; None for the others.
        until: The loss, as a part of L[0], at which a training run ends.
        horizon: The time at which gradient-flow ends, a scalar formula; None: only `until` and `steps` end it.
        beyond: Whether the claim speaks of steps of gradient-descent after `steps` too.
        judged: Steps, or times, spread over a training run that are judged at most, besides telling ones.
    """

    method: Method
    steps: int
    step: Formula | None = None
    until: Fraction = Fraction(1, 10**6)
    horizon: Formula | None = None
    beyond: bool = True
    judged: int = 48


PATH_LENGTH = "path_length"
"""The length of the trajectory of all parameters, in a claim with a training run: a scalar at a step."""

LOSS = "L"
"""The definition of a model on whose gradient a training run steps."""


def changing_names(
    method: Method | None, model: ModelSignature | None, let: Mapping[str, Formula] | None = None
) -> frozenset[str]:
    """Return the names that may carry an index in a claim.

    In a training run these are the parameters of the model, its state, what is defined by them (in the model or under
    `let`, without an index), and `path_length`. In a fixed-point run it is the state.

    Args:
        method: What the claim's run does, or None where it has no run.
        model: The model of the setting, or None.
        let: The claim's definitions.

    Example:
        >>> from ntk_deq.language.library import model_signature
        >>> sorted(changing_names(Method.GRADIENT_FLOW, model_signature("linear-implicit")))
        ['L', 'U', 'W', 'Z', 'b', 'path_length', 'yhat']
        >>> changing_names(Method.FIXED_POINT, model_signature("linear-implicit"))
        frozenset({'Z'})
    """
    course = Course(method, model)
    let = let or {}
    for name in sort_definitions(let)[0]:
        course.define(name, let[name].expr)
    return frozenset(course.changing)


@dataclass
class Course:
    """What the names of a claim do along its run; definitions are added one by one, each after those it uses.

    Args:
        method: What the run does, or None.
        model: The model of the setting, or None.

    Attributes:
        changing: Names that may carry an index.
        stepped: Definitions that use a step by its index, directly or through others.
        late: Definitions that use more of the run than its start.
    """

    method: Method | None
    model: ModelSignature | None
    changing: set[str] = field(default_factory=set, init=False)
    stepped: set[str] = field(default_factory=set, init=False)
    late: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        """Enter what the model brings along."""
        if self.method is None or self.model is None:
            return
        if self.model.has_equilibrium:
            self.changing.add(self.model.state)
        if self.trains:
            self.changing |= {*self.model.names(Role.PARAMETER), PATH_LENGTH}
            for name, text in self.model.definitions.items():
                self.define(name, _parsed(text))

    @property
    def trains(self) -> bool:
        """Whether the parameters change along the run."""
        return self.method is not None and self.method.trains

    def define(self, name: str, expr: Expr) -> None:
        """Add a definition."""
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
            derives = node.kind is Kind.CALL and Parameter.VARIABLE in FUNCTIONS[node.name].parameters
            if node.kind is Kind.CALL and FUNCTIONS[node.name].needs_model:
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
        return node.kind is Kind.NAME and node.name in self.changing

    def _is_stepped(self, node: Expr) -> bool:
        return node.kind is Kind.INDEX or (node.kind is Kind.NAME and node.name in self.stepped)

    def _late(self, expr: Expr) -> Expr | None:
        """Return the first node for which the start of the run is not enough."""
        for node in expr.walk():
            if node.kind is Kind.FOR_ALL or (node.kind is Kind.NAME and node.name in self.late):
                return node
            if node.kind is Kind.INDEX and (node.args[0].kind is not Kind.NUMBER or node.args[0].value != 0):
                return node
            if node.kind is Kind.INDEX and node.name in self.late:
                return node
        return None


@lru_cache(maxsize=256)
def _parsed(text: str) -> Expr:
    return parse(text)
