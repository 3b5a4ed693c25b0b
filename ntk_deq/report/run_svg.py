"""The loss of a training run against its bound, as inline SVG; colours come from the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from ntk_deq.report.run_curves import index_letter, loss_picture
from ntk_deq.report.run_words import ending, rates_words, short_rate
from ntk_deq.report.scales import LogScale, StepScale
from ntk_deq.verify.training_records import TrainingRecord

WIDTH, HEIGHT = 440.0, 206.0
_LEFT, _RIGHT = 46.0, 372.0
_TOP, _FLOOR = 22.0, 170.0
# Labels of two curves that end close together are moved this far apart.
_LABEL_GAP = 13.0


def loss_plot(record: TrainingRecord, *, ident: str) -> str:
    """Return the loss and its bound as an SVG element: the measured loss as a line in its band, the bound dashed.

    Args:
        record: The run.
        ident: An id that is unique on the page, in letters, digits and hyphens.
    """
    picture = loss_picture(record)
    x = StepScale.covering(picture.at, spread=picture.spread, start=_LEFT, stop=_RIGHT)
    y = LogScale.covering(picture.shown, start=_FLOOR, stop=_TOP)
    parts = [*_frame(x, y, index_letter(record)), _band(x, y, picture.at, picture.low, picture.high)]
    labels = []
    for kind, label, values in (("bound", "bound", picture.bound), ("loss", "measured", picture.loss)):
        known = [(x.place(a), v) for a, v in zip(picture.at, values, strict=True) if math.isfinite(v)]
        if known:
            parts += _curve(kind, y, known)
            labels.append((y.place(known[-1][1]), kind, label + _beyond(y, known[-1][1])))
    parts += _end_labels(labels)
    name = "decrease of the loss, 1 − L/L(0)" if picture.decrease else "loss L"
    parts.append(f'<text class="label name" x="0" y="10">{name}</text>')
    description = f"{name} from {index_letter(record)} = 0 on; {rates_words(record)}; {ending(record)}."
    return (
        f'<svg class="plot run" viewBox="0 0 {_number(WIDTH)} {_number(HEIGHT)}" role="img" '
        f'aria-labelledby="{ident}-title {ident}-desc" xmlns="http://www.w3.org/2000/svg">'
        f'<title id="{ident}-title">Loss along the run</title>'
        f'<desc id="{ident}-desc">{escape(description)}</desc>{"".join(parts)}</svg>'
    )


def _frame(x: StepScale, y: LogScale, letter: str) -> list[str]:
    parts = [f'<path class="axis" d="M{_number(_LEFT)} {_number(_TOP)}V{_number(_FLOOR)}H{_number(_RIGHT)}"/>']
    for place, label in y.ticks(spacing=26.0):
        parts.append(f'<path class="axis" d="M{_number(_LEFT - 4)} {_number(place)}h4"/>')
        parts.append(f'<text class="label value" x="{_number(_LEFT - 7)}" y="{_number(place + 3.5)}">{label}</text>')
    for place, label in x.ticks(spacing=44.0):
        parts.append(f'<path class="axis" d="M{_number(place)} {_number(_FLOOR)}v4"/>')
        parts.append(f'<text class="label step" x="{_number(place)}" y="{_number(_FLOOR + 16)}">{label}</text>')
    middle = (_LEFT + _RIGHT) / 2
    words = "step k" if letter == "k" else "time t"
    parts.append(f'<text class="label step" x="{_number(middle)}" y="{_number(HEIGHT - 4)}">{words}</text>')
    return parts


def _curve(kind: str, y: LogScale, known: Sequence[tuple[float, float]]) -> list[str]:
    """Return a curve as far as it is within the axis: it leaves through the axis' ends; a single point is a dot."""
    points = [(place, y.place(value)) for place, value in known]
    if len(points) == 1:
        place, height = points[0]
        return [f'<circle class="{kind}" cx="{_number(place)}" cy="{_number(height)}" r="3"/>']
    inside = [not _beyond(y, value) for _, value in known]
    # The first point beyond an end is kept, so that the curve reaches that end.
    near = [any(inside[max(i - 1, 0) : i + 2]) for i in range(len(inside))]
    pieces: list[list[tuple[float, float]]] = []
    for i, point in enumerate(points):
        if near[i] and i and near[i - 1] and pieces:
            pieces[-1].append(point)
        elif near[i]:
            pieces.append([point])
    return [f'<path class="{kind}" d="{"".join(map(_line, pieces))}"/>'] if pieces else []


def _beyond(y: LogScale, value: float) -> str:
    """Return an arrow and the value where it is beyond an end of the axis."""
    if y.low <= math.log10(value) <= y.high:
        return ""
    return f" {'↑' if math.log10(value) > y.high else '↓'} {short_rate(value, digits=1)}"


def _band(x: StepScale, y: LogScale, at: Sequence[float], low: Sequence[float], high: Sequence[float]) -> str:
    """Return the region between the ends of the balls; a lower end at zero or below reaches down to the axis."""
    rows = [(x.place(a), lo, hi) for a, lo, hi in zip(at, low, high, strict=True) if math.isfinite(hi)]
    if len(rows) < 2:
        return ""
    upper = [(place, y.place(hi)) for place, _, hi in rows]
    lower = [(place, y.place(lo) if math.isfinite(lo) else _FLOOR) for place, lo, _ in reversed(rows)]
    return f'<path class="band" d="{_line(upper + lower)}Z"/>'


def _end_labels(labels: list[tuple[float, str, str]]) -> list[str]:
    """Return the labels right of the curves' ends, moved apart where two of them meet."""
    labels = sorted(labels)
    places = [place for place, _, _ in labels]
    if len(places) == 2 and places[1] - places[0] < _LABEL_GAP:
        middle = min(max(sum(places) / 2, _TOP + _LABEL_GAP / 2), _FLOOR - _LABEL_GAP / 2)
        places = [middle - _LABEL_GAP / 2, middle + _LABEL_GAP / 2]
    return [
        f'<text class="label end {kind}" x="{_number(_RIGHT + 7)}" y="{_number(place + 3.5)}">{label}</text>'
        for place, (_, kind, label) in zip(places, labels, strict=True)
    ]


def _line(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in points)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
