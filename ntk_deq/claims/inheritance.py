"""Mutants: a claim that takes over another claim and changes some of it."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as KnownValues
from dataclasses import dataclass, field

from ntk_deq.claims.settings import SettingRecord
from ntk_deq.errors import Position, Problem
from ntk_deq.files.yaml import Mapping, Node, Scalar
from ntk_deq.language.hints import did_you_mean

_BY_NAME = {
    "given": None,
    "exists": None,
    "witness": None,
    "let": None,
    "assume": "assumption",
    "conclude": "conclusion",
}
"""Sections that are overridden entry by entry, with the name that a single formula stands for."""

_OPEN = frozenset({"given", "exists", "witness", "let"})  # sections to which a mutant may add
_NOT_INHERITED = frozenset({"id", "mutates", "expect"})


FindSetting = Callable[[str, str], tuple[SettingRecord | None, list[str]]]
"""Looks a setting up by its name and the file in which the name is written; also gives all names."""

Extremes = KnownValues[str, tuple[str | None, str | None]]
"""By the name of a function, its least value and where it is, where these are known."""


@dataclass(frozen=True)
class Draft:
    """A claim before it is checked.

    Attributes:
        id: Its id, or a stand-in where it has none of its own.
        node: Its complete node, inherited parts included.
        position: Where it stands.
        mutates: Id of the claim that it mutates.
        inherited: Names of `given` and `let` that it takes over; these may be unused.
        problems: What is wrong already.
        resolved: Whether the claims that it mutates were found; otherwise nothing more is checked.
        source: The text that it is taken from.
        find_setting: Looks a setting up.
        extremes: What is known of the least values of functions over which the claim quantified, and of where they are.
    """

    id: str
    node: Node
    position: Position
    mutates: str | None
    inherited: frozenset[str]
    problems: tuple[Problem, ...]
    resolved: bool
    source: dict[str, object]
    find_setting: FindSetting
    extremes: Extremes = field(default_factory=dict)


def inherit(base: Mapping, mutant: Mapping, base_id: str) -> tuple[Mapping, list[Problem]]:
    """Return the claim that a mutant stands for.

    Every key of the base is taken over except `id`, `mutates` and `expect`. A key of the mutant replaces the base's; in
    `given`, `exists`, `witness`, `let`, `assume` and `conclude` it does so entry by entry. An empty value (null) drops
    what it names. Every node keeps the place where it was written.

    Args:
        base: The claim that is mutated, itself complete.
        mutant: The claim as written.
        base_id: Id of the base, for messages.

    Returns:
        The complete claim, and what is wrong with the overrides.
    """
    entries = {key: node for key, node in base.entries.items() if key not in _NOT_INHERITED}
    keys = {key: base.keys[key] for key in entries}
    problems: list[Problem] = []
    for key, node in mutant.entries.items():
        keys[key] = mutant.keys[key]
        if key in _BY_NAME and not _is_null(node):
            entries[key] = _overridden(key, entries.get(key), node, base_id, problems)
        elif _is_null(node):
            if key not in entries:
                message = f"`{key}` cannot be dropped: claim {base_id} has none."
                problems.append(Problem(mutant.keys[key], message, hint=did_you_mean(key, entries)))
            entries.pop(key, None)
        else:
            entries[key] = node
    keys = {key: keys[key] for key in entries}
    return Mapping(mutant.position, entries, keys, (*base.problems, *mutant.problems)), problems


def own_names(mutant: Mapping, section: str) -> frozenset[str]:
    """Return the names that a claim writes itself in a section."""
    node = mutant.entries.get(section)
    return frozenset(node.entries) if isinstance(node, Mapping) else frozenset()


def named_entries(node: Node, single: str | None) -> Mapping | None:
    """Return a section as a mapping; one formula alone gets the name `single`. None where it is neither."""
    if isinstance(node, Mapping):
        return node
    if single is None or not isinstance(node, Scalar):
        return None
    return Mapping(node.position, {single: node}, {single: node.position})


def _overridden(section: str, base: Node | None, node: Node, base_id: str, problems: list[Problem]) -> Node:
    changes = named_entries(node, _BY_NAME[section])
    before = named_entries(base, _BY_NAME[section]) if base is not None else None
    if changes is None or (base is not None and before is None):
        return node  # the schema says what is wrong with it
    entries = dict(before.entries) if before is not None else {}
    keys = dict(before.keys) if before is not None else {}
    for name, value in changes.entries.items():
        if name not in entries and (section not in _OPEN or _is_null(value)):
            verb = "drops" if _is_null(value) else "replaces"
            allowed = f"{section} of {base_id}: {', '.join(entries) or 'none'}"
            message = f"`{section}.{name}` {verb} nothing: claim {base_id} has no such entry ({allowed})."
            problems.append(Problem(changes.keys[name], message, hint=did_you_mean(name, entries)))
        elif _is_null(value):
            del entries[name], keys[name]
        else:
            entries[name], keys[name] = value, changes.keys[name]
    problems_of_both = (*(before.problems if before is not None else ()), *changes.problems)
    return Mapping(changes.position, entries, keys, problems_of_both)


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None
