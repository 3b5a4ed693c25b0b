"""Matrices in characters, side by side: `A = [ 0  -1 ]`, brackets drawn over several lines.

The values of an instance on the terminal: matrices side by side, numbers on a line below.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.cells import cell_len
from rich.console import Console

from ntk_deq.language.format import short_decimal
from ntk_deq.report.console import matrix_rows, say, showable

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
