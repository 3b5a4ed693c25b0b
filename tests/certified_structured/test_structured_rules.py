"""Every rule for structured matrices against the truth in 3000 bits and against dense balls."""

import flint
import pytest
import structured_harness as h
import torch
from flint import arb
from structured_harness import BITS, MODEST, draws, single_thread, structured

from ntk_deq import certified as ct
from ntk_deq.certified import Ball, rounding
from ntk_deq.certified.structured import Blocks, Chain, Diagonal, Kronecker
from ntk_deq.certified.structured import stack as stacks


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    with single_thread():
        yield


@pytest.fixture(autouse=True)
def many_bits():
    with flint.ctx.workprec(BITS):
        yield


KINDS = {
    "diagonal": Diagonal,
    "one for each sample": Blocks,
    "one after another": Blocks,
    "blocks": Blocks,
    "blocks in a row": Blocks,
    "kronecker": Kronecker,
    "chain": Chain,
    "identity": Diagonal,
    "dense": Ball,
}


def test_structures_are_what_they_should_be():
    draw = next(draws(1, ("gaussian",)))
    for name, known in structured(draw).items():
        assert type(known.lazy) is KINDS[name], name


@pytest.mark.parametrize("seed", range(2))
def test_products_sums_and_rearrangements_contain_the_truth(seed):
    finite = 0
    for draw in draws(seed):
        matrices = structured(draw, *((3, 4) if seed else (2, 2)))
        names = list(matrices)
        for index, name in enumerate(names):
            a, b = matrices[name], matrices[names[(index + 1 + seed) % len(names)]]
            for result in (h.matmul(a, b), h.add(a, b), h.subtract(a, b), h.transpose(a), h.negate(b)):
                assert result.is_sound(), name
                finite += result.lazy.is_finite
    assert finite > 900


def test_all_pairs_of_structures():
    for draw in draws(3, ("gaussian", "whole numbers")):
        matrices = structured(draw, 2, 3)
        for a in matrices.values():
            for b in matrices.values():
                for operation in (h.matmul, h.add, h.subtract, h.hadamard):
                    result = operation(a, b)
                    assert result.is_sound()
                    assert result.lazy.is_finite


def test_rectangular_blocks_meet_dense_matrices_and_each_other():
    """The chains of part R: gamma kron(b', I) inv(Q) D kron(I, Z), its transpose, its Gram matrix, and vectors."""
    for draw in draws(4, MODEST):
        n, m, d = 3, 4, 2
        b, Z, X, step, weights = draw(m, 1), draw(n, m), draw(n, d), draw(n * m, 1), draw(n, 1)
        A = h.scale(arb(2) ** -6, arb(2) ** -6, draw(m, m))
        D = h.diag(step)
        rows = h.matmul(h.matmul(h.kron(h.transpose(b), h.identity(n)), h.kron(A, h.identity(n))), D)
        M, P = h.matmul(rows, h.kron(h.identity(m), Z)), h.matmul(rows, h.kron(h.identity(m), X))
        back = h.matmul(h.transpose(M), weights)
        gram = h.add(h.matmul(M, h.transpose(M)), h.matmul(P, h.transpose(P)))
        for result in (rows, M, P, back, gram, h.matmul(h.transpose(weights), P), h.matmul(h.transpose(P), M)):
            assert result.is_sound()
        assert isinstance(M.lazy, Chain)
        assert isinstance(back.lazy, Ball)


def test_scalar_multiples_contain_the_truth():
    third = arb(1) / 3
    wide = ct.with_radius(0.3, 0.05)
    for draw in draws(5):
        for a in structured(draw, 2, 2).values():
            for factor, inside in ((third, third), (wide, arb(0.32)), (arb(0), arb(0)), (arb(-0.5), arb(-0.5))):
                assert h.scale(factor, inside, a).is_sound()


def test_inverses_contain_the_truth():
    finite = 0
    for draw in draws(6, MODEST[:2], blurs=(False,)):
        for _ in range(6):
            n, m = 3, 4
            blocks = h.matmul(h.diag(draw(n * m, 1)), h.kron(draw(m, m), h.identity(n)))
            Q = h.subtract(h.identity(n * m), h.scale(arb(0.125), arb(0.125), blocks))
            product = h.kron(draw(m, m), draw(n, n))
            for a in (Q, h.transpose(Q), product, h.matmul(Q, product)):
                if abs(a.exact.det()) > 1e-6:
                    result = h.inverse(a)
                    assert result.is_sound()
                    finite += result.lazy.is_finite
            column = draw(n, 1)
            if all(bool(abs(x) > 0) for x in column.exact.entries()):
                assert h.inverse(h.diag(column)).is_sound()
    assert finite > 20


def test_balls_with_a_radius_are_inverted():
    for draw in draws(7, ("gaussian",), blurs=(True,)):
        n, m = 3, 4
        blocks = h.matmul(h.diag(draw(n * m, 1)), h.kron(draw(m, m), h.identity(n)))
        Q = h.subtract(h.identity(n * m), h.scale(arb(0.0625), arb(0.0625), blocks))
        result = h.inverse(Q)
        assert result.is_sound()
        assert result.lazy.is_finite
        assert result.lazy.radius > 0


def test_a_bound_without_rounding_is_caught(monkeypatch):
    """The harness itself can fail."""

    def violations() -> int:
        bad = 0
        for draw in draws(8, ("gaussian", "graded entries"), blurs=(False,)):
            for _ in range(4):
                a, b = structured(draw), structured(draw)
                bad += sum(not h.matmul(a[name], b[name]).is_sound() for name in ("blocks", "one for each sample"))
        return bad

    assert violations() == 0
    monkeypatch.setattr(rounding, "unit_roundoff", lambda dtype=torch.float64: 0.0)
    assert violations() > 5


def test_a_forgotten_radius_is_caught(monkeypatch):
    kept = stacks.product_radii
    monkeypatch.setattr(stacks, "product_radii", lambda *args: 0.05 * kept(*args))
    bad = 0
    for draw in draws(9, ("gaussian",), blurs=(True,)):
        for _ in range(10):
            a, b = structured(draw), structured(draw)
            bad += not h.matmul(a["one for each sample"], b["one for each sample"]).is_sound()
    assert bad > 3


def test_single_precision_contains_the_truth():
    generator = torch.Generator().manual_seed(10)

    def draw(rows: int, cols: int) -> h.Known:
        tensor = torch.randn(rows, cols, generator=generator)
        return h.Known(Ball(tensor), Ball(tensor), h.truth(tensor))

    with flint.ctx.workprec(BITS):
        A, d, Z = draw(4, 4), draw(12, 1), draw(3, 4)
        one = lambda n: h._apply(lambda: ct.identity(n, dtype=torch.float32), h.identity(n).exact)  # noqa: E731
        blocks = h.subtract(one(12), h.scale(arb(0.1), arb(0.1), h.matmul(h.diag(d), h.kron(A, one(3)))))
        for result in (blocks, h.inverse(blocks), h.matmul(blocks, h.kron(one(4), Z)), h.kron(A, Z)):
            assert result.lazy.dtype is torch.float32
            assert result.is_sound()
            assert result.lazy.is_finite
