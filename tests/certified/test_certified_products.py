"""Sums, products, Kronecker products and inverses against 3000-bit ball arithmetic."""

import re

import flint
import pytest
import torch
from certified_harness import BITS, blurred, cases, partner, truth, violates
from flint import arb, arb_mat

from ntk_deq import certified as ct
from ntk_deq.certified import Ball, rounding
from ntk_deq.errors import ArgumentError


def product_violations(count: int, blur: bool) -> tuple[int, int]:
    bad = total = 0
    for family, left, generator in cases(count, 11):
        right = partner(family, left.shape[1], 5, generator)
        a, b = (blurred(left, generator), blurred(right, generator)) if blur else (Ball(left), Ball(right))
        result = ct.matmul(a, b)
        with flint.ctx.workprec(BITS):
            bad += violates(truth(left) * truth(right), result)
        total += result.is_finite
    return bad, total


@pytest.mark.parametrize("blur", [False, True])
def test_products_contain_the_truth(blur):
    bad, total = product_violations(20, blur)
    assert bad == 0
    assert total > 300


def test_a_bound_without_rounding_is_caught(monkeypatch):
    monkeypatch.setattr(rounding, "unit_roundoff", lambda dtype=torch.float64: 0.0)
    bad, total = product_violations(3, blur=False)
    assert bad > 20, (bad, total)


@pytest.mark.parametrize("blur", [False, True])
def test_sums_hadamard_and_kronecker_contain_the_truth(blur):
    finite = 0
    for family, left, generator in cases(12, 12):
        right = partner(family, *left.shape, generator)
        a, b = (blurred(left, generator), blurred(right, generator)) if blur else (Ball(left), Ball(right))
        small = partner(family, 2, 3, generator)
        c = blurred(small, generator) if blur else Ball(small)
        with flint.ctx.workprec(BITS):
            x, y, z = truth(left), truth(right), truth(small)
            assert not violates(x + y, ct.add(a, b)), family
            assert not violates(x - y, ct.subtract(a, b)), family
            rows, cols = left.shape
            assert not violates(
                arb_mat(rows, cols, [x[i, j] * y[i, j] for i in range(rows) for j in range(cols)]), ct.hadamard(a, b)
            ), family
            kron = [x[i, j] * z[p, q] for i in range(rows) for p in range(2) for j in range(cols) for q in range(3)]
            assert not violates(arb_mat(2 * rows, 3 * cols, kron), ct.kron(a, c)), family
        finite += ct.kron(a, c).is_finite
    assert finite > 150


def test_multiples_contain_the_truth():
    for family, left, generator in cases(10, 13):
        for factor in (arb(1) / 3, arb(0.7), arb(-8), arb(1e-200), arb(2, 0.25)):
            result = ct.scale(factor, blurred(left, generator))
            with flint.ctx.workprec(BITS):
                for point in (factor.lower(), factor.mid(), factor.upper()):
                    assert not violates(truth(left) * point, result), family


@pytest.mark.parametrize("blur", [False, True])
def test_inverses_contain_the_truth(blur):
    proved = 0
    for family, left, generator in cases(14, 14, square=True):
        found = ct.inverse(blurred(left, generator) if blur else Ball(left))
        if not found.is_finite:
            assert found.reason
            continue
        proved += 1
        with flint.ctx.workprec(BITS):
            assert not violates(truth(left).inv(), found), family
    assert proved > (40 if blur else 120)


def test_float32_results_contain_the_truth():
    for family, wide, generator in cases(6, 15):
        left = wide.float()
        if not bool(torch.isfinite(left).all()):
            continue
        right = partner(family, left.shape[1], 3, generator).float()
        if not bool(torch.isfinite(right).all()):
            continue
        result = ct.matmul(Ball(left), Ball(right))
        assert result.centre.dtype is torch.float32
        with flint.ctx.workprec(BITS):
            assert not violates(truth(left) * truth(right), result), family
            total = ct.add(Ball(left), Ball(left * 0.1))
            assert not violates(truth(left) + truth(left * 0.1), total), family


def test_radius_is_not_much_wider_than_the_error():
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.randn(50, 50, dtype=torch.float64, generator=generator) for _ in range(2))
    result = ct.matmul(Ball(a), Ball(b))
    with flint.ctx.workprec(200):
        gap = truth(a) * truth(b) - truth(result.centre)
        error = float(sum((x * x for x in gap.entries()), arb(0)).sqrt())
    # The a-priori bound counts all 50 roundings at their worst; the typical error grows like their root.
    assert error < result.radius < 1000 * error


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (torch.eye(4), torch.full((4, 4), 0.1)),
        (torch.full((4, 4), 0.1), torch.eye(4)[torch.tensor([2, 0, 1, 3])]),
        (torch.full((3, 3), 1.5), torch.full((3, 2), -0.375)),
        (torch.full((1, 1), 3.0 * 2.0**-600), torch.full((1, 1), 2.0**-400)),
        (torch.zeros(2, 2), torch.full((2, 2), 1e-300)),
    ],
)
def test_products_without_rounding_are_exact(left, right):
    result = ct.matmul(Ball(left.double()), Ball(right.double()))
    assert result.radius == 0
    with flint.ctx.workprec(BITS):
        assert not violates(truth(left) * truth(right), result)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (2.0**-540, 2.0**-535),  # the product is half of the smallest float
        (1.0 + 2.0**-30, 1.0 + 2.0**-30),  # the square has 61 bits
        (3.0 * 2.0**-540, 3.0 * 2.0**-536),
    ],
)
def test_rounded_products_are_not_exact(left, right):
    a, b = (torch.full((1, 1), value, dtype=torch.float64) for value in (left, right))
    for result in (ct.matmul(Ball(a), Ball(b)), ct.hadamard(Ball(a), Ball(b)), ct.kron(Ball(a), Ball(b))):
        assert result.radius > 0
        with flint.ctx.workprec(BITS):
            assert not violates(truth(a) * truth(b), result)


def test_exact_inverse():
    upper = torch.tensor([[2.0, 1.0, 0.5], [0.0, 4.0, 1.0], [0.0, 0.0, 0.5]], dtype=torch.float64)
    assert ct.inverse(Ball(upper)).radius == 0
    swap = torch.eye(3, dtype=torch.float64)[torch.tensor([1, 2, 0])]
    assert ct.inverse(Ball(swap)).radius == 0


def test_no_information_stays():
    lost = Ball(torch.tensor([[float("nan")]], dtype=torch.float64))
    one = Ball(torch.ones(1, 1, dtype=torch.float64))
    zero = Ball(torch.zeros(1, 1, dtype=torch.float64))
    for result in (
        ct.add(lost, one),
        ct.matmul(lost, zero),
        ct.hadamard(zero, lost),
        ct.kron(zero, lost),
        ct.scale(arb(0), lost),
        ct.scale(ct.nan(), one),
        ct.inverse(lost),
        ct.relu(lost),
        ct.step(lost),
        ct.vec(lost),
        ct.negate(lost),
        ct.inverse(zero),
    ):
        assert result.radius == float("inf")
        assert result.reason


def test_overflow_is_no_information():
    big = Ball(torch.full((2, 2), 1e200, dtype=torch.float64))
    assert ct.matmul(big, big).radius == float("inf")
    assert ct.matmul(big, big).reason == "an entry is not finite"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a, b: ct.add(a, b), "Arguments of add must have one shape. Got 2 x 3 and 3 x 2."),
        (lambda a, b: ct.hadamard(a, b), "Arguments of hadamard must have one shape"),
        (lambda a, b: ct.matmul(a, a), "`b` of matmul must have as many rows as `a` has columns, 3. Got 2 x 3."),
        (lambda a, b: ct.inverse(a), "`a` of inverse must be a square matrix. Got 2 x 3."),
        (lambda a, b: ct.add(a, Ball(a.centre.float())), "must have one element type and one device"),
        (lambda a, b: ct.diag(a), "`a` of diag must be one column or a square matrix. Got 2 x 3."),
        (lambda a, b: ct.trace(a), "`a` of trace must be a square matrix. Got 2 x 3."),
        (lambda a, b: ct.as_scalar(a), "`a` of as_scalar must be 1 x 1. Got 2 x 3."),
        (lambda a, b: Ball(torch.zeros(0, 2)), "`centre` of Ball must be a matrix with at least one entry"),
        (lambda a, b: Ball(torch.zeros(2, 2, dtype=torch.int64)), "must be float64 or float32. Got torch.int64."),
        (lambda a, b: Ball(a.centre, -1.0), "`radius` of Ball must be a number >= 0. Got -1.0."),
        (lambda a, b: ct.ball(torch.zeros(2, 2, 2)), "`tensor` of ball must have at most two axes"),
        (lambda a, b: ct.identity(0), "`n` of identity must be an integer >= 1. Got 0."),
        (lambda a, b: ct.compare_entries("=", a, a), "`op` of compare_entries must be one of"),
        (lambda a, b: ct.compare_entries("<", a, b), "Arguments of compare_entries must have one shape"),
        (lambda a, b: ct.is_true("=", arb(1), arb(1)), "`op` of is_true must be one of"),
        (lambda a, b: ct.from_bounds(1.0, 0.0), "`lo` of from_bounds must be at most `hi`"),
        (lambda a, b: ct.with_radius(1.0, -1.0), "`rad` of with_radius must be a number >= 0"),
        (lambda a, b: ct.maximum(), "`values` of maximum must be at least one ball"),
        (lambda a, b: ct.minimum(), "`values` of minimum must be at least one ball"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    a = Ball(torch.zeros(2, 3, dtype=torch.float64))
    b = Ball(torch.zeros(3, 2, dtype=torch.float64))
    with pytest.raises(ArgumentError, match=re.escape(message)):
        call(a, b)
