"""Equilibria in arb entries against exact rational fixed points."""

import pytest
import torch
from flint import arb, fmpq, fmpq_mat
from precise_truth import truth

from ntk_deq import certified as ct
from ntk_deq.certified.precise import precise, working_precision
from ntk_deq.evaluation.equilibria import refined_equilibrium


def rational(tensor):
    return fmpq_mat(*tensor.shape, [fmpq(*x.as_integer_ratio()) for x in tensor.reshape(-1).tolist()])


def contraction(order, cols, seed, norm):
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(order, order, generator=generator, dtype=torch.float64)
    a = a * (norm / float(torch.linalg.matrix_norm(a)))  # the Frobenius norm bounds the Lipschitz constant
    return a, torch.randn(order, cols, generator=generator, dtype=torch.float64)


def solved(a, b, bits, *, newton=True, relu=False, off=0.0):
    """Return the precise ball of Z = map(Z), from a float start that is `off` away."""
    order, cols = b.shape
    eye = torch.eye(order, dtype=torch.float64)
    state = torch.zeros_like(b)
    for _ in range(2000):
        state = a @ state + b
        state = state.relu() if relu else state
    system = torch.kron(torch.eye(cols, dtype=torch.float64), eye - a)
    mask = (state > 0).double().mT.reshape(-1, 1) if relu else 1.0
    jacobian = mask * torch.kron(torch.eye(cols, dtype=torch.float64), a)
    system = torch.eye(order * cols, dtype=torch.float64) - jacobian
    left, right = precise(a), precise(b)

    def apply(z):
        image = ct.add(ct.matmul(left, z), right)
        return ct.relu(image) if relu else image

    gap = 1 - ct.frobenius(left)
    return refined_equilibrium(apply, state + off, [torch.linalg.inv(system) if newton else None], gap)


@pytest.mark.parametrize("bits", [128, 256])
@pytest.mark.parametrize("newton", [True, False])
@pytest.mark.parametrize("norm", [0.2, 0.9])
def test_affine_equilibria_contain_the_rational_solution(bits, newton, norm):
    for order, seed in ((1, 1), (3, 2), (6, 3)):
        a, b = contraction(order, 2, seed, norm)
        one = fmpq_mat(order, order, [int(i == j) for i in range(order) for j in range(order)])
        exact = (one - rational(a)).solve(rational(b))
        with working_precision(bits):
            found = solved(a, b, bits, newton=newton, off=1e-9)
            assert all(x.contains(truth(q)) for x, q in zip(found.flat, exact.entries(), strict=True))
            if newton or norm < 0.5:  # plain steps at 0.9 run out of their budget, and the ball says so
                assert found.radius < 2.0 ** (20 - bits)


@pytest.mark.parametrize("bits", [128, 256])
def test_relu_equilibria_contain_the_solution_of_the_active_part(bits):
    for seed in range(8):
        a, b = contraction(4, 1, 20 + seed, 0.8)
        with working_precision(bits):
            found = solved(a, b, bits, relu=True)
            active = [i for i, x in enumerate(found.flat) if x > 0]
            assert all(x == 0 for i, x in enumerate(found.flat) if i not in active)
            if not active:
                continue
            part = rational(a[active][:, active])
            one = fmpq_mat(len(active), len(active), [int(i == j) for i in active for j in active])
            exact = (one - part).solve(rational(b[active]))
            for i, q in zip(active, exact.entries(), strict=True):
                assert found.flat[i].contains(truth(q))
                assert found.flat[i].rad() < arb(2) ** (20 - bits)


def test_entries_that_nothing_moves_come_out_exact_and_others_do_not():
    a = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.3, 0.1], [0.1, 0.2, 0.3]], dtype=torch.float64)
    b = torch.tensor([[0.0], [1.0], [1.0]], dtype=torch.float64)
    found = solved(a, b, 128)
    assert found.flat[0] == 0
    assert not found.flat[1].is_exact()


def test_an_entry_that_a_moving_one_reaches_is_not_called_exact():
    """The first entry's residual vanishes at the start only because the sum of the others' errors cancels there."""
    third = arb(1) / 3
    state = torch.tensor([[0.5], [1.0]], dtype=torch.float64)

    def apply(z):
        second = z.flat[1]
        return ct.add(precise(torch.zeros(2, 1)), type(z)(type(z.entries)(2, 1, [second / 2, second / 2 + third])))

    found = refined_equilibrium(apply, state, [None], arb(0.25))
    assert found.flat[1].contains(truth(fmpq(2, 3)))
    assert found.flat[0].contains(truth(fmpq(1, 3)))
