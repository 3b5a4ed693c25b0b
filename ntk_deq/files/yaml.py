"""A strict subset of YAML, read into a tree that remembers where everything stands, and plain data written in it.

No anchors, aliases, merge keys, tags, duplicate keys, keys that are not text, or second document. Only `true` and
`false` are booleans: `yes`, `no`, `on`, `off` stay words. The tree is built from parser events with a stack of its
own, so that neither depth nor size of a hostile file can exhaust the interpreter; every limit is a constant below.
"""

from __future__ import annotations

import re
from collections import abc
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from ntk_deq.errors import ClaimFileError, Position, Problem
from ntk_deq.files import open_named

MAX_BYTES = 4 * 2**20
MAX_DEPTH = 50
MAX_NODES = 200_000  # a claim file of a whole paper has a few thousand
_MAX_DIGITS = 40  # longer numbers stay text, which the expression language may still read

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
# 017 is 15 in YAML 1.1 and 17 in YAML 1.2; 0x1f, 0o17, 1_000 and 1:30 are numbers for some readers and text for others.
_DISPUTED = re.compile(r"[-+]?(0[0-9_]+|0[xob][0-9a-fA-F_]+|[0-9]+_[0-9_]*|[0-9]+(:[0-5]?[0-9])+)(\.[0-9_]*)?")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPE_WIDTH = {"x": 4, "u": 6, "U": 10}
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "~": None, "": None}

_QUOTE = "quote a value that holds [ ] { } or `: `, or that starts with a sign YAML reserves (' \" & * ! | > % @)"

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True, eq=False)  # not frozen, which would cost three times as much
class Scalar:
    """A single value.

    Attributes:
        position: Where it starts.
        text: Its text as written, escapes resolved; `0.10` stays `0.10`.
        value: None, a boolean, a number, or the text.
        style: The quote that surrounds it, `|`, `>`, or nothing.
        document: The text of the whole file.
        start, stop: Where the scalar, quotes included, stands in `document`.
        problems: What strictness forbids here.
        joined: Whether it was put together again at a comma, where other YAML readers split it.
    """

    position: Final[Position]
    text: Final[str]
    value: Final[bool | int | float | str | None]
    style: Final[str] = ""
    document: Final[str] = ""
    start: Final[int] = 0
    stop: Final[int] = 0
    problems: Final[tuple[Problem, ...]] = ()
    joined: Final[bool] = False

    def position_of(self, offset: int) -> Position:
        """Return the place of character `offset` of `text`; the start of the scalar where it spans several lines."""
        source = self.document[self.start : self.stop]
        if self.style in ("|", ">") or "\n" in source or "\r" in source:
            return self.position
        column = offset
        if self.style == "'":
            column = 1 + offset + self.text[:offset].count("'")
        elif self.style == '"':
            column = 1
            for _ in range(offset):
                escaped = source[column] == "\\"
                column += _ESCAPE_WIDTH.get(source[column + 1], 2) if escaped else 1
        return Position(self.position.file, self.position.line, self.position.column + column)


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    """A list."""

    position: Position
    items: tuple[Node, ...]
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Mapping:
    """A mapping from text to nodes, in the order of the file; `keys` holds the place of each key."""

    position: Position
    entries: dict[str, Node]
    keys: dict[str, Position]
    problems: tuple[Problem, ...] = ()


Node: TypeAlias = Scalar | Sequence | Mapping


def plain(node: Node) -> Any:
    """Return a node as plain data: dict, list, str, int, float, bool or None."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return {key: plain(value) for key, value in node.entries.items()}


def problems_below(node: Node) -> Iterator[Problem]:
    """Yield what strictness forbids in a node and in everything below it."""
    yield from node.problems
    if isinstance(node, Scalar):
        return
    for child in node.items if isinstance(node, Sequence) else node.entries.values():
        yield from problems_below(child)


def joined_below(node: Node) -> Iterator[Scalar]:
    """Yield the values at a node and below it that other YAML readers split at a comma."""
    if isinstance(node, Scalar):
        if node.joined:
            yield node
        return
    for child in node.items if isinstance(node, Sequence) else node.entries.values():
        yield from joined_below(child)


def read_file(path: Path, shown: str) -> Node:
    """Read one YAML document from a file.

    Args:
        path: The file; an open descriptor as `/dev/fd/63` is read to its end, whatever is behind it.
        shown: Its name in positions and messages.

    Returns:
        The root node.

    Raises:
        ClaimFileError: The file is missing, no regular one, too large, not UTF-8, or not in the strict subset.
    """
    try:
        with open_named(path) as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise _fatal(shown, f"There is no file {shown}.") from error
    except IsADirectoryError as error:
        raise _fatal(shown, f"{shown} is a folder; a claim file is needed.") from error
    except OSError as error:
        raise _fatal(shown, f"{shown} cannot be read: {error.strerror}.") from error
    if len(content) > MAX_BYTES:
        raise _fatal(shown, f"A claim file must have at most {MAX_BYTES} bytes (4 MiB). {shown} has more.")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"A claim file must be UTF-8 text. Byte {error.start} (0x{content[error.start]:02x}) is not."
        raise _fatal(shown, message, line) from error
    return read_text(text, shown)


def read_text(text: str, shown: str = "<text>") -> Node:
    r"""Read one YAML document from a text.

    Raises:
        ClaimFileError: It is not YAML, or goes beyond the strict subset in a way that no single claim contains.

    Example:
        >>> root = read_text("step: 0.10\nfine: yes")
        >>> root.entries["step"].text, root.entries["step"].value, root.entries["fine"].value
        ('0.10', 0.1, 'yes')
    """
    text = text.removeprefix("\ufeff")
    odd = _UNPRINTABLE.search(text)
    if odd is not None:
        line = text.count("\n", 0, odd.start()) + 1
        column = odd.start() - (text.rfind("\n", 0, odd.start()) + 1) + 1
        raise _fatal(shown, f"The character U+{ord(odd.group()):04X} is not allowed in YAML.", line, column)
    builder = _Builder(text, shown)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        parts = [error.problem or "", error.context or ""]
        message = f"This is not YAML: {', '.join(part for part in parts if part)}."
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise _fatal(shown, message, line, column, _QUOTE) from error
    except yaml.YAMLError as error:
        raise _fatal(shown, f"This is not YAML: {error}.") from error
    if builder.root is None:
        raise _fatal(shown, f"{shown} is empty; a claim file starts with `suite: ...`.")
    return builder.root


def _fatal(shown: str, message: str, line: int = 1, column: int = 1, hint: str | None = None) -> ClaimFileError:
    return ClaimFileError([Problem(Position(shown, line, column), message, hint=hint)])


@dataclass
class _Open:
    """A container whose end has not been met; `pairs` alternates keys and values where it is a mapping."""

    position: Position
    mapping: bool
    flow: bool
    children: list[Node] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


class _Builder:
    """Turns parser events into nodes."""

    def __init__(self, text: str, shown: str) -> None:
        self.text = text
        self.shown = shown
        self.root: Node | None = None
        self._stack: list[_Open] = []
        self._count = 0

    def take(self, event: Any) -> None:
        """Take the next event; raises ClaimFileError for what makes the whole file unusable."""
        mark = event.start_mark
        if isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)):  # a tuple is twice as fast as a union
            self._start(event)
        elif isinstance(event, yaml.DocumentStartEvent):
            if self.root is not None:
                raise self._stop(mark, "A claim file must hold one YAML document. A second one starts here.")
        elif isinstance(event, yaml.AliasEvent):
            message = f"YAML aliases are not allowed in a claim file. Got `*{event.anchor}`."
            raise self._stop(mark, message, "Write the value out, or share it as a setting or a `let` name.")
        elif isinstance(event, yaml.CollectionEndEvent):
            closed = self._stack.pop()
            self._add(self._mapping(closed) if closed.mapping else self._sequence(closed))

    def _start(self, event: Any) -> None:
        mark = event.start_mark
        if event.anchor is not None:
            message = f"YAML anchors are not allowed in a claim file. Got `&{event.anchor}`."
            raise self._stop(mark, message, "An expression that starts with & must be quoted.")
        self._count += 1
        if self._count > MAX_NODES:
            raise self._stop(mark, f"A claim file must have at most {MAX_NODES} values. This one has more.")
        position = self._position(mark)
        problems: list[Problem] = []
        if event.tag is not None:
            problems.append(Problem(position, f"YAML tags are not allowed in a claim file. Got `{event.tag}`."))
        if isinstance(event, yaml.ScalarEvent):
            style = event.style or ""
            if not style and _DISPUTED.fullmatch(event.value):
                message = f"Readers of YAML disagree about the number {event.value[:_MAX_DIGITS]}: it may be octal, "
                message += "hexadecimal, in minutes and seconds, or text."
                problems.append(
                    Problem(position, message, hint="write it as a plain decimal number, or quote the text")
                )
            value = _resolve(event.value) if style in ("", ":") and event.tag is None else event.value
            end: Any = event.end_mark
            self._add(Scalar(position, event.value, value, style, self.text, mark.index, end.index, tuple(problems)))
            return
        if len(self._stack) >= MAX_DEPTH:
            raise self._stop(mark, f"A claim file must nest at most {MAX_DEPTH} deep. This one goes deeper.")
        mapping = isinstance(event, yaml.MappingStartEvent)
        self._stack.append(_Open(position, mapping, bool(event.flow_style), problems=problems))

    def _add(self, node: Node) -> None:
        if self._stack:
            self._stack[-1].children.append(node)
        else:
            self.root = node

    @staticmethod
    def _sequence(closed: _Open) -> Sequence:
        return Sequence(closed.position, tuple(closed.children), tuple(closed.problems))

    def _mapping(self, closed: _Open) -> Mapping:
        entries: dict[str, Node] = {}
        keys: dict[str, Position] = {}
        problems = closed.problems
        pairs = list(zip(closed.children[::2], closed.children[1::2], strict=True))
        if closed.flow:
            pairs = self._join_commas(pairs)
        for key, value in pairs:
            problem = _key_problem(key)
            if problem is None and isinstance(key, Scalar):
                if key.text in entries:
                    first = keys[key.text]
                    problem = f"The key `{key.text}` is here twice; first at line {first.line}, column {first.column}."
                else:
                    entries[key.text] = value
                    keys[key.text] = key.position
            if problem is not None:
                problems.append(Problem(key.position, problem))
                problems.extend(key.problems)
        return Mapping(closed.position, entries, keys, tuple(problems))

    def _join_commas(self, pairs: list[tuple[Node, Node]]) -> list[tuple[Node, Node]]:
        """Put `{gamma: (0, 1), ...}` together again: a comma inside parentheses belongs to the value.

        YAML ends the value at the comma and reads `1)` as a key without a value, which could never be valid here. It is
        what people write, so that it is read as they mean it; `Suite.warnings` asks for quotes.
        """
        joined: list[tuple[Node, Node]] = []
        for key, value in pairs:
            before = joined[-1][1] if joined else None
            if isinstance(before, Scalar) and isinstance(key, Scalar) and _continues(before, key, value):
                text = self.text[before.start : key.stop]
                place = before.start, key.stop
                whole = Scalar(before.position, text, text, "", self.text, *place, before.problems, joined=True)
                joined[-1] = (joined[-1][0], whole)
            else:
                joined.append((key, value))
        return joined

    def _position(self, mark: Any) -> Position:
        return Position(self.shown, mark.line + 1, mark.column + 1)

    def _stop(self, mark: Any, message: str, hint: str | None = None) -> ClaimFileError:
        return ClaimFileError([Problem(self._position(mark), message, hint=hint)])


def _continues(before: Scalar, key: Scalar, value: Node) -> bool:
    """Whether `key` goes on with a plain value that has an open parenthesis."""
    if before.style or key.style or before.text.count("(") <= before.text.count(")"):
        return False
    return isinstance(value, Scalar) and value.start == value.stop


def _key_problem(key: Node) -> str | None:
    if not isinstance(key, Scalar):
        return "A key must be text. Got a list or a mapping."
    if key.text == "<<" and not key.style:
        return "YAML merge keys (`<<`) are not allowed in a claim file."
    if not isinstance(key.value, str):
        shown = key.text or "nothing"
        return f"A key must be text. Got {shown}, which YAML reads as {_kind(key.value)}; put it in quotes."
    return None


def _kind(value: object) -> str:
    if value is None:
        return "an empty value"
    return "a boolean" if isinstance(value, bool) else "a number"


def _resolve(text: str) -> bool | int | float | str | None:
    """Return the value of a plain scalar."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) <= _MAX_DIGITS:
        if _INTEGER.fullmatch(text):
            return int(text)
        if _DECIMAL.fullmatch(text):
            return float(text)
    return text


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[.-][A-Za-z0-9_]+)*")
_RESERVED = re.compile(r"true|false|null|yes|no|on|off|y|n|inf|nan", re.IGNORECASE)
_WIDTH = 100  # columns that a list may take on one line


class NumberText(str):
    """The exact text of a number, written without quotes."""


def to_yaml(data: abc.Mapping[str, Any]) -> str:
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


def _mapping(data: abc.Mapping[str, Any], indent: str) -> list[str]:
    lines: list[str] = []
    for key, value in data.items():
        name = _scalar(key)
        if isinstance(value, abc.Mapping) and value:
            lines += [f"{indent}{name}:\n", *_mapping(value, indent + "  ")]
        elif _is_list(value) and value and not _fits(value, indent, name):
            lines += [f"{indent}{name}:\n", *_items(value, indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {_inline(value)}\n")
    return lines


def _items(values: abc.Sequence[Any], indent: str) -> list[str]:
    lines: list[str] = []
    for value in values:
        if isinstance(value, abc.Mapping) and value:
            first, *rest = _mapping(value, indent + "  ")
            lines += [f"{indent}- {first.lstrip()}", *rest]
        else:
            lines.append(f"{indent}- {_inline(value)}\n")
    return lines


def _is_list(value: object) -> bool:
    return isinstance(value, abc.Sequence) and not isinstance(value, str)


def _fits(value: abc.Sequence[Any], indent: str, name: str) -> bool:
    if any(isinstance(item, abc.Mapping) for item in value):
        return False
    return len(indent) + len(name) + len(_inline(value)) <= _WIDTH


def _inline(value: object) -> str:
    if isinstance(value, abc.Mapping):
        return "{" + ", ".join(f"{_scalar(k)}: {_inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, abc.Sequence) and not isinstance(value, str):
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
