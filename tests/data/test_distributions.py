import math

import pytest
import torch

from ntk_deq.data import DISTRIBUTIONS, draw, sampler
from ntk_deq.errors import ArgumentError, LimitError

EPS = torch.finfo(torch.float64).eps
GAUSSIAN = sampler("gaussian")
PARAMETERS = {
    "mean": 0.5,
    "variance": 0.25,
    "low": -1.0,
    "high": 2.0,
    "eps": 0.125,
    "r": 2,
    "distribution": GAUSSIAN,
}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def defaults(name: str) -> list:
    return [PARAMETERS[parameter] for parameter in DISTRIBUTIONS[name].parameters]


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_every_name_draws_a_float64_cpu_matrix_reproducibly(name):
    first, again, other = (draw(name, *defaults(name), shape=(4, 4), generator=seeded(s)) for s in (1, 1, 2))
    assert first.shape == (4, 4)
    assert first.dtype == torch.float64
    assert first.device.type == "cpu"
    assert bool(torch.isfinite(first).all())
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (name in ("identity", "zeros", "ones"))


# Six standard errors of the mean of 40,000 entries; a right draw fails this once in 1e9 seeds, and the seed is fixed.
@pytest.mark.parametrize(
    ("name", "parameters", "mean", "second_moment"),
    [
        ("normal", (3.0, 4.0), 3.0, 13.0),
        ("gaussian", (), 0.0, 1.0),
        ("half_normal", (4.0,), math.sqrt(8 / math.pi), 4.0),
        ("uniform", (-1.0, 3.0), 1.0, 7 / 3),
        ("rademacher", (), 0.0, 1.0),
    ],
)
def test_moments(name, parameters, mean, second_moment):
    x = draw(name, *parameters, shape=(200, 200), generator=seeded())
    error = 6 * math.sqrt(max(second_moment - mean**2, 0.0) / x.numel())
    assert abs(x.mean().item() - mean) <= error
    squares = x * x
    assert abs(squares.mean().item() - second_moment) <= 6 * squares.std().item() / 200 + 1e-12


def test_ranges():
    u = draw("uniform", 2.0, 2.5, shape=(50, 50), generator=seeded())
    assert 2.0 <= u.min() < 2.01
    assert 2.49 < u.max() < 2.5
    r = draw("rademacher", shape=(1000,), generator=seeded())
    assert set(r.tolist()) == {-1.0, 1.0}
    assert bool((draw("half_normal", 1.0, shape=(1000,), generator=seeded()) >= 0).all())
    assert bool((draw("normal", 1.5, 0.0, shape=(9,), generator=seeded()) == 1.5).all())


def test_rows_and_orthogonality():
    x = draw("sphere", shape=(7, 5), generator=seeded())
    torch.testing.assert_close(x.norm(dim=1), torch.ones(7, dtype=torch.float64), rtol=4 * EPS, atol=0)
    assert draw("sphere", shape=(6,), generator=seeded()).norm().item() == pytest.approx(1, rel=4 * EPS)
    rows = draw("orthonormal_rows", shape=(3, 8), generator=seeded())
    assert (rows @ rows.T - torch.eye(3)).abs().max() <= 20 * EPS
    q = draw("orthogonal", shape=(6, 6), generator=seeded())
    assert (q.T @ q - torch.eye(6)).abs().max() <= 20 * EPS


def test_orthogonal_draws_are_unbiased_in_sign():
    # The first entry of a QR factor without the sign fix is always negative, -1/2 on average for order 3.
    diagonal = torch.stack([draw("orthogonal", shape=(3, 3), generator=seeded(s))[0, 0] for s in range(150)])
    assert abs(diagonal.mean().item()) < 6 * math.sqrt(1 / 3 / 150)


def test_structure():
    g = seeded()
    assert torch.equal(draw("identity", shape=(3, 3), generator=g), torch.eye(3, dtype=torch.float64))
    assert bool((draw("nonnegative", GAUSSIAN, shape=(5, 5), generator=g) >= 0).all())
    s = draw("symmetric", GAUSSIAN, shape=(5, 5), generator=g)
    assert torch.equal(s, s.T)
    k = draw("skew", GAUSSIAN, shape=(5, 5), generator=g)
    assert torch.equal(k, -k.T)
    p = draw("psd", GAUSSIAN, shape=(5, 5), generator=g)
    assert torch.equal(p, p.T)
    assert torch.linalg.eigvalsh(p).min() > 0
    n = draw("nilpotent", GAUSSIAN, shape=(4, 4), generator=g)
    assert not torch.linalg.matrix_power(n, 4).any()
    assert torch.linalg.matrix_power(n, 3).any()
    d = draw("diagonal", GAUSSIAN, shape=(4, 4), generator=g)
    assert torch.equal(d, torch.diag(torch.diagonal(d)))


def test_symmetric_part_is_of_the_same_draw():
    raw = draw("gaussian", shape=(4, 4), generator=seeded(3))
    assert torch.equal(draw("symmetric", GAUSSIAN, shape=(4, 4), generator=seeded(3)), (raw + raw.T) / 2)
    torch.testing.assert_close(draw("psd", GAUSSIAN, shape=(4, 4), generator=seeded(3)), raw.T @ raw)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_low_rank(rank):
    x = draw("low_rank", GAUSSIAN, rank, shape=(6, 5), generator=seeded())
    assert int(torch.linalg.matrix_rank(x)) == rank
    assert int(torch.linalg.matrix_rank(draw("rank_one", GAUSSIAN, shape=(6, 5), generator=seeded()))) == 1


def test_duplicates_come_in_pairs():
    x = draw("duplicates", GAUSSIAN, shape=(5, 3), generator=seeded())
    assert torch.equal(x[0], x[1])
    assert torch.equal(x[2], x[3])
    assert not torch.equal(x[1], x[2])
    assert x.shape == (5, 3)
    v = draw("duplicates", GAUSSIAN, shape=(4,), generator=seeded())
    assert v[0] == v[1] != v[2] == v[3]


@pytest.mark.parametrize("eps", [0.0, 1e-9, 0.3, math.pi / 2])
def test_near_parallel_angle(eps):
    x = draw("near_parallel", eps, shape=(6, 4), generator=seeded())
    for i in (0, 2, 4):
        # Kahan's formula: the inner product alone loses an angle below 1e-8.
        angle = 2 * math.atan2((x[i] - x[i + 1]).norm().item(), (x[i] + x[i + 1]).norm().item())
        assert angle == pytest.approx(eps, rel=1e-6, abs=4 * EPS)  # eps 1e-9 is known to 1e-16 / 1e-9
    torch.testing.assert_close(x.norm(dim=1), torch.ones(6, dtype=torch.float64), rtol=8 * EPS, atol=0)


@pytest.mark.parametrize(
    ("name", "parameters", "shape", "words"),
    [
        ("normal", (0.0, -1.0), (2,), "`variance` of normal must be a number >= 0. Got -1.0"),
        ("normal", (0.0,), (2,), "normal(mean, variance)"),
        ("normal", (0.0, math.nan), (2,), "finite number"),
        ("normal", (0.0, True), (2,), "finite number"),
        ("normal", (0.0, GAUSSIAN), (2,), "finite number"),
        ("uniform", (2.0, 1.0), (2,), "low <= high. Got 2.0 and 1.0"),
        ("orthonormal_rows", (), (4, 3), "N <= d: at most d rows of length d can be orthonormal. Got N = 4, d = 3"),
        ("orthogonal", (), (4, 3), "square matrix only. Got shape (4, 3)"),
        ("symmetric", (GAUSSIAN,), (4, 3), "square matrix only"),
        ("identity", (), (4,), "square matrix only"),
        ("symmetric", (1.0,), (3, 3), "must be a distribution"),
        ("low_rank", (GAUSSIAN, 1.5), (3, 3), "integer >= 0. Got 1.5"),
        ("near_parallel", (0.1,), (3, 1), "d >= 2"),
        ("sphere", (), (), "unit vector"),
        ("duplicates", (GAUSSIAN,), (), "matrix or a vector"),
        ("gausian", (), (2,), "Did you mean 'gaussian'?"),
        ("gaussian", (), (2, 2, 2), "a scalar, a vector or a matrix"),
    ],
)
def test_refusals_say_what_is_allowed(name, parameters, shape, words):
    with pytest.raises(ArgumentError) as caught:
        draw(name, *parameters, shape=shape, generator=seeded())
    assert words in str(caught.value)


def test_a_huge_shape_is_refused_before_memory_is_taken():
    with pytest.raises(LimitError, match="1000000000000000000 entries"):
        draw("zeros", shape=(10**9, 10**9), generator=seeded())


def test_the_package_is_cheap_to_import():
    import subprocess
    import sys

    code = "import sys, ntk_deq.data; print('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
