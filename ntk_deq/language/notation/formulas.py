"""Tree to SymPy and to LaTeX. SymPy takes a third of a second to import, so it waits until it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ntk_deq.language.format import format_expr, printed
from ntk_deq.language.tree import Expr

if TYPE_CHECKING:
    import sympy


def to_sympy(expr: Expr) -> sympy.Basic:
    """Return a typed tree as a SymPy object, nothing evaluated or reordered.

    Matrices are matrix expressions of symbolic size, `kron`, `hadamard`, `inv`, `trace`, `det` SymPy's own; what SymPy
    has no class for (norms, spectra, derivatives, the model's map) is a `Quantity` or `MatrixQuantity`.

    Args:
        expr: A tree from `ntk_deq.language.typing.infer`.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> from ntk_deq.language.typing import infer
        >>> from ntk_deq.language.types import matrix
        >>> to_sympy(infer(parse("A'*A"), {"A": matrix("N", "m")})).shape
        (m, m)
    """
    from ntk_deq.language.notation.sympy import convert

    return convert(printed(expr))


def to_latex(expr: Expr) -> str:
    r"""Return the LaTeX of a typed tree, without dollar signs.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> from ntk_deq.language.typing import infer
        >>> from ntk_deq.language.types import matrix
        >>> to_latex(infer(parse("norm(A')^2 <= 1"), {"A": matrix("N", "m")}))
        '\\left\\|A^{\\top}\\right\\|^{2} \\leq 1'
    """
    from ntk_deq.language.notation.latex import latex

    try:
        return latex(printed(expr))
    except RecursionError:
        # SymPy's printer takes about ten frames a level; a tree near the parser's depth limit is shown as its text.
        return rf"\mathtt{{{_escaped(format_expr(expr))}}}"


def _escaped(text: str) -> str:
    for character in "#$%&_{}":
        text = text.replace(character, "\\" + character)
    return text.replace("^", r"\hat{\ }")
