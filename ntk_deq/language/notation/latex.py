"""LaTeX, read off MathML: how a formula is set is decided once, by `mathml`, and spelt in two languages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from xml.etree.ElementTree import XMLParser

from ntk_deq.language.notation import GREEK
from ntk_deq.language.notation.mathml import to_mathml
from ntk_deq.language.tree import Expr

_LETTERS = {letter: f"\\{name}" for name, letter in GREEK.items() if name not in ("lam", "eps")}
_LETTERS |= {"ℓ": r"\ell", "∞": r"\infty", "∑": r"\sum"}
_OPERATORS = frozenset({"arccos", "arctan", "cos", "det", "exp", "log", "max", "min", "sin", "tanh"})
_WORDS = {"and": r" \wedge ", "or": r" \vee ", "not": r"\neg "}
_ACCENTS = {"^": r"\hat", "¯": r"\bar", "~": r"\tilde", "˙": r"\dot"}
_SIGNS = {"\N{INVISIBLE TIMES}": " ", "\N{FUNCTION APPLICATION}": "", ",": ", ", "−": "-", ":": " : "}
_SIGNS |= {"‖": r"\|", "⟨": r"\langle ", "⟩": r"\rangle", "⊤": r"\top", "∞": r"\infty", "…": r"\ldots"}
_SIGNS |= {"∇": r"\nabla", "∂": r"\partial", "∀": r"\forall", "∃": r"\exists", "∑": r"\sum", "∏": r"\prod"}
_BETWEEN = {"=": "=", "<": "<", ">": ">", "≤": r"\leq", "≥": r"\geq", "≠": r"\neq", "≻": r"\succ", "⪰": r"\succeq"}
_BETWEEN |= {"·": r"\cdot", "×": r"\times", "⊗": r"\otimes", "⊙": r"\odot", "⊕": r"\oplus", "∗": r"\ast"}
_BETWEEN |= {"∈": r"\in", "↦": r"\mapsto"}
_STRETCHED = "\0"  # what a bracket that grows starts with, until its row is whole


def to_latex(expr: Expr) -> str:
    r"""Return the LaTeX of a tree, without dollar signs.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> to_latex(parse("norm(A')^2 <= 1/(1 - q)"))
        '\\left\\|A^{\\top}\\right\\|^{2} \\leq \\frac{1}{1 - q}'
    """
    return latex(to_mathml(expr))


def latex(mathml: str) -> str:
    r"""Return a formula of `mathml` in LaTeX.

    Example:
        >>> latex("<math><mrow><mi>α</mi><mo>⊗</mo><msub><mi>σ</mi><mi>min</mi></msub></mrow></math>")
        '\\alpha \\otimes \\sigma_{\\min}'
    """
    parser = XMLParser(target=_Reader())
    parser.feed(mathml)
    return str(parser.close())


class _Reader:
    """Puts an element into words once its parts are; no recursion, so that no depth exhausts the stack."""

    def __init__(self) -> None:
        self._open: list[tuple[Mapping[str, str], list[str]]] = [({}, [])]

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._open.append((attributes, []))

    def data(self, text: str) -> None:
        self._open[-1][1].append(text)

    def end(self, tag: str) -> None:
        attributes, parts = self._open.pop()
        self._open[-1][1].append(_TAGS[tag](parts, attributes))

    def close(self) -> str:
        return self._open[0][1][0].strip()


def _row(parts: Sequence[str], attributes: Mapping[str, str]) -> str:
    fences = [part for part in parts if part.startswith(_STRETCHED)]
    text, sides = "" if len(fences) != 1 else r"\left. ", iter([r"\left", r"\right"][len(fences) % 2 :])
    for part in parts:
        shown = next(sides) + part[1:] if part.startswith(_STRETCHED) else part
        apart = re.search(r"[\w}]$", text) and re.match(r"\w|\\(?!left|right)", shown)
        text += f" {shown}" if apart else shown.lstrip() if text.endswith(" ") else shown
    return text


def _identifier(parts: Sequence[str], attributes: Mapping[str, str]) -> str:
    name, variant = "".join(parts), attributes.get("mathvariant")
    if variant == "double-struck":
        return rf"\mathbb{{{name}}}"
    if name in _OPERATORS:
        return f"\\{name}"
    letter = _LETTERS.get(name, _escaped(name))
    if len(name) == 1 or name.isdigit():
        return letter
    plain = letter.removesuffix("′")
    return rf"\{'operatorname' if variant else 'mathrm'}{{{plain}}}" + "'" * (len(letter) - len(plain))


def _sign(parts: Sequence[str], attributes: Mapping[str, str]) -> str:
    sign = "".join(parts)
    if attributes.get("stretchy") == "true":
        return _STRETCHED + _SIGNS.get(sign, sign)
    if attributes.get("form") == "infix":
        return f" {_SIGNS.get(sign, sign)} "
    return f" {_BETWEEN[sign]} " if sign in _BETWEEN else _SIGNS.get(sign, sign)


def _words(parts: Sequence[str], attributes: Mapping[str, str]) -> str:
    text = "".join(parts).strip()
    if text in _WORDS:
        return _WORDS[text]
    return rf"\mathrm{{{_escaped(text)}}}" if re.fullmatch(r"[\w ]+", text) else _escaped(text)


def _escaped(text: str) -> str:
    return re.sub(r"([#$%&_{}])", r"\\\1", text)


def _pattern(pattern: str) -> Callable[[Sequence[str], Mapping[str, str]], str]:
    return lambda parts, attributes: pattern.format(*map(str.strip, parts))


_TAGS: dict[str, Callable[[Sequence[str], Mapping[str, str]], str]] = {
    "math": _row,
    "mrow": _row,
    "mi": _identifier,
    "mn": lambda parts, attributes: "".join(parts),
    "mo": _sign,
    "mtext": _words,
    "mspace": lambda parts, attributes: r"\quad " if attributes["width"] == "1em" else "",
    "mover": lambda parts, attributes: rf"{_ACCENTS[parts[1]]}{{{parts[0]}}}",
    "mfrac": _pattern(r"\frac{{{}}}{{{}}}"),
    "msqrt": _pattern(r"\sqrt{{{}}}"),
    "msub": _pattern("{}_{{{}}}"),
    "munder": lambda parts, attributes: f"{parts[0].replace('{', '*{', 1)}_{{{parts[1]}}} ",
    "msup": _pattern("{}^{{{}}}"),
    "msubsup": _pattern("{}_{{{}}}^{{{}}}"),
    "munderover": _pattern("{}_{{{}}}^{{{}}} "),
    "mtd": _row,
    "mtr": lambda parts, attributes: " & ".join(parts),
    "mtable": lambda parts, attributes: r"\begin{matrix} " + r" \\ ".join(parts) + r" \end{matrix}",
}
