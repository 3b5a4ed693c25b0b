"""A line of source text with a part of it underlined."""

from __future__ import annotations

from rich.cells import cell_len

from ntk_deq.report.text import printable


def caret_lines(source: str, span: tuple[int, int], *, width: int = 10_000) -> tuple[str, str]:
    r"""Return the line in which a span starts and a line of carets to put under it.

    A line longer than `width` is cut to a window around the span, with `…` where something is left out.

    Args:
        source: The text, one line or several.
        span: Offsets (start, stop) in `source`.
        width: Columns there are, at least 20.

    Example:
        >>> print(*caret_lines("norm(W) <= sigma_mim(Z)", (11, 20)), sep="\n")
        norm(W) <= sigma_mim(Z)
                   ^^^^^^^^^
    """
    start = min(max(span[0], 0), len(source))
    first = source.rfind("\n", 0, start) + 1
    line = printable(source[first:].split("\n", 1)[0]).replace("\t", " ")
    start -= first
    stop = min(max(span[1] - first, start + 1), max(len(line), start + 1))
    left = right = ""
    if len(line) > width:
        begin = max(0, min(start - width // 3, len(line) - width))
        end = begin + width
        left, right = "…" * (begin > 0), "…" * (end < len(line))
        line = line[begin + len(left) : end - len(right)]
        start, stop = start - begin, min(stop - begin, width - len(right))
    shown = left + line + right
    return shown, " " * cell_len(shown[:start]) + "^" * max(1, cell_len(shown[start:stop]))
