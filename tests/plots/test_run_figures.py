"""Figures of training runs: what is drawn, whole files, and that nothing of matplotlib's state is changed."""

from __future__ import annotations

import builtins
import dataclasses
import itertools
import math
import warnings

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from training_samples import broken_record, even_times, short_window, training_record

from ntk_deq import plots
from ntk_deq.dynamics import Recorder, every, on_condition, train
from ntk_deq.dynamics.record import RunStatus, Series, Snapshot, TrainingRun
from ntk_deq.errors import ArgumentError
from ntk_deq.plots import file_stem, rates_figure, rates_height, run_figure, save_figure
from ntk_deq.plots.panels import _apart
from ntk_deq.plots.style import MissingPlotsError, escaped, inequality_label, math_text
from ntk_deq.report.curves import share_curves
from ntk_deq.systems import ImplicitReLU, LinearImplicit
from ntk_deq.verify.results import Curve, Rate

mpl.use("agg")


@pytest.fixture
def ax():
    return Figure(figsize=(85 / 25.4, 2.1)).subplots()


@pytest.fixture(autouse=True)
def no_figures_left():
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def texts(ax):
    """What is written in and beside a panel, and the lines above it."""
    return [text.get_text() for text in ax.texts if text.get_text()] + ax.get_title("left").splitlines()


def trained(**more):
    """A run of a notebook: W turns and shrinks, b grows."""
    at = torch.arange(0.0, 60.0, dtype=torch.float64)
    start = {"W": torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64)), "b": torch.zeros(2, dtype=torch.float64)}
    snapshots = tuple(
        Snapshot(k, {"W": start["W"] * (1 - k / 120), "b": start["b"] + k / 60}, 0.5 * 0.9**k, {}, 0.05 * k)
        for k in (0.0, 20.0, 59.0)
    )
    fields = {
        "method": "gradient-descent", "step": 0.1, "status": RunStatus.LOSS_FLOOR, "steps": 59, "end": 59.0,
        "snapshots": snapshots, "series": {"loss": Series(at, 0.5 * 0.9**at)}, "forward_iterations": 9.0,
        "adjoint_iterations": 8.0, "evaluations": 60, "seconds": 0.1, "error": None,
        "settings": {"model": "implicit-relu"},
    }  # fmt: skip
    return TrainingRun(**(fields | more))


# -- the loss ---------------------------------------------------------------------------------------------------------


def test_the_loss_and_its_bound_are_drawn_on_a_logarithmic_axis(ax):
    record = training_record()
    assert plots.convergence(record, ax) is ax
    bound, loss, end = ax.lines
    assert ax.get_yscale() == "log"
    assert ax.get_xscale() == "linear"  # on which linear convergence is a straight line, however the steps are spread
    np.testing.assert_allclose(loss.get_ydata(), record.loss)
    np.testing.assert_allclose(bound.get_ydata(), record.curves[-1].bound)
    assert (loss.is_dashed(), bound.is_dashed()) == (False, True)
    assert (end.get_xdata()[0], end.get_ydata()[0]) == (record.at[-1], record.loss[-1])
    assert {"measured", "bound"} <= set(texts(ax))
    assert ax.get_title("left").splitlines() == [
        r"predicted rate $1.2\times 10^{-3}$ per step of size $1.0\times 10^{-3}$",
        r"measured rate $4.1\,(4.0\ \mathrm{to}\ 4.2)\times 10^{-3}$ per step",
        "measured / predicted $3.4$; stopped at $k$ = $5000$: loss floor",
    ]


def test_even_times_get_an_even_axis(ax):
    plots.convergence(training_record(method="gradient-flow", at=even_times(50.0)), ax)
    assert ax.get_xscale() == "linear"
    assert ax.get_xlabel() == "time $t$"
    assert ax.get_xlim() == (0.0, 50.0)
    assert any("per unit of time" in text for text in texts(ax))


def test_the_band_of_the_judged_balls_is_shaded(ax):
    record = broken_record()
    plots.convergence(record, ax)
    (band,) = ax.collections
    vertices = band.get_paths()[0].vertices
    np.testing.assert_allclose(vertices[:, 1].min(), 0.8 * record.loss[0])
    np.testing.assert_allclose(vertices[:, 1].max(), 1.25 * record.loss[-1])


def test_a_window_far_too_short_shows_its_decrease(ax):
    plots.convergence(short_window(), ax)
    assert ax.get_ylabel().startswith("decrease")
    assert ax.get_xscale() == "symlog"
    bound, loss, _ = ax.lines
    assert loss.get_ydata()[-1] == pytest.approx(-math.expm1(-2.6e-7 * 20_000))
    assert loss.get_ydata()[-1] > bound.get_ydata()[-1]


def test_a_bound_of_ones_own(ax):
    record = training_record(predicted=None)
    plots.convergence(record, ax, bound=2e-3)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [0.7 * math.exp(-2e-3 * at) for at in record.at])
    other = Figure().subplots()
    plots.convergence(training_record(), other, bound=lambda k: 1.0 / (1.0 + k))
    np.testing.assert_allclose(other.lines[0].get_ydata(), [1.0 / (1.0 + at) for at in record.at])
    assert not any("predicted" in text for text in texts(other))


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan, math.inf, pytest.param(10**400, id="10^400"), "fast"])
def test_a_bound_that_is_none(ax, bound):
    with pytest.raises(ArgumentError, match=r"`bound` must be a rate > 0 or a function"):
        plots.convergence(training_record(), ax, bound=bound)


def test_runs_without_a_bound_a_fit_or_a_second_point_are_drawn(ax):
    plots.convergence(training_record(predicted=None, measured=None), ax)
    plots.convergence(training_record(at=(0.0,)), Figure().subplots())
    zero = dataclasses.replace(training_record(at=(0.0, 1.0)), loss=(0.0, 0.0))
    plots.convergence(zero, Figure().subplots())


def test_a_ball_down_to_zero_and_one_without_an_end(ax):
    record = training_record(at=(0.0, 1.0, 2.0, 3.0))
    low, high = (0.0, -1.0, -math.inf, 0.1), (1.0, 1.0, math.inf, 1.0)
    curve = dataclasses.replace(record.curves[-1], low=low, high=high)
    plots.convergence(dataclasses.replace(record, curves=(curve,)), ax)
    ax.get_figure().draw_without_rendering()


# -- shares of bounds and distances -----------------------------------------------------------------------------------


def test_norms_are_shares_of_their_bounds(ax):
    record = training_record()
    plots.norms(record, ax)
    at_one, *lines = ax.lines
    assert set(at_one.get_ydata()) == {1.0}
    assert len(lines) == 4
    np.testing.assert_allclose(lines[0].get_ydata()[[0, -1]], [1.7 / 2.2, 1.83 / 2.2], rtol=1e-3)
    assert ax.get_yscale() == "log"
    assert r"$\Vert W\Vert \leq \lambda_{1}$: $0.832$" in texts(ax)
    assert r"$\sigma_{\min}(Z) \geq \alpha_{0}/2$: $0.577$" in texts(ax)


def test_many_curves_are_told_apart_and_a_share_just_below_one_is_not_one(ax):
    record = training_record(at=(0.0, 1.0))
    row = (1 - 1e-9,) * 2
    curves = tuple(Curve(f"({i})", f"norm(W[k]) <= C{i}", row, row, (1.0,) * 2, "<=") for i in range(9))
    plots.norms(dataclasses.replace(record, curves=curves), ax)
    looks = {(line.get_color(), str(line._dash_pattern)) for line in ax.lines[1:]}
    assert len(looks) == 9
    assert r"$\Vert W\Vert \leq C_{1}$: $0.9999…$" in texts(ax)


def test_what_breaks_its_bound_rises_above_one(ax):
    plots.norms(broken_record(), ax)
    assert ax.lines[1].get_ydata()[-1] == pytest.approx(2.9 / 2.2)
    assert ax.get_ylim()[1] > 2.9 / 2.2


def test_small_shares_are_told_apart_and_infinite_ones_leave_through_the_top(ax):
    record = training_record(at=(0.0, 1.0, 2.0))
    small = Curve("(i)", "norm(W[k]) <= lam1", (1e-4, 2e-4, 3e-4), (1e-4, 2e-4, 3e-4), (1.0,) * 3, "<=")
    plots.norms(dataclasses.replace(record, curves=(small,)), ax)
    assert ax.get_ylim()[0] < 1e-4 < 1.0 < ax.get_ylim()[1]
    assert r"$\Vert W\Vert \leq \lambda_{1}$: $3.0\times 10^{-4}$" in texts(ax)
    lost = dataclasses.replace(small, low=(1.0, 0.5, 0.0), high=(1.0, 0.5, 0.0), bound=(0.5,) * 3, sense=">=")
    other = Figure().subplots()
    plots.norms(dataclasses.replace(record, curves=(lost,)), other)
    assert other.lines[1].get_ydata()[-1] > other.get_ylim()[1]
    assert any(text.endswith(r": $\infty$ ↑") for text in texts(other))
    tiny = dataclasses.replace(small, low=(1e-9,) * 3, high=(1e-9,) * 3)
    third = Figure().subplots()
    plots.norms(dataclasses.replace(record, curves=(small, tiny)), third)
    assert third.get_ylim()[0] > 1e-5
    assert any(text.endswith(r": $1.0\times 10^{-9}$ ↓") for text in texts(third))


def test_a_ball_too_wide_to_tell_is_no_breach_and_a_curve_off_the_axis_does_not_stretch_it(ax):
    record = training_record(at=(0.0, 1.0, 2.0))
    wide = Curve("W", "norm(W[k]) <= lam1", (0.0,) * 3, (0.0, 382.0, 382.0), (1.0,) * 3, "<=")
    tiny = Curve("A", "norm(A[k]) <= lam2", (1e-9,) * 3, (1e-9,) * 3, (1.0,) * 3, "<=")
    plots.norms(dataclasses.replace(record, curves=(wide, tiny)), ax)
    assert np.nanmax(ax.lines[1].get_ydata()) == 0.0
    assert 0.05 < ax.get_ylim()[0] < ax.get_ylim()[1] < 2.0
    assert r"$\Vert W\Vert \leq \lambda_{1}$: $0$ to $382$" in texts(ax)


def test_before_each_label_stands_a_piece_of_its_curve(ax):
    plots.norms(training_record(), ax)
    drawn = {(line.get_color(), str(line._dash_pattern[1])) for line in ax.lines}
    pieces = [text.arrow_patch for text in ax.texts if text.get_text() == "" and text.arrow_patch.get_linewidth() > 1]
    assert len(pieces) == len(texts(ax)) == 5
    assert {mpl.colors.to_hex(piece.get_edgecolor()) for piece in pieces} == {color for color, _ in drawn}
    assert len({str(piece.get_linestyle()) for piece in pieces}) == 5


@pytest.mark.parametrize("draw", [plots.convergence, plots.norms, plots.paths])
def test_a_series_of_one_point_is_a_dot(ax, draw):
    draw(training_record(at=(0.0,)), ax)
    dots = [line for line in ax.lines if line.get_marker() == "o" and len(line.get_xdata()) == 1]
    assert len(dots) >= 2


def test_a_point_between_two_gaps_is_a_dot(ax):
    record = training_record(at=(0.0, 1.0, 2.0, 3.0))
    bound = (math.nan, 0.5, math.nan, math.nan)
    plots.convergence(dataclasses.replace(record, curves=(dataclasses.replace(record.curves[-1], bound=bound),)), ax)
    assert [(list(line.get_xdata()), list(line.get_ydata())) for line in ax.lines[1:2]] == [
        ([1.0], [pytest.approx(1 - 0.5 / 0.7)])
    ]


def test_a_curve_without_a_bound_is_named_and_steps_that_were_not_judged_are_bridged(ax):
    record = training_record(at=(0.0, 1.0, 2.0))
    gap = Curve("(i)", "norm(W[k]) <= lam1", (1.0, math.nan, 1.0), (1.0, math.nan, 1.0), (2.0, math.nan, 2.0), "<=")
    none = Curve("(ii)", "norm(A[k]) <= lam2", (0.0,) * 3, (0.0,) * 3, (0.0,) * 3, "<=")
    plots.norms(dataclasses.replace(record, curves=(gap, none)), ax)
    assert list(ax.lines[1].get_xdata()) == [0.0, 2.0]
    assert "no share of its bound: (ii)" in texts(ax)


def test_paths(ax):
    record = training_record()
    plots.paths(record, ax)
    assert [text for text in texts(ax)] == ["path length", "$W$", "$A$", "$b$"]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), record.path_length)


# -- runs of a notebook -----------------------------------------------------------------------------------------------


def test_a_training_run_is_drawn_with_its_fitted_rate(ax):
    plots.convergence(trained(), ax, bound=0.05)
    assert any("measured rate $0.105$" in text for text in texts(ax))
    np.testing.assert_allclose(ax.lines[1].get_ydata(), 0.5 * 0.9 ** np.arange(60.0))


def test_the_norms_of_a_training_run_with_and_without_bounds(ax):
    plots.norms(trained(), ax)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [3.0, 2.5, 3 * (1 - 59 / 120)])
    np.testing.assert_allclose(ax.lines[1].get_ydata(), [math.sqrt(2) * k / 60 for k in (0, 20, 59)], atol=1e-15)
    other = Figure().subplots()
    plots.norms(trained(), other, bounds={"W": 4.0})
    np.testing.assert_allclose(other.lines[1].get_ydata()[0], 0.75)
    assert any(text.startswith(r"$\Vert W\Vert \leq 4$: ") for text in texts(other))


def test_the_path_of_a_training_run(ax):
    plots.paths(trained(step=None, method="gradient-flow"), ax)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [0.0, 1.0, 2.95])
    np.testing.assert_allclose(ax.lines[1].get_ydata()[-1], 59 / 120 * math.sqrt(10))
    assert ax.get_xlabel() == "time $t$"


def test_a_whole_figure_of_a_run():
    assert [len(ax.lines) for ax in plots.plot_run(trained(), bounds={"W": 4.0})] == [2, 2]
    assert len(plots.plot_run(training_record())[1].lines) == 5
    assert len(plots.plot_run(training_record(curves=()))[1].lines) == 4
    assert [len(ax.lines) for ax in trained().plot()] == [2, 3]


def linear_run(**options):
    """A run of the linear network with one weight each."""
    one = torch.ones(1, 1, dtype=torch.float64)
    model = LinearImplicit(W=one / 2, U=one, b=one[0])
    return train(model, one, 3 * one[0], progress=False, **{"until": 0.0, **options})


LENGTHS = (0, 1, 2, 3, 57, 90, 100, 400)
HORIZONS = (1e-6, 1e-3, 1.0)


def test_a_flow_whose_steps_are_even_has_an_even_axis_in_both_panels():
    generator = torch.Generator().manual_seed(0)
    model = ImplicitReLU.random(d=3, m=4, generator=generator)
    X, y = torch.eye(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    run = train(model, X, y, method="gradient-flow", horizon=1.0, progress=False)
    upper, lower = run.plot()
    assert (upper.get_xscale(), lower.get_xscale()) == ("linear", "linear")
    assert plots.paths(run).get_xscale() == "symlog"


@pytest.mark.parametrize(
    "options",
    [{"step": 1e-4, "steps": steps} for steps in LENGTHS]
    + [{"method": "gradient-flow", "horizon": horizon, "tolerance": 1e-6} for horizon in HORIZONS],
    ids=str,
)
def test_runs_of_any_length_are_drawn_on_one_axis_for_both_panels(options):
    run = linear_run(**options)
    for bounds in (None, {"W": 4.0}):
        upper, lower = plots.plot_run(run, bounds=bounds)
        upper.get_figure().draw_without_rendering()
        assert upper.get_xscale() == lower.get_xscale()
        assert upper.get_xlim() == lower.get_xlim() == (0.0, run.end or 1.0)
        assert upper.get_xscale() == plots.convergence(run, Figure().subplots()).get_xscale()


def test_panels_of_ones_own_that_share_their_axis_have_the_scale_of_the_last():
    run = linear_run(step=1e-4, steps=300)
    panels = Figure().subplots(3, sharex=True)
    scales = ((plots.norms, "symlog"), (plots.convergence, "linear"), (plots.paths, "symlog"))
    for panel, (draw, scale) in zip(panels, scales, strict=True):
        draw(run, panel)
        panel.get_figure().draw_without_rendering()
        assert {other.get_xscale() for other in panels} == {scale}


def test_a_loss_recorded_at_few_steps_leaves_room_for_the_snapshots():
    loss = Recorder("loss", lambda seen: seen.point.loss_value, every(40))
    run = linear_run(step=1e-4, steps=100, record=[loss])
    assert run["loss"].at[-1] == 80
    upper, lower = run.plot()
    assert upper.get_xlim() == lower.get_xlim() == (0.0, 100.0)


def test_a_slice_is_drawn_from_where_it_starts():
    run = linear_run(step=1e-4, steps=1000)
    upper, lower = run[30:].plot()
    assert upper.get_xlim() == lower.get_xlim() == (30.0, 1000.0)
    assert [line.get_ydata()[0] for line in lower.lines] == [0.0] * 4
    assert any("stopped at $k$ = $1000$" in text for text in texts(run.plot()[0]))
    bounded = plots.convergence(run[30:], bound=0.01)
    bound, loss = (line for line in bounded.lines if len(line.get_ydata()) > 2)
    assert bound.get_ydata()[0] == loss.get_ydata()[0] == run[30:].snapshots[0].loss
    assert bound.get_ydata()[-1] == pytest.approx(loss.get_ydata()[0] * math.exp(-0.01 * 970))
    assert not any("stopped" in text for text in texts(upper))
    spread = training_record(at=(3.0, 10.0, 30.0, 100.0, 3000.0))
    plots.norms(spread, upper)
    assert (upper.get_xscale(), upper.get_xlim(), upper.get_xticks()[0]) == ("symlog", (3.0, 3000.0), 10.0)


@pytest.mark.parametrize(
    "bound",
    [
        1e300,
        lambda k: 1e-310,
        lambda k: math.exp(min(k, 709)),
        lambda k: 10.0 ** max(308 - 1.1 * k, -320),
        lambda k: math.inf,
        lambda k: math.nan,
        lambda k: 0.0,
    ],
)
def test_a_bound_of_any_size_is_drawn_as_far_as_there_are_numbers(ax, bound):
    run = linear_run(step=1e-4, steps=800)
    for drawn in (plots.convergence(run, ax, bound=bound), plots.plot_run(run, bound=bound)[0]):
        drawn.get_figure().draw_without_rendering()
        low, high = drawn.get_ylim()
        assert 1e-305 <= low < run.loss < run.snapshots[0].loss < high <= 1e305
        assert 2 <= sum(low <= tick <= high for tick in drawn.get_yticks()) <= 9


@pytest.mark.parametrize(
    ("bound", "label"),
    [
        (lambda k: 10.0 ** max(-k, -300), r"bound ↓ $1\times 10^{-300}$"),
        (lambda k: 1e80, r"bound ↑ $1\times 10^{80}$"),
    ],
)
def test_a_bound_of_hundreds_of_decades_does_not_flatten_the_loss(ax, bound, label):
    record = training_record()
    plots.convergence(record, ax, bound=bound)
    low, high = map(math.log10, ax.get_ylim())
    assert math.log10(record.loss[0] / record.loss[-1]) > 0.4 * (high - low)
    assert label in texts(ax)


def test_a_lone_share_of_zero_does_not_blow_up_the_figure():
    record = training_record(at=(0.0, 1.0, 2.0, 3.0))
    zero = Curve("(i)", "norm(W[k]) <= lam1", *(((0.0, math.nan, 0.1, 0.2),) * 2), (1.0,) * 4, "<=")
    gone = Curve("(ii)", "norm(A[k]) <= lam2", *(((0.1, math.nan, 0.0, math.nan),) * 2), (1.0,) * 4, "<=")
    figure = run_figure(dataclasses.replace(record, curves=(zero, gone)), claim="R")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.draw_without_rendering()
    assert figure.get_tightbbox().y0 > -0.01


def test_no_text_covers_a_curve():
    for record in (training_record(), short_window(), broken_record(), training_record(curves=())):
        for ax in plots.plot_run(record):
            ax.get_figure().draw_without_rendering()
            panel = ax.get_window_extent()
            for text in (*ax.texts, *ax.get_figure().texts, ax._left_title, ax.title):
                if text.get_text():
                    box = text.get_window_extent()
                    assert box.x0 >= panel.x1 or box.y0 >= panel.y1, text


@pytest.mark.parametrize("exponent", [-300, -290, 290, 300])
def test_a_loss_near_the_ends_of_float64_is_drawn(ax, exponent):
    series = {"loss": Series(torch.arange(3.0), torch.tensor([1.0, 0.3, 0.1], dtype=torch.float64) * 10.0**exponent)}
    plots.convergence(trained(series=series), ax)
    ax.get_figure().draw_without_rendering()
    assert ax.get_ylim()[0] < 0.99 * 10.0**exponent
    assert ax.get_ylim()[1] > 0.99 * 10.0**exponent


@pytest.mark.parametrize("draw", [plots.convergence, lambda run: plots.convergence(run, bound=1.0), TrainingRun.plot])
def test_a_loss_at_no_step_cannot_be_drawn(draw):
    never = Recorder("loss", lambda seen: seen.point.loss_value, on_condition(lambda seen: False))
    run = linear_run(step=1e-4, steps=10, record=[never])
    from matplotlib import pyplot

    with pytest.raises(ArgumentError, match="Its series 'loss' is empty"):
        draw(run)
    assert not pyplot.get_fignums()
    with pytest.raises(ArgumentError, match="a run with a rate"):
        plots.rates([run])
    double = Recorder("loss", lambda seen: torch.ones(2, dtype=torch.float64))
    with pytest.raises(ArgumentError, match=r"must hold one number a step. Got tensors of the shape \[2\]"):
        draw(linear_run(step=1e-4, steps=10, record=[double]))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: plots.convergence([1.0, 0.5]), "must be a TrainingRun or a TrainingRecord. Got list"),
        (lambda: plots.norms({}), "Got dict"),
        (lambda: plots.norms(trained(), bounds={"w": 1.0}), "must name parameters: W, b. Got 'w'"),
        (lambda: plots.norms(trained(), bounds={"W": 0.0}), "must be numbers > 0. Got 0.0 for 'W'"),
        (lambda: plots.norms(trained(), bounds={"W": "3"}), "must be numbers > 0. Got '3' for 'W'"),
        (lambda: plots.norms(trained(), bounds={}), "at least one. Got {}"),
        (lambda: plots.norms(trained(), bounds=[3]), "by name of a parameter, at least one. Got \\[3\\]"),
        (lambda: plots.convergence(trained(), bound=lambda k: "x"), "`bound` must return numbers. Got 'x'"),
        (lambda: plots.norms(training_record(), bounds={"W": 1.0}), "is for a TrainingRun"),
        (lambda: plots.convergence(trained(series={})), "recorded no 'loss'"),
        (lambda: plots.rates([]), "must hold a run with a rate > 0"),
        (lambda: plots.rates([training_record()], names=["a", "b"]), "one entry for each of the 1 records. Got 2"),
    ],
)
def test_arguments_that_cannot_be_drawn(call, said):
    with pytest.raises(ArgumentError, match=said):
        call()


def test_nothing_of_matplotlib_is_changed_or_shown(monkeypatch):
    from matplotlib import pyplot

    monkeypatch.setattr(pyplot, "show", lambda *a, **k: pytest.fail("show"))
    before = dict(mpl.rcParams)
    new = plots.convergence(training_record())
    plots.rates([training_record()])
    assert dict(mpl.rcParams) == before
    assert new.get_figure().get_figwidth() == pytest.approx(85 / 25.4)


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingPlotsError, match='"matplotlib'):
        plots.convergence(training_record())


# -- rates ------------------------------------------------------------------------------------------------------------


def marks(ax, name):
    """The numbers at which marks of a kind stand."""
    return [float(line.get_xdata()[0]) for line in ax.lines if line.get_marker() == "o" and MARKS[name](line)]


MARKS = {
    "predicted": lambda line: line.get_markerfacecolor() == "white",
    "measured": lambda line: line.get_markerfacecolor() != "white",
}


def test_rates_per_step_and_per_time_have_an_axis_each():
    descent = dataclasses.replace(training_record(rate=0.0255, predicted=0.0182), step=0.01, instantaneous=())
    flow = training_record(method="gradient-flow", rate=1.82, predicted=0.7, at=even_times(8.0))
    steps, times = plots.rates([flow, descent], names=["a", "b"])
    assert steps.get_xlabel() == "rate of the loss per step"
    assert times.get_xlabel() == "rate of the loss per unit of time"
    assert marks(steps, "measured") == pytest.approx([0.0255])
    assert marks(steps, "predicted") == pytest.approx([0.0182])
    assert marks(times, "measured") == pytest.approx([1.82])
    assert marks(times, "predicted") == pytest.approx([0.7])
    written = [text.get_text() for text in (*steps.texts, *times.texts)]
    assert written == ["measured/\npredicted", "$1.4$", "step", "$0.01$", "measured/\npredicted", "$2.6$"]
    panels = Figure().subplots(2)
    assert plots.rates([flow, descent], panels) == tuple(panels)
    assert rates_figure([("a", flow), ("b", descent)]).axes[0].get_xlabel() == "rate of the loss per step"
    with pytest.raises(ArgumentError, match=r"must be 2 axes for runs of both kinds, .* Got 1\."):
        plots.rates([flow, descent], Figure().subplots())
    with pytest.raises(ArgumentError, match=r"must be 1 axes for runs of one kind\. Got 2\."):
        plots.rates([flow], Figure().subplots(2))


def test_rates_without_any_mark_are_left_out(ax):
    slow = training_record(measured=None, instantaneous=())
    unknown = dataclasses.replace(training_record(), step=None, method="gradient-descent")
    left = [training_record(predicted=None, measured=None)]
    plots.rates([training_record(), slow, *left, unknown], ax, names=["a", "b", "c", "d"])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b", "d"]


def test_the_key_names_only_what_is_drawn(ax):
    def key(*records):
        panel = Figure().subplots()
        plots.rates(list(records), panel)
        return [text.get_text() for text in panel.get_legend().get_texts()]

    bare = training_record(instantaneous=())
    assert key(training_record()) == ["predicted", "measured", "kernel"]
    assert key(bare) == ["predicted", "measured"]
    assert key(dataclasses.replace(bare, measured=None)) == ["predicted"]
    assert key(dataclasses.replace(bare, predicted=None)) == ["measured"]


def test_a_rate_that_is_not_positive_is_left_out_and_its_interval_cut(ax):
    wide = dataclasses.replace(training_record(), measured=Rate(1e-3, -1e-3, 3e-3))
    growing = dataclasses.replace(training_record(), measured=Rate(-1e-2, -2e-2, -1e-3))
    endless = dataclasses.replace(training_record(), measured=Rate(1e-3, -math.inf, math.inf))
    plots.rates([wide, growing, endless], ax)
    ax.get_figure().draw_without_rendering()
    low, high = ax.get_xlim()
    assert all(low <= x <= high for line in ax.lines for x in line.get_xdata() if x not in (0, 1))
    plots.convergence(endless, Figure().subplots())


def row_labels(ax, *names):
    plots.rates([training_record()] * len(names), ax, names=names)
    return [label.get_text() for label in ax.get_yticklabels()]


def test_a_long_name_takes_two_lines(ax):
    claim = "R.T4.4.linear-rate-of-descent"
    names = [f"{claim}, scaled-random {i}{role}" for i in (0, 10) for role in (", window", ", continuation")]
    assert row_labels(ax, "R.T4.2, tiny 0", *names) == ["R.T4.2, tiny 0", *(n.replace(", ", ",\n", 1) for n in names)]


def test_rows_with_two_lines_are_further_apart():
    def height(name):
        return rates_height([(name, training_record())] * 5)

    assert height("R.T4.4.linear-rate-of-descent, scaled-random 0") > height("R.T4.2, tiny 0")


def test_what_is_left_of_a_name_is_whole_words(ax):
    claims = [f"R.T4.2.mutant-no-conditions-at-all-and-{what}-whatever-else" for what in ("this", "that")]
    setting = "a_setting_of_many_words_that_were_better_fewer 3"
    labels = row_labels(ax, *(f"{claim}, {setting}{role}" for claim in claims for role in ("", ", continuation")))
    assert len(set(labels)) == 4
    for label, claim in zip(labels, (name for name in claims for _ in range(2)), strict=True):
        first, second = label.split("\n")
        assert max(len(first), len(second)) <= 38
        assert claim.split("-and-")[1].split("-")[0] in first
        assert second.endswith(("3", "3, continuation"))
        for line, whole in ((first, f"{claim},"), (second, setting)):
            head, _, tail = line.partition("…")
            before, after = whole[len(head) - 1 : len(head) + 1], whole.rpartition(tail.strip())[0]
            assert not before.isalnum()
            assert not after[-1:].isalnum()


def test_a_name_of_one_long_word_loses_its_middle(ax):
    (label,) = row_labels(ax, "x" * 30 + "y" * 30)
    assert label == "x" * 17 + "…" + "y" * 17


# -- labels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("norm(W[k]) <= lam1", r"$\Vert W\Vert \leq \lambda_{1}$"),
        ("norm(ZZ[k]) <= 2*Jb", r"$\Vert \mathrm{ZZ}\Vert \leq 2\,\mathrm{Jb}$"),
        ("fro(W[k] - W[0]) <= C1", r"$\Vert W - W(0)\Vert_F \leq C_{1}$"),
        ("lam1 >= norm(W[k])", r"$\Vert W\Vert \leq \lambda_{1}$"),
        ("path_length[k] <= 2*sqrt(L[0]/mu)", r"$\ell \leq \mathrm{bound}$"),
        ("norm(yhat[k])^2 <= 4", r"${\Vert \hat{y}\Vert}^{2} \leq 4$"),
        ("norm(W[k]) <= C1 + C2 + lam1 + lam2 + lam3 + gamma0", r"$\Vert W\Vert \leq \mathrm{bound}$"),
        ("trace(W[k]) <= c", "trace(W[k]) <= …"),
        ("norm(W[k] <=", "(i)"),
    ],
)
def test_curves_are_named_by_their_inequalities(text, label):
    curve = Curve("(i)", text, (1.0,), (1.0,), (2.0,), "<=")
    (share,) = share_curves(dataclasses.replace(training_record(at=(0.0,)), curves=(curve,)))
    assert inequality_label(share) == label


def test_every_label_is_mathtext_that_matplotlib_reads(ax):
    from matplotlib.mathtext import MathTextParser

    from ntk_deq.language.parser import parse

    samples = [
        "sigma_min(Z[k])",
        "(a + b)/(c*d)",
        "alpha0^2/4",
        "-x",
        "Za",
        "A_min_0",
        "lambda_max(H[t])*2",
        "1e-3",
        "a - (b - c)",
    ]
    for sample in samples:
        text = math_text(parse(sample))
        if text is not None:
            MathTextParser("agg").parse(f"${text}$")


def test_dollars_are_text(ax):
    ax.set_title(escaped("a $x$ and a \\$ and 5$"))
    ax.get_figure().draw_without_rendering()


@pytest.mark.parametrize("wanted", [[0.5], [0.1, 0.9], [0.5, 0.5, 0.5], [0.0, 0.05, 0.1, 0.9], [1.0, 0.99, 0.2, 0.21]])
def test_labels_keep_apart_in_their_order(wanted):
    places = _apart(wanted, 0.1)
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    gaps = [places[b] - places[a] for a, b in itertools.pairwise(order)]
    assert all(gap >= 0.1 - 1e-12 for gap in gaps)
    if len(wanted) < 3:
        assert places == wanted


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["pdf", "png", "svg"])
def test_the_same_run_gives_the_same_bytes(tmp_path, ending):
    files = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        figure = run_figure(training_record(), claim="R.T4.4", title="Gradient descent converges linearly")
        files += save_figure(figure, tmp_path / folder / "run", [ending])
    first, second = (file.read_bytes() for file in files)
    assert first == second
    assert b"CreationDate" not in first
    assert b"<dc:date>" not in first


def test_a_figure_is_one_column_wide_and_nothing_sticks_out():
    long = "A theorem with a title that is much too long for one line of one column of any paper that was ever printed"
    records = (training_record(), short_window(), broken_record(), training_record(curves=(), setting="long-" * 30))
    for record, title in zip(records, (long, long.upper(), "A b c " * 40, "x" * 300), strict=True):
        figure = run_figure(record, claim="R.T4.4.scaled", title=title)
        figure.draw_without_rendering()
        box = figure.get_tightbbox()
        assert figure.get_figwidth() == pytest.approx(85 / 25.4)
        assert box.x0 >= -0.01
        assert box.x1 <= 85 / 25.4 + 0.01
        assert box.y0 >= -0.01
        assert box.y1 <= figure.get_figheight() + 0.01


def test_any_script_and_any_sign_may_stand_in_a_title(tmp_path):
    record = dataclasses.replace(training_record(at=(0.0, 1.0)), setting="$a_{", status="\x1b$%&")
    figure = run_figure(record, claim="日本 $x^", title="{\\frac $ 字\n\x00")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save_figure(figure, tmp_path / "run", ["svg"])


def test_the_overview_grows_with_its_rows(tmp_path):
    rows = [(f"run {i}", training_record()) for i in range(12)]
    figure = rates_figure(rows)
    assert figure.get_figheight() > rates_figure(rows[:2]).get_figheight() + 1.9
    figure.draw_without_rendering()
    assert figure.get_tightbbox().x1 <= 3.41


def test_names_of_files_are_safe():
    assert file_stem("../../etc", "a b/c", "3", "run") == "etc-a-b-c-3-run"
    assert file_stem("...", "日本") == "run-run"
    assert len(file_stem("x" * 500, "run")) == 120
