"""How formulas are set: MathML, and LaTeX that is read off it; here names taken apart, and elements put together.

A terminal shows formulas as `format` writes them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from html import escape

GREEK = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "delta": "δ",
    "epsilon": "ε",
    "eps": "ε",
    "zeta": "ζ",
    "eta": "η",
    "theta": "θ",
    "iota": "ι",
    "kappa": "κ",
    "lambda": "λ",
    "lam": "λ",
    "mu": "μ",
    "nu": "ν",
    "xi": "ξ",
    "pi": "π",
    "rho": "ρ",
    "sigma": "σ",
    "tau": "τ",
    "upsilon": "υ",
    "phi": "φ",
    "chi": "χ",
    "psi": "ψ",
    "omega": "ω",
    "Gamma": "Γ",
    "Delta": "Δ",
    "Theta": "Θ",
    "Lambda": "Λ",
    "Xi": "Ξ",
    "Pi": "Π",
    "Sigma": "Σ",
    "Upsilon": "Υ",
    "Phi": "Φ",
    "Psi": "Ψ",
    "Omega": "Ω",
}
"""Letters by the name they are written with."""

_ACCENTS = ("hat", "bar", "tilde", "dot")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name taken apart.

    Attributes:
        base: A letter, a Greek letter, or a word.
        accent: `hat`, `bar`, `tilde`, `dot` or nothing.
        subscript: Text of the subscript, Greek letters in place, or nothing.
    """

    base: str
    accent: str = ""
    subscript: str = ""

    @property
    def is_word(self) -> bool:
        """Whether the base is a word, which is set upright."""
        return len(self.base) > 1


def symbol(name: str) -> Symbol:
    """Take a name apart into letter, accent and subscript.

    Example:
        >>> symbol("gamma0"), symbol("yhat").accent, symbol("ZZ").base, symbol("A_min_0").subscript
        (Symbol(base='γ', accent='', subscript='0'), 'hat', 'ZZ', 'min,0')
        >>> symbol("W[2]")
        Symbol(base='W', accent='', subscript='2')
    """
    if name.endswith("]"):
        family = symbol(name.partition("[")[0])
        index = name.partition("[")[2][:-1]
        return replace(family, subscript=f"{family.subscript},{index}" if family.subscript else index)
    head, _, tail = name.strip("_").partition("_")
    if not head:
        return Symbol(name)
    subscript = ",".join(_letter(part) for part in tail.split("_") if part)
    digits = re.search(r"[0-9]+$", head)
    if digits and digits.start() > 0:
        subscript = digits.group() + ("," + subscript if subscript else "")
        head = head[: digits.start()]
    for accent in _ACCENTS:
        if head.endswith(accent) and _is_letter(head[: -len(accent)]):
            return Symbol(_letter(head[: -len(accent)]), accent, subscript)
    return Symbol(_letter(head), "", subscript)


def _is_letter(text: str) -> bool:
    return len(text) == 1 or text in GREEK


def _letter(text: str) -> str:
    return GREEK.get(text, text)


def tag(name: str, *parts: str, **attributes: str) -> str:
    """Return an element."""
    given = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items())
    return f"<{name}{given}>{''.join(parts)}</{name}>"


def group(*parts: str) -> str:
    """Return parts side by side, one part alone as it is."""
    return parts[0] if len(parts) == 1 else tag("mrow", *parts)


def mi(text: str) -> str:
    """Return an identifier."""
    return tag("mi", escape(text))


def mn(text: str) -> str:
    """Return a number."""
    return tag("mn", escape(text))


def mo(text: str, **attributes: str) -> str:
    """Return an operator."""
    return tag("mo", escape(text), **attributes)


def words(text: str) -> str:
    """Return words between formulas."""
    return tag("mtext", escape(f"\N{NO-BREAK SPACE}{text}\N{NO-BREAK SPACE}"))


def fenced(inner: str, left: str = "(", right: str = ")") -> str:
    """Return something in brackets."""
    return group(mo(left, stretchy="true"), inner, mo(right, stretchy="true"))


def applied(head: str, inner: str = "{}") -> str:
    """Return a head and its arguments in brackets."""
    return group(head, mo("\N{FUNCTION APPLICATION}"), fenced(inner))


def word(name: str, inner: str = "{}") -> str:
    """Return an upright word and its arguments in brackets."""
    return applied(tag("mi", escape(name), mathvariant="normal"), inner)


def small(bracket: str) -> str:
    """Return a bracket that does not grow."""
    return mo(bracket, stretchy="false")
