"""Weyl's inequality carries bounds from one spectrum to the next, rigorously and with few decompositions."""

import pytest
import torch

from ntk_deq.certified import ball
from ntk_deq.certified.carried import CarriedSpectrum
from ntk_deq.certified.scalar import lower, upper
from ntk_deq.errors import ArgumentError


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_every_step_of_a_walk_is_enclosed_with_few_decompositions():
    carried, Z = CarriedSpectrum(share=0.2), random(6, 20)
    for step in range(200):
        Z = Z + 1e-3 * random(6, 20, seed=step + 1)
        smallest, largest = carried.bound(ball(Z))
        values = torch.linalg.svdvals(Z)
        # the reference values carry round-off of their own, far below the displacement
        assert lower(smallest) - 1e-12 <= float(values[-1]) <= upper(smallest) + 1e-12
        assert lower(largest) - 1e-12 <= float(values[0]) <= upper(largest) + 1e-12
    assert carried.steps == 200
    assert 1 <= carried.decompositions < 60


def test_a_bound_without_the_displacement_would_be_caught():
    carried, Z = CarriedSpectrum(share=0.5), torch.eye(3, dtype=torch.float64)
    carried.bound(ball(Z))
    smallest, _ = carried.bound(ball(0.75 * Z))
    assert carried.decompositions == 1
    assert lower(smallest) <= 0.75 <= upper(smallest)
    assert lower(smallest) < 0.75 < 1.0 <= upper(smallest)


def test_a_large_move_a_new_shape_and_a_singular_matrix_ask_for_a_new_spectrum():
    carried = CarriedSpectrum()
    carried.bound(ball(torch.eye(3, dtype=torch.float64)))
    carried.bound(ball(5 * torch.eye(3, dtype=torch.float64)))
    carried.bound(ball(torch.eye(2, dtype=torch.float64)))
    carried.bound(ball(torch.zeros(2, 2, dtype=torch.float64)))
    carried.bound(ball(torch.zeros(2, 2, dtype=torch.float64)))
    assert carried.decompositions == 4
    assert carried.steps == 5


def test_no_information_stays_no_information():
    carried = CarriedSpectrum()
    smallest, _ = carried.bound(ball(torch.full((2, 2), float("nan"), dtype=torch.float64)))
    assert not smallest.is_finite()
    smallest, _ = carried.bound(ball(torch.eye(2, dtype=torch.float64)))
    assert bool(smallest == 1)


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan")])
def test_share_is_checked(share):
    with pytest.raises(ArgumentError, match="share"):
        CarriedSpectrum(share=share)
