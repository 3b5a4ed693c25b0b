"""The parser: precedence, places, limits, and that no text whatever makes it fail in any other way than it promises."""

from __future__ import annotations

from fractions import Fraction

import pytest
from expression_samples import ENVIRONMENT, SIZES, bare
from hypothesis import given, settings
from hypothesis import strategies as st

from ntk_deq.errors import ExpressionError
from ntk_deq.language.notation.mathml import to_mathml
from ntk_deq.language.parser import KEYWORDS, MAX_DEPTH, MAX_TEXT, parse
from ntk_deq.language.tree import MAX_CHAIN, Expr, Kind
from ntk_deq.language.typing import infer


def depth(tree: Expr) -> int:
    return 1 + max((depth(part) for part in tree.args), default=0)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("a + b*c", "a + (b*c)"),
        ("a - b - c", "(a - b) - c"),
        ("a/b*c", "(a/b)*c"),
        ("-a^2", "-(a^2)"),
        ("-a*b", "(-a)*b"),
        ("a^-4", "a^(-4)"),
        ("2^3^2", "2^(3^2)"),
        ("2^-3^2", "2^(-(3^2))"),
        ("X'^2", "(X')^2"),
        ("X*Y'", "X*(Y')"),
        ("Z[k]'", "(Z[k])'"),
        ("f(x)'^2", "((f(x))')^2"),
        ("a + b <= c*d", "(a + b) <= (c*d)"),
        ("not a < b and c < d or e < f", "((not (a < b)) and (c < d)) or (e < f)"),
        ("a < b and c < d for all k", "((a < b) and (c < d)) for all k"),
        ("a < b or c < d for all k with p < q or k < p", "(a < b or c < d) for all k with (p < q or k < p)"),
    ],
)
def test_precedence(text: str, meaning: str) -> None:
    assert bare(parse(text)) == bare(parse(meaning))


@pytest.mark.parametrize(
    ("left", "right"), [("(a + b)*c", "a + b*c"), ("(-a)^2", "-a^2"), ("(a < b) < c", "a < b < c")]
)
def test_brackets_change_the_tree(left: str, right: str) -> None:
    assert bare(parse(left)) != bare(parse(right))


def test_comparison_chain_is_one_node() -> None:
    chain = parse("0 < a <= b != c")
    assert (chain.kind, chain.operators, len(chain.args)) == (Kind.COMPARE, ("<", "<=", "!="), 4)


def test_at_names_its_replacements() -> None:
    node = parse("at(at(L, A = B), W = 2*W, b = b)")
    assert (node.kind, node.names, node.args[0].names) == (Kind.AT, ("W", "b"), ("A",))


def test_quantifier_keeps_names_and_condition() -> None:
    node = parse("norm(Z[p]) <= q^p for all p, r with p <= r")
    assert (node.names, node.args[1].kind) == (("p", "r"), Kind.COMPARE)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", Fraction(1, 10)),
        ("1e-9", Fraction(1, 10**9)),
        ("2.50E2", Fraction(250)),
        ("007", Fraction(7)),
        ("0e9", 0),
    ],
)
def test_numbers_are_exact(text: str, value: Fraction) -> None:
    assert parse(text).value == value


def test_spans_cover_the_source() -> None:
    text = "norm(A + (B))*c <= 2"
    tree = parse(text)
    shown = {text[node.span.start : node.span.stop] for node in tree.walk()}
    assert shown == {text, "norm(A + (B))*c", "norm(A + (B))", "A + (B)", "A", "(B)", "c", "2"}


@pytest.mark.parametrize(
    ("text", "message", "place", "hint"),
    [
        ("", "the text is empty", "", None),
        ("  \n", "the text is empty", "  \n", None),
        ("a +", "ends too early", "+", None),
        ("norm(A", "ends too early", "A", "close the bracket with )"),
        ("Z[k", "ends too early", "k", "close the bracket with ]"),
        ("a)", "unexpected ')'", ")", None),
        ("a ** b", "unexpected '*'", "*", "write ^ for a power"),
        ("a = b", "unexpected '='", "=", "write == for `equals`"),
        ("a => b", "unexpected '='", "=", "write >=; for an implication"),
        ("a =< b", "unexpected '='", "=", "write <="),
        ("a <> b", "unexpected '>'", ">", "write !="),
        ("a < b implies c", "unexpected 'implies'", "implies", "write `not P or Q`"),
        ("a <= .5", "unexpected character '.'", ".", "write digits on both sides"),
        ("2 x", "unexpected 'x'", "x", "write * for a product"),
        ("a ≤ b", "unexpected character '≤'", "≤", "write <="),
        ("A @ B", "unexpected character '@'", "@", "write * for a matrix product"),
        ("a\0", "unexpected character U+0000", "\0", None),
        ("f(a = 1)", "`f` takes no named arguments", "a = 1", "write == for `equals`"),
        ("at(L)", "`at` takes one expression", "at(L)", None),
        ("at(A = 1, L)", "`at` takes one expression", "at(A = 1, L)", None),
        ("at(L, A = 1, A = 2)", "`at` replaces `A` twice", "A = 1", None),
        ("at + 1", "`at` is a word of the language", "at", None),
        ("a for all all", "`all` is a word of the language", "all", None),
        ("a for all k, k", "lists `k` twice", "a for all k, k", None),
        ("a for all k for all p", "unexpected 'for'", "for", "a quantifier stands once"),
        ("(A)[1]", "unexpected '['", "[", "only a name can carry a step"),
        ("1e999", "power of ten must be between -400 and 400", "1e999", None),
        ("0." + "0" * 55 + "1e-399", "a number may have at most 60 characters", None, None),
        ("1.5e-400", "power of ten", "1.5e-400", None),
        ("1" * 61, "a number may have at most 60 characters. Got 61", None, None),
        ("x" * 61, "a name may have at most 60 characters. Got 61", None, None),
    ],
)
def test_errors_say_what_where_and_how(text: str, message: str, place: str | None, hint: str | None) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert message in caught.value.message
    start, stop = caught.value.span
    assert text[start:stop] == (text if place is None else place)
    assert (caught.value.hint or "").startswith(hint or "") if hint else caught.value.hint is None


@pytest.mark.parametrize("word", sorted(KEYWORDS))
def test_words_of_the_language_are_no_names(word: str) -> None:
    with pytest.raises(ExpressionError):
        parse(f"1 + {word}")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000,
        "(" * 9_000 + "x" + ")" * 9_000,
        "-" * 10_000 + "x",
        "x" + "'" * 10_000,
        "^".join("2" * 5_000),
        "f(" * 5_000 + ")" * 5_000,
        "Z[" * 5_000 + "]" * 5_000,
        "not " * 4_000 + "a",
        "*".join("a" * 1_000),
        "at(" * 3_000,
    ],
)
def test_deep_expressions_give_one_clear_error(text: str) -> None:
    with pytest.raises(ExpressionError, match=f"nested more than {MAX_DEPTH} levels deep"):
        parse(text)


def test_text_length_is_bounded() -> None:
    with pytest.raises(ExpressionError, match=r"at most 20000 characters\. Got 20001"):
        parse("x" * (MAX_TEXT + 1))


@pytest.mark.parametrize("brackets", [1, MAX_DEPTH])
def test_nesting_up_to_the_limit_parses(brackets: int) -> None:
    assert parse("(" * brackets + "x" + ")" * brackets).kind is Kind.NAME
    assert depth(parse("-" * (MAX_DEPTH - 1) + "x")) == MAX_DEPTH


@pytest.mark.parametrize("text", ["-" * MAX_DEPTH + "x", "(" * (MAX_DEPTH + 1) + "x" + ")" * (MAX_DEPTH + 1)])
def test_one_level_more_does_not_parse(text: str) -> None:
    with pytest.raises(ExpressionError, match="levels deep"):
        parse(text)


def _value(tree: Expr) -> Fraction:
    if tree.kind is Kind.NUMBER:
        assert tree.value is not None
        return tree.value
    left, right = map(_value, tree.args)
    return left + right if tree.kind is Kind.ADD else left - right


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("+-"), st.integers(0, 99)), min_size=MAX_CHAIN, max_size=2 * MAX_CHAIN))
def test_long_sums_keep_their_value(terms: list[tuple[str, int]]) -> None:
    text = "0" + "".join(f" {sign} {number}" for sign, number in terms)
    expected = sum(number if sign == "+" else -number for sign, number in terms)
    assert _value(parse(text)) == expected


@pytest.mark.parametrize("joint", [" + ", " - ", " and ", " or "])
def test_long_flat_chains_stay_shallow(joint: str) -> None:
    tree = parse(joint.join(["a < b" if joint.strip().isalpha() else "a"] * 1_000))
    assert depth(tree) < 20
    assert sum(node.kind is Kind.NAME and node.name == "a" for node in tree.walk()) == 1_000
    short = parse(joint.join(["a"] * MAX_CHAIN))
    assert depth(short) == MAX_CHAIN


TOKENS = [
    "a",
    "A",
    "Z",
    "norm",
    "at",
    "grad",
    "I",
    "for",
    "all",
    "with",
    "and",
    "or",
    "not",
    "k",
    "m",
    "1",
    "2.5",
    "1e9",
]
TOKENS += ["+", "-", "*", "/", "^", "'", "(", ")", "[", "]", ",", "=", "==", "<=", "!=", " ", "≤", "\n", "\0", "#", '"']


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=40), st.lists(st.sampled_from(TOKENS), max_size=25).map(" ".join)))
def test_any_text_parses_and_types_or_raises_an_expression_error(text: str) -> None:
    problem = tree = None
    try:
        tree = infer(parse(text), ENVIRONMENT, sizes=SIZES, indexed=frozenset({"Z"}))
    except ExpressionError as error:
        problem = error
    if tree is not None:
        assert to_mathml(tree).startswith("<math")
    else:
        assert problem is not None
        start, stop = problem.span
        assert 0 <= start <= stop <= len(text)
        assert problem.message.endswith(".")
