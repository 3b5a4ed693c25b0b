"""Figures of landscapes and trajectories: what is on them, and what cannot be drawn."""

import math

import matplotlib as mpl
import pytest
import torch
from matplotlib import pyplot
from matplotlib.figure import Figure

import ntk_deq as nd
from ntk_deq import plots
from ntk_deq.errors import ArgumentError
from ntk_deq.quantities import Landscape, Normalisation

mpl.use("Agg")


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


def bowl(low=0.1, *, dimensions=2, **more):
    line = torch.linspace(-1, 1, 7, dtype=torch.float64)
    loss = low + (line[:, None] ** 2 + 3 * line**2 if dimensions == 2 else line**2)
    given = {"kind": "random", "normalisation": Normalisation.FILTER, "cosine": 0.0, "unsolved": 0} | more
    return Landscape(at=(line,) * dimensions, loss=loss, directions=(), centre=low, **given)


def texts(ax):
    return [text.get_text() for text in (*ax.texts, ax._left_title, ax.xaxis.label, ax.yaxis.label)]


@pytest.mark.parametrize("low", [1e-4, 0.1, 5.0])
@pytest.mark.parametrize("kind", ["contour", "surface"])
def test_a_plane_is_drawn_either_way(kind, low):
    ax = bowl(low).plot(kind)
    ax.get_figure().draw_without_rendering()
    assert ax.get_xlabel() == "first direction"
    assert "random directions, filter-wise" in texts(ax)[-3]
    assert (ax.name == "3d") is (kind == "surface")


def test_a_line_and_a_flat_plane_are_drawn():
    ax = bowl(dimensions=1).plot()
    assert (ax.get_ylabel(), len(ax.lines[0].get_xdata())) == ("loss", 7)
    flat = bowl()
    flat.loss.fill_(2.0)
    flat.plot().get_figure().draw_without_rendering()


def test_what_is_missing_and_off_the_plane_is_said():
    found = bowl(
        kind="pca",
        normalisation=None,
        unsolved=2,
        path=torch.tensor([[0.5, 0.2], [0.0, 0.0]]).double(),
        off_plane=torch.tensor([0.125, 0.0]).double(),
        explained=(0.75, 0.2),
    )
    found.loss[0, :2] = math.nan
    for kind in ("contour", "surface"):
        ax = found.plot(kind)
        ax.get_figure().draw_without_rendering()
        assert ax.get_xlabel() == "first component, 75 % of the path"
        assert "path at most 0.12 of its reach off what is drawn\nno equilibrium at 2 of 49 points" in texts(ax)


def test_no_text_covers_the_plane():
    ax = bowl(unsolved=1).plot()
    ax.get_figure().draw_without_rendering()
    assert ax._left_title.get_window_extent().y0 >= ax.get_window_extent().y1


def followed(labels=None):
    generator = torch.Generator().manual_seed(1)
    model = nd.ImplicitReLU.random(d=3, m=8, generator=generator)
    return nd.trajectory(model, torch.randn(6, 3, generator=generator, dtype=torch.float64), labels, steps=8)


def test_each_class_has_a_panel_with_its_variances():
    found = followed([0, 1, 0, 1, 2, 2])
    panels = found.plot()
    assert [panel._left_title.get_text() for panel in panels] == ["class 0", "class 1", "class 2"]
    first = found.classes[0].explained
    assert panels[0].get_xlabel() == f"first ({100 * first[0]:.0f} %)"
    (one,) = followed().plot(Figure().subplots())
    one.get_figure().draw_without_rendering()


def test_settings_of_matplotlib_stay_as_they_are():
    before = dict(mpl.rcParams)
    bowl().plot()
    followed().plot()
    assert dict(mpl.rcParams) == before


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ArgumentError, match=r"`found` must be a Landscape\. Got int"):
        plots.landscape(3)
    with pytest.raises(ArgumentError, match=r"`kind` of a landscape must be among contour, surface\. Got 'contours'"):
        bowl().plot("contours")
    empty = bowl()
    empty.loss.fill_(math.nan)
    with pytest.raises(ArgumentError, match="a loss at one point at least"):
        empty.plot()
    with pytest.raises(ArgumentError, match=r"`found` must be a Trajectory\. Got Landscape"):
        plots.trajectories(bowl())
    with pytest.raises(ArgumentError, match=r"must be 2 axes, one a class\. Got 1"):
        plots.trajectories(followed([0, 0, 0, 1, 1, 1]), Figure().subplots())
