"""What a figure of a training run shows, worked out from its record; the page's plots and the figures both draw it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ntk_deq.errors import ExpressionError
from ntk_deq.language.format import format_expr
from ntk_deq.language.parser import parse
from ntk_deq.language.run import told_in
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.verify.results import Curve, TrainingRecord

# Steps count as log-spaced where at least this share lies in the first tenth of the run; even ones put 10 % there.
_EARLY = 0.3

# A loss that keeps at least this share of its start is flat on a logarithmic axis: its decrease is shown instead.
_LITTLE = 0.5

# Decades beyond the loss, up and down, in which a bound is always drawn.
_ROOM = 2.0

# The recorded loss is a float beside the judged ball; a solver's tolerance may move it by this share near its floor.
_SAME_LOSS = 1e-3


@dataclass(frozen=True)
class LossPicture:
    """The loss of a run and its bound, as they are drawn against the steps; NaN where there is nothing to draw.

    Attributes:
        at: Steps or times.
        loss: The loss, or its decrease 1 - L/L[0].
        low: Lower ends of the judged balls.
        high: Upper ends.
        bound: The bound that the claim states; for the decrease, the least that it promises.
        decrease: Whether the decrease is drawn: the run is so short for its rate that the loss is as good as flat.
        spread: Whether the steps want a logarithmic axis: spread over decades, and not for a loss, which falls along a
            straight line on a linear one where it converges linearly.
    """

    at: tuple[float, ...]
    loss: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    bound: tuple[float, ...]
    decrease: bool
    spread: bool

    @property
    def has_bound(self) -> bool:
        """Whether there is a bound to draw."""
        return any(math.isfinite(value) for value in self.bound)

    @property
    def shown(self) -> tuple[float, ...]:
        """The values that the axis has to hold: the loss, and the bound as far as the loss stays readable beside it.

        A bound may fall through 300 decades while the loss falls through two, or be as far off: what lies further from
        the loss than the loss reaches itself, and two decades at least, leaves the axis.
        """
        logs = [math.log10(value) for value in self.loss if math.isfinite(value)]
        if not logs:
            return self.bound
        room = max(max(logs) - min(logs), _ROOM)
        low, high = min(logs) - room, max(logs) + room
        near = (value for value in self.bound if math.isfinite(value) and low <= math.log10(value) <= high)
        return (*self.loss, *near)


@dataclass(frozen=True)
class ShareCurve:
    """How much of its bound a quantity uses along a run: 1 is the bound, more breaks it.

    `measured/bound` where the bound is an upper one, `bound/measured` where it is a lower one.

    Attributes:
        curve: The comparison.
        sides: Its two sides as trees of the claim language with the sign between, or None where the text says less.
        share: The share at each judged step; infinity where nothing positive bounds a positive side, NaN without one.
        low: Its lower end, from the judged balls.
        high: Its upper end.
    """

    curve: Curve
    sides: tuple[Expr, str, Expr] | None
    share: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def drawable(self) -> bool:
        """Whether there is a step with a share."""
        return any(math.isfinite(value) for value in self.share)

    def is_open(self, place: int) -> bool:
        """Whether the ball of a step is so wide that its middle would tell of a breach that may not be one."""
        low = self.low[place]
        return low < 1.0 < self.share[place] and self.high[place] > 2 * low


def isolated(values: Sequence[float]) -> list[int]:
    """Return the places of values that a line through them does not show, having no neighbour.

    Example:
        >>> isolated((1.0,)), isolated((1.0, 2.0, math.nan, 3.0))
        ([0], [3])
    """
    known = [False, *map(math.isfinite, values), False]
    return [i for i in range(len(values)) if known[i + 1] and not (known[i] or known[i + 2])]


def are_spread(at: tuple[float, ...]) -> bool:
    """Return whether steps are spread over decades.

    Example:
        >>> are_spread((0.0, 1.0, 10.0, 100.0, 1000.0)), are_spread((0.0, 1.0, 2.0, 3.0, 4.0))
        (True, False)
    """
    early = sum(1 for value in at[1:] if value <= at[-1] / 10)
    return len(at) > 2 and early >= _EARLY * (len(at) - 1)


def loss_curve(record: TrainingRecord) -> Curve | None:
    """Return the conclusion that bounds the loss from above, or None where no conclusion does."""
    for curve, sides in _with_sides(record):
        if curve.sense == "<=" and sides is not None and _is_loss(sides[0]):
            return curve
    for curve in record.curves:
        if curve.sense == "<=" and _measures_the_loss(curve, record.loss):
            return curve
    return None


def measured_name(record: TrainingRecord) -> str | None:
    """Return what is drawn of a recursion, the left side of a conclusion; None: it is the loss of a training run."""
    if not told_in(record).written:
        return None
    sides = next((sides for curve, sides in _with_sides(record) if curve is loss_curve(record)), None)
    return "what is followed" if sides is None else format_expr(sides[0])


def loss_picture(record: TrainingRecord) -> LossPicture:
    """Return the loss and its bound as they are drawn."""
    curve = loss_curve(record)
    nothing = (math.nan,) * len(record.at)
    low, high, bound = (curve.low, curve.high, curve.bound) if curve else (nothing, nothing, nothing)
    start = record.loss[0]
    # Growth must not hide: whatever rises is drawn as the loss itself.
    settled = all(_LITTLE * start <= value <= start for value in record.loss)
    decrease = settled and start > 0 and record.loss[-1] < start
    if decrease:
        low, high = high, low

    def shown(row: tuple[float, ...]) -> tuple[float, ...]:
        values = (1 - value / start for value in row) if decrease else row
        return tuple(value if value > 0 and math.isfinite(value) else math.nan for value in values)

    return LossPicture(
        at=record.at,
        loss=shown(record.loss),
        low=shown(low),
        high=shown(high),
        bound=shown(bound),
        decrease=decrease,
        spread=decrease and are_spread(record.at),
    )


def share_curves(record: TrainingRecord) -> list[ShareCurve]:
    """Return the share of its bound that each quantity but the loss uses, in the order of the conclusions."""
    loss = loss_curve(record)
    curves = []
    for curve, sides in _with_sides(record):
        if curve is loss:
            continue
        middle = tuple((low + high) / 2 for low, high in zip(curve.low, curve.high, strict=True))
        low, high = (curve.low, curve.high) if curve.sense == "<=" else (curve.high, curve.low)
        shares = (tuple(map(_share, row, curve.bound, [curve.sense] * len(row))) for row in (middle, low, high))
        curves.append(ShareCurve(curve, sides, *shares))
    return curves


def _share(measured: float, bound: float, sense: str) -> float:
    part, whole = (measured, bound) if sense == "<=" else (bound, measured)
    if math.isnan(part + whole) or (part == whole == 0) or math.isinf(part):
        return math.nan
    if part <= 0:
        return 0.0 if whole >= 0 else math.nan
    return part / whole if whole > 0 else math.inf


def _is_loss(side: Expr) -> bool:
    """Whether a side is L[k]; L[k + 1] is not, as its bound is one of a single step."""
    return side.kind is Kind.INDEX and side.name == "L" and side.args[0].kind is Kind.NAME


def _measures_the_loss(curve: Curve, loss: tuple[float, ...]) -> bool:
    """Whether the judged balls are narrow ones around the recorded loss, throughout."""
    pairs = zip(curve.low, curve.high, loss, strict=True)
    return all(max(abs(low - value), abs(high - value)) <= _SAME_LOSS * abs(value) for low, high, value in pairs)


def _with_sides(record: TrainingRecord) -> list[tuple[Curve, tuple[Expr, str, Expr] | None]]:
    """Return each curve with its comparison; curves of one conclusion take its comparisons in order."""
    taken: Counter[tuple[str, str]] = Counter()
    pairs = []
    for curve in record.curves:
        comparisons = _comparisons(curve.text)
        number = taken[curve.name, curve.text]
        taken[curve.name, curve.text] += 1
        pairs.append((curve, _oriented(comparisons[number], curve.sense) if number < len(comparisons) else None))
    return pairs


def _oriented(comparison: tuple[Expr, str, Expr], sense: str) -> tuple[Expr, str, Expr] | None:
    """Return a comparison with its measured side first, or None where its sign is not that of the curve."""
    left, sign, right = comparison
    if sign[0] == sense[0]:
        return comparison
    mirrored = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(sign)
    return (right, mirrored, left) if mirrored is not None and mirrored[0] == sense[0] else None


@lru_cache(maxsize=256)
def _comparisons(text: str) -> tuple[tuple[Expr, str, Expr], ...]:
    """Return every comparison of two sides in a formula; none where it cannot be read."""
    try:
        tree = parse(text)
    except ExpressionError:
        return ()
    return tuple(link for node in tree.walk() for link in node.links)
