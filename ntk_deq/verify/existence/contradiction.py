"""That nothing meets constraints: they contradict themselves over the rationals, or no numbers do, by proof.

Linear ones are decided (`linear.py`), and a point is given that meets them; of a matrix that must be semidefinite,
directions v with v'Xv >= 0 are added as long as the point found breaks one. Beyond that, a combination of equations,
and of bounds with factors that are not negative, that is below zero everywhere shows that nothing meets them: as a
quadratic form in (1, x) it is negative definite. Multipliers are looked for in floats, and the combination is checked
over the rationals.

That no numbers exist on an instance is shown by the proofs of claims about numbers (`ntk_deq.prove`). What does not
rest on the numbers that are looked for is put in as the fraction that it is on the instance; then no point meets the
conclusions, by exact algebra or by branch and bound over the whole domain, or nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

import torch
from flint import fmpq, fmpq_mat

from ntk_deq.certified.algebraic import UndecidedError
from ntk_deq.certified.algebraic_matrix import ExactMatrix
from ntk_deq.claims.claim import Claim, Verdict
from ntk_deq.evaluation.environment import OutsideClaimError
from ntk_deq.evaluation.exact import ExactNames, decided, value_of
from ntk_deq.evaluation.functions import ExactValue as Value
from ntk_deq.evaluation.quantity import Truth
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import DomainKind
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import Expr, Formula, Kind, names_in
from ntk_deq.language.types import SCALAR, Sort
from ntk_deq.language.typing import infer
from ntk_deq.verify.existence import Bound, Constraints, Semidefinite, linear_form, quadratic_form
from ntk_deq.verify.existence.linear import ZERO, Row, solve_linear
from ntk_deq.verify.prover import prove_claim

_CUTS = 24
"""Directions along which matrices are asked to be semidefinite, one after the other."""

_GRID = 2**20  # of the entries of a direction, and of multipliers
_ROUNDS = 80  # of the search for multipliers
_CLEAR = 1e-7  # by how much the largest eigenvalue must be below zero to be checked exactly
_MOST_FORMS = 64


@dataclass(frozen=True)
class Contradiction:
    """Conclusions that nothing meets together; `names` is empty where domains alone are empty.

    Attributes:
        names: The conclusions.
        why: The argument in words.
    """

    names: frozenset[str]
    why: str


@dataclass(frozen=True)
class Point:
    """A point that meets the linear constraints.

    Attributes:
        entries: Its coordinates.
        alone: The conclusions whose equations leave no other point, or None where there are others.
    """

    entries: list[fmpq]
    alone: frozenset[str] | None


def linear_point(found: Constraints) -> Point | Contradiction | None:
    """Return a point that meets the linear constraints, what contradicts itself among them, or None: neither is known.

    Args:
        found: The constraints of an instance.
    """
    count = found.unknowns
    equations, equation_names = list[tuple[list[fmpq], fmpq]](), list[frozenset[str]]()
    for form, names in found.equations:
        linear = linear_form(form, count)
        if linear is not None:
            equations.append((linear[0], -linear[1]))
            equation_names.append(names)
    bounds = [bound for bound in found.bounds if linear_form(bound.form, count) is not None]
    bounds += [bound for matrix in found.semidefinite for bound in _first_directions(matrix)]
    for _ in range(_CUTS):
        outcome = solve_linear(equations, [_row(bound, count) for bound in bounds], count)
        if outcome.contradiction is not None:
            lines, rows = outcome.contradiction
            names = frozenset[str]().union(*(equation_names[k] for k in lines), *(bounds[k].names for k in rows))
            return Contradiction(names, _words(bool(lines), bool(rows)))
        if outcome.point is None:
            return None
        cuts = [cut for matrix in found.semidefinite for cut in _broken(matrix, outcome.point)]
        if not cuts:
            break
        bounds += cuts
    assert outcome.point is not None  # or else it has returned
    return Point(outcome.point, frozenset[str]().union(*equation_names) if outcome.alone else None)


def _words(equations: bool, bounds: bool) -> str:
    if not bounds:
        return "its linear equations contradict each other: the rank with the right side is larger than without"
    what = "linear equations and bounds" if equations else "linear bounds"
    return f"its {what} contradict each other: multiples of them add up to 0 <= c with c < 0"


def _row(bound: Bound, count: int) -> Row:
    linear = linear_form(bound.form, count)
    assert linear is not None  # nothing else is asked for
    return Row(tuple(linear[0]), -linear[1], bound.strict)


def _first_directions(matrix: Semidefinite) -> list[Bound]:
    """Return what a matrix that is semidefinite says of its diagonal and of each pair of its rows."""
    order = len(matrix.entries)
    unit = [[fmpq(int(i == k)) for i in range(order)] for k in range(order)]
    pairs = [(i, j, s) for i in range(order) for j in range(i) for s in (1, -1)]
    return [
        matrix.along(v)
        for v in [*unit, *([a + s * b for a, b in zip(unit[i], unit[j], strict=True)] for i, j, s in pairs)]
    ]


def _broken(matrix: Semidefinite, point: Sequence[fmpq]) -> list[Bound]:
    """Return a direction along which a matrix has a negative value at a point, if it has one that shows in floats."""
    order = len(matrix.entries)
    values = [[_at(entry, point) for entry in row] for row in matrix.entries]
    floats = torch.tensor([[float(v.p) / float(v.q) for v in row] for row in values], dtype=torch.float64)
    roots, vectors = torch.linalg.eigh((floats + floats.T) / 2)
    if not float(roots[0]) < 0:
        return []
    direction = [fmpq(round(entry * _GRID), _GRID) for entry in vectors[:, 0].tolist()]
    value = sum((direction[i] * direction[j] * values[i][j] for i in range(order) for j in range(order)), ZERO)
    return [matrix.along(direction)] if value < 0 else []


def _at(entry: object, point: Sequence[fmpq]) -> fmpq:
    linear = linear_form(entry, len(point))  # type: ignore[arg-type]
    if linear is None:
        return ZERO
    return sum((a * x for a, x in zip(linear[0], point, strict=True)), linear[1])


def contradicting_combination(found: Constraints) -> Contradiction | None:
    """Return constraints a combination of which is negative everywhere, or None where none is found.

    Args:
        found: The constraints of an instance.
    """
    count = found.unknowns
    bounds = [
        *found.bounds,
        *(bound for matrix in found.semidefinite for bound in _first_directions(matrix) if _plain(bound, count)),
    ]
    forms = [(form, names, False) for form, names in found.equations]
    forms += [(bound.form, bound.names, True) for bound in bounds]
    if not forms or len(forms) > _MOST_FORMS or all(linear_form(form, count) is not None for form, _, _ in forms):
        return None
    matrices = [quadratic_form(form, count) for form, _, _ in forms]
    curved = [k for k in range(1, count + 1) if any(m[k, j] != 0 for m in matrices for j in range(1, count + 1))]
    flat = [k for k in range(1, count + 1) if k not in curved]
    basis = _without(matrices, flat)
    if not basis:
        return None
    kept = [0, *curved]
    combined = [
        [sum((y * m[i, j] for y, m in zip(step, matrices, strict=True)), ZERO) for i in kept for j in kept]
        for step in basis
    ]
    signs = [k for k, (_, _, positive) in enumerate(forms) if positive]
    weights = _negative_weights(combined, len(kept), [[step[k] for k in signs] for step in basis])
    if weights is None:
        return None
    multipliers = [sum((w * step[k] for w, step in zip(weights, basis, strict=True)), ZERO) for k in range(len(forms))]
    if any(multipliers[k] < 0 for k in signs):
        return None
    total = [
        sum((y * m[i, j] for y, m in zip(multipliers, matrices, strict=True)), ZERO)
        for i in range(count + 1)
        for j in range(count + 1)
    ]
    whole = fmpq_mat(count + 1, count + 1, total)
    if any(whole[i, j] != 0 for i in flat for j in range(count + 1)):
        return None
    if not _negative_definite([[whole[i, j] for j in kept] for i in kept]):
        return None
    names = frozenset[str]().union(*(names for (_, names, _), y in zip(forms, multipliers, strict=True) if y != 0))
    return Contradiction(names, "a combination of its equations and bounds is a quadratic form that is never zero")


def _plain(bound: Bound, count: int) -> bool:
    return linear_form(bound.form, count) is not None


def _without(matrices: Sequence[fmpq_mat], flat: Sequence[int]) -> list[list[fmpq]]:
    """Return a basis of the multipliers for which unknowns that have no square anywhere cancel."""
    high = len(matrices)
    if not flat:
        return [[fmpq(int(i == k)) for i in range(high)] for k in range(high)]
    whole = fmpq_mat(len(flat), high, [matrices[j][0, k] for k in flat for j in range(high)])
    reduced, rank = whole.rref()
    pivots = [next(j for j in range(high) if reduced[i, j] != 0) for i in range(rank)]
    basis = []
    for free in (k for k in range(high) if k not in pivots):
        step = [fmpq(int(k == free)) for k in range(high)]
        for i, j in enumerate(pivots):
            step[j] = -reduced[i, free]
        basis.append(step)
    return basis


def _float(number: fmpq) -> float:
    return float(int(number.p)) / float(int(number.q))


def _negative_weights(
    combined: Sequence[Sequence[fmpq]], order: int, signs: Sequence[Sequence[fmpq]]
) -> list[fmpq] | None:
    """Return weights whose combination looks negative definite, with multipliers of bounds that are not negative."""
    try:
        stack = torch.tensor([[_float(e) for e in m] for m in combined], dtype=torch.float64).reshape(-1, order, order)
        positive = torch.tensor([[_float(e) for e in row] for row in signs], dtype=torch.float64)
    except (OverflowError, ZeroDivisionError):
        return None
    sizes = torch.linalg.matrix_norm(stack).clamp_min(1e-300)
    stack, positive = stack / sizes[:, None, None], positive / sizes[:, None]
    for start in (
        -torch.einsum("kii->k", stack),
        *torch.randn((1, len(stack)), dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
    ):
        weights = start.clone()
        for k in range(_ROUNDS):
            weights = weights / torch.linalg.vector_norm(weights).clamp_min(1e-300)
            roots, vectors = torch.linalg.eigh(torch.einsum("k,kij->ij", weights, stack))
            below = positive.T @ weights if positive.numel() else weights.new_ones(1)
            if float(roots[-1]) < -_CLEAR and float(below.min()) >= 0:
                scaled = (weights / sizes).tolist()
                largest = max(abs(w) for w in scaled)
                return [fmpq(*(w / largest).as_integer_ratio()) for w in scaled]
            top = vectors[:, -1]
            slope = torch.einsum("kij,i,j->k", stack, top, top)
            if positive.numel() and float(below.min()) < 0:
                slope = slope - positive[:, below.argmin()]
            weights = weights - slope / torch.linalg.vector_norm(slope).clamp_min(1e-300) * (1.0 / (k + 2) ** 0.5)
    return None


def _negative_definite(rows: list[list[fmpq]]) -> bool:
    """Whether a symmetric rational matrix is negative definite, by elimination."""
    rows = [[-entry for entry in row] for row in rows]
    while rows:
        pivot = rows[0][0]
        if not pivot > 0:
            return False
        rows = [
            [rows[i][j] - rows[i][0] * rows[0][j] / pivot for j in range(1, len(rows))] for i in range(1, len(rows))
        ]
    return True


_BOXES, _CHOICES = 400, 256
_NEVER = "1 < 0"


def contradicting_numbers(
    claim: Claim, names: ExactNames, setting: Setting, *, deadline: float | None = None
) -> Contradiction | None:
    """Return the conclusions that no numbers meet together, where that is proven.

    Args:
        claim: The claim as stated; other variables than numbers are left alone.
        names: What its other names mean on the instance.
        setting: The setting of the instance.
        deadline: When to stop, on the clock of `time.thread_time`.

    Raises:
        DeadlineError: The deadline passed.
    """
    if any(free.type != SCALAR for free in claim.exists.values()):
        return None
    lets = {name: formula.expr for name, formula in claim.let.items()}
    resting = sorted(claim.resting)
    try:
        assume = {name: _put(claim.conclude[name].expr, claim.exists, lets, names) for name in resting}
    except (UndecidedError, OutsideClaimError):
        return None
    position = claim.position
    never = Formula("never", _NEVER, infer(parse(_NEVER), {}), position)
    alone = Setting("numbers", None, {}, dict(claim.exists), {}, None, position)
    about = replace(
        claim,
        settings=(alone,),
        given={},
        exists={},
        let={},
        assume={name: Formula(name, "", expr, position) for name, expr in assume.items()},
        conclude={"never": never},
    )
    proof = prove_claim(about, budget=_BOXES, deadline=deadline)
    if proof is None or proof.verdict is not Verdict.VACUOUS:
        return None
    return Contradiction(frozenset(resting), proof.reason.replace("the hypotheses", "the conclusions"))


def whole_numbers(claim: Claim) -> Iterator[dict[str, Value]]:
    """Yield all choices of what exists where these are whole numbers of short ranges, and few.

    Args:
        claim: The claim as stated.
    """
    frees = claim.exists.values()
    if not all(free.domain.kind is DomainKind.INTEGER and free.type == SCALAR for free in frees):
        return
    ranges = [range(int(free.domain.low or 0), int(free.domain.high or 0) + 1) for free in frees]
    if math.prod(map(len, ranges)) > _CHOICES:
        return
    for choice in product(*ranges):
        yield dict(zip(claim.exists, (fmpq(number) for number in choice), strict=True))


def broken_alone(
    claim: Claim, names: ExactNames, values: Mapping[str, Value], equations: frozenset[str]
) -> Contradiction | None:
    """Return the conclusion that the only values which meet linear equations break, decided exactly, or None.

    Args:
        claim: The claim as stated.
        names: What its other names mean on the instance.
        values: The values.
        equations: The conclusions that the equations stand in.
    """
    there = replace(names, values={**names.values, **values}, known={})
    for name in sorted(claim.resting):
        try:
            if decided(claim.conclude[name].expr, there).truth is Truth.FALSE:
                why = f"its linear equations have one solution, and {name!r} breaks there"
                return Contradiction(equations | {name}, why)
        except (UndecidedError, OutsideClaimError):
            continue
    return None


def contradicting_whole_numbers(claim: Claim, names: ExactNames) -> Contradiction | None:
    """Return the conclusions that no choice of few whole numbers meets together, each decided exactly.

    Args:
        claim: The claim as stated.
        names: What its other names mean on the instance.
    """
    choices = list(whole_numbers(claim))
    for values in choices:
        there = replace(names, values={**names.values, **values}, known={})
        try:
            if not any(decided(claim.conclude[n].expr, there).truth is Truth.FALSE for n in sorted(claim.resting)):
                return None
        except (UndecidedError, OutsideClaimError):
            return None
    if not choices:
        return None
    return Contradiction(claim.resting, f"each of {len(choices)} choices of whole numbers breaks one for certain")


def _put(expr: Expr, exists: Mapping[str, object], lets: Mapping[str, Expr], names: ExactNames) -> Expr:
    """Return a formula in which all that rests on no unknown is a number, and definitions are written out."""
    if expr.kind is Kind.NAME and expr.name in lets:
        return _put(lets[expr.name], exists, lets, names)
    if not _reached(expr, lets) & exists.keys():
        if expr.type is not None and expr.type.sort is not Sort.BOOLEAN:
            return _number(expr, names)
    return replace(expr, args=tuple(_put(arg, exists, lets, names) for arg in expr.args)) if expr.args else expr


def _reached(expr: Expr, lets: Mapping[str, Expr]) -> set[str]:
    found, queue = set[str](), [expr]
    while queue:
        for name in names_in(queue.pop()) - found:
            found.add(name)
            if name in lets:
                queue.append(lets[name])
    return found


def _number(expr: Expr, names: ExactNames) -> Expr:
    value = value_of(expr, names)
    number = value.entries[0] if isinstance(value, ExactMatrix) and value.shape == (1, 1) else value
    if not isinstance(number, fmpq):
        raise UndecidedError("no fraction")
    fraction = Fraction(int(number.p), int(number.q))
    if fraction < 0:
        positive = Expr(Kind.NUMBER, expr.span, value=-fraction, type=SCALAR)
        return Expr(Kind.NEGATE, expr.span, (positive,), type=SCALAR)
    return Expr(Kind.NUMBER, expr.span, value=fraction, type=SCALAR)
