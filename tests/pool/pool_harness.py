"""Claims for the worker processes, and judgements that die, run too long, take too much memory or wait for nothing."""

import json
import os
from pathlib import Path

from processes import children

from ntk_deq.claims.load import load_suite
from ntk_deq.report.jsonl import result_to_dict
from ntk_deq.verify import trial
from ntk_deq.verify.pool import judge_in_workers
from ntk_deq.verify.runner import Options

HEAD = """suite: pool
settings:
  plain: {sizes: {n: 1..3}, domain: {A: "real[n, n]", x: positive}}
  number: {domain: {x: positive}}
  net: {model: linear-implicit, sizes: {N: 1..2, d: 1..2, m: 1..3}}
  trained:
    model: linear-implicit
    sizes: {N: 2, d: 2, m: 3}
    domain: {}
    init: {W: "normal(0, 1/100)", U: "normal(0, 1/2)", b: "normal(0, 1/3)", X: orthonormal_rows, y: rademacher}
claims:
"""
HOLDS = "setting: plain, conclude: norm(A) <= fro(A)"
REFUTED = "setting: plain, conclude: fro(A) <= norm(A)"
MIXED = {
    "holds": HOLDS,
    "trained": "setting: trained, instances: 1, run: {method: gradient-descent, step: 1/20, steps: 20}, "
    "conclude: 'L[k] <= L[0] for all k'",
    "refuted": REFUTED,
    "bad": "setting: plain, conclude: norm(A*x*C) <= 1",
    "undecided": "setting: net, conclude: fro(Z) >= 0",
    "proved": "setting: number, conclude: x + 1 > 1",
}
FEW = {"instances": 10, "search": 20}


def claims_of(folder, bodies):
    path = Path(folder) / "suite.yaml"
    path.write_text(HEAD + "".join(f"  - {{id: {name}, {body}}}\n" for name, body in bodies.items()))
    return load_suite(str(path)).claims


def judged(folder, bodies=None, *, jobs=1, memory=None, listener=None, **options):
    """Judge claims in workers; see that none of these is left."""
    claims = claims_of(folder, bodies or {"a": HOLDS})
    chosen = Options(**{**FEW, **options})
    found = list(judge_in_workers(claims, chosen, jobs=jobs, memory=memory, listener=listener))
    assert children(os.getpid()) == []
    return found


def lines(found):
    """What `results.jsonl` says, but for what is measured by the clock."""
    entries = [result_to_dict(result) for result in found]
    for entry in entries:
        entry.pop("seconds")
        for run in entry["runs"]:
            run.pop("seconds")
    return [json.dumps(entry) for entry in entries]


def at_instance(monkeypatch, number, what, *, mark=None):
    """Have the judgement of the instance with this number, from 1, do something first.

    Each worker counts anew; with a file to mark that it was done, only the first one does it.
    """
    real, count = trial.judge_instance, []

    def changed(*arguments, **options):
        count.append(1)
        if len(count) == number and not (mark is not None and mark.exists()):
            if mark is not None:
                mark.touch()
            what()
        return real(*arguments, **options)

    monkeypatch.setattr(trial, "judge_instance", changed)


def for_ever():
    """Be busy in a single operation, as far as anybody can see from outside."""
    while True:
        pass
