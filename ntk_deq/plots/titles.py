"""Titles broken into lines, and names shortened, so that they fit a column, without drawing them first."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence

_WORD = re.compile(r"[^\s,._/-]+[\s,._/-]*|[\s,._/-]+")
_MOST_WORDS = 40
_PLAIN = 0.1  # what a letter counts for that every name has, in letters that tell names apart


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


def fitted_names(names: Sequence[str], room: float) -> dict[str, str]:
    """Return each name as it fits into `room`: where one is wider, an ellipsis stands for whole words.

    Words that other names have too are left out first, and two names never become one as long as words can tell them
    apart. Only a name of a single long word is cut within that word.

    Args:
        names: The names, on one line each.
        room: Width of a name in multiples of the font size.

    Example:
        >>> list(fitted_names(["the-rate-of-descent", "the-rate-of-the-flow"], 9.0).values())
        ['the-rate-…descent', 'the-rate-…flow']
    """
    shown = {name: name for name in names}
    words = {name: _WORD.findall(name) for name in shown}
    common = Counter(word for found in words.values() for word in set(map(_bare, found)))
    taken = {name for name in shown if line_width(name) <= room}
    for name, found in words.items():
        if line_width(name) > room:
            weights = [len(word) * (_PLAIN + 1 - common[_bare(word)] / len(shown)) for word in found]
            kept = sorted(_without_words(found, weights, room)) if len(found) <= _MOST_WORDS else []
            labels = [label for _, label in kept] or [_without_middle(name, room)]
            shown[name] = next((label for label in labels if label not in taken), labels[0])
            taken.add(shown[name])
    return shown


def row_names(names: Sequence[str], room: float) -> list[str]:
    r"""Return names of rows on one line, or one that is too wide on two: what comes before its first comma on its own.

    Example:
        >>> row_names(["R.L5.1, tiny 3", "R.T4.4, scaled-lecun 17, window"], 12.0)
        ['R.L5.1, tiny 3', 'R.T4.4,\nscaled-lecun 17, window']
    """
    lines = [[name] if line_width(name) <= room else _halves(name, room) for name in names]
    heads = fitted_names([first for first, *_ in lines], room)
    rests = fitted_names([rest for _, *more in lines for rest in more], room)
    return ["\n".join([heads[first], *(rests[rest] for rest in more)]) for first, *more in lines]


def _halves(name: str, room: float) -> list[str]:
    """Break a name after its first comma, or where it has none between words as late as fits."""
    head, comma, rest = name.partition(", ")
    if comma:
        return [f"{head},", rest]
    blanks = [place for place, letter in enumerate(name) if letter == " " and line_width(name[:place]) <= room]
    return [name[: blanks[-1]], name[blanks[-1] + 1 :]] if blanks else [name]


def _without_words(words: Sequence[str], weights: Sequence[float], room: float) -> Iterator[tuple[float, str]]:
    """Yield what is left of a name without some neighbouring words, neither the first nor the last; with their weight.

    A cut weighs a letter more for each word that it is off the middle.
    """
    for first in range(1, len(words) - 1):
        for end in range(first + 1, len(words)):
            gap = " " if words[end - 1].endswith(" ") else ""
            label = f"{''.join(words[:first])}…{gap}{''.join(words[end:])}"
            if line_width(label) <= room:
                off = abs(first - (len(words) - end))  # in letters
                yield sum(weights[first:end]) + off, label
                break  # a longer cut from here loses more


def _without_middle(name: str, room: float) -> str:
    kept = len(name)
    while kept > 1 and line_width(_ends(name, kept)) > room:
        kept -= 1
    return _ends(name, kept)


def _ends(name: str, kept: int) -> str:
    return f"{name[: kept - kept // 2].rstrip()}…{name[len(name) - kept // 2 :].lstrip()}"


def _bare(word: str) -> str:
    return word.rstrip(" ,._/-")


def _width(character: str) -> float:
    if character == " ":
        return 0.25
    if unicodedata.east_asian_width(character) in "WF":
        return 1.0
    if character.isupper():
        return 0.75
    return 0.5 if character.islower() else 0.55
