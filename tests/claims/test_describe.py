"""What `check` prints: formulas with shapes, settings with sizes, problems with the wrong part underlined."""

from __future__ import annotations

from pathlib import Path

import pytest

from ntk_deq.claims.describe import describe_problem, describe_suite, one_line
from ntk_deq.claims.load import load_suite
from ntk_deq.errors import Position, Problem

TEXT = """
suite: A suite
settings:
  any: {model: implicit-relu, sizes: {N: 1..6, d: 1..6, m: 4}, domain: {A: nonnegative}}
  drawn:
    model: implicit-relu
    sizes: {N: 8, m: 64}
    images: {side: 14}
    init: {W: "beta * normal(0, 1/m)", gamma: 0.50}
claims:
- id: one
  title: First
  where: Lemma 1
  setting: [any, drawn]
  given: {beta: positive}
  let:
    Mt: >
      gamma * kron(b', I(N))
        * kron(I(m), Z)
    c: 0.10*beta
  assume: {(1): gamma*norm(A) < 1}
  conclude: sigma_min(Mt) >= c
  run: {method: fixed-point, steps: 7}
  tags: [t]
- {id: two, title: Second, setting: any, conclude: "nrom(A) > 0"}
"""
TRAINING = """
- id: descent
  setting: any
  given: {eta: positive, v: "real[m]", C: positive}
  choose: {maximize: eta*C}
  conclude: L[k] <= C*norm(v) for all k
  run: {method: gradient-descent, step: eta / 2, steps: 30}
- id: flow
  setting: any
  given: {C: positive}
  choose: {minimize: C}
  conclude: L[t] <= C for all t
  run: {method: gradient-flow, horizon: 5/C, until: 0.25}
- {id: plain-flow, setting: any, conclude: "L[t] <= 1 for all t", run: {method: gradient-flow}}
"""


SYSTEMS = """
suite: systems
systems:
  layer:
    title: A layer
    variables:
      W: {shape: "[n, n]", role: parameter, domain: skew}
      mu: {role: hyperparameter, domain: "(0, 1)", description: the modulus}
      c: {shape: "[n]", role: input}
    equilibrium: {z: relu(W*z + c)}
    CERTIFICATE
    define: {L: norm(z)^2}
  plain:
    variables: {x: {shape: "[n]", role: parameter}}
    define: {L: x'*x}
settings: {s: {model: layer, sizes: {n: 1..2}}, p: {model: plain, sizes: {n: 1}}}
claims:
- {id: one, setting: s, conclude: mu > 0}
- {id: two, setting: [s], conclude: L >= 0}
- {id: three, setting: p, conclude: sum(L) >= 0}
"""


@pytest.mark.parametrize(
    ("certificate", "words"),
    [
        ("monotone: mu", "monotone: I - W >= mu*I for the layer's weight W, certified on each instance"),
        ("contraction: norm(W)", "contraction: norm(W) < 1"),
        (
            "",
            "left out: norm(W) < 1, read off the map; else a fixed point found from zero that is shown to be the only",
        ),
    ],
)
def test_a_system_is_described_once_with_its_certificate(tmp_path, certificate, words):
    path = tmp_path / "a.yaml"
    path.write_text(SYSTEMS.replace("CERTIFICATE", certificate))
    layer, plain = describe_suite(load_suite(path)).systems
    assert layer.certificate.startswith(words)
    assert layer.equilibrium == ("z", "vector n", "z = relu(W*z + c)")
    assert layer.variables[0] == ("W", "matrix n x n", "parameter in skew")
    assert layer.variables[1] == ("mu", "scalar", "hyperparameter in (0, 1): the modulus")
    assert layer.definitions == (("L", "scalar", "norm(z)^2"),)
    assert (plain.equilibrium, plain.certificate, plain.title) == (None, "", "")


def test_registered_models_and_families_are_described_with_their_kernels(described):
    (shipped,) = described.systems
    assert (shipped.name, shipped.certificate) == ("implicit-relu", "contraction: gamma*norm(A) < 1")
    assert shipped.kernel.endswith("blocks of W, A (1 place each in the map), b (1 place in yhat)")
    found = {system.name: system for file in FILES for system in describe_suite(load_suite(file)).systems}
    assert found["quadratic"].definitions == (("L", "scalar", "x'*Q*x/2 - c'*x"),)
    assert found["feed-forward"].variables[0] == ("W[l]", "matrix n[l] x n[l-1]", "parameter for l in 1..D")
    kernel = "at D = 4: N x N, a sample in each column of X; blocks of W[1], W[2], W[3], W[4], a (1 place each in yhat)"
    assert found["feed-forward"].kernel == kernel
    assert found["monotone-network"].kernel.endswith(
        "A, B (2 places each in the map), U (1 place in the map), u (1 place in yhat)"
    )


FILES = [Path(__file__).parents[2] / "checks" / name for name in ("systems.yaml", "feed_forward.yaml")]


@pytest.fixture
def described(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(TEXT)
    return describe_suite(load_suite(path))


def test_formulas_with_types(described):
    lines = [(line.section, line.typed, line.text) for line in described.claims[0].formulas]
    assert lines == [
        ("given", "beta : scalar", "positive"),
        ("let", "Mt : matrix N x m^2", "gamma * kron(b', I(N)) * kron(I(m), Z)"),
        ("let", "c : scalar", "0.10*beta"),
        ("assume", "(1) : boolean", "gamma*norm(A) < 1"),
        ("conclude", "conclusion : boolean", "sigma_min(Mt) >= c"),
    ]


def test_settings_with_sizes_and_variables(described):
    universal, drawn = described.claims[0].settings
    assert (universal.name, universal.model, universal.kind) == ("any", "implicit-relu", "every instance of a domain")
    assert universal.sizes == "N = 1..6, d = 1..6, m = 4"
    assert universal.variables[:2] == ("A : matrix m x m in nonnegative", "W : matrix d x m in real")
    assert "gamma : scalar in (0, 1)" in universal.variables
    assert (drawn.kind, drawn.sizes) == ("real images", "N = 8, m = 64, d = 196")
    assert "W : matrix d x m drawn from beta * normal(0, 1/m)" in drawn.variables
    assert "gamma : scalar drawn from 0.50" in drawn.variables
    assert "X : matrix N x d from mnist" in drawn.variables


def test_the_rest_of_a_claim(described):
    one, two = described.claims
    assert (one.id, one.title, one.where, one.expect, one.run) == (
        "one",
        "First",
        "Lemma 1",
        "holds",
        "fixed-point, 7 steps",
    )
    assert (one.tags, one.well_formed, two.well_formed, described.ill_formed) == (("t",), True, False, 1)
    assert described.title == "A suite"
    assert one.position.endswith("a.yaml:11:3")


def test_training_runs_and_choices_in_words(tmp_path):
    path = tmp_path / "b.yaml"
    path.write_text(TEXT + TRAINING)
    found = describe_suite(load_suite(path)).claims
    assert [(claim.run, claim.choose) for claim in found[2:]] == [
        ("gradient descent, step eta / 2, at most 30 steps, until L <= 1e-6 L[0]", "gamma, eta, C to maximize eta*C"),
        (
            "gradient flow, at most 10000 steps of the integrator, until L <= 0.25 L[0] or t = 5/C",
            "gamma, C to minimize C",
        ),
        ("gradient flow, at most 10000 steps of the integrator, until L <= 1e-10 L[0]", None),
    ]
    assert (found[0].run, found[0].choose) == ("fixed-point, 7 steps", None)


def test_an_ill_formed_claim_shows_its_problems(described):
    (problem,) = described.claims[1].problems
    first, *rest = problem.splitlines()
    assert first.endswith("a.yaml:25:53: `conclude.conclusion`: unknown function `nrom`.")
    assert rest == ["    nrom(A) > 0", "    ^^^^", "    did you mean `norm`?"]


def problem(source, span):
    return Problem(Position("f.yaml", 1, 1), "wrong.", None, source, span)


def test_line_breaks_in_a_formula_do_not_move_the_underline():
    assert describe_problem(problem("a +\n\tb", (5, 6))).splitlines()[1:] == ["    a +  b", "         ^"]


def test_a_long_formula_is_cut_around_the_problem():
    _, source, underline = describe_problem(problem("x" * 500 + "BAD" + "y" * 500, (500, 503))).splitlines()
    assert len(source) < 110
    assert source[underline.index("^") : underline.rindex("^") + 1] == "BAD"


def test_an_underline_is_never_empty_nor_wider_than_the_source():
    assert describe_problem(problem("ab", (2, 2))).splitlines()[2].strip() == "^"
    assert len(describe_problem(problem("x" * 300, (0, 300))).splitlines()[2].strip()) == 100


def test_a_problem_without_a_formula_is_its_message():
    assert describe_problem(Problem(Position("f.yaml", 2, 3), "wrong.")) == "f.yaml:2:3: wrong."


def test_one_line():
    assert one_line(" a\n  + b\t") == "a + b"
