"""Starts whose gradient is zero for certain, though no unit is off: the run rests there."""

import pytest
import torch

from ntk_deq.claims.load import load_suite
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Truth
from ntk_deq.systems import ImplicitReLU, LinearImplicit
from ntk_deq.verify.judge import Standing, judge_instance
from ntk_deq.verify.runner import Options, judge
from ntk_deq.verify.training import Trainee
from ntk_deq.verify.training.proven import rests_exactly

SUITE = """
suite: rest
systems:
  deep:
    variables:
      W: {shape: "[n[l], n[l-1]] for l in 1..D", role: parameter}
      X: {shape: "[n[0], N]", role: input}
      y: {shape: "[n[D], N]", role: target}
    define:
      z[0]: X
      z[l] for l in 1..D: W[l]*z[l-1]
      yhat: z[D]
      L: fro(yhat - y)^2/2
settings:
  linear: {model: linear-implicit, sizes: {N: 1..2, d: 1..2, m: 1..2}}
  deep: {model: deep, sizes: {D: 2, N: 2, n: "1 for l in 0..D"}, data: {X: gaussian, y: gaussian}, init: {W: zeros}}
claims:
  - {id: deep, setting: deep, run: {method: gradient-flow, horizon: 1}, conclude: "L[t] == L[0] for all t"}
  - id: flow
    setting: linear
    assume: norm(W) <= 1/2
    run: {method: gradient-flow, horizon: 1}
    conclude: {falls: "L[t] <= L[s] for all s, t with s <= t", stays: "L[t] == L[0] for all t"}
  - id: strictly
    setting: linear
    assume: norm(W) <= 1/2
    run: {method: gradient-descent, step: 1/8, steps: 20}
    conclude: {falls: "L[k+1] < L[k] for all k"}
"""


def tensor(value):
    return torch.tensor(value, dtype=torch.float64)


def judged(folder, name, values):
    path = folder / "rest.yaml"
    path.write_text(SUITE, encoding="utf-8")
    claim = next(claim for claim in load_suite(path).claims if claim.id == name)
    found = {key: tensor(value) for key, value in values.items()}
    sizes = {"N": found["X"].shape[0], "d": found["X"].shape[1], "m": len(found["b"])}
    return judge_instance(claim, Instance("linear", "by hand", sizes, found, 0), device=torch.device("cpu"))


CANCELLING = {"W": [[0.0]], "U": [[0.0]], "b": [-3.0], "X": [[-1.0], [-1.0]], "y": [-1.0, 1.0]}


@pytest.mark.parametrize(
    "values",
    [
        CANCELLING,  # equal inputs, opposite targets
        {**CANCELLING, "b": [2.0**-10], "W": [[0.5]]},
        {"W": [[0.0]], "U": [[0.0]], "b": [1.0], "X": [[1.0], [0.0]], "y": [0.0, 1.0]},  # an input of zero
        {"W": [[0.25, 0.25], [0.0, 0.0]], "U": [[0.0], [0.0]], "b": [0.0, 0.0], "X": [[3.0]], "y": [1.0]},
    ],
)
def test_a_flow_rests(tmp_path, values):
    judgement = judged(tmp_path, "flow", values)
    assert judgement.standing is Standing.MET
    assert {outcome.truth for outcome in judgement.conclusions.values()} <= {Truth.TIGHT, Truth.TRUE}
    assert not judgement.reason


def test_a_family_of_weights_rests(tmp_path):
    (tmp_path / "rest.yaml").write_text(SUITE, encoding="utf-8")
    suite = load_suite(tmp_path / "rest.yaml")
    claim = next(claim for claim in suite.claims if claim.id == "deep")
    assert judge(claim, Options(instances=4, search=0)).verdict.value == "holds"


def test_descent_that_rests_breaks_a_strict_claim(tmp_path):
    assert judged(tmp_path, "strictly", CANCELLING).conclusions["falls"].truth is Truth.FALSE


def trainee(model, X, y):
    return Trainee(model, tensor(X), tensor(y), dict.fromkeys(model.parameters(), 0.0), (0.0, 0.0))


def test_a_gradient_that_is_zero_in_floats_only():
    tiny = 2.0**-600
    model = LinearImplicit(W=tensor([[0.0]]), U=tensor([[tiny]]), b=tensor([tiny]))
    one = trainee(model, [[tiny]], [tiny])
    assert not rests_exactly(one, model.single_layer(), tensor([[0.0]]))


@pytest.mark.parametrize(("y", "rest"), [([2.0], True), ([1.0], False)])
def test_the_gradient_of_a_relu_network(y, rest):
    # z1 = relu(z2/2 + 1) and z2 = relu(-z1/2): (1, 0), and yhat = 2 z1.
    weights = {"W": tensor([[1.0, -1.0]]), "A": tensor([[0.0, -1.0], [1.0, 0.0]]), "b": tensor([2.0, 5.0])}
    model = ImplicitReLU(**weights, gamma=0.5)
    found = trainee(model, [[1.0]], y)
    assert rests_exactly(found, model.single_layer(), tensor([[1.0, 0.0]])) is rest
    wrong = tensor([[1.0, 1.0]])  # slopes that do not fit the equilibrium decide nothing
    assert not rests_exactly(found, model.single_layer(), wrong)
