"""Hypotheses that are equations: the variables that they give are computed from the others, and that is proven.

Here: what is known of one, and values in floats, for the search and as a start. `plan` says which equation gives which
 variables, and `proven` shows that true values lie in balls around the floats (`enclosure`), so that a hypothesis
is met.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from flint import arb
from torch import Tensor

from ntk_deq.errors import NtkDeqError
from ntk_deq.evaluation.floats import TensorNames, tensor_value
from ntk_deq.evaluation.functions import scalar
from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.format import inclusion_of
from ntk_deq.language.functions import FUNCTIONS, record_of
from ntk_deq.language.symmetry import parity, sign_by_domain, structure
from ntk_deq.language.tree import Expr, Formula, Kind, subtracted, sum_terms
from ntk_deq.language.types import Sort


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
        if FUNCTIONS[self.call.name].eigenvalue == 0:
            return all(value < other for other in spectrum[1:])
        return all(value > other for other in spectrum[:-1])


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
            (record := record_of(call)) is not None
            and record.eigenvalue is not None
            and structure(call.args[0]) == structure(matrix)
            and parity(matrix, sign_by_domain(free), {name: let.expr for name, let in lets.items()}) == 1
        ):
            return Eigenvalue(factor, call, *vectors)
    return None


def _is_zeros(expr: Expr) -> bool:
    record = record_of(expr)
    return record is not None and record.filled == 0


def _unscaled(expr: Expr) -> Expr:
    """Return the factor of a multiple of the identity; any other formula as it is."""
    record = record_of(expr.args[1]) if expr.kind is Kind.MULTIPLY else None
    return expr.args[0] if record is not None and record.unit else expr


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


_STEPS = 24
_SHORTER = (1.0, 0.25, 0.05)  # parts of a step that are tried
_ROUNDINGS = 256.0  # units of round-off, of what the Jacobian makes of the variables, that may be left
_PROGRESS = 0.9  # part of what is left of the equations that a step must leave at most
_RANK = 1e-12

Residual = Callable[[Tensor, Mapping[str, Tensor]], Tensor]


def solved_names(names: TensorNames, plan: Plan) -> TensorNames:
    """Return names in which the variables that the equations give are computed from the others.

    What cannot be solved for stays near what it was; the hypotheses' margins say so.

    Args:
        names: What names mean; the values of the variables to compute are where an iteration starts.
        plan: How the equations are solved.
    """

    def unmarked(names: TensorNames) -> TensorNames:
        return replace(names, trouble=None if names.trouble is None else [])

    def value(variable: Free, formula: Expr, names: TensorNames) -> Tensor:
        found = tensor_value(formula, names)
        return scalar(found) if variable.type.sort is Sort.SCALAR else found

    given = unmarked(names)

    for inclusion in plan.inclusions:
        pairs = zip(inclusion.variables, inclusion.formulas, strict=True)
        found = {variable.name: value(variable, formula, given) for variable, formula in pairs}
        names = replace(names, variables={**names.variables, **found})
    for joint in plan.joint:
        names = replace(names, variables={**names.variables, **solved_jointly(joint, names, plan)[0]})
    for step in plan.explicit:
        explicit = value(step.variable, step.formula.expr, unmarked(names))
        names = replace(names, variables={**names.variables, step.variable.name: explicit})
    return names


def domain_margin(domain: Domain, value: Tensor) -> Tensor:
    """Return by how much a computed value lies inside its domain: 1 at most, negative outside.

    Args:
        domain: The domain; kinds that a computed value has by its form allow everything.
        value: A scalar or a matrix, or a batch of them.
    """
    like = value if value.ndim < 2 else value[..., 0, 0]
    margin = torch.ones_like(like)
    smallest = value if value.ndim < 2 else value.amin((-2, -1))
    largest = value if value.ndim < 2 else value.amax((-2, -1))
    if domain.kind is DomainKind.PSD:
        symmetric = (value + value.mT) / 2
        safe = torch.where(torch.isfinite(symmetric), symmetric, 0.0)
        margin = torch.minimum(margin, torch.linalg.eigvalsh(safe)[..., 0])
    if domain.low is not None:
        margin = torch.minimum(margin, smallest - float(domain.low))
    if domain.high is not None:
        margin = torch.minimum(margin, float(domain.high) - largest)
    return margin


def solved_jointly(joint: Joint, names: TensorNames, plan: Plan) -> tuple[dict[str, Tensor], Tensor]:
    """Return the values of a joint system's variables, and whether they solve it up to rounding.

    Args:
        joint: The system.
        names: What names mean; the values of the system's variables are where the iteration starts.
        plan: Whose explicit variables stand in the system as definitions.
    """
    chart = _Chart(joint, names)
    explicit = {step.variable.name for step in plan.explicit}
    lets = plan.definitions(names.lets)

    def residual(coordinates: Tensor, variables: Mapping[str, Tensor]) -> Tensor:
        values = {**variables, **chart.values(coordinates)}
        values = {name: value for name, value in values.items() if name not in explicit}
        trouble: list[Tensor] | None = None if names.trouble is None else []
        inside = replace(names, variables=values, lets=lets, trouble=trouble)
        sides = [(tensor_value(e.left, inside), tensor_value(e.right, inside)) for e in joint.equations]
        rows = [_rows(left, right, rows) for (left, right), rows in zip(sides, joint.rows, strict=True)]
        return torch.cat([row.expand(*chart.batch, row.shape[-1]) for row in rows], dim=-1)

    still = {name: value.detach() for name, value in names.variables.items()}
    start = chart.coordinates(still)
    # Zero is where a fixed point is looked for; at zero a length has no slope, and a start of no special kind has one.
    waves = torch.arange(1, start.shape[-1] + 1).to(start).cos().expand_as(start)
    found, solved = start, torch.zeros(chart.batch, dtype=torch.bool, device=start.device)
    for first in (start, torch.zeros_like(start), waves):
        other, too = _newton(residual, still, first)
        found = torch.where((too & ~solved).unsqueeze(-1), other, found)
        solved = solved | too
        if bool(solved.all()):
            break
    if any(value.requires_grad for value in names.variables.values()) and torch.is_grad_enabled():
        _, jacobian = _linearised(residual, still, found)
        gap = residual(found, names.variables)
        found = found - (_pseudoinverse(jacobian) @ gap.unsqueeze(-1)).squeeze(-1)
    return chart.values(found), solved


class _Chart:
    """The coordinates of the variables of a joint system: entries, with signs."""

    def __init__(self, joint: Joint, names: TensorNames) -> None:
        self.batch = names.batch
        self._joint, self._like = joint, names.like
        # Without the batch dimension: scalars have it alone, matrices in front of two others.
        given = {v.name: names.variables[v.name] for v in joint.variables}
        self._shapes = {name: value.shape[int(value.ndim in (1, 3)) :] for name, value in given.items()}
        self._patterns = []
        for variable, places in zip(joint.variables, joint.places, strict=True):
            entries = max(1, self._shapes[variable.name].numel())
            pattern = names.like.new_zeros(len(places), entries)
            for row, place in enumerate(places):
                for index, sign in place:
                    pattern[row, index] = sign
            self._patterns.append(pattern)

    def coordinates(self, variables: Mapping[str, Tensor]) -> Tensor:
        """Return the coordinates, batch x coordinates."""
        found = []
        for variable, places in zip(self._joint.variables, self._joint.places, strict=True):
            value, shape = variables[variable.name], self._shapes[variable.name]
            flat = value.reshape((*value.shape[: value.ndim - len(shape)], -1))
            picked = flat[..., [place[0][0] for place in places]]
            signs = self._like.new_tensor([place[0][1] for place in places])
            found.append((picked * signs).expand(*self.batch, len(places)))
        return torch.cat(found, dim=-1)

    def values(self, coordinates: Tensor) -> dict[str, Tensor]:
        """Return the values at coordinates."""
        values, start = {}, 0
        for variable, pattern in zip(self._joint.variables, self._patterns, strict=True):
            part = coordinates[..., start : start + len(pattern)]
            start += len(pattern)
            values[variable.name] = (part @ pattern).reshape((*coordinates.shape[:-1], *self._shapes[variable.name]))
        return values


def _rows(left: Tensor, right: Tensor, rows: tuple[int, ...]) -> Tensor:
    if left.ndim < 2 or right.ndim < 2:
        return (scalar(left) - scalar(right)).unsqueeze(-1)
    return (left - right).flatten(-2)[..., list(rows)]


def _newton(residual: Residual, variables: Mapping[str, Tensor], start: Tensor) -> tuple[Tensor, Tensor]:
    """Return coordinates at which the equations hold, or nearly, and whether they do up to rounding."""
    best = start
    with torch.no_grad():
        norm = _length(residual(best, variables))
    solved = norm == 0
    for _ in range(_STEPS):
        if bool(solved.all()):
            break
        gap, jacobian = _linearised(residual, variables, best)
        step = (_pseudoinverse(jacobian) @ gap.unsqueeze(-1)).squeeze(-1)
        rounding = _ROUNDINGS * torch.finfo(best.dtype).eps * _length(jacobian.flatten(-2)) * _length(best)
        before, moved = norm, solved
        for part in _SHORTER:
            trial = best - part * step
            with torch.no_grad():
                lower = _length(residual(trial, variables))
            better = (lower < norm) & ~moved
            best = torch.where(better.unsqueeze(-1), trial, best)
            norm = torch.where(better, lower, norm)
            moved = moved | better
            if bool((moved | (norm <= rounding)).all()):
                break
        solved = norm <= rounding
        if not bool(((norm < _PROGRESS * before) & ~solved).any()):
            break
    return best, solved


def _linearised(residual: Residual, variables: Mapping[str, Tensor], at: Tensor) -> tuple[Tensor, Tensor]:
    """Return the residual and its Jacobian, batch x equations x coordinates; what is not finite counts as zero."""
    with torch.enable_grad():
        inside = at.detach().requires_grad_()
        gap = residual(inside, variables)
        rows = []
        for unit in torch.eye(gap.shape[-1], dtype=gap.dtype, device=gap.device):
            slope = None
            if gap.requires_grad:
                (slope,) = torch.autograd.grad(gap, inside, unit.expand_as(gap), retain_graph=True, allow_unused=True)
            rows.append(torch.zeros_like(at) if slope is None else slope.nan_to_num(0.0, 0.0, 0.0))
    return gap.detach().nan_to_num(0.0, 0.0, 0.0), torch.stack(rows, dim=-2)


def _pseudoinverse(jacobian: Tensor) -> Tensor:
    try:
        return torch.linalg.pinv(jacobian, rtol=_RANK)
    except torch.linalg.LinAlgError as error:
        raise NtkDeqError("a Jacobian has no singular values") from error


def _length(gap: Tensor) -> Tensor:
    length = torch.linalg.vector_norm(gap, dim=-1)
    return torch.where(torch.isfinite(length), length, torch.inf)
