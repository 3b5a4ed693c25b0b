"""Entries, rows, columns, blocks and literals of matrices: how they are written, their shapes, what is refused."""

from __future__ import annotations

import pytest
from expression_samples import bare

from ntk_deq.errors import ExpressionError
from ntk_deq.language.format import format_expr
from ntk_deq.language.notation.latex import to_latex
from ntk_deq.language.parser import parse
from ntk_deq.language.shapes import Shapes
from ntk_deq.language.tree import Expr, Kind, Sign
from ntk_deq.language.types import SCALAR, STEP, Size, SizeRange, matrix
from ntk_deq.language.typing import infer

SIZES = {"n": SizeRange(2, 6), "m": SizeRange(1, 4)}
TYPES = {"A": matrix("n", "m"), "B": matrix("n", "n"), "v": matrix("n"), "c": SCALAR}


def typed(text: str, sizes: dict[str, SizeRange] | None = None) -> Expr:
    return infer(parse(text), TYPES, sizes=SIZES if sizes is None else sizes)


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("A{1, 1}", "scalar"),
        ("A{n, m}", "scalar"),
        ("v{n - 1}", "scalar"),
        ("v{2..n}", "vector n - 1"),
        ("v{1..2}", "vector 2"),
        ("A{2, :}", "matrix 1 x m"),
        ("A{1..n - 1, :}", "matrix n - 1 x m"),
        ("A{:, m}", "vector n"),
        ("A{:, 1..m}", "matrix n x m"),
        ("B{1..n - 1, 2..n}", "matrix n - 1 x n - 1"),
        ("A{1, 1..m}", "matrix 1 x m"),
        ("A'{m, 2}", "scalar"),
        ("(A*A'){1, 2}", "scalar"),
        ("A{2, :}'", "vector m"),
        ("[A, v]", "matrix n x m + 1"),
        ("[A; v']", None),
        ("[B; v']", "matrix n + 1 x n"),
        ("[B, A; A', I(m)]", "matrix m + n x m + n"),
        ("[1, 2; 3, 4]", "matrix 2 x 2"),
        ("[c]", "vector 1"),
        ("[c; 2*c]", "vector 2"),
        ("[[1, 2; 3, 4], [c; 1]]", "matrix 2 x 3"),
        ("blockdiag(A, c, B)", "matrix 2*n + 1 x m + n + 1"),
        ("[1, 2; 3, 4]{1, 2}", "scalar"),
    ],
)
def test_shapes_and_canonical_text(text: str, type_: str | None) -> None:
    if type_ is None:
        with pytest.raises(ExpressionError, match="one above the other: columns m and n differ"):
            typed(text)
        return
    expr = typed(text)
    assert str(expr.type) == type_
    assert format_expr(expr) == text
    assert bare(parse(format_expr(expr))) == bare(expr)
    assert to_latex(expr).count("{") == to_latex(expr).count("}")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("A{1..n, 2..2}", "A{1..n, 2}"),
        ("A{2..2, :}", "A{2, :}"),
        ("A{1..1, 1..1}", "A{1..1, 1}"),
        ("v{1..1}", "v{1..1}"),
        ("A{:, :}", "A"),
        ("[[c]; [1]]", "[c; 1]"),
        ("[1,2 ;3,4]", "[1, 2; 3, 4]"),
        ("[A, B;]", None),
    ],
)
def test_other_ways_to_write_the_same(text: str, same: str | None) -> None:
    if same is None:
        with pytest.raises(ExpressionError):
            parse(text)
        return
    assert format_expr(parse(text)) == same
    assert format_expr(parse(same)) == same


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("A{0, 1}", "indices count from 1. Got 0.", None),
        ("v{1 - 1}", "indices count from 1. Got 0.", None),
        ("v{n - 2}", "indices count from 1. Got n - 2, which is 0 where n = 2.", None),
        ("A{n + 1, 1}", "row n + 1 does not exist: matrix n x m has n of them.", None),
        (
            "A{1, 2}",
            "column 2 does not exist where m = 1: matrix n x m has m of them.",
            "let the sizes of m start higher under `sizes`",
        ),
        ("v{3}", "entry 3 does not exist where n = 2: vector n has n of them.", "let the sizes of n start higher"),
        ("v{2..1}", "the range 2..1 is empty.", None),
        ("v{n..2}", "the range n..2 is empty where n = 3.", None),
        ("A{1}", "v{i} needs a vector. Got matrix n x m.", "write A{i, j} for an entry"),
        ("A{1..2}", "v{i..p} needs a vector. Got matrix n x m.", "write A{i..p, :} for rows"),
        ("A{c, 1}", "`c` is no size letter.", "size letters: n, m"),
        ("A{1.5, 1}", "an index must be an integer", None),
        ("A{n/2, 1}", "an index of an entry may be made of whole numbers and size letters with + - and * only.", None),
        ("A{1, 1, 1}", "a piece of a matrix has at most two indices, as in A{i, j}. Got 3.", None),
        ("c{1, 1}", "{i, j} needs a matrix. Got a scalar.", None),
        ("{1, 2}", "unexpected '{'.", "braces stand behind a matrix, as in A{i, j}; brackets are ( )"),
        ("A{1, 2", "the expression ends too early.", "close the bracket with }"),
        ("A{:}", "v{i..p} needs", None),
        ("[1, 2; 3]", "cannot put matrix 1 x 2 and a scalar one above the other: columns 2 and 1 differ.", None),
        ("[A, B; B, A'*A]", "cannot put", None),
        ("[A; B]", "cannot put matrix n x m and matrix n x n one above the other: columns m and n differ.", None),
        ("[A, B']{1, 1} + [v, c]", "cannot put vector n and a scalar side by side: rows n and 1 differ.", None),
        ("[1, ; 3]", "unexpected ';'.", "an entry is missing"),
        ("[1, 2,, 3]", "unexpected ','.", None),
        ("[]", "unexpected ']'.", None),
        ("[1; 2", "the expression ends too early.", "close the bracket with ]"),
        ("[[1, 2], [3, 4]]", "rows of a matrix are separated by semicolons.", "write [1, 2; 3, 4]"),
        ("[c < 1, 2]", "[,] needs a scalar or matrix. Got a boolean.", None),
        ("c; 2", "unexpected ';'.", "outside of [ ]"),
    ],
)
def test_bad_pieces_are_refused(text: str, message: str, hint: str | None) -> None:
    if text == "A{:}":  # all of it, which no one needs to write and which is no error
        assert format_expr(parse(text)) == "A"
        return
    with pytest.raises(ExpressionError) as caught:
        typed(text)
    assert message in caught.value.message
    if hint is not None:
        assert hint in (caught.value.hint or "")


def test_an_index_that_no_size_decides_is_left_to_the_instance() -> None:
    wide = {"n": SizeRange(1, 10**6), "m": SizeRange(1, 10**6), "p": SizeRange(1, 10**6)}
    types = {"A": matrix("n", "m")}
    assert str(infer(parse("A{n, m}"), types, sizes=wide).type) == "scalar"
    with pytest.raises(ExpressionError, match="row p does not exist where"):
        infer(parse("A{p, 1}"), types, sizes=wide)


def test_which_sizes_are_at_least_a_bound() -> None:
    n, m = Size.letter("n"), Size.letter("m")
    few, many = Shapes(SIZES), Shapes({"n": SizeRange(2, 10**6), "m": SizeRange(1, 10**6)})
    for shapes in (few, many):
        assert shapes.least(n * m - 2, 0) is True
        assert shapes.least(n - 3, 0) == {"n": 2}
    assert few.least(n - m, 0) == {"m": 3, "n": 2}
    assert many.least(n - m, 0) == {"m": 10**6, "n": 2}
    long = Size.of(1)
    for letter in "abcdefghijkl" * 2:
        long = long * Size.letter(letter)
    wide = Shapes({letter: SizeRange(2, 10**6) for letter in "abcdefghijkl"})
    assert wide.least(long, 1) is False  # which is not worth 3^12 terms
    # (n - 50)^2 is never negative, which neither the ends of the range nor the signs of coefficients show.
    assert many.least(n * n - n * 100 + 2500, 0) is False
    assert few.least(n * n - n * 100 + 2500, 0) is True
    assert str(n - m), str(m - n * 2 - 1) == ("-m + n", "m - 2*n - 1")


def test_powers_with_symbolic_exponents() -> None:
    assert str(typed("B^n").type) == "matrix n x n"
    assert str(typed("B^(-2*n + 1)").type) == "matrix n x n"
    steps = infer(parse("B^k"), {**TYPES, "k": STEP}, sizes=SIZES)
    assert str(steps.type) == "matrix n x n"
    for text in ("B^c", "B^(n/2)", "B^norm(v)"):
        with pytest.raises(ExpressionError, match="must be a whole number"):
            typed(text)
    with pytest.raises(ExpressionError, match=r"goes from -1000 to 1000\. Got -1200 where n = 6"):
        typed("B^(-200*n)")


def test_what_stands_in_a_tree() -> None:
    assert (parse("A{1, 2}").kind, parse("A{1, 2}").name) == (Kind.CALL, Sign.ENTRY)
    assert [part.name for part in parse("[1, 2; 3, 4]").args] == [Sign.ROW, Sign.ROW]


def test_psd_is_written_out_as_a_comparison() -> None:
    expr = typed("psd(B - v*v')")
    assert (expr.kind, expr.operators) == (Kind.COMPARE, (">=",))
    assert format_expr(expr) == "lambda_sym(B - v*v') >= 0"
    assert to_latex(expr) == r"B \succeq v v^{\top}"
    assert to_latex(typed("psd(B)")) == r"B \succeq 0"
    with pytest.raises(ExpressionError, match="psd needs a square matrix"):
        typed("psd(A)")
    with pytest.raises(ExpressionError, match="Got a statement"):
        typed("psd(B) >= 1")
    assert typed("psd(B) and not psd(-B)").kind is Kind.AND
