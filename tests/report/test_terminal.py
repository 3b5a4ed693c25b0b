"""The terminal report in plain mode, on a live terminal and without Unicode."""

from __future__ import annotations

import dataclasses
import io
import math

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text
from sample_results import (
    HOSTILE,
    INFO,
    all_results,
    holds,
    hostile,
    ill_formed,
    refuted_expected,
    refuted_unexpected,
    undecided,
)

from ntk_deq.errors import Position, Problem
from ntk_deq.language.types import Margin
from ntk_deq.report import EXIT_MEANINGS, terminal
from ntk_deq.report.check import caret_lines, render_problems
from ntk_deq.report.console import matrix_lines, side_by_side
from ntk_deq.report.terminal import TerminalReport
from ntk_deq.verify.results import ConclusionRecord

PATHS = {"results": "results/results.jsonl", "junit": "results/junit.xml", "report": "results/report.html"}


def plain_console(width: int = 80) -> Console:
    return Console(file=io.StringIO(), width=width, record=True, force_terminal=False, color_system=None)


def run(console: Console, results, *, exit_code: int = 1) -> str:
    report = TerminalReport(console, total=len(results))
    report.start()
    for result in results:
        report.claim_started(result.id, result.instances)
        for k in range(3):
            report.instance_done(result.id, k)
        report.claim_finished(result)
    report.summary(results, INFO, PATHS, exit_code)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 100, 120])
def test_plain_lines_fit_and_carry_no_escapes(width):
    text = run(plain_console(width), all_results())
    assert "\x1b" not in text
    assert "\x00" not in text
    assert max(map(cell_len, text.splitlines())) <= width
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_one_line_a_claim_with_the_promised_fields():
    text = run(plain_console(100), [refuted_expected()], exit_code=0)
    head, line = text.splitlines()[1:3]
    assert head.split() == ["claim", "verdict", "evidence", "margin", "relative", "met", "time"]
    words = ["✓", "R.L5.1.m1", "refuted", "numeric", "-0.5", "-0.25", "12/12", "41", "ms"]
    assert line.split() == [*words, "expected"]
    assert "expected holds" not in text
    assert run(plain_console(80), [refuted_expected()], exit_code=0).splitlines()[2].split() == words


@pytest.mark.parametrize("width", [80, 100])
def test_columns_line_up(width):
    head, *lines = [
        line
        for line in run(plain_console(width), all_results()).splitlines()
        if (line[:1] in "✓✗" and ("numeric" in line or "none" in line)) or "evidence" in line
    ]
    assert len(lines) == 7
    assert (
        {line.index("numeric" if "numeric" in line else "none") for line in lines} == {head.index("evidence")} == {28}
    )
    assert {line.index("/") + 4 for line in lines if "240" in line} == {head.index("met") + 3}
    marked = [line.index("unexpected") for line in lines if "unexpected" in line]
    assert len(set(marked)) == len(marked[:1]) == (width > 80)


def test_a_line_is_whole_on_narrow_terminals():
    long = dataclasses.replace(refuted_unexpected(), id="R.S4M.with.a.rather.long.identifier")
    for width in (80, 60, 40):
        console = plain_console(width)
        report = TerminalReport(console, total=1, id_width=len(long.id))
        report.start()
        report.claim_finished(long)
        text = console.file.getvalue()
        assert f"✗ {long.id}" in text
        assert "-0.0312" in text
        assert "1.2 s" in text
        assert "expected holds" in text
        assert ("evidence" in text) is (width == 80)  # a head over broken lines would be of no use


def cells(result, width=100):
    """Return the margin and the relative margin on the line of a result."""
    head, line = run(plain_console(width), [result]).splitlines()[1:3]
    end = head.index("relative") + len("relative")
    return line[head.index("evidence") + 9 : head.index("margin") + 6].strip(), line[
        head.index("margin") + 6 : end
    ].strip()


def with_margin(low, high, scale):
    margin = Margin(low, high)
    record = ConclusionRecord("c", "a <= b", margin, ((5.0, 5.0, 6.0), (low, high, scale)), 1, 0, 1, 0)
    return dataclasses.replace(holds(), worst_margin=margin, conclusions=(record,))


@pytest.mark.parametrize(
    ("margin", "shown"),
    [
        ((-6.7e22, 0.0, 1e35), ("[-6.7e22, 0]", "0 ± 7e-13")),
        ((-1e12, 1e12, 5e21), ("[-1e12, 1e12]", "0 ± 2e-10")),
        ((-1.25e-4, 3.8e-3, 1.0), ("0 ± 0.004", "0 ± 0.004")),  # what does not fit its column
        ((1.25e-4, 3.8e-3, 1.0), ("≥ 0.00013", "≥ 0.00013")),
        ((-3.8e-3, -1.25e-4, 1.0), ("≤ -0.00013", "≤ -0.00013")),
        ((2.0, 2.0, 8.0), ("2", "0.25")),
        ((0.0, 0.0, 0.0), ("0", "0")),
        ((0.0, 1.0, 0.0), ("[0, 1]", "-")),
        ((-math.inf, math.inf, 1.0), ("[-inf, inf]", "-")),
        ((1.0, 1.0, math.inf), ("1", "-")),
    ],
)
def test_a_margin_is_shown_relative_to_its_scale_too(margin, shown):
    assert cells(with_margin(*margin)) == shown


def test_the_margin_is_that_of_the_counterexample_and_the_one_before_shrinking_is_told_apart():
    plain = refuted_unexpected()
    witness = dataclasses.replace(plain.counterexample, margin=Margin(-1.0, -1.0), scale=3.0)
    record = ConclusionRecord("c", "a <= b", Margin(-214.0, -214.0), ((-214.0, -214.0, 856.0),), 0, 1, 0, 0)
    shrunk = dataclasses.replace(
        plain, worst_margin=Margin(-214.0, -214.0), counterexample=witness, conclusions=(record,)
    )
    assert cells(shrunk) == ("-1", "-0.33")
    text = run(plain_console(100), [shrunk])
    assert "is false, margin -1 (relative -0.33)" in text
    assert "before shrinking, the worst margin was -214 (relative -0.25)" in text
    assert "before shrinking" not in run(plain_console(100), [plain])


def test_details_under_unexpected_verdicts_only():
    text = run(plain_console(), all_results())
    assert "expected holds: bound breaks at A = skew" in text
    assert "bound: 0.71875 +/- 1e-17 >= 0.75 is false, margin -0.0312" in text
    assert "A = ⎡         0  -0.707106… ⎤" in text
    assert "    ⎣ 0.707106…           0 ⎦" in text
    assert "gamma = 0.300000…, k = 3" in text
    assert "ZeroDivisionError: division by zero" in text
    assert "for A = -identity" not in text


def test_an_ill_formed_claim_shows_its_place_with_a_caret():
    lines = run(plain_console(), [ill_formed()]).splitlines()
    at = next(i for i, line in enumerate(lines) if "sigma_mim(Z) * X" in line)
    assert lines[at].index("sigma_mim") == lines[at + 1].index("^^^^^^^^^")
    assert "checks/bad.yaml:14:26: R.BAD: unknown function `sigma_mim`" in lines[at - 1]
    assert "did you mean `sigma_min`?" in lines[at + 2]


def test_titles_appear_where_there_is_room():
    assert "Lower bound on the smallest" not in run(plain_console(80), [refuted_unexpected()])
    assert "Lower bound on the smallest" in run(plain_console(120), [refuted_unexpected()])


def test_hostile_text_is_neither_markup_nor_escape():
    text = run(plain_console(), [hostile()])
    assert "[bold]" in text
    assert "\u202e" not in text
    result = dataclasses.replace(refuted_unexpected(), reason=HOSTILE, trace=HOSTILE, position=HOSTILE)
    assert "\x1b" not in run(plain_console(), [result])


def test_summary_counts_files_and_exit_code():
    text = run(plain_console(), all_results())
    for needed in (
        "✗ 2 refuted",
        "8 claims in 1 min 23 s, seed 7, float64 on cpu",
        "5 against expectation: R.S4M, R.T4.4, R.L3.2, R.L4.1, R.BAD",
        "junit    results/junit.xml",
        "exit 1: some verdict is against expectation",
    ):
        assert needed in text, needed


def test_an_interrupted_run_says_how_far_it_came():
    console = plain_console()
    report = TerminalReport(console, total=8)
    report.summary(all_results()[:2], dataclasses.replace(INFO, interrupted=True), {}, 2)
    assert "2 claims of 8 in 1 min 23 s" in console.file.getvalue()
    assert "interrupted" in console.file.getvalue()


@pytest.mark.parametrize("code", sorted(EXIT_MEANINGS))
def test_every_exit_code_has_a_meaning(code):
    assert f"exit {code}: {EXIT_MEANINGS[code]}" in " ".join(run(plain_console(), [], exit_code=code).split())


def live_console(**options) -> Console:
    return Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard", **options)


def test_a_terminal_gets_a_bar_that_is_taken_away_again(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    console = live_console()
    text = run(console, all_results()[:2], exit_code=0)
    assert "claim 1 of 2" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # cursor hidden and shown again


def test_the_bar_says_what_is_done_when_the_planned_instances_are_judged(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(terminal, "_DRAW_EVERY", 0.0)
    console = live_console()

    def drawn(tell, *words):
        start = len(console.file.getvalue())
        tell(*words)
        return Text.from_ansi(console.file.getvalue()[start:]).plain

    with TerminalReport(console, total=200, id_width=60) as report:
        report.claim_started("R.L5." + "9" * 60, 40)
        shown = drawn(report.stage_entered, "R.L5." + "9" * 60, "at the boundary")
        assert shown.count("\n") == 0  # on one line of 80 columns
        assert "at the boundary claim 1 of 200" in shown
        report.claim_judged("R.L5." + "9" * 60)
        report.claim_started("R.L5.1", 40)
        assert "0/40" not in drawn(report.stage_entered, "R.L5.1", "proving")
        report.stage_entered("R.L5.1", "")
        assert "40/40" in drawn(report.instance_done, "R.L5.1", 40)
        shown = drawn(report.stage_entered, "R.L5.1", "searching")
        assert "searching" in shown
        assert "40/40" not in shown
        shown = drawn(report.instance_done, "R.L5.1", 41)  # what the search has found
        assert "searching" in shown
        assert "41" not in shown
        report.stage_entered("R.L5.1", "shrinking")
        report.claim_finished(dataclasses.replace(refuted_expected(), id="R.L5.1"))
        report.claim_started("R.L5.2", 7)
        assert "3/7" in drawn(report.instance_done, "R.L5.2", 3)


def test_claims_that_are_judged_at_once_have_a_bar_each(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(terminal, "_DRAW_EVERY", 0.0)
    console = live_console()
    first, second = all_results()[:2]
    with TerminalReport(console, total=2) as report:
        report.claim_started(first.id, 10)
        report.claim_started(second.id, 20)
        report.instance_done(second.id, 7)
        both = console.file.getvalue()
        report.claim_judged(second.id)  # its line waits for that of the first
        report.tick()
        rest = console.file.getvalue()[len(both) :]
        report.claim_started(first.id, 10)  # again, in another worker
        report.claim_finished(first)
        report.claim_finished(second)
    assert all(text in both for text in ("claim 1 of 2", "claim 2 of 2", "0/10", "7/20"))
    assert "claim 1 of 2" in rest
    assert "claim 2 of 2" not in rest


def test_the_bar_goes_when_an_error_passes_through(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    console = live_console()

    def interrupted() -> None:
        with TerminalReport(console, total=1) as report:
            report.claim_started("R.L5.1", 10)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert "\x1b[?25h" in console.file.getvalue()


def test_no_color_means_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    text = run(live_console(no_color=True), all_results()[:2], exit_code=0)
    assert "claim 1 of 2" not in text
    assert "\x1b[?25l" not in text


def test_a_terminal_without_unicode_gets_ascii():
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="ascii"), width=80, color_system=None)
    report = TerminalReport(console, total=8)
    for result in all_results():
        report.claim_finished(result)
    report.summary(all_results(), INFO, PATHS, 1)
    console.file.flush()
    text = raw.getvalue().decode("ascii")
    assert "x R.S4M" in text
    assert "0 +/- 3e-15" in text
    assert "[         0  -0.707106~ ]" in text


def test_problems_without_source_and_with_a_long_one():
    console = plain_console()
    source = "a + " * 5000 + "wrong" + " + b" * 5000
    render_problems(
        console,
        [
            Problem(Position("f.yaml", 3, 1), "duplicate key `id`"),
            Problem(Position("f.yaml", 9, 20), "unknown name `wrong`", "C1", source, (20000, 20005), None),
        ],
    )
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "f.yaml:3:1: duplicate key `id`"
    at = next(i for i, line in enumerate(lines) if "wrong +" in line)
    assert lines[at].index("wrong") == lines[at + 1].index("^^^^^")
    assert len(lines[at]) <= 80
    assert lines[-1] == "2 problems"


@pytest.mark.parametrize(
    ("source", "span", "under"),
    [
        ("abc", (0, 1), "a"),
        ("abc", (3, 3), ""),
        ("abc", (99, 120), ""),
        ("ab\ncde\nf", (4, 6), "de"),
        ("ab\ncde", (1, 5), "b"),
        ("γ·x", (2, 3), "x"),
    ],
)
def test_carets_stand_under_the_span(source, span, under):
    line, carets = caret_lines(source, span)
    start = carets.index("^")
    assert set(carets[start:]) == {"^"}
    assert line[start : start + len(carets) - start].startswith(under)


def test_carets_account_for_wide_characters():
    line, carets = caret_lines("日本 x", (3, 4))
    assert line == "日本 x"
    assert carets == "     ^"


def test_matrices():
    assert matrix_lines("b", [1.0, -2.5]) == ["b = ⎡    1 ⎤", "    ⎣ -2.5 ⎦"]
    assert matrix_lines("A", [[1.0]]) == ["A = [ 1 ]"]
    assert matrix_lines("c", 0.5) == ["c = 0.5"]
    assert matrix_lines("A", None) == ["A: too large to print"]
    assert matrix_lines("A", []) == matrix_lines("A", [[]]) == ["A: empty"]
    large = matrix_lines("A", [[0.0] * 9] * 8)
    assert len(large) == 7
    assert "first 6 x 6 of 8 x 9" in large[-1]
    assert len({cell_len(line) for line in large}) == 1
    assert all(len(line) <= 12 for line in side_by_side([["12345"], ["67890"], ["1"]], width=12))


def coloured(results, *, exit_code: int) -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system="standard", no_color=False)
    TerminalReport(console, total=len(results)).summary(results, INFO, PATHS, exit_code)
    return console.file.getvalue()


def test_red_is_for_what_is_wrong():
    red, yellow = "\x1b[1;31m", "\x1b[1;33m"
    assert f"{yellow}exit 6" in coloured([], exit_code=6)
    assert f"{red}exit 1" in coloured([], exit_code=1)
    assert "\x1b[31m✗ 1 refuted" in coloured([refuted_unexpected()], exit_code=1)
    assert "31m" not in coloured([refuted_expected()], exit_code=0)
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system="standard", no_color=False)
    TerminalReport(console, total=1).claim_finished(refuted_expected())
    assert "31m" not in console.file.getvalue()


def test_an_undecided_claim_shows_the_instance_and_what_is_open():
    text = run(plain_console(), [undecided()])
    assert "(6): 0.625 ± 2e-17 > 0.625 is open, margin 0 ± 2e-17" in text
    assert "A = [ 0.75 ]" in text
    assert "instance 7" in text
