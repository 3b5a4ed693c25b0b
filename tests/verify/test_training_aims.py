"""Constants chosen for other aims than the claim's own: which there are, whether they are met, what the result says."""

from __future__ import annotations

import pytest
import torch
from training_harness import looked_at

from ntk_deq.claims.load import load_suite
from ntk_deq.falsify import instance_at
from ntk_deq.report import starts_words
from ntk_deq.report.jsonl import result_to_dict
from ntk_deq.report.runs import starts_view
from ntk_deq.verify.results import Verdict
from ntk_deq.verify.runner import Options, judge
from ntk_deq.verify.training.choose import aims_of, choose_constants, shared_out

FILE = """
suite: t
settings:
  s:
    model: implicit-relu
    sizes: {{N: 2, d: 3, m: 12}}
    domain: {{gamma: "(0, 1)"}}
    init: {{X: orthonormal_rows, y: rademacher, W: "beta*normal(0, 1/m)", A: "half_normal(1/m^2)", b: zeros}}
claims:
  - id: T
    title: t
    setting: s
    instances: 1
    given: {{C: positive, beta: positive}}
    choose: {{minimize: beta + 1/C{aims}}}
    let:
      room: norm(A[0]) + C
      gamma0: gamma*room
      alpha: sigma_min(Z[0])
    assume:
      well-posed: gamma0 < 1
      wide: alpha^2 >= 64*room
    run: {{method: gradient-flow, until: 0.1}}
    conclude: "L[t] <= exp(-{factor}*alpha^2*t)*L[0] for all t"
"""


def loaded(tmp_path, factor="1/2", aims=""):
    path = tmp_path / "claims.yaml"
    path.write_text(FILE.format(factor=factor, aims=aims))
    (claim,) = load_suite(str(path)).claims
    assert hasattr(claim, "run"), claim
    return looked_at(claim)


@pytest.fixture
def chosen(tmp_path):
    claim = loaded(tmp_path)
    setting = claim.settings[0]
    instance = instance_at(setting, claim.given, 0, 0)
    return claim, setting, choose_constants(claim, setting, instance, seed=0)


def test_the_aims_of_a_claim(tmp_path):
    claim = loaded(tmp_path)
    assert [aim.words for aim in aims_of(claim, claim.settings[0])] == [
        "well-posed at 0.1 of its limit",
        "well-posed at 0.5 of its limit",
        "well-posed at 0.9 of its limit",
        "wide tight",
        "largest rate",
        "largest gamma",
        "smallest beta",
    ]


def test_they_are_met(chosen):
    claim, setting, first = chosen
    found = {}
    for _, aim, number in shared_out(claim, {"s": first}):
        instance = instance_at(setting, claim.given, 1 + number, 0)
        there = choose_constants(claim, setting, instance, seed=0, aim=aim, near=first)
        assert f"chosen for {aim.words}" in there.family
        found[aim.words] = there
    room = {
        words: float(i.values["gamma"] * (torch.linalg.matrix_norm(i.values["A"], 2) + i.values["C"]))
        for words, i in found.items()
    }
    for at in (0.1, 0.5, 0.9):
        assert room[f"well-posed at {at:g} of its limit"] == pytest.approx(at, rel=0.05)
    assert float(found["largest gamma"].values["gamma"]) > 0.5
    assert float(found["smallest beta"].values["beta"]) < 100


@pytest.mark.long
def test_the_result_says_how_far_from_degenerate(tmp_path):
    result = judge(loaded(tmp_path), Options(search=1))
    assert result.verdict is Verdict.HOLDS, result.reason
    own, *others = result.starts
    assert (own.aim, own.brief) == ("", False)
    assert all(start.aim and start.brief for start in others)
    assert len({start.aim for start in others}) == 7
    assert max(start.contraction for start in others) > 0.1
    tight = [s for s in others if s.aim == "wide tight"]
    assert min(c.factor for s in tight for c in s.conditions if c.name == "wide") < 1.05
    assert 0 < own.defined["gamma0"] < 1
    assert "gamma" in own.constants
    assert "7 further aims" in starts_words(result.starts)
    view = starts_view(result.starts)
    assert len(view["rows"]) == len(result.starts)
    assert {"contraction", "wide met by", "gamma0"} <= set(view["columns"])
    stored = result_to_dict(result)["starts"]
    assert [start["aim"] for start in stored] == [start.aim for start in result.starts]


@pytest.mark.parametrize(("aims", "options"), [(", aims: false", Options(search=1)), ("", Options(search=0))])
def test_they_can_be_left_out(tmp_path, aims, options):
    result = judge(loaded(tmp_path, aims=aims), options)
    assert [start.aim for start in result.starts] == [""]
    assert starts_words(result.starts) is None


def test_what_only_another_corner_breaks(tmp_path):
    """Twice the rate of the kernel is broken at once; the first choice shows it as well as any other."""
    assert judge(loaded(tmp_path, factor="40"), Options(search=1)).verdict is Verdict.REFUTED
