"""The tangent kernel of declared systems, derived, against dense and automatic derivatives of the same map."""

from __future__ import annotations

import pytest
import torch
from declared_systems import (
    MASKED,
    OPT_EQ,
    OUTPUTS,
    ROW_OUTPUTS,
    STRUCTURED,
    drawn,
    normal,
)

from ntk_deq.language.declaration import IMPLICIT_RELU, LINEAR_IMPLICIT
from ntk_deq.quantities import KernelMethod, ntk_gram
from ntk_deq.systems import predict, solve_equilibrium

AGREE = 1e-11  # relative: what the issue asks of the derived kernel


def apart(left, right):
    return float((left - right).norm() / right.norm())


EVERY = {**STRUCTURED, "implicit-relu": IMPLICIT_RELU, "linear-implicit": LINEAR_IMPLICIT}


@pytest.fixture(params=list(EVERY), ids=str)
def problem(request):
    return drawn(EVERY[request.param])


@pytest.mark.parametrize("method", ["adjoint", "jacobian", "autodiff"])
def test_derived_kernels_are_those_of_dense_and_automatic_derivatives(problem, method):
    model, X, _ = problem
    kernel, other = ntk_gram(model, X), ntk_gram(model, X, method=method)
    assert kernel.method is KernelMethod.STRUCTURED
    assert kernel.reason == ""
    assert list(kernel.blocks) == list(model.parameters())
    for name, block in kernel.blocks.items():
        assert apart(block, other.blocks[name]) <= AGREE, name


def test_kernels_are_symmetric_and_those_of_two_sets_their_parts(problem):
    model, X, _ = problem
    kernel = ntk_gram(model, X)
    assert torch.equal(kernel.matrix, kernel.matrix.mT)
    rows = model.input_rows(X)
    count, k = rows.shape[0], model.outputs or 1
    part = ntk_gram(model, model.inputs_of(rows[:4]), model.inputs_of(rows[4:]))
    expected = kernel.matrix.reshape(k, count, k, count)[:, :4, :, 4:].reshape(part.matrix.shape)
    assert apart(part.matrix, expected) <= AGREE


def test_the_layer_used_twice_is_differentiated_in_both_places():
    """z = W' relu(W z + U x + b): each occurrence alone is far off."""
    model, X, _ = drawn(OPT_EQ)
    whole = ntk_gram(model, X).blocks["W"]
    Z = solve_equilibrium(model, X).value
    _, inner = model.tangent_factors(X, Z, _adjoint(model, X, Z))["W"]
    alone = (inner.left @ inner.left.mT) * (inner.right @ inner.right.mT)
    assert apart(alone, whole) > 0.1


def _adjoint(model, X, Z):
    step, V = model.adjoint_step_at(Z, X), torch.zeros_like(Z)
    for _ in range(200):
        V = step(V)
    return V


@pytest.mark.parametrize("signature", [OUTPUTS, ROW_OUTPUTS], ids=lambda own: own.name)
@pytest.mark.parametrize("method", list(KernelMethod))
def test_outputs_are_in_the_order_of_vec_and_traced_on_request(signature, method):
    model, X, _ = drawn(signature)
    kernel = ntk_gram(model, X, method=method)
    rows, k = model.input_rows(X).shape[0], model.outputs
    assert kernel.matrix.shape == (rows * k, rows * k)
    assert kernel.outputs == k
    # Entry (j N + n, i N + l) is of output j of sample n and output i of sample l.
    h, name = 1e-6, next(iter(model.parameters()))
    direction = normal(*model.parameters()[name].shape, seed=5)
    alone = ntk_gram(model, X, method=method, parameters=[name])
    sides = [
        model.target_rows(predict(model, X, {name: model.parameters()[name] + sign * h * direction}))
        for sign in (1, -1)
    ]
    moved = ((sides[0] - sides[1]) / (2 * h)).mT.reshape(-1)
    # The derivative along a direction lies in the range of the block, and vanishes where the block does.
    assert float((alone.matrix.diagonal() == 0).double() @ moved.abs()) <= 1e-6
    traced = ntk_gram(model, X, traced=True, method=method)
    summed = sum(kernel.matrix[j * rows : (j + 1) * rows, j * rows : (j + 1) * rows] for j in range(k))
    assert apart(traced.matrix, summed) <= AGREE
    assert traced.outputs is None


def test_a_parameter_behind_another_kind_of_product_falls_back_and_says_so():
    model, X, _ = drawn(MASKED)
    kernel = ntk_gram(model, X)
    assert kernel.method is KernelMethod.ADJOINT
    assert kernel.reason == "`hadamard` of a parameter"
    assert "adjoint (`hadamard` of a parameter)" in repr(kernel)
    assert apart(kernel.matrix, ntk_gram(model, X, method="autodiff").matrix) <= AGREE
