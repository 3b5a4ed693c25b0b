"""How far draws are from exact ones: against rational arithmetic, and nothing for what floats hold."""

from fractions import Fraction

import pytest
import torch
from flint import arb

from ntk_deq.data.samples import Freedom, Known, Sample, gram, multiplied, outer, scaled, summed
from ntk_deq.falsify.domains import draw_expression
from ntk_deq.language.parser import parse

SCALARS = {"m": 3, "beta": 0.7}


def drawn(text, shape=(4, 4), seed=0) -> Sample:
    return draw_expression(parse(text), shape, SCALARS, torch.Generator().manual_seed(seed))


def off(left, right) -> Fraction:
    """Return the square of the Frobenius distance between matrices of fractions."""
    return sum(((a - b) ** 2 for x, y in zip(left, right, strict=True) for a, b in zip(x, y, strict=True)), Fraction(0))


def rational(matrix):
    return [[Fraction(entry) for entry in row] for row in matrix.tolist()]


@pytest.mark.parametrize(
    "text",
    [
        "gaussian", "normal(0, 1/m)", "half_normal(1/3)", "uniform(-1/3, 1/3)", "rademacher", "identity", "zeros",
        "ones",
        "gaussian/3", "beta*normal(0, 1/m)", "gaussian + ones/3", "sphere - gaussian", "rademacher/16",
        "2*identity - ones",
        "symmetric(gaussian)/3", "skew(gaussian)", "identity/2 + skew(normal(0, 1/m))", "diagonal(gaussian)/7",
        "nilpotent(gaussian)", "duplicates(gaussian)/3", "nonnegative(gaussian)/3", "psd(rademacher)",
        "low_rank(rademacher, 2)", "rank_one(rademacher)", "beta*ones", "0*sphere", "normal(1/2, 0)",
    ],
)  # fmt: skip
def test_what_floats_hold_is_exact(text):
    assert drawn(text).radius == 0


@pytest.mark.parametrize(
    "text",
    [
        "sphere", "orthonormal_rows", "orthogonal", "nonnegative(sphere)", "4096*orthonormal_rows",
        "near_parallel(1/8)",
        "rademacher/3", "ones/3", "identity/3 + skew(gaussian)", "sqrt(2)*identity", "low_rank(gaussian, 2)",
        "rank_one(gaussian)", "psd(gaussian)", "psd(sphere)", "duplicates(sphere)", "diagonal(sphere)", "skew(sphere)",
        "nilpotent(sphere)", "symmetric(sphere)", "normal(1/3, 0)", "uniform(1/3, 1/3)", "sphere + sphere", "-sphere/3",
        "ones + skew(gaussian)", "beta*ones*beta",
    ],
)  # fmt: skip
def test_what_floats_do_not_hold_is_a_small_ball(text):
    sample = drawn(text)
    assert 0 < sample.radius < 4e-15 * max(1.0, float(sample.value.norm()))
    assert sample.freedom is Freedom.FIXED


@pytest.mark.parametrize(
    ("text", "number"), [("1/3", Fraction(1, 3)), ("-2/7 + 1/10", Fraction(1, 10) - Fraction(2, 7))]
)
def test_constants_are_near_their_floats(text, number):
    scalar = drawn(text, ())
    gap = abs(Fraction(scalar.value.item()) - number)
    assert 0 < gap <= Fraction(scalar.radius) <= 2 * gap
    spread = drawn(f"ones*({text})")
    assert off(rational(spread.value), [[number] * 4] * 4) <= Fraction(spread.radius) ** 2
    assert spread.radius <= 4 * scalar.radius + 1e-16 * 4 * abs(float(number))


def test_scalars_that_are_known_up_to_rounding_pass_it_on():
    third = Known(1 / 3, arb(1) / 3)
    sample = draw_expression(parse("3*c*ones"), (2, 2), {"c": third}, torch.Generator())
    assert torch.equal(sample.value, torch.ones(2, 2, dtype=torch.float64))
    assert sample.radius < 1e-30  # of 3 (1/3) = 1 the float is the number
    exact = draw_expression(parse("3*c*ones"), (2, 2), {"c": 1 / 3}, torch.Generator())
    assert exact.radius > 1e-17  # here c is the float, and three times that is not one


@pytest.mark.parametrize("seed", range(5))
def test_products_and_sums_against_rationals(seed):
    g = torch.Generator().manual_seed(seed)
    left, right = (Sample(torch.randn(3, 3, generator=g, dtype=torch.float64)) for _ in range(2))
    a, b = rational(left.value), rational(right.value)
    product = [[sum(a[i][k] * b[k][j] for k in range(3)) for j in range(3)] for i in range(3)]
    square = [[sum(a[k][i] * a[k][j] for k in range(3)) for j in range(3)] for i in range(3)]
    total = [[a[i][j] - b[i][j] for j in range(3)] for i in range(3)]
    third = [[entry / 3 for entry in row] for row in a]
    dyad = [[a[0][i] * b[0][j] for j in range(3)] for i in range(3)]
    cases = [
        (multiplied(left, right), product),
        (gram(left), square),
        (summed(left, right, -1.0), total),
        (scaled(left, Known(1 / 3, arb(1) / 3)), third),
        (outer(Sample(left.value[0]), Sample(right.value[0])), dyad),
    ]
    for sample, exact in cases:
        assert 0 < off(rational(sample.value), exact) <= Fraction(sample.radius) ** 2
        assert sample.radius <= 64 * 2.0**-53 * float(sample.value.norm())


def test_inherited_radii_are_multiplied_and_added():
    ball = Sample(torch.eye(2, dtype=torch.float64), 2.0**-10)
    assert scaled(ball, 4.0).radius >= 2.0**-8
    assert summed(ball, ball, 1.0).radius >= 2.0**-9
    assert multiplied(ball, ball).radius >= 2.0**-9 + 2.0**-20
    assert summed(ball, Sample(ball.value, freedom=Freedom.WHOLE), 1.0).radius == 0


@pytest.mark.parametrize("seed", range(4))
def test_near_parallel_rows_at_their_angle(seed):
    sample = drawn("near_parallel(1/8)", (6, 5), seed)
    rows = sample.value
    for first, second in zip(rows[0::2], rows[1::2], strict=True):
        # Within r of unit vectors at that angle, the inner product is within 2 r of its cosine.
        assert (
            abs(float(first @ second) - torch.cos(torch.tensor(0.125, dtype=torch.float64)))
            <= 2 * sample.radius + 1e-15
        )
