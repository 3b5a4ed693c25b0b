"""The terminal report in plain mode, on a live terminal and without Unicode."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.cells import cell_len
from rich.console import Console
from sample_results import HOSTILE, INFO, all_results, hostile, ill_formed, refuted_expected, refuted_unexpected

from ntk_deq.claims.claim import Position, Problem
from ntk_deq.report.carets import caret_lines
from ntk_deq.report.matrices import matrix_lines, side_by_side
from ntk_deq.report.terminal import TerminalReport, render_problems
from ntk_deq.report.words import EXIT_MEANINGS

PATHS = {"results": "results/results.jsonl", "junit": "results/junit.xml", "report": "results/report.html"}


def plain_console(width: int = 80) -> Console:
    return Console(file=io.StringIO(), width=width, record=True, force_terminal=False, color_system=None)


def run(console: Console, results, *, exit_code: int = 1) -> str:
    report = TerminalReport(console, total=len(results))
    report.start()
    for result in results:
        report.claim_started(result.id, result.instances)
        for k in range(3):
            report.instance_done(k)
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
    text = run(plain_console(), [refuted_expected()], exit_code=0)
    line = text.splitlines()[1]
    assert line.split() == ["✓", "R.L5.1.m1", "refuted", "numeric", "-0.5", "12/12", "41", "ms", "expected"]
    assert "expected holds" not in text


def test_columns_line_up():
    lines = [
        line
        for line in run(plain_console(), all_results()).splitlines()
        if line[:1] in "✓✗" and ("numeric" in line or "none" in line)
    ]
    assert len(lines) == 7
    assert {line.index("numeric" if "numeric" in line else "none") for line in lines} == {28}
    assert len({line.index("unexpected") for line in lines if "unexpected" in line}) == 1


def test_the_mark_survives_long_ids_and_narrow_terminals():
    long = dataclasses.replace(refuted_unexpected(), id="R.S4M.with.a.rather.long.identifier")
    for width in (80, 60, 40):
        console = plain_console(width)
        TerminalReport(console, total=1, id_width=len(long.id)).claim_finished(long)
        assert long.id in console.file.getvalue()
        assert "unexpected" in console.file.getvalue()


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
