"""Which hypotheses are equations, and which variables they give: one explicitly, or several jointly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ntk_deq.claims.claim import Claim
from ntk_deq.evaluation.environment import model_formulas
from ntk_deq.evaluation.instance import shape_of
from ntk_deq.evaluation.margins import Part, parts
from ntk_deq.falsify.search import movable
from ntk_deq.falsify.shrink import entry_places
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.symmetry import parity, sign_by_domain
from ntk_deq.language.tree import Expr, Formula, Kind, negated, subtracted, sum_terms, total
from ntk_deq.language.types import SCALAR, Sort, Type
from ntk_deq.verify.equations import Equation, Explicit, Inclusion, Joint, Place, Plan, eigenvalue_in

MOST_EQUATIONS = 64
"""Numbers that one joint system may have to solve for: its Jacobian is written out."""

MOST_ENTRIES = 512
"""Entries of a variable of a joint system."""

_FREE = frozenset({DomainKind.REAL})
_PATTERN = frozenset({DomainKind.SYMMETRIC, DomainKind.SKEW})
_BOUNDED = frozenset({DomainKind.NONNEGATIVE, DomainKind.POSITIVE, DomainKind.INTERVAL, DomainKind.PSD})
_ANY_ENTRIES = _FREE | _BOUNDED - {DomainKind.PSD}
_JOINT = _FREE | _PATTERN | _BOUNDED | {DomainKind.DIAGONAL}


class Equations:
    """The equations among the hypotheses of a claim, in one of its settings.

    Args:
        claim: The claim.
        setting: The setting.

    Attributes:
        free: What equations may be solved for: quantified variables below no distribution.
        position: Where the claim stands.
        found: The equations; none where the claim is about a training run.
    """

    def __init__(self, claim: Claim, setting: Setting) -> None:
        self._claim, self._setting = claim, setting
        self.position = claim.position
        self._rests = _Rests(claim, setting)
        self.found: tuple[Equation, ...] = ()
        self.free: dict[str, Free] = {}
        signs = {sign for f in claim.assume.values() for node in f.expr.walk() for sign in node.operators}
        if "==" in signs and not claim.trains:
            self.free = movable(setting, claim.given, {*setting.free, *claim.given})
            self.found = tuple(equation for equation in self._equations() if equation.names & self.free.keys())

    def order(self, name: str, equations: Sequence[Equation]) -> tuple[bool, int]:
        """Return which variable to solve equations for: one with as many coordinates as there are equations, else few.

        Counted at the largest sizes, so that it is the same variable for all.
        """
        sizes = {letter: span.high for letter, span in self._setting.sizes.items()}
        kind = self.free[name].domain.kind
        rows, cols = shape_at(self.free[name].type, sizes)
        count = rows * cols
        if kind in _PATTERN | {DomainKind.PSD}:
            count = rows * (rows - 1 if kind is DomainKind.SKEW else rows + 1) // 2
        wanted = 0
        for equation in equations:
            high, wide = shape_at(equation.left.type, sizes)
            sign = self.parity(equation.difference) if high == wide > 1 else 0
            wanted += high * (high + sign) // 2 if sign else high * wide
        return count != wanted, count

    def _equations(self) -> Iterator[Equation]:
        for formula in self._claim.assume.values():
            for number, part in enumerate(parts(formula.name, formula.expr)):
                sides = _sides(part)
                if sides is not None:
                    names, derives = self._rests.of(sides)
                    eigenvalue = eigenvalue_in(*sides, self.free, self._claim.let)
                    yield Equation((formula.name, number), *sides, names, derives, eigenvalue)

    def rests_on(self, formula: Formula) -> frozenset[str]:
        """Return the variables that a formula rests on, through definitions and the model."""
        return self._rests.of([formula.expr])[0]

    def plans(self, sizes: Mapping[str, int]) -> Iterator[Plan]:
        """Yield the ways to solve the equations for some sizes, the preferred one first.

        What an equation says explicitly is taken from it. The second way computes only variables that may be any.

        Args:
            sizes: Values of the size letters.
        """
        if not self.found:
            return
        first = _Planner(self, sizes, frozenset(DomainKind)).plan()
        if first.variables:
            yield first
        second = _Planner(self, sizes, _FREE | _PATTERN).plan()
        if second.variables and second != first:
            yield second

    def explicit(self, equation: Equation) -> list[tuple[Free, Expr]]:
        """Return what an equation says explicitly: variables, and what each is equal to."""
        return list({v.name: (v, expr) for v, expr in reversed(list(self._explicit(equation)))}.values())[::-1]

    def _explicit(self, equation: Equation) -> Iterator[tuple[Free, Expr]]:
        for side, other in ((equation.left, equation.right), (equation.right, equation.left)):
            minus = side.kind is Kind.NEGATE
            variable = self._variable(side.args[0] if minus else side)
            if variable is not None and variable.name not in self._rests.of([other])[0] and _like(other, variable.type):
                yield variable, negated(other) if minus else other
        yield from self._of_inclusion(equation)
        terms = [*sum_terms(equation.left, 1), *sum_terms(equation.right, -1)]
        for index, (sign, term) in enumerate(terms):
            variable, rest = self._variable(term), terms[:index] + terms[index + 1 :]
            if variable is None or len(rest) < 2 or not all(_like(t, variable.type) for _, t in rest):
                continue
            if variable.name not in self._rests.of([t for _, t in rest])[0]:
                yield variable, total([(-sign * s, t) for s, t in rest])

    def inclusion(self, equation: Equation) -> Inclusion | None:
        """Return how `g in subdiff(phi, z)` is solved for z and g, where both are free and not in phi."""
        found = equation.inclusion
        if found is None:
            return None
        subgradient, function, point = found
        names = self._variable(point), self._variable(subgradient)
        if None in names or names[0] == names[1]:
            return None
        z, g = (name for name in names if name is not None)
        if {z.name, g.name} & self._rests.of([function])[0] or {z.domain.kind, g.domain.kind} - _ANY_ENTRIES:
            return None
        call = equation.right
        return Inclusion(equation, z, g, (call, subtracted(call.args[1], call)))

    def _of_inclusion(self, equation: Equation) -> Iterator[tuple[Free, Expr]]:
        """Yield what one variable of `g in subdiff(phi, z)` is: z = argmin phi - <g, .>, g = grad phi(z)."""
        found = equation.inclusion
        if found is None:
            return
        subgradient, function, point = found
        rest = self._rests.of([function])[0]
        z, g = self._variable(point), self._variable(subgradient)
        if z is not None and z.name not in rest | self._rests.of([subgradient])[0]:
            body, argument = function.args
            tilted = subtracted(body, _dot(subgradient, argument))
            inside = replace(function, args=(tilted, argument))
            yield z, Expr(Kind.CALL, equation.right.span, (inside,), name="argmin", type=z.type)
        if g is not None and g.name not in rest | self._rests.of([point])[0]:
            yield g, Expr(Kind.CALL, equation.right.span, (function, point), name="grad", type=g.type)

    def _variable(self, expr: Expr) -> Free | None:
        return self.free.get(expr.name) if expr.kind is Kind.NAME else None

    def parity(self, expr: Expr) -> int:
        """Return whether a square formula is symmetric (1) or skew (-1) for certain, else 0."""
        definitions = {name: formula.expr for name, formula in self._claim.let.items()}
        return parity(expr, sign_by_domain(self.free), definitions)


class _Planner:
    """Distributes the equations over the variables of some domains, for some sizes."""

    def __init__(self, equations: Equations, sizes: Mapping[str, int], kinds: frozenset[DomainKind]) -> None:
        self._equations, self._sizes, self._kinds = equations, sizes, kinds
        self._explicit: dict[str, Explicit] = {}
        self._inclusions: list[Inclusion] = []
        self._refused = frozenset[Place]()

    def plan(self) -> Plan:
        rest = self._without_inclusions(self._equations.found)
        rest = [equation for equation in rest if not self._take(equation)]
        systems = self._systems([equation for equation in rest if not equation.derives])
        joint = tuple(found for found in (self._joint(*system) for system in systems) if found is not None)
        computed = {variable.name for system in joint for variable in system.variables} | self._explicit.keys()
        behind = self._names([equation for system in joint for equation in system.equations])
        kept = [
            step
            for step in self._inclusions
            if not step.equation.names & computed and not behind & {variable.name for variable in step.variables}
        ]
        if len(kept) < len(self._inclusions):  # what they give is not what others have computed with
            self._refused = self._refused | {s.equation.place for s in self._inclusions if s not in kept}
            self._explicit, self._inclusions = {}, []
            return self.plan()
        return Plan(joint, self._ordered(), tuple(kept))

    def _without_inclusions(self, found: Sequence[Equation]) -> list[Equation]:
        """Take inclusions that are solved for both of their variables, and return the other equations."""
        rest, taken = [], set[str]()
        for equation in found:
            step = None if equation.place in self._refused else self._equations.inclusion(equation)
            if step is None or taken & equation.names or any(v.domain.kind not in self._kinds for v in step.variables):
                rest.append(equation)
                continue
            taken |= {variable.name for variable in step.variables}
            self._inclusions.append(step)
        return rest

    def _take(self, equation: Equation) -> bool:
        """Take an equation as the explicit one of a variable, if it is one and leads into no circle."""
        ways = [way for way in self._equations.explicit(equation) if way[0].domain.kind in self._kinds]
        for variable, expr in sorted(ways, key=lambda way: _rank(way[0].domain)):
            behind = self._closure(equation.names - {variable.name})
            pattern = variable.domain.kind in _PATTERN | {DomainKind.PSD}
            if any(variable in step.variables for step in self._inclusions):
                continue
            if variable.name in self._explicit or variable.name in behind:
                continue
            if pattern and self._equations.parity(expr) != (-1 if variable.domain.kind is DomainKind.SKEW else 1):
                continue
            formula = Formula(variable.name, "", expr, self._equations.position)
            self._explicit[variable.name] = Explicit(equation, variable, formula)
            return True
        return False

    def _closure(self, names: frozenset[str]) -> frozenset[str]:
        """Return names and all that explicit variables among them rest on."""
        found, queue = set(names), list(names)
        while queue:
            step = self._explicit.get(queue.pop())
            more = (step.equation.names - {step.variable.name} - found) if step is not None else frozenset[str]()
            found |= more
            queue += more
        return frozenset(found)

    def _ordered(self) -> tuple[Explicit, ...]:
        """Return the explicit equations so that each comes after those it uses."""
        depth = {
            name: len(self._closure(step.equation.names - {name}) & self._explicit.keys())
            for name, step in self._explicit.items()
        }
        return tuple(sorted(self._explicit.values(), key=lambda step: depth[step.variable.name]))

    def _systems(self, rest: Sequence[Equation]) -> list[tuple[list[Equation], list[str]]]:
        """Return equations that must be solved together, with the variables to solve for.

        An equation `z == f(z)` is solved for z, another one for a variable of its own size. Systems that touch each
        other's variables are joined; one that has more equations than variables takes further, larger ones.
        """
        systems = []
        for equation in rest:
            names = [name for name in self._candidates([equation]) if self._is_smooth(equation)]
            own = [s.name for s in (equation.left, equation.right) if s.kind is Kind.NAME and s.name in names]
            rows, cols = shape_at(equation.left.type, self._sizes)
            if names and rows * cols <= 2 * MOST_EQUATIONS:
                systems.append(([equation], [(own or names)[0]]))
        while True:
            pair = next(
                (
                    (i, j)
                    for i in range(len(systems))
                    for j in range(len(systems))
                    if i != j and self._names(systems[i][0]) & set(systems[j][1])
                ),
                None,
            )
            if pair is not None:
                first, second = systems[pair[0]], systems[pair[1]]
                systems = [system for k, system in enumerate(systems) if k not in pair]
                systems.append(([*first[0], *second[0]], list(dict.fromkeys([*first[1], *second[1]]))))
                continue
            short = next((system for system in systems if self._lack(*system) > 0), None)
            if short is None:
                return systems
            further = [name for name in self._candidates(short[0]) if name not in short[1]]
            if further:
                short[1].append(further[0])
            else:
                systems.remove(short)

    def _names(self, equations: Sequence[Equation]) -> frozenset[str]:
        return self._closure(frozenset[str]().union(*(equation.names for equation in equations)))

    def _is_smooth(self, equation: Equation) -> bool:
        behind = self._closure(equation.names) & self._explicit.keys()
        return not any(self._explicit[name].equation.derives for name in behind)

    def _candidates(self, equations: Sequence[Equation]) -> list[str]:
        """Return what equations may be solved for, the preferred one first."""
        given = {variable.name for step in self._inclusions for variable in step.variables}
        names = self._names(equations) - self._explicit.keys() - given
        kinds = self._kinds & _JOINT
        free = [v for v in self._equations.free.values() if v.name in names and v.domain.kind in kinds]
        some = [
            v.name for v in free if 0 < math.prod(shape_at(v.type, self._sizes)) <= MOST_ENTRIES and self._places(v)
        ]
        return sorted(some, key=lambda name: self._equations.order(name, equations))

    def _lack(self, equations: Sequence[Equation], variables: Sequence[str]) -> int:
        rows = sum(len(self._rows(equation)) for equation in equations)
        return rows - sum(len(self._places(self._equations.free[name])) for name in variables)

    def _joint(self, equations: Sequence[Equation], variables: Sequence[str]) -> Joint | None:
        """Return the system, unless it is too large."""
        free = tuple(self._equations.free[name] for name in variables)
        joint = Joint(
            tuple(equations),
            tuple(self._rows(equation) for equation in equations),
            free,
            tuple(self._places(variable) for variable in free),
        )
        return joint if sum(map(len, joint.rows)) <= MOST_EQUATIONS else None

    def _rows(self, equation: Equation) -> tuple[int, ...]:
        """Return the entries of left minus right that count, row after row."""
        rows, cols = shape_at(equation.left.type, self._sizes)
        if rows == cols > 1:
            sign = self._equations.parity(equation.difference)
            if sign:
                return tuple(i * cols + j for i in range(rows) for j in range(i + (sign < 0), cols))
        return tuple(range(rows * cols))

    def _places(self, variable: Free) -> tuple[tuple[tuple[int, float], ...], ...]:
        return tuple(entry_places(variable.domain.kind, shape_of(variable.type, self._sizes, name=variable.name)))


@dataclass
class _Rests:
    """What formulas rest on."""

    claim: Claim
    setting: Setting
    known: dict[str, tuple[frozenset[str], bool]] = field(default_factory=dict)

    def of(self, exprs: Sequence[Expr]) -> tuple[frozenset[str], bool]:
        """Return the variables that formulas rest on, and whether a derivative or a replacement stands in them."""
        names: set[str] = set()
        derives = False
        for node in (node for expr in exprs for node in expr.walk()):
            if node.kind is Kind.NAME or node.kind is Kind.INDEX:
                more, inside = self._name(node.name)
                names |= more
                derives |= inside
            derives |= node.kind in (Kind.AT, Kind.FUNCTION) or (
                node.kind is Kind.CALL and node.name in ("grad", "jac")
            )
            if node.kind is Kind.CALL and node.name in ("next", "fixed_point"):
                names |= self._model()
        return frozenset(names), derives

    def _name(self, name: str) -> tuple[frozenset[str], bool]:
        if name not in self.known:
            model = self.setting.model
            if name in self.claim.let:
                self.known[name] = self.of([self.claim.let[name].expr])
            elif model is not None and name not in {v.name for v in model.variables} and name in self._of_model():
                self.known[name] = self._model(), False
            else:
                self.known[name] = frozenset({name}), False
        return self.known[name]

    def _of_model(self) -> set[str]:
        assert self.setting.model is not None
        formulas = model_formulas(self.setting.model)
        return {formulas.state, *formulas.definitions}

    def _model(self) -> frozenset[str]:
        """Return the model's variables: its state rests on all of them."""
        return frozenset(v.name for v in self.setting.model.variables) if self.setting.model else frozenset[str]()


def _sides(part: Part) -> tuple[Expr, Expr] | None:
    """Return the sides of an equation between values at no step; None for anything else."""
    expr, link = part.expr, part.link
    if link is None or expr.operators[link] != "==":
        return None
    left, right = expr.args[link], expr.args[link + 1]
    if any(node.kind in (Kind.INDEX, Kind.FOR_ALL) for side in (left, right) for node in side.walk()):
        return None
    return left, right


def _dot(left: Expr, right: Expr) -> Expr:
    """Return an inner product."""
    scalar = right.type is None or right.type.sort is not Sort.MATRIX
    kind, name = (Kind.MULTIPLY, "") if scalar else (Kind.CALL, "dot")
    return Expr(kind, left.span, (left, right), name=name, type=SCALAR)


def shape_at(kind: Type | None, sizes: Mapping[str, int]) -> tuple[int, int]:
    """Return the rows and columns of a value; those of a number are one."""
    if kind is None or kind.sort is not Sort.MATRIX:
        return 1, 1
    return kind.rows.evaluate(sizes), kind.cols.evaluate(sizes)


def _rank(domain: Domain) -> int:
    """Order domains by how likely a computed value lies in them."""
    kinds = (_FREE, _PATTERN, _BOUNDED)
    return next((rank for rank, group in enumerate(kinds) if domain.kind in group), len(kinds))


def _like(expr: Expr, kind: Type) -> bool:
    return expr.type is not None and expr.type == kind
