"""Gradient flow: how its record fits together, every way to end, and what it refuses."""

import math
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from flow_samples import distance, flat, linear_problem, quick, theorem_problem
from torch import Tensor

from ntk_deq.dynamics.field import FieldPoint, GradientField, NotFiniteError, WellPosednessError
from ntk_deq.dynamics.flow import StepJudge
from ntk_deq.dynamics.flow.run import gradient_flow
from ntk_deq.dynamics.record import RunStatus, TrainingRun
from ntk_deq.dynamics.recorders import Recorder, every
from ntk_deq.dynamics.settings import FlowOptions
from ntk_deq.errors import ArgumentError, EquilibriumError, NtkDeqError
from ntk_deq.systems import ImplicitReLU, LinearImplicit


def test_record_snapshots_and_counts_fit_together() -> None:
    model, X, y = linear_problem()
    calls: list[float] = []
    run = quick(
        (model, X, y),
        snapshots=30,
        record=[Recorder("twice", lambda seen: 2 * seen.at, every(2))],
        on_step=calls.append,
    )
    assert run.method == "gradient-flow"
    assert run.step is None
    at = [snapshot.at for snapshot in run.snapshots]
    assert at[0] == 0.0
    assert at[-1] == run.end == run["loss"].at[-1].item()
    assert at == sorted(set(at))
    assert len(at) <= 30
    assert len(run["loss"].at) == run.steps + 1
    assert set(at) <= set(run["loss"].at.tolist())
    assert len(run["twice"].at) == run.steps // 2 + 1
    losses = dict(zip(run["loss"].at.tolist(), run["loss"].values.tolist(), strict=True))
    assert all(snapshot.loss == losses[snapshot.at] for snapshot in run.snapshots)
    assert calls[: run.steps] == run["loss"].at.tolist()[1:]
    assert len(calls) > run.steps  # the second integration, too
    assert run.evaluations > run.settings["first_evaluations"] == 1 + 6 * (run.steps + run.settings["rejected"])
    assert 0 < run.settings["sum_of_errors"] <= 1e-6 * run.snapshots[-1].path_length
    assert 0 < run.settings["largest_error_per_time"] <= 1e-6 * float(run["gradient_norm"].values.max())
    assert run.error is not None
    assert (
        0
        < max(run.settings["error_by_parameter"].values())
        <= run.error
        <= sum(run.settings["error_by_parameter"].values())
    )
    assert distance(run.snapshots[0].parameters, model.parameters()) == 0.0
    first = GradientField(model, X, y).at(model.parameters(), 0.0)
    assert run.snapshots[0].loss == pytest.approx(first.loss_value, rel=1e-9)


def test_without_an_estimate_half_the_work_is_saved_and_the_run_is_the_same() -> None:
    problem = linear_problem()
    with_estimate, without = (
        quick(problem),
        quick(problem, estimate_error=False),
    )
    assert without.error is None
    assert without.evaluations == with_estimate.settings["first_evaluations"] < with_estimate.evaluations
    assert distance(without.parameters, with_estimate.parameters) == 0.0


def test_a_run_can_be_saved_and_read(tmp_path) -> None:  # type: ignore[no-untyped-def]
    run = quick(linear_problem(), until=1e-3)
    run.save(tmp_path / "flow.npz")
    read = TrainingRun.load(tmp_path / "flow.npz")
    assert (read.status, read.end, read.error, read.settings) == (run.status, run.end, run.error, run.settings)
    assert distance(read.parameters, run.parameters) == 0.0


def test_the_model_is_left_as_it_is() -> None:
    model, X, y = linear_problem()
    before = {name: value.clone() for name, value in model.parameters().items()}
    quick((model, X, y), until=1e-2)
    assert distance(before, model.parameters()) == 0.0


def test_single_precision() -> None:
    model, X, y = linear_problem()
    single = LinearImplicit(**{name: value.float() for name, value in model.parameters().items()})
    run = gradient_flow(single, X.float(), y.float(), horizon=1.0, until=0.0, tolerance=1e-4)
    exact = gradient_flow(model, X, y, horizon=1.0, until=0.0)
    assert run.status is RunStatus.HORIZON
    assert run.parameters["U"].dtype == torch.float32
    assert distance({k: v.double() for k, v in run.parameters.items()}, exact.parameters) < 1e-3
    with pytest.raises(ArgumentError, match=r"`tolerance` of gradient-flow must be at least 1\.19e-05 in float32"):
        gradient_flow(single, X.float(), y.float(), tolerance=1e-9)
    default = gradient_flow(single, X.float(), y.float(), horizon=1.0, until=0.0, estimate_error=False)
    assert default.status is RunStatus.HORIZON
    assert distance({k: v.double() for k, v in default.parameters.items()}, exact.parameters) < 1e-3


def test_the_steps_may_run_out() -> None:
    run = quick(linear_problem(), steps=7)
    assert (run.status, run.steps) == (RunStatus.STEPS, 7)
    assert run.end == run.snapshots[-1].at > 0
    assert run.error is not None
    none = quick(linear_problem(), steps=0)
    assert (none.status, none.steps, none.end, len(none.snapshots), none.error) == (RunStatus.STEPS, 0, 0.0, 1, 0.0)


def test_no_loss_at_the_start_is_the_floor() -> None:
    model, X, y = linear_problem()
    run = gradient_flow(model.with_parameters({"b": 0 * model.b}), X, 0 * y)
    assert (run.status, run.end, run.steps) == (RunStatus.LOSS_FLOOR, 0.0, 0)


def test_a_stationary_start_needs_a_horizon() -> None:
    zero, one = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    dead = ImplicitReLU(W=-one, A=zero, b=one[0], gamma=0.5)  # no unit is on
    with pytest.raises(ArgumentError, match="`horizon` of gradient-flow must be given"):
        gradient_flow(dead, one, one[0])
    run = gradient_flow(dead, one, one[0], horizon=5.0)
    assert (run.status, run.end, run.loss) == (RunStatus.HORIZON, 5.0, 0.5)
    assert run.snapshots[-1].path_length == 0.0


def test_b_and_a_may_be_zero_at_first() -> None:
    run = quick(theorem_problem(beta=20.0, gamma=0.5, N=2, m=6, d=3), until=0.5, snapshots=8)
    assert run.status is RunStatus.LOSS_FLOOR
    assert float(run.parameters["A"].norm()) > 0


def test_on_the_way_to_an_ill_posed_network_solves_fail_and_the_factor_is_named() -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    problem = LinearImplicit(W=-0.3 * one, U=one, b=one[0]), one, -5 * one[0]  # W falls, and W = -1 is the edge
    run = quick(problem, max_steps=28, estimate_error=False)
    assert run.status is RunStatus.UNSOLVED
    assert -1 < run.parameters["W"].item() < -0.3
    assert "The contraction factor was 0." in run.detail


def test_a_flow_at_a_minimum_above_the_floor_is_not_followed_for_ever() -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    X, y = torch.ones(2, 1, dtype=torch.float64), torch.tensor([1.0, -1.0], dtype=torch.float64)  # the least loss is 1
    problem = LinearImplicit(W=one / 4, U=one, b=one[0]), X, y
    run = quick(problem, steps=2000)
    assert run.status is RunStatus.HORIZON
    assert run.loss == pytest.approx(1.0, abs=1e-3)
    assert "the longest that a flow without `horizon` is followed" in run.detail
    assert run.error is not None
    asked = quick(problem, horizon=2 * run.end)
    assert asked.end == 2 * run.end


def test_a_flow_is_taken_up_at_a_minimum_above_the_floor() -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    X, y = torch.ones(2, 1, dtype=torch.float64), torch.tensor([0.0, 3.0], dtype=torch.float64)  # the least is 9/4
    there = gradient_flow(LinearImplicit(W=one / 5, U=one, b=one[0]), X, y, horizon=8.0, until=0.0, snapshots=8)
    again = gradient_flow(LinearImplicit(**there.parameters), X, y, horizon=2.0, until=0.0, snapshots=8)
    assert (again.status, again.end) == (RunStatus.HORIZON, 2.0)
    assert again.error is not None
    assert distance(again.parameters, there.parameters) < 1e-10


def test_newton_steps_bring_a_flow_up_to_the_edge_of_contraction() -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    problem = LinearImplicit(W=-0.8 * one, U=one, b=one[0]), one, -5 * one[0]
    run = quick(problem, estimate_error=False)
    assert run.status is RunStatus.WELL_POSEDNESS_LOST
    assert -1 < run.parameters["W"].item() < -0.999
    assert run.forward_iterations < 100  # a gradient: plain iteration takes thousands there


def broken(monkeypatch: pytest.MonkeyPatch, change: Callable[[float, FieldPoint], FieldPoint]) -> None:
    """Make every gradient field do something else."""
    plain = GradientField.at

    def at(field: GradientField, parameters: Mapping[str, Tensor], moment: float, **options: Any) -> FieldPoint:
        return change(moment, plain(field, parameters, moment, **options))

    monkeypatch.setattr(GradientField, "at", at)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (EquilibriumError("residual 1e-3 after 10 iterations"), RunStatus.UNSOLVED),
        (NotFiniteError("The loss must be finite. Got nan."), RunStatus.NOT_FINITE),
        (WellPosednessError("No certificate that the equilibrium exists."), RunStatus.WELL_POSEDNESS_LOST),
    ],
)
def test_an_obstacle_is_met_at_a_millionth(
    monkeypatch: pytest.MonkeyPatch, error: NtkDeqError, status: RunStatus
) -> None:
    def change(moment: float, point: FieldPoint) -> FieldPoint:
        if moment > 0.05:
            raise error
        return point

    broken(monkeypatch, change)
    run = quick(linear_problem(), horizon=1.0)
    assert run.status is status
    assert not run.status.complete
    assert run.end == pytest.approx(0.05, abs=1e-5)
    assert str(error) in run.detail
    assert np.isfinite(flat(run.parameters)).all()
    assert run.snapshots[-1].at == run.end == run["loss"].at[-1].item()


def test_solves_that_fail_before_the_edge_do_not_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(moment: float, point: FieldPoint) -> FieldPoint:
        if moment > 0.0501:
            raise WellPosednessError("No certificate that the equilibrium exists.")
        if moment > 0.05:
            raise EquilibriumError("not found")
        return point

    broken(monkeypatch, change)
    run = quick(linear_problem(), horizon=1.0)
    assert run.status is RunStatus.WELL_POSEDNESS_LOST
    assert "No certificate that the equilibrium exists" in run.detail
    assert "not found" in run.detail


def test_gradients_that_are_no_numbers_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(moment: float, point: FieldPoint) -> FieldPoint:
        if moment > 0.05:
            return replace(point, gradients={name: value * math.nan for name, value in point.gradients.items()})
        return point

    broken(monkeypatch, change)
    run = quick(linear_problem(), horizon=1.0)
    assert run.status is RunStatus.NOT_FINITE
    assert "norm is nan" in run.detail
    assert np.isfinite(flat(run.parameters)).all()


def test_no_step_short_enough_is_underflow_at_a_named_time(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = StepJudge.ratio
    monkeypatch.setattr(
        StepJudge, "ratio", lambda judge, errors, **at: 2.0 if at["time"] > 0.05 else plain(judge, errors, **at)
    )
    run = quick(linear_problem(), horizon=1.0)
    assert run.status is RunStatus.STEP_UNDERFLOW
    assert run.end > 0.05
    assert f"At t = {run.end:.9g}" in run.detail


def test_a_loss_that_grows_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(moment: float, point: FieldPoint) -> FieldPoint:
        return replace(point, gradients={name: -value for name, value in point.gradients.items()})

    broken(monkeypatch, change)
    run = quick(linear_problem(), horizon=10.0)
    assert run.status is RunStatus.DIVERGED
    assert run.loss > 2 * run.snapshots[0].loss
    assert "cannot raise it" in run.detail


def test_where_the_second_integration_ends_before_there_is_no_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = FlowOptions.coarser
    monkeypatch.setattr(FlowOptions, "coarser", lambda options: replace(plain(options), steps=3))
    run = quick(linear_problem(), until=1e-4)
    assert run.status is RunStatus.LOSS_FLOOR
    assert run.error is None
    assert "The error is not estimated" in run.detail


def test_ctrl_c_keeps_what_was_reached() -> None:
    steps: list[float] = []

    def on_step(time: float) -> None:
        steps.append(time)
        if len(steps) == 5:
            signal.raise_signal(signal.SIGINT)

    run = quick(linear_problem(), on_step=on_step)
    assert run.status is RunStatus.INTERRUPTED
    assert 5 <= run.steps <= 6
    assert run.end == run.snapshots[-1].at == steps[-1]
    assert run.error is None


def test_an_error_of_the_callers_own_is_no_obstacle_to_step_around() -> None:
    class DeadlineError(NtkDeqError):
        pass

    def on_step(time: float) -> None:
        raise DeadlineError("too late")

    with pytest.raises(DeadlineError, match="too late"):
        quick(linear_problem(), on_step=on_step)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 0.0}, "`horizon` of gradient-flow must be a number >= 2.23e-308, or None. Got 0.0."),
        ({"horizon": math.inf}, "`horizon`"),
        ({"until": 1.0}, "`until`"),
        ({"until": -1e-3}, "`until`"),
        ({"tolerance": 0.0}, "`tolerance`"),
        ({"tolerance": 1.0}, "`tolerance`"),
        ({"tolerance": 1e-15}, "must be at least 2.22e-14 in float64"),
        ({"steps": -1}, "`steps` of gradient-flow must be an integer >= 0. Got -1."),
        ({"steps": True}, "`steps`"),
        ({"snapshots": 1}, "`snapshots`"),
        ({"method": "rk4"}, "`method` of gradient-flow must be one of dopri5, dopri8, bosh3. Got 'rk4'."),
        ({"horizon": 5e-324}, "`horizon` of gradient-flow must be a number >= 2.23e-308, or None. Got 5e-324."),
        ({"times": torch.tensor([0.0])}, "`times`"),
        ({"times": torch.tensor([[1.0]])}, "`times`"),
        ({"record": ["nothing"]}, "`record`"),
        ({"rtol": 2.0}, "`rtol`"),
    ],
)
def test_options_out_of_range(options: dict, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ArgumentError, match=message):
        quick(linear_problem(), **options)


@pytest.mark.parametrize("horizon", [2.3e-308, 1e-300, 1e300])
def test_times_at_the_ends_of_floats(horizon: float) -> None:
    run = quick(linear_problem(), horizon=horizon)
    assert run.status in (RunStatus.HORIZON, RunStatus.LOSS_FLOOR)
    times = [snapshot.at for snapshot in run.snapshots]
    assert times == sorted(set(times))


def test_an_ill_posed_start_is_an_error() -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    with pytest.raises(NtkDeqError, match="contraction factor"):
        gradient_flow(LinearImplicit(W=2 * one, U=one, b=one[0]), one, one[0])
