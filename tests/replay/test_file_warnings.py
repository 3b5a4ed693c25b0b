"""What goes wrong with files beside a judgement changes no verdict, and is told."""

from __future__ import annotations

import errno
import io
import json
import time
from pathlib import Path

import pytest
from replay_samples import sample_claim
from rich.console import Console

from ntk_deq.claims.claim import Verdict
from ntk_deq.report.jsonl import result_to_dict
from ntk_deq.report.terminal import TerminalReport
from ntk_deq.verify.replay import read_counterexample, replay
from ntk_deq.verify.replay import record as writer
from ntk_deq.verify.results import ClaimResult
from ntk_deq.verify.runner import Options, judge
from ntk_deq.verify.trial import Trial


def told(*results: ClaimResult) -> str:
    stream = io.StringIO()
    with TerminalReport(Console(file=stream, width=200), total=len(results)) as report:
        for result in results:
            report.claim_finished(result)
    return stream.getvalue()


def options(folder: Path) -> Options:
    return Options(instances=20, search=0, store=str(folder / "store"), out=str(folder / "out"))


def test_a_damaged_file_of_the_store_is_told(tmp_path: Path) -> None:
    claim = sample_claim(tmp_path)
    assert judge(claim, options(tmp_path)).warnings == ()
    (kept,) = (tmp_path / "store" / "instances").glob("*/*.yaml")
    kept.write_bytes(b"\xff")
    result = judge(claim, options(tmp_path))
    assert result.verdict is Verdict.REFUTED
    assert len(result.warnings) == 1
    assert f"warning: {kept} is skipped: " in told(result)
    assert json.loads(json.dumps(result_to_dict(result)))["warnings"] == list(result.warnings)


def test_a_full_disk_is_told_once_and_changes_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(writer, "write_whole", full)
    claim = sample_claim(tmp_path)
    result = judge(claim, options(tmp_path))
    assert result.verdict is Verdict.REFUTED
    assert result.replay is None
    text = told(result, result)
    assert text.count("keeps nothing for later runs: No space left on device") == 1
    assert text.count("the counterexample is not written down: [Errno 28] No space left on device") == 1


def test_a_counterexample_is_written_though_the_time_limit_has_run_out(tmp_path: Path) -> None:
    claim = sample_claim(tmp_path)
    trial = Trial(claim, options(tmp_path), time.perf_counter(), lambda done: None)
    trial.run()
    late = Trial(claim, Options(out=str(tmp_path / "late"), time_limit=1e-9), trial.started, lambda done: None)
    late.plainest = trial.plainest
    path = late.saved()
    assert path is not None
    assert replay(read_counterexample(Path(path))).reproduced


def test_writing_ends_some_time_after_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = sample_claim(tmp_path)
    trial = Trial(claim, options(tmp_path), time.perf_counter(), lambda done: None)
    trial.run()
    monkeypatch.setattr("ntk_deq.verify.trial.WRITING", -1.0)
    late = Trial(claim, Options(out=str(tmp_path / "late"), time_limit=1e-9), trial.started, lambda done: None)
    late.plainest = trial.plainest
    assert late.saved() is None
    assert late.warnings == ["the counterexample is not written down: the time limit ran out"]
