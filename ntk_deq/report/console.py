"""How every line reaches the terminal: never as markup, control characters made visible, within what it can encode.

Text that is safe and short to show: control characters made visible, numbers in few digits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment, Segments
from rich.text import Text

from ntk_deq.language.format import short_decimal
from ntk_deq.language.types import Margin

# C0 and C1 controls except tab and newline, lone surrogates, the two non-characters XML forbids, and the
# bidirectional overrides that can make a text read differently from what it says.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]")

# A ball around zero that reaches no further than this is shown as `0 ± r`: wider ones deserve both ends.
_NEAR_ZERO = 1e-6

# A ball narrower than this share of its larger end is shown as one number: five digits are printed at most.
_ONE_NUMBER = 1e-5


def printable(text: str) -> str:
    r"""Return `text` with every control character as U+FFFD: valid in XML and harmless in a terminal.

    Example:
        >>> printable("a\x1b[31mb\n")
        'a�[31mb\n'
    """
    return text if text.isprintable() else _UNSAFE.sub("\ufffd", text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Return `text` printable and on one line, its runs of white space collapsed."""
    return " ".join(printable(text).split())


def short_number(value: float, *, digits: int = 4) -> str:
    """Return `value` in at most `digits` significant digits, whole numbers below 100000 in full.

    Args:
        value: Any float, infinities and NaN included.
        digits: Significant digits, at least 1.

    Example:
        >>> short_number(0.12345678), short_number(-3.0), short_number(1.5e-17), short_number(math.inf)
        ('0.1235', '-3', '1.5e-17', 'inf')
    """
    if math.isnan(value) or math.isinf(value):
        return str(float(value))
    if value == int(value) and abs(value) < 1e5:
        return str(int(value))
    text = f"{value:.{digits}g}"
    mantissa, mark, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if mark else mantissa


def short_margin(margin: Margin | None, *, digits: int = 3) -> str:
    """Return a margin ball as one number where it is narrow, and as an interval otherwise; `-` for None.

    Example:
        >>> short_margin(Margin(0.25, 0.25 + 1e-16)), short_margin(Margin(-1e-16, 2e-16)), short_margin(Margin(-1, 2))
        ('0.25', '0 ± 2e-16', '[-1, 2]')
        >>> short_margin(Margin(2.7001e-7, 2.7004e-7))  # as far as it is shown, one number
        '2.7e-7'
    """
    if margin is None:
        return "-"
    low, high = margin.lo, margin.hi
    if low == high:
        return short_number(low, digits=digits)
    size = max(abs(low), abs(high))
    if math.isfinite(size) and low * high > 0 and high - low <= _ONE_NUMBER * size:
        return short_number((low + high) / 2, digits=digits)
    if low * high <= 0 and size <= _NEAR_ZERO:
        return f"0 ± {short_number(size, digits=1)}"
    ends = [short_number(end, digits=digits - 1) for end in (low, high)]
    return ends[0] if ends[0] == ends[1] else f"[{ends[0]}, {ends[1]}]"


def relative_margin(margin: Margin | None, scale: float) -> Margin | None:
    """Return a margin over the size of the terms that its two sides are computed from, or None where that is unknown.

    Example:
        >>> relative_margin(Margin(-6.0, 2.0), 4.0)
        Margin(lo=-1.5, hi=0.5)
    """
    if margin is None or (margin.lo == margin.hi == 0):
        return margin
    if not (0 < scale < math.inf and math.isfinite(margin.lo) and math.isfinite(margin.hi)):
        return None
    return Margin(margin.lo / scale, margin.hi / scale)


def margin_words(margin: Margin | None, scale: float) -> str:
    """Return a margin, and in brackets what it is relative to its scale, where that is known.

    Example:
        >>> margin_words(Margin(-6.7e22, 0.0), 1e35), margin_words(Margin(-1.0, -1.0), 0.0)
        ('[-6.7e22, 0] (relative 0 ± 7e-13)', '-1')
    """
    relative = relative_margin(margin, scale)
    return short_margin(margin) + (f" (relative {short_margin(relative, digits=2)})" if relative else "")


def matrix_rows(value: Any) -> list[list[float]]:
    """Return a witness value as rows of floats: a number as 1 x 1, a flat list as one column.

    Example:
        >>> matrix_rows([1.0, 2.0]), matrix_rows([[1.0, 2.0]])
        ([[1.0], [2.0]], [[1.0, 2.0]])
    """
    if isinstance(value, list | tuple):
        return [[float(x) for x in row] if isinstance(row, list | tuple) else [float(row)] for row in value]
    return [[float(value)]]


def short_seconds(seconds: float) -> str:
    """Return a duration for people.

    Example:
        >>> short_seconds(0.0042), short_seconds(3.25), short_seconds(75), short_seconds(7300)
        ('4 ms', '3.2 s', '1 min 15 s', '2 h 01 min')
    """
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


Piece: TypeAlias = str | tuple[str, str]
"""A text, plain or with a rich style."""

Paragraph: TypeAlias = tuple[Sequence[Piece], Sequence[Piece]]
"""What stands to the left of the first line, and the text; its further lines start below its first one."""

BLANK: Paragraph = [], []
"""An empty line."""

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
    say_all(console, [(lead, pieces)], wrap=wrap)


def say_all(console: Console, paragraphs: Iterable[Paragraph], *, wrap: bool = True) -> None:
    """Print paragraphs, each after its lead, at once: to print is most of the cost of a line.

    Args:
        console: Where.
        paragraphs: Leads and paragraphs.
        wrap: As for `say`.
    """
    width = console.width
    parts = [part for each in paragraphs for part in _segments(console, each, width, wrap=wrap)]
    console.print(Segments(parts), soft_wrap=True)  # so that nothing is cut beside a long lead


def _segments(console: Console, paragraph: Paragraph, width: int, *, wrap: bool) -> list[Segment]:
    lead, pieces = (_shown(console, part) for part in paragraph)
    line = "".join(text for text, _ in (*lead, *pieces)).rstrip()
    before = sum(cell_len(text) for text, _ in lead)
    room = max(width - before, 20)
    if not line.isprintable() or cell_len(line) > before + room:
        return _broken(console, Text.assemble(*lead), Text.assemble(*pieces), room, wrap=wrap)
    parts, left = [], len(line)
    for text, style in (*lead, *pieces):
        if left > 0 and text:
            parts.append(Segment(text[:left], console.get_style(style) if style else None))
        left -= len(text)
    return [*parts, Segment.line()]


def _broken(console: Console, lead: Text, text: Text, room: int, *, wrap: bool) -> list[Segment]:
    """Return a paragraph of several lines, or one that is cut."""
    lines = [text]
    if wrap and (text.cell_len > room or "\n" in text.plain):
        lines = list(text.wrap(console, room, overflow="fold"))
    else:
        text.truncate(room, overflow="crop")
    hanging = Text(" " * lead.cell_len)
    shown = [(hanging if number else lead).copy().append_text(line) for number, line in enumerate(lines)]
    for line in shown:
        line.expand_tabs(console.tab_size)
        line.rstrip()
    lines = [line for part in shown for line in part.split(allow_blank=True)]
    return list(Text("\n").join(lines).render(console, "\n"))


def say_line(console: Console, text: str) -> None:
    """Print one line, however long, as other programs read it."""
    console.print(Text(showable(console, text)), soft_wrap=True, highlight=False, emoji=False)


def _shown(console: Console, pieces: Sequence[Piece]) -> list[tuple[str, str]]:
    """Return pieces as this console can show them; where it has no colours, they are one."""
    shown = [(piece, "") if isinstance(piece, str) else piece for piece in pieces]
    if console.color_system is None:
        shown = [("".join(text for text, _ in shown), "")]
    return [(showable(console, text), style) for text, style in shown]


# A terminal shows the first entries of anything larger.
SIDE_LIMIT = 6


def matrix_lines(name: str, value: Any) -> list[str]:
    r"""Return a variable as lines of equal width, `name = ` before the middle one.

    Args:
        name: The variable's name.
        value: A number, a flat list (a column), rows, or None where the values were too large to keep.

    Example:
        >>> print(*matrix_lines("A", [[0.0, -0.5], [0.25, 1.0]]), sep="\n")
        A = ⎡    0  -0.5 ⎤
            ⎣ 0.25     1 ⎦
    """
    if value is None:
        return [f"{name}: too large to print"]
    if isinstance(value, int | float):
        return [f"{name} = {short_decimal(float(value))}"]
    rows = matrix_rows(value)
    columns = len(rows[0]) if rows else 0
    if not rows or not columns:
        return [f"{name}: empty"]
    cut = len(rows) > SIDE_LIMIT or columns > SIDE_LIMIT
    cells = [[short_decimal(x) for x in row[:SIDE_LIMIT]] for row in rows[:SIDE_LIMIT]]
    widths = [max(len(row[j]) for row in cells) for j in range(len(cells[0]))]
    body = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    if cut:
        body.append(f"first {len(cells)} x {len(cells[0])} of {len(rows)} x {columns}")
        width = max(map(len, body))
        body = [line.ljust(width) for line in body]
    last = len(body) - 1
    brackets = [("[", "]")] if last == 0 else [("⎡", "⎤"), *[("⎢", "⎥")] * (last - 1), ("⎣", "⎦")]
    middle = last // 2
    lead = f"{name} = "
    margin = " " * cell_len(lead)
    return [
        f"{lead if i == middle else margin}{left} {line} {right}"
        for i, (line, (left, right)) in enumerate(zip(body, brackets, strict=True))
    ]


def side_by_side(blocks: list[list[str]], *, width: int, gap: int = 3) -> list[str]:
    """Return blocks of lines next to one another, a new row of blocks where the width is used up.

    Example:
        >>> side_by_side([["ab", "cd"], ["x"]], width=20)
        ['ab   x', 'cd']
    """
    shelves: list[list[list[str]]] = []
    used = 0
    for block in blocks:
        needed = max(map(cell_len, block))
        if shelves and used + gap + needed <= width:
            shelves[-1].append(block)
            used += gap + needed
        else:
            shelves.append([block])
            used = needed
    lines = []
    for shelf in shelves:
        widths = [max(map(cell_len, block)) for block in shelf]
        for i in range(max(map(len, shelf))):
            parts = [block[i] if i < len(block) else "" for block in shelf]
            padded = [part + " " * (w - cell_len(part)) for part, w in zip(parts, widths, strict=True)]
            lines.append((" " * gap).join(padded).rstrip())
    return lines


def say_values(console: Console, values: Mapping[str, Any], *, indent: int = 0) -> None:
    """Print every variable of an instance.

    Args:
        console: Where.
        values: Numbers, flat lists (columns), rows, or None where a value is too large to print.
        indent: Columns to leave free on the left.
    """
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
    blocks = [matrix_lines(name, value) for name, value in values.items() if name not in numbers]
    blocks = [[showable(console, line) for line in block] for block in blocks]
    for line in side_by_side(blocks, width=console.width - indent):
        say(console, line, indent=indent, wrap=False)
    if numbers:
        said = ", ".join(matrix_lines(name, value)[0] for name, value in numbers.items())
        say(console, said, indent=indent)
