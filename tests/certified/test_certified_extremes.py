"""Largest and smallest singular values by their own routes, and inverses of ill-conditioned matrices in more bits."""

import math

import flint
import pytest
import torch
from certified_harness import orthogonal, truth
from flint import arb_mat

from benchmarks.certified_truth import gram_spectrum, inverse_outside
from ntk_deq import certified as ct
from ntk_deq.certified import Ball, extremes, inversion
from ntk_deq.certified.inversion import high_precision_inverse
from ntk_deq.certified.scalar import value_and_radius


def gaussian(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def conditioned(n: int, digits: float, seed: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = 10.0 ** torch.linspace(0, -digits, n, dtype=torch.float64)
    return (orthogonal(n, generator) * values) @ orthogonal(n, generator)


def misses(tensor: torch.Tensor) -> bool:
    spectrum = gram_spectrum(tensor)
    largest, smallest = ct.sigma_max(tensor), ct.sigma_min(tensor)
    assert largest.is_finite()
    assert smallest.is_finite()
    return spectrum.misses_root(spectrum.order - 1, largest) or spectrum.misses_root(0, smallest)


# Above 32 singular values the Gram matrix and the inverse are used in place of the decomposition.
SHAPES = [(33, 33), (34, 48), (48, 34), (60, 60), (33, 200)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [1.0, 1e150, 1e-150, 1e-305])
def test_own_routes_contain_the_truth(shape, scale):
    assert not misses(gaussian(*shape) * scale)


@pytest.mark.parametrize("digits", [2, 7, 11, 13, 15, 16])
def test_ill_conditioned_matrices(digits):
    for n in (20, 40):
        tensor = conditioned(n, digits)
        assert not misses(tensor)
        # Rounding the entries alone moved the smallest value by about 1e-16; that of the floats is known all the same.
        value, radius = value_and_radius(ct.sigma_min(tensor))
        assert radius < 1e-5 * value


@pytest.mark.parametrize("route", ["_smallest_of_square", "_smallest_of_rows", "_largest"])
def test_own_routes_are_sharp(route):
    tensor = gaussian(60, 60 if route == "_smallest_of_square" else 150)
    spectrum = gram_spectrum(tensor)
    value = getattr(extremes, route)(tensor)
    assert not spectrum.misses_root(59 if route == "_largest" else 0, value)
    mid, radius = value_and_radius(value)
    assert radius < 1e-9 * mid


def test_repeated_extremes_are_sharp():
    tensor = 3 * orthogonal(50, torch.Generator().manual_seed(1))
    for value in (ct.sigma_max(tensor), ct.sigma_min(tensor)):
        mid, radius = value_and_radius(value)
        assert abs(mid - 3) <= radius < 1e-10


def test_a_singular_matrix_keeps_zero():
    tensor = gaussian(40, 40)
    tensor[:, 3] = tensor[:, 5] * 2.0
    assert ct.sigma_min(tensor).contains(0)
    assert ct.upper(ct.sigma_min(tensor)) < 1e-11
    thin = gaussian(40, 60)
    thin[7] = -thin[8]
    assert ct.sigma_min(thin).contains(0)
    assert ct.upper(ct.sigma_min(thin)) < 1e-11


def test_the_radius_is_added():
    tensor = gaussian(40, 40)
    plain, wide = ct.sigma_max(tensor), ct.sigma_max(Ball(tensor, 0.25))
    assert ct.upper(wide) >= ct.upper(plain) + 0.25
    assert ct.lower(wide) <= ct.lower(plain) - 0.25
    least = ct.sigma_min(Ball(tensor, 1.0))
    assert least.contains(0)
    assert least >= 0


def test_large_matrices_agree_with_their_decomposition():
    for shape in ((120, 120), (90, 150)):
        tensor = gaussian(*shape, seed=7)
        values = ct.singular_values(tensor)
        assert ct.spectral_norm(tensor).overlaps(values[0])
        assert ct.sigma_min(tensor).overlaps(values[-1])


@pytest.mark.parametrize("digits", [13, 14.5, 16])
@pytest.mark.parametrize("n", [6, 24])
def test_inverses_beyond_float_precision(n, digits):
    tensor = conditioned(n, digits)
    inverse = ct.inverse(tensor)
    assert inverse.radius < 1e-12 * inverse.fro
    assert inverse_outside(tensor, inverse.centre, inverse.radius) is False
    # A radius of half the smallest singular value leaves the inverse between two thirds and twice its norm.
    blur = 0.5 * ct.lower(ct.sigma_min(tensor))
    wide = ct.inverse(Ball(tensor, blur))
    size = ct.upper(ct.spectral_norm(inverse))
    assert 0.9 * size < wide.radius < 2.1 * size
    left, values, across = torch.linalg.svd(tensor)
    with flint.ctx.workprec(400):
        moved = truth(tensor) - truth(blur * 0.99 * left[:, -1:]) * truth(across[-1:])
        gap = moved.inv() - truth(wide.centre)
        assert sum((x * x for x in gap.entries()), flint.arb(0)) <= flint.arb(wide.radius) ** 2
    assert values[-1] > 0
    assert not ct.inverse(Ball(tensor, 3 * blur)).is_finite


def test_more_bits_change_nothing_where_floats_suffice(monkeypatch):
    def unused(*args):
        raise AssertionError("more bits were used")

    monkeypatch.setattr(inversion, "high_precision_inverse", unused)
    assert ct.inverse(gaussian(20, 20)).is_finite
    assert not ct.inverse(Ball(gaussian(20, 20), 10.0)).is_finite


def test_singular_matrices_have_no_inverse():
    for tensor in (
        torch.ones(3, 3),
        torch.zeros(2, 2),
        torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]),
    ):
        for dtype in (torch.float64, torch.float32):
            a = tensor.to(dtype)
            assert not ct.inverse(a).is_finite
            assert ct.inverse(a).reason
            assert high_precision_inverse(a) is None
    assert high_precision_inverse(torch.eye(65, dtype=torch.float64)) is None


def test_inverses_out_of_range_are_no_information():
    tiny = torch.eye(2, dtype=torch.float64) * 5e-324
    tiny[0, 1] = 5e-324
    assert not ct.inverse(tiny).is_finite


def test_wild_scales_are_inverted():
    tensor = torch.tensor([[1e150, 1.0], [1.0, 1e-160]], dtype=torch.float64)
    found = ct.inverse(tensor)
    with flint.ctx.workprec(4000):
        exact: arb_mat = truth(tensor).inv()
        gap = exact - truth(found.centre)
        assert sum((x * x for x in gap.entries()), flint.arb(0)) <= flint.arb(found.radius) ** 2
    assert found.radius <= 1e-15 * found.fro


def test_tensors_stand_in_for_balls():
    tensor = gaussian(3, 3)
    assert value_and_radius(ct.spectral_norm(tensor)) == value_and_radius(ct.spectral_norm(Ball(tensor)))
    assert ct.matmul(tensor, Ball(tensor)).radius == ct.matmul(Ball(tensor), Ball(tensor)).radius
    assert ct.frobenius(torch.tensor([3.0, 4.0])) == 5
    assert len(ct.singular_values(gaussian(2, 5))) == 2
    assert ct.lambda_max(torch.eye(2)) == 1


def test_value_and_radius():
    assert value_and_radius(flint.arb(2)) == (2.0, 0.0)
    value, radius = value_and_radius(ct.with_radius(1.0, 0.25))
    assert value == 1.0
    assert 0.25 <= radius < 0.25 + 1e-9
    value, radius = value_and_radius(ct.nan())
    assert math.isnan(value)
    assert radius == math.inf
    assert value_and_radius(flint.arb("1e400"))[1] == math.inf


@pytest.mark.parametrize(
    "bad",
    [
        torch.tensor([[math.nan, 1.0], [1.0, 1.0]], dtype=torch.float64),
        torch.tensor([[math.inf, 1.0], [1.0, 1.0]], dtype=torch.float64),
        torch.full((40, 40), math.nan, dtype=torch.float64),
    ],
)
def test_entries_that_are_not_finite_give_no_information(bad):
    for function in (ct.spectral_norm, ct.sigma_min, ct.sigma_max):
        assert not function(bad).is_finite()
    assert not any(value.is_finite() for value in ct.singular_values(bad))
    assert ct.inverse(bad).reason == "an entry is not finite"
