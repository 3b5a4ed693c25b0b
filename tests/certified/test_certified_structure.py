"""Rearrangements, entrywise maps, comparison of entries, conversion between scalars and matrices, faulty arithmetic."""

import math

import pytest
import torch
from flint import arb

from ntk_deq import certified as ct
from ntk_deq.certified import Ball, rounding
from ntk_deq.certified.exactness import grain, split


def of(rows, radius: float = 0.0) -> Ball:
    return Ball(torch.tensor(rows, dtype=torch.float64), radius)


def random(*shape: int, seed: int = 1) -> Ball:
    return Ball(torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (1, 4), (3, 1), (2, 3), (4, 2)])
def test_commutation_swaps_vec(rows, cols):
    a = random(rows, cols)
    swapped = ct.matmul(ct.commutation(rows, cols), ct.vec(a))
    assert swapped.radius == 0
    assert swapped.centre.equal(ct.vec(ct.transpose(a)).centre)


def test_vec_of_a_product_is_a_kronecker_product():
    a, x, b = random(2, 3), random(3, 4, seed=2), random(4, 2, seed=3)
    left = ct.vec(ct.matmul(ct.matmul(a, x), b))
    right = ct.matmul(ct.kron(ct.transpose(b), a), ct.vec(x))
    gap = float(torch.linalg.vector_norm(left.centre - right.centre))
    assert gap <= left.radius + right.radius < 1e-13


def test_kronecker_product_agrees_with_torch():
    a, b = random(2, 3), random(4, 1, seed=2)
    assert ct.kron(a, b).centre.equal(torch.kron(a.centre, b.centre))


def test_diag_both_ways():
    column = random(3, 1)
    assert ct.diag(ct.diag(column)).centre.equal(column.centre)
    assert ct.diag(of([[2.0]])).centre.tolist() == [[2.0]]


def test_relu_and_absolute_value_keep_the_radius():
    a = of([[-1.0, 2.0]], 0.25)
    assert ct.relu(a).radius == ct.absolute(a).radius == 0.25
    assert ct.relu(a).centre.tolist() == [[0.0, 2.0]]


def test_step_counts_undecided_entries():
    a = [[-1.0, 0.0, 0.5, 3.0]]
    assert ct.step(of(a)).radius == 0
    assert ct.step(of(a)).centre.tolist() == [[0.0, 0.0, 1.0, 1.0]]
    assert ct.step(of(a, 0.25)).radius == 1
    assert ct.step(of(a, 0.75)).radius >= math.sqrt(2)
    assert ct.step(of(a, 4.0)).radius == 2


@pytest.mark.parametrize(
    ("op", "radius", "expected"),
    [
        ("<=", 0.0, (True, False)),
        ("<", 0.0, (False, True)),
        (">=", 0.0, (False, True)),
        (">", 0.0, (False, True)),
        ("==", 0.0, (False, True)),
        ("!=", 0.0, (True, False)),
        ("<=", 0.5, (False, False)),
        (">=", 0.5, (False, True)),
        ("!=", 0.5, (True, False)),
        ("==", 2.0, (False, False)),
        ("!=", 2.0, (False, False)),
        ("<", math.inf, (False, False)),
        ("!=", math.inf, (False, False)),
    ],
)
def test_entries_are_compared(op, radius, expected):
    left, right = of([[0.0, 1.0]], radius), of([[0.0, 2.0]])
    result = ct.compare_entries(op, left, right)
    assert (result.all_true, result.some_false) == expected
    assert result.margin.is_finite() == math.isfinite(radius)


def test_entries_of_equal_matrices():
    a = random(3, 3)
    for op, expected in (
        ("==", (True, False)),
        ("!=", (False, True)),
        ("<=", (True, False)),
        (">=", (True, False)),
        ("<", (False, True)),
        (">", (False, True)),
    ):
        result = ct.compare_entries(op, a, a)
        assert (result.all_true, result.some_false) == expected
        assert result.margin == 0


def test_margin_of_entries_contains_the_worst_difference():
    result = ct.compare_entries("<=", of([[1.0, 1e20]]), of([[1.0 + 2.0**-52, 1.0]]))
    assert result.margin.contains(1 - arb(1e20))
    tiny = ct.compare_entries("<", of([[1.0]]), of([[1.0 + 2.0**-52]]))
    assert tiny.all_true
    assert tiny.margin == arb(2.0**-52)


def test_scalars_and_matrices_convert_both_ways():
    assert ct.from_scalar(arb(0.5)).radius == 0
    assert ct.from_scalar(arb(0.5)).centre.tolist() == [[0.5]]
    third = arb(1) / 3
    for dtype in (torch.float64, torch.float32):
        there = ct.from_scalar(third, dtype=dtype)
        assert 0 < there.radius < torch.finfo(dtype).eps
        assert ct.as_scalar(there).contains(third)
    assert ct.from_scalar(ct.nan()).radius == math.inf
    assert ct.from_scalar(arb("1e400")).radius == math.inf
    assert ct.from_scalar(arb(1e300), dtype=torch.float32).radius == math.inf


def test_sums_are_exact_where_nothing_is_lost():
    tenth = of([[0.1]])
    assert ct.add(tenth, tenth).radius == 0
    assert ct.subtract(tenth, tenth).radius == 0
    lossy = ct.add(of([[1.0]]), of([[2.0**-60]]))
    # What is lost is the small number itself, widened by the few roundings of its own norm.
    assert 2.0**-60 <= lossy.radius <= 2.0**-60 * (1 + 1e-12)


def test_multiples_are_exact_where_nothing_is_lost():
    a = of([[0.1, 3.0]])
    assert ct.scale(arb(-0.5), a).radius == 0
    assert ct.scale(arb(0), a).radius == 0
    assert ct.scale(arb(3), of([[5.0]])).radius == 0
    assert ct.scale(arb(0.1), a).radius > 0
    assert ct.scale(arb(1) / 3, of([[3.0]])).radius > 0


def test_length_and_lowest_bit():
    values = [0.0, 1.0, 6.0, -0.375, 5e-324, 3 * 2.0**-1074, 1.7976931348623157e308, 0.1]
    length, low = split(torch.tensor(values, dtype=torch.float64))
    for value, bits, exponent in zip(values[1:], length[1:].tolist(), low[1:].tolist(), strict=True):
        top, bottom = abs(value).as_integer_ratio()
        odd = top >> ((top & -top).bit_length() - 1)
        assert bits == odd.bit_length()
        assert (
            odd * 2.0**exponent == abs(value)
            if exponent > -1000
            else odd * 5e-324 * 2 ** (exponent + 1074) == abs(value)
        )
        assert bottom >= 1
    assert length[0] == 0
    assert grain(torch.zeros(2, 2)).longest == 0
    assert grain(torch.tensor([[1e300, 1e-300]], dtype=torch.float64)).top is None


def test_flushed_subnormals_are_noticed():
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormal numbers")
    try:
        fault, exact = rounding.arithmetic_fault(), ct.identity(2)
    finally:
        torch.set_flush_denormal(False)
    assert "flushed to zero" in fault
    assert exact.radius == math.inf
    assert exact.reason == fault
    assert ct.identity(2).radius == 0


def test_nan_radius_is_no_information():
    assert of([[1.0]], math.nan).radius == math.inf
    assert rounding.add_up(1.0, math.nan) == math.inf
    assert rounding.divide_up(1.0, 0.0) == math.inf
    assert rounding.root_up(math.nan) == math.inf
    assert rounding.subtract_down(math.nan, 1.0) == -math.inf
    assert rounding.summation_up(1.0, 2**53) == math.inf


@pytest.mark.gpu
def test_cuda_results_contain_the_same_truth():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    a = random(20, 20)
    moved = Ball(a.centre.cuda())
    product, inverted = ct.matmul(moved, moved), ct.inverse(moved)
    assert product.centre.is_cuda
    assert inverted.centre.is_cuda
    for there, here in ((product, ct.matmul(a, a)), (inverted, ct.inverse(a))):
        assert float(torch.linalg.matrix_norm(there.centre.cpu() - here.centre)) <= there.radius + here.radius
    for function in (ct.sigma_min, ct.sigma_max, ct.rho, ct.lambda_min, ct.frobenius, ct.norm1, ct.determinant):
        assert function(moved).overlaps(function(a))
    assert ct.matmul(ct.identity(20, device="cuda"), moved).radius == 0
