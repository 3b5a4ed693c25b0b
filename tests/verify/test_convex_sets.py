"""Minima on sets: projections, support functions, constraints, points near the boundary, sets of one point and none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from verify_harness import judge_all

import ntk_deq as nd
from ntk_deq.errors import ExpressionError
from ntk_deq.language.parser import parse

SETTINGS = """
  s: {domain: {x: "[-4, 4]"}}
  v: {sizes: {n: 2}, domain: {x: "[-4, 4][n]", A: "real[1, n]"}}
"""


def verdict(folder: Path, conclude: str, setting: str = "s") -> tuple[str, str]:
    claim = f'  - id: C\n    setting: {setting}\n    conclude: "{conclude}"'
    result = judge_all(folder, claim, SETTINGS, instances=6)["C"]
    return str(result.verdict), result.reason


@pytest.mark.parametrize(
    ("conclude", "expected"),
    [
        ("prox(u -> indicator(0 <= u <= 1), x, 1) == relu(x) - relu(x - 1)", "holds"),
        ("prox(u -> indicator(0 <= u <= 1), x, 1) == relu(x) - relu(x - 1001/1000)", "refuted"),
        ("minimum(u[] -> (u - 3)^2 + indicator(u <= 1)) == 4", "holds"),
        ("argmin((x + 5)^2, x, on: x >= 2 and x <= 2) == 2", "holds"),
        ("conjugate(u -> indicator(u >= 0), -1) == 0 and not conjugate(u -> indicator(u >= 0), 1) < 9", "holds"),
        ("1 in subdiff(u -> indicator(u <= 0), 0) and not -1/1000 in subdiff(u -> indicator(u <= 0), 0)", "holds"),
        ("indicator(x <= 5) == 0 and indicator(x >= 5) > 1", "undecided"),
        ("minimum(u[] -> indicator(u >= 1) + indicator(u <= 0)) >= 0", "vacuous"),
        ("argmin(x^2, x, on: x == x + 1) == 0", "vacuous"),
        ("argmin(u[] -> u + indicator(u <= 0)) == 0", "vacuous"),
        ("minimum(u[] -> u^2 + indicator(u < 1)) == 0", "undecided"),
        ("argmin(u[] -> (u^2 - 1)^2) >= 0", "vacuous"),
    ],
)
def test_of_numbers(tmp_path: Path, conclude: str, expected: str) -> None:
    assert verdict(tmp_path, conclude)[0] == expected


def test_what_is_empty_is_said(tmp_path: Path) -> None:
    reason = verdict(tmp_path, "minimum(u[] -> indicator(u >= 1) + indicator(u <= 0)) >= 0")[1]
    assert "defined" in reason
    message = verdict(tmp_path, "minimum(u[] -> u^2*indicator(u <= 1)) == 0")[1]
    assert "an indicator must be a term of a sum" in message


@pytest.mark.parametrize(
    ("conclude", "expected"),
    [
        ("fro(argmin(fro(x)^2, x, on: A*x == A*ones(n))) <= sqrt(n)", "holds"),
        ("argmin(fro(x)^2, x, on: A*x == A*ones(n)) == ones(n)", "refuted"),
    ],
)
def test_of_vectors(tmp_path: Path, conclude: str, expected: str) -> None:
    assert verdict(tmp_path, conclude, "v")[0] == expected


def test_a_variable_of_the_claim_is_not_caught(tmp_path: Path) -> None:
    claim = """
  - id: C
    setting: v
    let: {"R(u[n])": "fro(u - x)^2", p: "argmin(R, x, on: x >= 0)"}
    conclude: p == relu(x)
"""
    assert str(judge_all(tmp_path, claim, SETTINGS, instances=6)["C"].verdict) == "holds"


def test_projections_from_python() -> None:
    x = torch.tensor([3.0, -2.0, 0.5], dtype=torch.float64)
    found = nd.prox("indicator(u >= 0) + indicator(u <= 1)", x)
    assert found.value.tolist() == pytest.approx([1.0, 0.0, 0.5], abs=found.error + 1e-300)
    assert found.error < 1e-12
    assert nd.prox("indicator(u >= 1) + indicator(u <= 0)", x).status.name == "NONE"


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("prox(abs, x, on: x >= 0)", "takes no set"),
        ("argmin(R, on: x >= 0)", "a set needs a function, the name of a variable"),
        ("argmin(R, x, at: x >= 0)", "means nothing here"),
    ],
)
def test_mistakes(text: str, match: str) -> None:
    with pytest.raises(ExpressionError, match=match):
        parse(text)
