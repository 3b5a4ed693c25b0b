"""Claims with families judged: depth by depth, added up, shown, written down, judged again."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ntk_deq.claims.claim import Claim, Verdict
from ntk_deq.claims.depths import at_depth
from ntk_deq.claims.load import load_suite
from ntk_deq.errors import ClaimFileError
from ntk_deq.evaluation.balls import evaluate
from ntk_deq.evaluation.environment import Notes
from ntk_deq.evaluation.quantity import Matrix
from ntk_deq.falsify import instance_at
from ntk_deq.language.tree import Expr, Kind, Span
from ntk_deq.report.html import write_html
from ntk_deq.report.jsonl import result_to_dict
from ntk_deq.verify import runner
from ntk_deq.verify.depths import DepthResults, planned_depths, shared_options
from ntk_deq.verify.findings import Fate, judge_mutants
from ntk_deq.verify.formulas import instance_environment
from ntk_deq.verify.options import Options
from ntk_deq.verify.replay import compare, read_counterexample, replay
from ntk_deq.verify.results import ClaimResult, Evidence, RunInfo
from ntk_deq.verify.runner import judge
from ntk_deq.verify.smallest import names_to_move

torch.set_num_threads(1)

ROOT = Path(__file__).parents[2]
QUICK = Options(usual=24, search=60)
FILE = """suite: t
settings:
  net:
    sizes: {L: 1..3, N: 1..2, n: "1..3 for l in 0..L"}
    domain: {X: "real[n[0], N]", W: "real[n[l], n[l-1]] for l in 1..L"}
  drawn:
    sizes: {L: 2, N: 2, n: "3..4 for l in 0..L"}
    data: {X: "gaussian[n[0], N]"}
    init: {W: "c[l]*normal(0, 1/n[l-1])[n[l], n[l-1]] for l in 1..L"}
  wide:
    sizes: {L: 1..2, n: "3 for l in 0..L"}
    init: {W: "gaussian[n[l], n[l-1]] for l in 1..L"}
  entries:
    sizes: {K: 1..2, N: 1..2}
    domain: {X: "real[K, N]"}
  chain:
    sizes: {L: 60, n: "1 for l in 0..L"}
    domain: {W: "real[n[l], n[l-1]] for l in 1..L"}
  numbers:
    sizes: {L: 2..3}
    domain: {c: real for l in 1..L}
claims:
"""
FORWARD = 'let: {"z[0]": X, "z[l] for l in 1..L": "relu(W[l]*z[l-1])"}'


def claim_of(folder: Path, text: str) -> Claim:
    path = folder / "a.yaml"
    path.write_text(FILE + "  - {id: C, " + text + "}\n")
    (claim,) = load_suite(path).claims
    assert isinstance(claim, Claim), claim.problems
    return claim


def judged(folder: Path, text: str, options: Options = QUICK) -> ClaimResult:
    return judge(claim_of(folder, text), options)


class TestVerdicts:
    def test_a_bound_that_holds_at_every_depth(self, tmp_path):
        result = judged(
            tmp_path, f'setting: net, {FORWARD}, conclude: "fro(z[L]) <= prod(norm(W[l]) for l in 1..L)*fro(X)"'
        )
        assert (result.verdict, result.evidence) == (Verdict.HOLDS, Evidence.CERTIFIED)
        assert [tried.letters for tried in result.depths] == [{"L": 1}, {"L": 2}, {"L": 3}]
        assert all(tried.instances == tried.met >= 8 and tried.searched > 0 for tried in result.depths)
        assert result.instances == result.met == sum(tried.instances for tried in result.depths)
        assert sum(len(record.margins) for record in result.conclusions) == result.instances
        assert result.settings[0]["sizes"]["n[l] for l in 0..L"] == [1, 3]
        assert result.conclusions[0].text == "fro(z[L]) <= prod(norm(W[l]) for l in 1..L)*fro(X)"

    def test_the_smallest_depth_that_breaks_is_shown(self, tmp_path):
        result = judged(
            tmp_path, f'setting: net, {FORWARD}, conclude: "fro(z[L]) <= max(norm(W[l]) for l in 1..L)*fro(X)"'
        )
        assert (result.verdict, result.evidence) == (Verdict.REFUTED, Evidence.CERTIFIED)
        assert result.reason.startswith("at L = 2: ")
        assert [tried.verdict for tried in result.depths] == [Verdict.HOLDS, Verdict.REFUTED]
        found = result.counterexample
        assert found is not None
        assert found.sizes["L"] == 2
        assert set(found.values) == {"X", "W[1]", "W[2]"}

    def test_a_claim_that_breaks_at_the_largest_depth_alone(self, tmp_path):
        result = judged(
            tmp_path,
            'setting: net, assume: "norm(W[l]) <= 2 for all l in 1..L", '
            'conclude: "norm(prod(W[l] for l in L..1)) <= 7.5"',
            Options(usual=60, search=600),
        )
        assert result.verdict is Verdict.REFUTED
        assert result.counterexample is not None
        assert result.counterexample.sizes["L"] == 3

    def test_depths_at_which_nothing_meets_the_hypotheses(self, tmp_path):
        result = judged(
            tmp_path, 'setting: net, assume: "norm(W[l]) < 0 for all l in 3..L", conclude: "norm(W[1]) >= 0"'
        )
        assert result.verdict is Verdict.HOLDS
        assert "vacuous at L = 3" in result.support.remark
        assert result.depths[2].verdict is Verdict.VACUOUS

    def test_vacuous_at_every_depth(self, tmp_path):
        result = judged(
            tmp_path, 'setting: net, assume: "norm(W[l]) < 0 for some l in 1..L", conclude: "norm(W[1]) <= 0"'
        )
        assert result.verdict is Verdict.VACUOUS
        assert result.reason.startswith("at L = 1: hypothesis")
        assert result.nearest is not None

    def test_a_statement_about_some_member_of_nothing_is_false(self, tmp_path):
        result = judged(tmp_path, 'setting: net, conclude: "norm(W[l]) >= 0 for some l in 2..L"')
        assert result.verdict is Verdict.REFUTED
        assert result.counterexample is not None
        assert result.counterexample.sizes["L"] == 1

    def test_other_depths_bear_out_what_is_an_equality_at_one(self, tmp_path):
        result = judged(
            tmp_path, 'setting: wide, conclude: "max(norm(W[l]) for l in 1..L) <= sum(norm(W[l]) for l in 1..L)"'
        )
        assert result.depths[0].verdict is Verdict.UNDECIDED
        assert result.verdict is Verdict.HOLDS

    def test_an_equality_at_every_depth_is_borne_out_by_none(self, tmp_path):
        result = judged(tmp_path, 'setting: wide, conclude: "norm(W[l]) <= norm(-W[l]) for all l in 1..L"')
        assert result.verdict is Verdict.UNDECIDED
        assert "no instance bears out" in result.reason

    def test_a_depth_at_which_nothing_is_said_bears_nothing_out(self, tmp_path):
        result = judged(tmp_path, 'setting: wide, conclude: "norm(W[l]) <= norm(-W[l]) for all l in 2..L"')
        assert [tried.verdict for tried in result.depths] == [Verdict.HOLDS, Verdict.UNDECIDED]
        assert result.verdict is Verdict.UNDECIDED

    def test_nothing_said_at_one_depth_and_vacuous_at_the_others(self, tmp_path):
        text = (
            'setting: wide, assume: "norm(W[l]) < 0 for all l in 2..L", conclude: "norm(W[l]) >= 1 for all l in 2..L"'
        )
        result = judged(tmp_path, text)
        assert [tried.verdict for tried in result.depths] == [Verdict.HOLDS, Verdict.VACUOUS]
        assert result.verdict is Verdict.VACUOUS

    def test_what_is_said_at_larger_depths_only(self, tmp_path):
        result = judged(tmp_path, 'setting: wide, conclude: "norm(W[l]) >= 0 for all l in 2..L"')
        assert result.verdict is Verdict.HOLDS
        assert "nothing is said at L = 1" in result.support.remark

    def test_numbers_are_proved_at_each_depth(self, tmp_path):
        result = judged(tmp_path, 'setting: numbers, conclude: "(c[1] + c[L])^2 <= 2*c[1]^2 + 2*c[L]^2"')
        assert result.verdict in (Verdict.PROVED, Verdict.HOLDS)
        assert len({tried.verdict for tried in result.depths}) == 1

    def test_a_depth_without_instances_is_no_part_of_a_proof(self, tmp_path):
        claim = claim_of(tmp_path, 'setting: numbers, conclude: "(c[1] + c[L])^2 <= 2*c[1]^2 + 2*c[L]^2"')
        found = DepthResults(claim)
        for (part, _), verdict in zip(planned_depths(claim, QUICK), (Verdict.PROVED, Verdict.VACUOUS), strict=True):
            found.add(part, replace(judge(part, QUICK), verdict=verdict))
        assert found.merged().verdict is Verdict.HOLDS

    def test_draws_with_scales_of_their_own(self, tmp_path):
        result = judged(
            tmp_path,
            "setting: drawn, given: {c: positive for l in 1..L}, "
            f'{FORWARD}, conclude: "norm(z[l]) <= norm(W[l])*norm(z[l-1]) + 1/c[l] for all l in 1..L"',
        )
        assert result.verdict is Verdict.HOLDS
        assert not result.settings[0]["universal"]


class TestMeaning:
    @pytest.mark.parametrize("depth", [1, 2, 3])
    def test_products_and_recursions_against_torch(self, tmp_path, depth):
        claim = claim_of(
            tmp_path,
            'setting: net, let: {"z[0]": X, "z[l] for l in 1..L": "relu(W[l]*z[l-1])", '
            'P: "prod(W[l] for l in L..1)", Q: "prod(W[l]\' for l in 1..L)", '
            'S: "sum(l*norm(W[l])^2 for l in 1..L)"}, conclude: "norm(P) + norm(Q) + S + norm(z[L]) >= 0"',
        )
        written = at_depth(claim, claim.depths[depth - 1])
        instance = instance_at(written.settings[0], written.given, 5, 3)
        env = instance_environment(written, instance, device=torch.device("cpu"), dtype=torch.float64, notes=Notes())
        weights = [instance.values[f"W[{layer}]"] for layer in range(1, depth + 1)]
        state = instance.values["X"]
        product = torch.eye(len(state), dtype=torch.float64)
        for weight in weights:
            state, product = torch.relu(weight @ state), weight @ product

        def value(name):
            found = evaluate(Expr(Kind.NAME, Span(0, 0), name=name), env)
            return found.ball.work if isinstance(found, Matrix) else float(found.ball.mid())

        scale = max(1.0, float(product.abs().max()), float(state.abs().max()))
        assert torch.allclose(value(f"z[{depth}]"), state, rtol=1e-12, atol=1e-12 * scale)
        assert torch.allclose(value("P"), product, rtol=1e-12, atol=1e-12 * scale)
        assert torch.allclose(value("Q"), product.T, rtol=1e-12, atol=1e-12 * scale)
        wanted = sum(k * float(torch.linalg.matrix_norm(w, 2)) ** 2 for k, w in enumerate(weights, 1))
        assert value("S") == pytest.approx(wanted, rel=1e-12)

    def test_one_member_replaced(self, tmp_path):
        text = (
            "setting: net, given: {V: 'real[n[l], n[l-1]] for l in 1..L'}, "
            + FORWARD.replace("}", ', f: "z[L]"}')
            + ', conclude: "fro(at(f, W[j] = V[j]) - f) <= norm(V[j] - W[j])*prod(norm(W[l]) for l in 1..j-1)'
        )
        holds = text + '*prod(norm(W[l]) for l in j+1..L)*fro(X) for all j in 1..L"'
        assert judged(tmp_path, holds).verdict is Verdict.HOLDS
        breaks = text + '*fro(X) for all j in 1..L"'
        assert judged(tmp_path, breaks, Options(usual=60, search=300)).verdict is Verdict.REFUTED

    @pytest.mark.parametrize(
        ("statement", "verdict"),
        [
            ("norm(blockdiag(W[l] for l in 1..L)) == max(norm(W[l]) for l in 1..L)", Verdict.HOLDS),
            ("norm(blockdiag(W[l] for l in 1..L)) == sum(norm(W[l]) for l in 1..L)", Verdict.REFUTED),
            ("fro(X)^2 == sum(sum(X{i, j}^2 for i in 1..K) for j in 1..N)", Verdict.HOLDS),
            ("sum(W[l]{1, 1} for l in 1..L) <= max(norm(W[l]) for l in 1..L)", Verdict.REFUTED),
        ],
    )
    def test_blocks_and_entries_over_a_range(self, tmp_path, statement, verdict):
        setting = "entries" if "X{" in statement else "net"
        assert judged(tmp_path, f'setting: {setting}, conclude: "{statement}"').verdict is verdict


class TestShares:
    def test_instances_search_and_time_are_shared_out(self, tmp_path):
        claim = claim_of(tmp_path, 'setting: net, conclude: "norm(W[1]) >= 0"')
        assert [count for _, count in planned_depths(claim, Options(usual=200))] == [67, 67, 67]
        own = shared_options(Options(search=90, time_limit=30.0, findings=True), 3)
        assert (own.search, own.time_limit, own.findings) == (30, 10.0, False)
        assert shared_options(Options(search=0), 3).search == 0
        assert shared_options(Options(), 3).search is None

    def test_few_instances_are_not_made_fewer_than_eight(self, tmp_path):
        claim = claim_of(tmp_path, 'setting: net, conclude: "norm(W[1]) >= 0"')
        assert [count for _, count in planned_depths(claim, Options(usual=12))] == [8, 8, 8]
        assert [count for _, count in planned_depths(claim, Options(instances=3))] == [3, 3, 3]

    def test_listeners_hear_of_one_claim(self, tmp_path):
        heard: list[tuple[str, int]] = []

        class Listener:
            def claim_started(self, claim_id, total):
                heard.append(("started", total))

            def instance_done(self, claim_id, done):
                heard.append(("done", done))

            def stage_entered(self, claim_id, stage): ...

            def claim_judged(self, claim_id): ...

            def claim_finished(self, result): ...

            def tick(self): ...

        judge(claim_of(tmp_path, 'setting: net, conclude: "norm(W[1]) >= 0"'), Options(usual=24, search=0), Listener())
        assert heard[0] == ("started", 24)
        assert heard[-1] == ("done", 24)
        assert [kind for kind, _ in heard].count("started") == 1


class TestWrittenDown:
    BROKEN = f'setting: net, {FORWARD}, conclude: "fro(z[L]) <= max(norm(W[l]) for l in 1..L)*fro(X)"'

    def test_a_counterexample_file_is_judged_again_at_its_depth(self, tmp_path):
        claim = claim_of(tmp_path, self.BROKEN)
        result = judge(claim, Options(usual=24, search=60, out=str(tmp_path / "out")))
        assert result.replay is not None
        record = read_counterexample(Path(result.replay))
        assert record.instance.sizes["L"] == 2
        assert record.claim.depth == claim.depths[1]
        again = replay(record)
        assert again.reproduced
        assert again.identical
        assert not again.edited
        assert compare(record, claim).changes == ()
        text = Path(result.replay).read_text()
        assert 'W: "real[n[l], n[l-1]] for l in 1..L"' in text
        other = claim_of(tmp_path, self.BROKEN.replace("max", "min"))
        assert compare(record, other).changes

    def test_a_depth_that_the_claim_does_not_have(self, tmp_path):
        claim = claim_of(tmp_path, self.BROKEN)
        result = judge(claim, Options(usual=24, search=60, out=str(tmp_path / "out")))
        assert result.replay is not None
        path = Path(result.replay)
        path.write_text(path.read_text().replace("\n  L: 2\n", "\n  L: 7\n"))
        with pytest.raises(ClaimFileError, match="give no depth of the claim; it has L = 1 in net; L = 2 in net"):
            read_counterexample(path)

    def test_the_store_keeps_each_depth(self, tmp_path):
        claim = claim_of(tmp_path, self.BROKEN)
        options = Options(usual=24, search=60, store=str(tmp_path / "store"))
        judge(claim, options)
        kept = sorted(path.name.partition("-")[0] for path in (tmp_path / "store" / "instances").iterdir())
        assert kept == ["C@L1", "C@L2"]
        again = judge(claim, options)
        assert again.verdict is Verdict.REFUTED
        assert not again.warnings

    def test_the_script_shows_the_broken_margin(self, tmp_path):
        result = judged(tmp_path, self.BROKEN)
        assert result.counterexample is not None
        script = result.counterexample.script
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        margin = float(done.stdout.split("margin ")[1].split()[0])
        assert margin == pytest.approx(result.counterexample.margin.lo)

    def test_a_gradient_by_a_member_in_a_script(self, tmp_path):
        result = judged(
            tmp_path,
            f'setting: net, {FORWARD}, conclude: "grad(norm(z[L])^2/2, W[1]) == z[L]*X\' for all l in 2..L"'.replace(
                "z[L]*X'", "0*grad(norm(z[L])^2/2, W[1])"
            ),
        )
        assert result.verdict is Verdict.REFUTED
        assert result.counterexample is not None
        script = result.counterexample.script
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert "margin -" in done.stdout

    def test_results_say_what_was_tried_of_each_depth(self, tmp_path):
        entry = result_to_dict(judged(tmp_path, 'setting: net, conclude: "norm(W[1]) >= 0"'))
        assert [depth["letters"] for depth in entry["depths"]] == [{"L": 1}, {"L": 2}, {"L": 3}]
        assert all(depth["verdict"] == "holds" for depth in entry["depths"])

    def test_the_page_says_which_depths_were_judged(self, tmp_path):
        result = judged(tmp_path, 'setting: net, conclude: "norm(W[1]) >= 0"')
        info = RunInfo("s", "t", "c", "now", 1.0, 0, {}, "cpu", "float64")
        write_html(tmp_path / "report.html", [result], info)
        page = (tmp_path / "report.html").read_text()
        assert all(f"<code>L = {depth}</code>" in page for depth in (1, 2, 3))


class TestMutants:
    def test_mutants_by_rule_are_judged(self, tmp_path):
        bound = "prod(norm(W[l]) for l in 1..L)"
        claim = claim_of(tmp_path, f'setting: net, conclude: "norm(prod(W[l] for l in L..1)) <= {bound}"')
        found = list(judge_mutants(claim, Options(usual=24, search=60), judge, most=4))
        assert {result.fate for result in found} <= {Fate.KILLED, Fate.WEAKER}
        assert Fate.KILLED in {result.fate for result in found}


@pytest.mark.long
@pytest.mark.parametrize("name", ["feed_forward", "mutants/feed_forward"])
def test_the_feed_forward_suite_comes_out_as_expected(name):
    for claim in load_suite(ROOT / "checks" / f"{name}.yaml").claims:
        assert isinstance(claim, Claim)
        result = judge(claim, Options(usual=40, search=400, shrink=False))
        assert result.as_expected, (claim.id, result.reason)


class TestRuns:
    FILE = """suite: t
settings:
  small:
    model: implicit-relu
    sizes: {N: 2, d: 3, m: 4, K: 2}
    init: {W: "normal(0, 1/m)", A: "normal(0, 1/(16*m))", b: "normal(0, 1/m)", gamma: 1/2}
    data: {X: orthonormal_rows, y: rademacher}
claims:
  - id: C
    setting: small
    instances: 1
    let: {"P[0]": W, "P[l] for l in 1..K": "2*P[l-1]"}
    run: {method: gradient-descent, step: 1/100, steps: 4, until: 0.5, beyond: false}
    conclude: "%s for all l in 0..K for all k"
"""

    @pytest.mark.parametrize(
        ("statement", "verdict"),
        [
            ("norm(P[l][k] - P[l][0]) <= 2^l*norm(W[k] - W[0]) + 1/1000", Verdict.HOLDS),
            ("norm(P[l][k]) <= norm(W[k]) + 1/1000", Verdict.REFUTED),
        ],
    )
    def test_members_along_a_training_run(self, tmp_path, statement, verdict):
        path = tmp_path / "a.yaml"
        path.write_text(self.FILE % statement)
        (claim,) = load_suite(path).claims
        assert isinstance(claim, Claim)
        assert judge(claim, Options(search=0)).verdict is verdict


class TestSystems:
    FILE = """suite: t
systems:
  ff:
    variables:
      W: {shape: "[n[l], n[l-1]] for l in 1..D", role: parameter}
      X: {shape: "[n[0], N]", role: input}
    define: {"z[0]": X, "z[l] for l in 1..D": "relu(W[l]*z[l-1])"}
settings:
  s: {model: ff, sizes: {D: 1..3, N: 1..2, n: "1..3 for l in 0..D"}}
claims:
  - {id: C, setting: s, conclude: "fro(z[D]) <= prod(norm(W[l]) for l in %s)*fro(X)"}
"""

    @pytest.mark.parametrize(("reach", "verdict"), [("1..D", Verdict.HOLDS), ("2..D", Verdict.REFUTED)])
    def test_a_declared_network(self, tmp_path, reach, verdict):
        path = tmp_path / "a.yaml"
        path.write_text(self.FILE % reach)
        (claim,) = load_suite(path).claims
        assert isinstance(claim, Claim)
        result = judge(claim, Options(usual=24, search=60, out=str(tmp_path / "out")))
        assert result.verdict is verdict
        if verdict is Verdict.REFUTED:
            assert result.replay is not None
            again = replay(read_counterexample(Path(result.replay)))
            assert again.identical
            assert not again.edited
            assert result.counterexample is not None
            done = subprocess.run(
                [sys.executable, "-c", result.counterexample.script], capture_output=True, text=True, check=True
            )
            assert "margin -" in done.stdout

    TRAINED = """suite: t
systems:
  ff:
    variables:
      W: {shape: "[n[l], n[l-1]] for l in 1..D", role: parameter}
      a: {shape: "[n[D]]", role: parameter}
      X: {shape: "[n[0], N]", role: input}
      y: {shape: "[N]", role: target}
    define:
      z[0]: X
      z[l] for l in 1..D: tanh(W[l]*z[l-1])
      yhat: z[D]'*a
      L: norm(yhat - y)^2/2
settings:
  s:
    model: ff
    sizes: {D: 1..2, N: 2, n: "2 for l in 0..D"}
    init: {W: "normal(0, 1/n[l-1])", a: "normal(0, 1)"}
    data: {X: "normal(0, 1)", y: rademacher}
claims:
  - id: C
    setting: s
    instances: 1
    let:
      d[D]: hadamard(a*(yhat - y)', ones(n[D], N) - hadamard(z[D], z[D]))
      d[l] for l in 1..D-1: hadamard(W[l+1]'*d[l+1], ones(n[l], N) - hadamard(z[l], z[l]))
      B[l] for l in 1..D: d[l]*z[l-1]'
    run: {method: gradient-descent, step: 1/100, steps: 3, until: 0.5, beyond: false}
    conclude: norm(W[l][k+1] - W[l][k] + B[l][k]/%s) <= 1/10^8 for all l in 1..D for all k
"""

    @pytest.mark.parametrize(("step", "verdict"), [("100", Verdict.HOLDS), ("99", Verdict.REFUTED)])
    def test_descent_takes_the_step_that_backpropagation_prints(self, tmp_path, step, verdict):
        path = tmp_path / "a.yaml"
        path.write_text(self.TRAINED % step)
        (claim,) = load_suite(path).claims
        assert isinstance(claim, Claim)
        assert judge(claim, Options(search=0)).verdict is verdict


def test_members_that_double_at_each_layer_cost_no_more_for_it(tmp_path):
    text = 'setting: chain, let: {"z[0]": "norm(W[1])", "z[l] for l in 1..L": "z[l-1] + z[l-1]/2"}, '
    result = judged(tmp_path, text + 'conclude: "z[L] >= 0"', Options(usual=2, search=0))
    assert result.verdict is Verdict.HOLDS


def test_a_counterexample_loses_members_as_long_as_it_stays_one(tmp_path, monkeypatch):
    claim = claim_of(tmp_path, 'setting: net, conclude: "max(fro(W[l]) for l in 1..L) <= 9"')
    monkeypatch.setattr(runner, "planned_depths", lambda claim, options: few_at_first(planned_depths(claim, options)))
    result = judge(claim, Options(usual=24, search=0, out=str(tmp_path)))
    assert [depth.verdict for depth in result.depths] == [Verdict.REFUTED, Verdict.HOLDS, Verdict.REFUTED]
    assert result.counterexample is not None
    assert result.counterexample.sizes == {"L": 1, "N": 1, "n[0]": 1, "n[1]": 1}
    assert result.reason.startswith("at L = 1")
    again = read_counterexample(tmp_path / "counterexamples" / "C.yaml")
    assert again.instance.sizes["L"] == 1
    assert replay(again).judgement.standing.value == "met"


def few_at_first(parts):
    """One instance, which breaks nothing, at all depths but the last."""
    return [(replace(part, instances=1), 1) for part, _ in parts[:-1]] + [parts[-1]]


def test_the_smallest_depth_width_and_scale(tmp_path):
    text = 'setting: scaled, assume: {a: beta >= 2, wide: m >= 2, deep: L >= 2}, conclude: "beta*norm(W[1]) >= 0"'
    file = FILE.replace("  numbers:", SCALED + "  numbers:")
    path = tmp_path / "a.yaml"
    path.write_text(file + "  - {id: C, instances: 24, " + text + "}\n")
    (claim,) = load_suite(path).claims
    assert names_to_move([claim]) >= {"L", "m", "beta"}
    text = 'setting: net, assume: {wide: "n[L] >= 2"}, conclude: "norm(W[L]) >= 0"'
    result = judged(tmp_path, text, replace(QUICK, search=10, smallest=("n",)))
    found = {(finding.text[:9], finding.detail["name"]): finding.detail["value"] for finding in result.findings}
    assert (found["at L = 2:", "n[1]"], found["at L = 2:", "n[2]"], found["at L = 3:", "n[3]"]) == (1, 2, 2)
    result = judge(claim, replace(QUICK, search=10, smallest=("L", "m", "beta")))
    values = {(finding.detail["name"], finding.text[:9]): finding.detail["value"] for finding in result.findings}
    assert values["L", "in settin"] == 2
    assert values["m", "at L = 1:"] is None
    assert values["m", "at L = 2:"] == 2
    assert 2 <= values["beta", "at L = 2:"] < 3


SCALED = """  scaled:
    sizes: {L: 1..2, m: 1..3}
    domain: {W: "real[m, m] for l in 1..L", beta: positive}
"""
