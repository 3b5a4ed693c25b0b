"""Numbers and formulas as the HTML page sets them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass

from markupsafe import Markup

from ntk_deq.language.format import short_decimal
from ntk_deq.language.interval import Margin
from ntk_deq.language.notation.mathml import to_mathml
from ntk_deq.language.tree import Expr, Kind, Span
from ntk_deq.report.console import margin_words, short_margin, short_number

# The elements of MathML Core that formulas are made of; nothing here can load or run anything.
_MATHML = frozenset(
    "math mrow mi mo mn ms mtext mspace mpadded mphantom mstyle merror mfrac msqrt mroot msub msup msubsup munder "
    "mover munderover mmultiscripts mprescripts none mtable mtr mtd menclose semantics annotation".split()
)

_NAMESPACE = "{http://www.w3.org/1998/Math/MathML}"


@dataclass(frozen=True)
class Cell:
    """A number of a matrix: short to read, exact in the tool tip."""

    short: str
    exact: str


def typeset_number(text: str) -> str:
    """Return a number written in ASCII with a true minus sign, `±` and `∞`.

    Example:
        >>> typeset_number("-0.5 +/- 1e-17"), typeset_number("-inf")
        ('−0.5 ± 1e−17', '−∞')
    """
    text = re.sub(r"-(?=[\d.]|inf)", "−", text.replace("+/-", "±"))
    return re.sub(r"\binf\b", "∞", text)


def number_cell(value: float) -> Cell:
    """Return a measured number as a cell, rounded to four digits."""
    return Cell(typeset_number(short_number(value)), repr(float(value)))


def value_cell(value: float) -> Cell:
    """Return a value of an instance as a cell: the number itself, or its first digits with an ellipsis."""
    return Cell(typeset_number(short_decimal(value)), repr(float(value)))


def margin_cell(margin: Margin | None, scale: float = 0.0) -> Cell:
    """Return a margin ball as a cell, also relative to its scale where that is known; its tool tip has both ends."""
    if margin is None:
        return Cell("–", "no margin")
    words = margin_words(margin, scale) if scale else short_margin(margin)
    return Cell(typeset_number(words), f"[{margin.lo!r}, {margin.hi!r}]")


def safe_mathml(text: str) -> Markup | None:
    """Return MathML as markup where it parses and holds MathML elements only, without handlers or links; else None."""
    if not text.strip() or "<!" in text or "<?" in text:
        return None
    whole = text if text.lstrip().startswith("<math") else f"<math>{text}</math>"
    try:
        root = ET.fromstring(whole)
    except ET.ParseError:
        return None
    for element in root.iter():
        name = str(element.tag).removeprefix(_NAMESPACE)
        if name not in _MATHML or any(k.lower().startswith("on") or "href" in k.lower() for k in element.attrib):
            return None
        if name == "annotation" and len(element):
            return None
    return Markup(whole)


def symbol(name: str) -> Markup | None:
    """Return the name of a variable typeset, or None where it is not a name of the claim language.

    Example:
        >>> print(symbol("gamma0"))
        <math display="block"><msub><mi>γ</mi><mn>0</mn></msub></math>
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        return None
    return safe_mathml(to_mathml(Expr(Kind.NAME, Span(0, len(name)), name=name)))
