"""Plain data as YAML that the strict reader takes back: block mappings, lists of numbers on one line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[.-][A-Za-z0-9_]+)*")
_RESERVED = re.compile(r"true|false|null|yes|no|on|off|y|n|inf|nan", re.IGNORECASE)
_WIDTH = 100  # columns that a list may take on one line


class NumberText(str):
    """The exact text of a number, written without quotes."""


def to_yaml(data: Mapping[str, Any]) -> str:
    r"""Return a document; text is quoted wherever YAML could read it as something else.

    Args:
        data: Mappings, sequences, text, integers, booleans and None, nested.

    Example:
        >>> print(to_yaml({"a": {"(1)": "x <= y"}, "b": [[NumberText("1/2")]], "c": {}, "k": "3"}), end="")
        a:
          "(1)": "x <= y"
        b: [[1/2]]
        c: {}
        k: "3"
    """
    return "".join(_mapping(data, ""))


def _mapping(data: Mapping[str, Any], indent: str) -> list[str]:
    lines: list[str] = []
    for key, value in data.items():
        name = _scalar(key)
        if isinstance(value, Mapping) and value:
            lines += [f"{indent}{name}:\n", *_mapping(value, indent + "  ")]
        elif _is_list(value) and value and not _fits(value, indent, name):
            lines += [f"{indent}{name}:\n", *_items(value, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {_inline(value)}\n")
    return lines


def _items(values: Sequence[Any], indent: str) -> list[str]:
    lines: list[str] = []
    for value in values:
        if isinstance(value, Mapping) and value:
            first, *rest = _mapping(value, indent + "  ")
            lines += [f"{indent}- {first.lstrip()}", *rest]
        else:
            lines.append(f"{indent}- {_inline(value)}\n")
    return lines


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _fits(value: Sequence[Any], indent: str, name: str) -> bool:
    if any(isinstance(item, Mapping) for item in value):
        return False
    return len(indent) + len(name) + len(_inline(value)) <= _WIDTH


def _inline(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(k)}: {_inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return _scalar(value)


def _scalar(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, NumberText):
        return value
    if not isinstance(value, str):
        raise TypeError(f"a float or another object has no exact text here: {value!r}")
    plain = _PLAIN.fullmatch(value) and not _RESERVED.fullmatch(value)
    return value if plain else '"' + "".join(map(_escaped, value)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character == "\n":
        return "\\n"
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
