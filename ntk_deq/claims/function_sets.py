"""Claims that quantify over functions, `given: {f: "convex(smooth = L)[n]"}`: for each choice of members a claim."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from ntk_deq.claims.claim import Claim, Depth
from ntk_deq.claims.inheritance import Extremes, FindSetting, named_entries
from ntk_deq.errors import ExpressionError, Problem
from ntk_deq.files.problems import expression_problem, expression_text
from ntk_deq.files.yaml import Mapping as MappingNode
from ntk_deq.files.yaml import Node, Scalar
from ntk_deq.files.yaml import Sequence as SequenceNode
from ntk_deq.language.function_domains import (
    FunctionDomain,
    Member,
    is_function_domain,
    parse_function_domain,
)

MAX_CHOICES = 24
"""Choices of members of a claim that are tried; each is a claim of its own to judge."""


class ClaimFaultError(Exception):
    """A claim cannot be taken apart; `problems` say why."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__()
        self.problems = tuple(problems)


@dataclass(frozen=True)
class FunctionChoices:
    """A claim that quantifies over functions.

    Attributes:
        node: Its node.
        given: Its own sets of functions, by the name of the function.
        settings: Those of its settings that it uses.
        choices: The members of each choice, in the order of the functions.
    """

    node: MappingNode
    given: dict[str, FunctionDomain]
    settings: dict[str, FunctionDomain]
    choices: list[tuple[Member, ...]]

    @property
    def sets(self) -> dict[str, FunctionDomain]:
        """All sets, by the name of the function."""
        return self.settings | self.given

    def variants(self) -> Iterator[tuple[MappingNode, Extremes]]:
        """Yield the node of the claim about each choice of members, and what is known of their least values."""
        for members in self.choices:
            chosen = dict(zip(self.sets, members, strict=True))
            extremes = {name: (member.least, member.where) for name, member in chosen.items()}
            yield self._variant(chosen), extremes

    def _variant(self, chosen: Mapping[str, Member]) -> MappingNode:
        at = self.node.position
        given, let, assume = (_entries(self.node, key) for key in ("given", "let", "assume"))
        for name, member in chosen.items():
            where = given.pop(name).position if name in given else at
            domain = self.sets[name]
            given |= {own: Scalar(where, text, text, ">") for own, text in member.constants.items()}
            let[f"{name}({domain.parameter})"] = Scalar(where, member.formula, member.formula, ">")
            conditions = [text for text in (domain.condition, member.condition) if text is not None]
            if conditions:
                text = " and ".join(conditions)
                assume[f"{name} is {domain.text}"] = Scalar(where, text, text, ">")
        entries = dict(self.node.entries)
        for key, part in (("given", given), ("let", let), ("assume", assume)):
            if part:
                entries[key] = MappingNode(at, part, {name: entry.position for name, entry in part.items()})
            else:
                entries.pop(key, None)
        keys = {key: self.node.keys.get(key, at) for key in entries}
        return MappingNode(self.node.position, entries, keys, self.node.problems)

    def claim(self, variants: Sequence[Claim]) -> Claim:
        """Return the claim of its variants.

        Args:
            variants: The claim about each choice of members.
        """
        first, names = variants[0], [*self.sets]
        own = {key for name, member in zip(names, self.choices[0], strict=True) for key in member.constants}
        heads = {f"{name}({domain.parameter})" for name, domain in self.sets.items()}
        added = {f"{name} is {domain.text}" for name, domain in self.sets.items()}
        depths: list[Depth] = []
        for setting in first.settings:
            for number, (members, variant) in enumerate(zip(self.choices, variants, strict=True)):
                words = tuple((name, member.name) for name, member in zip(names, members, strict=True))
                counts = tuple(
                    (name, 1 + self.sets[name].members(name).index(member))
                    for name, member in zip(names, members, strict=True)
                )
                inner = [depth.letters for depth in variant.depths if depth.setting == setting.name] or [()]
                depths += [Depth(setting.name, (*letters, *counts), words, number) for letters in inner]
        return replace(
            first,
            given={name: free for name, free in first.given.items() if name not in own},
            functions={key: found for key, found in first.functions.items() if key not in heads},
            assume={name: formula for name, formula in first.assume.items() if name not in added},
            members=self.sets,
            variants=tuple(variants),
            depths=tuple(depths),
        )


def function_choices(node: MappingNode, find_setting: FindSetting) -> FunctionChoices | None:
    """Return the functions over which a claim quantifies, or None where there are none.

    Args:
        node: The complete node of a claim.
        find_setting: Looks its settings up.

    Raises:
        ClaimFaultError: A set of functions is none, or there are too many choices.
    """
    given: dict[str, FunctionDomain] = {}
    problems = []
    places = _entries(node, "given")
    used = " ".join(_texts(node))
    for name, entry in places.items():
        text = expression_text(entry)
        if not is_function_domain(text):
            continue
        try:
            given[name] = parse_function_domain(text)
        except ExpressionError as error:
            problems.append(expression_problem(entry, error, f"given.{name}"))
            continue
        if not _uses(used, name):
            problems.append(Problem(entry.position, f"`given.{name}` is used nowhere."))
    own: dict[str, FunctionDomain] = {}
    records = [find_setting(expression_text(name), name.position.file)[0] for name in setting_names(node)]
    for setting in (record.setting for record in records if record is not None and record.setting is not None):
        for name, domain in setting.functions.items():
            other = own.get(name, domain).text
            if other != domain.text:
                message = f"`{name}` is {domain.text} in setting {setting.name} and {other} elsewhere."
                problems.append(Problem(node.position, message))
            elif _uses(used, name):
                own[name] = domain
    sets = own | given
    if sets and "exists" in node.entries:
        problems.append(Problem(node.keys["exists"], "`exists` is not judged in a claim about sets of functions."))
    choices = _spread(list(product(*(domain.members(name) for name, domain in sets.items()))))
    if problems:
        raise ClaimFaultError(problems)
    return FunctionChoices(node, given, own, choices) if sets else None


def _spread(choices: list[tuple[Member, ...]]) -> list[tuple[Member, ...]]:
    """Return all choices, or as many as are tried, spread so that the members of each set take turns."""
    count = len(choices)
    if count <= MAX_CHOICES:
        return choices
    stride = next(step for step in range(count * 3 // 8, count) if math.gcd(step, count) == 1)
    return [choices[place] for place in sorted(k * stride % count for k in range(MAX_CHOICES))]


def setting_names(node: MappingNode) -> Sequence[Node]:
    """Return the names of a claim's settings as they stand in its node."""
    names = node.entries["setting"]
    return names.items if isinstance(names, SequenceNode) else (names,)


def _entries(node: MappingNode, key: str) -> dict[str, Node]:
    found = named_entries(node.entries[key], "assumption") if key in node.entries else None
    return {} if found is None else dict(found.entries)


def _texts(node: MappingNode) -> Iterator[str]:
    """Yield the formulas of a claim as written."""
    for key in ("let", "assume", "conclude", "witness", "run", "choose"):
        part = node.entries.get(key)
        if isinstance(part, MappingNode):
            yield from (expression_text(entry) for entry in part.entries.values() if isinstance(entry, Scalar))
        elif isinstance(part, Scalar):
            yield part.text


def _uses(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
