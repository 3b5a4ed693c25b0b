"""Numbers as people read them: no digit finer than a radius, none rounded to another number."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import pytest
from flint import arb
from hypothesis import given
from hypothesis import strategies as st

from ntk_deq.evaluation.quantity import show_ball
from ntk_deq.language.format import short_decimal


@pytest.mark.parametrize(
    ("ball", "shown"),
    [
        (arb(4e-10, 5.6e-11), "4.0e-10 ± 0.6e-10"),
        (arb(1.5, 0.02), "1.50 ± 0.03"),
        (arb(-2.5, 1e-10), "-2.5 ± 1.1e-10"),
        (arb(0, 1e-17), "0 ± 1.1e-17"),
        (arb(0.1 + 0.2), "0.300000000000…"),
        (arb(1e300, 1e290), "1e300 ± 1.1e290"),
        (arb(3, 40), "0 ± 50"),
        (arb("nan"), "undefined"),
        (arb(2) ** 2000, "1.15e+602 ± 1.87e+599"),
        (-arb(1000).exp(), "-1.97e+434 ± 7.13e+429"),
        (arb(0, arb(2) ** 1100), "± 1.36e+331"),
        (arb(2) ** -2000, "8.71e-603 ± 1.93e-607"),
        (arb(1.75e308, 1e300), "1.75e308 ± 1.1e300"),
        (arb(1e22), "1e22"),
        (arb(1 - 2.0**-10), "0.9990234375"),
    ],
)
def test_balls(ball, shown):
    assert show_ball(ball) == shown


finite = st.floats(min_value=-1e300, max_value=1e300)


@given(finite, st.floats(min_value=5e-324, max_value=1e300))
def test_a_shown_ball_holds_the_ball_and_has_no_finer_digits(mid, radius):
    text = show_ball(arb(mid, radius))
    shown, reach = text.split(" ± ")
    if shown.endswith("…") or "…" in shown:
        return
    middle, off = Fraction(shown), Fraction(reach)
    if radius < 1e-11 * abs(mid):
        middle = Fraction(float(shown))  # a float that is known to more digits than are shown stands for itself
    assert middle - off <= Fraction(mid) - Fraction(radius)
    assert Fraction(mid) + Fraction(radius) <= middle + off
    digits = re.sub(r"e.*", "", shown).lstrip("-")
    place = -len(digits.partition(".")[2]) + (int(shown.partition("e")[2]) if "e" in shown else 0)
    assert place >= math.floor(math.log10(radius)) - 1 or not middle


@given(finite)
def test_a_shown_float_is_the_number_or_says_that_it_has_more_digits(value):
    text = short_decimal(value)
    if "…" in text:
        shown = abs(Fraction(text.replace("…", "")))
        assert shown <= abs(Fraction(value)) <= shown * Fraction(100002, 100000)
    else:
        assert float(text) == value


@pytest.mark.parametrize(
    ("value", "shown"), [(1 - 2.0**-53, "0.999999…"), (math.inf, "inf"), (123456789.5, "123456789.5")]
)
def test_floats(value, shown):
    assert short_decimal(value) == shown
