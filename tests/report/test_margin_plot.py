"""The margin plot: places on the axis, counts in the bars, outcomes that agree with the record."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_results import HOSTILE, all_results, holds, undecided

from ntk_deq.language.types import Margin
from ntk_deq.report.axes import SignedLogAxis
from ntk_deq.report.margins import margin_plot, plot_marks, share_bar, shared_axis
from ntk_deq.verify.results import ConclusionRecord

SVG = "{http://www.w3.org/2000/svg}"
numbers = st.floats(allow_nan=False, allow_infinity=True, width=64)


def record(margins, *, true=0, false=0, tight=0, unsure=0, name="c"):
    return ConclusionRecord(name, "a <= b", Margin(-1.0, 1.0), tuple(margins), true, false, tight, unsure)


@given(st.lists(numbers, min_size=1, max_size=30))
def test_the_axis_keeps_order_sign_and_bounds(values):
    axis = SignedLogAxis.covering(values, left=10.0, right=400.0, band=14.0)
    places = [axis.place(v) for v in sorted(values)]
    assert places == sorted(places)
    for value in values:
        assert 10.0 <= axis.place(value) <= 400.0
        # Each sign has its side, outside the band of zero (a rounding error allowed: 1e-9 of the axis).
        if value > 0:
            assert axis.place(value) >= axis.zero + 7.0 - 1e-6
        elif value < 0:
            assert axis.place(value) <= axis.zero - 7.0 + 1e-6
    assert 10.0 < axis.zero < 400.0


@given(st.lists(numbers, max_size=20), st.floats(20, 100))
def test_ticks_keep_their_distance_and_lie_where_they_say(values, spacing):
    axis = SignedLogAxis.covering(values, left=0.0, right=400.0, band=14.0)
    ticks = axis.ticks(spacing=spacing)
    places = [place for place, _ in ticks]
    assert "0" in [label for _, label in ticks]
    assert all(b - a >= spacing - 1e-6 for a, b in pairwise(places))
    assert all(0.0 <= place <= 400.0 for place in places)


def test_decades_are_equally_wide_away_from_zero():
    axis = SignedLogAxis.covering([1e-8, 1.0], left=0.0, right=400.0, band=10.0)
    steps = [axis.place(10.0**k) - axis.place(10.0 ** (k - 1)) for k in range(-4, 1)]
    # log10(1 + x/threshold) differs from log10(x/threshold) by less than 5e-4 of a decade from three decades up.
    assert steps == pytest.approx([steps[-1]] * len(steps), rel=2e-3)


def test_balls_count_as_the_record_says():
    margins = [(0.1, 0.2, 1.0), (-2e-16, 1e-16, 1.0), (-0.1, 0.3, 1.0), (-0.4, -0.3, 1.0), (0.0, 0.0, 0.0)]
    kinds = [mark.kind for mark in plot_marks(record(margins, true=2, tight=1, unsure=1, false=1))]
    assert kinds == ["true", "tight", "unsure", "false", "true"]
    strict = [mark.kind for mark in plot_marks(record([(0.0, 0.0, 1.0), (1.0, 1.0, 1.0)], true=1, false=1))]
    assert strict == ["false", "true"]


def test_counts_of_the_sample_agree_with_their_records():
    for result in all_results():
        for conclusion in result.conclusions:
            counts = Counter(mark.kind for mark in plot_marks(conclusion))
            said = {
                "true": conclusion.true,
                "false": conclusion.false,
                "tight": conclusion.tight,
                "unsure": conclusion.unsure,
            }
            assert {kind: counts[kind] for kind in said} == said


def test_the_worst_margin_is_marked_once():
    marks = plot_marks(record([(3.0, 3.0, 1.0), (-5.0, -5.0, 100.0), (-0.5, -0.5, 0.5)], true=1, false=2))
    assert [mark.worst for mark in marks] == [False, True, False]
    assert marks[1].value == -0.05


def bars(svg):
    root = ET.fromstring(svg)
    return [(r.get("class"), int(r.find(f"{SVG}title").text.split()[0])) for r in root.iter(f"{SVG}rect") if len(r)]


def test_bars_account_for_every_instance():
    for result in all_results():
        for conclusion in result.conclusions:
            svg = margin_plot(conclusion, shared_axis(result.conclusions), ident="p")
            totals: Counter[str] = Counter()
            for kind, count in bars(svg):
                totals[kind] += count
            assert sum(totals.values()) == len(conclusion.margins)
            assert totals["tight"] == conclusion.tight


def test_the_counts_stand_beside_the_bars():
    for result in all_results():
        for conclusion in result.conclusions:
            root = ET.fromstring(margin_plot(conclusion, shared_axis(result.conclusions), ident="p"))
            labels = {e.text: float(e.get("y")) for e in root.iter(f"{SVG}text") if e.get("class") == "label count"}
            bins: Counter[str] = Counter()
            for rect in root.iter(f"{SVG}rect"):
                if len(rect):
                    bins[rect.get("x")] += int(rect.find(f"{SVG}title").text.split()[0])
            highest = max(bins.values())
            assert {"0", str(highest)} <= labels.keys()
            assert labels["0"] > labels[str(highest)]


def test_everything_drawn_lies_inside_the_picture():
    for result in [holds(), undecided()]:
        for conclusion in result.conclusions:
            root = ET.fromstring(margin_plot(conclusion, shared_axis(result.conclusions), ident="p"))
            _, _, width, height = map(float, root.get("viewBox").split())
            for rect in root.iter(f"{SVG}rect"):
                x, y, w, h = (float(rect.get(k)) for k in ("x", "y", "width", "height"))
                assert 0 <= x <= x + w <= width
                assert 0 <= y <= y + h <= height
                assert w > 0
                assert h > 0


def test_the_text_of_a_plot_is_escaped_and_described():
    svg = margin_plot(record([(1.0, 1.0, 1.0)], true=1, name=HOSTILE), shared_axis([]), ident="p")
    root = ET.fromstring(svg)
    assert root.find(f"{SVG}title").text.startswith("Margins of <script>")
    assert root.find(f"{SVG}desc").text.startswith("1 instances: 1 true.")


def test_infinite_margins_stand_at_the_ends_and_are_counted():
    svg = margin_plot(undecided().conclusions[0], shared_axis(undecided().conclusions), ident="p")
    assert "83 instances: 80 true, 3 unsure." in svg
    one = record([(math.inf, math.inf, 1.0), (1.0, 2.0, 1.0)], true=2)
    assert "1 of them are infinite" in margin_plot(one, shared_axis([one]), ident="p")


def test_no_instances_no_plot():
    assert margin_plot(record([]), shared_axis([record([])]), ident="p") == ""


def test_many_instances_keep_the_picture_small():
    margins = [(10.0 ** (-6 * i / 5000), 10.0 ** (-6 * i / 5000), 1.0) for i in range(5000)]
    one = record(margins, true=5000)
    assert len(margin_plot(one, shared_axis([one]), ident="p")) < 60_000


def test_share_bar_is_split_in_proportion():
    root = ET.fromstring(share_bar([("true", 3), ("unsure", 0), ("false", 1)], ident="b", label="held 3"))
    widths = {r.get("class"): float(r.get("width")) for r in root.iter(f"{SVG}rect")}
    assert widths == {"empty": 100.0, "true": 75.0, "false": 25.0}
    assert re.search("held 3", share_bar([("true", 0)], ident="b", label="held 3"))
