"""What is known of the ends of runs, of their errors and of the flow that stands for descent."""

from __future__ import annotations

import math
import os
import signal
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from flint import arb

from ntk_deq.dynamics.field import GradientField
from ntk_deq.dynamics.flow.run import gradient_flow
from ntk_deq.dynamics.record import RunStatus
from ntk_deq.evaluation.environment import DeadlineError
from ntk_deq.systems import LinearImplicit
from ntk_deq.verify.training import Point, TimeMoments, Trainee
from ntk_deq.verify.training.continuation import largest_curvature, strays
from ntk_deq.verify.training.descent import LossBounds, end_of_descent
from ntk_deq.verify.training.flow import end_of_flow
from ntk_deq.verify.training.flow_course import ended_at_floor
from ntk_deq.verify.training.trajectory import End, growth_of_errors

ONE = torch.ones(1, 1, dtype=torch.float64)
MODEL = LinearImplicit(W=0 * ONE, U=ONE, b=0 * ONE[0])  # at first L = 1/2, and the Hessian has the eigenvalues 1, 1, 0
TRAINEE = Trainee(MODEL, ONE, ONE[0], dict.fromkeys(MODEL.parameters(), 0.0), (0.0, 0.0))


def gradients(parameters):
    return GradientField(MODEL, ONE, ONE[0], rtol=1e-12).at(parameters, 0.0).gradients


def flow_to(until):
    return gradient_flow(MODEL, ONE, ONE[0], until=until, snapshots=8)


def at_floor(run, until, check=lambda: None):
    return ended_at_floor(run, TRAINEE, until=until, check=check)


def end(run, until, radius=1e-12):
    """How certain the end of a flow is whose last parameters are known to so much."""
    snapshot = run.snapshots[-1]
    last = Point(snapshot.at, snapshot.parameters, {"b": radius}, arb(snapshot.path_length))
    return end_of_flow(run, TRAINEE, last, until)


@pytest.mark.parametrize("until", [0.999, 0.1, 1e-6, 1e-12])
def test_a_flow_ends_where_its_loss_is_the_floor(until):
    run = flow_to(until)
    ended = at_floor(run, until)
    assert ended.loss == pytest.approx(until / 2, rel=1e-9)
    assert run.snapshots[-2].at < ended.end < run.end
    assert ended.snapshots[-1].path_length < run.snapshots[-1].path_length
    _, error, known = end(ended, until, radius=1e-12 * until**0.5)
    assert known.unsure == ""
    assert 0 < error < 1e-3


def test_the_last_time_is_as_certain_as_the_trajectory():
    ended = at_floor(flow_to(0.1), 0.1)
    errors = [end(ended, 0.1, radius)[1] for radius in (1e-9, 1e-7, 1e-5)]
    slopes = {name: float(g.norm()) for name, g in gradients(ended.parameters).items()}
    assert errors[2] == pytest.approx(1e-5 * slopes["b"] / sum(s**2 for s in slopes.values()) / ended.end, rel=1e-2)
    assert errors[0] < errors[1] / 10 < errors[2] / 100
    point, error, known = end(ended, 0.1, 0.1)
    assert "is not certain: it was found to" in known.unsure
    assert known.sure_to == ended.snapshots[-2].at
    assert (error, point.radius) == (0.0, {"b": 0.1})


def test_a_loss_off_its_floor_widens_the_end():
    run = flow_to(0.1)  # a step of the integrator does not end there
    point, error, _ = end(run, 0.1)
    assert abs(run.loss / 0.05 - 1) > 1e-6
    assert error > 1e-7
    assert point.radius["b"] > 1e-7


def test_an_end_that_is_not_found_is_said_to_be_unsure():
    run = flow_to(0.1)
    vanished = replace(run, snapshots=(*run.snapshots[:-1], replace(run.snapshots[-1], loss=0.0)))
    assert "it was not found" in end(at_floor(vanished, 0.1), 0.1)[2].unsure


def test_ctrl_c_and_the_time_limit_end_the_search_for_the_floor():
    run = flow_to(0.1)

    def ask():
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        at_floor(run, 0.1, ask)

    def give_up():
        raise DeadlineError

    with pytest.raises(DeadlineError):
        at_floor(run, 0.1, give_up)


class TestDescent:
    LOSSES: ClassVar = [1.0, 0.5, 0.1 * (1 + 1e-7), 0.01]

    def end(self, losses, until, *, proven=(), slack=1e-9, noise=0.0, floor=True):
        run = SimpleNamespace(steps=len(losses) - 1, status=RunStatus.LOSS_FLOOR if floor else RunStatus.STEPS)
        known = torch.tensor(proven, dtype=torch.float64).reshape(-1, 2)
        return end_of_descent(run, LossBounds(losses, known, slack, noise), until)

    def test_as_sure_as_the_loss_is_known(self):
        assert self.end(self.LOSSES, 0.1) == End()
        assert self.end(self.LOSSES, 0.1, slack=1e-6).sure_to == 2
        proven = [[loss * (1 - 1e-9), loss * (1 + 1e-9)] for loss in self.LOSSES[:3]]
        assert self.end(self.LOSSES, 0.1, slack=1e-6, proven=proven) == End()
        proven[2] = [0.0999, 0.1001]
        assert self.end(self.LOSSES, 0.1, proven=proven).sure_to == 2

    def test_a_step_that_proof_puts_below_the_floor_ends_the_run_before(self):
        proven = [[1.0, 1.0], [0.09, 0.091]]
        assert self.end(self.LOSSES, 0.1, proven=proven).sure_to == 1

    def test_noise_of_the_outputs_counts_near_zero(self):
        losses = [1e-20, 0.4e-20]
        assert self.end(losses, 0.5) == End()
        assert self.end(losses, 0.5, noise=1e-11).sure_to == 1

    def test_without_a_floor(self):
        assert self.end([1.0, 0.5, 1e-300], 0.0, floor=False) == End()
        assert self.end([1.0, 0.5, 0.0], 0.0, noise=1e-150).sure_to == 2


def test_the_time_at_the_floor_is_a_ball():
    points = [Point(at, {}, {}, torch.zeros(())) for at in (0.0, 0.5, 0.75)]
    moments = TimeMoments(None, points, frozenset(), end_error=1e-8)
    assert float(moments.index(0.75).rad()) >= 0.7e-8
    assert float(moments.index(0.5).rad()) < 1e-15


def test_growth_without_a_number_is_without_bound(monkeypatch):
    from ntk_deq.dynamics.training import gradient_descent
    from ntk_deq.verify.training import trajectory

    run = gradient_descent(MODEL, ONE, ONE[0], step=0.1, steps=20, snapshots=8)

    def lost(*arguments, **options):
        twin = gradient_descent(*arguments, **options)
        place = [snapshot.at for snapshot in twin.snapshots].index(run.snapshots[3].at)
        damaged = {name: math.nan * value for name, value in twin.snapshots[place].parameters.items()}
        broken = replace(twin.snapshots[place], parameters=damaged)
        return replace(twin, snapshots=(*twin.snapshots[:place], broken, *twin.snapshots[place + 1 :]))

    monkeypatch.setattr(trajectory, "gradient_descent", lost)
    growth = growth_of_errors(run, TRAINEE, lambda: None)
    assert all(map(math.isfinite, growth[:3]))
    assert all(map(math.isinf, growth[3:]))


class TestFollowing:
    FIELD = GradientField(MODEL, ONE, ONE[0], rtol=1e-12)

    def point(self, at, value, radius=1e-6):
        parameters = {name: value * tensor for name, tensor in {"W": 0 * ONE, "U": ONE, "b": ONE[0]}.items()}
        return Point(at, parameters, dict.fromkeys(parameters, radius), None)

    def test_curvature(self):
        # At W = 0, U = b = 1 and y = 1 the Hessian is that of yhat alone: its gradient is (1, 1, 1).
        assert largest_curvature(self.FIELD, self.point(0, 1.0).parameters) == pytest.approx(3.0, rel=1e-4)

    def test_no_curvature_is_known_where_there_is_no_gradient(self):
        assert largest_curvature(self.FIELD, self.point(0, math.nan).parameters) == math.inf

    @pytest.mark.parametrize(
        ("eta", "window", "flow", "why"),
        [
            (0.1, 1.0, 1.0, ""),
            (0.1, 1.0, 1.001, "as far from it as estimated"),
            (0.1, 1.0, math.nan, "as far from it as estimated"),
            (0.7, 1.0, 1.0, "unstable"),
        ],
    )
    def test_reasons(self, eta, window, flow, why):
        found = strays(self.point(5, window), [self.point(0, 1.0), self.point(5, flow)], self.FIELD, eta, lambda: None)
        assert (why in found) if why else found == ""

    def test_a_flow_that_ends_before_the_window(self):
        assert "before the 5 steps" in strays(self.point(5, 1.0), [self.point(0, 1.0)], self.FIELD, 0.1, lambda: None)
