"""The driver: statuses that tell the truth, sample by sample."""

import itertools
import math

import numpy as np
import pytest
import torch

from ntk_deq.equilibrium import SOLVERS, Equilibrium, Picard, Status, solve_fixed_point
from ntk_deq.errors import ArgumentError, EquilibriumError

# PyTorch's own forward-mode set-up uses torch.jit.script, which warns since 2.13.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


def full(value, *shape, dtype=torch.float64):
    return torch.full(shape, value, dtype=dtype)


def statuses(found):
    return [Status(code) for code in found.status.tolist()]


def test_value_error_bound_and_steps_of_a_known_contraction():
    found = solve_fixed_point(lambda z: 0.5 * z + 1, full(0.0, 2, 3), contraction=0.5)
    error = torch.linalg.vector_norm(found.value - 2, dim=1)
    assert (error <= found.error_bound * (1 + 1e-9)).all()
    torch.testing.assert_close(found.error_bound, found.residual / 0.5)
    # residual 2^-k sqrt(3) <= (1 - q) 32 eps norm(z) with norm(z) just below 2 sqrt(3): 2^-k < 2^-47
    assert found.steps.tolist() == [48, 48]
    assert found.contraction == 0.5


def test_rate_of_picard_is_the_contraction_factor():
    residuals = [
        solve_fixed_point(lambda z: 0.7 * z + 1, full(0.0, 1, 1), max_steps=k, raise_on_failure=False).residual.item()
        for k in range(1, 8)
    ]
    for before, after in itertools.pairwise(residuals):
        assert after / before == pytest.approx(0.7, rel=1e-12)


def test_error_bound_is_infinite_without_contraction_and_none_when_unknown():
    found = solve_fixed_point(lambda z: 0.5 * z, full(1.0, 2, 1), contraction=1.5)
    assert found.error_bound.tolist() == [math.inf, math.inf]
    assert solve_fixed_point(lambda z: 0.5 * z, full(1.0, 2, 1)).error_bound is None
    nan = solve_fixed_point(lambda z: 0.5 * z, full(1.0, 2, 1), contraction=math.nan)
    assert nan.error_bound.tolist() == [math.inf, math.inf]


def test_contraction_may_be_a_tensor_but_not_negative():
    assert solve_fixed_point(lambda z: 0 * z, full(1.0, 1, 1), contraction=torch.tensor(0.25)).contraction == 0.25
    assert solve_fixed_point(lambda z: 0 * z, full(1.0, 1, 1), contraction=np.float32(0.25)).contraction == 0.25
    with pytest.raises(ArgumentError, match=r"`contraction` must be a number >= 0 or None\. Got -1\."):
        solve_fixed_point(lambda z: 0 * z, full(1.0, 1, 1), contraction=-1)


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_nan_sample_does_not_spoil_the_finite_ones(solver):
    B = torch.tensor([[1.0, 2.0], [math.nan, 2.0], [3.0, 4.0], [math.inf, 0.0]], dtype=torch.float64)
    A = torch.tensor([[0.3, 0.2], [-0.1, 0.4]], dtype=torch.float64)
    found = solve_fixed_point(lambda z: z @ A + B, full(7.0, 4, 2), solver=solver, raise_on_failure=False)
    good = solve_fixed_point(lambda z: z @ A + B[[0, 2]], full(7.0, 2, 2), solver=solver)
    assert statuses(found) == [Status.CONVERGED, Status.NON_FINITE, Status.CONVERGED, Status.NON_FINITE]
    torch.testing.assert_close(found.value[[0, 2]], good.value, rtol=1e-13, atol=0)
    assert found.value[[1, 3]].tolist() == [[7.0, 7.0], [7.0, 7.0]]  # the last finite value
    assert found.residual[[1, 3]].tolist() == [math.inf, math.inf]
    assert found.converged.tolist() == [True, False, True, False]


def test_sample_that_overflows_late_keeps_its_last_finite_value():
    def step(z):
        return torch.where(z > 3.5, math.nan, z + 1)

    found = solve_fixed_point(step, full(0.0, 1, 1), raise_on_failure=False)
    assert statuses(found) == [Status.NON_FINITE]
    assert found.value.item() == 4.0
    assert found.steps.tolist() == [4]


@pytest.mark.parametrize("solver", sorted(SOLVERS))
@pytest.mark.parametrize(
    "step",
    [lambda z: 2 * z + 1, lambda z: -3 * z + 1, lambda z: z * z + 3, lambda z: torch.exp(z) + 1, lambda z: z + 1],
    ids=["double", "alternate", "square", "exp", "shift"],
)
def test_divergent_map_is_never_reported_as_solved_elsewhere(solver, step):
    """Where a solver says it converged (an accelerated one may find a repelling fixed point), it is one."""
    found = solve_fixed_point(step, full(1.0, 2, 3), solver=solver, max_steps=3000, raise_on_failure=False)
    for n in range(2):
        if found.converged[n]:
            torch.testing.assert_close(step(found.value[n]), found.value[n], rtol=1e-12, atol=1e-12)
        else:
            assert statuses(found)[n] is not Status.CONVERGED
    if solver == "picard":
        assert not found.converged.any()


def test_divergence_is_named():
    found = solve_fixed_point(lambda z: 2 * z + 1, full(1.0, 1, 3), raise_on_failure=False)
    assert statuses(found) == [Status.DIVERGED]
    assert found.steps.item() < 200
    with pytest.raises(EquilibriumError, match=r"1 of 1 diverged.*no contraction"):
        solve_fixed_point(lambda z: 2 * z + 1, full(1.0, 1, 3))


def test_transient_growth_is_not_divergence():
    """A non-normal map of norm 50 and spectral radius 0.5: the residual first grows by 10^4."""
    A = torch.diag(full(0.5, 4)) + torch.diag(full(50.0, 3), 1)
    found = solve_fixed_point(lambda z: z @ A + 1, full(0.0, 1, 4), rtol=1e-12)
    truth = torch.linalg.solve((torch.eye(4, dtype=torch.float64) - A).T, full(1.0, 4))
    torch.testing.assert_close(found.value[0], truth, rtol=1e-6, atol=0)


def test_period_two_oscillation_is_never_converged():
    for budget, expected in ((20, Status.MAX_STEPS), (5000, Status.STAGNATED)):
        found = solve_fixed_point(lambda z: 1 - z, full(0.25, 1, 2), max_steps=budget, raise_on_failure=False)
        assert statuses(found) == [expected]
        assert found.residual.item() == pytest.approx(0.5 * math.sqrt(2))
    # A tiny oscillation has tiny steps; still not converged, since rounding level is far below.
    tiny = solve_fixed_point(lambda z: 2 - z, full(1 + 1e-9, 1, 1), max_steps=5000, raise_on_failure=False)
    assert statuses(tiny) == [Status.STAGNATED]
    assert solve_fixed_point(lambda z: 1 - z, full(0.25, 1, 2), solver="damped").all_converged


def test_small_step_alone_is_not_convergence():
    """z + 1e-9 moves by a relative 1e-9 a step and has no fixed point."""
    found = solve_fixed_point(lambda z: z + 1e-9, full(1.0, 1, 1), max_steps=400, raise_on_failure=False)
    assert statuses(found) == [Status.MAX_STEPS]


def test_mixed_convergence_has_a_status_for_every_sample():
    slope = torch.tensor([[0.0], [0.5], [0.999], [3.0], [-1.0], [math.nan]], dtype=torch.float64)
    found = solve_fixed_point(lambda z: slope * z + 1, full(0.0, 6, 1), max_steps=600, raise_on_failure=False)
    assert statuses(found) == [
        Status.CONVERGED,
        Status.CONVERGED,
        Status.MAX_STEPS,
        Status.DIVERGED,
        Status.STAGNATED,
        Status.NON_FINITE,
    ]
    assert found.steps.tolist()[:3] == [1, found.steps[1].item(), 600]
    assert 40 < found.steps[1] < 55
    assert not found.all_converged
    assert found.counts()[Status.CONVERGED] == 2
    report = found.describe_failures()
    for part in ("sample 2;", "sample 3;", "sample 4;", "sample 5;", "max_steps", "damping"):
        assert part in report


def test_frozen_samples_do_not_change_while_others_go_on():
    slope = torch.tensor([[0.5], [0.99]], dtype=torch.float64)
    short = solve_fixed_point(lambda z: slope[:1] * z + 1, full(0.0, 1, 1))
    both = solve_fixed_point(lambda z: slope * z + 1, full(0.0, 2, 1))
    assert torch.equal(short.value[0], both.value[0])
    assert short.steps[0] == both.steps[0] < both.steps[1]


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_start_at_the_fixed_point_takes_no_step(solver):
    start = full(2.0, 3, 2)
    found = solve_fixed_point(lambda z: 0.5 * z + 1, start, solver=solver)
    assert found.steps.tolist() == [0, 0, 0]
    assert torch.equal(found.value, start)
    start.zero_()
    assert found.value.tolist() == [[2.0, 2.0]] * 3  # no view of the start


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_empty_batches_and_empty_samples(solver):
    none = solve_fixed_point(lambda z: 0.5 * z, full(1.0, 0, 3), solver=solver, contraction=0.5)
    assert none.value.shape == (0, 3)
    assert none.status.shape == (0,)
    assert none.all_converged
    assert "no samples" in repr(none)
    hollow = solve_fixed_point(lambda z: 0.5 * z, full(1.0, 2, 0), solver=solver)
    assert statuses(hollow) == [Status.CONVERGED] * 2


@pytest.mark.parametrize("dims", [0, 1, 2, 3])
def test_batch_dims_set_the_shape_of_the_status(dims):
    found = solve_fixed_point(lambda z: 0.5 * z + 1, full(0.0, 2, 3, 4), batch_dims=dims)
    assert found.status.shape == (2, 3, 4)[:dims]
    torch.testing.assert_close(found.value, full(2.0, 2, 3, 4))


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_float32_reaches_its_own_rounding_level(solver):
    found = solve_fixed_point(lambda z: 0.9 * z.cos(), full(0.0, 3, 2, dtype=torch.float32), solver=solver)
    assert found.value.dtype == found.residual.dtype == torch.float32
    wide = solve_fixed_point(lambda z: 0.9 * z.cos(), full(0.0, 3, 2))
    torch.testing.assert_close(found.value.double(), wide.value, rtol=1e-5, atol=0)
    assert found.residual.max() > 0 or found.all_converged


def test_stalled_residual_is_accepted_only_at_rounding_level():
    def noisy(level):
        calls = iter(range(10**6))

        def step(z):
            return 1 + level * (-1.0) ** next(calls) + 0 * z

        return step

    quiet = solve_fixed_point(noisy(1e-15), full(0.0, 1, 1), rtol=0, raise_on_failure=False)
    assert statuses(quiet) == [Status.CONVERGED]
    loud = solve_fixed_point(noisy(1e-12), full(0.0, 1, 1), rtol=0, raise_on_failure=False)
    assert statuses(loud) == [Status.STAGNATED]


def test_tolerances_are_obeyed():
    loose = solve_fixed_point(lambda z: 0.9 * z + 1, full(0.0, 1, 1), rtol=1e-3)
    assert loose.residual.item() <= 1e-3 * loose.value.item()
    assert loose.residual.item() > 0.8e-3 * loose.value.item()
    absolute = solve_fixed_point(lambda z: 0.9 * z + 1, full(0.0, 1, 1), rtol=0, atol=1e-4)
    assert 0.8e-4 < absolute.residual.item() <= 1e-4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rtol": -1.0}, "`rtol` must be a finite number >= 0 or None. Got -1.0"),
        ({"atol": math.nan}, "`atol` must be a finite number"),
        ({"rtol": "small"}, "`rtol` must be a finite number"),
        ({"max_steps": -1}, "`max_steps` must be an integer >= 0. Got -1"),
        ({"max_steps": 1.5}, "`max_steps` must be an integer"),
        ({"batch_dims": 3}, "`batch_dims` must be an integer from 0 to 2"),
        ({"batch_dims": -1}, "`batch_dims` must be an integer from 0 to 2"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ArgumentError, match=message):
        solve_fixed_point(torch.cos, full(0.0, 2, 2), **options)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda z: z[:1], r"must keep the shape \(2, 2\). Got \(1, 2\)"),
        (lambda z: z.float(), "must keep the dtype torch.float64. Got torch.float32"),
        (lambda z: (z, z), "must return a tensor. Got tuple"),
        (lambda z: z.mul_(0.5).add_(1), "must not write into its argument"),
    ],
)
def test_map_that_breaks_the_rules(step, message):
    with pytest.raises(ArgumentError, match=message):
        solve_fixed_point(step, full(1.0, 2, 2))


def test_start_must_be_a_real_floating_point_tensor():
    for bad in (torch.ones(2, 2, dtype=torch.int64), torch.ones(2, 2, dtype=torch.complex128), [1.0]):
        with pytest.raises(ArgumentError, match="`initial` of a fixed point must be a real floating-point tensor"):
            solve_fixed_point(torch.cos, bad)


def test_no_steps_allowed_still_judges_the_start():
    found = solve_fixed_point(lambda z: 0.5 * z + 1, full(0.0, 1, 4), max_steps=0, raise_on_failure=False)
    assert statuses(found) == [Status.MAX_STEPS]
    assert found.residual.item() == 2.0
    assert solve_fixed_point(lambda z: 0.5 * z + 1, full(2.0, 1, 4), max_steps=0).all_converged


def test_error_carries_the_result():
    with pytest.raises(EquilibriumError) as caught:
        solve_fixed_point(lambda z: 1 - z, full(0.25, 3, 2), max_steps=5)
    assert isinstance(caught.value.result, Equilibrium)
    assert caught.value.result.steps.tolist() == [5, 5, 5]
    assert "3 of 3 max steps (sample 0, 1, 2;" in str(caught.value)


def test_long_lists_of_failed_samples_are_cut():
    found = solve_fixed_point(lambda z: 1 - z, full(0.25, 9, 2), max_steps=5, raise_on_failure=False)
    assert "sample 0, 1, 2, 3, 4, ..." in found.describe_failures()


def test_result_carries_no_gradients():
    W = torch.full((1,), 0.5, dtype=torch.float64, requires_grad=True)
    assert not solve_fixed_point(lambda z: W * z + 1, full(0.0, 2, 1)).value.requires_grad
    primal, tangent = torch.func.jvp(
        lambda w: solve_fixed_point(lambda z: w * z + 1, full(0.0, 2, 1)).value, (W.detach(),), (W.detach(),)
    )
    torch.testing.assert_close(primal, full(2.0, 2, 1))
    assert tangent.abs().max() == 0
    slope = torch.func.grad(lambda w: w.sum() + solve_fixed_point(lambda z: w * z + 1, full(0.0, 2, 1)).value.sum())
    assert slope(W.detach()).tolist() == [1.0]


def test_inside_vmap_it_points_to_the_differentiable_one():
    with pytest.raises(ArgumentError, match=r"cannot run inside `torch.func.vmap`; use `fixed_point`"):
        torch.func.vmap(lambda w: solve_fixed_point(lambda z: w * z + 1, full(0.0, 2, 1)).value)(full(0.5, 3))


def test_works_in_inference_mode():
    with torch.inference_mode():
        assert solve_fixed_point(lambda z: 0.5 * z + 1, full(0.0, 2, 1)).all_converged


def test_map_is_evaluated_once_a_step():
    calls = []

    def step(z):
        calls.append(1)
        return 0.5 * z + 1

    found = solve_fixed_point(step, full(0.0, 2, 1), solver=Picard())
    assert len(calls) == int(found.steps.max()) + 1


def test_repr_and_html_say_what_matters():
    slope = torch.tensor([[0.5], [math.nan]], dtype=torch.float64)
    found = solve_fixed_point(
        lambda z: slope * z + 1, full(0.0, 2, 1), contraction=0.5, solver="damped", raise_on_failure=False
    )
    for text in (repr(found), found._repr_html_()):
        for part in ("(2, 1)", "float64", "damped", "1 converged, 1 non-finite", "inf", "0.5", "error bound"):
            assert part in text
    assert found._repr_html_().startswith("<table>")
    assert found.describe().startswith("1 converged, 1 non-finite; at most inf after at most")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_on_the_gpu_everything_stays_there(solver):
    A = 0.05 * torch.randn(16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    host = solve_fixed_point(lambda z: torch.tanh(z @ A + 1), full(0.0, 5, 16), solver=solver, contraction=0.9)
    B = A.cuda()
    found = solve_fixed_point(lambda z: torch.tanh(z @ B + 1), full(0.0, 5, 16).cuda(), solver=solver, contraction=0.9)
    for tensor in (found.value, found.status, found.residual, found.steps, found.error_bound):
        assert tensor.device.type == "cuda"
    torch.testing.assert_close(found.value.cpu(), host.value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("dtype", "large"), [(torch.float32, 1e5), (torch.float64, 1e12)])
@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_a_small_entry_is_as_well_known_as_a_large_one(dtype, large, solver):
    slope, source = torch.tensor([0.5, 0.9], dtype=dtype), torch.tensor([large, 2.0], dtype=dtype)
    found = solve_fixed_point(
        lambda z: slope * z + source, full(0.0, 1, 2, dtype=dtype), solver=solver, contraction=0.9
    )
    eps = torch.finfo(dtype).eps
    assert found.value[0].tolist() == pytest.approx([2 * large, 20.0], rel=400 * eps)


def test_the_tolerance_is_one_on_the_error_where_the_contraction_is_known():
    plain = solve_fixed_point(lambda z: 0.99 * z + 1, full(0.0, 1, 1), rtol=1e-4)
    known = solve_fixed_point(lambda z: 0.99 * z + 1, full(0.0, 1, 1), rtol=1e-4, contraction=0.99)
    assert abs(plain.value.item() - 100) > 0.5
    assert abs(known.value.item() - 100) < 0.0101


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_a_sample_that_has_died_ends_at_zero_and_leaves_the_others_alone(solver):
    source = torch.tensor([[-1.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    A = torch.tensor([[0.95, 0.0], [0.3, 0.2]], dtype=torch.float64)
    found = solve_fixed_point(lambda z: torch.relu(z @ A + source.clamp(min=0)), full(1.0, 2, 2), solver=solver)
    assert found.all_converged
    assert found.value[0].tolist() == [0.0, 0.0]
    assert found.value[1].tolist() == pytest.approx([20.0, 0.0], rel=1e-12)
    assert found.value[1, 1] < 1e-30
    assert int(found.steps.max()) < 2000


def test_an_entry_that_is_fed_a_little_is_not_taken_for_dead():
    A = torch.tensor([[0.5, 1e-30], [0.0, 0.9]], dtype=torch.float64)
    found = solve_fixed_point(lambda z: torch.relu(z @ A + torch.tensor([1.0, 0.0])), full(1.0, 1, 2))
    assert found.value[0].tolist() == pytest.approx([2.0, 2e-29], rel=1e-12)
