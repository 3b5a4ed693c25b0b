"""Singular values, eigenvalues and norms against inertia counts in 3000-bit arithmetic and known spectra."""

import math
from fractions import Fraction

import flint
import pytest
import torch
from certified_harness import (
    BITS,
    blurred,
    cases,
    eigenvalue_violations,
    holds,
    singular_violations,
    truth,
    violates,
)
from flint import arb

from ntk_deq import certified as ct
from ntk_deq.certified import Ball, eigenvalues, spectra


def of(rows, dtype=torch.float64) -> Ball:
    return Ball(torch.tensor(rows, dtype=dtype))


@pytest.mark.parametrize("blur", [False, True])
def test_singular_values_contain_the_truth(blur):
    total = 0
    for family, tensor, generator in cases(12, 21):
        values = ct.singular_values(blurred(tensor, generator) if blur else Ball(tensor))
        assert len(values) == min(tensor.shape)
        assert all(value >= 0 for value in values), family
        assert singular_violations(tensor, values) == 0, (family, tensor.shape)
        total += len(values)
    assert total > 400


def test_spectra_without_their_residual_terms_are_caught(monkeypatch):
    monkeypatch.setattr(spectra, "residual_up", lambda target, left, right: 0.0)
    monkeypatch.setattr(spectra, "orthogonality_up", lambda columns: 0.0)
    monkeypatch.setattr(spectra, "column_multiples", lambda matrix, factors: (matrix * factors, 0.0))
    singular = symmetric = 0
    for _, tensor, _ in cases(3, 22, square=True):
        singular += singular_violations(tensor, ct.singular_values(Ball(tensor)))
        even = tensor + tensor.mT
        with flint.ctx.workprec(BITS):
            symmetric += eigenvalue_violations(truth(even), list(ct.eigenvalues_symmetric(Ball(even))))
    assert singular > 30
    assert symmetric > 30


def test_radius_covers_the_worst_perturbation():
    generator = torch.Generator().manual_seed(25)
    b = torch.randn(4, 6, dtype=torch.float64, generator=generator)
    left, values, _ = torch.linalg.svd(b, full_matrices=False)
    for size in (1e-9, 0.5, 3.0):
        a = Ball(b, size)
        # Along its leading singular vectors the matrix gains `size` in norm, along its last ones it loses as much.
        assert ct.upper(ct.sigma_max(a)) >= float(values[0]) + size * (1 - 1e-9)
        assert ct.lower(ct.sigma_min(a)) <= max(float(values[-1]) - size, 0) * (1 + 1e-9)
        pick = Ball(torch.zeros(1, 4, dtype=torch.float64), size)
        assert ct.matmul(pick, Ball(b)).radius >= size * float(values[0]) * (1 - 1e-12)
        exact = truth(size * left[:, :1].mT)
        with flint.ctx.workprec(BITS):
            assert not violates(exact * truth(b), ct.matmul(pick, Ball(b)))
        kron = ct.kron(Ball(b, size), Ball(b))
        assert kron.radius >= size * float(torch.linalg.matrix_norm(b)) * (1 - 1e-12)
    near = Ball(torch.diag(torch.tensor([1.0, 1e-3], dtype=torch.float64)), 5e-4)
    assert not violates(truth(torch.diag(torch.tensor([1.0, 5e-4], dtype=torch.float64))).inv(), ct.inverse(near))
    assert ct.inverse(near).is_finite
    assert not ct.inverse(Ball(near.centre, 1e-3)).is_finite
    assert ct.inverse(near).radius >= 1000
    even = Ball(torch.eye(2, dtype=torch.float64), 0.25)
    assert holds(ct.lambda_max(even), 1.25)
    assert holds(ct.lambda_min(even), 0.75)
    assert holds(ct.rho(even), 1.25)


def test_singular_values_are_narrow():
    generator = torch.Generator().manual_seed(5)
    tensor = torch.randn(30, 20, dtype=torch.float64, generator=generator)
    values = ct.singular_values(Ball(tensor))
    # 30 u fro(A) sqrt(20) is 4e-13; the defects of both bases add about as much.
    assert max(ct.radius(value) for value in values) < 1e-11
    assert math.isclose(float(values[0].mid()), float(torch.linalg.matrix_norm(tensor, 2)), rel_tol=1e-12)


@pytest.mark.parametrize("blur", [False, True])
def test_symmetric_eigenvalues_contain_the_truth(blur):
    for family, tensor, generator in cases(10, 23, square=True):
        even = tensor + tensor.mT
        a = blurred(even, generator) if blur else Ball(even)
        values = ct.eigenvalues_symmetric(a)
        with flint.ctx.workprec(BITS):
            assert eigenvalue_violations(truth(even), list(values)) == 0, family
            for extreme, place in ((ct.lambda_min(a), 0), (ct.lambda_max(a), -1)):
                alone = [ct.nan()] * len(values)
                alone[place] = extreme
                assert eigenvalue_violations(truth(even), alone) == 0, family
        assert extreme.is_finite()


UNIMODULAR = [[1, 2, 0, 1], [0, 1, 3, -1], [1, 2, 1, 0], [2, 4, 0, 3]]


def similar(block: list[list[int]]) -> Ball:
    """Return P B P^-1 in whole numbers, for a fixed P of determinant 1."""
    size = len(block)
    p = flint.fmpz_mat(UNIMODULAR)
    assert abs(int(p.det())) == 1
    padded = flint.fmpz_mat(4, 4)
    for i in range(size):
        for j in range(size):
            padded[i, j] = block[i][j]
    result = p * padded * flint.fmpz_mat([[int(x) for x in row] for row in p.inv().tolist()])
    return of([[float(int(x)) for x in row] for row in result.tolist()])


@pytest.mark.parametrize(
    ("block", "largest", "smallest", "radius"),
    [
        ([[3, 0, 0, 0], [0, -5, 0, 0], [0, 0, 1, 0], [0, 0, 0, 2]], 3, -5, 5),
        ([[2, 0, 0, 0], [0, 2, 0, 0], [0, 0, 2, 0], [0, 0, 0, 1]], 2, 1, 2),
        ([[0, -3, 0, 0], [3, 0, 0, 0], [0, 0, -1, 0], [0, 0, 0, -2]], 0, -2, 3),
        ([[1, -2, 0, 0], [2, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, 0]], 2, 0, None),
        ([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]], 0, 0, 0),
        ([[2, 1, 0, 0], [0, 2, 0, 0], [0, 0, -1, 1], [0, 0, 0, -1]], 2, -1, 2),
    ],
)
@pytest.mark.parametrize("blur", [0.0, 1e-9])
def test_eigenvalues_of_matrices_with_a_known_spectrum(block, largest, smallest, radius, blur):
    a = similar(block)
    a = Ball(a.centre + blur / 4, blur)
    assert holds(ct.lambda_max(a), largest)
    assert holds(ct.lambda_min(a), smallest)
    assert holds(ct.rho(a), arb(5).sqrt() if radius is None else radius)
    assert ct.rho(a) >= 0
    diagonalisable = all(block[i][i + 1] != 1 for i in range(3))
    assert ct.radius(ct.rho(a)) < (1e-5 if diagonalisable else 1.0)


def test_general_eigenvalues_of_random_matrices_agree_with_their_characteristic_polynomial():
    for family, tensor, generator in cases(4, 24, square=True):
        if (
            family not in ("gaussian", "whole numbers", "huge", "tiny", "nonnegative", "graded entries")
            or len(tensor) < 2
        ):
            continue
        with flint.ctx.workprec(BITS):
            try:
                roots = flint.acb_mat(truth(tensor)).eig()
            except ValueError:  # repeated eigenvalues, which flint does not separate
                continue
            largest = max((root.real for root in roots), key=lambda x: x.mid())
            smallest = min((root.real for root in roots), key=lambda x: x.mid())
            modulus = max((abs(root) for root in roots), key=lambda x: x.mid())
        for a in (Ball(tensor), blurred(tensor, generator)):
            for value, exact in ((ct.lambda_max(a), largest), (ct.lambda_min(a), smallest), (ct.rho(a), modulus)):
                assert value.is_finite(), family
                assert value.overlaps(exact), family


def furthest(discs: eigenvalues.Discs, matrix: torch.Tensor) -> float:
    """Return how far from the nearest centre an eigenvalue of a matrix is, in the unit of the discs."""
    values = torch.linalg.eigvals(matrix) / 2.0**discs.exponent
    return float((values[:, None] - discs.centres[None]).abs().amin(dim=1).amax())


@pytest.mark.parametrize("factor", [1.0, 0.6, -1.0])
def test_discs_pay_for_eigenvalues_and_inverses_that_are_off(monkeypatch, factor):
    guess, inverse = eigenvalues.eigenvectors, torch.linalg.inv_ex
    off = torch.tensor([1e-3, 0.0])
    monkeypatch.setattr(eigenvalues, "eigenvectors", lambda m: (guess(m)[0] + off, guess(m)[1]))
    monkeypatch.setattr(torch.linalg, "inv_ex", lambda m: (factor * inverse(m)[0], inverse(m)[1]))
    ball = of([[1.0, 1e-3], [2e-3, 2.0]])
    discs = eigenvalues.eigenvalue_discs(ball)
    assert 9e-4 < furthest(discs, ball.centre) <= discs.radius


def test_discs_of_idle_rows_follow_a_bad_perturbation():
    ball = of([[1.0, 1e-3, 1.0], [2e-3, 2.0, 0.0], [0.0, 0.0, 1.01]])
    moved = ball.centre.clone()
    moved[2, 0] = 1e-6  # near an eigenvalue of the rest: seen a hundred times as large
    discs = eigenvalues.eigenvalue_discs(Ball(ball.centre, 1e-6))
    assert 2e-5 < furthest(discs, moved) <= discs.radius < 1e-3


def test_idle_rows_of_two_values_have_both():
    ball = of([[1.0, 1e-3, 1.0, 1.0], [2e-3, 2.0, 0.0, 1.0], [0.0, 0.0, 3.0, 0.0], [0.0, 0.0, 0.0, 4.0]])
    discs = eigenvalues.eigenvalue_discs(ball)
    assert furthest(discs, ball.centre) <= discs.radius + 1e-14


def test_discs_that_touch_belong_together():
    discs = eigenvalues.Discs(torch.tensor([0.0, 2.0, 4.5], dtype=torch.complex128), 1.0, 0)
    assert discs.component(1).real.tolist() == [0.0, 2.0]


def test_equality_is_decided_exactly():
    third = ct.scale(arb(0.5), ct.identity(3))
    assert ct.lambda_min(ct.subtract(ct.identity(3), third)) == 0.5
    assert ct.spectral_norm(of([[1.0]])) == 1
    assert ct.spectral_norm(ct.negate(ct.identity(5))) == 1
    assert ct.spectral_norm(of([[3.0], [4.0]])) == 5
    assert ct.spectral_norm(of([[3.0, 4.0]])) == 5
    assert ct.sigma_min(of([[0.0, 0.3], [0.1, 0.0]])) == 0.1
    assert ct.sigma_min(of([[1.0, 1.0], [1.0, -1.0]])) * ct.sigma_max(of([[1.0, 1.0], [1.0, -1.0]])) - 2 < 1e-30
    assert ct.sigma_min(of([[1.0, 2.0], [2.0, 4.0]])) == 0
    assert ct.sigma_min(of([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])) == 0
    assert ct.rho(of([[0.0, 7.0], [0.0, -3.0]])) == 3
    assert ct.lambda_max(of([[1.0, 9.0], [0.0, -3.0]])) == 1
    assert ct.determinant(of([[0.1, 0.2], [0.2, 0.4]])) == 0
    assert ct.determinant(of([[2.0, 1.0], [1.0, 2.0]])) == 3
    assert ct.trace(of([[1e300, 0.0], [0.0, -1e300]])) == 0
    assert ct.frobenius(of([[3e-310], [4e-310]], torch.float64)) > 0
    assert ct.frobenius(of([[3 * 2.0**-1070], [4 * 2.0**-1070]])) == arb(5) * arb(2) ** -1070
    assert ct.frobenius(of([[3 * 2.0**1000, 4 * 2.0**1000]])) == arb(5) * arb(2) ** 1000


@pytest.mark.parametrize("shape", [(3, 4), (70, 80)])
@pytest.mark.parametrize("power", [-700, 0, 300])
def test_norms_and_sums_contain_the_truth(shape, power):
    generator = torch.Generator().manual_seed(31)
    tensor = torch.randn(*shape, dtype=torch.float64, generator=generator) * 2.0**power
    square = tensor[: min(shape), : min(shape)].contiguous()
    for blur in (False, True):
        a = blurred(tensor, generator) if blur else Ball(tensor)
        s = blurred(square, generator) if blur else Ball(square)
        with flint.ctx.workprec(BITS):
            exact = truth(tensor)
            rows = [[exact[i, j] for j in range(shape[1])] for i in range(shape[0])]
            fro = sum((x * x for row in rows for x in row), arb(0)).sqrt()
            one = max(sum((abs(row[j]) for row in rows), arb(0)) for j in range(shape[1]))
            infinity = max(sum((abs(x) for x in row), arb(0)) for row in rows)
            total = sum((x for row in rows for x in row), arb(0))
            diagonal = sum((rows[i][i] for i in range(min(shape))), arb(0))
        for value, known in (
            (ct.frobenius(a), fro),
            (ct.norm1(a), one),
            (ct.norminf(a), infinity),
            (ct.entry_sum(a), total),
            (ct.trace(s), diagonal),
            (ct.entry_max(a), arb(float(tensor.max()))),
            (ct.entry_min(a), arb(float(tensor.min()))),
        ):
            assert value.contains(known.mid()), (shape, power, blur)
        if not blur:
            assert ct.radius(ct.frobenius(a)) < 1e-12 * ct.upper(ct.frobenius(a))


def test_determinants_contain_the_truth():
    for family, tensor, generator in cases(6, 32, square=True):
        with flint.ctx.workprec(BITS):
            known = truth(tensor).det()
        assert ct.determinant(Ball(tensor)).overlaps(known), family
        assert ct.determinant(blurred(tensor, generator)).overlaps(known), family


def test_spectra_without_information():
    lost = of([[math.nan, 0.0], [0.0, 1.0]])
    for value in (
        ct.spectral_norm(lost),
        ct.sigma_min(lost),
        ct.lambda_min(lost),
        ct.lambda_max(lost, symmetric=True),
        ct.rho(lost),
        ct.frobenius(lost),
        ct.norm1(lost),
        ct.norminf(lost),
        ct.entry_sum(lost),
        ct.entry_max(lost),
        ct.trace(lost),
        ct.determinant(lost),
        ct.as_scalar(of([[math.inf]])),
    ):
        assert not value.is_finite()
        assert ct.is_true("<=", arb(0), value) is None


def test_large_matrices_take_the_float_route():
    generator = torch.Generator().manual_seed(33)
    basis = torch.linalg.qr(torch.randn(90, 90, dtype=torch.float64, generator=generator))[0]
    values = torch.linspace(1, 10, 90, dtype=torch.float64)
    tensor = (basis * values) @ basis.mT
    a = Ball(tensor, 1e-9)
    assert holds(ct.sigma_max(a), 10)
    assert holds(ct.sigma_min(a), 1)
    assert holds(ct.lambda_min(a), 1)
    assert holds(ct.lambda_min(a, symmetric=True), 1)
    assert holds(ct.rho(a), 10)
    assert holds(ct.spectral_norm(Ball(torch.ones(100, 70, dtype=torch.float64))), arb(7000).sqrt())


def test_float32_spectra_use_double_precision():
    a = of([[2.0, 1.0], [1.0, 2.0]], torch.float32)
    assert ct.radius(ct.sigma_max(a)) < 1e-14
    assert holds(ct.sigma_max(a), 3)
    assert holds(ct.lambda_min(a), 1)
    assert holds(ct.determinant(a), Fraction(3))
