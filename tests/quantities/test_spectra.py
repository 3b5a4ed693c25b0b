"""Singular values and eigenvalues: closed forms, invariants, and what is refused."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from ntk_deq.errors import ArgumentError
from ntk_deq.quantities import condition_number, lambda_max, lambda_min, ntk_gram, sigma_max, sigma_min, spectrum
from ntk_deq.systems import LinearImplicit


def matrix(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def orthogonal(n, seed=0):
    return torch.linalg.qr(matrix(n, n, seed=seed))[0]


@pytest.mark.parametrize("values", [[3.0, 2.0, 1e-9], [1.0, 1.0, 1.0], [5.0, 1e-3, 0.0]])
@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (3, 3)])
def test_singular_values_of_a_matrix_built_from_them(values, shape):
    rows, columns = shape
    core = torch.diag(torch.tensor(values, dtype=torch.float64))
    A = orthogonal(rows)[:, :3] @ core @ orthogonal(columns, seed=1)[:3]
    assert float(sigma_max(A)) == pytest.approx(values[0], rel=1e-14)
    assert float(sigma_min(A)) == pytest.approx(values[2], abs=1e-15)


def test_sigma_min_is_the_smaller_sides_last_one_not_zero_for_wide_or_tall():
    A = torch.tensor([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]], dtype=torch.float64)
    assert sigma_min(A) == sigma_min(A.T) == 3


def test_eigenvalues_of_a_matrix_built_from_them():
    values = torch.tensor([-2.0, 0.5, 7.0], dtype=torch.float64)
    Q = orthogonal(3)
    H = Q @ torch.diag(values) @ Q.T
    assert float(lambda_min(H)) == pytest.approx(-2, rel=1e-14)
    assert float(lambda_max(H)) == pytest.approx(7, rel=1e-14)
    found = spectrum(H)
    torch.testing.assert_close(found.eigenvalues, values, rtol=1e-14, atol=1e-14)
    assert (found.rank, found.lambda_min, found.lambda_max) == (3, float(lambda_min(H)), float(lambda_max(H)))
    assert found.condition_number == pytest.approx(14, rel=1e-13)


def test_rank_and_condition_of_a_gram_matrix_with_a_repeated_row():
    F = matrix(4, 6)
    F[3] = F[0]
    found = spectrum(F @ F.T)
    assert (found.rank, found.condition_number) == (3, float("inf"))
    assert condition_number(F) == float("inf")
    assert condition_number(F[:3]) < 100


def test_condition_number_is_scale_free_and_survives_extreme_scales():
    A = matrix(4, 3)
    for scale in (1e-150, 1e150):
        assert float(condition_number(scale * A)) == pytest.approx(float(condition_number(A)), rel=1e-12)
    assert condition_number(torch.zeros(2, 2)) == float("inf")
    assert condition_number(torch.eye(3)) == 1


def test_zero_matrix_has_rank_zero():
    found = spectrum(torch.zeros(2, 2))
    assert (found.rank, found.condition_number, found.resolution) == (0, float("inf"), 0)


def test_asymmetry_from_rounding_is_accepted_and_split_evenly():
    H = matrix(5, 5)
    H = H @ H.T
    moved = H.clone()
    moved[0, 1] += 1e-14
    assert float(lambda_min(moved)) == pytest.approx(float(lambda_min(moved.T)), abs=1e-16)


@pytest.mark.parametrize("function", [lambda_min, lambda_max, spectrum])
def test_eigenvalues_of_an_asymmetric_matrix_are_refused_with_its_asymmetry(function):
    H = torch.tensor([[1.0, 2.5], [2.0, 1.0]], dtype=torch.float64)
    with pytest.raises(ArgumentError, match=r"need H = H'\. Got max\|H - H'\| = 0\.5 against max\|H\| = 2\.5"):
        function(H)
    with pytest.raises(ArgumentError, match=r"square one\. Got shape \(2, 3\).*sigma_min"):
        function(torch.ones(2, 3))


@pytest.mark.parametrize("function", [sigma_min, sigma_max, condition_number, lambda_min, lambda_max, spectrum])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (torch.ones(2), r"at least one entry. Got shape \(2,\)"),
        (torch.ones(0, 0), r"at least one entry. Got shape \(0, 0\)"),
        (torch.full((2, 2), float("nan")), "finite matrix"),
        (torch.full((2, 2), float("inf")), "finite matrix"),
    ],
)
def test_what_has_no_spectrum_is_refused(function, bad, message):
    with pytest.raises(ArgumentError, match=message):
        function(bad)


def test_error_bars_tell_zero_from_small():
    one_parameter = LinearImplicit(*(torch.full(shape, 0.5, dtype=torch.float64) for shape in ((1, 1), (1, 1), (1,))))
    X = matrix(7, 1)
    kernel = ntk_gram(one_parameter, X)  # seven samples, three parameters
    found = lambda_min(kernel)
    assert abs(found) <= found.radius < 1e-10
    assert found.may_be_zero
    assert kernel.lambda_min.may_be_zero
    assert kernel.sigma_min.may_be_zero
    assert "lambda_min=" in repr(kernel.spectrum)
    assert " ± " in repr(kernel.spectrum)
    assert not kernel.lambda_max.may_be_zero
    F = matrix(3, 5)
    F[1] = F[0]
    assert sigma_min(F).may_be_zero
    assert (float(sigma_min(F).certified()), sigma_min(F).certified().radius) == (0, 0)
    small = torch.diag(torch.tensor([1.0, 1e-14], dtype=torch.float64))
    assert not sigma_min(small).may_be_zero
    assert not lambda_min(small).may_be_zero


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_certified_numbers_contain_the_truth(dtype):
    H = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=dtype)
    truth = {lambda_min: (5 - 5**0.5) / 2, lambda_max: (5 + 5**0.5) / 2, sigma_min: (5 - 5**0.5) / 2}
    for function, value in truth.items():
        plain, proven = function(H), function(H).certified()
        assert abs(plain - value) <= plain.radius
        assert proven.is_certified
        assert not plain.is_certified
        assert abs(proven - value) <= proven.radius + 1e-15
        assert proven.radius < 1e-12
        assert proven.certified() is proven
    with pytest.raises(ArgumentError, match="no proof"):
        condition_number(H).certified()


def test_measured_numbers_are_numbers():
    found = sigma_min(torch.eye(2, dtype=torch.float64))
    assert repr(found) == "1 ± 4.4e-16"
    assert f"{found:.3f}" == "1.000"
    assert found.item() == 1
    again = pickle.loads(pickle.dumps(copy.deepcopy(found)))
    assert (again, again.radius, again.is_certified) == (1, found.radius, False)
    assert (2 * found, found**2, torch.ones(()) * found) == (2, 1, 1)


@pytest.mark.parametrize("function", [sigma_min, lambda_min, spectrum])
def test_what_is_no_matrix_is_refused(function):
    for bad, message in (([[1.0]], "Got list"), (torch.eye(2).long(), "Got torch.int64")):
        with pytest.raises(ArgumentError, match=message):
            function(bad)


def test_representation():
    found = spectrum(torch.diag(torch.tensor([4.0, 2.0])))
    assert repr(found) == "Spectrum(size=2, lambda_min=2, lambda_max=4, rank=2, condition=2)"
    assert "<td>4</td>" in found._repr_html_()
