"""Statements about existence on which a shortcut once gave the wrong verdict."""

import pytest
import torch

from ntk_deq.claims.claim import IllFormed
from ntk_deq.claims.load import load_suite
from ntk_deq.verify.results import Verdict
from ntk_deq.verify.runner import Options, judge

SETTINGS = """
suite: soundness
settings:
  one: {sizes: {n: 1}, domain: {c: "[0, 1]"}}
  num: {domain: {x: real}}
  unit: {domain: {x: "[0, 1]"}}
  pos: {domain: {z: positive}}
  mat: {sizes: {n: 1..3}, domain: {A: "real[n, n]"}}
  vec: {sizes: {m: 1..2}, domain: {w: "real[2*m]"}}
  narrow: {sizes: {n: 1}, domain: {w: "[0.33333332, 0.33333336][n]"}}
claims:
"""
OPEN_OR_TRUE = (Verdict.HOLDS, Verdict.UNDECIDED)
OPEN_OR_FALSE = (Verdict.REFUTED, Verdict.UNDECIDED)


def loaded(tmp_path, claim):
    path = tmp_path / "claims.yaml"
    path.write_text(f"{SETTINGS}  - {{id: X, {claim}}}\n", encoding="utf-8")
    return load_suite(path).claims[0]


@pytest.mark.parametrize(
    ("claim", "allowed"),
    [
        ("setting: one, exists: {v: 'real[1]'}, conclude: {a: fro(v*v') <= 1/10, b: v'*v >= 1/16 + 0*c}", OPEN_OR_TRUE),
        ("setting: pos, assume: {two: z^2 == 2}, exists: {v: real}, conclude: v*(z^2 - 2) == 1", OPEN_OR_FALSE),
        ("setting: unit, exists: {N: integer 0..5}, uniform: true, conclude: (N - x)^2 <= 1/4", OPEN_OR_FALSE),
        ("setting: num, exists: {C: '[1, 3/2]'}, uniform: true, conclude: C*trace(I(2)) >= 2 + 0*abs(x)", OPEN_OR_TRUE),
        ("setting: vec, exists: {C: '[1, 3/2]'}, uniform: true, conclude: C*sum(exp(0*w)) >= 2", OPEN_OR_TRUE),
        ("setting: one, exists: {X: 'real[2, 2]'}, conclude: lambda_sym(X*X') >= 1 + 0*c", OPEN_OR_TRUE),
    ],
)
def test_no_verdict_is_wrong(tmp_path, claim, allowed):
    result = judge(loaded(tmp_path, claim), Options(instances=12, search=10))
    assert result.verdict in allowed, (result.verdict, result.reason)


def test_nothing_is_decided_about_another_instance_than_the_one_judged(tmp_path):
    claim = (
        "setting: narrow, assume: {enough: sum(w) >= 0.33333334}, exists: {v: nonnegative}, "
        "conclude: sum(w) - v >= 0.33333334"
    )
    result = judge(loaded(tmp_path, claim), Options(instances=40, search=10, dtype=torch.float32))
    assert result.verdict is not Verdict.REFUTED


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (
            "setting: mat, exists: {C: positive}, uniform: [n], witness: {C: sum(exp(0*A))}, conclude: n <= C",
            "`witness.C` must not depend on `A`: `uniform` says that it is the same for all.",
        ),
        ("setting: unit, conclude: not (1 + x <= O(1))", "neither is denied"),
    ],
)
def test_what_a_constant_may_depend_on(tmp_path, claim, message):
    found = loaded(tmp_path, claim)
    assert isinstance(found, IllFormed)
    assert message in " ".join(problem.message for problem in found.problems)
