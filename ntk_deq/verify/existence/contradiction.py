"""That nothing meets constraints: they contradict themselves over the rationals.

Linear ones are decided, and a point is given that meets them. Equations are eliminated first: a row 0 = c with c != 0
is what rank[A, b] > rank A says. The inequalities left are solved for the largest slack that all of them can have, by
the simplex method with Bland's rule. Where it is negative, multipliers y >= 0 with sum y_i (a_i x - b_i) a negative
constant show that nothing meets them (Farkas); they are checked by adding up, so that nothing rests on how they were
found. Of a matrix that must be semidefinite, directions v with v'Xv >= 0 are added as long as the point found breaks
one.

Beyond that, a combination of equations, and of bounds with factors that are not negative, that is below zero everywhere
shows that nothing meets them: as a quadratic form in (1, x) it is negative definite. Multipliers are looked for in
floats, and the combination is checked over the rationals.

References:
    Chvatal, Linear Programming, 1983, chapters 2, 3 and 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from flint import fmpq, fmpq_mat

from ntk_deq.verify.existence import Bound, Constraints, Semidefinite, linear_form, quadratic_form

MOST_PIVOTS = 400
MOST_ROWS = 160
_LONGEST = 4000  # bits of a number, beyond which pivots take too long

ZERO = fmpq(0)


@dataclass(frozen=True)
class Row:
    """An inequality: coefficients times x at least the bound, or more where it is strict."""

    coefficients: tuple[fmpq, ...]
    bound: fmpq
    strict: bool = False


@dataclass(frozen=True)
class LinearOutcome:
    """What is known of a system.

    Attributes:
        point: A point that meets it, or None.
        contradiction: Which equations and which inequalities contradict each other; None where none is known to.
        alone: Whether the point is the only one that meets the equations.
    """

    point: list[fmpq] | None = None
    contradiction: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    alone: bool = False


def solve_linear(equations: Sequence[tuple[Sequence[fmpq], fmpq]], rows: Sequence[Row], count: int) -> LinearOutcome:
    """Return a point that meets equations a x = b and inequalities, or what contradicts itself among them.

    Args:
        equations: Coefficients and right sides.
        rows: The inequalities.
        count: How many unknowns there are.

    Example:
        >>> one, two = fmpq(1), fmpq(2)
        >>> solve_linear([((one, one), one), ((two, two), one)], [], 2).contradiction
        ((0, 1), ())
        >>> solve_linear([((one, one), two)], [Row((one, ZERO), one, strict=True)], 2).point
        [2, 0]
    """
    affine = _solutions(equations, count)
    if affine is None:
        return LinearOutcome(contradiction=(_contradicting(equations, count), ()))
    base, basis = affine
    left = [_moved(row, base, basis) for row in rows]
    if not left:
        return LinearOutcome(base, alone=not basis)
    found = _most_slack(left, len(basis))
    if found is None:
        return LinearOutcome()
    slack, values, multipliers = found
    used = tuple(k for k, y in enumerate(multipliers) if y != 0)
    if slack < 0 or (slack == 0 and any(left[k].strict for k in used)):
        if not _contradicts(left, multipliers, len(basis)):
            return LinearOutcome()
        return LinearOutcome(contradiction=(tuple(range(len(equations))), used))
    if slack == 0:  # what the multipliers add up are equalities wherever all are met
        more = [(rows[k].coefficients, rows[k].bound) for k in used]
        rest = [row for k, row in enumerate(rows) if k not in used]
        inner = solve_linear([*equations, *more], rest, count) if used else LinearOutcome()
        if inner.contradiction is None:
            return inner
        places = [k for k in range(len(rows)) if k not in used]
        lines = tuple(k for k in inner.contradiction[0] if k < len(equations))
        return LinearOutcome(contradiction=(lines, (*used, *(places[k] for k in inner.contradiction[1]))))
    point = _combined([fmpq(1), *values], [base, *basis], count)
    return LinearOutcome(point, alone=not basis)


def _combined(weights: Sequence[fmpq], vectors: Sequence[Sequence[fmpq]], count: int) -> list[fmpq]:
    """Return the sum of vectors of some length with weights."""
    return [sum((w * v[k] for w, v in zip(weights, vectors, strict=True)), ZERO) for k in range(count)]


def _solutions(
    equations: Sequence[tuple[Sequence[fmpq], fmpq]], count: int
) -> tuple[list[fmpq], list[list[fmpq]]] | None:
    """Return a solution of equations and the directions to all others; None where they contradict each other."""
    whole = fmpq_mat(len(equations), count + 1, [e for a, b in equations for e in (*a, b)])
    reduced, rank = whole.rref()
    pivots = [next(j for j in range(count + 1) if reduced[i, j] != 0) for i in range(rank)]
    if count in pivots:
        return None
    point = [ZERO] * count
    for i, j in enumerate(pivots):
        point[j] = reduced[i, count]
    directions = []
    for free in (k for k in range(count) if k not in pivots):
        direction = [fmpq(int(k == free)) for k in range(count)]
        for i, j in enumerate(pivots):
            direction[j] = -reduced[i, free]
        directions.append(direction)
    return point, directions


def _contradicting(equations: Sequence[tuple[Sequence[fmpq], fmpq]], count: int) -> tuple[int, ...]:
    """Return equations a combination of which says 0 = c with c != 0: multipliers y with y A = 0 and y b = 1."""
    rows, sides = [(*a, b) for a, b in equations], [*[ZERO] * count, fmpq(1)]
    y, _ = _solutions(list(zip(zip(*rows, strict=True), sides, strict=True)), len(rows)) or ([ZERO] * len(rows), [])
    if _combined(y, rows, count + 1) != sides:
        raise ArithmeticError("multipliers of equations without a solution were not found")
    return tuple(i for i in range(len(rows)) if y[i] != 0)


def _moved(row: Row, base: Sequence[fmpq], basis: Sequence[Sequence[fmpq]]) -> Row:
    """Return an inequality in the coordinates of the solutions of the equations."""
    there = sum((a * b for a, b in zip(row.coefficients, base, strict=True)), ZERO)
    along = (sum((a * d for a, d in zip(row.coefficients, step, strict=True)), ZERO) for step in basis)
    return Row(tuple(along), row.bound - there, row.strict)


def _contradicts(rows: Sequence[Row], multipliers: Sequence[fmpq], count: int) -> bool:
    """Whether multipliers show that nothing meets all rows."""
    if any(y < 0 for y in multipliers) or not any(multipliers):
        return False
    *zero, bound = _combined(multipliers, [(*row.coefficients, row.bound) for row in rows], count + 1)
    if any(zero):
        return False
    strict = any(y != 0 and row.strict for y, row in zip(multipliers, rows, strict=True))
    return bool(bound > 0) or (bool(bound == 0) and strict)


def _most_slack(rows: Sequence[Row], count: int) -> tuple[fmpq, list[fmpq], list[fmpq]] | None:
    """Return the largest s <= 1 with a t - b >= s for some t and all rows, that t, and the multipliers of the rows.

    With t = u - v, s = 1 - w and u, v, w >= 0, slack i is b_i' + a_i (u - v) + w with b_i' = -b_i - 1, and -w is made
    large. None where it takes too long.
    """
    if len(rows) > MOST_ROWS:
        return None
    last = 2 * count  # the place of w among the variables that are zero
    outside = list(range(2 * count + 1))  # names of the variables that are zero; slacks are named behind them
    inside = [2 * count + 1 + i for i in range(len(rows))]
    table = [[*row.coefficients, *(-a for a in row.coefficients), fmpq(1)] for row in rows]
    constants = [-row.bound - 1 for row in rows]
    goal, height = [ZERO] * (2 * count) + [fmpq(-1)], ZERO
    w = last

    def pivot(leaving: int, entering: int) -> None:
        nonlocal height
        line, factor = table[leaving], table[leaving][entering]
        inside[leaving], outside[entering] = outside[entering], inside[leaving]
        new = [-a / factor for a in line]
        new[entering] = 1 / factor
        constant = -constants[leaving] / factor
        table[leaving], constants[leaving] = new, constant
        for k, other in enumerate(table):
            if k != leaving and other[entering] != 0:
                scale = other[entering]
                table[k] = [a + scale * b for a, b in zip(other, new, strict=True)]
                table[k][entering] = scale * new[entering]
                constants[k] += scale * constant
        scale = goal[entering]
        if scale != 0:
            height += scale * constant
            moved = [a + scale * b for a, b in zip(goal, new, strict=True)]
            moved[entering] = scale * new[entering]
            goal[:] = moved

    worst = min(range(len(rows)), key=lambda i: constants[i])
    if constants[worst] < 0:
        pivot(worst, last)
    for _ in range(MOST_PIVOTS):
        rising = [k for k in range(len(goal)) if goal[k] > 0]
        if not rising:
            break
        entering = min(rising, key=lambda k: outside[k])
        falling = [i for i in range(len(table)) if table[i][entering] < 0]
        if not falling:
            return None
        least = min(constants[i] / -table[i][entering] for i in falling)
        ties = [i for i in falling if constants[i] / -table[i][entering] == least]
        # w leaves where it can: then the slack is 1
        leaving = min(ties, key=lambda i: (inside[i] != w, inside[i]))
        pivot(leaving, entering)
        if max(abs(int(c.p)).bit_length() for c in constants) > _LONGEST:
            return None
    else:
        return None
    values = {name: constants[i] for i, name in enumerate(inside)}
    point = [values.get(k, ZERO) - values.get(count + k, ZERO) for k in range(count)]
    multipliers = [ZERO] * len(rows)
    for k, name in enumerate(outside):
        if name > last:
            multipliers[name - last - 1] = -goal[k]
    return 1 + height, point, multipliers


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
    values = [[entry(*point) for entry in row] for row in matrix.entries]
    floats = torch.tensor([[int(v.p) / int(v.q) for v in row] for row in values], dtype=torch.float64)
    roots, vectors = torch.linalg.eigh((floats + floats.T) / 2)
    if not float(roots[0]) < 0:
        return []
    direction = [fmpq(round(entry * _GRID), _GRID) for entry in vectors[:, 0].tolist()]
    value = sum((direction[i] * direction[j] * values[i][j] for i in range(order) for j in range(order)), ZERO)
    return [matrix.along(direction)] if value < 0 else []


def contradicting_combination(found: Constraints) -> Contradiction | None:
    """Return constraints a combination of which is negative everywhere, or None where none is found.

    Args:
        found: The constraints of an instance.
    """
    count = found.unknowns
    bounds = [
        *found.bounds,
        *(b for matrix in found.semidefinite for b in _first_directions(matrix) if linear_form(b.form, count)),
    ]
    forms = [(form, names, False) for form, names in found.equations]
    forms += [(bound.form, bound.names, True) for bound in bounds]
    if not forms or len(forms) > _MOST_FORMS or all(linear_form(form, count) is not None for form, _, _ in forms):
        return None
    matrices = [quadratic_form(form, count) for form, _, _ in forms]
    curved = [k for k in range(1, count + 1) if any(m[k, j] != 0 for m in matrices for j in range(1, count + 1))]
    flat = [k for k in range(1, count + 1) if k not in curved]
    # Multipliers for which unknowns that have no square anywhere cancel.
    _, basis = _solutions([([matrix[0, k] for matrix in matrices], ZERO) for k in flat], len(matrices)) or ([], [])
    if not basis:
        return None
    kept = [0, *curved]
    inner = [[matrix[i, j] for i in kept for j in kept] for matrix in matrices]
    combined = [_combined(step, inner, len(kept) ** 2) for step in basis]
    signs = [k for k, (_, _, positive) in enumerate(forms) if positive]
    weights = _negative_weights(combined, len(kept), [[step[k] for k in signs] for step in basis])
    if weights is None:
        return None
    multipliers = _combined(weights, basis, len(forms))
    if any(multipliers[k] < 0 for k in signs):
        return None
    total = _combined(multipliers, [matrix.entries() for matrix in matrices], (count + 1) ** 2)
    whole = fmpq_mat(count + 1, count + 1, total)
    if any(whole[i, j] != 0 for i in flat for j in range(count + 1)):
        return None
    if not _negative_definite([[whole[i, j] for j in kept] for i in kept]):
        return None
    names = frozenset[str]().union(*(names for (_, names, _), y in zip(forms, multipliers, strict=True) if y != 0))
    return Contradiction(names, "a combination of its equations and bounds is a quadratic form that is never zero")


def _negative_weights(
    combined: Sequence[Sequence[fmpq]], order: int, signs: Sequence[Sequence[fmpq]]
) -> list[fmpq] | None:
    """Return weights whose combination looks negative definite, with multipliers of bounds that are not negative."""
    try:
        stack = torch.tensor([[int(e.p) / int(e.q) for e in m] for m in combined], dtype=torch.float64).reshape(
            -1, order, order
        )
        positive = torch.tensor([[int(e.p) / int(e.q) for e in row] for row in signs], dtype=torch.float64)
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
    """Whether a symmetric rational matrix is negative definite: the leading minors of its negative are positive."""
    return all(fmpq_mat([[-entry for entry in row[:k]] for row in rows[:k]]).det() > 0 for k in range(1, len(rows) + 1))
