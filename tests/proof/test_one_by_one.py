"""Conclusions that are proven by themselves, where the claim as a whole is not."""

from __future__ import annotations

import pytest

from ntk_deq.claims.claim import Claim, Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.verify.options import Options
from ntk_deq.verify.prover import prove_claim
from ntk_deq.verify.runner import judge

HEAD = """suite: mixed
settings:
  numbers: {domain: {x: positive, y: positive}}
  matrices: {sizes: {n: 1..3}, domain: {A: "real[n, n]", x: positive}}
  drawn: {sizes: {n: 2}, domain: {x: positive}, init: {A: "normal(0, 1)[n, n]"}}
claims:
"""


@pytest.fixture
def read(tmp_path):
    def read(entry):
        file = tmp_path / "claims.yaml"
        file.write_text(f"{HEAD}  - {{id: C, {entry}}}\n")
        (found,) = load_suite(str(file)).claims
        assert isinstance(found, Claim), found.problems
        return found

    return read


MIXED = 'setting: numbers, conclude: {square: (x + y)^2 >= 4*x*y, hard: "erf(x)^2 + erf(y)^2 <= 2"}'
MATRICES = "setting: matrices, conclude: {number: x + 1 > x, matrix: norm(A*A) <= norm(A)^2}"


def test_a_conclusion_beside_one_that_is_not_proven(read):
    proof = prove_claim(read(MIXED), budget=200)
    assert proof is not None
    assert proof.verdict is Verdict.UNDECIDED
    assert set(proof.proven) == {"square"}


def test_a_conclusion_about_numbers_beside_one_about_matrices(read):
    result = judge(read(MATRICES), Options(instances=12, search=10))
    assert result.verdict is Verdict.HOLDS  # the weakest of the two
    assert {c.name: bool(c.proven) for c in result.conclusions} == {"number": True, "matrix": False}


def test_hypotheses_about_numbers_are_used(read):
    entry = "setting: matrices, assume: {small: x <= 1, bound: norm(A) <= x}, let: {q: x/2}"
    proof = prove_claim(read(f"{entry}, conclude: {{number: q < 1, matrix: norm(A) <= 1}}"), budget=200)
    assert proof is not None
    assert set(proof.proven) == {"number"}


def test_those_about_matrices_are_left_out(read):
    """Only norm(A) <= x and norm(A) >= 1 show that x >= 1."""
    entry = "setting: matrices, assume: {bound: norm(A) <= x, large: norm(A) >= 1}"
    proof = prove_claim(read(f"{entry}, conclude: {{number: x >= 1, matrix: norm(A) <= x}}"), budget=200)
    assert proof is None


def test_a_false_one_is_not_proven_and_the_claim_is_refuted(read):
    result = judge(read("setting: matrices, conclude: {number: x > x^2, matrix: norm(A) >= 0}"), Options(instances=12))
    assert result.verdict is Verdict.REFUTED
    assert not any(conclusion.proven for conclusion in result.conclusions)


def test_numbers_of_a_drawn_setting_are_left_alone(read):
    assert prove_claim(read("setting: drawn, conclude: {number: x + 1 > x, matrix: norm(A) >= 0}"), budget=200) is None
