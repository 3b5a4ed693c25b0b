"""MathML: well-formed, of known tags, escaped, and in the notation that papers use."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from expression_samples import CALLS, STATEMENTS, indexed, random_trees, typed
from hypothesis import given, settings

from ntk_deq.language.notation import GREEK, Symbol, symbol
from ntk_deq.language.notation.mathml import to_mathml
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import Expr, Kind, Span

TAGS = {
    "math",
    "mrow",
    "mi",
    "mn",
    "mo",
    "msub",
    "msup",
    "mfrac",
    "msqrt",
    "mover",
    "mtext",
    "mspace",
    "mtable",
    "mtr",
    "mtd",
}
CHILDREN = {"msub": 2, "msup": 2, "mfrac": 2, "mover": 2, "msqrt": 1, "math": 1}
ATTRIBUTES = {"display", "stretchy", "form", "accent", "mathvariant", "width"}


def check(text: str) -> ElementTree.Element:
    """Parse MathML and check it against the tags, child counts and attributes in use."""
    root = ElementTree.fromstring(text)
    assert (root.tag, root.attrib) == ("math", {"display": "block"})
    for element in root.iter():
        assert element.tag in TAGS
        assert set(element.attrib) <= ATTRIBUTES
        assert len(element) == CHILDREN.get(element.tag, len(element))
        assert not (len(element) and element.text)
    return root


def plain(text: str) -> str:
    """Return the visible characters."""
    shown = "".join(check(text).itertext())
    return re.sub("[\N{INVISIBLE TIMES}\N{FUNCTION APPLICATION}]", "", shown).replace("\N{NO-BREAK SPACE}", " ")


@settings(max_examples=150, deadline=None)
@given(random_trees())
def test_any_tree_gives_well_formed_mathml(tree: Expr) -> None:
    check(to_mathml(tree))


@pytest.mark.parametrize("text", [*STATEMENTS, *(text for text, _ in CALLS.values())])
def test_samples(text: str) -> None:
    check(to_mathml(typed(text)))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gamma0", "γ0"),
        ("lam1*Za", "λ1·Za"),
        ("Za*A", "Za·A"),
        ("A*Za*A", "A·Za·A"),
        ("A'*b", "A⊤b"),
        ("(A*B)'", "(AB)⊤"),
        ("A'^2", "(A⊤)2"),
        ("inv(A*B)", "(AB)−1"),
        ("-(a*b)", "−(ab)"),
        ("a - -b", "a−(−b)"),
        ("a - (b - c)", "a−(b−c)"),
        ("(a + b)*c", "(a+b)c"),
        ("2*3*x", "2·3x"),
        ("x*(y*z)", "x(yz)"),
        ("(a/b)*c", "abc"),
        ("(a/b)^2", "(ab)2"),
        ("2^3^2", "232"),
        ("(2^3)^2", "(23)2"),
        ("kron(A, B)*C", "(A⊗B)C"),
        ("kron(A, B) + C", "A⊗B+C"),
        ("C + kron(A + B, C)", "C+(A+B)⊗C"),
        ("hadamard(A, B*C)", "A⊙(BC)"),
        ("norm(A)*fro(A)*norm1(A)*norminf(A)*abs(x)", "‖A‖‖A‖F‖A‖1‖A‖∞|x|"),
        ("sigma_min(A) + lambda_max(A) + rho(A)", "σmin(A)+λmax(A)+ρ(A)"),
        ("max(a, b)", "max(a,b)"),
        ("exp(-x)", "e−x"),
        ("I(m) + zeros(N, m)", "Im+0N×m"),
        ("grad(L, W)", "∇WL"),
        ("jac(f, W)", "∂vec(f)∂vec(W)"),
        ("dot(u, v)", "⟨u,v⟩"),
        ("Z[k+1]", "Z(k+1)"),
        ("at(L, A = B)", "L|A=B"),
        ("1e-9*x", "10−9x"),
        ("25e-9*x", "25×10−9x"),
        ("0 < a <= b != c", "0<a≤b≠c"),
        ("a < b and (c >= d or not e == f)", "a<b and (c≥d or  not (e=f))"),
        ("a < b for all p, q with p <= q", "a<b,∀p,q:p≤q"),
    ],
)
def test_notation(text: str, shown: str) -> None:
    assert plain(to_mathml(parse(text))) == shown


def test_attributes_say_how_signs_and_accents_behave() -> None:
    assert '<mover accent="true">' in to_mathml(parse("yhat"))
    assert '<mo form="prefix">−</mo>' in to_mathml(parse("-x"))
    assert '<mo form="infix">−</mo>' in to_mathml(parse("x - y"))


def test_a_scaling_inner_product_keeps_its_brackets() -> None:
    assert plain(to_mathml(typed("b'*b*A"))) == "(b⊤b)A"
    assert plain(to_mathml(typed("b'*A*b"))) == "b⊤Ab"


def test_steps_are_superscripts_and_times_arguments() -> None:
    step, time = (indexed("A[t]'*b[0]", time=time) for time in (False, True))
    assert plain(to_mathml(step)) == "(A(t))⊤b(0)"
    assert plain(to_mathml(time)) == "A(t)⊤b(0)"
    assert "<msup><mi>A</mi><mrow>" in to_mathml(step)
    assert "<mi>A</mi><mo>\N{FUNCTION APPLICATION}</mo><mrow>" in to_mathml(time)


def test_the_path_length_is_an_ell() -> None:
    assert plain(to_mathml(indexed("path_length[t]", time=True))) == "ℓ(t)"
    assert plain(to_mathml(indexed("path_length[t + 1]", time=False))) == "ℓ(t+1)"


HOSTILE = ['<script>alert("x")</script>', "a&b", '"><img src=x onerror=y>', "]]>", "<!--"]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("kind", [Kind.NAME, Kind.INDEX, Kind.CALL, Kind.AT, Kind.FOR_ALL])
def test_hostile_names_are_text_only(name: str, kind: Kind) -> None:
    inner = Expr(Kind.NAME, Span(0, 1), name="x")
    pairs = (inner, inner) if kind is Kind.AT else (inner,)
    tree = replace(inner, kind=kind, name=name, names=(name,), args=() if kind is Kind.NAME else pairs)
    text = to_mathml(tree)
    check(text)
    assert "<script" not in text
    assert "<img" not in text


def test_every_greek_name_is_one_letter() -> None:
    for name, letter in GREEK.items():
        assert symbol(name) == Symbol(letter)
        assert symbol(name + "0") == Symbol(letter, "", "0")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("ZZ", Symbol("ZZ")),
        ("Za", Symbol("Za")),
        ("gammaA", Symbol("gammaA")),
        ("JW1", Symbol("JW", "", "1")),
        ("Z_Z", Symbol("Z", "", "Z")),
        ("lbar", Symbol("l", "bar")),
        ("gammahat2", Symbol("γ", "hat", "2")),
        ("beta", Symbol("β")),
        ("sigma_min", Symbol("σ", "", "min")),
        ("x_1_2", Symbol("x", "", "1,2")),
        ("width", Symbol("width")),
        ("what", Symbol("w", "hat")),
        ("_", Symbol("_")),
        ("_1", Symbol("1")),
        ("x1", Symbol("x", "", "1")),
        ("λ0", Symbol("λ", "", "0")),
    ],
)
def test_symbols(name: str, parts: Symbol) -> None:
    assert symbol(name) == parts
    assert parts.is_word == (len(parts.base) > 1)
