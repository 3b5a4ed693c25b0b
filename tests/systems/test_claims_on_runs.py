"""Claims on training runs of declared systems: blocks that are tied or behind others, no samples, other losses."""

from __future__ import annotations

import pytest

import ntk_deq as nd
from ntk_deq.verify.runner import Options, judge

FILE = """
suite: declared
systems:
  monotone:
    variables:
      A: {shape: "[m, m]", role: parameter}
      B: {shape: "[m, m]", role: parameter}
      U: {shape: "[m, d]", role: parameter}
      u: {shape: "[m]", role: parameter}
      X: {shape: "[d, N]", role: input}
      y: {shape: "[N]", role: target}
    equilibrium: {Z: "relu(W*Z + U*X)"}
    monotone: 1/2
    define: {W: "I(m)/2 - A'*A + B - B'", yhat: "Z'*u", L: "norm(yhat - y)^2/2"}
  opt-eq:
    variables:
      W: {shape: "[n, m]", role: parameter}
      U: {shape: "[n, d]", role: parameter}
      b: {shape: "[n]", role: parameter}
      v: {shape: "[m]", role: parameter}
      X: {shape: "[d, N]", role: input}
      y: {shape: "[N]", role: target}
    equilibrium: {Z: "W'*relu(W*Z + U*X + b*ones(1, N))"}
    define: {yhat: "Z'*v", L: "norm(yhat - y)^2/2"}
  quadratic:
    variables:
      x: {shape: "[n]", role: parameter}
      Q: {shape: "[n, n]", role: hyperparameter, domain: psd}
      c: {shape: "[n]", role: hyperparameter}
    define: {L: "x'*Q*x/2 - c'*x"}
  forward:
    variables:
      W: {shape: "[m, d]", role: parameter}
      s: {role: parameter}
      u: {shape: "[m]", role: parameter}
      X: {shape: "[N, d]", role: input}
      y: {shape: "[N]", role: target}
    define: {yhat: "s*relu(X*W')*u", L: "norm(yhat - y)^2/2 + fro(W)^2/20"}
settings:
  monotone:
    model: monotone
    sizes: {N: 3, d: 2, m: 3}
    data: {X: "normal(0, 1)", y: rademacher}
    init: {A: "normal(0, 1/20)", B: "normal(0, 1/20)", U: "normal(0, 1)", u: "normal(0, 1)"}
  opt-eq:
    model: opt-eq
    sizes: {N: 3, d: 2, m: 3, n: 4}
    data: {X: "normal(0, 1)", y: rademacher}
    init: {W: "normal(0, 1/40)", U: "normal(0, 1)", b: zeros, v: "normal(0, 1)"}
  quadratic:
    model: quadratic
    sizes: {n: 1..3}
    domain: {x: real, Q: psd, c: real}
  forward:
    model: forward
    sizes: {N: 4, d: 2, m: 3}
    data: {X: "normal(0, 1)", y: rademacher}
    init: {W: "normal(0, 1)", s: "ones", u: "normal(0, 1)"}
claims:
"""
RUNS = {"monotone": "1/1000", "opt-eq": "1/100", "forward": "1/100"}


def claims():
    for name, step in RUNS.items():
        for verdict, sign in (("holds", "<="), ("refuted", ">=")):
            yield f"""
  - id: {name}.{verdict}
    title: the loss along a run
    setting: {name}
    run: {{method: gradient-descent, step: {step}, steps: 5, beyond: false}}
    conclude: L[k+1] {sign} L[k] for all k
"""
    for verdict, most in (("holds", 1), ("refuted", 5)):
        yield f"""
  - id: quadratic.{verdict}
    title: steps up to a bound
    setting: quadratic
    given: {{eta: positive}}
    assume: {{small: "eta*lambda_max(Q) <= {most}"}}
    run: {{method: gradient-descent, step: eta, steps: 5, beyond: false}}
    conclude: L[k+1] <= L[k] for all k
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    path = tmp_path_factory.mktemp("claims") / "claims.yaml"
    path.write_text(FILE + "".join(claims()), encoding="utf-8")
    return {claim.id: claim for claim in nd.load_suite(path).claims}


@pytest.mark.parametrize("name", [*RUNS, "quadratic"])
@pytest.mark.parametrize("verdict", ["holds", "refuted"])
def test_runs_of_declared_systems_are_judged(suite, name, verdict):
    instances = 12 if name == "quadratic" else 2
    found = judge(suite[f"{name}.{verdict}"], Options(instances=instances, search=0))
    assert found.verdict == verdict, found.reason
    assert found.evidence == "certified"
