"""Loss landscapes: closed forms, the centre, chunks, paths, widths, modules, failures that are told."""

import math
import sys

import pytest
import torch
from torch import nn

import ntk_deq as nd
from ntk_deq.errors import ArgumentError, EquilibriumError, NtkDeqError
from ntk_deq.quantities.objective import Normalisation, random_direction
from ntk_deq.verify.system import system


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def problem(n=5, d=3, m=6):
    generator = seeded(1)
    model = nd.ImplicitReLU.random(d=d, m=m, generator=generator)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return model, X, torch.randn(n, generator=generator, dtype=torch.float64)


def test_each_point_is_the_loss_of_the_moved_model():
    model, X, y = problem()
    found = nd.landscape(model, X, y, points=3, reach=0.5, generator=seeded(), rtol=1e-12)
    first, second = found.directions
    for i, a in enumerate(found.at[0].tolist()):
        for j, b in enumerate(found.at[1].tolist()):
            moved = {name: value + a * first[name] + b * second[name] for name, value in model.parameters().items()}
            torch.testing.assert_close(found.loss[i, j], model.with_parameters(moved).loss(X, y), rtol=1e-9, atol=0)
    assert found.at[0].tolist() == [-0.5, 0.0, 0.5]


@pytest.mark.parametrize("dimensions", [1, 2])
def test_the_centre_is_the_model(dimensions):
    model, X, y = problem()
    found = nd.landscape(model, X, y, points=7, dimensions=dimensions, generator=seeded(), rtol=1e-12)
    assert found.loss[(3,) * dimensions] == found.centre
    torch.testing.assert_close(found.centre, float(model.loss(X, y)), rtol=1e-10, atol=0)
    assert found.unsolved == 0
    assert "Landscape of 7" in repr(found)


def test_chunks_change_nothing_and_progress_is_told():
    model, X, y = problem(n=7)
    told = []
    whole = nd.landscape(model, X, y, points=3, generator=seeded(), rtol=1e-12)
    parts = nd.landscape(
        model, X, y, points=3, generator=seeded(), rtol=1e-12, chunk=2, progress=lambda *n: told.append(n)
    )
    torch.testing.assert_close(parts.loss, whole.loss, rtol=1e-10, atol=0)
    assert told == [(k, 9) for k in range(1, 10)]


@pytest.mark.skipif(sys.platform != "linux", reason="workers are copies of the process, on Linux alone")
def test_workers_change_nothing():
    model, X, y = problem()
    told, options = [], {"points": 3, "reach": 30.0, "max_steps": 40}
    alone = nd.landscape(model, X, y, generator=seeded(), **options)
    shared = nd.landscape(model, X, y, generator=seeded(), workers=2, progress=lambda *n: told.append(n), **options)
    assert alone.unsolved == shared.unsolved > 0  # far away some are not found, in either process
    assert shared.loss[1, 1] == shared.centre
    torch.testing.assert_close(shared.loss, alone.loss, rtol=1e-12, atol=0, equal_nan=True)
    assert told == [(k, 9) for k in range(1, 10)]
    threads = torch.get_num_threads()
    with pytest.raises(NtkDeqError, match=r"A worker of landscape failed: ZeroDivisionError: at a point"):
        nd.landscape(nn.Linear(3, 1).double(), X, y, loss=failing_after(2), points=3, workers=2)
    assert torch.get_num_threads() == threads


def failing_after(count):
    """A loss that fails when it has been asked so many times."""
    left = [count]

    def loss(outputs, targets):
        left[0] -= 1
        if left[0] < 0:
            raise ZeroDivisionError("at a point")
        return outputs.square().mean()

    return loss


def test_many_samples_are_solved_in_rounds():
    generator = seeded(1)
    model = nd.ImplicitReLU.random(d=3, m=4, generator=generator)
    X = torch.randn(300, 3, generator=generator, dtype=torch.float64)
    y = torch.randn(300, generator=generator, dtype=torch.float64)
    options = {"points": 3, "dimensions": 1, "solver": "picard", "rtol": 1e-12}
    whole = nd.landscape(model, X, y, generator=seeded(), **options)
    parts = nd.landscape(model, X, y, generator=seeded(), chunk=100, **options)
    torch.testing.assert_close(whole.loss, parts.loss, rtol=1e-9, atol=0)
    assert whole.loss[1] == whole.centre
    with pytest.raises(EquilibriumError, match=r"Of the last samples: .*\d+ max steps"):
        nd.landscape(model, X, y, **options | {"max_steps": 3})


def test_directions_are_as_long_as_the_weights():
    values = {"W": torch.randn(4, 3, 2, generator=seeded()), "b": torch.tensor([3.0, 4.0]), "zero": torch.zeros(2)}
    filters = random_direction(values, Normalisation.FILTER, seeded(1))
    torch.testing.assert_close(filters["W"].flatten(1).norm(dim=1), values["W"].flatten(1).norm(dim=1))
    whole = random_direction(values, Normalisation.PARAMETER, seeded(1))
    for name in values:
        torch.testing.assert_close(whole[name].norm(), values[name].norm())
    plain = random_direction(values, Normalisation.NONE, seeded(1))
    assert plain["zero"].norm() > 0
    total = sum(value.square().sum() for value in values.values())
    torch.testing.assert_close(sum(value.square().sum() for value in plain.values()), total)


def test_scaling_a_unit_in_and_out_leaves_the_filter_wise_plane_alone():
    """relu(c u) v/c is the same function for every c > 0, and so must its landscape be (Li et al., section 4)."""

    def net(c):
        module = nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 1, bias=False)).double()
        generator = seeded(5)
        module[0].weight.data = c * torch.randn(4, 3, generator=generator, dtype=torch.float64)
        module[2].weight.data = torch.randn(1, 4, generator=generator, dtype=torch.float64) / c
        return module

    X, y = torch.randn(6, 3, generator=seeded(), dtype=torch.float64), torch.zeros(6, 1).double()
    options = {"loss": nn.functional.mse_loss, "points": 5}
    one, ten = (nd.landscape(net(c), X, y, generator=seeded(2), **options) for c in (1.0, 10.0))
    torch.testing.assert_close(one.loss, ten.loss)


def test_a_path_that_is_a_plane_lies_on_its_principal_plane():
    model, X, y = problem()
    own = model.parameters()
    P, Q = (random_direction(own, Normalisation.NONE, seeded(k)) for k in (3, 4))
    path = [
        {name: value + a * P[name] + b * Q[name] for name, value in own.items()}
        for a, b in [(0.3, 0.0), (0.2, 0.05), (0.1, 0.02), (0.0, 0.0)]
    ]
    found = nd.landscape(model, X, y, path=path, points=5)
    assert found.kind == "pca"
    assert found.off_plane.max() < 1e-7
    assert sum(found.explained) == pytest.approx(1.0)
    assert abs(found.cosine) < 1e-12
    line = nd.landscape(model, X, y, path=path, points=5, dimensions=1)
    assert 0.001 < line.off_plane.max() < 0.2
    assert line.explained[0] < 1
    assert found.at[0][-1] == pytest.approx(1.1 * float(found.path.abs().max()))
    # along the first direction the path's first point is met
    assert "of its reach off" in repr(line)


def test_runs_of_training_give_paths():
    model, X, y = problem()
    run = nd.train(model, X, y, step=0.01, steps=30, progress=False)
    last = run.snapshots[-1].parameters
    found = nd.landscape(model.with_parameters(last), X, y, path=[each.parameters for each in run.snapshots], points=3)
    assert found.loss[1, 1] == found.centre == pytest.approx(run.loss, rel=1e-4)


def test_the_width_of_a_parabola():
    """(1 + t)^4 along (u, b) of equal size and sign, and (1 - t^2)^2 otherwise: half the square of u b."""
    one = torch.ones(1, 1, dtype=torch.float64)
    model = nd.LinearImplicit(W=0 * one, U=one, b=one[0])
    found = nd.neighbourhood_width(
        model, one, one[0], rise=0.125, directions=12, generator=seeded(), resolution=40, rtol=1e-12
    )
    alike, other = math.sqrt(1.5) - math.sqrt(0.5), math.sqrt(0.5) + math.sqrt(0.5)
    assert {round(width, 2) for width in found.widths.tolist()} == {round(alike, 2), round(other, 2)}
    assert found.capped == found.unsolved == 0
    assert min(alike, other) < found.mean < max(alike, other)
    assert found.spread > 0
    tight = nd.neighbourhood_width(model, one, one[0], rise=0.125, directions=2, reach=0.1, generator=seeded())
    assert tight.capped == 2
    assert tight.widths.tolist() == pytest.approx([0.2, 0.2])
    assert "cut at 0.1" in repr(tight)


def test_points_without_an_equilibrium_have_no_loss():
    one = torch.ones(1, 1, dtype=torch.float64)
    model = nd.LinearImplicit(W=0.9 * one, U=one, b=one[0])  # W moves to 1.8, where Anderson still solves; to 0.9 + 0.1
    found = nd.landscape(model, one, one[0], points=5, dimensions=1, generator=seeded(), solver="picard", max_steps=400)
    assert found.unsolved == int(torch.isnan(found.loss).sum()) > 0
    assert torch.isfinite(found.loss[2])
    width = nd.neighbourhood_width(
        model, one, one[0], rise=1e6, directions=3, generator=seeded(), solver="picard", max_steps=400
    )
    assert width.unsolved == 3
    assert "end without an equilibrium" in repr(width)
    with pytest.raises(EquilibriumError, match="The equilibrium at the model itself is not found; landscape needs it"):
        nd.landscape(model, one, one[0], points=3, solver="picard", max_steps=2)


def test_the_last_states_may_count():
    """After k steps of Picard's iteration from zero, z = (1 + W + ... + W^(k-1)) x."""
    one = torch.ones(1, 1, dtype=torch.float64)
    model = nd.LinearImplicit(W=0.9 * one, U=one, b=one[0])
    options = {"dimensions": 1, "points": 3, "solver": "picard", "max_steps": 4, "unsolved": "last"}
    found = nd.landscape(model, one, one[0], generator=seeded(), **options)
    for t, value in zip((-1.0, 0.0, 1.0), found.loss.tolist(), strict=True):
        W, u, b = (
            float(found.directions[0][name].sum()) * t + start for name, start in (("W", 0.9), ("U", 1), ("b", 1))
        )
        assert value == pytest.approx((b * u * sum(W**k for k in range(4)) - 1) ** 2 / 2)
    assert 1 <= found.unsolved <= 2
    assert found.loss[1] == found.centre
    width = nd.neighbourhood_width(
        model, one, one[0], rise=1.0, directions=2, generator=seeded(), solver="picard", max_steps=4, unsolved="last"
    )
    assert width.unsolved == 0


SYSTEMS = """
suite: s
systems:
  columns:
    variables:
      W: {shape: "[n, n]", role: parameter}
      U: {shape: "[n, d]", role: parameter}
      X: {shape: "[d, N]", role: input}
      y: {shape: "[n, N]", role: target}
    equilibrium: {Z: "tanh(W*Z + U*X)"}
    contraction: norm(W)
    define: {yhat: Z, L: "fro(yhat - y)^2/2 + fro(W)^2"}
  whole:
    variables:
      w: {shape: "[n]", role: parameter}
    define: {L: "norm(w)^4"}
claims: []
"""


def test_systems_with_samples_in_columns_and_without_samples(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text(SYSTEMS)
    X, y = (torch.randn(3, 4, generator=seeded(k), dtype=torch.float64) for k in (1, 2))
    generator = seeded()
    U, W = torch.randn(3, 3, generator=generator).double(), torch.randn(3, 3, generator=generator).double() / 8
    model = system("columns", path=file).from_variables({"W": W, "U": U})
    for chunk in (None, 3):
        found = nd.landscape(model, X, y, points=3, chunk=chunk, generator=seeded(), rtol=1e-12)
        torch.testing.assert_close(found.centre, float(model.loss(X, y)), rtol=1e-9, atol=0)
    bowl = system("whole", path=file).from_variables({"w": torch.tensor([3.0, 4.0]).double()})
    found = nd.landscape(bowl, points=3, dimensions=1, generator=seeded())
    w, d = torch.tensor([3.0, 4.0]).double(), found.directions[0]["w"]
    torch.testing.assert_close(found.loss, torch.stack([(w + t * d).norm() ** 4 for t in (-1, 0, 1)]))


def test_a_module_needs_a_loss_and_stands_still():
    net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(), nn.Linear(4, 2))
    X, y = torch.randn(8, 3, generator=seeded()), torch.zeros(8, 2)
    with pytest.raises(ArgumentError, match=r"landscape of a torch.nn.Module needs `X`, `y` and `loss`"):
        nd.landscape(net, X, y)
    with pytest.raises(ArgumentError, match="draws random numbers, or changes as it is called"):
        nd.landscape(net, X, y, loss=nn.functional.mse_loss)
    found = nd.landscape(net.eval(), X, y, loss=nn.functional.mse_loss, points=3, chunk=3, generator=seeded())
    assert found.centre == pytest.approx(float(nn.functional.mse_loss(net(X), y).detach()), rel=1e-5)
    norm = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    before = norm[1].running_mean.clone()
    nd.landscape(norm, X, torch.zeros(8, 4), loss=nn.functional.mse_loss, points=3, dimensions=1)
    assert torch.equal(norm[1].running_mean, before)
    assert norm.training


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"points": 4}, r"`points` of landscape must be an odd integer >= 3\. Got 4"),
        ({"points": 1}, "odd integer >= 3"),
        ({"dimensions": 3}, r"`dimensions` of landscape must be 1 or 2\. Got 3"),
        ({"reach": 0.0}, "`reach` of landscape must be a finite number > 0 or None"),
        ({"normalisation": "layer"}, r"must be among filter, parameter, none\. Got 'layer'"),
        ({"unsolved": "skip"}, r"`unsolved` of landscape must be gap or last\. Got 'skip'"),
        ({"workers": 0}, r"`workers` of landscape must be an integer >= 1\. Got 0"),
        ({"chunk": 0}, "`chunk` of landscape must be an integer >= 1 or None"),
        ({"loss": 3}, "`loss` of landscape must be a function"),
        ({"loss": lambda p, y: p - y}, r"`loss` must return one number\. Got a tensor of shape"),
        ({"path": []}, "must hold a point other than the model"),
        ({"path": [{"V": torch.ones(2)}]}, r"parameters of the model: W, A, b, in their shapes\. Got 'V'"),
        ({"solver": "andersen"}, "Did you mean 'anderson'"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ArgumentError, match=message):
        nd.landscape(*problem(), **options)


def test_what_is_no_model_is_refused():
    with pytest.raises(ArgumentError, match=r"`model` of landscape must be an equilibrium model or a torch.nn.Module"):
        nd.landscape("model")
    for name, value in (("rise", 0.0), ("reach", -1), ("directions", 0), ("resolution", 1.5)):
        with pytest.raises(ArgumentError, match=f"`{name}` of neighbourhood_width must be"):
            nd.neighbourhood_width(*problem(), **{"rise": 1.0, name: value})


def test_a_path_of_one_direction_spans_no_plane():
    model, X, y = problem()
    path = [{"b": model.parameters()["b"] + 1}]
    with pytest.raises(ArgumentError, match=r"must span 2 dimensions around the model\. Its 1 points do not"):
        nd.landscape(model, X, y, path=path)
    assert nd.landscape(model, X, y, path=path, dimensions=1, points=3).explained == (1.0,)


@pytest.mark.parametrize("y", [torch.ones(3, 1, dtype=torch.float64), torch.ones(2, dtype=torch.float64)])
def test_targets_that_do_not_fit_are_refused_and_not_broadcast(y):
    X = torch.eye(3, dtype=torch.float64)
    model = nd.ImplicitReLU.random(3, 4, generator=seeded())
    for asked in (nd.landscape, lambda *given, **_: nd.neighbourhood_width(*given, rise=0.1)):
        with pytest.raises(nd.NtkDeqError, match="`y` of implicit-relu"):
            asked(model, X, y, points=3)
