"""Errors carried along a recursion in float64: never below the truth, and small where the map does not expand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from flint import arb

from ntk_deq.certified import scalar as sc
from ntk_deq.dynamics.iteration import _environment, _typed, iterate
from ntk_deq.dynamics.proven.recursion import carried_steps
from ntk_deq.dynamics.recursion import steps_with_bits
from ntk_deq.evaluation.equilibria import tensor_names
from ntk_deq.evaluation.quantity import Scalar
from ntk_deq.evaluation.steps import at_step

RELU = {"z[0]": "z0", "z[k+1]": "relu(z[k] - a*(F*z[k] - c))"}
RULES = {
    "layer": RELU,
    "kinks": {"z[0]": "0*z0", "z[k+1]": "relu(z[k] - a*(F*z[k] - 0*c)) - relu(a*z[k])"},
    "momentum": {
        "w[0]": "z0",
        "y[0]": "z0",
        "t[0]": "1",
        "w[k+1]": "y[k] - a*F*y[k]",
        "t[k+1]": "(1 + sqrt(1 + 4*t[k]^2))/2",
        "y[k+1]": "w[k+1] + (t[k] - 1)/t[k+1]*(w[k+1] - w[k])",
    },
    "blocks": {
        "z[0]": "z0",
        "u[0]": "c",
        "x[k+1]": "softthreshold(z[k] - u[k] - a*(F*(z[k] - u[k]) - c), 1/10)",
        "z[k+1]": "tanh(x[k+1] + u[k])",
        "u[k+1]": "(u[k] + x[k+1] - z[k+1])/2",
    },
    "averages": {
        "z[0]": "z0",
        "b[k]": "1/(k + 1)",
        "d[k]": "z[k]/2 + c/2",
        "t[k]": "relu(z[k] - a*F*z[k])",
        "z[k+1]": "b[k+1]*d[k] + (1 - b[k+1])*t[k]",
        "s[0]": "0",
        "s[k+1]": "s[k] + norm(z[k+1] - z[k])",
    },
    "looks back": {
        "z[0]": "z0",
        "z[1]": "c",
        "z[k+1]": "z[k] - a*F*z[k] + (z[k] - z[k-1])/2",
        "n[k]": "dot(z[k], z[k])",
    },
    "from the start": {
        "z[0]": "z0",
        "q": "norm(z[3] - z0)",
        "z[k+1]": "z[0]/2 + relu(F*z[k])/4",
        "y[k]": "q*z[k]",
        "x[0]": "c",
        "x[k+1]": "x[k]/3 + y[k]/9",
    },
    "a step": {"z[0]": "z0", "z[k+1]": "z[k]/2 + step(z[k])/4"},
    "a number": {"x[0]": "1/3", "x[k+1]": "cos(x[k])", "y[0]": "x[2]", "y[k+1]": "sin(y[k]) + x[k]^2/9"},
    "a quotient": {"z[0]": "z0", "z[k+1]": "z[k]/(1 + norm(z[k])) + max(z[k])*c/9"},
    "a matrix": {"X[0]": "2*I(3)/norm(F)", "X[k+1]": "X[k]*(2*I(3) - F*X[k])", "t[k]": "trace(X[k])"},
    "many forms": {
        "X[0]": "2*z0*c' + F",
        "s[0]": "1/2",
        "s[k+1]": "abs(s[k]*a - 1/(k + 2)) + s[k]/2",
        "U[k]": "2*X[k] - F*X[k]'",
        "V[k+1]": "X[k]*F + U[k+1]*F/4",
        "X[k+1]": "tanh(F - X[k]*F + s[k+1]*(X[k] - F)/2) - a*sigmoid(-X[k]) + hadamard(F, exp(-abs(X[k])))",
        "n[k]": "c'*X[k]*c*z0 + sign(s[k])*z0",
    },
    "views": {
        "X[0]": "F",
        "X[k+1]": "(tanh(F*X[k] + F))'",
        "z[k]": "diag(F*X[k]) + (F*X[k]){:, 1}",
        "d[k]": "diag(F*X[k])",
        "s[k]": "max(a*norm(X[k]))",
    },
    "a derivative": {"w[0]": "z0", "w[k+1]": "w[k] - a*grad(u -> norm(F*u - c)^2/2 + sum(relu(u)), w[k])"},
}


def values(seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    return {"F": drawn[:, :3] @ drawn[:, :3].T / 8 * scale, "c": drawn[:, 3], "z0": drawn[:, 4], "a": 0.3}


def both(rules, given, steps):
    """The carried steps, and the same from so many bits that they are as good as exact."""
    let = _typed(rules, given)
    env = _environment(let, given, steps, None)
    found = carried_steps(env)
    return env, found, steps_with_bits(env, 200, lambda bits: _environment(let, given, steps, bits))


def distance(value, truth):
    if isinstance(value, Scalar):
        return sc.lower(abs(value.ball.mid() - truth.ball.mid()) - truth.ball.rad())
    near = value.ball.centre.flatten().tolist()
    gaps = [(sc.exact(x) - entry.mid()) ** 2 for x, entry in zip(near, truth.ball.flat, strict=True)]
    return sc.lower(sum(gaps, arb(0)).sqrt() - sum((entry.rad() for entry in truth.ball.flat), arb(0)))


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))])
def test_an_error_is_never_below_the_truth_and_small_where_steps_do_not_expand(name, seed):
    env, found, truth = both(RULES[name], values(seed, scale=1 + seed % 2), 14)
    assert any(at[1] > 0 for at in found)
    assert not env.notes.estimated
    for at, value in found.items():
        error = sc.upper(value.ball.rad()) if isinstance(value, Scalar) else value.ball.radius
        assert distance(value, truth[at]) <= error, at
        assert error <= 1e-9 * (1 + value.scale) or name in ("a step", "a derivative", "kinks"), at


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_the_program_of_a_recursion_computes_what_its_formulas_say(name, many):
    given = values()
    let = _typed(RULES[name], given)
    names = tensor_names(_environment(let, given, 20, None))
    if many:
        start = names.variables["z0"] * torch.tensor([[[1.0]], [[0.5]]], dtype=torch.float64)
        moved = torch.tensor([0.3, 0.2], dtype=torch.float64)
        names = replace(names, variables={**names.variables, "z0": start, "a": moved}, batch=(2,))
    plain, given_before = replace(names), {key: value.clone() for key, value in names.variables.items()}
    for last in (12, 13, 20):
        for one in names.recursions.rules:
            at_step(one, last, plain)
            with torch.no_grad():
                at_step(one, last, names)
    assert any(program._whole for program in names.programs.values())
    assert not plain.programs
    for at, value in names.at_steps.items():
        torch.testing.assert_close(value, at_step(*at, plain).detach(), rtol=1e-9, atol=1e-12)
    assert all(torch.equal(names.variables[key], value) for key, value in given_before.items())


def test_a_large_recursion_is_certified():
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randn(60, 62, generator=generator, dtype=torch.float64)
    given = {"F": torch.eye(60, dtype=torch.float64) / 2 + drawn[:, :60] @ drawn[:, :60].T / 240, "a": 0.5}
    run = iterate(RELU, values={**given, "c": drawn[:, 60], "z0": drawn[:, 61]}, steps=40)
    assert run.settings["certified"]
    assert 0 < run.error < 1e-11
    doubled = dict(RELU) | {"z[k+1]": "hadamard(4*z[k], ones(60) - z[k])"}
    lost = iterate(doubled, values={"z0": torch.rand(60, generator=generator, dtype=torch.float64), **given}, steps=90)
    assert not lost.settings["certified"]
    assert math.isfinite(lost.error)
