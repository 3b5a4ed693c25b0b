"""prox, moreau, conjugate, argmin and the like in claims: what is true, what is false, and what has no value."""

from __future__ import annotations

import math
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


def verdict(folder: Path, statement: str, setting: str = "s", instances: int = 3) -> tuple[str, str]:
    claim = f'  - id: C\n    setting: {setting}\n    conclude: "{statement}"'
    result = judge_all(folder, claim, SETTINGS, instances=instances, shrink=False)["C"]
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
    assert verdict(tmp_path, statement, "v", instances=6)[0] == "refuted"


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
    result = judge_all(tmp_path, claim, SETTINGS, instances=4)["C"]
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


def briefly(folder: Path, statement: str) -> str:
    """Return the verdict on one instance: no variable stands in the statement."""
    claim = f'  - id: C\n    setting: s\n    instances: 1\n    conclude: "{statement}"'
    return str(judge_all(folder, claim, SETTINGS, instances=1, search=0, shrink=False)["C"].verdict)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("minimum(sin) >= -1/2", "refuted"),
        ("minimum(u[] -> sin(u) + cos(2*u)) == -2 and infimum(cos) == -1", "holds"),
        ("minimum(u[] -> sin(u/2) + cos(3*u)) >= -1", "refuted"),
        ("minimum(u[] -> sin(u/3) + cos(u)) >= -1", "undecided"),  # 1/3 is no float: the period is not seen
        ("argmin(sin) <= 10", "vacuous"),
        ("supremum(u[] -> cos(2*pi*u)) <= 1/2", "refuted"),
        ("infimum(u[] -> u^3) >= 0", "refuted"),
        ("minimum(u[] -> u^3) >= 0", "undecided"),  # there may be none
        ("minimum(u[] -> exp(-u)) >= 1/2", "undecided"),
        ("infimum(u[] -> exp(-u)) >= 1/2", "refuted"),
        ("infimum(u[] -> u^2 + sin(u)/u) >= 2", "refuted"),
        ("infimum(u[] -> u^2 + sin(u)/u) <= 2", "undecided"),  # as far as is known it is -inf: no support
    ],
)
def test_a_value_at_one_point_bounds_a_least_value(tmp_path: Path, statement: str, expected: str) -> None:
    assert briefly(tmp_path, statement) == expected


WELL = "fro(u)^4 - 3*fro(u)^2 + u{1}"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (f"infimum(u[2] -> {WELL}) >= -1", "refuted"),
        (f"minimum(u[2] -> {WELL}) >= -1", "refuted"),  # it grows in all directions
        (f"minimum(u[2] -> {WELL}) <= -3", "holds"),
        (f"minimum(u[2] -> {WELL}) >= -3.6", "undecided"),
        ("infimum(u[2] -> u{1}^2 - 2*u{1}*u{2} + sin(u{2})) >= 0", "refuted"),
        ("minimum(u[2] -> exp(u{1}) - sum(sin(u))^2) >= 1", "undecided"),  # there is none
        ("minimum(u[2] -> sum(sign(u)) + fro(u)^2) <= -1", "undecided"),  # it jumps, and there is none
        ("minimum(u[2] -> fro([1, 2; 2, 4]*u)^2 - sum(sin(u))^2) >= 1", "undecided"),  # one direction is flat
        ("infimum(u[2] -> sum(tanh(u))) >= -1 and infimum(u[2] -> sum(tanh(u))) >= -2", "refuted"),
        ("conjugate(u[2] -> fro(u)^4 - fro(u)^2, [1; 0]) <= 1/10", "refuted"),
        ("2*infimum(u[2] -> u{1}*u{2} + sin(u{1})) + 1 >= 0", "refuted"),
        ("-infimum(u[2] -> u{1}*u{2} + sin(u{1})) + 1 <= 0", "refuted"),
    ],
)
def test_of_several_numbers_too(tmp_path: Path, statement: str, expected: str) -> None:
    assert briefly(tmp_path, statement) == expected


def test_a_pass_at_infinity_is_said_to_be_no_support(tmp_path: Path) -> None:
    claim = '  - id: C\n    setting: s\n    conclude: "abs(y) <= 1 or conjugate(abs, y) >= 1000"'
    result = judge_all(tmp_path, claim, SETTINGS, instances=12)["C"]
    assert str(result.verdict) == "holds"
    assert "hold at infinity, which is no support" in result.support.remark
    assert result.worst_margin is not None
    assert result.worst_margin.hi < math.inf
    assert "hold at infinity" in verdict(tmp_path, "conjugate(abs, 2 + y^2) >= 1000")[1]


@pytest.mark.parametrize("bound", [2, 1])
def test_a_minimiser_of_what_is_not_convex_is_local_and_decides_nothing(tmp_path: Path, bound: int) -> None:
    conclude = f"norm(argmin(u[2] -> fro(u)^4 - 3*fro(u)^2 + dot(u, c))) <= {bound}"
    claim = f'  - id: C\n    setting: w\n    conclude: "{conclude}"'
    settings = '  w: {domain: {c: "[1/2, 1][2]"}}\n'
    result = judge_all(tmp_path, claim, settings, instances=1)["C"]
    assert str(result.verdict) == "undecided"
    assert "it is judged with a local minimiser" in str(result.reason)
    assert str(result.evidence) == "numeric"
    assert "another point may be lower" in result.estimated["argmin"]
    # What the hypothesis says decides neither that an instance counts nor that it does not.
    claim = f"  - id: C\n    setting: w\n    assume: {conclude}\n    conclude: norm(c) <= 0"
    result = judge_all(tmp_path, claim, settings, instances=1)["C"]
    assert (str(result.verdict), str(result.evidence)) == ("undecided", "none")


@pytest.mark.parametrize(
    ("statement", "expected", "words"),
    [
        ("prox(u -> -u^2, x, mu) <= 9", "undecided", "not seen to be convex"),
        ("prox(abs, x, -mu) <= 9", "vacuous", "must be > 0"),
        ("argmin(u[] -> 2*u) <= 9", "vacuous", "without a minimum"),
    ],
)
def test_bad_input_has_no_value_and_says_why(tmp_path: Path, statement: str, expected: str, words: str) -> None:
    claim = f'  - id: C\n    setting: s\n    assume: {{large: mu >= 1}}\n    conclude: "{statement}"'
    result = judge_all(tmp_path, claim, SETTINGS, instances=4, search=0)["C"]
    assert str(result.verdict) == expected
    assert words in str(result)
