"""Steps and times: which names carry one, what may stand in the brackets, what a quantifier may range over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ntk_deq.errors import ExpressionError
from ntk_deq.language.hints import hint_for
from ntk_deq.language.shapes import fail
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.language.types import STEP, TIME, Type

_PARTS = (Kind.NUMBER, Kind.NAME, Kind.ADD, Kind.SUBTRACT, Kind.NEGATE)


@dataclass(frozen=True)
class Index:
    """What the index of a run counts, and the words for it.

    Attributes:
        type: Its type in formulas.
        whole: Whether it is a whole number, each followed by a next one.
        word: One value of it.
        many: Several of them.
        parts: What such a value may be made of.
        change: How that changes which carries one.
        extent: How much of it there is, as in "steps to the floor".
        each: What a rate is counted per.
    """

    type: Type
    whole: bool
    word: str
    many: str
    parts: str
    change: str
    extent: str
    each: str


STEPS = Index(STEP, True, "step", "step indices", "integers and step indices", "with the step", "steps", "per step")
TIMES = Index(TIME, False, "time", "times", "numbers and times", "with time", "time", "per unit of time")
INDICES = {index.type: index for index in (STEPS, TIMES)}
"""Indices by their types."""


@dataclass(frozen=True)
class Steps:
    """The rules for steps in one formula; where the index is a time, those for times.

    Attributes:
        environment: Types of all names.
        indexed: Names that may carry a step.
        trajectory: Types of the names that have a value at a step only.
        index: `STEP` or `TIME`.
        any: Whether there is a run, so that a quantifier has something to range over.
        numbers: Whether every step of the run is known, so that a condition may compare it with numbers, and a
            statement be about some step.
    """

    environment: Mapping[str, Type]
    indexed: frozenset[str]
    trajectory: Mapping[str, Type]
    index: Type
    any: bool
    numbers: bool = False

    def check_part(self, node: Expr, *, bracket: bool) -> None:
        """Refuse a node that cannot be part of a step.

        Args:
            node: The node.
            bracket: Whether it stands in Z[...], otherwise behind `with`.
        """
        if bracket and not self._index.whole and node.kind is not Kind.NAME and not _is_zero(node):
            fail(node.span, "a time is 0 or the index alone: gradient-flow has no numbered steps and no next one.")
        if node.kind not in _PARTS:
            fail(node.span, f"a {self._index.word} may be made of {self._index.parts} with + and - only.")

    def check_condition(self, node: Expr) -> None:
        """Refuse what is no condition on steps behind `with`."""
        if node.kind not in (Kind.COMPARE, Kind.AND, Kind.OR, Kind.NOT):
            fail(node.span, f"`with` takes comparisons of {self._index.many}, such as p <= q.")

    def check_quantifier(self, node: Expr, sizes: Iterable[str]) -> None:
        """Refuse a quantifier without a run, and index names that have a meaning already or do not occur."""
        if not self.any:
            fail(node.span, f"`{node.kind}` ranges over the steps of a run, and nothing here has steps.")
        if node.kind is Kind.FOR_SOME and not self.numbers:
            fail(node.span, "`for some` speaks of a run in steps that are all known: of a recursion, or of the map.")
        taken = {*self.environment, *self.trajectory, *sizes}
        used = {child.name for child in node.walk() if child.kind is Kind.NAME}
        for name in node.names:
            if name in taken:
                fail(node.span, f"`{name}` has a meaning already and cannot be a {self.index}.")
            if name not in used:
                fail(node.span, f"`{node.kind} {name}`: `{name}` does not occur in the statement.")

    def step(self, node: Expr, bound: frozenset[str]) -> Type:
        """Return the type of a part of a step; `bound` are the index names in scope."""
        if node.kind is Kind.NUMBER and node.value is not None and node.value.denominator != 1 and self._index.whole:
            fail(node.span, f"a step must be an integer. Got {float(node.value):g}.")
        if node.kind is Kind.NAME and node.name not in bound:
            hint = f"add `for all {node.name}` at the end of the statement"
            if self.trajectory:
                hint += f"; a definition takes its names without a {self._index.word}"
            known = node.name in self.environment or node.name in self.trajectory
            fail(node.span, f"`{node.name}` is no {self.index} here.", None if known else hint)
        return self.index

    def indexed_type(self, node: Expr) -> Type:
        """Return the type of a name at a step."""
        if node.name in self.indexed and node.name in self.environment:
            return self.environment[node.name]
        if node.name in self.trajectory:
            return self.trajectory[node.name]
        if node.name in self.environment:
            carriers = ", ".join(sorted(self.indexed)) or "nothing in this claim"
            fail(
                node.span,
                f"`{node.name}` does not change {self._index.change}.",
                f"what carries a {self._index.word}: {carriers}",
            )
        raise unknown(node, self.indexed or self.environment)

    def check_bare(self, node: Expr) -> None:
        """Refuse a name without a step that has a value at a step only."""
        if node.name in self.trajectory:
            fail(node.span, f"`{node.name}` has a value at a {self._index.word} only.", f"write {node.name}[...]")

    @property
    def _index(self) -> Index:
        return INDICES[self.index]


def unknown(node: Expr, allowed: Iterable[str], what: str = "name") -> ExpressionError:
    """Return the error that a name has no meaning, with the nearest one that has."""
    stop = node.span.start + len(node.name)
    hint = hint_for(node.name, allowed, called=node.kind is Kind.CALL)
    return ExpressionError(f"unknown {what} `{node.name}`.", (node.span.start, stop), hint)


def _is_zero(node: Expr) -> bool:
    return node.kind is Kind.NUMBER and node.value == 0
