"""Small claims on training runs, and their judgement."""

from dataclasses import replace

from ntk_deq.claims.load import load_suite
from ntk_deq.verify.runner import Options, judge

FILE = """
suite: t
settings:
  linear:                                # z = W z + U x: no kink, so that everything can be proven
    model: linear-implicit
    sizes: {{N: 2, d: 2, m: 3}}
    domain: {{}}
    init: {{W: "normal(0, 1/100)", U: "normal(0, 1/2)", b: "normal(0, 1/3)", X: orthonormal_rows, y: rademacher}}
  relu:
    model: implicit-relu
    sizes: {{N: 2, d: 3, m: 6}}
    domain: {{gamma: "[1/4, 1/4]"}}
    init: {{W: "normal(0, 1)", A: "normal(0, 1/36)", b: "normal(0, 1/6)", X: orthonormal_rows, y: rademacher}}
claims:
  - id: T
    title: t
    setting: {setting}
    instances: 1
    given: {given}
    let: {let}
    assume: {assume}
    run: {run}
    conclude: {conclude}
"""
DESCENT = "{method: gradient-descent, step: 1/20, steps: 60, until: 1e-4}"
FLOW = "{method: gradient-flow, until: 1e-4}"
FEW = 12
"""Judged steps or times of a run where their number is not the subject; the command takes 48."""


def looked_at(claim, steps=FEW):
    """The claim with so many judged steps or times, besides telling ones."""
    return replace(claim, run=replace(claim.run, judged=steps))


def judged(
    tmp_path, *, setting="linear", given="{}", let="{}", assume="{}", run=DESCENT, conclude, steps=FEW, **options
):
    path = tmp_path / "claims.yaml"
    path.write_text(FILE.format(setting=setting, given=given, let=let, assume=assume, run=run, conclude=conclude))
    (claim,) = load_suite(str(path)).claims
    assert hasattr(claim, "run"), claim
    return judge(looked_at(claim, steps), Options(**{"search": 0, **options}))
