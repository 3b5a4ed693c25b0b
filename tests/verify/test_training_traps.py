"""Claims on scalar runs whose truth is known by hand, and that a careless judgement gets wrong."""

from __future__ import annotations

import pytest
from training_harness import looked_at

from ntk_deq.claims.load import load_suite
from ntk_deq.verify.results import Evidence, Verdict
from ntk_deq.verify.runner import Options, judge

FILE = """
suite: t
settings:
  s:
    model: {model}
    sizes: {{N: 1, d: 1, m: {m}}}
    domain: {domain}
    init: {init}
claims:
  - {{id: T, title: t, setting: s, instances: {instances}, assume: {assume}, run: {run}, conclude: {{c: "{conclude}"}}}}
"""
PLAIN = "{W: zeros, U: ones, b: zeros, X: ones, y: ones}"  # at first L[k] = (1 - step)^(2k)/2, but for the move of U
SADDLE = '{W: zeros, U: "3/4096*ones", b: "1/4096*ones", X: 1048576*ones, y: ones}'
SYMMETRIC = "{W: zeros, U: 0.3*ones, b: 0.3*ones, X: 3*ones, y: -1.1*ones}"  # U = b for ever, so that yhat >= 0
STEEP = '{W: zeros, U: "1/1024*ones", b: "1/1024*ones", X: 1048576*ones, y: 1.000001*ones}'


def judged(tmp_path, *, init, run, conclude, assume="{}", model="linear-implicit", m=1, domain="{}", instances=1):
    path = tmp_path / "claims.yaml"
    run = "{" + run + "}"
    path.write_text(
        FILE.format(
            init=init, run=run, conclude=conclude, assume=assume, model=model, m=m, domain=domain, instances=instances
        )
    )
    (claim,) = load_suite(str(path)).claims
    assert hasattr(claim, "run"), claim
    return judge(looked_at(claim), Options(search=0))


DESCENT = "method: gradient-descent, "


class TestErrorsThatGrow:
    """A run in floating point that has left the exact one refutes nothing."""

    @pytest.mark.parametrize(
        ("step", "conclude"),
        [
            ("0.05, steps: 170", "norm(U[k] - b[k]) <= 1e-5 for all k"),
            pytest.param("0.01, steps: 1900", "L[k] >= 0.6 for all k", marks=pytest.mark.long),
        ],
    )
    def test_off_an_invariant_line(self, tmp_path, step, conclude):
        run = f"{DESCENT}step: {step}, beyond: false"
        result = judged(tmp_path, init=SYMMETRIC, run=run, conclude=conclude)
        assert result.verdict in (Verdict.UNDECIDED, Verdict.HOLDS)

    def test_where_a_step_is_named(self, tmp_path):
        """Runs that start apart are looked at where this one is, whatever steps it keeps."""
        run = f"{DESCENT}step: 0.05, steps: 170, beyond: false"
        conclude = "L[1] + L[5] >= 0 and norm(U[k] - b[k]) <= 1e-5 for all k"
        result = judged(tmp_path, init=SYMMETRIC, run=run, conclude=conclude)
        assert result.verdict in (Verdict.UNDECIDED, Verdict.HOLDS)

    def test_a_hypothesis_is_not_broken_by_it(self, tmp_path):
        run = f"{DESCENT}step: 0.05, steps: 380, beyond: false"
        assume = '{h: "L[k] >= 0.6 for all k"}'
        result = judged(tmp_path, init=SYMMETRIC, run=run, assume=assume, conclude="L[k] <= L[0] for all k")
        assert result.verdict is not Verdict.VACUOUS

    @pytest.mark.parametrize("conclude", ["L[60] >= 0.499896", "L[60] <= 0.1"])  # L[60] = 0.49999591743...
    def test_chaos(self, tmp_path, conclude):
        run = f'{DESCENT}step: "1638/1073741824", steps: 300, beyond: false'
        assert judged(tmp_path, init=SADDLE, run=run, conclude=conclude).verdict is Verdict.UNDECIDED

    def test_what_breaks_before_counts(self, tmp_path):
        run = f'{DESCENT}step: "1638/1073741824", steps: 300, beyond: false'
        assert judged(tmp_path, init=SADDLE, run=run, conclude="L[k] >= L[0] for all k").verdict is Verdict.REFUTED


class TestFlowInPlaceOfDescent:
    @pytest.mark.parametrize(
        ("step", "steps", "conclude"),
        [
            ("1.05/1048576", 20, "L[k] <= 1e5*L[0] for all k"),
            pytest.param("1.05/1048576", 3, "L[k] <= 100*L[0] for all k", marks=pytest.mark.long),
            pytest.param("1.01/1048576", 20, "L[k] <= 100*L[0] for all k", marks=pytest.mark.long),
        ],
    )
    def test_an_unstable_step_is_not_followed(self, tmp_path, step, steps, conclude):
        run = f"{DESCENT}step: {step}, steps: {steps}, until: 1e-2"
        result = judged(tmp_path, init=STEEP, run=run, conclude=conclude)
        assert result.verdict is Verdict.UNDECIDED
        assert "stands for descent" in result.reason

    def test_a_stable_one_is(self, tmp_path):
        run = f"{DESCENT}step: 0.02, steps: 20"
        result = judged(tmp_path, init=PLAIN, run=run, conclude="L[k] <= 2*L[0] for all k")
        assert result.verdict is Verdict.HOLDS


class TestStepsThereAre:
    """A quantifier ranges over the indices for which each indexed quantity exists."""

    @pytest.mark.parametrize(
        "conclude",
        [
            "k >= 3 and L[k-3] >= 0 for all k",
            "k <= 5 and L[k+5] <= L[0] for all k",
            "L[k] <= L[k-1] and 1/2 <= k for all k",
            "1/k >= 0 and L[k-1] >= 0 for all k",
        ],
    )
    def test_of_a_conjunction(self, tmp_path, conclude):
        run = f"{DESCENT}step: 1/4, steps: 10, beyond: false"
        assert judged(tmp_path, init=PLAIN, run=run, conclude=conclude).verdict is Verdict.HOLDS

    def test_those_that_fail_are_found(self, tmp_path):
        run = f"{DESCENT}step: 1/4, steps: 10, beyond: false"
        result = judged(tmp_path, init=PLAIN, run=run, conclude="k >= 4 and L[k-3] >= 0 for all k")
        assert result.verdict is Verdict.REFUTED

    def test_there_is_none_after_the_end(self, tmp_path):
        # L = 1/2, 1/8, and the run is over; a further step would lead to 0.598.
        init = '{W: zeros, U: "1/1024*ones", b: zeros, X: 1048576*ones, y: ones}'
        run = f"{DESCENT}step: 1.5/1048576, steps: 20, until: 0.3"
        assert judged(tmp_path, init=init, run=run, conclude="L[k+1] <= L[0] for all k").verdict is Verdict.HOLDS
        run = f"{DESCENT}step: 1.9/1048576, steps: 1, beyond: false"
        assert judged(tmp_path, init=init, run=run, conclude="L[k+1] <= 1/2 for all k").verdict is Verdict.HOLDS


class TestStepsWithoutAValue:
    RUN = f"{DESCENT}step: 1/4, steps: 10, beyond: false"

    def test_they_do_not_hide_one_that_breaks(self, tmp_path):
        result = judged(tmp_path, init=PLAIN, run=self.RUN, conclude="1/path_length[k] <= 1/10 for all k")
        assert result.verdict is Verdict.REFUTED  # at k = 1, where the path is 1/4 long; at k = 0 there is no quotient

    def test_they_leave_a_claim_without_instances_where_none_does(self, tmp_path):
        result = judged(tmp_path, init=PLAIN, run=self.RUN, conclude="1/path_length[k] <= 10 for all k")
        assert result.verdict is Verdict.VACUOUS


class TestEnds:
    @pytest.mark.parametrize("conclude", ["L[t] >= 0.0999*L[0] for all t", "t <= 0.73 for all t"])
    def test_a_flow_ends_at_the_floor(self, tmp_path, conclude):
        run = "method: gradient-flow, until: 0.1"  # at t = 0.7233897; the integrator's step goes on to 0.7349
        assert judged(tmp_path, init=PLAIN, run=run, conclude=conclude).verdict is Verdict.HOLDS

    def test_and_not_before(self, tmp_path):
        run = "method: gradient-flow, until: 0.1"
        assert judged(tmp_path, init=PLAIN, run=run, conclude="t <= 0.7233 for all t").verdict is Verdict.REFUTED

    @pytest.mark.parametrize(("step", "until"), [("0.7", "0.09"), ("0.799999999999999999", "0.04")])
    def test_rounding_does_not_decide_on_the_last_step(self, tmp_path, step, until):
        run = f"{DESCENT}step: {step}, until: {until}, steps: 50"
        for conclude in ("k <= 1 for all k", "L[k] <= L[0] for all k"):
            result = judged(tmp_path, init=PLAIN, run=run, conclude=conclude)
            assert result.verdict is Verdict.UNDECIDED
            assert "whether the run ends at k = 1 is not certain" in result.reason

    def test_an_end_that_is_certain_stays_certified(self, tmp_path):
        run = f"{DESCENT}step: 0.7, until: 0.1, steps: 50"
        result = judged(tmp_path, init=PLAIN, run=run, conclude="k <= 1 for all k")
        assert (result.verdict, result.evidence) == (Verdict.HOLDS, Evidence.CERTIFIED)
