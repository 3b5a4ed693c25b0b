"""Every scalar fact of the suite is proved; every planted mistake is refuted by an instance that the judge confirms."""

from fractions import Fraction

import pytest
import torch

from ntk_deq.claims.claim import Claim, Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.evaluation.quantity import Truth
from ntk_deq.falsify.domains import within
from ntk_deq.verify.judge import Standing, judge_instance
from ntk_deq.verify.prover import prove_claim
from ntk_deq.verify.results import Evidence

SUITES = ("scalar_facts", "admm_scalar", "implicit_relu_scalar")
BUDGET = 600
SLOW = {"R.T4.4b.scalar.chain.mutant-step"}  # 500 boxes of ten variables: 5 to 10 s; run by the suite itself


def _claims(folder: str) -> list[Claim]:
    found = [claim for name in SUITES for claim in load_suite(f"{folder}/{name}.yaml").claims]
    assert all(isinstance(claim, Claim) for claim in found)
    return [claim for claim in found if isinstance(claim, Claim) and claim.id not in SLOW]


FACTS, MUTANTS = _claims("checks"), _claims("checks/mutants")


def test_there_are_enough_of_them() -> None:
    assert len(FACTS) >= 30
    assert len(MUTANTS) >= 30
    assert {claim.mutates for claim in MUTANTS} <= {claim.id for claim in FACTS}


@pytest.mark.parametrize("claim", FACTS, ids=lambda claim: claim.id)
def test_fact_is_proved(claim: Claim) -> None:
    proof = prove_claim(claim, budget=BUDGET)
    assert proof is not None
    assert proof.verdict is Verdict.PROVED, proof.reason
    assert proof.evidence is (Evidence.CERTIFIED if proof.boxes else Evidence.SYMBOLIC)
    assert proof.counterexample is None
    assert proof.reason.startswith("proved")


@pytest.mark.parametrize("claim", MUTANTS, ids=lambda claim: claim.id)
def test_mutant_is_refuted_by_an_exact_point(claim: Claim) -> None:
    proof = prove_claim(claim, budget=BUDGET)
    assert proof is not None
    assert proof.verdict is Verdict.REFUTED, proof.reason
    assert proof.counterexample is not None
    instance = proof.counterexample.instance
    setting = next(s for s in claim.settings if s.name == instance.setting)
    for name, free in {**setting.free, **claim.given}.items():
        assert within(free.domain, Fraction(instance.values[name].item())), name
    judgement = judge_instance(claim, instance, device=torch.device("cpu"))
    assert judgement.standing is Standing.MET
    assert any(outcome.truth is Truth.FALSE for outcome in judgement.conclusions.values())
