"""An unrolled network of five steps: its gradient against automatic differentiation, descent against its recursion."""

from __future__ import annotations

import pytest
import torch

from ntk_deq.claims.depths import at_depth
from ntk_deq.claims.load import load_suite
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.environment import Notes
from ntk_deq.falsify import instance_at
from ntk_deq.verify.formulas import instance_environment
from ntk_deq.verify.runner import Options, judge
from ntk_deq.verify.training import Trainee
from ntk_deq.verify.twins import twin_of

FILE = """
suite: unrolled
systems:
  unrolled:
    variables:
      W: {shape: "[h, m]", role: parameter}
      U: {shape: "[m, d]", role: parameter}
      a: {shape: "[m]", role: parameter}
      X: {shape: "[d, N]", role: input}
      y: {shape: "[N]", role: target}
    define:
      z[0]: zeros(m, N)
      z[l] for l in 1..K: relu(W'*relu(W*z[l-1]) + U*X)
      yhat: z[K]'*a
      L: norm(yhat - y)^2/2
  layers:
    variables:
      W: {shape: "[m, m] for l in 1..K", role: parameter}
      X: {shape: "[m, N]", role: input}
      y: {shape: "[N]", role: target}
    define:
      z[0]: X
      z[l] for l in 1..K: tanh(W[l]*z[l-1])
      L: norm(z[K]'*ones(m) - y)^2/2
settings:
  deep:
    model: layers
    sizes: {K: 3, N: 2, m: 2}
    init: {W: "normal(0, 1/2)"}
    data: {X: gaussian, y: rademacher}
  drawn:
    model: unrolled
    sizes: {K: 5, N: 3, d: 2, m: 3, h: 3}
    init: {W: "normal(0, 1/8)", U: "normal(0, 1)", a: "normal(0, 1)"}
    data: {X: gaussian, y: rademacher}
claims:
  - id: descent
    setting: drawn
    instances: 1
    run: {method: gradient-descent, step: 1/64, steps: 8, beyond: false}
    conclude: L[k+1] <= L[k] for all k
  - id: recursion
    setting: drawn
    instances: 1
    let:
      gW: grad(L, W)
      gU: grad(L, U)
      ga: grad(L, a)
      w[0]: W
      u[0]: U
      b[0]: a
      w[k+1]: w[k] - at(gW, W = w[k], U = u[k], a = b[k])/64
      u[k+1]: u[k] - at(gU, W = w[k], U = u[k], a = b[k])/64
      b[k+1]: b[k] - at(ga, W = w[k], U = u[k], a = b[k])/64
      e[k]: at(L, W = w[k], U = u[k], a = b[k])
    run: {method: recursion, steps: 8}
    conclude: e[k+1] <= e[k] for all k
  - id: jacobians
    title: A training run that holds a recursion inside, a derivative through it at every step
    setting: deep
    instances: 1
    let: {"J[l] for l in 1..K": "jac(z[K], W[l])"}
    run: {method: gradient-descent, step: 1/64, steps: 8, beyond: false}
    conclude:
      last: norm(J[K][k]) <= sqrt(m)*norm(X) for all k
      all: "norm(J[l][k]) <= sqrt(m)*fro(X)*prod(1 + norm(W[j][k]) for j in l+1..K) for all l in 1..K for all k"
  - id: through
    title: A derivative through a recursion of fixed length
    setting: drawn
    instances: 1
    let:
      x[0]: zeros(m, N)
      x[k+1]: relu(W'*relu(W*x[k]) + U*X)
      J: jac(x[5], W)
      g: grad(norm(x[5]'*a - y)^2/2, W)
    run: {method: recursion, steps: 5}
    conclude: {gradient: "g == grad(L, W)", jacobian: "norm(J) >= 0"}
"""


@pytest.fixture(scope="module")
def claims(tmp_path_factory):
    path = tmp_path_factory.mktemp("unrolled") / "claims.yaml"
    path.write_text(FILE, encoding="utf-8")
    return {claim.id: claim for claim in load_suite(str(path)).claims}


def started(claim):
    """The claim at its depth, its first instance, and the environment of that."""
    claim = at_depth(claim, claim.depths[0]) if claim.depths else claim
    instance = instance_at(claim.settings[0], claim.given, 0, 0)
    device = torch.device("cpu")
    return claim, instance, instance_environment(claim, instance, device=device, dtype=torch.float64, notes=Notes())


def state(W, U, X):
    z = torch.zeros(W.shape[1], X.shape[1], dtype=torch.float64)
    for _ in range(5):
        z = torch.relu(W.mT @ torch.relu(W @ z) + U @ X)
    return z


def test_the_gradient_is_that_of_automatic_differentiation(claims):
    _, instance, env = started(claims["recursion"])
    own = {name: value.clone().requires_grad_() for name, value in instance.values.items()}
    loss = ((state(own["W"], own["U"], own["X"]).mT @ own["a"] - own["y"]) ** 2).sum() / 2
    for name, wanted in zip(("W", "U", "a"), torch.autograd.grad(loss, [own["W"], own["U"], own["a"]]), strict=True):
        found = evaluate(env.lets[f"g{name}"].expr, env)
        assert torch.allclose(found.ball.centre.reshape(wanted.shape), wanted, rtol=0, atol=1e-11)
        assert found.ball.radius < 1e-11


def test_a_derivative_goes_through_every_step_of_a_recursion(claims):
    _, instance, env = started(claims["through"])
    own = instance.values

    def flat(W):
        return state(W, own["U"], own["X"]).mT.flatten()  # column after column

    wanted = torch.autograd.functional.jacobian(flat, own["W"])
    found = evaluate(env.lets["J"].expr, env).ball.centre
    assert torch.allclose(found, wanted.mT.reshape(found.shape), rtol=0, atol=1e-11)


def test_descent_of_a_system_is_the_recursion_that_it_is(claims):
    claim, instance, env = started(claims["descent"])
    course = twin_of(claim).trajectory(claim.run, Trainee.of(env, instance), env, (8,))
    last = course.points[-1]
    assert last.at == 8
    claim, instance, env = started(claims["recursion"])
    twin_of(claim).start(claim, env, instance)
    for own, name in zip(("W", "U", "a"), ("w", "u", "b"), strict=True):
        found = env.at_steps[name, 8].ball
        gap = torch.linalg.vector_norm(found.centre.reshape(last.parameters[own].shape) - last.parameters[own])
        assert float(gap) <= 1e-11
        assert found.radius <= 1e-11


@pytest.mark.parametrize("name", ["descent", "recursion", "jacobians", "through"])
def test_the_claims_hold(claims, name):
    result = judge(claims[name], Options(search=0))
    assert result.as_expected, result.reason
    assert name in ("descent", "jacobians") or result.evidence == "certified"
