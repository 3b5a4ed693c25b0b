"""Certified equilibria and adjoints: closed forms, every proof, kinks, several equilibria and none, false claims."""

import math

import flint
import pytest
import torch
from flint import arb, arb_mat

from ntk_deq import certified as ct
from ntk_deq.certified import Ball
from ntk_deq.equilibrium import slopes
from ntk_deq.equilibrium.slopes import RELU, Slopes, relu_slopes
from ntk_deq.systems import ImplicitReLU, LinearImplicit, Proof, certified_adjoint, certified_equilibrium, solve_adjoint
from ntk_deq.systems.certificate import pattern_norm


def normal(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def of(rows) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def exact(tensor: torch.Tensor) -> arb_mat:
    matrix = tensor if tensor.dim() == 2 else tensor[None]
    return arb_mat(*matrix.shape, [arb(v) for v in matrix.double().reshape(-1).tolist()])


def contains(ball: Ball, truth: arb_mat) -> bool:
    gap = (truth - exact(ball.centre)).entries()
    return bool(sum((x * x for x in gap), arb(0)) <= arb(ball.radius) * arb(ball.radius))


MODELS = {
    "relu": lambda dtype: ImplicitReLU.random(3, 5, generator=torch.Generator().manual_seed(4), dtype=dtype),
    "linear": lambda dtype: LinearImplicit.random(3, 5, generator=torch.Generator().manual_seed(4), dtype=dtype),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", MODELS)
def test_the_map_in_balls_is_the_map(name, dtype):
    model = MODELS[name](dtype)
    X, Z = normal(4, 3).to(dtype), normal(4, 5, seed=2).to(dtype)
    layer = model.in_balls(X)
    image = layer.step(Ball(Z.double()))
    assert image.centre.dtype is torch.float64
    gap = float(torch.linalg.matrix_norm(image.centre - model.step(Z, X).double()))
    assert gap <= image.radius + 20 * torch.finfo(dtype).eps * image.fro
    assert image.radius < 1e-12
    with flint.ctx.workprec(400):
        p = {key: exact(value) for key, value in model.parameters().items()}
        if name == "relu":
            phi = exact(X) * p["W"]
            pre = exact(Z) * p["A"] * arb(float(model.gamma))
            pairs = (pre.entries(), phi.entries())
            truth = arb_mat(4, 5, [(a + c.max(arb(0))).max(arb(0)) for a, c in zip(*pairs, strict=True)])
        else:
            truth = exact(Z) * p["W"].transpose() + exact(X) * p["U"].transpose()
        assert contains(image, truth)
    assert contains(layer.readout, exact(model.b))
    lipschitz = ct.upper(ct.spectral_norm(layer.weight))
    assert lipschitz == pytest.approx(float(model.contraction_bound()), rel=1e-6)


@pytest.mark.parametrize("w", [0.5, -0.9, 0.999, 1.0 - 2.0**-30, -1.5, 7.0])
def test_the_scalar_linear_equilibrium(w):
    model = LinearImplicit(W=of([[w]]), U=of([[0.3]]), b=of([0.7]))
    X = of([[1.0], [-2.0]])
    found = certified_equilibrium(model, X, max_steps=300)
    adjoint = certified_adjoint(model, X, found, max_steps=300)
    with flint.ctx.workprec(300):
        z = [arb(0.3) * x / (1 - arb(w)) for x in (1, -2)]
        v = arb(0.7) / (1 - arb(w))
        assert contains(found.ball, arb_mat(2, 1, z))
        assert contains(adjoint.ball, arb_mat(2, 1, [v, v]))
    assert found.unique
    assert found.proof is (Proof.CONTRACTION if abs(w) < 1 else Proof.INVERSE)
    # The map rounds by u |z|, and 1/(1 - w) magnifies that.
    assert found.radius < 1e-14 * abs(1 - w) ** -2 + 1e-13
    assert found.pattern_certain.all()


def test_at_the_pole_nothing_is_proved():
    model = LinearImplicit(W=of([[1.0]]), U=of([[0.3]]), b=of([0.7]))
    found = certified_equilibrium(model, of([[1.0]]), max_steps=50)
    assert found.proof is Proof.NONE
    assert found.radius == math.inf
    assert not found.unique
    assert "contraction factor is 1, not below 1" in found.reason
    assert "nothing proved" in repr(found)
    adjoint = certified_adjoint(model, of([[1.0]]), found)
    assert adjoint.radius == math.inf
    assert adjoint.reason == found.reason
    assert "nothing proved" in repr(adjoint)


def competing(strength: float) -> ImplicitReLU:
    """Return z1 = relu(x1 - s z2), z2 = relu(x2 - s z1): for s > 1 and x = (1, 1) it has three equilibria."""
    return ImplicitReLU(
        W=torch.eye(2).double(), A=of([[0.0, -2.0], [-2.0, 0.0]]) * strength, b=of([1.0, 1.0]), gamma=0.5
    )


@pytest.mark.parametrize(
    ("point", "proof"),
    [
        ([1.0, 0.0], Proof.EXACT),
        ([1.0 - 1e-9, 1e-9], Proof.INVERSE),
        ([1e-9, 1.0], Proof.INVERSE),
        ([0.25, 0.25], Proof.EXACT),
        ([0.25 + 1e-9, 0.25], Proof.INVERSE),
    ],
)
def test_each_of_three_equilibria_is_proved_near_its_candidate(point, proof):
    found = certified_equilibrium(competing(3.0), of([[1.0, 1.0]]), candidate=of([point]))
    assert found.proof is proof
    assert not found.unique
    nearest = [round(value, 6) for value in point]
    assert contains(found.ball, exact(of([nearest])))
    assert found.radius < 1e-7


def test_a_local_contraction_is_proved_where_an_inactive_unit_holds_the_large_weight():
    # Unit 2 is off (its input is 0 and unit 1 inhibits it), so that its weight of 4 onto unit 1 does not count.
    model = ImplicitReLU(W=of([[1.0, 0.0]]), A=of([[0.5, -8.0], [0.0, 0.0]]), b=of([1.0, 1.0]), gamma=0.5)
    X = of([[1.0], [0.5]])
    found = certified_equilibrium(model, X)
    assert found.proof is Proof.LOCAL
    assert found.contraction < 0.3
    assert not found.unique
    assert contains(found.ball, exact(X) * (arb(4) / 3) * exact(of([[1.0, 0.0]])))
    assert found.slopes.low.tolist() == found.slopes.high.tolist() == [[1.0, 0.0], [1.0, 0.0]]


def test_no_equilibrium_is_not_proved():
    model = ImplicitReLU(W=of([[1.0]]), A=of([[2.0]]), b=of([1.0]), gamma=0.5)  # z = z + 1
    for candidate in (None, of([[1e8]])):
        found = certified_equilibrium(model, of([[1.0]]), candidate=candidate, max_steps=100)
        assert found.proof is Proof.NONE
        assert found.reason


def test_a_far_candidate_gives_a_wide_ball_that_still_holds():
    model = MODELS["relu"](torch.float64)
    X = normal(4, 3)
    sharp = certified_equilibrium(model, X)
    for size in (1e-9, 1e-3, 10.0):
        candidate = sharp.value + size * normal(4, 5, seed=3)
        wide = certified_equilibrium(model, X, candidate=candidate)
        distance = float(torch.linalg.matrix_norm(candidate - sharp.value))
        assert distance - sharp.radius <= wide.radius <= 10 * distance + 1e-12
        assert wide.unique
    assert sharp.radius < 1e-12
    assert "unique, by contraction, Lipschitz constant 0.5" in repr(sharp)


def test_a_claimed_contraction_is_not_believed():
    class Boastful(ImplicitReLU):
        def contraction_bound(self, parameters=None):
            return torch.zeros((), dtype=torch.float64)

    found = certified_equilibrium(
        Boastful(W=of([[1.0]]), A=of([[2.0]]), b=of([1.0]), gamma=0.5), of([[1.0]]), max_steps=100
    )
    assert found.proof is Proof.NONE
    assert found.contraction >= 1


def test_derivatives_at_a_kink_are_flagged():
    # For x = 0 the truth is zero: of unit 1 certainly so (no weight leads there), of unit 2 only within the radius.
    model = ImplicitReLU(W=of([[1.0, 0.0]]), A=of([[0.0, 0.1], [0.0, 0.0]]), b=of([1.0, 3.0]), gamma=0.5)
    found = certified_equilibrium(model, of([[0.0], [1.0]]), candidate=of([[1e-12, 0.0], [1.0, 0.05]]))
    assert found.pattern_certain.tolist() == [[True, False], [True, True]]
    adjoint = certified_adjoint(model, of([[0.0], [1.0]]), found)
    gain = 0.1 * 0.5 * 3.0
    # On either side of the kink: v = (1 + slope gain, 3) with the slope of unit 2, 0 or 1.
    for slope in (0.0, 1.0):
        assert contains(adjoint.ball, exact(of([[1.0 + slope * gain, 3.0], [1.0 + gain, 3.0]])))
    assert gain / 2 <= adjoint.radius < gain


def test_zero_weights_leave_exact_zeros():
    model = ImplicitReLU(W=normal(3, 6), A=torch.zeros(6, 6, dtype=torch.float64), b=normal(6), gamma=0.5)
    X = normal(5, 3, seed=2)
    found = certified_equilibrium(model, X)
    assert found.contraction == 0
    assert found.pattern_certain.all()
    assert torch.equal(found.slopes.low, (X @ model.W > 0).double())


@pytest.mark.parametrize("gamma", [0.3, 0.9, 0.99])
def test_the_adjoint_agrees_with_the_plain_one(gamma):
    model = ImplicitReLU.random(3, 8, generator=torch.Generator().manual_seed(1), gamma=gamma)
    X = normal(4, 3)
    found = certified_equilibrium(model, X)
    assert found.pattern_certain.all()
    adjoint = certified_adjoint(model, X, found)
    assert adjoint.proof is Proof.CONTRACTION
    assert adjoint.radius < 1e-10
    plain = solve_adjoint(model, X, found.value).value
    assert float(torch.linalg.matrix_norm(plain - adjoint.value)) <= adjoint.radius + 1e-11
    assert "by contraction" in repr(adjoint)
    assert torch.equal(certified_adjoint(model, X).value, adjoint.value)


def test_a_model_without_balls_says_so():
    class Plain(LinearImplicit):
        def in_balls(self, X):
            return None

    one = of([[0.5]])
    found = certified_equilibrium(Plain(W=one, U=one, b=one[0]), one)
    assert found.reason == "the model linear-implicit has no form in balls (`in_balls`)"
    assert certified_adjoint(Plain(W=one, U=one, b=one[0]), one, found).reason == found.reason


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_candidate_that_is_not_finite_gives_no_information(bad):
    one = of([[0.5]])
    found = certified_equilibrium(LinearImplicit(W=one, U=one, b=one[0]), one, candidate=of([[bad]]))
    assert found.proof is Proof.NONE
    assert found.reason == "an entry is not finite"


def test_too_many_patterns_are_refused(monkeypatch):
    monkeypatch.setattr(slopes, "MOST_WORK", 1)
    found = certified_equilibrium(competing(3.0), of([[1.0, 1.0]]), candidate=of([[1.0 - 1e-9, 0.0]]))
    assert found.proof is not Proof.INVERSE


def test_slopes_of_relu():
    pre = of([[-2.0, -0.5, 0.0, 0.5, 2.0]])
    wide = relu_slopes(Ball(pre, 1.0))
    assert wide.low.tolist() == [[0, 0, 0, 0, 1]]
    assert wide.high.tolist() == [[0, 1, 1, 1, 1]]
    assert wide.certain.tolist() == [[True, False, False, False, True]]
    sharp = relu_slopes(Ball(pre))
    assert torch.equal(sharp.low, sharp.high)
    assert sharp.low.tolist() == [[0, 0, 0, 1, 1]]
    lost = relu_slopes(Ball(of([[math.nan, 1.0]])))
    assert lost.low.tolist() == [[0, 0]]
    assert lost.high.tolist() == [[1, 1]]
    assert RELU.slopes is relu_slopes
    assert float(wide.spread.max()) > 0.5
    assert wide.middle.tolist() == [[0, 0.5, 0.5, 0.5, 1]]


def test_pattern_norms_bound_every_row():
    weight = Ball(normal(6, 6))
    high = (normal(9, 6, seed=5) > 0).double()
    bound = pattern_norm(weight, Slopes(torch.zeros_like(high), high))
    largest = max(float(torch.linalg.matrix_norm(weight.centre * row, 2)) for row in high)
    assert largest <= bound * (1 + 1e-14)
    assert bound <= largest * (1 + 1e-10)
