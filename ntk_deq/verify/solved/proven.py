"""Prove that the equations of a claim have a solution near floats, and evaluate with the balls that hold it.

An explicit variable is the ball of what it is equal to. For a joint system F(u) = 0 with a float u, an approximate
inverse Y of its Jacobian and a ball X of radius r around u, let q bound norm(I - Y J) for every Jacobian J over X. If
norm(Y F(u)) <= (1 - q) r then v -> v - Y F(v) maps X into itself and contracts there: X holds exactly one solution, and
it lies within norm(Y F(v))/(1 - q) of each v in X. The Jacobian is needed in floats only; F is evaluated with more
bits, so that the solution is known to the last digit. One that floats hold exactly needs no proof but its residual.

A system with more coordinates than equations is solved for as many of them as there are equations; the others stay what
the floats say.

References:
    Krawczyk, Computing 4, 1969; Rump, Acta Numerica 19, 2010.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from flint import arb, arb_mat
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.dispatch import dense_form
from ntk_deq.certified.inversion import approximate_inverse, identity_defect, size_up
from ntk_deq.certified.precise import PreciseMatrix, adopt, as_ball, working_precision
from ntk_deq.certified.precise.matrix import from_rows
from ntk_deq.certified.rounding import add_up, divide_up, multiply_up, root_up, subtract_down
from ntk_deq.claims.claim import Claim, Domain, DomainKind, Free, Setting
from ntk_deq.claims.tree import Kind
from ntk_deq.claims.types import Sort
from ntk_deq.errors import LimitError, NtkDeqError
from ntk_deq.falsify.domains import contains
from ntk_deq.falsify.instance import Instance
from ntk_deq.verify import arithmetic as ar
from ntk_deq.verify.derivatives import Derivatives
from ntk_deq.verify.environment import DeadlineError, Environment, Notes, instance_environment
from ntk_deq.verify.equilibria import tensor_names
from ntk_deq.verify.evaluate import evaluate, evaluate_truth
from ntk_deq.verify.quantity import Matrix, Scalar, Truth
from ntk_deq.verify.solved.floats import solved_jointly
from ntk_deq.verify.solved.plan import Equation, Equations, Explicit, Joint, Place, Plan

BITS = 128
"""Precision in which a residual is evaluated for a judgement in floats."""

_NARROW = 1e-13  # of the coordinates: the least radius of the ball in which a solution is looked for
_CONTRACTION = 0.5  # the largest q that counts
_ROUNDS = 40  # of refinement, each of which multiplies the error by q
_SPARE = 16  # bits that the solution's radius may lose
_TINY = 1e-3  # what such a radius is relative to, where the coordinates are smaller
_NEAR = 1e-6  # relative distance within which a recorded value stands for a solution
_FRACTION, _NEARLY = 2.0**12, 1e-10
_NONNEGATIVE = frozenset({"relu", "abs"})

Value = Scalar | Matrix


def solve(
    claim: Claim, instance: Instance, env: Environment, *, dtype: torch.dtype, anew: bool
) -> tuple[Instance, Environment]:
    """Return an instance whose equations hold, with its environment; both unchanged where that cannot be proven.

    In the environment the variables that the equations give are balls that hold a true solution, and `met` says which
    comparisons that makes true. An instance that certainly fails another hypothesis is left alone.

    Args:
        claim: The claim.
        instance: The instance; `solved` says which values lie near a solution only.
        env: Its environment.
        dtype: Type to which the instance's values are rounded.
        anew: Compute the variables from the others; otherwise only take those that `solved` names as what they are.

    Raises:
        LimitError: With more bits than floats have: the solution is not proven in that arithmetic.
        DeadlineError: The deadline passed.
    """
    if not (anew or instance.solved):
        return instance, env
    setting = next(s for s in claim.settings if s.name == instance.setting)
    equations = Equations(claim, setting)
    best = _Proof(claim, setting, instance, env, dtype)
    for plan in equations.plans(instance.sizes):
        failing = _failing(claim, equations, plan, env) if anew else None
        if failing is not None:
            return replace(instance, solved=frozenset()), replace(env, failing=failing)
        proof = _Proof(claim, setting, instance, env, dtype)
        proof.run(plan, anew=anew)
        if (anew or proof.keeps(plan)) and len(proof.met) > len(best.met):
            best = proof
        if best.met.keys() == plan.equations:
            break
    if best.met:
        return best.result()
    if env.precision is not None:
        raise LimitError("the equations of this instance are not solved with more bits than floats have")
    return replace(instance, solved=frozenset()) if anew else instance, env


def _failing(claim: Claim, equations: Equations, plan: Plan, env: Environment) -> str | None:
    """Return a hypothesis that certainly fails and that no computed variable enters: then nothing need be solved."""
    for name, formula in claim.assume.items():
        if equations.rests_on(formula) & plan.variables:
            continue
        try:
            if evaluate_truth(formula.expr, env).truth is Truth.FALSE:
                return name
        except DeadlineError:
            raise
        except NtkDeqError:
            continue
    return None


class _UnprovenError(NtkDeqError):
    """Nothing certain can be said of a solution."""


@dataclass
class _Proof:
    """What is known of a solution on one instance.

    Attributes:
        values: Values of the variables computed so far, as balls of the environment's kind.
        exact: Those of them that are floats.
        met: The comparisons that are true by them, each with the variables that it was solved for.
    """

    claim: Claim
    setting: Setting
    instance: Instance
    env: Environment
    dtype: torch.dtype
    values: dict[str, Value] = field(default_factory=dict)
    exact: set[str] = field(default_factory=set)
    met: dict[Place, str] = field(default_factory=dict)

    def run(self, plan: Plan, *, anew: bool) -> None:
        """Solve what can be solved, and prove it."""
        for joint in plan.joint:
            try:
                start = self._start(joint, plan) if anew else self.instance.values
                self._jointly(joint, plan, start)
            except DeadlineError:
                raise
            except NtkDeqError:
                continue
        for step in plan.explicit:
            try:
                self._explicitly(step)
            except DeadlineError:
                raise
            except NtkDeqError:
                if plan.joint:  # a system may rest on this variable's being what it is said to be
                    self.values, self.exact, self.met = {}, set(), {}
                    return

    def keeps(self, plan: Plan) -> bool:
        """Whether the values are those that the instance says: exactly, or nearly for those that lie near them only."""
        for name in plan.variables:
            near = name in self.instance.solved
            if name not in self.values:
                if near:
                    return False
                continue
            recorded, found = self.instance.values[name], _tensor(self.values[name], self.instance.values[name])
            if not near and not (name in self.exact and torch.equal(recorded, found)):
                return False
            if not bool((recorded - found).abs().max() <= _NEAR * max(float(found.abs().max()), _TINY)):
                return False
        return True

    def result(self) -> tuple[Instance, Environment]:
        """Return the instance and its environment with what was computed."""
        old = self.instance.values
        values = {name: _tensor(value, old[name]) for name, value in self.values.items()}
        solved = frozenset(self.values) - self.exact
        instance = replace(
            self.instance,
            values={**old, **values},
            rounded={name: radius for name, radius in self.instance.rounded.items() if name not in values},
            solved=solved,
        )
        variables = {**self.env.variables, **self.values}
        return instance, replace(self.env, variables=variables, cache={}, iterates=[], met=self.met)

    def _start(self, joint: Joint, plan: Plan) -> Mapping[str, Tensor] | None:
        """Return floats near a solution of a system, as good as floats have them; None where none are found."""
        with torch.no_grad():
            found, solved = solved_jointly(joint, tensor_names(self._float_environment()), plan)
        if not bool(solved.all()):
            return None
        return {name: _snapped(value.reshape(self.instance.values[name].shape)) for name, value in found.items()}

    def _float_environment(self) -> Environment:
        """Return the environment in float64 balls on the CPU: each variable the same set, or one around it."""
        env = self.env
        if env.precision is not None:
            cpu = torch.device("cpu")
            env = instance_environment(self.claim, self.instance, device=cpu, dtype=self.dtype, notes=env.notes)
        variables = dict(env.variables)
        for name, value in variables.items():
            if isinstance(value, Matrix):
                ball = value.ball
                variables[name] = Matrix(ct.Ball(ball.centre.double().cpu(), ball.radius, ball.reason), value.scale)
        return replace(env, variables=variables, cache={}, iterates=[], notes=self._notes())

    def _notes(self) -> Notes:
        return Notes(deadline=self.env.notes.deadline)

    def _precise_environment(self) -> Environment | None:
        if self.env.precision is not None:
            return replace(self.env, cache={}, iterates=[], notes=self._notes())
        try:
            return instance_environment(
                self.claim,
                self.instance,
                device=torch.device("cpu"),
                dtype=self.dtype,
                notes=self._notes(),
                precision=BITS,
            )
        except LimitError:
            return None

    def _explicitly(self, step: Explicit) -> None:
        """Evaluate what a variable is equal to."""
        env = replace(self.env, notes=self._notes()).replaced(self.values)
        found = evaluate(step.formula.expr, env)
        value: Value = ar.to_scalar(found) if step.variable.type.sort is Sort.SCALAR else ar.to_matrix(found)
        if isinstance(value, Matrix):
            value = Matrix(dense_form(value.ball), value.scale)
        _require_certain(env.notes)
        self._keep(step.variable, value, value, [step.equation])

    def _keep(self, variable: Free, value: Value, known: Value, equations: Sequence[Equation]) -> None:
        """Keep a variable's value, if it lies in the domain for certain.

        Args:
            variable: The variable.
            value: Its ball, of the environment's kind.
            known: The same or a smaller ball.
            equations: The equations that it solves.
        """
        exact = _is_float(value)
        old = self.instance.values[variable.name]
        if exact:
            inside = contains(variable.domain, _tensor(value, old))
        else:
            inside = _inside(variable.domain, known, by_form=any(_nonnegative(e, variable.name) for e in equations))
        if not inside:
            raise _UnprovenError(f"`{variable.name}` may lie outside its domain")
        self.values[variable.name] = value
        self.exact |= {variable.name} if exact else set()
        for equation in equations:
            solved = self.met.get(equation.place)
            self.met[equation.place] = variable.name if solved is None else f"{solved}, {variable.name}"

    def _jointly(self, joint: Joint, plan: Plan, start: Mapping[str, Tensor] | None) -> None:
        """Enclose the solution of a joint system near floats; without such only the instance as it is may solve it."""
        given = self.instance.values if start is None else start
        system = _System(joint, plan, self._float_environment(), self._precise_environment(), given)
        coordinates = system.solution(exact=start is None)
        kept = (dict(self.values), set(self.exact), dict(self.met))
        try:
            for place, variable in enumerate(joint.variables):
                known = system.value(place, coordinates)
                value = known if self.env.precision is not None else _in_floats(known, self.env.like)
                self._keep(variable, value, known, joint.equations)
        except NtkDeqError:
            self.values, self.exact, self.met = kept
            raise


class _System:
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
        self._joint = joint
        self._shapes = {v.name: tuple(start[v.name].shape) for v in joint.variables}
        self._rough = _with_definitions(rough, plan)
        self._fine = None if fine is None else _with_definitions(fine, plan)
        self._start: list[float] = []
        for variable, places in zip(joint.variables, joint.places, strict=True):
            flat = start[variable.name].flatten().tolist()
            self._start += [place[0][1] * flat[place[0][0]] for place in places]
        self._bits = BITS if self._fine is None or self._fine.precision is None else self._fine.precision

    def solution(self, *, exact: bool) -> list[arb]:
        """Return balls that hold the coordinates of a true solution.

        Args:
            exact: Whether the floats themselves must be it.

        Raises:
            NtkDeqError: None is proven.
        """
        if not all(map(math.isfinite, self._start)):
            raise _UnprovenError("no floats near a solution")
        with working_precision(self._bits):
            point = [sc.exact(number) for number in self._start]
            if all(entry.is_exact() and entry == 0 for entry in self._residual(point)):
                return point
        if exact:
            raise _UnprovenError("the floats are no solution")
        size = max(max(map(abs, self._start)), _TINY)
        radius = _NARROW * size
        for _ in range(2):
            jacobian = self._jacobian(radius)
            chosen = _pivots(jacobian.centre, jacobian.shape[0])
            square = ct.Ball(jacobian.centre[:, chosen].contiguous(), jacobian.radius, jacobian.reason)
            inverse = approximate_inverse(square.centre)
            if inverse is None:
                raise _UnprovenError("the Jacobian has no inverse")
            q = size_up(identity_defect(ct.Ball(inverse), square))
            if not q <= _CONTRACTION:
                raise _UnprovenError("the Jacobian may be singular near the floats")
            with working_precision(self._bits):
                _, first = self._newton_step(point, inverse)
                if add_up(first, multiply_up(q, radius)) <= radius:
                    return self._refined(point, chosen, inverse, q, radius)
            radius = 4 * first
        raise _UnprovenError("the floats are not near enough to a solution")

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
            raise _UnprovenError("the residual is not known")
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
        values = {v.name: self.value(place, point) for place, v in enumerate(self._joint.variables)}
        if not precise:
            values = {name: _in_floats(value, env.like) for name, value in values.items()}
        inside = env.replaced(values)
        found: list[arb] = []
        for equation, rows in zip(self._joint.equations, self._joint.rows, strict=True):
            value = evaluate(equation.difference, inside)
            if isinstance(value, Scalar):
                found.append(value.ball)
            else:
                flat = adopt(ar.to_matrix(value).ball).flat
                found += [flat[row] for row in rows]
        _require_certain(inside.notes)
        return found

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
                known = _in_floats(value, self._rough.like)
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
                    raise _UnprovenError(block.reason)
                line.append(block.centre[self._by_column(rows, equation)])
                radii.append(block.radius)
            blocks.append(torch.cat(line, dim=1))
        _require_certain(inside.notes)
        return ct.Ball(torch.cat(blocks), add_up(*radii))

    def _by_column(self, rows: tuple[int, ...], equation: Equation) -> list[int]:
        """Return entries counted row after row as they are counted column after column, as in vec."""
        kind = equation.left.type
        if kind is None or kind.sort is not Sort.MATRIX:
            return list(rows)
        high, wide = kind.rows.evaluate(self._rough.sizes), kind.cols.evaluate(self._rough.sizes)
        return [(row % wide) * high + row // wide for row in rows]


def _with_definitions(env: Environment, plan: Plan) -> Environment:
    """Return the environment in which explicit variables are definitions."""
    explicit = {step.variable.name for step in plan.explicit}
    variables = {name: value for name, value in env.variables.items() if name not in explicit}
    return replace(env, variables=variables, lets=plan.definitions(env.lets), cache={}, iterates=[])


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


def _in_floats(value: Value, like: Tensor) -> Value:
    """Return a matrix with entries of many bits as a ball around floats."""
    if isinstance(value, Scalar):
        return value
    precise = adopt(value.ball)
    centre = precise.approximate.to(like.dtype)
    away = [entry - sc.exact(number) for entry, number in zip(precise.flat, centre.flatten().tolist(), strict=True)]
    return Matrix(ct.Ball(centre.to(like.device), sc.upper(_length(away))), value.scale)


def _is_float(value: Value) -> bool:
    """Whether a value is exactly its floats."""
    if isinstance(value, Scalar):
        return _all_floats([value.ball])
    if isinstance(value.ball, PreciseMatrix):
        return _all_floats(value.ball.flat)
    return value.ball.radius == 0


def _all_floats(entries: Sequence[arb]) -> bool:
    return all(e.is_finite() and e.is_exact() and sc.exact(float(e.mid())) == e for e in entries)


def _tensor(value: Value, like: Tensor) -> Tensor:
    """Return a value's centre in the shape of a tensor."""
    if isinstance(value, Scalar):
        return torch.tensor(float(value.ball.mid()), dtype=torch.float64).reshape(like.shape)
    ball = value.ball
    centre = ball.approximate if isinstance(ball, PreciseMatrix) else ball.centre.double().cpu()
    return centre.reshape(like.shape) + 0.0


def _snapped(value: Tensor) -> Tensor:
    """Return floats with those that are nearly short binary fractions replaced by these."""
    rounded = (value * _FRACTION).round() / _FRACTION
    return torch.where((value - rounded).abs() <= _NEARLY * value.abs().clamp_min(1.0), rounded, value)


def _require_certain(notes: Notes) -> None:
    """Refuse an evaluation that met something undefined or estimated.

    Raises:
        NtkDeqError: It did.
    """
    if notes.unsure or notes.estimated:
        raise _UnprovenError("; ".join([*notes.unsure, *notes.estimated]))


def _nonnegative(equation: Equation, name: str) -> bool:
    """Whether an equation says that a variable is something that has no negative entry."""
    sides = ((equation.left, equation.right), (equation.right, equation.left))
    return any(
        one.kind is Kind.NAME and one.name == name and other.kind is Kind.CALL and other.name in _NONNEGATIVE
        for one, other in sides
    )


def _inside(domain: Domain, value: Value, *, by_form: bool) -> bool:
    """Whether everything in a ball lies in a domain for certain.

    Args:
        domain: The domain; symmetry is known from the formula, or from the coordinates.
        value: The ball.
        by_form: Whether no entry is negative, whatever the ball says.
    """
    if isinstance(value, Scalar):
        low = high = value.ball
    else:
        low, high = ct.entry_min(value.ball), ct.entry_max(value.ball)
    if not (low.is_finite() and high.is_finite()):
        return False
    match domain.kind:
        case DomainKind.REAL | DomainKind.SYMMETRIC | DomainKind.SKEW:
            return True
        case DomainKind.PSD:
            return bool(ct.lambda_min(value.ball) > 0) if isinstance(value, Matrix) else False
        case DomainKind.POSITIVE:
            return bool(low > 0)
        case DomainKind.NONNEGATIVE:
            return by_form or bool(low >= 0)
        case DomainKind.INTERVAL:
            return _within(domain, low, high)
    return False


def _within(domain: Domain, low: arb, high: arb) -> bool:
    """Whether entries between two bounds lie in an interval for certain."""
    above = domain.low is None or bool(low > sc.exact(domain.low) if domain.low_open else low >= sc.exact(domain.low))
    below = domain.high is None or bool(
        high < sc.exact(domain.high) if domain.high_open else high <= sc.exact(domain.high)
    )
    return above and below
