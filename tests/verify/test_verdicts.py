"""Every verdict through a tiny claim file, with its evidence, counts, margins, reasons and witnesses."""

import dataclasses
import json
import math
import time

import pytest
import torch
from verify_harness import judge_all, load, write_suite

from ntk_deq.claims.claim import Claim, IllFormed, Verdict
from ntk_deq.errors import DataError
from ntk_deq.evaluation.environment import DeadlineError
from ntk_deq.evaluation.instance import Instance
from ntk_deq.evaluation.quantity import Truth
from ntk_deq.falsify import instance_at
from ntk_deq.report.jsonl import result_to_dict
from ntk_deq.verify import runner, trial
from ntk_deq.verify.judge import Standing, judge_instance
from ntk_deq.verify.results import Evidence
from ntk_deq.verify.runner import Options, judge, judge_claims

SETTINGS = """
  plain: {sizes: {n: 1..3}, domain: {A: "real[n, n]", v: "real[n]", c: real, x: positive}}
  net: {model: linear-implicit, sizes: {N: 1..2, d: 1..2, m: 1..3}}
  fixed: {model: implicit-relu, sizes: {N: 4, d: 3, m: 2}}
  drawn: {sizes: {n: 2..4}, init: {A: "normal(0, 1/n) [n, n]"}, domain: {x: positive}}
"""


def only(tmp_path, body, **options):
    (result,) = judge_all(tmp_path, f"- {{id: c, {body}}}", SETTINGS, **options).values()
    return result


class TestHolds:
    def test_an_inequality(self, tmp_path):
        result = only(tmp_path, "setting: plain, conclude: norm(A) <= fro(A)")
        assert result.verdict is Verdict.HOLDS
        assert result.evidence is Evidence.CERTIFIED
        assert result.as_expected
        assert result.instances == result.met == 30
        assert result.reason == ""
        assert result.worst_margin.lo > -1e-9
        assert result.counterexample is None
        assert result.tightest.conclusion == "conclusion"
        (conclusion,) = result.conclusions
        assert conclusion.true + conclusion.tight == 30
        assert len(conclusion.margins) == 30

    def test_an_identity(self, tmp_path):
        result = only(tmp_path, 'setting: plain, conclude: "trace(A*A\') == fro(A)^2"')
        assert result.verdict is Verdict.HOLDS
        assert result.tight > 0

    def test_the_hypotheses_are_counted(self, tmp_path):
        result = only(tmp_path, "setting: plain, assume: {small: norm(A) <= 1}, conclude: norm(A*v) <= norm(v)")
        assert result.verdict is Verdict.HOLDS
        assert 0 < result.met <= result.instances
        (hypothesis,) = result.hypotheses
        assert hypothesis.held + hypothesis.failed + hypothesis.unsure == result.instances
        assert hypothesis.text == "norm(A) <= 1"

    def test_several_settings_each_get_their_instances(self, tmp_path):
        result = only(tmp_path, "setting: [plain, drawn], conclude: norm(A) <= fro(A)", instances=100)
        assert [record["name"] for record in result.settings] == ["plain", "drawn"]
        assert [record["universal"] for record in result.settings] == [True, False]
        assert [record["instances"] for record in result.settings] == [100, 10]
        assert result.instances == 110

    def test_a_claim_may_set_its_own_number(self, tmp_path):
        assert only(tmp_path, "setting: plain, instances: 7, conclude: norm(A) <= fro(A)").instances == 7


class TestRefuted:
    def test_the_counterexample_is_written_out(self, tmp_path):
        result = only(tmp_path, "setting: plain, conclude: fro(A) <= norm(A)")
        assert result.verdict is Verdict.REFUTED
        assert not result.as_expected
        assert result.evidence is Evidence.CERTIFIED
        assert result.worst_margin.hi < 0
        witness = result.counterexample
        A = torch.tensor(witness.values["A"], dtype=torch.float64)
        assert A.shape == (witness.sizes["n"],) * 2
        assert torch.linalg.vector_norm(A) > torch.linalg.matrix_norm(A, 2)
        assert witness.relation == "<="
        assert witness.margin.hi < 0
        assert result.tightest is None

    def test_what_is_shown_breaks_the_claim_when_judged_again(self, tmp_path):
        """Shrunk or not: the values printed are the counterexample, to the last digit."""
        body = 'setting: plain, conclude: "rho(A*A\') <= 2*rho(A)^2"'
        result = only(tmp_path, body, seed=3)
        assert result.verdict is Verdict.REFUTED
        (claim,) = load(tmp_path, f"- {{id: c, {body}}}", SETTINGS)
        witness = result.counterexample
        values = {name: torch.tensor(value, dtype=torch.float64) for name, value in witness.values.items()}
        instance = Instance(witness.setting, "", witness.sizes, values, witness.index)
        again = judge_instance(claim, instance, device=torch.device("cpu")).conclusions["conclusion"]
        assert again.truth is Truth.FALSE
        assert (again.comparison.margin.lo, again.comparison.margin.hi) == (witness.margin.lo, witness.margin.hi)

    def test_one_counterexample_outweighs_everything(self, tmp_path):
        """True on all but the instances with c = 1."""
        result = only(tmp_path, "setting: plain, conclude: c != 1", instances=60)
        assert result.verdict is Verdict.REFUTED
        assert result.counterexample.values["c"] == 1.0

    def test_it_names_the_conclusion_that_breaks(self, tmp_path):
        result = only(tmp_path, "setting: plain, conclude: {good: norm(A) <= fro(A), bad: fro(A) <= 2, fine: x > 0}")
        assert result.verdict is Verdict.REFUTED
        assert result.counterexample.conclusion == "bad"
        good, bad, fine = result.conclusions
        assert (good.false, fine.false) == (0, 0)
        assert bad.false > 0

    def test_judging_goes_on_for_a_plainer_one_and_stops(self, tmp_path):
        result = only(tmp_path, "setting: plain, conclude: fro(A) < 0", instances=500)
        assert result.instances == 1 + trial.AFTER_REFUTATION
        assert result.counterexample.sizes == {"n": 1}

    def test_equality_refutes_a_strict_sign(self, tmp_path):
        assert only(tmp_path, "setting: plain, conclude: fro(A) > 0").verdict is Verdict.REFUTED
        weak = only(tmp_path, "setting: plain, conclude: fro(A) >= 0")
        assert weak.verdict in (Verdict.HOLDS, Verdict.PROVED)


class TestVacuous:
    def test_the_reason_names_the_hypothesis_and_the_lack(self, tmp_path):
        result = only(tmp_path, "setting: fixed, assume: {wide: N <= m}, conclude: sigma_min(Z) >= 0", instances=12)
        assert result.verdict is Verdict.VACUOUS
        assert result.reason == (
            "hypothesis 'wide' (N <= m) failed on 12 of 12 instances; the nearest instance lacks 2"
        )
        assert (result.met, result.evidence) == (0, Evidence.NONE)
        assert result.worst_margin is None
        assert result.nearest.conclusion == "wide"
        assert (result.nearest.margin.lo, result.nearest.margin.hi) == (-2, -2)

    def test_the_nearest_instance_is_the_nearest(self, tmp_path):
        result = only(tmp_path, "setting: plain, assume: {far: x <= -1}, conclude: c == c", instances=60)
        assert result.verdict is Verdict.VACUOUS
        assert result.nearest.values["x"] < 0.01
        assert -1.01 < result.hypotheses[0].nearest.hi < -1

    def test_a_conclusion_that_never_exists(self, tmp_path):
        result = only(tmp_path, "setting: plain, conclude: 1/(c - c) > 0")
        assert result.verdict is Verdict.VACUOUS
        assert "'defined'" in result.reason
        assert "every quotient, inverse, root and logarithm exists" in result.reason
        assert result.nearest.values

    def test_beside_a_conclusion_that_never_exists_the_others_are_judged(self, tmp_path):
        result = only(tmp_path, "setting: plain, conclude: {never: 1/(c - c) > 0, wrong: fro(A) > 1e9}")
        assert (result.verdict, result.counterexample.conclusion) == (Verdict.REFUTED, "wrong")
        result = only(tmp_path, "setting: plain, conclude: {never: 1/(c - c) > 0, right: norm(A) <= fro(A)}")
        assert result.verdict is Verdict.UNDECIDED
        assert "no instance bears out 'never' for certain" in result.reason

    def test_a_derivative_that_never_exists(self, tmp_path):
        result = only(tmp_path, 'setting: plain, conclude: "sum(grad(sum(relu(A - A)), A)) == 0"')
        assert result.verdict is Verdict.VACUOUS
        assert "no argument of relu is zero where a derivative is taken" in result.reason

    def test_kinks_put_single_instances_outside(self, tmp_path):
        result = only(tmp_path, 'setting: plain, conclude: "grad(sum(relu(A)), A) == step(A)"', instances=60)
        assert result.verdict is Verdict.HOLDS
        assert 0 < result.met < 60
        (hypothesis,) = result.hypotheses
        assert hypothesis.name == "differentiable"
        assert hypothesis.failed == 60 - result.met


class TestUndecided:
    def test_an_equilibrium_that_may_not_exist(self, tmp_path):
        result = only(tmp_path, "setting: net, conclude: fro(Z) >= 0", instances=40)
        assert result.verdict is Verdict.UNDECIDED
        assert "no certificate that the equilibrium exists" in result.reason
        assert "instances are undecided; first, net #" in result.reason
        assert 0 < result.unsure <= 40
        shown = result.undecided
        assert (shown.conclusion, shown.lhs, shown.margin.hi) == ("conclusion", "undefined", math.inf)
        assert "no certificate" in shown.argument
        assert shown.values.keys() == {"W", "U", "b", "X", "y"}

    def test_a_strict_inequality_that_is_tight(self, tmp_path):
        """No ball tells exp(log(x)) from x, and exact arithmetic has neither; with A in it, nothing is proven."""
        result = only(tmp_path, "setting: plain, conclude: exp(log(x)) - x + 0*sum(A) < 1e-60", instances=40)
        assert result.verdict is Verdict.UNDECIDED
        assert "a strict inequality whose narrow ball contains zero" in result.reason
        assert -1e-30 < result.undecided.margin.lo < 0 < result.undecided.margin.hi < 1e-30
        assert result.tight > 0

    def test_the_weak_one_with_nothing_but_tight_instances(self, tmp_path):
        result = only(
            tmp_path,
            "setting: plain, assume: {not trivial: x != 1}, conclude: exp(log(x)) - x <= 1e-60 and x > 3",
            instances=40,
        )
        assert result.verdict is Verdict.REFUTED
        result = only(
            tmp_path,
            "setting: plain, given: {t: [3, 3.5]}, conclude: t == t and exp(log(t)) <= t + 0*sum(A)",
            instances=40,
        )
        assert result.verdict is Verdict.UNDECIDED
        assert "no instance bears out 'conclusion' for certain" in result.reason
        assert not result.as_expected

    def test_a_hypothesis_that_is_never_certain(self, tmp_path):
        result = only(
            tmp_path, "setting: plain, given: {t: [3, 3.5]}, assume: {odd: exp(log(t)) <= t}, conclude: t > 0"
        )
        assert result.verdict is Verdict.UNDECIDED
        assert "no instance meets the hypotheses for certain" in result.reason
        assert (result.met, result.evidence) == (0, Evidence.NONE)
        assert (result.undecided.conclusion, result.undecided.relation) == ("odd", "<=")
        assert result.undecided.lhs.startswith(result.undecided.rhs[:3])
        assert result.unsure == result.instances

    def test_an_instance_that_may_meet_the_hypotheses_keeps_it_from_being_vacuous(self, tmp_path):
        """Where the first hypothesis holds, the second one cannot be decided."""
        body = "assume: {large: t > 3.4, root: exp(log(t)) <= t}, conclude: t > 0"
        result = only(tmp_path, f"setting: plain, given: {{t: '[3, 3.75]'}}, {body}", instances=40)
        assert result.verdict is Verdict.UNDECIDED
        assert 0 < result.unsure <= 40
        assert "'root'" in result.reason
        assert (result.undecided.conclusion, dict(result.undecided.hypotheses).keys()) == ("root", {"large", "root"})

    def test_a_conclusion_that_breaks_where_a_hypothesis_is_unsure_is_no_refutation(self, tmp_path):
        body = "assume: {root: exp(log(t)) <= t}, conclude: t < 1/2"
        result = only(tmp_path, f"setting: plain, given: {{t: '[3, 4]'}}, {body}", instances=40, boxes=50)
        assert result.verdict is Verdict.UNDECIDED
        assert result.met == 0
        result = only(tmp_path, f"setting: plain, given: {{t: '[0, 4]'}}, {body}", instances=60, boxes=50)
        assert result.verdict is Verdict.REFUTED
        assert result.counterexample.values["t"] == 1.0  # the only logarithm in the way that is exact
        assert result.unsure > 0

    def test_the_time_limit(self, tmp_path):
        result = only(tmp_path, "setting: plain, conclude: norm(A) <= fro(A)", instances=10**6, time_limit=0.5)
        assert result.verdict is Verdict.UNDECIDED
        assert "the time limit of 0.5 s ran out after" in result.reason
        assert "of 1000000 instances" in result.reason
        assert 0 < result.instances < 10**6

    def test_the_time_limit_stops_a_single_instance_too(self, tmp_path):
        started = time.perf_counter()
        result = only(
            tmp_path,
            "setting: net, assume: norm(W) < 1, run: {method: fixed-point, steps: 400}, "
            "conclude: 'fro(Z[p] - Z[q]) >= 0 for all p, q'",
            time_limit=0.5,
        )
        assert result.verdict is Verdict.UNDECIDED
        assert time.perf_counter() - started < 20

    def test_a_counterexample_found_before_the_time_limit_stands(self, tmp_path, monkeypatch):
        """The first instance breaks the claim, and the time is over at the second."""
        real, count = trial.judge_instance, []

        def out_of_time(*args, **options):
            count.append(1)
            if len(count) > 1:
                raise DeadlineError("the time limit ran out")
            return real(*args, **options)

        monkeypatch.setattr(trial, "judge_instance", out_of_time)
        result = only(tmp_path, "setting: plain, conclude: fro(A) < 0", time_limit=30.0)
        assert result.verdict is Verdict.REFUTED
        assert result.instances == 1

    def test_a_limit_on_memory_is_a_reason(self, tmp_path):
        setting = '  wide: {sizes: {n: 1..200}, domain: {v: "real[n^2]"}}'
        results = judge_all(
            tmp_path, "- {id: c, setting: wide, conclude: \"fro(v*v'*v*v') >= 0\"}", setting, instances=34
        )
        assert results["c"].verdict is Verdict.UNDECIDED
        assert "at most 134,217,728 are allowed" in results["c"].reason

    def test_data_that_cannot_be_had(self, tmp_path, monkeypatch):
        def missing(*args):
            raise DataError("digits.npz: no such file.")

        monkeypatch.setattr(trial, "instance_at", missing)
        result = only(tmp_path, "setting: plain, conclude: norm(A) <= fro(A)")
        assert result.verdict is Verdict.UNDECIDED
        assert result.reason == "its data cannot be had: digits.npz: no such file."

    def test_definitions_that_rest_on_each_other_too_deeply(self, tmp_path):
        chain = ", ".join(f"d{k}: d{k - 1} + x" for k in range(1, 299))
        result = only(tmp_path, f"setting: plain, let: {{d0: x, {chain}}}, conclude: d298 > 0", instances=3)
        assert result.verdict in (Verdict.HOLDS, Verdict.PROVED) or "too deeply" in result.reason


class TestIllFormedAndError:
    def test_an_ill_formed_claim_leaves_the_others_alone(self, tmp_path):
        results = judge_all(
            tmp_path,
            """
- {id: shapes, setting: plain, conclude: fro(A*v*A) >= 0}
- {id: good, setting: plain, conclude: norm(A) <= fro(A)}
- {id: name, setting: plain, conclude: sigma_mim(A) >= 0}
""",
            SETTINGS,
        )
        assert [r.verdict for r in results.values()] == [Verdict.ILL_FORMED, Verdict.HOLDS, Verdict.ILL_FORMED]
        assert "vector n" in results["shapes"].reason
        assert "matrix n x n" in results["shapes"].reason
        assert "suite.yaml:" in results["shapes"].reason
        assert results["name"].problems[0].hint == "did you mean `sigma_min`?"
        assert results["name"].instances == 0

    def test_an_error_of_the_product_leaves_the_others_alone(self, tmp_path, monkeypatch):
        real = trial.judge_instance

        def breaks(claim, instance, **options):
            if claim.id == "b":
                raise ZeroDivisionError("made up")
            return real(claim, instance, **options)

        monkeypatch.setattr(trial, "judge_instance", breaks)
        entries = "\n".join(f"- {{id: {name}, setting: plain, conclude: norm(A) <= fro(A)}}" for name in "abc")
        results = judge_all(tmp_path, entries, SETTINGS)
        assert [r.verdict for r in results.values()] == [Verdict.HOLDS, Verdict.ERROR, Verdict.HOLDS]
        assert results["b"].reason == "ZeroDivisionError: made up"
        assert "Traceback" in results["b"].trace
        assert not results["b"].as_expected
        assert results["b"].statement

    @pytest.mark.parametrize("where", ["statement_lines", "_result", "Tally"])
    def test_an_error_anywhere_else_is_caught_too(self, tmp_path, monkeypatch, where):
        def breaks(*args, **options):
            raise KeyError("made up")

        if where == "Tally":
            monkeypatch.setattr(trial.Tally, "verdict", breaks)
        else:
            monkeypatch.setattr(runner, where, breaks)
        results = judge_all(tmp_path, "- {id: a, setting: plain, conclude: norm(A) <= fro(A)}", SETTINGS)
        assert results["a"].verdict is Verdict.ERROR
        assert "made up" in results["a"].reason

    def test_an_interruption_is_no_error(self, tmp_path, monkeypatch):
        def interrupts(*args, **options):
            raise KeyboardInterrupt

        monkeypatch.setattr(trial, "judge_instance", interrupts)
        with pytest.raises(KeyboardInterrupt):
            only(tmp_path, "setting: plain, conclude: norm(A) <= fro(A)")


class TestExpectation:
    BODIES = {  # noqa: RUF012
        "holds": "conclude: norm(A) <= fro(A)",
        "refuted": "conclude: fro(A) < 0",
        "vacuous": "assume: x < 0, conclude: norm(A) <= fro(A)",
        "undecided": "given: {t: [3, 3.5]}, conclude: exp(log(t)) < t",
        "ill-formed": "conclude: fro(A*v*A) >= 0",
    }

    @pytest.mark.parametrize("expected", BODIES)
    @pytest.mark.parametrize("real", BODIES)
    def test_both_directions(self, tmp_path, real, expected):
        result = only(tmp_path, f"setting: plain, expect: {expected}, {self.BODIES[real]}", instances=5, boxes=50)
        assert result.verdict.value == real
        assert result.expected.value == expected
        assert result.as_expected is (real == expected)


def without_seconds(result):
    entry = result_to_dict(result)
    assert entry.pop("seconds") >= 0
    return json.dumps(entry, allow_nan=False)


class TestReproducible:
    CLAIMS = """
- {id: a, setting: [plain, drawn], conclude: norm(A) <= fro(A)}
- {id: b, setting: net, assume: norm(W) < 1, conclude: "grad(L, b) == Z'*(yhat - y)"}
- {id: c, setting: drawn, conclude: norm(A) <= x}
"""

    def test_the_same_seed_gives_the_same_results(self, tmp_path):
        first, second = (judge_all(tmp_path, self.CLAIMS, SETTINGS, seed=5, instances=8) for _ in range(2))
        assert [without_seconds(r) for r in first.values()] == [without_seconds(r) for r in second.values()]

    def test_another_seed_gives_others(self, tmp_path):
        first, second = (judge_all(tmp_path, self.CLAIMS, SETTINGS, seed=s, instances=8) for s in (1, 2))
        assert without_seconds(first["a"]) != without_seconds(second["a"])

    def test_a_claim_does_not_depend_on_the_others(self, tmp_path):
        together = judge_all(tmp_path, self.CLAIMS, SETTINGS, seed=5, instances=8)
        alone = judge_all(tmp_path, self.CLAIMS.strip().splitlines()[2], SETTINGS, seed=5, instances=8)
        ours, theirs = (json.loads(without_seconds(r["c"])) for r in (together, alone))
        assert {**ours, "position": ""} == {**theirs, "position": ""}


class TestRunner:
    def test_numbers_beyond_float64_end_in_no_error(self, tmp_path):
        entries = """
- {id: true, setting: plain, conclude: norm(A)*1e400 + x >= 0}
- {id: false, setting: plain, conclude: x*1e400 <= 1e400/2}
- {id: slope, setting: plain, conclude: fro(grad(1e400*x*x, x)) >= 0}
"""
        found = judge_all(tmp_path, entries.replace("true", "'true'").replace("false", "'false'"), SETTINGS, search=100)
        verdicts = {name: result.verdict for name, result in found.items()}
        assert verdicts["false"] is Verdict.REFUTED
        assert Verdict.ERROR not in verdicts.values(), verdicts

    def test_stop_early_stops_after_the_first_unexpected_verdict(self, tmp_path):
        entries = """
- {id: a, setting: plain, conclude: norm(A) <= fro(A)}
- {id: b, setting: plain, expect: refuted, conclude: fro(A) < 0}
- {id: c, setting: plain, conclude: fro(A) < 0}
- {id: d, setting: plain, conclude: norm(A) <= fro(A)}
"""
        assert list(judge_all(tmp_path, entries, SETTINGS, stop_early=True)) == ["a", "b", "c"]
        assert list(judge_all(tmp_path, entries, SETTINGS)) == ["a", "b", "c", "d"]

    def test_results_come_as_they_are_judged(self, tmp_path):
        claims = load(
            tmp_path,
            "- {id: a, setting: plain, conclude: norm(A) <= fro(A)}\n- {id: b, setting: plain, conclude: 1 > 0}",
            SETTINGS,
        )
        results = judge_claims(claims, Options(instances=3, search=0))
        assert next(results).id == "a"
        assert next(results).id == "b"

    def test_a_listener_hears_everything_in_order(self, tmp_path):
        heard = []

        class Ear:
            def claim_started(self, claim_id, total):
                heard.append(("started", claim_id, total))

            def instance_done(self, claim_id, done):
                heard.append(("done", claim_id, done))

            def stage_entered(self, claim_id, stage):
                heard.append(("stage", stage))

            def claim_judged(self, claim_id):
                heard.append(("judged", claim_id))

            def claim_finished(self, result):
                heard.append(("finished", result.id))

            def tick(self):
                raise AssertionError("nothing else is done meanwhile")

        (claim,) = load(tmp_path, "- {id: a, setting: plain, conclude: norm(A) <= fro(A)}", SETTINGS)
        list(judge_claims([claim], Options(instances=3, search=1), Ear()))
        assert heard[0] == ("started", "a", 3)
        assert heard[-2:] == [("judged", "a"), ("finished", "a")]
        stages = [entry[1] for entry in heard if entry[0] == "stage"]
        assert stages == ["proving", "", "at the boundary", "searching"]
        done = [entry for entry in heard if entry[0] == "done"]
        assert done[:3] == [("done", "a", k) for k in (1, 2, 3)]
        assert heard.index(("stage", "")) < heard.index(done[0])
        assert heard.index(done[2]) < heard.index(("stage", "searching"))

    def test_the_source_and_the_position_are_carried(self, tmp_path):
        path = write_suite(
            tmp_path, "- {id: a, setting: plain, title: T, where: W, tags: [x], note: N, conclude: 1 > 0}", SETTINGS
        )
        path.write_text("source: {title: Book}\n" + path.read_text())
        from ntk_deq.claims.load import load_suite

        (claim,) = load_suite(path).claims
        assert isinstance(claim, Claim)
        result = judge(claim, Options(instances=2, search=0))
        assert (result.title, result.where, result.tags, result.note) == ("T", "W", ("x",), "N")
        assert result.source == {"title": "Book"}
        assert result.position.startswith(str(path))
        assert [(line.section, line.text) for line in result.statement] == [("conclude", "1 > 0")]


class TestSinglePrecision:
    """Rounded to float32, a member of a domain may leave it: that must not refute anything."""

    SETTING = """
  any:
    sizes: {n: 1..4}
    domain:
      {P: "psd[n, n]", p: "positive[n]", t: "(0, 1)[n]", S: "symmetric[n, n]", O: "orthogonal[n, n]",
       k: "integer 1..5 [n]"}
"""

    @pytest.mark.parametrize(
        "statement",
        ["lambda_min(P) >= 0", "det(P) >= 0", "p > 0", "t < 1", "0 < t", "S' == S", "O'*O == I(n)", "k >= 1"],
    )
    def test_membership_is_never_refuted(self, tmp_path, statement):
        body = f'- {{id: c, setting: any, conclude: "{statement}"}}'
        result = judge_all(tmp_path, body, self.SETTING, dtype=torch.float32, instances=120)["c"]
        assert result.verdict in (Verdict.HOLDS, Verdict.PROVED, Verdict.UNDECIDED)
        assert result.dtype == "float32"

    def test_gradients_are_never_refuted(self, tmp_path):
        for statement in ("grad(trace(A*A), A) == 2*A'", "trace(grad(lambda_max((A + A')/2), A)) == 1"):
            result = only(tmp_path, f'setting: plain, conclude: "{statement}"', dtype=torch.float32)
            assert result.verdict in (Verdict.HOLDS, Verdict.PROVED, Verdict.UNDECIDED)


def test_an_instance_outside_says_which_way(tmp_path):
    (claim,) = load(tmp_path, "- {id: c, setting: plain, conclude: 1/c < 10000}", SETTINGS)
    assert isinstance(claim, Claim)
    instance = instance_at(claim.settings[0], claim.given, 1, 0)
    outside = dataclasses.replace(instance, values={**instance.values, "c": torch.tensor(0.0, dtype=torch.float64)})
    judgement = judge_instance(claim, outside, device=torch.device("cpu"))
    assert judgement.standing is Standing.UNMET
    assert judgement.hypotheses["defined"].truth is Truth.FALSE
    assert not judgement.conclusions


def test_margins_are_numbers_or_infinite(tmp_path):
    result = only(tmp_path, "setting: plain, conclude: exp(exp(x)) > 1", instances=60)
    for lo, hi, scale in result.conclusions[0].margins:
        assert not any(map(math.isnan, (lo, hi, scale)))
        assert lo <= hi
    assert not isinstance(result, IllFormed)
