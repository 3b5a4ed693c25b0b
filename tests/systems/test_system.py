"""Declared systems in Python: by name, out of a claim file, drawn or with values, whatever way their samples lie."""

from __future__ import annotations

import pytest
import torch
from declared_systems import BENT, drawn, normal, system

import ntk_deq as nd
from ntk_deq.errors import ArgumentError, ClaimFileError
from ntk_deq.systems import loss_gradients, model_class, predict

FILE = """
suite: skip
systems:
  skip-network:
    variables:
      W: {shape: "[m, m]", role: parameter}
      U: {shape: "[m, d]", role: parameter}
      X: {shape: "[d, N]", role: input}
      y: {shape: "[N]", role: target}
      u: {shape: "[m]", role: parameter}
    equilibrium: {Z: "relu(W*Z + U*X)"}
    define: {yhat: "Z'*u", L: "norm(yhat - y)^2/2"}
settings:
  any:
    model: skip-network
    sizes: {N: 2, d: 2, m: 2}
    domain: {}
claims:
  - id: S.1
    title: nothing much
    setting: any
    conclude: norm(Z) >= 0
"""


@pytest.fixture
def path(tmp_path):
    found = tmp_path / "claims.yaml"
    found.write_text(FILE, encoding="utf-8")
    return found


def test_a_system_of_a_claim_file_is_drawn_solved_and_trained(path):
    cls = nd.system("skip-network", path=path)
    model = cls.random(d=3, m=5, generator=torch.Generator().manual_seed(0))
    assert float(model.contraction_bound()) <= 0.5
    X, y = normal(3, 7), normal(7, seed=1)
    Z = model.solve(X)
    assert Z.value.shape == (5, 7)
    torch.testing.assert_close(Z.value, torch.relu(model.W @ Z.value + model.U @ X))
    torch.testing.assert_close(model.predict(X), Z.value.mT @ model.u)
    torch.testing.assert_close(model.loss(X, y), (model.predict(X) - y).square().sum() / 2)
    assert nd.ntk_gram(model, X).matrix.shape == (7, 7)
    run = nd.train(model, X, y, step=0.01, steps=5, progress=False)
    assert run.settings["sizes"] == {"m": 5, "d": 3, "N": 7}
    assert float(cls(**run.parameters).loss(X, y)) < float(model.loss(X, y))


def test_predictions_are_differentiable_in_inputs_and_parameters():
    model, X, y = drawn(model_signature_of_skip())
    slopes = loss_gradients(model, X, y)
    own = {name: value.clone().requires_grad_() for name, value in model.parameters().items()}
    type(model)(**own).loss(X, y).backward()
    for name, value in own.items():
        torch.testing.assert_close(value.grad, slopes[name])
    inputs = X.clone().requires_grad_()
    model.predict(inputs).sum().backward()
    h, moved = 1e-6, normal(*X.shape, seed=3)
    sides = [float(predict(model, X + sign * h * moved).sum()) for sign in (1, -1)]
    assert (sides[0] - sides[1]) / (2 * h) == pytest.approx(float((inputs.grad * moved).sum()), rel=1e-6)


def model_signature_of_skip():
    return system("skip", "W:p:m,m U:p:m,d u:p:m X:x:d,N y:y:N", "Z", "mN", "relu(W*Z + U*X)", "norm(W)", yhat="Z'*u")


def test_functions_with_a_parameter_are_written_out_and_differentiated():
    model, X, y = drawn(BENT)
    kernel = nd.ntk_gram(model, X)
    assert kernel.reason == ""
    other = nd.ntk_gram(model, X, method="autodiff")
    for name, block in kernel.blocks.items():
        torch.testing.assert_close(block, other.blocks[name])
    found = nd.GradientField(model, X, y, rtol=1e-13).at(model.parameters(), 0.0)
    for name, value in loss_gradients(model, X, y).items():
        torch.testing.assert_close(found.gradients[name], value)


def test_registered_systems_need_no_path():
    assert nd.system("implicit-relu") is nd.ImplicitReLU


def test_what_is_wrong_with_a_name_or_a_path_is_said(path, tmp_path):
    with pytest.raises(ArgumentError, match=r"declares no system 'skip'. Its systems: skip-network."):
        nd.system("skip", path=path)
    with pytest.raises(ArgumentError, match=r"One of that name is registered: leave `path` out"):
        nd.system("implicit-relu", path=path)
    with pytest.raises(ArgumentError, match=r"Unknown model 'implicit-rule'. Known models: .* Did you mean"):
        nd.system("implicit-rule")
    with pytest.raises(ClaimFileError, match=r"nowhere"):
        nd.system("skip-network", path=tmp_path / "nowhere.yaml")
    with pytest.raises(ArgumentError, match=r"`name` of system must be a text. Got 3"):
        nd.system(3)


def test_what_is_wrong_with_a_draw_is_said(path):
    cls, generator = nd.system("skip-network", path=path), torch.Generator().manual_seed(0)
    with pytest.raises(ArgumentError, match=r"A draw of skip-network needs the sizes d"):
        cls.random(m=3, generator=generator)
    with pytest.raises(ArgumentError, match=r"Sizes of skip-network must be among m, d, N. Got 'k'"):
        cls.random(m=3, d=2, k=1, generator=generator)
    with pytest.raises(ArgumentError, match=r"must be integers >= 1. Got m = 0"):
        cls.random(m=0, d=2, generator=generator)
    with pytest.raises(ArgumentError, match=r"Values of skip-network must be among W, U, u. Got 'V'"):
        cls.random(m=3, d=2, values={"V": 1.0}, generator=generator)
    kept = cls.random(m=2, d=2, values={"u": torch.ones(2)}, generator=generator)
    assert kept.u.tolist() == [1.0, 1.0]


_SKIP = "W:p:m,m U:p:m,d X:x:d,N y:y:N"


@pytest.mark.parametrize(
    ("variables", "state", "image", "message"),
    [
        (
            "W:p:m,m X:x:m,m y:y:m",
            "mm",
            "relu(W*Z + X)",
            r"each size of which a parameter has: none of them counts samples",
        ),
        ("W:p:m,m X:x:m y:y:m", "m", "relu(W*Z + X)", r"counts samples\. With a second size, as in \[m, N\]"),
        ("W:p:m,m X:x:N,K y:y:N", "Nm", "relu(Z*W)", r"`Z` is \[N, m\]|yhat|one size of"),
        (
            "W:p:m,m U:p:m,d X:x:d,N y:y:N",
            "mN",
            "relu(W*Z*ones(N, N) + U*X)",
            r"`W\*Z\*ones\(N, N\)` multiplies samples",
        ),
        (
            "W:p:m,m U:p:m,d X:x:d,N y:y:N",
            "mN",
            "relu(W*Z + U*X*X'*U'*Z)",
            r"`U\*X\*X'` multiplies samples by samples|mixes",
        ),
        ("W:p:m,m U:p:m,d X:x:d,N y:y:N", "mN", "relu(W*Z + U*X + y*ones(1, m))", r"cannot add|target"),
    ],
)
def test_samples_that_are_not_seen_apart_are_refused(variables, state, image, message):
    signature = system("odd", f"{variables} u:p:m", "Z", state, image, "norm(W)", yhat="Z'*u")
    with pytest.raises(ArgumentError, match=message):
        model_class(signature)


def test_definitions_may_build_on_each_other_hundreds_deep():
    deep = {"D0": "relu(X*W')", **{f"D{i}": f"relu(D{i - 1}*V')" for i in range(1, 250)}}
    signature = system("deep", "W:p:m,d V:p:m,m u:p:m X:x:N,d y:y:N", "", "", "", "", **deep, yhat="D249*u")
    model, X, _ = drawn(signature)
    expected = torch.relu(X @ model.W.mT)
    for _ in range(249):
        expected = torch.relu(expected @ model.V.mT)
    torch.testing.assert_close(model.predict(X), expected @ model.u)


def test_a_definition_that_mixes_samples_stands_in_no_way_where_nothing_needs_it():
    variables = "W:p:m,m U:p:m,d u:p:m X:x:d,N y:y:N"
    signature = system("odd", variables, "Z", "mN", "relu(W*Z + U*X)", "norm(W)", G="X'*X", yhat="Z'*u")
    model, X, _ = drawn(signature)
    assert model.predict(X).shape == (6,)
    using = system("odd", variables, "Z", "mN", "relu(W*Z + U*X*G)", "norm(W)", G="X'*X", yhat="Z'*u")
    with pytest.raises(ArgumentError, match=r"`X'\*X` multiplies samples by samples|`U\*X\*G` multiplies samples"):
        model_class(using)


LAYERS = """suite: t
systems:
  deep:
    variables:
      W: {shape: "[m, m] for l in 1..L", role: parameter}
      U: {shape: "[m, d]", role: parameter}
      a: {shape: "[m]", role: parameter}
      X: {shape: "[d, N]", role: input}
      y: {shape: "[N]", role: target}
    equilibrium: {Z: "z[L]"}
    define:
      z[0]: Z
      z[l] for l in 1..L: relu(W[l]*z[l-1]/2 + U*X)
      yhat: Z'*a/L
      L2: sum(fro(W[l])^2 for l in 1..L)
      Loss: norm(yhat - y)^2/2
  forward:
    variables:
      W: {shape: "[n[l], n[l-1]] for l in 1..L", role: parameter}
      a: {shape: "[n[L]]", role: parameter}
      X: {shape: "[n[0], N]", role: input}
      y: {shape: "[N]", role: target}
    define: {"z[0]": X, "z[l] for l in 1..L": "tanh(W[l]*z[l-1])", yhat: "z[L]'*a"}
"""


class TestFamilies:
    @pytest.fixture
    def file(self, tmp_path):
        path = tmp_path / "layers.yaml"
        path.write_text(LAYERS)
        return path

    @pytest.mark.parametrize("depth", [1, 3])
    def test_an_equilibrium_of_layers(self, file, depth):
        generator = torch.Generator().manual_seed(0)
        model = nd.system("deep", path=file, depth={"L": depth}).random(generator=generator, m=4, d=3)
        assert list(model.parameters()) == [*(f"W[{layer}]" for layer in range(1, depth + 1)), "U", "a"]
        X = torch.randn(3, 6, generator=generator, dtype=torch.float64)
        Z = found = model.solve(X).value
        for layer in range(1, depth + 1):
            found = torch.relu(model.parameters()[f"W[{layer}]"] @ found / 2 + model.U @ X)
        torch.testing.assert_close(found, Z)
        torch.testing.assert_close(model.predict(X), Z.mT @ model.a / depth)
        kernel, other = nd.ntk_gram(model, X), nd.ntk_gram(model, X, method="autodiff")
        assert kernel.method.value == "structured"
        assert float((kernel.matrix - other.matrix).norm() / other.matrix.norm()) <= 1e-11

    @pytest.mark.parametrize("depth", [1, 2, 3, 4])
    def test_the_kernel_of_a_feed_forward_network(self, file, depth):
        generator = torch.Generator().manual_seed(0)
        model = nd.system("forward", path=file, depth={"L": depth}).random(generator=generator, n=[3] * (depth + 1))
        X = torch.randn(3, 5, generator=generator, dtype=torch.float64)
        kernel = nd.ntk_gram(model, X)
        assert kernel.method.value == "structured"
        for method in ("adjoint", "jacobian", "autodiff"):
            other = nd.ntk_gram(model, X, method=method)
            assert float((kernel.matrix - other.matrix).norm() / other.matrix.norm()) <= 1e-11

    def test_a_feed_forward_network_takes_lists(self, file):
        cls = nd.system("forward", path=file, depth={"L": 2})
        unit, X = torch.eye(3, dtype=torch.float64), torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4)
        model = cls(W=[unit, 2 * unit], a=torch.ones(3, dtype=torch.float64))
        torch.testing.assert_close(model.predict(X), torch.tanh(2 * torch.tanh(X)).sum(0))
        drawn = cls.random(generator=torch.Generator().manual_seed(0), n=[3, 5, 2])
        assert drawn.parameters()["W[1]"].shape == (5, 3)

    @pytest.mark.parametrize(
        ("name", "depth", "message"),
        [
            ("forward", None, "`depth` must give L"),
            ("forward", {"L": 2, "q": 1}, "must be among L, N. Got 'q'"),
            ("forward", {"L": 2, "n": 1}, "must be among L, N. Got 'n'"),
            ("deep", {"m": 2}, "`depth` must give L"),
            ("deep", {"L": 0}, "must be integers >= 1. Got L = 0"),
            ("forward", {"L": 2.0}, "must be integers >= 1. Got L = 2.0"),
        ],
    )
    def test_depths_that_are_none(self, file, name, depth, message):
        with pytest.raises(ArgumentError, match=message):
            nd.system(name, path=file, depth=depth)

    def test_lists_of_another_length(self, file):
        unit = torch.eye(3, dtype=torch.float64)
        with pytest.raises(ArgumentError, match=r"`W` must be a list with 2 members: W\[1\], W\[2\]. Got 1."):
            nd.system("forward", path=file, depth={"L": 2})(W=[unit], a=unit[0])
