"""Trajectories of solvers: states, lengths, components, classes."""

import pytest
import torch
from torch import nn

import ntk_deq as nd
from ntk_deq.equilibrium import SOLVERS
from ntk_deq.equilibrium.solvers import SPLITTINGS
from ntk_deq.errors import ArgumentError
from ntk_deq.quantities.trajectories import Components


def problem(n=6, d=3, m=8):
    generator = torch.Generator().manual_seed(1)
    model = nd.ImplicitReLU.random(d=d, m=m, generator=generator)
    return model, torch.randn(n, d, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("solver", [*SOLVERS, *SPLITTINGS])
def test_every_solver_ends_at_the_equilibrium(solver):
    model, X = problem()
    found = nd.trajectory(model, X, steps=300, solver=solver)
    torch.testing.assert_close(found.states[-1], model.solve(X).value, rtol=1e-8, atol=1e-10)
    assert found.states.shape == (301, 6, 8)
    assert found.relative_residual[-1].max() < 1e-8
    assert found.solver == solver
    assert torch.equal(found.states[0], torch.zeros(6, 8).double()) or solver in SPLITTINGS


def test_states_and_residuals_are_those_of_the_map():
    model, X = problem()
    found = nd.trajectory(model, X, steps=4)
    z = torch.zeros(6, 8).double()
    for k in range(5):
        image = model.step(z, X)
        torch.testing.assert_close(found.states[k], z)
        torch.testing.assert_close(found.relative_residual[k], (image - z).norm(dim=1) / image.norm(dim=1))
        z = image


def test_lengths_are_sums_of_steps():
    model, X = problem()
    found = nd.trajectory(model, X, steps=20)
    moves = (found.states[1:] - found.states[:-1]).norm(dim=2).sum(dim=0)
    torch.testing.assert_close(found.path_length, moves)
    assert (found.detour >= 1 - 1e-12).all()


def test_components_of_a_known_cloud():
    """Coordinates of variance 9, 4 and 1 along orthogonal axes: shares 9/14 and 4/14, dimension 14^2/98 = 2."""
    corners = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0]).double()] * 3) * torch.tensor([3.0, 2.0, 1.0]).double()
    turn = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(0)).double())[0]
    found = Components.of(corners @ turn + 5, 2)
    assert found.explained == pytest.approx([9 / 14, 4 / 14])
    assert found.dimension == pytest.approx(2.0)
    torch.testing.assert_close(found.coordinates(corners @ turn + 5).abs(), corners[:, :2].abs())
    still = Components.of(torch.ones(4, 3).double(), 2)
    assert (still.dimension, still.explained) == (0.0, [0.0, 0.0])


def test_classes_have_components_of_their_own():
    model, X = problem()
    found = nd.trajectory(model, X, [1, 0, 1, 0, 0, 1], steps=10)
    assert list(found.classes) == [0, 1]
    assert found.members(1) == [0, 2, 5]
    assert found.coordinates(1).shape == (11, 3, 2)
    points = found.states[:, [0, 2, 5]].reshape(-1, 8)
    assert found.classes[1].explained == pytest.approx(Components.of(points, 2).explained)
    assert found.dimension == pytest.approx(sum(each.dimension for each in found.classes.values()) / 2)
    assert "class 0" in repr(found)
    tensor = nd.trajectory(model, X, torch.tensor([1, 0, 1, 0, 0, 1]), steps=10)
    assert list(tensor.classes) == [0, 1]


def test_a_run_that_blows_up_is_seen_and_leaves_the_others():
    one = torch.ones(1, 1, dtype=torch.float64)
    model = nd.LinearImplicit(W=3 * one, U=one, b=one[0])
    X = torch.tensor([[0.0], [1.0]]).double()
    found = nd.trajectory(model, X, steps=2000)
    assert found.relative_residual[-1, 0] == 0
    assert torch.isnan(found.relative_residual[-1, 1])
    assert found.classes["all"].dimension == 0
    with pytest.raises(ArgumentError, match="No sample of trajectory stays finite"):
        nd.trajectory(model, X[1:], steps=2000)


class Images(nn.Module):
    """(4.1) of the thesis with one group a channel."""

    def __init__(self, scale):
        super().__init__()
        self.first, self.second = (nn.Conv2d(2, 2, 3, padding=1, bias=False) for _ in range(2))
        self.read = nn.Conv2d(1, 2, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(1, 2) for _ in range(3))
        for layer in (self.first, self.second):
            nn.init.normal_(layer.weight, std=scale)

    def forward(self, z, x):
        inner = self.norms[0](torch.relu(self.first(z)))
        return self.norms[2](torch.relu(z + self.norms[1](self.read(x) + self.second(inner))))


def images(scale=0.01):
    torch.manual_seed(0)
    readout = nn.Sequential(nn.Flatten(), nn.Linear(32, 3)).double()
    return nd.equilibrium_module(Images(scale).double(), readout, width=(2, 4, 4), inputs=(1, 4, 4))


def test_images_go_through_a_convolution():
    model = images()
    X = torch.randn(5, 1, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = model.solve(X, solver="anderson", rtol=1e-10)
    assert found.value.shape == (5, 32)
    torch.testing.assert_close(model.step(found.value, X), found.value, rtol=0, atol=1e-8)
    assert model.predict(X).shape == (5, 3)
    assert nd.trajectory(model, X, steps=5).states.shape == (6, 5, 32)
    y = torch.zeros(5, 3).double()
    gradients = nd.loss_gradients(model, X, y, solver="anderson", rtol=1e-8)
    assert gradients["cell.first.weight"].shape == (2, 2, 3, 3)
    own = {**model.parameters()}
    name, h = "cell.second.weight", 1e-5

    def loss(move):
        values = {**own, name: own[name].detach() + move * gradients[name]}
        predicted = nd.predict(model, X, values, solver="anderson", rtol=1e-12)
        return float((predicted - y).square().sum().detach() / 2)

    slope = (loss(h) - loss(-h)) / (2 * h)
    assert slope == pytest.approx(float(gradients[name].square().sum().detach()), rel=1e-4)
    plane = nd.landscape(model, X, y, points=3, chunk=2, generator=torch.Generator().manual_seed(0))
    assert plane.loss[1, 1] == plane.centre
    kernel = nd.ntk_gram(model, X[:2], solver="anderson", rtol=1e-8)
    assert kernel.matrix.shape == (6, 6)


def test_a_convolution_that_does_not_converge_has_a_status():
    X = torch.randn(4, 1, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = images(scale=3.0).solve(X, max_steps=60, raise_on_failure=False)
    assert not found.converged.all()
    assert found.steps.max() <= 60


def test_an_image_of_the_wrong_shape_is_refused():
    model = images()
    for shape in ((3, 1, 5, 5), (3, 16), (3, 2, 4, 4), (1, 4, 4)):
        with pytest.raises(ArgumentError, match=r"`X` of \w+ must be N x 1 x 4 x 4, as the model has\. Got shape"):
            model.solve(torch.zeros(shape).double())
    with pytest.raises(ArgumentError, match="`cell` of equilibrium_module fails on rows of the shapes"):
        nd.equilibrium_module(Images(1.0).double(), nn.Flatten(), width=(3, 4, 4), inputs=(1, 4, 4))
    with pytest.raises(ArgumentError, match=r"`width` of equilibrium_module must be an integer >= 1, or a tuple"):
        nd.equilibrium_module(Images(1.0).double(), nn.Flatten(), width=(), inputs=(1, 4, 4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "`steps` of trajectory must be an integer >= 1"),
        ({"components": True}, "`components` of trajectory must be an integer >= 1"),
        ({"labels": [0, 1]}, r"`labels` of trajectory must be one a sample: 6\. Got 2"),
        ({"solver": "picardy"}, "Did you mean 'picard'"),
    ],
)
def test_bad_arguments_are_named(options, message):
    model, X = problem()
    with pytest.raises(ArgumentError, match=message):
        nd.trajectory(model, X, **options)
    with pytest.raises(ArgumentError, match="must have a sample"):
        nd.trajectory(model, X[:0])
