"""Recursions computed: with as many bits as keep their steps known, or estimated; and `iterate`, the same in Python.

Balls lose some bits at every step, whatever the formulas; a small instance is run with so many more that what is left
is as good as float64. Where that cannot be had (a large instance, a function that only floats have), errors are carried
in float64 (`proven/recursion.py`), and where they are lost an estimate from a second run takes over, so that the
evidence is `numeric`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

import torch
from flint import arb

from ntk_deq.certified import Ball
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.precise import MAX_BITS, PreciseMatrix, working_precision
from ntk_deq.dynamics.proven.recursion import CLOSE, LOST, Value, carried_steps, radius
from ntk_deq.errors import NtkDeqError
from ntk_deq.evaluation.environment import Environment, OutsideClaimError
from ntk_deq.evaluation.equilibria import tensor_names, value_at_step
from ntk_deq.evaluation.floats import TensorNames
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.evaluation.steps import at_step
from ntk_deq.language.recursion import PATH_LENGTH, At

FLOATS = 80
"""Bits to which steps are wanted where the claim is judged in float64: beyond its 53, so that rounding them decides."""

SLACK = 24
"""Bits that may be lost at a step that counts as known."""

SMALL = 2048
"""Numbers of an instance, at most, for its steps to be computed with more bits than floats have."""

GROWTH = 1e-8
"""By how much the second run of an estimate starts off, relative; rounding is eight digits smaller."""

_KNOWN = 256.0  # the largest step of a name so far over the radius of one, from which on it counts as known
_GAIN = 2.0**16  # by so much more bits must help, or the radius is that of the start

SAFETY = 10.0
"""Over the distance of two runs, times what rounding is of that by which they start off."""

Steps = dict[At, Value | OutsideClaimError]


def all_steps(env: Environment) -> list[At]:
    """Return every name of a recursion at each of its steps, step by step."""
    names = [name for name in env.recursions.rules if name != PATH_LENGTH]  # which is computed where it is asked for
    return [(name, k) for k in range(env.last_step + 1) for name in names if k >= env.recursions.first(name)]


def steps_with_bits(env: Environment, wanted: int, make: Callable[[int], Environment]) -> Steps:
    """Return every step with so many bits that `wanted` of them are known, or as many as the start lets be known.

    Args:
        env: The environment that the steps are wanted in.
        wanted: Bits of every step.
        make: Returns the same environment with arb entries of so many bits; it is called at that precision.

    Raises:
        LimitError: A function has no form in arb, or a matrix is too large.
    """
    bits, before, reached_before = max(128, wanted), math.inf, -1
    while True:
        with working_precision(bits):
            steps, reached = _run(env, make(bits), wanted, cut=True)
            lost = _lost(steps, wanted)
            if reached is not None and (bits >= MAX_BITS or reached <= reached_before):
                return _run(env, make(bits), wanted, cut=False)[0]
        if reached is not None:  # what was lost on the way there, is lost about as fast on the way to the end
            reached_before = reached
            bits = min(MAX_BITS, max(2 * bits, wanted + SLACK + bits * (env.last_step + 1) // max(1, reached)))
            continue
        excess = math.log2(min(lost, 2.0**512)) + wanted - SLACK if lost > 0 else 0.0
        if excess <= 0 or bits >= MAX_BITS or lost * _GAIN > before:
            return steps
        before = lost
        bits = min(MAX_BITS, bits + math.ceil(excess) + SLACK)


def _run(env: Environment, inside: Environment, wanted: int, *, cut: bool) -> tuple[Steps, int | None]:
    """Return every step of an environment, and the first one that is not known to any digit, if there is one.

    Args:
        env: The environment that is told of troubles.
        inside: The environment that is run in.
        wanted: Bits of every step; twice as many, of what it was computed from, are enough for what may well be zero.
        cut: Whether to stop at such a step.
    """
    sizes: dict[str, float] = {}
    for at in all_steps(inside):
        try:
            value = value_at_step(inside, *at)
        except OutsideClaimError as error:
            inside.at_steps.setdefault(at, error)
            if cut and not error.certain:
                return inside.at_steps, at[1]
            continue
        sizes[at[0]] = size = max(sizes.get(at[0], 0.0), _size(value, exact=True))
        if _may_be_zero(value, inside.scales.get(at, 0.0), wanted):
            continue
        if cut and not radius(value) * _KNOWN <= size:
            return inside.at_steps, at[1]
    for trouble in inside.notes.unsure:
        env.notes.doubt(trouble)
    return with_scales(inside), None


def with_scales(env: Environment) -> Steps:
    """Return the steps of an environment, each with the scale of its formula: what two equal terms leave is near zero.

    The terms count with their own size, so that scales do not add up from step to step.
    """
    found: Steps = {}
    for at, value in env.at_steps.items():
        found[at] = value
        if not isinstance(value, OutsideClaimError) and value.scale < env.scales.get(at, 0.0) < math.inf:
            found[at] = replace(value, scale=env.scales[at])
    return found


def _size(value: Value, *, exact: bool = False) -> float:
    """Return an upper bound of the Frobenius norm of a value; with `exact`, of its centre."""
    if isinstance(value, Scalar):
        return sc.upper(abs(value.ball.mid() if exact else value.ball))
    flat = value.ball.flat if isinstance(value.ball, PreciseMatrix) else ()
    return _length(entry.mid() for entry in flat) if exact else _length(flat)


def _length(entries: Iterable[arb]) -> float:
    """Return an upper bound of the Euclidean norm; the square of a ball around zero would have no root."""
    ends = [entry.abs_upper() for entry in entries]
    return sc.upper(sum((end * end for end in ends), arb(0)).sqrt())


def _may_be_zero(value: Value, scale: float, wanted: int) -> bool:
    """Whether a value is known to twice the bits that are wanted, of what it was computed from: more would not help."""
    return scale < math.inf and radius(value) <= scale * 2.0 ** (-2 * wanted)


def _lost(steps: Mapping[At, Value | OutsideClaimError], wanted: int) -> float:
    """Return the largest radius of a step, relative to the largest value of its name, but for what may well be zero."""
    sizes: dict[str, float] = {}
    radii: dict[str, float] = {}
    for (name, _), value in steps.items():
        if isinstance(value, OutsideClaimError) or _may_be_zero(value, value.scale, wanted):
            continue
        sizes[name] = max(sizes.get(name, 0.0), _size(value, exact=True))
        radii[name] = max(radii.get(name, 0.0), radius(value))
    known = [(off, sizes[name]) for name, off in radii.items() if off and sizes[name] < math.inf]
    return max((off / size if size else math.inf for off, size in known), default=0.0)


def step_taken(value: Value | OutsideClaimError, at: At, env: Environment) -> Value | OutsideClaimError:
    """Return a step as the claim is judged with it: in floats with what rounding adds, or with the bits it has."""
    if isinstance(value, OutsideClaimError):
        return value
    size = _size(value)
    if not size < math.inf:
        detail = f"the recursion breaks off: {at[0]}[{at[1]}] is larger than floats can be"
        return OutsideClaimError("defined", detail, certain=False)
    if isinstance(value, Scalar) or env.precision is not None:
        return replace(value, scale=max(size, value.scale))
    assert isinstance(value.ball, PreciseMatrix)
    centre = value.ball.approximate.to(env.like)
    apart = [
        entry - sc.exact(float(near)) for entry, near in zip(value.ball.flat, centre.flatten().tolist(), strict=True)
    ]
    return Matrix(Ball(centre, _length(apart)), max(size, value.scale), gram=value.gram)


def _narrow(env: Environment) -> None:
    """Carry errors in float64 where balls have grown, as from a start that is one: entry by entry they wrap around.

    A rotation by 45 degrees takes a square around zero to one that is larger by sqrt(2) at every step, whatever the
    bits; the norm of an error stays what it is.
    """
    known = {at: value for at, value in env.at_steps.items() if not isinstance(value, OutsideClaimError)}
    if all(radius(value) <= CLOSE * value.scale for value in known.values()):
        return
    carried = carried_steps(env)
    for at, before in known.items():
        value: Value | None = carried.get(at)
        if value is None and all(used in carried for used in env.recursions.uses(*at)):  # no later step rests on it
            del env.at_steps[at]
            with suppress(OutsideClaimError):
                value = value_at_step(env, *at)
        closer = value is not None and radius(value) < radius(before)
        env.at_steps[at] = replace(value, scale=max(value.scale, before.scale)) if value and closer else before


def estimate_steps(env: Environment) -> None:
    """Carry errors in float64 where steps are not known better, and put estimates where they are lost."""
    _narrow(env)
    missing = [at for at in all_steps(env) if at not in env.at_steps]
    if not missing:
        return
    env.at_steps.update(carried_steps(env))
    lost = set[At]()
    for at in missing:
        if at in env.at_steps:
            continue
        try:
            value = value_at_step(env, *at)
        except OutsideClaimError:
            lost.add(at)
            continue
        around = [env.at_steps[used] for used in env.recursions.uses(*at)]
        size = max((used.scale for used in around if not isinstance(used, OutsideClaimError)), default=0.0)
        if not radius(value) <= LOST * max(value.scale, size):
            lost.add(at)
    env.at_steps.update(with_scales(env))
    if not lost:
        return
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # a run, and one in which every step is moved a little, in a random direction
        first, second = (_floats(tensor_names(env), missing, moving) for moving in (None, generator))
    eps = torch.finfo(env.like.dtype).eps
    for at in missing:
        if at not in lost:
            continue
        centre, other = first.get(at), second.get(at)
        if centre is None or other is None or not bool(torch.isfinite(centre).all() & torch.isfinite(other).all()):
            detail = f"the recursion breaks off: {at[0]}[{at[1]}] is not finite in floats"
            env.at_steps[at] = OutsideClaimError("defined", detail, certain=False)
            continue
        size = float(torch.linalg.vector_norm(centre))
        apart = float(torch.linalg.vector_norm(centre - other))
        off = SAFETY * (apart * eps / GROWTH * (at[1] + 1) + eps * size)
        if centre.ndim < 2:
            env.at_steps[at] = Scalar(sc.with_radius(float(centre), off), size)
        else:
            env.at_steps[at] = Matrix(Ball(centre, off), size)
    env.notes.estimated.setdefault(
        "steps of the recursion", f"from {min(lost, key=lambda at: at[1])[1]} on float64 balls are too wide"
    )


def _floats(names: TensorNames, wanted: list[At], generator: torch.Generator | None) -> dict[At, torch.Tensor]:
    for at in wanted:
        try:
            value = at_step(*at, names)
        except NtkDeqError:
            return dict(names.at_steps)
        if generator is not None:
            noise = torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value)
            names.at_steps[at] = value * (1 + GROWTH * noise)
    return dict(names.at_steps)
