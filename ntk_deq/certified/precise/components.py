"""Connected components of a few things that touch."""

from __future__ import annotations

from collections.abc import Callable


def connected(count: int, touch: Callable[[int, int], bool]) -> list[list[int]]:
    """Return the numbers 0 to count - 1 in groups that hang together.

    Args:
        count: How many there are.
        touch: Whether two of them touch, asked once for each pair.

    Example:
        >>> connected(4, lambda i, j: abs(i - j) == 2)
        [[0, 2], [1, 3]]
    """
    parent = list(range(count))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i in range(count):
        for j in range(i):
            if touch(i, j):
                parent[root(i)] = root(j)
    groups: dict[int, list[int]] = {}
    for i in range(count):
        groups.setdefault(root(i), []).append(i)
    return list(groups.values())
