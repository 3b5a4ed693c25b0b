"""False training claims, broken in a small place only, next to true ones that differ from them by a few per cent."""

from __future__ import annotations

from functools import partial

import pytest
from seeds import seeds
from training_harness import looked_at

from ntk_deq.claims.load import load_suite
from ntk_deq.falsify import distinct_instances
from ntk_deq.falsify.search import float_bounds
from ntk_deq.verify.results import Evidence, Verdict
from ntk_deq.verify.runner import Options, judge, planned
from ntk_deq.verify.training.sweep import budget_of, sweep, telling_values
from ntk_deq.verify.twins import twin_of

FILE = """
suite: t
settings:
  unit:                                  # yhat = b U/(1 - W), at first 1
    model: linear-implicit
    sizes: {{N: 1, d: 1, m: 1}}
    data: {{X: ones, y: {y}}}
    init: {{W: zeros, U: ones, b: ones}}
  drawn:
    model: linear-implicit
    sizes: {{N: 2, d: 2, m: 3}}
    data: {{X: orthonormal_rows, y: rademacher}}
    init: {{W: "normal(0, 1/100)", U: "normal(0, 1/2)", b: "normal(0, 1/3)"}}
  scaled:
    model: linear-implicit
    sizes: {{N: 1, d: 1, m: 1}}
    data: {{X: ones, y: ones}}
    init: {{W: zeros, U: "beta*ones", b: zeros}}
claims:
  - id: T
    title: t
    setting: {setting}
    given: {given}
    let: {let}
    assume: {assume}
    run: {run}
    conclude: {{c: "{conclude}"}}
"""
DESCENT = "{method: gradient-descent, step: eta, steps: 60, beyond: false}"
FIVE = "{method: gradient-descent, step: eta, steps: 5, beyond: false, until: 1e-30}"
FLOW = "{method: gradient-flow, until: 1e-2}"
FALLS = "L[k+1] <= L[k] for all k"
SPEED = "{speed: fro(grad(L, W))^2 + fro(grad(L, U))^2 + norm(grad(L, b))^2}"


def loaded(tmp_path, conclude, *, given="{}", run=FLOW, assume="{}", let="{}", y="2*ones", setting="unit"):
    path = tmp_path / "claims.yaml"
    parts = {"given": given, "run": run, "assume": assume, "let": let, "y": y, "setting": setting}
    path.write_text(FILE.format(conclude=conclude, **parts))
    (claim,) = load_suite(str(path)).claims
    assert hasattr(claim, "run"), claim
    return looked_at(claim)


def sought(verdict):
    """Return options with which a false claim is searched in full, and a true one for a while."""
    return Options() if verdict is Verdict.REFUTED else Options(instances=3, search=20)


class TestScalars:
    """The loss of the unit falls at every step for eta up to 0.15058."""

    @pytest.mark.parametrize("seed", seeds(5))
    def test_at_the_end_of_an_interval(self, tmp_path, seed):
        """Only the last two per cent break it; no float holds the end."""
        claim = loaded(tmp_path, FALLS, given='{eta: "(0, 0.153]"}', run=DESCENT)
        result = judge(claim, Options(seed=seed))
        assert (result.verdict, result.evidence) == (Verdict.REFUTED, Evidence.CERTIFIED), result.reason

    @pytest.mark.parametrize(
        ("given", "assume", "verdict"),
        [
            ('{eta: "(0, 0.15]"}', "{}", Verdict.HOLDS),
            ("{eta: positive}", "{small: eta <= 0.153}", Verdict.REFUTED),
            ("{eta: positive}", "{small: eta < 0.15}", Verdict.HOLDS),
            ("{eta: positive}", "{below: eta^2 < 0.153^2, above: eta > 0.15}", Verdict.REFUTED),
        ],
    )
    def test_where_a_hypothesis_cuts_the_line(self, tmp_path, given, assume, verdict):
        result = judge(loaded(tmp_path, FALLS, given=given, assume=assume, run=DESCENT), sought(verdict))
        assert result.verdict is verdict, result.reason

    @pytest.mark.parametrize(
        ("given", "conclude", "verdict"),
        [
            # L[5] = 0.9 L[0] at eta = 0.0033542.
            ('{eta: "[0.0033, 0.1]"}', "L[5] <= 0.9*L[0]", Verdict.REFUTED),
            ('{eta: "[0.0034, 0.1]"}', "L[5] <= 0.9*L[0]", Verdict.HOLDS),
            # Of L[1] = ((1 + eta)^2/(1 - eta) - 2)^2/2 the zero is at eta = sqrt(5) - 2.
            ('{eta: "(0, 1/2]"}', "L[1] >= 1e-4", Verdict.REFUTED),
            ('{eta: "(0, 0.23]"}', "L[1] >= 1e-4", Verdict.HOLDS),
            # For small steps the loss stays above c L[0].
            ('{eta: "(0, 0.1]", c: "[0.99, 1)"}', "L[1] <= c*L[0]", Verdict.REFUTED),
            ('{eta: "[0.01, 0.1]", c: "[0.95, 1)"}', "L[1] <= c*L[0]", Verdict.HOLDS),
        ],
    )
    def test_at_the_other_end_and_within(self, tmp_path, given, conclude, verdict):
        result = judge(loaded(tmp_path, conclude, given=given, run=FIVE), sought(verdict))
        assert result.verdict is verdict, result.reason

    @pytest.mark.parametrize(("most", "verdict"), [("2", Verdict.REFUTED), ("1/32", Verdict.HOLDS)])
    def test_where_data_are_drawn(self, tmp_path, most, verdict):
        claim = loaded(tmp_path, FALLS, given=f'{{eta: "(0, {most}]"}}', run=FIVE, setting="drawn")
        options = Options() if verdict is Verdict.REFUTED else Options(instances=1, search=5)
        assert judge(claim, options).verdict is verdict

    @pytest.mark.parametrize(("most", "verdict"), [("1.45", Verdict.REFUTED), ("1.4", Verdict.HOLDS)])
    def test_a_scale_of_the_start_moves_what_is_drawn(self, tmp_path, most, verdict):
        """With b = 0 and W = 0: b[1] = eta beta, so that yhat[1] = eta beta^2, 2 at beta = sqrt(2)."""
        run = "{method: gradient-descent, step: 1, steps: 1, beyond: false, until: 1e-30}"
        claim = loaded(tmp_path, "L[1] <= L[0]", given=f'{{beta: "(0, {most}]"}}', run=run, setting="scaled")
        assert judge(claim, sought(verdict)).verdict is verdict

    def test_values_reach_the_ends(self, tmp_path):
        conclude = "L[k+1] <= (1 + c + p)*L[k] for all k"
        claim = loaded(tmp_path, conclude, given='{eta: "(0, 0.2]", c: "[1/8, 1/4]", p: positive}', run=DESCENT)
        low, high = float_bounds(claim.given["eta"].domain)
        assert (low > 0, high) == (True, 0.19999999999999998)
        assert high == telling_values(claim.given["eta"].domain)[-1]
        assert telling_values(claim.given["c"].domain)[0] == 0.125
        assert min(telling_values(claim.given["p"].domain)) == 2.0**-40

    def test_the_budget_counts_the_cost(self, tmp_path):
        cheap = loaded(tmp_path, FALLS, given='{eta: "(0, 1]"}', run=DESCENT)
        setting = cheap.settings[0]
        small, large = {"N": 1, "d": 1, "m": 1}, {"N": 50, "d": 1, "m": 500}
        cost = partial(twin_of(cheap).cost, cheap, setting)
        assert cost(small) < cost(large)
        assert budget_of(cheap, setting, small, 300) > 10 * budget_of(cheap, setting, large, 300)
        assert budget_of(cheap, setting, small, 3000) >= 10 * budget_of(cheap, setting, small, 300)

    def test_the_same_every_time(self, tmp_path):
        claim = loaded(tmp_path, FALLS, given='{eta: "(0, 0.15]"}', run=FIVE)
        first, second = (sweep(claim, claim.settings[0], [], seed=0, search=5) for _ in range(2))
        assert first.evaluations == second.evaluations
        assert len({tuple(j.instance.values["eta"].item() for j in found.others) for found in (first, second)}) == 1
        assert not first.counterexamples


class TestInstances:
    def test_as_many_as_asked(self, tmp_path):
        claim = loaded(tmp_path, FALLS, given='{eta: "(0, 0.15]"}', run=FIVE)
        (setting,) = claim.settings
        assert planned(claim, Options(instances=40)) == [(setting, 40)]
        assert planned(claim, Options()) == [(setting, 6)]
        assert judge(claim, Options(instances=8, search=0)).instances == 8

    def test_equal_ones_count_once(self, tmp_path):
        fixed = loaded(tmp_path, "L[t] <= L[0] for all t")
        assert judge(fixed, Options(instances=5, search=0)).instances == 1
        free = loaded(tmp_path, FALLS, given='{eta: "(0, 0.15]"}', run=DESCENT)
        (setting,) = free.settings
        steps = [float(i.values["eta"]) for i in distinct_instances(setting, free.given, count=20, seed=0)]
        assert len(set(steps)) == len(steps) == 20


class TestFirstInstants:
    """At t = 0 the unit's loss falls at the rate 6, and U, W and b move with speed 1."""

    @pytest.mark.parametrize("seed", seeds(5))
    def test_a_rate_off_by_little(self, tmp_path, seed):
        result = judge(loaded(tmp_path, "L[t] <= exp(-6.01*t)*L[0] for all t"), Options(seed=seed))
        assert (result.verdict, result.evidence) == (Verdict.REFUTED, Evidence.CERTIFIED), result.reason

    @pytest.mark.parametrize(
        ("conclude", "verdict"),
        [
            ("L[t] <= exp(-6*t)*L[0] for all t", Verdict.HOLDS),
            ('norm(b[t] - b[0]) <= 1.0001*t for all t", length: "path_length[t] <= 1.7321*t for all t', Verdict.HOLDS),
            ("L[t] <= exp(-6.0001*t)*L[0] for all t", Verdict.REFUTED),
            ("norm(b[t] - b[0]) <= 0.9999*t for all t", Verdict.REFUTED),
            ("path_length[t] <= 1.732*t for all t", Verdict.REFUTED),
        ],
    )
    def test_slopes(self, tmp_path, conclude, verdict):
        result = judge(loaded(tmp_path, conclude), sought(verdict))
        assert result.verdict is verdict, result.reason

    def test_a_rate_of_a_narrow_range(self, tmp_path):
        claim = loaded(tmp_path, "L[t] <= exp(-c*t)*L[0] for all t", given='{c: "[6.01, 6.03]"}')
        assert judge(claim, Options(instances=1, search=0)).verdict is Verdict.REFUTED

    @pytest.mark.long
    @pytest.mark.parametrize(("most", "verdict"), [("6.03", Verdict.REFUTED), ("5.99", Verdict.HOLDS)])
    def test_a_rate_that_is_quantified(self, tmp_path, most, verdict):
        claim = loaded(tmp_path, "L[t] <= exp(-c*t)*L[0] for all t", given=f'{{c: "(0, {most}]"}}')
        assert judge(claim, sought(verdict)).verdict is verdict

    def test_the_slope_of_drawn_networks(self, tmp_path):
        """A bound on the loss by its own slope, one thousandth too steep."""
        claim = loaded(tmp_path, "L[t] <= exp(-1.001*speed/L[0]*t)*L[0] for all t", let=SPEED, setting="drawn")
        result = judge(claim, Options(instances=1, search=0))
        assert (result.verdict, result.evidence) == (Verdict.REFUTED, Evidence.CERTIFIED), result.reason

    @pytest.mark.parametrize("horizon", ["1/10^5", pytest.param("1", marks=pytest.mark.long)])
    def test_within_the_horizon(self, tmp_path, horizon):
        run = f"{{method: gradient-flow, horizon: {horizon}}}"
        result = judge(loaded(tmp_path, "L[t] <= exp(-6.01*t)*L[0] for all t", run=run), Options())
        assert (result.verdict, result.evidence) == (Verdict.REFUTED, Evidence.CERTIFIED), result.reason


class TestRisingLosses:
    """From a sharp minimum that it all but has, descent is thrown to a flat one: its loss rises 1.5e8 times."""

    @pytest.mark.parametrize(
        ("conclude", "verdict"),
        [("L[k] <= 1 for all k", Verdict.HOLDS), ("L[k] <= 10^8*L[0] for all k", Verdict.REFUTED)],
    )
    def test_a_millionfold_is_not_the_end(self, tmp_path, conclude, verdict):
        run = "{method: gradient-descent, step: 3/4, steps: 200, beyond: false, until: 1e-30}"
        result = judge(loaded(tmp_path, conclude, run=run, y="65537/65536*ones"), sought(verdict))
        assert result.verdict is verdict, result.reason
        assert result.runs[0].status == "steps"

    def test_what_was_seen_is_said(self, tmp_path):
        run = "{method: gradient-descent, step: 100, steps: 50, beyond: false}"
        result = judge(loaded(tmp_path, "L[k] <= 10^300*L[0] for all k", run=run, y="zeros"), Options())
        assert result.verdict is Verdict.UNDECIDED
        assert "the run stopped at k" in result.reason


class TestLastInstants:
    """Towards y = 0 the unit slows down: at t = 50 its loss has fallen by exp(-0.172474 t)."""

    @pytest.mark.parametrize(("rate", "verdict"), [("0.1730", Verdict.REFUTED), ("0.1720", Verdict.HOLDS)])
    def test_a_rate_that_only_the_end_breaks(self, tmp_path, rate, verdict):
        run = "{method: gradient-flow, horizon: 50}"
        result = judge(loaded(tmp_path, f"L[t] <= exp(-{rate}*t)*L[0] for all t", run=run, y="zeros"), sought(verdict))
        assert result.verdict is verdict, result.reason

    @pytest.mark.parametrize(("least", "verdict"), [("k <= 496", Verdict.REFUTED), ("k <= 500", Verdict.HOLDS)])
    def test_the_last_steps_of_descent(self, tmp_path, least, verdict):
        run = "{method: gradient-descent, step: 1/1000, steps: 500, beyond: false, until: 1e-30}"
        claim = loaded(tmp_path, f"{least} or L[k-1] <= L[k] for all k", run=run)
        assert judge(claim, sought(verdict)).verdict is verdict
