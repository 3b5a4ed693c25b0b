"""Matrix balls of arbitrary precision: arb entries, for instances that float64 balls leave undecided."""

from ntk_deq.certified.precise.family import FAMILY
from ntk_deq.certified.precise.matrix import (
    MAX_BITS,
    MAX_BITS_TOTAL,
    MAX_ENTRIES,
    MIN_BITS,
    PreciseMatrix,
    adopt,
    as_ball,
    check_bits,
    precise,
    working_precision,
)

__all__ = [
    "FAMILY",
    "MAX_BITS",
    "MAX_BITS_TOTAL",
    "MAX_ENTRIES",
    "MIN_BITS",
    "PreciseMatrix",
    "adopt",
    "as_ball",
    "check_bits",
    "precise",
    "working_precision",
]
