"""A minimum in floats or many bits: Newton's method on its conditions, with what is taken to be at a corner held there.

How a minimiser moves with what it depends on: the implicit function theorem on the same conditions.

Functions with corners are followed by an active set: an argument that changes its sign in a step is held at zero with
a slope of its own, and let go to the side that its slope comes out beyond.

Where a minimiser u is at corners of maps t(u), with slopes w strictly between those on the two sides, it stays at them:

    G(u, w, p) = 0, t(u, p) = 0,    [H  D; A  0] [du; dw] = -[G_p dp; t_p dp],

G the subgradient, H and D its derivatives by u and w, A that of t. Elsewhere the second line is missing.

References:
    Nocedal and Wright, Numerical optimization, 2006, section 16.5; Fiacco, Introduction to sensitivity and stability
    analysis in nonlinear programming, 1983, theorem 3.2.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from flint import arb
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.dense import no_information
from ntk_deq.certified.rounding import root_up
from ntk_deq.evaluation.convex.curvature import jacobian
from ntk_deq.evaluation.convex.points import (
    At,
    Contact,
    Local,
    Problem,
    entries_of,
    floats_of,
    numbers_of,
    sides,
    slack,
)
from ntk_deq.evaluation.derivatives import Cotangent, Node, minus, plus
from ntk_deq.evaluation.derivatives.gradient import EXTREMES, is_length
from ntk_deq.evaluation.derivatives.reverse import Reverse
from ntk_deq.evaluation.derivatives.tape import Tape
from ntk_deq.evaluation.quantity import Scalar

_BEYOND = 1e-6  # by how much a slope may miss those on the two sides and count as rounding
_POLISHES, _POLISHES_PRECISE = 4, 24
_APPROACHES = 16
_ROUNDING = 2.0**-51  # relative to the point; a slope that small is rounding
SNAP = 2.0**-47  # relative; an entry below is rounding around zero, as far as floats tell

Key = tuple[int, int]
"""The number of a node and a place in its argument."""


def polished(
    problem: Problem, numbers: list[arb], contacts: list[Contact]
) -> tuple[list[arb], list[Contact], list[Contact] | None]:
    """Return the point and the slopes after steps of Newton's method with the contacts held.

    The last part are the contacts that are left where slopes came out beyond those on the two sides; None: none did.
    """
    precise = problem.env.precision is not None
    best = math.inf
    kept = numbers, contacts
    for _ in range(_POLISHES_PRECISE if precise else _POLISHES):
        at = At(problem, problem.valued(numbers))
        found = _conditions(at, contacts, [])
        if found is None:
            return numbers, [], None
        slope, residual, met, columns, rows = found
        size = math.hypot(*residual, *met)
        if not size < best:
            break
        best, kept = size, (numbers, contacts)
        least = 0.0 if precise else _ROUNDING * max(1.0, *(abs(float(x.mid())) for x in numbers))
        if size <= least:
            break
        hessian = jacobian(at.tape, slope, at.leaf)
        if hessian is None:
            break
        numbers, contacts = _stepped(numbers, contacts, floats_of(hessian), columns, rows, residual + met, precise)
    numbers, contacts = kept
    return numbers, contacts, _inside(problem, numbers, contacts)


def _stepped(
    numbers: list[arb],
    contacts: list[Contact],
    hessian: Tensor,
    columns: list[Tensor],
    rows: list[Tensor],
    residual: list[float],
    precise: bool,
) -> tuple[list[arb], list[Contact]]:
    width = len(numbers)
    if not bool(hessian.isfinite().all()):
        return numbers, contacts
    top = torch.cat([hessian, *columns], dim=1)
    low = torch.cat(rows) if rows else hessian.new_zeros(0, width)
    low = torch.cat([low, low.new_zeros(low.shape[0], top.shape[1] - width)], dim=1)
    right = torch.tensor(residual, dtype=torch.float64)
    step = -(torch.linalg.pinv(torch.cat([top, low]), rtol=1e-14) @ right)

    def moved(number: arb, by: float) -> arb:
        total = number + arb(by)
        return total.mid() if precise else arb(float(total.mid()))

    found = [moved(number, by) for number, by in zip(numbers, step[:width].tolist(), strict=True)]
    if not precise:
        largest = max(abs(float(x.mid())) for x in (*numbers, *found))
        found = [x if abs(float(x.mid())) > SNAP * largest else arb(0) for x in found]
    rest, changed = step[width:].tolist(), []
    for contact, column in zip(contacts, columns, strict=True):
        mine, rest = rest[: column.shape[1]], rest[column.shape[1] :]
        if len(mine) < len(contact.slopes):
            mine = [-sum(mine), *mine]
        slopes = [moved(slope, by) for slope, by in zip(contact.slopes, mine, strict=True)]
        changed.append(Contact(contact.node, contact.places, slopes))
    return found, changed


def _inside(problem: Problem, numbers: list[arb], contacts: list[Contact]) -> list[Contact] | None:
    """Bring slopes between those on the two sides; return the contacts that remain where some were far outside."""
    if not contacts:
        return None
    at = At(problem, problem.valued(numbers))
    left, changed = [], False
    for contact in contacts:
        node = at.node(contact.node)
        if node.operation in EXTREMES:
            kept = [k for k, slope in enumerate(contact.slopes) if float(slope.mid()) > -_BEYOND]
            slopes = [ct.maximum(contact.slopes[k], arb(0)).mid() for k in kept]
            total = sum(slopes, arb(0))
            places = [contact.places[k] for k in kept]
            changed = changed or len(kept) < len(contact.places)
            if len(kept) > 1:
                left.append(Contact(contact.node, places, slopes))
            if len(kept) == len(contact.places) and not total == 1:
                slopes = slopes[:-1]
                contact.slopes[:] = [*slopes, (1 - sum(slopes, arb(0)))]
            continue
        if is_length(node):
            size = root_up(sum(float(s.mid()) ** 2 for s in contact.slopes))
            if size > 1 + _BEYOND:
                changed = True
                continue
            while not sum((s * s for s in contact.slopes), arb(0)) <= 1:
                factor = arb(1 - 2.0**-50)
                contact.slopes[:] = [(s * factor).mid() for s in contact.slopes]
            left.append(contact)
            continue
        below, above = sides(node)
        low, high = min(below, above), max(below, above)
        kept = [k for k, s in enumerate(contact.slopes) if low - _BEYOND <= float(s.mid()) <= high + _BEYOND]
        contact.slopes[:] = [ct.minimum(ct.maximum(s, arb(low)), arb(high)).mid() for s in contact.slopes]
        changed = changed or len(kept) < len(contact.places)
        if kept:
            left.append(Contact(contact.node, [contact.places[k] for k in kept], [contact.slopes[k] for k in kept]))
    return left if changed else None


_Conditions = tuple[Node, list[float], list[float], list[Tensor], list[Tensor]]


def _conditions(at: At, contacts: list[Contact], fixed: list[Contact]) -> _Conditions | None:
    """Return the slope, its entries, those of the maps at contacts, and the derivatives of both by each other's."""
    slope, leaves = at.slope([*contacts, *fixed])
    residual = [float(x.mid()) for x in numbers_of(slope.value)]
    columns, rows, met = [], [], list[float]()
    for contact in contacts:
        found, by = at.met(contact), jacobian(at.tape, slope, leaves[contact.node])
        if found is None or by is None:
            return None
        rows.append(floats_of(found[0]))
        met += [float(x.mid()) for x in found[1]]
        picked = floats_of(by)[:, contact.places]
        columns.append(picked[:, 1:] - picked[:, :1] if len(found[1]) < len(contact.places) else picked)
    return slope, residual, met, columns, rows


def approached(problem: Problem, numbers: list[arb]) -> tuple[list[arb], list[Contact]] | None:
    """Return the point and the contacts that an active set leads to; None where it leads nowhere.

    Args:
        problem: What is to be least; its kinks must be corners of affine maps.
        numbers: Where to begin.
    """
    precise = problem.env.precision is not None
    held, released, before = dict[Key, arb](), dict[Key, arb](), dict[Key, float]()
    best, kept = math.inf, (numbers, list[Contact]())
    for _ in range(_APPROACHES + (_POLISHES_PRECISE if precise else 0)):
        at = At(problem, problem.valued(numbers))
        now = _corners(at)
        if now is None:
            return None
        for key in [key for key, slope in released.items() if now[key] * (float(slope) - _middle(at, key)) > 0]:
            del released[key]
        new = [key for key, x in now.items() if key not in held and key not in released]
        new = [key for key in new if now[key] == 0 or before.get(key, now[key]) * now[key] < 0]
        held.update({key: arb(_middle(at, key)) for key in new})
        beyond = [] if new else [key for key in held if _side(at, key, held[key]) is not None]
        for key in beyond:
            side = _side(at, key, held.pop(key))
            assert side is not None
            released[key] = arb(side)
        before = now
        contacts, fixed = _grouped(held), _grouped(released)
        found = _conditions(at, contacts, fixed)
        if found is None:
            return None
        slope, residual, met, columns, rows = found
        size = math.hypot(*residual, *met)
        if not size < math.inf:
            return None
        if not new and not beyond:
            least = 0.0 if precise else _ROUNDING * max(1.0, *(abs(float(x.mid())) for x in numbers))
            if not size < best:
                return kept if best < math.inf else None
            best, kept = size, (numbers, [*_clipped(at, contacts), *fixed])
            if size <= least:
                return kept
        else:
            best = math.inf
        hessian = jacobian(at.tape, slope, at.leaf)
        if hessian is None:
            return None
        numbers, contacts = _stepped(numbers, contacts, floats_of(hessian), columns, rows, residual + met, precise)
        held = {
            (contact.node, place): value
            for contact in contacts
            for place, value in zip(contact.places, contact.slopes, strict=True)
        }
    return kept if best < math.inf else None


def _corners(at: At) -> dict[Key, float] | None:
    """Return the arguments of all corners; None where there are kinks of other kinds."""
    found = {}
    for node in at.kinks:
        if is_length(node) and at.slopes_of(node, {}) is None:
            continue
        if node.operation in EXTREMES or is_length(node) or not at.holds(node):
            return None
        found.update({(node.number, place): float(x.mid()) for place, x in enumerate(at.arguments(node))})
    return found


def _clipped(at: At, contacts: list[Contact]) -> list[Contact]:
    """Bring slopes that rounding has put beyond those on the two sides back to them."""
    found = []
    for contact in contacts:
        low, high = map(arb, sorted(sides(at.node(contact.node))))
        slopes = [ct.minimum(ct.maximum(slope, low), high).mid() for slope in contact.slopes]
        found.append(Contact(contact.node, contact.places, slopes))
    return found


def _middle(at: At, key: Key) -> float:
    return sum(sides(at.node(key[0]))) / 2


def _side(at: At, key: Key, slope: arb) -> float | None:
    """Return the end of the slopes on the two sides that a slope is beyond, if it is."""
    low, high = sorted(sides(at.node(key[0])))
    value = float(slope.mid())
    return high if value > high + _BEYOND else low if value < low - _BEYOND else None


def _grouped(slopes: Mapping[Key, arb]) -> list[Contact]:
    found: dict[int, Contact] = {}
    for (node, place), slope in slopes.items():
        contact = found.setdefault(node, Contact(node, [], []))
        contact.places.append(place)
        contact.slopes.append(slope)
    return list(found.values())


def moved(tape: Tape, node: Node, cot: Cotangent, target: Node) -> Cotangent:
    """Return what the cotangents of a minimiser give to a variable.

    Args:
        tape: The tape.
        node: The minimiser.
        cot: Its cotangents.
        target: The variable.

    Raises:
        OutsideClaimError: The minimiser has, or may have, no derivative.
    """
    assert node.image is not None
    assert node.state is not None
    notes = tape.base.env.notes
    local = Local(tape, node.image, node.state)
    contacts = _met(local)
    slope, leaves = local.slope(contacts)
    if contacts:
        columns = [jacobian(tape, slope, leaves[contact.node]) for contact in contacts]
        known = _with_slopes(local, contacts, slope, [by for by in columns if by is not None])
        if None in columns or known is None:
            notes.kink("a minimiser at a corner whose slope may be one of those beside it", certain=False)
        slope, leaves = local.slope(known)
        contacts = known
    system, rows = _system(local, contacts, slope, leaves)
    inverse = None if system is None else ct.inverse(system)
    width = cot.ball.shape[1]
    if inverse is None or not inverse.is_finite:
        shape = target.shape[0] * target.shape[1]
        lost = no_information(cot.ball, cot.count, shape, "the Hessian at a minimiser is not known well enough")
        return Cotangent(lost, math.inf)
    size = inverse.shape[0]
    both = ct.matmul(cot.ball, ct.block(inverse, 0, width, 0, size))
    scale = max(cot.scale, sc.upper(ct.frobenius(both)) if both.is_finite else math.inf)
    reverse = Reverse(tape, notes)
    shape = target.shape[0] * target.shape[1]
    total = Cotangent(
        tape.base.env.constant(ct.Ball(torch.zeros(cot.count, shape, dtype=tape.base.env.like.dtype))), 0.0
    )
    if target.number in slope.depends:
        total = plus(total, reverse.pull(slope, Cotangent(ct.block(both, 0, cot.count, 0, width), scale), target))
    place = width
    for contact, count in rows:
        mine = ct.block(both, 0, cot.count, place, place + count)
        place += count
        argument = local.node(contact.node).args[0]
        if target.number in argument.depends:
            unit = torch.eye(argument.shape[0] * argument.shape[1], dtype=tape.base.env.like.dtype)[contact.places]
            wide = ct.matmul(mine, tape.base.env.constant(ct.Ball(unit)))
            total = plus(total, reverse.pull(argument, Cotangent(wide, scale), target))
    return minus(total)


def _met(local: Local) -> list[Contact]:
    """Return the corners that are or may be met, of functions of each entry.

    Raises:
        OutsideClaimError: Another function with a kink may be at it.
    """
    found = []
    for node in local.kinks:
        slopes = local.slopes_of(node, {})
        if slopes is None or all(slope.is_exact() for slope in slopes):
            continue
        if node.operation in EXTREMES or is_length(node) or not local.shapes.of(node.args[0]).affine:
            local.tape.base.env.notes.kink(f"a minimiser at which a {node.operation} may have a kink", certain=False)
        places = [place for place, slope in enumerate(slopes) if not slope.is_exact()]
        found.append(Contact(node.number, places, [slopes[place].mid() for place in places]))
    return found


def _with_slopes(
    local: Local, contacts: list[Contact], slope: Node, columns: Sequence[ct.Ball]
) -> list[Contact] | None:
    """Return the contacts with balls of their slopes, shown to be strictly inside; None where they are not."""
    picked = [local.columns(by, contact) for by, contact in zip(columns, contacts, strict=False)]
    if len(picked) < len(contacts):
        return None
    joined = ct.beside(*picked)
    turned = ct.transpose(joined)
    back = ct.inverse(ct.matmul(turned, joined))
    value = slope.value
    flat = ct.from_scalar(value.ball) if isinstance(value, Scalar) else ct.vec(ct.transpose(value.ball))
    column = local.tape.base.env.constant(flat) if isinstance(value, Scalar) else flat
    if not back.is_finite:
        return None
    steps = ct.matmul(ct.matmul(back, turned), column)
    moved_by = entries_of(steps)
    found, place = [], 0
    for contact in contacts:
        mine = moved_by[place : place + len(contact.places)]
        place += len(contact.places)
        changed = Contact(contact.node, contact.places, [s - d for s, d in zip(contact.slopes, mine, strict=True)])
        node = local.node(contact.node)
        if not slack(node, changed) > 0:
            return None
        found.append(changed)
    return found


def _system(
    local: Local, contacts: Sequence[Contact], slope: Node, leaves: dict[int, Node]
) -> tuple[ct.Ball | None, list[tuple[Contact, int]]]:
    """Return the matrix of the conditions, and how many rows each contact has in it."""
    hessian = jacobian(local.tape, slope, local.leaf)
    if hessian is None or not contacts:
        return hessian, []
    rows, columns = [], []
    for contact in contacts:
        met, by = local.met(contact), jacobian(local.tape, slope, leaves[contact.node])
        if met is None or by is None:
            return None, []
        rows.append(met[0])
        columns.append(local.columns(by, contact))
    count = sum(row.shape[0] for row in rows)
    zeros = local.tape.base.env.constant(ct.Ball(torch.zeros(count, count, dtype=torch.float64)))
    top = ct.beside(hessian, *columns)
    low = ct.beside(ct.above(*rows), zeros)
    return ct.above(top, low), [(contact, row.shape[0]) for contact, row in zip(contacts, rows, strict=True)]
