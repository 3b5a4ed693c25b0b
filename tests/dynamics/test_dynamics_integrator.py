"""The integrator against SciPy and closed forms: smooth right-hand sides, jumps, sliding, and every way to end."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from ntk_deq.dynamics.flow import StepJudge
from ntk_deq.dynamics.flow.integrator import METHODS, SLIDING_METHOD, Advance, EmbeddedRungeKutta, check_method
from ntk_deq.errors import ArgumentError, EquilibriumError

Function = Callable[[float, Tensor], Tensor]


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def predators(t: float, y: Tensor) -> Tensor:
    return torch.stack([y[0] * (1 - y[1]), y[1] * (y[0] - 1)])


def absolute(tolerance: float) -> Callable[[Tensor, float, Tensor, Tensor], Tensor]:
    return lambda error, step, state, slope: torch.linalg.vector_norm(error) / tolerance


def integrator(function: Function, start: Tensor, tolerance: float = 1e-10, **options: object) -> EmbeddedRungeKutta:
    chosen = {"scale": 1.0, "measure": absolute(tolerance), "on_accept": lambda t, y: False, **options}
    return EmbeddedRungeKutta(function, start, **chosen)  # type: ignore[arg-type]


def judged(function: Function, start: Tensor, tolerance: float, pace: float = 1 / 400) -> EmbeddedRungeKutta:
    """Integrate with the judge of gradient flow, each component a part, path and speed taken as one."""
    judge = StepJudge(len(start), order=5, understated=253.0, tolerance=tolerance, pace=pace, scale=1.0, unit=1.0)

    def measure(error: Tensor, step: float, state: Tensor, slope: Tensor) -> Tensor:
        return error.new_tensor(judge.ratio(error.abs().tolist(), time=flow.time, step=step, path=0.0, speed=1.0))

    def on_accept(t: float, y: Tensor) -> bool:
        judge.accept()
        flow.method = SLIDING_METHOD if judge.slides else "dopri5"
        judge.order, judge.understated = METHODS[flow.method].order, METHODS[flow.method].understated
        return False

    flow = EmbeddedRungeKutta(function, start, scale=1.0, measure=measure, on_accept=on_accept)
    flow.judge = judge  # type: ignore[attr-defined]
    return flow


@pytest.mark.parametrize("method", list(METHODS))
def test_agrees_with_scipy_at_every_target(method: str) -> None:
    targets = [0.5, 0.7, 3.0, 10.0]
    reference = solve_ivp(
        lambda t, y: [y[0] * (1 - y[1]), y[1] * (y[0] - 1)],
        (0, 10),
        [2.0, 1.0],
        "DOP853",
        targets,
        rtol=1e-13,
        atol=1e-13,
    )
    tolerance = 1e-7 if method == "bosh3" else 1e-11
    flow = integrator(predators, vector(2.0, 1.0), tolerance, method=method)
    for place, target in enumerate(targets):
        assert flow.advance(target) is Advance.REACHED
        assert flow.time == target
        assert np.abs(flow.state.numpy() - reference.y[:, place]).max() < 1e3 * tolerance


def test_a_tighter_tolerance_lowers_the_error_and_costs_steps() -> None:
    errors, steps = [], []
    for tolerance in (1e-6, 1e-8, 1e-10):
        flow = integrator(lambda t, y: -y, vector(1.0), tolerance)
        flow.advance(5.0)
        errors.append(abs(flow.state.item() - math.exp(-5)))
        steps.append(flow.accepted)
    assert errors[0] > 20 * errors[1] > 400 * errors[2]
    assert steps == sorted(steps)


def test_targets_cost_no_evaluation_beyond_the_steps_they_cut() -> None:
    calls = []

    def function(t: float, y: Tensor) -> Tensor:
        calls.append(t)
        return predators(t, y)

    flow = integrator(function, vector(2.0, 1.0))
    for target in (1.0, 1.5, 1.5001, 2.0, 7.0):
        flow.advance(target)
    assert len(calls) == 1 + 6 * (flow.accepted + flow.rejected)
    whole = integrator(predators, vector(2.0, 1.0))
    whole.advance(7.0)
    # The step that was cut short is taken up again, so that each target costs about one step.
    assert flow.accepted + flow.rejected <= whole.accepted + whole.rejected + 2 * 5


def test_after_a_step_the_function_was_evaluated_last_at_its_end() -> None:
    last: list[Tensor] = []

    def function(t: float, y: Tensor) -> Tensor:
        last[:] = [y]
        return predators(t, y)

    def on_accept(t: float, y: Tensor) -> bool:
        assert y is last[0]
        assert torch.equal(flow.slope, predators(t, y))
        return False

    for method in METHODS:
        flow = integrator(function, vector(2.0, 1.0), method=method, on_accept=on_accept)
        assert flow.advance(3.0) is Advance.REACHED


def test_the_caller_may_stop_and_go_on() -> None:
    flow = integrator(predators, vector(2.0, 1.0), on_accept=lambda t, y: 1.0 < t < 2.0)
    assert flow.advance(3.0) is Advance.STOPPED
    assert 1.0 < flow.time < 2.0
    while flow.advance(3.0) is Advance.STOPPED:
        pass
    whole = integrator(predators, vector(2.0, 1.0))
    whole.advance(3.0)
    torch.testing.assert_close(flow.state, whole.state, rtol=1e-8, atol=1e-8)


def test_a_solution_that_blows_up_ends_in_underflow_with_the_time_it_reached() -> None:
    flow = integrator(lambda t, y: y * y, vector(1.0), measure=lambda e, h, y, s: (e / y / 1e-9).abs().squeeze())
    assert flow.advance(2.0) is Advance.UNDERFLOW
    assert flow.time == pytest.approx(1.0, abs=1e-6)
    assert torch.isfinite(flow.state).all()


def test_an_error_that_is_not_a_number_ends_in_underflow() -> None:
    flow = integrator(lambda t, y: -y, vector(1.0), measure=lambda e, h, y, s: torch.tensor(math.nan).double())
    assert flow.advance(1.0) is Advance.UNDERFLOW
    assert (flow.time, flow.accepted) == (0.0, 0)


def test_the_edge_of_the_region_is_found_and_the_error_kept() -> None:
    def function(t: float, y: Tensor) -> Tensor:
        if y.item() > 2:
            raise EquilibriumError("no equilibrium beyond two")
        return torch.ones_like(y)

    flow = integrator(function, vector(0.0))
    assert flow.advance(1.5) is Advance.REACHED
    assert flow.advance(5.0) is Advance.REFUSED
    assert 2 - 2e-5 < flow.time <= 2
    assert flow.state.item() == pytest.approx(flow.time, rel=1e-12)
    assert "beyond two" in str(flow.failure)


def test_other_errors_pass_through() -> None:
    def function(t: float, y: Tensor) -> Tensor:
        if t > 0.5:
            raise KeyError("a bug")
        return y

    with pytest.raises(KeyError, match="a bug"):
        integrator(function, vector(1.0)).advance(1.0)


def test_no_motion_takes_few_steps() -> None:
    flow = integrator(lambda t, y: 0 * y, vector(3.0))
    assert flow.advance(1e9) is Advance.REACHED
    assert flow.accepted < 20
    assert flow.state.item() == 3.0


@pytest.mark.parametrize("tolerance", [1e-6, 1e-9])
def test_a_jump_is_crossed_at_the_tolerance(tolerance: float) -> None:
    flow = judged(lambda t, y: torch.where(y < 0.5, 1.0, 3.0).double() + 0 * y, vector(0.0), tolerance)
    assert flow.advance(1.0) is Advance.REACHED
    assert flow.state.item() == pytest.approx(0.5 + 3 * 0.5, abs=10 * tolerance)
    assert flow.judge.rough_steps > 0  # type: ignore[attr-defined]
    assert flow.judge.relaxed == 1.0  # type: ignore[attr-defined]
    assert flow.accepted + flow.rejected < 120


def test_many_jumps_are_crossed() -> None:
    """The speed is 1, 2, ..., 20 on twenty intervals of length 1/10."""
    flow = judged(lambda t, y: 1 + torch.floor(10 * y), vector(0.0), 1e-8)
    assert flow.advance(sum(0.1 / speed for speed in range(1, 21))) is Advance.REACHED
    assert flow.state.item() == pytest.approx(2.0, abs=20 * 20 * 1e-8)


@pytest.mark.parametrize("pace", [1 / 400, 1 / 100])
def test_a_sliding_mode_follows_filippovs_solution(pace: float) -> None:
    """u' = 1/2 - sign(u) pins u at zero, where the share of time above it is 3/4, and that share drives v."""

    def function(t: float, y: Tensor) -> Tensor:
        above = float(y[0] > 0)
        return torch.stack([1.5 - 2 * vector(above)[0], vector(above)[0] - y[1]])

    flow = judged(function, vector(0.25, 0.0), 1e-9, pace)
    assert flow.advance(4.0) is Advance.REACHED
    # Until u = 0 at t = 1/2 the share is one.
    exact = 0.75 + (1 - math.exp(-0.5) - 0.75) * math.exp(-3.5)
    assert abs(flow.state[0].item()) < 4 * 4.0 * pace
    assert flow.state[1].item() == pytest.approx(exact, abs=4 * 4.0 * pace)
    assert flow.judge.relaxed > 1  # type: ignore[attr-defined]
    assert flow.accepted + flow.rejected < 20 / pace


def test_unknown_methods() -> None:
    with pytest.raises(ArgumentError, match=r"`method` of a test must be one of dopri5.* Did you mean 'bosh3'"):
        check_method("bosch3", "a test")
    with pytest.raises(ArgumentError, match="dopri5"):
        integrator(predators, vector(1.0, 1.0), method="euler")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_same_steps_on_a_gpu() -> None:
    plain, other = integrator(predators, vector(2.0, 1.0)), integrator(predators, vector(2.0, 1.0).cuda())
    assert plain.advance(3.0) is other.advance(3.0) is Advance.REACHED
    assert other.state.is_cuda
    torch.testing.assert_close(other.state.cpu(), plain.state, rtol=1e-9, atol=1e-9)
