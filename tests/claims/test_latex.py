"""LaTeX: every expression has one, balanced, and in the notation that papers use."""

from __future__ import annotations

import re

import pytest
from expression_samples import CALLS, FIXED, STATEMENTS, indexed, matrix_texts, random_trees, scalar_texts, typed
from hypothesis import given, settings
from hypothesis import strategies as st

from ntk_deq.language.notation.latex import to_latex
from ntk_deq.language.parser import MAX_DEPTH, parse
from ntk_deq.language.tree import Expr
from ntk_deq.language.types import SCALAR, SizeRange
from ntk_deq.language.typing import infer


def check_latex(text: str) -> None:
    """Check that braces balance and that every left has its right."""
    depth = 0
    for position, character in enumerate(text):
        if character in "{}" and text[position - 1 : position] != "\\":
            depth += 1 if character == "{" else -1
        assert depth >= 0
    assert depth == 0
    assert len(re.findall(r"\\left(?![a-z])", text)) == len(re.findall(r"\\right(?![a-z])", text))


@pytest.mark.parametrize("text", [*STATEMENTS, *(text for text, _ in CALLS.values())])
def test_every_function_and_statement_has_latex(text: str) -> None:
    check_latex(to_latex(typed(text)))
    check_latex(to_latex(typed(text, sizes=FIXED)))


@settings(max_examples=60, deadline=None)
@given(st.one_of(matrix_texts("N", "d", 2), scalar_texts(2)))
def test_random_terms_have_latex(text: str) -> None:
    check_latex(to_latex(typed(text)))


def test_a_letter_that_stands_beside_its_number_converts() -> None:
    for text in ("X + zeros(4, 4)", "X*ones(4, 4)*W", "hadamard(X, ones(4, 4)) - X", "kron(X, 2*W)'"):
        check_latex(to_latex(typed(text, sizes={letter: SizeRange(4, 4) for letter in "Ndm"})))


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("gamma*c", r"\gamma c"),
        ("yhat - y", r"\hat{y} - y"),
        ("c - -gamma", r"c - \left(-\gamma\right)"),
        ("c - (gamma - 2)", r"c - \left(\gamma - 2\right)"),
        ("c + (gamma + 2)", r"c + \left(\gamma + 2\right)"),
        ("c*(gamma*2)", r"c \left(\gamma \cdot 2\right)"),
        ("2*3*c", r"2 \cdot 3 c"),
        ("c/gamma/2", r"\frac{\frac{c}{\gamma}}{2}"),
        ("(c/gamma)^2", r"\left(\frac{c}{\gamma}\right)^{2}"),
        ("gamma^-4", r"\gamma^{-4}"),
        ("(-c)^2", r"\left(-c\right)^{2}"),
        ("-c^2", r"-c^{2}"),
        ("2^3^2", r"2^{3^{2}}"),
        ("0.25*c + 1e-9", r"0.25 c + 10^{-9}"),
        ("sqrt(c)", r"\sqrt{c}"),
        ("(A + A')^2", r"\left(A + A^{\top}\right)^{2}"),
        ("A/c", r"\frac{A}{c}"),
        ("inv(A*A)'", r"\left(\left(A A\right)^{-1}\right)^{\top}"),
        ("kron(A, I(m))*commutation(m)", r"\left(A \otimes I_{m}\right) K_{m}"),
        ("hadamard(A, A) + A", r"A \odot A + A"),
        ("b'*b*A", r"\left(b^{\top} b\right) A"),
        ("b'*b + 1", r"b^{\top} b + 1"),
        ("fro(X)^2", r"\left\|X\right\|_{F}^{2}"),
        ("at(Z, A = 2*A)", r"\left. Z\right|_{A = 2 A}"),
        ("Z[0] >= zeros(N, m)", r"Z^{(0)} \geq 0_{N \times m}"),
        ("0 < c <= gamma", r"0 < c \leq \gamma"),
        ("c < 1 or c < 2 and c < 3", r"c < 1 \vee c < 2 \wedge c < 3"),
        ("not c < 1", r"\neg \left(c < 1\right)"),
        ("L[k] <= c^k for all k with k >= 1", r"L^{(k)} \leq c^{k}, \quad \forall k : k \geq 1"),
    ],
)
def test_notation(text: str, latex: str) -> None:
    assert to_latex(typed(text)) == latex


def test_the_deepest_trees_have_latex_too() -> None:
    for text in ("norm(" * 98 + "c" + ")" * 98, "-" * (MAX_DEPTH - 1) + "c", "A" + "'" * (MAX_DEPTH - 1)):
        check_latex(to_latex(typed(text)))


@settings(max_examples=100, deadline=None)
@given(random_trees())
def test_any_tree_has_latex(tree: Expr) -> None:
    check_latex(to_latex(tree))


@pytest.mark.parametrize(
    ("text", "step", "time"),
    [
        ("W[t]", r"W^{(t)}", r"W(t)"),
        ("yhat[0]", r"\hat{y}^{(0)}", r"\hat{y}(0)"),
        ("A[t]'", r"\left(A^{(t)}\right)^{\top}", r"A(t)^{\top}"),
        ("path_length[t]", r"\ell^{(t)}", r"\ell(t)"),
        ("exp(-c*t)", r"e^{-c t}", r"e^{-c t}"),
    ],
)
def test_steps_are_superscripts_and_times_arguments(text: str, step: str, time: str) -> None:
    assert (to_latex(indexed(text, time=False)), to_latex(indexed(text, time=True))) == (step, time)


def test_a_name_of_several_letters_stands_apart_from_its_neighbours() -> None:
    names = {"c": SCALAR, "Jb": SCALAR, "ZZ1": SCALAR}
    assert to_latex(infer(parse("c*Jb*c"), names)) == r"c \cdot \mathrm{Jb} \cdot c"
    assert to_latex(infer(parse("ZZ1*c^2"), names)) == r"\mathrm{ZZ}_{1} \cdot c^{2}"
