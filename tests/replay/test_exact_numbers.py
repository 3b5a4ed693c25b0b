"""Numbers as exact text: every double comes back with the same bits, and nothing else is read."""

from __future__ import annotations

import math
import struct
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ntk_deq.errors import ArgumentError
from ntk_deq.verify.replay.values import bound_text, number_text, read_bound, read_number


def bits(number: float) -> bytes:
    return struct.pack("<d", number)


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(5e-324)
@example(2.2250738585072014e-308)
@example(sys.float_info.max)
@example(1e300)
@example(-0.0)
@example(0.1)
@example(2.0**-1074 * 3)
def test_every_double_comes_back_bit_for_bit(number: float) -> None:
    assert bits(read_number(number_text(number))) == bits(number)
    assert bits(read_bound(bound_text(number))) == bits(number)


@given(st.integers(-999, 999), st.integers(0, 9))
def test_short_dyadic_numbers_are_written_as_people_write_them(top: int, power: int) -> None:
    number = top / 2**power
    text = number_text(number)
    assert "x" not in text
    assert len(text) <= 9
    assert read_number(text) == number


@pytest.mark.parametrize("bound", [math.inf, -math.inf])
def test_bounds_may_be_infinite(bound: float) -> None:
    assert read_bound(bound_text(bound)) == bound


WORDS = """
nan NaN .nan inf -.inf 1/0 1/3 0.1 1e400 1e-400 0x1.00000000000008p0 0x1p1024 1e9999999 0x1p999999 1_000 0b1 0o7 --1
1/2/3 1/-2 0x 0xp3 __import__('os') ٣ １ true [1] 1e99999 0x1p-1080
""".split()


@pytest.mark.parametrize("text", [*WORDS, "", " 1", "1 ", "9" * 41, "1" * 5000, "0x" + "f" * 21 + "p0"])
def test_everything_else_is_refused_in_one_clear_sentence(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"^A (number|fraction) must .*\. Got ") as caught:
        read_number(text)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("text", "number"),
    [("+3", 3.0), ("007", 7.0), ("1.50", 1.5), ("25e-2", 0.25), ("-6/4", -1.5), ("0X1.8P+1", 3.0), ("1e300", None)],
)
def test_other_spellings_of_doubles_are_read(text: str, number: float | None) -> None:
    if number is None:
        # 10^300 is no double: it would not be the number that was written.
        with pytest.raises(ArgumentError, match="exactly"):
            read_number(text)
    else:
        assert read_number(text) == number


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_is_not_finite_is_not_written(number: float) -> None:
    with pytest.raises(ArgumentError, match="must be finite"):
        number_text(number)
