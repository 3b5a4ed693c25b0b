"""What is formed and what is not, limits, exactness, and arguments that make no sense."""

import math

import pytest
import torch
from structured_harness import single_thread

from ntk_deq import certified as ct
from ntk_deq.certified import Ball, carried
from ntk_deq.certified.structured import (
    LAZY_ENTRIES,
    MAX_ENTRIES,
    Blocks,
    Chain,
    Diagonal,
    Kronecker,
    densified,
    lazy_above,
    stack,
)
from ntk_deq.errors import ArgumentError, LimitError


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    with single_thread():
        yield


def gaussian(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def large(n: int = 64, m: int = 256):
    """Return the matrices of part R at a size at which none of order n m fits."""
    A, Z, b = gaussian(m, m) / (2 * m**0.5), gaussian(n, m, seed=1).relu(), gaussian(m, 1, seed=2)
    D = ct.diag(ct.vec(ct.step(Ball(gaussian(n, m, seed=3)))))
    Q = ct.subtract(ct.identity(n * m), ct.matmul(ct.scale(ct.exact(0.5), D), ct.kron(Ball(A.mT), ct.identity(n))))
    return A, Z, b, D, Q


def test_small_results_are_formed_and_large_ones_are_not():
    side = math.isqrt(LAZY_ENTRIES)
    assert isinstance(ct.identity(side), Ball)
    assert isinstance(ct.identity(side + 1), Diagonal)
    assert isinstance(ct.diag(Ball(gaussian(side, 1))), Ball)
    assert isinstance(ct.diag(Ball(gaussian(side + 1, 1))), Diagonal)
    assert isinstance(ct.kron(Ball(gaussian(8, 8)), Ball(gaussian(8, 8))), Ball)
    assert isinstance(ct.kron(Ball(gaussian(8, 8)), Ball(gaussian(9, 8))), Kronecker)


def test_the_threshold_is_restored():
    with lazy_above(0):
        assert isinstance(ct.identity(2), Diagonal)
        with pytest.raises(ArgumentError), lazy_above(10):
            ct.identity(0)
        assert isinstance(ct.identity(2), Diagonal)
    assert isinstance(ct.identity(2), Ball)


def test_identities_are_recognised_whatever_they_are_made_of():
    A = Ball(gaussian(70, 70))
    assert isinstance(ct.kron(A, ct.identity(2)), Blocks)
    assert isinstance(ct.kron(A, ct.identity(200)), Blocks)
    assert isinstance(ct.kron(ct.identity(200), A), Blocks)
    assert isinstance(ct.kron(ct.identity(200), ct.identity(3)), Diagonal)
    assert isinstance(ct.kron(A, Ball(torch.eye(2, dtype=torch.float64), 1e-20)), Kronecker)
    assert ct.kron(A, ct.identity(1)) is A
    assert ct.matmul(ct.identity(70), A) is A


def test_part_r_at_a_size_at_which_nothing_could_be_formed():
    A, Z, b, D, Q = large()
    n, m = Z.shape
    assert isinstance(Q, Blocks)
    assert Q.radius < 1e-13
    inverse = ct.inverse(Q)
    rows = ct.matmul(ct.matmul(ct.kron(Ball(b.mT), ct.identity(n)), inverse), D)
    M = ct.matmul(rows, ct.kron(ct.identity(m), Ball(Z)))
    assert isinstance(M, Chain)
    # Row i is g_i (x) z_i, where g_i solves one small system.
    step = densified(ct.diag(D)).centre.reshape(m, n)
    for i in (0, 17, 63):
        block = torch.eye(m, dtype=torch.float64) - 0.5 * step[:, i, None] * A.mT
        g = torch.linalg.solve(block.mT, b)[:, 0] * step[:, i]
        expected = torch.outer(g, Z[i]).flatten()
        assert float((M.dense.centre[i] - expected).norm()) <= M.dense.radius + 1e-11
    gram = densified(ct.matmul(M, ct.transpose(M)))
    direct = M.dense.centre @ M.dense.centre.mT
    assert float((gram.centre - direct).norm()) <= gram.radius + 1e-9
    weights = Ball(gaussian(n, 1, seed=4))
    back = ct.matmul(ct.transpose(M), weights)
    assert float((back.centre - M.dense.centre.mT @ weights.centre).norm()) <= back.radius + 1e-9


def test_what_does_not_fit_is_refused():
    D = ct.diag(Ball(gaussian(20_000, 1)))
    with pytest.raises(LimitError, match=r"20000 x 20000 = 400,000,000 entries; at most 134,217,728"):
        densified(D)
    with pytest.raises(LimitError):
        ct.vec(D)
    with pytest.raises(LimitError):
        ct.add(D, ct.kron(Ball(gaussian(100, 100)), Ball(gaussian(200, 200))))
    with pytest.raises(LimitError, match="diagonal"):
        ct.identity(MAX_ENTRIES + 1)
    with pytest.raises(LimitError, match="Kronecker"):
        ct.kron(Ball(torch.ones(20_000, 1)), Ball(torch.ones(20_000, 1)))
    assert ct.trace(D).is_finite()


def test_these_operations_and_no_others_have_a_rule_for_structure():
    """Rules are found by name: a helper that happens to be called like an operation would become its rule."""
    names = {name for name, value in vars(carried).items() if hasattr(value, "__wrapped__")} - {"spectral_norm"}
    of_dense_forms = (
        "above absolute as_scalar beside block compare_entries lambda_min_at_least lambda_min_below pinv relu sqrtm "
        "step vec"
    )
    assert names - carried._STRUCTURED.keys() == set(of_dense_forms.split())


def test_operations_without_a_rule_run_on_the_dense_form():
    with lazy_above(0):
        D = ct.diag(Ball(torch.tensor([[-1.0], [2.0]])))
        assert isinstance(D, Diagonal)
        assert ct.relu(D).centre.tolist() == [[0.0, 0.0], [0.0, 2.0]]
        assert ct.compare_entries("<=", D, Ball(torch.ones(2, 2))).some_false
        assert ct.vec(D).centre.flatten().tolist() == [-1.0, 0.0, 0.0, 2.0]


def test_exact_matrices_stay_exact():
    signs, half = (gaussian(12, 1) > 0).double(), torch.full((12, 1), 0.5, dtype=torch.float64)
    whole = (3 * gaussian(4, 4)).round()
    with lazy_above(0):
        D, H = ct.diag(Ball(signs)), ct.diag(Ball(half))
        blocks = ct.matmul(D, ct.kron(Ball(whole), ct.identity(3)))
        assert blocks.is_exact
        assert ct.matmul(blocks, blocks).is_exact
        assert ct.subtract(ct.identity(12), ct.scale(ct.exact(0.25), blocks)).is_exact
        assert ct.matmul(H, ct.kron(Ball(gaussian(4, 4)), ct.identity(3))).is_exact
        assert ct.inverse(H).is_exact
        assert ct.inverse(
            ct.kron(Ball(torch.tensor([[2.0, 1.0], [0.0, 4.0]])), ct.identity(3, dtype=torch.float32))
        ).is_exact
        assert ct.matmul(ct.kron(Ball(whole), ct.identity(3)), ct.kron(ct.identity(4), Ball(whole[:3]))).is_exact
        # Chains of exact factors know their entries exactly where the factors' products need no rounding.
        row = ct.matmul(
            ct.kron(Ball(whole[:1]), ct.identity(3)), ct.matmul(D, ct.kron(ct.identity(4), Ball(whole[:3])))
        )
        assert row.is_exact
        assert densified(row).is_exact
        assert ct.entry_min(ct.diag(D)) == float(signs.amin())
        assert ct.sigma_min(H) == 0.5
        assert ct.lambda_min(ct.subtract(ct.identity(12), H)) == 0.5


def test_equality_is_not_lost_to_rounding():
    """lambda_min(I - D) > 0.5 is an equality for D = I/2, so it fails for certain; the weak one holds."""
    D = ct.diag(Ball(torch.full((100, 1), 0.5, dtype=torch.float64)))
    value = ct.lambda_min(ct.subtract(ct.identity(100), D))
    assert ct.is_true(">", value, ct.exact(0.5)) is False
    assert ct.is_true(">=", value, ct.exact(0.5)) is True


def test_arithmetic_that_cannot_be_trusted_gives_no_information(monkeypatch):
    monkeypatch.setattr(stack, "certification_fault", lambda device: "emulated products")
    with lazy_above(0):
        blocks = ct.kron(Ball(gaussian(4, 4)), ct.identity(3))
    assert not blocks.is_finite
    assert blocks.reason == "emulated products"


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_entries_that_are_not_finite_give_no_information(bad):
    A = gaussian(4, 4)
    A[1, 2] = bad
    with lazy_above(0):
        blocks = ct.kron(Ball(A), ct.identity(3))
        results = [
            blocks,
            ct.matmul(blocks, blocks),
            ct.inverse(blocks),
            ct.add(blocks, ct.identity(12)),
            ct.matmul(ct.kron(ct.identity(4), Ball(gaussian(3, 3))), blocks),
            ct.matmul(blocks, Ball(gaussian(12, 2))),
            ct.transpose(blocks),
            ct.scale(ct.exact(2.0), blocks),
        ]
    for result in results:
        assert not result.is_finite
        assert result.reason
    for functional in (ct.frobenius, ct.sigma_min, ct.spectral_norm, ct.lambda_min, ct.rho, ct.trace, ct.norm1):
        assert not functional(blocks).is_finite()


def test_a_scalar_without_information():
    with lazy_above(0):
        assert not ct.scale(ct.nan(), ct.kron(Ball(gaussian(2, 2)), ct.identity(3))).is_finite


@pytest.mark.parametrize("radius", [0.0, 1e-3])
def test_singular_blocks_have_no_inverse(radius):
    A = gaussian(4, 4)
    A[3] = A[2]
    stacked = Ball(A, radius)
    with lazy_above(0):
        result = ct.inverse(ct.kron(stacked, ct.identity(3)))
        assert not result.is_finite
        assert "invert" in result.reason
        column = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
        assert not ct.inverse(ct.diag(Ball(column))).is_finite
        assert not ct.inverse(ct.diag(Ball(torch.ones(3, 1), 1.5))).is_finite


def test_arguments_must_fit():
    with lazy_above(0):
        D = ct.diag(Ball(gaussian(6, 1)))
        wide = ct.kron(Ball(gaussian(1, 3)), ct.identity(2))
        for call in (
            lambda: ct.matmul(D, Ball(gaussian(5, 2))),
            lambda: ct.matmul(wide, wide),
            lambda: ct.add(D, Ball(gaussian(5, 5))),
            lambda: ct.matmul(D, Ball(torch.ones(6, 6))),
            lambda: ct.hadamard(D, wide),
            lambda: ct.inverse(wide),
            lambda: ct.trace(wide),
            lambda: ct.lambda_min(wide),
            lambda: ct.diag(wide),
            lambda: ct.kron(D, Ball(torch.ones(2, 2))),
            lambda: ct.identity(0),
        ):
            with pytest.raises(ArgumentError):
                call()


def test_an_inverse_is_computed_once():
    Q = large(8, 12)[-1]
    assert ct.inverse(Q) is ct.inverse(Q)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu():
    n, m = 8, 16
    A, Z = gaussian(m, m).cuda() / 8, gaussian(n, m, seed=1).cuda()
    D = ct.diag(ct.vec(ct.step(Ball(Z))))
    Q = ct.subtract(ct.identity(n * m, device="cuda"), ct.matmul(D, ct.kron(Ball(A), ct.identity(n, device="cuda"))))
    M = ct.matmul(ct.inverse(Q), ct.kron(ct.identity(m, device="cuda"), Ball(Z)))
    assert M.device.type == "cuda"
    assert ct.sigma_min(Q) > 0
    assert ct.lambda_min(Q).is_finite()
    assert densified(M).is_finite
