"""What `check` prints: formulas with shapes, settings with sizes, systems with their certificates and kernels."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from ntk_deq.claims.claim import Suite
from ntk_deq.claims.describe import choose_words, describe_systems, one_line, run_words
from ntk_deq.claims.load import load_suite
from ntk_deq.report.check import render_check

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
    layer, plain = describe_systems(read(tmp_path, SYSTEMS.replace("CERTIFICATE", certificate)).claims)
    assert layer.certificate.startswith(words)
    assert layer.equilibrium == ("z", "vector n", "z = relu(W*z + c)")
    assert layer.variables[0] == ("W", "matrix n x n", "parameter in skew")
    assert layer.variables[1] == ("mu", "scalar", "hyperparameter in (0, 1): the modulus")
    assert layer.definitions == (("L", "scalar", "norm(z)^2"),)
    assert (plain.equilibrium, plain.certificate, plain.title) == (None, "", "")


def test_registered_models_and_families_are_described_with_their_kernels(tmp_path):
    (shipped,) = describe_systems(read(tmp_path).claims)
    assert (shipped.name, shipped.certificate) == ("implicit-relu", "contraction: gamma*norm(A) < 1")
    assert shipped.kernel.endswith("blocks of W, A (1 place each in the map), b (1 place in yhat)")
    found = {system.name: system for file in FILES for system in describe_systems(load_suite(file).claims)}
    assert found["quadratic"].definitions == (("L", "scalar", "x'*Q*x/2 - c'*x"),)
    assert found["feed-forward"].variables[0] == ("W[l]", "matrix n[l] x n[l-1]", "parameter for l in 1..D")
    kernel = "at D = 4: N x N, a sample in each column of X; blocks of W[1], W[2], W[3], W[4], a (1 place each in yhat)"
    assert found["feed-forward"].kernel == kernel
    assert found["monotone-network"].kernel.endswith(
        "A, B (2 places each in the map), U (1 place in the map), u (1 place in yhat)"
    )


FILES = [Path(__file__).parents[2] / "checks" / name for name in ("systems.yaml", "feed_forward.yaml")]


def read(tmp_path: Path, text: str = TEXT) -> Suite:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    return load_suite(path)


def test_a_claim_with_its_settings_and_formulas(tmp_path):
    suite, console = read(tmp_path), Console(file=io.StringIO(), width=400, color_system=None)
    render_check(console, suite, suite.claims)
    lines = [" ".join(line.split()) for line in console.file.getvalue().splitlines()]
    assert lines[0] == "A suite"
    start = lines.index("one First Lemma 1")
    assert lines[start : lines.index("", start)] == [
        "one First Lemma 1",
        "setting any: implicit-relu, whole domain, N = 1..6, d = 1..6, m = 4",
        "setting drawn: implicit-relu, images from mnist, rest drawn, N = 8, m = 64, d = 196",
        "run fixed-point, 7 steps",
        "names gamma scalar, b vector m, Z matrix N x m, A matrix m x m",
        "given beta scalar positive",
        "let Mt matrix N x m^2 gamma * kron(b', I(N)) * kron(I(m), Z)",
        "c scalar 0.10*beta",
        "assume (1) scalars gamma*norm(A) < 1",
        "conclude conclusion scalars sigma_min(Mt) >= c",
    ]
    *_, title, problem = lines[:-5]
    assert (title, problem.rpartition("/")[2]) == (
        "two Second ill-formed",
        "a.yaml:25:53: two: `conclude.conclusion`: unknown function `nrom`.",
    )
    assert lines[-5:] == ["nrom(A) > 0", "^^^^", "did you mean `norm`?", "", "2 claims, 1 ill-formed"]


def test_training_runs_and_choices_in_words(tmp_path):
    found = read(tmp_path, TEXT + TRAINING).claims
    assert [(run_words(claim.run), choose_words(claim)) for claim in found[2:]] == [
        ("gradient descent, step eta / 2, at most 30 steps, until L <= 1e-6 L[0]", "gamma, eta, C to maximize eta*C"),
        (
            "gradient flow, at most 10000 steps of the integrator, until L <= 0.25 L[0] or t = 5/C",
            "gamma, C to minimize C",
        ),
        ("gradient flow, at most 10000 steps of the integrator, until L <= 1e-10 L[0]", None),
    ]
    assert (run_words(found[0].run), choose_words(found[0])) == ("fixed-point, 7 steps", None)


def test_one_line():
    assert one_line(" a\n  + b\t") == "a + b"
