"""Findings about claims that hold: which hypotheses matter, which bounds have room; never a failure."""

import json

import pytest
from mutation_harness import HEAD, claim

from ntk_deq.claims.load import load_suite
from ntk_deq.cli.main import main
from ntk_deq.verify.findings import bounds, constant_findings, findings, hypothesis_findings
from ntk_deq.verify.results import FindingKind
from ntk_deq.verify.runner import Options, judge

FEW = Options(instances=25, search=60)


def hypotheses(folder, body):
    return {f.detail["hypothesis"]: f.detail["matters"] for f in hypothesis_findings(claim(folder, body), FEW, judge)}


def test_hypotheses_that_matter_and_that_do_not(tmp_path):
    body = "setting: matrices, assume: {a: norm(A) <= c, b: norm(B) <= 1}, conclude: 'norm(A*v) <= c*norm(v)'"
    assert hypotheses(tmp_path, body) == {"a": True, "b": False}
    body = "setting: scalars, assume: {a: x < y, b: x <= y}, conclude: 'x <= y'"
    assert hypotheses(tmp_path, body) == {"a": False, "b": False}  # either implies the claim
    body = "setting: scalars, assume: {a: x < y, b: p < q}, conclude: '(x - y)/(q - p) < 0'"
    assert hypotheses(tmp_path, body) == {"a": True, "b": True}


def test_a_hypothesis_whose_part_stays_open(tmp_path):
    body = "setting: net, assume: {w: gamma*norm(A) < 1}, conclude: 'fro(Z) >= 0'"
    (finding,) = hypothesis_findings(claim(tmp_path, body), FEW, judge)
    assert finding.detail["matters"] is None
    assert "is open" in finding.text


def room(folder, conclusion, given="", setting="matrices"):
    body = f'setting: {setting}, {given} conclude: "{conclusion}"'
    return [
        (f.detail["factor"], f.detail["constant_could_be"]) for f in constant_findings(claim(folder, body), FEW, judge)
    ]


@pytest.mark.parametrize(
    ("conclusion", "factor", "constant"),
    [
        ("norm(v) <= 6*fro(v)", 6, 1),
        ("fro(A) >= norm(A)/8", 8, None),  # the 8 divides
        ("fro(A) >= 0.125*norm(A)", 8, 1),
    ],
)
def test_bounds_with_room(tmp_path, conclusion, factor, constant):
    ((found, could_be),) = room(tmp_path, conclusion)
    # The ladder holds matrices of rank one.
    assert found == pytest.approx(factor)
    assert could_be is None if constant is None else could_be == pytest.approx(constant)


def test_the_search_corrects_a_factor_that_the_ladder_leaves_too_large(tmp_path):
    # The right side is 7 times the left one and a little more for long vectors only.
    ((found, _),) = room(tmp_path, "norm(v) < 100 + 7*norm(v)")
    assert found < 7.5


@pytest.mark.parametrize(
    "conclusion",
    [
        "norm(A) <= fro(A)",  # tight
        "norm(A) >= 0",  # nothing to scale
        "A + B == B + A",
        "-norm(A) <= fro(B)",  # one side is never positive
        "sigma_min(A) <= fro(A) + 0*c and A*B == A*B",
    ],
)
def test_no_finding_where_a_ratio_says_nothing_or_is_one(tmp_path, conclusion):
    assert room(tmp_path, conclusion) == []


def test_a_chain_gives_a_bound_a_link_and_steps_are_all_counted(tmp_path):
    body = "setting: net, run: {method: fixed-point, steps: 3}, assume: {w: 'gamma*norm(A) < 1/2'}, "
    body += "conclude: {c: 'fro(Z[l]) <= 4*fro(Phi) for all l', d: '0 <= fro(Z[1]) <= 1000*fro(Phi) == 1000*fro(Phi)'}"
    original = claim(tmp_path, body)
    assert [b.text for b in bounds(original)] == [
        "fro(Z[l]) <= 4*fro(Phi)",
        "0 <= fro(Z[1])",
        "fro(Z[1]) <= 1000*fro(Phi)",
    ]
    first, second = constant_findings(original, FEW, judge)
    assert 1.5 < first.detail["factor"] < 4  # |Z[1]| = |Phi|, and |Z[3]| < 2 |Phi|
    assert second.detail["factor"] == pytest.approx(1000)


FAMILY = """suite: families
settings:
  chain:
    sizes: {L: 1..2, n: "1..2 for l in 0..L"}
    domain: {X: "real[n[0]]", W: "real[n[l], n[l-1]] for l in 1..L", c: positive}
  functions: {sizes: {n: 1..2}, domain: {x: "real[n]", a: positive, f: "convex[n]"}}
claims:
  - {id: C, setting: SETTING, BODY}
"""


def family(folder, setting, body):
    path = folder / "family.yaml"
    path.write_text(FAMILY.replace("SETTING", setting).replace("BODY", body))
    return load_suite(path).claims[0]


def test_with_families_a_bound_has_the_room_that_every_member_at_every_depth_leaves(tmp_path):
    body = (
        "let: {'z[0]': X, 'z[l] for l in 1..L': 'W[l]*z[l-1]'}, "
        "assume: {small: 'norm(W[l]) <= c for all l in 1..L', needless: 'L <= 5'}, "
        "conclude: {out: 'norm(z[L]) <= 3*c^L*norm(X)', all: 'norm(z[l]) <= 6*c*norm(z[l-1]) for all l in 1..L', "
        "tight: 'norm(z[l]) <= norm(W[l])*norm(z[l-1]) for all l in 1..L'}"
    )
    found = findings(c := family(tmp_path, "chain", body), FEW, judge(c, FEW), judge)
    matters = {f.detail["hypothesis"]: f.detail["matters"] for f in found if f.kind is FindingKind.HYPOTHESIS}
    assert matters == {"small": True, "needless": False}
    room = {f.detail["conclusion"]: f.detail["constant_could_be"] for f in found if f.kind is FindingKind.CONSTANT}
    assert room == {"out": pytest.approx(1), "all": pytest.approx(1)}


def test_a_hypothesis_of_a_claim_about_a_set_of_functions(tmp_path):
    body = "assume: {a: a >= 1, b: norm(x) <= 1}, conclude: 'f(a*x) + f(-a*x) >= 2*f(0*x) - norm(x)*max(1 - a, 0)'"
    found = findings(c := family(tmp_path, "functions", body), FEW, judge(c, FEW), judge)
    assert [(f.detail["hypothesis"], f.detail["matters"]) for f in found] == [("a", False), ("b", False)]
    body = "assume: {a: a <= 1}, conclude: 'f(a*x) - f(0*x) <= a*(f(x) - f(0*x))'"
    (found,) = findings(c := family(tmp_path, "functions", body), FEW, judge(c, FEW), judge)
    assert found.detail["matters"] is True


def test_a_claim_that_does_not_hold_has_no_findings(tmp_path):
    false = claim(tmp_path, "setting: matrices, assume: {a: c < 1}, conclude: 'fro(A) <= 8*norm(A)/9'")
    result = judge(false, FEW)
    assert result.verdict == "refuted"
    assert findings(false, FEW, result, judge) == ()
    assert judge(false, Options(instances=25, search=0, findings=True)).findings == ()


def test_findings_reach_every_report_and_fail_nothing(tmp_path, capsys):
    path = tmp_path / "suite.yaml"
    entry = "id: C, setting: matrices, assume: {idle: c < 1}, conclude: 'norm(A) <= 8*fro(A)'"
    path.write_text(HEAD + f"  - {{{entry}}}\n", encoding="utf-8")
    code = main([str(path), "--findings", "--instances", "20", "--search", "40", "--out", str(tmp_path / "out")])
    shown = " ".join(capsys.readouterr().out.split())
    assert code == 0
    (result,) = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    kinds = [finding["kind"] for finding in result["findings"]]
    assert kinds == [FindingKind.HYPOTHESIS, FindingKind.CONSTANT]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "<h2>Findings</h2>" in page
    for words in ("never mattered", "its constant 8 could be 1"):
        assert words in shown
        assert words in page


def test_no_findings_unless_asked_for(tmp_path):
    assert judge(claim(tmp_path, "setting: matrices, conclude: 'norm(A) <= 8*fro(A)'"), FEW).findings == ()
