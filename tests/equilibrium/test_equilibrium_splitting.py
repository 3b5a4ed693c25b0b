"""Splitting solvers of monotone layers: agreement with exact solutions and with the others, bounds, steps, errors."""

import math

import pytest
import torch

import ntk_deq as nd
from ntk_deq.equilibrium import MonotoneLayer, Status, fixed_point, make_solver, solve_fixed_point
from ntk_deq.equilibrium.solvers import SPLITTINGS
from ntk_deq.errors import ArgumentError
from ntk_deq.verify.system import system

ACTIVATIONS = {"relu": torch.relu, "identity": None, "tanh": torch.tanh, "softplus": torch.nn.functional.softplus}


def weights(n, *, m=0.1, size=1.0, skew=1.0, seed=0, dtype=torch.float64):
    """W = (1 - m) I - A'A + B - B', for which I - W >= m I."""
    generator = torch.Generator().manual_seed(seed)
    A, B = (torch.randn(n, n, generator=generator, dtype=torch.float64) / math.sqrt(n) for _ in range(2))
    return ((1 - m) * torch.eye(n).double() - size * A.T @ A + skew * (B - B.T)).to(dtype)


def layer(n=12, samples=7, activation="relu", dtype=torch.float64, **options):
    c = torch.randn(samples, n, generator=torch.Generator().manual_seed(9), dtype=torch.float64).to(dtype)
    return MonotoneLayer(weights(n, dtype=dtype, **options), c, ACTIVATIONS[activation])


def solved(given, solver, **options):
    return solve_fixed_point(given, torch.zeros_like(given.source), solver=solver, **options)


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("skew", [0.0, 3.0])
@pytest.mark.parametrize("solver", sorted(SPLITTINGS))
def test_all_samples_are_solved_where_the_map_does_not_contract(solver, skew, activation):
    given = layer(activation=activation, skew=skew, m=2.0)
    assert torch.linalg.matrix_norm(given.weight, ord=2) > 1
    found = solved(given, solver)
    assert found.all_converged
    assert found.solver == solver
    torch.testing.assert_close(given(found.value), found.value, rtol=0, atol=1e-11)
    torch.testing.assert_close(
        found.residual, torch.linalg.vector_norm(given(found.value) - found.value, dim=1), rtol=1e-6, atol=1e-15
    )
    assert (found.error_bound < 1e-9).all()


@pytest.mark.parametrize("solver", sorted(SPLITTINGS))
def test_a_linear_layer_has_its_closed_form(solver):
    given = layer(activation="identity", m=1.0, skew=2.0)
    exact = torch.linalg.solve(torch.eye(12).double() - given.weight, given.source.T).T
    found = solved(given, solver)
    assert (torch.linalg.vector_norm(found.value - exact, dim=1) <= found.error_bound + 1e-13).all()


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_steps_of_any_size_lead_to_one_equilibrium(activation):
    given = layer(activation=activation, m=1.0, skew=0.5)
    exact = solved(given, "anderson").value
    widest = 2 * given.modulus / given.length**2
    for share in (0.5, 0.99):
        found = solved(given, make_solver("forward-backward", step=share * widest), max_steps=100_000)
        torch.testing.assert_close(found.value, exact, rtol=0, atol=1e-10)
    for step in (0.05, 1.0, 4.0):
        found = solved(given, make_solver("peaceman-rachford", step=step), max_steps=100_000)
        torch.testing.assert_close(found.value, exact, rtol=0, atol=1e-10)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_the_bound_holds_for_states_that_are_not_solved(activation):
    given = layer(activation=activation, m=0.1, skew=2.0)
    exact = solved(given, "peaceman-rachford")
    for steps in (0, 1, 5, 20):
        found = solved(given, "peaceman-rachford", max_steps=steps, raise_on_failure=False)
        assert (found.status == int(Status.MAX_STEPS)).all()
        apart = torch.linalg.vector_norm(found.value - exact.value, dim=1)
        assert (apart <= found.error_bound + exact.error_bound).all()


def test_the_residual_over_the_modulus_is_no_bound():
    """One unit off by 0.1 that feeds another 100 times: the residual is about 0.1, the error about 5."""
    given = MonotoneLayer(torch.tensor([[0.0, -100.0], [100.0, 0.0]]).double(), torch.ones(1, 2).double(), None)
    assert given.modulus == pytest.approx(1.0)
    exact = torch.linalg.solve(torch.eye(2).double() - given.weight, given.source.T).T
    for seed in range(5):
        state = exact + torch.randn(1, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        apart = torch.linalg.vector_norm(state - exact)
        assert apart <= given.error_bound(state)[0] <= 201 * apart * 101


@pytest.mark.parametrize("solver", sorted(SPLITTINGS))
def test_one_sample_that_is_not_finite_leaves_the_others_alone(solver):
    given = layer(m=1.0)
    given.source[3, 2] = math.nan
    found = solved(given, solver, raise_on_failure=False)
    assert found.status[3] == int(Status.NON_FINITE)
    assert found.residual[3] == math.inf
    assert found.error_bound[3] == math.inf
    others = [0, 1, 2, 4, 5, 6]
    assert found.converged[others].all()


@pytest.mark.parametrize("solver", sorted(SPLITTINGS))
def test_single_precision_and_no_samples(solver):
    found = solved(layer(dtype=torch.float32, m=1.0, skew=1.0), solver)
    exact = solved(layer(m=1.0, skew=1.0), solver)
    assert found.value.dtype == torch.float32
    assert found.all_converged
    # the bound is about the layer whose weights are the rounded ones
    torch.testing.assert_close(found.value.double(), exact.value, rtol=0, atol=1e-4)
    assert solved(layer(samples=0), solver).all_converged


@pytest.mark.parametrize(
    ("solver", "activation"), [(name, ("relu", "tanh")[k % 2]) for k, name in enumerate(sorted(SPLITTINGS))]
)
def test_many_samples_of_which_few_are_slow_are_solved_as_each_by_itself(solver, activation):
    given = layer(samples=150, m=1.0, skew=1.0, activation=activation)
    given.source[::3] *= 1e6
    given.source[5] = 0.0
    given.source[7, 1] = math.inf
    found = solved(given, solver, raise_on_failure=False)
    assert found.converged[[k for k in range(150) if k != 7]].all()
    assert found.status[7] == int(Status.NON_FINITE)
    for k in (0, 1, 5, 149):
        alone = solved(MonotoneLayer(given.weight, given.source[k : k + 1], given.activation), solver)
        size = float(alone.value.abs().max())
        torch.testing.assert_close(found.value[k], alone.value[0], rtol=0, atol=1e-12 * size)
    few = solved(given, solver, max_steps=9, raise_on_failure=False)
    assert (few.steps <= 9).all()
    assert few.status[1] == int(Status.MAX_STEPS)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("modulus", "skew"), [(None, 1.0), (0.05, 1.0), (0.1, 1e3), (3.0, 0.0)])
def test_a_monotone_weight_has_its_parameters(modulus, skew, dtype):
    W = weights(6, m=3.0 if modulus == 3.0 else 0.1, skew=skew, dtype=dtype)
    A, B = nd.monotone_parameters(W, modulus)
    m = MonotoneLayer(W, W.new_zeros(0, 6)).modulus if modulus is None else modulus
    again = (1 - m) * torch.eye(6).to(W) - A.mT @ A + B - B.mT
    torch.testing.assert_close(again, W, rtol=0, atol=20 * torch.finfo(dtype).eps * (3 + 4 * skew))


def test_a_modulus_at_the_edge_is_taken_and_one_beyond_is_not():
    W = torch.diag(torch.tensor([0.5, 0.25, -3.0])).double()
    A, B = nd.monotone_parameters(W, 0.5)
    torch.testing.assert_close(0.5 * torch.eye(3).double() - A.mT @ A + B - B.mT, W, rtol=0, atol=1e-15)
    with pytest.raises(ArgumentError, match=r"must be at most 0\.5, the smallest eigenvalue .* Got 0\.51"):
        nd.monotone_parameters(W, 0.51)
    with pytest.raises(ArgumentError, match=r"monotone_parameters needs a monotone layer: .* Got m = -0\.5"):
        nd.monotone_parameters(W + torch.eye(3).double())
    for modulus in (0, -1.0, math.nan, True):
        with pytest.raises(ArgumentError, match=r"`modulus` of monotone_parameters must be a finite number > 0"):
            nd.monotone_parameters(W, modulus)
    with pytest.raises(ArgumentError, match=r"must be a square matrix. Got shape \(2, 3\)"):
        nd.monotone_parameters(W[:2])


@pytest.mark.parametrize("modulus", [0.0, -1.0])
def test_a_modulus_that_is_none_is_refused(modulus):
    eye = torch.eye(2).double()
    with pytest.raises(ArgumentError, match=rf"`m` of monotone-deq must be a number with 0 < m. Got {modulus}"):
        nd.system("monotone-deq")(A=eye, B=eye, U=eye, u=eye[0], m=modulus)


def test_what_is_proven_of_a_weight_is_not_believed_of_another():
    given = layer()
    first = given.modulus, given.length
    other = MonotoneLayer(given.weight.clone(), given.source)
    assert (other.modulus, other.length) == first
    moved = MonotoneLayer(given.weight.clone().sub_(torch.eye(12).double()), given.source)
    assert moved.modulus == pytest.approx(first[0] + 1)
    assert MonotoneLayer(given.weight.float(), given.source.float()).modulus != first[0]


def test_peaceman_rachford_needs_the_fewest_steps():
    given = layer(n=20, m=0.3, skew=1.0)
    steps = {solver: int(solved(given, solver, max_steps=200_000).steps.max()) for solver in SPLITTINGS}
    assert steps["peaceman-rachford"] < steps["forward-backward"] / 10


@pytest.mark.parametrize("solver", sorted(SPLITTINGS))
def test_a_layer_that_is_not_monotone_is_refused(solver):
    one = torch.ones(1, 1).double()
    for W in (one, 1.5 * one, math.nan * one):
        with pytest.raises(ArgumentError, match=rf"The solver {solver} needs a monotone layer: .* m > 0\. Got"):
            solved(MonotoneLayer(W, one), solver)


def test_bad_steps_and_maps_say_what_is_allowed():
    given = layer(m=1.0)
    most = 2 * given.modulus / given.length**2
    with pytest.raises(ArgumentError, match=rf"must be in \(0, 2m/L\^2\) = \(0, {most:.6g}\), where m = 1.*Got 3"):
        solved(given, make_solver("forward-backward", step=3.0))
    for step in (0.0, -1, math.inf, math.nan, "half", True):
        for solver in SPLITTINGS:
            with pytest.raises(ArgumentError, match=f"`step` of the solver {solver} must be a finite number > 0"):
                make_solver(solver, step=step)
    with pytest.raises(ArgumentError, match=r"needs to know W of a map .* Got function"):
        solve_fixed_point(lambda z: z / 2, torch.ones(1, 1).double(), solver="forward-backward")
    with pytest.raises(ArgumentError, match="which `solve_equilibrium` and"):
        fixed_point(torch.cos, torch.ones(1, 1).double(), solver="peaceman-rachford")
    with pytest.raises(ArgumentError, match=r"must have the shape \(7, 12\) of the layer's"):
        solve_fixed_point(given, torch.zeros(6, 12).double(), solver="forward-backward")
    with pytest.raises(ArgumentError, match=r"must be torch.float64 on cpu.*Got torch.float32"):
        solve_fixed_point(given, torch.zeros(7, 12), solver="forward-backward")
    with pytest.raises(ArgumentError, match=r"m x m and `source` N x m. Got \(2, 2\) and \(1, 3\)"):
        MonotoneLayer(torch.eye(2), torch.ones(1, 3))
    with pytest.raises(ArgumentError, match="one dtype and device"):
        MonotoneLayer(torch.eye(2), torch.ones(1, 2).double())
    with pytest.raises(ArgumentError, match="`weight` of MonotoneLayer must be a matrix"):
        MonotoneLayer(torch.ones(2), torch.ones(1, 2))


SYSTEM = """
suite: s
systems:
  mono:
    variables:
      A: {{shape: "[n, n]", role: parameter}}
      B: {{shape: "[n, n]", role: parameter}}
      U: {{shape: "[n, d]", role: parameter}}
      u: {{shape: "[n]", role: parameter}}
      m: {{role: hyperparameter, domain: positive}}
      X: {{shape: "[d, N]", role: input}}
      y: {{shape: "[N]", role: target}}
    equilibrium: {{Z: "{map}"}}
    {certificate}
    define: {{W: "(1 - m)*I(n) - A'*A + B - B'", yhat: "Z'*u", L: "norm(yhat - y)^2/2"}}
claims: []
"""


def declared(tmp_path, image, certificate="monotone: m"):
    file = tmp_path / "s.yaml"
    file.write_text(SYSTEM.format(map=image, certificate=certificate))
    generator = torch.Generator().manual_seed(4)
    shapes = {"A": (5, 5), "B": (5, 5), "U": (5, 3), "u": (5,)}
    values = {name: torch.randn(shape, generator=generator).double() / 2 for name, shape in shapes.items()}
    X = torch.randn(3, 6, generator=generator).double()
    return system("mono", path=file).from_variables({**values, "m": torch.tensor(1.0).double()}), X


@pytest.mark.parametrize(
    "image", ["relu(W*Z + U*X)", "tanh(U*X + W*Z)", "W*Z + U*X", "relu(W*Z/2 + U*X + Z/4)", "relu(U*X - A'*A*Z)"]
)
def test_declared_systems_are_solved_with_samples_in_columns(tmp_path, image):
    model, X = declared(tmp_path, image)
    plain = model.solve(X, solver="anderson", max_steps=100_000)
    for solver in SPLITTINGS:
        found = model.solve(X, solver=solver, max_steps=100_000)
        torch.testing.assert_close(found.value, plain.value, rtol=0, atol=1e-9)
        assert (found.error_bound < 1e-8).all()


def test_a_system_that_is_no_layer_is_refused(tmp_path):
    model, X = declared(tmp_path, "relu(relu(Z)/4 + U*X + W*X(0)*0)".replace(" + W*X(0)*0", ""), "contraction: 1/2")
    with pytest.raises(ArgumentError, match=r"forward-backward needs a map act\(W z \+ c\), act proximal, which that"):
        model.solve(X, solver="forward-backward")
