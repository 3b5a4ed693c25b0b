"""What is not exact: starts, data, step sizes, horizons; and the steps that are not judged at first."""

from __future__ import annotations

import pytest
import torch
from training_harness import FEW, looked_at

from ntk_deq.claims.load import load_suite
from ntk_deq.dynamics.training import gradient_descent
from ntk_deq.report import ending
from ntk_deq.systems import LinearImplicit
from ntk_deq.verify.refine import FLOAT_BITS
from ntk_deq.verify.results import Evidence, Verdict
from ntk_deq.verify.runner import Options, judge

SCALAR = """
suite: t
settings:
  s:
    model: {model}
    sizes: {{N: 1, d: 1, m: 1}}
    domain: {domain}
    data: {{X: {X}, y: "{y}"}}
    init: {init}
claims:
  - id: T
    title: t
    setting: s
    instances: 1
    let: {let}
    assume: {assume}
    run: {{{run}}}
    conclude: {{c: "{conclude}"}}
"""
DESCENT, FLOW = "method: gradient-descent, ", "method: gradient-flow, "
HALF = "{W: ones/2, U: ones, b: ones}"
THREE = {"y": "3*ones", "init": HALF}
SLOW = {"y": "(2 + 1/1024)*ones", "init": HALF}
DEAD = {"model": "implicit-relu", "domain": '{gamma: "[1/2, 1/2]"}', "init": "{W: -1*ones, A: ones, b: ones}"}
LONG = pytest.mark.long
HOLDS, REFUTED, UNDECIDED = Verdict.HOLDS, Verdict.REFUTED, Verdict.UNDECIDED


def judged(
    tmp_path,
    run,
    conclude,
    *,
    X="ones",
    y="ones",
    model="linear-implicit",
    domain="{}",
    init,
    assume="{}",
    let="{}",
    steps=FEW,
    **options,
):
    path = tmp_path / "claims.yaml"
    path.write_text(
        SCALAR.format(
            model=model, domain=domain, X=X, y=y, init=init, assume=assume, let=let, run=run, conclude=conclude
        )
    )
    (claim,) = load_suite(str(path)).claims
    assert hasattr(claim, "run"), claim
    return judge(looked_at(claim, steps), Options(search=0, **options))


def each(tmp_path, run, conclusions, **how):
    """What becomes of several conclusions along one run."""
    (first, *others) = conclusions
    joined = "".join(f'", c{place}: "{text}' for place, text in enumerate(others))
    result = judged(tmp_path, run, first + joined, **how)
    kinds = [(record.true, record.false) for record in result.conclusions]
    known = {(1, 0): HOLDS, (0, 1): REFUTED, (0, 0): UNDECIDED}
    return dict(zip(conclusions, (known[kind] for kind in kinds), strict=True))


ROUNDED = """
suite: t
settings:
  s:
    model: linear-implicit
    sizes: {{N: 3, d: 3, m: 3}}
    domain: {{{rounded}: {domain}}}
    init: {{{init}}}
claims:
  - {{id: T, title: t, setting: s, instances: {instances}, run: {{{run}}}, conclude: {{c: "{conclude}"}}}}
"""
ROWS = {"b": "W: zeros, U: zeros", "U": "W: zeros, b: zeros"}


class TestRoundedStarts:
    """Members of some domains are known up to rounding: what moves no more than that is not certain to have moved."""

    @pytest.mark.parametrize(
        ("rounded", "conclude"),
        [
            ("b", "norm(b[1]) <= 1"),
            ("b", "norm(b[1]) >= 1"),
            ("b", "norm(b[1]) == 1"),
            ("U", "fro(U[1]) <= sqrt(m)"),
            ("U", "fro(U[1]) >= sqrt(m)"),
        ],
    )
    @pytest.mark.parametrize("run", [f"{DESCENT}step: 1/64, steps: 3, beyond: false"])
    def test_what_does_not_move_keeps_its_norm(self, tmp_path, rounded, conclude, run):
        # With U = 0, or with W = b = 0, the gradient in b, or in U, is zero at first.
        result = self.judged(tmp_path, rounded, "unit_rows", ROWS[rounded], run, conclude, instances=3)
        assert result.verdict is not REFUTED

    @pytest.mark.parametrize("run", [f"{DESCENT}step: 1/1024, steps: 20, beyond: false", f"{FLOW}horizon: 1/64"])
    @pytest.mark.parametrize(
        ("rounded", "init"), [("U", 'W: zeros, b: "normal(0,1)"'), ("X", "W: zeros, U: ones, b: ones")]
    )
    def test_true_and_false_along_the_run(self, tmp_path, run, rounded, init):
        at = "k" if "descent" in run else "t"
        true, false = f"L[{at}] <= (1 + 1/10^9)*L[0] for all {at}", f"L[{at}] >= (1 - 1/10^6)*L[0] for all {at}"
        result = self.judged(tmp_path, rounded, "unit_rows", init, run, true)
        assert result.verdict is HOLDS
        assert result.runs[0].error < 1e-6
        assert self.judged(tmp_path, rounded, "unit_rows", init, run, false).verdict is REFUTED

    def test_a_proof_carries_data_known_up_to_rounding(self, tmp_path):
        run = f"{DESCENT}step: 1/64, steps: 20, beyond: false"
        init = "W: zeros, U: ones, b: ones"
        result = self.judged(tmp_path, "X", "unit_rows", init, run, "L[k] <= 2*L[0] for all k")
        assert result.verdict is HOLDS
        assert result.evidence is Evidence.CERTIFIED

    def judged(self, tmp_path, rounded, domain, init, run, conclude, instances=1):
        others = {"X": '"normal(0,1)"', "y": "rademacher"}
        init += "".join(f", {name}: {value}" for name, value in others.items() if name != rounded)
        path = tmp_path / "claims.yaml"
        path.write_text(
            ROUNDED.format(rounded=rounded, domain=domain, init=init, run=run, conclude=conclude, instances=instances)
        )
        (claim,) = load_suite(str(path)).claims
        assert hasattr(claim, "run"), claim
        return judge(looked_at(claim), Options(search=0))


WIDE = "10^11*(norm(b)^2 - b'*b)"  # zero, in a ball of some 1e-5
NARROW = "10^5*(norm(b)^2 - b'*b)"


class TestBalls:
    """A step size or a horizon that is a formula is a ball."""

    THIRD: dict[str, str] = {"y": "3*ones", "init": "{W: ones/2, U: ones/3, b: ones/3}"}  # noqa: RUF012

    def test_a_wide_step_refutes_nothing(self, tmp_path):
        size = "(1/20)*abs(sum(U[0])*2*(sum(yhat[0]) - 3))"  # of the gradient in b
        conclude = f"{size}*(1 - 1/10^8) <= norm(b[1] - b[0]) <= {size}*(1 + 1/10^8)"
        run = f'{DESCENT}step: "1/20 + {WIDE}", steps: 5, beyond: false'
        assert judged(tmp_path, run, conclude, **self.THIRD).verdict is not REFUTED

    def test_a_wide_horizon(self, tmp_path):
        run = f'{FLOW}horizon: "1/10 + {WIDE}", until: 1e-9'
        assert judged(tmp_path, run, "t <= 1/10 for all t", **self.THIRD).verdict is UNDECIDED

    def test_a_narrow_horizon(self, tmp_path):
        run = f'{FLOW}horizon: "1/10 + {NARROW}", until: 1e-9'
        expected = {
            "t <= 1/10 for all t": UNDECIDED,
            "t <= 1/10 + 1/10^7 for all t": HOLDS,
            "t <= 1/10 - 1/10^7 for all t": REFUTED,
        }
        assert each(tmp_path, run, expected, **self.THIRD) == expected


class TestEnds:
    """Where the loss is zero in floats, or the end is known to rounding only, nothing rests on it."""

    NEAR: dict[str, str] = {"X": "ones/10", "y": "0.1*0.1*ones", "init": "{W: zeros, U: ones/10, b: ones}"}  # noqa: RUF012
    TINY: dict[str, str] = {"X": "1e-170*ones", "y": "3e-170*ones", "init": HALF}  # noqa: RUF012

    @pytest.mark.parametrize("case", ["NEAR", "TINY"])
    @pytest.mark.parametrize(
        ("run", "conclude"),
        [
            (f"{DESCENT}step: 1/1000", "k <= 0 for all k"),
            (f"{DESCENT}step: 1", "L[k] <= 0.5^k*L[0] for all k"),
            (f"{FLOW}horizon: 1", "t <= 0 for all t"),
            (FLOW, "t <= 0 for all t"),
        ],
    )
    def test_a_loss_that_is_zero_in_floats_only(self, tmp_path, case, run, conclude):
        result = judged(tmp_path, run, conclude, **getattr(self, case))
        assert result.verdict is UNDECIDED
        assert "whether the loss is zero at the start" in result.reason

    @pytest.mark.parametrize("run", [f"{DESCENT}step: 1/1000", FLOW])
    def test_a_loss_that_is_zero(self, tmp_path, run):
        at = "k" if "descent" in run else "t"
        result = judged(tmp_path, run, f"{at} <= 0 for all {at}", y="2*ones", init=HALF)
        assert result.verdict is HOLDS

    def test_the_end_of_a_flow_is_a_ball(self, tmp_path):
        """It keeps u = b and (1 - w)^2 + u^2 = 5/4; quadrature to 40 digits gives T = 0.28748945768367..."""
        expected = {
            "t <= 0.2874894634 for all t": UNDECIDED,
            "t <= 0.288 for all t": HOLDS,
            "t <= 0.287 for all t": REFUTED,
        }
        assert each(tmp_path, f"{FLOW}until: 1e-6", expected, y="2049/1024*ones", init=HALF) == expected

    @pytest.mark.parametrize(
        ("until", "y"),
        [
            ("1e-6", "3*ones"),
            pytest.param("1e-9", "3*ones", marks=LONG),
            pytest.param("1e-10", "3*ones", marks=LONG),
            ("1e-6", "(2 + 1/8192)*ones"),
        ],
    )
    def test_ends_are_found(self, tmp_path, until, y):
        result = judged(tmp_path, f"{FLOW}until: {until}", "L[t] <= L[0] for all t", y=y, init=HALF)
        assert result.verdict is HOLDS

    def test_named_steps_are_judged_whatever_comes_after(self, tmp_path):
        # Stationary after one step, and a claim about every step would be left open.
        case = {**DEAD, "init": "{W: ones, A: zeros, b: 2*ones}"}
        result = judged(tmp_path, f"{DESCENT}step: 1/2", "sum(b[1]) >= 1.4 and L[0] > 0", **case)
        assert result.verdict is HOLDS

    @pytest.mark.parametrize(
        ("let", "conclude", "verdict"),
        [
            ("{}", "L[0] >= L[5]/100", HOLDS),
            ("{}", "L[0] >= L[6]/100", UNDECIDED),
            ("{D: 'L - L[6]/100'}", "D[0] >= 0", UNDECIDED),  # the definition names the step
        ],
    )
    def test_a_step_that_may_not_exist(self, tmp_path, let, conclude, verdict):
        """The loss at step 5 is `until` times the first one to within its rounding: is there a step 6?"""
        one = torch.ones(1, 1, dtype=torch.float64)
        start = LinearImplicit(W=one / 2, U=one, b=one[0])
        run = gradient_descent(start, one, 3 * one[0], step=1 / 50, steps=5, until=0.0, rtol=1e-15)
        until = run.loss / run.snapshots[0].loss * (1 - 4e-15)
        result = judged(tmp_path, f"{DESCENT}step: 1/50, until: {until!r}", conclude, let=let, **THREE)
        assert result.runs[0].end > 5
        assert result.verdict is verdict

    def test_the_proof_says_where_descent_ends(self, tmp_path):
        run = f"{DESCENT}step: 3/100"
        expected = {"k <= 187 for all k": HOLDS, "k <= 186 for all k": REFUTED}
        assert each(tmp_path, run, expected, **THREE) == expected


class TestRest:
    """Where the gradient is zero for certain, the run goes on for ever where it started."""

    TWENTY, ENDLESS = f"{DESCENT}step: 1/100, steps: 20, beyond: false", f"{DESCENT}step: 1/100"

    @pytest.mark.parametrize(
        ("run", "conclude", "verdict"),
        [
            (f"{DESCENT}step: 1/100", "L[k] == L[0] for all k", HOLDS),
            (f"{DESCENT}step: 1/100", "L[k] <= (1 - 1e-7)^k*L[0] for all k", REFUTED),
            (f"{DESCENT}step: 1/100, steps: 20, beyond: false", "k <= 20 for all k", HOLDS),
            (f"{DESCENT}step: 1/100, steps: 20, beyond: false", "k <= 19 for all k", REFUTED),
            (f"{DESCENT}step: 1/100, steps: 20", "k <= 20 for all k", REFUTED),
            (f"{FLOW}horizon: 10", "L[t] == L[0] and t <= 11 for all t", HOLDS),
            (f"{FLOW}horizon: 10", "t <= 9 for all t", REFUTED),
            (FLOW, "L[t] <= exp(-t/1000)*L[0] for all t", REFUTED),
            (FLOW, "path_length[t] <= 0 for all t", HOLDS),
        ],
    )
    def test_units_that_are_all_off(self, tmp_path, run, conclude, verdict):
        assert judged(tmp_path, run, conclude, **DEAD).verdict is verdict

    @pytest.mark.parametrize(
        ("run", "conclude", "verdict"),
        [
            (TWENTY, "L[k+1] < L[k] for all k with k >= 3", REFUTED),
            (TWENTY, "L[k] < L[k-1] for all k with k >= 4", REFUTED),
            (TWENTY, "L[k+1] == L[k] and k <= 19 for all k", HOLDS),
            (TWENTY, "L[k+1] == L[k] and k <= 18 for all k", REFUTED),
            (TWENTY, "L[k]*(k-7)^2 > 0 for all k", REFUTED),
            (TWENTY, "L[7] == L[0] and L[13] == L[0]", HOLDS),
            (ENDLESS, "L[k] <= L[0]*(k-7)^2 for all k with k >= 1", REFUTED),
            (ENDLESS, "L[123456] == L[0]", HOLDS),
            (ENDLESS, "L[k+1] <= L[k] for all k", HOLDS),
            (ENDLESS, "k <= 2*10^12 for all k", UNDECIDED),
            (FLOW, "t <= 10^13 for all t", UNDECIDED),
        ],
    )
    def test_every_step_is_the_start(self, tmp_path, run, conclude, verdict):
        assert judged(tmp_path, run, conclude, **DEAD).verdict is verdict

    def test_a_run_at_rest_is_told_as_one(self, tmp_path):
        result = judged(tmp_path, f"{DESCENT}step: 1/100", "L[k] <= 2*L[0] for all k", **DEAD)
        assert ending(result.runs[0]) == "at rest, judged to k = 1.0e12: the gradient is zero there"

    def test_nothing_that_is_fed(self, tmp_path):
        run = f"{DESCENT}step: 1/100"
        result = judged(tmp_path, run, "L[k] == L[0] for all k", init="{W: ones/2, U: zeros, b: zeros}")
        assert (result.verdict, result.evidence) == (HOLDS, Evidence.CERTIFIED)

    def test_a_gradient_that_is_lost_to_underflow_is_not_zero(self, tmp_path):
        # U grows like exp(1e-100 t), so that the loss falls long before the horizon.
        init = "{W: zeros, U: 1e-250*ones, b: 1e-250*ones}"
        result = judged(tmp_path, f"{FLOW}horizon: 1e104", "L[t] >= 0.4 for all t", X="1e-100*ones", init=init)
        assert result.verdict is UNDECIDED
        assert "not certain that it is zero" in result.reason

    def test_a_flow_whose_squares_underflow_is_left_open(self, tmp_path):
        case = {"X": "1e-90*ones", "y": "3e-90*ones", "init": HALF}
        result = judged(tmp_path, f"{FLOW}horizon: 1", "L[t] >= L[0]*(1 - 1e-5) for all t", **case)
        assert result.verdict in (UNDECIDED, HOLDS)


class TestStepsInBetween:
    """Steps that the first 48 leave open are judged, where they are few."""

    SHORT = f"{DESCENT}step: 1/20"
    RISING = f"{DESCENT}step: 2.02/24, steps: 200, beyond: false"

    @pytest.mark.parametrize(
        ("case", "run", "conclude", "verdict"),
        [
            # L[141]/L[0] = 2.56e-6, and the run ends at 153.
            (THREE, SHORT, "L[k] <= 1e-6*L[0] for all k with k >= 141", REFUTED),
            (THREE, SHORT, "L[k] <= 3e-6*L[0] for all k with k >= 141", HOLDS),
            # Outputs alternate around 3.
            pytest.param(THREE, SHORT, "sum(yhat[k]) <= 3 for all k with k >= 152", REFUTED, marks=LONG),
            (THREE, SHORT, "sum(yhat[k]) <= 3 or k <= 140 for all k", REFUTED),
            # The loss rises to 1446.47 L[0] at k = 194.
            (SLOW, RISING, "L[k] <= 1420*L[0] for all k", REFUTED),
            pytest.param(SLOW, RISING, "L[k] <= 1450*L[0] for all k", HOLDS, marks=LONG),
        ],
    )
    def test_breaks_between_the_first_steps(self, tmp_path, case, run, conclude, verdict):
        result = judged(tmp_path, run, conclude, **case)
        assert (result.verdict, result.evidence) == (verdict, Evidence.CERTIFIED)

    def test_a_condition_is_no_bound(self, tmp_path):
        run = f"{DESCENT}step: 1/20, steps: 10, beyond: false"
        result = judged(tmp_path, run, "sum(yhat[k]) <= 4 for all k with k >= 5", **THREE)
        assert [curve.text for curve in result.runs[0].curves] == ["sum(yhat[k]) <= 4"]

    def test_a_statement_under_or_is_certain_where_every_step_is_judged(self, tmp_path):
        result = judged(tmp_path, self.SHORT, "sum(yhat[k]) <= 4 or k <= 140 for all k", **THREE)
        assert (result.verdict, result.evidence) == (HOLDS, Evidence.CERTIFIED)


class TestWindows:
    """A bound that has no value at the first steps, and a step that is named, on the flow that stands for descent."""

    WINDOW = f"{DESCENT}step: 1/2000, steps: 20, until: 1e-2"

    @pytest.mark.parametrize(
        "conclude",
        [
            "L[k] <= 1000*L[0]/(k - 2) for all k with k >= 3",
            pytest.param("L[k] <= 1000*L[0]/log(k) for all k with k >= 2", marks=LONG),
            "L[k] <= 40*L[15] for all k",
        ],
    )
    def test_bounds(self, tmp_path, conclude):
        result = judged(tmp_path, self.WINDOW, conclude, **THREE)
        assert result.verdict is HOLDS
        assert [run.role for run in result.runs] == ["window", "continuation"]
        assert result.runs[1].step_tests == 0

    def test_a_geometric_bound_is_tested_step_by_step(self, tmp_path):
        result = judged(tmp_path, self.WINDOW, "L[k] <= (1 - 1/2000)^k*L[0] for all k", precision=FLOAT_BITS, **THREE)
        assert result.runs[1].step_tests == result.runs[1].step_tests_true > 0

    def test_the_error_shown_is_the_one_used(self, tmp_path):
        result = judged(tmp_path, self.WINDOW, "L[k] <= L[0] for all k", precision=FLOAT_BITS, **THREE)
        window, flow = result.runs
        assert window.error < 1e-9
        assert flow.error > 1e-4  # Euler's error


class TestNearASaddle:
    """The rate at the start says nothing of when the loss will fall: after 2 or 3 units of time."""

    SADDLE: dict[str, str] = {"init": "{W: zeros, U: ones/100, b: ones/100}"}  # noqa: RUF012

    @pytest.mark.parametrize(
        "conclude",
        ["L[t] <= (1.01 - (t/5.232)^4)*L[0] for all t", "L[t] >= 0.6*L[0] or L[t] <= 0.3*L[0] for all t"],
    )
    def test_a_flow_is_looked_at_where_its_loss_falls(self, tmp_path, conclude):
        assert judged(tmp_path, f"{FLOW}until: 1e-4", conclude, **self.SADDLE).verdict is REFUTED

    @pytest.mark.long
    def test_so_is_the_one_that_stands_for_descent(self, tmp_path):
        run, conclude = f"{DESCENT}step: 1/200, steps: 20, until: 1e-4", "L[k] <= (1.01 - (k/1046)^4)*L[0] for all k"
        assert judged(tmp_path, run, conclude, **self.SADDLE).verdict is UNDECIDED

    @pytest.mark.parametrize(("conclude", "verdict"), [("k <= 800", UNDECIDED), ("k <= 900", HOLDS)])
    def test_the_last_step_is_known_as_well_as_descent_follows(self, tmp_path, conclude, verdict):
        """It is 803, where the flow ends after 800.3 of its steps."""
        run = f"{DESCENT}step: 1/200, steps: 20, until: 0.5"
        assert judged(tmp_path, run, f"{conclude} for all k", **self.SADDLE).verdict is verdict

    def test_a_flow_leaves_it(self, tmp_path):
        near = {"init": "{W: zeros, U: ones/10^4, b: ones/10^4}"}
        result = judged(tmp_path, f"{FLOW}until: 1e-4", "L[t] <= 1.001*L[0] for all t", **near)
        assert (result.verdict, result.runs[0].status) == (HOLDS, "loss-floor")
