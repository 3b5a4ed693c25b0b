"""Descent on declared systems that are no single layer: proven errors, held against a run of many bits."""

import math

import flint
import pytest
import torch
from flint import arb, arb_mat

from ntk_deq.claims.load import load_suite
from ntk_deq.evaluation.arithmetic import to_scalar
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.environment import Notes
from ntk_deq.evaluation.instance import Instance
from ntk_deq.language.parser import parse
from ntk_deq.verify.formulas import instance_environment
from ntk_deq.verify.training import Trainee
from ntk_deq.verify.training.proven import proven_window

SUITE = """
suite: declared descent
systems:
  layer:
    variables:
      W: {shape: "[h, n]", role: parameter}
      U: {shape: "[h, d]", role: parameter}
      b: {shape: "[h]", role: parameter}
      u: {shape: "[n]", role: parameter}
      X: {shape: "[d, N]", role: input}
      y: {shape: "[N]", role: target}
    equilibrium: {Z: "W'*relu(W*Z + U*X + b*ones(N)')"}
    contraction: norm(W)^2
    define: {yhat: "Z'*u", L: "norm(yhat - y)^2/2"}
  monotone:
    variables:
      A: {shape: "[n, n]", role: parameter}
      B: {shape: "[n, n]", role: parameter}
      U: {shape: "[n, d]", role: parameter}
      u: {shape: "[n]", role: parameter}
      X: {shape: "[d, N]", role: input}
      y: {shape: "[N]", role: target}
    equilibrium: {Z: relu(W*Z + U*X)}
    monotone: 1/2
    define: {W: "I(n)/2 - A'*A + B - B'", yhat: "Z'*u", L: "norm(yhat - y)^2/2"}
  smooth:
    variables:
      W: {shape: "[n, n]", role: parameter}
      s: {role: parameter}
      X: {shape: "[n, N]", role: input}
      y: {shape: "[N]", role: target}
    equilibrium: {Z: "tanh(W*Z + X)"}
    contraction: norm(W)
    define: {yhat: "exp(s)*Z'*ones(n)", L: "norm(yhat - y)^2/2 + fro(W)^2/8"}
settings:
  layer: {model: layer, sizes: {h: 1..3, n: 1..2, d: 1..2, N: 1..2}}
  monotone: {model: monotone, sizes: {n: 1..2, d: 1..2, N: 1..2}}
  smooth: {model: smooth, sizes: {n: 1..2, N: 1..2}}
claims:
  - {id: layer, setting: layer, run: {method: gradient-descent, step: 1/8, steps: 6}, conclude: "L[k] >= 0 for all k"}
  - id: monotone
    setting: monotone
    run: {method: gradient-descent, step: 1/8, steps: 6}
    conclude: L[k] >= 0 for all k
  - {id: smooth, setting: smooth, run: {method: gradient-descent, step: 1/8, steps: 6}, conclude: "L[k] >= 0 for all k"}
"""
STEPS = 6
START = {
    "layer": {
        "W": [[0.5, -0.25], [0.25, 0.375], [-0.125, 0.5]],
        "U": [[0.75, -0.5], [0.25, 1.0], [-0.5, 0.25]],
        "b": [0.25, -0.125, 0.5],
        "u": [0.75, -0.5],
        "X": [[1.0, -0.5], [0.25, 0.75]],
        "y": [0.5, -1.0],
    },
    "monotone": {
        "A": [[0.5, -0.25], [0.25, 0.375]],
        "B": [[0.0, 0.25], [-0.25, 0.25]],
        "U": [[0.75, -0.5], [0.25, 1.0]],
        "u": [0.75, -0.5],
        "X": [[1.0, -0.5], [0.25, 0.75]],
        "y": [0.5, -1.0],
    },
    "smooth": {"W": [[0.25, -0.5], [0.125, 0.25]], "X": [[0.5, 0.25], [-0.75, 1.0]], "y": [0.5, -1.0], "s": 0.5},
}


def window(folder, name, values, steps=STEPS):
    path = folder / "descent.yaml"
    path.write_text(SUITE, encoding="utf-8")
    claim = next(claim for claim in load_suite(path).claims if claim.id == name)
    found = {key: torch.tensor(value, dtype=torch.float64) for key, value in values.items()}
    instance = Instance(name, "by hand", {"n": 2, "d": 2, "N": 2, "h": 3}, found, 0)
    env = instance_environment(claim, instance, device=torch.device("cpu"), dtype=torch.float64, notes=Notes())
    step = to_scalar(evaluate(parse("1/8"), env))
    return proven_window(Trainee.of(env, instance), env, step=step, ats=range(steps + 1))


def mapped(function, a):
    return arb_mat(a.nrows(), a.ncols(), [function(entry) for entry in a.entries()])


def relu(a):
    return mapped(lambda entry: entry if entry > 0 else arb(0), a)


def fixed(step, rows, columns):
    state = arb_mat(rows, columns)
    for _ in range(320):  # the maps contract by 0.7: 2^-160
        state = mapped(lambda entry: entry.mid(), step(state))
    return state


def half_squares(Z, v):
    residual = Z.transpose() * v["u"] - v["y"]
    return sum((entry * entry for entry in residual.entries()), arb(0)) / 2


def layer(v):
    fed = v["U"] * v["X"] + v["b"] * arb_mat(1, 2, [1, 1])
    return half_squares(fixed(lambda Z: v["W"].transpose() * relu(v["W"] * Z + fed), 2, 2), v)


def monotone(v):
    one = arb_mat(2, 2, [1, 0, 0, 1])
    weight = one / 2 - v["A"].transpose() * v["A"] + v["B"] - v["B"].transpose()
    return half_squares(fixed(lambda Z: relu(weight * Z + v["U"] * v["X"]), 2, 2), v)


def smooth(v):
    Z = fixed(lambda Z: mapped(arb.tanh, v["W"] * Z + v["X"]), 2, 2)
    squares = sum((entry * entry for entry in v["W"].entries()), arb(0))
    return half_squares(Z, {**v, "u": arb_mat(2, 1, [v["s"][0, 0].exp()] * 2)}) + squares / 8


def stepped(loss, v, names):
    """One step of descent, by central differences that are wrong in the 100th bit."""
    h = arb(2) ** -60
    new = {}
    for name in names:
        a = v[name]
        entries = []
        for place, entry in enumerate(a.entries()):
            ends = []
            for sign in (1, -1):
                changed = a.entries()
                changed[place] = entry + sign * h
                ends.append(loss({**v, name: arb_mat(a.nrows(), a.ncols(), changed)}))
            entries.append((entry - (ends[0] - ends[1]) / (16 * h)).mid())
        new[name] = arb_mat(a.nrows(), a.ncols(), entries)
    return {**v, **new}


@pytest.mark.parametrize(("name", "loss"), [("layer", layer), ("monotone", monotone), ("smooth", smooth)])
def test_the_exact_run_is_within_the_proven_distance(tmp_path, name, loss):
    found = window(tmp_path, name, START[name])
    assert not found.reason
    assert len(found.points) == STEPS + 1
    before, flint.ctx.prec = flint.ctx.prec, 256
    try:
        exact = {key: matrix(value) for key, value in START[name].items()}
        for k, point in enumerate(found.points):
            off = 0.0
            for key, value in point.parameters.items():
                gap = [
                    float((x - y).mid()) for x, y in zip(exact[key].entries(), value.flatten().tolist(), strict=True)
                ]
                off = math.hypot(off, *gap)
            assert off <= max(point.radius.values()) < 1e-11
            assert (off > 0) == (k > 0)
            low, high = found.bounds[k].tolist()
            assert low <= float(loss(exact).mid()) <= high
            exact = stepped(loss, exact, point.parameters) if k < STEPS else exact
    finally:
        flint.ctx.prec = before


def test_a_proof_stops_where_a_pre_activation_may_be_zero(tmp_path):
    start = {**START["layer"], "b": [0.0, -0.125, 0.5], "W": [[0.0, 0.0], *START["layer"]["W"][1:]]}
    found = window(tmp_path, "layer", {**start, "U": [[0.0, 0.0], *start["U"][1:]]})
    assert [point.at for point in found.points] == [0]
    assert "zero" in found.reason


def test_a_long_proof_is_not_begun(tmp_path):
    found = window(tmp_path, "layer", START["layer"], steps=65)
    assert not found.points
    assert "a proof of 65 steps for 17 parameters would take too long" in found.reason


def matrix(value):
    rows = torch.tensor(value, dtype=torch.float64)
    rows = rows.reshape(len(rows) if rows.ndim else 1, -1).tolist()
    return arb_mat([[arb(entry) for entry in row] for row in rows])
