"""Twins of the records of entrywise functions: what computes them in floats, in balls, in many bits and exactly.

A twin says what a function of one number is on a tensor and on a ball, and its slopes. From these follow a matrix
ball, a value of many bits, and what a cotangent is multiplied with. For a matrix A with fro(A - C) <= r,

    fro(f(A) - F) <= fro(f(C) - F) + L r,

where F holds floats near f(C), each compared with its value in `arb`, and L is the largest slope on an interval that
holds every entry of A.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from flint import arb, fmpq
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.certified import algebraic as al
from ntk_deq.certified import functions
from ntk_deq.certified.algebraic import Number, UndecidedError, sign
from ntk_deq.certified.dense import no_information
from ntk_deq.certified.precise import PreciseMatrix, as_ball
from ntk_deq.certified.precise.matrix import from_rows
from ntk_deq.certified.rounding import add_up, fro_up, multiply_up
from ntk_deq.certified.structured import densified
from ntk_deq.errors import LimitError
from ntk_deq.evaluation import arithmetic as ar
from ntk_deq.evaluation.environment import Environment, Notes, OutsideClaimError
from ntk_deq.evaluation.quantity import Matrix, Outcome, Scalar
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.record import Kink
from ntk_deq.language.types import Range

MOST_ENTRIES = 2**16
"""Entries of a matrix up to which a function without a path of its own is evaluated: half a second in arb."""

_LOG_TWO = math.nextafter(math.log(2.0), 1.0)

Value = Scalar | Matrix | Outcome


@dataclass(frozen=True, kw_only=True)
class Twin:
    """What computes a function of one number.

    Attributes:
        tensor: Its values on a tensor, differentiable.
        number: A ball of its values on a ball; no information where it has none on a part.
        slope: A ball of its derivatives on a ball, from the ball and that of the values; None: its record's sides.
        scale: Magnitude of a value, from that of the argument (a float, or a tensor of them) and the number of
            entries; None: its size.
        ball: A certified path of its own for matrices.
        whole: All of its evaluation in balls, where that is not as that of others.
        factor: The derivative with its magnitude, from argument and value, where that is not as that of others.
        exact: Its value at an algebraic number; None: it is not computed.
    """

    tensor: Callable[[Tensor], Tensor]
    number: Callable[[arb], arb]
    slope: Callable[[arb, arb], arb] | None = None
    scale: Callable[[Any, int], Any] | None = None
    ball: Callable[[ct.Ball], ct.Ball] | None = None
    whole: Callable[[Value, Environment], Value] | None = None
    factor: Callable[[Scalar, Scalar, Notes], Scalar] | None = None
    exact: Callable[[Number], Number] | None = None


def evaluated(name: str, value: Value, env: Environment) -> Value:
    """Return a function's ball on a number or, entry by entry, on a matrix."""
    twin, record = TWINS[name], FUNCTIONS[name]
    facts = record.entrywise
    assert facts is not None
    if twin.whole is not None:
        return twin.whole(value, env)
    if isinstance(value, Scalar):
        number = ar.to_scalar(value)
        ball = twin.number(number.ball)
        if not ball.is_finite() and number.ball.is_finite():
            certain = _outside(number.ball, facts.domain)
            env.notes.undefined(f"{name} of {number.ball.str(6)}", certain=certain)
        return Scalar(ball, number.scale if facts.sides else _scale(twin, number.scale, 1, ar.magnitude(ball)))
    matrix = ar.to_matrix(value)
    found = twin.ball(matrix.ball) if twin.ball is not None else matrix_ball(name, matrix.ball)
    if facts.sides:
        return Matrix(found, matrix.scale)
    if not found.is_finite and matrix.ball.is_finite:
        certain = any(_outside(end(matrix.ball), facts.domain) for end in (ct.entry_min, ct.entry_max))
        env.notes.undefined(f"{name} of a matrix: {found.reason}", certain=certain)
    rows, cols = found.shape
    return Matrix(found, _scale(twin, matrix.scale, rows * cols, ar.magnitude(ct.frobenius(found))))


def _scale(twin: Twin, scale: float, count: int, size: float) -> float:
    """Return the magnitude of a value of a given size, from that of its argument."""
    return size if twin.scale is None else max(size, float(twin.scale(scale, count)))


def _outside(ball: arb, domain: Range) -> bool:
    """Whether every number of a ball lies outside of a domain."""
    below = above = False
    if math.isfinite(domain.low):
        low = ct.exact(domain.low)
        below = bool(ball <= low if domain.low_open else ball < low)
    if math.isfinite(domain.high):
        high = ct.exact(domain.high)
        above = bool(ball >= high if domain.high_open else ball > high)
    return below or above


def matrix_ball(name: str, a: ct.Ball) -> ct.Ball:
    """Return the ball of a function's values on the entries of a matrix.

    Raises:
        LimitError: It has too many entries.

    Example:
        >>> image = matrix_ball("softplus", ct.Ball(torch.zeros(1, 2, dtype=torch.float64), 1e-3))
        >>> image.centre.tolist(), 5e-4 < image.radius < 5.01e-4
        ([[0.6931471805599453, 0.6931471805599453]], True)
    """
    twin = TWINS[name]
    if isinstance(a, PreciseMatrix):
        return as_ball(from_rows(*a.shape, map(twin.number, a.flat), a.reason))
    a = _dense(a)
    if not a.is_finite:
        return a
    entries = entries_of(a)
    found = near_balls(map(twin.number, map(arb, entries)), a)
    if a.radius == 0:
        return found
    hull = ct.from_bounds(arb(min(entries)) - arb(a.radius), arb(max(entries)) + arb(a.radius))
    return ct.Ball(found.centre, add_up(found.radius, multiply_up(steepest(name, hull), a.radius)), found.reason)


def steepest(name: str, hull: arb) -> float:
    """Return a bound of the slopes of a function on an interval."""
    twin, facts = TWINS[name], FUNCTIONS[name].entrywise
    assert facts is not None
    if twin.slope is None:
        return facts.lipschitz
    return min(facts.lipschitz, ct.upper(abs(twin.slope(hull, twin.number(hull)))))


def slopes(twin: Twin, a: ct.Ball) -> ct.Ball:
    """Return the ball of a function's derivatives at the entries of a matrix.

    Raises:
        LimitError: It has too many entries.
    """
    assert twin.slope is not None
    slope = twin.slope
    if isinstance(a, PreciseMatrix):
        return as_ball(from_rows(*a.shape, (slope(x, twin.number(x)) for x in a.flat), a.reason))
    a = _dense(a)
    if not a.is_finite:
        return a
    balls = (ct.with_radius(entry, a.radius) for entry in entries_of(a))
    return near_balls((slope(x, twin.number(x)) for x in balls), a)


def _dense(a: ct.Ball) -> ct.Ball:
    """Return a matrix as floats, none of its entries left to a structure."""
    rows, cols = a.shape
    if rows * cols > MOST_ENTRIES:
        raise LimitError(f"A function of {rows} x {cols} entries is not evaluated; {MOST_ENTRIES:,} are, at most.")
    dense: ct.Ball = densified(a)
    return dense


def entries_of(a: ct.Ball) -> list[float]:
    """Return the floats of a dense matrix, row after row.

    Raises:
        LimitError: They are too many.
    """
    rows, cols = a.shape
    if rows * cols > MOST_ENTRIES:
        raise LimitError(f"A function of {rows} x {cols} entries is not evaluated; {MOST_ENTRIES:,} are, at most.")
    entries: list[float] = a.work.flatten().tolist()
    return entries


def near_balls(values: Iterable[arb], like: ct.Ball) -> ct.Ball:
    """Return the ball around floats near some numbers, in the shape and element type of a matrix."""
    balls = list(values)
    if not all(ball.is_finite() for ball in balls):
        return no_information(like, *like.shape, "an entry has no value")
    centre = torch.tensor([float(ball.mid()) for ball in balls], dtype=like.dtype).reshape(like.shape)
    kept: list[float] = centre.double().flatten().tolist()
    if not all(map(math.isfinite, kept)):
        return no_information(like, *like.shape, "an entry is beyond the floats")
    errors = [ct.upper(abs(ball - arb(near))) for ball, near in zip(balls, kept, strict=True)]
    return ct.Ball(centre.to(like.device), fro_up(torch.tensor(errors, dtype=torch.float64)))


def factor(name: str, argument: Scalar, value: Scalar, notes: Notes) -> Scalar:
    """Return the derivative of a smooth function at a number."""
    twin = TWINS[name]
    if twin.factor is not None:
        return twin.factor(argument, value, notes)
    assert twin.slope is not None
    ball = twin.slope(argument.ball, value.ball)
    return Scalar(ball, ar.magnitude(ball))


def from_above(name: str, a: Tensor) -> Tensor:
    """Return the values of a function, with the slope from above where it has a corner."""
    facts = FUNCTIONS[name].entrywise
    if facts is None or facts.kink is not Kink.CORNER or facts.sides is None:
        return TWINS[name].tensor(a)
    below, above = facts.sides
    return torch.where(a >= 0, above * a if above else 0, below * a if below else 0)


def note_kinks(ball: ct.Ball, notes: Notes) -> None:
    """Note entries at which relu has no derivative (exact zeros), or may have none."""
    if not ball.radius < float("inf"):
        notes.kink("an argument of relu that is not known", certain=False)
        return
    nearest = ct.entry_min(ct.absolute(ball))
    if nearest == 0:
        notes.kink("an argument of relu is exactly zero", certain=True)
    elif not nearest > 0:
        notes.kink("an argument of relu that may be zero", certain=False)


def _step(value: Value, env: Environment) -> Value:
    """The derivative of relu; an argument that is or may be zero is noted, for no derivative exists there."""
    matrix = (
        value
        if isinstance(value, Matrix)
        else Matrix(ct.from_scalar(ar.to_scalar(value).ball, dtype=env.like.dtype, device=env.like.device), 1.0)
    )
    note_kinks(matrix.ball, env.notes)
    result = ct.step(matrix.ball)
    if isinstance(value, Scalar):
        return Scalar(ct.as_scalar(result), 1.0)
    return Matrix(result, float(result.shape[0] * result.shape[1]) ** 0.5)


def _exact_step(number: Number) -> Number:
    which = sign(number)
    if which == 0:
        raise OutsideClaimError("differentiable", "an argument of relu is exactly zero", certain=True)
    return fmpq(int(which > 0))


def _only_at(point: int, value: int | fmpq, what: str) -> Callable[[Number], Number]:
    """A function that is algebraic at one algebraic point only."""

    def function(number: Number) -> Number:
        if sign(number - fmpq(point)) != 0:
            raise UndecidedError(f"`{what}` is not computed exactly")
        return value if isinstance(value, fmpq) else fmpq(value)

    return function


def _edge_factor(
    slope: Callable[[arb], arb], inside: Callable[[arb], bool], what: str
) -> Callable[[Scalar, Scalar, Notes], Scalar]:
    """The derivative of a function whose domain has ends, at which it has none."""

    def factor_inside(argument: Scalar, value: Scalar, notes: Notes) -> Scalar:
        if not inside(argument.ball):
            certain = argument.ball.is_exact()
            notes.kink(f"{what} {'at' if certain else 'that may be at'} an end of its domain", certain=certain)
        ball = slope(argument.ball)
        return Scalar(ball, ar.magnitude(ball))

    return factor_inside


def _root_factor(argument: Scalar, root: Scalar, notes: Notes) -> Scalar:
    if not root.ball > 0:
        notes.kink(f"a square root {'at' if root.ball == 0 else 'that may be at'} zero", certain=bool(root.ball == 0))
    return ar.to_scalar(ar.divide(Scalar(arb(0.5), 0.5), root, notes))


def _least(scale: Any, count: int) -> Any:
    """The magnitude of values that are at most 1 and at most that of the argument."""
    most = count**0.5
    return scale.clamp_max(most) if isinstance(scale, Tensor) else min(scale, most)


def _one(scale: Any, count: int) -> Any:
    """The magnitude of values near 1, which may cancel."""
    most = count**0.5
    return torch.full_like(scale, most) if isinstance(scale, Tensor) else most


def _sign_ball(a: ct.Ball) -> ct.Ball:
    """Return the signs of a matrix's entries as step(A) - step(-A)."""
    return ct.subtract(ct.step(a), ct.step(ct.negate(a)))


def _huber(a: Tensor) -> Tensor:
    """Return m (x - m/2) with m = x clipped to [-1, 1], whose derivative is m."""
    near = a.clamp(-1.0, 1.0)
    return near * (a - near / 2)


def _exact_huber(number: Number) -> Number:
    size = al.absolute(number)
    return size - fmpq(1, 2) if sign(size - fmpq(1)) > 0 else al.power(size, 2) * fmpq(1, 2)


TWINS: dict[str, Twin] = {
    "abs": Twin(
        tensor=torch.abs,
        number=ct.absolute_value,
        ball=ct.absolute,
        exact=al.absolute,
    ),
    "relu": Twin(
        tensor=torch.relu,
        number=lambda x: ct.maximum(x, arb(0)),
        ball=ct.relu,
        exact=lambda number: number if sign(number) > 0 else fmpq(0),
    ),
    "sign": Twin(
        tensor=torch.sign,
        number=functions.sign,
        ball=_sign_ball,
        exact=lambda number: fmpq(sign(number)),
    ),
    "step": Twin(
        tensor=lambda a: torch.sign(a).clamp_min(0.0),  # which autograd passes, with zeros
        number=functions.step,
        whole=_step,
        exact=_exact_step,
    ),
    "softplus": Twin(
        tensor=lambda a: torch.logaddexp(a, torch.zeros_like(a)),
        number=functions.softplus,
        slope=lambda x, y: functions.sigmoid(x),
        scale=lambda scale, count: scale + _LOG_TWO * count**0.5,  # softplus(x) <= log 2 + |x|
    ),
    "tanh": Twin(
        tensor=torch.tanh,
        number=functions.tanh,
        slope=lambda x, y: functions.tanh_slope(x),
        scale=_least,
        exact=_only_at(0, 0, "tanh"),
    ),
    "sigmoid": Twin(
        tensor=torch.sigmoid,
        number=functions.sigmoid,
        slope=lambda x, y: functions.sigmoid_slope(x),
        exact=_only_at(0, fmpq(1, 2), "sigmoid"),
    ),
    "erf": Twin(
        tensor=torch.erf,
        number=functions.erf,
        slope=lambda x, y: functions.erf_slope(x),
        scale=_least,
        exact=_only_at(0, 0, "erf"),
    ),
    "sin": Twin(
        tensor=torch.sin,
        number=functions.sin,
        slope=lambda x, y: functions.cos(x),
        scale=_least,
        exact=_only_at(0, 0, "sin"),
    ),
    "cos": Twin(
        tensor=torch.cos,
        number=functions.cos,
        slope=lambda x, y: -functions.sin(x),
        scale=_one,
        exact=_only_at(0, 1, "cos"),
    ),
    "arccos": Twin(
        tensor=torch.arccos,
        number=functions.arccos,
        slope=lambda x, y: functions.arccos_slope(x),
        scale=_one,
        factor=_edge_factor(functions.arccos_slope, lambda x: abs(x) < 1, "an arccos"),
        exact=_only_at(1, 0, "arccos"),
    ),
    "arctan": Twin(
        tensor=torch.arctan,
        number=functions.arctan,
        slope=lambda x, y: functions.arctan_slope(x),
        scale=_least,
        exact=_only_at(0, 0, "arctan"),
    ),
    "huber": Twin(
        tensor=_huber,
        number=functions.huber,
        slope=lambda x, y: functions.huber_slope(x),
        scale=lambda scale, count: scale,  # huber(x) <= |x|
        exact=_exact_huber,
    ),
    "sqrt": Twin(
        tensor=torch.sqrt,
        number=ct.square_root,
        slope=lambda x, y: ct.divide(arb(0.5), y),
        scale=lambda scale, count: (scale * count**0.5) ** 0.5,  # the sum of the entries is at most that
        factor=_root_factor,
        exact=lambda number: al.root(number, 2),
    ),
    "exp": Twin(
        tensor=torch.exp,
        number=lambda x: ct.exponential(x) if x.is_finite() else ct.nan(),  # exp(-inf) would pass for a plain zero
        slope=lambda x, y: y,
        factor=lambda argument, value, notes: value,
        exact=_only_at(0, 1, "exp"),
    ),
    "log": Twin(
        tensor=torch.log,
        number=ct.logarithm,
        slope=lambda x, y: ct.divide(arb(1), x),
        factor=lambda argument, value, notes: ar.to_scalar(ar.divide(Scalar(arb(1), 1.0), argument, notes)),
        exact=_only_at(1, 0, "log"),
    ),
}
"""The twin of every record of an entrywise function."""
