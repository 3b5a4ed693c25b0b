"""Constants for all instances: proven, refuted along a ray, left undecided; orders in conclusions; mutants."""

from __future__ import annotations

import pytest
from test_exists import claim, claims, judged

from ntk_deq.claims.claim import IllFormed, Verdict
from ntk_deq.claims.describe import order_words
from ntk_deq.claims.statement import claim_file
from ntk_deq.verify.findings import Fate, judge_mutants
from ntk_deq.verify.runner import Options, judge

EVERY = "exists: {C: positive}, uniform: true"


class TestVerdicts:
    def test_a_constant_is_proven(self, tmp_path):
        result = judged(tmp_path, f"setting: number, {EVERY}, conclude: x/(1 + x^2) <= C")
        assert result.verdict is Verdict.PROVED
        assert result.reason.startswith("C = 1: ")

    def test_a_ray_breaks_every_constant(self, tmp_path):
        result = judged(tmp_path, f"setting: number, {EVERY}, conclude: x^2 <= C*(1 + abs(x))")
        assert result.verdict is Verdict.REFUTED
        assert "for every C, x = C + 1 breaks" in result.reason

    def test_matrices_along_a_ray(self, tmp_path):
        result = judged(tmp_path, f"setting: square, {EVERY}, conclude: norm(W*W) <= C*(1 + norm(W))")
        assert result.verdict is Verdict.REFUTED
        assert "with n = 1" in result.reason

    def test_a_hypothesis_keeps_the_ray_out(self, tmp_path):
        entry = f"setting: number, assume: abs(x) <= 3, {EVERY}, conclude: x^2 <= C*(1 + abs(x))"
        assert judged(tmp_path, entry).verdict is Verdict.PROVED

    def test_the_largest_value_seen_is_no_witness(self, tmp_path):
        result = judged(tmp_path, f"setting: square, {EVERY}, conclude: norm(W*W) <= C*norm(W)^2")
        assert result.verdict is Verdict.UNDECIDED
        assert "no witness" in result.reason

    def test_a_witness_for_all(self, tmp_path):
        entry = f"setting: square, {EVERY}, witness: {{C: 1}}, conclude: norm(W*W) <= C*norm(W)^2"
        assert judged(tmp_path, entry).verdict is Verdict.HOLDS

    def test_what_may_depend_on_the_sizes(self, tmp_path):
        entry = "setting: square, exists: {C: positive}, uniform: [W], witness: {C: sqrt(n)}"
        assert judged(tmp_path, f"{entry}, conclude: fro(W) <= C*norm(W)").verdict is Verdict.HOLDS


class TestOrders:
    def test_one_that_is_proven(self, tmp_path):
        assert judged(tmp_path, 'setting: number, conclude: "x/(1 + x^2) <= O(1)"').verdict is Verdict.PROVED

    def test_one_that_is_refuted(self, tmp_path):
        assert judged(tmp_path, 'setting: number, conclude: "abs(x) >= Omega(x^2)"').verdict is Verdict.REFUTED

    def test_it_is_written_as_what_it_stands_for(self, tmp_path):
        found = claim(tmp_path, 'setting: square, witness: {C1: 2}, conclude: "norm(W) <= O(fro(W))"')
        entry = claim_file(found)["claims"][0]
        assert entry["exists"] == {"C1": "positive"}
        assert entry["uniform"] == ["W", "n"]
        assert entry["conclude"] == {"conclusion": "norm(W) <= C1*fro(W)"}
        assert order_words(found) == "exists C1: for all W, n"

    @pytest.mark.parametrize(
        ("entry", "message"),
        [
            ('conclude: "norm(W) >= O(1)"', "stands alone on the larger side"),
            ('conclude: "norm(W) <= Omega(1)"', "stands alone on the larger side"),
            ('conclude: "norm(W) <= fro(W) + O(1)"', "stands alone on the larger side"),
            ('conclude: "norm(W) == O(1)"', "stands alone on the larger side"),
            ('exists: {z: real}, conclude: "z + norm(W) <= O(1)"', "needs `uniform: true`"),
            (f"{EVERY}, witness: {{C: sqrt(n)}}, conclude: fro(W) <= C*norm(W)", "must not depend on `n`"),
            (f"let: {{s: norm(W)}}, {EVERY}, witness: {{C: s}}, conclude: fro(W) <= C", "must not depend on `W`"),
            ("exists: {C: positive}, uniform: [Q], conclude: fro(W) <= C", "Got `Q`"),
            ("uniform: true, conclude: fro(W) >= 0", "there are none"),
            ('exists: {D: "real[n, n]"}, uniform: true, conclude: D == W', "has a shape with `n`"),
            ("exists: {C: positive}, uniform: 3, conclude: fro(W) <= C", "uniform"),
        ],
    )
    def test_bad_input(self, tmp_path, entry, message):
        (found,) = claims(tmp_path, f"setting: square, {entry}")
        assert isinstance(found, IllFormed)
        assert message in " ".join(problem.message for problem in found.problems)


def test_only_a_full_argument_refutes_a_unique_solution(tmp_path):
    """A square regular A leaves one B, which has the rank of W."""
    entry = "setting: square, exists: {B: 'real[n, n]'}, conclude: {a: B == W, b: rank(B) == n}"
    result = judged(tmp_path, entry)
    assert result.verdict is Verdict.REFUTED
    assert result.counterexample is not None
    assert "one solution" in result.counterexample.argument


def test_mutants_of_a_witness_are_noticed(tmp_path):
    found = claim(tmp_path, "setting: square, exists: {S: 'real[n, n]'}, witness: {S: W*W'}, conclude: S == W*W'")
    results = list(judge_mutants(found, Options(instances=12, search=10), judge, rules=["transpose", "swap"]))
    fates = {result.mutation.after: result.fate for result in results if result.mutation.where.name == "S"}
    assert fates
    assert set(fates.values()) == {Fate.KILLED}
