"""What is known of equations: the sides of one, what it gives, and how those of a claim are solved together.

Eigenvectors that an equation gives: `S*v == lambda_max(S)*v` says which v it is but for its length.

Such an equation is singular wherever it holds: of its n numbers one follows from the others. For a proof the eigenvalue
is one number more to solve for. The n equations S v = mu v for n + 1 numbers are regular where mu is simple; afterwards
v must not be zero, and mu must be the eigenvalue that the equation names, not another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flint import arb

from ntk_deq.language.domain import Free
from ntk_deq.language.format import inclusion_of
from ntk_deq.language.symmetry import parity, sign_by_domain, structure
from ntk_deq.language.tree import Expr, Formula, Kind, subtracted, sum_terms

_EXTREMES = frozenset({"lambda_min", "lambda_max"})


@dataclass(frozen=True)
class Eigenvalue:
    """The smallest or largest eigenvalue of a symmetric matrix, in an equation that gives its vector.

    Attributes:
        factor: How the equation names it.
        call: What it is: a call of lambda_min or lambda_max.
        vector: The variable that is the vector.
    """

    factor: Expr
    call: Expr
    vector: str

    @property
    def matrix(self) -> Expr:
        """The matrix."""
        return self.call.args[0]

    def is_meant(self, value: arb, spectrum: Sequence[arb], vector: Sequence[arb]) -> bool:
        """Whether a number for which S v = mu v holds is this eigenvalue for certain.

        Args:
            value: The number.
            spectrum: The eigenvalues of the matrix, smallest first.
            vector: The entries of v.
        """
        if not any(entry != 0 for entry in vector):
            return False
        if self.call.name == "lambda_max":
            return all(value > other for other in spectrum[:-1])
        return all(value < other for other in spectrum[1:])


def eigenvalue_in(left: Expr, right: Expr, free: Mapping[str, Free], lets: Mapping[str, Formula]) -> Eigenvalue | None:
    """Return the eigenvalue whose vector an equation gives, if it is of that form.

    Args:
        left: One side of the equation.
        right: The other side.
        free: The variables that equations may give.
        lets: The claim's definitions.
    """
    terms = [(sign, term) for sign, term in (*sum_terms(left, 1), *sum_terms(right, -1)) if not _is_zeros(term)]
    if any(term.kind is not Kind.MULTIPLY or term.args[1].kind is not Kind.NAME for _, term in terms):
        return None
    vectors = {term.args[1].name for _, term in terms}
    factors = [(sign, term.args[0]) for sign, term in terms]
    if len(factors) == 1:  # (S - lambda_max(S)*I(n))*v
        factors = [(sign, _unscaled(factor)) for sign, factor in sum_terms(factors[0][1], 1)]
    if len(factors) != 2 or factors[0][0] == factors[1][0] or len(vectors) != 1 or not vectors <= free.keys():
        return None
    for (_, matrix), (_, factor) in (factors, factors[::-1]):
        call = lets[factor.name].expr if factor.kind is Kind.NAME and factor.name in lets else factor
        if (
            call.kind is Kind.CALL
            and call.name in _EXTREMES
            and structure(call.args[0]) == structure(matrix)
            and parity(matrix, sign_by_domain(free), {name: let.expr for name, let in lets.items()}) == 1
        ):
            return Eigenvalue(factor, call, *vectors)
    return None


def _is_zeros(expr: Expr) -> bool:
    return expr.kind is Kind.CALL and expr.name == "zeros"


def _unscaled(expr: Expr) -> Expr:
    """Return the factor of a multiple of the identity; any other formula as it is."""
    if expr.kind is Kind.MULTIPLY and expr.args[1].kind is Kind.CALL and expr.args[1].name == "I":
        return expr.args[0]
    return expr


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

    @property
    def inclusion(self) -> tuple[Expr, Expr, Expr] | None:
        """g, phi and z where it says that g is a subgradient of phi at z."""
        sides = self.left, self.right
        return inclusion_of(Expr(Kind.COMPARE, self.left.span, sides, operators=("==",)))


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
