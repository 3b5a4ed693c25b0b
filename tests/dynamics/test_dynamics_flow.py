"""Gradient flow against SciPy, closed forms and invariants; its error estimate; and every way to end."""

import math
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from ntk_deq.dynamics.field import FieldPoint, GradientField, NotFiniteError
from ntk_deq.dynamics.flow import gradient_flow
from ntk_deq.dynamics.flow_options import FlowOptions
from ntk_deq.dynamics.kinks import StepJudge
from ntk_deq.dynamics.record import TrainingRun
from ntk_deq.dynamics.recorders import Recorder, every
from ntk_deq.dynamics.status import RunStatus
from ntk_deq.equilibrium.solve import predict
from ntk_deq.errors import ArgumentError, EquilibriumError, NtkDeqError
from ntk_deq.models import ImplicitReLU, LinearImplicit

Problem = tuple[ImplicitReLU | LinearImplicit, Tensor, Tensor]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def linear_problem() -> Problem:
    return LinearImplicit.random(3, 3, generator=generator(), norm_W=0.3), normal(2, 3), normal(2, seed=2)


def smooth_relu_problem() -> Problem:
    """A ReLU network all of whose units are on, far from every kink."""
    X = normal(2, 3).abs() + 0.5
    model = ImplicitReLU(
        W=normal(3, 4, seed=3).abs() + 0.5, A=normal(4, 4, seed=4).abs() / 20, b=normal(4, seed=5) / 2, gamma=0.5
    )
    return model, X, predict(model, X) + 0.3 * normal(2, seed=6)


def quick(problem: Problem, **options: Any) -> TrainingRun:
    return gradient_flow(*problem, **{"until": 1e-4, "tolerance": 1e-6, **options})


def theorem_problem(beta: float, gamma: float, N: int = 4, m: int = 16, d: int = 8) -> Problem:
    """The instance of Theorem 4.2: rows of X orthonormal, y = +-1, W(0) = beta N(0, 1/m), A(0) = 0, b(0) = 0."""
    draw = generator()
    X = torch.linalg.qr(torch.randn(d, N, generator=draw, dtype=torch.float64))[0].T.contiguous()
    y = torch.sign(torch.randn(N, generator=draw, dtype=torch.float64))
    W = beta * torch.randn(d, m, generator=draw, dtype=torch.float64) / m**0.5
    zero = torch.zeros(m, m, dtype=torch.float64)
    return ImplicitReLU(W=W, A=zero, b=zero[0], gamma=gamma), X, y


def flat(parameters: dict[str, Tensor]) -> np.ndarray:
    return torch.cat([value.reshape(-1) for value in parameters.values()]).numpy()


def distance(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    return float(np.linalg.norm(flat(first) - flat(second)))


def scipy_flow(problem: Problem, times: list[float]) -> np.ndarray:
    """Integrate with SciPy's DOP853 and gradients in closed form, for networks that are linear along the whole flow.

    With S the source weights (d x m), P the implicit ones and M = (I - c P)^-1: Z = X S M, yhat = Z b, V = r b'M'.
    """
    model, X, y = problem
    relu = isinstance(model, ImplicitReLU)
    c = float(model.gamma) if isinstance(model, ImplicitReLU) else 1.0
    names = ("A", "W", "b") if relu else ("W", "U", "b")
    start = {name: value.numpy() for name, value in model.parameters().items()}
    P, S, b = (start[name] if relu or name == "b" else start[name].T for name in names)
    inputs, targets = X.numpy(), y.numpy()
    cuts, shapes = np.cumsum([P.size, S.size]), (P.shape, S.shape, b.shape)

    def parts(theta: np.ndarray) -> list[np.ndarray]:
        return [part.reshape(shape) for part, shape in zip(np.split(theta, cuts), shapes, strict=True)]

    def slope(t: float, theta: np.ndarray) -> np.ndarray:
        P, S, b = parts(theta)
        M = np.linalg.inv(np.eye(len(b)) - c * P)
        Z = inputs @ S @ M
        r = Z @ b - targets
        V = np.outer(r, b) @ M.T
        return -np.concatenate([(c * Z.T @ V).ravel(), (inputs.T @ V).ravel(), Z.T @ r])

    theta = np.concatenate([P.ravel(), S.ravel(), b])
    found = solve_ivp(slope, (0, times[-1]), theta, "DOP853", times, rtol=1e-13, atol=1e-13)
    rows = []
    for column in found.y.T:
        values = dict(zip(names, parts(column), strict=True))
        rows.append(np.concatenate([(values[n] if relu or n == "b" else values[n].T).ravel() for n in start]))
    return np.stack(rows)


@pytest.mark.parametrize("make", [linear_problem, smooth_relu_problem])
@pytest.mark.parametrize("method", ["dopri5", "dopri8", "bosh3"])
def test_agrees_with_scipy(make, method: str) -> None:  # type: ignore[no-untyped-def]
    problem = make()
    times = [0.3, 0.01, 1.5]
    tolerance = 1e-6 if method == "bosh3" else 1e-9
    run = gradient_flow(
        *problem,
        horizon=2.0,
        until=0.0,
        tolerance=tolerance,
        times=torch.tensor(times, dtype=torch.float64),
        method=method,
    )
    assert run.status is RunStatus.HORIZON
    exact = dict(zip(sorted(times), scipy_flow(problem, sorted(times)), strict=True))
    found = {snapshot.at: snapshot for snapshot in run.snapshots}
    assert run.error is not None
    for at, theta in exact.items():
        apart = float(np.linalg.norm(flat(found[at].parameters) - theta))
        assert apart <= run.error
        assert apart <= 10 * tolerance * run.snapshots[-1].path_length
    # An honest estimate, and not a wild one.
    assert run.error <= 1e3 * tolerance * run.snapshots[-1].path_length


def test_a_single_weight_in_closed_form() -> None:
    """yhat = U b/(1 - W), so that b dyhat/db = U dyhat/dU = (1 - W) dyhat/dW = yhat: two quantities do not change."""
    one = torch.ones(1, 1, dtype=torch.float64)
    model = LinearImplicit(W=0 * one, U=one, b=one[0])
    run = gradient_flow(model, one, 3 * one[0], until=1e-12)
    U, W, b = (run.parameters[name].item() for name in ("U", "W", "b"))
    assert run.status is RunStatus.LOSS_FLOOR
    assert U**2 - b**2 == pytest.approx(0.0, abs=1e-9)
    assert b**2 + (1 - W) ** 2 == pytest.approx(2.0, abs=1e-9)
    assert U * b / (1 - W) == pytest.approx(3.0, abs=1e-5)


def test_a_linear_network_keeps_its_balance() -> None:
    """The prediction is homogeneous of degree one in U and in b, so that fro(U)^2 - norm(b)^2 does not change."""
    model, X, y = linear_problem()
    assert isinstance(model, LinearImplicit)
    run = gradient_flow(model, X, y, until=1e-6)
    before = (model.U.square().sum() - model.b.square().sum()).item()
    after = (run.parameters["U"].square().sum() - run.parameters["b"].square().sum()).item()
    assert after == pytest.approx(before, abs=1e-8)


def test_a_relu_network_keeps_its_balance_through_kinks() -> None:
    """The prediction is homogeneous of degree one in W and in b, so that fro(W)^2 - norm(b)^2 does not change."""
    model = ImplicitReLU.random(3, 8, generator=generator(7), gamma=0.4)
    X, y = normal(4, 3), normal(4, seed=2)
    run = quick((model, X, y))
    assert run.error is not None
    before = (model.W.square().sum() - model.b.square().sum()).item()
    after = (run.parameters["W"].square().sum() - run.parameters["b"].square().sum()).item()
    size = sum(float(value.norm()) for value in run.parameters.values())
    assert abs(after - before) <= 2 * size * run.error


def test_the_loss_falls_by_the_integral_of_the_gradients_square() -> None:
    run = quick(linear_problem(), tolerance=1e-8, estimate_error=False)
    loss, squares = run["loss"], run["gradient_norm"].values.square()
    assert (loss.values[1:] < loss.values[:-1]).all()
    # The trapezoidal rule over the recorded steps errs by their square.
    integral = torch.trapezoid(squares, loss.at)
    assert float(integral) == pytest.approx(float(loss.values[0] - loss.values[-1]), rel=1e-2)


def test_paths_are_as_long_as_the_speed_says_and_no_shorter_than_the_way() -> None:
    model, X, y = linear_problem()
    run = quick((model, X, y), tolerance=1e-8, record=["path_length", "displacement"])
    last = run.snapshots[-1]
    integral = torch.trapezoid(run["gradient_norm"].values, run["gradient_norm"].at)
    assert last.path_length == pytest.approx(float(integral), rel=1e-2)
    for name, value in model.parameters().items():
        assert last.path[name] >= float((run.parameters[name] - value).norm()) * (1 - 1e-12)
        assert last.path[name] <= last.path_length <= sum(last.path.values())
    assert run["path_length"].values[-1].item() == last.path_length
    assert run["displacement"].values.shape == (run.steps + 1, 3)


def test_a_smaller_tolerance_comes_closer() -> None:
    problem, times = linear_problem(), [1.0]
    exact = scipy_flow(problem, times)[0]
    errors = []
    for tolerance in (1e-4, 1e-6, 1e-8):
        run = gradient_flow(*problem, horizon=1.0, until=0.0, tolerance=tolerance, snapshots=2)
        apart = float(np.linalg.norm(flat(run.parameters) - exact))
        assert run.error is not None
        assert apart <= run.error
        errors.append(apart)
    assert errors[0] > 10 * errors[1] > 100 * errors[2]


def test_time_scales_with_the_loss() -> None:
    """Every sample twice doubles the loss: the same path at twice the speed."""
    model, X, y = linear_problem()
    twice = torch.cat([X, X]), torch.cat([y, y])
    plain = gradient_flow(model, X, y, horizon=2.0, until=0.0)
    double = gradient_flow(model, *twice, horizon=1.0, until=0.0)
    assert plain.error is not None
    assert distance(plain.parameters, double.parameters) <= plain.error
    assert double.loss == pytest.approx(2 * plain.loss, rel=1e-6)
    assert double.snapshots[-1].path_length == pytest.approx(plain.snapshots[-1].path_length, rel=1e-6)


def test_theorem_4_2_on_an_instance_that_meets_its_conditions() -> None:
    model, X, y = theorem_problem(beta=3000.0, gamma=0.1)
    assert isinstance(model, ImplicitReLU)
    Z = torch.relu(X @ model.W)
    alpha = float(torch.linalg.svdvals(Z)[-1])
    l1, g0 = float(torch.linalg.matrix_norm(model.W, 2)) + 1, 0.1
    size, r = float(X.norm()), float(y.norm())
    assert alpha**2 >= 4 / (1 - g0) * max(l1, g0 * l1 / (1 - g0), 1) * size * r
    assert alpha**3 >= (1 + (g0 / (1 - g0)) ** 2 * l1**2) * 8 / (1 - g0) ** 2 * size**2 * r
    run = gradient_flow(
        model, X, y, record=[Recorder("sigma_min", lambda seen: torch.linalg.svdvals(seen.point.state)[-1])]
    )
    assert run.status is RunStatus.LOSS_FLOOR
    assert 1e-11 < run.loss / run.snapshots[0].loss <= 1e-10
    assert run.error is not None
    assert run.error < 1e-3 * run.snapshots[-1].path_length
    loss = run["loss"]
    assert (loss.values <= torch.exp(-(alpha**2) / 2 * loss.at) * loss.values[0] * (1 + 1e-12)).all()
    assert (run["sigma_min"].values >= alpha / 2).all()
    for name, bound in zip("WA", (l1, 1.0), strict=True):
        assert float(torch.linalg.matrix_norm(run.parameters[name], 2)) <= bound


def pinned_problem() -> Problem:
    """One unit, two samples that pin its first weight at zero from both sides, and a third that goes on learning."""
    X = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    y = torch.tensor([-1.0, -1.0, 2.0], dtype=torch.float64)
    model = ImplicitReLU(
        W=torch.tensor([[0.3], [0.8]]).double(),
        A=torch.tensor([[0.2]]).double(),
        b=torch.tensor([0.7]).double(),
        gamma=0.5,
    )
    return model, X, y


def pinned_exact(horizon: float) -> np.ndarray:
    """Filippov's solution: the smooth flow until w1 = 0, and from then on the flow of the others with w1 = 0."""

    def slope(t: float, p: np.ndarray, free: bool) -> list[float]:
        w1, w2, a, b = p
        q = 1 / (1 - 0.5 * a)
        z1, z3 = (w1 * q if free else 0.0), w2 * q
        r1, r3 = z1 * b + 1, z3 * b - 2
        da = -0.5 * b * q * (r1 * z1 + r3 * z3)
        return [-r1 * b * q if free else 0.0, -r3 * b * q, da, -(r1 * z1 + r3 * z3)]

    def hit(t: float, p: np.ndarray, free: bool) -> float:
        return float(p[0])

    hit.terminal = True  # type: ignore[attr-defined]
    accuracy = {"rtol": 1e-12, "atol": 1e-12}
    first = solve_ivp(slope, (0, horizon), [0.3, 0.8, 0.2, 0.7], "DOP853", events=hit, args=(True,), **accuracy)
    assert first.status == 1
    start = [0.0, *first.y[1:, -1]]
    return solve_ivp(slope, (first.t[-1], horizon), start, "DOP853", args=(False,), **accuracy).y[:, -1]


def test_a_sliding_mode_is_followed_and_its_error_known() -> None:
    run = gradient_flow(*pinned_problem(), horizon=4.0)
    assert run.status is RunStatus.HORIZON
    exact = pinned_exact(4.0)
    found = flat(run.parameters)
    assert run.error is not None
    assert abs(found[0]) < 0.05
    assert float(np.linalg.norm(found - exact)) <= run.error
    assert run.error < 0.1
    assert run.settings["relaxed"] > 1
    assert run.loss == pytest.approx(1.0, abs=1e-2)  # the two samples that fight each other
    assert run.steps < 5000


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
        gradient_flow(single, X.float(), y.float())


def test_the_steps_may_run_out() -> None:
    run = quick(linear_problem(), steps=7)
    assert (run.status, run.steps) == (RunStatus.STEPS, 7)
    assert run.end == run.snapshots[-1].at > 0
    assert run.error is not None
    none = quick(linear_problem(), steps=0)
    assert (none.status, none.steps, none.end, len(none.snapshots), none.error) == (RunStatus.STEPS, 0, 0.0, 1, 0.0)


def test_no_loss_at_the_start_is_the_floor() -> None:
    model, X, y = linear_problem()
    run = gradient_flow(replace(model, b=0 * model.parameters()["b"]), X, 0 * y)
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
    run = gradient_flow(*theorem_problem(beta=20.0, gamma=0.5), until=1e-3, tolerance=1e-6)
    assert run.status is RunStatus.LOSS_FLOOR
    assert float(run.parameters["A"].norm()) > 0


def test_well_posedness_is_lost_at_a_named_time() -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    problem = LinearImplicit(W=-0.9 * one, U=one, b=one[0]), one, -5 * one[0]  # W falls, and W = -1 is the edge
    run = quick(problem, tolerance=1e-3, rtol=1e-8)
    # A solve needs about 25/(1 - q) iterations: its budget may be spent just before q reaches one.
    assert run.status in (RunStatus.WELL_POSEDNESS_LOST, RunStatus.UNSOLVED)
    assert not run.status.complete
    assert run.parameters["W"].item() == pytest.approx(-1.0, abs=1e-2)
    assert run.detail.startswith("Beyond t = ")
    assert run.snapshots[-1].at == run.end == run["loss"].at[-1].item() > 0
    assert f"Beyond t = {run.end:.9g}" in run.detail


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
        ({"horizon": 0.0}, "`horizon` of gradient-flow must be a number > 0, or None. Got 0.0."),
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
        ({"times": torch.tensor([0.0])}, "`times`"),
        ({"times": torch.tensor([[1.0]])}, "`times`"),
        ({"record": ["nothing"]}, "`record`"),
        ({"rtol": 2.0}, "`rtol`"),
    ],
)
def test_options_out_of_range(options: dict, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(ArgumentError, match=message):
        quick(linear_problem(), **options)


def test_an_ill_posed_start_is_an_error() -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    with pytest.raises(NtkDeqError, match="contraction factor"):
        gradient_flow(LinearImplicit(W=2 * one, U=one, b=one[0]), one, one[0])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_same_flow_on_a_gpu() -> None:
    model, X, y = linear_problem()
    other = LinearImplicit(**{name: value.cuda() for name, value in model.parameters().items()})
    plain = gradient_flow(model, X, y, until=1e-4)
    run = gradient_flow(other, X.cuda(), y.cuda(), horizon=plain.end, until=0.0)
    assert run.parameters["U"].is_cuda
    assert plain.error is not None
    assert distance({k: v.cpu() for k, v in run.parameters.items()}, plain.parameters) <= 2 * plain.error
