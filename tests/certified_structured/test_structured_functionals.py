"""Norms, sums, singular values and eigenvalues of structured matrices against the truth."""

import flint
import pytest
import structured_harness as h
import torch
from flint import acb_mat, arb, arb_mat
from structured_harness import BITS, FAMILIES, MODEST, draws, eigenvalue_violations, single_thread, structured, truth

from ntk_deq import certified as ct
from ntk_deq.certified import Ball
from ntk_deq.certified.eigenvalues import TRUSTED, eigenvalue_discs
from ntk_deq.certified.structured import Blocks, Chain, Diagonal, Kronecker, densified, lazy_above
from ntk_deq.certified.structured import spectra as structured_spectra
from ntk_deq.certified.structured.stack import Stack, exact_stack


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    with single_thread():
        yield


def _sum(values):
    return sum(values, arb(0))


def exact_value(name: str, a: arb_mat) -> arb:
    rows = [[a[i, j] for j in range(a.ncols())] for i in range(a.nrows())]
    entries = [x for row in rows for x in row]
    match name:
        case "frobenius":
            return _sum(x * x for x in entries).sqrt()
        case "norm1":
            return max(_sum(abs(x) for x in column) for column in zip(*rows, strict=True))
        case "norminf":
            return max(_sum(abs(x) for x in row) for row in rows)
        case "entry_max":
            return max(entries)
        case "entry_min":
            return min(entries)
        case "entry_sum":
            return _sum(entries)
        case "trace":
            return _sum(a[i, i] for i in range(a.nrows()))
        case "determinant":
            return a.det()
    raise AssertionError(name)


FUNCTIONALS = ("frobenius", "norm1", "norminf", "entry_max", "entry_min", "entry_sum", "trace", "determinant")


def misses(ball: arb, exact: arb) -> bool:
    return ball.is_finite() and not ball.overlaps(exact)


@pytest.mark.parametrize("name", FUNCTIONALS)
def test_functionals_contain_the_truth(name):
    finite = 0
    with flint.ctx.workprec(BITS):
        for draw in draws(20, FAMILIES if name != "determinant" else MODEST):
            for kind, known in structured(draw, 2, 2).items():
                value = getattr(ct, name)(known.lazy)
                assert not misses(value, exact_value(name, known.exact)), kind
                finite += value.is_finite()
    assert finite > 80


@pytest.mark.parametrize("name", FUNCTIONALS)
def test_functionals_are_no_wider_than_dense_ones(name):
    with flint.ctx.workprec(BITS):
        for draw in draws(21, ("gaussian",), blurs=(False,)):
            for kind, known in structured(draw, 3, 4).items():
                if kind in ("kronecker", "chain", "dense"):
                    continue
                lazy, dense = (getattr(ct, name)(ball) for ball in (known.lazy, known.dense))
                assert ct.radius(lazy) <= ct.radius(dense) * 1.01 + 1e-300, kind


def rectangular(draw):
    n, m, d = 3, 4, 2
    Z, b, A = draw(n, m), draw(m, 1), draw(m, d)
    return [
        h.kron(h.transpose(b), h.identity(n)),
        h.kron(h.identity(m), Z),
        h.kron(h.identity(m), h.transpose(Z)),
        h.kron(A, Z),  # tall times wide: zeros among the singular values
        h.kron(A, h.transpose(Z)),
        h.matmul(h.kron(h.transpose(b), h.identity(n)), h.kron(h.identity(m), Z)),
        h.matmul(h.diag(draw(n * m, 1)), h.kron(h.identity(m), Z)),
    ]


def test_singular_values_contain_the_truth():
    finite = 0
    with flint.ctx.workprec(BITS):
        for draw in draws(22, MODEST):
            matrices = list(structured(draw, 2, 3).values()) + rectangular(draw)
            for known in matrices:
                rows, cols = known.shape
                gram = known.exact.transpose() * known.exact if rows >= cols else known.exact * known.exact.transpose()
                values = ct.singular_values(known.lazy)
                assert len(values) == min(rows, cols)
                assert eigenvalue_violations(gram, list(reversed(values)), squares=True) == 0
                # The extremes have rules of their own.
                ends = [ct.sigma_min(known.lazy), ct.spectral_norm(known.lazy)]
                assert ct.sigma_max(known.lazy).overlaps(ends[1])
                if ends[0].is_finite() and values[0].is_finite():
                    assert ends[0].overlaps(values[-1])
                    assert ends[1].overlaps(values[0])
                    assert all(end >= 0 for end in ends)
                    finite += 1
    assert finite > 200


def test_a_kronecker_product_of_a_tall_and_a_wide_factor_is_singular():
    with lazy_above(0):
        product = ct.kron(Ball(torch.randn(3, 2).double()), Ball(torch.randn(2, 3).double()))
    assert isinstance(product, Kronecker)
    assert ct.sigma_min(product) == 0
    assert [value == 0 for value in ct.singular_values(product)] == [False] * 4 + [True] * 2


def random_blocks(count: int, rows: int, cols: int, generator: torch.Generator, *, radius: float = 0.0) -> Blocks:
    centre = torch.randn(count, rows, cols, dtype=torch.float64, generator=generator)
    return Blocks(Stack(centre, torch.full((count,), radius, dtype=torch.float64)), count, interleaved=True)


@pytest.mark.parametrize("shape", [(6, 9, 9), (5, 3, 8), (5, 8, 3), (7, 1, 4), (4, 1, 1)])
@pytest.mark.parametrize("radius", [0.0, 1e-3])
def test_screened_extremes_agree_with_all_blocks(monkeypatch, shape, radius):
    """One block is decomposed and the others are only shown to be beyond it: the answer is the same."""
    monkeypatch.setattr(structured_spectra, "_FEW", 0)
    generator = torch.Generator().manual_seed(23)
    for _ in range(5):
        blocks = random_blocks(*shape, generator, radius=radius)
        each = [ct.singular_values(blocks.stack.ball(i)) for i in range(blocks.count)]
        smallest, largest = ct.sigma_min(blocks), ct.sigma_max(blocks)
        assert smallest.overlaps(ct.minimum(*(values[-1] for values in each)))
        assert largest.overlaps(ct.maximum(*(values[0] for values in each)))
        assert ct.radius(smallest) <= radius * 1.01 + 1e-11
        assert ct.radius(largest) <= radius * 1.01 + 1e-11


@pytest.mark.parametrize("smallest", [True, False])
def test_screening_finds_a_block_that_the_float_estimate_missed(monkeypatch, smallest):
    monkeypatch.setattr(structured_spectra, "_FEW", 0)
    monkeypatch.setattr(structured_spectra, "_estimated_extreme", lambda grams, smallest: 0)
    centre = torch.stack([torch.eye(5, dtype=torch.float64) * x for x in (2.0, 1.0, 3.0)])
    centre += 0.01 * torch.randn(centre.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(24))
    blocks = Blocks(exact_stack(centre), 3, interleaved=False)
    value = ct.sigma_min(blocks) if smallest else ct.sigma_max(blocks)
    assert value.overlaps((ct.sigma_min if smallest else ct.sigma_max)(densified(blocks)))


def test_equal_blocks_at_the_extreme(monkeypatch):
    monkeypatch.setattr(structured_spectra, "_FEW", 0)
    centre = torch.randn(1, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(25)).expand(4, -1, -1)
    blocks = Blocks(exact_stack(centre.contiguous()), 4, interleaved=False)
    assert ct.radius(ct.sigma_min(blocks)) < 1e-12
    assert ct.sigma_min(blocks).overlaps(ct.sigma_min(Ball(centre[0])))


def test_singular_values_of_chains_by_their_gram_matrix():
    """Where the Gram matrix is too blunt, the dense form is decomposed after all."""
    generator = torch.Generator().manual_seed(26)
    for condition in (1.0, 1e-3, 1e-12):
        Z = torch.randn(3, 6, dtype=torch.float64, generator=generator)
        Z[2] = Z[1] + condition * Z[2]
        with lazy_above(0):
            weights = ct.diag(Ball(torch.randn(18, 1, dtype=torch.float64, generator=generator)))
            rows = ct.matmul(ct.kron(Ball(torch.ones(1, 6, dtype=torch.float64)), ct.identity(3)), weights)
            chain = ct.matmul(rows, ct.kron(ct.identity(6), Ball(Z)))
            assert isinstance(chain, Chain)
            dense = ct.singular_values(chain.dense)
            for value, other in zip(ct.singular_values(chain), dense, strict=True):
                assert value.overlaps(other)
            assert ct.sigma_min(chain).overlaps(dense[-1])
            assert ct.radius(ct.sigma_min(chain)) < 1e-8


def exact_eigenvalues(a: arb_mat):
    with flint.ctx.workprec(400):
        return acb_mat(a).eig(multiple=True)


def test_extreme_eigenvalues_contain_the_truth():
    finite = 0
    for draw in draws(27, ("gaussian", "whole numbers", "rank one", "nonnegative")):
        with flint.ctx.workprec(BITS):
            n, m = 2, 4
            step = h.leaf("whole numbers", n * m, 1, torch.Generator().manual_seed(28), blur=False)
            signs = h.Known(*(Ball((step.dense.centre > 0).double()),) * 2, truth((step.dense.centre > 0).double()))
            A = draw(m, m)
            Q = h.subtract(
                h.identity(n * m), h.scale(arb(0.5), arb(0.5), h.matmul(h.diag(signs), h.kron(A, h.identity(n))))
            )
            matrices = [Q, *(x for x in structured(draw, 2, 3).values())]
        for known in matrices:
            try:
                values = exact_eigenvalues(known.exact)
            except ValueError:  # flint does not isolate some defective ones
                continue
            real = [value.real for value in values]
            least, most = ct.lambda_min(known.lazy), ct.lambda_max(known.lazy)
            assert not misses(least, min(real, key=lambda x: float(x.mid())))
            assert not misses(most, max(real, key=lambda x: float(x.mid())))
            assert not misses(ct.rho(known.lazy), max((abs(value) for value in values), key=lambda x: float(x.mid())))
            finite += least.is_finite() and most.is_finite()
    assert finite > 40


def with_idle_rows(order: int, idle: int, value: float, generator: torch.Generator) -> torch.Tensor:
    tensor = torch.randn(order, order, dtype=torch.float64, generator=generator) / order**0.5
    places = torch.randperm(order, generator=generator)[:idle]
    tensor[places] = 0.0
    tensor[places, places] = value
    return tensor


@pytest.mark.parametrize(("order", "idle"), [(12, 5), (12, 1), (12, 11), (12, 12), (12, 0), (40, 20)])
@pytest.mark.parametrize("value", [1.0, 0.0, -0.7])
def test_discs_of_blocks_with_idle_rows(order, idle, value):
    generator = torch.Generator().manual_seed(29)
    tensor = with_idle_rows(order, idle, value, generator)
    for radius in (0.0, 1e-13):
        discs = eigenvalue_discs(Ball(tensor, radius))
        assert len(discs.centres) == order
        assert discs.radius <= 1e-9, discs.radius
        eigenvalues = exact_eigenvalues(truth(tensor)) if order < 20 else []
        unit = 2.0**discs.exponent
        for exact in eigenvalues:
            near = [
                abs(complex(float(exact.real.mid()), float(exact.imag.mid())) / unit - complex(c))
                for c in discs.centres
            ]
            assert min(near) <= discs.radius + 1e-15
        # Trace and determinant count with multiplicity.
        assert (
            abs(complex(discs.centres.sum()) * unit - complex(tensor.trace())) <= order * (discs.radius + 1e-14) * unit
        )


def test_discs_follow_a_perturbation_of_idle_rows():
    """The truth need not have the idle rows that the centre has: its eigenvalues are in the discs all the same."""
    generator = torch.Generator().manual_seed(30)
    for _ in range(20):
        tensor = with_idle_rows(10, 4, 1.0, generator)
        noise = torch.randn(10, 10, dtype=torch.float64, generator=generator)
        noise *= 1e-9 / noise.norm()
        discs = eigenvalue_discs(Ball(tensor, 1.0001e-9))
        assert discs.radius < TRUSTED
        found = torch.linalg.eigvals(tensor + noise) / 2.0**discs.exponent
        gaps = (found[:, None] - discs.centres[None]).abs().amin(dim=1)
        assert float(gaps.amax()) <= discs.radius + 1e-14
        assert float(gaps.amax()) > 1e-13  # the perturbation is seen


def test_discs_where_the_idle_value_is_an_eigenvalue_of_the_rest():
    tensor = torch.zeros(4, 4, dtype=torch.float64)
    tensor[:2, :2] = torch.tensor([[1.0, 2.0], [0.0, 3.0]])  # eigenvalue 1, as that of the idle rows
    tensor[:2, 2:] = torch.tensor([[1.0, -1.0], [2.0, 0.5]])
    tensor[2, 2] = tensor[3, 3] = 1.0
    ball = Ball(tensor, 1e-14)
    discs = eigenvalue_discs(ball)
    assert not discs.radius < 1e-9  # the root of the perturbation, of a Jordan block, is 1e-7
    low = ct.lambda_min(Blocks(Stack(tensor.expand(2, -1, -1), torch.full((2,), 1e-14).double()), 2, interleaved=True))
    assert not low.is_finite() or low.overlaps(arb(1))


def test_eigenvalues_of_symmetric_blocks():
    generator = torch.Generator().manual_seed(31)
    centre = torch.randn(3, 5, 5, dtype=torch.float64, generator=generator)
    blocks = Blocks(exact_stack(centre + centre.mT), 3, interleaved=True)
    values = ct.eigenvalues_symmetric(blocks)
    exact = torch.linalg.eigvalsh(densified(blocks).centre)
    assert all(value.overlaps(ct.with_radius(float(x), 1e-12)) for value, x in zip(values, exact, strict=True))
    assert ct.lambda_min(blocks, symmetric=True).overlaps(values[0])
    assert ct.lambda_max(blocks).overlaps(values[-1])
    column = torch.tensor([[3.0], [-1.0], [2.0]])
    assert [float(v) for v in ct.eigenvalues_symmetric(Diagonal(Ball(column)))] == [-1.0, 2.0, 3.0]


def test_vectors_of_one_column_stay_dense():
    with lazy_above(0):
        assert isinstance(ct.kron(Ball(torch.ones(3, 1)), Ball(torch.ones(2, 1))), Ball)
