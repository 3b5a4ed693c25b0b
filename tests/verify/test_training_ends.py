"""What is known of the ends of runs, of their errors and of the flow that stands for descent."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from ntk_deq.dynamics.field import GradientField
from ntk_deq.dynamics.flow import gradient_flow
from ntk_deq.models import LinearImplicit
from ntk_deq.verify.training.estimates import growth_of_errors
from ntk_deq.verify.training.floor import ended_at_floor, unsure_floor
from ntk_deq.verify.training.following import largest_curvature, strays
from ntk_deq.verify.training.moments import Moments, Point
from ntk_deq.verify.training.trajectory import _unsure_end

ONE = torch.ones(1, 1, dtype=torch.float64)
MODEL = LinearImplicit(W=0 * ONE, U=ONE, b=0 * ONE[0])  # at first L = 1/2, and the Hessian has the eigenvalues 1, 1, 0


def flow_to(until):
    return gradient_flow(MODEL, ONE, ONE[0], until=until, snapshots=8)


@pytest.mark.parametrize("until", [0.999, 0.1, 1e-6, 1e-12])
def test_a_flow_ends_where_its_loss_is_the_floor(until):
    run = flow_to(until)
    assert unsure_floor(run, until)  # a step of the integrator does not end there
    ended = ended_at_floor(run, MODEL, ONE, ONE[0], until=until, tolerance=1e-9, rtol=1e-12)
    assert ended.loss == pytest.approx(until / 2, rel=1e-9)
    assert run.snapshots[-2].at < ended.end < run.end
    assert ended.snapshots[-1].path_length < run.snapshots[-1].path_length
    assert unsure_floor(ended, until) == ""


def test_an_end_that_is_not_found_is_said_to_be_unsure():
    run = flow_to(0.1)
    vanished = replace(run, snapshots=(*run.snapshots[:-1], replace(run.snapshots[-1], loss=0.0)))
    ended = ended_at_floor(vanished, MODEL, ONE, ONE[0], until=0.1, tolerance=1e-9, rtol=1e-12)
    assert "was not found" in unsure_floor(ended, 0.1)


def test_the_time_at_the_floor_is_a_ball():
    points = [Point(at, {}, {}, torch.zeros(())) for at in (0.0, 0.5, 0.75)]
    moments = Moments(None, points, frozenset(), end_error=1e-8)
    assert float(moments.index(0.75).rad()) >= 0.7e-8
    assert float(moments.index(0.5).rad()) < 1e-15


def test_growth_without_a_number_is_without_bound(monkeypatch):
    from ntk_deq.dynamics.descent import gradient_descent
    from ntk_deq.verify.training import estimates

    run = gradient_descent(MODEL, ONE, ONE[0], step=0.1, steps=20, snapshots=8)

    def lost(*arguments, **options):
        twin = gradient_descent(*arguments, **options)
        damaged = {name: math.nan * value for name, value in twin.snapshots[3].parameters.items()}
        broken = replace(twin.snapshots[3], parameters=damaged)
        return replace(twin, snapshots=(*twin.snapshots[:3], broken, *twin.snapshots[4:]))

    monkeypatch.setattr(estimates, "gradient_descent", lost)
    growth = growth_of_errors(run, MODEL, ONE, ONE[0], snapshots=8, rtol=1e-12, check=lambda: None)
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
        found = strays(self.point(5, window), [self.point(0, 1.0), self.point(5, flow)], self.FIELD, eta)
        assert (why in found) if why else found == ""

    def test_a_flow_that_ends_before_the_window(self):
        assert "before the 5 steps" in strays(self.point(5, 1.0), [self.point(0, 1.0)], self.FIELD, 0.1)


@pytest.mark.parametrize(
    ("proven_to", "found"), [(2, None), (1, 2)], ids=["proven: known to 1e-9", "not proven: known to 1e-6"]
)
def test_the_last_step_is_as_sure_as_the_loss_is_known(proven_to, found):
    assert _unsure_end([1.0, 0.5, 0.1 * (1 + 1e-7), 0.01], 0.1, 1e-9, 1e-6, proven_to) == found
