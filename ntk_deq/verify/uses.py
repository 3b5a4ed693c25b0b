"""What the formulas of a claim refer to, through definitions and the model, and how many operations they are."""

from __future__ import annotations

from collections.abc import Sequence

from ntk_deq.claims.claim import Claim
from ntk_deq.evaluation.environment import ModelFormulas
from ntk_deq.language.application import OPERATORS
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
