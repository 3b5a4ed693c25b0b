"""Which matrices of a claim count as formed."""

import pytest

from ntk_deq.claims.check import check_memory, keeps_structure
from ntk_deq.errors import ExpressionError, Position
from ntk_deq.language.declaration import Setting
from ntk_deq.language.parser import parse
from ntk_deq.language.shapes import too_large
from ntk_deq.language.types import SizeRange, matrix
from ntk_deq.language.typing import infer

SIZES = {"n": SizeRange(64, 64), "m": SizeRange(256, 256)}
TYPES = {"Z": matrix("n", "m"), "A": matrix("m", "m"), "b": matrix("m"), "v": matrix("n")}


def keeps(text: str) -> bool:
    return keeps_structure(infer(parse(text), TYPES | {"D": matrix("m", "m")}, sizes=SIZES), {"D"})


@pytest.mark.parametrize(
    "text",
    [
        "I(n*m)",
        "kron(A', I(n))",
        "2*I(m) - D",
        "inv(I(m) - D)'",
        "diag(b)*D^2",
        "kron(I(m), Z)",
        "hadamard(D, A)",
        "-D/2",
    ],
)
def test_structure_is_kept(text):
    assert keeps(text)


@pytest.mark.parametrize("text", ["A", "A*D", "A + D", "kron(b, b)", "diag(D)", "D*b", "vec(A)"])
def test_everything_else_is_formed(text):
    assert not keeps(text)


def test_a_matrix_that_is_not_formed_may_be_larger():
    assert too_large(matrix("m", "m"), SIZES) is None
    huge = {"n": SizeRange(20_000, 20_000)}
    assert too_large(matrix("n", "n"), huge) is not None
    assert too_large(matrix("n", "n"), huge, structured=True) is None
    assert too_large(matrix("n", "n"), {"n": SizeRange(2**28, 2**28)}, structured=True) is not None


def test_what_one_formula_keeps_another_is_refused_in_the_same_setting():
    sizes = {"n": SizeRange(20_000, 20_000), "m": SizeRange(1, 1)}
    types = {"D": matrix("n", "n"), "x": matrix("n")}
    setting, smaller = (Setting("s", None, s, {}, {}, None, Position("", 1, 1)) for s in (sizes, SIZES))
    formed, kept, small = (infer(parse(text), types, sizes=sizes) for text in ("D + D", "D", "x'*x"))
    for _ in range(2):
        check_memory(small, setting)
        check_memory(kept, setting, {"D"})
        check_memory(formed, smaller)
        for typed in (formed, kept):
            with pytest.raises(ExpressionError):
                check_memory(typed, setting)
