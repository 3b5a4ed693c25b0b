"""Rules for the range of a function's values, from the ranges of its arguments; of a matrix, that of its entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ntk_deq.language.interval import NOT_NEGATIVE, Range

Values = Callable[[Sequence[Range]], Range]


def always(known: Range) -> Values:
    """The same range, whatever the arguments."""
    return lambda args: known


def positive_part(args: Sequence[Range]) -> Range:
    """The range of max(x, 0)."""
    return NOT_NEGATIVE.meet(args[0]) if args[0].high >= 0 else Range.point(0)
