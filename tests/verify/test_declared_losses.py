"""Claims on training are judged on the loss that the model declares: what is true of another factor is refuted."""

import dataclasses
import math

import pytest
from training_harness import FILE

from ntk_deq.claims.claim import Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.language import declaration as registry
from ntk_deq.language.declaration import LINEAR_IMPLICIT, register_model
from ntk_deq.systems import LinearImplicit
from ntk_deq.verify.results import Evidence
from ntk_deq.verify.runner import Options, judge


def declared(name, loss):
    definitions = {**LINEAR_IMPLICIT.definitions, "L": loss}
    return dataclasses.replace(
        LINEAR_IMPLICIT, name=name, definitions=definitions, implementation=f"{__name__}:{name.title()}"
    )


class Twice(LinearImplicit):
    """Twice the usual loss."""

    signature = declared("twice", "norm(yhat - y)^2")


class Mean(LinearImplicit):
    """The usual loss over the number of samples."""

    signature = declared("mean", "norm(yhat - y)^2/(2*N)")


class Logistic(LinearImplicit):
    """A loss that is no square."""

    signature = declared("logistic", "log(1 + exp(-dot(y, yhat)))")


class Signed(LinearImplicit):
    """A loss that is negative."""

    signature = declared("signed", "-1/(1 + norm(yhat - y)^2)")


class Absolute(LinearImplicit):
    """A loss with kinks."""

    signature = declared("absolute", "sum(abs(yhat - y))")


class Decayed(LinearImplicit):
    """A loss of more than predictions and targets."""

    signature = declared("decayed", "norm(yhat - y)^2/2 + fro(W)^2")


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    for cls in (Twice, Mean, Logistic, Signed, Absolute, Decayed):
        register_model(cls.signature)


SINGLE = """
suite: t
settings:
  single:                                # yhat = 2, y = 1
    model: {model}
    sizes: {{N: {N}, d: 1, m: 1}}
    domain: {{W: "[1/2, 1/2][m, m]", U: "[1, 1][m, d]", b: "[1, 1][m]", X: "[1, 1][N, d]", y: "[1, 1][N]"}}
claims:
  - id: T
    setting: single
    instances: 1
    run: {run}
    conclude: {conclude}
"""
STEP = "{method: gradient-descent, step: 1/32, steps: 1, beyond: false}"


def judged(tmp_path, text, **options):
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    (claim,) = load_suite(str(path)).claims
    assert hasattr(claim, "run"), claim
    return judge(claim, Options(**{"search": 0, **options}))


def single(tmp_path, model, conclude, run=STEP, N=1):
    return judged(tmp_path, SINGLE.format(model=model, conclude=conclude, run=run, N=N))


def drawn(tmp_path, model, conclude, run):
    text = FILE.format(setting="linear", given="{}", let="{}", assume="{}", run=run, conclude=conclude)
    return judged(tmp_path, text.replace("model: linear-implicit", f"model: {model}"))


# One step of 1/32 from W = 1/2, U = b = 1, by dL/dW = 4 f r, dL/dU = dL/db = 2 f r with r = 1, L = f r^2/2.
FIRST = {1: "13^2/32^2/2", 2: "1/48^2"}


@pytest.mark.parametrize(("model", "factor", "N"), [("linear-implicit", 1, 1), ("twice", 2, 1), ("mean", 1, 3)])
def test_the_first_step_is_that_of_the_declared_loss(tmp_path, model, factor, N):
    for other, value in FIRST.items():
        result = single(tmp_path, model, f"'{value} - 1e-12 <= L[1] <= {value} + 1e-12'", N=N)
        expected = Verdict.HOLDS if other == factor else Verdict.REFUTED
        assert (result.verdict, result.evidence) == (expected, Evidence.CERTIFIED), result.reason


RATE = "{method: gradient-descent, step: 1/100, steps: 200, until: UNTIL}"


@pytest.mark.parametrize(
    ("model", "conclude", "N", "verdict"),
    [
        ("twice", "L[k+1] <= 87/100*L[k] for all k", 1, Verdict.HOLDS),
        ("linear-implicit", "L[k+1] <= 87/100*L[k] for all k", 1, Verdict.REFUTED),
        ("mean", "L[k+1] >= 1/2*L[k] for all k", 3, Verdict.HOLDS),
        ("linear-implicit", "L[k+1] >= 1/2*L[k] for all k", 3, Verdict.REFUTED),
    ],
)
def test_the_rate_of_descent_is_that_of_the_declared_loss(tmp_path, model, conclude, N, verdict):
    run = RATE.replace("UNTIL", "1e-2" if N == 1 else "1e-1")
    result = single(tmp_path, model, f"'{conclude}'", run=run, N=N)
    assert (result.verdict, result.evidence) == (verdict, Evidence.CERTIFIED), result.reason
    if verdict is Verdict.HOLDS:
        assert {(record.certified, record.status) for record in result.runs} == {(True, "loss-floor")}
        record = result.runs[0]
        known = [rate for rate in record.instantaneous if not math.isnan(rate)]
        assert min(known) * 0.9 < record.measured.value < max(known)


@pytest.mark.parametrize(
    ("model", "N", "verdict"),
    [("twice", 1, Verdict.HOLDS), ("linear-implicit", 1, Verdict.REFUTED), ("mean", 3, Verdict.REFUTED)],
)
def test_the_rate_of_a_flow_is_that_of_the_declared_loss(tmp_path, model, N, verdict):
    run = "{method: gradient-flow, until: 1e-2}"
    result = single(tmp_path, model, "'L[t] <= exp(-18*t)*L[0] for all t'", run=run, N=N)
    assert result.verdict is verdict, result.reason


DESCENT = "{method: gradient-descent, step: 1/10, steps: 40, until: 0.5}"
FLOW = "{method: gradient-flow, until: 0.5}"


@pytest.mark.parametrize(
    ("run", "index", "evidence"), [(DESCENT, "k", Evidence.CERTIFIED), (FLOW, "t", Evidence.NUMERIC)]
)
def test_descent_on_a_loss_of_another_kind_is_proven(tmp_path, run, index, evidence):
    result = drawn(tmp_path, "logistic", f"'L[{index}] <= L[0] for all {index}'", run)
    assert (result.verdict, result.evidence) == (Verdict.HOLDS, evidence), result.reason
    (record,) = result.runs
    assert (record.certified, record.status) == (run is DESCENT, "loss-floor")
    assert "gradient descent" not in result.estimated


def test_a_false_rate_of_such_a_loss_is_refuted(tmp_path):
    result = drawn(tmp_path, "logistic", "'L[k] <= (1/2)^k*L[0] for all k'", DESCENT)
    assert (result.verdict, result.evidence) == (Verdict.REFUTED, Evidence.CERTIFIED), result.reason


def test_a_negative_loss_is_judged_without_a_floor(tmp_path):
    run = DESCENT.replace("40", "10").replace("0.5", "0.5, beyond: false")
    result = drawn(tmp_path, "signed", "'L[k+1] <= L[k] for all k'", run)
    assert (result.verdict, result.evidence) == (Verdict.HOLDS, Evidence.CERTIFIED), result.reason
    assert result.runs[0].status == "steps"


def test_descent_on_a_loss_with_kinks_is_proven_while_no_step_lands_on_one(tmp_path):
    result = single(tmp_path, "absolute", "'L[k] <= L[0] for all k'", run=STEP.replace("steps: 1", "steps: 4"))
    assert (result.verdict, result.evidence) == (Verdict.HOLDS, Evidence.CERTIFIED), result.reason


def test_a_flow_on_a_loss_with_kinks_is_left_open(tmp_path):
    """At the kink the flow slides; what two integrations agree on says nothing there."""
    run = "{method: gradient-flow, horizon: 1}"
    result = single(tmp_path, "absolute", "'L[t] <= L[0] for all t'", run=run)
    assert result.verdict is Verdict.UNDECIDED
    assert "kinks of its own" in result.reason


def test_no_flow_stands_for_descent_on_a_loss_with_kinks(tmp_path):
    run = "{method: gradient-descent, step: 1/100, steps: 20, until: 1e-2}"
    result = single(tmp_path, "absolute", "'L[k] <= 2*L[0] for all k'", run=run)
    assert result.verdict is Verdict.UNDECIDED
    assert {record.role for record in result.runs} == {"window"}


def test_a_gradient_that_is_zero_is_left_open_for_a_loss_of_another_kind(tmp_path):
    """The prediction is zero for every W and U, and so is its gradient; nothing is proven of the run that rests."""
    text = SINGLE.format(model="logistic", conclude="'L[k] <= L[0] for all k'", run=DESCENT, N=1)
    result = judged(tmp_path, text.replace("[1, 1][m]", "[0, 0][m]").replace("[1, 1][m, d]", "[0, 0][m, d]"))
    assert (result.verdict, result.evidence) != (Verdict.HOLDS, Evidence.CERTIFIED)


def test_a_loss_of_the_parameters_is_trained_on(tmp_path):
    path = tmp_path / "claims.yaml"
    path.write_text(SINGLE.format(model="decayed", conclude="'L[k] <= L[0] for all k'", run=STEP, N=1))
    (claim,) = load_suite(str(path)).claims
    result = judge(claim, Options(instances=2, search=0))
    assert result.verdict is Verdict.HOLDS, result.reason
