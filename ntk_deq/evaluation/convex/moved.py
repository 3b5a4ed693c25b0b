"""How a minimiser moves with what it depends on: the implicit function theorem on the conditions of a minimum.

Where a minimiser u is at corners of maps t(u), with slopes w strictly between those on the two sides, it stays at them:

    G(u, w, p) = 0, t(u, p) = 0,    [H  D; A  0] [du; dw] = -[G_p dp; t_p dp],

G the subgradient, H and D its derivatives by u and w, A that of t. Elsewhere the second line is missing.

References:
    Fiacco, Introduction to sensitivity and stability analysis in nonlinear programming, 1983, theorem 3.2.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from flint import arb

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.dense import no_information
from ntk_deq.evaluation.convex.certificate import slack
from ntk_deq.evaluation.convex.curvature import jacobian
from ntk_deq.evaluation.convex.points import Contact, Local
from ntk_deq.evaluation.derivatives import Cotangent, Node, minus, plus
from ntk_deq.evaluation.derivatives.gradient import EXTREMES, is_length
from ntk_deq.evaluation.derivatives.reverse import Reverse
from ntk_deq.evaluation.derivatives.tape import Tape
from ntk_deq.evaluation.quantity import Scalar


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
            unit = torch.zeros(count, argument.shape[0] * argument.shape[1], dtype=tape.base.env.like.dtype)
            unit[torch.arange(count), contact.places] = 1.0
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
    picked = [_columns(local, by, contact) for by, contact in zip(columns, contacts, strict=False)]
    if len(picked) < len(contacts):
        return None
    joined = ct.beside(*picked) if len(picked) > 1 else picked[0]
    turned = ct.transpose(joined)
    back = ct.inverse(ct.matmul(turned, joined))
    value = slope.value
    flat = ct.from_scalar(value.ball) if isinstance(value, Scalar) else ct.vec(ct.transpose(value.ball))
    column = local.tape.base.env.constant(flat) if isinstance(value, Scalar) else flat
    if not back.is_finite:
        return None
    steps = ct.matmul(ct.matmul(back, turned), column)
    moved_by = numbers_of_column(steps)
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


def numbers_of_column(ball: ct.Ball) -> list[arb]:
    """Return the entries of a column as balls."""
    return [ct.as_scalar(ct.block(ball, k, k + 1, 0, 1)) for k in range(ball.shape[0])]


def _columns(local: Local, by: ct.Ball, contact: Contact) -> ct.Ball:
    unit = torch.zeros(by.shape[1], len(contact.places), dtype=torch.float64)
    unit[contact.places, torch.arange(len(contact.places))] = 1.0
    return ct.matmul(by, local.tape.base.env.constant(ct.Ball(unit)))


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
        columns.append(_columns(local, by, contact))
    count = sum(row.shape[0] for row in rows)
    zeros = local.tape.base.env.constant(ct.Ball(torch.zeros(count, count, dtype=torch.float64)))
    top = ct.beside(hessian, *columns)
    low = ct.beside(ct.above(*rows) if len(rows) > 1 else rows[0], zeros)
    return ct.above(top, low), [(contact, row.shape[0]) for contact, row in zip(contacts, rows, strict=True)]
