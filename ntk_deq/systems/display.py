"""One table of facts for notebooks, shared by every result that shows itself as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def html_table(title: str, rows: Mapping[str, object]) -> str:
    """Return a two-column HTML table with a caption; every text is escaped.

    Example:
        >>> html_table("Model", {"width": 3})
        '<table><caption>Model</caption><tr><th>width</th><td>3</td></tr></table>'
    """
    body = "".join(
        f"<tr><th>{escape(key, quote=False)}</th><td>{escape(str(value), quote=False)}</td></tr>"
        for key, value in rows.items()
    )
    return f"<table><caption>{escape(title, quote=False)}</caption>{body}</table>"


def one_line(name: str, rows: Mapping[str, object]) -> str:
    """Return the same facts on one line.

    Example:
        >>> one_line("Model", {"width": 3, "dtype": "float64"})
        'Model(width=3, dtype=float64)'
    """
    return f"{name}({', '.join(f'{key}={value}' for key, value in rows.items())})"
