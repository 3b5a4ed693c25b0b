"""Training runs in the reports: what is stored and read back, the words, the curves, the page, the terminal."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
from rich.console import Console
from sample_results import HOSTILE, INFO
from training_samples import broken_record, even_times, short_window, spread_steps, training_record, training_result

from ntk_deq.errors import DataError
from ntk_deq.report import rate_ratio, terminal_lines
from ntk_deq.report.axes import LogScale, StepScale
from ntk_deq.report.curves import are_spread, loss_curve, loss_picture, share_curves
from ntk_deq.report.html import report_html
from ntk_deq.report.jsonl import CutOffError, append_result, result_lines, result_to_dict, stored_runs, training_records
from ntk_deq.report.runs import loss_plot, run_views
from ntk_deq.report.terminal import TerminalReport
from ntk_deq.verify.results import Condition, Curve, Rate, TrainingRecord

SPECIAL = dataclasses.replace(
    training_record(at=(0.0, 1.0)),
    constants={"C1": math.inf, "C2": -math.inf},
    predicted_steps=math.inf,
    predicted=Rate(1e-9, -math.inf, math.inf),
    displacement={},
    error=None,
)


def stored(*records: TrainingRecord) -> dict[str, object]:
    return json.loads(json.dumps(result_to_dict(training_result(*records)), allow_nan=False))


# -- the store --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", [training_record(), short_window(), broken_record(), SPECIAL])
def test_a_run_reads_back_as_it_was(record):
    (back,) = training_records(stored(record))
    # NaN differs from itself; its text does not.
    assert repr(back) == repr(record)


def test_a_claim_without_runs_has_an_empty_list():
    assert stored()["runs"] == []
    assert training_records(stored()) == ()


def test_a_field_that_came_later_may_be_missing():
    entry = stored(training_record(seconds=0.0))
    del entry["runs"][0]["seconds"]
    assert training_records(entry)[0].seconds == 0.0


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda e: e.pop("runs"), r"`runs` is missing: the file is from before .* Judge the claims again"),
        (lambda e: e.update(runs={}), r"`runs` must be a list. Got {}"),
        (lambda e: e["runs"].append(3), r"`runs\[1\]` must be an object. Got 3"),
        (lambda e: e["runs"][0].pop("loss"), r"`runs\[0\].loss` is missing"),
        (lambda e: e["runs"][0].update(loss="0.5"), r"`runs\[0\].loss` must be a list. Got '0.5'"),
        (lambda e: e["runs"][0]["loss"].__setitem__(2, "low"), r"`runs\[0\].loss\[2\]` must be a number. Got 'low'"),
        (lambda e: e["runs"][0]["loss"].__setitem__(2, None), r"`runs\[0\].loss\[2\]` must be a number. Got None"),
        (lambda e: e["runs"][0].update(end=10**400), r"`runs\[0\].end` must be a number of float64. Got 1000"),
        (lambda e: e["runs"][0].update(steps=1.5), r"`runs\[0\].steps` must be a whole number. Got 1.5"),
        (lambda e: e["runs"][0].update(steps=True), r"`runs\[0\].steps` must be a whole number. Got True"),
        (lambda e: e["runs"][0].update(certified=1), r"`runs\[0\].certified` must be true or false. Got 1"),
        (lambda e: e["runs"][0].update(method=None), r"`runs\[0\].method` must be a text. Got None"),
        (lambda e: e["runs"][0].update(displacement=[1]), r"`runs\[0\].displacement` must be an object. Got \[1\]"),
        (lambda e: e["runs"][0]["measured"].pop("low"), r"`runs\[0\].measured.low` is missing"),
        (lambda e: e["runs"][0].update(loses=[]), r"unknown key `loses`: .*newer version. Did you mean `loss`\?"),
        (lambda e: e["runs"][0]["loss"].pop(), r"`runs\[0\].loss` must have a value for each of the 54 judged steps"),
        (lambda e: e["runs"][0]["curves"][1]["bound"].pop(), r"`runs\[0\].curves\[1\].bound` must have .* Got 53"),
        (lambda e: e["runs"][0]["displacement"]["A"].pop(), r"`runs\[0\].displacement.A` must have a value"),
    ],
)
def test_damage_is_named(damage, said):
    entry = stored(training_record())
    damage(entry)
    with pytest.raises(DataError, match=said):
        training_records(entry)


def test_a_run_without_a_judged_step_is_refused():
    entry = stored(training_record())
    run = entry["runs"][0]
    run.update(at=[], loss=[], path_length=[], instantaneous=[], displacement={}, curves=[])
    with pytest.raises(DataError, match="at least one judged step"):
        training_records(entry)


def test_one_damaged_line_costs_no_other(tmp_path):
    path = tmp_path / "results.jsonl"
    append_result(path, training_result(training_record(), id="first"))
    bad = json.loads(path.read_text())
    del bad["runs"][0]["loss"]
    older = json.loads(path.read_text())
    del older["runs"]
    with path.open("a") as file:
        file.write("{cut\n" + json.dumps(bad) + "\n" + json.dumps(older) + "\n" + json.dumps(older) + "\n")
    append_result(path, training_result(id="without"))
    append_result(path, training_result(short_window(), training_record(), id="last", tags=("slow",)))
    path.write_bytes(path.read_bytes() + b'{"id": "killed", "runs": [')
    found, errors = stored_runs(tmp_path)
    assert [(claim.id, claim.tags, len(claim.records)) for claim in found] == [
        ("first", ("theorem", "training"), 1),
        ("last", ("slow",), 2),
    ]
    said = [str(error) for error in errors]
    assert len(said) == 4
    assert said[0].startswith(f"{path}:2: not a JSON object")
    assert said[1] == f"{path}:3: `runs[0].loss` is missing."
    assert said[2].startswith(f"{path}:8: the line is cut off, as a run that was killed leaves it")
    assert "2 lines, the first one line 4" in said[3]
    assert "Judge these claims again" in said[3]


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"results\.jsonl cannot be read: No such file"):
        stored_runs(tmp_path)


def test_lines_come_with_their_numbers(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'{"a": 1}\n[2]\n{"b"')
    (first, entry), (second, wrong), (third, cut) = result_lines(path)
    assert (first, entry, second, third) == (1, {"a": 1}, 2, 3)
    assert isinstance(wrong, DataError)
    assert isinstance(cut, CutOffError)


# -- curves -----------------------------------------------------------------------------------------------------------


def test_the_loss_is_found_by_its_formula_and_without_one_by_its_values():
    record = training_record()
    assert loss_curve(record).name == "(iii)"
    nameless = dataclasses.replace(record.curves[-1], text="speed <= other")
    assert loss_curve(dataclasses.replace(record, curves=(*record.curves[:-1], nameless))) is nameless
    assert loss_curve(dataclasses.replace(record, curves=record.curves[:-1])) is None


def test_a_step_bound_and_a_lower_bound_are_not_the_bound_of_the_loss():
    record = training_record()
    step = Curve("step", "L[k + 1] <= c", (9.0,) * 54, (9.0,) * 54, (1.0,) * 54, "<=")
    lower = dataclasses.replace(record.curves[-1], text="L[k] >= 0", sense=">=")
    assert loss_curve(dataclasses.replace(record, curves=(step, lower))) is None


def test_the_loss_is_drawn_as_it_is_where_it_falls_and_by_its_decrease_where_it_hardly_does():
    record = training_record()
    picture = loss_picture(record)
    assert (picture.decrease, picture.spread, picture.has_bound) == (False, False, True)
    assert picture.loss == record.loss
    window = short_window()
    picture = loss_picture(window)
    assert picture.decrease
    assert picture.loss[-1] == pytest.approx(1 - window.loss[-1] / window.loss[0], rel=1e-12)
    assert math.isnan(picture.loss[0])
    # The theorem promises a decrease of at least the bound's.
    assert picture.bound[-1] == pytest.approx(-math.expm1(-3.0e-9 * 20_000), rel=1e-6)


def test_growth_and_an_exact_zero_are_drawn_as_the_loss():
    assert not loss_picture(broken_record()).decrease
    record = training_record(at=(0.0, 1.0, 2.0))
    still = dataclasses.replace(record, loss=(0.5, 0.5, 0.5))
    assert not loss_picture(still).decrease
    solved = loss_picture(dataclasses.replace(record, loss=(0.5, 0.1, 0.0)))
    assert math.isnan(solved.loss[-1])


def test_a_ball_too_wide_to_tell_is_not_shown_as_a_breach():
    wide = Curve("W", "norm(W[k]) <= lam1", (0.0,), (382.0,), (1.0,), "<=")
    (view,) = run_views((training_record(at=(0.0,), curves=(wide,)),), "R")
    (share,) = view["shares"]
    assert (share["share"], share["beyond"]) == ("≤ 382", False)
    assert 'class="unsure"' in share["bar"]
    assert 'class="false"' not in share["bar"]


def test_a_share_is_measured_over_an_upper_bound_and_a_lower_bound_over_measured():
    shares = {c.curve.text + str(i): c for i, c in enumerate(share_curves(training_record()))}
    first, second, third, sigma = shares.values()
    assert [c.share[0] for c in (first, second, third, sigma)] == pytest.approx([1.7 / 2.2, 0.2 / 0.7, 0.9 / 1.4, 0.5])
    assert [str(c.sides[1]) for c in shares.values()] == ["<=", "<=", "<=", ">="]
    assert all(c.low[i] <= c.share[i] <= c.high[i] for c in shares.values() for i in range(54))


@pytest.mark.parametrize(
    ("measured", "bound", "sense", "share"),
    [
        (0.0, 1.0, "<=", 0.0),
        (-1.0, 1.0, "<=", 0.0),
        (1.0, 0.0, "<=", math.inf),
        (1.0, -2.0, "<=", math.inf),
        (1.0, math.inf, "<=", 0.0),
        (math.inf, 1.0, "<=", math.nan),
        (0.0, 0.0, "<=", math.nan),
        (math.nan, 1.0, "<=", math.nan),
        (0.0, 0.5, ">=", math.inf),
        (2.0, 0.5, ">=", 0.25),
        (2.0, 0.0, ">=", 0.0),
    ],
)
def test_shares_at_the_edges(measured, bound, sense, share):
    curve = Curve("c", "norm(W[k]) <= c", (measured,), (measured,), (bound,), sense)
    record = dataclasses.replace(training_record(at=(0.0,)), curves=(curve,))
    assert share_curves(record)[0].share == pytest.approx((share,), nan_ok=True)


def test_a_formula_that_cannot_be_read_still_has_shares():
    curve = dataclasses.replace(training_record().curves[0], text="norm(W[k] <=")
    record = dataclasses.replace(training_record(), curves=(curve,))
    assert share_curves(record)[0].sides is None
    assert share_curves(record)[0].drawable


def test_which_steps_are_spread():
    assert are_spread(spread_steps(5000))
    assert not are_spread(even_times(5000.0))
    assert not are_spread((0.0,))


# -- words ------------------------------------------------------------------------------------------------------------


def test_the_terminal_says_rates_and_ending_of_a_run():
    assert terminal_lines((training_record(),)) == [
        "rate predicted 1.2e-3, measured 4.1e-3 (4.0e-3 to 4.2e-3), ratio 3.4; stopped at k = 5000: loss floor"
    ]
    flow = training_record(method="gradient-flow", at=even_times(12.3), predicted=None, measured=None)
    assert terminal_lines((flow,)) == ["rate not measured; stopped at t = 12.3: loss floor"]
    assert terminal_lines(()) == []


def test_of_several_runs_the_terminal_shows_the_slowest_instance():
    runs = (training_record(index=1), short_window(), training_record(index=3, role="continuation", rate=1.3e-3))
    lines = terminal_lines(runs)
    assert len(lines) == 2
    assert lines[0].startswith("tiny 3 window: rate predicted 3.0e-9, measured 2.6e-7")
    assert lines[1].startswith("tiny 3 continuation: rate predicted 1.2e-3, measured 1.30e-3 (1.26e-3 to 1.33e-3)")
    assert lines[1].endswith("(3 runs in all)")


def test_no_ratio_without_both_rates_or_with_a_rate_that_is_not_positive():
    assert rate_ratio(training_record(measured=None)) is None
    assert rate_ratio(training_record(predicted=None)) is None
    zero = dataclasses.replace(training_record(), predicted=Rate(0.0, 0.0, 0.0))
    assert rate_ratio(zero) is None


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_lines_stand_under_the_claim_and_fit(width):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    TerminalReport(console, total=1).claim_finished(training_result(short_window(), training_record()))
    lines = console.file.getvalue().splitlines()
    assert "R.T4.4" in lines[0]
    under = [line for line in lines if line.startswith("    ")]
    assert any("stopped at" in line for line in under)
    assert max(map(len, lines)) <= width


# -- the page ---------------------------------------------------------------------------------------------------------


def words(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", text.split("<main>")[1]).split())


def test_the_page_says_what_a_reader_needs_of_a_run():
    flow = training_record(method="gradient-flow", role="continuation", at=even_times(5000.0), step_tests=40,
                           step_tests_true=39)  # fmt: skip
    said = words(report_html([training_result(training_record(), flow)], INFO))
    for needed in (
        "Runs tiny, instance 3 the whole run measured rate 3.4 × predicted Gradient descent, step size 0.001",
        "tiny, instance 3 flow to the end",
        "stopped at k = 5000: loss floor",
        "Rate of the loss, per step predicted 1.2e−3 measured 4.1e−3 (4.0e−3 to 4.2e−3)",
        "from the kernel 4.1e−3 to 8.2e−3",
        "measured / predicted 3.4",
        "Rate of the loss, per unit of time",
        "steps to the floor at the predicted rate 11513",
        "path length 0.61",
        "iterations an equilibrium 18.4",
        "iterations an adjoint 15.2",
        "intervals between judged steps certain throughout 53 of 53",
        "single steps certain to fall as stated 39 of 40",
        "distance from the exact trajectory ≤ 3.2e−11, proven",
        "met by a factor of well-posed 0.42 1 2.38",
        "(18) 0 5.5 ∞",
        "Largest share of each bound",
    ):
        assert needed in said, needed


def test_the_slowest_of_many_runs_is_open_and_the_others_are_closed():
    slow = training_record(setting="slow", predicted=0.004)
    others = [training_record(setting=f"other-{number}") for number in range(3)]
    page = report_html([training_result(others[0], slow, *others[1:])], INFO)
    runs = re.findall(r'<details class="run"( open)?>\s*<summary>\s*<span class="name">([a-z0-9-]+), ', page)
    assert runs == [("", "other-0"), (" open", "slow"), ("", "other-1"), ("", "other-2")]


def test_claims_without_runs_have_no_such_section():
    assert "<h2>Runs</h2>" not in report_html([training_result()], INFO)


def test_what_breaks_its_bound_or_misses_its_condition_stands_out():
    record = dataclasses.replace(broken_record(), conditions=(Condition("(17)", 2.0, 1.0, 0.5),))
    text = report_html([training_result(record)], INFO)
    assert len(re.findall('class="beyond"', text)) == 2
    assert 'class="beyond">1.32<' in text


def test_every_text_of_a_run_may_be_hostile():
    record = dataclasses.replace(
        training_record(), setting=HOSTILE, method=HOSTILE, role=HOSTILE, status=HOSTILE, reason=HOSTILE,
        constants={HOSTILE: 1.0}, displacement={HOSTILE: (0.0,) * 54},
        curves=(Curve(HOSTILE, HOSTILE, (1.0,) * 54, (1.0,) * 54, (2.0,) * 54, "<="),),
        conditions=(Condition(HOSTILE, 1.0, 2.0, 2.0),),
    )  # fmt: skip
    text = report_html([training_result(record)], INFO)
    assert text.count("<script") == 1
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", text)
    console = Console(file=io.StringIO(), width=100, color_system=None)
    TerminalReport(console, total=1).claim_finished(training_result(record))
    assert "\x1b" not in console.file.getvalue()


def plot(record: TrainingRecord) -> ET.Element:
    return ET.fromstring(loss_plot(record, ident="ui-x"))


def drawn(root: ET.Element, kind: str) -> list[list[tuple[float, float]]]:
    marks = [e for e in root.iter() if e.attrib.get("class") == kind and not e.tag.endswith("text")]
    paths = [e.get("d") or f"{e.attrib['cx']} {e.attrib['cy']}" for e in marks]  # a single point is a circle
    return [[tuple(map(float, p.split())) for p in d.strip("MZ").split("L")] for d in paths]


@pytest.mark.parametrize("record", [training_record(), short_window(), broken_record(), SPECIAL])
def test_the_plot_is_well_formed_and_stays_inside(record):
    root = plot(record)
    for kind in ("loss", "bound", "band"):
        for points in drawn(root, kind):
            assert all(46 <= x <= 372 and 22 <= y <= 170 for x, y in points)
    assert len(drawn(root, "loss")) == len(drawn(root, "bound")) == 1


def test_a_bound_of_hundreds_of_decades_leaves_the_plot_and_the_loss_its_room():
    record = training_record()
    steep = dataclasses.replace(record.curves[-1], bound=tuple(max(10.0**-k, 1e-300) for k in record.at))
    root = plot(dataclasses.replace(record, curves=(*record.curves[:-1], steep)))
    (loss,), (bound,) = drawn(root, "loss"), drawn(root, "bound")
    assert loss[-1][1] - loss[0][1] > 50
    assert bound[-1][1] == 170
    assert bound[-1][0] < 60  # where it leaves
    far = dataclasses.replace(record.curves[-1], bound=(1e80,) * len(record.at))
    root = plot(dataclasses.replace(record, curves=(*record.curves[:-1], far)))
    assert not drawn(root, "bound")
    assert "bound ↑ 1e80" in [e.text for e in root.iter() if e.tag.endswith("text")]


def test_the_bound_runs_above_the_loss_and_below_the_decrease():
    root = plot(training_record())
    assert drawn(root, "bound")[0][-1][1] < drawn(root, "loss")[0][-1][1]
    root = plot(short_window())
    assert drawn(root, "bound")[0][-1][1] > drawn(root, "loss")[0][-1][1]
    assert "decrease of the loss" in "".join(root.itertext())


def test_labels_of_curves_that_end_together_keep_apart():
    record = training_record(predicted=4.1e-3)
    labels = [e for e in plot(record).iter() if "end" in (e.attrib.get("class") or "")]
    assert len(labels) == 2
    assert abs(float(labels[0].attrib["y"]) - float(labels[1].attrib["y"])) >= 12.9


def test_a_run_of_one_point_and_one_without_bound_are_drawn():
    assert drawn(plot(training_record(at=(0.0,))), "band") == []
    assert drawn(plot(training_record(predicted=None)), "bound") == []


def test_scales():
    y = LogScale.covering([1e-6, 1.0, math.inf, -1.0], start=170.0, stop=22.0)
    assert 22 < y.place(1.0) < y.place(1e-3) < y.place(1e-6) < 170
    assert y.place(1e-3) == pytest.approx(96.0)
    assert y.place(1e9) == 22
    assert y.place(-1.0) == 170
    assert [label for _, label in y.ticks(spacing=40.0)] == ["10⁻⁶", "10⁻⁴", "10⁻²", "1"]
    short = LogScale.covering([3e-3, 3e-2], start=170.0, stop=22.0)
    assert [label for _, label in short.ticks(spacing=26.0)] == ["5·10⁻³", "10⁻²", "2·10⁻²"]
    longer = LogScale.covering([2.5e-3, 0.07], start=170.0, stop=22.0)
    assert [label for _, label in longer.ticks(spacing=30.0)] == ["3·10⁻³", "10⁻²", "3·10⁻²"]
    assert LogScale.covering([], start=1.0, stop=0.0).place(1.0) < 1.0
    even = StepScale.covering((0.0, 5.0, 10.0), spread=False, start=0.0, stop=100.0)
    assert [even.place(v) for v in (0.0, 5.0, 10.0, 20.0)] == [0.0, 50.0, 100.0, 100.0]
    assert even.ticks(spacing=40.0) == [(0.0, "0"), (50.0, "5"), (100.0, "10")]
    wide = StepScale.covering((0.0, 1.0, 10.0, 100.0), spread=True, start=0.0, stop=240.0)
    assert [wide.place(v) for v in (0.0, 1.0, 10.0, 100.0)] == pytest.approx([0.0, 40.0, 140.0, 240.0])
    assert [label for _, label in wide.ticks(spacing=40.0)] == ["0", "1", "10", "10²"]


def test_reading_and_showing_runs_imports_neither_torch_nor_matplotlib():
    code = (
        "import sys, ntk_deq.report.jsonl, ntk_deq.report.runs, ntk_deq.report.terminal, ntk_deq.plots,"
        " ntk_deq.cli.figures;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
