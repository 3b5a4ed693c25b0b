"""Families while their depth is open: indices, ranges and which way they run, shapes for every member at once."""

from __future__ import annotations

import pytest

from ntk_deq.errors import ExpressionError
from ntk_deq.language.expansion import Expansion
from ntk_deq.language.families import (
    MAX_MEMBERS,
    Family,
    concrete_type,
    downward,
    index_size,
    index_text,
    reach_of,
    split_for,
    substituted,
    values_of,
)
from ntk_deq.language.format import format_expr
from ntk_deq.language.parser import parse, parse_reach
from ntk_deq.language.tree import Expr, Span
from ntk_deq.language.types import SCALAR, Reach, Size, SizeRange, matrix
from ntk_deq.language.typing import infer

NOWHERE = Span(0, 0)


def reach(text: str) -> Reach:
    return reach_of(parse_reach(text))


ENVIRONMENT = {
    "W": matrix(Size.letter("n[l]"), Size.letter("n[l-1]")),
    "S": matrix("m", "m"),
    "X": matrix(Size.letter("n[0]"), "N"),
    "c": SCALAR,
}
FAMILIES = {
    "W": Family("l", (reach("l in 1..L"),)),
    "S": Family("l", (reach("l in 1..L"),)),
    "c": Family("l", (reach("l in 1..L"),)),
    "n": Family("l", (reach("l in 0..L"),)),
}
SIZES = {
    "L": SizeRange(1, 4),
    "K": SizeRange(1, 2),
    "N": SizeRange(2, 2),
    "m": SizeRange(2, 2),
    "n": SizeRange(3, 3, reach("l in 0..L")),
}


def typed(text: str) -> Expr:
    return infer(parse(text), ENVIRONMENT, sizes=SIZES, families=FAMILIES)


def written(text: str, depth: int) -> str:
    members = {name: frozenset(range(name != "n", depth + 1)) for name in FAMILIES}
    return format_expr(Expansion({"L": depth}, members).formula(typed(text)))


class TestText:
    @pytest.mark.parametrize(
        "text",
        [
            "sum(norm(W[l]) for l in 1..L)",
            "W[l][k + 1]",
            "prod(W[l] for l in L..1)*X",
            "a <= b for all l in 1..L for some j in 0..l - 1 for all k, m with k <= m",
            "(a <= b for all k) and c < d for all l in 1..L",
            "not (a <= b for some l in 1..L)",
        ],
    )
    def test_the_canonical_text_parses_back(self, text):
        assert format_expr(parse(text)) == text

    def test_words_of_the_language_stay_parts_of_names(self):
        assert format_expr(parse("index + something + fora")) == "index + something + fora"

    @pytest.mark.parametrize(
        ("text", "index"), [("1+L-l", "L-l+1"), ("-1 + l", "l-1"), ("3 - 3", "0"), ("l + l", "2*l"), ("-l", "-l")]
    )
    def test_an_index_has_one_spelling(self, text, index):
        assert index_text(index_size(parse(text))) == index
        assert index_size(parse(index.replace("2*l", "l+l"))) == index_size(parse(text))

    @pytest.mark.parametrize("text", ["l*2", "l/2", "1.5", "norm(l)", "2^3", "2000000"])
    def test_what_no_index_is_made_of(self, text):
        with pytest.raises(ExpressionError, match="an index"):
            index_size(parse(text))

    def test_a_range_behind_a_declaration(self):
        body, over = split_for("normal(0, 1/n[l-1])[n[l]] for l in 1 .. L - 1")
        assert (body, over.text) == ("normal(0, 1/n[l-1])[n[l]]", "l in 1..L-1")
        assert split_for("a name for all") == ("a name for all", None)
        with pytest.raises(ExpressionError) as caught:
            split_for("real[m] for l in 1..2*L")
        assert caught.value.span[0] >= len("real[m] for l in 1..")

    def test_members_move_inside_products_of_sizes(self):
        size = Size.letter("n[l-1]") * Size.letter("n[l]") + Size.letter("N")
        moved = substituted(size, {"l": index_size(parse("l + 1"))})
        assert moved == Size.letter("n[l]") * Size.letter("n[l+1]") + Size.letter("N")

    def test_a_concrete_type_keeps_plain_sizes(self):
        type_ = matrix(Size.letter("n[L-l]"), Size.letter("l") * Size.letter("L"))
        assert str(concrete_type(type_, {"L": 3}, {"l": 2})) == "matrix n[1] x 2*L"


class TestDirection:
    @pytest.mark.parametrize(
        ("text", "down"),
        [
            ("l in 1..L", False),
            ("l in 1..L-1", False),
            ("l in L..1", True),
            ("l in L-1..1", True),
            ("l in j+1..L", False),
            ("l in L..j+1", True),
            ("l in 1..j-1", False),
            ("l in j-1..1", True),
            ("l in j-1..j+1", False),
            ("l in j+1..j", True),
            ("l in 1..3", False),
            ("l in 3..1", True),
            ("l in i..j", False),
            ("l in j..i", True),
            ("l in k..j", True),
            ("l in j..k", False),
        ],
    )
    def test_the_letters_say_which_way(self, text, down):
        outer = {"j": reach("j in 1..L"), "i": reach("i in 1..j-1"), "k": reach("k in j+1..L")}
        assert downward(reach(text), outer, NOWHERE) is down

    @pytest.mark.parametrize("text", ["l in K..L", "l in i..j"])
    def test_where_nothing_says_which_way(self, text):
        outer = {"i": reach("i in 1..L"), "j": reach("j in 1..L")}
        with pytest.raises(ExpressionError, match="which way"):
            downward(reach(text), outer, NOWHERE)

    @pytest.mark.parametrize(
        ("text", "depth", "values"),
        [
            ("l in 1..L-1", 1, []),
            ("l in L..1", 1, [1]),
            ("l in L..1", 3, [3, 2, 1]),
            ("l in L-1..1", 1, []),
            ("l in 0..L", 2, [0, 1, 2]),
            ("l in 3..1", 9, [3, 2, 1]),
        ],
    )
    def test_values(self, text, depth, values):
        assert list(values_of(reach(text), {"L": depth}, {}, NOWHERE)) == values

    def test_a_huge_range_is_refused_before_it_is_made(self):
        with pytest.raises(ExpressionError, match=f"at most {MAX_MEMBERS} members. Got l in 1..L with 1000000"):
            values_of(reach("l in 1..L"), {"L": 10**6}, {}, NOWHERE)

    @pytest.mark.parametrize("text", ["l in 1..L+K", "l in 1..l", "l in 1..-L"])
    def test_bounds_that_are_none(self, text):
        with pytest.raises(ExpressionError, match=r"a bound of a range|cannot depend"):
            reach(text)


class TestShapes:
    @pytest.mark.parametrize(
        ("text", "type_"),
        [
            ("W[1]*X", "matrix n[1] x N"),
            ("prod(W[l] for l in L..1)*X", "matrix n[L] x N"),
            ("sum(S[l] for l in 1..L)", "matrix m x m"),
            ("sum(sum(norm(W[k]) for k in j+1..L) for j in 1..L)", "scalar"),
            ("max(norm(W[l]) for l in 1..L)", "scalar"),
            ("zeros(n[0], n[L])", "matrix n[0] x n[L]"),
            ("grad(norm(W[1]), W[1])", "matrix n[1] x n[0]"),
            ("sum(c[l]^l*l for l in 1..L)", "scalar"),
            ("W[l+1]*W[l] == zeros(n[l+1], n[l-1]) for all l in 1..L-1", "boolean"),
            ("norm(W[l]) <= n[l] for some l in 1..L", "boolean"),
            ("at(norm(W[1]*X), W[1] = 2*W[1])", "scalar"),
            ("sum(norm(at(W[L], W[j] = 0*W[j])) for j in 1..L)", "scalar"),
            ("blockdiag(S[l] for l in 1..L)", "matrix L*m x L*m"),
        ],
    )
    def test_fit_for_every_member(self, text, type_):
        assert str(typed(text).type) == type_

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "W[l]*W[l+1] == W[l] for all l in 1..L-1",
                r"cannot multiply matrix n\[l\] x n\[l-1\] by matrix n\[l\+1\] x n\[l\]: inner sizes n\[l-1\] and",
            ),
            (
                "prod(W[l] for l in 1..L)",
                r"cannot multiply matrix n\[l\] x n\[l-1\] by the next factor, matrix n\[l\+1\]",
            ),
            ("sum(W[l] for l in 1..L)", "the terms of a sum must have one shape"),
            ("max(S[l] for l in 1..L)", "`max` over a range takes numbers"),
            ("W", r"`W` is a family: it has the members W\[l\] for l in 1..L"),
            ("zeros(n)", "`n` is a family"),
            ("W[l]", "unknown letter of an index `l`"),
            ("X[1]", "`X` is no family"),
            ("S[1][0]", "does not change with the step"),
            ("sum(norm(W[X]) for X in 1..L)", "`X` has a meaning already"),
            ("sum(norm(W[L]) for L in 1..2)", "`L` has a meaning already"),
            ("sum(sum(norm(W[j]) for j in 1..L) for j in 1..L)", "`j` has a meaning already"),
            ("sum(norm(W[j]) for j in 1..D)", "`D` is no size letter, so that this range is not known"),
            ("norm(W[1] for l in 1..L)", "`norm` cannot be taken over a range"),
            ("norm(W[1]) for all l in 1..L", "a statement is needed before `for all in`"),
            ("sum(norm(W[l]) <= 1 for l in 1..L)", "takes numbers or matrices. Got a statement"),
            ("at(norm(X), W = X)", "`at` replaces single variables, and `W` is a family"),
            ("S[1] + X", "cannot add"),
            ("at(norm(X), W[1] = X)", r"`at` needs matrix n\[1\] x n\[0\] for `W\[1\]`. Got matrix n\[0\] x N"),
            ("at(norm(X), W[j] = W[1])", "unknown letter of an index `j`"),
            ("at(norm(X), X[1] = X)", r"`at` can replace free variables only, and `X\[1\]` is none"),
        ],
    )
    def test_what_does_not_fit(self, text, message):
        with pytest.raises(ExpressionError, match=message):
            typed(text)

    def test_letters_stay_distinct_where_their_numbers_are_equal(self):
        with pytest.raises(ExpressionError, match="inner sizes m and N differ"):
            infer(parse("S*Y"), {"S": matrix("m", "m"), "Y": matrix("N", 1)}, sizes=SIZES)
        assert infer(parse("S*ones(2)"), {"S": matrix("m", "m")}, sizes=SIZES).type == matrix("m")

    def test_the_way_round_is_suggested(self):
        with pytest.raises(ExpressionError) as caught:
            typed("prod(W[l] for l in 1..L)")
        assert caught.value.hint == "let the range run down, as in l in L..1"


class TestWrittenOut:
    @pytest.mark.parametrize(
        ("text", "depth", "out"),
        [
            ("sum(norm(W[l]) for l in 1..L)", 3, "norm(W[1]) + norm(W[2]) + norm(W[3])"),
            ("prod(W[l] for l in L..1)", 3, "W[3]*W[2]*W[1]"),
            ("prod(c[l] for l in 1..L-1)", 1, "1"),
            ("sum(c[l] for l in 1..L-1)", 1, "0"),
            ("sum(S[l] for l in 2..L)", 1, "zeros(m, m)"),
            ("prod(S[l] for l in 2..L)", 1, "I(m)"),
            ("prod(W[k] for k in L..2)*W[1]", 1, "I(n[1])*W[1]"),
            ("max(norm(W[l]) for l in 1..L)", 1, "norm(W[1])"),
            ("max(norm(W[l]) for l in 1..L)", 2, "max(norm(W[1]), norm(W[2]))"),
            ("sum(l*c[l]^l for l in 1..L)", 2, "1*c[1]^1 + 2*c[2]^2"),
            ("zeros(n[L-1], n[0])", 2, "zeros(n[1], n[0])"),
            ("c[l] <= 1 for all l in 1..L", 2, "c[1] <= 1 and c[2] <= 1"),
            ("c[l] <= 1 for some l in 1..L", 2, "c[1] <= 1 or c[2] <= 1"),
            ("c[l] <= 1 for all l in 2..L", 1, "0 < 1"),
            ("c[l] <= 1 for some l in 2..L", 1, "0 > 1"),
            ("grad(norm(W[L]), W[1])", 2, "grad(norm(W[2]), W[1])"),
            ("norm(at(W[L], W[l] = 2*W[l])) <= 1 for all l in L..L", 2, "norm(at(W[2], W[2] = 2*W[2])) <= 1"),
            ("c[j] <= c[i] for all i in 1..j for some j in 1..L", 2, "c[1] <= c[1] or c[2] <= c[1] and c[2] <= c[2]"),
        ],
    )
    def test_for_a_depth(self, text, depth, out):
        assert written(text, depth) == out

    def test_a_balanced_product_keeps_the_order(self):
        names = [node.name for node in typed_walk("prod(W[l] for l in L..1)", 4)]
        assert names == ["W[4]", "W[3]", "W[2]", "W[1]"]

    @pytest.mark.parametrize(
        ("text", "depth", "message"),
        [
            ("W[L+1]", 1, r"`W\[L\+1\]` is W\[2\], which is no member of `W`, which has W\[1\]"),
            ("W[0]", 3, r"`W\[0\]` is no member of `W`, which has W\[1\] to W\[3\]"),
            ("sum(norm(W[l-1]) for l in 1..L)", 2, r"is W\[0\], which is no member"),
            ("at(norm(X), W[L-1] = 0*W[L-1])", 1, "no member of `W`"),
            ("max(norm(W[l]) for l in 2..L)", 1, "`max` over an empty range has no value"),
            ("min(norm(W[l]) for l in 2..L)", 1, "`min` over an empty range has no value"),
            ("sum(norm(W[1]) for l in 1..1000)", 1, "at most 64 members"),
            ("sum(sum(sum(norm(W[1]) for i in 1..60) for j in 1..60) for k in 1..60)", 1, "more than 20000 parts"),
        ],
    )
    def test_what_has_no_meaning_at_a_depth(self, text, depth, message):
        with pytest.raises(ExpressionError, match=message):
            written(text, depth)


def typed_walk(text: str, depth: int) -> list[Expr]:
    members = {name: frozenset(range(name != "n", depth + 1)) for name in FAMILIES}
    tree = Expansion({"L": depth}, members).formula(typed(text))
    return [node for node in tree.walk() if node.name]
