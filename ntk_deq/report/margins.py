"""The margin plot of a conclusion as inline SVG: a histogram over a rug, on a signed logarithmic axis.

Colours come from the page's style sheet by class name, so that the plot follows light and dark.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from ntk_deq.report.axes import SignedLogAxis
from ntk_deq.report.console import printable, short_number
from ntk_deq.verify.results import ConclusionRecord

WIDTH, HEIGHT = 440.0, 112.0
_LEFT, _RIGHT = 38.0, 426.0  # left of it: the counts
_TOP, _FLOOR = 24.0, 76.0  # the bars stand on _FLOOR
_RUG_TOP, _RUG_FLOOR = 80.0, 90.0
_BAND = 14.0
_BAR = 8.0  # width of a bin
# More ticks than this cannot be told apart; bars show the rest.
_RUG_LIMIT = 240

SCALE_NAME = "margin over the size of the terms that both sides are computed from, on a signed logarithmic scale"
"""What the horizontal axis of a margin plot shows."""

KINDS = ("false", "unsure", "tight", "true")


@dataclass(frozen=True, slots=True)
class Mark:
    """One instance on the plot: its relative margin ball and how it counts."""

    low: float
    high: float
    kind: str
    worst: bool

    @property
    def value(self) -> float:
        """The end of the ball nearer to zero, or 0 where the ball contains zero."""
        if self.kind in ("tight", "unsure"):
            return 0.0
        return self.low if self.low > 0 else min(self.high, 0.0)


def _relative(value: float, scale: float) -> float:
    if value == 0 or math.isinf(value):
        return value
    return value / scale if scale > 0 and math.isfinite(scale) else math.copysign(math.inf, value)


def _kinds(record: ConclusionRecord, balls: list[tuple[float, float]]) -> list[str]:
    """Return how each ball counts: by its sign where it has one, and as many of the rest as the record says."""
    kinds = ["true" if lo > 0 else "false" if hi < 0 else "" for lo, hi in balls]
    open_balls = [i for i, kind in enumerate(kinds) if not kind]
    open_balls.sort(key=lambda i: balls[i][1] - balls[i][0])
    left = {"true": record.true - kinds.count("true"), "false": record.false - kinds.count("false")}
    left["tight"] = record.tight
    for i in open_balls:
        lo, hi = balls[i]
        # An end at zero decides a weak comparison (lo = 0) or breaks a strict one (hi = 0); the counts know which.
        fits = [
            name for name, fit in (("true", lo == 0), ("false", hi == 0), ("tight", True)) if fit and left[name] > 0
        ]
        kinds[i] = fits[0] if fits else "unsure"
        if fits:
            left[fits[0]] -= 1
    return kinds


def plot_marks(record: ConclusionRecord) -> list[Mark]:
    """Return one mark for each instance of a conclusion, in order.

    Balls around zero count as tight from the narrowest on, as many as the record says, the others as unsure.
    """
    balls = [(_relative(lo, scale), _relative(hi, scale)) for lo, hi, scale in record.margins]
    worst = min(range(len(balls)), key=lambda i: record.margins[i][0], default=-1)
    return [
        Mark(*ball, kind, i == worst) for i, (ball, kind) in enumerate(zip(balls, _kinds(record, balls), strict=True))
    ]


def shared_axis(records: Iterable[ConclusionRecord]) -> SignedLogAxis:
    """Return one axis for all conclusions of a claim, so that their plots can be compared."""
    values = []
    for record in records:
        for mark in plot_marks(record):
            values += [mark.low, mark.high] if mark.kind == "unsure" else [mark.value]
    return SignedLogAxis.covering(values, left=_LEFT, right=_RIGHT, band=_BAND)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _rect(kind: str, x: float, y: float, width: float, height: float, title: str = "") -> str:
    shape = (
        f'<rect class="{kind}" x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" height="{_number(height)}"'
    )
    return f"{shape}><title>{escape(title)}</title></rect>" if title else f"{shape}/>"


def _bin(axis: SignedLogAxis, value: float) -> int:
    """Return the number of the bin: 0 is the zero band, 1, 2, ... run to the right, -1, -2, ... to the left."""
    if value == 0:
        return 0
    distance = abs(axis.place(value) - axis.zero) - axis.band / 2
    return int(math.copysign(1 + max(distance, 0.0) // _BAR, value))


def _bin_left(axis: SignedLogAxis, number: int) -> float:
    if number == 0:
        return axis.zero - _BAR / 2
    inner = axis.zero + math.copysign(axis.band / 2 + (abs(number) - 1) * _BAR, number)
    return inner if number > 0 else inner - _BAR


def _bars(axis: SignedLogAxis, marks: list[Mark]) -> list[str]:
    counts = Counter((_bin(axis, mark.value), mark.kind) for mark in marks)
    totals: Counter[int] = Counter()
    for (number, _), count in counts.items():
        totals[number] += count
    if not totals:
        return []
    highest = max(totals.values())
    parts = _count_axis(highest)
    for number in sorted(totals):
        floor = _FLOOR
        for kind in KINDS:
            count = counts[number, kind]
            if not count:
                continue
            # Two units keep a single instance among hundreds visible.
            height = max(2.0, (_FLOOR - _TOP) * count / highest)
            instances = "instance" if count == 1 else "instances"
            x = _bin_left(axis, number) + 0.5
            parts.append(_rect(kind, x, max(floor - height, _TOP), _BAR - 1, height, f"{count} {instances}: {kind}"))
            floor -= height
    return parts


def _count_axis(highest: int) -> list[str]:
    """Return the counts left of the bars: 0 at their foot, that of the highest one at its top, half of it between."""
    parts = []
    for count in {0, highest, *([highest // 2] if highest % 2 == 0 else [])}:
        y = _FLOOR - (_FLOOR - _TOP) * count / highest
        parts.append(f'<path class="axis" d="M{_number(_LEFT - 4)} {_number(y)}h4"/>')
        parts.append(f'<text class="label count" x="{_number(_LEFT - 7)}" y="{_number(y + 4)}">{count}</text>')
    parts.append(f'<path class="axis" d="M{_number(_LEFT)} {_number(_TOP)}V{_number(_FLOOR)}"/>')
    return sorted(parts)


def _rug(axis: SignedLogAxis, marks: list[Mark]) -> list[str]:
    step = max(1, math.ceil(len(marks) / _RUG_LIMIT))
    shown = [mark for i, mark in enumerate(marks) if i % step == 0 or mark.worst or mark.kind in ("false", "unsure")]
    parts = []
    for mark in shown[: 2 * _RUG_LIMIT]:
        middle = (_RUG_TOP + _RUG_FLOOR) / 2
        if mark.kind == "unsure":
            low, high = axis.place(mark.low), axis.place(mark.high)
            parts.append(_rect("unsure ball", low, middle - 0.75, max(high - low, 1.0), 1.5))
        parts.append(_rect(f"{mark.kind} tick", axis.place(mark.value) - 0.5, _RUG_TOP, 1.0, _RUG_FLOOR - _RUG_TOP))
    return parts


def _frame(axis: SignedLogAxis) -> list[str]:
    band = _rect("zero-band", axis.zero - axis.band / 2, _TOP - 4, axis.band, _RUG_FLOOR - _TOP + 4)
    line = f'<path class="axis" d="M{_number(_LEFT)} {_number(_RUG_FLOOR)}H{_number(_RIGHT)}"/>'
    parts = [band, line]
    for place, label in axis.ticks(spacing=44.0):
        kind = "zero" if label == "0" else "power"
        top = _TOP - 4 if label == "0" else _RUG_FLOOR
        parts.append(f'<path class="{kind}" d="M{_number(place)} {_number(top)}V{_number(_RUG_FLOOR + 4)}"/>')
        parts.append(f'<text class="label {kind}" x="{_number(place)}" y="{_number(HEIGHT - 6)}">{label}</text>')
    return parts


def _worst(axis: SignedLogAxis, marks: list[Mark]) -> list[str]:
    for mark in marks:
        if mark.worst:
            x = axis.place(mark.value)
            anchor = "start" if x < _LEFT + 24 else "end" if x > _RIGHT - 24 else "middle"
            tip = _TOP - 5
            place = f'x="{_number(x)}" y="{_number(tip - 9)}" text-anchor="{anchor}"'
            return [
                f'<path class="worst {mark.kind}" d="M{_number(x)} {_number(tip)}l-4 -6h8z"/>',
                f'<text class="label worst" {place}>worst</text>',
            ]
    return []


def _describe(record: ConclusionRecord, marks: list[Mark]) -> str:
    counts = Counter(mark.kind for mark in marks)
    said = ", ".join(f"{counts[kind]} {kind}" for kind in reversed(KINDS) if counts[kind])
    finite = [mark.value for mark in marks if math.isfinite(mark.value)]
    reach = f" from {short_number(min(finite))} to {short_number(max(finite))}" if finite else ""
    beyond = len(marks) - len(finite)
    tail = f" {beyond} of them are infinite and stand at the ends." if beyond else ""
    return f"{len(marks)} instances: {said}. {SCALE_NAME.capitalize()}{reach}.{tail}"


def margin_plot(record: ConclusionRecord, axis: SignedLogAxis, *, ident: str) -> str:
    """Return the plot of a conclusion's relative margins as an SVG element, or an empty text where there are none.

    Bars count instances; what contains zero stands in the band around zero, split into tight and unsure. The rug below
    has a tick for each instance, with the whole ball where it is unsure. A triangle marks the worst margin.

    Args:
        record: The conclusion.
        axis: From `shared_axis`.
        ident: An id that is unique on the page, in letters, digits and hyphens.
    """
    marks = plot_marks(record)
    if not marks:
        return ""
    title = f"Margins of {printable(record.name)}"
    head = (
        f'<svg class="plot" viewBox="0 0 {_number(WIDTH)} {_number(HEIGHT)}" role="img" '
        f'aria-labelledby="{ident}-title {ident}-desc" xmlns="http://www.w3.org/2000/svg">'
        f'<title id="{ident}-title">{escape(title)}</title>'
        f'<desc id="{ident}-desc">{escape(_describe(record, marks))}</desc>'
    )
    return "".join([head, *_frame(axis), *_bars(axis, marks), *_rug(axis, marks), *_worst(axis, marks), "</svg>"])


def share_bar(parts: list[tuple[str, int]], *, ident: str, label: str) -> str:
    """Return a thin bar split by counts, as an SVG element.

    Args:
        parts: Pairs (class name, count).
        ident: An id that is unique on the page.
        label: What the bar says, for those who cannot see it.
    """
    total = sum(count for _, count in parts)
    shapes, x = [], 0.0
    for kind, count in parts:
        if count:
            width = 100.0 * count / total
            shapes.append(_rect(kind, x, 0.0, width, 8.0))
            x += width
    return (
        f'<svg class="share" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-labelledby="{ident}" '
        f'xmlns="http://www.w3.org/2000/svg"><title id="{ident}">{escape(label)}</title>'
        f'<rect class="empty" x="0" y="0" width="100" height="8"/>{"".join(shapes)}</svg>'
    )
