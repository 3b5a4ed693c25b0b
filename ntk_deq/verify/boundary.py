"""Small whole-number instances on which a hypothesis is an equality, by construction.

Where a paper writes <= for <, the only counterexamples may have a hypothesis and a conclusion tight at once. No draw
meets them, and no search in floats can tell them from the instances beside them. So small matrices of whole numbers and
halves are drawn, and a scalar, or the scale of a matrix, is solved for so that a weak hypothesis is an equality. All of
it is exact arithmetic; what comes out is judged like any other instance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from flint import arb
from torch import Tensor

from ntk_deq.certified import algebraic as al
from ntk_deq.certified.algebraic import UndecidedError, sign
from ntk_deq.claims.claim import Claim
from ntk_deq.claims.existence import names_behind
from ntk_deq.errors import ArgumentError, LimitError
from ntk_deq.evaluation.environment import Notes, OutsideClaimError
from ntk_deq.evaluation.exact import ExactNames, decided, value_of
from ntk_deq.evaluation.functions import exact_number
from ntk_deq.evaluation.instance import Instance, shape_of
from ntk_deq.evaluation.quantity import Truth
from ntk_deq.falsify.domains import choose, contains, is_cone, stream
from ntk_deq.falsify.exact_builders import BUILDERS, WILD
from ntk_deq.falsify.families import exact_family
from ntk_deq.falsify.scalars import scalar_ladder
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.verify.formulas import exact_names, exact_value

CANDIDATES = 600
"""Instances that are constructed for one setting; most fail a hypothesis, and none is judged for that."""

NETWORKS = 150
"""The same of networks, whose equilibria take a solve each."""

PASSING = 12
"""Instances on which the conclusions are true that are judged all the same: they show that the boundary was tried."""

OPEN = 8
"""Instances with a conclusion that exact arithmetic does not decide that are judged."""

_SCALARS = 10  # of the ladder of simple values
_PATTERNS = 5
_REACH = (1, 1, 2, 1, 2)  # of whole entries, by pattern
_SHORT = 2**24  # a scalar solved for has no longer numerator and denominator


@dataclass(frozen=True)
class Boundary:
    """Where the hypotheses of a claim can be tight, and which of its conclusions are strict.

    Attributes:
        claim: The claim.
    """

    claim: Claim

    @cached_property
    def links(self) -> tuple[Expr, ...]:
        """The weak comparisons of numbers that the hypotheses ask for, each of two sides."""
        found: list[Expr] = []
        for formula in self.claim.assume.values():
            found += self._weak(formula.expr)
        return tuple(found)

    @cached_property
    def weak(self) -> tuple[str, ...]:
        """The hypotheses that can be an equality."""
        return tuple(name for name, formula in self.claim.assume.items() if self._weak(formula.expr))

    @cached_property
    def strict(self) -> tuple[str, ...]:
        """The conclusions that an equality may break."""
        return tuple(name for name, formula in self.claim.conclude.items() if self._is_strict(formula.expr))

    def _weak(self, expr: Expr) -> list[Expr]:
        if expr.kind is Kind.AND:
            return [link for arg in expr.args for link in self._weak(arg)]
        if expr.kind is Kind.NAME and expr.name in self.claim.let:
            return self._weak(self.claim.let[expr.name].expr)
        return [replace(expr, args=(a, b), operators=(sign,)) for a, sign, b in expr.links if sign in ("<=", ">=")]

    def _is_strict(self, expr: Expr) -> bool:
        nodes = self.claim.nodes_behind(expr)
        return any(node.kind is Kind.NOT or bool({"<", ">", "!="} & set(node.operators)) for node in nodes)

    def names_in(self, expr: Expr) -> set[str]:
        """Return the names that a formula depends on, those of definitions included."""
        return names_behind(expr, {name: formula.expr for name, formula in self.claim.let.items()})


def boundary_instances(claim: Claim, setting: Setting, seed: int, deadline: float | None = None) -> Iterator[Instance]:
    """Yield instances that meet every hypothesis for certain, one of them, or the end of a domain, with equality.

    Those that break a conclusion all come; of those that do not, as many as `PASSING` and `OPEN` say.

    Args:
        claim: The claim.
        setting: One of its settings.
        seed: The run's seed.
        deadline: When to give up, on the clock of `time.thread_time`.

    Raises:
        DeadlineError: The deadline passed.
    """
    boundary = Boundary(claim)
    free = {**setting.free, **claim.given}
    closed = [name for name, variable in free.items() if _ends(variable.domain)]
    if claim.run is not None or not setting.universal or not boundary.strict or not (boundary.links or closed):
        return
    left = {Truth.TRUE: PASSING, Truth.UNSURE: OPEN}
    seen: set[str] = set()
    for number in range(CANDIDATES if setting.model is None else NETWORKS):
        Notes(deadline=deadline).check_time()
        found = _candidate(boundary, setting, free, number, stream(seed, setting.name, number, "boundary"))
        if found is None:
            continue
        instance, conclusions = found
        content = repr([value.tolist() for value in instance.values.values()])
        if content in seen:
            continue
        seen.add(content)
        if conclusions in left:
            left[conclusions] -= 1
            if left[conclusions] < 0:
                continue
        yield instance


def _candidate(
    boundary: Boundary, setting: Setting, free: Mapping[str, Free], number: int, generator: torch.Generator
) -> tuple[Instance, Truth] | None:
    """Return an instance on the boundary and the worst truth of a conclusion there; None where it meets no equality."""
    claim = boundary.claim
    sizes = small_sizes(setting, generator)
    common = choose(generator, 2 * _PATTERNS)  # in half of the candidates all tensors are of one pattern
    pattern = common if common < _PATTERNS else None
    try:
        values = {name: _drawn(name, variable, sizes, pattern, generator) for name, variable in free.items()}
    except (ArgumentError, LimitError):  # a domain without a member of this shape
        return None
    instance = Instance(setting.name, "boundary: small whole numbers", sizes, values, number)
    names = exact_names(claim, instance)
    if names is None:
        return None
    try:
        # What depends on an equilibrium, which takes a solve for each value, is not solved for.
        instance, solved = _tightened(boundary, instance, replace(names, near=None), free, generator)
        at_end = any(set(_ends(free[name].domain)) & set(v.flatten().tolist()) for name, v in instance.values.items())
        if not solved and not at_end:
            return None
        names = exact_names(claim, instance)
        assert names is not None  # the same sizes as before
        if any(decided(formula.expr, names).truth is Truth.FALSE for formula in claim.assume.values()):
            return None
    except (UndecidedError, OutsideClaimError):
        return None
    worst = _worst_conclusion(claim, names)
    return None if worst is None else (instance, worst)


def small_sizes(setting: Setting, generator: torch.Generator) -> dict[str, int]:
    """Return sizes near the lowest ones: 0 to 2 above, now and then 3."""
    return {
        letter: min(size.low + choose(generator, 3 if choose(generator, 4) else 4), size.high)
        for letter, size in setting.sizes.items()
    }


def plain_values(free: Mapping[str, Free], sizes: Mapping[str, int], generator: torch.Generator) -> dict[str, Tensor]:
    """Return simple values of variables, each of a pattern of its own.

    Raises:
        ArgumentError: A domain has no member of its shape.
    """
    return {name: _drawn(name, v, sizes, choose(generator, _PATTERNS), generator) for name, v in free.items()}


def _worst_conclusion(claim: Claim, names: ExactNames) -> Truth | None:
    """Return FALSE, UNSURE or TRUE: the worst of the conclusions; None where none has a value."""
    truths = []
    for formula in claim.conclude.values():
        try:
            truths.append(min(decided(formula.expr, names).truth, Truth.TRUE))
        except UndecidedError:
            truths.append(Truth.UNSURE)
        except OutsideClaimError:
            continue
    worst = min(truths, default=None)
    return Truth.TRUE if worst is Truth.TIGHT else worst


def _drawn(
    name: str, variable: Free, sizes: Mapping[str, int], pattern: int | None, generator: torch.Generator
) -> Tensor:
    """Return a simple value: of the ladder of scalars, of the structured families, or whole numbers and halves."""
    shape = shape_of(variable.type, sizes, name=name)
    domain = variable.domain
    if not shape:
        ladder = scalar_ladder(domain)
        return torch.tensor(ladder[choose(generator, min(len(ladder), _SCALARS))], dtype=torch.float64)
    if pattern is not None or choose(generator, 2):
        value = _whole(domain.kind, shape, choose(generator, _PATTERNS) if pattern is None else pattern, generator)
        if contains(domain, value):
            return value
    return exact_family(domain, shape, choose(generator, 13), generator)[1]


def _whole(kind: DomainKind, shape: tuple[int, ...], which: int, generator: torch.Generator) -> Tensor:
    """Return signs, numbers up to 1 or 2, a signed permutation or Hadamard matrix, perhaps halved."""
    if which == 3 and kind is DomainKind.REAL and len(shape) == 2:
        return BUILDERS["signed permutation"](shape, generator)
    if which == 4 and kind is DomainKind.REAL and len(shape) == 2:
        return WILD["Hadamard"](shape, generator)
    value = torch.randint(-_REACH[which], _REACH[which] + 1, shape, generator=generator).to(torch.float64)
    if which == 0:
        value = torch.where(value == 0, 1.0, value)
    if choose(generator, 4) == 0:
        value[1 + choose(generator, shape[0]) :] = 0  # of low rank
    if kind in (DomainKind.NONNEGATIVE, DomainKind.POSITIVE):
        value = value.abs()
    elif kind in (DomainKind.SYMMETRIC, DomainKind.SKEW):
        upper = value.triu(1)
        value = upper - upper.T if kind is DomainKind.SKEW else value.triu() + upper.T
    elif kind is DomainKind.DIAGONAL:
        value = torch.diag(torch.diagonal(value))
    return value * 0.5 if is_cone(Domain(kind)) and choose(generator, 4) == 0 else value


def _ends(domain: Domain) -> tuple[float, ...]:
    """Return the ends that belong to an interval."""
    if domain.kind is DomainKind.INTEGER:
        return ()
    ends = ((domain.low, domain.low_open), (domain.high, domain.high_open))
    return tuple(float(end) for end, is_open in ends if end is not None and not is_open and float(end) == end)


def _tightened(
    boundary: Boundary, instance: Instance, names: ExactNames, free: Mapping[str, Free], generator: torch.Generator
) -> tuple[Instance, bool]:
    """Solve for variables, one for each of some hypotheses, so that these are equalities; say whether one is."""
    held: set[str] = set()
    links = [boundary.links[i] for i in torch.randperm(len(boundary.links), generator=generator).tolist()]
    for link in links:
        if len(links) > 1 and choose(generator, 3) == 0:
            continue
        uses = boundary.names_in(link) & free.keys()
        movable = sorted(uses - held)
        for place in torch.randperm(len(movable), generator=generator).tolist():
            name = movable[place]
            solved = _solved(link, names, name, instance.values[name], free[name].domain)
            if solved is not None:
                instance = replace(instance, values={**instance.values, name: solved})
                names = names.replaced({name: exact_value(solved)})
                held |= uses
                break
    return instance, bool(held)


def _solved(link: Expr, names: ExactNames, name: str, value: Tensor, domain: Domain) -> Tensor | None:
    """Return a scalar, or a multiple of a tensor, with which the two sides of a comparison are equal; None: none found.

    The margin is taken to be a + b f(s) for f(s) = s, s^2 or 1/s, which two values of s give; whether the sides are
    equal at the solution is then decided exactly.
    """
    unit = value if value.ndim else torch.ones((), dtype=torch.float64)
    if not bool(unit.any()) or (value.ndim and not is_cone(domain)):
        return None

    def margin(at: float) -> al.Number:
        moved = names.replaced({name: exact_value(at * unit)})
        left, right = (exact_number(value_of(side, moved)) for side in link.args)
        return right - left

    try:
        at_one, at_two = margin(1.0), margin(2.0)
        change = al.enclosure(at_two - at_one, _BITS)
        for at_second, back in _SHAPES:
            share = al.enclosure(at_one, _BITS) * (at_second - 1) / change
            solution = _short(back(1 - share))
            if solution is None or not contains(domain, solution * unit):
                continue
            if sign(margin(solution)) == 0:
                return solution * unit
    except (UndecidedError, OutsideClaimError):
        pass
    return None


_BITS = 128
_SHAPES: tuple[tuple[float, Callable[[arb], arb]], ...] = (
    (2.0, lambda x: x),
    (4.0, lambda x: x.sqrt()),
    (0.5, lambda x: 1 / x),
)
"""For f(s) = s, s^2, 1/s, all 1 at s = 1: f(2), and s as a function of f(s)."""


def _short(ball: arb) -> float | None:
    """Return the short binary fraction that a ball contains, or None."""
    if not ball.is_finite():
        return None
    number = float((ball.mid() * _SHORT + arb(0.5)).floor()) / _SHORT
    return number if number != 0 and abs(number) < _SHORT and ball.overlaps(arb(number)) else None
