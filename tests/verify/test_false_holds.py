"""False statements that once held: ties by scale alone, gaps that hid a conclusion, corners never tried."""

from pathlib import Path

import pytest

from ntk_deq.claims.claim import Claim, Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.verify.formulas import marks
from ntk_deq.verify.runner import Options, judge

SUITE = """
suite: false-holds
settings:
  wide: {{sizes: {{n: 2..3}}, domain: {{c: "integer 10000000..20000000"}}}}
  square: {{sizes: {{n: 1..4}}, domain: {{A: "real[n, n]", x: real}}}}
  line: {{domain: {{a: real, b: real}}}}
  unit: {{sizes: {{n: 2}}, domain: {{M: "[0, 1][n, n]", h: "(0, 1/2]"}}}}
claims:
  - {{id: the.one, setting: {setting}, {body}}}
"""

WIDE = 'let: {B: "I(n) + c*ones(n, n)"}, conclude: '


def claim_of(folder: Path, setting: str, body: str) -> Claim:
    path = folder / "claims.yaml"
    path.write_text(SUITE.format(setting=setting, body=body), encoding="utf-8")
    (claim,) = load_suite(path).claims
    return claim


def verdict_of(folder: Path, setting: str, body: str, **options: object) -> Verdict:
    return judge(claim_of(folder, setting, body), Options(**{"instances": 60, "search": 0, **options})).verdict


@pytest.mark.parametrize(
    ("setting", "body"),
    [
        # Both sides are zero within a scale of 1e60, and by no means zero: (1 + n c)^3 and 1.
        ("wide", WIDE + '"det(B*B*B) == 0"'),
        ("wide", WIDE + '"sigma_min(B*B*B) == 0"'),
        # A conclusion without a value at A = 0 must not take its sibling along.
        ("square", 'conclude: {formula: "inv(A)*A == I(n)", invertible: "sigma_min(A) > 0"}'),
        ("square", 'conclude: {below: "log(x) <= x - 1", positive: "x > 0"}'),
        ("square", 'conclude: {slope: "grad(relu(x), x) == step(x)", away: "x != 0"}'),
        # A hypothesis that is true by its first part is met, whatever its second part is.
        ("square", 'assume: "x <= 0 or 1/x > 0", conclude: "x != 0"'),
        # The corners of a box, and a closed end.
        ("unit", 'conclude: "fro(M) > 0"'),
        ("unit", 'conclude: "min(M) < 1"'),
        ("unit", 'conclude: "fro(M - I(n)) > 0"'),
        ("unit", 'conclude: "h < 1/2"'),
    ],
)
def test_it_is_refuted(tmp_path, setting, body):
    assert verdict_of(tmp_path, setting, body) is Verdict.REFUTED


@pytest.mark.parametrize(
    "conclusion",
    [
        "step(a - 0.3333)*step(0.3334 - a) == 0",
        "step(a - 12.3333)*step(12.3334 - a)*step(b) == 0",
        "sign(a - 1/3)*sign(a - 1/3 - 1e-8) >= 0",  # between numbers that are quotients, and sums of such
        "step(3*a - 10^-7)*step(2*10^-7 - 3*a) == 0",
        "min(ones(1, 1)*step(-3.75001 - a) + ones(1, 1)*step(a + 3.75)) >= 1",
        "a <= 1e200",
    ],
)
def test_what_lies_between_the_numbers_of_a_claim_is_searched(tmp_path, conclusion):
    assert verdict_of(tmp_path, "line", f'conclude: "{conclusion}"', search=None) is Verdict.REFUTED


@pytest.mark.parametrize(
    ("conclusion", "turn"),
    [
        ("3*a <= 1 + 1e-8", (1 + 1e-8) / 3),
        ("a*3 - 1/7 <= 0", 1 / 21),
        ("-(a/3) + 2 >= b", 6),
        ("2^10 - a*b >= 0", 1024),
        ("((((1/3)^60)^60)^60)^60 <= a", 3.0**-60),  # what would be of a million digits is left
    ],
)
def test_marks_are_where_a_side_turns(tmp_path, conclusion, turn):
    found = marks(claim_of(tmp_path, "line", f'conclude: "{conclusion}"'))
    assert any(mark == pytest.approx(turn, rel=1e-15) for mark in found)


def test_marks_that_a_claim_names_come_first(tmp_path):
    squares = " + ".join(f"(a*0.{k}1 + 0.{k}2)^2" for k in range(1, 9))
    found = marks(claim_of(tmp_path, "line", f'conclude: "step(a - 99.9999)*step(100 - a)*(1 + {squares}) == 0"'))
    assert found.index((99.9999 + 100) / 2) < 96 < len(found)


def test_near_zero_without_more_bits_is_no_support(tmp_path):
    body = WIDE + '"sigma_min(B*B*B) == 0"'
    assert verdict_of(tmp_path, "wide", body, precision=53) is Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("body", "precision", "expected"),
    [
        # At duplicate rows both sides are zero in truth: true, and no float says so.
        ('conclude: "sigma_min(A) <= norm(A)"', 53, Verdict.HOLDS),
        ('let: {B: "A*ones(n, n)"}, conclude: "sigma_min(B) <= sigma_min(2*B)"', 53, Verdict.UNDECIDED),
        ('let: {B: "A*ones(n, n)"}, conclude: "sigma_min(B) <= sigma_min(2*B)"', 128, Verdict.HOLDS),
    ],
)
def test_two_zeros_need_more_bits(tmp_path, body, precision, expected):
    assert verdict_of(tmp_path, "square", body, precision=precision) is expected
