"""Every kind of run, as a record and as a twin: what a new one has to have before it is done."""

from __future__ import annotations

import ast
import dataclasses
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from flint import arb

import ntk_deq
from ntk_deq.claims.describe import run_words
from ntk_deq.claims.load import load_suite
from ntk_deq.claims.schema import RUN_MODELS
from ntk_deq.claims.statement import claim_file, statement_lines
from ntk_deq.claims.validate import claim_file_schema
from ntk_deq.evaluation.environment import Notes
from ntk_deq.falsify import instance_at
from ntk_deq.files.yaml import to_yaml
from ntk_deq.language import run
from ntk_deq.language.indices import INDICES
from ntk_deq.language.run import FIXED_POINT, RUN_KINDS, KeyValue, Run, RunKind, changing_names, told_in
from ntk_deq.report import method_words
from ntk_deq.verify.formulas import instance_environment
from ntk_deq.verify.results import Verdict
from ntk_deq.verify.runner import Options, judge
from ntk_deq.verify.runs import Course, RunTwin
from ntk_deq.verify.training import Moments, Point
from ntk_deq.verify.training.between import needs_the_run
from ntk_deq.verify.twins import twin_of, twins

FILE = """
suite: t
settings:
  linear:
    model: linear-implicit
    sizes: {{N: 2, d: 2, m: 2}}
    domain: {{}}
    init: {{W: "normal(0, 1/100)", U: "normal(0, 1/2)", b: "normal(0, 1/3)", X: orthonormal_rows, y: rademacher}}
claims:
  - id: K
    setting: linear
    instances: 1
    given: {{h: "[1/16, 1/16]"}}
    run: {run}
    conclude:
      fits: norm({name}[i]) <= norm({name}[i]) + h for all i
      breaks: norm({name}[i]) > norm({name}[i]) + h for all i
"""
STEPS = """    let: {"V[0]": X, "V[k+1]": "V[k]/2"}
    run:"""
OF_KEY = {KeyValue.COUNT: "7", KeyValue.PART: "1.0e-3", KeyValue.FORMULA: "h", KeyValue.FLAG: "false"}
KINDS = pytest.mark.parametrize("kind", RUN_KINDS.values(), ids=str)


def claim_of(tmp_path, kind):
    """A claim with a run of a kind that gives all its keys."""
    run = ", ".join([f"method: {kind}", *(f"{key.name}: {OF_KEY[key.value]}" for key in kind.keys)])
    path = tmp_path / "claims.yaml"
    text = FILE.format(run=f"{{{run}}}", name="V" if kind.written else "Z")
    path.write_text(text.replace("    run:", STEPS) if kind.written else text, encoding="utf-8")
    (claim,) = load_suite(str(path)).claims
    assert hasattr(claim, "run"), claim
    return claim


def test_each_record_has_one_twin():
    assert twins().keys() == RUN_KINDS.keys() == RUN_MODELS.keys()
    assert all(twins()[name].kind is kind and kind.name == name for name, kind in RUN_KINDS.items())


def test_a_claim_without_a_run_has_a_twin_too(tmp_path):
    claim = dataclasses.replace(claim_of(tmp_path, FIXED_POINT), run=None)
    twin = twin_of(claim)
    assert (type(twin), twin.kind, claim.costly) == (RunTwin, None, False)
    assert type(twin.start(claim, None, None)) is Course


@KINDS
def test_every_field_is_said(kind):
    for field in dataclasses.fields(kind):
        assert getattr(kind, field.name) not in ("", ()), field.name
    for index in (kind.index, INDICES[kind.index.type]):
        assert all(getattr(index, field.name) != "" for field in dataclasses.fields(index))
    assert INDICES[kind.index.type] is kind.index
    assert "{steps}" in kind.budget


@KINDS
def test_each_key_is_a_field_of_a_run_and_has_a_meaning(kind):
    fields = {field.name for field in dataclasses.fields(Run)}
    for key in kind.keys:
        assert key.name in fields
        assert key.meaning.endswith(".")
        assert not (key.required and key.default is not None)
        assert (key.most > 0) is (key.value is KeyValue.COUNT)
    assert len({key.name for key in kind.keys}) == len(kind.keys)


@KINDS
def test_the_schema_takes_the_keys_and_no_others(kind):
    (model,) = (m for m in claim_file_schema()["$defs"].values() if _method(m) == kind.name)
    assert list(model["properties"]) == ["method", *(key.name for key in kind.keys)]
    assert model["required"] == ["method", *(key.name for key in kind.keys if key.required)]
    assert all(model["properties"][key.name]["description"] == key.meaning for key in kind.keys)
    assert model["additionalProperties"] is False


def _method(model):
    return model.get("properties", {}).get("method", {}).get("const")


@KINDS
def test_a_claim_keeps_what_its_keys_say(tmp_path, kind):
    claim = claim_of(tmp_path, kind)
    assert claim.run.kind is kind
    values = {KeyValue.COUNT: 7, KeyValue.PART: Fraction(1, 1000), KeyValue.FLAG: False}
    for key in kind.keys:
        value = getattr(claim.run, key.name)
        assert value.text == "h" if key.value is KeyValue.FORMULA else value == values[key.value]
    assert claim.run.formulas.keys() == set(kind.formulas)


@KINDS
def test_what_is_written_down_states_the_same_run(tmp_path, kind):
    claim = claim_of(tmp_path, kind)
    entry = claim_file(claim)["claims"][0]["run"]
    assert entry.keys() == {"method", *(key.name for key in kind.keys)}
    path = tmp_path / "again.yaml"
    path.write_text(to_yaml(claim_file(claim)), encoding="utf-8")
    (again,) = load_suite(str(path)).claims
    assert (again.run.kind, again.run.steps, again.run.until, again.run.beyond) == (
        claim.run.kind,
        claim.run.steps,
        claim.run.until,
        claim.run.beyond,
    )
    assert {n: f.text for n, f in again.run.formulas.items()} == {n: f.text for n, f in claim.run.formulas.items()}


@KINDS
def test_people_read_of_it(tmp_path, kind):
    claim = claim_of(tmp_path, kind)
    words = run_words(claim.run)
    assert words.startswith(kind.title)
    assert "7 steps" in words
    assert any(line.name == kind.name for line in statement_lines(claim) if line.section == "run")
    assert method_words(SimpleNamespace(method=kind.name)) == kind.title
    assert told_in(SimpleNamespace(method=kind.name, step=None)) is kind


@KINDS
def test_names_that_change_have_a_value_at_the_start(tmp_path, kind):
    claim = claim_of(tmp_path, kind)
    setting = claim.settings[0]
    changing = changing_names(kind, setting.model, claim.let) | claim.recursions.rules.keys()
    assert ("V" if kind.written else setting.model.state) in changing
    assert (setting.model.names()[0] in changing) is kind.trains
    instance = instance_at(setting, claim.given, 0, 0)
    env = instance_environment(
        claim, instance, device=torch.device("cpu"), dtype=torch.float64, notes=Notes(deadline=None)
    )
    twin = twin_of(claim)
    twin.begin(claim, env)
    assert isinstance(twin.start(claim, env, instance), Course)
    assert env.moments is None or env.moments.has(0)


@KINDS
def test_true_and_false_are_told_apart(tmp_path, kind):
    result = judge(claim_of(tmp_path, kind), Options(search=0))
    assert result.verdict is Verdict.REFUTED
    assert result.counterexample.conclusion == "breaks"


@pytest.mark.parametrize("kind", [kind for kind in RUN_KINDS.values() if kind.trains], ids=lambda kind: kind.name)
def test_the_path_has_its_length(tmp_path, kind):
    claim_of(tmp_path, kind)
    path = tmp_path / "claims.yaml"
    path.write_text(path.read_text().replace("norm(Z[i]) > norm(Z[i]) + h", "path_length[i] <= 0"))
    (claim,) = load_suite(str(path)).claims
    result = judge(claim, Options(search=0, shrink=False))
    assert (result.verdict, result.counterexample.conclusion) == (Verdict.REFUTED, "breaks")


@KINDS
def test_the_search_has_a_score_and_a_budget(tmp_path, kind):
    claim = claim_of(tmp_path, kind)
    setting, twin = claim.settings[0], twin_of(claim)
    scorer = twin.scorer(claim, setting)
    scores = scorer(instance_at(setting, claim.given, 0, 0), {})
    assert scorer.budget > 0
    assert scorer.goals == ("fits", "breaks")
    fits, breaks = scores.goals[0].tolist()
    assert breaks < 0 <= fits
    assert twin.cost(claim, setting, {"N": 2, "d": 2, "m": 2}) > 0


@KINDS
def test_a_brief_run_is_no_longer(tmp_path, kind):
    claim = claim_of(tmp_path, kind)
    short = twin_of(claim).brief(claim.run)
    assert short.kind is kind
    assert short.steps <= claim.run.steps
    assert short.until >= claim.run.until


HALVING = dataclasses.replace(
    RUN_KINDS["gradient-descent"], name="halving", title="halving", rule="b[k+1] = b[k]/2.", costly=False
)


def path_of(start, steps):
    """What b goes through in so many steps, up to the rounding of a norm."""
    length = float(torch.linalg.vector_norm(start)) * (1 - 2.0**-steps)
    return arb(length, 1e-12 * length)


class HalvingMoments(Moments):
    """Three steps, and from each the next one."""

    whole = True

    def _follows(self, step):
        return 0 <= step <= 3

    def _advanced(self, step):
        half = self.environment(step - 1).variables["b"].ball.centre / 2
        return self._environment(Point(step, {"b": half}, {}, path_of(half * 2**step, step)), {})


class HalvingTwin(RunTwin):
    """A kind of run that nothing else has heard of."""

    kind = HALVING

    def waits(self, formula, claim):
        return needs_the_run(formula, claim)

    def begin(self, claim, env):
        self.start(claim, env, None)

    def start(self, claim, env, instance):
        b = env.variables["b"].ball.centre
        points = [Point(k, {"b": b / 2**k}, {}, path_of(b, k)) for k in range(3)]
        env.moments = HalvingMoments(env, points, changing_names(HALVING, env.model, claim.let))
        return Course()


@pytest.mark.parametrize(
    ("conclude", "verdict"),
    [
        ("norm(b[k+1]) <= 0.6*norm(b[k]) for all k", Verdict.HOLDS),
        ("norm(b[k]) >= norm(b[0])/5 for all k", Verdict.HOLDS),
        ("norm(b[k]) >= norm(b[0])/2 for all k", Verdict.REFUTED),
        ("norm(b[3]) <= norm(b[0])/7", Verdict.HOLDS),
        ("path_length[k] <= 0 for all k", Verdict.REFUTED),
        ("path_length[k] <= norm(b[0]) for all k", Verdict.HOLDS),
    ],
)
def test_a_kind_that_nothing_knows_is_judged_by_its_twin(tmp_path, monkeypatch, conclude, verdict):
    path = tmp_path / "claims.yaml"
    text = FILE.format(run="{method: gradient-descent, step: 1/16, steps: 7}", name="Z")
    head, _ = text.split("    given:")
    path.write_text(f"{head}    run: {{method: gradient-descent, step: 1/16, steps: 7}}\n    conclude: {conclude}\n")
    (claim,) = load_suite(str(path)).claims
    monkeypatch.setattr("ntk_deq.verify.twins.twins", lambda: {"halving": HalvingTwin()})
    claim = dataclasses.replace(claim, run=dataclasses.replace(claim.run, kind=HALVING))
    result = judge(claim, Options(search=0, shrink=False))
    assert result.verdict is verdict, result.reason


HOMES = {
    "language/run.py": "the records",
    "verify/runs.py": "the twin of fixed-point",
    "verify/recursion.py": "the twin of recursion, and its record for reports",
    "verify/training/descent.py": "the twin of gradient-descent",
    "verify/training/flow.py": "the twin of gradient-flow",
    "verify/training/continuation.py": "what stands for descent beyond its budget is a flow",
    "dynamics/settings.py": "what a run of descent and of flow is told",
    "dynamics/series.py": "descent keeps its snapshots as it goes",
    "dynamics/iteration.py": "recursions in Python",
}
"""Where a kind of run is meant, and no other: the records, the twins, and what runs one from Python."""


def test_no_kind_is_asked_for_by_name():
    root = Path(ntk_deq.__file__).parent
    records = {name for name, value in vars(run).items() if isinstance(value, RunKind)}
    texts, names = {}, {}
    for path in root.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        here = path.relative_to(root).as_posix()
        texts[here] = {node.value for node in nodes if isinstance(node, ast.Constant)} & RUN_KINDS.keys()
        names[here] = {node.id for node in nodes if isinstance(node, ast.Name)} & records
    assert {place for place, found in texts.items() if found} == {"language/run.py"}, "ask the record, or the twin"
    assert {place for place, found in names.items() if found} == HOMES.keys()
