"""The text printer: what it prints parses back to the same tree."""

from __future__ import annotations

from fractions import Fraction

import pytest
from expression_samples import CALLS, STATEMENTS, bare, random_trees, typed
from hypothesis import given, settings
from hypothesis import strategies as st

from ntk_deq.language.format import decimal_places, format_expr, format_number
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import Expr


@settings(max_examples=300, deadline=None)
@given(random_trees())
def test_printed_trees_parse_back(tree: Expr) -> None:
    assert bare(parse(format_expr(tree))) == tree


@pytest.mark.parametrize("text", [*STATEMENTS, *(text for text, _ in CALLS.values())])
def test_printing_is_stable_and_keeps_types(text: str) -> None:
    tree = typed(text)
    again = typed(format_expr(tree))
    assert format_expr(again) == format_expr(tree)
    assert [node.type for node in again.walk()] == [node.type for node in tree.walk()]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("((a))+( b*c )", "a + b*c"),
        ("a-(b-c)", "a - (b - c)"),
        ("(a-b)-c", "a - b - c"),
        ("a/(b*c)", "a/(b*c)"),
        ("(-a)^2", "(-a)^2"),
        ("-(a^2)", "-a^2"),
        ("-(a*b)", "-(a*b)"),
        ("a^(-1)", "a^-1"),
        ("(A')'", "A''"),
        ("(A*B)'", "(A*B)'"),
        ("a<b and(c<d or e<f)", "a < b and (c < d or e < f)"),
        ("(Z[k+1]<=c)for all k", "Z[k + 1] <= c for all k"),
        ("at(L,A=2*A,b=b)", "at(L, A = 2*A, b = b)"),
    ],
)
def test_canonical_text(text: str, canonical: str) -> None:
    assert format_expr(parse(text)) == canonical


def test_balanced_sums_print_and_parse_back() -> None:
    tree = parse(" - ".join(f"x{k}" for k in range(200)))
    assert bare(parse(format_expr(tree))) == bare(tree)


@given(st.from_regex(r"[0-9]{1,25}(\.[0-9]{1,25})?(e[+-]?[0-2]?[0-9]{1,2})?", fullmatch=True))
def test_every_literal_prints_as_a_literal_of_the_same_value(text: str) -> None:
    value = parse(text).value
    assert value is not None
    assert parse(format_number(value)).value == value == Fraction(text)


def test_decimal_places() -> None:
    assert [decimal_places(Fraction(text)) for text in ("3", "0.25", "1/3", "1/1024")] == [0, 2, None, 10]
