"""Judging on a Dask cluster: the same results, in order, whatever the number of workers."""

import contextlib
import dataclasses

import pytest
from verify_harness import load

from ntk_deq.claims.claim import Verdict
from ntk_deq.errors import ArgumentError
from ntk_deq.verify import runner
from ntk_deq.verify.runner import Options, judge, judge_claims, judge_on_cluster

distributed = pytest.importorskip("distributed", reason="the extra `dask` is not installed")

SETTINGS = '  plain: {sizes: {n: 1..3}, domain: {A: "real[n, n]", x: positive}}'
CLAIMS = """
- {id: a, setting: plain, conclude: norm(A) <= fro(A)}
- {id: bad, setting: plain, conclude: norm(A*x*C) <= 1}
- {id: b, setting: plain, conclude: fro(A) <= norm(A)}
- {id: c, setting: plain, conclude: norm(A) <= norm1(A)}
"""


@pytest.fixture(scope="module")
def address():
    # Threads of this process instead of processes: no start-up, no pickling of the listener's terminal.
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster:
        yield cluster.scheduler_address


def plain(result):
    return dataclasses.replace(result, seconds=0.0)


def test_the_results_are_those_of_one_process(tmp_path, address):
    claims, options = load(tmp_path, CLAIMS, SETTINGS), Options(instances=10, search=50)
    heard = []

    class Ear:
        def claim_started(self, claim_id, total):
            raise AssertionError("workers have no listener")

        def instance_done(self, claim_id, done):
            raise AssertionError("workers have no listener")

        def claim_judged(self, claim_id):
            heard.append(f"{claim_id} judged")

        def claim_finished(self, result):
            heard.append(result.id)

        def tick(self):
            raise AssertionError("nobody waits here")

    found = [plain(result) for result in judge_on_cluster(address, claims, options, Ear())]
    assert found == [plain(result) for result in judge_claims(claims, options)]
    assert heard == ["a", "bad", "b", "c"]


def test_stop_early_leaves_the_rest(tmp_path, address):
    claims, options = load(tmp_path, CLAIMS, SETTINGS), Options(instances=10, search=50, stop_early=True)
    assert [result.id for result in judge_on_cluster(address, claims, options)] == ["a", "bad"]


def test_a_claim_that_ends_its_workers_is_an_error(tmp_path):
    """As the scheduler says it, once as many workers have died as it allows."""
    claims, asked = load(tmp_path, CLAIMS, SETTINGS), Options(instances=10, search=50)

    class Future:
        def __init__(self, judged, claim, *arguments):
            self.result = lambda: judged(claim, *arguments) if claim.id != "b" else killed()

    class Client(contextlib.nullcontext):
        def submit(self, *arguments, pure):
            return Future(*arguments)

    def killed():
        raise distributed.KilledWorker("judge-0", None, 1)

    found = list(runner._gather(Client(), claims, asked, runner.Overseer(), 1))
    assert [result.id for result in found] == ["a", "bad", "b", "c"]
    assert (found[2].verdict, found[2].reason) == (Verdict.ERROR, "its workers on the cluster died")
    assert plain(found[3]) == plain(judge(claims[3], asked))


def test_without_the_extra_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(ArgumentError, match="needs the package distributed"):
        judge_on_cluster("local", [], Options())
