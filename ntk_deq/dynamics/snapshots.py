"""Snapshots with growing distances, whose number is bounded whatever the length of the run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ntk_deq.dynamics.record import Snapshot
from ntk_deq.dynamics.stored_values import stored_count, stored_number
from ntk_deq.errors import ArgumentError

MOST_SNAPSHOTS = 1_000_000
"""Snapshots that a run may be told to keep."""

# Ratio of the steps of two neighbours at first: about 24 snapshots a decade, until there are too many.
_RATIO = 1.1
# Its square is a float still, and no run gets so far.
_LARGEST_RATIO = 1e150


class SnapshotKeeper:
    """The snapshots of a run: at step 0, then at steps that grow by a ratio; when full, every other one is dropped.

    The ratio is squared then, so that the distances stay even in the logarithm of the step, and no length of the run
    need be known beforehand.

    Args:
        limit: Snapshots allowed, the last one of the run among them; >= 2.
        always: Steps that are kept besides.

    Example:
        >>> keeper = SnapshotKeeper(8)
        >>> for k in range(1000):
        ...     if keeper.wants(k):
        ...         keeper.add(Snapshot(k, {}, 0.0, {}, 0.0))
        >>> [int(snapshot.at) for snapshot in keeper.snapshots]
        [0, 9, 25, 55, 174, 373, 800]
    """

    def __init__(self, limit: int, *, always: Sequence[int] = ()) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 2:
            raise ArgumentError(f"`snapshots` of gradient-descent must be an integer >= 2. Got {limit!r}.")
        if limit > MOST_SNAPSHOTS:
            raise ArgumentError(f"`snapshots` of gradient-descent must be at most {MOST_SNAPSHOTS}. Got {limit!r:.60}.")
        self._limit, self._always = limit, frozenset(always)
        self.snapshots: list[Snapshot] = []
        self._ratio, self._next = _RATIO, 0

    def wants(self, k: int) -> bool:
        """Say whether a snapshot is due at step k."""
        return k >= self._next or k in self._always

    def add(self, snapshot: Snapshot) -> None:
        """Take a snapshot."""
        self.snapshots.append(snapshot)
        extra = sum(kept.at in self._always for kept in self.snapshots)
        while len(self.snapshots) - extra >= self._limit:
            thinned = [kept for kept in self.snapshots if kept.at not in self._always]
            thinned = thinned[:1] if self._limit == 2 else thinned[::2]
            chosen = {kept.at for kept in thinned} | self._always
            self.snapshots = [kept for kept in self.snapshots if kept.at in chosen]
            self._ratio **= 2
        k = int(snapshot.at)
        self._next = max(k + 1, math.ceil(k * self._ratio))

    def with_end(self, last: Snapshot) -> tuple[Snapshot, ...]:
        """Return the snapshots and the run's last one."""
        kept = tuple(snapshot for snapshot in self.snapshots if snapshot.at < last.at)
        return (*kept, last)

    def state(self) -> dict[str, Any]:
        """Return what a resumed run must know besides the snapshots: how many of a record's are not just its end."""
        return {"kept": len(self.snapshots), "ratio": self._ratio, "next": self._next}

    def restore(self, state: Mapping[str, Any], snapshots: Sequence[Snapshot]) -> None:
        """Go on from what `state` returned and the snapshots of the record.

        Raises:
            ValueError: It is not what a keeper returns.
        """
        self.snapshots = list(snapshots[: stored_count(state["kept"], "kept", high=len(snapshots))])
        self._ratio = stored_number(state["ratio"], "ratio", 1.0, _LARGEST_RATIO)
        self._next = stored_count(state["next"], "next", high=10**300)
