"""Activations in claims: what is true holds or is proved, what is false is refuted; as activations of systems too."""

from __future__ import annotations

from pathlib import Path

import pytest
from verify_harness import judge_all

from ntk_deq.claims.load import load_suite
from ntk_deq.verify.runner import Options, judge_claims

SETTINGS = """
  real: {domain: {x: real}}
  plus: {domain: {x: nonnegative}}
  unit: {domain: {x: "[-1, 1]"}}
  three: {domain: {x: real, y: real, t: positive}}
  any-t: {domain: {x: real, t: real}}
  matrices: {sizes: {n: 1..2, m: 1..3}, domain: {A: "[-9, 9][n, m]", B: "[-9, 9][n, m]"}}
"""

TRUE = {
    "tanh": ("plus", "tanh(x) <= x"),
    "tanh-bounded": ("real", "abs(tanh(x)) < 1"),
    "tanh-entries": ("matrices", "max(abs(tanh(A))) < 1 and sigmoid(100*A) < 1"),
    "tanh-slope": ("real", "0 < slope(tanh, x) <= 1"),
    "sigmoid": ("real", "sigmoid(-x) == 1 - sigmoid(x)"),
    "sine": ("plus", "sin(x) <= x"),
    "cosine": ("real", "cos(x) >= 1 - x^2/2"),
    "erf": ("plus", "erf(x) <= 2*x/sqrt(pi)"),
    "arccos": ("unit", "arccos(x) + arccos(-x) == pi"),
    "arctan": ("plus", "arctan(x) <= x"),
    "sign": ("real", "sign(x)*x == abs(x)"),
    "huber": ("three", "huber(x, t) <= min(x^2/2, t*abs(x))"),
    "leaky": ("real", "leaky_relu(x, 1/10) == max(x, x/10)"),
    "soft": ("three", "abs(softthreshold(x, t) - softthreshold(y, t)) <= abs(x - y)"),
    "soft-negative": ("any-t", "softthreshold(x, -abs(t)) == x"),
    "matrix": ("matrices", "fro(tanh(A) - tanh(B)) <= fro(A - B)"),
    "gradient": ("matrices", "grad(sum(tanh(A)), A) == slope(tanh, A)"),
    "second": ("matrices", "grad(sum(slope(sin, A)), A) == slope2(sin, A)"),
    "primitive": ("matrices", "grad(sum(primitive(leaky_relu, A, 1/3)), A) == leaky_relu(A, 1/3)"),
    "logarithm": ("matrices", "log(exp(A)) == A"),
    "root": ("matrices", "hadamard(sqrt(abs(A)), sqrt(abs(A))) == abs(A)"),
}
FALSE = {
    "tanh": ("plus", "tanh(x) <= x/2"),
    "tanh-at-a-point": ("real", "tanh(x) < 1 - 1/10^6"),
    "sigmoid": ("real", "sigmoid(x) <= 9/10"),
    "sigmoid-slope": ("real", "slope(sigmoid, x) <= 6/25"),
    "sine": ("plus", "sin(x) <= x - x^3/7"),
    "cosine": ("real", "cos(x) <= 1 - x^2/4"),
    "erf": ("plus", "erf(x) <= x"),
    "arccos": ("unit", "arccos(x) <= pi/2 - x"),
    "arctan": ("plus", "arctan(x) <= 3/2"),
    "sign": ("real", "sign(x)^2 == 1"),
    "huber": ("three", "huber(x, t) <= t*abs(x)/2"),
    "leaky": ("real", "leaky_relu(x, 1/10) >= 0"),
    "soft": ("three", "abs(softthreshold(x, t) - softthreshold(y, t)) <= abs(x - y)/2"),
    "soft-negative": ("any-t", "abs(softthreshold(x, t)) <= abs(x) - t/2"),
    "pi": ("real", "pi <= 22/7 - 1/500"),
    "matrix": ("matrices", "fro(softthreshold(A, 1) - softthreshold(B, 1)) <= fro(A - B)/2"),
    "second": ("matrices", "slope2(tanh, A) >= 0*A"),
    "exponential": ("matrices", "exp(A) >= shift(2*A, 1)"),
}
PROVED = {"tanh", "tanh-bounded", "tanh-slope", "sigmoid", "huber", "leaky"}


def claims_of(statements: dict[str, tuple[str, str]]) -> str:
    return "\n".join(
        f'  - {{id: "{name}", setting: {setting}, conclude: "{text}"}}'
        for name, (setting, text) in statements.items()
    )  # fmt: skip


def test_what_is_true(tmp_path: Path) -> None:
    found = judge_all(tmp_path, claims_of(TRUE), SETTINGS, instances=8, search=20)
    verdicts = {name: str(result.verdict) for name, result in found.items()}
    assert set(verdicts.values()) == {"holds", "proved"}, verdicts
    assert {name for name, verdict in verdicts.items() if verdict == "proved"} >= PROVED
    assert {str(result.evidence) for result in found.values()} <= {"certified", "symbolic"}


def test_what_is_false(tmp_path: Path) -> None:
    found = judge_all(tmp_path, claims_of(FALSE), SETTINGS, instances=20, search=200)
    assert {name: str(result.verdict) for name, result in found.items()} == dict.fromkeys(FALSE, "refuted")
    assert {str(result.evidence) for result in found.values()} == {"certified"}


@pytest.mark.parametrize(
    ("text", "domain"),
    [("tanh(x) <= 3/4", "[-9, 9]"), ("cos(x) >= -99/100", "[0, 9]"), ("huber(x, 2) <= x^2/2 - 1/100", "[1/2, 9]")],
)
def test_the_search_finds_where_a_claim_breaks(text: str, domain: str, tmp_path: Path) -> None:
    settings = f'  s: {{domain: {{x: "{domain}"}}}}'
    claim = f'  - {{id: a, setting: s, conclude: "{text}"}}'
    found = judge_all(tmp_path, claim, settings, instances=1, search=400)
    assert str(found["a"].verdict) == "refuted"


def test_a_step_at_zero_is_set_aside_and_a_sign_is_not(tmp_path: Path) -> None:
    settings = '  s: {domain: {x: "[0, 0]"}}'
    claims = """
  - {id: step, setting: s, conclude: "step(x) == 0"}
  - {id: slope, setting: s, conclude: "slope(leaky_relu, x, 1/2) == 1/2"}
  - {id: sign, setting: s, conclude: "sign(x) == 1"}
"""
    found = judge_all(tmp_path, claims, settings)
    assert {name: str(result.verdict) for name, result in found.items()} == {
        "step": "vacuous",
        "slope": "vacuous",
        "sign": "refuted",
    }


# --- activations of systems -----------------------------------------------------------------------------------------

SYSTEM = """
  {name}:
    variables:
      A: {{shape: "[m, m]", role: parameter}}
      W: {{shape: "[d, m]", role: parameter}}
      u: {{shape: "[m]", role: parameter}}
      a: {{role: hyperparameter, domain: "(0, 1)"}}
      X: {{shape: "[N, d]", role: input}}
      y: {{shape: "[N]", role: target}}
    equilibrium: {{Z: "{map}"}}
    define:
      D: {slope}
      yhat: Z*u
      L: norm(yhat - y)^2/2 + 0*sin(pi)
"""
MAPS = {
    "hyperbolic": ("tanh(Z*A + X*W)", "slope(tanh, Z*A + X*W)", "norm(A)"),
    "leaky": ("leaky_relu(Z*A + X*W, a)", "slope(leaky_relu, Z*A + X*W, a)", "max(1, abs(a))*norm(A)"),
    "sparse": ("softthreshold(Z*A + X*W, a/10)", "slope(softthreshold, Z*A + X*W, a/10)", "norm(A)"),
    "logistic": ("sigmoid(Z*A + X*W)", "slope(sigmoid, Z*A + X*W)", "0.25*norm(A)"),
    "robust": ("huber(shift(Z*A, a) + X*W, a)", "slope(huber, Z*A + X*W, a)", "abs(a)*norm(A)"),
}
SYSTEM_CLAIMS = """
  - {{id: {name}-bound, setting: {name}, assume: norm(A) < 1, conclude: "fro(Z) <= fro(X*W)/(1 - norm(A))"}}
  - {{id: {name}-alone, setting: {name}, assume: norm(A) < 1, conclude: "fro(Z) <= fro(X*W)"}}
  - {{id: {name}-slope, setting: {name}, assume: norm(A) < 1, conclude: "abs(D) <= ones(N, m)"}}
  - id: {name}-gradient
    setting: {name}-drawn
    instances: 2
    assume: norm(A) < 1
    conclude: fro(grad(L, A)) <= fro(Z)*norm(u)*norm(yhat - y)/(1 - norm(A))
"""
SYSTEM_SETTINGS = """
  {name}: {{model: {name}, sizes: {{N: 1..2, d: 1..2, m: 1..2}}}}
  {name}-drawn:
    model: {name}
    sizes: {{N: 2, d: 2, m: 3}}
    domain: {{a: "(0, 1)"}}
    init: {{A: "normal(0, 1/36)", W: "normal(0, 1/2)", u: "normal(0, 1/3)"}}
    data: {{X: orthonormal_rows, y: rademacher}}
"""
DESCENT = """
  - id: descent
    setting: hyperbolic-drawn
    instances: 1
    run: {method: gradient-descent, step: 1/100, steps: 4, until: 0.7, beyond: false}
    conclude: L[k+1] <= L[k] for all k
"""


def test_systems_with_other_activations(tmp_path: Path) -> None:
    chosen = ["hyperbolic", "leaky", "sparse"]
    parts = ["suite: systems\nsystems:"]
    parts += [SYSTEM.format(name=name, map=MAPS[name][0], slope=MAPS[name][1]) for name in MAPS]
    parts += ["settings:", *(SYSTEM_SETTINGS.format(name=name) for name in MAPS), "claims:"]
    parts += [SYSTEM_CLAIMS.format(name=name) for name in chosen]
    parts += [DESCENT.replace("+ 0*sin(pi)", "")]
    for name in ("logistic", "robust"):
        parts.append(f'  - {{id: {name}, setting: {name}, assume: norm(A) < 1, conclude: "Z == {MAPS[name][0]}"}}')
    path = tmp_path / "suite.yaml"
    path.write_text("\n".join(parts), encoding="utf-8")
    claims = load_suite(path).claims
    for claim in claims:
        model = claim.settings[0].model  # type: ignore[union-attr]
        assert model is not None
        assert model.contraction == MAPS[model.name][2]
    found = {result.id: result for result in judge_claims(claims, Options(instances=6, search=10))}
    verdicts = {name: str(result.verdict) for name, result in found.items()}
    assert verdicts == {
        **{f"{name}-{what}": "holds" for name in chosen for what in ("bound", "slope", "gradient")},
        **{f"{name}-alone": "refuted" for name in chosen},
        "logistic": "holds",
        "robust": "holds",
        "descent": "holds",
    }
    certified = {name for name, result in found.items() if str(result.evidence) == "certified"}
    assert certified == verdicts.keys()


# --- names of functions as names ------------------------------------------------------------------------------------


def test_variables_called_like_functions(tmp_path: Path) -> None:
    settings = """
  names:
    sizes: {n: 1..2, I: 1..2}
    domain: {rho: "(0, 1)", step: real, det: "real[n, n]", e: positive, pi: "[3, 4]", max: real, vec: "real[n, I]"}
  drawn: {sizes: {n: 2}, domain: {exp: positive}, init: {A: "exp*normal(0, 1/n)[n, n]"}}
  turned: {sizes: {n: 2}, init: {A: "pi*orthogonal[n, n]", angle: pi/3}}
  own: {sizes: {n: 2}, domain: {pi: "[3, 3]"}, init: {A: "pi*orthogonal[n, n]"}}
"""
    claims = """
  - {id: bounded, setting: names, conclude: "abs(rho*step) <= abs(step) + e and 3 <= pi <= 4"}
  - {id: let, setting: names, let: {sum: rho + step}, conclude: "sum^2 <= 2*rho^2 + 2*step^2"}
  - {id: breaks, setting: names, conclude: "fro(det)*max <= rho*fro(vec)"}
  - {id: gradient, setting: names, conclude: "grad(step^2*rho, step) == 2*step*rho"}
  - {id: at, setting: names, conclude: "at(step + e, step = rho) == rho + e"}
  - {id: slope, setting: names, conclude: "slope(relu, e) + slope(step, e) == 1"}
  - {id: drawn, setting: drawn, conclude: "sum(A) <= exp"}
  - {id: constant, setting: turned, conclude: "norm(A) == pi and cos(angle) == 1/2"}
  - {id: own, setting: own, conclude: "norm(A) == 3"}
  - {id: both, setting: names, conclude: "rho(det) <= 1"}
  - {id: let-too, setting: names, let: {sum: rho + step}, conclude: "sum(det) <= sum"}
  - {id: size, setting: names, conclude: "det == I(n)"}
  - {id: distribution, setting: names, given: {ones: real}, conclude: "ones <= 1"}
  - {id: keyword, setting: names, given: {at: real}, conclude: "at <= 1"}
"""
    found = judge_all(tmp_path, claims, settings, search=50)
    verdicts = {name: str(result.verdict) for name, result in found.items()}
    wrong = ("both", "let-too", "size", "distribution", "keyword")
    assert verdicts == {
        **dict.fromkeys(("bounded", "let", "gradient", "at", "slope", "constant", "own"), "holds"),
        **dict.fromkeys(("breaks", "drawn"), "refuted"),
        **dict.fromkeys(wrong, "ill-formed"),
    } | {name: verdict for name, verdict in verdicts.items() if verdict == "proved"}
    for name, function in (("both", "rho"), ("let-too", "sum"), ("size", "I")):
        assert f"`{function}` has a value here, and is also a function" in str(found[name].reason)
