"""What a claim on a training run says of every step: judged steps, those between them, steps that it names."""

import pytest
import torch
from training_harness import judged

from ntk_deq.claims.claim import Verdict
from ntk_deq.verify.refine import FLOAT_BITS
from ntk_deq.verify.results import Evidence

torch.set_num_threads(1)

SHORT = "{method: gradient-descent, step: 1/2000, steps: 100, beyond: false}"


def test_a_hypothesis_about_every_step_serves_what_holds_and_refutes_nothing(tmp_path):
    bounded = "{bounded: 'norm(b[k]) <= 100 for all k'}"
    result = judged(tmp_path, assume=bounded, conclude="'L[k] <= L[0] for all k'")
    assert (result.verdict, result.evidence, result.met) == (Verdict.HOLDS, Evidence.NUMERIC, result.instances)
    assert "'bounded' must hold at every step" in result.estimated["hypothesis about every step"]
    conclude = "'L[k] <= L[0]/1000 for all k'"
    result = judged(tmp_path, assume=bounded, conclude=conclude)
    assert result.verdict is Verdict.UNDECIDED
    assert "'bounded' must hold at every step, and is known at the judged ones only" in result.reason
    result = judged(tmp_path, assume="{bounded: 'norm(b[k]) <= 1/1000 for all k'}", conclude=conclude)
    assert result.verdict is Verdict.VACUOUS


def test_the_denial_of_every_step_is_not_refuted_by_the_judged_ones(tmp_path):
    run = "{method: gradient-descent, step: 1/20, steps: 20, beyond: false}"
    result = judged(tmp_path, run=run, conclude="'not (L[k] <= L[0] for all k)'")
    assert result.verdict is Verdict.UNDECIDED
    assert "is denied" in result.reason
    result = judged(tmp_path, run=run, conclude="'not (L[k] <= L[0]/2 for all k)'")
    assert result.verdict is Verdict.HOLDS


def test_two_names_for_one_step_tie_for_certain(tmp_path):
    said = "2*norm(b[t]) {} 2*norm(b[s]) for all s, t with s == t"
    conclude = f"{{a: '{said.format('==')}', b: '{said.format('>=')}', c: '{said.format('!=')}'}}"
    result = judged(tmp_path, run="{method: gradient-flow, until: 0.1}", conclude=conclude)
    assert result.verdict is Verdict.REFUTED
    assert [(record.true, record.false) for record in result.conclusions] == [(1, 0), (1, 0), (0, 1)]
    assert judged(tmp_path, conclude="'L[k] < L[0] for all k'").verdict is Verdict.REFUTED  # not at k = 0
    both = "'L[k] <= L[j] and 2*norm(W[j] - W[k]) == 2*norm(W[j] - W[k]) for all j, k with j <= k'"
    assert judged(tmp_path, conclude=both).verdict is Verdict.HOLDS


def test_a_claim_about_the_steps_taken_alone(tmp_path):
    run = "{method: gradient-descent, step: 1/20, steps: 5, beyond: false}"
    result = judged(tmp_path, run=run, conclude="'L[k] <= L[0] for all k'")
    assert (result.verdict, [record.role for record in result.runs]) == (Verdict.HOLDS, ["run"])
    run = "{method: gradient-descent, step: 1/200, steps: 5, until: 0.5}"
    result = judged(tmp_path, run=run, conclude="L[3] <= L[0]")
    assert (result.verdict, [record.role for record in result.runs]) == (Verdict.HOLDS, ["run"])
    result = judged(tmp_path, run=run, conclude="'L[k] <= L[0] for all k'", precision=FLOAT_BITS)
    assert [record.role for record in result.runs] == ["window", "continuation"]


@pytest.fixture
def first_steps_only(monkeypatch):
    """No more steps are judged than the first 48."""
    monkeypatch.setattr("ntk_deq.verify.training.descent.MOST_FURTHER", 0)


@pytest.mark.long
@pytest.mark.usefixtures("first_steps_only")
def test_a_statement_about_the_index_is_looked_at_at_every_step(tmp_path):
    run = "{method: gradient-descent, step: 1/200, steps: 2000, until: 1e-2}"
    for conclude, verdict in (
        ("'(k - 97)^2 > 1/2 and L[k] <= L[0] for all k'", Verdict.REFUTED),
        ("'(k - 97)^2 >= 0 and L[k] <= L[0] for all k'", Verdict.HOLDS),
    ):
        result = judged(tmp_path, run=run, conclude=conclude)
        assert result.runs[0].end > 97
        assert 97 not in result.runs[0].at
        assert result.verdict is verdict
    for conclude, verdict in (
        ("'(t - 12345/10^6)^2 > 0 for all t'", Verdict.UNDECIDED),
        ("'(t - 12345/10^6)^2 > -1 for all t'", Verdict.HOLDS),
        ("'t <= 1/10 for all t'", Verdict.UNDECIDED),  # an equality at the end, of which 1/10 is no float
        ("'t < 1/10 for all t'", Verdict.UNDECIDED),
        ("'t <= 1/9 for all t'", Verdict.HOLDS),
        ("'t <= 1/11 for all t'", Verdict.REFUTED),
    ):
        result = judged(tmp_path, run="{method: gradient-flow, until: 1e-9, horizon: 1/10}", conclude=conclude)
        assert result.verdict is verdict, (conclude, result.reason)


@pytest.mark.usefixtures("first_steps_only")
def test_what_holds_at_the_judged_steps_alone_is_not_certified(tmp_path):
    run = "{method: gradient-descent, step: 1/2000, steps: 3000, until: 9e-1}"
    result = judged(tmp_path, run=run, conclude="'L[k+1] <= L[k] for all k'")
    assert (result.verdict, result.evidence) == (Verdict.HOLDS, Evidence.NUMERIC)
    assert "certain throughout" in result.estimated["steps between the judged ones"]


@pytest.mark.parametrize("parts", ["assume", "conclude", "let"])
def test_a_claim_may_name_steps(tmp_path, parts):
    """Steps that are not among the judged ones, before and after the end of the run."""
    run = "{method: gradient-descent, step: 1/100, steps: 2000, until: 0.1}"
    for step, known in ((97, True), (1999, False)):
        given = {
            "assume": {"assume": f"{{h: 'L[{step}] <= L[0]'}}", "conclude": "'L[k] <= L[0] for all k'"},
            "conclude": {"conclude": f"{{a: 'L[{step}] <= L[0]', b: 'L[k] <= L[0] for all k'}}"},
            "let": {"let": f"{{D: 'L - L[{step}]'}}", "conclude": "'D[0] >= 0'"},
        }[parts]
        result = judged(tmp_path, run=run, **given)
        assert result.verdict is (Verdict.HOLDS if known else Verdict.UNDECIDED), result.reason
        if not known:
            assert "there is no step 1,999 to compare: the run ended at" in str(result)


def test_two_indices_beyond_the_window(tmp_path):
    run = "{method: gradient-descent, step: 1/1000, steps: 40, until: 0.5}"
    result = judged(tmp_path, run=run, conclude="'L[k] <= 2*L[j] for all j, k with j <= k'")
    assert [record.role for record in result.runs] == ["window", "continuation"]
    assert result.verdict in (Verdict.HOLDS, Verdict.UNDECIDED)


@pytest.mark.usefixtures("first_steps_only")
def test_steps_38_and_39_are_not_judged(tmp_path):
    result = judged(tmp_path, run=SHORT, conclude="'L[k] <= L[0] for all k'")
    assert not {38, 39} & set(result.runs[0].at)


@pytest.mark.parametrize(
    ("conclude", "verdicts"),
    [
        ("'(k <= 5 for all k) or L[0] >= 0'", {Verdict.HOLDS}),
        ("'not (k <= 5 for all k)'", {Verdict.HOLDS}),
        ("'(k - 38)^2 > 0 for all k with k >= 1'", {Verdict.REFUTED}),
        ("'(k - 38)^2 > 0 for all k with k >= 39'", {Verdict.HOLDS}),
        ("'(k <= j + 1000 for all k) for all j'", {Verdict.HOLDS}),
        ("'1/((k - 38)*(k - 39))^2 >= 0 for all k'", {Verdict.UNDECIDED, Verdict.VACUOUS}),
        ("{wrong: 'L[k] > L[0] + 1 for all k', gap: '1/((k - 38)*(k - 39))^2 >= 0 for all k'}", {Verdict.REFUTED}),
        ("{late: 'k*L[190] <= 100 for all k', wrong: 'L[0] > 1000'}", {Verdict.REFUTED}),
    ],
)
@pytest.mark.parametrize(
    "further", [pytest.param(True, marks=pytest.mark.long), False], ids=["all steps", "the first steps only"]
)
def test_what_a_breaker_said_of_the_index(tmp_path, request, conclude, verdicts, further):
    if not further:
        request.getfixturevalue("first_steps_only")
    result = judged(tmp_path, run=SHORT, conclude=conclude)
    assert result.verdict in verdicts, result.reason


@pytest.mark.parametrize(
    "false",
    [
        "(k - 38)^2*(k - 39)^2 > min(L[k+1], 0) for all k",
        "(k - 38)^2*(k - 39)^2*L[k+1] > 0 for all k",
        "(j - 38)^2*(j - 39)^2*(k - 38)^2*(k - 39)^2 > 0 for all j, k",
        "(k - j - 37)^2 > 0 for all k, j",
        "((k - 38)^2 > 0 or L[k] < 0) for all k",
    ],
)
@pytest.mark.parametrize(
    "further", [pytest.param(True, marks=pytest.mark.long), False], ids=["all steps", "the first steps only"]
)
def test_nothing_false_between_judged_steps_is_certified(tmp_path, request, false, further):
    if not further:
        request.getfixturevalue("first_steps_only")
    result = judged(tmp_path, run=SHORT, conclude=f"{{a: 'L[k] >= 0 for all k', b: '{false}'}}")
    assert (result.verdict, result.evidence) != (Verdict.HOLDS, Evidence.CERTIFIED)


@pytest.mark.long
def test_a_statement_under_let_is_treated_as_if_written_out(tmp_path):
    let = "{ok: '(k - 38)^2*(k - 39)^2 > 0 for all k'}"
    assert judged(tmp_path, run=SHORT, let=let, conclude="{h: ok}").verdict is Verdict.REFUTED
    result = judged(tmp_path, run=SHORT, let=let, assume="{h: ok}", conclude="'L[k] > L[0] for all k'")
    assert result.verdict is Verdict.UNDECIDED
    let = "{ok: 'L[k] <= L[0] for all k'}"
    run = "{method: gradient-descent, step: 1/2000, steps: 10}"
    result = judged(tmp_path, run=run, let=let, conclude="{h: ok}")
    assert [record.role for record in result.runs] == ["window", "continuation"]


def test_statements_about_the_index_beyond_the_window(tmp_path):
    run = "{method: gradient-descent, step: 1/2000, steps: 20, until: 0.5}"
    conclude = "{a: '(k - 101)^2 > 0 for all k', b: '(k - 101)^2 >= 0 for all k'}"
    result = judged(tmp_path, run=run, conclude=conclude)
    assert result.runs[-1].end > 101
    assert result.verdict is Verdict.UNDECIDED
    assert [(record.true, record.false) for record in result.conclusions] == [(0, 0), (1, 0)]
    assert "the 20 steps taken do not break it; beyond them" in result.reason
