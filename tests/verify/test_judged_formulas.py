"""Claims about models that are formulas alone, their training included; the formulas are the only source."""

from __future__ import annotations

from dataclasses import replace

import pytest
from declarations import BIASED

from ntk_deq.claims.claim import Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.language import declaration as registry
from ntk_deq.language.declaration import IMPLICIT_RELU, LINEAR_IMPLICIT
from ntk_deq.verify.results import Evidence
from ntk_deq.verify.runner import Options, judge

FILE = """
suite: t
settings:
  biased:
    model: biased
    sizes: {{N: 2, d: 2, m: 3}}
    init:
      {{A: "normal(0, 1/36)", W: "normal(0, 1/2)", c: "normal(0, 1/4)", u: "normal(0, 1/3)",
       X: orthonormal_rows, y: rademacher}}
  any:
    model: biased
    sizes: {{N: 2, d: 2, m: 2}}
  linear:
    model: linear-implicit-formula
    sizes: {{N: 2, d: 2, m: 3}}
    init: {{W: "normal(0, 1/100)", U: "normal(0, 1/2)", b: "normal(0, 1/3)", X: orthonormal_rows, y: rademacher}}
  relu:
    model: implicit-relu-formula
    sizes: {{N: 2, d: 3, m: 6}}
    domain: {{gamma: "[1/4, 1/4]"}}
    init: {{W: "normal(0, 1)", A: "normal(0, 1/36)", b: "normal(0, 1/6)", X: orthonormal_rows, y: rademacher}}
claims:
  - id: T
    setting: {setting}
    instances: {instances}
    assume: {assume}
    {run}
    conclude: "{conclude}"
"""
DESCENT = "run: {method: gradient-descent, step: 1/50, steps: 60, until: 0.7}"
FLOW = "run: {method: gradient-flow, until: 0.7}"


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    written = [replace(s, name=f"{s.name}-formula", implementation="") for s in (IMPLICIT_RELU, LINEAR_IMPLICIT)]
    for signature in (BIASED, *written):
        monkeypatch.setitem(registry._REGISTRY, signature.name, signature)


def judged(tmp_path, setting, conclude, run="", assume="{}", written=False, instances=1):
    text = FILE.format(setting=setting, conclude=conclude, run=run, assume=assume, instances=instances)
    path = tmp_path / "claims.yaml"
    path.write_text(text.replace("-formula", "") if written else text)
    (claim,) = load_suite(str(path)).claims
    assert hasattr(claim, "run"), claim
    return judge(claim, Options(search=40))


@pytest.mark.parametrize(
    ("run", "index", "evidence"), [(DESCENT, "k", Evidence.CERTIFIED), (FLOW, "t", Evidence.NUMERIC)]
)
def test_training_of_a_new_model_is_judged(tmp_path, run, index, evidence):
    result = judged(tmp_path, "biased", f"L[{index}] <= L[0] for all {index}", run)
    assert (result.verdict, result.evidence) == (Verdict.HOLDS, evidence), result.reason
    assert bool(result.estimated) is (evidence is Evidence.NUMERIC)


def test_what_is_false_of_its_descent_is_refuted(tmp_path):
    result = judged(tmp_path, "biased", "L[k] <= exp(-1000*k)*L[0] for all k", DESCENT)
    assert (result.verdict, result.evidence) == (Verdict.REFUTED, Evidence.CERTIFIED), result.reason


def test_what_is_false_of_its_flow_at_once_is_refuted_by_the_gradient_at_the_start(tmp_path):
    result = judged(tmp_path, "biased", "L[t] <= exp(-1000*t)*L[0] for all t", FLOW)
    assert (result.verdict, result.evidence) == (Verdict.REFUTED, Evidence.CERTIFIED), result.reason


STATIC = {
    "the bound": ("fro(Z) <= (fro(X*W) + sqrt(N)*norm(c))/(1 - norm(A))", "norm(A) < 1", Verdict.HOLDS),
    "without the bias": ("fro(Z) <= fro(X*W)/(1 - norm(A))", "norm(A) < 1", Verdict.REFUTED),
}


@pytest.mark.parametrize("name", STATIC)
def test_claims_on_the_equilibrium_of_a_new_model(tmp_path, name):
    conclude, assume, verdict = STATIC[name]
    result = judged(tmp_path, "any", conclude, assume=f'"{assume}"', instances=20)
    assert (result.verdict, result.evidence) == (verdict, Evidence.CERTIFIED), result.reason


@pytest.mark.parametrize("setting", ["relu", "linear"])
def test_certified_quantities_are_those_of_the_written_models(tmp_path, setting):
    conclude = "lambda_min(jac(yhat, b)*jac(yhat, b)') <= fro(Z)^2 and L <= fro(yhat)^2 + fro(y)^2"
    ours, theirs = (judged(tmp_path, setting, conclude, written=written) for written in (False, True))
    assert ours.verdict is theirs.verdict is Verdict.HOLDS
    assert ours.evidence is theirs.evidence is Evidence.CERTIFIED
    assert [c.margins for c in ours.conclusions] == [c.margins for c in theirs.conclusions]


@pytest.mark.parametrize("setting", ["relu", "linear"])
def test_descent_of_a_formula_that_is_one_layer_is_proven(tmp_path, setting):
    ours, theirs = (judged(tmp_path, setting, "L[k] <= L[0] for all k", DESCENT, written=w) for w in (False, True))
    assert ours.verdict is theirs.verdict is Verdict.HOLDS
    assert ours.evidence is theirs.evidence is Evidence.CERTIFIED, ours.estimated
    assert [c.margins for c in ours.conclusions] == [c.margins for c in theirs.conclusions]
