"""Prove that the equations of a claim have a solution near floats, and evaluate with the balls that hold it.

An explicit variable is the ball of what it is equal to; the solution of a joint system is enclosed near floats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from flint import arb
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.precise import PreciseMatrix
from ntk_deq.certified.structured import densified
from ntk_deq.claims.claim import Claim
from ntk_deq.errors import LimitError, NtkDeqError
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.balls import evaluate, evaluate_truth
from ntk_deq.evaluation.environment import DeadlineError, Environment, Notes
from ntk_deq.evaluation.equilibria import tensor_names
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Matrix, Scalar, Truth
from ntk_deq.falsify.domains import contains
from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.tree import Kind
from ntk_deq.language.types import Range, Sort
from ntk_deq.verify.equations import Equation, Explicit, Inclusion, Joint, Place, Plan, solved_jointly
from ntk_deq.verify.equations.enclosure import BITS, TINY, System, UnprovenError, Value, in_floats, require_certain
from ntk_deq.verify.equations.plan import Equations
from ntk_deq.verify.formulas import instance_environment

_NEAR = 1e-6  # relative distance within which a recorded value stands for a solution
_FRACTION, _NEARLY = 2.0**12, 1e-10


def solve(
    claim: Claim, instance: Instance, env: Environment, *, dtype: torch.dtype, anew: bool
) -> tuple[Instance, Environment]:
    """Return an instance whose equations hold, with its environment; both unchanged where that cannot be proven.

    An instance that solves its equations exactly as it stands stays as it is: they may have other solutions.
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
    setting = claim.setting_named(instance.setting)
    equations = Equations(claim, setting)
    best = _Proof(claim, instance, env, dtype)
    for plan in equations.plans(instance.sizes):
        if anew and not instance.solved and _stands(plan, env):
            return instance, env
        failing = _failing(claim, equations, plan, env) if anew else None
        if failing is not None:
            return replace(instance, solved=frozenset()), replace(env, failing=failing)
        proof = _Proof(claim, instance, env, dtype)
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


def _stands(plan: Plan, env: Environment) -> bool:
    """Whether the equations that would be solved jointly, and the explicit ones beside them, hold exactly as it is."""
    equations = [e for joint in plan.joint for e in joint.equations] + [step.equation for step in plan.explicit]
    if not plan.joint or plan.inclusions:
        return False
    inside = replace(env, notes=Notes(deadline=env.notes.deadline), cache={}, iterates=[])
    try:
        for equation in equations:
            sides = [evaluate(side, inside) for side in (equation.left, equation.right)]
            if ar.compare_chain(sides, ["=="], ()).truth is not Truth.TRUE:
                return False
    except DeadlineError:
        raise
    except NtkDeqError:
        return False
    return not inside.notes.unsure and not inside.notes.estimated


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


@dataclass
class _Proof:
    """What is known of a solution on one instance.

    Attributes:
        values: Values of the variables computed so far, as balls of the environment's kind.
        exact: Those of them that are floats.
        met: The comparisons that are true by them, each with the variables that it was solved for.
    """

    claim: Claim
    instance: Instance
    env: Environment
    dtype: torch.dtype
    values: dict[str, Value] = field(default_factory=dict)
    exact: set[str] = field(default_factory=set)
    met: dict[Place, str] = field(default_factory=dict)

    def run(self, plan: Plan, *, anew: bool) -> None:
        """Solve what can be solved, and prove it."""
        for inclusion in plan.inclusions:
            with self._all_or_nothing():
                self._included(inclusion)
        for joint in plan.joint:
            with self._all_or_nothing():
                start = self._start(joint, plan) if anew else self.instance.values
                self._jointly(joint, plan, start)
        for step in plan.explicit:
            try:
                self._explicitly(step)
            except DeadlineError:
                raise
            except NtkDeqError:
                if plan.joint:  # a system may rest on this variable's being what it is said to be
                    self.values, self.exact, self.met = {}, set(), {}
                    return

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Forget what was computed here where not all of it can be proven."""
        before = dict(self.values), set(self.exact), dict(self.met)
        try:
            yield
        except NtkDeqError as error:
            if isinstance(error, DeadlineError):
                raise
            self.values, self.exact, self.met = before

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
            if not bool((recorded - found).abs().max() <= _NEAR * max(float(found.abs().max()), TINY)):
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

    def _included(self, step: Inclusion) -> None:
        """Evaluate what both variables of an inclusion become, in the values that were given.

        With v = z + g, whatever it is, the resolvent p of v exists and is alone, and v - p is a subgradient at p: the
        balls of p and v - p hold a pair that meets the inclusion.
        """
        env = replace(self.env, notes=self._notes(), cache={})
        found = [evaluate(formula, env) for formula in step.formulas]
        require_certain(env.notes)
        values = [_as_variable(variable, value) for variable, value in zip(step.variables, found, strict=True)]
        for variable, value in zip(step.variables, values, strict=True):
            self._keep(variable, value, value, [step.equation])
        names = {variable.name for variable in step.variables}
        if not names <= self.exact:  # one that floats hold is not known better than the other: both count as near
            self.exact -= names

    def _explicitly(self, step: Explicit) -> None:
        """Evaluate what a variable is equal to."""
        env = replace(self.env, notes=self._notes()).replaced(self.values)
        value = _as_variable(step.variable, evaluate(step.formula.expr, env))
        require_certain(env.notes)
        if step.equation.inclusion is not None:  # a gradient is a subgradient of a convex function: where this exists
            inside = replace(env, notes=self._notes()).replaced({**self.values, step.variable.name: value})
            evaluate(step.equation.right, inside)
            require_certain(inside.notes)
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
            raise UnprovenError(f"`{variable.name}` may lie outside its domain")
        self.values[variable.name] = value
        self.exact |= {variable.name} if exact else set()
        for equation in equations:
            solved = self.met.get(equation.place)
            self.met[equation.place] = variable.name if solved is None else f"{solved}, {variable.name}"

    def _jointly(self, joint: Joint, plan: Plan, start: Mapping[str, Tensor] | None) -> None:
        """Enclose the solution of a joint system near floats; without such only the instance as it is may solve it."""
        given = self.instance.values if start is None else start
        system = System(joint, plan, self._float_environment(), self._precise_environment(), given)
        coordinates = system.solution(exact=start is None)
        for place, variable in enumerate(joint.variables):
            known = system.value(place, coordinates)
            value = known if self.env.precision is not None else in_floats(known, self.env.like)
            self._keep(variable, value, known, joint.equations)


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


def _nonnegative(equation: Equation, name: str) -> bool:
    """Whether an equation says that a variable is something that has no negative entry."""
    sides = ((equation.left, equation.right), (equation.right, equation.left))
    return any(
        one.kind is Kind.NAME and one.name == name and other.kind is Kind.CALL and _without_negatives(other.name)
        for one, other in sides
    )


def _without_negatives(name: str) -> bool:
    """Whether a function that acts entry by entry has no negative value, whatever its argument."""
    function = FUNCTIONS[name]
    if function.entrywise is None or function.values is None:
        return False
    return function.values([Range()]).above(0, or_at=True)


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
        case DomainKind.NONNEGATIVE if by_form:
            return True
        case DomainKind.POSITIVE | DomainKind.NONNEGATIVE | DomainKind.INTERVAL:
            return _within(domain, low, high)
    return False


def _within(domain: Domain, low: arb, high: arb) -> bool:
    """Whether entries between two bounds lie in an interval for certain."""
    above = domain.low is None or bool(low > sc.exact(domain.low) if domain.low_open else low >= sc.exact(domain.low))
    below = domain.high is None or bool(
        high < sc.exact(domain.high) if domain.high_open else high <= sc.exact(domain.high)
    )
    return above and below


def _as_variable(variable: Free, found: object) -> Value:
    """Return what a variable is equal to, a number or a dense matrix as the variable is."""
    assert isinstance(found, Scalar | Matrix)
    if variable.type.sort is Sort.SCALAR:
        return ar.to_scalar(found)
    matrix = ar.to_matrix(found)
    return Matrix(densified(matrix.ball), matrix.scale)
