"""No true statement is ever refuted, and no false one survives: two lists of claims on plain matrices."""

from pathlib import Path

import pytest
import torch

from ntk_deq.claims.claim import IllFormed, Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.verify import trial
from ntk_deq.verify.results import Evidence
from ntk_deq.verify.runner import Options, judge_claims

HERE = Path(__file__).parent
SEEDS = range(3)

# Matrices of a few entries: threads that wait for each other cost more than they bring.
torch.set_num_threads(1)

# Eigenvalues of a matrix without an eigenbasis are known to the root of the precision only; such an instance stays
# undecided, and which seeds bring one up is a matter of luck.
MAY_STAY_OPEN = {"T.rho", "T.rho.square", "T.real-part", "T.perron"}


@pytest.mark.parametrize("seed", SEEDS)
def test_true_statements_hold(seed):
    claims = load_suite(HERE / "true.yaml").claims
    assert len(claims) >= 80
    for result in judge_claims(
        claims, Options(seed=seed, instances=20, search=40 * (seed == 0), boxes=100 * (seed == 0))
    ):
        may_stay_open = result.id in MAY_STAY_OPEN and result.verdict is Verdict.UNDECIDED
        assert result.as_expected or may_stay_open, (result.id, result.verdict, result.reason)
        assert result.met >= 4 or result.verdict is Verdict.PROVED, result.id
        assert sum(conclusion.false for conclusion in result.conclusions) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_false_statements_are_refuted(seed, monkeypatch):
    # The plainest counterexample is not the point here, and looking for it takes most of the time.
    monkeypatch.setattr(trial, "AFTER_REFUTATION", 2)
    monkeypatch.setattr(trial, "plainest_counterexample", lambda claim, judgements, **options: judgements[0])
    claims = load_suite(HERE / "false.yaml").claims
    assert len(claims) >= 80
    for result in judge_claims(claims, Options(seed=seed, instances=60, boxes=0)):
        assert result.verdict is Verdict.REFUTED, (result.id, result.reason)
        assert result.evidence is Evidence.CERTIFIED, result.id
        assert result.counterexample.margin.hi <= 0


def test_every_function_of_plain_matrices_occurs():
    """A function that the lists forget is not tried end to end."""
    from ntk_deq.claims.functions import FUNCTIONS
    from ntk_deq.claims.tree import Kind

    used = set()
    for name in ("true.yaml", "false.yaml"):
        for claim in load_suite(HERE / name).claims:
            assert not isinstance(claim, IllFormed), claim.problems
            for formula in (*claim.let.values(), *claim.assume.values(), *claim.conclude.values()):
                used |= {node.name for node in formula.expr.walk() if node.kind is Kind.CALL}
    assert used == set(FUNCTIONS) - {"fixed_point", "next"}
