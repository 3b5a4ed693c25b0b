"""A user's own module as the map: results with a status, implicit derivatives, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import ntk_deq as nd
from ntk_deq.errors import ArgumentError, EquilibriumError
from ntk_deq.quantities import KernelMethod

WIDTH, INPUTS = 4, 3


class Cell(nn.Module):
    """tanh(0.3 W z + U x + b)."""

    def __init__(self):
        super().__init__()
        self.W, self.U = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(INPUTS, WIDTH)

    def forward(self, z, x):
        return torch.tanh(0.3 * self.W(z) + self.U(x))


def made(outputs=1, squeeze=False):
    torch.manual_seed(0)
    readout = nn.Sequential(nn.Linear(WIDTH, outputs), nn.Flatten(0)) if squeeze else nn.Linear(WIDTH, outputs)
    return nd.equilibrium_module(Cell().double(), readout.double(), width=WIDTH, inputs=INPUTS)


def inputs(count=5):
    return torch.randn(count, INPUTS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def unrolled(model, X, parameters):
    Z = torch.zeros(X.shape[0], WIDTH, dtype=X.dtype)
    for _ in range(200):
        Z = model.step(Z, X, parameters)
    return model.readout(Z, parameters)


def test_parameters_are_named_and_the_solution_has_a_status_but_no_bound():
    model = made()
    assert list(model.parameters()) == [
        "cell.W.weight",
        "cell.U.weight",
        "cell.U.bias",
        "readout.weight",
        "readout.bias",
    ]
    found = model.solve(inputs())
    assert found.all_converged
    assert bool(torch.isinf(found.error_bound).all())
    torch.testing.assert_close(model.predict(inputs()), unrolled(model, inputs(), None))


def test_gradients_are_those_of_the_unrolled_map():
    model, X = made(squeeze=True), inputs()
    y = torch.ones(5, dtype=torch.float64)
    own = {name: value.detach() for name, value in model.parameters().items()}
    expected = torch.func.grad(lambda values: (unrolled(model, X, values) - y).square().sum() / 2)(own)
    found = nd.loss_gradients(model, X, y)
    assert list(found) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_kernel_is_worked_out_sample_by_sample(outputs):
    model, X = made(outputs), inputs()
    own = {name: value.detach() for name, value in model.parameters().items()}
    rows = torch.func.jacrev(lambda values: unrolled(model, X, values).mT.reshape(-1))(own)
    expected = sum(J.flatten(1) @ J.flatten(1).mT for J in rows.values())
    kernel = nd.ntk_gram(model, X)
    assert kernel.method is KernelMethod.ADJOINT
    assert "says no factors" in kernel.reason
    torch.testing.assert_close(kernel.matrix, expected)


def test_no_certificate_is_claimed():
    model, X = made(squeeze=True), inputs()
    assert nd.lipschitz_bounds(model, X).upper == float("inf")
    run = nd.train(model, X, torch.ones(5, dtype=torch.float64), step=0.1, steps=3, progress=False)
    assert "No certificate: nothing is known of the map's contraction factor" in run.detail


def test_descent_is_that_of_a_plain_loop():
    model, X, y, step = made(squeeze=True), inputs(), torch.linspace(-1, 1, 5, dtype=torch.float64), 0.05
    run = nd.train(model, X, y, step=step, steps=20, progress=False)
    values = {name: value.detach().clone() for name, value in model.parameters().items()}
    for _ in range(20):
        own = {name: value.requires_grad_() for name, value in values.items()}
        loss = (unrolled(model, X, own) - y).square().sum() / 2
        slopes = torch.autograd.grad(loss, list(own.values()))
        values = {n: (v - step * s).detach() for (n, v), s in zip(own.items(), slopes, strict=True)}
    assert run.status.value == "steps"
    for name, value in run.snapshots[-1].parameters.items():
        torch.testing.assert_close(value, values[name], rtol=1e-8, atol=1e-10)


def test_flow_says_that_nothing_is_certified():
    model, X, y = made(squeeze=True), inputs(), torch.linspace(-1, 1, 5, dtype=torch.float64)
    run = nd.train(model, X, y, method="gradient-flow", horizon=0.01, progress=False)
    assert run.status.value == "horizon"
    assert "No certificate" in run.detail


def test_a_map_that_does_not_settle_is_said_to_be_unsolved():
    class Turning(Cell):
        def forward(self, z, x):
            return 2.0 - 1.5 * z + 0 * super().forward(z, x)

    torch.manual_seed(0)
    readout = nn.Sequential(nn.Linear(WIDTH, 1), nn.Flatten(0)).double()
    model = nd.equilibrium_module(Turning().double(), readout, width=WIDTH, inputs=INPUTS)
    with pytest.raises(EquilibriumError):
        nd.train(model, inputs(), torch.ones(5, dtype=torch.float64), step=0.1, steps=3, progress=False)


class Mixing(Cell):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, z, x):
        return self.norm(super().forward(z, x))


class Random(Cell):
    def forward(self, z, x):
        return super().forward(z, x) + 1e-2 * torch.rand_like(z)


class Wide(Cell):
    def forward(self, z, x):
        return torch.cat([z, z], dim=1)


class Bare(nn.Module):
    def forward(self, z, x=None):
        return z


class Detached(Cell):
    def forward(self, z, x):
        return super().forward(z.detach(), x)


class Itemised(Cell):
    def forward(self, z, x):
        scale = self.W.weight[0, 0].item()
        return super().forward(z, x) + scale


class ThroughNumpy(Cell):
    def forward(self, z, x):
        return torch.from_numpy(super().forward(z, x).detach().numpy())


class Numpy(Cell):
    def forward(self, z, x):
        return torch.from_numpy(super().forward(z, x).numpy())


class Rounded(Cell):
    def forward(self, z, x):
        return super().forward(z, x).to(torch.float32)


@pytest.mark.parametrize(
    ("cell", "readout", "message"),
    [
        (Detached, nn.Linear(WIDTH, 1), r"`cell` .* loses derivatives with respect to the states.* say 0, and diff"),
        (Itemised, nn.Linear(WIDTH, 1), r"`cell` .* loses derivatives with respect to cell.W.weight"),
        (ThroughNumpy, nn.Linear(WIDTH, 1), r"`cell` .* loses derivatives"),
        (Numpy, nn.Linear(WIDTH, 1), r"`cell` .* fails where derivatives are asked for"),
        (Rounded, nn.Linear(WIDTH, 1), r"`cell` .* must return torch.float64, as its parameters are. Got torch.float3"),
        (Mixing, nn.Linear(WIDTH, 1), r"makes samples interact"),
        (Random, nn.Linear(WIDTH, 1), r"Two calls of `cell` .* it draws random numbers"),
        (
            Wide,
            nn.Linear(WIDTH, 1),
            r"`cell` of equilibrium_module must return the states' shape \(3, 4\). Got \(3, 8\)",
        ),
        (Bare, Bare(), r"have no parameter: there is nothing to train"),
        (Cell, nn.Linear(2, 1), r"`readout` of equilibrium_module fails on rows of the shapes \(3, 4\)"),
        (Cell, nn.Flatten(0), r"makes samples interact"),
        (Cell, nn.Dropout(), r"Two calls of `readout` .* Put it into evaluation mode"),
    ],
)
def test_modules_that_are_no_map_of_samples_are_refused(cell, readout, message):
    torch.manual_seed(0)
    with pytest.raises(ArgumentError, match=message):
        nd.equilibrium_module(cell().double(), readout.double(), width=WIDTH, inputs=INPUTS)


def test_zeros_at_the_kink_of_relu_are_no_lost_derivatives():
    class Kinked(Cell):
        def forward(self, z, x):
            return torch.relu(self.W(z))

    cell = Kinked().double()
    nn.init.zeros_(cell.W.weight)
    nd.equilibrium_module(cell, nn.Linear(WIDTH, 1).double(), width=WIDTH, inputs=INPUTS)


def test_batch_norm_in_evaluation_mode_is_a_map_of_samples():
    with pytest.raises(ArgumentError, match="as by batch norm in training mode"):
        nd.equilibrium_module(Mixing().double(), nn.Linear(WIDTH, 1).double())
    cell = Mixing().double().eval()
    model = nd.equilibrium_module(cell, nn.Linear(WIDTH, 1).double(), width=WIDTH, inputs=INPUTS)
    assert model.solve(inputs()).all_converged


def test_sizes_are_read_off_the_parameters_where_one_choice_fits():
    model = nd.equilibrium_module(Cell().double(), nn.Linear(WIDTH, 1).double())
    assert model.solve(inputs()).value.shape == (5, WIDTH)
    for cell, readout, message in (
        (Plain(), nn.Linear(WIDTH, 1), "must be given where 2 choices fit: width=4, inputs=1; width=4, inputs=4"),
        (Wide(), nn.Linear(WIDTH, 1), "the cell returns"),
        (nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1), "no size of a parameter fits; for states .* takes 2 positional"),
    ):
        with pytest.raises(ArgumentError, match=message):
            nd.equilibrium_module(cell, readout)


class Plain(nn.Module):
    """A map that has the same shape for inputs of two sizes."""

    def __init__(self):
        super().__init__()
        self.W = nn.Linear(WIDTH, WIDTH)

    def forward(self, z, x):
        return torch.tanh(0.3 * self.W(z) + x)


class Divided(Cell):
    def forward(self, z, x):
        return super().forward(z, x) / 0


def test_values_that_are_not_finite_are_said():
    with pytest.raises(ArgumentError, match="must return finite numbers"):
        nd.equilibrium_module(Divided(), nn.Linear(WIDTH, 1), width=WIDTH, inputs=INPUTS)


def test_wrong_arguments_are_said_and_random_numbers_are_left_alone():
    with pytest.raises(ArgumentError, match=r"`cell` of equilibrium_module must be a torch.nn.Module. Got function"):
        nd.equilibrium_module(lambda z, x: z, nn.Linear(4, 1), width=4, inputs=3)
    with pytest.raises(
        ArgumentError, match=r"`width` of equilibrium_module must be an integer >= 1, or a tuple of them. Got 0"
    ):
        nd.equilibrium_module(Cell(), nn.Linear(4, 1), width=0, inputs=3)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with pytest.raises(ArgumentError):
        nd.equilibrium_module(Random().double(), nn.Linear(4, 1).double(), width=4, inputs=3)
    torch.manual_seed(5)
    cell = Random().double()
    state = torch.get_rng_state()
    with pytest.raises(ArgumentError):
        nd.equilibrium_module(cell, nn.Linear(4, 1).double(), width=4, inputs=3)
    assert before.shape == state.shape


class Convolution(nn.Module):
    """The thesis' cell (4.1), with weights from N(0, deviation^2)."""

    def __init__(self, deviation):
        super().__init__()
        self.first, self.second, self.read = (nn.Conv2d(k, 4, 3, padding=1, bias=False) for k in (4, 4, 1))
        self.norms = nn.ModuleList(nn.GroupNorm(2, 4) for _ in range(3))
        generator = torch.Generator().manual_seed(0)
        for layer in (self.first, self.second):
            layer.weight.data = deviation * torch.randn(layer.weight.shape, generator=generator)

    def forward(self, z, x):
        inner = self.norms[0](torch.relu(self.first(z)))
        return self.norms[2](torch.relu(z + self.norms[1](self.read(x) + self.second(inner))))


def convolution(deviation):
    torch.manual_seed(0)
    readout = nn.Sequential(nn.Flatten(), nn.Linear(4 * 25, 3))
    return nd.equilibrium_module(Convolution(deviation), readout, width=(4, 5, 5), inputs=(1, 5, 5))


@pytest.mark.parametrize("solver", ["picard", "damped", "anderson"])
def test_a_convolution_that_does_not_converge_ends_with_a_status(solver):
    model, X = convolution(1.0), torch.rand(4, 1, 5, 5, generator=torch.Generator().manual_seed(1))
    found = model.solve(X, solver=solver, max_steps=40, raise_on_failure=False)
    assert (found.status == int(nd.Status.MAX_STEPS)).all()
    assert (found.steps == 40).all()
    with pytest.raises(EquilibriumError, match=r"4 of 4 max steps .* still above the tolerance after `max_steps`"):
        model.solve(X, solver=solver, max_steps=40)


def test_an_image_of_the_wrong_shape_is_refused():
    model = convolution(0.01)
    assert model.solve(torch.rand(2, 1, 5, 5), solver="anderson", rtol=1e-3).all_converged
    for shape in ((2, 1, 5, 6), (2, 5, 5), (2, 25), (1, 5, 5), (2, 3, 5, 5)):
        with pytest.raises(ArgumentError, match=r"must be N x 1 x 5 x 5, as the model has. Got shape"):
            model.solve(torch.rand(shape))
