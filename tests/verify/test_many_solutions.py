"""Equations with many solutions: instances that solve them exactly, never nearly."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from verify_harness import judge_all, load

from ntk_deq.verify.feasible import exact_solutions

SETTINGS = """
  v: {sizes: {n: 1..2}, domain: {z: "real[n]", W: "real[n, n]", A: "real[1, n]", b: "real[1]"}}
  p: {sizes: {n: 1..2}, domain: {z: "positive[n]", W: "real[n, n]"}}
"""
FLAT = '{"phi(u[n])": "sum(relu(abs(A*u - b) - ones(1)))"}'


def claim_of(assume: str, conclude: str, let: str = "{}", setting: str = "v") -> str:
    return f'  - id: C\n    setting: {setting}\n    let: {let}\n    assume: "{assume}"\n    conclude: "{conclude}"'


@pytest.mark.parametrize(
    ("assume", "conclude", "expected"),
    [
        ("W*z == z", "norm(z) <= 1/8", "refuted"),
        ("W*z == z", "norm(W) >= 1 or norm(z) <= 1/8", "holds"),
        ("z == (z + relu(W*z))/2", "norm(z) <= 1/8", "refuted"),
        ("z == (z + relu(W*z))/2", "z >= 0", "holds"),
        ("z == z/2 + W*tanh(z)", "norm(z) <= 1/8", "refuted"),  # solved near floats, with a proof
    ],
)
def test_claims_about_every_solution(tmp_path: Path, assume: str, conclude: str, expected: str) -> None:
    result = judge_all(tmp_path, claim_of(assume, conclude), SETTINGS, instances=6)["C"]
    assert str(result.verdict) == expected


@pytest.mark.parametrize(
    ("assume", "let"),
    [
        ("W*z == z", "{}"),
        ("z == (z + W*z)/2", "{}"),
        ("z == prox(u[n] -> indicator(u >= 0), z, 1)", "{}"),
        ("z == prox(phi, z, 1)", FLAT),
    ],
)
def test_what_is_built_solves_the_equation_exactly_and_is_not_zero(tmp_path: Path, assume: str, let: str) -> None:
    claim = load(tmp_path, claim_of(assume, "norm(z) >= 0", let), SETTINGS)[0]
    built = list(exact_solutions(claim, claim.settings[0], 0))
    assert len(built) >= 4
    assert sum(bool(instance.values["z"].any()) for instance in built) >= 3
    if "prox" not in assume:
        for instance in built:
            assert torch.equal(instance.values["W"] @ instance.values["z"], instance.values["z"])


def test_what_would_leave_its_domain_is_not_built(tmp_path: Path) -> None:
    claim = load(tmp_path, claim_of("W*z == z", "norm(z) >= 0", setting="p"), SETTINGS)[0]
    assert all(bool((i.values["z"] > 0).all()) for i in exact_solutions(claim, claim.settings[0], 0))
