"""The suite of the papers comes out as its authors expect, and every planted mistake is found."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from ntk_deq.claims.claim import Claim, IllFormed, Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.verify.results import Evidence
from ntk_deq.verify.runner import Options, judge_claims

ROOT = Path(__file__).parent.parent.parent
CHECKS = sorted((ROOT / "checks").glob("*.yaml"))
MUTANTS = sorted((ROOT / "checks" / "mutants").glob("*.yaml"))

LONG = {"implicit_relu_training", "implicit_relu_training_steps", "monotone_deq_training"}
"""Files that take minutes to judge: `make verify` and `make mutants` do so in full."""

load = cache(load_suite)

# Matrices of a few entries: threads that wait for each other cost more than they bring.
torch.set_num_threads(1)


def judged(paths):
    return [pytest.param(path, marks=pytest.mark.long if path.stem in LONG else (), id=path.stem) for path in paths]


def few(claim, count):
    """Return a claim that asks for fewer instances, and for a quarter of its training runs or less."""
    if isinstance(claim, IllFormed) or claim.instances is None:
        return claim
    variants = tuple(few(variant, count) for variant in claim.variants)
    return replace(claim, instances=min(count, -(-claim.instances // 4)), variants=variants)


def boxes(claim):
    """Return what its proof may look at: nothing where instances alone tell what is expected."""
    return 1000 if claim.expect is Verdict.PROVED or (isinstance(claim, Claim) and claim.sought) else 0


def shortly(claim):
    """Judge a claim on 6 instances, or on 3 without a search where it says how many it wants; on 40 if it is false."""
    false, own = claim.expect is Verdict.REFUTED, isinstance(claim, Claim) and claim.instances is not None
    count, search = (40, 40) if false else (6, 0 if own else 3)
    options = Options(instances=count, search=search, boxes=boxes(claim), shrink=False)
    (result,) = judge_claims([claim if false else few(claim, 3)], options)
    return result


@pytest.mark.parametrize("short", [True, pytest.param(False, marks=pytest.mark.long)], ids=["short", "whole"])
@pytest.mark.parametrize("path", judged(CHECKS))
def test_every_claim_comes_out_as_expected(path, short):
    claims = load(path).claims
    if short:
        results = [shortly(claim) for claim in claims]
    else:
        results = list(judge_claims(claims, Options(instances=40, search=40)))
    assert results
    for result in results:
        assert result.as_expected, (result.id, result.verdict, result.reason)
        if result.verdict is Verdict.ILL_FORMED:
            continue
        assert result.met > 0 or result.verdict is Verdict.PROVED, result.id
        assert result.evidence is not Evidence.NONE
        assert (result.counterexample is not None) is (result.verdict is Verdict.REFUTED)


@pytest.mark.parametrize("short", [True, pytest.param(False, marks=pytest.mark.long)], ids=["short", "whole"])
@pytest.mark.parametrize("path", judged(MUTANTS))
def test_every_mutant_is_refuted(path, short):
    suite = load(path)
    assert suite.claims
    assert not [claim.id for claim in suite.claims if isinstance(claim, IllFormed) or claim.mutates is None]
    # One of each claim's in every run.
    first = {claim.mutates: claim for claim in reversed(suite.claims)}.values()
    for claim in first if short else suite.claims:
        (result,) = judge_claims([claim], Options(instances=60, boxes=boxes(claim) if short else 1000, shrink=False))
        assert result.verdict is Verdict.REFUTED, (result.id, result.reason)
        assert result.counterexample is not None


def test_every_claim_that_holds_has_a_mutant():
    mutated = {claim.mutates for mutants in MUTANTS for claim in load(mutants).claims}
    claims = [claim for path in CHECKS for claim in load(path).claims]
    assert not [claim.id for claim in claims if claim.expect is Verdict.HOLDS and claim.id not in mutated]


def test_the_paper_suite_takes_in_every_file():
    suite = load(ROOT / "paper_claims.yaml")
    files = {Path(file).name for file in suite.files}
    assert {path.name for path in CHECKS} <= files
    ill_formed = [claim for claim in suite.claims if isinstance(claim, IllFormed)]
    assert not [claim.id for claim in ill_formed if claim.expect is not Verdict.ILL_FORMED]
