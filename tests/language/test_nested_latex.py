"""LaTeX of formulas that stand in each other many deep: every part is printed once."""

import pytest

from ntk_deq.language.notation.latex import latex
from ntk_deq.language.parser import parse
from ntk_deq.language.types import matrix
from ntk_deq.language.typing import infer


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("pinv(", ")"), ("sqrtm(", ")")])
def test_nested_calls(opening, closing):
    deep = infer(parse(f"norm({opening * 30}A{closing * 30})"), {"A": matrix("n", "n")})
    once = infer(parse(f"norm({opening}A{closing})"), {"A": matrix("n", "n")})
    assert len(latex(deep)) < 40 * len(latex(once))
