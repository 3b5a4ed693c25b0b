"""Which instances of the ladder a claim is judged on, and what stands in for those that fail its hypotheses.

Where `z == T(z)` has many solutions, what floats find near a draw shows one of them at most, often zero. So small
whole numbers are drawn for the solution, and the data solved for over the rationals (W of `W*z == z`); or T is applied
until its argument stays where it is. Only what meets every hypothesis for certain is judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice

import torch
from flint import fmpq, fmpq_mat
from torch import Tensor

from ntk_deq.certified.algebraic import UndecidedError
from ntk_deq.certified.algebraic_matrix import ExactMatrix
from ntk_deq.claims.claim import Claim
from ntk_deq.errors import ArgumentError, LimitError, NtkDeqError
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.convex.points import numbers_of
from ntk_deq.evaluation.environment import Notes, OutsideClaimError
from ntk_deq.evaluation.exact import value_of
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Outcome
from ntk_deq.falsify import instance_at
from ntk_deq.falsify.domains import choose, contains, stream
from ntk_deq.falsify.search.feasible import Repair
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Free
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.verify.boundary import plain_values, small_sizes
from ntk_deq.verify.equations import Equation
from ntk_deq.verify.equations.plan import Equations
from ntk_deq.verify.formulas import DRAWN_SHARE, exact_names, exact_value, instance_environment
from ntk_deq.verify.judge import Standing, hypotheses_fail, standing_instance
from ntk_deq.verify.options import Options
from ntk_deq.verify.twins import twin_of

TRAINED = 24
"""Instances of a claim in a universal setting, where each is a run; a quarter of it where data are drawn."""

DRAWN_LEAST = 8
"""And at least so many."""

MOVING = 0.25
"""What moving instances into the hypotheses may cost, of the default budget of a search."""

REPLACED = 8
"""Instances at most that are tried in the place of one that fails a hypothesis."""

IN_VAIN = 24
"""So many in a row that failed one as well, and a single one is tried from there on."""


def planned(claim: Claim, options: Options) -> list[tuple[Setting, int]]:
    """Return how many instances of the ladder each setting of a claim gets."""
    asked = claim.instances or options.instances
    count = asked or options.usual
    if claim.costly:
        return [(s, asked or min(count, TRAINED if s.universal else TRAINED // 4)) for s in claim.settings]
    return [(s, count if s.universal else min(count, max(DRAWN_LEAST, count // DRAWN_SHARE))) for s in claim.settings]


class Feasible:
    """Puts instances that meet a claim's hypotheses in the place of those that do not.

    Args:
        claim: The claim.
        options: How it is judged.
        deadline: When to give up, on the clock of `time.thread_time`, or None.
    """

    def __init__(self, claim: Claim, options: Options, deadline: float | None) -> None:
        self._claim, self._seed, self._judging = claim, options.seed, options.judging(deadline)
        self._repairs: dict[str, Repair] = {}
        self._vain: dict[str, int] = {}

    def __call__(self, setting: Setting, instance: Instance) -> Instance:
        """Return the instance, or the first one in its place on which no hypothesis certainly fails."""
        claim, how = self._claim, self._judging
        if not setting.universal or not claim.assume or not hypotheses_fail(claim, instance, **how):
            return instance
        if setting.name not in self._repairs:
            scorer = twin_of(claim).scorer(claim, setting, **how)
            effort = MOVING * scorer.budget
            self._repairs[setting.name] = Repair(setting, claim.given, scorer, self._seed, effort)
        vain = self._vain.get(setting.name, 0)
        for variant in islice(self._repairs[setting.name].candidates(instance), REPLACED if vain < IN_VAIN else 1):
            if not hypotheses_fail(claim, variant, **how):
                self._vain[setting.name] = 0
                return variant
            vain += 1
        self._vain[setting.name] = vain
        return instance


BUILDS, BUILT = 64, 8
"""Attempts to build an instance that solves the equations among the hypotheses, and how many of them are judged."""

_APPLIED = 12  # times that a map is applied until it stays where it is
_SOLVED_ENTRIES = 16  # of a variable that an equation is solved for over the rationals


def further_instances(
    claim: Claim, setting: Setting, numbers: range, seed: int, feasible: Feasible
) -> Iterator[Instance]:
    """Yield instances on which it is asked whether nothing exists: the ladder's next ones and, by turns, plain ones.

    Args:
        claim: The claim.
        setting: One of its settings.
        numbers: Those of the instances.
        seed: The run's seed.
        feasible: What puts instances that meet the hypotheses in the place of others.
    """
    free = {**setting.free, **claim.given}
    for index in numbers:
        instance = instance_at(setting, claim.given, index, seed)
        if setting.universal and setting.images is None and index % 2:
            generator = stream(seed, setting.name, index, "plain")
            sizes = small_sizes(setting, generator)
            with suppress(ArgumentError, LimitError):
                values = plain_values(free, sizes, generator)
                for name, value in values.items():  # what exists is often missing where several are zero at once
                    nothing = torch.zeros_like(value)
                    values[name] = nothing if choose(generator, 2) and contains(free[name].domain, nothing) else value
                instance = Instance(setting.name, "small whole numbers", sizes, values, index)
        yield feasible(setting, instance)


def exact_solutions(claim: Claim, setting: Setting, seed: int, deadline: float | None = None) -> Iterator[Instance]:
    """Yield instances that meet every hypothesis for certain and solve equations that may have many solutions.

    Args:
        claim: The claim.
        setting: One of its settings.
        seed: The run's seed.
        deadline: When to give up, on the clock of `time.thread_time`.

    Raises:
        DeadlineError: The deadline passed.
    """
    if claim.run is not None or not setting.universal:
        return
    equations = Equations(claim, setting)
    sizes = {letter: size.low for letter, size in setting.sizes.items()}
    joint = {e.place for plan in equations.plans(sizes) for system in plan.joint for e in system.equations}
    found = [e for e in equations.found if e.inclusion is None and (e.place in joint or _images(e, equations.free))]
    seen: set[str] = set()
    costly = any(equation.derives for equation in found)
    for number in range(0 if not found else BUILDS // 4 if costly else BUILDS):
        Notes(deadline=deadline).check_time()
        generator = stream(seed, setting.name, number, "solution")
        instance = None
        with suppress(NtkDeqError):
            instance = _solution(claim, setting, found, equations.free, number, generator)
        content = "" if instance is None else repr([value.tolist() for value in instance.values.values()])
        if instance is None or content in seen:
            continue
        seen.add(content)
        yield instance
        if len(seen) == BUILT:
            return


def _images(equation: Equation, free: Mapping[str, Free]) -> list[tuple[str, Expr]]:
    """Return z and T(z) of `z == T(z)`, for a variable z that T reads."""
    sides = ((equation.left, equation.right), (equation.right, equation.left))
    found = [(one.name, other) for one, other in sides if one.kind is Kind.NAME and one.name in free]
    return [(name, other) for name, other in found if any(node.name == name for node in other.walk())]


def _solution(
    claim: Claim,
    setting: Setting,
    equations: Sequence[Equation],
    movable: Mapping[str, Free],
    number: int,
    generator: torch.Generator,
) -> Instance | None:
    """Return an instance of small whole numbers that solves equations exactly; None where that does not come out."""
    free = {**setting.free, **claim.given}
    sizes = small_sizes(setting, generator)
    try:
        values = plain_values(free, sizes, generator)
    except (ArgumentError, LimitError):
        return None
    instance = Instance(setting.name, "equations solved by small whole numbers", sizes, values, number)
    for equation in equations:
        images, plain = _images(equation, movable), not equation.derives
        solved: Instance | None = None
        if plain and (not images or choose(generator, 3)):
            solved = _with_data(claim, instance, equation, [name for name, _ in images], movable, generator)
        elif images:
            solved = _applied(claim, instance, *images[0])
        if solved is None or any(not contains(free[name].domain, value) for name, value in solved.values.items()):
            return None
        if images and not solved.values[images[0][0]].any() and choose(generator, 8):  # zero solves too many
            return None
        instance = solved
    standing, same = standing_instance(claim, instance)
    kept = all(torch.equal(value, same.values[name]) for name, value in instance.values.items())
    return instance if standing is Standing.MET and kept else None


def _applied(claim: Claim, instance: Instance, name: str, image: Expr) -> Instance | None:
    """Return the instance with z in the place of a variable, where applying T to it again and again ends."""
    for _ in range(_APPLIED):
        value = instance.values[name]
        notes = Notes()
        env = instance_environment(claim, instance, device=torch.device("cpu"), dtype=torch.float64, notes=notes)
        try:
            found = evaluate(image, env)
        except NtkDeqError:
            return None
        if isinstance(found, Outcome) or notes.unsure:
            return None
        entries = [float(x.mid()) for x in numbers_of(found)]
        if not all(map(math.isfinite, entries)):
            return None
        moved = torch.tensor([_plain(x) for x in entries], dtype=torch.float64).reshape(value.shape)
        if torch.equal(moved, value):
            return instance
        instance = replace(instance, values={**instance.values, name: moved})
    return None


def _plain(number: float) -> float:
    """Return a number, the short binary fraction next to it where it nearly is one."""
    if abs(number) >= 2.0**40:  # a power that grows; its square need not be a float
        return number
    short = round(number * 2**12) / 2**12
    return short if abs(number - short) <= 1e-9 * max(1.0, abs(number)) else number


def _with_data(
    claim: Claim,
    instance: Instance,
    equation: Equation,
    held: Sequence[str],
    movable: Mapping[str, Free],
    generator: torch.Generator,
) -> Instance | None:
    """Return the instance with one variable changed so that an equation holds, which is affine in it near by."""
    names = exact_names(claim, instance)
    others = sorted((equation.names & movable.keys()) - {*held})
    if names is None or not others:
        return None
    name = others[choose(generator, len(others))]
    value = instance.values[name]
    size = value.numel()
    if size > _SOLVED_ENTRIES:
        return None

    def residual(at: Tensor) -> list[fmpq]:
        moved = names.replaced({name: exact_value(at)})
        found = value_of(equation.difference, moved)
        entries = found.entries if isinstance(found, ExactMatrix) else (found,)
        if not all(isinstance(entry, fmpq) for entry in entries):
            raise UndecidedError("a root")
        return [entry for entry in entries if isinstance(entry, fmpq)]

    try:
        here = residual(value)
        unit = torch.eye(size, dtype=torch.float64)
        columns = [residual(value + unit[k].reshape(value.shape)) for k in range(size)]
    except (UndecidedError, OutsideClaimError, TypeError):
        return None
    order = torch.randperm(size, generator=generator).tolist()
    rows = [[*(columns[k][i] - x for k in order), -x] for i, x in enumerate(here)]
    reduced, rank = fmpq_mat(len(rows), size + 1, [x for row in rows for x in row]).rref()
    steps = [0.0] * size
    for i in range(rank):
        pivot = next(j for j in range(size + 1) if reduced[i, j] != 0)
        step = reduced[i, size]
        if pivot == size or abs(step) > _LARGEST or 2**24 % int(step.q):
            return None
        steps[order[pivot]] = int(step.p) / int(step.q)
    moved = value + torch.tensor(steps, dtype=torch.float64).reshape(value.shape)
    return replace(instance, values={**instance.values, name: moved})


_LARGEST = 64  # a change of an entry that is solved for
