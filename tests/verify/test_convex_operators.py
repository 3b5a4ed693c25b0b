"""prox, moreau, conjugate, argmin and the like in claims: what is true, what is false, and what has no value."""

from __future__ import annotations

from pathlib import Path

import pytest
from verify_harness import judge_all, load

from ntk_deq.claims.claim import IllFormed

SETTINGS = """
  s:
    domain: {x: real, y: real, mu: "[1/8, 4]"}
  v:
    sizes: {n: 1..3}
    domain: {x: "real[n]", y: "real[n]", mu: "[1/8, 4]"}
"""


def verdict(folder: Path, statement: str, setting: str = "s", **options: object) -> tuple[str, str]:
    claim = f'  - id: C\n    setting: {setting}\n    conclude: "{statement}"'
    result = judge_all(folder, claim, SETTINGS, instances=6, **options)["C"]
    return str(result.verdict), result.reason


@pytest.mark.parametrize(
    "statement",
    [
        "prox(abs, x, mu) == softthreshold(x, mu)",
        "moreau(abs, x, mu) == huber(x, mu)/mu",
        "moreau(abs, x, 0) == abs(x)",
        "prox(u -> primitive(relu, u), x, mu) == x - mu/(1 + mu)*relu(x)",
        "conjugate(u -> u^2/2, y) == y^2/2",
        "prox(u -> -log(u), x, mu) == (x + sqrt(x^2 + 4*mu))/2",
        "minimum(u[] -> (u - 1)^2 + 3*sin(u)^2) <= 5/2",
        "argmin(u[] -> (u - x)^2 + abs(u - x)) == x",
        "conjugate(abs, y) >= 0",
        "infimum(u[] -> u*y + abs(u)) <= 0",
        "prox(cos, x, 2) == x + 2*sin(prox(cos, x, 2))",
        "infimum(u[] -> sin(u)) == -1",
        "infimum(u[] -> (u^2 - 1)^2 + u) <= -1 and infimum(u[] -> (u^2 - 1)^2 + u) >= -106/100",
        "abs(argmin(u[] -> u^4 - 3*u^2 + u) + 13/10) <= 1/1000",
        "minimum(u[] -> exp(u) - 3*u + u*sin(u)^2) <= 1",
    ],
)
def test_true_of_numbers(tmp_path: Path, statement: str) -> None:
    assert verdict(tmp_path, statement)[0] == "holds"


@pytest.mark.parametrize(
    "statement",
    [
        "prox(u -> norm(u), x, mu) + mu*prox(v[n] -> conjugate(u[n] -> norm(u) + fro(u)^2/2, v), x/mu, 1/mu) == x",
        "moreau(u -> norm(u), x, mu) == moreau(u -> norm(u), x, 2*mu)",
        "conjugate(u -> fro(u)^2/2, y) == fro(y)^2",
        "conjugate(abs, fro(y)) <= 1",
    ],
)
def test_false(tmp_path: Path, statement: str) -> None:
    assert verdict(tmp_path, statement, "v")[0] == "refuted"


@pytest.mark.parametrize(
    "statement",
    [
        "fro(prox(u -> norm(u), x, mu)) == relu(fro(x) - mu)",
        "conjugate(u -> fro(u)^2/2, y) == fro(y)^2/2",
        "conjugate(v[n] -> conjugate(u -> fro(u)^2 + sum(softplus(u)), v), x) == fro(x)^2 + sum(softplus(x))",
        "grad(z[n] -> moreau(u -> sum(softplus(u)), z, mu), x) == (x - prox(u -> sum(softplus(u)), x, mu))/mu",
        "grad(z[n] -> conjugate(u -> fro(u)^2 + sum(abs(u)), z), y) == softthreshold(y, 1)/2",
    ],
)
def test_true_of_vectors(tmp_path: Path, statement: str) -> None:
    assert verdict(tmp_path, statement, "v")[0] == "holds"


def test_a_minimiser_has_a_derivative(tmp_path: Path) -> None:
    smooth = "jac(z[n] -> prox(u -> sum(softplus(u)), z, mu), x)*(I(n) + mu*diag(sigmoid(p)) - mu*diag(hadamard(s, s)))"
    let = "{p: 'prox(u -> sum(softplus(u)), x, mu)', s: 'sigmoid(p)'}"
    claim = f'  - id: C\n    setting: v\n    let: {let}\n    conclude: "{smooth} == I(n)"'
    result = judge_all(tmp_path, claim, SETTINGS, instances=8)["C"]
    assert str(result.verdict) == "holds", result.reason


def test_a_soft_threshold_has_the_slopes_of_its_sides(tmp_path: Path) -> None:
    claim = (
        "  - id: C\n    setting: v\n    assume: max(abs(x)) > mu\n"
        '    conclude: "jac(z[n] -> prox(u -> sum(abs(u)), z, mu), x) == diag(step(abs(x) - mu*ones(n)))"'
    )
    result = judge_all(tmp_path, claim, SETTINGS, instances=20)["C"]
    assert str(result.verdict) == "holds", result.reason


@pytest.mark.parametrize(
    ("statement", "setting", "expected", "why"),
    [
        ("fro(prox(u -> -sum(abs(u)), x, mu) - x) >= 0", "v", "undecided", "not seen to be convex"),
        ("fro(argmin(u[n] -> sum(u))) == mu", "v", "vacuous", "defined"),
        ("prox(abs, x, -mu) == x", "s", "vacuous", "defined"),
        ("prox(abs, x, 0) == x", "s", "vacuous", "defined"),
        ("prox(u -> log(-1 - u^2), x, mu) == x", "s", "vacuous", "defined"),
        ("argmin(u[] -> exp(u)) == x", "s", "undecided", "not proven"),
    ],
)
def test_what_has_no_value_is_no_number(tmp_path: Path, statement: str, setting: str, expected: str, why: str) -> None:
    found, reason = verdict(tmp_path, statement, setting)
    assert found == expected
    assert why in reason


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("conjugate(abs, 2 + abs(y)) >= 5", "bears out"),
        ("exp(-conjugate(abs, 2 + abs(y))) <= 1", "undefined or unbounded"),  # no plain zero
    ],
)
def test_passes_at_infinity_bear_nothing_out(tmp_path: Path, statement: str, why: str) -> None:
    found, reason = verdict(tmp_path, statement)
    assert found == "undecided"
    assert why in reason


def test_shapes_that_differ_are_ill_formed(tmp_path: Path) -> None:
    claim = '  - id: C\n    setting: v\n    conclude: "prox(u[n] -> sum(u), mu, mu) == x"'
    (found,) = load(tmp_path, claim, SETTINGS)
    assert isinstance(found, IllFormed)
    assert "prox needs vector n" in str(found.problems[0])
