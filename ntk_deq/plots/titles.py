"""Titles broken into lines that fit a column, without drawing them first."""

from __future__ import annotations

import unicodedata


def line_width(text: str) -> float:
    """Return about how wide a text is in STIX, in multiples of the font size; rather too wide than too narrow.

    Example:
        >>> line_width("ab") < line_width("AB") < line_width("日本")
        True
    """
    return sum(map(_width, text))


def fitted(text: str, room: float) -> str:
    """Return `text`, its end replaced by an ellipsis where it is wider than `room`.

    Example:
        >>> fitted("gradient descent", 20.0), fitted("gradient descent", 4.0)
        ('gradient descent', 'gradie…')
    """
    if line_width(text) <= room:
        return text
    kept = text
    while kept and line_width(kept + "…") > room:
        kept = kept[:-1]
    return kept.rstrip() + "…"


def title_lines(text: str, room: float, *, most: int) -> list[str]:
    """Return `text` in lines of at most `room`, broken between words; the last of `most` lines ends in an ellipsis.

    Args:
        text: The title, on one line.
        room: Width of a line in multiples of the font size.
        most: The most lines.

    Example:
        >>> title_lines("Gradient descent converges linearly", 9.0, most=2)
        ['Gradient descent', 'converges linearly']
    """
    lines: list[str] = []
    for word in text.split():
        if (lines and line_width(f"{lines[-1]} {word}") <= room) or len(lines) == most:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [fitted(line, room) for line in lines]


def _width(character: str) -> float:
    if character == " ":
        return 0.25
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    if character.isupper():
        return 0.75
    return 0.5 if character.islower() else 0.55
