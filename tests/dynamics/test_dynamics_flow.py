"""Gradient flow against SciPy, closed forms, invariants and Filippov's solution, and its error estimate."""

import numpy as np
import pytest
import torch
from flow_samples import (
    Problem,
    distance,
    flat,
    generator,
    linear_problem,
    normal,
    quick,
    smooth_relu_problem,
    theorem_problem,
)
from scipy.integrate import solve_ivp

from ntk_deq.dynamics.flow.run import gradient_flow
from ntk_deq.dynamics.record import RunStatus
from ntk_deq.dynamics.recorders import Recorder
from ntk_deq.dynamics.training import resume
from ntk_deq.errors import ArgumentError
from ntk_deq.systems import ImplicitReLU, LinearImplicit


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


@pytest.mark.parametrize(
    ("make", "method"), [(linear_problem, "dopri5"), (smooth_relu_problem, "dopri8"), (linear_problem, "bosh3")]
)
def test_agrees_with_scipy(make, method: str) -> None:  # type: ignore[no-untyped-def]
    problem = make()
    times = [0.3, 0.01, 0.8]
    tolerance = 1e-6 if method == "bosh3" else 1e-9
    run = gradient_flow(
        *problem,
        horizon=1.0,
        until=0.0,
        tolerance=tolerance,
        snapshots=8,
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
    run = gradient_flow(model, one, 3 * one[0], until=1e-12, snapshots=8)
    U, W, b = (run.parameters[name].item() for name in ("U", "W", "b"))
    assert run.status is RunStatus.LOSS_FLOOR
    assert U**2 - b**2 == pytest.approx(0.0, abs=1e-9)
    assert b**2 + (1 - W) ** 2 == pytest.approx(2.0, abs=1e-9)
    assert U * b / (1 - W) == pytest.approx(3.0, abs=1e-5)


def test_a_linear_network_keeps_its_balance() -> None:
    """The prediction is homogeneous of degree one in U and in b, so that fro(U)^2 - norm(b)^2 does not change."""
    model, X, y = linear_problem()
    assert isinstance(model, LinearImplicit)
    run = gradient_flow(model, X, y, until=1e-6, snapshots=8)
    before = (model.U.square().sum() - model.b.square().sum()).item()
    after = (run.parameters["U"].square().sum() - run.parameters["b"].square().sum()).item()
    assert after == pytest.approx(before, abs=1e-8)


def test_a_relu_network_keeps_its_balance_through_kinks() -> None:
    """The prediction is homogeneous of degree one in W and in b, so that fro(W)^2 - norm(b)^2 does not change."""
    model = ImplicitReLU.random(3, 6, generator=generator(7), gamma=0.3)
    X, y = normal(3, 3), normal(3, seed=2)
    run = quick((model, X, y), horizon=2.0)
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
    plain = gradient_flow(model, X, y, horizon=2.0, until=0.0, snapshots=8)
    double = gradient_flow(model, *twice, horizon=1.0, until=0.0, snapshots=8)
    assert plain.error is not None
    assert distance(plain.parameters, double.parameters) <= plain.error
    assert double.loss == pytest.approx(2 * plain.loss, rel=1e-6)
    assert double.snapshots[-1].path_length == pytest.approx(plain.snapshots[-1].path_length, rel=1e-6)


def test_theorem_4_2_on_an_instance_that_meets_its_conditions() -> None:
    model, X, y = theorem_problem(beta=1e5, gamma=0.1)
    assert isinstance(model, ImplicitReLU)
    Z = torch.relu(X @ model.W)
    alpha = float(torch.linalg.svdvals(Z)[-1])
    l1, g0 = float(torch.linalg.matrix_norm(model.W, 2)) + 1, 0.1
    size, r = float(X.norm()), float(y.norm())
    assert alpha**2 >= 4 / (1 - g0) * max(l1, g0 * l1 / (1 - g0), 1) * size * r
    assert alpha**3 >= (1 + (g0 / (1 - g0)) ** 2 * l1**2) * 8 / (1 - g0) ** 2 * size**2 * r
    run = gradient_flow(
        model,
        X,
        y,
        tolerance=1e-6,
        record=[Recorder("sigma_min", lambda seen: torch.linalg.svdvals(seen.point.state)[-1])],
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
    run = gradient_flow(*pinned_problem(), horizon=1.0, snapshots=8)
    assert run.status is RunStatus.HORIZON
    exact = pinned_exact(1.0)
    found = flat(run.parameters)
    assert run.error is not None
    assert abs(found[0]) < 0.05
    assert float(np.linalg.norm(found - exact)) <= run.error
    assert run.error < 0.1
    assert run.settings["relaxed"] > 1
    assert run.loss == pytest.approx(1.0, abs=1e-2)  # the two samples that fight each other
    assert run.steps < 5000


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


class TestResumed:
    """A flow that is taken up again is one run."""

    MODEL = ImplicitReLU.random(d=3, m=8, generator=torch.Generator().manual_seed(0))
    X, Y = torch.eye(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)

    def test_settings_are_those_of_the_whole(self):
        first = gradient_flow(self.MODEL, self.X, self.Y, horizon=0.125, until=1e-12, snapshots=8)
        alone = gradient_flow(
            self.MODEL.with_parameters(first.parameters), self.X, self.Y, horizon=0.125, until=1e-12 * 1e3, snapshots=8
        )
        whole = resume(first, horizon=0.25)
        for name in ("first_evaluations", "sum_of_errors", "error_field"):
            assert whole.settings[name] > first.settings[name]
        assert (
            whole.settings["first_evaluations"]
            == first.settings["first_evaluations"] + alone.settings["first_evaluations"]
        )
        assert whole.settings["largest_error_per_time"] >= first.settings["largest_error_per_time"]
        assert whole.settings["time_scale"] == first.settings["time_scale"]

    def test_snapshots_stay_few(self):
        run = gradient_flow(self.MODEL, self.X, self.Y, horizon=0.1, until=1e-12, snapshots=8, tolerance=1e-6)
        for horizon in (0.2, 0.3, 0.5, 0.9):
            run = resume(run, horizon=horizon)
            at = [snapshot.at for snapshot in run.snapshots]
            assert len(at) <= 9
            assert at == sorted(set(at))
            assert (at[0], at[-1], run.end) == (0.0, horizon, horizon)

    def test_times_asked_for_are_kept_to_the_bit(self):
        times = torch.tensor([0.1, 0.3, 0.7], dtype=torch.float64)
        run = gradient_flow(
            self.MODEL, self.X, self.Y, horizon=0.1, until=1e-12, snapshots=4, times=times, tolerance=1e-6
        )
        whole = resume(run, horizon=0.9)
        assert {0.1, 0.3, 0.7, 0.9} <= {snapshot.at for snapshot in whole.snapshots}


def test_the_estimate_takes_in_a_start_and_data_near_by() -> None:
    g = torch.Generator().manual_seed(0)
    model = ImplicitReLU.random(2, 3, generator=g)
    X, y = (torch.randn(*shape, generator=g, dtype=torch.float64) for shape in ((3, 2), (3,)))
    plain = gradient_flow(model, X, y, horizon=0.2, snapshots=8)
    near = (model.with_parameters({"b": model.b + 1e-5}), X + 1e-5, y - 1e-5)
    wide = gradient_flow(model, X, y, horizon=0.2, nearby=near, snapshots=8)
    other = gradient_flow(*near, horizon=0.2, snapshots=8)
    apart = sum(float((a - other.parameters[name]).norm()) ** 2 for name, a in plain.parameters.items()) ** 0.5
    assert torch.equal(wide.parameters["W"], plain.parameters["W"])
    assert plain.error is not None
    assert wide.error is not None
    assert plain.error < 1e-6 < 0.99 * apart <= wide.error
    with pytest.raises(ArgumentError, match="`y`"):
        gradient_flow(model, X, y, horizon=1.0, nearby=(model, X, y[:1]))
