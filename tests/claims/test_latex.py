"""SymPy and LaTeX: shapes and values survive the conversion, and every well-typed expression has a LaTeX text."""

from __future__ import annotations

import re
import subprocess
import sys
from fractions import Fraction

import pytest
import sympy
from expression_samples import CALLS, FIXED, STATEMENTS, indexed, matrix_texts, scalar_texts, typed
from hypothesis import given, settings
from hypothesis import strategies as st

from ntk_deq.language.notation.formulas import to_latex, to_sympy
from ntk_deq.language.parser import MAX_DEPTH, parse
from ntk_deq.language.tree import Expr, Kind
from ntk_deq.language.types import SCALAR, Size, SizeRange, Sort
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
    assert "Quantity" not in text


@pytest.mark.parametrize("text", [*STATEMENTS, *(text for text, _ in CALLS.values())])
def test_every_function_and_statement_has_latex(text: str) -> None:
    check_latex(to_latex(typed(text)))
    check_latex(to_latex(typed(text, sizes=FIXED)))
    assert isinstance(to_sympy(typed(text)), sympy.Basic)


@settings(max_examples=60, deadline=None)
@given(st.one_of(matrix_texts("N", "d", 2), scalar_texts(2)))
def test_random_terms_have_latex(text: str) -> None:
    check_latex(to_latex(typed(text)))


def as_sympy(size: Size) -> sympy.Expr:
    letters = {name: sympy.Symbol(name, integer=True, positive=True) for name in size.letters}
    return sympy.sympify(str(size).replace("^", "**"), locals=letters)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([("N", "d"), ("m", "m"), ("N", "1")]).flatmap(lambda shape: matrix_texts(*shape, 2)))
def test_random_matrices_keep_their_shape(text: str) -> None:
    tree = typed(text)
    assert tree.type is not None
    assert tree.type.sort is Sort.MATRIX
    rows, cols = to_sympy(tree).shape
    assert sympy.expand(rows - as_sympy(tree.type.rows)) == 0
    assert sympy.expand(cols - as_sympy(tree.type.cols)) == 0


def test_a_letter_that_stands_beside_its_number_converts() -> None:
    for text in ("X + zeros(4, 4)", "X*ones(4, 4)*W", "hadamard(X, ones(4, 4)) - X", "kron(X, 2*W)'"):
        tree = typed(text, sizes={letter: SizeRange(4, 4) for letter in "Ndm"})
        check_latex(to_latex(tree))
        assert isinstance(to_sympy(tree), sympy.Basic)


def value(tree: Expr, values: dict[str, Fraction]) -> Fraction:
    """Evaluate a scalar tree exactly."""
    if tree.kind is Kind.NUMBER:
        assert tree.value is not None
        return tree.value
    if tree.kind is Kind.NAME:
        return values[tree.name]
    parts = [value(part, values) for part in tree.args]
    match tree.kind:
        case Kind.NEGATE:
            return -parts[0]
        case Kind.ADD:
            return parts[0] + parts[1]
        case Kind.SUBTRACT:
            return parts[0] - parts[1]
        case Kind.MULTIPLY:
            return parts[0] * parts[1]
        case Kind.DIVIDE:
            return parts[0] / parts[1]
        case _:
            return parts[0] ** int(parts[1])


def _formulas() -> st.SearchStrategy[str]:
    leaves = st.sampled_from(["a", "b", "2", "0.5", "3"])
    return st.recursive(
        leaves,
        lambda below: st.one_of(
            st.builds("({} {} {})".format, below, st.sampled_from("+-*/"), below),
            st.builds("(-{})".format, below),
            st.builds("({})^{}".format, below, st.sampled_from(["2", "-1", "0", "-2"])),
        ),
        max_leaves=8,
    )


@settings(max_examples=80, deadline=None)
@given(_formulas())
def test_scalars_keep_their_value(text: str) -> None:
    tree = infer(parse(text), {"a": SCALAR, "b": SCALAR})
    values = {"a": Fraction(7, 3), "b": Fraction(5, 11)}
    try:
        exact = value(tree, values)
    except ZeroDivisionError:
        return
    inserted = {sympy.Symbol(name, real=True): sympy.Rational(v.numerator, v.denominator) for name, v in values.items()}
    result = to_sympy(tree).doit().subs(inserted)
    assert sympy.simplify(result) == sympy.Rational(exact.numerator, exact.denominator)


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("gamma*c", r"\gamma c"),
        ("yhat - y", r"\hat{y} - y"),
        ("c - -gamma", r"c - \left(- \gamma\right)"),
        ("c - (gamma - 2)", r"c - \left(\gamma - 2\right)"),
        ("c + (gamma + 2)", r"c + \left(\gamma + 2\right)"),
        ("c*(gamma*2)", r"c \gamma \cdot 2"),
        ("2*3*c", r"2 \cdot 3 c"),
        ("c/gamma/2", r"\frac{\frac{c}{\gamma}}{2}"),
        ("(c/gamma)^2", r"\left(\frac{c}{\gamma}\right)^{2}"),
        ("gamma^-4", r"\gamma^{-4}"),
        ("(-c)^2", r"\left(- c\right)^{2}"),
        ("-c^2", r"- c^{2}"),
        ("2^3^2", r"2^{3^{2}}"),
        ("0.25*c + 1e-9", r"0.25 c + 10^{-9}"),
        ("sqrt(c)", r"\sqrt{c}"),
        ("(A + A')^2", r"\left(A + A^{\top}\right)^{2}"),
        ("A/c", r"\frac{1}{c} A"),
        ("inv(A*A)'", r"\left(\left(A A\right)^{-1}\right)^{\top}"),
        ("kron(A, I(m))*commutation(m)", r"\left(A \otimes I_{m}\right) K_{m}"),
        ("hadamard(A, A) + A", r"A \odot A + A"),
        ("b'*b*A", r"\left(b^{\top} b\right) A"),
        ("b'*b + 1", r"b^{\top} b + 1"),
        ("fro(X)^2", r"\left\|X\right\|_{F}^{2}"),
        ("at(Z, A = 2*A)", r"\left. Z \right|_{A = 2 A}"),
        ("Z[0] >= zeros(N, m)", r"Z^{\left(0\right)} \geq 0_{N \times m}"),
        ("0 < c <= gamma", r"0 < c \leq \gamma"),
        ("c < 1 or c < 2 and c < 3", r"c < 1 \vee \left(c < 2 \wedge c < 3\right)"),
        ("not c < 1", r"\neg \left(c < 1\right)"),
        ("L[k] <= c^k for all k with k >= 1", r"L^{\left(k\right)} \leq c^{k} \quad \forall k : k \geq 1"),
    ],
)
def test_notation(text: str, latex: str) -> None:
    assert to_latex(typed(text)) == latex


def test_sympy_objects_are_sympys_own_where_it_has_them() -> None:
    assert isinstance(to_sympy(typed("kron(A, A)")), sympy.KroneckerProduct)
    assert isinstance(to_sympy(typed("trace(A)")), sympy.Trace)
    assert isinstance(to_sympy(typed("c <= 1")), sympy.Le)
    assert isinstance(to_sympy(typed("0 < c < 1 and not c == 0.5")), sympy.And)
    assert to_sympy(typed("c <= 1")).free_symbols == {sympy.Symbol("c", real=True)}


def test_the_deepest_trees_have_latex_too() -> None:
    for text in ("norm(" * 98 + "c" + ")" * 98, "-" * (MAX_DEPTH - 1) + "c", "A" + "'" * (MAX_DEPTH - 1)):
        check_latex(to_latex(typed(text)))


def test_untyped_trees_are_refused() -> None:
    with pytest.raises(TypeError, match="infer first"):
        to_latex(parse("a + b"))


def test_sympy_is_not_imported_with_the_language() -> None:
    code = (
        "import sys, ntk_deq.language.notation.formulas, ntk_deq.language.notation.mathml\n"
        "import ntk_deq.language.format, ntk_deq.language.typing\n"
        "raise SystemExit(' '.join(name for name in ('sympy', 'torch', 'numpy') if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "step", "time"),
    [
        ("W[t]", r"W^{\left(t\right)}", r"W\left(t\right)"),
        ("yhat[0]", r"\hat{y}^{\left(0\right)}", r"\hat{y}\left(0\right)"),
        ("A[t]'", r"\left(A^{\left(t\right)}\right)^{\top}", r"A\left(t\right)^{\top}"),
        ("path_length[t]", r"\ell^{\left(t\right)}", r"\ell\left(t\right)"),
        ("exp(-c*t)", r"e^{\left(- c\right) t}", r"e^{\left(- c\right) t}"),
    ],
)
def test_steps_are_superscripts_and_times_arguments(text: str, step: str, time: str) -> None:
    assert (to_latex(indexed(text, time=False)), to_latex(indexed(text, time=True))) == (step, time)


def test_a_name_of_several_letters_stands_apart_from_its_neighbours() -> None:
    names = {"c": SCALAR, "Jb": SCALAR, "ZZ1": SCALAR}
    assert to_latex(infer(parse("c*Jb*c"), names)) == r"c \cdot \mathrm{Jb} \cdot c"
    assert to_latex(infer(parse("ZZ1*c^2"), names)) == r"\mathrm{ZZ}_{1} \cdot c^{2}"
