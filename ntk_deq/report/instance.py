"""The values of an instance on the terminal: matrices side by side, numbers on a line below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from ntk_deq.report.console import say, showable
from ntk_deq.report.matrices import matrix_lines, side_by_side


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
