"""Steps of a recursion in float64, each with its distance from the exact one: its defect is bounded, and carried.

A ball that a step's formula is evaluated on grows by the size of every term, in z - a (F z - c) by 1 + a norm(F),
while the map may contract. So the floats c_v are computed without any radius, and the error is carried instead. With
S the difference quotients of the rule over the balls around what it rests on, u, and d the defect, the distance of
c_v from the rule's value at the floats c_u,

    x_v - c_v = sum S_vu (x_u - c_u) + d_v.

At a corner S lies between the slopes on its two sides: a kink that may be passed is a bounded jump of S, and no gap.
Errors are kept as x_v - c_v = M_v e + r_v, with e those at the last cut: M_v = sum S_vu M_u as a matrix, and
norm(r_v) <= norm(d_v) + sum norm(S_vu) norm(r_u). At a cut, a place in the order of evaluation where little of what is
known is needed later, e starts anew. One step a stretch loses nothing where the map does not expand; where it does in
the Euclidean norm and yet contracts over many steps, as momentum does, longer stretches are tried.

Symbols: c_v centre, S_vu quotients, M_v `maps`, r_v `rest`, norm(e) `joint`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from flint import arb

from ntk_deq import certified as ct
from ntk_deq.certified import scalar as sc
from ntk_deq.certified.rounding import add_up, multiply_up
from ntk_deq.certified.structured import densified
from ntk_deq.errors import LimitError
from ntk_deq.evaluation.arithmetic import magnitude
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.derivatives.reverse import step_quotients
from ntk_deq.evaluation.environment import Environment, Notes, OutsideClaimError
from ntk_deq.evaluation.quantity import Matrix, Scalar
from ntk_deq.language.recursion import PATH_LENGTH, At
from ntk_deq.language.tree import Kind

STRETCHES = (1, 8, 32)
"""Steps from cut to cut that are tried, until the errors stay small."""

LOST = 1e-6
"""Radius of a step, relative to it and to what it rests on, from which on a float64 ball counts as lost."""

CLOSE = 1e-10
"""Largest error of a step, relative to the largest step, with which no longer stretches are tried."""

MOST = 600
"""Numbers that are needed later, at most, at a cut: a product of such matrices takes some 20 ms."""

_SURE = 2.0**-64  # radius of a number, relative, up to which it is what it is: further in than floats see

Value = Scalar | Matrix


@dataclass
class _Carried:
    """A value at a step.

    Attributes:
        value: The floats, without a radius.
        error: How far they are from the truth, at most.
        maps: What takes errors at the last cut to those of this value, by what they are of; None: the identity.
        rest: What is left of its error.
    """

    value: Value
    error: float
    maps: dict[At, ct.Ball | None]
    rest: float

    @property
    def entries(self) -> int:
        """How many numbers it holds."""
        return 1 if isinstance(self.value, Scalar) else self.value.ball.centre.numel()

    @property
    def ball(self) -> Value:
        """The value with its error."""
        if isinstance(self.value, Scalar):
            return replace(self.value, ball=sc.with_radius(self.value.ball, self.error))
        return replace(self.value, ball=ct.Ball(self.value.ball.centre, self.error))


def carried_steps(env: Environment) -> dict[At, Value]:
    """Return steps of a recursion with proven errors, up to where these are lost.

    What no later step rests on is left out: evaluated on these balls its formula says as much.

    Args:
        env: What names mean; its matrices are float64 balls.
    """
    order = _Order(env)
    best, worst = dict[At, Value](), math.inf
    for stretch in STRETCHES:
        run = _Run(env, order, stretch)
        found = run.result()
        if len(found) > len(best) or (len(found) == len(best) and run.worst < worst):
            best, worst = found, run.worst
        if len(found) == len(order.last) and run.worst <= CLOSE:
            break
    return best


class _Order:
    """In which order steps are computed, and where little of them is needed later."""

    def __init__(self, env: Environment) -> None:
        recursions, known = env.recursions, set[At]()
        self.order: list[At] = []
        names = [name for name in recursions.rules if name != PATH_LENGTH]
        steps: list[int] = []
        for k in range(env.last_step + 1):
            for name in names:
                for at in recursions.unfolded(name, k, known) if k >= recursions.first(name) else ():
                    known.add(at)
                    self.order.append(at)
                    steps.append(k)
        self.uses = {at: frozenset(recursions.uses(*at)) for at in self.order}
        self.last = {used: place for place, at in enumerate(self.order) for used in self.uses[at]}
        self.moving = _moving(env)
        self.cuts = self._cuts(steps, {name: _entries(env, name) for name in names})

    def _cuts(self, steps: list[int], entries: Mapping[str, int]) -> frozenset[int]:
        """Return for each step the place after which the fewest numbers are needed later."""
        ends: dict[int, int] = {}
        for at, place in self.last.items():
            ends[place] = ends.get(place, 0) + entries[at[0]]
        held, best = 0, dict[int, tuple[int, int]]()
        for place, (at, k) in enumerate(zip(self.order, steps, strict=True)):
            held += (entries[at[0]] if at in self.last else 0) - ends.get(place, 0)
            if held <= best.get(k, (held, 0))[0]:
                best[k] = held, place
        return frozenset(place for _, place in best.values())


def _entries(env: Environment, name: str) -> int:
    """Return how many numbers a name of a recursion holds at a step."""
    inside = replace(env, notes=Notes(deadline=env.notes.deadline), at_steps={}, cache=dict(env.cache))
    try:
        value = env.providers.at_step(inside, name, env.recursions.first(name))
    except (OutsideClaimError, LimitError):
        return 0
    return 1 if isinstance(value, Scalar) else value.ball.shape[0] * value.ball.shape[1]


def _moving(env: Environment) -> frozenset[str]:
    """Return the definitions that rest on steps."""
    found, before = set[str](), -1
    while len(found) > before:
        before = len(found)
        for name, formula in env.lets.items():
            nodes = formula.expr.walk()
            if any((node.kind is Kind.INDEX and node.name in env.recursions) or node.name in found for node in nodes):
                found.add(name)
    return frozenset(found)


class _Run:
    """One run with so many steps from cut to cut.

    Attributes:
        worst: The largest error of a step, relative to the largest step.
    """

    def __init__(self, env: Environment, order: _Order, stretch: int) -> None:
        self._env, self._order, self._stretch = env, order, stretch
        self._known: dict[At, _Carried] = {}
        self._plain: dict[At, Scalar] = {}  # numbers that are known far better than floats are
        self._base: dict[At, float] = {}
        self._base_entries: dict[At, int] = {}
        self._joint = 0.0
        self.worst = 0.0

    def result(self) -> dict[At, Value]:
        """Return the steps that are known."""
        found: dict[At, Value] = {}
        since = 0
        for place, at in enumerate(self._order.order):
            if at in self._order.last:
                self._env.notes.check_time()
                step = self._step(at)
                if step is None:
                    break
                value = found[at] = step if isinstance(step, Scalar) else step.ball
                if isinstance(step, Scalar):
                    self._plain[at] = step
                else:
                    self._known[at] = step
                    size = max((found[used].scale for used in self._order.uses[at]), default=0.0)
                    if not step.error <= LOST * max(value.scale, size):
                        del found[at]
                        break
            if place in self._order.cuts:
                since += 1
                if since >= self._stretch:
                    if not self._cut(place):
                        break
                    found.update({at: carried.ball for at, carried in self._known.items()})
                    since = 0
        largest = max((value.scale for value in found.values()), default=0.0)
        self.worst = max((radius(value) for value in found.values()), default=0.0) / (largest or 1.0)
        return found

    def _step(self, at: At) -> _Carried | Scalar | None:
        """Return a value with its error; a number that is known well as it is; None where nothing is known."""
        expr, letters = self._env.recursions.formula(*at)
        uses = self._order.uses[at]
        if not all(used in self._known or used in self._plain for used in uses):
            return None
        moving = [used for used in uses if used in self._known]
        here = {used: self._known[used].value if used in self._known else self._plain[used] for used in uses}
        value = self._value(at, here)
        if value is None:
            return None
        if isinstance(value, Scalar) and not moving and radius(value) <= _SURE * value.scale:
            return value
        start = _floats(value, radius(value))
        if not moving:
            return start
        around = {used: self._known[used].ball if used in self._known else self._plain[used] for used in uses}
        most = max(self._known[used].entries for used in moving)
        quotients = None
        if max(start.entries, most) <= MOST:
            quotients = step_quotients(expr, self._inside(around), letters, moving)
        if quotients is None:
            value = self._value(at, around)
            return None if value is None else _floats(value, radius(value))
        rest, maps = start.rest, dict[At, ct.Ball | None]()
        for used, slope in quotients.items():
            carried = self._known[used]
            if carried.rest:
                rest = add_up(rest, multiply_up(_norm(slope), carried.rest))
            for base, before in carried.maps.items():
                part = slope if before is None else ct.matmul(slope, before)
                own = maps.get(base)
                maps[base] = part if own is None else ct.add(own, part)
        each = [multiply_up(add_up(own.norm2, own.radius), self._base[base]) for base, own in maps.items() if own]
        return _Carried(start.value, add_up(rest, *each), maps, rest)

    def _value(self, at: At, steps: Mapping[At, Value]) -> Value | None:
        """Return the ball of a rule at some steps, None where it has none; what does not rest on steps is kept."""
        expr, letters = self._env.recursions.formula(*at)
        inside = self._inside(steps)
        try:
            value = evaluate(expr, inside, letters)
        except (OutsideClaimError, LimitError):
            return None
        if inside.notes.unsure or inside.notes.estimated:
            return None
        self._env.cache.update({name: found for name, found in inside.cache.items() if name not in self._order.moving})
        assert isinstance(value, Scalar | Matrix)
        self._env.scales[at] = value.scale
        if isinstance(value, Matrix):
            ball = densified(value.ball)
            size = sc.upper(ct.frobenius(ball)) if ball.is_finite else math.inf
            value = replace(value, ball=ball, scale=size)
        else:
            value = replace(value, scale=magnitude(value.ball))
        return value if value.scale < math.inf else None

    def _inside(self, steps: Mapping[At, Value]) -> Environment:
        """Return an environment in which nothing but some steps is known of the recursion."""
        cache = {name: value for name, value in self._env.cache.items() if name not in self._order.moving}
        notes = Notes(deadline=self._env.notes.deadline)
        return replace(self._env, notes=notes, at_steps=dict(steps), scales={}, cache=cache)

    def _cut(self, place: int) -> bool:
        """Start anew from what is needed after a place; whether that is little enough."""
        live = [at for at in self._known if self._order.last[at] > place]
        known = self._known = {at: self._known[at] for at in live}
        if sum(carried.entries for carried in known.values()) > MOST:
            return False
        each = {}
        for at, carried in known.items():
            parts = [multiply_up(1.0 if own is None else _norm(own), self._base[b]) for b, own in carried.maps.items()]
            each[at] = min(carried.error, add_up(carried.rest, *parts))
        joint = _length(each.values())
        if self._base and known and len(self._base) + len(known) > 2:
            rest = _length(carried.rest for carried in known.values())
            joint = min(joint, add_up(multiply_up(self._stacked(known), self._joint), rest))
        for at, carried in known.items():
            carried.error, carried.maps, carried.rest = min(each[at], joint), {at: None}, 0.0
        self._base, self._joint = {at: carried.error for at, carried in known.items()}, joint
        self._base_entries = {at: carried.entries for at, carried in known.items()}
        return True

    def _stacked(self, known: Mapping[At, _Carried]) -> float:
        """Return an upper bound of the norm of what takes all errors at the last cut to all of these."""
        rows, radii = [], list[float]()
        for carried in known.values():
            blocks = []
            for base, entries in self._base_entries.items():
                own, like = carried.maps.get(base), self._env.like
                if isinstance(own, ct.Ball):
                    radii.append(own.radius)
                    blocks.append(own.centre)
                elif base in carried.maps:
                    blocks.append(torch.eye(entries, dtype=like.dtype, device=like.device))
                else:
                    blocks.append(like.new_zeros(carried.entries, entries))
            rows.append(torch.cat(blocks, dim=1))
        return _norm(ct.Ball(torch.cat(rows), _length(radii)))


def _floats(value: Value, off: float) -> _Carried:
    """Return a value with nothing but an error."""
    if isinstance(value, Scalar):
        return _Carried(replace(value, ball=value.ball.mid()), off, {}, off)
    return _Carried(replace(value, ball=ct.Ball(value.ball.centre)), off, {}, off)


def radius(value: Value) -> float:
    """Return how far a value may be from its centre."""
    return sc.upper(value.ball.rad()) if isinstance(value, Scalar) else value.ball.radius


def _norm(ball: ct.Ball) -> float:
    """Return an upper bound of the spectral norm of every matrix in a ball."""
    return min(sc.upper(ct.spectral_norm(ball)), add_up(ball.norm2, ball.radius))


def _length(values: Iterable[float]) -> float:
    """Return an upper bound of the root of a sum of squares; arb neither overflows nor underflows."""
    return sc.upper(sum((arb(value) ** 2 for value in values), arb(0)).sqrt())
