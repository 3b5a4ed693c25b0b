"""What `verify-claims check` prints."""

from __future__ import annotations

import io
from dataclasses import replace
from fractions import Fraction

import pytest
from rich.cells import cell_len
from rich.console import Console
from sample_results import HOSTILE

from ntk_deq.claims.claim import Choose, Claim, IllFormed, Suite, Verdict
from ntk_deq.errors import Position, Problem
from ntk_deq.language.declaration import Setting
from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.parser import parse
from ntk_deq.language.run import FIXED_POINT, GRADIENT_DESCENT, Run
from ntk_deq.language.tree import Formula
from ntk_deq.language.types import SCALAR, SizeRange, matrix
from ntk_deq.language.typing import infer
from ntk_deq.report.check import highlight, render_check
from ntk_deq.report.console import say_hanging

HERE = Position("checks/a.yaml", 3, 5)
NAMES = {"A": matrix("m", "m"), "b": matrix("m"), "C": SCALAR, "gamma0": SCALAR}


def formula(name: str, text: str) -> Formula:
    return Formula(name, text, infer(parse(text), NAMES, index_names=frozenset({"l"})), HERE)


def claim() -> Claim:
    real = Domain(DomainKind.REAL, text="real")
    setting = Setting(
        "any",
        None,
        {"m": SizeRange(1, 6), "N": SizeRange(4, 4)},
        {"A": Free("A", NAMES["A"], real), "b": Free("b", NAMES["b"], real)},
        {},
        None,
        HERE,
    )
    interval = Domain(DomainKind.INTERVAL, Fraction(0), Fraction(1), True, True, "(0, 1)")
    return Claim(
        id="R.X1",
        title="A bound",
        where="Lemma 9",
        settings=(setting,),
        given={"C": Free("C", SCALAR, interval)},
        let={"gamma0": formula("gamma0", "C*norm(A)")},
        assume={"symmetric": formula("symmetric", "A == A'")},
        conclude={"(i)": formula("(i)", "norm(A*b) <= norm(A)*norm(b) and 1 + gamma0 > 0 for all l with l <= 3")},
        run=Run(FIXED_POINT, 12),
        expect=Verdict.REFUTED,
        tags=(),
        mutates=None,
        note="",
        position=HERE,
    )


def bad() -> IllFormed:
    problem = Problem(
        Position("checks/a.yaml", 9, 12), "unknown name `Q`", "R.X2", "norm(Q) <= 1", (5, 6), "did you mean `A`?"
    )
    return IllFormed("R.X2", "Misspelt", "", Verdict.HOLDS, (), HERE, (problem,))


def shown(*claims, width: int = 80, title: str = "Bounds") -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    render_check(console, Suite("checks/a.yaml", title, {}, tuple(claims)), claims)
    return console.file.getvalue()


def test_every_formula_stands_beside_its_type():
    lines = shown(claim(), width=110).splitlines()
    expected = [
        "R.X1  A bound  Lemma 9  expect refuted",
        "  setting  any: no model, whole domain, m = 1..6, N = 4",
        "  run      fixed-point, 12 steps",
        "  names    A matrix m x m, b vector m",
        "  given    C          scalar          in (0, 1)",
        "  let      gamma0     scalar          C*norm(A)",
        "  assume   symmetric  matrices m x m  A == A'",
        "  conclude (i)        scalars         norm(A*b) <= norm(A)*norm(b) and 1 + gamma0 > 0 for all l with l <= 3",
    ]
    assert lines[2:10] == expected
    assert lines[-1] == "1 claim, every formula is well-formed"


def test_a_training_run_and_what_is_chosen_are_in_words():
    step, objective = formula("step", "C/2"), formula("maximize", "C*norm(A)")
    run = Run(GRADIENT_DESCENT, 2000, step=step)
    lines = shown(replace(claim(), run=run, choose=Choose(objective, maximize=True)), width=110).splitlines()
    assert lines[4:6] == [
        "  run      gradient descent, step C/2, at most 2000 steps, until L <= 1e-6 L[0]",
        "  choose   C to maximize C*norm(A)",
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_lines_fit_the_width(width):
    text = shown(claim(), bad(), width=width)
    assert max(map(cell_len, text.splitlines())) <= width


def test_nothing_is_cut_beside_a_lead_as_wide_as_the_terminal():
    console = Console(file=io.StringIO(), width=20, color_system=None)
    say_hanging(console, ["a lead of some width "], ["x" * 20])
    assert console.file.getvalue() == f"a lead of some width {'x' * 20}\n"


def test_long_formulas_continue_below_their_start():
    lines = shown(claim(), width=72).splitlines()
    at = next(i for i, line in enumerate(lines) if "(i)" in line)
    start = lines[at].index("norm(A*b)")
    assert lines[at + 1][:start].strip() == ""
    assert lines[at + 1][start] != " "


def test_ill_formed_claims_show_their_problems():
    text = shown(claim(), bad())
    assert "R.X2  Misspelt  ill-formed" in text
    assert "checks/a.yaml:9:12: R.X2: unknown name `Q`" in text
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if "norm(Q) <= 1" in line)
    assert lines[at].index("Q") == lines[at + 1].index("^")
    assert lines[-1] == "2 claims, 1 ill-formed"


def test_hostile_text_is_neither_markup_nor_escape():
    hostile = replace(claim(), id=HOSTILE, title=HOSTILE, where=HOSTILE)
    text = shown(hostile, title=HOSTILE)
    assert "[bold]" in text
    assert "\x1b" not in text


def test_highlighting_keeps_the_text():
    text = "sigma_min(Z[k+1]) >= 1.5e-3*x' and y != 2 for all k"
    pieces = highlight(text)
    assert "".join(piece if isinstance(piece, str) else piece[0] for piece in pieces) == text
    styled = {piece[0] for piece in pieces if not isinstance(piece, str)}
    assert {"sigma_min", ">=", "1.5e-3", "and", "!=", "for all"} <= styled
    assert "x" not in styled


def test_warnings_and_the_order_of_symmetric_matrices_come_last():
    warning = Problem(Position("checks/a.yaml", 4, 9), "`let.k` is used nowhere.", "R.X1")
    order = {"(ii)": formula("(ii)", "A*A' >= C*A'*A")}
    lines = shown(replace(claim(), conclude=order, warnings=(warning,)), width=120).splitlines()
    assert lines[-5] == "  warning  checks/a.yaml:4:9: `let.k` is used nowhere."
    assert lines[-4].startswith("  note     (ii): `>=` compares symmetric matrices entry by entry;")
    assert " ".join("".join(lines[-4:-2]).split()).endswith(
        "the order of quadratic forms is lambda_min(A*A' - C*A'*A) >= 0"
    )
    assert lines[-1] == "1 claim, every formula is well-formed"
