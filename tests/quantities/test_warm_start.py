"""Starts for fixed-point solves: close where the map contracts, harmless where it does not."""

from __future__ import annotations

import pytest
import torch

from ntk_deq.equilibrium.starts import near_affine_fixed_point, near_fixed_point


class Counted:
    """A map that counts its calls."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, value):
        self.calls += 1
        return self.function(value)


def contraction(factor, m=30, seed=0):
    M = torch.randn(m, m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return factor * M / torch.linalg.matrix_norm(M, ord=2)


ZERO = torch.zeros(4, 30, dtype=torch.float64)


@pytest.mark.parametrize("factor", [0.0, 0.3, 0.8])
def test_a_contraction_is_followed_to_its_fixed_point_and_the_count_is_right(factor):
    M = contraction(factor)
    step = Counted(lambda z: torch.cos(z @ M))
    start, made = near_fixed_point(step, ZERO, max_steps=1000)
    assert made == step.calls
    # The residual is at most 8 eps of the size, or at rounding level.
    assert float((step(start) - start).norm()) <= 1e-14 * float(start.norm())


def test_single_precision_stays_single():
    start, _ = near_fixed_point(lambda z: torch.cos(z / 4), torch.zeros(3), max_steps=100)
    assert start.dtype == torch.float32
    assert float((torch.cos(start / 4) - start).norm()) <= 1e-6


@pytest.mark.parametrize(
    "step",
    [lambda z: 3 * z + 1, lambda z: z * float("nan"), lambda z: z + float("inf"), lambda z: 1e-200 * z, lambda z: -z],
    ids=["divergent", "nan", "inf", "underflow", "cycle"],
)
def test_a_map_without_progress_gives_a_finite_start_in_few_steps(step):
    counted = Counted(step)
    start, made = near_fixed_point(counted, torch.ones(2, 3, dtype=torch.float64), max_steps=10_000)
    assert torch.isfinite(start).all()
    assert made == counted.calls <= 8


def test_a_slow_map_is_left_to_the_driver():
    step = Counted(lambda z: 0.9999 * z + 1)
    _, made = near_fixed_point(step, ZERO, max_steps=10_000)
    assert made == step.calls <= 256


@pytest.mark.parametrize("limit", [0, 1, 2, 5])
def test_the_limit_on_steps_holds(limit):
    step = Counted(lambda z: z / 2 + 1)
    start, made = near_fixed_point(step, ZERO, max_steps=limit)
    assert made == step.calls <= limit
    if limit == 0:
        assert start is ZERO


@pytest.mark.parametrize("size", [1e-15, 1.0, 1e15])
def test_refinement_reaches_double_precision_with_few_steps_in_it(size):
    M, c = contraction(0.8), size * contraction(1.0, seed=1)[:4]
    low, shift = M.float(), c.float()
    step = Counted(lambda v: v @ M + c)
    point, made = near_affine_fixed_point(step, lambda v: v @ low + shift, ZERO, max_steps=1000)
    exact = torch.linalg.solve(torch.eye(30, dtype=torch.float64) - M.T, c.T).T
    assert step.calls == 2
    assert made > 2
    assert float((point - exact).norm() / exact.norm()) <= 1e-11  # two passes of at least 5 digits, some to spare


@pytest.mark.parametrize("size", [0.0, 1e-60, 1e60])
def test_refinement_beyond_single_precision_stays_finite(size):
    M, c = contraction(0.5), size * torch.ones_like(ZERO)
    low, shift = M.float(), c.float()
    point, _ = near_affine_fixed_point(lambda v: v @ M + c, lambda v: v @ low + shift, ZERO, max_steps=1000)
    assert torch.isfinite(point).all()
