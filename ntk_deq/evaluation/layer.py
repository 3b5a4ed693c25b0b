"""A model's map read as one layer, Z -> act(Z L + C) with act = relu or the identity: the formula of its weight L."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import reduce

from ntk_deq.language.tree import Expr, Kind, Span


def layer_weight(image: Expr, state: str, *, tainted: Collection[str], scalars: Collection[str]) -> Expr | None:
    """Return the formula of L, or None where the map is not seen to be of this form.

    Args:
        image: The map.
        state: Name of the state.
        tainted: Names that depend on the state, itself included.
        scalars: Names of numbers, which may stand in front of the state.

    Example:
        >>> from ntk_deq.language.parser import parse
        >>> found = layer_weight(parse("relu(c*Z*A + P)"), "Z", tainted={"Z"}, scalars={"c"})
        >>> [node.name for node in found.walk() if node.name]
        ['c', 'A']
        >>> layer_weight(parse("relu(B*Z*A + P)"), "Z", tainted={"Z"}, scalars={"c"}) is None
        True
    """
    inside = image.args[0] if image.kind is Kind.CALL and image.name == "relu" else image
    moving = [term for term in _parts(inside, Kind.ADD) if any(node.name in tainted for node in term.walk())]
    if len(moving) != 1:
        return None
    factors = list(_parts(moving[0], Kind.MULTIPLY))
    places = [k for k, factor in enumerate(factors) if any(node.name in tainted for node in factor.walk())]
    if len(places) != 1 or factors[places[0]].kind is not Kind.NAME or factors[places[0]].name != state:
        return None
    left, right = factors[: places[0]], factors[places[0] + 1 :]
    numbers = all(f.kind is Kind.NUMBER or (f.kind is Kind.NAME and f.name in scalars) for f in left)
    if not (numbers and right):
        return None
    return reduce(lambda a, b: Expr(Kind.MULTIPLY, Span(0, 0), args=(a, b)), [*left, *right])


def _parts(expr: Expr, kind: Kind) -> Iterator[Expr]:
    """Yield the operands of a chain of sums or products, from left to right."""
    if expr.kind is kind:
        for arg in expr.args:
            yield from _parts(arg, kind)
    else:
        yield expr
