"""An equilibrium at the working precision of arb: Newton steps with a float inverse, then a bound entry by entry.

Every step evaluates the map on exact midpoints, so a step gains about as many digits as a float has, until the
precision is reached. The bound is residual/gap, for a contraction sharpened where entries are certainly fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import flint
import torch
from flint import arb
from torch import Tensor

from ntk_deq.certified.precise import PreciseMatrix, precise
from ntk_deq.certified.precise.arithmetic import add, frobenius, scale, subtract
from ntk_deq.certified.precise.matrix import from_rows
from ntk_deq.certified.precise.spectra import middle

_STEPS = 400
"""Steps at most; a Newton step gains some 30 bits, a plain one of a map that contracts by one half a single bit."""

_PATIENCE = 3
"""Steps in a row without a gain after which the precision is taken to be reached, where the map is no contraction."""

_NEAR = 2.0**-40
"""Relative distance of a state from its image below which it counts as found."""

Apply = Callable[[PreciseMatrix], PreciseMatrix]


def refined_equilibrium(
    apply: Apply, start: Tensor, inverses: Iterable[Tensor | None], gap: arb, *, contracts: bool = True
) -> PreciseMatrix:
    """Return a precise ball that contains the only equilibrium of a map.

    Args:
        apply: The map, in precise balls.
        start: An approximate equilibrium in floats, rows x cols.
        inverses: As in `refined_state`.
        gap: A ball of a number g for which the equilibrium lies within norm(map(Z) - Z)/g of every Z; 1 - q for a
            contraction.
        contracts: Whether the map contracts by 1 - gap in the Frobenius norm.

    Returns:
        The ball; entries that a contraction certainly leaves where they are come out exact.
    """
    state = refined_state(apply, start, inverses, contracts=contracts)
    image = apply(state)
    residual = subtract(image, state)
    radius = (frobenius(residual) / gap).upper()
    if not radius.is_finite():
        return image
    # Without a contraction the iterates may leave the box before they come back.
    fixed = {i for i, entry in enumerate(residual.flat) if entry == 0} if contracts else set[int]()
    while True:
        box = _around(state, radius, fixed)
        image = apply(box)
        kept = {i for i in fixed if image.flat[i] == state.flat[i]}
        if kept == fixed:
            # All iterates from `state` lie in the box, by induction: no entry in `fixed` moves, and none moves further
            # than `radius`. So does their limit, which the map sends to itself. The box and its image contain it; a map
            # that is no contraction may widen the box.
            return from_rows(*state.shape, map(_narrower, image.flat, box.flat))
        fixed = kept


def refined_state(
    apply: Apply, start: Tensor, inverses: Iterable[Tensor | None], *, contracts: bool = False
) -> PreciseMatrix:
    """Return exact numbers near a fixed point of a map, as near as the working precision allows.

    Args:
        apply: The map, in precise balls.
        start: An approximate fixed point in floats, rows x cols.
        inverses: Each about (I - J)^-1 for the map's Jacobian J by columns there, to be tried in turn until one of them
            leads near: on which side of a kink a unit lies, floats may not know. None: plain steps only.
        contracts: Whether the map contracts in the Frobenius norm.
    """
    best, least = precise(start), arb("inf")
    for inverse in inverses:
        near = _iterated(apply, precise(start), inverse, 0 if contracts else _PATIENCE)
        state, size = _settled(apply, near)
        if size < least:
            best, least = state, size
        if contracts or not least > _NEAR * frobenius(best).upper():
            break
    return best


def _settled(apply: Apply, near: PreciseMatrix) -> tuple[PreciseMatrix, arb]:
    """Return a state, with zero for what relu cuts off unless that leads away, and its distance from its image."""
    image = middle(apply(near))
    least = _size(image, near)
    # A plain step cuts off; where the map expands it is a step away, and what it cuts off is put into the state.
    cut = from_rows(*near.shape, (arb(0) if i == 0 else n for i, n in zip(image.flat, near.flat, strict=True)))
    for state in (image, cut):
        size = _size(apply(state), state)
        if not size > least:
            return state, size
    return near, least


def _iterated(apply: Apply, state: PreciseMatrix, inverse: Tensor | None, patience: int) -> PreciseMatrix:
    """Return the midpoints to which Newton steps, or plain ones where those do not help, bring a state.

    With patience, so many steps in a row may lead farther away: a unit at a kink crosses it and comes back.
    """
    best, least, waited = state, arb("inf"), 0
    target = arb(2) ** -flint.ctx.prec
    image = apply(state)
    size = _size(image, state)
    for _ in range(_STEPS):
        if size < least:
            best, least, waited = state, size, 0
        if not size > target * frobenius(image).upper():
            break
        moved = middle(image) if inverse is None else _newton(state, image, inverse)
        next_image = apply(moved)
        next_size = _size(next_image, moved)
        if inverse is not None and not 2 * next_size < size and not patience:
            moved = middle(image)
            next_image = apply(moved)
            next_size = _size(next_image, moved)
        waited += not next_size < least
        if waited > patience:
            break
        state, image, size = moved, next_image, next_size
    return best


def _newton(state: PreciseMatrix, image: PreciseMatrix, inverse: Tensor) -> PreciseMatrix:
    residual = middle(subtract(image, state))
    exponent = max((int(e) + int(m).bit_length() for m, e in (x.man_exp() for x in residual.flat) if m), default=0)
    scaled = scale(arb(2) ** -exponent, residual).approximate
    rows, cols = residual.shape
    correction = (inverse @ scaled.mT.reshape(-1)).reshape(cols, rows).mT
    if not bool(torch.isfinite(correction).all()):
        return middle(image)
    return middle(add(state, scale(arb(2) ** exponent, precise(correction))))


def _size(image: PreciseMatrix, state: PreciseMatrix) -> arb:
    return frobenius(middle(subtract(image, state))).mid()


def _narrower(first: arb, second: arb) -> arb:
    return first if first.rad() <= second.rad() else second


def _around(state: PreciseMatrix, radius: arb, fixed: set[int]) -> PreciseMatrix:
    spread = arb(0, radius)
    values = [entry if i in fixed else entry + spread for i, entry in enumerate(state.flat)]
    return from_rows(*state.shape, values)
