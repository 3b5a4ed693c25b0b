"""Enclose the solution of a joint system F(u) = 0 near floats: prove that there is one, and how near it lies.

With an approximate inverse Y of F's Jacobian and a ball X of radius r around the float u, let q bound norm(I - Y J) for
every Jacobian J over X. If norm(Y F(u)) <= (1 - q) r then v -> v - Y F(v) maps X into itself and contracts there: X
holds exactly one solution, and it lies within norm(Y F(v))/(1 - q) of each v in X. The Jacobian is needed in floats
only; F is evaluated with more bits, so that the solution is known to the last digit. One that floats hold exactly needs
no proof but its residual.

A system with more coordinates than equations is solved for as many of them as there are equations; the others stay what
the floats say.

References:
    Krawczyk, Computing 4, 1969; Rump, Acta Numerica 19, 2010.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from flint import arb, arb_mat
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.inversion import approximate_inverse, identity_defect, size_up
from ntk_deq.certified.precise import adopt, as_ball, working_precision
from ntk_deq.certified.precise.matrix import from_rows
from ntk_deq.certified.rounding import add_up, divide_up, multiply_up, root_up, subtract_down
from ntk_deq.errors import LimitError, NtkDeqError
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.derivatives.derivative import Derivatives
from ntk_deq.evaluation.environment import Environment, Notes
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.language.types import SCALAR
from ntk_deq.verify.equations import Eigenvalue, Equation, Joint, Plan
from ntk_deq.verify.equations.plan import shape_at


def bordered(joint: Joint) -> tuple[Joint, dict[str, Eigenvalue]]:
    """Return a system in which the eigenvalues of its equations are numbers to solve for, with these by their names.

    Only equations that are solved for their vectors are changed.
    """
    names = {variable.name for variable in joint.variables}
    equations, added = [], dict[str, Eigenvalue]()
    for equation in joint.equations:
        eigenvalue = equation.eigenvalue
        if eigenvalue is None or eigenvalue.vector not in names:
            equations.append(equation)
            continue
        name = f"eigenvalue of {eigenvalue.vector}"  # no name of the language
        number = replace(eigenvalue.factor, kind=Kind.NAME, name=name, args=())
        sides = (_with_factor(side, eigenvalue.factor, number) for side in (equation.left, equation.right))
        equations.append(replace(equation, left=next(sides), right=next(sides)))
        added[name] = eigenvalue
    numbers = tuple(Free(name, SCALAR, Domain(DomainKind.REAL)) for name in added)
    places = tuple((((0, 1.0),),) for _ in added)
    variables, spots = (*joint.variables, *numbers), (*joint.places, *places)
    return replace(joint, equations=tuple(equations), variables=variables, places=spots), added


def _with_factor(expr: Expr, factor: Expr, number: Expr) -> Expr:
    """Return a side with another number in the place of the eigenvalue."""
    if expr is factor:
        return number
    return replace(expr, args=tuple(_with_factor(arg, factor, number) for arg in expr.args)) if expr.args else expr


BITS = 128
"""Precision in which a residual is evaluated for a judgement in floats."""

_NARROW = 1e-13  # of the coordinates: the least radius of the ball in which a solution is looked for
_CONTRACTION = 0.5  # the largest q that counts
_ROUNDS = 40  # of refinement, each of which multiplies the error by q
_SPARE = 16  # bits that the solution's radius may lose
TINY = 1e-3
"""What a radius is relative to, where the coordinates are smaller."""

Value = Scalar | Matrix


class UnprovenError(NtkDeqError):
    """Nothing certain can be said of a solution."""


class System:
    """A joint system F(u) = 0 at given values of everything else.

    Args:
        joint: The system.
        plan: Whose explicit variables stand in it as definitions.
        rough: The environment in floats.
        fine: The one with more bits, or None: the instance is too large for it.
        start: Floats near the solution.
    """

    def __init__(
        self, joint: Joint, plan: Plan, rough: Environment, fine: Environment | None, start: Mapping[str, Tensor]
    ) -> None:
        self._joint, self._eigenvalues = bordered(joint)
        self._shapes = {v.name: tuple(start[v.name].shape) for v in joint.variables}
        self._shapes |= {name: () for name in self._eigenvalues}
        self._rough = _with_definitions(rough, plan)
        self._fine = None if fine is None else _with_definitions(fine, plan)
        self._start: list[float] = []
        for variable, places in zip(joint.variables, joint.places, strict=True):
            flat = start[variable.name].flatten().tolist()
            self._start += [place[0][1] * flat[place[0][0]] for place in places]
        if self._eigenvalues and all(map(math.isfinite, self._start)):
            inside = self._rough.replaced(self._values([sc.exact(number) for number in self._start], joint.variables))
            for eigenvalue in self._eigenvalues.values():
                self._start.append(float(ar.to_scalar(evaluate(eigenvalue.call, inside)).ball.mid()))
        self._bits = BITS if self._fine is None or self._fine.precision is None else self._fine.precision

    def solution(self, *, exact: bool) -> list[arb]:
        """Return balls that hold the coordinates of a true solution.

        Args:
            exact: Whether the floats themselves must be it.

        Raises:
            NtkDeqError: None is proven.
        """
        if not all(map(math.isfinite, self._start)):
            raise UnprovenError("no floats near a solution")
        coordinates = self._solution(exact=exact)
        if self._eigenvalues:
            self._require_eigenvalues(coordinates)
        return coordinates

    def _require_eigenvalues(self, coordinates: list[arb]) -> None:
        """Refuse a solution in which a number is not the eigenvalue that it stands for.

        Raises:
            NtkDeqError: It may be another one, or its vector zero.
        """
        values = self._values(coordinates, self._joint.variables)
        inside = self._rough.replaced({name: in_floats(value, self._rough.like) for name, value in values.items()})
        for name, eigenvalue in self._eigenvalues.items():
            spectrum = ct.eigenvalues_symmetric(ar.to_matrix(evaluate(eigenvalue.matrix, inside)).ball)
            require_certain(inside.notes)
            number, vector = values[name], values[eigenvalue.vector]
            assert isinstance(number, Scalar)
            assert isinstance(vector, Matrix)
            if not eigenvalue.is_meant(number.ball, spectrum, adopt(vector.ball).flat):
                raise UnprovenError(f"it may not be {eigenvalue.call.name} that the equations give")

    def _solution(self, *, exact: bool) -> list[arb]:
        with working_precision(self._bits):
            point = [sc.exact(number) for number in self._start]
            if all(entry.is_exact() and entry == 0 for entry in self._residual(point)):
                return point
        if exact:
            raise UnprovenError("the floats are no solution")
        size = max(max(map(abs, self._start)), TINY)
        radius = _NARROW * size
        for _ in range(2):
            jacobian = self._jacobian(radius)
            chosen = _pivots(jacobian.centre, jacobian.shape[0])
            square = ct.Ball(jacobian.centre[:, chosen].contiguous(), jacobian.radius, jacobian.reason)
            inverse = approximate_inverse(square.centre)
            if inverse is None:
                raise UnprovenError("the Jacobian has no inverse")
            q = size_up(identity_defect(ct.Ball(inverse), square))
            if not q <= _CONTRACTION:
                raise UnprovenError("the Jacobian may be singular near the floats")
            with working_precision(self._bits):
                _, first = self._newton_step(point, inverse)
                if add_up(first, multiply_up(q, radius)) <= radius:
                    return self._refined(point, chosen, inverse, q, radius)
            radius = 4 * first
        raise UnprovenError("the floats are not near enough to a solution")

    def _refined(self, centre: list[arb], chosen: list[int], inverse: Tensor, q: float, radius: float) -> list[arb]:
        """Return the solution that lies within a radius of a point, as narrowly as the residual is known."""
        point, best, bound = list(centre), list(centre), math.inf
        gap = subtract_down(1.0, q)
        rounds = _ROUNDS if self._fine is not None else 1
        for _ in range(rounds):
            step, length = self._newton_step(point, inverse)
            error = divide_up(length, gap)
            away = sc.upper(_length([a - b for a, b in zip(point, centre, strict=True)]))
            if not (away <= radius and error < 0.5 * bound):
                break
            best, bound = list(point), error
            size = max(float(abs(entry).mid()) for entry in point)
            if error <= 2.0 ** (_SPARE - self._bits) * size:
                break
            for column, move in zip(chosen, step, strict=True):
                point[column] = (point[column] - move).mid()
        for column in chosen:
            best[column] = best[column] + arb(0, bound)
        return best

    def _newton_step(self, point: list[arb], inverse: Tensor) -> tuple[list[arb], float]:
        """Return Y F(u), and an upper bound of its length."""
        order = len(inverse)
        flat = [sc.exact(number) for number in inverse.flatten().tolist()]
        product = arb_mat(order, order, flat) * arb_mat(order, 1, self._residual(point))
        step: list[arb] = product.entries()
        length = _length(step)
        if not length.is_finite():
            raise UnprovenError("the residual is not known")
        return step, sc.upper(length)

    def _residual(self, point: list[arb]) -> list[arb]:
        """Return F at a point, in more bits than floats have where there are such."""
        if self._fine is not None:
            try:
                return self._evaluated(self._fine, point)
            except LimitError:
                self._fine = None
        return self._evaluated(self._rough, point)

    def _evaluated(self, env: Environment, point: list[arb]) -> list[arb]:
        precise = env.precision is not None
        values = self._values(point, self._joint.variables)
        if not precise:
            values = {name: in_floats(value, env.like) for name, value in values.items()}
        inside = env.replaced(values)
        found: list[arb] = []
        for equation, rows in zip(self._joint.equations, self._joint.rows, strict=True):
            value = evaluate(equation.difference, inside)
            if isinstance(value, Scalar):
                found.append(value.ball)
            else:
                flat = adopt(ar.to_matrix(value).ball).flat
                found += [flat[row] for row in rows]
        require_certain(inside.notes)
        return found

    def _values(self, coordinates: list[arb], variables: Sequence[Free]) -> dict[str, Value]:
        return {variable.name: self.value(place, coordinates) for place, variable in enumerate(variables)}

    def value(self, place: int, coordinates: list[arb]) -> Value:
        """Return the value of one of the variables at some coordinates, in as many bits as these have."""
        variable, places = self._joint.variables[place], self._joint.places[place]
        first = sum(map(len, self._joint.places[:place]))
        mine = coordinates[first : first + len(places)]
        shape = self._shapes[variable.name]
        if not shape:
            return Scalar(mine[0], ar.magnitude(mine[0]))
        rows, cols = (*shape, 1)[:2]
        entries = [arb(0)] * (rows * cols)
        for number, spots in zip(mine, places, strict=True):
            for index, sign in spots:
                entries[index] = number if sign > 0 else -number
        matrix = from_rows(rows, cols, entries)
        return Matrix(as_ball(matrix), sc.upper(_length(entries)))

    def _jacobian(self, radius: float) -> ct.Ball:
        """Return all Jacobians of F over the ball of a radius around the floats: equations x coordinates."""
        spread = multiply_up(root_up(2.0), radius)  # an entry of a symmetric matrix stands in it twice
        point = [sc.exact(number) for number in self._start]
        variables: dict[str, Value] = {}
        for place, variable in enumerate(self._joint.variables):
            value = self.value(place, point)
            if isinstance(value, Scalar):
                variables[variable.name] = Scalar(value.ball + arb(0, radius), value.scale)
            else:
                known = in_floats(value, self._rough.like)
                assert isinstance(known, Matrix)
                variables[variable.name] = Matrix(
                    ct.Ball(known.ball.centre, add_up(known.ball.radius, spread)), known.scale
                )
        inside = self._rough.replaced(variables)
        derivatives = Derivatives(inside)
        blocks, radii = [], []
        for equation, rows in zip(self._joint.equations, self._joint.rows, strict=True):
            line = []
            for variable, places in zip(self._joint.variables, self._joint.places, strict=True):
                found = derivatives.of("jac", equation.difference, variable.name, {})
                assert isinstance(found, Matrix)
                block = ct.matmul(found.ball, ct.Ball(_pattern(self._shapes[variable.name], places)))
                if not block.is_finite:
                    raise UnprovenError(block.reason)
                line.append(block.centre[self._by_column(rows, equation)])
                radii.append(block.radius)
            blocks.append(torch.cat(line, dim=1))
        require_certain(inside.notes)
        return ct.Ball(torch.cat(blocks), add_up(*radii))

    def _by_column(self, rows: tuple[int, ...], equation: Equation) -> list[int]:
        """Return entries counted row after row as they are counted column after column, as in vec."""
        high, wide = shape_at(equation.left.type, self._rough.sizes)
        return [(row % wide) * high + row // wide for row in rows]


def _with_definitions(env: Environment, plan: Plan) -> Environment:
    """Return the environment in which explicit variables are definitions."""
    explicit = {step.variable.name for step in plan.explicit}
    variables = {name: value for name, value in env.variables.items() if name not in explicit}
    return replace(env, variables=variables, lets=plan.definitions(env.lets), cache={}, iterates=[], at_steps={})


def _pattern(shape: tuple[int, ...], places: tuple[tuple[tuple[int, float], ...], ...]) -> Tensor:
    """Return the derivative of vec of a variable by its coordinates."""
    rows, cols = (*shape, 1, 1)[:2]
    pattern = torch.zeros(rows * cols, len(places), dtype=torch.float64)
    for column, spots in enumerate(places):
        for index, sign in spots:
            pattern[(index % cols) * rows + index // cols, column] = sign
    return pattern


def _pivots(jacobian: Tensor, count: int) -> list[int]:
    """Return as many columns as there are rows, each the longest one orthogonal to those before."""
    if jacobian.shape[1] == count:
        return list(range(count))
    left, chosen = jacobian.clone(), list[int]()
    for _ in range(count):
        lengths = torch.linalg.vector_norm(left, dim=0)
        lengths[chosen] = -1.0
        best = int(lengths.argmax())
        chosen.append(best)
        if lengths[best] > 0:
            direction = left[:, best : best + 1] / lengths[best]
            left = left - direction @ (direction.mT @ left)
    return sorted(chosen)


def _length(entries: Sequence[arb]) -> arb:
    """Return the Euclidean length."""
    total = arb(0)
    for entry in entries:
        total += entry * entry
    if total > 0:
        return total.sqrt()
    # A ball that contains zero is neither zero nor not zero; its root is what lies between zero and the largest root.
    return arb(0).union(arb(total.abs_upper()).sqrt())


def in_floats(value: Value, like: Tensor) -> Value:
    """Return a matrix with entries of many bits as a ball around floats."""
    if isinstance(value, Scalar):
        return value
    precise = adopt(value.ball)
    centre = precise.approximate.to(like.dtype)
    away = [entry - sc.exact(number) for entry, number in zip(precise.flat, centre.flatten().tolist(), strict=True)]
    return Matrix(ct.Ball(centre.to(like.device), sc.upper(_length(away))), value.scale)


def require_certain(notes: Notes) -> None:
    """Refuse an evaluation that met something undefined or estimated.

    Raises:
        NtkDeqError: It did.
    """
    if notes.unsure or notes.estimated:
        raise UnprovenError("; ".join([*notes.unsure, *notes.estimated]))
