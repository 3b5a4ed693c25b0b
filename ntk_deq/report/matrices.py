"""Matrices in characters, side by side: `A = [ 0  -1 ]`, brackets drawn over several lines."""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len

from ntk_deq.claims.format import short_decimal
from ntk_deq.report.text import matrix_rows

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
