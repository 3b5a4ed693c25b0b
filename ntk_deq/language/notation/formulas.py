"""Tree to SymPy and to LaTeX. SymPy takes a third of a second to import, so it waits until it is asked for.

Variables that are said to exist, in the notations: text, LaTeX, MathML, SymPy.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ntk_deq.language.domain import Domain, DomainKind, Free
from ntk_deq.language.format import format_expr, printed
from ntk_deq.language.notation import latex_letter, symbol
from ntk_deq.language.tree import Expr
from ntk_deq.language.types import ONE, Size, Sort

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


_LETTERS = {
    DomainKind.REAL: ("R", "", ""),
    DomainKind.NONNEGATIVE: ("R", "≥0", r"\geq 0"),
    DomainKind.POSITIVE: ("R", ">0", "> 0"),
    DomainKind.SYMMETRIC: ("S", "", ""),
    DomainKind.PSD: ("S", "+", "+"),
}
"""Sets that have a letter: the letter, and its index in text and in LaTeX."""


def exists_text(free: Free) -> str:
    """Return that a variable exists as text.

    Example:
        >>> from ntk_deq.language.domain import parse_domain
        >>> from ntk_deq.language.types import matrix
        >>> exists_text(Free("P", matrix("n", "n"), parse_domain("psd")[0]))
        '∃ P in psd[n, n]'
    """
    return f"∃ {free.name} in {_words(free.domain)}{_brackets(free)}"


def exists_latex(free: Free) -> str:
    r"""Return that a variable exists in LaTeX, without dollar signs.

    Example:
        >>> from ntk_deq.language.domain import parse_domain
        >>> from ntk_deq.language.types import matrix
        >>> exists_latex(Free("P", matrix("n", "n"), parse_domain("psd")[0]))
        '\\exists P \\in \\mathbb{S}_{+}^{n}'
        >>> exists_latex(Free("C1", matrix("n", "m"), parse_domain("(0, 1]")[0]))
        '\\exists C_{1} \\in (0, 1]^{n \\times m}'
    """
    parts = symbol(free.name)
    name = latex_letter(parts.base)
    name = rf"\{parts.accent}{{{name}}}" if parts.accent else name
    name += f"_{{{parts.subscript}}}" if parts.subscript else ""
    letter, _, index = _LETTERS.get(free.domain.kind, ("", "", ""))
    if letter:
        base = rf"\mathbb{{{letter}}}" + (f"_{{{index}}}" if index else "")
    elif free.domain.kind is DomainKind.INTERVAL:
        base = _words(free.domain)
    else:
        base = rf"\mathrm{{{_words(free.domain)}}}".replace("_", r"\_")
    power = _power(free, r" \times ")
    return rf"\exists {name} \in {base}" + (f"^{{{power}}}" if power else "")


def exists_mathml(free: Free) -> str:
    """Return a `<math display="block">` element that says that a variable exists.

    Example:
        >>> from ntk_deq.language.domain import parse_domain
        >>> from ntk_deq.language.types import SCALAR
        >>> exists_mathml(Free("C", SCALAR, parse_domain("positive")[0]))[22:66]
        '<mrow><mo>∃</mo><mi>C</mi><mo>∈</mo><msub><m'
    """
    parts = symbol(free.name)
    name = f"<mi>{escape(parts.base)}</mi>"
    name = f"<mover>{name}<mo>{_ACCENTS[parts.accent]}</mo></mover>" if parts.accent else name
    name = f"<msub>{name}<mtext>{escape(parts.subscript)}</mtext></msub>" if parts.subscript else name
    letter, index, _ = _LETTERS.get(free.domain.kind, ("", "", ""))
    base = (
        f'<mi mathvariant="double-struck">{letter}</mi>' if letter else f"<mtext>{escape(_words(free.domain))}</mtext>"
    )
    power = escape(_power(free, " × "))
    if index and power:
        shown = f"<msubsup>{base}<mtext>{escape(index)}</mtext><mtext>{power}</mtext></msubsup>"
    elif index:
        shown = f"<msub>{base}<mtext>{escape(index)}</mtext></msub>"
    else:
        shown = f"<msup>{base}<mtext>{power}</mtext></msup>" if power else base
    return f'<math display="block"><mrow><mo>∃</mo>{name}<mo>∈</mo>{shown}</mrow></math>'


def exists_sympy(free: Free) -> sympy.Basic:
    """Return that a variable exists as a SymPy object: a `Statement` with the variable's name and its domain.

    Example:
        >>> from ntk_deq.language.domain import parse_domain
        >>> from ntk_deq.language.types import SCALAR
        >>> str(exists_sympy(Free("C", SCALAR, parse_domain("positive")[0])))
        'Statement(exists, C, positive)'
    """
    from sympy.core.symbol import Str

    from ntk_deq.language.notation.sympy import Statement

    return Statement(Str("exists"), Str(free.name), Str(_words(free.domain) + _brackets(free)))


_ACCENTS = {"hat": "^", "bar": "¯", "tilde": "~", "dot": "˙"}


def _words(domain: Domain) -> str:
    return " ".join((domain.text or domain.kind.value).split())


def _sizes(free: Free) -> list[Size]:
    if free.type.sort is not Sort.MATRIX:
        return []
    return [free.type.rows] if free.type.cols == ONE else [free.type.rows, free.type.cols]


def _brackets(free: Free) -> str:
    sizes = _sizes(free)
    return f"[{', '.join(map(str, sizes))}]" if sizes else ""


def _power(free: Free, times: str) -> str:
    sizes = _sizes(free)
    if free.domain.kind in (DomainKind.SYMMETRIC, DomainKind.PSD):  # a letter for square ones
        sizes = sizes[:1]
    return times.join(str(size).replace("*", " ") for size in sizes)
