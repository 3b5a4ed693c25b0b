"""Verified spectra of precise matrices: known spectra, clusters, grading, exact zeros, defective matrices."""

import pytest
import torch
from flint import arb, arb_mat, fmpq, fmpq_mat
from precise_truth import root, truth

from ntk_deq import certified as ct
from ntk_deq.certified.precise import PreciseMatrix, precise, working_precision
from ntk_deq.certified.precise import spectra as spectra_module


def rotation(order, seed):
    """An exactly orthogonal matrix of rationals: a product of reflections along integer vectors."""
    generator = torch.Generator().manual_seed(seed)
    result = fmpq_mat(order, order, [int(i == j) for i in range(order) for j in range(order)])
    for _ in range(3):
        v = [int(x) for x in torch.randint(1, 5, (order,), generator=generator)]
        square = sum(x * x for x in v)
        entries = [fmpq(int(i == j)) - fmpq(2 * v[i] * v[j], square) for i in range(order) for j in range(order)]
        result = result * fmpq_mat(order, order, entries)
    return result


def symmetric_with(values, seed):
    """An interval matrix that contains Q diag(values) Q' for an exactly orthogonal rational Q."""
    order = len(values)
    q = rotation(order, seed)
    lengths = fmpq_mat(order, order, [values[i] if i == j else 0 for i in range(order) for j in range(order)])
    return PreciseMatrix(arb_mat(q * lengths * q.transpose())), q, lengths


def spectra():
    return {
        "apart": [fmpq(k) for k in (-3, -1, 2, 5, 7)],
        "repeated": [fmpq(1)] * 3 + [fmpq(2)] * 2,
        "close": [1 + fmpq(k, 2**70) for k in range(5)],
        "graded": [fmpq(1, 1000**k) for k in range(5)],
        "with zeros": [fmpq(0), fmpq(0), fmpq(1), fmpq(3), fmpq(3)],
    }


@pytest.mark.parametrize("bits", [128, 256])
@pytest.mark.parametrize("kind", list(spectra()))
def test_eigenvalues_of_a_known_spectrum(kind, bits):
    values = spectra()[kind]
    with working_precision(bits):
        matrix, _, _ = symmetric_with(values, 3)
        found = ct.eigenvalues_symmetric(matrix)
        for ball, value in zip(found, sorted(values), strict=True):
            assert ball.contains(truth(value))
            assert ball.rad() < arb(2) ** (10 - bits)
        assert ct.lambda_min(matrix, symmetric=True).contains(truth(min(values)))
        assert ct.lambda_max(matrix).contains(truth(max(values)))
        assert ct.rho(matrix).contains(truth(max(abs(v) for v in values)))


@pytest.mark.parametrize("bits", [128, 256])
@pytest.mark.parametrize("kind", list(spectra()))
def test_singular_values_of_a_known_spectrum(kind, bits):
    values = [abs(v) for v in spectra()[kind]]
    order = len(values)
    with working_precision(bits):
        left, right = rotation(order + 2, 5), rotation(order, 6)
        lengths = [values[j] if i == j else fmpq(0) for i in range(order + 2) for j in range(order)]
        matrix = PreciseMatrix(arb_mat(left * fmpq_mat(order + 2, order, lengths) * right))
        for shape in (matrix, ct.transpose(matrix)):
            found = ct.singular_values(shape)
            for ball, value in zip(found, sorted(values, reverse=True), strict=True):
                assert ball >= 0
                assert ball.contains(truth(value))
                assert ball.rad() < arb(2) ** (10 - bits)


def test_truth_at_twice_the_bits_lies_in_every_ball():
    generator = torch.Generator().manual_seed(11)
    for order in (2, 3, 6, 11):
        x = torch.randn(order, order, generator=generator, dtype=torch.float64)
        fine = {}
        for bits in (96, 400):
            with working_precision(bits):
                p = precise(x)
                fine[bits] = [*ct.singular_values(p), ct.rho(p), ct.lambda_max(p), ct.lambda_min(p)]
        for coarse, value in zip(fine[96], fine[400], strict=True):
            assert coarse.contains(value)
            assert coarse.rad() > value.rad()


def test_exact_cases_come_out_without_radius():
    two = precise(torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 3.0]], dtype=torch.float64))
    assert [bool(a == b) for a, b in zip(ct.singular_values(two), (3, 2), strict=True)] == [True, True]
    rank_one = precise(torch.tensor([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]], dtype=torch.float64))
    assert ct.sigma_min(rank_one) == 0
    gram = ct.matmul(rank_one, ct.transpose(rank_one))
    assert ct.lambda_min(gram) == 0
    hadamard = precise(torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64))
    assert ct.sigma_min(hadamard).contains(root(2))
    triangular = precise(torch.tensor([[1.0, 9.0], [0.0, -2.0]], dtype=torch.float64))
    assert ct.rho(triangular) == 2
    assert ct.lambda_min(triangular) == -2


def test_a_radius_widens_by_weyl():
    x = torch.diag(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    wide = PreciseMatrix(arb_mat(3, 3, [arb(float(v), 2.0**-20) for v in x.reshape(-1).tolist()]))
    generator = torch.Generator().manual_seed(12)
    for _ in range(10):
        moved = x + 2.0**-20 * (2 * torch.rand(3, 3, generator=generator, dtype=torch.float64) - 1)
        for ball, value in zip(ct.singular_values(wide), ct.singular_values(precise(moved)), strict=True):
            assert ball.contains(value)
    assert ct.sigma_max(wide).rad() < 1e-5


def test_defective_and_nilpotent_matrices():
    jordan = precise(torch.tensor([[2.0, 1.0], [-1.0, 0.0]], dtype=torch.float64))
    assert ct.rho(jordan).contains(1)
    assert ct.rho(jordan).rad() < 1e-9
    assert ct.lambda_max(jordan).contains(1)
    nilpotent = precise(torch.tensor([[1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64))
    assert ct.rho(nilpotent) == 0


def test_complex_eigenvalues():
    quarter = precise(torch.tensor([[0.0, -3.0], [3.0, 0.0]], dtype=torch.float64))
    assert ct.rho(quarter).contains(truth(3))
    assert ct.lambda_max(quarter).contains(0)
    assert ct.rho(quarter).rad() < 1e-30


def test_scales_beyond_floats():
    x = torch.tensor([[1e-200, 3e-200], [2e-200, -1e-200]], dtype=torch.float64)
    tiny = ct.matmul(precise(x), precise(x))  # entries of 1e-400, which no float holds
    smallest = ct.sigma_min(tiny)
    assert smallest > 0
    assert (abs(ct.determinant(tiny)) / ct.sigma_max(tiny)).overlaps(smallest)


def test_the_same_call_gives_the_same_ball():
    x = torch.randn(7, 5, generator=torch.Generator().manual_seed(13), dtype=torch.float64)
    first, second = (ct.singular_values(precise(x)) for _ in range(2))
    assert [(v.mid(), v.rad()) for v in first] == [(v.mid(), v.rad()) for v in second]


def test_a_vanishing_bound_means_a_residual_that_vanishes_exactly():
    """A radius of zero is claimed only where S X = X L holds without rounding; elsewhere there is a radius."""
    matrices = [torch.tensor([[5.0, 4.0], [4.0, 5.0]]), torch.tensor([[2.0, 1.0], [1.0, 3.0]]), torch.ones(3, 3)]
    exact_seen = 0
    for matrix in (precise(m.double()) for m in matrices):
        for bits in range(64, 400, 16):
            with working_precision(bits):
                values, error = spectra_module.symmetric_values(matrix.entries)
            if error == 0:
                exact_seen += 1
                polynomial = [matrix.entries - spectra_module.unit_matrix(matrix.shape[0]) * value for value in values]
                assert all(bool(shifted.det() == 0) for shifted in polynomial)
    assert exact_seen > 0


def exact_symmetric(order, seed):
    x = torch.randn(order, order, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return precise(x + x.mT).entries


def fine_eigenvalues(matrix):
    with working_precision(600):
        values, error = spectra_module.symmetric_values(matrix)
    assert error < arb(2) ** -560
    return values


def tilted(order, seed, size, *, orthogonal):
    """A basis that is far from any of eigenvectors, and on request far from an orthogonal one."""
    x = torch.randn(order, order, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x = torch.eye(order, dtype=torch.float64) + size * (x - x.mT if orthogonal else x) / order
    if not orthogonal:
        return precise(x).entries
    return spectra_module._orthonormal(precise(torch.linalg.qr(x)[0]).entries)


def test_the_eigenvalue_bound_covers_what_rounding_does():
    for order in (2, 3, 5, 9):
        for seed in range(6):
            matrix = exact_symmetric(order, 40 + seed)
            fine = fine_eigenvalues(matrix)
            for bits in (64, 128):
                with working_precision(bits):
                    values, error = spectra_module.symmetric_values(matrix)
                assert all(abs(value - truth_) <= error for value, truth_ in zip(values, fine, strict=True))


@pytest.mark.parametrize("seed", [23, 78, 181])
def test_several_eigenvalues_that_are_zero_leave_the_others_known(seed):
    """The entries of X'SX between zero eigenvalues are roundings, larger on one side of the diagonal or the other."""
    factor = torch.randint(-999, 1000, (2, 5), generator=torch.Generator().manual_seed(seed)).double()
    gram = factor.T @ factor
    with working_precision(128):
        values, error = spectra_module.symmetric_values(precise(gram).entries)
    assert error < arb(2) ** -80
    assert abs(values[-1] - arb(float(torch.linalg.eigvalsh(gram)[-1]))) < 1e-6


@pytest.mark.parametrize("orthogonal", [True, False])
@pytest.mark.parametrize("size", [0.01, 0.2, 0.5])
def test_the_eigenvalue_bound_covers_a_bad_basis(monkeypatch, size, orthogonal):
    bounded = 0
    for seed in range(12):
        order = 2 + seed % 4
        matrix = exact_symmetric(order, 60 + seed)
        fine = fine_eigenvalues(matrix)
        good = spectra_module.eigenbasis(matrix)
        bad = good * tilted(order, seed, size, orthogonal=orthogonal)
        with monkeypatch.context() as patch:
            patch.setattr(spectra_module, "eigenbasis", lambda _, basis=bad: basis.mid())
            values, error = spectra_module.symmetric_values(matrix)
        if not error.is_finite():
            continue
        bounded += 1
        assert all(abs(value - truth_) <= error for value, truth_ in zip(values, fine, strict=True))
        assert any(abs(value - truth_) * 10**5 > error for value, truth_ in zip(values, fine, strict=True))
    assert bounded >= 6


@pytest.mark.parametrize("bits", [64, 128, 144, 256, 1024])
def test_rational_eigenvalues_come_out_exact_at_every_precision(bits):
    matrix = torch.tensor([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    signs = torch.tensor([[1.0, 1.0, 1.0], [1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]], dtype=torch.float64)
    with working_precision(bits):
        small = precise(matrix / 8)
        assert [bool(x == y / 8) for x, y in zip(ct.eigenvalues_symmetric(small), (1, 1, 3), strict=True)] == [True] * 3
        assert ct.spectral_norm(small) == 0.375
        assert ct.spectral_norm(precise(signs)) == 2
        assert ct.sigma_min(precise(signs)) == 1


def test_irrational_or_nearby_eigenvalues_are_not_taken_for_rational_ones():
    golden = precise(torch.tensor([[1.0, 1.0], [1.0, 0.0]], dtype=torch.float64))
    assert not any(x.is_exact() for x in ct.eigenvalues_symmetric(golden))
    # Wide balls that all contain 1, of which one eigenvalue is 1 + 2^-100: no ball may be called exact.
    close = PreciseMatrix(arb_mat([[arb(2), arb(1)], [arb(1), arb(2) + arb(2) ** -100]]))
    with working_precision(64):
        assert not any(x.is_exact() for x in ct.eigenvalues_symmetric(close))
    values = spectra_module._recognised(golden, [arb(0, 2), arb(1, 2)])
    assert not any(x.is_exact() for x in values)
    unit = precise(torch.diag(torch.tensor([1.0, 2.0], dtype=torch.float64)))
    both = spectra_module._recognised(unit, [arb(1, 0.3), arb(1, 0.3)])  # two balls, but one eigenvalue 1
    assert not any(x.is_exact() for x in both)


def test_a_rank_decides_zeros_where_the_gram_matrix_is_rounded():
    large, small = 2.0**400, 2.0**-400  # their squares and 1 do not fit into the bits of one sum
    singular = torch.tensor([[1.0, small], [large, 1.0]], dtype=torch.float64)
    regular = torch.tensor([[1.0, small], [large, 1.0 + 2.0**-40]], dtype=torch.float64)
    assert ct.sigma_min(precise(singular)) == 0
    smallest = ct.sigma_min(precise(regular))
    assert smallest >= 0
    assert not smallest == 0
    with working_precision(2048):
        assert ct.sigma_min(precise(regular)) > 0
