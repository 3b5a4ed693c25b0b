"""Claims, judgements and instance files for the tests of replay and store."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ntk_deq.claims.claim import Claim
from ntk_deq.claims.load import load_suite
from ntk_deq.evaluation.instance import Instance
from ntk_deq.verify.judge import Judgement, judge_instance
from ntk_deq.verify.replay import write_counterexample
from ntk_deq.verify.replay.record import Record

CPU = torch.device("cpu")
ROOT = Path(__file__).parent.parent.parent

SUITE = """\
suite: sample
source: {title: "A paper: with a colon", authors: [Ada, "Björn"], year: 2024, url: "https://example.org"}
settings:
  plain:
    sizes: {n: 1..40, m: 1..40}
    domain: {A: "real[n, m]", v: "real[n]", c: "(0, 1]"}
  squares:
    sizes: {n: 1..4}
    domain: {S: "symmetric[n, n]", Q: "orthogonal[n, n]", P: "psd[n, n]"}
claims:
  - id: sample.norm
    title: The norm, halved
    where: 'Lemma "1", (2)'
    setting: plain
    given: {M: positive, k: integer 1..9}
    let:
      half: norm(A)/2
    assume:
      (1): fro(A) <= M*k
      "yes": c > 0
    conclude:
      bound: >-
        norm(A) <=
        half
      plain: dot(v, v) >= 0
  - id: sample.squares
    setting: squares
    assume: S == S'
    conclude: norm(Q*S) + norm(P) <= norm(S)/2
"""


def suite_file(folder: Path, text: str = SUITE) -> Path:
    path = folder / "sample.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def claim_of(path: Path, name: str) -> Claim:
    found = next(c for c in load_suite(path).claims if c.id == name)
    assert isinstance(found, Claim), found.problems
    return found


def sample_claim(folder: Path, text: str = SUITE, name: str = "sample.norm") -> Claim:
    return claim_of(suite_file(folder, text), name)


def tensor(value: object) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def sample_instance(**changed: object) -> Instance:
    values = {"A": [[1.0, 0.5]], "v": [3.0], "c": 0.75, "M": 2.0, "k": 1.0} | changed
    tensors = {name: v if isinstance(v, Tensor) else tensor(v) for name, v in values.items()}
    rows, cols = tensors["A"].shape
    return Instance("plain", "by hand", {"n": rows, "m": cols}, tensors, 5)


def judged(claim: Claim, instance: Instance) -> Judgement:
    return judge_instance(claim, instance, device=CPU)


def sample_file(folder: Path, **changed: object) -> Path:
    """Write the sample's counterexample and return its path."""
    claim = sample_claim(folder)
    path = folder / "found.yaml"
    write_counterexample(path, claim, judged(claim, sample_instance(**changed)), seed=3)
    return path


def record_of(path: Path, claim: Claim) -> Record:
    return write_counterexample(path, claim, judged(claim, sample_instance()), seed=3)
