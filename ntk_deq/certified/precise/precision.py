"""The working precision of arb arithmetic, which flint keeps for the whole process, changed for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import flint

from ntk_deq.errors import ArgumentError

MIN_BITS, MAX_BITS = 53, 4096


def check_bits(bits: int) -> int:
    """Return a precision that is allowed.

    Raises:
        ArgumentError: It is no whole number from 53 to 4096.

    Example:
        >>> check_bits(128)
        128
    """
    if not isinstance(bits, int) or not MIN_BITS <= bits <= MAX_BITS:
        raise ArgumentError(f"`bits` of a precision must be a whole number from {MIN_BITS} to {MAX_BITS}. Got {bits}.")
    return bits


@contextmanager
def working_precision(bits: int) -> Iterator[None]:
    """Compute with `bits` bits inside, and as before afterwards, whatever happens inside.

    Args:
        bits: From 53 to 4096.

    Raises:
        ArgumentError: `bits` is not allowed.

    Example:
        >>> import flint
        >>> with working_precision(256):
        ...     print(flint.ctx.prec)
        256
    """
    check_bits(bits)
    before = flint.ctx.prec
    flint.ctx.prec = bits
    try:
        yield
    finally:
        flint.ctx.prec = before


@contextmanager
def guarded(factor: int, extra: int) -> Iterator[int]:
    """Compute inside with `factor` times the present bits and `extra` more; yields that number."""
    before = flint.ctx.prec
    flint.ctx.prec = factor * before + extra
    try:
        yield flint.ctx.prec
    finally:
        flint.ctx.prec = before
