"""Boxes: a range for every variable, where to cut it, and its middle; and what is shown all over one.

A term is positive, or not negative, by its enclosure, by monotony, by a centred form. Where it grows with a variable it
is smallest on the lower face. If it vanishes there and the face is excluded, strict growth makes it positive all the
same. The sign of a derivative is shown in the same way, with second derivatives, so that a term which touches zero at a
corner of the box, to second or third order, is still decided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property

from ntk_deq.prove import Derivatives, Op, Side, Term, simplest
from ntk_deq.prove import enclosure as iv
from ntk_deq.prove.enclosure import Enclosures, Interval, enclose, sign_at
from ntk_deq.prove.exact import Exact
from ntk_deq.prove.problem import Atom, Both, Formula, Relation


class Box:
    """A range for every variable.

    Args:
        sides: The ranges by name.
        depth: Cuts since the whole domain.
    """

    def __init__(self, sides: Mapping[str, Side], depth: int = 0) -> None:
        self.sides = sides
        self.depth = depth

    @cached_property
    def enclosures(self) -> Enclosures:
        """What terms can be over this box."""
        return Enclosures({name: enclose(side) for name, side in self.sides.items()})

    @cached_property
    def middle(self) -> dict[str, Fraction]:
        """A point of the box, each coordinate one at which it would be cut."""
        return {name: middle(side) for name, side in self.sides.items()}

    @cached_property
    def plainest(self) -> dict[str, Fraction]:
        """The point of the box whose coordinates have the smallest denominators: 1/3 is no middle of any box."""
        return {n: middle(s) if s.whole or s.single else simplest(s.low, s.high) for n, s in self.sides.items()}

    def with_side(self, name: str, side: Side) -> Box:
        """Return the box with another range for a variable."""
        return Box({**self.sides, name: side}, self.depth)

    def face(self, name: str, value: Fraction) -> Box:
        """Return the face on which a variable has a value, which is then attained."""
        return self.with_side(name, Side(value, value))

    def cut(self, name: str, at: Fraction) -> tuple[Box, Box]:
        """Return the two parts of the box on either side of a value, which both contain unless it is a whole number."""
        side = self.sides[name]
        start = at + 1 if side.whole else at
        left = replace(side, high=at, high_open=False)
        right = replace(side, low=start, low_open=False)
        return Box({**self.sides, name: left}, self.depth + 1), Box({**self.sides, name: right}, self.depth + 1)


def middle(side: Side) -> Fraction:
    """Return where to cut a range: a short number inside, on a logarithmic scale where the range is long.

    Example:
        >>> middle(Side(None, None)), middle(Side(Fraction(0), None, True)), middle(Side(Fraction(0), Fraction(1)))
        (Fraction(0, 1), Fraction(1, 1), Fraction(1, 2))
    """
    low, high = side.low, side.high
    if low is not None and high is not None and low == high:
        return low
    found = _inside(low, high)
    if side.whole and low is not None and high is not None:
        return min(max(Fraction(math.floor(found)), low), high - 1)
    return found


def _inside(low: Fraction | None, high: Fraction | None) -> Fraction:
    if (low is None or low < 0) and (high is None or high > 0):
        return Fraction(0)
    if low is None or low < 0:  # then the range is at most 0: mirrored
        return -_inside(Fraction(0) if high is None else -high, None if low is None else -low)
    if high is None:
        return Fraction(1) if low < Fraction(1, 2) else _short(2 * low)
    start = max(low, Fraction(1))
    if high > 4 * start:
        return Fraction(2) ** max(_exponent(start) + 1, (_exponent(start) + _exponent(high)) // 2)
    return mean(low, high)


def mean(low: Fraction, high: Fraction) -> Fraction:
    """Return the float nearest to the mean of two numbers where it lies between them, otherwise the mean."""
    found = (low + high) / 2
    short = _short(found)
    return short if low < short < high else found


def _short(value: Fraction) -> Fraction:
    """Return the nearest float."""
    return Fraction(float(value))


def _exponent(value: Fraction) -> int:
    """Return the exponent of the largest power of two that is at most a number >= 1."""
    return math.floor(value).bit_length() - 1


def spread(side: Side) -> float:
    """Return how much there is to gain from cutting a range: 0 for a single number, at most 4.

    Example:
        >>> spread(Side(Fraction(1), Fraction(1))), spread(Side(None, None)), spread(Side(Fraction(0), Fraction(1)))
        (0.0, 4.0, 1.0)
    """
    if side.single:
        return 0.0
    ends = [abs(float(end)) for end in (side.low, side.high) if end is not None]
    nearest = min(ends, default=0.0)
    if side.low is None or side.high is None:
        return 4.0 / (1.0 + math.log2(1.0 + nearest))
    if side.low < 0 < side.high:
        nearest = 0.0
    return min(4.0, float(side.high - side.low) / (1.0 + nearest))


DEPTHS = {1: 3, 2: 2, 3: 2, 4: 1, 5: 1, 6: 1}
"""Orders of derivatives that are looked at, by the number of variables: the work grows fast with both."""

DEPTH = max(DEPTHS.values())

EXACT_DEPTH = 1
"""Cuts up to which the sign of a slope is also looked for by exact arguments, ..."""

EXACT_WORK = 2_000
"""... and the work that each of them may take."""


class Demonstrator:
    """Shows statements over boxes.

    Args:
        exact: Gives normal forms, and exact arguments for slopes over large boxes.
    """

    def __init__(self, exact: Exact) -> None:
        self._exact = exact
        self._terms = exact.terms
        self.derivatives = Derivatives(exact.terms, exact.rewritten)

    def shows(self, formula: Formula, box: Box, depth: int = DEPTH) -> bool:
        """Say whether a statement is known to hold at every point of a box."""
        if isinstance(formula, Both):
            return all(self.shows(part, box, depth) for part in formula.parts)
        if not isinstance(formula, Atom):
            return any(self.shows(part, box, depth) for part in formula.parts)
        term, negative = formula.term, self._terms.negate(formula.term)
        depth = min(depth, DEPTHS.get(len(term.variables), 0))
        match formula.relation:
            case Relation.POSITIVE:
                return self._positive(term, box, True, depth)
            case Relation.NONNEGATIVE:
                return self._positive(term, box, False, depth)
            case Relation.ZERO:
                return self._exact.is_zero(term) or all(self._positive(t, box, False, depth) for t in (term, negative))
            case _:
                return any(self._positive(t, box, True, depth) for t in (term, negative))

    def smallest_face(self, term: Term, box: Box) -> Box:
        """Return the box with each variable at the end at which the term is smallest, as far as slopes have signs."""
        face = box
        for name in sorted(term.variables):
            derivative = self.derivatives.of(term, name)
            slope = None if derivative is None else box.enclosures.of(derivative)
            if slope is not None and (slope.nonnegative or slope.nonpositive):
                end = box.sides[name].low if slope.nonnegative else box.sides[name].high
                face = face if end is None else face.face(name, end)
        return face

    def _positive(self, term: Term, box: Box, strict: bool, depth: int) -> bool:
        found = box.enclosures.of(term)
        if found is None:
            return False
        if _fits(found, strict):
            return True
        if found.hi < 0 or (strict and found.hi <= 0):
            return False
        fixed = {n: s.low for n, s in box.sides.items() if s.single and n in term.variables and s.low is not None}
        if fixed:
            return self._positive_on_face(term, box, fixed, strict, depth)
        return depth > 0 and self._by_slopes(term, box, strict, depth)

    def _positive_on_face(self, term: Term, box: Box, fixed: dict[str, Fraction], strict: bool, depth: int) -> bool:
        """Decide a term some of whose variables are fixed: exactly, where all are."""
        if fixed.keys() == term.variables:
            sign = sign_at(term, fixed)
            return sign is not None and (sign > 0 or (sign == 0 and not strict))
        terms = self._terms
        reduced = terms.substitute(term, {terms.variable(n): terms.constant(v) for n, v in fixed.items()})
        if reduced.op is Op.CONSTANT and reduced.value is not None:
            return reduced.value > 0 or (reduced.value == 0 and not strict)
        if not strict and self._exact.is_zero(reduced):
            return True
        found = box.enclosures.of(reduced)
        if found is None or reduced.variables & fixed.keys():
            return False
        return _fits(found, strict) or (depth > 0 and self._by_slopes(reduced, box, strict, depth))

    def _by_slopes(self, term: Term, box: Box, strict: bool, depth: int) -> bool:
        slopes: dict[str, Interval] = {}
        for name in sorted(term.variables):
            side = box.sides[name]
            derivative = self.derivatives.of(term, name)
            if derivative is None:
                continue
            direction = self._direction(derivative, box, depth)
            if direction != 0:
                growing = direction > 0
                end, is_open = (side.low, side.low_open) if growing else (side.high, side.high_open)
                if end is None:
                    continue
                strictly = is_open and abs(direction) == 2
                return self._positive(term, box.face(name, end), strict and not strictly, depth)
            slope = box.enclosures.of(derivative)
            if slope is not None:
                slopes[name] = slope
        return self._by_centre(term, box, slopes, strict)

    def _direction(self, derivative: Term, box: Box, depth: int) -> int:
        """Return whether a derivative is >= 0 (1), > 0 (2), <= 0 (-1), < 0 (-2) all over a box, or unknown (0)."""
        slope = box.enclosures.of(derivative)
        if slope is None:
            return 0
        if slope.positive:
            return 2
        if slope.negative:
            return -2
        for sign, known, possible in ((1, slope.nonnegative, slope.hi > 0), (-1, slope.nonpositive, slope.lo < 0)):
            if depth > 1 and possible:
                signed = derivative if sign > 0 else self._terms.negate(derivative)
                if known or self._positive(signed, box, False, depth - 1):
                    return 2 * sign if self._positive(signed, box, True, depth - 1) else sign
            elif known:
                return sign
        return self._exact_direction(derivative, box) if depth > 1 and box.depth <= EXACT_DEPTH else 0

    def _exact_direction(self, derivative: Term, box: Box) -> int:
        """Return the sign of a derivative over a box by exact arguments, as `_direction` does."""
        exact = Exact(self._terms, {n: s for n, s in box.sides.items() if n in derivative.variables}, EXACT_WORK)
        for sign, term in ((1, derivative), (-1, self._terms.negate(derivative))):
            if exact.shows(Atom(term, Relation.POSITIVE)):
                return 2 * sign
            if exact.shows(Atom(term, Relation.NONNEGATIVE)):
                return sign
        return 0

    def _by_centre(self, term: Term, box: Box, slopes: dict[str, Interval], strict: bool) -> bool:
        """Bound a term by the mean value theorem: f(x) is in f(c) + sum of slope_i (x_i - c_i)."""
        if slopes.keys() != term.variables:
            return False
        centre = {name: _centre(box.sides[name]) for name in sorted(term.variables)}
        point = Box({name: Side(value, value) for name, value in centre.items() if value is not None})
        if point.sides.keys() != centre.keys():
            return False
        total = point.enclosures.of(term)
        for name, slope in slopes.items():
            if total is None:
                return False
            at = point.enclosures.ranges[name]
            offset = iv.add(box.enclosures.ranges[name], iv.negate(at))
            total = iv.add(total, iv.multiply(slope, offset))
        return total is not None and _fits(total, strict)


def _centre(side: Side) -> Fraction | None:
    return None if side.low is None or side.high is None else mean(side.low, side.high)


def _fits(found: Interval, strict: bool) -> bool:
    return found.positive if strict else found.nonnegative
