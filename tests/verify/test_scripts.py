"""Counterexamples as scripts: run with NumPy alone, they come to the sides and the margin of the verdict."""

from __future__ import annotations

import ast
import dataclasses
import re
import subprocess
import sys

import pytest

from ntk_deq.claims.claim import Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.language.calls import Parameter
from ntk_deq.language.functions import FUNCTIONS
from ntk_deq.language.parser import parse
from ntk_deq.language.tree import Kind, with_constants
from ntk_deq.verify.printer import UnwritableError
from ntk_deq.verify.runner import Options, judge
from ntk_deq.verify.script import counterexample_script

SETTINGS = """
suite: scripts
settings:
  plain:
    sizes: {n: 2..3, m: 2..3}
    domain: {A: "real[n, n]", B: "real[n, m]", C: "real[n, m]", v: "real[n]", w: "real[n]", x: positive, P: "psd[n, n]"}
  relu:
    model: implicit-relu
    sizes: {N: 2, d: 2, m: 3}
    domain: {W: real, A: real, b: real, X: real, y: real, gamma: "(0, 1)"}
  linear:
    model: linear-implicit
    sizes: {N: 2, d: 2, m: 2}
    domain: {W: real, U: real, b: real, X: real, y: real}
"""
POSED = {"plain": "x <= 4 and fro(A) <= 20", "relu": "gamma*norm(A) < 1/2", "linear": "norm(W) < 1/2"}
FAR = "10^9"

PLAIN = [
    f"kron(A, B) >= {FAR}*ones(n*n, n*m)",
    f"hadamard(B, C) - B >= {FAR}",
    f"vec(B) >= {FAR}",
    f"inv(A + 30*I(n)) >= {FAR}",
    f"diag(v)*diag(A) >= {FAR}",
    f"commutation(n, m)*vec(B) >= {FAR}*ones(n*m)",
    f"trace(A) + det(A) >= {FAR}",
    f"sum(B)*x >= {FAR}",
    f"dot(v, w)/x >= {FAR}",
    f"max(v)*min(x, 2, 3) >= {FAR}",
    f"min(B) >= {FAR}",
    f"norm(B) >= {FAR}",
    f"norm(v) + norm(x - 3) >= {FAR}",
    f"fro(B) - norm1(B)*norminf(B) >= {FAR}",
    f"sigma_min(B) + sigma_max(B) >= {FAR}",
    f"cond(A + 30*I(n)) >= {FAR}",
    f"lambda_min(A) + lambda_max(A) + rho(A) >= {FAR}",
    f"abs(A) - relu(A) >= {FAR}",
    f"v'*A*step(v)*x >= {FAR}",
    f"softplus(A)*softplus(x - 2) >= {FAR}",
    f"sqrt(x)*exp(-x) - log(x) >= {FAR}",
    f"tanh(B) + sigmoid(B) - sigmoid(x)*erf(B) >= {FAR}",
    f"sin(B) - cos(B)*cos(pi*x) + arctan(B) >= {FAR}",
    f"arccos(B/100) + sign(B) + exp(B/9)*sign(x) >= {FAR}",
    f"sqrt(abs(B)) + log(exp(B)) >= {FAR}",
    f"huber(B) + huber(C, x) + huber(x, 1/2)*B >= {FAR}",
    f"leaky_relu(B, 1/10) - softthreshold(C, x) + shift(B, x - 1)*leaky_relu(-x, 1/2) >= {FAR}",
    f"softmax(B) - softmax(v)*ones(1, m) >= {FAR}",
    f"slope(tanh, B) + slope2(sigmoid, C) - primitive(leaky_relu, B, 1/3)*slope(softthreshold, x, 1/7) >= {FAR}",
    f"jac(tanh(A)*v + sigmoid(A)*v + erf(A)*v, A) >= {FAR}",
    f"jac(sin(A)*v + cos(A)*v + arctan(A)*v + arccos(A/100)*v, A) >= {FAR}",
    f"jac(huber(A)*v + huber(A, x)*v + exp(A/9)*v, A) >= {FAR}",
    f"jac(leaky_relu(A, 1/10)*v + softthreshold(A, 1/9)*v + shift(A, x)*v + sqrt(shift(abs(A), 1))*v, A) >= {FAR}",
    f"grad(huber(x, 3)*tanh(x) + leaky_relu(x, 1/2)*sign(x), x) >= {FAR}",
    f"A^3 - A^-1*0 >= {FAR}",
    f"x^2 - x^-x >= {FAR}",
    f"zeros(n, m) - ones(n, m)*(v'*w) >= {FAR}",
    "A == A' + I(n)",
    "B == C + ones(n, m)",
    "x != x",
    f"-(v'*v)^2 >= {FAR}",
    f"grad(norm(A*v)^2/2, A) >= {FAR}",
    f"jac(A*v*sum(B), v) >= {FAR}",
    f"grad(exp(-x)*det(A)/x, x) >= {FAR}",
    f"grad(trace(inv(A + 30*I(n))), A) >= {FAR}",
    f"jac(relu(A)*v + abs(v)*sqrt(x), A) >= {FAR}",
    f"jac(softplus(A)*v + softplus(-v), A) + jac(softplus(v)*softplus(x), v)*v*ones(1, n*n) >= {FAR}",
    f"jac(A^1*v, w) >= {FAR}",
    f"grad(log(x)*norm(v), v) >= {FAR}",
    f"jac(kron(A, v), A) >= {FAR}",
    f"jac(hadamard(A, A'), A) >= {FAR}",
    f"A{{1, n}}*v{{2}} + norm(v{{1..2}}) >= {FAR}",
    f"A{{2..n, :}}*B{{:, 1..2}} + kron(A{{2..n, 1}}, ones(1, 2)) >= {FAR}",
    f"[A, v; w', x] + blockdiag(A, 2) >= {FAR}",
    f"kronsum(A, A)*vec(A) >= {FAR}",
    f"khatri_rao(B, C) >= {FAR}",
    f"pinv(B)*v >= {FAR}",
    f"sqrtm(P + I(n))*v >= {FAR}",
    f"nuclear(B) + rank(B) + lambda_sym(P) >= {FAR}",
    f"psd(P - {FAR}*I(n))",
    f"A^(n - 1) >= {FAR}",
    f"jac([v{{1}}*v; blockdiag(x, A{{1, :}}*v){{2, 2}}], v) >= {FAR}",
    f"jac(kronsum(A, A*A){{:, 1}}, A) >= {FAR}",
]
RELU = [
    f"Z >= {FAR}",
    f"norm(yhat - y) >= {FAR}",
    f"grad(L, W) >= {FAR}",
    f"grad(L, A) >= {FAR}",
    f"jac(Z, A) >= {FAR}",
    f"jac(yhat, b) >= {FAR}",
    f"grad(L, gamma) >= {FAR}",
    f"jac(yhat, X) >= {FAR}",
    f"at(Z, A = A/2) - Z >= {FAR}",
    f"at(grad(L, W), gamma = gamma/2, b = -b) >= {FAR}",
    f"next(Z + ones(N, m)) >= {FAR}",
    f"fixed_point(ones(N, m)) - at(L, W = 2*W)*Z >= {FAR}",
    f"lambda_min(jac(yhat, W)*jac(yhat, W)') >= {FAR}",
]
LINEAR = [
    f"Z*b >= {FAR}",
    f"grad(L, W) >= {FAR}",
    f"grad(L, U) >= {FAR}",
    f"jac(Z, X) >= {FAR}",
]
CLAIMS = [
    *(("plain", text) for text in PLAIN),
    *(("relu", text) for text in RELU),
    *(("linear", text) for text in LINEAR),
]


def refuted(tmp_path, setting: str, conclusion: str, *, more: str = ""):
    """A claim with the witness of its counterexample."""
    path = tmp_path / "claims.yaml"
    body = (
        f"setting: {setting}\n    assume: {{posed: {POSED[setting]!r}}}\n    conclude:\n      {conclusion}\n    {more}"
    )
    path.write_text(f"{SETTINGS}\nclaims:\n  - id: S\n    {body}\n", "utf-8")
    (claim,) = load_suite(path).claims
    result = judge(claim, Options(instances=6, search=0, boxes=0, seed=1))
    assert result.verdict is Verdict.REFUTED, result.reason or result.problems
    return claim, result.counterexample


ALONE = """
import contextlib, io, runpy, sys, traceback
sys.modules.update(torch=None, scipy=None, ntk_deq=None)
for path in sys.stdin:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        try:
            runpy.run_path(path.strip())
        except BaseException:
            print(traceback.format_exc())
    print(repr(shown.getvalue()), flush=True)
"""


@pytest.fixture(scope="module")
def python():
    """A Python without anything but NumPy, which runs the scripts whose paths it is sent, and says what they print."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-I", "-W", "error", "-c", ALONE]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def output(tmp_path, python):
    """Return what a script prints."""

    def run(script: str) -> str:
        path = tmp_path / "script.py"
        path.write_text(script, "utf-8")
        print(path, file=python.stdin, flush=True)
        printed = ast.literal_eval(python.stdout.readline())
        assert "Traceback" not in printed, printed
        return printed

    return run


def margins(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"^margin (.*)$", text, re.MULTILINE)]


@pytest.mark.parametrize(("setting", "conclusion"), CLAIMS)
def test_a_script_comes_to_the_margin_of_the_verdict(tmp_path, setting, conclusion, output):
    _, witness = refuted(tmp_path, setting, f'c: "{conclusion}"')
    assert witness.script, witness.unwritten
    (margin,) = margins(output(witness.script))
    # The balls are narrow; a float64 computation is off by rounding, a few units of the numbers that it sums.
    room = 1e-9 * (1e3 if FAR in conclusion else 1.0)
    assert witness.margin.lo - room <= margin <= witness.margin.hi + room
    assert margin <= 0


def test_every_function_is_tried():
    trees = [with_constants(parse(text)) for _, text in CLAIMS]
    tried = {node.name for tree in trees for node in tree.walk() if node.kind is Kind.CALL}
    # What takes a function of an argument, or a statement, is not written in NumPy.
    of_formulas = {Parameter.OPERAND, Parameter.STATEMENT}
    written = {name for name, f in FUNCTIONS.items() if not of_formulas & {*f.parameters}}
    assert not written - tried, "add a false claim with a call to PLAIN, above"
    assert not tried - written


def test_names_that_python_has_a_meaning_for(tmp_path, output):
    path = tmp_path / "claims.yaml"
    path.write_text(
        "suite: names\nsettings: {s: {domain: {lambda: positive, np: positive, settled: positive, d_x: positive}}}\n"
        "claims: [{id: S, setting: s, conclude: lambda + np + settled + d_x <= 0}]\n",
        "utf-8",
    )
    (claim,) = load_suite(path).claims
    witness = judge(claim, Options(instances=4, search=0, boxes=0)).counterexample
    assert witness is not None
    assert margins(output(witness.script)) == [pytest.approx(witness.margin.lo)]


def test_several_comparisons_and_names_that_are_no_code(tmp_path, output):
    hostile = '"x\\u2028import os\\u2029raise SystemExit(3)\\\\": "norm(v) >= 0 and 10^9 <= trace(A) < 10^10"'
    _, witness = refuted(tmp_path, "plain", hostile)
    assert all(line.startswith("#") for line in witness.script.splitlines()[:2])
    assert len(margins(output(witness.script))) == 3


def test_a_long_chain_of_definitions(tmp_path, output):
    chain = "\n".join(f"      e{n}: (e{n - 1} + e{n - 2})/2" for n in range(2, 60))
    path = tmp_path / "claims.yaml"
    path.write_text(
        "suite: chain\nsettings: {s: {domain: {x: positive}}}\nclaims:\n  - id: S\n    setting: s\n"
        f"    let:\n      e0: x\n      e1: x + 1\n{chain}\n    conclude: e59 <= 0\n",
        "utf-8",
    )
    (claim,) = load_suite(path).claims
    witness = judge(claim, Options(instances=4, search=0, boxes=0)).counterexample
    assert witness is not None
    assert margins(output(witness.script)) == [pytest.approx(witness.margin.lo)]


def test_the_states_of_an_iteration(tmp_path, output):
    path = tmp_path / "claims.yaml"
    path.write_text(
        f"{SETTINGS}\nclaims:\n  - id: S\n    setting: relu\n"
        "    assume: {posed: gamma*norm(A) < 1/2, start: norm(X*W) >= 1}\n"
        "    run: {method: fixed-point, steps: 5}\n    conclude: fro(Z[k+1] - Z[k]) >= 10^9 for all k with k >= 2\n",
        "utf-8",
    )
    (claim,) = load_suite(path).claims
    witness = judge(claim, Options(instances=12, search=0, boxes=0)).counterexample
    assert witness is not None
    assert witness.script, witness.unwritten
    assert margins(output(witness.script)) == [pytest.approx(witness.margin.lo, rel=1e-9)]


@pytest.mark.parametrize(
    ("setting", "conclusion", "why"),
    [
        ("plain", "grad(norm(A), A) >= 10^9", "the derivative of a spectral norm"),
        ("plain", "grad(sigma_min(A), A) >= 10^9", "the derivative of `sigma_min`"),
        ("relu", "grad(norm(at(yhat, A = A/2)), b) >= 10^9", "the derivative of `at`"),
    ],
)
def test_what_cannot_be_written_is_said(tmp_path, setting, conclusion, why):
    _, witness = refuted(tmp_path, setting, f"c: {conclusion!r}")
    assert witness.script == ""
    assert why in witness.unwritten


def test_a_variable_too_large_to_print_is_said(tmp_path):
    claim, witness = refuted(tmp_path, "plain", "c: norm(v) >= 10^9")
    large = dataclasses.replace(witness, values=witness.values | {"v": None})
    with pytest.raises(UnwritableError, match="v is too large to print"):
        counterexample_script(claim, large)


def test_a_counterexample_comes_with_what_follows_from_it(tmp_path):
    _, witness = refuted(
        tmp_path, "relu", 'c: "norm(ZZ) >= 10^9 and r0 >= 0"', more='let: {r0: norm(yhat - y), ZZ: "Z*Z\'"}'
    )
    assert [name for name, _ in witness.hypotheses] == ["posed"]
    assert re.fullmatch(r"\S+( ± \S+)? < 0.5", witness.hypotheses[0][1])
    found = {computed.name: computed for computed in witness.computed_values}
    assert list(found) == ["Z", "yhat", "r0", "ZZ"]
    Z = found["Z"].value
    assert (len(Z), len(Z[0])) == (witness.sizes["N"], witness.sizes["m"])
    assert found["Z"].radius < 1e-9
    assert found["ZZ"].value[0][0] == pytest.approx(sum(z * z for z in Z[0]))
    assert float(found["r0"].value.split(" ")[0].rstrip("…")) >= 0


SYSTEMS = """
suite: systems
systems:
  vector:
    variables: {W: {shape: "[n, n]", role: parameter}, c: {shape: "[n]", role: input}}
    equilibrium: {z: "relu(W*z + c) - softplus(W'*z)/2"}
  columns:
    variables: {W: {shape: "[n, n]", role: parameter, domain: skew}, C: {shape: "[n, m]", role: input}}
    equilibrium: {Z: "relu(3*W*Z + C)"}
    monotone: 1/2
  number:
    variables: {a: {role: parameter}, c: {role: input}}
    equilibrium: {z: "relu(a*z + c)"}
  plain:
    variables: {x: {shape: "[n]", role: parameter}, Q: {shape: "[n, n]", role: input}}
    define: {L: "x'*Q*x/2"}
settings:
  vector: {model: vector, sizes: {n: 2}}
  columns: {model: columns, sizes: {n: 2, m: 3}}
  number: {model: number, sizes: {}}
  plain: {model: plain, sizes: {n: 2}}
"""


@pytest.mark.parametrize(
    ("setting", "conclusion"),
    [
        ("vector", f"z >= {FAR}"),
        ("vector", f"grad(sum(z), W) >= {FAR}"),
        ("columns", f"Z >= {FAR}*ones(n, m)"),
        ("columns", f"grad(sum(Z), C) >= {FAR}"),
        ("number", f"z*c + z >= {FAR}"),
        ("number", f"grad(z, a) >= {FAR}"),
        ("plain", f"grad(L, x) >= {FAR}"),
    ],
)
def test_scripts_of_systems(tmp_path, setting, conclusion, output):
    path = tmp_path / "claims.yaml"
    path.write_text(f'{SYSTEMS}claims:\n  - {{id: S, setting: {setting}, conclude: "{conclusion}"}}\n', "utf-8")
    (claim,) = load_suite(path).claims
    result = judge(claim, Options(instances=20, search=0, boxes=0, seed=1))
    assert result.verdict is Verdict.REFUTED, result.reason
    witness = result.counterexample
    assert witness.script, witness.unwritten
    (margin,) = margins(output(witness.script))
    assert witness.margin.lo - 1e-6 <= margin <= witness.margin.hi + 1e-6


RECURSIONS = """
suite: recursions
settings:
  one: {sizes: {n: 2}, domain: {W: "real[n, n]", b: "real[n]", s: "real[n]"}}
  deep: {sizes: {n: 2, L: 2}, domain: {W: "real[n, n] for l in 1..L", s: "real[n]"}}
claims:
  - id: R.order
    setting: one
    assume: {away: "s{1} >= 1 and b{1} >= 2 and W{1, 2} >= 1 and W{2, 2} <= -1/2"}
    let:
      f(u): norm(W*u - b)^2/2
      q: norm(w[2] - s)
      w[0]: s
      w[k+1]: w[k]/2 - grad(f, w[k])/(9 + k) + u[k]/4
      u[0]: b
      u[1]: w[1]
      u[j]: relu(u[j-2]) - w[j]/8 + r[j-1]*b
      r[k]: norm(w[k])/(k + 1)
    run: {method: recursion, steps: 8}
    conclude: r[k] + q + path_length[k] + norm(u[k-1]) <= -1 for all k with k >= 5
  - id: R.long
    setting: one
    assume: {away: "s{1} >= 1 and b{2} >= 2"}
    let: {"z[0]": s, "z[k+1]": "z[k]/2 + b"}
    run: {method: recursion, steps: 1500}
    conclude: norm(z[1500]) <= -1
  - id: R.sweep
    setting: deep
    assume: {away: "s{1} >= 1 and s{2} <= -2 and W[1]{1, 1} >= 1 and W[2]{2, 1} >= 3"}
    let:
      x[0][k]: s
      x[l][0] for l in 1..L: s
      x[l][k+1] for l in 1..L: relu(W[l]*x[l-1][k+1])/(1 + norm(W[l])) + x[l][k]/2
    run: {method: recursion, steps: 3}
    conclude: sum(norm(x[l][3]) for l in 1..L) + at(norm(x[1][2]), s = 2*s) <= -1
"""


@pytest.mark.parametrize("name", ["R.order", "R.long", "R.sweep"])
def test_the_steps_of_a_recursion(tmp_path, output, name):
    path = tmp_path / "claims.yaml"
    path.write_text(RECURSIONS, "utf-8")
    claim = next(claim for claim in load_suite(path).claims if claim.id == name)
    result = judge(claim, Options(instances=4, search=0, boxes=0))
    assert result.verdict is Verdict.REFUTED, result.reason or result.problems
    witness = result.counterexample
    assert witness.script, witness.unwritten
    assert margins(output(witness.script)) == [pytest.approx(witness.margin.lo, rel=1e-9)]
