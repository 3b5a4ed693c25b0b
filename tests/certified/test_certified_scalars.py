"""Scalar balls: directed conversion, comparison, functions at zero, text form."""

import math
import random
from fractions import Fraction

import flint
import pytest
from flint import arb

from ntk_deq import certified as ct


def near(low: float, high: float) -> arb:
    return ct.from_bounds(low, high)


def test_conversion_to_floats_is_outward():
    draw = random.Random(1)
    for _ in range(500):
        value = Fraction(draw.randint(-(10**20), 10**20), draw.randint(1, 10**20)) * Fraction(10) ** draw.randint(
            -330, 300
        )
        ball = ct.exact(value)
        low, high = ct.lower(ball), ct.upper(ball)
        assert low == -math.inf or Fraction(low) <= value
        assert high == math.inf or value <= Fraction(high)
        assert high <= math.nextafter(math.nextafter(low, math.inf), math.inf)


def test_conversion_at_the_ends_of_the_range():
    assert ct.upper(arb("1e400")) == math.inf
    assert ct.lower(arb("1e400")) == math.nextafter(math.inf, 0)
    assert ct.lower(arb("-1e400")) == -math.inf
    assert ct.lower(arb("1e-400")) == 0
    assert ct.upper(arb("1e-400")) == 5e-324
    assert ct.lower(ct.nan()) == -math.inf
    assert ct.upper(ct.nan()) == math.inf
    assert ct.radius(ct.nan()) == math.inf
    assert ct.lower(arb(5e-324)) == ct.upper(arb(5e-324)) == 5e-324


def test_bounds_are_enclosed_and_the_lower_end_is_kept():
    draw = random.Random(2)
    for _ in range(500):
        ends = sorted(draw.choice((-1, 0, 1)) * draw.random() * 10.0 ** draw.randint(-300, 300) for _ in range(2))
        ball = ct.from_bounds(*ends)
        low, high = (arb(end) for end in ends)
        assert ball.contains(low)
        assert ball.contains(high)
        if ends[0] >= 0:
            assert ball >= 0
        # 2^-28: two units of flint's 30-bit radius. The width may also move by 2^-256 of the larger end.
        assert ct.radius(ball) <= (ends[1] - ends[0]) / 2 * (1 + 2.0**-28) + max(map(abs, ends)) * 2.0**-250


def test_with_radius_contains_its_ends():
    draw = random.Random(3)
    for _ in range(300):
        mid, rad = draw.gauss(0, 1) * 10.0 ** draw.randint(-100, 100), draw.random() * 10.0 ** draw.randint(-300, 100)
        ball = ct.with_radius(mid, rad)
        with flint.ctx.workprec(2000):
            assert ball.contains(arb(mid) + arb(rad))
            assert ball.contains(arb(mid) - arb(rad))
    assert not ct.with_radius(1.0, math.nan).is_finite()
    assert not ct.with_radius(math.inf, 1.0).is_finite()


@pytest.mark.parametrize(
    ("op", "left", "right", "expected"),
    [
        ("<=", arb(1), arb(1), True),
        ("<", arb(1), arb(1), False),
        (">=", arb(1), arb(2), False),
        (">", arb(2), arb(1), True),
        ("==", arb(1), arb(1), True),
        ("!=", arb(1), arb(1), False),
        ("==", arb(1), arb(2), False),
        ("!=", arb(1), arb(2), True),
        ("==", arb(1), arb(1, 0.5), None),
        ("<=", arb(1, 0.5), arb(1), None),
        ("<", arb(1, 0.25), arb(2, 0.25), True),
        ("<=", arb(float("nan")), arb(1), None),
        (">", arb(1), arb(float("nan")), None),
        ("!=", arb(1), arb(float("nan")), None),
        ("<", arb(1), arb(float("inf")), None),
        ("<", arb(1, float("inf")), arb(2), None),
    ],
)
def test_comparison(op, left, right, expected):
    assert ct.is_true(op, left, right) is expected


def test_functions_contain_the_values_at_sampled_points():
    draw = random.Random(5)
    with flint.ctx.workprec(128):
        for _ in range(300):
            ends = sorted(draw.gauss(0, 2) for _ in range(2))
            other = sorted(draw.gauss(0, 2) for _ in range(2))
            a, b = ct.from_bounds(*ends), ct.from_bounds(*other)
            for t in (0.0, 0.3, 1.0):
                x, y = arb(ends[0] * (1 - t) + ends[1] * t), arb(other[0] * (1 - t) + other[1] * t)
                assert ct.absolute_value(a).contains(abs(x))
                assert ct.multiply(a, b).overlaps(x * y)
                assert ct.maximum(a, b).contains(x if x > y else y)
                assert ct.minimum(a, b).contains(x if x < y else y)
                assert ct.power(a, 2).overlaps(x * x)
                assert ct.power(a, 5).overlaps(x * x * x * x * x)
                assert ct.exponential(a).overlaps(x.exp())
                if x >= 0:
                    assert ct.square_root(a).overlaps(x.sqrt())
                    assert ct.power(a, Fraction(3, 2)).overlaps(x * x.sqrt())
                    assert ct.power(a, Fraction(1, 3)).overlaps(x.root(3))
                if ends[0] > 0:
                    assert ct.logarithm(a).overlaps(x.log())
                    assert ct.power(a, b).overlaps((y * x.log()).exp())
                if other[0] > 0 or other[1] < 0:
                    assert ct.divide(a, b).overlaps(x / y)


def test_functions_at_and_below_zero():
    touching = near(0.0, 1e-16)
    crossing = near(-1e-16, 1e-16)
    assert ct.square_root(touching) >= 0
    assert ct.square_root(crossing) >= 0
    assert ct.square_root(crossing).contains(1e-8)
    assert not ct.square_root(near(-2.0, -1.0)).is_finite()
    assert ct.power(crossing, 2) >= 0
    assert ct.power(crossing, 2).is_finite()
    assert not ct.power(crossing, -1).is_finite()
    assert ct.power(arb(0), 0) == 1
    assert ct.power(arb(0), Fraction(1, 3)) == 0
    assert ct.power(touching, Fraction(1, 3)).contains(0)
    assert not ct.power(near(-2.0, -1.0), Fraction(1, 3)).is_finite()
    assert not ct.power(arb(0), Fraction(-1, 3)).is_finite()
    assert not ct.power(arb(0), -1).is_finite()
    assert not ct.divide(arb(1), arb(0)).is_finite()
    assert not ct.divide(arb(0), arb(0)).is_finite()
    assert not ct.divide(arb(1), crossing).is_finite()
    assert not ct.logarithm(touching).is_finite()
    assert ct.multiply(touching, near(0.0, 3.0)) >= 0
    for ball in (ct.maximum(arb(1), ct.nan()), ct.minimum(ct.nan(), arb(1)), ct.absolute_value(ct.nan())):
        assert not ball.is_finite()
    assert not ct.power(ct.nan(), 2).is_finite()
    assert not ct.power(arb(2), ct.nan()).is_finite()


def test_long_powers_stay_narrow():
    ball = ct.power(1 - arb(1e-9), 10**9)
    assert ball.overlaps((arb(10) ** 9 * (1 - arb(1e-9)).log()).exp())
    assert ct.radius(ball) < 1e-25


def test_exact_results_of_dominated_extremes():
    assert ct.maximum(arb(3), arb(4), near(-1.0, 2.0)) == 4
    assert ct.minimum(arb(3), arb(4), near(5.0, 6.0)) == 3
