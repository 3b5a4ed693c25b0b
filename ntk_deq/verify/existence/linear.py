"""Linear equations and inequalities over the rationals: a point that meets them, or multipliers that contradict them.

Equations are eliminated first: a row 0 = c with c != 0 is what rank[A, b] > rank A says. The inequalities left are
solved for the largest slack that all of them can have, by the simplex method with Bland's rule. Where it is negative,
multipliers y >= 0 with sum y_i (a_i x - b_i) a negative constant show that nothing meets them (Farkas); they are
checked by adding up, so that nothing rests on how they were found.

References:
    Chvatal, Linear Programming, 1983, chapters 2, 3 and 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from flint import fmpq, fmpq_mat

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
        slack: By how much the point meets the inequalities at least.
        alone: Whether the point is the only one that meets the equations.
    """

    point: list[fmpq] | None = None
    contradiction: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    slack: fmpq = field(default_factory=fmpq)
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
    if isinstance(affine, tuple):
        return LinearOutcome(contradiction=(affine, ()))
    base, basis = affine.point, affine.directions
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
    point = [b + sum((t * d[k] for t, d in zip(values, basis, strict=True)), ZERO) for k, b in enumerate(base)]
    return LinearOutcome(point, slack=slack, alone=not basis)


@dataclass(frozen=True)
class _Affine:
    point: list[fmpq]
    directions: list[list[fmpq]]


def _solutions(equations: Sequence[tuple[Sequence[fmpq], fmpq]], count: int) -> _Affine | tuple[int, ...]:
    """Return all solutions of equations, or the numbers of some that contradict each other."""
    unit = [[fmpq(int(i == k)) for i in range(count)] for k in range(count)]
    if not equations:
        return _Affine([ZERO] * count, unit)
    high = len(equations)
    whole = fmpq_mat(high, count + 1, [e for a, b in equations for e in (*a, b)])
    reduced, rank = whole.rref()
    pivots = [next(j for j in range(count + 1) if reduced[i, j] != 0) for i in range(rank)]
    if count in pivots:
        return _contradicting(equations, count)
    point = [ZERO] * count
    for i, j in enumerate(pivots):
        point[j] = reduced[i, count]
    directions = []
    for free in (k for k in range(count) if k not in pivots):
        direction = list(unit[free])
        for i, j in enumerate(pivots):
            direction[j] = -reduced[i, free]
        directions.append(direction)
    return _Affine(point, directions)


def _contradicting(equations: Sequence[tuple[Sequence[fmpq], fmpq]], count: int) -> tuple[int, ...]:
    """Return equations a combination of which says 0 = c with c != 0: multipliers y with y A = 0 and y b = 1."""
    high = len(equations)
    entries = [equations[i][0][j] for j in range(count) for i in range(high)] + [b for _, b in equations]
    sides = [ZERO] * count + [fmpq(1)]
    whole = fmpq_mat(
        count + 1, high + 1, [e for k in range(count + 1) for e in (*entries[k * high : (k + 1) * high], sides[k])]
    )
    reduced, rank = whole.rref()
    y = [ZERO] * high
    for i in range(rank):
        pivot = next(j for j in range(high + 1) if reduced[i, j] != 0)
        if pivot < high:
            y[pivot] = reduced[i, high]
    total = [sum((y[i] * equations[i][0][j] for i in range(high)), ZERO) for j in range(count)]
    if any(total) or sum((y[i] * equations[i][1] for i in range(high)), ZERO) != 1:
        raise ArithmeticError("multipliers of equations without a solution were not found")
    return tuple(i for i in range(high) if y[i] != 0)


def _moved(row: Row, base: Sequence[fmpq], basis: Sequence[Sequence[fmpq]]) -> Row:
    """Return an inequality in the coordinates of the solutions of the equations."""
    there = sum((a * b for a, b in zip(row.coefficients, base, strict=True)), ZERO)
    along = (sum((a * d for a, d in zip(row.coefficients, step, strict=True)), ZERO) for step in basis)
    return Row(tuple(along), row.bound - there, row.strict)


def _contradicts(rows: Sequence[Row], multipliers: Sequence[fmpq], count: int) -> bool:
    """Whether multipliers show that nothing meets all rows."""
    if any(y < 0 for y in multipliers) or not any(multipliers):
        return False
    if any(
        sum((y * row.coefficients[k] for y, row in zip(multipliers, rows, strict=True)), ZERO) != 0
        for k in range(count)
    ):
        return False
    bound = sum((y * row.bound for y, row in zip(multipliers, rows, strict=True)), ZERO)
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
