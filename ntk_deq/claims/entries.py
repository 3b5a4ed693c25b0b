"""How a family is written in a claim file: one line, or a mapping that stands for it; the names of definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from ntk_deq.errors import ExpressionError
from ntk_deq.files.yaml import Mapping as MappingNode
from ntk_deq.files.yaml import Node, Scalar, plain
from ntk_deq.language.families import index_size, member_name, split_for
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import RANGED, Expr, Formula, Kind
from ntk_deq.language.types import Reach, Size


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


@dataclass(frozen=True)
class Defined:
    """What an entry of `let` defines.

    Attributes:
        name: The name, or that of a family.
        index: The member, or None for a plain name.
        reach: What the letter of the index runs over, or None where one member is defined.
    """

    name: str
    index: Size | None = None
    reach: Reach | None = None

    def member(self, value: int) -> str:
        """Return the name of a member."""
        return member_name(self.name, value)


@lru_cache(maxsize=4096)
def defined(key: str) -> Defined:
    """Return what an entry of `let` defines, from its name: `q`, `z[0]`, `z[l] for l in 1..L`.

    Raises:
        ExpressionError: It is none of these.

    Example:
        >>> entry = defined("z[l] for l in 1..L")
        >>> entry.name, str(entry.index), entry.reach.text
        ('z', 'l', 'l in 1..L')
    """
    if "[" not in key:
        return Defined(key)
    body, reach = split_for(key)
    expr = parse(body)
    if expr.kind is not Kind.INDEX or len(expr.args) != 1:
        raise ExpressionError("a definition is called by a name, or a member such as z[0].", (0, len(key)))
    index = index_size(expr.args[0])
    if reach is not None and index != Size.letter(reach.letter):
        allowed = f"`{expr.name}[{reach.letter}] for {reach.text}`"
        raise ExpressionError(f"the members of a range are written {allowed}. Got {key}.", (0, len(key)))
    return Defined(expr.name, index, reach)


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
