"""Distances to unit and orthonormal rows: above the true ones, close to them, small for what is drawn."""

from fractions import Fraction
from math import inf

import pytest
import torch

from ntk_deq.data import draw
from ntk_deq.data.samples import distance_to_orthonormal_pairs, distance_to_orthonormal_rows, distance_to_unit_rows

EPS = 2.0**-52


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def gram_defect(rows) -> Fraction:
    """Return the square of fro(X X' - I), exactly."""
    exact = [[Fraction(entry) for entry in row] for row in rows.tolist()]
    pairs = ((i, j) for i in range(len(exact)) for j in range(len(exact)))
    return sum(
        ((sum(a * b for a, b in zip(exact[i], exact[j], strict=True)) - (i == j)) ** 2 for i, j in pairs), Fraction(0)
    )


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (2, 2), (3, 7), (6, 6), (4, 30)])
@pytest.mark.parametrize("seed", range(4))
def test_orthonormal_rows_against_rationals(shape, seed):
    rows = draw("orthonormal_rows", shape=shape, generator=seeded(seed))
    defect, bound = gram_defect(rows), Fraction(distance_to_orthonormal_rows(rows))
    # With g = fro(G): |s_i - 1| lies between |g_i|/(2 + g) and |g_i|/(2 - g) for each singular value s_i.
    assert (bound * 2) ** 2 >= defect
    assert (bound * 2) ** 2 <= defect * Fraction(11, 10) ** 2


@pytest.mark.parametrize("size", [0.0, 1e-12, 1e-6, 1e-2])
def test_rows_that_are_off_by_more(size):
    rows = draw("orthonormal_rows", shape=(4, 6), generator=seeded())
    rows = rows + size * torch.randn(4, 6, generator=seeded(1), dtype=torch.float64)
    left, _, right = torch.linalg.svd(rows, full_matrices=False)
    nearest = float(torch.linalg.matrix_norm(rows - left @ right))
    assert nearest - 1e-14 <= distance_to_orthonormal_rows(rows) <= 1.1 * nearest + 1e-14
    unit = float(torch.linalg.matrix_norm(rows - torch.nn.functional.normalize(rows)))
    assert unit - 1e-14 <= distance_to_unit_rows(rows) <= 1.1 * unit + 1e-14


@pytest.mark.parametrize("shape", [(1, 2), (3, 5), (5, 40)])
def test_unit_rows_against_rationals(shape):
    rows = draw("sphere", shape=shape, generator=seeded(2))
    squares = sum(((sum(Fraction(x) ** 2 for x in row) - 1) ** 2 for row in rows.tolist()), Fraction(0))
    bound = 2 * Fraction(distance_to_unit_rows(rows))
    assert squares <= bound**2 <= squares * Fraction(11, 10) ** 2


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (8, 16), (64, 64), (100, 784), (512, 512)])
def test_what_is_drawn_is_a_few_roundings_away(shape):
    rows = draw("orthonormal_rows", shape=shape, generator=seeded())
    size = float(torch.linalg.matrix_norm(rows))
    assert distance_to_orthonormal_rows(rows) <= (0.5 + 0.2 * shape[0] ** 0.5) * EPS * size
    assert distance_to_unit_rows(draw("sphere", shape=shape, generator=seeded())) <= 0.6 * EPS * size


def test_exact_rows_are_at_no_distance():
    halves = torch.tensor([[0.5, 0.5, 0.5, 0.5], [0.5, -0.5, 0.5, -0.5]], dtype=torch.float64)
    assert distance_to_orthonormal_rows(halves) == distance_to_unit_rows(halves) == 0
    assert distance_to_orthonormal_pairs(halves[:1], halves[1:]) == 0
    assert 0.0 <= distance_to_unit_rows(torch.tensor([[1.0, 2.0**-60]], dtype=torch.float64)) < 2.0**-100


def test_rows_that_are_far_from_it_have_no_bound():
    ones = torch.ones(2, 2, dtype=torch.float64)
    assert distance_to_orthonormal_rows(ones) == distance_to_unit_rows(ones) == inf
    assert distance_to_orthonormal_rows(ones / 2**0.5) == inf
    assert distance_to_orthonormal_rows(torch.full((1, 2), float("nan"), dtype=torch.float64)) == inf
    assert distance_to_orthonormal_rows(draw("sphere", shape=(3, 2), generator=seeded())) == inf


def test_pairs_are_those_of_each_row():
    first = draw("orthonormal_rows", shape=(2, 6), generator=seeded())
    second = draw("orthonormal_rows", shape=(2, 6), generator=seeded(1))
    pairs = torch.stack([first, second])  # row i of both makes no pair; rows of one do
    apart = [distance_to_orthonormal_rows(pair) for pair in pairs]
    together = distance_to_orthonormal_pairs(pairs[:, 0], pairs[:, 1])
    assert together == pytest.approx((apart[0] ** 2 + apart[1] ** 2) ** 0.5, rel=1e-3)
