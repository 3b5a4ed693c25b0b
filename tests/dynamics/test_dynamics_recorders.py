"""Recorders: what they record, when, and how little room it takes."""

from __future__ import annotations

import math

import pytest
import torch
from dynamics_samples import copied, moved_along

from ntk_deq.dynamics import Recorder, every, gradient_descent, logarithmic, on_condition
from ntk_deq.dynamics.field import GradientField
from ntk_deq.dynamics.recorders import BUILT_IN, Observation, SpectralNorms, recorders
from ntk_deq.dynamics.series import Recording, SeriesBuffer
from ntk_deq.errors import ArgumentError


def observed(problem, parameters=None, at=0.0):
    model, X, y = problem
    parameters = model.parameters() if parameters is None else parameters
    point = GradientField(model, X, y).at(parameters, at)
    return Observation(at, parameters, model.parameters(), point, model, torch.tensor(0.0))


class TestBuiltIn:
    def test_values(self, problem):
        model, X, y = problem
        run = gradient_descent(model, X, y, step=0.01, steps=25, record=list(BUILT_IN))
        end, start = run.parameters, model.parameters()
        assert list(run.series) == list(BUILT_IN)
        final = GradientField(model, X, y, rtol=1e-13).at(end, 0)
        assert run["loss"].values[-1].item() == run.loss == pytest.approx(final.loss_value, rel=1e-8)
        norm = math.sqrt(sum(float(g.square().sum()) for g in final.gradients.values()))
        assert run["gradient_norm"].values[-1].item() == pytest.approx(norm, rel=1e-8)
        moved = [float((end[name] - start[name]).norm()) for name in start]
        assert run["displacement"].values[-1].tolist() == pytest.approx(moved, rel=1e-8)
        assert run["path_length"].values[-1].item() == pytest.approx(run.snapshots[-1].path_length)
        low, high = run["norm"].values[-1].unbind(1)
        for name, least, most in zip(start, low.tolist(), high.tolist(), strict=True):
            value = end[name]
            exact = float(torch.linalg.matrix_norm(value, ord=2) if value.ndim == 2 else value.norm())
            assert least * (1 - 1e-14) <= exact <= most * (1 + 1e-14)
            assert most - least <= 2e-3 * exact
        at = run["sigma_min"].at.tolist()
        assert at == [0, 1, 2, 3, 4, 6, 7, 8, 10, 13, 16, 20, 25]  # the end as well
        assert run["sigma_min"].values[-1].item() == pytest.approx(float(torch.linalg.svdvals(final.state)[-1]))
        first = GradientField(model, X, y, rtol=1e-13).at(start, 0)
        sigma = float(torch.linalg.svdvals(first.state)[-1])
        assert run["sigma_min"].values[0].item() == pytest.approx(sigma, rel=1e-6)
        assert run["iterations"].values.mean(0).tolist() == pytest.approx(
            [run.forward_iterations, run.adjoint_iterations]
        )

    def test_norms_take_few_decompositions(self, problem):
        norms, parameters = SpectralNorms(), copied(problem[0])
        slope = observed(problem).point.gradients
        for k in range(50):
            norms(observed(problem, parameters, k))
            parameters = moved_along(parameters, slope, 1e-6)
        assert norms.decompositions == 2  # the two matrices, once each


class TestSchedules:
    def test_runs_follow_them(self, relu):
        def value(seen):
            return seen.at**2

        run = gradient_descent(
            *relu,
            step=0.02,
            steps=100,
            record=[
                Recorder("each", value),
                Recorder("seventh", value, every(7)),
                Recorder("spread", value, logarithmic(2)),
                Recorder("late", value, on_condition(lambda seen: seen.at > 97)),
                Recorder("never", value, on_condition(lambda seen: False)),
            ],
        )
        assert run["each"].at.tolist() == list(range(101))
        assert run["seventh"].at.tolist() == list(range(0, 101, 7))
        assert run["seventh"].values.tolist() == [k**2 for k in range(0, 101, 7)]
        assert run["spread"].at.tolist() == [0, 1, 4, 10, 32, 100]
        assert run["late"].at.tolist() == [98, 99, 100]
        assert run["never"].at.numel() == 0

    @pytest.mark.parametrize("make", [every, logarithmic])
    @pytest.mark.parametrize("value", [0, -1, 1.5, True, None])
    def test_bad_distances(self, make, value):
        with pytest.raises(ArgumentError, match="must be an integer >= 1"):
            make(value)

    def test_bad_condition(self):
        with pytest.raises(ArgumentError, match="must be callable"):
            on_condition(True)


class TestThinning:
    def test_buffer(self):
        buffer, kept = SeriesBuffer("q", capacity=8), []
        for k in range(1000):
            if buffer.wants():
                buffer.append(k, k / 2)
            kept.append(len(buffer.series().at))
        at = buffer.series().at
        assert max(kept) == 8
        assert at[0] == 0
        gaps = at.diff()
        assert bool((gaps == gaps[0]).all())
        assert torch.equal(buffer.series().values, at / 2)

    def test_dropped_values_are_not_computed(self, relu):
        calls = []
        recording = Recording([Recorder("q", lambda seen: calls.append(seen.at) or 1.0)], capacity=4)
        seen = observed(relu)
        for k in range(64):
            recording.offer(k, seen)
        assert len(calls) < 20

    def test_tensors(self):
        buffer, value = SeriesBuffer("q", capacity=4), torch.zeros(2)
        for k in range(9):
            value += 1
            if buffer.wants():
                buffer.append(k, value)
        assert buffer.series().values.tolist() == [[1.0, 1.0], [5.0, 5.0], [9.0, 9.0]]  # copies, thinned


class TestMistakes:
    def test_names(self):
        with pytest.raises(ArgumentError, match="Did you mean 'norm'"):
            recorders(["nrom"])
        with pytest.raises(ArgumentError, match=r"Got 3\."):
            recorders([3])
        with pytest.raises(ArgumentError, match="'norm' twice"):
            recorders(["norm", "norm"])
        for wrong in ("norm", None, 5):
            with pytest.raises(ArgumentError, match=r"`record` must be a list of names and recorders\. Got "):
                recorders(wrong)

    def test_recorders(self):
        for name, function, when in (("", len, every(1)), (None, len, every(1)), ("q", 3, every(1)), ("q", len, 3)):
            with pytest.raises(ArgumentError, match="recorder"):
                Recorder(name, function, when)

    def test_the_name_that_stands_for_tensors_in_files(self):
        with pytest.raises(ArgumentError, match="`name` of a recorder must not be '__tensor__'"):
            Recorder("__tensor__", lambda seen: 1.0)

    @pytest.mark.parametrize(
        "value",
        [torch.tensor(1j), torch.tensor([1j]), torch.eye(2).to_sparse(), 1j, 10**400],
        ids=["complex 0-d", "complex 1-d", "sparse", "complex", "huge"],
    )
    def test_what_a_series_cannot_hold_is_refused_at_the_first_value(self, relu, value):
        seen = []
        with pytest.raises(ArgumentError, match="The recorder 'q' must return"):
            gradient_descent(
                *relu, step=0.01, steps=3, record=[Recorder("q", lambda at: value)], on_step=lambda k, _: seen.append(k)
            )
        assert seen == [0]

    def test_large_integers(self, relu):
        run = gradient_descent(*relu, step=0.01, steps=1, record=[Recorder("q", lambda seen: 10**30)])
        assert run["q"].values.tolist() == [1e30, 1e30]

    def test_own_loss_takes_the_place_of_the_built_in_one(self, relu):
        run = gradient_descent(*relu, step=0.01, steps=3, record=[Recorder("loss", lambda seen: 7.0)])
        assert run["loss"].values.tolist() == [7.0] * 4

    def test_values(self, relu):
        with pytest.raises(ArgumentError, match="'q' must return a number or a tensor"):
            gradient_descent(*relu, step=0.01, steps=3, record=[Recorder("q", lambda seen: "x")])
        sizes = Recorder("q", lambda seen: torch.zeros(int(seen.at) + 1))
        with pytest.raises(ArgumentError, match="must return values of one shape"):
            gradient_descent(*relu, step=0.01, steps=3, record=[sizes])
