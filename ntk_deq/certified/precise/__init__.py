"""Matrix balls of arbitrary precision: arb entries, for instances that float64 balls leave undecided."""

from ntk_deq.certified.precise.family import FAMILY
from ntk_deq.certified.precise.matrix import MAX_BITS_TOTAL, MAX_ENTRIES, PreciseMatrix, adopt, as_ball, precise
from ntk_deq.certified.precise.precision import MAX_BITS, MIN_BITS, check_bits, working_precision

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
