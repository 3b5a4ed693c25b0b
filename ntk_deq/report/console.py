"""How every line reaches the terminal: never as markup, control characters made visible, within what it can encode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from rich.console import Console
from rich.text import Text

from ntk_deq.report.text import printable

Piece: TypeAlias = str | tuple[str, str]
"""A text, plain or with a rich style."""

# What a terminal without Unicode gets in place of the signs used here; any other character becomes an escape.
_ASCII = str.maketrans(
    {"±": "+/-", "…": "~", "·": "*", "×": "x", "−": "-", "–": "-", "≤": "<=", "≥": ">=", "≠": "!=", "■": "#", "✓": "+",
     "✗": "x", "∅": "0", "∞": "inf", "⎡": "[", "⎢": "[", "⎣": "[", "⎤": "]", "⎥": "]", "⎦": "]", "│": "|", "─": "-"}
)  # fmt: skip


def showable(console: Console, text: str) -> str:
    """Return `text` as this console can show it."""
    text = printable(text)
    if text.isascii() or console.encoding.startswith("utf"):
        return text
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")


def say(console: Console, *pieces: Piece, indent: int = 0, wrap: bool = True) -> None:
    """Print one paragraph.

    Args:
        console: Where.
        pieces: Texts in order, each plain or as a pair (text, style).
        indent: Columns to leave free on the left, on every line.
        wrap: Whether a long line is broken at the console's width; if not, it is cut there.
    """
    say_hanging(console, [" " * indent], pieces, wrap=wrap)


def say_hanging(console: Console, lead: Sequence[Piece], pieces: Sequence[Piece], *, wrap: bool = True) -> None:
    """Print one paragraph after a lead; its further lines start below its first one.

    Args:
        console: Where.
        lead: What stands to the left of the first line.
        pieces: The paragraph.
        wrap: As for `say`.
    """
    left, text = _text(console, lead), _text(console, pieces)
    width = max(console.width - left.cell_len, 20)
    if wrap and (text.cell_len > width or "\n" in text.plain):
        lines = list(text.wrap(console, width, overflow="fold"))
    else:
        text.truncate(width, overflow="crop")
        lines = [text]
    paragraph = []
    for number, line in enumerate(lines or [Text()]):
        shown = left.copy() if number == 0 else Text(" " * left.cell_len)
        shown.append_text(line)
        shown.rstrip()
        paragraph.append(shown)
    console.print(Text("\n").join(paragraph), soft_wrap=True, highlight=False, markup=False, emoji=False)


def say_line(console: Console, text: str) -> None:
    """Print one line, however long, as other programs read it."""
    console.print(Text(showable(console, text)), soft_wrap=True, highlight=False, emoji=False)


def _text(console: Console, pieces: Sequence[Piece]) -> Text:
    text = Text()
    for piece in pieces:
        content, style = (piece, "") if isinstance(piece, str) else piece
        text.append(showable(console, content), style)
    return text
