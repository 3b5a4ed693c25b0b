"""Implicit differentiation: right to every order, under every transform, never one-step, never silently zero."""

import math

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils._pytree import tree_leaves

from ntk_deq.equilibrium import Anderson, Equilibrium, Picard, fixed_point
from ntk_deq.errors import ArgumentError, EquilibriumError

# PyTorch's own forward-mode set-up uses torch.jit.script, which warns since 2.13.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

N, D, M = 3, 2, 3


def draw(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weights(q, n=M, seed=0):
    W = draw(n, n, seed=seed)
    return W * (q / torch.linalg.matrix_norm(W, ord=2))


W, U, X = weights(0.9), draw(M, D, seed=1), draw(N, D, seed=2)


def linear_step(z, W, U, X):
    return z @ W.T + X @ U.T


def tanh_step(z, W, U, X):
    return torch.tanh(z @ W.T + X @ U.T)


def implicit(W, U, X):
    return fixed_point(linear_step, torch.zeros(X.shape[0], M, dtype=W.dtype), W, U, X)


def closed(W, U, X):
    # Not torch.linalg.solve: its derivative of a derivative in forward mode is wrong in PyTorch 2.13.
    return (torch.linalg.inv(torch.eye(M, dtype=W.dtype) - W) @ U @ X.T).T


def loss(solution):
    return lambda W, U, X: solution(W, U, X).sin().square().sum()


def one(solution):
    """The map of one sample, for vmap over samples."""
    return lambda W, U, x: solution(W, U, x.unsqueeze(0)).squeeze(0)


SCALED = torch.tensor([0.5, 1.0, -1.0], dtype=torch.float64)

OPERATORS = {
    "value": lambda f: f,
    "grad": lambda f: grad(loss(f), (0, 1, 2)),
    "jacrev": lambda f: jacrev(f, (0, 1, 2)),
    "jacfwd": lambda f: jacfwd(f, (0, 1, 2)),
    "jvp": lambda f: lambda W, U, X: jvp(f, (W, U, X), (W.sin(), U.cos(), X.exp()))[1],
    "vjp called later": lambda f: lambda W, U, X: vjp(f, W, U, X)[1](X @ U.T),
    "hessian": lambda f: hessian(loss(f)),
    "jacrev of grad": lambda f: jacrev(grad(loss(f), 1), 0),
    "jacrev of jacrev": lambda f: jacrev(jacrev(loss(f))),
    "jacfwd of jacfwd": lambda f: jacfwd(jacfwd(loss(f))),
    "jacrev of jacfwd": lambda f: jacrev(jacfwd(loss(f))),
    "jvp of vjp": lambda f: lambda W, U, X: jvp(lambda w: vjp(f, w, U, X)[1](X @ U.T), (W,), (W.sin(),))[1],
    "vjp of jvp": lambda f: lambda W, U, X: vjp(lambda w: jvp(f, (w, U, X), (W.sin(), U, X))[1], W)[1](X @ U.T),
    "jvp of jvp": lambda f: (
        lambda W, U, X: jvp(lambda w: jvp(lambda v: f(v, U, X), (w,), (w.cos(),))[1], (W,), (W,))[1]
    ),
    "third derivative": lambda f: lambda W, U, X: jacrev(hessian(lambda s: loss(f)(s * W, U, X)))(SCALED[0]),
    "third forward": lambda f: lambda W, U, X: jacfwd(jacfwd(jacfwd(lambda s: loss(f)(s * W, U, X))))(SCALED[0]),
    "vmap over samples": lambda f: lambda W, U, X: vmap(one(f), (None, None, 0))(W, U, X),
    "vmap over parameters": lambda f: lambda W, U, X: vmap(lambda s: f(s * W, U, X))(SCALED),
    "vmap over inner dimensions": lambda f: (
        lambda W, U, X: vmap(f, (2, 1, None), out_dims=1)(torch.stack([W, -W], 2), torch.stack([U, 2 * U], 1), X)
    ),
    "vmap of vmap": lambda f: lambda W, U, X: vmap(lambda s: vmap(lambda x: one(f)(s * W, U, x))(X))(SCALED),
    "vmap of grad": lambda f: lambda W, U, X: vmap(grad(loss(one(f)), (0, 1)), (None, None, 0))(W, U, X),
    "vmap of jacrev": lambda f: lambda W, U, X: vmap(jacrev(one(f)), (None, None, 0))(W, U, X),
    "vmap of jacfwd": lambda f: lambda W, U, X: vmap(jacfwd(one(f)), (None, None, 0))(W, U, X),
    "grad of vmap": lambda f: grad(lambda W, U, X: vmap(one(f), (None, None, 0))(W, U, X).square().sum()),
    "vmap of hessian": lambda f: lambda W, U, X: vmap(lambda s: hessian(lambda t: loss(f)(t * W, U, X))(s))(SCALED),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_every_transform_agrees_with_the_closed_form(name):
    operator = OPERATORS[name]
    found, truth = operator(implicit)(W, U, X), operator(closed)(W, U, X)
    for one_found, one_truth in zip(tree_leaves(found), tree_leaves(truth), strict=True):
        assert one_truth.abs().max() > 1e-3  # the comparison must be able to fail
        torch.testing.assert_close(one_found, one_truth, rtol=1e-10, atol=1e-10 * float(one_truth.abs().max()))


def test_closed_form_reference_is_right_to_second_order():
    """Finite differences of the reference's first derivative, independent of any transform of a transform."""
    step = 1e-5
    direction = W.sin()
    slope = lambda w: jvp(lambda v: closed(v, U, X), (w,), (direction,))[1]  # noqa: E731
    numeric = (slope(W + step * direction) - slope(W - step * direction)) / (2 * step)
    exact = jvp(slope, (W,), (direction,))[1]
    torch.testing.assert_close(exact, numeric, rtol=1e-6, atol=1e-6)


def test_one_step_gradient_would_be_caught():
    """With q = 0.9 the gradient of a single step is far off; the implicit one is not."""
    W = 0.9 * torch.eye(M, dtype=torch.float64)
    start = torch.zeros(N, M, dtype=torch.float64)
    truth = grad(lambda U: closed(W, U, X).sum())(U)
    fixed = closed(W, U, X)
    phantom = grad(lambda U: linear_step(fixed, W, U, X).sum())(U)
    found = grad(lambda U: fixed_point(linear_step, start, W, U, X).sum())(U)
    assert torch.linalg.vector_norm(phantom - truth) > 0.8 * torch.linalg.vector_norm(truth)
    torch.testing.assert_close(found, truth, rtol=1e-11, atol=0)
    step = 1e-6
    for i, j in ((0, 0), (2, 1)):
        bump = torch.zeros_like(U)
        bump[i, j] = step
        numeric = (implicit(W, U + bump, X).sum() - implicit(W, U - bump, X).sum()) / (2 * step)
        assert found[i, j].item() == pytest.approx(numeric.item(), rel=1e-7)


@pytest.mark.parametrize(("step", "solver"), [(linear_step, "picard"), (tanh_step, "anderson")])
def test_gradcheck_to_second_order(step, solver):
    inputs = tuple(t.clone().requires_grad_() for t in (weights(0.5), U, X[:1]))

    def function(W, U, X):
        return fixed_point(step, torch.zeros(X.shape[0], M, dtype=W.dtype), W, U, X, solver=solver)

    assert gradcheck(function, inputs, check_forward_ad=True)
    assert gradgradcheck(function, inputs)


def test_double_backward_is_not_zero():
    leaf = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    z = fixed_point(lambda z, a: a * z + 1, torch.zeros(1, dtype=torch.float64), leaf)  # 1/(1 - a)
    (first,) = torch.autograd.grad(z, leaf, create_graph=True)
    (second,) = torch.autograd.grad(first, leaf, create_graph=True)
    (third,) = torch.autograd.grad(second, leaf)
    assert first.item() == pytest.approx(4.0, rel=1e-12)
    assert second.item() == pytest.approx(16.0, rel=1e-12)
    assert third.item() == pytest.approx(96.0, rel=1e-11)


def test_jacrev_and_jacfwd_are_equal_on_a_nonlinear_map():
    start = torch.zeros(N, M, dtype=torch.float64)
    function = lambda W: fixed_point(tanh_step, start, W, U, X)  # noqa: E731
    torch.testing.assert_close(jacrev(function)(W), jacfwd(function)(W), rtol=1e-11, atol=1e-11)


def test_one_sample_equals_its_row_of_the_batch():
    start = torch.zeros(N, M, dtype=torch.float64)
    both = jacrev(lambda U: fixed_point(tanh_step, start, W, U, X))(U)
    for n in range(N):
        alone = jacrev(lambda U, n=n: fixed_point(tanh_step, start[:1], W, U, X[n : n + 1]))(U)
        torch.testing.assert_close(alone[0], both[n], rtol=1e-11, atol=1e-11)


def test_unrolled_iteration_gives_the_same_gradient():
    def unrolled(W):
        z = torch.zeros(N, M, dtype=torch.float64)
        for _ in range(400):
            z = tanh_step(z, W, U, X)
        return z.sin().sum()

    found = grad(lambda W: fixed_point(tanh_step, torch.zeros(N, M).double(), W, U, X).sin().sum())(W)
    torch.testing.assert_close(found, grad(unrolled)(W), rtol=1e-11, atol=1e-12)


def test_plain_backward_fills_grad_and_the_start_gets_zero():
    start = torch.ones(N, M, dtype=torch.float64, requires_grad=True)
    leaf = W.clone().requires_grad_()
    fixed_point(linear_step, start, leaf, U, X).sum().backward()
    torch.testing.assert_close(leaf.grad, grad(lambda W: closed(W, U, X).sum())(W), rtol=1e-11, atol=0)
    assert start.grad.abs().max() == 0
    assert grad(lambda s: fixed_point(linear_step, s, W, U, X).sum())(start.detach()).abs().max() == 0
    _, tangent = jvp(lambda s: fixed_point(linear_step, s, W, U, X), (start.detach(),), (start.detach(),))
    assert tangent.abs().max() == 0


def test_plain_forward_mode():
    direction = W.sin()
    with forward_ad.dual_level():
        z = fixed_point(linear_step, torch.zeros(N, M, dtype=torch.float64), forward_ad.make_dual(W, direction), U, X)
        tangent = forward_ad.unpack_dual(z).tangent
    torch.testing.assert_close(tangent, jvp(lambda W: closed(W, U, X), (W,), (direction,))[1], rtol=1e-11, atol=1e-12)


def test_arguments_may_be_nested_and_partly_constant():
    def step(z, params, power, flag, none):
        assert none is None
        return params["inner"][0] * z**power + (params["shift"] if flag else 0)

    params = {"inner": [torch.tensor([0.1], dtype=torch.float64)], "shift": torch.tensor([1.0], dtype=torch.float64)}
    start = torch.zeros(1, dtype=torch.float64)
    found = grad(lambda p: fixed_point(step, start, p, 2, True, None).sum())(params)
    root = math.sqrt(1 - 0.4)  # 0.1 z^2 - z + s = 0: z = (1 - sqrt(1 - 0.4 s))/0.2
    assert found["shift"].item() == pytest.approx(1 / root, rel=1e-11)
    assert set(found) == {"inner", "shift"}
    z = (1 - root) / 0.2
    assert found["inner"][0].item() == pytest.approx(z * z / root, rel=1e-11)


def test_integer_tensors_pass_through():
    index = torch.tensor([1, 0])
    table = torch.tensor([1.0, 2.0], dtype=torch.float64)
    step = lambda z, table, index: 0.5 * z + table[index]  # noqa: E731
    start = torch.zeros(2, dtype=torch.float64)
    truth = torch.tensor([[0.0, 2.0], [2.0, 0.0]], dtype=torch.float64)
    for transform in (jacrev, jacfwd):
        torch.testing.assert_close(transform(lambda t: fixed_point(step, start, t, index))(table), truth)


def test_objects_that_could_hide_tensors_are_refused():
    with pytest.raises(ArgumentError, match=r"must be tensors, numbers, strings, None, or dicts.*Got Linear"):
        fixed_point(lambda z, model: model(z), torch.zeros(1, 2), torch.nn.Linear(2, 2))


def closing_over(w):
    return fixed_point(lambda z: 0.5 * w * z + 1, torch.zeros(3, dtype=torch.float64)).sum()


V = torch.ones(3, dtype=torch.float64)


@pytest.mark.parametrize(
    "use",
    [
        lambda: grad(closing_over)(V),
        lambda: jvp(closing_over, (V,), (V,)),
        lambda: vmap(closing_over)(torch.stack([V, V])),
        lambda: jacrev(jacfwd(closing_over))(V),
        lambda: jvp(lambda u: grad(lambda v: closing_over(u) + v.square().sum())(V), (V,), (V,)),
        lambda: grad(lambda u: jvp(lambda v: closing_over(u) + v.sum(), (V,), (V,))[0])(V),
        lambda: vmap(lambda u: grad(lambda v: closing_over(u) + v.sum())(V))(torch.stack([V, V])),
        lambda: jvp(lambda u: vmap(lambda v: closing_over(u) + v.sum())(torch.stack([V, V])), (V,), (V,)),
        lambda: closing_over(V.clone().requires_grad_()),
    ],
    ids=["grad", "jvp", "vmap", "nested", "outer jvp", "outer grad", "outer vmap", "jvp around vmap", "plain"],
)
def test_closing_over_a_differentiated_tensor_is_an_error_not_a_zero(use):
    with pytest.raises(ArgumentError, match="closes over a tensor that is differentiated or vmapped"):
        use()


def test_closing_over_constants_is_allowed_everywhere():
    constant = torch.full((3,), 0.5, dtype=torch.float64)
    function = lambda w: fixed_point(lambda z, w: w * constant * z + 1, torch.zeros_like(V), w).sum()  # noqa: E731
    torch.testing.assert_close(hessian(function)(V), torch.diag(4 * V))  # d^2/dw^2 of 1/(1 - w/2) at 1
    torch.testing.assert_close(vmap(grad(function))(torch.stack([V, V])), torch.stack([2 * V, 2 * V]))
    leaf = V.clone().requires_grad_()
    with torch.no_grad():  # nobody asks for a derivative here
        assert closing_over(leaf).item() == pytest.approx(6.0)


def test_kink_has_the_derivative_of_relu_in_pytorch():
    start = torch.zeros(2, dtype=torch.float64)
    step = lambda z, a: torch.relu(0.5 * z + a)  # noqa: E731
    at_zero = torch.tensor([0.0, 1.0], dtype=torch.float64)
    assert grad(lambda a: fixed_point(step, start, a).sum())(at_zero).tolist() == pytest.approx([0.0, 2.0])
    assert jvp(lambda a: fixed_point(step, start, a), (at_zero,), (torch.ones_like(at_zero),))[1].tolist() == (
        pytest.approx([0.0, 2.0])
    )


@pytest.mark.parametrize("operator", [grad, jacrev, jacfwd, lambda f: lambda a: vmap(grad(f))(torch.stack([a, a]))])
def test_every_linear_solve_is_reported(operator):
    seen = []
    start = torch.zeros(1, dtype=torch.float64)
    function = lambda a: fixed_point(  # noqa: E731
        lambda z, a: a * z + 1, start, a, solver="anderson", adjoint_solver=Picard(), on_adjoint=seen.append
    ).sum()
    operator(function)(torch.tensor([0.5], dtype=torch.float64))
    assert seen
    for result in seen:
        assert isinstance(result, Equilibrium)
        assert result.solver == "picard"
        assert result.all_converged
        assert not torch._C._functorch.is_functorch_wrapped_tensor(result.value)


def test_failing_forward_solve_is_an_error_that_says_forward():
    with pytest.raises(EquilibriumError, match="The forward fixed point was not found with the solver picard"):
        fixed_point(lambda z, a: a * z + 1, torch.zeros(1, dtype=torch.float64), torch.tensor([2.0]).double())


def test_failing_adjoint_and_tangent_solves_are_errors_that_say_so():
    """At z = 0 the map 2 tanh(z) stands still by luck of the start, but its linearisation diverges."""
    start, gain = torch.zeros(1, dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64)
    seen = []
    function = lambda a: fixed_point(lambda z, a: a * torch.tanh(z) + 0 * a, start, a, on_adjoint=seen.append)  # noqa: E731
    assert function(gain).item() == 0.0
    with pytest.raises(EquilibriumError, match="The adjoint fixed point was not found") as caught:
        grad(lambda a: function(a).sum())(gain)
    assert not caught.value.result.all_converged
    leaf = gain.clone().requires_grad_()
    with pytest.raises(EquilibriumError, match="The adjoint fixed point was not found"):
        function(leaf).sum().backward()
    assert len(seen) == 2
    assert not seen[-1].all_converged
    step = lambda z, a: 2 * torch.tanh(z) + a - 1  # noqa: E731
    with pytest.raises(EquilibriumError, match="The tangent fixed point was not found"):
        jvp(lambda a: fixed_point(step, start, a), (torch.ones_like(gain),), (gain,))


def test_solver_options_reach_both_solves():
    with pytest.raises(ArgumentError, match="Unknown solver 'picardd'"):
        fixed_point(tanh_step, torch.zeros(N, M).double(), W, U, X, adjoint_solver="picardd")
    with pytest.raises(EquilibriumError, match=r"max steps"):
        fixed_point(linear_step, torch.zeros(N, M).double(), W, U, X, max_steps=3)
    seen = []
    grad(
        lambda W: fixed_point(
            linear_step,
            torch.zeros(N, M).double(),
            W,
            U,
            X,
            solver=Anderson(memory=3),
            rtol=1e-6,
            on_adjoint=seen.append,
        ).sum()
    )(W)
    assert seen[0].solver == "anderson"
    size = torch.linalg.vector_norm(seen[0].value, dim=1)
    assert (seen[0].residual <= 1e-6 * size).all()


def test_only_asked_for_gradients_are_computed():
    leaf = U.clone().requires_grad_()
    z = fixed_point(linear_step, torch.zeros(N, M).double(), W, leaf, X)
    assert torch.autograd.grad(z.sum(), leaf)[0].shape == U.shape
    assert not fixed_point(linear_step, torch.zeros(N, M).double(), W, U, X).requires_grad


def test_whole_tensor_as_one_sample():
    """Rows may interact when nothing counts as a sample."""
    mix = weights(0.8, n=N, seed=5)
    start = torch.zeros(N, M, dtype=torch.float64)
    function = lambda B: fixed_point(lambda Z, B: mix @ Z + B, start, B, batch_dims=0)  # noqa: E731
    B = draw(N, M, seed=6)
    inverse = torch.linalg.inv(torch.eye(N, dtype=torch.float64) - mix)
    torch.testing.assert_close(function(B), inverse @ B, rtol=1e-12, atol=1e-12)
    truth = jacrev(lambda B: inverse @ B)(B)
    torch.testing.assert_close(jacrev(function)(B), truth, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(jacfwd(function)(B), truth, rtol=1e-12, atol=1e-12)


def test_empty_batch_has_empty_gradients():
    start = torch.zeros(0, M, dtype=torch.float64)
    assert grad(lambda W: fixed_point(tanh_step, start, W, U, X[:0]).sum())(W).abs().max() == 0


def test_float32_gradients():
    W32, U32, X32 = (t.float() for t in (weights(0.7), U, X))
    found = grad(lambda W: fixed_point(tanh_step, torch.zeros(N, M), W, U32, X32).sum())(W32)
    wide = grad(lambda W: fixed_point(tanh_step, torch.zeros(N, M).double(), W, U, X).sum())(weights(0.7))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), wide, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["grad", "jacrev", "jacfwd", "hessian", "vmap of jacrev"])
def test_transforms_on_the_gpu(name):
    def on_gpu(W, U, X):
        return fixed_point(linear_step, torch.zeros(X.shape[0], M, dtype=W.dtype, device=W.device), W, U, X)

    found = OPERATORS[name](on_gpu)(W.cuda(), U.cuda(), X.cuda())
    truth = OPERATORS[name](closed)(W, U, X)
    for one_found, one_truth in zip(tree_leaves(found), tree_leaves(truth), strict=True):
        assert one_found.device.type == "cuda"
        torch.testing.assert_close(one_found.cpu(), one_truth, rtol=1e-9, atol=1e-9)
