"""Claims whose hypotheses are equations: the false ones are refuted, the true ones hold on many instances."""

from pathlib import Path

import pytest
import torch
from seeds import seeds

from ntk_deq.claims.claim import Claim, Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.verify.counterexamples import find_counterexamples
from ntk_deq.verify.runner import Options, judge

torch.set_num_threads(1)

CLAIMS = {claim.id: claim for claim in load_suite(Path(__file__).parent / "equations.yaml").claims}
TRUE = [name for name in CLAIMS if name.endswith(".true")]
FALSE = [name for name in CLAIMS if name.endswith(".false")]
FEW_MEET = {"inverses.true": 4, "gain.true": 6, "lyapunov.true": 4, "projection.true": 5, "slope.true": 8}
"""Of 40 instances so many meet the hypotheses where another one than the equation is seldom met, or none solves it."""


def claim_of(folder: Path, domain: str, assume: str, conclude: str, let: str = "{}") -> Claim:
    text = (
        f"suite: one\nsettings:\n  s: {{sizes: {{n: 1..3}}, domain: {domain}}}\n"
        f'claims:\n  - {{id: one, setting: s, let: {let}, assume: {assume}, conclude: "{conclude}"}}\n'
    )
    path = folder / "one.yaml"
    path.write_text(text, encoding="utf-8")
    return next(iter(load_suite(path).claims))


@pytest.mark.parametrize("instances", [12, pytest.param(40, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", TRUE)
def test_a_true_claim_holds_on_many_instances(name, instances):
    result = judge(CLAIMS[name], Options(instances=instances, search=instances // 2))
    assert result.verdict in (Verdict.HOLDS, Verdict.PROVED)
    assert result.met >= max(1, FEW_MEET.get(name, 20) * instances // 40)


@pytest.mark.parametrize("name", FALSE)
def test_a_false_claim_is_refuted(name):
    result = judge(CLAIMS[name], Options(instances=60, shrink=False))
    assert result.verdict is Verdict.REFUTED
    assert result.evidence == "certified"


@pytest.mark.parametrize("seed", seeds(4, start=1))
def test_the_bound_of_a_layer_is_refuted_at_every_seed(seed):
    assert judge(CLAIMS["layer.false"], Options(seed=seed, shrink=False)).verdict is Verdict.REFUTED


@pytest.mark.parametrize("name", ["layer.false", "root.false", "ones.false", "affine.false"])
def test_the_search_alone_finds_it(name):
    claim = CLAIMS[name]
    assert find_counterexamples(claim, claim.settings[0], [], seed=0, budget=1500).counterexamples


@pytest.mark.parametrize(
    ("domain", "assume", "let"),
    [
        # A residual below every rounding is no solution.
        ("{x: real}", '"x^2 == -1/1000000000000000000000000000000"', "{}"),
        ("{x: real}", '"x^2 + 1/10^30 == 0"', "{}"),
        ("{x: real}", '"abs(x) == -1/10^300"', "{}"),
        # There is a solution, and it lies outside the domain or at an end that does not belong to it.
        ('{x: "(0, 1)"}', '"x == 1"', "{}"),
        ('{x: "(0, 1)"}', '"3*x == 3"', "{}"),
        ("{x: positive}", '"x == relu(x - 1)"', "{}"),
        ("{x: positive}", '"x == -1/3"', "{}"),
        ('{x: "integer 1..9"}', '"3*x == 1"', "{}"),
        ('{P: "psd[n, n]"}', '"P == -I(n)/3"', "{}"),
        ('{P: "psd[n, n]"}', '"3*P + P == -I(n)"', "{}"),
        ('{S: "skew[n, n]"}', '"3*S == I(n)"', "{}"),
        # A variable that is computed lies outside its domain; the system that rests on it is not solved then.
        ('{x: real, y: "(0, 1)"}', '{a: "y == x + 2", b: "3*x == y"}', "{}"),
        # No solution at all.
        ("{x: real}", '{a: "3*x == 1", b: "3*x == 2"}', "{}"),
    ],
)
def test_what_has_no_solution_is_met_nowhere(tmp_path, domain, assume, let):
    name = domain[1]
    claim = claim_of(tmp_path, domain, assume, f"norm({name}) < 0", let)
    result = judge(claim, Options(instances=12, search=40, boxes=0))
    assert result.met == 0
    assert result.verdict in (Verdict.VACUOUS, Verdict.UNDECIDED)


def test_a_claim_about_no_other_variable_than_computed_ones(tmp_path):
    claim = claim_of(tmp_path, "{x: real}", '"3*x == 1"', "3*x <= 1")
    result = judge(claim, Options(instances=10, search=100, boxes=0))
    assert result.verdict is not Verdict.REFUTED
    assert result.met == result.instances
