"""Closed ends: claims that break only where a hypothesis and a conclusion are equalities, and true ones beside them."""

import json

import pytest
import torch
from seeds import seeds

from ntk_deq.claims.claim import Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.cli.main import main
from ntk_deq.evaluation.exact import decided
from ntk_deq.evaluation.quantity import Truth
from ntk_deq.verify.boundary import OPEN, PASSING, Boundary, boundary_instances
from ntk_deq.verify.formulas import exact_names
from ntk_deq.verify.replay import read_counterexample, replay
from ntk_deq.verify.runner import Options, judge

SUITE = """
suite: closed ends
settings:
  one: {sizes: {n: 1..3}, domain: {A: "real[n, n]"}}
  vectors: {sizes: {n: 1..4}, domain: {A: "real[n, n]", x: "real[n]"}}
  pair: {sizes: {n: 1..4}, domain: {A: "real[n, n]", B: "real[n, n]"}}
  steps: {sizes: {n: 1..3}, domain: {S: "symmetric[n, n]", alpha: positive, mu: positive, Lip: positive}}
  splitting: {sizes: {n: 1..4}, domain: {W: "real[n, n]", mu: positive, alpha: positive}}
  share: {sizes: {n: 1..3}, domain: {A: "real[n, n]", q: "[0, 1]"}}
claims:
  - {id: F.closed, setting: one, assume: {h: norm(A)^2 <= 2}, conclude: norm(A) < sqrt(2)}
  - {id: F.radius, setting: one, assume: {h: rho(A) <= sqrt(3)}, conclude: rho(A)^2 < 3}
  - {id: F.golden, setting: one, assume: {h: norm(A)^2 <= norm(A) + 1}, conclude: norm(A) < (1 + sqrt(5))/2}
  - {id: F.form, setting: vectors, assume: {h: norm(A) <= 1, x: norm(x) > 0}, conclude: "dot(x, A*x) < dot(x, x)"}
  - {id: F.commutator, setting: pair, assume: {a: norm(A) <= 1, b: norm(B) <= 1}, conclude: norm(A*B - B*A) < 2}
  - {id: F.end, setting: share, assume: {h: norm(A) <= q}, conclude: sigma_min(I(n) - A) > 0}
  - id: F.step
    setting: splitting
    let: {G: I(n) - W, Lip: norm(G)}
    assume: {monotone: lambda_min(G + G') >= 2*mu, step: alpha <= 2*mu/Lip^2}
    conclude: norm(I(n) - alpha*G) < 1
  - id: F.smooth
    setting: steps
    assume: {low: lambda_min(S) >= mu, high: lambda_max(S) <= Lip, step: alpha*Lip <= 2}
    conclude: {contraction: norm(I(n) - alpha*S) < 1}
  - {id: T.radius, setting: one, assume: {h: norm(A)^2 <= 2}, conclude: rho(A) < 3/2}
  - {id: T.weak, setting: one, assume: {h: norm(A)^2 <= 2}, conclude: norm(A) <= sqrt(2)}
  - {id: T.golden, setting: one, assume: {h: norm(A)^2 <= norm(A) + 1}, conclude: norm(A) < 1.6180339888}
  - {id: T.never, setting: one, assume: {h: norm(A) <= 1, s: norm(A) < 1}, conclude: rho(A) < 1}
  - id: T.smooth
    setting: steps
    assume: {low: lambda_min(S) >= mu, high: lambda_max(S) <= Lip, step: alpha*Lip <= 1}
    conclude: {contraction: norm(I(n) - alpha*S) < 1}
  - id: T.splitting
    setting: splitting
    let: {G: I(n) - W, Lip: norm(G)}
    assume: {monotone: lambda_min(G + G') >= 2*mu, step: alpha < 2*mu/Lip^2}
    conclude: norm(I(n) - alpha*G) < 1
"""


@pytest.fixture(scope="module")
def claims(tmp_path_factory):
    path = tmp_path_factory.mktemp("closed") / "closed.yaml"
    path.write_text(SUITE, encoding="utf-8")
    return {claim.id: claim for claim in load_suite(path).claims}


NAMES = [line.split("id: ")[1].split(",")[0].strip() for line in SUITE.splitlines() if "id: " in line]


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("name", NAMES)
def test_verdicts(claims, name, seed):
    expected = Verdict.REFUTED if name.startswith("F.") else Verdict.HOLDS
    result = judge(claims[name], Options(seed=seed, instances=12, search=0, shrink=False))
    assert result.verdict is expected, result.reason
    assert result.untested == ("'conclusion' is strict, and was not tested where 'h' is an equality",) * (
        name == "T.never"
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_instance_meets_the_hypotheses_with_equality(claims, name):
    claim = claims[name]
    boundary = Boundary(claim)
    truths = []
    for instance in boundary_instances(claim, claim.settings[0], 0):
        names = exact_names(claim, instance)
        assert all(decided(formula.expr, names).truth is not Truth.FALSE for formula in claim.assume.values())
        tight = any(decided(link, names).truth is Truth.TIGHT for link in boundary.links)
        assert tight or instance.values["q"].item() in (0.0, 1.0)
        truths.append(all(decided(f.expr, names).truth is not Truth.FALSE for f in claim.conclude.values()))
    assert sum(truths) <= PASSING
    # Nothing strict in T.weak; nothing that can be an equality in T.never.
    assert bool(truths) is (name not in ("T.weak", "T.never"))
    assert (False in truths) is name.startswith("F.")


def test_they_depend_on_the_arguments_alone(claims):
    claim = claims["F.closed"]
    one, two = ([i.values for i in boundary_instances(claim, claim.settings[0], 4)] for _ in range(2))
    assert len(one) == len(two) > 0
    for a, b in zip(one, two, strict=True):
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_what_exact_arithmetic_does_not_decide_is_judged_in_balls(claims, tmp_path):
    path = tmp_path / "open.yaml"
    body = "{id: c, setting: one, assume: {h: norm(A)^2 <= 2}, conclude: exp(norm(A)) < exp(sqrt(2))}"
    path.write_text(SUITE.split("claims:")[0] + f"claims:\n  - {body}\n", encoding="utf-8")
    (claim,) = load_suite(path).claims
    assert 0 < len(list(boundary_instances(claim, claim.settings[0], 0))) <= OPEN + PASSING
    result = judge(claim, Options(instances=20, search=0))
    assert result.verdict is Verdict.UNDECIDED  # not refuted: no ball tells the two sides apart
    assert "strict inequality" in result.reason


def test_a_counterexample_shrinks_and_is_judged_again(claims, tmp_path):
    result = judge(claims["F.closed"], Options(instances=10, search=0, out=str(tmp_path)))
    record = read_counterexample(tmp_path / "counterexamples" / "F.closed.yaml")
    assert result.counterexample.family.startswith("shrunk from")
    assert record.instance.sizes == {"n": 2}  # no number has the square 2 that is a float
    again = replay(record)
    assert again.refuted
    assert again.identical


def test_strict_and_weak_are_found_behind_definitions_and_connectives(tmp_path):
    path = tmp_path / "let.yaml"
    path.write_text(
        """
suite: let
settings: {s: {domain: {x: real, y: real}}}
claims:
  - id: c
    setting: s
    let: {small: x <= 1 and y < 2, apart: x != y}
    assume: {a: small, b: x < 3 or y <= 1, c: 0 <= y < 5}
    conclude: {one: apart, two: x <= 1, three: not x >= 2, four: y <= 2 and x < 2}
""",
        encoding="utf-8",
    )
    (claim,) = load_suite(path).claims
    boundary = Boundary(claim)
    assert boundary.strict == ("one", "three", "four")
    assert boundary.weak == ("a", "c")  # a disjunction may be true by its other part
    assert [link.operators for link in boundary.links] == [("<=",), ("<=",)]
    assert boundary.names_in(claim.assume["a"].expr) >= {"small", "x", "y"}


def test_the_reports_say_what_was_not_tested(tmp_path, capsys):
    path = tmp_path / "claims.yaml"
    path.write_text(SUITE, encoding="utf-8")
    out = tmp_path / "out"
    assert main(["run", str(path), "-k", "T.never", "--out", str(out), "--no-store", "--search", "0"]) == 0
    remark = "'conclusion' is strict, and was not tested where 'h' is an equality"
    assert remark in " ".join(capsys.readouterr().out.split())
    (line,) = (out / "results.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["untested"] == [remark]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "is strict, and was not tested where" in page
