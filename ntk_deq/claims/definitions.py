"""Definitions of a claim: the order in which they build on each other, and those that nothing uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from ntk_deq.claims.claim import Formula
from ntk_deq.claims.tree import Expr, Kind


def names_in(expr: Expr) -> set[str]:
    """Return every name that an expression reads, with a step or without.

    Example:
        >>> from ntk_deq.claims.parser import parse
        >>> sorted(names_in(parse("norm(Z[l]) <= c*m")))
        ['Z', 'c', 'l', 'm']
    """
    return {node.name for node in expr.walk() if node.kind in (Kind.NAME, Kind.INDEX)}


def sort_definitions(let: Mapping[str, Formula]) -> tuple[list[str], list[str]]:
    """Return the names in an order in which each uses only earlier ones, and a cycle if there is one.

    The order of the file is kept where it is such an order already. Where there is a cycle, it starts and ends with the
    same name, and the order is that of the file.
    """
    uses = {name: [used for used in names_in(formula.expr) if used in let] for name, formula in let.items()}
    place = {name: index for index, name in enumerate(let)}
    if all(place[used] < place[name] for name, all_used in uses.items() for used in all_used):
        return list(let), []
    try:
        return list(TopologicalSorter({name: sorted(used) for name, used in uses.items()}).static_order()), []
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return list(let), cycle[::-1]


def dependents(names: set[str], let: Mapping[str, Formula]) -> set[str]:
    """Return the names together with every definition that uses one of them, directly or through others."""
    users: dict[str, list[str]] = {}
    for name, formula in let.items():
        for used in names_in(formula.expr):
            users.setdefault(used, []).append(name)
    reached = set(names)
    waiting = list(names)
    while waiting:
        for user in users.get(waiting.pop(), ()):
            if user not in reached:
                reached.add(user)
                waiting.append(user)
    return reached


def unused(candidates: Iterable[str], let: Mapping[str, Formula], used: set[str]) -> set[str]:
    """Return the candidates that no statement needs, directly or through definitions.

    Args:
        candidates: Names of `given` and `let`.
        let: The definitions.
        used: Names that the hypotheses, the conclusions and the settings use.
    """
    needed = set(used)
    waiting = [name for name in needed if name in let]
    while waiting:
        for name in names_in(let[waiting.pop()].expr) - needed:
            needed.add(name)
            if name in let:
                waiting.append(name)
    return set(candidates) - needed
