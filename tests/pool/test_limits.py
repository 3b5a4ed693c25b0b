"""Limits that a judgement cannot keep by itself: an operation that takes too long, too much memory, or never ends."""

import subprocess
import sys
import time

import pytest
import torch
from pool_harness import HOLDS, MIXED, REFUTED, at_instance, claims_of, for_ever, judged

from ntk_deq.claims.claim import Verdict
from ntk_deq.cli.arguments import parse_arguments
from ntk_deq.verify import findings, trial
from ntk_deq.verify import pool as workers
from ntk_deq.verify.pool import worker as memory
from ntk_deq.verify.pool.worker import active_seconds
from ntk_deq.verify.runner import Options, judge

pytestmark = pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="the tests make workers by fork")

MIDDLE = "the time limit of 0.6 s ran out in the middle of an operation"


def hoard():
    kept = []
    while True:
        kept.append(torch.ones(2_000_000))  # 8 MB each


class TestTime:
    @pytest.fixture(autouse=True)
    def _little_grace(self, monkeypatch):
        monkeypatch.setattr(memory, "GRACE", 0.1)

    def test_an_operation_that_outlasts_the_limit(self, tmp_path, monkeypatch):
        at_instance(monkeypatch, 3, for_ever)
        first, second = judged(tmp_path, {"a": HOLDS, "bad": MIXED["bad"]}, time_limit=0.6)
        assert first.verdict is Verdict.UNDECIDED
        assert first.reason.startswith(MIDDLE)
        assert first.reason.endswith("of 10 instances")
        assert first.warnings == ()
        assert [line.text for line in first.statement][-1] == "norm(A) <= fro(A)"
        assert second.verdict is Verdict.ILL_FORMED

    def test_the_statement_itself(self, tmp_path, monkeypatch):
        monkeypatch.setattr("ntk_deq.verify.runner.statement_lines", lambda claim: for_ever())
        (found,) = judged(tmp_path, time_limit=0.6)
        assert (found.verdict, found.reason) == (Verdict.UNDECIDED, f"{MIDDLE}, after 0 of 10 instances")

    def test_a_counterexample_found_before_stands(self, tmp_path, monkeypatch):
        at_instance(monkeypatch, 11, for_ever)
        (found,) = judged(
            tmp_path, {"a": REFUTED}, instances=40, time_limit=0.6, out=str(tmp_path), store=str(tmp_path / "store")
        )
        assert found.verdict is Verdict.REFUTED
        assert found.replay == str(tmp_path / "counterexamples" / "a.yaml")
        assert len(list(tmp_path.glob("store/instances/a-*/c-*.yaml"))) == 1
        assert found.warnings[0].startswith(f"its judgement was cut short: {MIDDLE}")

    def test_a_counterexample_that_cannot_be_written_down_in_time(self, tmp_path, monkeypatch):
        at_instance(monkeypatch, 11, for_ever)
        monkeypatch.setattr(trial, "write_counterexample", lambda *arguments, **options: for_ever())
        monkeypatch.setattr("ntk_deq.verify.pool.worker.WRITING", 0.1)
        (found,) = judged(tmp_path, {"a": REFUTED}, instances=40, time_limit=0.6, out=str(tmp_path))
        assert (found.verdict, found.replay) == (Verdict.REFUTED, None)
        assert found.warnings[1].startswith("the counterexample is not written down: the time limit")

    def test_findings_that_take_too_long_leave_the_verdict(self, tmp_path, monkeypatch):
        monkeypatch.setattr(findings, "hypothesis_findings", lambda *arguments: for_ever())
        (found,) = judged(tmp_path, time_limit=0.6, findings=True)
        assert (found.verdict, found.reason, found.findings) == (Verdict.HOLDS, "", ())
        assert found.warnings[0].startswith(f"its judgement was cut short: {MIDDLE}")

    def test_one_that_waits(self, tmp_path, monkeypatch):
        """It uses no processor time, so that the clock on the wall must end it; one that is only slow goes on."""
        monkeypatch.setattr(workers, "WAITING", 1)
        monkeypatch.setattr(workers, "MINUTE", 0.5)
        at_instance(monkeypatch, 3, lambda: time.sleep(600))
        (found,) = judged(tmp_path, time_limit=0.5)
        assert found.verdict is Verdict.UNDECIDED
        assert "the time limit of 0.5 s ran out: it has waited for" in found.reason

    def test_waiting_for_a_core_is_no_waiting(self, tmp_path):
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        began, before = time.perf_counter(), active_seconds(busy.pid)
        time.sleep(1.0)
        active, waited = active_seconds(busy.pid) - before, time.perf_counter() - began
        busy.kill()
        busy.wait()
        assert 0.5 * waited < active < 1.5 * waited
        assert active_seconds(busy.pid) == 0.0

    def test_the_limit_counts_processor_time(self, tmp_path, monkeypatch):
        at_instance(monkeypatch, 3, lambda: time.sleep(1.2))
        (found,) = judged(tmp_path, time_limit=1.0)
        assert found.verdict is Verdict.HOLDS


class TestMemory:
    def test_an_operation_that_needs_too_much(self, tmp_path, monkeypatch):
        at_instance(monkeypatch, 3, hoard, mark=tmp_path / "first")
        first, second = judged(tmp_path, {"a": HOLDS, "b": MIXED["proved"]}, memory=300_000_000)
        assert first.verdict is Verdict.UNDECIDED
        assert first.reason.startswith("an operation needs more than the 300 MB of memory that a worker may use, after")
        assert second.verdict is Verdict.PROVED

    def test_a_worker_that_holds_on_to_memory_is_replaced(self, tmp_path, monkeypatch):
        kept = []
        at_instance(monkeypatch, 3, lambda: kept.append(torch.ones(50_000_000)))
        started = []
        real = workers.start_process
        monkeypatch.setattr(workers, "start_process", lambda *a, **o: started.append(1) or real(*a, **o))
        judged(tmp_path, {"a": HOLDS, "b": HOLDS, "c": HOLDS}, memory=700_000_000)
        assert len(started) >= 2

    @pytest.mark.parametrize(
        "error",
        [
            MemoryError(),
            torch.OutOfMemoryError("CUDA out of memory."),
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried ..."
            ),
        ],
    )
    def test_what_the_system_refuses_is_said(self, tmp_path, monkeypatch, error):
        def refused():
            raise error

        at_instance(monkeypatch, 3, refused)
        (found,) = judged(tmp_path)
        assert found.verdict is Verdict.UNDECIDED
        assert found.reason == "an operation needs more memory than there is, after 2 of 10 instances"

    def test_in_this_process_too(self, tmp_path, monkeypatch):
        (claim,) = claims_of(tmp_path, {"a": HOLDS})

        def refused(claim):
            raise MemoryError

        monkeypatch.setattr("ntk_deq.verify.runner.statement_lines", refused)
        found = judge(claim, Options(instances=2, search=0))
        assert (found.verdict, found.reason) == (Verdict.UNDECIDED, "an operation needs more memory than there is")

    def test_what_is_free(self, tmp_path, monkeypatch):
        assert memory.default_memory(4) == pytest.approx(memory.free_memory() / 5, rel=0.2)
        (tmp_path / "max").write_text("3000000000\n")
        (tmp_path / "current").write_text("1000000000\n")
        monkeypatch.setattr(memory, "_CGROUPS", ((str(tmp_path / "max"), str(tmp_path / "current")),))
        assert memory.free_memory() == 2_000_000_000
        (tmp_path / "max").write_text("max\n")
        assert memory.free_memory() > 0
        assert memory.held_memory(0) is None

    @pytest.mark.parametrize(("text", "size"), [("500M", 500_000_000), ("4G", 4_000_000_000), ("1.5GB", 1_500_000_000)])
    def test_sizes(self, text, size):
        assert parse_arguments(["run", "f.yaml", "--memory", text]).memory == size

    @pytest.mark.parametrize("text", ["4", "1M", "G", "-1G", "4g", "nan", "1e9M"])
    def test_wrong_sizes(self, text, capsys):
        with pytest.raises(SystemExit):
            parse_arguments(["run", "f.yaml", f"--memory={text}"])
        assert f"must be a size of at least 10M, such as 500M or 4G. Got {text!r}." in capsys.readouterr().err
