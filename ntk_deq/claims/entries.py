"""How a family is written in a claim file: one line, or a mapping that stands for it; the names of definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ntk_deq.files.yaml import Mapping as MappingNode
from ntk_deq.files.yaml import Node, Scalar, plain
from ntk_deq.language.families import defined
from ntk_deq.language.tree import RANGED, Expr, Formula, Kind


def one_line(entry: Mapping[str, object], head: str) -> str | None:
    """Return the line that a mapping stands for, or None where it stands for none.

    Args:
        entry: Such as `{domain: real, shape: "[n[l]]", for: "l in 1..L"}`.
        head: The key of what stands first: `domain`, `draw` or `range`.

    Example:
        >>> one_line({"shape": "[n[l], n[l-1]]", "for": "l in 1..L"}, "domain")
        'real[n[l], n[l-1]] for l in 1..L'
    """
    if not entry.keys() <= {head, "for", *(("shape",) if head != "range" else ())} or "for" not in entry:
        return None
    first = entry.get(head, "real" if head == "domain" else None)
    if isinstance(first, list) and len(first) == 2 and not any(isinstance(v, dict | list) for v in first):
        first = f"{first[0]}..{first[1]}" if head == "range" else f"[{first[0]}, {first[1]}]"
    shape = entry.get("shape", "")
    if isinstance(shape, list):
        shape = f"[{', '.join(map(str, shape))}]"
    if isinstance(first, bool | None | list | dict) or not isinstance(shape, str):
        return None
    if shape and not shape.lstrip().startswith("["):
        shape = f"[{shape}]"
    return f"{first}{shape} for {entry['for']}"


def flattened(node: Node, head: str) -> Node:
    """Return an entry as one value: a mapping that declares a family becomes the line that it stands for."""
    if not isinstance(node, MappingNode):
        return node
    text = one_line(plain(node), head)
    return node if text is None else Scalar(node.position, text, text, ">")


def by_names(let: Mapping[str, Formula]) -> dict[str, Formula]:
    """Return the entries of `let` by what they define: of a family one formula that stands for all of its parts.

    The formula keeps the name of the first part; it says which names are used and nothing else.
    """
    found: dict[str, Formula] = {}
    for key, formula in let.items():
        name = defined(key).name
        first = found.get(name)
        parts = formula.expr if first is None else Expr(Kind.AND, formula.expr.span, (first.expr, formula.expr))
        found[name] = replace(first or formula, expr=parts)
    return found


def range_letters(let: Mapping[str, Formula], statements: Iterable[Formula]) -> set[str]:
    """Return the letters that run over ranges in the formulas of a claim."""
    found = {name for f in (*let.values(), *statements) for n in f.expr.walk() if n.kind in RANGED for name in n.names}
    return found | {entry.reach.letter for entry in map(defined, let) if entry.reach is not None}
