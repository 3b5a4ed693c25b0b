"""Recursions in Python: formulas and callables, their record and its error, and what is refused."""

from __future__ import annotations

import pytest
import torch

import ntk_deq as nd
from ntk_deq.errors import ArgumentError, Position
from ntk_deq.evaluation.floats import TensorNames
from ntk_deq.evaluation.steps import at_step
from ntk_deq.language.parser import parse
from ntk_deq.language.recursion import recursions_in
from ntk_deq.language.tree import Formula

W = torch.tensor([[0.5, -0.25], [0.125, 0.75]], dtype=torch.float64)
B = torch.tensor([1.0, -2.0], dtype=torch.float64)
RULE = {"z[0]": "b", "z[k+1]": "relu(W*z[k] + b)", "s[0]": "0", "s[k+1]": "s[k] + norm(z[k+1])"}


def by_hand(steps):
    z = B.clone()
    for _ in range(steps):
        z = torch.relu(W @ z + B)
    return z


def test_formulas_come_with_a_proven_error():
    run = nd.iterate(RULE, values={"W": W, "b": B}, steps=30)
    assert torch.allclose(run.parameters["z"], by_hand(30), rtol=0, atol=1e-13)
    assert run.settings["certified"]
    assert 0 <= run.error < 1e-12
    assert (run.method, run.steps, run.end, run.status.value) == ("recursion", 30, 30, "steps")
    assert run["loss"].values.shape == (31,)


def test_a_callable_has_an_estimate_and_goes_on_from_its_record(tmp_path):
    run = nd.iterate(lambda z, k: torch.relu(W @ z + B), B, steps=10, watch=lambda state: float(state["state"].norm()))
    assert torch.equal(run.parameters["state"], by_hand(10))
    assert not run.settings["certified"]
    assert 0 < run.error < 1e-12
    assert run.loss == float(by_hand(10).norm())
    run.save(tmp_path / "run.npz")
    again = nd.TrainingRun.load(tmp_path / "run.npz")
    further = nd.iterate(lambda z, k: torch.relu(W @ z + B), again, steps=5)
    assert further.end == 15
    assert torch.equal(further.parameters["state"], by_hand(15))
    assert [snapshot.at for snapshot in run[2:4].snapshots] == [2, 3, 4]


def test_formulas_go_on_from_a_record_of_theirs(tmp_path):
    run = nd.iterate(RULE, values={"W": W, "b": B}, steps=10)
    run.save(tmp_path / "run.npz")
    further = nd.iterate(RULE, nd.TrainingRun.load(tmp_path / "run.npz"), values={"W": W, "b": B}, steps=5)
    whole = nd.iterate(RULE, values={"W": W, "b": B}, steps=15)
    assert (further.steps, further.end, further.settings["certified"]) == (5, 15, True)
    assert all(torch.equal(further.parameters[name], value) for name, value in whole.parameters.items())
    with pytest.raises(ArgumentError, match="the same formulas and values"):
        nd.iterate(RULE, run, values={"W": 2 * W, "b": B}, steps=5)


def test_what_the_start_of_a_callable_is_off_is_part_of_its_error():
    run = nd.iterate(lambda z, k: 2 * z / 3 + B, B, steps=20)
    assert nd.iterate(lambda z, k: 3 * z / 2, run, steps=10).error > run.error * 1.5**10


def test_a_step_may_take_a_gradient():
    def step(z, k):
        (z.requires_grad_() ** 2).sum().backward()
        return z - z.grad / 4

    run = nd.iterate(step, B, steps=3)
    assert torch.allclose(run.parameters["state"], B / 8)
    assert not run.parameters["state"].requires_grad


def test_a_state_of_several_tensors_knows_its_step():
    def step(state, k):
        new = state["x"] / (k + 2)
        return {"x": new, "sum": state["sum"] + new}

    one = torch.ones((), dtype=torch.float64)
    run = nd.iterate(step, {"x": one, "sum": one}, steps=20)
    assert float(run.parameters["sum"]) == pytest.approx(torch.e - 1, abs=1e-14)


def test_what_diverges_breaks_off():
    run = nd.iterate(lambda z, k: z**2 * 1e10, torch.tensor(10.0, dtype=torch.float64), steps=50)
    assert run.status.value == "not-finite"
    assert "not finite" in run.detail
    assert run.steps < 50
    formulas = nd.iterate({"z[0]": "c", "z[k+1]": "z[k]^2*exp(z[k])"}, values={"c": 3.0}, steps=50)
    assert (formulas.status.value, formulas.steps < 50) == ("not-finite", True)


def test_a_run_is_drawn():
    pytest.importorskip("matplotlib")
    from matplotlib import pyplot

    upper, lower = nd.iterate(RULE, values={"W": W, "b": B}, steps=30).plot()
    assert upper.lines
    assert lower.lines
    pyplot.close("all")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"step": {"z[0]": "c", "z[k+1]": "z[k+1]"}}, "rests on itself"),
        ({"step": {"z[0]": "c", "z[k+1]": "z[k+2]"}}, "runs ahead"),
        ({"step": {"z[0]": "c", "z[k+1]": "q*z[k]"}}, "unknown name `q`"),
        ({"step": {"z[0]": "c", "z[k+1]": "z[k]*ones(3)"}}, "and its start"),
        ({"step": {"z": "c"}}, "must hold a rule"),
        ({"step": {"z[k+1]": "z[k]"}}, "a start is missing"),
        ({"step": {"z[0]": "c", "z[k+1]": "z[k]"}, "start": W}, "stands among the formulas"),
        ({"step": lambda z, k: z}, "`start` of iterate is missing"),
        ({"step": lambda z, k: z[:1], "start": W}, "of the shape of its start"),
        ({"step": lambda z, k: z, "start": torch.ones(2, dtype=torch.int64)}, "tensors of floats"),
        ({"step": lambda z, k: z, "start": W, "values": {"c": 1.0}}, "are for formulas"),
        ({"step": lambda z, k: z, "start": [1.0]}, r"a tensor or a mapping of tensors. Got \[1.0\]"),
        ({"step": lambda z: z, "start": W}, r"as step\(z, k\). Got .* too many positional"),
        ({"step": W, "start": W}, "or holds formulas by name"),
        ({"step": torch.nn.Identity(), "start": W}, r"as step\(z, k\). Got Identity"),
        ({"step": {"z[0]": "c", "z[k+1]": "z[k]"}, "values": {"c": "one"}}, "numbers and tensors. Got 'one' for 'c'"),
        ({"step": {"z[0]": "c", "z[k+1]": "z[k]"}, "values": {"c": 1j}}, "real numbers. Got torch.complex"),
        ({"step": lambda z, k: z, "start": W, "watch": lambda state: state["state"]}, "a number for each state"),
        ({"step": {"f(u)": "g(u)", "z[0]": "c", "z[k+1]": "f(z[k])"}}, "unknown"),
    ],
)
def test_wrong_arguments_are_named(arguments, said):
    if "start" not in arguments and isinstance(arguments["step"], dict):
        arguments = {"values": {"c": 1.0}, **arguments}
    with pytest.raises(ArgumentError, match=said):
        nd.iterate(**arguments, steps=3)


@pytest.mark.parametrize("steps", [0, 1.5, True, 10**6])
def test_a_budget_is_a_whole_number(steps):
    with pytest.raises(ArgumentError, match="from 1 to 10000"):
        nd.iterate(lambda z, k: z, W, steps=steps)


def test_a_step_in_place_moves_neither_its_start_nor_the_record():
    start = torch.ones(3, dtype=torch.float64)
    found = nd.iterate(lambda z, k: z.mul_(0.5), start, steps=3)
    assert torch.equal(start, torch.ones(3, dtype=torch.float64))
    assert float(found.snapshots[-1].path_length) == pytest.approx(3**0.5 * 7 / 8)


def test_a_step_that_gives_no_state_is_refused():
    with pytest.raises(ArgumentError, match=r"must return a tensor or a mapping of tensors\. Got None"):
        nd.iterate(lambda z, k: None, torch.ones(1, dtype=torch.float64), steps=1)


def test_steps_in_floats_overwrite_nothing_that_is_used_again():
    here = Position("", 1, 1)
    written = {"z[0]": "z0", "z[k+1]": "(c - z[k])/2 - ((z[k] + c) - 2*(c - z[k]*1)) + (c + c)*2 + z[k]"}
    let = {key: Formula(key, text, parse(text), here) for key, text in written.items()}
    values = {
        name: torch.arange(6.0, dtype=torch.float64).reshape(3, 2) + place for place, name in enumerate(("z0", "c"))
    }
    before = {name: value.clone() for name, value in values.items()}
    names = TensorNames(values, {}, let, None, torch.zeros((), dtype=torch.float64), recursions=recursions_in(let))
    with torch.no_grad():
        at_step("z", 4, names)
    state, c = before["z0"], before["c"]
    for k in range(5):
        assert torch.equal(names.at_steps["z", k], state)
        state = (c - state) / 2 - ((state + c) - 2 * (c - state * 1)) + (c + c) * 2 + state
    assert all(torch.equal(values[name], before[name]) for name in values)


def test_formulas_may_use_functions_of_arguments():
    formulas = {
        "f(u)": "norm(W*u - b)^2/2",
        "z[0]": "b",
        "z[k+1]": "z[k] - grad(f, z[k])/2",
        "p[k]": "prox(abs, z[k]{1}, 1)",
    }
    run = nd.iterate(formulas, values={"W": W, "b": B}, steps=3)
    state = B
    for _ in range(3):
        state = state - W.T @ (W @ state - B) / 2
    assert torch.allclose(run.parameters["z"], state, rtol=0, atol=1e-15)
    assert run.settings["certified"]
    assert "error: at most" in repr(run)
    assert "gradients" not in repr(run)
