"""Functions of arguments judged: derivatives at a point, composition, steps of a run, systems; true and false."""

import pytest
import torch
from verify_harness import environment, randn

from ntk_deq.claims.load import load_suite
from ntk_deq.errors import Position
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.environment import OutsideClaimError
from ntk_deq.evaluation.floats import TensorNames, tensor_value
from ntk_deq.language.application import Functions
from ntk_deq.language.arguments import definition
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import Formula
from ntk_deq.language.types import SCALAR, SizeRange, matrix
from ntk_deq.language.typing import infer
from ntk_deq.report import remarks
from ntk_deq.verify.results import Evidence, Verdict
from ntk_deq.verify.runner import Options, judge_claims

FUNCTIONS = {
    "phi(u)": "norm(A*u - y)^2/2 + c*sum(tanh(u))",
    "pull(u)": "dot(grad(phi, x), u) + dot(D, u)",
    "layer(u)": "relu(A*u)",
    "corner(t[])": "abs(t)",
}


def typed(text):
    types = {"A": matrix("n", "n"), "y": matrix("n"), "x": matrix("n"), "c": SCALAR, "D": matrix("n")}
    called = Functions.of({key: definition(key, body, parse(body)) for key, body in FUNCTIONS.items()})
    return infer(called.written_out(parse(text)), types, sizes={"n": SizeRange(1, 9)}, variables=frozenset("Ayxc"))


def values(seed=0):
    return {"A": randn(3, 3, seed=seed), "y": randn(3, 1, seed=seed + 1), "x": randn(3, 1, seed=seed + 2), "c": 0.5}


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("grad(phi, 2*x)", "A'*(2*A*x - y) + c*(ones(n) - hadamard(tanh(2*x), tanh(2*x)))"),
        ("grad(pull, y)", "A'*(A*x - y) + c*(ones(n) - hadamard(tanh(x), tanh(x))) + D"),
        ("jac(compose(layer, layer), x)", "jac(layer, relu(A*x))*jac(layer, x)"),
        ("grad(corner, c)", "1"),
        ("grad(u -> dot(u, grad(v -> norm(v)^2/2, x)), y)", "x"),
    ],
)
def test_derivatives_at_a_point(text, meant):
    """In balls and in floats: against closed forms, with derivatives of other points held fixed."""
    known = values()
    env = environment(known, sizes={"n": 3})
    env.lets = {"D": Formula("D", "", typed("2*x - grad(phi, x)"), Position("t", 1, 1))}
    found, wanted = evaluate(typed(text), env), evaluate(typed(meant), env)
    names = TensorNames(
        {name: torch.as_tensor(v, dtype=torch.float64) for name, v in known.items()},
        {"n": 3.0},
        env.lets,
        None,
        torch.zeros((), dtype=torch.float64),
    )
    plain = tensor_value(typed(text), names)
    if text.startswith("grad(corner"):
        assert found.ball == wanted.ball
        assert float(plain) == 1.0
        return
    assert torch.allclose(found.ball.centre, wanted.ball.centre, rtol=0, atol=1e-13)
    assert found.ball.radius < 1e-12
    assert torch.allclose(plain, found.ball.centre, rtol=0, atol=1e-12)


def test_a_point_at_a_kink_is_outside_of_the_claim():
    env = environment(values() | {"c": 0.0}, sizes={"n": 3})
    with pytest.raises(OutsideClaimError):
        evaluate(typed("grad(corner, c)"), env)


FILE = """suite: t
systems:
  deq:
    variables:
      A: {shape: "[m, m]", role: parameter}
      U: {shape: "[m, d]", role: parameter}
      u: {shape: "[m]", role: parameter}
      X: {shape: "[d, N]", role: input}
      y: {shape: "[N]", role: target}
    define:
      layer(z, x): tanh(A*z + x)
      loss(p[N]): norm(p - y)^2/2
      drive: U*X
      yhat: Z'*u
      L: loss(yhat)
    equilibrium: {Z: "layer(Z, drive)"}
    contraction: norm(A)
settings:
  plain:
    sizes: {m: 1..2, n: 1..2}
    domain: {A: "real[m, n]", y: "real[m]", u: "real[n]", v: "real[n]"}
  net:
    sizes: {L: 1..2, N: 2, n: "1..2 for l in 0..L"}
    domain: {X: "real[n[0], N]", W: "real[n[l], n[l-1]] for l in 1..L"}
  any: {model: deq, sizes: {m: 2, d: 1, N: 2}}
  drawn:
    model: deq
    sizes: {m: 2, d: 2, N: 2}
    init: {A: "normal(0, 1/16)", U: "normal(0, 1/2)", u: "normal(0, 1/4)"}
    data: {X: orthonormal_rows, y: rademacher}
claims:
  - id: convex
    setting: plain
    let: {"phi(u)": norm(A*u - y)^2/2}
    conclude: phi(v) >= phi(u) + dot(grad(phi, u), v - u)
  - id: wrong-sign
    setting: plain
    let: {"phi(u)": norm(A*u - y)^2/2}
    conclude: phi(v) >= phi(u) + dot(grad(phi, u), v + u)
  - id: layers
    setting: net
    let:
      f[l](z) for l in 1..L: relu(W[l]*z)
      T(z): compose(f[l] for l in 1..L)
      S(z): compose(f[l] for l in 1..L-1)
    conclude:
      chain: jac(T, X) == jac(f[L], S(X))*jac(S, X)
      bound: fro(T(X)) <= prod(norm(W[l]) for l in 1..L)*fro(X)
  - id: wrong-layers
    setting: net
    let:
      f[l](z) for l in 1..L: relu(W[l]*z)
      T(z): compose(f[l] for l in 1..L)
    conclude: fro(T(X)) <= norm(W[1])*fro(X)
  - id: system
    setting: any
    assume: norm(A) < 1
    conclude: {fixed: "layer(Z, drive) == Z", slope: "grad(loss, yhat) == yhat - y"}
  - id: training
    setting: drawn
    instances: 1
    let: {"phi(v)": norm(v - u)^2/2, g: "grad(phi, 2*u)"}
    run: {method: gradient-descent, step: 1/10, steps: 4, until: 0.1, beyond: false}
    conclude:
      there: phi[k](u[k]) <= 1e-6 for all k
      start: abs(phi[0](u[k]) - norm(u[k] - u[0])^2/2) <= 1e-6 for all k
      slope: norm(grad(phi[k], u[0]) - (u[0] - u[k])) <= 1e-6 for all k
      named: norm(g[k] - u[k]) <= 1e-6 for all k
  - id: wrong-training
    setting: drawn
    instances: 1
    let: {"phi(v)": norm(v - u)^2/2}
    run: {method: gradient-descent, step: 1/10, steps: 4, until: 0.1, beyond: false}
    conclude: phi[0](u[k]) <= 1e-6 for all k
"""


def test_claims(tmp_path):
    path = tmp_path / "t.yaml"
    path.write_text(FILE)
    results = {result.id: result for result in judge_claims(load_suite(path).claims, Options(instances=12, search=60))}
    verdicts = {name: result.verdict for name, result in results.items()}
    refuted = {"wrong-sign", "wrong-layers", "wrong-training"}
    assert verdicts == {name: Verdict.REFUTED if name in refuted else Verdict.HOLDS for name in verdicts}
    assert results["convex"].evidence is Evidence.CERTIFIED


def test_what_changes_along_a_run_needs_a_step(tmp_path):
    path = tmp_path / "t.yaml"
    path.write_text(FILE.replace("conclude: phi[0](u[k])", "conclude: phi(u[k])"))
    claim = next(claim for claim in load_suite(path).claims if claim.id == "wrong-training")
    assert "`phi(v)` uses `u`, which changes along the run." in claim.problems[0].message
    assert "write phi[k](...), or phi[0](...) for the start" in claim.problems[0].hint


NAMES = """
suite: names
settings:
  num: {domain: {x: real, y: real}}
  vec: {sizes: {n: 2}, domain: {f: "convex[n]", g: "pl(1)[n]", u: "real[n]", v: "real[n]"}}
claims:
  - {id: T.caller, setting: num, let: {"f(u)": "u + x", "g(x)": "f(x) + x"}, conclude: "g(y) == 2*y + x"}
  - {id: F.caller, setting: num, let: {"f(u)": "u + x", "g(x)": "f(x) + x"}, conclude: "g(y) == 3*y"}
  - {id: T.arrow, setting: num, let: {"f(u)": "u*x"}, conclude: "grad(x -> f(x), y) == x"}
  - {id: T.grad, setting: num, let: {"f(u)": "u*x", "g(x)": "grad(f, x)"}, conclude: "g(y) == x"}
  - id: T.composed
    setting: num
    let: {"f(u)": u + x, "h(x)": 2*x, "k(x)": "compose(h, f)"}
    conclude: k(y) == 2*y + x
  - {id: T.minimum, setting: num, let: {"f(u)": "u + x"}, conclude: "minimum(x[] -> (f(0) - 1)^2 + x^2) == (x - 1)^2"}
  - id: T.steps
    setting: num
    let: {"z[0]": x, "z[k+1]": "argmin(u[] -> (u - z[k])^2 + u^2)"}
    run: {method: recursion, steps: 3}
    conclude: "z[k] == x/2^k for all k"
  - id: F.steps
    setting: num
    let: {"z[0]": x, "z[k+1]": "argmin(u[] -> (u - z[k])^2 + u^2)"}
    run: {method: recursion, steps: 3}
    conclude: z[3] == z[2]
  - id: T.length
    setting: num
    let: {"z[0]": x, "z[k+1]": "z[k] + 3"}
    run: {method: recursion, steps: 5}
    conclude: path_length[k] == 3*k for all k
  - id: T.some
    setting: num
    let: {"z[0]": 0*x, "z[k+1]": "z[k] + 1"}
    run: {method: recursion, steps: 5}
    conclude: (z[k] - z[j] >= 3 for some k) for all j with j <= 2
  - {id: F.separable, setting: vec, conclude: "f([u{1}; v{2}]) + f([v{1}; u{2}]) == f(u) + f(v)"}
  - {id: F.convex, setting: vec, conclude: "g((u + v)/2) <= (g(u) + g(v))/2"}
"""


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    path = tmp_path_factory.mktemp("names") / "names.yaml"
    path.write_text(NAMES, encoding="utf-8")
    return {claim.id: claim for claim in load_suite(path).claims}


@pytest.mark.parametrize(
    "name", [line.split("id: ")[1].split(",")[0].strip() for line in NAMES.splitlines() if "id: " in line]
)
def test_a_name_means_what_it_means_where_it_stands(names, name):
    (result,) = judge_claims([names[name]], Options(instances=8, search=8))
    if name.startswith("T."):
        assert result.verdict in (Verdict.HOLDS, Verdict.PROVED), result.reason
    else:
        assert result.verdict is Verdict.REFUTED, result.reason


def test_no_statement_about_a_set_of_functions_is_proved(tmp_path):
    path = tmp_path / "set.yaml"
    claim = '{id: S, setting: s, conclude: "f(x) + 1 > f(x)"}'
    path.write_text(f"suite: s\nsettings: {{s: {{domain: {{x: real, f: convex}}}}}}\nclaims: [{claim}]\n", "utf-8")
    (result,) = judge_claims(load_suite(path).claims, Options(instances=8, search=0))
    assert result.verdict is Verdict.HOLDS


JUMPS = [
    "infimum(u[] -> (u - 1)^2 + 10*prox(abs, 5*step(u - 1/2), 1)) >= 1/5 + 0*abs(x)",
    "argmin(u[] -> (u - 1)^2 + 10*prox(abs, 5*step(u - 1/2), 1)) == 1 + 0*x",
    "infimum(u[] -> (u - 1)^2 + sin(3*u) + relu(100*prox(abs, 5*sign(u - 6/5), 1))) >= -1/2 + 0*abs(x)",
    "infimum(u[] -> u^2 - step(u)) == 17 + 0*x",
    "minimum(u[] -> exp(-u)) <= 5 + 0*abs(x)",  # it comes as near to 0 as one likes, and is there nowhere
]


@pytest.mark.parametrize("statement", JUMPS)
def test_jumps_behind_minima_and_minima_that_are_not_reached_are_open(tmp_path, statement):
    path = tmp_path / "jumps.yaml"
    claim = f'{{id: S, setting: s, conclude: "{statement}"}}'
    path.write_text(f"suite: s\nsettings: {{s: {{domain: {{x: real}}}}}}\nclaims: [{claim}]\n", "utf-8")
    (result,) = judge_claims(load_suite(path).claims, Options(instances=4, search=0))
    assert result.verdict is Verdict.UNDECIDED


def test_a_counterexample_is_shown_with_the_member_that_it_is_about(tmp_path):
    path = tmp_path / "set.yaml"
    claim = '{id: S, setting: s, conclude: "f(x) >= f(y) + grad(f, y)*(x - y)"}'
    path.write_text(
        f'suite: s\nsettings: {{s: {{domain: {{x: real, y: real, f: "pl(1)"}}}}}}\nclaims: [{claim}]\n', "utf-8"
    )
    (result,) = judge_claims(load_suite(path).claims, Options(instances=20, search=20))
    assert result.verdict is Verdict.REFUTED
    (member,) = (line for line in result.statement if line.section == "member")
    assert member.name == "f(u)"
    assert "cos(2*(u - f_c))" in member.text
    (conclusion,) = (line for line in result.statement if line.section == "conclude")
    assert r"\cos" in conclusion.latex  # of this member, and not of the first, which is a quadratic
    assert f"here f(u) = {member.text}" in remarks(result)
