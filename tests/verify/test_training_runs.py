"""Claims on training runs, judged end to end on small instances: verdict, evidence, what the record says."""

import math

import pytest
import torch

from ntk_deq.claims.claim import Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.cli import exit_codes
from ntk_deq.cli.main import main
from ntk_deq.verify.results import Evidence
from ntk_deq.verify.runner import Options, judge

torch.set_num_threads(1)

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
    run: {run}
    conclude: {conclude}
"""
DESCENT = "{method: gradient-descent, step: 1/20, steps: 60, until: 1e-4}"
FLOW = "{method: gradient-flow, until: 1e-4}"


def judged(tmp_path, *, setting="linear", given="{}", let="{}", run=DESCENT, conclude, **options):
    path = tmp_path / "claims.yaml"
    path.write_text(FILE.format(setting=setting, given=given, let=let, run=run, conclude=conclude))
    (claim,) = load_suite(str(path)).claims
    assert hasattr(claim, "run"), claim
    return judge(claim, Options(**options))


def test_a_window_of_descent_is_certified(tmp_path):
    result = judged(
        tmp_path, conclude="{falls: 'L[k] <= L[0] for all k', b: 'norm(b[k]) <= norm(b[0]) + 10 for all k'}"
    )
    assert (result.verdict, result.evidence) == (Verdict.HOLDS, Evidence.CERTIFIED), result.reason
    (record,) = result.runs
    assert record.certified
    assert record.role == "run"
    assert record.status == "loss-floor"
    assert record.error < 1e-12
    assert record.covered == record.intervals > 10
    assert record.at[0] == 0
    assert record.at[-1] == record.steps
    assert list(record.loss) == sorted(record.loss, reverse=True)
    assert record.measured is not None
    assert record.measured.low <= record.measured.value <= record.measured.high
    assert all(math.isfinite(v) for v in record.displacement["b"])


def test_a_false_rate_is_refuted_with_certainty(tmp_path):
    result = judged(tmp_path, conclude="'L[k] <= (1/10)^k*L[0] for all k'")
    assert (result.verdict, result.evidence) == (Verdict.REFUTED, Evidence.CERTIFIED)
    assert result.counterexample.step == {"k": 1}
    assert result.counterexample.margin.hi < 0
    (record,) = result.runs
    assert record.predicted.value == pytest.approx(math.log(10), rel=1e-9)


def test_the_stated_rate_and_the_kernels(tmp_path):
    conclude = "{rate: 'L[k] <= (1 - 1/10000)^k*L[0] for all k', kernel: 'lambda_min(H[k]) >= 0 for all k'}"
    result = judged(tmp_path, let="{H: Z*Z'}", conclude=conclude)
    assert result.verdict is Verdict.HOLDS, result.reason
    (record,) = result.runs
    assert record.predicted.value == pytest.approx(-math.log1p(-1e-4), rel=1e-6)
    assert record.predicted_steps == pytest.approx(math.log(1e4) / record.predicted.value)
    known = [rate for rate in record.instantaneous if not math.isnan(rate)]
    assert known
    # Along the run the kernel's rate is what the loss does, up to the size of the step.
    assert min(known) / 2 < record.measured.value < 2 * max(known)


def test_gradient_flow_and_its_rate_equation(tmp_path):
    conclude = """{falls: 'L[t] <= L[0] for all t', length: 'fro(b[t] - b[0]) <= path_length[t] + 1e-6 for all t'}"""
    result = judged(tmp_path, run=FLOW, conclude=conclude)
    assert (result.verdict, result.evidence) == (Verdict.HOLDS, Evidence.NUMERIC), result.reason
    assert "gradient flow" in result.estimated
    (record,) = result.runs
    assert record.method == "gradient-flow"
    assert 0 < record.covered < record.intervals  # from the start the loss may fall by less than its own error
    assert record.loss[-1] <= 1e-4 * record.loss[0]


def test_a_relu_network_along_both_runs(tmp_path):
    for run in (DESCENT, FLOW):
        index = "k" if run is DESCENT else "t"
        result = judged(tmp_path, setting="relu", run=run, conclude=f"'L[{index}] <= L[0] for all {index}'")
        assert result.verdict is Verdict.HOLDS, result.reason


def test_small_steps_are_continued_by_the_flow(tmp_path):
    run = "{method: gradient-descent, step: 1/1000000, steps: 40, until: 1e-3}"
    result = judged(tmp_path, run=run, conclude="'L[k] <= (1 - 1e-9)^k*L[0] for all k'")
    assert (result.verdict, result.evidence) == (Verdict.HOLDS, Evidence.NUMERIC), result.reason
    window, further = result.runs
    assert (window.role, window.certified, window.steps) == ("window", True, 40)
    assert further.role == "continuation"
    assert further.end > 100_000
    assert further.step == 1e-6
    assert further.step_tests == further.step_tests_true > 10
    assert further.loss[-1] <= 1e-3 * further.loss[0]


def test_what_the_continuation_breaks_is_undecided_not_refuted(tmp_path):
    run = "{method: gradient-descent, step: 1/1000000, steps: 40, until: 1e-3}"
    result = judged(tmp_path, run=run, conclude="'L[k] >= L[0]/2 for all k'")
    assert result.verdict is Verdict.UNDECIDED
    assert "continues the window" in result.reason


def test_a_step_after_each_judged_one(tmp_path):
    result = judged(
        tmp_path, conclude="{step: 'norm(b[k+1] - b[k]) <= 1 for all k', falls: 'L[k+1] <= L[k] for all k'}"
    )
    assert result.verdict is Verdict.HOLDS, result.reason


def test_a_run_that_diverges_breaks_what_it_claims(tmp_path):
    run = "{method: gradient-descent, step: 1, steps: 50}"
    result = judged(tmp_path, run=run, conclude="'L[k] <= L[0] for all k'")
    assert (result.verdict, result.evidence) == (Verdict.REFUTED, Evidence.CERTIFIED), result.reason
    assert result.runs[0].status in ("diverged", "well-posedness-lost")


def test_well_posedness_lost_at_once(tmp_path):
    run = "{method: gradient-descent, step: 1000, steps: 50}"
    result = judged(tmp_path, run=run, conclude="'L[k] <= 1000*L[0] + 1000 for all k'")
    assert result.verdict is Verdict.UNDECIDED
    assert "the run stopped at" in result.reason
    assert result.runs[0].status == "well-posedness-lost"
    # The parameters that have no equilibrium are known all the same.
    result = judged(tmp_path, run=run, conclude="'norm(W[k]) < 1 for all k'")
    assert (result.verdict, result.counterexample.step) == (Verdict.REFUTED, {"k": 1})


@pytest.mark.parametrize("given", ["{eta: '[-2, -1]'}", "{eta: '[0, 0]'}"])
def test_a_step_that_is_not_positive_is_no_run(tmp_path, given):
    run = "{method: gradient-descent, step: eta, steps: 50}"
    result = judged(tmp_path, given=given, run=run, conclude="'L[k] <= L[0] for all k'")
    assert result.verdict is Verdict.VACUOUS
    assert "defined" in result.reason
    assert result.runs == ()


def test_the_time_limit_leaves_the_claim_undecided(tmp_path):
    run = "{method: gradient-descent, step: 1/1000000000, steps: 1000000, until: 1e-9}"
    result = judged(tmp_path, run=run, conclude="'L[k] <= L[0] for all k'", time_limit=0.5)
    assert result.verdict is Verdict.UNDECIDED
    assert "time limit" in result.reason


def test_the_same_verdict_twice(tmp_path):
    conclude = "'L[k] <= (1 - 1/10000)^k*L[0] for all k'"
    first, second = (judged(tmp_path, conclude=conclude) for _ in range(2))
    assert first.worst_margin == second.worst_margin
    assert first.runs[0].loss == second.runs[0].loss


def test_a_counterexample_on_a_run_is_replayed_to_the_last_bit(tmp_path, capsys):
    result = judged(tmp_path, conclude="'L[k] <= (1/10)^k*L[0] for all k'", out=str(tmp_path))
    assert result.replay is not None
    assert main(["replay", result.replay, str(tmp_path / "claims.yaml")]) == exit_codes.EXIT_OK
    assert "bit for bit" in capsys.readouterr().out.replace("\n", " ")
