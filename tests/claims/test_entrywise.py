"""Which comparisons of symmetric matrices are pointed at, and what is proposed for them."""

from __future__ import annotations

import textwrap

import pytest

from ntk_deq.claims.check import entrywise_notes
from ntk_deq.claims.claim import Claim
from ntk_deq.claims.load import load_suite

HEAD = """
suite: s
settings:
  plain:
    sizes: {n: 1..3, m: 1..3}
    domain: {S: "symmetric[n, n]", P: "psd[n, n]", A: "real[n, n]", B: "real[n, m]", v: "real[n]", c: real}
claims:
"""


def notes(tmp_path, statement: str) -> dict[str, str]:
    path = tmp_path / "s.yaml"
    claim = f'  - {{id: a, setting: plain, let: {{G: A + A\'}}, conclude: {{x: "{statement}", y: norm(G) >= 0}}}}\n'
    path.write_text(textwrap.dedent(HEAD) + claim, encoding="utf-8")
    (claim,) = load_suite(path).claims
    assert isinstance(claim, Claim)
    return entrywise_notes(claim)


@pytest.mark.parametrize(
    ("statement", "proposed"),
    [
        ("S >= P", "lambda_min(S - P) >= 0"),
        ("S < P", "lambda_min(P - S) > 0"),
        ("S <= A*A' + I(n)", "lambda_min(A*A' + I(n) - S) >= 0"),
        ("A*A' + I(n) >= S - P", "lambda_min(A*A' + I(n) - (S - P)) >= 0"),
        ("B*B' >= 0", "lambda_min(B*B') >= 0"),
        ("S <= c", "lambda_max(S) <= c"),
        ("c*A*A' > P", "lambda_min(c*A*A' - P) > 0"),
        ("G >= 2*c*I(n)", "lambda_min(G - 2*c*I(n)) >= 0"),
        ("inv(P + I(n)) >= v*v'", "lambda_min(inv(P + I(n)) - v*v') >= 0"),
        ("hadamard(S, P) >= diag(v)", "lambda_min(hadamard(S, P) - diag(v)) >= 0"),
        ("norm(S) >= 0 and A'*A >= S", "lambda_min(A'*A - S) >= 0"),
    ],
)
def test_symmetric_sides(tmp_path, statement, proposed):
    found = notes(tmp_path, statement)
    assert list(found) == ["x"]
    assert "entry by entry" in found["x"]
    assert found["x"].endswith(f"is {proposed}")


@pytest.mark.parametrize(
    "statement",
    ["A >= S", "A*A >= 0", "B >= 0", "v >= 0", "S == P", "norm(S) >= c", "A - A' <= S", "c*A*B*B' >= S", "S*P >= 0"],
)
def test_other_sides(tmp_path, statement):
    assert notes(tmp_path, statement) == {}
