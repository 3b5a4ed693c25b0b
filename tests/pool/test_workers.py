"""Worker processes: the same results whatever their number, and a run that survives them; none is ever left."""

import faulthandler
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from pool_harness import FEW, HOLDS, MIXED, REFUTED, at_instance, claims_of, judged, lines
from processes import alive, children, eventually

from ntk_deq.claims.claim import Verdict
from ntk_deq.errors import ArgumentError
from ntk_deq.verify import pool as workers
from ntk_deq.verify.options import Options
from ntk_deq.verify.pool import judge_in_workers, long_ones
from ntk_deq.verify.pool import worker as worker_module
from ntk_deq.verify.runner import judge, judge_claims

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the tests make workers by fork and look into /proc")

RETRIED = "its worker was ended ({}), and it was judged again in another one"


def dies(signal_number):
    def die():
        faulthandler.disable()  # pytest's would print where it died
        os.kill(os.getpid(), signal_number)

    return die


class TestSameResults:
    def test_whatever_the_number_of_workers(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        found = {}
        for jobs in (0, 1, 3):
            claims = claims_of(tmp_path, MIXED)
            options = Options(**FEW, store=f"store{jobs}", out="out", findings=True, smallest=("n",))
            results = list(judge_in_workers(claims, options, jobs=jobs) if jobs else judge_claims(claims, options))
            kept = sorted(path.name for path in tmp_path.glob(f"store{jobs}/**/*.yaml"))
            files = {path.name: path.read_bytes() for path in tmp_path.glob("out/counterexamples/*")}
            found[jobs] = (lines(results), kept, files)
        assert found[1] == found[0]
        assert found[3] == found[0]
        verdicts = [result.verdict for result in results]
        assert verdicts == ["holds", "holds", "refuted", "ill-formed", "undecided", "proved"]
        assert children(os.getpid()) == []

    def test_where_a_process_is_started_afresh(self, tmp_path, monkeypatch):
        monkeypatch.setattr(workers, "can_fork", lambda **options: False)
        bodies = {name: MIXED[name] for name in ("holds", "bad", "refuted")}
        fresh = judged(tmp_path, bodies)
        assert lines(fresh) == lines(judge_claims(claims_of(tmp_path, bodies), Options(**FEW)))

    def test_stopping_early(self, tmp_path):
        bodies = {"a": HOLDS, "b": REFUTED, "c": HOLDS, "d": HOLDS}
        found = judged(tmp_path, bodies, jobs=3, stop_early=True)
        assert [result.id for result in found] == ["a", "b"]

    def test_only_ill_formed_claims_need_no_worker(self, tmp_path, monkeypatch):
        monkeypatch.setattr(workers, "start_process", None)
        (found,) = judged(tmp_path, {"bad": MIXED["bad"]})
        assert found.verdict is Verdict.ILL_FORMED

    def test_a_listener_hears_of_every_claim(self, tmp_path):
        heard = []

        class Ear:
            def claim_started(self, claim_id, total):
                heard.append(("started", claim_id, total))

            def stage_entered(self, claim_id, stage):
                heard.append(("stage", claim_id, stage))

            def instance_done(self, claim_id, done):
                heard.append(("done", claim_id, done))

            def claim_judged(self, claim_id):
                heard.append(("judged", claim_id))

            def claim_finished(self, result):
                heard.append(("finished", result.id))

            def tick(self):
                heard.append(("tick",))

        judged(tmp_path, {"a": HOLDS, "bad": MIXED["bad"], "b": REFUTED}, jobs=2, listener=Ear())
        assert {("started", "a", 10), ("started", "b", 10), ("done", "a", 1), ("tick",)} <= set(heard)
        assert {("stage", "a", "proving"), ("stage", "a", ""), ("stage", "b", "shrinking")} <= set(heard)
        assert [entry for entry in heard if entry[0] == "finished"] == [("finished", n) for n in ("a", "bad", "b")]
        assert heard.index(("judged", "b")) < heard.index(("finished", "b"))

    @pytest.mark.parametrize(
        "wrong", [{"jobs": 0}, {"jobs": True}, {"jobs": 1, "threads": 1.5}, {"jobs": 1, "memory": 0}]
    )
    def test_arguments(self, wrong):
        with pytest.raises(ArgumentError, match="of judge_in_workers must be an integer > 0"):
            judge_in_workers((), Options(), **wrong)


class TestDeaths:
    @pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV"])
    def test_one_costs_a_retry(self, tmp_path, monkeypatch, name):
        plain = judged(tmp_path, {"a": REFUTED, "b": HOLDS})
        at_instance(monkeypatch, 3, dies(getattr(signal, name)), mark=tmp_path / "died")
        first, second = judged(tmp_path, {"a": REFUTED, "b": HOLDS})
        said = RETRIED.format(workers._death(-getattr(signal, name)))
        assert first.warnings == (said,)
        assert lines([replace(first, warnings=()), second]) == lines(plain)

    @pytest.mark.parametrize(("name", "verdict"), [("SIGKILL", Verdict.UNDECIDED), ("SIGSEGV", Verdict.ERROR)])
    def test_two_leave_the_claim_open(self, tmp_path, monkeypatch, name, verdict):
        at_instance(monkeypatch, 3, dies(getattr(signal, name)))
        (found,) = judged(tmp_path)
        assert found.verdict is verdict
        assert name in found.reason
        assert found.reason.startswith("2 workers were ended (SIG")
        assert found.reason.endswith("of 10 instances")

    def test_a_counterexample_outlives_its_worker(self, tmp_path, monkeypatch):
        at_instance(monkeypatch, 11, dies(signal.SIGKILL))
        (found,) = judged(tmp_path, {"a": REFUTED}, instances=40, out=str(tmp_path))
        assert found.verdict is Verdict.REFUTED
        assert found.counterexample is not None
        assert found.replay == str(tmp_path / "counterexamples" / "a.yaml")
        assert found.warnings[0].startswith("its judgement was cut short: 2 workers were ended")

    def test_one_that_dies_while_it_has_nothing_to_do(self, tmp_path):
        results = judge_in_workers(claims_of(tmp_path, {"a": HOLDS, "b": HOLDS}), Options(**FEW), jobs=1)
        first = next(results)
        (idle,) = children(os.getpid())
        os.kill(idle, signal.SIGKILL)
        (second,) = results
        assert (first.verdict, second.verdict) == (Verdict.HOLDS, Verdict.HOLDS)
        assert second.warnings in ((), (RETRIED.format(workers._KILLED),))  # it may have had the task already

    def test_half_written_files_go(self, tmp_path, monkeypatch):
        def half():
            (tmp_path / f".a.yaml.{os.getpid()}-0123.partial").write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)

        at_instance(monkeypatch, 2, half)
        judged(tmp_path, out=str(tmp_path))
        assert list(tmp_path.glob("*.partial")) == list(tmp_path.glob(".*.partial")) == []

    def test_a_result_that_cannot_be_handed_over(self, tmp_path, monkeypatch):
        real = judge

        def odd(*arguments, **options):
            return replace(real(*arguments, **options), note=lambda: None)

        monkeypatch.setattr(worker_module, "judge", odd)
        (found,) = judged(tmp_path)
        assert found.verdict is Verdict.ERROR
        assert found.reason == "its result cannot be handed over"
        assert "pickle" in found.trace

    @pytest.mark.parametrize("most", [0, 1])
    def test_few_or_no_processes_can_be_made(self, tmp_path, monkeypatch, most):
        real, made = workers.start_process, []

        def scarce(*arguments, **options):
            if len(made) == most:
                raise BlockingIOError(11, "Resource temporarily unavailable")
            made.append(1)
            return real(*arguments, **options)

        monkeypatch.setattr(workers, "start_process", scarce)
        bodies = {"a": HOLDS, "b": REFUTED, "c": HOLDS}
        found = judged(tmp_path, bodies, jobs=3)
        assert lines(found) == lines(judge_claims(claims_of(tmp_path, bodies), Options(**FEW)))


class TestEnds:
    def test_an_interruption_keeps_what_was_judged_out_of_turn(self, tmp_path, monkeypatch):
        def slow_first(claim, *arguments, **options):
            if claim.id == "a":
                signal.pause()
            return judge(claim, *arguments, **options)

        monkeypatch.setattr(worker_module, "judge", slow_first)
        heard = []

        class Ear:
            def claim_judged(self, claim_id):
                heard.append(claim_id)
                if len(heard) == 2:
                    raise KeyboardInterrupt

            def claim_started(self, claim_id, total): ...
            def instance_done(self, claim_id, done): ...
            def stage_entered(self, claim_id, stage): ...
            def claim_finished(self, result): ...
            def tick(self): ...

        claims = claims_of(tmp_path, {"a": HOLDS, "b": HOLDS, "c": REFUTED})
        results = judge_in_workers(claims, Options(**FEW), jobs=2, listener=Ear())
        assert [next(results).id, next(results).id] == ["b", "c"]
        with pytest.raises(KeyboardInterrupt):
            next(results)
        assert children(os.getpid()) == []

    def test_leaving_the_results_ends_the_workers(self, tmp_path):
        claims = claims_of(tmp_path, {"a": HOLDS, "b": HOLDS, "c": HOLDS})
        results = judge_in_workers(claims, Options(**FEW), jobs=2)
        next(results)
        assert children(os.getpid()) != []
        results.close()
        assert children(os.getpid()) == []

    def test_workers_end_with_a_run_that_is_killed(self, tmp_path):
        claims_of(tmp_path, {"a": HOLDS, "b": HOLDS})
        script = (
            "from ntk_deq.claims.load import load_suite\n"
            "from ntk_deq.verify.pool import judge_in_workers\n"
            "from ntk_deq.verify.runner import Options\n"
            f"claims = load_suite({str(tmp_path / 'suite.yaml')!r}).claims\n"
            "list(judge_in_workers(claims, Options(instances=10**6), jobs=2))\n"
        )
        with subprocess.Popen([sys.executable, "-c", script]) as run:
            eventually(lambda: len(children(run.pid)) == 2 or run.poll() is not None)
            started = children(run.pid)
            run.kill()
        assert len(started) == 2
        eventually(lambda: not any(map(alive, started)))


def test_long_claims_start_early(tmp_path):
    claims = dict(enumerate(claim for claim in claims_of(tmp_path, MIXED) if hasattr(claim, "trains")))
    places = {claim.id: place for place, claim in claims.items()}
    assert long_ones(claims, {}, 2) == [places["trained"]]
    assert long_ones(claims, {}, 1) == []
    known = {"holds": 1.0, "trained": 0.01, "refuted": 30.0, "undecided": 5.0, "proved": 0.1}
    assert long_ones(claims, known, 2) == [places["refuted"], places["undecided"]]
