"""Certified descent held against the exact run: float starts, zero starts, kinks, long windows; how runs end."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch
from descent_truth import ExactDescent, matrix, violations
from torch import Tensor

from ntk_deq import certified as ct
from ntk_deq.dynamics.proven import CertifiedDescent, CertifiedStep
from ntk_deq.dynamics.proven import descent as certified_run
from ntk_deq.dynamics.proven.descent import certified_descent
from ntk_deq.errors import ArgumentError
from ntk_deq.systems import EquilibriumModel, ImplicitReLU, LinearImplicit


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def drawn(kind: str, N: int, d: int, m: int, seed: int, **options) -> tuple[EquilibriumModel, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    family = {"relu": ImplicitReLU, "linear": LinearImplicit}[kind]
    return family.random(d, m, generator=g, **options), normal(g, N, d) / d**0.5, normal(g, N)


def theorem_start(N: int, d: int, m: int, scale: float, seed: int) -> tuple[ImplicitReLU, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    W, X = normal(g, d, m) * (scale / m**0.5), torch.linalg.qr(normal(g, d, N))[0].T.contiguous()
    return ImplicitReLU(W=W, A=W.new_zeros(m, m), b=W.new_zeros(m), gamma=0.5), X, torch.ones(N, dtype=torch.float64)


def checked(
    model: EquilibriumModel, X: Tensor, y: Tensor, *, step: float, steps: int, **options
) -> tuple[CertifiedDescent, list[str]]:
    run = certified_descent(model, X, y, step=step, steps=steps, keep=range(steps + 1), **options)
    return run, violations(run, ExactDescent(model, X, y, step, bits=300 + 8 * steps))


@pytest.mark.parametrize(
    ("kind", "N", "d", "m", "seed", "step", "steps"),
    [
        ("relu", 2, 2, 2, 0, 0.05, 150),
        ("relu", 3, 2, 3, 7, 0.05, 300),
        ("relu", 2, 3, 3, 2, 1e-6, 60),
        ("linear", 2, 2, 2, 0, 0.02, 150),
        ("linear", 3, 2, 3, 1, 0.02, 100),
        ("linear", 2, 3, 2, 2, 1e-6, 60),
    ],
)
def test_the_exact_run_stays_within_the_bounds(kind, N, d, m, seed, step, steps):
    run, found = checked(*drawn(kind, N, d, m, seed), step=step, steps=steps)
    assert found == []
    assert run.complete, run.reason
    assert run.steps == steps
    assert run.error[0] == 0
    assert 0 < run.error[-1] < 1e-11
    assert float((run.losses[:, 1] - run.losses[:, 0]).max()) < 1e-10


@pytest.mark.parametrize("options", [{"rtol": 1e-3}, {"rtol": 1e-8, "share": 0.5}])
def test_coarse_solves_widen_the_bounds_only(options):
    model, X, y = drawn("relu", 2, 2, 3, 3)
    run, found = checked(model, X, y, step=0.02, steps=40, largest_error=1.0, **options)
    assert found == []
    assert run.error[-1] > 1e-11


def test_a_start_with_exact_zeros_where_relu_has_its_kink():
    # gamma Z A is exactly zero wherever x'w <= 0: no ball around a computed value could tell.
    run, found = checked(*theorem_start(3, 4, 6, 4.0, 1), step=0.01, steps=60)
    assert found == []
    assert run.complete, run.reason
    assert int(run.uncertain.sum()) == 0
    assert run.errors["A"][1] == run.errors["W"][1] == 0 < run.errors["b"][1]


def test_structural_zeros_stay():
    # Two samples with no unit in common: A gets two blocks, and what is between them stays exactly zero.
    X = torch.eye(2, dtype=torch.float64)
    W = torch.tensor([[1.0, 0.5, -1.0], [-2.0, -1.0, 1.5]], dtype=torch.float64)
    b = torch.tensor([0.5, -0.3, 0.7], dtype=torch.float64)
    model = ImplicitReLU(W=W, A=W.new_zeros(3, 3), b=b, gamma=0.5)
    run, found = checked(model, X, torch.ones(2, dtype=torch.float64), step=0.05, steps=80)
    assert found == []
    assert run.complete, run.reason
    assert int(run.uncertain.sum()) == 0
    last = run.iterates[80]["A"]
    assert bool((last[:2, 2] == 0).all() and (last[2, :2] == 0).all())
    assert float(last.abs().max()) > 0.05


@pytest.mark.parametrize("seed", range(4))
def test_samples_without_an_active_unit(seed):
    model, X, y = drawn("relu", 3, 1, 2, seed)  # inputs of both signs: some sample has x'w <= 0 throughout
    run, found = checked(model, X, y, step=0.05, steps=40)
    assert found == []
    assert run.complete, run.reason


def test_an_input_of_zeros():
    model, X, y = drawn("relu", 3, 2, 3, 5)
    X[1] = 0
    run, found = checked(model, X, y, step=0.05, steps=30)
    assert found == []
    assert run.complete, run.reason


@pytest.mark.parametrize("kind", ["relu", "linear"])
def test_a_start_that_is_not_a_float(kind):
    model, X, y = drawn(kind, 3, 2, 3, 1)
    g = torch.Generator().manual_seed(9)
    shift = {name: 1e-7 * normal(g, *value.shape) for name, value in model.parameters().items()}
    size = sum(float((v * v).sum()) for v in shift.values()) ** 0.5 * (1 + 1e-12)
    run = certified_descent(model, X, y, step=0.02, steps=50, keep=range(51), start_error=size, largest_error=1.0)
    exact = ExactDescent(model, X, y, 0.02, bits=700, shift={name: matrix(value) for name, value in shift.items()})
    assert violations(run, exact) == []
    assert run.error[0] == size


@pytest.mark.parametrize("seed", range(24))
def test_random_runs(seed):
    g = torch.Generator().manual_seed(seed)

    def pick(*values):
        return values[int(torch.randint(len(values), (), generator=g))]

    N, d, m = pick(1, 2, 3), pick(1, 2, 3), pick(1, 2, 3, 4)
    if seed % 3:
        model = ImplicitReLU.random(d, m, generator=g, gamma=pick(0.1, 0.5, 0.9), norm_A=pick(0.0, 0.5, 1.0))
    else:
        model = LinearImplicit.random(d, m, generator=g, norm_W=pick(0.1, 0.5, 0.9))
    X, y, size = normal(g, N, d), pick(1, 10) * normal(g, N), pick(0.0, 1e-12, 1e-8, 1e-5, 1e-3)
    shift = {name: normal(g, *value.shape) for name, value in model.parameters().items()}
    length = sum(float((v * v).sum()) for v in shift.values()) ** 0.5
    shift = {name: value * (size / length) for name, value in shift.items()}
    settings = {"step": pick(1e-6, 1e-3, 0.02, 0.1, 0.5), "rtol": pick(1e-15, 1e-6, 1e-2), "steps": 20}
    # Bounds as wide as the parameters: kinks by the dozen, and second-order terms that count.
    run = certified_descent(model, X, y, keep=range(21), start_error=size * (1 + 1e-12), largest_error=10.0, **settings)
    shifts = {name: matrix(value) for name, value in shift.items()}
    assert violations(run, ExactDescent(model, X, y, settings["step"], bits=700, shift=shifts)) == []


@pytest.mark.parametrize("small", [True, False], ids=["hessian", "bounds"])
@pytest.mark.parametrize("seed", range(12))
def test_random_runs_with_data_in_balls(seed, small, monkeypatch):
    monkeypatch.setattr(certified_run, "is_small", lambda point: small)
    g = torch.Generator().manual_seed(100 + seed)
    N, d, m = (1 + int(torch.randint(3, (), generator=g)) for _ in range(3))
    size = (1e-12, 1e-8, 1e-5, 1e-3)[seed % 4]
    family = ImplicitReLU if seed % 3 else LinearImplicit
    model, X, y = family.random(d, m, generator=g), normal(g, N, d), normal(g, N)
    exact_model, factor_error = model, 0.0
    if isinstance(model, ImplicitReLU) and seed % 4 < 2:
        gamma = model.gamma * (1 + (size if seed % 2 else -size))
        exact_model, factor_error = (
            model.with_parameters({"gamma": gamma}),
            float((gamma - model.gamma).abs()) * (1 + 1e-12),
        )
    if seed % 2:
        X[0] = 0  # a sample without an input, which the exact one has
    exact_X, exact_y = X + size * normal(g, N, d), y + size * normal(g, N)
    off = tuple(float((a - b).norm()) * (1 + 1e-12) for a, b in ((X, exact_X), (y, exact_y)))
    settings = {"step": 0.05, "steps": 15, "keep": range(16), "largest_error": 10.0}
    run = certified_descent(model, X, y, data_error=off, factor_error=factor_error, **settings)
    assert run.steps > 0, run.reason
    assert violations(run, ExactDescent(exact_model, exact_X, exact_y, 0.05, bits=600)) == []
    without = certified_descent(model, X, y, **settings)
    assert violations(without, ExactDescent(exact_model, exact_X, exact_y, 0.05, bits=600))


@pytest.mark.parametrize("seed", range(8))
def test_a_factor_that_is_known_up_to_rounding(seed):
    model, X, y = drawn("relu", 2, 2, 3, seed, gamma=0.5)
    exact = model.with_parameters({"gamma": model.gamma * (1 + (-1) ** seed * 1e-9)})
    settings = {"step": 0.05, "steps": 20, "keep": range(21)}
    run = certified_descent(model, X, y, factor_error=1e-9, **settings)
    assert run.steps > 0, run.reason
    assert violations(run, ExactDescent(exact, X, y, 0.05, bits=600)) == []
    assert violations(certified_descent(model, X, y, **settings), ExactDescent(exact, X, y, 0.05, bits=600))


def test_weights_that_are_zero_stay_so_where_others_are_known_up_to_rounding():
    model, X, y = theorem_start(3, 4, 6, 2.0, 0)
    start = {"W": 1e-15}
    run = certified_descent(
        model, X, y, step=0.01, steps=10, start_error=start, data_error=(1e-15, 0.0), factor_error=1e-17
    )
    assert run.complete, run.reason
    assert run.errors["A"][0] == 0
    assert run.error[-1] < 1e-12


def test_a_factor_that_is_hardly_known_is_refused():
    model, X, y = drawn("relu", 2, 2, 3, 0, gamma=0.5)
    run = certified_descent(model, X, y, step=0.05, steps=2, factor_error=0.2)
    assert "known to 0.4 of it only" in run.reason


def kink(distance: float) -> tuple[ImplicitReLU, Tensor]:
    """Return a model whose second unit has the pre-activation `distance`/2 at its only sample."""
    of = {"dtype": torch.float64}
    A = torch.tensor([[0.25, distance], [0.0, 0.25]], **of)
    model = ImplicitReLU(W=torch.tensor([[0.875, -1.0]], **of), A=A, b=torch.tensor([1.0, 0.5], **of), gamma=0.5)
    return model, torch.ones(1, 1, **of)


def test_a_kink_stops_a_run_with_a_large_residual():
    model, X = kink(1e-17)
    run = certified_descent(model, X, torch.full((1,), 5.0, dtype=torch.float64), step=0.1, steps=5)
    assert run.steps == 0
    assert not run.complete
    assert run.reason.startswith("a pre-activation of step 0 may be zero (1 of uncertain sign), so that the error")
    assert run.uncertain.tolist() == [1]
    model, X = kink(1e-9)
    assert certified_descent(model, X, torch.full((1,), 5.0, dtype=torch.float64), step=0.1, steps=5).complete


def test_a_kink_is_passed_with_a_small_residual():
    model, X = kink(1e-17)
    run, found = checked(model, X, torch.tensor([1.0 + 1e-9], dtype=torch.float64), step=0.1, steps=5)
    assert run.complete, run.reason
    assert run.uncertain[0] == 1
    assert 1e-11 < run.error[1] < 1e-9
    assert found == []


def test_bounds_that_are_not_worth_much_end_a_run():
    model, X, y = drawn("linear", 4, 4, 8, 3)
    run = certified_descent(model, X, y * 2, step=0.01, steps=500, largest_error=1e-10)
    assert run.reason.startswith("the curvature at step ")
    assert run.error[-1] <= 1e-10
    assert len(run.error) == run.steps + 1 == len(run.growth) + 1


def test_a_contraction_factor_that_may_reach_one_ends_a_run():
    model, X, y = drawn("linear", 2, 2, 3, 0, norm_W=0.95)
    run = certified_descent(model, X, 5 * y, step=0.05, steps=100)
    assert "the contraction factor may be" in run.reason
    assert run.steps < 100
    run = certified_descent(model.with_parameters({"W": 2 * model.W}), X, y, step=0.05, steps=3)
    assert run.reason.startswith("at step 0, the contraction factor may be 1.9")
    assert run.steps == 0
    assert not bool(torch.isfinite(run.error[0]))


def test_a_number_that_is_not_finite_is_refused():
    model, X, y = drawn("linear", 2, 2, 3, 0)
    y[0] = torch.nan
    with pytest.raises(ArgumentError, match="`y` of linear-implicit must be finite"):
        certified_descent(model, X, y, step=0.05, steps=3)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"step": "a"}, "`step` of certified_descent must be a number > 0. Got 'a'"),
        ({"keep": 3}, "`keep` of certified_descent must be a collection"),
        ({"rtol": "a"}, "`rtol` of certified_descent must be a number >= 0. Got 'a'"),
    ],
)
def test_options_that_are_none_are_refused(change, match):
    model, X, y = drawn("linear", 2, 2, 3, 0)
    with pytest.raises(ArgumentError, match=match):
        certified_descent(model, X, y, **{"step": 0.05, "steps": 3, **change})


class Unknown(LinearImplicit):
    """A model that does not say its form."""

    def single_layer(self) -> None:
        return None


def test_a_model_without_a_form_gets_the_reason():
    model, X, y = drawn("linear", 2, 2, 3, 0)
    run = certified_descent(Unknown(**model.parameters()), X, y, step=0.1, steps=3)
    assert run.reason == "the model linear-implicit is no single layer, by whose bounds the run is proven"
    assert run.steps == 0


def test_a_deadline_ends_a_run():
    model, X, y = drawn("linear", 2, 2, 3, 0)
    run = certified_descent(model, X, y, step=0.001, steps=10_000, deadline=time.thread_time() + 0.05)
    assert run.reason == f"the deadline passed at step {run.steps + 1}"
    late = certified_descent(model, X, y, step=0.001, steps=5, deadline=0.0)
    assert late.reason == "the deadline passed at step 0"


def test_every_step_is_reported():
    model, X, y = drawn("relu", 3, 2, 4, 1)
    seen: list[CertifiedStep] = []
    run = certified_descent(model, X, y, step=0.02, steps=12, keep=[0, 12], on_step=seen.append)
    assert [step.index for step in seen] == list(range(13))
    assert [step.error for step in seen] == run.error.tolist()
    assert [list(step.loss) for step in seen] == run.losses.tolist()
    assert set(run.iterates) == {0, 12}
    for name, value in model.parameters().items():
        assert torch.equal(run.iterates[0][name], value)
        assert run.iterates[12][name].shape == value.shape
        assert run.errors[name][12] == seen[12].parameters[name].radius
        norm, (low, high) = float(torch.linalg.norm(run.iterates[12][name], ord=2)), run.norms[name][12].tolist()
        assert low - 1e-12 < norm < high + 1e-12
    last = model.with_parameters(run.iterates[12])
    Z = torch.zeros(3, 4, dtype=torch.float64)
    for _ in range(100):
        Z = last.step(Z, X)
    assert float((seen[12].state.centre - Z).abs().max()) < 1e-12
    loss = float(((Z @ last.b - y) ** 2).sum() / 2)
    assert float((run.losses[12] - loss).abs().max()) < 1e-12
    assert float((run.sigma_min[12] - torch.linalg.svdvals(Z)[-1]).abs().max()) < 1e-10
    assert "steps=12" in repr(run)


def test_float32_models_start_from_their_exact_numbers():
    model, X, y = drawn("relu", 2, 2, 3, 1)
    low = ImplicitReLU(**{name: value.float() for name, value in model.parameters().items()}, gamma=0.3)
    run, found = checked(low, X.float(), y.float(), step=0.05, steps=20)
    assert found == []
    assert run.iterates[20]["A"].dtype is torch.float64
    assert run.error[-1] < 1e-13


def test_the_bound_stays_small_over_a_window_that_intervals_do_not_survive():
    run = certified_descent(*theorem_start(4, 8, 16, 8.0, 2), step=0.005, steps=400)
    assert run.complete, run.reason
    assert run.error[-1] < 1e-12
    assert float(run.growth.log().sum()) < 1.0  # interval arithmetic: 400 times the logarithm of about four


def test_an_uncertain_step_size_widens_the_bounds():
    model, X, y = drawn("linear", 2, 2, 2, 0)
    exact = certified_descent(model, X, y, step=0.02, steps=5)
    wide = certified_descent(model, X, y, step=ct.with_radius(0.02, 1e-9), steps=5)
    assert wide.error[-1] > 1e3 * exact.error[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step": -0.1}, "`step` of certified_descent must be a number > 0. Got -0.1."),
        ({"step": float("nan")}, "`step` of certified_descent must be a number > 0."),
        ({"step": ct.with_radius(0.1, 0.2)}, "`step` of certified_descent must be a number > 0."),
        ({"steps": -1}, "`steps` of certified_descent must be an integer >= 0. Got -1."),
        ({"steps": 1.5}, "`steps` of certified_descent must be an integer >= 0. Got 1.5."),
        ({"start_error": -1.0}, "`start_error` of certified_descent must be a number >= 0. Got -1.0."),
        ({"data_error": (0.0, -1.0)}, "`data_error` of certified_descent must be a number >= 0. Got -1.0."),
        ({"rtol": float("nan")}, "`rtol` of certified_descent must be a number >= 0."),
        ({"share": 1.0}, "`share` of CarriedNorm must lie between 0 and 1. Got 1.0."),
        ({"y": torch.zeros(4, dtype=torch.float64)}, "`y` of linear-implicit must be a vector of length N with N = 2"),
    ],
)
def test_bad_arguments(options, message):
    model, X, y = drawn("linear", 2, 2, 2, 0)
    settings = {"X": X, "y": y, "step": 0.1, "steps": 3, **options}
    with pytest.raises(ArgumentError) as caught:
        certified_descent(model, settings.pop("X"), settings.pop("y"), **settings)
    assert str(caught.value).startswith(message)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_same_on_cuda():
    model, X, y = drawn("relu", 3, 2, 4, 1)
    there = ImplicitReLU(**{name: value.cuda() for name, value in model.parameters().items()}, gamma=float(model.gamma))
    run = certified_descent(there, X.cuda(), y.cuda(), step=0.02, steps=20, keep=range(21))
    run = replace(run, iterates={k: {n: v.cpu() for n, v in p.items()} for k, p in run.iterates.items()})
    assert violations(run, ExactDescent(model, X, y, 0.02, bits=500)) == []
    assert run.error[-1] < 1e-12
