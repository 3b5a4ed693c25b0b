"""Gradient descent: the iterates, and every way in which a run ends."""

from __future__ import annotations

import itertools
import math
import signal
from functools import cache

import pytest
import torch
from dynamics_samples import copied, drawn, moved_along

from ntk_deq.dynamics import RunStatus, WellPosednessError, gradient_descent, resume, train
from ntk_deq.dynamics.descent import Descent
from ntk_deq.dynamics.proven.descent import certified_descent
from ntk_deq.dynamics.series import SnapshotKeeper
from ntk_deq.errors import ArgumentError, EquilibriumError
from ntk_deq.systems import ImplicitReLU, LinearImplicit, loss_gradients, predict

ONE = torch.ones(1, 1, dtype=torch.float64)


def scalar(w, u=1.0, b=1.0):
    """The linear model with m = d = 1: yhat = b u x/(1 - w)."""
    return LinearImplicit(W=w * ONE, U=u * ONE, b=b * ONE[0])


def flat(gamma=1e-9, W=1.0):
    """A ReLU model with m = d = 1 whose layer does next to nothing: yhat = W b x while W x > 0."""
    return ImplicitReLU(W=W * ONE, A=ONE.clone(), b=ONE[0].clone(), gamma=gamma)


def distance(one, two):
    return math.sqrt(sum(float((one[name] - two[name]).square().sum()) for name in one))


class TestIterates:
    def test_closed_form(self):
        w, u, b, x, y, eta = 0.5, 1.0, 1.0, 1.0, 1.0, 0.01
        run = gradient_descent(scalar(w), ONE, y * ONE[0], step=eta, steps=50)
        for _ in range(50):
            r, gap = b * u * x / (1 - w) - y, 1 / (1 - w)
            w, u, b = w - eta * r * b * u * x * gap**2, u - eta * r * b * x * gap, b - eta * r * u * x * gap
        end = run.parameters
        assert [end[name].item() for name in "WUb"] == pytest.approx([w, u, b], rel=1e-9)
        assert run.loss == pytest.approx((b * u * x / (1 - w) - y) ** 2 / 2, rel=1e-8)

    def test_plain_loop(self, problem):
        model, X, y = problem
        run = gradient_descent(model, X, y, step=0.01, steps=30, snapshots=2)
        parameters, length, lengths = copied(model), 0.0, dict.fromkeys(model.parameters(), 0.0)
        for _ in range(30):
            gradients = loss_gradients(model, X, y, parameters=parameters)
            norms = {name: float(value.norm()) for name, value in gradients.items()}
            lengths = {name: lengths[name] + 0.01 * norm for name, norm in norms.items()}
            length += 0.01 * math.hypot(*norms.values())
            parameters = moved_along(parameters, gradients, 0.01)
        end = run.snapshots[-1]
        assert all((end.parameters[n] - parameters[n]).norm() < 1e-9 * parameters[n].norm() for n in parameters)
        assert end.loss == pytest.approx(float((predict(model, X, parameters) - y).square().sum() / 2), rel=1e-9)
        assert end.path == pytest.approx(lengths, rel=1e-8)
        assert end.path_length == pytest.approx(length, rel=1e-8)
        assert [snapshot.at for snapshot in run.snapshots] == [0.0, 30.0]

    def test_model_is_left_as_it_is(self, problem):
        model, X, y = problem
        before = copied(model)
        run = gradient_descent(model, X, y, step=0.01, steps=5)
        assert all(torch.equal(value, before[name]) for name, value in model.parameters().items())
        assert all(torch.equal(value, before[name]) for name, value in run.snapshots[0].parameters.items())

    def test_error_covers_a_loose_tolerance(self, problem):
        model, X, y = problem
        loose, tight = (gradient_descent(model, X, y, step=0.01, steps=100, rtol=rtol) for rtol in (1e-5, 1e-13))
        apart = distance(loose.parameters, tight.parameters)
        assert 1e-3 * loose.error < apart < loose.error
        assert tight.error < 1e-10

    def test_float32(self):
        model, X, y = drawn("implicit-relu", dtype=torch.float32)
        run = gradient_descent(model, X, y, step=0.01, steps=20)
        assert run.parameters["A"].dtype == torch.float32
        assert run.settings["dtype"] == "float32"
        assert run.loss < run.snapshots[0].loss


class TestRecord:
    def test_numbers(self, relu):
        seen = []
        run = gradient_descent(*relu, step=0.01, steps=40, on_step=lambda k, point: seen.append((k, point.loss_value)))
        assert [k for k, _ in seen] == list(range(41))
        assert run["loss"].at.tolist() == list(range(41))
        assert run["loss"].values.tolist() == [loss for _, loss in seen]
        assert (run.method, run.step, run.steps, run.end, run.evaluations) == ("gradient-descent", 0.01, 40, 40.0, 41)
        assert run.forward_iterations > 1
        assert run.settings["model"] == "implicit-relu"
        assert run.settings["sizes"] == {"N": 4, "d": 5, "m": 7}
        assert "steps: At step 40" in repr(run)
        assert "<table>" in run._repr_html_()

    def test_snapshots_are_bounded_and_spaced_by_a_ratio(self, relu):
        run = gradient_descent(*relu, step=1e-3, steps=500, snapshots=16)
        at = [snapshot.at for snapshot in run.snapshots]
        assert at[0] == 0.0
        assert at[-1] == 500.0
        assert 8 <= len(at) <= 16
        assert max(b / a for a, b in itertools.pairwise(at[2:-1])) < 4

    @pytest.mark.parametrize("limit", [2, 3, 5])
    def test_few_snapshots(self, relu, limit):
        run = gradient_descent(*relu, step=1e-3, steps=50, snapshots=limit)
        assert 2 <= len(run.snapshots) <= limit
        assert (run.snapshots[0].at, run.snapshots[-1].at) == (0.0, 50.0)

    def test_memory_does_not_grow(self):
        keeper = SnapshotKeeper(10)
        for k in range(100_000):
            if keeper.wants(k):
                keeper.add(_snapshot(k))
            assert len(keeper.snapshots) < 10

    def test_slice(self, relu):
        run = gradient_descent(*relu, step=0.01, steps=40)
        part = run.slice(10, 20)
        assert part["loss"].at.tolist() == list(range(10, 21))
        assert all(10 <= snapshot.at <= 20 for snapshot in part.snapshots)
        with pytest.raises(ArgumentError, match="must hold a snapshot"):
            run.slice(0.5, 0.6)
        with pytest.raises(ArgumentError, match="cannot be resumed"):
            resume(part)

    def test_unknown_series(self, relu):
        run = gradient_descent(*relu, step=0.01, steps=1)
        with pytest.raises(ArgumentError, match="Did you mean 'loss'"):
            run["los"]

    def test_no_steps(self, relu):
        run = gradient_descent(*relu, step=0.01, steps=0)
        assert (run.status, run.steps, len(run.snapshots)) == (RunStatus.STEPS, 0, 1)


def _snapshot(k):
    from ntk_deq.dynamics import Snapshot

    return Snapshot(float(k), {}, 0.0, {}, 0.0)


class TestEnds:
    def test_loss_floor(self, problem):
        model, X, y = problem
        run = gradient_descent(model, X, 0.3 * y, step=0.03, until=1e-4)
        assert run.status is RunStatus.LOSS_FLOOR
        assert run.status.complete
        before = run["loss"].values[-2].item()
        assert run.loss <= 1e-4 * run.snapshots[0].loss < before

    def test_no_loss_at_all(self):
        model = LinearImplicit(W=0 * ONE, U=ONE, b=ONE[0])
        run = gradient_descent(model, ONE, ONE[0], step=0.1)
        assert (run.status, run.steps) == (RunStatus.LOSS_FLOOR, 0)

    def test_well_posedness_is_lost_on_the_way(self):
        # W grows while the prediction is far below the target, and jumps past one.
        run = gradient_descent(scalar(0.5), ONE, 100 * ONE[0], step=5e-4, steps=100)
        assert run.status is RunStatus.WELL_POSEDNESS_LOST
        assert run.steps > 0
        assert (
            f"At step {run.steps + 1}: No certificate that the equilibrium of linear-implicit exists: the bound of"
            in run.detail
        )
        assert abs(run.parameters["W"].item()) < 1
        assert run["loss"].at[-1] == run.steps
        assert math.isfinite(run.loss)

    def test_not_well_posed_at_the_start(self):
        with pytest.raises(WellPosednessError):
            gradient_descent(scalar(1.5), ONE, ONE[0], step=0.1)

    def test_divergence(self):
        # Next to the minimum, and a step of five over the largest curvature.
        run = gradient_descent(flat(W=10.0), ONE, (10 + 1e-4) * ONE[0], step=0.05, steps=100)
        assert run.status is RunStatus.DIVERGED
        assert run.loss > 1e6 * run.snapshots[0].loss

    def test_not_finite(self):
        one = ONE.float()
        model = ImplicitReLU(W=one, A=one.clone(), b=one[0].clone(), gamma=1e-30)
        run = gradient_descent(model, one, 2 * one[0], step=1e20, steps=100)
        assert run.status is RunStatus.NOT_FINITE
        assert (run.steps, run.end) == (0, 0.0)
        assert torch.isfinite(run.parameters["W"]).all()

    @pytest.mark.parametrize("step", [1e-30, 1e-300])
    def test_step_too_small_for_the_precision(self, relu, step):
        run = gradient_descent(*relu, step=step)
        assert (run.status, run.steps) == (RunStatus.STEP_UNDERFLOW, 0)
        assert not run.status.complete

    def test_stationary_point_above_the_floor(self):
        run = gradient_descent(flat(W=-1.0), ONE, 2 * ONE[0], step=0.1)  # the unit is off, and no gradient flows
        assert (run.status, run.steps) == (RunStatus.STATIONARY, 0)
        assert "loss 2" in run.detail

    def test_minimum_above_the_floor(self):
        # No weight can change yhat at x = 0, and at x = 1 there is no residual.
        X, y = torch.tensor([[1.0], [0.0]], dtype=torch.float64), torch.ones(2, dtype=torch.float64)
        run = gradient_descent(scalar(0.0), X, y, step=0.1)
        assert (run.status, run.steps, run.loss) == (RunStatus.STATIONARY, 0, 0.5)
        assert "a minimum above the loss floor" in run.detail
        assert "other weights" not in run.detail

    def test_stationary_point_on_the_way(self):
        # The step turns the unit off at once, and k = 1 is the first place without a gradient.
        run = gradient_descent(flat(W=1.0), ONE, -2 * ONE[0], step=3.0, steps=100)
        assert (run.status, run.steps) == (RunStatus.STATIONARY, 1)
        assert not run.status.complete

    def test_unsolved_on_the_way(self):
        # The state grows from nothing, and with it the iterations that it takes.
        run = gradient_descent(scalar(0.01), ONE, 8 * ONE[0], step=3e-3, steps=200, max_steps=14, extrapolation=0)
        assert run.status is RunStatus.UNSOLVED
        assert run.steps > 0
        assert "max_steps" in run.detail

    def test_unsolved_at_the_start(self, relu):
        with pytest.raises(EquilibriumError):
            gradient_descent(*relu, step=0.1, max_steps=3)

    def test_interruption_keeps_what_was_reached(self, problem):
        model, X, y = problem

        def stop(k, point):
            if k == 7:
                raise KeyboardInterrupt

        run = gradient_descent(model, X, y, step=0.01, steps=20, on_step=stop)
        assert (run.status, run.steps) == (RunStatus.INTERRUPTED, 7)
        whole = gradient_descent(model, X, y, step=0.01, steps=20)
        _same(resume(run), whole)

    def test_ctrl_c(self, relu):
        def stop(k, point):
            if k == 3:
                signal.raise_signal(signal.SIGINT)

        run = gradient_descent(*relu, step=0.01, steps=20, on_step=stop)
        assert (run.status, run.steps) == (RunStatus.INTERRUPTED, 3)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_impatient_ctrl_c(self, relu):
        def stop(k, point):
            if k == 3:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)

        run = gradient_descent(*relu, step=0.01, steps=20, on_step=stop)
        assert (run.status, run.steps) == (RunStatus.INTERRUPTED, 3)

    def test_an_error_of_a_callback_is_its_own(self, relu):
        def fail(k, point):
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            gradient_descent(*relu, step=0.01, on_step=fail)


class TestGoingOn:
    def test_more_steps(self, problem):
        model, X, y = problem
        record = ["norm", "displacement", "sigma_min", "path_length", "iterations"]
        whole = gradient_descent(model, X, y, step=0.02, steps=60, record=record)
        part = gradient_descent(model, X, y, step=0.02, steps=23, record=record)
        _same(resume(part, steps=60), whole)
        assert part.steps == 23  # and the part is as it was
        _same(resume(resume(part, steps=41), steps=60), whole)

    def test_what_becomes_of_the_callers_tensors_does_not_matter(self, problem):
        model, X, y = problem
        options = {"step": 0.02, "record": ["displacement"]}
        whole = gradient_descent(model, X, y, steps=20, **options)
        part = gradient_descent(model, X, y, steps=10, **options)
        for name, value in model.parameters().items():
            value.copy_(part.parameters[name])
        for value in (X, y, getattr(model, "gamma", y)):
            value.mul_(0.5)
        _same(resume(part, steps=20), whole)

    def test_a_lower_floor(self, relu):
        part = gradient_descent(*relu, step=0.05, until=1e-2)
        _same(resume(part, until=1e-4), gradient_descent(*relu, step=0.05, until=1e-4))

    def test_nothing_left_to_do(self, relu):
        run = gradient_descent(*relu, step=0.05, until=1e-2)
        assert resume(run) is run

    def test_long_series_go_on(self, relu, monkeypatch):
        from ntk_deq.dynamics import series as recording

        monkeypatch.setattr(recording.Recording.__init__, "__defaults__", ((), 16))
        whole = gradient_descent(*relu, step=1e-3, steps=200, record=["norm"])
        assert 8 <= len(whole["loss"].at) <= 17
        assert whole["loss"].at[-1] == 200
        part = gradient_descent(*relu, step=1e-3, steps=77, record=["norm"])
        _same(resume(part, steps=200), whole)

    def test_a_run_that_failed_cannot_go_on(self):
        run = gradient_descent(scalar(0.5), ONE, 100 * ONE[0], step=5e-4, steps=100)
        with pytest.raises(ArgumentError, match="'well-posedness-lost'"):
            resume(run)

    def test_other_options_are_the_runs_own(self, relu):
        run = resume(gradient_descent(*relu, step=0.02, steps=3, rtol=1e-8), steps=5)
        assert (run.step, run.settings["rtol"], run.settings["steps"]) == (0.02, 1e-8, 5)


def _same(one, two):
    """Equal bit by bit."""
    assert (one.status, one.steps, one.evaluations) == (two.status, two.steps, two.evaluations)
    assert (one.forward_iterations, one.adjoint_iterations) == (two.forward_iterations, two.adjoint_iterations)
    assert one.error == two.error
    assert [s.at for s in one.snapshots] == [s.at for s in two.snapshots]
    for a, b in zip(one.snapshots, two.snapshots, strict=True):
        assert (a.loss, a.path, a.path_length) == (b.loss, b.path, b.path_length)
        assert all(torch.equal(a.parameters[name], b.parameters[name]) for name in b.parameters)
    assert one.series.keys() == two.series.keys()
    for name, series in two.series.items():
        assert torch.equal(one[name].at, series.at)
        assert torch.equal(one[name].values, series.values)


class TestArguments:
    @pytest.mark.parametrize(
        "step", [0, 0.0, -0.1, math.nan, math.inf, pytest.param(10**400, id="huge"), "0.1", True, None]
    )
    def test_step(self, relu, step):
        with pytest.raises(ArgumentError, match=r"`step` of gradient-descent must be a number > 0\. Got "):
            gradient_descent(*relu, step=step)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("steps", -1),
            ("steps", 1.5),
            ("until", -1.0),
            ("until", 1.0),
            ("until", math.nan),
            ("snapshots", 1),
            ("snapshots", 2.5),
            ("rtol", 0.0),
            ("extrapolation", 9),
            ("keep", 3),
            ("keep", "12"),
            ("on_step", 5),
            ("model", None),
            ("model", "implicit-relu"),
            ("model", ImplicitReLU),
            ("X", torch.eye(5, dtype=torch.float64).to_sparse()),
            ("y", torch.ones(4, dtype=torch.float64).to_sparse()),
            ("X", [[1.0]]),
        ],
    )
    def test_others(self, relu, name, value):
        model, X, y = relu
        with pytest.raises(ArgumentError, match=f"`{name}` of"):
            gradient_descent(**{"model": model, "X": X, "y": y, "step": 0.1, name: value})

    def test_a_large_step_for_the_precision(self):
        run = gradient_descent(flat(W=-1.0), ONE, 2 * ONE[0], step=10**30)
        assert (run.status, run.step) == (RunStatus.STATIONARY, 1e30)
        problem = drawn("implicit-relu", dtype=torch.float32)
        with pytest.raises(
            ArgumentError, match=r"`step` of gradient-descent must be at most 1\.7e\+38 in float32\. Got 1e"
        ):
            gradient_descent(*problem, step=1e39)
        assert gradient_descent(*problem, step=1e38).status is RunStatus.WELL_POSEDNESS_LOST

    @pytest.mark.parametrize("value", ["x", None, -1, math.nan, True])
    def test_checkpoint_every(self, relu, value, tmp_path):
        path = tmp_path / "run.npz"
        with pytest.raises(ArgumentError, match=r"`checkpoint_every` must be a number of seconds >= 0\. Got "):
            gradient_descent(*relu, step=0.1, checkpoint=path, checkpoint_every=value)
        assert not path.exists()
        run = gradient_descent(*relu, step=0.01, steps=2)
        with pytest.raises(ArgumentError, match="`checkpoint_every` must be"):
            resume(run, steps=4, checkpoint_every=value)

    @pytest.mark.parametrize(
        ("name", "value"), [("record", 5), ("record", [5]), ("model", 5), ("on_step", 5), ("steps", "x")]
    )
    def test_a_bad_argument_is_no_damage_to_the_record(self, relu, name, value):
        run = gradient_descent(*relu, step=0.01, steps=2)
        with pytest.raises(ArgumentError, match=f"`{name}`"):
            resume(run, **{"steps": 4, name: value})

    def test_train(self, relu):
        with pytest.raises(ArgumentError, match="Did you mean 'gradient-descent'"):
            train(*relu, method="gradient-decent", step=0.1)
        with pytest.raises(ArgumentError, match="`step` of gradient-descent must be given"):
            train(*relu)
        with pytest.raises(ArgumentError, match=r"`horizon` is no option of gradient-descent\. Got 3"):
            train(*relu, step=0.1, horizon=3.0)
        with pytest.raises(ArgumentError, match="`step` is no option of gradient-flow"):
            train(*relu, method="gradient-flow", step=0.1)
        with pytest.raises(TypeError):
            train(*relu, step=0.1, stepp=3)

    def test_train_descends_with_a_bar(self, relu, capsys):
        run = train(*relu, step=0.02, steps=5, record=["norm"], progress=True)
        assert run.status is RunStatus.STEPS
        assert run["norm"].values.shape == (6, 3, 2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
def test_device():
    model, X, y = drawn("implicit-relu", N=16, m=64)
    on_device = ImplicitReLU(**{n: v.cuda() for n, v in model.parameters().items()}, gamma=model.gamma.cuda())
    there = gradient_descent(on_device, X.cuda(), y.cuda(), step=0.01, steps=50, record=["norm"])
    here = gradient_descent(model, X, y, step=0.01, steps=50, record=["norm"])
    assert there.parameters["A"].is_cuda
    assert distance({n: v.cpu() for n, v in there.parameters.items()}, here.parameters) < 1e-8
    assert Descent(on_device, X.cuda(), y.cuda(), here_options()).run().steps == 2


def here_options():
    from ntk_deq.dynamics.settings import DescentOptions

    return DescentOptions(step=0.01, steps=2)


@cache
def dying():
    """A network one of whose units dies while it feeds itself, and what is proven of 150 steps."""
    W, A, X = ([[-0.1, 0.1], [1, -5], [-5, 0.1]], [[0, 0], [0, 1]], [[1, 0, 0], [1, 1, 0], [1, 0, 1]])
    b, y = [0.5, 1.0], [0.4, 3.0, -1.5]
    W, A, X, b, y = (torch.tensor(value, dtype=torch.float64) for value in (W, A, X, b, y))
    model = ImplicitReLU(W=W, A=A, b=b, gamma=0.5)
    return model, X, y, certified_descent(model, X, y, step=0.01, steps=150, keep=[150]).iterates[150]


@pytest.mark.parametrize("rtol", [1e-6, 1e-10, 1e-12])
@pytest.mark.parametrize("extrapolation", [0, 1, 2])
def test_a_unit_that_dies_while_it_feeds_itself_has_no_slope(rtol: float, extrapolation: int) -> None:
    """From one step to the next its state falls towards zero and does not get there; the slope is that at zero."""
    model, X, y, proven = dying()
    run = gradient_descent(model, X, y, step=0.01, steps=150, until=0.0, rtol=rtol, extrapolation=extrapolation)
    for name, value in run.parameters.items():
        assert float((value - proven[name]).norm()) < 100 * rtol
