"""Claims on training runs, judged end to end on small instances: verdict, evidence, what the record says."""

import math
from dataclasses import replace

import pytest
import torch
from training_harness import DESCENT, FILE, FLOW, judged

from ntk_deq import cli as exit_codes
from ntk_deq.claims.claim import Verdict
from ntk_deq.claims.load import load_suite
from ntk_deq.cli.main import main
from ntk_deq.dynamics import gradient_descent
from ntk_deq.dynamics.record import RunStatus
from ntk_deq.systems import LinearImplicit
from ntk_deq.verify.refine import FLOAT_BITS
from ntk_deq.verify.results import Evidence
from ntk_deq.verify.runner import Options, judge
from ntk_deq.verify.training import Trainee
from ntk_deq.verify.training import descent as training_run
from ntk_deq.verify.training.trajectory import growth_of_errors

torch.set_num_threads(1)

SEARCHED = """
suite: searched
settings:
  any:
    model: linear-implicit
    sizes: {N: 1, d: 1, m: 1}
    domain: {W: "(1/4, 1/2)[m, m]", U: "(1/2, 1)[m, d]", b: "(1/2, 1)[m]", X: "(1/2, 1)[N, d]", y: "(-100, 100)[N]"}
claims:
  - id: "false"
    setting: any
    run: {method: gradient-descent, step: 1/1000, steps: 20, beyond: false}
    conclude: "norm(b[k] - b[0]) <= 1 for all k"
  - id: "true"
    setting: any
    run: {method: gradient-descent, step: 1/1000, steps: 20, beyond: false}
    conclude: "path_length[k] >= norm(b[k] - b[0]) for all k"
"""


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


@pytest.mark.parametrize(
    ("bound", "verdict"),
    [
        ("(1e308/100)^k*L[0]", Verdict.HOLDS),
        ("1e308*(1e-320)^k*L[0]", Verdict.REFUTED),
        ("(1/2)^k*1e308*10*L[0]", Verdict.HOLDS),
    ],
)
def test_a_bound_beyond_float64_has_no_rate_or_a_finite_one(tmp_path, bound, verdict):
    result = judged(tmp_path, conclude=f"'L[k] <= {bound} for all k'")
    assert result.verdict is verdict, result.reason
    (record,) = result.runs
    assert record.predicted is None or 0 < record.predicted.value < math.inf


@pytest.mark.parametrize(
    ("value", "what"), [("1e-400", "small"), ("1e400", "large"), ("2^-2000", "small"), ("2^2000", "large")]
)
@pytest.mark.parametrize("method", ["descent", "flow"])
def test_a_step_or_horizon_beyond_float64_leaves_the_claim_open(tmp_path, method, value, what):
    step = f"{{method: gradient-descent, step: {value}, steps: 4}}"
    horizon = f"{{method: gradient-flow, horizon: {value}}}"
    run, index = (step, "k") if method == "descent" else (horizon, "t")
    result = judged(tmp_path, run=run, conclude=f"'L[{index}] <= L[0] for all {index}'")
    assert result.verdict is Verdict.UNDECIDED
    assert f"`{value}` is too {what} for float64" in result.reason


def test_gradient_flow_and_its_rate_equation(tmp_path):
    conclude = """{falls: 'L[t] <= L[0] for all t', length: 'fro(b[t] - b[0]) <= path_length[t] + 1e-6 for all t'}"""
    result = judged(tmp_path, run=FLOW, conclude=conclude)
    assert (result.verdict, result.evidence) == (Verdict.HOLDS, Evidence.NUMERIC), result.reason
    assert "gradient flow" in result.estimated
    (record,) = result.runs
    assert record.method == "gradient-flow"
    assert 0 < record.covered < record.intervals  # from the start the loss may fall by less than its own error
    assert record.loss[-1] == pytest.approx(1e-4 * record.loss[0], rel=1e-8)  # where the flow ends


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
    assert further.loss[-1] == pytest.approx(1e-3 * further.loss[0], rel=1e-8)


def test_what_the_continuation_breaks_is_undecided_not_refuted(tmp_path):
    run = "{method: gradient-descent, step: 1/1000000, steps: 40, until: 0.3}"
    result = judged(tmp_path, run=run, conclude="'L[k] >= L[0]/2 for all k'")
    assert result.verdict is Verdict.UNDECIDED
    assert "steps taken do not break it; beyond them, on the gradient flow that stands for descent" in result.reason


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


@pytest.mark.parametrize(
    ("run", "conclude"),
    [
        (DESCENT, "'L[k] <= (1/10)^k*L[0] for all k'"),
        pytest.param(FLOW, "'L[t] <= exp(-1000*t)*L[0] for all t'", marks=pytest.mark.long),
        ("{method: gradient-flow, until: 1e-9, horizon: 1/8}", "'norm(b[t]-b[0]) <= 0 for all t'"),
    ],
)
def test_a_counterexample_on_a_run_is_replayed_to_the_last_bit(tmp_path, capsys, run, conclude):
    result = judged(tmp_path, run=run, conclude=conclude, out=str(tmp_path))
    assert result.verdict is Verdict.REFUTED
    assert result.counterexample is not None
    assert result.counterexample.step
    assert result.replay is not None
    assert main(["replay", result.replay, str(tmp_path / "claims.yaml")]) == exit_codes.EXIT_OK
    assert "bit for bit" in capsys.readouterr().out.replace("\n", " ")


def test_a_flow_that_spends_its_steps_holds_nothing(tmp_path):
    run = "{method: gradient-flow, until: 1e-4, steps: 5}"
    result = judged(tmp_path, run=run, conclude="'L[t] <= L[0] for all t'")
    assert result.verdict is Verdict.UNDECIDED
    assert "the run stopped at t = " in result.reason
    assert result.runs[0].status == "steps"


def test_a_horizon_that_the_claim_gives_is_an_end(tmp_path):
    run = "{method: gradient-flow, until: 1e-9, horizon: 1/10}"
    result = judged(tmp_path, run=run, conclude="'L[t] <= L[0] for all t'")
    assert (result.verdict, result.runs[0].status) == (Verdict.HOLDS, "horizon")


@pytest.mark.parametrize("run", [FLOW, "{method: gradient-descent, step: 1/20, steps: 3}"])
@pytest.mark.parametrize(("bound", "verdict"), [("2*L[0]", Verdict.HOLDS), ("L[0]/2", Verdict.REFUTED)])
def test_a_run_that_rests(tmp_path, run, bound, verdict):
    """No unit is on: the gradient is zero, the loss is not, and nothing says when the run would end."""
    dead = FILE.replace('W: "normal(0, 1)"', 'W: "0*ones"').replace('b: "normal(0, 1/6)"', 'b: "0*ones"')
    index = "t" if run is FLOW else "k"
    parts = {"setting": "relu", "given": "{}", "let": "{}", "assume": "{}", "run": run}
    path = tmp_path / "claims.yaml"
    path.write_text(dead.format(**parts, conclude=f"'L[{index}] <= {bound} for all {index} with {index} >= 1'"))
    (claim,) = load_suite(str(path)).claims
    result = judge(claim, Options())
    assert result.verdict is verdict
    assert [record.status for record in result.runs] == ["stationary"]
    assert "for certain" in result.runs[0].reason


def test_a_rate_is_predicted_by_a_bound_on_the_loss_alone(tmp_path):
    for bound, predicted in (("(1 - 1/100)^k*L[0]", True), ("L[0]", False), ("2*L[0]", False)):
        result = judged(tmp_path, conclude=f"'L[k] <= {bound} for all k'")
        assert (result.runs[0].predicted is not None) is predicted
    result = judged(tmp_path, conclude="'L[k+1] <= L[k] for all k'")
    assert result.runs[0].predicted is None


def test_a_run_is_shown_beyond_where_the_claim_breaks(tmp_path):
    result = judged(tmp_path, conclude="'norm(b[k] - b[0]) <= 1/1000 for all k'")
    assert result.verdict is Verdict.REFUTED
    (curve,) = result.runs[0].curves
    assert all(math.isfinite(value) for value in (*curve.low, *curve.high, *curve.bound))


def test_the_search_moves_a_claim_on_training(tmp_path):
    """Broken by a large target alone, which the few instances of the ladder do not have."""
    path = tmp_path / "claims.yaml"
    path.write_text(SEARCHED)
    false, true = load_suite(str(path)).claims
    for search, verdict in ((0, Verdict.HOLDS), (200, Verdict.REFUTED)):
        result = judge(false, Options(search=search, instances=2))
        assert result.verdict is verdict, result.reason
    result = judge(true, Options(search=20, instances=2))
    assert (result.verdict, result.searched > 0) == (Verdict.HOLDS, True)


def test_times_that_fall_on_one_step_are_one_point(tmp_path):
    run = "{method: gradient-descent, step: 1/20, steps: 2, until: 1e-4}"
    result = judged(tmp_path, run=run, conclude="'L[k] <= 2*L[0] for all k'", precision=FLOAT_BITS)
    further = result.runs[-1]
    assert further.role == "continuation"
    assert len(further.at) == len(further.loss) == len(further.path_length) == further.intervals + 1
    assert list(further.at) == sorted(set(further.at))


def test_the_growth_of_errors_is_measured():
    one = torch.ones(1, 1, dtype=torch.float64)
    model = LinearImplicit(W=0 * one, U=one, b=one[0])
    for target, step, grows in ((-2.0, 0.05, False), (1.2, 0.7, True)):
        y = target * one[0]
        run = gradient_descent(model, one, y, step=step, steps=30, until=0.0, snapshots=48, rtol=1e-12)
        trainee = Trainee(model, one, y, dict.fromkeys(model.parameters(), 0.0), (0.0, 0.0))
        growth = growth_of_errors(run, trainee, lambda: None)
        assert len(growth) == len(run.snapshots)
        assert growth == sorted(growth)
        assert (growth[-1] > 10) is grows


def test_an_interrupt_in_a_run_ends_the_judgement(tmp_path, monkeypatch):
    monkeypatch.setattr(
        training_run,
        "gradient_descent",
        lambda *a, **k: replace(gradient_descent(*a, **k), status=RunStatus.INTERRUPTED),
    )
    with pytest.raises(KeyboardInterrupt):
        judged(tmp_path, conclude="'L[k] <= L[0] for all k'")
