"""Proofs that a smallest eigenvalue lies above or below a number: tight cases, equality, radii, the shift."""

import math
from fractions import Fraction

import pytest
import torch
from certified_harness import orthogonal
from flint import arb

from benchmarks.certified_truth import symmetric_spectrum
from ntk_deq import certified as ct
from ntk_deq.certified import Ball, extremes
from ntk_deq.certified.arithmetic import residual_up
from ntk_deq.errors import ArgumentError


def of(rows, radius: float = 0.0) -> Ball:
    return Ball(torch.tensor(rows, dtype=torch.float64), radius)


def symmetric(n: int, seed: int, values: torch.Tensor | None = None) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    basis = orthogonal(n, generator)
    values = torch.linspace(0.5, 3.0, n, dtype=torch.float64) if values is None else values
    matrix = (basis * values) @ basis.mT
    return (matrix + matrix.mT) / 2


@pytest.mark.parametrize("scale", [1.0, 2.0**700, 2.0**-700, 2.0**-1040])
@pytest.mark.parametrize("n", [3, 20, 40])
def test_bounds_near_the_eigenvalue_are_proved_on_either_side(n, scale):
    matrix = symmetric(n, 1) * scale
    for digits in range(1, 10 if scale > 1e-300 else 3):
        assert ct.lambda_min_at_least(matrix, 0.5 * (1 - 10.0**-digits) * scale) is True
        assert ct.lambda_min_below(matrix, 0.5 * (1 - 10.0**-digits) * scale) is None
        assert ct.lambda_min_at_least(matrix, 0.5 * (1 + 10.0**-digits) * scale) is None
        assert ct.lambda_min_below(matrix, 0.5 * (1 + 10.0**-digits) * scale) is True


@pytest.mark.parametrize("n", [2, 7, 16])
def test_equality_of_small_exact_matrices_is_decided(n):
    generator = torch.Generator().manual_seed(n)
    factor = (3 * torch.randn(n, n - 1, dtype=torch.float64, generator=generator)).round()
    singular = factor @ factor.mT  # in whole numbers: its smallest eigenvalue is exactly zero
    for shift in (0.0, 0.75, -(2.0**-40)):
        moved = singular + shift * torch.eye(n, dtype=torch.float64)
        assert ct.lambda_min_at_least(moved, shift) is True
        assert ct.lambda_min_below(moved, shift) is None
        above = math.nextafter(shift, math.inf)
        assert ct.lambda_min_at_least(moved, above) is None
        assert ct.lambda_min_below(moved, above) is True


def test_equality_of_diagonal_matrices_is_decided_at_any_size():
    eye = torch.eye(80, dtype=torch.float64) * 0.1
    assert ct.lambda_min_at_least(eye, 0.1) is True
    assert ct.lambda_min_below(eye, 0.1) is None
    assert ct.lambda_min_at_least(eye, math.nextafter(0.1, 1)) is None
    assert ct.lambda_min_below(eye, math.nextafter(0.1, 1)) is True


def test_a_bound_may_be_a_ball():
    third = arb(1) / 3
    matrix = torch.eye(2, dtype=torch.float64)
    assert ct.lambda_min_at_least(matrix, third) is True
    assert ct.lambda_min_at_least(matrix, arb(1, 0.5)) is None
    assert ct.lambda_min_below(matrix, arb(1.5, 0.25)) is True
    assert ct.lambda_min_below(matrix, arb(1.5, 0.75)) is None
    assert ct.lambda_min_at_least(2 * matrix, ct.exact(Fraction(5, 3))) is True


def test_the_radius_counts():
    matrix = symmetric(10, 2)
    assert ct.lambda_min_at_least(Ball(matrix, 0.1), 0.39) is True
    assert ct.lambda_min_at_least(Ball(matrix, 0.1), 0.41) is None
    assert ct.lambda_min_below(Ball(matrix, 0.1), 0.61) is True
    assert ct.lambda_min_below(Ball(matrix, 0.1), 0.59) is None


def test_a_gram_ball_carries_the_error_of_its_product():
    generator = torch.Generator().manual_seed(4)
    X = torch.randn(30, 40, dtype=torch.float64, generator=generator)
    gram = ct.matmul(X, X.mT)
    least = ct.lower(ct.sigma_min(X)) ** 2
    assert gram.radius > 0
    assert ct.lambda_min_at_least(gram, least * (1 - 1e-9)) is True
    assert ct.lambda_min_below(gram, least * (1 + 1e-9)) is True
    # Two equal rows: the true product is singular, while the rounded one, taken as exact, may well be definite.
    X[1] = X[0] * 3.0
    for bound in (1e-18, 1e-15, 1e-13):
        assert ct.lambda_min_at_least(ct.matmul(X, X.mT), bound) is None


def test_an_indefinite_matrix_is_never_proved_definite():
    generator = torch.Generator().manual_seed(5)
    for n in (4, 17, 40, 90):
        values = torch.rand(n, dtype=torch.float64, generator=generator) + 1.0
        for digits in range(6, 17):
            values[0] = -(10.0**-digits)
            matrix = symmetric(n, digits, values)
            # The rounded matrix's own eigenvalue is within 1e-14 of the wanted one.
            if digits <= 13:
                assert ct.lambda_min_at_least(matrix, 0.0) is None
                assert ct.lambda_min_below(matrix, 0.0) is True
            assert not (ct.lambda_min_at_least(matrix, 0.0) and ct.lambda_min_below(matrix, 0.0))


@pytest.mark.parametrize("n", [1, 5, 33, 128])
def test_the_shift_covers_what_the_factor_leaves(n):
    for seed in range(5):
        values = 10.0 ** torch.linspace(0, -8, n, dtype=torch.float64)
        matrix = symmetric(n, seed, values)
        factor = torch.linalg.cholesky(matrix)
        left = residual_up(matrix, factor, factor.mT)
        assert 0 < left <= extremes.cholesky_shift(n, float(matrix.trace()) * (1 + 1e-10))


def test_the_shift_alone_would_prove_definiteness():
    """Rump's theorem: a factorisation of A - shift I that ends proves A definite, without looking at the factor."""
    ended = 0
    for seed in range(60):
        n = 4 + seed % 30
        values = torch.linspace(1.0, 2.0, n, dtype=torch.float64)
        values[0] = 10.0 ** (-13.0 + 3 * torch.rand((), generator=torch.Generator().manual_seed(seed)).item())
        values[0] *= -1 if seed % 2 else 1
        matrix = symmetric(n, seed, values)
        shift = extremes.cholesky_shift(n, float(matrix.trace()))
        shifted = matrix - shift * torch.eye(n, dtype=torch.float64)
        if int(torch.linalg.cholesky_ex(shifted)[1]) == 0:
            ended += 1
            assert ct.lambda_min(matrix, symmetric=True) > 0
    assert ended > 10


def test_a_factor_alone_is_not_a_proof(monkeypatch):
    """Without the residual, some indefinite matrix passes: the tests above can fail."""
    for name in ("residual_up", "largest_entry", "cholesky_shift"):
        monkeypatch.setattr(extremes, name, lambda *args: 0.0)
    fooled = 0
    for seed in range(80):
        matrix = symmetric(20, seed, torch.linspace(0.0, 2.0, 20, dtype=torch.float64))
        spectrum = symmetric_spectrum(matrix)
        bound = float(ct.lambda_min(matrix, symmetric=True).mid())
        while not spectrum.below(bound):
            bound += 2.0**-54
        fooled += ct.lambda_min_at_least(matrix, bound) is True
    assert fooled > 0


def test_with_the_residual_the_tightest_false_claims_are_not_proved():
    for seed in range(80):
        matrix = symmetric(20, seed, torch.linspace(0.0, 2.0, 20, dtype=torch.float64))
        spectrum = symmetric_spectrum(matrix)
        bound = float(ct.lambda_min(matrix, symmetric=True).mid())
        while not spectrum.below(bound):
            bound += 2.0**-54
        assert ct.lambda_min_at_least(matrix, bound) is None


def test_no_information_and_wrong_arguments():
    lost = of([[math.nan, 0.0], [0.0, 1.0]])
    assert ct.lambda_min_at_least(lost, 0.0) is None
    assert ct.lambda_min_below(lost, 2.0) is None
    assert ct.lambda_min_at_least(of([[1.0]], math.inf), 0.0) is None
    with pytest.raises(ArgumentError, match=r"`a` of lambda_min_at_least must be a square matrix. Got 1 x 2."):
        ct.lambda_min_at_least(of([[1.0, 2.0]]), 0.0)
    with pytest.raises(ArgumentError, match=r"`c` of lambda_min_below must be a finite number. Got nan."):
        ct.lambda_min_below(of([[1.0]]), math.nan)
    with pytest.raises(ArgumentError, match="must be a matrix with at least one entry"):
        ct.lambda_min_at_least(torch.zeros(0, 0, dtype=torch.float64), 0.0)


def test_of_a_matrix_that_is_not_symmetric_the_symmetric_part_is_meant():
    skewed = torch.tensor([[1.0, 3.0], [1.0, 1.0]], dtype=torch.float64)  # symmetric part has eigenvalues -1 and 3
    assert ct.lambda_min_at_least(skewed, -1.0) is True
    assert ct.lambda_min_below(skewed, -0.9) is True
