"""The gradient along a run: the exact one, to the tolerance, wherever its starts come from."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from dynamics_samples import copied, drawn, moved_along
from torch import Tensor

from ntk_deq.dynamics.contraction import CarriedContraction, WellPosednessError
from ntk_deq.dynamics.field import GradientField, NotFiniteError
from ntk_deq.equilibrium import warm as warm_solver
from ntk_deq.equilibrium.starts import StateHistory, extrapolation_weights
from ntk_deq.errors import ArgumentError, EquilibriumError
from ntk_deq.systems import ImplicitReLU, LinearImplicit, loss_gradients
from ntk_deq.systems.compiled_maps import loss_maps
from ntk_deq.systems.loss_maps import AutodiffMaps, LayerMaps

ONE = torch.ones(1, 1, dtype=torch.float64)


def apart(found, expected):
    """The largest relative difference over the parameters."""
    return max(float((found[n] - expected[n]).norm() / expected[n].norm()) for n in expected)


@pytest.fixture
def by_rows(monkeypatch):
    """Finish single rows in problems of any size."""
    monkeypatch.setattr(warm_solver, "_LEAST_WORK", 0)


class TestGradients:
    def test_agree_with_implicit_differentiation(self, problem):
        model, X, y = problem
        point = GradientField(model, X, y, rtol=1e-12).at(model.parameters(), 0.0)
        expected = loss_gradients(model, X, y)
        assert apart(point.gradients, expected) < 1e-9
        assert point.loss_value == float(point.loss) == pytest.approx(float(point.residual.square().sum() / 2))

    @pytest.mark.parametrize("degree", [0, 2, 4])
    def test_agree_along_a_run(self, problem, degree):
        model, X, y = problem
        field, parameters = GradientField(model, X, y, rtol=1e-12, extrapolation=degree), copied(model)
        for k in range(20):
            point = field.at(parameters, k, reuse=True)
            assert apart(point.gradients, loss_gradients(model, X, y, parameters=parameters)) < 1e-9
            parameters = moved_along(parameters, point.gradients, 0.02)

    def test_agree_at_moments_in_any_order(self, problem):
        model, X, y = problem
        field, start = GradientField(model, X, y, rtol=1e-12), copied(model)
        slope = loss_gradients(model, X, y)
        for moment in (0.0, 0.1, 0.1, 0.13, 0.02, 0.5, 0.5, 0.2, 1e-9, 0.7):
            parameters = moved_along(start, slope, 0.1 * moment)
            assert (
                apart(field.at(parameters, moment).gradients, loss_gradients(model, X, y, parameters=parameters)) < 1e-9
            )

    def test_agree_when_rows_are_finished_one_by_one(self, problem, by_rows):
        model, X, y = problem
        field, parameters = GradientField(model, X, y, rtol=1e-12), copied(model)
        fractions = set()
        for k in range(20):
            point = field.at(parameters, k, reuse=True)
            fractions.add(point.adjoint_steps % 1)
            assert apart(point.gradients, loss_gradients(model, X, y, parameters=parameters)) < 1e-9
            parameters = moved_along(parameters, point.gradients, 0.02)
        assert len(fractions) > 1  # single rows were iterated

    @pytest.mark.parametrize("transposed", [False, True])
    def test_few_rows_are_finished_with_fewer_looks(self, by_rows, monkeypatch, transposed):
        model, X, y = drawn("linear-implicit" if transposed else "implicit-relu", N=48)
        field, parameters = GradientField(model, X, y, rtol=1e-11), copied(model)
        looks = []
        check = warm_solver._Progress.check_steps
        monkeypatch.setattr(
            warm_solver._Progress,
            "check_steps",
            lambda self, count, *rest: (looks.append(count), check(self, count, *rest)),
        )
        for k in range(6):
            X.select(0, 5).mul_(1 if k < 3 else 1.5)  # one sample jumps, the others stay where they are
            point = field.at(parameters, k, reuse=True)
            assert apart(point.gradients, loss_gradients(model, X, y, parameters=parameters)) < 1e-8
            if k >= 3:
                gaps = [after - before for before, after in pairwise(looks) if after > before]
                assert max(gaps) > 1
                assert 1 < point.forward_steps < 2
            looks.clear()

    def test_state_and_adjoint_solve_their_equations(self, problem):
        model, X, y = problem
        field, parameters = GradientField(model, X, y, rtol=1e-10), copied(model)
        for k in range(20):
            point = field.at(parameters, k)
            Z, V, r = point.state, point.adjoint, point.residual
            assert (model.step(Z, X, parameters) - Z).norm() <= 1e-10 * Z.norm()
            unit = model.adjoint_step_at(Z, X, parameters)  # V row n is r_n times the unit adjoint
            assert (r[:, None] * unit(V / r[:, None]) - V).norm() <= 1.01e-10 * V.norm()
            parameters = moved_along(parameters, point.gradients, 0.01)

    def test_error_estimate_covers_the_gradient_at_a_loose_tolerance(self, problem):
        model, X, y = problem
        field, parameters = GradientField(model, X, y, rtol=1e-4), copied(model)
        for k in range(30):
            point = field.at(parameters, k)
            assert (
                apart(point.gradients, loss_gradients(model, X, y, parameters=parameters)) < 10 * point.relative_error
            )
            parameters = moved_along(parameters, point.gradients, 0.01)

    def test_zero_loss(self):
        model = LinearImplicit(W=ONE / 2, U=ONE, b=ONE[0])
        point = GradientField(model, ONE, 2 * ONE[0], rtol=1e-14).at(model.parameters(), 0)
        assert point.loss_value < 1e-26
        model = LinearImplicit(W=0 * ONE, U=ONE, b=ONE[0])
        point = GradientField(model, ONE, ONE[0]).at(model.parameters(), 0)
        assert point.loss_value == 0.0
        assert (point.gradient_error, point.relative_error) == (0.0, 0.0)

    def test_float32(self):
        model, X, y = drawn("implicit-relu", dtype=torch.float32)
        field = GradientField(model, X, y)
        assert field.rtol == pytest.approx(32 * 2**-23)
        assert apart(field.at(model.parameters(), 0).gradients, loss_gradients(model, X, y)) < 1e-4

    def test_parameters_that_require_gradients(self, problem):
        model, X, y = problem
        parameters = {name: value.clone().requires_grad_() for name, value in model.parameters().items()}
        point = GradientField(model, X, y).at(parameters, 0)
        assert not any(value.requires_grad for value in point.gradients.values())


class TestMaps:
    def test_fused_maps_agree_with_automatic_differentiation(self, problem):
        model, X, y = problem
        fused, plain = loss_maps(model, X, y), AutodiffMaps(model, X, y)
        assert isinstance(fused, LayerMaps)
        Z = model.step(model.step(model.initial_state(X), X), X)
        V = torch.randn(Z.shape, generator=torch.Generator().manual_seed(3), dtype=Z.dtype)
        rows = torch.tensor([3, 1])
        found = []
        for maps in (fused, plain):
            out, few = torch.empty_like(Z), torch.empty_like(Z[rows])
            values: dict[str, Tensor] = {}
            maps.prepare(model.parameters())
            maps.step(Z, out)
            values["step"] = out.clone()
            maps.step_of_rows(rows)(Z[rows], few)
            values["step of rows"] = few.clone()
            # The fused maps read the slopes off the state, which is right at an image of the map.
            values["loss"] = Z.new_zeros(())
            values["residual"] = maps.linearise(_equilibrium(model, X), values["loss"]).clone()
            maps.adjoint_step(V, out)
            values["adjoint"] = out.clone()
            maps.adjoint_step_of_rows(rows)(V[rows], few)
            values["adjoint of rows"] = few.clone()
            found.append({**values, **{n: g.clone() for n, g in maps.gradients(V).items()}})
        assert found[0].keys() == found[1].keys()
        for name, value in found[1].items():
            torch.testing.assert_close(found[0][name], value, rtol=1e-12, atol=1e-12)

    def test_a_model_without_a_form_takes_automatic_differentiation(self, relu):
        class Formless(ImplicitReLU):
            def single_layer(self):
                return None

        model, X, y = relu
        other = Formless(**model.parameters(), gamma=model.gamma)
        assert isinstance(loss_maps(other, X, y), AutodiffMaps)
        one, two = (GradientField(m, X, y).at(m.parameters(), 0) for m in (model, other))
        assert apart(one.gradients, two.gradients) < 1e-9
        assert one.contraction == pytest.approx(two.contraction, rel=1e-12)


def _equilibrium(model, X):
    Z = model.initial_state(X)
    for _ in range(200):
        Z = model.step(Z, X)
    return Z


class TestStarts:
    def test_extrapolation_saves_iterations(self):
        model, X, y = drawn("implicit-relu", N=8, m=32)
        totals = []
        for degree in (0, 2):
            field, parameters, total = GradientField(model, X, y, extrapolation=degree), copied(model), 0.0
            for k in range(60):
                point = field.at(parameters, k, reuse=True)
                total += (point.forward_steps + point.adjoint_steps) if k >= 20 else 0
                parameters = moved_along(parameters, point.gradients, 1e-5)
            totals.append(total)
        assert totals[1] < 0.3 * totals[0]

    def test_forget_starts_from_nothing(self, relu):
        model, X, y = relu
        field = GradientField(model, X, y)
        first = field.at(model.parameters(), 0)
        again = field.at(model.parameters(), 1)
        assert again.forward_steps < first.forward_steps
        field.forget()
        fresh = field.at(model.parameters(), 2)
        assert (fresh.forward_steps, fresh.adjoint_steps) == (first.forward_steps, first.adjoint_steps)
        assert torch.equal(fresh.state, first.state)

    def test_weights_reproduce_polynomials(self):
        moments = [2.5, 1.0, 0.7, -3.0]
        for degree in range(4):
            weights = extrapolation_weights(4.0, moments)
            assert sum(w * t**degree for w, t in zip(weights, moments, strict=True)) == pytest.approx(4.0**degree)

    @pytest.mark.parametrize("moments", [(0, 1, 2, 3), (0, 0.5, 2, 3.25)], ids=["equal steps", "unequal"])
    @pytest.mark.parametrize("degree", [1, 2, 3])
    def test_polynomials_are_predicted(self, degree, moments):
        generator = torch.Generator().manual_seed(0)
        terms = [torch.randn(2, 3, generator=generator, dtype=torch.float64) for _ in range(degree + 1)]

        def at(moment):
            return sum(moment**power * term for power, term in enumerate(terms))

        history, out = StateHistory(terms[0], degree), torch.empty_like(terms[0])
        for moment in moments[-degree - 1 :]:
            history.add(moment, at(moment), out)
        assert history.predict(4.0, out)
        assert torch.allclose(out, at(4.0), rtol=0, atol=1e-11)

    def test_weights_that_are_too_large_are_not_used(self):
        history, like = StateHistory(ONE, 2), ONE.clone()
        for moment, value in ((0.0, 1.0), (1e-12, 1.0 + 1e-9)):
            history.add(moment, value * ONE, like)
        out = torch.empty_like(ONE)
        assert history.predict(1.0, out)
        assert out.item() == 1.0 + 1e-9  # not 1 + 1e3

    @pytest.mark.parametrize("by_rows", [False, True])
    def test_degree_follows_the_run(self, by_rows):
        generator = torch.Generator().manual_seed(0)

        def degree_after(states):
            history, scratch = StateHistory(states[0], 2, by_rows=by_rows), torch.empty_like(states[0])
            for k, state in enumerate(states):
                history.add(float(k), state.clone(), scratch)
            return history.degree

        rough = [torch.randn(5, 3, generator=generator, dtype=torch.float64) for _ in range(32)]
        smooth = [torch.full((5, 3), 1.0 + k * k) + 0 * rough[0] for k in range(32)]
        assert degree_after(rough) == 0
        assert degree_after(smooth) == 2
        jumping = [state.index_fill(0, torch.tensor([2]), float(k % 2) * 1e6) for k, state in enumerate(smooth)]
        assert degree_after(jumping) == (2 if by_rows else 0)

    def test_restored_fields_go_on_bit_by_bit(self, problem):
        model, X, y = problem
        field, parameters = GradientField(model, X, y), copied(model)
        for k in range(12):
            parameters = moved_along(parameters, field.at(parameters, k).gradients, 0.02)
        other = GradientField(model, X, y)
        other.restore(field.state())
        for k in range(12, 30):
            one, two = field.at(parameters, k), other.at(parameters, k)
            assert torch.equal(one.state, two.state)
            assert torch.equal(one.adjoint, two.adjoint)
            assert (one.forward_steps, one.adjoint_steps) == (two.forward_steps, two.adjoint_steps)
            parameters = moved_along(parameters, one.gradients, 0.02)

    def test_points_are_copies_unless_reuse_is_asked_for(self, relu):
        model, X, y = relu
        field, parameters = GradientField(model, X, y), copied(model)
        kept = [field.at(parameters, k) for k in range(8)]
        assert all(torch.equal(point.state, point.owned().state) for point in kept)
        first = kept[0].gradients["A"].clone()
        field.at({name: 0.5 * value for name, value in parameters.items()}, 9.0)
        assert torch.equal(kept[0].gradients["A"], first)
        point = field.at(parameters, 10.0, reuse=True)
        assert field.at(parameters, 11.0, reuse=True).gradients["A"].data_ptr() == point.gradients["A"].data_ptr()


class TestContraction:
    def test_bound_holds_and_is_carried(self, problem):
        model, _, _ = problem
        weight = model.single_layer().weight
        carried, parameters, distance = CarriedContraction(model), copied(model), torch.zeros((), dtype=torch.float64)
        generator = torch.Generator().manual_seed(1)
        for _ in range(200):
            carried.measure(parameters, distance)
            bound, exact = carried.bound(parameters, float(distance)), float(model.contraction_bound(parameters))
            assert exact <= bound * (1 + 1e-14) < exact + 0.6 * (1 - exact)
            change = torch.randn(parameters[weight].shape, generator=generator, dtype=torch.float64)
            parameters[weight] -= 1e-4 * change
        assert 1 <= carried.refreshed < 40

    def test_a_long_way_that_leads_nowhere_takes_no_decomposition(self, problem):
        model, _, _ = problem
        weight = model.single_layer().weight
        carried, parameters, distance = CarriedContraction(model), copied(model), torch.zeros((), dtype=torch.float64)
        change = 1e-3 * torch.ones_like(parameters[weight])
        moved = {name: torch.zeros((), dtype=torch.float64) for name in parameters}
        for k in range(300):
            carried.measure(parameters, distance, moved)
            bound = carried.bound(parameters, float(distance))
            assert float(model.contraction_bound(parameters)) <= bound * (1 + 1e-14) < 1
            parameters[weight] = parameters[weight] + (change if k % 2 else -change)
            moved[weight] = change.norm()
        assert carried.refreshed == 1

    def test_form_says_what_the_contraction_rests_on(self, problem):
        model, _, _ = problem
        form = model.single_layer()
        norm = torch.linalg.matrix_norm(model.parameters()[form.weight], ord=2)
        assert float(model.contraction_bound()) == pytest.approx(form.factor * float(norm), rel=1e-13)

    def test_a_factor_of_one_is_refused(self, problem):
        model, X, y = problem
        field, weight = GradientField(model, X, y), model.single_layer().weight
        parameters = copied(model)
        field.at(parameters, 0)
        parameters[weight] *= 1.001 / float(model.contraction_bound())
        with pytest.raises(WellPosednessError, match=r"its contraction factor is 1\.001, not below one"):
            field.at(parameters, 1)


class TestFailures:
    def test_nan(self, problem):
        model, X, y = problem
        field, parameters = GradientField(model, X, y), copied(model)
        field.at(parameters, 0)
        parameters["b"][0] = math.nan
        with pytest.raises(NotFiniteError):
            field.at(parameters, 1)

    def test_max_steps(self, relu, by_rows):
        model, X, y = relu
        with pytest.raises(EquilibriumError, match="equilibrium was not found"):
            GradientField(model, X, y, max_steps=3).at(model.parameters(), 0)

    @pytest.mark.parametrize(
        "options",
        [
            {"rtol": 0.0},
            {"rtol": 1.0},
            {"rtol": math.nan},
            {"rtol": True},
            {"atol": -1.0},
            {"atol": math.inf},
            {"max_steps": 0},
            {"max_steps": 2.0},
            {"extrapolation": -1},
            {"extrapolation": 7},
            {"extrapolation": True},
        ],
    )
    def test_options(self, relu, options):
        with pytest.raises(ArgumentError, match=f"`{next(iter(options))}` of a gradient field must be"):
            GradientField(*relu, **options)

    def test_data(self, relu):
        model, X, y = relu
        for inputs, targets in ((X[:, 1:], y), (X, y[1:]), (X.float(), y), (X, y.float()), (X, y * math.nan)):
            with pytest.raises(ArgumentError):
                GradientField(model, inputs, targets)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
class TestDevice:
    def test_a_run_on_the_device_copies_scalars_only(self):
        model, X, y = drawn("implicit-relu", N=16, m=64)
        model = ImplicitReLU(**{n: v.cuda() for n, v in model.parameters().items()}, gamma=model.gamma.cuda())
        X, y = X.cuda(), y.cuda()
        field, parameters = GradientField(model, X, y), copied(model)
        for k in range(5):
            point = field.at(parameters, k, reuse=True)
            assert point.state.is_cuda
            assert apart(point.gradients, loss_gradients(model, X, y, parameters=parameters)) < 1e-8
            parameters = moved_along(parameters, point.gradients, 1e-3)
        with torch.profiler.profile() as profile:
            field.at(parameters, 5, reuse=True)
        copies = [event for event in profile.events() if "DtoH" in event.name]
        point = field.at(parameters, 6, reuse=True)
        # One transfer a look at a residual, and a look at most every iteration.
        assert len(copies) <= point.forward_steps + point.adjoint_steps + 4
