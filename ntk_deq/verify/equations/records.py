"""What is known of equations: the sides of one, what it gives, and how those of a claim are solved together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ntk_deq.language.domain import Free
from ntk_deq.language.tree import Expr, Formula, subtracted
from ntk_deq.verify.equations.eigenpairs import Eigenvalue

Place = tuple[str, int]
"""One comparison of a hypothesis: the hypothesis' name, and which of its comparisons."""


@dataclass(frozen=True)
class Equation:
    """A hypothesis, or a part of one, that says that two sides are equal.

    Attributes:
        place: Where it stands.
        left: One side.
        right: The other side.
        names: What it rests on, through definitions and the model.
        derives: Whether it holds a derivative, or a quantity with variables replaced.
        eigenvalue: The eigenvalue whose vector it gives, where it is of that form.
    """

    place: Place
    left: Expr
    right: Expr
    names: frozenset[str]
    derives: bool
    eigenvalue: Eigenvalue | None = None

    @property
    def difference(self) -> Expr:
        """Left minus right."""
        return subtracted(self.left, self.right)


@dataclass(frozen=True)
class Explicit:
    """An equation that says what a variable is.

    Attributes:
        equation: The equation.
        variable: The variable.
        formula: What it is equal to; the variable itself does not stand in it.
    """

    equation: Equation
    variable: Free
    formula: Formula


@dataclass(frozen=True)
class Inclusion:
    """`g in subdiff(phi, z)`, solved for z and g: of v = z + g, as was given, z becomes the resolvent, g the rest.

    Attributes:
        equation: The inclusion.
        point: z.
        subgradient: g.
        formulas: What they become, formulas in the values that were given.
    """

    equation: Equation
    point: Free
    subgradient: Free
    formulas: tuple[Expr, Expr]

    @property
    def variables(self) -> tuple[Free, Free]:
        """Both variables."""
        return self.point, self.subgradient


@dataclass(frozen=True)
class Joint:
    """Equations that are solved together.

    Attributes:
        equations: The equations.
        rows: For each, which entries of its difference count, row after row; a symmetric one has each pair once.
        variables: What is solved for.
        places: For each variable its coordinates: entries, row after row, with signs.
    """

    equations: tuple[Equation, ...]
    rows: tuple[tuple[int, ...], ...]
    variables: tuple[Free, ...]
    places: tuple[tuple[tuple[tuple[int, float], ...], ...], ...]


@dataclass(frozen=True)
class Plan:
    """How the equations of a claim are solved for some sizes.

    Attributes:
        joint: Systems, which do not depend on each other; explicit variables stand in them as definitions.
        explicit: Then explicit equations, in an order in which each uses only what is known.
        inclusions: Before all else; nothing that is computed stands in their functions.
    """

    joint: tuple[Joint, ...]
    explicit: tuple[Explicit, ...]
    inclusions: tuple[Inclusion, ...] = ()

    @property
    def variables(self) -> frozenset[str]:
        """Names of the variables that are computed."""
        joint = {variable.name for system in self.joint for variable in system.variables}
        return frozenset(joint | {step.variable.name for step in self.explicit}) | self.moved

    @property
    def moved(self) -> frozenset[str]:
        """Names of those that are computed from what they were, and so may be any."""
        return frozenset(variable.name for step in self.inclusions for variable in step.variables)

    @property
    def equations(self) -> frozenset[Place]:
        """The comparisons that it solves."""
        joint = {equation.place for system in self.joint for equation in system.equations}
        alone = [*(step.equation for step in self.explicit), *(step.equation for step in self.inclusions)]
        return frozenset(joint | {equation.place for equation in alone})

    def given_by(self, place: Place) -> tuple[Free, ...]:
        """Return the variables that an equation gives, with the others of its system."""
        joint = [system.variables for system in self.joint if place in {e.place for e in system.equations}]
        joint += [step.variables for step in self.inclusions if place == step.equation.place]
        return joint[0] if joint else tuple(s.variable for s in self.explicit if s.equation.place == place)

    def definitions(self, lets: Mapping[str, Formula]) -> dict[str, Formula]:
        """Return the claim's definitions, and explicit variables as further ones."""
        return {**lets, **{step.variable.name: step.formula for step in self.explicit}}
