"""The search on real claims: what is false is refuted for certain, what is true is not; from a single start."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from search_harness import by_id

from ntk_deq.claims.claim import Claim, Verdict
from ntk_deq.evaluation.environment import DeadlineError
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Truth
from ntk_deq.falsify import instance_at
from ntk_deq.language.declaration import Setting
from ntk_deq.verify.counterexamples import Attack, find_counterexamples, find_satisfying
from ntk_deq.verify.judge import Standing, judge_instance, refutes
from ntk_deq.verify.runner import Options, judge

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
CPU = torch.device("cpu")


def claims(*files: str, false: bool) -> list[Claim]:
    found = [claim for file in files for claim in by_id(ROOT / file).values()]
    return [claim for claim in found if (claim.expect is Verdict.REFUTED) is false]


def single_start(claim: Claim, setting: Setting) -> list[Instance]:
    """The first instance of the ladder that meets the hypotheses and breaks nothing."""
    for index in range(40):
        case = instance_at(setting, claim.given, index, 0)
        judged = judge_instance(claim, case, device=CPU)
        if judged.standing is Standing.MET and not refutes(judged):
            return [case]
    return []


def attack(claim: Claim, *, seed: int = 0, budget: int | None = None) -> Attack:
    setting = claim.settings[0]
    return find_counterexamples(claim, setting, single_start(claim, setting), seed=seed, budget=budget)


FALSE = claims(
    "checks/implicit_relu.yaml",
    "checks/mutants/implicit_relu.yaml",
    "checks/mutants/linear_implicit.yaml",
    "checks/mutants/matrix_facts.yaml",
    "tests/suite/false.yaml",
    false=True,
)
# Every third of the long list; the suite's own tests go through all of it.
TRUE = claims("checks/implicit_relu.yaml", "checks/linear_implicit.yaml", false=False)
TRUE += claims("tests/suite/true.yaml", false=False)[::3]
HARD = list(by_id(HERE / "hard.yaml").values())


@pytest.mark.parametrize("claim", FALSE, ids=lambda claim: claim.id)
def test_what_is_false_is_refuted_at_small_sizes(claim: Claim) -> None:
    found = attack(claim)
    assert found.counterexamples
    case = found.counterexamples[0]
    assert case.standing is Standing.MET
    assert any(outcome.truth is Truth.FALSE for outcome in case.conclusions.values())
    assert max(case.instance.sizes.values(), default=0) <= 4  # it is shrunk later
    assert found.evaluations < 30_000


@pytest.mark.parametrize("claim", TRUE, ids=lambda claim: claim.id)
def test_what_is_true_is_not_refuted(claim: Claim) -> None:
    found = attack(claim, budget=20)
    assert found.counterexamples == ()
    assert found.others


@pytest.mark.parametrize("claim", HARD, ids=lambda claim: claim.id)
def test_what_is_hard_to_refute_is_refuted_and_what_is_true_beside_it_is_not(claim: Claim) -> None:
    found = attack(claim, seed=1, budget=None if claim.expect is Verdict.REFUTED else 1000)
    assert bool(found.counterexamples) is (claim.expect is Verdict.REFUTED)


def test_the_same_seed_gives_the_same_counterexample() -> None:
    claim = by_id(HERE / "hard.yaml")["F.lens"]
    first, second = attack(claim, seed=5), attack(claim, seed=5)
    assert first.evaluations == second.evaluations
    assert [{k: v.tolist() for k, v in j.instance.values.items()} for j in first.counterexamples] == [
        {k: v.tolist() for k, v in j.instance.values.items()} for j in second.counterexamples
    ]


def test_drawn_data_are_searched_within_what_the_claim_quantifies() -> None:
    claim = by_id(ROOT / "checks/implicit_relu.yaml")["R.L3.2"]
    setting = claim.settings[1]
    start = instance_at(setting, claim.given, 0, 0)
    found = find_counterexamples(claim, setting, [start], seed=0, budget=60)
    assert found.evaluations >= 60
    for judged in found.others:
        assert all(torch.equal(judged.instance.values[name], start.values[name]) for name in ("X", "W", "A", "b"))


@pytest.mark.parametrize(
    ("given", "conclude", "verdict"),
    [
        ("positive", "norm(W) <= 1000", "refuted"),
        ("nonnegative", "norm(W) > 0", "refuted"),
        ("positive", "W == W", "holds"),
    ],
)
def test_a_scalar_that_scales_a_draw_is_led_far_out(tmp_path: Path, given: str, conclude: str, verdict: str) -> None:
    suite = """
suite: scaled
settings:
  s: {sizes: {n: 2}, init: {W: "beta*normal(0, 1/n)[n, n]"}}
"""
    file = tmp_path / "scaled.yaml"
    file.write_text(f'{suite}claims:\n  - {{id: C, setting: s, given: {{beta: {given}}}, conclude: "{conclude}"}}\n')
    assert str(judge(by_id(file)["C"], Options(instances=10)).verdict) == verdict


def test_hypotheses_are_satisfied_for_certain(tmp_path: Path) -> None:
    suite = """
suite: vacuous
settings:
  s: {sizes: {n: 3..3}, domain: {A: "real[n, n]"}}
claims:
  - {id: possible, setting: s, assume: {a: norm(A) <= 1, b: fro(A) >= 1.73, c: sum(A) <= -2.9}, conclude: A == A}
  - {id: impossible, setting: s, assume: {a: norm(A) <= 1, b: fro(A) >= 1.74}, conclude: A == A}
"""
    file = tmp_path / "vacuous.yaml"
    file.write_text(suite)
    possible, impossible = (by_id(file)[name] for name in ("possible", "impossible"))
    found = find_satisfying(possible, possible.settings[0], [], seed=0)
    assert found.confirmed
    assert judge_instance(possible, found.candidates[0], device=CPU).standing is Standing.MET
    lacking = find_satisfying(impossible, impossible.settings[0], [], seed=0, budget=1500)
    assert not lacking.confirmed
    assert lacking.nearest is not None
    # sqrt(3) is the most there is: the two margins lack about half of the difference each.
    assert -0.01 < lacking.best.feasible < 0


def test_a_single_precision_search_reports_in_the_same_way() -> None:
    claim = by_id(ROOT / "checks/mutants/implicit_relu.yaml")["R.L3.1.mutant-half"]
    found = find_counterexamples(claim, claim.settings[0], [], seed=0, dtype=torch.float32)
    assert found.counterexamples
    assert all(value.dtype is torch.float64 for value in found.counterexamples[0].instance.values.values())


def test_a_deadline_that_has_passed_ends_the_search() -> None:
    claim = by_id(ROOT / "checks/implicit_relu.yaml")["R.L3.2.repaired"]
    with pytest.raises(DeadlineError):
        find_counterexamples(claim, claim.settings[0], [], seed=0, deadline=time.thread_time() - 1)


def test_a_vacuous_claim_says_what_the_nearest_lacks_and_how_far_was_searched(tmp_path: Path) -> None:
    file = tmp_path / "vacuous.yaml"
    file.write_text("""
suite: vacuous
settings:
  s: {sizes: {n: 1..2}, domain: {P: "psd[n, n]"}}
claims:
  - {id: negative, setting: s, assume: trace(P) < 0, conclude: P == P}
""")
    claim = by_id(file)["negative"]
    plain = judge(claim, Options(instances=12, search=0))
    searched = judge(claim, Options(instances=12, search=200, satisfy=True))
    assert plain.verdict is searched.verdict is Verdict.VACUOUS
    assert plain.reason.endswith("failed on 12 of 12 instances; the nearest has equality")
    assert searched.reason == f"{plain.reason}; a search among {searched.searched} more found none"
