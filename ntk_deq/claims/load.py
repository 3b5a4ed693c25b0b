"""Loads a claim file with everything it includes: the one entrance to the claim language."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Paths
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path

from ntk_deq.claims.assemble import assemble
from ntk_deq.claims.claim import Claim, IllFormed, Suite
from ntk_deq.claims.documents import Document, embedded_document, read_documents
from ntk_deq.claims.inheritance import Draft, inherit, own_names
from ntk_deq.claims.schema import MAX_LABEL
from ntk_deq.claims.settings import SettingRecord, build_setting
from ntk_deq.errors import ClaimFileError, Position, Problem, check_instance
from ntk_deq.files.yaml import Mapping, Node, Scalar, Sequence, joined_below
from ntk_deq.language.hints import SHOWN, did_you_mean

MAX_CLAIMS = 5_000
MAX_PROBLEMS = 1_000  # in all claims together; a file with more is not what its author thinks it is
MAX_CHAIN = 100  # claims that a mutant rests on, each a mutant of the next
_LINKS = 10  # claims of a circle of mutants that a message names
MAX_WARNINGS = 20  # about the files themselves
MAX_TEXT = 4 * 2**20  # characters of a suite, counted for every mutant that inherits them and for every setting


def load_suite(path: str | Path, *, allow_data: Paths[Path] = ()) -> Suite:
    """Load and check a claim file; no data file is opened and no code of the file is run.

    Args:
        path: The file.
        allow_data: Folders or files outside the claim file's folder that its data may come from.

    Returns:
        The suite. A claim that is wrong by itself is an `IllFormed`; the others are ready to be judged.

    Raises:
        ArgumentError: `path` is no path.
        ClaimFileError: A file as a whole cannot be used; its `problems` say where and why.
    """
    check_instance(path, str | PathLike, "path", "load_suite", "the path of a claim file")
    documents = read_documents(Path(path))
    loader = _Loader(documents, tuple(allow_data))
    top = documents[0]
    return Suite(
        file=top.shown,
        title=top.head.suite,
        source=top.source,
        claims=tuple(loader.claims()),
        files=tuple(document.shown for document in documents),
        warnings=tuple(islice(_split_elsewhere(documents), MAX_WARNINGS)),
    )


def load_embedded(root: Node, shown: str, directory: Path) -> Suite:
    """Check a claim file that stands inside another file, as in a replay file; it can include and mutate no other.

    Args:
        root: The node at which it stands.
        shown: Name of the file around it, for positions.
        directory: Folder of that file.

    Raises:
        ClaimFileError: It cannot be used as a whole.
    """
    document = embedded_document(root, shown, directory.resolve())
    claims = tuple(_Loader([document], ()).claims())
    return Suite(document.shown, document.head.suite, document.source, claims, (document.shown,))


def _split_elsewhere(documents: list[Document]) -> Iterator[Problem]:
    """Yield a warning for each value that an editor, or any other reader of YAML, splits at its comma."""
    for scalar in (scalar for document in documents for scalar in joined_below(document.root)):
        text = scalar.text if len(scalar.text) <= SHOWN else scalar.text[:SHOWN] + "..."
        message = f"Other readers of YAML, editors among them, end this value at its comma: {text}"
        yield Problem(scalar.position, message, hint="put it in quotes")


@dataclass(eq=False)
class _Entry:
    """A claim as written: its id (a stand-in where it has none), its node, its file."""

    id: str
    node: Node
    document: Document


class _Loader:
    """Looks claims and settings up across the documents of a suite."""

    def __init__(self, documents: list[Document], allow_data: tuple[Path, ...]) -> None:
        self.documents = documents
        self.allow_data = allow_data
        self.by_file: dict[str, Document] = {}
        for document in documents:
            step: Document | None = document
            while step is not None and step.shown not in self.by_file:
                self.by_file[step.shown] = step
                step = step.base
        self._entries = {id(d): [_entry(node, d) for node in d.claims()] for d in self.by_file.values()}
        self._settings: dict[tuple[str, str], SettingRecord] = {}
        self._complete: dict[int, tuple[Node, tuple[Problem, ...]]] = {}
        self._bases: dict[int, dict[str, _Entry]] = {}
        self._judged: dict[str, _Entry] = {}
        self._text = 0

    def claims(self) -> Iterator[Claim | IllFormed]:
        """Yield every claim to judge, in order."""
        entries = [entry for document in self.documents for entry in self._entries[id(document)]]
        if len(entries) > MAX_CLAIMS:
            message = f"A suite may have at most {MAX_CLAIMS} claims. Got {len(entries)}."
            raise ClaimFileError([Problem(entries[MAX_CLAIMS].node.position, message)])
        for entry in entries:
            self._judged.setdefault(entry.id, entry)
        problems: list[Problem] = []
        for entry in entries:
            claim = assemble(self._draft(entry))
            if isinstance(claim, IllFormed):
                problems += claim.problems
            if len(problems) > MAX_PROBLEMS:
                message = f"More than {MAX_PROBLEMS} problems; the claims from here on are not checked."
                raise ClaimFileError([*problems, Problem(entry.node.position, message)])
            yield claim

    def _draft(self, entry: _Entry) -> Draft:
        chain, problems = self._chain(entry)
        resolved = not problems
        node = self._inherited(chain, problems)
        first = self._judged[entry.id]
        name = entry.id
        if first is not entry:
            name = f"{entry.id} ({entry.node.position.file}:{entry.node.position.line})"
            message = f"The id `{entry.id}` is used twice in the suite; first at {first.node.position}."
            problems.append(Problem(_place(entry.node, "id"), message))
        inherited: frozenset[str] = frozenset()
        if len(chain) > 1 and isinstance(entry.node, Mapping) and isinstance(node, Mapping):
            inherited = frozenset(
                name
                for section in ("given", "exists", "let")
                for name in own_names(node, section) - own_names(entry.node, section)
            )
        files = [link.document for link in chain]
        return Draft(
            id=name,
            node=node,
            position=entry.node.position,
            mutates=_text(entry.node, "mutates"),
            inherited=inherited,
            problems=tuple(problems),
            resolved=resolved,
            source=next((document.source for document in files if document.source), {}),
            find_setting=lambda name, file: self._setting(name, file, files),
        )

    def _chain(self, entry: _Entry) -> tuple[list[_Entry], list[Problem]]:
        """Return a claim, the claim that it mutates, the claim that that one mutates, and so on."""
        chain, problems = [entry], list[Problem]()
        met = {id(entry)}
        while (wanted := _text(chain[-1].node, "mutates")) is not None:
            position = _place(chain[-1].node, "mutates")
            found = self._find(wanted, chain[-1].document)
            if found is None:
                message = f"`mutates` names no claim of the suite or of `base`. Got `{wanted[:SHOWN]}`."
                known = self._known(chain[-1].document)
                problems.append(Problem(position, message, hint=did_you_mean(wanted, known)))
                break
            if id(found) in met:
                names = [link.id for link in (*chain[chain.index(found) :], found)]
                shown = names if len(names) <= _LINKS else [*names[: _LINKS // 2], "...", *names[-_LINKS // 2 :]]
                problems.append(Problem(position, f"A claim cannot mutate itself: {' -> '.join(shown)}."))
                break
            if len(chain) > MAX_CHAIN:
                message = f"A mutant may rest on a chain of at most {MAX_CHAIN} claims. This one is longer."
                return [entry], [Problem(_place(entry.node, "mutates"), message)]
            chain.append(found)
            met.add(id(found))
        return chain, problems

    def _inherited(self, chain: list[_Entry], problems: list[Problem]) -> Node:
        """Merge a chain of mutants, base first; the first in the chain is the claim itself.

        What a claim inherits is worked out once, however many mutate it.
        """
        done = next((place for place, link in enumerate(chain) if id(link) in self._complete), len(chain))
        node, wrong = self._complete[id(chain[done])] if done < len(chain) else (None, ())
        for place in range(done - 1, -1, -1):
            mutant, base = chain[place], node
            if isinstance(base, Mapping) and isinstance(mutant.node, Mapping):
                self._spend(base)
                node, more = inherit(base, mutant.node, chain[place + 1].id)
                wrong = (*wrong, *more)
            else:
                node = mutant.node
            if not problems:  # else the chain breaks off, or goes round
                self._complete[id(mutant)] = node, wrong
        problems += wrong
        assert node is not None
        self._spend(node)
        return node

    def _spend(self, node: Node) -> None:
        """Count the text that a claim makes the checker read; inheritance can multiply it far beyond the files."""
        settings = node.entries.get("setting") if isinstance(node, Mapping) else None
        self._text += _weight(node) * (len(settings.items) if isinstance(settings, Sequence) else 1)
        if self._text > MAX_TEXT:
            message = f"The formulas of a suite, inherited ones included, may have at most {MAX_TEXT} characters."
            raise ClaimFileError([Problem(node.position, message)])

    def _find(self, name: str, document: Document) -> _Entry | None:
        found = self._judged.get(name)
        return found if found is not None else self._of_base(document).get(name)

    def _known(self, document: Document) -> list[str]:
        return [*self._judged, *self._of_base(document)]

    def _of_base(self, document: Document) -> dict[str, _Entry]:
        """Return the claims of the file whose claims a file may mutate, the first of each id."""
        base = document.base
        if base is None:
            return {}
        if id(base) not in self._bases:
            self._bases[id(base)] = {entry.id: entry for entry in reversed(self._entries[id(base)])}
        return self._bases[id(base)]

    def _setting(self, name: str, file: str, documents: list[Document]) -> tuple[SettingRecord | None, list[str]]:
        """Look a setting up: first in the file in which its name is written, then along the chain of mutants."""
        known: list[str] = []
        for document in (self.by_file[file], *documents):
            settings = document.settings()
            if name in settings:
                key = (document.shown, name)
                if key not in self._settings:
                    self._settings[key] = build_setting(
                        name,
                        settings[name],
                        directory=document.directory,
                        allow_data=self.allow_data,
                        systems=document.systems,
                    )
                return self._settings[key], known
            known += settings
        return None, list(dict.fromkeys(known))


def _entry(node: Node, document: Document) -> _Entry:
    stand_in = f"{Path(document.shown).name}:{node.position.line}"
    name = _text(node, "id")
    return _Entry(name if name and len(name) <= MAX_LABEL else stand_in, node, document)


def _text(node: Node, key: str) -> str | None:
    value = node.entries.get(key) if isinstance(node, Mapping) else None
    return value.value if isinstance(value, Scalar) and isinstance(value.value, str) else None


def _place(node: Node, key: str) -> Position:
    return node.entries[key].position if isinstance(node, Mapping) and key in node.entries else node.position


def _weight(node: Node) -> int:
    """Return the characters of all values below a node, and one for each value."""
    if isinstance(node, Scalar):
        return 1 + len(node.text)
    children = node.entries.values() if isinstance(node, Mapping) else node.items
    return 1 + sum(_weight(child) for child in children)
