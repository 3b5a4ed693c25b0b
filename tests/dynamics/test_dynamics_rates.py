"""Rates: the robust fit against closed forms, noise and outliers; the kernel's rate against derivatives."""

import math

import pytest
import torch

from ntk_deq.dynamics.rates import instantaneous_rate, measured_rate
from ntk_deq.errors import ArgumentError
from ntk_deq.systems import ImplicitReLU, LinearImplicit
from ntk_deq.systems.solve import loss_gradients, predict


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def line(points: int = 50, rate: float = 0.3) -> tuple[torch.Tensor, torch.Tensor]:
    at = torch.linspace(0, 20, points, dtype=torch.float64)
    return at, 2 * torch.exp(-rate * at)


def small_problem(seed: int = 0) -> tuple[ImplicitReLU, torch.Tensor, torch.Tensor]:
    draw = generator(seed)
    model = ImplicitReLU.random(4, 7, generator=draw)
    X = torch.randn(5, 4, generator=draw, dtype=torch.float64)
    return model, X, torch.randn(5, generator=draw, dtype=torch.float64)


def test_an_exponential_gives_its_rate_and_an_interval_of_no_width() -> None:
    fit = measured_rate(*line())
    assert fit.rate == pytest.approx(0.3, rel=1e-12)
    assert fit.low == pytest.approx(0.3, rel=1e-9)
    assert fit.high == pytest.approx(0.3, rel=1e-9)
    assert fit.low <= fit.rate <= fit.high
    assert (fit.window, fit.points) == ((0.0, 20.0), 50)
    assert fit.residual < 1e-13


@pytest.mark.parametrize("points", [5, 6, 7, 8])
def test_few_points_odd_and_even_numbers_of_pairs(points: int) -> None:
    at, loss = line(points)
    noisy = loss * torch.exp(0.1 * torch.randn(points, generator=generator(), dtype=torch.float64))
    slopes = sorted(
        -float((noisy[j].log() - noisy[i].log()) / (at[j] - at[i])) for i in range(points) for j in range(i + 1, points)
    )
    middle = len(slopes) // 2
    expected = slopes[middle] if len(slopes) % 2 else (slopes[middle - 1] + slopes[middle]) / 2
    fit = measured_rate(at, noisy)
    assert fit.rate == pytest.approx(expected, rel=1e-12)
    assert slopes[0] <= fit.low <= fit.rate <= fit.high <= slopes[-1]


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    at, loss = line(30)
    covered = 0
    for seed in range(200):
        noise = torch.randn(30, generator=generator(seed), dtype=torch.float64)
        fit = measured_rate(at, loss * torch.exp(0.2 * noise))
        covered += fit.low <= 0.3 <= fit.high
    # 190 expected, standard deviation 3.
    assert 180 <= covered <= 199


def test_a_fifth_of_the_points_may_be_anything() -> None:
    at, loss = line(60)
    spoilt = loss.clone()
    spoilt[::5] *= 1e3
    assert measured_rate(at, spoilt).rate == pytest.approx(0.3, rel=0.02)


def test_the_tail_alone_and_windows() -> None:
    at = torch.linspace(0, 40, 81, dtype=torch.float64)
    loss = torch.exp(-2 * at) + 1e-3 * torch.exp(-0.1 * at)
    tail = measured_rate(at, loss, tail=0.5)
    assert measured_rate(at, loss, start=at[20]) == measured_rate(at, loss, start=float(at[20]))
    assert tail.window == (20.0, 40.0)
    assert tail.rate == pytest.approx(0.1, rel=1e-9)
    assert measured_rate(at, loss, start=20.0).rate == pytest.approx(tail.rate, rel=1e-12)
    head = measured_rate(at, loss, stop=2.0)
    assert head.window == (0.0, 2.0)
    assert head.rate == pytest.approx(2.0, rel=0.05)
    whole = measured_rate(at, loss)
    assert whole.residual > 1 > tail.residual  # what a line makes of two rates is not hidden


def test_points_from_the_noise_floor_on_are_left_out() -> None:
    at = torch.arange(200, dtype=torch.float64)
    loss = torch.exp(-0.5 * at)
    loss = loss + 1e-30 * (1 + torch.rand(200, generator=generator(), dtype=torch.float64))
    assert measured_rate(at, loss).rate == pytest.approx(0.5, rel=1e-3)
    assert measured_rate(at, loss, floor=1e-10).window[1] == math.floor(2 * math.log(1e10))
    with_zeros = torch.where(at < 100, loss, torch.zeros(()).double())
    assert measured_rate(at, with_zeros, floor=0.0).window[1] == 99.0


def test_many_points_are_thinned_the_same_way_every_time() -> None:
    at = torch.arange(5000, dtype=torch.float64)
    loss = torch.exp(-1e-3 * at)
    first, second = measured_rate(at, loss), measured_rate(at, loss)
    assert first == second
    assert first.points <= 512
    assert first.window[1] == 4999.0
    assert first.rate == pytest.approx(1e-3, rel=1e-9)


def test_rates_scale_with_time_and_not_with_the_loss() -> None:
    at, loss = line()
    noisy = loss * torch.exp(0.1 * torch.randn(50, generator=generator(), dtype=torch.float64))
    plain, scaled = measured_rate(at, noisy), measured_rate(10 * at, 7 * noisy)
    for name in ("rate", "low", "high"):
        assert getattr(scaled, name) == pytest.approx(getattr(plain, name) / 10, rel=1e-9)
    assert scaled.residual == pytest.approx(plain.residual, rel=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tail": 0.0}, "`tail`"),
        ({"tail": 1.5}, "`tail`"),
        ({"floor": -1.0}, "`floor`"),
        ({"floor": math.nan}, "`floor`"),
        ({"start": 19.0}, "at least 5"),
        ({"floor": 10.0}, "at least 5"),
    ],
)
def test_options_out_of_range(change: dict[str, float], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        measured_rate(*line(), **change)


def test_records_that_are_none() -> None:
    at, loss = line()
    with pytest.raises(ArgumentError, match="one length"):
        measured_rate(at, loss[:-1])
    with pytest.raises(ArgumentError, match="increasing"):
        measured_rate(at.flip(0), loss)
    with pytest.raises(ArgumentError, match=">= 0"):
        measured_rate(at, -loss)
    with pytest.raises(ArgumentError, match="finite"):
        measured_rate(at, loss * math.nan)
    with pytest.raises(ArgumentError, match="Got 0"):
        measured_rate(at[:0], loss[:0])


@pytest.mark.parametrize("seed", range(3))
def test_the_kernels_rate_is_the_gradients_square_over_the_loss(seed: int) -> None:
    model, X, y = small_problem(seed)
    gradients = loss_gradients(model, X, y)
    loss = (predict(model, X) - y).square().sum() / 2
    expected = sum(float(gradient.square().sum()) for gradient in gradients.values()) / float(loss)
    assert instantaneous_rate(model, X, y) == pytest.approx(expected, rel=1e-9)


def test_a_small_step_lowers_the_loss_at_the_kernels_rate() -> None:
    model, X, y = small_problem()
    step = 1e-7
    gradients = loss_gradients(model, X, y)
    moved = {name: value - step * gradients[name] for name, value in model.parameters().items()}
    before, after = (float((predict(model, X, p) - y).square().sum()) for p in (None, moved))
    assert instantaneous_rate(model, X, y, step=step) == pytest.approx(math.log(before / after), rel=1e-4)
    assert instantaneous_rate(model, X, y, step=step) == pytest.approx(step * instantaneous_rate(model, X, y), rel=1e-4)


def test_other_parameters_take_the_place_of_the_models_own() -> None:
    model, X, y = small_problem()
    values = {"b": 2 * model.b, "A": model.A / 2}
    moved = ImplicitReLU(W=model.W, A=values["A"], b=values["b"], gamma=model.gamma)
    assert instantaneous_rate(model, X, y, values) == instantaneous_rate(moved, X, y)
    with pytest.raises(ArgumentError, match="gamma"):
        instantaneous_rate(model, X, y, {"gamma": torch.tensor(0.1).double()})


def test_no_residual_has_no_rate_and_a_perfect_step_an_infinite_one() -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    model = LinearImplicit(W=0 * one, U=one, b=one[0])  # H = 1 + 1 + 1, yhat = 1
    assert math.isnan(instantaneous_rate(model, one, one[0]))
    assert instantaneous_rate(model, one, 0 * one[0], step=1 / 2) == pytest.approx(math.log(4))
    assert instantaneous_rate(model, one, 0 * one[0], step=1 / 3) > 60
    for step in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ArgumentError, match="`step`"):
            instantaneous_rate(model, one, 0 * one[0], step=step)


@pytest.mark.parametrize("seed", range(20))
def test_the_whole_window_has_every_point(seed: int) -> None:
    """last - 1.0 (last - first) may be rounded above the first place."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(20):
        at = 10 * torch.rand(5, generator=generator, dtype=torch.float64).sort().values
        fit = measured_rate(at, torch.exp(-at))
        assert (fit.points, fit.window[0]) == (5, float(at[0]))


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (torch.tensor(1.0, dtype=torch.float64), "`y` of linear-implicit must be a vector of length N. Got shape"),
        (torch.ones(1, dtype=torch.float64), "N = 3"),
        (torch.ones(3, 1, dtype=torch.float64), "must be a vector of length N"),
        (torch.ones(3), "must have the dtype of `W`"),
    ],
)
def test_targets_that_do_not_fit_have_no_rate(y: torch.Tensor, said: str) -> None:
    model = LinearImplicit.random(3, 4, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ArgumentError, match=said):
        instantaneous_rate(model, torch.eye(3, dtype=torch.float64), y)


def test_numbers_that_are_none() -> None:
    model, X = (
        LinearImplicit.random(3, 4, generator=torch.Generator().manual_seed(0)),
        torch.eye(3, dtype=torch.float64),
    )
    with pytest.raises(ArgumentError, match=r"`step` of instantaneous_rate must be a number > 0. Got 'a'"):
        instantaneous_rate(model, X, X[0], step="a")
    with pytest.raises(ArgumentError, match=r"`loss` of measured_rate must be a tensor. Got list"):
        measured_rate(torch.arange(6.0), [1.0] * 6)
