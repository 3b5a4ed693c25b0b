"""Every operation on precise matrices, against exact rationals and against the dense balls."""

import re
from fractions import Fraction
from pathlib import Path

import flint
import pytest
import torch
from flint import arb, arb_mat, fmpq, fmpq_mat
from precise_truth import truth

from ntk_deq import certified as ct
from ntk_deq.certified import carried as operations
from ntk_deq.certified.precise import PreciseMatrix, precise, working_precision
from ntk_deq.errors import ArgumentError, LimitError

SHAPES = [(1, 1), (2, 2), (3, 5), (5, 3), (6, 6)]
BITS = [128, 256]


def drawn(rows, cols, seed, *, whole=False):
    generator = torch.Generator().manual_seed(1000 * rows + 10 * cols + seed)
    if whole:
        return torch.randint(-4, 5, (rows, cols), generator=generator).double() / 4
    return torch.randn(rows, cols, generator=generator, dtype=torch.float64)


def rational(tensor):
    values = [fmpq(*x.as_integer_ratio()) for x in tensor.reshape(-1).tolist()]
    return fmpq_mat(*tensor.shape, values)


def holds(matrix, exact):
    """Whether every entry's ball contains the exact rational entry."""
    pairs = zip(matrix.flat, exact.entries(), strict=True)
    return matrix.shape == (exact.nrows(), exact.ncols()) and all(ball.contains(truth(q)) for ball, q in pairs)


def test_the_containment_check_can_fail():
    off = precise(torch.full((1, 1), 0.5, dtype=torch.float64))
    assert holds(off, fmpq_mat(1, 1, [fmpq(1, 2)]))
    assert not holds(off, fmpq_mat(1, 1, [fmpq(1, 2) + fmpq(1, 2**300)]))
    assert not holds(ct.scale(ct.exact(Fraction(1, 3)), off), fmpq_mat(1, 1, [fmpq(1, 6) + fmpq(1, 2**120)]))


def test_the_table_is_complete():
    source = Path(operations.__file__).read_text()
    names = set(re.findall(r"^(\w+) = generic\(", source, re.MULTILINE))
    assert len(names) > 30
    assert names <= set(operations.PRECISE)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("shape", SHAPES)
def test_rational_operations_contain_the_exact_result_and_are_narrow(shape, bits):
    rows, cols = shape
    x, y, z = drawn(rows, cols, 0), drawn(rows, cols, 1), drawn(cols, rows, 2)
    a, b, c = map(rational, (x, y, z))
    with working_precision(bits):
        p, q, r = map(precise, (x, y, z))
        half = ct.exact(Fraction(1, 3))
        pointwise = fmpq_mat(rows, cols, [s * t for s, t in zip(a.entries(), b.entries(), strict=True)])
        results = [
            (ct.add(p, q), a + b),
            (ct.subtract(p, q), a - b),
            (ct.negate(p), a * fmpq(-1)),
            (ct.scale(half, p), a * fmpq(1, 3)),
            (ct.matmul(p, r), a * c),
            (ct.hadamard(p, q), pointwise),
            (ct.transpose(p), a.transpose()),
            (ct.vec(p), fmpq_mat(rows * cols, 1, a.transpose().entries())),
            (ct.kron(p, r), fmpq_mat(rows * cols, rows * cols, [
                a[i, j] * c[k, m] for i in range(rows) for k in range(cols) for j in range(cols) for m in range(rows)
            ])),
        ]  # fmt: skip
        for found, expected in results:
            assert holds(found, expected)
            assert found.radius <= 2.0 ** (16 - bits)
        assert ct.entry_sum(p).contains(truth(sum(a.entries(), fmpq(0))))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("order", [1, 2, 5, 8])
def test_square_rational_operations(order, bits):
    x = drawn(order, order, 3)
    a = rational(x)
    with working_precision(bits):
        p = precise(x)
        assert holds(ct.inverse(p), a.inv())
        assert ct.determinant(p).contains(truth(a.det()))
        assert ct.trace(p).contains(truth(sum((a[i, i] for i in range(order)), fmpq(0))))
        wide = PreciseMatrix(p.entries + arb_mat(order, order, [arb(0, 2.0**-60)] * order**2))
        assert not wide.is_exact
        assert holds(ct.inverse(wide), a.inv())
        assert ct.determinant(wide).contains(truth(a.det()))


@pytest.mark.parametrize("name", ["frobenius", "norm1", "norminf", "entry_max", "entry_min", "entry_sum",
                                  "spectral_norm", "sigma_min", "sigma_max"])  # fmt: skip
@pytest.mark.parametrize("shape", SHAPES)
def test_functionals_agree_with_the_dense_family_and_are_narrower(name, shape):
    x = drawn(*shape, 5)
    fine, coarse = getattr(ct, name)(precise(x)), getattr(ct, name)(ct.Ball(x))
    assert fine.overlaps(coarse)
    assert fine.rad() <= max(coarse.rad(), arb(2) ** -120)


@pytest.mark.parametrize("name", ["trace", "determinant", "lambda_min", "lambda_max", "rho"])
@pytest.mark.parametrize("order", [1, 2, 5, 9])
def test_square_functionals_agree_with_the_dense_family(name, order):
    x = drawn(order, order, 6)
    for matrix in (x, x + x.mT):
        fine, coarse = getattr(ct, name)(precise(matrix)), getattr(ct, name)(ct.Ball(matrix))
        assert fine.overlaps(coarse)
        assert float(fine.rad()) <= 1e-30 * max(1.0, float(abs(fine.mid())))


@pytest.mark.parametrize("name", ["relu", "absolute", "step", "diag"])
def test_entrywise_maps_agree_with_the_dense_family(name):
    x = drawn(4, 4, 7, whole=True)
    fine, coarse = getattr(ct, name)(precise(x)), getattr(ct, name)(ct.Ball(x))
    assert fine.is_exact
    assert torch.equal(fine.approximate, coarse.centre)
    column = drawn(4, 1, 8)
    assert torch.equal(ct.diag(precise(column)).approximate, torch.diag(column.flatten()))


def test_entries_that_touch_zero():
    wide = PreciseMatrix(arb_mat(1, 3, [arb(0, 1), arb(0), arb(2, 1)]))
    assert [bool(x >= 0) for x in ct.relu(wide).flat] == [True, True, True]
    assert [bool(x >= 0) for x in ct.absolute(wide).flat] == [True, True, True]
    first, zero, one = ct.step(wide).flat
    assert first.contains(0)
    assert first.contains(1)
    assert zero == 0
    assert one == 1
    assert ct.entry_min(ct.absolute(wide)) == 0


@pytest.mark.parametrize("op", ["<=", "<", ">=", ">", "==", "!="])
def test_comparisons_of_exact_matrices_are_those_of_the_dense_family(op):
    for seed in range(6):
        x, y = drawn(3, 2, seed, whole=True), drawn(3, 2, seed + 1, whole=True)
        for other in (y, x, x + 0.25):
            fine = ct.compare_entries(op, precise(x), precise(other))
            coarse = ct.compare_entries(op, ct.Ball(x), ct.Ball(other))
            assert fine[:2] == coarse[:2]
            assert fine.margin.overlaps(coarse.margin)


def test_a_wide_comparison_is_not_decided():
    wide = PreciseMatrix(arb_mat(1, 1, [arb(0, 1)]))
    for op in ("<=", "<", ">=", ">", "==", "!="):
        assert ct.compare_entries(op, wide, precise(torch.zeros(1, 1)))[:2] == (False, False)


def test_definiteness_decides_equality_for_small_exact_matrices():
    gram = precise(torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64))
    tiny = ct.exact(Fraction(1, 2**100))
    assert ct.lambda_min_at_least(gram, 1.0) is True
    assert ct.lambda_min_below(gram, 1.0) is None
    assert ct.lambda_min_at_least(gram, 1 + tiny) is None
    assert ct.lambda_min_below(gram, 1 + tiny) is True


def test_a_dense_ball_is_adopted_with_its_radius():
    mixed = ct.add(precise(torch.zeros(2, 2, dtype=torch.float64)), ct.Ball(torch.eye(2, dtype=torch.float64), 0.5))
    assert isinstance(mixed, PreciseMatrix)
    assert mixed.flat[0].contains(arb(0.5))
    assert mixed.flat[0].contains(arb(1.5))
    assert not ct.add(precise(torch.zeros(1, 1)), ct.Ball(torch.zeros(1, 1), float("inf"))).is_finite


def test_structure_is_adopted():
    large = ct.identity(65)
    with pytest.raises(LimitError, match="beyond memory and time"):
        ct.matmul(large, precise(drawn(65, 1, 0)))
    assert ct.matmul(ct.identity(40), precise(drawn(40, 1, 0))).is_exact


def test_the_precision_is_restored_after_an_exception():
    before = flint.ctx.prec
    seen = []

    def failing():
        with working_precision(777):
            seen.append(flint.ctx.prec)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert seen == [777]
    assert flint.ctx.prec == before
    singular = precise(torch.ones(20, 20, dtype=torch.float64))
    assert not ct.inverse(singular).is_finite
    with pytest.raises(ArgumentError):
        ct.singular_values(precise(torch.zeros(1, 1, 1)))
    assert flint.ctx.prec == before


@pytest.mark.parametrize("bits", [52, 4097, 128.0])
def test_precisions_out_of_range_are_refused(bits):
    with pytest.raises(ArgumentError, match="from 53 to 4096"), working_precision(bits):
        pass


def test_constants_follow_the_precision():
    for bits in (128, 512):
        with working_precision(bits):
            third = ct.exact(Fraction(1, 3))
            assert third.rad() < arb(2) ** (2 - bits)
            close = ct.from_bounds(third.lower(), third.upper())
            assert close.rad() < arb(2) ** (4 - bits)


def test_wrong_shapes_are_refused():
    wide, tall = precise(torch.zeros(2, 3)), precise(torch.zeros(3, 2))
    for call in (
        lambda: ct.add(wide, tall),
        lambda: ct.matmul(wide, wide),
        lambda: ct.hadamard(wide, tall),
        lambda: ct.inverse(wide),
        lambda: ct.trace(wide),
        lambda: ct.rho(wide),
        lambda: ct.diag(wide),
        lambda: ct.as_scalar(wide),
        lambda: ct.compare_entries("<>", wide, wide),
    ):
        with pytest.raises(ArgumentError):
            call()


def test_singular_matrices_give_no_information_with_a_reason():
    ones = precise(torch.ones(2, 2, dtype=torch.float64))
    assert ct.inverse(ones).reason == "the matrix is singular"
    nearly = PreciseMatrix(ones.entries + arb_mat(2, 2, [arb(0, 1e-30)] * 4))
    assert ct.inverse(nearly).reason == "invertibility is not certain"
