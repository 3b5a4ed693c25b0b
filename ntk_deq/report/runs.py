"""Training runs in the report: curves and words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any, TypeAlias

from markupsafe import Markup

from ntk_deq.language.notation.mathml import to_mathml
from ntk_deq.language.run import RunKind, told_in
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.report import (
    ending,
    instantaneous_range,
    method_words,
    rate_interval,
    rate_ratio,
    rates_words,
    role_words,
    short_count,
    short_index,
    short_rate,
    short_share,
    slowest_runs,
    starts_words,
)
from ntk_deq.report.axes import Cell, LogScale, StepScale, number_cell, safe_mathml, symbol, typeset_number, value_cell
from ntk_deq.report.console import printable, short_number, short_seconds
from ntk_deq.report.curves import ShareCurve, loss_picture, measured_name, share_curves
from ntk_deq.report.margins import share_bar
from ntk_deq.verify.results import Condition, Rate, Start, TrainingRecord

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
    parts = [*_frame(x, y, told_in(record)), _band(x, y, picture.at, picture.low, picture.high)]
    labels = []
    for kind, label, values in (("bound", "bound", picture.bound), ("loss", "measured", picture.loss)):
        known = [(x.place(a), v) for a, v in zip(picture.at, values, strict=True) if math.isfinite(v)]
        if known:
            parts += _curve(kind, y, known)
            labels.append((y.place(known[-1][1]), kind, label + _beyond(y, known[-1][1])))
    parts += _end_labels(labels)
    name = measured_name(record) or "loss L"
    if picture.decrease:
        name = "decrease of the loss, 1 − L/L(0)" if name == "loss L" else f"decrease of {name}"
    parts.append(f'<text class="label name" x="0" y="10">{escape(name)}</text>')
    description = f"{name} from {told_in(record).letter} = 0 on; {rates_words(record)}; {ending(record)}."
    return (
        f'<svg class="plot run" viewBox="0 0 {_number(WIDTH)} {_number(HEIGHT)}" role="img" '
        f'aria-labelledby="{ident}-title {ident}-desc" xmlns="http://www.w3.org/2000/svg">'
        f'<title id="{ident}-title">Along the run</title>'
        f'<desc id="{ident}-desc">{escape(description)}</desc>{"".join(parts)}</svg>'
    )


def _frame(x: StepScale, y: LogScale, kind: RunKind) -> list[str]:
    parts = [f'<path class="axis" d="M{_number(_LEFT)} {_number(_TOP)}V{_number(_FLOOR)}H{_number(_RIGHT)}"/>']
    for place, label in y.ticks(spacing=26.0):
        parts.append(f'<path class="axis" d="M{_number(_LEFT - 4)} {_number(place)}h4"/>')
        parts.append(f'<text class="label value" x="{_number(_LEFT - 7)}" y="{_number(place + 3.5)}">{label}</text>')
    for place, label in x.ticks(spacing=44.0):
        parts.append(f'<path class="axis" d="M{_number(place)} {_number(_FLOOR)}v4"/>')
        parts.append(f'<text class="label step" x="{_number(place)}" y="{_number(_FLOOR + 16)}">{label}</text>')
    middle = (_LEFT + _RIGHT) / 2
    words = f"{kind.index.word} {kind.letter}"
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


# Runs of a claim that are all open on the page; of more, only those of the instance that is slowest for the claim.
_SHOWN = 2


View: TypeAlias = dict[str, Any]
"""What a template lays out, by the names that it uses."""

Facts: TypeAlias = list[tuple[str | Markup, Cell]]
"""What is said of a run: what, and its value."""


def starts_view(starts: tuple[Start, ...]) -> View | None:
    """Return what the page says of the starts of runs; None where no constants were chosen for an aim.

    Args:
        starts: The starts.
    """
    words = starts_words(starts)
    if words is None:
        return None
    met = list(dict.fromkeys(condition.name for start in starts for condition in start.conditions))
    numbers = list(dict.fromkeys(name for start in starts for name in (*start.constants, *start.defined)))
    rows = []
    for start in starts:
        factors = {condition.name: condition.factor for condition in start.conditions}
        known = {**start.constants, **start.defined}
        values = [start.contraction, *(factors.get(name) for name in met), *(known.get(name) for name in numbers)]
        cells = [None if value is None else number_cell(value) for value in values]
        aim, run = start.aim or "the claim's own objective", "short" if start.brief else "whole"
        rows.append(([f"{start.setting} {start.index}", aim, run], cells))
    return {"words": words, "columns": ["contraction", *(f"{name} met by" for name in met), *numbers], "rows": rows}


def run_views(records: tuple[TrainingRecord, ...], anchor: str) -> list[View]:
    """Return what the page says about each run of a claim.

    Args:
        records: The runs.
        anchor: The id of the claim's place on the page, for ids within the plots.
    """
    shown = records if len(records) <= _SHOWN else slowest_runs(records)
    return [
        _run_view(record, f"ui-{anchor}-run-{number}", shown=any(record is run for run in shown))
        for number, record in enumerate(records)
    ]


def _run_view(record: TrainingRecord, ident: str, *, shown: bool) -> View:
    shares = [_share(c, record, f"{ident}-share-{i}") for i, c in enumerate(share_curves(record))]
    step = "" if record.step is None else f", step size {short_number(record.step, digits=3)}"
    return {
        "record": record,
        "shown": shown,
        "ratio": _ratio_cell(record),
        "heading": f"{method_words(record).capitalize()}{step}",
        "role": role_words(record),
        "plot": Markup(loss_plot(record, ident=ident)),
        "end": ending(record),
        "groups": _groups(record),
        "conditions": [_condition(condition) for condition in record.conditions],
        "shares": shares,
        "constants": [(name, value_cell(value)) for name, value in record.constants.items()],
    }


def _groups(record: TrainingRecord) -> list[tuple[str, Facts]]:
    kind = told_in(record)
    groups = [
        (f"Rate of the loss, {kind.index.each}", _rates(record) if kind.trains else []),
        ("How long and how far", _lengths(record)),
        ("Work", _work(record) if kind.trains else []),
        ("Reach of the verdict", _reach(record)),
    ]
    return [(heading, facts) for heading, facts in groups if facts]


def _rates(record: TrainingRecord) -> Facts:
    facts: Facts = []
    if record.predicted is not None:
        facts.append(("predicted", _rate_cell(record.predicted)))
    facts.append(
        ("measured", Cell("–", "too few points to fit") if record.measured is None else _rate_cell(record.measured))
    )
    span = instantaneous_range(record)
    if span is not None:
        low, high = map(short_rate, span)
        shown = low if low == high else f"{low} to {high}"
        facts.append(("from the kernel", Cell(typeset_number(shown), f"{span[0]!r} to {span[1]!r}")))
    ratio = _ratio_cell(record)
    if ratio is not None:
        facts.append(("measured / predicted", ratio))
    return facts


def _ratio_cell(record: TrainingRecord) -> Cell | None:
    ratio = rate_ratio(record)
    return None if ratio is None else Cell(typeset_number(short_rate(ratio, digits=1)), repr(ratio))


def _rate_cell(rate: Rate) -> Cell:
    return Cell(typeset_number(rate_interval(rate)), f"{rate.value!r} in [{rate.low!r}, {rate.high!r}]")


def _lengths(record: TrainingRecord) -> Facts:
    facts: Facts = []
    if record.predicted_steps is not None:
        name = f"{told_in(record).index.extent} to the floor at the predicted rate"
        shown = typeset_number(short_index(record.predicted_steps, record))
        facts.append((name, Cell(shown, repr(record.predicted_steps))))
    facts.append(("steps taken", Cell(short_count(record.steps), str(record.steps))))
    if math.isfinite(record.path_length[-1]):
        facts.append(("path length", number_cell(record.path_length[-1])))
    for name, values in record.displacement.items():
        what = symbol(name)
        words = Markup("distance of {} from its start").format(printable(name) if what is None else what)
        facts.append((words, number_cell(values[-1])))
    return facts


def _work(record: TrainingRecord) -> Facts:
    def mean(value: float) -> Cell:
        return Cell(short_number(value, digits=3), repr(value))

    return [
        ("gradients", Cell(short_count(record.evaluations), str(record.evaluations))),
        ("iterations an equilibrium", mean(record.forward_iterations)),
        ("iterations an adjoint", mean(record.adjoint_iterations)),
        ("time", Cell(short_seconds(record.seconds), repr(record.seconds))),
    ]


def _reach(record: TrainingRecord) -> Facts:
    facts: Facts = []
    if record.intervals:
        covered = f"{record.covered} of {record.intervals}"
        facts.append(("intervals between judged steps certain throughout", Cell(covered, covered)))
    if record.step_tests:
        tested = f"{record.step_tests_true} of {record.step_tests}"
        facts.append(("single steps certain to fall as stated", Cell(tested, tested)))
    if record.error is not None:
        kind = "proven" if record.certified else "estimated"
        known = f"≤ {short_rate(record.error)}, {kind}" if math.isfinite(record.error) else "not known"
        facts.append(("distance from the exact trajectory", Cell(typeset_number(known), repr(record.error))))
    return facts


def _condition(condition: Condition) -> tuple[Condition, list[Cell]]:
    """Return a comparison of the initial conditions with its two sides, and the factor by which it is met."""
    factor = condition.factor
    shown = "∞" if math.isinf(factor) else "–" if math.isnan(factor) else short_number(factor, digits=3)
    sides = [number_cell(condition.small), number_cell(condition.large)]
    return condition, [*sides, Cell(typeset_number(shown), repr(factor))]


def _share(curve: ShareCurve, record: TrainingRecord, ident: str) -> View:
    """Return the largest share of a bound and where, with a bar for it."""
    view = {"curve": curve.curve, "math": _comparison(curve)}
    known = [(share, at) for share, at in zip(curve.share, record.at, strict=True) if not math.isnan(share)]
    if not known:
        return view | {"share": "–", "where": "no share of this bound", "beyond": False, "bar": ""}
    most, at = max(known, key=lambda pair: pair[0])
    unsure = curve.is_open(record.at.index(at))
    shown = typeset_number(short_share(most if not unsure else curve.high[record.at.index(at)]))
    shown = f"≤ {shown}" if unsure else shown
    where = f"at {told_in(record).letter} = {short_index(at, record)}"
    filled = round(1000 * min(most, 1.0))
    parts = [("unsure" if unsure else "false" if most > 1 else "part", filled), ("empty", 1000 - filled)]
    label = f"{printable(curve.curve.name)}: largest share of the bound {shown}"
    bar = Markup(share_bar(parts, ident=ident, label=label))
    return view | {"share": shown, "where": where, "beyond": most > 1 and not unsure, "bar": bar}


def _comparison(curve: ShareCurve) -> Markup | None:
    """Return the comparison of a curve typeset, or None where it has no text that can be."""
    if curve.sides is None:
        return None
    left, sign, right = curve.sides
    return safe_mathml(to_mathml(Expr(Kind.COMPARE, left.span, (left, right), operators=(sign,))))
