"""Where a counterexample was written, every report says how to replay it."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from replay_samples import sample_claim
from rich.console import Console

from ntk_deq.report.html import write_html
from ntk_deq.report.jsonl import append_result
from ntk_deq.report.terminal import TerminalReport
from ntk_deq.verify.results import ClaimResult, RunInfo
from ntk_deq.verify.runner import Options, judge

COMMAND = "verify-claims replay 'my results/counterexamples/sample.norm.yaml'"


@pytest.fixture
def result(tmp_path: Path) -> ClaimResult:
    found = judge(sample_claim(tmp_path), Options(instances=30))
    assert found.counterexample is not None
    return replace(found, replay="my results/counterexamples/sample.norm.yaml")


def test_the_terminal_shows_the_command(result: ClaimResult) -> None:
    stream = io.StringIO()
    with TerminalReport(Console(file=stream, width=120), total=1) as report:
        report.claim_finished(result)
    assert f"replay: {COMMAND}" in stream.getvalue()


def test_the_page_shows_the_command_and_the_stream_the_path(result: ClaimResult, tmp_path: Path) -> None:
    info = RunInfo("s", "t", "c", "now", 0.0, 0, {}, "cpu", "float64")
    write_html(tmp_path / "report.html", [result, replace(result, id="other", replay=None)], info)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count(COMMAND.replace("'", "&#39;")) == 1
    append_result(tmp_path / "results.jsonl", result)
    entry = json.loads((tmp_path / "results.jsonl").read_text(encoding="utf-8"))
    assert entry["replay"] == "my results/counterexamples/sample.norm.yaml"
