"""The files of a suite: the file itself, what it includes, and the files whose claims it mutates."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ntk_deq.claims.schema import FileHead
from ntk_deq.claims.systems import read_systems
from ntk_deq.claims.validate import place, validate
from ntk_deq.errors import ClaimFileError, Position, Problem
from ntk_deq.files import descriptor_named
from ntk_deq.files.yaml import MAX_BYTES, Mapping, Node, Sequence, problems_below, read_file
from ntk_deq.language.declaration import ModelSignature

MAX_FILES = 300
_MAX_TOTAL = 4 * MAX_BYTES  # of all files of a suite together
_SUFFIXES = (".yaml", ".yml")
MAX_LEVELS = 12  # of folders in a glob
MAX_LOOKED = 20_000  # files and folders that a glob looks at; a suite has at most 300
_LEVELS_UP = 2  # how far above its own folder a file's `base` may lie


@dataclass(eq=False)
class Document:
    """A claim file whose head has been checked; its settings and claims are still nodes.

    Attributes:
        shown: Its name in positions and messages.
        directory: Its folder, links resolved.
        head: Its checked head.
        root: Its root node.
        base: The file whose claims it may mutate.
        systems: The models that it declares for its settings.
    """

    shown: str
    directory: Path
    head: FileHead
    root: Mapping
    base: Document | None = None
    systems: dict[str, ModelSignature] = field(default_factory=dict)

    @property
    def source(self) -> dict[str, object]:
        """The text that the claims are taken from, without empty entries."""
        if self.head.source is None:
            return {}
        return {key: value for key, value in self.head.source.model_dump().items() if value}

    def settings(self) -> dict[str, Node]:
        """The nodes of its settings by name."""
        node = self.root.entries.get("settings")
        return dict(node.entries) if isinstance(node, Mapping) else {}

    def claims(self) -> tuple[Node, ...]:
        """The nodes of its claims."""
        node = self.root.entries.get("claims")
        return node.items if isinstance(node, Sequence) else ()


def embedded_document(root: Node, shown: str, directory: Path) -> Document:
    """Check the head of a claim file that stands inside another file, at a node of it.

    Args:
        root: The node.
        shown: Name of the file around it, for positions.
        directory: Folder of that file, links resolved.

    Raises:
        ClaimFileError: The head is wrong, or it includes or mutates other files, which it must not.
    """
    document, problems = _document(shown, directory, root)
    for key in ("include", "base"):
        if isinstance(root, Mapping) and key in root.entries:
            problems.append(Problem(root.keys[key], f"`{key}` is not allowed in a claim file inside another file."))
    if document is None or problems:
        raise ClaimFileError(problems)
    return document


def _document(shown: str, directory: Path, root: Node) -> tuple[Document | None, list[Problem]]:
    """Check the head of a claim file; settings and claims stay nodes, whose problems come later."""
    head, problems = validate(FileHead, root, "a claim file")
    outside = [*root.problems, *(p for key in ("suite", "source", "include", "base") for p in _below(root, key))]
    outside += [p for key in ("systems", "settings", "claims") for p in _own(root, key)]
    if head is None or problems or outside or not isinstance(root, Mapping):
        return None, [*outside, *problems]
    systems, problems = read_systems(root.entries.get("systems"))
    if problems:
        return None, problems
    return Document(shown, directory, head, root, systems=systems), []


def read_documents(path: Path) -> list[Document]:
    """Read a claim file with everything that it includes or mutates.

    Returns:
        The file and those that it includes, in order; their `base` files hang on them and are not in the list.

    Raises:
        ClaimFileError: Some file cannot be used; every problem of every file is in it.
    """
    reader = _Reader()
    judged: list[Document] = []
    reader.visit(path, str(path), (), judged)
    reader.attach_bases()
    if reader.problems:
        raise ClaimFileError(reader.problems)
    return judged


@dataclass
class _Reader:
    problems: list[Problem] = field(default_factory=list)
    read: dict[Path, Document | None] = field(default_factory=dict)
    total: int = 0

    def visit(self, path: Path, shown: str, above: tuple[Path, ...], judged: list[Document]) -> None:
        """Read a file and the files it includes, depth first."""
        document = self.document(path, shown)
        if document is None or document in judged:
            return
        judged.append(document)
        inside = (*above, path.resolve())
        for index, pattern in enumerate(document.head.include):
            position = place(document.root, ("include", index))
            for found in self._matches(document, pattern, position):
                if len(self.read) >= MAX_FILES and found.resolve() not in self.read:
                    self._add(position, f"A suite may have at most {MAX_FILES} files.")
                    return
                if found.resolve() in inside:
                    self._add(position, f"`include`: {pattern!r} makes {found.name} include itself.")
                else:
                    self.visit(found, self._shown(document, found), inside, judged)

    def attach_bases(self) -> None:
        """Read the `base` of every file, and the bases of those."""
        done: set[Document] = set()
        while waiting := [d for d in self.read.values() if d is not None and d not in done]:
            for document in waiting:
                done.add(document)
                if document.head.base is not None:
                    document.base = self._base(document, document.head.base)

    def document(self, path: Path, shown: str) -> Document | None:
        """Read one file, once; its problems are collected and None stands for it where it has some."""
        try:
            resolved = path if descriptor_named(path) is not None else path.resolve()
        except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a NUL in the name
            self._add(Position(shown, 1, 1), f"{shown} cannot be read: {error}.")
            return None
        if resolved not in self.read:
            if len(self.read) >= MAX_FILES:  # a `base` file beyond what is included
                self._add(Position(shown, 1, 1), f"A suite may have at most {MAX_FILES} files.")
                return None
            self.read[resolved] = self._parse(resolved, shown)
        return self.read[resolved]

    def _parse(self, path: Path, shown: str) -> Document | None:
        try:
            root = read_file(path, shown)
        except ClaimFileError as error:
            self.problems += error.problems
            return None
        self.total += _size(path)
        if self.total > _MAX_TOTAL:
            self._add(Position(shown, 1, 1), f"The files of a suite may have at most {_MAX_TOTAL} bytes together.")
            return None
        # A claim file that comes through a pipe stands for one in the working folder.
        folder = path.parent if descriptor_named(path) is None else Path.cwd()
        document, problems = _document(shown, folder, root)
        self.problems += problems
        return document

    def _matches(self, document: Document, pattern: str, position: Position) -> list[Path]:
        if not _is_below(pattern) or "**" in pattern:
            allowed = "a path or glob below the folder of the file, without `..` and `**`"
            self._add(position, f"`include` must be {allowed}. Got {pattern!r}.")
            return []
        levels = PurePosixPath(pattern).parts
        if not levels:
            self._add(position, f"`include`: {pattern!r} is no path or glob of files.")
            return []
        if len(levels) > MAX_LEVELS:
            self._add(position, f"`include` may go at most {MAX_LEVELS} levels deep. Got {len(levels)}.")
            return []
        found = _matching(document.directory, levels)
        if found is None:
            self._add(position, f"`include`: {pattern!r} looks into more than {MAX_LOOKED:,} files and folders.")
            return []
        if not found:
            self._add(position, f"`include`: no file matches {pattern!r} in {document.directory}.")
        kept = []
        for path in found:
            if not path.resolve().is_relative_to(document.directory):
                self._add(position, f"`include`: {path.name} is a link to a place outside the folder of the file.")
            elif path.suffix not in _SUFFIXES:
                self._add(position, f"`include`: {path.name} is no .yaml or .yml file.")
            else:
                kept.append(path)
        return kept

    def _base(self, document: Document, text: str) -> Document | None:
        position = place(document.root, ("base",))
        top = document.directory
        for _ in range(_LEVELS_UP):
            top = top.parent
        try:
            path = (document.directory / text).resolve()
        except (OSError, RuntimeError, ValueError):
            path = Path("/")
        below = _is_below(re.sub(r"^(\.\./){1,2}", "", text)) and path.is_relative_to(top)
        if not below or path.suffix not in _SUFFIXES:
            allowed = f"a relative path to a .yaml or .yml file, at most {_LEVELS_UP} folders up"
            self._add(position, f"`base` must be {allowed}. Got {text!r}.")
            return None
        found = self.document(path, self._shown(document, document.directory / text))
        if found is None:
            self._add(position, f"`base`: {text} cannot be used.")
        return found

    def _shown(self, document: Document, path: Path) -> str:
        """Return the name of a file as seen from where the suite's own file was named."""
        relative = os.path.relpath(path, document.directory)
        return os.path.normpath(Path(document.shown).parent / relative)

    def _add(self, position: Position, message: str) -> None:
        self.problems.append(Problem(position, message))


def _matching(folder: Path, levels: tuple[str, ...]) -> list[Path] | None:
    """Return the paths below a folder that match a glob, in order; None where it looks at too much.

    A folder that several links lead to is entered once, by the first of its names: links among folders would multiply
    the ways from level to level.
    """
    looked = 0
    folders = [folder]
    for depth, level in enumerate(levels, start=1):
        fitting = re.compile(fnmatch.translate(level))
        found: list[Path] = []
        for parent in folders:
            if not set(level) & set("*?["):
                names = [level] if os.path.lexists(parent / level) else []
            else:
                try:
                    names = sorted(name for name in os.listdir(parent) if fitting.match(name))
                except OSError:  # no folder, or one that must not be listed
                    names = []
            looked += len(names)
            if looked > MAX_LOOKED:
                return None
            found += [parent / name for name in names]
        if depth < len(levels):
            entered: dict[str, Path] = {}
            for path in found:
                if path.is_dir():
                    entered.setdefault(os.path.realpath(path), path)
            found = list(entered.values())
        folders = found
    return folders


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # it has gone since it was read
        return MAX_BYTES


def _is_below(text: str) -> bool:
    odd = text.startswith(("/", "~")) or re.search(r"[\\\x00]|^\w:", text)
    return bool(text) and not odd and ".." not in text.split("/")


def _below(root: Node, key: str) -> Iterator[Problem]:
    if isinstance(root, Mapping) and key in root.entries:
        yield from problems_below(root.entries[key])


def _own(root: Node, key: str) -> Iterator[Problem]:
    if isinstance(root, Mapping) and key in root.entries:
        yield from root.entries[key].problems
