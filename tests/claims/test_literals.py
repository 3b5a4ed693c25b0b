"""Matrices that a file writes out where a variable's domain may stand: definitions that vary over nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from ntk_deq.claims.claim import Claim, IllFormed
from ntk_deq.claims.load import load_suite
from ntk_deq.language.domain import is_literal

SETTINGS = """
settings:
  s:
    sizes: {n: 2..3}
    domain: {v: "real[2]", Q: "[2, 1; 1, 2]", T: "[1, 1/2, n]"}
  other: {domain: {v: "real[2]", Q: "[3, 0; 0, 3]"}}
  moves: {domain: {v: "real[2]", Q: "real[2, 2]"}}
  drawn: {sizes: {n: 2}, data: {v: "normal(0, 1)[n]", Q: "[2, 1; 1, 2]"}}
  hole: {domain: {v: "real[2]", Q: "[2, 1; 1]"}}
  free: {domain: {v: "real[2]", Q: "[2, v; 1, 1]"}}
  net: {model: implicit-relu, sizes: {N: 2, d: 2, m: 2}, domain: {A: "[0, 1; 1, 0]"}}
"""


def claim(tmp_path: Path, entry: str) -> Claim | IllFormed:
    path = tmp_path / "suite.yaml"
    path.write_text(f"suite: t\n{SETTINGS}\nclaims:\n  - {entry}\n", encoding="utf-8")
    (found,) = load_suite(path).claims
    return found


def test_what_is_a_literal() -> None:
    assert all(map(is_literal, ("[1, 2; 3, 4]", " [1]", "[1, 2, 3]", "[x; y]", "[a, b; c", "[[1, 2; 3, 4]; [5, 6]]")))
    assert not any(map(is_literal, ("[0, 1]", "[0, 1] [n, m]", "(0, 1]", "real[2]", "psd[m, m]", "[-inf, 1/2)[n]")))


@pytest.mark.parametrize("setting", ["s", "drawn"])
def test_constants_of_settings_are_definitions(tmp_path: Path, setting: str) -> None:
    found = claim(tmp_path, f'{{id: C, setting: {setting}, conclude: "v\'*Q*v >= 0"}}')
    assert isinstance(found, Claim)
    assert {name: formula.text for name, formula in found.let.items()} == {"Q": "[2, 1; 1, 2]"}
    assert str(found.let["Q"].expr.type) == "matrix 2 x 2"
    assert "Q" not in found.settings[0].free
    assert found.warnings == ()


def test_constants_of_claims_and_sizes_in_them(tmp_path: Path) -> None:
    found = claim(tmp_path, '{id: C, setting: s, given: {R: "[1; 3]"}, conclude: "dot(v, R) <= sum(T)*norm(v)"}')
    assert isinstance(found, Claim)
    assert set(found.let) == {"R", "T"}
    assert found.given == {}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            '{id: C, setting: [s, other], conclude: "v\'*Q*v >= 0"}',
            "`Q` is one matrix in setting other and another one",
        ),
        ('{id: C, setting: [s, moves], conclude: "v\'*Q*v >= 0"}', "`Q` is one matrix in setting s and another one"),
        ('{id: C, setting: s, let: {Q: "I(2)"}, conclude: "v\'*Q*v >= 0"}', "a constant of setting s"),
        ('{id: C, setting: s, given: {Q: real}, conclude: "Q*norm(v) >= 0"}', "a constant of setting s"),
        ('{id: C, setting: s, given: {R: "[1; 2"}, conclude: "dot(R, v) >= 0"}', "ends too early"),
        ('{id: C, setting: s, given: {R: "[1; ; 2]"}, conclude: "dot(R, v) >= 0"}', "unexpected ';'"),
        ('{id: C, setting: s, given: {R: "[1; 2]"}, conclude: "norm(v) >= 0"}', "`given.R` is used nowhere"),
        ('{id: C, setting: s, given: {v: "[1; 2]"}, conclude: "norm(v) >= 0"}', "a variable of setting s"),
        (
            '{id: C, setting: hole, conclude: "v\'*Q*v >= 0"}',
            "cannot put matrix 1 x 2 and a scalar one above the other",
        ),
        ('{id: C, setting: free, conclude: "v\'*Q*v >= 0"}', "unknown name `v`"),
        ('{id: C, setting: net, conclude: "norm(Z) >= 0"}', "`A` is a variable of the model"),
    ],
)
def test_bad_constants(tmp_path: Path, entry: str, message: str) -> None:
    found = claim(tmp_path, entry)
    assert isinstance(found, IllFormed)
    assert any(message in problem.message for problem in found.problems), found.problems
