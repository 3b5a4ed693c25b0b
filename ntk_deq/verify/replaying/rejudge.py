"""Judge one instance so that the margin comes out the same, bit for bit, on every machine.

The matrix products and spectra of float64 libraries depend on the processor's vector units and on the number of
threads in the last bits. Balls of many bits do not: whatever the floats that their spectra start from, the bounds agree
far beyond the 53 bits to which a margin is rounded, outward. So a small instance is judged with many bits; a large one
in floats on one thread, which gives the same bits on processors of the same kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ntk_deq.claims.claim import Claim
from ntk_deq.errors import LimitError
from ntk_deq.falsify.instance import Instance
from ntk_deq.verify.exact_judgement import decided_exactly
from ntk_deq.verify.judge import Judgement, Standing, judge_instance
from ntk_deq.verify.quantity import Truth
from ntk_deq.verify.refine import DEFAULT_BITS, SMALL, require_agreement


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, then as many as before: the sums of a product depend on how it is split."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def judge_again(
    claim: Claim, instance: Instance, *, dtype: torch.dtype, precision: int | None, deadline: float | None = None
) -> Judgement:
    """Judge an instance on the CPU with one thread, and decide in exact arithmetic what balls of many bits leave open.

    Args:
        claim: The claim.
        instance: The instance.
        dtype: Type to which its values are rounded.
        precision: Bits; None: floats of type `dtype`.
        deadline: When to stop, on the clock of `time.thread_time`.

    Raises:
        LimitError: With a `precision`: a matrix is too large for it, or a function has no form for it.
        DeadlineError: The deadline passed.
    """
    with one_thread():
        judgement = judge_instance(
            claim,
            instance,
            device=torch.device("cpu"),
            dtype=dtype,
            precision=precision,
            deadline=deadline,
            anew=False,
        )
    return judgement if precision is None else decided_exactly(claim, judgement, dtype=dtype)


def reproducible(
    claim: Claim, first: Judgement, *, dtype: torch.dtype, deadline: float | None = None
) -> tuple[Judgement, int | None]:
    """Return a judgement that others can repeat, and its bits (None: floats): as certain as the given one, or that one.

    Args:
        claim: The claim.
        first: The judgement of the run.
        dtype: Type to which the instance's values were rounded for it.
        deadline: When to stop, on the clock of `time.thread_time`.

    Raises:
        DeadlineError: The deadline passed.
        RuntimeError: The two judgements contradict each other: one of them rests on a wrong bound.
    """
    small = sum(value.numel() for value in first.instance.values.values()) <= SMALL
    for precision in (DEFAULT_BITS, None) if small else (None,):
        try:
            again = judge_again(claim, first.instance, dtype=dtype, precision=precision, deadline=deadline)
        except LimitError:
            continue
        require_agreement(first, again)
        if _certain(again) >= _certain(first):
            return again, precision
    return first, None


def _certain(judgement: Judgement) -> tuple[bool, int]:
    """Order judgements by what they are certain of: the hypotheses first, then the conclusions."""
    decided = sum(outcome.truth in (Truth.TRUE, Truth.FALSE) for outcome in judgement.conclusions.values())
    return judgement.standing is Standing.MET, decided
