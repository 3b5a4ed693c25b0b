"""From a point to its distance from the minimiser: a subgradient there, over the modulus of strong convexity.

For F with F - m |u|^2/2 convex and g a subgradient at v, the minimiser lies within |g|/m of v, and the least value
between F(v) - |g|^2/(2m) and F(v). Where functions have corners, a subgradient is made by the chain rule of any slopes
between those on the two sides. Where v is at a corner of an affine map, v is known as a ball that holds a point at
which that map is zero for certain, and the slope is chosen so that the subgradient vanishes.

Where strong convexity is known near v alone, m on a ball of radius r, convexity everywhere and r > 2 |g|/m do.

References:
    Rockafellar, Convex analysis, 1970, theorems 23.8, 23.9 and 27.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flint import arb, fmpq, fmpq_mat
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.rounding import add_up, divide_up, multiply_up
from ntk_deq.evaluation.convex import excess, met
from ntk_deq.evaluation.convex.curvature import curvatures, extreme_curvatures, jacobian, terms
from ntk_deq.evaluation.convex.newton import SNAP, approached, polished
from ntk_deq.evaluation.convex.points import (
    UNKNOWN,
    At,
    Contact,
    Problem,
    Value,
    entries_of,
    floats_of,
    numbers_of,
    slack,
)
from ntk_deq.evaluation.derivatives import MINIMUM, Node, NoRuleError, reachable
from ntk_deq.evaluation.derivatives.gradient import EXTREMES, Operations, gradient, is_length
from ntk_deq.evaluation.environment import OutsideClaimError
from ntk_deq.evaluation.floats import UndifferentiableError
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.functions import entrywise_of
from ntk_deq.language.tree import Kind
from ntk_deq.language.types import Range

CLOSE, CLOSER = 2e-2, 1e-6
"""Relative; an argument of a corner below that is taken to be zero at the minimiser, and then shown to be."""

_CHANGES = 6  # of what is taken to be at a corner
_WIDTHS = (2.0**-6, 2.0**-12, 2.0**-20)  # relative; how far around a point its curvature is looked at


@dataclass(frozen=True)
class Minimum:
    """What is known of a minimum.

    Attributes:
        value: The least value.
        point: Where it is reached.
        reason: Why neither is proven; empty where they are.
        alone: Whether the minimum is known to be reached nowhere else.
        reached: Whether it is known to be reached; else it is an infimum.
    """

    value: Scalar
    point: Value
    reason: str = ""
    alone: bool = True
    reached: bool = True


def certified_minimum(problem: Problem, guess: Tensor, close: float = CLOSER) -> Minimum:
    """Return the minimum near a point found in floats, proven where that can be done.

    Args:
        problem: What is to be least.
        guess: The point, a row of numbers.
        close: How far from a corner the point may be, relative to its size, if the minimiser is at it.
    """
    try:
        return _certified(problem, guess, close)
    except (NoRuleError, UndifferentiableError) as error:
        reason = str(error)
    except OutsideClaimError as error:
        reason = error.args[0]
    return Minimum(UNKNOWN, problem.anywhere, reason)


def _certified(problem: Problem, guess: Tensor, close: float) -> Minimum:
    largest = float(guess.abs().max())
    numbers = [arb(x if abs(x) > SNAP * largest else 0.0) for x in guess.tolist()]
    contacts = At(problem, problem.valued(numbers)).contacts(close)
    for _ in range(_CHANGES):
        numbers, contacts, outside = polished(problem, numbers, contacts)
        if outside is None:
            break
        contacts = outside
    return _proven(problem, numbers, contacts)


def followed_minimum(problem: Problem, start: Tensor) -> Minimum | None:
    """Return the minimum that an active set leads to from a point, proven; None where it leads to none.

    Args:
        problem: What is to be least.
        start: The point, a row of numbers.
    """
    numbers = [arb(x) for x in start.tolist()]
    try:
        held = _at_lengths(problem, numbers)
        found = approached(problem, numbers) if held is None else held
        return None if found is None else _proven(problem, *found)
    except (NoRuleError, UndifferentiableError, OutsideClaimError):
        return None


def _at_lengths(problem: Problem, numbers: list[arb]) -> tuple[list[arb], list[Contact]] | None:
    """Return the point at which all lengths of affine maps are zero, if slopes of theirs make it a minimum."""
    at = At(problem, problem.valued(numbers))
    lengths = [node for node in at.kinks if is_length(node) and at.holds(node)]
    if not lengths or len(lengths) < len(at.kinks):
        return None
    counts = [(node.number, node.args[0].shape[0] * node.args[0].shape[1]) for node in lengths]
    contacts = [Contact(number, list(range(count)), [arb(0)] * count) for number, count in counts]
    numbers, contacts, outside = polished(problem, [arb(0)] * problem.size, contacts)
    return (numbers, contacts) if outside is None and contacts else None


def _proven(problem: Problem, numbers: list[arb], contacts: list[Contact]) -> Minimum:
    """Return the minimum near a point, with what is proven of its distance."""
    numbers = _at_plain(problem, numbers, contacts)
    at = At(problem, problem.valued(numbers))
    contacts = [_with_ties(at, contact) for contact in contacts]
    contacts, off = _reached(
        at, [contact for contact in contacts if slack(at.node(contact.node), contact) >= 0], problem.size
    )
    if off > 0:
        at = At(problem, problem.valued(numbers, off))
    slope, leaves = at.slope(contacts)
    value = at.value
    if problem.links:
        if not in_set(problem, at, contacts):
            return Minimum(UNKNOWN, problem.anywhere, "no point of the set is proven to be least")
        value = At(replace(problem, body=problem.plain or problem.body, links=()), at.leaf.value).value
    size = (
        sc.upper(ct.frobenius(slope.value.ball)) if isinstance(slope.value, Matrix) else sc.upper(abs(slope.value.ball))
    )
    if not (value.ball.is_finite() and size < math.inf):
        reason = "; ".join(at.notes.unsure) or "the function or its slope has no value at the point found"
        return Minimum(UNKNOWN, problem.anywhere, reason)
    bounds = curvatures(at.tape, at.root, at.leaf, at.shapes)
    convex = at.shapes.of(at.root).convex or bool(bounds.low >= 0)
    vertex = convex and _at_vertex(at, contacts, slope, leaves, size)
    if vertex and off == 0:
        return Minimum(value, problem.valued(numbers))
    if bounds.low > 0:
        modulus = sc.lower(bounds.low)
        reach = divide_up(size, modulus)
        if _may_end(at) and not _defined(problem, numbers, add_up(off, 2.0 * reach)):
            return Minimum(value, problem.anywhere, "the function may end close to the point found")
        return _within(problem, numbers, value, add_up(off, reach), size, modulus)
    if not convex:
        return Minimum(value, problem.anywhere, "the function is not seen to be convex")
    if vertex:
        return Minimum(value, problem.valued(numbers, off))
    for width in _WIDTHS:
        radius = width * max(1.0, *(abs(float(x.mid())) for x in numbers))
        if not radius > off:
            break
        modulus = _modulus_near(problem, numbers, radius, contacts)
        if modulus > 0 and multiply_up(2.0, divide_up(size, modulus)) < (radius - off) * (1 - 2.0**-40):
            return _within(problem, numbers, value, add_up(off, divide_up(size, modulus)), size, modulus)
    if size == 0:  # least for certain; whether nowhere else is not known
        return Minimum(value, problem.anywhere, alone=False)
    return Minimum(value, problem.anywhere, "the function is not seen to be strongly convex")


def local_minimum(problem: Problem, guess: Tensor) -> Value | None:
    """Return the ball of a point that is least near by for certain, of a function that is smooth there; None: not seen.

    Args:
        problem: What is to be least.
        guess: The point, a row of numbers.
    """
    try:
        numbers, _, _ = polished(problem, [arb(x) for x in guess.tolist()], [])
        at = At(problem, problem.valued(numbers))
        size = math.hypot(*(sc.upper(abs(x)) for x in numbers_of(at.slope([])[0].value))) * (1 + 2.0**-50)
        for width in _WIDTHS if size < math.inf else ():
            radius = width * max(1.0, *(abs(float(x.mid())) for x in numbers))
            modulus = _modulus_near(problem, numbers, radius, [])
            if modulus > 0 and multiply_up(2.0, divide_up(size, modulus)) < radius * (1 - 2.0**-40):
                return problem.valued(numbers, divide_up(size, modulus))
    except (NoRuleError, UndifferentiableError, OutsideClaimError):
        pass
    return None


def in_set(problem: Problem, at: At, contacts: Sequence[Contact]) -> bool:
    """Whether the point that contacts are met at lies in the set of a problem for certain."""
    for link in problem.links:
        node = at.tape.build(excess(link), problem.indices)
        corner = next((kink for kink in at.kinks if kink.args[0] is node), None)
        held = [
            p for contact in contacts if corner is not None and contact.node == corner.number for p in contact.places
        ]
        if not met(numbers_of(node.value), held, "==" if link.operators[0] == "==" else "<="):
            return False
    return True


_PLAIN, _NEARLY = 2.0**20, 2.0**-40


def _at_plain(problem: Problem, numbers: list[arb], contacts: list[Contact]) -> list[arb]:
    """Return numbers, those that are nearly short binary fractions replaced by these if all contacts are met then."""
    plain = [arb(round(float(x.mid()) * _PLAIN) / _PLAIN) if abs(x) < _PLAIN else x for x in numbers]
    near = [p if bool(abs(x - p) <= _NEARLY) else x for x, p in zip(numbers, plain, strict=True)]
    if not contacts or all(bool(x == p) for x, p in zip(numbers, near, strict=True)):
        return numbers
    at = At(problem, problem.valued(near))
    held = [part for contact in contacts for part in _split(at, contact)]
    return near if held and all(part.exact for part in held) else numbers


_TIED = 2.0**-30  # relative; an entry that may be as extreme as others


def _with_ties(at: At, contact: Contact) -> Contact:
    """Return a contact of an extreme with entries that are as extreme wherever its own are equal, of slope zero."""
    node = at.node(contact.node)
    if node.operation not in EXTREMES or at.met(contact) is None:
        return contact
    entries = [float(x.mid()) for x in at.arguments(node)]
    close = _TIED * max(1.0, *map(abs, entries))
    for place, x in enumerate(entries):
        if place in contact.places or not abs(x - entries[contact.places[0]]) <= close:
            continue
        wider = Contact(contact.node, [*contact.places, place], [*contact.slopes, arb(0)])
        parts = [_split(at, one)[0] for one in (contact, wider)]
        if parts[1].exact or len(parts[1].beyond([])[0]) == len(parts[0].beyond([])[0]):
            contact = wider
    return contact


def _at_vertex(at: At, contacts: Sequence[Contact], slope: Node, leaves: Mapping[int, Node], size: float) -> bool:
    """Whether slopes near those chosen give all subgradients near zero, so that it is least there alone."""
    columns = []
    for contact in contacts:
        by = jacobian(at.tape, slope, leaves[contact.node])
        if by is None or not by.is_finite:
            return False
        columns.append(at.columns(by, contact))
    if not columns:
        return False
    joined = ct.beside(*columns)
    if joined.shape[1] < joined.shape[0]:
        return False
    least = ct.sigma_min(joined)
    if not least > 0:
        return False
    moved = divide_up(size, sc.lower(least))
    nodes = {node.number: node for node in at.kinks}
    return all(bool(slack(nodes[contact.node], contact) > moved) for contact in contacts)


def _within(problem: Problem, numbers: list[arb], value: Scalar, radius: float, size: float, modulus: float) -> Minimum:
    gap = divide_up(multiply_up(size, size), modulus)  # twice what is needed
    low = value.ball - sc.from_bounds(0.0, gap) if gap > 0 else value.ball
    return Minimum(Scalar(low, value.scale), problem.valued(numbers, radius))


def _reached(at: At, contacts: list[Contact], width: int) -> tuple[list[Contact], float]:
    """Return the contacts that some point near by has all at once, and how far off that point is at most.

    Those that weigh most in the slope come first, as long as their maps are independent, or combinations of the maps
    before with values to match, as in abs(u) + relu(u); what is left out keeps all of its slopes.
    """
    contacts = [contact for contact in contacts if at.met(contact) is not None]
    parts = [part for contact in contacts for part in _split(at, contact)]
    if all(part.exact for part in parts):
        return contacts, 0.0
    slope, leaves = at.slope(contacts)
    weights = {number: jacobian(at.tape, slope, leaf) for number, leaf in leaves.items()}

    def weight(part: _Part) -> float:
        by = weights.get(part.contact.node)
        return 0.0 if by is None else -float(floats_of(by)[:, part.contact.places].abs().max())

    kept: list[_Part] = []
    rows: ct.Ball | None = None
    met: list[arb] = []
    lines: list[list[fmpq]] = []
    for part in sorted(parts, key=weight):
        new, more = part.beyond(lines)
        if not new:
            kept = [*kept, part]
            continue
        mine = part.rows if len(new) == part.rows.shape[0] else ct.above(*(_row(part.rows, k) for k in new))
        wider = mine if rows is None else ct.above(rows, mine)
        if wider.shape[0] <= width and ct.sigma_min(wider) > 0:
            kept, rows, lines = [*kept, part], wider, [*lines, *more]
            met += [part.values[k] for k in new]
    if rows is None or not kept:
        return [], 0.0
    length = math.hypot(*(sc.upper(abs(x)) for x in met))
    miss = multiply_up(length, 1 + 2.0**-50)  # hypot errs by an ulp at most
    if miss == 0:
        kept = [part for part in parts if part.exact]
    joined: dict[int, Contact] = {}
    for part in kept:
        own = joined.setdefault(part.contact.node, Contact(part.contact.node, [], []))
        own.places += part.contact.places
        own.slopes += part.contact.slopes
    return list(joined.values()), divide_up(miss, sc.lower(ct.sigma_min(rows))) if miss > 0 else 0.0


@dataclass(frozen=True)
class _Part:
    """A contact of one entry, or one that cannot be taken apart: rows of maps, and what these are at the point."""

    contact: Contact
    rows: ct.Ball
    values: list[arb]

    @property
    def exact(self) -> bool:
        return all(bool(value == 0) for value in self.values)

    def beyond(self, lines: list[list[fmpq]]) -> tuple[list[int], list[list[fmpq]]]:
        """Return which rows are no combination of others, values included, and these over the rationals.

        Where a map is such a combination it is zero with the others. Maps with an error are combinations of none.
        """
        rows = [entries_of(_row(self.rows, k)) for k in range(self.rows.shape[0])]
        known = [[*row, value] for row, value in zip(rows, self.values, strict=True)]
        if not all(x.is_exact() and x.is_finite() for line in known for x in line):
            return list(range(len(known))), []
        new, found = list[int](), list[list[fmpq]]()
        for place, line in enumerate(known):
            more = [*lines, *found, [x.fmpq() for x in line]]
            if fmpq_mat(len(more), len(more[0]), [x for one in more for x in one]).rank() == len(more):
                new.append(place)
                found.append(more[-1])
        return new, found


def _row(rows: ct.Ball, place: int) -> ct.Ball:
    return ct.block(rows, place, place + 1, 0, rows.shape[1])


def _split(at: At, contact: Contact) -> list[_Part]:
    found = at.met(contact)
    if found is None:
        return []
    node = at.node(contact.node)
    rows, values = found
    if node.operation in EXTREMES or is_length(node):
        return [_Part(contact, rows, values)]
    single = [Contact(contact.node, [p], [s]) for p, s in zip(contact.places, contact.slopes, strict=True)]
    return [_Part(one, ct.block(rows, k, k + 1, 0, rows.shape[1]), [values[k]]) for k, one in enumerate(single)]


def _may_end(at: At) -> bool:
    """Whether the function may have no value somewhere."""
    for node in reachable([at.root]):
        if at.leaf.number not in node.depends:
            continue
        facts = entrywise_of(node.operation)
        if facts is not None and facts.domain != Range():
            return True
        if node.operation == Kind.DIVIDE and at.leaf.number in node.args[1].depends:
            return True
        if node.operation in (Kind.POWER, "inv", "sqrtm", "pinv", MINIMUM):
            return True
    return False


def _defined(problem: Problem, numbers: list[arb], radius: float) -> bool:
    try:
        around = At(problem, problem.valued(numbers, max(radius, 2.0**-200)))
        return bool(around.value.ball.is_finite()) and not around.notes.unsure
    except OutsideClaimError:
        return False


def _modulus_near(problem: Problem, numbers: list[arb], radius: float, contacts: Sequence[Contact]) -> float:
    """Return a modulus of strong convexity within a radius of a point; 0 where none is seen.

    Terms with corners that are or may be met count as convex, and add nothing.
    """
    at = At(problem, problem.valued(numbers, radius))
    ops, smooth = Operations(at.tape), None
    for factor, node in terms(at.root, at.shapes):
        inside = reachable([node])
        inside += reachable(part.reached for part in inside if part.reached is not None)
        met = any(part in at.kinks and _open(at, part) for part in inside)
        if met:
            shape = at.shapes.of(node)
            if not (shape.convex and factor.ball >= 0) and not (shape.concave and factor.ball <= 0):
                return 0.0
            continue
        number = ops.total(node if node.shape == (1, 1) else ops.made("sum", node))
        part = ops.times(at.tape.given(factor), number)
        smooth = part if smooth is None else ops.plus(smooth, part)
    if smooth is None:
        return 0.0
    hessian = jacobian(at.tape, gradient(at.tape, smooth, at.leaf, at.slopes([])), at.leaf)
    if hessian is None or not hessian.is_finite:
        return 0.0
    low = extreme_curvatures(hessian).low
    return max(0.0, sc.lower(low)) if low > 0 else 0.0


def _open(at: At, node: Node) -> bool:
    """Whether the slope of a function with a kink may be one of several."""
    values = at.slopes_of(node, {})
    return values is not None and not all(value.is_exact() for value in values)
