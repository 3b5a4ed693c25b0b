"""Elements of presentation MathML as text; every text in them is escaped."""

from __future__ import annotations

from html import escape


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


def small(bracket: str) -> str:
    """Return a bracket that does not grow."""
    return mo(bracket, stretchy="false")
