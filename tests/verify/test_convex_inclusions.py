"""Inclusions in subdifferentials: instances that meet them, slopes near the boundary, how they are written."""

from __future__ import annotations

from pathlib import Path

import pytest
from verify_harness import judge_all

from ntk_deq.errors import ExpressionError
from ntk_deq.language.format import format_expr
from ntk_deq.language.notation.latex import to_latex
from ntk_deq.language.notation.mathml import to_mathml
from ntk_deq.language.parser import parse
from ntk_deq.language.types import SCALAR
from ntk_deq.language.typing import infer

SETTINGS = """
  s: {domain: {x: real, z: real, g: real}}
  v: {sizes: {n: 2}, domain: {z: "real[n]", g: "real[n]", w: "real[n]", h: "real[n]"}}
"""


def verdict(folder: Path, conclude: str, assume: str = "", setting: str = "s", let: str = "{}") -> tuple[str, str]:
    claim = f'  - id: C\n    setting: {setting}\n    let: {let}\n    conclude: "{conclude}"'
    if assume:
        claim += f'\n    assume: "{assume}"'
    result = judge_all(folder, claim, SETTINGS, instances=8)["C"]
    return str(result.verdict), result.reason


@pytest.mark.parametrize(
    ("conclude", "expected"),
    [
        ("1 in subdiff(abs, 0) and not 1.001 in subdiff(abs, 0)", "holds"),
        ("1.001 in subdiff(abs, 0)", "refuted"),
        ("-1/2 in subdiff(abs, 1/1000)", "refuted"),
        ("1 in subdiff(abs, 1/1000)", "holds"),
        ("2*x in subdiff(u -> u^2, x)", "holds"),
        ("2*x + 1/1000 in subdiff(u -> u^2, x)", "refuted"),
        ("x in subdiff(u -> -u^2/4, x)", "undecided"),
        ("0 in subdiff(u -> relu(u - 1) + relu(-u), 1) and 1 in subdiff(u -> relu(u - 1), 1)", "holds"),
    ],
)
def test_of_numbers(tmp_path: Path, conclude: str, expected: str) -> None:
    assert verdict(tmp_path, conclude)[0] == expected


@pytest.mark.parametrize("phi", ["huber(u, 1) - u^2/4"])
def test_a_gradient_is_no_subgradient_of_what_is_not_convex(tmp_path: Path, phi: str) -> None:
    let = f'{{"phi(u)": "{phi}"}}'
    assert verdict(tmp_path, "phi(x) >= phi(z) + g*(x - z)", "g in subdiff(phi, z)", let=let)[0] != "refuted"


def test_not_convex_is_said(tmp_path: Path) -> None:
    assert "not seen to be convex" in verdict(tmp_path, "x in subdiff(u -> -u^2/4, x)")[1]


@pytest.mark.parametrize(
    ("assume", "conclude", "expected"),
    [
        ("g in subdiff(phi, z) and h in subdiff(phi, w)", "dot(g - h, z - w) >= 0", "holds"),
        ("g in subdiff(phi, z)", "norm(g - z) <= 1", "holds"),
        ("g in subdiff(phi, z)", "norm(g - z) <= 999/1000", "refuted"),
        ("zeros(n) in subdiff(phi, z)", "z == zeros(n)", "holds"),
        ("ones(n) in subdiff(phi, z)", "z == zeros(n)", "refuted"),
        ("g in subdiff(phi, w)", "dot(g, w) >= norm(w)", "holds"),
    ],
)
def test_instances_meet_them(tmp_path: Path, assume: str, conclude: str, expected: str) -> None:
    let = '{"phi(u[n])": "norm(u) + fro(u)^2/2"}'
    assert verdict(tmp_path, conclude, assume, "v", let)[0] == expected


def test_a_refuted_inclusion_says_how_far_off_it_is(tmp_path: Path) -> None:
    claim = '  - id: C\n    setting: s\n    conclude: "x + 3 in subdiff(abs, 2)"'
    found = judge_all(tmp_path, claim, SETTINGS, instances=4)["C"].counterexample
    assert found is not None
    assert (found.lhs, found.relation) == ("3", "in")
    assert found.rhs == "subdiff(x -> abs(x), 2), 2 away or more,"  # the only subgradient is 1


def test_how_it_is_written() -> None:
    tree = infer(parse("x + 1 in subdiff(u -> abs(u), x)"), {"x": SCALAR})
    text = format_expr(tree)
    assert text == "x + 1 in subdiff(u[] -> abs(u), x)"
    assert format_expr(infer(parse(text), {"x": SCALAR})) == text
    assert r"\in \partial" in to_latex(tree)
    assert "∈" in to_mathml(tree)
    assert "∂" in to_mathml(tree)


def test_a_derivative_at_a_point_of_the_same_name() -> None:
    tree = infer(parse("grad(x -> x^2, x) == grad(x -> x^2, y)"), {"x": SCALAR, "y": SCALAR})
    text = to_latex(tree)
    assert "x = x" not in text
    assert "x = y" in text


@pytest.mark.parametrize("text", ["x in subdiff(abs)", "x in phi(abs, 0)", "x in subdiff(abs, 0, 1)"])
def test_mistakes(text: str) -> None:
    with pytest.raises(ExpressionError, match="behind `in` stands a subdifferential with two arguments"):
        parse(text)
